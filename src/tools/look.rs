//! Tools that look: pictures, numbers, history, context.

use serde_json::{Value, json};

use crate::tools::args;
use crate::tools::context::ResolvedRef;
use crate::tools::learn::word;
use crate::tools::{Answer, ToolContext};
use crate::transcript::{Event, file_remedy};
use base::error::{Coded, ErrorCode, Fault};
use base::files;
use darktable::render::Quality;
use engine::photo::{AppliedMove, read_context as read_photo_context};
use engine::vocabulary::{Filter, ListedMove, MaskSpec};
use pixels::metrics::axes::Axis;
use pixels::metrics::check::VectorCheck;
use pixels::parallel::both;

fn fault<E: Coded>(error: E) -> Fault {
    Fault::from(&error)
}

pub fn read_context(context: &mut ToolContext<'_>, args: args::ReadContext) -> Result<Answer, Fault> {
    let found =
        read_photo_context(context.photo.workspace(), &context.engine.tastes, args.full).map_err(fault)?;
    let mut data =
        serde_json::to_value(&found).map_err(|e| Fault::new(ErrorCode::StateError, e.to_string()))?;
    if let Some(object) = data.as_object_mut() {
        // The brief and criteria of this very session come first, whatever the photo's own files say.
        object.insert("session_brief".into(), context.view.start.brief.clone().into());
        object.insert("criteria".into(), context.view.start.criteria.clone().into());
    }
    Ok(data.into())
}

pub fn get_state(context: &mut ToolContext<'_>, args: args::At) -> Result<Answer, Fault> {
    let place = context.place(args.r#ref.as_deref())?;
    let baseline = context.place(Some("baseline"))?;
    let moves: Vec<String> = context.moves(&place.commit)?.iter().map(ToString::to_string).collect();
    let changes: Vec<String> =
        engine::photo::diff(&baseline.state, &place.state).iter().map(ToString::to_string).collect();
    Ok(json!({
        "at": place.name,
        "commit": place.commit,
        "state": place.state_hash,
        "moves": moves,
        "difference_from_baseline": changes,
    })
    .into())
}

pub fn list_vocabulary(context: &mut ToolContext<'_>, args: args::ListVocabulary) -> Result<Answer, Fault> {
    let axis = args.axis.as_deref().map(str::parse::<Axis>).transpose().map_err(|e| {
        let names: Vec<&str> = Axis::ALL.iter().map(|a| a.name()).collect();
        Fault::new(ErrorCode::InvalidInput, format!("{e}; the axes are: {}", names.join(", ")))
            .with("field", "axis")
    })?;
    let filter = Filter { tag: args.tag.as_deref(), axis, module: args.module.as_deref() };
    let engine = context.engine;
    let version = engine.darktable_version();
    let moves = engine.vocabulary.list(&filter, &engine.layouts, version).map_err(fault)?;
    let looks = engine.vocabulary.list_looks(&filter, &engine.layouts, version).map_err(fault)?;
    let narrowed = args.tag.is_some() || args.axis.is_some() || args.module.is_some();
    if narrowed || args.details {
        return Ok(json!({ "count": moves.len(), "moves": moves, "looks": looks }).into());
    }
    let lines = |listed: Vec<ListedMove<'_>>| listed.iter().map(ListedMove::line).collect::<Vec<_>>();
    let data = json!({
        "how_to_read": "name(parameter least..greatest unit = default): what it does; ! = whole frame only, no mask",
        "count": moves.len(),
        "moves": lines(moves),
        "looks": lines(looks),
        // Who looks for one kind of move does not look for masks.
        "named_masks": engine.vocabulary.masks().list(),
    });
    Ok(data.into())
}

pub fn render_preview(context: &mut ToolContext<'_>, args: args::RenderPreview) -> Result<Answer, Fault> {
    let edge = args.size.unwrap_or(context.view.start.preview_edge);
    if !(128..=2048).contains(&edge) {
        return Err(Fault::new(ErrorCode::InvalidInput, format!("size {edge} is not in 128..2048"))
            .with("field", "size"));
    }
    let place = context.place(args.r#ref.as_deref())?;
    if let Some(mask) = &args.show_mask {
        return mask_on(context, &place, mask, edge);
    }
    let (data, image) = picture_of(context, &place, edge)?;
    let mut answer = Answer { data, images: vec![image], head: None };
    let parent = context.photo.workspace().commit(&place.commit).map_err(fault)?.parents.first().cloned();
    if let Some(parent) = parent.filter(|_| place.commit != context.view.start.baseline) {
        let before = context.place(Some(parent.as_str()))?;
        // A picture of the step before costs nothing when it was looked at; otherwise it is not worth a render.
        if let Some(before) = context.looked_at(&before.state, edge, Quality::Preview) {
            let now = context.render(&place.state, edge, Quality::Preview)?;
            answer.add("versus_parent", json!(context.difference(&before, &now)?));
        }
    }
    Ok(answer)
}

/// The picture of a place with a mask drawn over it.
fn mask_on(
    context: &mut ToolContext<'_>,
    place: &ResolvedRef,
    mask: &args::ShowMask,
    edge: u32,
) -> Result<Answer, Fault> {
    let of_move;
    let mask: &MaskSpec = match mask {
        args::ShowMask::Mask(mask) => mask,
        args::ShowMask::Move(name) => {
            of_move = mask_of(&context.moves(&place.commit)?, name)?;
            &of_move
        }
    };
    let mask = context.find_mask(mask, &place.state)?;
    let engine = context.engine;
    let probe = engine
        .vocabulary
        .mask_probe(&mask, &place.state, &engine.facts, &engine.layouts)
        .map_err(|error| fault(error).with("field", "show_mask"))?;
    let states = [&place.state, &probe.without, &probe.with];
    let rendered = context.render_all(&states, edge, Quality::Preview)?;
    let [picture, without, with] = rendered.as_slice() else { return Err(missing()) };
    let shown = probe.read(&without.picture, &with.picture);
    let (shown, drawn) =
        shown.and_then(|shown| shown.over(&picture.picture).map(|drawn| (shown, drawn))).ok_or_else(
            || Fault::new(ErrorCode::MaskingError, "the mask's picture has another size than the photo's"),
        )?;
    let words = mask.summary();
    let caption = format!("mask over {} at {}: {words}", place.name, place.commit.short());
    let image = context.blobs.put_picture(&drawn, caption).map_err(|e| io_fault(&e))?;
    let percent = (shown.covered() * 1000.0).round() / 10.0;
    let data = json!({
        "at": place.name,
        "commit": place.commit,
        "mask": words,
        "covered_percent": percent,
        "size": [drawn.width, drawn.height],
    });
    Ok(Answer { data, images: vec![image], head: None })
}

/// Fewer pictures came back than were asked for, which no renderer does.
fn missing() -> Fault {
    Fault::new(ErrorCode::StateError, "a picture did not come back")
}

/// The mask of the last move of that name that is in effect.
fn mask_of(moves: &[AppliedMove], name: &str) -> Result<MaskSpec, Fault> {
    let masked = || moves.iter().filter(|applied| applied.mask.is_some());
    let found = masked().rev().find(|applied| applied.name == name);
    let mask = found.and_then(|applied| serde_json::from_value(applied.mask.clone()?).ok());
    mask.ok_or_else(|| {
        let mut names: Vec<&str> = masked().map(|applied| applied.name.as_str()).collect();
        names.dedup();
        let present = if names.is_empty() { "none".into() } else { names.join(", ") };
        Fault::new(ErrorCode::NotFound, format!("no masked move `{name}` stands here; there is {present}"))
            .with("field", "show_mask")
            .with("example", r#"{"show_mask": {"named": "highlights"}}"#)
    })
}

pub fn image_stats(context: &mut ToolContext<'_>, args: args::At) -> Result<Answer, Fault> {
    let place = context.place(args.r#ref.as_deref())?;
    let edge = context.view.start.preview_edge;
    let rendered = context.render(&place.state, edge, Quality::Preview)?;
    Ok(json!({ "at": place.name, "commit": place.commit, "stats": context.stats(&rendered) }).into())
}

pub fn compare(context: &mut ToolContext<'_>, args: args::Compare) -> Result<Answer, Fault> {
    let a = context.place(Some(args.a.as_deref().unwrap_or("baseline")))?;
    let b = context.place(args.b.as_deref())?;
    let edge = context.view.start.preview_edge;
    let rendered = context.render_all(&[&a.state, &b.state], edge, Quality::Preview)?;
    let [left, right] = rendered.as_slice() else { return Err(missing()) };
    let (left_stats, right_stats) = (context.stats(left), context.stats(right));
    let difference = context.difference(left, right)?;
    let branch =
        context.view.branches.iter().find(|branch| branch.tip == b.commit).map(|branch| branch.name.clone());
    let check = VectorCheck::of(&context.view.axes(branch.as_ref()), &left_stats, &right_stats, &difference);
    let mut images = Vec::new();
    for (place, rendered, side) in [(&a, left, "a"), (&b, right, "b")] {
        let caption = format!("{side}: {} at {}", place.name, place.commit.short());
        images.push(context.blobs.put_picture(&rendered.picture, caption).map_err(|e| io_fault(&e))?);
    }
    let data = json!({
        "a": {"at": a.name, "commit": a.commit, "stats": left_stats},
        "b": {"at": b.name, "commit": b.commit, "stats": right_stats},
        "difference": difference,
        "vector": check,
    });
    Ok(Answer { data, images, head: None })
}

/// The picture of a place with its numbers, and the JPEG for the model.
fn picture_of(
    context: &mut ToolContext<'_>,
    place: &ResolvedRef,
    edge: u32,
) -> Result<(Value, crate::conversation::ImageRef), Fault> {
    let rendered = context.render(&place.state, edge, Quality::Preview)?;
    let branch = context.view.branches.iter().find(|b| b.tip == place.commit).map(|b| b.name.clone());
    let branch = branch.or_else(|| context.view.head.branch.clone());
    let (blobs, caption) = (context.blobs, format!("{} at {}", place.name, place.commit.short()));
    let (image, versus) = both(
        || blobs.put_picture(&rendered.picture, caption),
        || context.versus_baseline(branch.as_ref(), &rendered, edge, Quality::Preview),
    );
    let (versus, image) = (versus?, image.map_err(|e| io_fault(&e))?);
    let data = json!({
        "at": place.name,
        "branch": branch,
        "commit": place.commit,
        "state": place.state_hash,
        "size": [rendered.picture.width, rendered.picture.height],
        "pixel_hash": rendered.pixel_hash,
        "stats": context.stats(&rendered),
        "versus_baseline": versus.to_json(),
    });
    Ok((data, image))
}

pub fn diff(context: &mut ToolContext<'_>, args: args::Compare) -> Result<Answer, Fault> {
    let a = context.place(Some(args.a.as_deref().unwrap_or("baseline")))?;
    let b = context.place(args.b.as_deref())?;
    let changes: Vec<String> =
        engine::photo::diff(&a.state, &b.state).iter().map(ToString::to_string).collect();
    Ok(json!({ "a": a.name, "b": b.name, "changes": changes }).into())
}

pub fn log(context: &mut ToolContext<'_>, args: args::Log) -> Result<Answer, Fault> {
    let place = context.place(args.r#ref.as_deref())?;
    let limit = args.limit.unwrap_or(20).clamp(1, 100);
    let mut rows = Vec::new();
    let mut next = Some(place.commit);
    while let Some(hash) = next.filter(|_| rows.len() < limit) {
        let commit = context.commit(&hash)?;
        rows.push(json!({"commit": hash, "op": commit.op.to_string(), "label": commit.label}));
        next = commit.parents.into_iter().next();
    }
    Ok(json!({ "at": place.name, "commits": rows }).into())
}

pub fn read_transcript(context: &mut ToolContext<'_>, args: args::ReadTranscript) -> Result<Answer, Fault> {
    let read = crate::transcript::read(&context.folder.join("transcript.jsonl")).map_err(fault)?;
    let last = args.last.unwrap_or(30).clamp(1, 200);
    let told =
        read.lines.iter().filter_map(|line| Some((line.seq, line.mono_ms / 1000, headline(&line.event)?)));
    let rows: Vec<String> = told.map(|(seq, at, what)| format!("{seq} {at}s {what}")).collect();
    let from = rows.len().saturating_sub(last);
    Ok(json!({ "events": rows.get(from..).unwrap_or_default() }).into())
}

/// One line about an event, for the events that a model gains by reading again.
fn headline(event: &Event) -> Option<String> {
    match event {
        Event::Confirmed { .. } => Some("plan confirmed".into()),
        Event::ToolCall(intent) => Some(format!("called {} {}", intent.call.name, intent.call.arguments)),
        Event::ToolResult { result, code: Some(code), .. } => {
            Some(format!("{} failed: {code:?}", result.name))
        }
        Event::SnapshotCreated { name, commit, op, .. } => {
            Some(format!("{name} -> {} ({op})", commit.short()))
        }
        Event::Judgment(j) => Some(format!("judged {} {}/5", j.branch, j.judged_score)),
        Event::Proposal { target, text, .. } => Some(format!("proposed for {}: {text}", word(*target))),
        Event::Gap { description } => Some(format!("gap: {description}")),
        Event::CapFired { exhausted } => Some(exhausted.to_string()),
        _ => None,
    }
}

/// A file that could not be written.
pub fn io_fault(error: &std::io::Error) -> Fault {
    let fault = Fault::new(ErrorCode::StateError, format!("a picture could not be stored: {error}")).fatal();
    let halts = files::is_full(error);
    let remedy = if halts { file_remedy(error) } else { "check free space and permissions of the workspace" };
    Fault { halts, ..fault.with("remedy", remedy) }
}
