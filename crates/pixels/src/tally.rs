//! Sums and ranks over all pixels of a picture.

use fearless_simd::{Level, dispatch};

use crate::ciede::{TILE, Tile};
use crate::moments::{self, Moments};
use crate::parallel::both;
use crate::planes::{Planes, middle};

/// Pixels of less chroma are neutral: their hue is noise.
pub const NEUTRAL: f32 = 5.0;

/// Sums over all pixels.
#[derive(Clone, Debug)]
pub struct Tally {
    /// L*.
    pub l: Moments,
    /// Sum of a*.
    pub a: f64,
    /// Sum of b*.
    pub b: f64,
    /// Sum of C*.
    pub chroma: f64,
    /// Pixels with any channel at 254 or 255.
    pub clip_high: u64,
    /// Pixels with all channels at 0 or 1.
    pub clip_low: u64,
    /// Count, chroma and lightness of each sector of hue, and of neutral pixels. The sectors are reds from 350°,
    /// yellows from 50°, greens from 110°, cyans from 165°, blues from 230° and magentas from 310°.
    pub sectors: [(u64, f64, f64); NEITHER + 1],
    /// L* in hundredths.
    ranks: Vec<u32>,
}

/// The place of what is in no sector.
pub const NEITHER: usize = 6;

impl Tally {
    fn new() -> Self {
        Self {
            l: Moments::default(),
            a: 0.0,
            b: 0.0,
            chroma: 0.0,
            clip_high: 0,
            clip_low: 0,
            sectors: Default::default(),
            ranks: vec![0; 10_001],
        }
    }

    /// Of a picture and its codes. The two halves at once, parted as those of [`Planes`].
    pub fn of(planes: &Planes, rgb: &[u8]) -> Self {
        let (first, second) = planes.tiles().split_at(middle(planes.tiles().len()));
        let (upper, lower) = rgb.split_at(rgb.len().min(3 * TILE * first.len()));
        let half = |tiles: &[Tile], rgb: &[u8]| {
            let mut tally = Self::new();
            for (tile, rgb) in tiles.iter().zip(rgb.chunks(3 * TILE)) {
                tally.add(tile, rgb);
            }
            tally
        };
        let (mut tally, rest) = both(|| half(first, upper), || half(second, lower));
        tally.merge(&rest);
        tally
    }

    /// Adds a tile, as many of its pixels as there are codes for.
    fn add(&mut self, tile: &Tile, rgb: &[u8]) {
        dispatch!(Level::new(), _ => self.add_wide(tile, rgb));
    }

    #[inline(always)]
    fn add_wide(&mut self, tile: &Tile, rgb: &[u8]) {
        let count = rgb.len() / 3;
        let mut sectors = [0_u8; TILE];
        for (sector, ((a, b), chroma)) in sectors.iter_mut().zip(tile.a.iter().zip(&tile.b).zip(&tile.chroma))
        {
            *sector = if *chroma >= NEUTRAL { self::sector(*a, *b) } else { NEITHER as u8 };
        }
        let [l, a, b, chroma] =
            [&tile.l, &tile.a, &tile.b, &tile.chroma].map(|plane| plane.get(..count).unwrap_or_default());
        self.l.add_all(l);
        self.a += moments::sum(a);
        self.b += moments::sum(b);
        self.chroma += moments::sum(chroma);
        for ((l, chroma), sector) in l.iter().zip(chroma).zip(&sectors) {
            if let Some(bin) = self.ranks.get_mut((l * 100.0 + 0.5) as usize) {
                *bin += 1;
            }
            if let Some((count, chromas, lights)) = self.sectors.get_mut(usize::from(*sector)) {
                *count += 1;
                *chromas += f64::from(*chroma);
                *lights += f64::from(*l);
            }
        }
        for rgb in rgb.chunks_exact(3) {
            let &[r, g, b] = rgb else { continue };
            let high = r.max(g).max(b);
            self.clip_high += u64::from(high >= 254);
            self.clip_low += u64::from(high <= 1);
        }
    }

    fn merge(&mut self, other: &Self) {
        self.l.merge(&other.l);
        self.a += other.a;
        self.b += other.b;
        self.chroma += other.chroma;
        self.clip_high += other.clip_high;
        self.clip_low += other.clip_low;
        for (mine, theirs) in self.sectors.iter_mut().zip(&other.sectors) {
            *mine = (mine.0 + theirs.0, mine.1 + theirs.1, mine.2 + theirs.2);
        }
        for (mine, theirs) in self.ranks.iter_mut().zip(&other.ranks) {
            *mine += theirs;
        }
    }

    /// The least L*, in steps of a hundredth, that at least `percent` of the pixels do not exceed.
    pub fn percentile(&self, percent: f64) -> f64 {
        let wanted = (self.l.count() as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        let place = self.ranks.iter().position(|&bin| {
            seen += u64::from(bin);
            seen >= wanted
        });
        place.unwrap_or(0) as f64 / 100.0
    }
}

/// The sector of a colour, counted from red. Half planes find it without an arc tangent; all of them are asked, so
/// that several colours are done at once.
#[inline(always)]
fn sector(a: f32, b: f32) -> u8 {
    // Whether the hue is at or past an angle less than half a turn away, given by its cosine and sine.
    let past = |cos: f32, sin: f32| u8::from(b * cos >= a * sin);
    // 50°, 110° and 165°; 230°, 310° and 350°.
    let upper = past(0.642_788, 0.766_044) + past(-0.342_020, 0.939_693) + past(-0.965_926, 0.258_819);
    let lower = past(-0.642_788, -0.766_044) + past(0.642_788, -0.766_044) + past(0.984_808, -0.173_648);
    if b >= 0.0 { upper } else { (3 + lower) % 6 }
}

/// The mean colour of the darkest and of the brightest third; pixels at the limit itself count as inside.
#[derive(Clone, Copy, Debug, Default)]
pub struct Thirds {
    /// The darkest third.
    pub dark: Cast,
    /// The brightest third.
    pub bright: Cast,
}

/// The colour of some of the pixels.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cast {
    a: f64,
    b: f64,
    count: u64,
}

impl Thirds {
    /// Of a picture, given the percentiles that bound the thirds.
    pub fn of(planes: &Planes, dark_limit: f64, bright_limit: f64) -> Self {
        // Half a bin of the histogram that the limits come from.
        let (dark_limit, bright_limit) = (dark_limit as f32 + 0.005, bright_limit as f32 - 0.005);
        let mut thirds = Self::default();
        let mut left = planes.pixels();
        for tile in planes.tiles() {
            dispatch!(Level::new(), _ => {
                thirds.dark.add(tile, left, #[inline(always)] |l| l <= dark_limit);
                thirds.bright.add(tile, left, #[inline(always)] |l| l >= bright_limit);
            });
            left = left.saturating_sub(TILE);
        }
        thirds
    }
}

impl Cast {
    /// Mean a*; 0 of no pixel.
    pub fn a(&self) -> f64 {
        self.a / self.count.max(1) as f64
    }

    /// Mean b*; 0 of no pixel.
    pub fn b(&self) -> f64 {
        self.b / self.count.max(1) as f64
    }

    /// Adds those of a tile's first `count` pixels whose L* is wanted. What is not adds a zero, as what is beyond
    /// them does, so that several are done at once.
    #[inline(always)]
    #[allow(
        clippy::needless_range_loop,
        clippy::indexing_slicing,
        reason = "several rows of one length are read and written at one place below it"
    )]
    fn add(&mut self, tile: &Tile, count: usize, wanted: impl Fn(f32) -> bool) {
        let (mut a, mut b) = ([0.0; TILE], [0.0; TILE]);
        for at in 0..TILE {
            let share = f32::from(u8::from(wanted(tile.l[at])));
            a[at] = tile.a[at] * share;
            b[at] = tile.b[at] * share;
        }
        self.a += moments::sum(&a);
        self.b += moments::sum(&b);
        let lightness = tile.l.iter().take(count);
        self.count += u64::from(lightness.map(|l| u32::from(wanted(*l))).sum::<u32>());
    }
}

/// Hasler and Süsstrunk, "Measuring colourfulness in natural images" (2003).
pub fn colourfulness(rgb: &[u8]) -> f64 {
    let (mut rg, mut yb) = (Moments::default(), Moments::default());
    for rgb in rgb.chunks_exact(3) {
        let &[r, g, b] = rgb else { continue };
        let (r, g, b) = (f64::from(r), f64::from(g), f64::from(b));
        rg.add(r - g);
        yb.add((r + g) / 2.0 - b);
    }
    rg.deviation().hypot(yb.deviation()) + 0.3 * rg.mean().hypot(yb.mean())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hues_beside_a_limit_are_in_their_sectors() {
        assert_eq!(sector(20.0, 0.0), 0, "0° is red");
        assert_eq!(sector(20.0, -3.0), 0, "351° is red");
        assert_eq!(sector(20.0, -4.0), 5, "349° is magenta");
    }
}
