//! White balance from a grey card: which gains make one place of the picture neutral, measured on linear light.
//!
//! Between the white balance and the screen, a development without tone mapping is linear: a place's colour is
//! `red · A + B + blue · C`, with `red` and `blue` the gains and A, B, C fixed by camera and profiles. Three
//! pictures of known gains give A, B and C, and equal channels give the gains. No knowledge of the camera's
//! colours is needed, and a chromatic adaptation later in the pipe is measured along with the rest.

use std::collections::BTreeMap;

use crate::vocabulary::apply::{ApplyRequest, PhotoFacts};
use crate::vocabulary::error::VocabularyError;
use crate::vocabulary::load::Vocabulary;
use darktable::layout::Layouts;
use darktable::render::Picture;
use darktable::state::{EditState, Params, Value};
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
