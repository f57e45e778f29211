//! The five ways to use a session, as the guide writes them: whole sessions by the program itself, by the explorer, by
//! a script and by a server.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::chat_stub::{ChatStub, StubReply};
use crate::home::settle;

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
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("use-cases");
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
        ended(&home, &main, &format!("explorer, {}", n + 1), if n == 0 { 3 } else { 1 });
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
        assert!(branches.len() >= if n == 0 { 3 } else { 1 }, "{branches:?}");
        let reply = |calls: &Vec<(&str, Value)>| {
            let calls =
                calls.iter().map(|(name, given)| format!("{{ name = \"{name}\", arguments = '{given}' }}"));
            format!("[[reply]]\ncalls = [{}]\n", calls.collect::<Vec<_>>().join(", "))
        };
        let script: String = calls(&branches, &vectors).iter().map(reply).collect();
        std::fs::write(home.path("script.toml"), script).unwrap();
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
