//! Whether two pictures show one photograph, whatever was done to tones and colours.
//!
//! Both are brought to a thousand pixels or two. From each pixel's L* the mean around it is taken away and what
//! is left is divided by its spread, so that the pattern of edges remains and its strength does not: that
//! survives exposure, contrast and colour. The likeness is the highest correlation of the two patterns over
//! turns, mirrorings, and all places and sizes that a crop may have, times the side of the crop: the smaller a
//! part is, the more of its places there are and the more easily it agrees by chance.

use crate::darktable::render::Picture;
use crate::metrics::lab::Lab;
use crate::metrics::resize;

/// The longer side of what is compared, in pixels.
const EDGE: u32 = 48;
/// How far around a pixel its mean is taken, in pixels.
const AROUND: usize = 3;
/// A spread in L* below which there is no edge, but noise.
const QUIET: f32 = 1.0;
/// A picture of which less than this share has edges says nothing about what it shows.
const BARE: f64 = 0.05;
/// From here on two pictures are taken for one photograph: edits of tone, colour and detail leave 0.9 and
/// more, perspective about 0.4, and other photographs agree by chance up to 0.25.
pub const ALIKE: f64 = 0.35;
/// What a crop or a border may leave of each side.
const CROPS: [f64; 11] = [1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5];

/// How alike the patterns of two pictures are, −1 to 1; `None` if one of them has hardly any. The search ends
/// at the first place where they are [`ALIKE`].
pub fn likeness(one: &Picture, other: &Picture) -> Option<f64> {
    let (whole, theirs) = (Pattern::of(one, 1.0)?, Pattern::of(other, 1.0)?);
    let mut best = f64::NEG_INFINITY;
    for share in CROPS {
        // Either may be a part of the other: a crop takes away, a border adds.
        for (whole, part) in [(&whole, other), (&theirs, one)] {
            let Some(mut part) = Pattern::of(part, share) else { continue };
            for turn in 0..8 {
                best = best.max(share * whole.search(&part));
                if best >= ALIKE {
                    return Some(best);
                }
                part = if turn == 3 { part.mirrored() } else { part.turned() };
            }
        }
    }
    best.is_finite().then_some(best)
}

/// Edges without their strength.
struct Pattern {
    width: usize,
    height: usize,
    values: Vec<f32>,
}

impl Pattern {
    /// The pattern of a picture that is `share` of a whole one on each side; `None` of a bare picture.
    fn of(picture: &Picture, share: f64) -> Option<Self> {
        let longest = f64::from(picture.width.max(picture.height));
        let side = |length: u32| {
            let scaled = f64::from(length) / longest * f64::from(EDGE) * share;
            scaled.round().max(1.0) as u32
        };
        let small = resize::to(picture, side(picture.width), side(picture.height)).ok()?;
        let (width, height) = (small.width as usize, small.height as usize);
        let light: Vec<f32> = small
            .rgb
            .chunks_exact(3)
            .map(|p| match *p {
                [r, g, b] => Lab::from_srgb([r, g, b]).l,
                _ => 0.0,
            })
            .collect();
        let mut values = Vec::with_capacity(light.len());
        let mut edges = 0_usize;
        for y in 0..height {
            for x in 0..width {
                let (mut sum, mut squares, mut count) = (0.0_f32, 0.0_f32, 0.0_f32);
                for row in y.saturating_sub(AROUND)..(y + AROUND + 1).min(height) {
                    let line = row * width;
                    let (from, to) = (x.saturating_sub(AROUND), (x + AROUND + 1).min(width));
                    for l in light.get(line + from..line + to).unwrap_or_default() {
                        sum += l;
                        squares += l * l;
                        count += 1.0;
                    }
                }
                let mean = sum / count;
                let spread = (squares / count - mean * mean).max(0.0).sqrt();
                edges += usize::from(spread > QUIET);
                let here = light.get(y * width + x).copied().unwrap_or(mean);
                values.push((here - mean) / (spread + QUIET));
            }
        }
        (edges as f64 > BARE * values.len() as f64).then_some(Self { width, height, values })
    }

    /// The highest correlation with a pattern that lies somewhere within this one.
    fn search(&self, part: &Self) -> f64 {
        let mut best = f64::NEG_INFINITY;
        let (Some(right), Some(down)) =
            (self.width.checked_sub(part.width), self.height.checked_sub(part.height))
        else {
            return best;
        };
        for top in 0..=down {
            for left in 0..=right {
                best = best.max(self.correlation(part, left, top));
            }
        }
        best
    }

    fn correlation(&self, part: &Self, left: usize, top: usize) -> f64 {
        let (mut both, mut own, mut theirs) = (0.0_f32, 0.0_f32, 0.0_f32);
        for (y, line) in part.values.chunks_exact(part.width).enumerate() {
            let from = (top + y) * self.width + left;
            for (a, b) in self.values.get(from..from + part.width).unwrap_or_default().iter().zip(line) {
                both += a * b;
                own += a * a;
                theirs += b * b;
            }
        }
        f64::from(both / (own * theirs).sqrt().max(f32::MIN_POSITIVE))
    }

    /// Turned by a quarter.
    fn turned(&self) -> Self {
        let values = (0..self.width)
            .flat_map(|x| (0..self.height).rev().map(move |y| y * self.width + x))
            .filter_map(|at| self.values.get(at).copied());
        Self { width: self.height, height: self.width, values: values.collect() }
    }

    /// Left and right exchanged.
    fn mirrored(&self) -> Self {
        let values = self.values.chunks_exact(self.width).flat_map(|line| line.iter().rev().copied());
        Self { width: self.width, height: self.height, values: values.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::synthetic::{flat, map, picture, scene};

    /// Hills and valleys of several sizes, other ones for every seed.
    fn hills(seed: u32) -> Picture {
        let at = |x: u32, y: u32| {
            let mut z =
                x.wrapping_mul(0x9e37_79b9) ^ y.wrapping_mul(0x85eb_ca6b) ^ seed.wrapping_mul(0xc2b2_ae35);
            z = (z ^ (z >> 15)).wrapping_mul(0x2c1b_3c6d);
            z = (z ^ (z >> 12)).wrapping_mul(0x297a_2d39);
            f64::from((z ^ (z >> 15)) >> 16) / 65_535.0
        };
        picture(192, 128, |x, y| {
            let mut light = 0.0;
            for (size, share) in [(48, 110.0), (24, 70.0), (12, 40.0), (6, 25.0)] {
                let (u, v) = (f64::from(x % size) / f64::from(size), f64::from(y % size) / f64::from(size));
                let (left, top) = (x / size + 7 * size, y / size + 7 * size);
                let upper = at(left, top) * (1.0 - u) + at(left + 1, top) * u;
                let lower = at(left, top + 1) * (1.0 - u) + at(left + 1, top + 1) * u;
                light += share * (upper * (1.0 - v) + lower * v);
            }
            [light as u8; 3]
        })
    }

    fn alike(one: &Picture, other: &Picture) -> bool {
        likeness(one, other).unwrap() >= ALIKE
    }

    #[test]
    fn tones_and_colours_do_not_make_another_photograph() {
        let photo = hills(1);
        let dark = map(&photo, |p| p.map(|v| 255.0 * (f64::from(v) / 255.0).powf(2.2)));
        let bright = map(&photo, |p| p.map(|v| f64::from(v) * 1.8));
        let blue = map(&photo, |[r, g, b]| [f64::from(r) * 0.4, f64::from(g) * 0.8, f64::from(b)]);
        for edited in [&photo, &dark, &bright, &blue] {
            assert!(likeness(&photo, edited).unwrap() > 0.8);
        }
    }

    #[test]
    fn a_crop_a_turn_and_a_mirror_show_the_same_photograph() {
        let photo = hills(2);
        let pixel = |x: u32, y: u32| {
            let at = 3 * (y * photo.width + x) as usize;
            [photo.rgb[at], photo.rgb[at + 1], photo.rgb[at + 2]]
        };
        let cropped = picture(150, 100, |x, y| pixel(x + 30, y + 20));
        let turned = picture(128, 192, |x, y| pixel(191 - y, x));
        let mirrored = picture(192, 128, |x, y| pixel(191 - x, y));
        for other in [&cropped, &turned, &mirrored] {
            assert!(alike(&photo, other) && alike(other, &photo), "{}x{}", other.width, other.height);
        }
    }

    #[test]
    fn other_photographs_are_told_apart() {
        let photos: Vec<Picture> = (10..13).map(hills).chain([scene()]).collect();
        for (place, one) in photos.iter().enumerate() {
            for other in photos.iter().skip(place + 1) {
                let found = likeness(one, other).unwrap();
                assert!(found < ALIKE, "{found}");
            }
        }
    }

    #[test]
    fn a_bare_picture_says_nothing() {
        assert_eq!(likeness(&hills(1), &flat(192, 128, [0; 3])), None);
        assert_eq!(likeness(&hills(1), &Picture { width: 0, height: 0, rgb: Vec::new() }), None);
        assert_eq!(likeness(&hills(1), &flat(1, 1, [9; 3])), None);
    }
}
