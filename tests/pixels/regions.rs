//! Edits on several places, retouching, and edits that are taken over: held against pixels of the real darktable.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

use crate::support::{Studio, confirm, reply, request, results};
use darktable::dng::{self, DngOptions};
use darktable::render::{ByHand, Picture, Quality, RenderRequest, Renderer};
use darktable::state::{EditState, Params, Value};
use engine::vocabulary::{PhotoEdit, Region, RegionsRequest, Selection, Selector, Spot, fill};
use pixels::lab::Lab;
use testkit::demo;
use testkit::demo::{Demo, deadline};

/// The mean of a difference over the pixels of a place, which is told in 0…1 of the picture.
fn mean(pictures: [&Picture; 2], place: impl Fn(f64, f64) -> bool, figure: impl Fn(Lab, Lab) -> f32) -> f64 {
    let [a, b] = pictures;
    assert_eq!((a.width, a.height), (b.width, b.height));
    let (w, h) = (f64::from(a.width), f64::from(a.height));
    let (mut sum, mut count) = (0.0, 0_u32);
    let lab = |p: &[u8]| Lab::from_srgb([p[0], p[1], p[2]]);
    for ((one, two), at) in a.rgb.chunks_exact(3).zip(b.rgb.chunks_exact(3)).zip(0_u32..) {
        let (x, y) = (f64::from(at % a.width) + 0.5, f64::from(at / a.width) + 0.5);
        if place(x / w, y / h) {
            // Most pixels are equal, and the formula is dear.
            sum += if one == two { 0.0 } else { f64::from(figure(lab(one), lab(two))) };
            count += 1;
        }
    }
    assert!(count > 0, "an empty place");
    sum / f64::from(count)
}

fn lighter(before: &Picture, after: &Picture, place: impl Fn(f64, f64) -> bool) -> f64 {
    mean([before, after], place, |a, b| b.l - a.l)
}

fn apart(before: &Picture, after: &Picture, place: impl Fn(f64, f64) -> bool) -> f64 {
    mean([before, after], place, Lab::delta_e)
}

/// Where the regions are, each with its EV; the radius is 0.05 of the width and 0.075 of the height: 30 pixels.
const REGIONS: [([f64; 2], f64); 6] = [
    ([0.10, 0.20], 0.6),
    ([0.33, 0.50], -0.5),
    ([0.45, 0.30], 0.3),
    ([0.70, 0.80], -0.8),
    ([0.85, 0.30], 1.0),
    ([0.15, 0.85], -0.3),
];

fn batch(demo: &Demo, state: &EditState, regions: &[([f64; 2], f64)]) -> EditState {
    let one = |([x, y], ev): &([f64; 2], f64)| {
        format!(
            r#"{{"mask":{{"shape":"ellipse","center":[{x},{y}],"radius":[0.05,0.075],"feather":0.3}},"parameter_values":{{"ev":{ev}}}}}"#
        )
    };
    let text = format!("[{}]", regions.iter().map(one).collect::<Vec<_>>().join(","));
    let regions: Vec<Region> = serde_json::from_str(&text).unwrap();
    let request = RegionsRequest { move_name: Some("exposure"), regions: &regions };
    let applied = demo.vocabulary.apply_regions(&request, state, &demo.facts, &demo.layouts, demo.version());
    applied.unwrap().state
}

/// How far a point is from the middle of a region, in its radii; with 0.3 of feather the effect ends at 1.3.
fn radii([x, y]: [f64; 2], px: f64, py: f64) -> f64 {
    ((px - x) / 0.05).hypot((py - y) / 0.075)
}

#[test]
fn six_regions_each_get_their_own_and_the_rest_stays() {
    let demo = Demo::open();
    let base = &demo.facts.baseline;
    let six = batch(&demo, base, &REGIONS);
    // Among 32, the six do the same.
    let mut many = REGIONS.to_vec();
    many.extend((0..26).map(|i| ([0.02 + 0.037 * f64::from(i), 0.02], 0.2)));
    let many = batch(&demo, base, &many);
    // A region on a photo that is brighter everywhere, and without it again.
    let everywhere = |state: &EditState, ev: f64| demo.apply(state, "exposure", &[("ev", ev)], None).state;
    let brighter = everywhere(base, 1.0);
    let both = batch(&demo, &brighter, &REGIONS[1..2]);
    let one = Selector::Module { op: "exposure".into(), instance: Some(1) };
    let without = demo.vocabulary.remove_module(&both, &one, &demo.facts).unwrap();
    assert_eq!(without.hash(), brighter.hash());
    let gone = demo.vocabulary.remove_module(&six, &one, &demo.facts).unwrap();
    let mut states = vec![base.clone(), six, many, brighter, both, everywhere(base, 0.5), gone];
    states.extend(REGIONS.iter().map(|(_, ev)| everywhere(base, *ev)));
    let pictures = demo.render_all(&states);
    let [before, six, many, brighter, both, half, gone] = [0, 1, 2, 3, 4, 5, 6].map(|at| &*pictures[at]);
    let mut taken = 0;
    for ((center, ev), alone) in REGIONS.iter().zip(&pictures[7..]) {
        let within = |x: f64, y: f64| radii(*center, x, y) < 0.9;
        // As much as the same exposure everywhere, which is what this region asked for.
        let expected = lighter(before, alone, within);
        for picture in [six, many] {
            let found = lighter(before, picture, within);
            assert!(found * ev > 0.0 && (found - expected).abs() < 0.3, "{ev} EV: {found:.2}, {expected:.2}");
        }
        taken += u32::from(lighter(before, gone, within).abs() < 0.1);
    }
    assert_eq!(taken, 1, "removing one instance takes back one region");
    let outside = |x: f64, y: f64| REGIONS.iter().all(|(center, _)| radii(*center, x, y) > 1.6);
    let rest = apart(before, six, outside);
    assert!(rest < 0.3, "{rest}");
    // Global +1 EV and masked -0.5 EV are both there: +1 outside, +0.5 within.
    let (center, _) = REGIONS[1];
    let within = |x: f64, y: f64| radii(center, x, y) < 0.9;
    assert!(apart(brighter, both, |x, y| radii(center, x, y) > 1.6) < 0.3);
    assert!((lighter(before, both, within) - lighter(before, half, within)).abs() < 0.3);
}

/// The demo's photograph with a blot, and where: centre and radius in pixels.
fn blotted() -> (Picture, [f64; 2], f64) {
    let (mut photo, center, radius) = (dng::demo_photo().unwrap(), [130.5, 160.5], 6.0);
    let width = photo.width as usize;
    for (at, pixel) in photo.rgb.chunks_exact_mut(3).enumerate() {
        let (x, y) = ((at % width) as f64 + 0.5, (at / width) as f64 + 0.5);
        if (x - center[0]).hypot(y - center[1]) < radius {
            pixel.copy_from_slice(&[60, 120, 220]);
        }
    }
    (photo, center, radius)
}

fn retouched(demo: &Demo, state: &EditState, text: &str) -> EditState {
    let spots: Vec<Spot> = serde_json::from_str(text).unwrap();
    demo.vocabulary.apply_spots(&spots, state, &demo.facts, &demo.layouts, demo.version()).unwrap().state
}

#[test]
fn a_blot_is_healed_and_cloned_away_and_nothing_else_changes() {
    let (photo, [cx, cy], radius) = blotted();
    for orientation in [1, 6] {
        let options = DngOptions { orientation, ..DngOptions::default() };
        let clean = Demo::with(&dng::demo_photo().unwrap(), &options);
        let demo = Demo::with(&photo, &options);
        let frame = |state: &EditState| match orientation {
            1 => state.clone(),
            _ => {
                let cropped = demo.apply(state, "crop_left", &[("margin", 0.1)], None).state;
                demo.apply(&cropped, "crop_top", &[("margin", 0.1)], None).state
            }
        };
        // Turned clockwise, the raw's x is down and its y from the right; 400 by 600 less 40 and 60 are left.
        let ([w, h], [x, y]): ([f64; 2], [f64; 2]) = match orientation {
            1 => ([600.0, 400.0], [cx, cy]),
            _ => ([360.0, 540.0], [400.0 - cy - 40.0, cx - 60.0]),
        };
        let short = w.min(h);
        let base = frame(&demo.facts.baseline);
        let text = |action: &str| {
            let place = format!(r#""x":{},"y":{},"radius":{}"#, x / w, y / h, 1.35 * radius / short);
            format!(r#"[{{"action":"{action}",{place}}},{{"x":0.8,"y":0.9,"radius":0.01}}]"#)
        };
        let healed = retouched(&demo, &base, &text("heal"));
        let back = retouched(&demo, &healed, r#"[{"action":"remove","x":0.8,"y":0.9}]"#);
        let states = [base.clone(), healed.clone(), retouched(&demo, &base, &text("clone")), back];
        let pictures = demo.render_all(&states);
        let wanted = clean.render(&frame(&clean.facts.baseline));
        assert_eq!((f64::from(wanted.width), f64::from(wanted.height)), (w, h));
        let from = |px: f64, py: f64, [x, y]: [f64; 2]| (px * w - x).hypot(py * h - y);
        let blot = |px: f64, py: f64| from(px, py, [x, y]) < radius;
        assert!(apart(&wanted, &pictures[0], blot) > 20.0, "the blot is seen");
        for (at, what) in [(1, "healed"), (2, "cloned"), (3, "healed alone")] {
            let left = apart(&wanted, &pictures[at], blot);
            assert!(left < 3.0, "{what}, orientation {orientation}: {left}");
            let reach = 1.35 * radius * 1.3 + 3.0;
            let elsewhere = |px: f64, py: f64| {
                from(px, py, [x, y]) > reach && from(px, py, [0.8 * w, 0.9 * h]) > 0.01 * short * 1.3 + 3.0
            };
            let changed = apart(&pictures[0], &pictures[at], elsewhere);
            assert!(changed < 0.001, "{what}, orientation {orientation}: {changed} elsewhere");
        }
        let second = |px: f64, py: f64| from(px, py, [0.8 * w, 0.9 * h]) < 0.01 * short * 1.3 + 3.0;
        assert!(apart(&pictures[0], &pictures[1], second) > 0.0);
        assert_eq!(apart(&pictures[0], &pictures[3], second), 0.0, "the second spot is taken back");
        // A darktable that stays alive does the same, and forgets a spot that is taken back.
        let worker = demo.worker();
        for (state, picture) in states.iter().zip(&pictures).rev() {
            let (raw, long_edge, quality) = (&demo.raw, demo::LONG_EDGE, Quality::Preview);
            let request = RenderRequest { raw, state, long_edge, quality };
            assert_eq!(
                worker.render(&request, &deadline(), &ByHand).unwrap().pixel_hash,
                picture.pixel_hash()
            );
        }
        assert_eq!(worker.troubles(), 0);
    }
}

/// The demo's photograph with an even disc in it, 30 pixels around `PATCH`.
fn patched() -> Picture {
    let mut photo = dng::demo_photo().unwrap();
    let width = photo.width as usize;
    for (at, pixel) in photo.rgb.chunks_exact_mut(3).enumerate() {
        let (x, y) = ((at % width) as f64 + 0.5, (at / width) as f64 + 0.5);
        if (x - PATCH[0] * 600.0).hypot(y - PATCH[1] * 400.0) < 30.0 {
            pixel.copy_from_slice(&[150, 110, 70]);
        }
    }
    photo
}

const PATCH: [f64; 2] = [0.8, 0.25];

#[test]
fn a_place_is_filled_with_the_colour_of_another_and_a_blurred_one_loses_its_detail() {
    let demo = Demo::with(&patched(), &DngOptions::default());
    let base = demo.apply(&demo.facts.baseline, "exposure", &[("ev", 0.4)], None).state;
    let (layouts, version) = (&demo.layouts, demo.version());
    let [x, y] = PATCH;
    let text = format!(r#"[{{"action":"fill","x":0.4,"y":0.5,"radius":0.06,"source":[{x},{y}]}}]"#);
    let spots: Vec<Spot> = serde_json::from_str(&text).unwrap();
    let mut spots = demo.vocabulary.place_spots(&spots, &base, &demo.facts, layouts, version).unwrap();
    fill::measure(&mut spots, &demo.render(&fill::probe(&base)));
    let filled = demo.vocabulary.apply_spots(&spots, &base, &demo.facts, layouts, version).unwrap().state;
    let path = "[[0.3,0.4],[0.5,0.4],[0.5,0.6],[0.3,0.6]]";
    let wood = "[[0.02,0.7],[0.12,0.7],[0.12,0.9],[0.02,0.9]]";
    let blurred =
        retouched(&demo, &base, &format!(r#"[{{"action":"blur","path":{wood},"blur_radius":0.02}}]"#));
    let copied =
        retouched(&demo, &base, &format!(r#"[{{"action":"clone","path":{path},"source":[0.7,0.6]}}]"#));
    let pictures = demo.render_all(&[base.clone(), filled, blurred, copied]);
    let [before, filled, blurred, copied] = [0, 1, 2, 3].map(|at| &*pictures[at]);
    let from = |px: f64, py: f64, [x, y]: [f64; 2]| ((px - x) * 600.0).hypot((py - y) * 400.0);

    let colors = |picture: &Picture, [x, y]: [f64; 2]| {
        let within = |at: &usize| {
            let (px, py) = ((at % 600) as f64 + 0.5, (at / 600) as f64 + 0.5);
            (px - x * 600.0).hypot(py - y * 400.0) < 20.0
        };
        let lab = |at: usize| Lab::from_srgb([0, 1, 2].map(|channel| picture.rgb[3 * at + channel]));
        (0..600 * 400).filter(within).map(lab).collect::<Vec<Lab>>()
    };
    let patch = colors(before, PATCH);
    let (l, a, b) =
        patch.iter().fold((0.0, 0.0, 0.0), |sum, lab| (sum.0 + lab.l, sum.1 + lab.a, sum.2 + lab.b));
    let count = patch.len() as f32;
    let wanted = Lab { l: l / count, a: a / count, b: b / count };
    let off = colors(filled, [0.4, 0.5]).into_iter().map(|lab| lab.delta_e(wanted)).fold(0.0, f32::max);
    assert!(off < 2.0, "the fill is up to {off} from the colour that it takes");
    let changed = apart(before, filled, |px, py| from(px, py, [0.4, 0.5]) > 24.0 * 1.3 + 3.0);
    assert!(changed < 0.001, "{changed} elsewhere");

    let inside = |px: f64, py: f64| (px - 0.07).abs() < 0.04 && (py - 0.8).abs() < 0.08;
    let outside = |px: f64, py: f64| (px - 0.07).abs() > 0.08 || (py - 0.8).abs() > 0.14;
    let detail = |picture: &Picture| {
        let row = |y: usize| (0..600).map(move |x| (x, y));
        let within = |&(x, y): &(usize, usize)| inside((x as f64 + 0.5) / 600.0, (y as f64 + 0.5) / 400.0);
        let step = |(x, y): (usize, usize)| {
            let green = |x: usize| f64::from(picture.rgb[3 * (y * 600 + x) + 1]);
            (green(x) - green(x + 1)).abs()
        };
        (0..400).flat_map(row).filter(within).map(step).sum::<f64>()
    };
    let kept = detail(blurred) / detail(before);
    assert!(kept < 0.5, "{kept} of the detail is left");
    // Light is blurred, not lightness: what has contrast gets a little lighter.
    let lighter = mean([before, blurred], inside, |a, b| b.l - a.l);
    assert!(lighter.abs() < 3.0, "lighter by {lighter}");
    assert!(apart(before, blurred, outside) < 0.001);

    // What was cloned by an outline is what lies there, to the pixel.
    let moved = [180, 40];
    for (x, y) in [(200, 180), (240, 200), (280, 230)] {
        let at = |picture: &Picture, x: i64, y: i64| {
            let at = 3 * (y * 600 + x) as usize;
            Lab::from_srgb([0, 1, 2].map(|channel| picture.rgb[at + channel]))
        };
        let off = at(copied, x, y).delta_e(at(before, x + moved[0], y + moved[1]));
        assert!(off < 1.0, "{off} at {x}, {y}");
    }
    let changed = apart(before, copied, |px, py| (px - 0.4).abs() > 0.14 || (py - 0.5).abs() > 0.16);
    assert!(changed < 0.001, "{changed} elsewhere");
}

#[test]
fn edits_mean_the_same_on_a_photo_in_another_light_and_on_its_side() {
    let source = Demo::open();
    let place = r#"{"shape":"circle","center":[0.3,0.25],"radius":0.2,"feather":0.2}"#;
    let edit = |demo: &Demo| {
        let state = demo.apply(&demo.facts.baseline, "exposure", &[("ev", -0.4)], None).state;
        let state = demo.apply(&state, "warmth", &[], None).state;
        let state = demo.apply(&state, "saturation", &[("amount", 0.3)], None).state;
        demo.apply(&state, "exposure", &[("ev", 1.0)], Some(place)).state
    };
    let options = DngOptions { orientation: 6, ..DngOptions::default() };
    let mut target = Demo::with(&dng::demo_photo().unwrap(), &options);
    for (op, field, value) in
        [("temperature", "red", 1.6), ("temperature", "blue", 2.0), ("exposure", "exposure", 0.3)]
    {
        let Params::Fields(fields) = &mut target.facts.baseline.module_mut(op, 0).unwrap().params else {
            panic!("{op} has a layout")
        };
        fields.insert(field.into(), Value::Float(value));
    }
    let state = edit(&source);
    let from = PhotoEdit { state: &state, facts: &source.facts };
    let edits = source.vocabulary.edits(from, &Selection::default()).unwrap();
    let to = PhotoEdit { state: &target.facts.baseline, facts: &target.facts };
    let taken = source.vocabulary.propagate(&edits, to, &source.layouts).unwrap();
    let pictures = target.render_all(&[target.facts.baseline.clone(), taken, edit(&target)]);
    // What a photographer would get by the same moves on the target.
    let off = apart(&pictures[1], &pictures[2], |_, _| true);
    assert!(off < 0.01, "{off}");
    let within = |x: f64, y: f64| ((x - 0.3) * 400.0).hypot((y - 0.25) * 600.0) < 70.0;
    let around = |x: f64, y: f64| ((x - 0.3) * 400.0).hypot((y - 0.25) * 600.0) > 110.0;
    assert!(lighter(&pictures[0], &pictures[1], within) > 2.0);
    assert!(lighter(&pictures[0], &pictures[1], around) < -1.0);
}

fn objects(studio: &Studio) -> usize {
    let folder = studio.workspace.folder().join("objects");
    let shards = ["states", "commits"].map(|kind| std::fs::read_dir(folder.join(kind)).unwrap());
    shards.into_iter().flatten().map(|shard| std::fs::read_dir(shard.unwrap().path()).unwrap().count()).sum()
}

#[test]
fn a_batch_is_one_call_one_commit_and_one_line() {
    let studio = Studio::new();
    let regions = |values: &[f64]| {
        let one = |(at, ev): (usize, &f64)| {
            format!(
                r#"{{"mask": {{"shape": "circle", "center": [{}, 0.5], "radius": 0.03}}, "parameter_values": {{"ev": {ev}}}}}"#,
                0.05 + 0.07 * at as f64
            )
        };
        let list = values.iter().enumerate().map(one).collect::<Vec<_>>().join(", ");
        format!(r#"{{"primitive_name": "exposure", "regions": [{list}], "label": "dodge and burn"}}"#)
    };
    let mut twelve = vec![0.3; 12];
    twelve[7] = 9.0;
    let script = [
        confirm(&["tone"]),
        reply(&[("branch", r#"{"name": "branch_b_tone"}"#)]),
        reply(&[("apply_per_region", &regions(&twelve))]),
        reply(&[("apply_per_region", &regions(&[]))]),
        reply(&[("apply_per_region", &regions(&[0.1; 33]))]),
        reply(&[("apply_spot", r#"{"spots": [{"x": 0.3, "y": 0.3, "radius": 0.9}]}"#)]),
        reply(&[("log", "{}")]),
        reply(&[("apply_per_region", &regions(&[0.3, -0.2, 0.3, -0.4, 0.5, -0.1]))]),
        reply(&[("apply_spot", r#"{"spots": [{"x": 0.3, "y": 0.3}, {"action": "clone", "x": 0.6, "y": 0.3}]}"#)]),
        reply(&[("log", r#"{"limit": 5}"#), ("diff", "{}"), ("remove_module", r#"{"module": "exposure", "instance": 2}"#)]),
        reply(&[("get_state", "{}"), ("mode_b_status", "{}")]),
        reply(&[(
            "record_judgment",
            r#"{"branch": "branch_b_tone", "judged_score": 4, "judged_reasoning": "Sculpted.", "key_moves": ["exposure ev=0.5", "apply_spot"]}"#,
        )]),
        reply(&[("end_mode_b_session", r#"{"session_summary": "Sculpted."}"#)]),
    ]
    .concat();
    let before = objects(&studio);
    let (end, lines) =
        studio.run(&script, &request("time=5m,iterations=30,branches=1", &[("tone", "sculpt")]));
    assert_eq!(end.outcome, chemigram::transcript::Outcome::Completed);
    let refused = results(&lines, "apply_per_region");
    for (at, words) in [(0, "regions[7]: `ev`"), (1, "is empty"), (2, "33 regions")] {
        assert!(refused[at].0.is_some() && refused[at].1.contains(words), "{}", refused[at].1);
    }
    assert!(refused[3].0.is_none(), "{}", refused[3].1);
    // The refused calls left nothing: one state and one commit for each of the three edits.
    assert_eq!(objects(&studio), before + 6);
    let log = studio.workspace.log("branch_b_tone", 10).unwrap();
    let words: Vec<&str> = log.iter().map(|entry| entry.words.as_str()).collect();
    assert_eq!(words[0], "remove exposure #2");
    assert!(words[1].starts_with("2 spots: heal at 0.30, 0.30"), "{words:?}");
    assert!(
        words[2].starts_with("6 regions of exposure: +0.30 EV circle at 0.05, 0.50; -0.20 EV"),
        "{words:?}"
    );
    assert!(words[2].chars().count() < 150 && words[2].ends_with("more"), "{words:?}");
    assert_eq!((log[2].label.as_str(), words.len()), ("dodge and burn", 4));
    let payload = serde_json::to_value(&log[2].op).unwrap();
    assert_eq!((&payload["n_regions"], &payload["primitive"]), (&6.into(), &"exposure".into()));
    assert_eq!(payload["regions"][1]["mask_summary"], "circle at 0.12, 0.50");
    assert_eq!(payload["regions"][1]["moves"][0]["values"]["ev"]["value"], -0.2);
    let diff = results(&lines, "diff")[0].1;
    assert!(
        diff.contains("exposure ev=0.30 EV on circle at 0.05, 0.50: added")
            && diff.contains("apply_spot: added"),
        "{diff}"
    );
    // Five of the six regions are left, and the judgment's claims were held against what was done.
    let state = results(&lines, "get_state")[0].1;
    assert_eq!(state.matches(" EV on circle").count(), 5, "{state}");
    assert!(results(&lines, "record_judgment")[0].0.is_none(), "{}", results(&lines, "record_judgment")[0].1);
}
