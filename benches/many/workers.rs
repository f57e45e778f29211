//! The same sessions by more and more workers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base::assets::Overlay;
use base::clock::Deadline;
use darktable::baseline::{self, Untouched};
use darktable::dng;
use darktable::layout::Layouts;
use darktable::probe::DarktableCli;
use engine::photo::{IngestOptions, Library, ingest};
use serde_json::Value;

use crate::number;
use testkit::nats::Server;

/// How long a session waits for each reply.
const THINKING: Duration = Duration::from_millis(1500);
/// The calls of a session: each is a reply of its own.
const CALLS: [(&str, &str); 8] = [
    ("confirm_session", r#"{"vectors": [{"name": "tone", "restated": "Opens the shadows."}]}"#),
    ("branch", r#"{"name": "branch_b_tone"}"#),
    ("apply_primitive", r#"{"primitive_name": "shadows_lift", "parameter_values": {"amount": 0.8}}"#),
    ("render_preview", "{}"),
    ("apply_primitive", r#"{"primitive_name": "shadows_lift", "parameter_values": {"amount": 0.5}}"#),
    ("render_preview", "{}"),
    (
        "record_judgment",
        r#"{"branch": "branch_b_tone", "judged_score": 4, "judged_reasoning": "Open.", "key_moves": ["shadows_lift"]}"#,
    ),
    ("end_mode_b_session", r#"{"session_summary": "Open."}"#),
];

pub fn measure() {
    let (sessions, most) = (number("MANY_SESSIONS", 24), number("MANY_WORKERS", 8));
    let (root, untouched) = (tempfile::tempdir().unwrap(), untouched());
    let cache = root.path().join("cache");
    // Every picture is made once, without waiting for replies.
    let warm = Studio::new(root.path().join("warm"), &cache, sessions, &untouched, Duration::ZERO);
    let status = warm.command(&["overnight", warm.plan().to_str().unwrap()]).status().unwrap();
    assert!(status.success(), "{}", warm.log());
    let thinking = THINKING * u32::try_from(CALLS.len() * sessions).unwrap();
    println!(
        "\n| workers | {sessions} sessions | thinking alone | one worker's time, shared | to that |\n|---:|---:|---:|---:|---:|"
    );
    let mut one = None;
    for workers in [1, 2, 4, 8].into_iter().filter(|workers| *workers <= most) {
        let folder = root.path().join(format!("with-{workers}"));
        let took = Studio::new(folder, &cache, sessions, &untouched, THINKING).run(workers).as_secs_f64();
        // The last sessions leave workers idle where they do not share evenly.
        let rounds = sessions.div_ceil(workers) as f64 / sessions as f64;
        let (ideal, alone) = (*one.get_or_insert(took) * rounds, thinking.as_secs_f64() * rounds);
        println!("| {workers} | {took:.1} s | {alone:.1} s | {ideal:.1} s | {:.2} |", ideal / took);
    }
}

/// What darktable does to the raw by default.
fn untouched() -> Untouched {
    let dir = tempfile::tempdir().unwrap();
    let raw = dir.path().join("demo.dng");
    fs::write(&raw, dng::demo_raw().unwrap()).unwrap();
    let layouts = Layouts::new(Overlay::vocabulary(None));
    let darktable = DarktableCli::find(&Deadline::never()).expect("darktable-cli is installed");
    baseline::ask(&darktable, &layouts, &raw, dir.path(), &Deadline::never()).unwrap()
}

/// A library of photos, each with a session in a plan.
struct Studio {
    folder: PathBuf,
    cache: PathBuf,
}

impl Studio {
    fn new(folder: PathBuf, cache: &Path, sessions: usize, untouched: &Untouched, pause: Duration) -> Self {
        let studio = Self { folder, cache: cache.to_owned() };
        fs::create_dir_all(studio.path("raws")).unwrap();
        let library = Library::new(studio.path("photos"));
        let ask = |_: &Path| Ok(untouched.clone());
        let mut plan = format!(
            "[budget]\nbranches = {sessions}\ntime = \"2h\"\n\n[defaults]\nprovider = \"script\"\n\
             model = \"script.toml\"\npreview_size = 256\nbudget = \"time=10m,iterations=12,branches=1\"\n\
             vectors = [\"tone=lift the shadows\"]\n"
        );
        for number in 0..sessions {
            let (name, mut raw) = (format!("p{number:02}"), dng::demo_raw().unwrap());
            // Another photo: its sessions need not wait for others.
            raw.extend(std::iter::repeat_n(0, number));
            let path = studio.path(&format!("raws/{name}.dng"));
            fs::write(&path, raw).unwrap();
            let options = IngestOptions { id: Some(name.parse().unwrap()), brief: None };
            ingest(&library, &path, options, &ask).unwrap();
            plan += &format!("\n[[session]]\nphoto = \"{name}\"\n");
        }
        fs::write(studio.plan(), plan).unwrap();
        let reply = |(name, arguments): &(&str, &str)| {
            let wait = pause.as_millis();
            format!(
                "[[reply]]\ndelay_ms = {wait}\ncalls = [{{ name = \"{name}\", arguments = '{arguments}' }}]\n\n"
            )
        };
        fs::write(studio.path("script.toml"), CALLS.iter().map(reply).collect::<String>()).unwrap();
        studio
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn plan(&self) -> PathBuf {
        self.path("plan.toml")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chemigram"));
        command.arg("--library").arg(self.path("photos")).args(arguments);
        testkit::home::settle(&mut command, &self.folder);
        command.env("XDG_CACHE_HOME", &self.cache);
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path("log")).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command
    }

    /// How long so many workers, which are ready when it begins, need from the first claim to the last end, by the
    /// server's clock.
    fn run(&self, workers: usize) -> Duration {
        let server = Server::start(&self.folder);
        let address = server.address("bench");
        let start = |n: usize| {
            let (home, name) = (self.path(&format!("worker-{n}")), format!("w{n}"));
            let arguments =
                ["worker", "--store", &address, "--name", &name, "--home", home.to_str().unwrap()];
            Ends(self.command(&arguments).spawn().unwrap())
        };
        let running: Vec<Ends> = (0..workers).map(start).collect();
        let began = Instant::now();
        while self.log().matches(": waiting for sessions").count() < workers {
            assert!(began.elapsed() < Duration::from_secs(120), "{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
        let plan = self.plan();
        let overnight = ["overnight", plan.to_str().unwrap(), "--store", &address];
        assert!(self.command(&overnight).status().unwrap().success(), "{}", self.log());
        drop(running);
        let (mut first, mut last) = (i64::MAX, 0);
        for (at, event) in happened(&server) {
            match event.as_str() {
                "claimed" => first = first.min(at),
                "ended" => last = last.max(at),
                _ => {}
            }
        }
        Duration::from_millis(u64::try_from(last - first).unwrap())
    }
}

/// A process that does not outlive this.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Every message about a session: when the server took it, in milliseconds, and what it says.
fn happened(server: &Server) -> Vec<(i64, String)> {
    let address = server.address("bench");
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let client = async_nats::connect(address.trim_end_matches("/bench")).await.unwrap();
        let journal = async_nats::jetstream::new(client).get_stream("bench_journal").await.unwrap();
        let mut messages = Vec::new();
        for sequence in 1..=journal.cached_info().state.last_sequence {
            let message = journal.get_raw_message(sequence).await.unwrap();
            let told: Value = serde_json::from_slice(&message.payload).unwrap();
            let at = i64::try_from(message.time.unix_timestamp_nanos() / 1_000_000).unwrap();
            messages.push((at, told["event"].as_str().unwrap().to_owned()));
        }
        messages
    })
}
