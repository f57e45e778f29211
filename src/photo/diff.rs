//! What changed between two edits, parameter by parameter, in words.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use crate::darktable::state::{Blend, EditState, MaskForm, Module, Params, Value};

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
    /// What: a module (`exposure`, `exposure #1 (sky)`), `mask NAME`, `pipeline` or `sidecar`.
    pub subject: String,
    /// Which value of it, for [`ChangeKind::Changed`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The old value in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The new value in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ChangeKind::Added => write!(f, "{}: added", self.subject),
            ChangeKind::Removed => write!(f, "{}: removed", self.subject),
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

/// The differences from `a` to `b`: modules in pipeline order, then masks, then the rest.
pub fn diff(a: &EditState, b: &EditState) -> Vec<Change> {
    let mut changes = Vec::new();
    let masks_a: BTreeMap<i32, &MaskForm> = a.masks.iter().map(|m| (m.id, m)).collect();
    let masks_b: BTreeMap<i32, &MaskForm> = b.masks.iter().map(|m| (m.id, m)).collect();
    for old in &a.modules {
        if b.module(&old.op, old.instance).is_none() {
            changes.push(plain(ChangeKind::Removed, subject(old)));
        }
    }
    for new in &b.modules {
        match a.module(&new.op, new.instance) {
            Some(old) => modules(old, new, &masks_a, &masks_b, &mut changes),
            None => added(new, &masks_b, &mut changes),
        }
    }
    let ids: BTreeSet<i32> = masks_a.keys().chain(masks_b.keys()).copied().collect();
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

/// A new module: that it is there, whether it runs, and the mask it has.
fn added(new: &Module, masks: &BTreeMap<i32, &MaskForm>, changes: &mut Vec<Change>) {
    changes.push(plain(ChangeKind::Added, subject(new)));
    if !new.enabled {
        changes.push(plain(ChangeKind::Disabled, subject(new)));
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
        parts.push(format!("channel {channel} {:.2}…{:.2}", range.full_from, range.full_to));
    }
    if parts.is_empty() {
        return blend.opaque.as_ref().map(|_| "unmodelled blending".to_owned());
    }
    Some(format!("{}{}", parts.join(" and "), if blend.combine & 1 == 1 { ", inverted" } else { "" }))
}

/// Both values in words, with as many digits as it takes to tell them apart.
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

/// `exposure`, `exposure #1`, `exposure #1 (sky)`.
fn subject(module: &Module) -> String {
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
mod tests {
    use super::*;
    use crate::darktable::state::Shape;

    fn module(op: &str, instance: u32, fields: &[(&str, Value)]) -> Module {
        Module {
            blend: None,
            enabled: true,
            instance,
            modversion: 6,
            name: String::new(),
            op: op.into(),
            params: Params::Fields(fields.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect()),
        }
    }

    fn state(modules: Vec<Module>) -> EditState {
        EditState { modules, ..EditState::default() }
    }

    fn words_of(a: &EditState, b: &EditState) -> Vec<String> {
        diff(a, b).iter().map(ToString::to_string).collect()
    }

    fn blend(mask_id: Option<i32>, opacity: f32) -> Blend {
        Blend {
            brightness: 0.0,
            colorspace: 4,
            combine: 0,
            contrast: 0.0,
            details: 0.0,
            feathering_guide: 5,
            feathering_radius: 0.0,
            mask_id,
            mask_blur: 0.0,
            mode: 0x18,
            opacity,
            ranges: BTreeMap::new(),
            opaque: None,
        }
    }

    #[test]
    fn parameters_change_in_a_photographers_words() {
        let a = state(vec![
            module("exposure", 0, &[("black", Value::Float(0.0)), ("exposure", Value::Float(0.5))]),
            module("sharpen", 0, &[("mode", Value::Int(1))]),
        ]);
        let mut b = state(vec![
            module("exposure", 0, &[("black", Value::Float(0.00001)), ("exposure", Value::Float(0.8))]),
            module("exposure", 1, &[("exposure", Value::Float(-1.0))]),
        ]);
        b.modules[1].name = "burn sky".into();
        b.modules[1].enabled = false;
        assert_eq!(
            words_of(&a, &b),
            [
                "sharpen: removed",
                "exposure: black +0 → +0.00001",
                "exposure: exposure +0.50 → +0.80",
                "exposure #1 (burn sky): added",
                "exposure #1 (burn sky): disabled",
            ]
        );
        assert!(diff(&a, &a).is_empty());
        let json = serde_json::to_value(diff(&a, &b)).unwrap();
        assert_eq!(json[2]["before"], "+0.50");
    }

    #[test]
    fn enabling_masks_opacity_and_order_are_seen() {
        let a = state(vec![module("exposure", 0, &[]), module("velvia", 0, &[])]);
        let form = MaskForm::new("sky", Shape::Circle { border: 0.1, center: [0.5, 0.5], radius: 0.2 });
        let mut b = a.clone();
        b.modules[1].enabled = false;
        b.modules[0].blend = Some(blend(Some(form.id), 60.0));
        b.masks = vec![form];
        assert_eq!(
            words_of(&a, &b),
            [
                "exposure: mask none → `sky`",
                "exposure: opacity 100 % → 60 %",
                "velvia: disabled",
                "mask `sky`: added"
            ]
        );
        let mut c = b.clone();
        c.modules.swap(0, 1);
        if let Some(blend) = &mut c.modules[1].blend {
            blend.mask_blur = 3.0;
        }
        assert_eq!(words_of(&b, &c), ["exposure: blending changed", "pipeline: module order changed"]);
    }

    #[test]
    fn no_two_states_differ_without_a_word() {
        let a = state(vec![module("tonecurve", 0, &[("curve", Value::Floats(vec![0.0; 40]))])]);
        let mut b = a.clone();
        b.modules[0].params = Params::Opaque("00".into());
        let mut c = a.clone();
        c.modules[0].params =
            Params::Fields(BTreeMap::from([("curve".into(), Value::Floats(vec![1.0; 40]))]));
        let mut d = a.clone();
        d.extras.insert("xmp:Rating".into(), "3".into());
        assert_eq!(words_of(&a, &b), ["tonecurve: parameters changed"]);
        assert_eq!(words_of(&a, &c), ["tonecurve: curve changed"]);
        assert_eq!(words_of(&a, &d), ["sidecar: xmp:Rating none → 3"]);
    }
}
