//! Conversations as they are typed: in a terminal, with the real darktable, and taken up again.

#![allow(clippy::indexing_slicing, clippy::string_slice, clippy::unwrap_used, clippy::panic)]

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::talks::{Talks, call, calls, exposure, text, warmth};

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
    let close = json!({ "summary": "Warmer and brighter.", "tag": "v1_print", "exports": ["a JPEG"] });
    let gap = json!({ "description": "a glow around the lamp" });
    let script = [
        calls(&[call("read_context", &json!({})), preview()]),
        text("A cup on a table. What shall I do?"),
        calls(&[warmth(12), preview()]),
        text("Warmer now."),
        calls(&[exposure.clone(), preview(), propose]),
        text("Brighter, and no vignette."),
        calls(&[call("log_vocabulary_gap", &gap)]),
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
    terminal.say("no");
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
    terminal.say("no");
    terminal.say("good");
    terminal.wait("Is that all for this photo? [yes/no]");
    terminal.say("no");
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
    terminal.wait("To tag this state: v1_print");
    terminal.say("e");
    terminal.wait("its name:");
    terminal.say("baseline");
    terminal.wait("baseline");
    terminal.say("e");
    terminal.wait("its name:");
    terminal.say("v1");
    let (shown, status) = terminal.end();
    assert_eq!(status, Some(0), "{shown}");
    let promote = format!("chemigram promote {} talk_1 --to-main", talks.photo);
    assert!(shown.contains("Warmer and brighter.") && shown.contains(&promote), "{shown}");
    assert!(shown.contains("missing move, noted: a glow around the lamp"), "{shown}");
    assert!(shown.contains("tagged; 1 accepted, 1 declined, 0 to be answered"), "{shown}");
    assert!(shown.contains("to export it: chemigram export"), "{shown}");
    assert_eq!(talks.run(&["log", &talks.photo, "v1"]).0, talks.run(&["log", &talks.photo, "talk_1"]).0);

    assert_eq!(talks.run(&["log", &talks.photo, "main"]).0, main, "main is the photographer's");
    assert_eq!(talks.run(&["promote", &talks.photo, "talk_1", "--tag", "v2"]).1, 0);
    let (log, _) = talks.run(&["log", &talks.photo, "v2"]);
    let ops = log.to_string();
    assert!(ops.contains("warmth") && !ops.contains("vignette"), "{ops}");
    let (_, lines) = talks.transcript(0);
    let messages = lines.iter().filter(|line| line["kind"] == "message").count();
    assert_eq!(messages, 7);
    let answers: Vec<(&str, &Value)> = lines
        .iter()
        .filter(|line| line["kind"] == "proposal_answered")
        .map(|line| (line["id"].as_str().unwrap(), &line["status"]))
        .collect();
    let said = [
        json!({ "accepted": { "edited": "Prefers warm, quiet evenings." } }),
        json!({ "declined": { "reason": "" } }),
        json!({ "accepted": { "edited": "v1" } }),
    ];
    assert_eq!(
        answers.iter().map(|(_, status)| *status).collect::<Vec<_>>(),
        said.iter().collect::<Vec<_>>()
    );
    assert_eq!(answers[2].0, "tag");

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
    terminal.say("yes");
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
    terminal.wait("Likes more warmth");
    terminal.say("a");
    terminal.wait("Asked for \"a little warmer\", \"more\"");
    terminal.say("d");
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

/// Answers by command, long after the session, to those of a conversation and of an unattended one.
#[test]
fn what_was_made_of_proposals_stands_in_the_transcripts_of_both_kinds_of_sessions() {
    let talks = Talks::new();
    let propose = |what: &str| {
        let taste = json!({ "text": format!("Prefers {what} evenings."), "category": "appearance" });
        let note = json!({ "text": format!("The cup stays {what}.") });
        [call("propose_taste_update", &taste), call("propose_notes_update", &note)]
    };
    let [taste, note] = propose("warm");
    let close = call("end_conversation", &json!({ "summary": "Warmer." }));
    let over = call("end_conversation", &json!({ "certain": true }));
    let script = [calls(&[warmth(12), over]), calls(&[taste, note, close])].concat();
    let script = talks.script("talk.toml", &script);
    let said =
        ["chat", &talks.photo, "-m", "warmer, and that is all", "--provider", "script", "--model", &script];
    assert_eq!(talks.run(&said).1, 0);
    let [taste, note] = propose("cool");
    let judged = json!({ "branch": "branch_b_tone", "judged_score": 4, "judged_reasoning": "So." });
    let script = [
        crate::support::confirm(&["tone"]),
        calls(&[call("branch", &json!({ "name": "branch_b_tone" })), exposure(), taste, note]),
        calls(&[call("record_judgment", &judged)]),
        calls(&[call("end_mode_b_session", &json!({ "session_summary": "Done." }))]),
    ]
    .concat();
    let script = talks.script("alone.toml", &script);
    let alone = [
        "run-mode-b",
        &talks.photo,
        "--vector",
        "tone=brighter",
        "--budget",
        "time=20h,iterations=20,branches=1",
        "--yes",
        "--provider",
        "script",
        "--model",
        &script,
    ];
    assert_eq!(talks.run(&alone).1, 0);
    let (open, _) = talks.run(&["proposals", "list", &talks.photo]);
    let id = |at: usize| open[at]["id"].as_str().unwrap().to_owned();
    assert_eq!(open.as_array().unwrap().len(), 4, "{open}");

    assert_eq!(talks.run(&["proposals", "edit", &id(0), "Prefers quiet evenings."]).1, 0);
    assert_eq!(talks.run(&["proposals", "decline", &id(1), "--reason", "not here"]).1, 0);
    // A kill before the transcript had its line: the next answer of the session adds it.
    assert_eq!(talks.run(&["proposals", "decline", &id(2), "--reason", "not mine"]).1, 0);
    let (folder, before) = talks.transcript(0);
    let path = folder.join("transcript.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    let end = text.trim_end().rfind('\n').unwrap() + 1;
    std::fs::write(&path, &text[..end]).unwrap();
    assert_eq!(talks.run(&["proposals", "accept", "--session", "last"]).1, 0);

    let answers = |at: usize| -> Vec<(String, Value)> {
        let (_, lines) = talks.transcript(at);
        let told = lines.iter().filter(|line| line["kind"] == "proposal_answered");
        told.map(|line| (line["id"].as_str().unwrap().to_owned(), line["status"].clone())).collect()
    };
    let of_talk = [
        (id(0), json!({ "accepted": { "edited": "Prefers quiet evenings." } })),
        (id(1), json!({ "declined": { "reason": "not here" } })),
    ];
    assert_eq!(answers(1), of_talk);
    let of_other =
        [(id(2), json!({ "declined": { "reason": "not mine" } })), (id(3), json!({ "accepted": {} }))];
    assert_eq!(answers(0), of_other);
    assert_eq!(before.last().unwrap()["kind"], "proposal_answered");
    assert_eq!(talks.run(&["fsck", &talks.photo]).1, 0);
    let (list, _) = talks.run(&["mode-b", "list", &talks.photo]);
    assert!(list.as_array().unwrap().iter().all(|one| one["outcome"] == "completed"), "{list}");
    assert_eq!(talks.run(&["mode-b", "replay", "last"]).1, 0, "the answers are not the session's own");
}

/// In a terminal with colours; and with a model that fails for good, for which another one goes on.
#[test]
fn pictures_are_shown_where_the_terminal_can_and_another_model_goes_on() {
    let talks = Talks::new();
    let fails = "[[reply]]\nfault = { class = \"quota\", status = 402, times = 9 }\n";
    let script = talks.script("fails.toml", fails);
    let colours = [("TERM", "xterm-256color"), ("COLORTERM", "truecolor")];
    let arguments =
        [talks.photo.as_str(), "--provider", "script", "--model", &script, "--fallback", "explorer"];
    let mut terminal = talks.open_as(&colours, &arguments);
    let (path, block) = ("preview.jpg", "\u{1b}[38;2;");
    terminal.wait(path);
    terminal.wait(block);
    terminal.say("a little warmer");
    terminal.wait("explorer explorer-2 goes on");
    terminal.wait("From the start");
    terminal.say("/try exposure -0.5 0.5");
    terminal.wait("try.jpg");
    terminal.wait(block);
    terminal.say("/compare baseline");
    for side in ["a: baseline", "compare_1.jpg", block, "b: talk_1", "compare_2.jpg", block] {
        terminal.wait(side);
    }
    terminal.say("/log");
    terminal.wait("warmth shift=");
    terminal.wait("> ");
    terminal.write("\u{4}");
    let (shown, status) = terminal.end();
    assert_eq!(status, Some(0), "{shown}");
    let log = shown.rsplit("/log").next().unwrap();
    assert!(!log.contains("label:") && !log.contains("commits"), "{log}");
}

/// The other model of a conversation is that of what is explored from it, too.
#[test]
fn an_exploration_from_within_has_the_conversations_other_model() {
    let talks = Talks::new();
    let fails = "[[reply]]\nfault = { class = \"quota\", status = 402, times = 9 }\n";
    let script = talks.script("fails.toml", fails);
    let arguments =
        [talks.photo.as_str(), "--provider", "script", "--model", &script, "--fallback", "explorer"];
    let mut terminal = talks.open(&arguments);
    terminal.say("/explore light=\"brighter\"");
    terminal.wait("[yes/no]");
    terminal.say("yes");
    terminal.wait("branch_b_light");
    terminal.say("a little warmer");
    terminal.wait("From the start");
    terminal.wait("> ");
    terminal.write("\u{4}");
    let (shown, status) = terminal.end();
    assert_eq!(status, Some(0), "{shown}");
    let (_, explored) = talks.transcript(0);
    assert_eq!(explored[0]["fallback"], json!({ "provider": "explorer", "model": "explorer-2" }));
    let went_on = explored.iter().find(|line| line["kind"] == "fallback").unwrap();
    assert_eq!(went_on["to"]["provider"], "explorer");
    let end = explored.iter().find(|line| line["kind"] == "session_end").unwrap();
    assert_eq!(end["outcome"], "completed", "{end}");
}
