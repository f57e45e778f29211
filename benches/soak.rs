//! A long session that nobody attends, under everything that goes wrong: `make soak`, or
//! `SOAK_MINUTES=3 cargo bench --bench soak`.
//!
//! The program as it is released runs one session of that many minutes with the real darktable. The model explores
//! as the offline explorer does, by edits and the numbers of their pictures, but it never has enough: a server on
//! loopback calls tools as fast as it is asked, and now and then stalls, breaks off, refuses, or answers nonsense; in
//! the wrap-up it sends a few bytes now and then and no reply. Every few seconds a darktable is killed. Once a second
//! the memory, the open files and the children of the program are read from `/proc`. A promise that does not hold
//! ends this program with status 1.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chemigram::transcript::{self, Event, SessionEnd};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use testkit::{chat_stub, home};

/// How long the program waits for a server that says nothing.
const PATIENCE: Duration = Duration::from_secs(2);
/// What the model is told when only the judgments are left.
const WRAP_UP: &str = "Exploration is over: ";
/// The model's context, in tokens: full every few dozen calls, so that a chapter begins.
const CONTEXT: u64 = 65_536;
/// How much the memory may grow from a sixth of the time to the end, in percent.
const GROWTH: f64 = 10.0;

/// Numbers that look random, the same in every run.
struct Dice(u64);

impl Dice {
    /// From 0 up to `sides`, which it is not.
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

fn main() -> ExitCode {
    let minutes =
        std::env::var("SOAK_MINUTES").map_or(30, |text| text.parse().expect("SOAK_MINUTES is a number"));
    let home = Home::new();
    home.take_in();
    let server = Server::start();
    home.write_profile(&server.url());
    let before = home.main();
    println!("{minutes} minutes with {}, in {}", home.darktable(), home.0.path().display());

    let time = Duration::from_secs(60 * minutes);
    let started = Instant::now();
    let mut program = home.session(minutes);
    let watched = watch(&mut program, &home, started, time);
    let took = started.elapsed();
    println!("\n{}", server.table());
    let verdicts = home.verdicts(&watched, took, time, &before);
    println!("| promise | measured | held |\n|---|---|---|");
    for (promise, measured, held) in &verdicts {
        println!("| {promise} | {measured} | {} |", if *held { "yes" } else { "**no**" });
    }
    ExitCode::from(u8::from(verdicts.iter().any(|verdict| !verdict.2)))
}

/// What `/proc` said at one moment.
struct Sample {
    at: Duration,
    /// Resident memory, KiB.
    rss: u64,
    files: usize,
    children: usize,
}

/// What was seen of the running program.
struct Watched {
    samples: Vec<Sample>,
    kills: u64,
    /// Every process that came from the program, with the time at which it started.
    descendants: BTreeSet<(u32, u64)>,
    status: Option<i32>,
}

/// Looks at the program until it ends, and kills its darktables.
fn watch(program: &mut Child, home: &Home, started: Instant, time: Duration) -> Watched {
    let mut dice = Dice(17);
    let mut watched = Watched { samples: Vec::new(), kills: 0, descendants: BTreeSet::new(), status: None };
    let mut next_kill = Duration::from_secs(10);
    let mut next_sample = Duration::ZERO;
    loop {
        if let Some(status) = program.try_wait().unwrap() {
            watched.status = status.code();
            return watched;
        }
        let at = started.elapsed();
        let family = descendants(program.id());
        watched.descendants.extend(family.iter().map(|process| (process.pid, process.since)));
        if at >= next_sample {
            if let Some(sample) = sample(program.id(), at, family.len()) {
                watched.samples.push(sample);
            }
            next_sample += Duration::from_secs(1);
        }
        if at >= next_kill {
            let darktables: Vec<&Process> = family.iter().filter(|process| process.is_darktable()).collect();
            if let Some(victim) = darktables.get(dice.roll(darktables.len().max(1) as u64) as usize) {
                let pid = Pid::from_raw(i32::try_from(victim.pid).unwrap()).unwrap();
                watched.kills += u64::from(rustix::process::kill_process(pid, Signal::KILL).is_ok());
                next_kill = at + Duration::from_secs(5 + dice.roll(16));
            }
        }
        if at > time + Duration::from_secs(120) {
            let text = fs::read_to_string(home.path("said")).unwrap_or_default();
            program.kill().unwrap();
            panic!("it does not end:\n{text}");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn sample(pid: u32, at: Duration, children: usize) -> Option<Sample> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let files = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
    Some(Sample { at, rss: rss.split_whitespace().next()?.parse().ok()?, files, children })
}

struct Process {
    pid: u32,
    parent: u32,
    /// When it started, in ticks since the machine did: with the number this names one process.
    since: u64,
}

impl Process {
    fn read(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in brackets may have blanks and brackets.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let dead = matches!(*fields.first()?, "Z" | "X");
        let since = fields.get(19)?.parse().ok()?;
        (!dead).then_some(Self { pid, parent: fields.get(1)?.parse().ok()?, since })
    }

    fn is_darktable(&self) -> bool {
        let line = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        line.split(|byte| *byte == 0).next().is_some_and(|name| name.ends_with(b"darktable-cli"))
    }
}

fn descendants(of: u32) -> Vec<Process> {
    let numbers = fs::read_dir("/proc").unwrap().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let all: BTreeMap<u32, Process> =
        numbers.filter_map(|pid| Process::read(pid).map(|process| (pid, process))).collect();
    let is_of = |process: &Process| {
        let mut parent = process.parent;
        while let Some(next) = all.get(&parent).filter(|_| parent != of) {
            parent = next.parent;
        }
        parent == of
    };
    let found: BTreeSet<u32> =
        all.values().filter(|process| is_of(process)).map(|process| process.pid).collect();
    all.into_values().filter(|process| found.contains(&process.pid)).collect()
}

/// Folders of the program's own.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chemigram"));
        home::settle(&mut command, self.0.path());
        command.args(arguments).current_dir(self.0.path());
        command
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn take_in(&self) {
        self.ok(&["demo-raw", "cup.dng"]);
        self.ok(&["ingest", "cup.dng", "--brief", "Quiet and warm."]);
    }

    fn darktable(&self) -> String {
        let report: Value = serde_json::from_str(&self.ok(&["doctor", "--json"])).unwrap();
        format!("darktable {}", report["darktable"]["version"].as_str().unwrap_or("?"))
    }

    fn write_profile(&self, url: &str) {
        let text = format!(
            "name = \"soak\"\nsummary = \"\"\ndialect = \"openai_chat\"\nbase_url = \"{url}\"\nfree = true\n\
             default_model = \"tireless\"\n[other_models]\nvision = false\ncontext = {CONTEXT}\n\
             [wire]\nfirst_byte_seconds = {0}\nidle_seconds = {0}\n",
            PATIENCE.as_secs()
        );
        let folder = self.path("config/chemigram/providers");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("soak.toml"), text).unwrap();
    }

    fn main(&self) -> String {
        self.ok(&["log", "cup", "main"])
    }

    fn session(&self, minutes: u64) -> Child {
        let budget = format!("time={minutes}m,iterations=1000000,branches=1");
        let said = fs::File::create(self.path("said")).unwrap();
        let mut command = self.command(&["run-mode-b", "cup", "--vector", "tone=open the shadows", "--yes"]);
        command.args(["--budget", &budget, "--provider", "soak", "--preview-size", "256"]);
        command.stdout(said.try_clone().unwrap()).stderr(said).spawn().unwrap()
    }

    fn transcript(&self) -> PathBuf {
        let sessions = self.path("data/chemigram/photos/cup/sessions/mode_b");
        let entry = fs::read_dir(sessions).unwrap().next().unwrap().unwrap();
        entry.path().join("transcript.jsonl")
    }

    /// What was promised, what was measured, and whether it held.
    fn verdicts(
        &self,
        watched: &Watched,
        took: Duration,
        time: Duration,
        before: &str,
    ) -> Vec<(&'static str, String, bool)> {
        let transcript = self.transcript();
        let lines = transcript::read(&transcript).unwrap().lines;
        let last = lines.last().unwrap();
        let Event::SessionEnd(end) = &last.event else { panic!("no closing line") };
        let SessionEnd { outcome, spent, .. } = &**end;
        let ended = Duration::from_millis(last.mono_ms);
        let late = ended.as_secs_f64() - time.as_secs_f64();
        let chapters = lines.iter().filter(|line| matches!(line.event, Event::Chapter { .. })).count();
        let attempts = lines.iter().filter(|line| matches!(line.event, Event::Attempt { .. })).count();
        let id = transcript.parent().unwrap().file_name().unwrap().to_str().unwrap();

        // The middle of what was seen about a moment; the first moment is a sixth of the time: five minutes of thirty.
        let middle = |from: Duration, to: Duration, of: fn(&Sample) -> u64| {
            let within = watched.samples.iter().filter(|sample| (from..to).contains(&sample.at));
            let mut values: Vec<u64> = within.map(of).collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied().unwrap_or(0)
        };
        let (early, span) = (time / 6, time / 30);
        let pair = |of: fn(&Sample) -> u64| {
            [middle(early, early + span, of), middle(time - span * 2, time - span, of)]
        };
        let [rss, rss_end] = pair(|sample| sample.rss);
        let [files, files_end] = pair(|sample| sample.files as u64);
        let most = |of: fn(&Sample) -> u64| watched.samples.iter().map(of).max().unwrap_or(0);
        let growth = (rss_end as f64 / rss.max(1) as f64 - 1.0) * 100.0;
        let mib = |kib: u64| kib as f64 / 1024.0;
        let left: Vec<u32> = watched
            .descendants
            .iter()
            .filter(|(pid, since)| Process::read(*pid).is_some_and(|process| process.since == *since))
            .map(|(pid, _)| *pid)
            .collect();
        let run = |arguments: &[&str]| self.command(arguments).output().unwrap().status.code();
        let (show, fsck) = (run(&["mode-b", "show", id]), run(&["fsck", "cup"]));
        let size = fs::metadata(&transcript).unwrap().len() as f64 / 1e6;
        vec![
            (
                "ends within 1 s of its time cap",
                format!("{late:+.2} s by its own clock; {:.1} s from start to exit", took.as_secs_f64()),
                late.abs() < 1.0 && watched.status == Some(i32::from(outcome.exit_status(false))),
            ),
            (
                "works until then",
                format!(
                    "{} calls in {} chapters, {} pictures, {attempts} failed attempts, {} darktables killed; `{}`",
                    spent.iterations,
                    chapters + 1,
                    spent.renders,
                    watched.kills,
                    outcome.as_str()
                ),
                spent.iterations > 0 && watched.kills > 0 && chapters > 0,
            ),
            (
                "memory flat from a sixth of the time on",
                format!(
                    "{:.1} MiB, at the end {:.1} MiB: {growth:+.1} %; at most {:.1} MiB",
                    mib(rss),
                    mib(rss_end),
                    mib(most(|sample| sample.rss))
                ),
                growth < GROWTH,
            ),
            (
                "open files flat",
                format!("{files}, at the end {files_end}; at most {}", most(|sample| sample.files as u64)),
                files_end <= files + 2,
            ),
            (
                "no child is left",
                format!(
                    "{} of {}; at most {} at once",
                    left.len(),
                    watched.descendants.len(),
                    most(|sample| sample.children as u64)
                ),
                left.is_empty(),
            ),
            (
                "the transcript is whole",
                format!("{} lines, {size:.1} MB; `mode-b show` {show:?}, `fsck` {fsck:?}", lines.len()),
                (show, fsck) == (Some(0), Some(0)),
            ),
            ("`main` is untouched", "`log cup main` before and after".into(), self.main() == before),
        ]
    }
}

/// What the server did to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Done {
    Answered,
    Stalled,
    BrokeOff,
    Refused,
    Overloaded,
    Nonsense,
    Dripped,
}

/// A model that never stops, on a server that is not always well.
struct Server {
    address: std::net::SocketAddr,
    done: Arc<Mutex<BTreeMap<Done, u64>>>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let done = Arc::new(Mutex::new(BTreeMap::new()));
        let counts = done.clone();
        std::thread::spawn(move || {
            let (mut dice, mut turn, mut well) = (Dice(4), 0, true);
            // One request at a time, as a session makes them.
            for mut stream in listener.incoming().flatten() {
                let Some((_, body)) = chat_stub::read_request(&mut stream) else { continue };
                let wraps_up = String::from_utf8_lossy(&body).contains(WRAP_UP);
                let ill = well && dice.roll(20) == 0;
                let what = match (wraps_up, ill) {
                    (true, _) => Done::Dripped,
                    (false, false) => Done::Answered,
                    (false, true) => {
                        [Done::Stalled, Done::BrokeOff, Done::Refused, Done::Overloaded, Done::Nonsense]
                            [dice.roll(5) as usize]
                    }
                };
                // Never twice in a row: four in a row end a session, as they should.
                well = !ill;
                *counts.lock().unwrap().entry(what).or_default() += 1;
                answer(&mut stream, what, turn);
                turn += usize::from(what == Done::Answered);
            }
        });
        Self { address, done }
    }

    fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    fn table(&self) -> String {
        let done = self.done.lock().unwrap();
        let counts: Vec<String> = done.iter().map(|(what, count)| format!("{what:?} {count}")).collect();
        format!("The server: {}\n", counts.join(", "))
    }
}

fn answer(stream: &mut TcpStream, what: Done, turn: usize) {
    let (name, arguments) = call(turn);
    let calls = [(name.to_owned(), arguments.to_string())];
    let usage = json!({"prompt_tokens": 1000, "completion_tokens": 20, "total_tokens": 1020});
    let whole = chat_stub::stream_of(turn, "", &calls, &usage);
    let events = [("content-type".to_owned(), "text/event-stream".to_owned())];
    let head = chat_stub::event_head();
    match what {
        Done::Answered => chat_stub::answer(stream, 200, &events, whole.as_bytes()),
        Done::Stalled => {
            let _ = stream.write_all(&head);
            std::thread::sleep(PATIENCE + Duration::from_millis(500));
        }
        Done::BrokeOff => {
            let _ =
                stream.write_all(&head).and_then(|()| stream.write_all(&whole.as_bytes()[..whole.len() / 3]));
        }
        Done::Refused => chat_stub::answer(stream, 500, &[], b"{\"error\":{\"message\":\"no\"}}"),
        Done::Overloaded => {
            let wait = [("retry-after-ms".to_owned(), "200".to_owned())];
            chat_stub::answer(stream, 429, &wait, b"{\"error\":{\"message\":\"slow down\"}}");
        }
        Done::Nonsense => chat_stub::answer(stream, 200, &events, b"data: {\"choices\": 7\n\n"),
        Done::Dripped => {
            let _ = stream.write_all(&head);
            // Of a reply: what only keeps the connection alive is not waited for so long.
            let word = json!({"choices": [{"index": 0, "delta": {"content": "and "}}]});
            let word = format!("data: {word}\n\n");
            while stream.write_all(word.as_bytes()).and_then(|()| stream.flush()).is_ok() {
                std::thread::sleep(Duration::from_millis(300));
            }
        }
    }
}

/// The call of a turn: the plan, a branch, and then edits and looks, none twice the same.
fn call(turn: usize) -> (&'static str, Value) {
    let Some(n) = turn.checked_sub(2) else {
        return match turn {
            0 => {
                ("confirm_session", json!({"vectors": [{"name": "tone", "restated": "Opens the shadows."}]}))
            }
            _ => ("branch", json!({"name": "branch_b_tone"})),
        };
    };
    match n % 6 {
        0 | 3 => {
            let amount = 0.01 + (n / 3 % 14_900) as f64 / 10_000.0;
            (
                "apply_primitive",
                json!({"primitive_name": "shadows_lift", "parameter_values": {"amount": amount}}),
            )
        }
        1 | 4 => ("render_preview", json!({"size": 256})),
        2 => ("image_stats", json!({})),
        _ => ("diff", json!({})),
    }
}
