//! Pictures at another size: each pixel the plain average of what it covers.

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};

/// Scales a picture; sizes are width and height. Fails where it has not as many pixels as its size says.
pub fn averaged(rgb: &[u8], size: (u32, u32), scaled: (u32, u32)) -> Result<Vec<u8>, String> {
    let source = ImageRef::new(size.0, size.1, rgb, PixelType::U8x3).map_err(|e| e.to_string())?;
    let mut scaled = Image::new(scaled.0, scaled.1, PixelType::U8x3);
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Box));
    Resizer::new().resize(&source, &mut scaled, &options).map_err(|e| e.to_string())?;
    Ok(scaled.into_vec())
}
