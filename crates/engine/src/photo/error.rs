//! What can go wrong with a photo's workspace.

use std::io;
use std::path::{Path, PathBuf};

use crate::photo::lock::Holder;
use base::error::{Coded, ErrorCode, Fault};
use base::files;
use base::ids::{Hash, InvalidName, PhotoId, RefName};
use darktable::render::RenderError;
use darktable::xmp::XmpError;

/// Why a workspace could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum PhotoError {
    /// The file system refused.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was being done, as a verb.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// There is no such photo in the library.
    #[error("there is no photo `{id}` in {}", library.display())]
    NoPhoto {
        /// The id.
        id: PhotoId,
        /// Where it was looked for.
        library: PathBuf,
    },
    /// A name is malformed.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// A text or value is not usable as given.
    #[error("{0}")]
    Invalid(String),
    /// A spec names no commit.
    #[error("`{spec}` names no commit: {reason}")]
    Unresolved {
        /// The spec as given.
        spec: String,
        /// What was looked for.
        reason: String,
    },
    /// A short hash fits several commits.
    #[error("`{prefix}` is ambiguous: it fits {}", matches.iter().map(|h| h.short()).collect::<Vec<_>>().join(", "))]
    Ambiguous {
        /// The digits as given.
        prefix: String,
        /// The commits that fit.
        matches: Vec<Hash>,
    },
    /// Something stored is not what it should be.
    #[error("{what} is damaged: {reason}")]
    Damaged {
        /// Which object, ref or file.
        what: String,
        /// How it shows.
        reason: String,
    },
    /// A branch is not where the caller thought.
    #[error("branch `{branch}` is at {}, not at {}", found.short(), expected.short())]
    Moved {
        /// The branch.
        branch: RefName,
        /// Where the caller thought it was.
        expected: Hash,
        /// Where it is.
        found: Hash,
    },
    /// A branch of a session that is resumed was moved by somebody else.
    #[error("branch `{branch}` was moved since the session was interrupted: {}", moved_since(found.as_ref(), to.as_ref()))]
    MovedSince {
        /// The photo.
        photo: PhotoId,
        /// The branch.
        branch: RefName,
        /// Where it is; `None` if it is gone.
        found: Option<Hash>,
        /// Where the session needs it; `None` if it is to make it.
        to: Option<Hash>,
    },
    /// A branch or tag of that name, or one in its way, exists already.
    #[error("{0}")]
    RefTaken(String),
    /// Another process, or another part of this one, holds the workspace.
    #[error("photo `{id}` is in use {}", holder.as_ref().map_or_else(|| "by another process".to_owned(), ToString::to_string))]
    Busy {
        /// The photo.
        id: String,
        /// Who holds it, where that could be read.
        holder: Option<Holder>,
    },
    /// The caller may not do this.
    #[error("{0}")]
    Denied(String),
    /// A session has no live lease.
    #[error(transparent)]
    Lease(Fault),
    /// The raw is in the library already.
    #[error("{} is already in the library, as `{id}`", path.display())]
    AlreadyIngested {
        /// The raw as given.
        path: PathBuf,
        /// The photo that has it.
        id: PhotoId,
    },
    /// The given id belongs to another photo.
    #[error("the id `{id}` belongs to another photo")]
    IdTaken {
        /// The id.
        id: PhotoId,
    },
    /// The raw cannot be used.
    #[error("cannot ingest {}: {reason}", path.display())]
    BadRaw {
        /// The raw as given.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// darktable could not say what it does to the raw by default.
    #[error(transparent)]
    Baseline(#[from] RenderError),
    /// A sidecar cannot be taken over.
    #[error(transparent)]
    Sidecar(#[from] XmpError),
    /// What was read of a sidecar is not the edit that darktable reads.
    #[error(
        "the imported edit does not render to the same picture as the sidecar: {reason}; nothing was imported"
    )]
    NotTheSame {
        /// How it shows.
        reason: String,
    },
    /// There is no such proposal.
    #[error("there is no proposal `{0}`")]
    NoProposal(String),
    /// The proposal has been answered before.
    #[error("proposal `{id}` was already {status}")]
    Settled {
        /// The proposal.
        id: String,
        /// The answer it had.
        status: String,
    },
    /// The workspace is not in a state that allows this.
    #[error("{0}")]
    State(String),
}

impl PhotoError {
    /// Wraps what the file system said.
    pub fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, path: path.to_owned(), source }
    }
}

impl Coded for PhotoError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => ErrorCode::NotFound,
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    ErrorCode::PermissionDenied
                }
                io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => ErrorCode::InvalidInput,
                _ => ErrorCode::StateError,
            },
            Self::NoPhoto { .. } | Self::NoProposal(_) => ErrorCode::NotFound,
            Self::Name(_) | Self::Invalid(_) | Self::BadRaw { .. } => ErrorCode::InvalidInput,
            Self::Unresolved { .. }
            | Self::Ambiguous { .. }
            | Self::Damaged { .. }
            | Self::Moved { .. }
            | Self::MovedSince { .. }
            | Self::RefTaken(_) => ErrorCode::VersioningError,
            Self::Busy { .. }
            | Self::AlreadyIngested { .. }
            | Self::IdTaken { .. }
            | Self::Settled { .. }
            | Self::State(_) => ErrorCode::StateError,
            Self::Denied(_) => ErrorCode::PermissionDenied,
            Self::Lease(fault) => fault.code,
            Self::Baseline(error) => error.code(),
            Self::NotTheSame { .. } => ErrorCode::DarktableError,
            Self::Sidecar(error) => error.code(),
        }
    }

    fn halts(&self) -> bool {
        match self {
            Self::Lease(fault) => fault.halts(),
            Self::Baseline(error) => error.halts(),
            Self::Io { source, .. } => files::is_full(source),
            _ => false,
        }
    }

    fn remedy(&self) -> Option<String> {
        let text = match self {
            Self::Io { source, path, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                    let disk = files::disk(path);
                    return Some(format!(
                        "free some space on the disk at {} and try again; nothing was left half-written",
                        disk.display()
                    ));
                }
                io::ErrorKind::ReadOnlyFilesystem => {
                    "that disk is mounted read-only: mount it writable, or use another library folder"
                }
                io::ErrorKind::PermissionDenied => "check who owns that file or folder and its permissions",
                io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists | io::ErrorKind::IsADirectory => {
                    "a file stands where a folder should be, or the reverse: move it away"
                }
                io::ErrorKind::NotFound => "check the path",
                io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
                    "put a regular file of a reasonable size in its place"
                }
                _ => return None,
            },
            Self::NoPhoto { .. } => {
                "check the id and the library's folder; `chemigram ingest RAW` adds a photo"
            }
            Self::Unresolved { .. } => "`chemigram log PHOTO` shows the commits and the names they have",
            Self::Ambiguous { .. } => "give more digits",
            Self::Damaged { .. } => {
                "run `chemigram fsck PHOTO`: it lists each damage and what to do about it"
            }
            Self::Moved { .. } => "read where the branch is now and start from there",
            Self::MovedSince { photo, branch, found, to } => {
                let mut steps = Vec::new();
                if found.is_some() {
                    steps.push(format!(
                        "keep it as a branch of your own: `chemigram branch {photo} NAME {branch}`"
                    ));
                    steps.push(format!("delete it: `chemigram branch {photo} {branch} --delete`"));
                }
                if let Some(to) = to {
                    steps.push(format!(
                        "create it where the session had it: `chemigram branch {photo} {branch} {}`",
                        to.short()
                    ));
                }
                return Some(steps.join("; "));
            }
            Self::RefTaken(_) => "choose another name",
            Self::Busy { holder: Some(holder), .. } if holder.purpose.contains("session") => {
                "wait for it to end, or ask it to wrap up: `chemigram mode-b stop SESSION`"
            }
            Self::Busy { .. } => {
                "wait for it to end, or stop it; the lock goes with the process that holds it"
            }
            Self::AlreadyIngested { id, .. } => {
                return Some(format!("use the photo `{id}`"));
            }
            Self::IdTaken { .. } => "leave out --id, or choose another",
            Self::Settled { .. } | Self::NoProposal(_) => {
                "list the open proposals with `chemigram proposals list`"
            }
            Self::Baseline(error) => return error.remedy(),
            Self::Sidecar(error) => return error.remedy(),
            Self::Lease(fault) => return fault.remedy(),
            Self::BadRaw { .. } => {
                "use a raw, JPEG, PNG or TIFF file that darktable opens; if the file is damaged, copy it from the card again"
            }
            Self::Name(_) | Self::Invalid(_) | Self::Denied(_) | Self::State(_) | Self::NotTheSame { .. } => {
                return None;
            }
        };
        Some(text.to_owned())
    }
}

/// Where a branch is and where it was to be, in words.
fn moved_since(found: Option<&Hash>, to: Option<&Hash>) -> String {
    let found = found.map_or_else(|| "it is gone".to_owned(), |at| format!("it is at {}", at.short()));
    match to {
        Some(to) => format!("{found}, and the session goes on from {}", to.short()),
        None => format!("{found}, and the session is about to make it"),
    }
}
