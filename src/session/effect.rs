//! What a session's state can ask for, and the words for where it stands.

use std::time::Duration;

use crate::budget::Exhausted;
use crate::conversation::ToolCall;
use crate::protocol::machine::Command;
use crate::transcript::{Flag, Outcome, ToolIntent};
use base::ids::{Hash, RefName};

/// Where a session is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The plan waits for the agent's confirmation.
    Planned,
    /// Exploring.
    Running,
    /// Judging and closing.
    WrappingUp,
    /// Closed.
    Ended,
}

/// What a person asked of a running session.
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
    /// Run again a call whose outcome a crash hid.
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
        reason: String,
    },
    /// Do what the protocol's machine asks for.
    Carry(Box<Command>),
    /// Tell the machine what is left of the budget.
    ReportBudget,
    /// Ask the referee about a branch that was judged.
    Opinion {
        /// The branch.
        branch: RefName,
        /// The commit judged.
        commit: Hash,
    },
    /// Put a remark on a branch.
    Flag(RefName, Flag),
    /// Close the session.
    Finish {
        /// How.
        outcome: Outcome,
        /// Why, when it was not the agent's own end.
        reason: String,
    },
    /// Nothing: it is closed.
    Done,
}
