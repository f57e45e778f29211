//! From the file's fields to a [`Protocol`]: names are looked up, defaults filled in, and what does not fit
//! is said.

mod ways;

use std::collections::{BTreeMap, BTreeSet};

use super::checks::{Check, Wrong};
use super::compat;
use super::finding::{Code, Dialect, Findings};
use super::model::{Action, Foreach, Protocol, Referee, State};
use super::schema::{
    ActionSpec, BudgetSpec, CheckSpec, Document, ItemKind, Kind, OnFail, StateSpec, Validator, VariableKind,
};
use super::source::join;
use super::template::{Alias, Argument, Position, Template};
use super::variables::{Bound, Item};
use crate::conversation::ToolCall;
use crate::tools::{self, TOOLS};
use crate::transcript::EffectClass;
use base::hint::did_you_mean;

/// Transitions of a protocol that does not say; P014 sees to it that it need not.
const STRICT_TRANSITIONS: u32 = 100;
/// Attempts of a state that does not say.
const ATTEMPTS: u32 = 3;
/// Calls and replies of an attempt, where the state does not say.
const STEPS: u32 = 40;
/// The most states.
const MAX_STATES: usize = 100;

/// Fields of a judgment that a condition may ask for.
pub const FIELDS: [&str; 3] = ["judged_score", "abandoned", "comparable_to_baseline"];
/// What is left of a cap, as a condition may ask for it.
pub const BUDGET_NAMES: [&str; 7] =
    ["time_seconds", "iterations", "branches", "model_calls", "tokens", "cost_usd", "renders"];
/// Counters, beside `visits.STATE`.
pub const COUNTERS: [&str; 3] = ["attempts", "transitions", "items_left"];

/// What the host says about a protocol that is loaded.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// The tools that may be used at all; every one when left out.
    pub tools: Option<BTreeSet<String>>,
    /// The model that works.
    pub model: Option<String>,
    /// Another limit on transitions.
    pub max_iterations: Option<u32>,
    /// Another number of attempts a state.
    pub max_retries: Option<u32>,
}

/// Builds the protocol. It is whole enough to be looked at even when there are errors, but then it must not
/// be run.
pub(super) fn build(
    document: &Document,
    file: &str,
    host: &Host,
    bound: &mut Bound,
    findings: &mut Findings,
) -> Protocol {
    let mut builder = Builder { document, host, aliases: BTreeMap::new(), bound, findings };
    builder.names();
    builder.loops();
    let initial = builder.document.states.iter().position(|s| s.name == document.initial_state);
    if initial.is_none() {
        let hint = did_you_mean(&document.initial_state, builder.state_names());
        let message = format!("`{}` is not declared{hint}", document.initial_state);
        builder.findings.add(Code::P002, "initialState", message);
    }
    builder.defaults();
    let states: Vec<State> = document
        .states
        .iter()
        .enumerate()
        .map(|(i, spec)| builder.state(spec, &format!("states[{i}]")))
        .collect();
    builder.budgets();
    builder.referee();
    let strict = builder.strict();
    let limit = if strict { STRICT_TRANSITIONS } else { compat::TRANSITIONS };
    let spec = document.referee.clone().unwrap_or_default();
    Protocol {
        name: document.name.clone().unwrap_or_else(|| file.to_owned()),
        description: document.description.clone(),
        dialect: builder.findings.dialect,
        initial: initial.unwrap_or(0),
        max_transitions: host.max_iterations.or(document.max_iterations).unwrap_or(limit),
        budget: document.budget,
        model: document.model.clone(),
        variables: document.variables.clone(),
        referee: Referee {
            provider: spec.provider,
            model: spec.model,
            against: spec.against,
            orders: spec.orders.unwrap_or(2),
        },
        states,
    }
}

struct Builder<'a> {
    document: &'a Document,
    host: &'a Host,
    aliases: BTreeMap<String, Alias>,
    bound: &'a mut Bound,
    findings: &'a mut Findings,
}

impl<'a> Builder<'a> {
    fn strict(&self) -> bool {
        self.findings.dialect == Dialect::Strict
    }

    fn state_names(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.document.states.iter().map(|state| state.name.as_str())
    }

    /// P001, P003, P004: the states' names and numbers.
    fn names(&mut self) {
        let document = self.document;
        if document.states.is_empty() {
            self.findings.add(Code::P001, "states", "there are no states");
        }
        if document.states.len() > MAX_STATES {
            let message = format!("{} states are more than {MAX_STATES}", document.states.len());
            self.findings.add(Code::P001, "states", message);
        }
        let mut seen: BTreeMap<String, &str> = BTreeMap::new();
        for (index, state) in document.states.iter().enumerate() {
            let (path, name) = (format!("states[{index}].name"), state.name.as_str());
            let marked = name.starts_with('@') || name == "retry" || name.trim() != name;
            if name.is_empty() || (marked && self.strict()) || name.chars().any(char::is_control) {
                self.findings.add(
                    Code::P001,
                    &path,
                    format!("`{}` is no name for a state", name.escape_debug()),
                );
            }
            match seen.insert(name.to_lowercase(), name) {
                Some(other) if other == name => {
                    self.findings.add(Code::P003, &path, format!("there are two states `{name}`"));
                }
                Some(other) => {
                    let message = format!("`{name}` and `{other}` differ only in case");
                    self.findings.add(Code::P004, &path, message);
                }
                None => {}
            }
        }
        self.number("", "maxIterations", document.max_iterations, 10_000);
        self.number("", "maxRetries", document.max_retries, 100);
        self.number("defaults", "maxAttempts", document.defaults.max_attempts, 100);
        if document.max_retries.is_some() && document.defaults.max_attempts.is_some() {
            let message = "`maxRetries` and `defaults.maxAttempts` say the same thing: keep one";
            self.findings.add(Code::P050, "maxRetries", message);
        }
    }

    fn number(&mut self, path: &str, field: &str, number: Option<u32>, most: u32) {
        if let Some(number) = number.filter(|n| !(1..=most).contains(n)) {
            self.findings.add(Code::P001, join(path, field), format!("{number} is not in 1..{most}"));
        }
    }

    /// P017: the loops and what their items are called.
    fn loops(&mut self) {
        for (index, state) in self.document.states.iter().enumerate() {
            let path = format!("states[{index}].foreach");
            let Some(list) = &state.foreach else { continue };
            let alias = state.alias.as_deref().unwrap_or("item").to_owned();
            let lists = || {
                let lists = self.bound.slots.iter().filter(|(_, slot)| slot.kind == VariableKind::List);
                lists.map(|(name, _)| name.as_str())
            };
            let Some(slot) = self.bound.slots.get(list).filter(|slot| slot.kind == VariableKind::List) else {
                let message =
                    format!("`{list}` is not a variable of type `list`{}", did_you_mean(list, lists()));
                self.findings.add(Code::P017, path, message);
                // What hangs on it would only be said again.
                self.aliases
                    .insert(alias, Alias { items: ItemKind::Vector, trust: super::schema::Trust::Host });
                continue;
            };
            let of = Alias { items: slot.items, trust: slot.trust };
            self.bound.used.insert(list.clone());
            if self.bound.slots.contains_key(&alias) || self.aliases.insert(alias.clone(), of).is_some() {
                let message = format!("`{alias}` is taken: give the item another name with `as`");
                self.findings.add(Code::P017, path, message);
            }
        }
    }

    /// The default targets, each looked up once.
    fn defaults(&mut self) {
        let defaults = &self.document.defaults;
        let targets = [
            ("onError", &defaults.on_error),
            ("onExhausted", &defaults.on_exhausted),
            ("onBudget", &defaults.on_budget),
        ];
        for (name, target) in targets {
            let path = format!("defaults.{name}");
            if let Some(target) = target {
                self.target(Some(target), &path);
                if target == "retry" && name != "onError" {
                    self.findings.add(Code::P018, path, format!("`retry` is no way out of `{name}`"));
                }
            }
        }
    }

    fn state(&mut self, spec: &StateSpec, path: &str) -> State {
        self.fields(spec, path);
        self.number(path, "maxAttempts", spec.max_attempts, 100);
        self.number(path, "maxRetries", spec.max_retries, 100);
        self.number(path, "maxVisits", spec.max_visits, 10_000);
        self.number(path, "maxSteps", spec.max_steps, 1_000);
        if spec.max_attempts.is_some() && spec.max_retries.is_some() {
            let message = "`maxRetries` and `maxAttempts` say the same thing: keep one";
            self.findings.add(Code::P050, join(path, "maxRetries"), message);
        }
        let prose = |builder: &mut Self, field: &str, text: &str| {
            Template::new(
                text,
                Position::Prose,
                builder.bound,
                &builder.aliases,
                &join(path, field),
                builder.findings,
            )
        };
        let instructions = prose(self, "instructions", &spec.instructions);
        let criteria = prose(self, "validationCriteria", &spec.validation_criteria);
        let tools = self.tools(spec, path);
        let checks = self.checks(spec, tools.as_ref(), path);
        let works = matches!(spec.kind, Kind::Task | Kind::Judge);
        let judged = !criteria.is_empty() || (self.strict() && !(checks.is_empty() && spec.output.is_none()));
        if works && (instructions.is_empty() || !judged) {
            let what = if instructions.is_empty() { "instructions" } else { "anything to be judged by" };
            self.findings.add(Code::P006, path, format!("`{}` is without {what}", spec.name));
        }
        let by_host = self.host.max_retries;
        let all = self.document.max_retries.or(self.document.defaults.max_attempts);
        let own = spec.max_attempts.or(spec.max_retries).or(all);
        let usual = if self.strict() { ATTEMPTS } else { compat::ATTEMPTS };
        let usual_validator = if self.strict() { Validator::Checks } else { Validator::Referee };
        State {
            name: spec.name.clone(),
            kind: spec.kind,
            instructions,
            criteria,
            tools,
            checks,
            validated_by: spec.validated_by.unwrap_or(usual_validator),
            action: spec.action.as_ref().map(|action| self.action(action, &join(path, "action"))),
            foreach: spec.foreach.as_ref().map(|list| Foreach {
                alias: spec.alias.clone().unwrap_or_else(|| "item".into()),
                items: self.bound.items(list),
            }),
            output: spec.output,
            gate: spec.gate,
            max_attempts: by_host.or(own).unwrap_or(usual),
            max_visits: spec.max_visits,
            max_steps: spec.max_steps.unwrap_or(STEPS),
            on_fail: spec.on_fail,
            uses_reserve: spec.uses_reserve,
            budget: spec.budget,
            transitions: self.transitions(spec, path),
            outcome: spec.outcome.unwrap_or_default(),
        }
    }

    /// P005: every kind of state has its own fields.
    fn fields(&mut self, spec: &StateSpec, path: &str) {
        let kind = spec.kind;
        let works = matches!(kind, Kind::Task | Kind::Judge);
        let goes = kind != Kind::Final;
        let rows = [
            ("tools", spec.tools.is_some(), works),
            ("output", spec.output.is_some(), works),
            ("gate", spec.gate.is_some(), works),
            ("validatedBy", spec.validated_by.is_some(), works),
            ("action", spec.action.is_some(), kind == Kind::Fixed),
            ("checks", spec.checks.is_some(), goes),
            ("foreach", spec.foreach.is_some(), goes && kind != Kind::Referee),
            ("as", spec.alias.is_some(), spec.foreach.is_some()),
            ("onFail", spec.on_fail == OnFail::Rollback, goes && kind != Kind::Referee),
            ("maxAttempts", spec.max_attempts.is_some(), goes && kind != Kind::Referee),
            ("maxRetries", spec.max_retries.is_some(), goes && kind != Kind::Referee),
            ("maxVisits", spec.max_visits.is_some(), goes),
            ("usesReserve", spec.uses_reserve, goes),
            ("budget", spec.budget.is_some(), goes),
            ("transitions", spec.transitions.is_some(), goes),
            ("outcome", spec.outcome.is_some(), kind == Kind::Final),
        ];
        for (field, _, _) in rows.iter().filter(|(_, given, fits)| *given && !*fits) {
            let message = match *field {
                "as" => "`as` names the item of a `foreach`, and there is none".to_owned(),
                _ => format!("a state of kind `{kind}` takes no `{field}`"),
            };
            self.findings.add(Code::P005, join(path, field), message);
        }
        if kind == Kind::Fixed && spec.action.is_none() && spec.foreach.is_none() {
            let message = "a state of kind `fixed` needs an `action`, or a `foreach` to step through";
            self.findings.add(Code::P005, path, message);
        }
    }

    fn tools(&mut self, spec: &StateSpec, path: &str) -> Option<BTreeSet<String>> {
        if !self.strict() {
            return self.host.tools.clone();
        }
        for (index, name) in spec.tools.iter().flatten().enumerate() {
            let path = format!("{path}.tools[{index}]");
            let Some(class) = self.tool(name, &path) else { continue };
            if spec.kind == Kind::Judge && class == EffectClass::Mutate {
                let message = format!("`{name}` edits, and `{}` is there to judge", spec.name);
                self.findings.add(Code::P033, path, message);
            }
        }
        Some(spec.tools.iter().flatten().cloned().collect())
    }

    /// P030: whether there is such a tool, and the host allows it.
    fn tool(&mut self, name: &str, path: &str) -> Option<EffectClass> {
        let Some(tool) = tools::find(name) else {
            let hint = did_you_mean(name, TOOLS.iter().map(|tool| tool.name));
            self.findings.add(Code::P030, path, format!("there is no tool `{name}`{hint}"));
            return None;
        };
        if self.host.tools.as_ref().is_some_and(|allowed| !allowed.contains(name)) {
            self.findings.add(Code::P030, path, format!("the tool `{name}` is not allowed here"));
            return None;
        }
        Some(tool.class)
    }

    fn action(&mut self, spec: &ActionSpec, path: &str) -> Action {
        let args: BTreeMap<String, Argument> = spec
            .args
            .iter()
            .map(|(name, value)| {
                let path = format!("{path}.args.{name}");
                (name.clone(), Argument::new(value, self.bound, &self.aliases, &path, self.findings))
            })
            .collect();
        let known = self.tool(&spec.tool, &join(path, "tool")).is_some();
        if let Some(tool) = tools::find(&spec.tool).filter(|_| known && !self.findings.has_errors()) {
            // Whatever the values come to, the shape must be right.
            let sample = self.aliases.keys().map(|alias| (alias.clone(), sample_item())).collect();
            let fields: serde_json::Map<String, serde_json::Value> =
                args.iter().map(|(name, arg)| (name.clone(), arg.render(&sample))).collect();
            let call = ToolCall {
                id: String::new(),
                name: spec.tool.clone(),
                arguments: serde_json::Value::Object(fields).to_string(),
                extra: serde_json::Map::new(),
            };
            if let Err(fault) = tool.check(&call) {
                self.findings.add(Code::P030, join(path, "args"), fault.message);
            }
        }
        Action { tool: spec.tool.clone(), args }
    }

    /// P031 and P001: the state's checks, the default ones before its own where it may edit.
    fn checks(&mut self, spec: &StateSpec, tools: Option<&BTreeSet<String>>, path: &str) -> Vec<Check> {
        let mutates = |name: &str| tools::find(name).is_some_and(|tool| tool.class == EffectClass::Mutate);
        let edits =
            spec.kind == Kind::Task && tools.is_some_and(|tools| tools.iter().any(|name| mutates(name)));
        let document = self.document;
        let mut checks = Vec::new();
        let first = document.states.first().is_some_and(|first| std::ptr::eq(first, spec));
        let mut read = |builder: &mut Self, specs: &[CheckSpec], path: &str, silent: bool, keep: bool| {
            for (index, spec) in specs.iter().enumerate() {
                let (code, message) = match Check::read(&spec.0) {
                    Ok(check) => {
                        if keep {
                            checks.push(check);
                        }
                        continue;
                    }
                    Err(Wrong::Name(message)) => (Code::P031, message),
                    Err(Wrong::Form(message)) => (Code::P001, message),
                };
                if !silent {
                    builder.findings.add(code, format!("{path}[{index}]"), message);
                }
            }
        };
        // Said once, not once a state.
        read(self, &document.defaults.checks, "defaults.checks", !first, edits);
        read(self, spec.checks.as_deref().unwrap_or_default(), &join(path, "checks"), false, true);
        checks
    }

    /// P040 and P001: whether the budgets add up.
    fn budgets(&mut self) {
        let document = self.document;
        for (index, state) in document.states.iter().enumerate() {
            let path = format!("states[{index}].budget");
            let Some(budget) = &state.budget else { continue };
            self.amounts(budget, &path);
            if budget.reserve.is_some() {
                self.findings.add(Code::P040, join(&path, "reserve"), "only a whole run has a reserve");
            }
        }
        let Some(whole) = &document.budget else { return };
        self.amounts(whole, "budget");
        type Amount = fn(&BudgetSpec) -> Option<f64>;
        let rows: [(&str, Amount); 7] = [
            ("time_seconds", |b| b.time_seconds.map(|n| n as f64)),
            ("max_iterations", |b| b.max_iterations.map(|n| n as f64)),
            ("max_branches", |b| b.max_branches.map(|n| n as f64)),
            ("max_model_calls", |b| b.max_model_calls.map(|n| n as f64)),
            ("max_tokens", |b| b.max_tokens.map(|n| n as f64)),
            ("max_cost_usd", |b| b.max_cost_usd),
            ("max_renders", |b| b.max_renders.map(|n| n as f64)),
        ];
        for (name, amount) in rows {
            let sum: f64 = document.states.iter().filter_map(|s| amount(s.budget.as_ref()?)).sum();
            if let Some(cap) = amount(whole).filter(|cap| sum > *cap) {
                let message = format!("the states' own budgets come to {sum}, more than the run's {cap}");
                self.findings.add(Code::P040, format!("budget.{name}"), message);
            }
        }
        let reserve = whole.reserve.unwrap_or_default();
        let pairs = [
            (whole.time_seconds, reserve.time_seconds, "time_seconds"),
            (whole.max_model_calls, reserve.model_calls, "model_calls"),
            (whole.max_renders, reserve.renders, "renders"),
        ];
        for (_, _, name) in pairs.iter().filter(|(cap, kept, _)| cap.is_some_and(|cap| *kept >= cap)) {
            let message = format!("the reserve of `{name}` leaves nothing for the work");
            self.findings.add(Code::P040, format!("budget.reserve.{name}"), message);
        }
        let closing =
            document.states.iter().any(|s| s.uses_reserve && matches!(s.kind, Kind::Task | Kind::Judge));
        if closing && (reserve.model_calls == 0 || reserve.time_seconds == 0) {
            let message = "the wrap-up asks the model, and the reserve keeps no `model_calls` or no `time_seconds` for it";
            self.findings.add(Code::P040, "budget.reserve", message);
        }
    }

    fn amounts(&mut self, budget: &BudgetSpec, path: &str) {
        let whole = [
            budget.time_seconds,
            budget.max_iterations,
            budget.max_branches,
            budget.max_model_calls,
            budget.max_tokens,
            budget.max_renders,
        ];
        if whole.contains(&Some(0)) || budget.max_cost_usd.is_some_and(|cost| cost <= 0.0) {
            self.findings.add(Code::P001, path, "a cap of nothing: leave it out, or give a positive amount");
        }
    }

    /// P032 and P001: the second opinion.
    fn referee(&mut self) {
        let Some(spec) = &self.document.referee else { return };
        if let Some(orders) = spec.orders.filter(|orders| !(1..=2).contains(orders)) {
            self.findings.add(Code::P001, "referee.orders", format!("{orders} is not in 1..2"));
        }
        let working = self.host.model.as_ref().or(self.document.model.as_ref());
        if let Some(model) = spec.model.as_ref().filter(|model| working == Some(*model)) {
            let message = format!("`{model}` would judge its own work: name another model");
            self.findings.add(Code::P032, "referee.model", message);
        }
    }
}

/// An item as a loop may bring it.
fn sample_item() -> Item {
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    Item::from([field("", "tone"), field("name", "tone"), field("branch", "branch_b_tone")])
}
