//! What names a commit, what a library lists, and whom a lock keeps out.

use super::*;
use crate::photo::Operation;
use crate::photo::testing::{TestPhoto, exposure, name, raw_file, take_in};
use base::error::{Coded, ErrorCode};

#[test]
fn a_spec_names_a_commit_in_every_documented_way() {
    let photo = TestPhoto::new();
    let baseline = photo.workspace.baseline().clone();
    let mut writer = photo.person();
    let info = writer.record_edit(&name("main"), &baseline, &exposure(1.0), Operation::Snapshot, "").unwrap();
    let tip = info.commit;
    writer.create_tag(&name("main"), &baseline, "").unwrap();
    let short = tip.as_str().get(..7).unwrap();
    for spec in ["HEAD", "main", "refs/heads/main", tip.as_str(), short, &short.to_uppercase()] {
        assert_eq!(photo.workspace.resolve(spec).unwrap(), tip, "{spec}");
    }
    for spec in ["baseline", "refs/tags/main", "refs/tags/baseline"] {
        assert_eq!(photo.workspace.resolve(spec).unwrap(), baseline, "{spec}");
    }
    // A branch wins over a short hash of the same letters.
    writer.create_branch(&name(short), &baseline).unwrap();
    assert_eq!(photo.workspace.resolve(short).unwrap(), baseline);
}

#[test]
fn what_names_nothing_or_too_much_is_an_error_that_says_so() {
    let photo = TestPhoto::new();
    let prefix = photo.workspace.baseline().as_str().get(..10).unwrap().to_owned();
    for bad in ["nothing", "refs/heads/nothing", "1234567", "ABCDEF", "", &prefix[..6], &info_state(&photo)] {
        let error = photo.workspace.resolve(bad).unwrap_err();
        assert_eq!(error.code(), ErrorCode::VersioningError, "{bad}: {error}");
    }
    for bad in ["refs/heads/../../HEAD", "refs/tags//etc/passwd", "refs/heads/x\0"] {
        assert_eq!(photo.workspace.resolve(bad).unwrap_err().code(), ErrorCode::InvalidInput, "{bad}");
    }
    for bad in ["../../HEAD", "/etc/passwd", "a\0b"] {
        assert!(photo.workspace.resolve(bad).is_err(), "{bad}");
    }
    let (shard, rest) = prefix.split_at(2);
    let twin = format!("objects/commits/{shard}/{rest}{}", "0".repeat(54));
    photo.write(&twin, "");
    match photo.workspace.resolve(&prefix).unwrap_err() {
        PhotoError::Ambiguous { matches, .. } => assert_eq!(matches.len(), 2),
        other => panic!("{other}"),
    }
}

/// A state's hash: it names an object, but no commit.
fn info_state(photo: &TestPhoto) -> String {
    photo.workspace.commit(photo.workspace.baseline()).unwrap().state.to_string()
}

#[test]
fn a_library_lists_its_photos_and_names_what_it_lacks() {
    let photo = TestPhoto::new();
    let other = raw_file(photo.dir.path(), "b.nef", "other");
    take_in(&photo.library, &other).unwrap();
    std::fs::create_dir(photo.library.root().join("stray")).unwrap();
    let ids: Vec<String> = photo.library.photos().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(ids, ["b", "iguana"]);
    let error = photo.library.open(&"heron".parse().unwrap()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound);
    assert!(error.remedy().unwrap().contains("ingest"));
    assert!(Library::new("/nowhere/at/all").photos().unwrap().is_empty());
}

#[test]
fn a_photo_file_that_lies_is_damage() {
    let photo = TestPhoto::new();
    let text = photo.read(PHOTO_FILE);
    let open = || photo.library.open(photo.workspace.id()).map(drop).map_err(|e| e.code());
    for (from, to, code) in [
        ("\"iguana\"", "\"heron\"", ErrorCode::VersioningError),
        ("\"Iguana.DNG\"", "\"../../x\"", ErrorCode::VersioningError),
        ("\"format\": 2", "\"format\": 3", ErrorCode::StateError),
        ("{", "", ErrorCode::VersioningError),
    ] {
        photo.write(PHOTO_FILE, &text.replacen(from, to, 1));
        assert_eq!(open(), Err(code), "{to}");
    }
    photo.write(PHOTO_FILE, &text);
    assert_eq!(open(), Ok(()));
}

/// A process that is killed while it starts a child leaves its lock to that child for as long as this has not become
/// another program: on a busy machine for seconds.
#[test]
fn a_lock_that_a_killed_process_left_to_its_child_is_waited_for() {
    use std::process::{Command, Stdio};
    let photo = TestPhoto::new();
    let path = photo.workspace.folder().join("lock");
    let mut killed = Command::new("true").spawn().unwrap();
    killed.wait().unwrap();
    let inherited = |seconds: &str| {
        let file = fs::File::create(&path).unwrap();
        file.lock().unwrap();
        let since = jiff::Timestamp::UNIX_EPOCH;
        let holder = Holder { pid: killed.id(), purpose: "mode-b session".into(), since };
        fs::write(&path, serde_json::to_string(&holder).unwrap()).unwrap();
        Command::new("sleep").arg(seconds).stdin(Stdio::from(file)).spawn().unwrap()
    };
    let mut child = inherited("0.4");
    assert_eq!(photo.workspace.held_by().unwrap(), None, "its holder has ended");
    child.wait().unwrap();
    let mut child = inherited("0.4");
    drop(photo.workspace.lock(Authority::Person, "another").unwrap());
    child.wait().unwrap();
}

#[test]
fn a_held_lock_names_its_holder() {
    let photo = TestPhoto::new();
    let writer = photo.person();
    let error = photo.workspace.lock(Authority::Person, "another").unwrap_err();
    assert_eq!(error.code(), ErrorCode::StateError);
    let text = error.to_string();
    assert!(text.contains(&std::process::id().to_string()) && text.contains("a test"), "{text}");
    assert_eq!(photo.workspace.held_by().unwrap().unwrap().purpose, "a test");
    drop(writer);
    assert_eq!(photo.workspace.held_by().unwrap(), None);
    drop(photo.person());
}

#[test]
fn nothing_is_read_or_written_through_a_link_in_a_photos_folder() {
    use std::os::unix::fs::symlink;
    let photo = TestPhoto::new();
    let precious = photo.dir.path().join("precious");
    std::fs::write(&precious, "text\n").unwrap();
    let tip = photo.tip("main");
    for name in ["lock", "log.jsonl", "brief.md", "notes.md"] {
        let own = photo.workspace.folder().join(name);
        let kept = std::fs::read(&own).unwrap();
        std::fs::remove_file(&own).unwrap();
        symlink(&precious, &own).unwrap();
        let edit = |exposed| {
            let op = Operation::Snapshot;
            let mut writer = photo.workspace.lock(Authority::Person, "x")?;
            writer.record_edit(&crate::photo::testing::name("main"), &tip, &exposure(exposed), op, "")
        };
        match name {
            "lock" | "log.jsonl" => {
                let error = edit(1.0).unwrap_err();
                assert!(error.to_string().contains("symbolic link"), "{error}");
                assert_eq!(error.code(), ErrorCode::InvalidInput);
            }
            _ => {
                let tastes = photo.dir.path();
                assert!(crate::photo::read_context(&photo.workspace, tastes, false).is_err(), "{name}");
            }
        }
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "text\n", "{name}");
        std::fs::remove_file(&own).unwrap();
        std::fs::write(&own, kept).unwrap();
    }
    assert_eq!(photo.tip("main"), tip);
}

#[test]
fn a_folder_that_cannot_be_written_is_said_to_be_so() {
    let photo = TestPhoto::new();
    // Root may write everywhere, so the obstacle is a folder in the lock's place.
    std::fs::remove_file(photo.workspace.folder().join("lock")).unwrap();
    std::fs::create_dir(photo.workspace.folder().join("lock")).unwrap();
    let error = photo.workspace.lock(Authority::Person, "x").unwrap_err();
    assert!(matches!(error, PhotoError::Io { .. }) && error.remedy().is_some(), "{error}");
    // And a file where the objects should go.
    std::fs::remove_dir(photo.workspace.folder().join("lock")).unwrap();
    std::fs::remove_dir_all(photo.workspace.folder().join("objects/states")).unwrap();
    photo.write("objects/states", "");
    let tip = photo.tip("main");
    let result = photo.person().record_edit(&name("main"), &tip, &exposure(1.0), Operation::Snapshot, "");
    assert!(matches!(result, Err(PhotoError::Io { .. })));
    assert_eq!(photo.tip("main"), tip);
}

#[test]
fn moves_are_relative_to_the_nearest_import_until_the_photo_goes_back() {
    let photo = TestPhoto::new();
    let baseline = photo.workspace.baseline().clone();
    let ground = |commit: &Hash| photo.workspace.facts(commit).unwrap().baseline;
    let mut writer = photo.person();
    let mut tip = baseline.clone();
    let mut step = |ev: f32, op: Operation| {
        tip = writer.record_edit(&name("main"), &tip, &exposure(ev), op, "").unwrap().commit;
        tip.clone()
    };
    let edited = step(0.5, Operation::Snapshot);
    let imported = step(1.0, Operation::ImportSidecar { sidecar: Hash::of("x") });
    let moved = step(1.5, Operation::Snapshot);
    let again = step(2.0, Operation::ImportSidecar { sidecar: Hash::of("y") });
    let back = step(0.0, Operation::Reset);
    let after = step(0.2, Operation::Snapshot);
    for (commit, ev) in [
        (baseline, 0.0),
        (edited, 0.0),
        (imported, 1.0),
        (moved, 1.0),
        (again, 2.0),
        (back, 0.0),
        (after, 0.0),
    ] {
        assert_eq!(ground(&commit), exposure(ev));
    }
}
