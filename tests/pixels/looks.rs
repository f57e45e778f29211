//! Looks under a mask, on the real darktable. What a look promises besides is in the contract of the vocabulary.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure is the test's failure")]

use std::collections::BTreeMap;

use darktable::state::EditState;
use engine::vocabulary::{AppliedLook, ApplyRequest, MaskSpec, STRENGTH, Selector, VocabularyError};
use testkit::demo::Demo;

const SPOT: &str = r#"{"shape":"circle","center":[0.85,0.2],"radius":0.25,"feather":0.2}"#;

fn apply(demo: &Demo, name: &str, strength: f64, mask: Option<&str>) -> Result<AppliedLook, VocabularyError> {
    let values = BTreeMap::from([(STRENGTH.to_owned(), strength)]);
    let mask: Option<MaskSpec> = mask.map(|text| serde_json::from_str(text).unwrap());
    let request = ApplyRequest { move_name: name, values: &values, mask: mask.as_ref() };
    demo.vocabulary.apply_look(&request, &demo.facts.baseline, &demo.facts, &demo.layouts, demo.version())
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
