//! The plan of a run: which cells there are, and what they may cost at most.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Serialize;

use crate::batch::folders;
use crate::budget::Budget;
use crate::eval::baselines;
use crate::eval::cells::{self, ATTEMPTS, Inputs};
use crate::eval::context::{Entrant, EvalContext, made_with};
use crate::eval::file::FileError;
use crate::eval::manifest::{
    CellRecord, CellStatus, Checkout, Contestant, FORMAT, GoldenRecord, MadeWith, Manifest, ManifestError,
    ModelRecord, PromptRecord, RunRequest,
};
use crate::eval::metrics::METRICS_VERSION;
use crate::eval::scenario::Scenario;
use crate::eval::steering::{self, Protocol, SteeringError, Variant};
use crate::session::pricing;
use base::error::{Coded, ErrorCode, Fault};
use base::hint::did_you_mean;
use base::ids::Hash;

/// Why a run cannot be planned or resumed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No scenario matches.
    #[error("no scenario of {golden} matches `{pattern}`{hint}")]
    NoScenario {
        /// The set.
        golden: String,
        /// As given.
        pattern: String,
        /// A near one.
        hint: String,
    },
    /// Nothing says what a session may cost.
    #[error("the cost of a session of {who} on {scenario} is not limited")]
    Unbounded {
        /// The contestant.
        who: String,
        /// The scenario.
        scenario: String,
    },
    /// The run is no longer what was planned.
    #[error("{run} cannot be resumed: {what} has changed")]
    Changed {
        /// The run.
        run: String,
        /// What.
        what: &'static str,
    },
    /// The manifest.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The protocols, or the prompts.
    #[error(transparent)]
    Steering(#[from] SteeringError),
    /// Anything with a code of its own.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl Coded for RunError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::NoScenario { .. } => ErrorCode::NotFound,
            Self::Unbounded { .. } => ErrorCode::InvalidInput,
            Self::Changed { .. } => ErrorCode::StateError,
            Self::Manifest(error) => error.code(),
            Self::Steering(error) => error.code(),
            Self::Fault(fault) => fault.code,
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::Unbounded { .. } => {
                Some("limit it in US dollars, such as `--cell-cost 0.50`".into())
            }
            Self::Changed { .. } => Some(
                "undo the change, or start a new run: finished sessions that did not change are reused at no cost".into(),
            ),
            Self::Manifest(error) => error.remedy(),
            Self::Steering(error) => error.remedy(),
            Self::Fault(fault) => fault.remedy(),
            Self::NoScenario { .. } => None,
        }
    }
}

/// A run that was planned.
pub struct Plan {
    /// Its record, nothing run yet but what was there already.
    pub manifest: Manifest,
    /// What it may take.
    pub bound: Bound,
    pub(super) tasks: Vec<Task>,
    pub(super) variants: Vec<Variant>,
}

/// Providers of this program that follow rules or a script, whatever a prompt says.
const READ_NO_PROMPT: [&str; 4] = ["explorer", "idle", "oracle", "script"];

impl Plan {
    /// Of each contestant that reads no prompt and is still compared over several, a sentence: its sessions differ by
    /// nothing but their prompts' names, so that the comparison can only find them equal.
    pub fn unread_prompts(&self) -> Vec<String> {
        unread_prompts(&self.manifest.cells)
    }
}

fn unread_prompts(cells: &[CellRecord]) -> Vec<String> {
    let mut over: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
    for cell in cells.iter().filter(|cell| READ_NO_PROMPT.contains(&cell.provider.as_str())) {
        let arm = (&cell.provider, &cell.model, &cell.protocol);
        over.entry(arm).or_default().insert(&cell.prompt);
    }
    let several = over.into_iter().filter(|(_, prompts)| prompts.len() > 1);
    several
        .map(|((provider, model, _), prompts)| {
            let prompts: Vec<&str> = prompts.into_iter().collect();
            format!(
                "{provider}/{model} reads no prompt: {} cannot be told apart by it; name a model with --provider",
                prompts.join(" and ")
            )
        })
        .collect()
}

/// What one cell needs in addition to its record.
pub(super) struct Task {
    /// The place of its scenario in the set.
    pub scenario: usize,
    pub who: Contestant,
    /// The place of its variant.
    pub variant: usize,
    pub budget: Budget,
    /// The most that one attempt may cost, in millionths of a US dollar.
    pub most: u64,
    pub inputs: Inputs,
}

/// What a run may take at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bound {
    /// Cells.
    pub cells: usize,
    /// Of these, finished before.
    pub finished: usize,
    /// What the others may cost at most, in millionths of a US dollar: the sum of their caps, from which their
    /// referees are paid too, or the run's own cap.
    pub cost_micro_usd: u64,
    /// How long they may take at most, one after the other, in seconds.
    pub seconds: u64,
    /// How often models may be called at most, referees included.
    pub model_calls: u64,
    /// How often referees may be consulted at most; one that is a model is called each time.
    pub referee_calls: u64,
}

/// Plans a run: everything is checked and every key computed; nothing is written or sent.
pub fn plan(
    context: &EvalContext,
    mut request: RunRequest,
    binary: Hash,
    checkout: Option<Checkout>,
    now: Timestamp,
) -> Result<Plan, RunError> {
    let golden = &context.golden;
    let chosen = choose(golden.manifest.version.as_str(), &golden.scenarios, &request.scenarios)?;
    let with = made_with(context, binary);
    let variants = steering::variants(context, &request)?;
    let mut prompts: Vec<PromptRecord> = Vec::new();
    for prompt in variants.iter().flat_map(|variant| &variant.prompts) {
        if !prompts.contains(prompt) {
            prompts.push(prompt.clone());
        }
    }
    // By version: whichever is active when the run is resumed, it continues with these.
    request.prompts = prompts.iter().map(|prompt| prompt.prompt.clone()).collect();
    let (mut records, mut tasks, mut models) = (Vec::new(), Vec::new(), Vec::<ModelRecord>::new());
    let (mut bound, mut entrants) = (Bound::default(), BTreeMap::new());
    // Repeats outermost: a run that is cut early has every scenario before it has any twice.
    for repeat in 1..=request.repeats {
        let seed = request.seed + u64::from(repeat - 1);
        for &place in &chosen {
            let Some(scenario) = golden.scenarios.get(place) else { continue };
            for who in &request.contestants {
                let entrant = context.entrant(who, scenario, seed, &mut entrants)?;
                remember(&mut models, &entrant);
                for (variant, prompt) in each_prompt(&variants) {
                    let protocol = variants.get(variant).and_then(|variant| variant.protocol.as_ref());
                    if protocol.is_some() && baselines::is(who) {
                        continue;
                    }
                    let free = entrant.free && protocol.is_none_or(Protocol::free);
                    let budget = EvalContext::budget(scenario, free, request.cell_cost_micro_usd);
                    let fitted = protocol.map(|p| p.on(scenario, &budget, &entrant.model)).transpose()?;
                    let narrowed = fitted.as_ref().map_or(&budget, |fitted| &fitted.budget);
                    let cost = most(&entrant, protocol, narrowed, scenario)?;
                    if let Some(other) = &entrant.fallback {
                        pricing::payable(other, narrowed).map_err(|e| Fault::from(&e))?;
                    }
                    let (seconds, calls) = (narrowed.time_seconds, narrowed.max_model_calls());
                    let questions = fitted.as_ref().map_or(0, |fitted| fitted.questions);
                    let named = (prompt.prompt.as_str(), &prompt.template_sha256);
                    let steered = fitted.map(|fitted| fitted.steered);
                    let inputs = Inputs::of(scenario, named, &entrant, seed, budget.clone(), &with, steered);
                    let key = inputs.key();
                    let done = cells::finished(&context.home, &key);
                    let status = match done {
                        Some(done) if done.measured.version == METRICS_VERSION => {
                            bound.finished += 1;
                            CellStatus::Done(Box::new(done))
                        }
                        Some(_) => not_started(),
                        None => {
                            let add = |sum: &mut u64, one: u64| *sum = sum.saturating_add(one * ATTEMPTS);
                            add(&mut bound.cost_micro_usd, cost);
                            add(&mut bound.seconds, seconds);
                            add(&mut bound.model_calls, calls);
                            add(&mut bound.referee_calls, questions);
                            not_started()
                        }
                    };
                    records.push(CellRecord {
                        key,
                        scenario: scenario.id.clone(),
                        prompt: prompt.prompt.clone(),
                        protocol: protocol.map(|protocol| protocol.record.protocol.clone()),
                        referee: protocol.and_then(|protocol| protocol.record.referee.as_ref()).map(called),
                        provider: entrant.provider.clone(),
                        model: entrant.model.clone(),
                        repeat,
                        seed,
                        status,
                    });
                    tasks.push(Task {
                        scenario: place,
                        who: who.clone(),
                        variant,
                        budget,
                        most: cost,
                        inputs,
                    });
                }
            }
        }
    }
    bound.cells = records.len();
    bound.cost_micro_usd = bound.cost_micro_usd.min(request.cost_micro_usd.unwrap_or(u64::MAX));
    let scenarios = chosen.iter().filter_map(|&place| golden.scenarios.get(place));
    let manifest = Manifest {
        format: FORMAT,
        run: String::new(),
        golden: GoldenRecord {
            version: golden.manifest.version.clone(),
            sha256: golden.sha256.clone(),
            primary: golden.manifest.primary.clone(),
            weights: golden.manifest.weights.clone(),
            scenarios: scenarios.map(|s| (s.id.clone(), s.sha256.clone())).collect(),
        },
        request,
        made_with: with,
        checkout,
        prompts,
        protocols: variants.iter().filter_map(|v| Some(v.protocol.as_ref()?.record.clone())).collect(),
        models,
        begun: now,
        ended: None,
        seconds: 0,
        cells: records,
    };
    Ok(Plan { manifest, bound, tasks, variants })
}

/// The prompts of each variant, with the variant's place.
fn each_prompt(variants: &[Variant]) -> impl Iterator<Item = (usize, &PromptRecord)> {
    variants
        .iter()
        .enumerate()
        .flat_map(|(place, variant)| variant.prompts.iter().map(move |prompt| (place, prompt)))
}

/// `provider/model`.
fn called(model: &ModelRecord) -> String {
    format!("{}/{}", model.provider, model.model)
}

fn not_started() -> CellStatus {
    CellStatus::NotRun { why: "not begun".into(), failures: Vec::new() }
}

/// The most that a session may cost, what its referee costs included: both are paid from one budget.
fn most(
    entrant: &Entrant,
    protocol: Option<&Protocol>,
    budget: &Budget,
    scenario: &Scenario,
) -> Result<u64, RunError> {
    let referee = protocol.and_then(|protocol| protocol.record.referee.as_ref()).filter(|r| !r.free);
    match (entrant.free && referee.is_none(), budget.max_cost_micro_usd) {
        (true, _) => Ok(0),
        (false, Some(cost)) => Ok(cost),
        (false, None) => {
            let mut who = format!("{}/{}", entrant.provider, entrant.model);
            if let Some(referee) = referee {
                who = format!("{who} with {} as referee", called(referee));
            }
            Err(RunError::Unbounded { who, scenario: scenario.id.clone() })
        }
    }
}

fn remember(models: &mut Vec<ModelRecord>, entrant: &Entrant) {
    let known = |m: &&mut ModelRecord| (&m.provider, &m.model) == (&entrant.provider, &entrant.model);
    match models.iter_mut().find(known) {
        // What changes with seed or scenario is in each cell's inputs.
        Some(model) => model.facts.retain(|name, value| entrant.facts.get(name) == Some(value)),
        None => models.push(ModelRecord {
            provider: entrant.provider.clone(),
            model: entrant.model.clone(),
            free: entrant.free,
            facts: entrant.facts.clone(),
        }),
    }
}

/// The places of the scenarios that match one of the patterns; all without a pattern.
fn choose(golden: &str, scenarios: &[Scenario], patterns: &[String]) -> Result<Vec<usize>, RunError> {
    let mut chosen = BTreeSet::new();
    for pattern in patterns {
        let matching = scenarios.iter().enumerate().filter(|(_, scenario)| matches(pattern, &scenario.id));
        let before = chosen.len();
        chosen.extend(matching.map(|(place, _)| place));
        if chosen.len() == before && !scenarios.iter().any(|scenario| matches(pattern, &scenario.id)) {
            let hint = did_you_mean(pattern, scenarios.iter().map(|scenario| scenario.id.as_str()));
            return Err(RunError::NoScenario { golden: golden.into(), pattern: pattern.clone(), hint });
        }
    }
    if patterns.is_empty() {
        chosen.extend(0..scenarios.len());
    }
    Ok(chosen.into_iter().collect())
}

/// Whether a name matches a pattern in which `*` stands for anything.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(tail) = name.strip_prefix(head) else { return false };
    tail.char_indices()
        .map(|(at, _)| at)
        .chain([tail.len()])
        .any(|at| tail.get(at..).is_some_and(|t| matches(rest, t)))
}

impl Plan {
    /// Gives the run its name and writes its manifest: from now on it can be resumed.
    pub fn begin(&mut self, home: &Path) -> Result<PathBuf, RunError> {
        let runs = home.join("runs");
        let refused = |path: &Path| FileError::at("make", path);
        std::fs::create_dir_all(&runs).map_err(refused(&runs)).map_err(ManifestError::from)?;
        let made = folders::make(&runs, self.manifest.begun);
        let (name, folder) = made.map_err(refused(&runs)).map_err(ManifestError::from)?;
        self.manifest.run = name;
        self.manifest.write(&folder)?;
        Ok(folder)
    }

    /// Makes this plan continue a run, which has to be the same one.
    pub fn continues(&mut self, begun: Manifest) -> Result<(), RunError> {
        let changed = |what| RunError::Changed { run: begun.run.clone(), what };
        let now = &self.manifest;
        // Figures of other metrics are measured again from the sessions that are there; a build is no engine.
        let without = |with: &MadeWith| MadeWith { metrics: 0, binary: Hash::of(""), ..with.clone() };
        if now.golden.sha256 != begun.golden.sha256 {
            return Err(changed("the golden set"));
        }
        if now.prompts != begun.prompts {
            return Err(changed("a prompt"));
        }
        if now.protocols != begun.protocols {
            return Err(changed("a protocol or its referee"));
        }
        let keys = |manifest: &Manifest| manifest.cells.iter().map(|c| c.key.clone()).collect::<Vec<_>>();
        if keys(now) != keys(&begun) {
            let what = match without(&now.made_with) == without(&begun.made_with) {
                true => "a model or a budget",
                false => "the program, darktable or the vocabulary",
            };
            return Err(changed(what));
        }
        self.manifest.run = begun.run;
        self.manifest.begun = begun.begun;
        self.manifest.checkout = begun.checkout;
        self.manifest.seconds = begun.seconds;
        for (cell, before) in self.manifest.cells.iter_mut().zip(&begun.cells) {
            if let CellStatus::NotRun { failures, .. } = &mut cell.status {
                *failures = before.status.failures().to_vec();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, name, expected) in [
            ("*", "001_a", true),
            ("001*", "001_a", true),
            ("*portrait*", "002_portrait_face", true),
            ("0*_*t*e", "002_portrait_face", true),
            ("001_a", "001_a", true),
            ("001", "001_a", false),
            ("*b", "001_a", false),
            ("", "001_a", false),
            ("*ü", "größe_ü", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
    #[test]
    fn contestants_that_read_no_prompt_are_told_when_prompts_are_compared() {
        let cell = |provider: &str, prompt: &str, protocol: Option<&str>| CellRecord {
            key: Hash::of(""),
            scenario: "001_a".into(),
            prompt: prompt.into(),
            protocol: protocol.map(Into::into),
            referee: None,
            provider: provider.into(),
            model: "m".into(),
            repeat: 1,
            seed: 1,
            status: CellStatus::NotRun { why: String::new(), failures: Vec::new() },
        };
        let one = cell("explorer", "system@v1", None);
        let told = unread_prompts(&[one.clone(), cell("explorer", "system@v2", None)]);
        assert!(told.len() == 1 && told[0].contains("system@v1 and system@v2"), "{told:?}");
        // A protocol has a prompt of its own kind, a model reads its prompt, and one prompt is no comparison.
        for other in [
            cell("explorer", "protocol@v1", Some("p@1")),
            cell("openai", "system@v2", None),
            cell("idle", "system@v2", None),
            one.clone(),
        ] {
            assert_eq!(unread_prompts(&[one.clone(), other]), Vec::<String>::new());
        }
    }
}
