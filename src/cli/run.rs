//! `run-mode-b`: from arguments to a session, its run, and its review.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;

use super::failure::Failure;
use super::goal;
use super::mode_b::show_session;
use super::progress::Watch;
use super::resolve;
use super::run_args::{ChoiceArgs, RunArgs, RunOptions, RunProtocolArgs};
use super::setup::App;
use super::signals;
use super::steering;
use crate::budget::Budget;
use crate::overnight::share::words;
use crate::provider::{Choice, Provider, connect};
use crate::review::{line, plain};
use crate::session::SessionError;
use crate::session::driver::Session;
use crate::session::listing;
use crate::session::opinion::Referee;
use crate::session::protocols::{self, ProtocolSource};
use crate::session::start::{self, Plan, Request, Resume, Setup};
use crate::transcript::{self, PlannedBranch, Vector};
use base::clock::{Stop, SystemClock};
use base::error::{Coded as _, ErrorCode, Fault};
use base::files;
use base::ids::{PhotoId, SessionId};
use darktable::proxy::Choice as ProxyChoice;
use engine::photo::{IngestOptions, PhotoError, Workspace};

/// The provider when none is named.
pub(super) const DEFAULT_PROVIDER: &str = "explorer";
/// The seed when none is given.
pub(super) const DEFAULT_SEED: u64 = 1;
/// The prompt of a session without a protocol.
const PROMPT: &str = "mode_b/system";
/// What a protocol may spend when nothing is said.
const PROTOCOL_BUDGET: &str = "standard";

/// Runs a session, new or taken up again. The status is the outcome's.
pub fn run(app: &App, args: &RunArgs) -> Result<u8, Failure> {
    let steered = args.protocol.is_some() || args.options.generate.is_some();
    let usual = if steered { PROTOCOL_BUDGET } else { "" };
    let budget = args.options.budget.as_deref().unwrap_or(usual);
    session(app, args.photo.as_deref(), args.protocol.as_deref(), budget, &args.options)
}

/// Runs a protocol; `run-mode-b --protocol` with its arguments in another order.
pub fn run_protocol(app: &App, args: &RunProtocolArgs) -> Result<u8, Failure> {
    let budget = args.options.budget.as_deref().unwrap_or(PROTOCOL_BUDGET);
    session(app, args.photo.as_deref(), args.protocol.as_deref(), budget, &args.options)
}

fn session(
    app: &App,
    photo: Option<&str>,
    protocol: Option<&str>,
    budget: &str,
    args: &RunOptions,
) -> Result<u8, Failure> {
    if let Some(part) = &args.resume {
        return resume(app, photo, args, part);
    }
    let budget = Budget::parse(budget)?;
    let goal = resolve::optional_text(args.generate.as_ref())?;
    // A protocol is written and kept though nobody is there; without a yes it is not run.
    if !args.yes && !args.dry_run && goal.is_none() && !app.output.can_ask() {
        return Err(Failure::new(ErrorCode::InvalidInput, "there is no terminal to confirm the plan")
            .remedy("add --yes to start without asking, or --dry-run to see the plan"));
    }
    let asked = protocol.map(|named| steering::asked(app, named, &args.vars)).transpose()?;
    if asked.is_none() && goal.is_none() && !args.vars.is_empty() {
        return Err(Failure::input("--var needs a protocol").remedy("choose one with --protocol NAME|FILE"));
    }
    let brief = resolve::optional_text(args.brief.as_ref())?;
    let seed = args.seed.unwrap_or(DEFAULT_SEED);
    // Whatever can be wrong with provider and prompt is found before a raw is taken in.
    let mut choice = choice(&args.choice, seed);
    let wishes = asked.as_ref().map(ProtocolSource::wishes).unwrap_or_default();
    if choice.model.is_none() && choice.provider != DEFAULT_PROVIDER {
        choice.model = wishes.model;
    }
    let provider = connect(&app.registry(), &choice)?;
    let prompts = app.prompts(args.prompts.as_ref())?;
    let named = args.referee.as_deref().or(wishes.referee.as_deref());
    let referee = Referee::named(named, &app.registry(), &prompts, seed)?;
    let workspace = subject(app, photo.unwrap_or_default(), brief.as_ref(), args.dry_run)?;
    let steered = asked.is_some() || goal.is_some();
    let request = Request {
        brief,
        vectors: args.vectors.clone(),
        budget,
        from: args.from.clone(),
        criteria: resolve::optional_text(args.criteria.as_ref())?,
        prompt: args.prompt.clone().unwrap_or_else(|| usual_prompt(steered).into()),
        preview_edge: args.preview_size,
        unattended: args.yes,
        seed,
    };
    let stop = Stop::default();
    let mut wish = SessionSpec {
        request,
        asked,
        provider,
        referee,
        proxy: args.proxy.unwrap_or_default(),
        prompts: args.prompts.clone(),
        renderers: args.renderers,
    };
    let (setup, proxy) = wish.setup(app, workspace, stop.clone())?;
    match &goal {
        Some(goal) if args.dry_run => return goal::dry_run(app, &setup, &wish.request, goal),
        Some(goal) => wish.asked = Some(goal::write(app, &setup, &mut wish.request, goal, args)?),
        None => {}
    }
    let plan = wish.plan(&setup, proxy)?;
    let free = setup.provider.info().free;
    steering::remarks(app, &plan);
    if args.dry_run {
        return dry_run(app, &plan).map(|()| 0);
    }
    // Who has said yes to a protocol that was written need not say it again.
    if !args.yes && goal.is_none() {
        app.output.remark(&confirmation(&plan, free));
        let answer = app.output.ask("\nStart? [yes/no]").unwrap_or_default();
        if !matches!(answer.to_lowercase().as_str(), "y" | "yes") {
            return Err(Failure::new(ErrorCode::StateError, "not started; nothing was spent"));
        }
    }
    carry_out(app, stop, !args.yes, 0, || Ok(start::start(setup, plan)?))
}

/// The prompt of a session where none is named.
pub(super) fn usual_prompt(steered: bool) -> &'static str {
    if steered { protocols::PROMPT } else { PROMPT }
}

/// What is wished of one session, everything looked up but the photo.
pub(super) struct SessionSpec {
    /// What the photographer asks for.
    pub request: Request,
    /// What steers it.
    pub asked: Option<ProtocolSource>,
    pub provider: Arc<dyn Provider>,
    /// Who gives second opinions.
    pub referee: Referee,
    /// Whether previews come from a smaller copy of the raw.
    pub proxy: ProxyChoice,
    /// A folder of prompts of one's own.
    pub prompts: Option<PathBuf>,
    /// How many pictures may be rendered at once.
    pub renderers: u8,
}

impl SessionSpec {
    /// What a session on a photo needs, and the copy of the raw that its previews come from.
    pub(super) fn setup(
        &self,
        app: &App,
        workspace: Workspace,
        stop: Stop,
    ) -> Result<(Setup, Option<u32>), Failure> {
        let (provider, prompts) = (self.provider.clone(), self.prompts.as_ref());
        let mut setup = setup(app, workspace, provider, prompts, self.renderers, stop)?;
        let proxy = preview_from_copy(app, &mut setup, self.proxy, self.request.preview_edge)?;
        Ok((setup, proxy))
    }

    /// The session that is wished for; nothing is written.
    pub(super) fn plan(self, setup: &Setup, proxy: Option<u32>) -> Result<Plan, Failure> {
        let mut plan = match &self.asked {
            Some(asked) => protocols::plan(setup, &self.request, asked)?,
            None => start::plan(setup, &self.request)?,
        }
        .with_referee(self.referee)?;
        plan.start.proxy = proxy;
        steering::check_referee(&plan)?;
        Ok(plan)
    }
}

/// Runs a session that needs no arguments and no person.
pub fn run_request(
    app: &App,
    workspace: Workspace,
    choice: &Choice,
    request: &Request,
) -> Result<u8, Failure> {
    let provider = connect(&app.registry(), choice)?;
    let stop = Stop::default();
    let setup = setup(app, workspace, provider, None, 1, stop.clone())?;
    let plan = start::plan(&setup, request)?;
    carry_out(app, stop, false, 0, || Ok(start::start(setup, plan)?))
}

fn resume(app: &App, photo: Option<&str>, args: &RunOptions, part: &str) -> Result<u8, Failure> {
    if !args.yes && !app.output.can_ask() {
        return Err(Failure::new(ErrorCode::InvalidInput, "there is no terminal to confirm")
            .remedy("add --yes to resume without asking"));
    }
    let (workspace, id) = app.session(part)?;
    if let Some(named) = photo
        && known(app, named)?.as_ref() != Some(workspace.id())
    {
        let message = format!("session {} is not on `{named}` but on `{}`", id.short(), workspace.id());
        return Err(Failure::input(message).remedy("leave out the photo"));
    }
    let session = listing::read(&workspace, &id)?;
    let stop = Stop::default();
    let anew = Anew {
        choice: args.choice.clone(),
        seed: args.seed,
        referee: args.referee.clone(),
        prompts: args.prompts.clone(),
        renderers: args.renderers,
    };
    let (setup, referee) = take_up(app, workspace, &session, anew, stop.clone())?;
    let raise = args.raise.as_deref().map(|spec| start::raised(session.ledger.budget(), spec)).transpose()?;
    let with = Resume { answer: resolve::optional_text(args.answer.as_ref())?, raise, referee };
    let first = session.lines.len() as u64;
    carry_out(app, stop, !args.yes, first, || Ok(start::resume(setup, &id, with)?))
}

/// What is said anew of a session that goes on; what is left out is as it began.
pub(super) struct Anew {
    pub choice: ChoiceArgs,
    pub seed: Option<u64>,
    /// Who gives second opinions.
    pub referee: Option<String>,
    /// A folder of prompts of one's own.
    pub prompts: Option<PathBuf>,
    /// How many pictures may be rendered at once.
    pub renderers: u8,
}

/// What a session needs to go on: whoever began it goes on with it, unless another is named.
pub(super) fn take_up(
    app: &App,
    workspace: Workspace,
    session: &listing::Session,
    anew: Anew,
    stop: Stop,
) -> Result<(Setup, Referee), Failure> {
    let begun = &session.state.start;
    let named = anew.choice.provider.is_some();
    let chosen = ChoiceArgs {
        provider: Some(anew.choice.provider.unwrap_or_else(|| begun.provider.clone())),
        model: anew.choice.model.or_else(|| (!named).then(|| begun.model.clone())),
    };
    let seed = anew.seed.unwrap_or(begun.seed);
    let mut chosen = choice(&chosen, seed);
    if !named && chosen.base_url.take().is_some() {
        let name = crate::review::line(&begun.provider);
        app.output.remark(&format!(
            "{BASE_URL_ENV} is ignored, because no provider is given; to use it, add `--provider {name}`"
        ));
    }
    let provider = connect(&app.registry(), &chosen)?;
    let begun_with = begun.referee.as_ref().map(|r| format!("{}:{}", r.provider, r.model));
    let named = anew.referee.or(begun_with);
    let prompts = app.prompts(anew.prompts.as_ref())?;
    let referee = Referee::named(named.as_deref(), &app.registry(), &prompts, begun.seed)?;
    let mut setup = setup(app, workspace, provider, anew.prompts.as_ref(), anew.renderers, stop)?;
    // As it began: an agent that goes on must see what it has seen.
    let proxy = begun.proxy.map_or(ProxyChoice::Off, ProxyChoice::By);
    preview_from_copy(app, &mut setup, proxy, begun.preview_edge)?;
    Ok((setup, referee))
}

/// Starts, runs to the end, and shows what came of it. `first` is the first transcript line of this run.
fn carry_out(
    app: &App,
    stop: Stop,
    asks: bool,
    first: u64,
    begin: impl FnOnce() -> Result<Session, Failure>,
) -> Result<u8, Failure> {
    let runtime = signals::runtime()?;
    let watch = Watch::new(&app.output, asks);
    let (bar, output) = (watch.bar(), app.output.clone());
    let ran = runtime.block_on(async {
        signals::listen(stop, move |text| bar.suspend(|| output.remark(text)))?;
        watch.start();
        let mut session = begin()?;
        watch.catch_up(&transcript::read(&session.folder.join("transcript.jsonl"))?.lines, first);
        let id = session.state.start.session.clone();
        let end = session.run(&watch).await.map_err(|error| cut_short(&error, &id))?;
        Ok::<_, Failure>((end, session.state.has_agent_judgment(), id))
    });
    watch.finish();
    let (end, harvested, id) = ran?;
    if !app.output.json {
        let (workspace, id) = app.session(id.as_str())?;
        show_session(app, &workspace, &id)?;
    }
    Ok(end.outcome.exit_status(harvested))
}

/// Why a session stopped in the middle, and how it goes on.
fn cut_short(error: &SessionError, id: &SessionId) -> Failure {
    let on = format!("continue it with `chemigram run-mode-b --resume {} --yes`", id.short());
    let remedy = error.remedy().map_or_else(|| on.clone(), |first| format!("{first}; then {on}"));
    Failure::from(Fault::from(error)).remedy(remedy)
}

/// The address of the provider that is named on the command line, or in the environment beside it. It is nobody
/// else's: a key must not travel to the address of another provider.
const BASE_URL_ENV: &str = "CHEMIGRAM_BASE_URL";

/// The address in the environment.
pub(super) fn base_url() -> Option<String> {
    std::env::var(BASE_URL_ENV).ok().filter(|url| !url.is_empty())
}

/// Which provider is meant: as typed, else as the environment says, else the explorer.
pub(super) fn choice(args: &ChoiceArgs, seed: u64) -> Choice {
    let env = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    match args.provider.clone().or_else(|| env("CHEMIGRAM_PROVIDER")) {
        Some(provider) => {
            let from_env = || args.provider.is_none().then(|| env("CHEMIGRAM_MODEL")).flatten();
            let model = args.model.clone().or_else(from_env);
            Choice { provider, model, base_url: base_url(), seed }
        }
        None => Choice { provider: DEFAULT_PROVIDER.into(), model: args.model.clone(), base_url: None, seed },
    }
}

/// Everything a session works with.
pub(super) fn setup(
    app: &App,
    workspace: Workspace,
    provider: Arc<dyn Provider>,
    prompts: Option<&PathBuf>,
    renderers: u8,
    stop: Stop,
) -> Result<Setup, Failure> {
    Ok(Setup {
        workspace,
        vocabulary: Arc::new(app.vocabulary()?),
        layouts: Arc::new(app.layouts()),
        renderer: app.steady_renderer()?,
        renderers: renderers.into(),
        tastes: app.folders.tastes(),
        provider,
        prompts: app.prompts(prompts)?,
        clock: Arc::new(SystemClock),
        redactor: app.redactor.clone(),
        stop,
    })
}

/// Lets the previews come from a smaller copy of the raw; by how much it is smaller, if they do.
pub(super) fn preview_from_copy(
    app: &App,
    setup: &mut Setup,
    choice: ProxyChoice,
    long_edge: u32,
) -> Result<Option<u32>, Failure> {
    let (renderer, n) = app.proxied(setup.renderer.clone(), &setup.workspace.raw(), choice, long_edge)?;
    setup.renderer = renderer;
    Ok(n)
}

/// The photo that is meant: one of the library, or a raw file, which is taken in unless it was before.
fn subject(app: &App, named: &str, brief: Option<&String>, dry_run: bool) -> Result<Workspace, Failure> {
    if dry_run {
        return match known(app, named)? {
            Some(id) => app.photo(&id),
            None => Err(Failure::new(ErrorCode::NotFound, format!("{named} is not in the library yet"))
                .remedy(format!("a dry run does not add it; run `chemigram ingest {named}` first"))),
        };
    }
    let path = Path::new(named);
    if let Some(id) = as_id(app, named) {
        return app.photo(&id);
    }
    if path.is_file() {
        app.output.remark(&format!("adding {named} to the library"));
    }
    let options = IngestOptions { id: None, brief: brief.cloned() };
    match app.try_ingest(path, options)? {
        Ok(ingested) => Ok(ingested.workspace),
        Err(PhotoError::AlreadyIngested { id, .. }) => app.photo(&id),
        Err(error) => Err(error.into()),
    }
}

/// The id that is named, unless a raw file is.
fn as_id(app: &App, named: &str) -> Option<PhotoId> {
    let id = named.parse::<PhotoId>().ok()?;
    (app.library.folder(&id).exists() || !Path::new(named).is_file()).then_some(id)
}

/// The id of the photo that is named, by id or by its raw file; `None` for a raw that was not taken in.
fn known(app: &App, named: &str) -> Result<Option<PhotoId>, Failure> {
    if let Some(id) = as_id(app, named) {
        return Ok(Some(id));
    }
    let path = Path::new(named);
    let (sha256, _) = files::hash(path).map_err(|e| Failure::file("read", path, &e))?;
    Ok(app.library.find_raw(&sha256)?)
}

/// A plan as a person confirms it: what is done, by whom, and what it may cost.
fn confirmation(plan: &Plan, free: bool) -> String {
    let start = &plan.start;
    let mut rows =
        vec![("Photo", format!("{}, from {} ({})", start.photo, start.baseline_ref, start.baseline.short()))];
    if let Some(steered) = &plan.protocol {
        rows.push(("Protocol", steered.protocol.name.clone()));
    }
    for PlannedBranch { branch, vector } in &start.branches {
        let direction = match vector {
            Some(Vector { direction, intensity: Some(intensity), .. }) => {
                format!("{direction} ({intensity})")
            }
            Some(Vector { direction, .. }) => direction.clone(),
            None => "open-ended".to_owned(),
        };
        rows.push(("Branch", format!("{branch}: {direction}")));
    }
    rows.push(("Criteria", start.criteria.clone()));
    rows.push(("Model", format!("{} {}", start.provider, start.model)));
    if let Some(referee) = &start.referee {
        rows.push(("Referee", format!("{} {}", referee.provider, referee.model)));
    }
    let cost = match (free, start.budget.max_cost_micro_usd) {
        (true, _) => ", free of charge",
        (false, None) => ", cost not limited",
        (false, Some(_)) => "",
    };
    rows.push(("Limits", format!("{}{cost}", words(&start.budget))));
    let row = |(name, text): (&str, String)| format!("{name:9} {}\n", line(&text));
    rows.into_iter().map(row).collect()
}

/// Shows what would be done, and what would be sent first.
fn dry_run(app: &App, plan: &Plan) -> Result<(), Failure> {
    let bound = plan.start.budget.most();
    let capped = |n: u64| (n != u64::MAX).then_some(n);
    let result = json!({
        "plan": plan.start,
        "system": plan.system,
        "message": plan.message,
        "tools": plan.tools,
        "at_most": {
            "iterations": bound.iterations, "branches": bound.branches, "model_calls": bound.model_calls,
            "renders": capped(bound.renders), "tokens": capped(bound.tokens),
            "cost_micro_usd": capped(bound.cost_micro_usd),
        },
    });
    app.output.result(&result, || {
        let tools: Vec<&str> = plan.tools.iter().map(|tool| tool.name.as_str()).collect();
        format!(
            "# Plan, and first message\n\n{}\n\n# System prompt ({})\n\n{}\n\n# Tools ({})\n\n{}\n\n\
             # At most\n\n{} iterations, {} branches, {} model calls{}\n\nNothing was sent and nothing was spent.\n",
            plain(&plan.message),
            plan.start.prompt,
            plain(&plan.system),
            tools.len(),
            tools.join(", "),
            bound.iterations,
            bound.branches,
            bound.model_calls,
            capped(bound.tokens).map(|n| format!(", {n} tokens")).unwrap_or_default(),
        )
    })
}
