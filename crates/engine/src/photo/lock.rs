//! The exclusive lock on a photo's folder: a system file lock, which ends with the process that holds it, and
//! a text in the locked file that says who that is.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Seek, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::photo::error::PhotoError;
use crate::photo::oplog::time;
use base::durable;
use base::files;

/// Its file in a photo's folder. Never removed: removing a lock file while another process opens it would
/// let two of them hold "the" lock.
pub(super) const FILE: &str = "lock";

/// The most that it may hold, in bytes.
const LARGEST: u64 = 4096;

/// Who holds a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Holder {
    /// Process id.
    pub pid: u32,
    /// What for, as a phrase: `mode-b session …`.
    pub purpose: String,
    /// Since when (UTC).
    #[serde(with = "time")]
    #[schemars(with = "jiff::Timestamp")]
    pub since: jiff::Timestamp,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "by process {} ({}) since {:.0}", self.pid, self.purpose, self.since)
    }
}

/// The lock while it is held.
#[derive(Debug)]
pub(super) struct Lock(File);

impl Lock {
    /// Takes the lock of the photo folder `folder`, if nobody keeps it.
    pub(super) fn take(folder: &Path, purpose: &str, now: jiff::Timestamp) -> Result<Self, PhotoError> {
        let path = folder.join(FILE);
        let io = || PhotoError::io("lock", &path);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true);
        let mut file = files::open_own(&path, &mut options).map_err(io())?;
        match durable::try_lock(&file, || holder(folder).map(|holder| holder.pid)) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let id = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
                return Err(PhotoError::Busy { id, holder: holder(folder) });
            }
            Err(TryLockError::Error(e)) => return Err(io()(e)),
        }
        let who = Holder { pid: std::process::id(), purpose: purpose.to_owned(), since: now };
        let text = serde_json::to_string(&who).unwrap_or_default();
        file.set_len(0).and_then(|()| file.rewind()).map_err(io())?;
        writeln!(file, "{text}").map_err(io())?;
        Ok(Self(file))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Best effort: whether a text that stays behind means anything, trying the lock tells.
        let _ = self.0.set_len(0);
        let _ = self.0.unlock();
    }
}

/// Who the lock file names; `None` when it cannot be read.
fn holder(folder: &Path) -> Option<Holder> {
    serde_json::from_slice(&files::read_own(&folder.join(FILE), LARGEST).ok()?).ok()
}

/// Who holds the lock now, found by trying a shared lock for a moment.
pub(super) fn held_by(folder: &Path) -> Result<Option<Holder>, PhotoError> {
    let path = folder.join(FILE);
    let file = match files::open_own(&path, OpenOptions::new().read(true)) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(PhotoError::io("read", &path)(e)),
    };
    let held = durable::is_locked(&file, || holder(folder).map(|holder| holder.pid));
    Ok(held.map_err(PhotoError::io("lock", &path))?.then(|| {
        holder(folder).unwrap_or(Holder {
            pid: 0,
            purpose: "unknown".into(),
            since: jiff::Timestamp::UNIX_EPOCH,
        })
    }))
}
