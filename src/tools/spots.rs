//! Retouching.

use serde_json::json;

use crate::tools::{Answer, ToolContext, args, edit};
use base::error::Fault;
use darktable::render::Quality;
use engine::photo::Operation;
use engine::vocabulary::{SpotError, fill};

pub fn apply_spot(context: &mut ToolContext<'_>, args: args::ApplySpot) -> Result<Answer, Fault> {
    let branch = context.branch()?;
    let place = context.place(None)?;
    let engine = context.engine;
    let version = engine.darktable_version();
    let refused = |e: SpotError| Fault::from(&e).with("field", "spots");
    let (facts, layouts) = (&engine.facts, &engine.layouts);
    let mut spots =
        engine.vocabulary.place_spots(&args.spots, &place.state, facts, layouts, version).map_err(refused)?;
    if spots.iter().any(fill::is_wanting) {
        let edge = context.view.start.preview_edge;
        let probe = context.render(&fill::probe(&place.state), edge, Quality::Preview)?;
        fill::measure(&mut spots, &probe.picture);
    }
    let applied =
        engine.vocabulary.apply_spots(&spots, &place.state, facts, layouts, version).map_err(refused)?;
    let operation = Operation::ApplySpot { spots: applied.spots.clone() };
    let mut answer = edit::commit(context, &branch, &applied.state, operation, args.label.as_deref())?;
    answer.add("spots", json!(applied.spots));
    answer.add("spots_standing", json!(applied.standing));
    Ok(answer)
}
