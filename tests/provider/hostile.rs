//! Replies that no honest server sends: each ends soon, as a fault that says why.

use std::time::{Duration, Instant};

use chemigram::provider::{FaultClass, ProviderFault};
use serde_json::{Value, json};

use super::{ask_once, calls, impatient, openai, waiting};
use testkit::chat_stub::{ChatStub, StubReply, event_head};

/// A whole answer of a server that says nothing of its length.
fn whole(body: String) -> StubReply {
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n".to_vec();
    StubReply::Raw { pieces: vec![head, body.into_bytes()], pause: Duration::ZERO }
}

fn delta(delta: &Value) -> String {
    format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta}]}))
}

/// The one reply's fault, and how long it took.
async fn fault(reply: StubReply) -> (ProviderFault, Duration) {
    let stub = ChatStub::start(vec![reply]);
    let provider = openai(&stub.url());
    let started = Instant::now();
    (ask_once(provider.as_ref()).await.unwrap_err(), started.elapsed())
}

/// Reading twice as much takes about twice as long, and not four times: told by the clock, but of one process in
/// one run, the best of some each, so that a busy machine does not matter.
async fn takes_linear_time(of: impl Fn(usize) -> StubReply) {
    let mut best = [Duration::MAX; 2];
    for _ in 0..10 {
        for (n, best) in best.iter_mut().enumerate() {
            *best = (*best).min(fault(of(n + 1)).await.1);
        }
        if best[1] < best[0] * 3 + Duration::from_millis(200) {
            return;
        }
    }
    panic!("{:?} for one, {:?} for two", best[0], best[1]);
}

#[tokio::test]
async fn an_event_of_a_hundred_thousand_lines_is_read_in_linear_time() {
    let lines = |n: usize| format!("data: [1,\n{}", "data:1,\n".repeat(n * 20_000));
    takes_linear_time(|n| StubReply::events(&lines(n))).await;
    let (fault, _) = fault(StubReply::events(&lines(20))).await;
    assert_eq!((fault.class, fault.sent), (FaultClass::Garbage, true));
    assert!(fault.message.contains("an event of the stream"), "{}", fault.message);
}

#[tokio::test]
async fn streams_of_tens_of_thousands_of_pieces_are_read_in_linear_time() {
    let piece = json!({"reasoning_details": [{"index": 0, "type": "reasoning.text", "text": "m"}]});
    takes_linear_time(|n| StubReply::events(&delta(&piece).repeat(n * 15_000))).await;
    let call =
        |n: usize| json!({"tool_calls": [{"index": 0, "id": "a", "function": {"arguments": " ".repeat(n)}}]});
    takes_linear_time(|n| StubReply::events(&delta(&call(1)).repeat(n * 15_000))).await;
}

#[tokio::test]
async fn a_reply_makes_sixty_four_calls_at_most() {
    let call = |n: usize, id: usize| json!({"tool_calls": [{"index": n, "id": format!("c{id}"), "function": {"name": "render_preview"}}]});
    let made = |count: usize| -> String { (0..count).map(|n| delta(&call(n, n))).collect() };
    let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n";
    let stub = ChatStub::start(vec![StubReply::events(&format!("{}{end}", made(64)))]);
    let reply = ask_once(openai(&stub.url()).as_ref()).await.unwrap();
    assert_eq!(calls(&reply).len(), 64);
    let descending: String = (0..100).map(|n| delta(&call(100 - n, n))).collect();
    let same: String = (0..100).map(|n| delta(&call(0, n))).collect();
    for stream in [made(65), descending, same] {
        let (fault, _) = fault(StubReply::events(&format!("{stream}{end}"))).await;
        assert_eq!(fault.class, FaultClass::Garbage);
        assert!(fault.message.contains("more than 64 calls"), "{}", fault.message);
    }
}

#[tokio::test]
async fn what_is_too_large_is_refused_before_it_is_built() {
    let long = |n: usize| "x".repeat(n);
    let message =
        |content: Value| json!({"choices": [{"message": content, "finish_reason": "stop"}]}).to_string();
    let with_arguments = |n: usize| json!({"tool_calls": [{"id": "c", "function": {"name": "render_preview", "arguments": long(n)}}]});
    let event = |n: usize| StubReply::events(&format!("data: {{\"x\": \"{}\"}}\n\n", long(n)));
    for (reply, why) in [
        (whole(message(json!({"content": long(5 << 20)}))), "the body has more than 4194304 bytes"),
        (whole(format!("{{\"x\":[{}0]}}", "{\"a\":0},".repeat(100_000))), "holds more than 50000 values"),
        (whole(format!("{{\"x\":[{}0]}}", "[],".repeat(100_000))), "holds more than 50000 values"),
        (whole(message(with_arguments(300 << 10))), "the arguments of a call have more than 262144 bytes"),
        (event(2 << 20), "an event of the stream has more than 1048576 bytes"),
        (StubReply::events(&delta(&json!({"content": long(1000)})).repeat(5_000)), "more than 4194304 bytes"),
        (
            StubReply::events(&delta(&with_arguments(1000)).repeat(300)),
            "the arguments of a call have more than 262144 bytes",
        ),
    ] {
        let (fault, _) = fault(reply).await;
        assert_eq!((fault.class, fault.sent), (FaultClass::Garbage, true));
        assert!(fault.message.contains(why), "{why}: {}", fault.message);
    }
}

#[tokio::test]
async fn what_the_model_may_have_worked_on_is_told_from_what_it_has_not() {
    let started = delta(&json!({"content": "Some"}));
    let error = "data: {\"error\": {\"message\": \"overloaded\", \"code\": 503}}\n\n";
    let rows = [
        (StubReply::status(429, &[], r#"{"error":{"message":"slow down"}}"#), false),
        (StubReply::status(500, &[], ""), false),
        (StubReply::status(504, &[], ""), true),
        (StubReply::status(200, &[], r#"{"error":{"message":"overloaded","code":503}}"#), false),
        (StubReply::status(200, &[], "{\"choices\": 7"), true),
        (StubReply::events(error), false),
        (StubReply::events(&format!("{started}{error}")), true),
        (StubReply::events(&started), true),
        (StubReply::events(""), true),
    ];
    for (reply, sent) in rows {
        let name = format!("{reply:?}");
        assert_eq!(fault(reply).await.0.sent, sent, "{name}");
    }
    let (_folder, gone) = impatient("http://127.0.0.1:1/v1");
    assert!(!ask_once(gone.as_ref()).await.unwrap_err().sent, "nobody was there");
    let stub = ChatStub::start(vec![StubReply::Hang]);
    let (_folder, silent) = impatient(&stub.url());
    assert!(ask_once(silent.as_ref()).await.unwrap_err().sent, "it took the request and said nothing");
}

#[tokio::test]
async fn a_server_that_only_keeps_the_connection_alive_is_not_waited_for_without_end() {
    let piece = |text: &str| text.as_bytes().to_vec();
    // A reply that begins and one that does not: comments without end, which the client leaves after four seconds.
    let alive = |first: &str, sign: &str| {
        let pieces = [event_head(), piece(first)].into_iter();
        let pieces = pieces.chain(std::iter::repeat_n(piece(sign), 20 * 120)).collect();
        StubReply::Raw { pieces, pause: Duration::from_millis(50) }
    };
    let part = delta(&json!({"content": "Some"}));
    for (first, sign) in
        [("", ": keep-alive\n\n"), (&*part, ": OPENROUTER PROCESSING\n\n"), ("", "data:\n\n")]
    {
        let stub = ChatStub::start(vec![alive(first, sign)]);
        let (_dir, provider) = impatient(&stub.url());
        let started = Instant::now();
        let fault = ask_once(provider.as_ref()).await.unwrap_err();
        let took = started.elapsed();
        assert_eq!((fault.class, fault.sent), (FaultClass::Transport, true), "{first}{sign}: {fault}");
        // On a machine that stops for a second, the signs of life do too.
        let silent = fault.message.ends_with("sent nothing for 1s");
        let only_alive = fault.message.contains("for 4s and sent nothing of a reply");
        assert!(silent || only_alive && took >= Duration::from_secs(4), "{first}{sign}: {fault}");
        assert!(took < Duration::from_secs(100), "{sign}: {took:?}");
    }
}

#[tokio::test]
async fn a_reply_that_comes_after_comments_for_longer_than_the_limit_is_taken() {
    let comments = std::iter::repeat_n(b": OPENROUTER PROCESSING\n\n".to_vec(), 100);
    let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let reply = format!("{}{end}", delta(&json!({"content": "Here."})));
    let pieces = std::iter::once(event_head()).chain(comments).chain([reply.into_bytes()]).collect();
    let stub = ChatStub::start(vec![StubReply::Raw { pieces, pause: Duration::from_millis(50) }]);
    let (_dir, provider) = waiting(&stub.url(), 4);
    let started = Instant::now();
    let reply = ask_once(provider.as_ref()).await.unwrap();
    assert!(started.elapsed() >= Duration::from_secs(5), "the limit is four seconds");
    assert_eq!(super::text(&reply), "Here.");
}
