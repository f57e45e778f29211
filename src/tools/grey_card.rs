//! White balance by a place that should be grey.

use crate::tools::{Answer, ToolContext, args, edit};
use base::error::Fault;
use darktable::render::Quality;
use engine::vocabulary::grey_card::{MOVE, Patch, RADIUS, solve};

pub fn grey_card(context: &mut ToolContext<'_>, args: args::GreyCard) -> Result<Answer, Fault> {
    context.branch()?;
    let here = context.place(None)?;
    let engine = context.engine;
    let version = engine.darktable_version();
    let probes = engine
        .vocabulary
        .grey_card_probes(&here.state, &engine.facts, &engine.layouts, version)
        .map_err(|e| Fault::from(&e))?;
    let edge = context.view.start.preview_edge;
    let mut look = |probe| context.render(probe, edge, Quality::Preview).map(|rendered| rendered.picture);
    let [plain, red, blue] = &probes;
    let (plain, red, blue) = (look(plain)?, look(red)?, look(blue)?);
    let place = Patch { center: args.center, radius: args.radius.unwrap_or(RADIUS) };
    let values = solve([&plain, &red, &blue], &place).map_err(|e| Fault::from(&e))?;
    let args = args::ApplyPrimitive {
        primitive_name: MOVE.to_owned(),
        parameter_values: values,
        mask: None,
        label: Some("grey card".to_owned()),
    };
    edit::apply_primitive(context, args)
}
