//! Removing moves and modules.

use std::collections::BTreeSet;

use crate::vocabulary::apply::{PhotoFacts, at_rest, base_fields, finish, renumber, rest};
use crate::vocabulary::error::VocabularyError;
use crate::vocabulary::load::Vocabulary;
use crate::vocabulary::moves::Move;
use darktable::order;
use darktable::state::{EditState, Module};

/// What is to be removed.
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
    /// A move where it acts on the whole picture: its fields on instance 0.
    Unmasked(String),
    /// A look: every move of it.
    Look(String),
}

impl Vocabulary {
    /// What a name means to [`Self::remove_module`]: a look or a move, if there is one and no instance is named, else
    /// a module.
    pub fn selector(&self, name: &str, instance: Option<u32>) -> Selector {
        match (self.look(name), self.get(name), instance) {
            (Some(look), _, None) => Selector::Look(look.name.clone()),
            (None, Ok(entry), None) => Selector::Move(entry.name.clone()),
            _ => Selector::Module { op: name.to_owned(), instance },
        }
    }

    /// Sets a module or a move back to the photo's baseline.
    ///
    /// # Errors
    /// [`VocabularyError::NothingToRemove`] says what there is.
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
            Selector::Move(name) => self.take_off_all(&mut new, self.get(name)?, facts),
            Selector::Unmasked(name) => self.take_off(&mut new, self.get(name)?, facts),
            Selector::Look(name) => {
                for name in self.look(name).into_iter().flat_map(|look| look.moves.keys()) {
                    self.take_off_all(&mut new, self.get(name)?, facts);
                }
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

    /// Takes off the masked instances of a move too.
    fn take_off_all(&self, state: &mut EditState, entry: &Move, facts: &PhotoFacts) {
        state.modules.retain(|m| m.op != entry.module || m.instance == 0 || m.name != entry.name);
        self.take_off(state, entry, facts);
    }

    /// Sets the fields of a move back on instance 0, if it is on there.
    fn take_off(&self, state: &mut EditState, entry: &Move, facts: &PhotoFacts) {
        let rules = self.rules(&entry.module);
        let base = base_fields(facts, &entry.module).filter(|_| entry.fixed.is_empty());
        let carries = |m: &&mut Module| m.enabled && entry.is_in(m);
        let Some(module) = state.module_mut(&entry.module, 0).filter(carries) else { return };
        rest(entry, rules, base, module, facts);
        if at_rest(rules, base, module) {
            self.restore(state, facts, &entry.module);
        }
    }
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
            Selector::Unmasked(name) => format!("move `{name}` on the whole picture"),
            Selector::Look(name) => format!("look `{name}`"),
        },
        present: if edited.is_empty() { "none".into() } else { edited.join(", ") },
    }
}
