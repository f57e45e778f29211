//! The person's verbs, as they are typed: in a terminal of 80 by 24 and of 120 by 40, where each is undone or refused
//! cleanly.

#![allow(
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use base::ids::RefName;
use darktable::baseline::{FileFacts, Untouched};
use darktable::frame::StoredSize;
use darktable::state::{EditState, Params, Value as Field};
use engine::photo::{Authority, IngestOptions, Library, Operation, ingest};
use engine::vocabulary::testing::Photo;
use serde_json::{Value, json};

use crate::home::settle;
use crate::printed::fits;
use crate::support::{Studio, confirm, reply, request, run};

/// A home with a library of one photo, `iguana`, whose darktable is made up: nothing here is rendered.
pub(crate) struct Home(pub(crate) tempfile::TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        let raw = home.0.path().join("Iguana.DNG");
        std::fs::write(&raw, "sensor data").unwrap();
        let size = StoredSize { width: 300, height: 200 };
        let facts = FileFacts { size, orientation: 1, ..FileFacts::default() };
        let told =
            Untouched { state: Photo::new().state, sidecar: Vec::new(), facts, darktable: "4.2.1".into() };
        ingest(&home.library(), &raw, IngestOptions::default(), &|_| Ok(told.clone())).unwrap();
        home
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    fn library(&self) -> Library {
        Library::new(self.0.path().join("data/chemigram/photos"))
    }

    pub(crate) fn edit(&self, branch: &str, ev: f32) {
        let workspace = self.library().open(&"iguana".parse().unwrap()).unwrap();
        let mut writer = workspace.lock(Authority::Person, "a test").unwrap();
        let branch: RefName = branch.parse().unwrap();
        if writer.workspace().branch(&branch).unwrap().is_none() {
            let at = writer.workspace().baseline().clone();
            writer.create_branch(&branch, &at).unwrap();
        }
        let tip = writer.workspace().branch(&branch).unwrap().unwrap();
        let state = exposed(writer.workspace().state_of(&tip).unwrap(), ev);
        writer.record_edit(&branch, &tip, &state, Operation::Snapshot, "").unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program());
        let path = std::env::var_os("PATH").unwrap();
        command.env_clear().env("PATH", path).current_dir(self.0.path()).args(arguments);
        settle(&mut command, self.0.path());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).stdin(Stdio::null()).output().unwrap()
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{arguments:?}: {e}: {text}"))
    }

    /// What a command shows in a terminal of that size, with what is typed into it, and its status.
    pub(crate) fn terminal(&self, size: (u16, u16), typed: &str, arguments: &[&str]) -> (String, i32) {
        self.terminal_of(&[("TERM", "xterm")], size, typed, arguments)
    }

    /// [`Self::terminal`] of a kind that these variables tell.
    pub(crate) fn terminal_of(
        &self,
        kind: &[(&str, &str)],
        size: (u16, u16),
        typed: &str,
        arguments: &[&str],
    ) -> (String, i32) {
        let mut child = self.in_terminal(kind, size, arguments);
        let (mut stdin, mut stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        let (mut seen, mut some) = (Vec::new(), [0; 4096]);
        // Nothing is typed before the question, as a person would.
        loop {
            if typed.is_empty() || String::from_utf8_lossy(&seen).contains("[yes/no]") {
                let _ = stdin.take().map(|mut stdin| stdin.write_all(typed.as_bytes()));
            }
            match stdout.read(&mut some).unwrap() {
                0 => break,
                count => seen.extend_from_slice(&some[..count]),
            }
        }
        (on_screen(&seen), child.wait().unwrap().code().unwrap())
    }

    /// A command in a terminal of that size, which does not show what is typed.
    fn in_terminal(&self, kind: &[(&str, &str)], (columns, rows): (u16, u16), arguments: &[&str]) -> Child {
        let quoted: Vec<String> =
            arguments.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
        let line =
            format!("stty cols {columns} rows {rows} -echo; {} {}", program().display(), quoted.join(" "));
        let mut command = Command::new("script");
        let path = std::env::var_os("PATH").unwrap();
        command.env_clear().env("PATH", path).envs(kind.iter().copied()).current_dir(self.0.path());
        settle(&mut command, self.0.path());
        command.args(["-qefc", &line, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().unwrap()
    }
}

/// What a terminal has shown at the end, and the status.
fn shown(child: Child) -> (String, i32) {
    let output = child.wait_with_output().unwrap();
    (on_screen(&output.stdout), output.status.code().unwrap())
}

fn on_screen(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\r', "")
}

fn exposed(mut state: EditState, ev: f32) -> EditState {
    let module = state.module_mut("exposure", 0).unwrap();
    let Params::Fields(fields) = &mut module.params else { panic!("exposure has fields") };
    fields.insert("exposure".into(), Field::Float(ev));
    state
}

fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_chemigram"))
}

/// A text without what moves the cursor or changes colours.
fn plain(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| {
        all + part.trim_start_matches(|c: char| !c.is_ascii_alphabetic()).get(1..).unwrap_or("")
    })
}

/// A text with its hashes, times and temporary folder taken out.
pub(crate) fn settled(text: &str, home: &Path) -> String {
    let text = text.replace(&home.display().to_string(), "HOME");
    let mut out = String::new();
    let mut word = String::new();
    let end = |word: &mut String, out: &mut String| {
        let hex = word.len() >= 12 && word.bytes().all(|b| b.is_ascii_hexdigit());
        let time = word.len() >= 20 && word.starts_with("20") && word.contains('T');
        out.push_str(if hex {
            "HASH"
        } else if time {
            "TIME"
        } else {
            word.as_str()
        });
        word.clear();
    };
    for char in text.chars() {
        if char.is_ascii_alphanumeric() || matches!(char, '-' | ':' | '.') {
            word.push(char);
        } else {
            end(&mut word, &mut out);
            out.push(char);
        }
    }
    end(&mut word, &mut out);
    out
}

/// The verbs in their order: arguments, status, and what is shown, whole.
const WALK: &[(&[&str], i32, &str)] = &[
    (
        &["promote", "iguana", "branch_b_tone", "--to-main"],
        0,
        "iguana: promoted branch_b_tone (HASH): main is moved to it\n",
    ),
    (&["undo", "iguana", "--dry-run"], 0, "would undo promote branch_b_tone (TIME)\n  main  HASH → HASH\n"),
    (&["undo", "iguana"], 0, "undid promote branch_b_tone (TIME)\n  main  HASH → HASH\n"),
    (
        &["promote", "iguana", "branch_b_tone", "--to-main", "--tag", "v2"],
        0,
        "iguana: promoted branch_b_tone (HASH): tagged v2, and main is moved to it\n",
    ),
    (&["undo", "iguana"], 0, "undid promote branch_b_tone (TIME)\n  main  HASH → HASH\n  v2  HASH → none\n"),
    (
        &["promote", "iguana", "same", "--tag", "v3"],
        0,
        "warning: same does not differ from darktable's default edit\niguana: promoted same (HASH): tagged v3\n",
    ),
    (
        &["tag", "iguana", "v3", "--delete"],
        0,
        "deleted the tag v3; `chemigram undo iguana` brings it back, until `gc`\n",
    ),
    (&["undo", "iguana"], 0, "undid delete tag v3 (TIME)\n  v3  none → HASH\n"),
    (&["branch", "iguana", "same", "--rename", "plain"], 0, "same is now plain\n"),
    (
        &["undo", "iguana"],
        0,
        "undid rename same to plain (TIME)\n  same  none → HASH\n  plain  HASH → none\n",
    ),
    (
        &["branch", "iguana", "same", "--delete"],
        0,
        "deleted same; `chemigram undo iguana` brings it back, until `gc`\n",
    ),
    (&["undo", "iguana"], 0, "undid delete branch same (TIME)\n  same  none → HASH\n"),
    (&["checkout", "iguana", "same"], 0, "on same at HASH\n"),
    (
        &["branch", "iguana", "same", "--delete"],
        4,
        "error: branch `same` is checked out; check out another one first\n",
    ),
    (&["undo", "iguana"], 0, "undid checkout same (TIME)\n  HEAD  HASH → HASH\n"),
    (&["branch", "iguana", "main", "--rename", "other"], 4, "error: the branch `main` cannot be renamed\n"),
    (&["tag", "iguana", "baseline", "--delete"], 4, "error: the tag `baseline` cannot be deleted\n"),
    (&["prune", "--all", "--dry-run"], 0, "nothing to delete\n"),
    (&["prune", "--all", "--yes"], 0, "nothing to delete\n"),
    (
        &["mode-b", "delete", "last"],
        3,
        "error: there is no session in HOME/data/chemigram/photos\nhelp: `chemigram run-mode-b --help` explains how to run one\n",
    ),
    (&["mode-b", "watch"], 0, "no session is running; `chemigram mode-b list` lists those that are over\n"),
    (
        &["export", "iguana", "branch_b_tone", "--sidecar", "-o", "out"],
        0,
        "HOME/out/Iguana_01.DNG.xmp  branch_b_tone\n",
    ),
    (
        &["export", "iguana", "branch_b_tone", "--sidecar", "-o", "out"],
        0,
        "HOME/out/Iguana_01.DNG.xmp  branch_b_tone  (there already)\n",
    ),
];

#[test]
fn every_verb_is_undone_or_refused_cleanly_in_terminals_of_two_sizes() {
    for size in [(80, 24), (120, 40)] {
        let home = Home::new();
        home.edit("branch_b_tone", 0.5);
        // A branch that is nothing new.
        home.run(&["branch", "iguana", "same", "baseline"]);
        let refs = || home.json(&["status", "iguana"]);
        let before = refs();
        for (arguments, status, shown) in WALK {
            let (text, found) = home.terminal(size, "", arguments);
            let text = settled(&text, home.0.path());
            assert_eq!((text.as_str(), found), (*shown, *status), "{arguments:?} at {size:?}");
        }
        let mut after = refs();
        // The tag that was deleted and came back.
        assert!(after["tags"].as_object_mut().unwrap().remove("v3").is_some());
        assert_eq!(after, before);
        let whole = home.json(&["fsck", "iguana"]);
        assert_eq!(whole[0]["whole"], true, "{whole}");
    }
}

#[test]
fn a_no_at_the_question_deletes_nothing_and_has_a_status_of_its_own() {
    let home = Home::new();
    // A session that made nothing, by hand: its transcript cannot be read, so it stays and says why.
    let folder = home.library().folder(&"iguana".parse().unwrap()).join("sessions/mode_b");
    let id = base::ids::SessionId::mint();
    std::fs::create_dir_all(folder.join(id.as_str())).unwrap();
    std::fs::write(folder.join(id.as_str()).join("transcript.jsonl"), "nonsense\n").unwrap();
    let (text, status) = home.terminal((80, 24), "no\n", &["mode-b", "delete", "last"]);
    assert!(status == 4 && text.contains("stays: it cannot be read"), "{status} {text}");
    let (text, status) = home.terminal((80, 24), "", &["prune", "--all", "--yes"]);
    assert!(
        status == 0 && text.contains("stays: it cannot be read") && text.contains("nothing to delete"),
        "{text}"
    );
    assert!(folder.join(id.as_str()).join("transcript.jsonl").exists());
    let refused = home.run(&["prune"]);
    assert_eq!(refused.status.code(), Some(2), "without a filter nothing is meant");
}

#[test]
fn nothing_beside_the_raw_is_ever_replaced() {
    let home = Home::new();
    home.edit("branch_b_tone", 0.5);
    let beside = |name: &str| home.0.path().join(name);
    for name in ["Iguana.DNG.xmp", "Iguana_01.DNG.xmp"] {
        std::fs::write(beside(name), "theirs").unwrap();
    }
    let rows = home.json(&["export", "iguana", "main", "branch_b_tone", "--sidecar"]);
    let files: Vec<&str> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["file"].as_str().unwrap().rsplit('/').next().unwrap())
        .collect();
    assert_eq!(files, ["Iguana_02.DNG.xmp", "Iguana_03.DNG.xmp"]);
    let written = std::fs::read_to_string(beside("Iguana_03.DNG.xmp")).unwrap();
    assert!(written.contains(r#"darktable:version_name="branch_b_tone""#), "{written}");
    for name in ["Iguana.DNG.xmp", "Iguana_01.DNG.xmp"] {
        assert_eq!(std::fs::read_to_string(beside(name)).unwrap(), "theirs");
    }
    // Where another file has taken the raw's place, nothing is written beside it.
    std::fs::write(beside("Iguana.DNG"), "another picture").unwrap();
    let refused = home.json(&["export", "iguana", "branch_b_tone", "--sidecar"]);
    assert_eq!(refused["error"]["code"], "VERSIONING_ERROR", "{refused}");
    std::fs::remove_file(beside("Iguana.DNG")).unwrap();
    let refused = home.json(&["export", "iguana", "branch_b_tone", "--sidecar"]);
    assert!(refused["error"]["remedy"].as_str().unwrap().contains("--output"), "{refused}");
}

#[test]
fn picks_are_promoted_by_one_command_or_refused_as_a_whole() {
    let home = Home::new();
    for (branch, ev) in [("branch_b_tone", 0.5), ("branch_b_color", 0.8), ("branch_b_last", 1.0)] {
        home.edit(branch, ev);
    }
    let refs = || {
        let status = home.json(&["status", "iguana"]);
        (status["branches"].clone(), status["tags"].clone())
    };
    let (branches, before) = refs();
    let session = base::ids::SessionId::mint();
    // Verdict and stars of a branch as it is now.
    let write = |photo: &str, picks: &[(&str, Option<&str>, Option<u8>)]| {
        let picks: Vec<Value> = picks
            .iter()
            .map(|(branch, verdict, stars)| {
                json!({ "branch": branch, "commit": branches[branch], "verdict": verdict, "stars": stars })
            })
            .collect();
        let one =
            json!({ "photo": photo, "session": session, "baseline": before["baseline"], "picks": picks });
        let file = json!({ "format": 1, "kind": "chemigram picks", "photos": [one] });
        std::fs::write(home.0.path().join("picks.json"), file.to_string()).unwrap();
    };
    let promote = |more: &[&str]| {
        let output = home.run(&[&["promote", "--picks", "picks.json"], more].concat());
        let both = [output.stdout, output.stderr].concat();
        (settled(&String::from_utf8(both).unwrap(), home.0.path()), output.status.code().unwrap())
    };
    let picked = [
        ("branch_b_tone", Some("pick"), Some(3)),
        ("branch_b_color", Some("pick"), Some(5)),
        ("branch_b_last", Some("reject"), None),
    ];
    write("iguana", &picked);
    let would = "iguana: would promote branch_b_color (HASH): tagged picked\n\
                 iguana: would promote branch_b_tone (HASH): tagged picked_2\n";
    assert_eq!(promote(&["--dry-run"]), (would.into(), 0));
    let kept = home.0.path().join("data/chemigram/photos/iguana/picks.jsonl");
    assert!(refs() == (branches.clone(), before.clone()) && !kept.exists(), "a dry run did something");

    // The same again does nothing more.
    for _ in 0..2 {
        assert_eq!(promote(&[]), (would.replace("would promote", "promoted"), 0));
        let tags = refs().1;
        assert_eq!(
            (&tags["picked"], &tags["picked_2"], tags.as_object().unwrap().len()),
            (&branches["branch_b_color"], &branches["branch_b_tone"], before.as_object().unwrap().len() + 2)
        );
        assert_eq!(std::fs::read_to_string(&kept).unwrap().lines().count(), 3);
    }
    home.run(&["undo", "iguana"]);
    assert_eq!(refs(), (branches.clone(), before.clone()), "one step takes all of it back");

    let (text, status) = promote(&["--to-main"]);
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("branch_b_tone is picked, too, and stays a branch"), "{text}");
    assert_eq!((&refs().0["main"], &refs().1), (&branches["branch_b_color"], &before));
    home.run(&["undo", "iguana"]);

    let refused = |more: &[&str], status: i32, words: &str| {
        let before = refs();
        let (text, found) = promote(more);
        assert!(found == status && text.contains(words), "{found}: {text}");
        assert_eq!(refs(), before, "{words}: something was done");
    };
    write("iguana", &[("branch_b_tone", Some("pick"), None), ("branch_b_color", Some("pick"), None)]);
    refused(&["--to-main"], 2, "with as many stars");
    refused(&["iguana", "branch_b_tone"], 2, "cannot be used with");
    write("iguana", &[("branch_b_tone", None, Some(2))]);
    refused(&[], 3, "nothing is picked");
    write("lizard", &picked);
    refused(&[], 3, "no photo `lizard`");
    write("iguana", &picked);
    home.edit("branch_b_tone", 0.6);
    refused(&[], 4, "branch_b_tone was at HASH when you picked it, and is at HASH now");
    home.run(&["branch", "iguana", "branch_b_tone", "--delete"]);
    refused(&[], 3, "there is no branch branch_b_tone any more");
    refused(&["--dry-run"], 3, "there is no branch branch_b_tone any more");
    std::fs::write(home.0.path().join("picks.json"), "{}").unwrap();
    refused(&[], 2, "not a file of picks");
    std::fs::remove_file(home.0.path().join("picks.json")).unwrap();
    refused(&[], 3, "cannot read picks.json");
}

#[test]
fn a_shell_completes_photos_refs_and_sessions() {
    let home = Home::new();
    home.edit("branch_b_tone", 0.5);
    let folder = home.library().folder(&"iguana".parse().unwrap()).join("sessions/mode_b");
    let id = base::ids::SessionId::mint();
    std::fs::create_dir_all(folder.join(id.as_str())).unwrap();
    std::fs::write(folder.join(id.as_str()).join("transcript.jsonl"), "").unwrap();
    let complete = |words: &[&str]| {
        let mut command = home.command(&["--", "chemigram"]);
        command.args(words).env("COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", words.len().to_string());
        command
            .env("_CLAP_COMPLETE_COMP_TYPE", "9")
            .env("_CLAP_COMPLETE_SPACE", "false")
            .env("_CLAP_IFS", "\n");
        String::from_utf8(command.output().unwrap().stdout).unwrap().trim().to_owned()
    };
    let part = id.short().get(..4).unwrap();
    for (words, expected) in [
        (&["status", "ig"][..], "iguana"),
        (&["compare", "igu"], "iguana"),
        (&["mask", "list", "igu"], "iguana"),
        (&["mode-b", "list", "ig"], "iguana"),
        (&["run-mode-b", "igu"], "iguana"),
        (&["prune", "--photo", "igu"], "iguana"),
        // A raw file where there is no such photo.
        (&["run-mode-b", "Igu"], "Iguana.DNG"),
        (&["diff", "iguana", "branch_b"], "branch_b_tone"),
        (&["compare", "iguana", "main", "branch_b"], "branch_b_tone"),
        (&["branch", "iguana", "branch_b"], "branch_b_tone"),
        (&["promote", "iguana", "branch_b"], "branch_b_tone"),
        (&["run-mode-b", "iguana", "--from", "base"], "baseline"),
        (&["mode-b", "show", "la"], "last"),
        (&["mode-b", "delete", part], id.short()),
        (&["review", part], id.short()),
        (&["promote", part], id.short()),
        (&["promote", part, "branch_b"], "branch_b_tone"),
        (&["export", "iguana", "--session", part], id.short()),
        (&["run-mode-b", "--resume", part], id.short()),
        (&["pru"], "prune"),
        (&["status", "nobody"], ""),
    ] {
        assert_eq!(complete(words), expected, "{words:?}");
    }
}

#[test]
fn a_log_file_has_a_line_for_what_was_done_also_with_quiet() {
    let home = Home::new();
    let folder = home.0.path().join("raws");
    std::fs::create_dir(&folder).unwrap();
    let output = home.run(&["ingest", "raws", "--quiet", "--log-file", "log.txt"]);
    assert_eq!(output.status.code(), Some(3), "an empty folder");
    std::fs::write(folder.join("a.nef"), "no raw").unwrap();
    let output = home.run(&["ingest", "raws", "Iguana.DNG", "--log-file", "log.txt"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("Iguana.DNG  is iguana already") && text.contains("raws/a.nef  FAILED"), "{text}");
    assert_ne!(output.status.code(), Some(0));
    let log = std::fs::read_to_string(home.0.path().join("log.txt")).unwrap();
    assert!(log.contains("INFO") && log.contains("a.nef"), "{log}");
}

#[test]
fn a_running_session_is_watched_until_it_is_over() {
    let (home, studio) = (Home::new(), Studio::new());
    let library = studio.dir.path().join("photos").display().to_string();
    fn watch<'a>(library: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&["--library", library, "mode-b", "watch"], more].concat()
    }
    let ends = reply(&[("end_mode_b_session", r#"{"session_summary": "Done."}"#)]);
    let mut session =
        studio.scripted(&(confirm(&["tone"]) + &ends), &request("lite", &[("tone", "open the shadows")]));
    for size in [(80, 24), (120, 40)] {
        let (text, status) = home.terminal(size, "", &watch(&library, &["--once"]));
        assert_eq!(status, 0, "{text}");
        for words in ["coffee", "left | ", "of 20 iterations", "picture", "no branch yet"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let wide = plain(&text).lines().map(|line| line.trim_end().chars().count()).max().unwrap();
        assert!(wide <= usize::from(size.0), "{wide}: {text}");
    }
    let moment = home.run(&watch(&library, &["last", "--once", "--json"]));
    let moment: Value = serde_json::from_slice(&moment.stdout).unwrap();
    let schema: Value = serde_json::from_slice(&home.run(&["schema", "moment"]).stdout).unwrap();
    fits(&schema, &schema, &moment, "moment").unwrap();
    assert_eq!(moment["condition"], "running", "{moment}");
    let watching = home.in_terminal(&[("TERM", "xterm")], (80, 24), &watch(&library, &["last"]));
    run(&mut session);
    drop(session);
    let (text, status) = shown(watching);
    assert!(status == 0 && text.contains("see its review with `chemigram mode-b show"), "{text}");
    let review = home.run(&["--library", &library, "mode-b", "show", "last", "--json"]);
    let review: Value = serde_json::from_slice(&review.stdout).unwrap();
    let schema: Value = serde_json::from_slice(&home.run(&["schema", "review"]).stdout).unwrap();
    fits(&schema, &schema, &review, "review").unwrap();
}
