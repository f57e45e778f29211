//! Pruning a library of fifty sessions in three batches, by its command: exactly what it said goes, what a ref or an open
//! batch needs stays.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base::ids::{Hash, SessionId};
use chemigram::overnight::plan::Caps;
use chemigram::overnight::record::{self, Entry, PlannedSession, Stamped};
use chemigram::transcript::Outcome;
use darktable::dng;
use engine::photo::{IngestOptions, Library, Workspace, ingest};
use serde_json::{Value, json};

use crate::home::settle;
use crate::support::{self, Studio, confirm, reply, request};

/// What becomes of a session.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// It makes a branch that stands.
    Kept,
    /// It gives its branch up.
    Abandoned,
    /// It makes none.
    Nothing,
    /// Its branch stands, and a proposal waits for an answer.
    Proposes,
    /// A person tags its branch and deletes the name.
    Tagged,
    /// A person makes its branch the main edit and deletes the name.
    Promoted,
}

const PHOTOS: [&str; 3] = ["one", "two", "three"];

fn script(number: usize, kind: Kind) -> String {
    let vector = format!("v{number}");
    let end = reply(&[("end_mode_b_session", r#"{"session_summary": "Done."}"#)]);
    if kind == Kind::Nothing {
        return confirm(&[&vector]) + &end;
    }
    let branch = format!("branch_b_{vector}");
    let edit = json!({ "primitive_name": "exposure", "parameter_values": { "ev": 0.4 } });
    let abandoned = kind == Kind::Abandoned;
    let score = if abandoned { 2 } else { 4 };
    let judgment =
        json!({ "branch": branch, "judged_score": score, "judged_reasoning": "So.", "abandoned": abandoned });
    let propose = match kind {
        // Equal proposals for a photo share one answer, so that each says something of its own.
        Kind::Proposes => {
            let note = json!({ "text": format!("The rim clips first ({branch}).") });
            reply(&[("propose_notes_update", &note.to_string())])
        }
        _ => String::new(),
    };
    [
        confirm(&[&vector]),
        reply(&[("branch", &json!({ "name": branch }).to_string()), ("apply_primitive", &edit.to_string())]),
        reply(&[("record_judgment", &judgment.to_string())]),
        propose,
        end,
    ]
    .concat()
}

/// A library of three photos, whose sessions are run here, so that all of them share a few pictures.
struct Home {
    studio: Studio,
    photos: Vec<Workspace>,
}

impl Home {
    fn new() -> Self {
        let studio = Studio::new();
        let library = Library::new(studio.dir.path().join("photos"));
        let photos = PHOTOS.iter().zip(1..).map(|(name, more)| {
            let file = studio.dir.path().join(format!("{name}.dng"));
            // Other photos by some bytes that nobody reads.
            std::fs::write(&file, [dng::demo_raw().unwrap(), vec![0; more]].concat()).unwrap();
            let ask = |raw: &Path| {
                let folder = studio.dir.path().join("darktable");
                testkit::kept::ask(&studio.layouts, raw, &folder)
            };
            let options = IngestOptions { id: Some(name.parse().unwrap()), brief: None };
            ingest(&library, &file, options, &ask).unwrap().workspace
        });
        let photos = photos.collect();
        Self { studio, photos }
    }

    fn library(&self) -> Library {
        Library::new(self.studio.dir.path().join("photos"))
    }

    fn text(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chemigram"));
        command.arg("--library").arg(self.library().root()).args(arguments).stdin(Stdio::null());
        settle(&mut command, self.studio.dir.path());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn value(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.text(&[arguments, &["--json"]].concat())).unwrap()
    }

    /// Runs a session, and does what a person does with its branch.
    fn session(&mut self, number: usize, kind: Kind) -> SessionId {
        self.studio.workspace = self.photos[number % PHOTOS.len()].clone();
        let mut asked = request("time=20h,iterations=12,branches=1", &[(&format!("v{number}"), "brighter")]);
        // Not from main, which moves: the same edit would be nothing new there.
        asked.from = "baseline".into();
        let mut session = self.studio.scripted(&script(number, kind), &asked);
        support::run(&mut session);
        let id = session.state.start.session.clone();
        drop(session);
        let (photo, branch) = (PHOTOS[number % PHOTOS.len()], format!("branch_b_v{number}"));
        let kept = format!("kept{number}");
        let keep: &[&str] = match kind {
            Kind::Tagged => &["--tag", &kept],
            Kind::Promoted => &["--to-main"],
            _ => return id,
        };
        self.text(&[&["promote", photo, &branch], keep].concat());
        self.text(&["branch", photo, &branch, "--delete"]);
        id
    }

    /// Runs sessions of these kinds, the first one with this number, as a batch that is over or was cut before its end.
    fn batch(&mut self, first: usize, kinds: &[Kind], over: bool) -> PathBuf {
        let (mut planned, mut entries) = (Vec::new(), Vec::new());
        for (place, kind) in kinds.iter().enumerate() {
            let number = first + place;
            let session = self.session(number, *kind);
            let photo = PHOTOS[number % PHOTOS.len()];
            let mut one = json!({
                "photo": photo, "sha256": Hash::of(photo), "provider": "script", "model": "s", "free": true, "from": "main",
                "seed": 0, "preview_size": support::EDGE, "proxy": "off",
            });
            one["budget"] = json!({ "time_seconds": 72_000, "max_iterations": 12, "max_branches": 1 });
            let one: PlannedSession = serde_json::from_value(one).unwrap();
            let (photo, budget) = (photo.parse().unwrap(), one.budget.clone());
            entries.push(Entry::Started { place, photo, session: session.clone(), budget, again: false });
            entries.push(Entry::Ended { place, session, outcome: Outcome::Completed, status: 0, cut: false });
            planned.push(one);
        }
        entries.extend(over.then_some(Entry::Closed));
        let now = jiff::Timestamp::now();
        let batch =
            record::begin(&self.library(), (Path::new("plan.toml"), ""), Caps::default(), planned, now);
        let folder = batch.unwrap().folder;
        let lines = entries.into_iter().map(|entry| Stamped { t: now, mono_ms: Some(0), entry });
        let lines: String = lines.map(|line| serde_json::to_string(&line).unwrap() + "\n").collect();
        std::fs::write(folder.join("ledger.jsonl"), lines).unwrap();
        folder
    }
}

/// The files of a library with their size and content; what is only appended to, and locks, apart.
fn files(library: &Path) -> BTreeMap<PathBuf, (u64, Hash)> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![library.to_owned()]);
    while let Some(at) = folders.pop() {
        for entry in std::fs::read_dir(at).unwrap().flatten() {
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else if !matches!(entry.file_name().to_str(), Some("log.jsonl" | ".lock")) {
                let bytes = std::fs::read(&path).unwrap();
                let name = path.strip_prefix(library).unwrap().to_owned();
                found.insert(name, (bytes.len() as u64, Hash::of(bytes)));
            }
        }
    }
    found
}

#[test]
fn of_fifty_sessions_in_three_batches_exactly_what_was_said_is_deleted() {
    use Kind::{Abandoned, Kept, Nothing, Promoted, Proposes, Tagged};
    let mut home = Home::new();
    let cycle = |kinds: &[Kind], count: usize| kinds.iter().copied().cycle().take(count).collect::<Vec<_>>();
    let (gone, mixed, open) = (
        cycle(&[Abandoned, Nothing, Tagged], 18),
        cycle(&[Kept, Abandoned, Proposes, Nothing, Promoted], 22),
        cycle(&[Abandoned, Nothing], 10),
    );
    home.batch(0, &gone, true);
    home.batch(18, &mixed, true);
    let cut = home.batch(40, &open, false);
    assert!(!record::Batch::read(&cut).unwrap().is_over());
    let home = home;

    let library = home.library().root().to_owned();
    let refs = || PHOTOS.map(|photo| home.value(&["status", photo])["tags"].clone());
    let (before, tags) = (files(&library), refs());
    let would = home.text(&["prune", "--all", "--dry-run"]);
    let said = home.value(&["prune", "--all", "--dry-run"]);
    assert_eq!(files(&library), before, "a dry run changed something");
    let list = |name: &str| said[name].as_array().unwrap().clone();
    let removable = |kinds: &[Kind]| kinds.iter().filter(|kind| !matches!(kind, Kept | Proposes)).count();
    assert_eq!(
        (list("sessions").len(), list("batches").len()),
        (removable(&gone) + removable(&mixed), 1),
        "{would}"
    );
    let whys = ["--branches deletes it too", "waits for an answer", "a batch that is not over has it"]
        .map(|why| list("kept").iter().filter(|one| one["why"].as_str().unwrap().contains(why)).count());
    let of = |wanted: Kind| mixed.iter().filter(|kind| **kind == wanted).count();
    assert_eq!(whys, [of(Kept), of(Proposes), open.len()], "{would}");

    let done = home.text(&["prune", "--all", "--yes"]);
    assert_eq!(done, would.replace("would delete", "deleted"), "it did not say what it would do");
    let after = files(&library);
    let mut named = BTreeSet::new();
    for one in list("sessions") {
        let photo = Path::new(one["photo"].as_str().unwrap());
        named.insert(photo.join("sessions/mode_b").join(one["session"].as_str().unwrap()));
        named.extend(
            one["previews"].as_array().unwrap().iter().map(|path| photo.join(path.as_str().unwrap())),
        );
        named.extend(
            one["branches"].as_object().unwrap().keys().map(|name| photo.join("refs/heads").join(name)),
        );
    }
    named
        .extend(list("batches").iter().map(|one| Path::new("overnight").join(one["name"].as_str().unwrap())));
    let goes = |path: &Path| named.iter().any(|name| path.starts_with(name));
    let (removed, left): (BTreeMap<_, _>, BTreeMap<_, _>) =
        before.into_iter().partition(|(path, _)| goes(path));
    assert_eq!(after, left, "something else was changed, or something stayed");
    let names = |path: &Path| path.components().any(|part| part.as_os_str() == "refs");
    let bytes: u64 = removed.iter().filter(|(path, _)| !names(path)).map(|(_, (bytes, _))| bytes).sum();
    assert_eq!(said["bytes"], bytes);

    // What refs lead to is whole, also after the commits that nothing leads to are gone.
    assert_eq!(refs(), tags);
    for _ in 0..2 {
        let whole = home.value(&["fsck", "--all"]);
        assert!(whole.as_array().unwrap().iter().all(|photo| photo["whole"] == true), "{whole:#}");
        for photo in PHOTOS {
            home.value(&["gc", photo, "--yes"]);
        }
    }
    assert_eq!(refs(), tags);
    let kept: BTreeSet<String> =
        list("kept").iter().map(|one| one["session"].as_str().unwrap().to_owned()).collect();
    let there = home.value(&["mode-b", "list"]);
    let there = there.as_array().unwrap().iter().map(|one| one["session"].as_str().unwrap().to_owned());
    assert_eq!(there.collect::<BTreeSet<_>>(), kept);
    let again = home.text(&["prune", "--all", "--yes"]);
    assert!(again.ends_with("nothing to delete\n"), "{again}");
}
