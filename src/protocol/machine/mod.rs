//! The machine that steers a run: a pure fold of what happened, that says what to do next.
//!
//! [`Run::step`] takes one [`Event`] and answers with [`Command`]s, which the driver carries out in their
//! order. It does no I/O and looks at no clock, so that resuming is folding the same events again.
//!
//! Three things are counted apart: *attempts* in a visit, *visits* of a state, *transitions* of the run. An
//! attempt has a limit on what the model does in it, and another on events of any kind, senseless ones too;
//! that is why every run ends, whatever it is told ([`Protocol::max_events`]).
//!
//! A cap that fires, too many transitions, a loop and a person's stop all lead the same way: where the state
//! goes on the outcome `budget`, which is the wrap-up. From then on only states that use the reserve are
//! entered, each once.

mod steps;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::checks::{Check, Measured, Numbers, Report};
use super::model::{Protocol, StateId};
use super::rules::{Ruling, Verdict};
use super::schema::{Flag, Reference};
use super::variables::Item;
use crate::budget::{Amounts, Stage};
use crate::transcript::HeadState;
use base::error::{ErrorCode, Fault};
use base::ids::Hash;

/// How often the same call may fail in an attempt before the attempt does.
pub const MAX_SAME_FAILURES: u32 = 2;
/// How often an attempt may come back to an edit that it had before.
pub const MAX_RETURNS: u32 = 3;
/// Replies without a tool call in a row after which an attempt fails.
pub const MAX_SILENT: u32 = 3;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The model wants to call a tool.
    ToolAsked {
        /// The tool.
        tool: String,
        /// Its arguments, as text.
        args: String,
    },
    /// A tool came back: the model's, or the engine's own in a `fixed` state.
    ToolReturned {
        /// The tool.
        tool: String,
        /// Its arguments, as they were asked.
        #[serde(default)]
        args: String,
        /// Whether it did what was asked.
        ok: bool,
        /// Where the photo stands now.
        #[serde(default)]
        head: Option<HeadState>,
    },
    /// The model replied without calling a tool, and without saying that it is done.
    Spoke,
    /// The model says that the attempt is done.
    Finished {
        /// What it leaves behind: the numbers of its judgment, with 0 and 1 for no and yes.
        #[serde(default)]
        fields: Numbers,
    },
    /// The model, the renderer or the referee could not do its part.
    Failed {
        /// Why.
        message: String,
    },
    /// What the checks were to be held against.
    Measured(Box<Measured>),
    /// The referee on the criteria.
    Ruled(Ruling),
    /// The referee on the pair of pictures.
    Judged {
        /// What it says, both orders taken together.
        verdict: Verdict,
    },
    /// The person who was asked.
    Answered {
        /// Yes or no.
        accepted: bool,
    },
    /// Something was spent since the last such event.
    Spent {
        /// How much.
        amounts: Amounts,
        /// And how long it took, in milliseconds.
        ms: u64,
    },
    /// What is left of the session's caps, by the names of [`super::build::BUDGET_NAMES`].
    Left {
        /// The amounts.
        left: Numbers,
    },
    /// A cap of the session fired.
    CapFired {
        /// Which.
        cap: String,
    },
    /// A person wants an end.
    Stop {
        /// At once, without the wrap-up.
        now: bool,
    },
    /// Something failed that nobody can go on from.
    Broken {
        /// What.
        message: String,
    },
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Let the model work: an attempt begins.
    Work(Box<Brief>),
    /// Run the tool that was asked for.
    RunTool {
        /// The tool.
        tool: String,
        /// Its arguments.
        args: String,
    },
    /// Do not run it, and say so.
    Refuse {
        /// The tool.
        tool: String,
        /// What the model reads.
        fault: Fault,
    },
    /// Do this; no model is asked.
    Act {
        /// The tool.
        tool: String,
        /// Its arguments.
        args: Value,
    },
    /// Render and measure, and say what was found.
    Measure {
        /// What it will be held against.
        checks: Vec<Check>,
    },
    /// Ask the referee whether the criteria are met.
    AskReferee {
        /// The criteria.
        criteria: String,
        /// The states that it may name as the next one; empty when it is not asked for one.
        legal: Vec<String>,
    },
    /// Ask the referee which of two pictures is better.
    Compare {
        /// The other picture.
        against: Reference,
        /// How often: 2 shows the pair in both orders.
        orders: u8,
        /// What to go by.
        criteria: String,
    },
    /// Ask the person whether this may stand.
    AskPerson {
        /// What was done, by the state's name.
        state: String,
    },
    /// Set the photo back to where the attempt began.
    Rollback {
        /// There.
        to: HeadState,
    },
    /// Put a remark on the branch at hand.
    Remark {
        /// Which.
        flag: Flag,
    },
    /// Write this down; nothing follows from it.
    Note {
        /// In words.
        text: String,
    },
    /// The run is over.
    Finish(Ending),
}

/// What the model is told when an attempt begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Brief {
    /// The state's name.
    pub state: String,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The attempts in all.
    pub attempts: u32,
    /// The visit for the present item, from 1.
    pub visit: u32,
    /// What is to be done. Text from outside stands between `<data name="…">` and `</data>`.
    pub instructions: String,
    /// What it is judged by.
    pub criteria: String,
    /// The tools that may be called; `None`: all that the host allows.
    pub tools: Option<BTreeSet<String>>,
    /// Whether the attempt must leave a judgment behind.
    pub judgment: bool,
    /// Why the last attempt failed.
    pub feedback: Option<String>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndKind {
    /// As the protocol wants it.
    Completed,
    /// At an end that the protocol calls a failure.
    Failed,
    /// Attempts were used up, and the protocol ends there.
    Exhausted,
    /// A person said no, and the protocol ends there.
    Declined,
    /// A cap of the session fired.
    Budget,
    /// There were as many transitions as there may be.
    Transitions,
    /// It went in circles.
    Loop,
    /// A person ended it.
    Cancelled,
    /// The referee kept naming states that there are not.
    ProtocolError,
    /// The engine could not go on.
    Broken,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// How.
    pub kind: EndKind,
    /// Why, in a sentence.
    pub reason: String,
    /// Whether the wrap-up was entered.
    pub wrapped_up: bool,
}

/// What a run waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The model works.
    Working,
    /// The engine does what the state says.
    Acting,
    /// Numbers are being measured.
    Checking,
    /// The referee holds the attempt against the criteria.
    Refereeing,
    /// The referee compares two pictures.
    Comparing,
    /// A person is asked.
    Asking,
    /// The run is over.
    Ended,
}

/// A run: everything that follows from what happened so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    state: StateId,
    phase: Phase,
    attempt: u32,
    /// What the model did in this attempt, and everything that happened in it.
    steps: u32,
    events: u32,
    transitions: u32,
    /// Visits by state, since a loop last took an item.
    visits: Vec<u32>,
    /// Items taken, by state.
    cursors: Vec<usize>,
    /// The present items, by alias.
    items: BTreeMap<String, Item>,
    head: HeadState,
    /// Where the attempt began.
    entry: HeadState,
    /// Whether an attempt is under way: it may have to be taken back.
    attempting: bool,
    /// Spent by the present visit.
    spent: Amounts,
    spent_ms: u64,
    /// The last judgment's numbers.
    fields: Numbers,
    /// What was last measured, and how the checks on it came out.
    measured: Option<Measured>,
    report: Option<Report>,
    left: Numbers,
    stage: Stage,
    /// The wrap-up's states that were entered.
    closed: BTreeSet<StateId>,
    /// What brought the wrap-up on, unless it was the protocol's own way.
    cause: Option<(EndKind, String)>,
    ending: Option<Ending>,
    /// Calls under way.
    open: BTreeMap<(String, String), u32>,
    failures: BTreeMap<(String, String), u32>,
    silent: u32,
    seen: BTreeSet<Hash>,
    returns: u32,
    /// The last states, since there was a new edit or item.
    trail: Vec<StateId>,
    /// Whether the referee named a state that there is not, as the attempt's last word.
    misnamed: bool,
    referee_calls: u32,
}

impl Run {
    /// Begins a run on a photo that stands at `head`.
    pub fn begin(protocol: &Protocol, head: HeadState) -> (Self, Vec<Command>) {
        let run = Self {
            state: protocol.initial,
            phase: Phase::Ended,
            attempt: 0,
            steps: 0,
            events: 0,
            transitions: 0,
            visits: vec![0; protocol.states.len()],
            cursors: vec![0; protocol.states.len()],
            items: BTreeMap::new(),
            entry: head.clone(),
            head,
            attempting: false,
            spent: Amounts::default(),
            spent_ms: 0,
            fields: Numbers::new(),
            measured: None,
            report: None,
            left: Numbers::new(),
            stage: Stage::Work,
            closed: BTreeSet::new(),
            cause: None,
            ending: None,
            open: BTreeMap::new(),
            failures: BTreeMap::new(),
            silent: 0,
            seen: BTreeSet::new(),
            returns: 0,
            trail: Vec::new(),
            misnamed: false,
            referee_calls: 0,
        };
        steps::begin(protocol, run)
    }

    /// Takes one event in. After the end nothing changes any more.
    #[must_use]
    pub fn step(self, protocol: &Protocol, event: Event) -> (Self, Vec<Command>) {
        steps::step(protocol, self, event)
    }

    /// Whether the model may call a tool now; the fault names those that it may.
    pub fn allows(&self, protocol: &Protocol, tool: &str) -> Result<(), Fault> {
        let state = protocol.state(self.state).filter(|_| self.phase == Phase::Working);
        if state.is_some_and(|state| state.allows(tool)) {
            return Ok(());
        }
        let Some(state) = state else {
            return Err(Fault::new(
                ErrorCode::PermissionDenied,
                format!("`{tool}` may not be called now: no tool may"),
            ));
        };
        let (name, tools) = (state.name.as_str(), state.tools.as_ref());
        let legal: Vec<&str> = tools.into_iter().flatten().map(String::as_str).collect();
        let message = match legal.as_slice() {
            [] => format!("`{tool}` may not be called in `{name}`: no tool may"),
            legal => format!("`{tool}` may not be called in `{name}`; you may call {}", legal.join(", ")),
        };
        Err(Fault::new(ErrorCode::PermissionDenied, message).with("state", name).with("legal", legal))
    }

    /// Where the present attempt began.
    pub fn entry(&self) -> &HeadState {
        &self.entry
    }

    /// What the last checks were held against.
    pub fn measured(&self) -> Option<&Measured> {
        self.measured.as_ref()
    }

    /// The present state.
    pub fn state(&self) -> StateId {
        self.state
    }

    /// What it waits for.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Attempts in the present visit, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Transitions so far.
    pub fn transitions(&self) -> u32 {
        self.transitions
    }

    /// Visits of a state for the present item.
    pub fn visits(&self, state: StateId) -> u32 {
        self.visits.get(state).copied().unwrap_or(0)
    }

    /// The present items of the loops, by alias.
    pub fn items(&self) -> &BTreeMap<String, Item> {
        &self.items
    }

    /// Work, or the wrap-up.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// How the last checks came out.
    pub fn report(&self) -> Option<&Report> {
        self.report.as_ref()
    }

    /// How often the referee was asked.
    pub fn referee_calls(&self) -> u32 {
        self.referee_calls
    }

    /// The end, once there is one.
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }
}
