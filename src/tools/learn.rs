//! Tools that leave something for next time. A session proposes; only a person accepts.

use serde_json::json;

use crate::tools::args;
use crate::tools::lifecycle::{fatal, text};
use crate::tools::{Answer, ToolContext};
use crate::transcript::Event;
use base::error::{ErrorCode, Fault};
use engine::photo::{GapReport, ProposalKind, ProposedText, TasteCategory};

/// How many observations on taste one session may propose.
const MAX_TASTE_PROPOSALS: usize = 2;
/// How many notes.
const MAX_NOTE_PROPOSALS: usize = 1;

pub fn log_vocabulary_gap(context: &mut ToolContext<'_>, args: args::Gap) -> Result<Answer, Fault> {
    let description = text("description", &args.description, 600)?;
    let report = GapReport {
        description: description.clone(),
        workaround: args.workaround,
        intent: args.intent,
        intent_category: args.intent_category.unwrap_or_else(|| "uncategorized".into()),
        missing_capability: args.missing_capability,
        operations_involved: args.operations_involved,
        vocabulary_used: args.vocabulary_used,
        satisfaction: args.satisfaction,
        notes: args.notes,
    };
    context.photo.set_call(Some(context.call));
    let snapshot = context.view.head.commit.clone();
    context.photo.log_gap(report, Some(&snapshot)).map_err(|e| Fault::from(&e))?;
    context.gate.record(Event::Gap { description }).map_err(|e| fatal(&e))?;
    Ok(json!({ "logged": true }).into())
}

pub fn propose_taste(context: &mut ToolContext<'_>, args: args::ProposeTaste) -> Result<Answer, Fault> {
    let category = match args.category.as_deref() {
        None => None,
        Some("appearance") => Some(TasteCategory::Appearance),
        Some("process") => Some(TasteCategory::Process),
        Some("value") => Some(TasteCategory::Value),
        Some(other) => {
            let message = format!("`{other}` is not a category: appearance, process or value");
            return Err(Fault::new(ErrorCode::InvalidInput, message).with("field", "category"));
        }
    };
    let made = context.view.proposals.0;
    let proposed = ProposedText { kind: ProposalKind::Taste, file: args.file, text: args.text, category };
    propose(context, proposed, made, MAX_TASTE_PROPOSALS)
}

pub fn propose_notes(context: &mut ToolContext<'_>, args: args::ProposeNotes) -> Result<Answer, Fault> {
    let made = context.view.proposals.1;
    let proposed = ProposedText { kind: ProposalKind::Notes, file: None, text: args.text, category: None };
    propose(context, proposed, made, MAX_NOTE_PROPOSALS)
}

fn propose(
    context: &mut ToolContext<'_>,
    proposed: ProposedText,
    made: usize,
    most: usize,
) -> Result<Answer, Fault> {
    let target = proposed.kind;
    if made >= most {
        let message = format!(
            "a session proposes at most {most} of these for {}; they wait for the photographer",
            word(target)
        );
        return Err(Fault::new(ErrorCode::StateError, message));
    }
    context.photo.set_call(Some(context.call));
    let proposal = context.photo.propose(proposed).map_err(|e| Fault::from(&e))?;
    let event = Event::Proposal { id: proposal.id.clone(), target, text: proposal.proposed.text };
    context.gate.record(event).map_err(|e| fatal(&e))?;
    Ok(json!({ "proposal": proposal.id, "status": "waits for the photographer" }).into())
}

/// What a proposal is for, as the model reads it.
pub fn word(target: ProposalKind) -> &'static str {
    match target {
        ProposalKind::Taste => "taste",
        ProposalKind::Notes => "notes",
    }
}
