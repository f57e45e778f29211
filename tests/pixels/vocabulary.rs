//! What every move promises, held against pixels of the real darktable.

use std::collections::{BTreeMap, BTreeSet};

use darktable::dng::{DngOptions, demo_photo};
use darktable::render::{ByHand, Picture, Quality, RenderRequest, Renderer};
use darktable::state::EditState;
use engine::vocabulary::Selector;
use pixels::lab::Lab;
use pixels::metrics::axes::{Axis, measure};
use pixels::metrics::difference::Difference;
use pixels::metrics::stats::ImageStats;
use testkit::contract::{Verdict, change, contract};
use testkit::demo::{Demo, deadline, only};
use testkit::photos::aberrated;

#[test]
fn every_move_keeps_its_promises() {
    let (mut moves, mut modules) = (0, BTreeSet::new());
    // Half the size takes a third of the time; the other photos are few, or have what a remedy finds at their size.
    for demo in Demo::open_all(&[None, Some("colours")]) {
        moves += check_photo(&demo, &mut modules);
    }
    if only().is_none() {
        assert!(moves >= 90 && modules.len() >= 30, "{moves} moves over {modules:?}");
    }
}

/// Judges every move that a photo shows; how many there are.
#[allow(clippy::unwrap_used, clippy::print_stdout, reason = "a part of the test above")]
fn check_photo(demo: &Demo, seen: &mut BTreeSet<String>) -> usize {
    let (outcomes, timing) = contract(demo);
    println!("on the photo `{}`:", demo.kind.as_deref().unwrap_or("demo"));
    for (what, pictures, took) in timing {
        println!("{what}: {pictures} pictures, {:.1} s", took.as_secs_f64());
    }
    let red: BTreeMap<_, _> = outcomes
        .iter()
        .filter_map(|o| match &o.verdict {
            Verdict::Red(broken) => Some((o.entry.name, broken)),
            _ => None,
        })
        .collect();
    assert!(red.is_empty(), "on darktable {}: {red:#?}", demo.version());

    // A move is missing only where darktable lacks its module, or a version of it that has the fields.
    for outcome in &outcomes {
        if let Verdict::NotOffered(why) = &outcome.verdict {
            println!("{}: {why}", outcome.entry.name);
            let younger = outcome.entry.modules.iter().any(|op| {
                let module = demo.layouts.module(op).unwrap().unwrap();
                let own = module.own_version(demo.version());
                own.is_none_or(|own| module.versions.iter().any(|v| v.modversion > own))
            });
            assert!(younger, "{} could be offered: {why}", outcome.entry.name);
        }
    }

    // Once a module: the pictures, which came from darktables that rendered many, are those of one alone. On the demo's
    // own photo `tests/pixels/worker.rs` compares them.
    let mut modules = BTreeSet::new();
    let singles: Vec<_> = outcomes
        .iter()
        .filter(|outcome| outcome.entry.modules.len() == 1 && modules.insert(&outcome.entry.modules))
        .filter_map(|outcome| outcome.default.as_ref().map(|(state, seen)| (outcome.entry.name, state, seen)))
        .collect();
    let states: Vec<EditState> = singles.iter().map(|(_, state, _)| (*state).clone()).collect();
    if demo.kind.is_some() {
        for (again, (name, _, seen)) in demo.render_alone(&states).into_iter().zip(&singles) {
            assert_eq!(again.pixel_hash(), seen.pixel_hash(), "{name}: rendered again, another picture");
        }
    }
    seen.extend(modules.into_iter().flatten().map(|module| (*module).to_owned()));
    outcomes.len()
}

#[test]
fn a_high_pass_sharpens_edges_and_leaves_flat_surfaces_of_every_brightness() {
    // Stripes of five greys, the last nearly white: on the way to the tone mapper it is far beyond white.
    let grey = |x: u32| [20, 70, 130, 190, 245][(x / 120) as usize];
    let rgb = (0..600 * 120).flat_map(|at| [grey(at % 600); 3]).collect();
    let demo = Demo::with(
        &Picture { width: 600, height: 120, rgb },
        &DngOptions { noise: 0.0, ..DngOptions::default() },
    );
    let baseline = &demo.facts.baseline;
    let sharp = demo.apply(baseline, "high_pass", &[("contrast", 40.0)], None).state;
    let pictures = demo.render_all(&[baseline.clone(), sharp]);
    let edge = |x: f64| (x - 120.0 * (x / 120.0).round().clamp(1.0, 4.0)).abs();
    let flat = change(&pictures[0], &pictures[1], 2, |x, _| edge(x) > 40.0);
    assert!(flat < 0.001, "{flat} of the flat surfaces changed");
    // Beside the edge between the two middle greys, where nothing fades out yet.
    let sharpened = change(&pictures[0], &pictures[1], 8, |x, _| (x - 240.0).abs() < 3.0);
    assert!(sharpened > 0.5, "{sharpened} of an edge changed");
}

#[test]
fn red_and_blue_of_a_raw_come_back_into_place_where_the_lens_has_shifted_them() {
    let photo = demo_photo().unwrap();
    let taken = |share| {
        let demo = Demo::of(&aberrated(&photo, 3.0, share));
        let baseline = &demo.facts.baseline;
        let corrected = demo.apply(baseline, "raw_fringes", &[], None).state;
        demo.render_all(&[baseline.clone(), corrected])
    };
    let (perfect, simple) = (taken(0.0), taken(0.003));
    let between = |a: &Picture, b: &Picture| Difference::between(a, b).unwrap().mean;
    let untouched = between(&perfect[0], &perfect[1]);
    assert!(untouched < 0.1, "a perfect lens is corrected by {untouched}");
    let (before, after) = (between(&perfect[0], &simple[0]), between(&perfect[0], &simple[1]));
    assert!(after < 0.5 * before, "{before} from a perfect lens, {after} when corrected");
}

#[test]
fn the_untouched_photo_is_what_darktable_makes_of_it_at_either_quality() {
    let demo = Demo::open();
    // darktable's own text against what is written for the state that was read from it. Both qualities, because 5.x
    // scales a full-quality export at another place of the pipeline than 4.x, which its module order decides.
    let own = String::from_utf8(demo.default_sidecar()).unwrap();
    for quality in [Quality::Preview, Quality::Judge] {
        let request = RenderRequest { raw: &demo.raw, state: &demo.facts.baseline, long_edge: 257, quality };
        let ours = demo.renderer.render(&request, &deadline(), &ByHand).unwrap();
        let theirs =
            demo.renderer.render_sidecar(&demo.raw.path, &own, 257, quality, &deadline(), &ByHand).unwrap();
        let difference = Difference::between(&ours.picture, &theirs.picture).unwrap();
        assert_eq!(difference.mean, 0.0, "{quality:?}: {difference:?}");
    }
}

#[test]
fn moves_accumulate_and_come_off_again() {
    let demo = Demo::open();
    let baseline = &demo.facts.baseline;
    let saturation = demo.apply(baseline, "saturation", &[("amount", 0.4)], None).state;
    let vibrance = demo.apply(baseline, "vibrance", &[("amount", 0.4)], None).state;
    let both = demo.apply(&saturation, "vibrance", &[("amount", 0.4)], None).state;
    let masked = demo.apply(&both, "exposure", &[("ev", 1.0)], Some(SPOT)).state;
    let module = |op: &str| Selector::Module { op: op.into(), instance: None };
    let take =
        |state: &EditState, selector| demo.vocabulary.remove_module(state, &selector, &demo.facts).unwrap();
    // Mask forms and masked instances go with the move.
    let undone = take(&take(&masked, Selector::Move("exposure".into())), module("colorbalancergb"));
    assert_eq!(undone.hash(), baseline.hash());
    let pictures = demo.render_all(&[baseline.clone(), saturation, vibrance, both, undone]);
    let chroma: Vec<f64> = pictures.iter().map(|p| measure(Axis::Chroma, &ImageStats::of(p))).collect();
    assert!(chroma[3] > chroma[1] + 1.0 && chroma[3] > chroma[2] + 1.0, "{chroma:?}");
    assert_eq!(pictures[4].pixel_hash(), pictures[0].pixel_hash());
}

const SPOT: &str = r#"{"shape":"circle","center":[0.85,0.2],"radius":0.25,"feather":0.2}"#;

#[test]
fn a_mask_may_stand_beside_a_global_edit_of_its_module_and_may_be_turned_inside_out() {
    let demo = Demo::open();
    let baseline = &demo.facts.baseline;
    let brighter = demo.apply(baseline, "exposure", &[("ev", 0.5)], None).state;
    let spot = demo.apply(&brighter, "exposure", &[("ev", -1.0)], Some(SPOT)).state;
    let around = SPOT.replace('}', r#","invert":true}"#);
    let around = demo.apply(baseline, "exposure", &[], Some(&around)).state;
    let pictures = demo.render_all(&[baseline.clone(), brighter, spot, around]);
    let inside = |x: f64, y: f64| (x - 510.0).hypot(y - 80.0) < 80.0;
    let outside = |x: f64, y: f64| (x - 510.0).hypot(y - 80.0) > 130.0;
    let changed = |before: &Picture, after: &Picture| {
        (change(before, after, 1, inside), change(before, after, 3, outside))
    };
    let (within, without) = changed(&pictures[1], &pictures[2]);
    assert!(within > 0.9 && without < 0.01, "{within} {without}");
    let (within, without) = changed(&pictures[0], &pictures[3]);
    assert!(within < 0.01 && without > 0.8, "{within} {without}");
}

#[test]
fn two_lights_in_one_picture_are_balanced_apart() {
    // Grey, and the same grey in the light of a black body of 4000 K, as a camera sees it that is balanced for D65.
    let (width, height) = (600, 400);
    let rgb = (0..width * height)
        .flat_map(|at| if at % width < width / 2 { [137, 137, 137] } else { [160, 132, 102] })
        .collect();
    let demo = Demo::of(&Picture { width, height, rgb });
    let baseline = &demo.facts.baseline;
    let shift = [("shift", 1.0e6 / 6504.0 - 1.0e6 / 4000.0)];
    let right = r#"{"shape":"rectangle","from":[0.5,0],"to":[1,1],"feather":0}"#;
    let lamp = demo.apply(baseline, "illuminant", &shift, Some(right)).state;
    let everywhere = demo.apply(baseline, "illuminant", &shift, None).state;
    let colour = |picture: &Picture, column: usize| {
        let first = 3 * (picture.width as usize * picture.height as usize / 2 + column);
        let pixel = &picture.rgb[first..first + 3];
        pixel.iter().max().unwrap() - pixel.iter().min().unwrap()
    };
    let pictures = demo.render_all(&[baseline.clone(), lamp, everywhere]);
    let [before, apart, all] = [0, 1, 2].map(|at| [150, 450].map(|column| colour(&pictures[at], column)));
    assert!(before[0] < 8 && before[1] > 50, "{before:?}");
    assert!(apart[0] < 8 && apart[1] < 12, "{apart:?}");
    assert!(all[0] > 50 && all[1] < 12, "{all:?}");
}

#[test]
fn local_warmth_makes_a_lamps_light_white_under_a_mask_and_keeps_its_lightness() {
    // Greys of three brightnesses, on the right in the light of 4000 K, seen by a camera that is balanced for D65.
    let (width, height) = (600, 390);
    let rows =
        [([73, 73, 73], [85, 70, 54]), ([100, 100, 100], [117, 96, 74]), ([137, 137, 137], [160, 132, 102])];
    let pixel = |at: u32| {
        let (grey, lit) = rows[(at / width / 130) as usize];
        if at % width < width / 2 { grey } else { lit }
    };
    let rgb = (0..width * height).flat_map(pixel).collect();
    let demo = Demo::of(&Picture { width, height, rgb });
    let baseline = &demo.facts.baseline;
    let right = r#"{"shape":"rectangle","from":[0.5,0],"to":[1,1],"feather":0}"#;
    let lamp = 1.0e6 / 6504.0 - 1.0e6 / 4000.0;
    let states = [("shift", lamp), ("shift", 40.0), ("magenta", 10.0)]
        .map(|value| demo.apply(baseline, "local_warmth", &[value], Some(right)).state);
    let mut all = vec![baseline.clone()];
    all.extend(states);
    let pictures = demo.render_all(&all);
    let colour = |picture: &Picture, column: usize, row: usize| {
        let at = 3 * (picture.width as usize * (65 + 130 * row) + column);
        Lab::from_srgb([0, 1, 2].map(|channel| picture.rgb[at + channel]))
    };
    for row in 0..3 {
        let [before, white, warmer, pinker] = [0, 1, 2, 3].map(|at| colour(&pictures[at], 450, row));
        assert!(before.b > 8.0, "the lamp is seen: {before:?}");
        let chroma = [before, white].map(|colour| colour.a.hypot(colour.b));
        assert!(white.b.abs() < 3.0 && chroma[1] < 0.3 * chroma[0], "row {row}: {before:?} to {white:?}");
        assert!((white.l - before.l).abs() < 2.0, "row {row}: {before:?} to {white:?}");
        assert!(warmer.b > before.b + 2.0 && (warmer.l - before.l).abs() < 2.0, "{before:?} to {warmer:?}");
        assert!(pinker.a > before.a + 2.0 && (pinker.l - before.l).abs() < 2.0, "{before:?} to {pinker:?}");
        for picture in &pictures[1..] {
            let moved = colour(&pictures[0], 150, row).delta_e(colour(picture, 150, row));
            assert!(moved < 0.01, "{moved} outside the mask");
        }
    }
}
