//! The protocol's part of a session's state: the machine, and the commands that it is waiting for.
//!
//! It is folded from the same lines as the rest. A tool call, its result, a reply without a call, a verdict:
//! each is one line, and each line moves the machine at most by the event that it says. What no other line says
//! (measured numbers, what is left of the budget) has a `protocol` line. The commands that the machine answers
//! with wait in a queue, and a command leaves it when the line is read that shows it was carried out; so a
//! session that was cut between any two lines knows what is still to be done.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::budget::{Amounts, Exhausted, Stage};
use crate::conversation::ToolCall;
use crate::protocol::checks::Numbers;
use crate::protocol::finding::Dialect;
use crate::protocol::machine::{Command, EndKind, Ending, Event as Input, Phase as WaitState, Run};
use crate::protocol::model::{Guard, Operand, Protocol};
use crate::protocol::rules::{Ruling, Verdict};
use crate::protocol::schema::{Flag as Remark, Output};
use crate::referee::Side;
use crate::tools::{ATTEMPT_DONE, CONFIRM_SESSION, END_SESSION, ROLLBACK};
use crate::transcript::{
    Event, Flag, HeadState, Judgment, JudgmentSource, Line, Outcome, RefereeReply, ToolIntent, WrapUpReason,
};
use base::error::{ErrorCode, Fault};

/// How much of what a model writes in an attempt is quoted to a referee, in characters.
const SAID: usize = 2_000;

/// What a line's meaning depends on.
pub(super) struct FoldContext<'a> {
    /// The call that was under way.
    pub open: Option<&'a ToolIntent>,
    /// The call that a result belongs to.
    pub call: Option<&'a ToolCall>,
    /// The session's head after the line.
    pub head: &'a HeadState,
    /// The cap that fired first.
    pub cap: Option<Exhausted>,
    /// Whether the machine is waiting for a person's answer.
    pub asked: bool,
}

/// The machine of a session that a protocol steers.
#[derive(Clone, Debug)]
pub struct Steering {
    /// The protocol.
    pub protocol: Arc<Protocol>,
    run: Run,
    commands: VecDeque<Command>,
    /// The numbers of the judgment that this attempt gave the present branch.
    judged: Option<Numbers>,
    /// Names of the tools that ran in this attempt.
    ran: Vec<String>,
    /// What the model wrote in the present attempt.
    said: String,
    opinion: Opinion,
    /// Whether a condition depends on what is left of the budget, and whether something was spent since the last
    /// report.
    asks_for_budget: bool,
    budget_is_stale: bool,
}

/// The progress of a question to the referee.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Opinion {
    /// Its verdicts on the new picture so far.
    pub verdicts: Vec<Verdict>,
    /// The attempt at the present order, from 0.
    pub failures: u32,
    /// The pause before the next attempt.
    pub pause: Duration,
}

/// A referee's opinion as recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RefereeOutcome {
    /// On a pair: the verdict on the new picture.
    Verdict {
        /// The verdict.
        verdict: Verdict,
        /// Why, in a sentence or two.
        why: String,
    },
    /// Of criteria.
    Ruling(Ruling),
}

impl RefereeOutcome {
    /// The verdict of an opinion on the picture at `side`.
    pub fn of(opinion: crate::referee::Opinion, side: Side) -> Self {
        let verdict = opinion.verdict(side);
        let letter =
            |letter: &str| opinion.why.split(|c: char| !c.is_alphanumeric()).any(|word| word == letter);
        let why = match side {
            _ if !letter("A") && !letter("B") => opinion.why,
            Side::A => format!("{} (A is the new picture)", opinion.why),
            Side::B => format!("{} (B is the new picture)", opinion.why),
        };
        Self::Verdict { verdict, why }
    }
}

/// The meaning of a referee's line.
#[derive(Clone, Debug, PartialEq)]
pub enum Answered {
    /// The question is not finished.
    NotYet,
    /// On a pair, all orders taken together.
    Verdict(Verdict),
    /// On criteria.
    Ruling(Ruling),
    /// Nobody could say.
    Unavailable(String),
}

impl Opinion {
    /// Applies a line.
    pub fn fold(&mut self, reply: &RefereeReply) -> Answered {
        let answered = self.answered(reply);
        if answered != Answered::NotYet {
            *self = Self::default();
        }
        answered
    }

    fn answered(&mut self, reply: &RefereeReply) -> Answered {
        let Some(opinion) = &reply.opinion else {
            if let Some(pause) = reply.pause_ms {
                self.failures += 1;
                self.pause = Duration::from_millis(pause);
                return Answered::NotYet;
            }
            return Answered::Unavailable(reply.error.clone().unwrap_or_default());
        };
        (self.failures, self.pause) = (0, Duration::ZERO);
        let verdict = match serde_json::from_value::<RefereeOutcome>(opinion.clone()) {
            Ok(RefereeOutcome::Ruling(ruling)) => return Answered::Ruling(ruling),
            Ok(RefereeOutcome::Verdict { verdict, .. }) => verdict,
            Err(error) => return Answered::Unavailable(error.to_string()),
        };
        self.verdicts.push(verdict);
        match self.verdicts.as_slice() {
            [only] if reply.orders < 2 => Answered::Verdict(*only),
            [first, second] => Answered::Verdict(Verdict::of_orders(*first, *second)),
            _ => Answered::NotYet,
        }
    }
}

/// The flag that a second opinion gives a branch in a session without a protocol.
pub fn remark(answered: &Answered, score: u8) -> Option<Flag> {
    match answered {
        Answered::Unavailable(_) => Some(Flag::Unrefereed),
        Answered::Verdict(Verdict::Worse | Verdict::OffBrief) => Some(Flag::Disputed),
        Answered::Verdict(Verdict::Same | Verdict::Unsure) if score >= 4 => Some(Flag::Disputed),
        _ => None,
    }
}

/// A protocol's flag as the transcript has it.
pub fn flag(remark: Remark) -> Flag {
    match remark {
        Remark::Disputed => Flag::Disputed,
        Remark::Unrefereed => Flag::Unrefereed,
    }
}

/// The outcome of a session whose protocol ended like this.
pub fn outcome(kind: EndKind) -> Outcome {
    match kind {
        EndKind::Completed => Outcome::Completed,
        EndKind::Cancelled => Outcome::Cancelled,
        EndKind::Budget | EndKind::Transitions | EndKind::Loop => Outcome::BudgetExhausted,
        EndKind::Broken => Outcome::EngineFailed,
        EndKind::Failed | EndKind::Exhausted | EndKind::Declined | EndKind::ProtocolError => {
            Outcome::ProtocolFailed
        }
    }
}

impl Steering {
    /// The machine before its first event, with the session at `head`.
    pub fn begin(protocol: Arc<Protocol>, head: HeadState) -> Self {
        let (run, commands) = Run::begin(&protocol, head);
        let asks_for_budget = protocol
            .states
            .iter()
            .flat_map(|state| &state.transitions)
            .filter_map(|way| way.when.as_ref())
            .any(asks_budget);
        Self {
            protocol,
            run,
            commands: commands.into(),
            judged: None,
            ran: Vec::new(),
            said: String::new(),
            opinion: Opinion::default(),
            asks_for_budget,
            budget_is_stale: asks_for_budget,
        }
    }

    /// The machine.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// What it asks for next.
    pub fn command(&self) -> Option<&Command> {
        self.commands.front()
    }

    /// The progress of the present question to the referee.
    pub fn opinion(&self) -> &Opinion {
        &self.opinion
    }

    /// Whether the machine needs a budget report before it decides anything.
    pub fn wants_budget_report(&self) -> bool {
        self.asks_for_budget && self.budget_is_stale
    }

    /// The present state's name.
    pub fn state_name(&self) -> &str {
        self.protocol.state(self.run.state()).map_or("", |state| state.name.as_str())
    }

    /// The tools that the present state allows; `None`: all.
    pub fn tools(&self) -> Option<Vec<&str>> {
        let tools = self.protocol.state(self.run.state())?.tools.as_ref()?;
        Some(tools.iter().map(String::as_str).collect())
    }

    /// Names of the tools that ran in the present attempt, in their order.
    pub fn ran(&self) -> &[String] {
        &self.ran
    }

    /// What the model wrote in the present attempt, where that may be its result: in the original format, in which a
    /// state may ask for a text.
    pub fn said(&self) -> &str {
        if self.protocol.dialect == Dialect::Compat { &self.said } else { "" }
    }

    fn says(&mut self, text: &str) {
        let room = SAID.saturating_sub(self.said.chars().count());
        if !text.trim().is_empty() && room > 0 {
            self.said.extend(text.trim().chars().take(room).chain(['\n']));
        }
    }

    /// Whether some state has the model confirm the plan; without one it counts as confirmed.
    pub fn confirms(&self) -> bool {
        let lists = |tools: &std::collections::BTreeSet<String>| tools.contains(CONFIRM_SESSION);
        self.protocol.states.iter().any(|state| state.tools.as_ref().is_some_and(lists))
    }

    /// Why the machine refuses a call of the model, if it does.
    pub fn refusal(&self, call: &ToolCall) -> Option<Fault> {
        if !self.commands.is_empty() {
            return Some(attempt_over(self.state_name()));
        }
        if call.name == ATTEMPT_DONE {
            return None;
        }
        let asked = Input::ToolAsked { tool: call.name.clone(), args: call.arguments.clone() };
        let (_, commands) = self.run.clone().step(&self.protocol, asked);
        let refused = commands.iter().find_map(|command| match command {
            Command::Refuse { fault, .. } => Some(fault.clone()),
            _ => None,
        });
        let over = !commands.iter().any(|command| matches!(command, Command::RunTool { .. }));
        refused.or_else(|| over.then(|| attempt_over(self.state_name())))
    }

    /// Applies a line.
    pub(super) fn fold(&mut self, line: &Line, around: &FoldContext<'_>) {
        match &line.event {
            Event::Brief { .. } => {
                self.carried_out(|c| matches!(c, Command::Work(_)));
                self.judged = None;
                self.ran.clear();
                self.said.clear();
            }
            Event::ToolCall(intent) if intent.call.name == ATTEMPT_DONE => {
                let told = serde_json::from_str::<serde_json::Value>(&intent.call.arguments);
                self.says(told.as_ref().ok().and_then(|told| told["summary"].as_str()).unwrap_or_default());
            }
            Event::ToolCall(intent) if !intent.engine => {
                self.step(Input::ToolAsked {
                    tool: intent.call.name.clone(),
                    args: intent.call.arguments.clone(),
                });
                self.carried_out(|c| matches!(c, Command::RunTool { .. }));
            }
            Event::ToolResult { code, head, settled, ms, .. } => match (around.open, around.call) {
                (Some(intent), _) if intent.engine => {
                    self.acted(&intent.call, code.is_none(), head);
                    self.spent(settled, *ms);
                }
                (Some(intent), _) => {
                    self.returned(&intent.call, code.is_none(), head);
                    self.spent(settled, *ms);
                    self.maybe_finished(&intent.call, code.is_none());
                }
                // What was not made is no attempt at anything.
                (None, Some(_)) if *code == Some(ErrorCode::SkippedAfterError) => {}
                (None, Some(call)) => self.refused(call),
                (None, None) => {}
            },
            Event::ModelReply { message, settled, ms, .. } => {
                self.spent(settled, *ms);
                if let crate::conversation::Message::Assistant { text, .. } = message {
                    self.says(text);
                }
                let silent = matches!(message, crate::conversation::Message::Assistant { calls, .. } if calls.is_empty());
                if silent && self.commands.is_empty() {
                    // The original format has no tool for this: a reply in words is the result.
                    self.step(match self.protocol.dialect {
                        Dialect::Compat => Input::Finished { fields: Numbers::new() },
                        Dialect::Strict => Input::Spoke,
                    });
                }
            }
            Event::Attempt { settled, ms, .. } => self.spent(settled, *ms),
            Event::Render { settled, ms, intent: Some(_), .. } => self.spent(settled, *ms),
            Event::Judgment(judgment)
                if judgment.source == JudgmentSource::Agent
                    && around.head.branch.as_ref() == Some(&judgment.branch) =>
            {
                self.judged = Some(fields(judgment));
            }
            Event::Protocol { event, .. } => {
                let Ok(event) = serde_json::from_value::<Input>(event.clone()) else { return };
                match &event {
                    Input::Left { .. } => self.budget_is_stale = false,
                    Input::Measured(_) => self.carried_out(|c| matches!(c, Command::Measure { .. })),
                    _ => self.carried_out(asks),
                }
                self.step(event);
            }
            Event::Referee(reply) => self.heard(reply),
            Event::Flagged { .. } => self.carried_out(|c| matches!(c, Command::Remark { .. })),
            Event::Note { text, .. } => {
                if matches!(self.command(), Some(Command::Note { text: noted }) if noted == text) {
                    self.commands.pop_front();
                }
            }
            Event::Clarification { answer: Some(answer), .. } if around.asked => {
                self.carried_out(|c| matches!(c, Command::AskPerson { .. }));
                self.step(Input::Answered { accepted: is_yes(answer) });
            }
            Event::WrapUp { reason, .. } if self.run.stage() == Stage::Work => {
                self.step(if *reason == WrapUpReason::Stopped {
                    Input::Stop { now: false }
                } else {
                    let cap = around.cap.map_or_else(String::new, |exhausted| exhausted.cap.to_string());
                    Input::CapFired { cap }
                });
            }
            _ => {}
        }
        if around.head.branch.is_none() {
            // There is no branch to flag.
            self.commands.retain(|c| !matches!(c, Command::Remark { .. }));
        }
    }

    /// A call of the engine itself returned.
    fn acted(&mut self, call: &ToolCall, ok: bool, head: &HeadState) {
        if call.name == ROLLBACK {
            self.carried_out(|c| matches!(c, Command::Rollback { .. }));
            if !ok {
                let message = "an attempt that failed could not be taken back".to_owned();
                self.step(Input::Broken { message });
            }
            return;
        }
        self.carried_out(|c| matches!(c, Command::Act { .. }));
        let (tool, args) = (call.name.clone(), call.arguments.clone());
        self.step(Input::ToolReturned { tool, args, ok, head: Some(head.clone()) });
    }

    fn returned(&mut self, call: &ToolCall, ok: bool, head: &HeadState) {
        if call.name == ATTEMPT_DONE {
            return;
        }
        if ok {
            self.ran.push(call.name.clone());
        }
        let (tool, args) = (call.name.clone(), call.arguments.clone());
        self.step(Input::ToolReturned { tool, args, ok, head: Some(head.clone()) });
    }

    /// Ends the attempt if this call does: the model says so, ends the session, or has delivered what the state asks
    /// for.
    fn maybe_finished(&mut self, call: &ToolCall, ok: bool) {
        let state = self.protocol.state(self.run.state());
        let wanted = state.is_some_and(|state| state.output == Some(Output::Judgment));
        let over = match call.name.as_str() {
            ATTEMPT_DONE | END_SESSION => true,
            "record_judgment" => wanted && self.judged.is_some(),
            _ => false,
        };
        if ok && over && self.commands.is_empty() {
            let fields = self.judged.clone().unwrap_or_default();
            self.step(Input::Finished { fields });
        }
    }

    /// A call that was not dispatched: not allowed here, malformed, or beyond the budget.
    fn refused(&mut self, call: &ToolCall) {
        if !self.commands.is_empty() {
            return;
        }
        if call.name == ATTEMPT_DONE {
            // The model spoke, but the attempt is not done.
            return self.step(Input::Spoke);
        }
        let (tool, args) = (call.name.clone(), call.arguments.clone());
        self.step(Input::ToolAsked { tool: tool.clone(), args: args.clone() });
        let allowed = self.commands.iter().any(|c| matches!(c, Command::RunTool { .. }));
        self.carried_out(|c| matches!(c, Command::RunTool { .. } | Command::Refuse { .. }));
        if allowed {
            self.step(Input::ToolReturned { tool, args, ok: false, head: None });
        }
    }

    fn spent(&mut self, amounts: &Amounts, ms: u64) {
        self.budget_is_stale |= self.asks_for_budget;
        let limited = self.protocol.state(self.run.state()).is_some_and(|state| state.budget.is_some());
        if limited && self.run.phase() != WaitState::Ended {
            self.step(Input::Spent { amounts: *amounts, ms });
        }
    }

    fn heard(&mut self, reply: &RefereeReply) {
        let event = match self.opinion.fold(reply) {
            Answered::NotYet => return,
            Answered::Verdict(verdict) => Input::Judged { verdict },
            Answered::Ruling(ruling) => Input::Ruled(ruling),
            Answered::Unavailable(message) => Input::Failed { message },
        };
        self.carried_out(|c| matches!(c, Command::Compare { .. } | Command::AskReferee { .. }));
        self.step(event);
    }

    /// Removes the first command of that kind: a line says that it was carried out.
    fn carried_out(&mut self, which: impl Fn(&Command) -> bool) {
        if let Some(at) = self.commands.iter().position(which) {
            self.commands.remove(at);
        }
    }

    fn step(&mut self, event: Input) {
        let (run, commands) = self.run.clone().step(&self.protocol, event);
        self.run = run;
        // A new request replaces the older ones; flags, notes and rollbacks stay queued.
        if commands.iter().any(|c| asks(c) || matches!(c, Command::Finish(_))) {
            self.commands.retain(|c| !asks(c));
            self.opinion = Opinion::default();
        }
        self.commands.extend(commands);
    }

    /// The end of the run, once there is one.
    pub fn ending(&self) -> Option<&Ending> {
        self.run.ending()
    }
}

/// Whether the machine waits for the result of a command.
fn asks(command: &Command) -> bool {
    matches!(
        command,
        Command::Work(_)
            | Command::RunTool { .. }
            | Command::Act { .. }
            | Command::Measure { .. }
            | Command::AskReferee { .. }
            | Command::Compare { .. }
            | Command::AskPerson { .. }
    )
}

fn asks_budget(guard: &Guard) -> bool {
    match guard {
        Guard::Compare(operand, ..) => matches!(operand, Operand::Budget(_)),
        Guard::All(guards) | Guard::Any(guards) => guards.iter().any(asks_budget),
        Guard::Not(guard) => asks_budget(guard),
    }
}

/// A judgment's numbers, as conditions ask for them.
fn fields(judgment: &Judgment) -> Numbers {
    let number = |yes: bool| if yes { 1.0 } else { 0.0 };
    Numbers::from([
        ("judged_score".to_owned(), f64::from(judgment.judged_score)),
        ("abandoned".to_owned(), number(judgment.abandoned)),
        ("comparable_to_baseline".to_owned(), number(judgment.comparable_to_baseline)),
    ])
}

/// Whether a person's answer is a yes.
fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

/// The refusal of a call whose attempt has ended in the meantime.
fn attempt_over(state: &str) -> Fault {
    let message =
        format!("this attempt in `{state}` is over: what comes next is in the message that follows");
    Fault::new(ErrorCode::StateError, message)
}
