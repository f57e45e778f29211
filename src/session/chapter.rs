//! Chapters of a conversation.
//!
//! A conversation only grows, because providers keep what they have read before, and some accept nothing else. When it
//! no longer fits into the model's context, it begins anew, with a message that the host writes from the transcript:
//! the plan, what became of each branch, where the session is, and what is left. Nothing of the session changes by that.

use crate::conversation::{ImageRef, Message};
use crate::provider::ModelInfo;
use crate::session::SessionError;
use crate::session::driver::Session;
use crate::session::pricing::{Input, MAX_OUTPUT_TOKENS};
use crate::session::state::State;
use crate::tools::Phase;
use crate::transcript::{ChapterCause, Event};

/// The share of the window, in percent, at which a chapter ends.
const FULL: u64 = 70;

/// What the host has said to the model that a new chapter says again.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Told {
    /// The plan.
    pub plan: String,
    /// The present state of the protocol.
    pub brief: String,
    /// That exploration is over.
    pub closing: String,
    /// What the photographer said last, in a conversation.
    pub person: Vec<String>,
}

/// How much of what the photographer said a new chapter repeats.
const SAID: usize = 12;

impl Told {
    /// Keeps what the photographer says.
    pub fn heard(&mut self, text: &str) {
        self.person.push(text.to_owned());
        let excess = self.person.len().saturating_sub(SAID);
        self.person.drain(..excess);
    }
}

impl State {
    /// Whether the model has said anything in this chapter.
    pub(super) fn has_replies(&self) -> bool {
        self.earlier_replies() < self.replies
    }

    /// How many replies of the model are in chapters before this one.
    pub(super) fn earlier_replies(&self) -> u64 {
        let here =
            self.messages.iter().filter(|message| matches!(message, Message::Assistant { .. })).count();
        self.replies.saturating_sub(here as u64)
    }
}

/// Why the conversation has to begin anew before it is sent, if it has to. A chapter in which the model has said
/// nothing yet is as short as it can be.
pub(super) fn due(info: &ModelInfo, state: &State, sent: Input) -> Option<ChapterCause> {
    if !state.has_replies() {
        return None;
    }
    if state.outgrown {
        return Some(ChapterCause::TooLarge);
    }
    let window = info.context?.saturating_sub(u64::from(MAX_OUTPUT_TOKENS));
    (sent.most >= window / 100 * FULL).then_some(ChapterCause::Context)
}

/// The latest picture of the baseline, and the latest of where the session is.
fn pictures(state: &State) -> Vec<ImageRef> {
    let latest = |words: &str| {
        let shown = state.messages.iter().flat_map(Message::pictures);
        shown.filter(|picture| picture.caption.contains(words)).last().cloned()
    };
    let head = state.head.commit.short();
    let mut found: Vec<ImageRef> = latest(state.start.baseline.short()).into_iter().collect();
    found.extend(latest(head).filter(|picture| found.iter().all(|other| other.sha256 != picture.sha256)));
    found
}

impl Session {
    /// The line that begins a new chapter.
    pub(super) fn new_chapter(&mut self, cause: ChapterCause) -> Result<Event, SessionError> {
        let mut text = self.state.told.plan.clone();
        text.push_str(
            "\n\nThis conversation goes on from an earlier part that is no longer shown to you. What has happened:\n",
        );
        for (name, restated) in &self.state.restated {
            text.push_str(&format!("- confirmed `{name}`: {restated}\n"));
        }
        let branches = self.state.branches.clone();
        let context = self.context(0, &|_| {});
        for branch in branches {
            let moves: Vec<String> = context.moves(&branch.tip)?.iter().map(ToString::to_string).collect();
            let moves = if moves.is_empty() { "no moves".to_owned() } else { moves.join("; ") };
            text.push_str(&format!("- `{}` at {}: {moves}", branch.name, branch.tip.short()));
            match branch.judgment {
                Some(judgment) if judgment.abandoned => text.push_str("; abandoned"),
                Some(judgment) => {
                    let (score, why) = (judgment.judged_score, judgment.judged_reasoning);
                    text.push_str(&format!("; judged {score}: {why}"));
                }
                None => text.push_str("; not judged yet"),
            }
            text.push('\n');
        }
        let head = &self.state.head;
        match &head.branch {
            Some(branch) => text.push_str(&format!("You are on `{branch}` at {}.\n", head.commit.short())),
            None => text.push_str(&format!("You are at {}, on no branch.\n", head.commit.short())),
        }
        if !self.state.told.person.is_empty() {
            text.push_str("\nWhat the photographer said last:\n");
            self.state.told.person.iter().for_each(|said| text.push_str(&format!("- {said}\n")));
        }
        for more in [&self.state.told.brief, &self.state.told.closing] {
            if !more.is_empty() {
                text.push_str(&format!("\n{more}\n"));
            }
        }
        if self.state.phase == Phase::Running {
            text.push_str("\nGo on from here.\n");
        }
        text.push_str(&self.gate.ledger().line(self.gate.elapsed()));
        let images = if self.provider.info().vision { pictures(&self.state) } else { Vec::new() };
        Ok(Event::Chapter { cause, messages: self.state.messages.len() as u64, text, images })
    }
}
