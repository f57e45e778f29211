//! Whatever goes wrong in each dialect: how often it is tried, what is charged, how long is waited.

use std::time::Duration;

use chemigram::transcript::{Event, FaultClass, Outcome};
use serde_json::{Value, json};

use crate::dialect_sessions::{DIALECTS, model, session};
use crate::support::{self, Studio};
use testkit::chat_stub::{ChatStub, StubReply};

/// What an attempt that failed is charged.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Charged {
    Nothing,
    /// All that was reserved for it.
    Reserved,
    /// The input that was reported, and the longest reply.
    Reported(u64),
}

/// Every row of the tables of errors: how often is it tried, and what is charged?
#[test]
fn every_error_is_tried_as_often_as_it_may_help_and_charged_as_it_may_have_cost() {
    use Charged::*;
    use FaultClass::*;
    let openai = |code: &str| json!({"error": {"message": "m", "type": "t", "param": null, "code": code}});
    let claude =
        |kind: &str| json!({"type": "error", "request_id": "r", "error": {"type": kind, "message": "m"}});
    let router = |code: u16| json!({"error": {"code": code, "message": "m"}});
    let llama = |code: u16, kind: &str, message: &str| json!({"error": {"code": code, "message": message, "type": kind}});
    let spent = json!({"type": "error", "error": {"type": "rate_limit_error", "message": "m",
                       "details": {"error_code": "enforced_spend_limit_reached"}}});
    let too_wide = json!({"type": "error", "error": {"type": "invalid_request_error", "message": "m",
                          "details": {"error_code": "image_dimensions_too_large"}}});
    let tools_and_reasoning = json!({"error": {"message": "Function tools with reasoning_effort are not supported for gpt-5.6-luna in /v1/chat/completions.", "type": "invalid_request_error", "param": "reasoning_effort", "code": null}});
    let thought = claude("invalid_request_error").to_string().replace(
        "\"m\"",
        "\"messages.1.content.0: Invalid signature in thinking block. The block is bound to a different conversation.\"",
    );
    let thought: Value = serde_json::from_str(&thought).unwrap();
    let [chat, responses, messages] = DIALECTS.map(|(name, _)| name);
    type Row = (&'static str, StubReply, FaultClass, usize, Charged);
    let status = |dialect, status: u16, wait: &str, body: &Value, class, attempts| -> Row {
        let headers: &[(&str, &str)] = if wait.is_empty() { &[] } else { &[("retry-after", wait)] };
        (dialect, StubReply::status(status, headers, &body.to_string()), class, attempts, Nothing)
    };
    let told = |dialect, status: u16, retry: &str, body: &Value, class, attempts| -> Row {
        let headers = [("x-should-retry", retry)];
        (dialect, StubReply::status(status, &headers, &body.to_string()), class, attempts, Nothing)
    };
    let limit = json!({"error": {"message": "You have reached your monthly usage limit.", "type": "t", "code": null}});
    let word = json!({"choices": [{"index": 0, "delta": {"content": "I"}}]});
    let stream = |dialect, events: &[Value], class, attempts, charged| -> Row {
        let text: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        (dialect, StubReply::events(&text), class, attempts, charged)
    };
    let head =
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 30_000, "output_tokens": 1}}});
    let nothing_yet =
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 0, "output_tokens": 0}}});
    let letters =
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "I"}});
    let delta = json!({"type": "response.output_text.delta", "delta": "I"});
    let failed = json!({"type": "response.failed", "response": {"status": "failed", "usage": null,
                        "error": {"code": "server_error", "message": "m"}}});
    let mut rows: Vec<Row> = vec![
        // OpenAI
        status(responses, 400, "", &openai("x"), BadRequest, 1),
        status(responses, 401, "", &openai("invalid_api_key"), Auth, 1),
        status(responses, 403, "", &openai("x"), Auth, 1),
        status(responses, 404, "", &openai("model_not_found"), BadRequest, 1),
        status(responses, 408, "", &openai("x"), Transient, 4),
        status(responses, 409, "", &openai("x"), Transient, 4),
        status(responses, 422, "", &openai("x"), BadRequest, 1),
        status(responses, 429, "2", &openai("rate_limit_exceeded"), RateLimit, 4),
        status(responses, 429, "", &openai("slow_down"), RateLimit, 4),
        status(responses, 429, "9", &openai("insufficient_quota"), Quota, 1),
        status(responses, 429, "", &openai("credit_balance_exhausted"), Quota, 1),
        status(responses, 500, "", &openai("server_error"), Transient, 4),
        status(responses, 503, "", &openai("server_is_overloaded"), Transient, 4),
        status(responses, 429, "", &limit, Quota, 1),
        status(responses, 400, "", &openai("content_policy_violation"), Refused, 1),
        status(chat, 400, "", &tools_and_reasoning, BadRequest, 1),
        // The server's own word, but for what no pause can heal
        told(responses, 400, "true", &openai("x"), Transient, 4),
        told(messages, 503, "false", &claude("api_error"), BadRequest, 1),
        told(responses, 401, "true", &openai("invalid_api_key"), Auth, 1),
        // Anthropic
        status(messages, 400, "", &claude("invalid_request_error"), BadRequest, 1),
        status(messages, 400, "", &thought, BadRequest, 1),
        status(messages, 400, "", &too_wide, TooLarge, 1),
        status(messages, 401, "", &claude("authentication_error"), Auth, 1),
        status(messages, 402, "", &claude("billing_error"), Quota, 1),
        status(messages, 403, "", &claude("permission_error"), Auth, 1),
        status(messages, 404, "", &claude("not_found_error"), BadRequest, 1),
        status(messages, 408, "", &claude("timeout_error"), Transient, 4),
        status(messages, 409, "", &claude("conflict_error"), Transient, 4),
        status(messages, 413, "", &claude("request_too_large"), TooLarge, 1),
        status(messages, 429, "2", &claude("rate_limit_error"), RateLimit, 4),
        status(messages, 429, "", &spent, Quota, 1),
        status(messages, 500, "", &claude("api_error"), Transient, 4),
        status(messages, 529, "", &claude("overloaded_error"), Transient, 4),
        // OpenRouter
        status(chat, 400, "", &router(400), BadRequest, 1),
        status(chat, 401, "", &router(401), Auth, 1),
        status(chat, 402, "", &router(402), Quota, 1),
        status(chat, 402, "2", &router(402), RateLimit, 4),
        status(chat, 403, "", &router(403), Auth, 1),
        status(chat, 408, "", &router(408), Transient, 4),
        status(chat, 429, "2", &router(429), RateLimit, 4),
        status(chat, 502, "2", &router(502), Transient, 4),
        status(chat, 503, "2", &router(503), Transient, 4),
        status(chat, 200, "", &router(502), Transient, 4),
        stream(chat, &[router(502)], Transient, 4, Nothing),
        stream(chat, &[word, router(502)], Transient, 4, Reserved),
        // llama.cpp, in whichever dialect it is asked
        status(chat, 401, "", &llama(401, "authentication_error", "Invalid API Key"), Auth, 1),
        status(
            responses,
            400,
            "",
            &llama(
                400,
                "exceed_context_size_error",
                "request (6030 tokens) exceeds the available context size (4096 tokens), try increasing it",
            ),
            TooLarge,
            1,
        ),
        status(
            messages,
            500,
            "",
            &llama(500, "server_error", "Failed to parse tools: key 'name' not found"),
            BadRequest,
            1,
        ),
        status(
            chat,
            400,
            "",
            &llama(400, "invalid_request_error", "Invalid tool_choice: sometimes"),
            BadRequest,
            1,
        ),
        status(
            messages,
            500,
            "",
            &llama(
                500,
                "server_error",
                "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
            ),
            BadRequest,
            1,
        ),
        status(
            responses,
            400,
            "",
            &llama(400, "invalid_request_error", "Failed to load image or audio file"),
            BadRequest,
            1,
        ),
        status(
            chat,
            500,
            "",
            &llama(500, "server_error", "Failed to parse tool call arguments as JSON: x"),
            BadRequest,
            1,
        ),
        status(
            responses,
            400,
            "",
            &llama(400, "invalid_request_error", "'messages' is required"),
            BadRequest,
            1,
        ),
        status(messages, 503, "", &llama(503, "unavailable_error", "Loading model"), Transient, 4),
        // The proxy in between
        status(
            messages,
            400,
            "",
            &json!({"error": {"message": "litellm.BadRequestError: OpenAIException - request (6318 tokens) exceeds the available context size", "type": null, "param": null, "code": "400"}}),
            TooLarge,
            1,
        ),
        status(
            messages,
            400,
            "",
            &json!({"error": {"message": "No connected db.", "type": "no_db_connection", "param": null, "code": "400"}}),
            BadRequest,
            1,
        ),
        // Streams
        stream(messages, &[claude("overloaded_error")], Transient, 4, Nothing),
        stream(
            messages,
            &[head.clone(), letters.clone(), claude("overloaded_error")],
            Transient,
            4,
            Reported(30_000),
        ),
        stream(messages, &[head, letters.clone()], Transport, 4, Reported(30_000)),
        stream(messages, &[nothing_yet, letters], Transport, 4, Reserved),
        stream(responses, std::slice::from_ref(&failed), Transient, 4, Nothing),
        stream(responses, &[delta.clone(), failed], Transient, 4, Reserved),
        stream(responses, &[delta], Transport, 4, Reserved),
        stream(chat, &[], Transport, 4, Reserved),
    ];
    // A gateway that waited in vain, and connections that are lost: the model may have worked.
    for dialect in [chat, responses, messages] {
        for code in [504, 524] {
            rows.push((dialect, StubReply::status(code, &[], ""), Transient, 4, Reserved));
        }
        let cut = StubReply::Raw { pieces: Vec::new(), pause: Duration::ZERO };
        rows.push((dialect, cut, Transport, 4, Reserved));
    }
    let studio = Studio::new();
    for (dialect, reply, class, attempts, charged) in rows {
        let name = format!("{dialect} {reply:?}");
        let stub = ChatStub::start(vec![reply; 8]);
        let budget = "time=30m,iterations=5,branches=1,tokens=900k,cost=9";
        let mut session = session(&studio, model(dialect, &stub, 400_000), budget);
        let end = support::run(&mut session);
        assert_eq!(end.outcome, Outcome::ProviderFailed, "{name}: {}", end.reason);
        assert_eq!(stub.requests().len(), attempts, "{name}");
        assert_eq!(end.spent.model_calls, attempts as u64, "{name}: a permit for each");
        let mut seen = 0;
        let mut reserved = (0, 0, 0);
        for line in studio.lines(&session.state.start.session) {
            match line.event {
                Event::ModelIntent(call) => {
                    let reply = u64::from(call.max_output_tokens);
                    reserved = (call.reserved.tokens, call.reserved.cost_micro_usd, reply);
                }
                Event::Attempt { class: found, settled, .. } => {
                    seen += 1;
                    assert_eq!(found, class, "{name}");
                    let expected = match charged {
                        Nothing => (0, 0),
                        Reserved => (reserved.0, reserved.1),
                        Reported(input) => (input + reserved.2, input + 4 * reserved.2),
                    };
                    assert_eq!((settled.tokens, settled.cost_micro_usd), expected, "{name}");
                    assert!(reserved.0 > 5_000, "{name}");
                }
                _ => {}
            }
        }
        assert_eq!(seen, attempts, "{name}");
    }
}

/// How long is waited, by what the server asks for; a pause that it does not ask for is half a second, doubled.
#[test]
fn the_pause_that_a_server_asks_for_is_taken_and_told() {
    let later = |seconds: i64| jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
    let date = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&later(900)).unwrap();
    let dated = [("retry-after", date.as_str())];
    let refilled = later(900).to_string();
    let limit = [("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "6m0s")];
    let window = [
        ("anthropic-ratelimit-input-tokens-remaining", "0"),
        ("anthropic-ratelimit-input-tokens-reset", refilled.as_str()),
    ];
    type Row<'a> = (u16, &'a [(&'a str, &'a str)], [std::ops::RangeInclusive<u64>; 2]);
    let rows: Vec<Row<'_>> = vec![
        (429, &[("retry-after", "7")], [7_000..=7_000, 7_000..=7_000]),
        (503, &[("retry-after-ms", "20000"), ("retry-after", "60")], [20_000..=20_000, 20_000..=20_000]),
        (429, &dated, [9_000..=900_000, 9_000..=900_000]),
        (429, &limit, [360_000..=360_000, 360_000..=360_000]),
        (429, &window, [9_000..=900_000, 9_000..=900_000]),
        (529, &[], [375..=500, 750..=1_000]),
    ];
    let studio = Studio::new();
    for (status, headers, pauses) in rows {
        let stub = ChatStub::start(vec![StubReply::status(status, headers, "{}"); 2]);
        let budget = "time=5h,iterations=5,branches=1";
        let mut session = session(&studio, model("messages", &stub, 400_000), budget);
        support::run(&mut session);
        let lines = studio.lines(&session.state.start.session);
        let told = lines.iter().filter_map(|line| match &line.event {
            Event::Attempt { pause_ms, .. } => *pause_ms,
            _ => None,
        });
        let told: Vec<u64> = told.take(2).collect();
        assert!(pauses.iter().zip(&told).all(|(range, ms)| range.contains(ms)), "{headers:?}: {told:?}");
        assert_eq!(told.len(), 2, "{headers:?}");
    }
}
