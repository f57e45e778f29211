//! Tokens and money under servers that lie about them, break off, or are changed in the middle.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)]

use crate::support;
use std::sync::Arc;

use crate::support::{Studio, confirm, reply, request};
use base::assets::Overlay;
use chemigram::budget::{Cap, Reserve};
use chemigram::provider::script::Script;
use chemigram::provider::{Choice, Provider, Registry, connect};
use chemigram::referee::ModelReferee;
use chemigram::session::driver::Session;
use chemigram::session::opinion::Referee;
use chemigram::session::start::{self, Resume};
use chemigram::transcript::{CostSource, Event, Line, Outcome};
use serde_json::{Value, json};
use testkit::chat_stub::{ChatStub, StubReply};

const TONE: &[(&str, &str)] = &[("tone", "lift the shadows")];

/// One dollar a million tokens in, four out.
fn priced(stub: &ChatStub) -> Arc<dyn Provider> {
    let dir = tempfile::tempdir().unwrap();
    let text = "name = \"mine\"\nsummary = \"\"\ndialect = \"openai_chat\"\nbase_url = \"http://127.0.0.1:1/v1\"\n\
                default_model = \"m\"\n[wire]\nfirst_byte_seconds = 1\nidle_seconds = 1\n\
                [[model]]\nid = \"m\"\nvision = true\n\
                price = { input = 1.0, output = 4.0, as_of = \"2026-11-01\" }\n";
    std::fs::write(dir.path().join("mine.toml"), text).unwrap();
    let registry = Registry::with_env(&Overlay::providers(Some(dir.path().to_owned())), |_| None);
    let choice = Choice { provider: "mine".into(), base_url: Some(stub.url()), ..Choice::default() };
    connect(&registry, &choice).unwrap()
}

fn session(studio: &Studio, stub: &ChatStub, budget: &str) -> Session {
    let setup = studio.setup(priced(stub));
    let plan = start::plan(&setup, &request(budget, TONE)).unwrap();
    start::start(setup, plan).unwrap()
}

fn with_usage(usage: Value) -> StubReply {
    let calls = vec![("read_context".to_owned(), "{}".to_owned())];
    StubReply::Message { text: String::new(), thought: String::new(), calls, usage }
}

/// Tokens and cost that were reserved for each call, and what was charged for it, with the notes of its reply.
fn charges(lines: &[Line]) -> Vec<([u64; 2], [u64; 2], Vec<String>)> {
    let reserved = |seq: u64| match &lines[usize::try_from(seq).unwrap()].event {
        Event::ModelIntent(call) => [call.reserved.tokens, call.reserved.cost_micro_usd],
        other => panic!("{other:?}"),
    };
    let charge = |line: &Line| match &line.event {
        Event::ModelReply { intent, settled, notes, .. } => {
            Some((reserved(*intent), [settled.tokens, settled.cost_micro_usd], notes.clone()))
        }
        Event::Attempt { intent, settled, .. } => {
            Some((reserved(*intent), [settled.tokens, settled.cost_micro_usd], Vec::new()))
        }
        _ => None,
    };
    lines.iter().filter_map(charge).collect()
}

#[test]
fn an_attempt_that_is_cut_or_makes_no_sense_is_charged_its_reservation() {
    let studio = Studio::new();
    let cut = StubReply::events("data: {\"choices\":[{\"delta\":{\"content\":\"Some\"}}]}\n\n");
    let garbage = StubReply::status(200, &[("content-type", "application/json")], "{\"choices\": 7");
    let refused = StubReply::status(503, &[("retry-after-ms", "1")], "");
    for (reply, charged) in [(cut, true), (garbage, true), (StubReply::Hang, true), (refused, false)] {
        let stub = ChatStub::start(vec![reply.clone(), reply]);
        let mut session = session(&studio, &stub, "time=60s,iterations=5,branches=1,tokens=200k,cost=0.3");
        support::run(&mut session);
        let charges = charges(&studio.lines(&session.state.start.session));
        assert_eq!(charges.len() as u64, session.gate.ledger().settled().model_calls);
        for (reserved, settled, _) in &charges[..2] {
            assert!(reserved[0] > 5_000 && reserved[1] > 5_000, "{reserved:?}");
            assert_eq!(settled, if charged { reserved } else { &[0, 0] });
        }
    }
}

#[test]
fn a_server_that_always_breaks_off_serves_no_more_than_the_caps() {
    let studio = Studio::new();
    let cut = StubReply::events("data: {\"choices\":[{\"delta\":{\"content\":\"Some\"}}]}\n\n");
    let replies =
        (0..40).map(|n| if n % 3 == 2 { StubReply::call("read_context", json!({})) } else { cut.clone() });
    let stub = ChatStub::start(replies.collect());
    let mut session = session(&studio, &stub, "time=60s,iterations=50,branches=1,tokens=120k");
    let end = support::run(&mut session);
    assert!(end.spent.tokens <= 120_000, "{:?}", end.spent);
    let served: u64 = stub.requests().iter().map(|r| r.to_string().len() as u64 / 4).sum();
    assert!(served <= end.spent.tokens, "{served} were served, {} are charged", end.spent.tokens);
}

#[test]
fn a_usage_that_cannot_be_true_is_charged_at_its_worst_case() {
    let studio = Studio::new();
    let honest = |input: u64| json!({"prompt_tokens": input, "completion_tokens": 20});
    let stub = ChatStub::start(vec![
        with_usage(json!({"prompt_tokens": 12.5, "completion_tokens": 20})),
        with_usage(honest(1)),
        with_usage(json!({"prompt_tokens": 9000, "completion_tokens": 20, "cost": 0.0})),
        with_usage(json!({"prompt_tokens": 9000, "completion_tokens": 20, "cost": 0.25})),
        with_usage(honest(9000)),
    ]);
    let mut session = session(&studio, &stub, "time=60s,iterations=5,branches=1,tokens=900k,cost=5");
    support::run(&mut session);
    let lines = studio.lines(&session.state.start.session);
    let charges = charges(&lines);
    let sources: Vec<CostSource> = lines
        .iter()
        .filter_map(|l| match &l.event {
            Event::ModelReply { cost_source, .. } => Some(*cost_source),
            _ => None,
        })
        .collect();
    // What is missing or too little counts at its bound: all but the longest reply.
    for (reserved, settled, notes) in &charges[..2] {
        assert_eq!(reserved[0] - settled[0], 4096 - 20, "{notes:?}");
        assert_eq!(settled[1], settled[0] - 20 + 4 * 20);
        assert_eq!(notes.len(), 1);
    }
    assert_eq!((charges[2].1, sources[2]), ([9020, 9080], CostSource::Priced), "a cost of nothing");
    assert_eq!((charges[3].1, sources[3]), ([9020, 250_000], CostSource::Reported));
    assert_eq!((charges[4].1, charges[4].2.len()), ([9020, 9080], 0));
}

#[test]
fn a_bound_that_was_too_low_grows() {
    let studio = Studio::new();
    let usage = |input: u64| with_usage(json!({"prompt_tokens": input, "completion_tokens": 20}));
    let stub = ChatStub::start(vec![usage(60_000), usage(60_000), usage(200_000)]);
    let mut session = session(&studio, &stub, "time=60s,iterations=5,branches=1,tokens=900k");
    support::run(&mut session);
    assert_eq!(session.state.factor, 4, "twice above its bound");
    let charges = charges(&studio.lines(&session.state.start.session));
    let bounds: Vec<u64> = charges.iter().map(|c| c.0[0] - 4096).collect();
    assert!(bounds[0] < 60_000 && bounds[1] > 60_000, "{bounds:?}");
}

#[test]
fn no_model_without_a_price_takes_up_a_session_with_a_cost_cap() {
    let studio = Studio::new();
    let stub = ChatStub::start(vec![]);
    let id = {
        let mut session = session(&studio, &stub, "time=60s,iterations=5,branches=1,cost=0.3");
        session.stop.soft.cancel();
        assert_eq!(support::run(&mut session).outcome, Outcome::Cancelled);
        session.state.start.session.clone()
    };
    let lines = studio.lines(&id).len();
    let nameless = |free: bool| -> Arc<dyn Provider> {
        let script = format!("[model]\nfree = {free}\n\n{}", confirm(&["tone"]));
        Arc::new(Script::parse("unpriced", &script).unwrap())
    };
    let refused = |model: Arc<dyn Provider>, referee: Referee| {
        let with = Resume { referee, ..Resume::default() };
        let error = start::resume(studio.setup(model), &id, with).err().unwrap();
        assert!(error.to_string().contains("the budget limits the cost, but the price of"), "{error}");
        assert_eq!(studio.lines(&id).len(), lines, "nothing was written");
    };
    refused(nameless(false), Referee::Nobody);
    let referee = ModelReferee::new(nameless(false), &studio.setup(nameless(true)).prompts).unwrap();
    refused(nameless(true), Referee::Model(referee));
}

#[test]
fn the_call_that_closes_a_long_session_is_kept_for() {
    let studio = Studio::new();
    let mut script = String::from(
        "[model]\nfree = false\nprice = { input = 1.0, output = 5.0, as_of = \"2026-11-01\" }\n\n",
    );
    let mut work = confirm(&["tone"]) + &reply(&[("branch", r#"{"name": "branch_b_tone"}"#)]);
    for n in 0..30 {
        let value = 0.01 + f64::from(n) / 100.0;
        work += &reply(&[(
            "apply_primitive",
            &format!(r#"{{"primitive_name": "shadows_lift", "parameter_values": {{"amount": {value}}}}}"#),
        )]);
    }
    script += &work.replace("[[reply]]\n", "[[reply]]\nusage = { input_fresh = 60000, output = 300 }\n");
    let (end, lines) = studio.run(&script, &request("time=5m,iterations=90,branches=1,tokens=500k", TONE));
    assert_eq!((end.outcome, end.cap.unwrap().cap), (Outcome::BudgetExhausted, Cap::Tokens));
    assert!(end.spent.tokens <= 500_000);
    let wrap_up = lines.iter().position(|l| matches!(l.event, Event::WrapUp { .. })).unwrap();
    let closing = lines[wrap_up..].iter().filter(|l| matches!(l.event, Event::ModelReply { .. })).count();
    assert!(closing >= 1, "the model was asked once more");
    let kept: Vec<Reserve> = lines
        .iter()
        .filter_map(|l| match &l.event {
            Event::ModelIntent(call) => Some(call.keep),
            _ => None,
        })
        .collect();
    assert!(kept[3].tokens > 64_000, "{kept:?}");
}

#[test]
fn the_guard_rail_of_calls_holds_with_the_wrap_up() {
    let studio = Studio::new();
    // Judging is free, and no two judgments are the same call.
    let judge = |n: usize| {
        let arguments = format!(
            r#"{{"branch": "branch_b_tone", "judged_score": 2, "judged_reasoning": "No, {n}.", "comparable_to_baseline": true, "abandoned": true}}"#
        );
        reply(&[("record_judgment", &arguments)])
    };
    let script = confirm(&["tone"]) + &reply(&[("branch", r#"{"name": "branch_b_tone"}"#)]);
    let script = script + &(0..40).map(judge).collect::<String>();
    let (end, lines) = studio.run(&script, &request("time=5m,iterations=4,branches=1", TONE));
    let fired = |line: &Line| matches!(&line.event, Event::CapFired { exhausted } if exhausted.cap == Cap::ModelCalls);
    assert!(lines.iter().any(fired), "{:?}: {}", end.outcome, end.reason);
    assert!(end.spent.model_calls <= 24, "{} of 24 model calls", end.spent.model_calls);
}
