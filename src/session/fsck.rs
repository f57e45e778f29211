//! `fsck` of a photo with its sessions: their transcripts, the files that these name, and whether each can be read to its
//! end.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base::files;
use base::ids::Hash;
use engine::photo::{BACKUP, FsckReport, PhotoError, Workspace, is_temporary};

use crate::session::{SessionError, listing};
use crate::transcript::{self, TranscriptError};

/// The kinds of sessions, by their folders.
const FOLDERS: [&str; 2] = ["sessions/mode_b", "sessions/generate"];

const NO_STRANGER: &str = "move it away";

/// Checks a photo, as [`Workspace::fsck`] does, and its sessions.
///
/// # Errors
/// A folder that cannot be read at all.
pub fn fsck(workspace: &Workspace) -> Result<FsckReport, SessionError> {
    let mut report = workspace.fsck()?;
    for kind in FOLDERS {
        for folder in entries(&workspace.folder().join(kind))? {
            if folder.is_dir() {
                check_session(workspace, &folder, &mut report)?;
            } else if !is_temporary(&folder) {
                report.note(workspace.relative(&folder), "it does not belong here", NO_STRANGER);
            }
        }
    }
    listing::prove(workspace, &mut report)?;
    Ok(report)
}

fn check_session(workspace: &Workspace, folder: &Path, report: &mut FsckReport) -> Result<(), PhotoError> {
    let (mut there, mut damaged) = (BTreeSet::new(), BTreeSet::new());
    for path in entries(&folder.join("blobs"))?.into_iter().filter(|path| !is_temporary(path)) {
        let what = workspace.relative(&path);
        let Some(name) = path.file_name().and_then(|name| name.to_str()?.parse::<Hash>().ok()) else {
            report.note(what, "it does not belong here", NO_STRANGER);
            continue;
        };
        match files::hash(&path) {
            Ok((found, _)) if found == name => drop(there.insert(name)),
            found => {
                let why = found.map_or_else(|e| e.to_string(), |(now, _)| format!("they hash to {now}"));
                report.damage(what, format!("its bytes are not those that were written: {why}"), BACKUP);
                damaged.insert(name);
            }
        }
    }
    let path = folder.join("transcript.jsonl");
    let what = workspace.relative(&path);
    let read = match transcript::read(&path) {
        Ok(read) => read,
        // It was killed before it began.
        Err(TranscriptError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(());
        }
        Err(TranscriptError::Damaged { line, reason, .. }) => {
            let remedy = format!("{BACKUP}; the branches and commits of the session are checked separately");
            report.damage(format!("{what} line {line}"), reason, &remedy);
            return Ok(());
        }
        Err(TranscriptError::Io { source, .. }) => {
            report.damage(what, format!("it cannot be read ({source})"), BACKUP);
            return Ok(());
        }
    };
    report.sessions += 1;
    if read.torn > 0 {
        report.note(what, "its last line was torn by a crash", "nothing to do: it is ignored");
    }
    let named: BTreeSet<&Hash> = read.lines.iter().flat_map(|line| line.event.blobs()).collect();
    for name in named.into_iter().filter(|name| !there.contains(*name) && !damaged.contains(*name)) {
        let what = workspace.relative(&folder.join("blobs").join(name.as_str()));
        report.damage(what, "it is missing, and the session's transcript names it", BACKUP);
    }
    Ok(())
}

/// What is in a folder, in order; nothing, if it is missing.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, PhotoError> {
    let listed = match fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => {
            listed.and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>())
        }
    };
    let mut paths = listed.map_err(PhotoError::io("list", folder))?;
    paths.sort();
    Ok(paths)
}
