//! White balance as darktable's `channelmixerrgb` does it: the light that is taken for white, adapted by CAT16.
//!
//! The module's light is relative to the white balance before it: D50 changes nothing where `temperature` has balanced
//! the photo already (4.x), and what 5.x starts from is the light of the camera's own white balance. A move therefore
//! goes from the light that is set. No light in kelvin is offered: 4.x does not say which one the camera saw.

use std::collections::BTreeMap;

use crate::vocabulary::moves::{Constant, ModuleRules};
use crate::vocabulary::white_balance::daylight;
use darktable::state::Value;

/// The white to which `channelmixerrgb` adapts, CIE x and y.
const D50: [f64; 2] = [0.345_67, 0.358_51];

/// The module's numbers for no light at all, for one given in kelvin, for one given by x and y, for no adaptation, and
/// for CAT16.
const PIPE: i64 = 0;
const DAYLIGHT: i64 = 2;
const BLACK_BODY: i64 = 6;
const CUSTOM: i64 = 7;
const RGB: i64 = 4;
const CAT16: i64 = 1;

/// The lights among which the mired are counted: 25000 K to 1667 K, as far as darktable's own go.
const COLDEST: f64 = 40.0;
const WARMEST: f64 = 600.0;

/// Sets the light that makes a picture `warmer` by so many mired and more `magenta` by so much Duv than with the
/// light of `base`.
pub(crate) fn set(
    fields: &mut BTreeMap<String, Value>,
    base: Option<&BTreeMap<String, Value>>,
    warmer: f64,
    magenta: f64,
) {
    let [x, y] = another(base.and_then(light).unwrap_or(D50), warmer, magenta);
    fields.insert("x".to_owned(), Value::Float(x as f32));
    fields.insert("y".to_owned(), Value::Float(y as f32));
    fields.insert("illuminant".to_owned(), Value::Int(CUSTOM));
    fields.insert("adaptation".to_owned(), Value::Int(CAT16));
}

/// Sets the light back to that of the baseline, or else of a fresh instance.
pub(crate) fn put_back(
    fields: &mut BTreeMap<String, Value>,
    base: Option<&BTreeMap<String, Value>>,
    rules: &ModuleRules,
) {
    for name in ["illuminant", "adaptation"] {
        let fresh = rules.start.iter().find(|(target, _)| target.field == name).map(|(_, start)| start);
        let value = match (base.and_then(|base| base.get(name)), fresh) {
            (Some(value), _) => value.clone(),
            (None, Some(Constant::Number(number))) => Value::Int(*number as i64),
            _ => continue,
        };
        fields.insert(name.to_owned(), value);
    }
}

/// The light of an instance; `None` where it adapts nothing.
fn light(fields: &BTreeMap<String, Value>) -> Option<[f64; 2]> {
    let whole = |name: &str| match fields.get(name) {
        Some(Value::Int(value)) => Some(*value),
        _ => None,
    };
    let float = |name: &str| match fields.get(name) {
        Some(Value::Float(value)) => Some(f64::from(*value)),
        _ => None,
    };
    let kelvin = float("temperature")?;
    match (whole("illuminant")?, whole("adaptation")?) {
        (PIPE, _) | (_, RGB) => None,
        // There is no daylight below 4000 K; darktable takes a black body then.
        (DAYLIGHT, _) if kelvin > 4000.0 => Some(daylight(1.0e6 / kelvin)),
        (DAYLIGHT | BLACK_BODY, _) => Some(to_xy(black_body(1.0e6 / kelvin))),
        _ => Some([float("x")?, float("y")?]),
    }
}

/// The light, CIE x and y, for which a picture is balanced to be warmer and more magenta than with `light`. A picture
/// becomes warmer when it is balanced for a bluer light; the distance from the black body (Duv) stays.
fn another(light: [f64; 2], warmer: f64, magenta: f64) -> [f64; 2] {
    let [u, v] = to_uv(light);
    let from = nearest([u, v], COLDEST, WARMEST);
    let to = (from - warmer).clamp(COLDEST, WARMEST);
    let ([a, b], [c, d]) = (black_body(from), black_body(to));
    let (across, further) = (greener(from), greener(to));
    let duv = (u - a) * across[0] + (v - b) * across[1] + magenta;
    to_xy([c + duv * further[0], d + duv * further[1]])
}

/// The black body between two, in mired, that is nearest to a light, CIE 1960 u and v.
fn nearest([u, v]: [f64; 2], coldest: f64, warmest: f64) -> f64 {
    let apart = |mired: f64| {
        let [a, b] = black_body(mired);
        (u - a).hypot(v - b)
    };
    let (mut low, mut high) = (coldest, warmest);
    for _ in 0..80 {
        let third = (high - low) / 3.0;
        if apart(low + third) < apart(high - third) { high -= third } else { low += third }
    }
    (low + high) / 2.0
}

/// A colour as the colour of a light.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Light {
    /// Correlated colour temperature in kelvin, 1000 to 100,000.
    pub kelvin: f64,
    /// Distance from the black bodies in CIE 1960 u and v, positive on the green side.
    pub duv: f64,
}

impl Light {
    /// Of CIE 1931 x and y. Correlated colour temperature by its definition, the nearest black body in CIE 1960 u and v
    /// (CIE 015:2018, 9.5); the sign of Duv as in Y. Ohno, "Practical Use and Calculation of CCT and Duv", LEUKOS 10
    /// (2014).
    pub(crate) fn of(xy: [f64; 2]) -> Self {
        let [u, v] = to_uv(xy);
        let mired = nearest([u, v], 10.0, 1000.0);
        let ([a, b], [c, d]) = (black_body(mired), greener(mired));
        let side = (u - a) * c + (v - b) * d;
        Self { kelvin: 1.0e6 / mired, duv: (u - a).hypot(v - b).copysign(side) }
    }

    /// Whether some lamp or sky may have it: within 1667 to 25,000 K, and no farther from the black bodies than the
    /// 0.05 up to which a correlated colour temperature has a meaning (CIE 015:2018, 9.5).
    pub fn is_plausible(self) -> bool {
        (1.0e6 / WARMEST..=1.0e6 / COLDEST).contains(&self.kelvin) && self.duv.abs() <= 0.05
    }
}

/// The way across the black bodies' line towards green, of length 1. A picture balanced for greener light is more
/// magenta.
fn greener(mired: f64) -> [f64; 2] {
    let ([a, b], [c, d]) = (black_body(mired - 1.0), black_body(mired + 1.0));
    let length = (c - a).hypot(d - b);
    [(b - d) / length, (c - a) / length]
}

/// A black body of so many mired, CIE 1960 u and v: the rational approximation of M. Krystek, "An algorithm to calculate
/// correlated colour temperature", Color Research and Application 10 (1985).
fn black_body(mired: f64) -> [f64; 2] {
    let t = 1.0e6 / mired;
    [
        (0.860_117_757 + 1.541_182_54e-4 * t + 1.286_412_12e-7 * t * t)
            / (1.0 + 8.424_202_35e-4 * t + 7.081_451_63e-7 * t * t),
        (0.317_398_726 + 4.228_062_45e-5 * t + 4.204_816_91e-8 * t * t)
            / (1.0 - 2.897_418_16e-5 * t + 1.614_560_53e-7 * t * t),
    ]
}

/// CIE 1931 x, y as CIE 1960 u, v.
fn to_uv([x, y]: [f64; 2]) -> [f64; 2] {
    let scale = 12.0 * y - 2.0 * x + 3.0;
    [4.0 * x / scale, 6.0 * y / scale]
}

/// CIE 1960 u, v as CIE 1931 x, y.
fn to_xy([u, v]: [f64; 2]) -> [f64; 2] {
    let scale = 2.0 * u - 8.0 * v + 4.0;
    [3.0 * u / scale, 2.0 * v / scale]
}

#[cfg(test)]
#[allow(clippy::approx_constant, reason = "a chromaticity that happens to be near an eighth of pi")]
mod tests {
    use super::*;
    use crate::vocabulary::testing::{Photo, float, module};

    fn near([a, b]: [f64; 2], [c, d]: [f64; 2], tolerance: f64) -> bool {
        (a - c).hypot(b - d) < tolerance
    }

    #[test]
    fn lights_are_where_the_cie_has_them() {
        assert!(near(another(D50, 0.0, 0.0), D50, 1e-6));
        // D50 is 5003 K and D65 is 6504 K; illuminant A, a black body, is 2856 K.
        assert!(near(another(D50, 1.0e6 / 5003.0 - 1.0e6 / 6504.0, 0.0), [0.312_7, 0.329_0], 0.002));
        assert!(near(to_xy(black_body(1.0e6 / 2856.0)), [0.447_6, 0.407_4], 0.0005));
        // There and back again.
        let there = another(D50, -80.0, 0.01);
        assert!(near(another(there, 80.0, -0.01), D50, 0.001), "{there:?}");
    }

    #[test]
    fn a_light_has_the_colour_temperature_that_is_published_for_it() {
        // CIE illuminants A, D50, D65, F2 and F11 with their correlated colour temperature and Duv.
        for (xy, kelvin, duv) in [
            ([0.447_57, 0.407_45], 2856.0, 0.0),
            ([0.345_67, 0.358_51], 5003.0, 0.0032),
            ([0.312_72, 0.329_03], 6504.0, 0.0032),
            ([0.372_1, 0.375_1], 4230.0, 0.0019),
            ([0.380_5, 0.376_9], 4000.0, 0.0),
        ] {
            let light = Light::of(xy);
            assert!((light.kelvin / kelvin - 1.0).abs() < 0.006, "{light:?}, {kelvin} K");
            assert!((light.duv - duv).abs() < 0.001, "{light:?}, {duv}");
            assert!(light.is_plausible(), "{light:?}");
        }
        // The green and the red of sRGB, and a candle's ember.
        for xy in [[0.30, 0.60], [0.64, 0.33], [0.60, 0.385]] {
            assert!(!Light::of(xy).is_plausible(), "{:?}", Light::of(xy));
        }
    }

    #[test]
    fn warmer_is_a_bluer_light_and_more_magenta_a_greener_one_all_along() {
        for base in [D50, [0.403_3, 0.392_7], [0.29, 0.30]] {
            let lights: Vec<[f64; 2]> =
                (-15..=15).map(|step| another(base, 10.0 * f64::from(step), 0.0)).collect();
            assert!(lights.windows(2).all(|pair| pair[0][0] >= pair[1][0]), "{base:?}: {lights:?}");
            assert!(
                another(base, 0.0, 0.02)[1] > base[1] + 0.01 && another(base, 0.0, -0.02)[1] < base[1] - 0.01
            );
        }
    }

    #[test]
    fn the_light_starts_from_the_baselines_own_and_goes_back_to_it() {
        let mut photo = Photo::new();
        let light = [
            ("illuminant", 2.0),
            ("adaptation", 1.0),
            ("temperature", 3552.6),
            ("x", 0.403_3),
            ("y", 0.392_7),
        ];
        let base = module(&photo.layouts, "channelmixerrgb", 3, &light);
        photo.facts.baseline.modules.push(base);
        darktable::order::sort(&mut photo.facts.baseline);
        photo.state = photo.facts.baseline.clone();
        photo.apply("illuminant", &[("shift", 1.0), ("magenta", 0.0)], None);
        let lit = photo.state.module("channelmixerrgb", 0).unwrap();
        assert!((float(lit, "x") - 0.401_7).abs() < 0.000_3, "{}", float(lit, "x"));
        photo.apply("illuminant", &[("shift", 0.0), ("magenta", 0.0)], None);
        assert_eq!(photo.state, photo.facts.baseline);
    }

    #[test]
    fn other_moves_of_the_module_stay_when_the_light_goes() {
        let (mut one, mut other) = (Photo::new(), Photo::new());
        one.apply("golden_foliage", &[], None);
        let alone = one.state.clone();
        one.apply("illuminant", &[], None);
        other.apply("illuminant", &[], None);
        other.apply("golden_foliage", &[], None);
        assert_eq!(one.state, other.state);
        assert_ne!(one.state, alone);
        one.apply("illuminant", &[("shift", 0.0), ("magenta", 0.0)], None);
        assert_eq!(one.state, alone);
    }
}
