//! A protocol that can be run: names resolved, defaults filled in, nothing left to look up.
//!
//! The one constructor is [`super::load::load`]; what has an error never becomes a [`Protocol`].

use std::collections::{BTreeMap, BTreeSet};

use super::checks::Check;
use super::finding::Dialect;
use super::schema::{
    BudgetSpec, FinalOutcome, Flag, Gate, Kind, OnFail, Op, Outcome, Output, Reference, Validator, Variable,
};
use super::template::{Argument, Template};
use super::variables::Item;

/// A state's place in [`Protocol::states`].
pub type StateId = usize;

/// A protocol, validated and immutable.
#[derive(Clone, Debug)]
pub struct Protocol {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// How it was written, and how it behaves.
    pub dialect: Dialect,
    /// Where a run begins.
    pub initial: StateId,
    /// Transitions in all, the wrap-up's not counted.
    pub max_transitions: u32,
    /// What a run may spend at most.
    pub budget: Option<BudgetSpec>,
    /// The model that works, if the file names one.
    pub model: Option<String>,
    /// What may stand in double braces, by name.
    pub variables: BTreeMap<String, Variable>,
    /// Who gives the second opinion.
    pub referee: Referee,
    /// The states, in the file's order.
    pub states: Vec<State>,
}

/// Who gives the second opinion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Referee {
    /// Its provider.
    pub provider: Option<String>,
    /// Its model.
    pub model: Option<String>,
    /// What the picture is held against.
    pub against: Reference,
    /// How often it is asked: 1 or 2.
    pub orders: u8,
}

/// One state.
#[derive(Clone, Debug)]
pub struct State {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// What is to be done.
    pub instructions: Template,
    /// What it is judged by.
    pub criteria: Template,
    /// The tools that may be called; `None` in the original format: all that the host allows.
    pub tools: Option<BTreeSet<String>>,
    /// Checks on what was measured.
    pub checks: Vec<Check>,
    /// Who says whether an attempt passed.
    pub validated_by: Validator,
    /// What the engine does in a `fixed` state.
    pub action: Option<Action>,
    /// The list of which every visit takes the next item.
    pub foreach: Option<Foreach>,
    /// What an attempt must leave behind.
    pub output: Option<Output>,
    /// Whether a person is asked before a pass counts.
    pub gate: Option<Gate>,
    /// Attempts in a visit.
    pub max_attempts: u32,
    /// Visits for one item of a loop.
    pub max_visits: Option<u32>,
    /// What the model may do in one attempt: calls and replies.
    pub max_steps: u32,
    /// What becomes of a failed attempt's edits.
    pub on_fail: OnFail,
    /// Whether it belongs to the wrap-up.
    pub uses_reserve: bool,
    /// What one visit may spend.
    pub budget: Option<BudgetSpec>,
    /// Where to go; defaults are among them.
    pub transitions: Vec<Transition>,
    /// How a run that ends here ended.
    pub outcome: FinalOutcome,
}

/// What the engine does by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    /// The tool.
    pub tool: String,
    /// Its arguments.
    pub args: BTreeMap<String, Argument>,
}

/// A loop: every visit takes the next item.
#[derive(Clone, Debug, PartialEq)]
pub struct Foreach {
    /// The name under which an item is known.
    pub alias: String,
    /// The items.
    pub items: Vec<Item>,
}

/// Where a state goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Transition {
    /// On which outcome.
    pub on: Outcome,
    /// On which condition.
    pub when: Option<Guard>,
    /// Where to.
    pub to: Target,
    /// A remark that the branch gets on the way.
    pub flag: Option<Flag>,
    /// Whether the file says so, and not a default.
    pub written: bool,
}

/// The other end of a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A state.
    State(StateId),
    /// The same state, as the visit's next attempt.
    Retry,
    /// The end of the run.
    End,
}

/// A condition, as data.
#[derive(Clone, Debug, PartialEq)]
pub enum Guard {
    /// A number compares so with another.
    Compare(Operand, Op, f64),
    /// All hold.
    All(Vec<Guard>),
    /// At least one holds.
    Any(Vec<Guard>),
    /// It does not hold.
    Not(Box<Guard>),
}

/// A number that a condition asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A metric of the last checks.
    Metric(String, Option<Reference>),
    /// A field of the last judgment.
    Field(String),
    /// Attempts in this visit.
    Attempts,
    /// Transitions in all.
    Transitions,
    /// Items that the loop has still to take.
    ItemsLeft,
    /// Visits of a state, for the present item.
    Visits(StateId),
    /// What is left of a cap.
    Budget(String),
}

impl Guard {
    /// Whether it holds, given how a number is looked up; `None` when a number that it needs is not known.
    /// A condition on what is not known does not hold, and neither does its contrary.
    pub fn holds(&self, number: &dyn Fn(&Operand) -> Option<f64>) -> Option<bool> {
        match self {
            Self::Compare(operand, op, value) => Some(op.holds(number(operand)?, *value)),
            Self::Not(guard) => guard.holds(number).map(|held| !held),
            Self::All(guards) => {
                let mut all = Some(true);
                for guard in guards {
                    match guard.holds(number) {
                        Some(false) => return Some(false),
                        Some(true) => {}
                        None => all = None,
                    }
                }
                all
            }
            Self::Any(guards) => {
                let mut any = Some(false);
                for guard in guards {
                    match guard.holds(number) {
                        Some(true) => return Some(true),
                        Some(false) => {}
                        None => any = None,
                    }
                }
                any
            }
        }
    }
}

impl State {
    /// Whether the model may call a tool here.
    pub fn allows(&self, tool: &str) -> bool {
        let works = matches!(self.kind, Kind::Task | Kind::Judge);
        works && self.tools.as_ref().is_none_or(|tools| tools.contains(tool))
    }

    /// The most events of one attempt, of whatever kind: ten for each step of the model.
    pub fn max_events(&self) -> u32 {
        self.max_steps.saturating_mul(10)
    }

    /// The first target of an outcome that stands without a condition.
    pub fn target(&self, outcome: Outcome) -> Option<Target> {
        self.transitions.iter().find(|t| t.on == outcome && t.when.is_none()).map(|t| t.to)
    }
}

impl Protocol {
    /// A state.
    pub fn state(&self, id: StateId) -> Option<&State> {
        self.states.get(id)
    }

    /// The state of that name.
    pub fn find(&self, name: &str) -> Option<StateId> {
        self.states.iter().position(|state| state.name == name)
    }

    /// The names of all states, in order.
    pub fn names(&self) -> Vec<&str> {
        self.states.iter().map(|state| state.name.as_str()).collect()
    }

    /// The most events that a run can take in, whatever they are: the promise that every run ends.
    pub fn max_events(&self) -> u64 {
        let longest = |state: &State| u64::from(state.max_attempts) * (u64::from(state.max_events()) + 1);
        let visit = self.states.iter().map(longest).max().unwrap_or(1);
        let reserve = self.states.iter().filter(|state| state.uses_reserve).count() as u64;
        (u64::from(self.max_transitions) + reserve + 2) * visit
    }
}
