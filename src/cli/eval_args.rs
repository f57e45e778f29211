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
  chemigram eval run --prompt v1,v2 --provider openai/gpt-5-mini --repeat 3 \\
      --budget cost=20,time=8h --cell-cost 0.20

Two baselines can be named as providers: `idle` does nothing, `oracle` makes the hidden edit. The explorer does not read \
prompts: comparing prompts needs a model.

Exit status:
  0   every session was run and every invariant held
  1   an invariant failed
  10  the budget of the run ended it; `eval resume` continues it
  25  the run was stopped; `eval resume` continues it
Any other status is that of the error.";

const COMPARE_EXAMPLES: &str = "\
Examples:
  chemigram eval compare last:v1 last:v2
  chemigram eval compare last:protocol=none last:mode_b_explore
  chemigram eval compare 2026-11-20 last --gate --junit compare.xml

If a run has several prompts, protocols or models, name the one to compare after a colon; a part of its name is enough.

Exit status: 0; with --gate, 1 if B does not pass.";

#[derive(Debug, Subcommand)]
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
    /// Write an HTML report of a run: gains, cost, calibration, history, pictures
    Report(ReportArgs),
    #[command(flatten)]
    Golden(GoldenVerb),
}

/// Where the runs are.
#[derive(Args, Clone, Debug)]
pub struct HomeArg {
    /// Folder of evaluations [default: chemigram/evaluations in your data folder]
    #[arg(long, value_name = "DIR")]
    pub evaluations: Option<PathBuf>,
}

/// What both `run` and `resume` take.
#[derive(Args, Clone, Debug)]
pub struct SittingArgs {
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
    pub sitting: SittingArgs,
}

#[derive(Args, Debug)]
pub struct ResumeArgs {
    /// The run: its name, the beginning of it, or `last`
    pub run: String,
    #[command(flatten)]
    pub sitting: SittingArgs,
}

#[derive(Args, Debug)]
pub struct CompareArgs {
    /// The reference: RUN, or RUN:PART
    pub a: String,
    /// The candidate: RUN, or RUN:PART
    pub b: String,
    /// Exit with status 1 unless B passes
    #[arg(long, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "no-regression")]
    pub gate: Option<GateArg>,
    /// Compare by this metric [default: the set's primary metric]
    #[arg(long, value_name = "METRIC")]
    pub metric: Option<String>,
    /// Treat smaller differences as none
    #[arg(long, value_name = "X", default_value_t = crate::eval::compare::MARGIN)]
    pub margin: f64,
    /// Write the results to a JUnit file
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    #[command(flatten)]
    pub home: HomeArg,
}

#[derive(Args, Debug)]
pub struct ReportArgs {
    /// The run: its name, the beginning of it, or `last`; its other arms are compared with the first
    pub run: String,
    /// Compare every arm with this one: RUN, or RUN:PART
    #[arg(long, value_name = "RUN")]
    pub against: Option<String>,
    /// Output file
    #[arg(short, long, value_name = "FILE", default_value = "evaluation.html")]
    pub output: PathBuf,
    /// Overwrite an existing file
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub home: HomeArg,
}

/// What a gate lets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GateArg {
    /// B is not worse
    NoRegression,
    /// B is better
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
