//! What a part of a picture looks like: under a mask, or around a point.

use serde::{Deserialize, Serialize};

use crate::Picture;
use crate::lab::Lab;
use crate::tally::NEUTRAL;

/// The least radius of a [`disc`] in pixels, so that it always holds some.
const LEAST_RADIUS: f64 = 1.5;

/// The figures of a part of a picture, in CIELAB under D65. A pixel counts by its weight. Figures are rounded (three
/// decimals), so that they read well and survive JSON.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionStats {
    /// Share of the picture that the part covers, in percent.
    pub covered_pct: f64,
    /// Mean L*.
    pub l: f64,
    /// Mean a*.
    pub a: f64,
    /// Mean b*.
    pub b: f64,
    /// Mean chroma C*.
    pub chroma: f64,
    /// Hue of the mean a* and b*, 0° to 360° in CIELAB; `None` where their chroma is less than 5.
    pub hue: Option<f64>,
    /// 5th percentile of L*, in steps of a hundredth.
    pub p5: f64,
    /// 95th percentile of L*, in steps of a hundredth.
    pub p95: f64,
    /// Share of the part with all channels at 0 or 1, in percent.
    pub clip_low_pct: f64,
    /// Share of the part with any channel at 254 or 255, in percent.
    pub clip_high_pct: f64,
}

impl RegionStats {
    /// Measures the pixels at these places (row by row, from 0), each by its weight from 0 to 1; `None` when they have
    /// no weight. Places outside the picture are left out.
    pub fn of(picture: &Picture, weights: impl IntoIterator<Item = (usize, f32)>) -> Option<Self> {
        let (pixels, _) = picture.rgb.as_chunks::<3>();
        let (mut total, mut sums, mut clipped) = (0.0, [0.0; 4], [0.0; 2]);
        let mut ranks = vec![0.0_f64; 10_001];
        for (at, weight) in weights {
            let Some(rgb) = pixels.get(at).filter(|_| weight > 0.0) else { continue };
            let (weight, lab) = (f64::from(weight), Lab::from_srgb(*rgb));
            total += weight;
            for (sum, value) in sums.iter_mut().zip([lab.l, lab.a, lab.b, lab.chroma()]) {
                *sum += weight * f64::from(value);
            }
            if let Some(bin) = ranks.get_mut((lab.l * 100.0 + 0.5) as usize) {
                *bin += weight;
            }
            let high = rgb.iter().copied().max().unwrap_or_default();
            clipped =
                [clipped[0] + weight * f64::from(high <= 1), clipped[1] + weight * f64::from(high >= 254)];
        }
        if total <= 0.0 {
            return None;
        }
        let milli = |value: f64| (value * 1e3).round() / 1e3 + 0.0;
        let [l, a, b, chroma] = sums.map(|sum| sum / total);
        let rank = |share: f64| {
            let mut below = 0.0;
            let reached = ranks.iter().position(|weight| {
                below += weight;
                below >= share * total
            });
            reached.unwrap_or(ranks.len() - 1) as f64 / 100.0
        };
        let hue = (a.hypot(b) >= f64::from(NEUTRAL)).then(|| b.atan2(a).to_degrees().rem_euclid(360.0));
        let [clip_low_pct, clip_high_pct] = clipped.map(|weight| milli(100.0 * weight / total));
        let covered_pct = milli(100.0 * total / pixels.len() as f64);
        let [l, a, b, chroma] = [l, a, b, chroma].map(milli);
        let (hue, p5, p95) = (hue.map(milli), rank(0.05), rank(0.95));
        Some(Self { covered_pct, l, a, b, chroma, hue, p5, p95, clip_low_pct, clip_high_pct })
    }
}

/// The pixels of a disc, for [`RegionStats::of`]: its centre in 0 to 1 of the picture, its radius as a share of the
/// shorter side, but at least 1.5 pixels.
pub fn disc(picture: &Picture, [x, y]: [f64; 2], radius: f64) -> Vec<(usize, f32)> {
    let (width, height) = (f64::from(picture.width), f64::from(picture.height));
    let radius = (radius * width.min(height)).max(LEAST_RADIUS);
    // A point on the edge is as far outside as the last pixel is wide.
    let [x, y] = [(x * width).min(width - 0.5), (y * height).min(height - 0.5)];
    let span =
        |centre: f64, size: u32| (centre - radius).max(0.0) as u32..size.min((centre + radius) as u32 + 1);
    let columns = span(x, picture.width);
    let inside =
        |column: u32, row: u32| (f64::from(column) + 0.5 - x).hypot(f64::from(row) + 0.5 - y) <= radius;
    span(y, picture.height)
        .flat_map(|row| columns.clone().map(move |column| (column, row)))
        .filter(|(column, row)| inside(*column, *row))
        .map(|(column, row)| (row as usize * picture.width as usize + column as usize, 1.0))
        .collect()
}

/// The mean of figures that each pixel has one of, such as [`distances`](crate::metrics::difference::distances), by
/// weight; 0 of nothing.
pub fn mean_of(figures: &[f32], weights: impl IntoIterator<Item = (usize, f32)>) -> f64 {
    let (mut sum, mut total) = (0.0, 0.0);
    for (at, weight) in weights {
        if let Some(figure) = figures.get(at) {
            sum += f64::from(weight) * f64::from(*figure);
            total += f64::from(weight);
        }
    }
    if total > 0.0 { sum / total } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::stats::ImageStats;
    use crate::metrics::synthetic::{picture, scene};

    fn whole(picture: &Picture, weight: f32) -> Vec<(usize, f32)> {
        (0..picture.rgb.len() / 3).map(|at| (at, weight)).collect()
    }

    #[test]
    fn the_whole_picture_as_a_region_has_the_figures_of_the_picture() {
        let scene = scene();
        let stats = ImageStats::of(&scene);
        let found = RegionStats::of(&scene, whole(&scene, 1.0)).unwrap();
        let pairs = [
            (found.covered_pct, 100.0),
            (found.l, stats.lightness.mean),
            (found.a, stats.a_mean),
            (found.b, stats.b_mean),
            (found.chroma, stats.chroma_mean),
            (found.p5, stats.lightness.p5),
            (found.p95, stats.lightness.p95),
            (found.clip_low_pct, stats.clip_low_pct),
            (found.clip_high_pct, stats.clip_high_pct),
        ];
        for (at, (found, expected)) in pairs.into_iter().enumerate() {
            assert!((found - expected).abs() < 2e-3, "{at}: {found} {expected}");
        }
        // A weaker weight everywhere covers less and measures the same.
        let half = RegionStats::of(&scene, whole(&scene, 0.5)).unwrap();
        assert!((half.covered_pct - 50.0).abs() < 1e-9 && (half.l - found.l).abs() < 1e-9);
        assert_eq!((half.p5, half.p95), (found.p5, found.p95));
    }

    #[test]
    fn a_pixel_counts_by_its_weight_and_outside_of_it_not_at_all() {
        // White, black, red, grey.
        let four = Picture { width: 4, height: 1, rgb: [[255; 3], [0; 3], [255, 0, 0], [119; 3]].concat() };
        let of = |weights: &[(usize, f32)]| RegionStats::of(&four, weights.iter().copied());
        let mixed = of(&[(0, 0.75), (1, 0.25), (9, 1.0)]).unwrap();
        assert!((mixed.l - 75.0).abs() < 1e-3 && (mixed.covered_pct - 25.0).abs() < 1e-9, "{mixed:?}");
        assert_eq!((mixed.p5, mixed.p95, mixed.hue), (0.0, 100.0, None));
        assert_eq!((mixed.clip_low_pct, mixed.clip_high_pct), (25.0, 75.0));
        let red = of(&[(2, 0.01)]).unwrap();
        assert!((red.l - 53.24).abs() < 0.02 && (red.chroma - 104.55).abs() < 0.05, "{red:?}");
        assert!((red.hue.unwrap() - 40.0).abs() < 0.1, "{red:?}");
        assert!(of(&[]).is_none() && of(&[(3, 0.0)]).is_none());
        assert_eq!(mean_of(&[4.0, 0.0, 1.0, 2.0], [(0, 0.25), (1, 0.75)]), 1.0);
        assert_eq!(mean_of(&[4.0], []), 0.0);
    }

    #[test]
    fn a_disc_is_round_lies_where_it_is_asked_for_and_is_never_empty() {
        let wide = picture(200, 100, |_, _| [90; 3]);
        let around = disc(&wide, [0.25, 0.5], 0.1);
        let expected = std::f64::consts::PI * 100.0;
        assert!((around.len() as f64 - expected).abs() < 12.0, "{}", around.len());
        for (at, _) in &around {
            let (x, y) = ((at % 200) as f64 + 0.5, (at / 200) as f64 + 0.5);
            assert!((x - 50.0).hypot(y - 50.0) <= 10.0, "{x} {y}");
        }
        for corner in [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]] {
            assert!(!disc(&wide, corner, 0.001).is_empty(), "{corner:?}");
        }
        assert!(!disc(&picture(1, 1, |_, _| [0; 3]), [0.5, 0.5], 0.01).is_empty());
    }
}
