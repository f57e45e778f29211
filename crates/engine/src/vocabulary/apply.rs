//! Applying a move to an edit state.

mod masked;
mod placed;
mod remove;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::vocabulary::error::VocabularyError;
use crate::vocabulary::form::Target;
use crate::vocabulary::geometry::{self, WorkedOut};
use crate::vocabulary::illuminant;
use crate::vocabulary::lens::{self, Shot};
use crate::vocabulary::load::Vocabulary;
use crate::vocabulary::mask::{Frame, MaskSpec};
use crate::vocabulary::moves::{Constant, ModuleRules, Move};
use crate::vocabulary::warps;
use darktable::baseline::FileFacts;
use darktable::blend;
use darktable::forms;
use darktable::frame::{DisplayedSize, Orientation, StoredSize};
use darktable::layout::{FieldType, Layout, Layouts, ModuleLayout};
use darktable::order;
use darktable::params::{self, ParamError};
use darktable::state::{Blend, EditState, Module, Params, Value};

pub use placed::PlacedInstance;
pub use remove::Selector;

/// What the vocabulary must know about a photo.
#[derive(Clone, Debug)]
pub struct PhotoFacts {
    /// The untouched photo: darktable's own default history, with the as-shot white balance in it.
    pub baseline: EditState,
    /// Columns and rows of the file.
    pub size: StoredSize,
    /// How darktable turns the file for display; what a state's `flip` module says comes first.
    pub orientation: Orientation,
    /// What the file says of camera and lens.
    pub shot: Shot,
}

impl PhotoFacts {
    /// Of a file, for edits on top of `baseline`.
    pub fn new(baseline: EditState, file: &FileFacts) -> Self {
        Self {
            baseline,
            size: file.size,
            orientation: Orientation::from_exif(file.orientation.into()),
            shot: Shot::of(file),
        }
    }

    /// Columns and rows of what a state shows at full size: the whole picture less its crop. A render at a fixed
    /// size does not show it, because it scales what is left to that size.
    pub fn shown(&self, state: &EditState) -> DisplayedSize {
        Frame::of(state, self).shown()
    }

    /// How a state turns the file for display.
    pub(crate) fn orientation_of(&self, state: &EditState) -> Orientation {
        let flip = state.module("flip", 0).filter(|module| module.enabled);
        let told = flip.and_then(|module| match &module.params {
            Params::Fields(fields) => fields.get("orientation"),
            Params::Opaque(_) => None,
        });
        match told {
            Some(Value::Int(bits)) => Orientation::from_bits(*bits).unwrap_or(self.orientation),
            _ => self.orientation,
        }
    }
}

/// A request to apply a move.
#[derive(Clone, Copy, Debug)]
pub struct ApplyRequest<'a> {
    /// Its name.
    pub move_name: &'a str,
    /// The parameters that are given; the others take their defaults.
    pub values: &'a BTreeMap<String, f64>,
    /// Where it acts; everywhere without.
    pub mask: Option<&'a MaskSpec>,
}

/// A move that was applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The new state.
    pub state: EditState,
    /// darktable's module.
    pub op: String,
    /// The instance that carries the move in the new state: 0 without a mask. Later moves may renumber the masked
    /// instances of a module; the instance's name and mask stay.
    pub instance: u32,
    /// Every parameter of the move, as applied.
    pub values: BTreeMap<String, f64>,
    /// The group of drawn forms that confines the instance, if its mask has a drawn part and it is not idle.
    pub mask_id: Option<i32>,
}

impl Vocabulary {
    /// Applies one move. Pure: the same request on the same state gives the same state, and moves that do not
    /// drive the same field give the same state in either order.
    ///
    /// # Errors
    /// [`VocabularyError`] says which name, value or mask is not taken, and what would be.
    pub fn apply(
        &self,
        request: &ApplyRequest<'_>,
        state: &EditState,
        facts: &PhotoFacts,
        layouts: &Layouts,
        darktable_version: &str,
    ) -> Result<Applied, VocabularyError> {
        let work = self.work(request.move_name, facts, layouts, darktable_version)?;
        let entry = work.entry;
        let values = entry.resolve(request.values)?;
        let idle = entry.is_idle(&values);
        // A direction counts for nothing while the move is idle, so that idle is one state and not many. Where a move
        // acts in many places, idle is of one of them.
        let many = work.rules.worked_out == Some(WorkedOut::Warp);
        let effective = if idle && !many { entry.neutral() } else { values.clone() };
        let mut new = state.clone();
        let (instance, mask_id) = match request.mask {
            None => {
                work.apply_everywhere(&mut new, &effective, idle)?;
                (0, None)
            }
            Some(mask) => work.apply_masked(&mut new, &effective, idle, mask)?,
        };
        finish(&mut new, facts);
        let instance = match instance {
            0 => 0,
            masked => renumber(&mut new, facts, &entry.module, masked),
        };
        order::sort(&mut new);
        Ok(Applied { state: new, op: entry.module.clone(), instance, values, mask_id })
    }

    /// What a move needs to be applied.
    fn work<'a>(
        &'a self,
        name: &str,
        facts: &'a PhotoFacts,
        layouts: &Layouts,
        darktable_version: &str,
    ) -> Result<Work<'a>, VocabularyError> {
        let entry = self.get(name)?;
        let Some((module, modversion)) = self.layout(entry, layouts, darktable_version)? else {
            return Err(VocabularyError::Unavailable {
                name: entry.name.clone(),
                module: entry.module.clone(),
                version: darktable_version.to_owned(),
            });
        };
        let layout = module.version(modversion).cloned();
        let layout = layout.ok_or_else(|| unencodable(entry, "its layout is not known"))?;
        Ok(Work { vocabulary: self, entry, rules: self.rules(&entry.module), module, layout, facts })
    }

    /// The layout in which a fresh instance of the move's module is written: the lowest that has every field that
    /// moves set. `None` when this darktable does not have the module, or no version that has the fields.
    pub(crate) fn layout(
        &self,
        entry: &Move,
        layouts: &Layouts,
        darktable_version: &str,
    ) -> Result<Option<(Arc<ModuleLayout>, u32)>, VocabularyError> {
        let module = layouts
            .module(&entry.module)
            .map_err(|error| unencodable(entry, &error.to_string()))?
            .ok_or_else(|| {
            unencodable(entry, &format!("nothing is known about module {}", entry.module))
        })?;
        let rules = self.rules(&entry.module);
        let fields: Vec<&str> = rules.targets().map(|t| t.field.as_str()).collect();
        let lowest = module.lowest_with(fields.iter().copied()).map(|layout| layout.modversion);
        Ok(lowest.filter(|v| module.accepts(darktable_version, *v)).map(|modversion| (module, modversion)))
    }

    /// Why the move takes no mask, if it takes none.
    pub(crate) fn mask_refusal(&self, entry: &Move, module: &ModuleLayout) -> Option<String> {
        let rules = self.rules(&entry.module);
        let reason = if rules.exclusive.is_some() {
            "a picture has one tone mapper, for the whole frame"
        } else if !module.masks {
            "darktable's module works on the whole frame only"
        } else if !entry.scale.is_empty() {
            "it is relative to the whole photo's own setting"
        } else {
            return rules.whole_frame.clone();
        };
        Some(reason.to_owned())
    }

    /// Puts instance 0 of a module back as the baseline has it, with the rivals it had switched off.
    pub(super) fn restore(&self, state: &mut EditState, facts: &PhotoFacts, op: &str) {
        for op in std::iter::once(op).chain(self.rivals(op)) {
            state.modules.retain(|m| m.op != op || m.instance != 0);
            state.modules.extend(facts.baseline.module(op, 0).cloned());
        }
    }

    /// Switches off the modules of which one at most is on, when `op` is.
    pub(super) fn switch_off_rivals(&self, op: &str, state: &mut EditState, facts: &PhotoFacts) {
        for rival in self.rivals(op) {
            state.modules.retain(|m| m.op != rival || m.instance != 0);
            let off = facts.baseline.module(rival, 0).map(|m| Module { enabled: false, ..m.clone() });
            state.modules.extend(off);
        }
    }
}

/// One move on its way into a state.
struct Work<'a> {
    vocabulary: &'a Vocabulary,
    entry: &'a Move,
    rules: &'a ModuleRules,
    module: Arc<ModuleLayout>,
    /// The layout of a fresh instance.
    layout: Layout,
    facts: &'a PhotoFacts,
}

impl Work<'_> {
    fn apply_everywhere(
        &self,
        state: &mut EditState,
        values: &BTreeMap<String, f64>,
        idle: bool,
    ) -> Result<(), VocabularyError> {
        let op = &self.entry.module;
        // A move of fixed fields replaces any other of its kind, the baseline's own too.
        let alone = !self.entry.fixed.is_empty();
        let base = base_fields(self.facts, op).filter(|_| !alone);
        let current = state.module(op, 0).filter(|module| module.enabled && self.entry.is_in(module));
        if current.is_none() && idle {
            return Ok(());
        }
        let from_baseline = || self.facts.baseline.module(op, 0).filter(|module| module.enabled && !alone);
        let mut module = match current.or_else(from_baseline) {
            Some(module) => module.clone(),
            None => {
                let mut fresh = self.fresh()?;
                if base_fields(self.facts, op).is_none() {
                    self.keep(state, &mut fresh);
                }
                fresh
            }
        };
        if self.rules.worked_out == Some(WorkedOut::Warp) {
            let Params::Fields(fields) = &mut module.params else {
                return Err(unencodable(
                    self.entry,
                    "the module's parameters are of a version that is not known",
                ));
            };
            let frame = Frame::of(state, self.facts);
            warps::set(fields, self.entry, values, &frame).map_err(|e| unencodable(self.entry, &e))?;
        } else if idle {
            rest(self.entry, self.rules, base, &mut module, self.facts);
        } else {
            self.set(&mut module, values, base)?;
            if self.entry.opacity.is_some() {
                let blend = module.blend.get_or_insert_with(|| blend::normal(self.module.blend_colorspace));
                blend.opacity = self.opacity(values);
            }
        }
        if at_rest(self.rules, base, &module) {
            self.vocabulary.restore(state, self.facts, op);
            return Ok(());
        }
        self.vocabulary.switch_off_rivals(op, state, self.facts);
        replace(state, module);
        Ok(())
    }

    /// Keeps what other moves have set in the instance that is replaced.
    fn keep(&self, state: &EditState, fresh: &mut Module) {
        let Some(old) = state.module(&self.entry.module, 0).filter(|module| module.enabled) else { return };
        let (Params::Fields(old), Params::Fields(new)) = (&old.params, &mut fresh.params) else { return };
        let ours =
            |target: &&Target| self.entry.set.contains_key(target) || self.entry.scale.contains_key(target);
        for target in self.rules.driven.keys().filter(|target| !ours(target)) {
            if let Some(value) = read(old, target) {
                put(new, target, value);
            }
        }
    }

    /// A new instance 0 at rest.
    fn fresh(&self) -> Result<Module, VocabularyError> {
        let mut fields = params::defaults(&self.layout);
        for (target, constant) in &self.rules.start {
            let field = self.field(&self.layout, target)?;
            let first = target.index.unwrap_or(0);
            let mut put_all = |list: &[f64]| {
                let places = (first..).map(|at| Target { index: Some(at), ..target.clone() });
                places.zip(list).all(|(place, value)| put(&mut fields, &place, *value as f32))
            };
            let fits = match constant {
                Constant::List(list) => put_all(list),
                Constant::Number(number) => put(&mut fields, target, *number as f32),
            };
            if !fits {
                return Err(unencodable(self.entry, &format!("`start.{target}` fits no field")));
            }
            fields
                .get(&target.field)
                .map_or(Ok(()), |value| params::check_value(&self.layout, field, value))
                .map_err(|e| unencodable(self.entry, &e.to_string()))?;
        }
        for (target, rest) in &self.rules.driven {
            self.field(&self.layout, target)?;
            if let Some(rest) = rest.filter(|_| self.rules.worked_out != Some(WorkedOut::Warp)) {
                put(&mut fields, target, rest as f32);
            }
        }
        let faded = || Blend { opacity: 0.0, ..blend::normal(self.module.blend_colorspace) };
        Ok(Module {
            blend: match self.rules.layer {
                Some(layer) => Some(layer.over(blend::normal(layer.space()))),
                None => self.rules.fades.then(faded),
            },
            enabled: true,
            instance: 0,
            modversion: self.layout.modversion,
            name: String::new(),
            op: self.entry.module.clone(),
            params: Params::Fields(fields),
        })
    }

    /// Sets what the move drives: relative to the baseline's fields where there are any.
    fn set(
        &self,
        module: &mut Module,
        values: &BTreeMap<String, f64>,
        base: Option<&BTreeMap<String, Value>>,
    ) -> Result<(), VocabularyError> {
        let modversion = module.modversion;
        let layout = self.module.version(modversion).ok_or_else(|| VocabularyError::OldModule {
            name: self.entry.name.clone(),
            module: self.entry.module.clone(),
            version: modversion,
        })?;
        let Params::Fields(fields) = &mut module.params else {
            return Err(unencodable(self.entry, "its module holds a value that is not a number"));
        };
        for (target, fixed) in &self.entry.fixed {
            let value = fixed.value(layout, target);
            let value = value
                .ok_or_else(|| unencodable(self.entry, &format!("`{target}` does not take its value")))?;
            fields.insert(target.field.clone(), value);
        }
        let neutral = self.entry.neutral();
        for (target, form) in &self.entry.set {
            let (target, sign) = seen(self.rules, target, self.facts);
            let (asked, neutral) = (sign * form.value(values), sign * form.value(&neutral));
            let start = base.and_then(|base| read(base, &target)).map(f64::from);
            let choice = matches!(self.field(layout, &target)?.kind, FieldType::Enum | FieldType::Bool);
            let value = match start {
                _ if self.rules.worked_out == Some(WorkedOut::Orientation) => {
                    geometry::turned(self.facts, asked)
                }
                // What is corrected is no number to add to.
                _ if self.rules.worked_out == Some(WorkedOut::Lens) && target.field == "modify_flags" => {
                    asked
                }
                // A choice is not so much more than another.
                Some(start) if choice && asked == neutral => start,
                Some(start) if !choice => start + (asked - neutral),
                _ => asked,
            };
            self.write(layout, fields, &target, value)?;
        }
        for (target, form) in &self.entry.scale {
            let start = base
                .and_then(|base| read(base, target))
                .ok_or_else(|| unencodable(self.entry, &format!("the photo's baseline has no `{target}`")))?;
            self.write(layout, fields, target, f64::from(start) * form.value(values))?;
        }
        match self.rules.worked_out {
            Some(WorkedOut::Perspective) => geometry::keep_whole_corners(fields, self.facts),
            Some(WorkedOut::Illuminant) => {
                let further = |name: &str| {
                    let form = self.entry.set.iter().find(|(target, _)| target.field == name)?.1;
                    Some(form.value(values) - form.value(&neutral))
                };
                if let (Some(warmer), Some(magenta)) = (further("x"), further("y")) {
                    illuminant::set(fields, base, warmer, magenta);
                }
            }
            Some(WorkedOut::Lens) => lens::settle(fields, base, &self.facts.shot),
            Some(WorkedOut::Orientation | WorkedOut::Warp) | None => {}
        }
        Ok(())
    }

    /// How strongly the result of an instance is blended with the picture beneath, in percent.
    fn opacity(&self, values: &BTreeMap<String, f64>) -> f32 {
        self.entry.opacity.as_ref().map_or(100.0, |form| form.value(values) as f32)
    }

    fn write(
        &self,
        layout: &Layout,
        fields: &mut BTreeMap<String, Value>,
        target: &Target,
        value: f64,
    ) -> Result<(), VocabularyError> {
        let field = self.field(layout, target)?;
        if !put(fields, target, value as f32) {
            return Err(unencodable(self.entry, &format!("`{target}` is not a number that fits")));
        }
        let written = fields.get(&target.field);
        match written.map_or(Ok(()), |v| params::check_value(layout, field, v)) {
            Ok(()) => Ok(()),
            Err(ParamError::OutOfRange { legal, .. }) => Err(VocabularyError::FieldRange {
                name: self.entry.name.clone(),
                field: format!("{}.{target}", self.entry.module),
                value,
                legal,
            }),
            Err(error) => Err(unencodable(self.entry, &error.to_string())),
        }
    }

    fn field<'l>(
        &self,
        layout: &'l Layout,
        target: &Target,
    ) -> Result<&'l darktable::layout::Field, VocabularyError> {
        layout.field(&target.field).ok_or_else(|| {
            let version = layout.modversion;
            unencodable(self.entry, &format!("version {version} of {} has no `{target}`", self.entry.module))
        })
    }
}

/// The fields of the baseline's own instance, when it is on.
pub(super) fn base_fields<'a>(facts: &'a PhotoFacts, op: &str) -> Option<&'a BTreeMap<String, Value>> {
    match &facts.baseline.module(op, 0).filter(|module| module.enabled)?.params {
        Params::Fields(fields) => Some(fields),
        Params::Opaque(_) => None,
    }
}

/// Where a driven field rests: at the baseline's value, or at the moves' common neutral one.
pub(super) fn rest_value(
    rules: &ModuleRules,
    base: Option<&BTreeMap<String, Value>>,
    target: &Target,
) -> Option<f32> {
    match base.and_then(|base| read(base, target)) {
        Some(value) => Some(value),
        None => rules.driven.get(target).copied().flatten().map(|rest| rest as f32 + 0.0),
    }
}

/// Brings the fields of one move to rest.
fn rest(
    entry: &Move,
    rules: &ModuleRules,
    base: Option<&BTreeMap<String, Value>>,
    module: &mut Module,
    facts: &PhotoFacts,
) {
    if let (Some(_), Some(blend)) = (&entry.opacity, &mut module.blend) {
        blend.opacity = 0.0;
    }
    let Params::Fields(fields) = &mut module.params else { return };
    if rules.worked_out == Some(WorkedOut::Warp) {
        return warps::take_off(fields, entry, base);
    }
    for target in entry.set.keys().chain(entry.scale.keys()) {
        let (target, _) = seen(rules, target, facts);
        if let Some(value) = rest_value(rules, base, &target) {
            put(fields, &target, value);
        }
    }
    match rules.worked_out {
        Some(WorkedOut::Perspective) => geometry::keep_whole_corners(fields, facts),
        Some(WorkedOut::Illuminant) if entry.set.keys().any(|target| target.field == "x") => {
            illuminant::put_back(fields, base, rules);
        }
        Some(WorkedOut::Lens) => {
            if !entry.fixed.is_empty() {
                lens::forget(fields);
            }
            lens::settle(fields, base, &facts.shot);
        }
        _ => {}
    }
}

/// The field that holds `target` on this photo, and with which sign.
fn seen(rules: &ModuleRules, target: &Target, facts: &PhotoFacts) -> (Target, f64) {
    match rules.worked_out {
        Some(WorkedOut::Perspective) => geometry::as_seen(target, facts),
        _ => (target.clone(), 1.0),
    }
}

/// Whether every field that any move drives rests, or nothing of the module's result is seen.
pub(super) fn at_rest(rules: &ModuleRules, base: Option<&BTreeMap<String, Value>>, module: &Module) -> bool {
    if rules.fades {
        return module.blend.as_ref().is_some_and(|blend| blend.opacity == 0.0);
    }
    let Params::Fields(fields) = &module.params else { return false };
    if rules.worked_out == Some(WorkedOut::Warp) {
        return warps::at_rest(fields, base);
    }
    if rules.worked_out == Some(WorkedOut::Lens) && base.is_none() {
        return lens::at_rest(fields);
    }
    rules.driven.keys().all(|target| read(fields, target) == rest_value(rules, base, target))
}

/// A field that is a number, or an element of an array of numbers. (A whole number in a layout is far below 2²⁴.)
pub(super) fn read(fields: &BTreeMap<String, Value>, target: &Target) -> Option<f32> {
    match (fields.get(&target.field)?, target.index) {
        (Value::Float(value), None) => Some(*value),
        (Value::Floats(values), Some(index)) => values.get(index).copied(),
        (Value::Int(value), None) => Some(*value as f32),
        (Value::Ints(values), Some(index)) => values.get(index).map(|value| *value as f32),
        _ => None,
    }
}

/// Writes a number into a field or element; whether there is one, and of a type that takes it.
pub(super) fn put(fields: &mut BTreeMap<String, Value>, target: &Target, value: f32) -> bool {
    // The sum turns -0.0, which a state may not hold, into 0.0.
    let value = value + 0.0;
    match (fields.get_mut(&target.field), target.index) {
        (Some(Value::Float(slot)), None) => *slot = value,
        (Some(Value::Floats(slots)), Some(index)) => match slots.get_mut(index) {
            Some(slot) => *slot = value,
            None => return false,
        },
        (Some(Value::Int(slot)), None) if value.fract() == 0.0 => *slot = value as i64,
        (Some(Value::Ints(slots)), Some(index)) if value.fract() == 0.0 => match slots.get_mut(index) {
            Some(slot) => *slot = value as i64,
            None => return false,
        },
        _ => return false,
    }
    true
}

pub(super) fn replace(state: &mut EditState, module: Module) {
    state.modules.retain(|m| m.op != module.op || m.instance != module.instance);
    state.modules.push(module);
}

/// Drops the mask forms that nothing refers to any more; the baseline's own stay.
pub(super) fn finish(state: &mut EditState, facts: &PhotoFacts) {
    let mut needed: BTreeSet<i32> = facts.baseline.masks.iter().map(|form| form.id).collect();
    let mut open: Vec<i32> =
        state.modules.iter().filter_map(|m| m.blend.as_ref().and_then(|blend| blend.mask_id)).collect();
    while let Some(id) = open.pop() {
        if needed.insert(id)
            && let Some(form) = state.masks.iter().find(|form| form.id == id)
        {
            open.extend(forms::members(form).iter().map(|member| member.form));
        }
    }
    state.masks.retain(|form| needed.contains(&form.id));
}

/// Numbers the masked instances of a module by name and mask, after those of the baseline, so that the order in
/// which moves came does not show. Returns the new number of instance `old`.
pub(super) fn renumber(state: &mut EditState, facts: &PhotoFacts, op: &str, old: u32) -> u32 {
    let kept = facts.baseline.modules.iter().filter(|m| m.op == op).map(|m| m.instance).max().unwrap_or(0);
    let mut ours: Vec<&mut Module> =
        state.modules.iter_mut().filter(|m| m.op == op && m.instance > kept).collect();
    ours.sort_by_cached_key(|m| {
        // Its strength is not part of what a mask is.
        let mask = m.blend.as_ref().map(|blend| Blend { opacity: 0.0, ..blend.clone() });
        (m.name.clone(), serde_json::to_string(&mask).unwrap_or_default(), m.instance)
    });
    let mut new = old;
    for (module, number) in ours.into_iter().zip(kept + 1..) {
        if module.instance == old {
            new = number;
        }
        module.instance = number;
    }
    new
}

fn unencodable(entry: &Move, reason: &str) -> VocabularyError {
    VocabularyError::Unencodable { name: entry.name.clone(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests;
