//! A provider that is gone for a while, or for good: time is the tests' own, so no wait takes any.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::*;
use crate::overnight::plan::Caps;
use crate::overnight::record;
use crate::session::rig;
use crate::transcript::Event;
use base::assets::Overlay;
use base::clock::ManualClock;
use base::ids::Hash;

/// A clock that a wait moves.
#[derive(Debug, Default)]
struct Fast(ManualClock);

impl Clock for Fast {
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

/// How long the model takes for a reply.
const REPLY: Duration = Duration::from_secs(60);
/// The tokens that it reports for one.
const TOKENS: u64 = 5_000 + 100;
/// What it calls, reply by reply.
fn script() -> Vec<Vec<(&'static str, Value)>> {
    let judged = json!({"branch": "branch_b_tone", "judged_score": 4, "judged_reasoning": "Open.",
        "comparable_to_baseline": true, "key_moves": ["exposure ev=0.5"]});
    vec![
        vec![("confirm_session", json!({"vectors": [{"name": "tone", "restated": "Open the shadows."}]}))],
        vec![
            ("branch", json!({"name": "branch_b_tone"})),
            ("apply_primitive", json!({"primitive_name": "exposure", "parameter_values": {"ev": 0.5}})),
        ],
        vec![("record_judgment", judged)],
        vec![("end_mode_b_session", json!({"session_summary": "Done."}))],
    ]
}

/// A model behind HTTP that is gone at some times of the clock. Returns its address and how often it has replied.
fn stub(clock: Arc<Fast>, gone: Range<u64>) -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let replies = Arc::new(AtomicU64::new(0));
    let count = replies.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let body = request(&stream);
            if gone.contains(&clock.monotonic().as_secs()) {
                let down =
                    "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                let _ = (&stream).write_all(down.as_bytes());
                continue;
            }
            clock.0.advance(REPLY);
            count.fetch_add(1, Ordering::SeqCst);
            let said =
                body["messages"].as_array().unwrap().iter().filter(|m| m["role"] == "assistant").count();
            let calls = script().into_iter().nth(said).unwrap_or_default();
            let calls: Vec<Value> = calls
                .iter()
                .enumerate()
                .map(|(n, (name, arguments))| {
                    json!({"index": n, "id": format!("c{said}_{n}"), "type": "function",
                    "function": {"name": name, "arguments": arguments.to_string()}})
                })
                .collect();
            let chunk = json!({"id": "r", "model": "m", "object": "chat.completion.chunk", "choices":
                [{"index": 0, "delta": {"role": "assistant", "tool_calls": calls}, "finish_reason": "tool_calls"}]});
            let usage = json!({"id": "r", "model": "m", "object": "chat.completion.chunk", "choices": [],
                "usage": {"prompt_tokens": 5_000, "completion_tokens": 100, "total_tokens": TOKENS}});
            let _ = write!(
                &stream,
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n\
                data: {chunk}\n\ndata: {usage}\n\ndata: [DONE]\n\n"
            );
        }
    });
    (url, replies)
}

/// The body of a request.
fn request(stream: &TcpStream) -> Value {
    let (mut reader, mut length) = (BufReader::new(stream), 0);
    let mut line = String::new();
    while reader.read_line(&mut line).unwrap_or(0) > 2 {
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    serde_json::from_slice(&body).unwrap()
}

struct Unseen;

impl Observer for Unseen {
    fn session(&self, _: usize, _: &str) -> Box<dyn Host + '_> {
        Box::new(crate::session::driver::Unwatched)
    }

    fn recorded(&self, _: &Stamped) {}
}

/// A batch of six photos by a stub that is gone at these seconds, and of a seventh by a script, on a clock of their
/// own. Returns how the batch ended, how long it took, how often the stub replied, and each session's lines.
struct Night {
    batch: Batch,
    took: Duration,
    replies: u64,
    lines: Vec<Vec<crate::transcript::Line>>,
}

fn night(gone: Range<u64>, jobs: usize) -> Night {
    let dir = rig::folder();
    let (clock, providers) = (Arc::new(Fast::default()), dir.path().join("providers"));
    let (url, replies) = stub(clock.clone(), gone);
    std::fs::create_dir(&providers).unwrap();
    let profile = include_str!("../../../providers/llamacpp.toml")
        .replace("name = \"llamacpp\"", "name = \"stub\"")
        .replace("http://localhost:8080/v1", &url);
    std::fs::write(providers.join("stub.toml"), profile).unwrap();
    let mut launcher = crate::launch::tests::launcher(Arc::new(rig::Sums::default()));
    launcher.registry = crate::provider::Registry::with_env(&Overlay::providers(Some(providers)), |_| None);
    launcher.clock = clock.clone();
    let script = dir.path().join("script.toml");
    std::fs::write(&script, "[[reply]]\ncalls = [{ name = \"end_mode_b_session\", arguments = { session_summary = \"Done.\" } }]\n").unwrap();
    let planned = |n: usize| {
        let raw = dir.path().join(format!("photo{n}.dng"));
        std::fs::write(&raw, format!("sensor data {n}")).unwrap();
        let (provider, model) = match n {
            6 => ("script", script.to_str().unwrap()),
            _ => ("stub", "loaded"),
        };
        PlannedSession {
            photo: format!("photo{n}"),
            raw: Some(raw),
            sha256: Hash::of(format!("sensor data {n}")),
            brief: Some("Open.".into()),
            criteria: None,
            vectors: vec!["tone=lift the shadows".parse().unwrap()],
            budget: Budget::parse("time=15m,iterations=12,branches=1,tokens=900k").unwrap(),
            provider: provider.into(),
            model: model.into(),
            fallback: None,
            free: true,
            protocol: None,
            vars: BTreeMap::new(),
            referee: None,
            from: "main".into(),
            prompt: None,
            seed: 1,
            preview_size: 128,
            proxy: "off".into(),
            no_proposals: false,
        }
    };
    let library = Library::new(dir.path().join("photos"));
    let caps = Caps { time_seconds: Some(2 * 3600), ..Caps::default() };
    let sessions = (0..7).map(planned).collect();
    let plan = (Path::new("/plans/tonight.toml"), "# plan");
    let mut batch = record::begin(&library, plan, caps, sessions, jiff::Timestamp::UNIX_EPOCH).unwrap();
    let runner = Runner::new().unwrap();
    let run = Run {
        launcher: &launcher,
        library: &library,
        runner: &runner,
        clock: &*clock,
        stop: &Stop::default(),
    };
    run.run(&mut batch, jobs, &Unseen).unwrap();
    let lines = batch.tracks().into_iter().map(|track| match &track.session {
        Some((photo, id, _)) => read(&library, photo, id).unwrap().unwrap().lines,
        None => Vec::new(),
    });
    let lines = lines.collect();
    Night { batch, took: clock.monotonic(), replies: replies.load(Ordering::SeqCst), lines }
}

fn outcomes(batch: &Batch) -> Vec<SessionStatus> {
    batch.tracks().into_iter().map(|track| track.status).collect()
}

fn done(status: &SessionStatus) -> bool {
    matches!(status, SessionStatus::Ended { outcome: Outcome::Completed, .. })
}

/// Six sessions of four replies each take 24 minutes; the provider is gone from the tenth to the thirtieth.
#[test]
fn k1_a_batch_loses_the_time_of_an_outage_and_nothing_else() {
    for jobs in [1, 2] {
        let night = night(10 * 60..30 * 60, jobs);
        assert!(outcomes(&night.batch).iter().all(done), "{:?}", outcomes(&night.batch));
        assert!(night.batch.is_over());
        // The outage itself, and the end of the last pause: two minutes.
        let (work, minutes) = (24 * 60, night.took.as_secs() / 60);
        assert!(
            (night.took.as_secs()) >= work + 20 * 60 - 60 && night.took.as_secs() <= work + 24 * 60,
            "{minutes} min"
        );
        assert_eq!(night.replies, 24, "each reply is asked for once");
        for lines in &night.lines[..6] {
            let paid: Vec<u64> = lines
                .iter()
                .filter_map(|line| match &line.event {
                    Event::ModelReply { settled, .. } => Some(settled.tokens),
                    Event::Attempt { settled, .. } => {
                        assert_eq!(settled.tokens, 0, "a refused call is not paid");
                        None
                    }
                    _ => None,
                })
                .collect();
            assert_eq!(paid, [TOKENS; 4]);
            let last = lines.last().unwrap();
            assert!(
                last.at() <= Duration::from_secs(6 * 60 * jobs as u64),
                "its own clock stood still: {:?}",
                last.at()
            );
        }
        // The session of the other provider did not wait.
        let ended = |place| {
            let mut ends = night.batch.entries.iter().enumerate();
            ends.find(|(_, s)| matches!(s.entry, Entry::Ended { place: p, .. } if p == place)).unwrap().0
        };
        assert!(ended(6) < ended(3), "the other provider goes on");
        let paused = |s: &&Stamped| matches!(s.entry, Entry::Paused { .. });
        assert!(night.batch.entries.iter().filter(paused).count() >= 8);
    }
}

#[test]
fn k1_a_provider_that_stays_away_ends_the_batch_at_its_cap_with_what_to_do() {
    let night = night(10 * 60..u64::MAX, 1);
    let statuses = outcomes(&night.batch);
    assert_eq!(statuses.iter().map(done).collect::<Vec<_>>(), [true, true, false, false, false, false, true]);
    let seconds = night.took.as_secs();
    // Within the time that a session needs at least, a quarter of its 15 minutes.
    assert!((7_200 - 225..=7_200).contains(&seconds), "{seconds}");
    assert!(night.batch.is_over());
    for (place, status) in statuses.iter().enumerate().filter(|(_, status)| !done(status)) {
        let SessionStatus::NotBegun(why) = status else { panic!("{status:?}") };
        assert!(why.contains("provider `stub` could not be reached for 1 h 4"), "{why}");
        let next = match &night.batch.tracks()[place].session {
            Some((_, id, _)) => format!("chemigram run-mode-b --resume {} --yes", id.short()),
            None => "chemigram overnight /plans/tonight.toml".into(),
        };
        assert!(why.contains(&next), "{why}");
    }
    assert_eq!(
        night.lines.iter().filter(|lines| lines.is_empty()).count(),
        3,
        "one was left, three not started"
    );
    assert_eq!(night.replies, 10);
}
