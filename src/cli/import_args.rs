//! Arguments of the commands that import work from darktable.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;

use base::ids::{PhotoId, RefName};
use engine::photo::IMPORTED;
use engine::vocabulary::made::{LUT_SPACES, MARK_PLACES};

#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  chemigram import-sidecar iguana DSC_0042.NEF.xmp --label \"as printed in May\"\n\n\
                  The sidecar and the imported edit are both rendered; the import succeeds only if they match pixel for pixel."
)]
pub struct ImportArgs {
    /// The photo's id
    pub photo: PhotoId,
    /// darktable's sidecar (.xmp)
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The branch for the edit; created at the baseline if it does not exist
    #[arg(long, value_name = "NAME", default_value = IMPORTED)]
    pub branch: RefName,
    /// Message for the history
    #[arg(long, default_value = "", hide_default_value = true)]
    pub label: String,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  chemigram vocab import \"Dusk & dawn.dtstyle\"\n  chemigram apply iguana dusk_dawn\n\n  \
                  chemigram vocab import ~/luts/*.cube\n  chemigram apply iguana kodak_2383 opacity=60\n\n\
                  A style can only be applied as a whole. A LUT becomes a move, and its opacity is its strength. \
                  Neither may have the name of another move or look."
)]
pub struct VocabImportArgs {
    /// A style (.dtstyle), or LUTs: .cube, or 8-bit Hald images (.png)
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Its name in chemigram [default: derived from the style or the LUT's file name]
    #[arg(long)]
    pub name: Option<String>,
    /// Colour space of the LUTs
    #[arg(long, value_name = "SPACE", default_value = "srgb", value_parser = lut_space())]
    pub space: String,
}

fn lut_space() -> PossibleValuesParser {
    PossibleValuesParser::new(LUT_SPACES.map(|(name, _)| name))
}

#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  chemigram vocab mark \"© Ann Example\" --name signature\n  chemigram apply iguana signature opacity=60\n\n\
                  Sessions can write only texts that you defined here. To change font and colour, edit \
                  moves/mark_NAME.toml in your vocabulary folder."
)]
pub struct MarkArgs {
    /// The text: one line of up to 60 characters
    pub text: String,
    /// The move's name [default: derived from the text]
    #[arg(long)]
    pub name: Option<String>,
    /// Position of the text
    #[arg(long, value_name = "PLACE", default_value = "bottom-right", value_parser = mark_place())]
    pub place: String,
    /// Height of the letters, in percent of the picture's shorter side
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0, value_parser = percent)]
    pub size: f64,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  chemigram vocab lens \"Helios-44 58mm\" --camera \"Nikon D700\" --name helios\n  \
                  chemigram apply iguana helios aperture=4\n\n  \
                  chemigram vocab lens \"Canon EF 20mm f/2.8 USM\" --aperture 2.8\n\n\
                  A part of the name is enough if no other lens has it. The profiles are those of lensfun, as darktable \
                  uses them; put your own in lensfun/*.xml next to your chemigram folder."
)]
pub struct LensArgs {
    /// The lens, by its name in lensfun
    #[arg(value_name = "LENS")]
    pub lens: String,
    /// The camera, for its sensor size [default: full frame, or the largest sensor the profile covers]
    #[arg(long, value_name = "MODEL")]
    pub camera: Option<String>,
    /// Focal length [default: the lens's own; for a zoom, the one in the raw file]
    #[arg(long, value_name = "MM", value_parser = millimetres)]
    pub focal: Option<f64>,
    /// Aperture as an f-number [default: the one in the raw file; without one, vignetting is not corrected]
    #[arg(long, value_name = "F", value_parser = f_number)]
    pub aperture: Option<f64>,
    /// The move's name [default: derived from the lens]
    #[arg(long)]
    pub name: Option<String>,
}

fn millimetres(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(focal) if (1.0..=5000.0).contains(&focal) => Ok(focal),
        _ => Err("must be between 1 and 5000".into()),
    }
}

fn f_number(text: &str) -> Result<f64, String> {
    match text.trim_start_matches("f/").parse() {
        Ok(aperture) if (0.5..=128.0).contains(&aperture) => Ok(aperture),
        _ => Err("must be between 0.5 and 128".into()),
    }
}

fn mark_place() -> PossibleValuesParser {
    PossibleValuesParser::new(MARK_PLACES.map(|(name, ..)| name))
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(size) if (0.5..=10.0).contains(&size) => Ok(size),
        _ => Err("must be between 0.5 and 10".into()),
    }
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  chemigram bind-layers iguana --dry-run\n  chemigram bind-layers iguana --look quiet_evening=0.6\n\n\
                  Bindings are in `bindings/*.toml` in your vocabulary folder; docs/import.md shows one."
)]
pub struct BindArgs {
    /// The photo's id
    pub photo: PhotoId,
    /// Only the layers bound to camera and lens, without a look
    #[arg(long, conflicts_with = "look")]
    pub camera_lens: bool,
    /// Only this look or style, ignoring bindings
    #[arg(long, value_name = "NAME[=STRENGTH]", value_parser = look)]
    pub look: Option<(String, Option<f64>)>,
    /// Show what would change, without changing anything
    #[arg(long)]
    pub dry_run: bool,
    /// Message for the history
    #[arg(long, default_value = "", hide_default_value = true)]
    pub label: String,
}

/// `NAME` or `NAME=STRENGTH`.
fn look(text: &str) -> Result<(String, Option<f64>), String> {
    let Some((name, strength)) = text.split_once('=') else { return Ok((text.to_owned(), None)) };
    let strength = strength.parse().map_err(|_| format!("`{strength}` is not a number from 0 to 1"))?;
    Ok((name.to_owned(), Some(strength)))
}
