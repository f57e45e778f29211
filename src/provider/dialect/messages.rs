//! Anthropic Messages.
//!
//! Marks of the cache stand in fixed places (the last tool, the system prompt) and once for the whole request, where
//! the server sets the mark after the last block itself: a mark that wandered would change what was sent before.

use std::collections::BTreeMap;
use std::io;

use serde_json::{Map, Value, json};

use super::{Draft, Message, ModelRequest, Put, Step, WireConfig};
use super::{delta, encoded, layout, legal_arguments, legal_name, stray_error};
use crate::provider::{ImageRef, ToolCall};

pub(super) fn settings(config: &WireConfig, request: &ModelRequest<'_>) -> Map<String, Value> {
    let mark = json!({"type": "ephemeral"});
    let mut body = Map::new();
    let mut set = |key: &str, value: Value| body.insert(key.to_owned(), value);
    set("model", request.model.into());
    set("max_tokens", request.max_output_tokens.into());
    set("cache_control", mark.clone());
    if !request.system.is_empty() {
        set("system", json!([{"type": "text", "text": request.system, "cache_control": mark}]));
    }
    let mut tools: Vec<Value> = request
        .tools
        .iter()
        .map(|t| json!({"name": t.name, "description": t.description, "input_schema": t.parameters}))
        .collect();
    if let Some(last) = tools.last_mut().and_then(Value::as_object_mut) {
        last.insert("cache_control".to_owned(), mark);
        set("tools", tools.into());
        if let Some(choice) = &config.wire.tool_choice {
            set("tool_choice", json!({"type": choice}));
        }
    }
    if config.wire.stream {
        set("stream", true.into());
    }
    body
}

pub(super) fn each_message(
    config: &WireConfig,
    request: &ModelRequest<'_>,
    put: &mut Put<'_>,
) -> io::Result<()> {
    let blocks = |text: &str, images: &[ImageRef]| -> io::Result<Vec<Value>> {
        let mut blocks: Vec<Value> = text_block(text).into_iter().collect();
        for shown in images.iter().filter(|_| config.vision) {
            blocks.extend(text_block(&shown.caption));
            let data = encoded(config, request, shown)?;
            let source = json!({"type": "base64", "media_type": shown.media_type, "data": data});
            blocks.push(json!({"type": "image", "source": source}));
        }
        Ok(blocks)
    };
    for message in request.messages {
        match message {
            Message::User { text, images } => {
                put(&json!({"role": "user", "content": blocks(text, images)?}))?;
            }
            Message::Assistant { text, calls, opaque } => {
                let mut content = Vec::new();
                let mut placed = vec![false; calls.len()];
                match layout(config, opaque) {
                    None => content.extend(text_block(text)),
                    Some(parts) => {
                        for part in parts {
                            let n = part["call"].as_u64().and_then(|n| usize::try_from(n).ok());
                            if let Some((call, done)) =
                                n.and_then(|n| Some((calls.get(n)?, placed.get_mut(n)?)))
                            {
                                *done = true;
                                content.push(tool_use(call));
                            } else if let Some(item) = part.get("item") {
                                content.push(item.clone());
                            } else {
                                content.extend(text_block(part["text"].as_str().unwrap_or_default()));
                            }
                        }
                    }
                }
                content.extend(calls.iter().zip(&placed).filter(|(_, p)| !**p).map(|(c, _)| tool_use(c)));
                if content.is_empty() {
                    content.extend(text_block("(empty reply)"));
                }
                put(&json!({"role": "assistant", "content": content}))?;
            }
            Message::Results { results } => {
                let mut content: Vec<Value> = Vec::new();
                for result in results {
                    let mut block = Map::from_iter([
                        ("type".to_owned(), "tool_result".into()),
                        ("tool_use_id".to_owned(), result.call_id.as_str().into()),
                        ("content".to_owned(), blocks(&result.text, &result.images)?.into()),
                    ]);
                    if result.is_error {
                        block.insert("is_error".to_owned(), true.into());
                    }
                    content.push(block.into());
                }
                put(&json!({"role": "user", "content": content}))?;
            }
        }
    }
    Ok(())
}

/// A block of text; none of an empty one, which is refused.
fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text}))
}

fn tool_use(call: &ToolCall) -> Value {
    let input: Value = serde_json::from_str(legal_arguments(&call.arguments)).unwrap_or_else(|_| json!({}));
    json!({"type": "tool_use", "id": call.id, "name": legal_name(&call.name), "input": input})
}

/// A reply as it comes.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    usage: BTreeMap<&'static str, u64>,
    blocks: BTreeMap<u64, Block>,
    calls: u64,
    stop: Option<String>,
}

#[derive(Debug)]
enum Block {
    Text(String),
    Call(u64),
    /// Thinking, signed or hidden, and whatever is not known: it goes back as it came.
    Item(Value),
}

impl Reading {
    pub(super) fn take(&mut self, value: &Value, draft: &mut Draft) -> Step {
        let index = value.get("index").and_then(Value::as_u64).unwrap_or(self.blocks.len() as u64);
        match value.get("type").and_then(Value::as_str) {
            Some("message_start") => {
                // Its count of the output is of the first letters; the whole one comes with the reason to stop.
                let mut message = value["message"].clone();
                message.get_mut("usage").and_then(Value::as_object_mut).map(|u| u.remove("output_tokens"));
                self.head(&message, draft);
            }
            Some("content_block_start") => self.open(index, &value["content_block"], draft),
            Some("content_block_delta") => self.grow(index, &value["delta"], draft),
            Some("message_delta") => {
                self.stop(&value["delta"], draft);
                self.count(&value["usage"], draft);
            }
            Some("message_stop") => return self.end(draft),
            Some("message") => {
                self.head(value, draft);
                for (n, block) in (0..).zip(value["content"].as_array().into_iter().flatten()) {
                    self.open(n, block, draft);
                }
                self.stop(value, draft);
                return self.end(draft);
            }
            Some("error") => return Step::Failed(value.clone()),
            _ => return stray_error(value),
        }
        Step::More
    }

    fn head(&mut self, message: &Value, draft: &mut Draft) {
        draft.absorb(&json!({"model": message["model"]}));
        self.count(&message["usage"], draft);
    }

    fn open(&mut self, index: u64, block: &Value, draft: &mut Draft) {
        let known = match block["type"].as_str() {
            Some("text") => {
                let text = block["text"].as_str().unwrap_or_default();
                delta(draft, &json!({"content": text}));
                Block::Text(text.to_owned())
            }
            Some("tool_use") => {
                let n = self.calls;
                self.calls += 1;
                let input = block["input"].as_object().filter(|input| !input.is_empty());
                let function = json!({"name": block["name"], "arguments": input});
                let call = json!({"index": n, "id": block["id"], "function": function});
                delta(draft, &json!({"tool_calls": [call]}));
                Block::Call(n)
            }
            _ => {
                draft.alive(block["thinking"].as_str().map_or(1, str::len));
                Block::Item(block.clone())
            }
        };
        self.blocks.insert(index, known);
    }

    fn grow(&mut self, index: u64, piece: &Value, draft: &mut Draft) {
        let text = |key: &str| piece[key].as_str().unwrap_or_default();
        match (self.blocks.get_mut(&index), piece["type"].as_str()) {
            (Some(Block::Text(whole)), Some("text_delta")) => {
                whole.push_str(text("text"));
                delta(draft, &json!({"content": piece["text"]}));
            }
            (Some(Block::Call(n)), Some("input_json_delta")) => {
                let function = json!({"arguments": piece["partial_json"]});
                delta(draft, &json!({"tool_calls": [{"index": n, "function": function}]}));
            }
            (Some(Block::Item(block)), Some("thinking_delta" | "signature_delta")) => {
                for key in ["thinking", "signature"] {
                    draft.alive(text(key).len());
                    match &mut block[key] {
                        Value::String(before) => before.push_str(text(key)),
                        empty if piece[key].is_string() => *empty = piece[key].clone(),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    fn stop(&mut self, holder: &Value, draft: &mut Draft) {
        if let Some(reason) = holder["stop_reason"].as_str() {
            self.stop = Some(reason.to_owned());
        }
        if self.stop.as_deref() == Some("refusal") {
            let details = &holder["stop_details"];
            let why = ["explanation", "category"].iter().find_map(|key| details[*key].as_str());
            delta(draft, &json!({"refusal": why.unwrap_or("The model refused.")}));
        }
    }

    /// Counts stand beside each other here, and a later report is of the whole: the larger one counts, since some
    /// servers begin with zeros.
    fn count(&mut self, usage: &Value, draft: &mut Draft) {
        let said = [
            ("input", "/input_tokens"),
            ("read", "/cache_read_input_tokens"),
            ("write", "/cache_creation_input_tokens"),
            ("output", "/output_tokens"),
            ("reasoning", "/output_tokens_details/thinking_tokens"),
        ];
        for (name, at) in said {
            if let Some(n) = usage.pointer(at).and_then(Value::as_u64) {
                let count = self.usage.entry(name).or_default();
                *count = n.max(*count);
            }
        }
        let get = |name: &str| self.usage.get(name).copied();
        let cached = get("read").unwrap_or(0).saturating_add(get("write").unwrap_or(0));
        draft.absorb(&json!({"usage": {
            "prompt_tokens": get("input").map(|n| n.saturating_add(cached)),
            "prompt_tokens_details": {"cached_tokens": get("read"), "cache_write_tokens": get("write")},
            "completion_tokens": get("output"),
            "completion_tokens_details": {"reasoning_tokens": get("reasoning")},
        }}));
    }

    fn end(&mut self, draft: &mut Draft) -> Step {
        let blocks = std::mem::take(&mut self.blocks);
        let items = blocks.values().any(|b| matches!(b, Block::Item(_)));
        if items {
            let parts = blocks.into_values().map(|block| match block {
                Block::Text(text) => json!({"text": text}),
                Block::Call(n) => json!({"call": n}),
                Block::Item(item) => json!({"item": item}),
            });
            draft.keep(json!({"parts": parts.collect::<Vec<_>>()}));
        }
        let reason = match self.stop.take().as_deref() {
            Some("model_context_window_exceeded") => Value::from("length"),
            reason => Value::from(reason),
        };
        draft.absorb(&json!({"choices": [{"finish_reason": reason}]}));
        Step::Done
    }
}
