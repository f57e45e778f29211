//! How far two pictures are apart.

use std::borrow::Cow;

use crate::distance::{self, Distance};
use serde::{Deserialize, Serialize};

use crate::Picture;
use crate::metrics::resize;
use crate::planes::Planes;
use base::error::{Coded, ErrorCode};

/// The distance between two pictures, in CIEDE2000. Figures are rounded to three decimals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Mean ΔE2000: below 0.3 nobody sees it, above 12 it is another photograph.
    pub mean: f64,
    /// 95th percentile of ΔE2000.
    pub p95: f64,
    /// Largest ΔE2000.
    pub max: f64,
    /// Share of pixels with ΔE2000 above 1, in percent.
    pub changed_pct: f64,
    /// Largest difference of an 8-bit channel, 0 to 255.
    pub max_channel: u8,
    /// Whether the pictures had different sizes (a crop…), so that both were scaled to the lesser width and
    /// the lesser height. The other figures then mean little.
    pub resized: bool,
    /// The largest mean turn of hue, in degrees, of the colours of one of six sectors of hue that cover 1 % of the
    /// picture or more: a red cup that becomes orange.
    #[serde(default)]
    pub hue_shift: f64,
}

/// Why two pictures cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum DifferenceError {
    /// A picture has no pixels, or not as many as its size says.
    #[error("a picture of {width}x{height} pixels with {bytes} bytes cannot be compared")]
    Malformed {
        /// Columns.
        width: u32,
        /// Rows.
        height: u32,
        /// Bytes that are there.
        bytes: usize,
    },
    /// Scaling one picture to the other's size failed.
    #[error("cannot scale a picture for comparison: {0}")]
    Resize(String),
}

impl Coded for DifferenceError {
    fn code(&self) -> ErrorCode {
        ErrorCode::InvalidInput
    }
}

impl Difference {
    /// Compares `a` with `b`; the order does not matter.
    ///
    /// # Errors
    /// [`DifferenceError`] for a picture without as many pixels as its size says, or one that cannot be scaled.
    pub fn between(a: &Picture, b: &Picture) -> Result<Self, DifferenceError> {
        check(a)?;
        check(b)?;
        let resized = (a.width, a.height) != (b.width, b.height);
        let (width, height) = (a.width.min(b.width), a.height.min(b.height));
        let (a, b) = (scaled(a, width, height)?, scaled(b, width, height)?);
        Ok(Self { resized, ..Self::of(&a, &b, None) })
    }

    /// The same, of pictures whose [`Planes`] are known, which saves half of the work.
    ///
    /// # Errors
    /// As [`Self::between`].
    pub fn with(
        (a, seen_a): (&Picture, &Planes),
        (b, seen_b): (&Picture, &Planes),
    ) -> Result<Self, DifferenceError> {
        let pixels = a.rgb.len() / 3;
        if (a.width, a.height) != (b.width, b.height)
            || [seen_a, seen_b].iter().any(|seen| seen.pixels() != pixels)
        {
            return Self::between(a, b);
        }
        check(a)?;
        check(b)?;
        Ok(Self::of(a, b, Some((seen_a, seen_b))))
    }

    fn of(a: &Picture, b: &Picture, seen: Option<(&Planes, &Planes)>) -> Self {
        let Distance { mean, p95, max, changed_pct, max_channel, hue_shift } =
            Distance::between(&a.rgb, &b.rgb, seen);
        Self {
            mean: milli(mean),
            p95,
            max: milli(max.into()),
            changed_pct: milli(changed_pct),
            max_channel,
            resized: false,
            hue_shift: milli(hue_shift),
        }
    }
}

/// ΔE2000 of each pixel, row by row; `None` for pictures of two sizes.
pub fn distances(a: &Picture, b: &Picture) -> Option<Vec<f32>> {
    if (a.width, a.height, a.rgb.len()) != (b.width, b.height, b.rgb.len()) {
        return None;
    }
    Some(distance::distances(&a.rgb, &b.rgb))
}

/// The places (row by row, from 0) at which two pictures of one size are at least so far apart.
pub fn changed(a: &Picture, b: &Picture, least: f32) -> Vec<usize> {
    let apart = distances(a, b).unwrap_or_default();
    apart.iter().enumerate().filter(|(_, apart)| **apart >= least).map(|(at, _)| at).collect()
}

fn check(picture: &Picture) -> Result<(), DifferenceError> {
    let &Picture { width, height, ref rgb } = picture;
    if rgb.is_empty() || rgb.len() as u64 != u64::from(width) * u64::from(height) * 3 {
        return Err(DifferenceError::Malformed { width, height, bytes: rgb.len() });
    }
    Ok(())
}

fn scaled(picture: &Picture, width: u32, height: u32) -> Result<Cow<'_, Picture>, DifferenceError> {
    if (picture.width, picture.height) == (width, height) {
        return Ok(Cow::Borrowed(picture));
    }
    resize::to(picture, width, height).map(Cow::Owned).map_err(DifferenceError::Resize)
}

fn milli(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::Lab;
    use crate::metrics::synthetic::{flat, picture};

    #[test]
    fn a_picture_does_not_differ_from_itself() {
        let same = picture(64, 48, |x, y| [x as u8 * 3, y as u8 * 5, 90]);
        let found = Difference::between(&same, &same).unwrap();
        let none = Difference {
            mean: 0.0,
            p95: 0.0,
            max: 0.0,
            changed_pct: 0.0,
            max_channel: 0,
            resized: false,
            hue_shift: 0.0,
        };
        assert_eq!(found, none);
    }

    #[test]
    fn a_red_cup_that_turns_orange_shows_and_a_lighter_or_a_grey_one_does_not() {
        let cup = |rgb: [u8; 3]| picture(100, 100, move |x, _| if x < 8 { rgb } else { [120; 3] });
        let turn = |rgb| Difference::between(&cup([170, 40, 40]), &cup(rgb)).unwrap().hue_shift;
        assert!(turn([170, 85, 30]) > 20.0, "{}", turn([170, 85, 30]));
        assert!(turn([185, 55, 54]) < 4.0, "{}", turn([185, 55, 54]));
        assert_eq!(turn([90; 3]), 0.0, "without colour there is no hue");
        let back = Difference::between(&cup([170, 85, 30]), &cup([170, 40, 40])).unwrap().hue_shift;
        assert_eq!(back, turn([170, 85, 30]));
    }

    #[test]
    fn a_changed_tenth_shows_in_every_figure() {
        let (before, after) =
            (flat(100, 10, [100; 3]), picture(100, 10, |x, _| if x < 10 { [140; 3] } else { [100; 3] }));
        let step = Lab::from_srgb([100; 3]).delta_e(Lab::from_srgb([140; 3]));
        let found = Difference::between(&before, &after).unwrap();
        assert!((found.mean - f64::from(step) / 10.0).abs() < 1e-3, "{found:?}");
        assert!((found.p95 - f64::from(step)).abs() < 0.01, "{found:?}");
        assert_eq!((found.changed_pct, found.max_channel), (10.0, 40));
        assert_eq!(found, Difference::between(&after, &before).unwrap());
    }

    #[test]
    fn the_distances_are_those_that_the_mean_is_of() {
        let (before, after) =
            (flat(100, 10, [100; 3]), picture(100, 10, |x, _| if x < 10 { [140; 3] } else { [100; 3] }));
        let found = distances(&before, &after).unwrap();
        let step = Lab::from_srgb([100; 3]).delta_e(Lab::from_srgb([140; 3]));
        assert_eq!((found.len(), found[10]), (1000, 0.0));
        let whole = Difference::between(&before, &after).unwrap();
        assert!(
            (found[9] - step).abs() < 1e-4 && (f64::from(found[9]) - whole.max).abs() < 1e-3,
            "{found:?}"
        );
        assert!(distances(&before, &flat(10, 100, [100; 3])).is_none());
    }

    #[test]
    fn pictures_that_were_seen_before_differ_as_much() {
        // More than a chunk, and a tile that is not full.
        let before = picture(301, 203, |x, y| [x as u8, y as u8, (x * y) as u8]);
        let after = picture(301, 203, |x, y| [x as u8, 255 - y as u8, (x * y / 3) as u8]);
        let (seen, also) = (Planes::of(&before.rgb), Planes::of(&after.rgb));
        let expected = Difference::between(&before, &after).unwrap();
        assert!(expected.mean > 1.0, "{expected:?}");
        assert_eq!(Difference::with((&before, &seen), (&after, &also)).unwrap(), expected);
        // Of other planes than the picture's no use is made.
        assert_eq!(Difference::with((&before, &seen), (&after, &Planes::of(&[]))).unwrap(), expected);
        let small = flat(60, 60, [80; 3]);
        let scaled = Difference::with((&before, &seen), (&small, &Planes::of(&small.rgb))).unwrap();
        assert!(scaled.resized);
    }

    #[test]
    fn another_size_is_scaled_and_said() {
        let found = Difference::between(&flat(90, 60, [80; 3]), &flat(60, 60, [80; 3])).unwrap();
        assert!(found.resized && found.mean == 0.0, "{found:?}");
    }

    #[test]
    fn a_picture_without_its_pixels_is_refused() {
        let broken = Picture { width: 4, height: 4, rgb: vec![0; 7] };
        assert!(Difference::between(&broken, &broken).is_err());
    }
}
