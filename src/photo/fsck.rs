//! Proving a photo's folder whole, or listing each damage with what to do about it.

use std::collections::HashSet;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::error::Coded;
use crate::ids::Hash;
use crate::photo::error::PhotoError;
use crate::photo::gaps::{self, Gap};
use crate::photo::jsonl;
use crate::photo::objects::{Commit, Kind};
use crate::photo::oplog::{self, OpLine};
use crate::photo::proposals;
use crate::photo::refs::{Head, RefKind};
use crate::photo::workspace::Workspace;

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
    /// Objects that no ref leads to; `gc` would remove them.
    pub dangling: usize,
}

impl FsckReport {
    /// Whether nothing is broken.
    pub fn is_whole(&self) -> bool {
        self.damages.is_empty()
    }

    fn damage(&mut self, what: impl Into<String>, problem: impl Into<String>, remedy: &str) {
        self.damages.push(Finding { what: what.into(), problem: problem.into(), remedy: remedy.into() });
    }

    fn note(&mut self, what: impl Into<String>, problem: impl Into<String>, remedy: &str) {
        self.notes.push(Finding { what: what.into(), problem: problem.into(), remedy: remedy.into() });
    }
}

const REPLAY: &str =
    "if a session made it, `chemigram mode-b replay` writes it again; else restore it from a backup";
const BACKUP: &str = "restore it from a backup";

impl Workspace {
    /// Checks everything: each object against its name, each commit's parents and state, each ref, HEAD, the
    /// lines of every log, and the raw against its hash. Writes nothing. Fails only if the folder cannot be
    /// read at all.
    pub fn fsck(&self) -> Result<FsckReport, PhotoError> {
        let mut report = FsckReport::default();
        let good_states = self.check_states(&mut report)?;
        let commits = self.check_commits(&good_states, &mut report)?;
        self.check_refs(&commits, &mut report)?;
        self.check_head(&mut report);
        self.check_log(&commits, &mut report)?;
        check_lines::<Gap>(self.folder(), gaps::FILE, &mut report)?;
        check_lines::<serde_json::Value>(self.folder(), proposals::FILE, &mut report)?;
        self.check_raw(&mut report);
        for path in litter(self.folder())? {
            report.note(
                self.relative(&path),
                "a temporary file that a crash left",
                "`chemigram gc` removes it",
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
                Err(e) => report.damage(format!("state {hash}"), reason(&e), REPLAY),
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
                Err(e) => report.damage(format!("commit {hash}"), reason(&e), REPLAY),
            }
        }
        let known: HashSet<Hash> = good.iter().map(|(hash, _)| hash.clone()).collect();
        for (hash, commit) in &good {
            let what = format!("commit {hash}");
            if !states.contains(&commit.state) {
                let problem = format!("its state {} is missing or damaged", commit.state);
                report.damage(what.clone(), problem, REPLAY);
            }
            for parent in commit.parents.iter().filter(|parent| !known.contains(*parent)) {
                report.damage(what.clone(), format!("its parent {parent} is missing or damaged"), REPLAY);
            }
        }
        report.commits = known.len();
        Ok(known)
    }

    fn check_refs(&self, commits: &HashSet<Hash>, report: &mut FsckReport) -> Result<(), PhotoError> {
        for kind in [RefKind::Branch, RefKind::Tag] {
            let (names, strange) = self.refs().names(kind)?;
            self.note_strange(&strange, report);
            for name in names {
                let what = format!("{kind} `{name}`");
                let remedy = "the op-log's last line for it says where it should be";
                match self.refs().read(kind, &name) {
                    Ok(Some(hash)) if commits.contains(&hash) => report.refs += 1,
                    Ok(Some(hash)) => {
                        report.damage(what, format!("its commit {hash} is missing or damaged"), remedy)
                    }
                    Ok(None) => report.damage(what, "it cannot be read", remedy),
                    Err(e) => report.damage(what, reason(&e), remedy),
                }
            }
        }
        if !commits.contains(self.baseline()) {
            let problem = format!("its commit {} is missing or damaged", self.baseline());
            report.damage("the baseline", problem, "ingest the raw again under another id");
        }
        Ok(())
    }

    fn check_head(&self, report: &mut FsckReport) {
        let remedy = "`chemigram checkout` a branch";
        match (self.head(), self.head_commit()) {
            (Err(e), _) | (_, Err(e)) => report.damage("HEAD", reason(&e), remedy),
            (Ok(Head::Detached(commit)), _) if self.commit(&commit).is_err() => {
                report.damage("HEAD", format!("its commit {commit} is missing or damaged"), remedy);
            }
            _ => {}
        }
    }

    fn check_log(&self, commits: &HashSet<Hash>, report: &mut FsckReport) -> Result<(), PhotoError> {
        let lines = check_lines::<OpLine>(self.folder(), oplog::FILE, report)?;
        report.log_lines = lines.len();
        if let Some(last) = lines.last() {
            let now = match last.reference.as_str() {
                "HEAD" => self.head_commit().ok(),
                full => self.resolve(full).ok(),
            };
            // A session that was cut between line and ref repeats its call, and then they agree.
            if now != last.after && last.after.as_ref().is_none_or(|after| commits.contains(after)) {
                let problem =
                    format!("its last line (`{}` on {}) did not come into effect", last.op, last.reference);
                report.note(oplog::FILE, problem, "repeat it if it is still wanted");
            }
        }
        Ok(())
    }

    fn check_raw(&self, report: &mut FsckReport) {
        let raw = self.raw();
        let original = &self.photo().raw.original;
        match hash_file(&raw.path) {
            Ok((found, _)) if found == raw.sha256 => {}
            Ok(_) => report.damage(
                format!("raw/{}", self.photo().raw.name),
                "its bytes are not those that were ingested",
                "put the original back",
            ),
            Err(e) => report.damage(
                format!("raw/{}", self.photo().raw.name),
                format!("it cannot be read ({e})"),
                &format!("put the original back at {original}"),
            ),
        }
    }

    fn note_strange(&self, strange: &[PathBuf], report: &mut FsckReport) {
        for path in strange.iter().filter(|path| !is_temporary(path)) {
            report.note(self.relative(path), "it does not belong here", "move it away");
        }
    }

    fn relative(&self, path: &Path) -> String {
        path.strip_prefix(self.folder()).unwrap_or(path).display().to_string()
    }
}

/// SHA-256 and length of a file, read in pieces.
pub(super) fn hash_file(path: &Path) -> io::Result<(Hash, u64)> {
    let mut file = File::open(path)?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    let mut length = 0;
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            return Ok((Hash::finish(digest), length));
        }
        digest.update(buffer.get(..n).unwrap_or_default());
        length += n as u64;
    }
}

/// The temporary files that a crash left in the folders that are written to.
pub(super) fn litter(photo: &Path) -> Result<Vec<PathBuf>, PhotoError> {
    let mut found = Vec::new();
    let mut folders = vec![photo.to_owned(), photo.join("objects"), photo.join("refs")];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(PhotoError::io("list", &folder)(e)),
        };
        for entry in entries {
            let path = entry.map_err(PhotoError::io("list", &folder))?.path();
            if fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir()) {
                if folder != photo {
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

/// As [`crate::durable::write`] names them.
fn is_temporary(path: &Path) -> bool {
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
            report.note(what, "a line that a crash tore", "nothing: it is passed over");
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
