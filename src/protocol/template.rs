//! Texts with placeholders, and the arguments of actions, which are trees of such texts.
//!
//! A text is split once, when the protocol is loaded. Values are inserted as whole pieces and are never parsed, so no
//! value can bring a placeholder of its own.

use std::collections::BTreeMap;

use serde_json::Value;

use super::finding::{Code, Dialect, Findings};
use super::schema::{ItemKind, Trust, VariableKind};
use super::source::join;
use super::variables::{Bound, Item, Piece, VECTOR_FIELDS, cut};
use base::hint::did_you_mean;

/// A text with its values inserted, except those of a loop's item, which are filled in when it is rendered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    /// A value from outside, in prose: set between marks.
    Data {
        name: String,
        text: String,
    },
    Item {
        alias: String,
        field: String,
        data: bool,
    },
    /// A value that is still to come; only in a protocol that is looked at.
    Waiting(String),
}

/// What a template is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// Text for a model.
    Prose,
    /// An argument of a tool.
    Argument,
}

/// What an alias of a loop stands for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alias {
    pub items: ItemKind,
    pub trust: Trust,
}

impl Template {
    /// Cuts a text and puts the values in.
    pub(super) fn new(
        text: &str,
        position: Position,
        bound: &mut Bound,
        aliases: &BTreeMap<String, Alias>,
        path: &str,
        findings: &mut Findings,
    ) -> Self {
        let mut parts = Vec::new();
        for piece in cut(text) {
            let name = match piece {
                Piece::Text(words) => {
                    parts.push(Part::Text(words.to_owned()));
                    continue;
                }
                Piece::Open(rest) => {
                    if findings.dialect == Dialect::Strict {
                        let shown: String = rest.chars().take(20).collect();
                        findings.add(
                            Code::P020,
                            path,
                            format!("`{shown}` begins no placeholder: write {{{{name}}}}"),
                        );
                    }
                    parts.push(Part::Text(rest.to_owned()));
                    continue;
                }
                Piece::Placeholder(name) => name,
            };
            let (head, field) = name.split_once('.').unwrap_or((name, ""));
            if let Some(alias) = aliases.get(head) {
                parts.extend(of_item(head, field, *alias, position, path, findings));
                continue;
            }
            let Some(slot) = bound.slots.get(name) else {
                let names = bound.slots.keys().chain(aliases.keys()).map(String::as_str);
                let hint = did_you_mean(name, names);
                // The original format declares none: each comes from the file or the command line.
                let give = match findings.dialect {
                    Dialect::Compat => format!(": give it a value with --var {name}=VALUE"),
                    Dialect::Strict => hint,
                };
                findings.add(Code::P020, path, format!("there is no variable `{name}`{give}"));
                continue;
            };
            bound.used.insert(name.to_owned());
            let free = matches!(slot.kind, VariableKind::String | VariableKind::List) && !slot.enumerated;
            let foreign = slot.trust > Trust::Host && free;
            if position == Position::Argument && (foreign || slot.trust == Trust::Image) {
                let message = format!("`{name}` is free text from outside and may not stand in an argument");
                findings.add(Code::P021, path, message);
                continue;
            }
            parts.push(match slot.value.as_ref().map(words) {
                None => Part::Waiting(name.to_owned()),
                Some(text) if foreign => Part::Data { name: name.to_owned(), text },
                Some(text) => Part::Text(text),
            });
        }
        Self(parts)
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|part| matches!(part, Part::Text(text) if text.trim().is_empty()))
    }

    /// The text for the present items of the loops.
    pub fn render(&self, items: &BTreeMap<String, Item>) -> String {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Text(words) => text.push_str(words),
                Part::Data { name, text: words } => text.push_str(&fenced(name, words)),
                Part::Waiting(name) => text.push_str(&format!("{{{{{name}}}}}")),
                Part::Item { alias, field, data } => {
                    let words = items.get(alias).and_then(|item| item.get(field)).map_or("", String::as_str);
                    if *data {
                        text.push_str(&fenced(&join(alias, field), words));
                    } else {
                        text.push_str(words);
                    }
                }
            }
        }
        text
    }
}

/// A field of a loop's item.
fn of_item(
    alias: &str,
    field: &str,
    of: Alias,
    position: Position,
    path: &str,
    findings: &mut Findings,
) -> Option<Part> {
    let (known, free) = match of.items {
        ItemKind::Vector => (VECTOR_FIELDS.contains(&field), ["direction", "intensity"].contains(&field)),
        ItemKind::String => (field.is_empty(), true),
        ItemKind::Name => (field.is_empty(), false),
    };
    if !known {
        let what = if of.items == ItemKind::Vector {
            format!("it has {}{}", VECTOR_FIELDS.join(", "), did_you_mean(field, VECTOR_FIELDS))
        } else {
            format!("write {{{{{alias}}}}}")
        };
        findings.add(Code::P020, path, format!("`{alias}` has no field `{field}`: {what}"));
        return None;
    }
    let data = free && of.trust > Trust::Host;
    if position == Position::Argument && (data || of.trust == Trust::Image) {
        let name = join(alias, field);
        let message = format!("`{name}` is free text from outside and may not stand in an argument");
        findings.add(Code::P021, path, message);
        return None;
    }
    Some(Part::Item { alias: alias.to_owned(), field: field.to_owned(), data })
}

/// A value as words.
fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let item = |item: &Value| match item {
                Value::Object(fields) => {
                    let field = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
                    format!("{} ({})", field("name"), field("direction"))
                }
                other => words(other),
            };
            items.iter().map(item).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

/// Foreign text between marks that it cannot close itself: `<data name="…">` and `</data>`.
pub fn fenced(name: &str, words: &str) -> String {
    let clean: String = words
        .chars()
        .map(|c| match c {
            '<' => '‹',
            '>' => '›',
            '\n' => '\n',
            c if c.is_control() => ' ',
            c => c,
        })
        .collect();
    format!("<data name=\"{name}\">{clean}</data>")
}

/// The arguments of an action: a tree whose texts are templates.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// As it stands.
    Plain(Value),
    /// A text.
    Text(Template),
    /// A list.
    List(Vec<Argument>),
    /// An object.
    Object(BTreeMap<String, Argument>),
}

impl Argument {
    /// Reads a value.
    pub(super) fn new(
        value: &Value,
        bound: &mut Bound,
        aliases: &BTreeMap<String, Alias>,
        path: &str,
        findings: &mut Findings,
    ) -> Self {
        match value {
            Value::String(text) => {
                if let [Piece::Placeholder(name)] = cut(text).as_slice()
                    && let Some(slot) = bound.slots.get(*name)
                    && !matches!(slot.kind, VariableKind::String | VariableKind::Name | VariableKind::List)
                    && slot.trust < Trust::Image
                {
                    bound.used.insert((*name).to_owned());
                    return Self::Plain(slot.value.clone().unwrap_or_default());
                }
                Self::Text(Template::new(text, Position::Argument, bound, aliases, path, findings))
            }
            Value::Array(items) => Self::List(
                items
                    .iter()
                    .enumerate()
                    .map(|(i, v)| Self::new(v, bound, aliases, &format!("{path}[{i}]"), findings))
                    .collect(),
            ),
            Value::Object(fields) => Self::Object(
                fields
                    .iter()
                    .map(|(k, v)| (k.clone(), Self::new(v, bound, aliases, &join(path, k), findings)))
                    .collect(),
            ),
            other => Self::Plain(other.clone()),
        }
    }

    /// The value for the present items of the loops.
    pub fn render(&self, items: &BTreeMap<String, Item>) -> Value {
        match self {
            Self::Plain(value) => value.clone(),
            Self::Text(template) => template.render(items).into(),
            Self::List(list) => list.iter().map(|a| a.render(items)).collect(),
            Self::Object(fields) => {
                Value::Object(fields.iter().map(|(k, a)| (k.clone(), a.render(items))).collect())
            }
        }
    }
}
