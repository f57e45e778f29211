//! One bounded run on one photo.
//!
//! [`state::State`] is the fold of the transcript; [`next`] decides what it does next; [`driver::Session`] does it and
//! records the outcome, with model calls in `model_call`, their price in [`pricing`], and what a long conversation is cut into in `chapter`. [`start`] plans a session or
//! resumes an interrupted one; [`listing`] reads sessions that are over or run elsewhere, [`answers`] adds to them what was made of their proposals, and [`prune`] removes them. In a session with a protocol
//! [`steering::Steering`] is the protocol's machine within the state, and `carry` carries out its commands; the gate,
//! the driver and the fold are the same. [`worded`] has a model put findings into words, and
//! [`generate`] has the model write a protocol before there is a session.

#[cfg(test)]
mod agents;
pub mod answers;
pub mod bill;
mod carry;
mod chapter;
pub mod check;
#[cfg(test)]
mod crashes;
mod deeper;
pub mod driver;
#[cfg(test)]
mod edges;
pub mod estimate;
pub mod fsck;
pub mod generate;
#[cfg(test)]
mod inventive;
mod judged;
pub mod listing;
pub(crate) mod model_call;
pub mod next;
pub mod opinion;
#[cfg(test)]
mod prefixes;
pub mod pricing;
pub mod protocols;
pub mod prune;
pub mod raise;
pub mod replay;
#[cfg(test)]
mod replies;
#[cfg(test)]
pub(crate) mod rig;
#[cfg(test)]
mod simulated;
pub mod start;
pub mod state;
pub mod steering;
pub mod talk;
#[cfg(test)]
mod talking;
pub mod worded;
pub mod wording;

use crate::transcript::{self, TranscriptError};
use base::error::{Coded, ErrorCode, Fault};
use base::files;
use engine::photo::PhotoError;

/// The version of what a session does. Raise it with every change after which a session with the same model, prompt,
/// tools and moves would take another course: evaluations only reuse sessions of the same version.
pub const ENGINE: u32 = 9;

/// Why a session cannot start or go on. What the agent does wrong is never among these.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The transcript.
    #[error(transparent)]
    Transcript(#[from] TranscriptError),
    /// The workspace.
    #[error(transparent)]
    Photo(#[from] PhotoError),
    /// Anything with a code of its own.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// A picture or body that cannot be stored.
    #[error("a file of the session cannot be stored")]
    Blob(#[source] std::io::Error),
    /// The state is at its end, but there is no closing line.
    #[error("the session did not end")]
    NotEnded,
    /// The provider cannot be reached, and the session was left as it is, to be resumed.
    #[error("{message}")]
    Unreachable {
        /// Which: the session's own, or its referee's.
        provider: String,
        /// The last failure.
        message: String,
        /// How long the provider asks to wait.
        retry_after: Option<std::time::Duration>,
    },
}

impl Coded for SessionError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Transcript(e) => e.code(),
            Self::Photo(e) => e.code(),
            Self::Fault(f) => f.code,
            Self::Blob(source) => transcript::file_code(source),
            Self::NotEnded => ErrorCode::StateError,
            Self::Unreachable { .. } => ErrorCode::ProviderError,
        }
    }

    fn halts(&self) -> bool {
        match self {
            Self::Transcript(e) => e.halts(),
            Self::Photo(e) => e.halts(),
            Self::Fault(f) => f.halts(),
            Self::Blob(source) => files::is_full(source),
            Self::NotEnded | Self::Unreachable { .. } => false,
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::Transcript(e) => e.remedy(),
            Self::Photo(e) => e.remedy(),
            Self::Fault(f) => f.remedy(),
            Self::Blob(source) => Some(transcript::file_remedy(source).into()),
            Self::NotEnded | Self::Unreachable { .. } => None,
        }
    }
}
