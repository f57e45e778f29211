//! Moves on the frame, on the real darktable: no empty corners, and the way that they say, however the photo lies.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failure is the test's failure"
)]

use base::ids::Hash;
use darktable::render::Picture;
use darktable::state::{EditState, Params, Value};
use testkit::demo::Demo;

/// The hues photo: green left of the middle, blue right of it, nowhere dark.
fn hues() -> Demo {
    Demo::open_photo(Some("rainbow"))
}

/// The photo as if the camera had been held upright: its left edge on top.
fn upright(demo: &mut Demo) {
    let flip = demo.facts.baseline.module_mut("flip", 0).unwrap();
    let Params::Fields(fields) = &mut flip.params else { panic!("flip has a layout") };
    fields.insert("orientation".into(), Value::Int(5));
}

fn pixel(picture: &Picture, [x, y]: [f64; 2]) -> [i64; 3] {
    let (w, h) = (picture.width as usize, picture.height as usize);
    let at = |place: f64, length: usize| ((place * length as f64) as usize).min(length - 1);
    let first = 3 * (at(y, h) * w + at(x, w));
    [0, 1, 2].map(|channel| i64::from(picture.rgb[first + channel]))
}

/// Blue less green at a place in 0…1: negative for what lay left of the middle.
fn blueness(picture: &Picture, place: [f64; 2]) -> i64 {
    let [_, green, blue] = pixel(picture, place);
    blue - green
}

/// How many pixels of the outermost rows and columns are black.
fn empty_border(picture: &Picture) -> usize {
    let (w, h) = (picture.width as usize, picture.height as usize);
    let outermost = |at: usize| [0, w - 1].contains(&(at % w)) || [0, h - 1].contains(&(at / w));
    let pixels = picture.rgb.chunks_exact(3).enumerate();
    pixels.filter(|(at, pixel)| outermost(*at) && pixel.iter().all(|value| *value < 16)).count()
}

#[test]
fn straightened_and_squared_pictures_have_no_empty_corners_and_turn_the_way_they_say() {
    for lying in [true, false] {
        let mut demo = hues();
        if !lying {
            upright(&mut demo);
        }
        let baseline = demo.facts.baseline.clone();
        let edit = |moves: &[(&str, &str, f64)]| {
            moves.iter().fold(baseline.clone(), |state, (name, parameter, value)| {
                demo.apply(&state, name, &[(parameter, *value)], None).state
            })
        };
        let turn = |angle| ("straighten", "angle", angle);
        let (rise, side) =
            (|x| ("perspective_vertical", "amount", x), |x| ("perspective_horizontal", "amount", x));
        let mut uncropped = edit(&[turn(5.0)]);
        let ashift = uncropped.module_mut("ashift", 0).unwrap();
        let Params::Fields(fields) = &mut ashift.params else { panic!("ashift has a layout") };
        for (name, value) in [("cl", 0.0), ("cr", 1.0), ("ct", 0.0), ("cb", 1.0)] {
            fields.insert(name.into(), Value::Float(value));
        }
        let pictures = demo.render_all(&[
            uncropped,
            edit(&[turn(5.0)]),
            edit(&[turn(-20.0)]),
            edit(&[rise(0.6)]),
            edit(&[side(-0.8)]),
            edit(&[turn(6.0), rise(0.5), side(0.4)]),
            edit(&[side(0.4), rise(0.5), turn(6.0)]),
        ]);
        let empty: Vec<usize> = pictures.iter().map(|picture| empty_border(picture)).collect();
        assert!(empty[0] > 100 && empty[1..].iter().all(|n| *n == 0), "lying {lying}: {empty:?}");
        assert_eq!(pictures[5].pixel_hash(), pictures[6].pixel_hash(), "in either order");
        // Turned clockwise, what was on the left side of the middle shows above it (on the upright photo, where the
        // left was on top: what was above the middle shows to the right of it).
        let (above, below) = if lying { ([0.5, 0.03], [0.5, 0.97]) } else { ([0.97, 0.5], [0.03, 0.5]) };
        let clockwise = |at: usize| blueness(&pictures[at], below) - blueness(&pictures[at], above);
        assert!(clockwise(1) > 10 && clockwise(2) < -10, "{} {}", clockwise(1), clockwise(2));
        if lying {
            // The sides part upwards: the left edge shows green above and red below.
            let greenness = |y| {
                let [red, green, _] = pixel(&pictures[3], [0.04, y]);
                green - red
            };
            assert!(greenness(0.03) > greenness(0.97) + 10, "{} {}", greenness(0.03), greenness(0.97));
        }
    }
}

#[test]
fn a_quarter_turn_is_one_and_four_are_none() {
    let demo = Demo::open();
    let baseline = &demo.facts.baseline;
    let turn = |quarters, mirror| {
        demo.apply(baseline, "turn", &[("quarter_turns", quarters), ("mirror", mirror)], None).state
    };
    let pictures = demo.render_all(&[baseline.clone(), turn(1.0, 0.0), turn(2.0, 0.0), turn(0.0, 1.0)]);
    let (w, h) = (pictures[0].width as usize, pictures[0].height as usize);
    assert_eq!((pictures[1].width as usize, pictures[1].height as usize), (h, w));
    // Where a pixel of the untouched photo is found again.
    let places: [&dyn Fn(usize, usize) -> usize; 3] =
        [&|x, y| x * h + (h - 1 - y), &|x, y| (h - 1 - y) * w + (w - 1 - x), &|x, y| y * w + (w - 1 - x)];
    for (picture, place) in pictures[1..].iter().zip(places) {
        let mut far = 0;
        for y in 0..h {
            for x in 0..w {
                let (a, b) = (&pictures[0].rgb[3 * (y * w + x)..][..3], &picture.rgb[3 * place(x, y)..][..3]);
                far += usize::from(a.iter().zip(b).any(|(a, b)| a.abs_diff(*b) > 2));
            }
        }
        assert!(far * 200 < w * h, "{far} of {} pixels are elsewhere", w * h);
    }
    let hash = |state: EditState| -> Hash { state.hash() };
    let again = demo.apply(&turn(3.0, 1.0), "turn", &[("quarter_turns", 0.0), ("mirror", 0.0)], None).state;
    assert_eq!(hash(again), baseline.hash());
    let error =
        demo.try_apply(baseline, "turn", &[("quarter_turns".to_owned(), 0.5)].into(), None).unwrap_err();
    assert!(error.to_string().contains("whole"), "{error}");
}
