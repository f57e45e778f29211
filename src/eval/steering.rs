//! How the sessions of a run are steered: freely, or by a protocol with its referee; and by which prompts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::budget::Budget;
use crate::eval::baselines;
use crate::eval::context::EvalContext;
use crate::eval::manifest::{ModelRecord, PromptRecord, ProtocolRecord, RunRequest};
use crate::eval::scenario::Scenario;
use crate::session::opinion::{Referee, most_questions};
use crate::session::{pricing, protocols, start};
use crate::tools;
use crate::transcript::VariableValue;
use base::error::{Coded, ErrorCode, Fault};
use base::ids::Hash;

/// The prompt that a version alone refers to.
pub const PROMPT: &str = "mode_b/system";
/// The name of the free loop among the protocols.
pub const FREE: &str = "none";
/// The variables that a scenario gives.
const GIVEN: [&str; 2] = ["brief", "vectors"];
/// The prompts of a referee that is a model.
const REFEREE_PROMPTS: [&str; 3] = ["referee/pair", "referee/criteria", "referee/question"];

/// Why a run cannot be steered as requested.
#[derive(Debug, thiserror::Error)]
pub enum SteeringError {
    /// A scenario does not give what a protocol needs.
    #[error("the protocol {protocol} needs {variables}, which {scenario} does not give")]
    Lacking {
        /// The protocol.
        protocol: String,
        /// Its variables without a value.
        variables: String,
        /// The scenario.
        scenario: String,
    },
    /// A protocol cannot run on a scenario for another reason.
    #[error("the protocol {protocol} cannot steer a session on {scenario}: {fault}")]
    Unfit {
        /// The protocol.
        protocol: String,
        /// The scenario.
        scenario: String,
        /// Why.
        fault: Fault,
    },
    /// A prompt, or a baseline, is for sessions that there are none of.
    #[error("{what} is only for sessions {of}, and this run has none")]
    Idle {
        /// The prompt or the baseline.
        what: String,
        /// What the sessions would be.
        of: &'static str,
        /// What would make some.
        remedy: &'static str,
    },
    /// A referee without a protocol.
    #[error("a referee is given, but no protocol asks for one")]
    NobodyAsks,
    /// Anything with a code of its own.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl Coded for SteeringError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Lacking { .. } | Self::Idle { .. } | Self::NobodyAsks => ErrorCode::InvalidInput,
            Self::Unfit { fault, .. } | Self::Fault(fault) => fault.code,
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::Lacking { .. } => Some(
                "a scenario provides only `brief` and `vectors`: give other variables a default in the protocol, or choose scenarios with --scenarios".into(),
            ),
            Self::Idle { remedy, .. } => Some((*remedy).into()),
            Self::NobodyAsks => Some("choose one with --protocol NAME|FILE".into()),
            Self::Unfit { fault, .. } | Self::Fault(fault) => fault.remedy(),
        }
    }
}

/// A way to steer sessions, and the prompts that are tried with it.
pub struct Variant {
    /// The prompts.
    pub prompts: Vec<PromptRecord>,
    /// The protocol; none is the free loop.
    pub protocol: Option<Protocol>,
}

/// A protocol with its referee.
pub struct Protocol {
    /// As the manifest names it.
    pub record: ProtocolRecord,
    /// As a session is given it.
    pub source: protocols::ProtocolSource,
    /// `offline`, or `PROVIDER[:MODEL]`: as requested, else as the protocol names it.
    referee: Option<String>,
    /// The same, connected, for what can be checked beforehand.
    known: Referee,
}

/// What steers a session, as far as it matters: part of the cell's key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Steered {
    protocol: String,
    source: Hash,
    variables: BTreeMap<String, VariableValue>,
    tools: Hash,
    referee: Option<ModelRecord>,
}

/// A protocol on one scenario.
pub struct Fitted {
    /// What it adds to the key.
    pub steered: Steered,
    /// The session's budget, and where the protocol is stricter the protocol's.
    pub budget: Budget,
    /// The most calls of the referee.
    pub questions: u64,
}

/// The variants of a run, in the order of the request.
pub fn variants(context: &EvalContext, request: &RunRequest) -> Result<Vec<Variant>, SteeringError> {
    let mut free: Vec<PromptRecord> = Vec::new();
    let mut steered: Vec<PromptRecord> = Vec::new();
    for given in &request.prompts {
        let (name, version) = prompt(given);
        let record = found(context, name, version)?;
        let records = if name == protocols::PROMPT { &mut steered } else { &mut free };
        if !records.contains(&record) {
            records.push(record);
        }
    }
    let mut names: Vec<&str> = request.protocols.iter().map(String::as_str).collect();
    if names.is_empty() {
        names.push(FREE);
    }
    let idle = |records: &[PromptRecord], of, remedy| match records.first() {
        Some(record) => Err(SteeringError::Idle { what: record.prompt.clone(), of, remedy }),
        None => Ok(()),
    };
    if !names.contains(&FREE) {
        let of = "without a protocol";
        idle(&free, of, "add `--protocol none`, or leave the prompt out: protocols use mode_b/protocol")?;
        if let Some(who) = request.contestants.iter().find(|who| baselines::is(who)) {
            let what = format!("the baseline `{}`", who.provider);
            return Err(SteeringError::Idle { what, of, remedy: "add `--protocol none`" });
        }
    }
    if names.iter().all(|name| *name == FREE) {
        idle(&steered, "with a protocol", "choose a protocol with --protocol NAME|FILE")?;
        if request.referee.is_some() {
            return Err(SteeringError::NobodyAsks);
        }
    }
    let or_active = |records: Vec<PromptRecord>, name| match records.is_empty() {
        true => Ok::<_, Fault>(vec![found(context, name, None)?]),
        false => Ok(records),
    };
    let mut variants: Vec<Variant> = Vec::new();
    for name in names {
        let protocol = match context.protocols.get(name) {
            Some(own) => Some(Protocol::of(context, own, request)?),
            None => None,
        };
        let prompts = match protocol {
            Some(_) => or_active(steered.clone(), protocols::PROMPT)?,
            None => or_active(free.clone(), PROMPT)?,
        };
        let same = |variant: &Variant| {
            variant.protocol.as_ref().map(|p| &p.record) == protocol.as_ref().map(|p| &p.record)
        };
        if !variants.iter().any(same) {
            variants.push(Variant { prompts, protocol });
        }
    }
    Ok(variants)
}

/// A prompt's name and version: a version alone is one of [`PROMPT`].
fn prompt(given: &str) -> (&str, Option<&str>) {
    match given.split_once('@') {
        Some((name, version)) => (name, Some(version)),
        None if given.contains('/') => (given, None),
        None => (PROMPT, Some(given)),
    }
}

fn found(context: &EvalContext, name: &str, version: Option<&str>) -> Result<PromptRecord, Fault> {
    let template = context.launcher.prompts.show(name, version).map_err(|e| Fault::from(&e))?;
    let prompt = format!("{}@{}", template.name, template.version);
    Ok(PromptRecord { prompt, template_sha256: template.template_sha256 })
}

impl Protocol {
    fn of(
        context: &EvalContext,
        own: &protocols::ProtocolSource,
        request: &RunRequest,
    ) -> Result<Self, Fault> {
        let referee = request.referee.clone().or_else(|| own.preferences().referee);
        let known = context.launcher.referee(referee.as_deref(), request.seed)?;
        let sha256 = Hash::of(&own.text);
        let name = own.draft().map_or_else(|| own.file.clone(), |draft| draft.name);
        let record = ProtocolRecord {
            protocol: format!("{name}@{}", sha256.short()),
            sha256,
            referee: identity(context, &known)?,
        };
        Ok(Self { record, source: own.clone(), referee, known })
    }

    /// Its referee, for one session.
    pub fn referee(&self, context: &EvalContext, seed: u64) -> Result<Referee, Fault> {
        context.launcher.referee(self.referee.as_deref(), seed)
    }

    /// Whether its referee costs nothing.
    pub fn free(&self) -> bool {
        self.record.referee.as_ref().is_none_or(|referee| referee.free)
    }

    /// The protocol on a scenario: whatever would keep the session from starting is an error here.
    pub fn on(&self, scenario: &Scenario, budget: &Budget, model: &str) -> Result<Fitted, SteeringError> {
        let (protocol, scenario_id) = (self.record.protocol.clone(), scenario.id.clone());
        let lacking = self.lacking(scenario);
        if !lacking.is_empty() {
            let variables = lacking.join(" and ");
            return Err(SteeringError::Lacking { protocol, variables, scenario: scenario_id });
        }
        self.fit(scenario, budget, model).map_err(|fault| SteeringError::Unfit {
            protocol,
            scenario: scenario_id,
            fault,
        })
    }

    /// The variables without a value on a scenario, in backquotes.
    fn lacking(&self, scenario: &Scenario) -> Vec<String> {
        let variables = self.source.draft().map(|draft| draft.variables).unwrap_or_default();
        let open = variables.iter().filter(|(name, variable)| {
            let given =
                GIVEN.contains(&name.as_str()) && (*name != "vectors" || !scenario.vectors.is_empty());
            !given && variable.default.is_none()
        });
        open.map(|(name, _)| format!("`{name}`")).collect()
    }

    fn fit(&self, scenario: &Scenario, budget: &Budget, model: &str) -> Result<Fitted, Fault> {
        let plain = |e: crate::session::SessionError| Fault::from(&e);
        let branches = match scenario.vectors.is_empty() {
            true => Vec::new(),
            // On a photo that was just added, no name is taken.
            false => start::planned(&scenario.vectors, 0, |_| Ok(false)).map_err(plain)?,
        };
        let ready = protocols::ready(&self.source, &scenario.brief_text(), &branches, budget, model);
        let ready = ready.map_err(plain)?;
        protocols::needs_referee(&ready.protocol, &self.known)?;
        if let Referee::Model(referee) = &self.known {
            pricing::payable(referee.provider().info(), &ready.budget).map_err(plain)?;
        }
        let questions = match self.known {
            Referee::Nobody => 0,
            _ => most_questions(&ready.protocol, &ready.budget),
        };
        let steered = Steered {
            protocol: ready.protocol.name,
            source: self.record.sha256.clone(),
            variables: ready.variables,
            tools: Hash::of(serde_json::to_vec(&tools::steered_specs()).unwrap_or_default()),
            referee: self.record.referee.clone(),
        };
        Ok(Fitted { steered, budget: ready.budget, questions })
    }
}

/// What identifies a referee; for a model, its prompts too.
fn identity(context: &EvalContext, referee: &Referee) -> Result<Option<ModelRecord>, Fault> {
    let Some(named) = referee.start() else { return Ok(None) };
    let mut record =
        ModelRecord { provider: named.provider, model: named.model, free: true, facts: BTreeMap::new() };
    if let Referee::Model(model) = referee {
        let info = model.provider().info();
        record.free = info.free;
        record.facts = info.facts.clone();
        for name in REFEREE_PROMPTS {
            let PromptRecord { prompt, template_sha256 } = found(context, name, None)?;
            record.facts.insert(prompt, template_sha256.to_string());
        }
    }
    Ok(Some(record))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_alone_is_one_of_the_system_prompt() {
        assert_eq!(prompt("v2"), ("mode_b/system", Some("v2")));
        assert_eq!(prompt("mine/other"), ("mine/other", None));
        assert_eq!(prompt("mine/other@v3"), ("mine/other", Some("v3")));
    }
}
