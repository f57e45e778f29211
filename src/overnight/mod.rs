//! A night: many sessions, one after the other or a few at once, under one budget, with one report in the morning.
//!
//! ```text
//! LIBRARY/overnight/<night>/
//!   plan.toml       the plan as it was written
//!   night.json      the same with everything read in: what the night is
//!   ledger.jsonl    what was begun, and what became of it; only ever appended to
//!   lock            held while somebody works on the night
//!   report.html report.txt
//! ```
//!
//! The ledger says which sessions there are; what was spent is the fold of their transcripts, read again at every
//! sitting. So a night that is killed at any moment goes on where it was, and pays nothing twice.

pub mod night;
mod page;
pub mod plan;
pub mod record;
pub mod report;
pub mod share;

use std::path::PathBuf;

use crate::transcript::{file_code, file_remedy};
use base::error::{Coded, ErrorCode};

/// Why a night cannot begin or go on. What a single session runs into is never among these.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// There is none of that name.
    #[error("there is no night `{name}`{hint}")]
    Unknown {
        /// As given.
        name: String,
        /// What there is.
        hint: String,
    },
    /// The beginning of a name that several have.
    #[error("`{name}` is the beginning of {count} nights")]
    Ambiguous {
        /// As given.
        name: String,
        /// How many.
        count: usize,
    },
    /// Somebody works on it.
    #[error("process {pid} works on the night {name}")]
    Busy {
        /// The night.
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
        /// The system's words.
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
            Self::Ambiguous { .. } => Some("give more of it".into()),
            Self::Busy { .. } => Some("wait for it, or end it with Ctrl-C where it runs".into()),
            Self::Damaged { .. } => {
                Some("its sessions are whole nevertheless: `chemigram mode-b list` shows them".into())
            }
            Self::Io { source, .. } => Some(file_remedy(source).into()),
        }
    }
}
