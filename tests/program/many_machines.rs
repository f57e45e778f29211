//! A batch on many machines: several worker processes and a real server. What comes of it is what one machine makes,
//! also when workers and the server are killed, and it is paid once.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::cell::RefCell;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::overnight::{Home, script};
use chemigram::budget::Amounts;
use chemigram::overnight::record::SessionStatus;
use chemigram::session::listing;
use chemigram::transcript::Outcome;
use serde_json::Value;
use testkit::nats::Server;

/// The lease where a worker is lost, in seconds: others wait so long before they take over.
pub const TAKEN_OVER: u64 = 8;

/// A server, and a home from which batches are submitted.
pub struct Studio {
    pub home: Home,
    pub server: Server,
    /// What follows the prefix in its address.
    pub query: String,
    pub storage: tempfile::TempDir,
    pub workers: Vec<Child>,
    /// Of the workers, in seconds: long, so that a busy machine loses none, but where a test loses one.
    pub lease: u64,
}

impl Drop for Studio {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

impl Studio {
    pub fn new(photos: &[&str]) -> Self {
        let storage = tempfile::tempdir().unwrap();
        let server = Server::start(storage.path());
        Self::on(server, storage, photos)
    }

    /// On a server that was started before.
    pub fn on(server: Server, storage: tempfile::TempDir, photos: &[&str]) -> Self {
        Self {
            home: Home::new(photos),
            server,
            query: String::new(),
            storage,
            workers: Vec::new(),
            lease: 60,
        }
    }

    pub fn address(&self) -> String {
        self.server.address("studio") + &self.query
    }

    /// Starts a worker, which has no library.
    pub fn worker(&mut self, name: &str, more: &[&str]) {
        self.worker_with(name, more, |_| {});
    }

    /// Starts one whose process is prepared by `prepare`.
    pub fn worker_with(&mut self, name: &str, more: &[&str], prepare: impl FnOnce(&mut Command)) {
        let log = std::fs::File::create(self.home.path(&format!("{name}.log"))).unwrap();
        let place = self.home.path(&format!("{name}.home"));
        let mut command = self.home.command(&["worker", "--store", &self.address(), "--name", name]);
        command.arg("--home").arg(place).arg("--library").arg(self.home.path("nowhere"));
        command.args(["--lease", &self.lease.to_string()]).args(more);
        prepare(&mut command);
        self.workers.push(command.stderr(log).spawn().unwrap());
    }

    pub fn submit(&self) -> Child {
        let plan = self.home.path("plan.toml");
        let args = ["overnight", plan.to_str().unwrap(), "--store", &self.address()];
        self.home.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub fn overnight(&self) -> i32 {
        let output = ended(self.submit());
        output.status.code().unwrap_or_else(|| panic!("{output:?}"))
    }

    /// What `batch show` says of the last batch in the store.
    pub fn show(&self) -> Value {
        let output = self.home.run(&["batch", "show", "last", "--store", &self.address(), "--json"]);
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    /// What the sessions of the batch spent by their transcripts, those that the library has.
    pub fn spent(&self) -> Amounts {
        let library = self.home.library();
        let each = self.home.batch().unwrap().tracks().into_iter().flat_map(|track| track.all);
        let spent = each.map(|(photo, id, _)| {
            // Of one that was given up, what it had begun is charged in full.
            let ledger = listing::read(&library.open(&photo).unwrap(), &id).unwrap().ledger;
            ledger.settled().plus(ledger.reserved())
        });
        spent.fold(Amounts::default(), Amounts::plus)
    }

    /// What happened in each session that ended, in the plan's order: its transcript without `left_out`, without what
    /// only announces something or says how long it took, and without what differs from home to home.
    pub fn courses(home: &Home, left_out: &[&str]) -> Vec<Option<Vec<Value>>> {
        let tracks = home.batch().unwrap().tracks().into_iter();
        let each = tracks.map(|track| {
            let (photo, id, _) =
                track.session.filter(|_| matches!(track.status, SessionStatus::Ended { .. }))?;
            let folder = home.library().open(&photo).unwrap().session_folder(&id);
            let text = std::fs::read_to_string(folder.join("transcript.jsonl")).unwrap();
            let text = nameless(text, home);
            let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            let told = ["model_intent", "count_intent", "render_intent", "render", "resumed"];
            let told = |line: &Value| {
                let kind = line["kind"].as_str().unwrap();
                !told.contains(&kind) && !left_out.contains(&kind)
            };
            Some(lines.filter(told).map(timeless).collect())
        });
        each.collect()
    }

    /// What the store has counted for the sessions of a batch that is over: a worker says that one is before it counts.
    pub fn counted(&self) -> Amounts {
        serde_json::from_value(self.settled()["spent"].clone()).unwrap()
    }

    /// What `batch show` says when nothing is reserved any more.
    pub fn settled(&self) -> Value {
        let shown = RefCell::new(Value::Null);
        until("the last session is counted", || {
            *shown.borrow_mut() = self.show();
            shown.borrow()["reserved"] == serde_json::json!({})
        });
        shown.into_inner()
    }

    pub fn claimed_by(&self, name: &str) -> bool {
        let job = &self.show()["jobs"][0];
        job["worker"] == name && job["state"] == "claimed"
    }

    /// Whether a session of this worker waits for its model's judgment: its branch is edited.
    pub fn edited(&self, worker: &str) -> bool {
        let homes =
            std::fs::read_dir(self.home.path(&format!("{worker}.home"))).into_iter().flatten().flatten();
        let photos = homes
            .flat_map(|home| std::fs::read_dir(home.path().join("photos")).into_iter().flatten().flatten());
        let folders = photos.map(|photo| photo.path().join("sessions/mode_b"));
        let sessions = folders.flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten());
        sessions
            .map(|one| std::fs::read_to_string(one.path().join("transcript.jsonl")).unwrap_or_default())
            .any(|text| awaits_judgment(&text))
    }

    pub fn log(&self, worker: &str) -> String {
        std::fs::read_to_string(self.home.path(&format!("{worker}.log"))).unwrap()
    }

    pub fn logs(&self) -> String {
        let logs = std::fs::read_dir(self.home.path("")).unwrap().flatten();
        let logs = logs.filter(|entry| entry.path().extension().is_some_and(|end| end == "log"));
        logs.map(|entry| std::fs::read_to_string(entry.path()).unwrap()).collect()
    }
}

/// Whether the model of a session was asked after its branch was edited.
pub fn awaits_judgment(transcript: &str) -> bool {
    let mut snapshots = transcript.rmatch_indices("snapshot_created");
    let (last, before) = (snapshots.next(), snapshots.next());
    before.is_some() && last.map(|(at, _)| at) < transcript.rfind("model_intent")
}

/// A text without the names that differ from home to home: of sessions, of proposals, and of folders.
fn nameless(mut text: String, home: &Home) -> String {
    let library = home.library();
    for photo in library.photos().unwrap() {
        for proposal in library.open(&photo).unwrap().proposals().unwrap() {
            text = text.replace(&proposal.id, "PROPOSAL");
        }
    }
    for (place, track) in home.batch().unwrap().tracks().into_iter().enumerate() {
        let Some((_, id, _)) = track.session else { continue };
        text = text
            .replace(id.as_str(), &format!("SESSION {place}"))
            .replace(id.short(), &format!("SESSION {place}"));
    }
    text.replace(&*home.path("").to_string_lossy(), "HOME/")
}

/// A line of a transcript without its place, its times, and what was spent.
fn timeless(mut line: Value) -> Value {
    const LEFT_OUT: [&str; 14] = [
        "seq",
        "t",
        "mono_ms",
        "ms",
        "prev",
        "own_sha256",
        "intent",
        "spent",
        "settled",
        "assumed",
        "wall_ms",
        "model_ms",
        "render_ms",
        "lines",
    ];
    let fields = line.as_object_mut().unwrap();
    fields.retain(|name, _| !LEFT_OUT.contains(&name.as_str()));
    // The model is told what is left.
    if let Some(text) = line.pointer_mut("/result/text") {
        *text = text.as_str().unwrap().split("\n[budget: ").next().unwrap().into();
    }
    line
}

pub fn ended(child: Child) -> Output {
    child.wait_with_output().unwrap()
}

/// Waits until something holds.
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(300), "{what} did not come about");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A number that a long run sets.
pub fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().map_or(usual, |text| text.parse().unwrap())
}

/// So many sessions of the explorer, three on each photo.
fn explore(home: &Home, photos: &[&str], sessions: usize) {
    let vectors = ["tone=open the shadows", "color=warmer", "mood=darker and quieter"];
    let of = |n: usize| {
        let (photo, vector) = (photos[n % photos.len()], vectors[n / photos.len() % vectors.len()]);
        format!("[[session]]\nphoto = \"{photo}\"\nprovider = \"explorer\"\nvectors = [\"{vector}\"]\n\n")
    };
    let each: String = (0..sessions).map(of).collect();
    home.plan(&format!("branches = {sessions}\ntime = \"2h\""), &each);
}

#[test]
fn three_workers_make_what_one_machine_makes() {
    let sessions = usize::try_from(number("CHEMIGRAM_TEST_BATCH", 5)).unwrap();
    let photos = ["cup", "bar", "hat", "jar", "pan", "key", "map", "net"];
    let photos = &photos[..sessions.div_ceil(3).min(8)];
    let alone = Home::new(photos);
    explore(&alone, photos, sessions);
    assert_eq!(alone.overnight(&[]), 0);
    let mut studio = Studio::new(photos);
    explore(&studio.home, photos, sessions);
    for name in ["one", "two", "three"] {
        studio.worker(name, &[]);
    }
    assert_eq!(studio.overnight(), 0, "{}", studio.logs());
    assert_eq!(studio.home.branches(), alone.branches());
    let courses = Studio::courses(&studio.home, &[]);
    assert_eq!(courses.len(), sessions);
    for (place, (many, one)) in courses.into_iter().zip(Studio::courses(&alone, &[])).enumerate() {
        let (many, one) = (many.unwrap(), one.unwrap());
        for (many, one) in many.iter().zip(&one) {
            assert_eq!(many, one, "session {place}");
        }
        assert_eq!(many.len(), one.len(), "session {place}");
    }
    for (many, one) in reviews(&studio.home).iter().zip(&reviews(&alone)) {
        assert_eq!(many, one);
    }
    let outcomes = |home: &Home| {
        let mut outcomes = home.outcomes();
        outcomes.sort_by_key(|(place, _)| *place);
        outcomes
    };
    assert_eq!(outcomes(&studio.home), outcomes(&alone));
    assert_eq!(studio.settled()["state"], "over");
    assert_eq!(studio.counted(), studio.spent());
    for photo in photos {
        assert_eq!(studio.home.status(&["fsck", photo]), 0, "{photo}");
    }
    assert!(studio.home.report("report.html").contains("chemigram promote cup branch_b_tone"));
    // The same plan once more is another batch; a worker that may end does when nothing is left.
    let submitted = studio.submit();
    studio.worker("last", &["--until-empty"]);
    assert_eq!(ended(submitted).status.code(), Some(0));
    let last = studio.workers.pop().unwrap();
    assert_eq!(ended(last).status.code(), Some(0));
}

/// What the review of each session says of its branches, in the plan's order.
fn reviews(home: &Home) -> Vec<Value> {
    let tracks = home.batch().unwrap().tracks().into_iter();
    let each = tracks.map(|track| {
        let id = track.session.unwrap().1;
        let shown = home.run(&["mode-b", "show", id.as_str(), "--json"]);
        let text = nameless(String::from_utf8(shown.stdout).unwrap(), home);
        let review: Value = serde_json::from_str(&text).unwrap();
        assert!(review["branches"][0]["judged_score"].is_u64(), "{review}");
        review["branches"].clone()
    });
    each.collect()
}

#[test]
fn a_session_cut_on_one_worker_is_finished_by_another_as_if_nothing_had_been() {
    let undisturbed = Home::new(&["cup"]);
    let plan = |home: &Home, pause: u64| {
        home.write("script.toml", script("Open.", pause));
        home.plan("branches = 1\ntime = \"1h\"", "[[session]]\nphoto = \"cup\"\n");
    };
    plan(&undisturbed, 0);
    assert_eq!(undisturbed.overnight(&[]), 0);
    let mut studio = Studio::new(&["cup"]);
    plan(&studio.home, 2500);
    studio.lease = TAKEN_OVER;
    studio.worker("first", &[]);
    let submitted = studio.submit();
    until("a claim", || studio.claimed_by("first"));
    until("an edit", || studio.edited("first"));
    studio.workers[0].kill().unwrap();
    studio.workers[0].wait().unwrap();
    studio.worker("second", &[]);
    let output = ended(submitted);
    assert_eq!(output.status.code(), Some(0), "{output:?}\n{}", studio.logs());
    assert_eq!(studio.home.outcomes(), [(0, Outcome::Completed)]);
    assert_eq!(studio.home.branches(), undisturbed.branches());
    assert_eq!(Studio::courses(&studio.home, &[]), Studio::courses(&undisturbed, &[]));
    let shown = studio.show();
    assert_eq!(
        (&shown["jobs"][0]["worker"], &shown["jobs"][0]["claims"]),
        (&"second".into(), &2.into()),
        "{shown}"
    );
    assert_eq!(studio.counted(), studio.spent());
    assert_eq!(studio.home.status(&["fsck", "cup"]), 0);
}
