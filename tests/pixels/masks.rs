//! Where masks act, held against pixels of the real darktable.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::sync::Arc;
use testkit::chart;
use testkit::chroma;
use testkit::demo;

use darktable::dng::DngOptions;
use darktable::params;
use darktable::render::{ByHand, Picture, Quality, RenderRequest, Renderer as _};
use darktable::state::{EditState, Module, Params, Value};
use engine::vocabulary::{MaskProbe, MaskSpec, ShownMask};
use testkit::chart::PATCHES;
use testkit::demo::Demo;

/// The chart's neutrals, dark to light, and its colours.
const NEUTRALS: [&str; 6] = ["black", "neutral 3.5", "neutral 5", "neutral 6.5", "neutral 8", "white"];

/// Ranges, and the patches that each is meant to select. The lightness of the patches on show, the chroma and the
/// hue are those of the rendered chart: its camera and tone mapper darken the published values by about five.
#[rustfmt::skip]
const RANGES: [(&str, &[&str]); 15] = [
    (r#"{"range":"luminance","from":0,"to":16,"softness":3}"#, &["black"]),
    (r#"{"range":"luminance","from":20,"to":39.5,"softness":2}"#, &["dark skin", "foliage", "purplish blue", "purple", "blue", "red", "neutral 3.5"]),
    (r#"{"range":"luminance","from":42.5,"to":51,"softness":2}"#, &["blue sky", "blue flower", "moderate red", "green", "magenta", "cyan", "neutral 5"]),
    (r#"{"range":"luminance","from":54,"to":69,"softness":2}"#, &["light skin", "bluish green", "orange", "yellow green", "orange yellow", "neutral 6.5"]),
    (r#"{"range":"luminance","from":72,"to":80,"softness":2}"#, &["yellow", "neutral 8"]),
    (r#"{"range":"luminance","from":85,"to":100,"softness":4}"#, &["white"]),
    (r#"{"range":"chroma","from":0,"to":8,"softness":4}"#, &NEUTRALS),
    (r#"{"range":"chroma","from":9,"to":21,"softness":3}"#, &["dark skin", "foliage", "purple"]),
    (r#"{"range":"chroma","from":58,"to":100,"softness":2}"#, &["orange", "yellow green", "orange yellow", "yellow"]),
    (r#"{"range":"hue","from":340,"to":7,"softness":4}"#, &["moderate red", "red"]),
    (r#"{"range":"hue","from":11,"to":55,"softness":4}"#, &["dark skin", "light skin", "orange", "orange yellow", "yellow"]),
    (r#"{"range":"hue","from":65,"to":135,"softness":8}"#, &["foliage", "yellow green", "green"]),
    (r#"{"range":"hue","from":150,"to":223,"softness":4}"#, &["blue sky", "bluish green", "cyan"]),
    (r#"{"range":"hue","from":229,"to":255,"softness":3}"#, &["blue flower", "purplish blue", "blue"]),
    (r#"{"range":"hue","from":265,"to":332,"softness":5}"#, &["purple", "magenta"]),
];

/// The same on a module that works on Lab, after the tone mapper.
#[rustfmt::skip]
const LAB_RANGES: [(&str, &[&str]); 3] = [
    (r#"{"range":"luminance","from":54,"to":69,"softness":2}"#, &["light skin", "bluish green", "orange", "yellow green", "orange yellow", "neutral 6.5"]),
    (r#"{"range":"chroma","from":0,"to":8,"softness":4}"#, &NEUTRALS),
    (r#"{"range":"hue","from":225,"to":255,"softness":3}"#, &["blue flower", "purplish blue", "blue"]),
];

#[test]
fn ranges_select_the_patches_of_a_colour_chart_that_they_mean_and_no_other() {
    let demo = Demo::with(&chart::picture(), &DngOptions { noise: 0.0, ..DngOptions::default() });
    let baseline = &demo.facts.baseline;
    let scene = ("exposure", ("ev", -1.5));
    let lab = ("shadows_magenta", ("amount", 20.0));
    let apply = |(name, value): (&str, (&str, f64)), mask| demo.apply(baseline, name, &[value], mask).state;
    let masked: Vec<_> = RANGES
        .iter()
        .map(|range| (scene, range))
        .chain(LAB_RANGES.iter().map(|range| (lab, range)))
        .collect();
    let mut states = vec![baseline.clone(), apply(scene, None), apply(lab, None)];
    states.extend(masked.iter().map(|(edit, (mask, _))| apply(*edit, Some(mask))));
    let shown: Vec<_> = render_all(&demo, &states).iter().map(|picture| chart::patches(picture)).collect();
    // The share of the unmasked edit's effect on a patch.
    let effect = |patch: usize, full: usize, masked: usize| {
        let distance = |at: usize| {
            let channels = shown[at][patch].iter().zip(&shown[0][patch]);
            channels.map(|(after, before)| (after - before).abs()).sum::<f64>()
        };
        distance(masked) / distance(full)
    };
    let mut broken = Vec::new();
    for (at, ((name, _), (mask, meant))) in masked.iter().enumerate() {
        let full = if *name == scene.0 { 1 } else { 2 };
        for (patch, (colour, _)) in PATCHES.iter().enumerate() {
            let effect = effect(patch, full, at + 3);
            let holds = if meant.contains(colour) { effect > 0.9 } else { effect < 0.05 };
            if !holds {
                broken
                    .push(format!("{name} {mask}: {colour} {effect:.3}, meant: {}", meant.contains(colour)));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The numbers of a table of the masks' page, row by row; the mean of each cell.
fn page_table(after: &str) -> Vec<Vec<Option<f64>>> {
    let page = include_str!("../../docs/masks.md");
    let (_, rest) = page.split_once(after).unwrap();
    let rows = rest.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let number = |cell: &str| cell.trim().split(' ').next().and_then(|number| number.parse().ok());
    let row = |line: &str| line.trim_matches('|').split('|').skip(1).map(number).collect();
    rows.take_while(|line| line.starts_with('|')).map(row).collect()
}

#[test]
fn ranges_of_chroma_lie_where_the_page_says_and_true_with_a_range_of_luminance() {
    let chart = chroma::Chart::new();
    let page = page_table("has half of its effect");
    assert_eq!(page.len(), chroma::ROWS.len());
    let mut broken = Vec::new();
    for (at, asked) in chroma::ASKED.into_iter().enumerate().take(3) {
        for about in [false, true] {
            for (row, cell) in chart.column(asked, about).into_iter().enumerate() {
                let said = if about { Some(asked) } else { page[row][at] };
                let (Some([_, mean, _]), Some(said)) = (cell, said) else { continue };
                if (mean - said).abs() > 1.0_f64.max(0.12 * said) {
                    broken.push(format!("{asked} in row {row}, about {about}: {mean:.1}, not {said}"));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn a_range_of_hues_keeps_dark_foliage_and_leaves_greys_out() {
    let chart = chroma::Chart::new();
    let mean = |mask: &str, of: &dyn Fn(&chroma::Patch) -> bool| {
        let patches = chart.patches(mask).concat();
        let found: Vec<f64> = patches.iter().filter(|patch| of(patch)).map(|patch| patch.effect).collect();
        assert!(found.len() >= 4, "{mask}: {} patches", found.len());
        found.iter().sum::<f64>() / found.len() as f64
    };
    let (greens, blues) = (r#"{"named":"greens"}"#, r#"{"named":"blues"}"#);
    let dark = mean(greens, &|p| {
        (9.0..20.0).contains(&p.light) && (9.0..16.0).contains(&p.chroma) && (90.0..145.0).contains(&p.hue)
    });
    let grey = mean(greens, &|p| (20.0..90.0).contains(&p.light) && p.chroma < 1.5);
    let cloud = mean(blues, &|p| (65.0..90.0).contains(&p.light) && p.chroma < 3.0);
    assert!(dark > 0.8 && grey < 0.15 && cloud < 0.15, "{dark:.2} {grey:.2} {cloud:.2}");
    // A mask about the dark measures chroma there, so that greys are left out of blues as in the light.
    let night =
        r#"{"intersection":[{"range":"hue","from":195,"to":255},{"range":"luminance","from":0,"to":25}]}"#;
    let [alone, about] = [r#"{"range":"hue","from":195,"to":255}"#, night].map(|mask| {
        mean(mask, &|p| {
            (9.0..20.0).contains(&p.light)
                && (9.0..13.0).contains(&p.chroma)
                && (210.0..240.0).contains(&p.hue)
        })
    });
    assert!(about > 0.9 && about > alone + 0.2, "{alone:.2} {about:.2}");
}

/// The named masks of tones and colours, and the patches that each covers.
#[rustfmt::skip]
const NAMED: [(&str, &[&str], &[&str]); 8] = [
    ("deep_shadows", &["black"], &["neutral 5", "white", "yellow"]),
    ("shadows", &["black", "purple", "blue", "neutral 3.5"], &["neutral 6.5", "neutral 8", "white", "yellow"]),
    ("midtones", &["blue sky", "neutral 5", "moderate red", "green", "magenta", "light skin", "orange"], &["black", "white"]),
    ("highlights", &["white", "neutral 8"], &["black", "neutral 5", "green", "light skin"]),
    ("blues", &["blue sky", "blue flower", "purplish blue", "blue"], &["foliage", "orange", "red", "yellow", "black", "neutral 5", "white"]),
    ("greens", &["foliage", "yellow green", "green"], &["blue", "orange", "red", "magenta", "black", "neutral 5", "white"]),
    ("skin_tones", &["dark skin", "light skin"], &["blue sky", "foliage", "blue", "green", "yellow", "magenta", "black", "neutral 5", "white"]),
    ("warm_hues", &["dark skin", "light skin", "orange", "orange yellow", "red", "yellow", "moderate red"], &["blue", "green", "cyan", "purple", "black", "neutral 5", "white"]),
];

#[test]
fn named_masks_cover_what_their_names_say_and_what_is_shown_is_what_is_edited() {
    let demo = Demo::with(&chart::picture(), &DngOptions { noise: 0.0, ..DngOptions::default() });
    let baseline = &demo.facts.baseline;
    let texts: Vec<String> = NAMED.iter().map(|(name, ..)| format!(r#"{{"named":"{name}"}}"#)).collect();
    // The white patch is 100 px wide: without its guide the block would reach 25 px beyond it to the right.
    let block = r#"{"shape":"rectangle","from":[0.01,0.77],"to":[0.2083,0.98],"feather":0}"#;
    let refined = block.replace('}', r#","refine":0.05}"#);
    let mut cases: Vec<(&EditState, &str)> = texts.iter().map(|text| (baseline, text.as_str())).collect();
    cases.extend([(baseline, block), (baseline, refined.as_str())]);
    let shown = show(&demo, &cases);
    let mean = |shown: &(ShownMask, Picture), colour: &str| {
        let patch = PATCHES.iter().position(|(name, _)| *name == colour).unwrap();
        let (x, y) = ((patch % 6) as f64 / 6.0, (patch / 6) as f64 / 4.0);
        let places = [(0.05, 0.08), (0.08, 0.12), (0.11, 0.16)];
        places.map(|(dx, dy)| at(shown, x + dx, y + dy)).iter().sum::<f32>() / 3.0
    };
    let mut broken = Vec::new();
    for ((name, inside, outside), shown) in NAMED.iter().zip(&shown) {
        for (colours, holds) in [(inside, 0.6..1.1), (outside, -0.1..0.1)] {
            let wrong = colours.iter().filter(|colour| !holds.contains(&mean(shown, colour)));
            broken.extend(wrong.map(|colour| format!("{name}: {colour} {:.2}", mean(shown, colour))));
        }
    }
    // The refined block lets go of the dark patch beside the white one.
    let [plain, refined] = &shown[NAMED.len()..] else { panic!("two blocks") };
    let (inside, beyond) = ((0.1, 0.875), (0.19, 0.875));
    let figures =
        [plain, refined].map(|shown| (at(shown, inside.0, inside.1), at(shown, beyond.0, beyond.1)));
    if !(figures[0].0 > 0.95 && figures[0].1 > 0.95 && figures[1].0 > 0.9 && figures[1].1 < 0.5) {
        broken.push(format!("refine: {figures:?}"));
    }
    // A real edit reaches the pixels that were shown, each as far.
    let darken = |mask| demo.apply(baseline, "exposure", &[("ev", -1.0)], mask).state;
    let pictures = render_all(&demo, &[baseline.clone(), darken(None), darken(Some(&texts[4]))]);
    let [before, full, masked] = [0, 1, 2].map(|at: usize| chart::patches(&pictures[at]));
    for (patch, (colour, _)) in PATCHES.iter().enumerate() {
        let green = |patches: &[[f64; 3]; 24]| patches[patch][1];
        let edited = (green(&before) - green(&masked)) / (green(&before) - green(&full));
        let seen = mean(&shown[4], colour);
        if (edited - f64::from(seen)).abs() > 0.1 {
            broken.push(format!("blues on {colour}: shown {seen:.2}, edited {edited:.2}"));
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Renders all by one darktable that stays alive: there are many pictures here, and small ones.
fn render_all(demo: &Demo, states: &[EditState]) -> Vec<Arc<Picture>> {
    let worker = demo.worker();
    let render = |state| {
        let request = RenderRequest { raw: &demo.raw, state, long_edge: 600, quality: Quality::Preview };
        worker.render(&request, &demo::deadline(), &ByHand).unwrap().picture
    };
    states.iter().map(render).collect()
}

/// A picture of soft greys, on which every pixel can show a mask.
fn greys() -> Demo {
    let rgb = (0..400_u32)
        .flat_map(|y| (0..600_u32).flat_map(move |x| [(80 + x / 10 + y / 10) as u8; 3]))
        .collect();
    Demo::with(&Picture { width: 600, height: 400, rgb }, &DngOptions { noise: 0.0, ..DngOptions::default() })
}

/// The masks on a state, made visible.
fn show(demo: &Demo, cases: &[(&EditState, &str)]) -> Vec<(ShownMask, Picture)> {
    let mut states: Vec<EditState> = Vec::new();
    let mut place = |state: EditState| {
        states.iter().position(|known| *known == state).unwrap_or_else(|| {
            states.push(state);
            states.len() - 1
        })
    };
    let pairs: Vec<(MaskProbe, [usize; 2])> = cases
        .iter()
        .map(|(state, mask)| {
            let mask: MaskSpec = serde_json::from_str(mask).unwrap();
            let probe = demo.vocabulary.mask_probe(&mask, state, &demo.facts, &demo.layouts).unwrap();
            let places = [&probe.without, &probe.with].map(|state| place(state.clone()));
            (probe, places)
        })
        .collect();
    let pictures = render_all(demo, &states);
    pairs
        .into_iter()
        .map(|(probe, [without, with])| {
            let shown = probe.read(&pictures[without], &pictures[with]).unwrap();
            (shown, Picture { rgb: Vec::new(), ..*pictures[with] })
        })
        .collect()
}

/// A place in 0…1 of the picture, and the effect there.
type Place = (f64, f64, f32);

/// The effect at a place in 0…1 of the picture.
fn at((shown, size): &(ShownMask, Picture), x: f64, y: f64) -> f32 {
    let [column, row] = [x * f64::from(size.width), y * f64::from(size.height)].map(|v| v as usize);
    shown.effect()[row * size.width as usize + column]
}

#[test]
fn shapes_and_their_combinations_act_where_they_are_drawn() {
    let demo = greys();
    // Each: the mask, and the effect that it has at places of the picture.
    #[rustfmt::skip]
    let cases: [(&str, &[Place]); 16] = [
        (r#"{"shape":"circle","center":[0.3,0.5],"radius":0.25,"feather":0}"#,
         &[(0.3, 0.5, 1.0), (0.45, 0.5, 1.0), (0.48, 0.5, 0.0), (0.3, 0.73, 1.0), (0.3, 0.77, 0.0), (0.9, 0.1, 0.0)]),
        (r#"{"shape":"circle","center":[0.3,0.5],"radius":0.25,"feather":0.8,"invert":true,"opacity":0.5}"#,
         &[(0.3, 0.5, 0.0), (0.9, 0.1, 0.5), (0.3, 0.99, 0.5)]),
        (r#"{"shape":"ellipse","center":[0.5,0.5],"radius":[0.3,0.1],"rotation":90,"feather":0.05}"#,
         &[(0.5, 0.5, 1.0), (0.5, 0.9, 1.0), (0.5, 0.05, 1.0), (0.55, 0.5, 1.0), (0.6, 0.5, 0.0)]),
        (r#"{"shape":"gradient","anchor":[0.5,0.25],"angle":0,"width":0.2}"#,
         &[(0.5, 0.02, 1.0), (0.2, 0.25, 0.5), (0.8, 0.25, 0.5), (0.5, 0.6, 0.0)]),
        (r#"{"shape":"rectangle","from":[0.8,0.2],"to":[0.2,0.6],"feather":0.01}"#,
         &[(0.22, 0.22, 1.0), (0.78, 0.58, 1.0), (0.17, 0.4, 0.0), (0.5, 0.65, 0.0), (0.83, 0.4, 0.0)]),
        (r#"{"shape":"path","points":[[0.1,0.1],[0.9,0.1],[0.1,0.9]],"feather":0}"#,
         &[(0.15, 0.15, 1.0), (0.45, 0.45, 1.0), (0.55, 0.55, 0.0), (0.85, 0.85, 0.0)]),
        // A stroke through three points, and a second one; 0.2 of 400 px is 80 px wide.
        (r#"{"shape":"brush","strokes":[[[0.1,0.2],[0.5,0.2],[0.9,0.2]],[[0.2,0.8],[0.8,0.8]]],"width":0.2,"hardness":1}"#,
         &[(0.3, 0.2, 1.0), (0.7, 0.28, 1.0), (0.3, 0.32, 0.0), (0.5, 0.8, 1.0), (0.5, 0.5, 0.0), (0.5, 0.72, 1.0), (0.95, 0.8, 0.0)]),
        (r#"{"shape":"brush","strokes":[[[0.2,0.5],[0.8,0.5]]],"width":0.4,"hardness":0,"density":0.6}"#,
         &[(0.5, 0.5, 0.6), (0.5, 0.6, 0.3), (0.5, 0.72, 0.0)]),
        (r#"{"union":[{"shape":"circle","center":[0.3,0.5],"radius":0.2,"feather":0},{"shape":"circle","center":[0.7,0.5],"radius":0.2,"feather":0,"opacity":0.5}]}"#,
         &[(0.3, 0.5, 1.0), (0.7, 0.5, 0.5), (0.5, 0.5, 0.0)]),
        (r#"{"intersection":[{"shape":"rectangle","from":[0.1,0.1],"to":[0.6,0.6],"feather":0},{"shape":"rectangle","from":[0.4,0.4],"to":[0.9,0.9],"feather":0}]}"#,
         &[(0.5, 0.5, 1.0), (0.2, 0.2, 0.0), (0.8, 0.8, 0.0)]),
        (r#"{"difference":[{"shape":"rectangle","from":[0.1,0.1],"to":[0.9,0.9],"feather":0},{"shape":"circle","center":[0.3,0.5],"radius":0.2,"feather":0},{"shape":"circle","center":[0.7,0.5],"radius":0.2,"feather":0}]}"#,
         &[(0.15, 0.15, 1.0), (0.3, 0.5, 0.0), (0.7, 0.5, 0.0), (0.5, 0.5, 1.0), (0.95, 0.95, 0.0)]),
        // Groups within a group, one of them inverted.
        (r#"{"intersection":[{"union":[{"named":"left_half"},{"shape":"circle","center":[0.8,0.2],"radius":0.15,"feather":0}]},{"union":[{"shape":"circle","center":[0.2,0.5],"radius":0.2,"feather":0},{"shape":"circle","center":[0.8,0.8],"radius":0.15,"feather":0}],"invert":true}]}"#,
         &[(0.05, 0.05, 1.0), (0.8, 0.2, 1.0), (0.2, 0.5, 0.0), (0.8, 0.8, 0.0), (0.97, 0.5, 0.0)]),
        // The picture is dark at its upper left and light at its lower right.
        (r#"{"intersection":[{"shape":"rectangle","from":[0.5,0],"to":[1,1],"feather":0},{"range":"luminance","from":0,"to":45,"softness":2}]}"#,
         &[(0.1, 0.1, 0.0), (0.55, 0.05, 1.0), (0.9, 0.9, 0.0)]),
        (r#"{"union":[{"shape":"rectangle","from":[0.7,0.7],"to":[1,1],"feather":0},{"range":"luminance","from":0,"to":33,"softness":2}]}"#,
         &[(0.02, 0.02, 1.0), (0.9, 0.9, 1.0), (0.5, 0.5, 0.0)]),
        (r#"{"shape":"rectangle","from":[0.3,0.3],"to":[0.7,0.7],"feather":0,"blur":0.05}"#,
         &[(0.5, 0.5, 1.0), (0.3, 0.5, 0.5), (0.1, 0.1, 0.0)]),
        (r#"{"named":"edges"}"#, &[(0.02, 0.02, 1.0), (0.5, 0.5, 0.0)]),
    ];
    let baseline = &demo.facts.baseline;
    let masks: Vec<(&EditState, &str)> = cases.iter().map(|(mask, _)| (baseline, *mask)).collect();
    let mut broken = Vec::new();
    for ((mask, places), shown) in cases.iter().zip(show(&demo, &masks)) {
        for (x, y, expected) in *places {
            let found = at(&shown, *x, *y);
            if (found - expected).abs() > 0.06 {
                broken.push(format!("{mask} at {x}, {y}: {found:.2}, not {expected}"));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn masks_lie_where_they_were_drawn_on_turned_cropped_and_straightened_pictures() {
    let mut demo = greys();
    let baseline = demo.facts.baseline.clone();
    // All of the right side but a tilted ellipse in it, and a block at the lower left.
    let mask = r#"{"union":[
        {"difference":[{"shape":"gradient","anchor":[0.55,0.5],"angle":80,"width":0.05},
                       {"shape":"ellipse","center":[0.75,0.35],"radius":[0.18,0.1],"rotation":30,"feather":0.02}]},
        {"shape":"rectangle","from":[0.1,0.6],"to":[0.35,0.9],"feather":0.01}]}"#;
    // The effect that it should have, and nothing where it is about to change.
    let meant = |x: f64, y: f64, w: f64, h: f64| {
        let ((sin, cos), (dx, dy)) = (30_f64.to_radians().sin_cos(), ((x - 0.75) * w, (y - 0.35) * h));
        let ellipse = ((cos * dx + sin * dy) / (0.18 * w)).hypot((cos * dy - sin * dx) / (0.1 * h));
        let (sin, cos) = 80_f64.to_radians().sin_cos();
        let side = ((x - 0.55) * w * sin - (y - 0.5) * h * cos) / w.hypot(h);
        let block = ((x - 0.225) / 0.125).abs().max(((y - 0.75) / 0.15).abs());
        let sure = !(0.9..1.15).contains(&ellipse) && side.abs() > 0.04 && !(0.9..1.15).contains(&block);
        sure.then_some(if block < 1.0 || side > 0.0 && ellipse > 1.0 { 1.0 } else { 0.0 })
    };
    let set = |state: &mut EditState, op: &str, fields: &[(&str, Value)]| {
        if state.module(op, 0).is_none() {
            let known = demo.layouts.module(op).unwrap().unwrap();
            let layout = known.lowest().unwrap();
            state.modules.push(Module {
                blend: None,
                enabled: true,
                instance: 0,
                modversion: layout.modversion,
                name: String::new(),
                op: op.into(),
                params: Params::Fields(params::defaults(layout)),
            });
        }
        let Params::Fields(all) = &mut state.module_mut(op, 0).unwrap().params else {
            panic!("{op} has a layout")
        };
        all.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        darktable::order::sort(state);
    };
    let float = |values: &[(&'static str, f32)]| {
        values.iter().map(|(name, value)| (*name, Value::Float(*value))).collect::<Vec<_>>()
    };
    // Of no fixed ratio, as the moves crop: darktable 5 holds a crop to the one that it has.
    let free = ["ratio_n", "ratio_d"].map(|name| (name, Value::Int(0)));
    let edges = float(&[("cx", 0.25), ("cy", 0.2), ("cw", 1.0), ("ch", 0.95)]);
    let crop = [edges, free.to_vec()].concat();
    let kept = [("cl", 0.18), ("ct", 0.2), ("cr", 0.82), ("cb", 0.8)];
    let mut states = Vec::new();
    for orientation in 0..8 {
        let mut state = baseline.clone();
        set(&mut state, "flip", &[("orientation", Value::Int(orientation))]);
        set(&mut state, "crop", &crop);
        states.push((format!("orientation {orientation}"), state));
    }
    let tilts: [&[(&str, f32)]; 4] = [
        &[("rotation", 9.0)],
        &[("rotation", -6.0)],
        &[("lensshift_v", 0.3), ("lensshift_h", -0.2), ("rotation", 3.0)],
        &[("shear", 0.1)],
    ];
    for (turned, tilt) in [0, 6, 0, 2].into_iter().zip(tilts) {
        let mut state = baseline.clone();
        set(&mut state, "flip", &[("orientation", Value::Int(turned))]);
        set(&mut state, "ashift", &float(tilt));
        set(&mut state, "ashift", &float(&kept));
        set(&mut state, "crop", &crop);
        states.push((format!("{tilt:?}, orientation {turned}"), state));
    }
    // The photo itself is upright: it is the edit that turns it.
    demo.facts.baseline = baseline;
    let cases: Vec<(&EditState, &str)> = states.iter().map(|(_, state)| (state, mask)).collect();
    let mut broken = Vec::new();
    for ((name, _), (shown, size)) in states.iter().zip(show(&demo, &cases)) {
        let (w, h) = (f64::from(size.width), f64::from(size.height));
        let (mut sure, mut wrong) = (0, 0);
        for (pixel, effect) in shown.effect().iter().enumerate() {
            let (x, y) =
                ((pixel % size.width as usize) as f64 + 0.5, (pixel / size.width as usize) as f64 + 0.5);
            if let Some(meant) = meant(x / w, y / h, w, h) {
                sure += 1;
                wrong += u32::from((effect - meant).abs() > 0.1);
            }
        }
        if f64::from(wrong) > 0.002 * f64::from(sure) {
            broken.push(format!("{name}: {wrong} of {sure} pixels ({w}x{h})"));
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}
