//! Evaluations on many machines: each cell is a job of a batch ([`crate::overnight::many`]).
//!
//! What travels is the folder of the cell, its photo staged, as files and their changes, and what a plan of this one
//! cell is made from. The worker plans it again: where that gives another key, its machine would run another session,
//! and it says in what. What comes back is the cell's folder, as a run on one machine leaves it.

use serde::{Deserialize, Serialize};

use crate::batch::nats::parent::Reservation;
use crate::budget::Amounts;
use crate::eval::cells::Inputs;
use crate::eval::manifest::RunRequest;
use crate::overnight::share;
use base::ids::Hash;

pub mod collect;
pub mod submit;
mod work;

pub use work::Evaluator;
pub(crate) use work::With;

/// One cell as it travels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cell {
    /// The run that pays.
    pub run: String,
    /// What it is to do, of which this cell alone is left.
    pub request: RunRequest,
    /// Everything that matters to it: its key is the hash of this.
    pub inputs: Inputs,
    /// The version of the metrics.
    pub metrics: u32,
    /// From 1.
    pub repeat: u32,
    /// What one session of it may spend.
    pub most: Amounts,
    /// What it had spent before it was submitted, which its batch does not pay.
    #[serde(default)]
    pub paid: Amounts,
    /// The set's manifest, its scenarios and the run's own prompts, as a pack.
    pub set: Hash,
    /// The text of its protocol, with the name of its file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<(String, String)>,
    /// The name of the raw, and its SHA-256.
    pub raw: (String, Hash),
    /// The cell's folder, as a pack.
    pub folder: Hash,
}

impl Cell {
    /// Its key.
    pub fn key(&self) -> Hash {
        self.inputs.key()
    }

    /// Its scenario.
    pub fn scenario(&self) -> &str {
        self.request.scenarios.first().map_or("", String::as_str)
    }

    /// What a person calls it.
    pub fn called(&self) -> String {
        format!("{} #{}", self.scenario(), self.repeat)
    }

    /// What it reserves when it is first claimed.
    pub fn reservation(&self) -> Reservation {
        Reservation { budget: self.inputs.budget().clone(), most: self.most }
    }
}

/// The most that one session of a task may spend, of what a batch counts.
fn most(task: &super::plan::Task) -> Amounts {
    Amounts { cost_micro_usd: task.most, ..share::most(&task.budget, true) }
}
