//! A photo's folder survives what happens to processes: kills at any moment, and company.
//!
//! The child processes are this very test binary, started again with `CHEMIGRAM_TEST_CHILD` set.
// The helpers outside of `#[test]` functions may panic as those do.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base::error::{Coded, ErrorCode};
use base::ids::{PhotoId, RefName};
use darktable::baseline::{FileFacts, Untouched};
use darktable::frame::StoredSize;
use darktable::state::{EditState, Module, Params, Value};
use engine::photo::{
    Authority, GapReport, IngestOptions, Library, Operation, PhotoError, ProposalKind, ProposedText, ingest,
};

const ROLE: &str = "CHEMIGRAM_TEST_CHILD";
const LIBRARY: &str = "CHEMIGRAM_TEST_LIBRARY";

fn exposure(ev: f32) -> EditState {
    let module = Module {
        blend: None,
        enabled: true,
        instance: 0,
        modversion: 6,
        name: String::new(),
        op: "exposure".into(),
        params: Params::Fields(BTreeMap::from([("exposure".into(), Value::Float(ev))])),
    };
    EditState { modules: vec![module], ..EditState::default() }
}

fn name(text: &str) -> RefName {
    text.parse().unwrap()
}

fn photo_id() -> PhotoId {
    "iguana".parse().unwrap()
}

fn library(dir: &Path) -> Library {
    let raw = dir.join("iguana.dng");
    std::fs::write(&raw, "sensor data").unwrap();
    let library = Library::new(dir.join("library"));
    let ask = |_: &Path| {
        let size = StoredSize { width: 300, height: 200 };
        let facts = FileFacts { size, orientation: 1, ..FileFacts::default() };
        Ok(Untouched { state: exposure(0.0), sidecar: Vec::new(), facts, darktable: "4.2.1".into() })
    };
    ingest(&library, &raw, IngestOptions::default(), &ask).unwrap();
    library
}

/// Starts this binary again in a role, and waits until it says that it is at work.
fn child(role: &str, library: &Library) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "photo_recovery::in_the_role_of_a_child", "--nocapture"])
        .env(ROLE, role)
        .env(LIBRARY, library.root())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("at work")), "the child ended before it was at work");
    child
}

/// Not a test of its own: what the children do. Without a role there is nothing to do.
#[test]
fn in_the_role_of_a_child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let library = Library::new(std::env::var(LIBRARY).unwrap());
    let workspace = library.open(&photo_id()).unwrap();
    let mut writer = workspace.lock(Authority::Person, &role).unwrap();
    println!("\nat work");
    if role == "hold" {
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    let branch = name("main");
    // Every edit is one that never was before, so that each op-log line must name another commit.
    for i in 0_u32.. {
        let tip = workspace.branch(&branch).unwrap().unwrap();
        let ev = f32::from_bits(0x3f00_0000 | (std::process::id() & 0xff) << 15 | i & 0x7fff);
        writer.record_edit(&branch, &tip, &exposure(ev), Operation::Snapshot, &format!("{i}")).unwrap();
        let side = name(&format!("side_{}", i % 3));
        if workspace.branch(&side).unwrap().is_some() {
            writer.delete_branch(&side).unwrap();
        }
        writer.create_branch(&side, &tip).unwrap();
        if i % 4 == 0 {
            let text = format!("{} {i}", std::process::id());
            writer.log_gap(GapReport { description: text.clone(), ..GapReport::default() }, None).unwrap();
            let note = ProposedText { kind: ProposalKind::Notes, file: None, text, category: None };
            let id = writer.propose(note).unwrap().id;
            writer.accept_proposal(&id, None, library.root()).unwrap();
        }
    }
}

#[test]
fn a_kill_at_any_moment_leaves_a_whole_photo() {
    let dir = tempfile::tempdir().unwrap();
    let library = library(dir.path());
    let workspace = library.open(&photo_id()).unwrap();
    let mut commits = 0;
    for round in 0_u64..20 {
        let before = workspace.log("main", usize::MAX).unwrap().len();
        let mut child = child("edit", &library);
        let began = Instant::now();
        // Later ones have done something, however slow the machine is.
        while round > 3 && workspace.log("main", usize::MAX).unwrap().len() < before + 2 {
            assert!(began.elapsed() < Duration::from_secs(120), "the child does nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
        // From at once to a third of a second, in steps that share no rhythm with an edit.
        std::thread::sleep(Duration::from_micros(round * round * 811 + round * 97));
        child.kill().unwrap();
        child.wait().unwrap();

        let report = workspace.fsck().unwrap();
        assert!(report.is_whole(), "round {round}: {:#?}", report.damages);
        workspace.head_commit().unwrap();
        for (_, commit) in workspace.branches().unwrap() {
            workspace.state_of(&commit).unwrap();
        }
        let log = workspace.log("main", usize::MAX).unwrap();
        assert!(log.len() >= commits, "round {round}: history was lost");
        assert!(log.iter().all(|entry| entry.t.is_some()), "round {round}: a commit without an op-log line");
        commits = log.len();

        // Whoever comes next can write at once, and completes what was cut.
        let mut writer = workspace.lock(Authority::Person, "a test").unwrap();
        let tip = workspace.branch(&name("main")).unwrap().unwrap();
        let ev = 100.0 + f32::from(u16::try_from(round).unwrap());
        writer.record_edit(&name("main"), &tip, &exposure(ev), Operation::Snapshot, "after").unwrap();
        commits += 1;
    }
    assert!(commits > 40, "the children hardly worked: {commits} commits");

    // Each edit of `main` stands in the op-log once.
    let mut seen = HashSet::new();
    for line in workspace.recent_operations(usize::MAX).unwrap() {
        if line.reference == "refs/heads/main" {
            assert!(seen.insert((line.before.clone(), line.after.clone())), "twice in the op-log: {line:?}");
        }
    }
    let mut writer = workspace.lock(Authority::Person, "a test").unwrap();
    writer.gc(false).unwrap();
    let report = workspace.fsck().unwrap();
    assert!(report.is_whole() && report.dangling == 0);
    assert!(report.notes.iter().all(|note| !note.what.contains(".tmp-")), "{:?}", report.notes);
}

#[test]
fn two_processes_do_not_write_one_photo() {
    let dir = tempfile::tempdir().unwrap();
    let library = library(dir.path());
    let workspace = library.open(&photo_id()).unwrap();
    let mut other = child("hold", &library);
    let error = workspace.lock(Authority::Person, "me").unwrap_err();
    assert_eq!(error.code(), ErrorCode::StateError);
    match &error {
        PhotoError::Busy { holder: Some(holder), .. } => {
            assert_eq!((holder.pid, holder.purpose.as_str()), (other.id(), "hold"));
        }
        other => panic!("{other}"),
    }
    assert!(error.remedy().unwrap().contains("stop it"));
    // Reading needs no lock.
    assert_eq!(workspace.status().unwrap().held_by.unwrap().pid, other.id());
    // The lock goes with its process, and a name that a killed holder left behind fools nobody.
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(workspace.held_by().unwrap(), None);
    drop(workspace.lock(Authority::Person, "me").unwrap());
}

#[test]
fn an_edit_costs_the_same_however_long_the_history() {
    let dir = tempfile::tempdir().unwrap();
    let library = library(dir.path());
    let workspace = library.open(&photo_id()).unwrap();
    let mut writer = workspace.lock(Authority::Person, "a test").unwrap();
    let mut tip = workspace.head_commit().unwrap();
    let mut edits = |from: u16, to: u16| {
        let start = std::time::Instant::now();
        for i in from..to {
            let state = exposure(1.0 + f32::from(i));
            tip = writer.record_edit(&name("main"), &tip, &state, Operation::Snapshot, "x").unwrap().commit;
        }
        start.elapsed()
    };
    let early = edits(0, 30);
    // A long history at once: 200,000 lines that a scan at each edit would feel (60 MB).
    let log = workspace.folder().join("log.jsonl");
    let line = std::fs::read_to_string(&log).unwrap().lines().last().unwrap().to_owned() + "\n";
    std::fs::write(&log, line.repeat(200_000)).unwrap();
    let late = edits(30, 60);
    println!("30 edits: {early:?} at first, {late:?} after 200,000 lines");
    assert!(late < early * 5 + Duration::from_secs(2), "{early:?} became {late:?}");
}
