//! LUTs: reading those that others wrote, and holding an edit to the ones that it names.
//!
//! darktable finds a LUT by its path below one folder. One that it cannot read is left out with no more than a line on
//! standard error; a text with too many lines or another domain brings it down; and two spaces between numbers it
//! takes for other numbers. So a LUT is parsed here and written in the plainest form, under its own SHA-256, and
//! an edit that names one is rendered only where the very same is in the folder. So the hash of an edit, and with it
//! the name of a cached picture, holds the hashes of its LUTs.

use std::fmt::Write as _;
use std::io::Cursor;
use std::path::Path;

use image::codecs::png::{PngDecoder, PngEncoder};
use image::{DynamicImage, ExtendedColorType, ImageDecoder as _, ImageEncoder as _};

use crate::state::{EditState, Params, Value};
use base::error::{Coded, ErrorCode};
use base::files;
use base::ids::Hash;

/// darktable's module.
pub const OP: &str = "lut3d";
/// darktable's setting of the folder that LUTs lie in.
pub(crate) const FOLDER_SETTING: &str = "plugins/darkroom/lut3d/def_path";
/// The largest file of a LUT.
pub const MAX_BYTES: u64 = 128 << 20;
/// The colours along each side of a `.cube`.
const SIZES: std::ops::RangeInclusive<usize> = 2..=129;
/// The level of a Hald picture: its side is the third power of it.
const LEVELS: std::ops::RangeInclusive<u32> = 2..=16;
/// The most memory that decoding a Hald picture may take.
const DECODE_BYTES: u64 = 256 << 20;
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// A LUT that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lut {
    /// The name of its file: the SHA-256 of [`Self::bytes`] and an ending.
    pub name: String,
    /// Its file.
    pub bytes: Vec<u8>,
    /// How many colours lie along each side of the cube.
    pub size: usize,
    /// What it calls itself.
    pub title: Option<String>,
}

/// Why a LUT cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LutError {
    /// A line of a `.cube` is not what it should be.
    #[error("line {line}: {reason}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The file as a whole is not what it should be.
    #[error("{0}")]
    File(String),
    /// The edit uses a LUT that is not there.
    #[error("the edit needs the LUT {0}, which is not in the LUT folder")]
    Missing(String),
    /// The file of that name holds something else.
    #[error("the LUT {0} is damaged: its content is not the one that the edit was made with")]
    Changed(String),
    /// The edit names a LUT that was not imported here.
    #[error("the edit uses the LUT `{0}` out of another program's folder, whose content is not known")]
    Foreign(String),
    /// A LUT that a sidecar holds in itself, or parameters of another version.
    #[error("the edit uses a LUT in a form that is not known")]
    Unknown,
}

impl Coded for LutError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Missing(_) => ErrorCode::NotFound,
            Self::Changed(_) => ErrorCode::StateError,
            Self::Foreign(_) | Self::Unknown => ErrorCode::SynthesizerError,
            Self::Line { .. } | Self::File(_) => ErrorCode::InvalidInput,
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::Missing(_) => Some("import its file again: `chemigram vocab import FILE`".into()),
            Self::Changed(_) => {
                Some("delete that file and import the LUT again: `chemigram vocab import FILE`".into())
            }
            Self::Foreign(_) => Some(
                "import the LUT's file with `chemigram vocab import FILE`, take the module out in darktable, and \
                 apply the move that the import made"
                    .into(),
            ),
            Self::Unknown => Some("take the module `lut 3D` out of the edit in darktable".into()),
            Self::Line { .. } | Self::File(_) => None,
        }
    }
}

/// Reads a `.cube` or an 8-bit Hald picture (PNG).
///
/// # Errors
/// [`LutError`] says what is wrong with it, and in which line.
pub fn read(file: &[u8]) -> Result<Lut, LutError> {
    if file.starts_with(PNG) { hald(file) } else { cube(file) }
}

/// The title of a `.cube` is cut to so many characters.
const LONGEST_TITLE: usize = 60;

fn cube(file: &[u8]) -> Result<Lut, LutError> {
    if file.contains(&0) {
        return Err(LutError::File("it is neither a .cube nor a PNG".into()));
    }
    let text = String::from_utf8_lossy(file);
    let (mut title, mut size) = (None, None);
    let (mut out, mut rows) = (String::new(), 0_usize);
    for (at, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let bad = |reason: String| LutError::Line { line: at + 1, reason };
        let line = line.trim();
        if let Some(words) = line.strip_prefix("TITLE") {
            let words: String = words.chars().filter(|c| !c.is_control() && *c != '"').collect();
            title =
                Some(words.trim().chars().take(LONGEST_TITLE).collect()).filter(|t: &String| !t.is_empty());
            continue;
        }
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(first) = words.next() else { continue };
        let numbers = |words: &mut dyn Iterator<Item = &str>| {
            words.map(|word| word.parse::<f32>().ok().filter(|n| n.is_finite())).collect::<Option<Vec<_>>>()
        };
        match first {
            "LUT_3D_SIZE" => {
                let told = words.next().and_then(|word| word.parse().ok()).filter(|n| SIZES.contains(n));
                let (least, most) = (SIZES.start(), SIZES.end());
                let told = told.ok_or_else(|| bad(format!("LUT_3D_SIZE goes from {least} to {most}")))?;
                if size.replace(told).is_some() {
                    return Err(bad("LUT_3D_SIZE is given twice".into()));
                }
                let _ = writeln!(out, "LUT_3D_SIZE {told}");
            }
            "LUT_1D_SIZE" => return Err(bad("it is a 1D LUT; darktable supports only 3D LUTs".into())),
            "DOMAIN_MIN" | "DOMAIN_MAX" | "LUT_3D_INPUT_RANGE" => {
                let expected: &[f32] = match first {
                    "DOMAIN_MIN" => &[0.0; 3],
                    "DOMAIN_MAX" => &[1.0; 3],
                    _ => &[0.0, 1.0],
                };
                if numbers(&mut words).as_deref() != Some(expected) {
                    return Err(bad(format!("{first}: darktable supports only LUTs for values from 0 to 1")));
                }
            }
            _ if first.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                return Err(bad(format!("`{}` is not known", first.escape_debug())));
            }
            _ => {
                let side = size.ok_or_else(|| bad("colours before LUT_3D_SIZE".into()))?;
                let colour = numbers(&mut std::iter::once(first).chain(words));
                let Some([red, green, blue]) = colour.as_deref() else {
                    return Err(bad("not three finite numbers".into()));
                };
                rows += 1;
                if rows > side.pow(3) {
                    return Err(bad(format!("more than {side} × {side} × {side} colours")));
                }
                let _ = writeln!(out, "{red} {green} {blue}");
            }
        }
    }
    let side = size.ok_or_else(|| LutError::File("it has no LUT_3D_SIZE".into()))?;
    if rows != side.pow(3) {
        return Err(LutError::File(format!(
            "it has {rows} colours; LUT_3D_SIZE {side} needs {}",
            side.pow(3)
        )));
    }
    Ok(named(out.into_bytes(), "cube", side, title))
}

fn hald(file: &[u8]) -> Result<Lut, LutError> {
    let undecodable = |error: image::ImageError| LutError::File(format!("it does not decode: {error}"));
    let mut decoder = PngDecoder::new(Cursor::new(file)).map_err(undecodable)?;
    let (width, height) = decoder.dimensions();
    let level =
        LEVELS.into_iter().find(|level| level.pow(3) == width && width == height).ok_or_else(|| {
            LutError::File(format!(
                "it is {width} by {height}: a Hald picture is square, its side 8, 27, 64, 125 … 4096"
            ))
        })?;
    let mut limits = image::Limits::default();
    limits.max_alloc = Some(DECODE_BYTES);
    decoder.set_limits(limits).map_err(undecodable)?;
    let pixels = match DynamicImage::from_decoder(decoder).map_err(undecodable)? {
        DynamicImage::ImageRgb8(image) => image,
        image @ DynamicImage::ImageRgba8(_) => image.into_rgb8(),
        other => {
            return Err(LutError::File(format!("it is {:?}; save it as RGB with 8 bits", other.color())));
        }
    };
    let mut bytes = Vec::new();
    PngEncoder::new(&mut bytes)
        .write_image(&pixels, width, height, ExtendedColorType::Rgb8)
        .map_err(|error| LutError::File(format!("it cannot be written: {error}")))?;
    Ok(named(bytes, "png", level.pow(2) as usize, None))
}

fn named(bytes: Vec<u8>, ending: &str, size: usize, title: Option<String>) -> Lut {
    Lut { name: format!("{}.{ending}", Hash::of(&bytes)), bytes, size, title }
}

/// Whether the LUTs that a state uses lie in `folder` as they were imported.
///
/// # Errors
/// [`LutError`] names the LUT that is missing or changed.
pub fn check(state: &EditState, folder: Option<&Path>) -> Result<(), LutError> {
    for module in state.modules.iter().filter(|module| module.op == OP && module.enabled) {
        let Params::Fields(fields) = &module.params else { return Err(LutError::Unknown) };
        // Without a name darktable does nothing.
        let Some(Value::Text(name)) = fields.get("filepath").filter(|v| **v != Value::Text(String::new()))
        else {
            continue;
        };
        let told = name.strip_suffix(".cube").or_else(|| name.strip_suffix(".png"));
        let Some(hash) = told.and_then(|stem| stem.parse::<Hash>().ok()) else {
            return Err(LutError::Foreign(name.escape_debug().to_string()));
        };
        let file = folder.map(|folder| folder.join(name)).filter(|file| file.exists());
        let file = file.ok_or_else(|| LutError::Missing(name.clone()))?;
        if !files::hash(&file).is_ok_and(|(found, _)| found == hash) {
            return Err(LutError::Changed(name.clone()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cube of two colours a side, red and blue exchanged.
    fn rows() -> Vec<String> {
        (0..8).map(|i| format!("{} {} {}", i >> 2 & 1, i >> 1 & 1, i & 1)).collect()
    }

    fn text(head: &str, rows: &[String]) -> String {
        format!("{head}\n{}\n", rows.join("\n"))
    }

    #[test]
    fn whatever_the_spelling_the_same_lut_is_the_same_file() {
        let plain = read(text("LUT_3D_SIZE 2", &rows()).as_bytes()).unwrap();
        assert_eq!(plain.bytes, text("LUT_3D_SIZE 2", &rows()).into_bytes());
        assert_eq!(plain.name, format!("{}.cube", Hash::of(&plain.bytes)));
        assert_eq!((plain.size, &plain.title), (2, &None));
        let spelled: Vec<String> = rows()
            .iter()
            .map(|r| format!("  {}.0e0  # x", r.replace(' ', ".000\t ").replace("1", "+1")))
            .collect();
        for (head, rows) in [
            ("\u{feff}# a comment\r\n\r\nLUT_3D_SIZE   2\r", rows()),
            ("DOMAIN_MIN 0 0 0\nDOMAIN_MAX 1.0 1 1\nLUT_3D_INPUT_RANGE 0.0 1.0\nLUT_3D_SIZE 2 # x", rows()),
            ("LUT_3D_SIZE\t2", spelled),
        ] {
            assert_eq!(read(text(head, &rows).as_bytes()).unwrap().bytes, plain.bytes, "{head}");
        }
        let title = format!("TITLE \"Dusk\u{7} {}\"\nLUT_3D_SIZE 2", "x".repeat(100));
        let titled = read(text(&title, &rows()).as_bytes()).unwrap();
        assert_eq!(titled.name, plain.name);
        assert_eq!(titled.title, Some(format!("Dusk {}", "x".repeat(55))));
        // Numbers keep what 32 bits hold, and need no exponent.
        let mut small = rows();
        small[0] = "1e-7 -0.12345678 1.5".into();
        let bytes = read(text("LUT_3D_SIZE 2", &small).as_bytes()).unwrap().bytes;
        assert!(String::from_utf8(bytes).unwrap().contains("\n0.0000001 -0.12345678 1.5\n"));
    }

    #[test]
    fn what_darktable_would_choke_on_or_misread_is_refused_with_its_line() {
        let with = |place: usize, row: &str| {
            let mut rows = rows();
            rows[place] = row.into();
            text("LUT_3D_SIZE 2", &rows)
        };
        let [short, long] = [&rows()[..7], &[rows(), rows()].concat()].map(|r| text("LUT_3D_SIZE 2", r));
        for (file, expected) in [
            (String::new(), "no LUT_3D_SIZE"),
            (short, "7 colours"),
            (long, "line 10: more than 2 × 2 × 2"),
            (with(2, "0 nan 1"), "line 4: not three"),
            (with(2, "0 1e40 1"), "line 4: not three"),
            (with(2, "0 0,5 1"), "line 4: not three"),
            (with(2, "0 1"), "line 4: not three"),
            (with(2, "0 1 1 1"), "line 4: not three"),
            (with(2, "inf 1 1"), "line 4: `inf`"),
            (text("LUT_1D_SIZE 2", &rows()), "1D LUT"),
            (text("LUT_3D_SIZE 1000", &rows()), "2 to 129"),
            (text("LUT_3D_SIZE 2\nLUT_3D_SIZE 2", &rows()), "twice"),
            (text("LUT_3D_SIZE 2\nDOMAIN_MAX 2 2 2", &rows()), "line 2: DOMAIN_MAX"),
            (text("LUT_3D_SIZE 2\nLUT_3D_INPUT_RANGE 0 4", &rows()), "LUT_3D_INPUT_RANGE"),
            (text("LUT_IN_VIDEO_RANGE", &rows()), "`LUT_IN_VIDEO_RANGE` is not known"),
            (format!("{}\nLUT_3D_SIZE 2", rows().join("\n")), "line 1: colours before"),
            ("LUT_3D_SIZE 2\n\0".into(), "neither"),
        ] {
            let error = read(file.as_bytes()).unwrap_err();
            assert!(error.to_string().contains(expected), "{expected}: {error}");
            assert_eq!(error.code(), ErrorCode::InvalidInput);
        }
    }

    fn png(side: u32, other: u32) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        let image = image::RgbImage::from_fn(side, other, |x, y| image::Rgb([x as u8, y as u8, 9]));
        image.write_to(&mut bytes, image::ImageFormat::Png).unwrap();
        bytes.into_inner()
    }

    #[test]
    fn a_hald_picture_has_a_side_that_is_a_third_power() {
        let lut = read(&png(27, 27)).unwrap();
        assert_eq!((lut.size, lut.name.ends_with(".png")), (9, true));
        let pixels = |bytes: &[u8]| image::load_from_memory(bytes).unwrap().into_rgb8();
        assert_eq!(pixels(&lut.bytes), pixels(&png(27, 27)));
        assert_eq!(read(&lut.bytes).unwrap().name, lut.name);
        for (file, expected) in [
            (png(26, 26), "26 by 26"),
            (png(27, 8), "27 by 8"),
            (png(1, 1), "1 by 1"),
            (png(27, 27)[..90].to_vec(), "does not decode"),
        ] {
            let error = read(&file).unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
        let mut deep = Cursor::new(Vec::new());
        let image = DynamicImage::ImageRgb16(image::ImageBuffer::new(8, 8));
        image.write_to(&mut deep, image::ImageFormat::Png).unwrap();
        assert!(read(deep.get_ref()).unwrap_err().to_string().contains("8 bits"));
    }
}
