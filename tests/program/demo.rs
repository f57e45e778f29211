//! The demo, twice from nothing: three branches, and the same to the pixel.
#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::home::settle;
use base::ids::Hash;
use chemigram::transcript::{self, Event, Flag, Judgment, Outcome};
use engine::photo::{Library, Workspace};

/// Runs the demo with a home, a cache and a library of its own.
fn demo(home: &Path) -> Workspace {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chemigram"));
    command.arg("demo").arg("--dir").arg(home.join("demo")).stdin(Stdio::null()).stdout(Stdio::null());
    settle(&mut command, home);
    assert_eq!(command.status().unwrap().code(), Some(0));
    Library::new(home.join("demo/photos")).open(&"espresso".parse().unwrap()).unwrap()
}

fn judgments(workspace: &Workspace) -> BTreeMap<String, Judgment> {
    let session = std::fs::read_dir(workspace.sessions_folder()).unwrap().next().unwrap().unwrap();
    let lines = transcript::read(&session.path().join("transcript.jsonl")).unwrap().lines;
    assert!(
        matches!(&lines.last().unwrap().event, Event::SessionEnd(end) if end.outcome == Outcome::Completed)
    );
    let judged = lines.into_iter().filter_map(|line| match line.event {
        Event::Judgment(judgment) => Some((judgment.branch.to_string(), *judgment)),
        _ => None,
    });
    judged.collect()
}

/// Branches with their commits, and the pixels of each as judged.
fn harvest(workspace: &Workspace) -> (Vec<(String, Hash)>, BTreeMap<String, String>) {
    let branches =
        workspace.branches().unwrap().into_iter().map(|(name, hash)| (name.to_string(), hash)).collect();
    let pixels = judgments(workspace).into_iter().map(|(name, judgment)| {
        (name, judgment.measured.unwrap()["pixel_hash"].as_str().unwrap().to_owned())
    });
    (branches, pixels.collect())
}

#[test]
fn the_demo_twice_from_nothing_is_the_same_to_the_pixel() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| demo(one.path()));
        let second = scope.spawn(|| demo(two.path()));
        (first.join().unwrap(), second.join().unwrap())
    });
    let (branches, pixels) = harvest(&first);
    assert_eq!((&branches, &pixels), (&harvest(&second).0, &harvest(&second).1));

    let names: Vec<&str> = branches.iter().map(|b| b.0.as_str()).collect();
    assert_eq!(names, ["branch_b_color", "branch_b_structure", "branch_b_tone", "main"]);
    // Made again from its transcript, by the command that a person would give.
    let session = std::fs::read_dir(first.sessions_folder()).unwrap().next().unwrap().unwrap().file_name();
    let mut command = Command::new(env!("CARGO_BIN_EXE_chemigram"));
    command
        .arg("--library")
        .arg(one.path().join("demo/photos"))
        .args(["--json", "mode-b", "replay"])
        .arg(session);
    settle(&mut command, one.path());
    let output = command.output().unwrap();
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &told["proof"]), (Some(0), &"same_pixels".into()), "{told}");
    assert!(told["pictures"].as_u64().unwrap() >= 6, "{told}");

    let main = &branches.iter().find(|b| b.0 == "main").unwrap().1;
    assert_eq!(main, first.baseline(), "main was moved");
    for (branch, judgment) in judgments(&first) {
        let measured = judgment.measured.unwrap();
        let same = measured["pixel_hash"] == measured["baseline_pixel_hash"];
        assert_eq!(same, judgment.flags.contains(&Flag::Abandoned), "{branch}");
        assert!(
            first.folder().join(measured["preview"].as_str().unwrap()).is_file(),
            "{branch} has no preview"
        );
    }
}
