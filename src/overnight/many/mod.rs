//! Batches on many machines: one submits, any number work, and all they share is a store.
//!
//! ```text
//! submit ──▶ offer, jobs, raws, photos ──▶ store ──▶ worker: claim · reserve · session · publish · settle
//!                                            │
//! watch  ◀── what happened to each job ◀─────┘      collect: into the library of whoever submitted it
//! ```
//!
//! A job is one session of a plan, or one [`Cell`] of an evaluation. What decides its outcome is in the job, the photo's folder and the batch; where it runs does
//! not. The state of a job is the last message about it, and the folder of its photo is what all messages together
//! say, so that any worker goes on where another was lost.

use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::batch::changes::{self, Change, Changed, Content, Holds};
use crate::batch::nats::journal::{Stored, What};
use crate::batch::nats::{Store, StoreError};
use crate::eval::many::Cell;
use crate::overnight::plan::Caps;
use crate::overnight::record::PlannedSession;
use base::error::{ErrorCode, Fault};
use base::ids::{Hash, PhotoId, SessionId};

mod cells;
pub mod collect;
pub mod list;
mod losses;
mod mirror;
mod place;
pub mod submit;
pub mod worker;

/// The version of what is stored.
pub(crate) const FORMAT: u32 = 1;
/// The most text of one file that a message holds, in bytes; more is an object.
const INLINE: usize = 16 << 10;
/// The most text that a message holds.
const MESSAGE: usize = 256 << 10;

/// What a batch asks of those who work on it: with anything else its pictures would be others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirements {
    /// The version of chemigram.
    pub chemigram: String,
    /// The number of its engine.
    pub engine: u32,
    /// The version of darktable.
    pub darktable: String,
    /// The SHA-256 of the pixels of a test picture, as this darktable develops it.
    pub pixels: Hash,
}

impl Requirements {
    /// What these pixels and versions are on this machine.
    pub fn here(darktable: String, pixels: Hash) -> Self {
        let chemigram = env!("CARGO_PKG_VERSION").to_owned();
        Self { chemigram, engine: crate::session::ENGINE, darktable, pixels }
    }

    /// The name of the queue of those who meet them.
    fn group(&self) -> String {
        let hash = Hash::of(serde_json::to_vec(self).unwrap_or_default()).to_string();
        hash.chars().take(16).collect()
    }

    /// In which way `own` differs, in words; empty if it does not.
    pub fn differences(&self, own: &Self) -> String {
        let mut found = Vec::new();
        if self.chemigram != own.chemigram || self.engine != own.engine {
            let of = |one: &Self| format!("chemigram {} (engine {})", one.chemigram, one.engine);
            found.push(format!("it asks for {}, and this is {}", of(self), of(own)));
        }
        if self.darktable != own.darktable {
            found.push(format!("it asks for darktable {}, and this is {}", self.darktable, own.darktable));
        } else if self.pixels != own.pixels {
            found.push(format!("darktable {} develops a test picture differently here", own.darktable));
        }
        found.join("; ")
    }
}

/// A batch, as it was submitted. It does not change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Offer {
    pub format: u32,
    /// The hash of caps and sessions.
    pub plan: Hash,
    pub begun: Timestamp,
    pub caps: Caps,
    pub requires: Requirements,
    /// Its sessions, if it is a plan of many photos.
    pub sessions: Vec<PlannedSession>,
    /// What its cells are called, if it is an evaluation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<String>,
    /// The name of each one's job.
    pub jobs: Vec<Hash>,
}

/// What is known of a batch by its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// Its [`Offer`], as an object.
    pub offer: Hash,
    /// What it asks for.
    pub requires: Requirements,
    /// Sessions.
    pub jobs: usize,
    /// The run, if it is an evaluation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluation: Option<String>,
    /// Whether somebody cancelled it.
    #[serde(default)]
    pub cancelled: bool,
    /// Whether everything was collected.
    #[serde(default)]
    pub over: bool,
}

/// One job of a batch: everything that decides its outcome. The hash of this is its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Job {
    pub format: u32,
    pub batch: String,
    /// Its place in the batch, from 0.
    pub place: usize,
    #[serde(flatten)]
    pub work: Work,
}

/// What a job is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Work {
    Session(Box<PhotoSession>),
    Cell(Box<Cell>),
}

/// A session of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PhotoSession {
    pub planned: PlannedSession,
    /// The photo.
    pub photo: PhotoId,
    /// The folder of the photo, as a [`Pack`].
    pub folder: Hash,
    /// The folder of taste files, as a [`Pack`].
    pub tastes: Hash,
    /// The text of a protocol that the plan names by its file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

/// The files of a folder, as an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pack {
    pub files: Vec<Change>,
}

pub(crate) fn head_key(batch: &str) -> String {
    format!("batch.{batch}")
}

/// The key that says when a batch was first worked on.
fn begun_key(batch: &str) -> String {
    format!("begun.{batch}")
}

/// The key of the batch of a plan that is not over.
fn open_key(plan: &Hash) -> String {
    format!("open.{plan}")
}

pub(crate) fn read<T: serde::de::DeserializeOwned>(store: &Store, object: &Hash) -> Result<T, Fault> {
    let bytes = store.fetch(object).map_err(|e| Fault::from(&e))?;
    let damaged = |e: serde_json::Error| StoreError::Damaged {
        address: store.address().to_string(),
        what: format!("the object {object}"),
        reason: e.to_string(),
    };
    serde_json::from_slice(&bytes).map_err(|e| Fault::from(&damaged(e)))
}

/// Changed files as a message holds them: short text as it is, everything else as objects, which are stored first.
pub(crate) fn packed(store: &Store, changed: Vec<Changed>) -> Result<Vec<Change>, StoreError> {
    let mut room = MESSAGE;
    let mut changes = Vec::new();
    for Changed { path, at, bytes } in changed {
        let content = match bytes.map(String::from_utf8) {
            None => None,
            Some(Ok(text)) if text.len() <= INLINE.min(room) => {
                room -= text.len();
                Some(Content::Text(text))
            }
            Some(Ok(text)) => Some(Content::Object(store.put(text.as_bytes())?)),
            Some(Err(binary)) => Some(Content::Object(store.put(binary.as_bytes())?)),
        };
        changes.push(Change { path, at, content });
    }
    Ok(changes)
}

/// The new bytes of a change; `None` if the file is gone.
pub(crate) fn content(store: &Store, change: &Change) -> Result<Option<Vec<u8>>, Fault> {
    Ok(match &change.content {
        None => None,
        Some(Content::Text(text)) => Some(text.clone().into_bytes()),
        Some(Content::Object(hash)) => Some(store.fetch(hash).map_err(|e| Fault::from(&e))?),
    })
}

/// The files of a folder as an object.
pub(crate) fn pack(store: &Store, files: Vec<Changed>) -> Result<Hash, Fault> {
    let told = |e: StoreError| Fault::from(&e);
    let pack = Pack { files: packed(store, files).map_err(told)? };
    store.put(&serde_json::to_vec(&pack).unwrap_or_default()).map_err(told)
}

/// Makes changes in a copy of the folder.
pub(crate) fn apply<'a>(
    store: &Store,
    folder: &Path,
    holds: Holds,
    changes: impl IntoIterator<Item = &'a Change>,
) -> Result<(), Fault> {
    for change in changes {
        let bytes = content(store, change)?;
        changes::apply(folder, holds, change, bytes.as_deref())
            .map_err(|e| crate::launch::refused("write", &folder.join(&change.path), &e))?;
    }
    Ok(())
}

/// The changes of the folder of a photo that the messages of a job tell, oldest first.
pub(crate) fn changes_of(history: &[Stored]) -> impl Iterator<Item = &Change> {
    history.iter().flat_map(|stored| match &stored.message.what {
        What::Changed { changes } => changes.as_slice(),
        _ => &[],
    })
}

/// Whether a file of a photo belongs to what a later session finds there: edits, notes, and the transcripts of earlier
/// sessions, which it may read. Their replies and pictures do not.
fn is_found_later(path: &str) -> bool {
    !path.starts_with("previews/") && (!path.starts_with("sessions/") || path.ends_with("/transcript.jsonl"))
}

/// The session of a job, once it has a transcript.
fn session_of(history: &[Stored]) -> Option<SessionId> {
    changes_of(history).find_map(|change| {
        let id = change.path.strip_prefix("sessions/mode_b/")?.strip_suffix("/transcript.jsonl")?;
        id.parse().ok()
    })
}

/// A batch that the store does not have.
pub(crate) fn unknown(store: &Store, batch: &str) -> Fault {
    Fault::new(ErrorCode::NotFound, format!("the store {} has no batch `{batch}`", store.address()))
        .with("remedy", "list them with `chemigram batch list --store ADDRESS`")
}
