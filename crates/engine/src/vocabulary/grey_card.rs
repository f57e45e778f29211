//! White balance from a grey card: which gains make one place of the picture neutral, measured on linear light.
//!
//! Between the white balance and the screen, a development without tone mapping is linear: a place's colour is
//! `red · A + B + blue · C`, with `red` and `blue` the gains and A, B, C fixed by camera and profiles. Three
//! pictures of known gains give A, B and C, and equal channels give the gains. No knowledge of the camera's
//! colours is needed, and a chromatic adaptation later in the pipe is measured along with the rest.

use std::collections::BTreeMap;

use crate::vocabulary::apply::{ApplyRequest, PhotoFacts};
use crate::vocabulary::error::VocabularyError;
pub use crate::vocabulary::illuminant::Light;
use crate::vocabulary::load::Vocabulary;
use darktable::layout::Layouts;
use darktable::render::Picture;
use darktable::state::{EditState, Params, Value};
use pixels::lab::Lab;
use pixels::srgb::LINEAR;

/// The move that takes the gains.
pub const MOVE: &str = "white_balance_gains";

/// The radius that is measured when none is given, as a share of the picture's shorter side.
pub const RADIUS: f64 = 0.02;

/// How far the probes turn a gain up: far enough to be more than the rounding to 8 bits.
const STEP: f64 = 1.5;
/// The exposure of the probes, in EV: a white card keeps below clipping, a grey one well above black.
const EXPOSURE: f32 = -0.5;
/// What is kept of the photo's own development: nothing here bends light.
const KEPT: [&str; 9] = [
    "rawprepare",
    "temperature",
    "highlights",
    "demosaic",
    "colorin",
    "channelmixerrgb",
    "exposure",
    "colorout",
    "gamma",
];
/// What is taken from the edit at hand, so that a place on the displayed picture is that place.
const FRAMING: [&str; 5] = ["lens", "ashift", "flip", "clipping", "crop"];
/// Fewer pixels say too little.
const LEAST_PIXELS: usize = 16;
/// More than this share of clipped or black pixels, and the place is no grey card.
const MOST_CLIPPED: f64 = 0.02;

/// A round place on the displayed picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Patch {
    /// Left to right and top to bottom, 0…1.
    pub center: [f64; 2],
    /// The radius as a share of the picture's shorter side, 0.002…0.5.
    pub radius: f64,
}

impl Patch {
    /// Its pixels in a picture, three codes each.
    pub(super) fn pixels<'a>(&self, picture: &'a Picture) -> impl Iterator<Item = &'a [u8; 3]> {
        let (width, height) = (f64::from(picture.width), f64::from(picture.height));
        let ([x, y], radius) = (self.center, self.radius * width.min(height));
        let within = move |at: u32| {
            let column = f64::from(at % picture.width.max(1)) + 0.5 - x * width;
            let row = f64::from(at / picture.width.max(1)) + 0.5 - y * height;
            column.hypot(row) <= radius
        };
        let (pixels, _) = picture.rgb.as_chunks::<3>();
        pixels.iter().zip(0_u32..).filter(move |(_, at)| within(*at)).map(|(pixel, _)| pixel)
    }
}

impl Vocabulary {
    /// The three states to render before [`solve`]: the photo's gains, more red, more blue.
    ///
    /// # Errors
    /// [`VocabularyError`], if this darktable cannot take the edits.
    pub fn grey_card_probes(
        &self,
        state: &EditState,
        facts: &PhotoFacts,
        layouts: &Layouts,
        darktable_version: &str,
    ) -> Result<[EditState; 3], VocabularyError> {
        let plain = linear(state, &facts.baseline);
        let probe = |red: f64, blue: f64| {
            let values = gains(red, blue);
            let request = ApplyRequest { move_name: MOVE, values: &values, mask: None };
            self.apply(&request, &plain, facts, layouts, darktable_version).map(|applied| applied.state)
        };
        Ok([probe(1.0, 1.0)?, probe(STEP, 1.0)?, probe(1.0, STEP)?])
    }
}

/// The values of [`MOVE`] that make the place neutral, from pictures of the three probes in their order.
///
/// # Errors
/// [`VocabularyError`], if the patch is too dark, too bright, or not in the picture.
pub fn solve(probes: [&Picture; 3], place: &Patch) -> Result<BTreeMap<String, f64>, VocabularyError> {
    let [plain, red, blue] = [mean(probes[0], place)?, mean(probes[1], place)?, mean(probes[2], place)?];
    let step = STEP - 1.0;
    // What each channel gets of red, of blue, and whatever the gains are.
    let shares = |plain: f64, red: f64, blue: f64| {
        let (by_red, by_blue) = ((red - plain) / step, (blue - plain) / step);
        [by_red, by_blue, plain - by_red - by_blue]
    };
    let green = shares(plain[1], red[1], blue[1]);
    // Red = green and blue = green, as `p·red + q·blue = r`.
    let equation = |of: [f64; 3]| [of[0] - green[0], of[1] - green[1], green[2] - of[2]];
    let [p, q, r] = equation(shares(plain[0], red[0], blue[0]));
    let [s, t, u] = equation(shares(plain[2], red[2], blue[2]));
    let determinant = p * t - q * s;
    let unusable =
        || VocabularyError::GreyCard("no white balance makes it neutral: it is too dark or too colourful");
    if determinant.abs() < 1e-6 {
        return Err(unusable());
    }
    // Four digits are finer than 8-bit pixels can tell.
    let round = |gain: f64| (gain * 1e4).round() / 1e4;
    let (red, blue) = (round((r * t - q * u) / determinant), round((p * u - r * s) / determinant));
    if !(0.25..=4.0).contains(&red) || !(0.25..=4.0).contains(&blue) {
        return Err(unusable());
    }
    Ok(gains(red, blue))
}

/// The light in which the place would be a grey card, from the picture of the first probe. What the camera balanced for
/// is taken as D65, because its own colours are not known here.
///
/// # Errors
/// As [`solve`].
pub fn light(plain: &Picture, place: &Patch) -> Result<Light, VocabularyError> {
    let [r, g, b] = mean(plain, place)?;
    // Linear sRGB to CIE XYZ (IEC 61966-2-1).
    let x = 0.412_456_4 * r + 0.357_576_1 * g + 0.180_437_5 * b;
    let y = 0.212_672_9 * r + 0.715_152_2 * g + 0.072_175 * b;
    let z = 0.019_333_9 * r + 0.119_192 * g + 0.950_304_1 * b;
    Ok(Light::of([x / (x + y + z), y / (x + y + z)]))
}

/// Refuses a light that there is not, unless it is forced.
///
/// # Errors
/// [`VocabularyError::NoSuchLight`].
pub fn check(light: Light, force: bool) -> Result<(), VocabularyError> {
    match force || light.is_plausible() {
        true => Ok(()),
        false => Err(VocabularyError::NoSuchLight { kelvin: light.kelvin, duv: light.duv }),
    }
}

/// The gains between the present ones of an edit (`strength` 0) and those of [`solve`] (1): equal steps of strength are
/// equal factors.
pub fn part_way(
    solved: BTreeMap<String, f64>,
    strength: f64,
    state: &EditState,
    facts: &PhotoFacts,
) -> BTreeMap<String, f64> {
    if strength >= 1.0 {
        return solved;
    }
    let gain = |of: &EditState, channel: &str| match &of.module("temperature", 0)?.params {
        Params::Fields(fields) => match fields.get(channel) {
            Some(Value::Float(gain)) if *gain > 0.0 => Some(f64::from(*gain)),
            _ => None,
        },
        Params::Opaque(_) => None,
    };
    let between = |(channel, solved): (String, f64)| {
        let now =
            gain(state, &channel).zip(gain(&facts.baseline, &channel)).map_or(1.0, |(now, own)| now / own);
        let value = now.powf(1.0 - strength) * solved.powf(strength);
        (channel, (value * 1e4).round() / 1e4)
    };
    solved.into_iter().map(between).collect()
}

/// Mean L*, a* and b* of the place's pixels (CIE 1976, D65).
pub fn colour(picture: &Picture, place: &Patch) -> [f64; 3] {
    let (mut sum, mut count) = ([0.0; 3], 0.0_f64);
    for pixel in place.pixels(picture) {
        let lab = Lab::from_srgb(*pixel);
        count += 1.0;
        for (sum, part) in sum.iter_mut().zip([lab.l, lab.a, lab.b]) {
            *sum += f64::from(part);
        }
    }
    sum.map(|sum| (sum / count.max(1.0) * 10.0).round() / 10.0)
}

/// The picture with a ring around the place, white within black.
pub fn marked(picture: &Picture, place: &Patch) -> Picture {
    let mut marked = picture.clone();
    let (width, height) = (f64::from(picture.width), f64::from(picture.height));
    let ([x, y], radius) = (place.center, place.radius * width.min(height));
    let thick = (width.max(height) / 400.0).max(1.0);
    let (pixels, _) = marked.rgb.as_chunks_mut::<3>();
    for (pixel, at) in pixels.iter_mut().zip(0_u32..) {
        let column = f64::from(at % picture.width.max(1)) + 0.5 - x * width;
        let row = f64::from(at / picture.width.max(1)) + 0.5 - y * height;
        match column.hypot(row) - radius {
            away if (0.0..thick).contains(&away) => *pixel = [255; 3],
            away if (thick..2.0 * thick).contains(&away) => *pixel = [0; 3],
            _ => {}
        }
    }
    marked
}

fn gains(red: f64, blue: f64) -> BTreeMap<String, f64> {
    BTreeMap::from([("red".to_owned(), red), ("green".to_owned(), 1.0), ("blue".to_owned(), blue)])
}

/// The photo as the sensor saw it in the profile's colours, framed as the edit frames it.
fn linear(state: &EditState, baseline: &EditState) -> EditState {
    let mut plain = baseline.clone();
    for module in &mut plain.modules {
        module.enabled &= KEPT.contains(&module.op.as_str());
        if let (true, "exposure", Params::Fields(fields)) =
            (module.enabled, module.op.as_str(), &mut module.params)
        {
            fields.insert("exposure".to_owned(), Value::Float(EXPOSURE));
            fields.insert("black".to_owned(), Value::Float(0.0));
        }
    }
    plain.modules.retain(|module| !FRAMING.contains(&module.op.as_str()));
    let framing = |op: &str| FRAMING.contains(&op);
    plain.modules.extend(state.modules.iter().filter(|module| framing(&module.op)).cloned());
    plain
}

/// Mean linear light of the place's pixels.
fn mean(picture: &Picture, place: &Patch) -> Result<[f64; 3], VocabularyError> {
    let [x, y] = place.center;
    let inside = [x, y].iter().all(|at| (0.0..=1.0).contains(at)) && (0.002..=0.5).contains(&place.radius);
    if !inside {
        return Err(VocabularyError::GreyCard("its centre goes from 0 to 1, its radius from 0.002 to 0.5"));
    }
    let (mut sum, mut count, mut clipped) = ([0.0; 3], 0_usize, 0_usize);
    for pixel in place.pixels(picture) {
        count += 1;
        clipped += usize::from(pixel.iter().any(|v| *v < 3 || *v > 252));
        for (sum, code) in sum.iter_mut().zip(pixel) {
            *sum += LINEAR.get(usize::from(*code)).copied().unwrap_or_default();
        }
    }
    if count < LEAST_PIXELS {
        return Err(VocabularyError::GreyCard("the place is too small to measure: give a larger radius"));
    }
    if clipped as f64 > MOST_CLIPPED * count as f64 {
        return Err(VocabularyError::GreyCard("it holds clipped or black pixels: choose another place"));
    }
    Ok(sum.map(|sum| sum / count as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A picture of one colour, encoded from linear light.
    fn flat(linear: [f64; 3]) -> Picture {
        let code = linear.map(|value| {
            let nearest = |a: &&f64, b: &&f64| (**a - value).abs().total_cmp(&(**b - value).abs());
            let best = LINEAR.iter().min_by(nearest).unwrap();
            LINEAR.iter().position(|v| v == best).unwrap() as u8
        });
        Picture { width: 40, height: 20, rgb: code.repeat(800) }
    }

    const PLACE: Patch = Patch { center: [0.5, 0.5], radius: 0.3 };

    #[test]
    fn mixed_channels_are_solved_exactly() {
        // A camera whose channels mix, under a reddish light: neutral at red 0.8, blue 1.25.
        let colour = |red: f64, blue: f64| {
            let sensor = [0.3 / 0.8 * red, 0.3, 0.3 / 1.25 * blue];
            [
                1.6 * sensor[0] - 0.5 * sensor[1] - 0.1 * sensor[2],
                -0.2 * sensor[0] + 1.5 * sensor[1] - 0.3 * sensor[2],
                -0.4 * sensor[1] + 1.4 * sensor[2],
            ]
        };
        let pictures = [colour(1.0, 1.0), colour(STEP, 1.0), colour(1.0, STEP)].map(flat);
        let values = solve(pictures.each_ref(), &PLACE).unwrap();
        assert!((values["red"] - 0.8).abs() < 0.01, "{values:?}");
        assert!((values["blue"] - 1.25).abs() < 0.015, "{values:?}");
    }

    #[test]
    fn a_strength_goes_from_the_present_gains_to_the_measured_ones_by_factors() {
        let mut photo = crate::vocabulary::testing::Photo::new();
        photo.apply("white_balance_gains", &[("red", 0.64), ("green", 1.0), ("blue", 1.44)], None);
        let part = |strength: f64| part_way(gains(1.0, 1.0), strength, &photo.state, &photo.facts);
        for (strength, red, blue) in [(0.0, 0.64, 1.44), (0.5, 0.8, 1.2), (1.0, 1.0, 1.0)] {
            let values = part(strength);
            assert!((values["red"] - red).abs() < 1e-3 && (values["blue"] - blue).abs() < 1e-3, "{values:?}");
            assert_eq!(values["green"], 1.0);
        }
    }

    #[test]
    fn a_light_is_measured_and_the_place_is_marked() {
        let daylight = light(&flat([0.2; 3]), &PLACE).unwrap();
        assert!((daylight.kelvin - 6504.0).abs() < 60.0 && daylight.is_plausible(), "{daylight:?}");
        let lamp = light(&flat([0.5, 0.2, 0.06]), &PLACE).unwrap();
        assert!((2300.0..3200.0).contains(&lamp.kelvin) && lamp.is_plausible(), "{lamp:?}");
        let grass = light(&flat([0.06, 0.4, 0.05]), &PLACE).unwrap();
        assert!(!grass.is_plausible() && grass.duv > 0.05, "{grass:?}");
        let marked = marked(&flat([0.2; 3]), &PLACE);
        let pixel = |x: usize| marked.rgb[3 * (10 * 40 + x)];
        assert_eq!([pixel(26), pixel(27), pixel(20)], [255, 0, flat([0.2; 3]).rgb[0]]);
        assert_eq!(colour(&flat([0.2; 3]), &PLACE)[1..], [0.0, 0.0]);
    }

    #[test]
    fn a_place_that_is_no_grey_card_is_refused_with_the_reason() {
        let reason = |pictures: [Picture; 3], place: Patch| {
            solve(pictures.each_ref(), &place).unwrap_err().to_string()
        };
        let grey = || [flat([0.2; 3]), flat([0.3, 0.2, 0.2]), flat([0.2, 0.2, 0.3])];
        assert!(solve(grey().each_ref(), &PLACE).is_ok());
        assert!(reason(grey(), Patch { radius: 0.01, ..PLACE }).contains("too small"));
        assert!(reason(grey(), Patch { center: [1.2, 0.5], ..PLACE }).contains("centre"));
        assert!(reason([flat([1.0; 3]), flat([1.0; 3]), flat([1.0; 3])], PLACE).contains("clipped"));
        assert!(reason([flat([0.2; 3]), flat([0.2; 3]), flat([0.2; 3])], PLACE).contains("neutral"));
    }
}
