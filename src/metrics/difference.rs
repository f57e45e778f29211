//! How far two pictures are apart.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::darktable::render::Picture;
use crate::error::{Coded, ErrorCode};
use crate::metrics::ciede::{TILE, Tile};
use crate::metrics::moments;
use crate::metrics::planes::Planes;
use crate::metrics::resize;

/// ΔE in hundredths; nothing in sRGB is further apart than about 120.
const BINS: usize = 20_000;
/// Bytes of pixels that are summed up together: whole tiles.
const CHUNK: usize = 64 * 3 * TILE;

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
    /// the lesser height. The other figures then tell little.
    pub resized: bool,
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
    pub fn between(a: &Picture, b: &Picture) -> Result<Self, DifferenceError> {
        check(a)?;
        check(b)?;
        let resized = (a.width, a.height) != (b.width, b.height);
        let (width, height) = (a.width.min(b.width), a.height.min(b.height));
        let (a, b) = (scaled(a, width, height)?, scaled(b, width, height)?);
        Ok(Self { resized, ..Self::of(&tallies(&a.rgb, &b.rgb, None)) })
    }

    /// The same, of pictures whose [`Planes`] are known, which saves half of the work.
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
        Ok(Self::of(&tallies(&a.rgb, &b.rgb, Some((seen_a, seen_b)))))
    }

    fn of(parts: &[Tally]) -> Self {
        let count: u64 = parts.iter().map(|part| part.count).sum();
        let mut seen = 0;
        let p95 = (0..BINS).position(|bin| {
            seen += parts.iter().filter_map(|part| part.bins.get(bin)).sum::<u64>();
            seen * 100 >= count * 95
        });
        let sum: f64 = parts.iter().flat_map(|part| &part.sums).sum();
        let changed: u64 = parts.iter().map(|part| part.changed).sum();
        Self {
            mean: milli(sum / count as f64),
            p95: p95.unwrap_or(0) as f64 / 100.0,
            max: milli(parts.iter().fold(0.0_f32, |max, part| max.max(part.max)).into()),
            changed_pct: milli(100.0 * changed as f64 / count as f64),
            max_channel: parts.iter().map(|part| part.max_channel).max().unwrap_or_default(),
            resized: false,
        }
    }
}

/// What a stretch of the pixels adds up to.
struct Tally {
    count: u64,
    /// Pixels by ΔE in hundredths.
    bins: Vec<u64>,
    /// Of each [`CHUNK`], so that the whole sum does not depend on how many threads there are.
    sums: Vec<f64>,
    max: f32,
    changed: u64,
    max_channel: u8,
}

/// Compares the pixels, by as many threads as there are processors, four at most.
fn tallies(a: &[u8], b: &[u8], seen: Option<(&Planes, &Planes)>) -> Vec<Tally> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get().min(4));
    let stretch = a.len().div_ceil(CHUNK).div_ceil(threads).max(1) * CHUNK;
    let stretches: Vec<_> = a.chunks(stretch).zip(b.chunks(stretch)).enumerate().collect();
    std::thread::scope(|scope| {
        let work: Vec<_> = stretches
            .into_iter()
            .map(|(at, (a, b))| {
                let seen = seen.map(|(a, b)| {
                    let from = at * stretch / (3 * TILE);
                    (a.tiles().get(from..).unwrap_or_default(), b.tiles().get(from..).unwrap_or_default())
                });
                scope.spawn(move || Tally::of(a, b, seen))
            })
            .collect();
        work.into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

impl Tally {
    /// Of two stretches, whose tiles are taken from what is `seen`.
    fn of(a: &[u8], b: &[u8], seen: Option<(&[Tile], &[Tile])>) -> Self {
        let mut tally =
            Self { count: 0, bins: vec![0; BINS], sums: Vec::new(), max: 0.0, changed: 0, max_channel: 0 };
        let (mut left, mut right, mut distances) = (Tile::new(), Tile::new(), [0.0; TILE]);
        let mut seen = seen.map(|(a, b)| a.iter().zip(b));
        for (a, b) in a.chunks(CHUNK).zip(b.chunks(CHUNK)) {
            let mut sum = 0.0;
            for (a, b) in a.chunks(3 * TILE).zip(b.chunks(3 * TILE)) {
                let channel = a.iter().zip(b).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or_default();
                tally.max_channel = tally.max_channel.max(channel);
                if let Some((left, right)) = seen.as_mut().and_then(Iterator::next) {
                    left.distances(right, &mut distances);
                } else {
                    left.fill(a);
                    right.fill(b);
                    left.distances(&right, &mut distances);
                }
                let distances = distances.get(..a.len() / 3).unwrap_or_default();
                sum += moments::sum(distances);
                tally.count += distances.len() as u64;
                tally.max = distances.iter().fold(tally.max, |max, delta| max.max(*delta));
                tally.changed += distances.iter().map(|delta| u64::from(*delta > 1.0)).sum::<u64>();
                for delta in distances {
                    if let Some(bin) = tally.bins.get_mut((delta * 100.0 + 0.5) as usize) {
                        *bin += 1;
                    }
                }
            }
            tally.sums.push(sum);
        }
        tally
    }
}

/// ΔE2000 of each pixel, row by row; `None` for pictures of two sizes.
pub fn distances(a: &Picture, b: &Picture) -> Option<Vec<f32>> {
    if (a.width, a.height, a.rgb.len()) != (b.width, b.height, b.rgb.len()) {
        return None;
    }
    let (mut left, mut right, mut distances) = (Tile::new(), Tile::new(), [0.0; TILE]);
    let mut all = Vec::with_capacity(a.rgb.len() / 3);
    for (a, b) in a.rgb.chunks(3 * TILE).zip(b.rgb.chunks(3 * TILE)) {
        left.fill(a);
        right.fill(b);
        left.distances(&right, &mut distances);
        all.extend(distances.iter().take(a.len() / 3));
    }
    Some(all)
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
    use crate::metrics::lab::Lab;
    use crate::metrics::synthetic::{flat, picture};

    #[test]
    fn a_picture_does_not_differ_from_itself() {
        let same = picture(64, 48, |x, y| [x as u8 * 3, y as u8 * 5, 90]);
        let found = Difference::between(&same, &same).unwrap();
        let none =
            Difference { mean: 0.0, p95: 0.0, max: 0.0, changed_pct: 0.0, max_channel: 0, resized: false };
        assert_eq!(found, none);
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
