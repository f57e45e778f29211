//! Tools that move the session itself along.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::tools::args::{AskClarification, AttemptDone, ConfirmSession, EndSession, Nothing};
use crate::tools::{Answer, Phase, ToolContext};
use crate::transcript::{Event, Party};
use base::error::{ErrorCode, Fault};

/// Longest free text that a lifecycle tool takes, in characters.
const TEXT_LIMIT: usize = 4_000;
/// The longest summary of an attempt that is kept, in characters.
const SUMMARY_LIMIT: usize = 600;

/// Free text: not empty, not endless.
pub fn text(field: &str, text: &str, limit: usize) -> Result<String, Fault> {
    let text = text.trim();
    let fault = |message: String| Fault::new(ErrorCode::InvalidInput, message).with("field", field);
    if text.is_empty() {
        return Err(fault(format!("`{field}` is empty")));
    }
    if text.chars().count() > limit {
        return Err(fault(format!("`{field}` is longer than {limit} characters")));
    }
    Ok(text.to_owned())
}

/// A transcript failure ends everything: nothing may happen that cannot be written down.
pub fn fatal(error: &impl base::error::Coded) -> Fault {
    Fault::from(error).fatal()
}

pub fn confirm_session(context: &mut ToolContext<'_>, args: ConfirmSession) -> Result<Answer, Fault> {
    let branches = &context.view.start.branches;
    let planned: Vec<(&str, &str)> =
        branches.iter().filter_map(|b| Some((b.vector.as_ref()?.name.as_str(), b.branch.as_str()))).collect();
    let mut restated = BTreeMap::new();
    for vector in args.vectors {
        // Models like to name the branch; what they mean is plain.
        let Some((name, _)) =
            planned.iter().find(|(name, branch)| [*name, *branch].contains(&vector.name.as_str()))
        else {
            let names: Vec<&str> = planned.iter().map(|p| p.0).collect();
            let message = format!("the plan has no vector `{}`; it has: {}", vector.name, names.join(", "));
            return Err(Fault::new(ErrorCode::InvalidInput, message).with("field", "vectors"));
        };
        let sentence = text("restated", &vector.restated, 600)?;
        restated.insert((*name).to_owned(), sentence);
    }
    let missing: Vec<&str> =
        planned.iter().map(|p| p.0).filter(|name| !restated.contains_key(*name)).collect();
    if !missing.is_empty() {
        let message = format!("every vector of the plan must be restated; missing: {}", missing.join(", "));
        return Err(Fault::new(ErrorCode::InvalidInput, message).with("field", "vectors"));
    }
    context.gate.record(Event::Confirmed { by: Party::Agent, restated }).map_err(|e| fatal(&e))?;
    let next: Vec<Value> = context
        .view
        .start
        .branches
        .iter()
        .map(|b| json!({"branch": b.branch, "vector": b.vector.as_ref().map(|v| &v.name)}))
        .collect();
    let mut told = json!({ "confirmed": true, "branches_to_make": next });
    let criteria: Vec<&String> = context.view.start.named_criteria.keys().collect();
    if let (Some(told), false) = (told.as_object_mut(), criteria.is_empty()) {
        told.insert("criteria".into(), json!(criteria));
    }
    Ok(told.into())
}

pub fn ask_clarification(context: &mut ToolContext<'_>, args: AskClarification) -> Result<Answer, Fault> {
    let question = text("question", &args.question, 1_000)?;
    context.gate.record(Event::Clarification { question, answer: None }).map_err(|e| fatal(&e))?;
    Ok(json!({ "asked": true }).into())
}

pub fn end_session(context: &mut ToolContext<'_>, args: EndSession) -> Result<Answer, Fault> {
    let summary = text("session_summary", &args.session_summary, TEXT_LIMIT)?;
    let open: Vec<&str> =
        context.view.branches.iter().filter(|b| b.judgment.is_none()).map(|b| b.name.as_str()).collect();
    if !open.is_empty() && context.view.phase == Phase::Running {
        let message = format!("judge every branch before you end; not judged: {}", open.join(", "));
        return Err(Fault::new(ErrorCode::StateError, message));
    }
    let tag_suggestion = args.tag_suggestion.map(|t| text("tag_suggestion", &t, 100)).transpose()?;
    let told = summary.clone();
    context.gate.record(Event::EndRequested { summary, tag_suggestion }).map_err(|e| fatal(&e))?;
    let mut rows = branches(context);
    for (row, branch) in rows.iter_mut().zip(&context.view.branches) {
        if let (Some(row), Some(judgment)) = (row.as_object_mut(), &branch.judgment) {
            row.insert("judged_reasoning".into(), json!(judgment.judged_reasoning));
            row.insert("key_moves".into(), json!(judgment.key_moves));
        }
    }
    Ok(json!({ "ending": true, "branches": rows, "session_summary": told }).into())
}

pub fn attempt_done(_: &mut ToolContext<'_>, args: AttemptDone) -> Result<Answer, Fault> {
    let summary: String = args.summary.chars().take(SUMMARY_LIMIT).collect();
    Ok(json!({ "done": true, "summary": summary }).into())
}

pub fn status(context: &mut ToolContext<'_>, _: Nothing) -> Result<Answer, Fault> {
    let ledger = context.gate.ledger();
    let (spent, remaining) = (ledger.settled(), ledger.remaining(context.gate.elapsed()));
    Ok(json!({
        "phase": context.view.phase.word(),
        "budget_remaining": remaining,
        "iterations_so_far": spent.iterations,
        "branches_so_far": branches(context),
        "current_branch": context.view.head.branch,
    })
    .into())
}

fn branches(context: &ToolContext<'_>) -> Vec<Value> {
    let row = |b: &crate::tools::BranchView| {
        json!({
            "branch": b.name,
            "commit": b.tip,
            "judged_score": b.judgment.as_ref().map(|j| j.judged_score),
            "abandoned": b.judgment.as_ref().is_some_and(|j| j.abandoned),
        })
    };
    context.view.branches.iter().map(row).collect()
}
