//! Tools of a conversation: taking an edit back, proposing what was not asked for, and the end.

use serde_json::json;

use crate::tools::args;
use crate::tools::edit::commit;
use crate::tools::lifecycle::{fatal, text};
use crate::tools::{Answer, Phase, ToolContext};
use crate::transcript::{Event, Party};
use base::error::{ErrorCode, Fault};
use base::ids::Hash;
use engine::photo::Operation;

/// What the photographer is asked where words may or may not mean the end.
pub const SHALL_WE_END: &str = "Is that all for this photo? [yes/no]";

/// How the question ends whether something that was not asked for may be done.
const SHALL_I: &str = "\nShall I? [yes/no]";

/// What stands before the exports, in the summary of a conversation.
pub const EXPORTS: &str = "Exports spoken of and not made";

/// Steps that one proposal may have.
const STEPS: std::ops::RangeInclusive<usize> = 1..=8;

/// Gives the branch the state before its last edit, as a commit of its own: what was taken back stays in the history.
pub fn undo(context: &mut ToolContext<'_>, _: args::Nothing) -> Result<Answer, Fault> {
    let branch = context.branch()?;
    let baseline = context.view.start.baseline.clone();
    let mut at = context.place(None)?.commit;
    // An undo after an undo goes on from where the first one led.
    let mut edit = context.commit(&at)?;
    while let Operation::Rollback { to } = &edit.op {
        at = to.clone();
        edit = context.commit(&at)?;
    }
    let before: Option<Hash> = edit.parents.first().cloned().filter(|_| at != baseline);
    let Some(before) = before else {
        return Err(Fault::new(
            ErrorCode::StateError,
            "there is nothing to take back: this is where the conversation began",
        ));
    };
    let state = context.place(Some(before.as_str()))?.state;
    let mut answer = commit(context, &branch, &state, Operation::Rollback { to: before }, None)?;
    answer.add("taken_back", json!(edit.op.to_string()));
    Ok(answer)
}

/// The edits that a question of [`propose_edit`] is about, as it lists them; `None` for another question.
pub fn proposed(question: &str) -> Option<&str> {
    let list = question.strip_suffix(SHALL_I)?;
    list.find("\n  - ").and_then(|at| list.get(at..))
}

/// Asks the photographer about edits that she has not asked for; about the same ones never again once she has declined.
pub fn propose_edit(context: &mut ToolContext<'_>, args: args::ProposeEdit) -> Result<Answer, Fault> {
    if !STEPS.contains(&args.moves.len()) {
        let message = format!("a proposal has {} to {} moves", STEPS.start(), STEPS.end());
        return Err(Fault::new(ErrorCode::InvalidInput, message).with("field", "moves"));
    }
    let mut question = text("why", &args.why, 600)?;
    for step in &args.moves {
        question.push_str(&format!("\n  - {}", text("moves", step, 200)?));
    }
    question.push_str(SHALL_I);
    if proposed(&question).is_some_and(|edits| context.view.declined.contains(edits)) {
        let message = "the photographer has said no to this: go on without it";
        return Err(Fault::new(ErrorCode::StateError, message));
    }
    ask(context, question)
}

/// Ends the conversation, or asks whether it is over; in the look back, closes it.
pub fn end_conversation(context: &mut ToolContext<'_>, args: args::EndConversation) -> Result<Answer, Fault> {
    let record =
        |context: &mut ToolContext<'_>, event| context.gate.record(event).map(|_| ()).map_err(|e| fatal(&e));
    if context.view.phase != Phase::WrappingUp {
        if !args.certain {
            if context.view.goes_on {
                let message = "the photographer was asked, and said that this is not all";
                return Err(Fault::new(ErrorCode::StateError, message));
            }
            return ask(context, SHALL_WE_END.to_owned());
        }
        record(context, Event::Concluded { by: Party::Agent })?;
        return Ok(json!({ "over": true }).into());
    }
    let mut summary = text("summary", &args.summary.unwrap_or_default(), 2_000)?;
    if !args.exports.is_empty() {
        let exports: Result<Vec<String>, Fault> =
            args.exports.iter().map(|e| text("exports", e, 200)).collect();
        summary.push_str(&format!(" {EXPORTS}: {}.", exports?.join("; ")));
    }
    let tag_suggestion = args.tag.map(|tag| text("tag", &tag, 100)).transpose()?;
    record(context, Event::EndRequested { summary, tag_suggestion })?;
    Ok(json!({ "ended": true }).into())
}

fn ask(context: &mut ToolContext<'_>, question: String) -> Result<Answer, Fault> {
    context.gate.record(Event::Clarification { question, answer: None }).map_err(|e| fatal(&e))?;
    Ok(json!({ "asked": true, "answer": "comes with what the photographer says next" }).into())
}
