//! Whole sessions in each dialect: the same events, the same retries, the same money.

use std::sync::Arc;
use std::time::Duration;

use base::assets::Overlay;
use base::clock::{Clock, ManualClock};
use base::ids::SessionId;
use chemigram::provider::{Choice, Provider, Registry, connect};
use chemigram::review::ReviewModel;
use chemigram::session::driver::Session;
use chemigram::session::listing;
use chemigram::session::start::{self, Setup};
use chemigram::transcript::{Event, FaultClass, Line, Outcome, SessionEnd};
use serde_json::{Value, json};

use crate::chat_stub::dialects::Dialect;
use crate::chat_stub::{ChatStub, StubReply};
use crate::support::{self, Studio, request};

const TONE: &[(&str, &str)] = &[("tone", "lift the shadows")];
pub const BUDGET: &str = "time=30m,iterations=400,branches=1";
pub const DIALECTS: [(&str, Dialect); 3] =
    [("chat_completions", Dialect::Chat), ("responses", Dialect::Responses), ("messages", Dialect::Messages)];

/// A clock on which whoever waits has waited at once.
#[derive(Debug, Default)]
pub struct Skipping(pub ManualClock);

impl Clock for Skipping {
    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    fn wall(&self) -> jiff::Timestamp {
        self.0.wall()
    }

    fn skip(&self, by: Duration) -> bool {
        self.0.advance(by);
        true
    }
}

/// One model, one dollar a million tokens in and four out, in this dialect.
fn model(dialect: &str, stub: &ChatStub, context: u64) -> Arc<dyn Provider> {
    priced(dialect, stub, context, [1.0, 4.0])
}

/// The same at another price.
fn priced(dialect: &str, stub: &ChatStub, context: u64, [input, output]: [f64; 2]) -> Arc<dyn Provider> {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "name = \"mine\"\nsummary = \"\"\ndialect = \"{dialect}\"\nbase_url = \"http://127.0.0.1:1/v1\"\n\
         default_model = \"m\"\n[[model]]\nid = \"m\"\nvision = true\ncontext = {context}\n\
         price = {{ input = {input:?}, output = {output:?}, as_of = \"2026-11-01\" }}\n"
    );
    std::fs::write(dir.path().join("mine.toml"), text).unwrap();
    let registry = Registry::with_env(&Overlay::providers(Some(dir.path().to_owned())), |_| None);
    let choice = Choice { provider: "mine".into(), base_url: Some(stub.url()), ..Choice::default() };
    connect(&registry, &choice).unwrap()
}

fn session(studio: &Studio, provider: Arc<dyn Provider>, budget: &str) -> Session {
    let setup = Setup { clock: Arc::new(Skipping::default()), ..studio.setup(provider) };
    let plan = start::plan(&setup, &request(budget, TONE)).unwrap();
    start::start(setup, plan).unwrap()
}

fn lift(amount: f64) -> (&'static str, Value) {
    ("apply_primitive", json!({"primitive_name": "shadows_lift", "parameter_values": {"amount": amount}}))
}

/// Twelve replies: calls side by side, pictures, a call that fails, a reply without a call, thoughts before some.
pub fn twelve() -> Vec<StubReply> {
    let judgment = json!({"branch": "branch_b_tone", "judged_score": 4, "judged_reasoning": "Open.",
                          "key_moves": ["shadows_lift"]});
    let replies = vec![
        StubReply::calls(&[
            ("read_context", json!({})),
            ("confirm_session", json!({"vectors": [{"name": "tone", "restated": "Open the shadows."}]})),
        ]),
        StubReply::call("branch", json!({"name": "branch_b_tone"})),
        StubReply::calls(&[lift(0.5), ("render_preview", json!({}))]),
        StubReply::call("apply_primitive", json!({"primitive_name": "no_such_move"})),
        StubReply::calls(&[lift(1.0), ("render_preview", json!({}))]),
        StubReply::call("compare", json!({})),
        StubReply::text("Größer gesagt: the shadows are open now."),
        StubReply::calls(&[("get_state", json!({})), ("log", json!({"limit": 5}))]),
        StubReply::calls(&[lift(0.9)]),
        StubReply::call("render_preview", json!({})),
        StubReply::call("record_judgment", judgment),
        StubReply::call("end_mode_b_session", json!({"session_summary": "Done."})),
    ];
    let think = |(n, reply): (usize, StubReply)| {
        let usage = json!({"prompt_tokens": 20_000 + 1_000 * n, "completion_tokens": 500 + n,
            "prompt_tokens_details": {"cached_tokens": 19_000, "cache_write_tokens": 800},
            "completion_tokens_details": {"reasoning_tokens": n}});
        reply.thinking(&if n % 3 == 0 { format!("thought {n}") } else { String::new() }, usage)
    };
    replies.into_iter().enumerate().map(think).collect()
}

/// The events of a session without its name, the time, what only the vendor understands, and what depends on that.
pub fn neutral(lines: &[Line], session: &str) -> Vec<Value> {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for key in ["opaque", "raw", "ms", "reserved", "keep", "render_ms", "model_ms", "wall_ms"] {
                    fields.remove(key);
                }
                fields.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let neutral = |line: &Line| {
        let mut event: Value =
            serde_json::from_str(&serde_json::to_string(&line.event).unwrap().replace(session, "SESSION"))
                .unwrap();
        strip(&mut event);
        event
    };
    lines.iter().map(neutral).collect()
}

#[test]
fn twelve_turns_are_the_same_events_in_each_dialect() {
    let mut told: Vec<Vec<Value>> = Vec::new();
    for (name, dialect) in DIALECTS {
        let studio = Studio::new();
        let stub = ChatStub::start(twelve());
        let mut session = session(&studio, model(name, &stub, 400_000), BUDGET);
        let end = support::run(&mut session);
        assert_eq!(end.outcome, Outcome::Completed, "{name}: {}", end.reason);
        let requests = stub.requests();
        assert_eq!(requests.len(), 12, "{name}");
        let pictures = |n: usize| requests[n].to_string().matches("/9j/").count();
        assert_eq!([2, 3, 5, 6, 10].map(pictures), [0, 1, 2, 4, 5], "{name}");
        // What each thought was is in every later request, where it was.
        for (turn, body) in requests.iter().enumerate() {
            let kept = body.to_string().matches("thought ").count();
            let made = (0..turn).filter(|n| n % 3 == 0).count();
            let times = if dialect == Dialect::Messages { 2 } else { 1 };
            assert_eq!(kept, made * times, "{name}, turn {turn}");
        }
        let id = session.state.start.session.clone();
        let lines = studio.lines(&id);
        let failed =
            lines.iter().filter(|l| matches!(&l.event, Event::ToolResult { result, .. } if result.is_error));
        assert_eq!(failed.count(), 1, "{name}");
        told.push(neutral(&lines, id.as_str()));
    }
    for (other, (name, _)) in told[1..].iter().zip(&DIALECTS[1..]) {
        assert_eq!(told[0].len(), other.len(), "{name}");
        for (at, (chat, other)) in told[0].iter().zip(other).enumerate() {
            assert_eq!(chat, other, "line {at} in {name}");
        }
    }
}

/// The first model thinks, and then has no credit; the other one speaks another dialect, at twice the price.
fn two(first: StubReply, cap: &str) -> (Studio, SessionId, [ChatStub; 2], SessionEnd) {
    let mut replies = twelve();
    let rest = replies.split_off(5);
    replies.extend(vec![first; 8]);
    let stubs = [ChatStub::start(replies), ChatStub::start(rest)];
    let studio = Studio::new();
    let dearer = priced("responses", &stubs[1], 400_000, [2.0, 8.0]);
    let clock = Arc::new(Skipping::default());
    let setup = Setup { clock, ..studio.setup(model("messages", &stubs[0], 400_000)) };
    let plan = start::plan(&setup, &request(&format!("{BUDGET}{cap}"), TONE)).unwrap();
    let plan = plan.with_fallback(Some(dearer)).unwrap();
    let mut session = start::start(setup, plan).unwrap();
    let end = support::run(&mut session);
    let id = session.state.start.session.clone();
    (studio, id, stubs, end)
}

#[test]
fn another_model_goes_on_where_the_first_one_failed_for_good() {
    let broke = r#"{"type":"error","error":{"type":"billing_error","message":"no credit"}}"#;
    let (studio, id, [first, other], end) = two(StubReply::status(402, &[], broke), "");
    assert_eq!(end.outcome, Outcome::Completed, "{}", end.reason);
    assert_eq!((first.requests().len(), other.requests().len()), (6, 7));
    // Everything but the thoughts of the first one.
    let began = other.requests()[0].clone();
    let all = began.to_string();
    assert!(
        !all.contains("thought ") && all.contains("Open the shadows.") && all.contains("call_4_1"),
        "{all}"
    );
    // The same as its own last request, read as the other dialect: user, then calls and results of five replies.
    let kinds =
        |kind: &str| Dialect::Responses.conversation(&began).iter().filter(|i| i["type"] == kind).count();
    assert_eq!((kinds("function_call"), kinds("function_call_output")), (8, 8));
    // From there on its own thoughts go with it.
    assert_eq!(other.requests()[6].to_string().matches("thought ").count(), 2);

    let lines = studio.lines(&id);
    let at = lines.iter().position(|l| matches!(l.event, Event::Fallback { .. })).unwrap();
    let Event::Fallback { to, reason } = &lines[at].event else { unreachable!() };
    assert_eq!((to.provider.as_str(), to.model.as_str()), ("mine", "m"));
    assert!(reason.contains("no credit"), "{reason}");
    // Each at its own prices: fresh 200 + 1000 n, 800 written at the price of input, 19,000 read likewise.
    let cost = |n: u64| (20_000 + 1_000 * n) + 4 * (500 + n);
    let charged = |lines: &[Line]| -> u64 {
        let settled = lines.iter().filter_map(|l| match &l.event {
            Event::ModelReply { settled, .. } | Event::Attempt { settled, .. } => {
                Some(settled.cost_micro_usd)
            }
            _ => None,
        });
        settled.sum()
    };
    assert_eq!(charged(&lines[..at]), (0..5).map(cost).sum::<u64>());
    assert_eq!(charged(&lines[at..]), (5..12).map(|n| 2 * cost(n)).sum::<u64>());
    assert_eq!(end.spent.cost_micro_usd, charged(&lines));

    let listed = listing::read(&studio.workspace, &id).unwrap();
    assert_eq!(listed.model().model, "m");
    let review = ReviewModel::of(&studio.workspace, &listed).unwrap();
    let went_on = review.went_on.as_ref().unwrap();
    assert_eq!(went_on.cost_micro_usd, charged(&lines[at..]));
    assert!(went_on.reason.contains("no credit"));
}

#[test]
fn another_model_is_bound_by_the_same_caps_and_fails_the_session_in_its_turn() {
    let broke = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let (_, _, [first, other], end) = two(StubReply::status(529, &[], broke), ",cost=0.30");
    assert_eq!(end.outcome, Outcome::BudgetExhausted, "{}", end.reason);
    assert!(end.spent.cost_micro_usd <= 300_000, "{}", end.spent.cost_micro_usd);
    assert_eq!(first.requests().len(), 5 + 4, "the retries come first");
    assert!(other.requests().len() < 7);

    let stubs = [401, 403].map(|code| ChatStub::start(vec![StubReply::status(code, &[], ""); 4]));
    let studio = Studio::new();
    let plan = {
        let setup = studio.setup(model("messages", &stubs[0], 400_000));
        let plan = start::plan(&setup, &request(BUDGET, TONE)).unwrap();
        let other = model("chat_completions", &stubs[1], 400_000);
        let mut session = start::start(setup, plan.with_fallback(Some(other)).unwrap()).unwrap();
        let end = support::run(&mut session);
        assert_eq!(end.outcome, Outcome::ProviderFailed);
        assert_eq!(stubs.each_ref().map(|stub| stub.requests().len()), [1, 1]);
        let setup = studio.setup(model("messages", &stubs[0], 400_000));
        start::plan(&setup, &request(&format!("{BUDGET},cost=1"), TONE)).unwrap()
    };
    // A cap on cost needs the price of both.
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::with_env(&Overlay::providers(Some(dir.path().to_owned())), |_| Some("k".into()));
    let choice = Choice { provider: "openai".into(), model: Some("gpt-9".into()), ..Choice::default() };
    let error = plan.with_fallback(Some(connect(&registry, &choice).unwrap())).err().unwrap();
    assert!(error.to_string().contains("the price of `gpt-9`"), "{error}");
}

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

#[test]
fn a_pause_is_no_end_and_the_model_goes_on_where_it_was() {
    let paused = [
        json!({"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 30_000}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Let me"}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "pause_turn"}, "usage": {"output_tokens": 500}}),
        json!({"type": "message_stop"}),
    ];
    let paused: String = paused.iter().map(|event| format!("data: {event}\n\n")).collect();
    let mut replies = twelve();
    replies.insert(2, StubReply::events(&paused));
    let studio = Studio::new();
    let stub = ChatStub::start(replies);
    let mut session = session(&studio, model("messages", &stub, 400_000), BUDGET);
    let end = support::run(&mut session);
    assert_eq!(end.outcome, Outcome::Completed, "{}", end.reason);
    let requests = stub.requests();
    assert_eq!(requests.len(), 13);
    let last = requests[3]["messages"].as_array().unwrap().last().unwrap();
    assert_eq!(last, &json!({"role": "assistant", "content": [{"type": "text", "text": "Let me"}]}));
}

#[test]
fn over_sixty_turns_each_request_extends_the_one_before_within_a_chapter() {
    for (name, dialect) in DIALECTS {
        let mut replies = twelve();
        replies.truncate(2);
        for n in 0..60 {
            let looks = [("get_state", json!({})), ("log", json!({"limit": 5}))];
            let reply =
                StubReply::calls(&[lift(f64::from(n + 1) / 100.0), looks[0].clone(), looks[1].clone()]);
            // Its usage is counted by the stub.
            let thought = if n % 2 == 0 { format!("thought {n}") } else { String::new() };
            replies.push(reply.thinking(&thought, Value::Null));
        }
        replies.extend(twelve().split_off(10));
        let studio = Studio::new();
        let stub = ChatStub::start(replies).allow_compaction();
        let mut session = session(&studio, model(name, &stub, 40_000), BUDGET);
        let end = support::run(&mut session);
        assert_eq!(end.outcome, Outcome::Completed, "{name}: {}", end.reason);
        let lines = studio.lines(&session.state.start.session);
        let chapters = lines.iter().filter(|l| matches!(l.event, Event::Chapter { .. })).count();
        let (bodies, requests) = (stub.bodies(), stub.requests());
        assert_eq!(bodies.len(), 64, "{name}");
        let mut anew = 0;
        for (at, pair) in bodies.windows(2).enumerate() {
            let [before, after] = pair else { unreachable!() };
            if !after.starts_with(before.strip_suffix(b"]}").unwrap()) {
                anew += 1;
                let begun =
                    dialect.conversation(&requests[at + 1]).iter().map(Value::to_string).collect::<String>();
                assert!(begun.contains("What has happened"), "{name}, request {}", at + 1);
                // Nor does what comes before the conversation change.
                let fixed = |body: &Value| (dialect.system(body).clone(), body["tools"].clone());
                assert_eq!(fixed(&requests[at]), fixed(&requests[at + 1]), "{name}");
            }
        }
        assert_eq!(anew, chapters, "{name}");
        assert!((1..8).contains(&chapters), "{name}: {chapters} chapters");
    }
}
