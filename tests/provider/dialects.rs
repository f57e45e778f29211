//! The same conversation in each dialect: what is sent, what comes back, what is refused, and what it costs.

use std::sync::Arc;
use std::time::Duration;

use base::assets::Overlay;
use chemigram::provider::{
    Choice, FaultClass, Finish, ImageRef, Message, ModelReply, Provider, Registry, connect,
};
use serde_json::{Value, json};

use super::{ask, ask_once, calls, result, text, user};
use crate::pictures::Pictures;
use testkit::chat_stub::dialects::{Dialect, Said, reasoning_item, signature};
use testkit::chat_stub::{ChatStub, StubReply, event_head};

pub const KEY: &str = "sk-canary-2a6b1c9d4e";

/// Each dialect and the profile that speaks it.
pub const ALL: [(&str, Dialect); 3] =
    [("openai-chat", Dialect::Chat), ("openai", Dialect::Responses), ("anthropic", Dialect::Messages)];

fn provider(name: &str, url: &str) -> Arc<dyn Provider> {
    let env = |name: &str| matches!(name, "OPENAI_API_KEY" | "ANTHROPIC_API_KEY").then(|| KEY.to_owned());
    let registry = Registry::with_env(&Overlay::providers(None), env);
    let choice = Choice { provider: name.to_owned(), base_url: Some(url.to_owned()), ..Choice::default() };
    connect(&registry, &choice).unwrap()
}

fn usage() -> Value {
    json!({"prompt_tokens": 339, "completion_tokens": 50, "total_tokens": 389,
           "prompt_tokens_details": {"cached_tokens": 300, "cache_write_tokens": 9},
           "completion_tokens_details": {"reasoning_tokens": 7}})
}

fn made() -> Vec<(String, String)> {
    vec![
        ("apply_primitive".to_owned(), "{\"move\":\"wärmer\",\"strength\":0.25}".to_owned()),
        ("render_preview".to_owned(), "{}".to_owned()),
    ]
}

#[tokio::test]
async fn a_stream_torn_at_any_byte_says_what_the_whole_body_says_in_each_dialect() {
    for (name, dialect) in ALL {
        let (made, usage) = (made(), usage());
        let text = if dialect == Dialect::Chat { "" } else { "Größer, and brighter." };
        let said = Said { turn: 0, text, thought: "dark", calls: &made, usage: &usage };
        let (kind, whole) = dialect.reply(&said, false);
        let (_, stream) = dialect.reply(&said, true);
        let mut replies = vec![StubReply::status(200, &[("content-type", kind)], &whole)];
        for text in [stream.clone(), stream.replace('\n', "\r\n")] {
            // Every byte its own segment, and a few cuts with a pause that forces separate reads.
            let mut bytes = vec![event_head()];
            bytes.extend(text.bytes().map(|b| vec![b]));
            replies.push(StubReply::Raw { pieces: bytes, pause: Duration::ZERO });
            for cut in (1..text.len()).step_by(text.len() / 8) {
                let (a, b) = text.as_bytes().split_at(cut);
                let pieces = vec![event_head(), a.to_vec(), b.to_vec()];
                replies.push(StubReply::Raw { pieces, pause: Duration::from_millis(3) });
            }
        }
        let count = replies.len();
        let stub = ChatStub::start(replies);
        let provider = provider(name, &stub.url());
        let expected = ask_once(provider.as_ref()).await.unwrap();
        assert_eq!(super::text(&expected), text, "{name}");
        assert_eq!(calls(&expected)[0].arguments, made[0].1, "{name}");
        assert_eq!((calls(&expected).len(), &expected.finish), (2, &Finish::ToolCalls), "{name}");
        let counts = [
            expected.usage.input_fresh,
            expected.usage.input_cache_read,
            expected.usage.input_cache_write,
            expected.usage.output,
            expected.usage.reasoning,
        ];
        assert_eq!(counts, [30, 300, 9, 50, 7].map(Some), "{name}");
        for n in 1..count {
            let reply = ask_once(provider.as_ref()).await.unwrap();
            let same = ModelReply { raw: expected.raw.clone(), first_byte: expected.first_byte, ..reply };
            assert_eq!(same, expected, "{name}, reply {n}");
        }
    }
}

/// A conversation with two calls in one reply, a picture in a result, a call that failed, and a thought before each reply.
async fn conversation(name: &str) -> (ChatStub, Vec<Message>) {
    let stub = ChatStub::start(vec![
        StubReply::calls(&[("apply_primitive", json!({"move": "expo_up"})), ("render_preview", json!({}))])
            .thinking("first", usage()),
        StubReply::call("apply_primitive", json!({"move": "no_such"})).thinking("second", usage()),
        StubReply::text("Good enough.").thinking("third", usage()),
        StubReply::text("Still good."),
    ]);
    let provider = provider(name, &stub.url());
    let mut pictures = Pictures::default();
    let images = vec![pictures.add(b"baseline", "the baseline")];
    let mut messages = vec![Message::User { text: "Brighten it.".to_owned(), images }];
    for turn in 0..4 {
        let reply = ask(provider.as_ref(), &messages, &pictures).await.unwrap();
        assert!(reply.notes.is_empty(), "{name}: {:?}", reply.notes);
        let made = calls(&reply).to_vec();
        messages.push(reply.message);
        if made.is_empty() {
            messages.push(user("Are you sure?"));
            continue;
        }
        let last = made.len() - 1;
        let results = made.iter().enumerate().map(|(n, call)| {
            let shown = n == last && turn == 0;
            let images: Vec<ImageRef> =
                shown.then(|| pictures.add(b"after", "after the move")).into_iter().collect();
            let mut result = result(call, &format!("{{\"turn\":{turn}}}"), images);
            result.is_error = turn == 1;
            result
        });
        let results = results.collect();
        messages.push(Message::Results { results });
    }
    (stub, messages)
}

#[tokio::test]
async fn a_request_extends_the_one_before_byte_for_byte_in_each_dialect() {
    for (name, dialect) in ALL {
        let (stub, _) = conversation(name).await;
        let bodies = stub.bodies();
        assert_eq!(bodies.len(), 4);
        for pair in bodies.windows(2) {
            let [before, after] = pair else { unreachable!() };
            // All but the brackets that close it.
            let open = before.strip_suffix(b"]}").unwrap();
            assert!(after.starts_with(open), "{name}: {}", String::from_utf8_lossy(after));
        }
        for head in stub.heads() {
            let head = head.to_lowercase();
            let (own, other) = (format!("x-api-key: {KEY}"), format!("authorization: bearer {KEY}"));
            let (own, other) = if dialect == Dialect::Messages { (own, other) } else { (other, own) };
            assert!(head.contains(&own) && !head.contains(&other), "{name}: {head}");
            let version = head.contains("anthropic-version: 2026-10-21");
            assert_eq!(version, dialect == Dialect::Messages, "{head}");
        }
    }
}

#[tokio::test]
async fn responses_are_asked_without_a_state_and_get_their_reasoning_back_as_it_was() {
    let (stub, _) = conversation("openai").await;
    let last = &stub.requests()[3];
    let kinds: Vec<&str> = last["input"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["role"].as_str().or(item["type"].as_str()).unwrap())
        .collect();
    let expected = [
        "user",
        "reasoning",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "reasoning",
        "function_call",
        "function_call_output",
        "reasoning",
        "assistant",
        "user",
    ];
    assert!(last["input"].as_array().unwrap().iter().all(|item| item["type"].is_string()));
    assert_eq!(kinds, expected);
    let body = String::from_utf8(stub.bodies().pop().unwrap()).unwrap();
    for (turn, thought) in ["first", "second", "third"].into_iter().enumerate() {
        assert!(body.contains(&reasoning_item(turn, thought)), "{body}");
    }
    let shown = &last["input"][5]["output"];
    assert_eq!(shown[0], json!({"type": "input_text", "text": "{\"turn\":0}"}));
    assert_eq!(shown[1]["text"], "after the move");
    assert_eq!(
        shown[2],
        json!({"type": "input_image", "detail": "high", "image_url": "data:image/jpeg;base64,YWZ0ZXI="})
    );
    assert_eq!(last["input"][4]["output"], "{\"turn\":0}");
    assert_eq!((&last["store"], &last["include"][0]), (&json!(false), &json!("reasoning.encrypted_content")));
    assert_eq!((&last["max_output_tokens"], &last["reasoning"]), (&json!(500), &json!({"effort": "low"})));
    assert_eq!((&last["instructions"], &last["prompt_cache_key"]), (&json!("You edit."), &json!("s1")));
    assert_eq!(last["tools"][0]["name"], "apply_primitive");
    assert!(last.get("previous_response_id").is_none() && last.get("seed").is_none());
}

#[tokio::test]
async fn messages_carry_marks_of_the_cache_signed_thoughts_and_pictures_in_results() {
    let (stub, _) = conversation("anthropic").await;
    let last = &stub.requests()[3];
    let blocks = |n: usize| -> Vec<String> {
        let content = last["messages"][n]["content"].as_array().unwrap();
        content.iter().map(|block| block["type"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(blocks(0), ["text", "text", "image"]);
    assert_eq!(blocks(1), ["thinking", "tool_use", "tool_use"]);
    assert_eq!(blocks(2), ["tool_result", "tool_result"]);
    assert_eq!(blocks(5), ["thinking", "text"]);
    let thought = |n: usize| &last["messages"][n]["content"][0];
    assert_eq!(
        *thought(3),
        json!({"type": "thinking", "thinking": "I think second", "signature": signature("second")})
    );
    let shown = &last["messages"][2]["content"][1];
    assert_eq!(shown["tool_use_id"], "call_0_1");
    let source = json!({"type": "base64", "media_type": "image/jpeg", "data": "YWZ0ZXI="});
    assert_eq!(shown["content"][2], json!({"type": "image", "source": source}));
    assert!(shown.get("is_error").is_none());
    assert_eq!(last["messages"][4]["content"][0]["is_error"], true);
    // At the last tool, at the system prompt, and at whatever block is the last.
    let mark = json!({"type": "ephemeral"});
    let tools = last["tools"].as_array().unwrap();
    assert_eq!((&tools[tools.len() - 1]["cache_control"], &tools[0]["cache_control"]), (&mark, &Value::Null));
    assert_eq!((&last["system"][0]["cache_control"], &last["cache_control"]), (&mark, &mark));
    assert_eq!(last.to_string().matches("cache_control").count(), 3);
    assert_eq!((&last["max_tokens"], &last["tool_choice"]), (&json!(500), &json!({"type": "auto"})));
}

#[tokio::test]
async fn a_thought_is_shown_to_no_other_model() {
    for (name, dialect) in ALL {
        let (_, messages) = conversation(name).await;
        for (other, spoken) in ALL.into_iter().filter(|(_, other)| *other != dialect) {
            let stub = ChatStub::start(vec![]);
            let mut pictures = Pictures::default();
            pictures.add(b"baseline", "");
            pictures.add(b"after", "");
            ask(provider(other, &stub.url()).as_ref(), &messages, &pictures).await.unwrap();
            let body = &stub.requests()[0];
            let all = body.to_string();
            for word in ["first", "second", "third", "thinking", "encrypted_content\":", "reasoning_details"]
            {
                assert!(!all.contains(word), "{name} to {other}: {word} in {all}");
            }
            assert!(all.contains("Good enough.") && all.contains("call_0_1"), "{all}");
            assert!(spoken.conversation(body).len() >= 6);
        }
    }
}

/// What llama.cpp streamed when it was asked in each dialect (xllamacpp 2026.10.11549, Qwen2.5-Coder 0.5B): for a call,
/// and after a picture in a result, where the model calls again.
#[tokio::test]
async fn what_a_real_server_streamed_is_understood_torn_at_every_byte() {
    let brighter = json!({"image_id": "img_42", "primitive": "expo_up", "strength": 0.6});
    let look = |id: &str| json!({"image_id": id, "size": 640});
    // Fresh, from the cache, and of the reply.
    let rows = [
        ("openai-chat", "chat-call", "apply_primitive", brighter.clone(), [304, 0, 40]),
        ("openai-chat", "chat-picture", "render_preview", look("call_0"), [72, 311, 32]),
        ("openai", "responses-call", "apply_primitive", brighter.clone(), [1, 303, 45]),
        ("openai", "responses-picture", "render_preview", look("img_42"), [61, 311, 33]),
        ("anthropic", "messages-call", "apply_primitive", brighter, [1, 303, 40]),
        ("anthropic", "messages-picture", "render_preview", look("img_42"), [61, 311, 33]),
    ];
    for (name, capture, tool, arguments, counts) in rows {
        let file = format!("{}/tests/provider/captures/{capture}.txt", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(file).unwrap();
        let mut bytes = vec![event_head()];
        bytes.extend(text.bytes().map(|b| vec![b]));
        let torn = StubReply::Raw { pieces: bytes, pause: Duration::ZERO };
        let stub = ChatStub::start(vec![StubReply::events(&text), torn]);
        let provider = provider(name, &stub.url());
        for _ in 0..2 {
            let reply = ask_once(provider.as_ref()).await.unwrap();
            let [call] = calls(&reply) else { panic!("{capture}: {reply:?}") };
            assert_eq!(call.name, tool, "{capture}");
            assert_eq!(serde_json::from_str::<Value>(&call.arguments).unwrap(), arguments, "{capture}");
            let usage = reply.usage;
            let found = [usage.input_fresh, usage.input_cache_read, usage.output];
            assert_eq!(found, counts.map(Some), "{capture}");
            assert_eq!(reply.model_served.as_deref(), Some("qwen2.5-coder-0.5b"), "{capture}");
            assert_eq!((&reply.finish, super::text(&reply)), (&Finish::ToolCalls, ""), "{capture}");
        }
    }
}

/// A stream of these events, as far as they go.
fn events(events: &[Value]) -> StubReply {
    let text: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    StubReply::events(&text)
}

fn begun() -> [Value; 3] {
    [
        json!({"type": "message_start", "message": {"type": "message", "model": "m",
               "usage": {"input_tokens": 9, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "I"}}),
    ]
}

fn stopped(reason: &str) -> StubReply {
    let [head, block, delta] = begun();
    let end =
        json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}});
    events(&[head, block, delta, end, json!({"type": "message_stop"})])
}

#[tokio::test]
async fn each_end_of_a_message_has_its_meaning() {
    let refused = |details: Value| {
        let head = begun()[0].clone();
        let delta = json!({"stop_reason": "refusal", "stop_details": details});
        let end = json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 1}});
        events(&[head, end, json!({"type": "message_stop"})])
    };
    let rows = [
        (stopped("end_turn"), "I", Finish::Stop),
        (stopped("stop_sequence"), "I", Finish::Stop),
        (stopped("max_tokens"), "I", Finish::Length),
        (stopped("model_context_window_exceeded"), "I", Finish::Length),
        (stopped("pause_turn"), "I", Finish::Other("pause_turn".into())),
        (stopped("something_new"), "I", Finish::Other("something_new".into())),
        (stopped("refusal"), "I", Finish::Refusal),
        (refused(json!({"category": "cyber"})), "cyber", Finish::Refusal),
        (refused(json!({"category": "bio", "explanation": "I may not."})), "I may not.", Finish::Refusal),
        (refused(Value::Null), "The model refused.", Finish::Refusal),
    ];
    let stub = ChatStub::start(rows.iter().map(|(reply, ..)| reply.clone()).collect());
    let provider = provider("anthropic", &stub.url());
    for (_, said, finish) in rows {
        let reply = ask_once(provider.as_ref()).await.unwrap();
        assert_eq!((text(&reply), reply.finish.clone()), (said, finish.clone()), "{finish:?}");
        assert_eq!(reply.finish.is_pause(), finish == Finish::Other("pause_turn".into()));
    }
}

#[tokio::test]
async fn each_end_of_a_response_has_its_meaning() {
    let content = |part: Value| json!({"type": "message", "role": "assistant", "content": [part]});
    let said = || content(json!({"type": "output_text", "text": "I", "annotations": []}));
    let response = |status: &str, details: Value, item: Value| {
        let body = json!({"object": "response", "status": status, "incomplete_details": details, "model": "m",
                          "output": [item], "usage": {"input_tokens": 9, "output_tokens": 5}});
        StubReply::status(200, &[("content-type", "application/json")], &body.to_string())
    };
    let why = |reason: &str| json!({"reason": reason});
    let rows = [
        (response("completed", Value::Null, said()), "I", Finish::Stop),
        (response("incomplete", why("max_output_tokens"), said()), "I", Finish::Length),
        (response("incomplete", why("content_filter"), said()), "I", Finish::Refusal),
        (response("incomplete", why("something_new"), said()), "I", Finish::Other("something_new".into())),
        (
            response("completed", Value::Null, content(json!({"type": "refusal", "refusal": "I may not."}))),
            "I may not.",
            Finish::Refusal,
        ),
    ];
    let stub = ChatStub::start(rows.iter().map(|(reply, ..)| reply.clone()).collect());
    let provider = provider("openai", &stub.url());
    for (_, said, finish) in rows {
        let reply = ask_once(provider.as_ref()).await.unwrap();
        assert_eq!((text(&reply), reply.finish.clone()), (said, finish));
        assert_eq!(reply.usage.total(), Some(14));
    }
}

/// Streams that end in an error, or too early: class, whether the model may have worked, and what was reported.
#[tokio::test]
async fn an_error_within_a_stream_is_told_with_what_was_reported() {
    let [head, block, delta] = begun();
    let overloaded = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let failed = |error: Value, usage: Value| {
        json!({"type": "response.failed", "response": {"object": "response", "status": "failed", "error": error,
               "output": [], "usage": usage}})
    };
    let letters =
        json!({"type": "response.output_text.delta", "output_index": 0, "item_id": "m", "delta": "I"});
    let broken = json!({"code": "server_error", "message": "It broke."});
    let limited = json!({"code": "rate_limit_exceeded", "message": "Too many."});
    let usage = json!({"input_tokens": 9, "output_tokens": 5});
    let error = json!({"type": "error", "code": "server_error", "message": "It broke.", "param": null});
    // The length of a message that was not finished is not known, and its count of one token says nothing.
    let rows = [
        ("anthropic", events(std::slice::from_ref(&overloaded)), FaultClass::Transient, false, None),
        (
            "anthropic",
            events(&[head.clone(), block.clone(), delta.clone(), overloaded]),
            FaultClass::Transient,
            true,
            Some(9),
        ),
        ("anthropic", events(&[head.clone(), block, delta]), FaultClass::Transport, true, Some(9)),
        ("anthropic", events(&[head]), FaultClass::Transport, true, Some(9)),
        ("openai", events(&[failed(broken, Value::Null)]), FaultClass::Transient, false, None),
        ("openai", events(&[letters.clone(), failed(limited, usage)]), FaultClass::RateLimit, true, Some(14)),
        ("openai", events(&[letters.clone(), error]), FaultClass::Transient, true, None),
        ("openai", events(&[letters]), FaultClass::Transport, true, None),
    ];
    for (name, reply, class, sent, reported) in rows {
        let stub = ChatStub::start(vec![reply.clone()]);
        let fault = ask_once(provider(name, &stub.url()).as_ref()).await.unwrap_err();
        assert_eq!((fault.class, fault.sent), (class, sent), "{name} {reply:?}: {fault:?}");
        assert_eq!(fault.usage.total(), reported, "{name} {reply:?}");
        assert!(fault.usage.output.is_none() || reported == Some(14), "{name} {reply:?}");
        assert_eq!(stub.requests().len(), 1);
    }
}

#[tokio::test]
async fn the_key_comes_back_in_nothing_in_any_dialect() {
    for (name, dialect) in ALL {
        let echo = format!("{{\"error\":{{\"message\":\"Incorrect API key provided: {KEY}\"}}}}");
        let told = format!("Your key is {KEY}.");
        let usage = usage();
        let said = Said { turn: 0, text: &told, thought: KEY, calls: &[], usage: &usage };
        let (_, stream) = dialect.reply(&said, true);
        let cut = &stream[..stream.len() - 40];
        let stub = ChatStub::start(vec![
            StubReply::status(401, &[], &echo),
            StubReply::events(cut.rsplit_once("\n\n").unwrap().0),
            StubReply::events(&stream),
        ]);
        let provider = provider(name, &stub.url());
        let refused = ask_once(provider.as_ref()).await.unwrap_err();
        assert_eq!(refused.class, FaultClass::Auth, "{name}");
        assert!(!format!("{refused:?}").contains(KEY) && !provider.info().provider.is_empty());
        let all = match ask_once(provider.as_ref()).await {
            Ok(reply) => format!("{reply:?} {}", String::from_utf8_lossy(&reply.raw)),
            Err(fault) => format!("{fault:?} {}", String::from_utf8_lossy(&fault.raw)),
        };
        assert!(!all.contains(KEY), "{name}: {all}");
        let reply = ask_once(provider.as_ref()).await.unwrap();
        assert_eq!(text(&reply), "Your key is [redacted].");
        let all = format!("{reply:?} {}", String::from_utf8_lossy(&reply.raw));
        assert!(!all.contains(KEY), "{name}: {all}");
        assert!(stub.heads().iter().all(|head| head.contains(KEY)), "the canary was really in use");
    }
}
