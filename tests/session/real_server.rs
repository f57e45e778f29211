//! Twelve turns as a real server told them: llama.cpp's, in each dialect, with a model that says a script.
//!
//! `captures/twelve-turns/` has the bodies of its replies. To capture them anew, start the server with the model that
//! scripts/scripted-model.py writes, and name it:
//!
//! ```sh
//! CHEMIGRAM_TEST_SERVER=http://127.0.0.1:8092/v1 cargo test --test session twelve_turns_with_a_real_server
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::assets::Overlay;
use base::redact::Redactor;
use chemigram::provider::{Choice, Provider, Recording, Registry, connect};
use chemigram::transcript::{Event, Line, Outcome};
use serde_json::Value;

use crate::dialect_sessions::{BUDGET, DIALECTS, neutral, session};
use crate::support::{self, Studio};
use testkit::chat_stub::dialects::Dialect;
use testkit::chat_stub::{ChatStub, StubReply};

/// A real server to capture from.
const SERVER: &str = "CHEMIGRAM_TEST_SERVER";
/// The key that llama.cpp is started with.
const KEY: &str = "sk-local-test";

fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/session/captures/twelve-turns")
}

/// The model behind `url`, whose exchanges are recorded in `folder`.
fn model(dialect: &str, url: &str, folder: Option<&Path>) -> Arc<dyn Provider> {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "name = \"mine\"\nsummary = \"\"\ndialect = \"{dialect}\"\nbase_url = \"http://127.0.0.1:1/v1\"\n\
         key_env = \"MINE_KEY\"\ndefault_model = \"scripted\"\n\
         [wire]\nreasoning_field = \"reasoning_content\"\n\
         [[model]]\nid = \"scripted\"\nvision = true\ncontext = 131072\n"
    );
    std::fs::write(dir.path().join("mine.toml"), text).unwrap();
    let files = Overlay::providers(Some(dir.path().to_owned()));
    let registry = Registry::with_env(&files, |_| Some(KEY.to_owned())).telling(&Redactor::default());
    let choice = Choice { provider: "mine".into(), base_url: Some(url.to_owned()), ..Choice::default() };
    let recording = folder.map(|folder| Recording::Together(folder.to_owned()));
    connect(&registry.recording(recording), &choice).unwrap()
}

/// The bodies of the server's replies, asked anew where a server is named.
fn replies(dialect: &str) -> Vec<String> {
    let folder = captures().join(dialect);
    if let Ok(url) = std::env::var(SERVER) {
        let kept = tempfile::tempdir().unwrap();
        let end = support::run(&mut session(&Studio::new(), model(dialect, &url, Some(kept.path())), BUDGET));
        assert_eq!(end.outcome, Outcome::Completed, "{dialect}: {}", end.reason);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let kept = kept.path().join("mine-scripted");
        let bodies = names(&kept).into_iter().filter(|name| name.ends_with("-reply.txt"));
        for (turn, body) in (1..).zip(bodies) {
            std::fs::copy(kept.join(body), folder.join(format!("{turn:02}.txt"))).unwrap();
        }
    }
    names(&folder).iter().map(|name| std::fs::read_to_string(folder.join(name)).unwrap()).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let names =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// The events without what a server counts in its own writing of the conversation, and with numbers for the ids that it
/// makes up for calls.
fn events(lines: &[Line], session: &str) -> Vec<Value> {
    fn walk(value: &mut Value, ids: &mut BTreeMap<String, String>) {
        match value {
            Value::Object(fields) => {
                fields.retain(|name, _| !matches!(name.as_str(), "usage" | "settled" | "spent"));
                if let Some(Value::String(id)) = fields.get("id").filter(|_| fields.contains_key("arguments"))
                {
                    let number = ids.len();
                    ids.entry(id.clone()).or_insert(format!("call {number}"));
                }
                fields.values_mut().for_each(|value| walk(value, ids));
            }
            Value::Array(items) => items.iter_mut().for_each(|value| walk(value, ids)),
            _ => {}
        }
    }
    let (mut events, mut ids) = (neutral(lines, session), BTreeMap::new());
    events.iter_mut().for_each(|event| walk(event, &mut ids));
    let renamed = |event: &Value| {
        let text = ids.iter().fold(event.to_string(), |text, (id, name)| text.replace(id, name));
        serde_json::from_str(&text).unwrap()
    };
    events.iter().map(renamed).collect()
}

/// Tokens that the server counted in all requests of a session.
fn input(lines: &[Line]) -> u64 {
    let usage = lines.iter().filter_map(|line| match &line.event {
        Event::ModelReply { usage, .. } => Some([usage.input_fresh, usage.input_cache_read]),
        _ => None,
    });
    usage.flatten().flatten().sum()
}

#[test]
fn twelve_turns_with_a_real_server_are_the_same_events_in_each_dialect() {
    let (mut told, mut counted) = (Vec::<Vec<Value>>::new(), Vec::new());
    for (name, dialect) in DIALECTS {
        let bodies = replies(name);
        assert_eq!(bodies.len(), 12, "{name}");
        let stub = ChatStub::start(bodies.iter().map(|body| StubReply::events(body)).collect());
        let studio = Studio::new();
        let mut session = session(&studio, model(name, &stub.url(), None), BUDGET);
        let end = support::run(&mut session);
        assert_eq!(end.outcome, Outcome::Completed, "{name}: {}", end.reason);
        let requests = stub.requests();
        assert_eq!(requests.len(), 12, "{name}");
        let pictures = |n: usize| requests[n].to_string().matches("/9j/").count();
        assert_eq!([2, 3, 5, 6, 10].map(pictures), [0, 1, 2, 4, 5], "{name}");
        // What it thought is in every later request, as often as the dialect says it.
        for (turn, body) in requests.iter().enumerate() {
            let kept = Dialect::conversation(dialect, body)
                .iter()
                .map(|item| item.to_string().matches("thought ").count());
            let thoughts = (0..turn).filter(|turn| turn % 3 == 0).count();
            assert_eq!(kept.sum::<usize>(), thoughts, "{name}, turn {turn}");
        }
        let id = session.state.start.session.clone();
        let lines = studio.lines(&id);
        let failed =
            lines.iter().filter(|l| matches!(&l.event, Event::ToolResult { result, .. } if result.is_error));
        assert_eq!(failed.count(), 1, "{name}");
        told.push(events(&lines, id.as_str()));
        counted.push(input(&lines));
    }
    for (other, (name, _)) in told[1..].iter().zip(&DIALECTS[1..]) {
        assert_eq!(told[0].len(), other.len(), "{name}");
        for (at, (chat, other)) in told[0].iter().zip(other).enumerate() {
            assert_eq!(chat, other, "line {at} in {name}");
        }
    }
    let [least, most] = [counted.iter().min(), counted.iter().max()].map(|count| *count.unwrap() as f64);
    assert!(least > 100_000.0 && most < 1.01 * least, "{counted:?}");
}
