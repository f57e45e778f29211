//! Arguments of `export`.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, ValueEnum};

use base::ids::PhotoId;
use darktable::export::Profile;

/// Examples of `export`.
pub const EXAMPLES: &str = "\
Examples:
  chemigram export iguana branch_b_tone -o tone.jpg
  chemigram export iguana --session 4f2a9c -o to-print/ --format tiff --profile adobe-rgb
  chemigram export iguana main v2 -o web/ --size 2048 --jpeg-quality 88 --metadata none

darktable itself develops and scales the picture, at its highest quality; nothing is sharpened for the size.
The file is there whole and checked, or not at all. darktable writes its whole edit into every file: it stays
in with --metadata all only. The files of a folder are called PHOTO-REF.jpg (.tif, .png).

Linear profiles need 16 bits; display-p3 needs darktable 5.0.";

/// `export`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ExportArgs {
    /// The photo's id
    pub photo: PhotoId,
    /// What to export; several go into a folder
    #[arg(value_name = "REF", default_value = "HEAD")]
    pub refs: Vec<String>,
    /// The branches of a session instead: part of its id
    #[arg(long, value_name = "SESSION", conflicts_with = "refs")]
    pub session: Option<String>,
    /// The file (.jpg, .tif, .png), or a folder
    #[arg(short, long, value_name = "FILE|FOLDER")]
    pub output: PathBuf,
    /// Longest side in pixels; a smaller picture is not enlarged [default: full size]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(16..=30_000))]
    pub size: Option<u32>,
    /// The file's format [default: as the name ends; jpeg in a folder]
    #[arg(long)]
    pub format: Option<FileFormat>,
    /// Quality of a JPEG, 1 to 100 [default: 95]
    #[arg(long, value_name = "Q", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub jpeg_quality: Option<u8>,
    /// Bits of a colour value, 8 or 16 [default: 16 for TIFF, else 8]
    #[arg(long, value_name = "BITS", value_parser = bits)]
    pub bits: Option<u8>,
    /// The colour space, whose profile goes into the file
    #[arg(long, default_value = "srgb", value_parser = PossibleValuesParser::new(Profile::ALL.map(Profile::as_str)).try_map(|name| name.parse::<Profile>()))]
    pub profile: Profile,
    /// What the file tells beside its pixels
    #[arg(long, default_value = "camera")]
    pub metadata: Keep,
    /// Replace files that are there
    #[arg(long)]
    pub force: bool,
}

/// The formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FileFormat {
    /// JPEG, 8 bits.
    Jpeg,
    /// TIFF, compressed without loss.
    Tiff,
    /// PNG.
    Png,
}

/// What a file tells beside its pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Keep {
    /// The camera's Exif data; not the edit.
    Camera,
    /// The Exif data, and the whole edit as darktable writes it.
    All,
    /// Nothing but the profile.
    None,
}

fn bits(text: &str) -> Result<u8, String> {
    match text {
        "8" => Ok(8),
        "16" => Ok(16),
        _ => Err("it is 8 or 16".into()),
    }
}
