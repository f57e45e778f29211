//! From a request to a session that can run, and from a transcript back to one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;

use crate::budget::{Budget, Reserve};
use crate::conversation::ToolSpec;
use crate::gate::Gate;
use crate::prompts::Store;
use crate::protocol::Protocol;
use crate::provider::Provider;
use crate::render_queue::Queue;
use crate::session::driver::{Patience, Session, Unwatched};
use crate::session::opinion::Referee;
use crate::session::protocols::{self, Steered};
use crate::session::state::State;
use crate::session::{SessionError, deeper, model_call, pricing, wording};
use crate::tools::{self, BlobStore, Engine};
use crate::traces::Live;
use crate::transcript::{
    Event, Line, Mirror, Mode, Outcome, PlannedBranch, SessionStart, Transcript, Vector,
};
use base::clock::{Clock, Stop};
use base::error::{Coded as _, ErrorCode, Fault};
use base::ids::{Hash, RefName, SessionId};
use base::redact::Redactor;
use darktable::layout::Layouts;
use darktable::render::{Quality, Renderer};
use engine::lease::{Lease, Lessor};
use engine::photo::{Authority, Workspace, Writer};
use engine::vocabulary::Vocabulary;

mod resume;

pub use resume::{Resume, resume};

/// The most readings of a brief that one session makes.
const READINGS: u64 = 5;

/// What every session needs, whatever it is about.
pub struct Setup {
    /// The photo.
    pub workspace: Workspace,
    /// The moves.
    pub vocabulary: Arc<Vocabulary>,
    /// Parameter layouts.
    pub layouts: Arc<Layouts>,
    /// The renderer.
    pub renderer: Arc<dyn Renderer>,
    /// How many pictures may be rendered at once.
    pub renderers: usize,
    /// The folder of taste files.
    pub tastes: PathBuf,
    /// The model.
    pub provider: Arc<dyn Provider>,
    /// The prompts.
    pub prompts: Store,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// What must not be written.
    pub redactor: Redactor,
    /// Raised when a person stops the session.
    pub stop: Stop,
    /// Who is sent the session's spans.
    pub traces: Option<Live>,
    /// Who keeps a copy of it elsewhere.
    pub mirror: Option<Arc<dyn Mirror>>,
}

/// What the photographer asks for.
#[derive(Clone, Debug)]
pub struct Request {
    /// The brief; `None` takes the photo's own.
    pub brief: Option<String>,
    /// The axes to explore; none means open-ended.
    pub vectors: Vec<Vector>,
    /// The caps.
    pub budget: Budget,
    /// What to fork from.
    pub from: String,
    /// What to judge by; `None` leaves it to taste and brief.
    pub criteria: Option<String>,
    /// Prompt name, with `@version` or without.
    pub prompt: String,
    /// Longest side of previews.
    pub preview_edge: u32,
    /// Whether nobody is at the keyboard.
    pub unattended: bool,
    /// The seed.
    pub seed: u64,
    /// Whether it may propose something for taste and notes.
    pub proposes: bool,
}

/// A session as planned, before anything was written or spent.
#[derive(Clone)]
pub struct Plan {
    /// The header line.
    pub start: SessionStart,
    /// The rendered system prompt.
    pub system: String,
    /// The tools.
    pub tools: Vec<ToolSpec>,
    /// The first message.
    pub message: String,
    /// The protocol that steers it.
    pub protocol: Option<Steered>,
    /// Who gives second opinions.
    pub referee: Referee,
    /// The model that goes on if the first one fails for good.
    pub fallback: Option<Arc<dyn Provider>>,
}

impl Plan {
    /// The same plan, with a model that goes on if the first one fails for good.
    pub fn with_fallback(mut self, fallback: Option<Arc<dyn Provider>>) -> Result<Self, SessionError> {
        if let Some(provider) = &fallback {
            pricing::payable(provider.info(), &self.start.budget)?;
            self.start.fallback = Some(model_call::named(provider.info()));
        }
        self.fallback = fallback;
        Ok(self)
    }
}

fn invalid(message: impl Into<String>) -> SessionError {
    Fault::new(ErrorCode::InvalidInput, message).into()
}

/// Plans a session: everything is checked and nothing is written.
pub fn plan(setup: &Setup, request: &Request) -> Result<Plan, SessionError> {
    let branches = branches(&setup.workspace, request)?;
    plan_with(setup, request, branches)
}

/// The plan of a session that makes these branches.
pub(super) fn plan_with(
    setup: &Setup,
    request: &Request,
    branches: Vec<PlannedBranch>,
) -> Result<Plan, SessionError> {
    let workspace = &setup.workspace;
    workspace.refuse_another_raw()?;
    let baseline = workspace.resolve(&request.from)?;
    // Read now, while nothing is written: a damaged edit is no session.
    workspace.state_of(&baseline)?;
    let budget = &request.budget;
    let mut names = std::collections::BTreeSet::new();
    for vector in &request.vectors {
        if !names.insert(&vector.name) {
            return Err(invalid(format!("the direction `{}` is given twice", vector.name)));
        }
        if vector.direction.trim().is_empty() {
            return Err(invalid(format!(
                "`{}` has no direction: write it like --direction {}=\"more dramatic\"",
                vector.name, vector.name
            )));
        }
    }
    if request.vectors.len() as u64 > budget.max_branches {
        let (vectors, branches) = (request.vectors.len(), budget.max_branches);
        let message =
            format!("{vectors} directions need {vectors} branches, but the budget allows {branches}");
        let remedy = format!("set `branches={vectors}` in the budget, or leave out a direction");
        return Err(Fault::new(ErrorCode::InvalidInput, message).with("remedy", remedy).into());
    }
    let info = setup.provider.info();
    pricing::payable(info, budget)?;
    let brief = match &request.brief {
        Some(brief) => brief.clone(),
        None => protocols::brief(setup, request)?,
    };
    let named_criteria = request.criteria.as_deref().map(criteria_of).transpose()?.unwrap_or_default();
    let listed = || named_criteria.iter().map(|(name, text)| format!("- {name}: {text}")).collect::<Vec<_>>();
    let given = if named_criteria.is_empty() {
        request.criteria.clone()
    } else {
        Some(format!("{}\nAnswer each by its name in every judgment.", listed().join("\n")))
    };
    let criteria = given.unwrap_or_else(|| "inferred from the photographer's taste and the brief".into());
    // As it will be kept, so that what is read back is what was begun with.
    let brief = setup.redactor.clean(brief);
    let readings = branches.iter().all(|b| b.vector.is_none()) && reads_brief(workspace, request)?;
    let listed = if readings { &[][..] } else { &branches[..] };
    let context = json!({
        "photo_id": workspace.id().as_str(),
        "brief": brief,
        "criteria": criteria,
        "vectors": listed.iter().map(|b| json!({
            "branch": b.branch,
            "name": b.vector.as_ref().map_or("depth", |v| v.name.as_str()),
            "direction": b.vector.as_ref().map_or("go deeper in the direction of the baseline", |v| v.direction.as_str()),
            "intensity": b.vector.as_ref().and_then(|v| v.intensity.as_deref()).unwrap_or(""),
        })).collect::<Vec<_>>(),
        "budget": {
            "time_seconds": budget.time_seconds,
            "max_iterations": budget.max_iterations,
            "max_branches": budget.max_branches,
        },
        "baseline": request.from,
        "vision": info.vision,
    });
    let mut rendered = setup.prompts.render(&request.prompt, &context).map_err(|e| Fault::from(&e))?;
    rendered.text = setup.redactor.clean(rendered.text);
    let mut tools = tools::asking(tools::specs_without(&unneeded(setup, budget)), &named_criteria);
    if !request.proposes {
        tools::keep_to_itself(&mut tools);
    }
    tools::keep_only(&mut tools, setup.prompts.tools(&request.prompt));
    let start = SessionStart {
        session: SessionId::mint(),
        mode: Mode::ModeB,
        photo: workspace.id().clone(),
        raw_sha256: workspace.photo().raw.sha256.clone(),
        baseline,
        baseline_ref: request.from.clone(),
        brief,
        criteria,
        named_criteria,
        branches,
        budget: budget.clone(),
        reserve: Reserve::default(),
        provider: info.provider.clone(),
        model: info.model.clone(),
        prompt: format!("{}@{}", rendered.name, rendered.version),
        template_sha256: rendered.template_sha256.clone(),
        system: Hash::of(&rendered.text),
        tools: Hash::of(serde_json::to_vec(&tools).unwrap_or_default()),
        preview_edge: request.preview_edge,
        proxy: None,
        unattended: request.unattended,
        seed: request.seed,
        darktable: setup.renderer.darktable_version().into(),
        chemigram: env!("CARGO_PKG_VERSION").into(),
        protocol: None,
        referee: None,
        fallback: None,
        hands_back: Vec::new(),
    };
    let message = wording::plan(&start, readings, request.proposes);
    let referee = Referee::default();
    Ok(Plan { start, system: rendered.text, tools, message, protocol: None, referee, fallback: None })
}

/// The tools that a session cannot need: with one branch those that go between states, without bindings for the photo's
/// camera and lens those of layers, without an earlier session those of the record.
fn unneeded(setup: &Setup, budget: &Budget) -> Vec<&'static str> {
    let facts = &setup.workspace.photo().facts;
    let fits = |binding: &engine::vocabulary::bindings::Binding| {
        binding.fits(facts.model.as_deref(), facts.lens.as_deref())
    };
    let bound = setup.vocabulary.bindings().iter().any(fits);
    let earlier =
        std::fs::read_dir(setup.workspace.sessions_folder()).is_ok_and(|mut found| found.next().is_some());
    let needed = |tool: &str| match tool {
        "bind_layers" => bound,
        "read_session_transcript" => earlier,
        _ => budget.max_branches > 1,
    };
    tools::DISPENSABLE.into_iter().filter(|tool| !needed(tool)).collect()
}

/// The branches that a session makes on a photo.
pub(super) fn branches(workspace: &Workspace, request: &Request) -> Result<Vec<PlannedBranch>, SessionError> {
    let taken = |name: &RefName| Ok(workspace.branch(name)?.is_some());
    let readings = reads_brief(workspace, request)?;
    let open = if readings { request.budget.max_branches.min(READINGS) } else { 1 };
    let mut planned = planned(&request.vectors, open, taken)?;
    // Without a word: deeper in the last direction, if there was one.
    if !readings
        && request.brief.is_none()
        && let [PlannedBranch { vector: vector @ None, .. }] = planned.as_mut_slice()
    {
        *vector = deeper::last(workspace)?;
    }
    Ok(planned)
}

/// Whether a session without directions would go on with what was done to the photo: an earlier session's direction,
/// or an edit in the state that it starts from.
///
/// # Errors
/// If the photo cannot be read, or `from` is none of its states.
pub fn goes_deeper(workspace: &Workspace, from: &str) -> Result<bool, SessionError> {
    let state = |commit: &Hash| Ok::<_, SessionError>(workspace.commit(commit)?.state);
    Ok(deeper::last(workspace)?.is_some()
        || state(&workspace.resolve(from)?)? != state(workspace.baseline())?)
}

/// Whether the branches are readings of the brief: no directions, but a brief, and nothing to go deeper in unless the
/// brief is for this session.
fn reads_brief(workspace: &Workspace, request: &Request) -> Result<bool, SessionError> {
    match &request.brief {
        _ if !request.vectors.is_empty() => Ok(false),
        Some(brief) => Ok(!brief.trim().is_empty()),
        None => Ok(!workspace.brief()?.trim().is_empty() && !goes_deeper(workspace, &request.from)?),
    }
}

/// The branches to make: `branch_b_<vector>`, with `_2`, `_3`… where one is taken already; without vectors `open`
/// branches without a direction.
pub fn planned(
    vectors: &[Vector],
    open: u64,
    taken: impl Fn(&RefName) -> Result<bool, SessionError>,
) -> Result<Vec<PlannedBranch>, SessionError> {
    let wanted: Vec<(String, Option<Vector>)> = if vectors.is_empty() {
        (1..=open).map(|n| (format!("branch_b_depth_{n}"), None)).collect()
    } else {
        vectors.iter().map(|v| (format!("branch_b_{}", v.name), Some(v.clone()))).collect()
    };
    let mut planned: Vec<PlannedBranch> = Vec::new();
    for (base, vector) in wanted {
        let mut name = base.clone();
        let mut number = 2;
        loop {
            let branch: RefName = name.parse().map_err(|e: base::ids::InvalidName| Fault::from(&e))?;
            if !taken(&branch)? && !planned.iter().any(|p| p.branch == branch) {
                planned.push(PlannedBranch { branch, vector });
                break;
            }
            name = format!("{base}_{number}");
            number += 1;
        }
    }
    Ok(planned)
}

/// Starts a planned session: locks the photo, writes the header and the plan, renders the baseline.
pub fn start(setup: Setup, plan: Plan) -> Result<Session, SessionError> {
    let id = plan.start.session.clone();
    let engine = engine(&setup, &plan.start.baseline)?;
    let lessor = Lessor::default();
    let photo = lock(&setup.workspace, &id, lessor.lease())?;
    let folder = setup.workspace.session_folder(&id);
    let blobs = BlobStore::new(folder.join("blobs"), setup.redactor.clone());
    let mut gate = match begin(&setup, &plan, &folder, &blobs, lessor) {
        Ok(gate) => gate,
        Err(error) => {
            // Best effort: there is no session yet, so none is left behind.
            let _ = std::fs::remove_dir_all(&folder);
            return Err(error);
        }
    };
    let lines = gate.drain_unfolded();
    let protocol = plan.protocol.map(|steered| steered.protocol);
    let state = fold_with(&setup.workspace, &lines, protocol)?;
    let mut traces = setup.traces;
    traces.iter_mut().for_each(|traces| traces.skip(&lines));
    let mut session = Session {
        engine,
        photo,
        gate,
        state,
        provider: setup.provider,
        fallback: plan.fallback,
        referee: plan.referee,
        blobs,
        folder,
        system: plan.system,
        tools: plan.tools,
        stop: setup.stop,
        patience: Patience::default(),
        traces,
    };
    session.render_baseline()?;
    Ok(session)
}

/// Writes what a session consists of before its first effect.
fn begin(
    setup: &Setup,
    plan: &Plan,
    folder: &Path,
    blobs: &BlobStore,
    lessor: Lessor,
) -> Result<Gate, SessionError> {
    base::durable::make_folder(folder).map_err(SessionError::Blob)?;
    blobs.put(plan.system.as_bytes()).map_err(SessionError::Blob)?;
    blobs.put(&serde_json::to_vec(&plan.tools).unwrap_or_default()).map_err(SessionError::Blob)?;
    if let Some(steered) = &plan.protocol {
        blobs.put(steered.source.as_bytes()).map_err(SessionError::Blob)?;
    }
    // Without its header it is no session, and without its plan the model would be asked about nothing.
    let unnamed = folder.join("transcript.new");
    let transcript = Transcript::create(&unnamed, setup.clock.clone(), setup.redactor.clone())?
        .mirrored(setup.mirror.clone());
    let ledger = pricing::ledger(&plan.start, &[], None, setup.provider.info(), plan.referee.info())?;
    let mut gate = Gate::new(ledger, transcript, lessor, setup.stop.clone());
    gate.record(Event::SessionStart(Box::new(plan.start.clone())))?;
    gate.record(Event::Plan { text: plan.message.clone() })?;
    gate.name(&folder.join("transcript.jsonl"))?;
    Ok(gate)
}

/// The named criteria that a JSON object gives, `{"mood": "stays quiet"}`; none of a text.
fn criteria_of(text: &str) -> Result<BTreeMap<String, String>, SessionError> {
    if !text.trim_start().starts_with('{') {
        return Ok(BTreeMap::new());
    }
    let refused = |message: String| {
        let remedy = r#"write them as `{"mood": "stays quiet", "skin": "keeps its texture"}`, or as a text"#;
        Fault::new(ErrorCode::InvalidInput, message).with("remedy", remedy)
    };
    let named: BTreeMap<String, String> = serde_json::from_str(text)
        .map_err(|e| refused(format!("the criteria are no JSON object of texts: {e}")))?;
    let bad = |(name, text): &(&String, &String)| name.trim().is_empty() || text.trim().is_empty();
    if named.is_empty() || named.iter().any(|pair| bad(&pair)) {
        return Err(refused("a criterion needs a name and a text".into()).into());
    }
    Ok(named)
}

/// The state of a session, from its lines, and from its protocol beside them where one steers it.
pub fn fold(workspace: &Workspace, lines: &[Line]) -> Result<State, SessionError> {
    let protocol = protocols::of(workspace, lines)?;
    fold_with(workspace, lines, protocol)
}

fn fold_with(
    workspace: &Workspace,
    lines: &[Line],
    protocol: Option<Arc<Protocol>>,
) -> Result<State, SessionError> {
    let damaged =
        || Fault::new(ErrorCode::VersioningError, "the transcript does not start with a session header");
    let (first, rest) = lines.split_first().ok_or_else(damaged)?;
    let Event::SessionStart(start) = &first.event else { return Err(damaged().into()) };
    let baseline = workspace.commit(&start.baseline)?;
    let mut state = State::begin(first, baseline.state, protocol).ok_or_else(damaged)?;
    for line in rest {
        state.fold(line);
    }
    Ok(state)
}

pub(super) fn lock(workspace: &Workspace, id: &SessionId, lease: Lease) -> Result<Writer, SessionError> {
    let authority = Authority::Session { session: id.clone(), lease };
    Ok(workspace.lock(authority, &format!("session {id}"))?)
}

pub(super) fn engine(setup: &Setup, baseline: &Hash) -> Result<Engine, SessionError> {
    let workspace = &setup.workspace;
    Ok(Engine {
        vocabulary: setup.vocabulary.clone(),
        layouts: setup.layouts.clone(),
        facts: workspace.facts(baseline)?,
        renderer: Queue::new(setup.renderer.clone(), setup.renderers),
        raw: workspace.raw(),
        tastes: setup.tastes.clone(),
        commits: std::sync::Mutex::default(),
        descent: std::sync::Mutex::default(),
        moves: std::sync::Mutex::default(),
        states: std::sync::Mutex::default(),
        measures: Arc::default(),
        standing: std::sync::Mutex::default(),
    })
}

impl Session {
    /// Renders the baseline under a permit, so that a photo that cannot be rendered costs no model call: the
    /// session has ended then.
    fn render_baseline(&mut self) -> Result<(), SessionError> {
        let state = self.photo.workspace().state_of(&self.state.start.baseline)?;
        let Err(fault) = self.picture(&state, Quality::Preview) else { return Ok(()) };
        let exhausted = fault.code == ErrorCode::BudgetExhausted;
        let outcome = if exhausted { Outcome::BudgetExhausted } else { Outcome::EngineFailed };
        let remedy = fault.remedy().map(|remedy| format!(" ({remedy})")).unwrap_or_default();
        self.fold(&Unwatched);
        self.finish(outcome, format!("{fault}{remedy}"), &Unwatched)
    }
}
