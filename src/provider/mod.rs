//! Wires to language models. One neutral conversation, one adapter a dialect, one attempt a call:
//! retrying is the session's business, because every attempt needs a permit.

mod cassette;
pub mod classify;
pub mod dialect;
pub mod explorer;
mod fenced;
pub mod http;
mod json;
mod key;
pub mod limits;
pub mod local;
pub mod manual;
pub mod profile;
mod registry;
pub mod reply;
pub mod script;
pub mod sse;

pub(crate) use cassette::REFEREE;
pub use cassette::Recording;
pub use limits::Refill;
pub use registry::{Choice, Registry, connect, named};

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use crate::conversation::{
    Finish, ImageRef, Message, OpaqueBlock, ToolCall, ToolResult, ToolSpec, Usage,
};
pub use crate::transcript::FaultClass;

use crate::gate::{ModelCall, Permit, TokenCount};

use base::error::{Coded, ErrorCode};
use base::ids::Hash;

/// Where the bytes of pictures come from.
pub trait Blobs: Send + Sync {
    /// The bytes of a blob.
    fn bytes(&self, name: &Hash) -> std::io::Result<Vec<u8>>;
}

/// One request. Everything in it is frozen for the session but the messages, which only grow within a chapter.
#[derive(Clone, Copy)]
pub struct ModelRequest<'a> {
    /// The model's id at the provider.
    pub model: &'a str,
    /// The system prompt.
    pub system: &'a str,
    /// The tools, sorted by name.
    pub tools: &'a [ToolSpec],
    /// The conversation.
    pub messages: &'a [Message],
    /// How many replies of the model are in chapters before this one.
    pub earlier: u64,
    /// Upper bound of the reply in tokens.
    pub max_output_tokens: u32,
    /// The session id: a cache key for providers that take one.
    pub session: &'a str,
    /// The seed, for providers that take one.
    pub seed: Option<u64>,
    /// Bytes of the pictures.
    pub blobs: &'a dyn Blobs,
    /// How long the reply is waited for, where that is known.
    pub time_left: Option<Duration>,
    /// Called with each sign of life: letters so far, hidden reasoning included, and the text of the reply so far.
    pub on_progress: &'a (dyn Fn(usize, &str) + Send + Sync),
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
    /// Whether the model may have worked on it: what was sent and neither refused nor reported is charged at
    /// its worst case.
    pub sent: bool,
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

/// The future of a count.
pub type Count<'a> = Pin<Box<dyn Future<Output = Option<u64>> + Send + 'a>>;

/// A language model, or something that answers like one. One call of [`Provider::attempt`] is one request
/// on the wire, no more; cancelling is dropping the future.
pub trait Provider: Send + Sync {
    /// Facts about the model.
    fn info(&self) -> &ModelInfo;

    /// What a person has to know, or to do, for it to answer.
    fn notice(&self) -> Option<String> {
        None
    }

    /// The pause that its last reply asks for before a call that sends `sent` tokens, of which `fresh` are in no cache.
    /// It is told once; whoever does not wait finds out by a refusal.
    fn refill(&self, _sent: u64, _fresh: u64) -> Option<Refill> {
        None
    }

    /// Whether it can be asked how many input tokens a request has, which costs nothing.
    fn counts(&self) -> bool {
        false
    }

    /// How many input tokens the request has, which uses up the permit; `None` where the provider has no answer.
    fn count<'a>(&'a self, _permit: Permit<TokenCount>, _request: &'a ModelRequest<'a>) -> Count<'a> {
        Box::pin(std::future::ready(None))
    }

    /// Makes one attempt, which uses up the permit.
    fn attempt<'a>(&'a self, permit: Permit<ModelCall>, request: &'a ModelRequest<'a>) -> Attempt<'a>;
}
