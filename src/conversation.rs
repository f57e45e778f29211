//! The provider-neutral conversation: what is said between host and model, as the transcript keeps it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use base::ids::Hash;

/// A tool as the model sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of the arguments: an object, `additionalProperties: false`.
    pub parameters: Value,
}

/// A picture in the conversation. The bytes live in the session's blob store, never in the transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImageRef {
    /// SHA-256 of the encoded bytes: the blob's name.
    pub sha256: Hash,
    /// `image/jpeg`.
    pub media_type: String,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Encoded size.
    pub bytes: u64,
    /// One line that says what it shows.
    pub caption: String,
}

/// One call the model makes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The provider's id, unique in the conversation.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments exactly as the model wrote them (JSON text, perhaps broken).
    pub arguments: String,
    /// Fields of the call that we do not know, echoed back untouched.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

/// The one result of one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// [`ToolCall::id`].
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// What the model reads: JSON text, its last line the remaining budget.
    pub text: String,
    /// Pictures that belong to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageRef>,
    /// Whether the call failed or was refused.
    #[serde(default)]
    pub is_error: bool,
    /// What was measured in full, by the fields of the answer's data: for a policy that is a program. No model is sent
    /// it, and a transcript of before has it in `text`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub figures: Map<String, Value>,
}

/// One message of the neutral conversation, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// From the host.
    User {
        /// The text.
        text: String,
        /// Pictures shown with it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<ImageRef>,
    },
    /// From the model.
    Assistant {
        /// What it said besides its calls; may be empty.
        text: String,
        /// Its calls, in order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ToolCall>,
        /// Blocks that only their origin understands (signed reasoning…), echoed to that origin alone.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        opaque: Vec<OpaqueBlock>,
    },
    /// The results of all calls of the assistant message before it, in call order.
    Results {
        /// One a call.
        results: Vec<ToolResult>,
    },
}

/// A block of a reply that only one provider understands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpaqueBlock {
    /// Provider and model that made it.
    pub origin: String,
    /// The block as it came.
    pub block: Value,
}

/// Tokens in four disjoint counters; `None` is "not reported", never zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Input that was neither read from nor written to a cache.
    pub input_fresh: Option<u64>,
    /// Input read from the provider's cache.
    pub input_cache_read: Option<u64>,
    /// Input written to the provider's cache.
    pub input_cache_write: Option<u64>,
    /// Output, reasoning included.
    pub output: Option<u64>,
    /// Of the output, reasoning.
    pub reasoning: Option<u64>,
}

impl Usage {
    /// All tokens reported; `None` when nothing was.
    pub fn total(&self) -> Option<u64> {
        let parts = [self.input_fresh, self.input_cache_read, self.input_cache_write, self.output];
        parts.iter().flatten().copied().reduce(u64::saturating_add)
    }
}

/// Why a reply ended. Unknown reasons are kept as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model was done talking.
    Stop,
    /// It wants its calls answered.
    ToolCalls,
    /// It ran into `max_output_tokens`.
    Length,
    /// The provider or model refused.
    Refusal,
    /// Anything else, as the provider said it.
    Other(String),
}

impl Finish {
    /// Whether the model goes on where it was as soon as it is called again.
    pub fn is_pause(&self) -> bool {
        matches!(self, Self::Other(reason) if reason == "pause_turn")
    }
}

impl Message {
    /// Bytes of text in it, pictures not counted.
    pub fn text_bytes(&self) -> usize {
        match self {
            Self::User { text, .. } => text.len(),
            Self::Assistant { text, calls, opaque } => {
                text.len()
                    + calls.iter().map(|c| c.name.len() + c.arguments.len() + c.id.len()).sum::<usize>()
                    + opaque.iter().map(|o| o.block.to_string().len()).sum::<usize>()
            }
            Self::Results { results } => results.iter().map(|r| r.text.len() + r.call_id.len()).sum(),
        }
    }

    /// Bytes that the model wrote: text and calls. Ids are the server's, and a sealed block may be longer than what
    /// was thought.
    pub fn written_bytes(&self) -> usize {
        match self {
            Self::Assistant { text, calls, .. } => {
                text.len() + calls.iter().map(|call| call.name.len() + call.arguments.len()).sum::<usize>()
            }
            Self::User { .. } | Self::Results { .. } => 0,
        }
    }

    /// Pictures in it.
    pub fn pictures(&self) -> impl Iterator<Item = &ImageRef> {
        let (shown, results): (&[ImageRef], &[ToolResult]) = match self {
            Self::User { images, .. } => (images, &[]),
            Self::Assistant { .. } => (&[], &[]),
            Self::Results { results } => (&[], results),
        };
        shown.iter().chain(results.iter().flat_map(|result| &result.images))
    }
}
