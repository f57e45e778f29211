//! Looks on the real darktable: nothing at strength 0, half-way at half, the declared way at 1, and masked as one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure is the test's failure")]

#[path = "support/demo.rs"]
mod demo;

use std::collections::BTreeMap;

use chemigram::darktable::state::EditState;
use chemigram::metrics::difference::Difference;
use chemigram::metrics::stats::ImageStats;
use chemigram::vocabulary::{AppliedLook, ApplyRequest, MaskSpec, STRENGTH, Selector, VocabularyError};
use demo::{Demo, wanted};

const SPOT: &str = r#"{"shape":"circle","center":[0.85,0.2],"radius":0.25,"feather":0.2}"#;

fn apply(demo: &Demo, name: &str, strength: f64, mask: Option<&str>) -> Result<AppliedLook, VocabularyError> {
    let values = BTreeMap::from([(STRENGTH.to_owned(), strength)]);
    let mask: Option<MaskSpec> = mask.map(|text| serde_json::from_str(text).unwrap());
    let request = ApplyRequest { move_name: name, values: &values, mask: mask.as_ref() };
    demo.vocabulary.apply_look(&request, &demo.facts.baseline, &demo.facts, &demo.layouts, demo.version())
}

#[test]
fn every_look_is_nothing_at_0_goes_its_way_and_farther_at_1() {
    let demo = Demo::open();
    let baseline = &demo.facts.baseline;
    let listed = demo.vocabulary.list_looks(&Default::default(), &demo.layouts, demo.version()).unwrap();
    let looks: Vec<_> = listed.iter().filter(|look| wanted(look.name)).collect();
    assert!(listed.len() >= 30, "{}", listed.len());
    let mut states = vec![baseline.clone()];
    for look in &looks {
        let at = |strength| apply(&demo, look.name, strength, None).unwrap_or_else(|e| panic!("{e}")).state;
        assert_eq!(at(0.0).hash(), baseline.hash(), "{}: 0 is none", look.name);
        let full = at(1.0);
        let off = demo.vocabulary.remove_module(&full, &Selector::Look(look.name.to_owned()), &demo.facts);
        assert_eq!(off.unwrap().hash(), baseline.hash(), "{}: comes off again", look.name);
        states.extend([at(0.5), full]);
    }
    let pictures = demo.render_all(&states);
    let before = ImageStats::of(&pictures[0]);
    let mut broken = Vec::new();
    for (look, pair) in looks.iter().zip(pictures[1..].chunks(2)) {
        let [half, full] = [0, 1].map(|at| ImageStats::of(&pair[at]));
        let [near, far] = [0, 1].map(|at| Difference::between(&pictures[0], &pair[at]).unwrap().mean);
        if !(0.5..25.0).contains(&far) || near >= far || near < 0.15 * far {
            broken.push(format!("{}: ΔE {near:.2} at half and {far:.2} at full strength", look.name));
        }
        for (axis, sign) in &demo.vocabulary.look(look.name).unwrap().axes {
            let [half, full] = [&half, &full].map(|after| f64::from(*sign) * axis.steps(&before, after));
            if full < 0.5 || half < 0.0 || half > full + 0.25 {
                broken.push(format!("{}: {axis} moves {half:.2} at half, {full:.2} at full", look.name));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn a_masked_look_stays_inside_its_mask_and_one_that_cannot_be_masked_says_why() {
    let demo = Demo::open();
    let baseline = &demo.facts.baseline;
    let masked = apply(&demo, "bleach_bypass", 1.0, Some(SPOT)).unwrap();
    assert!(masked.state.modules.iter().filter(|m| m.instance > 0).count() >= 3);
    let pictures = demo.render_all(&[baseline.clone(), masked.state.clone()]);
    let changed = |inside: bool| {
        let rows = pictures[0].rgb.chunks_exact(3).zip(pictures[1].rgb.chunks_exact(3)).enumerate();
        let here = rows.filter(|(at, _)| {
            let from = ((at % 600) as f64 - 510.0).hypot((at / 600) as f64 - 80.0);
            if inside { from < 80.0 } else { from > 130.0 }
        });
        let (all, moved) = here.fold((0, 0), |(all, moved), (_, (a, b))| {
            (all + 1, moved + u32::from(a.iter().zip(b).any(|(a, b)| a.abs_diff(*b) >= 3)))
        });
        f64::from(moved) / f64::from(all)
    };
    assert!(changed(true) > 0.5 && changed(false) < 0.02, "{} {}", changed(true), changed(false));
    let off = Selector::Look("bleach_bypass".into());
    let undone: EditState = demo.vocabulary.remove_module(&masked.state, &off, &demo.facts).unwrap();
    assert_eq!(undone.hash(), baseline.hash());

    let error = apply(&demo, "golden_hour", 1.0, Some(SPOT)).unwrap_err();
    assert!(matches!(error, VocabularyError::NotMaskable { .. }), "{error}");
    assert!(error.to_string().contains("golden_hour") && error.to_string().contains("warmth"), "{error}");
}
