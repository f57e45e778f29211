//! A library, transcripts, an evaluation and a batch that an earlier build wrote are read, resumed and proved.
//! `earlier_build/README.md` says what is in the archive.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::home::settle;
use serde_json::Value;

/// The home folder in which the archive was made.
const THEN: &str = "/home/photographer";

struct Home(tempfile::TempDir);

impl Home {
    /// Unpacks the archive. Its links to raw files are absolute: they are pointed to where the raws are now.
    fn unpacked() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/earlier_build/home.tar.gz");
        let unpacked = Command::new("tar").arg("xzf").arg(archive).arg("-C").arg(home.0.path()).status();
        assert!(unpacked.unwrap().success());
        std::fs::rename(home.0.path().join(".local/share"), home.0.path().join("data")).unwrap();
        home.relink(home.0.path());
        home
    }

    fn relink(&self, folder: &Path) {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            if kind.is_symlink() {
                let raw = std::fs::read_link(&path).unwrap();
                std::fs::remove_file(&path).unwrap();
                let now = self.0.path().join(raw.strip_prefix(THEN).unwrap());
                std::os::unix::fs::symlink(now, path).unwrap();
            } else if kind.is_dir() {
                self.relink(&path);
            }
        }
    }

    /// Whether a command succeeds, and what it prints.
    fn run(&self, arguments: &[&str]) -> (bool, [String; 2]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chemigram"));
        settle(&mut command, self.0.path());
        let output = command.args(arguments).current_dir(self.0.path().join("pictures")).output().unwrap();
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
        (output.status.success(), said)
    }

    /// What a command prints; it has to succeed.
    fn ok(&self, arguments: &[&str]) -> String {
        let (succeeds, said) = self.run(arguments);
        assert!(succeeds, "{arguments:?}: {}", said.concat());
        said.into_iter().next().unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[arguments, &["--json"]].concat())).unwrap()
    }

    /// The sessions of the photo, with their outcomes; `None` where one was killed.
    fn sessions(&self) -> BTreeMap<String, Option<String>> {
        let listed = self.json(&["mode-b", "list"]);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        listed
            .as_array()
            .unwrap()
            .iter()
            .map(|s| (text(&s["session"]).unwrap(), text(&s["outcome"])))
            .collect()
    }

    /// Makes every session again: the edits and the pictures must be those that were recorded.
    fn replay_all(&self) {
        for session in self.sessions().keys() {
            let (same, said) = self.run(&["mode-b", "replay", session]);
            // Another darktable than that of the archive makes other pixels of the same edits, and so does the same
            // one on another class of processor: it has code of its own for each. The first difference ends a replay.
            let pixels_alone = said.concat().contains(" has other pixels: ");
            assert!(if same { said[0].starts_with("same ") } else { pixels_alone }, "{session}: {said:?}");
        }
    }

    fn find(&self, ending: &str) -> PathBuf {
        let found = walk(self.0.path()).into_iter().find(|path| path.ends_with(ending));
        found.unwrap_or_else(|| panic!("no {ending}"))
    }
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .flat_map(|entry| match entry.file_type().unwrap().is_dir() {
            true => walk(&entry.path()),
            false => vec![entry.path()],
        })
        .collect()
}

#[test]
fn what_an_earlier_build_wrote_is_read_resumed_and_proved() {
    let home = Home::unpacked();
    assert!(home.ok(&["status", "cup"]).contains("main at ea041a600929"));
    assert!(home.ok(&["fsck", "--all"]).starts_with("cup: no damage"));
    let before = home.sessions();
    let killed: Vec<&String> = before.iter().filter(|(_, end)| end.is_none()).map(|(id, _)| id).collect();
    assert_eq!((before.len(), killed.len()), (4, 2), "{before:?}");
    for session in before.keys() {
        assert!(home.ok(&["mode-b", "show", session]).contains("Baseline: "), "{session}");
    }
    home.replay_all();

    // The first of the two was begun by hand, the second by the batch.
    let (alone, batched) = (killed[0], killed[1]);
    home.ok(&["run-mode-b", "--resume", alone, "--yes"]);
    let review = home.json(&["mode-b", "show", alone]);
    assert_eq!(review["branches"].as_array().unwrap().len(), 2, "{review}");
    home.ok(&["overnight", "--resume", "last"]);
    let ended = home.sessions();
    assert_eq!(
        ended.keys().collect::<Vec<_>>(),
        before.keys().collect::<Vec<_>>(),
        "no session was begun anew"
    );
    for session in [alone, batched] {
        assert_eq!(ended[session].as_deref(), Some("completed"), "{ended:?}");
    }
    let ledger = std::fs::read_to_string(home.find("ledger.jsonl")).unwrap();
    assert!(ledger.trim_end().ends_with('}') && ledger.contains("\"closed\""), "{ledger}");
    home.replay_all();
    assert!(home.ok(&["fsck", "--all"]).starts_with("cup: no damage"));
    assert!(home.ok(&["status", "cup"]).contains("main at ea041a600929"), "main was moved");
}

#[test]
fn an_evaluation_of_an_earlier_build_is_shown_compared_and_reported() {
    let home = Home::unpacked();
    assert!(home.ok(&["eval", "list"]).contains("2/2"));
    let shown = home.ok(&["eval", "show", "last"]);
    assert!(shown.contains("2 sessions done, 0 failed") && shown.contains("recovery 0"), "{shown}");
    let compared = home.ok(&["eval", "compare", "last:idle", "last:explorer"]);
    assert!(compared.contains("recovery"), "{compared}");
    home.ok(&["eval", "report", "last", "-o", "report.html"]);
    let page = std::fs::read_to_string(home.find("report.html")).unwrap();
    assert!(page.contains("001_shadows") && page.contains("data:image/jpeg;base64,"), "no pictures");
}
