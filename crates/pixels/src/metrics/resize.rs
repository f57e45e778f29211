//! Pictures at another size, for measuring: each pixel the plain average of what it covers.

use crate::resize::averaged;

use crate::Picture;

/// Scales to `width` x `height`.
pub(super) fn to(picture: &Picture, width: u32, height: u32) -> Result<Picture, String> {
    let rgb = averaged(&picture.rgb, (picture.width, picture.height), (width, height))?;
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
