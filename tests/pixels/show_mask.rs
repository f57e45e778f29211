//! A mask is shown as the module sees it, before the move and after, and the move acts where it was shown.
//!
//! Two masks are compared at half effect: intersection over union of the pixels where either reaches a half. A pixel
//! of the edit has half the effect when it moves as far as under the same move at half strength everywhere; pixels
//! that hardly move even then say nothing and are left out.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

use darktable::dng::{self, DngOptions};
use darktable::render::Picture;
use darktable::state::EditState;
use engine::vocabulary::{MaskProbe, MaskSpec, ShownMask, sought_in};
use testkit::demo::Demo;
use testkit::frames::stored;

/// Least intersection over union.
const LEAST: f64 = 0.95;

/// Sum over the channels by which a pixel must move at half strength, in 8-bit codes.
const MOVES: u32 = 8;

type Edit = (&'static str, &'static [(&'static str, f64)]);

const DARKER: Edit = ("exposure", &[("ev", -1.2)]);
const BRIGHTER: Edit = ("exposure", &[("ev", 1.0)]);
/// In Lab, after the tone mapper.
const MAGENTA: Edit = ("shadows_magenta", &[("amount", 20.0)]);
const CHROMA: Edit = ("chroma", &[("amount", -0.9)]);

/// Each kind of mask.
const KINDS: [(Edit, &str); 20] = [
    (DARKER, r#"{"shape":"circle","center":[0.4,0.5],"radius":0.25,"feather":0.6}"#),
    (DARKER, r#"{"shape":"ellipse","center":[0.6,0.4],"radius":[0.3,0.15],"rotation":30,"feather":0.5}"#),
    (DARKER, r#"{"shape":"gradient","anchor":[0.5,0.4],"angle":20,"width":0.3}"#),
    (DARKER, r#"{"shape":"rectangle","from":[0.1,0.2],"to":[0.5,0.7],"feather":0.05}"#),
    (DARKER, r#"{"shape":"path","points":[[0.1,0.2],[0.7,0.15],[0.8,0.7],[0.3,0.9]],"feather":0.05}"#),
    (DARKER, r#"{"shape":"brush","strokes":[[[0.1,0.2],[0.4,0.6],[0.9,0.5]]],"width":0.2}"#),
    (DARKER, r#"{"range":"luminance","from":45,"to":100}"#),
    (BRIGHTER, r#"{"range":"luminance","from":0,"to":30}"#),
    (DARKER, r#"{"range":"chroma","from":20,"to":100}"#),
    (DARKER, r#"{"range":"hue","from":10,"to":70,"softness":10}"#),
    (DARKER, r#"{"shape":"gradient","anchor":[0.5,0.5],"angle":90,"range":"luminance","from":30,"to":100}"#),
    (DARKER, r#"{"difference":[{"named":"top_half"},{"shape":"circle","center":[0.5,0.3],"radius":0.2}]}"#),
    (
        DARKER,
        r#"{"union":[{"shape":"circle","center":[0.3,0.4],"radius":0.15},{"range":"luminance","from":50,"to":100}]}"#,
    ),
    (DARKER, r#"{"named":"warm_hues"}"#),
    (DARKER, r#"{"range":"luminance","from":40,"to":100,"refine":0.02,"blur":0.005}"#),
    (DARKER, r#"{"object":{"inside":[[0.45,0.45]]}}"#),
    (DARKER, r#"{"similar_to":[0.45,0.45],"tolerance":15}"#),
    (MAGENTA, r#"{"range":"luminance","from":0,"to":35}"#),
    (CHROMA, r#"{"range":"luminance","from":25,"to":60}"#),
    (CHROMA, r#"{"shape":"ellipse","center":[0.5,0.5],"radius":[0.3,0.3]}"#),
];

fn spec(mask: &str) -> MaskSpec {
    serde_json::from_str(mask).unwrap()
}

/// A mask as pixels of at least half effect.
fn half(shown: &ShownMask) -> Vec<bool> {
    shown.effect().iter().map(|effect| *effect >= 0.5).collect()
}

/// Where a masked edit has half of its effect; `None` where that cannot be said.
fn acted([none, half, masked]: [&Picture; 3]) -> Vec<Option<bool>> {
    let moved = |picture: &Picture, at: usize| {
        let [a, b] = [&picture.rgb, &none.rgb].map(|rgb| &rgb[3 * at..3 * at + 3]);
        a.iter().zip(b).map(|(a, b)| u32::from(a.abs_diff(*b))).sum::<u32>()
    };
    let said = |at: usize| (moved(half, at) >= MOVES).then(|| moved(masked, at) >= moved(half, at));
    (0..none.rgb.len() / 3).map(said).collect()
}

/// Intersection over union, and on how much of the picture it is known.
fn overlap(one: &[bool], other: &[Option<bool>]) -> (f64, f64) {
    let known: Vec<(bool, bool)> = one.iter().zip(other).filter_map(|(a, b)| Some((*a, (*b)?))).collect();
    let count =
        |holds: &dyn Fn(bool, bool) -> bool| known.iter().filter(|(a, b)| holds(*a, *b)).count() as f64;
    let union = count(&|a, b| a || b);
    (count(&|a, b| a && b) / union, known.len() as f64 / one.len() as f64)
}

/// Everything about these kinds of mask on one photo; what is broken, in words.
fn judge(demo: &Demo, base: &EditState, kinds: &[(Edit, &str)]) -> Vec<String> {
    let (vocabulary, facts, layouts) = (&demo.vocabulary, &demo.facts, &demo.layouts);
    let seen = demo.render_all(&[sought_in(base, &facts.baseline)]);
    let found = |mask: &str| serde_json::to_string(&spec(mask).find(&seen[0]).unwrap()).unwrap();
    let kinds: Vec<(Edit, String)> = kinds.iter().map(|(edit, mask)| (*edit, found(mask))).collect();
    let whole = |opacity: f64| {
        format!(
            r#"{{"shape":"rectangle","from":[-0.4,-0.4],"to":[1.4,1.4],"feather":0,"opacity":{opacity}}}"#
        )
    };
    let mut states = vec![base.clone()];
    let mut probes: Vec<[MaskProbe; 2]> = Vec::new();
    for ((name, values), mask) in &kinds {
        let before = match *name {
            "exposure" => vocabulary.mask_probe(&spec(mask), base, facts, layouts),
            name => vocabulary.mask_probe_for(name, &spec(mask), base, facts, layouts, demo.version()),
        };
        let applied = demo.apply(base, name, values, Some(mask));
        let place = vocabulary.placed((name, &applied.op), &spec(mask), &applied.state, facts, layouts);
        assert_eq!(place, Some(applied.instance), "{name} {mask}");
        let place = (applied.op.as_str(), applied.instance);
        let after = vocabulary.placed_mask_probe(place, None, &applied.state, facts, layouts).unwrap();
        if *name == "exposure" {
            // The same mask typed once more is that of the move.
            let again = vocabulary.mask_probe(&spec(mask), &applied.state, facts, layouts).unwrap();
            assert_eq!(again, after, "{mask}");
        }
        states.push(demo.apply(base, name, values, Some(&whole(0.5))).state);
        states.push(applied.state);
        let pair = [before.unwrap(), after];
        states.extend(pair.iter().flat_map(|probe| [probe.without.clone(), probe.with.clone()]));
        probes.push(pair);
    }
    let pictures = demo.render_all(&states);
    let mut broken = Vec::new();
    for (at, ((name, _), mask)) in kinds.iter().enumerate() {
        let of = |place: usize| &*pictures[1 + 6 * at + place];
        let [before, after] = [0, 1]
            .map(|which: usize| half(&probes[at][which].read(of(2 + 2 * which), of(3 + 2 * which)).unwrap()));
        let acted = acted([&pictures[0], of(0), of(1)]);
        let known = |mask: &[bool]| mask.iter().copied().map(Some).collect::<Vec<_>>();
        let (same, _) = overlap(&before, &known(&after));
        let (edited, on) = overlap(&before, &acted);
        let mask = &mask[..mask.len().min(120)];
        println!("{name} {mask}: {same:.3} before and after, {edited:.3} edited, known on {on:.2}");
        if !(same >= LEAST && edited >= LEAST && on > 0.3) {
            broken.push(format!("{name} {mask}: {same:.3} before and after, {edited:.3} edited, on {on:.2}"));
        }
    }
    broken
}

/// The demo photo as a camera stores it, with moves on it that a mask must not be misled by.
fn photo(orientation: u16) -> (Demo, EditState) {
    let photo = dng::demo_photo().unwrap();
    let upright = if orientation > 4 { stored(&photo, 5) } else { photo };
    let options = DngOptions { noise: 0.0, orientation, ..DngOptions::default() };
    let demo = Demo::with(&stored(&upright, orientation), &options);
    let brighter = demo.apply(&demo.facts.baseline, "exposure", &[("ev", 0.4)], None).state;
    let lifted = demo.apply(&brighter, "shadows_lift", &[("amount", 0.5)], None).state;
    // Another masked exposure, which runs before or after.
    let other = r#"{"shape":"circle","center":[0.8,0.8],"radius":0.2}"#;
    let state = demo.apply(&lifted, "exposure", &[("ev", 0.5)], Some(other)).state;
    (demo, state)
}

#[test]
fn every_kind_of_mask_is_shown_where_it_acts_before_and_after_the_move() {
    let (demo, state) = photo(1);
    let broken = judge(&demo, &state, &KINDS);
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn on_a_portrait_photo_that_is_stored_mirrored_and_turned_too() {
    let (demo, state) = photo(5);
    let broken = judge(&demo, &state, &KINDS);
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn on_a_cropped_photo_too() {
    let (demo, state) = photo(8);
    let cropped = demo.apply(&state, "crop_left", &[("margin", 0.15)], None).state;
    let cropped = demo.apply(&cropped, "crop_top", &[("margin", 0.1)], None).state;
    let broken = judge(&demo, &cropped, &KINDS);
    assert!(broken.is_empty(), "{broken:#?}");
}
