//! Applying a move to an edit state, and taking it back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::darktable::layout::{Layout, Layouts, ModuleLayout};
use crate::darktable::order;
use crate::darktable::params::{self, ParamError};
use crate::darktable::state::{Blend, EditState, Module, Params, Shape, Value};
use crate::vocabulary::error::VocabularyError;
use crate::vocabulary::form::Target;
use crate::vocabulary::load::{Constant, ModuleRules, Move, Vocabulary};
use crate::vocabulary::mask::{Frame, MaskSpec, Orientation};

/// What the vocabulary must know about a photo.
#[derive(Clone, Debug)]
pub struct PhotoFacts {
    /// The untouched photo: darktable's own default history, with the as-shot white balance in it.
    pub baseline: EditState,
    /// Columns of the whole picture at full size, upright and before any crop.
    pub width: u32,
    /// Rows of the same.
    pub height: u32,
    /// How the file says that the raw lies; what the state's `flip` module says comes first.
    pub orientation: Orientation,
}

impl PhotoFacts {
    /// Columns and rows of what a state shows at full size: the whole picture less its crop. A render at a fixed
    /// size does not tell, because it scales what is left to that size.
    pub fn shown(&self, state: &EditState) -> [f64; 2] {
        Frame::of(state, self).shown()
    }
}

/// A move that is wanted.
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
    /// The form that confines the instance, if it is masked and not idle.
    pub mask_id: Option<i32>,
}

/// What is to be taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// A module: one instance, or all of them.
    Module {
        /// darktable's name.
        op: String,
        /// The instance; `None` for every one.
        instance: Option<u32>,
    },
    /// A move, masked or not: its own fields only.
    Move(String),
}

impl Vocabulary {
    /// Applies one move. Pure: the same request on the same state gives the same state, and moves that do not
    /// drive the same field give the same state in either order.
    pub fn apply(
        &self,
        request: &ApplyRequest<'_>,
        state: &EditState,
        facts: &PhotoFacts,
        layouts: &Layouts,
        darktable_version: &str,
    ) -> Result<Applied, VocabularyError> {
        let entry = self.get(request.move_name)?;
        let values = entry.resolve(request.values)?;
        let idle = entry.is_idle(&values);
        // A direction counts for nothing while the move is idle, so that idle is one state and not many.
        let effective = if idle { entry.neutral() } else { values.clone() };
        let (module, layout) = match self.layout(entry, layouts, darktable_version)? {
            Some((module, modversion)) => {
                let layout = module.version(modversion).cloned();
                (module, layout.ok_or_else(|| unencodable(entry, "its layout is not known"))?)
            }
            None => {
                return Err(VocabularyError::Unavailable {
                    name: entry.name.clone(),
                    module: entry.module.clone(),
                    version: darktable_version.to_owned(),
                });
            }
        };
        let work = Work { vocabulary: self, entry, rules: self.rules(&entry.module), module, layout, facts };
        let mut new = state.clone();
        let (instance, mask_id) = match request.mask {
            None => {
                work.apply_everywhere(&mut new, &effective, idle)?;
                (0, None)
            }
            Some(mask) => work.apply_masked(&mut new, &effective, idle, mask)?,
        };
        finish(&mut new, facts);
        let instance = match mask_id {
            Some(_) => renumber(&mut new, facts, &entry.module, instance),
            None => instance,
        };
        order::sort(&mut new);
        Ok(Applied { state: new, op: entry.module.clone(), instance, values, mask_id })
    }

    /// Takes a module or a move back to the photo's baseline.
    pub fn remove_module(
        &self,
        state: &EditState,
        selector: &Selector,
        facts: &PhotoFacts,
    ) -> Result<EditState, VocabularyError> {
        let mut new = state.clone();
        match selector {
            Selector::Module { op, instance: None } => {
                new.modules.retain(|m| m.op != *op || m.instance == 0);
                self.restore(&mut new, facts, op);
                let further = facts.baseline.modules.iter().filter(|m| m.op == *op && m.instance > 0);
                new.modules.extend(further.cloned());
            }
            Selector::Module { op, instance: Some(0) } => self.restore(&mut new, facts, op),
            Selector::Module { op, instance: Some(instance) } => {
                new.modules.retain(|m| m.op != *op || m.instance != *instance);
                new.modules.extend(facts.baseline.module(op, *instance).cloned());
            }
            Selector::Move(name) => {
                let entry = self.get(name)?;
                new.modules.retain(|m| m.op != entry.module || m.instance == 0 || m.name != entry.name);
                self.rest_move(&mut new, entry, facts);
            }
        }
        finish(&mut new, facts);
        let touched: BTreeSet<String> = new.modules.iter().map(|m| m.op.clone()).collect();
        for op in touched {
            renumber(&mut new, facts, &op, 0);
        }
        order::sort(&mut new);
        if new == *state {
            return Err(nothing(state, selector, facts));
        }
        Ok(new)
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
        let fields: Vec<&str> =
            rules.driven.keys().chain(rules.start.keys()).map(|t| t.field.as_str()).collect();
        let lowest = module.lowest_with(fields.iter().copied()).map(|layout| layout.modversion);
        Ok(lowest.filter(|v| module.accepts(darktable_version, *v)).map(|modversion| (module, modversion)))
    }

    /// Why the move takes no mask, if it takes none.
    pub(crate) fn mask_refusal(&self, entry: &Move, module: &ModuleLayout) -> Option<&'static str> {
        if self.rules(&entry.module).exclusive.is_some() {
            Some("a picture has one tone mapper, for the whole frame")
        } else if !module.masks {
            Some("darktable's module works on the whole frame only")
        } else if !entry.scale.is_empty() {
            Some("it is relative to the whole photo's own setting")
        } else {
            None
        }
    }

    /// Puts instance 0 of a module back as the baseline has it, with the rivals it had switched off.
    fn restore(&self, state: &mut EditState, facts: &PhotoFacts, op: &str) {
        for op in std::iter::once(op).chain(self.rivals(op)) {
            state.modules.retain(|m| m.op != op || m.instance != 0);
            state.modules.extend(facts.baseline.module(op, 0).cloned());
        }
    }

    /// Sets the fields of a move back on instance 0, if it is at work there.
    fn rest_move(&self, state: &mut EditState, entry: &Move, facts: &PhotoFacts) {
        let rules = self.rules(&entry.module);
        let base = base_fields(facts, &entry.module);
        let Some(module) = state.module_mut(&entry.module, 0).filter(|m| m.enabled) else { return };
        rest(entry, &rules, base, module);
        if at_rest(&rules, base, module) {
            self.restore(state, facts, &entry.module);
        }
    }
}

/// One move on its way into a state.
struct Work<'a> {
    vocabulary: &'a Vocabulary,
    entry: &'a Move,
    rules: ModuleRules,
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
        let base = base_fields(self.facts, op);
        let current = state.module(op, 0).filter(|module| module.enabled);
        if current.is_none() && idle {
            return Ok(());
        }
        let from_baseline = || self.facts.baseline.module(op, 0).filter(|module| module.enabled);
        let mut module = match current.or_else(from_baseline) {
            Some(module) => module.clone(),
            None => self.fresh()?,
        };
        if idle {
            rest(self.entry, &self.rules, base, &mut module);
        } else {
            self.set(&mut module, values, base)?;
        }
        if at_rest(&self.rules, base, &module) {
            self.vocabulary.restore(state, self.facts, op);
            return Ok(());
        }
        for rival in self.vocabulary.rivals(op) {
            state.modules.retain(|m| m.op != rival || m.instance != 0);
            let off = self.facts.baseline.module(rival, 0).map(|m| Module { enabled: false, ..m.clone() });
            state.modules.extend(off);
        }
        replace(state, module);
        Ok(())
    }

    /// Returns the instance (before renumbering) and the mask's form, or `(0, None)` when nothing is left to mask.
    fn apply_masked(
        &self,
        state: &mut EditState,
        values: &BTreeMap<String, f64>,
        idle: bool,
        mask: &MaskSpec,
    ) -> Result<(u32, Option<i32>), VocabularyError> {
        if let Some(reason) = self.vocabulary.mask_refusal(self.entry, &self.module) {
            return Err(VocabularyError::NotMaskable {
                name: self.entry.name.clone(),
                reason: reason.to_owned(),
            });
        }
        mask.check()?;
        let op = &self.entry.module;
        let forms = mask.forms(&Frame::of(state, self.facts));
        let group = forms[1].id;
        let blend = mask.blend(group, self.module.blend_colorspace);
        let same = |m: &Module| {
            m.op == *op
                && m.instance > 0
                && m.name == self.entry.name
                && m.blend.as_ref().is_some_and(|b| b.mask_id == Some(group) && b.combine == blend.combine)
        };
        let standing = state.modules.iter().position(same).map(|at| state.modules.remove(at));
        if idle {
            return Ok((0, None));
        }
        let instance = match &standing {
            Some(module) => module.instance,
            None => {
                let used = state.modules.iter().filter(|m| m.op == *op).map(|m| m.instance);
                used.max().unwrap_or(0) + 1
            }
        };
        let mut module = match standing {
            Some(module) => module,
            None => self.fresh()?,
        };
        module.instance = instance;
        module.name = self.entry.name.clone();
        module.blend = Some(blend);
        self.set(&mut module, values, None)?;
        replace(state, module);
        for form in forms {
            if !state.masks.iter().any(|known| known.id == form.id) {
                state.masks.push(form);
            }
        }
        Ok((instance, Some(group)))
    }

    /// A new instance 0 at rest.
    fn fresh(&self) -> Result<Module, VocabularyError> {
        let mut fields = params::defaults(&self.layout);
        for (target, constant) in &self.rules.start {
            let field = self.field(&self.layout, target)?;
            let value = match (constant, target.index) {
                (Constant::List(list), None) => Value::Floats(list.iter().map(|x| *x as f32).collect()),
                (Constant::Number(number), None) => params::number(&self.layout, field, *number)
                    .map_err(|e| unencodable(self.entry, &e.to_string()))?,
                _ => return Err(unencodable(self.entry, &format!("`start.{target}` fits no field"))),
            };
            params::check_value(&self.layout, field, &value)
                .map_err(|e| unencodable(self.entry, &e.to_string()))?;
            fields.insert(target.field.clone(), value);
        }
        for (target, rest) in &self.rules.driven {
            self.field(&self.layout, target)?;
            if let Some(rest) = rest {
                put(&mut fields, target, *rest as f32);
            }
        }
        Ok(Module {
            blend: None,
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
        let Params::Fields(fields) = &mut module.params else {
            return Err(unencodable(
                self.entry,
                "the module's parameters are of a version that is not known",
            ));
        };
        let layout = self.module.version(modversion).ok_or_else(|| {
            unencodable(self.entry, &format!("version {modversion} of its module is not known"))
        })?;
        let neutral = self.entry.neutral();
        for (target, form) in &self.entry.set {
            let value = match base.and_then(|base| read(base, target)) {
                Some(start) => f64::from(start) + (form.value(values) - form.value(&neutral)),
                None => form.value(values),
            };
            self.write(layout, fields, target, value)?;
        }
        for (target, form) in &self.entry.scale {
            let start = base
                .and_then(|base| read(base, target))
                .ok_or_else(|| unencodable(self.entry, &format!("the photo's baseline has no `{target}`")))?;
            self.write(layout, fields, target, f64::from(start) * form.value(values))?;
        }
        Ok(())
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
            return Err(unencodable(self.entry, &format!("`{target}` is not a float")));
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
    ) -> Result<&'l crate::darktable::layout::Field, VocabularyError> {
        layout.field(&target.field).ok_or_else(|| {
            let version = layout.modversion;
            unencodable(self.entry, &format!("version {version} of {} has no `{target}`", self.entry.module))
        })
    }
}

/// The fields of the baseline's own instance, when it is at work.
fn base_fields<'a>(facts: &'a PhotoFacts, op: &str) -> Option<&'a BTreeMap<String, Value>> {
    match &facts.baseline.module(op, 0).filter(|module| module.enabled)?.params {
        Params::Fields(fields) => Some(fields),
        Params::Opaque(_) => None,
    }
}

/// Where a driven field rests: at the baseline's value, or at the moves' common neutral one.
fn rest_value(rules: &ModuleRules, base: Option<&BTreeMap<String, Value>>, target: &Target) -> Option<f32> {
    match base.and_then(|base| read(base, target)) {
        Some(value) => Some(value),
        None => rules.driven.get(target).copied().flatten().map(|rest| rest as f32 + 0.0),
    }
}

/// Brings the fields of one move to rest.
fn rest(entry: &Move, rules: &ModuleRules, base: Option<&BTreeMap<String, Value>>, module: &mut Module) {
    let Params::Fields(fields) = &mut module.params else { return };
    for target in entry.set.keys().chain(entry.scale.keys()) {
        if let Some(value) = rest_value(rules, base, target) {
            put(fields, target, value);
        }
    }
}

/// Whether every field that any move drives rests.
fn at_rest(rules: &ModuleRules, base: Option<&BTreeMap<String, Value>>, module: &Module) -> bool {
    let Params::Fields(fields) = &module.params else { return false };
    rules.driven.keys().all(|target| read(fields, target) == rest_value(rules, base, target))
}

/// A float field, or an element of an array of floats.
fn read(fields: &BTreeMap<String, Value>, target: &Target) -> Option<f32> {
    match (fields.get(&target.field)?, target.index) {
        (Value::Float(value), None) => Some(*value),
        (Value::Floats(values), Some(index)) => values.get(index).copied(),
        _ => None,
    }
}

/// Writes a float field or element; whether there is one.
fn put(fields: &mut BTreeMap<String, Value>, target: &Target, value: f32) -> bool {
    // The sum turns -0.0, which a state may not hold, into 0.0.
    let value = value + 0.0;
    match (fields.get_mut(&target.field), target.index) {
        (Some(Value::Float(slot)), None) => *slot = value,
        (Some(Value::Floats(slots)), Some(index)) => match slots.get_mut(index) {
            Some(slot) => *slot = value,
            None => return false,
        },
        _ => return false,
    }
    true
}

fn replace(state: &mut EditState, module: Module) {
    state.modules.retain(|m| m.op != module.op || m.instance != module.instance);
    state.modules.push(module);
}

/// Drops the mask forms that nothing refers to any more; the baseline's own stay.
fn finish(state: &mut EditState, facts: &PhotoFacts) {
    let mut needed: BTreeSet<i32> = facts.baseline.masks.iter().map(|form| form.id).collect();
    let mut open: Vec<i32> =
        state.modules.iter().filter_map(|m| m.blend.as_ref().and_then(|blend| blend.mask_id)).collect();
    while let Some(id) = open.pop() {
        if needed.insert(id)
            && let Some(Shape::Group { members }) = state.masks.iter().find(|f| f.id == id).map(|f| &f.shape)
        {
            open.extend(members.iter().map(|member| member.form));
        }
    }
    state.masks.retain(|form| needed.contains(&form.id));
}

/// Numbers the masked instances of a module by name and mask, after those of the baseline, so that the order in
/// which moves came does not show. Returns the new number of instance `old`.
fn renumber(state: &mut EditState, facts: &PhotoFacts, op: &str, old: u32) -> u32 {
    let kept = facts.baseline.modules.iter().filter(|m| m.op == op).map(|m| m.instance).max().unwrap_or(0);
    let mut ours: Vec<&mut Module> =
        state.modules.iter_mut().filter(|m| m.op == op && m.instance > kept).collect();
    let mask = |m: &Module| m.blend.as_ref().map(|Blend { mask_id, combine, .. }| (*mask_id, *combine));
    ours.sort_by(|a, b| (&a.name, mask(a), a.instance).cmp(&(&b.name, mask(b), b.instance)));
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

fn nothing(state: &EditState, selector: &Selector, facts: &PhotoFacts) -> VocabularyError {
    let edited: Vec<String> = state
        .modules
        .iter()
        .filter(|m| facts.baseline.module(&m.op, m.instance) != Some(m))
        .map(|m| match (m.instance, m.name.as_str()) {
            (0, _) => m.op.clone(),
            (number, name) => format!("{} {number} ({name})", m.op),
        })
        .collect();
    VocabularyError::NothingToRemove {
        selector: match selector {
            Selector::Module { op, instance: None } => format!("edit of module {op}"),
            Selector::Module { op, instance: Some(number) } => {
                format!("edit of module {op}, instance {number},")
            }
            Selector::Move(name) => format!("move `{name}`"),
        },
        present: if edited.is_empty() { "none".into() } else { edited.join(", ") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assets::Overlay;

    fn module(op: &str, modversion: u32, fields: &[(&str, f64)]) -> Module {
        let layouts = Layouts::new(Overlay::vocabulary(None));
        let layout = layouts.module(op).unwrap().unwrap().version(modversion).unwrap().clone();
        let mut values = params::defaults(&layout);
        for (name, value) in fields {
            let field = layout.field(name).unwrap();
            values.insert((*name).to_owned(), params::number(&layout, field, *value).unwrap());
        }
        Module {
            blend: None,
            enabled: true,
            instance: 0,
            modversion,
            name: String::new(),
            op: op.to_owned(),
            params: Params::Fields(values),
        }
    }

    struct Photo {
        vocabulary: Vocabulary,
        layouts: Layouts,
        facts: PhotoFacts,
        state: EditState,
    }

    impl Photo {
        /// A photo as darktable 4.2.1 opens it.
        fn new() -> Self {
            let modules = vec![
                module("temperature", 3, &[("red", 2.0), ("green", 1.0), ("blue", 1.6)]),
                module("flip", 2, &[("orientation", 0.0)]),
                module("exposure", 6, &[("exposure", 0.7), ("black", -0.000_244_140_63)]),
                module("filmicrgb", 6, &[("white_point_source", 4.56)]),
            ];
            let mut baseline = EditState { modules, ..EditState::default() };
            order::sort(&mut baseline);
            let facts = PhotoFacts {
                baseline: baseline.clone(),
                width: 300,
                height: 200,
                orientation: Orientation::default(),
            };
            Self {
                vocabulary: Vocabulary::load(&Overlay::vocabulary(None)).unwrap(),
                layouts: Layouts::new(Overlay::vocabulary(None)),
                facts,
                state: baseline,
            }
        }

        fn try_apply(
            &self,
            name: &str,
            values: &[(&str, f64)],
            mask: Option<&str>,
        ) -> Result<Applied, VocabularyError> {
            let values = values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
            let mask: Option<MaskSpec> = mask.map(|text| serde_json::from_str(text).unwrap());
            let request = ApplyRequest { move_name: name, values: &values, mask: mask.as_ref() };
            self.vocabulary.apply(&request, &self.state, &self.facts, &self.layouts, "4.2.1")
        }

        fn apply(&mut self, name: &str, values: &[(&str, f64)], mask: Option<&str>) -> Applied {
            let applied = self.try_apply(name, values, mask).unwrap();
            self.state = applied.state.clone();
            applied
        }

        fn remove(&mut self, selector: Selector) -> Result<(), VocabularyError> {
            self.state = self.vocabulary.remove_module(&self.state, &selector, &self.facts)?;
            Ok(())
        }

        fn float(&self, op: &str, instance: u32, target: &str) -> f32 {
            let Params::Fields(fields) = &self.state.module(op, instance).unwrap().params else {
                panic!("fields")
            };
            read(fields, &target.parse().unwrap()).unwrap()
        }
    }

    const SPOT: &str = r#"{"shape":"circle","center":[0.5,0.5],"radius":0.2}"#;
    const SKY: &str = r#"{"shape":"gradient","anchor":[0.5,0.3]}"#;

    #[test]
    fn every_move_is_the_same_state_at_neutral_and_another_at_default() {
        let photo = Photo::new();
        for entry in photo.vocabulary.moves() {
            let neutral: Vec<(&str, f64)> = entry
                .parameters
                .iter()
                .filter(|(_, p)| !p.direction)
                .map(|(n, p)| (n.as_str(), p.neutral))
                .collect();
            let idle = photo.try_apply(&entry.name, &neutral, None).unwrap();
            assert_eq!(idle.state.hash(), photo.state.hash(), "{}", entry.name);
            let once = photo.try_apply(&entry.name, &[], None).unwrap();
            assert_ne!(once.state.hash(), photo.state.hash(), "{}", entry.name);
            // Neutral undoes, and twice is once.
            let photo = Photo { state: once.state.clone(), ..Photo::new() };
            assert_eq!(photo.try_apply(&entry.name, &[], None).unwrap().state, once.state, "{}", entry.name);
            let undone = photo.try_apply(&entry.name, &neutral, None).unwrap();
            assert_eq!(undone.state.hash(), photo.facts.baseline.hash(), "{}", entry.name);
        }
    }

    #[test]
    fn the_ends_of_every_range_can_be_encoded() {
        let photo = Photo::new();
        for entry in photo.vocabulary.moves() {
            for end in [|p: &crate::vocabulary::Parameter| p.min, |p: &crate::vocabulary::Parameter| p.max] {
                let values: Vec<(&str, f64)> =
                    entry.parameters.iter().map(|(n, p)| (n.as_str(), end(p))).collect();
                let applied = photo.try_apply(&entry.name, &values, None);
                assert!(applied.is_ok(), "{}: {}", entry.name, applied.unwrap_err());
            }
        }
    }

    #[test]
    fn values_are_relative_to_the_baseline() {
        let mut photo = Photo::new();
        photo.apply("exposure", &[("ev", 0.5)], None);
        assert_eq!(photo.float("exposure", 0, "exposure"), 1.2);
        photo.apply("exposure", &[("ev", -0.5)], None);
        assert!((photo.float("exposure", 0, "exposure") - 0.2).abs() < 1e-6);
        photo.apply("warmth", &[("shift", 30.0)], None);
        assert!(photo.float("temperature", 0, "red") > 2.0 && photo.float("temperature", 0, "blue") < 1.6);
        photo.apply("tint", &[("magenta", 10.0)], None);
        assert_eq!(photo.float("temperature", 0, "green"), 0.9);
    }

    #[test]
    fn moves_on_one_module_accumulate_in_any_order_and_come_off_one_by_one() {
        let (mut one, mut other) = (Photo::new(), Photo::new());
        one.apply("saturation", &[("amount", 0.4)], None);
        let only_saturation = one.state.hash();
        one.apply("vibrance", &[("amount", 0.3)], None);
        other.apply("vibrance", &[("amount", 0.3)], None);
        other.apply("saturation", &[("amount", 0.4)], None);
        assert_eq!(one.state.hash(), other.state.hash());
        assert_eq!(one.float("colorbalancergb", 0, "saturation_global"), 0.4);
        assert_eq!(one.float("colorbalancergb", 0, "vibrance"), 0.3);
        one.remove(Selector::Move("vibrance".into())).unwrap();
        assert_eq!(one.state.hash(), only_saturation);
        one.remove(Selector::Module { op: "colorbalancergb".into(), instance: None }).unwrap();
        assert_eq!(one.state, one.facts.baseline);
    }

    #[test]
    fn one_tone_mapper_at_a_time_and_the_photos_own_comes_back() {
        let mut photo = Photo::new();
        photo.apply("filmic_contrast", &[], None);
        let filmic = photo.state.hash();
        photo.apply("sigmoid_contrast", &[], None);
        assert!(!photo.state.module("filmicrgb", 0).unwrap().enabled);
        assert!(photo.state.module("sigmoid", 0).unwrap().enabled);
        // Neutral on the mapper that is off changes nothing.
        let sigmoid = photo.state.hash();
        assert_eq!(photo.apply("filmic_contrast", &[("amount", 0.0)], None).state.hash(), sigmoid);
        photo.apply("filmic_contrast", &[], None);
        assert_eq!(photo.state.hash(), filmic);
        photo.apply("sigmoid_contrast", &[], None);
        photo.remove(Selector::Module { op: "sigmoid".into(), instance: None }).unwrap();
        assert_eq!(photo.state, photo.facts.baseline);
        assert!(
            photo
                .try_apply("sigmoid_contrast", &[], Some(SPOT))
                .unwrap_err()
                .to_string()
                .contains("tone mapper")
        );
    }

    #[test]
    fn a_mask_makes_an_instance_that_starts_from_rest_and_leaves_the_global_one_alone() {
        let mut photo = Photo::new();
        photo.apply("exposure", &[("ev", 1.0)], None);
        let applied = photo.apply("exposure", &[("ev", -0.5)], Some(SPOT));
        assert_eq!((applied.op.as_str(), applied.instance), ("exposure", 1));
        assert_eq!(photo.float("exposure", 0, "exposure"), 1.7);
        assert_eq!(photo.float("exposure", 1, "exposure"), -0.5);
        let masked = photo.state.module("exposure", 1).unwrap();
        assert_eq!(masked.name, "exposure");
        assert_eq!(masked.blend.as_ref().unwrap().mask_id, applied.mask_id);
        assert_eq!(photo.state.masks.len(), 2);
        // The same again is the same; another value updates; neutral removes, with the forms.
        assert_eq!(photo.apply("exposure", &[("ev", -0.5)], Some(SPOT)).state, applied.state);
        photo.apply("exposure", &[("ev", -0.8)], Some(SPOT));
        assert_eq!(photo.float("exposure", 1, "exposure"), -0.8);
        photo.apply("exposure", &[("ev", 0.0)], Some(SPOT));
        assert!(photo.state.module("exposure", 1).is_none() && photo.state.masks.is_empty());
    }

    #[test]
    fn masked_instances_are_the_same_whichever_came_first() {
        let moves = [("exposure", SPOT), ("exposure", SKY), ("black_point", SPOT)];
        let mut hashes = BTreeSet::new();
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let mut photo = Photo::new();
            for at in order {
                let applied = photo.apply(moves[at].0, &[], Some(moves[at].1));
                let carrier = photo.state.module("exposure", applied.instance).unwrap();
                assert_eq!(carrier.name, moves[at].0);
                assert_eq!(carrier.blend.as_ref().unwrap().mask_id, applied.mask_id);
            }
            hashes.insert(photo.state.hash().to_string());
            photo.remove(Selector::Move("exposure".into())).unwrap();
            assert_eq!(photo.state.modules.iter().filter(|m| m.op == "exposure").count(), 2);
            assert_eq!(photo.state.module("exposure", 1).unwrap().name, "black_point");
        }
        assert_eq!(hashes.len(), 1);
    }

    #[test]
    fn a_later_layout_in_the_photo_is_kept_and_an_old_darktable_is_offered_what_it_has() {
        let mut photo = Photo::new();
        photo.facts.baseline.modules.retain(|m| m.op != "exposure");
        photo.facts.baseline.modules.push(module("exposure", 7, &[("exposure", 0.5)]));
        order::sort(&mut photo.facts.baseline);
        photo.state = photo.facts.baseline.clone();
        photo.apply("exposure", &[("ev", 0.5)], None);
        assert_eq!(photo.state.module("exposure", 0).unwrap().modversion, 7);
        assert_eq!(photo.float("exposure", 0, "exposure"), 1.0);
        let request = ApplyRequest { move_name: "exposure", values: &BTreeMap::new(), mask: None };
        let error = photo
            .vocabulary
            .apply(&request, &photo.state, &photo.facts, &photo.layouts, "3.0.0")
            .unwrap_err();
        assert!(matches!(error, VocabularyError::Unavailable { .. }), "{error}");
    }

    #[test]
    fn a_crop_shows_less_of_the_picture() {
        let mut photo = Photo::new();
        assert_eq!(photo.facts.shown(&photo.state), [300.0, 200.0]);
        photo.apply("crop_left", &[("margin", 0.25)], None);
        photo.apply("crop_bottom", &[("margin", 0.25)], None);
        assert_eq!(photo.facts.shown(&photo.state), [225.0, 150.0]);
    }

    #[test]
    fn the_baseline_counts_towards_darktables_own_range() {
        let mut photo = Photo::new();
        photo.facts.baseline.modules.push(module("velvia", 2, &[("strength", 90.0)]));
        order::sort(&mut photo.facts.baseline);
        photo.state = photo.facts.baseline.clone();
        let error = photo.try_apply("velvia", &[("amount", 50.0)], None).unwrap_err();
        assert!(error.to_string().contains("140") && error.to_string().contains("0 to 100"), "{error}");
    }

    #[test]
    fn whole_frame_modules_refuse_masks_and_nothing_cannot_be_removed() {
        let mut photo = Photo::new();
        for name in ["warmth", "crop_left"] {
            let error = photo.try_apply(name, &[], Some(SPOT)).unwrap_err();
            assert!(matches!(error, VocabularyError::NotMaskable { .. }), "{error}");
        }
        for selector in [
            Selector::Move("velvia".into()),
            Selector::Module { op: "velvia".into(), instance: None },
            Selector::Module { op: "exposure".into(), instance: Some(3) },
        ] {
            let error = photo.remove(selector).unwrap_err();
            assert!(matches!(error, VocabularyError::NothingToRemove { .. }), "{error}");
        }
        assert!(photo.remove(Selector::Move("velviaa".into())).unwrap_err().to_string().contains("`velvia`"));
    }
}
