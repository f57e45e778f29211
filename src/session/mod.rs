//! One bounded run on one photo.
//!
//! [`state::State`] is the fold of the transcript and says what to do next; [`driver::Session`] does it and
//! writes down what came of it; [`start`] plans a session or takes an interrupted one up again; [`listing`]
//! reads sessions that are over or running elsewhere.

pub mod driver;
pub mod listing;
pub mod pricing;
pub mod start;
pub mod state;
pub mod wording;

use crate::error::Fault;
use crate::photo::PhotoError;
use crate::transcript::TranscriptError;

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
    /// The state says done, but there is no closing line.
    #[error("the session has no closing line")]
    NotEnded,
}
