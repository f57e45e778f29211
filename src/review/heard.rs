//! Which protocol steered a session, and what the referee said of each branch.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::protocol::finding::Dialect;
use crate::protocol::rules::{Ruling, Verdict};
use crate::session::listing::Session;
use crate::session::steering::{Answered, Opinion, RefereeOutcome};
use crate::transcript::Event;
use base::ids::{Hash, RefName};

/// The protocol that steered a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct ProtocolUsed {
    /// Its name.
    pub name: String,
    /// Its file, as it was named.
    pub file: String,
    /// The version of its format: 1 is the original one.
    pub version: u32,
    /// SHA-256 of its text.
    pub sha256: Hash,
}

/// The last that a referee said of a branch, all orders taken together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct SecondOpinion {
    /// `better`, `same`, `worse`, `off_brief`, `unsure`; `passed` or `failed` where criteria were asked about;
    /// `unavailable` when nobody could say.
    pub verdict: String,
    /// Why, in its own words.
    pub reason: String,
}

/// The protocol of a session, if one steered it.
pub fn protocol(session: &Session) -> Option<ProtocolUsed> {
    let used = session.state.start.protocol.as_ref()?;
    let dialect = session.state.steering.as_ref()?.protocol.dialect;
    Some(ProtocolUsed {
        name: used.name.clone(),
        file: used.file.clone(),
        version: if dialect == Dialect::Strict { 2 } else { 1 },
        sha256: used.source.clone(),
    })
}

/// The model that went on when the first one failed for good, and what it cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct WentOn {
    /// Its provider.
    pub provider: String,
    /// Its id there.
    pub model: String,
    /// Why the first one could not.
    pub reason: String,
    /// Its tokens.
    pub tokens: u64,
    /// Its money, in micro-dollars.
    pub cost_micro_usd: u64,
}

/// The model that went on, if one did.
pub fn went_on(session: &Session) -> Option<WentOn> {
    let mut found = None;
    for line in &session.lines {
        match &line.event {
            Event::Fallback { to, reason } => {
                let (provider, model) = (to.provider.clone(), to.model.clone());
                found =
                    Some(WentOn { provider, model, reason: reason.clone(), tokens: 0, cost_micro_usd: 0 });
            }
            Event::ModelReply { settled, .. } | Event::Attempt { settled, .. } => {
                if let Some(other) = &mut found {
                    other.tokens += settled.tokens;
                    other.cost_micro_usd += settled.cost_micro_usd;
                }
            }
            _ => {}
        }
    }
    found
}

/// What the referee said last of each branch.
pub fn opinions(session: &Session) -> BTreeMap<RefName, SecondOpinion> {
    let mut found = BTreeMap::new();
    // One question is asked at a time, perhaps in two orders, each perhaps more than once.
    let (mut question, mut said) = (Opinion::default(), Vec::new());
    for line in &session.lines {
        let reply = match &line.event {
            Event::RefereeIntent(intent) if intent.order == 1 && intent.attempt == 1 => {
                (question, said) = (Opinion::default(), Vec::new());
                continue;
            }
            Event::Referee(reply) => reply,
            _ => continue,
        };
        if let Some(Ok(RefereeOutcome::Verdict { verdict, why })) =
            reply.opinion.clone().map(serde_json::from_value)
        {
            said.push((verdict, why));
        }
        let opinion = match question.fold(reply) {
            Answered::NotYet => continue,
            Answered::Verdict(verdict) => of_pair(verdict, &said),
            Answered::Ruling(ruling) => of_criteria(ruling),
            Answered::Unavailable(why) => ("unavailable".to_owned(), why),
        };
        said.clear();
        let (verdict, reason) = opinion;
        if let Some(branch) = &reply.branch {
            found.insert(branch.clone(), SecondOpinion { verdict, reason });
        }
    }
    found
}

fn of_pair(verdict: Verdict, said: &[(Verdict, String)]) -> (String, String) {
    let reason = match said {
        [(first, _), (second, _)] if first != second => format!(
            "it contradicted itself: {} in one order, {} in the other",
            first.outcome(),
            second.outcome()
        ),
        [.., (_, why)] => why.clone(),
        [] => String::new(),
    };
    (verdict.outcome().to_string(), reason)
}

fn of_criteria(ruling: Ruling) -> (String, String) {
    match ruling {
        Ruling::Passed { .. } => ("passed".into(), "the criteria are met".into()),
        Ruling::Failed { feedback } => ("failed".into(), feedback),
        Ruling::Unavailable => ("unavailable".into(), String::new()),
    }
}
