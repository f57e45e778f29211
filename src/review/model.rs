//! The review of one session, free of any layout.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use crate::budget::{Amounts, Budget, Cap, usd};
use crate::review::heard::{self, ProtocolUsed, SecondOpinion, WentOn};
use crate::session::SessionError;
use crate::session::bill::Money;
use crate::session::listing::{Condition, Session};
use crate::tools::{BranchView, Measured, baseline_preview, moves_of};
use crate::transcript::{Event, Flag, JudgmentSource, Outcome, RefereeStart, SessionStart, Vector};
use base::error::Fault;
use base::ids::{Hash, RefName};
use engine::photo::Workspace;

/// Everything worth telling about a session.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ReviewModel {
    /// Its id.
    pub session: String,
    /// The photo.
    pub photo: String,
    /// The photo's folder.
    pub folder: PathBuf,
    /// How it stands.
    #[serde(flatten)]
    pub condition: Condition,
    /// Why it ended, when it was not the agent's own end.
    pub reason: String,
    /// The limit that was reached, in words.
    pub cap: Option<String>,
    /// What to add to the budget for it to go on.
    #[serde(skip)]
    raise: Option<String>,
    /// When it began.
    #[serde(with = "base::stamp")]
    #[schemars(with = "jiff::Timestamp")]
    pub started: jiff::Timestamp,
    /// Session time in milliseconds.
    pub elapsed_ms: u64,
    /// Of that, waiting for the model.
    pub model_ms: u64,
    /// Of that, waiting for darktable.
    pub render_ms: u64,
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
    /// The model that went on when that one failed for good, if one did.
    pub went_on: Option<WentOn>,
    /// The prompt, with its version.
    pub prompt: String,
    /// The protocol that steered it, if one did.
    pub protocol: Option<ProtocolUsed>,
    /// Who gave second opinions, if anyone did.
    pub referee: Option<RefereeStart>,
    /// How the baseline was named.
    pub baseline_ref: String,
    /// The baseline's commit.
    pub baseline: Hash,
    /// Its picture, to hold the branches against.
    pub baseline_preview: Option<PathBuf>,
    /// The brief as the session had it.
    pub brief: String,
    /// The branches in the order they were made.
    pub branches: Vec<BranchReview>,
    /// Branches of the plan that were not made.
    pub not_made: Vec<RefName>,
    /// The question on which it waits.
    pub question: Option<String>,
    /// The agent's summary across branches.
    pub summary: String,
    /// A tag that the agent suggests.
    pub tag_suggestion: Option<String>,
    /// Missing moves that it reported.
    pub gaps: Vec<String>,
    /// Its proposals that wait for a person.
    pub proposals: Vec<PendingProposal>,
    /// Used and allowed, a line a cap.
    pub budget: Vec<CapUse>,
    /// What was spent.
    pub spent: Amounts,
    /// Tokens and money by kind.
    pub money: Money,
    /// Of that, charged in full because a crash hid the outcome.
    pub assumed: Amounts,
    /// Whether it followed a protocol that came to its end: then it cannot be resumed.
    #[serde(skip)]
    over: bool,
    /// What to type next.
    pub next: Vec<NextStep>,
}

/// One branch.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct BranchReview {
    /// Its name.
    pub branch: RefName,
    /// Its axis; `None` for an open-ended one.
    pub vector: Option<Vector>,
    /// The axis in the agent's words.
    pub restated: Option<String>,
    /// Where the session left it.
    pub commit: Hash,
    /// Whether it is still there. A person may have deleted or moved it since.
    pub stands: bool,
    /// 1 to 5; absent while it is not judged.
    pub judged_score: Option<u8>,
    /// Whose score it is.
    pub source: Option<JudgmentSource>,
    /// Why.
    pub judged_reasoning: String,
    /// The answer to each named criterion.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub criteria: BTreeMap<String, String>,
    /// Whether it can be held against the baseline at all.
    pub comparable_to_baseline: bool,
    /// Remarks.
    pub flags: Vec<Flag>,
    /// What the referee said of it last.
    pub second_opinion: Option<SecondOpinion>,
    /// The moves that make it, as the agent names them.
    pub key_moves: Vec<String>,
    /// All moves in effect at its tip.
    pub moves: Vec<String>,
    /// Moves that were made on it and are no longer in effect: set again, taken back or abandoned.
    pub tried: Vec<String>,
    /// What the engine measured.
    #[schemars(with = "Option<serde_json::Value>")]
    pub measured: Option<Measured>,
    /// Its review picture, if it is there.
    pub preview: Option<PathBuf>,
}

impl BranchReview {
    /// Whether it is worth taking over: judged by the agent, not abandoned, not the baseline's picture.
    pub fn is_candidate(&self) -> bool {
        let ruled_out = [Flag::Abandoned, Flag::IdenticalToBaseline];
        self.stands
            && self.source == Some(JudgmentSource::Agent)
            && !self.flags.iter().any(|flag| ruled_out.contains(flag))
    }
}

/// A proposal that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct PendingProposal {
    /// Its id.
    pub id: String,
    /// `taste` or `notes`.
    pub target: String,
    /// The text.
    pub text: String,
}

/// How far a cap was used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct CapUse {
    /// The cap.
    pub cap: Cap,
    /// Used; milliseconds for time, micro-dollars for cost.
    pub used: u64,
    /// Allowed; `None` for what is counted but not capped.
    pub limit: Option<u64>,
    /// The same in words.
    pub words: String,
}

/// A command, and what it is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct NextStep {
    /// What to type.
    pub command: String,
    /// What it does.
    pub why: String,
}

impl ReviewModel {
    /// Folds a session as read into its review.
    pub fn of(workspace: &Workspace, session: &Session) -> Result<Self, SessionError> {
        let (state, start) = (&session.state, &session.state.start);
        let mut opinions = heard::opinions(session);
        let branches: Vec<BranchReview> = state
            .branches
            .iter()
            .map(|branch| BranchReview {
                second_opinion: opinions.remove(&branch.name),
                ..review(workspace, session, branch)
            })
            .collect();
        let made = |name: &RefName| branches.iter().any(|b| b.branch == *name);
        let not_made = start.branches.iter().map(|b| b.branch.clone()).filter(|name| !made(name)).collect();
        let gaps = session.lines.iter().filter_map(|line| match &line.event {
            Event::Gap { description } => Some(description.clone()),
            _ => None,
        });
        let end = state.end.as_ref();
        let (summary, tag_suggestion) = state.ending.clone().unwrap_or_default();
        let mut model = Self {
            session: start.session.to_string(),
            photo: start.photo.to_string(),
            folder: workspace.folder().to_owned(),
            condition: session.condition.clone(),
            reason: end.map(|end| end.reason.clone()).unwrap_or_default(),
            cap: state.cap.map(|cap| cap.words()),
            raise: state.cap.map(|cap| cap.raise()),
            started: session.lines.first().map(|line| line.t).unwrap_or_default(),
            elapsed_ms: crate::tools::millis(session.elapsed()),
            model_ms: state.model_ms,
            render_ms: state.render_ms,
            provider: start.provider.clone(),
            model: start.model.clone(),
            went_on: heard::went_on(session),
            prompt: start.prompt.clone(),
            protocol: heard::protocol(session),
            referee: start.referee.clone(),
            baseline_ref: named(workspace, start)?,
            baseline: start.baseline.clone(),
            baseline_preview: Some(workspace.folder().join(baseline_preview(start))).filter(|p| p.is_file()),
            brief: start.brief.clone(),
            not_made,
            question: state.question.clone(),
            summary,
            tag_suggestion,
            over: state.steering.as_ref().is_some_and(|steering| steering.ending().is_some()),
            gaps: gaps.collect(),
            proposals: pending(workspace, session)?,
            budget: caps(session),
            spent: session.ledger.settled(),
            money: Money::of(&session.lines, &session.ledger.settled()),
            assumed: session.ledger.assumed(),
            next: Vec::new(),
            branches,
        };
        model.next = model.next_steps();
        Ok(model)
    }

    /// The candidate to look at first: the best score, the engine's doubts counted against it.
    pub fn best(&self) -> Option<&BranchReview> {
        let rank = |b: &&BranchReview| {
            let doubtful = b.flags.contains(&Flag::ClaimsNotSupported) || !b.comparable_to_baseline;
            (b.judged_score, !doubtful)
        };
        // Of equals the first made: `max_by_key` would take the last.
        self.branches.iter().rev().filter(|b| b.is_candidate()).max_by_key(rank)
    }

    /// The shortest command line that names the session.
    fn short(&self) -> &str {
        self.session.rsplit('-').next().unwrap_or(&self.session)
    }

    fn next_steps(&self) -> Vec<NextStep> {
        let (photo, short) = (&self.photo, self.short());
        let mut steps = Vec::new();
        let mut step = |command: String, why: &str| steps.push(NextStep { command, why: why.into() });
        match self.condition.outcome() {
            None => {
                step(format!("chemigram mode-b stop {short}"), "ask it to wrap up");
                return steps;
            }
            Some(_) if self.over => {}
            Some(Outcome::Interrupted) => {
                step(
                    format!("chemigram run-mode-b --resume {short} --yes"),
                    "resume where it was interrupted",
                );
            }
            Some(Outcome::NeedsClarification) => {
                let command = format!("chemigram run-mode-b --resume {short} --answer \"…\" --yes");
                step(command, "answer its question and resume");
            }
            Some(Outcome::Cancelled | Outcome::ProviderFailed | Outcome::EngineFailed) => {
                step(format!("chemigram run-mode-b --resume {short} --yes"), "resume it");
            }
            Some(Outcome::BudgetExhausted) => {
                let more = self.raise.as_deref().unwrap_or("time=10m,iterations=20");
                let command = format!("chemigram run-mode-b --resume {short} --raise {more} --yes");
                step(command, "resume with a larger budget");
            }
            Some(Outcome::Completed | Outcome::ProtocolFailed) => {}
        }
        if !self.branches.is_empty() {
            step(format!("chemigram review {short}"), "look at the pictures and compare them");
        }
        if let Some(best) = self.best() {
            let branch = &best.branch;
            let tag = self.tag_suggestion.as_ref().filter(|tag| tag.parse::<RefName>().is_ok());
            let tag = tag.map_or("v2", String::as_str);
            // By its hash: HEAD, from which it may have been named, moves with the next checkout.
            let baseline = self.baseline.short();
            step(format!("chemigram diff {photo} {baseline} {branch}"), "show its changes");
            step(
                format!("chemigram render {photo} {branch} -o {photo}-{branch}.jpg"),
                "render a larger picture",
            );
            step(format!("chemigram checkout {photo} {branch}"), "edit it further");
            step(format!("chemigram promote {photo} {branch} --tag {tag}"), "keep it under a tag");
            step(format!("chemigram promote {photo} {branch} --to-main"), "make it the main edit");
        }
        if let (None, Some(tag)) = (self.best(), self.tag_suggestion.as_ref())
            && tag.parse::<RefName>().is_ok()
        {
            step(format!("chemigram tag {photo} {tag}"), "keep the edit that stands under the suggested tag");
        }
        if let Some(proposal) = self.proposals.first() {
            step(format!("chemigram proposals accept {}", proposal.id), "accept it, or `decline` it");
        }
        steps
    }
}

fn review(workspace: &Workspace, session: &Session, branch: &BranchView) -> BranchReview {
    let start = &session.state.start;
    let planned = start.branches.iter().find(|planned| planned.branch == branch.name);
    let vector = planned.and_then(|planned| planned.vector.clone());
    let judgment = branch.judgment.as_ref();
    let measured: Option<Measured> =
        judgment.and_then(|j| j.measured.clone()).and_then(|value| serde_json::from_value(value).ok());
    let preview = measured.as_ref().map(|m| workspace.folder().join(&m.preview)).filter(|p| p.is_file());
    let (moves, tried) = moves(workspace, session, branch);
    BranchReview {
        branch: branch.name.clone(),
        restated: vector.as_ref().and_then(|v| session.state.restated.get(v.name.as_str()).cloned()),
        vector,
        commit: branch.tip.clone(),
        stands: workspace.branch(&branch.name).ok().flatten().as_ref() == Some(&branch.tip),
        judged_score: judgment.map(|j| j.judged_score),
        source: judgment.map(|j| j.source),
        criteria: judgment.map(|j| j.criteria.clone()).unwrap_or_default(),
        judged_reasoning: judgment.map(|j| j.judged_reasoning.clone()).unwrap_or_default(),
        comparable_to_baseline: judgment.is_none_or(|j| j.comparable_to_baseline),
        flags: judgment.map(|j| j.flags.clone()).unwrap_or_default(),
        second_opinion: None,
        key_moves: judgment.map(|j| j.key_moves.clone()).unwrap_or_default(),
        moves,
        tried,
        measured,
        preview,
    }
}

/// The moves in effect at a branch's tip, and those that were tried and are not. Where the commits are gone
/// (the branch was deleted and `gc` has run), the transcript tells what was done.
fn moves(workspace: &Workspace, session: &Session, branch: &BranchView) -> (Vec<String>, Vec<String>) {
    let baseline = &session.state.start.baseline;
    let full = format!("refs/heads/{}", branch.name);
    let told = || {
        let ops = session.lines.iter().filter_map(|line| match &line.event {
            Event::SnapshotCreated { name, op, .. } if *name == full => Some(op.clone()),
            _ => None,
        });
        ops.skip(1).collect()
    };
    let read = |hash: &Hash| workspace.commit(hash).map_err(|e| Fault::from(&e));
    let state = |hash: &Hash| workspace.state(hash).map_err(|e| Fault::from(&e));
    let Ok(kept) = moves_of(&read, &branch.tip, baseline, &state) else { return (Vec::new(), told()) };
    let mut left = kept.clone();
    let mut tried = Vec::new();
    let mut at = Some(branch.tip.clone());
    while let Some(hash) = at.filter(|hash| hash != baseline) {
        let Ok(commit) = workspace.commit(&hash) else { break };
        for applied in commit.op.moves().into_iter().rev() {
            match left.iter().position(|one| *one == applied) {
                Some(place) => drop(left.swap_remove(place)),
                None => tried.push(applied.to_string()),
            }
        }
        at = commit.parents.first().cloned();
    }
    tried.reverse();
    tried.dedup();
    (kept.iter().map(ToString::to_string).collect(), tried)
}

/// How the baseline is named: as it was, and HEAD, which is elsewhere by now, by a tag that stands there.
fn named(workspace: &Workspace, start: &SessionStart) -> Result<String, SessionError> {
    let tags = if start.baseline_ref == "HEAD" { workspace.tags()? } else { Default::default() };
    let there = tags.into_iter().filter(|(_, commit)| *commit == start.baseline);
    // `baseline` is every photo's own; one that a person gave says more.
    let tag = there.max_by_key(|(name, _)| name.as_str() != "baseline");
    Ok(tag.map_or_else(|| start.baseline_ref.clone(), |(name, _)| name.to_string()))
}

fn pending(workspace: &Workspace, session: &Session) -> Result<Vec<PendingProposal>, SessionError> {
    let waiting = workspace.pending_proposals()?;
    let own = waiting.into_iter().filter(|proposal| proposal.session.as_ref() == Some(&session.id));
    let target = |proposal: &engine::photo::Proposal| match proposal.proposed.kind {
        engine::photo::ProposalKind::Taste => "taste".to_owned(),
        engine::photo::ProposalKind::Notes => "notes".to_owned(),
    };
    Ok(own.map(|p| PendingProposal { target: target(&p), id: p.id, text: p.proposed.text }).collect())
}

fn caps(session: &Session) -> Vec<CapUse> {
    let budget: &Budget = session.ledger.budget();
    let spent = session.ledger.settled();
    let elapsed = crate::tools::millis(session.elapsed());
    let mut caps = Vec::new();
    let mut push = |cap: Cap, used: u64, limit: Option<u64>, say: &dyn Fn(u64) -> String| {
        let words = match limit {
            Some(limit) => format!("{} of {} {cap}", say(used), say(limit)),
            None => format!("{} {cap}", say(used)),
        };
        caps.push(CapUse { cap, used, limit, words });
    };
    let count = |n: u64| n.to_string();
    push(Cap::Time, elapsed, Some(budget.time_seconds * 1000), &duration);
    push(Cap::Iterations, spent.iterations, Some(budget.max_iterations), &count);
    push(Cap::Branches, spent.branches, Some(budget.max_branches), &count);
    push(Cap::Renders, spent.renders, budget.max_renders, &count);
    push(Cap::ModelCalls, spent.model_calls, Some(budget.max_model_calls()), &count);
    if spent.tokens > 0 || budget.max_tokens.is_some() {
        push(Cap::Tokens, spent.tokens, budget.max_tokens, &count);
    }
    if spent.cost_micro_usd > 0 || budget.max_cost_micro_usd.is_some() {
        push(Cap::Cost, spent.cost_micro_usd, budget.max_cost_micro_usd, &|micro| {
            format!("{} USD", usd(micro))
        });
    }
    caps
}

/// Milliseconds as `4:05` or `1:02:03`.
fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{rest:02}") } else { format!("{minutes}:{rest:02}") }
}
