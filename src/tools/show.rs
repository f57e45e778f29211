//! Pictures for a closer look: a part of the frame, a grid, two states beside each other, what differs between them,
//! and where a mask is.

use serde_json::{Value, json};

use crate::conversation::ImageRef;
use crate::tools::args::{Place, RenderPreview, ShowMask};
use crate::tools::context::ResolvedRef;
use crate::tools::look::io_fault;
use crate::tools::{Answer, ToolContext};
use base::error::{Coded, ErrorCode, Fault};
use darktable::render::{Picture, Quality};
use darktable::state::EditState;
use engine::photo::{AppliedMove, MoveId, Operation};
use engine::vocabulary::{MaskProbe, MaskSpec, ShownMask};
use pixels::metrics::difference::Difference;
use pixels::overlay::{self, Part};

/// Points and masks that one call may ask about.
const MOST_PLACES: usize = 8;

fn fault<E: Coded>(error: E) -> Fault {
    Fault::from(&error)
}

/// Whether a call of `render_preview` asks for more than the picture and its numbers.
pub fn is_wanted(args: &RenderPreview) -> bool {
    let of_mask = args.show_mask.is_some() || args.mask_for.is_some() || args.inside.is_some();
    args.crop.is_some() || args.grid || args.beside.is_some() || args.difference || of_mask
}

/// How a picture is presented: which part of it, how large, and whether with a grid.
struct Look {
    part: Part,
    /// Longest side of what is shown.
    edge: u32,
    grid: bool,
}

impl Look {
    fn finish(&self, whole: &Picture) -> Picture {
        let mut shown = self.part.cut(whole);
        if self.grid {
            overlay::grid(&mut shown, self.part);
        }
        shown
    }
}

/// The size of a picture, as the model reads it; in words when it is smaller than was asked for.
pub fn size(asked: u32, picture: &Picture) -> Value {
    let Picture { width, height, .. } = *picture;
    match width.max(height) < asked {
        true => json!(format!("{asked} asked, the photo has {width}x{height}")),
        false => json!([width, height]),
    }
}

/// The picture that was asked for.
pub fn render(context: &mut ToolContext<'_>, args: &RenderPreview, edge: u32) -> Result<Answer, Fault> {
    let part = match args.crop {
        Some(edges) => Part::new(edges)
            .map_err(|reason| Fault::new(ErrorCode::InvalidInput, reason).with("field", "crop"))?,
        None => Part::WHOLE,
    };
    let look = Look { part, edge, grid: args.grid };
    let place = context.place(args.r#ref.as_deref())?;
    if let Some(mask) = &args.show_mask {
        if args.beside.is_some() || args.difference {
            let message = "show_mask goes with crop and grid; ask for beside or difference in another call";
            return Err(Fault::new(ErrorCode::InvalidInput, message).with("field", "show_mask"));
        }
        let inside = args.inside.as_deref().unwrap_or_default();
        return mask_on(context, &place, mask, (args.mask_for.as_deref(), inside), &look);
    }
    if args.mask_for.is_some() || args.inside.is_some() {
        let field = if args.inside.is_some() { "inside" } else { "mask_for" };
        let fault = Fault::new(ErrorCode::InvalidInput, format!("{field} goes with show_mask"));
        return Err(fault.with("field", "show_mask").with("example", r#"{"show_mask": {"named": "sky"}}"#));
    }
    let mut data = json!({ "at": place.name, "state": place.commit.short() });
    let name = |place: &ResolvedRef| format!("{} at {}", place.name, place.commit.short());
    let (shown, caption) = if args.beside.is_some() || args.difference {
        let other = context.place(Some(args.beside.as_deref().unwrap_or("baseline")))?;
        let [before, now] = both(context, [&other.state, &place.state], &look)?;
        put(&mut data, "beside", json!(other.name));
        if args.difference {
            let map = overlay::heat_map(&look.part.cut(&before), &look.part.cut(&now));
            let mut map = map.ok_or_else(|| {
                let message = "the two pictures have different sizes, because one is cropped or turned";
                Fault::new(ErrorCode::InvalidInput, message)
                    .with("field", "difference")
                    .with("remedy", "look at them with `beside` alone")
            })?;
            put(&mut data, "size", size(edge, &map));
            let apart = Difference::between(&look.part.cut(&before), &look.part.cut(&now)).map_err(fault)?;
            put(&mut data, "delta_e", json!({"mean": apart.mean, "p95": apart.p95, "max": apart.max}));
            if look.grid {
                overlay::grid(&mut map, look.part);
            }
            (overlay::with_scale(&map), format!("difference of {} from {}", name(&place), name(&other)))
        } else {
            let [left, right] = [&before, &now].map(|picture| look.finish(picture));
            put(&mut data, "size", size(edge, &right));
            let (first, second) = ((&left, other.name.as_str()), (&right, place.name.as_str()));
            (overlay::beside(first, second), format!("{}, then {}", name(&other), name(&place)))
        }
    } else {
        let long = look.whole_edge(context, &place.state);
        let whole = context.render(&place.state, long, Quality::Preview)?.picture;
        let shown = look.finish(&whole);
        put(&mut data, "size", size(edge, &shown));
        (shown, name(&place))
    };
    if let Some(crop) = args.crop {
        put(&mut data, "crop", json!(crop));
    }
    let image = context.blobs.put_picture(&shown, caption).map_err(|e| io_fault(&e))?;
    Ok(Answer { data, images: vec![image], head: None })
}

impl Look {
    /// The longest side at which the whole frame is rendered. A part is cut from the whole: a crop of the edit itself
    /// would move what goes by the frame, such as a vignette.
    fn whole_edge(&self, context: &ToolContext<'_>, state: &EditState) -> u32 {
        if self.part == Part::WHOLE {
            return self.edge;
        }
        let shown = context.engine.facts.shown(state);
        self.part.whole_edge(self.edge, [shown.width, shown.height])
    }
}

/// The whole pictures of two states, side by side where they are of one size.
fn both(
    context: &mut ToolContext<'_>,
    states: [&EditState; 2],
    look: &Look,
) -> Result<[std::sync::Arc<Picture>; 2], Fault> {
    let [one, other] = states.map(|state| look.whole_edge(context, state));
    if one == other {
        let rendered = context.render_all(&states, one, Quality::Preview)?;
        if let [a, b] = rendered.as_slice() {
            return Ok([a.picture.clone(), b.picture.clone()]);
        }
    }
    let [a, b] = states;
    let first = context.render(a, one, Quality::Preview)?.picture;
    Ok([first, context.render(b, other, Quality::Preview)?.picture])
}

/// The picture of a place with a mask drawn over it.
fn mask_on(
    context: &mut ToolContext<'_>,
    place: &ResolvedRef,
    mask: &ShowMask,
    (mask_for, inside): (Option<&str>, &[Place]),
    look: &Look,
) -> Result<Answer, Fault> {
    if inside.len() > MOST_PLACES {
        let message = format!("{} places are too many: ask about {MOST_PLACES} at most", inside.len());
        return Err(Fault::new(ErrorCode::InvalidInput, message).with("field", "inside"));
    }
    let (probe, words) =
        probe_of(context, place, mask, mask_for).map_err(|fault| fault.with("field", "show_mask"))?;
    let mut others = Vec::new();
    for other in inside {
        let Place::Mask(other) = other else { continue };
        let found = probe_of(context, place, other, mask_for);
        others.push(found.map_err(|fault| fault.with("field", "inside"))?);
    }
    let mut states = vec![&place.state];
    for (probe, _) in
        std::iter::once((&probe, &words)).chain(others.iter().map(|(probe, words)| (probe, words)))
    {
        states.extend([&probe.without, &probe.with]);
    }
    let long = look.whole_edge(context, &place.state);
    let rendered = context.render_all(&states, long, Quality::Preview)?;
    let picture = |at: usize| rendered.get(at).map(|rendered| &*rendered.picture);
    let read = |probe: &MaskProbe, at: usize| probe.read(picture(2 * at + 1)?, picture(2 * at + 2)?);
    let drawn = read(&probe, 0).and_then(|shown| Some((shown.over(picture(0)?)?, shown)));
    let (drawn, shown) = drawn.ok_or_else(other_size)?;
    let drawn = look.finish(&drawn);
    let mut data = numbers(&shown, &words);
    put(&mut data, "at", json!(place.name));
    put(&mut data, "state", json!(place.commit.short()));
    put(&mut data, "size", size(look.edge, &drawn));
    let mut masks = others.iter().zip(1..);
    let mut found = Vec::new();
    for asked in inside {
        found.push(match asked {
            Place::Point(point) => {
                json!({ "at": point, "effect_percent": percent(f64::from(shown.at(*point))) })
            }
            Place::Mask(_) => {
                let (other, at) = masks.next().ok_or_else(other_size)?;
                let share = read(&other.0, at).and_then(|other| shown.share_on(&other));
                json!({ "on": other.1, "share_percent": percent(share.ok_or_else(other_size)?) })
            }
        });
    }
    if !found.is_empty() {
        put(&mut data, "inside", json!(found));
    }
    let caption = format!("mask over {} at {}: {words}", place.name, place.commit.short());
    let image = context.blobs.put_picture(&drawn, caption).map_err(|e| io_fault(&e))?;
    Ok(Answer { data, images: vec![image], head: None })
}

/// The result of a masked move that is about to be recorded, and its mask over that.
///
/// # Errors
/// A fault when the operation has no mask, or the pictures cannot be made.
pub fn before_commit(
    context: &mut ToolContext<'_>,
    state: &EditState,
    operation: &Operation,
) -> Result<(Value, Vec<ImageRef>), Fault> {
    let moves = operation.moves();
    let applied = moves.iter().rev().find(|applied| applied.mask.is_some());
    let applied = applied.ok_or_else(|| {
        Fault::new(ErrorCode::InvalidInput, "show_mask needs a mask").with("field", "show_mask")
    })?;
    let mask = mask_in(applied).ok_or_else(other_size)?;
    let engine = context.engine;
    let (facts, layouts) = (&engine.facts, &engine.layouts);
    let place = (applied.module.as_str(), applied.instance);
    let probe = match applied.instance {
        // A look, or a move that is idle.
        0 => engine.vocabulary.mask_probe(&mask, state, facts, layouts),
        _ => engine.vocabulary.placed_mask_probe(place, mask.opacity, state, facts, layouts),
    };
    let probe = probe.map_err(fault)?;
    let edge = context.view.start.preview_edge;
    let rendered = context.render_all(&[state, &probe.without, &probe.with], edge, Quality::Preview)?;
    let [result, without, with] = rendered.as_slice() else { return Err(other_size()) };
    let shown = probe.read(&without.picture, &with.picture).ok_or_else(other_size)?;
    let drawn = shown.over(&result.picture).ok_or_else(other_size)?;
    let words = mask.summary();
    let mut images = Vec::new();
    for (picture, caption) in [(&*result.picture, operation.to_string()), (&drawn, format!("mask: {words}"))]
    {
        images.push(context.blobs.put_picture(picture, caption).map_err(|e| io_fault(&e))?);
    }
    let mut data = numbers(&shown, &words);
    put(&mut data, "size", size(edge, &result.picture));
    Ok((data, images))
}

/// What is said of every mask.
fn numbers(shown: &ShownMask, words: &str) -> Value {
    json!({
        "mask": words,
        "covered_percent": percent(shown.covered()),
        "soft_percent": percent(shown.soft()),
    })
}

fn percent(share: f64) -> f64 {
    (share * 1000.0).round() / 10.0
}

fn put(data: &mut Value, field: &str, value: Value) {
    if let Some(data) = data.as_object_mut() {
        data.insert(field.to_owned(), value);
    }
}

fn other_size() -> Fault {
    Fault::new(ErrorCode::MaskingError, "the mask's picture has another size than the photo's")
}

/// The edits that show a mask at a place, and the mask in words.
fn probe_of(
    context: &mut ToolContext<'_>,
    place: &ResolvedRef,
    mask: &ShowMask,
    mask_for: Option<&str>,
) -> Result<(MaskProbe, String), Fault> {
    let found = match mask {
        ShowMask::Mask(mask) => Some(context.find_mask(mask, &place.state)?),
        ShowMask::Move(_) => None,
    };
    let placed = match mask {
        ShowMask::Move(name) => MoveId::parse(name),
        ShowMask::Mask(_) => None,
    };
    let standing = match &placed {
        Some(_) => Some(context.standing(&place.commit)?),
        None => None,
    };
    let engine = context.engine;
    let (vocabulary, facts, layouts) = (&engine.vocabulary, &engine.facts, &engine.layouts);
    let state = &place.state;
    let (name, mask) = match mask {
        ShowMask::Move(name) => (name, None),
        ShowMask::Mask(_) => (&String::new(), found.as_deref()),
    };
    let probe = match (mask, placed.as_ref().zip(standing.as_ref())) {
        (Some(mask), _) => {
            let version = engine.darktable_version();
            let probe = match mask_for {
                Some(name) => vocabulary.mask_probe_for(name, mask, state, facts, layouts, version),
                None => vocabulary.mask_probe(mask, state, facts, layouts),
            };
            return Ok((probe.map_err(fault)?, mask.summary()));
        }
        (None, Some((id, standing))) => {
            // The number is of the moves of that name, and not the module's.
            let found = standing.find(id).map_err(fault)?;
            let at = (found.module(), found.instance);
            (vocabulary.placed_mask_probe(at, None, state, facts, layouts), name.clone())
        }
        (None, _) => {
            let moves = context.moves(&place.commit)?;
            let (applied, mask) = last_masked(&moves, name)?;
            let found = (applied.name.as_str(), applied.module.as_str());
            let probe = match vocabulary.placed(found, &mask, state, facts, layouts) {
                Some(instance) => {
                    let place = (applied.module.as_str(), instance);
                    vocabulary.placed_mask_probe(place, mask.opacity, state, facts, layouts)
                }
                // A look has no module of its own.
                None => vocabulary.mask_probe(&mask, state, facts, layouts),
            };
            (probe, mask.summary())
        }
    };
    Ok((probe.0.map_err(fault)?, probe.1))
}

fn mask_in(applied: &AppliedMove) -> Option<MaskSpec> {
    serde_json::from_value(applied.mask.clone()?).ok()
}

/// The last masked move of that name that is in effect.
fn last_masked<'a>(moves: &'a [AppliedMove], name: &str) -> Result<(&'a AppliedMove, MaskSpec), Fault> {
    let masked = || moves.iter().filter(|applied| applied.mask.is_some());
    let found = masked().rev().find(|applied| applied.name == name);
    found.and_then(|applied| Some((applied, mask_in(applied)?))).ok_or_else(|| {
        let mut names: Vec<&str> = masked().map(|applied| applied.name.as_str()).collect();
        names.dedup();
        let present = if names.is_empty() { "none".into() } else { names.join(", ") };
        Fault::new(
            ErrorCode::NotFound,
            format!("no masked move `{name}` is in effect here; there is {present}"),
        )
        .with("example", r#"{"show_mask": {"named": "highlights"}}"#)
    })
}
