//! Several calls in one reply: what becomes of those after one that failed, and of placed moves by their ids.

use serde_json::Value;

use crate::session::rig::{self, Rig, begin, request, run};
use crate::session::start;
use crate::session::state::State;
use crate::transcript::{self, Event, Line, Outcome};
use base::error::ErrorCode;

const BUDGET: &str = "time=20h,iterations=40,branches=2,renders=40";
const CONFIRM: &str =
    r#"{ name = "confirm_session", arguments = { vectors = [{ name = "tone", restated = "Open." }] } }"#;
const BRANCH: &str = r#"{ name = "branch", arguments = { name = "branch_b_tone" } }"#;
const END: &str = r#"{ name = "end_mode_b_session", arguments = { session_summary = "Done." } }"#;
const CIRCLE: &str = r#"{ shape = "circle", center = [0.8, 0.5], radius = 0.1 }"#;
const OTHER: &str = r#"{ shape = "circle", center = [0.2, 0.5], radius = 0.1 }"#;

fn exposure(name: &str, ev: f64, mask: &str) -> String {
    let mask = if mask.is_empty() { String::new() } else { format!(", mask = {mask}") };
    format!(
        r#"{{ name = "apply_primitive", arguments = {{ primitive_name = "{name}", parameter_values = {{ ev = {ev} }}{mask} }} }}"#
    )
}

fn judge(moves: &str) -> String {
    format!(
        r#"{{ name = "record_judgment", arguments = {{ branch = "branch_b_tone", judged_score = 4, judged_reasoning = "Open.", comparable_to_baseline = true, key_moves = [{moves}] }} }}"#
    )
}

fn reply(calls: &[&str]) -> String {
    format!("[[reply]]\ncalls = [{}]\n", calls.join(", "))
}

/// A result: the tool, the code, and what the model read.
type Answered = (String, Option<ErrorCode>, Value);

/// Runs a session: how it ended, its transcript, and each result as tool, code and what the model read.
fn session(replies: &[String]) -> (Outcome, Vec<Line>, Vec<Answered>) {
    let rig = Rig::new();
    let mut session = begin(rig.setup(&replies.concat()), &request(BUDGET, &["tone"])).unwrap();
    let end = run(&mut session).unwrap();
    let id = rig::sessions(&rig.library).remove(0);
    let path = rig::photo(&rig.library).session_folder(&id).join("transcript.jsonl");
    let lines = transcript::read(&path).unwrap().lines;
    let results = lines.iter().filter_map(|line| match &line.event {
        Event::ToolResult { result, code, .. } => {
            let body = result.text.lines().next().unwrap_or_default();
            Some((result.name.clone(), *code, serde_json::from_str(body).unwrap()))
        }
        _ => None,
    });
    let results = results.collect();
    (end.outcome, lines, results)
}

fn codes(results: &[Answered]) -> Vec<(&str, Option<ErrorCode>)> {
    results.iter().map(|(name, code, _)| (name.as_str(), *code)).collect()
}

#[test]
fn after_a_change_that_failed_the_rest_of_the_reply_is_skipped_but_for_looking() {
    let bad = exposure("exposre", 0.4, "");
    let good = exposure("exposure", 0.4, "");
    let (outcome, lines, results) = session(&[
        reply(&[CONFIRM]),
        reply(&[BRANCH, &bad, &good, r#"{ name = "image_stats" }"#, &judge(""), END]),
        reply(&[&good, &judge(r#""exposure 0.4""#), END]),
    ]);
    use ErrorCode::{NotFound, SkippedAfterError};
    let skipped = Some(SkippedAfterError);
    assert_eq!(
        codes(&results),
        [
            ("confirm_session", None),
            ("branch", None),
            ("apply_primitive", Some(NotFound)),
            ("apply_primitive", skipped),
            ("image_stats", None),
            ("record_judgment", skipped),
            ("end_mode_b_session", skipped),
            ("apply_primitive", None),
            ("record_judgment", None),
            ("end_mode_b_session", None),
        ]
    );
    assert_eq!(outcome, Outcome::Completed);
    let cause = &results[3].2["error"]["details"]["cause"];
    assert_eq!((&cause["tool"], &cause["code"]), (&"apply_primitive".into(), &"NOT_FOUND".into()));
    // What was not made was not let through either, and costs nothing.
    let dispatched = lines.iter().filter(|line| matches!(line.event, Event::ToolCall(_))).count();
    let refused = results.iter().filter(|(_, code, _)| *code == skipped).count();
    assert_eq!((dispatched, refused), (results.len() - refused, 3));
}

#[test]
fn a_judgment_that_is_refused_takes_the_end_of_its_reply_with_it_and_not_the_session() {
    let good = exposure("exposure", 0.4, "");
    let (outcome, _, results) = session(&[
        reply(&[CONFIRM, BRANCH, &good]),
        // It has a judgment already, so that the end alone would be let through.
        reply(&[&judge(r#""exposure ev=0.4""#)]),
        reply(&[&judge(r#""exposure ev=0.9""#), END]),
        reply(&[&judge(r#""exposure: +0.4 EV""#), END]),
    ]);
    let tail = codes(&results).split_off(4);
    let (invalid, skipped) = (Some(ErrorCode::InvalidInput), Some(ErrorCode::SkippedAfterError));
    assert_eq!(
        tail,
        [
            ("record_judgment", invalid),
            ("end_mode_b_session", skipped),
            ("record_judgment", None),
            ("end_mode_b_session", None)
        ]
    );
    assert_eq!(results[4].2["error"]["details"]["real_moves"][0], "exposure ev=0.40 EV");
    assert_eq!(outcome, Outcome::Completed);
}

#[test]
fn c13_calls_of_one_reply_that_fail_alike_count_once_and_a_note_blocks_nothing() {
    let wrong = r#"{ name = "log", arguments = { limits = 3 } }"#;
    let note = r#"{ name = "propose_notes_update", arguments = { text = "The rim clips." } }"#;
    let (outcome, _, results) =
        session(&[reply(&[CONFIRM, BRANCH]), reply(&[wrong; 7]), reply(&[note, note, &judge(""), END])]);
    assert_eq!(outcome, Outcome::Completed);
    let failed = results.iter().filter(|(_, code, _)| code.is_some()).count();
    assert_eq!(failed, 8, "{:?}", codes(&results));
    // In replies of their own they are five, and the session wraps up.
    let mut replies = vec![reply(&[CONFIRM, BRANCH])];
    replies.extend((0..5).map(|n| reply(&[&wrong.replace('3', &n.to_string())])));
    replies.extend([reply(&[&judge(""), END])]);
    assert_eq!(session(&replies).0, Outcome::BudgetExhausted);
}

/// What an earlier build wrote: the calls after the one that failed were made.
#[test]
fn a_transcript_of_an_earlier_build_is_folded_as_it_was() {
    let good = exposure("exposure", 0.4, "");
    let (_, lines, _) =
        session(&[reply(&[CONFIRM, BRANCH]), reply(&[&good, &good, END]), reply(&[&judge(""), END])]);
    let Event::SessionStart(start) = &lines[0].event else { panic!("no header") };
    let mut state = State::begin(&lines[0], start.baseline.clone(), None).unwrap();
    let mut tampered = 0;
    for line in &lines[1..] {
        let mut line = line.clone();
        if let Event::ToolResult { result, code, .. } = &mut line.event
            && result.name == "apply_primitive"
            && tampered == 0
        {
            tampered += 1;
            *code = Some(ErrorCode::InvalidInput);
        }
        state.fold(&line);
    }
    assert!(tampered == 1 && state.end.is_some() && state.pending().next().is_none());
}

#[test]
fn replies_name_instances_by_ids_and_tools_take_them() {
    let remove = |name: &str| format!(r#"{{ name = "remove_module", arguments = {{ module = "{name}" }} }}"#);
    let replace =
        r#"{ name = "replace_mask", arguments = { instance = "exposure#2", mask = { named = "sky" } } }"#;
    let regions = format!(
        r#"{{ name = "apply_per_region", arguments = {{ primitive_name = "saturation", regions = [{{ mask = {CIRCLE} }}, {{ mask = {OTHER} }}] }} }}"#
    );
    let state = r#"{ name = "get_state" }"#;
    let (outcome, _, results) = session(&[
        reply(&[CONFIRM, BRANCH]),
        reply(&[
            &exposure("exposure", 0.4, CIRCLE),
            &exposure("exposure", -0.3, OTHER),
            &exposure("exposure", 0.1, ""),
        ]),
        reply(&[&exposure("exposure#1", 0.6, ""), replace, &regions, state]),
        reply(&[&judge(
            r#""exposure#1 0.6", "exposure#2 mask replaced: on sky", "2 regions of saturation: +0.25 circle at 0.80, 0.50; +0.25 circle at 0.20, 0.50", "exposure#2 ev=-0.30 EV on sky""#,
        )]),
        reply(&[&remove("exposure#2"), &remove("saturation"), state]),
        reply(&[&remove("exposure"), &remove("exposure#1"), state]),
        reply(&[&judge(r#""exposure 0.6""#), END]),
        reply(&[&judge(""), END]),
    ]);
    assert_eq!(outcome, Outcome::Completed);
    let data = |at: usize| &results[at].2["data"];
    assert_eq!(data(2)["instances"], serde_json::json!(["exposure#1"]));
    assert_eq!(data(3)["instances"], serde_json::json!(["exposure#2"]));
    assert!(data(3)["note"].as_str().unwrap().contains("exposure#1 stays as it was"), "{}", data(3));
    assert_eq!((&data(4)["instances"], &data(4)["note"]), (&serde_json::json!(["exposure#0"]), &Value::Null));
    assert_eq!(data(5)["instances"], serde_json::json!(["exposure#1"]));
    assert_eq!(
        (&data(6)["instances"], &data(6)["op"]),
        (&serde_json::json!(["exposure#2"]), &"exposure#2 mask replaced: on sky".into())
    );
    assert_eq!(data(7)["instances"], serde_json::json!(["saturation#1", "saturation#2"]));
    let moves = data(8)["moves"].to_string();
    for stands in [
        "exposure#1 ev=0.60 EV on circle at 0.80, 0.50",
        "exposure#2 ev=-0.30 EV on sky",
        "exposure ev=0.10 EV",
    ] {
        assert!(moves.contains(stands), "{stands}: {moves}");
    }
    assert_eq!(results[9].1, None, "{}", results[9].2);
    assert_eq!(data(10)["removed"], serde_json::json!(["exposure#2"]));
    assert_eq!(data(11)["removed"], serde_json::json!(["saturation#1", "saturation#2"]));
    assert_eq!(
        data(12)["moves"],
        serde_json::json!(["exposure ev=0.10 EV", "exposure#1 ev=0.60 EV on circle at 0.80, 0.50"])
    );
    assert_eq!(data(13)["removed"], serde_json::json!(["exposure#1", "exposure#0"]));
    assert_eq!(results[14].1, Some(ErrorCode::NotFound));
    assert_eq!(data(15)["moves"], serde_json::json!([]));
    assert_eq!(results[16].1, Some(ErrorCode::InvalidInput), "what was taken back is no key move");
}

#[test]
fn a_grey_card_can_be_looked_at_first_and_is_shifted_by_warmth() {
    let card = |more: &str| {
        format!(r#"{{ name = "grey_card", arguments = {{ center = [0.5, 0.5], radius = 0.19{more} }} }}"#)
    };
    let apply = |name: &str, values: &str| {
        format!(
            r#"{{ name = "apply_primitive", arguments = {{ primitive_name = "{name}", parameter_values = {{ {values} }} }} }}"#
        )
    };
    let (gains, warmth) =
        (apply("white_balance_gains", "red = 0.64, blue = 1.44"), apply("warmth", "shift = 10"));
    let state = r#"{ name = "get_state" }"#;
    let (outcome, _, results) = session(&[
        reply(&[CONFIRM, BRANCH]),
        reply(&[&card(", preview = true"), state, &card(", strength = 2.0")]),
        reply(&[&gains, &card(", preview = true, strength = 0.5"), &warmth, state]),
        reply(&[&judge(r#""grey card""#)]),
        reply(&[&judge(r#""warmth 10", "white_balance_gains""#), END]),
    ]);
    assert_eq!(outcome, Outcome::Completed, "{results:?}");
    let data = |at: usize| &results[at].2["data"];
    assert_eq!(results[2].1, None, "{}", results[2].2);
    assert!(data(2)["preview"] == true && data(2).get("snapshot_hash").is_none(), "{}", data(2));
    assert!(data(2)["spot"]["before"]["L"].as_f64().unwrap() > 0.0, "{}", data(2));
    assert!((data(2)["light"]["kelvin"].as_f64().unwrap() - 6504.0).abs() < 100.0, "{}", data(2));
    assert_eq!(data(3)["moves"], serde_json::json!([]));
    assert_eq!(results[4].1, Some(ErrorCode::InvalidInput));
    assert_eq!(data(5)["instances"], serde_json::json!(["white_balance_gains#0"]));
    // The place is neutral with the camera's own gains: half the way there is the square root of each factor.
    let half = data(6)["would_be"].as_str().unwrap();
    assert!(half.contains("blue=1.20 ×") && half.contains("red=0.80 ×"), "{half}");
    let moves = data(8)["moves"].to_string();
    assert!(moves.contains("white_balance_gains") && moves.contains("warmth shift=10.00 mired"), "{moves}");
    assert_eq!(results[9].1, Some(ErrorCode::InvalidInput));
    assert_eq!(results[10].1, None, "{}", results[10].2);
}

/// A session that was cut between a failed change and what came after it goes on as it would have.
#[test]
fn a_session_cut_after_a_failed_change_skips_the_rest_when_it_is_taken_up() {
    let bad = exposure("exposre", 0.4, "");
    let good = exposure("exposure", 0.4, "");
    let script = [reply(&[CONFIRM, BRANCH]), reply(&[&bad, &good]), reply(&[&judge(""), END])].concat();
    let rig = Rig::new();
    let mut session = begin(rig.setup(&script), &request(BUDGET, &["tone"])).unwrap();
    run(&mut session).unwrap();
    drop(session);
    let id = rig::sessions(&rig.library).remove(0);
    let path = rig::photo(&rig.library).session_folder(&id).join("transcript.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    let cut =
        text.lines().position(|line| line.contains("\"NOT_FOUND\"") && line.contains("tool_result")).unwrap();
    let kept: String = text.lines().take(cut + 1).map(|line| format!("{line}\n")).collect();
    std::fs::write(&path, kept).unwrap();
    let mut session = start::resume(rig.setup(&script), &id, start::Resume::default()).unwrap();
    run(&mut session).unwrap();
    let lines = transcript::read(&path).unwrap().lines;
    let skipped = lines.iter().filter(|line| {
        matches!(
            &line.event,
            Event::ToolResult { code: Some(ErrorCode::SkippedAfterError), intent: None, .. }
        )
    });
    assert_eq!(skipped.count(), 1);
}
