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
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image::codecs::jpeg::JpegEncoder;
use image::imageops::FilterType;
use serde_json::{Map, Value, json};

use super::profile::{ImageDetail, ImagePlace, ImageRules, MaxTokensField, Wire};
use super::{ImageRef, Message, ModelRequest, ToolCall, ToolResult};

/// The JPEG quality of a picture that is made smaller.
const QUALITY: u8 = 92;

/// How one model behind one provider wants its requests.
#[derive(Clone, Debug)]
pub struct WireConfig {
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

/// The request body, as JSON. It is written message by message: as a tree of values, a long conversation would take
/// a multiple of its text.
///
/// # Errors
/// A picture's bytes that cannot be read.
pub fn request_body(config: &WireConfig, request: &ModelRequest<'_>) -> io::Result<Vec<u8>> {
    let mut body = serde_json::to_vec(&settings(config, request)?)?;
    // In place of the closing brace.
    body.pop();
    body.extend_from_slice(b",\"messages\":");
    let mut before = b'[';
    each_message(config, request, &mut |message| {
        body.push(before);
        before = b',';
        Ok(serde_json::to_writer(&mut body, &message)?)
    })?;
    body.extend_from_slice(b"]}");
    Ok(body)
}

/// Everything of the body but the conversation.
fn settings(config: &WireConfig, request: &ModelRequest<'_>) -> io::Result<Map<String, Value>> {
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
    for (key, value) in wire.body.iter().chain(&config.model_body) {
        set(key, value.clone());
    }
    Ok(body)
}

fn each_message(
    config: &WireConfig,
    request: &ModelRequest<'_>,
    put: &mut dyn FnMut(Value) -> io::Result<()>,
) -> io::Result<()> {
    let typed = |message: ChatCompletionRequestMessage| serde_json::to_value(message);
    put(typed(ChatCompletionRequestMessage::System(ChatCompletionRequestSystemMessage {
        content: request.system.into(),
        name: None,
    }))?)?;
    let picture = |shown: &ImageRef| -> io::Result<ChatCompletionRequestUserMessageContentPart> {
        let bytes = fitted(request.blobs.bytes(&shown.sha256)?, shown, config.image.max_edge)?;
        let url = format!("data:{};base64,{}", shown.media_type, STANDARD.encode(bytes));
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
                put(typed(user(content))?)?;
            }
            Message::Assistant { text, calls, opaque } => {
                let mut message = assistant(text, calls);
                let own = opaque.iter().filter(|block| block.origin == config.origin);
                for (key, value) in own.filter_map(|block| block.block.as_object()).flatten() {
                    message.insert(key.clone(), value.clone());
                }
                put(message.into())?;
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
                        put(json!({"role": "tool", "tool_call_id": call_id, "content": parts}))?;
                        continue;
                    }
                    put(typed(ChatCompletionRequestMessage::Tool(ChatCompletionRequestToolMessage {
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
                    put(typed(user(ChatCompletionRequestUserMessageContent::Array(parts)))?)?;
                }
            }
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Blobs;
    use base::ids::Hash;

    struct One(Vec<u8>);

    impl Blobs for One {
        fn bytes(&self, _: &Hash) -> io::Result<Vec<u8>> {
            Ok(self.0.clone())
        }
    }

    /// The pictures of a request that shows one of 96 x 64 pixels, each with the role of its message and its size.
    fn shown(max_edge: u32, place: ImagePlace) -> Vec<(String, (u32, u32))> {
        let mut bytes = Vec::new();
        let picture = image::RgbImage::from_fn(96, 64, |x, y| image::Rgb([x as u8, y as u8, 9]));
        picture.write_with_encoder(JpegEncoder::new(&mut bytes)).unwrap();
        let sha256 = Hash::of(&bytes);
        let image = ImageRef {
            sha256,
            media_type: "image/jpeg".into(),
            width: 96,
            height: 64,
            bytes: bytes.len() as u64,
            caption: "The picture.".into(),
        };
        let result = ToolResult {
            call_id: "c".into(),
            name: "render_preview".into(),
            text: "{}".into(),
            images: vec![image],
            is_error: false,
            figures: Map::new(),
        };
        let config = WireConfig {
            origin: "p".into(),
            vision: true,
            wire: Wire::default(),
            image: ImageRules { max_edge, place, ..ImageRules::default() },
            model_body: Map::new(),
        };
        let request = ModelRequest {
            model: "m",
            system: "s",
            tools: &[],
            messages: &[Message::Results { results: vec![result] }],
            earlier: 0,
            max_output_tokens: 9,
            session: "s",
            seed: None,
            blobs: &One(bytes),
            time_left: None,
            on_progress: &|_| {},
        };
        let body: Value = serde_json::from_slice(&request_body(&config, &request).unwrap()).unwrap();
        assert_eq!(request_body(&config, &request).unwrap(), request_body(&config, &request).unwrap());
        let mut found = Vec::new();
        for message in body["messages"].as_array().unwrap() {
            for part in message["content"].as_array().into_iter().flatten() {
                let Some(url) = part["image_url"]["url"].as_str() else { continue };
                let bytes = STANDARD.decode(url.split_once(',').unwrap().1).unwrap();
                let size = image::load_from_memory(&bytes).unwrap().into_rgb8().dimensions();
                found.push((message["role"].as_str().unwrap().to_owned(), size));
            }
        }
        found
    }

    #[test]
    fn k3_a_picture_is_sent_as_large_as_the_profile_says_and_where_it_says() {
        let user = |size| vec![("user".to_owned(), size)];
        assert_eq!(shown(96, ImagePlace::NextUserMessage), user((96, 64)));
        assert_eq!(shown(48, ImagePlace::NextUserMessage), user((48, 32)));
        assert_eq!(shown(48, ImagePlace::ToolMessage), [("tool".to_owned(), (48, 32))]);
    }
}
