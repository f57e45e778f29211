//! What one picture looks like, in numbers.

use serde::{Deserialize, Serialize};

use crate::darktable::render::Picture;

/// The figures of one picture. Everything in L*, a*, b* and C* is CIELAB under D65.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImageStats {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// The distribution of lightness.
    pub lightness: Lightness,
    /// Mean relative luminance (linear light, Rec. 709 weights), 0 to 1.
    pub luminance_mean: f64,
    /// Share of pixels with any channel at 254 or 255, in percent.
    pub clip_high_pct: f64,
    /// Share of pixels with all channels at 0 or 1, in percent.
    pub clip_low_pct: f64,
    /// Mean chroma C*, 0 to about 130.
    pub chroma_mean: f64,
    /// Hasler and Süsstrunk's colourfulness on a picture scaled down to 256 px, 0 (grey) to about 110.
    pub colourfulness: f64,
    /// Mean a*: + magenta, − green, about −100 to 100.
    pub a_mean: f64,
    /// Mean b*: + yellow, − blue, about −100 to 100.
    pub b_mean: f64,
    /// Mean a* of the darkest third of the pixels by L*.
    pub shadow_a: f64,
    /// Mean b* of the darkest third.
    pub shadow_b: f64,
    /// Mean a* of the brightest third.
    pub highlight_a: f64,
    /// Mean b* of the brightest third.
    pub highlight_b: f64,
    /// Mean standard deviation of L* within 16 px blocks, 0 to 50.
    pub local_contrast: f64,
    /// Standard deviation of the Laplacian of L* (four neighbours minus four times the pixel).
    pub sharpness: f64,
    /// Noise in flat blocks: standard deviation in L*.
    pub noise_sigma: f64,
    /// Mean L* outside the centred ellipse that spans 90 % of width and height, minus mean L* of the
    /// central third of the width and height; negative for a vignette, −100 to 100.
    pub edge_brightness: f64,
    /// The six hue sectors.
    pub hues: Hues,
}

/// The distribution of L*, 0 (black) to 100 (white).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lightness {
    /// 1st percentile.
    pub p1: f64,
    /// 5th percentile.
    pub p5: f64,
    /// 10th percentile.
    pub p10: f64,
    /// 25th percentile.
    pub p25: f64,
    /// Median.
    pub p50: f64,
    /// 75th percentile.
    pub p75: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub std: f64,
}

/// Figures by hue (the angle of a*, b*); pixels of less chroma than 5 count as neutral, in no sector.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Hues {
    /// 350° to 50°.
    pub reds: HueStats,
    /// 50° to 110°: orange, yellow, wood, skin.
    pub yellows: HueStats,
    /// 110° to 165°.
    pub greens: HueStats,
    /// 165° to 230°.
    pub cyans: HueStats,
    /// 230° to 310°: skies too.
    pub blues: HueStats,
    /// 310° to 350°: purple too.
    pub magentas: HueStats,
}

/// Figures of one hue sector; all 0 when it holds no pixel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HueStats {
    /// Share of all pixels, in percent.
    pub share_pct: f64,
    /// Mean chroma C*.
    pub chroma: f64,
    /// Mean L*.
    pub lightness: f64,
}

impl ImageStats {
    /// Measures a picture.
    pub fn of(_picture: &Picture) -> Self {
        todo!()
    }
}
