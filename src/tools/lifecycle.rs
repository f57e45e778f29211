//! Tools that move the session itself along.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

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
    Ok(json!({ "confirmed": true, "branches_to_make": next }).into())
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
    context.gate.record(Event::EndRequested { summary, tag_suggestion }).map_err(|e| fatal(&e))?;
    Ok(json!({ "ending": true, "branches": branches(context) }).into())
}

pub fn attempt_done(_: &mut ToolContext<'_>, args: AttemptDone) -> Result<Answer, Fault> {
    let summary: String = args.summary.chars().take(SUMMARY_LIMIT).collect();
    Ok(json!({ "done": true, "summary": summary }).into())
}

pub fn status(context: &mut ToolContext<'_>, _: Nothing) -> Result<Answer, Fault> {
    let ledger = context.gate.ledger();
    let (budget, spent, elapsed) = (ledger.budget(), ledger.settled(), context.gate.elapsed());
    let mut remaining = Map::new();
    let mut put = |name: &str, limit: Option<u64>, used: u64| {
        if let Some(limit) = limit {
            remaining.insert(name.into(), limit.saturating_sub(used).into());
        }
    };
    put("time_seconds", Some(budget.time_seconds), elapsed.as_secs());
    put("iterations", Some(budget.max_iterations), spent.iterations);
    put("branches", Some(budget.max_branches), spent.branches);
    put("tokens", budget.max_tokens, spent.tokens);
    put("cost_micro_usd", budget.max_cost_micro_usd, spent.cost_micro_usd);
    put("renders", budget.max_renders, spent.renders);
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
