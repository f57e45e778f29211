//! A protocol as a drawing, in the notation of Mermaid's state diagrams.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::finding::Dialect;
use super::model::{Guard, Operand, Protocol, StateId, Target};
use super::prose;
use super::schema::{Kind, Outcome};

/// Draws the states and the transitions that the file writes down. Where every state goes when a limit is reached,
/// and after its attempts, stands in a note, because those lines would hide the others.
pub(super) fn draw(protocol: &Protocol) -> String {
    let mut text = String::from("stateDiagram-v2\n");
    let ids: Vec<String> = protocol.names().iter().enumerate().map(|(i, name)| identifier(i, name)).collect();
    for (id, name) in ids.iter().zip(protocol.names()) {
        if id != name {
            let _ = writeln!(text, "    state \"{}\" as {id}", clean(name));
        }
    }
    let id = |state: StateId| ids.get(state).map_or("unknown", String::as_str);
    let _ = writeln!(text, "    [*] --> {}", id(protocol.initial));
    match protocol.dialect {
        Dialect::Strict => declared(protocol, &id, &mut text),
        Dialect::Compat => in_prose(protocol, &id, &mut text),
    }
    text
}

fn declared<'a>(protocol: &Protocol, id: &dyn Fn(StateId) -> &'a str, text: &mut String) {
    for (index, state) in protocol.states.iter().enumerate() {
        // Lines between the same two states are one line with several labels.
        let mut lines: BTreeMap<usize, (String, Vec<String>)> = BTreeMap::new();
        for (order, transition) in state.transitions.iter().enumerate().filter(|(_, t)| t.written) {
            let to = match transition.to {
                Target::State(to) => id(to).to_owned(),
                Target::Retry => id(index).to_owned(),
                Target::End => "[*]".to_owned(),
            };
            let mut label = transition.on.as_str().to_owned();
            if transition.to == Target::Retry {
                label.push_str(" (again)");
            }
            if let Some(guard) = &transition.when {
                let _ = write!(label, " if {}", condition(guard, protocol));
            }
            if let Some(flag) = transition.flag {
                let _ = write!(label, " ({})", flag.as_str());
            }
            match lines.values_mut().find(|(other, _)| *other == to) {
                Some((_, labels)) => labels.push(label),
                None => drop(lines.insert(order, (to, vec![label]))),
            }
        }
        for (to, labels) in lines.values() {
            let _ = writeln!(text, "    {} --> {to}: {}", id(index), labels.join(", "));
        }
        if state.kind == Kind::Final {
            let _ = writeln!(text, "    {} --> [*]", id(index));
        }
    }
    let mut notes = Vec::new();
    for (outcome, words) in
        [(Outcome::Exhausted, "attempts used up"), (Outcome::Budget, "a limit is reached")]
    {
        let mut targets: Vec<&str> = Vec::new();
        for transition in protocol.states.iter().flat_map(|s| &s.transitions) {
            if transition.on == outcome && !transition.written {
                let name = match transition.to {
                    Target::State(to) => protocol.state(to).map_or("", |s| s.name.as_str()),
                    Target::Retry | Target::End => "the end",
                };
                if !targets.contains(&name) {
                    targets.push(name);
                }
            }
        }
        if !targets.is_empty() {
            notes.push(format!("{words}, else to {}", targets.join(" or ")));
        }
    }
    if !notes.is_empty() {
        let _ = writeln!(text, "    note left of {}", id(protocol.initial));
        for note in notes {
            let _ = writeln!(text, "        {}", clean(&note));
        }
        text.push_str("    end note\n");
    }
}

fn in_prose<'a>(protocol: &Protocol, id: &dyn Fn(StateId) -> &'a str, text: &mut String) {
    let (_, mined) = prose::graph(protocol);
    let mut unknown: Vec<&str> = Vec::new();
    for name in mined.iter().flat_map(|m| &m.unknown) {
        if !unknown.contains(&name.as_str()) {
            let _ =
                writeln!(text, "    state \"{} (not declared)\" as undeclared{}", clean(name), unknown.len());
            unknown.push(name);
        }
    }
    for (index, mined) in mined.iter().enumerate() {
        for &to in &mined.states {
            let _ = writeln!(text, "    {} --> {}", id(index), id(to));
        }
        for name in &mined.unknown {
            if let Some(at) = unknown.iter().position(|u| u == name) {
                let _ = writeln!(text, "    {} --> undeclared{at}", id(index));
            }
        }
        if mined.ends {
            let _ = writeln!(text, "    {} --> [*]", id(index));
        }
    }
}

/// A condition in signs.
fn condition(guard: &Guard, protocol: &Protocol) -> String {
    let many = |guards: &[Guard], word: &str| {
        guards.iter().map(|g| condition(g, protocol)).collect::<Vec<_>>().join(word)
    };
    match guard {
        Guard::Compare(operand, op, value) => {
            let name = match operand {
                Operand::Metric(name, _) | Operand::Field(name) => name.clone(),
                Operand::Attempts => "attempts".into(),
                Operand::Transitions => "transitions".into(),
                Operand::ItemsLeft => "items left".into(),
                Operand::Visits(state) => {
                    format!("visits of {}", protocol.state(*state).map_or("", |s| s.name.as_str()))
                }
                Operand::Budget(name) => format!("{name} left"),
            };
            // `<` and `>` would be read as marks.
            let sign = match op.as_str() {
                "<" => "under",
                ">" => "over",
                "<=" => "at most",
                ">=" => "at least",
                "==" => "is",
                _ => "is not",
            };
            clean(&format!("{name} {sign} {value}"))
        }
        Guard::All(guards) => many(guards, " and "),
        Guard::Any(guards) => format!("({})", many(guards, " or ")),
        Guard::Not(guard) => format!("not ({})", condition(guard, protocol)),
    }
}

/// A name that Mermaid takes for one state; its keywords and anything unusual get a number.
fn identifier(index: usize, name: &str) -> String {
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let keyword = ["end", "state", "note", "direction", "as", "class", "classdef", "unknown"];
    if plain
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && !keyword.contains(&name.to_ascii_lowercase().as_str())
    {
        name.to_owned()
    } else {
        format!("s{index}")
    }
}

/// Words without what Mermaid would read as its own.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || "\"<>:;#{}".contains(c) { ' ' } else { c }).collect()
}
