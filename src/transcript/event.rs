//! What can be said in a transcript.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::budget::{Amounts, Budget, Exhausted, Reserve};
use crate::conversation::{Finish, Message, ToolCall, ToolResult, Usage};
use base::error::ErrorCode;
use base::ids::{Hash, RefName, VectorName};

/// One axis to explore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vector {
    /// Its name; the branch is `branch_b_<name>`.
    pub name: VectorName,
    /// Where to push, in the photographer's words.
    pub direction: String,
    /// How far, in the photographer's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intensity: Option<String>,
}

/// `NAME=DIRECTION[:INTENSITY]`; the last colon divides.
impl std::str::FromStr for Vector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = "write it like tone=\"more dramatic, open shadows\" or color=\"warmer\":subtle";
        let (name, rest) = text.split_once('=').ok_or_else(|| example.to_owned())?;
        let name: VectorName = name.trim().parse().map_err(|e: base::ids::InvalidName| e.to_string())?;
        let (direction, intensity) = rest.rsplit_once(':').unwrap_or((rest, ""));
        let unquoted = |text: &str| text.trim().trim_matches('"').trim().to_owned();
        let (direction, intensity) = (unquoted(direction), unquoted(intensity));
        if direction.is_empty() {
            return Err(format!("it says no direction: {example}"));
        }
        Ok(Self { name, direction, intensity: (!intensity.is_empty()).then_some(intensity) })
    }
}

/// A vector with the branch that will hold it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedBranch {
    /// The branch.
    pub branch: RefName,
    /// The vector, or `None` for an open-ended depth branch.
    pub vector: Option<Vector>,
}

/// The header line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionStart {
    /// The session's id.
    pub session: String,
    /// `mode_b`.
    pub mode: String,
    /// The photo.
    pub photo: String,
    /// SHA-256 of the raw.
    pub raw_sha256: Hash,
    /// The commit that the session forks from.
    pub baseline: Hash,
    /// How it was named.
    pub baseline_ref: String,
    /// The photographer's brief.
    pub brief: String,
    /// What to judge by.
    pub criteria: String,
    /// The branches to make, in order.
    pub branches: Vec<PlannedBranch>,
    /// The caps.
    pub budget: Budget,
    /// The slice kept for the wrap-up.
    pub reserve: Reserve,
    /// The provider's name.
    pub provider: String,
    /// The model asked for.
    pub model: String,
    /// Prompt name, version and hash.
    pub prompt: String,
    /// SHA-256 of the template.
    pub template_sha256: Hash,
    /// The rendered system prompt: a blob.
    pub system: Hash,
    /// The tool list: a blob.
    pub tools: Hash,
    /// Longest side of previews, in pixels.
    pub preview_edge: u32,
    /// By how much the copy of the raw is smaller that previews come from; none, and they come from the raw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<u32>,
    /// Whether nobody is at the keyboard.
    pub unattended: bool,
    /// The seed.
    pub seed: u64,
    /// Version of darktable.
    pub darktable: String,
    /// Version of this program.
    pub chemigram: String,
    /// The protocol that steers it, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<ProtocolStart>,
    /// Who gives a second opinion, if anyone does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub referee: Option<RefereeStart>,
}

/// The protocol of a session, as it was loaded: loaded again in the same way it is the same protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProtocolStart {
    /// Its name.
    pub name: String,
    /// Its file's name, which says how it is written.
    pub file: String,
    /// Its text: a blob.
    pub source: Hash,
    /// The values of its variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, VariableValue>,
    /// The tools that the host allowed; every one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<Vec<String>>,
}

/// A value of a protocol's variable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VariableValue {
    /// The value.
    pub value: Value,
    /// Who gave it: `host`, `user` or `image`.
    pub by: String,
}

/// Who gives second opinions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefereeStart {
    /// Its provider; `offline` for the one that works from numbers alone.
    pub provider: String,
    /// Its model.
    pub model: String,
}

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

/// What a tool does to the world; decides gate, lease and retry safety.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// Looks only.
    Read,
    /// Needs pictures.
    Render,
    /// Changes the workspace.
    Mutate,
    /// Moves the session itself along.
    Lifecycle,
}

/// Where a session stands: its own head, never the photo's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadState {
    /// The branch, if one is checked out.
    pub branch: Option<RefName>,
    /// The commit.
    pub commit: Hash,
    /// Its state.
    pub state: Hash,
}

/// A tool call that was let through the gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolIntent {
    /// The call as the model made it.
    pub call: ToolCall,
    /// What it does.
    pub class: EffectClass,
    /// What it may spend.
    pub reserved: Amounts,
    /// Where the session stood before it.
    pub before: HeadState,
    /// Where the branch that it names pointed before it (`None`: it did not exist), for recovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<(RefName, Option<Hash>)>,
    /// Whether the engine made it because the protocol says so, and not the model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub engine: bool,
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

/// Something a judgment's reader should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The agent ended it.
    Completed,
    /// A cap ended it.
    BudgetExhausted,
    /// The agent asked, and nobody was there to answer.
    NeedsClarification,
    /// The photographer ended it.
    Cancelled,
    /// The provider could not go on.
    ProviderFailed,
    /// The engine could not go on.
    EngineFailed,
    /// The protocol came to an end that it does not call a success.
    ProtocolFailed,
    /// There is no closing line.
    Interrupted,
}

impl Outcome {
    /// The name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::BudgetExhausted => "budget_exhausted",
            Self::NeedsClarification => "needs_clarification",
            Self::Cancelled => "cancelled",
            Self::ProviderFailed => "provider_failed",
            Self::EngineFailed => "engine_failed",
            Self::ProtocolFailed => "protocol_failed",
            Self::Interrupted => "interrupted",
        }
    }

    /// The process exit status. A spent budget with at least one branch judged by the agent is a harvest.
    pub fn exit_status(self, harvest: bool) -> u8 {
        match self {
            Self::Completed => 0,
            Self::BudgetExhausted => {
                if harvest {
                    0
                } else {
                    20
                }
            }
            Self::NeedsClarification => 21,
            Self::Cancelled => 22,
            Self::ProviderFailed => 23,
            Self::EngineFailed => 24,
            Self::Interrupted => 25,
            Self::ProtocolFailed => 26,
        }
    }
}

/// The closing line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionEnd {
    /// How.
    pub outcome: Outcome,
    /// The cap that fired, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<Exhausted>,
    /// The agent's summary across branches.
    pub summary: String,
    /// What was spent.
    pub spent: Amounts,
    /// Of that, charged in full because a crash hid the outcome.
    pub assumed: Amounts,
    /// Session time in milliseconds, split into the model's, darktable's, and the rest.
    pub wall_ms: u64,
    /// Waiting for the model.
    pub model_ms: u64,
    /// Waiting for darktable.
    pub render_ms: u64,
    /// Lines before this one.
    pub lines: u64,
    /// Why, when it was not the agent's own end.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// A question to the referee that was let through the gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RefereeIntent {
    /// The branch that it is about, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<RefName>,
    /// The state of the picture that it is about.
    pub state: Hash,
    /// The other picture's state, for a comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<Hash>,
    /// 1, or 2 when a pair is shown the other way round.
    pub order: u8,
    /// How often the pair is shown in all.
    pub orders: u8,
    /// Attempt at this question, from 1.
    pub attempt: u32,
    /// The worst case.
    pub reserved: Amounts,
    /// What is sent: a blob; absent when no model is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Hash>,
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
    ModelIntent {
        /// Model turn, from 1.
        turn: u64,
        /// Attempt in this turn, from 1.
        attempt: u32,
        /// The worst case.
        reserved: Amounts,
        /// Cap on the reply.
        max_output_tokens: u32,
        /// Messages sent.
        messages: u64,
        /// What must be left for the call that closes the session after this one.
        #[serde(default, skip_serializing_if = "Reserve::is_nothing")]
        keep: Reserve,
    },
    /// The attempt failed.
    Attempt {
        /// Line of the intent.
        intent: u64,
        /// Class of the failure.
        class: String,
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
        /// Where the session stands now.
        head: HeadState,
        /// Time it took.
        ms: u64,
    },
    /// A render is about to start.
    RenderIntent {
        /// State to render.
        state: Hash,
        /// Longest side.
        long_edge: u32,
        /// Quality level.
        quality: String,
        /// One render; nothing while nobody has asked for the picture.
        reserved: Amounts,
        /// Begun before anyone asked for the picture.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        ahead: bool,
        /// Line of the intent that began this picture ahead: it is paid for now that it is asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        joins: Option<u64>,
        /// Time that it is expected to take, by earlier renders of its kind.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        estimate_ms: Option<u64>,
    },
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
        quality: String,
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
        /// `taste` or `notes`.
        target: String,
        /// The text.
        text: String,
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
        reason: String,
        /// What the model is told.
        text: String,
    },
    /// The model is told something between its turns.
    Nudge {
        /// The user message.
        text: String,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_a_name_a_direction_and_perhaps_an_intensity() {
        let read = |text: &str| text.parse().map(|v: Vector| (v.name.to_string(), v.direction, v.intensity));
        let some = |a: &str, b: &str, c: Option<&str>| Ok((a.into(), b.into(), c.map(Into::into)));
        assert_eq!(read("tone=more dramatic, open"), some("tone", "more dramatic, open", None));
        assert_eq!(read("color=warmer:subtle"), some("color", "warmer", Some("subtle")));
        assert_eq!(read("color=\"warmer\":\"very subtle\""), some("color", "warmer", Some("very subtle")));
        assert_eq!(read("a=like this: evening:"), some("a", "like this: evening", None));
        for bad in ["tone", "Tone=x", "=x", "tone=", "tone= :strong"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
