//! The second opinion: who is asked, what is put before it, and what is written down of the answer.

use crate::budget::Amounts;
use crate::ids::{Hash, RefName};
use crate::protocol::schema::Reference;
use crate::session::SessionError;
use crate::session::driver::{Host, Session};
use crate::transcript::{Event, RefereeReply};

/// Who gives second opinions.
#[derive(Clone, Default)]
pub enum Referee {
    /// Nobody.
    #[default]
    Nobody,
}

impl Referee {
    /// As a session's header names it.
    pub fn start(&self) -> Option<crate::transcript::RefereeStart> {
        match self {
            Self::Nobody => None,
        }
    }
}

/// A question.
pub(super) enum Ask {
    /// Which of two pictures is better.
    Pair { against: Reference, orders: u8, criteria: String },
    /// Whether criteria are met, and where to go on.
    Criteria { criteria: String, legal: Vec<String> },
}

impl Session {
    pub(super) async fn consult(&mut self, ask: &Ask, host: &dyn Host) -> Result<(), SessionError> {
        let _ = (ask, host);
        self.unheard(self.state.head.branch.clone(), "there is no referee")
    }

    pub(super) async fn second_opinion(
        &mut self,
        branch: RefName,
        commit: &Hash,
        host: &dyn Host,
    ) -> Result<(), SessionError> {
        let _ = (commit, host);
        self.unheard(Some(branch), "there is no referee")
    }

    /// Writes down that nobody could be asked.
    pub(super) fn unheard(&mut self, branch: Option<RefName>, why: &str) -> Result<(), SessionError> {
        self.record(Event::Referee(Box::new(RefereeReply {
            intent: None,
            branch,
            state: self.state.head.state.clone(),
            orders: 0,
            opinion: None,
            error: Some(why.into()),
            pause_ms: None,
            settled: Amounts::default(),
            usage: None,
            model_served: None,
            raw: None,
            ms: 0,
        })))
    }
}
