//! CIEDE2000 for many pairs of colours at once.
//!
//! The formula needs no angle but one: the hue difference follows from the dot and the cross product of the two
//! colours, the weights by hue from the unit vector between them. What is left is written without branches and
//! with few roots and divisions, so that several pairs are computed in one instruction, in single precision and
//! the same on every machine: as many at once as the processor can, which changes no bit. It agrees with the formula in double precision within a thousandth (see the tests).
//!
//! Formula: Sharma, Wu and Dalal, Color Research and Application 30 (2005), equations 2 to 22. Polynomials:
//! Abramowitz and Stegun, Handbook of Mathematical Functions, 4.2.45, 4.3.97 and 4.4.49.

use std::f32::consts::{FRAC_PI_2, FRAC_PI_3, PI};

use fearless_simd::{Level, dispatch};

use crate::lab::{self, Lab};
use crate::moments;

/// Pixels in a [`Tile`].
pub const TILE: usize = 256;

/// Some pixels in CIELAB, each coordinate by itself.
#[derive(Clone)]
pub struct Tile {
    pub l: [f32; TILE],
    pub a: [f32; TILE],
    pub b: [f32; TILE],
    /// C*, which follows from the two before.
    pub chroma: [f32; TILE],
}

#[allow(
    clippy::needless_range_loop,
    clippy::indexing_slicing,
    reason = "several rows of one length are read and written at one place below it"
)]
impl Tile {
    pub fn new() -> Self {
        Self { l: [0.0; TILE], a: [0.0; TILE], b: [0.0; TILE], chroma: [0.0; TILE] }
    }

    /// Takes in 8-bit sRGB pixels, black ones where they do not fill the tile, and adds up their relative luminance.
    pub fn fill(&mut self, rgb: &[u8]) -> f64 {
        dispatch!(Level::new(), _ => self.fill_wide(rgb))
    }

    #[inline(always)]
    fn fill_wide(&mut self, rgb: &[u8]) -> f64 {
        let [mut red, mut green, mut blue] = [[0.0; TILE]; 3];
        let channels = red.iter_mut().zip(&mut green).zip(&mut blue);
        for (((red, green), blue), rgb) in channels.zip(rgb.chunks_exact(3)) {
            let &[r, g, b] = rgb else { continue };
            [*red, *green, *blue] = lab::linear([r, g, b]);
        }
        for at in 0..TILE {
            let lab = Lab::from_linear([red[at], green[at], blue[at]]);
            (self.l[at], self.a[at], self.b[at], self.chroma[at]) = (lab.l, lab.a, lab.b, lab.chroma());
            red[at] = lab::luminance([red[at], green[at], blue[at]]);
        }
        moments::sum(&red)
    }

    /// The distance of each pixel to the other tile's.
    pub fn distances(&self, other: &Self, distances: &mut [f32; TILE]) {
        dispatch!(Level::new(), _ => self.distances_wide(other, distances));
    }

    #[inline(always)]
    fn distances_wide(&self, other: &Self, distances: &mut [f32; TILE]) {
        for at in 0..TILE {
            let one = Lab { l: self.l[at], a: self.a[at], b: self.b[at] };
            let two = Lab { l: other.l[at], a: other.a[at], b: other.b[at] };
            distances[at] = of(one, two, (self.chroma[at] + other.chroma[at]) / 2.0);
        }
    }
}

/// A polynomial by Horner's scheme, its terms from the highest power down.
macro_rules! polynomial {
    ($x:expr; $first:literal $(, $term:literal)*) => {{
        let x = $x;
        let sum: f32 = $first;
        $(let sum = sum * x + $term;)*
        sum
    }};
}

/// Cosine and sine of 275°, around which blues are turned.
const BLUE: [f32; 2] = [0.087_155_74, -0.996_194_7];
/// From radians to 25°.
const FROM_BLUE: f32 = 180.0 / PI / 25.0;

/// The distance of two colours, whose mean C* is `mean`.
#[inline(always)]
fn of(one: Lab, two: Lab, mean: f32) -> f32 {
    // Greys are spread along a*: equations 2 to 7.
    let spread = 1.5 - 0.5 * vivid(mean);
    let ((a1, b1), (a2, b2)) = ((one.a * spread, one.b), (two.a * spread, two.b));
    let (c1, c2) = (length(a1, b1), length(a2, b2));

    // Equations 8 to 11. With the angle t between the hues, the hue difference is 2√(c1·c2)·sin(t/2). Up to a right
    // angle that is c1·c2·sin t over √(c1·c2·(1 + cos t)/2), and beyond √(2·c1·c2·(1 - cos t)): neither
    // takes nearly equal numbers from each other.
    let lightness = two.l - one.l;
    let chroma = c2 - c1;
    let (along, across, both) = (a1 * a2 + b1 * b2, a1 * b2 - b1 * a2, c1 * c2);
    let opposite = along < 0.0;
    let sign = if across < 0.0 { -1.0 } else { 1.0 };
    let root = (2.0 * (both + along.abs())).sqrt();
    let hue = if opposite { sign * root } else { 2.0 * across / root.max(1e-12) };

    // The mean hue lies along the sum of the two at equal length, of a grey and a colour along the colour's. Between
    // hues that are nearly opposite little is left of the sum, and it is found from their difference.
    // Equations 12 to 15.
    let ((x1, y1), (x2, y2)) = ((a1 * c2, b1 * c2), (a2 * c1, b2 * c1));
    let (x, y) = if opposite { (sign * (y2 - y1), sign * (x1 - x2)) } else { (x1 + x2, y1 + y2) };
    let (x, y) = if both == 0.0 { (a1 + a2, b1 + b2) } else { (x, y) };
    let scale = 1.0 / length(x, y).max(1e-12);
    let (x, y) = (x * scale, y * scale);
    let (cos2, sin2) = (x * x - y * y, 2.0 * x * y);
    let (cos3, sin3) = (cos2 * x - sin2 * y, sin2 * x + cos2 * y);
    let (cos4, sin4) = (cos2 * cos2 - sin2 * sin2, 2.0 * sin2 * cos2);
    let by_hue = 1.0 - 0.17 * (0.866_025_4 * x + 0.5 * y)
        + 0.24 * cos2
        + 0.32 * (0.994_521_9 * cos3 - 0.104_528_46 * sin3)
        - 0.20 * (0.453_990_5 * cos4 + 0.891_006_5 * sin4);

    // Equations 16 to 22; one division by all three weights.
    let mean_chroma = (c1 + c2) / 2.0;
    let mid = (one.l + two.l) / 2.0 - 50.0;
    let by_lightness = 1.0 + 0.015 * mid * mid / (20.0 + mid * mid).sqrt();
    let by_chroma = 1.0 + 0.045 * mean_chroma;
    let by_hue = 1.0 + 0.015 * mean_chroma * by_hue;
    let weight = 1.0 / (by_lightness * by_chroma * by_hue);
    let lightness = lightness * by_chroma * by_hue * weight;
    let chroma = chroma * by_lightness * by_hue * weight;
    let hue = hue * by_lightness * by_chroma * weight;
    let from_blue = angle(x * BLUE[0] + y * BLUE[1], y * BLUE[0] - x * BLUE[1]) * FROM_BLUE;
    let rotation = -2.0 * vivid(mean_chroma) * sine(FRAC_PI_3 * decay(from_blue * from_blue));
    let squares = lightness * lightness + chroma * chroma + hue * hue + rotation * chroma * hue;
    squares.max(0.0).sqrt()
}

#[inline(always)]
fn length(x: f32, y: f32) -> f32 {
    (x * x + y * y).sqrt()
}

/// √(C⁷ / (C⁷ + 25⁷)).
#[inline(always)]
fn vivid(chroma: f32) -> f32 {
    let ratio = chroma * 0.04;
    let square = ratio * ratio;
    let seventh = square * square * square * ratio;
    (seventh / (seventh + 1.0)).sqrt()
}

/// The angle between the vector and the first axis, 0 to π.
#[inline(always)]
fn angle(x: f32, y: f32) -> f32 {
    let (along, across) = (x.abs(), y.abs());
    let tangent = along.min(across) / along.max(across).max(1e-12);
    let square = tangent * tangent;
    let steep = tangent
        * polynomial!(square;
            0.002_866_225_7, -0.016_165_737, 0.042_909_614, -0.075_289_64, 0.106_562_64, -0.142_089, 0.199_935_51,
            -0.333_331_45, 1.0);
    let quarter = if across > along { FRAC_PI_2 - steep } else { steep };
    if x < 0.0 { PI - quarter } else { quarter }
}

/// e to the power of -`x`, for `x` from 0; nothing is left at 22.
#[inline(always)]
fn decay(x: f32) -> f32 {
    let mut power = polynomial!(x.min(22.0) / 32.0;
        -0.000_141_316_1, 0.001_329_882, -0.008_301_36, 0.041_657_348, -0.166_665_3, 0.499_999_9, -1.0, 1.0);
    for _ in 0..5 {
        power *= power;
    }
    power
}

/// The sine of an angle from 0 to π/2.
#[inline(always)]
fn sine(x: f32) -> f32 {
    x * polynomial!(x * x; -2.39e-8, 2.752_6e-6, -0.000_198_409, 0.008_333_332, -0.166_666_67, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The distance in single precision against the formula's own, at most.
    const NEAR: f32 = 1e-3;

    /// Two rows of colours, a tile at a time, against the formula in double precision: the largest deviation.
    fn compared(one: &[[u8; 3]], two: &[[u8; 3]]) -> f32 {
        let (mut left, mut right, mut there, mut back) = (Tile::new(), Tile::new(), [0.0; TILE], [0.0; TILE]);
        let mut worst = 0.0_f32;
        for (one, two) in one.chunks(TILE).zip(two.chunks(TILE)) {
            left.fill(one.as_flattened());
            right.fill(two.as_flattened());
            left.distances(&right, &mut there);
            right.distances(&left, &mut back);
            for ((one, two), (there, back)) in one.iter().zip(two).zip(there.iter().zip(&back)) {
                let expected = Lab::from_srgb(*one).delta_e(Lab::from_srgb(*two));
                assert!((there - back).abs() < 1e-5, "{one:?} {two:?}");
                assert_eq!(*there == 0.0, one == two, "{one:?} {two:?}");
                worst = worst.max((there - expected).abs());
            }
        }
        worst
    }

    #[test]
    fn colours_near_and_far_are_as_far_apart_as_the_formula_says() {
        let mut seed = 5_u32;
        let mut byte = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        };
        let one: Vec<[u8; 3]> = (0..100_000).map(|_| [byte(), byte(), byte()]).collect();
        let two: Vec<[u8; 3]> = (0..100_000).map(|_| [byte(), byte(), byte()]).collect();
        let next: Vec<[u8; 3]> = one.iter().map(|[r, g, b]| [r.saturating_add(1), *g, b ^ 2]).collect();
        assert!(compared(&one, &two) < NEAR, "{}", compared(&one, &two));
        assert!(compared(&one, &next) < NEAR, "{}", compared(&one, &next));
    }

    #[test]
    fn greys_have_no_hue() {
        let grey: Vec<[u8; 3]> = (0..=255).map(|code| [code; 3]).collect();
        let middle = vec![[128; 3]; 256];
        let red: Vec<[u8; 3]> = (0..=255).map(|code| [code, 20, 20]).collect();
        assert!(compared(&grey, &middle) < NEAR && compared(&grey, &red) < NEAR);
        assert_eq!(compared(&grey, &grey), 0.0);
    }
}
