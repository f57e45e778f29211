//! From the lightness that one sees to the light that a module works on.
//!
//! A range of luminance is meant as seen on the untouched photo. A module after the tone mapper works on just that;
//! one before it works on scene light, which the tone mapper's curve and, further up, the exposure module have yet
//! to change. The curves are those of grey: a strongly coloured tone may lie a few units off.

use crate::vocabulary::mask::frame::number;
use darktable::order;
use darktable::state::{EditState, Module};

/// Middle grey, which every tone mapper leaves where it is.
const GREY: f64 = 0.1845;

/// What happens to light between a module's input and the eye.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tones {
    /// Offset and gain of the exposures that come after the module's input.
    exposure: (f64, f64),
    curve: Curve,
}

#[derive(Clone, Copy, Debug)]
enum Curve {
    /// Nothing: the module works on what is seen.
    None,
    Filmic(Filmic),
    Sigmoid(Sigmoid),
}

impl Tones {
    /// Those of an untouched photo, for the module of that name.
    pub(crate) fn of(baseline: &EditState, op: &str) -> Self {
        let place = |name: &str| order::position(baseline.order, name);
        let later =
            |module: &&Module| module.enabled && module.blend.is_none() && place(&module.op) > place(op);
        let on = |name: &str| baseline.modules.iter().filter(later).find(|module| module.op == name);
        let mut exposure = (0.0, 1.0);
        for module in baseline.modules.iter().filter(later).filter(|module| module.op == "exposure") {
            let [ev, black] = ["exposure", "black"].map(|field| number(module, field).unwrap_or(0.0));
            let gain = 1.0 / (ev.exp2().recip() - black);
            // gain * (x - black), after what came before it.
            exposure = ((exposure.0 * exposure.1 + black) / exposure.1, exposure.1 * gain);
        }
        let curve = match (on("filmicrgb"), on("sigmoid")) {
            (Some(module), _) => Curve::Filmic(Filmic::of(module)),
            (None, Some(module)) => Curve::Sigmoid(Sigmoid::of(module)),
            (None, None) => Curve::None,
        };
        Self { exposure, curve }
    }

    /// The luminance, 1 for diffuse white, that a module gets where the eye sees this lightness (CIE L*, 0…100).
    pub(crate) fn luminance(&self, lightness: f64) -> f64 {
        let (offset, gain) = self.exposure;
        self.curve.undo(luminance(lightness)) / gain + offset
    }
}

/// CIE 1976 lightness to luminance relative to white.
pub(crate) fn luminance(lightness: f64) -> f64 {
    if lightness > 8.0 { ((lightness + 16.0) / 116.0).powi(3) } else { lightness * 27.0 / 24_389.0 }
}

/// The inverse of [`luminance`], without an upper end.
pub(crate) fn lightness(luminance: f64) -> f64 {
    if luminance > 216.0 / 24_389.0 { 116.0 * luminance.cbrt() - 16.0 } else { luminance * 24_389.0 / 27.0 }
}

impl Curve {
    fn apply(&self, light: f64) -> f64 {
        match self {
            Self::None => light,
            Self::Filmic(filmic) => filmic.apply(light),
            Self::Sigmoid(sigmoid) => sigmoid.apply(light),
        }
    }

    /// The light that becomes this, by bisection over 32 EV: every curve rises.
    fn undo(&self, seen: f64) -> f64 {
        if matches!(self, Self::None) {
            return seen;
        }
        let (mut low, mut high) = (-20.0_f64, 12.0_f64);
        for _ in 0..40 {
            let middle = 0.5 * (low + high);
            if self.apply(middle.exp2()) < seen { low = middle } else { high = middle }
        }
        high.exp2()
    }
}

/// darktable's filmic: a logarithm, then a straight part with a bent end on either side, then a power.
#[derive(Clone, Copy, Debug)]
struct Filmic {
    grey: f64,
    black: f64,
    range: f64,
    slope: f64,
    power: f64,
    /// Where the straight part begins and ends, in and out.
    toe: [f64; 2],
    shoulder: [f64; 2],
    bends: [Bend; 2],
}

/// The way from the end of the straight part to black or white: how far the output falls behind or runs ahead.
#[derive(Clone, Copy, Debug)]
struct Bend {
    kind: i64,
    slope: f64,
    /// How far it reaches, in and out.
    reach: [f64; 2],
}

impl Filmic {
    fn of(module: &Module) -> Self {
        let get = |field: &str, missing: f64| number(module, field).unwrap_or(missing);
        let (black, white) = (get("black_point_source", -8.0), get("white_point_source", 4.0));
        let range = white - black;
        let power = get("output_power", 4.0);
        let custom = get("custom_grey", 0.0) != 0.0;
        let target = if custom { get("grey_point_target", 18.45) / 100.0 } else { GREY };
        let out = |percent: f64| (percent / 100.0).powf(power.recip());
        let (grey_out, black_out, white_out) = (
            target.powf(power.recip()),
            out(get("black_point_target", 0.015)),
            out(get("white_point_target", 100.0)),
        );
        let grey_in = -black / range;
        let margin = 0.01 * (white_out - black_out);
        // The contrast is the slope of the finished curve at grey, and enough to reach both ends.
        let asked = get("contrast", 1.0) * range / 8.0 / (power * grey_out.powf(power - 1.0));
        let least =
            1.0_f64.max((white_out - grey_out) / (1.0 - grey_in)).max((grey_out - black_out) / grey_in)
                + 0.01;
        let slope = asked.clamp(least, 100.0);
        let at = |y: f64| grey_in + (y - grey_out) / slope;
        let (first, last) = (at(black_out + margin), at(white_out - margin));
        let latitude = get("latitude", 0.01) / 100.0;
        let mut toe = (1.0 - latitude) * grey_in + latitude * first;
        let mut shoulder = (1.0 - latitude) * grey_in + latitude * last;
        let balance = get("balance", 0.0) / 100.0;
        let moved = 2.0 * balance * if balance > 0.0 { shoulder - grey_in } else { grey_in - toe };
        toe = (toe - moved).max(first);
        shoulder = (shoulder - moved).min(last);
        let line = |x: f64| grey_out + slope * (x - grey_in);
        let bend = |field: &str, reach: [f64; 2]| Bend { kind: get(field, 0.0) as i64, slope, reach };
        Self {
            grey: if custom { get("grey_point_source", 18.45) / 100.0 } else { GREY },
            black,
            range,
            slope,
            power,
            toe: [toe, line(toe)],
            shoulder: [shoulder, line(shoulder)],
            bends: [
                bend("shadows", [toe, line(toe) - black_out]),
                bend("highlights", [1.0 - shoulder, white_out - line(shoulder)]),
            ],
        }
    }

    fn apply(&self, light: f64) -> f64 {
        let x = (((light / self.grey).log2() - self.black) / self.range).clamp(0.0, 1.0);
        let [low, high] = &self.bends;
        let y = if x < self.toe[0] {
            self.toe[1] - low.rise(self.toe[0] - x)
        } else if x > self.shoulder[0] {
            self.shoulder[1] + high.rise(x - self.shoulder[0])
        } else {
            self.toe[1] + self.slope * (x - self.toe[0])
        };
        y.max(0.0).powf(self.power)
    }
}

impl Bend {
    /// The output's way for the input's way `u` from the straight part.
    ///
    /// Each kind starts with the straight part's slope and reaches the end; the polynomials start without
    /// curvature, the quartic (0) ends level, the cubic is 1, the rational one ("safe") 2.
    fn rise(&self, u: f64) -> f64 {
        let [along, up] = self.reach;
        let (line, t) = (self.slope * along, u / along);
        match self.kind {
            0 => line * t - (3.0 * line - 4.0 * up) * t.powi(3) - (3.0 * up - 2.0 * line) * t.powi(4),
            1 => line * t - (line - up) * t.powi(3),
            _ => {
                let root = ((line / up + 1.0).powi(2) - 4.0).max(0.0).sqrt();
                let bow = self.slope / (2.0 * up) + (root - 1.0) / (2.0 * along);
                let way = |u: f64| bow * u * u + u;
                let scale = up / self.slope * way(along) / (way(along) - up / self.slope);
                scale * self.slope * way(u) / (way(u) + scale)
            }
        }
    }
}

/// darktable's sigmoid: a skewed log-logistic curve.
#[derive(Clone, Copy, Debug)]
struct Sigmoid {
    white: f64,
    fog: f64,
    exposure: f64,
    film: f64,
    paper: f64,
}

impl Sigmoid {
    fn of(module: &Module) -> Self {
        let get = |field: &str, missing: f64| number(module, field).unwrap_or(missing);
        let contrast = get("middle_grey_contrast", 1.5);
        let paper = 5.0_f64.powf(-get("contrast_skewness", 0.0));
        let white = get("display_white_target", 100.0) / 100.0;
        let black = get("display_black_target", 0.0152) / 100.0;
        let left = |target: f64| (target / GREY).powf(paper.recip()) - 1.0;
        // The skew keeps the slope at grey: that of y = w (x^f / (e + x^f))^p at grey g is p f y/g (1 - x^f/(e + x^f)).
        let slope = |film: f64, paper: f64, over: f64| paper * film * over / (1.0 + over);
        let film = slope(contrast, 1.0, 1.0 / GREY - 1.0) / slope(1.0, paper, left(white));
        let to_white = left(white).powf(film.recip());
        let to_black = ((black / white).powf(-paper.recip()) - 1.0).powf(film.recip());
        let fog = GREY * to_white / (to_black - to_white);
        Self { white, fog, exposure: (fog + GREY).powf(film) * left(white), film, paper }
    }

    fn apply(&self, light: f64) -> f64 {
        let film = (self.fog + light).powf(self.film);
        self.white * (film / (self.exposure + film)).powf(self.paper)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use darktable::state::{Params, Value};

    fn module(op: &str, fields: &[(&str, f32)]) -> Module {
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), Value::Float(*value)));
        Module {
            blend: None,
            enabled: true,
            instance: 0,
            modversion: 1,
            name: String::new(),
            op: op.into(),
            params: Params::Fields(BTreeMap::from_iter(fields)),
        }
    }

    fn filmic(ends: f32) -> Module {
        let fields = [("shadows", ends), ("highlights", ends), ("latitude", 20.0), ("contrast", 1.1)];
        module("filmicrgb", &fields)
    }

    fn baseline(modules: Vec<Module>) -> EditState {
        EditState { modules, ..EditState::default() }
    }

    #[test]
    fn every_curve_keeps_grey_rises_and_is_undone() {
        let curves = [0.0, 1.0, 2.0].map(|ends| Curve::Filmic(Filmic::of(&filmic(ends)))).into_iter().chain(
            [0.0, 0.4]
                .map(|skew| Curve::Sigmoid(Sigmoid::of(&module("sigmoid", &[("contrast_skewness", skew)])))),
        );
        for curve in curves {
            assert!((curve.apply(GREY) - GREY).abs() < 1e-6, "{curve:?}");
            let seen: Vec<f64> =
                (-10..=9).map(|ev| curve.apply(GREY * (f64::from(ev) / 2.0).exp2())).collect();
            assert!(seen.is_sorted() && seen[0] < 0.02 && seen[19] > 0.8, "{curve:?} {seen:?}");
            for light in [0.02, GREY, 1.0] {
                assert!((curve.undo(curve.apply(light)) / light - 1.0).abs() < 1e-6, "{curve:?}");
            }
        }
    }

    #[test]
    fn what_comes_before_a_module_does_not_count() {
        let photo = baseline(vec![module("exposure", &[("exposure", 1.0), ("black", -0.01)]), filmic(0.0)]);
        let grey = lightness(GREY);
        assert!((grey - 50.0).abs() < 0.1);
        // Before the exposure half as much light, less its offset; after it the light of grey; at the end what is seen.
        let before = Tones::of(&photo, "hazeremoval").luminance(grey);
        assert!(((before + 0.01) / (0.5 + 0.01) - GREY).abs() < 1e-6, "{before}");
        assert!((Tones::of(&photo, "colorbalancergb").luminance(grey) - GREY).abs() < 1e-6);
        assert!((Tones::of(&photo, "exposure").luminance(grey) - GREY).abs() < 1e-6);
        assert!((Tones::of(&photo, "vignette").luminance(80.0) - luminance(80.0)).abs() < 1e-12);
        assert!(Tones::of(&photo, "colorbalancergb").luminance(90.0) > 1.0);
        assert!(
            (lightness(luminance(5.0)) - 5.0).abs() < 1e-9
                && (lightness(luminance(70.0)) - 70.0).abs() < 1e-9
        );
    }
}
