//! The mechanical opinion on an edit: did it go where it was asked to go, and what else did it move.

use serde::{Deserialize, Serialize};

use crate::metrics::axes::Axis;
use crate::metrics::difference::Difference;
use crate::metrics::stats::ImageStats;

/// Whether a vector's asked direction moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// By at least one just-noticeable step.
    Met,
    /// By less, or the other way.
    Missed,
    /// Nothing measurable was asked.
    NotApplicable,
}

/// The measured part of a judgment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VectorCheck {
    /// Whether the asked direction moved.
    pub direction: Verdict,
    /// Mean movement on the asked axes in just-noticeable steps; + is as asked.
    pub moved: f64,
    /// Mean movement on the other main axes, whichever way, for one step on the asked ones; null when
    /// those moved by less than half a step.
    pub leakage: Option<f64>,
    /// What a person should know, in short sentences.
    pub warnings: Vec<String>,
}

impl VectorCheck {
    /// Judges the way from `base` to `now`, whose distance is `diff`.
    pub fn of(_axes: &[(Axis, i8)], _base: &ImageStats, _now: &ImageStats, _diff: &Difference) -> Self {
        todo!()
    }
}
