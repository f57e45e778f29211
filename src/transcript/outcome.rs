//! How a session ended.

use serde::{Deserialize, Serialize};

use crate::budget::{Amounts, Exhausted};

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
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

/// The exit status of what ended well and left no branch that is worth looking at.
pub const NOTHING_USEFUL: u8 = 28;

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

    /// The process exit status. A session that ran out of budget is a success if the agent judged a branch
    /// (`judged`).
    pub fn exit_status(self, judged: bool) -> u8 {
        match self {
            Self::Completed => 0,
            Self::BudgetExhausted if judged => 0,
            Self::BudgetExhausted => 20,
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
