//! A session made again from its transcript: the same to the pixel, and what was changed since is found and named.
#![allow(clippy::indexing_slicing, clippy::string_slice, clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};

use crate::support::{Studio, confirm, replayed, reply, request};
use base::ids::SessionId;
use chemigram::session::replay::Proof;
use chemigram::transcript::{Event, Outcome};

/// A session with branches, edits, a mask, a failed call, a way back, looks and judgments.
fn worked(studio: &Studio) -> SessionId {
    let judged = |branch: &str| {
        reply(&[(
            "record_judgment",
            &format!(
                r#"{{"branch": "{branch}", "judged_score": 4, "judged_reasoning": "Open and still natural.", "comparable_to_baseline": true}}"#
            ),
        )])
    };
    let script = confirm(&["tone"])
        + &reply(&[("branch", r#"{"name": "branch_b_tone"}"#)])
        + &reply(&[
            ("apply_primitive", r#"{"primitive_name": "shadows_lift", "parameter_values": {"amount": 1.0}}"#),
            ("render_preview", "{}"),
        ])
        + &reply(&[("apply_primitive", r#"{"primitive_name": "no_such_move"}"#)])
        + &reply(&[(
            "apply_primitive",
            r#"{"primitive_name": "exposure", "parameter_values": {"ev": 0.4}, "mask": {"shape": "circle", "center": [0.5, 0.5], "radius": 0.2}}"#,
        )])
        + &reply(&[("compare", "{}")])
        + &judged("branch_b_tone")
        + &reply(&[("branch", r#"{"name": "branch_b_bold"}"#)])
        + &reply(&[(
            "apply_primitive",
            r#"{"primitive_name": "exposure", "parameter_values": {"ev": 1.0}}"#,
        )])
        + &judged("branch_b_bold")
        + &reply(&[("end_mode_b_session", r#"{"session_summary": "Two."}"#)]);
    let (end, lines) = studio.run(&script, &request("time=5m,iterations=40,branches=2", &[("tone", "open")]));
    assert_eq!(end.outcome, Outcome::Completed, "{}", end.reason);
    let Event::SessionStart(start) = &lines[0].event else { panic!("{:?}", lines[0]) };
    start.session.clone()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() { found.extend(files(&entry)) } else { found.push(entry) }
    }
    found
}

#[test]
fn a5_a_session_made_again_is_the_same_to_the_pixel_and_every_changed_byte_is_found() {
    let studio = Studio::new();
    let id = worked(&studio);
    let whole = replayed(&studio, &id).unwrap();
    assert_eq!((whole.proof, &whole.difference), (Proof::SamePixels, &None), "{whole:?}");
    assert!(whole.commits >= 5 && whole.pictures >= 5, "{whole:?}");
    // The photo itself is as it was.
    assert!(studio.tip("branch_b_tone").is_some());
    assert!(studio.workspace.held_by().unwrap().is_none());

    // A byte of every line.
    let path = studio.workspace.session_folder(&id).join("transcript.jsonl");
    let bytes = std::fs::read(&path).unwrap();
    let ends: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] == b'\n').collect();
    for (line, end) in ends.iter().enumerate() {
        let begin = if line == 0 { 0 } else { ends[line - 1] + 1 };
        let mut changed = bytes.clone();
        changed[begin + (end - begin) * 2 / 3] ^= 1;
        std::fs::write(&path, changed).unwrap();
        let error = replayed(&studio, &id).unwrap_err().to_string();
        let named = [line + 1, line + 2].map(|line| format!("line {line}"));
        assert!(named.iter().any(|name| error.contains(name)), "{error} does not name line {}", line + 1);
    }
    std::fs::write(&path, &bytes).unwrap();

    // A byte of every object that the session made or began from.
    let mut found = 0;
    for object in files(&studio.workspace.folder().join("objects")) {
        let whole = std::fs::read(&object).unwrap();
        let mut changed = whole.clone();
        let middle = changed.len() / 2;
        changed[middle] ^= 1;
        std::fs::write(&object, changed).unwrap();
        match replayed(&studio, &id) {
            Err(error) => {
                let name = object.file_name().unwrap().to_str().unwrap();
                let said = format!("{error} {:?}", std::error::Error::source(&error));
                assert!(said.contains(&name[..10]), "{said} does not name {name}");
                found += 1;
            }
            Ok(other) => panic!("{} is damaged: {other:?}", object.display()),
        }
        std::fs::write(&object, whole).unwrap();
    }
    assert!(found > 5, "{found}");
}
