//! What a line says.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::budget::{Amounts, Budget, Exhausted};
use crate::conversation::{Finish, ImageRef, Message, ToolResult, Usage};
use crate::transcript::header::{ModelName, SessionStart};
use crate::transcript::intent::{
    CountIntent, HeadState, ModelIntent, RefereeIntent, RenderIntent, ToolIntent,
};
use crate::transcript::outcome::SessionEnd;
use base::error::ErrorCode;
use base::ids::{Hash, RefName};
use darktable::render::Quality;
use engine::photo::{ProposalKind, ProposalStatus};

/// Who said or did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Party {
    /// The model.
    Agent,
    /// The photographer.
    Person,
    /// The program.
    Engine,
}

/// Where a figure of cost comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CostSource {
    /// Reported tokens times the price list.
    Priced,
    /// Reported by the provider.
    Reported,
    /// No tokens were reported: the reservation was charged.
    Estimated,
    /// No price is known.
    Unknown,
    /// Costs nothing by nature.
    Free,
}

/// What the tokens of a reply cost, by kind, in micro-dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostByKind {
    /// Fresh input.
    pub fresh: u64,
    /// Input read from a cache.
    pub cache_read: u64,
    /// Input written to a cache.
    pub cache_write: u64,
    /// Output.
    pub output: u64,
}

impl CostByKind {
    /// The sum.
    pub fn total(&self) -> u64 {
        [self.fresh, self.cache_read, self.cache_write, self.output].into_iter().fold(0, u64::saturating_add)
    }
}

/// How a failed attempt at a model call is to be treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultClass {
    /// Too many requests: retry after a pause.
    RateLimit,
    /// The server is overloaded or broken for the moment: retry.
    Transient,
    /// Connection refused, reset, cut, silent: retry.
    Transport,
    /// Key missing or wrong, or not allowed: never.
    Auth,
    /// No money or a spending limit: never.
    Quota,
    /// The request is too large for the model's context or the server: never as it stands.
    TooLarge,
    /// The request itself is wrong: never.
    BadRequest,
    /// The provider refused the content: never.
    Refused,
    /// The body makes no sense: retried once or twice.
    Garbage,
    /// The session's own deadline ended it; no provider says this.
    Deadline,
}

impl FaultClass {
    /// Whether another attempt may help.
    pub fn retryable(self) -> bool {
        matches!(self, Self::RateLimit | Self::Transient | Self::Transport | Self::Garbage)
    }
}

/// Why the wrap-up begins; a line has it in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum WrapUpReason {
    /// The photographer asked to stop.
    Stopped,
    /// A cap, or a state of the protocol.
    Other(String),
}

impl WrapUpReason {
    /// The words.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Stopped => "the photographer asked to stop",
            Self::Other(words) => words,
        }
    }
}

impl From<String> for WrapUpReason {
    fn from(words: String) -> Self {
        if words == Self::Stopped.as_str() { Self::Stopped } else { Self::Other(words) }
    }
}

impl From<WrapUpReason> for String {
    fn from(reason: WrapUpReason) -> Self {
        reason.as_str().to_owned()
    }
}

/// Why a conversation begins anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChapterCause {
    /// It fills most of the model's context.
    Context,
    /// The provider refused it as too large.
    TooLarge,
}

/// Something a judgment's reader should know.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Flag {
    /// Score 2 or less.
    Weak,
    /// Score 5.
    Strong,
    /// The pixels are the baseline's.
    IdenticalToBaseline,
    /// Score 4 or more, while the vector's direction did not move.
    ClaimsNotSupported,
    /// Given up by the agent; the tip is the baseline again.
    Abandoned,
    /// The pictures could not be measured.
    Unmeasured,
    /// The referee does not agree.
    Disputed,
    /// A second opinion was asked for, and nobody could give it.
    Unrefereed,
}

/// Who gave a judgment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JudgmentSource {
    /// The model.
    Agent,
    /// The engine, because the model gave none: score 3, left out of averages.
    EngineDefault,
    /// The protocol, which gave the branch up.
    Protocol,
}

/// A branch judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgment {
    /// The branch.
    pub branch: RefName,
    /// The commit judged.
    pub hash: Hash,
    /// 1 to 5.
    pub judged_score: u8,
    /// Why.
    pub judged_reasoning: String,
    /// Whether it can be held against the baseline at all.
    pub comparable_to_baseline: bool,
    /// The moves that make it, as found in the branch's history.
    pub key_moves: Vec<String>,
    /// The answer to each named criterion.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub criteria: BTreeMap<String, String>,
    /// Given up.
    pub abandoned: bool,
    /// Who judged.
    pub source: JudgmentSource,
    /// What the engine measured; absent when it could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Value>,
    /// Remarks.
    pub flags: Vec<Flag>,
}

/// What the referee said, or why it said nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RefereeReply {
    /// Line of the intent; absent when nobody could be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<u64>,
    /// The branch that it is about, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<RefName>,
    /// The state of the picture that it is about.
    pub state: Hash,
    /// How often the pair is shown in all.
    pub orders: u8,
    /// Its verdict on the new picture, or its ruling; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opinion: Option<Value>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Pause before the next attempt; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_ms: Option<u64>,
    /// What was charged.
    pub settled: Amounts,
    /// Tokens as reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The model that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_served: Option<String>,
    /// The body that came: a blob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<Hash>,
    /// Time it took.
    pub ms: u64,
}

impl RefereeReply {
    /// Whether nobody answered, and the same question will be asked again.
    pub fn unreached(&self) -> bool {
        self.pause_ms.is_some() && self.raw.is_none()
    }
}

/// One thing said in a transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Event {
    /// The header.
    SessionStart(Box<SessionStart>),
    /// What the model is told first.
    Plan {
        /// The user message.
        text: String,
    },
    /// The plan was confirmed.
    Confirmed {
        /// By whom.
        by: Party,
        /// Each vector restated in a sentence.
        restated: BTreeMap<String, String>,
    },
    /// The agent asks (no answer yet) or is answered.
    Clarification {
        /// The question.
        question: String,
        /// The photographer's answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer: Option<String>,
    },
    /// One attempt at a model call is about to be made.
    ModelIntent(ModelIntent),
    /// The attempt failed.
    Attempt {
        /// Line of the intent.
        intent: u64,
        /// Class of the failure.
        class: FaultClass,
        /// HTTP status.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
        /// In words.
        message: String,
        /// Pause before the next attempt; `None` when there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pause_ms: Option<u64>,
        /// What it cost.
        settled: Amounts,
        /// Time it took.
        ms: u64,
        /// The body that came: a blob.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        raw: Option<Hash>,
    },
    /// Another model goes on, because the one before it failed for good.
    Fallback {
        /// The one that goes on.
        to: ModelName,
        /// What the other one said.
        reason: String,
    },
    /// The model's reply.
    ModelReply {
        /// Line of the intent.
        intent: u64,
        /// What it said.
        message: Message,
        /// Why it ended.
        finish: Finish,
        /// Tokens as reported.
        usage: Usage,
        /// What was charged.
        settled: Amounts,
        /// Where the charge comes from.
        cost_source: CostSource,
        /// Its money by kind of token, where it is the price of what was reported.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_by_kind: Option<CostByKind>,
        /// The model that answered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model_served: Option<String>,
        /// The body: a blob.
        raw: Hash,
        /// Time it took.
        ms: u64,
        /// Oddities of the reply.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<String>,
    },
    /// A tool is about to run.
    ToolCall(Box<ToolIntent>),
    /// The one result of one call, dispatched or refused.
    ToolResult {
        /// Line of the `tool_call`; `None` when the call was refused before dispatch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        intent: Option<u64>,
        /// What the model reads.
        result: ToolResult,
        /// The error code, when it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<ErrorCode>,
        /// What was really spent.
        settled: Amounts,
        /// The session's head after it.
        head: HeadState,
        /// Time it took.
        ms: u64,
    },
    /// A cap is near: the provider is asked for the input tokens of the next call.
    CountIntent(CountIntent),
    /// A render is about to start.
    RenderIntent(RenderIntent),
    /// A render ended, or was found in the cache (`intent` absent).
    Render {
        /// Line of the intent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        intent: Option<u64>,
        /// State rendered.
        state: Hash,
        /// Longest side asked.
        long_edge: u32,
        /// Quality level.
        quality: Quality,
        /// The picture's identity.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pixel_hash: Option<Hash>,
        /// What was really spent.
        settled: Amounts,
        /// Why there is no picture.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        /// Time it took.
        ms: u64,
    },
    /// A commit was made on a branch (or a branch or tag was made at one).
    SnapshotCreated {
        /// The ref, `refs/heads/…` or `refs/tags/…`.
        name: String,
        /// The commit.
        commit: Hash,
        /// Its state.
        state: Hash,
        /// In a photographer's words.
        op: String,
    },
    /// A branch was judged.
    Judgment(Box<Judgment>),
    /// An attempt begins in a state of the protocol: what the model is told.
    Brief {
        /// The state.
        state: String,
        /// The attempt, from 1.
        attempt: u32,
        /// The attempts in all.
        attempts: u32,
        /// The visit for the present item, from 1.
        visit: u32,
        /// The user message.
        text: String,
    },
    /// Something happened that the protocol's machine takes in and that no other line says.
    Protocol {
        /// The state.
        state: String,
        /// The event, as the machine knows it.
        event: Value,
        /// What came of it, in words.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
    },
    /// The referee is about to be asked.
    RefereeIntent(Box<RefereeIntent>),
    /// The referee's answer.
    Referee(Box<RefereeReply>),
    /// A branch gets a remark that its judgment did not have.
    Flagged {
        /// The branch.
        branch: RefName,
        /// The remark.
        flag: Flag,
    },
    /// A change to taste or notes was proposed.
    Proposal {
        /// Its id.
        id: String,
        /// What it would change.
        target: ProposalKind,
        /// The text.
        text: String,
    },
    /// A person answered a proposal of the session; mostly after its closing line.
    ProposalAnswered {
        /// The proposal's id; `tag` for the tag that was suggested.
        id: String,
        /// The answer.
        status: ProposalStatus,
    },
    /// A missing move was reported.
    Gap {
        /// In a sentence.
        description: String,
    },
    /// The model was reminded of its budget.
    BudgetReminder {
        /// At this share left.
        percent: u8,
    },
    /// A cap fired.
    CapFired {
        /// Which.
        exhausted: Exhausted,
    },
    /// The wrap-up begins.
    WrapUp {
        /// Why.
        reason: WrapUpReason,
        /// What the model is told.
        text: String,
    },
    /// The model is told something between its turns.
    Nudge {
        /// The user message.
        text: String,
    },
    /// What the photographer says, in a conversation.
    Message {
        /// The words.
        text: String,
    },
    /// The conversation is over; a look back may follow.
    Concluded {
        /// Who said so.
        by: Party,
    },
    /// The conversation became too long for the model and begins anew.
    Chapter {
        /// Why.
        cause: ChapterCause,
        /// How many messages the model no longer sees.
        messages: u64,
        /// The user message that it begins with.
        text: String,
        /// The pictures shown with it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<ImageRef>,
    },
    /// The agent has asked for the end.
    EndRequested {
        /// Its summary.
        summary: String,
        /// A tag it suggests to the photographer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tag_suggestion: Option<String>,
    },
    /// The session goes on after an interruption; open reservations are charged in full.
    Resumed {
        /// Time added for what an unfinished effect may have used before the crash.
        assumed_ms: u64,
        /// Whether the file ended in a torn line, which was cut.
        torn: bool,
    },
    /// A person raised the budget.
    Raised {
        /// The new caps.
        budget: Budget,
    },
    /// Something worth knowing that changes nothing.
    Note {
        /// The text.
        text: String,
        /// Particulars.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        details: Map<String, Value>,
    },
    /// The closing line.
    SessionEnd(Box<SessionEnd>),
}

impl Event {
    /// The blobs that the line names, in no order.
    pub fn blobs(&self) -> Vec<&Hash> {
        match self {
            Self::SessionStart(start) => {
                let source = start.protocol.as_ref().map(|protocol| &protocol.source);
                [&start.system, &start.tools].into_iter().chain(source).collect()
            }
            Self::Attempt { raw, .. } => raw.iter().collect(),
            Self::ModelReply { raw, .. } => vec![raw],
            Self::ToolResult { result, .. } => result.images.iter().map(|image| &image.sha256).collect(),
            Self::RefereeIntent(intent) => intent.request.iter().collect(),
            Self::Referee(reply) => reply.raw.iter().collect(),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::Line;
    use base::seal;

    /// A line of every kind, as builds before the typed transcript wrote them.
    const EARLIER: &str = include_str!("earlier.jsonl");

    #[test]
    fn lines_of_earlier_builds_are_read_and_written_again_byte_for_byte() {
        for text in EARLIER.lines() {
            let line: Line = serde_json::from_str(text).unwrap();
            let again = serde_json::to_string(&line).unwrap();
            assert!(text == again || text == seal::seal(b"", &again), "{text}\n{again}");
        }
        let reasons = ["the photographer asked to stop", "protocol state `judge`"]
            .map(|words| WrapUpReason::from(words.to_owned()));
        assert_eq!(reasons, [WrapUpReason::Stopped, WrapUpReason::Other("protocol state `judge`".into())]);
    }
}
