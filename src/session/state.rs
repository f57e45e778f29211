//! A session's state: a pure fold of its transcript.
//!
//! [`State::fold`] takes one line, [`State::next`] answers with one [`Effect`](crate::session::next::Effect). Neither does any I/O or looks
//! at a clock: time comes in as a value. Resuming a session is folding its lines again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::budget::Exhausted;
use crate::conversation::{Finish, Message, ToolCall, ToolResult};
use crate::protocol::Protocol;
use crate::protocol::machine::Phase as WaitState;
use crate::session::chapter::Told;
use crate::session::steering::{self, FoldContext, Opinion, Steering};
use crate::session::wording;
pub use crate::tools::Phase;
use crate::tools::{self, BranchView, CONFIRM_SESSION, RenderKey, Tool};
use crate::transcript::{
    EffectClass, Event, FaultClass, Flag, HeadState, Line, Mode, ModelIntent, RenderIntent, SessionEnd,
    SessionStart, ToolIntent, WrapUpReason,
};
use base::error::ErrorCode;
use base::ids::{Hash, RefName};
use engine::photo::{ProposalKind, ProposalStatus};

mod questions;

/// Failed calls in a row after which the session wraps up.
pub const MAX_BAD_CALLS: u32 = 5;
/// Replies without a call in a row after which the session ends.
pub const MAX_SILENT_REPLIES: u32 = 2;
/// Replies that the wrap-up may take.
pub const MAX_WRAP_UP_REPLIES: u32 = 3;
/// The highest factor on the bound of a call's input.
const MAX_FACTOR: u64 = 16;
/// How often the same call may be made on the same state: noted, refused, and the session wrapped up.
pub const REPEATS: [u32; 3] = [2, 3, 5];

/// What a failed attempt left behind.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Retry {
    /// Try again as this attempt, after a pause.
    Again { attempt: u32, pause: Duration },
    /// The provider cannot go on.
    GaveUp(String),
}

/// A change that a reply asked for and that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Failed {
    /// The tool.
    pub tool: String,
    /// The call.
    pub call_id: String,
    /// How.
    pub code: ErrorCode,
}

/// The fold of a transcript.
#[derive(Clone, Debug)]
pub struct State {
    /// The header.
    pub start: SessionStart,
    /// Where in its life.
    pub phase: Phase,
    /// The conversation of this chapter so far.
    pub messages: Vec<Message>,
    /// What the host has said that holds for the whole session.
    pub(super) told: Told,
    /// Whether the provider refused the conversation as too large.
    pub(super) outgrown: bool,
    /// The session's head.
    pub head: HeadState,
    /// The branches, in the order they were made.
    pub branches: Vec<BranchView>,
    /// The vectors restated by the agent.
    pub restated: BTreeMap<String, String>,
    /// A question nobody has answered.
    pub question: Option<String>,
    /// The agent's summary and tag suggestion, once it asked to end.
    pub ending: Option<(String, Option<String>)>,
    /// The cap that fired first.
    pub cap: Option<Exhausted>,
    /// Whether a person asked to stop.
    pub stopped: bool,
    /// Whether it is the photographer's turn, in a conversation.
    pub awaits: bool,
    /// Whether the photographer, asked since she last spoke, has said that the conversation is not over.
    pub goes_on: bool,
    /// Edits that were proposed to the photographer, and that she declined.
    pub declined: BTreeSet<String>,
    /// Whether the conversation is over but for the look back.
    pub concluded: bool,
    /// Calls that got a result, refused ones included.
    pub tool_calls: u64,
    /// Reminders given.
    pub reminders: BTreeSet<u8>,
    /// Proposals made, for taste and for notes.
    pub proposals: (usize, usize),
    /// What a person made of the session's proposals, by their ids.
    pub answers: BTreeMap<String, ProposalStatus>,
    /// The closing line.
    pub end: Option<SessionEnd>,
    /// Input tokens that the provider last reported, with the number of messages they covered.
    pub last_input: Option<(u64, usize)>,
    /// How many times its bound the input of a call may be, by what the provider reported: 1, and doubled each
    /// time that a report was above the bound.
    pub factor: u64,
    /// The bound of the input of the call under way; 0 where none was needed.
    bound_input: u64,
    /// Time spent waiting for the model, in milliseconds.
    pub model_ms: u64,
    /// Time spent waiting for darktable, in milliseconds.
    pub render_ms: u64,
    /// Pictures that were begun before anyone asked for them and are not paid for, by the line of their intent.
    pub ahead: BTreeMap<RenderKey, u64>,
    /// The protocol's machine, where one steers.
    pub steering: Option<Steering>,
    /// Questions to the referee that were let through.
    pub referee_calls: u64,
    opinion: Opinion,
    /// Judged commits that have their second opinion, or cannot have one.
    pub(super) opined: BTreeSet<(RefName, Hash)>,
    /// Flags that have not been recorded yet.
    owed: VecDeque<(RefName, Flag)>,
    remarks: BTreeMap<RefName, BTreeSet<Flag>>,
    proposal_ids: BTreeSet<String>,
    /// What the call under way proposed: its id, and whether it is for taste.
    proposing: Option<(String, bool)>,
    /// The first change of the present reply that failed.
    failed: Option<Failed>,
    /// The tools of the present reply that failed, each with how.
    failures: BTreeSet<(String, String)>,
    pub(super) pending: VecDeque<ToolCall>,
    results: Vec<ToolResult>,
    pub(super) open_tool: Option<(u64, Box<ToolIntent>)>,
    pub(super) interrupted: bool,
    attempt: u32,
    pub(super) replies: u64,
    pub(super) retry: Option<Retry>,
    pub(super) bad_calls: u32,
    pub(super) silent: u32,
    pub(super) wrap_up_replies: u32,
    pub(super) repeats: BTreeMap<(bool, Hash), u32>,
    pub(super) most_repeats: u32,
}

impl State {
    /// The state after the header line, steered by `protocol` where the header names one; `None` when `line` is
    /// no header.
    pub fn begin(line: &Line, baseline_state: Hash, protocol: Option<Arc<Protocol>>) -> Option<Self> {
        let Event::SessionStart(start) = &line.event else { return None };
        let head = HeadState { branch: None, commit: start.baseline.clone(), state: baseline_state };
        let steering = protocol.map(|protocol| Steering::begin(protocol, head.clone()));
        let talks = start.mode == Mode::ModeA;
        let confirmed = talks || steering.as_ref().is_some_and(|steering| !steering.confirms());
        Some(Self {
            phase: if confirmed { Phase::Running } else { Phase::Planned },
            messages: Vec::new(),
            told: Told::default(),
            outgrown: false,
            head,
            steering,
            referee_calls: 0,
            opinion: Opinion::default(),
            opined: BTreeSet::new(),
            owed: VecDeque::new(),
            remarks: BTreeMap::new(),
            branches: Vec::new(),
            restated: BTreeMap::new(),
            question: None,
            ending: None,
            cap: None,
            stopped: false,
            awaits: talks,
            goes_on: false,
            declined: BTreeSet::new(),
            concluded: false,
            tool_calls: 0,
            reminders: BTreeSet::new(),
            proposals: (0, 0),
            proposal_ids: BTreeSet::new(),
            answers: BTreeMap::new(),
            proposing: None,
            failed: None,
            failures: BTreeSet::new(),
            end: None,
            last_input: None,
            factor: 1,
            bound_input: 0,
            model_ms: 0,
            render_ms: 0,
            ahead: BTreeMap::new(),
            pending: VecDeque::new(),
            results: Vec::new(),
            open_tool: None,
            interrupted: false,
            attempt: 0,
            replies: 0,
            retry: None,
            bad_calls: 0,
            silent: 0,
            wrap_up_replies: 0,
            repeats: BTreeMap::new(),
            most_repeats: 0,
            start: (**start).clone(),
        })
    }

    /// Applies one line.
    pub fn fold(&mut self, line: &Line) {
        let open = self.open_tool.as_ref().map(|(_, intent)| intent.clone());
        let call = match &line.event {
            Event::ToolResult { result, .. } => self.pending.iter().find(|c| c.id == result.call_id).cloned(),
            _ => None,
        };
        self.apply(line);
        if let Some(steering) = &mut self.steering {
            let asked = steering.run().phase() == WaitState::Asking;
            let around = FoldContext {
                open: open.as_deref(),
                call: call.as_ref(),
                head: &self.head,
                cap: self.cap,
                asked,
            };
            steering.fold(line, &around);
        }
    }

    fn apply(&mut self, line: &Line) {
        match &line.event {
            Event::SessionStart(_) | Event::Protocol { .. } => {}
            Event::Brief { text, .. } => {
                // Calls that were repeated before may be right in the new state.
                self.repeats.clear();
                self.most_repeats = 0;
                self.bad_calls = 0;
                self.told.brief.clone_from(text);
                self.say(text);
            }
            Event::RefereeIntent(_) => self.referee_calls += 1,
            Event::Referee(reply) => {
                self.model_ms += reply.ms;
                self.referee_calls = self.referee_calls.saturating_sub(reply.unreached().into());
                if self.steering.is_none()
                    && let Some((branch, commit)) = self.wants_opinion()
                {
                    let answered = self.opinion.fold(reply);
                    if answered != steering::Answered::NotYet {
                        let score = self.score(&branch).unwrap_or_default();
                        self.owed
                            .extend(steering::remark(&answered, score).map(|flag| (branch.clone(), flag)));
                        self.opined.insert((branch, commit));
                    }
                }
            }
            Event::Flagged { branch, flag } => {
                self.owed.retain(|owed| (&owed.0, &owed.1) != (branch, flag));
                self.remarks.entry(branch.clone()).or_default().insert(*flag);
                self.remark(branch);
            }
            Event::Plan { text } => {
                self.told.plan.clone_from(text);
                self.say(text);
            }
            Event::Nudge { text } => self.say(text),
            Event::Message { text } => self.heard(text),
            Event::Concluded { .. } => self.concluded = true,
            Event::Chapter { text, images, .. } => {
                self.messages = vec![Message::User { text: text.clone(), images: images.clone() }];
                // What the provider reported was about another conversation.
                self.last_input = None;
                self.outgrown = false;
            }
            Event::Confirmed { restated, .. } => {
                self.restated = restated.clone();
                if self.phase == Phase::Planned {
                    self.phase = Phase::Running;
                }
            }
            Event::Clarification { question, answer: None } => self.question = Some(question.clone()),
            Event::Clarification { question, answer: Some(answer) } => {
                self.goes_on |= question == tools::SHALL_WE_END;
                self.said_no(question, answer);
                // An immediate answer is part of the tool's result; a later one needs a message of its own, unless
                // the protocol asked.
                let asks = |s: &Steering| s.run().phase() == WaitState::Asking;
                let machine = self.steering.as_ref().is_some_and(asks);
                if self.question.take().is_some() && self.open_tool.is_none() && !machine {
                    self.say(&wording::late_answer(answer));
                }
            }
            Event::ModelIntent(ModelIntent { attempt, reserved, max_output_tokens, .. }) => {
                self.attempt = *attempt;
                self.bound_input = reserved.tokens.saturating_sub(u64::from(*max_output_tokens));
                self.retry = None;
            }
            Event::Fallback { .. } => {
                // What the other one reported, and what was too much for it, is no measure of this one.
                (self.retry, self.last_input, self.factor, self.outgrown) = (None, None, 1, false);
                self.awaits = false;
            }
            Event::Attempt { class, message, pause_ms, ms, .. } => {
                self.attempt_failed(*class, message, *pause_ms, *ms)
            }
            Event::ModelReply { message, finish, usage, ms, .. } => {
                self.model_ms += ms;
                let input = [usage.input_fresh, usage.input_cache_read, usage.input_cache_write];
                if usage.input_fresh.is_some()
                    && let Some(tokens) = input.iter().flatten().copied().reduce(u64::saturating_add)
                {
                    self.last_input = Some((tokens, self.messages.len()));
                    if self.bound_input > 0 && tokens > self.bound_input {
                        self.factor = (self.factor * 2).min(MAX_FACTOR);
                    }
                }
                self.replied(message, finish);
            }
            Event::ToolCall(intent) => {
                self.open_tool = Some((line.seq, intent.clone()));
                if !intent.engine {
                    self.count(&intent.call);
                }
            }
            Event::ToolResult { intent, result, code, head, .. } => {
                // Refused calls count as repetitions too: once in a reply if they fail alike, and not if skipped.
                if intent.is_none()
                    && *code != Some(ErrorCode::SkippedAfterError)
                    && !code.is_some_and(|code| {
                        self.failures.contains(&(result.name.clone(), format!("{code:?}")))
                    })
                    && let Some(call) = self.pending.iter().find(|c| c.id == result.call_id).cloned()
                {
                    self.count(&call);
                }
                self.answered(result, *code, head);
            }
            Event::RenderIntent(RenderIntent { ahead: true, state, long_edge, quality, .. }) => {
                self.ahead.insert(RenderKey::new(state, *long_edge, *quality), line.seq);
            }
            Event::RenderIntent(RenderIntent { joins: Some(ahead), .. }) => {
                self.ahead.retain(|_, seq| seq != ahead)
            }
            Event::Render { intent, ms, .. } => {
                self.render_ms += ms;
                self.ahead.retain(|_, seq| Some(*seq) != *intent);
            }
            Event::SnapshotCreated { name, commit, .. } => self.moved(name, commit),
            Event::Judgment(judgment) => {
                if let Some(branch) = self.branches.iter_mut().find(|b| b.name == judgment.branch) {
                    branch.judgment = Some((**judgment).clone());
                }
                // Flags on an earlier state no longer apply, except those of a protocol.
                if self.steering.is_none() {
                    self.remarks.remove(&judgment.branch);
                }
                self.remark(&judgment.branch);
            }
            Event::BudgetReminder { percent } => {
                self.reminders.insert(*percent);
            }
            Event::CapFired { exhausted } => {
                self.cap.get_or_insert(*exhausted);
            }
            Event::WrapUp { text, reason } => {
                self.phase = Phase::WrappingUp;
                self.stopped |= *reason == WrapUpReason::Stopped;
                self.retry = None;
                self.silent = 0;
                self.bad_calls = 0;
                self.most_repeats = 0;
                self.told.closing.clone_from(text);
                if !text.is_empty() {
                    self.say(text);
                }
            }
            Event::EndRequested { summary, tag_suggestion } => {
                self.ending = Some((summary.clone(), tag_suggestion.clone()));
            }
            Event::Resumed { .. } => {
                self.interrupted = true;
                self.undo_open_call();
                // A resumed session calls the model again, however the last attempt ended.
                self.retry = None;
                if self.end.take().is_some() || self.phase == Phase::Ended {
                    let confirms = !self.talks() && self.steering.as_ref().is_none_or(Steering::confirms);
                    self.phase = if self.restated.is_empty() && self.branches.is_empty() && confirms {
                        Phase::Planned
                    } else {
                        Phase::Running
                    };
                    self.cap = None;
                    self.stopped = false;
                    self.ending = None;
                    self.told.closing.clear();
                    self.wrap_up_replies = 0;
                    self.silent = 0;
                    self.bad_calls = 0;
                    self.repeats.clear();
                    self.most_repeats = 0;
                }
            }
            Event::Raised { .. } => {
                self.cap = None;
                if self.phase == Phase::WrappingUp {
                    self.phase = Phase::Running;
                    self.told.closing.clear();
                }
            }
            Event::SessionEnd(end) => {
                self.phase = Phase::Ended;
                self.end = Some((**end).clone());
            }
            Event::Proposal { id, target, .. } => {
                // A call that runs again after a crash repeats its proposal.
                if self.proposal_ids.insert(id.clone()) {
                    let taste = *target == ProposalKind::Taste;
                    *self.proposed(taste) += 1;
                    self.proposing = Some((id.clone(), taste));
                }
            }
            Event::ProposalAnswered { id, status } => {
                self.answers.insert(id.clone(), status.clone());
            }
            Event::CountIntent(_) | Event::RenderIntent(_) | Event::Gap { .. } | Event::Note { .. } => {}
        }
    }

    /// Undoes the effects of a call that a crash interrupted: it will run again from where it began.
    fn undo_open_call(&mut self) {
        // Otherwise it would be refused because of its own first run.
        if let Some((id, taste)) = self.proposing.take() {
            self.proposal_ids.remove(&id);
            *self.proposed(taste) -= 1;
        }
        let Some((_, intent)) = &self.open_tool else { return };
        match &intent.target {
            Some((name, None)) => self.branches.retain(|b| &b.name != name),
            Some((name, Some(commit))) => {
                if let Some(branch) = self.branches.iter_mut().find(|b| &b.name == name) {
                    branch.tip = commit.clone();
                }
            }
            None => {}
        }
    }

    /// How many proposals were made for taste, or for notes.
    fn proposed(&mut self, taste: bool) -> &mut usize {
        if taste { &mut self.proposals.0 } else { &mut self.proposals.1 }
    }

    pub(super) fn say(&mut self, text: &str) {
        self.messages.push(Message::User { text: text.into(), images: Vec::new() });
    }

    fn attempt_failed(&mut self, class: FaultClass, message: &str, pause_ms: Option<u64>, ms: u64) {
        self.model_ms += ms;
        // Whoever is there decides whether to ask again.
        self.awaits |= self.explores_together() && pause_ms.is_none() && class != FaultClass::TooLarge;
        self.retry = match pause_ms {
            Some(pause) => {
                Some(Retry::Again { attempt: self.attempt + 1, pause: Duration::from_millis(pause) })
            }
            // Ended by the stage's deadline, not by the provider: the cap fires next.
            // The next call begins a new chapter.
            None if class == FaultClass::TooLarge && !self.outgrown && self.has_replies() => {
                self.outgrown = true;
                None
            }
            None if class == FaultClass::Deadline => {
                if self.phase == Phase::WrappingUp {
                    self.wrap_up_replies = MAX_WRAP_UP_REPLIES;
                }
                None
            }
            None => Some(Retry::GaveUp(message.into())),
        };
    }

    fn replied(&mut self, message: &Message, finish: &Finish) {
        self.failed = None;
        self.failures.clear();
        if let Message::Assistant { calls, .. } = message {
            self.pending = calls.iter().cloned().collect();
            self.silent = if calls.is_empty() { self.silent + 1 } else { 0 };
            self.awaits = calls.is_empty() && self.explores_together() && !finish.is_pause();
        }
        if self.phase == Phase::WrappingUp {
            self.wrap_up_replies += 1;
        }
        let goes_on = Retry::Again { attempt: 1, pause: Duration::ZERO };
        self.retry = finish.is_pause().then_some(goes_on);
        self.replies += 1;
        self.messages.push(message.clone());
    }

    fn answered(&mut self, result: &ToolResult, code: Option<ErrorCode>, head: &HeadState) {
        if head.commit != self.head.commit {
            // Looking at a new state is no repetition; the same change from the same state is.
            self.repeats.retain(|(mutates, _), _| *mutates);
        }
        self.head = head.clone();
        self.proposing = None;
        let open = self.open_tool.take();
        // What a state of the protocol does not offer is no change that failed.
        let not_offered =
            self.steering.is_some() && open.is_none() && code == Some(ErrorCode::PermissionDenied);
        let engine = open.is_some_and(|(_, intent)| intent.engine);
        if engine {
            // The model did not make this call and is not told about it.
            return;
        }
        self.tool_calls += 1;
        match code {
            None => {
                self.bad_calls = 0;
                self.awaits |= self.explores_together() && self.start.hands_back.contains(&result.name);
            }
            Some(ErrorCode::BudgetExhausted | ErrorCode::SkippedAfterError) => {}
            Some(code) => {
                // The model has not seen the first error yet when it repeats it in the same reply.
                let fresh = self.failures.insert((result.name.clone(), format!("{code:?}")));
                self.bad_calls += u32::from(fresh);
                // A plan confirmed once more is still confirmed.
                let harmless = result.name == CONFIRM_SESSION && self.phase != Phase::Planned;
                let builds = tools::find(&result.name).is_none_or(Tool::builds);
                if self.failed.is_none() && builds && !harmless && !not_offered {
                    let (tool, call_id) = (result.name.clone(), result.call_id.clone());
                    self.failed = Some(Failed { tool, call_id, code });
                }
            }
        }
        if let Some(at) = self.pending.iter().position(|c| c.id == result.call_id) {
            self.pending.remove(at);
        }
        self.results.push(result.clone());
        if self.pending.is_empty() {
            let results = std::mem::take(&mut self.results);
            self.messages.push(Message::Results { results });
        }
    }

    /// Adds the flags of a branch to its judgment.
    fn remark(&mut self, name: &RefName) {
        let remarks = self.remarks.get(name).into_iter().flatten();
        let judged = self.branches.iter_mut().find(|b| &b.name == name).and_then(|b| b.judgment.as_mut());
        if let Some(judgment) = judged {
            let fresh: Vec<Flag> = remarks.filter(|flag| !judgment.flags.contains(flag)).copied().collect();
            judgment.flags.extend(fresh);
        }
    }

    fn score(&self, name: &RefName) -> Option<u8> {
        let branch = self.branches.iter().find(|b| &b.name == name)?;
        branch.judgment.as_ref().map(|judgment| judgment.judged_score)
    }

    fn moved(&mut self, name: &str, commit: &Hash) {
        let Some(Ok(name)) = name.strip_prefix("refs/heads/").map(str::parse::<RefName>) else { return };
        match self.branches.iter_mut().find(|b| b.name == name) {
            Some(branch) => branch.tip = commit.clone(),
            None => self.branches.push(BranchView { name, tip: commit.clone(), judgment: None }),
        }
    }

    fn count(&mut self, call: &ToolCall) {
        let Some(tool) = tools::find(&call.name).filter(|tool| !tool.repeatable) else { return };
        let count = self.repeats.entry(self.repeat_key(call, tool.class)).or_default();
        *count += 1;
        self.most_repeats = self.most_repeats.max(*count);
    }

    fn repeat_key(&self, call: &ToolCall, class: EffectClass) -> (bool, Hash) {
        let arguments = serde_json::from_str::<serde_json::Value>(&call.arguments)
            .map_or_else(|_| call.arguments.clone(), |v| v.to_string());
        let digest = format!("{}\n{arguments}\n{}", call.name, self.head.state);
        (class == EffectClass::Mutate, Hash::of(digest))
    }
}
