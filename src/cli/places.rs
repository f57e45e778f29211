//! `apply-regions`, `spot` and `remove`: a person's edits on places of a photo.

use serde_json::json;

use super::edit::MEASURED_EDGE;
use super::edit_args::{RegionsArgs, RemoveArgs, SpotArgs};
use super::failure::Failure;
use super::history::current_branch;
use super::resolve;
use super::setup::{App, interactive_deadline};
use base::ids::PhotoId;
use darktable::render::{ByHand, Quality, RenderRequest};
use darktable::state::EditState;
use engine::photo::Operation;
use engine::vocabulary::{PhotoFacts, Region, RegionsRequest, fill};

/// Applies a batch.
pub fn apply_regions(app: &App, args: &RegionsArgs) -> Result<(), Failure> {
    let regions = regions(&resolve::text(&args.regions)?)?;
    let request = RegionsRequest { move_name: args.name.as_deref(), regions: &regions };
    let vocabulary = app.vocabulary()?;
    let version = app.darktable()?.version().to_owned();
    edit(app, &args.photo, "apply-regions", args.label.as_deref(), |state, facts| {
        let applied = vocabulary.apply_regions(&request, state, facts, &app.layouts(), &version)?;
        let operation = Operation::of_regions(&request, &applied, &vocabulary);
        Ok((applied.state, operation))
    })
}

fn regions(text: &str) -> Result<Vec<Region>, Failure> {
    let mut json = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let at = if path == "." { String::new() } else { format!(" at regions{path}") };
        Failure::input(format!("invalid regions{at}: {}", error.inner())).remedy(
            r#"write a list like [{"mask":{"shape":"circle","center":[0.5,0.4],"radius":0.2},"parameter_values":{"ev":0.3}}]"#,
        )
    })
}

/// Retouches, or takes spots back.
pub fn spot(app: &App, args: &SpotArgs) -> Result<(), Failure> {
    let asked = args.spots();
    let vocabulary = app.vocabulary()?;
    let version = app.darktable()?.version().to_owned();
    let raw = app.photo(&args.photo)?.raw();
    edit(app, &args.photo, "spot", args.label.as_deref(), |state, facts| {
        let layouts = app.layouts();
        let mut spots = vocabulary.place_spots(&asked, state, facts, &layouts, &version)?;
        if spots.iter().any(fill::is_wanting) {
            let probe = fill::probe(state);
            let (long_edge, quality) = (MEASURED_EDGE, Quality::Preview);
            let request = RenderRequest { raw: &raw, state: &probe, long_edge, quality };
            fill::measure(
                &mut spots,
                &app.steady_renderer()?.render(&request, &interactive_deadline(), &ByHand)?.picture,
            );
        }
        let applied = vocabulary.apply_spots(&spots, state, facts, &layouts, &version)?;
        Ok((applied.state, Operation::ApplySpot { spots: applied.spots }))
    })
}

/// Takes a move or a module back.
pub fn remove(app: &App, args: &RemoveArgs) -> Result<(), Failure> {
    let vocabulary = app.vocabulary()?;
    let selector = vocabulary.selector(&args.name, args.instance);
    edit(app, &args.photo, "remove", None, |state, facts| {
        let state = vocabulary.remove_module(state, &selector, facts)?;
        Ok((state, Operation::RemoveModule { instance: args.instance, module: args.name.clone() }))
    })
}

/// Records what `change` makes of the branch that HEAD follows.
fn edit(
    app: &App,
    photo: &PhotoId,
    purpose: &str,
    label: Option<&str>,
    change: impl FnOnce(&EditState, &PhotoFacts) -> Result<(EditState, Operation), Failure>,
) -> Result<(), Failure> {
    let mut writer = app.writer(photo, purpose)?;
    let branch = current_branch(&writer.workspace().head()?, photo)?;
    let parent = writer.workspace().head_commit()?;
    let workspace = writer.workspace();
    let (state, operation) = change(&workspace.state_of(&parent)?, &workspace.facts(&parent)?)?;
    let words = operation.to_string();
    let info = writer.record_edit(&branch, &parent, &state, operation, label.unwrap_or_default())?;
    let result = json!({
        "branch": branch, "commit": info.commit, "state": info.state, "op": words, "unchanged": info.unchanged,
    });
    app.output.result(&result, || match info.unchanged {
        true => {
            format!("{branch}  {}  unchanged: already has this ({words})\n", info.commit.short())
        }
        false => format!("{branch}  {}  {words}\n", info.commit.short()),
    })
}
