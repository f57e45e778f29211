//! Taking edits over from one photo to another.
//!
//! What an edit changed in a module is set on the target, the rest of the target's edit stays. Where the vocabulary
//! is relative to a photo's baseline (white balance, exposure), so is this: the target gets the same shift, not the
//! same number. A masked instance goes over whole; its forms keep their place on the displayed picture, however the
//! target's raw lies and is cropped, and forms that are not modelled stay as they are.
//!
//! What belongs to a photo itself is never taken over (levels, demosaicing, profiles, orientation, warps); its
//! frame, spots and lens correction are if they are requested.

use std::collections::{BTreeMap, BTreeSet};

use crate::vocabulary::apply::{
    PhotoFacts, at_rest, base_fields, finish, put, read, renumber, replace, rest_value,
};
use crate::vocabulary::error::VocabularyError;
use crate::vocabulary::form::Target;
use crate::vocabulary::frames::Transfer;
use crate::vocabulary::geometry::WorkedOut;
use crate::vocabulary::lens;
use crate::vocabulary::load::Vocabulary;
use crate::vocabulary::mask::Frame;
use crate::vocabulary::moves::{ModuleRules, Move};
use crate::vocabulary::regions::same_place;
use base::error::{Coded, ErrorCode};
use base::hint::did_you_mean;
use darktable::forms;
use darktable::layout::{Layout, Layouts};
use darktable::order;
use darktable::params;
use darktable::state::{EditState, GroupMember, MaskForm, Module, Params, Shape, Value};

type Fields = BTreeMap<String, Value>;

/// What belongs to the photo and not to the edit.
const NEVER: [&str; 13] = [
    "rawprepare",
    "invert",
    "demosaic",
    "rotatepixels",
    "scalepixels",
    "flip",
    "liquify",
    "mask_manager",
    "colorin",
    "colorout",
    "finalscale",
    "rasterfile",
    "gamma",
];

/// What is not copied unless it is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extra {
    /// The frame.
    Crop,
    /// Perspective and straightening.
    Perspective,
    /// Retouched spots.
    Spots,
    /// Corrections of the lens.
    Lens,
}

impl Extra {
    fn of(op: &str) -> Option<Self> {
        match op {
            "crop" | "clipping" => Some(Self::Crop),
            "ashift" => Some(Self::Perspective),
            "retouch" | "spots" => Some(Self::Spots),
            "lens" => Some(Self::Lens),
            _ => None,
        }
    }
}

/// What is to be taken over. What is named in `moves` or `modules` needs no `include`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only these moves; with `modules` empty too, every edit.
    pub moves: Vec<String>,
    /// Only these modules.
    pub modules: Vec<String>,
    /// What is copied besides.
    pub include: BTreeSet<Extra>,
}

/// A photo's edit, and the photo.
#[derive(Clone, Copy, Debug)]
pub struct PhotoEdit<'a> {
    /// The edit.
    pub state: &'a EditState,
    /// The photo.
    pub facts: &'a PhotoFacts,
}

/// The edits that are taken over.
#[derive(Clone, Debug)]
pub struct Edits<'a> {
    source: PhotoEdit<'a>,
    edits: Vec<Edit<'a>>,
    /// Modules that the source changed and that stay behind.
    pub left: Vec<String>,
}

/// One module instance of the source.
#[derive(Clone, Debug)]
struct Edit<'a> {
    module: &'a Module,
    /// The fields that count, where moves were chosen; all without.
    only: Option<BTreeSet<Target>>,
}

/// Why nothing can be taken over.
#[derive(Debug, thiserror::Error)]
pub enum PropagateError {
    /// A chosen move or module is not in the source's edit.
    #[error("the source has no edit of `{name}`{hint}; it has {present}")]
    NotThere {
        /// What was chosen.
        name: String,
        /// What may have been meant.
        hint: String,
        /// What it has.
        present: String,
    },
    /// The module belongs to the photo itself.
    #[error("`{0}` belongs to the photo itself and is not copied")]
    OwnToThePhoto(String),
    /// The source is as darktable opens it, or what it has was not requested.
    #[error("the source has no edits to copy{}", left(.0))]
    Nothing(Vec<String>),
    /// An edit does not fit the target.
    #[error("{op} cannot be copied: {reason}")]
    DoesNotFit {
        /// darktable's module.
        op: String,
        /// Why.
        reason: String,
    },
    /// A chosen move is none.
    #[error(transparent)]
    Vocabulary(#[from] VocabularyError),
}

fn left(modules: &[String]) -> String {
    if modules.is_empty() {
        String::new()
    } else {
        format!(" (not copied by default: {})", modules.join(", "))
    }
}

impl Coded for PropagateError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::NotThere { .. } | Self::Nothing(_) => ErrorCode::NotFound,
            Self::OwnToThePhoto(_) => ErrorCode::InvalidInput,
            Self::DoesNotFit { .. } => ErrorCode::SynthesizerError,
            Self::Vocabulary(error) => error.code(),
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::Nothing(left) if !left.is_empty() => {
                Some("include them with --include crop,perspective,spots,lens".into())
            }
            Self::Vocabulary(error) => error.remedy(),
            _ => None,
        }
    }
}

impl Vocabulary {
    /// The edits of the source that the selection means.
    ///
    /// # Errors
    /// [`PropagateError`], if a chosen move or module is not there, belongs to the photo itself, or nothing is left.
    pub fn edits<'a>(
        &self,
        source: PhotoEdit<'a>,
        selection: &Selection,
    ) -> Result<Edits<'a>, PropagateError> {
        let mut moves: Vec<&Move> = Vec::new();
        for name in &selection.moves {
            moves.push(self.get(name)?);
        }
        let mut modules = moves.iter().map(|entry| &entry.module).chain(&selection.modules);
        if let Some(op) = modules.find(|op| NEVER.contains(&op.as_str())) {
            return Err(PropagateError::OwnToThePhoto(op.clone()));
        }
        let everything = moves.is_empty() && selection.modules.is_empty();
        let mut found = Edits { source, edits: Vec::new(), left: Vec::new() };
        let mut used: BTreeSet<&str> = BTreeSet::new();
        let changed = || source.state.modules.iter().filter(|module| self.is_changed(module, source));
        for module in changed() {
            let named = selection.modules.iter().find(|op| **op == module.op);
            let wanted = match Extra::of(&module.op) {
                _ if NEVER.contains(&module.op.as_str()) => false,
                Some(extra) => everything && selection.include.contains(&extra),
                None => everything,
            };
            if wanted || named.is_some() {
                found.edits.push(Edit { module, only: None });
                used.extend(named.map(String::as_str));
                continue;
            }
            let mine = moves.iter().filter(|entry| entry.module == module.op);
            let mine: Vec<_> = if module.instance == 0 {
                let touched = self.changes(module, source, None);
                let moved = |entry: &&Move| driven(entry).any(|target| touched.contains(target));
                mine.filter(|entry| entry.is_in(module) && (moved(entry) || entry.opacity.is_some()))
                    .collect()
            } else {
                mine.filter(|entry| entry.name == module.name).collect()
            };
            if mine.is_empty() {
                found.left.push(module.op.clone());
                continue;
            }
            used.extend(mine.iter().map(|entry| entry.name.as_str()));
            let fields = mine.iter().flat_map(|entry| driven(entry)).cloned().collect();
            found.edits.push(Edit { module, only: (module.instance == 0).then_some(fields) });
        }
        found.left.dedup();
        let named = selection.moves.iter().chain(&selection.modules);
        if let Some(name) = named.into_iter().find(|name| !used.contains(name.as_str())) {
            let present: BTreeSet<&str> = changed().map(|module| module.op.as_str()).collect();
            return Err(PropagateError::NotThere {
                name: name.clone(),
                hint: did_you_mean(name, present.iter().copied()),
                present: present.into_iter().collect::<Vec<_>>().join(", "),
            });
        }
        if found.edits.is_empty() {
            return Err(PropagateError::Nothing(found.left));
        }
        Ok(found)
    }

    /// Sets edits on another photo's edit. Pure; the same edits again are the same state.
    ///
    /// # Errors
    /// [`PropagateError::DoesNotFit`] names the module.
    pub fn propagate(
        &self,
        edits: &Edits<'_>,
        target: PhotoEdit<'_>,
        layouts: &Layouts,
    ) -> Result<EditState, PropagateError> {
        let mut new = target.state.clone();
        // The frame first: masks are placed on the picture as it will be shown.
        let (frames, others): (Vec<&Edit<'_>>, _) = edits
            .edits
            .iter()
            .partition(|edit| matches!(Extra::of(&edit.module.op), Some(Extra::Crop | Extra::Perspective)));
        for edit in frames {
            self.set_base(edit, edits.source, target, None, layouts, &mut new)?;
        }
        let frame = Frame::of(&new, target.facts);
        let transfer = Transfer::between(Frame::of(edits.source.state, edits.source.facts), frame);
        for edit in others {
            let module = edit.module;
            if module.instance == 0 {
                self.set_base(edit, edits.source, target, transfer.as_ref(), layouts, &mut new)?;
                continue;
            }
            let mut module = with_forms(module, &edits.source.state.masks, transfer.as_ref(), &mut new)?;
            let standing = new.modules.iter().find(|known| known.instance > 0 && same_place(known, &module));
            let numbers =
                new.modules.iter().filter(|known| known.op == module.op).map(|known| known.instance);
            module.instance = standing.map_or(numbers.max().unwrap_or(0) + 1, |known| known.instance);
            replace(&mut new, module);
        }
        finish(&mut new, target.facts);
        let touched: BTreeSet<&str> = edits.edits.iter().map(|edit| edit.module.op.as_str()).collect();
        for op in touched {
            renumber(&mut new, target.facts, op, 0);
        }
        order::sort(&mut new);
        Ok(new)
    }

    fn is_changed(&self, module: &Module, source: PhotoEdit<'_>) -> bool {
        source.facts.baseline.module(&module.op, module.instance) != Some(module)
    }

    /// The fields of an instance 0 that are not as they rest on that photo; where its baseline does not have the
    /// module, those that no move drives are held against darktable's defaults.
    fn changes(&self, module: &Module, source: PhotoEdit<'_>, defaults: Option<&Fields>) -> BTreeSet<Target> {
        let Params::Fields(fields) = &module.params else { return BTreeSet::new() };
        let base = base_fields(source.facts, &module.op);
        let reference = base.or(defaults);
        let rules = self.rules(&module.op);
        let targets = fields.iter().flat_map(|(name, value)| targets(name, value));
        targets
            .filter(|target| match (read(fields, target), rest_value(rules, base, target)) {
                (Some(now), Some(rest)) => now.to_bits() != rest.to_bits(),
                (Some(now), None) => reference.and_then(|known| read(known, target)) != Some(now),
                (None, _) => {
                    reference.and_then(|known| known.get(&target.field)) != fields.get(&target.field)
                }
            })
            .collect()
    }

    /// Sets what an instance 0 changed.
    fn set_base(
        &self,
        edit: &Edit<'_>,
        source: PhotoEdit<'_>,
        target: PhotoEdit<'_>,
        transfer: Option<&Transfer>,
        layouts: &Layouts,
        new: &mut EditState,
    ) -> Result<(), PropagateError> {
        let op = &edit.module.op;
        if op == "ashift" && lie(source) != lie(target) {
            let reason = "the target is turned another way".into();
            return Err(PropagateError::DoesNotFit { op: op.clone(), reason });
        }
        if !edit.module.enabled {
            if let Some(standing) = new.module_mut(op, 0) {
                standing.enabled = false;
            }
            return Ok(());
        }
        let mut moved = with_forms(edit.module, &source.state.masks, transfer, new)?;
        let rules = self.rules(op);
        let to = base_fields(target.facts, op);
        // Each file names its own lens.
        let by_its_lens = |fields: &mut Fields| {
            if rules.worked_out == Some(WorkedOut::Lens) {
                lens::settle(fields, to, &target.facts.shot);
            }
        };
        if let (Params::Fields(fields), false) = (&mut moved.params, rules.fixed.is_empty()) {
            by_its_lens(fields);
        }
        let (Params::Fields(given), None | Some(Extra::Crop | Extra::Perspective | Extra::Lens), true) =
            (&moved.params, Extra::of(op), rules.fixed.is_empty())
        else {
            // Spots, moves of fixed fields, and what is not modelled, are copied whole.
            replace(new, moved);
            return Ok(());
        };
        let from = base_fields(source.facts, op);
        let at_work = |state: &EditState| state.module(op, 0).filter(|module| module.enabled).cloned();
        let standing = at_work(new).or_else(|| at_work(&target.facts.baseline));
        let mut module = standing.unwrap_or_else(|| at_rest_there(&moved, rules, to));
        if moved.blend.is_some() {
            module.blend = moved.blend.clone();
        }
        let known = layouts.module(op).ok().flatten();
        let layout = |version: u32| known.as_ref().and_then(|known| known.version(version));
        let defaults = layout(moved.modversion).map(params::defaults);
        let mut changed = self.changes(edit.module, source, defaults.as_ref());
        if let Some(only) = &edit.only {
            changed.retain(|target| only.contains(target));
        }
        let misfit = |reason: String| PropagateError::DoesNotFit { op: op.clone(), reason };
        let layout = layout(module.modversion);
        let Params::Fields(fields) = &mut module.params else {
            return Err(misfit("the target's module is of a version that is not known".into()));
        };
        for field in changed {
            set_field(fields, given, &field, rules, [from, to]).map_err(misfit)?;
            check(layout, fields, &field).map_err(misfit)?;
        }
        by_its_lens(fields);
        if module.blend.is_none() && at_rest(rules, to, &module) {
            self.restore(new, target.facts, op);
            return Ok(());
        }
        self.switch_off_rivals(op, new, target.facts);
        replace(new, module);
        Ok(())
    }
}

impl Edits<'_> {
    /// What is taken over, a word or two each: `exposure`, `exposure 1 (shadows)`.
    pub fn words(&self) -> Vec<String> {
        let word = |edit: &Edit<'_>| match (edit.module.instance, edit.module.name.as_str()) {
            (0, _) => edit.module.op.clone(),
            (_, name) if name == edit.module.op || name.is_empty() => format!("{} (masked)", edit.module.op),
            (_, name) => format!("{name} (masked)"),
        };
        let mut counted: Vec<(String, usize)> = Vec::new();
        for word in self.edits.iter().map(word) {
            match counted.iter_mut().find(|(known, _)| *known == word) {
                Some((_, count)) => *count += 1,
                None => counted.push((word, 1)),
            }
        }
        let say =
            |(word, count): (String, usize)| if count == 1 { word } else { format!("{count} × {word}") };
        counted.into_iter().map(say).collect()
    }
}

/// How a photo is turned and mirrored for display: where a pixel to the right, and one down, is on the raw.
fn lie(photo: PhotoEdit<'_>) -> [[f64; 2]; 2] {
    let mut state = photo.state.clone();
    state.modules.retain(|module| module.op != "ashift");
    let frame = Frame::of(&state, photo.facts);
    [[1.0, 0.0], [0.0, 1.0]].map(|step| frame.step([0.5, 0.5], step).map(f64::round))
}

/// The fields that a move drives or fixes.
fn driven(entry: &Move) -> impl Iterator<Item = &Target> {
    entry.set.keys().chain(entry.scale.keys()).chain(entry.fixed.keys())
}

/// A field, or each element of a list of floats: the grain in which moves drive.
fn targets(name: &str, value: &Value) -> Vec<Target> {
    let target = |index| Target { field: name.to_owned(), index };
    match value {
        Value::Floats(list) => (0..list.len()).map(|at| target(Some(at))).collect(),
        _ => vec![target(None)],
    }
}

/// The source's instance as it would be on a target that has none: what moves drive is at rest.
fn at_rest_there(moved: &Module, rules: &ModuleRules, to: Option<&Fields>) -> Module {
    let mut module = Module { blend: None, ..moved.clone() };
    if let Params::Fields(fields) = &mut module.params {
        for target in rules.driven.keys() {
            if let Some(rest) = rest_value(rules, to, target) {
                put(fields, target, rest);
            }
        }
    }
    module
}

/// Sets a field that the source changed: what a move drives by as much as the source moved it from its baseline
/// (`bases` are the source's and the target's), everything else as it is there.
fn set_field(
    fields: &mut Fields,
    given: &Fields,
    field: &Target,
    rules: &ModuleRules,
    bases: [Option<&Fields>; 2],
) -> Result<(), String> {
    // A choice is not so much more than another.
    let number = matches!(given.get(&field.field), Some(Value::Float(_) | Value::Floats(_)));
    let set = match rules.driven.get(field).filter(|_| number) {
        Some(additive) => {
            let now = read(given, field).map(f64::from);
            let [from, to] = bases.map(|base| rest_value(rules, base, field).map(f64::from));
            let (Some(now), Some(from), Some(to)) = (now, from, to) else {
                return Err(format!("the target's own `{field}` is not known"));
            };
            let value = if additive.is_some() { to + (now - from) } else { to * (now / from) };
            put(fields, field, value as f32)
        }
        None => copy(fields, given, field),
    };
    if set { Ok(()) } else { Err(format!("the target's version of it has no `{field}`")) }
}

/// Copies a field, or an element, unchanged; whether there is a place for it.
fn copy(fields: &mut Fields, given: &Fields, target: &Target) -> bool {
    match (target.index, given.get(&target.field), fields.get_mut(&target.field)) {
        (None, Some(value), Some(slot)) => {
            *slot = value.clone();
            true
        }
        (Some(_), Some(_), Some(_)) => read(given, target).is_some_and(|value| put(fields, target, value)),
        _ => false,
    }
}

fn check(layout: Option<&Layout>, fields: &Fields, target: &Target) -> Result<(), String> {
    let Some(layout) = layout else { return Ok(()) };
    match (layout.field(&target.field), fields.get(&target.field)) {
        (Some(field), Some(value)) => {
            params::check_value(layout, field, value).map_err(|error| error.to_string())
        }
        _ => Ok(()),
    }
}

/// The module with its forms, which are put into `new` as they lie there.
fn with_forms(
    module: &Module,
    forms: &[MaskForm],
    transfer: Option<&Transfer>,
    new: &mut EditState,
) -> Result<Module, PropagateError> {
    let mut module = module.clone();
    if let (Some(blend), Some(transfer)) = (&mut module.blend, transfer) {
        blend.feathering_radius = transfer.pixels(blend.feathering_radius);
        blend.mask_blur = transfer.pixels(blend.mask_blur);
    }
    let Some(id) = module.blend.as_ref().and_then(|blend| blend.mask_id) else { return Ok(module) };
    let mut moved = Vec::new();
    let Some(group) = move_form(id, forms, transfer, DEEPEST, &mut moved) else {
        let reason = "a form of its mask is missing".into();
        return Err(PropagateError::DoesNotFit { op: module.op.clone(), reason });
    };
    if let Some(blend) = &mut module.blend {
        blend.mask_id = Some(group);
    }
    // A retouch names its forms in its table too.
    if let Params::Fields(fields) = &mut module.params
        && let Some(Value::Ints(ids)) = fields.get_mut("rt_forms.formid")
    {
        for (old, form) in &moved {
            ids.iter_mut().filter(|id| **id == i64::from(*old)).for_each(|id| *id = form.id.into());
        }
    }
    for (_, form) in moved {
        if !new.masks.iter().any(|known| known.id == form.id) {
            new.masks.push(form);
        }
    }
    Ok(module)
}

/// How deep groups of forms may be nested: a foreign file may hold a group in itself.
const DEEPEST: usize = 8;

/// A form and what it is made of, with their old ids, as they lie on the target. Returns the new id.
fn move_form(
    id: i32,
    forms: &[MaskForm],
    transfer: Option<&Transfer>,
    depth: usize,
    moved: &mut Vec<(i32, MaskForm)>,
) -> Option<i32> {
    let form = forms.iter().find(|form| form.id == id)?;
    let depth = depth.checked_sub(1)?;
    let is_clone = matches!(form.shape, Shape::Opaque { .. }) && forms::without_clone(form).is_some();
    let mut there = Vec::new();
    for member in forms::members(form) {
        there.push(GroupMember { form: move_form(member.form, forms, transfer, depth, moved)?, ..member });
    }
    let new = match (transfer, there.is_empty(), is_clone) {
        (None, ..) => form.clone(),
        (Some(_), false, true) => forms::clone_group(&form.name, there).ok()?,
        (Some(_), false, false) => MaskForm::new(form.name.clone(), Shape::Group { members: there }),
        (Some(transfer), true, true) => {
            let shape = transfer.shape(&forms::without_clone(form)?);
            forms::clone_shape(&form.name, &shape, transfer.point(form.source)).ok()?
        }
        (Some(transfer), true, false) => transfer.form(form),
    };
    let id_there = new.id;
    moved.push((id, new));
    Some(id_there)
}

#[cfg(test)]
mod tests;
