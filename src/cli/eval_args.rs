//! The arguments of `eval`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::eval_golden::GoldenVerb;
use crate::eval::manifest::Contestant;

const RUN_EXAMPLES: &str = "\
Examples:
  chemigram eval run --dry-run
  chemigram eval run --provider idle,explorer,oracle
  chemigram eval run --protocol none,mode_b_explore --referee offline
  chemigram eval run --prompt v1,v2 --provider openai/gpt-5-mini --repeat 3 --budget cost=20,time=8h --cell-cost 0.20

Two baselines stand beside the providers: `idle` does nothing, `oracle` makes the hidden edit.

Exit status: 0 when every session was run and what must hold held, 1 when something that must hold did not,
10 when the run's own budget ended it, 25 when it was stopped; else that of the error. `eval resume` goes on.";

const COMPARE_EXAMPLES: &str = "\
Examples:
  chemigram eval compare last:v1 last:v2
  chemigram eval compare last:protocol=none last:mode_b_explore
  chemigram eval compare 2026-11-20 last --gate --junit compare.xml

A run with several prompts, protocols or models needs a part of the one that is meant after a colon.

Exit status: 0; with --gate 1 when B does not pass.";

/// `eval …`.
#[derive(Debug, Subcommand)]
pub enum EvalVerb {
    /// Run sessions over a golden set: scenario x prompt x protocol x model x repeat
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<EvalRunArgs>),
    /// Go on with a run that was stopped, killed, or ended by its budget
    Resume(ResumeArgs),
    /// List the runs, newest first
    List(HomeArg),
    /// Show a run: what each arm came to, what failed, what did not hold
    Show {
        /// Its name, the beginning of it, or `last`
        run: String,
        /// Where the runs are.
        #[command(flatten)]
        home: HomeArg,
    },
    /// Say whether B is better than A, as far as that can be said
    #[command(after_help = COMPARE_EXAMPLES)]
    Compare(CompareArgs),
    /// Write a run as one HTML page: gains, cost, calibration, history, pictures
    Report(ReportArgs),
    /// Golden sets.
    #[command(flatten)]
    Golden(GoldenVerb),
}

/// Where the runs are.
#[derive(Args, Clone, Debug)]
pub struct HomeArg {
    /// The folder of evaluations [default: the user's data folder, chemigram/evaluations]
    #[arg(long, value_name = "DIR")]
    pub evaluations: Option<PathBuf>,
}

/// What both `run` and `resume` take.
#[derive(Args, Clone, Debug)]
pub struct SittingArgs {
    /// What all sessions together may take, such as cost=20,time=8h (US dollars) [default: no limit]
    #[arg(long, value_name = "SPEC")]
    pub budget: Option<String>,
    /// Sessions at once; each may keep a core and 1 GB busy
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub jobs: u8,
    /// Where raws are that are not beside their scenario
    #[arg(long, value_name = "DIR", env = "CHEMIGRAM_GOLDEN_RAWS_DIR", hide_env = true)]
    pub raws: Option<PathBuf>,
    /// Where the runs are.
    #[command(flatten)]
    pub home: HomeArg,
}

/// `eval run`.
#[derive(Args, Debug)]
pub struct EvalRunArgs {
    /// The golden set: its name, or a folder
    #[arg(long, value_name = "SET", default_value = "v1")]
    pub golden: String,
    /// Only the scenarios that match, with * for anything
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    pub scenarios: Vec<String>,
    /// Prompts: versions of mode_b/system, or NAME@VERSION [default: the active version; where a protocol
    /// steers, of mode_b/protocol]
    #[arg(long = "prompt", value_name = "VERSION", value_delimiter = ',')]
    pub prompt: Vec<String>,
    /// Protocols that steer the sessions: a name, a file, or `none` for the free loop [default: none]
    #[arg(long, value_name = "NAME|FILE|none", value_delimiter = ',')]
    pub protocol: Vec<String>,
    /// Who gives second opinions where a protocol asks: `offline`, or PROVIDER[:MODEL] [default: the protocol's]
    #[arg(long, value_name = "WHO")]
    pub referee: Option<String>,
    /// A folder of prompts of your own
    #[arg(long, value_name = "DIR")]
    pub prompts: Option<PathBuf>,
    /// Who works: a provider, or PROVIDER/MODEL; `idle` and `oracle` are the baselines
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "explorer", value_parser = contestant)]
    pub provider: Vec<Contestant>,
    /// Sessions of each
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// The seed of the first repeat
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The most that one session may cost, in US dollars
    #[arg(long, value_name = "USD")]
    pub cell_cost: Option<String>,
    /// Print what would be run and what it may cost at most, and spend nothing
    #[arg(long)]
    pub dry_run: bool,
    /// The rest.
    #[command(flatten)]
    pub sitting: SittingArgs,
}

/// `eval resume`.
#[derive(Args, Debug)]
pub struct ResumeArgs {
    /// The run: its name, the beginning of it, or `last`
    pub run: String,
    /// The rest.
    #[command(flatten)]
    pub sitting: SittingArgs,
}

/// `eval compare`.
#[derive(Args, Debug)]
pub struct CompareArgs {
    /// What is compared with: RUN, or RUN:PART of a prompt, protocol or model
    pub a: String,
    /// What is judged
    pub b: String,
    /// Fail unless B passes
    #[arg(long, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "no-regression")]
    pub gate: Option<GateArg>,
    /// Look at another metric than the one that decides
    #[arg(long, value_name = "METRIC")]
    pub metric: Option<String>,
    /// The difference that does not matter
    #[arg(long, value_name = "X", default_value_t = crate::eval::compare::MARGIN)]
    pub margin: f64,
    /// Write a JUnit file
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Where the runs are.
    #[command(flatten)]
    pub home: HomeArg,
}

/// `eval report`.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// The run: its name, the beginning of it, or `last`; the arms after the first are compared with it
    pub run: String,
    /// Compare every arm with this instead: RUN, or RUN:PART
    #[arg(long, value_name = "RUN")]
    pub against: Option<String>,
    /// Where to
    #[arg(short, long, value_name = "FILE", default_value = "evaluation.html")]
    pub output: PathBuf,
    /// Replace a file that is there
    #[arg(long)]
    pub force: bool,
    /// Where the runs are.
    #[command(flatten)]
    pub home: HomeArg,
}

/// What a gate lets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GateArg {
    /// Whatever has not got worse
    NoRegression,
    /// Only what has got better
    Improvement,
}

/// `PROVIDER` or `PROVIDER/MODEL`.
fn contestant(text: &str) -> Result<Contestant, String> {
    let (provider, model) = text.split_once('/').map_or((text, None), |(p, m)| (p, Some(m)));
    if provider.is_empty() || model == Some("") {
        return Err("write it like explorer or openai/gpt-5-mini".into());
    }
    Ok(Contestant { provider: provider.to_owned(), model: model.map(str::to_owned) })
}
