//! A person is the model: a session asks through files, on a real raw through real darktable.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)]

use crate::support;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{Studio, request};
use base::clock::ManualClock;
use chemigram::provider::manual::Manual;
use chemigram::session::driver::{Session, Unwatched};
use chemigram::session::start::{self, Resume, Setup};
use chemigram::transcript::{Event, FaultClass, Outcome};
use serde_json::{Value, json};

const BUDGET: &str = "time=20m,iterations=30,branches=1";

/// Somebody in front of a folder.
struct Person(PathBuf);

impl Person {
    /// Waits for a request.
    fn request(&self, number: u64) -> Value {
        let path = self.0.join(format!("{number:04}-request.json"));
        while !path.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    /// Writes a file beside the requests, as programs do that know no renaming.
    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }

    fn reply(&self, number: u64, calls: &Value) {
        self.request(number);
        self.write(
            &format!("{number:04}-reply.json"),
            &json!({ "text": "Next.", "calls": calls }).to_string(),
        );
    }

    fn confirm(&self, number: u64) {
        let vectors = json!([{ "name": "tone", "restated": "Lift the shadows." }]);
        self.reply(number, &json!([{ "name": "confirm_session", "arguments": { "vectors": vectors } }]));
    }

    fn end(&self, number: u64) {
        let summary = json!({ "session_summary": "One branch." });
        self.reply(number, &json!([{ "name": "end_mode_b_session", "arguments": summary }]));
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }
}

fn setup(studio: &Studio, folder: &Path) -> Setup {
    studio.setup(Arc::new(Manual::new("manual", folder).unwrap()))
}

fn begin(setup: Setup) -> Session {
    let plan = start::plan(&setup, &request(BUDGET, &[("tone", "lift the shadows")])).unwrap();
    start::start(setup, plan).unwrap()
}

#[test]
fn a_person_edits_a_photo_through_files_and_a_mistake_can_be_put_right() {
    let studio = Studio::new();
    let person = Person(studio.dir.path().join("desk"));
    let mut session = begin(setup(&studio, &person.0));
    let end = std::thread::scope(|scope| {
        scope.spawn(|| {
            let first = person.request(1);
            assert!(first["tools"].as_array().unwrap().iter().any(|t| t["parameters"]["type"] == "object"));
            assert!(first["seconds_left"].as_u64().unwrap() <= 1200);
            // A link, a text that is no JSON, and a tool that is not there.
            std::os::unix::fs::symlink("/etc/hostname", person.0.join("0001-reply.txt")).unwrap();
            for (bad, name, cause) in [
                (None, "0001-reply.bad-1.txt", "symbolic link"),
                (Some("{\"calls\": [}"), "0001-reply.bad-1.json", "it is not JSON"),
                (
                    Some("{\"calls\": [{\"name\": \"confirm\"}]}"),
                    "0001-reply.bad-2.json",
                    "the tool `confirm`",
                ),
            ] {
                if let Some(text) = bad {
                    person.write("0001-reply.json", text);
                }
                let named = format!("It is now called {name}.");
                let error = person.0.join("0001-reply.error.txt");
                let why = loop {
                    match fs::read_to_string(&error) {
                        Ok(text) if text.contains(&named) => break text,
                        _ => std::thread::sleep(Duration::from_millis(5)),
                    }
                };
                assert!(why.contains(cause), "{why}");
            }
            person.confirm(1);
            person.reply(2, &json!([{ "name": "branch", "arguments": { "name": "branch_b_tone" } }]));
            let lift = json!({ "primitive_name": "shadows_lift", "parameter_values": { "amount": 1.0 } });
            person.reply(
                3,
                &json!([{ "name": "apply_primitive", "arguments": lift }, { "name": "render_preview" }]),
            );
            let shown = person.request(4);
            let file = shown["pictures"][0]["file"].as_str().unwrap();
            assert_eq!(file, "0004-1-branch_b_tone.jpg");
            assert!(fs::read(person.0.join(file)).unwrap().starts_with(&[0xff, 0xd8]), "a JPEG");
            assert!(person.read("0004-request.md").contains("](0004-1-branch_b_tone.jpg)"));
            let judgment = json!({
                "branch": "branch_b_tone", "judged_score": 4, "judged_reasoning": "Shadows open.",
                "key_moves": ["shadows_lift amount=1.0"],
            });
            person.reply(4, &json!([{ "name": "record_judgment", "arguments": judgment }]));
            person.request(5);
            person.write("0005-reply.txt", "It looks good to me.\n");
            person.end(6);
        });
        support::run(&mut session)
    });
    assert_eq!(end.outcome, Outcome::Completed, "{}", end.reason);
    let lines = studio.lines(&session.state.start.session);
    let said = lines.iter().filter(|l| matches!(l.event, Event::ModelReply { .. })).count();
    assert_eq!((said, session.gate.ledger().settled().cost_micro_usd), (6, 0));
    assert!(studio.tip("branch_b_tone").is_some());
    let first = person.read("0001-request.md");
    assert!(
        first.contains("## System prompt") && first.contains("- `apply_primitive`(label?, mask?, "),
        "{first}"
    );
    assert!(!person.read("0002-request.md").contains("## System prompt"), "only what is new");
    assert!(!person.0.join("0001-reply.error.txt").exists() && !person.0.join("0001-closed.txt").exists());
}

#[test]
fn a_reply_that_never_comes_ends_with_the_time() {
    let studio = Studio::new();
    let person = Person(studio.dir.path().join("desk"));
    let clock = Arc::new(ManualClock::default());
    let mut session = begin(Setup { clock: clock.clone(), ..setup(&studio, &person.0) });
    let done = AtomicBool::new(false);
    let end = std::thread::scope(|scope| {
        scope.spawn(|| {
            person.request(1);
            while !done.load(Ordering::Relaxed) {
                clock.advance(Duration::from_secs(60));
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let end = support::run(&mut session);
        done.store(true, Ordering::Relaxed);
        end
    });
    assert_eq!(end.outcome, Outcome::BudgetExhausted);
    let lines = studio.lines(&session.state.start.session);
    let cut = |l: &&chemigram::transcript::Line| {
        matches!(l.event, Event::Attempt { class: FaultClass::Deadline, .. })
    };
    assert!(lines.iter().any(|l| cut(&l)), "the attempt is recorded as any that times out");
    assert!(person.read("0001-closed.txt").starts_with("No reply to this request is read any more"));
}

#[test]
fn a_request_to_stop_ends_the_waiting() {
    let studio = Studio::new();
    let person = Person(studio.dir.path().join("desk"));
    let setup = setup(&studio, &person.0);
    let stop = setup.stop.clone();
    let mut session = begin(setup);
    let end = std::thread::scope(|scope| {
        scope.spawn(|| {
            person.request(1);
            stop.soft.cancel();
            // The wrap-up is asked for in turn.
            person.request(2);
            stop.hard.cancel();
        });
        support::run(&mut session)
    });
    assert_eq!(end.outcome, Outcome::Cancelled);
    assert!(person.0.join("0001-closed.txt").exists() && person.0.join("0002-closed.txt").exists());
}

#[test]
fn after_a_kill_a_call_asks_again_and_an_old_reply_is_not_read() {
    let studio = Studio::new();
    let person = Person(studio.dir.path().join("desk"));
    let mut killed = begin(setup(&studio, &person.0));
    let id = killed.state.start.session.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| person.confirm(1));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let asked = async {
                while !person.0.join("0002-request.json").exists() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::select! {
                _ = killed.run(&Unwatched) => panic!("the session ended"),
                () = asked => {}
            }
        });
    });
    drop(killed);
    // Too late; and one for a call that is still to come is not known to be meant for it.
    let late =
        json!({ "calls": [{ "name": "branch", "arguments": { "name": "branch_b_late" } }] }).to_string();
    person.write("0002-reply.json", &late);
    person.write("0003-reply.json", &late);
    let mut session = start::resume(setup(&studio, &person.0), &id, Resume::default()).unwrap();
    let end = std::thread::scope(|scope| {
        scope.spawn(|| {
            let again = person.request(4);
            assert_eq!(again["messages"], person.request(2)["messages"], "the same call");
            person.end(4);
        });
        support::run(&mut session)
    });
    assert_eq!(end.outcome, Outcome::Completed, "{}", end.reason);
    assert!(studio.tip("branch_b_late").is_none());
    assert_eq!(session.provider.info().model, person.0.to_str().unwrap());
}
