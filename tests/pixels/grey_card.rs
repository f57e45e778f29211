//! White balance by a grey card, on pixels of the real darktable.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a failure in a helper is the failure of its test"
)]

use darktable::dng;
use darktable::render::Picture;
use darktable::state::EditState;
use engine::vocabulary::grey_card::{MOVE, Patch, solve};
use testkit::demo::Demo;

/// The card on the picture: left, top, right, bottom in pixels of 600x400.
const CARD: [u32; 4] = [400, 60, 460, 120];
/// The light that the tinted picture was taken in, relative to the one it was balanced for.
const LIGHT: [f64; 3] = [1.3, 1.0, 0.6];

#[test]
fn a_grey_card_under_a_coloured_light_becomes_neutral_wherever_the_frame_puts_it() {
    let demo = Demo::of(&tinted());
    let baseline = demo.facts.baseline.clone();
    let cropped = demo.apply(&baseline, "crop_left", &[("margin", 0.3)], None).state;
    // What was set before does not disturb the measurement, and the gains take its place.
    let graded = demo.apply(&cropped, "tint", &[("magenta", 10.0)], None).state;
    let graded = demo.apply(&graded, "contrast", &[("amount", 0.2)], None).state;
    let at = |left: f64| Patch {
        center: [(430.0 - 600.0 * left) / (600.0 * (1.0 - left)), 90.0 / 400.0],
        radius: 0.05,
    };
    let [plain, moved] = [(&baseline, at(0.0)), (&graded, at(0.3))].map(|(state, place)| {
        let probes =
            demo.vocabulary.grey_card_probes(state, &demo.facts, &demo.layouts, demo.version()).unwrap();
        let pictures = demo.render_all(&probes);
        solve([&pictures[0], &pictures[1], &pictures[2]], &place).unwrap()
    });
    for gain in ["red", "blue"] {
        let (a, b) = (plain[gain], moved[gain]);
        assert!((a / b - 1.0).abs() < 0.01, "{gain}: {a} on the whole picture, {b} on the cropped one");
    }
    let balance = |state: &EditState| {
        let values: Vec<(&str, f64)> = plain.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        demo.apply(state, MOVE, &values, None).state
    };
    let pictures = demo.render_all(&[baseline.clone(), balance(&baseline), balance(&graded)]);
    let cast = |picture: &Picture, place: Patch| {
        let [red, green, blue] = mean(picture, place);
        (red - green).abs().max((blue - green).abs())
    };
    let before = cast(&pictures[0], at(0.0));
    assert!(before > 20.0, "the light tints the card: {before:.1} levels");
    for (picture, left) in [(&pictures[1], 0.0), (&pictures[2], 0.3)] {
        let after = cast(picture, at(left));
        assert!(after < 0.5, "{after:.2} levels of a cast are left of {before:.1}");
    }
}

/// The demo photo with a grey card in it, under a coloured light.
fn tinted() -> Picture {
    let mut photo = dng::demo_photo().unwrap();
    let width = photo.width;
    for (pixel, at) in photo.rgb.as_chunks_mut::<3>().0.iter_mut().zip(0_u32..) {
        let (x, y) = (at % width, at / width);
        if (CARD[0]..CARD[2]).contains(&x) && (CARD[1]..CARD[3]).contains(&y) {
            *pixel = [118; 3];
        }
        for (code, light) in pixel.iter_mut().zip(LIGHT) {
            // A plain power stands for the curve: the card's colour cast is what matters.
            *code =
                ((f64::from(*code) / 255.0).powf(2.2) * light).min(1.0).powf(1.0 / 2.2).mul_add(255.0, 0.5)
                    as u8;
        }
    }
    photo
}

/// Mean levels of a round place.
fn mean(picture: &Picture, place: Patch) -> [f64; 3] {
    let (width, height) = (f64::from(picture.width), f64::from(picture.height));
    let radius = place.radius * width.min(height);
    let (mut sum, mut count) = ([0.0; 3], 0.0);
    for (pixel, at) in picture.rgb.as_chunks::<3>().0.iter().zip(0_u32..) {
        let x = f64::from(at % picture.width) + 0.5 - place.center[0] * width;
        let y = f64::from(at / picture.width) + 0.5 - place.center[1] * height;
        if x.hypot(y) <= radius {
            count += 1.0;
            (0..3).for_each(|i| sum[i] += f64::from(pixel[i]));
        }
    }
    sum.map(|sum| sum / count)
}
