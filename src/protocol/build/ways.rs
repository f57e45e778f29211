//! Where the states go: targets, conditions, and what the defaults fill in.

use super::{BUDGET_NAMES, Builder, COUNTERS, FIELDS};
use crate::protocol::checks::known_metric;
use crate::protocol::finding::Code;
use crate::protocol::model::{Guard, Operand, Target, Transition};
use crate::protocol::schema::{GuardSpec, Kind, Outcome, StateSpec, TransitionSpec};
use crate::protocol::source::join;
use base::hint::did_you_mean;

/// The most transitions of a state.
const MAX_TRANSITIONS: usize = 50;

impl Builder<'_> {
    /// P010: the other end of a transition.
    pub(super) fn target(&mut self, name: Option<&str>, path: &str) -> Target {
        match name {
            None | Some("@done") => Target::End,
            Some("retry") => Target::Retry,
            Some(name) => match self.document.states.iter().position(|state| state.name == name) {
                Some(id) => Target::State(id),
                None => {
                    let hint = did_you_mean(name, self.state_names().chain(["@done", "retry"]));
                    self.findings.add(Code::P010, path, format!("the state `{name}` is not declared{hint}"));
                    Target::End
                }
            },
        }
    }

    pub(super) fn transitions(&mut self, spec: &StateSpec, path: &str) -> Vec<Transition> {
        if !self.strict() {
            return compat_transitions();
        }
        if spec.kind == Kind::Final {
            return Vec::new();
        }
        let written = spec.transitions.as_deref().unwrap_or_default();
        if written.len() > MAX_TRANSITIONS {
            let message = format!("{} transitions are more than {MAX_TRANSITIONS}", written.len());
            self.findings.add(Code::P001, join(path, "transitions"), message);
        }
        let possible = possible(spec);
        let mut transitions: Vec<Transition> = Vec::new();
        for (index, one) in written.iter().enumerate() {
            let path = format!("{path}.transitions[{index}]");
            self.fits(one, spec, &possible, &path);
            let earlier = transitions.iter().find(|t| t.on == one.on && t.when.is_none());
            // A condition that cannot be read never holds; that it is wrong was said.
            let read =
                |guard: &GuardSpec| self.guard(guard, &join(&path, "when")).unwrap_or(Guard::Any(Vec::new()));
            let when = one.when.as_ref().map(read);
            let same = transitions.iter().any(|t| t.on == one.on && t.when.is_some() && t.when == when);
            if earlier.is_some() || same {
                let why = if same { "has the same condition" } else { "has no condition" };
                let message = format!("it is never taken: an earlier transition on `{}` {why}", one.on);
                self.findings.add(Code::P016, &path, message);
            }
            let to = self.target(one.to.as_deref(), &join(&path, "to"));
            transitions.push(Transition { on: one.on, when, to, flag: one.flag, written: true });
        }
        self.fill_in(spec, &possible, &mut transitions, path);
        transitions
    }

    /// P018: whether the state can come out so, and may go there then.
    fn fits(&mut self, one: &TransitionSpec, spec: &StateSpec, possible: &[Possible], path: &str) {
        if !possible.iter().any(|p| p.outcome == one.on) {
            let legal: Vec<&str> = possible.iter().map(|p| p.outcome.as_str()).collect();
            let message =
                format!("`{}` cannot come out as `{}`, only as {}", spec.name, one.on, legal.join(", "));
            self.findings.add(Code::P018, join(path, "on"), message);
        } else if one.to.as_deref() == Some("retry") && !matches!(one.on, Outcome::Fail | Outcome::Error) {
            let message = format!("only `fail` and `error` are tried again, not `{}`", one.on);
            self.findings.add(Code::P018, join(path, "to"), message);
        }
    }

    /// P015: adds what the defaults say, and says where nothing does.
    fn fill_in(
        &mut self,
        spec: &StateSpec,
        possible: &[Possible],
        transitions: &mut Vec<Transition>,
        path: &str,
    ) {
        let defaults = &self.document.defaults;
        let mut missing = Vec::new();
        for Possible { outcome, fallback } in possible {
            let own = transitions.iter().filter(|t| t.on == *outcome);
            if own.clone().any(|t| t.when.is_none()) {
                continue;
            }
            let named = |name: &Option<String>| name.as_ref().map(|name| self.lookup(name));
            let to = match fallback {
                Fallback::None => None,
                Fallback::Retry => Some(Target::Retry),
                Fallback::OnError => Some(named(&defaults.on_error).unwrap_or(Target::Retry)),
                Fallback::OnExhausted => named(&defaults.on_exhausted),
                Fallback::OnBudget => named(&defaults.on_budget),
                Fallback::Like(other) => {
                    let like: Vec<Transition> =
                        transitions.iter().filter(|t| t.on == *other).cloned().collect();
                    let on = |t: Transition| Transition { on: *outcome, written: false, ..t };
                    transitions.extend(like.into_iter().map(on));
                    continue;
                }
            };
            match to {
                Some(to) => {
                    transitions.push(Transition { on: *outcome, when: None, to, flag: None, written: false });
                }
                None => missing.push((*outcome, own.count() > 0)),
            }
        }
        if !missing.is_empty() {
            let missing: Vec<String> = missing
                .into_iter()
                .map(|(outcome, guarded)| {
                    let why = if guarded { " (every transition on it has a condition)" } else { "" };
                    format!("`{outcome}`{why}")
                })
                .collect();
            let message = format!("`{}` says nothing about {}", spec.name, missing.join(", "));
            self.findings.add(Code::P015, path, message);
        }
    }

    /// A default target, whose name was looked at before.
    fn lookup(&self, name: &str) -> Target {
        match (name, self.document.states.iter().position(|state| state.name == name)) {
            ("retry", _) => Target::Retry,
            (_, Some(id)) => Target::State(id),
            (_, None) => Target::End,
        }
    }

    /// P019, P001: a condition.
    fn guard(&mut self, spec: &GuardSpec, path: &str) -> Option<Guard> {
        let forms = [
            spec.metric.is_some(),
            spec.field.is_some(),
            spec.counter.is_some(),
            spec.budget.is_some(),
            spec.all.is_some(),
            spec.any.is_some(),
            spec.not.is_some(),
        ];
        let compares = forms[..4].contains(&true);
        let compared = (spec.op.is_some(), spec.value.is_some()) == (compares, compares);
        if forms.iter().filter(|given| **given).count() != 1 || !compared || (spec.vs.is_some() && !forms[0])
        {
            let message = "a condition is one of `metric`, `field`, `counter` and `budget` with `op` and `value`, \
                           or one of `all`, `any` and `not`";
            self.findings.add(Code::P001, path, message);
            return None;
        }
        let many = |builder: &mut Self, guards: &[GuardSpec], field: &str| -> Option<Vec<Guard>> {
            if guards.is_empty() {
                builder.findings.add(Code::P001, join(path, field), "there is no condition in it");
                return None;
            }
            let one = |(i, guard): (usize, &GuardSpec)| builder.guard(guard, &format!("{path}.{field}[{i}]"));
            guards.iter().enumerate().map(one).collect()
        };
        if let Some(guards) = &spec.all {
            return many(self, guards, "all").map(Guard::All);
        }
        if let Some(guards) = &spec.any {
            return many(self, guards, "any").map(Guard::Any);
        }
        if let Some(guard) = &spec.not {
            return self.guard(guard, &join(path, "not")).map(|guard| Guard::Not(Box::new(guard)));
        }
        let operand =
            self.operand(spec).map_err(|(code, message)| self.findings.add(code, path, message)).ok()?;
        Some(Guard::Compare(operand, spec.op?, spec.value?))
    }

    fn operand(&self, spec: &GuardSpec) -> Result<Operand, (Code, String)> {
        let unknown = |what: &str, name: &str, known: &[&str]| {
            let hint = did_you_mean(name, known.iter().copied());
            Err((Code::P019, format!("there is no {what} `{name}`{hint}; there is {}", known.join(", "))))
        };
        if let Some(name) = &spec.metric {
            known_metric(name).map_err(|message| (Code::P031, message))?;
            return Ok(Operand::Metric(name.clone(), spec.vs));
        }
        if let Some(name) = &spec.field {
            return match FIELDS.contains(&name.as_str()) {
                true => Ok(Operand::Field(name.clone())),
                false => unknown("field", name, &FIELDS),
            };
        }
        if let Some(name) = &spec.budget {
            return match BUDGET_NAMES.contains(&name.as_str()) {
                true => Ok(Operand::Budget(name.clone())),
                false => unknown("cap", name, &BUDGET_NAMES),
            };
        }
        let name = spec.counter.as_deref().unwrap_or_default();
        if let Some(state) = name.strip_prefix("visits.") {
            return match self.document.states.iter().position(|s| s.name == state) {
                Some(id) => Ok(Operand::Visits(id)),
                None => unknown("state", state, &self.state_names().collect::<Vec<_>>()),
            };
        }
        match name {
            "attempts" => Ok(Operand::Attempts),
            "transitions" => Ok(Operand::Transitions),
            "items_left" => Ok(Operand::ItemsLeft),
            _ => unknown("counter", name, &[COUNTERS.as_slice(), &["visits.STATE"]].concat()),
        }
    }
}

/// What the original format does with everything but a pass, whose target its referee names.
fn compat_transitions() -> Vec<Transition> {
    let of = |(on, to)| Transition { on, when: None, to, flag: None, written: false };
    [
        (Outcome::Fail, Target::Retry),
        (Outcome::Error, Target::Retry),
        (Outcome::Exhausted, Target::End),
        (Outcome::Budget, Target::End),
    ]
    .map(of)
    .to_vec()
}

/// An outcome that a state can have, and what happens where the file says nothing.
struct Possible {
    outcome: Outcome,
    fallback: Fallback,
}

enum Fallback {
    /// The file has to say.
    None,
    Retry,
    OnError,
    OnExhausted,
    OnBudget,
    /// As on another outcome.
    Like(Outcome),
}

/// How a state can come out.
fn possible(spec: &StateSpec) -> Vec<Possible> {
    use Outcome::*;
    let mut found = match spec.kind {
        Kind::Final => Vec::new(),
        Kind::Referee => vec![
            (Better, Fallback::None),
            (Same, Fallback::None),
            (Worse, Fallback::None),
            (OffBrief, Fallback::Like(Worse)),
            (Unsure, Fallback::Like(Same)),
            (Unavailable, Fallback::None),
            (Exhausted, Fallback::OnExhausted),
        ],
        Kind::Task | Kind::Judge | Kind::Fixed => vec![
            (Pass, Fallback::None),
            (Fail, Fallback::Retry),
            (Error, Fallback::OnError),
            (Exhausted, Fallback::OnExhausted),
        ],
    };
    if spec.gate.is_some() {
        found.push((Declined, Fallback::None));
    }
    if spec.foreach.is_some() {
        found.push((Done, Fallback::None));
    }
    // In the wrap-up a cap that fires means exhausted: there is nowhere else to go.
    if spec.kind != Kind::Final && !spec.uses_reserve {
        found.push((Budget, Fallback::OnBudget));
    }
    found.into_iter().map(|(outcome, fallback)| Possible { outcome, fallback }).collect()
}
