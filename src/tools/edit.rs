//! Tools that change the photo, always on a branch of the session.

use serde_json::{Value, json};

use crate::tools::args;
use crate::tools::lifecycle::{fatal, text};
use crate::tools::{Answer, ToolContext, placed, show};
use crate::transcript::{Event, HeadState};
use base::error::{ErrorCode, Fault};
use base::ids::{Hash, RefName};
use darktable::render::Quality;
use darktable::state::EditState;
use engine::photo::{Layers, Operation};
use engine::vocabulary::{ApplyRequest, RegionsRequest, SpotError, fill};

/// A ref name, or a fault that says what is legal.
fn ref_name(field: &str, name: &str) -> Result<RefName, Fault> {
    name.parse().map_err(|e: base::ids::InvalidName| Fault::from(&e).with("field", field))
}

pub fn apply_primitive(context: &mut ToolContext<'_>, args: args::ApplyPrimitive) -> Result<Answer, Fault> {
    let branch = context.branch()?;
    let place = context.place(None)?;
    let mask = args.mask.as_ref().map(|mask| context.find_mask(mask, &place.state)).transpose()?;
    let request = ApplyRequest {
        move_name: &args.primitive_name,
        values: &args.parameter_values,
        mask: mask.as_deref(),
    };
    let standing = context.standing(&place.commit)?;
    let (state, operation) = standing
        .apply(&request, &place.state, context.engine.layer_context())
        .map_err(|e| Fault::from(&e))?;
    let shown = args.show_mask.then(|| show::before_commit(context, &state, &operation)).transpose()?;
    let made = operation.clone();
    let mut answer = commit(context, &branch, &state, operation, args.label.as_deref())?;
    placed::say_made(context, &mut answer, &made, &standing)?;
    if let Some((data, images)) = shown {
        answer.add("shown", data);
        answer.images = images;
    }
    Ok(answer)
}

pub fn reset(context: &mut ToolContext<'_>, _: args::Nothing) -> Result<Answer, Fault> {
    let branch = context.branch()?;
    let baseline = context.place(Some("baseline"))?;
    commit(context, &branch, &baseline.state, Operation::Reset, None)
}

pub fn snapshot(context: &mut ToolContext<'_>, args: args::Snapshot) -> Result<Answer, Fault> {
    let label = text("label", &args.label, 200)?;
    let branch = context.branch()?;
    let place = context.place(None)?;
    commit(context, &branch, &place.state, Operation::Snapshot, Some(&label))
}

pub fn branch(context: &mut ToolContext<'_>, args: args::Branch) -> Result<Answer, Fault> {
    let name = ref_name("name", &args.name)?;
    let from = context.place(Some(args.from.as_deref().unwrap_or("baseline")))?;
    context.photo.set_call(Some(context.call));
    context.photo.create_branch(&name, &from.commit).map_err(|e| Fault::from(&e))?;
    created(context, format!("refs/heads/{name}"), &from.commit, &from.state_hash, "create branch")?;
    let vector = context
        .view
        .vector(&name)
        .map(|v| json!({"name": v.name, "direction": v.direction, "intensity": v.intensity}));
    let data = json!({ "branch": name, "commit": from.commit, "from": from.name, "vector": vector });
    let head = HeadState { branch: Some(name), commit: from.commit, state: from.state_hash };
    Ok(Answer { data, images: Vec::new(), head: Some(head) })
}

pub fn checkout(context: &mut ToolContext<'_>, args: args::Checkout) -> Result<Answer, Fault> {
    let place = context.place(Some(&args.r#ref))?;
    let branch = context.view.branches.iter().find(|b| b.name.as_str() == args.r#ref).map(|b| b.name.clone());
    if branch.is_none() && place.commit != context.view.start.baseline {
        let own: Vec<&str> = context.view.branches.iter().map(|b| b.name.as_str()).collect();
        let message = format!(
            "`{}` is not a branch of this session; there is: baseline, {}",
            args.r#ref,
            own.join(", ")
        );
        return Err(Fault::new(ErrorCode::PermissionDenied, message));
    }
    let data = json!({ "branch": branch, "commit": place.commit });
    let head = HeadState { branch, commit: place.commit, state: place.state_hash };
    Ok(Answer { data, images: Vec::new(), head: Some(head) })
}

pub fn tag(context: &mut ToolContext<'_>, args: args::Tag) -> Result<Answer, Fault> {
    let name = ref_name("name", &args.name)?;
    let place = context.place(args.r#ref.as_deref())?;
    context.photo.set_call(Some(context.call));
    context.photo.create_tag(&name, &place.commit, "").map_err(|e| Fault::from(&e))?;
    created(context, format!("refs/tags/{name}"), &place.commit, &place.state_hash, "create tag")?;
    Ok(json!({ "tag": name, "commit": place.commit }).into())
}

/// One move, or several, on many places as one step.
pub fn apply_per_region(context: &mut ToolContext<'_>, args: args::ApplyPerRegion) -> Result<Answer, Fault> {
    let branch = context.branch()?;
    let place = context.place(None)?;
    let regions = context.find_regions(&args.regions, &place.state)?;
    let engine = context.engine;
    let request = RegionsRequest { move_name: args.primitive_name.as_deref(), regions: &regions };
    let version = engine.darktable_version();
    let applied = engine
        .vocabulary
        .apply_regions(&request, &place.state, &engine.facts, &engine.layouts, version)
        .map_err(|e| Fault::from(&e).with("field", e.field()))?;
    let operation = Operation::of_regions(&request, &applied, &engine.vocabulary);
    let (standing, made) = (context.standing(&place.commit)?, operation.clone());
    let mut answer = commit(context, &branch, &applied.state, operation, args.label.as_deref())?;
    answer.add("n_regions", json!(args.regions.len()));
    placed::say_made(context, &mut answer, &made, &standing)?;
    Ok(answer)
}

/// Retouching.
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
    let mut answer = commit(context, &branch, &applied.state, operation, args.label.as_deref())?;
    answer.add("spots", json!(applied.spots));
    answer.add("spots_standing", json!(applied.standing));
    Ok(answer)
}

/// Binds the layers on the current branch.
pub fn bind_layers(context: &mut ToolContext<'_>, args: args::BindLayers) -> Result<Answer, Fault> {
    let branch = context.branch()?;
    let place = context.place(None)?;
    let layers = match (args.look, args.strength) {
        (Some(name), strength) => Layers::Look { name, strength },
        (None, None) => Layers::Bound,
        (None, Some(_)) => {
            let message = "`strength` goes with `look`";
            return Err(Fault::new(ErrorCode::InvalidInput, message).with("field", "strength"));
        }
    };
    let layers_of = context.engine.layer_context();
    let file = context.photo.workspace().photo().facts.clone();
    let bound =
        engine::photo::bind_layers(&layers, &place.state, &file, layers_of).map_err(|e| Fault::from(&e))?;
    let report = json!(bound.report);
    let mut answer = match bound.operation {
        Some(operation) => commit(context, &branch, &bound.state, operation, None)?,
        None => json!({ "branch": branch, "unchanged": true }).into(),
    };
    answer.add("layers", report);
    Ok(answer)
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
    commit(context, &branch, &to.state, Operation::Rollback { to: to.commit }, None)
}

/// Records a new state on a branch and moves the session there.
pub fn commit(
    context: &mut ToolContext<'_>,
    branch: &RefName,
    state: &EditState,
    operation: Operation,
    label: Option<&str>,
) -> Result<Answer, Fault> {
    let parent =
        context.view.branches.iter().find(|b| &b.name == branch).map(|b| b.tip.clone()).ok_or_else(|| {
            Fault::new(ErrorCode::NotFound, format!("`{branch}` is not a branch of this session"))
        })?;
    let words = operation.to_string();
    context.photo.set_call(Some(context.call));
    let info = context
        .photo
        .record_edit(branch, &parent, state, operation, label.unwrap_or_default())
        .map_err(|e| Fault::from(&e))?;
    if !info.unchanged {
        created(context, format!("refs/heads/{branch}"), &info.commit, &info.state, &words)?;
    }
    let data: Value = json!({
        "branch": branch,
        "snapshot_hash": info.commit,
        "state_hash": info.state,
        "op": words,
        "unchanged": info.unchanged,
    });
    let head = HeadState { branch: Some(branch.clone()), commit: info.commit, state: info.state };
    Ok(Answer { data, images: Vec::new(), head: Some(head) })
}

fn created(
    context: &mut ToolContext<'_>,
    name: String,
    commit: &Hash,
    state: &Hash,
    op: &str,
) -> Result<(), Fault> {
    let event = Event::SnapshotCreated { name, commit: commit.clone(), state: state.clone(), op: op.into() };
    context.gate.record(event).map(|_| ()).map_err(|e| fatal(&e))
}
