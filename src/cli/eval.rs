//! `eval`: from arguments to a run, its sittings, and what they show.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::eval_args::{
    CompareArgs, EvalRunArgs, EvalVerb, GateArg, HomeArg, ReportArgs, ResumeArgs, SittingArgs,
};
use super::eval_golden;
use super::failure::Failure;
use super::progress;
use super::setup::App;
use super::signals;
use super::steering;
use crate::budget::Budget;
use crate::eval::cells::EvalContext;
use crate::eval::compare::{self, Comparison, Gate, Side};
use crate::eval::golden::Golden;
use crate::eval::manifest::{self, Arm, CellRecord, CellStatus, Checkout, Manifest, RunRequest};
use crate::eval::report;
use crate::eval::run::{self, Plan, Progress};
use crate::eval::steering::FREE;
use crate::review::line as one_line;
use crate::session::driver::Unwatched;
use crate::transcript::Outcome;
use base::assets::Overlay;
use base::clock::Stop;
use base::durable;
use base::error::ErrorCode;
use base::files;
use base::ids::Hash;

/// How often a session is asked whether it is to be cut.
const TICK: Duration = Duration::from_millis(50);

/// Carries out `eval …`; the status is documented with each verb.
pub fn eval(app: &App, verb: &EvalVerb) -> Result<u8, Failure> {
    match verb {
        EvalVerb::Run(args) => begin(app, args),
        EvalVerb::Resume(args) => resume(app, args),
        EvalVerb::List(home) => list(app, home).map(|()| 0),
        EvalVerb::Show { run, home } => show(app, run, home).map(|()| 0),
        EvalVerb::Compare(args) => compare(app, args),
        EvalVerb::Report(args) => report(app, args).map(|()| 0),
        EvalVerb::Golden(verb) => eval_golden::golden(app, verb),
    }
}

fn home(app: &App, arg: &HomeArg) -> PathBuf {
    let home = arg.evaluations.clone().unwrap_or_else(|| app.folders.evaluations());
    std::path::absolute(&home).unwrap_or(home)
}

fn begin(app: &App, args: &EvalRunArgs) -> Result<u8, Failure> {
    let golden = eval_golden::set_folder(app, &args.golden)?;
    let golden = std::path::absolute(&golden).map_err(|e| Failure::file("find", &golden, &e))?;
    let (cost_micro_usd, time_seconds) = caps(args.sitting.budget.as_deref())?;
    let asked = RunRequest {
        golden,
        scenarios: args.scenarios.clone(),
        prompts: args.prompt.clone(),
        protocols: args.protocol.iter().map(|named| whole(named)).collect::<Result<_, _>>()?,
        referee: args.referee.clone(),
        prompt_folder: args.prompts.clone(),
        contestants: args.provider.clone(),
        repeats: args.repeat,
        seed: args.seed,
        cost_micro_usd,
        time_seconds,
        cell_cost_micro_usd: args.cell_cost.as_deref().map(cost).transpose()?,
    };
    let surroundings = surroundings(app, &asked, &args.sitting)?;
    let mut plan = run::plan(&surroundings, asked, binary()?, checkout(), Timestamp::now())?;
    if args.dry_run {
        return dry_run(app, &plan).map(|()| 0);
    }
    app.output.remark(&announcement(&plan));
    let folder = plan.begin(&surroundings.home)?;
    run_pending(app, &surroundings, &mut plan, &folder, args.sitting.jobs)
}

fn resume(app: &App, args: &ResumeArgs) -> Result<u8, Failure> {
    let home = home(app, &args.sitting.home);
    let folder = manifest::find(&home, &args.run)?;
    let begun = Manifest::read(&folder)?;
    let mut asked = begun.asked.clone();
    if args.sitting.budget.is_some() {
        (asked.cost_micro_usd, asked.time_seconds) = caps(args.sitting.budget.as_deref())?;
    }
    let surroundings = surroundings(app, &asked, &args.sitting)?;
    let mut plan = run::plan(&surroundings, asked, binary()?, None, Timestamp::now())?;
    plan.go_on(begun)?;
    app.output.remark(&announcement(&plan));
    run_pending(app, &surroundings, &mut plan, &folder, args.sitting.jobs)
}

/// A protocol as the manifest asks for it: a file by its whole path, so that `resume` finds it from anywhere.
fn whole(named: &str) -> Result<String, Failure> {
    let path = Path::new(named);
    if named == FREE || !steering::is_file(named) {
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
            return Err(Failure::input(format!("`{name}` is no cap of a run"))
                .remedy("a run has cost and time: `--budget cost=20,time=8h`; the scenarios say the rest"));
        }
    }
    let budget = Budget::parse(&format!("time=1s,iterations=1,branches=1,{spec}"))?;
    Ok((budget.max_cost_micro_usd, spec.contains("time").then_some(budget.time_seconds)))
}

/// US dollars as typed, in millionths.
fn cost(text: &str) -> Result<u64, Failure> {
    let budget = Budget::parse(&format!("time=1s,iterations=1,branches=1,cost={text}"))?;
    Ok(budget.max_cost_micro_usd.unwrap_or_default())
}

/// The hash of the running executable.
fn binary() -> Result<Hash, Failure> {
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

/// Everything that cells need.
fn surroundings(app: &App, asked: &RunRequest, sitting: &SittingArgs) -> Result<EvalContext, Failure> {
    let golden = Golden::load(&asked.golden)?;
    let mut protocols = BTreeMap::new();
    for named in asked.protocols.iter().filter(|named| *named != FREE) {
        protocols.insert(named.clone(), steering::asked(app, named, &[])?);
    }
    let prompts = asked.prompt_folder.clone().unwrap_or_else(|| app.folders.prompts());
    let layouts = Arc::new(app.layouts());
    Ok(EvalContext {
        home: home(app, &sitting.home),
        golden,
        raws: sitting.raws.clone(),
        registry: app.registry(),
        prompts: Overlay::prompts(Some(prompts)),
        protocols,
        vocabulary_files: app.vocabulary_files(),
        vocabulary: Arc::new(app.vocabulary()?),
        layouts,
        renderer: app.steady_renderer()?,
        ask: Box::new(app.ask()?),
        redactor: app.redactor.clone(),
        asked: Mutex::new(HashMap::new()),
    })
}

/// One sitting, with its progress, its signals and its summary.
fn run_pending(
    app: &App,
    surroundings: &EvalContext,
    plan: &mut Plan,
    folder: &Path,
    jobs: u8,
) -> Result<u8, Failure> {
    let runtime = signals::runtime()?;
    let (stop, bar, output) = (Stop::default(), progress::waiting(&app.output), app.output.clone());
    let (heard, line) = (stop.clone(), bar.clone());
    runtime.block_on(async {
        signals::listen(stop.clone(), move |_| {
            let text = match heard.hard.is_cancelled() {
                false => "no further session begins; those under way end first. Ctrl-C again cuts them: `eval resume` goes on where they stopped",
                true => "stopping at once",
            };
            line.suspend(|| output.remark(text));
        })
    })?;
    let (handle, hard) = (runtime.handle().clone(), stop.hard.clone());
    let execute = |session: &mut crate::session::driver::Session| {
        handle.block_on(async {
            let cut = async {
                while !hard.is_cancelled() {
                    tokio::time::sleep(TICK).await;
                }
            };
            tokio::select! {
                biased;
                () = cut => Ok(None),
                end = session.run(&Unwatched) => end.map(Some),
            }
        })
    };
    let watch = |progress: &Progress| {
        bar.set_message(doing(progress));
        if let Some(cell) = &progress.ended {
            let text = ended(progress, cell);
            bar.suspend(|| app.output.remark(&text));
        }
    };
    let sat = plan.run_pending(surroundings, folder, jobs.into(), &stop.soft, &execute, &watch);
    bar.finish_and_clear();
    sat?;
    let manifest = &plan.manifest;
    app.output.result(&summary(manifest, folder), || told(manifest, folder))?;
    status(app, manifest, stop.soft.is_cancelled())
}

/// The status of a run, and the reason for it where it is not 0.
fn status(app: &App, manifest: &Manifest, stopped: bool) -> Result<u8, Failure> {
    let failed = manifest.cells.iter().find_map(|cell| match &cell.standing {
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
        app.output.remark(&format!("`chemigram eval resume {}` goes on", manifest.run));
    }
    Ok(status)
}

/// The line while sessions run.
fn doing(progress: &Progress) -> String {
    let mut text = format!("{} of {}", progress.settled, progress.total);
    if progress.cost_micro_usd > 0 {
        let _ = write!(text, ", {}", usd(progress.cost_micro_usd));
    }
    match progress.remaining {
        Some(left) => _ = write!(text, ", about {} left", duration(left.as_secs())),
        None => text.push_str(", no estimate yet"),
    }
    let _ = write!(text, ": {}", progress.under_way.join(", "));
    text
}

/// The line about a cell that has ended.
fn ended(progress: &Progress, cell: &CellRecord) -> String {
    let what = match &cell.standing {
        CellStatus::Done(done) => {
            let seconds = done.wall_ms.div_ceil(1000);
            let recovery = done.measured.get("recovery");
            let recovery = recovery.map(|r| format!(", recovery {r:.2}")).unwrap_or_default();
            format!("{} in {seconds} s{recovery}", done.outcome.as_str())
        }
        CellStatus::Failed { failures } => {
            let why = failures.last().map(|f| one_line(&f.message)).unwrap_or_default();
            format!("failed, through no fault of its own: {why}")
        }
        CellStatus::NotRun { why, .. } => why.clone(),
    };
    let CellRecord { scenario, repeat, .. } = cell;
    format!("{}/{} {scenario} #{repeat} {}: {what}", progress.settled, progress.total, cell.arm())
}

fn usd(micro: u64) -> String {
    format!("${}.{:02}", micro / 1_000_000, micro % 1_000_000 / 10_000)
}

fn duration(seconds: u64) -> String {
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
        "{}: {} scenarios x {} arms x {} repeats = {} sessions",
        manifest.golden.version,
        manifest.golden.scenarios.len(),
        manifest.arms().len(),
        manifest.asked.repeats,
        bound.cells
    );
    if bound.finished > 0 {
        let _ = write!(text, ", {} of them finished before", bound.finished);
    }
    let _ = write!(
        text,
        "\nat most {} and {} of session time for the {open} that are left",
        usd(bound.cost_micro_usd),
        duration(bound.seconds)
    );
    if bound.referee_calls > 0 {
        let _ = write!(
            text,
            "\nat most {} model calls; referees are asked {} times at most, out of the same budgets",
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
            "\n{} decides.\nNothing was sent and nothing was spent.",
            plan.manifest.golden.primary
        );
        text
    })
}

/// A run in figures, for a program.
fn summary(manifest: &Manifest, folder: &Path) -> serde_json::Value {
    let (cost, tokens) = manifest.spent();
    let arms: Vec<serde_json::Value> = manifest
        .arms()
        .iter()
        .map(|arm| {
            let mean = manifest.mean(arm, &manifest.golden.primary);
            json!({ "arm": arm, "mean": mean.map(|m| m.0), "scenarios": mean.map_or(0, |m| m.1) })
        })
        .collect();
    json!({
        "run": manifest.run, "folder": folder, "golden": manifest.golden.version,
        "primary": manifest.golden.primary, "cells": manifest.tally(), "arms": arms,
        "broken": manifest.broken(), "cost_micro_usd": cost, "tokens": tokens, "seconds": manifest.seconds,
    })
}

/// The same for a person.
fn told(manifest: &Manifest, folder: &Path) -> String {
    let tally = manifest.tally();
    let (cost, tokens) = manifest.spent();
    let mut text = format!(
        "{} on {}: {} sessions done, {} failed, {} not run; {}, {} tokens, {}\n",
        manifest.run,
        manifest.golden.version,
        tally.done,
        tally.failed,
        tally.not_run,
        usd(cost),
        tokens,
        duration(manifest.seconds)
    );
    let primary = &manifest.golden.primary;
    for arm in manifest.arms() {
        let _ = match manifest.mean(&arm, primary) {
            Some((mean, n)) => writeln!(text, "  {arm}: {primary} {mean:.3} over {n} scenarios"),
            None => writeln!(text, "  {arm}: no session has {primary}"),
        };
    }
    for broken in manifest.broken() {
        let _ = writeln!(
            text,
            "  does not hold: {} on {}: {}",
            broken.metric,
            broken.scenario,
            one_line(&broken.why)
        );
    }
    for cell in &manifest.cells {
        let why = match &cell.standing {
            CellStatus::Failed { failures } => {
                failures.last().map(|f| f.message.as_str()).unwrap_or_default()
            }
            CellStatus::NotRun { why, .. } => why,
            CellStatus::Done(_) => continue,
        };
        let _ =
            writeln!(text, "  missing: {} #{} {}: {}", cell.scenario, cell.repeat, cell.arm(), one_line(why));
    }
    let _ = write!(text, "{}", folder.join(manifest::MANIFEST_FILE).display());
    text
}

fn list(app: &App, arg: &HomeArg) -> Result<(), Failure> {
    let home = home(app, arg);
    let mut runs = Vec::new();
    for name in manifest::runs(&home).into_iter().rev() {
        let folder = home.join("runs").join(&name);
        match Manifest::read(&folder) {
            Ok(manifest) => runs.push((manifest, folder)),
            Err(error) => app.output.remark(&format!("{name}: {error}")),
        }
    }
    let values: Vec<_> = runs.iter().map(|(manifest, folder)| summary(manifest, folder)).collect();
    app.output.result(&values, || {
        if runs.is_empty() {
            return format!("No run in {}. `chemigram eval run --dry-run` plans one.", home.display());
        }
        let mut text = String::new();
        for (manifest, _) in &runs {
            let tally = manifest.tally();
            let arms: Vec<String> = manifest
                .arms()
                .iter()
                .map(|arm| match manifest.mean(arm, &manifest.golden.primary) {
                    Some((mean, _)) => format!("{arm} {mean:.3}"),
                    None => arm.to_string(),
                })
                .collect();
            let (run, golden) = (&manifest.run, &manifest.golden.version);
            let all = manifest.cells.len();
            let _ = writeln!(text, "{run}  {golden}  {}/{all}  {}", tally.done, arms.join(", "));
        }
        text
    })
}

fn show(app: &App, name: &str, arg: &HomeArg) -> Result<(), Failure> {
    let folder = manifest::find(&home(app, arg), name)?;
    let manifest = Manifest::read(&folder)?;
    app.output.result(&manifest, || {
        let mut text = told(&manifest, &folder);
        let primary = &manifest.golden.primary;
        let _ = write!(text, "\n\n{primary} by scenario, each repeat:\n");
        for arm in manifest.arms() {
            let _ = writeln!(text, "{arm}");
            for scenario in manifest.golden.scenarios.keys() {
                let cells = manifest.of_arm(&arm).filter(|(cell, _)| cell.scenario == *scenario);
                let values: Vec<String> = cells
                    .map(|(_, done)| match done.measured.get(primary) {
                        Some(value) => format!("{value:.3}"),
                        None => "–".into(),
                    })
                    .collect();
                let _ = writeln!(text, "  {scenario:<32} {}", values.join("  "));
            }
        }
        text
    })
}

fn compare(app: &App, args: &CompareArgs) -> Result<u8, Failure> {
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

fn report(app: &App, args: &ReportArgs) -> Result<(), Failure> {
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
    let page = report::page(&run, &home, &comparisons, &manifest::history(&home));
    write(&args.output, &page, args.force)?;
    let written = json!({ "run": run.run, "file": args.output, "bytes": page.len() });
    app.output.result(&written, || args.output.display().to_string())
}

/// Writes a file that was asked for; one that is there is replaced only if it `may` be.
fn write(path: &Path, text: &str, may: bool) -> Result<(), Failure> {
    let written = std::path::absolute(path).and_then(|whole| durable::publish(&whole, text.as_bytes(), may));
    written.map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::new(ErrorCode::StateError, format!("{} is there already", path.display()))
                .remedy("--force replaces it")
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
        "\n{:<32} {:>8} {:>8} {:>8} {:>7}  (p adjusted for all of these)",
        "others", "A", "B", "gain", "p"
    );
    for other in &c.others {
        let verdict = match other.verdict {
            crate::eval::stats::Conclusion::Inconclusive => "",
            told => told.as_str(),
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
            "does not hold in B: {} on {}: {}",
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
