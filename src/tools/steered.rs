//! Tools of a session that a protocol steers.

use serde_json::json;

use crate::tools::{Answer, ToolContext, args, edit};
use base::error::Fault;
use engine::photo::Operation;

/// The longest summary that is kept, in characters.
const SUMMARY: usize = 600;

pub fn attempt_done(_: &mut ToolContext<'_>, args: args::AttemptDone) -> Result<Answer, Fault> {
    let summary: String = args.summary.chars().take(SUMMARY).collect();
    Ok(json!({ "done": true, "summary": summary }).into())
}

/// Gives the branch the state that the attempt began from, as a commit of its own: what was tried stays in
/// its history.
pub fn rollback(context: &mut ToolContext<'_>, args: args::Rollback) -> Result<Answer, Fault> {
    let to = context.place(Some(&args.commit))?;
    let branch = match args.branch {
        Some(name) => Some(name.parse().map_err(|e: base::ids::InvalidName| Fault::from(&e))?),
        None => context.view.head.branch.clone(),
    };
    // Off a branch nothing can have been edited.
    let Some(branch) = branch else { return Ok(json!({ "unchanged": true }).into()) };
    edit::commit(context, &branch, &to.state, Operation::Rollback { to: to.commit }, None)
}
