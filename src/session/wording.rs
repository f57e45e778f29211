//! What the host says to the model between its turns.

use serde_json::json;

use crate::budget::{Ledger, Stage};
use crate::conversation::ToolSpec;
use crate::protocol::Dialect;
use crate::protocol::machine::Brief;
use crate::protocol::schema::OnFail;
use crate::session::state::{Failed, Phase, State};
use crate::tools::{ATTEMPT_DONE, BranchView};
use crate::transcript::{JudgmentSource, PlannedBranch, SessionStart};
use base::error::{ErrorCode, Fault};

/// The reason of an end that a person forced.
pub const STOPPED_AT_ONCE: &str = "stopped at once by the photographer";

/// Why a conversation is wrapped up.
pub const PERSON_IS_DONE: &str = "the photographer is done";

/// The answer to a call that is not made because the photographer stopped the reply.
pub fn interrupted() -> Fault {
    Fault::new(ErrorCode::Interrupted, "not made: the photographer stopped this reply")
}

/// Whether an answer says yes.
pub fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

/// The first message of a conversation.
pub fn talk(start: &SessionStart) -> String {
    let branch = start.branches.first().map(|planned| planned.branch.as_str()).unwrap_or_default();
    format!(
        "Conversation with the photographer about photo `{}`.\n\nBaseline: {} (commit {})\nYou stand on `{branch}`, made for this conversation; every edit lands there.\n{}\n\nWhat follows is what the photographer says.",
        start.photo,
        start.baseline_ref,
        start.baseline.short(),
        budget(start),
    )
}

/// The message that begins the look back of a conversation.
fn look_back(reason: &str) -> String {
    format!(
        "The conversation is over: {reason}. Nothing can be edited or rendered any more. Look back, in at most two replies: at most two `propose_taste_update`, for what showed in several moves and holds beyond this picture; one `propose_notes_update` with what was decided here; `log_vocabulary_gap` for a move that was missing. Leave out what would be thin. Then `end_conversation` with a summary of two sentences, a `tag` if where it stands deserves a name, and `exports` that were spoken of and not made."
    )
}

/// The answer to a call that is not made because one before it failed.
pub fn skipped(failed: &Failed) -> Fault {
    let Failed { tool, call_id, code } = failed;
    let message = format!(
        "not made, because `{tool}` failed earlier in the same reply: put that right, then make this call again if you still want it"
    );
    Fault::new(ErrorCode::SkippedAfterError, message)
        .with("cause", json!({ "tool": tool, "call_id": call_id, "code": code }))
}

/// What a model is told that is to propose nothing, as the prompt may ask for it.
const PROPOSES_NOTHING: &str =
    "\n\nThe photographer wants no proposals for taste and notes this time: end without any.";

/// The first message: the plan, to be confirmed.
pub fn plan(start: &SessionStart, readings: bool, proposes: bool) -> String {
    let mut text = format!(
        "Session plan for photo `{}`. Nothing changes until you confirm it.\n\nBaseline: {} (commit {})\n",
        start.photo,
        start.baseline_ref,
        start.baseline.short()
    );
    branches(&mut text, start, readings);
    text.push_str(&format!(
        "{}\nCriteria: {}\n\nCall `confirm_session`, restating each vector in one sentence, or `ask_clarification` if something that you need is missing.",
        budget(start),
        start.criteria
    ));
    if !proposes {
        text.push_str(PROPOSES_NOTHING);
    }
    text
}

/// The first message of a session that a protocol steers.
pub fn steered_plan(start: &SessionStart, name: &str, description: &str, proposes: bool) -> String {
    let mut text = format!("Session plan for photo `{}`, steered by the protocol `{name}`", start.photo);
    text.push_str(&if description.is_empty() { ".".into() } else { format!(": {description}") });
    text.push_str(&format!("\n\nBaseline: {} (commit {})\n", start.baseline_ref, start.baseline.short()));
    if !start.branches.is_empty() {
        branches(&mut text, start, false);
    }
    text.push_str(&format!(
        "{}\nCriteria: {}\n\nYou are told what to do state by state. What follows is the first.",
        budget(start),
        start.criteria
    ));
    if !proposes {
        text.push_str(PROPOSES_NOTHING);
    }
    text
}

fn branches(text: &mut String, start: &SessionStart, readings: bool) {
    text.push_str("Branches to make, each from the baseline:\n");
    for PlannedBranch { branch, vector } in &start.branches {
        match vector {
            Some(v) => {
                let intensity =
                    v.intensity.as_ref().map(|i| format!(" (intensity: {i})")).unwrap_or_default();
                text.push_str(&format!("- {branch}: vector `{}`: {}{intensity}\n", v.name, v.direction));
            }
            None if readings => text.push_str(&format!("- {branch}: open-ended: a reading of the brief\n")),
            None => text
                .push_str(&format!("- {branch}: open-ended: go deeper in the direction of the baseline\n")),
        }
    }
}

fn budget(start: &SessionStart) -> String {
    let b = &start.budget;
    format!(
        "Budget: {} s, {} iterations, {} branches{}{}{}",
        b.time_seconds,
        b.max_iterations,
        b.max_branches,
        b.max_tokens.map(|n| format!(", {n} tokens")).unwrap_or_default(),
        b.max_cost_micro_usd.map(|n| format!(", {} USD", crate::budget::usd(n))).unwrap_or_default(),
        b.max_renders.map(|n| format!(", {n} renders")).unwrap_or_default(),
    )
}

/// What the model is told when an attempt begins.
pub fn brief(brief: &Brief, state: &State) -> String {
    let mut text = format!("State `{}`, attempt {} of {}", brief.state, brief.attempt, brief.attempts);
    if brief.visit > 1 {
        text.push_str(&format!(", visit {}", brief.visit));
    }
    text.push_str(".\n");
    match &state.head.branch {
        Some(branch) => text.push_str(&format!("You stand on `{branch}`.\n")),
        None => text.push_str("You stand on the baseline.\n"),
    }
    if let Some(why) = &brief.feedback {
        text.push_str(&format!("The last attempt failed: {why}.\n"));
        let rolls = state.steering.as_ref().and_then(|s| s.protocol.state(s.run().state()));
        if rolls.is_some_and(|s| s.on_fail == OnFail::Rollback) {
            text.push_str("What it changed was taken back.\n");
        }
    }
    text.push_str(&format!("\n{}\n\n", brief.instructions.trim()));
    if !brief.criteria.trim().is_empty() {
        text.push_str(&format!("Judged by: {}\n", brief.criteria.trim()));
    }
    if state.steering.as_ref().is_some_and(|s| s.run().stage() == Stage::WrapUp) {
        let source = |b: &BranchView| b.judgment.as_ref().map(|j| j.source);
        for (what, which) in
            [("Not judged yet", None), ("Given up by the protocol", Some(JudgmentSource::Protocol))]
        {
            let names = state.branches.iter().filter(|b| source(b) == which).map(|b| format!("`{}`", b.name));
            let names: Vec<String> = names.collect();
            if !names.is_empty() {
                text.push_str(&format!("{what}: {}.\n", names.join(", ")));
            }
        }
    }
    if state.steering.as_ref().is_some_and(|s| s.protocol.dialect == Dialect::Compat) {
        text.push_str(WORDS_ARE_A_RESULT);
    }
    text.push_str(&may_call(
        brief.tools.iter().flatten().map(String::as_str).collect(),
        brief.tools.is_none(),
    ));
    if brief.judgment {
        text.push_str(" A judgment of the branch that you stand on ends the attempt.");
    }
    text
}

/// What holds in the original format, whose states may ask for a text and whose referee reads it.
const WORDS_ARE_A_RESULT: &str = "What you write is a result too, and is shown to whoever judges, beside the picture. Where the state asks for words alone, reply without a call: that ends the attempt.\n";

/// The tools of a state, in a sentence.
fn may_call(tools: Vec<&str>, all: bool) -> String {
    let list = if all { "any tool".to_owned() } else { tools.join(", ") };
    format!("You may call: {list}. Call `{ATTEMPT_DONE}` when you are done.")
}

/// What the photographer is asked where a protocol has a gate.
pub fn may_stand(state: &str) -> String {
    format!("The protocol asks: keep the changes made in `{state}`? [yes/no]")
}

/// The answer to a first reply that calls no tool.
pub fn nudge(state: &State) -> String {
    if let Some(steering) = &state.steering {
        let tools = steering.tools();
        return format!(
            "Your reply called no tool, and text alone does nothing here. You are in `{}`. {}",
            steering.state_name(),
            may_call(tools.clone().unwrap_or_default(), tools.is_none())
        );
    }
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

/// The message that begins the wrap-up.
pub fn wrap_up(state: &State, tools: &[ToolSpec], reason: &str) -> String {
    if state.talks() {
        return look_back(reason);
    }
    let open: Vec<&str> =
        state.branches.iter().filter(|b| b.judgment.is_none()).map(|b| b.name.as_str()).collect();
    let judge = if open.is_empty() {
        "Every branch is judged.".to_owned()
    } else {
        format!("Judge what is not judged yet with `record_judgment`: {}.", open.join(", "))
    };
    let learned = match tools.iter().any(|tool| tool.name == "propose_taste_update") {
        true => {
            "If something held beyond this one picture, `propose_taste_update` (two at most) and one `propose_notes_update`; report"
        }
        false => "Report",
    };
    format!(
        "Exploration is over: {reason}. Nothing can be edited or rendered any more. {judge} {learned} missing moves with `log_vocabulary_gap`. Then call `end_mode_b_session` with an honest summary. What you do not judge, the engine marks as not judged."
    )
}

/// The reminder that is due, if any: the lowest threshold that was passed and not yet said.
pub fn due_reminder(state: &State, ledger: &Ledger, elapsed: std::time::Duration) -> Option<u8> {
    let left = ledger.share_left(elapsed) * 100.0;
    [10u8, 25, 50].into_iter().find(|p| left <= f64::from(*p)).filter(|p| !state.reminders.contains(p))
}

/// The photographer's late answer to a question.
pub(super) fn late_answer(answer: &str) -> String {
    format!(
        "The photographer answers your question: {answer}\n\nGo on: call `confirm_session` when the plan is clear."
    )
}
