//! Warps: what lies under the circle goes where it is pushed on the displayed picture, and nothing else does, however
//! the camera was held and whatever was done to the frame.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::collections::BTreeMap;
use testkit::photo_files;

use darktable::dng::{DngOptions, write_dng};
use darktable::render::{Picture, RawFile};
use darktable::state::EditState;
use engine::vocabulary::{ApplyRequest, PhotoFacts, Selector, VocabularyError};
use testkit::frames::{EDITS, Home, LONG, SHORT, stored, without_tone_mapper};

/// Bright dots, a hundred pixels apart.
const PITCH: u32 = 100;
/// The radius of the warps, in pixels of the displayed picture.
const RADIUS: f64 = 60.0;

fn dots(width: u32, height: u32) -> Picture {
    let rgb = (0..width * height).flat_map(|at| {
        let off = |at: u32| f64::from(at % PITCH) + 0.5 - f64::from(PITCH) / 2.0;
        let (x, y) = (off(at % width), off(at / width));
        [(40.0 + 180.0 * (-(x * x + y * y) / 50.0).exp()) as u8; 3]
    });
    Picture { width, height, rgb: rgb.collect() }
}

/// The dot nearest to a place: its centre, and how wide it is (the root of its second moment).
fn dot(picture: &Picture, near: [f64; 2]) -> ([f64; 2], f64) {
    let value = |x: i64, y: i64| {
        let inside =
            (0..i64::from(picture.width)).contains(&x) && (0..i64::from(picture.height)).contains(&y);
        let at = 3 * (y * i64::from(picture.width) + x) + 1;
        if inside { f64::from(picture.rgb[usize::try_from(at).unwrap()]) } else { 0.0 }
    };
    let around = |[x, y]: [f64; 2], reach: i64| {
        let [x, y] = [x.round() as i64, y.round() as i64];
        (y - reach..=y + reach).flat_map(move |y| (x - reach..=x + reach).map(move |x| [x, y]))
    };
    let nearest = |[x, y]: &[i64; 2]| -(*x as f64 - near[0]).hypot(*y as f64 - near[1]);
    let top = around(near, 48).max_by(|a, b| {
        (value(a[0], a[1]).min(150.0), nearest(a))
            .partial_cmp(&(value(b[0], b[1]).min(150.0), nearest(b)))
            .unwrap()
    });
    let mut center = top.unwrap().map(|at| at as f64);
    let mut spread = 0.0;
    for _ in 0..4 {
        let ground = around(center, 24).map(|[x, y]| value(x, y)).fold(f64::MAX, f64::min);
        let weigh = |[x, y]: [i64; 2]| (value(x, y) - ground - 12.0).max(0.0);
        let sum = |f: &dyn Fn([i64; 2]) -> f64| around(center, 24).map(|at| weigh(at) * f(at)).sum::<f64>();
        let all = sum(&|_| 1.0);
        let [x, y] = [sum(&|at| at[0] as f64) / all, sum(&|at| at[1] as f64) / all];
        spread = (sum(&|at| (at[0] as f64 - x).powi(2) + (at[1] as f64 - y).powi(2)) / all / 2.0).sqrt();
        center = [x, y];
    }
    (center, spread)
}

/// The greatest change of a value farther away from all of these places than `reach`.
fn change_beyond(before: &Picture, after: &Picture, places: &[[f64; 2]], reach: f64) -> u8 {
    assert_eq!((before.width, before.height), (after.width, after.height));
    let pixels = before.rgb.chunks_exact(3).zip(after.rgb.chunks_exact(3)).zip(0_u32..);
    let beyond = pixels.filter(|(_, at)| {
        let [x, y] = [f64::from(at % before.width), f64::from(at / before.width)];
        places.iter().all(|place| (x - place[0]).hypot(y - place[1]) > reach)
    });
    beyond.map(|((a, b), _)| a.iter().zip(b).map(|(a, b)| a.abs_diff(*b)).max().unwrap()).max().unwrap()
}

struct Photo<'a> {
    home: &'a Home,
    raw: RawFile,
    facts: PhotoFacts,
}

impl Photo<'_> {
    /// A warp in pixels of the picture on show.
    fn warp(
        &self,
        state: &EditState,
        name: &str,
        [x, y]: [f64; 2],
        rest: &[(&str, f64)],
    ) -> Result<EditState, VocabularyError> {
        let size = self.facts.shown(state);
        let place = [("x", x / size.width), ("y", y / size.height), ("radius", RADIUS / size.short())];
        let values: BTreeMap<String, f64> =
            place.iter().chain(rest).map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let request = ApplyRequest { move_name: name, values: &values, mask: None };
        let Home { vocabulary, layouts, .. } = self.home;
        vocabulary.apply(&request, state, &self.facts, layouts, self.home.version()).map(|a| a.state)
    }
}

#[test]
fn what_is_pushed_goes_there_and_what_grows_stays_on_every_frame() {
    let home = Home::new(env!("CARGO_BIN_EXE_chemigram"));
    let plain = DngOptions { noise: 0.0, ..DngOptions::default() };
    let turned = DngOptions { orientation: 6, ..plain };
    let files = [
        ("upright", write_dng(&dots(LONG, SHORT), &plain).unwrap()),
        ("turned", write_dng(&stored(&dots(SHORT, LONG), 6), &turned).unwrap()),
        ("margins", photo_files::camera_dng(&dots(LONG, SHORT), &plain)),
        ("finished", photo_files::jpeg(&stored(&dots(SHORT, LONG), 6), 6)),
    ];
    let mut wrong = Vec::new();
    for (name, bytes) in files {
        let file = format!("{name}.{}", if name == "finished" { "jpg" } else { "dng" });
        home.file(&file, &bytes);
        let workspace = home.ingest(&file, name);
        let (baseline, facts) = home.facts(&workspace);
        let baseline = without_tone_mapper(baseline);
        let photo = Photo { home: &home, raw: workspace.raw(), facts };
        let raw = name == "upright" || name == "turned";
        for (at, (edit, steps)) in
            EDITS.iter().enumerate().filter(|(at, _)| raw || [0, EDITS.len() - 1].contains(at))
        {
            let state = home.apply(&baseline, &photo.facts, steps).unwrap();
            let before = home.render(&photo.raw, &state);
            // What is shown may be smaller than the picture at full size.
            let scale = f64::from(before.width) / photo.facts.shown(&state).width;
            let [pushed, grown, shrunk] = [[0.3, 0.35], [0.7, 0.65], [0.3, 0.7]]
                .map(|[x, y]| dot(&before, [x * f64::from(before.width), y * f64::from(before.height)]));
            let full = |([x, y], _): ([f64; 2], f64)| [(x + 0.5) / scale, (y + 0.5) / scale];
            let (angle, amount) = [(90.0, 0.2), (210.0, 0.4), (0.0, 0.3)][at % 3];
            let warped = photo
                .warp(&state, "warp_push", full(pushed), &[("angle", angle), ("amount", amount)])
                .and_then(|state| photo.warp(&state, "warp_size", full(grown), &[("amount", 1.0)]))
                .and_then(|state| photo.warp(&state, "warp_size", full(shrunk), &[("amount", -1.0)]))
                .unwrap();
            let after = home.render(&photo.raw, &warped);

            let far = amount * RADIUS * scale;
            let (sin, cos) = f64::to_radians(angle).sin_cos();
            let aim = [pushed.0[0] + far * sin, pushed.0[1] - far * cos];
            let (found, _) = dot(&after, aim);
            if (found[0] - aim[0]).hypot(found[1] - aim[1]) > 0.06 * far + 0.5 {
                wrong.push(format!("{name}, {edit}: pushed from {:?} to {found:?}, not {aim:?}", pushed.0));
            }
            for (was, times) in [(grown, 1.5..2.1), (shrunk, 0.6..0.8)] {
                let (center, spread) = dot(&after, was.0);
                let off = (center[0] - was.0[0]).hypot(center[1] - was.0[1]);
                if off > 2.0 || !times.contains(&(spread / was.1)) {
                    wrong.push(format!("{name}, {edit}: {} times as wide, and {off} away", spread / was.1));
                }
            }
            let places = [pushed.0, grown.0, shrunk.0];
            let beyond = change_beyond(&before, &after, &places, 1.02 * RADIUS * scale + 2.0);
            if beyond > 2 {
                wrong.push(format!("{name}, {edit}: {beyond} of 255 elsewhere"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn each_place_has_one_warp_of_a_kind_and_is_taken_back_alone() {
    let home = Home::new(env!("CARGO_BIN_EXE_chemigram"));
    let plain = DngOptions { noise: 0.0, ..DngOptions::default() };
    home.file("dots.dng", &write_dng(&dots(LONG, SHORT), &plain).unwrap());
    let workspace = home.ingest("dots.dng", "dots");
    let (baseline, facts) = home.facts(&workspace);
    let baseline = without_tone_mapper(baseline);
    let photo = Photo { home: &home, raw: workspace.raw(), facts };
    let places = [[350.0, 350.0], [450.0, 350.0], [850.0, 450.0]];
    let push = |state: &EditState, at: usize, amount: f64| {
        photo.warp(state, "warp_push", places[at], &[("angle", 90.0), ("amount", amount)]).unwrap()
    };
    let all = [0, 1, 2].iter().fold(baseline.clone(), |state, at| push(&state, *at, 0.3));
    let backwards = [2, 0, 1].iter().fold(baseline.clone(), |state, at| push(&state, *at, 0.3));
    assert_eq!(all.hash(), backwards.hash());
    assert_eq!(push(&all, 1, 0.3).hash(), all.hash(), "the same again is the same");
    // One is changed, one taken back; the others stay as they are.
    let changed = push(&push(&all, 1, 0.1), 2, 0.0);
    let found = home.render(&photo.raw, &changed);
    for (at, amount) in [0.3, 0.1, 0.0].into_iter().enumerate() {
        let [x, y] = places[at];
        let (center, _) = dot(&found, [x + amount * RADIUS, y]);
        // The circles of the first two overlap.
        assert!(
            (center[0] + 0.5 - x - amount * RADIUS).abs() < 5.0 && (center[1] + 0.5 - y).abs() < 1.0,
            "{center:?}"
        );
    }
    let grown = photo.warp(&all, "warp_size", places[2], &[("amount", 0.5)]).unwrap();
    let remove = |state: &EditState, name: &str| {
        home.vocabulary.remove_module(state, &Selector::Move(name.into()), &photo.facts).unwrap()
    };
    assert_eq!(remove(&grown, "warp_size").hash(), all.hash(), "of a kind only");
    assert_eq!(remove(&remove(&grown, "warp_push"), "warp_size").hash(), baseline.hash());
    let none = [0, 2, 1].iter().fold(all, |state, at| push(&state, *at, 0.0));
    assert_eq!(none.hash(), baseline.hash());
    // Full is full.
    let many = (0..100).fold(baseline, |state, at| {
        photo.warp(&state, "warp_push", [10.0 * f64::from(at) + 5.0, 50.0], &[("amount", 0.1)]).unwrap()
    });
    let error = photo.warp(&many, "warp_push", [600.0, 600.0], &[]).unwrap_err();
    assert!(error.to_string().contains("at most 100 warps"), "{error}");
}
