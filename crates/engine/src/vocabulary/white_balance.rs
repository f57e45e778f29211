//! Warmth: white-balance gains for a shift along the daylight locus.

/// D65, the white of sRGB, in mired (10⁶ divided by kelvin).
const D65_MIRED: f64 = 1.0e6 / 6504.0;

/// The farthest shift, in mired, that stays on the daylight locus as it is defined (4000 to 25000 K).
pub const MAX_SHIFT: f64 = 90.0;

/// The factors for the red and the blue white-balance coefficient that make a picture warmer by `shift` mired
/// (cooler when negative), green staying as it is.
///
/// To warm a picture is to balance it for a bluer light than it was taken in. The factors are those which would
/// neutralise daylight of `D65 − shift` where D65 was neutral before: chromaticity by the CIE daylight formula
/// (CIE 015, 3.1), in linear sRGB primaries (IEC 61966-2-1). The camera's own primaries are not known here; with
/// them the factors would differ by a few percent, while the zero and the direction stay exact.
pub fn daylight_gains(shift: f64) -> (f64, f64) {
    if shift == 0.0 {
        return (1.0, 1.0);
    }
    let [r0, g0, b0] = daylight_rgb(D65_MIRED);
    let [r, g, b] = daylight_rgb(D65_MIRED - shift.clamp(-MAX_SHIFT, MAX_SHIFT));
    ((r0 / g0) / (r / g), (b0 / g0) / (b / g))
}

/// CIE daylight of so many mired, as CIE x and y.
pub(crate) fn daylight(mired: f64) -> [f64; 2] {
    let m = mired * 1.0e-3; // 10³/T, the variable of the CIE polynomial
    let x = if mired > 1.0e6 / 7000.0 {
        0.244_063 + 0.099_11 * m + 2.967_8 * m.powi(2) - 4.607_0 * m.powi(3)
    } else {
        0.237_040 + 0.247_48 * m + 1.901_8 * m.powi(2) - 2.006_4 * m.powi(3)
    };
    [x, -3.0 * x * x + 2.870 * x - 0.275]
}

/// Linear sRGB of CIE daylight of so many mired.
fn daylight_rgb(mired: f64) -> [f64; 3] {
    let [x, y] = daylight(mired);
    let (big_x, big_z) = (x / y, (1.0 - x - y) / y);
    [
        3.240_454_2 * big_x - 1.537_138_5 - 0.498_531_4 * big_z,
        -0.969_266_0 * big_x + 1.876_010_8 + 0.041_556_0 * big_z,
        0.055_643_4 * big_x - 0.204_025_9 + 1.057_225_2 * big_z,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daylight_of_d65_is_the_white_of_srgb() {
        for channel in daylight_rgb(D65_MIRED) {
            assert!((channel - 1.0).abs() < 0.003, "{channel}");
        }
    }

    #[test]
    fn warmer_is_more_red_and_less_blue_all_along() {
        assert_eq!(daylight_gains(0.0), (1.0, 1.0));
        let steps: Vec<(f64, f64)> = (-9..=9).map(|i| daylight_gains(f64::from(i) * 10.0)).collect();
        for pair in steps.windows(2) {
            assert!(pair[0].0 < pair[1].0, "red must rise: {pair:?}");
            assert!(pair[0].1 > pair[1].1, "blue must fall: {pair:?}");
        }
        // Balanced for 15674 K, where the daylight formula gives x 0.2601, y 0.2685.
        let (red, blue) = daylight_gains(MAX_SHIFT);
        assert!((red - 1.390).abs() < 0.005 && (blue - 0.592).abs() < 0.005, "{red} {blue}");
    }
}
