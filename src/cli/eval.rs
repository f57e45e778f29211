//! `eval`: runs of evaluations, and what they show.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::json;

use super::batch::StoreArg;
use super::eval_compare::{self, COMPARE_EXAMPLES, CompareArgs, ReportArgs};
use super::eval_golden::{self, GoldenVerb};
use super::eval_judge::{self, JUDGE_EXAMPLES, JudgeArgs};
use super::eval_show::{described, list, show, summary};
use super::eval_store;
use super::failure::Failure;
use super::overnight;
use super::progress;
use super::setup::App;
use super::signals;
use crate::batch::nats::Store;
use crate::budget::Budget;
use crate::eval::context::EvalContext;
use crate::eval::golden::Golden;
use crate::eval::manifest::{self, CellRecord, CellStatus, Checkout, Contestant, Manifest, RunRequest};
use crate::eval::many::submit;
use crate::eval::plan::{self, Plan};
use crate::eval::run::{Progress, Running};
use crate::eval::steering::FREE;
use crate::launch::{Runner, is_file};
use crate::provider::Recording;
use crate::review::{count, line as one_line};
use crate::session::driver::Unwatched;
use crate::transcript::Outcome;
use base::clock::Stop;
use base::error::ErrorCode;
use base::files;
use base::ids::Hash;

const RUN_EXAMPLES: &str = "\
Examples:
  chemigram eval run --dry-run
  chemigram eval run --provider idle,explorer,oracle
  chemigram eval run --protocol none,mode_b_explore --referee offline
  chemigram eval run --prompt v1,v2 --provider openai/gpt-6-luna --repeat 3 \\
      --budget cost=20,time=8h --cell-cost 0.20
  chemigram eval run --provider explorer --store nats://queue:4222/studio

Two baselines can be named as providers: `idle` does nothing, `oracle` makes the hidden edit. The explorer does not read \
prompts: comparing prompts needs a model.

Exit status:
  0   every session was run and every invariant held
  1   an invariant failed
  10  the budget of the run ended it; `eval resume` continues it
  25  the run was stopped; `eval resume` continues it
Any other status is that of the error.";

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum EvalVerb {
    /// Run sessions over a golden set: each scenario with each prompt, protocol and model
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<EvalRunArgs>),
    /// Resume a run that was stopped, killed, or ended by its budget
    Resume(ResumeArgs),
    /// List the runs, newest first
    List(HomeArg),
    /// Show a run: the results of each arm, failed sessions and failed invariants
    Show {
        /// The run: its name, the beginning of it, or `last`
        run: String,
        #[command(flatten)]
        home: HomeArg,
    },
    /// Compare two arms: is B better than A?
    #[command(after_help = COMPARE_EXAMPLES)]
    Compare(CompareArgs),
    /// Have a model that sees pictures rate the branches of a run and compare them
    #[command(after_help = JUDGE_EXAMPLES)]
    Judge(JudgeArgs),
    /// Write an HTML report of a run: gains, cost, calibration, history, pictures
    Report(ReportArgs),
    #[command(flatten)]
    Golden(GoldenVerb),
}

// Where the runs are.
#[derive(Args, Clone, Debug)]
pub struct HomeArg {
    /// Folder of evaluations [default: chemigram/evaluations in your data folder]
    #[arg(long, value_name = "DIR")]
    pub evaluations: Option<PathBuf>,
}

// What both `run` and `resume` take.
#[derive(Args, Clone, Debug)]
pub struct CommonArgs {
    /// Limits of the whole run, such as cost=20,time=8h (cost in US dollars) [default: none]
    #[arg(long, value_name = "SPEC")]
    pub budget: Option<String>,
    /// Sessions to run at once; each may use one core and 1 GB
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub jobs: u8,
    /// Folder of raw files that are not next to their scenario
    #[arg(long, value_name = "DIR", env = "CHEMIGRAM_GOLDEN_RAWS_DIR", hide_env = true)]
    pub raws: Option<PathBuf>,
    #[command(flatten)]
    pub store: StoreArg,
    #[command(flatten)]
    pub home: HomeArg,
}

#[derive(Args, Debug)]
pub struct EvalRunArgs {
    /// The golden set: a name, or a folder
    #[arg(long, value_name = "SET", default_value = "v1")]
    pub golden: String,
    /// Only scenarios that match; * stands for any text
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    pub scenarios: Vec<String>,
    /// Prompts: versions of mode_b/system (of mode_b/protocol with a protocol), or NAME@VERSION [default: the active
    /// version]
    #[arg(long = "prompt", value_name = "VERSION", value_delimiter = ',')]
    pub prompt: Vec<String>,
    /// Protocols: a name, a file, or `none` for sessions without one [default: none]
    #[arg(long, value_name = "NAME|FILE|none", value_delimiter = ',')]
    pub protocol: Vec<String>,
    /// Who gives the second opinion if a protocol asks for one: `offline`, or PROVIDER[:MODEL] [default: the protocol's]
    #[arg(long, value_name = "WHO")]
    pub referee: Option<String>,
    /// Your own folder of prompts
    #[arg(long, value_name = "DIR")]
    pub prompts: Option<PathBuf>,
    /// Models: PROVIDER or PROVIDER/MODEL; `idle` and `oracle` are the baselines
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "explorer", value_parser = contestant)]
    pub provider: Vec<Contestant>,
    /// The model that goes on when a contestant fails for good: out of credit, unreachable, refused
    #[arg(long, value_name = "PROVIDER[:MODEL]")]
    pub fallback: Option<String>,
    /// Record every request to a server and its reply, without keys, in a folder of each session in this folder
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Number of sessions per combination
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Random seed of the first repeat
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The most that one session may cost, in US dollars
    #[arg(long, value_name = "USD")]
    pub cell_cost: Option<String>,
    /// Show what would run and the most it could cost, without starting
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub common: CommonArgs,
}

#[derive(Args, Debug)]
pub struct ResumeArgs {
    /// The run: its name, the beginning of it, or `last`
    pub run: String,
    #[command(flatten)]
    pub common: CommonArgs,
}

/// `PROVIDER`, `PROVIDER/MODEL`, `manual:DIR` or `cassette:DIR`.
fn contestant(text: &str) -> Result<Contestant, String> {
    // A folder's path has slashes of its own.
    let split = match text.split_once(':') {
        Some((provider @ ("manual" | "cassette"), folder)) => Some((provider, folder)),
        _ => text.split_once('/'),
    };
    let (provider, model) = split.map_or((text, None), |(p, m)| (p, Some(m)));
    if provider.is_empty() || model == Some("") {
        return Err("write it like explorer or openai/gpt-6-luna".into());
    }
    Ok(Contestant { provider: provider.to_owned(), model: model.map(str::to_owned) })
}

/// Carries out `eval …`; the status is documented with each verb.
pub fn eval(app: &App, verb: &EvalVerb) -> Result<u8, Failure> {
    match verb {
        EvalVerb::Run(args) => begin(app, args),
        EvalVerb::Resume(args) => resume(app, args),
        EvalVerb::List(home) => list(app, home).map(|()| 0),
        EvalVerb::Show { run, home } => show(app, run, home).map(|()| 0),
        EvalVerb::Compare(args) => eval_compare::compare(app, args),
        EvalVerb::Judge(args) => eval_judge::judge(app, args),
        EvalVerb::Report(args) => eval_compare::report(app, args).map(|()| 0),
        EvalVerb::Golden(verb) => eval_golden::golden(app, verb),
    }
}

pub(super) fn home(app: &App, arg: &HomeArg) -> PathBuf {
    let home = arg.evaluations.clone().unwrap_or_else(|| app.folders.evaluations());
    std::path::absolute(&home).unwrap_or(home)
}

fn begin(app: &App, args: &EvalRunArgs) -> Result<u8, Failure> {
    let golden = eval_golden::set_folder(app, &args.golden)?;
    let golden = std::path::absolute(&golden).map_err(|e| Failure::file("find", &golden, &e))?;
    let (cost_micro_usd, time_seconds) = caps(args.common.budget.as_deref())?;
    let request = RunRequest {
        golden,
        scenarios: args.scenarios.clone(),
        prompts: args.prompt.clone(),
        protocols: args.protocol.iter().map(|named| whole(named)).collect::<Result<_, _>>()?,
        referee: args.referee.clone(),
        fallback: args.fallback.clone(),
        prompt_folder: args.prompts.clone(),
        contestants: args.provider.clone(),
        repeats: args.repeat,
        seed: args.seed,
        cost_micro_usd,
        time_seconds,
        cell_cost_micro_usd: args.cell_cost.as_deref().map(cost).transpose()?,
    };
    if args.record.is_some() && args.common.store.store.is_some() {
        return Err(overnight::elsewhere());
    }
    let mut context = context(app, &request, &args.common)?;
    let record = args.record.clone().map(Recording::EachSession);
    context.launcher.registry = context.launcher.registry.recording(record);
    let mut plan = plan::plan(&context, request, binary()?, checkout(), Timestamp::now())?;
    for sentence in plan.unread_prompts() {
        app.output.remark(&format!("Warning: {sentence}"));
    }
    if args.dry_run {
        return dry_run(app, &plan).map(|()| 0);
    }
    app.output.remark(&announcement(&plan));
    let store = args.common.store.store.as_ref().map(Store::connect).transpose()?;
    let folder = plan.begin(&context.home)?;
    match store {
        Some(store) => eval_store::run(app, &context, &mut plan, &folder, &store),
        None => run_plan(app, &context, &mut plan, &folder, args.common.jobs),
    }
}

fn resume(app: &App, args: &ResumeArgs) -> Result<u8, Failure> {
    let home = home(app, &args.common.home);
    let folder = manifest::find(&home, &args.run)?;
    let begun = Manifest::read(&folder)?;
    let mut request = begun.request.clone();
    if args.common.budget.is_some() {
        (request.cost_micro_usd, request.time_seconds) = caps(args.common.budget.as_deref())?;
    }
    let context = context(app, &request, &args.common)?;
    let mut plan = plan::plan(&context, request, binary()?, None, Timestamp::now())?;
    plan.continues(begun)?;
    app.output.remark(&announcement(&plan));
    match submit::place(&folder, args.common.store.store.as_ref())? {
        Some(address) => eval_store::run(app, &context, &mut plan, &folder, &Store::connect(&address)?),
        None => run_plan(app, &context, &mut plan, &folder, args.common.jobs),
    }
}

/// A protocol as the manifest names it: a file by its whole path, so that `resume` finds it from anywhere.
fn whole(named: &str) -> Result<String, Failure> {
    let path = Path::new(named);
    if named == FREE || !is_file(named) {
        return Ok(named.to_owned());
    }
    let path = std::path::absolute(path).map_err(|e| Failure::file("find", path, &e))?;
    Ok(path.to_string_lossy().into_owned())
}

/// `cost=20,time=8h`: the caps of a run.
fn caps(spec: Option<&str>) -> Result<(Option<u64>, Option<u64>), Failure> {
    let Some(spec) = spec else { return Ok((None, None)) };
    for part in spec.split(',') {
        let name = part.split_once('=').map_or(part, |(name, _)| name).trim();
        if !["cost", "time"].contains(&name) {
            return Err(Failure::input(format!("`{name}` cannot be limited for a run")).remedy(
                "limit cost and time: `--budget cost=20,time=8h`; the scenarios limit each session",
            ));
        }
    }
    let budget = Budget::parse(&format!("time=1s,iterations=1,branches=1,{spec}"))?;
    Ok((budget.max_cost_micro_usd, spec.contains("time").then_some(budget.time_seconds)))
}

/// An amount in US dollars, in millionths.
fn cost(text: &str) -> Result<u64, Failure> {
    let budget = Budget::parse(&format!("time=1s,iterations=1,branches=1,cost={text}"))?;
    Ok(budget.max_cost_micro_usd.unwrap_or_default())
}

/// The hash of the running executable.
pub fn binary() -> Result<Hash, Failure> {
    let path = std::env::current_exe().map_err(|e| Failure::file("find", Path::new("chemigram"), &e))?;
    Ok(files::hash(&path).map_err(|e| Failure::file("read", &path, &e))?.0)
}

/// The git checkout that the command was given in, if it was one.
fn checkout() -> Option<Checkout> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).stdin(Stdio::null()).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let commit = git(&["rev-parse", "HEAD"])?;
    let dirty = git(&["status", "--porcelain", "--untracked-files=no"]).is_none_or(|text| !text.is_empty());
    Some(Checkout { commit, dirty })
}

/// What the cells of a run share.
fn context(app: &App, request: &RunRequest, common: &CommonArgs) -> Result<EvalContext, Failure> {
    let golden = Golden::load(&request.golden)?;
    let home = home(app, &common.home);
    // Raws that are made of pictures are made once, and stay beside the sessions that read them.
    let raws = Some(common.raws.clone().unwrap_or_else(|| home.join("raws")));
    let mut context = shared(app, home, golden, raws, request.prompt_folder.as_ref())?;
    for named in request.protocols.iter().filter(|named| *named != FREE) {
        context.protocols.insert(named.clone(), context.launcher.protocol(named, &[])?);
    }
    context.fallback.clone_from(&request.fallback);
    Ok(context)
}

/// What the cells of a set share, without protocols and without a model that goes on.
pub fn shared(
    app: &App,
    home: PathBuf,
    golden: Golden,
    raws: Option<PathBuf>,
    prompts: Option<&PathBuf>,
) -> Result<EvalContext, Failure> {
    let mut launcher = app.launcher(prompts)?;
    // One darktable for all sessions and measurements.
    let renderer = app.steady_renderer()?;
    let shared = renderer.clone();
    launcher.renderer = Box::new(move || Ok(shared.clone()));
    Ok(EvalContext {
        home,
        golden,
        raws,
        launcher,
        renderer,
        ask: app.ask()?,
        fallback: None,
        protocols: BTreeMap::new(),
        vocabulary_files: app.vocabulary_files(),
        defaults: Mutex::default(),
    })
}

/// Runs the open cells of a run, with its progress, its signals and its summary.
pub fn run_plan(
    app: &App,
    context: &EvalContext,
    plan: &mut Plan,
    folder: &Path,
    jobs: u8,
) -> Result<u8, Failure> {
    let runner = Runner::new()?;
    let (stop, bar, output) = (Stop::default(), progress::waiting(&app.output), app.output.clone());
    let (stopped, above) = (stop.clone(), bar.clone());
    runner.block_on(async {
        signals::listen(stop.clone(), move |_| {
            let text = match stopped.hard.is_cancelled() {
                false => "finishing the running sessions, starting no more; press Ctrl-C again to stop at once (`eval resume` continues)",
                true => "stopping at once",
            };
            above.suspend(|| output.remark(text));
        })
    })?;
    let progress = |progress: &Progress| {
        bar.set_message(doing(progress));
        if let Some(cell) = &progress.ended {
            let text = ended(progress, cell);
            bar.suspend(|| app.output.remark(&text));
        }
    };
    let (runner, stop, host) = (&runner, &stop, &Unwatched);
    let running = Running { context, folder, jobs: jobs.into(), runner, stop, host, progress: &progress };
    let ran = plan.run(&running);
    bar.finish_and_clear();
    ran?;
    summed_up(app, plan, folder, stop.soft.is_cancelled())
}

/// Says what came of a run; its status.
pub fn summed_up(app: &App, plan: &Plan, folder: &Path, stopped: bool) -> Result<u8, Failure> {
    let manifest = &plan.manifest;
    app.output.result(&summary(manifest, folder), || described(manifest, folder))?;
    status(app, manifest, stopped)
}

/// The status of a run, and the reason for it where it is not 0.
fn status(app: &App, manifest: &Manifest, stopped: bool) -> Result<u8, Failure> {
    let failed = manifest.cells.iter().find_map(|cell| match &cell.status {
        CellStatus::Failed { failures } => failures.last(),
        _ => None,
    });
    let tally = manifest.tally();
    let status = match failed {
        Some(failure) => failure.code.exit_status(),
        None if tally.not_run > 0 && stopped => Outcome::Interrupted.exit_status(false),
        None if tally.not_run > 0 => ErrorCode::BudgetExhausted.exit_status(),
        None => u8::from(!manifest.broken().is_empty()),
    };
    if tally.failed + tally.not_run > 0 {
        app.output.remark(&format!("`chemigram eval resume {}` continues the run", manifest.run));
    }
    Ok(status)
}

/// The line while sessions run.
pub fn doing(progress: &Progress) -> String {
    let mut text = format!("{} of {}", progress.settled, progress.total);
    if progress.cost_micro_usd > 0 {
        let _ = write!(text, ", {}", usd(progress.cost_micro_usd));
    }
    match progress.remaining {
        Some(left) => _ = write!(text, ", about {} left", duration(left.as_secs())),
        None => text.push_str(", no estimate yet"),
    }
    let _ = write!(text, ": {}", progress.running.join(", "));
    text
}

/// The line about a cell that has ended.
pub fn ended(progress: &Progress, cell: &CellRecord) -> String {
    let what = match &cell.status {
        CellStatus::Done(done) => {
            let seconds = done.wall_ms.div_ceil(1000);
            let recovery = done.measured.get("recovery");
            let recovery = recovery.map(|r| format!(", recovery {r:.2}")).unwrap_or_default();
            format!("{} in {seconds} s{recovery}", done.outcome.as_str())
        }
        CellStatus::Failed { failures } => {
            let why = failures.last().map(|f| one_line(&f.message)).unwrap_or_default();
            format!("failed for an external reason: {why}")
        }
        CellStatus::NotRun { why, .. } => why.clone(),
    };
    let CellRecord { scenario, repeat, .. } = cell;
    format!("{}/{} {scenario} #{repeat} {}: {what}", progress.settled, progress.total, cell.arm())
}

pub(super) fn usd(micro: u64) -> String {
    format!("${}.{:02}", micro / 1_000_000, micro % 1_000_000 / 10_000)
}

pub(super) fn duration(seconds: u64) -> String {
    match seconds {
        0..=89 => format!("{seconds} s"),
        90..=5399 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// What is about to be run.
fn announcement(plan: &Plan) -> String {
    let (manifest, bound) = (&plan.manifest, plan.bound);
    let open = bound.cells - bound.finished;
    let mut text = format!(
        "{}: {} x {} x {} = {}",
        manifest.golden.version,
        count(manifest.golden.scenarios.len() as u64, "scenario"),
        count(manifest.arms().len() as u64, "arm"),
        count(manifest.request.repeats.into(), "repeat"),
        count(bound.cells as u64, "session")
    );
    if bound.finished > 0 {
        let _ = write!(text, ", {} already finished", bound.finished);
    }
    let _ = write!(
        text,
        "\nat most {} and {} of session time for the remaining {open}",
        usd(bound.cost_micro_usd),
        duration(bound.seconds)
    );
    if bound.referee_calls > 0 {
        let _ = write!(
            text,
            "\nat most {} model calls and {} referee calls, within the same budgets",
            bound.model_calls, bound.referee_calls
        );
    }
    text
}

fn dry_run(app: &App, plan: &Plan) -> Result<(), Failure> {
    let value = json!({ "plan": plan.manifest, "at_most": plan.bound });
    app.output.result(&value, || {
        let mut text = announcement(plan);
        for arm in plan.manifest.arms() {
            let _ = write!(text, "\n  {arm}");
        }
        let _ = write!(
            text,
            "\nprimary metric: {}\nNothing was sent and nothing was spent.",
            plan.manifest.golden.primary
        );
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contestant_is_a_provider_with_its_model_or_its_folder() {
        let read = |text: &str| contestant(text).map(|one| (one.provider, one.model));
        let is = |provider: &str, model: &str| Ok((provider.to_owned(), Some(model.to_owned())));
        assert_eq!(read("manual:desk/one"), is("manual", "desk/one"));
        assert_eq!(read("cassette:kept/one"), is("cassette", "kept/one"));
        assert_eq!(read("ollama/gemma4:31b"), is("ollama", "gemma4:31b"));
        assert_eq!(read("explorer"), Ok(("explorer".to_owned(), None)));
        assert!(read("manual:").is_err() && read("openai/").is_err());
    }
}
