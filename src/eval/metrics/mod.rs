//! What a finished session is worth, in named numbers.
//!
//! [`METRICS`] says of each what it means, how it is computed and how it can mislead; `docs/metrics.md` is
//! made from it. [`conduct`] looks at the transcript and the photo's folder, [`pixels`] at pictures. A metric
//! that does not apply to a session has no value and says why: it is never zero by default.
//!
//! Nothing here trusts what a session says of itself where the photo's folder or the pixels show it.

pub mod conduct;
pub mod pixels;
mod table;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::eval::scenario::{Scenario, ScenarioError};
use crate::session::listing::Session;
use base::clock::Deadline;
use base::error::{Coded, ErrorCode, Fault};
use base::ids::RefName;
use darktable::layout::Layouts;
use darktable::render::{RenderError, Renderer};
use engine::photo::{PhotoError, Workspace};
use engine::vocabulary::{Vocabulary, VocabularyError};

pub use table::{Better, Kind, METRICS, Metric, metric, page};

/// The longest side at which pictures are measured, and the preview size of a scenario's session.
pub const EDGE: u32 = 480;

/// The version of what is measured and how. It belongs into manifests: figures of two versions do not compare.
pub const METRICS_VERSION: u32 = 1;

/// A session that has ended, with its photo.
#[derive(Clone, Copy)]
pub struct Finished<'a> {
    /// The photo.
    pub workspace: &'a Workspace,
    /// The session as its transcript tells it.
    pub session: &'a Session,
}

/// What pictures are made with.
#[derive(Clone, Copy)]
pub struct MeasureContext<'a> {
    /// The moves.
    pub vocabulary: &'a Vocabulary,
    /// Layouts of darktable's parameters.
    pub layouts: &'a Layouts,
    /// The renderer.
    pub renderer: &'a dyn Renderer,
    /// Until when it has to be done.
    pub deadline: &'a Deadline,
}

/// One number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// The value; none where the metric does not apply.
    pub value: Option<f64>,
    /// Its unit; empty for a share, a flag or a plain number.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// Why it does not apply, or what the value is based on.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// One branch of a session, measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BranchReading {
    /// Its name.
    pub branch: RefName,
    /// The agent's own score, 1 to 5; none where the engine had to give one.
    pub judged_score: Option<u8>,
    /// Why, in the agent's words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub judged_reasoning: String,
    /// The moves that it named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key_moves: Vec<String>,
    /// Given up by the agent.
    pub abandoned: bool,
    /// Mean ΔE2000 from the baseline.
    pub delta_e: f64,
    /// The share of the distance to the hidden edit that it removed; none without one.
    pub recovery: Option<f64>,
    /// The same by region; a region on which the hidden edit does nothing is left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub regions: BTreeMap<String, f64>,
    /// How much farther from the baseline it is than the hidden edit, in mean ΔE2000.
    pub over_edit: Option<f64>,
    /// The same outside all regions.
    pub spill: Option<f64>,
    /// Movement beside the point for one step to the point.
    pub leakage: Option<f64>,
    /// Growth of clipped highlights or shadows, whichever is more, in percentage points.
    pub clipping: f64,
}

/// All that was measured of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// [`METRICS_VERSION`].
    pub version: u32,
    /// Every metric of [`METRICS`], by name.
    pub metrics: BTreeMap<String, Reading>,
    /// The branches in the order in which they were made.
    pub branches: Vec<BranchReading>,
}

impl Measured {
    /// The value of a metric, if it applies.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.metrics.get(name)?.value
    }

    /// The weighted mean of the metrics that apply, each brought to 0…1 with 1 the better end; none when no
    /// weighted metric applies. Metrics without two finite ends count cut to 0…1.
    pub fn score(&self, weights: &BTreeMap<String, f64>) -> Option<f64> {
        let (mut sum, mut whole) = (0.0, 0.0);
        for (name, weight) in weights {
            let (Some(value), Some(metric)) = (self.get(name), metric(name)) else { continue };
            let value = value.clamp(0.0, 1.0);
            sum += weight * if metric.better == Better::Lower { 1.0 - value } else { value };
            whole += weight;
        }
        (whole > 0.0).then(|| sum / whole)
    }
}

/// Why a session cannot be measured. That has an external reason, and is never a bad result.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// A picture cannot be rendered.
    #[error("a picture of the session cannot be rendered")]
    Render(#[from] RenderError),
    /// A mask of a region or of a move cannot be shown.
    #[error("a mask cannot be shown")]
    Mask(#[from] VocabularyError),
    /// The photo's folder cannot be read.
    #[error(transparent)]
    Photo(#[from] PhotoError),
    /// The scenario's raw or hidden edit.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// Anything with a code of its own.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The pictures cannot be compared.
    #[error(transparent)]
    Difference(#[from] ::pixels::metrics::difference::DifferenceError),
}

impl Coded for MeasureError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Render(error) => error.code(),
            Self::Mask(error) => error.code(),
            Self::Photo(error) => error.code(),
            Self::Scenario(error) => error.code(),
            Self::Fault(fault) => fault.code(),
            Self::Difference(error) => error.code(),
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::Render(error) => error.remedy(),
            Self::Mask(error) => error.remedy(),
            Self::Photo(error) => error.remedy(),
            Self::Scenario(error) => error.remedy(),
            Self::Fault(fault) => fault.remedy(),
            Self::Difference(error) => error.remedy(),
        }
    }
}

/// Readings as they are collected.
#[derive(Default)]
struct Readings(BTreeMap<String, Reading>);

impl Readings {
    fn put(&mut self, name: &'static str, value: Option<f64>, why: impl Into<String>) {
        let unit = metric(name).map(|metric| metric.unit.to_owned()).unwrap_or_default();
        // Five decimals are more than any of them is good for, and hide the last bits of a sum.
        let value = value.filter(|value| value.is_finite()).map(|value| (value * 1e5).round() / 1e5 + 0.0);
        self.0.insert(name.to_owned(), Reading { value, unit, why: why.into() });
    }

    fn value(&mut self, name: &'static str, value: f64) {
        self.put(name, Some(value), "");
    }

    fn flag(&mut self, name: &'static str, holds: bool, why: impl Into<String>) {
        self.put(name, Some(f64::from(u8::from(holds))), if holds { String::new() } else { why.into() });
    }

    fn none(&mut self, name: &'static str, why: &str) {
        self.put(name, None, why);
    }

    /// A share of some; none where there is nothing to share.
    fn share(&mut self, name: &'static str, part: usize, whole: usize, nothing: &str) {
        match whole {
            0 => self.none(name, nothing),
            _ => self.put(name, Some(part as f64 / whole as f64), format!("{part} of {whole}")),
        }
    }
}

/// Measures a session that has ended against its scenario. An error has an external reason.
pub fn measure(
    scenario: &Scenario,
    finished: &Finished<'_>,
    context: &MeasureContext<'_>,
) -> Result<Measured, MeasureError> {
    let mut readings = Readings(conduct::conduct(scenario, finished, context.vocabulary)?);
    let branches = pixels::pixels(scenario, finished, context, &mut readings)?;
    Ok(Measured { version: METRICS_VERSION, metrics: readings.0, branches })
}
