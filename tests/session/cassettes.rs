//! A session that was recorded is played again without its server, in each dialect.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::assets::Overlay;
use base::ids::Hash;
use base::redact::Redactor;
use chemigram::provider::{Choice, Provider, Recording, Registry, connect};
use chemigram::session::start::{self, Setup};
use chemigram::transcript::{Event, Line, Outcome, SessionEnd};
use serde_json::Value;

use crate::dialect_sessions::{BUDGET, DIALECTS, Skipping, neutral, twelve};
use crate::support::{self, Studio, request};
use testkit::chat_stub::{ChatStub, StubReply};

const KEY: &str = "sk-canary-cassette-4c1d9e";
const TONE: &[(&str, &str)] = &[("tone", "lift the shadows")];

/// A model behind the stub whose exchanges are recorded in `folder`.
fn recorded(dialect: &str, stub: &ChatStub, folder: &Path) -> Arc<dyn Provider> {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "name = \"mine\"\nsummary = \"\"\ndialect = \"{dialect}\"\nbase_url = \"http://127.0.0.1:1/v1\"\n\
         key_env = \"MINE_KEY\"\ndefault_model = \"m/1\"\n[wire]\nprompt_cache_key = true\n\
         headers = {{ x-team = \"secret-team\" }}\n\
         [[model]]\nid = \"m/1\"\nvision = true\ncontext = 400000\n\
         price = {{ input = 1.0, output = 4.0, as_of = \"2026-11-01\" }}\n"
    );
    std::fs::write(dir.path().join("mine.toml"), text).unwrap();
    let files = Overlay::providers(Some(dir.path().to_owned()));
    let registry = Registry::with_env(&files, |_| Some(KEY.to_owned())).telling(&Redactor::default());
    let choice = Choice { provider: "mine".into(), base_url: Some(stub.url()), ..Choice::default() };
    connect(&registry.recording(Some(Recording::Together(folder.to_owned()))), &choice).unwrap()
}

/// The model that answers from `folder`.
fn played(folder: &Path) -> Arc<dyn Provider> {
    let registry = Registry::with_env(&Overlay::providers(None), |_| None);
    let model = Some(folder.to_str().unwrap().to_owned());
    connect(&registry, &Choice { provider: "cassette".into(), model, ..Choice::default() }).unwrap()
}

/// A session on a photo of its own, on a clock that stands still unless somebody waits.
fn session(provider: Arc<dyn Provider>, vectors: &[(&str, &str)]) -> (SessionEnd, Vec<Line>, String) {
    let studio = Studio::new();
    let setup = Setup { clock: Arc::new(Skipping::default()), ..studio.setup(provider) };
    let plan = start::plan(&setup, &request(BUDGET, vectors)).unwrap();
    let mut session = start::start(setup, plan).unwrap();
    let end = support::run(&mut session);
    let id = session.state.start.session.clone();
    (end, studio.lines(&id), id.to_string())
}

/// The events without what names the model.
fn events(lines: &[Line], id: &str) -> Vec<Value> {
    let mut events = neutral(lines, id);
    for event in &mut events {
        // What failed is told with the name of the provider.
        if let Some(Value::String(message)) = event.get_mut("message") {
            *message = message.replace("cassette: ", "mine: ");
        }
        if let Some(fields) = event.as_object_mut().filter(|fields| fields.contains_key("baseline_ref")) {
            fields.retain(|name, _| !matches!(name.as_str(), "provider" | "model"));
        }
    }
    events
}

/// The bodies of all replies and failures, as they came.
fn bodies(lines: &[Line]) -> Vec<Hash> {
    let raw = lines.iter().filter_map(|line| match &line.event {
        Event::ModelReply { raw, .. } => Some(raw.clone()),
        Event::Attempt { raw, .. } => raw.clone(),
        _ => None,
    });
    raw.collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() { found.extend(files(&entry)) } else { found.push(entry) }
    }
    found
}

/// Twelve turns, and before them what goes wrong: a limit whose answer holds the key, and a stream that breaks off.
fn replies() -> Vec<StubReply> {
    let slow = format!(r#"{{"error":{{"message":"slow down, {KEY}","code":"rate_limit_exceeded"}}}}"#);
    let headers =
        [("retry-after", "2"), ("set-cookie", "session=secret"), ("x-ratelimit-reset-tokens", "6m0s")];
    let mut replies = vec![
        StubReply::status(429, &headers, &slow),
        StubReply::events(": keep-alive\n\ndata: {\"type\": \"ping\"}\n\n"),
    ];
    replies.extend(twelve());
    replies
}

#[test]
fn a_recorded_session_is_played_without_its_server_and_is_the_same() {
    // From here on its pictures are in the cache that the tests share: a render that only one of two sessions has to
    // make is a line more, and the pauses between attempts go by the number of the line.
    let (kept, stub) = (tempfile::tempdir().unwrap(), ChatStub::start(replies()));
    session(recorded("messages", &stub, kept.path()), TONE);
    for (name, _) in DIALECTS {
        let kept = tempfile::tempdir().unwrap();
        let stub = ChatStub::start(replies());
        let (end, lines, id) = session(recorded(name, &stub, kept.path()), TONE);
        assert_eq!(end.outcome, Outcome::Completed, "{name}: {}", end.reason);
        assert_eq!(stub.requests().len(), 14, "{name}");
        let heads = stub.heads().concat();
        assert!(heads.contains(KEY) && heads.contains("secret-team"), "{name}: both were really sent");
        drop(stub);

        let model = played(kept.path());
        assert_eq!((model.info().provider.as_str(), model.info().context), ("cassette", Some(400_000)));
        let (again, same, other) = session(model.clone(), TONE);
        assert_eq!(again.outcome, Outcome::Completed, "{name}: {}", again.reason);
        let (before, after) = (events(&lines, &id), events(&same, &other));
        for (at, (before, after)) in before.iter().zip(&after).enumerate() {
            assert_eq!(before, after, "{name}, line {at}");
        }
        assert_eq!(before.len(), after.len(), "{name}");
        assert_eq!(bodies(&lines), bodies(&same), "{name}: every body is as it came");
        assert_eq!(bodies(&lines).len(), 14, "{name}");

        // What was recorded once is played once.
        let (end, ..) = session(model, TONE);
        assert_eq!(end.outcome, Outcome::ProviderFailed, "{name}");
        assert!(end.reason.contains("has this request 3 times, and it is made once more"), "{}", end.reason);

        // The clock of a real session goes on, and what it says is not compared.
        let studio = Studio::new();
        let setup = studio.setup(played(kept.path()));
        let plan = start::plan(&setup, &request(BUDGET, TONE)).unwrap();
        let end = support::run(&mut start::start(setup, plan).unwrap());
        assert_eq!(end.outcome, Outcome::Completed, "{name}: {}", end.reason);
    }
}

#[test]
fn a_recording_can_be_read_and_holds_no_secret() {
    let kept = tempfile::tempdir().unwrap();
    let stub = ChatStub::start(replies());
    session(recorded("messages", &stub, kept.path()), TONE);
    let folder = kept.path().join("mine-m-1");
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let json = |name: &str| serde_json::from_str::<Value>(&text(name)).unwrap();
    for file in files(kept.path()) {
        let bytes = std::fs::read(&file).unwrap();
        for secret in [KEY, "secret-team", "session=secret", "x-api-key", "cookie"] {
            let found = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
            assert!(!found, "{secret} is in {}", file.display());
        }
    }
    let request = json("0001-request.json");
    assert_eq!(request["to"], format!("{}/messages", stub.url()));
    assert_eq!(request["headers"]["anthropic-version"], "2023-06-01");
    assert_eq!(request["body"]["model"], "m/1");
    assert!(text("0001-request.json").lines().count() > 50, "it is laid out to be read");
    let reply = json("0001-reply.json");
    assert_eq!((&reply["status"], &reply["headers"]["retry-after"]), (&429.into(), &"2".into()));
    assert_eq!(reply["headers"]["x-ratelimit-reset-tokens"], "6m0s");
    assert!(text("0001-reply.txt").contains("slow down, [redacted]"));
    assert!(text("0002-reply.txt").starts_with(": keep-alive\n\ndata: "));
    assert!(text("0003-reply.txt").starts_with("event: message_start\ndata: {"));
    // A picture is a file beside the request that shows it.
    let last = text("0014-request.json");
    let name = last.split("\"<").nth(1).unwrap().split(">\"").next().unwrap();
    assert!(std::fs::read(folder.join(name)).unwrap().starts_with(&[0xff, 0xd8]), "{name}");
    assert!(!last.contains("/9j/"));
}

#[test]
fn a_request_that_was_not_recorded_ends_with_its_difference_to_the_nearest() {
    let places = [
        ("chat_completions", "messages[0].content"),
        ("responses", "instructions"),
        ("messages", "system[0].text"),
    ];
    for (name, place) in places {
        let kept = tempfile::tempdir().unwrap();
        let stub = ChatStub::start(twelve());
        session(recorded(name, &stub, kept.path()), TONE);
        drop(stub);
        let (end, lines, _) = session(played(kept.path()), &[("tone", "lift the lights")]);
        assert_eq!(end.outcome, Outcome::ProviderFailed, "{name}: {}", end.reason);
        let told = format!("the nearest is 0001-request.json, which differs in 2 places, first in `{place}`");
        assert!(
            end.reason.contains("has no recording of this request") && end.reason.contains(&told),
            "{}",
            end.reason
        );
        for part in ["recorded \"…", "lift the shadows", "now \"…", "lift the lights"] {
            assert!(end.reason.contains(part), "{part}: {}", end.reason);
        }
        let attempts = lines.iter().filter(|line| matches!(line.event, Event::Attempt { .. })).count();
        assert_eq!((attempts, end.spent.tokens), (1, 0), "{name}: it is tried once, and costs nothing");
    }
}

#[test]
fn a_folder_that_is_no_recording_is_refused() {
    let kept = tempfile::tempdir().unwrap();
    let registry = Registry::with_env(&Overlay::providers(None), |_| None);
    let refused = |model: Option<String>| {
        let choice = Choice { provider: "cassette".into(), model, ..Choice::default() };
        connect(&registry, &choice).err().unwrap().to_string()
    };
    let named = kept.path().to_str().unwrap().to_owned();
    assert_eq!(refused(None), "provider `cassette` needs a folder");
    assert!(refused(Some(named.clone())).contains("that --record has written, and"));
    assert!(refused(Some(format!("{named}/none"))).contains("No such file"));
    for model in ["a", "b"] {
        std::fs::create_dir(kept.path().join(model)).unwrap();
        std::fs::write(kept.path().join(model).join("model.json"), "{}").unwrap();
    }
    assert!(refused(Some(named.clone())).contains("holds several: "));
    assert!(refused(Some(format!("{named}/a"))).contains("whose files can be read, and in"));
}
