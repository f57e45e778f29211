//! CIEDE2000 between two pictures.

use fearless_simd::{Level, dispatch};

use crate::ciede::{TILE, Tile};
use crate::hue::Turns;
use crate::moments;
use crate::planes::Planes;

/// ΔE in hundredths; nothing in sRGB is further apart than about 120.
const BINS: usize = 20_000;
/// Bytes of pixels that are summed up together: whole tiles.
const CHUNK: usize = 64 * 3 * TILE;
/// About how many pixels a turn of hue is taken from.
const SAMPLES: usize = 20_000;

/// How far two pictures are apart, in CIEDE2000.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distance {
    /// Mean ΔE2000.
    pub mean: f64,
    /// 95th percentile, in steps of a hundredth.
    pub p95: f64,
    /// Largest ΔE2000.
    pub max: f32,
    /// Share of pixels with ΔE2000 above 1, in percent.
    pub changed_pct: f64,
    /// Largest difference of an 8-bit channel.
    pub max_channel: u8,
    /// The largest turn of hue, in degrees: [`Turns::largest`].
    pub hue_shift: f64,
}

impl Distance {
    /// Compares two pictures of the same size, which must have a pixel; their [`Planes`] save half of the work.
    pub fn between(a: &[u8], b: &[u8], seen: Option<(&Planes, &Planes)>) -> Self {
        let parts = tallies(a, b, seen);
        let count: u64 = parts.iter().map(|part| part.count).sum();
        let mut seen = 0;
        let p95 = (0..BINS).position(|bin| {
            seen += parts.iter().filter_map(|part| part.bins.get(bin)).copied().map(u64::from).sum::<u64>();
            seen * 100 >= count * 95
        });
        let sum: f64 = parts.iter().flat_map(|part| &part.sums).sum();
        let changed: u64 = parts.iter().map(|part| part.changed).sum();
        let turns = parts.iter().flat_map(|part| &part.turns).fold(Turns::default(), Turns::plus);
        Self {
            mean: sum / count as f64,
            p95: p95.unwrap_or(0) as f64 / 100.0,
            max: parts.iter().fold(0.0_f32, |max, part| max.max(part.max)),
            changed_pct: 100.0 * changed as f64 / count as f64,
            max_channel: parts.iter().map(|part| part.max_channel).max().unwrap_or_default(),
            hue_shift: turns.largest(),
        }
    }
}

/// ΔE2000 of each pixel of two pictures of the same size.
pub fn distances(a: &[u8], b: &[u8]) -> Vec<f32> {
    let (mut left, mut right, mut distances) = (Tile::new(), Tile::new(), [0.0; TILE]);
    let mut all = Vec::with_capacity(a.len() / 3);
    for (a, b) in a.chunks(3 * TILE).zip(b.chunks(3 * TILE)) {
        left.fill(a);
        right.fill(b);
        left.distances(&right, &mut distances);
        all.extend(distances.iter().take(a.len() / 3));
    }
    all
}

/// What a stretch of the pixels adds up to.
struct Tally {
    count: u64,
    /// Pixels by ΔE in hundredths.
    bins: Vec<u32>,
    /// Of each [`CHUNK`], as the turns are, so that no whole sum depends on how many threads there are.
    sums: Vec<f64>,
    /// Of every so many-th pixel.
    turns: Vec<Turns>,
    max: f32,
    changed: u64,
    max_channel: u8,
}

/// Compares the pixels, by as many threads as there are processors, four at most.
fn tallies(a: &[u8], b: &[u8], seen: Option<(&Planes, &Planes)>) -> Vec<Tally> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get().min(4));
    let stretch = a.len().div_ceil(CHUNK).div_ceil(threads).max(1) * CHUNK;
    let every = (a.len() / 3 / SAMPLES).max(1);
    let stretches: Vec<_> = a.chunks(stretch).zip(b.chunks(stretch)).enumerate().collect();
    std::thread::scope(|scope| {
        let work: Vec<_> = stretches
            .into_iter()
            .map(|(at, (a, b))| {
                let from = at * stretch / 3;
                let seen = seen.map(|(a, b)| {
                    let [a, b] = [a, b].map(|seen| seen.tiles().get(from / TILE..).unwrap_or_default());
                    (a, b)
                });
                // As if the pixels were counted from the first one of the picture.
                let sampled = (from.next_multiple_of(every) - from..a.len() / 3).step_by(every);
                scope.spawn(move || Tally::of(a, b, seen, sampled))
            })
            .collect();
        work.into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

impl Tally {
    /// Of two stretches, whose tiles are taken from what is `seen`; hues are compared at the pixels `sampled`.
    fn of(
        a: &[u8],
        b: &[u8],
        seen: Option<(&[Tile], &[Tile])>,
        sampled: impl Iterator<Item = usize>,
    ) -> Self {
        let mut tally = Self {
            count: 0,
            bins: vec![0; BINS],
            sums: Vec::new(),
            turns: Vec::new(),
            max: 0.0,
            changed: 0,
            max_channel: 0,
        };
        let (mut left, mut right, mut distances) = (Tile::new(), Tile::new(), [0.0; TILE]);
        let mut seen = seen.map(|(a, b)| a.iter().zip(b));
        let mut sampled = sampled.peekable();
        for (a, b) in a.chunks(CHUNK).zip(b.chunks(CHUNK)) {
            let (mut sum, mut turns) = (0.0, Turns::default());
            for (a, b) in a.chunks(3 * TILE).zip(b.chunks(3 * TILE)) {
                let (left, right) = seen.as_mut().and_then(Iterator::next).unwrap_or_else(|| {
                    left.fill(a);
                    right.fill(b);
                    (&left, &right)
                });
                left.distances(right, &mut distances);
                let first = tally.count as usize;
                sum += tally.add(a, b, distances.get(..a.len() / 3).unwrap_or_default());
                while let Some(at) = sampled.next_if(|at| *at < tally.count as usize) {
                    turns.add(left, right, at - first);
                }
            }
            tally.sums.push(sum);
            tally.turns.push(turns);
        }
        tally
    }

    /// Adds a tile's pixels and their distances, whose sum it returns.
    fn add(&mut self, a: &[u8], b: &[u8], distances: &[f32]) -> f64 {
        dispatch!(Level::new(), _ => self.add_wide(a, b, distances))
    }

    #[inline(always)]
    fn add_wide(&mut self, a: &[u8], b: &[u8], distances: &[f32]) -> f64 {
        self.max_channel = a.iter().zip(b).fold(self.max_channel, |most, (a, b)| most.max(a.abs_diff(*b)));
        // Numbers that are not negative are in the order of their bits, and of those several are compared at once.
        let largest = distances.iter().fold(0, |most, delta| delta.abs().to_bits().max(most));
        self.max = self.max.max(f32::from_bits(largest));
        self.count += distances.len() as u64;
        self.changed += u64::from(distances.iter().map(|delta| u32::from(*delta > 1.0)).sum::<u32>());
        let mut places = [0; TILE];
        for (place, delta) in places.iter_mut().zip(distances) {
            *place = (delta * 100.0 + 0.5) as u32;
        }
        for place in places.iter().take(distances.len()) {
            if let Some(bin) = self.bins.get_mut(*place as usize) {
                *bin += 1;
            }
        }
        moments::sum(distances)
    }
}
