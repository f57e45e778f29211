//! Whether two pictures show one photograph, whatever was done to tones and colours.
//!
//! Both are brought to a thousand pixels or two. From each pixel's L* the mean around it is taken away and what
//! is left is divided by its spread, so that the pattern of edges remains and its strength does not: that
//! survives exposure, contrast and colour.
//!
//! The patterns are compared as wholes: the highest correlation over turns, mirrorings, and all places and sizes
//! that a crop may have, times the side of the crop, because a small part has more places and agrees more
//! easily by chance. Where the frame changed they are compared in pieces too, and one that agrees is enough:
//! the mean of each piece's best correlation near its place, which a straightened or bent frame survives.

use crate::Picture;
use crate::lab::Lab;
use crate::metrics::resize;

/// The longer side of what is compared, in pixels.
const EDGE: u32 = 48;
/// How far around a pixel its mean is taken, in pixels.
const AROUND: usize = 3;
/// A spread in L* below which there is no edge, but noise.
const QUIET: f32 = 1.0;
/// A picture of which less than this share has edges says nothing about what it shows.
const BARE: f64 = 0.05;
/// A piece's side, and how far from its place it is looked for, in pixels.
const PIECE: usize = 12;
const NEAR: usize = 9;
/// How large one picture may be drawn in the other for its pieces to be looked for.
const SIZES: [f64; 3] = [1.0, 0.85, 0.7];
/// From here on pieces agree: a frame turned by 12 degrees, or bent by half of what there is, reaches 0.62, and
/// of other photographs the pieces agree by chance up to 0.51 (0.62 where both are smooth).
const PIECES_AGREE: f64 = 0.58;
/// What a crop or a border may leave of each side.
const CROPS: [f64; 11] = [1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5];
/// From here on wholes agree. Edits of tone reach 0.9, crops and borders 0.4, other photographs by chance 0.25.
const WHOLES_AGREE: f64 = 0.35;

/// Whether two pictures show one photograph; they are taken to if one of them has hardly any edges, since such
/// a picture says nothing. A frame that is bent to the end of its range may pass for another photograph.
pub fn alike(one: &Picture, other: &Picture) -> bool {
    match (Pattern::of(one, 1.0), Pattern::of(other, 1.0)) {
        (Some(pattern), Some(theirs)) => {
            let changed = (one.width, one.height) != (other.width, other.height);
            changed && in_pieces(&pattern, other) >= PIECES_AGREE
                || as_wholes(&pattern, one, &theirs, other) >= WHOLES_AGREE
        }
        _ => true,
    }
}

/// The mean of the best correlations of the pieces of `other`.
fn in_pieces(pattern: &Pattern, other: &Picture) -> f64 {
    let sizes = SIZES.iter().filter_map(|share| Some(pattern.pieces(&Pattern::of(other, *share)?)));
    sizes.fold(f64::NEG_INFINITY, f64::max)
}

/// The highest correlation of the two, weighted by size. The search ends where they agree.
fn as_wholes(pattern: &Pattern, one: &Picture, theirs: &Pattern, other: &Picture) -> f64 {
    let mut best = f64::NEG_INFINITY;
    for share in CROPS {
        // Either may be a part of the other: a crop takes away, a border adds.
        for (whole, part) in [(pattern, other), (theirs, one)] {
            let Some(mut part) = Pattern::of(part, share) else { continue };
            for turn in 0..8 {
                best = best.max(share * whole.search(&part));
                if best >= WHOLES_AGREE {
                    return best;
                }
                part = if turn == 3 { part.mirrored() } else { part.turned() };
            }
        }
    }
    best
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

    /// The mean of the best correlations of the pieces of `part`, each looked for near its place.
    fn pieces(&self, part: &Self) -> f64 {
        let starts = |length: usize| (0..(length + 1).saturating_sub(PIECE)).step_by(PIECE);
        let around = |at: usize, ours: usize, theirs: usize| {
            let at = at + ours.saturating_sub(theirs) / 2;
            at.saturating_sub(NEAR)..(at + NEAR + 1).min((ours + 1).saturating_sub(PIECE))
        };
        let (mut sum, mut count) = (0.0, 0_u32);
        for top in starts(part.height) {
            for left in starts(part.width) {
                let piece = part.piece(left, top);
                let places = around(top, self.height, part.height)
                    .flat_map(|y| around(left, self.width, part.width).map(move |x| (x, y)));
                let best = places.map(|(x, y)| self.correlation(&piece, x, y)).reduce(f64::max);
                sum += best.unwrap_or(0.0);
                count += 1;
            }
        }
        sum / f64::from(count.max(1))
    }

    /// A square cut out of it.
    fn piece(&self, left: usize, top: usize) -> Self {
        let from = |y: usize| y * self.width + left;
        let rows = (top..top + PIECE).filter_map(|y| self.values.get(from(y)..from(y) + PIECE));
        Self { width: PIECE, height: PIECE, values: rows.flatten().copied().collect() }
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

    #[test]
    fn tones_and_colours_do_not_make_another_photograph() {
        let photo = hills(1);
        let dark = map(&photo, |p| p.map(|v| 255.0 * (f64::from(v) / 255.0).powf(2.2)));
        let bright = map(&photo, |p| p.map(|v| f64::from(v) * 1.8));
        let blue = map(&photo, |[r, g, b]| [f64::from(r) * 0.4, f64::from(g) * 0.8, f64::from(b)]);
        for edited in [&photo, &dark, &bright, &blue] {
            let pattern = Pattern::of(&photo, 1.0).unwrap();
            assert!(in_pieces(&pattern, edited) > 0.8 && alike(&photo, edited));
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
        let photos: Vec<Picture> = (10..14).map(hills).collect();
        for (place, one) in photos.iter().enumerate() {
            for other in photos.iter().skip(place + 1) {
                let (ours, theirs) = (Pattern::of(one, 1.0).unwrap(), Pattern::of(other, 1.0).unwrap());
                let found = (in_pieces(&ours, other), as_wholes(&ours, one, &theirs, other));
                assert!(found.0 < PIECES_AGREE && found.1 < WHOLES_AGREE - 0.04, "{found:?}");
                assert!(!alike(one, other));
            }
        }
        let smooth = resize::to(&scene(), 192, 128).unwrap();
        assert!(!alike(&hills(10), &smooth));
    }

    #[test]
    fn a_bare_picture_says_nothing() {
        for bare in
            [flat(192, 128, [0; 3]), flat(1, 1, [9; 3]), Picture { width: 0, height: 0, rgb: Vec::new() }]
        {
            assert!(alike(&hills(1), &bare) && alike(&bare, &hills(1)));
        }
    }

    #[test]
    fn a_tilted_frame_shows_the_same_photograph() {
        let photo = hills(3);
        // By six degrees about the middle, and a little larger.
        let (sin, cos) = (0.1 * 0.9, 0.995 * 0.9);
        let tilted = picture(180, 120, |x, y| {
            let (u, v) = (f64::from(x) - 90.0, f64::from(y) - 60.0);
            let (x, y) = (96.0 + u * cos - v * sin, 64.0 + u * sin + v * cos);
            let at = 3 * ((y.clamp(0.0, 127.0) as u32) * 192 + x.clamp(0.0, 191.0) as u32) as usize;
            [photo.rgb[at], photo.rgb[at + 1], photo.rgb[at + 2]]
        });
        assert!(in_pieces(&Pattern::of(&photo, 1.0).unwrap(), &tilted) > PIECES_AGREE);
        assert!(alike(&photo, &tilted));
    }
}
