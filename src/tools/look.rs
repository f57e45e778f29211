//! Tools that look: pictures, numbers, history, context.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::tools::args;
use crate::tools::context::ResolvedRef;
use crate::tools::learn::word;
use crate::tools::reply::{self, FIGURES};
use crate::tools::{Answer, ToolContext, earlier, show};
use crate::transcript::{Event, file_remedy};
use base::error::{Coded, ErrorCode, Fault};
use base::files;
use darktable::render::Quality;
use engine::photo::read_context as read_photo_context;
use engine::vocabulary::{Filter, ListedMove};
use pixels::metrics::axes::Axis;
use pixels::metrics::check::VectorCheck;
use pixels::parallel::both;

const HOW_TO_READ: &str =
    "name(parameter least..greatest unit = default): what it does; ! = whole frame only, no mask";
const HOW_TO_READ_GROUPS: &str = "names (parameter least..greatest unit=default of each); no name = amount; ± = from minus to plus; ! = whole frame only, no mask. query, axis, tag or module: what moves do, and the ranges that are missing here";
/// Matches that are shown.
const FOUND: usize = 12;

fn fault<E: Coded>(error: E) -> Fault {
    Fault::from(&error)
}

pub fn read_context(context: &mut ToolContext<'_>, args: args::ReadContext) -> Result<Answer, Fault> {
    let found =
        read_photo_context(context.photo.workspace(), &context.engine.tastes, args.full).map_err(fault)?;
    let mut data =
        serde_json::to_value(&found).map_err(|e| Fault::new(ErrorCode::StateError, e.to_string()))?;
    if let Some(object) = data.as_object_mut() {
        let done = |line: &engine::photo::OpLine| {
            let by = if line.by == "person" { "a person" } else { "a session" };
            format!("{} by {by}: {}", line.reference.trim_start_matches("refs/heads/"), line.op)
        };
        let ingest =
            |line: &&engine::photo::OpLine| matches!(line.op, engine::photo::Operation::Ingest { .. });
        let recent: Vec<String> =
            found.recent_operations.iter().filter(|line| !ingest(line)).map(done).collect();
        object.insert("recent_operations".into(), json!(recent));
        let earlier = earlier::lines(context.photo.workspace(), &context.view.start.session);
        if !earlier.is_empty() {
            object.insert("earlier_sessions".into(), json!(earlier));
        }
        if found.notes.text.is_empty() {
            object.remove("notes");
        }
        // The session's own brief is in the system prompt; the photo's is told where it is another.
        object.retain(|name, value| {
            let nothing = value.is_null() || value == "" || value.as_array().is_some_and(Vec::is_empty);
            !(nothing || (name == "brief" && found.brief.trim() == context.view.start.brief.trim()))
        });
    }
    Ok(data.into())
}

pub fn get_state(context: &mut ToolContext<'_>, args: args::At) -> Result<Answer, Fault> {
    let place = context.place(args.r#ref.as_deref())?;
    let baseline = context.place(Some("baseline"))?;
    let standing = context.standing(&place.commit)?;
    let moves: Vec<String> =
        context.moves(&place.commit)?.iter().map(|applied| standing.words(applied)).collect();
    let mut answer = Answer::from(json!({ "at": place.name, "state": place.commit, "moves": moves }));
    // Moves say it all, but for spots and the like.
    if moves.is_empty() && place.state != baseline.state {
        answer.add("difference_from_baseline", json!(context.changes(&baseline, &place)?));
    }
    Ok(answer)
}

pub fn list_vocabulary(context: &mut ToolContext<'_>, args: args::ListVocabulary) -> Result<Answer, Fault> {
    let axis = args.axis.as_deref().map(str::parse::<Axis>).transpose().map_err(|e| {
        let names: Vec<&str> = Axis::ALL.iter().map(|a| a.name()).collect();
        Fault::new(ErrorCode::InvalidInput, format!("{e}; the axes are: {}", names.join(", ")))
            .with("field", "axis")
    })?;
    let filter = Filter { tag: args.tag.as_deref(), axis, module: args.module.as_deref() };
    let engine = context.engine;
    let (vocabulary, layouts, version) = (&engine.vocabulary, &engine.layouts, engine.darktable_version());
    let narrowed = args.tag.is_some() || args.axis.is_some() || args.module.is_some() || args.query.is_some();
    if !narrowed && !args.details {
        if args.looks {
            let looks = vocabulary.list_looks(&filter, layouts, version).map_err(fault)?;
            let lines: Vec<String> = looks.iter().map(ListedMove::line).collect();
            return Ok(json!({ "how_to_read": HOW_TO_READ, "looks": lines }).into());
        }
        let moves = vocabulary.list(&filter, layouts, version).map_err(fault)?;
        let masks: Vec<&str> = vocabulary.masks().iter().map(|mask| mask.name.as_str()).collect();
        let data = json!({
            "how_to_read": HOW_TO_READ_GROUPS,
            "count": moves.len(),
            "moves": vocabulary.by_group(&moves),
            "named_masks": masks,
        });
        let mut answer = Answer::from(data);
        let own = context.photo.workspace().saved_masks().map_err(fault)?;
        if !own.is_empty() {
            let told: BTreeMap<&String, String> =
                own.iter().map(|(name, one)| (name, one.mask.summary())).collect();
            answer.add("masks_of_this_photo", json!(told));
        }
        return Ok(answer);
    }
    let found = vocabulary.search(&filter, args.query.as_deref(), layouts, version).map_err(fault)?;
    let (looks, moves): (Vec<_>, Vec<_>) = found.into_iter().partition(|listed| listed.kind == "look");
    if args.details {
        return Ok(json!({ "count": moves.len(), "moves": moves, "looks": looks }).into());
    }
    let lines = |listed: &[ListedMove<'_>], most: usize| -> Vec<String> {
        let line = |one: &ListedMove<'_>| {
            let may = if one.maskable { "may be masked" } else { "whole frame only" };
            format!("{} [{may}]", one.line())
        };
        listed.iter().take(most).map(line).collect()
    };
    let mut answer = Answer::from(json!({ "count": moves.len(), "moves": lines(&moves, FOUND) }));
    if args.looks {
        answer.add("looks", json!(lines(&looks, FOUND)));
    } else if !looks.is_empty() {
        let names: Vec<&str> = looks.iter().take(FOUND).map(|look| look.name).collect();
        answer.add("looks", json!(names));
    }
    if let Some(query) = &args.query {
        let masks: Vec<_> =
            vocabulary.masks().list().into_iter().filter(|mask| mask.is_meant(query)).collect();
        if !masks.is_empty() {
            answer.add("named_masks", json!(masks));
        }
    }
    if moves.is_empty() {
        answer.add("tags", json!(vocabulary.tags()));
    }
    Ok(answer)
}

pub fn render_preview(context: &mut ToolContext<'_>, args: args::RenderPreview) -> Result<Answer, Fault> {
    let edge = args.size.unwrap_or(context.view.start.preview_edge);
    if !(128..=2048).contains(&edge) {
        return Err(Fault::new(ErrorCode::InvalidInput, format!("size {edge} is not in 128..2048"))
            .with("field", "size"));
    }
    if show::is_wanted(&args) {
        return show::render(context, &args, edge);
    }
    let place = context.place(args.r#ref.as_deref())?;
    let (data, image) = picture_of(context, &place, edge)?;
    let mut answer = Answer { data, images: vec![image], head: None };
    let parent = context.commit(&place.commit)?.parents.first().cloned();
    if let Some(parent) = parent.filter(|_| place.commit != context.view.start.baseline) {
        let before = context.place(Some(parent.as_str()))?;
        // A picture of the step before costs nothing when it was looked at; otherwise it is not worth a render.
        if let Some(before) = context.looked_at(&before.state, edge, Quality::Preview) {
            let now = context.render(&place.state, edge, Quality::Preview)?;
            let difference = json!(context.difference(&before, &now)?);
            answer.add_figure("versus_parent", difference);
        }
    }
    Ok(answer)
}

/// Fewer pictures came back than were asked for, which no renderer does.
fn missing() -> Fault {
    Fault::new(ErrorCode::StateError, "a picture did not come back")
}

pub fn image_stats(context: &mut ToolContext<'_>, args: args::At) -> Result<Answer, Fault> {
    let place = context.place(args.r#ref.as_deref())?;
    let edge = context.view.start.preview_edge;
    let rendered = context.render(&place.state, edge, Quality::Preview)?;
    Ok(json!({ "at": place.name, "state": place.commit, "stats": context.stats(&rendered) }).into())
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
    let axes = context.view.axes(branch.as_ref());
    let check = VectorCheck::of(&axes, &left_stats, &right_stats, &difference);
    let mut images = Vec::new();
    for (place, rendered, side) in [(&a, left, "a"), (&b, right, "b")] {
        let caption = format!("{side}: {} at {}", place.name, place.commit.short());
        images.push(context.blobs.put_picture(&rendered.picture, caption).map_err(|e| io_fault(&e))?);
    }
    let mut data = Map::new();
    for (side, place) in [("a", &a), ("b", &b)] {
        data.insert(side.into(), json!({ "at": place.name, "state": reply::short(&place.commit) }));
    }
    data.insert("changed".into(), json!(context.changes(&a, &b)?));
    data.insert("numbers".into(), reply::numbers(Some(&left_stats), &right_stats));
    reply::add_distance(&mut data, &difference);
    reply::add_check(&mut data, &axes, &check, (&left_stats, &right_stats), true);
    data.insert(FIGURES.into(), json!({ "difference": difference, "vector": check }));
    Ok(Answer { data: data.into(), images, head: None })
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
        || context.versus_baseline((branch.as_ref(), &place.commit), &rendered, edge, Quality::Preview),
    );
    let (versus, image) = (versus?, image.map_err(|e| io_fault(&e))?);
    let stats = context.stats(&rendered);
    let mut data = Map::new();
    data.insert("at".into(), json!(place.name));
    data.insert("state".into(), reply::short(&place.commit).into());
    data.insert("size".into(), show::size(edge, &rendered.picture));
    if place.commit == context.view.start.baseline {
        data.insert("numbers".into(), reply::numbers(None, &stats));
    } else {
        data.insert("changed".into(), json!(reply::changed(&context.moves(&place.commit)?)));
        data.insert("numbers".into(), reply::numbers(Some(&versus.base_stats), &stats));
        let (before, now) = match &versus.there {
            Some(there) => (&there.before, &there.now),
            None => (&versus.base_stats, &stats),
        };
        let whole = versus.there.is_none();
        reply::add_check(&mut data, &versus.axes, &versus.local(), (before, now), whole);
    }
    let figures = json!({
        "branch": branch,
        "commit": place.commit,
        "pixel_hash": rendered.pixel_hash,
        "stats": stats,
        "versus_baseline": versus.to_json(),
    });
    data.insert(FIGURES.into(), figures);
    Ok((data.into(), image))
}

pub fn diff(context: &mut ToolContext<'_>, args: args::Compare) -> Result<Answer, Fault> {
    let a = context.place(Some(args.a.as_deref().unwrap_or("baseline")))?;
    let b = context.place(args.b.as_deref())?;
    Ok(json!({ "a": a.name, "b": b.name, "changes": context.changes(&a, &b)? }).into())
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
    if let Some(part) = &args.session {
        let own = &context.view.start.session;
        if !own.as_str().contains(part.trim()) {
            return Ok(earlier::summary(context.photo.workspace(), own, part)?.into());
        }
    }
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
        Event::ProposalAnswered { id, status } => Some(format!("proposal {id} was {}", status.told())),
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
