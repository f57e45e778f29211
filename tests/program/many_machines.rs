//! A batch on many machines: several worker processes and a real server. What comes of it is what one machine makes,
//! also when workers and the server are killed, and it is paid once.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::nats::Server;
use crate::overnight::{Home, script};
use chemigram::budget::Amounts;
use chemigram::session::listing;
use chemigram::transcript::Outcome;
use serde_json::Value;

/// A server, and a home from which batches are submitted.
pub struct Studio {
    pub home: Home,
    pub server: Server,
    /// What follows the prefix in its address.
    pub query: String,
    pub storage: tempfile::TempDir,
    pub workers: Vec<Child>,
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
        Self { home: Home::new(photos), server, query: String::new(), storage, workers: Vec::new() }
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
        command.args(["--lease", "3"]).args(more);
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
            listing::read(&library.open(&photo).unwrap(), &id).unwrap().ledger.settled()
        });
        spent.fold(Amounts::default(), Amounts::plus)
    }

    /// What the store has counted for the sessions that are over.
    pub fn counted(&self) -> Amounts {
        serde_json::from_value(self.show()["spent"].clone()).unwrap()
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
            .any(|text| text.matches("snapshot_created").count() >= 2)
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

pub fn ended(child: Child) -> Output {
    child.wait_with_output().unwrap()
}

/// Waits until something holds.
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(120), "{what} did not come about");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Sessions of the explorer: two photos, one of them twice.
fn explore(home: &Home) {
    let session = |photo: &str, vector: &str| {
        format!("[[session]]\nphoto = \"{photo}\"\nprovider = \"explorer\"\nvectors = [\"{vector}\"]\n\n")
    };
    let sessions = [
        session("cup", "tone=open the shadows"),
        session("bar", "color=warmer"),
        session("cup", "mood=darker and quieter"),
    ];
    home.plan("branches = 6\ntime = \"1h\"", &sessions.concat());
}

#[test]
fn three_workers_make_what_one_machine_makes() {
    let alone = Home::new(&["cup", "bar"]);
    explore(&alone);
    assert_eq!(alone.overnight(&[]), 0);
    let mut studio = Studio::new(&["cup", "bar"]);
    explore(&studio.home);
    for name in ["one", "two", "three"] {
        studio.worker(name, &[]);
    }
    assert_eq!(studio.overnight(), 0, "{}", studio.logs());
    assert_eq!(studio.home.branches(), alone.branches());
    let outcomes = |home: &Home| {
        let mut outcomes = home.outcomes();
        outcomes.sort_by_key(|(place, _)| *place);
        outcomes
    };
    assert_eq!(outcomes(&studio.home), outcomes(&alone));
    let shown = studio.show();
    assert_eq!(shown["state"], "over", "{shown}");
    assert_eq!(studio.counted(), studio.spent());
    assert_eq!(shown["reserved"], serde_json::json!({}));
    for photo in ["cup", "bar"] {
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
    let shown = studio.show();
    assert_eq!(
        (&shown["jobs"][0]["worker"], &shown["jobs"][0]["claims"]),
        (&"second".into(), &2.into()),
        "{shown}"
    );
    assert_eq!(studio.counted(), studio.spent());
    assert_eq!(studio.home.status(&["fsck", "cup"]), 0);
}
