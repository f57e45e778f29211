//! Conversations that are cut off in every phase: by Ctrl-C, a closed window, a kill, and a line that drops. Nothing is
//! lost, and `chat --resume` goes on.

#![allow(clippy::indexing_slicing, clippy::string_slice, clippy::unwrap_used, clippy::panic)]

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::talks::{Talks, Terminal, call, calls, exposure, text, warmth};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Cut {
    CtrlC,
    HangUp,
    Kill,
    Dropped,
}

impl Cut {
    /// Cuts the program off, or presses Ctrl-C, waits for what follows, and leaves.
    fn make(self, mut terminal: Terminal, follows: &str) -> String {
        match self {
            Self::CtrlC => {
                terminal.write("\u{3}");
                terminal.wait(follows);
                terminal.wait("> ");
                terminal.write("\u{4}");
            }
            Self::HangUp => kill_process(terminal.pid(), Signal::HUP).unwrap(),
            Self::Kill => kill_process(terminal.pid(), Signal::KILL).unwrap(),
            Self::Dropped => {
                terminal.drop_line();
                return String::new();
            }
        }
        let (shown, status) = terminal.end();
        assert_eq!(status == Some(0), self == Self::CtrlC, "{self:?}: {status:?}\n{shown}");
        shown
    }
}

/// A conversation in which an edit was made and answered.
fn begun(talks: &Talks, script: &str) -> Terminal {
    let mut terminal = talks.open(&[&talks.photo, "--provider", "script", "--model", script]);
    terminal.say("warmer, please");
    terminal.wait("Warmer now.");
    terminal
}

fn with(talks: &Talks, name: &str, rest: &[String]) -> String {
    let first = [calls(&[warmth(12)]), text("Warmer now.")];
    talks.script(name, &[&first[..], rest].concat().concat())
}

fn of<'a>(lines: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    lines.iter().filter(move |line| line["kind"] == kind)
}

/// A Ctrl-C that arrives as a signal while a line is being typed finds nothing to stop.
fn comes_late() {
    let talks = Talks::new();
    let script = with(&talks, "begun.toml", &[text("Here I am.")]);
    let mut terminal = begun(&talks, &script);
    terminal.wait("> ");
    kill_process(terminal.pid(), Signal::INT).unwrap();
    terminal.write("go on\r");
    terminal.wait("Here I am.");
    terminal.wait("> ");
    terminal.write("\u{4}");
    let (shown, status) = terminal.end();
    assert_eq!(status, Some(0), "{shown}");
}

/// Cuts a conversation in the phases of a reply, and goes on with it.
fn within_a_reply(cut: Cut) {
    let talks = Talks::new();
    let late = "[[reply]]\ntext = \"Late.\"\ndelay_ms = 600000\n".to_owned();
    let slow = "[[reply]]\ntext = \"First second.\"\nword_ms = 600000\n".to_owned();
    let edits = calls(&[exposure(), call("render_preview", &json!({}))]);
    let propose = json!({ "moves": ["vignette strength=-0.3"], "why": "It would hold the eye." });
    let asks = calls(&[call("propose_edit", &propose)]);
    // The phase, what the model does in it, what is seen of it, and the edits that stand afterwards.
    let phases: [(&str, Option<&String>, &str, usize); 5] = [
        ("at the prompt", None, "> ", 1),
        ("waiting for the model", Some(&late), "| waiting", 1),
        ("while words come", Some(&slow), "First", 1),
        ("while a tool renders", Some(&edits), "exposure ev=0.30", 2),
        ("at a question", Some(&asks), "[yes/no]", 1),
    ];
    for (phase, reply, seen, edits) in phases {
        let rest: Vec<String> = reply.into_iter().cloned().collect();
        let script = with(&talks, "begun.toml", &rest);
        let mut terminal = begun(&talks, &script);
        if reply.is_some() {
            terminal.say("go on");
        }
        terminal.wait(seen);
        if seen == "[yes/no]" {
            terminal.wait("> ");
        }
        cut.make(terminal, "");
        assert_eq!(talks.run(&["fsck", &talks.photo]).1, 0, "{cut:?} {phase}");

        // What was cut off is asked for again; a tool that was cut off is carried out again.
        let again = match reply {
            Some(reply) if reply.contains("calls") => vec![reply.clone()],
            Some(_) => vec![text("Here I am.")],
            None => Vec::new(),
        };
        let rest = [again, vec![text("Going on."), text("Going on."), text("Going on.")]].concat();
        let script = with(&talks, "on.toml", &rest);
        let resumed =
            ["chat", "--resume", "last", "-m", "and now?", "--provider", "script", "--model", &script];
        assert_eq!(talks.run(&resumed).1, 0, "{cut:?} {phase}");
        let (_, lines) = talks.transcript(0);
        let said: Vec<&str> = of(&lines, "message").map(|line| line["text"].as_str().unwrap()).collect();
        let expected: &[&str] = if reply.is_some() {
            &["warmer, please", "go on", "and now?"]
        } else {
            &["warmer, please", "and now?"]
        };
        assert_eq!(said, expected, "{cut:?} {phase}");
        let last = of(&lines, "model_reply").last().unwrap();
        assert!(
            ["Going on.", "Here I am."].contains(&last["message"]["text"].as_str().unwrap()),
            "{cut:?} {phase}"
        );
        let branch = lines[0]["branches"][0]["branch"].as_str().unwrap();
        let ops = talks.run(&["log", &talks.photo, branch]).0.to_string();
        let made = ["warmth shift=12", "exposure ev=0.30"].map(|op| ops.matches(op).count());
        assert_eq!(made, [1, edits - 1], "{cut:?} {phase}: {ops}");
    }
}

/// Cuts a conversation while directions are explored from it, and goes on with it.
fn within_an_exploration(cut: Cut) {
    let talks = Talks::new();
    let mut terminal = talks.open(&[&talks.photo]);
    terminal.say("a little warmer");
    terminal.wait("From the start");
    terminal.say("/explore light=\"brighter\"");
    terminal.wait("[yes/no]");
    terminal.say("yes");
    terminal.wait("mode-b status");
    cut.make(terminal, "wrapping up");
    assert_eq!(talks.run(&["fsck", &talks.photo]).1, 0, "{cut:?}");
    let (_, status) = talks.run(&["chat", "--resume", "last", "-m", "more"]);
    assert_eq!(status, 0, "{cut:?}");
    // The exploration is the newer one of the two.
    let (_, lines) = talks.transcript(1);
    let told: Vec<&str> = of(&lines, "nudge").map(|line| line["text"].as_str().unwrap()).collect();
    assert_eq!(told.len(), 1, "{cut:?}: {told:?}");
    assert!(told[0].contains("explored from here"), "{cut:?}: {told:?}");
    assert_eq!(told[0].contains("which was cut off"), cut == Cut::Kill, "{cut:?}: {told:?}");
    assert_eq!(of(&lines, "message").count(), 2, "{cut:?}");
    let (_, explored) = talks.transcript(0);
    assert_eq!(of(&explored, "session_end").count(), usize::from(cut != Cut::Kill), "{cut:?}");
}

/// Cuts a conversation in its look back and at its last questions; what it proposes waits and is asked about.
fn at_the_end(cut: Cut) {
    let talks = Talks::new();
    let late = "[[reply]]\ntext = \"Late.\"\ndelay_ms = 600000\n".to_owned();
    for (phase, last) in [("in the look back", false), ("at the last questions", true)] {
        // What was declined is not proposed again.
        let close = calls(&[
            call("propose_notes_update", &json!({ "text": format!("The cup stays cool {phase}.") })),
            call("end_conversation", &json!({ "summary": "Warmer.", "tag": "v2" })),
        ]);
        let script = with(&talks, "begun.toml", std::slice::from_ref(if last { &close } else { &late }));
        let mut terminal = begun(&talks, &script);
        terminal.say("/done");
        terminal.wait(if last { "[a]ccept" } else { "| waiting" });
        if last {
            terminal.wait("> ");
        }
        if cut == Cut::CtrlC {
            // The look back ends; a question is left open.
            terminal.write("\u{3}");
            if last {
                terminal.say("");
            }
            let (shown, status) = terminal.end();
            assert_eq!(status, Some(0), "{cut:?} {phase}: {shown}");
            assert!(
                shown.contains(if last { "1 to be answered" } else { "was stopped" }),
                "{phase}: {shown}"
            );
            if !last {
                continue;
            }
        } else {
            cut.make(terminal, "");
        }
        assert_eq!(talks.run(&["fsck", &talks.photo]).1, 0, "{cut:?} {phase}");
        let script = with(&talks, "on.toml", std::slice::from_ref(&close));
        let mut terminal = talks.open(&["--resume", "last", "--provider", "script", "--model", &script]);
        terminal.wait("To remember in the photo's notes");
        terminal.say("d");
        terminal.wait("To tag this state: v2");
        terminal.say("d");
        let (shown, status) = terminal.end();
        assert_eq!(status, Some(0), "{cut:?} {phase}: {shown}");
        assert!(shown.contains("1 declined, 0 to be answered"), "{cut:?} {phase}: {shown}");
        let (_, lines) = talks.transcript(0);
        let answers: Vec<&Value> =
            of(&lines, "proposal_answered").map(|line| &line["status"]["declined"]).collect();
        assert!(
            answers.len() == 2 && answers.iter().all(|answer| answer.is_object()),
            "{cut:?} {phase}: {answers:?}"
        );
        let (pending, _) = talks.run(&["proposals", "list", &talks.photo]);
        assert_eq!(pending, json!([]), "{cut:?} {phase}");
    }
}

#[test]
fn ctrl_c_stops_what_goes_on_and_not_the_conversation() {
    comes_late();
    within_a_reply(Cut::CtrlC);
    within_an_exploration(Cut::CtrlC);
    at_the_end(Cut::CtrlC);
}

#[test]
fn a_closed_window_loses_nothing_in_any_phase() {
    within_a_reply(Cut::HangUp);
    within_an_exploration(Cut::HangUp);
    at_the_end(Cut::HangUp);
}

#[test]
fn a_kill_loses_nothing_in_any_phase() {
    within_a_reply(Cut::Kill);
    within_an_exploration(Cut::Kill);
    at_the_end(Cut::Kill);
}

#[test]
fn a_line_that_drops_loses_nothing_in_any_phase() {
    within_a_reply(Cut::Dropped);
    within_an_exploration(Cut::Dropped);
    at_the_end(Cut::Dropped);
}

/// `-m`: the reply is stopped and the program ends, in a terminal and by the signal without one.
#[test]
fn ctrl_c_ends_a_conversation_of_one_message_with_its_own_status_and_loses_nothing() {
    let late = "[[reply]]\ntext = \"Late.\"\ndelay_ms = 600000\n".to_owned();
    let edit = calls(&[warmth(12), call("render_preview", &json!({}))]);
    let again = [text("Going on."), text("Going on.")].concat();
    // The phase, what the model does, what is written by then, and the edits that stand afterwards.
    let phases = [
        ("waiting for the first reply", late.clone(), r#""kind":"model_intent""#, 0),
        ("after an edit", [edit.clone(), late].concat(), r#""kind":"model_intent","turn":2"#, 1),
    ];
    for (in_terminal, (phase, replies, written, edits)) in
        [true, false].into_iter().flat_map(|terminal| phases.clone().map(|phase| (terminal, phase)))
    {
        let name = format!("{phase}, terminal: {in_terminal}");
        let talks = Talks::new();
        let script = talks.script("begun.toml", &replies);
        let arguments =
            [talks.photo.as_str(), "-m", "warmer, please", "--provider", "script", "--model", &script];
        if in_terminal {
            let mut terminal = talks.open(&arguments);
            talks.wait(written);
            terminal.write("\u{3}");
            let (shown, status) = terminal.end();
            assert_eq!(status, Some(25), "{name}: {shown}");
            assert!(
                shown.contains("the reply was stopped") && shown.contains("chat --resume"),
                "{name}: {shown}"
            );
        } else {
            let mut command = talks.command(&[&["chat"], &arguments[..]].concat());
            let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            talks.wait(written);
            kill_process(Pid::from_child(&child), Signal::INT).unwrap();
            let (printed, status) = Talks::result(&child.wait_with_output().unwrap());
            assert_eq!((status, &printed["error"]["code"]), (25, &json!("INTERRUPTED")), "{name}: {printed}");
            assert!(
                printed["error"]["remedy"].as_str().unwrap().contains("chat --resume"),
                "{name}: {printed}"
            );
        }
        assert_eq!(talks.run(&["fsck", &talks.photo]).1, 0, "{name}");

        let first = if edits > 0 { edit.as_str() } else { "" };
        let script = talks.script("on.toml", &format!("{first}{again}"));
        let resumed =
            ["chat", "--resume", "last", "-m", "and now?", "--provider", "script", "--model", &script];
        assert_eq!(talks.run(&resumed).1, 0, "{name}");
        let (_, lines) = talks.transcript(0);
        let said: Vec<&str> = of(&lines, "message").map(|line| line["text"].as_str().unwrap()).collect();
        assert_eq!(said, ["warmer, please", "and now?"], "{name}");
        assert_eq!(of(&lines, "model_reply").last().unwrap()["message"]["text"], "Going on.", "{name}");
        let branch = lines[0]["branches"][0]["branch"].as_str().unwrap();
        let ops = talks.run(&["log", &talks.photo, branch]).0.to_string();
        assert_eq!(ops.matches("warmth shift=12").count(), edits, "{name}: {ops}");
    }
}
