//! Sessions killed at random moments and taken up again.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base::ids::SessionId;
use chemigram::transcript::{self, Event, Line, Outcome};
use darktable::dng;
use engine::photo::{Library, Workspace};
use testkit::home::settle;

const KILLS: usize = 20;

/// The program on a library of its own, with a cold cache of its own.
struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        let home = Self { dir: tempfile::tempdir().unwrap() };
        std::fs::write(home.path("coffee.dng"), dng::demo_raw().unwrap()).unwrap();
        let raw = home.path("coffee.dng");
        assert!(
            home.command(&["ingest", raw.to_str().unwrap(), "--id", "coffee"]).status().unwrap().success()
        );
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chemigram"));
        command.arg("--library").arg(self.path("photos")).args(args);
        settle(&mut command, self.dir.path());
        let said = std::fs::File::create(self.path("said")).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        command
    }

    fn session(&self) -> Command {
        self.command(&[
            "run-mode-b",
            "coffee",
            "--yes",
            "--provider",
            "explorer",
            "--preview-size",
            "256",
            "--vector",
            "tone=lift the shadows",
            "--vector",
            "color=warmer",
            "--budget",
            "time=30m,iterations=30,branches=2",
        ])
    }

    fn resume(&self, id: &str) -> Command {
        self.command(&["run-mode-b", "--yes", "--provider", "explorer", "--resume", id])
    }

    fn workspace(&self) -> Workspace {
        Library::new(self.path("photos")).open(&"coffee".parse().unwrap()).unwrap()
    }

    fn transcript(&self) -> Option<(String, PathBuf)> {
        let folder = self.workspace().sessions_folder();
        let mut ids: Vec<String> = std::fs::read_dir(folder)
            .ok()?
            .flatten()
            .filter_map(|e| e.file_name().into_string().ok())
            .collect();
        ids.sort();
        let id = ids.pop()?;
        let path =
            self.workspace().session_folder(&id.parse::<SessionId>().unwrap()).join("transcript.jsonl");
        path.exists().then_some((id, path))
    }
}

/// Branch tips with the states they hold.
fn outcome(workspace: &Workspace) -> Vec<(String, String, String)> {
    let rows = workspace.branches().unwrap().into_iter().map(|(name, commit)| {
        let state = workspace.commit(&commit).unwrap().state;
        (name.to_string(), commit.to_string(), state.to_string())
    });
    rows.collect()
}

fn wait(child: &mut Child, most: Duration, said: &Path) -> bool {
    let started = Instant::now();
    while started.elapsed() < most {
        if let Some(status) = child.try_wait().unwrap() {
            let said = std::fs::read_to_string(said).unwrap();
            assert_eq!(status.code(), Some(0), "it ended by itself, and not well: {said}");
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// Waits until a transcript has more whole lines than it had, or the child has ended.
fn further(child: &mut Child, home: &Home, than: usize) {
    let started = Instant::now();
    let longer = || home.transcript().is_some_and(|(_, path)| whole_lines(&path).len() > than);
    while child.try_wait().unwrap().is_none() && !longer() {
        assert!(started.elapsed() < Duration::from_secs(300), "it does nothing");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn whole_lines(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap_or_default();
    let end = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    bytes[..end].to_vec()
}

fn spent(lines: &[Line]) -> (u64, u64) {
    let iterations =
        lines.iter().filter(|l| matches!(&l.event, Event::ToolCall(i) if i.reserved.iterations > 0)).count();
    (iterations as u64, lines.last().map_or(0, |l| l.mono_ms))
}

#[test]
fn a_session_killed_at_twenty_random_moments_ends_as_the_undisturbed_one() {
    let calm = Home::new();
    assert_eq!(calm.session().status().unwrap().code(), Some(0));
    let expected = outcome(&calm.workspace());
    assert_eq!(expected.len(), 3, "main and two branches: {expected:?}");

    let torn = Home::new();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(std::process::id());
    let (mut kills, mut ended) = (0, false);
    let mut kept = Vec::new();
    let mut used = (0, 0);
    while kills < KILLS && !ended {
        let mut command = torn.transcript().map_or_else(|| torn.session(), |(id, _)| torn.resume(&id));
        let mut child = command.spawn().unwrap();
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if kills % 2 == 1 {
            // So that it gets on from kill to kill, however slow the machine is.
            further(&mut child, &torn, kept.len());
        }
        ended = wait(&mut child, Duration::from_millis(100 + (random >> 33) % 1_900), &torn.path("said"));
        if !ended {
            child.kill().unwrap();
            child.wait().unwrap();
            kills += 1;
        }
        let Some((_, path)) = torn.transcript() else { continue };
        let now = whole_lines(&path);
        assert!(now.starts_with(&kept), "kill {kills}: a line that was whole is gone");
        kept = now;
        let lines = transcript::read(&path).unwrap().lines;
        let next = spent(&lines);
        assert!(
            next.0 >= used.0 && next.1 >= used.1,
            "kill {kills}: the budget was refilled: {used:?} {next:?}"
        );
        used = next;
        // It may be killed when all is done, on its way out.
        ended |= matches!(lines.last().map(|line| &line.event), Some(Event::SessionEnd(_)));
    }
    let (id, path) = torn.transcript().unwrap();
    if !ended {
        assert_eq!(torn.resume(&id).status().unwrap().code(), Some(0));
    }
    assert_eq!(outcome(&torn.workspace()), expected, "after {kills} kills");
    let lines = transcript::read(&path).unwrap().lines;
    let Some(Event::SessionEnd(end)) = lines.last().map(|l| &l.event) else { panic!("no closing line") };
    assert_eq!(end.outcome, Outcome::Completed);
    assert!(lines.iter().any(|l| matches!(l.event, Event::Resumed { .. })));
    assert!(end.spent.iterations <= 30);
    assert_eq!(torn.command(&["fsck", "coffee"]).status().unwrap().code(), Some(0));
    // Nothing is left to take up.
    assert_eq!(torn.resume(&id).status().unwrap().code(), Some(4));
}
