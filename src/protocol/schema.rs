//! A protocol as it is written: the fields of version 2, and those of the original format.
//!
//! Field names are the file's. Every field that the original format does not have is optional. What a field
//! means is said in `docs/protocols.md` too, which a test holds against this file.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor, value::MapAccessDeserializer};
use serde_json::Value;

/// A whole file of version 2.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Document {
    /// 2; a file of the original format has none.
    pub protocol_version: Option<u32>,
    /// Its name; left out = the file's.
    pub name: Option<String>,
    /// What it is for, in one or two sentences.
    #[serde(default)]
    pub description: String,
    /// Where a run begins.
    pub initial_state: String,
    /// What may stand in double braces, by name.
    #[serde(default)]
    pub variables: BTreeMap<String, Variable>,
    /// Transitions in all, the wrap-up's not counted.
    pub max_iterations: Option<u32>,
    /// Attempts in a state, the first included: the original's name for `maxAttempts`.
    pub max_retries: Option<u32>,
    /// What a run may spend at most; the session's own budget may only be narrower.
    pub budget: Option<BudgetSpec>,
    /// What holds for every state that does not say otherwise.
    #[serde(default)]
    pub defaults: Defaults,
    /// The model that works; the command line overrides it.
    pub model: Option<String>,
    /// Who gives the second opinion.
    pub referee: Option<RefereeSpec>,
    /// The states.
    pub states: Vec<StateSpec>,
}

/// What a run, or one visit of a state, may spend. Amounts left out are not limited here.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetSpec {
    /// Wall time.
    pub time_seconds: Option<u64>,
    /// Tool calls.
    pub max_iterations: Option<u64>,
    /// Branches.
    pub max_branches: Option<u64>,
    /// Calls of the model.
    pub max_model_calls: Option<u64>,
    /// Input and output tokens together.
    pub max_tokens: Option<u64>,
    /// US dollars.
    pub max_cost_usd: Option<f64>,
    /// Renders.
    pub max_renders: Option<u64>,
    /// The slice kept for the wrap-up (of a whole run only).
    pub reserve: Option<ReserveSpec>,
}

/// The slice of a budget that only states with `usesReserve` may spend.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Deserialize, serde::Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReserveSpec {
    /// Wall time.
    pub time_seconds: u64,
    /// Calls of the model.
    pub model_calls: u64,
    /// Renders.
    pub renders: u64,
}

/// What holds for every state that does not say otherwise.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Defaults {
    /// Attempts in a visit, the first included; 3 when left out.
    pub max_attempts: Option<u32>,
    /// Where a state goes whose tool or model failed; `retry` when left out.
    pub on_error: Option<String>,
    /// Where a state goes whose attempts are used up.
    pub on_exhausted: Option<String>,
    /// Where any state goes when a cap fires: the wrap-up.
    pub on_budget: Option<String>,
    /// Checks for every state that may edit, before its own.
    #[serde(default)]
    pub checks: Vec<CheckSpec>,
}

/// Who gives the second opinion. It is always blind, always a comparison of two pictures, and may only
/// tighten what the checks decided: that is no option.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RefereeSpec {
    /// Its provider.
    pub provider: Option<String>,
    /// Its model.
    pub model: Option<String>,
    /// What the picture is held against.
    #[serde(default)]
    pub against: Reference,
    /// How often it is asked: 2 shows the pair in both orders, and a disagreement counts as `same`.
    pub orders: Option<u8>,
}

/// The other picture of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reference {
    /// The state that the session began from.
    #[default]
    Baseline,
    /// The state that the attempt began from.
    Parent,
}

/// One state.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StateSpec {
    /// Its name.
    pub name: String,
    /// What it is; `task` when left out.
    #[serde(default)]
    pub kind: Kind,
    /// What is to be done, in words.
    #[serde(default)]
    pub instructions: String,
    /// What it is judged by, in words.
    #[serde(default)]
    pub validation_criteria: String,
    /// The tools that may be called; none when left out.
    pub tools: Option<Vec<String>>,
    /// Checks on what was measured, in this order.
    pub checks: Option<Vec<CheckSpec>>,
    /// Who says whether an attempt passed.
    pub validated_by: Option<Validator>,
    /// What the engine does in a `fixed` state.
    pub action: Option<ActionSpec>,
    /// The list of which every visit takes the next item.
    pub foreach: Option<String>,
    /// The item's name in double braces; `item` when left out.
    #[serde(rename = "as")]
    pub alias: Option<String>,
    /// What an attempt must leave behind to pass.
    pub output: Option<Output>,
    /// Whether a person is asked before a pass counts.
    pub gate: Option<Gate>,
    /// Attempts in a visit, the first included.
    pub max_attempts: Option<u32>,
    /// The same, by the original's name.
    pub max_retries: Option<u32>,
    /// Visits for one item of a loop (in all, where there is no loop).
    pub max_visits: Option<u32>,
    /// What the model may do in one attempt: calls and replies; 40 when left out.
    pub max_steps: Option<u32>,
    /// What becomes of a failed attempt's edits.
    #[serde(default)]
    pub on_fail: OnFail,
    /// Whether the state belongs to the wrap-up, and may spend the reserve.
    #[serde(default)]
    pub uses_reserve: bool,
    /// What one visit may spend; when it is spent, the state is exhausted.
    pub budget: Option<BudgetSpec>,
    /// Where to go; of one outcome the first whose condition holds.
    pub transitions: Option<Vec<TransitionSpec>>,
    /// How a run that ends here ended (of a `final` state).
    pub outcome: Option<FinalOutcome>,
}

/// What a state is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The model works with the state's tools.
    #[default]
    Task,
    /// The model looks and judges; it may not edit.
    Judge,
    /// The engine does one thing; no model is asked.
    Fixed,
    /// The referee compares; the model is not asked.
    Referee,
    /// The end.
    Final,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Task => "task",
            Self::Judge => "judge",
            Self::Fixed => "fixed",
            Self::Referee => "referee",
            Self::Final => "final",
        })
    }
}

/// Who says whether an attempt passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Validator {
    /// The checks alone.
    Checks,
    /// The checks, and then the referee.
    Referee,
}

/// What an attempt must leave behind to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Output {
    /// A judgment, by `record_judgment`.
    Judgment,
}

/// Whether a person is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Gate {
    /// Yes: a no is the outcome `declined`.
    Confirm,
}

/// What becomes of a failed attempt's edits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFail {
    /// They stay, and the next attempt goes on from them.
    #[default]
    Keep,
    /// The photo is set back to where the attempt began.
    Rollback,
}

/// How a run that reached a final state ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FinalOutcome {
    /// As it should.
    #[default]
    Completed,
    /// Without what it was for.
    Failed,
}

/// What the engine does in a `fixed` state.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActionSpec {
    /// The tool.
    pub tool: String,
    /// Its arguments.
    #[serde(default)]
    pub args: BTreeMap<String, Value>,
}

/// Where a state goes.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransitionSpec {
    /// On which outcome.
    pub on: Outcome,
    /// On which condition; always, when left out.
    pub when: Option<GuardSpec>,
    /// To which state, `retry`, or `@done`; left out (or null) = `@done`.
    pub to: Option<String>,
    /// A remark that the branch gets on the way.
    pub flag: Option<Flag>,
}

/// How a visit of a state can come out.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize, serde::Serialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The attempt passed.
    #[default]
    Pass,
    /// The attempt failed; without a transition of its own it is tried again.
    Fail,
    /// The attempts, the visits or the state's own budget are used up.
    Exhausted,
    /// A tool or the model failed.
    Error,
    /// A person said no.
    Declined,
    /// A cap of the session fired.
    Budget,
    /// The list has no further item.
    Done,
    /// The referee prefers the new picture.
    Better,
    /// It sees no difference that counts, or contradicted itself.
    Same,
    /// It prefers the old picture.
    Worse,
    /// The new picture is not what was asked for.
    OffBrief,
    /// It cannot say.
    Unsure,
    /// There is no referee, or nothing left to pay it with.
    Unavailable,
}

impl Outcome {
    /// Its name in a file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Exhausted => "exhausted",
            Self::Error => "error",
            Self::Declined => "declined",
            Self::Budget => "budget",
            Self::Done => "done",
            Self::Better => "better",
            Self::Same => "same",
            Self::Worse => "worse",
            Self::OffBrief => "off_brief",
            Self::Unsure => "unsure",
            Self::Unavailable => "unavailable",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A remark on a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Flag {
    /// The referee does not agree with the judgment.
    Disputed,
    /// No referee has seen it.
    Unrefereed,
}

impl Flag {
    /// Its name in a file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Disputed => "disputed",
            Self::Unrefereed => "unrefereed",
        }
    }
}

/// A condition: exactly one of `metric`, `field`, `counter`, `budget` (with `op` and `value`), `all`, `any`
/// and `not`.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuardSpec {
    /// A number of the last checks.
    pub metric: Option<String>,
    /// With `metric`: against what; the number itself, when left out.
    pub vs: Option<Reference>,
    /// A field of the last judgment.
    pub field: Option<String>,
    /// `attempts`, `transitions`, `items_left` or `visits.STATE`.
    pub counter: Option<String>,
    /// What is left of a cap.
    pub budget: Option<String>,
    /// How the two are compared.
    pub op: Option<Op>,
    /// With what.
    pub value: Option<f64>,
    /// All of these hold.
    pub all: Option<Vec<GuardSpec>>,
    /// At least one of these holds.
    pub any: Option<Vec<GuardSpec>>,
    /// This does not hold.
    pub not: Option<Box<GuardSpec>>,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
pub enum Op {
    /// Equal.
    #[serde(rename = "==")]
    Equal,
    /// Not equal.
    #[serde(rename = "!=")]
    NotEqual,
    /// Less.
    #[serde(rename = "<")]
    Less,
    /// Less or equal.
    #[serde(rename = "<=")]
    AtMost,
    /// Greater.
    #[serde(rename = ">")]
    Greater,
    /// Greater or equal.
    #[serde(rename = ">=")]
    AtLeast,
}

impl Op {
    /// Whether `left` stands so to `right`. A number that is none stands so to nothing.
    pub fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Equal => left == right,
            Self::NotEqual => left != right && !left.is_nan() && !right.is_nan(),
            Self::Less => left < right,
            Self::AtMost => left <= right,
            Self::Greater => left > right,
            Self::AtLeast => left >= right,
        }
    }

    /// The sign.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::AtMost => "<=",
            Self::Greater => ">",
            Self::AtLeast => ">=",
        }
    }
}

/// A check as it is written: a name, or an object with `check` or `metric`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckSpec(pub CheckFields);

/// The fields of a check.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckFields {
    /// One of the named checks.
    pub check: Option<String>,
    /// Any metric instead.
    pub metric: Option<String>,
    /// Against what; the number itself, when left out.
    pub vs: Option<Reference>,
    /// How it is held against the other: by what it grew (`delta`), or how many times it is (`ratio`).
    pub by: Option<By>,
    /// How it is compared.
    pub op: Option<Op>,
    /// With what.
    pub value: Option<f64>,
    /// The lower end of a band.
    pub min: Option<f64>,
    /// The upper end of a band, or the most that is allowed.
    pub max: Option<f64>,
    /// Whether a miss fails the attempt or is only said.
    #[serde(default)]
    pub severity: Weight,
}

/// How a metric is held against that of another picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// Now minus then.
    #[default]
    Delta,
    /// Now divided by then.
    Ratio,
}

/// Whether a missed check fails the attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Weight {
    /// It does.
    #[default]
    Fail,
    /// It is only said.
    Warn,
}

impl<'de> Deserialize<'de> for CheckSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrFields;
        impl<'de> Visitor<'de> for NameOrFields {
            type Value = CheckSpec;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a check, or an object with `check` or `metric`")
            }
            fn visit_str<E: de::Error>(self, name: &str) -> Result<CheckSpec, E> {
                Ok(CheckSpec(CheckFields { check: Some(name.to_owned()), ..CheckFields::default() }))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<CheckSpec, A::Error> {
                CheckFields::deserialize(MapAccessDeserializer::new(map)).map(CheckSpec)
            }
        }
        deserializer.deserialize_any(NameOrFields)
    }
}

/// A variable's declaration.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Variable {
    /// What it may be.
    #[serde(rename = "type")]
    pub kind: VariableKind,
    /// Who may set it, at least: what a stranger may set may stand in fewer places.
    pub trust: Trust,
    /// What a list is of.
    pub items: Option<ItemKind>,
    /// Its value when none is given; without one, a value is required.
    pub default: Option<Value>,
    /// The only values that it may have.
    #[serde(rename = "enum")]
    pub options: Option<Vec<String>>,
    /// The least number, or the least length of a list.
    pub min: Option<f64>,
    /// The greatest number, or the greatest length of a list or text.
    pub max: Option<f64>,
    /// What it is for.
    pub description: String,
}

/// What a variable may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum VariableKind {
    /// Text.
    #[default]
    String,
    /// A plain name: lower-case letters, digits and `_`, at most 32.
    Name,
    /// A number.
    Number,
    /// A whole number.
    Integer,
    /// Yes or no.
    Boolean,
    /// A list, for `foreach`.
    List,
}

/// What a list is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ItemKind {
    /// Text.
    #[default]
    String,
    /// Plain names.
    Name,
    /// Vectors, with `name`, `branch`, `direction` and `intensity`.
    Vector,
}

/// Who may set a variable, from the most to the least trusted.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize, serde::Serialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Trust {
    /// The program and the protocol itself.
    Host,
    /// The photographer too.
    #[default]
    User,
    /// What came with the photo too: its metadata, its name.
    Image,
}

impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "the program",
            Self::User => "the photographer",
            Self::Image => "the photo",
        })
    }
}
