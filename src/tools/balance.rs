//! White balance by a place that should be grey: a measurement, and perhaps an edit.

use serde_json::json;

use crate::tools::look::io_fault;
use crate::tools::{Answer, ToolContext, args, edit};
use base::error::{ErrorCode, Fault};
use darktable::render::Quality;
use darktable::state::EditState;
use engine::vocabulary::{ApplyRequest, VocabularyError, grey_card};

pub fn grey_card(context: &mut ToolContext<'_>, args: args::GreyCard) -> Result<Answer, Fault> {
    let strength = args.strength.unwrap_or(1.0);
    if !(0.0..=1.0).contains(&strength) {
        let message = format!("a strength of {strength} is not in 0..1");
        return Err(Fault::new(ErrorCode::InvalidInput, message).with("field", "strength"));
    }
    let branch = context.branch()?;
    let here = context.place(None)?;
    let engine = context.engine;
    let refused = |e: VocabularyError| Fault::from(&e);
    let probes = engine
        .vocabulary
        .grey_card_probes(&here.state, &engine.facts, &engine.layouts, engine.darktable_version())
        .map_err(refused)?;
    let edge = context.view.start.preview_edge;
    let look = |context: &mut ToolContext<'_>, state: &EditState| {
        context.render(state, edge, Quality::Preview).map(|rendered| rendered.picture)
    };
    let [plain, red, blue] = &probes;
    let (plain, red, blue) = (look(context, plain)?, look(context, red)?, look(context, blue)?);
    let place = grey_card::Patch { center: args.center, radius: args.radius.unwrap_or(grey_card::RADIUS) };
    let light = grey_card::light(&plain, &place).map_err(refused)?;
    grey_card::check(light, args.force).map_err(|e| refused(e).with("field", "center"))?;
    let solved = grey_card::solve([&plain, &red, &blue], &place).map_err(refused)?;
    let values = grey_card::part_way(solved, strength, &here.state, &engine.facts);
    let request = ApplyRequest { move_name: grey_card::MOVE, values: &values, mask: None };
    let (state, operation) = context
        .standing(&here.commit)?
        .apply(&request, &here.state, engine.layer_context())
        .map_err(refused)?;
    let (before, after) = (look(context, &here.state)?, look(context, &state)?);
    let [x, y] = place.center;
    let caption = format!("grey card at {x:.2}, {y:.2}, after");
    let image =
        context.blobs.put_picture(&grey_card::marked(&after, &place), caption).map_err(|e| io_fault(&e))?;
    let lab = |picture| {
        let [l, a, b] = grey_card::colour(picture, &place);
        json!({ "L": l, "a": a, "b": b })
    };
    let spot = json!({
        "center": place.center, "radius": place.radius, "before": lab(&before), "after": lab(&after),
    });
    let mut answer = match args.preview {
        true => json!({ "preview": true, "would_be": operation.to_string() }).into(),
        false => edit::commit(context, &branch, &state, operation, Some("grey card"))?,
    };
    answer.add("spot", spot);
    answer.add("light", json!({ "kelvin": light.kelvin.round(), "duv": (light.duv * 1e3).round() / 1e3 }));
    answer.images = vec![image];
    Ok(answer)
}
