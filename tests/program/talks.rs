//! A conversation in a terminal, and the library that it is about.

#![allow(clippy::indexing_slicing, clippy::string_slice, clippy::unwrap_used, clippy::panic)]

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::{Value, json};

use crate::home::settle;
use crate::support::{Studio, reply};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The program in a terminal of 80 by 24, read while it is typed into.
pub struct Terminal {
    child: Child,
    typed: ChildStdin,
    shown: Receiver<Vec<u8>>,
    seen: String,
    /// How far what was seen has been waited for.
    read: usize,
}

impl Terminal {
    pub fn open(home: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Self {
        let quoted: Vec<String> = arguments.iter().map(|word| format!("'{word}'")).collect();
        let program = env!("CARGO_BIN_EXE_chemigram");
        let line = format!("stty cols 80 rows 24; exec {program} {}", quoted.join(" "));
        let mut command = Command::new("script");
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("TERM", "xterm");
        settle(&mut command, home);
        command.envs(variables.iter().copied());
        command.current_dir(home).args(["-qefc", &line, "/dev/null"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (typed, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, shown) = channel();
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(count @ 1..) = stdout.read(&mut some) {
                if sender.send(some[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, typed, shown, seen: String::new(), read: 0 }
    }

    /// Waits until this is shown, after what was waited for before.
    pub fn wait(&mut self, text: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.seen[self.read..].find(text) {
                self.read += at + text.len();
                return;
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.shown.recv_timeout(left) {
                Ok(more) => self.seen.push_str(&String::from_utf8_lossy(&more)),
                Err(RecvTimeoutError::Timeout) => panic!("{text:?} is not shown:\n{}", self.seen),
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait().unwrap();
                    panic!("{text:?} is not shown, and the program has ended, {status}:\n{}", self.seen)
                }
            }
        }
    }

    pub fn write(&mut self, text: &str) {
        self.typed.write_all(text.as_bytes()).unwrap();
        self.typed.flush().unwrap();
    }

    /// Types a line at the prompt.
    pub fn say(&mut self, text: &str) {
        self.wait("> ");
        self.write(&format!("{text}\r"));
    }

    /// The program itself, below `script` and its shell.
    pub fn pid(&self) -> Pid {
        let mut pid = self.child.id();
        loop {
            let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
            let child = children.split_whitespace().next().unwrap_or_else(|| panic!("{pid} has no child"));
            pid = child.parse().unwrap();
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
            if name.trim() == "chemigram" {
                return Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            }
        }
    }

    /// Closes the terminal under the program, as a line that drops does, and waits for the end of the program.
    pub fn drop_line(mut self) {
        let program = pidfd_open(self.pid(), PidfdFlags::empty()).unwrap();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        let ended = poll(&mut [PollFd::new(&program, PollFlags::IN)], Some(&patience)).unwrap();
        assert_eq!(ended, 1, "it is still there:\n{}", self.seen);
    }

    /// All that was shown, and the status.
    pub fn end(mut self) -> (String, Option<i32>) {
        loop {
            match self.shown.recv_timeout(PATIENCE) {
                Ok(more) => self.seen.push_str(&String::from_utf8_lossy(&more)),
                Err(RecvTimeoutError::Disconnected) => return (self.seen, self.child.wait().unwrap().code()),
                Err(RecvTimeoutError::Timeout) => {
                    self.child.kill().unwrap();
                    panic!("it does not end:\n{}", self.seen);
                }
            }
        }
    }
}

/// A library with a photo, and a home.
pub struct Talks {
    studio: Studio,
    pub photo: String,
    pub library: String,
}

impl Talks {
    pub fn new() -> Self {
        let studio = Studio::new();
        let folder = studio.workspace.folder();
        let library = folder.parent().unwrap().display().to_string();
        let photo = studio.workspace.id().to_string();
        Self { studio, photo, library }
    }

    pub fn home(&self) -> &Path {
        self.studio.dir.path()
    }

    pub fn script(&self, name: &str, text: &str) -> String {
        let path = self.home().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    pub fn open(&self, arguments: &[&str]) -> Terminal {
        self.open_as(&[], arguments)
    }

    /// [`Self::open`] in a terminal that says this of itself.
    pub fn open_as(&self, variables: &[(&str, &str)], arguments: &[&str]) -> Terminal {
        let arguments = [&["--library", &self.library, "chat"], arguments].concat();
        Terminal::open(self.home(), variables, &arguments)
    }

    /// The program without a terminal.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chemigram"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        settle(&mut command, self.home());
        command.args(["--json", "--library", &self.library]).args(arguments).stdin(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> (Value, i32) {
        Self::result(&self.command(arguments).output().unwrap())
    }

    /// What a command printed, and its status.
    pub fn result(output: &Output) -> (Value, i32) {
        let text = String::from_utf8_lossy(&output.stdout);
        // Of lines, the last is the result.
        let read =
            serde_json::from_str(&text).or_else(|_| serde_json::from_str(text.lines().last().unwrap_or("")));
        (read.unwrap_or(Value::Null), output.status.code().unwrap())
    }

    /// Waits until a session of the photo has a line that holds this.
    pub fn wait(&self, text: &str) {
        let folder = Path::new(&self.library).join(&self.photo).join("sessions/mode_b");
        let until = Instant::now() + PATIENCE;
        let written = || {
            let sessions = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            let lines =
                sessions.filter_map(|one| std::fs::read_to_string(one.path().join("transcript.jsonl")).ok());
            lines.into_iter().any(|lines| lines.contains(text))
        };
        while !written() {
            assert!(Instant::now() < until, "{text:?} is not written");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn transcript(&self, at: usize) -> (PathBuf, Vec<Value>) {
        let (list, _) = self.run(&["mode-b", "list", &self.photo]);
        let id = list[at]["session"].as_str().unwrap();
        let path = Path::new(&self.library).join(&self.photo).join("sessions/mode_b").join(id);
        let text = std::fs::read_to_string(path.join("transcript.jsonl")).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (path, lines)
    }
}

pub fn call(name: &str, arguments: &Value) -> (String, String) {
    (name.to_owned(), arguments.to_string())
}

pub fn calls(calls: &[(String, String)]) -> String {
    reply(&calls.iter().map(|(name, arguments)| (name.as_str(), arguments.as_str())).collect::<Vec<_>>())
}

pub fn text(said: &str) -> String {
    format!("[[reply]]\ntext = {said:?}\n")
}

pub fn warmth(shift: u32) -> (String, String) {
    call("apply_primitive", &json!({ "primitive_name": "warmth", "parameter_values": { "shift": shift } }))
}

pub fn exposure() -> (String, String) {
    call("apply_primitive", &json!({ "primitive_name": "exposure", "parameter_values": { "ev": 0.3 } }))
}
