use std::collections::BTreeMap;

use super::*;
use base::assets::Overlay;
use engine::photo::{Setting, Standing};
use engine::vocabulary::Vocabulary;

fn made(name: &str, values: &[(&str, f64, &str)], mask: Option<serde_json::Value>) -> AppliedMove {
    let setting = |(name, value, unit): &(&str, f64, &str)| {
        ((*name).to_owned(), Setting { unit: (*unit).to_owned(), value: *value })
    };
    AppliedMove {
        module: "some".into(),
        name: name.into(),
        mask,
        values: values.iter().map(setting).collect::<BTreeMap<_, _>>(),
        ..AppliedMove::default()
    }
}

fn vocabulary() -> Vocabulary {
    Vocabulary::load(&Overlay::vocabulary(None)).unwrap()
}

fn history(vocabulary: &Vocabulary, moves: Vec<AppliedMove>) -> History<'_> {
    let lines = vec!["temperature: blue +1.60 → +1.47".to_owned()];
    History { moves, standing: Standing::default(), vocabulary, lines }
}

/// One move in twenty and more notations; `1.8` stands for its value.
const NOTATIONS: [&str; 26] = [
    "clarity amount=1.80",
    "clarity --value 1.8",
    "clarity --amount=1.8",
    "clarity 1.8",
    "clarity amount = 1.8",
    "clarity(amount=1.8)",
    "clarity(1.8)",
    "clarity: +1.8",
    "clarity:1.8",
    "clarity +1.80",
    "`clarity` amount 1.8",
    "**clarity** (amount: 1.8)",
    "- clarity amount=1.8 on the whole picture",
    "1. clarity amount=1.8",
    "Clarity at 1.8",
    "clarity, amount 1.8",
    "clarity → 1.8",
    "clarity 0.9 → 1.8",
    "clarity 0.9 -> 1.8",
    "clarity raised to 1.8",
    "+1.8 clarity",
    "set clarity to 1.8",
    "apply_primitive clarity amount=1.8",
    r#"{"primitive_name": "clarity", "parameter_values": {"amount": 1.8}}"#,
    r#"apply_primitive {"primitive_name":"clarity","parameter_values":{"amount":1.80}}"#,
    "clarity#0 amount=1.80",
];

#[test]
fn a7_every_notation_of_a_move_that_was_made_is_accepted_and_of_another_refused() {
    let vocabulary = vocabulary();
    let with = |name: &str, value: f64| {
        history(
            &vocabulary,
            vec![made(name, &[("amount", value, "")], None), made("grain", &[("amount", 0.3, "")], None)],
        )
    };
    for claim in NOTATIONS {
        assert_eq!(verify_claim(claim, &with("clarity", 1.8)), Ok(()), "{claim}");
        for (other, wrong) in [("the value", with("clarity", 0.4)), ("the move", with("texture", 1.8))] {
            let fault = verify_claim(claim, &wrong).unwrap_err();
            assert_eq!(fault.details["field"], "key_moves");
            let there = fault.details["real_moves"][0].as_str().unwrap();
            assert!(fault.message.contains(there), "{other}, {claim}: {}", fault.message);
        }
    }
}

#[test]
fn a_masked_move_is_accepted_with_and_without_words_about_its_place() {
    let vocabulary = vocabulary();
    let ellipse = serde_json::json!({"shape": "ellipse", "center": [0.32, 0.41], "radius": [0.1, 0.06]});
    let sky = serde_json::json!({"named": "sky", "opacity": 0.5});
    let regions = |ev: f64| {
        history(
            &vocabulary,
            vec![
                made("exposure", &[("ev", ev, "EV")], Some(ellipse.clone())),
                made("exposure", &[("ev", -0.25, "EV")], Some(sky.clone())),
                made("shadows_lift", &[("amount", 0.6, "EV")], Some(sky.clone())),
            ],
        )
    };
    for claim in [
        "exposure ev=1.10 EV on ellipse at 0.32, 0.41",
        "exposure +1.10 EV ellipse at 0.32, 0.41",
        "exposure on ellipse at 0.32, 0.41: ev=1.1",
        "exposure (ellipse at 0.32, 0.41) +1.1 EV",
        "exposure +1.1 EV in the lower left 30 % of the frame",
        "exposure ev=1.1, radius=0.1",
        "2 regions of exposure: +1.10 EV ellipse at 0.32, 0.41; -0.25 EV sky at 50 %",
        "2 regions of exposure: \u{2212}0.25 EV sky at 50 %; +1.10 EV ellipse at 0.32, 0.41",
        "2 regions: exposure +1.10 EV ellipse at 0.32, 0.41; exposure -0.25 EV, shadows_lift +0.60 EV sky at 50 %",
        "32 regions of exposure: +1.10 EV ellipse at 0.32, 0.41; … and 31 more",
        "exposure 1.1 and shadows lift 0.6 on the sky",
    ] {
        assert_eq!(verify_claim(claim, &regions(1.1)), Ok(()), "{claim}");
        assert!(verify_claim(claim, &regions(0.7)).is_err(), "{claim}");
    }
    for claim in ["exposure", "exposure -0.25 EV", "exposure on sky", "Shadows-lift 0.6 EV"] {
        assert_eq!(verify_claim(claim, &regions(1.1)), Ok(()), "{claim}");
    }
    for claim in [
        "exposure on sky 9.9",
        "exposure 0.32",
        "exposure on ellipse at 0.7, 0.7",
        "2 regions of exposure: +1.10 EV ellipse at 0.32, 0.41; +0.90 EV sky at 50 %",
        "exposure 1.1 and clarity 0.4",
        "exposure#7 ev=1.1",
        "exposure other=1.1",
    ] {
        assert!(verify_claim(claim, &regions(1.1)).is_err(), "{claim}");
    }
}

#[test]
fn values_have_their_own_parameter_unit_and_words() {
    let vocabulary = vocabulary();
    let look = vocabulary.looks().next().unwrap().name.clone();
    let history = history(
        &vocabulary,
        vec![
            made(&look, &[("strength", 0.5, "")], None),
            made("illuminant", &[("shift", -40.0, "mired"), ("magenta", 5.0, "10⁻³ Duv")], None),
            AppliedMove { module: "retouch".into(), name: "apply_spot".into(), ..AppliedMove::default() },
        ],
    );
    for claim in [
        format!("look {look} at 50 %"),
        format!("{look} strength=0.50"),
        format!("{} 0.5", look.replace('_', " ")),
        "illuminant magenta=5.00 10⁻³ Duv shift=-40.00 mired".into(),
        "illuminant −40 mired".into(),
        "illuminant shift –40".into(),
        "2 spots: heal at 0.30, 0.30; clone at 0.60, 0.30".into(),
        "apply_spot".into(),
        "temperature: blue +1.60 → +1.47".into(),
    ] {
        assert_eq!(verify_claim(&claim, &history), Ok(()), "{claim}");
    }
    for claim in [
        "",
        "magic 3",
        "illuminant shift=5 magenta=-40",
        "illuminant shift=40",
        "temperature: blue +1.60 → +1.50",
        "clarity, to match the illuminant",
    ] {
        assert!(verify_claim(claim, &history).is_err(), "{claim}");
    }
    // A word of prose that is also a move's name is no claim.
    assert_eq!(verify_claim("illuminant -40 for contrast", &history), Ok(()));
}
