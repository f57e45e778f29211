//! Proving a photo's folder whole, or listing each damage with what to do about it.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::photo::error::PhotoError;
use crate::photo::gaps::{self, Gap};
use crate::photo::jsonl;
use crate::photo::objects::{Commit, Kind};
use crate::photo::oplog::{self, Moves, OpLine};
use crate::photo::positions::BASELINE;
use crate::photo::proposals;
use crate::photo::refs::{Head, RefKind};
use crate::photo::workspace::Workspace;
use base::error::Coded;
use base::files;
use base::ids::Hash;

/// Something that a person should know about a photo's folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What: an object, a ref, a file.
    pub what: String,
    /// What is wrong with it.
    pub problem: String,
    /// What to do about it.
    pub remedy: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.what, self.problem, self.remedy)
    }
}

/// What `fsck` found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FsckReport {
    /// What is broken.
    pub damages: Vec<Finding>,
    /// What a crash left and what does no harm.
    pub notes: Vec<Finding>,
    /// States whose bytes are right.
    pub states: usize,
    /// Commits whose bytes are right.
    pub commits: usize,
    /// Branches and tags that lead to a commit.
    pub refs: usize,
    /// Lines of the op-log.
    pub log_lines: usize,
    /// Sessions whose transcripts are as they were written.
    pub sessions: usize,
    /// Objects that no ref leads to; `gc` would remove them.
    pub dangling: usize,
}

impl FsckReport {
    /// Whether nothing is broken.
    pub fn is_whole(&self) -> bool {
        self.damages.is_empty()
    }

    /// Adds something that is broken.
    pub fn damage(&mut self, what: impl Into<String>, problem: impl Into<String>, remedy: &str) {
        self.damages.push(Finding { what: what.into(), problem: problem.into(), remedy: remedy.into() });
    }

    /// Adds what does no harm.
    pub fn note(&mut self, what: impl Into<String>, problem: impl Into<String>, remedy: &str) {
        self.notes.push(Finding { what: what.into(), problem: problem.into(), remedy: remedy.into() });
    }
}

/// What to do about most of it.
pub const BACKUP: &str = "restore it from a backup";

/// What to do where the op-log and the file of a ref differ.
const NEXT: &str = "the next command that changes the photo brings its file and the op-log together";

impl Workspace {
    /// Checks everything: each object against its name, each commit's parents and state, each ref, HEAD, the
    /// lines of every log, and the raw against its hash. Writes nothing.
    ///
    /// # Errors
    /// [`PhotoError`] only if the folder cannot be read at all.
    pub fn fsck(&self) -> Result<FsckReport, PhotoError> {
        let mut report = FsckReport::default();
        let good_states = self.check_states(&mut report)?;
        let commits = self.check_commits(&good_states, &mut report)?;
        let log = check_lines::<OpLine>(self.folder(), oplog::FILE, &mut report)?;
        report.log_lines = log.len();
        let log = Moves::of(&log);
        check_gaps(&log, &mut report);
        self.check_refs(&commits, &log, &mut report)?;
        self.check_head(&log.heads, &mut report);
        check_lines::<Gap>(self.folder(), gaps::FILE, &mut report)?;
        check_lines::<serde_json::Value>(self.folder(), proposals::FILE, &mut report)?;
        self.check_raw(&mut report);
        self.note_misplaced(&mut report);
        for path in litter(self.folder())? {
            report.note(
                self.relative(&path),
                "a temporary file left by a crash",
                "`chemigram gc` deletes it",
            );
        }
        if report.is_whole() {
            let reachable = self.reachable()?;
            let kept = reachable.commits.len() + reachable.states.len();
            report.dangling = (report.commits + report.states).saturating_sub(kept);
        }
        Ok(report)
    }

    fn check_states(&self, report: &mut FsckReport) -> Result<HashSet<Hash>, PhotoError> {
        let (names, strange) = self.objects().list(Kind::State)?;
        self.note_strange(&strange, report);
        let mut good = HashSet::new();
        for hash in names {
            match self.state(&hash) {
                Ok(_) => drop(good.insert(hash)),
                Err(e) => report.damage(format!("state {hash}"), reason(&e), BACKUP),
            }
        }
        report.states = good.len();
        Ok(good)
    }

    fn check_commits(
        &self,
        states: &HashSet<Hash>,
        report: &mut FsckReport,
    ) -> Result<HashSet<Hash>, PhotoError> {
        let (names, strange) = self.objects().list(Kind::Commit)?;
        self.note_strange(&strange, report);
        let mut good: Vec<(Hash, Commit)> = Vec::new();
        for hash in names {
            match self.commit(&hash) {
                Ok(commit) => good.push((hash, commit)),
                Err(e) => report.damage(format!("commit {hash}"), reason(&e), BACKUP),
            }
        }
        let known: HashSet<Hash> = good.iter().map(|(hash, _)| hash.clone()).collect();
        for (hash, commit) in &good {
            let what = format!("commit {hash}");
            if !states.contains(&commit.state) {
                let problem = format!("its state {} is missing or damaged", commit.state);
                report.damage(what.clone(), problem, BACKUP);
            }
            for parent in commit.parents.iter().filter(|parent| !known.contains(*parent)) {
                report.damage(what.clone(), format!("its parent {parent} is missing or damaged"), BACKUP);
            }
        }
        report.commits = known.len();
        Ok(known)
    }

    /// The files of the refs, as they are.
    fn check_refs(
        &self,
        commits: &HashSet<Hash>,
        log: &Moves<'_>,
        report: &mut FsckReport,
    ) -> Result<(), PhotoError> {
        let mut there = HashSet::new();
        for kind in [RefKind::Branch, RefKind::Tag] {
            let (names, strange) = self.refs().names(kind)?;
            self.note_strange(&strange, report);
            for name in names {
                let what = format!("{kind} `{name}`");
                let full = kind.full(&name);
                let last = log.last(&full);
                let logged = last.and_then(|line| line.after.as_ref());
                let remedy = if logged.is_some() { NEXT } else { BACKUP };
                match self.refs().read(kind, &name) {
                    Ok(Some(hash)) if commits.contains(&hash) => {
                        report.refs += 1;
                        if last.is_some() || full != BASELINE || hash != *self.baseline() {
                            compare(&full, Some(&hash), last, report);
                        }
                    }
                    Ok(Some(hash)) => {
                        let remedy = if logged == Some(&hash) { BACKUP } else { remedy };
                        report.damage(what, format!("its commit {hash} is missing or damaged"), remedy)
                    }
                    Ok(None) => report.damage(what, "it cannot be read", remedy),
                    Err(e) => report.damage(what, reason(&e), remedy),
                }
                there.insert(full);
            }
        }
        for full in log.refs.keys().filter(|full| !there.contains(**full)) {
            compare(full, None, log.last(full), report);
        }
        if !commits.contains(self.baseline()) {
            let problem = format!("its commit {} is missing or damaged", self.baseline());
            let remedy =
                format!("{BACKUP}, or move the photo's folder out of the library and ingest the raw again");
            report.damage("the baseline", problem, &remedy);
        }
        Ok(())
    }

    /// The file HEAD, as it is.
    fn check_head(&self, logged: &[Head], report: &mut FsckReport) {
        let remedy = &format!("switch to a branch, such as `chemigram checkout {} main`", self.id());
        let head = match self.refs().head() {
            Ok(head) => head,
            Err(e) => return report.damage("HEAD", reason(&e), remedy),
        };
        let commit = match &head {
            Head::Detached(commit) => Some(commit.clone()),
            Head::Branch(branch) => self.refs().read(RefKind::Branch, branch).ok().flatten(),
        };
        match (commit, &head) {
            (None, Head::Branch(branch)) => {
                let problem = format!("it follows the branch `{branch}`, which does not exist");
                return report.damage("HEAD", problem, remedy);
            }
            (Some(commit), Head::Detached(_)) if self.commit(&commit).is_err() => {
                return report.damage("HEAD", format!("its commit {commit} is missing or damaged"), remedy);
            }
            _ => {}
        }
        let mut logged = logged.iter().rev();
        if logged.next() == Some(&head) {
            return;
        }
        if logged.next() == Some(&head) {
            report.note("HEAD", "its file is behind its last line (`checkout`) in the op-log", NEXT);
        } else {
            report.damage("HEAD", "no line of the op-log explains where it is", remedy);
        }
    }

    fn check_raw(&self, report: &mut FsckReport) {
        let raw = self.raw();
        let original = &self.photo().raw.original;
        match files::hash(&raw.path) {
            Ok((found, _)) if found == raw.sha256 => {}
            Ok((found, _)) => report.damage(
                format!("raw/{}", self.photo().raw.name),
                format!(
                    "its bytes are not those that were ingested: their SHA-256 is {found}, not {}",
                    raw.sha256
                ),
                "put the original back",
            ),
            Err(e) => report.damage(
                format!("raw/{}", self.photo().raw.name),
                format!("it cannot be read ({e})"),
                &format!("put the original back at {original}"),
            ),
        }
    }

    /// Commits of an earlier build that placed shapes by the wrong sides.
    fn note_misplaced(&self, report: &mut FsckReport) {
        for commit in self.photo().corrected.iter().flat_map(|corrected| &corrected.misplaced) {
            report.note(
                format!("commit {commit}"),
                "an older chemigram placed its shapes, spots or straightening by the wrong picture size",
                "check it, and repeat these moves if they are in the wrong place",
            );
        }
    }

    fn note_strange(&self, strange: &[PathBuf], report: &mut FsckReport) {
        for path in strange.iter().filter(|path| !is_temporary(path)) {
            report.note(self.relative(path), "it does not belong here", "move it away");
        }
    }

    /// The path within the photo's folder, for messages.
    pub fn relative(&self, path: &Path) -> String {
        path.strip_prefix(self.folder()).unwrap_or(path).display().to_string()
    }
}

/// Every line moves its ref from where the one before left it.
fn check_gaps(log: &Moves<'_>, report: &mut FsckReport) {
    for lines in log.refs.values() {
        let mut last: Option<&OpLine> = None;
        for line in lines {
            // Earlier builds took a line for void where a crash had come between it and the ref's file.
            let known = last.map_or(line.before.is_none(), |last| {
                line.before == last.after || line.before == last.before
            });
            if !known {
                let problem = format!(
                    "lines are missing before `{}` of {:.0}: {} was not at {}",
                    line.op,
                    line.t,
                    line.reference,
                    place(line.before.as_ref())
                );
                report.damage(oplog::FILE, problem, BACKUP);
            }
            last = Some(line);
        }
    }
}

/// Holds the file of a ref against its last line.
fn compare(full: &str, file: Option<&Hash>, last: Option<&OpLine>, report: &mut FsckReport) {
    match last {
        Some(line) if line.after.as_ref() == file => {}
        Some(line) if line.before.as_ref() == file => {
            report.note(
                full,
                format!("its file is behind its last line (`{}`) in the op-log", line.op),
                NEXT,
            );
        }
        Some(line) => {
            let (file, then) = (place(file), place(line.after.as_ref()));
            let problem = format!("{full} is at {file}, and its last line leaves it at {then}");
            report.damage(oplog::FILE, problem, NEXT);
        }
        None => report.damage(oplog::FILE, format!("no log line mentions {full}"), NEXT),
    }
}

/// Where a ref is, in words.
fn place(at: Option<&Hash>) -> String {
    at.map_or_else(|| "no commit".to_owned(), |at| at.short().to_owned())
}

/// The temporary files that a crash left in the folders that are written to.
pub(super) fn litter(photo: &Path) -> Result<Vec<PathBuf>, PhotoError> {
    let mut found = Vec::new();
    let mut folders: Vec<_> =
        ["", "objects", "refs", "previews", "sessions"].map(|name| photo.join(name)).into();
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(PhotoError::io("list", &folder)(e)),
        };
        for entry in entries {
            let path = entry.map_err(PhotoError::io("list", &folder))?.path();
            if fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir()) {
                if folder != photo.join("") {
                    folders.push(path);
                }
            } else if is_temporary(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// As [`base::durable::write`] names them.
pub fn is_temporary(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".tmp-"))
}

fn check_lines<T: DeserializeOwned>(
    folder: &Path,
    file: &str,
    report: &mut FsckReport,
) -> Result<Vec<T>, PhotoError> {
    let lines = jsonl::read::<T>(&folder.join(file))?;
    for bad in lines.bad {
        let what = format!("{file} line {}", bad.number);
        if bad.torn {
            report.note(what, "an incomplete line from a crash", "nothing to do: it is ignored");
        } else {
            report.damage(what, bad.reason, BACKUP);
        }
    }
    Ok(lines.items)
}

/// The error's own words, without the name of the thing, which the finding has already.
fn reason(error: &PhotoError) -> String {
    match error {
        PhotoError::Damaged { reason, .. } => reason.clone(),
        other => format!("{other} ({:?})", other.code()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::photo::Operation;
    use crate::photo::testing::{TestPhoto, exposure, name, take_in};

    /// `main` one edit from the baseline, and an edit that no ref leads to.
    fn photo() -> TestPhoto {
        let photo = TestPhoto::new();
        let mut writer = photo.person();
        let baseline = photo.workspace.baseline().clone();
        writer.create_branch(&name("lost"), &baseline).unwrap();
        for (branch, ev) in [("main", 1.0), ("lost", 2.0)] {
            writer.record_edit(&name(branch), &baseline, &exposure(ev), Operation::Snapshot, "").unwrap();
        }
        writer.delete_branch(&name("lost")).unwrap();
        photo
    }

    #[test]
    fn a_whole_photo_is_proven_whole() {
        let report = photo().workspace.fsck().unwrap();
        assert_eq!((&report.damages, &report.notes), (&vec![], &vec![]));
        assert_eq!((report.states, report.commits, report.refs, report.dangling), (3, 3, 2, 2));
        assert_eq!(report.log_lines, 5);
    }

    #[test]
    fn every_damage_is_found_and_named() {
        let baseline = photo().workspace.baseline().clone();
        let tip = photo().tip("main");
        let state = photo().workspace.commit(&tip).unwrap().state;
        let file = |kind: &str, hash: &Hash| {
            let (shard, rest) = hash.as_str().split_at(2);
            format!("objects/{kind}/{shard}/{rest}")
        };
        let cases = [
            (file("states", &state), Some("{}"), format!("state {state}")),
            (file("states", &state), None, format!("commit {tip}")),
            (file("commits", &tip), Some("x"), format!("commit {tip}")),
            (file("commits", &tip), None, "branch `main`".into()),
            (file("commits", &baseline), None, "the baseline".into()),
            ("refs/heads/main".into(), Some("nonsense"), "branch `main`".into()),
            ("refs/heads/main".into(), None, "HEAD".into()),
            ("refs/tags/x".into(), Some(&*format!("{}\n", Hash::of("x"))), "tag `x`".into()),
            ("HEAD".into(), Some("ref: refs/heads/none\n"), "HEAD".into()),
            ("HEAD".into(), None, "HEAD".into()),
            ("log.jsonl".into(), Some("{}\n"), "log.jsonl line 1".into()),
            ("vocabulary_gaps.jsonl".into(), Some("[]\n"), "vocabulary_gaps.jsonl line 1".into()),
            ("raw/Iguana.DNG".into(), None, "raw/Iguana.DNG".into()),
        ];
        for (path, text, expected) in cases {
            let photo = photo();
            match text {
                Some(text) => photo.write(&path, text),
                None => fs::remove_file(photo.workspace.folder().join(&path)).unwrap(),
            }
            let report = photo.workspace.fsck().unwrap();
            assert!(!report.is_whole(), "{path}");
            assert!(report.damages.iter().any(|f| f.what == expected), "{path}: {:?}", report.damages);
            assert!(report.damages.iter().all(|f| !f.remedy.is_empty()));
        }
    }

    #[test]
    fn a_changed_raw_is_damage() {
        let photo = photo();
        fs::write(photo.dir.path().join("Iguana.DNG"), "other data").unwrap();
        assert_eq!(photo.workspace.fsck().unwrap().damages[0].what, "raw/Iguana.DNG");
    }

    #[test]
    fn a_device_or_a_pipe_in_the_raws_place_is_damage_and_not_read_for_ever() {
        let photo = photo();
        let raw = photo.workspace.raw().path;
        let pipe = photo.dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for place in [Path::new("/dev/zero"), &pipe] {
            fs::remove_file(&raw).unwrap();
            std::os::unix::fs::symlink(place, &raw).unwrap();
            let report = photo.workspace.fsck().unwrap();
            assert!(report.damages[0].problem.contains("not a regular file"), "{:?}", report.damages);
            assert!(take_in(&photo.library, &raw).is_err());
        }
    }

    #[test]
    fn what_a_crash_leaves_is_noted_and_no_damage() {
        let photo = photo();
        let log = photo.read("log.jsonl");
        photo.write("log.jsonl", &format!("{log}{{\"t\":\"20"));
        photo.write("refs/heads/.tmp-x", "half");
        photo.write("objects/states/stray", "");
        let report = photo.workspace.fsck().unwrap();
        assert!(report.is_whole(), "{:?}", report.damages);
        let whats: Vec<_> = report.notes.iter().map(|f| f.what.as_str()).collect();
        assert_eq!(whats, ["objects/states/stray", "log.jsonl line 6", "refs/heads/.tmp-x"]);
        // An op-log line whose ref did not follow.
        photo.write("log.jsonl", &log);
        let baseline = photo.workspace.baseline().clone();
        photo.person().create_branch(&name("cut"), &baseline).unwrap();
        fs::remove_file(photo.workspace.folder().join("refs/heads/cut")).unwrap();
        let report = photo.workspace.fsck().unwrap();
        assert!(report.is_whole() && report.notes[1].problem.contains("create branch"), "{:?}", report.notes);
    }

    #[test]
    fn lost_lines_of_the_log_are_found_wherever_they_were_and_every_remedy_helps() {
        let photo = photo();
        let mut person = photo.person();
        person.checkout("baseline").unwrap();
        person.create_branch(&name("last"), &photo.tip("main")).unwrap();
        drop(person);
        assert!(photo.workspace.fsck().unwrap().is_whole());
        let log = photo.read("log.jsonl");
        let lines: Vec<&str> = log.lines().collect();
        for lost in 0..lines.len() {
            let mut fewer = lines.clone();
            fewer.remove(lost);
            // As an earlier build wrote them: without a hash.
            let plain = |line: &&str| line.split(",\"own_sha256\"").next().unwrap().to_owned() + "}\n";
            for text in [fewer.join("\n") + "\n", fewer.iter().map(plain).collect()] {
                photo.write("log.jsonl", &text);
                let report = photo.workspace.fsck().unwrap();
                assert!(!report.is_whole(), "line {lost}: {:?}", report.notes);
            }
        }
        photo.write("log.jsonl", &log);

        // Taking the lock does what the findings say.
        for (file, found) in [("last", None), ("main", None), ("last", Some("nonsense")), ("main", Some("x"))]
        {
            let (tip, path) = (photo.tip(file), format!("refs/heads/{file}"));
            match found {
                Some(text) => photo.write(&path, text),
                None => fs::remove_file(photo.workspace.folder().join(&path)).unwrap(),
            }
            let report = photo.workspace.fsck().unwrap();
            assert!(!(report.damages.is_empty() && report.notes.is_empty()), "{path}");
            assert!(
                report.damages.iter().chain(&report.notes).all(|found| found.remedy == NEXT),
                "{report:?}"
            );
            drop(photo.person());
            assert_eq!(photo.read(&path), format!("{tip}\n"));
            assert!(photo.workspace.fsck().unwrap().is_whole());
        }
    }

    #[test]
    fn gc_removes_what_no_ref_leads_to_and_rehearses_first() {
        let photo = photo();
        photo.write("refs/heads/.tmp-x", "half");
        let rehearsal = photo.person().gc(true).unwrap();
        assert_eq!((rehearsal.commits.len(), rehearsal.states.len(), rehearsal.litter.len()), (1, 1, 1));
        assert!(rehearsal.bytes > 4);
        assert_eq!(photo.workspace.fsck().unwrap().dangling, 2);
        let done = photo.person().gc(false).unwrap();
        assert_eq!((done.commits, done.bytes), (rehearsal.commits, rehearsal.bytes));
        let report = photo.workspace.fsck().unwrap();
        assert_eq!((report.dangling, report.states, report.notes.len()), (0, 2, 0));
        assert_eq!(photo.workspace.state_of(&photo.tip("main")).unwrap(), exposure(1.0));
        // What cannot be followed to its end is no ground to delete anything.
        photo.write("refs/tags/x", &format!("{}\n", Hash::of("x")));
        assert!(photo.person().gc(false).is_err());
    }
}
