//! What a session does next: the decision, from its state, its ledger and the time.

use std::time::Duration;

use crate::budget::{Amounts, Cap, Exhausted, Ledger, Stage};
use crate::conversation::{Message, ToolCall};
use crate::protocol::machine::Command;
use crate::session::state::{
    Failed, MAX_BAD_CALLS, MAX_SILENT_REPLIES, MAX_WRAP_UP_REPLIES, Phase, REPEATS, Retry, State,
};
use crate::session::steering::{self, Steering};
use crate::session::wording;
use crate::transcript::{Flag, Outcome, ToolIntent, WrapUpReason};
use base::ids::{Hash, RefName};

/// What a person requested of a running session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StopRequest {
    /// Nothing.
    #[default]
    None,
    /// To stop exploring and wrap up.
    WrapUp,
    /// To stop at once.
    Now,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Wait, then call the model.
    Model {
        /// Model turn, from 1.
        turn: u64,
        /// Attempt in it, from 1.
        attempt: u32,
        /// Pause before it.
        pause: Duration,
    },
    /// Answer this call: run it, or refuse it.
    Tool(ToolCall),
    /// Answer this call without making it: one before it in the same reply failed.
    Skip(ToolCall, Failed),
    /// Run a call again whose result was lost in a crash.
    Redo {
        /// Its line.
        seq: u64,
        /// What it was.
        intent: Box<ToolIntent>,
    },
    /// Tell the model something before its next turn.
    Nudge(String),
    /// A cap fired: say so, and begin the wrap-up.
    WrapUp {
        /// The cap, unless a person asked.
        cap: Option<Exhausted>,
        /// Why.
        reason: WrapUpReason,
    },
    /// Do what the protocol's machine asks for.
    Carry(Box<Command>),
    /// Tell the protocol's machine what is left of the budget.
    ReportBudget,
    /// Ask the referee about a branch that was judged.
    Opinion {
        /// The branch.
        branch: RefName,
        /// The commit judged.
        commit: Hash,
    },
    /// Flag a branch.
    Flag(RefName, Flag),
    /// Close the session.
    Finish {
        /// How.
        outcome: Outcome,
        /// Why, when it was not the agent's own end.
        reason: String,
    },
    /// Make the branch of a conversation.
    OpenBranch(RefName),
    /// A cap fired in a conversation: say so.
    CapFired(Exhausted),
    /// Answer this call without making it: the photographer stopped the reply.
    Interrupt(ToolCall),
    /// Wait for the photographer.
    Await,
    /// Nothing: it is closed.
    Done,
}

impl State {
    /// Why the model cannot go on, if it cannot.
    pub fn given_up(&self) -> Option<&str> {
        match &self.retry {
            Some(Retry::GaveUp(reason)) => Some(reason),
            _ => None,
        }
    }

    /// What to do next at session time `elapsed`, given a person's request to stop.
    pub fn next(&self, ledger: &Ledger, elapsed: Duration, halt: StopRequest) -> Effect {
        let finish = |outcome, reason: &str| Effect::Finish { outcome, reason: reason.into() };
        if self.phase == Phase::Ended {
            return Effect::Done;
        }
        if self.talks() {
            return self.next_in_talk(ledger, elapsed, halt);
        }
        if halt == StopRequest::Now {
            return finish(Outcome::Cancelled, wording::STOPPED_AT_ONCE);
        }
        if elapsed >= ledger.budget().time() {
            return finish(self.outcome(Outcome::BudgetExhausted), "the time limit was reached");
        }
        if let Some((seq, intent)) = &self.open_tool
            && self.interrupted
        {
            return Effect::Redo { seq: *seq, intent: intent.clone() };
        }
        if let Some((branch, flag)) = self.owed() {
            return Effect::Flag(branch.clone(), *flag);
        }
        if self.open_tool.is_none()
            && let Some((branch, commit)) = self.wants_opinion()
        {
            return Effect::Opinion { branch, commit };
        }
        let decides = |c: &Command| !matches!(c, Command::Work(_) | Command::Finish(_));
        if let Some(steering) = self.steering.as_ref().filter(|s| s.wants_budget_report())
            && (!self.pending.is_empty() || steering.command().is_some_and(decides))
        {
            return Effect::ReportBudget;
        }
        if let Some(call) = self.pending.front() {
            return match self.skips(call).filter(|_| self.open_tool.is_none()) {
                Some(failed) => Effect::Skip(call.clone(), failed.clone()),
                None => Effect::Tool(call.clone()),
            };
        }
        if self.ending.is_some() && self.steering.is_none() {
            return finish(self.outcome(Outcome::Completed), "");
        }
        if self.question.is_some() {
            return finish(
                Outcome::NeedsClarification,
                "the model asks a question, and there was nobody to answer it",
            );
        }
        if let Some(Command::Finish(ending)) = self.steering.as_ref().and_then(Steering::command) {
            let outcome = steering::outcome(ending.kind);
            let reason = if outcome == Outcome::Completed { "" } else { &ending.reason };
            return finish(self.outcome(outcome), reason);
        }
        // A protocol limits its own wrap-up, unless a cap or a person ended the work early.
        let bounded = self.steering.is_none() || self.cap.is_some() || self.stopped;
        if self.phase != Phase::WrappingUp {
            if halt == StopRequest::WrapUp {
                return Effect::WrapUp { cap: None, reason: WrapUpReason::Stopped };
            }
            if let Some(exhausted) = self.fired(ledger, elapsed) {
                let reason = WrapUpReason::Other(exhausted.to_string());
                return Effect::WrapUp { reason, cap: Some(exhausted) };
            }
            if let Some(steering) = self.steering.as_ref().filter(|s| s.run().stage() == Stage::WrapUp) {
                let reason = format!("protocol state `{}`", steering.state_name());
                return Effect::WrapUp { cap: None, reason: WrapUpReason::Other(reason) };
            }
        } else if bounded && self.wrap_up_replies >= MAX_WRAP_UP_REPLIES {
            return finish(
                self.outcome(Outcome::BudgetExhausted),
                "the model did not end the session itself",
            );
        }
        if let Some(command) = self.steering.as_ref().and_then(Steering::command) {
            return Effect::Carry(Box::new(command.clone()));
        }
        if self.silent >= MAX_SILENT_REPLIES && self.steering.is_none() {
            let outcome =
                if self.has_agent_judgment() { Outcome::Completed } else { Outcome::ProviderFailed };
            return finish(self.outcome(outcome), "the model stopped calling tools");
        }
        let spoke_last = matches!(self.messages.last(), Some(Message::Assistant { .. }));
        match &self.retry {
            Some(Retry::GaveUp(reason)) => finish(self.outcome(Outcome::ProviderFailed), reason),
            None if spoke_last => Effect::Nudge(wording::nudge(self)),
            _ => self.model(),
        }
    }

    /// The model's next turn, or the next attempt at it.
    pub(super) fn model(&self) -> Effect {
        match &self.retry {
            Some(Retry::Again { attempt, pause }) => {
                Effect::Model { turn: self.replies + 1, attempt: *attempt, pause: *pause }
            }
            // An interrupted turn is repeated: turns count replies.
            _ => Effect::Model { turn: self.replies + 1, attempt: 1, pause: Duration::ZERO },
        }
    }

    /// The outcome, unless a cap fired or a person stopped the session earlier.
    fn outcome(&self, otherwise: Outcome) -> Outcome {
        match (self.stopped, &self.cap) {
            (true, _) => Outcome::Cancelled,
            (false, Some(_)) => Outcome::BudgetExhausted,
            (false, None) => otherwise,
        }
    }

    /// The cap that ends the work now, if one does.
    pub(super) fn fired(&self, ledger: &Ledger, elapsed: Duration) -> Option<Exhausted> {
        if let Some(cap) = self.cap {
            return Some(cap);
        }
        if let Err(exhausted) = ledger.admit(&Amounts::default(), elapsed) {
            return Some(exhausted);
        }
        let (used, limit) = (ledger.settled().iterations, ledger.budget().max_iterations);
        if ledger.stage() == Stage::Work && used >= limit {
            return Some(Exhausted { cap: Cap::Iterations, used, reserved: 0, limit, wanted: 1 });
        }
        if self.steering.is_some() {
            // In a protocol, errors end the attempt, not the session.
            return None;
        }
        if self.bad_calls >= MAX_BAD_CALLS {
            let (used, limit) = (u64::from(self.bad_calls), u64::from(MAX_BAD_CALLS));
            return Some(Exhausted { cap: Cap::BadCalls, used, reserved: 0, limit, wanted: 1 });
        }
        if self.most_repeats >= REPEATS[2] {
            let (used, limit) = (u64::from(self.most_repeats), u64::from(REPEATS[2]));
            return Some(Exhausted { cap: Cap::Loop, used, reserved: 0, limit, wanted: 1 });
        }
        None
    }
}
