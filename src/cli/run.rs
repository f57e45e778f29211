//! `run-mode-b`: from arguments to a session, its run, and its review.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::choice::ChoiceArgs;
use super::failure::Failure;
use super::goal;
use super::mode_b::show_session;
use super::progress::Watch;
use super::protocol::assignment;
use super::setup::{App, optional_text};
use super::signals;
use crate::budget::Budget;
use crate::launch::{
    BASE_URL_ENV, DEFAULT_PROVIDER, DEFAULT_SEED, Launcher, Overrides, Prepared, Runner, SessionSpec, env,
    usual_prompt,
};
use crate::overnight::share::words;
use crate::provider::{Choice, ModelInfo};
use crate::review::{ReviewModel, line, plain};
use crate::session::SessionError;
use crate::session::driver::Session;
use crate::session::estimate::Estimate;
use crate::session::listing;
use crate::session::opinion::Referee;
use crate::session::protocols::ProtocolSource;
use crate::session::raise;
use crate::session::start::{self, Plan, Request};
use crate::transcript::{self, Mode, ModelName, NOTHING_USEFUL, PlannedBranch, Vector};
use base::clock::Stop;
use base::error::{Coded as _, ErrorCode, Fault};
use base::files;
use base::ids::{PhotoId, RefName, SessionId};
use darktable::proxy;
use engine::photo::Workspace;

pub const RUN_EXAMPLES: &str = "\
Examples:
  chemigram run-mode-b iguana --budget standard --yes
  chemigram run-mode-b DSC_0042.NEF --brief @brief.md \\
      --direction tone=\"more dramatic, open shadows\" \\
      --direction color=\"warmer\":subtle \\
      --budget time=30m,iterations=50,branches=2 --provider openai --yes
  chemigram run-mode-b --resume 4f2a9c --raise time=10m --yes

Budget: time, iterations and branches are required; tokens=400k, cost=2.00 and renders=80 can be added. The first \
limit reached ends the exploration. Presets:
  lite       time=5m,iterations=20,branches=1
  standard   time=30m,iterations=50,branches=3
  overnight  time=30m,iterations=200,branches=5 (a size; not the command)

Ctrl-C wraps up and keeps everything; a second Ctrl-C stops at once. The session works on branches of its own, \
branch_b_*, and never changes main: `promote` the one you like.";

pub const RUN_PROTOCOL_EXAMPLES: &str = "\
Examples:
  chemigram run-protocol tactical_one_move --photo iguana \\
      --var move=\"heavy clarity on the rock\" --yes
  chemigram run-protocol mode_b_explore --photo iguana --referee offline \\
      --direction tone=\"open shadows\" --direction color=warmer --yes
  chemigram run-protocol mine.toml --photo DSC_0042.NEF \\
      --budget time=10m,iterations=30,branches=1 --yes
  chemigram run-protocol --photo iguana --provider openai \\
      --generate \"open the shadows, then the same in black and white\"

The default budget is `standard`; stricter limits in the protocol apply as well. `chemigram protocol show NAME` lists \
the variables of a protocol, `chemigram protocol check FILE` its errors. Resume the session with \
`run-mode-b --resume SESSION`.";

#[derive(Args, Debug)]
pub struct RunArgs {
    /// The photo's id, or a raw file, which is added to the library first
    #[arg(value_name = "PHOTO", required_unless_present = "resume")]
    pub photo: Option<String>,
    /// Follow this protocol: a name, or a file
    #[arg(long, value_name = "FILE|NAME", conflicts_with_all = ["resume", "generate"])]
    pub protocol: Option<String>,
    #[command(flatten)]
    pub options: RunOptions,
}

#[derive(Args, Debug)]
pub struct RunProtocolArgs {
    /// The protocol: a name, or a file
    #[arg(value_name = "FILE|NAME", required_unless_present_any = ["resume", "generate"], conflicts_with_all = ["resume", "generate"])]
    pub protocol: Option<String>,
    /// The photo's id, or a raw file, which is added to the library first
    #[arg(long, value_name = "PHOTO", required_unless_present = "resume")]
    pub photo: Option<String>,
    #[command(flatten)]
    pub options: RunOptions,
}

// The options of every session.
#[derive(Args, Debug)]
pub struct RunOptions {
    /// What the picture should become: text, or @FILE [default: the photo's brief.md]
    #[arg(long, value_name = "TEXT|@FILE")]
    pub brief: Option<String>,
    /// A direction to explore, one branch each, such as tone="open the shadows":subtle; repeatable [default: the model chooses]
    #[arg(long = "vector", visible_alias = "direction", value_name = "NAME=DIRECTION[:INTENSITY]")]
    pub vectors: Vec<Vector>,
    /// Limits of a new session: a preset, or such as time=30m,iterations=50,branches=3 [required; standard with a protocol, lite to go deeper]
    #[arg(long, value_name = "SPEC")]
    pub budget: Option<String>,
    /// Start from this branch, tag or commit, which becomes the session's baseline
    #[arg(long, value_name = "REF", default_value = "HEAD")]
    pub from: String,
    /// Scoring criteria: text, or @FILE [default: the taste files and the brief]
    #[arg(long, value_name = "TEXT|@FILE")]
    pub criteria: Option<String>,
    /// The system prompt [default: mode_b/system, or mode_b/protocol with a protocol]
    #[arg(long, value_name = "NAME[@VERSION]")]
    pub prompt: Option<String>,
    /// Your own folder of prompts
    #[arg(long, value_name = "DIR")]
    pub prompts: Option<PathBuf>,
    /// Start without asking (for scripts)
    #[arg(long, short)]
    pub yes: bool,
    /// Resume a session: at least four characters of its id, or `last`
    #[arg(long, value_name = "SESSION", conflicts_with_all = ["brief", "vectors", "budget", "criteria", "dry_run"])]
    pub resume: Option<String>,
    /// With --resume: the answer to the model's question: text, or @FILE
    #[arg(long, value_name = "TEXT|@FILE", requires = "resume")]
    pub answer: Option<String>,
    /// With --resume: add to the budget, such as time=10m,iterations=20
    #[arg(long, value_name = "SPEC", requires = "resume")]
    pub raise: Option<String>,
    /// Print the plan without starting; with -v, also the prompt and the tools as the model would get them
    #[arg(long)]
    pub dry_run: bool,
    /// Random seed, for the explorer and for models that accept one
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Propose nothing for taste and notes at the end
    #[arg(long, conflicts_with = "resume")]
    pub no_proposals: bool,
    /// Longest side of previews in pixels
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(256..=4096))]
    pub preview_size: u32,
    /// Render previews from a copy of the raw that is N times smaller: faster, slightly less accurate [default: off]
    #[arg(long, value_name = "auto|off|N", conflicts_with = "resume")]
    pub proxy: Option<proxy::Choice>,
    /// How long to wait for a provider that cannot be reached, within the session's own time [default: a tenth of it]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub patience: Option<Duration>,
    /// Pictures to render at once; each takes one core and 0.2 to 1 GB
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub renderers: u8,
    /// Let the model write a protocol for this goal (text, or @FILE), then run it after you confirm
    #[arg(long, value_name = "GOAL|@FILE", conflicts_with = "resume")]
    pub generate: Option<String>,
    /// Set a variable of the protocol; repeatable
    #[arg(long = "var", value_name = "NAME=VALUE", value_parser = assignment)]
    pub vars: Vec<(String, String)>,
    /// Who gives the second opinion: `offline` (measurements only), or a provider with a model that sees pictures
    #[arg(long, value_name = "offline|PROVIDER[:MODEL]")]
    pub referee: Option<String>,
    /// The model that goes on when the first one fails for good: out of credit, unreachable, refused
    #[arg(long, value_name = "PROVIDER[:MODEL]")]
    pub fallback: Option<String>,
    #[command(flatten)]
    pub choice: ChoiceArgs,
}

/// A duration such as `3m`, `90s` or plain seconds; 0 is none.
fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<u64>().ok();
    let spelt = || u64::try_from(text.parse::<jiff::SignedDuration>().ok()?.as_secs()).ok();
    let seconds = seconds.or_else(spelt).ok_or("write it like 3m, 90s or 0")?;
    Ok(Duration::from_secs(seconds))
}

/// The budget of a session with a protocol, where none is given.
const PROTOCOL_BUDGET: &str = "standard";

/// The budget of a session that only goes deeper in what was done before, where none is given: nobody said how far.
const DEEPER_BUDGET: &str = "lite";

/// Whether the photo has something that a session without a brief and directions would go deeper in.
fn goes_deeper(app: &App, args: &RunArgs) -> bool {
    let options = &args.options;
    let silent = options.brief.is_none() && options.vectors.is_empty() && options.resume.is_none();
    let photo = args.photo.as_ref().filter(|_| silent).and_then(|photo| photo.parse().ok());
    let workspace = photo.and_then(|id: PhotoId| app.library.open(&id).ok());
    workspace.is_some_and(|workspace| start::goes_deeper(&workspace, &options.from).unwrap_or(false))
}

/// Runs a session, new or resumed. The status is the outcome's.
pub fn run(app: &App, args: &RunArgs) -> Result<u8, Failure> {
    let steered = args.protocol.is_some() || args.options.generate.is_some();
    let budget = match args.options.budget.as_deref() {
        Some(budget) => budget,
        None if steered => PROTOCOL_BUDGET,
        None if goes_deeper(app, args) => DEEPER_BUDGET,
        None => "",
    };
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
    let goal = optional_text(args.generate.as_ref())?;
    // A protocol is written and kept though nobody is there; without a yes it is not run.
    if !args.yes && !args.dry_run && goal.is_none() && !app.output.can_ask() {
        return Err(Failure::new(ErrorCode::InvalidInput, "there is no terminal to confirm the plan")
            .remedy("add --yes to start without asking, or --dry-run to see the plan"));
    }
    let launcher = args.choice.launcher(app, args.prompts.as_ref())?;
    let protocol = protocol.map(|named| launcher.protocol(named, &args.vars)).transpose()?;
    if protocol.is_none() && goal.is_none() && !args.vars.is_empty() {
        return Err(Failure::input("--var needs a protocol").remedy("choose one with --protocol NAME|FILE"));
    }
    let brief = optional_text(args.brief.as_ref())?;
    let seed = args.seed.unwrap_or(DEFAULT_SEED);
    // Whatever can be wrong with provider and prompt is found before a raw file is added.
    let mut choice = args.choice.choice(seed);
    let preferences = protocol.as_ref().map(ProtocolSource::preferences).unwrap_or_default();
    if choice.model.is_none() && choice.provider != DEFAULT_PROVIDER {
        choice.model = preferences.model;
    }
    let provider = args.choice.connect(&launcher, &choice)?;
    let fallback = launcher.fallback(args.fallback.as_deref(), seed)?;
    let referee = launcher.referee(args.referee.as_deref().or(preferences.referee.as_deref()), seed)?;
    let named = photo.unwrap_or_default();
    let workspace = subject(app, &launcher, named, brief.clone(), args.dry_run)?;
    let steered = protocol.is_some() || goal.is_some();
    let request = Request {
        brief,
        vectors: args.vectors.clone(),
        budget,
        from: args.from.clone(),
        criteria: optional_text(args.criteria.as_ref())?,
        prompt: args.prompt.clone().unwrap_or_else(|| usual_prompt(steered).into()),
        preview_edge: args.preview_size,
        unattended: args.yes,
        seed,
        proposes: !args.no_proposals,
    };
    let (proxy, renderers) = (args.proxy.unwrap_or_default(), args.renderers);
    let spec = SessionSpec { request, protocol, provider, fallback, referee, proxy, renderers, tastes: None };
    let stop = Stop::default();
    let mut prepared = launcher.prepare(workspace, spec, stop.clone())?;
    if let Some(goal) = &goal {
        let Prepared { setup, spec, .. } = &mut prepared;
        if args.dry_run {
            return goal::dry_run(app, setup, &spec.request, goal);
        }
        spec.protocol = Some(goal::write(app, setup, &mut spec.request, goal, args)?);
    }
    let launch = prepared.plan()?;
    let (plan, info) = (&launch.plan, launch.setup.provider.info());
    remarks(app, plan);
    if args.dry_run {
        return dry_run(app, plan, info).map(|()| 0);
    }
    // Whoever has confirmed a protocol that was written need not confirm it again.
    if !args.yes && goal.is_none() {
        app.output.remark(&confirmation(plan, info));
        let answer = app.output.ask("\nStart? [yes/no]").unwrap_or_default();
        if !matches!(answer.to_lowercase().as_str(), "y" | "yes") {
            return Err(Failure::new(ErrorCode::SessionNotConfirmed, "not started; nothing was spent"));
        }
    }
    carry_out(app, stop, Manner::of(args), 0, || launch.start())
}

/// Shows what is worth knowing of a plan before it starts.
fn remarks(app: &App, plan: &Plan) {
    let Some(steered) = &plan.protocol else { return };
    for warning in &steered.warnings {
        app.output.remark(&plain(&warning.to_string()));
    }
    if let Some(referee) = plan.start.referee.as_ref()
        && (&referee.provider, &referee.model) == (&plan.start.provider, &plan.start.model)
    {
        app.output
            .remark("the referee is the same model that edits; use another one for an independent opinion");
    }
}

/// Runs a session that needs no arguments and no person.
pub fn run_request(
    app: &App,
    launcher: &Launcher,
    workspace: Workspace,
    (choice, fallback): (&Choice, Option<&str>),
    request: Request,
) -> Result<u8, Failure> {
    let spec = SessionSpec {
        fallback: launcher.fallback(fallback, request.seed)?,
        request,
        protocol: None,
        provider: launcher.connect(choice)?,
        referee: Referee::Nobody,
        proxy: proxy::Choice::Off,
        renderers: 1,
        tastes: None,
    };
    let stop = Stop::default();
    let launch = launcher.prepare(workspace, spec, stop.clone())?.plan()?;
    carry_out(app, stop, Manner::default(), 0, || launch.start())
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
    let begun = &session.state.start;
    if begun.mode == Mode::ModeA {
        return Err(Failure::input(format!("session {} is a conversation", id.short()))
            .remedy(format!("go on with `chemigram chat --resume {}`", id.short())));
    }
    let launcher = args.choice.launcher(app, args.prompts.as_ref())?;
    let overrides = Overrides {
        provider: Some(args.choice.connect(&launcher, &resumed(app, &args.choice, &session, args.seed))?),
        fallback: launcher.fallback(args.fallback.as_deref(), begun.seed)?,
        referee: args.referee.clone(),
        answer: optional_text(args.answer.as_ref())?,
        raise: args.raise.as_deref().map(|spec| raise::raised(session.ledger.budget(), spec)).transpose()?,
        renderers: args.renderers,
        tastes: None,
    };
    let (stop, first) = (Stop::default(), session.lines.len() as u64);
    carry_out(app, stop.clone(), Manner::of(args), first, || {
        launcher.resume(workspace, &session, overrides, stop)
    })
}

/// Which provider continues a session: the one that had it last, unless another is named.
pub fn resumed(app: &App, args: &ChoiceArgs, session: &listing::Session, seed: Option<u64>) -> Choice {
    let seed = seed.unwrap_or(session.state.start.seed);
    if args.provider.is_some() {
        return args.choice(seed);
    }
    let ModelName { provider, model } = session.model();
    if env(BASE_URL_ENV).is_some() {
        app.output.remark(&format!(
            "{BASE_URL_ENV} is ignored, because no provider is given; to use it, add `--provider {}`",
            line(&provider)
        ));
    }
    Choice { provider, model: args.model.clone().or(Some(model)), base_url: None, seed }
}

/// How a session is carried out.
#[derive(Clone, Copy, Debug, Default)]
struct Manner {
    /// Whether a person is there to answer.
    asks: bool,
    /// How long it waits for a provider that cannot be reached; a tenth of its time where nobody is there.
    patience: Option<Duration>,
}

impl Manner {
    fn of(args: &RunOptions) -> Self {
        Self { asks: !args.yes, patience: args.patience }
    }
}
/// The last line of a session with `--json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RunResult {
    /// `result`, which no line of a transcript is.
    pub kind: &'static str,
    /// The exit status.
    pub status: u8,
    /// Whether there is a branch worth looking at.
    pub useful: bool,
    /// The one to look at first.
    pub best: Option<RefName>,
    /// The review, as `mode-b show` prints it.
    pub review: ReviewModel,
}

/// Starts a session, runs it to its end, and shows its review. `first` is the first transcript line of this run.
fn carry_out(
    app: &App,
    stop: Stop,
    manner: Manner,
    first: u64,
    begin: impl FnOnce() -> Result<Session, Fault>,
) -> Result<u8, Failure> {
    let runner = Runner::new()?;
    let watch = Watch::new(&app.output, manner.asks);
    let (lines, named) = (watch.bar(), app.output.clone());
    let (bar, output) = (watch.bar(), app.output.clone());
    let ran = runner.block_on(async {
        signals::listen(stop, move |text| bar.suspend(|| output.remark(text)))?;
        watch.start();
        let mut session = begin()?;
        watch.catch_up(&transcript::read(&session.folder.join("transcript.jsonl"))?.lines, first);
        let id = session.state.start.session.clone();
        let tenth = session.gate.ledger().budget().time() / 10;
        session.patience.wait = manner.patience.unwrap_or(if manner.asks { Duration::ZERO } else { tenth });
        let follow = format!("session {}; `chemigram mode-b status {}` shows what is left", id, id.short());
        lines.suspend(|| named.remark(&follow));
        let end = session.run(&watch).await.map_err(|error| cut_short(&error, &id))?;
        Ok::<_, Failure>((end, session.state.has_agent_judgment(), id))
    });
    watch.finish();
    let (end, judged, id) = ran?;
    let (workspace, id) = app.session(id.as_str())?;
    let review = ReviewModel::of(&workspace, &listing::read(&workspace, &id)?)?;
    let best = review.best().map(|branch| branch.branch.clone());
    let status = match end.outcome.exit_status(judged) {
        0 if best.is_none() => NOTHING_USEFUL,
        status => status,
    };
    if app.output.json {
        app.output.object(&RunResult { kind: "result", status, useful: best.is_some(), best, review });
    } else {
        show_session(app, &workspace, &id)?;
        if status == NOTHING_USEFUL {
            app.output
                .remark("no branch of this session is worth keeping; try another direction or more budget");
        }
    }
    Ok(status)
}

/// Why a session stopped in the middle, and how to continue it.
fn cut_short(error: &SessionError, id: &SessionId) -> Failure {
    let on = format!("continue it with `chemigram run-mode-b --resume {} --yes`", id.short());
    let remedy = error.remedy().map_or_else(|| on.clone(), |first| format!("{first}; then {on}"));
    Failure::from(Fault::from(error)).remedy(remedy)
}

/// The photo that is named: one of the library, or a raw file, which is added unless it was before.
fn subject(
    app: &App,
    launcher: &Launcher,
    named: &str,
    brief: Option<String>,
    dry_run: bool,
) -> Result<Workspace, Failure> {
    if dry_run {
        return match known(app, named)? {
            Some(id) => app.photo(&id),
            None => Err(Failure::new(ErrorCode::NotFound, format!("{named} is not in the library yet"))
                .remedy(format!("a dry run does not add it; run `chemigram ingest {named}` first"))),
        };
    }
    if let Some(id) = as_id(app, named) {
        return app.photo(&id);
    }
    let path = Path::new(named);
    if path.is_file() {
        app.output.remark(&format!("adding {named} to the library"));
    }
    Ok(launcher.add(&app.library, path, brief)?)
}

/// The id that is named, unless a raw file is.
fn as_id(app: &App, named: &str) -> Option<PhotoId> {
    let id = named.parse::<PhotoId>().ok()?;
    (app.library.folder(&id).exists() || !Path::new(named).is_file()).then_some(id)
}

/// The id of the photo that is named, by id or by its raw file; `None` for a raw that was not added.
fn known(app: &App, named: &str) -> Result<Option<PhotoId>, Failure> {
    if let Some(id) = as_id(app, named) {
        return Ok(Some(id));
    }
    let path = Path::new(named);
    let (sha256, _) = files::hash(path).map_err(|e| Failure::file("read", path, &e))?;
    Ok(app.library.find_raw(&sha256)?)
}

/// A plan as a person confirms it: what is done, by whom, and what it may cost.
fn confirmation(plan: &Plan, info: &ModelInfo) -> String {
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
    if let Some(other) = &start.fallback {
        rows.push(("Fallback", format!("{} {}", other.provider, other.model)));
    }
    if let Some(referee) = &start.referee {
        rows.push(("Referee", format!("{} {}", referee.provider, referee.model)));
    }
    let cost = match (info.free, start.budget.max_cost_micro_usd) {
        (true, _) => ", free of charge",
        (false, None) => ", cost not limited",
        (false, Some(_)) => "",
    };
    rows.push(("Limits", format!("at most {}{cost}", words(&start.budget))));
    if !info.free {
        rows.push(("Estimate", Estimate::of(info, plan).words(info)));
    }
    rows.push(("Changes", "none until you promote a branch; main and the raw stay as they are".to_owned()));
    let row = |(name, text): (&str, String)| format!("{name:9} {}\n", line(&text));
    rows.into_iter().map(row).collect()
}

/// Shows what would be done, and what would be sent first.
fn dry_run(app: &App, plan: &Plan, info: &ModelInfo) -> Result<(), Failure> {
    let bound = plan.start.budget.most();
    let capped = |n: u64| (n != u64::MAX).then_some(n);
    let result = json!({
        "plan": plan.start,
        "system": plan.system,
        "message": plan.message,
        "tools": plan.tools,
        "estimate": Estimate::of(info, plan),
        "at_most": {
            "iterations": bound.iterations, "branches": bound.branches, "model_calls": bound.model_calls,
            "renders": capped(bound.renders), "tokens": capped(bound.tokens),
            "cost_micro_usd": capped(bound.cost_micro_usd),
        },
    });
    app.output.result(&result, || {
        if !app.output.verbose {
            return format!(
                "{}\nNothing was sent and nothing was spent. Add -v to see the prompt and the tools.\n",
                confirmation(plan, info)
            );
        }
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
