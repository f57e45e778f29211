//! A conversation with the photographer: its plan, what it does next, and what the photographer does in it.
//!
//! It is a session like any other: the same gate, transcript, tools and budget. What differs is who goes first. After
//! each reply without a call it waits ([`Turn::Person`](super::driver::Turn)), and it ends when the photographer is
//! done, with a short look back.

use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};

use crate::budget::{Cap, Ledger};
use crate::conversation::{Message, ToolCall, ToolResult};
use crate::session::driver::{Host, Session};
use crate::session::next::{Effect, StopRequest};
use crate::session::start::{self, Plan, Request, Setup};
use crate::session::state::{Failed, Phase, Retry, State};
use crate::session::{SessionError, raise, wording};
use crate::tools;
use crate::transcript::{Event, Line, Mode, Outcome, Party, PlannedBranch, WrapUpReason};
use base::error::{ErrorCode, Fault};
use base::ids::{Hash, RefName};

/// The prompt of a conversation, where none is named.
pub const PROMPT: &str = "mode_a/system";
/// Rounds of the look back.
const ROUNDS: u32 = 2;
/// Calls that a conversation without an edit must have for a look back.
const WORTH_LOOKING_BACK: u64 = 3;

/// The note before an exploration.
const HANDS_OVER: &str = "an exploration begins from here";

/// When the photographer began an exploration whose end the model was not told of.
pub fn handed_over(lines: &[Line]) -> Option<jiff::Timestamp> {
    let last = lines.iter().rev().find_map(|line| match &line.event {
        Event::Nudge { .. } => Some(None),
        Event::Note { text, .. } if text == HANDS_OVER => Some(Some(line.t)),
        _ => None,
    });
    last.flatten()
}

/// Plans a conversation on a branch of its own, `talk_1`, `talk_2`…
pub fn plan(setup: &Setup, request: &Request) -> Result<Plan, SessionError> {
    let mut number = 1;
    let branch = loop {
        let name = format!("talk_{number}");
        let name: RefName = name.parse().map_err(|e: base::ids::InvalidName| Fault::from(&e))?;
        if setup.workspace.branch(&name)?.is_none() {
            break name;
        }
        number += 1;
    };
    let mut plan = start::plan_with(setup, request, vec![PlannedBranch { branch, vector: None }])?;
    plan.tools = tools::talk_specs();
    tools::keep_only(&mut plan.tools, setup.prompts.tools(&request.prompt));
    plan.start.mode = Mode::ModeA;
    plan.start.hands_back = setup.prompts.hands_back(&request.prompt).to_vec();
    plan.start.tools = Hash::of(serde_json::to_vec(&plan.tools).unwrap_or_default());
    plan.message = wording::talk(&plan.start);
    Ok(plan)
}

impl State {
    /// Whether it is a conversation.
    pub fn talks(&self) -> bool {
        self.start.mode == Mode::ModeA
    }

    /// Whether it is a conversation that is not over.
    pub(super) fn explores_together(&self) -> bool {
        self.talks() && self.phase == Phase::Running
    }

    /// Replies of the model.
    pub fn replies_heard(&self) -> u64 {
        self.replies
    }

    /// Folds what the photographer says.
    pub(super) fn heard(&mut self, text: &str) {
        self.awaits = false;
        self.goes_on = false;
        // What is said next is the answer to a question that was left open.
        if let Some(question) = self.question.take() {
            self.said_no(&question, text);
        }
        self.retry = None;
        self.bad_calls = 0;
        self.repeats.clear();
        self.most_repeats = 0;
        self.cap = self.cap.filter(|fired| !matches!(fired.cap, Cap::BadCalls | Cap::Loop));
        self.told.heard(text);
        self.say(text);
    }

    /// Folds the answer to a question, where it declines what was proposed.
    pub(super) fn said_no(&mut self, question: &str, answer: &str) {
        if let Some(edits) = tools::proposed(question).filter(|_| !wording::is_yes(answer)) {
            self.declined.insert(edits.to_owned());
            self.awaits |= !self.start.hands_back.is_empty();
        }
    }

    /// What a conversation does next.
    pub(super) fn next_in_talk(&self, ledger: &Ledger, elapsed: Duration, halt: StopRequest) -> Effect {
        let finish = |reason: &str| Effect::Finish { outcome: Outcome::Completed, reason: reason.into() };
        let (halted, late) = (halt != StopRequest::None, elapsed >= ledger.budget().time());
        if let Some((seq, intent)) = self.open_tool.as_ref().filter(|_| self.interrupted) {
            return Effect::Redo { seq: *seq, intent: intent.clone() };
        }
        if let Some(call) = self.pending.front() {
            return match self.skips(call).filter(|_| self.open_tool.is_none()) {
                _ if halted => Effect::Interrupt(call.clone()),
                Some(failed) => Effect::Skip(call.clone(), Failed::clone(failed)),
                None => Effect::Tool(call.clone()),
            };
        }
        if self.phase == Phase::WrappingUp {
            let spoke_last = matches!(self.messages.last(), Some(Message::Assistant { .. }));
            return match &self.retry {
                _ if self.ending.is_some() || spoke_last => finish(""),
                _ if halted => finish("the look back was stopped"),
                _ if self.wrap_up_replies >= ROUNDS => finish(""),
                _ if late || self.cap.is_some() => finish("the budget ended before the look back"),
                Some(Retry::GaveUp(why)) => finish(&format!("no look back: {why}")),
                _ => self.model(),
            };
        }
        if self.concluded {
            let bare = self.branches.iter().all(|branch| branch.tip == self.start.baseline);
            if late || halted || self.cap.is_some() || bare && self.tool_calls < WORTH_LOOKING_BACK {
                return finish("");
            }
            let reason = WrapUpReason::Other(wording::PERSON_IS_DONE.into());
            return Effect::WrapUp { cap: None, reason };
        }
        if self.branches.is_empty()
            && self.cap.is_none()
            && let Some(planned) = self.start.branches.first()
        {
            return Effect::OpenBranch(planned.branch.clone());
        }
        if self.cap.is_none()
            && let Some(exhausted) = self.fired(ledger, elapsed)
        {
            return Effect::CapFired(exhausted);
        }
        if self.awaits || halted || self.cap.is_some() || self.question.is_some() {
            return Effect::Await;
        }
        self.model()
    }
}

/// A host that keeps the result of the last call.
struct Keeping<'a> {
    host: &'a dyn Host,
    result: Mutex<Option<ToolResult>>,
}

impl Host for Keeping<'_> {
    fn line(&self, line: &Line, state: &State, ledger: &Ledger) {
        if let Event::ToolResult { result, .. } = &line.event {
            *self.result.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(result.clone());
        }
        self.host.line(line, state, ledger);
    }

    fn busy(&self, what: &str) {
        self.host.busy(what);
    }
}

impl Session {
    /// Makes the branch of a conversation.
    pub(super) fn open_branch(&mut self, name: &RefName, host: &dyn Host) -> Result<(), SessionError> {
        let arguments = json!({ "name": name, "from": "baseline" });
        let made = match self.by_hand("branch", &arguments, host) {
            // The cap is recorded; the photographer is told of it.
            Err(SessionError::Fault(fault)) if fault.code == ErrorCode::BudgetExhausted => return Ok(()),
            made => made?,
        };
        if made.is_error {
            let reason = format!("the branch {name} cannot be made: {}", made.text);
            return self.finish(Outcome::EngineFailed, reason, host);
        }
        Ok(())
    }

    /// Records what the photographer says; [`Self::advance`] then goes on.
    pub fn say(&mut self, text: &str, host: &dyn Host) -> Result<(), SessionError> {
        self.stop.soft.reset();
        self.record(Event::Message { text: text.to_owned() })?;
        self.fold(host);
        Ok(())
    }

    /// Tells the model what the photographer did without it.
    pub fn tell(&mut self, text: &str, host: &dyn Host) -> Result<(), SessionError> {
        self.record(Event::Nudge { text: text.to_owned() })?;
        self.fold(host);
        Ok(())
    }

    /// Records that the photographer has directions explored from here; [`Self::tell`] then says what came of it.
    pub fn hand_over(&mut self, directions: &[String], host: &dyn Host) -> Result<(), SessionError> {
        let details = serde_json::Map::from_iter([("directions".to_owned(), json!(directions))]);
        self.record(Event::Note { text: HANDS_OVER.to_owned(), details })?;
        self.fold(host);
        Ok(())
    }

    /// The photographer is done; [`Self::advance`] then looks back and ends.
    pub fn conclude(&mut self, host: &dyn Host) -> Result<(), SessionError> {
        self.stop.soft.reset();
        self.record(Event::Concluded { by: Party::Person })?;
        self.fold(host);
        Ok(())
    }

    /// Adds to the budget, such as `time=30m,iterations=50`.
    pub fn raise(&mut self, spec: &str, host: &dyn Host) -> Result<(), SessionError> {
        let budget = raise::raised(self.gate.ledger().budget(), spec)?;
        crate::session::pricing::payable(self.provider.info(), &budget)?;
        self.record(Event::Raised { budget })?;
        self.fold(host);
        Ok(())
    }

    /// A tool that the photographer or the engine calls, and not the model: permitted and recorded as any other. The
    /// model is not told.
    pub fn by_hand(
        &mut self,
        name: &str,
        arguments: &Value,
        host: &dyn Host,
    ) -> Result<ToolResult, SessionError> {
        self.stop.soft.reset();
        let call = ToolCall {
            id: format!("person_{}", self.gate.lines()),
            name: name.to_owned(),
            arguments: arguments.to_string(),
            extra: serde_json::Map::new(),
        };
        let tool = tools::find(name)
            .ok_or_else(|| Fault::new(ErrorCode::NotFound, format!("there is no tool `{name}`")))?;
        let arguments = tool.check(&call)?;
        let intent = self.intent(tool, &call, &arguments, true);
        let reserved = intent.reserved;
        let permit = match self.gate.admit(intent)? {
            Ok(permit) => permit,
            Err(exhausted) => {
                if self.state.cap.is_none() {
                    self.record(Event::CapFired { exhausted })?;
                    self.fold(host);
                }
                return Err(Fault::from(exhausted).into());
            }
        };
        self.fold(host);
        let keeping = Keeping { host, result: Mutex::default() };
        self.run_tool(tool, &call, &arguments, reserved, permit, &keeping)?;
        let result = keeping.result.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        result.ok_or(SessionError::NotEnded)
    }
}
