//! `overnight`: from a plan to its sessions and their report.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use clap::Args;
use indicatif::MultiProgress;
use jiff::Timestamp;
use serde_json::json;

use super::batch::{StoreArg, address_of, portable, run_elsewhere};
use super::failure::Failure;
use super::progress::{self, Watch};
use super::setup::App;
use super::signals;
use crate::budget::usd;
use crate::launch::{self, Launcher, Runner};
use crate::overnight::page;
use crate::overnight::plan::{self, Draft, EXAMPLE, Mistake};
use crate::overnight::record::{self, Batch, Entry, PlannedSession, Stamped};
use crate::overnight::report::BatchReport;
use crate::overnight::resolve::{self, resolve};
use crate::overnight::run::{self, Observer};
use crate::overnight::share::{self, clock, words};
use crate::provider::Recording;
use crate::review::page::Gallery;
use crate::review::{count, line as one_line};
use crate::session::driver::Host;
use crate::session::estimate::Estimate;
use base::clock::{Stop, SystemClock};

pub const OVERNIGHT_EXAMPLES: &str = "\
Examples:
  chemigram overnight --example > tonight.toml
  chemigram overnight tonight.toml --dry-run
  chemigram overnight tonight.toml --jobs 2
  chemigram overnight --resume last
  chemigram overnight tonight.toml --store nats://queue:4222/studio

The plan lists the photos, each with its brief, directions and budget, and the limits of the whole batch. All errors \
in the plan are reported before anything starts. A session that fails does not end the batch. Ctrl-C starts no further \
session and lets the running ones wrap up; a second Ctrl-C stops at once. Run the same plan again, or use --resume, to \
continue an unfinished batch. The report is LIBRARY/overnight/BATCH/report.html (and report.txt).

Exit status:
  0   every session ended well
  1   a session did not
  2   the plan has errors
  10  the budget of the batch kept a session from starting
  25  the batch was stopped";

#[derive(Args, Debug)]
pub struct OvernightArgs {
    /// The plan of the batch
    #[arg(value_name = "PLAN.toml", required_unless_present_any = ["resume", "example"])]
    pub plan: Option<PathBuf>,
    /// Resume a batch: its name, the beginning of it, or `last`
    #[arg(long, value_name = "BATCH", conflicts_with_all = ["plan", "dry_run", "example"])]
    pub resume: Option<String>,
    /// Sessions to run at once; each may use one core and 1 GB
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub jobs: u8,
    /// Record every request to a server and its reply, without keys, in a folder of each session in this folder
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Show what would run and the most it could use, without starting
    #[arg(long)]
    pub dry_run: bool,
    /// Print an example plan
    #[arg(long, conflicts_with_all = ["plan", "dry_run"])]
    pub example: bool,
    #[command(flatten)]
    pub store: StoreArg,
}

/// Carries out `overnight`; its help says which status means what.
pub fn overnight(app: &App, args: &OvernightArgs) -> Result<u8, Failure> {
    if args.example {
        app.output.raw(EXAMPLE.as_bytes());
        return Ok(0);
    }
    let mut launcher = app.launcher(None)?;
    launcher.registry = launcher.registry.recording(args.record.clone().map(Recording::EachSession));
    if args.record.is_some() && args.store.store.is_some() {
        return Err(elsewhere());
    }
    if let Some(name) = &args.resume {
        let batch = record::find(&app.library, name)?;
        return match address_of(&batch, args.store.store.as_ref())? {
            Some(_) if args.record.is_some() => Err(elsewhere()),
            Some(address) => run_elsewhere(app, batch, &address),
            None => run_batch(app, &launcher, batch, args.jobs.into()),
        };
    }
    let path = args.plan.as_deref().unwrap_or(Path::new(""));
    let path = std::path::absolute(path).map_err(|e| Failure::file("find", path, &e))?;
    let text = launch::read_text(&path)?;
    let draft = plan::read(&text);
    let folder = path.parent().unwrap_or(Path::new("."));
    let sessions = resolve(&launcher, &app.library, folder, &draft);
    let sessions = sessions.map_err(|mistakes| refused(&path, &mistakes))?;
    if args.dry_run {
        return dry_run(app, &launcher, &draft, &sessions, args.jobs.into()).map(|()| 0);
    }
    let sessions = match &args.store.store {
        Some(_) => portable(app, &launcher, sessions)?,
        None => sessions,
    };
    let batch = match record::unfinished(&app.library, &record::hash(&draft.caps, &sessions)) {
        Some(batch) => {
            let name = &batch.record.name;
            app.output.remark(&format!("this plan has an unfinished batch: resuming {name}"));
            batch
        }
        None => record::begin(&app.library, (&path, &text), draft.caps, sessions, Timestamp::now())?,
    };
    match address_of(&batch, args.store.store.as_ref())? {
        Some(_) if args.record.is_some() => Err(elsewhere()),
        Some(address) => run_elsewhere(app, batch, &address),
        None => run_batch(app, &launcher, batch, args.jobs.into()),
    }
}

/// What keeps sessions from being recorded.
pub fn elsewhere() -> Failure {
    Failure::input("sessions that run on other machines are not recorded")
        .remedy("leave out --record, or --store")
}

/// All mistakes in a plan, as one failure.
fn refused(path: &Path, mistakes: &[Mistake]) -> Failure {
    let count = match mistakes.len() {
        1 => "an error".to_owned(),
        n => format!("{n} errors"),
    };
    let mut text = format!("{} has {count}; nothing was started", path.display());
    for Mistake { line, message } in mistakes {
        let _ = write!(text, "\n  line {line}: {}", one_line(message));
    }
    Failure::input(text).remedy("`chemigram overnight --example` prints a complete example")
}

/// Runs what is left of a batch, with its progress, its signals and its report.
fn run_batch(app: &App, launcher: &Launcher, mut batch: Batch, jobs: usize) -> Result<u8, Failure> {
    // Held until the report is written.
    let _lock = batch.lock()?;
    // Another process may have worked on it until now.
    batch = Batch::read(&batch.folder)?;
    let runner = Runner::new()?;
    let (stop, lines, output) = (Stop::default(), progress::lines(&app.output), app.output.clone());
    let (stopped, bars) = (stop.clone(), lines.clone());
    runner.block_on(async {
        signals::listen(stop.clone(), move |_| {
            let text = match stopped.hard.is_cancelled() {
                false => "wrapping up the running sessions, starting no more: everything is kept and scored; press Ctrl-C again to stop at once",
                true => "stopping at once",
            };
            bars.suspend(|| output.remark(text));
        })
    })?;
    let gallery = Mutex::new(page::gallery(&batch.record.sessions));
    let screen = Screen { app, lines, folder: &batch.folder.clone(), gallery: &gallery };
    let batch_run =
        run::Run { launcher, library: &app.library, runner: &runner, clock: &SystemClock, stop: &stop };
    batch_run.run(&mut batch, jobs, &screen)?;
    let report = BatchReport::of(&app.library, &batch);
    report.write(&mut gallery.lock().unwrap_or_else(PoisonError::into_inner))?;
    announce(app, &batch, &report);
    Ok(report.status())
}

/// Says what became of a batch, and where its report is.
pub fn announce(app: &App, batch: &Batch, report: &BatchReport) {
    let file = batch.folder.join("report.html");
    if app.output.json {
        let value = json!({ "event": "report", "status": report.status(), "file": file, "report": report });
        app.output.line(&value.to_string());
    } else {
        let name = &batch.record.name;
        app.output.text(&format!(
            "{}\n\n{}\nTo look at it: chemigram review --batch {name}",
            report.summary(),
            file.display()
        ));
    }
}

/// Shows a batch on the screen, and keeps its report up to date.
pub struct Screen<'a> {
    pub app: &'a App,
    pub lines: MultiProgress,
    pub folder: &'a Path,
    /// The pictures of the page, which is written after each session.
    pub gallery: &'a Mutex<Gallery>,
}

impl Observer for Screen<'_> {
    fn session(&self, _place: usize, photo: &str) -> Box<dyn Host + '_> {
        let watch = Watch::among(&self.app.output, &self.lines, photo.to_owned());
        watch.start();
        Box::new(watch)
    }

    fn recorded(&self, stamped: &Stamped) {
        if self.app.output.json {
            if let Ok(text) = serde_json::to_string(stamped) {
                self.app.output.line(&text);
            }
        } else if let Some(text) = described(stamped) {
            self.lines.suspend(|| self.app.output.remark(&text));
        }
        if !matches!(stamped.entry, Entry::RunStarted { .. } | Entry::Started { .. }) {
            // A batch that is killed has its report up to the last session that ended.
            let written = Batch::read(self.folder).and_then(|batch| {
                let mut gallery = self.gallery.lock().unwrap_or_else(PoisonError::into_inner);
                BatchReport::of(&self.app.library, &batch).write(&mut gallery)
            });
            if let Err(error) = written {
                tracing::warn!(%error, "the report cannot be written");
            }
        }
    }
}

/// A line for a person, where there is something to say.
fn described(stamped: &Stamped) -> Option<String> {
    Some(match &stamped.entry {
        Entry::Started { photo, session, budget, again, place } => {
            let verb = if *again { "resuming" } else { "starting" };
            format!("{}. {photo}: {verb} session {} ({})", place + 1, session.short(), words(budget))
        }
        Entry::Ended { place, outcome, .. } => format!("{}. {}", place + 1, outcome.as_str()),
        Entry::Failed { place, message, .. } => format!("{}. failed: {}", place + 1, one_line(message)),
        Entry::Paused { place, why, pause_ms, .. } => {
            let pause = clock(pause_ms.div_ceil(1000));
            format!("{}. waits for its provider, next attempt in {pause}: {}", place + 1, one_line(why))
        }
        Entry::NotBegun { place, why } => format!("{}. not begun: {}", place + 1, one_line(why)),
        Entry::RunStarted { .. } | Entry::Closed => return None,
    })
}

/// An estimate: `about 0.2103 USD, 0.6410 without a cache; 36 replies with 412000 tokens`.
fn expected(estimate: &Estimate) -> String {
    let tokens = estimate.input + estimate.output;
    format!("{}; {} replies with {tokens} tokens", estimate.money(), estimate.replies)
}

/// Shows what would run, what it may use at most, whether the batch has that, and what it will probably use.
fn dry_run(
    app: &App,
    launcher: &Launcher,
    draft: &Draft,
    sessions: &[PlannedSession],
    jobs: usize,
) -> Result<(), Failure> {
    let estimates = sessions.iter().map(|session| resolve::estimate(launcher, &app.library, session));
    let estimates: Vec<Option<Estimate>> = estimates.collect::<Result<_, _>>()?;
    let together: Estimate = estimates.iter().copied().flatten().sum();
    let unknown = estimates.iter().filter(|one| one.is_none()).count();
    let given = share::forecast(&draft.caps, sessions, jobs);
    let cost = |order: &PlannedSession| (!order.free).then_some(order.budget.max_cost_micro_usd);
    let costs: Vec<Option<Option<u64>>> = sessions.iter().map(cost).collect();
    // A model that costs something and has no cap on it makes the sum unknown.
    let known = costs.iter().all(|cost| *cost != Some(None));
    let cost: Option<u64> = known.then(|| costs.iter().flatten().flatten().sum());
    let cost = [cost, draft.caps.cost_micro_usd].into_iter().flatten().min();
    let seconds: u64 = sessions.iter().map(|order| order.budget.time_seconds).sum();
    let fits = sessions.iter().zip(&given).all(|(order, given)| given.as_ref() == Ok(&order.budget));
    let rows: Vec<_> = sessions
        .iter()
        .zip(&given)
        .zip(&estimates)
        .map(|((order, given), estimate)| {
            json!({
                "order": order, "gets": given.as_ref().ok(), "why_not": given.as_ref().err(), "estimate": estimate,
            })
        })
        .collect();
    let value = json!({
        "caps": draft.caps, "sessions": rows, "fits": fits,
        "at_most": { "cost_micro_usd": cost, "session_seconds": seconds },
        "estimate": together, "not_estimated": unknown,
    });
    app.output.result(&value, || {
        let plural = if sessions.len() == 1 { "" } else { "s" };
        let mut text = format!("{} session{plural}, at most:\n", sessions.len());
        for ((order, given), estimate) in sessions.iter().zip(&given).zip(&estimates) {
            let by = format!("{} {}", order.provider, order.model);
            let _ =
                write!(text, "  {}: {}, by {}", one_line(&order.photo), words(&order.budget), one_line(&by));
            let _ = match given {
                Ok(given) if *given == order.budget => writeln!(text),
                Ok(given) => writeln!(
                    text,
                    "\n    may get only {}, if the sessions before it use all of theirs",
                    words(given)
                ),
                Err(why) => {
                    writeln!(text, "\n    may not start, if the sessions before it use all of theirs: {why}")
                }
            };
            let _ = match estimate {
                Some(estimate) => writeln!(text, "    estimate: {}", expected(estimate)),
                None => writeln!(text, "    no estimate, because the photo is not in the library yet"),
            };
        }
        let cost =
            cost.map_or_else(|| "an unlimited amount of money".into(), |cost| format!("{} USD", usd(cost)));
        let _ = writeln!(text, "together at most {cost} and {} of session time", clock(seconds));
        let without = match unknown {
            0 => String::new(),
            n => format!(", without {}", count(n as u64, "session")),
        };
        if unknown < sessions.len() {
            let expected = expected(&together);
            let _ = writeln!(text, "estimate together{without}: {expected}, if all iterations are made");
        }
        let caps = &draft.caps;
        let time = caps.time_seconds.map(|time| format!(", {}", clock(time))).unwrap_or_default();
        let money = caps.cost_micro_usd.map(|cost| format!(", {} USD", usd(cost))).unwrap_or_default();
        let verdict = if fits { "all of it fits within" } else { "not all of it fits within" };
        let _ = writeln!(text, "{verdict} the budget of the batch{time}{money}");
        text.push_str("Nothing was sent and nothing was spent.");
        text
    })
}
