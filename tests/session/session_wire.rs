//! Sessions driven by a real HTTP server on loopback that speaks Chat Completions, pictures included.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::support;
use std::sync::Arc;

use crate::support::{Studio, request, results};
use base::assets::Overlay;
use base::error::ErrorCode;
use chemigram::provider::{Choice, Provider, Registry, connect};
use chemigram::session::driver::Session;
use chemigram::session::start;
use chemigram::transcript::{Event, FaultClass, Outcome};
use serde_json::json;
use testkit::chat_stub::{ChatStub, StubReply};

const TONE: &[(&str, &str)] = &[("tone", "lift the shadows")];
const KEY: &str = "sk-canary-0123456789";

fn provider(stub: &ChatStub, model: &str) -> Arc<dyn Provider> {
    let registry =
        Registry::with_env(&Overlay::providers(None), |name| (name == "LLAMA_API_KEY").then(|| KEY.into()));
    let choice = Choice {
        provider: "llamacpp".into(),
        model: Some(model.into()),
        base_url: Some(stub.url()),
        ..Choice::default()
    };
    connect(&registry, &choice).unwrap()
}

fn session(studio: &Studio, stub: &ChatStub, budget: &str) -> Session {
    let setup = studio.setup(provider(stub, "vision"));
    let plan = start::plan(&setup, &request(budget, TONE)).unwrap();
    start::start(setup, plan).unwrap()
}

fn work() -> Vec<StubReply> {
    vec![
        StubReply::calls(&[
            ("read_context", json!({})),
            ("confirm_session", json!({"vectors": [{"name": "tone", "restated": "Open the shadows."}]})),
        ]),
        StubReply::call("branch", json!({"name": "branch_b_tone"})),
        StubReply::calls(&[
            (
                "apply_primitive",
                json!({"primitive_name": "shadows_lift", "parameter_values": {"amount": 1.0}}),
            ),
            ("render_preview", json!({})),
        ]),
        StubReply::call("compare", json!({})),
        StubReply::call(
            "record_judgment",
            json!({"branch": "branch_b_tone", "judged_score": 4, "judged_reasoning": "Open.", "key_moves": ["shadows_lift"]}),
        ),
        StubReply::call("end_mode_b_session", json!({"session_summary": "Done."})),
    ]
}

#[test]
fn a_server_drives_a_session_and_sees_the_pictures() {
    let studio = Studio::new();
    let stub = ChatStub::start(work());
    let mut session = session(&studio, &stub, "time=5m,iterations=30,branches=1,tokens=200k");
    let end = support::run(&mut session);
    assert_eq!(end.outcome, Outcome::Completed, "{}", end.reason);
    // The stub reports 100 + 20 tokens a reply.
    assert_eq!(end.spent.tokens, stub.tokens());
    let requests = stub.requests();
    assert_eq!(requests.len(), 6);
    let pictures = |n: usize| requests[n].to_string().matches("data:image/jpeg;base64,").count();
    assert_eq!((pictures(2), pictures(3), pictures(4)), (0, 1, 3), "one preview, then a comparison of two");
    let last = requests[5]["messages"].as_array().unwrap();
    let text = last.iter().rev().find(|m| m["role"] == "tool").unwrap()["content"].to_string();
    assert!(text.contains("[budget: "), "each result ends with the budget: {text}");
    // Nothing but the growing end differs between requests.
    for pair in requests.windows(2) {
        let (before, after) =
            (pair[0]["messages"].as_array().unwrap(), pair[1]["messages"].as_array().unwrap());
        assert_eq!(before[..], after[..before.len()]);
        assert_eq!(pair[0]["tools"], pair[1]["tools"]);
    }
    assert!(stub.authorizations().iter().all(|a| a.as_deref() == Some(&format!("Bearer {KEY}"))));
}

#[test]
fn retries_are_visible_bounded_and_charged() {
    let studio = Studio::new();
    let mut replies = vec![
        StubReply::status(
            429,
            &[("retry-after-ms", "20")],
            r#"{"error":{"message":"slow down","code":"rate_limit_exceeded"}}"#,
        ),
        StubReply::status(503, &[], "<html>busy</html>"),
    ];
    replies.extend(work());
    let stub = ChatStub::start(replies);
    let mut session = session(&studio, &stub, "time=5m,iterations=30,branches=1");
    let end = support::run(&mut session);
    let lines = studio.lines(&session.state.start.session);
    assert_eq!(end.outcome, Outcome::Completed, "{}", end.reason);
    let attempts: Vec<(FaultClass, Option<u16>)> = lines
        .iter()
        .filter_map(|l| match &l.event {
            Event::Attempt { class, status, .. } => Some((*class, *status)),
            _ => None,
        })
        .collect();
    assert_eq!(attempts, [(FaultClass::RateLimit, Some(429)), (FaultClass::Transient, Some(503))]);
    assert_eq!(
        (stub.requests().len(), end.spent.model_calls),
        (8, 8),
        "every attempt is one request and one permit"
    );
}

#[test]
fn a_provider_that_says_no_or_talks_nonsense_fails_the_session_and_loses_nothing() {
    let studio = Studio::new();
    let no = StubReply::status(401, &[], &format!(r#"{{"error":{{"message":"bad key {KEY}"}}}}"#));
    let garbage = StubReply::status(200, &[("content-type", "application/json")], "{\"choices\": 7");
    for (reply, attempts) in [(no, 1), (garbage, 4)] {
        let mut replies = work();
        replies.truncate(3);
        replies.extend(std::iter::repeat_n(reply, 8));
        let stub = ChatStub::start(replies);
        let mut session = session(&studio, &stub, "time=5m,iterations=30,branches=2");
        let end = support::run(&mut session);
        let id = session.state.start.session.clone();
        let folder = session.folder.clone();
        drop(session);
        assert_eq!(end.outcome, Outcome::ProviderFailed);
        assert_eq!(stub.requests().len(), 3 + attempts);
        assert!(studio.tip("branch_b_tone").is_some(), "what was made stays");
        let lines = studio.lines(&id);
        assert!(lines.iter().any(|l| matches!(&l.event, Event::Judgment(j) if j.judged_score == 3)));
        // The key that the server threw back is nowhere.
        for entry in walk(&folder) {
            let bytes = std::fs::read(&entry).unwrap();
            assert!(
                !bytes.windows(KEY.len()).any(|w| w == KEY.as_bytes()),
                "the key is in {}",
                entry.display()
            );
        }
        let mut person = studio.workspace.lock(engine::photo::Authority::Person, "test").unwrap();
        person.delete_branch(&"branch_b_tone".parse().unwrap()).unwrap();
    }
}

#[test]
fn a_hanging_server_is_cut_and_a_long_retry_after_ends_at_once() {
    let studio = Studio::new();
    let stub = ChatStub::start(vec![StubReply::Hang]);
    let mut hanging = session(&studio, &stub, "time=3s,iterations=30,branches=1");
    let end = support::run(&mut hanging);
    drop(hanging);
    assert_eq!(end.outcome, Outcome::BudgetExhausted);
    assert!(end.wall_ms < 60_000, "{} ms of three seconds", end.wall_ms);

    let slow = StubReply::status(429, &[("retry-after", "3600")], r#"{"error":{"message":"later"}}"#);
    let stub = ChatStub::start(vec![slow]);
    let mut session = session(&studio, &stub, "time=3000s,iterations=30,branches=1");
    let end = support::run(&mut session);
    assert_eq!(end.outcome, Outcome::ProviderFailed);
    assert!(end.reason.contains("it asks to retry in 60 minutes"), "{}", end.reason);
}

#[test]
fn a_model_that_writes_its_calls_as_text_is_understood_and_broken_arguments_come_back() {
    let studio = Studio::new();
    let fenced = "```json\n{\"name\": \"confirm_session\", \"arguments\": {\"vectors\": [{\"name\": \"tone\", \"restated\": \"Open.\"}]}}\n```";
    let broken = StubReply::Message {
        text: String::new(),
        thought: String::new(),
        calls: vec![("branch".into(), "{\"name\": ".into())],
        usage: json!({}),
    };
    let stub = ChatStub::start(vec![
        StubReply::text(fenced),
        broken,
        StubReply::call("branch", json!({"name": "branch_b_tone"})),
        StubReply::call(
            "record_judgment",
            json!({"branch": "branch_b_tone", "judged_reasoning": "As it was."}),
        ),
        StubReply::call("end_mode_b_session", json!({"session_summary": "Done."})),
    ]);
    let mut session = session(&studio, &stub, "time=5m,iterations=30,branches=1");
    let end = support::run(&mut session);
    let lines = studio.lines(&session.state.start.session);
    assert_eq!(end.outcome, Outcome::Completed, "{}", end.reason);
    let branches = results(&lines, "branch");
    assert_eq!((branches[0].0, branches[1].0), (Some(ErrorCode::InvalidInput), None));
    assert!(branches[0].1.contains(r#"branch_b_tone"#), "a legal example: {}", branches[0].1);
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        if entry.path().is_dir() { files.extend(walk(&entry.path())) } else { files.push(entry.path()) }
    }
    files
}
