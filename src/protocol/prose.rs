//! The transitions of the original format, which stand in prose: `If tests pass -> null, else -> 'Fix'`.
//!
//! What is found here serves warnings only. A run of the original format goes where its referee
//! says, among the declared states.

use std::collections::BTreeSet;

use super::graph::Graph;
use super::model::{Protocol, StateId};

/// What leads to a state's name in prose. After an arrow any word is meant as one; after the others only what
/// is quoted or declared.
const ARROWS: [&str; 4] = ["->", "=>", "→", "⇒"];
const PHRASES: [&str; 6] =
    ["transition to", "transitions to", "go to", "proceed to", "move to", "next state"];
/// Words for the end.
const ENDS: [&str; 7] = ["null", "end", "done", "none", "terminal", "finish", "stop"];
/// Quotation marks, with what closes them.
const QUOTES: [(char, char); 5] = [('\'', '\''), ('"', '"'), ('`', '`'), ('“', '”'), ('‘', '’')];

/// Where a state's criteria seem to lead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mined {
    pub states: BTreeSet<StateId>,
    pub ends: bool,
    /// Names that are not declared, in order.
    pub unknown: Vec<String>,
}

impl Mined {
    /// Reads criteria.
    pub fn of(criteria: &str, names: &[&str]) -> Self {
        let mut found = Self::default();
        let lower = criteria.to_ascii_lowercase();
        for (marks, arrow) in [(ARROWS.as_slice(), true), (PHRASES.as_slice(), false)] {
            for mark in marks {
                for (at, _) in lower.match_indices(mark) {
                    found.target(criteria.get(at + mark.len()..).unwrap_or_default(), arrow, names);
                }
            }
        }
        // A declared name in quotes is meant as a state, whatever stands before it.
        for (id, name) in names.iter().enumerate() {
            let quoted = |(open, close): &(char, char)| criteria.contains(&format!("{open}{name}{close}"));
            if !name.is_empty() && QUOTES.iter().any(quoted) {
                found.states.insert(id);
            }
        }
        found
    }

    fn target(&mut self, rest: &str, arrow: bool, names: &[&str]) {
        let rest = rest.trim_start_matches([' ', ':', '\t']);
        let rest = rest.strip_prefix("state ").unwrap_or(rest).trim_start();
        let quoted = QUOTES.iter().find_map(|(open, close)| {
            let inner = rest.strip_prefix(*open)?;
            inner.get(..inner.find(*close)?)
        });
        let word = match quoted {
            Some(word) => word,
            None => {
                let boundary = |tail: &str| !tail.starts_with(|c: char| c.is_alphanumeric() || c == '_');
                let declared = names.iter().filter(|n| rest.strip_prefix(**n).is_some_and(boundary));
                match declared.max_by_key(|name| name.len()) {
                    Some(name) => name,
                    None => {
                        let end = rest.find(|c: char| !(c.is_alphanumeric() || "_-".contains(c)));
                        rest.get(..end.unwrap_or(rest.len())).unwrap_or_default()
                    }
                }
            }
        };
        if let Some(id) = names.iter().position(|name| *name == word) {
            self.states.insert(id);
        } else if ENDS.contains(&word.to_ascii_lowercase().as_str()) {
            self.ends = true;
        } else if !word.is_empty() && (arrow || quoted.is_some()) && !self.unknown.iter().any(|u| u == word) {
            self.unknown.push(word.to_owned());
        }
    }
}

/// The ways of a protocol of the original format. A state that says nothing may go anywhere.
pub(super) fn graph(protocol: &Protocol) -> (Graph, Vec<Mined>) {
    let names = protocol.names();
    let mined: Vec<Mined> = protocol
        .states
        .iter()
        .map(|state| Mined::of(&state.criteria.render(&std::collections::BTreeMap::new()), &names))
        .collect();
    let silent = |m: &Mined| m.states.is_empty() && !m.ends && m.unknown.is_empty();
    let next = mined.iter().map(|m| if silent(m) { (0..names.len()).collect() } else { m.states.clone() });
    let ends = mined.iter().map(|m| silent(m) || m.ends || !m.unknown.is_empty());
    (Graph { next: next.collect(), ends: ends.collect() }, mined)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_found_in_prose() {
        let names = ["Analyze", "Fix", "Write report"];
        let of = |criteria| {
            let m = Mined::of(criteria, &names);
            (m.states.into_iter().collect::<Vec<_>>(), m.ends, m.unknown)
        };
        let unknown = |name: &str| vec![name.to_owned()];
        assert_eq!(of("If bug found -> 'Fix', else -> 'Search'"), (vec![1], false, unknown("Search")));
        assert_eq!(of("If tests pass -> null, else -> 'Fix'"), (vec![1], true, vec![]));
        assert_eq!(
            of("Passes: transition to Write report; otherwise go to the shop"),
            (vec![2], false, vec![])
        );
        assert_eq!(of("done → end"), (vec![], true, vec![]));
        assert_eq!(of("then \"Analyze\" follows"), (vec![0], false, vec![]));
        assert_eq!(of("a > b and the log is clean"), (vec![], false, vec![]));
        assert_eq!(of("-> Fixing"), (vec![], false, unknown("Fixing")));
        assert_eq!(of("-> "), (vec![], false, vec![]));
    }
}
