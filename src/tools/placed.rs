//! Placed moves by their ids: what an edit made, another mask, taking back.

use serde_json::json;

use crate::tools::{Answer, ToolContext, args, edit};
use base::error::Fault;
use engine::photo::{AppliedMove, MoveId, Operation, Standing};

/// Another mask for a placed move.
pub fn replace_mask(context: &mut ToolContext<'_>, args: args::ReplaceMask) -> Result<Answer, Fault> {
    let branch = context.branch()?;
    let place = context.place(None)?;
    let mask = context.find_mask(&args.mask, &place.state)?;
    let standing = context.standing(&place.commit)?;
    let with = context.engine.layer_context();
    let (state, operation) =
        standing.replace_mask(&args.instance, &mask, &place.state, with).map_err(|e| Fault::from(&e))?;
    let made = operation.clone();
    let mut answer = edit::commit(context, &branch, &state, operation, args.label.as_deref())?;
    say_made(context, &mut answer, &made, &standing)?;
    Ok(answer)
}

/// Takes back a module, a move, a look, or one placed move.
pub fn remove_module(context: &mut ToolContext<'_>, args: args::RemoveModule) -> Result<Answer, Fault> {
    let branch = context.branch()?;
    let place = context.place(None)?;
    let before = (context.standing(&place.commit)?, context.moves(&place.commit)?);
    let with = context.engine.layer_context();
    let (state, operation) =
        before.0.remove(&args.module, args.instance, &place.state, with).map_err(|e| Fault::from(&e))?;
    let mut answer = edit::commit(context, &branch, &state, operation, None)?;
    if let Some(head) = &answer.head {
        let after = (context.standing(&head.commit)?, context.moves(&head.commit)?);
        answer.add("removed", json!(taken((&before.0, &before.1), (&after.0, &after.1))));
    }
    Ok(answer)
}

/// Adds to an answer which instances carry what was made, and that older ones stay where one came beside them.
pub fn say_made(
    context: &ToolContext<'_>,
    answer: &mut Answer,
    made: &Operation,
    before: &Standing,
) -> Result<(), Fault> {
    let Some(head) = &answer.head else { return Ok(()) };
    let ids = context.standing(&head.commit)?.made(made, before);
    answer.add("instances", json!(words(&ids)));
    if let Some(further) = Standing::further(&ids, before) {
        answer.add("note", json!(further));
    }
    Ok(())
}

/// Ids as words.
pub fn words(ids: &[MoveId]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

/// What stood before and does not stand after: placed moves by id, then moves of the whole picture.
pub fn taken(before: (&Standing, &[AppliedMove]), after: (&Standing, &[AppliedMove])) -> Vec<String> {
    let placed =
        before.0.moves().iter().map(|one| &one.id).filter(|id| !after.0.has(id)).map(ToString::to_string);
    let gone = |made: &&AppliedMove| {
        made.mask.is_none() && !after.1.iter().any(|left| left.name == made.name && left.mask.is_none())
    };
    let whole = before
        .1
        .iter()
        .filter(gone)
        .map(|made| before.0.id(made).map_or_else(|| made.name.clone(), |id| id.to_string()));
    placed.chain(whole).collect()
}
