//! How far two pictures are apart.

use serde::{Deserialize, Serialize};

use crate::darktable::render::Picture;

/// The distance between two pictures, in CIEDE2000.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Mean ΔE2000.
    pub mean: f64,
    /// 95th percentile of ΔE2000.
    pub p95: f64,
    /// Largest ΔE2000.
    pub max: f64,
    /// Share of pixels with ΔE2000 above 1, in percent.
    pub changed_pct: f64,
    /// Largest difference of an 8-bit channel, 0 to 255.
    pub max_channel: u8,
    /// Whether the pictures had different sizes (a crop…), so that the larger was scaled to the smaller.
    pub resized: bool,
}

/// Why two pictures cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum DifferenceError {
    /// A picture has no pixels, or not as many as its size says.
    #[error("a picture of {0}x{1} with {2} bytes cannot be compared")]
    Malformed(u32, u32, usize),
    /// Scaling one picture to the other's size failed.
    #[error("cannot scale a picture for comparison: {0}")]
    Resize(String),
}

impl Difference {
    /// Compares `a` with `b`.
    pub fn between(_a: &Picture, _b: &Picture) -> Result<Self, DifferenceError> {
        todo!()
    }
}
