//! What earlier sessions of the photo did, from their transcripts: a line each, or one of them summarized.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::transcript::{self, Event, Judgment, Outcome, SessionStart};
use base::error::{ErrorCode, Fault};
use base::ids::{RefName, SessionId};
use engine::photo::Workspace;

/// How many are listed.
const LISTED: usize = 3;
/// How much of a text is told, in characters.
const TOLD: usize = 400;

/// What a transcript tells of its session.
struct Told {
    start: SessionStart,
    judgments: BTreeMap<RefName, Judgment>,
    gaps: Vec<String>,
    summary: String,
    outcome: Outcome,
}

impl Told {
    /// Reads a transcript; `None` if it cannot be read or is that of no session.
    fn of(workspace: &Workspace, id: &SessionId) -> Option<Self> {
        let lines = transcript::read(&workspace.session_folder(id).join("transcript.jsonl")).ok()?.lines;
        let Event::SessionStart(start) = &lines.first()?.event else { return None };
        let mut told = Self {
            start: (**start).clone(),
            judgments: BTreeMap::new(),
            gaps: Vec::new(),
            summary: String::new(),
            outcome: Outcome::Interrupted,
        };
        for line in &lines {
            match &line.event {
                Event::Judgment(one) => _ = told.judgments.insert(one.branch.clone(), (**one).clone()),
                Event::Gap { description } => told.gaps.push(short(description)),
                Event::SessionEnd(end) => (told.outcome, told.summary) = (end.outcome, short(&end.summary)),
                Event::Resumed { .. } => told.outcome = Outcome::Interrupted,
                _ => {}
            }
        }
        Some(told)
    }

    /// `4f2a9c: tone "open the shadows" 4/5, color "warmer" 2/5 abandoned (completed)`.
    fn line(&self, id: &SessionId) -> String {
        let branches = self.start.branches.iter().map(|planned| {
            let asked = match &planned.vector {
                Some(vector) => format!("{} \"{}\"", vector.name, short(&vector.direction)),
                None => planned.branch.to_string(),
            };
            match self.judgments.get(&planned.branch) {
                Some(one) if one.abandoned => format!("{asked} {}/5 abandoned", one.judged_score),
                Some(one) => format!("{asked} {}/5", one.judged_score),
                None => format!("{asked} not judged"),
            }
        });
        let branches = branches.collect::<Vec<_>>().join(", ");
        format!("{}: {branches} ({})", id.short(), self.outcome.as_str())
    }
}

fn short(text: &str) -> String {
    text.chars().take(TOLD).collect()
}

/// The sessions of the photo before `own`, newest first.
fn before(workspace: &Workspace, own: &SessionId) -> Vec<SessionId> {
    let found = std::fs::read_dir(workspace.sessions_folder()).into_iter().flatten().flatten();
    let ids = found.filter_map(|entry| entry.file_name().to_str()?.parse::<SessionId>().ok());
    // A UUIDv7 begins with its time.
    let mut ids: Vec<SessionId> = ids.filter(|id| id.as_str() < own.as_str()).collect();
    ids.sort_by(|a, b| b.as_str().cmp(a.as_str()));
    ids
}

/// The last sessions before `own`, a line each, newest first.
pub fn lines(workspace: &Workspace, own: &SessionId) -> Vec<String> {
    let told = before(workspace, own).into_iter().filter_map(|id| Some(Told::of(workspace, &id)?.line(&id)));
    told.take(LISTED).collect()
}

/// One session before `own`, summarized: the one whose id has `part` in it, or the last for `last`.
pub fn summary(workspace: &Workspace, own: &SessionId, part: &str) -> Result<Value, Fault> {
    let known = before(workspace, own);
    let part = part.trim().to_lowercase();
    let id = match part.as_str() {
        "" | "last" => known.first(),
        part => known.iter().find(|id| id.as_str().contains(part)),
    };
    let told = id.and_then(|id| Some((id, Told::of(workspace, id)?)));
    let Some((id, told)) = told else {
        let known: Vec<&str> = known.iter().take(LISTED).map(SessionId::short).collect();
        let known = if known.is_empty() { "none".into() } else { known.join(", ") };
        let message = format!("this photo has no earlier session `{part}`; it has: {known}");
        return Err(Fault::new(ErrorCode::NotFound, message).with("field", "session"));
    };
    let branches: Vec<Value> = told
        .start
        .branches
        .iter()
        .map(|planned| {
            let one = told.judgments.get(&planned.branch);
            json!({
                "branch": planned.branch,
                "direction": planned.vector.as_ref().map(|vector| &vector.direction),
                "intensity": planned.vector.as_ref().and_then(|vector| vector.intensity.as_ref()),
                "judged_score": one.map(|one| one.judged_score),
                "judged_reasoning": one.map(|one| short(&one.judged_reasoning)),
                "key_moves": one.map(|one| &one.key_moves),
                "abandoned": one.is_some_and(|one| one.abandoned),
            })
        })
        .collect();
    Ok(json!({
        "session": id, "baseline": told.start.baseline_ref, "brief": short(&told.start.brief),
        "outcome": told.outcome, "branches": branches, "gaps": told.gaps, "session_summary": told.summary,
    }))
}
