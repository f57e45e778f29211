//! What a vision model that worked with these tools found wrong, worst first, in one session that makes each mistake
//! possible again.

use std::sync::{Arc, LazyLock, Mutex};

use crate::support::{Studio, confirm, reply, request, results};
use base::error::ErrorCode;
use chemigram::conversation::Message;
use chemigram::gate::{ModelCall, Permit};
use chemigram::provider::script::Script;
use chemigram::provider::{Attempt, ModelInfo, ModelRequest, Provider};
use chemigram::session::start;
use chemigram::tools;
use chemigram::transcript::{Event, Flag, Line, Outcome};
use engine::vocabulary::grey_card::{self, Light};
use serde_json::{Value, json};

/// A range within a shape: what the module sees decides where it is.
const LIGHT: &str = r#"{"range": "luminance", "from": 55, "to": 100}"#;
/// A twentieth of the picture.
const SMALL: &str = r#"{"shape": "circle", "center": [0.7, 0.8], "radius": 0.15, "feather": 0.1}"#;

/// The session's lines, and all that the model was sent with the last call.
struct Trial {
    lines: Vec<Line>,
    sent: String,
    system: String,
}

/// A script that keeps the words that it is sent.
struct Listening(Script, Mutex<String>);

impl Provider for Listening {
    fn info(&self) -> &ModelInfo {
        self.0.info()
    }

    fn attempt<'a>(&'a self, permit: Permit<ModelCall>, request: &'a ModelRequest<'a>) -> Attempt<'a> {
        let words = |message: &Message| match message {
            Message::User { text, .. } | Message::Assistant { text, .. } => text.clone(),
            Message::Results { results } => results.iter().map(|result| result.text.clone() + "\n").collect(),
        };
        *self.1.lock().unwrap() = request.messages.iter().map(words).collect::<Vec<_>>().join("\n");
        self.0.attempt(permit, request)
    }
}

static TRIAL: LazyLock<Trial> = LazyLock::new(|| {
    let exposure =
        format!(r#"{{"primitive_name": "exposure", "parameter_values": {{"ev": -1.5}}, "mask": {LIGHT}}}"#);
    let shown = format!(r#"{{"show_mask": {LIGHT}, "mask_for": "exposure"}}"#);
    let replaced = format!(r#"{{"instance": "exposure#1", "mask": {SMALL}}}"#);
    let regions = format!(
        r#"{{"primitive_name": "exposure", "regions": [{{"mask": {SMALL}, "parameter_values": {{"ev": -1.1}}}}, {{"mask": {{"shape": "circle", "center": [0.2, 0.2], "radius": 0.1}}, "parameter_values": {{"ev": -0.5}}}}]}}"#
    );
    let claim = "2 regions of exposure: -1.10 EV circle at 0.70, 0.80; -0.50 EV circle at 0.20, 0.20";
    let judged = format!(
        r#"{{"branch": "branch_b_tone", "judged_score": 4, "judged_reasoning": "The corner is darker.", "key_moves": ["{claim}"]}}"#
    );
    let script = [
        confirm(&["tone"]),
        reply(&[
            ("list_vocabulary", r#"{"query": "cooler in the lamp light"}"#),
            ("list_vocabulary", r#"{"tag": "wb"}"#),
            ("render_preview", r#"{"size": 2048}"#),
        ]),
        reply(&[
            ("branch", r#"{"name": "branch_b_tone"}"#),
            ("render_preview", &shown),
            ("apply_primitive", &exposure),
            ("render_preview", r#"{"show_mask": "exposure"}"#),
        ]),
        reply(&[("replace_mask", &replaced), ("render_preview", "{}"), ("get_state", "{}")]),
        reply(&[
            ("grey_card", r#"{"center": [0.42, 0.42], "strength": 0.5, "preview": true}"#),
            ("apply_primitive", r#"{"primitive_name": "exposre"}"#),
            ("apply_primitive", r#"{"primitive_name": "contrast"}"#),
            ("image_stats", "{}"),
            ("get_state", "{}"),
        ]),
        reply(&[
            ("apply_primitive", r#"{"primitive_name": "black_and_white"}"#),
            ("render_preview", "{}"),
            ("remove_module", r#"{"module": "black_and_white"}"#),
            ("remove_module", r#"{"module": "exposure#1"}"#),
            ("apply_per_region", &regions),
            ("record_judgment", &judged),
            ("end_mode_b_session", r#"{"session_summary": "One branch."}"#),
        ]),
    ]
    .concat();
    let studio = Studio::new();
    let script = Script::parse("model trial", &script).unwrap();
    let provider = Arc::new(Listening(script, Mutex::default()));
    let setup = studio.setup(provider.clone());
    let asked = request("time=10m,iterations=60,branches=1", &[("tone", "darker")]);
    let plan = start::plan(&setup, &asked).unwrap();
    let system = plan.system.clone();
    let mut session = start::start(setup, plan).unwrap();
    let end = crate::support::run(&mut session);
    let lines = studio.lines(&session.state.start.session);
    assert_eq!(end.outcome, Outcome::Completed, "{}: {:?}", end.reason, lines.last());
    let sent = provider.1.lock().unwrap().clone();
    Trial { lines, sent, system }
});

/// What a tool answered the so-manieth time, from 0, or the error.
fn answer(tool: &str, at: usize) -> Result<Value, (ErrorCode, Value)> {
    let (code, text) = results(&TRIAL.lines, tool)[at];
    let read: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    match code {
        Some(code) => Err((code, read["error"].clone())),
        None => Ok(read["data"].clone()),
    }
}

#[test]
fn fault_01_the_mask_of_a_placed_move_is_shown_where_it_was_before_the_move() {
    let [before, after] = [1, 2].map(|at| answer("render_preview", at).unwrap());
    let covered = |shown: &Value| shown["covered_percent"].as_f64().unwrap();
    assert!(covered(&before) > 5.0 && covered(&before) < 80.0, "{before}");
    // Pixel by pixel: tests/pixels/show_mask.rs.
    assert!((covered(&before) - covered(&after)).abs() < 0.5, "{before} {after}");
}

#[test]
fn fault_02_a_placed_move_has_an_id_by_which_its_mask_is_replaced_and_it_is_removed() {
    assert_eq!(answer("apply_primitive", 0).unwrap()["instances"], json!(["exposure#1"]));
    assert_eq!(answer("replace_mask", 0).unwrap()["instances"], json!(["exposure#1"]));
    assert_eq!(answer("remove_module", 1).unwrap()["removed"], json!(["exposure#1"]));
}

#[test]
fn fault_03_what_apply_per_region_returns_is_a_key_move_word_for_word() {
    let op = answer("apply_per_region", 0).unwrap()["op"].as_str().unwrap().replace('\u{2212}', "-");
    assert!(op.starts_with("2 regions of exposure: "), "{op}");
    let recorded = TRIAL.lines.iter().find_map(|line| match &line.event {
        Event::Judgment(judgment) => Some(judgment.key_moves.clone()),
        _ => None,
    });
    assert_eq!(recorded.unwrap(), [op]);
}

#[test]
fn fault_04_the_list_leads_to_a_white_balance_that_takes_a_mask() {
    for at in [0, 1] {
        let listed = answer("list_vocabulary", at).unwrap();
        let lines = listed["moves"].as_array().unwrap();
        let found = lines.iter().filter_map(Value::as_str).find(|line| line.starts_with("local_warmth("));
        assert!(found.is_some_and(|line| line.ends_with("[may be masked]")), "{listed}");
    }
}

#[test]
fn fault_05_a_grey_card_says_what_it_measured_and_refuses_what_no_light_explains() {
    let looked = answer("grey_card", 0).unwrap();
    let chroma = |at: &str| {
        let of = |axis: &str| looked["spot"][at][axis].as_f64().unwrap();
        of("a").hypot(of("b"))
    };
    assert!(chroma("before") > 20.0 && chroma("after") < 0.8 * chroma("before"), "{looked}");
    assert!(looked["light"]["kelvin"].is_number() && looked["light"]["duv"].is_number(), "{looked}");
    // A preview changes nothing: the next call that lists the moves has no white balance.
    assert!(looked["preview"] == true && !answer("get_state", 1).unwrap().to_string().contains("balance"));
    let grass = grey_card::check(Light { kelvin: 5_600.0, duv: 0.08 }, false).unwrap_err().to_string();
    assert!(grass.contains("5600") && grass.contains("0.08"), "{grass}");
    assert!(grey_card::check(Light { kelvin: 5_600.0, duv: 0.08 }, true).is_ok(), "forced");
}

#[test]
fn fault_06_a_size_that_the_photo_does_not_have_is_said() {
    let size = answer("render_preview", 0).unwrap()["size"].clone();
    assert!(size.as_str().is_some_and(|size| size.starts_with("2048 asked, the photo has ")), "{size}");
}

#[test]
fn fault_07_numbers_are_defined_and_a_local_wish_is_measured_where_it_acts() {
    let looked = answer("render_preview", 3).unwrap();
    for name in
        looked["numbers"].as_object().unwrap().keys().map(String::as_str).chain(["direction", "steps"])
    {
        assert!(TRIAL.system.contains(&format!("`{name}`")), "`{name}` is defined nowhere");
    }
    assert!(!looked.to_string().contains("leakage"), "{looked}");
    let numbers = |at: &str| looked["numbers"][at].as_str().unwrap().to_owned();
    let tones: Vec<f64> = numbers("mean_L").split(" → ").map(|tone| tone.parse().unwrap()).collect();
    assert!(tones[0] - tones[tones.len() - 1] < 1.0, "the whole frame says missed: {looked}");
    assert_eq!(looked["direction"], "met", "{looked}");
    let steps = looked["steps"]["brightness"].as_str().unwrap();
    let moved: f64 = steps.strip_suffix(" where it changed").unwrap().parse().unwrap();
    assert!(moved > 3.0, "{looked}");
    let flags = TRIAL.lines.iter().find_map(|line| match &line.event {
        Event::Judgment(judgment) => Some(judgment.flags.clone()),
        _ => None,
    });
    assert!(!flags.unwrap().contains(&Flag::ClaimsNotSupported));
}

#[test]
fn fault_08_nothing_is_warned_of_that_cannot_be_helped() {
    let untouched = answer("render_preview", 0).unwrap();
    assert!(untouched.get("warnings").is_none() && untouched.get("direction").is_none(), "{untouched}");
    let grey = answer("render_preview", 4).unwrap();
    assert!(grey["numbers"]["chroma"].as_str().unwrap().ends_with("→ 0.0"), "{grey}");
    assert!(!grey["warnings"].to_string().contains("very large"), "{grey}");
}

#[test]
fn fault_09_a_model_reads_the_vocabularys_words_and_units_and_no_channels() {
    assert_eq!(
        answer("get_state", 0).unwrap()["moves"],
        json!(["exposure#1 ev=-1.50 EV on circle at 0.70, 0.80"])
    );
    assert!(!answer("get_state", 0).unwrap().to_string().contains("channel"));
}

#[test]
fn fault_10_after_a_change_that_failed_the_rest_of_the_reply_is_not_made() {
    let (code, error) = answer("apply_primitive", 2).unwrap_err();
    assert_eq!(code, ErrorCode::SkippedAfterError);
    assert_eq!(error["details"]["cause"]["tool"], "apply_primitive");
    assert!(answer("image_stats", 0).is_ok(), "looking goes on");
}

#[test]
fn fault_11_the_schema_says_how_masks_are_measured() {
    let schema = tools::find("apply_primitive").unwrap().spec().parameters;
    for (field, rule) in [
        ("feather", "grows outward"),
        ("width", "share of the diagonal"),
        ("radius", "circle: share of the shorter side; ellipse: [share of width, share of height]"),
        ("blur", "the whole mask"),
        ("range", "L*"),
    ] {
        let text = schema["properties"]["mask"]["properties"][field]["description"].as_str().unwrap();
        assert!(text.contains(rule), "{field}: {text}");
    }
}

#[test]
fn fault_12_the_brief_comes_once_and_there_is_one_scale_of_scores() {
    let all = format!("{}\n{}", TRIAL.system, TRIAL.sent);
    assert_eq!(all.matches("Quiet, warm.").count(), 1, "the brief comes once");
    let judge = tools::find("record_judgment").unwrap().spec().parameters;
    let scale = judge["properties"]["judged_score"]["description"].as_str().unwrap();
    let scale = scale.split(';').next().unwrap();
    assert!(scale.starts_with("1 worse, ") && TRIAL.system.contains(scale), "{scale}");
}
