//! What is said before an effect. The gate gives a permit for nothing else.

use serde::{Deserialize, Serialize};

use crate::budget::{Amounts, Reserve};
use crate::conversation::ToolCall;
use base::ids::{Hash, RefName};
use darktable::render::Quality;

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

impl EffectClass {
    /// Whether it holds the lease: judging may set an abandoned branch back, so a lifecycle call does too.
    pub fn mutates(self) -> bool {
        matches!(self, Self::Mutate | Self::Lifecycle)
    }
}

/// A session's own head, never the photo's.
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

/// An attempt at a model call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelIntent {
    /// Model turn, from 1.
    pub turn: u64,
    /// Attempt in this turn, from 1.
    pub attempt: u32,
    /// The worst case.
    pub reserved: Amounts,
    /// Cap on the reply.
    pub max_output_tokens: u32,
    /// Messages sent.
    pub messages: u64,
    /// What must be left for the call that closes the session after this one.
    #[serde(default, skip_serializing_if = "Reserve::is_nothing")]
    pub keep: Reserve,
}

/// A question to the provider that costs nothing: how many input tokens the next call has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountIntent {
    /// The bound on them, from their bytes.
    pub most: u64,
}

/// A render.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RenderIntent {
    /// State to render.
    pub state: Hash,
    /// Longest side.
    pub long_edge: u32,
    /// Quality level.
    pub quality: Quality,
    /// One render; nothing while nobody has asked for the picture.
    pub reserved: Amounts,
    /// Begun before anyone asked for the picture.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ahead: bool,
    /// Line of the intent that began this picture ahead: it is paid for now that it is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joins: Option<u64>,
    /// Time that it is expected to take, by earlier renders of its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate_ms: Option<u64>,
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
