//! Scripted agents that never stop, each stopped by one cap alone and never past it.
#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

use crate::support;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Studio, confirm, reply, request, results};
use base::error::{Coded, ErrorCode};
use chemigram::budget::Cap;
use chemigram::provider::script::Script;
use chemigram::session::start;
use chemigram::transcript::{Event, Line, Outcome};
use darktable::testing::{Fault, Faulty};
use engine::photo::Operation;

const TONE: &[(&str, &str)] = &[("tone", "lift the shadows")];

/// An agent that goes on editing for ever, a new value each time.
fn relentless(edits: usize) -> String {
    let mut script = confirm(&["tone"]) + &reply(&[("branch", r#"{"name": "branch_b_tone"}"#)]);
    for n in 0..edits {
        let value = 0.01 + n as f64 / 100.0;
        let call =
            format!(r#"{{"primitive_name": "shadows_lift", "parameter_values": {{"amount": {value}}}}}"#);
        script += &reply(&[("apply_primitive", &call)]);
    }
    script
}

fn dispatched(lines: &[Line]) -> usize {
    lines.iter().filter(|l| matches!(&l.event, Event::ToolCall(i) if i.reserved.iterations > 0)).count()
}

fn fired(lines: &[Line]) -> Vec<Cap> {
    let cap = |l: &Line| match &l.event {
        Event::CapFired { exhausted } => Some(exhausted.cap),
        _ => None,
    };
    lines.iter().filter_map(cap).collect()
}

#[test]
fn the_iteration_cap_stops_an_agent_that_never_stops() {
    let studio = Studio::new();
    let (end, lines) = studio.run(&relentless(60), &request("time=5m,iterations=7,branches=1", TONE));
    assert_eq!(end.outcome, Outcome::BudgetExhausted);
    assert_eq!(fired(&lines), [Cap::Iterations]);
    assert_eq!(dispatched(&lines), 7, "never past the cap, and the cap is used to the full");
    assert_eq!(end.spent.iterations, 7);
    // In the wrap-up it still tried to edit: refused each time, and nothing was made.
    let refused: Vec<_> = results(&lines, "apply_primitive").into_iter().filter_map(|r| r.0).collect();
    assert!(!refused.is_empty() && refused.iter().all(|c| *c == ErrorCode::BudgetExhausted), "{refused:?}");
    let made = lines.iter().filter(|l| matches!(l.event, Event::SnapshotCreated { .. })).count();
    assert_eq!(made, 7, "one branch and six edits");
    assert!(lines.iter().any(|l| matches!(&l.event, Event::Judgment(j) if j.judged_score == 3)));
}

#[test]
fn the_branch_cap_stops_an_agent_that_branches_for_ever() {
    let studio = Studio::new();
    let mut script = confirm(&["tone"]);
    for n in 0..20 {
        script += &reply(&[("branch", &format!(r#"{{"name": "branch_b_{n}"}}"#))]);
    }
    let (end, lines) = studio.run(&script, &request("time=5m,iterations=50,branches=2", TONE));
    assert_eq!(end.outcome, Outcome::BudgetExhausted);
    assert_eq!(fired(&lines), [Cap::Branches]);
    let standing: Vec<String> =
        studio.workspace.branches().unwrap().iter().map(|b| b.0.to_string()).collect();
    assert_eq!(standing, ["branch_b_0", "branch_b_1", "main"]);
    let (_, text) =
        *results(&lines, "branch").iter().find(|r| r.0 == Some(ErrorCode::BudgetExhausted)).unwrap();
    assert!(text.contains(r#""cap":"branches""#) && text.contains(r#""limit":2"#), "{text}");
}

#[test]
fn the_render_cap_stops_an_agent_that_only_looks() {
    let studio = Studio::new();
    // A cold cache, so that every look is a render: the session's own raw is as none before.
    let sizes = [200, 210, 220, 230, 240, 250, 260, 270];
    let mut script = confirm(&["tone"]);
    for (n, size) in sizes.iter().enumerate() {
        let size = size + u32::try_from(n).unwrap() + std::process::id() % 7;
        script += &reply(&[("render_preview", &format!(r#"{{"size": {size}}}"#))]);
    }
    let mut setup = studio.setup(Arc::new(Script::parse("looks", &script).unwrap()));
    let base = studio.dir.path().join("cold");
    let layouts = studio.layouts.clone();
    let encode =
        move |state: &_, name: &str| darktable::xmp::write(state, &layouts, name).map_err(|e| e.to_string());
    let cold = darktable::oneshot::OneShot::new(support::darktable(), &base, Arc::new(encode)).unwrap();
    setup.renderer = Arc::new(cold);
    let request = request("time=5m,iterations=50,branches=1,renders=4", TONE);
    let plan = start::plan(&setup, &request).unwrap();
    let mut session = start::start(setup, plan).unwrap();
    let end = support::run(&mut session);
    let lines = studio.lines(&session.state.start.session);
    assert_eq!((end.outcome, fired(&lines)), (Outcome::BudgetExhausted, vec![Cap::Renders]));
    let renders = lines.iter().filter(|l| matches!(l.event, Event::RenderIntent(_))).count();
    assert_eq!((renders, end.spent.renders), (4, 4));
}

#[test]
fn the_token_cap_is_kept_by_clamping_and_then_by_stopping() {
    let studio = Studio::new();
    let mut script = String::from(
        "[model]\nfree = false\nprice = { input = 1.0, output = 5.0, as_of = \"2026-11-01\" }\n\n",
    );
    script +=
        &relentless(60).replace("[[reply]]\n", "[[reply]]\nusage = { input_fresh = 9000, output = 300 }\n");
    let (end, lines) =
        studio.run(&script, &request("time=5m,iterations=500,branches=1,tokens=100k,cost=0.50", TONE));
    assert_eq!(end.outcome, Outcome::BudgetExhausted);
    assert_eq!(fired(&lines)[0], Cap::Tokens);
    assert!(end.spent.tokens <= 100_000, "{:?}", end.spent);
    assert!(end.spent.cost_micro_usd > 0 && end.spent.cost_micro_usd <= 500_000);
    let clamps: Vec<u32> = lines
        .iter()
        .filter_map(|l| match &l.event {
            Event::ModelIntent(call) => Some(call.max_output_tokens),
            _ => None,
        })
        .collect();
    assert_eq!(clamps[0], 4096);
    assert!(clamps.iter().all(|c| *c >= 256));
}

#[test]
fn the_time_cap_cuts_a_hanging_provider_within_a_second() {
    within_a_second_of_four(|| {
        let studio = Studio::new();
        let script = confirm(&["tone"]) + "[[reply]]\ndelay_ms = 600000\n\n";
        let (end, lines) = studio.run(&script, &request("time=4s,iterations=50,branches=1", TONE));
        assert_eq!(end.outcome, Outcome::BudgetExhausted);
        assert_eq!(fired(&lines)[0], Cap::Time);
        end.wall_ms
    });
}

/// Holds a session of four seconds to its cap, by its own clock. A machine that is busy may be late once, and not
/// each time.
fn within_a_second_of_four(session: impl Fn() -> u64) {
    let mut took = vec![session()];
    while took.iter().all(|wall_ms| *wall_ms >= 5_000) {
        assert!(took.len() < 10, "the time cap is never kept: {took:?}");
        took.push(session());
    }
    assert!(took.iter().all(|wall_ms| *wall_ms >= 3_000), "it was given its time: {took:?}");
}

#[test]
fn the_time_cap_cuts_a_hanging_renderer_within_a_second() {
    within_a_second_of_four(hanging_renderer);
}

fn hanging_renderer() -> u64 {
    let studio = Studio::new();
    let script = confirm(&["tone"])
        + &reply(&[("branch", r#"{"name": "branch_b_tone"}"#)])
        + &reply(&[("apply_primitive", r#"{"primitive_name": "shadows_lift"}"#)])
        + &reply(&[("render_preview", r#"{"size": 300}"#)])
        + &reply(&[("end_mode_b_session", r#"{"session_summary": "Cut."}"#)]);
    // The baseline is in the cache by now; the first real render hangs.
    let warm = studio.scripted(&script, &request("time=4s,iterations=50,branches=1", TONE));
    drop(warm);
    let mut setup = studio.setup(Arc::new(Script::parse("hang", &script).unwrap()));
    setup.renderer = Arc::new(Faulty::new(
        studio.renderer.clone(),
        [Fault::Slow(Duration::ZERO), Fault::Hang, Fault::Hang],
    ));
    let plan = start::plan(&setup, &request("time=4s,iterations=50,branches=1", TONE)).unwrap();
    let mut session = start::start(setup, plan).unwrap();
    let end = support::run(&mut session);
    let lines = studio.lines(&session.state.start.session);
    assert_eq!((end.outcome, fired(&lines)[0]), (Outcome::BudgetExhausted, Cap::Time));
    assert!(results(&lines, "render_preview")[0].0.is_some());
    end.wall_ms
}

#[test]
fn the_engine_refuses_by_itself_whoever_calls_it() {
    let studio = Studio::new();
    let mut session = studio.scripted(&relentless(60), &request("time=5m,iterations=3,branches=1", TONE));
    support::run(&mut session);
    let branch = "branch_b_tone".parse().unwrap();
    let tip = studio.workspace.branch(&branch).unwrap().unwrap();
    let mut state = studio.workspace.state_of(&tip).unwrap();
    state.modules[0].enabled = !state.modules[0].enabled;
    let refused = session.photo.record_edit(&branch, &tip, &state, Operation::Snapshot, "").unwrap_err();
    assert_eq!(refused.code(), ErrorCode::BudgetExhausted);
    assert!(refused.to_string().contains("iterations"), "{refused}");
    let refused = session.photo.create_branch(&"branch_b_more".parse().unwrap(), &tip).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::BudgetExhausted);
    assert_eq!(studio.workspace.branch(&branch).unwrap().unwrap(), tip);
}

#[test]
fn a_silent_model_is_nudged_once_and_then_the_session_ends() {
    let studio = Studio::new();
    let (end, lines) = studio.run(
        "[[reply]]\ntext = \"I would rather talk.\"\nrepeat = \"forever\"\n",
        &request("standard", TONE),
    );
    assert_eq!(end.outcome, Outcome::ProviderFailed);
    assert_eq!(lines.iter().filter(|l| matches!(l.event, Event::Nudge { .. })).count(), 1);
    assert_eq!(lines.iter().filter(|l| matches!(l.event, Event::ModelReply { .. })).count(), 2);
}

#[test]
fn the_same_call_without_a_change_is_noted_refused_and_ends_the_work() {
    let studio = Studio::new();
    let script = confirm(&["tone"])
        + &reply(&[("get_state", "{}")]).replace("[[reply]]", "[[reply]]\nrepeat = \"forever\"");
    let (end, lines) = studio.run(&script, &request("standard", TONE));
    assert_eq!(end.outcome, Outcome::BudgetExhausted);
    assert_eq!(fired(&lines), [Cap::Loop]);
    let looks = results(&lines, "get_state");
    assert!(looks[1].1.contains("this very call"), "{}", looks[1].1);
    assert_eq!((looks[0].0, looks[1].0, looks[2].0), (None, None, Some(ErrorCode::StateError)));
}

#[test]
fn five_bad_calls_in_a_row_end_the_work() {
    let studio = Studio::new();
    let mut script = confirm(&["tone"]);
    for n in 0..9 {
        script += &reply(&[("apply_primitive", &format!(r#"{{"primitive_name": "no_such_{n}"}}"#))]);
    }
    let (end, lines) = studio.run(&script, &request("standard", TONE));
    assert_eq!((end.outcome, fired(&lines)), (Outcome::BudgetExhausted, vec![Cap::BadCalls]));
    assert_eq!(end.spent.iterations, 0, "a call that could do nothing costs nothing");
}
