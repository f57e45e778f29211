//! The history of all runs: `eval_history.jsonl`, which gets a line when a run ends.

use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::eval::file::FileError;
use crate::eval::manifest::{Arm, Manifest, ManifestError};
use base::durable;
use base::files;
use base::ids::Hash;

/// The file with one line for each run.
const HISTORY_FILE: &str = "eval_history.jsonl";

/// A line of `eval_history.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryLine {
    /// The run.
    pub run: String,
    /// When it ended.
    pub ended: Timestamp,
    /// The set.
    pub golden: String,
    /// Of the set's manifest.
    pub golden_sha256: Hash,
    /// Version of the metrics.
    pub metrics: u32,
    /// This program's version.
    pub chemigram: String,
    /// The metric that decides.
    pub primary: String,
    /// Each arm with its mean of that metric over so many scenarios.
    pub arms: Vec<ArmLine>,
    /// Cells done, failed and not run.
    pub cells: [usize; 3],
    /// What it cost, in millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// How long it took.
    pub seconds: u64,
}

/// An arm, in a line of the history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArmLine {
    /// The arm.
    #[serde(flatten)]
    pub arm: Arm,
    /// Its mean; absent where no session has the metric.
    pub mean: Option<f64>,
    /// Over so many scenarios.
    pub scenarios: usize,
}

impl HistoryLine {
    /// The line of a run.
    pub fn of(manifest: &Manifest) -> Self {
        let arms = manifest.arms().into_iter().map(|arm| {
            let mean = manifest.mean(&arm, &manifest.golden.primary);
            ArmLine { mean: mean.map(|m| m.0), scenarios: mean.map_or(0, |m| m.1), arm }
        });
        let tally = manifest.tally();
        Self {
            run: manifest.run.clone(),
            ended: manifest.ended.unwrap_or(manifest.begun),
            golden: manifest.golden.version.clone(),
            golden_sha256: manifest.golden.sha256.clone(),
            metrics: manifest.made_with.metrics,
            chemigram: manifest.made_with.chemigram.clone(),
            primary: manifest.golden.primary.clone(),
            arms: arms.collect(),
            cells: [tally.done, tally.failed, tally.not_run],
            cost_micro_usd: manifest.spent().0,
            seconds: manifest.seconds,
        }
    }

    /// Appends it.
    pub fn append(&self, home: &Path) -> Result<(), ManifestError> {
        let path = home.join(HISTORY_FILE);
        let line = serde_json::to_string(self).unwrap_or_default();
        Ok(durable::append_line(&path, &line).map_err(FileError::at("append to", &path))?)
    }
}

/// All lines of history that can be read, oldest first.
pub fn history(home: &Path) -> Vec<HistoryLine> {
    let text = files::read(&home.join(HISTORY_FILE), files::LARGEST_LIST).unwrap_or_default();
    text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}
