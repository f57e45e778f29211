use std::path::Path;

use super::*;
use crate::photo::testing::{TestPhoto, exposure, name};
use crate::photo::{GapReport, ProposalKind, ProposedText};
use base::error::{Coded, ErrorCode};

fn edit(writer: &mut Writer, branch: &str, ev: f32) -> Result<CommitInfo, PhotoError> {
    let tip = writer.workspace().branch(&name(branch))?.unwrap();
    writer.record_edit(&name(branch), &tip, &exposure(ev), Operation::Snapshot, "")
}

#[test]
fn an_edit_moves_its_branch_and_equal_edits_have_equal_names_everywhere() {
    let tips: Vec<Hash> = (0..2)
        .map(|_| {
            let photo = TestPhoto::new();
            let mut writer = photo.person();
            edit(&mut writer, "main", 0.5).unwrap();
            let info = edit(&mut writer, "main", 0.8).unwrap();
            assert!(!info.unchanged);
            assert_eq!(photo.workspace.state_of(&photo.tip("main")).unwrap(), exposure(0.8));
            assert_eq!(photo.tip("main"), info.commit);
            info.commit
        })
        .collect();
    assert_eq!(tips[0], tips[1]);
}

#[test]
fn an_edit_that_changes_nothing_makes_no_commit() {
    let photo = TestPhoto::new();
    let lines = photo.log_lines();
    let info = edit(&mut photo.person(), "main", 0.0).unwrap();
    assert!(info.unchanged);
    assert_eq!((info.commit, photo.log_lines()), (photo.workspace.baseline().clone(), lines));
}

#[test]
fn an_edit_from_a_stale_parent_is_refused() {
    let photo = TestPhoto::new();
    let mut writer = photo.person();
    let old = photo.tip("main");
    edit(&mut writer, "main", 0.5).unwrap();
    let stale = writer.record_edit(&name("main"), &old, &exposure(0.8), Operation::Snapshot, "");
    let error = stale.unwrap_err();
    assert!(matches!(error, PhotoError::Moved { .. }), "{error}");
    assert_eq!(error.code(), ErrorCode::VersioningError);
    let tip = photo.tip("main");
    let elsewhere = photo.workspace.baseline().clone();
    assert!(writer.move_branch(&name("main"), &old, &elsewhere, "").is_err());
    assert_eq!(photo.tip("main"), tip);
}

#[test]
fn a_call_that_was_cut_is_completed_by_its_repetition() {
    let photo = TestPhoto::new();
    let (mut writer, _) = photo.session();
    let branch = name("branch_b_tone");
    let baseline = photo.workspace.baseline().clone();
    writer.set_call(Some(7));
    writer.create_branch(&branch, &baseline).unwrap();
    writer.create_branch(&branch, &baseline).unwrap();
    writer.set_call(Some(8));
    assert!(matches!(writer.create_branch(&branch, &baseline), Err(PhotoError::RefTaken(_))));

    let apply = |w: &mut Writer| w.record_edit(&branch, &baseline, &exposure(1.0), Operation::Snapshot, "");
    let first = apply(&mut writer).unwrap();
    let lines = photo.log_lines();
    // The ref was moved: the repetition finds everything done.
    assert_eq!(apply(&mut writer).unwrap(), first);
    // The kill came between op-log and ref.
    photo.write("refs/heads/branch_b_tone", &format!("{baseline}\n"));
    assert_eq!(apply(&mut writer).unwrap(), first);
    assert_eq!((photo.tip("branch_b_tone"), photo.log_lines()), (first.commit, lines));
}

#[test]
fn a_redo_ends_the_log_where_the_branch_is_and_takes_nothing_of_anyone_else_back() {
    let photo = TestPhoto::new();
    let branch = name("branch_b_tone");
    let baseline = photo.workspace.baseline().clone();
    let (mut writer, _) = photo.session();
    writer.set_call(Some(7));
    writer.create_branch(&branch, &baseline).unwrap();
    writer.set_call(Some(8));
    let apply = |w: &mut Writer| w.record_edit(&branch, &baseline, &exposure(1.0), Operation::Snapshot, "");
    let made = apply(&mut writer).unwrap().commit;
    // Cut after the ref was moved: put back, and done again.
    writer.set_call(None);
    writer.restore_ref(&branch, Some(&baseline)).unwrap();
    writer.set_call(Some(8));
    assert_eq!(apply(&mut writer).unwrap().commit, made);
    let last = oplog::last_of(photo.workspace.folder(), "refs/heads/branch_b_tone").unwrap().unwrap();
    assert_eq!((last.call, last.after), (Some(8), Some(made.clone())));
    let report = photo.workspace.fsck().unwrap();
    assert_eq!((report.damages, report.notes), (vec![], vec![]));

    // Somebody went on from there while the session was cut.
    let authority = writer.authority().clone();
    drop(writer);
    let kept = edit(&mut photo.person(), "branch_b_tone", 2.0).unwrap().commit;
    let mut writer = photo.workspace.lock(authority, "the session again").unwrap();
    for to in [Some(&baseline), None] {
        let error = writer.restore_ref(&branch, to).unwrap_err();
        assert_eq!(error.code(), ErrorCode::VersioningError);
        assert!(error.remedy().unwrap().contains("--delete"), "{error}");
    }
    assert_eq!(photo.tip("branch_b_tone"), kept);
    // As the remedy says: it is kept under another name, and the branch made again where the session had it.
    let authority = writer.authority().clone();
    drop(writer);
    let mut person = photo.person();
    person.create_branch(&name("kept"), &kept).unwrap();
    person.delete_branch(&branch).unwrap();
    person.create_branch(&branch, &baseline).unwrap();
    drop(person);
    let mut writer = photo.workspace.lock(authority, "the session again").unwrap();
    writer.restore_ref(&branch, Some(&baseline)).unwrap();
    writer.set_call(Some(8));
    assert_eq!(apply(&mut writer).unwrap().commit, made);
    assert_eq!(photo.tip("kept"), kept);
    assert!(photo.workspace.fsck().unwrap().is_whole());
}

#[test]
fn a_persons_repetition_after_a_kill_leaves_one_line_too() {
    let photo = TestPhoto::new();
    let mut writer = photo.person();
    let baseline = photo.workspace.baseline().clone();
    edit(&mut writer, "main", 0.5).unwrap();
    let lines = photo.log_lines();
    photo.write("refs/heads/main", &format!("{baseline}\n"));
    edit(&mut writer, "main", 0.5).unwrap();
    assert_eq!(photo.log_lines(), lines);
    // Undone and done again is not a repetition.
    let tip = photo.tip("main");
    writer.move_branch(&name("main"), &tip, &baseline, "undo").unwrap();
    edit(&mut writer, "main", 0.5).unwrap();
    assert_eq!(photo.log_lines(), lines + 2);
}

#[test]
fn a_session_owns_its_own_refs_and_no_others() {
    let photo = TestPhoto::new();
    let (mut writer, _) = photo.session();
    let baseline = photo.workspace.baseline().clone();
    writer.create_branch(&name("branch_b_tone"), &baseline).unwrap();
    let tip = edit(&mut writer, "branch_b_tone", 1.0).unwrap().commit;
    writer.create_tag(&name("branch_b_tone-best"), &tip, "").unwrap();
    assert!(!writer.reset(&name("branch_b_tone")).unwrap().unchanged);
    writer.restore_ref(&name("branch_b_tone"), Some(&tip)).unwrap();
    assert_eq!(photo.tip("branch_b_tone"), tip);
    writer.restore_ref(&name("branch_b_tone"), None).unwrap();
    assert_eq!(photo.workspace.branch(&name("branch_b_tone")).unwrap(), None);

    let long = format!("branch_b_{}", "x".repeat(41));
    let refused = [
        edit(&mut writer, "main", 1.0).map(drop),
        writer.reset(&name("main")).map(drop),
        writer.move_branch(&name("main"), &baseline, &tip, ""),
        writer.restore_ref(&name("main"), None),
        writer.restore_ref(&name("main"), Some(&tip)),
        writer.create_branch(&name("tone"), &tip),
        writer.create_branch(&name("branch_b_"), &tip),
        writer.create_branch(&name("branch_b_a/b"), &tip),
        writer.create_branch(&name("branch_b_a-b"), &tip),
        writer.create_branch(&name(&long), &tip),
        writer.create_tag(&name("v2"), &tip, ""),
        writer.delete_branch(&name("main")),
        writer.checkout("main").map(drop),
        writer.gc(true).map(drop),
        writer.accept_proposal("x", None, Path::new("/")).map(drop),
        writer.decline_proposal("x", "").map(drop),
    ];
    for (i, result) in refused.into_iter().enumerate() {
        let error = result.unwrap_err();
        assert_eq!(error.code(), ErrorCode::PermissionDenied, "{i}: {error}");
    }
    let message = writer.create_branch(&name("tone"), &tip).unwrap_err().to_string();
    assert!(message.contains("branch_b_[a-z0-9_]{1,40}"), "{message}");
    assert_eq!(photo.tip("main"), baseline);
}

#[test]
fn without_a_live_lease_a_session_changes_nothing() {
    let photo = TestPhoto::new();
    let (mut writer, lessor) = photo.session();
    let baseline = photo.workspace.baseline().clone();
    let branch = name("branch_b_tone");
    writer.create_branch(&branch, &baseline).unwrap();
    lessor.end();
    let text = ProposedText { kind: ProposalKind::Notes, file: None, text: "x".into(), category: None };
    let gap = GapReport { description: "x".into(), ..GapReport::default() };
    let before = photo.read("log.jsonl");
    let refused = [
        writer.record_edit(&branch, &baseline, &exposure(1.0), Operation::Snapshot, "").map(drop),
        writer.reset(&branch).map(drop),
        writer.create_branch(&name("branch_b_x"), &baseline),
        writer.create_tag(&name("branch_b_x"), &baseline, ""),
        writer.move_branch(&branch, &baseline, &baseline, ""),
        writer.restore_ref(&branch, None),
        writer.delete_branch(&branch),
        writer.checkout("main").map(drop),
        writer.log_gap(gap, None).map(drop),
        writer.propose(text).map(drop),
        writer.accept_proposal("x", None, Path::new("/")).map(drop),
        writer.decline_proposal("x", "").map(drop),
        writer.gc(false).map(drop),
    ];
    for (i, result) in refused.into_iter().enumerate() {
        let error = result.unwrap_err();
        assert_eq!(error.code(), ErrorCode::BudgetExhausted, "{i}: {error}");
    }
    assert_eq!(photo.read("log.jsonl"), before);
}

#[test]
fn a_person_checks_out_tags_and_deletes() {
    let photo = TestPhoto::new();
    let mut writer = photo.person();
    let baseline = photo.workspace.baseline().clone();
    writer.create_branch(&name("try"), &baseline).unwrap();
    assert_eq!(writer.checkout("try").unwrap(), Head::Branch(name("try")));
    assert!(matches!(writer.delete_branch(&name("try")), Err(PhotoError::State(_))));
    let tip = edit(&mut writer, "try", 1.0).unwrap().commit;
    assert_eq!(photo.workspace.head_commit().unwrap(), tip);
    writer.create_tag(&name("v1"), &tip, "for print").unwrap();
    assert!(matches!(writer.create_tag(&name("v1"), &baseline, ""), Err(PhotoError::RefTaken(_))));
    assert_eq!(writer.checkout("v1").unwrap(), Head::Detached(tip.clone()));
    assert_eq!(writer.checkout("refs/heads/main").unwrap(), Head::Branch(name("main")));
    writer.delete_branch(&name("try")).unwrap();
    assert_eq!(photo.workspace.resolve("v1").unwrap(), tip);
    assert!(writer.checkout("try").is_err());
    assert!(writer.create_branch(&name("x"), &Hash::of("nothing")).is_err());
}

#[test]
fn labels_are_one_short_line() {
    let photo = TestPhoto::new();
    let mut writer = photo.person();
    let tip = photo.tip("main");
    for bad in ["a\nb".to_owned(), "x".repeat(201)] {
        let result = writer.record_edit(&name("main"), &tip, &exposure(1.0), Operation::Snapshot, &bad);
        assert_eq!(result.unwrap_err().code(), ErrorCode::InvalidInput);
    }
}

#[test]
fn a_label_on_an_unchanged_edit_is_kept_once_and_shown_with_the_commit() {
    let photo = TestPhoto::new();
    let (mut writer, _) = photo.session();
    let (branch, baseline) = (name("branch_b_tone"), photo.workspace.baseline().clone());
    writer.create_branch(&branch, &baseline).unwrap();
    let made = writer.record_edit(&branch, &baseline, &exposure(1.0), Operation::Snapshot, "first").unwrap();
    for label in ["half way", "half way", "", "keep this"] {
        writer.set_call(Some(9));
        let again =
            writer.record_edit(&branch, &made.commit, &exposure(1.0), Operation::Snapshot, label).unwrap();
        assert!(again.unchanged && again.commit == made.commit);
    }
    let entries = photo.workspace.log("branch_b_tone", 10).unwrap();
    assert_eq!(
        (entries[0].label.as_str(), &*entries[0].labels),
        ("first", &["half way".into(), "keep this".into()][..])
    );
    assert!(entries[0].by.as_deref() != Some("person") && entries[1].labels.is_empty());
    let report = photo.workspace.fsck().unwrap();
    assert_eq!((report.damages, report.notes), (vec![], vec![]));
}
