//! Wires to language models. One neutral conversation, one adapter a dialect, one attempt a call:
//! retrying is the session's business, because every attempt needs a permit.

pub mod check;
pub mod classify;
mod fenced;
mod key;
pub mod openai_chat;
pub mod profile;
mod registry;
pub mod script;
pub mod sse;
pub mod wire;

pub use registry::{BASE_URL_ENV, Choice, Registry, connect};

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::{Coded, ErrorCode};
use crate::ids::Hash;

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

/// Where the bytes of pictures come from.
pub trait Blobs: Send + Sync {
    /// The bytes of a blob.
    fn bytes(&self, name: &Hash) -> std::io::Result<Vec<u8>>;
}

/// One request. Everything in it is frozen for the session but the messages, which only grow.
pub struct ModelRequest<'a> {
    /// The model's id at the provider.
    pub model: &'a str,
    /// The system prompt.
    pub system: &'a str,
    /// The tools, sorted by name.
    pub tools: &'a [ToolSpec],
    /// The conversation.
    pub messages: &'a [Message],
    /// Upper bound of the reply in tokens.
    pub max_output_tokens: u32,
    /// The session id: a cache key for providers that take one.
    pub session: &'a str,
    /// The seed, for providers that take one.
    pub seed: Option<u64>,
    /// Bytes of the pictures.
    pub blobs: &'a dyn Blobs,
    /// Called with each sign of life (total tokens or characters so far), for progress.
    pub on_progress: &'a (dyn Fn(usize) + Send + Sync),
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

/// One whole reply.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelReply {
    /// Text, calls and opaque blocks; always [`Message::Assistant`].
    pub message: Message,
    /// Why it ended.
    pub finish: Finish,
    /// Tokens.
    pub usage: Usage,
    /// Money in micro-dollars, where the provider itself reports it.
    pub cost_micro_usd: Option<u64>,
    /// The model that answered, as it names itself.
    pub model_served: Option<String>,
    /// The raw body, kept before anything was decoded (streamed bodies as they came).
    pub raw: Vec<u8>,
    /// Time to the first byte of the body.
    pub first_byte: Option<Duration>,
    /// Things worth a transcript note (a fenced call accepted, broken JSON repaired…).
    pub notes: Vec<String>,
}

/// How a failed attempt is to be treated.
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
    /// The deadline cut it.
    Deadline,
}

impl FaultClass {
    /// Whether another attempt may help.
    pub fn retryable(self) -> bool {
        matches!(self, Self::RateLimit | Self::Transient | Self::Transport | Self::Garbage)
    }
}

/// An attempt that brought no reply.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{provider}: {message}")]
pub struct ProviderFault {
    /// The provider's name.
    pub provider: String,
    /// The class.
    pub class: FaultClass,
    /// HTTP status, if one came.
    pub status: Option<u16>,
    /// Cause in words, free of keys.
    pub message: String,
    /// What a person can do about it.
    pub remedy: Option<String>,
    /// The least pause before the next attempt that the provider asks for.
    pub retry_after: Option<Duration>,
    /// Tokens that were reported although the attempt failed (they are charged).
    pub usage: Usage,
    /// Whatever body came.
    pub raw: Vec<u8>,
}

impl Coded for ProviderFault {
    fn code(&self) -> ErrorCode {
        ErrorCode::ProviderError
    }

    fn remedy(&self) -> Option<String> {
        self.remedy.clone()
    }
}

/// Prices in micro-dollars per million tokens; each may be unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    /// Fresh input.
    pub input: Option<u64>,
    /// Output.
    pub output: Option<u64>,
    /// Cache read.
    pub cache_read: Option<u64>,
    /// Cache write.
    pub cache_write: Option<u64>,
}

/// What the host must know of the model behind a provider.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// The provider's name.
    pub provider: String,
    /// The model's id.
    pub model: String,
    /// Whether it can see pictures.
    pub vision: bool,
    /// Context window in tokens, if known.
    pub context: Option<u64>,
    /// Whether calls are free by nature (explorer, script, a local server).
    pub free: bool,
    /// Prices.
    pub price: Price,
    /// Tokens charged for one picture of the usual preview size: an upper bound.
    pub image_tokens: u64,
    /// Anything a manifest should record (base URL host, API version…).
    pub facts: BTreeMap<String, String>,
}

/// The future of one attempt.
pub type Attempt<'a> = Pin<Box<dyn Future<Output = Result<ModelReply, ProviderFault>> + Send + 'a>>;

/// A language model, or something that answers like one. One call of [`Provider::attempt`] is one request
/// on the wire, no more; cancelling is dropping the future.
pub trait Provider: Send + Sync {
    /// Facts about the model.
    fn info(&self) -> &ModelInfo;

    /// Makes one attempt. The caller holds a permit for it.
    fn attempt<'a>(&'a self, request: &'a ModelRequest<'a>) -> Attempt<'a>;
}
