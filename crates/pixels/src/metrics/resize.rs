//! Pictures at another size, for measuring: each pixel the plain average of what it covers.

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};

use crate::Picture;

/// Scales to `width` x `height`. Fails where the picture has not as many pixels as its size says.
pub(crate) fn to(picture: &Picture, width: u32, height: u32) -> Result<Picture, String> {
    // With types: the untyped call compiles the resizers of every kind of pixel.
    let source = TypedImageRef::<U8x3>::from_buffer(picture.width, picture.height, &picture.rgb);
    let source = source.map_err(|e| e.to_string())?;
    let mut rgb = vec![0; width as usize * height as usize * 3];
    let scaled = TypedImage::<U8x3>::from_buffer(width, height, &mut rgb);
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Box));
    let resized = Resizer::new().resize_typed(&source, &mut scaled.map_err(|e| e.to_string())?, &options);
    resized.map_err(|e| e.to_string())?;
    Ok(Picture { width, height, rgb })
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
