//! From 8-bit sRGB to CIELAB under D65, and the CIEDE2000 distance.

use palette::color_difference::Ciede2000;
use palette::white_point::D65;

use crate::srgb;

/// A colour in CIELAB under D65: L* 0 to 100, a* and b* about −110 to 100.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lab {
    /// Lightness L*.
    pub l: f32,
    /// + magenta, − green.
    pub a: f32,
    /// + yellow, − blue.
    pub b: f32,
}

impl Lab {
    /// Converts an sRGB colour.
    pub fn from_srgb(rgb: [u8; 3]) -> Self {
        Self::from_linear(linear(rgb))
    }

    /// Converts linear light with sRGB primaries, 0 to 1.
    ///
    /// The matrix is sRGB to XYZ (IEC 61966-2-1) with each row divided by the white point, so that equal
    /// channels give exactly a* = b* = 0.
    #[inline(always)]
    pub(crate) fn from_linear([r, g, b]: [f32; 3]) -> Self {
        let x = root(0.433_950 * r + 0.376_210 * g + 0.189_840 * b);
        let y = root(luminance([r, g, b]));
        let z = root(0.017_757 * r + 0.109_468 * g + 0.872_775 * b);
        Self { l: 116.0 * y - 16.0, a: 500.0 * (x - y), b: 200.0 * (y - z) }
    }

    /// Chroma C*.
    #[inline(always)]
    pub fn chroma(self) -> f32 {
        (self.a * self.a + self.b * self.b).sqrt()
    }

    /// The CIEDE2000 distance to `other` (CIE 142-2001): about 1 is just noticeable.
    pub fn delta_e(self, other: Self) -> f32 {
        let precise = |c: Self| palette::Lab::<D65, f64>::new(c.l.into(), c.a.into(), c.b.into());
        precise(self).difference(precise(other)) as f32
    }
}

/// The linear light of an sRGB colour, 0 to 1.
#[inline(always)]
pub(crate) fn linear([r, g, b]: [u8; 3]) -> [f32; 3] {
    [decode(r), decode(g), decode(b)]
}

#[inline(always)]
#[allow(clippy::indexing_slicing, reason = "the table has a place for each code")]
fn decode(code: u8) -> f32 {
    LINEAR[usize::from(code)]
}

/// The sRGB transfer curve in the precision that colours are computed in.
#[allow(clippy::indexing_slicing, reason = "computed when the program is built")]
static LINEAR: [f32; 256] = {
    let mut linear = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        linear[code] = srgb::LINEAR[code] as f32;
        code += 1;
    }
    linear
};

/// Relative luminance (Rec. 709 weights) of linear light.
#[inline(always)]
pub(crate) fn luminance([r, g, b]: [f32; 3]) -> f32 {
    0.212_673 * r + 0.715_152 * g + 0.072_175 * b
}

/// CIELAB's compressed cube root. Two rounds of Halley's method rather than `cbrt`, whose last bit differs
/// between C libraries; both halves are computed, so that a row of pixels is done several at a time.
#[inline(always)]
fn root(t: f32) -> f32 {
    // A third of the exponent is a guess within a few percent.
    let guess = f32::from_bits(t.to_bits() / 3 + 0x2a51_37a0);
    let root = halley(halley(guess, t), t);
    if t <= 216.0 / 24389.0 { (24389.0 / 27.0 * t + 16.0) / 116.0 } else { root }
}

#[inline(always)]
fn halley(y: f32, t: f32) -> f32 {
    let cube = y * y * y;
    y * (cube + 2.0 * t) / (2.0 * cube + t)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sharma, Wu and Dalal, "The CIEDE2000 color-difference formula", Color Res. Appl. 30 (2005), table 1.
    #[rustfmt::skip]
    const SHARMA: [[f64; 7]; 34] = [
        [50.0, 2.6772, -79.7751, 50.0, 0.0, -82.7485, 2.0425],
        [50.0, 3.1571, -77.2803, 50.0, 0.0, -82.7485, 2.8615],
        [50.0, 2.8361, -74.02, 50.0, 0.0, -82.7485, 3.4412],
        [50.0, -1.3802, -84.2814, 50.0, 0.0, -82.7485, 1.0],
        [50.0, -1.1848, -84.8006, 50.0, 0.0, -82.7485, 1.0],
        [50.0, -0.9009, -85.5211, 50.0, 0.0, -82.7485, 1.0],
        [50.0, 0.0, 0.0, 50.0, -1.0, 2.0, 2.3669],
        [50.0, -1.0, 2.0, 50.0, 0.0, 0.0, 2.3669],
        [50.0, 2.49, -0.001, 50.0, -2.49, 0.0009, 7.1792],
        [50.0, 2.49, -0.001, 50.0, -2.49, 0.001, 7.1792],
        [50.0, 2.49, -0.001, 50.0, -2.49, 0.0011, 7.2195],
        [50.0, 2.49, -0.001, 50.0, -2.49, 0.0012, 7.2195],
        [50.0, -0.001, 2.49, 50.0, 0.0009, -2.49, 4.8045],
        [50.0, -0.001, 2.49, 50.0, 0.001, -2.49, 4.8045],
        [50.0, -0.001, 2.49, 50.0, 0.0011, -2.49, 4.7461],
        [50.0, 2.5, 0.0, 50.0, 0.0, -2.5, 4.3065],
        [50.0, 2.5, 0.0, 73.0, 25.0, -18.0, 27.1492],
        [50.0, 2.5, 0.0, 61.0, -5.0, 29.0, 22.8977],
        [50.0, 2.5, 0.0, 56.0, -27.0, -3.0, 31.903],
        [50.0, 2.5, 0.0, 58.0, 24.0, 15.0, 19.4535],
        [50.0, 2.5, 0.0, 50.0, 3.1736, 0.5854, 1.0],
        [50.0, 2.5, 0.0, 50.0, 3.2972, 0.0, 1.0],
        [50.0, 2.5, 0.0, 50.0, 1.8634, 0.5757, 1.0],
        [50.0, 2.5, 0.0, 50.0, 3.2592, 0.335, 1.0],
        [60.2574, -34.0099, 36.2677, 60.4626, -34.1751, 39.4387, 1.2644],
        [63.0109, -31.0961, -5.8663, 62.8187, -29.7946, -4.0864, 1.263],
        [61.2901, 3.7196, -5.3901, 61.4292, 2.248, -4.962, 1.8731],
        [35.0831, -44.1164, 3.7933, 35.0232, -40.0716, 1.5901, 1.8645],
        [22.7233, 20.0904, -46.694, 23.0331, 14.973, -42.5619, 2.0373],
        [36.4612, 47.858, 18.3852, 36.2715, 50.5065, 21.2231, 1.4146],
        [90.8027, -2.0831, 1.441, 91.1528, -1.6435, 0.0447, 1.4441],
        [90.9257, -0.5406, -0.9208, 88.6381, -0.8985, -0.7239, 1.5381],
        [6.7747, -0.2908, -2.4247, 5.8714, -0.0985, -2.2286, 0.6377],
        [2.0776, 0.0795, -1.135, 0.9033, -0.0636, -0.5514, 0.9082],
    ];

    #[test]
    fn delta_e_agrees_with_all_published_pairs() {
        for [l1, a1, b1, l2, a2, b2, expected] in SHARMA {
            let one = palette::Lab::<D65, f64>::new(l1, a1, b1);
            let two = palette::Lab::<D65, f64>::new(l2, a2, b2);
            for found in [one.difference(two), two.difference(one)] {
                assert!((found - expected).abs() <= 1e-4, "{one:?} {two:?}: {found}, not {expected}");
            }
        }
    }

    #[test]
    fn greys_are_neutral_and_primaries_are_where_they_belong() {
        for code in 0..=255 {
            let grey = Lab::from_srgb([code; 3]);
            assert!(grey.chroma() < 1e-3, "{code}: {grey:?}");
        }
        let close = |rgb, l: f32, a: f32, b: f32| {
            let lab = Lab::from_srgb(rgb);
            assert!((lab.l - l).abs().max((lab.a - a).abs()).max((lab.b - b).abs()) < 0.02, "{lab:?}");
        };
        close([0, 0, 0], 0.0, 0.0, 0.0);
        close([255, 255, 255], 100.0, 0.0, 0.0);
        close([255, 0, 0], 53.24, 80.09, 67.20);
        close([0, 255, 0], 87.73, -86.18, 83.18);
        close([0, 0, 255], 32.30, 79.19, -107.86);
    }

    #[test]
    fn the_root_is_the_cube_root() {
        for step in 1..=1000 {
            let t = step as f32 / 1000.0;
            let expected = if t > 216.0 / 24389.0 { t.cbrt() } else { (24389.0 / 27.0 * t + 16.0) / 116.0 };
            assert!((root(t) - expected).abs() < 3e-7, "{t}");
        }
    }

    #[test]
    fn the_distance_is_symmetric_and_zero_only_for_the_same_colour() {
        let (a, b) = (Lab::from_srgb([200, 120, 40]), Lab::from_srgb([201, 120, 40]));
        assert_eq!(a.delta_e(a), 0.0);
        assert!(a.delta_e(b) > 0.05 && a.delta_e(b) == b.delta_e(a));
    }
}
