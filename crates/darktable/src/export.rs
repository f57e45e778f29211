//! Exported pictures: at full size, in any format and colour space, by darktable's own exporter.
//!
//! What darktable writes is checked first: that it decodes in full, has the bits and the
//! requested size, is not blank, and carries the right profile, by its numbers rather than its name.
//! Then its metadata is cut down ([`crate::metadata`]).

use std::fmt;
use std::io::Cursor;
use std::str::FromStr;
use std::time::{Duration, Instant};

use image::codecs::{jpeg::JpegDecoder, png::PngDecoder, tiff::TiffDecoder};
use image::{ColorType, DynamicImage, ImageDecoder, ImageResult};

use crate::checks::{self, Blank};
use crate::icc::{Icc, Primaries};
use crate::metadata::{self, Metadata};
use crate::oneshot::OneShot;
use crate::probe::Version;
use crate::render::{Picture, Quality, RawFile, RenderError};
use crate::scratch::{History, LARGEST_EDGE, RenderJob, Scratch};
use crate::state::EditState;
use base::clock::Deadline;
use base::error::{Coded, ErrorCode};

/// The most memory that decoding an export may take.
const DECODE_BYTES: u64 = 4 << 30;
/// The first darktable that writes Display P3.
const DISPLAY_P3_SINCE: Version = Version { major: 5, minor: 0, patch: 0 };

/// The form of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JPEG, of a quality from 1 to 100.
    Jpeg(u8),
    /// TIFF, deflated.
    Tiff(Depth),
    /// PNG.
    Png(Depth),
}

/// Bits of a colour value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// 8.
    Eight,
    /// 16.
    Sixteen,
}

impl Format {
    /// The ending of a file's name.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Jpeg(_) => "jpg",
            Self::Tiff(_) => "tif",
            Self::Png(_) => "png",
        }
    }

    /// Bits of a colour value.
    pub fn bits(self) -> u8 {
        match self {
            Self::Tiff(Depth::Sixteen) | Self::Png(Depth::Sixteen) => 16,
            _ => 8,
        }
    }

    /// The name of the picture that darktable writes.
    pub(super) fn file_name(self) -> String {
        format!("picture.{}", self.extension())
    }

    /// What darktable is to be configured with.
    pub(super) fn settings(self) -> Vec<String> {
        let plugin = |setting: &str| format!("plugins/imageio/format/{setting}");
        let bits = self.bits();
        match self {
            Self::Jpeg(quality) => vec![plugin(&format!("jpeg/quality={quality}"))],
            // 2: deflate, of differences between neighbours. 0: whole numbers. 0: colour, even where all is grey.
            Self::Tiff(_) => ["compress=2", "pixelformat=0", "shortfile=0", &format!("bpp={bits}")]
                .map(|setting| plugin(&format!("tiff/{setting}")))
                .to_vec(),
            Self::Png(_) => vec![plugin("png/compression=5"), plugin(&format!("png/bpp={bits}"))],
        }
    }
}

/// A colour space that darktable writes and knows a profile for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// sRGB.
    Srgb,
    /// Adobe RGB (1998), or what is compatible with it.
    AdobeRgb,
    /// Display P3; from darktable 5.0 on.
    DisplayP3,
    /// Rec. 709 with its camera curve.
    Rec709,
    /// Rec. 709 primaries, linear.
    LinearRec709,
    /// Rec. 2020 primaries, linear.
    LinearRec2020,
    /// ProPhoto (ROMM) primaries, linear.
    LinearProphoto,
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Srgb,
        Self::AdobeRgb,
        Self::DisplayP3,
        Self::Rec709,
        Self::LinearRec709,
        Self::LinearRec2020,
        Self::LinearProphoto,
    ];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Srgb => "srgb",
            Self::AdobeRgb => "adobe-rgb",
            Self::DisplayP3 => "display-p3",
            Self::Rec709 => "rec709",
            Self::LinearRec709 => "linear-rec709",
            Self::LinearRec2020 => "linear-rec2020",
            Self::LinearProphoto => "linear-prophoto",
        }
    }

    /// darktable's name of it, for `--icc-type`.
    pub(super) fn icc_type(self) -> &'static str {
        match self {
            Self::Srgb => "SRGB",
            Self::AdobeRgb => "ADOBERGB",
            Self::DisplayP3 => "DISPLAY_P3",
            Self::Rec709 => "REC709",
            Self::LinearRec709 => "LIN_REC709",
            Self::LinearRec2020 => "LIN_REC2020",
            Self::LinearProphoto => "PROPHOTO_RGB",
        }
    }

    /// The linear light, 0 to 1, of the encoded value in the middle.
    fn middle(self) -> f64 {
        match self {
            Self::Srgb | Self::DisplayP3 => 0.214_04,
            // Half to the power of 563/256.
            Self::AdobeRgb => 0.217_76,
            Self::Rec709 => 0.259_59,
            Self::LinearRec709 | Self::LinearRec2020 | Self::LinearProphoto => 0.5,
        }
    }

    /// The red, green and blue of it in XYZ, adapted to D50 by Bradford, as ICC profiles have them.
    fn primaries(self) -> Primaries {
        match self {
            Self::Srgb | Self::Rec709 | Self::LinearRec709 => {
                [[0.4360, 0.2225, 0.0139], [0.3851, 0.7169, 0.0971], [0.1431, 0.0606, 0.7139]]
            }
            Self::AdobeRgb => [[0.6097, 0.3111, 0.0195], [0.2053, 0.6257, 0.0609], [0.1492, 0.0632, 0.7446]],
            Self::DisplayP3 => {
                [[0.5151, 0.2412, -0.0011], [0.2920, 0.6922, 0.0419], [0.1571, 0.0666, 0.7841]]
            }
            Self::LinearRec2020 => {
                [[0.6735, 0.2790, -0.0019], [0.1657, 0.6753, 0.0300], [0.1250, 0.0456, 0.7968]]
            }
            Self::LinearProphoto => {
                [[0.7977, 0.2881, 0.0000], [0.1352, 0.7119, 0.0000], [0.0313, 0.0001, 0.8249]]
            }
        }
    }

    fn is_linear(self) -> bool {
        matches!(self, Self::LinearRec709 | Self::LinearRec2020 | Self::LinearProphoto)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|profile| profile.as_str() == name);
        known.ok_or_else(|| format!("`{name}` is not a known colour space"))
    }
}

/// How a state is to be exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The file's form.
    pub format: Format,
    /// Its colour space.
    pub profile: Profile,
    /// How much metadata it keeps.
    pub metadata: Metadata,
    /// The longest side in pixels; `None` is full size. A smaller picture is never enlarged.
    pub long_edge: Option<u32>,
}

impl Settings {
    /// Whether the darktable of this version can do it, and it would look well.
    ///
    /// # Errors
    /// [`ExportError`] says what this darktable cannot do, or what would look bad.
    pub fn check(&self, version: &str) -> Result<(), ExportError> {
        if self.profile == Profile::DisplayP3
            && version.parse::<Version>().is_ok_and(|v| v < DISPLAY_P3_SINCE)
        {
            return Err(ExportError::TooOld { version: version.to_owned(), profile: self.profile });
        }
        if self.profile.is_linear() && self.format.bits() == 8 {
            return Err(ExportError::Bands(self.profile));
        }
        Ok(())
    }
}

/// A picture as it is to be given away.
#[derive(Debug)]
pub struct Exported {
    /// The file.
    pub bytes: Vec<u8>,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Whether there is nothing in it, as in the untouched photo.
    pub blank: Option<Blank>,
    /// Wall time that it took.
    pub elapsed: Duration,
}

/// Why nothing was exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The installed darktable does not know the colour space.
    #[error("darktable {version} cannot write {profile}")]
    TooOld {
        /// What is installed.
        version: String,
        /// What was requested.
        profile: Profile,
    },
    /// A linear colour space in 8 bits.
    #[error("{0} in 8 bits shows bands in the shadows")]
    Bands(Profile),
    /// darktable gave no picture, or one that cannot be trusted.
    #[error(transparent)]
    Render(#[from] RenderError),
}

impl Coded for ExportError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::TooOld { .. } | Self::Bands(_) => ErrorCode::InvalidInput,
            Self::Render(error) => error.code(),
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::TooOld { .. } => {
                Some("choose another profile, such as adobe-rgb, or install darktable 5.0 or newer".into())
            }
            Self::Bands(_) => {
                Some("write a 16-bit TIFF or PNG, or choose another profile, such as adobe-rgb".into())
            }
            Self::Render(error) => error.remedy(),
        }
    }
}

impl OneShot {
    /// Exports one state. The file is checked, and nothing of it is kept here.
    ///
    /// # Errors
    /// [`ExportError`], if it cannot be rendered, or the file is not what was requested.
    pub fn export(
        &self,
        raw: &RawFile,
        state: &EditState,
        settings: &Settings,
        deadline: &Deadline,
    ) -> Result<Exported, ExportError> {
        let started = Instant::now();
        settings.check(self.cli.version())?;
        let sidecar = self.sidecar(&raw.path, state)?;
        raw.prove()?;
        let scratch = Scratch::new(&self.base, &raw.path)?;
        let sidecar = scratch.write_sidecar(&sidecar)?;
        let long_edge = settings.long_edge.unwrap_or(LARGEST_EDGE);
        let order = RenderJob {
            sidecar: Some(&sidecar),
            long_edge,
            quality: Quality::Judge,
            history: History::Unsaid,
            export: Some(settings),
            script: None,
        };
        let ended = scratch.run(&self.cli, &self.base, &order, deadline)?;
        checks::ending(&ended, &raw.path, &scratch.output())?;
        let bytes = checks::only_file(&scratch.output(), &settings.format.file_name())?;
        let untrusted = |why: String| RenderError::Untrusted(why);
        let picture = decode(&bytes, settings).map_err(untrusted)?;
        checks::fits(&picture, long_edge)?;
        let untouched = || self.untouched(&raw.path, long_edge, Quality::Judge, deadline);
        checks::not_blank(&picture, untouched)?;
        let blank = checks::blank(&picture);
        raw.prove()?;
        let bytes = metadata::cut(bytes, settings.format, settings.metadata)
            .ok_or_else(|| untrusted("its metadata cannot be read".into()))?;
        let (width, height) = (picture.width, picture.height);
        Ok(Exported { bytes, width, height, blank, elapsed: started.elapsed() })
    }
}

/// Decodes a file in full and compares it with what was asked; the error says what is wrong. The picture is for
/// looking whether there is anything in it: its values are of the file's colour space, brought to 8 bits.
fn decode(bytes: &[u8], settings: &Settings) -> Result<Picture, String> {
    let file = Cursor::new(bytes);
    let (profile, image) = match settings.format {
        Format::Jpeg(_) => JpegDecoder::new(file).and_then(decoded),
        Format::Tiff(_) => TiffDecoder::new(file).and_then(decoded),
        Format::Png(_) => PngDecoder::new(file).and_then(decoded),
    }
    .map_err(|error| format!("it does not decode: {error}"))?;
    let (color, bits) = (image.color(), settings.format.bits());
    let expected = if bits == 16 { ColorType::Rgb16 } else { ColorType::Rgb8 };
    if color != expected {
        return Err(format!("it is {color:?}, not {bits}-bit RGB"));
    }
    let profile = profile.ok_or("it carries no colour profile")?;
    let icc = Icc::read(&profile).ok_or("its colour profile cannot be read")?;
    if !icc.is(&settings.profile.primaries(), settings.profile.middle()) {
        return Err(format!("its colour profile is not {}", settings.profile));
    }
    let image = image.into_rgb8();
    Ok(Picture { width: image.width(), height: image.height(), rgb: image.into_raw() })
}

/// The profile and the pixels.
fn decoded(mut decoder: impl ImageDecoder) -> ImageResult<(Option<Vec<u8>>, DynamicImage)> {
    // First: under the limits, a TIFF's tags may not be larger than its pixels.
    let profile = decoder.icc_profile()?;
    let mut limits = image::Limits::default();
    limits.max_image_width = Some(LARGEST_EDGE);
    limits.max_image_height = Some(LARGEST_EDGE);
    limits.max_alloc = Some(DECODE_BYTES);
    decoder.set_limits(limits)?;
    Ok((profile, DynamicImage::from_decoder(decoder)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Settings = Settings {
        format: Format::Png(Depth::Eight),
        profile: Profile::Srgb,
        metadata: Metadata::Camera,
        long_edge: None,
    };

    #[test]
    fn what_this_darktable_cannot_do_or_would_do_badly_is_refused_before_it_runs() {
        let p3 = Settings { profile: Profile::DisplayP3, ..PLAIN };
        assert!(matches!(p3.check("4.2.1"), Err(ExportError::TooOld { .. })));
        assert!(p3.check("5.0.1").is_ok());
        for profile in [Profile::LinearRec709, Profile::LinearRec2020, Profile::LinearProphoto] {
            assert!(matches!(Settings { profile, ..PLAIN }.check("5.4.1"), Err(ExportError::Bands(_))));
            let deep = Settings { profile, format: Format::Tiff(Depth::Sixteen), ..PLAIN };
            assert!(deep.check("4.2.1").is_ok());
        }
    }

    #[test]
    fn names_read_back() {
        for profile in Profile::ALL {
            assert_eq!(profile.as_str().parse(), Ok(profile));
        }
        assert!("cmyk".parse::<Profile>().is_err());
    }

    #[test]
    fn a_file_without_a_profile_or_of_other_bits_is_seen() {
        let image = image::RgbImage::from_fn(4, 4, |x, y| image::Rgb([x as u8 * 9, y as u8 * 9, 7]));
        let mut png = Cursor::new(Vec::new());
        image.write_to(&mut png, image::ImageFormat::Png).unwrap();
        let png = png.into_inner();
        assert!(decode(&png, &PLAIN).unwrap_err().contains("no colour profile"));
        let deep = Settings { format: Format::Png(Depth::Sixteen), ..PLAIN };
        assert!(decode(&png, &deep).unwrap_err().contains("not 16-bit"));
        assert!(decode(&png[..60], &PLAIN).unwrap_err().contains("does not decode"));
    }
}
