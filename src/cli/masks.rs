//! `mask`: masks with names of one photo.

use clap::Subcommand;
use serde_json::json;

use super::edit::mask_spec;
use super::failure::Failure;
use super::setup::{App, text};
use super::sought;
use crate::review::line;
use base::ids::PhotoId;

pub const MASK_EXAMPLES: &str = "\
Examples:
  chemigram mask save iguana eye '{\"shape\":\"circle\",\"center\":[0.52,0.4],\"radius\":0.08}'
  chemigram apply iguana exposure ev=0.3 --mask '{\"named\":\"eye\"}'
  chemigram mask list iguana

A name of the photo goes before one of the vocabulary, by hand and in sessions. The mask is kept as it is now: edits \
that use it do not change when the name gets another mask.";

#[derive(Subcommand, Debug)]
#[command(defer = true)]
pub enum MaskVerb {
    /// Give a mask a name
    Save {
        /// The photo's id
        photo: PhotoId,
        /// The name: a-z, 0-9 and _
        name: String,
        /// The mask: JSON, or @FILE
        #[arg(value_name = "JSON|@FILE")]
        mask: String,
    },
    /// List the photo's masks
    List {
        /// The photo's id
        photo: PhotoId,
    },
    /// Take a name back; edits keep their mask
    Delete {
        /// The photo's id
        photo: PhotoId,
        /// The name
        name: String,
    },
}

pub fn mask(app: &App, verb: &MaskVerb) -> Result<(), Failure> {
    match verb {
        MaskVerb::Save { photo, name, mask } => {
            let workspace = app.photo(photo)?;
            let at = workspace.resolve("HEAD")?;
            let (state, facts) = (workspace.state_of(&at)?, workspace.facts(&at)?);
            let mask = sought::find(app, &workspace, &state, &facts, mask_spec(&text(mask)?)?)?;
            app.vocabulary()?.check_mask(&mask)?;
            app.writer(photo, "mask")?.save_mask(name, &mask)?;
            app.output.result(&json!({ "saved": name, "mask": mask }), || {
                format!("{name}  {}\n", line(&mask.summary()))
            })
        }
        MaskVerb::List { photo } => {
            let saved = app.photo(photo)?.saved_masks()?;
            app.output.result(&saved, || {
                let row = |(name, one): (&String, &engine::photo::SavedMask)| {
                    format!("{name}  {}\n", line(&one.mask.summary()))
                };
                saved.iter().map(row).collect()
            })
        }
        MaskVerb::Delete { photo, name } => {
            app.writer(photo, "mask")?.delete_mask(name)?;
            app.output.result(&json!({ "deleted": name }), || format!("deleted {name}\n"))
        }
    }
}
