//! The five ways to use a session, as the guide writes them: whole sessions by the program itself, by the explorer, by
//! a script and by a server.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use testkit::chat_stub::{ChatStub, StubReply};
use testkit::folder::kept_folder;
use testkit::home::settle;

const GUIDE: &str = include_str!("../../docs/sessions.md");

/// The commands of the guide, without `chemigram`.
fn commands() -> Vec<Vec<String>> {
    let section = GUIDE.split("## Five ways to use one").nth(1).unwrap();
    let block = section.split("```bash\n").nth(1).unwrap().split("```").next().unwrap();
    let words = |line: &str| {
        let (mut words, mut quoted) = (vec![String::new()], false);
        for c in line.strip_prefix("chemigram ").unwrap().chars() {
            match c {
                '"' => quoted = !quoted,
                ' ' if !quoted => words.push(String::new()),
                c => words.last_mut().unwrap().push(c),
            }
        }
        words
    };
    block.lines().map(words).collect()
}

/// The least branches of each of the five.
const LEAST: [usize; 5] = [3, 1, 1, 3, 3];

/// A session ended well; 28 where nothing that it made is worth keeping.
const WELL: [Option<i32>; 2] = [Some(0), Some(28)];

/// A library with the demo's photo. Pictures are kept between runs of the tests.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        home.ok(&["demo-raw", "photo.dng"]);
        home.ok(&["ingest", "photo.dng", "--id", "photo", "--brief", "Quiet, and the cup stays white."]);
        home
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chemigram"));
        settle(&mut command, self.0.path());
        let kept = kept_folder("use-cases");
        command.env("XDG_CACHE_HOME", kept).current_dir(self.0.path()).args(arguments);
        command
    }

    /// What a command prints, which must end with 0.
    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn main(&self) -> Value {
        serde_json::from_str(&self.ok(&["log", "photo", "main", "--json"])).unwrap()
    }

    /// The newest session.
    fn newest(&self) -> Value {
        let listed: Value = serde_json::from_str(&self.ok(&["mode-b", "list", "photo", "--json"])).unwrap();
        listed[0].clone()
    }
}

/// The branches that a command would make, and the names of their vectors.
fn planned(home: &Home, command: &[&str]) -> (Vec<String>, Vec<String>) {
    let told: Value = serde_json::from_str(&home.ok(&[command, &["--dry-run", "--json"]].concat())).unwrap();
    let branches = told["plan"]["branches"].as_array().unwrap();
    let named = |field: &dyn Fn(&Value) -> Value| {
        branches.iter().filter_map(|one| Some(field(one).as_str()?.to_owned())).collect()
    };
    (named(&|one| one["branch"].clone()), named(&|one| one["vector"]["name"].clone()))
}

/// What a model calls that makes each of these branches.
fn calls(branches: &[String], vectors: &[String]) -> Vec<Vec<(&'static str, Value)>> {
    let restated: Vec<Value> =
        vectors.iter().map(|name| json!({"name": name, "restated": "As asked."})).collect();
    let mut replies =
        vec![vec![("read_context", json!({})), ("confirm_session", json!({"vectors": restated}))]];
    for (n, branch) in branches.iter().enumerate() {
        let ev = 0.2 + 0.1 * n as f64;
        replies.push(vec![
            ("branch", json!({"name": branch})),
            ("apply_primitive", json!({"primitive_name": "exposure", "parameter_values": {"ev": ev}})),
            ("render_preview", json!({})),
        ]);
        let judged = json!({"branch": branch, "judged_score": 3, "judged_reasoning": "A little brighter.",
            "comparable_to_baseline": true, "key_moves": [format!("exposure --ev {ev:.1}")]});
        replies.push(vec![("record_judgment", judged)]);
    }
    replies.push(vec![("end_mode_b_session", json!({"session_summary": "Done."}))]);
    replies
}

/// The same as a script.
fn script(replies: &[Vec<(&'static str, Value)>]) -> String {
    let reply = |calls: &Vec<(&str, Value)>| {
        let calls =
            calls.iter().map(|(name, given)| format!("{{ name = \"{name}\", arguments = '{given}' }}"));
        format!("[[reply]]\ncalls = [{}]\n", calls.collect::<Vec<_>>().join(", "))
    };
    replies.iter().map(reply).collect()
}

/// What a model calls in a protocol that makes these branches by itself, each with one move.
fn steered(branches: &[(&str, &'static str, &str, f64)]) -> Vec<Vec<(&'static str, Value)>> {
    let done = ("attempt_done", json!({}));
    let mut replies =
        vec![vec![("read_context", json!({})), ("confirm_session", json!({ "vectors": [] })), done.clone()]];
    for (branch, name, dial, value) in branches {
        let apply = json!({ "primitive_name": name, "parameter_values": { *dial: value } });
        replies.push(vec![("apply_primitive", apply), ("render_preview", json!({})), done.clone()]);
        let judged = json!({"branch": branch, "judged_score": 3,
            "judged_reasoning": "The rock gets its texture, and the wall gets noise: you were right to avoid it.",
            "comparable_to_baseline": true, "key_moves": [format!("{name} --value {value}")]});
        replies.push(vec![("record_judgment", judged)]);
    }
    replies.push(vec![("end_mode_b_session", json!({"session_summary": "Argued for and against."}))]);
    replies
}

/// Holds a session against what every one of them promises.
fn ended(home: &Home, main: &Value, way: &str, branches: usize) {
    let newest = home.newest();
    assert_eq!(
        (&newest["condition"], &newest["outcome"]),
        (&"ended".into(), &"completed".into()),
        "{way}: {newest}"
    );
    assert!(newest["branches"].as_u64().unwrap() as usize >= branches, "{way}: {newest}");
    assert_eq!(newest["judged"], newest["branches"], "{way}: each branch is judged");
    assert_eq!(&home.main(), main, "{way}: main stays where it is");
    let id = newest["session"].as_str().unwrap();
    let shown: Value = serde_json::from_str(&home.ok(&["mode-b", "show", id, "--json"])).unwrap();
    for branch in shown["branches"].as_array().unwrap() {
        assert!(!branch["judged_reasoning"].as_str().unwrap().is_empty(), "{way}: {branch}");
        assert!(Path::new(branch["preview"].as_str().unwrap()).is_file(), "{way}: {branch}");
    }
}

#[test]
fn d1_to_d7_five_whole_sessions_by_the_explorer_in_the_words_of_the_guide() {
    let home = Home::new();
    home.ok(&["apply", "photo", "clarity", "amount=0.3"]);
    let main = home.main();
    for (n, command) in commands().iter().enumerate() {
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let status =
            home.command(&[&command[..], &["--preview-size", "256", "-q"]].concat()).output().unwrap().status;
        assert!(WELL.contains(&status.code()), "{command:?}: {status}");
        ended(&home, &main, &format!("explorer, {}", n + 1), LEAST[n]);
        if n == 2 {
            // The move that was avoided is there to be seen, with what speaks for it and against it.
            let log: Value =
                serde_json::from_str(&home.ok(&["log", "photo", "branch_b_tactical", "--json"])).unwrap();
            let made = |entry: &Value| entry["words"].as_str().unwrap().contains("clarity");
            assert!(log.as_array().unwrap().iter().any(made), "{log}");
            let id = home.newest()["session"].as_str().unwrap().to_owned();
            let shown: Value = serde_json::from_str(&home.ok(&["mode-b", "show", &id, "--json"])).unwrap();
            let branch = &shown["branches"][0];
            let why = branch["judged_reasoning"].as_str().unwrap();
            assert!(why.contains("For it: ") && why.contains("Against it: "), "{why}");
            assert!(branch["key_moves"].to_string().contains("clarity"), "{branch}");
            assert!(!branch["flags"].to_string().contains("abandoned"), "{branch}");
        }
    }
}

#[test]
fn d1_to_d7_the_sessions_without_a_protocol_by_a_script_and_over_the_wire() {
    let home = Home::new();
    home.ok(&["apply", "photo", "clarity", "amount=0.3"]);
    let main = home.main();
    for (n, command) in commands().iter().enumerate().filter(|(_, command)| command[0] == "run-mode-b") {
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let more = ["--preview-size", "256", "-q"];
        // By a script.
        let (branches, vectors) = planned(&home, &command);
        assert!(branches.len() >= LEAST[n], "{branches:?}");
        std::fs::write(home.path("script.toml"), script(&calls(&branches, &vectors))).unwrap();
        let scripted = [&command[..], &more, &["--provider", "script", "--model", "script.toml"]].concat();
        let status = home.command(&scripted).output().unwrap().status;
        assert!(WELL.contains(&status.code()), "{scripted:?}: {status}");
        ended(&home, &main, &format!("script, {}", n + 1), branches.len());
        // Over the wire.
        let (branches, vectors) = planned(&home, &command);
        let stub =
            ChatStub::start(calls(&branches, &vectors).iter().map(|calls| StubReply::calls(calls)).collect());
        let output = home
            .command(&[&command[..], &more, &["--provider", "llamacpp", "--model", "vision"]].concat())
            .env("CHEMIGRAM_BASE_URL", stub.url())
            .output()
            .unwrap();
        assert!(WELL.contains(&output.status.code()), "{}", String::from_utf8_lossy(&output.stderr));
        ended(&home, &main, &format!("wire, {}", n + 1), branches.len());
        assert_eq!(stub.requests().len(), 2 + 2 * branches.len());
    }
}

#[test]
fn d5_d7_the_sessions_with_a_protocol_by_a_script_and_over_the_wire() {
    let tactical = steered(&[("branch_b_tactical", "clarity", "amount", 2.0)]);
    let readings = [("branch_b_literal", 0.4), ("branch_b_restrained", 0.6), ("branch_b_bold", 0.9)];
    let calibrate = steered(&readings.map(|(branch, ev)| (branch, "exposure", "ev", ev)));
    for over_the_wire in [false, true] {
        let home = Home::new();
        home.ok(&["apply", "photo", "clarity", "amount=0.3"]);
        let main = home.main();
        let steered = commands().into_iter().enumerate().filter(|(_, command)| command[0] == "run-protocol");
        for ((n, command), replies) in steered.zip([&tactical, &calibrate]) {
            let way = format!("{}, {}", if over_the_wire { "wire" } else { "script" }, n + 1);
            let command: Vec<&str> = command.iter().map(String::as_str).collect();
            std::fs::write(home.path("script.toml"), script(replies)).unwrap();
            let stub = ChatStub::start(replies.iter().map(|calls| StubReply::calls(calls)).collect());
            let who = match over_the_wire {
                true => ["--provider", "llamacpp", "--model", "vision"],
                false => ["--provider", "script", "--model", "script.toml"],
            };
            let output = home
                .command(&[&command[..], &["--preview-size", "256", "-q"], &who].concat())
                .env("CHEMIGRAM_BASE_URL", stub.url())
                .output()
                .unwrap();
            assert!(
                WELL.contains(&output.status.code()),
                "{way}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            ended(&home, &main, &way, LEAST[n]);
            assert_eq!(stub.requests().len(), if over_the_wire { replies.len() } else { 0 }, "{way}");
        }
    }
}

#[test]
fn b8_a_session_says_its_id_when_it_begins() {
    let home = Home::new();
    let output = home
        .command(&["run-mode-b", "photo", "--vector", "tone=brighter", "--budget", "lite", "--yes"])
        .args(["--preview-size", "256"])
        .output()
        .unwrap();
    let (said, id) = (String::from_utf8(output.stderr).unwrap(), home.newest()["session"].clone());
    let begins = said.find(&format!("session {}", id.as_str().unwrap())).unwrap_or_else(|| panic!("{said}"));
    let branch = said.find("branch_b_tone").unwrap_or(said.len());
    assert!(begins < branch, "{said}");
}

#[test]
fn d4_to_go_deeper_without_a_word_takes_the_smallest_budget() {
    let home = Home::new();
    let plan = |arguments: &[&str]| {
        let told = home.command(&[&["run-mode-b", "photo", "--dry-run", "--json"], arguments].concat());
        let output = { told }.output().unwrap();
        (output.status.code().unwrap(), serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default())
    };
    assert_eq!(plan(&[]).0, 2, "there is nothing to go deeper in");
    home.ok(&["apply", "photo", "clarity", "amount=0.3"]);
    let (status, told) = plan(&[]);
    let budget = &told["plan"]["budget"];
    assert_eq!(
        (status, &budget["max_iterations"], &budget["max_branches"]),
        (0, &20.into(), &1.into()),
        "{told}"
    );
    assert_eq!(plan(&["--vector", "tone=darker"]).0, 2, "a direction needs a budget");
    assert_eq!(plan(&["--brief", "Quiet."]).0, 2, "and so does a brief");
}

#[test]
fn e8_what_comes_next_after_a_protocols_end_is_no_resume() {
    let home = Home::new();
    let command =
        ["run-protocol", "tactical_one_move", "--photo", "photo", "--var", "move=heavy clarity", "--yes"];
    let done = ("attempt_done", json!({}));
    let mut replies = vec![vec![("confirm_session", json!({ "vectors": [] })), done]];
    replies.extend((1..5).map(|n| {
        let values = json!({ "ev": 0.1 * f64::from(n) });
        vec![("apply_primitive", json!({ "primitive_name": "exposure", "parameter_values": values }))]
    }));
    let judged = json!({"branch": "branch_b_tactical", "judged_score": 3, "judged_reasoning": "Brighter."});
    let ended = json!({"session_summary": "There was no more to spend."});
    replies.push(vec![("record_judgment", judged), ("end_mode_b_session", ended)]);
    std::fs::write(home.path("script.toml"), script(&replies)).unwrap();
    let small = ["--budget", "time=10m,iterations=4,branches=1", "--preview-size", "256", "-q"];
    let who = ["--provider", "script", "--model", "script.toml"];
    home.command(&[&command[..], &small, &who].concat()).output().unwrap();
    let newest = home.newest();
    assert_eq!(newest["outcome"], "budget_exhausted", "{newest}");
    let id = newest["session"].as_str().unwrap();
    let shown: Value = serde_json::from_str(&home.ok(&["mode-b", "show", id, "--json"])).unwrap();
    let next = shown["next"].to_string();
    assert!(next.contains("chemigram ") && !next.contains("--resume"), "{next}");
    let raised =
        home.command(&["run-mode-b", "--resume", id, "--raise", "iterations=9", "--yes"]).output().unwrap();
    let said = String::from_utf8_lossy(&raised.stderr).into_owned();
    assert!(raised.status.code() == Some(4) && said.contains("so has its protocol"), "{said}");
}

#[test]
fn a9_what_only_main_leads_to_is_kept_when_main_moves() {
    let home = Home::new();
    home.ok(&["apply", "photo", "clarity", "amount=0.3"]);
    home.ok(&["branch", "photo", "other", "baseline"]);
    let promoted = |branch: &str, tag: &str| -> Value {
        let said = home.ok(&["promote", "photo", branch, "--tag", tag, "--to-main", "--json"]);
        serde_json::from_str(&said).unwrap()
    };
    let own = home.main()[0]["commit"].as_str().unwrap().to_owned();
    let kept = promoted("other", "v2")["main_kept"].as_str().unwrap().to_owned();
    let log: Value = serde_json::from_str(&home.ok(&["log", "photo", &kept, "--json"])).unwrap();
    assert_eq!(log[0]["commit"], own.as_str());
    let gone: Value = serde_json::from_str(&home.ok(&["gc", "photo", "--json"])).unwrap();
    assert_eq!(gone["commits"].as_array().unwrap().len(), 0, "{gone}");
    // The baseline, on which main stands now, leads from everywhere.
    assert_eq!(promoted("other", "v3")["main_kept"], Value::Null);
}

#[test]
fn b19_a_mask_of_the_photo_is_meant_by_its_name_by_hand() {
    let home = Home::new();
    let circle = r#"{"shape":"circle","center":[0.5,0.4],"radius":0.2}"#;
    home.ok(&["mask", "save", "photo", "sky", circle]);
    assert!(home.ok(&["mask", "list", "photo"]).starts_with("sky  circle at 0.50, 0.40"));
    let said = home.ok(&["apply", "photo", "exposure", "ev=0.3", "--mask", r#"{"named":"sky"}"#]);
    assert!(said.contains("circle at 0.50, 0.40"), "{said}");
    home.ok(&["mask", "delete", "photo", "sky"]);
    assert_eq!(home.ok(&["mask", "list", "photo"]), "");
}
