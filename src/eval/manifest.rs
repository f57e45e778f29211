//! The record of one evaluation: everything that varied, everything that did not, and what became of each cell.
//!
//! `manifest.json` in the run's folder is written before the first session and after every one, so that what is
//! on disk is never more than one session behind.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::batch::folders;
use crate::budget::{Amounts, Budget, Exhausted};
use crate::eval::file::FileError;
use crate::eval::metrics::{METRICS, Measured};
use crate::session::bill::Money;
use crate::transcript::Outcome;
use base::durable;
use base::error::{Coded, ErrorCode};
use base::files;
use base::ids::Hash;

/// The version of the manifest's form.
pub const FORMAT: u32 = 1;
/// The file of a run.
pub const MANIFEST_FILE: &str = "manifest.json";

/// What a run is to do: enough to plan the same run again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRequest {
    /// The folder of the golden set.
    pub golden: PathBuf,
    /// Which scenarios, with `*` for anything; all if empty.
    pub scenarios: Vec<String>,
    /// Prompts, `name@version`.
    pub prompts: Vec<String>,
    /// Protocols, by name or by file; `none` is the free loop, and so is nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protocols: Vec<String>,
    /// Who gives second opinions where a protocol asks: `offline`, or `PROVIDER[:MODEL]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub referee: Option<String>,
    /// The model that goes on where a contestant fails for good, as `PROVIDER[:MODEL]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// A folder of prompts beside the built-in ones.
    pub prompt_folder: Option<PathBuf>,
    /// Who is evaluated.
    pub contestants: Vec<Contestant>,
    /// Sessions of each scenario, prompt and contestant.
    pub repeats: u32,
    /// The seed of the first repeat; the others follow it.
    pub seed: u64,
    /// The most that all sessions may cost together, in millionths of a US dollar.
    pub cost_micro_usd: Option<u64>,
    /// The time after which no session starts, in seconds, each time the run is resumed included.
    pub time_seconds: Option<u64>,
    /// The most that one session may cost.
    pub cell_cost_micro_usd: Option<u64>,
}

/// Who is evaluated: a provider with a model, or one of the two baselines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Contestant {
    /// The provider; `idle` and `oracle` are the baselines.
    pub provider: String,
    /// Its model; its default if absent.
    pub model: Option<String>,
}

/// The frozen set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GoldenRecord {
    /// Its name.
    pub version: String,
    /// Of its manifest.
    pub sha256: Hash,
    /// The metric that decides, named before the run.
    pub primary: String,
    /// What the weighted score is made of.
    pub weights: BTreeMap<String, f64>,
    /// The scenarios of this run, each with its hash.
    pub scenarios: BTreeMap<String, Hash>,
}

/// What the sessions were made with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeWith {
    /// This program's version.
    pub chemigram: String,
    /// [`crate::session::ENGINE`]; 0 in runs that knew only executables.
    #[serde(default)]
    pub engine: u32,
    /// SHA-256 of its executable, when the run was last resumed. Each session says which one ended it.
    pub binary: Hash,
    /// darktable's version.
    pub darktable: String,
    /// Of all files of the vocabulary.
    pub vocabulary: Hash,
    /// Of the tools as the model sees them.
    pub tools: Hash,
    /// [`crate::eval::metrics::METRICS_VERSION`].
    pub metrics: u32,
    /// Longest side of the previews.
    pub preview_edge: u32,
}

/// The checkout in which the run was started, if it was one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkout {
    /// The commit.
    pub commit: String,
    /// Whether files differed from it.
    pub dirty: bool,
}

/// A prompt of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptRecord {
    /// `name@version`.
    pub prompt: String,
    /// Of its template.
    pub template_sha256: Hash,
}

/// A protocol of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtocolRecord {
    /// Its name, and the beginning of the hash of its text: `mode_b_explore@3f1c9a7be042`.
    pub protocol: String,
    /// Of its text.
    pub sha256: Hash,
    /// Who gives second opinions.
    pub referee: Option<ModelRecord>,
}

/// A contestant of the run, or a referee.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRecord {
    /// Its provider.
    pub provider: String,
    /// The model that is requested.
    pub model: String,
    /// Whether it costs nothing.
    pub free: bool,
    /// What else identifies it: the host, the date of the price list, the hash of a script…
    pub facts: BTreeMap<String, String>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: u32,
    /// Its name: when it was begun.
    pub run: String,
    /// What it is to do.
    #[serde(rename = "asked")]
    pub request: RunRequest,
    /// The frozen set.
    pub golden: GoldenRecord,
    /// What the sessions were made with.
    pub made_with: MadeWith,
    /// The checkout.
    pub checkout: Option<Checkout>,
    /// The prompts.
    pub prompts: Vec<PromptRecord>,
    /// The protocols; the free loop is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protocols: Vec<ProtocolRecord>,
    /// The contestants.
    pub models: Vec<ModelRecord>,
    /// When it was begun.
    pub begun: Timestamp,
    /// When it last ended.
    pub ended: Option<Timestamp>,
    /// How long it took, each time it was resumed included.
    pub seconds: u64,
    /// What it consists of, in the order in which it is run.
    pub cells: Vec<CellRecord>,
}

/// One cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellRecord {
    /// The hash of everything that matters; its folder's name.
    pub key: Hash,
    /// The scenario.
    pub scenario: String,
    /// `name@version`.
    pub prompt: String,
    /// The protocol that steers it, as [`ProtocolRecord`] names it; the free loop if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Who gives second opinions, as `provider/model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub referee: Option<String>,
    /// The provider.
    pub provider: String,
    /// The model that is requested.
    pub model: String,
    /// From 1.
    pub repeat: u32,
    /// The seed of the session.
    pub seed: u64,
    /// What became of it.
    #[serde(rename = "standing")]
    pub status: CellStatus,
}

/// What became of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum CellStatus {
    /// A session ended, well or badly, and was measured.
    Done(Box<Done>),
    /// The provider, the engine or the system failed: this says nothing of the prompt, and no figure includes it.
    Failed {
        /// Every attempt.
        failures: Vec<Failure>,
    },
    /// It was not begun, or it was cut and can go on.
    NotRun {
        /// Why.
        why: String,
        /// What failed before.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        failures: Vec<Failure>,
    },
}

impl CellStatus {
    /// Every attempt that failed.
    pub fn failures(&self) -> &[Failure] {
        match self {
            Self::Done(done) => &done.failures,
            Self::Failed { failures } | Self::NotRun { failures, .. } => failures,
        }
    }
}

/// A finished cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// The session.
    pub session: String,
    /// How it ended. A spent budget and an unanswered question are results, not failures.
    pub outcome: Outcome,
    /// The cap that ended it.
    pub cap: Option<Exhausted>,
    /// The models that answered, as the provider names them.
    pub models_served: BTreeSet<String>,
    /// The model that went on, `provider/model`, where the contestant failed for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub went_on: Option<String>,
    /// What it could spend; absent in sessions that were kept before this was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// What it spent.
    pub spent: Amounts,
    /// Tokens and money by kind; absent in sessions that were kept before this was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub money: Option<Money>,
    /// Session time in milliseconds.
    pub wall_ms: u64,
    /// When it ended.
    pub ended: Timestamp,
    /// The run that paid for it: a cell that exists already is reused.
    pub paid_by: String,
    /// SHA-256 of the executable that ended it; absent in sessions that were kept before this was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary: Option<Hash>,
    /// What was measured.
    pub measured: Measured,
    /// Attempts before it that failed.
    pub failures: Vec<Failure>,
}

/// An attempt that came to nothing through no fault of the prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind of failure.
    pub code: ErrorCode,
    /// Cause.
    pub message: String,
    /// What it had spent.
    pub spent: Amounts,
    /// When.
    pub at: Timestamp,
}

/// How many cells of a run are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Finished.
    pub done: usize,
    /// Failed.
    pub failed: usize,
    /// Not run, or not to the end.
    pub not_run: usize,
}

/// Sessions that differ in scenario and repeat only: what is compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Arm {
    /// `name@version`.
    pub prompt: String,
    /// The protocol; the free loop if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Who gives second opinions, as `provider/model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub referee: Option<String>,
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
}

impl Arm {
    /// What it consists of: `prompt=…`, `protocol=…`, `referee=…` where there is one, `model=…`.
    fn parts(&self) -> Vec<String> {
        let mut parts = vec![
            format!("prompt={}", self.prompt),
            format!("protocol={}", self.protocol.as_deref().unwrap_or("none")),
        ];
        parts.extend(self.referee.as_ref().map(|referee| format!("referee={referee}")));
        parts.push(format!("model={}/{}", self.provider, self.model));
        parts
    }

    /// Whether `word` is its name, one of its parts, or a whole word of one: `v2`, `mode_b_explore`, `explorer-1`.
    pub fn is(&self, word: &str) -> bool {
        let words = |part: &str| part.split(['=', '/', '@']).skip(1).any(|own| own == word);
        let value = |part: &str| part.split_once('=').is_some_and(|(_, value)| value == word);
        self.to_string() == word || self.parts().iter().any(|part| part == word || value(part) || words(part))
    }

    /// Its name where room is short: the parts in which the others differ from it, or all of them.
    pub fn short(&self, others: &[Self]) -> String {
        let others: Vec<Vec<String>> = others.iter().map(Self::parts).collect();
        let own = self.parts();
        let telling: Vec<&str> = own
            .iter()
            .filter(|part| others.iter().any(|other| !other.contains(part)))
            .map(String::as_str)
            .collect();
        if telling.is_empty() { own.join(" ") } else { telling.join(" ") }
    }
}

impl std::fmt::Display for Arm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.parts().join(" "))
    }
}

/// A metric that must hold, and did not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Broken {
    /// The metric.
    pub metric: &'static str,
    /// The cell.
    pub key: Hash,
    /// Its scenario.
    pub scenario: String,
    /// What the metric says.
    pub why: String,
}

/// Why a run cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// A file that the system refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// It is damaged, or of another version.
    #[error("{path} is not the manifest of a run: {reason}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// There is no such run.
    #[error("there is no run `{name}`{hint}")]
    Unknown {
        /// As given.
        name: String,
        /// Those there are.
        hint: String,
    },
    /// Several runs begin like this.
    #[error("`{name}` is the beginning of {count} run names")]
    Ambiguous {
        /// As given.
        name: String,
        /// How many.
        count: usize,
    },
}

impl Coded for ManifestError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::File(error) => error.code(),
            Self::Damaged { .. } => ErrorCode::VersioningError,
            Self::Unknown { .. } => ErrorCode::NotFound,
            Self::Ambiguous { .. } => ErrorCode::InvalidInput,
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::Unknown { .. } | Self::Ambiguous { .. } => {
                Some("list the runs with `chemigram eval list`; `last` is the newest".into())
            }
            _ => None,
        }
    }
}

impl CellRecord {
    /// Its arm.
    pub fn arm(&self) -> Arm {
        Arm {
            prompt: self.prompt.clone(),
            protocol: self.protocol.clone(),
            referee: self.referee.clone(),
            provider: self.provider.clone(),
            model: self.model.clone(),
        }
    }

    /// The session's end, if it has one.
    pub fn done(&self) -> Option<&Done> {
        match &self.status {
            CellStatus::Done(done) => Some(done),
            _ => None,
        }
    }

    /// It is not run: why. What failed before stays.
    pub fn leave(&mut self, why: &str) {
        let failures = self.status.failures().to_vec();
        self.status = CellStatus::NotRun { why: why.into(), failures };
    }

    /// What the run `payer` paid for it, in millionths of a US dollar and in tokens; failed attempts included.
    pub fn spent(&self, payer: &str) -> (u64, u64) {
        let own = match &self.status {
            CellStatus::Done(done) if done.paid_by == payer => done.spent,
            CellStatus::Done(_) => return (0, 0),
            CellStatus::Failed { .. } | CellStatus::NotRun { .. } => Amounts::default(),
        };
        let all = self.status.failures().iter().map(|failure| failure.spent).chain([own]);
        all.fold((0, 0), |(cost, tokens), one| (cost + one.cost_micro_usd, tokens + one.tokens))
    }
}

impl Manifest {
    /// Tokens and money by kind, of the sessions of an arm that are done, whoever paid for them.
    pub fn money(&self, arm: &Arm) -> Money {
        let done = self.of_arm(arm).filter_map(|(_, done)| done.money);
        done.fold(Money::default(), Money::plus)
    }

    /// In how many sessions another model went on than the contestant, by arm and by that model, in words.
    pub fn went_on(&self) -> Vec<String> {
        let mut counts: BTreeMap<(Arm, &str), usize> = BTreeMap::new();
        for cell in &self.cells {
            if let Some(other) = cell.done().and_then(|done| done.went_on.as_deref()) {
                *counts.entry((cell.arm(), other)).or_default() += 1;
            }
        }
        let words = |((arm, other), n): (&(Arm, &str), &usize)| {
            format!("{n} of {} sessions went on with {other}: {arm}", self.of_arm(arm).count())
        };
        counts.iter().map(words).collect()
    }

    /// How many cells are done.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for cell in &self.cells {
            match cell.status {
                CellStatus::Done(_) => tally.done += 1,
                CellStatus::Failed { .. } => tally.failed += 1,
                CellStatus::NotRun { .. } => tally.not_run += 1,
            }
        }
        tally
    }

    /// Its arms, in the order of the request.
    pub fn arms(&self) -> Vec<Arm> {
        let mut arms: Vec<Arm> = Vec::new();
        for cell in &self.cells {
            let arm = cell.arm();
            if !arms.contains(&arm) {
                arms.push(arm);
            }
        }
        arms
    }

    /// The finished cells of an arm.
    pub fn of_arm<'a>(&'a self, arm: &'a Arm) -> impl Iterator<Item = (&'a CellRecord, &'a Done)> {
        self.cells.iter().filter(|cell| cell.arm() == *arm).filter_map(|cell| Some((cell, cell.done()?)))
    }

    /// The mean of a metric over an arm's scenarios, each the mean of its repeats, and how many scenarios.
    pub fn mean(&self, arm: &Arm, metric: &str) -> Option<(f64, usize)> {
        let mut scenarios: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (cell, done) in self.of_arm(arm) {
            if let Some(value) = done.measured.get(metric) {
                scenarios.entry(&cell.scenario).or_default().push(value);
            }
        }
        let n = scenarios.len();
        let sum: f64 = scenarios.values().map(|v| v.iter().sum::<f64>() / v.len() as f64).sum();
        (n > 0).then(|| (sum / n as f64, n))
    }

    /// What it paid in millionths of a US dollar and in tokens, failed attempts included. Sessions that an
    /// earlier run paid cost nothing.
    pub fn spent(&self) -> (u64, u64) {
        let cells = self.cells.iter().map(|cell| cell.spent(&self.run));
        cells.fold((0, 0), |(cost, tokens), one| (cost + one.0, tokens + one.1))
    }

    /// The metrics that must hold and did not.
    pub fn broken(&self) -> Vec<Broken> {
        let hard: Vec<&'static str> = METRICS.iter().filter(|m| m.hard).map(|m| m.name).collect();
        let mut broken = Vec::new();
        for (cell, done) in self.cells.iter().filter_map(|cell| Some((cell, cell.done()?))) {
            for &metric in &hard {
                let Some(reading) = done.measured.metrics.get(metric) else { continue };
                if reading.value.is_some_and(|value| value < 1.0) {
                    let (key, scenario, why) = (cell.key.clone(), cell.scenario.clone(), reading.why.clone());
                    broken.push(Broken { metric, key, scenario, why });
                }
            }
        }
        broken
    }

    /// Writes it into its run's folder.
    pub fn write(&self, folder: &Path) -> Result<(), ManifestError> {
        let path = folder.join(MANIFEST_FILE);
        let text = serde_json::to_string_pretty(self).map_err(io::Error::other);
        let written = text.and_then(|text| durable::write(&path, (text + "\n").as_bytes()));
        Ok(written.map_err(FileError::at("write", &path))?)
    }

    /// Reads the manifest of a run's folder.
    pub fn read(folder: &Path) -> Result<Self, ManifestError> {
        let path = folder.join(MANIFEST_FILE);
        let text = files::read_text(&path, files::LARGEST_LIST).map_err(FileError::at("read", &path))?;
        let damaged = |reason: String| ManifestError::Damaged { path: path.clone(), reason };
        let manifest: Self = serde_json::from_str(&text).map_err(|e| damaged(e.to_string()))?;
        match manifest.format {
            FORMAT => Ok(manifest),
            other => {
                Err(damaged(format!("its format is version {other}, this program reads version {FORMAT}")))
            }
        }
    }
}

/// The names of the runs in a folder of evaluations, oldest first.
pub fn runs(home: &Path) -> Vec<String> {
    folders::names(&home.join("runs"), MANIFEST_FILE)
}

/// The folder of a run, by its name, the beginning of it, `last`, or a path.
pub fn find(home: &Path, name: &str) -> Result<PathBuf, ManifestError> {
    let as_path = Path::new(name);
    if as_path.join(MANIFEST_FILE).is_file() {
        return Ok(as_path.to_owned());
    }
    let all = runs(home);
    match folders::matching(&all, name).as_slice() {
        [one] => Ok(home.join("runs").join(one)),
        [] => {
            let hint = match all.last() {
                Some(last) => format!("; the newest of {} is {last}", all.len()),
                None => format!(": there are no runs in {}", home.display()),
            };
            Err(ManifestError::Unknown { name: name.to_owned(), hint })
        }
        several => Err(ManifestError::Ambiguous { name: name.to_owned(), count: several.len() }),
    }
}
