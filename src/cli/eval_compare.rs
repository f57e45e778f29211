//! `eval compare` and `eval report`: what runs show.

use std::fmt::Write as _;
use std::path::Path;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::json;

use super::eval::HomeArg;
use super::eval::home;
use super::failure::Failure;
use super::setup::App;
use crate::eval::agreement;
use crate::eval::compare::{self, Comparison, Gate, Side};
use crate::eval::history::history;
use crate::eval::manifest::{self, Arm, Manifest};
use crate::eval::report;
use crate::eval::stats::Conclusion;
use crate::review::line as one_line;
use base::durable;
use base::error::ErrorCode;

pub(super) const COMPARE_EXAMPLES: &str = "\
Examples:
  chemigram eval compare last:v1 last:v2
  chemigram eval compare last:protocol=none last:mode_b_explore
  chemigram eval compare 2026-11-20 last --gate --junit compare.xml

If a run has several prompts, protocols or models, name the one to compare after a colon; a part of its name is enough.

Exit status: 0; with --gate, 1 if B does not pass.";

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

/// What passes a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GateArg {
    /// B is not worse
    NoRegression,
    /// B is better
    Improvement,
}

pub fn compare(app: &App, args: &CompareArgs) -> Result<u8, Failure> {
    if !(args.margin.is_finite() && args.margin >= 0.0) {
        return Err(Failure::input("the margin must not be negative").remedy("for example `--margin 0.02`"));
    }
    let home = home(app, &args.home);
    let (a, b) = (side(&home, &args.a)?, side(&home, &args.b)?);
    let (side_a, side_b) = (Side { manifest: &a.0, arm: &a.1 }, Side { manifest: &b.0, arm: &b.1 });
    let compared = compare::compare(side_a, side_b, args.metric.as_deref(), args.margin)?;
    let gate = args.gate.map(|gate| match gate {
        GateArg::NoRegression => Gate::NoRegression,
        GateArg::Improvement => Gate::Improvement,
    });
    if let Some(path) = &args.junit {
        let text = compared.junit(gate.unwrap_or(Gate::NoRegression));
        write(path, &text, true)?;
    }
    app.output.result(&compared, || comparison(&compared))?;
    Ok(u8::from(gate.is_some_and(|gate| !compared.passes(gate))))
}

/// A run and one of its arms, from `RUN` or `RUN:PART`.
fn side(home: &Path, named: &str) -> Result<(Manifest, Arm), Failure> {
    let (run, part) = named.split_once(':').map_or((named, None), |(run, part)| (run, Some(part)));
    let manifest = Manifest::read(&manifest::find(home, run)?)?;
    let arm = compare::arm(&manifest, part)?;
    Ok((manifest, arm))
}

pub fn report(app: &App, args: &ReportArgs) -> Result<(), Failure> {
    let home = home(app, &args.home);
    let run = Manifest::read(&manifest::find(&home, &args.run)?)?;
    let arms = run.arms();
    let against = match &args.against {
        Some(named) => Some(side(&home, named)?),
        None => arms.first().filter(|_| arms.len() > 1).map(|first| (run.clone(), first.clone())),
    };
    let mut comparisons = Vec::new();
    if let Some((other, first)) = &against {
        for arm in arms.iter().filter(|arm| args.against.is_some() || *arm != first) {
            let (a, b) = (Side { manifest: other, arm: first }, Side { manifest: &run, arm });
            comparisons.push(compare::compare(a, b, None, compare::MARGIN)?);
        }
    }
    let agreed = agreement::of(&run, &home, &app.library)?;
    let agreed: Vec<String> = agreed.iter().map(|one| one.words(&arms)).collect();
    let page = report::page(&run, &home, (&comparisons, &agreed), &history(&home))
        .map_err(|e| Failure::new(ErrorCode::StateError, format!("cannot write the page: {e}")))?;
    write(&args.output, &page, args.force)?;
    let written = json!({ "run": run.run, "file": args.output, "bytes": page.len() });
    app.output.result(&written, || args.output.display().to_string())
}

/// Writes a file; an existing one is replaced only if it `may` be.
fn write(path: &Path, text: &str, may: bool) -> Result<(), Failure> {
    let written = std::path::absolute(path).and_then(|whole| durable::publish(&whole, text.as_bytes(), may));
    written.map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::new(ErrorCode::StateError, format!("{} already exists", path.display()))
                .remedy("use --force to overwrite it")
        }
        _ => Failure::file("write", path, &e),
    })
}

/// A comparison for a person.
fn comparison(c: &Comparison) -> String {
    let mut text = format!(
        "{}\nA  {} {}\nB  {} {}\n{}\n",
        c.primary.verdict.as_str(),
        c.a.0,
        c.a.1,
        c.b.0,
        c.b.1,
        c.sentence()
    );
    let paired = &c.primary.paired;
    let _ = writeln!(text, "{} wins, {} ties, {} losses", paired.wins, paired.ties, paired.losses);
    let _ = writeln!(text, "\n{:<32} {:>8} {:>8} {:>8}", c.primary.metric, "A", "B", "gain");
    for row in &c.scenarios {
        let _ = writeln!(text, "{:<32} {:>8.3} {:>8.3} {:>+8.3}", row.scenario, row.a, row.b, row.gain + 0.0);
    }
    let _ = writeln!(
        text,
        "\n{:<32} {:>8} {:>8} {:>8} {:>7}  (p adjusted for multiple comparisons)",
        "others", "A", "B", "gain", "p"
    );
    for other in &c.others {
        let verdict = match other.verdict {
            Conclusion::Inconclusive => "",
            conclusion => conclusion.as_str(),
        };
        let (a, b, gain) = (other.mean_a, other.mean_b, other.paired.mean + 0.0);
        let _ = writeln!(
            text,
            "{:<32} {a:>8.3} {b:>8.3} {gain:>+8.3} {:>7.3}  {verdict}",
            other.metric, other.p_adjusted
        );
    }
    for flag in &c.flags {
        let share = |passes: u64| format!("{passes}/{}", flag.of);
        let (a, b) = (share(flag.passes_a), share(flag.passes_b));
        let _ = writeln!(text, "{:<32} {a:>8} {b:>8} {:>8} {:>7.3}", flag.metric, "", flag.p_adjusted);
    }
    for excluded in &c.excluded {
        let _ = writeln!(text, "not compared: {}: {}", excluded.scenario, excluded.why);
    }
    for broken in &c.broken {
        let _ = writeln!(
            text,
            "invariant failed in B: {} on {}: {}",
            broken.metric,
            broken.scenario,
            one_line(&broken.why)
        );
    }
    for caution in &c.cautions {
        let _ = writeln!(text, "caution: {caution}");
    }
    text
}
