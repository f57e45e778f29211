//! The axis table: along which directions a picture is said to move, and how much movement counts.
//!
//! It is the contract between the vocabulary (what a move pushes), the explorer (which move to try) and the
//! checks (did the picture go there). Names are stable; the steps make movement on one axis comparable with
//! movement on another.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::metrics::stats::ImageStats;
use base::error::{Coded, ErrorCode};

/// One direction in which a picture can move. In text and in JSON it goes by its snake_case name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// Mean L*.
    Brightness,
    /// The darkest tones: the mean of the 1st and 5th percentile of L*.
    Blacks,
    /// The 10th percentile of L*.
    Shadows,
    /// The median L*.
    Midtones,
    /// The 90th percentile of L*.
    Highlights,
    /// The 99th percentile of L*.
    Whites,
    /// The standard deviation of L*.
    Contrast,
    /// The mean standard deviation of L* within 16 px blocks.
    LocalContrast,
    /// The standard deviation of the Laplacian of L*.
    Sharpness,
    /// The noise in flat places, in L*.
    Noise,
    /// Mean b*: + yellow, − blue.
    Warmth,
    /// Mean a*: + magenta, − green.
    Tint,
    /// Mean chroma C*.
    Chroma,
    /// Hasler and Süsstrunk's colourfulness.
    Colourfulness,
    /// Mean b* of the darkest third.
    ShadowWarmth,
    /// Mean b* of the brightest third.
    HighlightWarmth,
    /// Mean a* of the darkest third.
    ShadowTint,
    /// Mean a* of the brightest third.
    HighlightTint,
    /// Mean L* near the edges minus mean L* of the centre.
    EdgeBrightness,
    /// Width times height, in pixels.
    FrameArea,
    /// Mean chroma of the red pixels.
    Reds,
    /// Mean chroma of the orange and yellow pixels.
    Yellows,
    /// Mean chroma of the green pixels.
    Greens,
    /// Mean chroma of the cyan pixels.
    Cyans,
    /// Mean chroma of the blue pixels.
    Blues,
    /// Mean chroma of the magenta and purple pixels.
    Magentas,
}

/// How much change counts as one unit of movement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// So much, in the axis's own unit.
    Absolute(f64),
    /// So large a share of the value before.
    Relative(f64),
}

/// What is known about one axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AxisInfo {
    /// The stable snake_case name.
    pub name: &'static str,
    /// The unit of its measure.
    pub unit: &'static str,
    /// The change that is just noticeable.
    pub step: Step,
    /// One line for a person or a model.
    pub meaning: &'static str,
}

impl Axis {
    /// Every axis, in the order of the table.
    pub const ALL: [Self; 26] = [
        Self::Brightness,
        Self::Blacks,
        Self::Shadows,
        Self::Midtones,
        Self::Highlights,
        Self::Whites,
        Self::Contrast,
        Self::LocalContrast,
        Self::Sharpness,
        Self::Noise,
        Self::Warmth,
        Self::Tint,
        Self::Chroma,
        Self::Colourfulness,
        Self::ShadowWarmth,
        Self::HighlightWarmth,
        Self::ShadowTint,
        Self::HighlightTint,
        Self::EdgeBrightness,
        Self::FrameArea,
        Self::Reds,
        Self::Yellows,
        Self::Greens,
        Self::Cyans,
        Self::Blues,
        Self::Magentas,
    ];

    /// The axis's row of the table.
    ///
    /// The steps are about the smallest change that a person sees side by side: one unit of L* over the
    /// whole picture is one step, quantities that vary less between pictures have smaller ones.
    pub const fn info(self) -> AxisInfo {
        match self {
            Self::Brightness => row("brightness", "L*", 1.0, "overall lightness, + lighter"),
            Self::Blacks => row("blacks", "L*", 1.0, "the darkest tones (p1 to p5), + lifted"),
            Self::Shadows => row("shadows", "L*", 1.0, "the dark tones (p10), + opened"),
            Self::Midtones => row("midtones", "L*", 1.0, "the middle tones (p50), + lighter"),
            Self::Highlights => row("highlights", "L*", 1.0, "the bright tones (p90), - recovered"),
            Self::Whites => row("whites", "L*", 1.0, "the brightest tones (p99), + brighter"),
            Self::Contrast => row("contrast", "L*", 0.5, "global contrast, + stronger"),
            Self::LocalContrast => row("local_contrast", "L*", 0.25, "clarity and texture, + stronger"),
            Self::Sharpness => row("sharpness", "L*", 0.4, "fine detail, + crisper"),
            Self::Noise => row("noise", "L*", 0.2, "noise in flat places, + noisier"),
            Self::Warmth => {
                row("warmth", "b*", 1.0, "colour temperature, + warmer (yellow), - cooler (blue)")
            }
            Self::Tint => row("tint", "a*", 0.8, "tint, + magenta, - green"),
            Self::Chroma => row("chroma", "C*", 1.0, "saturation, + richer"),
            Self::Colourfulness => {
                row("colourfulness", "index", 2.0, "variety and strength of colours, + more colourful")
            }
            Self::ShadowWarmth => row("shadow_warmth", "b*", 1.0, "warmth of the dark third, + warmer"),
            Self::HighlightWarmth => {
                row("highlight_warmth", "b*", 1.0, "warmth of the bright third, + warmer")
            }
            Self::ShadowTint => row("shadow_tint", "a*", 0.8, "tint of the dark third, + magenta, - green"),
            Self::HighlightTint => {
                row("highlight_tint", "a*", 0.8, "tint of the bright third, + magenta, - green")
            }
            Self::EdgeBrightness => {
                row("edge_brightness", "L*", 1.0, "the edges against the centre, - is a vignette")
            }
            Self::FrameArea => AxisInfo {
                name: "frame_area",
                unit: "px",
                step: Step::Relative(0.02),
                meaning: "size of the frame, - cropped",
            },
            Self::Reds => row("reds", "C*", 1.5, "saturation of the reds, + richer"),
            Self::Yellows => row("yellows", "C*", 1.5, "saturation of oranges and yellows, + richer"),
            Self::Greens => row("greens", "C*", 1.5, "saturation of the greens, + richer"),
            Self::Cyans => row("cyans", "C*", 1.5, "saturation of the cyans, + richer"),
            Self::Blues => row("blues", "C*", 1.5, "saturation of the blues, + richer"),
            Self::Magentas => row("magentas", "C*", 1.5, "saturation of magentas and purples, + richer"),
        }
    }

    /// The stable snake_case name.
    pub const fn name(self) -> &'static str {
        self.info().name
    }

    /// How far the picture moved along this axis from `base` to `now`, signed, in just-noticeable steps.
    pub fn steps(self, base: &ImageStats, now: &ImageStats) -> f64 {
        let before = measure(self, base);
        let step = match self.info().step {
            Step::Absolute(step) => step,
            Step::Relative(share) => (share * before.abs()).max(f64::MIN_POSITIVE),
        };
        (measure(self, now) - before) / step
    }
}

const fn row(name: &'static str, unit: &'static str, step: f64, meaning: &'static str) -> AxisInfo {
    AxisInfo { name, unit, step: Step::Absolute(step), meaning }
}

/// The picture's value on one axis, in the axis's unit.
pub fn measure(axis: Axis, stats: &ImageStats) -> f64 {
    let tones = &stats.lightness;
    match axis {
        Axis::Brightness => tones.mean,
        Axis::Blacks => (tones.p1 + tones.p5) / 2.0,
        Axis::Shadows => tones.p10,
        Axis::Midtones => tones.p50,
        Axis::Highlights => tones.p90,
        Axis::Whites => tones.p99,
        Axis::Contrast => tones.std,
        Axis::LocalContrast => stats.local_contrast,
        Axis::Sharpness => stats.sharpness,
        Axis::Noise => stats.noise_sigma,
        Axis::Warmth => stats.b_mean,
        Axis::Tint => stats.a_mean,
        Axis::Chroma => stats.chroma_mean,
        Axis::Colourfulness => stats.colourfulness,
        Axis::ShadowWarmth => stats.shadow_b,
        Axis::HighlightWarmth => stats.highlight_b,
        Axis::ShadowTint => stats.shadow_a,
        Axis::HighlightTint => stats.highlight_a,
        Axis::EdgeBrightness => stats.edge_brightness,
        Axis::FrameArea => f64::from(stats.width) * f64::from(stats.height),
        Axis::Reds => stats.hues.reds.chroma,
        Axis::Yellows => stats.hues.yellows.chroma,
        Axis::Greens => stats.hues.greens.chroma,
        Axis::Cyans => stats.hues.cyans.chroma,
        Axis::Blues => stats.hues.blues.chroma,
        Axis::Magentas => stats.hues.magentas.chroma,
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is not in the axis table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an axis")]
pub struct UnknownAxis(pub String);

impl Coded for UnknownAxis {
    fn code(&self) -> ErrorCode {
        ErrorCode::InvalidInput
    }

    fn remedy(&self) -> Option<String> {
        Some(format!("use one of {}", Axis::ALL.map(Axis::name).join(", ")))
    }
}

impl FromStr for Axis {
    type Err = UnknownAxis;

    fn from_str(name: &str) -> Result<Self, UnknownAxis> {
        Self::ALL.into_iter().find(|axis| axis.name() == name).ok_or_else(|| UnknownAxis(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_read_back_and_agree_with_serde() {
        for (place, axis) in Axis::ALL.into_iter().enumerate() {
            assert_eq!(axis as usize, place, "{axis} is out of order, or missing from ALL");
            assert_eq!(axis.name().parse(), Ok(axis));
            assert_eq!(serde_json::to_value(axis).unwrap(), axis.name());
        }
        assert!("vibes".parse::<Axis>().unwrap_err().remedy().unwrap().contains("local_contrast"));
    }
}
