//! Conversations as they are typed: in a terminal, with the real darktable, cut off in every phase, and taken up again.

#![allow(clippy::indexing_slicing, clippy::string_slice, clippy::unwrap_used, clippy::panic)]

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::home::settle;
use crate::support::{Studio, reply};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The program in a terminal of 80 by 24, read while it is typed into.
struct Terminal {
    child: Child,
    typed: ChildStdin,
    shown: Receiver<Vec<u8>>,
    seen: String,
    /// How far what was seen has been waited for.
    read: usize,
}

impl Terminal {
    fn open(home: &Path, arguments: &[&str]) -> Self {
        let quoted: Vec<String> = arguments.iter().map(|word| format!("'{word}'")).collect();
        let program = env!("CARGO_BIN_EXE_chemigram");
        let line = format!("stty cols 80 rows 24; exec {program} {}", quoted.join(" "));
        let mut command = Command::new("script");
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("TERM", "xterm");
        settle(&mut command, home);
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
    fn wait(&mut self, text: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.seen[self.read..].find(text) {
                self.read += at + text.len();
                return;
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.shown.recv_timeout(left) {
                Ok(more) => self.seen.push_str(&String::from_utf8_lossy(&more)),
                Err(_) => panic!("{text:?} is not shown:\n{}", self.seen),
            }
        }
    }

    fn write(&mut self, text: &str) {
        self.typed.write_all(text.as_bytes()).unwrap();
        self.typed.flush().unwrap();
    }

    /// Types a line at the prompt.
    fn say(&mut self, text: &str) {
        self.wait("> ");
        self.write(&format!("{text}\r"));
    }

    /// The program itself, below `script` and its shell.
    fn pid(&self) -> Pid {
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

    /// All that was shown, and the status.
    fn end(mut self) -> (String, Option<i32>) {
        while let Ok(more) = self.shown.recv_timeout(PATIENCE) {
            self.seen.push_str(&String::from_utf8_lossy(&more));
        }
        (self.seen, self.child.wait().unwrap().code())
    }
}

/// A library with a photo, and a home.
struct Talks {
    studio: Studio,
    photo: String,
    library: String,
}

impl Talks {
    fn new() -> Self {
        let studio = Studio::new();
        let folder = studio.workspace.folder();
        let library = folder.parent().unwrap().display().to_string();
        let photo = studio.workspace.id().to_string();
        Self { studio, photo, library }
    }

    fn home(&self) -> &Path {
        self.studio.dir.path()
    }

    fn script(&self, name: &str, text: &str) -> String {
        let path = self.home().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    fn open(&self, arguments: &[&str]) -> Terminal {
        Terminal::open(self.home(), &[&["--library", &self.library, "chat"], arguments].concat())
    }

    fn run(&self, arguments: &[&str]) -> (Value, i32) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chemigram"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        settle(&mut command, self.home());
        command.args(["--json", "--library", &self.library]).args(arguments).stdin(Stdio::null());
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        // Of lines, the last is the result.
        let read =
            serde_json::from_str(&text).or_else(|_| serde_json::from_str(text.lines().last().unwrap_or("")));
        (read.unwrap_or(Value::Null), output.status.code().unwrap())
    }

    fn transcript(&self, at: usize) -> (PathBuf, Vec<Value>) {
        let (list, _) = self.run(&["mode-b", "list", &self.photo]);
        let id = list[at]["session"].as_str().unwrap();
        let path = Path::new(&self.library).join(&self.photo).join("sessions/mode_b").join(id);
        let text = std::fs::read_to_string(path.join("transcript.jsonl")).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (path, lines)
    }
}

fn call(name: &str, arguments: &Value) -> (String, String) {
    (name.to_owned(), arguments.to_string())
}

fn calls(calls: &[(String, String)]) -> String {
    reply(&calls.iter().map(|(name, arguments)| (name.as_str(), arguments.as_str())).collect::<Vec<_>>())
}

fn text(said: &str) -> String {
    format!("[[reply]]\ntext = {said:?}\n")
}

fn warmth(shift: u32) -> (String, String) {
    call("apply_primitive", &json!({ "primitive_name": "warmth", "parameter_values": { "shift": shift } }))
}

/// Edits, a proposal that is declined, an undo, an exploration from within, the look back, and a tag; and what the
/// next conversation reads.
#[test]
fn a_conversation_of_twelve_turns_is_remembered_as_the_photographer_says() {
    let talks = Talks::new();
    let preview = || call("render_preview", &json!({}));
    let propose = call(
        "propose_edit",
        &json!({ "moves": ["vignette strength=-0.3"], "why": "It would hold the eye." }),
    );
    let exposure =
        call("apply_primitive", &json!({ "primitive_name": "exposure", "parameter_values": { "ev": 0.3 } }));
    let taste = json!({ "text": "Prefers warm evenings.", "category": "appearance" });
    let note = json!({ "text": "The cup stays on the cool side." });
    let close = json!({ "summary": "Warmer and brighter.", "tag": "v2" });
    let script = [
        calls(&[call("read_context", &json!({})), preview()]),
        text("A cup on a table. What shall I do?"),
        calls(&[warmth(12), preview()]),
        text("Warmer now."),
        calls(&[exposure.clone(), preview(), propose]),
        text("Brighter, and no vignette."),
        text("It is warm, and a little brighter than it was."),
        calls(&[exposure, preview()]),
        text("Brighter again."),
        calls(&[call("end_conversation", &json!({}))]),
        text("Then let us go on."),
        calls(&[call("end_conversation", &json!({ "certain": true }))]),
        calls(&[
            call("propose_taste_update", &taste),
            call("propose_notes_update", &note),
            call("end_conversation", &close),
        ]),
    ]
    .concat();
    let script = talks.script("talk.toml", &script);
    let main = talks.run(&["log", &talks.photo, "main"]).0;
    let mut terminal = talks.open(&[&talks.photo, "--provider", "script", "--model", &script]);
    terminal.wait("A conversation about");
    terminal.wait("preview.jpg");
    terminal.say("hello");
    terminal.wait("What shall I do?");
    terminal.say("warmer, please");
    terminal.wait("Warmer now.");
    terminal.say("and brighter");
    terminal.wait("vignette strength=-0.3");
    terminal.wait("[yes/no]");
    terminal.write("no\r");
    terminal.wait("Brighter, and no vignette.");
    terminal.say("/undo");
    terminal.wait("taken back: exposure ev=0.30 EV");
    terminal.say("what is it now?");
    terminal.wait("a little brighter than it was");
    terminal.say("/look 0.2,0.2,0.6,0.6");
    terminal.wait("preview.jpg");
    terminal.say("/nonsense");
    terminal.wait("/help lists them");
    terminal.say("brighter after all");
    terminal.wait("Brighter again.");
    terminal.say("/explore light=\"brighter\"");
    terminal.wait("[yes/no]");
    terminal.write("no\r");
    terminal.say("good");
    terminal.wait("Is that all for this photo? [yes/no]");
    terminal.write("no\r");
    terminal.wait("Then let us go on.");
    terminal.say("/review");
    terminal.wait("review.html");
    terminal.say("that is all");
    terminal.wait("To remember in your taste");
    terminal.wait("Prefers warm evenings.");
    terminal.say("e");
    terminal.wait("write it as it should be remembered");
    terminal.say("Prefers warm, quiet evenings.");
    terminal.wait("accepted");
    terminal.wait("the cool side");
    terminal.say("d");
    let (shown, status) = terminal.end();
    assert_eq!(status, Some(0), "{shown}");
    let promote = format!("chemigram promote {} talk_1 --tag v2", talks.photo);
    assert!(shown.contains("Warmer and brighter.") && shown.contains(&promote), "{shown}");

    assert_eq!(talks.run(&["log", &talks.photo, "main"]).0, main, "main is the photographer's");
    assert_eq!(talks.run(&["promote", &talks.photo, "talk_1", "--tag", "v2"]).1, 0);
    let (log, _) = talks.run(&["log", &talks.photo, "v2"]);
    let ops = log.to_string();
    assert!(ops.contains("warmth") && !ops.contains("vignette"), "{ops}");
    let (_, lines) = talks.transcript(0);
    let messages = lines.iter().filter(|line| line["kind"] == "message").count();
    assert_eq!(messages, 7);

    // The next conversation reads what was accepted, and what was declined only as declined.
    let script = [calls(&[call("read_context", &json!({}))]), text("I know.")].concat();
    let script = talks.script("next.toml", &script);
    let said = ["chat", &talks.photo, "-m", "what do you know?", "--provider", "script", "--model", &script];
    assert_eq!(talks.run(&said).1, 0);
    let (_, lines) = talks.transcript(0);
    let context =
        lines.iter().find(|line| line["kind"] == "tool_result" && line["result"]["name"] == "read_context");
    let context: Value = {
        let text = context.unwrap()["result"]["text"].as_str().unwrap();
        serde_json::Deserializer::from_str(text).into_iter().next().unwrap().unwrap()
    };
    let tastes = context["data"]["tastes"].to_string();
    assert!(tastes.contains("Prefers warm, quiet evenings."), "{context}");
    assert!(!context["data"]["notes"].to_string().contains("cool side"), "{context}");
}

/// A closed window, a kill, a request to end and Ctrl-C: in the middle of a reply and at the prompt.
#[test]
fn whatever_cuts_a_conversation_it_goes_on_where_it_was() {
    let talks = Talks::new();
    let slow = "[[reply]]\ntext = \"Late.\"\ndelay_ms = 600000\n";
    let begun = [calls(&[warmth(12)]), text("Warmer now."), slow.to_owned()].concat();
    let goes_on = [calls(&[warmth(12)]), text("Warmer now."), text("Here I am."), text("And now.")].concat();
    let (begun, goes_on) = (talks.script("begun.toml", &begun), talks.script("on.toml", &goes_on));
    let cuts: [(&str, Option<Signal>); 4] = [
        ("kill", Some(Signal::KILL)),
        ("hang up", Some(Signal::HUP)),
        ("end", Some(Signal::TERM)),
        ("Ctrl-C", None),
    ];
    for (at_prompt, (name, signal)) in [true, false].into_iter().flat_map(|at| cuts.map(|cut| (at, cut))) {
        let name = format!("{name}, {}", if at_prompt { "at the prompt" } else { "within a reply" });
        let mut terminal = talks.open(&[&talks.photo, "--provider", "script", "--model", &begun]);
        terminal.say("warmer, please");
        terminal.wait("Warmer now.");
        if at_prompt {
            terminal.wait("> ");
        } else {
            terminal.say("are you there?");
            terminal.wait("| waiting");
        }
        match signal {
            Some(signal) => kill_process(terminal.pid(), signal).unwrap(),
            None => terminal.write("\u{3}"),
        }
        if signal.is_none() {
            // It stops the reply, or the line that is typed; the end of the input leaves.
            terminal.wait("> ");
            terminal.write("\u{4}");
        }
        let (shown, status) = terminal.end();
        assert_eq!(status == Some(0), signal.is_none(), "{name}: {status:?}\n{shown}");
        assert_eq!(talks.run(&["fsck", &talks.photo]).1, 0, "{name}");

        let resumed =
            ["chat", "--resume", "last", "-m", "and now?", "--provider", "script", "--model", &goes_on];
        let (_, status) = talks.run(&resumed);
        assert_eq!(status, 0, "{name}");
        let (_, lines) = talks.transcript(0);
        let said: Vec<&str> = lines
            .iter()
            .filter(|line| line["kind"] == "model_reply")
            .filter_map(|line| line["message"]["text"].as_str().filter(|text| !text.is_empty()))
            .collect();
        // A reply that was cut off is asked for again before what is said next; one that was stopped is not.
        let expected = ["Warmer now.", "Here I am.", "And now."];
        let cut_off = !at_prompt && signal.is_some();
        assert_eq!(said, expected[..if cut_off { 3 } else { 2 }], "{name}");
        let edits = lines.iter().filter(|line| line["kind"] == "snapshot_created").count();
        assert_eq!(edits, 2, "{name}: the branch and one edit");
    }
}

#[test]
fn an_exploration_from_within_begins_where_the_conversation_stands_and_comes_back() {
    let talks = Talks::new();
    let mut terminal = talks.open(&[&talks.photo]);
    terminal.say("a little warmer");
    terminal.wait("warmth shift");
    terminal.say("/explore light=\"brighter\"");
    terminal.wait("[yes/no]");
    terminal.write("yes\r");
    terminal.wait("branch_b_light");
    terminal.say("more");
    terminal.wait("warmth shift");
    terminal.wait("From the start");
    terminal.wait("> ");
    // Left by the end of the input, and taken up: the newest session is the exploration, the newest conversation this.
    terminal.write("\u{4}");
    assert_eq!(terminal.end().1, Some(0));
    let mut terminal = talks.open(&["--resume", "last"]);
    terminal.wait("The conversation goes on");
    terminal.say("/done");
    let (shown, status) = terminal.end();
    assert_eq!(status, Some(0), "{shown}");
    let (_, talk) = talks.transcript(1);
    let told = talk
        .iter()
        .any(|line| line["kind"] == "nudge" && line["text"].as_str().unwrap().contains("branch_b_light"));
    assert!(told, "the model is told what was explored");
    let (_, explored) = talks.transcript(0);
    let first_edit = talk.iter().filter(|line| line["kind"] == "snapshot_created").nth(1).unwrap();
    assert_eq!(explored[0]["baseline"], first_edit["commit"], "it begins where the conversation stood");
}
