//! One step of a run.

use super::{Brief, Command, EndKind, Ending, Event, MAX_RETURNS, MAX_SAME_FAILURES, MAX_SILENT, Phase, Run};
use crate::budget::{Amounts, Stage};
use crate::protocol::checks::{Measured, Numbers, Report};
use crate::protocol::finding::Dialect;
use crate::protocol::model::{Operand, Protocol, State, StateId, Target};
use crate::protocol::rules::{Ruling, tighten};
use crate::protocol::schema::{BudgetSpec, By, FinalOutcome, Flag, Kind, OnFail, Outcome, Output, Validator};
use crate::transcript::HeadState;

/// How a visit came out, and what the next attempt should know.
type Came = Option<(Outcome, String)>;

pub(super) fn begin(protocol: &Protocol, run: Run) -> (Run, Vec<Command>) {
    let mut step = Step { protocol, run, commands: Vec::new() };
    let came = step.enter(protocol.initial);
    step.settle(came);
    (step.run, step.commands)
}

pub(super) fn step(protocol: &Protocol, run: Run, event: Event) -> (Run, Vec<Command>) {
    if run.ending.is_some() {
        return (run, Vec::new());
    }
    let mut step = Step { protocol, run, commands: Vec::new() };
    step.run.events += 1;
    let moves = matches!(event, Event::ToolAsked { .. } | Event::Spoke);
    step.run.steps += u32::from(moves);
    let over = step.out_of_steps();
    // A call that is one too many is not made; anything else is heard, and then it is over.
    let asked = matches!(event, Event::ToolAsked { .. });
    let came = if asked && over.is_some() { None } else { step.handle(event) };
    let came = came.or_else(|| over.filter(|_| step.run.ending.is_none()).inspect(|_| step.take_no_step()));
    step.settle(came);
    (step.run, step.commands)
}

fn came(outcome: Outcome, why: impl Into<String>) -> Came {
    Some((outcome, why.into()))
}

struct Step<'a> {
    protocol: &'a Protocol,
    run: Run,
    commands: Vec<Command>,
}

impl<'a> Step<'a> {
    fn state(&self) -> Option<&'a State> {
        self.protocol.state(self.run.state)
    }

    fn name(&self) -> &'a str {
        self.state().map_or("", |state| state.name.as_str())
    }

    fn note(&mut self, text: impl Into<String>) -> Came {
        self.commands.push(Command::Note { text: text.into() });
        None
    }

    fn handle(&mut self, event: Event) -> Came {
        match (self.run.phase, event) {
            (_, Event::Spent { amounts, ms }) => self.spent(amounts, ms),
            (_, Event::Left { left }) => {
                self.run.left = left;
                None
            }
            (_, Event::CapFired { cap }) => {
                let reason = format!("the {cap} cap has fired");
                self.close(EndKind::Budget, reason)
            }
            (_, Event::Stop { now: true }) => self.finish(EndKind::Cancelled, "stopped at once"),
            (_, Event::Stop { now: false }) if self.run.stage == Stage::WrapUp => {
                self.note("the wrap-up is under way already")
            }
            (_, Event::Stop { now: false }) => self.close(EndKind::Cancelled, "stopped by a person".into()),
            (_, Event::Broken { message }) => self.finish(EndKind::Broken, message),
            (Phase::Working, Event::ToolAsked { tool, args }) => self.asked(tool, args),
            (Phase::Working, Event::ToolReturned { tool, args, ok, head }) => {
                self.returned(tool, args, ok, head)
            }
            (Phase::Working, Event::Spoke) => {
                self.run.silent += 1;
                match self.run.silent >= MAX_SILENT && self.detects() {
                    true => came(Outcome::Fail, "you replied without calling a tool, again and again"),
                    false => None,
                }
            }
            (Phase::Working, Event::Finished { fields }) => self.finished(fields),
            (Phase::Acting, Event::ToolReturned { ok, head, tool, .. }) => {
                self.moved(head);
                match ok {
                    true => self.validate(),
                    false => came(Outcome::Error, format!("`{tool}` failed")),
                }
            }
            (Phase::Checking, Event::Measured(measured)) => self.measured(*measured),
            (Phase::Refereeing, Event::Ruled(ruling)) => self.ruled(ruling),
            (Phase::Refereeing, Event::Failed { .. }) => self.ruled(Ruling::Unavailable),
            (Phase::Comparing, Event::Judged { verdict }) => {
                let passed = self.run.report.as_ref().is_none_or(Report::passed);
                came(verdict.tightened(passed).outcome(), "")
            }
            (Phase::Comparing, Event::Failed { message }) => came(Outcome::Unavailable, message),
            (Phase::Checking, Event::Failed { message }) => match self.state().map(|s| s.kind) {
                Some(Kind::Referee) => came(Outcome::Unavailable, message),
                _ => came(Outcome::Error, message),
            },
            (Phase::Working | Phase::Acting, Event::Failed { message }) => came(Outcome::Error, message),
            (Phase::Asking, Event::Answered { accepted: true }) => came(Outcome::Pass, ""),
            (Phase::Asking, Event::Answered { accepted: false }) => came(Outcome::Declined, "declined"),
            (phase, _) => {
                self.note(format!("an event that does not belong here: `{}` is {phase:?}", self.name()))
            }
        }
    }

    /// Whether the attempt has taken more than it may.
    fn out_of_steps(&self) -> Came {
        let state = self.state()?;
        let (steps, events) = (state.max_steps, state.max_events());
        let why = match (self.run.steps > steps, self.run.events > events) {
            (true, _) => format!("{steps} calls and replies are all that an attempt may take"),
            (false, true) => format!("{events} events, and the attempt came to no end"),
            (false, false) => return None,
        };
        came(if state.kind == Kind::Referee { Outcome::Exhausted } else { Outcome::Fail }, why)
    }

    /// Forgets what an attempt that is over has just asked for.
    fn take_no_step(&mut self) {
        let said =
            |c: &Command| matches!(c, Command::Note { .. } | Command::Refuse { .. } | Command::Remark { .. });
        self.commands.retain(said);
    }

    /// Whether loops are looked for: the original format does not.
    fn detects(&self) -> bool {
        self.protocol.dialect == Dialect::Strict
    }

    fn asked(&mut self, tool: String, args: String) -> Came {
        self.run.silent = 0;
        match self.run.allows(self.protocol, &tool) {
            Ok(()) => {
                *self.run.open.entry((tool.clone(), args.clone())).or_default() += 1;
                self.commands.push(Command::RunTool { tool, args });
            }
            Err(fault) => self.commands.push(Command::Refuse { tool, fault }),
        }
        None
    }

    fn returned(&mut self, tool: String, args: String, ok: bool, head: Option<HeadState>) -> Came {
        let call = (tool, args);
        match self.run.open.get_mut(&call) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) => drop(self.run.open.remove(&call)),
            None => {
                // It may be late; where the photo stands is true all the same.
                self.moved(head);
                return self.note(format!("`{}` came back and was not under way", call.0));
            }
        }
        let returns = self.run.returns;
        self.moved(head);
        if !self.detects() {
            return None;
        }
        if self.run.returns > returns && self.run.returns >= MAX_RETURNS {
            return came(Outcome::Fail, "you came back to an edit that you had before, again and again");
        }
        if ok {
            return None;
        }
        let failures = self.run.failures.entry(call).or_default();
        *failures += 1;
        match *failures >= MAX_SAME_FAILURES {
            true => came(Outcome::Fail, "the same call failed twice: do something else"),
            false => None,
        }
    }

    /// The photo stands somewhere else.
    fn moved(&mut self, head: Option<HeadState>) {
        let Some(head) = head else { return };
        if head.state != self.run.head.state {
            // What was measured was another picture.
            (self.run.measured, self.run.report) = (None, None);
            if self.run.seen.insert(head.state.clone()) {
                // Something new: whatever came before was no circle.
                self.run.trail.clear();
            } else {
                self.run.returns += 1;
            }
        }
        self.run.head = head;
    }

    fn finished(&mut self, fields: Numbers) -> Came {
        if !self.run.open.is_empty() {
            return self.note("the attempt cannot be done while calls are under way");
        }
        let judgment = self.state().is_some_and(|state| state.output == Some(Output::Judgment));
        if judgment && !fields.contains_key("judged_score") {
            return came(Outcome::Fail, "record a judgment before you are done");
        }
        self.run.fields.extend(fields);
        self.validate()
    }

    /// Checks first, because they cost no opinion.
    fn validate(&mut self) -> Came {
        let state = self.state()?;
        if state.checks.is_empty() {
            return self.after_checks();
        }
        self.run.phase = Phase::Checking;
        self.commands.push(Command::Measure { checks: state.checks.clone() });
        None
    }

    fn measured(&mut self, measured: Measured) -> Came {
        let state = self.state()?;
        let report = Report::of(&state.checks, &measured);
        let (passed, misses) = (report.passed(), report.misses());
        self.run.measured = Some(measured);
        self.run.report = Some(report);
        match (passed, state.kind) {
            (true, _) => self.after_checks(),
            // A referee that may only tighten need not be asked.
            (false, Kind::Referee) => came(Outcome::Worse, misses),
            (false, _) => came(Outcome::Fail, misses),
        }
    }

    fn after_checks(&mut self) -> Came {
        let state = self.state()?;
        let works = matches!(state.kind, Kind::Task | Kind::Judge);
        if state.kind == Kind::Referee {
            let referee = &self.protocol.referee;
            let criteria = state.criteria.render(&self.run.items);
            self.run.phase = Phase::Comparing;
            self.run.referee_calls += u32::from(referee.orders);
            self.commands.push(Command::Compare {
                against: referee.against,
                orders: referee.orders,
                criteria,
            });
            return None;
        }
        if works && state.validated_by == Validator::Referee {
            let names = || self.protocol.names().into_iter().map(str::to_owned).collect();
            let legal = if self.protocol.dialect == Dialect::Compat { names() } else { Vec::new() };
            let criteria = state.criteria.render(&self.run.items);
            self.run.phase = Phase::Refereeing;
            self.run.referee_calls += 1;
            self.commands.push(Command::AskReferee { criteria, legal });
            return None;
        }
        self.gate()
    }

    fn ruled(&mut self, ruling: Ruling) -> Came {
        if self.protocol.dialect == Dialect::Compat {
            return self.ruled_next(ruling);
        }
        // Only passed checks lead here; the rule is asked all the same.
        let checks = self.run.report.as_ref().is_none_or(Report::passed) || self.no_checks();
        let (opinion, feedback) = match ruling {
            Ruling::Passed { .. } => (Some(true), String::new()),
            Ruling::Failed { feedback } => (Some(false), feedback),
            Ruling::Unavailable => {
                self.commands.push(Command::Remark { flag: Flag::Unrefereed });
                (None, String::new())
            }
        };
        match tighten(checks, opinion) {
            true => self.gate(),
            false => came(Outcome::Fail, feedback),
        }
    }

    fn no_checks(&self) -> bool {
        self.state().is_some_and(|state| state.checks.is_empty())
    }

    /// In the original format the referee of a passed attempt names the next state.
    fn ruled_next(&mut self, ruling: Ruling) -> Came {
        let next = match ruling {
            Ruling::Unavailable => return came(Outcome::Error, "the referee gave no answer"),
            Ruling::Failed { feedback } => {
                self.run.misnamed = false;
                return came(Outcome::Fail, feedback);
            }
            Ruling::Passed { next } => next,
        };
        // Some models write the word.
        let next = next.filter(|name| name != "null" || self.protocol.find("null").is_some());
        let Some(name) = next else {
            return self
                .finish(EndKind::Completed, format!("the referee ended the run in `{}`", self.name()));
        };
        match self.protocol.find(&name) {
            Some(id) => {
                self.run.attempting = false;
                self.run.transitions += 1;
                self.enter(id)
            }
            None => {
                self.run.misnamed = true;
                let legal = self.protocol.names().join(", ");
                came(
                    Outcome::Fail,
                    format!("there is no state `{name}`: the next state is one of {legal}, or null"),
                )
            }
        }
    }

    fn gate(&mut self) -> Came {
        if self.state().is_some_and(|state| state.gate.is_some()) {
            self.run.phase = Phase::Asking;
            self.commands.push(Command::AskPerson { state: self.name().to_owned() });
            return None;
        }
        came(Outcome::Pass, "")
    }

    fn spent(&mut self, amounts: Amounts, ms: u64) -> Came {
        let spent = &mut self.run.spent;
        for (sum, more) in [
            (&mut spent.iterations, amounts.iterations),
            (&mut spent.branches, amounts.branches),
            (&mut spent.renders, amounts.renders),
            (&mut spent.model_calls, amounts.model_calls),
            (&mut spent.tokens, amounts.tokens),
            (&mut spent.cost_micro_usd, amounts.cost_micro_usd),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.run.spent_ms = self.run.spent_ms.saturating_add(ms);
        let budget = self.state()?.budget.as_ref()?;
        let cap = over(budget, &self.run.spent, self.run.spent_ms)?;
        came(Outcome::Exhausted, format!("the state has used up its {cap}"))
    }

    /// A cap, a circle or a person ends the work: the way to the wrap-up.
    fn close(&mut self, kind: EndKind, reason: String) -> Came {
        if self.run.cause.is_none() {
            self.run.cause = Some((kind, reason.clone()));
        }
        came(Outcome::Budget, reason)
    }

    /// Follows transitions until something has to be waited for.
    fn settle(&mut self, came: Came) {
        let mut came = came;
        while let Some((outcome, why)) = came.take().filter(|_| self.run.ending.is_none()) {
            came = self.leave(outcome, &why);
        }
    }

    /// Where the present state goes.
    fn leave(&mut self, outcome: Outcome, why: &str) -> Came {
        let state = self.state()?;
        let outcome = match outcome {
            Outcome::Budget if state.uses_reserve => Outcome::Exhausted,
            outcome => outcome,
        };
        self.take_back(state, outcome);
        let holds = |guard: &crate::protocol::model::Guard| guard.holds(&|o| self.number(o)).unwrap_or(false);
        let found = state.transitions.iter().find(|t| t.on == outcome && t.when.as_ref().is_none_or(holds));
        let Some(transition) = found else {
            let reason = format!("`{}` says nothing about `{outcome}`", state.name);
            return self.finish(EndKind::ProtocolError, reason);
        };
        if let Some(flag) = transition.flag {
            self.commands.push(Command::Remark { flag });
        }
        match transition.to {
            Target::Retry if self.run.attempt < state.max_attempts => {
                self.run.attempt += 1;
                self.attempt(Some(why.to_owned()).filter(|why| !why.is_empty()))
            }
            Target::Retry => came(Outcome::Exhausted, why),
            Target::End => self.ended_on(outcome, why),
            Target::State(id) => {
                self.run.attempting = false;
                self.run.transitions += 1;
                self.enter(id)
            }
        }
    }

    /// A failed attempt's edits, and those of one that could not be checked, are taken back where the state
    /// says so.
    fn take_back(&mut self, state: &State, outcome: Outcome) {
        let unproven = matches!(
            outcome,
            Outcome::Fail | Outcome::Error | Outcome::Exhausted | Outcome::Budget | Outcome::Declined
        );
        let moved = self.run.head != self.run.entry;
        if unproven && moved && self.run.attempting && state.on_fail == OnFail::Rollback {
            self.commands.push(Command::Rollback { to: self.run.entry.clone() });
            self.run.head = self.run.entry.clone();
            (self.run.measured, self.run.report) = (None, None);
        }
    }

    /// Enters a state; what comes out at once (an empty list, a limit) is followed by the caller.
    fn enter(&mut self, id: StateId) -> Came {
        let state = self.protocol.state(id)?;
        if state.kind == Kind::Final {
            self.stand(id);
            let kind = match state.outcome {
                FinalOutcome::Completed => EndKind::Completed,
                FinalOutcome::Failed => EndKind::Failed,
            };
            return self.finish(kind, format!("the run came to `{}`", state.name));
        }
        let closing = self.run.stage == Stage::WrapUp || self.run.cause.is_some();
        if closing && (!state.uses_reserve || self.run.closed.contains(&id)) {
            let reason = format!("the wrap-up led back to `{}`", state.name);
            return self.finish(EndKind::Failed, reason);
        }
        if state.uses_reserve {
            self.run.stage = Stage::WrapUp;
            self.run.closed.insert(id);
        } else if self.run.transitions >= self.protocol.max_transitions {
            let reason = format!("{} transitions were made, which is all there may be", self.run.transitions);
            return self.close(EndKind::Transitions, reason);
        } else if self.circles(id) {
            let names = self.run.trail.iter().filter_map(|&id| Some(self.protocol.state(id)?.name.as_str()));
            let names: Vec<&str> = names.collect();
            return self.close(EndKind::Loop, format!("{} changed nothing", names.join(" → ")));
        }
        self.stand(id);
        let visited = self.run.visits.get(id).copied().unwrap_or(0);
        if state.max_visits.is_some_and(|most| visited >= most) {
            return came(
                Outcome::Exhausted,
                format!("`{}` was visited {visited} times, which is all it may", state.name),
            );
        }
        if let Some(foreach) = &state.foreach {
            let cursor = self.run.cursors.get_mut(id)?;
            let Some(item) = foreach.items.get(*cursor) else {
                self.run.items.remove(&foreach.alias);
                return came(Outcome::Done, "");
            };
            *cursor += 1;
            self.run.items.insert(foreach.alias.clone(), item.clone());
            self.run.visits.fill(0);
            self.run.fields.clear();
            (self.run.measured, self.run.report) = (None, None);
            self.run.trail.clear();
        }
        if let Some(visits) = self.run.visits.get_mut(id) {
            *visits += 1;
        }
        self.run.attempt = 1;
        (self.run.spent, self.run.spent_ms) = (Amounts::default(), 0);
        self.attempt(None)
    }

    /// The run stands in a state, with no attempt made in it yet.
    fn stand(&mut self, id: StateId) {
        self.run.state = id;
        self.run.attempt = 0;
        (self.run.steps, self.run.events) = (0, 0);
    }

    /// Whether entering a state goes A, B, A, B with nothing new in between.
    fn circles(&mut self, id: StateId) -> bool {
        self.run.trail.push(id);
        let from = self.run.trail.len().saturating_sub(4);
        self.run.trail.drain(..from);
        let circle = matches!(self.run.trail.as_slice(), [a, b, c, d] if a == c && b == d && a != b);
        circle && self.detects()
    }

    /// Begins an attempt in the present state.
    fn attempt(&mut self, feedback: Option<String>) -> Came {
        let state = self.state()?;
        let run = &mut self.run;
        (run.steps, run.events) = (0, 0);
        run.open.clear();
        run.failures.clear();
        run.silent = 0;
        run.returns = 0;
        run.seen.clear();
        run.seen.insert(run.head.state.clone());
        run.entry = run.head.clone();
        run.attempting = true;
        match state.kind {
            Kind::Task | Kind::Judge => {
                run.phase = Phase::Working;
                let brief = Brief {
                    state: state.name.clone(),
                    attempt: run.attempt,
                    attempts: state.max_attempts,
                    visit: run.visits(run.state),
                    instructions: state.instructions.render(&run.items),
                    criteria: state.criteria.render(&run.items),
                    tools: state.tools.clone(),
                    judgment: state.output == Some(Output::Judgment),
                    feedback,
                };
                self.commands.push(Command::Work(Box::new(brief)));
                None
            }
            Kind::Fixed => {
                let Some(action) = &state.action else { return self.validate() };
                run.phase = Phase::Acting;
                let args = action.args.iter().map(|(name, arg)| (name.clone(), arg.render(&run.items)));
                let args = serde_json::Value::Object(args.collect());
                self.commands.push(Command::Act { tool: action.tool.clone(), args });
                None
            }
            Kind::Referee => self.validate(),
            Kind::Final => None,
        }
    }

    /// The number that a condition asks for.
    fn number(&self, operand: &Operand) -> Option<f64> {
        let run = &self.run;
        match operand {
            Operand::Metric(name, vs) => run.measured.as_ref()?.metric(name, *vs, By::Delta),
            Operand::Field(name) => run.fields.get(name).copied(),
            Operand::Attempts => Some(run.attempt.into()),
            Operand::Transitions => Some(run.transitions.into()),
            Operand::ItemsLeft => {
                let loops = self.protocol.states.iter().zip(&run.cursors);
                let left =
                    loops.filter_map(|(s, at)| Some(s.foreach.as_ref()?.items.len().saturating_sub(*at)));
                Some(left.sum::<usize>() as f64)
            }
            Operand::Visits(id) => Some(run.visits(*id).into()),
            Operand::Budget(name) => run.left.get(name).copied(),
        }
    }

    /// The run ends by a transition to the end.
    fn ended_on(&mut self, outcome: Outcome, why: &str) -> Came {
        let (kind, words) = match outcome {
            Outcome::Exhausted if self.run.misnamed => (EndKind::ProtocolError, "the attempts were used up"),
            Outcome::Exhausted => (EndKind::Exhausted, "the attempts were used up"),
            Outcome::Budget => (EndKind::Budget, "a cap fired"),
            Outcome::Declined => (EndKind::Declined, "it was declined"),
            Outcome::Fail | Outcome::Error => (EndKind::Failed, "an attempt failed"),
            _ => (EndKind::Completed, "the protocol ends there"),
        };
        let colon = if why.is_empty() { "" } else { ": " };
        self.finish(kind, format!("{words} in `{}`{colon}{why}", self.name()))
    }

    /// Ends the run. What brought the wrap-up on is the reason, if there was such a thing.
    fn finish(&mut self, kind: EndKind, reason: impl Into<String>) -> Came {
        let forced = matches!(kind, EndKind::Broken)
            || (kind == EndKind::Cancelled && self.run.cause.as_ref().is_none_or(|(k, _)| *k != kind));
        let (kind, reason) = match self.run.cause.take() {
            Some((kind, cause)) if !forced => (kind, cause),
            _ => (kind, reason.into()),
        };
        let ending = Ending { kind, reason, wrapped_up: !self.run.closed.is_empty() };
        self.run.phase = Phase::Ended;
        self.run.attempting = false;
        self.run.ending = Some(ending.clone());
        self.commands.push(Command::Finish(ending));
        None
    }
}

/// The cap of a state that is passed.
fn over(budget: &BudgetSpec, spent: &Amounts, ms: u64) -> Option<&'static str> {
    let passed = |cap: Option<u64>, used: u64| cap.is_some_and(|cap| used >= cap);
    let cost = |usd: f64| spent.cost_micro_usd as f64 >= usd * 1e6;
    [
        ("time", passed(budget.time_seconds, ms / 1_000)),
        ("iterations", passed(budget.max_iterations, spent.iterations)),
        ("branches", passed(budget.max_branches, spent.branches)),
        ("model calls", passed(budget.max_model_calls, spent.model_calls)),
        ("tokens", passed(budget.max_tokens, spent.tokens)),
        ("cost", budget.max_cost_usd.is_some_and(cost)),
        ("renders", passed(budget.max_renders, spent.renders)),
    ]
    .into_iter()
    .find_map(|(name, over)| over.then_some(name))
}
