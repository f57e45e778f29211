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

darktable develops and scales the picture at its highest quality; no sharpening is added for the size. A file appears \
only when it is complete and checked. The edit itself is written into the file only with --metadata all. Files in a \
folder are named PHOTO-REF.jpg (.tif, .png).

Linear profiles need 16 bits; display-p3 needs darktable 5.0.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ExportArgs {
    /// The photo's id
    pub photo: PhotoId,
    /// Branches, tags or commits; several need a folder as --output
    #[arg(value_name = "REF", default_value = "HEAD")]
    pub refs: Vec<String>,
    /// Export the branches of this session: at least four characters of its id
    #[arg(long, value_name = "SESSION", conflicts_with = "refs")]
    pub session: Option<String>,
    /// Output file (.jpg, .tif, .png), or a folder
    #[arg(short, long, value_name = "FILE|FOLDER")]
    pub output: PathBuf,
    /// Longest side in pixels; smaller pictures are not enlarged [default: full size]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(16..=30_000))]
    pub size: Option<u32>,
    /// File format [default: from the file name; jpeg in a folder]
    #[arg(long)]
    pub format: Option<FileFormat>,
    /// JPEG quality, 1 to 100 [default: 95]
    #[arg(long, value_name = "Q", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub jpeg_quality: Option<u8>,
    /// Bits per channel, 8 or 16 [default: 16 for TIFF, otherwise 8]
    #[arg(long, value_name = "BITS", value_parser = bits)]
    pub bits: Option<u8>,
    /// Colour space; its profile is embedded
    #[arg(long, default_value = "srgb", value_parser = PossibleValuesParser::new(Profile::ALL.map(Profile::as_str)).try_map(|name| name.parse::<Profile>()))]
    pub profile: Profile,
    /// Metadata to write
    #[arg(long, default_value = "camera")]
    pub metadata: Keep,
    /// Overwrite existing files
    #[arg(long)]
    pub force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FileFormat {
    /// JPEG, 8 bits.
    Jpeg,
    /// TIFF, 8 or 16 bits, lossless compression.
    Tiff,
    /// PNG, 8 or 16 bits.
    Png,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Keep {
    /// The camera's Exif data, without the edit.
    Camera,
    /// The Exif data and the whole edit, as darktable writes it.
    All,
    /// Only the colour profile.
    None,
}

fn bits(text: &str) -> Result<u8, String> {
    match text {
        "8" => Ok(8),
        "16" => Ok(16),
        _ => Err("must be 8 or 16".into()),
    }
}
