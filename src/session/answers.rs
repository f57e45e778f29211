//! What a person made of a session's proposals, as lines of its own transcript.
//!
//! `proposals.jsonl` decides: an answer is given there first, and may be given long after the session. The transcript
//! repeats it, so that a session's fold says how it went on. What a kill came between is made good with the next answer.

use std::io::ErrorKind;
use std::sync::Arc;

use base::clock::SystemClock;
use base::ids::SessionId;
use base::redact::Redactor;
use engine::photo::{ProposalStatus, Writer};

use crate::session::{SessionError, start};
use crate::transcript::{self, Event, Transcript, TranscriptError};

/// The name under which the answer to a tag that was suggested stands among those to proposals.
pub const TAG: &str = "tag";

/// Writes the answers to a session's proposals into its transcript, as far as they do not stand there. A session that
/// was deleted has none, and to one that is damaged nothing is added.
///
/// # Errors
/// [`SessionError::Transcript`] if the file cannot be read or written.
pub fn record(photo: &Writer, id: &SessionId, redactor: &Redactor) -> Result<(), SessionError> {
    let mut proposals = photo.workspace().proposals()?;
    proposals.retain(|one| one.session.as_ref() == Some(id) && one.status != ProposalStatus::Pending);
    add(photo, id, redactor, proposals.into_iter().map(|one| (one.id, one.status)).collect())
}

/// Writes into a session's transcript what was made of the tag that it suggested.
///
/// # Errors
/// As [`record`].
pub fn record_tag(
    photo: &Writer,
    id: &SessionId,
    redactor: &Redactor,
    status: ProposalStatus,
) -> Result<(), SessionError> {
    add(photo, id, redactor, vec![(TAG.to_owned(), status)])
}

fn add(
    photo: &Writer,
    id: &SessionId,
    redactor: &Redactor,
    mut answers: Vec<(String, ProposalStatus)>,
) -> Result<(), SessionError> {
    let path = photo.workspace().session_folder(id).join("transcript.jsonl");
    let read = match transcript::read(&path) {
        Ok(read) => read,
        Err(TranscriptError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error @ TranscriptError::Damaged { .. }) => {
            tracing::warn!(session = %id, %error, "an answer is not added to a damaged transcript");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let told = start::fold(photo.workspace(), &read.lines)?.answers;
    answers.retain(|(answered, status)| told.get(answered) != Some(status));
    if answers.is_empty() {
        return Ok(());
    }
    let mut transcript = Transcript::resume(&path, &read, Arc::new(SystemClock), redactor.clone())?;
    for (id, status) in answers {
        transcript.append(Event::ProposalAnswered { id, status }, true)?;
    }
    Ok(())
}
