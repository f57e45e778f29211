//! Sessions that are over, or run elsewhere: found by a part of their id, and summarized in a line each.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::budget::{Amounts, Budget, Ledger};
use crate::gate;
use crate::session::next::StopRequest;
use crate::session::state::{Phase, State};
use crate::session::{SessionError, start};
use crate::transcript::{self, Event, Line, ModelName, Outcome, TranscriptError};
use base::error::{Coded as _, ErrorCode, Fault};
use base::files;
use base::ids::{PhotoId, RefName, SessionId};
use engine::photo::{FsckReport, Library, Workspace};

/// The shortest part of an id that names a session.
const SHORTEST_PART: usize = 4;

/// The condition of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(tag = "condition", rename_all = "snake_case")]
pub enum Condition {
    /// It has its closing line.
    Ended {
        /// How it ended.
        outcome: Outcome,
    },
    /// A process works on it now.
    Running {
        /// Its id.
        pid: u32,
    },
    /// There is no closing line, and nobody works on it.
    Interrupted,
    /// Its transcript cannot be trusted.
    Damaged {
        /// The line at fault, from 1, where it is one.
        line: Option<u64>,
        /// What is wrong.
        reason: String,
    },
}

impl Condition {
    /// One word for a list.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Ended { outcome } => outcome.as_str(),
            Self::Running { .. } => "running",
            Self::Interrupted => Outcome::Interrupted.as_str(),
            Self::Damaged { .. } => "damaged",
        }
    }

    /// How it ended: a session without a closing line was interrupted; `None` while it runs.
    pub fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::Ended { outcome } => Some(*outcome),
            Self::Running { .. } => None,
            Self::Interrupted | Self::Damaged { .. } => Some(Outcome::Interrupted),
        }
    }
}

/// One session in a line.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Summary {
    /// Its photo.
    pub photo: PhotoId,
    /// Its id.
    pub session: SessionId,
    /// Its condition.
    #[serde(flatten)]
    pub condition: Condition,
    /// What its lines tell; absent when they cannot be read.
    #[serde(flatten)]
    pub overview: Option<Overview>,
}

/// What a transcript tells at a glance.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Overview {
    /// When it began.
    #[serde(with = "base::stamp")]
    #[schemars(with = "jiff::Timestamp")]
    pub started: jiff::Timestamp,
    /// Session time in milliseconds.
    pub elapsed_ms: u64,
    /// `planned`, `running`, `wrapping_up` or `ended`.
    pub phase: Phase,
    /// What was spent.
    pub spent: Amounts,
    /// The caps.
    pub budget: Budget,
    /// What is left of each cap; time is that of the clock while the session runs.
    pub budget_remaining: BTreeMap<&'static str, u64>,
    /// The branch that it works on.
    pub current_branch: Option<RefName>,
    /// How long ago its last line was written, in milliseconds.
    pub last_line_ms_ago: u64,
    /// Branches made.
    pub branches: u64,
    /// Branches that the agent judged.
    pub judged: u64,
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
}

/// A session as its transcript tells it.
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// The lines.
    pub lines: Vec<Line>,
    /// Their fold.
    pub state: State,
    /// What was spent, and the caps.
    pub ledger: Ledger,
    /// Its condition.
    pub condition: Condition,
}

impl Session {
    /// The model that has it now: the one that began it, or the one that went on.
    pub fn model(&self) -> ModelName {
        let start = &self.state.start;
        let began = || ModelName { provider: start.provider.clone(), model: start.model.clone() };
        self.went_on().unwrap_or_else(began)
    }

    /// The model that went on because the first one failed for good.
    pub fn went_on(&self) -> Option<ModelName> {
        self.lines.iter().rev().find_map(|line| match &line.event {
            Event::Fallback { to, .. } => Some(to.clone()),
            _ => None,
        })
    }

    /// Session time so far: that of the last line.
    pub fn elapsed(&self) -> Duration {
        self.lines.last().map_or(Duration::ZERO, Line::at)
    }

    /// What it tells at a glance; `None` for a transcript without lines.
    fn overview(&self) -> Option<Overview> {
        let last = self.lines.last()?;
        let ago = jiff::Timestamp::now().duration_since(last.t).as_millis();
        let last_line_ms_ago = u64::try_from(ago).unwrap_or(0);
        let running = matches!(self.condition, Condition::Running { .. });
        let elapsed_ms = last.mono_ms.saturating_add(if running { last_line_ms_ago } else { 0 });
        Some(Overview {
            started: self.lines.first()?.t,
            elapsed_ms,
            budget: self.ledger.budget().clone(),
            budget_remaining: self.ledger.remaining(Duration::from_millis(elapsed_ms)),
            current_branch: self.state.head.branch.clone(),
            last_line_ms_ago,
            phase: self.state.phase,
            spent: self.ledger.settled(),
            branches: self.state.branches.len() as u64,
            judged: self.state.judged_by_agent(),
            provider: self.state.start.provider.clone(),
            model: self.state.start.model.clone(),
        })
    }
}

/// Reads one session. A transcript that is damaged is an error that names the line.
pub fn read(workspace: &Workspace, id: &SessionId) -> Result<Session, SessionError> {
    let lines = transcript::read(&workspace.session_folder(id).join("transcript.jsonl"))?.lines;
    let state = start::fold(workspace, &lines)?;
    let ledger = gate::ledger(&state.start, &lines);
    let condition = match &state.end {
        Some(end) => Condition::Ended { outcome: end.outcome },
        None => match workspace.held_by()?.filter(|holder| holder.purpose.contains(id.as_str())) {
            Some(holder) => Condition::Running { pid: holder.pid },
            None => Condition::Interrupted,
        },
    };
    Ok(Session { id: id.clone(), lines, state, ledger, condition })
}

/// Reads every session of a photo to its end, and adds those that cannot be to what `fsck` found.
pub(super) fn prove(workspace: &Workspace, report: &mut FsckReport) -> Result<(), SessionError> {
    for id in of_photo(workspace)? {
        match read(workspace, &id) {
            // What is wrong with the files themselves was found without reading them.
            Ok(_) | Err(SessionError::Transcript(_) | SessionError::Blob(_)) => {}
            Err(error) => {
                let what = format!("sessions/mode_b/{id}/transcript.jsonl");
                let remedy = "the branches and commits of the session are checked separately";
                report.damage(what, Fault::from(&error).message, remedy);
            }
        }
    }
    Ok(())
}

/// One session in a line; what cannot be read is reported as damaged.
pub fn summary(workspace: &Workspace, id: &SessionId) -> Summary {
    let (condition, overview) = match read(workspace, id) {
        Ok(session) => (session.condition.clone(), session.overview()),
        Err(error) => (damage(&error), None),
    };
    Summary { photo: workspace.id().clone(), session: id.clone(), condition, overview }
}

fn damage(error: &SessionError) -> Condition {
    match error {
        SessionError::Transcript(TranscriptError::Damaged { line, reason, .. }) => {
            Condition::Damaged { line: Some(*line), reason: reason.clone() }
        }
        other => Condition::Damaged { line: None, reason: Fault::from(other).message },
    }
}

/// Whether a folder holds a session: one that was killed before its transcript was made never began.
fn begun(entry: &std::fs::DirEntry) -> bool {
    entry.path().join("transcript.jsonl").exists()
}

/// The sessions of a photo, newest first.
pub fn of_photo(workspace: &Workspace) -> Result<Vec<SessionId>, SessionError> {
    let folder = workspace.sessions_folder();
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => {
            let message = format!("cannot list {}: {e}", folder.display());
            return Err(Fault::new(ErrorCode::StateError, message).into());
        }
    };
    let mut ids: Vec<SessionId> =
        entries.flatten().filter(begun).filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    // A UUIDv7 begins with its time.
    ids.sort_by(|a, b| b.as_str().cmp(a.as_str()));
    Ok(ids)
}

/// The sessions of a library, newest first. Photos that cannot be opened are passed over with a warning:
/// `fsck` is there to tell about them.
pub fn list(library: &Library, photo: Option<&PhotoId>) -> Result<Vec<Summary>, SessionError> {
    let mut summaries = Vec::new();
    for workspace in workspaces(library, photo)? {
        summaries.extend(of_photo(&workspace)?.iter().map(|id| summary(&workspace, id)));
    }
    summaries.sort_by(|a, b| b.session.as_str().cmp(a.session.as_str()));
    Ok(summaries)
}

fn workspaces(library: &Library, photo: Option<&PhotoId>) -> Result<Vec<Workspace>, SessionError> {
    if let Some(photo) = photo {
        return Ok(vec![library.open(photo)?]);
    }
    let open = |id: PhotoId| match library.open(&id) {
        Ok(workspace) => Some(workspace),
        Err(error) => {
            tracing::warn!(photo = %id, code = ?error.code(), %error, "a photo was skipped");
            None
        }
    };
    Ok(library.photos()?.into_iter().filter_map(open).collect())
}

/// The word for the newest session.
const LAST: &str = "last";

/// The one session whose id has `part` in it, four characters or more; the newest for `last`.
pub fn find(library: &Library, part: &str) -> Result<(PhotoId, SessionId), SessionError> {
    let part = part.trim().to_lowercase();
    let fault = |code, message: String| Fault::new(code, message);
    let list = "list the sessions with `chemigram mode-b list`";
    if part == LAST {
        return newest(library)?.ok_or_else(|| {
            let none = format!("there is no session in {}", library.root().display());
            fault(ErrorCode::NotFound, none)
                .with("remedy", "`chemigram run-mode-b --help` explains how to run one")
                .into()
        });
    }
    if part.len() < SHORTEST_PART {
        let message = format!("`{part}` is too short: give at least four characters of the session's id");
        return Err(fault(ErrorCode::InvalidInput, message).with("remedy", list).into());
    }
    let mut found = Vec::new();
    for workspace in workspaces(library, None)? {
        let matching = of_photo(&workspace)?.into_iter().filter(|id| id.as_str().contains(&part));
        found.extend(matching.map(|id| (workspace.id().clone(), id)));
    }
    match (found.pop(), found.is_empty()) {
        (Some(one), true) => Ok(one),
        (None, _) => Err(fault(ErrorCode::NotFound, format!("there is no session `{part}`"))
            .with("remedy", list)
            .into()),
        (Some(last), false) => {
            found.push(last);
            let ids: Vec<&str> = found.iter().map(|(_, id)| id.as_str()).collect();
            let message = format!("`{part}` matches {} sessions: {}", ids.len(), ids.join(", "));
            Err(fault(ErrorCode::InvalidInput, message).with("remedy", "give more characters").into())
        }
    }
}

/// The session that began last.
fn newest(library: &Library) -> Result<Option<(PhotoId, SessionId)>, SessionError> {
    let mut found: Option<(PhotoId, SessionId)> = None;
    for workspace in workspaces(library, None)? {
        // The first is the newest of its photo.
        if let Some(id) = of_photo(&workspace)?.into_iter().next()
            && found.as_ref().is_none_or(|(_, known)| known.as_str() < id.as_str())
        {
            found = Some((workspace.id().clone(), id));
        }
    }
    Ok(found)
}

/// The sessions that run now, oldest first.
///
/// # Errors
/// [`SessionError`], if the library cannot be listed.
pub fn running(library: &Library) -> Result<Vec<(PhotoId, SessionId)>, SessionError> {
    let mut found = Vec::new();
    for workspace in workspaces(library, None)? {
        let Some(holder) = workspace.held_by()? else { continue };
        let own = |id: &SessionId| holder.purpose.contains(id.as_str());
        found.extend(of_photo(&workspace)?.into_iter().filter(own).map(|id| (workspace.id().clone(), id)));
    }
    found.sort_by(|a, b| a.1.as_str().cmp(b.1.as_str()));
    Ok(found)
}

/// The file in a session's folder by which another process asks it to stop: empty, to wrap up; with
/// [`STOP_NOW`] in it, at once.
const STOP_FILE: &str = "stop";
const STOP_NOW: &[u8] = b"now";

/// Asks a session that runs in another process to stop: the first time to wrap up, the second time at once,
/// as Ctrl-C does. Returns which of the two was requested.
pub fn ask_to_stop(workspace: &Workspace, id: &SessionId) -> Result<StopRequest, SessionError> {
    let folder = workspace.session_folder(id);
    let (halt, text) = match asked_to_stop(&folder) {
        StopRequest::None => (StopRequest::WrapUp, &b""[..]),
        StopRequest::WrapUp | StopRequest::Now => (StopRequest::Now, STOP_NOW),
    };
    base::durable::write(&folder.join(STOP_FILE), text).map_err(SessionError::Blob)?;
    Ok(halt)
}

/// The request to stop that was made to the session in `folder` from outside.
pub fn asked_to_stop(folder: &Path) -> StopRequest {
    match files::read(&folder.join(STOP_FILE), 64) {
        Ok(text) if text == STOP_NOW => StopRequest::Now,
        Ok(_) => StopRequest::WrapUp,
        Err(_) => StopRequest::None,
    }
}

/// Removes the request to stop that was made to an earlier run of the session in `folder`.
pub fn forget_stop(folder: &Path) {
    // Best effort: it is there only after such a request.
    let _ = std::fs::remove_file(folder.join(STOP_FILE));
}
