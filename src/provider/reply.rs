//! A Chat Completions reply as it comes, whole or in the pieces of a stream.
//!
//! It is read by hand from JSON values: servers that imitate this interface leave out ids, types and counts,
//! send arguments as objects and content as lists, and a strict decoder would lose a reply that was paid for.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::dialect::WireConfig;
use super::profile::micro_usd;
use super::{Finish, Message, ModelRequest, OpaqueBlock, ToolCall, Usage, fenced};

/// The most calls that one reply may make.
pub const CALLS: usize = 64;
/// The fields that servers put thoughts into.
const THOUGHTS: [&str; 2] = ["reasoning_content", "reasoning"];
/// The longest arguments of one call, in bytes.
pub const ARGUMENTS: usize = 256 << 10;

/// A reply as far as it has come: one whole body, or the pieces of a stream.
#[derive(Debug, Default)]
pub struct Draft {
    text: String,
    /// What came of the text in pieces that come again as a whole.
    ahead: String,
    refusal: String,
    calls: Vec<DraftCall>,
    finish: Option<String>,
    usage: Usage,
    cost: Option<u64>,
    model: Option<String>,
    reasoning: Vec<Value>,
    /// Where the block of an index and a type stands in `reasoning`.
    blocks: HashMap<[String; 2], usize>,
    kept: Option<Value>,
    /// What was thought, by the field that it came in.
    thoughts: [String; 2],
    any_choice: bool,
    excess: Option<String>,
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
        for (key, thought) in THOUGHTS.into_iter().zip(&mut self.thoughts) {
            let piece = delta.get(key).and_then(Value::as_str).unwrap_or_default();
            self.size += piece.len();
            thought.push_str(piece);
        }
        for piece in delta.get("reasoning_details").and_then(Value::as_array).into_iter().flatten() {
            self.take_reasoning(piece);
        }
        for entry in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            self.take_call(entry, whole.is_some());
        }
        if let Some(function) = delta.get("function_call").filter(|f| f.is_object()) {
            self.take_call(&json!({"index": 0, "function": function}), false);
        }
    }

    /// Counts letters that are not, or not yet, part of the message.
    pub(super) fn alive(&mut self, letters: usize) {
        self.size += letters;
    }

    /// Takes a piece of text that comes again when the text is whole.
    pub(super) fn foretell(&mut self, piece: &str) {
        self.size += piece.len();
        self.ahead.push_str(piece);
    }

    /// The text so far.
    pub fn text(&self) -> &str {
        if self.ahead.len() > self.text.len() { &self.ahead } else { &self.text }
    }

    /// Keeps what goes back to this model as it came.
    pub(super) fn keep(&mut self, block: Value) {
        self.kept = Some(block);
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

    /// In words, what no reply may have: too many calls, or arguments that no tool takes.
    pub fn excess(&self) -> Option<&str> {
        self.excess.as_deref()
    }

    /// Whether the model has said anything.
    pub fn said_anything(&self) -> bool {
        self.size > 0 || !self.calls.is_empty() || !self.refusal.is_empty() || !self.reasoning.is_empty()
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
        if known.is_none() && self.calls.len() == CALLS {
            self.excess = Some(format!("the reply makes more than {CALLS} calls"));
            return;
        }
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
        if call.arguments.len() > ARGUMENTS {
            self.excess = Some(format!("the arguments of a call have more than {ARGUMENTS} bytes"));
        }
        for (key, value) in entry.as_object().into_iter().flatten() {
            if !matches!(key.as_str(), "index" | "id" | "type" | "function" | "name" | "arguments") {
                call.extra.insert(key.clone(), value.clone());
            }
        }
    }

    /// Takes a piece of `reasoning_details` (OpenRouter's form; some models refuse to go on without theirs).
    /// Pieces of one index and type are one block: its text grows, other fields are the latest.
    fn take_reasoning(&mut self, piece: &Value) {
        let field = |key: &str| piece.get(key).map(Value::to_string);
        let known = field("index").map(|index| [index, field("type").unwrap_or_default()]);
        let end = self.reasoning.len();
        let at = known.map_or(end, |key| *self.blocks.entry(key).or_insert(end));
        let Some(block) = self.reasoning.get_mut(at).and_then(Value::as_object_mut) else {
            return self.reasoning.push(piece.clone());
        };
        for (key, value) in piece.as_object().into_iter().flatten() {
            match (block.get_mut(key), value) {
                (Some(Value::String(before)), Value::String(more))
                    if matches!(key.as_str(), "text" | "summary" | "data") =>
                {
                    before.push_str(more);
                }
                (_, Value::Null) => {}
                _ => drop(block.insert(key.clone(), value.clone())),
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
    pub fn decode(self, config: &WireConfig, request: &ModelRequest<'_>) -> Decoded {
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
                    .take(CALLS)
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
        let details = (!self.reasoning.is_empty()).then(|| json!({"reasoning_details": self.reasoning}));
        let thought = THOUGHTS.into_iter().zip(self.thoughts).find(|(key, thought)| {
            !thought.is_empty() && config.wire.reasoning_field.as_deref() == Some(*key)
        });
        let thought = thought.map(|(key, thought)| json!({ key: thought }));
        let blocks = [details, thought, self.kept].into_iter().flatten();
        let opaque = blocks.map(|block| OpaqueBlock { origin: config.origin.clone(), block });
        Decoded {
            message: Message::Assistant { text, calls, opaque: opaque.collect() },
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
