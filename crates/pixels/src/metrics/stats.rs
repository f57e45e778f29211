//! What one picture looks like, in numbers.

use crate::parallel::both;
use crate::structure::{self, Blocks};
use crate::tally::{self, Tally, Thirds};
use serde::{Deserialize, Serialize};

use crate::Picture;
use crate::metrics::resize;
use crate::planes::Planes;

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
    /// Measures a picture. One that does not have as many pixels as its size says measures 0 throughout.
    ///
    /// Figures are rounded (three decimals; luminance five), so that they read well and survive JSON.
    pub fn of(picture: &Picture) -> Self {
        Self::with(picture, &Planes::of(&picture.rgb))
    }

    /// The same, of a picture whose [`Planes`] are known.
    pub fn with(picture: &Picture, planes: &Planes) -> Self {
        let nothing = Planes::of(&[]);
        let (mut width, mut height) = (picture.width as usize, picture.height as usize);
        let (mut rgb, mut planes) = (picture.rgb.as_slice(), planes);
        if rgb.len() != width * height * 3 || planes.pixels() != width * height {
            (width, height, rgb, planes) = (0, 0, &[], &nothing);
        }
        let tally = Tally::of(planes, rgb);
        let rank = |percent| milli(tally.percentile(percent));
        let (third, two) = (tally.percentile(100.0 / 3.0), tally.percentile(200.0 / 3.0));
        // What only colours decide, and beside it what looks at where pixels lie.
        let (thirds, (blocks, noise, sharpness, edge_brightness)) = both(
            || Thirds::of(planes, third, two),
            || {
                let lightness = planes.lightness();
                let blocks = Blocks::of(&lightness, width, height);
                let noise = blocks.noise(&lightness, width);
                let sharpness = structure::laplacian_deviation(&lightness, width, height);
                (blocks, noise, sharpness, structure::edge_brightness(&lightness, width, height))
            },
        );
        let count = planes.pixels().max(1) as f64;

        Self {
            width: picture.width,
            height: picture.height,
            lightness: Lightness {
                p1: rank(1.0),
                p5: rank(5.0),
                p10: rank(10.0),
                p25: rank(25.0),
                p50: rank(50.0),
                p75: rank(75.0),
                p90: rank(90.0),
                p95: rank(95.0),
                p99: rank(99.0),
                mean: milli(tally.l.mean()),
                std: milli(tally.l.deviation()),
            },
            luminance_mean: (planes.luminance / count * 1e5).round() / 1e5,
            clip_high_pct: milli(100.0 * tally.clip_high as f64 / count),
            clip_low_pct: milli(100.0 * tally.clip_low as f64 / count),
            chroma_mean: milli(tally.chroma / count),
            colourfulness: milli(if rgb.is_empty() { 0.0 } else { colourfulness(picture) }),
            a_mean: milli(tally.a / count),
            b_mean: milli(tally.b / count),
            shadow_a: milli(thirds.dark.a()),
            shadow_b: milli(thirds.dark.b()),
            highlight_a: milli(thirds.bright.a()),
            highlight_b: milli(thirds.bright.b()),
            local_contrast: milli(blocks.mean_deviation()),
            sharpness: milli(sharpness),
            noise_sigma: milli(noise),
            edge_brightness: milli(edge_brightness),
            hues: hues(&tally, count),
        }
    }
}

impl ImageStats {
    /// The same of the pixels at these places alone (row by row, from 0), as far as colours decide it. What looks at
    /// where pixels lie (local contrast, sharpness, noise, edges, colourfulness) and the size are the whole picture's,
    /// which `self` is.
    #[must_use]
    pub fn of_part(&self, picture: &Picture, places: &[usize]) -> Self {
        let (pixels, _) = picture.rgb.as_chunks::<3>();
        let rgb: Vec<u8> = places.iter().filter_map(|at| pixels.get(*at)).flatten().copied().collect();
        let width = u32::try_from(rgb.len() / 3).unwrap_or_default();
        let part = Self::of(&Picture { width, height: 1, rgb });
        Self {
            width: self.width,
            height: self.height,
            colourfulness: self.colourfulness,
            local_contrast: self.local_contrast,
            sharpness: self.sharpness,
            noise_sigma: self.noise_sigma,
            edge_brightness: self.edge_brightness,
            ..part
        }
    }
}

/// Rounds to three decimals, without a negative zero.
fn milli(value: f64) -> f64 {
    (value * 1e3).round() / 1e3 + 0.0
}

fn hues(tally: &Tally, count: f64) -> Hues {
    let [reds, yellows, greens, cyans, blues, magentas, _] = tally.sectors.map(|(n, chroma, lightness)| {
        let own = n.max(1) as f64;
        HueStats {
            share_pct: milli(100.0 * n as f64 / count),
            chroma: milli(chroma / own),
            lightness: milli(lightness / own),
        }
    });
    Hues { reds, yellows, greens, cyans, blues, magentas }
}

/// Colourfulness of the picture averaged down to at most 256 px, because noise counts as colour at full size.
fn colourfulness(picture: &Picture) -> f64 {
    let small = resize::fit(picture, 256);
    tally::colourfulness(&small.as_ref().unwrap_or(picture).rgb)
}

#[cfg(test)]
mod part_tests {
    use super::*;

    #[test]
    fn a_part_has_its_own_tones_and_the_structure_of_the_whole() {
        let half = |at: usize| if at % 40 < 20 { [60_u8; 3] } else { [200; 3] };
        let picture = Picture { width: 40, height: 40, rgb: (0..1600).flat_map(half).collect() };
        let whole = ImageStats::of(&picture);
        let dark: Vec<usize> = (0..1600).filter(|at| at % 40 < 20).collect();
        let part = whole.of_part(&picture, &dark);
        assert!((part.lightness.mean - 25.3).abs() < 0.5 && part.lightness.std < 0.01, "{part:?}");
        assert!(whole.lightness.mean > 45.0);
        assert_eq!((part.width, part.sharpness), (whole.width, whole.sharpness));
        let all: Vec<usize> = (0..1600).collect();
        assert_eq!(whole.of_part(&picture, &all), whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::Lab;
    use crate::metrics::synthetic::{flat, map, noise, picture, scene};

    fn near(found: f64, expected: f64, tolerance: f64) {
        assert!((found - expected).abs() <= tolerance, "{found}, not {expected}");
    }

    #[test]
    fn a_flat_picture_has_one_tone_and_no_structure() {
        let stats = ImageStats::of(&flat(64, 48, [119; 3]));
        let l = f64::from(Lab::from_srgb([119; 3]).l);
        for tone in [stats.lightness.p1, stats.lightness.p50, stats.lightness.p99, stats.lightness.mean] {
            near(tone, l, 0.006);
        }
        for none in [
            stats.lightness.std,
            stats.chroma_mean,
            stats.colourfulness,
            stats.local_contrast,
            stats.sharpness,
            stats.noise_sigma,
            stats.edge_brightness,
            stats.clip_high_pct,
            stats.clip_low_pct,
        ] {
            near(none, 0.0, 2e-3);
        }
        near(stats.luminance_mean, 0.184_475, 1e-5);
    }

    #[test]
    fn a_ramp_has_the_percentiles_of_its_codes() {
        let stats = ImageStats::of(&picture(256, 16, |x, _| [x as u8; 3]));
        let l = |code: u8| f64::from(Lab::from_srgb([code; 3]).l);
        near(stats.lightness.p1, l(2), 0.01);
        near(stats.lightness.p50, l(127), 0.01);
        near(stats.lightness.p99, l(253), 0.01);
        near(stats.clip_high_pct, 100.0 * 2.0 / 256.0, 1e-3);
        near(stats.clip_low_pct, 100.0 * 2.0 / 256.0, 1e-3);
    }

    #[test]
    fn a_checker_of_single_pixels_has_closed_form_figures() {
        let stats =
            ImageStats::of(&picture(64, 64, |x, y| if (x + y) % 2 == 0 { [80; 3] } else { [160; 3] }));
        let (dark, bright) = (Lab::from_srgb([80; 3]).l, Lab::from_srgb([160; 3]).l);
        let half = f64::from(bright - dark) / 2.0;
        near(stats.lightness.std, half, 2e-3);
        near(stats.local_contrast, half, 2e-3);
        // Each neighbour differs by twice the deviation: the Laplacian is 8 times it, either way.
        near(stats.sharpness, 8.0 * half, 0.01);
        // All energy is in the diagonal band, with coefficient 2 * (bright - dark) / 2.
        near(stats.noise_sigma, 2.0 * half / 0.6745, 0.01);
    }

    #[test]
    fn noise_is_measured_and_does_not_pass_for_colour() {
        let sigma = 6.0;
        let stats = ImageStats::of(&noise(256, 256, sigma));
        let per_code = f64::from(Lab::from_srgb([129; 3]).l - Lab::from_srgb([127; 3]).l) / 2.0;
        near(stats.noise_sigma, sigma * per_code, 0.15 * sigma * per_code);
        near(stats.lightness.std, sigma * per_code, 0.05 * sigma * per_code);
        near(stats.colourfulness, 0.0, 1e-3);
    }

    #[test]
    fn a_gradient_is_not_noise() {
        let stats = ImageStats::of(&picture(256, 256, |x, _| [x as u8 / 2 + 60; 3]));
        near(stats.noise_sigma, 0.0, 1e-3);
    }

    #[test]
    fn each_primary_lies_in_its_sector() {
        let colours: [[u8; 3]; 6] =
            [[255, 0, 0], [255, 200, 0], [0, 255, 0], [0, 255, 255], [0, 0, 255], [255, 0, 255]];
        for (index, colour) in colours.into_iter().enumerate() {
            let hues = ImageStats::of(&flat(16, 16, colour)).hues;
            let shares = [hues.reds, hues.yellows, hues.greens, hues.cyans, hues.blues, hues.magentas]
                .map(|hue| hue.share_pct);
            let mut expected = [0.0; 6];
            expected[index] = 100.0;
            assert_eq!(shares, expected, "{colour:?}");
        }
    }

    #[test]
    fn split_toning_shows_in_the_thirds() {
        let split = picture(90, 30, |x, _| [[40, 40, 70], [128, 128, 128], [230, 220, 180]][x as usize / 30]);
        let stats = ImageStats::of(&split);
        assert!(stats.shadow_b < -10.0 && stats.highlight_b > 10.0, "{stats:?}");
        let shadow = Lab::from_srgb([40, 40, 70]);
        near(stats.shadow_b, shadow.b.into(), 1e-3);
        near(stats.shadow_a, shadow.a.into(), 1e-3);
    }

    #[test]
    fn a_vignette_darkens_the_edges() {
        let vignette = picture(120, 80, |x, y| {
            let (u, v) = (f64::from(x) / 60.0 - 1.0, f64::from(y) / 40.0 - 1.0);
            [(180.0 - 60.0 * (u * u + v * v)) as u8; 3]
        });
        assert!(ImageStats::of(&vignette).edge_brightness < -15.0);
    }

    #[test]
    fn colourfulness_follows_saturation() {
        let scene = scene();
        let grey = map(&scene, |[r, g, b]| [(f64::from(r) + f64::from(g) + f64::from(b)) / 3.0; 3]);
        near(ImageStats::of(&grey).colourfulness, 0.0, 1e-9);
        assert!(ImageStats::of(&scene).colourfulness > 10.0);
    }

    #[test]
    fn broken_and_tiny_pictures_give_finite_figures() {
        for broken in [
            Picture { width: 0, height: 0, rgb: Vec::new() },
            Picture { width: 5, height: 5, rgb: vec![9; 10] },
            Picture { width: 300, height: 0, rgb: Vec::new() },
            flat(1, 1, [7, 8, 9]),
            flat(2, 1, [7, 8, 9]),
        ] {
            let text = serde_json::to_string(&ImageStats::of(&broken)).unwrap();
            assert!(!text.contains("null"), "{text}");
        }
    }

    #[test]
    fn figures_survive_json() {
        let stats = ImageStats::of(&scene());
        let text = serde_json::to_string(&stats).unwrap();
        assert_eq!(serde_json::from_str::<ImageStats>(&text).unwrap(), stats);
    }
}
