//! What camera and lens call for, and a look to start from.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::tools::edit::commit;
use crate::tools::{Answer, ToolContext};
use base::error::Fault;
use engine::photo::{LayerContext, Layers, bind_layers as bind};

/// Arguments of `bind_layers`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BindLayers {
    /// A look by name to start from; left out = what the photographer bound to this camera and lens.
    #[serde(default)]
    pub look: Option<String>,
    /// 0 to 1, with a look; left out = the look's default.
    #[serde(default)]
    pub strength: Option<f64>,
}

/// Binds the layers on the current branch.
pub fn bind_layers(context: &mut ToolContext<'_>, args: BindLayers) -> Result<Answer, Fault> {
    let branch = context.branch()?;
    let place = context.place(None)?;
    let layers = match (args.look, args.strength) {
        (Some(name), strength) => Layers::Look { name, strength },
        (None, None) => Layers::Bound,
        (None, Some(_)) => {
            let message = "`strength` goes with `look`";
            return Err(Fault::new(base::error::ErrorCode::InvalidInput, message).with("field", "strength"));
        }
    };
    let engine = context.engine;
    let tools = LayerContext {
        vocabulary: &engine.vocabulary,
        facts: &engine.facts,
        layouts: &engine.layouts,
        darktable: engine.darktable_version(),
    };
    let file = context.photo.workspace().photo().facts.clone();
    let bound = bind(&layers, &place.state, &file, tools).map_err(|e| Fault::from(&e))?;
    let report = json!(bound.report);
    let mut answer = match bound.operation {
        Some(operation) => commit(context, &branch, &bound.state, operation, None)?,
        None => json!({ "branch": branch, "unchanged": true }).into(),
    };
    answer.add("layers", report);
    Ok(answer)
}
