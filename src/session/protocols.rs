//! A protocol for a session: loaded with the session's own values, written into its header by hash, and loaded
//! again from there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::budget::{Budget, Reserve};
use crate::protocol::build::Host;
use crate::protocol::finding::{Dialect, Finding};
use crate::protocol::model::{Protocol, State};
use crate::protocol::schema::{BudgetSpec, ReserveSpec, Trust};
use crate::protocol::variables::{Item, Purpose, Values};
use crate::protocol::{Loaded, Options, load};
use crate::session::SessionError;
use crate::session::opinion::Referee;
use crate::session::start::{self, Plan, Request, Setup};
use crate::session::wording;
use crate::tools;
use crate::transcript::{Event, Line, PlannedBranch, ProtocolStart, VariableValue};
use base::error::{ErrorCode, Fault};
use base::files;
use base::ids::{Hash, RefName};
use engine::photo::Workspace;

/// The prompt of a session that a protocol steers.
pub const PROMPT: &str = "mode_b/protocol";

/// A protocol to steer by, with the values that it is given.
#[derive(Clone, Debug, Default)]
pub struct ProtocolSource {
    /// Its file's name: it says how the text is written.
    pub file: String,
    /// Its text.
    pub text: String,
    /// Values for its variables. `brief` and `vectors` come from the session where they are not given.
    pub values: Values,
    /// The tools that it may use at all; every one when left out.
    pub allowed: Option<BTreeSet<String>>,
}

/// A protocol that was loaded for a session.
#[derive(Clone, Debug)]
pub struct Steered {
    /// The protocol.
    pub protocol: Arc<Protocol>,
    /// Its text.
    pub source: String,
    /// Warnings about it.
    pub warnings: Vec<Finding>,
}

/// A protocol with the values of one session.
#[derive(Clone, Debug)]
pub struct Ready {
    /// The protocol.
    pub protocol: Protocol,
    /// Its values, each with who gave it.
    pub variables: BTreeMap<String, VariableValue>,
    /// The session's budget, and where the protocol is stricter the protocol's.
    pub budget: Budget,
    /// The branches that it makes itself.
    pub makes: Vec<RefName>,
    /// Warnings about it.
    pub warnings: Vec<Finding>,
}

/// Who works and who judges, as the file of a protocol says.
#[derive(Clone, Debug, Default)]
pub struct Preferences {
    /// The model that works.
    pub model: Option<String>,
    /// The referee, as `PROVIDER[:MODEL]`.
    pub referee: Option<String>,
}

impl ProtocolSource {
    /// The protocol as far as its file can be read, without its values.
    pub fn draft(&self) -> Option<Protocol> {
        let options = Options { purpose: Purpose::Check, ..Options::default() };
        load(&self.file, &self.text, &options).draft().cloned()
    }

    /// The variables that it declares.
    fn declared(&self) -> BTreeSet<String> {
        self.draft().map(|protocol| protocol.variables.into_keys().collect()).unwrap_or_default()
    }

    /// Its preferences, as far as its file can be read.
    pub fn preferences(&self) -> Preferences {
        let Some(Protocol { model, referee, .. }) = self.draft() else { return Preferences::default() };
        let named = |provider: &String| match &referee.model {
            Some(model) => format!("{provider}:{model}"),
            None => provider.clone(),
        };
        Preferences { referee: referee.provider.as_ref().map(named), model }
    }
}

/// Loads a protocol with the values of a session that makes these `branches`, one for each vector. Needs no photo.
pub fn ready(
    source: &ProtocolSource,
    brief: &str,
    branches: &[PlannedBranch],
    budget: &Budget,
    model: &str,
) -> Result<Ready, SessionError> {
    let declared = source.declared();
    if !branches.is_empty() && !declared.contains("vectors") {
        let message = "directions were given, but the protocol has no variable `vectors`";
        return Err(Fault::new(ErrorCode::InvalidInput, message)
            .with(
                "remedy",
                "leave out --direction, or use a protocol that explores directions: mode_b_explore",
            )
            .into());
    }
    let values = values(source, brief, &declared, branches);
    let options = options(values.clone(), source.allowed.clone(), model);
    let loaded = load(&source.file, &source.text, &options);
    let warnings = loaded.findings.clone();
    let protocol = loaded.into_protocol().map_err(|e| Fault::from(&e))?;
    let (makes, budget) = (made(&protocol), narrowed(budget, protocol.budget.as_ref()));
    let needed = makes.len() as u64;
    if needed > budget.max_branches {
        let most = budget.max_branches;
        let message = format!("the protocol needs {needed} branches, and the budget allows {most}");
        let remedy = format!("set `branches={needed}` in the budget");
        return Err(Fault::new(ErrorCode::InvalidInput, message).with("remedy", remedy).into());
    }
    affordable(&reserve(&protocol), &budget)?;
    Ok(Ready { protocol, variables: written(&values), budget, makes, warnings })
}

/// Plans a session that a protocol steers: everything is checked and nothing is written. The budget is the
/// request's, and where the protocol is stricter the protocol's.
pub fn plan(setup: &Setup, request: &Request, source: &ProtocolSource) -> Result<Plan, SessionError> {
    let branches = vector_branches(setup, request)?;
    let brief = brief(setup, request)?;
    let ready = ready(source, &brief, &branches, &request.budget, &setup.provider.info().model)?;
    for name in &ready.makes {
        if setup.workspace.branch(name)?.is_some() {
            let message = format!("the branch `{name}`, which the protocol creates, already exists");
            return Err(Fault::new(ErrorCode::StateError, message)
                .with("remedy", "use --var to give it another name")
                .into());
        }
    }
    let mut request = request.clone();
    request.budget = ready.budget;
    let protocol = ready.protocol;
    let reserve = reserve(&protocol);
    let mut plan = start::plan_with(setup, &request, branches)?;
    // The guard rail keeps some calls for the wrap-up by itself; a cap keeps one.
    let one = u64::from(request.budget.max_model_calls.is_some_and(|calls| calls > 1));
    plan.start.reserve = Reserve {
        time_seconds: reserve.time_seconds,
        model_calls: reserve.model_calls.max(one),
        renders: reserve.renders,
        ..plan.start.reserve
    };
    plan.tools = tools::asking(tools::steered_specs(), &plan.start.named_criteria);
    if !request.proposes {
        tools::keep_to_itself(&mut plan.tools);
    }
    tools::keep_only(&mut plan.tools, setup.prompts.tools(&plan.start.prompt));
    plan.start.tools = Hash::of(serde_json::to_vec(&plan.tools).unwrap_or_default());
    plan.start.protocol = Some(ProtocolStart {
        name: protocol.name.clone(),
        file: source.file.clone(),
        source: Hash::of(setup.redactor.clean(source.text.clone())),
        variables: ready.variables,
        allowed: source.allowed.as_ref().map(|tools| tools.iter().cloned().collect()),
    });
    plan.message =
        wording::steered_plan(&plan.start, &protocol.name, &protocol.description, request.proposes);
    let (protocol, warnings) = (Arc::new(protocol), ready.warnings);
    plan.protocol = Some(Steered { protocol, source: source.text.clone(), warnings });
    Ok(plan)
}

/// A protocol, loaded with the values that a session would have: what is wrong with it is among its findings.
pub fn loaded(setup: &Setup, request: &Request, source: &ProtocolSource) -> Result<Loaded, SessionError> {
    let branches = vector_branches(setup, request)?;
    let values = values(source, &brief(setup, request)?, &source.declared(), &branches);
    let options = options(values, source.allowed.clone(), &setup.provider.info().model);
    Ok(load(&source.file, &source.text, &options))
}

/// The branches of the vectors; none, where there are none.
fn vector_branches(setup: &Setup, request: &Request) -> Result<Vec<PlannedBranch>, SessionError> {
    match request.vectors.is_empty() {
        true => Ok(Vec::new()),
        false => start::branches(&setup.workspace, request),
    }
}

/// The brief: the request's, or the photo's own.
pub(super) fn brief(setup: &Setup, request: &Request) -> Result<String, SessionError> {
    match &request.brief {
        Some(brief) => Ok(brief.clone()),
        None => Ok(setup.workspace.brief()?),
    }
}

/// What the protocol keeps for its wrap-up.
fn reserve(protocol: &Protocol) -> ReserveSpec {
    protocol.budget.as_ref().and_then(|budget| budget.reserve).unwrap_or_default()
}

/// Refuses a protocol of the original format without a model as its referee, which names its next state.
pub fn needs_referee(protocol: &Protocol, referee: &Referee) -> Result<(), Fault> {
    if protocol.dialect != Dialect::Compat || matches!(referee, Referee::Model(_)) {
        return Ok(());
    }
    let message = "a protocol in the original format needs a referee that is a model";
    Err(Fault::new(ErrorCode::InvalidInput, message)
        .with("remedy", "choose a model that sees pictures: --referee PROVIDER[:MODEL]"))
}

/// The protocol of a session, loaded as it was when the session began.
pub fn of(workspace: &Workspace, lines: &[Line]) -> Result<Option<Arc<Protocol>>, SessionError> {
    let Some(Event::SessionStart(start)) = lines.first().map(|line| &line.event) else { return Ok(None) };
    let Some(recorded) = &start.protocol else { return Ok(None) };
    let id = &start.session;
    let path = workspace.session_folder(id).join("blobs").join(recorded.source.as_str());
    let text = files::read_text(&path, files::LARGEST_LIST).map_err(SessionError::Blob)?;
    if Hash::of(&text) != recorded.source {
        let message = format!("the protocol of session {id} was changed after the session started");
        return Err(Fault::new(ErrorCode::VersioningError, message).into());
    }
    let mut values = Values::default();
    for (name, given) in &recorded.variables {
        let by = serde_json::from_value(given.by.clone().into()).unwrap_or(Trust::Image);
        values.set(name, given.value.clone(), by);
    }
    let allowed = recorded.allowed.as_ref().map(|tools| tools.iter().cloned().collect());
    let options = options(values, allowed, &start.model);
    let protocol = load(&recorded.file, &text, &options).into_protocol().map_err(|e| Fault::from(&e))?;
    Ok(Some(Arc::new(protocol)))
}

fn options(values: Values, tools: Option<BTreeSet<String>>, model: &str) -> Options {
    let host = Host { tools, model: Some(model.to_owned()), ..Host::default() };
    Options { values, host, ..Options::default() }
}

/// The values that were given, and those that the session knows itself.
fn values(
    source: &ProtocolSource,
    brief: &str,
    declared: &BTreeSet<String>,
    branches: &[PlannedBranch],
) -> Values {
    let mut values = source.values.clone();
    let given: BTreeSet<String> = values.iter().map(|(name, ..)| name.to_owned()).collect();
    let wanted = |name: &str| declared.contains(name) && !given.contains(name);
    if wanted("brief") {
        values.set("brief", brief.trim(), Trust::User);
    }
    if wanted("vectors") && !branches.is_empty() {
        let vectors: Vec<serde_json::Value> = branches
            .iter()
            .filter_map(|planned| {
                let vector = planned.vector.as_ref()?;
                Some(serde_json::json!({
                    "name": vector.name, "branch": planned.branch, "direction": vector.direction,
                    "intensity": vector.intensity.as_deref().unwrap_or_default(),
                }))
            })
            .collect();
        values.set("vectors", vectors, Trust::User);
    }
    values
}

fn written(values: &Values) -> BTreeMap<String, VariableValue> {
    let row = |(name, value, by): (&str, &serde_json::Value, Trust)| {
        let by = serde_json::to_value(by).ok().and_then(|by| by.as_str().map(str::to_owned));
        (name.to_owned(), VariableValue { value: value.clone(), by: by.unwrap_or_default() })
    };
    values.iter().map(row).collect()
}

/// The branches that the protocol makes itself, as far as its loops say.
fn made(protocol: &Protocol) -> Vec<RefName> {
    let names = |state: &State| -> Vec<RefName> {
        let Some(action) = state.action.as_ref().filter(|action| action.tool == "branch") else {
            return Vec::new();
        };
        let Some(name) = action.args.get("name") else { return Vec::new() };
        let items: Vec<BTreeMap<String, Item>> = match &state.foreach {
            None => vec![BTreeMap::new()],
            Some(list) => {
                list.items.iter().map(|item| BTreeMap::from([(list.alias.clone(), item.clone())])).collect()
            }
        };
        items.iter().filter_map(|items| name.render(items).as_str()?.parse().ok()).collect()
    };
    protocol.states.iter().flat_map(names).collect()
}

/// Whether what a protocol keeps for its wrap-up leaves something for the work.
fn affordable(reserve: &ReserveSpec, budget: &Budget) -> Result<(), SessionError> {
    let rows = [
        ("seconds", reserve.time_seconds, Some(budget.time_seconds), "time"),
        ("model calls", reserve.model_calls, Some(budget.max_model_calls()), "iterations"),
        ("renders", reserve.renders, budget.max_renders, "renders"),
    ];
    for (what, kept, cap, name) in rows {
        let Some(cap) = cap.filter(|cap| kept >= *cap) else { continue };
        let message =
            format!("the protocol reserves {kept} {what} for its wrap-up, but the budget has only {cap}");
        return Err(Fault::new(ErrorCode::InvalidInput, message)
            .with("remedy", format!("raise `{name}=` in the budget, or reserve less in the protocol"))
            .into());
    }
    Ok(())
}

/// The lesser of two budgets, cap by cap.
fn narrowed(budget: &Budget, by: Option<&BudgetSpec>) -> Budget {
    let Some(by) = by else { return budget.clone() };
    let least = |cap: u64, by: Option<u64>| by.map_or(cap, |by| cap.min(by));
    let either = |cap: Option<u64>, by: Option<u64>| match (cap, by) {
        (Some(cap), Some(by)) => Some(cap.min(by)),
        (cap, by) => cap.or(by),
    };
    Budget {
        time_seconds: least(budget.time_seconds, by.time_seconds),
        max_iterations: least(budget.max_iterations, by.max_iterations),
        max_branches: least(budget.max_branches, by.max_branches),
        max_tokens: either(budget.max_tokens, by.max_tokens),
        max_cost_micro_usd: either(
            budget.max_cost_micro_usd,
            by.max_cost_usd.map(|usd| (usd * 1e6).max(0.0) as u64),
        ),
        max_renders: either(budget.max_renders, by.max_renders),
        max_model_calls: either(
            budget.max_model_calls,
            by.max_model_calls.filter(|calls| *calls < budget.max_model_calls()),
        ),
    }
}
