//! A user with one photo, `cup`, and scripts that a session follows: for tests of what goes wrong.

#![allow(
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use darktable::dng;
use serde_json::Value;
use testkit::folder::kept_folder;

pub const BUDGET: &str = "time=2m,iterations=20,branches=2";

/// The model confirms its plan.
pub const CONFIRM: &str = r#"
[[reply]]
calls = [{ name = "confirm_session", arguments = { vectors = [{ name = "tone", restated = "Brighter." }] } }]
"#;

/// It makes its branch.
pub const EDIT: &str = r#"
[[reply]]
calls = [
  { name = "branch", arguments = { name = "branch_b_tone" } },
  { name = "apply_primitive", arguments = { primitive_name = "exposure", parameter_values = { ev = 0.3 } } },
]
"#;

/// It judges the branch and ends.
pub const CLOSE: &str = r#"
[[reply]]
calls = [
  { name = "record_judgment", arguments = { branch = "branch_b_tone", judged_score = 4, judged_reasoning = "Brighter.", key_moves = ["exposure ev=0.3"] } },
  { name = "end_mode_b_session", arguments = { session_summary = "Brighter is better." } },
]
"#;

/// A user with a home of her own and one photo in it, `cup`. Renders are shared between the tests: they are
/// addressed by content.
pub struct Home {
    pub dir: tempfile::TempDir,
    pub library: PathBuf,
}

impl Home {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = Self { library: dir.path().join("photos"), dir };
        std::fs::write(home.path("cup.dng"), dng::demo_raw().unwrap()).unwrap();
        home.ok(&["ingest", "cup.dng"]);
        home
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn photo(&self, name: &str) -> PathBuf {
        self.library.join("cup").join(name)
    }

    pub fn dress(&self, command: &mut Command) {
        let cache = kept_folder("bad_input");
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", self.dir.path());
        command.env("XDG_CACHE_HOME", cache).env("CHEMIGRAM_LIBRARY", &self.library);
        command.current_dir(self.dir.path()).stdin(Stdio::null());
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chemigram"));
        self.dress(&mut command);
        command.args(arguments);
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    pub fn ok(&self, arguments: &[&str]) -> String {
        said(&self.run(arguments), 0, &[])
    }

    /// What is said by a command that must fail with this status and these words.
    pub fn fails(&self, status: i32, arguments: &[&str], words: &[&str]) -> String {
        said(&self.run(arguments), status, words)
    }

    /// Arguments of a session with this script on the vector `tone`.
    pub fn session(&self, script: &str) -> Vec<String> {
        self.session_with(script, BUDGET)
    }

    pub fn session_with(&self, script: &str, budget: &str) -> Vec<String> {
        let file = self.path("script.toml");
        std::fs::write(&file, script).unwrap();
        let file = file.to_str().unwrap();
        let words =
            ["run-mode-b", "cup", "--yes", "--provider", "script", "--model", file, "--budget", budget];
        let more =
            ["--patience", "0", "--preview-size", "256", "--from", "baseline", "--vector", "tone=brighter"];
        words.iter().chain(&more).map(|w| (*w).to_owned()).collect()
    }

    /// Runs a session to this status, and returns what it said.
    pub fn session_ends(&self, status: i32, script: &str, budget: &str, words: &[&str]) -> String {
        let arguments = self.session_with(script, budget);
        said(&self.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()), status, words)
    }

    /// The id of the newest session, and its transcript.
    pub fn newest(&self) -> (String, PathBuf) {
        let folder = self.photo("sessions/mode_b");
        let mut ids: Vec<String> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        ids.sort();
        let id = ids.pop().unwrap();
        let transcript = folder.join(&id).join("transcript.jsonl");
        (id, transcript)
    }

    pub fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.newest().1).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Replaces the script and goes on with the newest session.
    pub fn resume(&self, status: i32, script: &str, more: &[&str], words: &[&str]) -> String {
        std::fs::write(self.path("script.toml"), script).unwrap();
        let id = self.newest().0;
        let mut arguments = vec!["run-mode-b", "--resume", &id, "--yes"];
        arguments.extend(more);
        self.fails(status, &arguments, words)
    }

    /// Runs the program where no file may have more KiB than that, as if the disk were full at that point.
    pub fn limited(&self, blocks: u32, arguments: &[String]) -> Output {
        let mut command = Command::new("bash");
        self.dress(&mut command);
        let limit = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"");
        command.args(["-c", &limit, "-", env!("CARGO_BIN_EXE_chemigram")]).args(arguments);
        command.output().unwrap()
    }

    pub fn whole(&self) {
        let told = self.ok(&["fsck", "cup"]);
        assert!(told.starts_with("cup: no damage"), "{told}");
    }
}

/// Standard output and error of a command that must have ended with this status and these words.
pub fn said(output: &Output, status: i32, words: &[&str]) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let all = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{all}");
    for word in words {
        assert!(all.contains(word), "`{word}` is missing in:\n{all}");
    }
    assert!(!all.contains("panicked"), "{all}");
    all
}

pub fn kinds(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["kind"].as_str().unwrap()).collect()
}

/// Waits for a child to end, no longer than this.
pub fn ends_within(child: &mut Child, most: Duration) -> Option<i32> {
    let started = Instant::now();
    while started.elapsed() < most {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    panic!("it did not end within {most:?}");
}

/// Starts a session with `--json` and waits for a line with this mark.
pub fn start_until(
    home: &Home,
    script: &str,
    budget: &str,
    mark: &str,
) -> (Child, std::thread::JoinHandle<Vec<String>>) {
    let mut arguments = home.session_with(script, budget);
    arguments.push("--json".into());
    let mut command = home.command(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains(mark)), "the session ended before {mark}");
    // Somebody has to read what it goes on to print.
    (child, std::thread::spawn(move || lines.collect()))
}

/// Flips a bit in the middle of a file.
pub fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
}
