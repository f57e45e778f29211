//! OpenAI Responses, without a state at the server: every request holds the whole conversation, and reasoning goes
//! back encrypted, as it came.

use std::io;

use serde_json::{Map, Value, json};

use super::{Draft, Message, ModelRequest, Put, Step, WireConfig};
use super::{delta, encoded, layout, legal_arguments, legal_name, stray_error};
use crate::provider::{ImageRef, ToolCall, json};

pub(super) fn settings(config: &WireConfig, request: &ModelRequest<'_>) -> Map<String, Value> {
    let wire = &config.wire;
    let mut body = Map::new();
    let mut set = |key: &str, value: Value| body.insert(key.to_owned(), value);
    set("model", request.model.into());
    set("instructions", request.system.into());
    set("max_output_tokens", request.max_output_tokens.into());
    set("store", false.into());
    set("include", json!(["reasoning.encrypted_content"]));
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|t| {
            json!({"type": "function", "name": t.name, "description": t.description,
                   "parameters": t.parameters, "strict": false})
        });
        set("tools", tools.collect());
        if let Some(choice) = &wire.tool_choice {
            set("tool_choice", choice.as_str().into());
        }
        if let Some(parallel) = wire.parallel_tool_calls {
            set("parallel_tool_calls", parallel.into());
        }
    }
    if wire.stream {
        set("stream", true.into());
    }
    if wire.prompt_cache_key {
        set("prompt_cache_key", request.session.into());
    }
    body
}

pub(super) fn each_item(
    config: &WireConfig,
    request: &ModelRequest<'_>,
    put: &mut Put<'_>,
) -> io::Result<()> {
    let parts = |text: &str, images: &[ImageRef]| -> io::Result<Value> {
        if images.is_empty() || !config.vision {
            return Ok(text.into());
        }
        let mut parts = vec![json!({"type": "input_text", "text": text})];
        for shown in images {
            parts.push(json!({"type": "input_text", "text": shown.caption}));
            let url = format!("data:{};base64,{}", shown.media_type, encoded(config, request, shown)?);
            let detail = config.image.detail.map_or("auto", |detail| detail.name());
            parts.push(json!({"type": "input_image", "image_url": url, "detail": detail}));
        }
        Ok(parts.into())
    };
    for message in request.messages {
        match message {
            Message::User { text, images } => {
                put(&message_of("user", parts(text, images)?))?;
            }
            Message::Assistant { text, calls, opaque } => {
                let mut placed = vec![false; calls.len()];
                match layout(config, opaque) {
                    Some(parts) => {
                        for part in parts {
                            let n = part["call"].as_u64().and_then(|n| usize::try_from(n).ok());
                            if let Some((call, done)) =
                                n.and_then(|n| Some((calls.get(n)?, placed.get_mut(n)?)))
                            {
                                *done = true;
                                put(&function_call(call))?;
                            } else if let Some(item) = part["item"].as_str() {
                                put(&item)?;
                            }
                        }
                    }
                    None if !text.is_empty() => put(&message_of("assistant", text.as_str().into()))?,
                    None if calls.is_empty() => put(&message_of("assistant", "(empty reply)".into()))?,
                    None => {}
                }
                for (call, _) in calls.iter().zip(&placed).filter(|(_, placed)| !**placed) {
                    put(&function_call(call))?;
                }
            }
            Message::Results { results } => {
                for result in results {
                    put(&json!({"type": "function_call_output", "call_id": result.call_id,
                               "output": parts(&result.text, &result.images)?}))?;
                }
            }
        }
    }
    Ok(())
}

/// OpenAI can do without the type; llama.cpp refuses an assistant's message that has none.
fn message_of(role: &str, content: Value) -> Value {
    json!({"type": "message", "role": role, "content": content})
}

fn function_call(call: &ToolCall) -> Value {
    json!({"type": "function_call", "call_id": call.id, "name": legal_name(&call.name),
           "arguments": legal_arguments(&call.arguments)})
}

/// A reply as it comes.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    parts: Vec<Value>,
    calls: u64,
    /// Whether an item came that must go back as it came.
    hidden: bool,
}

impl Reading {
    pub(super) fn take(&mut self, text: &str, value: &Value, draft: &mut Draft) -> Step {
        match value.get("type").and_then(Value::as_str) {
            Some("response.output_item.done") => {
                self.item(json::member(text, "item").unwrap_or_default(), &value["item"], draft);
            }
            Some("response.completed" | "response.incomplete" | "response.failed") => {
                return self.end(
                    json::member(text, "response").unwrap_or_default(),
                    &value["response"],
                    draft,
                );
            }
            Some("error") => return Step::Failed(value.clone()),
            // The items come whole at their end; until then their letters are signs of life.
            Some("response.output_text.delta") => {
                draft.foretell(value["delta"].as_str().unwrap_or_default());
            }
            Some(kind) if kind.ends_with(".delta") => {
                draft.alive(value["delta"].as_str().map_or(0, str::len));
            }
            Some(kind) if kind.starts_with("response.") => {}
            _ if value["object"] == "response" => return self.end(text, value, draft),
            _ => return stray_error(value),
        }
        Step::More
    }

    fn item(&mut self, text: &str, item: &Value, draft: &mut Draft) {
        match item["type"].as_str() {
            Some("function_call") => {
                let function = json!({"name": item["name"], "arguments": item["arguments"]});
                let call = json!({"index": self.calls, "id": item["call_id"], "function": function});
                delta(draft, &json!({"tool_calls": [call]}));
                self.parts.push(json!({"call": self.calls}));
                self.calls += 1;
                return;
            }
            Some("message") => {
                delta(draft, &json!({"content": item["content"]}));
            }
            _ => {
                self.hidden = true;
                draft.alive(1);
            }
        }
        self.parts.push(json!({"item": text}));
    }

    fn end(&mut self, text: &str, response: &Value, draft: &mut Draft) -> Step {
        draft.absorb(&json!({"model": response["model"], "usage": response["usage"]}));
        if response["status"] == "failed" || response["error"].is_object() {
            return Step::Failed(response.clone());
        }
        if self.parts.is_empty() {
            let texts = json::elements(json::member(text, "output").unwrap_or_default());
            for (text, item) in texts.into_iter().zip(response["output"].as_array().into_iter().flatten()) {
                self.item(text, item, draft);
            }
        }
        if self.hidden {
            draft.keep(json!({"parts": std::mem::take(&mut self.parts)}));
        }
        let why = response.pointer("/incomplete_details/reason").and_then(Value::as_str);
        let reason = match (response["status"].as_str(), why) {
            (Some("incomplete"), Some("max_output_tokens")) => "length",
            (Some("incomplete"), reason) => reason.unwrap_or("incomplete"),
            _ => "stop",
        };
        draft.absorb(&json!({"choices": [{"finish_reason": reason}]}));
        Step::Done
    }
}
