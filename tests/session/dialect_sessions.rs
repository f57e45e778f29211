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
use chemigram::transcript::{Event, Line, Outcome, SessionEnd};
use serde_json::{Value, json};

use crate::support::{self, Studio, request};
use testkit::chat_stub::dialects::Dialect;
use testkit::chat_stub::{ChatStub, StubReply};

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
pub fn model(dialect: &str, stub: &ChatStub, context: u64) -> Arc<dyn Provider> {
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

pub fn session(studio: &Studio, provider: Arc<dyn Provider>, budget: &str) -> Session {
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

/// The events of a session without its name, the time, what only the vendor understands, what depends on that, and what
/// darktable did: a picture may be in the cache that the tests share, and a darktable that a busy machine started too
/// slowly is started anew.
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
    let left_out = |line: &Line| match &line.event {
        Event::RenderIntent(_) => true,
        Event::Note { text, .. } => text.starts_with("the rendering process"),
        _ => false,
    };
    let missing: Vec<u64> = lines.iter().filter(|line| left_out(line)).map(|line| line.seq).collect();
    let neutral = |line: &Line| {
        let mut event: Value =
            serde_json::from_str(&serde_json::to_string(&line.event).unwrap().replace(session, "SESSION"))
                .unwrap();
        strip(&mut event);
        let fields = event.as_object_mut().unwrap();
        if matches!(line.event, Event::Render { .. }) {
            fields.retain(|name, _| !matches!(name.as_str(), "intent" | "settled"));
        }
        if let Some(of) = fields.get("intent").and_then(Value::as_u64) {
            let before = missing.iter().filter(|line| **line < of).count() as u64;
            fields.insert("intent".into(), (of - before).into());
        }
        event
    };
    lines.iter().filter(|line| !left_out(line)).map(neutral).collect()
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
