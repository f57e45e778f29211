//! What became of the branches, as far as it is judged.

use crate::session::state::State;
use crate::transcript::JudgmentSource;
use base::ids::{Hash, RefName};

impl State {
    /// The next branch, with the commit judged, that the referee has not been asked about; `None` in a session with a
    /// protocol, which asks by itself.
    pub fn wants_opinion(&self) -> Option<(RefName, Hash)> {
        if self.steering.is_some() || self.start.referee.is_none() {
            return None;
        }
        let judged = self.branches.iter().filter_map(|b| Some((&b.name, b.judgment.as_ref()?)));
        judged
            .filter(|(_, j)| j.source == JudgmentSource::Agent && !j.abandoned)
            .map(|(name, j)| (name.clone(), j.hash.clone()))
            .find(|judged| !self.opined.contains(judged))
    }

    /// The branches that nobody has judged, with their tips.
    pub fn unjudged(&self) -> Vec<(RefName, Hash)> {
        // In a conversation the photographer judges.
        let judges = !self.talks();
        self.branches
            .iter()
            .filter(|b| judges && b.judgment.is_none())
            .map(|b| (b.name.clone(), b.tip.clone()))
            .collect()
    }

    /// Whether the agent itself judged at least one branch. A session that ran out of budget then counts as a success.
    pub fn has_agent_judgment(&self) -> bool {
        self.judged_by_agent() > 0
    }

    /// Branches that the agent itself has judged.
    pub fn judged_by_agent(&self) -> u64 {
        let judgments = self.branches.iter().filter_map(|b| b.judgment.as_ref());
        judgments.filter(|j| j.source == JudgmentSource::Agent).count() as u64
    }
}
