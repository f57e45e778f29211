//! The languages that are spoken over HTTP, one file each: how a request is written, and how what comes back is read.
//!
//! Replies end in one [`Draft`], whatever their dialect, so that ids, calls written as text, usage and reasons to stop
//! are treated in one place.

pub mod chat_completions;
mod messages;
mod responses;

use std::fmt::Display;
use std::io::{self, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image::codecs::jpeg::JpegEncoder;
use image::imageops::FilterType;
use serde_json::{Map, Value, json};

use super::profile::{Dialect, ImageRules, Wire};
use super::reply::Draft;
use super::{ImageRef, Message, ModelRequest, OpaqueBlock};

/// The JPEG quality of a picture that is made smaller.
const QUALITY: u8 = 92;

/// How one model behind one provider wants its requests.
#[derive(Clone, Debug)]
pub struct WireConfig {
    /// What it speaks.
    pub dialect: Dialect,
    /// Provider and model: the origin of opaque blocks, which go back to no other.
    pub origin: String,
    /// Whether the model sees pictures; one that does not gets none.
    pub vision: bool,
    /// Quirks of the server.
    pub wire: Wire,
    /// What it wants of pictures.
    pub image: ImageRules,
    /// Fields of the body that only this model wants.
    pub model_body: Map<String, Value>,
}

/// The request body, as JSON, the conversation last. It is written message by message: as a tree of values, a long
/// conversation would take a multiple of its text.
///
/// # Errors
/// A picture's bytes that cannot be read.
pub fn request_body(config: &WireConfig, request: &ModelRequest<'_>) -> io::Result<Vec<u8>> {
    body(config, request, |_| true)
}

/// The body of a question for the input tokens of that request.
pub fn count_body(config: &WireConfig, request: &ModelRequest<'_>) -> io::Result<Vec<u8>> {
    body(config, request, |setting| COUNTED.contains(&setting))
}

/// The settings that a question for input tokens takes, in Messages and in Responses; others are refused.
const COUNTED: [&str; 9] = [
    "model",
    "system",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "thinking",
    "reasoning",
    "output_config",
];

fn body(
    config: &WireConfig,
    request: &ModelRequest<'_>,
    takes: impl Fn(&str) -> bool,
) -> io::Result<Vec<u8>> {
    let (mut settings, list) = match config.dialect {
        Dialect::Responses => (responses::settings(config, request), "input"),
        Dialect::Messages => (messages::settings(config, request), "messages"),
        _ => (chat_completions::settings(config, request)?, "messages"),
    };
    for (key, value) in config.wire.body.iter().chain(&config.model_body) {
        settings.insert(key.clone(), value.clone());
    }
    settings.retain(|setting, _| takes(setting));
    let mut body = serde_json::to_vec(&settings)?;
    // In place of the closing brace.
    body.pop();
    body.extend_from_slice(format!(",\"{list}\":").as_bytes());
    let mut before = '[';
    let mut put = |json: &dyn Display| {
        write!(body, "{before}{json}")?;
        before = ',';
        Ok(())
    };
    match config.dialect {
        Dialect::Responses => responses::each_item(config, request, &mut put)?,
        Dialect::Messages => messages::each_message(config, request, &mut put)?,
        _ => chat_completions::each_message(config, request, &mut put)?,
    }
    body.extend_from_slice(b"]}");
    Ok(body)
}

/// Takes the next message of the list, as JSON.
type Put<'a> = dyn FnMut(&dyn Display) -> io::Result<()> + 'a;

/// What a piece of a reply means for its reading.
pub(super) enum Step {
    /// More is to come.
    More,
    /// The reply is whole.
    Done,
    /// The server reports an error, which this holds.
    Failed(Value),
}

/// A reply being read, in its dialect.
#[derive(Debug, Default)]
pub(super) enum Reading {
    #[default]
    ChatCompletions,
    Responses(responses::Reading),
    Messages(messages::Reading),
}

impl Reading {
    pub(super) fn new(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Responses => Self::Responses(responses::Reading::default()),
            Dialect::Messages => Self::Messages(messages::Reading::default()),
            _ => Self::ChatCompletions,
        }
    }

    /// Takes an event of a stream, or a whole body: its text, and its value.
    pub(super) fn take(&mut self, text: &str, value: &Value, draft: &mut Draft) -> Step {
        match self {
            Self::ChatCompletions => chat_completions::take(value, draft),
            Self::Responses(reading) => reading.take(text, value, draft),
            Self::Messages(reading) => reading.take(value, draft),
        }
    }
}

/// One piece of a reply in the words of Chat Completions, which a draft is written in.
fn delta(draft: &mut Draft, delta: &Value) {
    draft.absorb(&json!({"choices": [{"delta": delta}]}));
}

/// The error in a body that is neither an event nor a reply.
fn stray_error(value: &Value) -> Step {
    let error = value.get("error").is_some_and(|e| !e.is_null());
    if error || value.get("message").or_else(|| value.get("detail")).is_some_and(Value::is_string) {
        Step::Failed(value.clone())
    } else {
        Step::More
    }
}

/// The parts of a reply of this very model in their order, if it had parts that must go back in theirs: `text`, `call`
/// (the index of a call) or `item`, which goes back as it came (in Responses its very text, as a string).
fn layout<'a>(config: &WireConfig, opaque: &'a [OpaqueBlock]) -> Option<&'a Vec<Value>> {
    opaque.iter().filter(|o| o.origin == config.origin).find_map(|o| o.block.get("parts")?.as_array())
}

/// The bytes of a picture as text, made smaller where it is larger than is worth sending.
fn encoded(config: &WireConfig, request: &ModelRequest<'_>, shown: &ImageRef) -> io::Result<String> {
    Ok(STANDARD.encode(fitted(request.blobs.bytes(&shown.sha256)?, shown, config.image.max_edge)?))
}

/// The bytes of a picture, made smaller where it is larger than is worth sending. The same picture comes out the
/// same, because provider caches key on the bytes.
fn fitted(bytes: Vec<u8>, shown: &ImageRef, max_edge: u32) -> io::Result<Vec<u8>> {
    if shown.width.max(shown.height) <= max_edge || max_edge == 0 {
        return Ok(bytes);
    }
    let picture = image::load_from_memory(&bytes).map_err(io::Error::other)?;
    let picture = picture.resize(max_edge, max_edge, FilterType::CatmullRom).into_rgb8();
    let mut small = Vec::new();
    picture
        .write_with_encoder(JpegEncoder::new_with_quality(&mut small, QUALITY))
        .map_err(io::Error::other)?;
    Ok(small)
}

/// The arguments of a call as they may go back: a server that refuses broken ones refuses every request from there on.
fn legal_arguments(arguments: &str) -> &str {
    if serde_json::from_str::<Map<String, Value>>(arguments).is_ok() { arguments } else { "{}" }
}

/// A tool's name as it may go back.
fn legal_name(name: &str) -> String {
    let mut legal: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' })
        .take(64)
        .collect();
    if legal.is_empty() {
        legal.push_str("unnamed");
    }
    legal
}

#[cfg(test)]
mod tests;
