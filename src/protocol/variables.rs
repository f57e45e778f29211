//! Variables: what they may hold, who may set them, and where they may be used.
//!
//! What an outsider may set (see [`Trust`]) reaches prose only, and there it is marked as data; names, targets and
//! tools take only what the protocol itself lists.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::finding::{Code, Dialect, Findings};
use super::schema::{ItemKind, Trust, Variable, VariableKind};
use super::source::join;
use base::hint::did_you_mean;
use base::ids::{RefName, VectorName};

/// The longest text of a variable, in characters.
const MAX_TEXT: usize = 4_000;
/// The longest list.
const MAX_ITEMS: usize = 100;

/// The values that a run gives to variables, each with who gave it.
#[derive(Clone, Debug, Default)]
pub struct Values(BTreeMap<String, (Value, Trust)>);

impl Values {
    /// All of them, each with who gave it.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value, Trust)> {
        self.0.iter().map(|(name, (value, by))| (name.as_str(), value, *by))
    }

    /// Gives a value; a later one of the same name counts.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<Value>, by: Trust) {
        self.0.insert(name.into(), (value.into(), by));
    }
}

/// What a protocol is loaded for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// To look at it: a variable that waits for its value stands for any.
    Check,
    /// To run it: every variable needs a value.
    #[default]
    Run,
}

/// One item of a list: its fields by name, the item itself under the empty name.
pub type Item = BTreeMap<String, String>;

/// A variable with its value.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub kind: VariableKind,
    pub trust: Trust,
    pub items: ItemKind,
    pub enumerated: bool,
    pub value: Option<Value>,
}

/// All variables of a protocol, and which of them were used.
#[derive(Clone, Debug, Default)]
pub(super) struct Bound {
    pub slots: BTreeMap<String, Slot>,
    pub used: BTreeSet<String>,
}

impl Bound {
    /// Gives every declared variable its value.
    pub fn declared(
        variables: &BTreeMap<String, Variable>,
        values: &Values,
        purpose: Purpose,
        findings: &mut Findings,
    ) -> Self {
        let mut slots = BTreeMap::new();
        for (name, variable) in variables {
            let path = join("variables", name);
            let before = findings.list.len();
            if !is_identifier(name) {
                findings.add(Code::P021, &path, format!("`{name}` is no name for a variable"));
            }
            let default = variable.default.as_ref().and_then(|v| {
                fit(v, variable).map_err(|e| findings.add(Code::P021, join(&path, "default"), e)).ok()
            });
            let given = values.0.get(name).and_then(|(value, by)| {
                if *by > variable.trust {
                    let message = format!("`{name}` may be set by {}, not by {by}", variable.trust);
                    findings.add(Code::P021, &path, message);
                    return None;
                }
                fit(value, variable).map_err(|e| findings.add(Code::P021, &path, e)).ok()
            });
            let mut value = given.or(default);
            if value.is_none() && purpose == Purpose::Check {
                value = sample(variable);
            } else if value.is_none() && findings.list.len() == before {
                findings.add(Code::P020, &path, format!("`{name}` has no value: give --var {name}=…"));
            }
            let slot = Slot {
                kind: variable.kind,
                trust: variable.trust,
                items: variable.items.unwrap_or_default(),
                enumerated: variable.options.is_some(),
                value,
            };
            slots.insert(name.clone(), slot);
        }
        for name in values.0.keys().filter(|name| !variables.contains_key(*name)) {
            let hint = did_you_mean(name, variables.keys().map(String::as_str));
            findings.add(
                Code::P020,
                "variables",
                format!("`{name}` is not a variable of this protocol{hint}"),
            );
        }
        Self { slots, used: BTreeSet::new() }
    }

    /// The variables of the original format, which declares none: text, set by whoever runs it.
    pub fn compat(defaults: &BTreeMap<String, String>, values: &Values, findings: &mut Findings) -> Self {
        // Nothing sets a stranger's words apart there.
        for (name, _) in values.0.iter().filter(|(_, (_, by))| *by == Trust::Image) {
            let message = format!("`{name}` may not be set by the photo in the original format");
            findings.add(Code::P021, join("variables", name), message);
        }
        let given = values.0.iter().map(|(name, (value, _))| {
            (name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        });
        let all: BTreeMap<String, String> =
            defaults.iter().map(|(n, v)| (n.clone(), v.clone())).chain(given).collect();
        let slot = |text: String| Slot {
            kind: VariableKind::String,
            trust: Trust::Host,
            items: ItemKind::String,
            enumerated: false,
            value: Some(Value::String(text)),
        };
        Self { slots: all.into_iter().map(|(n, v)| (n, slot(v))).collect(), used: BTreeSet::new() }
    }

    /// The items of a list variable.
    pub fn items(&self, name: &str) -> Vec<Item> {
        let Some(Value::Array(items)) = self.slots.get(name).and_then(|slot| slot.value.as_ref()) else {
            return Vec::new();
        };
        let item = |value: &Value| match value {
            Value::Object(fields) => {
                fields.iter().map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned())).collect()
            }
            other => Item::from([(String::new(), other.as_str().unwrap_or_default().to_owned())]),
        };
        items.iter().map(item).collect()
    }

    /// Puts values into the fields that make the protocol's structure: everything but prose and arguments.
    /// Only what the protocol lists itself may stand there, or a number.
    pub fn fill_structure(&mut self, value: &mut Value, path: &str, findings: &mut Findings) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    let prose = ["instructions", "validationCriteria", "description", "args"];
                    let skipped = prose.contains(&key.as_str()) || (path.is_empty() && key == "variables");
                    if !skipped {
                        self.fill_structure(value, &join(path, key), findings);
                    }
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.fill_structure(item, &format!("{path}[{index}]"), findings);
                }
            }
            Value::String(text) if text.contains("{{") => {
                if let Some(new) = self.structural(text, path, findings) {
                    *value = new;
                }
            }
            _ => {}
        }
    }

    fn structural(&mut self, text: &str, path: &str, findings: &mut Findings) -> Option<Value> {
        let pieces = cut(text);
        if let [Piece::Placeholder(name)] = pieces.as_slice()
            && let Some(slot) = self.slots.get(*name)
            && matches!(slot.kind, VariableKind::Number | VariableKind::Integer | VariableKind::Boolean)
        {
            self.used.insert((*name).to_owned());
            if slot.trust == Trust::Image {
                findings.add(
                    Code::P021,
                    path,
                    format!("`{name}` may be set by the photo and may not stand here"),
                );
            }
            return slot.value.clone();
        }
        let mut whole = String::new();
        for piece in pieces {
            let name = match piece {
                Piece::Text(words) => {
                    whole.push_str(words);
                    continue;
                }
                Piece::Placeholder(name) => name,
                Piece::Open(rest) => {
                    whole.push_str(rest);
                    continue;
                }
            };
            let Some(slot) = self.slots.get(name) else {
                findings.add(Code::P020, path, self.unknown(name));
                return None;
            };
            self.used.insert(name.to_owned());
            let words = slot.value.as_ref().and_then(Value::as_str).unwrap_or_default();
            let fits = match findings.dialect {
                Dialect::Strict => slot.enumerated && slot.trust == Trust::Host,
                Dialect::Compat => is_plain(words),
            };
            if !fits {
                let rule = match findings.dialect {
                    Dialect::Strict => "only a number, or a variable of trust `host` with an `enum`, may",
                    Dialect::Compat => "only letters, digits, blanks, `_` and `-` may",
                };
                findings.add(Code::P021, path, format!("`{name}` may not stand here: {rule}"));
            }
            whole.push_str(words);
        }
        Some(Value::String(whole))
    }

    fn unknown(&self, name: &str) -> String {
        let hint = did_you_mean(name, self.slots.keys().map(String::as_str));
        format!("there is no variable `{name}`{hint}")
    }
}

/// A value that is taken for one that is still to come.
fn sample(variable: &Variable) -> Option<Value> {
    let low = variable.min.unwrap_or(0.0);
    match variable.kind {
        VariableKind::String | VariableKind::Name => Some(variable.options.as_ref()?.first()?.clone().into()),
        VariableKind::Number => Some(low.into()),
        VariableKind::Integer => Some((low.ceil() as i64).into()),
        VariableKind::Boolean => Some(false.into()),
        VariableKind::List => None,
    }
}

/// The value as the variable wants it, or why it cannot be.
fn fit(value: &Value, variable: &Variable) -> Result<Value, String> {
    let shown = || {
        let text = value.to_string();
        if text.chars().count() > 60 { text.chars().take(60).chain(['…']).collect() } else { text }
    };
    let in_range = |number: f64, what: &str| {
        let (low, high) = (variable.min.unwrap_or(f64::MIN), variable.max.unwrap_or(f64::MAX));
        if (low..=high).contains(&number) {
            Ok(())
        } else {
            Err(format!("{what} {number} is not in {low}..{high}"))
        }
    };
    match variable.kind {
        VariableKind::String | VariableKind::Name => {
            let text = value.as_str().ok_or_else(|| format!("{} is not text", shown()))?;
            if variable.kind == VariableKind::Name && text.parse::<VectorName>().is_err() {
                return Err(format!("{} is not a plain name (a-z, 0-9 and _, at most 32)", shown()));
            }
            let most = variable.max.map_or(MAX_TEXT, |max| (max.max(0.0) as usize).min(MAX_TEXT));
            if text.chars().count() > most {
                return Err(format!("the text is longer than {most} characters"));
            }
            match &variable.options {
                Some(options) if !options.iter().any(|option| option == text) => {
                    let hint = did_you_mean(text, options.iter().map(String::as_str));
                    Err(format!("{} is not one of {}{hint}", shown(), options.join(", ")))
                }
                _ => Ok(value.clone()),
            }
        }
        VariableKind::Number | VariableKind::Integer => {
            let read = |text: &str| text.trim().parse::<f64>().ok().filter(|n| n.is_finite());
            let number = value.as_f64().or_else(|| read(value.as_str()?));
            let number = number.ok_or_else(|| format!("{} is not a number", shown()))?;
            in_range(number, "the value")?;
            if variable.kind == VariableKind::Number {
                return Ok(number.into());
            }
            if number.fract() != 0.0 || number.abs() > 1e15 {
                return Err(format!("{} is not a whole number", shown()));
            }
            Ok((number as i64).into())
        }
        VariableKind::Boolean => match (value, value.as_str()) {
            (Value::Bool(_), _) => Ok(value.clone()),
            (_, Some("true")) => Ok(true.into()),
            (_, Some("false")) => Ok(false.into()),
            _ => Err(format!("{} is neither true nor false", shown())),
        },
        VariableKind::List => {
            let list = match value {
                Value::Array(list) => list.clone(),
                Value::String(text) if text.trim_start().starts_with('[') => {
                    serde_json::from_str(text).map_err(|e| format!("not a list: {e}"))?
                }
                Value::String(text) => text.split(',').map(|part| part.trim().into()).collect(),
                _ => return Err(format!("{} is not a list", shown())),
            };
            if list.len() > MAX_ITEMS {
                return Err(format!("{} items are more than {MAX_ITEMS}", list.len()));
            }
            in_range(list.len() as f64, "the number of items")?;
            let items = variable.items.unwrap_or_default();
            let list = list.iter().map(|v| fit_item(v, items)).collect::<Result<Vec<_>, _>>()?;
            let mut names = BTreeSet::new();
            if items == ItemKind::Vector && !list.iter().all(|v| names.insert(v["name"].to_string())) {
                return Err("two vectors have the same name".into());
            }
            Ok(Value::Array(list))
        }
    }
}

fn fit_item(value: &Value, kind: ItemKind) -> Result<Value, String> {
    let text = |value: &Value| match value.as_str() {
        Some(text) if text.chars().count() <= MAX_TEXT => Ok(text.to_owned()),
        Some(_) => Err(format!("an item is longer than {MAX_TEXT} characters")),
        None => Err(format!("the item {value} is not text")),
    };
    let plain = |text: String| text.parse::<VectorName>().map_err(|e| e.to_string());
    if kind != ItemKind::Vector {
        let words = text(value)?;
        return if kind == ItemKind::Name {
            plain(words).map(|n| n.as_str().into())
        } else {
            Ok(words.into())
        };
    }
    let Value::Object(fields) = value else {
        return Err(format!("the item {value} is no vector: it needs `name` and `direction`"));
    };
    if let Some(key) = fields.keys().find(|k| !VECTOR_FIELDS.contains(&k.as_str())) {
        return Err(format!("a vector has no field `{key}`{}", did_you_mean(key, VECTOR_FIELDS)));
    }
    let field = |name: &str| fields.get(name).filter(|v| !v.is_null()).map(text).transpose();
    let name = plain(field("name")?.ok_or("a vector needs a `name`")?)?;
    let branch = field("branch")?.unwrap_or_else(|| format!("branch_b_{name}"));
    let branch: RefName = branch.parse().map_err(|e: base::ids::InvalidName| e.to_string())?;
    Ok(serde_json::json!({
        "name": name, "branch": branch,
        "direction": field("direction")?.unwrap_or_default(),
        "intensity": field("intensity")?.unwrap_or_default(),
    }))
}

/// The fields of a vector in a list.
pub(super) const VECTOR_FIELDS: [&str; 4] = ["name", "branch", "direction", "intensity"];

fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
}

fn is_plain(text: &str) -> bool {
    (1..=64).contains(&text.chars().count()) && text.chars().all(|c| c.is_alphanumeric() || " _-".contains(c))
}

/// A piece of a text as it is written.
pub(super) enum Piece<'a> {
    Text(&'a str),
    Placeholder(&'a str),
    /// From double braces that no name follows, to the end.
    Open(&'a str),
}

/// Cuts a text at its placeholders.
pub(super) fn cut(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find("{{") {
        let (before, from) = rest.split_at(start);
        if !before.is_empty() {
            pieces.push(Piece::Text(before));
        }
        let inner = from.find("}}").and_then(|end| Some((from.get(2..end)?.trim(), from.get(end + 2..)?)));
        match inner.filter(|(name, _)| is_identifier(name)) {
            Some((name, after)) => {
                pieces.push(Piece::Placeholder(name));
                rest = after;
            }
            None => {
                pieces.push(Piece::Open(from));
                return pieces;
            }
        }
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    pieces
}
