//! A Chat Completions request as it is sent.
//!
//! The request is built with `async-openai`'s types where they say what we mean; an assistant message is
//! plain JSON, because unknown fields of its calls must be echoed. What was sent once is sent again byte
//! for byte and only appended to, because provider caches key on the prefix.

use std::io;

use async_openai::types::chat::{
    ChatCompletionRequestMessage, ChatCompletionRequestMessageContentPartImage,
    ChatCompletionRequestMessageContentPartText, ChatCompletionRequestSystemMessage,
    ChatCompletionRequestToolMessage, ChatCompletionRequestUserMessage,
    ChatCompletionRequestUserMessageContent, ChatCompletionRequestUserMessageContentPart, ChatCompletionTool,
    ChatCompletionTools, FunctionObject, ImageUrl,
};
use serde_json::{Map, Value, json};

use super::{Draft, Message, ModelRequest, Put, Step, WireConfig, encoded, legal_arguments, legal_name};
use crate::provider::profile::{ImageDetail, ImagePlace, MaxTokensField};
use crate::provider::{ImageRef, ToolCall, ToolResult};

/// Everything of the body but the conversation.
pub(super) fn settings(config: &WireConfig, request: &ModelRequest<'_>) -> io::Result<Map<String, Value>> {
    let wire = &config.wire;
    let mut body = Map::new();
    let mut set = |key: &str, value: Value| body.insert(key.to_owned(), value);
    set("model", request.model.into());
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
    Ok(body)
}

pub(super) fn each_message(
    config: &WireConfig,
    request: &ModelRequest<'_>,
    put: &mut Put<'_>,
) -> io::Result<()> {
    let typed = |message: ChatCompletionRequestMessage| serde_json::to_value(message);
    put(&typed(ChatCompletionRequestMessage::System(ChatCompletionRequestSystemMessage {
        content: request.system.into(),
        name: None,
    }))?)?;
    let picture = |shown: &ImageRef| -> io::Result<ChatCompletionRequestUserMessageContentPart> {
        let url = format!("data:{};base64,{}", shown.media_type, encoded(config, request, shown)?);
        Ok(ChatCompletionRequestUserMessageContentPart::ImageUrl(
            ChatCompletionRequestMessageContentPartImage {
                image_url: ImageUrl { url, detail: config.image.detail.map(detail) },
                prompt_cache_breakpoint: None,
            },
        ))
    };
    for message in request.messages {
        match message {
            Message::User { text, images } => {
                let mut parts = vec![text_part(text.clone())];
                for shown in images.iter().filter(|_| config.vision) {
                    parts.push(text_part(shown.caption.clone()));
                    parts.push(picture(shown)?);
                }
                let content = if parts.len() == 1 {
                    ChatCompletionRequestUserMessageContent::Text(text.clone())
                } else {
                    ChatCompletionRequestUserMessageContent::Array(parts)
                };
                put(&typed(user(content))?)?;
            }
            Message::Assistant { text, calls, opaque } => {
                let mut message = assistant(text, calls);
                let own = opaque.iter().filter(|block| block.origin == config.origin);
                for (key, value) in own.filter_map(|block| block.block.as_object()).flatten() {
                    message.insert(key.clone(), value.clone());
                }
                put(&Value::from(message))?;
            }
            Message::Results { results } => {
                let within = config.image.place == ImagePlace::ToolMessage;
                for ToolResult { call_id, text, images, .. } in results {
                    let shown: &[ImageRef] = if within && config.vision { images } else { &[] };
                    if !shown.is_empty() {
                        let mut parts = vec![text_part(text.clone())];
                        for shown in shown {
                            parts.push(text_part(shown.caption.clone()));
                            parts.push(picture(shown)?);
                        }
                        put(&json!({"role": "tool", "tool_call_id": call_id, "content": parts}))?;
                        continue;
                    }
                    put(&typed(ChatCompletionRequestMessage::Tool(ChatCompletionRequestToolMessage {
                        content: text.as_str().into(),
                        tool_call_id: call_id.clone(),
                    }))?)?;
                }
                let mut parts = Vec::new();
                for result in results.iter().filter(|_| config.vision && !within) {
                    for shown in &result.images {
                        let caption = format!("Picture of call {}: {}", result.call_id, shown.caption);
                        parts.push(text_part(caption));
                        parts.push(picture(shown)?);
                    }
                }
                if !parts.is_empty() {
                    put(&typed(user(ChatCompletionRequestUserMessageContent::Array(parts)))?)?;
                }
            }
        }
    }
    Ok(())
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
fn assistant(text: &str, calls: &[ToolCall]) -> Map<String, Value> {
    let content = match (text, calls) {
        ("", []) => Value::from("(empty reply)"),
        ("", _) => Value::Null,
        (text, _) => Value::from(text),
    };
    let mut message = Map::from_iter([("role".into(), "assistant".into()), ("content".into(), content)]);
    if !calls.is_empty() {
        message.insert("tool_calls".into(), calls.iter().map(replay).collect());
    }
    message
}

fn replay(call: &ToolCall) -> Value {
    let (name, arguments) = (legal_name(&call.name), legal_arguments(&call.arguments));
    let mut entry = Map::from_iter(call.extra.clone());
    entry.insert("id".to_owned(), call.id.as_str().into());
    entry.insert("type".to_owned(), "function".into());
    entry.insert("function".to_owned(), json!({"name": name, "arguments": arguments}));
    Value::Object(entry)
}

/// Takes a chunk of a stream, or a whole body.
pub(super) fn take(value: &Value, draft: &mut Draft) -> Step {
    // Usage first: a failed attempt is charged too.
    draft.absorb(value);
    let choice = value.get("choices").and_then(|c| c.get(0));
    let within = choice.filter(|c| c.get("error").is_some_and(|e| !e.is_null()));
    let error = value.get("error").filter(|e| !e.is_null());
    let is_error = value.get("object").and_then(Value::as_str) == Some("error")
        || value.get("choices").is_none() && (value.get("message").or_else(|| value.get("detail"))).is_some();
    match within.or_else(|| (error.is_some() || is_error).then_some(value)) {
        Some(holder) => Step::Failed(holder.clone()),
        None => Step::More,
    }
}
