//! What the host says to the model between its turns.

use crate::budget::Ledger;
use crate::session::state::{Phase, State};
use crate::transcript::{PlannedBranch, SessionStart};

/// The reason of a wrap-up that a person asked for.
pub const STOPPED: &str = "the photographer asked to stop";

/// The reason of an end that a person did not want to wait for.
pub const STOPPED_AT_ONCE: &str = "stopped at once by the photographer";

/// The first message: the plan, to be confirmed.
pub fn plan(start: &SessionStart, tools: &[&str]) -> String {
    let mut text = format!(
        "Session plan for photo `{}`. Nothing changes until you confirm it.\n\nBaseline: {} (commit {})\n",
        start.photo,
        start.baseline_ref,
        start.baseline.short()
    );
    text.push_str("Branches to make, each from the baseline:\n");
    for PlannedBranch { branch, vector } in &start.branches {
        match vector {
            Some(v) => {
                let intensity =
                    v.intensity.as_ref().map(|i| format!(" (intensity: {i})")).unwrap_or_default();
                text.push_str(&format!("- {branch}: vector `{}`: {}{intensity}\n", v.name, v.direction));
            }
            None => text
                .push_str(&format!("- {branch}: open-ended: go deeper in the direction of the baseline\n")),
        }
    }
    let b = &start.budget;
    text.push_str(&format!(
        "Budget: {} s, {} iterations, {} branches{}{}{}\nCriteria: {}\nTools: {}\n\nCall `confirm_session`, restating each vector in one sentence, or `ask_clarification` if something that you need is missing.",
        b.time_seconds,
        b.max_iterations,
        b.max_branches,
        b.max_tokens.map(|n| format!(", {n} tokens")).unwrap_or_default(),
        b.max_cost_micro_usd.map(|n| format!(", {} USD", crate::budget::usd(n))).unwrap_or_default(),
        b.max_renders.map(|n| format!(", {n} renders")).unwrap_or_default(),
        start.criteria,
        tools.join(", ")
    ));
    text
}

/// The photographer's late answer to a question.
pub fn answer(answer: &str) -> String {
    format!(
        "The photographer answers your question: {answer}\n\nGo on: call `confirm_session` when the plan is clear."
    )
}

/// Said once to a reply that calls no tool.
pub fn nudge(state: &State) -> String {
    let (what, example) = match state.phase {
        Phase::Planned => (
            "The plan is not confirmed yet",
            r#"confirm_session {"vectors": [{"name": "tone", "restated": "Deepen the contrast without closing the shadows."}]}"#,
        ),
        Phase::WrappingUp => {
            ("Only judging and ending are left", r#"end_mode_b_session {"session_summary": "…"}"#)
        }
        _ => ("The session is running", r#"render_preview {}"#),
    };
    let judged = state.branches.iter().filter(|b| b.judgment.is_some()).count();
    format!(
        "Your reply called no tool, and text alone does nothing here. {what}: {} branch(es) made, {judged} judged. Call a tool now, for example `{example}`, or `end_mode_b_session` if you are done. A second reply without a call ends the session.",
        state.branches.len()
    )
}

/// Said when the wrap-up begins.
pub fn wrap_up(state: &State, reason: &str) -> String {
    let open: Vec<&str> =
        state.branches.iter().filter(|b| b.judgment.is_none()).map(|b| b.name.as_str()).collect();
    let judge = if open.is_empty() {
        "Every branch is judged.".to_owned()
    } else {
        format!("Judge what is not judged yet with `record_judgment`: {}.", open.join(", "))
    };
    format!(
        "Exploration is over: {reason}. Nothing can be edited or rendered any more. {judge} If something held beyond this one picture, `propose_taste_update` (two at most) and one `propose_notes_update`; report missing moves with `log_vocabulary_gap`. Then call `end_mode_b_session` with an honest summary. What you do not judge, the engine marks as not judged."
    )
}

/// A reminder of the budget, for the end of a tool result.
pub fn reminder(percent: u8) -> String {
    match percent {
        50 => "Half of the budget is left.".into(),
        25 => {
            "A quarter of the budget is left: finish the branch you are on, and leave room to judge.".into()
        }
        _ => "A tenth of the budget is left: judge your branches now and end the session.".into(),
    }
}

/// The reminder that is due, if any: the lowest threshold that was passed and not yet said.
pub fn due_reminder(state: &State, ledger: &Ledger, elapsed: std::time::Duration) -> Option<u8> {
    let left = ledger.share_left(elapsed) * 100.0;
    [10u8, 25, 50].into_iter().find(|p| left <= f64::from(*p)).filter(|p| !state.reminders.contains(p))
}
