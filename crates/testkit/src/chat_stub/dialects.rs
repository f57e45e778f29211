//! The dialects of the stub: what a reply looks like in each, and what a request must keep to.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{body_of, stream_of};

/// What a server speaks, by the path it is asked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Chat,
    Responses,
    Messages,
}

/// One reply of a model.
pub struct Said<'a> {
    pub turn: usize,
    pub text: &'a str,
    pub thought: &'a str,
    pub calls: &'a [(String, String)],
    pub usage: &'a Value,
}

/// The item of a thought in Responses, as no serializer would write it: it must come back like this.
pub fn reasoning_item(turn: usize, thought: &str) -> String {
    format!(
        r#"{{"type": "reasoning","id":"rs_{turn}", "summary":[ ],"encrypted_content":"{thought}\/\u00e9=="}}"#
    )
}

/// The signature of a thought in Messages.
pub fn signature(thought: &str) -> String {
    format!("{thought}/é==")
}

impl Dialect {
    pub fn of(head: &str) -> Option<Self> {
        match head.split_whitespace().take(2).collect::<Vec<_>>()[..] {
            ["POST", "/v1/chat/completions"] => Some(Self::Chat),
            ["POST", "/v1/responses"] => Some(Self::Responses),
            ["POST", "/v1/messages"] => Some(Self::Messages),
            _ => None,
        }
    }

    /// The system prompt of a request.
    pub fn system(self, body: &Value) -> &Value {
        match self {
            Self::Chat => &body["messages"][0],
            Self::Responses => &body["instructions"],
            Self::Messages => &body["system"],
        }
    }

    /// The conversation of a request.
    pub fn conversation(self, body: &Value) -> &[Value] {
        let list = if self == Self::Responses { &body["input"] } else { &body["messages"] };
        list.as_array().map_or(&[], Vec::as_slice)
    }

    /// The content type and the body of a reply.
    pub fn reply(self, said: &Said<'_>, streamed: bool) -> (&'static str, String) {
        let kind = if streamed { "text/event-stream" } else { "application/json" };
        let body = match (self, streamed) {
            (Self::Chat, true) => {
                let thought = json!({"choices": [{"index": 0, "finish_reason": null,
                                    "delta": {"reasoning_details": details(said.thought)}}]});
                let thought =
                    if said.thought.is_empty() { String::new() } else { format!("data: {thought}\n\n") };
                thought + &stream_of(said.turn, said.text, said.calls, said.usage)
            }
            (Self::Chat, false) => {
                let body = body_of(said.turn, said.text, said.calls, said.usage);
                if said.thought.is_empty() {
                    return (kind, body);
                }
                let mut body: Value = serde_json::from_str(&body).unwrap();
                body["choices"][0]["message"]["reasoning_details"] = details(said.thought);
                body.to_string()
            }
            (Self::Responses, true) => responses_stream(said),
            (Self::Responses, false) => response(said),
            (Self::Messages, true) => messages_stream(said),
            (Self::Messages, false) => {
                let mut message = message_head(said);
                message["content"] = blocks(said).into();
                message["stop_reason"] = stop_reason(said).into();
                message["usage"] = messages_usage(said.usage);
                message.to_string()
            }
        };
        (kind, body)
    }

    /// The first breach of the protocol in a request, if any.
    pub fn judge(self, head: &str, body: &Value) -> Option<String> {
        match self {
            Self::Chat => super::judge(body),
            Self::Responses => judge_responses(body),
            Self::Messages => judge_messages(head, body),
        }
    }
}

fn details(thought: &str) -> Value {
    json!([{"type": "reasoning.encrypted", "index": 0, "format": "unknown", "data": thought}])
}

fn call_id(said: &Said<'_>, n: usize) -> String {
    format!("call_{}_{n}", said.turn)
}

fn responses_usage(usage: &Value) -> Value {
    let details = &usage["prompt_tokens_details"];
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    json!({"input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"],
           "total_tokens": count(&usage["prompt_tokens"]) + count(&usage["completion_tokens"]),
           "input_tokens_details": {"cached_tokens": count(&details["cached_tokens"]),
                                    "cache_write_tokens": count(&details["cache_write_tokens"])},
           "output_tokens_details":
               {"reasoning_tokens": count(&usage["completion_tokens_details"]["reasoning_tokens"])}})
}

/// The items of a reply, as text.
fn items(said: &Said<'_>) -> Vec<String> {
    let mut items = Vec::new();
    if !said.thought.is_empty() {
        items.push(reasoning_item(said.turn, said.thought));
    }
    if !said.text.is_empty() {
        let content = json!([{"type": "output_text", "text": said.text, "annotations": [], "logprobs": []}]);
        let item = json!({"id": format!("msg_{}", said.turn), "type": "message", "role": "assistant",
                          "status": "completed", "content": content});
        items.push(item.to_string());
    }
    for (n, (name, arguments)) in said.calls.iter().enumerate() {
        let item = json!({"id": format!("fc_{}_{n}", said.turn), "type": "function_call", "status": "completed",
                          "call_id": call_id(said, n), "name": name, "arguments": arguments});
        items.push(item.to_string());
    }
    items
}

fn response(said: &Said<'_>) -> String {
    format!(
        r#"{{"id":"resp_{}","object":"response","created_at":1,"status":"completed","error":null,"incomplete_details":null,"instructions":null,"metadata":{{}},"model":"stub","output":[{}],"parallel_tool_calls":true,"temperature":null,"tool_choice":"auto","tools":[],"top_p":null,"usage":{}}}"#,
        said.turn,
        items(said).join(", "),
        responses_usage(said.usage)
    )
}

fn responses_stream(said: &Said<'_>) -> String {
    let mut out = String::new();
    let mut number = 0;
    let mut event = |kind: &str, fields: String| {
        out.push_str(&format!(
            "event: {kind}\ndata: {{\"type\":\"{kind}\",\"sequence_number\":{number},{fields}}}\n\n"
        ));
        number += 1;
    };
    let begun = Said { text: "", thought: "", calls: &[], usage: &Value::Null, ..*said };
    let mut begun: Value = serde_json::from_str(&response(&begun)).unwrap();
    (begun["status"], begun["usage"]) = ("in_progress".into(), Value::Null);
    event("response.created", format!("\"response\":{begun}"));
    event("response.in_progress", format!("\"response\":{begun}"));
    for (at, text) in items(said).into_iter().enumerate() {
        let item: Value = serde_json::from_str(&text).unwrap();
        let id = &item["id"];
        let begun = match item["type"].as_str().unwrap() {
            "function_call" => {
                let mut begun = item.clone();
                (begun["arguments"], begun["status"]) = ("".into(), "in_progress".into());
                begun
            }
            "message" => {
                let mut begun = item.clone();
                (begun["content"], begun["status"]) = (json!([]), "in_progress".into());
                begun
            }
            _ => json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": "cut"}),
        };
        event("response.output_item.added", format!("\"output_index\":{at},\"item\":{begun}"));
        let place = format!("\"output_index\":{at},\"item_id\":{id}");
        if item["type"] == "function_call" {
            let arguments = item["arguments"].as_str().unwrap();
            for piece in pieces(arguments) {
                event(
                    "response.function_call_arguments.delta",
                    format!("{place},\"delta\":{}", Value::from(piece)),
                );
            }
            let whole = Value::from(arguments);
            event(
                "response.function_call_arguments.done",
                format!("{place},\"name\":{},\"arguments\":{whole}", item["name"]),
            );
        }
        if item["type"] == "message" {
            let place = format!("{place},\"content_index\":0");
            let part =
                |text: &str| json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
            event("response.content_part.added", format!("{place},\"part\":{}", part("")));
            for word in said.text.split_inclusive(' ') {
                event(
                    "response.output_text.delta",
                    format!("{place},\"logprobs\":[],\"delta\":{}", Value::from(word)),
                );
            }
            let whole = Value::from(said.text);
            event("response.output_text.done", format!("{place},\"logprobs\":[],\"text\":{whole}"));
            event("response.content_part.done", format!("{place},\"part\":{}", part(said.text)));
        }
        event("response.output_item.done", format!("\"output_index\":{at},\"item\":{text}"));
    }
    event("response.completed", format!("\"response\":{}", response(said)));
    out
}

/// A text in pieces of a few letters.
fn pieces(text: &str) -> Vec<String> {
    text.chars().collect::<Vec<_>>().chunks(5).map(|piece| piece.iter().collect()).collect()
}

/// Here the counters stand beside each other.
fn messages_usage(usage: &Value) -> Value {
    let details = &usage["prompt_tokens_details"];
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    let (read, write) = (count(&details["cached_tokens"]), count(&details["cache_write_tokens"]));
    json!({"input_tokens": count(&usage["prompt_tokens"]).saturating_sub(read + write),
           "cache_read_input_tokens": read, "cache_creation_input_tokens": write,
           "output_tokens": count(&usage["completion_tokens"]),
           "output_tokens_details":
               {"thinking_tokens": count(&usage["completion_tokens_details"]["reasoning_tokens"])}})
}

fn message_head(said: &Said<'_>) -> Value {
    let mut usage = messages_usage(said.usage);
    // Before the reply is made, its length is not known.
    usage["output_tokens"] = 1.into();
    json!({"id": format!("msg_{}", said.turn), "type": "message", "role": "assistant", "model": "stub",
           "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage})
}

fn stop_reason(said: &Said<'_>) -> &'static str {
    if said.calls.is_empty() { "end_turn" } else { "tool_use" }
}

fn blocks(said: &Said<'_>) -> Vec<Value> {
    let mut blocks = Vec::new();
    if !said.thought.is_empty() {
        blocks.push(json!({"type": "thinking", "thinking": format!("I think {}", said.thought),
                           "signature": signature(said.thought)}));
    }
    if !said.text.is_empty() {
        blocks.push(json!({"type": "text", "text": said.text, "citations": null}));
    }
    for (n, (name, arguments)) in said.calls.iter().enumerate() {
        let input: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
        blocks.push(json!({"type": "tool_use", "id": call_id(said, n), "name": name, "input": input}));
    }
    blocks
}

fn messages_stream(said: &Said<'_>) -> String {
    let mut out = String::new();
    let mut event = |value: Value| {
        out.push_str(&format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap()));
    };
    event(json!({"type": "message_start", "message": message_head(said)}));
    event(json!({"type": "ping"}));
    for (at, block) in blocks(said).into_iter().enumerate() {
        let mut begun = block.clone();
        let deltas: Vec<Value> = match block["type"].as_str().unwrap() {
            "thinking" => {
                (begun["thinking"], begun["signature"]) = ("".into(), "".into());
                let thinking = pieces(block["thinking"].as_str().unwrap());
                let thinking = thinking.iter().map(|p| json!({"type": "thinking_delta", "thinking": p}));
                let signed = json!({"type": "signature_delta", "signature": block["signature"]});
                thinking.chain([signed]).collect()
            }
            "text" => {
                begun["text"] = "".into();
                let words = said.text.split_inclusive(' ');
                words.map(|word| json!({"type": "text_delta", "text": word})).collect()
            }
            _ => {
                begun["input"] = json!({});
                let n = block["id"].as_str().unwrap().rsplit('_').next().unwrap().parse::<usize>().unwrap();
                // Of arguments that are empty nothing is streamed.
                let arguments = &said.calls[n].1;
                let texts = if arguments == "{}" { Vec::new() } else { pieces(arguments) };
                texts.iter().map(|p| json!({"type": "input_json_delta", "partial_json": p})).collect()
            }
        };
        event(json!({"type": "content_block_start", "index": at, "content_block": begun}));
        for delta in deltas {
            event(json!({"type": "content_block_delta", "index": at, "delta": delta}));
        }
        event(json!({"type": "content_block_stop", "index": at}));
    }
    event(json!({"type": "message_delta", "usage": messages_usage(said.usage),
                 "delta": {"stop_reason": stop_reason(said), "stop_sequence": null}}));
    event(json!({"type": "message_stop"}));
    out
}

/// Calls that wait for their results, in the order in which they were made.
#[derive(Default)]
struct Open {
    calls: Vec<String>,
    ids: HashSet<String>,
}

impl Open {
    fn call(&mut self, id: &str) -> Option<String> {
        self.calls.push(id.to_owned());
        let fresh = !id.is_empty() && self.ids.insert(id.to_owned());
        (!fresh).then(|| format!("call id `{id}` is empty or used twice"))
    }

    fn answer(&mut self, id: &str) -> Option<String> {
        if self.calls.first().map(String::as_str) != Some(id) {
            return Some(format!("`{id}` is answered, but open are {:?}", self.calls));
        }
        self.calls.remove(0);
        None
    }

    fn none_left(&self) -> Option<String> {
        (!self.calls.is_empty()).then(|| format!("calls {:?} have no result", self.calls))
    }
}

fn judge_responses(body: &Value) -> Option<String> {
    if body["store"] != json!(false) || !body["instructions"].is_string() {
        return Some("`store` is not false, or there are no instructions".to_owned());
    }
    if body.get("messages").is_some() || body["tools"].as_array().is_some_and(|t| t[0]["strict"].is_null()) {
        return Some("fields of Chat Completions".to_owned());
    }
    let jpeg = |part: &Value| {
        let url = part["image_url"].as_str().unwrap_or_default();
        part["type"] != "input_image" || url.starts_with("data:image/jpeg;base64,")
    };
    let pictures = |holder: &Value| holder.as_array().is_none_or(|parts| parts.iter().all(jpeg));
    let mut open = Open::default();
    for (at, item) in body["input"].as_array()?.iter().enumerate() {
        // Not every server takes a message without its type.
        let breach = match (item["type"].as_str(), item["role"].as_str()) {
            (Some("function_call"), _) => {
                let arguments = item["arguments"].as_str().unwrap_or_default();
                let legal = serde_json::from_str::<Value>(arguments).is_ok_and(|a| a.is_object());
                let breach = open.call(item["call_id"].as_str().unwrap_or_default());
                breach.or_else(|| (!legal).then(|| format!("arguments {arguments:?}")))
            }
            (Some("function_call_output"), _) if pictures(&item["output"]) => {
                open.answer(item["call_id"].as_str().unwrap_or_default())
            }
            (Some("reasoning"), _) if item["encrypted_content"].is_string() => open.none_left(),
            (Some("message"), Some("user")) if pictures(&item["content"]) => open.none_left(),
            (Some("message"), Some("assistant")) => open.none_left(),
            other => Some(format!("{other:?} is nothing that is known")),
        };
        if let Some(breach) = breach {
            return Some(format!("item {at}: {breach}"));
        }
    }
    open.none_left()
}

fn judge_messages(head: &str, body: &Value) -> Option<String> {
    let lower = head.to_lowercase();
    if !lower.contains("\nanthropic-version: ") || lower.contains("\nauthorization: ") {
        return Some("the version is missing, or the key is in the wrong header".to_owned());
    }
    let marks = body.to_string().matches("\"cache_control\"").count();
    if marks > 4 || !body["max_tokens"].is_u64() || body.get("temperature").is_some() {
        return Some(format!("{marks} marks, `max_tokens` {}", body["max_tokens"]));
    }
    let empty = |block: &Value| {
        block["type"] == "text" && block["text"].as_str().unwrap_or_default().trim().is_empty()
    };
    let jpeg = |block: &Value| {
        let source = &block["source"];
        block["type"] != "image" || source["type"] == "base64" && source["media_type"] == "image/jpeg"
    };
    let mut open = Open::default();
    for (at, message) in body["messages"].as_array()?.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        let mut breach = if role == "assistant" { open.none_left() } else { None };
        for block in message["content"].as_array()? {
            let within = block["content"].as_array().map_or(&[][..], Vec::as_slice);
            let found = match (role, block["type"].as_str()) {
                _ if [block].into_iter().chain(within).any(|b| empty(b) || !jpeg(b)) => {
                    Some(format!("an empty text, or a picture that is no JPEG: {block}"))
                }
                ("assistant", Some("tool_use")) if block["input"].is_object() => {
                    open.call(block["id"].as_str().unwrap_or_default())
                }
                ("user", Some("tool_result")) => {
                    open.answer(block["tool_use_id"].as_str().unwrap_or_default())
                }
                ("assistant", Some("thinking")) if block["signature"].is_string() => None,
                ("assistant", Some("text" | "redacted_thinking")) => None,
                ("user", Some("text" | "image")) => open.none_left(),
                other => Some(format!("{other:?} is nothing that is known")),
            };
            breach = breach.or(found);
        }
        if let Some(breach) = breach.or_else(|| if role == "user" { open.none_left() } else { None }) {
            return Some(format!("message {at}: {breach}"));
        }
    }
    open.none_left()
}
