//! A raw that is made when it is needed: a photograph of a golden set, and what the camera made of it.
//!
//! A set keeps pictures of some hundred kilobytes instead of raws of several megabytes. The same picture and recipe
//! are the same bytes on every machine: the picture is decoded in integers, without instructions that not every
//! processor has, scaled in integers, and its light is computed by `+ - * /` alone.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use image::ImageError;
use pixels::Picture;
use pixels::metrics::resize;
use pixels::srgb::LINEAR;
use serde::{Deserialize, Serialize};
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use crate::eval::file::FileError;
use base::error::{Coded, ErrorCode};
use base::files;
use darktable::dng::{DngError, DngOptions, write_dng};

/// Fewer pixels are no photo to edit.
const LEAST_PIXELS: u64 = 2_000_000;

/// `[image.recipe]` of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// The photograph, a JPEG or PNG, from the scenario's folder.
    pub picture: PathBuf,
    /// The part of it that is used: left, top, right, bottom, as shares of its sides.
    #[serde(default = "whole")]
    pub part: [f64; 4],
    /// Columns and rows of the raw.
    pub size: [u32; 2],
    /// The colour of the light: gains of red, green and blue in linear light.
    #[serde(default = "plain")]
    pub light: [f64; 3],
    /// Stray light, as a share of white that is added everywhere.
    #[serde(default)]
    pub veil: f64,
    /// 1 as it is, 0 grey.
    #[serde(default = "one")]
    pub saturation: f64,
    /// How much more or less it is exposed than the picture, in EV.
    #[serde(default)]
    pub exposure_ev: f64,
    /// Strength of the camera's noise, as in [`DngOptions`].
    #[serde(default = "one")]
    pub noise: f64,
    /// What the Exif data give as sensitivity.
    #[serde(default = "iso")]
    pub iso: u16,
}

fn whole() -> [f64; 4] {
    [0.0, 0.0, 1.0, 1.0]
}

fn plain() -> [f64; 3] {
    [1.0; 3]
}

fn one() -> f64 {
    1.0
}

fn iso() -> u16 {
    200
}

/// Why a raw cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum RecipeError {
    /// The picture's file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The picture is no JPEG that can be decoded.
    #[error("{path} cannot be decoded: {reason}")]
    Jpeg {
        /// The file.
        path: PathBuf,
        /// What the decoder says.
        reason: DecodeErrors,
    },
    /// The picture is no other picture that can be decoded.
    #[error("{path} cannot be decoded")]
    Picture {
        /// The file.
        path: PathBuf,
        /// Why.
        source: ImageError,
    },
    /// The recipe itself.
    #[error("image.recipe: {0}")]
    Invalid(String),
    /// The raw file.
    #[error(transparent)]
    Raw(#[from] DngError),
}

impl Coded for RecipeError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::File(error) => error.code(),
            Self::Raw(error) => error.code(),
            _ => ErrorCode::InvalidInput,
        }
    }
}

impl Recipe {
    /// The bytes of the raw, of a scenario in `folder`.
    ///
    /// # Errors
    /// [`RecipeError`], where the picture cannot be read or a value of the recipe is out of its range.
    pub fn make(&self, folder: &Path) -> Result<Vec<u8>, RecipeError> {
        let [width, height] = self.size;
        if u64::from(width) * u64::from(height) < LEAST_PIXELS {
            return Err(RecipeError::Invalid(format!(
                "a raw of {width}x{height} has less than two megapixels"
            )));
        }
        let picture = decoded(&folder.join(&self.picture))?;
        let shown = resize::part(&picture, self.part, self.size).map_err(RecipeError::Invalid)?;
        let options = DngOptions {
            noise: self.noise,
            exposure_ev: self.exposure_ev,
            iso: self.iso,
            ..DngOptions::default()
        };
        Ok(write_dng(&self.lit(shown), &options)?)
    }

    /// The picture in the light of the recipe.
    fn lit(&self, mut picture: Picture) -> Picture {
        if (self.light, self.veil, self.saturation) == (plain(), 0.0, 1.0) {
            return picture;
        }
        let (codes, _) = picture.rgb.as_chunks_mut::<3>();
        for pixel in codes {
            let light = pixel.map(|code| LINEAR.get(usize::from(code)).copied().unwrap_or(0.0));
            let [red, green, blue] = light;
            let grey = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
            let mut gains = self.light.into_iter();
            *pixel = light.map(|channel| {
                let coloured = grey + self.saturation * (channel - grey);
                code(coloured * gains.next().unwrap_or(1.0) * (1.0 - self.veil) + self.veil)
            });
        }
        picture
    }
}

/// The sRGB code whose light is nearest.
fn code(light: f64) -> u8 {
    let above = LINEAR.partition_point(|one| *one < light).min(255);
    let distance = |at: usize| LINEAR.get(at).map_or(f64::MAX, |one| (one - light).abs());
    let below = above.saturating_sub(1);
    (if distance(below) < distance(above) { below } else { above }) as u8
}

fn decoded(path: &Path) -> Result<Picture, RecipeError> {
    let bytes = files::read(path, files::LARGEST_LIST).map_err(FileError::at("read", path))?;
    if !bytes.starts_with(&[0xff, 0xd8]) {
        let image = image::load_from_memory(&bytes);
        let image =
            image.map_err(|source| RecipeError::Picture { path: path.to_owned(), source })?.into_rgb8();
        return Ok(Picture { width: image.width(), height: image.height(), rgb: image.into_raw() });
    }
    let options = DecoderOptions::new_safe().jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(Cursor::new(bytes), options);
    let failed = |reason| RecipeError::Jpeg { path: path.to_owned(), reason };
    let rgb = decoder.decode().map_err(failed)?;
    let info = decoder.info().map(|info| (u32::from(info.width), u32::from(info.height)));
    let (width, height) = info.unwrap_or_default();
    Ok(Picture { width, height, rgb })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_a_light_is_the_nearest() {
        for at in 0..=255_u8 {
            assert_eq!(code(LINEAR[usize::from(at)]), at);
        }
        assert_eq!((code(-1.0), code(2.0)), (0, 255));
        let between = (LINEAR[100] * 2.0 + LINEAR[101]) / 3.0;
        assert_eq!(code(between), 100);
    }

    #[test]
    fn a_recipe_that_cannot_be_made_says_why() {
        let small: Recipe = toml::from_str("picture = \"a.png\"\nsize = [640, 480]").unwrap();
        let error = small.make(Path::new("/nowhere")).unwrap_err();
        assert!(error.to_string().contains("less than two megapixels"), "{error}");
        let large: Recipe = toml::from_str("picture = \"a.png\"\nsize = [1640, 1480]").unwrap();
        assert!(matches!(large.make(Path::new("/nowhere")), Err(RecipeError::File(_))));
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.png"), [0xff, 0xd8, 0, 1]).unwrap();
        assert_eq!(large.make(dir.path()).unwrap_err().code(), ErrorCode::InvalidInput);
    }
}
