//! A batch: many sessions, one after the other or a few at once, under one budget, with one report.
//!
//! ```text
//! LIBRARY/overnight/<batch>/
//!   plan.toml       the plan as it was written
//!   night.json      the same with everything read in: what the batch is
//!   ledger.jsonl    what was started, and what became of it; only ever appended to
//!   lock            held while a process runs the batch
//!   report.html report.txt
//! ```
//!
//! The ledger says which sessions there are; what was spent is the fold of their transcripts, read again whenever the
//! batch is run. So a batch that is killed at any moment continues where it was, and pays nothing twice.

pub mod many;
mod outage;
pub mod page;
pub mod plan;
pub mod record;
pub mod report;
pub mod resolve;
pub mod run;
pub mod share;
mod spent;

use std::path::PathBuf;

use crate::transcript::{file_code, file_remedy};
use base::error::{Coded, ErrorCode};

/// Why a batch cannot start or continue. The errors of a single session are never among these.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// There is none of that name.
    #[error("there is no batch `{name}`{hint}")]
    Unknown {
        /// As given.
        name: String,
        /// What there is.
        hint: String,
    },
    /// The beginning of a name that several have.
    #[error("`{name}` is the beginning of {count} batch names")]
    Ambiguous {
        /// As given.
        name: String,
        /// How many.
        count: usize,
    },
    /// Another process runs it.
    #[error("process {pid} is running the batch {name}")]
    Busy {
        /// The batch.
        name: String,
        /// The process; 0 when it does not say.
        pid: u32,
    },
    /// A file of it cannot be trusted.
    #[error("{path} is damaged: {reason}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The system refused.
    #[error("cannot {doing} {path}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

impl BatchError {
    pub(crate) fn io(
        doing: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> BatchError {
        let path = path.into();
        move |source| BatchError::Io { doing, path, source }
    }
}

impl Coded for BatchError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Unknown { .. } => ErrorCode::NotFound,
            Self::Ambiguous { .. } => ErrorCode::InvalidInput,
            Self::Busy { .. } => ErrorCode::StateError,
            Self::Damaged { .. } => ErrorCode::VersioningError,
            Self::Io { source, .. } => file_code(source),
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::Unknown { .. } => None,
            Self::Ambiguous { .. } => Some("give more of the name".into()),
            Self::Busy { .. } => Some("wait for it to end, or stop it with Ctrl-C in its terminal".into()),
            Self::Damaged { .. } => {
                Some("its sessions are not affected: `chemigram mode-b list` lists them".into())
            }
            Self::Io { source, .. } => Some(file_remedy(source).into()),
        }
    }
}
