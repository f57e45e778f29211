//! What follows from the shape of a protocol alone: which states are reached, and whether an end is.

use std::collections::BTreeSet;

use super::finding::{Code, Findings};
use super::model::{Guard, Operand, Protocol, State, StateId, Target};
use super::schema::{Kind, Op, Outcome};

/// The ways out of every state, and which states may end the run.
pub(super) struct Graph {
    pub next: Vec<BTreeSet<StateId>>,
    pub ends: Vec<bool>,
}

impl Graph {
    /// Of declared transitions.
    pub fn of(protocol: &Protocol) -> Self {
        let targets = |state: &State| -> Vec<Target> { state.transitions.iter().map(|t| t.to).collect() };
        let next = protocol.states.iter().map(|state| {
            let state_of = |target: Target| if let Target::State(id) = target { Some(id) } else { None };
            targets(state).into_iter().filter_map(state_of).collect()
        });
        let ends = |state: &State| state.kind == Kind::Final || targets(state).contains(&Target::End);
        Self { next: next.collect(), ends: protocol.states.iter().map(ends).collect() }
    }

    /// Everything that can be reached from a state, itself included.
    pub fn reach(&self, from: StateId) -> BTreeSet<StateId> {
        let mut found = BTreeSet::from([from]);
        let mut open = vec![from];
        while let Some(state) = open.pop() {
            for &next in self.next.get(state).into_iter().flatten() {
                if found.insert(next) {
                    open.push(next);
                }
            }
        }
        found
    }

    fn can_end(&self, from: StateId) -> bool {
        self.reach(from).iter().any(|&state| self.ends.get(state).copied().unwrap_or(false))
    }

    /// The states that lie on a cycle.
    pub fn cyclic(&self) -> Vec<StateId> {
        let back = |state: StateId| {
            self.next.get(state).into_iter().flatten().any(|&n| self.reach(n).contains(&state))
        };
        (0..self.next.len()).filter(|&state| back(state)).collect()
    }

    /// P011, P012 and P013.
    pub fn lint(&self, initial: StateId, names: &[&str], findings: &mut Findings) {
        let reached = self.reach(initial);
        let path = |state: StateId| format!("states[{state}]");
        let name = |state: StateId| names.get(state).copied().unwrap_or_default();
        for state in (0..names.len()).filter(|state| !reached.contains(state)) {
            let message = format!("nothing leads to `{}` from `{}`", name(state), name(initial));
            findings.add(Code::P011, path(state), message);
        }
        if !self.can_end(initial) {
            let message = format!("from `{}` no final state and no `@done` can be reached", name(initial));
            return findings.add(Code::P012, "initialState", message);
        }
        for &state in reached.iter().filter(|&&state| !self.can_end(state)) {
            let message = format!("whoever enters `{}` never comes to an end", name(state));
            findings.add(Code::P013, path(state), message);
        }
    }
}

/// P014: a cycle on which nothing counts down. Only a protocol without a limit of its own has to be looked
/// at, because the engine's own limit is no plan.
pub(super) fn unbounded(protocol: &Protocol, findings: &mut Findings) {
    let mut graph = Graph::of(protocol);
    for (id, (state, next)) in protocol.states.iter().zip(&mut graph.next).enumerate() {
        let endless = state.transitions.iter().filter(|t| {
            // Every visit but the one that finds the list empty takes an item; every visit but the one that is
            // refused counts against the state's own limit.
            let looped = state.foreach.is_none() || t.on == Outcome::Done;
            let limited = state.max_visits.is_none() || t.on == Outcome::Exhausted;
            looped && limited && !t.when.as_ref().is_some_and(|guard| counts_down(guard, id, t.to))
        });
        *next = endless.filter_map(|t| if let Target::State(id) = t.to { Some(id) } else { None }).collect();
    }
    let cyclic = graph.cyclic();
    let Some(&first) = cyclic.first() else { return };
    let names: Vec<String> =
        cyclic.iter().filter_map(|&s| protocol.state(s)).map(|s| format!("`{}`", s.name)).collect();
    let message = format!(
        "{} can go round for ever: give `maxIterations`, a `budget`, `maxVisits`, or a condition on a counter",
        names.join(", ")
    );
    findings.add(Code::P014, format!("states[{first}]"), message);
}

/// Whether the condition of a transition cannot hold for ever, because taking it makes a counter grow.
fn counts_down(guard: &Guard, from: StateId, to: Target) -> bool {
    let grows = |operand: &Operand| match operand {
        Operand::Transitions => true,
        Operand::Visits(state) => *state == from || to == Target::State(*state),
        _ => false,
    };
    match guard {
        Guard::Compare(operand, Op::Less | Op::AtMost | Op::Equal, _) => grows(operand),
        Guard::All(guards) => guards.iter().any(|guard| counts_down(guard, from, to)),
        Guard::Any(guards) => !guards.is_empty() && guards.iter().all(|guard| counts_down(guard, from, to)),
        _ => false,
    }
}

/// P041: once a cap has fired, only the reserve is left; a way back into the work would find nothing.
pub(super) fn wrap_up(protocol: &Protocol, findings: &mut Findings) {
    let closing = |target: Target| match target {
        Target::State(id) => protocol.state(id).is_none_or(|s| s.uses_reserve || s.kind == Kind::Final),
        Target::Retry | Target::End => true,
    };
    let name = |target: Target| match target {
        Target::State(id) => protocol.state(id).map_or("", |s| s.name.as_str()),
        _ => "",
    };
    for (index, state) in protocol.states.iter().enumerate() {
        let path = format!("states[{index}]");
        for transition in &state.transitions {
            let on_cap = transition.on == Outcome::Budget;
            if !(on_cap || state.uses_reserve) || closing(transition.to) {
                continue;
            }
            let from = if on_cap { "when a cap fires, `" } else { "the wrap-up state `" };
            let message = format!(
                "{from}{}` leads to `{}`, which does not use the reserve (`usesReserve`)",
                state.name,
                name(transition.to)
            );
            findings.add(Code::P041, &path, message);
            break;
        }
    }
    let mut graph = Graph::of(protocol);
    for (state, next) in protocol.states.iter().zip(&mut graph.next) {
        if !state.uses_reserve {
            next.clear();
        }
    }
    if let Some(&first) = graph.cyclic().first() {
        let name = protocol.state(first).map_or("", |s| s.name.as_str());
        let message = format!("the wrap-up goes round by `{name}`: each of its states is entered once");
        findings.add(Code::P041, format!("states[{first}]"), message);
    }
}
