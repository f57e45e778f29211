//! A scripted agent that tries what it may not: refused, told why, and the transcript has it.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)]

use crate::support;
use crate::support::{Studio, confirm, reply, request, results};
use base::error::ErrorCode;
use chemigram::transcript::Outcome;

fn code(of: &[(Option<ErrorCode>, &str)], n: usize) -> ErrorCode {
    of[n].0.unwrap_or_else(|| panic!("call {n} was let through: {}", of[n].1))
}

#[test]
fn main_tags_paths_and_claims_are_out_of_reach() {
    let studio = Studio::new();
    let before = (
        studio.workspace.branches().unwrap(),
        studio.workspace.tags().unwrap(),
        studio.workspace.head().unwrap(),
    );
    let judge = |moves: &str| {
        format!(
            r#"{{"branch": "branch_b_tone", "judged_score": 5, "judged_reasoning": "Great.", "key_moves": [{moves}]}}"#
        )
    };
    let script = [
        confirm(&["tone"]),
        reply(&[("branch", r#"{"name": "main"}"#)]),
        reply(&[("branch", r#"{"name": "x/../../y"}"#)]),
        reply(&[("branch", r#"{"name": "feature"}"#), ("mode_b_status", "{}")]),
        reply(&[("checkout", r#"{"ref": "main"}"#)]),
        reply(&[("apply_primitive", r#"{"primitive_name": "shadows_lift"}"#)]),
        reply(&[("tag", r#"{"name": "v2"}"#)]),
        reply(&[("tag", r#"{"name": "../v2"}"#)]),
        reply(&[
            ("branch", r#"{"name": "branch_b_tone"}"#),
            ("apply_primitive", r#"{"primitive_name": "shadows_lift"}"#),
        ]),
        reply(&[("branch", r#"{"name": "branch_b_tone"}"#)]),
        reply(&[("record_judgment", &judge(r#""grain_add amount=20""#))]),
        reply(&[("record_judgment", &judge(r#""shadows_lift amount=1.9""#))]),
        reply(&[("record_judgment", &judge(r#""shadows_lift""#)), ("tag", r#"{"name": "branch_b_pick"}"#)]),
        reply(&[
            ("mode_b_status", "{}"),
            ("render_preview", r#"{"size": 100000}"#),
            ("apply_primitive", r#"{"primitive_name": "shadows_lift", "parameter_values": {"amount": 99}}"#),
        ]),
        reply(&[("apply_primitive", r#"{"primitive_name": "shadows_lifd"}"#), ("mode_b_status", "{}")]),
        reply(&[("accept_proposal", r#"{"id": "1"}"#), ("bash", r#"{"command": "rm -rf /"}"#)]),
        reply(&[("end_mode_b_session", r#"{"session_summary": "Tried everything."}"#)]),
    ]
    .concat();
    let (end, lines) =
        studio.run(&script, &request("time=5m,iterations=60,branches=3", &[("tone", "lift the shadows")]));
    assert_eq!(end.outcome, Outcome::Completed, "{}", end.reason);

    let branches = results(&lines, "branch");
    assert_eq!(code(&branches, 0), ErrorCode::PermissionDenied);
    assert_eq!(code(&branches, 1), ErrorCode::InvalidInput);
    assert_eq!(code(&branches, 2), ErrorCode::PermissionDenied);
    assert_eq!(branches[3].0, None);
    assert!(branches[4].0.is_some(), "a second branch of that name");
    assert!(branches[0].1.contains("branch_b_"), "it is told what is allowed: {}", branches[0].1);
    assert_eq!(
        code(&results(&lines, "apply_primitive"), 0),
        ErrorCode::StateError,
        "the baseline is not edited in place"
    );
    let tags = results(&lines, "tag");
    assert_eq!((code(&tags, 0), code(&tags, 1)), (ErrorCode::PermissionDenied, ErrorCode::InvalidInput));
    assert_eq!(tags[2].0, None);
    let judgments = results(&lines, "record_judgment");
    assert_eq!(
        (code(&judgments, 0), code(&judgments, 1)),
        (ErrorCode::InvalidInput, ErrorCode::InvalidInput)
    );
    assert!(judgments[0].1.contains("shadows_lift amount="), "it is told the real moves: {}", judgments[0].1);
    assert_eq!(judgments[2].0, None);
    assert_eq!(code(&results(&lines, "render_preview"), 0), ErrorCode::InvalidInput);
    let edits = results(&lines, "apply_primitive");
    assert!(
        edits[2].1.contains("max") || edits[2].1.contains("range") || edits[2].1.contains("to 2"),
        "{}",
        edits[2].1
    );
    assert!(edits[3].1.contains("shadows_lift"), "did you mean: {}", edits[3].1);
    assert_eq!(code(&results(&lines, "accept_proposal"), 0), ErrorCode::NotFound);

    let main = |refs: &Vec<(base::ids::RefName, base::ids::Hash)>| {
        refs.iter().find(|r| r.0.as_str() == "main").map(|r| r.1.clone())
    };
    assert_eq!(main(&studio.workspace.branches().unwrap()), main(&before.0));
    assert_eq!(studio.workspace.head().unwrap(), before.2);
    let tags: Vec<String> = studio.workspace.tags().unwrap().iter().map(|t| t.0.to_string()).collect();
    assert_eq!(tags, ["baseline", "branch_b_pick"]);
    assert!(!studio.dir.path().join("y").exists());
}

#[test]
fn a_second_session_on_the_photo_is_refused_and_names_the_first() {
    let studio = Studio::new();
    let request = request("standard", &[("tone", "lift the shadows")]);
    let first = studio.scripted(&confirm(&["tone"]), &request);
    let setup = studio.setup(std::sync::Arc::new(
        chemigram::provider::script::Script::parse("second", &confirm(&["tone"])).unwrap(),
    ));
    let plan = chemigram::session::start::plan(&setup, &request).unwrap();
    let Err(error) = chemigram::session::start::start(setup, plan) else {
        panic!("a second session started")
    };
    assert_eq!(base::error::Coded::code(&error), ErrorCode::StateError);
    assert!(error.to_string().contains(first.state.start.session.as_str()), "{error}");
}

#[test]
fn a_question_that_nobody_answers_ends_the_session_and_the_answer_takes_it_up_again() {
    let studio = Studio::new();
    let script = [
        reply(&[("ask_clarification", r#"{"question": "May the sky go?"}"#)]),
        confirm(&["tone"]),
        reply(&[("branch", r#"{"name": "branch_b_tone"}"#)]),
        reply(&[("record_judgment", r#"{"branch": "branch_b_tone", "judged_reasoning": "As it was."}"#)]),
        reply(&[("end_mode_b_session", r#"{"session_summary": "Answered."}"#)]),
    ]
    .concat();
    let request = request("time=5m,iterations=30,branches=1", &[("tone", "lift the shadows")]);
    let mut session = studio.scripted(&script, &request);
    assert_eq!(support::run(&mut session).outcome, Outcome::NeedsClarification);
    let id: base::ids::SessionId = session.state.start.session.clone();
    drop(session);
    assert!(studio.tip("branch_b_tone").is_none());
    let again = || {
        studio.setup(std::sync::Arc::new(chemigram::provider::script::Script::parse("s", &script).unwrap()))
    };
    let resume = |answer: Option<&str>| chemigram::session::start::Resume {
        referee: Default::default(),
        fallback: None,
        answer: answer.map(Into::into),
        raise: None,
    };
    assert!(
        chemigram::session::start::resume(again(), &id, resume(None)).is_err(),
        "without an answer it waits"
    );
    let mut session = chemigram::session::start::resume(again(), &id, resume(Some("No, keep it."))).unwrap();
    assert_eq!(support::run(&mut session).outcome, Outcome::Completed);
    assert!(studio.tip("branch_b_tone").is_some());
}
