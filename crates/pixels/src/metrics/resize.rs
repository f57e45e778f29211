//! Pictures at another size, for measuring: each pixel the plain average of what it covers.

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};

use crate::Picture;

/// Scales to `width` x `height`. Fails where the picture has not as many pixels as its size says.
pub(crate) fn to(picture: &Picture, width: u32, height: u32) -> Result<Picture, String> {
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Box));
    scaled(picture, [width, height], &options)
}

// With types: the untyped call compiles the resizers of every kind of pixel.
fn scaled(picture: &Picture, [width, height]: [u32; 2], options: &ResizeOptions) -> Result<Picture, String> {
    let source = TypedImageRef::<U8x3>::from_buffer(picture.width, picture.height, &picture.rgb);
    let source = source.map_err(|e| e.to_string())?;
    let mut rgb = vec![0; width as usize * height as usize * 3];
    let mut image = TypedImage::<U8x3>::from_buffer(width, height, &mut rgb).map_err(|e| e.to_string())?;
    Resizer::new().resize_typed(&source, &mut image, options).map_err(|e| e.to_string())?;
    drop(image);
    Ok(Picture { width, height, rgb })
}

/// The part of a picture from (`left`, `top`) to (`right`, `bottom`), shares of its sides, at `width` x `height`
/// pixels: smoothly (cubic, Catmull-Rom) where it grows, averaged where it shrinks. Integers do the arithmetic, so
/// the same picture comes out on every machine.
///
/// # Errors
/// A sentence, where the part is empty or leaves the picture, or the picture has not as many pixels as it says.
pub fn part(
    picture: &Picture,
    [left, top, right, bottom]: [f64; 4],
    size: [u32; 2],
) -> Result<Picture, String> {
    let (columns, rows) = (f64::from(picture.width), f64::from(picture.height));
    // Whole pixels, so that no rounding of a share decides about one.
    let (x, y) = ((left * columns).round(), (top * rows).round());
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::CatmullRom)).crop(
        x,
        y,
        (right * columns).round() - x,
        (bottom * rows).round() - y,
    );
    scaled(picture, size, &options)
}

/// Scales down so that the longer side is `long_edge`; `None` when the picture is not larger than that.
pub(super) fn fit(picture: &Picture, long_edge: u32) -> Option<Picture> {
    let longest = picture.width.max(picture.height);
    if longest <= long_edge {
        return None;
    }
    let side = |length: u32| {
        let scaled = (u64::from(length) * u64::from(long_edge) + u64::from(longest) / 2) / u64::from(longest);
        u32::try_from(scaled).unwrap_or(long_edge).max(1)
    };
    to(picture, side(picture.width), side(picture.height)).ok()
}
