//! Arguments of the commands that take over work from darktable.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;

use base::ids::{PhotoId, RefName};
use engine::photo::IMPORTED;
use engine::vocabulary::made::{LUT_SPACES, MARK_PLACES};

/// `import-sidecar`.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  chemigram import-sidecar iguana DSC_0042.NEF.xmp --label \"as printed in May\"\n\n\
                  Both the sidecar and what was read of it are rendered; only if no pixel differs is it taken over."
)]
pub struct ImportArgs {
    /// The photo's id
    pub photo: PhotoId,
    /// The sidecar (.xmp) that darktable wrote
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The branch that gets the edit; made at the baseline if it is not there
    #[arg(long, value_name = "NAME", default_value = IMPORTED)]
    pub branch: RefName,
    /// Words for the history
    #[arg(long, default_value = "")]
    pub label: String,
}

/// `vocab import`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  chemigram vocab import \"Dusk & dawn.dtstyle\"\n  chemigram apply iguana dusk_dawn\n\n  \
                  chemigram vocab import ~/luts/*.cube\n  chemigram apply iguana kodak_2383 opacity=60\n\n\
                  A style is applied whole and cannot be adjusted. A LUT becomes a move, whose strength is its opacity. \
                  Neither may take the name of another move or look."
)]
pub struct VocabImportArgs {
    /// A style (.dtstyle), or LUTs: .cube, or Hald pictures (.png, 8 bits)
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Its name here [default: made of the style's name, or of the LUT's file name]
    #[arg(long)]
    pub name: Option<String>,
    /// The colour space that the LUTs are made for
    #[arg(long, value_name = "SPACE", default_value = "srgb", value_parser = lut_space())]
    pub space: String,
}

fn lut_space() -> PossibleValuesParser {
    PossibleValuesParser::new(LUT_SPACES.map(|(name, _)| name))
}

/// `vocab mark`.
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  chemigram vocab mark \"© Ann Example\" --name signature\n  chemigram apply iguana signature opacity=60\n\n\
                  Only what you wrote here can be written into a picture, by you or by a session. The move's file, \
                  moves/mark_NAME.toml in your vocabulary folder, also has the font and the colour."
)]
pub struct MarkArgs {
    /// The words: one line of 60 characters at most
    pub text: String,
    /// The move's name [default: made of the words]
    #[arg(long)]
    pub name: Option<String>,
    /// Where they stand
    #[arg(long, value_name = "PLACE", default_value = "bottom-right", value_parser = mark_place())]
    pub place: String,
    /// The height of the letters, in percent of the picture's shorter side
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0, value_parser = percent)]
    pub size: f64,
}

/// `vocab lens`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  chemigram vocab lens \"Helios-44 58mm\" --camera \"Nikon D700\" --name helios\n  \
                  chemigram apply iguana helios aperture=4\n\n  \
                  chemigram vocab lens \"Canon EF 20mm f/2.8 USM\" --aperture 2.8\n\n\
                  Any words of the name will do that no other lens has. The profiles are lensfun's, as darktable has \
                  them; your own stand in lensfun/*.xml beside your chemigram folder."
)]
pub struct LensArgs {
    /// The lens, as lensfun calls it
    #[arg(value_name = "LENS")]
    pub lens: String,
    /// The camera, for the size of its sensor [default: full frame, or the largest that the profile is for]
    #[arg(long, value_name = "MODEL")]
    pub camera: Option<String>,
    /// The focal length [default: the lens's, of a zoom the one in the file]
    #[arg(long, value_name = "MM", value_parser = millimetres)]
    pub focal: Option<f64>,
    /// The aperture as an f-number [default: the one in the file; without any, dark corners stay]
    #[arg(long, value_name = "F", value_parser = f_number)]
    pub aperture: Option<f64>,
    /// The move's name [default: made of the lens's]
    #[arg(long)]
    pub name: Option<String>,
}

fn millimetres(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(focal) if (1.0..=5000.0).contains(&focal) => Ok(focal),
        _ => Err("it goes from 1 to 5000".into()),
    }
}

fn f_number(text: &str) -> Result<f64, String> {
    match text.trim_start_matches("f/").parse() {
        Ok(aperture) if (0.5..=128.0).contains(&aperture) => Ok(aperture),
        _ => Err("it goes from 0.5 to 128".into()),
    }
}

fn mark_place() -> PossibleValuesParser {
    PossibleValuesParser::new(MARK_PLACES.map(|(name, ..)| name))
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(size) if (0.5..=10.0).contains(&size) => Ok(size),
        _ => Err("it goes from 0.5 to 10".into()),
    }
}

/// `bind-layers`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  chemigram bind-layers iguana --dry-run\n  chemigram bind-layers iguana --look quiet_evening=0.6\n\n\
                  Bindings stand in `bindings/*.toml` in your vocabulary folder; docs/import.md shows one."
)]
pub struct BindArgs {
    /// The photo's id
    pub photo: PhotoId,
    /// Only what is bound to camera and lens, no look
    #[arg(long, conflicts_with = "look")]
    pub camera_lens: bool,
    /// Only this look or style, whatever is bound
    #[arg(long, value_name = "NAME[=STRENGTH]", value_parser = look)]
    pub look: Option<(String, Option<f64>)>,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Words for the history
    #[arg(long, default_value = "")]
    pub label: String,
}

/// `NAME` or `NAME=STRENGTH`.
fn look(text: &str) -> Result<(String, Option<f64>), String> {
    let Some((name, strength)) = text.split_once('=') else { return Ok((text.to_owned(), None)) };
    let strength = strength.parse().map_err(|_| format!("`{strength}` is no number from 0 to 1"))?;
    Ok((name.to_owned(), Some(strength)))
}
