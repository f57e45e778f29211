//! Chat Completions on the wire: the request as it is sent, the reply as it comes in pieces.
//!
//! The request is built with `async-openai`'s types where they say what we mean; an assistant message is
//! plain JSON, because unknown fields of its calls must be echoed. What was sent once is sent again byte
//! for byte and only appended to, because provider caches key on the prefix.
//!
//! Replies are read by hand from JSON values: servers that imitate this interface leave out ids, types and
//! counts, send arguments as objects and content as lists, and a strict decoder would lose a paid reply.

use std::collections::HashSet;
use std::io;

use async_openai::types::chat::{
    ChatCompletionRequestMessage, ChatCompletionRequestMessageContentPartImage,
    ChatCompletionRequestMessageContentPartText, ChatCompletionRequestSystemMessage,
    ChatCompletionRequestToolMessage, ChatCompletionRequestUserMessage,
    ChatCompletionRequestUserMessageContent, ChatCompletionRequestUserMessageContentPart, ChatCompletionTool,
    ChatCompletionTools, FunctionObject, ImageUrl,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::profile::{ImageDetail, ImageRules, MaxTokensField, Wire, micro_usd};
use super::{Finish, ImageRef, Message, ModelRequest, ToolCall, ToolResult, Usage, fenced};

/// Builds the request body. `model_body` holds the fields that only this model wants.
///
/// # Errors
/// A picture's bytes that cannot be read.
pub fn request_body(
    wire: &Wire,
    image: &ImageRules,
    model_body: &Map<String, Value>,
    vision: bool,
    request: &ModelRequest<'_>,
) -> io::Result<Value> {
    let mut body = Map::new();
    let mut set = |key: &str, value: Value| body.insert(key.to_owned(), value);
    set("model", request.model.into());
    set("messages", Value::Array(messages(image, vision, request)?));
    if !request.tools.is_empty() {
        let tools: Vec<ChatCompletionTools> = request
            .tools
            .iter()
            .map(|tool| {
                ChatCompletionTools::Function(ChatCompletionTool {
                    function: FunctionObject {
                        name: tool.name.clone(),
                        description: Some(tool.description.clone()),
                        parameters: Some(tool.parameters.clone()),
                        strict: None,
                    },
                })
            })
            .collect();
        set("tools", serde_json::to_value(tools)?);
        if let Some(choice) = &wire.tool_choice {
            set("tool_choice", choice.as_str().into());
        }
        if let Some(parallel) = wire.parallel_tool_calls {
            set("parallel_tool_calls", parallel.into());
        }
    }
    let bound = match wire.max_tokens_field {
        MaxTokensField::MaxTokens => "max_tokens",
        MaxTokensField::MaxCompletionTokens => "max_completion_tokens",
    };
    set(bound, request.max_output_tokens.into());
    if wire.stream {
        set("stream", true.into());
        if wire.stream_usage {
            set("stream_options", json!({"include_usage": true}));
        }
    }
    if wire.prompt_cache_key {
        set("prompt_cache_key", request.session.into());
    }
    if let Some(seed) = request.seed.filter(|_| wire.seed) {
        set("seed", seed.into());
    }
    for (key, value) in wire.body.iter().chain(model_body) {
        set(key, value.clone());
    }
    Ok(Value::Object(body))
}

fn messages(image: &ImageRules, vision: bool, request: &ModelRequest<'_>) -> io::Result<Vec<Value>> {
    let typed = |message: ChatCompletionRequestMessage| serde_json::to_value(message);
    let mut out = vec![typed(ChatCompletionRequestMessage::System(ChatCompletionRequestSystemMessage {
        content: request.system.into(),
        name: None,
    }))?];
    let picture = |shown: &ImageRef| -> io::Result<ChatCompletionRequestUserMessageContentPart> {
        let bytes = request.blobs.bytes(&shown.sha256)?;
        let url = format!("data:{};base64,{}", shown.media_type, STANDARD.encode(bytes));
        Ok(ChatCompletionRequestUserMessageContentPart::ImageUrl(
            ChatCompletionRequestMessageContentPartImage {
                image_url: ImageUrl { url, detail: image.detail.map(detail) },
                prompt_cache_breakpoint: None,
            },
        ))
    };
    for message in request.messages {
        match message {
            Message::User { text, images } => {
                let mut parts = vec![text_part(text.clone())];
                for shown in images.iter().filter(|_| vision) {
                    parts.push(text_part(shown.caption.clone()));
                    parts.push(picture(shown)?);
                }
                let content = if parts.len() == 1 {
                    ChatCompletionRequestUserMessageContent::Text(text.clone())
                } else {
                    ChatCompletionRequestUserMessageContent::Array(parts)
                };
                out.push(typed(user(content))?);
            }
            Message::Assistant { text, calls, .. } => out.push(assistant(text, calls)),
            Message::Results { results } => {
                for ToolResult { call_id, text, .. } in results {
                    out.push(typed(ChatCompletionRequestMessage::Tool(ChatCompletionRequestToolMessage {
                        content: text.as_str().into(),
                        tool_call_id: call_id.clone(),
                    }))?);
                }
                let mut parts = Vec::new();
                for result in results.iter().filter(|_| vision) {
                    for shown in &result.images {
                        let caption = format!("Picture of call {}: {}", result.call_id, shown.caption);
                        parts.push(text_part(caption));
                        parts.push(picture(shown)?);
                    }
                }
                if !parts.is_empty() {
                    out.push(typed(user(ChatCompletionRequestUserMessageContent::Array(parts)))?);
                }
            }
        }
    }
    Ok(out)
}

fn user(content: ChatCompletionRequestUserMessageContent) -> ChatCompletionRequestMessage {
    ChatCompletionRequestMessage::User(ChatCompletionRequestUserMessage { content, name: None })
}

fn text_part(text: String) -> ChatCompletionRequestUserMessageContentPart {
    ChatCompletionRequestUserMessageContentPart::Text(ChatCompletionRequestMessageContentPartText {
        text,
        prompt_cache_breakpoint: None,
    })
}

fn detail(detail: ImageDetail) -> async_openai::types::chat::ImageDetail {
    use async_openai::types::chat::ImageDetail as Wire;
    match detail {
        ImageDetail::Auto => Wire::Auto,
        ImageDetail::Low => Wire::Low,
        ImageDetail::High => Wire::High,
        ImageDetail::Original => Wire::Original,
    }
}

/// An assistant message as it goes back. Its parts are made legal, since a server that refuses one refuses
/// every request from there on: broken arguments become `{}`, odd names lose their odd letters, and a
/// message without anything says so.
fn assistant(text: &str, calls: &[ToolCall]) -> Value {
    let content = match (text, calls) {
        ("", []) => Value::from("(empty reply)"),
        ("", _) => Value::Null,
        (text, _) => Value::from(text),
    };
    let mut message = json!({"role": "assistant", "content": content});
    if !calls.is_empty() {
        message["tool_calls"] = calls.iter().map(replay).collect();
    }
    message
}

fn replay(call: &ToolCall) -> Value {
    let legal = serde_json::from_str::<Map<String, Value>>(&call.arguments).is_ok();
    let arguments = if legal { call.arguments.as_str() } else { "{}" };
    let mut name: String = call
        .name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' })
        .take(64)
        .collect();
    if name.is_empty() {
        name.push_str("unnamed");
    }
    let mut entry = Map::from_iter(call.extra.clone());
    entry.insert("id".to_owned(), call.id.as_str().into());
    entry.insert("type".to_owned(), "function".into());
    entry.insert("function".to_owned(), json!({"name": name, "arguments": arguments}));
    Value::Object(entry)
}

/// A reply as far as it has come: one whole body, or the pieces of a stream.
#[derive(Debug, Default)]
pub struct Draft {
    text: String,
    refusal: String,
    calls: Vec<DraftCall>,
    finish: Option<String>,
    usage: Usage,
    cost: Option<u64>,
    model: Option<String>,
    any_choice: bool,
    size: usize,
}

#[derive(Debug, Default)]
struct DraftCall {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    extra: Map<String, Value>,
}

/// A finished [`Draft`].
#[derive(Debug)]
pub struct Decoded {
    /// Always [`Message::Assistant`].
    pub message: Message,
    /// Why it ended.
    pub finish: Finish,
    /// Tokens.
    pub usage: Usage,
    /// Money in micro-dollars, where reported.
    pub cost_micro_usd: Option<u64>,
    /// The model as it names itself.
    pub model_served: Option<String>,
    /// What was put right.
    pub notes: Vec<String>,
}

impl Draft {
    /// Takes one chunk of a stream, or a whole body, whose message is then one large chunk.
    pub fn absorb(&mut self, chunk: &Value) {
        if let Some(model) = chunk.get("model").and_then(Value::as_str).filter(|m| !m.is_empty()) {
            self.model = Some(model.to_owned());
        }
        if let Some(usage) = chunk.get("usage") {
            self.take_usage(usage);
        }
        let Some(choice) = chunk.get("choices").and_then(|c| c.get(0)) else { return };
        self.any_choice = true;
        if let Some(usage) = choice.get("usage") {
            self.take_usage(usage);
        }
        if let Some(finish) = choice.get("finish_reason").and_then(Value::as_str).filter(|f| !f.is_empty()) {
            self.finish = Some(finish.to_owned());
        }
        let whole = choice.get("message").filter(|m| m.is_object());
        let Some(delta) = whole.or_else(|| choice.get("delta")) else { return };
        self.take_content(delta.get("content").unwrap_or(&Value::Null));
        if let Some(refusal) = delta.get("refusal").and_then(Value::as_str) {
            self.refusal.push_str(refusal);
        }
        for key in ["reasoning_content", "reasoning"] {
            self.size += delta.get(key).and_then(Value::as_str).map_or(0, str::len);
        }
        for entry in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            self.take_call(entry, whole.is_some());
        }
        if let Some(function) = delta.get("function_call").filter(|f| f.is_object()) {
            self.take_call(&json!({"index": 0, "function": function}), false);
        }
    }

    /// Letters so far, hidden reasoning included: a sign of life.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whether anything of a message came.
    pub fn any_choice(&self) -> bool {
        self.any_choice
    }

    /// The finish reason as the server wrote it.
    pub fn finish_reason(&self) -> Option<&str> {
        self.finish.as_deref()
    }

    /// Tokens reported so far.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    fn take_content(&mut self, content: &Value) {
        match content {
            Value::String(text) => {
                self.size += text.len();
                self.text.push_str(text);
            }
            Value::Array(parts) => {
                for part in parts {
                    match part.get("type").and_then(Value::as_str) {
                        Some("refusal") => {
                            self.refusal
                                .push_str(part.get("refusal").and_then(Value::as_str).unwrap_or_default());
                        }
                        _ => self.take_content(part.get("text").unwrap_or(part)),
                    }
                }
            }
            _ => {}
        }
    }

    /// Takes a call or a piece of one. A piece belongs to the call of its `index`; without one, to the
    /// last call, unless it brings an id or a name of its own.
    fn take_call(&mut self, entry: &Value, whole: bool) {
        let index = entry.get("index").and_then(Value::as_u64);
        let id = entry.get("id").and_then(Value::as_str).unwrap_or_default();
        let function = entry.get("function").unwrap_or(entry);
        let name = function.get("name").and_then(Value::as_str).unwrap_or_default();
        let same = |call: &DraftCall| id.is_empty() || call.id.is_empty() || call.id == id;
        let known = match index {
            _ if whole => None,
            Some(_) => self.calls.iter().rposition(|c| c.index == index && same(c)),
            None if !id.is_empty() => self.calls.iter().rposition(|c| c.id == id),
            None if !name.is_empty() => None,
            None => self.calls.len().checked_sub(1),
        };
        let at = known.unwrap_or_else(|| {
            self.calls.push(DraftCall { index, ..DraftCall::default() });
            self.calls.len() - 1
        });
        let Some(call) = self.calls.get_mut(at) else { return };
        if call.id.is_empty() {
            call.id.push_str(id);
        }
        // Some servers repeat the whole name with each piece; none sends it letter by letter.
        if call.name.is_empty() {
            call.name.push_str(name);
        }
        let before = call.arguments.len();
        match function.get("arguments") {
            Some(Value::String(text)) => call.arguments.push_str(text),
            Some(Value::Null) | None => {}
            Some(object) => call.arguments.push_str(&object.to_string()),
        }
        self.size += call.arguments.len() - before;
        for (key, value) in entry.as_object().into_iter().flatten() {
            if !matches!(key.as_str(), "index" | "id" | "type" | "function" | "name" | "arguments") {
                call.extra.insert(key.clone(), value.clone());
            }
        }
    }

    fn take_usage(&mut self, usage: &Value) {
        if let Some(normal) = normal_usage(usage) {
            self.usage = normal;
        }
        if let Some(cost) = usage.get("cost").and_then(Value::as_f64).and_then(micro_usd) {
            self.cost = Some(cost);
        }
    }

    /// Ends the draft. Ids that are missing or were used before in the conversation are replaced by ids
    /// that follow from the place; calls written as text are accepted if their tool was offered.
    pub fn decode(self, request: &ModelRequest<'_>) -> Decoded {
        let mut notes = Vec::new();
        let mut text = self.text;
        let mut calls = self.calls;
        let earlier = request.messages.iter().flat_map(|m| match m {
            Message::Assistant { calls, .. } => calls.as_slice(),
            _ => &[],
        });
        let mut used: HashSet<String> = earlier.map(|c| c.id.clone()).collect();
        if calls.is_empty() && self.finish.as_deref() != Some("length") {
            let (rest, written) = fenced::extract(&text, request.tools);
            if !written.is_empty() {
                let names: Vec<&str> = written.iter().map(|w| w.name.as_str()).collect();
                notes.push(format!("accepted as calls though written as text: {}", names.join(", ")));
                text = rest;
                calls = written
                    .into_iter()
                    .zip(used.len()..)
                    .map(|(w, n)| DraftCall {
                        id: format!("call_fenced_{n}"),
                        name: w.name,
                        arguments: w.arguments,
                        ..DraftCall::default()
                    })
                    .collect();
            }
        }
        let calls: Vec<ToolCall> = calls
            .into_iter()
            .enumerate()
            .map(|(n, call)| {
                let mut id = call.id;
                if id.is_empty() || used.contains(&id) {
                    let fresh = format!("call_{}_{n}", request.messages.len());
                    if !id.is_empty() {
                        notes.push(format!("call id {id} was used before; it is {fresh} here"));
                    }
                    id = fresh;
                }
                used.insert(id.clone());
                let arguments =
                    if call.arguments.trim().is_empty() { "{}".to_owned() } else { call.arguments };
                ToolCall { id, name: call.name, arguments, extra: call.extra }
            })
            .collect();
        let refused = !self.refusal.is_empty() && text.is_empty() && calls.is_empty();
        let finish = match self.finish.as_deref() {
            _ if refused => Finish::Refusal,
            Some("length" | "max_tokens") => Finish::Length,
            Some("content_filter" | "refusal") => Finish::Refusal,
            _ if !calls.is_empty() => Finish::ToolCalls,
            None | Some("stop" | "end_turn" | "stop_sequence" | "eos") => Finish::Stop,
            Some("tool_calls" | "function_call" | "tool_use") => Finish::Stop,
            Some(other) => Finish::Other(other.to_owned()),
        };
        if refused {
            text = self.refusal;
        }
        Decoded {
            message: Message::Assistant { text, calls, opaque: Vec::new() },
            finish,
            usage: self.usage,
            cost_micro_usd: self.cost,
            model_served: self.model,
            notes,
        }
    }
}

/// Usage in four disjoint counters. Cached tokens are a part of `prompt_tokens` here; a report of nothing
/// but zeros is a placeholder, for no reply costs no input.
fn normal_usage(usage: &Value) -> Option<Usage> {
    let count = |paths: &[&str]| {
        paths.iter().find_map(|path| {
            let value = usage.pointer(path)?;
            value.as_u64().or_else(|| whole(value.as_f64()?)).or_else(|| value.as_str()?.parse().ok())
        })
    };
    let input = count(&["/prompt_tokens", "/input_tokens"]);
    let total = count(&["/total_tokens"]);
    let read = count(&[
        "/prompt_tokens_details/cached_tokens",
        "/input_tokens_details/cached_tokens",
        "/prompt_cache_hit_tokens",
    ]);
    let write =
        count(&["/prompt_tokens_details/cache_write_tokens", "/input_tokens_details/cache_write_tokens"]);
    let reasoning =
        count(&["/completion_tokens_details/reasoning_tokens", "/output_tokens_details/reasoning_tokens"]);
    let mut output = count(&["/completion_tokens", "/output_tokens"]);
    match (input, output, total, reasoning) {
        (Some(input), None, Some(total), _) => output = total.checked_sub(input),
        // Some count reasoning beside the completion, not in it; only the total tells.
        (Some(input), Some(said), Some(total), Some(hidden))
            if said.checked_add(input).and_then(|sum| sum.checked_add(hidden)) == Some(total) =>
        {
            output = Some(said.saturating_add(hidden));
        }
        _ => {}
    }
    if input.unwrap_or(0) == 0 && output.unwrap_or(0) == 0 {
        return None;
    }
    let cached = read.unwrap_or(0).saturating_add(write.unwrap_or(0));
    Some(Usage {
        input_fresh: input.map(|n| n.saturating_sub(cached)),
        input_cache_read: read,
        input_cache_write: write,
        output,
        reasoning,
    })
}

/// A count that came as a floating-point number.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(value: f64) -> Option<u64> {
    ((0.0..=1e15).contains(&value) && value.fract() == 0.0).then_some(value as u64)
}
