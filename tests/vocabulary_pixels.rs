//! What every move promises, held against pixels of the real darktable.

#[path = "support/demo.rs"]
mod demo;

use std::collections::BTreeMap;

use chemigram::darktable::render::Picture;
use chemigram::darktable::state::EditState;
use chemigram::metrics::stats::ImageStats;
use chemigram::vocabulary::Selector;
use demo::{Demo, Surveyed};

/// How far an axis must move, in just-noticeable steps, to count as moved.
const LEAST_STEPS: f64 = 0.25;

#[test]
fn every_move_is_nothing_at_neutral_the_same_twice_and_goes_where_it_says() {
    let demo = Demo::open();
    let baseline = &demo.facts.baseline;
    let (untouched, survey) = demo.survey();
    let mut broken = Vec::new();
    for Surveyed { entry, neutral, default, greatest, measured } in &survey {
        let name = &entry.name;
        let mut check = |holds: bool, what: String| {
            if !holds {
                broken.push(format!("{name}: {what}"));
            }
        };
        check(neutral.pixel_hash() == untouched.pixel_hash(), "neutral is another picture".into());
        check(default.pixel_hash() != untouched.pixel_hash(), "default is the same picture".into());
        let at_default = entry.parameters.values().all(|p| p.direction || p.max == p.default);
        check(
            entry.strength().is_none() || at_default || greatest.pixel_hash() != default.pixel_hash(),
            "no stronger than its default".into(),
        );
        for (axis, rungs) in &measured.steps {
            let steps = rungs[measured.default] * f64::from(entry.axes[axis]);
            check(steps >= LEAST_STEPS, format!("{} moves {steps:.2} steps its way", axis.name()));
        }
        let monotonic = measured.monotonic(entry) == Some(true);
        check(monotonic == entry.not_monotonic.is_none(), format!("monotonic: {monotonic}, {measured:?}"));
    }
    // Equal states are equal pictures: shown once a module, with a render of its own.
    let mut modules = BTreeMap::new();
    for Surveyed { entry, default, .. } in &survey {
        let once = demo.apply(baseline, &entry.name, &[], None).state;
        let twice = demo.apply(&once, &entry.name, &[], None).state;
        assert_eq!(twice.hash(), once.hash(), "{}: twice is once", entry.name);
        let neutral = entry.neutral();
        let neutral: Vec<(&str, f64)> = neutral.iter().map(|(n, v)| (n.as_str(), *v)).collect();
        for before in [baseline, &twice] {
            let idle = demo.apply(before, &entry.name, &neutral, None).state;
            assert_eq!(idle.hash(), baseline.hash(), "{}: neutral is nothing", entry.name);
        }
        modules.entry(&entry.module).or_insert((default, twice));
    }
    assert!(modules.len() >= 16, "{:?}", modules.keys());
    let (once, twice): (Vec<_>, Vec<_>) = modules.values().cloned().unzip();
    for ((module, once), twice) in modules.keys().zip(once).zip(demo.render_all(&twice)) {
        if once.pixel_hash() != twice.pixel_hash() {
            broken.push(format!("{module}: twice is another picture"));
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
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
    let chroma: Vec<f64> = pictures
        .iter()
        .map(|p| {
            chemigram::metrics::axes::measure(chemigram::metrics::axes::Axis::Chroma, &ImageStats::of(p))
        })
        .collect();
    assert!(chroma[3] > chroma[1] + 1.0 && chroma[3] > chroma[2] + 1.0, "{chroma:?}");
    assert_eq!(pictures[4].pixel_hash(), pictures[0].pixel_hash());
}

const SPOT: &str = r#"{"shape":"circle","center":[0.85,0.2],"radius":0.25,"feather":0.2}"#;

#[test]
fn a_masked_move_of_every_module_changes_inside_and_not_outside() {
    let demo = Demo::open();
    let baseline = &demo.facts.baseline;
    let listed = demo.vocabulary.list(&Default::default(), &demo.layouts, demo.version()).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    let names: Vec<&str> =
        listed.iter().filter(|m| m.maskable && seen.insert(m.module)).map(|m| m.name).collect();
    assert!(names.len() >= 12, "{names:?}");
    let mut states = vec![baseline.clone()];
    // A global edit of the same module stands beside the masked one.
    let brighter = demo.apply(baseline, "exposure", &[("ev", 0.5)], None).state;
    states.extend([brighter.clone(), demo.apply(&brighter, "exposure", &[("ev", -1.0)], Some(SPOT)).state]);
    for name in &names {
        // As strong as it goes: some moves have little to do in this corner of the photo.
        let parameters = &demo.vocabulary.get(name).unwrap().parameters;
        let strongest: Vec<(&str, f64)> = parameters.iter().map(|(n, p)| (n.as_str(), p.max)).collect();
        states.push(demo.apply(baseline, name, &strongest, Some(SPOT)).state);
    }
    let around = SPOT.replace('}', r#","invert":true}"#);
    states.push(demo.apply(baseline, "exposure", &[], Some(&around)).state);
    let pictures = demo.render_all(&states);
    let inside = |x: f64, y: f64| (x - 510.0).hypot(y - 80.0) < 80.0;
    let outside = |x: f64, y: f64| (x - 510.0).hypot(y - 80.0) > 130.0;
    let check = |name: &str, before: &Picture, after: &Picture| {
        let (within, without) = (change(before, after, 1, inside), change(before, after, 3, outside));
        // A soft module may reach some pixels across the edge of its mask.
        (within < 0.1 || without > 0.02).then(|| format!("{name}: inside {within:.3}, outside {without:.3}"))
    };
    let mut broken: Vec<String> =
        check("exposure beside exposure", &pictures[1], &pictures[2]).into_iter().collect();
    broken.extend(
        names.iter().zip(&pictures[3..]).filter_map(|(name, after)| check(name, &pictures[0], after)),
    );
    assert!(broken.is_empty(), "{broken:#?}");
    let around = pictures.last().unwrap();
    assert!(change(&pictures[0], around, 1, inside) < 0.01 && change(&pictures[0], around, 3, outside) > 0.8);
}

/// The share of the pixels in a place of which a channel changed by at least so many of 255.
fn change(before: &Picture, after: &Picture, least: u8, place: impl Fn(f64, f64) -> bool) -> f64 {
    assert_eq!((before.width, before.height), (after.width, after.height));
    let (mut all, mut changed) = (0_u32, 0_u32);
    let pixels = before.rgb.chunks_exact(3).zip(after.rgb.chunks_exact(3));
    for ((a, b), at) in pixels.zip(0_u32..) {
        if place(f64::from(at % before.width) + 0.5, f64::from(at / before.width) + 0.5) {
            all += 1;
            changed += u32::from(a.iter().zip(b).any(|(a, b)| a.abs_diff(*b) >= least));
        }
    }
    f64::from(changed) / f64::from(all.max(1))
}
