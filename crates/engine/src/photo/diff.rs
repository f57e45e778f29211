//! What changed between two edits, parameter by parameter, in words.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use crate::photo::op::one_line;
use crate::photo::standing;
use crate::vocabulary::same_place;
use darktable::forms;
use darktable::layout::BlendSpace;
use darktable::state::{Blend, EditState, MaskForm, Module, Params, Value};

/// The module of retouched spots, whose table of hundreds of rows is said as a number of spots.
const SPOTS: &str = "retouch";

/// What stands between regions that are said together.
const BETWEEN: &str = "; ";

/// How a thing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// It runs now.
    Enabled,
    /// It does not run any more.
    Disabled,
    /// A value of it is another.
    Changed,
}

/// One difference between two edits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// How.
    pub kind: ChangeKind,
    /// What: a module (`exposure`, `exposure #1 (sky)`), several masked instances of one move (`6 regions of
    /// exposure`), `mask NAME`, `pipeline` or `sidecar`.
    pub subject: String,
    /// Which value of it, for [`ChangeKind::Changed`]. Absent where regions are said together in `before` or `after`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The old value in words; of regions all of them, which a line shortens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The new value in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ChangeKind::Added | ChangeKind::Removed => {
                let word = if self.kind == ChangeKind::Added { "added" } else { "removed" };
                write!(f, "{}: {word}", self.subject)?;
                match self.after.as_ref().or(self.before.as_ref()) {
                    Some(regions) => {
                        let regions: Vec<String> = regions.split(BETWEEN).map(str::to_owned).collect();
                        write!(f, ": {}", one_line("", regions.into_iter()))
                    }
                    None => Ok(()),
                }
            }
            ChangeKind::Enabled => write!(f, "{}: enabled", self.subject),
            ChangeKind::Disabled => write!(f, "{}: disabled", self.subject),
            ChangeKind::Changed => {
                write!(f, "{}:", self.subject)?;
                if let Some(field) = &self.field {
                    write!(f, " {field}")?;
                }
                let none = "none";
                let before = self.before.as_deref().unwrap_or(none);
                let after = self.after.as_deref().unwrap_or(none);
                // Where a value has no short words, before and after are both absent.
                if self.before.is_none() && self.after.is_none() {
                    f.write_str(" changed")
                } else {
                    write!(f, " {before} → {after}")
                }
            }
        }
    }
}

/// The differences from `a` to `b`: modules in pipeline order, then masks, then the rest. To name placed moves by
/// their ids, give states that are [`numbered`](crate::photo::Standing::numbered).
pub fn diff(a: &EditState, b: &EditState) -> Vec<Change> {
    let mut changes = Vec::new();
    let masks_a: BTreeMap<i32, &MaskForm> = a.masks.iter().map(|m| (m.id, m)).collect();
    let masks_b: BTreeMap<i32, &MaskForm> = b.masks.iter().map(|m| (m.id, m)).collect();
    let partners = partners(a, b);
    let kept: BTreeSet<usize> = partners.iter().flatten().copied().collect();
    let gone = a.modules.iter().enumerate().filter(|(at, _)| !kept.contains(at)).map(|(_, old)| old);
    let gone: Vec<&Module> = gone.collect();
    let come = b.modules.iter().zip(&partners).filter(|(_, old)| old.is_none()).map(|(new, _)| new);
    let come: Vec<&Module> = come.collect();
    for old in regions(ChangeKind::Removed, &gone, &masks_a, &mut changes) {
        changes.push(plain(ChangeKind::Removed, subject(old)));
    }
    let alone = regions(ChangeKind::Added, &come, &masks_b, &mut changes);
    for (new, old) in b.modules.iter().zip(&partners) {
        match old.and_then(|at| a.modules.get(at)) {
            Some(old) => modules(old, new, &masks_a, &masks_b, &mut changes),
            None if alone.contains(&new) => added(new, &masks_b, &mut changes),
            None => {}
        }
    }
    // The forms of an instance that comes or goes come and go with it.
    let mut ids: BTreeSet<i32> = masks_a.keys().chain(masks_b.keys()).copied().collect();
    let said = |m: &&&Module| m.instance > 0 || m.op == SPOTS;
    let mut implied: Vec<i32> = Vec::new();
    implied.extend(gone.iter().filter(said).flat_map(|m| form_ids(m, &masks_a)));
    implied.extend(come.iter().filter(said).flat_map(|m| form_ids(m, &masks_b)));
    for (state, masks) in [(a, &masks_a), (b, &masks_b)] {
        implied.extend(state.module(SPOTS, 0).into_iter().flat_map(|m| form_ids(m, masks)));
    }
    ids.retain(|id| !implied.contains(id));
    for id in ids {
        match (masks_a.get(&id), masks_b.get(&id)) {
            (Some(old), None) => changes.push(plain(ChangeKind::Removed, mask_subject(old))),
            (None, Some(new)) => changes.push(plain(ChangeKind::Added, mask_subject(new))),
            (Some(old), Some(new)) if old != new => {
                changes.push(changed(mask_subject(new), "form", None, None));
            }
            _ => {}
        }
    }
    let order =
        |state: &EditState| state.modules.iter().map(|m| (m.op.clone(), m.instance)).collect::<Vec<_>>();
    let common = |state: &EditState, other: &EditState| {
        let mut list = order(state);
        list.retain(|(op, instance)| other.module(op, *instance).is_some());
        list
    };
    if a.order != b.order || common(a, b) != common(b, a) {
        changes.push(changed("pipeline".into(), "module order", None, None));
    }
    let names: BTreeSet<&String> = a.extras.keys().chain(b.extras.keys()).collect();
    for name in names {
        let (old, new) = (a.extras.get(name), b.extras.get(name));
        if old != new {
            changes.push(changed("sidecar".into(), name, old.map(|v| clip(v)), new.map(|v| clip(v))));
        }
    }
    changes
}

/// For each module of `b` its place in `a`. Masked instances are renumbered as others come and go: they are recognised by
/// move and mask first, by number only when that leaves no other.
fn partners(a: &EditState, b: &EditState) -> Vec<Option<usize>> {
    let mut free: Vec<bool> = vec![true; a.modules.len()];
    let mut found: Vec<Option<usize>> = vec![None; b.modules.len()];
    fn same_number(old: &Module, new: &Module) -> bool {
        old.op == new.op && old.instance == new.instance
    }
    fn different_moves(old: &Module, new: &Module) -> bool {
        let named = |module: &Module| module.instance > 0 && standing::is_name(&module.name);
        named(old) && named(new) && old.name != new.name
    }
    type Pass = fn(&Module, &Module) -> bool;
    let passes: [Pass; 3] = [
        |old, new| same_number(old, new) && (new.instance == 0 || same_place(old, new)),
        |old, new| old.instance > 0 && new.instance > 0 && same_place(old, new),
        |old, new| same_number(old, new) && !different_moves(old, new),
    ];
    for pass in passes {
        for (new, partner) in b.modules.iter().zip(&mut found).filter(|(_, partner)| partner.is_none()) {
            let mut candidates = a.modules.iter().zip(&mut free).enumerate();
            if let Some((at, (_, free))) = candidates.find(|(_, (old, free))| **free && pass(old, new)) {
                *free = false;
                *partner = Some(at);
            }
        }
    }
    found
}

/// Says masked instances of one move that come or go together in one line; returns the others.
fn regions<'a>(
    kind: ChangeKind,
    modules: &[&'a Module],
    masks: &BTreeMap<i32, &MaskForm>,
    changes: &mut Vec<Change>,
) -> Vec<&'a Module> {
    let mut groups: Vec<Vec<&Module>> = Vec::new();
    for &module in modules {
        let mask = module.blend.as_ref().and_then(|blend| mask_words(Some(blend), masks));
        let together = |group: &&mut Vec<&Module>| {
            group.iter().all(|other| {
                other.instance > 0
                    && other.blend.is_some()
                    && other.op == module.op
                    && other.name == module.name
            })
        };
        match groups.iter_mut().find(together).filter(|_| mask.is_some() && module.instance > 0) {
            Some(group) => group.push(module),
            None => groups.push(vec![module]),
        }
    }
    let mut alone = Vec::new();
    for group in groups {
        let [first, _, ..] = group.as_slice() else {
            alone.extend(group);
            continue;
        };
        let name = if first.name.is_empty() { &first.op } else { &first.name };
        let words: Vec<String> = group.iter().map(|module| region_words(module, &group, masks)).collect();
        let words = words.join(BETWEEN);
        let mut change = plain(kind, format!("{} regions of {name}", group.len()));
        match kind {
            ChangeKind::Removed => change.before = Some(words),
            _ => change.after = Some(words),
        }
        changes.push(change);
    }
    alone
}

/// Its number, and what sets one region apart from its group: `#2 +0.30 ellipse`.
fn region_words(module: &Module, group: &[&Module], masks: &BTreeMap<i32, &MaskForm>) -> String {
    let mut parts = vec![format!("#{}", module.instance)];
    if let Params::Fields(fields) = &module.params {
        let differs = |name: &String, value: &Value| {
            group.iter().any(|other| match &other.params {
                Params::Fields(fields) => fields.get(name) != Some(value),
                Params::Opaque(_) => true,
            })
        };
        let floats =
            fields.iter().filter(|(name, value)| matches!(value, Value::Float(_)) && differs(name, value));
        let floats: Vec<_> = floats.take(3).collect();
        let nameless = floats.len() == 1;
        parts.extend(floats.into_iter().map(|(name, value)| match nameless {
            true => words(value),
            false => format!("{name} {}", words(value)),
        }));
    }
    let mask = mask_words(module.blend.as_ref(), masks).unwrap_or_default();
    parts.push(mask.replace(" group`", "").replace('`', ""));
    parts.join(" ")
}

/// The forms of a module's mask, and what they are made of.
fn form_ids(module: &Module, masks: &BTreeMap<i32, &MaskForm>) -> Vec<i32> {
    let mut ids: Vec<i32> = module.blend.as_ref().and_then(|blend| blend.mask_id).into_iter().collect();
    let mut at = 0;
    while let Some(id) = ids.get(at) {
        let members = masks.get(id).map(|form| forms::members(form)).unwrap_or_default();
        for member in members {
            if !ids.contains(&member.form) {
                ids.push(member.form);
            }
        }
        at += 1;
    }
    ids
}

/// How many spots a retouch has.
fn spots(module: &Module, masks: &BTreeMap<i32, &MaskForm>) -> usize {
    form_ids(module, masks).len().saturating_sub(1)
}

/// A new module: that it is there, whether it runs, and the mask it has.
fn added(new: &Module, masks: &BTreeMap<i32, &MaskForm>, changes: &mut Vec<Change>) {
    changes.push(plain(ChangeKind::Added, subject(new)));
    if !new.enabled {
        changes.push(plain(ChangeKind::Disabled, subject(new)));
    }
    if new.op == SPOTS {
        changes.push(changed(subject(new), "spots", None, Some(spots(new, masks).to_string())));
        return;
    }
    let mask = mask_words(new.blend.as_ref(), masks);
    if mask.is_some() {
        changes.push(changed(subject(new), "mask", None, mask));
    }
}

fn modules(
    old: &Module,
    new: &Module,
    masks_a: &BTreeMap<i32, &MaskForm>,
    masks_b: &BTreeMap<i32, &MaskForm>,
    changes: &mut Vec<Change>,
) {
    if old == new {
        return;
    }
    let name = subject(new);
    if old.enabled != new.enabled {
        let kind = if new.enabled { ChangeKind::Enabled } else { ChangeKind::Disabled };
        changes.push(plain(kind, name.clone()));
    }
    if old.modversion != new.modversion {
        let version = |m: &Module| Some(m.modversion.to_string());
        changes.push(changed(name.clone(), "layout version", version(old), version(new)));
    }
    if old.name != new.name {
        let quoted = |m: &Module| Some(format!("`{}`", m.name));
        changes.push(changed(name.clone(), "name", quoted(old), quoted(new)));
    }
    if new.op == SPOTS && form_ids(old, masks_a) != form_ids(new, masks_b) {
        let (before, after) = (spots(old, masks_a), spots(new, masks_b));
        let number = |n: usize| (before != after).then(|| n.to_string());
        changes.push(changed(name, "spots", number(before), number(after)));
        return;
    }
    match (&old.params, &new.params) {
        (Params::Fields(old), Params::Fields(new)) => {
            let fields: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for field in fields {
                let (before, after) = (old.get(field), new.get(field));
                if before != after {
                    let (before, after) = values(before, after);
                    changes.push(changed(name.clone(), field, before, after));
                }
            }
        }
        (old, new) if old != new => changes.push(changed(name.clone(), "parameters", None, None)),
        _ => {}
    }
    if old.blend != new.blend {
        blends(&name, old.blend.as_ref(), new.blend.as_ref(), masks_a, masks_b, changes);
    }
}

fn blends(
    name: &str,
    old: Option<&Blend>,
    new: Option<&Blend>,
    masks_a: &BTreeMap<i32, &MaskForm>,
    masks_b: &BTreeMap<i32, &MaskForm>,
    changes: &mut Vec<Change>,
) {
    let start = changes.len();
    let (mask_old, mask_new) = (mask_words(old, masks_a), mask_words(new, masks_b));
    if mask_old != mask_new {
        changes.push(changed(name.into(), "mask", mask_old, mask_new));
    }
    // An absent blend is full effect everywhere.
    let opacity = |b: Option<&Blend>| b.map_or(100.0, |b| b.opacity);
    let (o, n) = (opacity(old), opacity(new));
    if o.to_bits() != n.to_bits() {
        changes.push(changed(name.into(), "opacity", Some(format!("{o} %")), Some(format!("{n} %"))));
    }
    if changes.len() == start {
        changes.push(changed(name.into(), "blending", None, None));
    }
}

/// The mask of a module in a few words; `None` if it acts everywhere.
fn mask_words(blend: Option<&Blend>, masks: &BTreeMap<i32, &MaskForm>) -> Option<String> {
    let blend = blend?;
    let mut parts = Vec::new();
    if let Some(id) = blend.mask_id {
        parts.push(masks.get(&id).map_or_else(|| format!("form {id}"), |form| format!("`{}`", form.name)));
    }
    for (channel, range) in &blend.ranges {
        let name = channel_words(blend.colorspace, *channel);
        parts.push(format!("{name} {:.2}…{:.2}", range.full_from, range.full_to));
    }
    if parts.is_empty() {
        return blend.opaque.as_ref().map(|_| "unmodelled blending".to_owned());
    }
    Some(format!("{}{}", parts.join(" and "), if blend.combine & 1 == 1 { ", inverted" } else { "" }))
}

/// What a parametric channel measures; of what the module made, where it is not of what it was given.
fn channel_words(space: i32, channel: u8) -> String {
    let lab = space == BlendSpace::Lab as i32;
    // Four channels of what comes in, four of what goes out; then the same for the space's second reading.
    let made = if channel & 4 == 4 { " of the result" } else { "" };
    let name = match (lab, channel & !4) {
        (_, 0) => "luminance",
        (false, 1) => "red",
        (false, 2) => "green",
        (false, 3) => "blue",
        (true, 1) => "green to magenta",
        (true, 2) => "blue to yellow",
        (false, 8) => "brightness",
        (true, 8) | (false, 9) => "chroma",
        (true, 9) | (false, 10) => "hue",
        _ => return format!("channel {channel}"),
    };
    format!("{name}{made}")
}

/// Both values in words, with enough digits to distinguish them.
fn values(before: Option<&Value>, after: Option<&Value>) -> (Option<String>, Option<String>) {
    if let (Some(Value::Float(a)), Some(Value::Float(b))) = (before, after) {
        for digits in [2, 4] {
            let (short_a, short_b) = (format!("{a:+.digits$}"), format!("{b:+.digits$}"));
            if short_a != short_b {
                return (Some(short_a), Some(short_b));
            }
        }
        return (Some(format!("{a:+}")), Some(format!("{b:+}")));
    }
    let length = |v: Option<&Value>| match v {
        Some(Value::Floats(list)) => list.len(),
        Some(Value::Ints(list)) => list.len(),
        _ => 0,
    };
    if length(before).max(length(after)) > 6 {
        return (None, None);
    }
    (before.map(words), after.map(words))
}

fn words(value: &Value) -> String {
    let list = |items: Vec<String>| format!("[{}]", items.join(", "));
    match value {
        Value::Int(i) => i.to_string(),
        Value::Float(x) => format!("{x:+.2}"),
        Value::Ints(items) => list(items.iter().map(ToString::to_string).collect()),
        Value::Floats(items) => list(items.iter().map(ToString::to_string).collect()),
        Value::Text(text) => format!("`{}`", clip(text)),
    }
}

/// `exposure`, `exposure #1`, `exposure #1 (sky)`; a placed move by its id, `exposure#1` or `chroma#1 (colorbalancergb)`.
fn subject(module: &Module) -> String {
    if module.instance > 0 && standing::is_name(&module.name) {
        let id = format!("{}#{}", module.name, module.instance);
        return if module.name == module.op { id } else { format!("{id} ({})", module.op) };
    }
    let mut text = module.op.clone();
    if module.instance > 0 {
        text.push_str(&format!(" #{}", module.instance));
    }
    if !module.name.is_empty() {
        text.push_str(&format!(" ({})", module.name));
    }
    text
}

fn mask_subject(form: &MaskForm) -> String {
    format!("mask `{}`", form.name)
}

fn clip(text: &str) -> String {
    if text.chars().count() <= 40 { text.to_owned() } else { text.chars().take(39).chain(['…']).collect() }
}

fn plain(kind: ChangeKind, subject: String) -> Change {
    Change { kind, subject, field: None, before: None, after: None }
}

fn changed(subject: String, field: &str, before: Option<String>, after: Option<String>) -> Change {
    Change { kind: ChangeKind::Changed, subject, field: Some(field.to_owned()), before, after }
}

#[cfg(test)]
mod tests;
