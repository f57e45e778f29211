//! From a transcript back to a session that can run.

use std::sync::Arc;
use std::time::Duration;

use super::{Setup, engine, fold, lock};
use crate::budget::Budget;
use crate::gate::Gate;
use crate::provider::Provider;
use crate::session::driver::{Patience, Session};
use crate::session::opinion::Referee;
use crate::session::{SessionError, listing, pricing};
use crate::tools::{self, BlobStore};
use crate::transcript::{self, Event, Line, Outcome, RenderIntent, Transcript};
use base::error::{ErrorCode, Fault};
use base::ids::{Hash, SessionId};
use engine::lease::Lessor;

/// What a person adds when an interrupted session is resumed.
#[derive(Clone, Default)]
pub struct Resume {
    /// The answer to the question on which it ended.
    pub answer: Option<String>,
    /// New caps.
    pub raise: Option<Budget>,
    /// Who gives second opinions from now on.
    pub referee: Referee,
    /// The model that goes on if this one fails for good.
    pub fallback: Option<Arc<dyn Provider>>,
}

/// Takes up a session: one that was interrupted or cancelled, or that the provider or the engine failed, as it
/// is; one that waits for an answer, with it; one that is over, with a raised budget.
pub fn resume(setup: Setup, id: &SessionId, with: Resume) -> Result<Session, SessionError> {
    let folder = setup.workspace.session_folder(id);
    let path = folder.join("transcript.jsonl");
    if !path.exists() {
        return Err(Fault::new(ErrorCode::NotFound, format!("this photo has no session {id}"))
            .with("remedy", "list the sessions with `chemigram mode-b list`")
            .into());
    }
    setup.workspace.refuse_another_raw()?;
    let lessor = Lessor::default();
    let photo = lock(&setup.workspace, id, lessor.lease())?;
    let read = transcript::read(&path)?;
    let state = fold(&setup.workspace, &read.lines)?;
    let ended = state.end.as_ref().map(|end| end.outcome);
    let run_over = state.steering.as_ref().is_some_and(|steering| steering.ending().is_some());
    let raise;
    let refusal = match ended {
        Some(_) if run_over => Some((
            "has ended, and so has its protocol",
            "start a new session from one of its branches: `--from BRANCH`",
        )),
        _ if with.answer.is_some() && state.question.is_none() => {
            Some(("has asked no question", "leave out `--answer`"))
        }
        Some(Outcome::NeedsClarification) if with.answer.is_none() => {
            Some(("waits for an answer", "give it: `--resume ID --answer TEXT`"))
        }
        Some(Outcome::Completed | Outcome::BudgetExhausted | Outcome::ProtocolFailed)
            if with.raise.is_none() =>
        {
            let cap = state.end.as_ref().and_then(|end| end.cap);
            let more = cap.map_or("time=10m,iterations=20".into(), |cap| cap.raise());
            raise = format!("to resume it with a larger budget: `--resume ID --raise {more}`");
            Some(("has ended", raise.as_str()))
        }
        _ => None,
    };
    if let Some((what, remedy)) = refusal {
        return Err(Fault::new(ErrorCode::StateError, format!("session {id} {what}"))
            .with("remedy", remedy)
            .into());
    }
    // As at a start, and before anything is written.
    let raise = with.raise.as_ref();
    let info = setup.provider.info();
    let ledger = pricing::ledger(&state.start, &read.lines, raise, info, with.referee.info())?;
    if let Some(other) = &with.fallback {
        pricing::payable(other.info(), raise.unwrap_or(ledger.budget()))?;
    }
    let transcript = Transcript::resume(&path, &read, setup.clock.clone(), setup.redactor.clone())?
        .mirrored(setup.mirror.clone());
    let mut gate = Gate::new(ledger, transcript, lessor, setup.stop.clone());
    let assumed = if ended.is_none() { hidden_time(&read.lines) } else { Duration::ZERO };
    gate.assume_elapsed(assumed);
    gate.record(Event::Resumed { assumed_ms: tools::millis(assumed), torn: read.torn > 0 })?;
    if let Some(budget) = with.raise {
        gate.record(Event::Raised { budget })?;
    }
    if let (Some(answer), Some(question)) = (with.answer, state.question.clone()) {
        gate.record(Event::Clarification { question, answer: Some(answer) })?;
    }
    listing::forget_stop(&folder);
    let blobs = BlobStore::new(folder.join("blobs"), setup.redactor.clone());
    let blob = |name: &Hash| {
        let bytes = crate::provider::Blobs::bytes(&blobs, name).map_err(SessionError::Blob)?;
        String::from_utf8(bytes).map_err(|e| SessionError::Blob(std::io::Error::other(e)))
    };
    let system = blob(&state.start.system)?;
    let tools = serde_json::from_str(&blob(&state.start.tools)?)
        .map_err(|e| SessionError::Blob(std::io::Error::other(e)))?;
    let engine = engine(&setup, &state.start.baseline)?;
    let mut traces = setup.traces;
    traces.iter_mut().for_each(|traces| traces.skip(&read.lines));
    let mut session = Session {
        engine,
        photo,
        gate,
        state,
        provider: setup.provider,
        fallback: with.fallback,
        referee: with.referee,
        blobs,
        folder,
        system,
        tools,
        stop: setup.stop,
        patience: Patience::default(),
        traces,
    };
    if ended == Some(Outcome::EngineFailed) {
        session.render_baseline()?;
    }
    Ok(session)
}

/// Time that an effect under way at the crash may have used: as long as the longest of this session did.
fn hidden_time(lines: &[Line]) -> Duration {
    let open = |line: &Line| match &line.event {
        // What was begun ahead was beside the session's own work.
        Event::RenderIntent(RenderIntent { ahead: true, .. }) => None,
        Event::ModelIntent(_) | Event::RefereeIntent(_) | Event::ToolCall(_) | Event::RenderIntent(_) => {
            Some(line.seq)
        }
        _ => None,
    };
    let closed = |seq: u64| {
        lines.iter().any(|l| match &l.event {
            Event::Attempt { intent, .. } | Event::ModelReply { intent, .. } => *intent == seq,
            Event::ToolResult { intent, .. } | Event::Render { intent, .. } => *intent == Some(seq),
            Event::Referee(reply) => reply.intent == Some(seq),
            _ => false,
        })
    };
    // Proposals may have been answered meanwhile.
    let own = lines.iter().rev().filter(|l| !matches!(l.event, Event::ProposalAnswered { .. }));
    if !own.take(8).filter_map(open).any(|seq| !closed(seq)) {
        return Duration::ZERO;
    }
    let longest = lines.iter().map(|l| match &l.event {
        Event::Attempt { ms, .. } | Event::ModelReply { ms, .. } | Event::ToolResult { ms, .. } => *ms,
        _ => 0,
    });
    Duration::from_millis(longest.max().unwrap_or(0))
}
