//! Judgments: what the agent says of a branch, held against what was done and what can be measured.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::tools::args::RecordJudgment;
use crate::tools::blobs::write_jpeg;
use crate::tools::lifecycle::{fatal, text};
use crate::tools::look::io_fault;
use crate::tools::{Answer, ToolContext, edit, verify_claim};
use crate::transcript::{Event, Flag, Judgment, JudgmentSource, SessionStart};
use base::error::{ErrorCode, Fault, caught};
use base::ids::{Hash, RefName};
use darktable::render::Quality;
use engine::photo::{Operation, Workspace};
use pixels::metrics::check::{VectorCheck, Verdict};
use pixels::metrics::stats::ImageStats;

/// What the engine measured of a branch, at judging quality.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Mean ΔE2000 against the baseline.
    pub delta_e_mean: f64,
    /// Its 95th percentile.
    pub delta_e_p95: f64,
    /// Growth of clipped highlights, in percentage points.
    pub clip_high_change: f64,
    /// Growth of clipped shadows, in percentage points.
    pub clip_low_change: f64,
    /// The vector's direction, and what else moved.
    pub vector: VectorCheck,
    /// The same of the place that changed, if every move in effect has a mask: it decides, not the whole frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub there: Option<VectorCheck>,
    /// Longest side of the pictures compared.
    pub long_edge: u32,
    /// The branch's picture.
    pub pixel_hash: Hash,
    /// The baseline's picture.
    pub baseline_pixel_hash: Hash,
    /// The branch's review picture, relative to the photo's folder.
    pub preview: String,
    /// The numbers of the branch's picture.
    pub stats: ImageStats,
}

impl Measured {
    /// What counts: the place that changed, if that is known, or the whole frame.
    pub fn check(&self) -> &VectorCheck {
        self.there.as_ref().unwrap_or(&self.vector)
    }

    /// Whether the asked direction moved there.
    pub fn direction(&self) -> Verdict {
        self.check().direction
    }
}

/// The highest score of an abandoned branch.
const ABANDONED: u8 = 2;

pub fn record_judgment(context: &mut ToolContext<'_>, args: RecordJudgment) -> Result<Answer, Fault> {
    let branch: RefName =
        args.branch.parse().map_err(|e: base::ids::InvalidName| Fault::from(&e).with("field", "branch"))?;
    let Some(tip) = context.view.branches.iter().find(|b| b.name == branch).map(|b| b.tip.clone()) else {
        let own: Vec<&str> = context.view.branches.iter().map(|b| b.name.as_str()).collect();
        let message = format!("`{branch}` is not a branch of this session; there is: {}", own.join(", "));
        return Err(Fault::new(ErrorCode::NotFound, message).with("field", "branch"));
    };
    // The record has a score for every branch: no better than the baseline, which an abandoned one is.
    let judged_score = args.judged_score.unwrap_or(if args.abandoned { ABANDONED } else { 3 });
    if !(1..=5).contains(&judged_score) {
        let message = format!("a score of {judged_score} is not in 1..5");
        return Err(Fault::new(ErrorCode::InvalidInput, message).with("field", "judged_score"));
    }
    let lowered = args.abandoned && judged_score > ABANDONED;
    let judged_score = if lowered { ABANDONED } else { judged_score };
    let reasoning = text("judged_reasoning", &args.judged_reasoning, 3_000)?;
    let judged = match &args.hash {
        Some(name) => context.place(Some(name))?.commit,
        None => tip.clone(),
    };
    if judged != tip && !within(context.photo.workspace(), &judged, &tip)? {
        let message = format!("commit {} is not on `{branch}`", judged.short());
        return Err(Fault::new(ErrorCode::InvalidInput, message).with("field", "hash"));
    }
    let history = context.history(&judged)?;
    for claim in &args.key_moves {
        verify_claim(claim, &history)?;
    }
    let criteria = answered(&context.view.start, args.criteria)?;
    let key_moves = if args.abandoned { Vec::new() } else { args.key_moves };
    let (mut hash, mut head) = (judged, None);
    if args.abandoned {
        // The attempts stay in the branch's history; the picture shown is the baseline's again.
        let baseline = context.place(Some("baseline"))?;
        let answer = edit::commit(context, &branch, &baseline.state, Operation::Abandon, None)?;
        hash = answer.head.as_ref().map_or(tip, |h| h.commit.clone());
        if let Some(view) = context.view.branches.iter_mut().find(|b| b.name == branch) {
            view.tip = hash.clone();
        }
        if context.view.head.branch.as_ref() == Some(&branch) {
            head = answer.head;
        }
    }
    let measured = measure(context, &branch, &hash);
    if let Err(fault) = &measured
        && !fault.recoverable
        && fault.code != ErrorCode::BudgetExhausted
    {
        return Err(fault.clone());
    }
    let measured = measured.ok();
    let flags = flags(judged_score, args.abandoned, measured.as_ref());
    let judgment = Judgment {
        branch,
        hash,
        judged_score,
        judged_reasoning: reasoning,
        comparable_to_baseline: args.comparable_to_baseline,
        key_moves,
        criteria,
        abandoned: args.abandoned,
        source: if context.view.acting { JudgmentSource::Protocol } else { JudgmentSource::Agent },
        measured: measured.as_ref().and_then(|m| serde_json::to_value(m).ok()),
        flags,
    };
    let mut data = json!({
        "recorded": judgment.branch,
        "state": judgment.hash,
        "flags": judgment.flags,
        "direction": measured.as_ref().map(Measured::direction),
        "delta_e": measured.as_ref().map(|m| (m.delta_e_mean * 10.0).round() / 10.0),
    });
    if let Some(data) = data.as_object_mut().filter(|_| lowered) {
        let score = format!("{ABANDONED}: an abandoned branch is no better than the baseline");
        data.insert("judged_score".into(), score.into());
    }
    context.gate.record(Event::Judgment(Box::new(judgment))).map_err(|e| fatal(&e))?;
    Ok(Answer { data, images: Vec::new(), head })
}

/// The answers to the named criteria of the session: one to each, and to nothing else.
fn answered(
    start: &SessionStart,
    given: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, Fault> {
    let named = &start.named_criteria;
    let names =
        |all: &mut dyn Iterator<Item = &String>| all.map(String::as_str).collect::<Vec<_>>().join(", ");
    let refused =
        |message: String| Err(Fault::new(ErrorCode::InvalidInput, message).with("field", "criteria"));
    let unknown = names(&mut given.keys().filter(|name| !named.contains_key(*name)));
    if !unknown.is_empty() {
        let known = if named.is_empty() { "none by name".to_owned() } else { names(&mut named.keys()) };
        return refused(format!("the session has no criterion `{unknown}`; it has: {known}"));
    }
    let open =
        names(&mut named.keys().filter(|name| given.get(*name).is_none_or(|told| told.trim().is_empty())));
    if !open.is_empty() {
        return refused(format!("each criterion needs an answer; not answered: {open}"));
    }
    given.into_iter().map(|(name, told)| Ok((name, text("criteria", &told, 600)?))).collect()
}

/// The judgment of a branch that the agent left unjudged: neutral, and marked as the engine's.
pub fn default_judgment(context: &mut ToolContext<'_>, branch: &RefName, tip: &Hash) -> Judgment {
    // A session has its closing line, whatever becomes of the pictures.
    let measured = caught(|| measure(context, branch, tip)).flatten().ok();
    Judgment {
        branch: branch.clone(),
        hash: tip.clone(),
        judged_score: 3,
        judged_reasoning:
            "Not judged by the agent; this neutral score is the engine's and is left out of averages.".into(),
        comparable_to_baseline: true,
        key_moves: context
            .moves(tip)
            .map(|made| made.iter().map(ToString::to_string).collect())
            .unwrap_or_default(),
        criteria: BTreeMap::new(),
        abandoned: false,
        source: JudgmentSource::EngineDefault,
        flags: flags(3, false, measured.as_ref()),
        measured: measured.as_ref().and_then(|m| serde_json::to_value(m).ok()),
    }
}

/// Renders a commit and the baseline at judging quality, measures, and writes both review pictures.
fn measure(context: &mut ToolContext<'_>, branch: &RefName, commit: &Hash) -> Result<Measured, Fault> {
    let edge = context.view.start.preview_edge;
    let place = context.place(Some(commit.as_str()))?;
    // Side by side where there are renderers for it; the comparison below finds the baseline's rendered.
    let baseline = context.place(Some("baseline"))?;
    let both = context.render_all(&[&place.state, &baseline.state], edge, Quality::Judge)?;
    let rendered = both
        .into_iter()
        .next()
        .ok_or_else(|| Fault::new(ErrorCode::StateError, "a picture did not come back"))?;
    let versus = context.versus_baseline((Some(branch), commit), &rendered, edge, Quality::Judge)?;
    let stats = context.stats(&rendered);
    let preview = format!("previews/{branch}-{edge}.jpg");
    let baseline = baseline_preview(&context.view.start);
    for (file, picture) in [(&preview, &rendered.picture), (&baseline, &versus.base.picture)] {
        write_jpeg(&context.photo.workspace().folder().join(file), picture).map_err(|e| io_fault(&e))?;
    }
    Ok(Measured {
        delta_e_mean: versus.difference.mean,
        delta_e_p95: versus.difference.p95,
        clip_high_change: stats.clip_high_pct - versus.base_stats.clip_high_pct,
        clip_low_change: stats.clip_low_pct - versus.base_stats.clip_low_pct,
        there: versus.there.is_some().then(|| versus.local()),
        vector: versus.check,
        long_edge: edge,
        pixel_hash: rendered.pixel_hash,
        baseline_pixel_hash: versus.base.pixel_hash,
        preview,
        stats,
    })
}

/// The review picture of a session's baseline, relative to the photo's folder.
pub fn baseline_preview(start: &SessionStart) -> String {
    format!("previews/baseline-{}-{}.jpg", start.baseline.short(), start.preview_edge)
}

fn flags(score: u8, abandoned: bool, measured: Option<&Measured>) -> Vec<Flag> {
    let mut flags = Vec::new();
    if score <= 2 {
        flags.push(Flag::Weak);
    }
    if score == 5 {
        flags.push(Flag::Strong);
    }
    match measured {
        None => flags.push(Flag::Unmeasured),
        Some(m) => {
            if m.pixel_hash == m.baseline_pixel_hash {
                flags.push(Flag::IdenticalToBaseline);
            }
            if score >= 4 && m.direction() == Verdict::Missed {
                flags.push(Flag::ClaimsNotSupported);
            }
        }
    }
    if abandoned {
        flags.push(Flag::Abandoned);
    }
    flags
}

/// Whether `commit` is an ancestor of `tip`.
fn within(workspace: &Workspace, commit: &Hash, tip: &Hash) -> Result<bool, Fault> {
    let mut at = Some(tip.clone());
    while let Some(hash) = at {
        if &hash == commit {
            return Ok(true);
        }
        at = workspace.commit(&hash).map_err(|e| Fault::from(&e))?.parents.first().cloned();
    }
    Ok(false)
}
