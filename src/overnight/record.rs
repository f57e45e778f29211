//! A batch on disk: what it is, what became of each of its sessions, and which process runs it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::batch::folders;
use crate::budget::Budget;
use crate::overnight::BatchError;
use crate::overnight::plan::Caps;
use crate::transcript::{Outcome, Vector};
use base::durable;
use base::error::{ErrorCode, Fault};
use base::files;
use base::ids::{Hash, PhotoId, SessionId};
use engine::photo::Library;

/// The version of `night.json`, the record of a batch.
const FORMAT: u32 = 1;
/// The folder of all batches, in a library.
const FOLDER: &str = "overnight";
const RECORD: &str = "night.json";
const PLAN: &str = "plan.toml";
const LEDGER: &str = "ledger.jsonl";
const LOCK: &str = "lock";

/// One session of a plan, with everything read and looked up: this is what runs, even if the files that it came
/// from change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedSession {
    /// The photo as the plan names it.
    pub photo: String,
    /// Its raw file, where the plan names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<PathBuf>,
    /// The hash of its raw.
    pub sha256: Hash,
    /// The brief; `None` takes the photo's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brief: Option<String>,
    /// What to judge by; `None` leaves it to taste and brief.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub criteria: Option<String>,
    /// The axes to explore.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vectors: Vec<Vector>,
    /// What it may spend.
    pub budget: Budget,
    /// The provider.
    pub provider: String,
    /// Its model.
    pub model: String,
    /// The model that goes on if that one fails for good, as `PROVIDER[:MODEL]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// Whether neither costs anything.
    pub free: bool,
    /// The protocol, by name or file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Values of its variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub vars: BTreeMap<String, String>,
    /// Who gives second opinions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub referee: Option<String>,
    /// What to fork from.
    pub from: String,
    /// The prompt, if it is not the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The seed.
    pub seed: u64,
    /// Longest side of previews in pixels.
    pub preview_size: u32,
    /// By how much the copy of the raw is smaller that previews come from: `off`, `auto` or a number.
    pub proxy: String,
    /// Whether it is to propose nothing for taste and notes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_proposals: bool,
}

/// What a batch is; fixed when it is begun.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The version of this form.
    pub format: u32,
    /// Its name: when it was begun (UTC).
    #[serde(rename = "night")]
    pub name: String,
    /// The plan's file.
    pub plan: PathBuf,
    /// The hash of caps and sessions: the same plan again is the same batch, until that is over.
    pub sha256: Hash,
    /// When it was begun.
    pub begun: Timestamp,
    /// What it may use.
    pub caps: Caps,
    /// Its sessions.
    #[serde(rename = "orders")]
    pub sessions: Vec<PlannedSession>,
}

/// The hash of a plan.
pub fn hash(caps: &Caps, sessions: &[PlannedSession]) -> Hash {
    Hash::of(serde_json::to_vec(&(FORMAT, caps, sessions)).unwrap_or_default())
}

/// Something that happened in a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Entry {
    /// A process began to run the batch.
    #[serde(rename = "sitting")]
    RunStarted {
        /// The process.
        pid: u32,
        /// Sessions at once.
        jobs: usize,
    },
    /// A session is about to start, or to be resumed.
    Started {
        /// Its place in the plan, from 0.
        place: usize,
        /// Its photo.
        photo: PhotoId,
        /// Its id.
        session: SessionId,
        /// What it may spend: what the plan says, or what the batch had left.
        budget: Budget,
        /// Whether it is resumed.
        again: bool,
    },
    /// A session has its closing line.
    Ended {
        /// Its place in the plan, from 0.
        place: usize,
        /// Its id.
        session: SessionId,
        /// How it ended.
        outcome: Outcome,
        /// The exit status that it would have had by itself.
        status: u8,
        /// Whether it ended because the batch was stopped: it resumes with the batch.
        cut: bool,
    },
    /// The provider of a session cannot be reached: it was left as it is, and is resumed when the provider is back.
    Paused {
        /// Its place in the plan, from 0.
        place: usize,
        /// Its id.
        session: SessionId,
        /// The last failure.
        why: String,
        /// For how long nothing is tried.
        pause_ms: u64,
    },
    /// A session could not start, or stopped without a closing line.
    Failed {
        /// Its place in the plan, from 0.
        place: usize,
        /// The code.
        code: ErrorCode,
        /// Why.
        message: String,
        /// What to do about it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remedy: Option<String>,
    },
    /// A session was not started.
    NotBegun {
        /// Its place in the plan, from 0.
        place: usize,
        /// Why.
        why: String,
    },
    /// Nothing is left to do.
    Closed,
}

impl Entry {
    /// The entry of a session that could not start or continue.
    pub fn failed(place: usize, fault: &Fault) -> Self {
        let remedy = base::error::Coded::remedy(fault);
        Self::Failed { place, code: fault.code, message: fault.message.clone(), remedy }
    }
}

/// An entry with its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stamped {
    /// When (UTC), for people.
    pub t: Timestamp,
    /// How long the batch has run, in milliseconds: the time between its runs is not counted, and a change of the
    /// wall clock has no effect. Absent in what earlier builds wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mono_ms: Option<u64>,
    /// What.
    #[serde(flatten)]
    pub entry: Entry,
}

/// What became of a session of a batch, by the ledger.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionStatus {
    /// Its turn has not come.
    Waiting,
    /// It was started, and nothing says that it ended: it runs, or was killed.
    Started,
    /// It has ended.
    Ended {
        /// How.
        outcome: Outcome,
        /// The exit status that it would have had by itself.
        status: u8,
        /// Whether it ended because the batch was stopped.
        cut: bool,
    },
    /// It could not start, or stopped in the middle.
    Failed(Fault),
    /// It was not started: why.
    NotBegun(String),
}

/// What the ledger says of one session.
#[derive(Clone, Debug, PartialEq)]
pub struct Track {
    /// Its photo, its id and the budget that it was given, once it was started; the last one of several.
    pub session: Option<(PhotoId, SessionId, Budget)>,
    /// Every session that was started for it: each may have spent something.
    pub all: Vec<(PhotoId, SessionId, Budget)>,
    /// What became of it.
    pub status: SessionStatus,
}

/// A batch as it is on disk.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Its folder.
    pub folder: PathBuf,
    /// What it is.
    pub record: Record,
    /// What happened, oldest first.
    pub entries: Vec<Stamped>,
}

impl Batch {
    /// Reads a batch from its folder.
    pub fn read(folder: &Path) -> Result<Self, BatchError> {
        let path = folder.join(RECORD);
        let bytes = files::read_own(&path, files::LARGEST_LIST).map_err(BatchError::io("read", &path))?;
        let damaged = |path: &Path, reason: String| BatchError::Damaged { path: path.to_owned(), reason };
        let record: Record = serde_json::from_slice(&bytes).map_err(|e| damaged(&path, e.to_string()))?;
        if record.format > FORMAT {
            let reason = format!("it was written by a newer chemigram (format {})", record.format);
            return Err(damaged(&path, reason));
        }
        if hash(&record.caps, &record.sessions) != record.sha256 {
            return Err(damaged(&path, "its content does not match its hash".into()));
        }
        let path = folder.join(LEDGER);
        let bytes = match files::read_own(&path, files::LARGEST) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(BatchError::io("read", &path)(e)),
        };
        let mut entries = Vec::new();
        // As bytes: a line may be torn within a character.
        let lines = bytes.split(|byte| *byte == b'\n').enumerate();
        for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
            match serde_json::from_slice(line) {
                Ok(entry) => entries.push(entry),
                // A crash tears the line that it is writing; what that line says was not done yet.
                Err(e) if e.is_eof() => {}
                Err(e) => return Err(damaged(&path, format!("line {}: {e}", number + 1))),
            }
        }
        Ok(Self { folder: folder.to_owned(), record, entries })
    }

    /// What became of each session, in the plan's order.
    pub fn tracks(&self) -> Vec<Track> {
        let fresh = || Track { session: None, all: Vec::new(), status: SessionStatus::Waiting };
        let mut tracks: Vec<Track> = self.record.sessions.iter().map(|_| fresh()).collect();
        for stamped in &self.entries {
            let (place, status) = match &stamped.entry {
                Entry::Started { place, photo, session, budget, .. } => {
                    let begun = (photo.clone(), session.clone(), budget.clone());
                    if let Some(track) = tracks.get_mut(*place) {
                        if track.all.iter().all(|(_, known, _)| known != session) {
                            track.all.push(begun.clone());
                        }
                        track.session = Some(begun);
                    }
                    (place, SessionStatus::Started)
                }
                Entry::Ended { place, outcome, status, cut, .. } => {
                    (place, SessionStatus::Ended { outcome: *outcome, status: *status, cut: *cut })
                }
                Entry::Failed { place, code, message, remedy } => {
                    let fault = Fault::new(*code, message);
                    let fault = match remedy {
                        Some(remedy) => fault.with("remedy", remedy.as_str()),
                        None => fault,
                    };
                    (place, SessionStatus::Failed(fault))
                }
                Entry::NotBegun { place, why } => (place, SessionStatus::NotBegun(why.clone())),
                Entry::Paused { place, .. } => (place, SessionStatus::Started),
                Entry::RunStarted { .. } | Entry::Closed => continue,
            };
            if let Some(track) = tracks.get_mut(*place) {
                track.status = status;
            }
        }
        tracks
    }

    /// Whether nothing is left to do.
    pub fn is_over(&self) -> bool {
        self.entries.last().is_some_and(|stamped| stamped.entry == Entry::Closed)
    }

    /// Appends an entry, synced; `at` is how long the batch has run.
    pub(super) fn append(&mut self, entry: Entry, at: Duration) -> Result<Stamped, BatchError> {
        let mono_ms = Some(u64::try_from(at.as_millis()).unwrap_or(u64::MAX));
        let stamped = Stamped { t: Timestamp::now(), mono_ms, entry };
        let path = self.folder.join(LEDGER);
        let line = serde_json::to_string(&stamped).unwrap_or_default();
        durable::append_line(&path, &line).map_err(BatchError::io("append to", &path))?;
        self.entries.push(stamped.clone());
        Ok(stamped)
    }

    /// Takes the batch for this process, unless another one runs it, until the lock is dropped.
    pub fn lock(&self) -> Result<BatchLock, BatchError> {
        let path = self.folder.join(LOCK);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true);
        let mut file = files::open_own(&path, &mut options).map_err(BatchError::io("lock", &path))?;
        let holder = || str::from_utf8(&files::read_own(&path, 64).ok()?).ok()?.trim().parse().ok();
        match durable::try_lock(&file, holder) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let pid = holder().unwrap_or(0);
                return Err(BatchError::Busy { name: self.record.name.clone(), pid });
            }
            Err(TryLockError::Error(e)) => return Err(BatchError::io("lock", &path)(e)),
        }
        let signed = file.set_len(0).and_then(|()| file.rewind());
        signed
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(BatchError::io("lock", &path))?;
        Ok(BatchLock(file))
    }
}

/// A batch while this process runs it. The system takes it back from a process that dies.
#[derive(Debug)]
pub struct BatchLock(#[allow(dead_code, reason = "it is held, not read")] File);

/// Makes the folder of a new batch and writes its record.
pub fn begin(
    library: &Library,
    plan: (&Path, &str),
    caps: Caps,
    sessions: Vec<PlannedSession>,
    now: Timestamp,
) -> Result<Batch, BatchError> {
    let batches = library.root().join(FOLDER);
    durable::make_folder(&batches).map_err(BatchError::io("make", &batches))?;
    let (name, folder) = folders::make(&batches, now).map_err(BatchError::io("make", &batches))?;
    let (file, text) = plan;
    let record = Record {
        format: FORMAT,
        name,
        plan: file.to_owned(),
        sha256: hash(&caps, &sessions),
        begun: now,
        caps,
        sessions,
    };
    let json = serde_json::to_vec_pretty(&record).unwrap_or_default();
    durable::sync_folder(&batches).map_err(BatchError::io("write", &batches))?;
    // The record last: with it, the folder is a batch.
    for (name, bytes) in [(PLAN, text.as_bytes()), (RECORD, &json)] {
        let path = folder.join(name);
        durable::write(&path, bytes).map_err(BatchError::io("write", &path))?;
    }
    Ok(Batch { folder, record, entries: Vec::new() })
}

/// The names of all batches of a library, oldest first.
pub fn names(library: &Library) -> Vec<String> {
    folders::names(&library.root().join(FOLDER), RECORD)
}

/// A batch by its name, the beginning of it, or `last`.
pub fn find(library: &Library, name: &str) -> Result<Batch, BatchError> {
    let all = names(library);
    match folders::matching(&all, name).as_slice() {
        [one] => Batch::read(&library.root().join(FOLDER).join(one)),
        [] => {
            let hint = match all.last() {
                Some(last) => format!("; the newest of {} is {last}", all.len()),
                None => format!(": there is none in {}", library.root().display()),
            };
            Err(BatchError::Unknown { name: name.to_owned(), hint })
        }
        several => Err(BatchError::Ambiguous { name: name.to_owned(), count: several.len() }),
    }
}

/// The sessions of batches that are not over.
///
/// # Errors
/// [`BatchError`], if a batch cannot be read: nobody knows then which sessions it needs.
pub fn in_open_batches(library: &Library) -> Result<BTreeSet<SessionId>, BatchError> {
    let mut needed = BTreeSet::new();
    for name in names(library) {
        let batch = Batch::read(&library.root().join(FOLDER).join(name))?;
        if !batch.is_over() {
            needed.extend(batch.tracks().into_iter().flat_map(|track| track.all).map(|(_, id, _)| id));
        }
    }
    Ok(needed)
}

/// A batch that is over and has no session left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OldBatch {
    /// Its name.
    pub name: String,
    /// Its files, in bytes.
    pub bytes: u64,
}

/// The batches that are over, began before, if that is given, and have no session that is still `there`.
///
/// # Errors
/// As [`in_open_batches`].
pub fn old(
    library: &Library,
    before: Option<Timestamp>,
    there: &dyn Fn(&SessionId, &PhotoId) -> bool,
) -> Result<Vec<OldBatch>, BatchError> {
    let mut old = Vec::new();
    for name in names(library) {
        let batch = Batch::read(&library.root().join(FOLDER).join(&name))?;
        let recent = before.is_some_and(|before| batch.record.begun >= before);
        let tracks = batch.tracks();
        let mut all = tracks.iter().flat_map(|track| &track.all);
        if recent || !batch.is_over() || all.any(|(photo, id, _)| there(id, photo)) {
            continue;
        }
        let files = std::fs::read_dir(&batch.folder).into_iter().flatten().flatten();
        let bytes = files.filter_map(|file| file.metadata().ok()).map(|meta| meta.len()).sum();
        old.push(OldBatch { name, bytes });
    }
    Ok(old)
}

/// Removes a batch that nobody runs. The record goes first: without it the folder is no batch.
///
/// # Errors
/// [`BatchError::Busy`], if a process runs it; the error of the file system.
pub fn remove(library: &Library, name: &str) -> Result<(), BatchError> {
    let folder = library.root().join(FOLDER).join(name);
    let _held = Batch::read(&folder)?.lock()?;
    let path = folder.join(RECORD);
    std::fs::remove_file(&path).map_err(BatchError::io("delete", &path))?;
    std::fs::remove_dir_all(&folder).map_err(BatchError::io("delete", &folder))
}

/// The newest batch of this hash that is not over. Batches that cannot be read are skipped.
pub fn unfinished(library: &Library, sha256: &Hash) -> Option<Batch> {
    let read = |name: String| Batch::read(&library.root().join(FOLDER).join(name)).ok();
    let mut batches = names(library).into_iter().rev().filter_map(read);
    batches.find(|batch| batch.record.sha256 == *sha256 && !batch.is_over())
}

#[cfg(test)]
pub(super) mod tests;
