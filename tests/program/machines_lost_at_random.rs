//! Workers, whoever submits, and the server are killed, stopped and started again at random: every session has one
//! result, the budget of the batch holds, and every call that was made is paid, once.
//!
//! How much is settable: `CHEMIGRAM_TEST_JOBS` sessions, `CHEMIGRAM_TEST_EVENTS` events, and as many runs at once as
//! `CHEMIGRAM_TEST_SEEDS` says, each with a server, a home and workers of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_nats::jetstream;

use crate::machines_lost::signal;
use crate::many_machines::{Studio, ended, number};
use crate::overnight::Home;
use chemigram::overnight::record::{Entry, SessionStatus};
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::chat_stub;

/// The lease of workers in seconds, and for longer than that one is stopped.
const LEASE: u64 = 3;
const STOPPED: Duration = Duration::from_secs(LEASE + 1);
/// The most that a session may do, and what an undisturbed one does.
const MOST: u64 = 12;
const DONE: u64 = 3;
/// About as many messages are written about an undisturbed session.
const LINES: u64 = 20;

/// The next of a row of numbers (a linear congruential generator of Knuth's).
fn next(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

/// A server with a model that lifts the shadows, waits, and judges that; it counts what it is asked.
struct Model {
    address: SocketAddr,
    asked: Arc<AtomicU64>,
}

impl Model {
    fn start(pause: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, asked) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
        let count = asked.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let count = count.clone();
                std::thread::spawn(move || {
                    let Some((_, body)) = chat_stub::read_request(&mut stream) else { return };
                    count.fetch_add(1, Ordering::SeqCst);
                    let body: Value = serde_json::from_slice(&body).unwrap();
                    let messages = body["messages"].as_array().unwrap().iter();
                    let turn = messages.filter(|message| message["role"] == "assistant").count();
                    if turn == 3 {
                        std::thread::sleep(pause);
                    }
                    let (name, arguments) = call(turn);
                    let calls = [(name.to_owned(), arguments.to_string())];
                    let usage = json!({"prompt_tokens": 1000, "completion_tokens": 20, "total_tokens": 1020});
                    let reply = chat_stub::stream_of(turn, "", &calls, &usage);
                    let kind = [("content-type".to_owned(), "text/event-stream".to_owned())];
                    chat_stub::answer(&mut stream, 200, &kind, reply.as_bytes());
                });
            }
        });
        Self { address, asked }
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    /// A plan of a session on each photo with this model, under caps that leave little to spare.
    fn plan(&self, home: &Home, photos: &[String], events: u64) {
        let profile = format!(
            "name = \"counting\"\nsummary = \"\"\ndialect = \"openai_chat\"\nbase_url = \"http://{}/v1\"\nfree = true\n\
             default_model = \"any\"\n[other_models]\ncontext = 65536\nvision = false\n",
            self.address
        );
        std::fs::create_dir_all(home.path("config/chemigram/providers")).unwrap();
        home.write("config/chemigram/providers/counting.toml", profile);
        let session = |photo: &String| {
            format!("[[session]]\nphoto = \"{photo}\"\nprovider = \"counting\"\nmodel = \"any\"\n\n")
        };
        let sessions: String = photos.iter().map(session).collect();
        let jobs = photos.len() as u64;
        // A branch for each: one that is counted twice keeps another session from starting. A call that is cut off is
        // counted, and made again.
        let iterations = jobs * DONE + events + 2 * MOST;
        home.plan(&format!("branches = {jobs}\niterations = {iterations}\ntime = \"2h\""), &sessions);
    }
}

/// The call of a turn.
fn call(turn: usize) -> (&'static str, Value) {
    match turn {
        0 => ("confirm_session", json!({"vectors": [{"name": "tone", "restated": "Opens the shadows."}]})),
        1 => ("branch", json!({"name": "branch_b_tone"})),
        2 => (
            "apply_primitive",
            json!({"primitive_name": "shadows_lift", "parameter_values": {"amount": 0.8}}),
        ),
        3 => (
            "record_judgment",
            json!({"branch": "branch_b_tone", "judged_score": 4, "judged_reasoning": "Open.", "key_moves": ["shadows_lift"]}),
        ),
        _ => ("end_mode_b_session", json!({"session_summary": "Open."})),
    }
}

/// What an undisturbed run makes: branches, and the course of each session.
struct Expected {
    branches: Vec<String>,
    courses: Vec<Option<Vec<Value>>>,
}

/// What may stand there twice after a call was cut off and made again: the call, and what it wrote before its result.
/// And a worker that is stopped while it connects to its model finds that this took too long, and tries again.
const CUT: [&str; 7] =
    ["session_start", "tool_call", "snapshot_created", "confirmed", "judgment", "end_requested", "attempt"];

#[test]
fn whatever_is_killed_each_session_has_one_result_and_is_paid_once() {
    let (events, seeds) = (number("CHEMIGRAM_TEST_EVENTS", 5), number("CHEMIGRAM_TEST_SEEDS", 1));
    let jobs = number("CHEMIGRAM_TEST_JOBS", 4);
    let photos: Vec<String> = (0..jobs).map(|n| format!("p{n:02}")).collect();
    let names: Vec<&str> = photos.iter().map(String::as_str).collect();
    let (alone, model) = (Home::new(&names), Model::start(Duration::ZERO));
    model.plan(&alone, &photos, 0);
    assert_eq!(alone.overnight(&[]), 0);
    assert_eq!(model.asked(), 5 * jobs);
    let expected = Expected { branches: alone.branches(), courses: Studio::courses(&alone, &CUT) };
    std::thread::scope(|scope| {
        for seed in 1..=seeds {
            let (photos, names, expected) = (&photos, &names, &expected);
            scope.spawn(move || disturbed(seed, events, photos, names, expected));
        }
    });
}

/// Runs a batch that is disturbed so often, and looks at what came of it.
fn disturbed(seed: u64, events: u64, photos: &[String], names: &[&str], expected: &Expected) {
    let jobs = photos.len();
    let model = Model::start(Duration::from_millis(700));
    let mut studio = Studio::new(names);
    studio.lease = LEASE;
    model.plan(&studio.home, photos, events);
    let mut submitted = studio.submit();
    let workers = 3.max(jobs / 12);
    let mut called: Vec<String> = (0..workers).map(|number| format!("w{number}")).collect();
    for worker in &called {
        studio.worker(worker, &[]);
    }
    let (mut state, mut stopped) = (seed, BTreeMap::new());
    let (mut done, mut lost) = (BTreeMap::<&str, u64>::new(), BTreeSet::new());
    let began = Instant::now();
    let mut progress = Progress::of(&studio);
    for event in 0..events {
        progress.after(next(&mut state, 2 * LINES * jobs as u64 / events.max(1)));
        stopped.retain(|worker: &usize, until: &mut Instant| {
            let over = Instant::now() >= *until;
            if over {
                signal(&studio, *worker, Signal::CONT);
            }
            !over
        });
        let which = usize::try_from(next(&mut state, workers as u64)).unwrap();
        let what = match next(&mut state, 4) {
            0 => {
                studio.server.restart();
                "server killed"
            }
            1 => {
                submitted.kill().unwrap();
                submitted.wait().unwrap();
                submitted = studio.submit();
                "submitter killed"
            }
            2 => {
                signal(&studio, which, Signal::STOP);
                stopped.insert(which, Instant::now() + STOPPED);
                lost.insert(called[which].clone());
                "worker stopped"
            }
            _ => {
                stopped.remove(&which);
                studio.workers[which].kill().unwrap();
                studio.workers[which].wait().unwrap();
                let name = format!("w{which}-{event}");
                studio.worker(&name, &[]);
                lost.insert(std::mem::replace(&mut called[which], name));
                let fresh = studio.workers.pop().unwrap();
                studio.workers[which] = fresh;
                "worker killed"
            }
        };
        *done.entry(what).or_default() += 1;
        if event % 5 == 4 {
            holds(&studio.show());
        }
    }
    let disturbed = began.elapsed();
    let left = studio.show()["jobs"].as_array().map_or(0, |jobs| {
        jobs.iter().filter(|job| !["ended", "failed"].contains(&job["state"].as_str().unwrap())).count()
    });
    for worker in stopped.keys() {
        signal(&studio, *worker, Signal::CONT);
    }
    let output = ended(submitted);
    let logs = studio.logs();

    // One counted result for each session.
    let batch = studio.home.batch().unwrap();
    let mut results = vec![0; jobs];
    for stamped in &batch.entries {
        if let Entry::Ended { place, .. } | Entry::Failed { place, .. } | Entry::NotBegun { place, .. } =
            stamped.entry
        {
            results[place] += 1;
        }
    }
    assert_eq!(results, vec![1; jobs], "seed {seed}: {output:?}\n{logs}");
    let shown = studio.settled();
    holds(&shown);
    let mut given_up = 0;
    for (place, track) in batch.tracks().into_iter().enumerate() {
        match track.status {
            SessionStatus::Ended { .. } => {}
            SessionStatus::Failed(fault) => {
                assert!(
                    fault.message.contains("3 workers in a row were lost"),
                    "seed {seed}: {place}: {fault}"
                );
                assert!(shown["jobs"][place]["claims"].as_u64() >= Some(3), "seed {seed}: {place}");
                given_up += 1;
            }
            other => panic!("seed {seed}: {place}: {other:?}\n{logs}"),
        }
    }
    let status = if given_up == 0 { 0 } else { 1 };
    assert_eq!(output.status.code(), Some(status), "seed {seed}: {output:?}\n{logs}");

    // What an undisturbed run makes, and nothing else.
    let courses = Studio::courses(&studio.home, &CUT);
    assert_eq!(courses.iter().flatten().count(), jobs - given_up, "seed {seed}");
    for (place, course) in courses.iter().enumerate().filter(|(_, course)| course.is_some()) {
        for (line, undisturbed) in course.iter().flatten().zip(expected.courses[place].iter().flatten()) {
            assert_eq!(line, undisturbed, "seed {seed}: {place}");
        }
        assert_eq!(*course, expected.courses[place], "seed {seed}: {place}");
    }
    let branches = studio.home.branches();
    let missing: Vec<&String> =
        expected.branches.iter().filter(|branch| !branches.contains(branch)).collect();
    assert!(missing.len() <= given_up, "seed {seed}: {missing:?}");
    assert!(
        branches.iter().all(|b| expected.branches.contains(b) || b.contains("branch_b_tone")),
        "seed {seed}"
    );
    for (place, photo) in photos.iter().enumerate() {
        assert_eq!(studio.home.status(&["fsck", photo]), 0, "seed {seed}: {photo}");
        if courses[place].is_some() {
            assert!(!missing.iter().any(|branch| branch.starts_with(photo)), "seed {seed}: {missing:?}");
        }
    }

    // Nothing of a worker that was overtaken, and every call paid, once.
    let taken_over = taken_over(&studio, &lost, seed);
    assert_eq!(studio.counted(), studio.spent(), "seed {seed}");
    let (asked, paid) = (model.asked(), studio.spent().model_calls);
    assert!(asked <= paid, "seed {seed}: {asked} calls were made, and {paid} paid");
    let counted: u64 =
        courses.iter().flatten().flatten().filter(|line| line["kind"] == "model_reply").count() as u64;
    let uncounted = asked - counted;
    assert!(
        uncounted <= taken_over + 5 * given_up as u64,
        "seed {seed}: {uncounted} calls were made again, and only {taken_over} sessions taken over\n{logs}"
    );
    #[allow(clippy::print_stdout, reason = "the figures of a long run, with `--nocapture`")]
    {
        println!(
            "seed {seed}: {jobs} sessions, {done:?} in {disturbed:.0?}, {left} sessions left then, over after {:.0?}; \
             {given_up} given up; {asked} calls made, {paid} paid, {counted} in results; {taken_over} sessions taken \
             over from a worker that was lost",
            began.elapsed()
        );
    }
}

/// How far a batch is: by this events are spread over its course, however fast the machine is.
struct Progress {
    runtime: tokio::runtime::Runtime,
    journal: Option<jetstream::stream::Stream>,
    server: String,
    messages: u64,
}

impl Progress {
    fn of(studio: &Studio) -> Self {
        let server = studio.address().rsplit_once('/').unwrap().0.to_owned();
        Self { runtime: tokio::runtime::Runtime::new().unwrap(), journal: None, server, messages: 0 }
    }

    /// Waits until so many more messages about sessions were written, a while at most: nobody may be left to write.
    fn after(&mut self, more: u64) {
        let until = Instant::now() + Duration::from_secs(5);
        let wanted = self.messages + more;
        while self.messages < wanted && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
            self.look();
        }
    }

    fn look(&mut self) {
        let Self { runtime, journal, server, .. } = self;
        let seen = runtime.block_on(async {
            if journal.is_none() {
                let client = async_nats::connect(&*server).await.ok()?;
                *journal = Some(jetstream::new(client).get_stream("studio_journal").await.ok()?);
            }
            let info = journal.as_mut()?.info().await.ok()?;
            Some(info.state.last_sequence)
        });
        self.messages = seen.unwrap_or(self.messages);
    }
}

/// The caps of a batch hold: what is spent and what may still be is no more.
fn holds(shown: &Value) {
    // The server may be away.
    if shown.is_null() {
        return;
    }
    for cap in ["iterations", "branches"] {
        let of = |part: &str| shown[part][cap].as_u64().unwrap_or(0);
        assert!(of("spent") + of("reserved") <= of("caps"), "{cap}: {shown}");
    }
}

/// Every message about a session is of whoever had claimed it last. How often one was taken over from a worker that was
/// lost, or that says it was overtaken; one that was stopped may wake up after the batch, and not have said so yet.
fn taken_over(studio: &Studio, lost: &BTreeSet<String>, seed: u64) -> u64 {
    let address = studio.address();
    let messages = tokio::runtime::Runtime::new().unwrap().block_on(async {
        let client = async_nats::connect(address.rsplit_once('/').unwrap().0).await.unwrap();
        let journal = jetstream::new(client).get_stream("studio_journal").await.unwrap();
        let last = journal.cached_info().state.last_sequence;
        let mut messages = Vec::new();
        for sequence in 1..=last {
            let message = journal.get_raw_message(sequence).await.unwrap();
            let value: Value = serde_json::from_slice(&message.payload).unwrap();
            messages.push((message.subject.to_string(), value));
        }
        messages
    });
    let mut lasts = BTreeMap::<String, Value>::new();
    let mut taken_over = 0;
    for (subject, message) in messages {
        if let Some(last) = lasts.get(&subject) {
            let (before, epoch) = (last["epoch"].as_u64().unwrap(), message["epoch"].as_u64().unwrap());
            let same = (epoch, &message["worker"]) == (before, &last["worker"]);
            assert!(same || epoch > before, "seed {seed}: {subject}: {message} after {last}");
            let held = ["claimed", "changed"].contains(&last["event"].as_str().unwrap());
            if epoch > before && held {
                let worker = last["worker"].as_str().unwrap();
                let overtaken = || studio.log(worker).contains("another worker has taken over");
                taken_over += u64::from(lost.contains(worker) || overtaken());
            }
        }
        lasts.insert(subject, message);
    }
    taken_over
}
