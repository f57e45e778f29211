//! Sessions that nobody needs any more: which may go, which must stay, and their removal.
//!
//! A session may go when it is over, when no open batch has it, when none of its proposals waits, and when no branch
//! of it stands that somebody may still want. What refs lead to is never touched: commits are `gc`'s, and only when
//! nothing leads to them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::session::SessionError;
use crate::session::listing::{self, Condition, Session};
use crate::tools::{BranchView, Measured, baseline_preview};
use crate::transcript::{Flag, Outcome};
use base::error::{ErrorCode, Fault};
use base::ids::{Hash, PhotoId, RefName, SessionId};
use engine::photo::{Head, Library, Workspace, Writer};

/// Which sessions are meant.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only those of this photo.
    pub photo: Option<PhotoId>,
    /// Only this one.
    pub session: Option<SessionId>,
    /// Only those that began before.
    pub before: Option<Timestamp>,
    /// Only those that ended so; empty for any.
    pub outcomes: Vec<Outcome>,
    /// Only those whose files take as many bytes.
    pub at_least: u64,
    /// Whether their branches go too, where nobody has moved them since.
    pub branches: bool,
}

/// A session that may go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Doomed {
    /// Its photo.
    pub photo: PhotoId,
    /// Its id.
    pub session: SessionId,
    /// When it began.
    #[serde(with = "base::stamp")]
    #[schemars(with = "Timestamp")]
    pub started: Timestamp,
    /// How it ended.
    pub outcome: Outcome,
    /// Its files, in bytes, with its previews.
    pub bytes: u64,
    /// Its branches that go with it, and where they are.
    pub branches: BTreeMap<RefName, Hash>,
    /// Pictures of it that no other session shows, relative to the photo's folder.
    pub previews: Vec<PathBuf>,
}

/// A session that is meant and must stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Spared {
    /// Its photo.
    pub photo: PhotoId,
    /// Its id.
    pub session: SessionId,
    /// Why.
    pub why: String,
}

/// What a removal would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sorted {
    /// Sessions that may go.
    pub remove: Vec<Doomed>,
    /// Sessions that are meant and must stay.
    pub keep: Vec<Spared>,
}

/// Sorts the sessions of a library that a filter means. Those in `needed` stay.
///
/// # Errors
/// [`SessionError`], if a photo or its folder cannot be read. A session that cannot be is spared.
pub fn sort(
    library: &Library,
    filter: &Filter,
    needed: &BTreeSet<SessionId>,
) -> Result<Sorted, SessionError> {
    let mut sorted = Sorted::default();
    let photos = match &filter.photo {
        Some(photo) => vec![photo.clone()],
        None => library.photos()?,
    };
    for photo in photos {
        let workspace = library.open(&photo)?;
        sort_photo(&workspace, filter, needed, &mut sorted)?;
    }
    Ok(sorted)
}

fn sort_photo(
    workspace: &Workspace,
    filter: &Filter,
    needed: &BTreeSet<SessionId>,
    sorted: &mut Sorted,
) -> Result<(), SessionError> {
    let waiting = workspace.pending_proposals()?;
    // Nothing of a photo can be removed while somebody else changes it.
    let held = workspace.held_by()?.is_some();
    let mut shown: BTreeSet<PathBuf> = BTreeSet::new();
    let mut going = Vec::new();
    for id in listing::of_photo(workspace)? {
        let folder = workspace.session_folder(&id);
        let meant = filter.session.as_ref().is_none_or(|only| *only == id);
        let mut spare = |why: String| {
            sorted.keep.push(Spared { photo: workspace.id().clone(), session: id.clone(), why });
        };
        let session = match listing::read(workspace, &id) {
            Ok(session) => session,
            Err(error) => {
                if meant {
                    spare(format!("it cannot be read: {}", Fault::from(&error).message));
                }
                continue;
            }
        };
        let pictures = pictures(workspace, &session);
        let bytes = size(&folder);
        let Some(outcome) = session.condition.outcome() else {
            if meant {
                spare("it is running".into());
            }
            shown.extend(pictures);
            continue;
        };
        let started = session.lines.first().map(|line| line.t).unwrap_or_default();
        let meant = meant
            && filter.before.is_none_or(|before| started < before)
            && (filter.outcomes.is_empty() || filter.outcomes.contains(&outcome))
            && bytes >= filter.at_least;
        let branches = match branches(workspace, &session, filter.branches)? {
            _ if !meant => {
                shown.extend(pictures);
                continue;
            }
            _ if held => Err("its photo is in use".to_owned()),
            _ if needed.contains(&id) => Err("a batch that is not over has it".to_owned()),
            _ if waiting.iter().any(|proposal| proposal.session.as_ref() == Some(&id)) => {
                Err("a proposal of it waits for an answer".to_owned())
            }
            sorted => sorted,
        };
        match branches {
            Err(why) => {
                spare(why);
                shown.extend(pictures);
            }
            Ok(branches) => {
                let photo = workspace.id().clone();
                let doomed =
                    Doomed { photo, session: id, started, outcome, bytes, branches, previews: Vec::new() };
                going.push((doomed, pictures));
            }
        }
    }
    for (mut doomed, pictures) in going {
        for picture in pictures {
            // Of two that go and share a picture, the first one takes it along.
            if shown.insert(picture.clone()) {
                let there = fs::metadata(workspace.folder().join(&picture)).map_or(0, |meta| meta.len());
                doomed.bytes += there;
                doomed.previews.push(picture);
            }
        }
        sorted.remove.push(doomed);
    }
    Ok(())
}

/// The branches that go with a session, or why it must stay.
fn branches(
    workspace: &Workspace,
    session: &Session,
    all: bool,
) -> Result<Result<BTreeMap<RefName, Hash>, String>, SessionError> {
    let head = workspace.head()?;
    let mut go = BTreeMap::new();
    for branch in &session.state.branches {
        let Some(at) = workspace.branch(&branch.name)? else { continue };
        let name = &branch.name;
        if at != branch.tip {
            return Ok(Err(format!("its branch {name} was changed since")));
        }
        if head == Head::Branch(name.clone()) {
            return Ok(Err(format!("its branch {name} is checked out")));
        }
        if !all && !is_abandoned(branch) {
            return Ok(Err(format!("its branch {name} stands; --branches deletes it too")));
        }
        go.insert(name.clone(), at);
    }
    Ok(Ok(go))
}

/// Whether the session itself gave the branch up.
fn is_abandoned(branch: &BranchView) -> bool {
    let ruled_out = [Flag::Abandoned, Flag::IdenticalToBaseline];
    branch
        .judgment
        .as_ref()
        .is_some_and(|j| j.abandoned || j.flags.iter().any(|flag| ruled_out.contains(flag)))
}

/// The review pictures of a session that are there, relative to the photo's folder.
fn pictures(workspace: &Workspace, session: &Session) -> Vec<PathBuf> {
    let measured = session.state.branches.iter().filter_map(|branch| {
        let value = branch.judgment.as_ref()?.measured.clone()?;
        serde_json::from_value::<Measured>(value).ok().map(|measured| PathBuf::from(measured.preview))
    });
    let all = measured.chain([PathBuf::from(baseline_preview(&session.state.start))]);
    // A transcript names it, and it is about to be deleted: only a plain file in the folder of previews.
    let plain = |path: &PathBuf| {
        path.parent() == Some(Path::new("previews"))
            && fs::symlink_metadata(workspace.folder().join(path)).is_ok_and(|meta| meta.is_file())
    };
    all.filter(plain).collect()
}

/// The bytes of the files below a folder; links are not followed.
fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => size(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}

/// Removes a session as it was sorted: its branches, its pictures, then itself. A kill in between leaves a session
/// that can be read and removed again, or none.
///
/// # Errors
/// [`SessionError`] with nothing removed, if the session runs or one of its branches has moved meanwhile; the error of
/// the file system.
pub fn remove(writer: &mut Writer, doomed: &Doomed) -> Result<(), SessionError> {
    let workspace = writer.workspace().clone();
    let changed = |what: &str| {
        let message = format!("session {} was not removed: {what} meanwhile", doomed.session.short());
        SessionError::from(Fault::new(ErrorCode::StateError, message))
    };
    for (branch, at) in &doomed.branches {
        if workspace.branch(branch)?.as_ref() != Some(at) {
            return Err(changed(&format!("its branch {branch} has moved")));
        }
    }
    if matches!(listing::read(&workspace, &doomed.session)?.condition, Condition::Running { .. }) {
        return Err(changed("it was resumed"));
    }
    for branch in doomed.branches.keys() {
        writer.delete_branch(branch)?;
    }
    let gone = |path: &Path, result: io::Result<()>| match result {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            let message = format!("cannot delete {}: {e}", path.display());
            Err(SessionError::from(Fault::new(ErrorCode::StateError, message)))
        }
        _ => Ok(()),
    };
    for preview in &doomed.previews {
        let path = workspace.folder().join(preview);
        gone(&path, fs::remove_file(&path))?;
    }
    let folder = workspace.session_folder(&doomed.session);
    // A folder without a transcript is no session: what a kill leaves from here on is litter.
    let transcript = folder.join("transcript.jsonl");
    gone(&transcript, fs::remove_file(&transcript))?;
    gone(&folder, fs::remove_dir_all(&folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::rig::{self, Rig, begin, photo, request, run};
    use crate::session::{fsck, listing};
    use engine::photo::Authority;

    /// A session that makes one branch, judges it, and perhaps proposes something.
    fn script(branch: &str, abandoned: bool, proposes: bool) -> String {
        let reply = |calls: &str| format!("[[reply]]\ncalls = [{calls}]\n");
        let confirm = r#"{ name = "confirm_session", arguments = { vectors = [{ name = "VECTOR", restated = "Open." }] } }"#;
        let vector = branch.trim_start_matches("branch_b_");
        let make = format!(
            r#"{{ name = "branch", arguments = {{ name = "{branch}" }} }}, {{ name = "apply_primitive", arguments = {{ primitive_name = "exposure", parameter_values = {{ ev = 0.4 }} }} }}"#
        );
        let score = if abandoned { 2 } else { 4 };
        let judge = format!(
            r#"{{ name = "record_judgment", arguments = {{ branch = "{branch}", judged_score = {score}, judged_reasoning = "So.", comparable_to_baseline = true, abandoned = {abandoned} }} }}"#
        );
        let propose = format!(
            r#"{{ name = "propose_notes_update", arguments = {{ text = "The rim clips first on {branch}." }} }}"#
        );
        let end = r#"{ name = "end_mode_b_session", arguments = { session_summary = "Done." } }"#;
        let mut text = reply(&confirm.replace("VECTOR", vector)) + &reply(&make) + &reply(&judge);
        if proposes {
            text.push_str(&reply(&propose));
        }
        text + &reply(end)
    }

    /// The files of a photo with their content; what is only appended to, and the lock, apart.
    fn files(folder: &Path) -> BTreeMap<PathBuf, Hash> {
        let (mut found, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
        while let Some(at) = folders.pop() {
            for entry in fs::read_dir(at).unwrap().flatten() {
                let path = entry.path();
                if entry.file_type().unwrap().is_dir() {
                    folders.push(path);
                } else if !matches!(entry.file_name().to_str(), Some("log.jsonl" | "lock" | ".lock")) {
                    let name = path.strip_prefix(folder).unwrap().to_owned();
                    found.insert(name, Hash::of(fs::read(&path).unwrap_or_default()));
                }
            }
        }
        found
    }

    #[test]
    fn of_fifty_sessions_exactly_those_go_that_were_said_and_nothing_that_is_needed() {
        let rig = Rig::new();
        let library = Library::new(&rig.library);
        let mut needed = BTreeSet::new();
        for number in 0..50 {
            let (vector, kind) = (format!("v{number}"), number % 6);
            let branch: RefName = format!("branch_b_{vector}").parse().unwrap();
            let text = script(branch.as_str(), kind == 1 || kind == 5, kind == 4);
            let asked = request("time=20h,iterations=40,branches=3", &[&vector]);
            let mut session = begin(rig.setup(&text), &asked).unwrap();
            let id = session.state.start.session.clone();
            if kind == 2 {
                // Killed before the model said anything.
                continue;
            }
            run(&mut session).unwrap();
            drop(session);
            let mut person = photo(&rig.library).lock(Authority::Person, "a test").unwrap();
            let tip = person.workspace().branch(&branch).unwrap().unwrap();
            match kind {
                3 => {
                    person.create_tag(&format!("kept{number}").parse().unwrap(), &tip, "").unwrap();
                    person.delete_branch(&branch).unwrap();
                }
                5 => drop(needed.insert(id)),
                _ => {}
            }
        }
        let workspace = photo(&rig.library);
        let of = |kind: usize| (0..50).filter(|number| number % 6 == kind).count();
        let sorted = sort(&library, &Filter::default(), &needed).unwrap();
        // Gave its branch up; was interrupted; its branch is kept by a tag.
        assert_eq!(sorted.remove.len(), of(1) + of(2) + of(3));
        let why = |words: &str| sorted.keep.iter().filter(|one| one.why.contains(words)).count();
        let whys =
            [why("--branches deletes it too"), why("waits for an answer"), why("a batch that is not over")];
        assert_eq!(whys, [of(0), of(4), of(5)], "{:?}", sorted.keep);

        // A filter narrows it.
        let none = Filter { at_least: 1 << 40, ..Filter::default() };
        assert_eq!(sort(&library, &none, &needed).unwrap(), Sorted::default());
        let cut = Filter { outcomes: vec![Outcome::Interrupted], ..Filter::default() };
        assert_eq!(sort(&library, &cut, &needed).unwrap().remove.len(), of(2));
        let all = Filter { branches: true, ..Filter::default() };
        assert_eq!(sort(&library, &all, &needed).unwrap().remove.len(), of(0) + of(1) + of(2) + of(3));

        let (before, tags) = (files(workspace.folder()), workspace.tags().unwrap());
        let mut writer = workspace.lock(Authority::Person, "prune").unwrap();
        sorted.remove.iter().for_each(|doomed| remove(&mut writer, doomed).unwrap());
        drop(writer);

        let after = files(workspace.folder());
        let said = |path: &Path| {
            sorted.remove.iter().any(|one| {
                path.starts_with(Path::new("sessions/mode_b").join(one.session.as_str()))
                    || one.previews.iter().any(|preview| preview == path)
                    || one.branches.keys().any(|name| path == Path::new("refs/heads").join(name.as_str()))
            })
        };
        let left: BTreeMap<_, _> = before.into_iter().filter(|(path, _)| !said(path)).collect();
        assert_eq!(after, left);
        assert_eq!(workspace.tags().unwrap(), tags);
        let kept: BTreeSet<_> = sorted.keep.iter().map(|one| one.session.clone()).collect();
        let there: BTreeSet<_> = listing::of_photo(&workspace).unwrap().into_iter().collect();
        assert_eq!(there, kept);
        let report = fsck::fsck(&workspace).unwrap();
        assert!(report.is_whole(), "{:?}", report.damages);
        let again = sort(&library, &Filter::default(), &needed).unwrap();
        assert_eq!((again.remove, again.keep), (Vec::new(), sorted.keep.clone()));
        // What was deleted by name comes back by name.
        let mut writer = workspace.lock(Authority::Person, "undo").unwrap();
        assert!(writer.undo(false).unwrap().step.starts_with("delete branch"));
    }

    #[test]
    fn a_session_whose_branch_moved_after_it_was_sorted_is_not_removed() {
        let rig = Rig::new();
        let asked = request("time=20h,iterations=40,branches=3", &["tone"]);
        let mut session = begin(rig.setup(&script("branch_b_tone", true, false)), &asked).unwrap();
        run(&mut session).unwrap();
        drop(session);
        let sort = || sort(&Library::new(&rig.library), &Filter::default(), &BTreeSet::new()).unwrap();
        let sorted = sort();
        let [doomed] = sorted.remove.as_slice() else { panic!("{sorted:?}") };
        let workspace = rig::photo(&rig.library);
        let before = files(workspace.folder());
        let mut person = workspace.lock(Authority::Person, "a test").unwrap();
        let mut moved = doomed.clone();
        let busy = sort();
        assert!(busy.remove.is_empty() && busy.keep[0].why.contains("in use"), "{busy:?}");
        moved.branches.values_mut().for_each(|at| *at = Hash::of("elsewhere"));
        let refused = remove(&mut person, &moved).unwrap_err().to_string();
        assert!(refused.contains("has moved meanwhile"), "{refused}");
        drop(person);
        assert_eq!(files(workspace.folder()), before);
    }
}
