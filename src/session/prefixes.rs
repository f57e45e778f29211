//! What is next follows from the transcript alone: after every line of hundreds of sessions, the fold of what stands
//! there asks for exactly what the driver did then, and no cap is passed.
//!
//! The sessions are real ones with a model that calls at random, some of them stopped, some killed at a line and taken
//! up again. `CHEMIGRAM_TEST_SESSIONS` says how many.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::budget::{Budget, Ledger, Stage};
use crate::gate;
use crate::session::agents::{Dice, answered_once};
use crate::session::driver::Host;
use crate::session::next::{Effect, StopRequest};
use crate::session::rig::{self, Rig, Sums, begin, photo, request};
use crate::session::start::{self, Resume};
use crate::session::state::State;
use crate::transcript::{self, Event, Line};
use base::clock::Stop;
use base::error::ErrorCode;

const SESSIONS: u64 = 200;

/// What a model might do: all kinds of effects, right and wrong.
const CALLS: &[&str] = &[
    r#"{ name = "read_context" }"#,
    r#"{ name = "mode_b_status" }"#,
    r#"{ name = "branch", arguments = { name = "branch_b_tone" } }"#,
    r#"{ name = "branch", arguments = { name = "branch_b_N" } }"#,
    r#"{ name = "branch", arguments = { name = "main" } }"#,
    r#"{ name = "apply_primitive", arguments = { primitive_name = "exposure", parameter_values = { ev = 0.N } } }"#,
    r#"{ name = "apply_primitive", arguments = { primitive_name = "warmth", parameter_values = { shift = N } } }"#,
    r#"{ name = "apply_primitive", arguments = "{" }"#,
    r#"{ name = "render_preview" }"#,
    r#"{ name = "compare" }"#,
    r#"{ name = "snapshot", arguments = { label = "N" } }"#,
    r#"{ name = "reset" }"#,
    r#"{ name = "no_such_tool" }"#,
    r#"{ name = "propose_notes_update", arguments = { text = "N." } }"#,
    r#"{ name = "record_judgment", arguments = { branch = "branch_b_tone", judged_score = N, judged_reasoning = "So.", comparable_to_baseline = true } }"#,
    r#"{ name = "record_judgment", arguments = { branch = "branch_b_tone", judged_score = 2, judged_reasoning = "No.", comparable_to_baseline = true, abandoned = true } }"#,
    r#"{ name = "end_mode_b_session", arguments = { session_summary = "Done." } }"#,
    r#"{ name = "ask_clarification", arguments = { question = "Which?" } }"#,
];

const CONFIRM: &str =
    r#"{ name = "confirm_session", arguments = { vectors = [{ name = "tone", restated = "Open." }] } }"#;

/// Replies of a model without a plan.
fn script(dice: &mut Dice) -> String {
    let mut text = String::new();
    for n in 0..4 + dice.below(10) {
        let made = (0..dice.below(4)).map(|_| {
            let call = CALLS[usize::try_from(dice.below(CALLS.len() as u64)).unwrap()];
            call.replace('N', &(1 + dice.below(5)).to_string())
        });
        let mut calls: Vec<String> = made.collect();
        if n < 2 && dice.chance(70) {
            calls.insert(0, CONFIRM.to_owned());
        }
        let usage = if dice.chance(50) {
            format!("usage = {{ input_fresh = {}, output = {} }}\n", dice.below(90_000), dice.below(900))
        } else {
            String::new()
        };
        let fault = if dice.chance(15) { "fault = { class = \"transport\", times = 1 }\n" } else { "" };
        text.push_str(&format!("[[reply]]\ncalls = [{}]\n{usage}{fault}", calls.join(", ")));
    }
    text
}

/// Stops a session, or ends its process, once so many lines are written.
struct Watcher {
    lines: AtomicU64,
    stop: (u64, Stop),
    kill: u64,
}

impl Host for Watcher {
    fn line(&self, line: &Line, _: &State, _: &Ledger) {
        self.lines.store(line.seq, Ordering::SeqCst);
        if line.seq >= self.stop.0 {
            self.stop.1.soft.cancel();
        }
        if line.seq == self.kill {
            // Nothing on the way catches what is not a defect, and nothing is written on the way out.
            resume_unwind(Box::new("killed"));
        }
    }
}

/// A session of random calls, and the line after which it was asked to stop.
fn session(dice: &mut Dice) -> (Vec<Line>, u64) {
    let rig = Rig::new();
    let (text, stop) = (script(dice), Stop::default());
    let mut sometimes = |percent, most| if dice.chance(percent) { 4 + dice.below(most) } else { u64::MAX };
    let (stops, kill) = (sometimes(15, 40), sometimes(40, 50));
    let optional = |name: &str, amount: u64| {
        if amount == u64::MAX { String::new() } else { format!(",{name}={amount}") }
    };
    let budget = format!(
        "time=30m,iterations={},branches={}{}{}",
        1 + sometimes(100, 20),
        sometimes(100, 3) - 3,
        optional("renders", sometimes(40, 9)),
        optional("tokens", sometimes(40, 300_000)),
    );
    let watch = Watcher { lines: AtomicU64::new(0), stop: (stops, stop.clone()), kill };
    let setup = || {
        let setup = rig::setup(&rig.library, &text, Arc::new(Sums::default()));
        start::Setup { stop: stop.clone(), ..setup }
    };
    let mut first = begin(setup(), &request(&budget, &["tone"])).unwrap();
    let id = first.state.start.session.clone();
    let killed = catch_unwind(AssertUnwindSafe(|| first.run_alone(&watch).unwrap())).is_err();
    let ended = first.state.end.is_some();
    drop(first);
    if killed && !ended {
        let mut again = start::resume(setup(), &id, Resume::default()).unwrap();
        again.run_alone(&watch).unwrap();
    }
    let path = photo(&rig.library).session_folder(&id).join("transcript.jsonl");
    (transcript::read(&path).unwrap().lines, stops)
}

/// Whether `line` is what the driver writes first when it does `effect`.
fn begins(effect: &Effect, line: &Line) -> bool {
    match (effect, &line.event) {
        (Effect::Model { turn, attempt, .. }, Event::ModelIntent(call)) => {
            (*turn, *attempt) == (call.turn, call.attempt)
        }
        (Effect::Model { .. }, Event::Chapter { .. }) => true,
        // Where there is no room for it.
        (Effect::Model { .. } | Effect::Tool(_) | Effect::WrapUp { .. }, Event::CapFired { .. }) => true,
        (Effect::Tool(call), Event::ToolCall(intent)) => intent.call == *call,
        (Effect::Tool(call), Event::ToolResult { intent: None, result, code, .. }) => {
            result.call_id == call.id && *code != Some(ErrorCode::SkippedAfterError)
        }
        (Effect::Tool(_) | Effect::Skip(..), Event::BudgetReminder { .. }) => true,
        (Effect::Skip(call, _), Event::ToolResult { intent: None, result, code, .. }) => {
            result.call_id == call.id && *code == Some(ErrorCode::SkippedAfterError)
        }
        (Effect::Nudge(text), Event::Nudge { text: said }) => text == said,
        (Effect::WrapUp { reason, .. }, Event::WrapUp { reason: said, .. }) => reason == said,
        _ => false,
    }
}

/// Whether the wrap-up had no room for a call of the model: the driver closes the session then.
fn is_refused(line: &Line, ledger: &Ledger) -> bool {
    matches!(line.event, Event::CapFired { .. }) && ledger.stage() == Stage::WrapUp
}

/// What is written beside the session's own work: a picture begun ahead, or that of the baseline.
fn beside(line: &Line) -> bool {
    matches!(
        line.event,
        Event::CountIntent(_) | Event::RenderIntent(_) | Event::Render { .. } | Event::Note { .. }
    )
}

fn within_caps(ledger: &Ledger, excess: u64) {
    let (budget, spent): (&Budget, _) = (ledger.budget(), ledger.settled().plus(ledger.reserved()));
    assert!(spent.iterations <= budget.max_iterations, "{spent:?} of {budget:?}");
    assert!(spent.branches <= budget.max_branches, "{spent:?} of {budget:?}");
    assert!(spent.renders <= budget.max_renders.unwrap_or(u64::MAX), "{spent:?} of {budget:?}");
    assert!(spent.model_calls <= budget.max_model_calls(), "{spent:?} of {budget:?}");
    // What the provider counts above the bound of one call: see docs/budget.md.
    let most = budget.max_tokens.map_or(u64::MAX, |most| most + excess);
    assert!(spent.tokens <= most, "{spent:?} of {budget:?}, {excess} in excess");
}

/// Which kinds of effects were seen to be next.
type Seen = BTreeSet<&'static str>;

fn every_prefix(lines: &[Line], stops: u64, seen: &mut Seen) {
    let Event::SessionStart(start) = &lines[0].event else { panic!("no header") };
    let mut state = State::begin(&lines[0], start.baseline.clone(), None).unwrap();
    let mut ledger = Ledger::new(start.budget.clone(), start.reserve);
    let (mut model, mut tool, mut closing, mut excess) = (false, None, false, 0);
    for pair in lines[1..].windows(2) {
        let (line, next) = (&pair[0], &pair[1]);
        let reserved = ledger.reserved().tokens;
        let settled = ledger.settled().tokens;
        state.fold(line);
        gate::fold(&mut ledger, line);
        if matches!(line.event, Event::ModelReply { .. }) {
            excess = excess.max(ledger.settled().tokens.saturating_sub(settled + reserved));
        }
        within_caps(&ledger, excess);
        match &line.event {
            Event::ModelIntent(_) => model = true,
            Event::ModelReply { .. } | Event::Attempt { .. } | Event::Resumed { .. } => model = false,
            Event::ToolCall(intent) => tool = Some((line.seq, intent.call.clone())),
            Event::ToolResult { .. } => tool = None,
            _ => {}
        }
        closing &= !matches!(line.event, Event::SessionEnd(_) | Event::Resumed { .. });
        // It is asked with the time of the line before or of the line after, or between them.
        let halt = if line.seq >= stops { StopRequest::WrapUp } else { StopRequest::None };
        let asked = [line, next].map(|at| state.next(&ledger, at.at(), halt));
        let told = || format!("after line {}: {:?}, and then {:?}", line.seq, asked, next.event);
        if closing || matches!(line.event, Event::SessionStart(_)) {
            continue;
        }
        if let Event::Resumed { .. } = next.event {
            continue;
        }
        if model {
            let ends = matches!(next.event, Event::ModelReply { .. } | Event::Attempt { .. });
            assert!(ends, "{}", told());
        } else if let Some((seq, call)) = &tool {
            let same = asked.iter().any(|effect| match effect {
                Effect::Tool(next) => next == call,
                Effect::Redo { seq: again, intent } => again == seq && intent.call == *call,
                _ => false,
            });
            assert!(same, "{}", told());
            if let Event::ToolResult { result, .. } = &next.event {
                assert_eq!(result.call_id, call.id, "{}", told());
            }
            seen.insert(if matches!(asked[0], Effect::Redo { .. }) { "redo" } else { "tool under way" });
        } else if asked.iter().any(|effect| matches!(effect, Effect::Finish { .. }))
            || is_refused(line, &ledger)
        {
            closing = true;
            seen.insert("finish");
        } else if !beside(next) {
            // A cap that fires is written with the wrap-up for which it fired, whatever a person requests meanwhile.
            let fired = matches!((&line.event, &next.event), (Event::CapFired { .. }, Event::WrapUp { .. }));
            let right = asked
                .iter()
                .find(|effect| begins(effect, next) || fired && matches!(effect, Effect::WrapUp { .. }));
            seen.insert(match right {
                Some(Effect::Model { attempt: 1, .. }) => "model",
                Some(Effect::Model { .. }) => "model again",
                Some(Effect::Tool(_)) => "tool",
                Some(Effect::Skip(..)) => "skip",
                Some(Effect::Nudge(_)) => "nudge",
                Some(Effect::WrapUp { .. }) => "wrap up",
                Some(_) => "done",
                None => panic!("{}", told()),
            });
        }
    }
    // The closing line ends it.
    state.fold(&lines[lines.len() - 1]);
    let last = &lines[lines.len() - 1];
    assert_eq!(state.next(&ledger, last.at(), StopRequest::None), Effect::Done);
}

#[test]
fn after_every_line_of_a_session_its_fold_asks_for_what_was_done_next() {
    let sessions = std::env::var("CHEMIGRAM_TEST_SESSIONS").ok().and_then(|n| n.parse().ok());
    let mut seen = Seen::new();
    for seed in 0..sessions.unwrap_or(SESSIONS) {
        let (lines, stops) = session(&mut Dice(seed));
        answered_once(&lines);
        every_prefix(&lines, stops, &mut seen);
    }
    let all =
        ["finish", "model", "model again", "nudge", "redo", "skip", "tool", "tool under way", "wrap up"];
    assert_eq!(seen, BTreeSet::from(all), "the dice met too little");
}
