//! Replies as they come over a wire: torn, cut, and in the odd shapes that imitators send.

use std::collections::HashSet;
use std::time::Duration;

use chemigram::provider::{FaultClass, Finish, ModelReply};
use serde_json::{Value, json};

use super::{ask_once, calls, openai, text};
use testkit::chat_stub::{ChatStub, StubReply, body_of, event_head, stream_of};

fn sample() -> (String, Vec<(String, String)>, Value) {
    let made = vec![
        ("apply_primitive".to_owned(), "{\"move\":\"wärmer\",\"strength\":0.25}".to_owned()),
        ("render_preview".to_owned(), "{}".to_owned()),
    ];
    let usage = json!({"prompt_tokens": 339, "completion_tokens": 50, "total_tokens": 389,
        "prompt_tokens_details": {"cached_tokens": 300, "cache_write_tokens": 9},
        "completion_tokens_details": {"reasoning_tokens": 7}, "cost": 0.0012345});
    ("Größer, and brighter.".to_owned(), made, usage)
}

#[tokio::test]
async fn a_stream_torn_at_any_byte_says_what_the_whole_body_says() {
    let (words, made, usage) = sample();
    let whole = body_of(0, &words, &made, &usage);
    // The stub's whole body drops text beside calls; a stream carries both.
    let mut whole: Value = serde_json::from_str(&whole).unwrap();
    whole["choices"][0]["message"]["content"] = words.clone().into();
    let stream = stream_of(0, &words, &made, &usage);
    let crlf = format!(": PROCESSING\r\n\r\n{}", stream.replace('\n', "\r\n"));

    let mut replies =
        vec![StubReply::status(200, &[("content-type", "application/json")], &whole.to_string())];
    for text in [&stream, &crlf] {
        // Every byte its own segment, and a few cuts with a pause that forces separate reads.
        let mut bytes = vec![event_head()];
        bytes.extend(text.bytes().map(|b| vec![b]));
        replies.push(StubReply::Raw { pieces: bytes, pause: Duration::ZERO });
        for cut in (1..text.len()).step_by(text.len() / 12) {
            let (a, b) = text.as_bytes().split_at(cut);
            let pieces = vec![event_head(), a.to_vec(), b.to_vec()];
            replies.push(StubReply::Raw { pieces, pause: Duration::from_millis(3) });
        }
    }
    let count = replies.len();
    let stub = ChatStub::start(replies);
    let provider = openai(&stub.url());
    let expected = ask_once(provider.as_ref()).await.unwrap();
    assert_eq!(text(&expected), words);
    assert_eq!(calls(&expected)[0].arguments, made[0].1);
    assert_eq!(expected.usage.input_fresh, Some(30));
    assert_eq!(expected.usage.input_cache_write, Some(9));
    assert_eq!(expected.usage.reasoning, Some(7));
    assert_eq!(expected.cost_micro_usd, Some(1235), "rounded up");
    for n in 1..count {
        let reply = ask_once(provider.as_ref()).await.unwrap();
        let same = ModelReply { raw: expected.raw.clone(), first_byte: expected.first_byte, ..reply };
        assert_eq!(same, expected, "reply {n}");
    }
}

#[tokio::test]
async fn broken_streams_are_faults_that_keep_their_usage() {
    let part = "data: {\"choices\":[{\"delta\":{\"content\":\"I\"}}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1}}\n\n";
    let stub = ChatStub::start(vec![
        StubReply::events(part),
        StubReply::events(&format!("{part}data: {{\"choices\":[{{\"del")),
        StubReply::events(&format!(
            "{part}data: {{\"error\":{{\"code\":502,\"message\":\"upstream\"}}}}\n\n{part}"
        )),
        StubReply::events(&format!(
            "{part}data: {{\"choices\":[{{\"delta\":{{}},\"finish_reason\":\"error\"}}]}}\n\n"
        )),
        StubReply::events("{\"error\":{\"code\":400,\"message\":\"no\"}}\n\n"),
        StubReply::events(""),
        StubReply::events("data: [DONE]\n\n"),
    ]);
    let provider = openai(&stub.url());
    let rows = [
        (FaultClass::Transport, "ended early", true),
        (FaultClass::Garbage, "not JSON", true),
        (FaultClass::Transient, "upstream", true),
        (FaultClass::Transient, "ended the reply early", true),
        (FaultClass::BadRequest, "no", false),
        (FaultClass::Transport, "ended early", false),
        (FaultClass::Garbage, "holds no reply", false),
    ];
    for (class, words, charged) in rows {
        let fault = ask_once(provider.as_ref()).await.unwrap_err();
        assert_eq!(fault.class, class, "{words}: {fault:?}");
        assert!(fault.message.contains(words), "{fault}");
        assert_eq!(fault.usage.total(), charged.then_some(10), "{words}");
    }
}

#[tokio::test]
async fn a_connection_cut_within_the_body_is_a_transport_fault() {
    let head =
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n{\"choices\":"
            .to_vec();
    let stub = ChatStub::start(vec![StubReply::Raw { pieces: vec![head], pause: Duration::ZERO }]);
    let fault = ask_once(openai(&stub.url()).as_ref()).await.unwrap_err();
    assert_eq!(fault.class, FaultClass::Transport);
    assert_eq!(fault.raw, b"{\"choices\":");
}

/// A stream of chunks with these deltas; the last also finishes.
pub(crate) fn deltas(finish: &str, deltas: &[Value]) -> String {
    let mut out = String::new();
    for (n, delta) in deltas.iter().enumerate() {
        let finish = if n + 1 == deltas.len() { json!(finish) } else { Value::Null };
        let chunk = json!({"choices": [{"delta": delta, "finish_reason": finish}]});
        out.push_str(&format!("data: {chunk}\n\n"));
    }
    out
}

/// Shapes that imitators send and strict decoders refuse: the reply was paid for, so it is read.
#[tokio::test]
async fn every_odd_shape_is_read() {
    let whole = |message: Value, finish: &str| {
        json!({"choices": [{"message": message, "finish_reason": finish}]}).to_string()
    };
    let hi = || json!({"content": "hi"});
    let call = |value: Value| json!({"tool_calls": [value]});
    // Body, text, calls as name and arguments, finish.
    let rows: Vec<(String, &str, &str, Finish)> = vec![
        (whole(hi(), "end_turn"), "hi", "", Finish::Stop),
        (whole(hi(), ""), "hi", "", Finish::Stop),
        (whole(hi(), "eos_token"), "hi", "", Finish::Other("eos_token".into())),
        (whole(hi(), "length"), "hi", "", Finish::Length),
        (whole(hi(), "content_filter"), "hi", "", Finish::Refusal),
        (
            r#"{"error":null,"id":7,"created":1.5,"service_tier":"standard","choices":[{"message":{"content":"hi"}}]}"#.into(),
            "hi",
            "",
            Finish::Stop,
        ),
        (
            whole(json!({"role": null, "tool_calls": null, "content": [{"type": "text", "text": "h"}, {"text": "i"}]}), "stop"),
            "hi",
            "",
            Finish::Stop,
        ),
        (whole(json!({"content": ["h", "i"]}), "stop"), "hi", "", Finish::Stop),
        (whole(json!({"content": null, "refusal": "No."}), "stop"), "No.", "", Finish::Refusal),
        (
            whole(call(json!({"function": {"name": "a", "arguments": {"x": 1}}})), "stop"),
            "",
            r#"a{"x":1}"#,
            Finish::ToolCalls,
        ),
        (
            whole(
                json!({"tool_calls": [{"id": "1", "function": {"name": "a", "arguments": ""}},
                                      {"id": "1", "function": {"name": "b", "arguments": null}}]}),
                "tool_calls",
            ),
            "",
            "a{} b{}",
            Finish::ToolCalls,
        ),
        (
            whole(
                json!({"tool_calls": [{"function": {"name": "a", "arguments": "{"}},
                                      {"function": {"name": "a", "arguments": "{}"}}]}),
                "tool_use",
            ),
            "",
            "a{ a{}",
            Finish::ToolCalls,
        ),
        (
            whole(json!({"function_call": {"name": "a", "arguments": "{}"}}), "function_call"),
            "",
            "a{}",
            Finish::ToolCalls,
        ),
        // Streams: without a content type, without blank lines, without a finish but with an end.
        (deltas("stop", &[hi()]), "hi", "", Finish::Stop),
        (deltas("stop", &[hi()]).replace("\n\n", "\n"), "hi", "", Finish::Stop),
        (format!("{}data: [DONE]\n", deltas("", &[hi()])), "hi", "", Finish::Stop),
        // Calls without an index, told apart by id; two calls under one index; the name repeated.
        (
            deltas(
                "tool_calls",
                &[
                    call(json!({"id": "1", "function": {"name": "a", "arguments": "{"}})),
                    call(json!({"function": {"arguments": "}"}})),
                    call(json!({"id": "2", "function": {"name": "b", "arguments": "{}"}})),
                ],
            ),
            "",
            "a{} b{}",
            Finish::ToolCalls,
        ),
        (
            deltas(
                "tool_calls",
                &[
                    call(json!({"index": 0, "id": "1", "function": {"name": "a", "arguments": "{}"}})),
                    call(json!({"index": 0, "id": "2", "function": {"name": "b", "arguments": "{"}})),
                    call(json!({"index": 0, "id": "2", "function": {"name": "b", "arguments": "}"}})),
                ],
            ),
            "",
            "a{} b{}",
            Finish::ToolCalls,
        ),
    ];
    let stub = ChatStub::start(rows.iter().map(|(body, ..)| StubReply::status(200, &[], body)).collect());
    let provider = openai(&stub.url());
    for (body, words, made, finish) in rows {
        let reply = ask_once(provider.as_ref()).await.unwrap_or_else(|e| panic!("{body}: {e}"));
        assert_eq!(text(&reply), words, "{body}");
        let shown: Vec<String> = calls(&reply).iter().map(|c| format!("{}{}", c.name, c.arguments)).collect();
        assert_eq!(shown.join(" "), made, "{body}");
        assert_eq!(reply.finish, finish, "{body}");
        let ids: HashSet<&String> = calls(&reply).iter().map(|c| &c.id).collect();
        assert!(ids.len() == calls(&reply).len() && !ids.iter().any(|id| id.is_empty()), "{body}");
        assert_eq!(reply.raw, body.as_bytes());
    }
}

#[tokio::test]
async fn usage_is_four_disjoint_counters_or_absent() {
    let details = |details: Value| json!({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": details});
    let hidden = |completion: u64| {
        json!({"prompt_tokens": 9, "completion_tokens": completion, "total_tokens": 16,
               "completion_tokens_details": {"reasoning_tokens": 5}})
    };
    // Fresh, read, write, output.
    let rows = [
        (json!(null), [None; 4]),
        (json!({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}), [None; 4]),
        (json!({"prompt_tokens": 9, "completion_tokens": 2}), [Some(9), None, None, Some(2)]),
        (json!({"prompt_tokens": 9.0, "completion_tokens": "2"}), [Some(9), None, None, Some(2)]),
        (json!({"prompt_tokens": 9, "total_tokens": 12}), [Some(9), None, None, Some(3)]),
        (json!({"prompt_tokens": -3, "completion_tokens": 2}), [None, None, None, Some(2)]),
        (json!({"input_tokens": 9, "output_tokens": 2}), [Some(9), None, None, Some(2)]),
        (details(json!({"cached_tokens": 4, "cache_write_tokens": 3})), [Some(2), Some(4), Some(3), Some(2)]),
        (details(json!({"cached_tokens": 50})), [Some(0), Some(50), None, Some(2)]),
        (
            json!({"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 8}),
            [Some(1), Some(8), None, Some(2)],
        ),
        (hidden(2), [Some(9), None, None, Some(7)]),
        (hidden(7), [Some(9), None, None, Some(7)]),
    ];
    let bodies = rows.iter().map(|(usage, _)| StubReply::status(200, &[], &body_of(0, "x", &[], usage)));
    let stub = ChatStub::start(bodies.collect());
    let provider = openai(&stub.url());
    for (said, expected) in rows {
        let usage = ask_once(provider.as_ref()).await.unwrap().usage;
        let got = [usage.input_fresh, usage.input_cache_read, usage.input_cache_write, usage.output];
        assert_eq!(got, expected, "{said}");
    }
}
