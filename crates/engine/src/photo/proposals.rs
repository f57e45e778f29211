//! Proposals: what a session would like to be remembered. A session proposes; only a person accepts, and only
//! acceptance writes taste or notes.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::photo::context::NOTES;
use crate::photo::error::PhotoError;
use crate::photo::jsonl;
use crate::photo::oplog::time;
use crate::photo::tastes;
use crate::photo::workspace::Workspace;
use crate::photo::writer::Writer;
use base::ids::{Hash, SessionId};

/// Its file in a photo's folder. Append-only: an answer is a further line, and the state of a proposal is their fold.
pub(super) const FILE: &str = "proposals.jsonl";

/// The longest text, in characters.
const TEXT_LIMIT: usize = 2000;

/// What a proposal would change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProposalKind {
    /// A taste file, which counts for many photos.
    Taste,
    /// This photo's notes.
    Notes,
}

/// What a taste is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TasteCategory {
    /// How pictures should look.
    Appearance,
    /// How they should be worked on.
    Process,
    /// What matters.
    Value,
}

/// The state of a proposal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProposalStatus {
    /// It waits for a person.
    Pending,
    /// It was written to its file.
    Accepted {
        /// The text that was written, where a person changed it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        edited: Option<String>,
    },
    /// A person said no.
    Declined {
        /// Why; may be empty.
        reason: String,
    },
}

impl fmt::Display for ProposalStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "pending",
            Self::Accepted { edited: None } => "accepted",
            Self::Accepted { edited: Some(_) } => "accepted with changes",
            Self::Declined { .. } => "declined",
        })
    }
}

impl ProposalStatus {
    /// The answer with its reason or the changed text: `declined: not mine`.
    pub fn told(&self) -> String {
        match self {
            Self::Accepted { edited: Some(text) } => format!("{self}: {text}"),
            Self::Declined { reason } if !reason.is_empty() => format!("{self}: {reason}"),
            _ => self.to_string(),
        }
    }
}

/// What is proposed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProposedText {
    /// Taste or notes.
    pub kind: ProposalKind,
    /// The taste file (`_default.md`, `birds.md`); `None` for notes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// What would be added, at most 2,000 characters.
    pub text: String,
    /// What a taste is about; `None` for notes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<TasteCategory>,
}

impl ProposedText {
    /// Whether both would add the same words to the same file.
    fn says(&self, other: &Self) -> bool {
        let words = |text: &str| -> Vec<String> {
            let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
            words.map(str::to_lowercase).collect()
        };
        (self.kind, &self.file) == (other.kind, &other.file) && words(&self.text) == words(&other.text)
    }
}

/// A proposal and its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// Eight hex digits, from the session and the content: the same proposal twice is one.
    pub id: String,
    /// When it was made (UTC).
    #[serde(with = "time")]
    pub t: jiff::Timestamp,
    /// By which session; `None` for a person.
    pub session: Option<SessionId>,
    /// What is proposed.
    #[serde(flatten)]
    pub proposed: ProposedText,
    /// Its state.
    pub status: ProposalStatus,
}

/// A line of the file: a proposal as made, or an answer to it.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Made(Proposal),
    Answer {
        answers: String,
        #[serde(with = "time")]
        t: jiff::Timestamp,
        status: ProposalStatus,
    },
}

impl Workspace {
    /// All proposals in the order in which they were made.
    ///
    /// # Errors
    /// [`PhotoError::Io`].
    pub fn proposals(&self) -> Result<Vec<Proposal>, PhotoError> {
        let mut proposals: Vec<Proposal> = Vec::new();
        for line in jsonl::read::<Line>(&self.folder().join(FILE))?.items {
            match line {
                Line::Made(proposal) if proposals.iter().all(|p| p.id != proposal.id) => {
                    proposals.push(proposal);
                }
                Line::Made(_) => {}
                Line::Answer { answers, status, .. } => {
                    if let Some(proposal) = proposals.iter_mut().find(|p| p.id == answers) {
                        proposal.status = status;
                    }
                }
            }
        }
        Ok(proposals)
    }

    /// Those that wait for a person.
    ///
    /// # Errors
    /// [`PhotoError::Io`].
    pub fn pending_proposals(&self) -> Result<Vec<Proposal>, PhotoError> {
        let mut proposals = self.proposals()?;
        proposals.retain(|p| p.status == ProposalStatus::Pending);
        Ok(proposals)
    }

    /// One proposal by its id.
    ///
    /// # Errors
    /// [`PhotoError::NoProposal`].
    pub fn proposal(&self, id: &str) -> Result<Proposal, PhotoError> {
        let found = self.proposals()?.into_iter().find(|p| p.id == id);
        found.ok_or_else(|| PhotoError::NoProposal(id.to_owned()))
    }
}

impl Writer {
    /// Stores a proposal. One that says the same as another that waits, whichever session made that, adds none.
    ///
    /// # Errors
    /// [`PhotoError::Lease`] without a live lease, [`PhotoError::Invalid`] for a text that is empty or too long,
    /// [`PhotoError::Settled`] for what a person has accepted or declined before.
    pub fn propose(&mut self, proposed: ProposedText) -> Result<Proposal, PhotoError> {
        self.check_lease()?;
        let proposed = check(proposed)?;
        let content = serde_json::to_vec(&(self.session(), &proposed)).unwrap_or_default();
        let id: String = Hash::of(content).as_str().chars().take(8).collect();
        if let Ok(standing) = self.workspace().proposal(&id) {
            return Ok(standing);
        }
        if let Some(alike) = self.workspace().proposals()?.into_iter().find(|p| p.proposed.says(&proposed)) {
            return match alike.status {
                ProposalStatus::Pending => Ok(alike),
                status => Err(PhotoError::Settled { id: alike.id, status: status.told() }),
            };
        }
        let proposal = Proposal {
            id,
            t: self.now(),
            session: self.session().cloned(),
            proposed,
            status: ProposalStatus::Pending,
        };
        jsonl::append(&self.workspace().folder().join(FILE), &proposal)?;
        Ok(proposal)
    }

    /// Accepts a proposal: adds its text, or `edited` in its place, to its taste file in `tastes_dir` or to the
    /// photo's notes under a heading with the date, then records the answer. For a person only.
    ///
    /// # Errors
    /// [`PhotoError::Denied`] for a session, [`PhotoError::NoProposal`], [`PhotoError::Settled`].
    pub fn accept_proposal(
        &mut self,
        id: &str,
        edited: Option<&str>,
        tastes_dir: &Path,
    ) -> Result<Proposal, PhotoError> {
        self.person_only("accept a proposal")?;
        let mut proposal = self.pending(id)?;
        let text = check_text(edited.unwrap_or(&proposal.proposed.text))?;
        let date = self.now().to_zoned(jiff::tz::TimeZone::system()).date();
        let (path, heading) = match proposal.proposed.kind {
            ProposalKind::Taste => {
                let name = proposal.proposed.file.as_deref().unwrap_or(tastes::DEFAULT);
                (tastes::path(tastes_dir, name)?, format!("## {date}"))
            }
            ProposalKind::Notes => {
                let who = proposal.session.as_ref().map(|s| format!(" — session {}", s.short()));
                (self.workspace().folder().join(NOTES), format!("## {date}{}", who.unwrap_or_default()))
            }
        };
        tastes::add_under(&path, &heading, &text)?;
        proposal.status =
            ProposalStatus::Accepted { edited: (text != proposal.proposed.text).then_some(text) };
        self.answer(proposal)
    }

    /// Declines a proposal. It stays in the file. For a person only.
    ///
    /// # Errors
    /// As [`Self::accept_proposal`].
    pub fn decline_proposal(&mut self, id: &str, reason: &str) -> Result<Proposal, PhotoError> {
        self.person_only("decline a proposal")?;
        let mut proposal = self.pending(id)?;
        let reason = if reason.trim().is_empty() { String::new() } else { check_text(reason)? };
        proposal.status = ProposalStatus::Declined { reason };
        self.answer(proposal)
    }

    fn pending(&self, id: &str) -> Result<Proposal, PhotoError> {
        let proposal = self.workspace().proposal(id)?;
        match proposal.status {
            ProposalStatus::Pending => Ok(proposal),
            status => Err(PhotoError::Settled { id: id.to_owned(), status: status.to_string() }),
        }
    }

    /// Records an answer, to all that say the same: earlier versions kept equal proposals of several sessions.
    fn answer(&self, proposal: Proposal) -> Result<Proposal, PhotoError> {
        let mut answered = vec![proposal.id.clone()];
        let waiting = self.workspace().pending_proposals()?.into_iter();
        let alike = waiting.filter(|p| p.id != proposal.id && p.proposed.says(&proposal.proposed));
        answered.extend(alike.map(|p| p.id));
        for answers in answered {
            let line = Line::Answer { answers, t: self.now(), status: proposal.status.clone() };
            jsonl::append(&self.workspace().folder().join(FILE), &line)?;
        }
        Ok(proposal)
    }
}

fn check(mut proposed: ProposedText) -> Result<ProposedText, PhotoError> {
    proposed.text = check_text(&proposed.text)?;
    match proposed.kind {
        ProposalKind::Taste => {
            proposed.file = Some(tastes::file_name(proposed.file.as_deref().unwrap_or(tastes::DEFAULT))?);
        }
        ProposalKind::Notes => {
            proposed.file = None;
            proposed.category = None;
        }
    }
    Ok(proposed)
}

fn check_text(text: &str) -> Result<String, PhotoError> {
    let text = text.trim();
    let control = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.is_empty() || text.chars().count() > TEXT_LIMIT || text.chars().any(control) {
        return Err(PhotoError::Invalid(format!(
            "a proposal's text has 1 to {TEXT_LIMIT} characters and no control characters but line ends and tabs"
        )));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::photo::testing::TestPhoto;
    use base::error::{Coded, ErrorCode};

    fn taste(text: &str) -> ProposedText {
        ProposedText {
            kind: ProposalKind::Taste,
            file: Some("birds".into()),
            text: text.into(),
            category: Some(TasteCategory::Appearance),
        }
    }

    fn notes(text: &str) -> ProposedText {
        ProposedText { kind: ProposalKind::Notes, file: None, text: text.into(), category: None }
    }

    #[test]
    fn a_session_proposes_and_a_person_disposes() {
        let photo = TestPhoto::new();
        let tastes = photo.dir.path().join("tastes");
        let (mut session, _) = photo.session();
        let one = session.propose(taste("Keep scales crisp.")).unwrap();
        let two = session.propose(notes("The rock is greener than it looks.")).unwrap();
        let three = session.propose(taste("More grain.")).unwrap();
        // The same again, as after a crash, adds none.
        assert_eq!(session.propose(taste("Keep scales crisp. ")).unwrap().id, one.id);
        let denied = session.accept_proposal(&one.id, None, &tastes).unwrap_err();
        assert_eq!(denied.code(), ErrorCode::PermissionDenied);
        assert!(!tastes.exists());
        drop(session);

        assert_eq!(photo.workspace.pending_proposals().unwrap().len(), 3);
        let mut person = photo.person();
        person.accept_proposal(&one.id, None, &tastes).unwrap();
        let edited = person.accept_proposal(&two.id, Some("The rock is green."), &tastes).unwrap();
        assert_eq!(edited.status, ProposalStatus::Accepted { edited: Some("The rock is green.".into()) });
        person.decline_proposal(&three.id, "not mine").unwrap();
        for id in [&one.id, &two.id, &three.id] {
            assert!(matches!(person.accept_proposal(id, None, &tastes), Err(PhotoError::Settled { .. })));
        }
        assert_eq!(person.decline_proposal("none", "").unwrap_err().code(), ErrorCode::NotFound);
        assert!(photo.workspace.pending_proposals().unwrap().is_empty());
        let statuses: Vec<_> =
            photo.workspace.proposals().unwrap().iter().map(|p| p.status.to_string()).collect();
        assert_eq!(statuses, ["accepted", "accepted with changes", "declined"]);

        let birds = std::fs::read_to_string(tastes.join("birds.md")).unwrap();
        assert!(birds.starts_with("## 20") && birds.ends_with("\n\nKeep scales crisp.\n"), "{birds}");
        let notes = photo.read(NOTES);
        assert!(notes.contains(" — session ") && notes.ends_with("The rock is green.\n"), "{notes}");
    }

    #[test]
    fn g19_what_was_answered_is_not_proposed_again() {
        let photo = TestPhoto::new();
        let tastes = photo.dir.path().join("tastes");
        let (mut session, _) = photo.session();
        let waits = session.propose(taste("Keep scales crisp.")).unwrap();
        let declined = session.propose(taste("More grain.")).unwrap();
        drop(session);
        photo.person().decline_proposal(&declined.id, "not mine").unwrap();
        let (mut session, _) = photo.session();
        assert_eq!(session.propose(taste("keep scales: crisp")).unwrap(), waits, "one waits for both");
        let again = session.propose(taste("More grain!")).unwrap_err();
        assert!(
            matches!(&again, PhotoError::Settled { status, .. } if status == "declined: not mine"),
            "{again}"
        );
        // A note says it of this photo, which is another thing.
        session.propose(notes("More grain.")).unwrap();
        drop(session);
        // An earlier version kept the same twice.
        let twin = Proposal { id: "01234567".into(), ..waits.clone() };
        jsonl::append(&photo.workspace.folder().join(FILE), &twin).unwrap();
        photo.person().accept_proposal(&waits.id, None, &tastes).unwrap();
        let accepted = ProposalStatus::Accepted { edited: None };
        assert_eq!(photo.workspace.proposal(&twin.id).unwrap().status, accepted);
        assert_eq!(photo.workspace.pending_proposals().unwrap().len(), 1);
    }

    #[test]
    fn an_acceptance_that_was_cut_before_its_record_writes_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.md");
        std::fs::write(&path, "# Birds\n\n- old point\n").unwrap();
        for text in ["one", "one", "two"] {
            tastes::add_under(&path, "## 2026-05-14", text).unwrap();
        }
        tastes::add_under(&path, "## 2026-05-15", "three").unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "# Birds\n\n- old point\n\n## 2026-05-14\n\none\n\ntwo\n\n## 2026-05-15\n\nthree\n"
        );
    }

    #[test]
    fn texts_and_file_names_are_checked() {
        let photo = TestPhoto::new();
        let mut writer = photo.person();
        let outside = ProposedText { file: Some("../x".into()), ..taste("x") };
        let long = "x".repeat(TEXT_LIMIT + 1);
        for bad in [outside, taste(" "), taste(&long), notes("a\0b")] {
            assert_eq!(writer.propose(bad).unwrap_err().code(), ErrorCode::InvalidInput);
        }
        assert!(photo.workspace.proposals().unwrap().is_empty());
        writer.propose(notes("line one\nline two")).unwrap();
    }
}
