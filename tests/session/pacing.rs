//! What a provider says of its limits is heeded before it refuses, and its own count of tokens is asked for where a cap
//! is near, in the dialects that have one.

use std::sync::Arc;
use std::time::Duration;

use base::assets::Overlay;
use base::clock::{Clock, ManualClock};
use chemigram::provider::script::Script;
use chemigram::provider::{Choice, Provider, Registry, connect};
use chemigram::referee::ModelReferee;
use chemigram::session::opinion::Referee;
use chemigram::session::start::{self, Setup};
use chemigram::transcript::{Event, FaultClass, Line, Outcome, SessionEnd};
use serde_json::json;

use crate::dialect_sessions::{DIALECTS, Skipping};
use crate::support::{self, Studio, confirm, reply, request};
use testkit::chat_stub::{ChatStub, StubReply};

/// One model at a dollar a million tokens in and four out, at a server that may be asked to count.
fn model(dialect: &str, stub: &ChatStub) -> Arc<dyn Provider> {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "name = \"mine\"\nsummary = \"\"\ndialect = \"{dialect}\"\nbase_url = \"http://127.0.0.1:1/v1\"\n\
         default_model = \"m\"\n[wire]\ncount_tokens = true\n[[model]]\nid = \"m\"\nvision = true\n\
         price = {{ input = 1.0, output = 4.0, as_of = \"2026-11-01\" }}\n"
    );
    std::fs::write(dir.path().join("mine.toml"), text).unwrap();
    let registry = Registry::with_env(&Overlay::providers(Some(dir.path().to_owned())), |_| None);
    let choice = Choice { provider: "mine".into(), base_url: Some(stub.url()), ..Choice::default() };
    connect(&registry, &choice).unwrap()
}

/// A session with this model on a clock on which waiting takes no time; what is told of it.
fn run(provider: Arc<dyn Provider>, budget: &str) -> (SessionEnd, Vec<Line>, Duration) {
    let studio = Studio::new();
    let clock = Arc::new(Skipping(ManualClock::default()));
    let setup = Setup { clock: clock.clone(), ..studio.setup(provider) };
    let plan = start::plan(&setup, &request(budget, &[("tone", "lift the shadows")])).unwrap();
    let mut session = start::start(setup, plan).unwrap();
    let end = support::run(&mut session);
    let lines = studio.lines(&session.state.start.session);
    (end, lines, clock.monotonic())
}

fn notes(lines: &[Line]) -> Vec<&str> {
    let text = |line: &'_ Line| match &line.event {
        Event::Note { text, .. } => Some(text.clone().leak() as &str),
        _ => None,
    };
    lines.iter().filter_map(text).collect()
}

/// Headers of one used-up limit, which is full again after so many seconds.
fn used_up(dialect: &str, seconds: u64) -> Vec<(&'static str, String)> {
    if dialect == "messages" {
        let reset = jiff::Timestamp::now() + Duration::from_secs(seconds);
        return vec![
            ("anthropic-ratelimit-requests-remaining", "0".into()),
            ("anthropic-ratelimit-requests-reset", reset.to_string()),
        ];
    }
    vec![
        ("x-ratelimit-remaining-requests", "0".into()),
        ("x-ratelimit-reset-requests", format!("{seconds}s")),
    ]
}

fn paced(dialect: &str, seconds: u64) -> Vec<StubReply> {
    let headers = used_up(dialect, seconds);
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let confirm = json!({"vectors": [{"name": "tone", "restated": "Open the shadows."}]});
    vec![
        StubReply::call("confirm_session", confirm).with(&headers),
        StubReply::call("end_mode_b_session", json!({"session_summary": "Done."})),
    ]
}

#[test]
fn a_limit_that_is_used_up_is_waited_for_before_the_next_call() {
    for (dialect, _) in DIALECTS {
        let stub = ChatStub::start(paced(dialect, 100));
        let (end, lines, took) = run(model(dialect, &stub), "time=30m,iterations=40,branches=1");
        assert_eq!(end.outcome, Outcome::Completed, "{dialect}: {}", end.reason);
        assert_eq!(stub.requests().len(), 2, "{dialect}");
        let told = notes(&lines);
        let waited: Vec<&&str> = told.iter().filter(|text| text.contains("too few requests left")).collect();
        assert_eq!(waited.len(), 1, "{dialect}: {told:?}");
        // A second or two of real time have gone by since the reply.
        assert!(took > Duration::from_secs(80) && took < Duration::from_secs(130), "{dialect}: {took:?}");
        assert!(!lines.iter().any(|line| matches!(line.event, Event::Attempt { .. })), "{dialect}");
    }
}

#[test]
fn a_limit_that_outlasts_the_session_ends_it_and_nothing_more_is_sent() {
    for (dialect, _) in DIALECTS {
        let stub = ChatStub::start(paced(dialect, 7_200));
        let (end, lines, took) = run(model(dialect, &stub), "time=30m,iterations=40,branches=1");
        assert_eq!(end.outcome, Outcome::ProviderFailed, "{dialect}: {}", end.reason);
        assert!(
            end.reason.contains("too few requests are left") && end.reason.contains("minutes"),
            "{}",
            end.reason
        );
        assert_eq!(stub.requests().len(), 1, "{dialect}");
        assert!(took < Duration::from_secs(60), "{dialect}: {took:?}");
        let failed: Vec<_> = lines
            .iter()
            .filter_map(|line| match &line.event {
                Event::Attempt { class, settled, .. } => {
                    Some((*class, settled.tokens, settled.cost_micro_usd))
                }
                _ => None,
            })
            .collect();
        assert_eq!(failed, [(FaultClass::RateLimit, 0, 0)], "{dialect}");
    }
}

/// A session whose branch a referee compares in both orders; the first answer says that a limit is used up.
fn refereed(dialect: &str, seconds: u64) -> (SessionEnd, Vec<Line>, Duration, usize) {
    let headers = used_up(dialect, seconds);
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let verdict = json!({"difference": "It is brighter.", "better": "same", "not_as_asked": "neither"});
    let stub = ChatStub::start(vec![
        StubReply::call("give_verdict", verdict.clone()).with(&headers),
        StubReply::call("give_verdict", verdict),
    ]);
    // Each question is a conversation of its own.
    let stub = stub.allow_compaction();
    let script = [
        confirm(&["tone"]),
        reply(&[
            ("branch", r#"{"name": "branch_b_tone"}"#),
            ("apply_primitive", r#"{"primitive_name": "exposure", "parameter_values": {"ev": 0.4}}"#),
        ]),
        reply(&[(
            "record_judgment",
            r#"{"branch": "branch_b_tone", "judged_score": 4, "judged_reasoning": "Open."}"#,
        )]),
        reply(&[("end_mode_b_session", r#"{"session_summary": "Done."}"#)]),
    ];
    let studio = Studio::new();
    let clock = Arc::new(Skipping(ManualClock::default()));
    let editor = Arc::new(Script::parse("editor", &script.concat()).unwrap());
    let setup = Setup { clock: clock.clone(), ..studio.setup(editor) };
    let referee = ModelReferee::new(model(dialect, &stub), &setup.prompts).unwrap();
    let plan =
        start::plan(&setup, &request("time=30m,iterations=40,branches=1", &[("tone", "brighter")])).unwrap();
    let plan = plan.with_referee(Referee::Model(referee)).unwrap();
    let mut session = start::start(setup, plan).unwrap();
    let end = support::run(&mut session);
    let lines = studio.lines(&session.state.start.session);
    (end, lines, clock.monotonic(), stub.requests().len())
}

#[test]
fn the_limits_of_a_referee_are_waited_for_too_and_one_that_outlasts_the_session_is_no_opinion() {
    for (dialect, _) in DIALECTS {
        let (end, lines, took, asked) = refereed(dialect, 100);
        assert_eq!(end.outcome, Outcome::Completed, "{dialect}: {}", end.reason);
        let waited =
            notes(&lines).iter().filter(|text| text.contains("the referee has too few requests")).count();
        assert_eq!((waited, asked), (1, 2), "{dialect}: {:?}", notes(&lines));
        assert!(took > Duration::from_secs(80) && took < Duration::from_secs(130), "{dialect}: {took:?}");
        let opinions = |lines: &[Line]| -> Vec<(bool, Option<String>)> {
            let opinion = |line: &Line| match &line.event {
                Event::Referee(said) => Some((said.opinion.is_some(), said.error.clone())),
                _ => None,
            };
            lines.iter().filter_map(opinion).collect()
        };
        assert_eq!(opinions(&lines), [(true, None), (true, None)], "{dialect}");

        let (end, lines, took, asked) = refereed(dialect, 7_200);
        assert_eq!((end.outcome, asked), (Outcome::Completed, 1), "{dialect}: {}", end.reason);
        assert!(took < Duration::from_secs(60), "{dialect}: {took:?}");
        let found = opinions(&lines);
        let why = found.last().unwrap().1.as_deref().unwrap();
        assert!(found.len() == 2 && why.contains("too few requests are left"), "{dialect}: {found:?}");
    }
}

/// Three replies, of which the last ends the session.
fn three() -> Vec<StubReply> {
    let usage = json!({"prompt_tokens": 9_000, "completion_tokens": 40});
    let confirm = json!({"vectors": [{"name": "tone", "restated": "Open the shadows."}]});
    let replies = [
        StubReply::call("confirm_session", confirm),
        StubReply::call("read_context", json!({})),
        StubReply::call("end_mode_b_session", json!({"session_summary": "Done."})),
    ];
    replies.into_iter().map(|reply| reply.thinking("", usage.clone())).collect()
}

/// What the first call of a session was reserved, without the limit of its reply.
fn first_bound(lines: &[Line]) -> u64 {
    let intent = lines.iter().find_map(|line| match &line.event {
        Event::ModelIntent(intent) => Some(intent.reserved.tokens - u64::from(intent.max_output_tokens)),
        _ => None,
    });
    intent.unwrap()
}

#[test]
fn far_from_a_cap_nobody_is_asked_to_count() {
    for (dialect, _) in DIALECTS {
        let stub = ChatStub::start(three()).counting(9_000);
        let (end, ..) = run(model(dialect, &stub), "time=30m,iterations=40,branches=1,tokens=900000,cost=5");
        assert_eq!(end.outcome, Outcome::Completed, "{dialect}: {}", end.reason);
        assert_eq!((stub.counts().len(), stub.requests().len()), (0, 3), "{dialect}");
    }
}

#[test]
fn near_a_cap_the_provider_counts_and_its_count_takes_the_place_of_the_bound() {
    for (dialect, _) in DIALECTS {
        let budget = "time=30m,iterations=40,branches=1,tokens=50000";
        let stub = ChatStub::start(three()).counting(9_000);
        let (end, lines, _) = run(model(dialect, &stub), budget);
        let (asked, told) = (stub.counts(), notes(&lines));
        if dialect == "chat_completions" {
            assert!(asked.is_empty() && !told.iter().any(|text| text.contains("counts")), "{told:?}");
            continue;
        }
        assert_eq!(end.outcome, Outcome::Completed, "{dialect}: {}", end.reason);
        assert!(!asked.is_empty() && asked.len() <= 3, "{dialect}: {}", asked.len());
        assert_eq!(first_bound(&lines), 9_000 + 180, "{dialect}: what was counted, and a fiftieth");
        assert!(
            told.iter().any(|text| text.starts_with("the provider counts 9000; the bound was")),
            "{told:?}"
        );
        // The same conversation as in the request that follows, and no setting that is not counted.
        let request = &stub.requests()[0];
        for (key, value) in asked[0].as_object().unwrap() {
            assert_eq!(request[key], *value, "{dialect}: {key}");
        }
        for (part, there) in
            [("model", true), ("tools", true), ("stream", false), ("max_tokens", false), ("store", false)]
        {
            assert_eq!(asked[0].get(part).is_some(), there, "{dialect}: {part}");
        }
    }
}

#[test]
fn without_a_count_the_bound_stands() {
    for (dialect, _) in &DIALECTS[1..] {
        let budget = "time=30m,iterations=40,branches=1,tokens=50000";
        // A refusal, and a count that cannot be true.
        for stub in [ChatStub::start(three()), ChatStub::start(three()).counting(3)] {
            let (_, lines, _) = run(model(dialect, &stub), budget);
            assert!(!stub.counts().is_empty(), "{dialect}");
            let told = notes(&lines);
            assert!(told.iter().any(|text| text.contains("stands")), "{dialect}: {told:?}");
            assert!(first_bound(&lines) > 9_180, "{dialect}: {}", first_bound(&lines));
        }
    }
}
