//! Tools that change the photo, always on a branch of the session.

use serde_json::{Value, json};

use crate::tools::args;
use crate::tools::lifecycle::{fatal, text};
use crate::tools::{Answer, ToolContext};
use crate::transcript::{Event, HeadState};
use base::error::{ErrorCode, Fault};
use base::ids::{Hash, RefName};
use darktable::state::EditState;
use engine::photo::Operation;
use engine::vocabulary::ApplyRequest;

/// A ref name, or a fault that says what is legal.
fn ref_name(field: &str, name: &str) -> Result<RefName, Fault> {
    name.parse().map_err(|e: base::ids::InvalidName| Fault::from(&e).with("field", field))
}

pub fn apply_primitive(context: &mut ToolContext<'_>, args: args::ApplyPrimitive) -> Result<Answer, Fault> {
    let branch = context.branch()?;
    let place = context.place(None)?;
    let engine = context.engine;
    let request = ApplyRequest {
        move_name: &args.primitive_name,
        values: &args.parameter_values,
        mask: args.mask.as_ref(),
    };
    let version = engine.darktable_version();
    let (state, operation) =
        Operation::apply(&request, &engine.vocabulary, &place.state, &engine.facts, &engine.layouts, version)
            .map_err(|e| Fault::from(&e))?;
    commit(context, &branch, &state, operation, args.label.as_deref())
}

pub fn remove_module(context: &mut ToolContext<'_>, args: args::RemoveModule) -> Result<Answer, Fault> {
    let branch = context.branch()?;
    let place = context.place(None)?;
    let engine = context.engine;
    let selector = engine.vocabulary.selector(&args.module, args.instance);
    let state = engine
        .vocabulary
        .remove_module(&place.state, &selector, &engine.facts)
        .map_err(|e| Fault::from(&e))?;
    let operation = Operation::RemoveModule { instance: args.instance, module: args.module };
    commit(context, &branch, &state, operation, None)
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
