//! Pictures as JPEG files.

use std::io;

use jpeg_encoder::{ColorType, Encoder};

use crate::Picture;

/// Quality of the pictures that a model or a person is shown, of 100.
const QUALITY: u8 = 90;

/// Encodes a picture as JPEG, with its colour at full size and without any metadata.
///
/// # Errors
/// If a side has more than the 65,535 pixels that JPEG allows.
pub fn jpeg(picture: &Picture) -> io::Result<Vec<u8>> {
    let [width, height] = [picture.width, picture.height].map(u16::try_from);
    let (width, height) = (width.map_err(io::Error::other)?, height.map_err(io::Error::other)?);
    let mut bytes = Vec::new();
    Encoder::new(&mut bytes, QUALITY)
        .encode(&picture.rgb, width, height, ColorType::Rgb)
        .map_err(io::Error::other)?;
    Ok(bytes)
}
