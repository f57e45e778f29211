//! One move, or several, on many places as one step.

use serde_json::json;

use crate::tools::{Answer, ToolContext, args, edit};
use base::error::Fault;
use engine::photo::Operation;
use engine::vocabulary::RegionsRequest;

pub fn apply_per_region(context: &mut ToolContext<'_>, args: args::ApplyPerRegion) -> Result<Answer, Fault> {
    let branch = context.branch()?;
    let place = context.place(None)?;
    let engine = context.engine;
    let request = RegionsRequest { move_name: args.primitive_name.as_deref(), regions: &args.regions };
    let version = engine.darktable_version();
    let applied = engine
        .vocabulary
        .apply_regions(&request, &place.state, &engine.facts, &engine.layouts, version)
        .map_err(|e| Fault::from(&e).with("field", "regions"))?;
    let operation = Operation::of_regions(&request, &applied, &engine.vocabulary);
    let mut answer = edit::commit(context, &branch, &applied.state, operation, args.label.as_deref())?;
    answer.add("n_regions", json!(args.regions.len()));
    // By these numbers remove_module takes one of them back.
    let instances: Vec<_> = applied.moves.iter().map(|done| done.instance).collect();
    answer.add("instances", json!(instances));
    Ok(answer)
}
