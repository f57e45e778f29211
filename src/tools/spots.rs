//! Healing and cloning.

use serde_json::json;

use crate::error::Fault;
use crate::photo::Operation;
use crate::tools::{Answer, ToolContext, args, edit};

pub fn apply_spot(context: &mut ToolContext<'_>, args: args::ApplySpot) -> Result<Answer, Fault> {
    let branch = context.branch()?;
    let place = context.place(None)?;
    let engine = context.engine;
    let version = engine.darktable_version();
    let applied = engine
        .vocabulary
        .apply_spots(&args.spots, &place.state, &engine.facts, &engine.layouts, version)
        .map_err(|e| Fault::from(&e).with("field", "spots"))?;
    let operation = Operation::ApplySpot { spots: applied.spots.clone() };
    let mut answer = edit::commit(context, &branch, &applied.state, operation, args.label.as_deref())?;
    answer.add("spots", json!(applied.spots));
    answer.add("spots_standing", json!(applied.standing));
    Ok(answer)
}
