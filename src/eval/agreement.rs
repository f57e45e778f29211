//! How often the scores of a contestant agree with a person's picks: of the sessions of a run, and of those in the
//! library that the same model had with the same prompt.

use std::path::Path;

use serde::Serialize;

use crate::eval::cells;
use crate::eval::manifest::{Arm, Manifest};
use crate::review::picks::{self, Agreement};
use crate::transcript::SessionStart;
use base::error::Fault;
use engine::photo::Library;

/// A contestant, and how often its scores and a person prefer the same.
#[derive(Clone, Debug, Serialize)]
pub struct Agreed {
    /// The contestant.
    pub arm: Arm,
    /// The pairs.
    #[serde(flatten)]
    pub agreement: Agreement,
}

impl Agreed {
    /// In a sentence; `arms` are those that it has to be told from.
    pub fn words(&self, arms: &[Arm]) -> String {
        format!("Your picks and {}: {}", self.arm.short(arms), self.agreement.words().unwrap_or_default())
    }
}

/// The contestants of a run of whose sessions a person preferred some branch to another.
///
/// # Errors
/// Picks that cannot be read.
pub fn of(run: &Manifest, home: &Path, library: &Library) -> Result<Vec<Agreed>, Fault> {
    let mut photos = picks::of_library(library)?;
    for workspace in run.cells.iter().filter_map(|cell| cells::workspace(home, cell)) {
        let kept = picks::of_photo(&workspace)?;
        if !kept.is_empty() {
            photos.push((workspace, kept));
        }
    }
    let arms = run.arms().into_iter().map(|arm| {
        let mut agreement = Agreement::default();
        let own = |start: &SessionStart| {
            (&start.provider, &start.model, &start.prompt) == (&arm.provider, &arm.model, &arm.prompt)
        };
        photos.iter().for_each(|(workspace, kept)| agreement.add_photo(workspace, kept, own));
        Agreed { arm, agreement }
    });
    Ok(arms.filter(|agreed| agreed.agreement.pairs > 0).collect())
}
