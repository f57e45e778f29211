//! Batches: those of the library, and those that many machines work on; and `worker`, which works on them.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;

use super::doctor;
use super::eval_store;
use super::failure::Failure;
use super::overnight::{Screen, announce};
use super::progress;
use super::setup::App;
use super::signals;
use crate::batch::nats::{Address, Store};
use crate::budget::usd;
use crate::launch::{Launcher, Runner};
use crate::overnight::BatchError;
use crate::overnight::many::list::{self, BatchState};
use crate::overnight::many::submit::{self, Elsewhere};
use crate::overnight::many::worker::Worker;
use crate::overnight::many::{Requirements, collect};
use crate::overnight::page;
use crate::overnight::record::{self, Batch};
use crate::overnight::report::BatchReport;
use crate::traces::metrics;
use base::clock::Stop;
use base::error::{ErrorCode, Fault};
use base::ids::Hash;
use pixels::Picture;

pub const WORKER_EXAMPLES: &str = "\
Examples:
  chemigram worker --store nats://queue:4222/studio
  chemigram worker --store nats://queue:4222/studio?creds=studio.creds --jobs 2
  chemigram worker --store nats://queue:4222/studio --until-empty

A worker takes sessions off the store and runs them with the darktable and the keys of its own machine; it needs no \
library. Start as many as you like, on as many machines. It declines batches that were submitted with another version \
of chemigram or with a darktable that develops a test picture differently. Ctrl-C, or SIGTERM, lets it finish the \
effect under way, publish it, and give its sessions back to the others; a second Ctrl-C stops it at once.";

pub const BATCH_EXAMPLES: &str = "\
Examples:
  chemigram batch list
  chemigram batch list --store nats://queue:4222/studio
  chemigram batch show last --store nats://queue:4222/studio

Without --store these are the batches of the library; with it, those that many machines work on.";

// The store of batches that many machines share.
#[derive(Args, Clone, Debug)]
pub struct StoreArg {
    /// The store that many machines share: nats://HOST:4222/PREFIX, with ?creds=FILE, nkey=FILE, tls, ca=FILE
    #[arg(long, value_name = "ADDRESS", env = "CHEMIGRAM_STORE", hide_env = true)]
    pub store: Option<Address>,
}

#[derive(Args, Debug)]
pub struct WorkerArgs {
    #[command(flatten)]
    pub store: StoreArg,
    /// Sessions to run at once; each may use one core and 1 GB
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub jobs: u8,
    /// End when no session waits and none is running
    #[arg(long)]
    pub until_empty: bool,
    /// A folder for raws and for photos while they are worked on [default: in the cache folder]
    #[arg(long, value_name = "FOLDER")]
    pub home: Option<PathBuf>,
    /// The name by which others see this worker [default: the machine and the process]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// After how many seconds without a sign of life others take over its sessions
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(2..=3600))]
    pub lease: u64,
}

#[derive(Subcommand, Debug)]
#[command(defer = true)]
pub enum BatchVerb {
    /// List the batches
    List(StoreArg),
    /// Show a batch and its sessions
    Show(BatchArg),
    /// Follow a batch until it is over
    Watch(BatchArg),
    /// Cancel a batch: what runs wraps up, nothing more is started
    Cancel(BatchArg),
    /// Write the report of a batch with what there is by now
    Report(BatchArg),
    /// Delete a batch from the store; what was collected stays in the library
    Remove(BatchArg),
}

#[derive(Args, Debug)]
pub struct BatchArg {
    /// The batch: its name, the beginning of it, or `last`
    pub batch: String,
    #[command(flatten)]
    pub store: StoreArg,
}

/// Works on the jobs of a store.
pub fn worker(app: &App, args: &WorkerArgs) -> Result<u8, Failure> {
    let address = args.store.store.as_ref().ok_or_else(|| {
        Failure::input("the worker needs a store")
            .remedy("name it: `chemigram worker --store nats://HOST:4222/PREFIX`")
    })?;
    let _metrics = metrics::Exporting::from_env();
    let here = requirements(app)?;
    let store = Arc::new(Store::connect(address)?);
    let process = std::process::id();
    let named = || format!("{}-{process}", rustix::system::uname().nodename().to_string_lossy());
    let name = args.name.clone().unwrap_or_else(named);
    let home = args.home.clone().unwrap_or_else(|| app.folders.workers());
    let (runner, stop) = (Runner::new()?, Stop::default());
    let (output, stopped) = (app.output.clone(), stop.clone());
    runner.block_on(async {
        signals::listen(stop.clone(), move |_| {
            output.remark(match stopped.hard.is_cancelled() {
                false => "finishing what is under way, then giving the sessions back; press Ctrl-C again to stop at once",
                true => "stopping at once",
            });
        })
    })?;
    app.output
        .remark(&format!("worker {name}: waiting for sessions of {address}, darktable {}", here.darktable));
    let lease = Duration::from_secs(args.lease);
    eval_store::evaluator(app, |evaluator| {
        let worker = Worker {
            evaluator,
            launcher: &|| app.launcher(None).map_err(Fault::from),
            runner: &runner,
            store,
            home,
            name,
            here,
            lease,
            stop: &stop,
            until_empty: args.until_empty,
            remark: &|text| app.output.remark(text),
        };
        worker.run(args.jobs.into())
    })?;
    Ok(0)
}

/// What this machine is, proved by a picture.
pub fn requirements(app: &App) -> Result<Requirements, Failure> {
    let darktable = app.darktable()?.version().to_owned();
    Ok(required(darktable, &doctor::render_tiny(app)?))
}

/// What a batch asks for that is submitted where darktable has this version and develops the tiny raw so.
pub(super) fn required(darktable: String, Picture { width, height, rgb }: &Picture) -> Requirements {
    let pixels = [&width.to_le_bytes()[..], &height.to_le_bytes()[..], rgb].concat();
    Requirements::here(darktable, Hash::of(pixels))
}

/// Submits a batch to a store, or finds it there, follows it, and writes its report.
pub fn run_elsewhere(app: &App, mut batch: Batch, address: &Address) -> Result<u8, Failure> {
    let _lock = batch.lock()?;
    batch = Batch::read(&batch.folder)?;
    let requires = requirements(app)?;
    let store = Store::connect(address)?;
    let name = submit::submit(&store, &app.library, &app.folders.tastes(), &batch, &requires)?;
    let jobs = batch.record.sessions.len();
    app.output.remark(&format!(
        "batch {name}: {jobs} sessions in {address}; any number of `chemigram worker --store …` work on them. Ctrl-C \
         stops watching, not the batch: `chemigram batch cancel {name}` does that"
    ));
    follow(app, &store, &name, batch)
}

/// Collects a batch until it is over, and writes its report.
fn follow(app: &App, store: &Store, name: &str, mut batch: Batch) -> Result<u8, Failure> {
    let (runner, stop, lines) = (Runner::new()?, Stop::default(), progress::lines(&app.output));
    runner.block_on(async { signals::listen(stop.clone(), |_| {}) })?;
    let gallery = Mutex::new(page::gallery(&batch.record.sessions));
    let folder = batch.folder.clone();
    let screen = Screen { app, lines, folder: &folder, gallery: &gallery };
    let say = |text: &str| app.output.remark(text);
    let over = collect::watch(store, &app.library, name, &mut batch, &screen, &stop, &say)?;
    if !over {
        app.output.remark(&format!(
            "the batch goes on: `chemigram overnight --resume {}` follows it again",
            batch.record.name
        ));
    }
    let report = BatchReport::of(&app.library, &batch);
    report.write(&mut gallery.lock().unwrap_or_else(PoisonError::into_inner))?;
    announce(app, &batch, &report);
    Ok(report.status())
}

/// Carries out one of the verbs.
pub fn batch(app: &App, verb: &BatchVerb) -> Result<u8, Failure> {
    let on = |arg: &BatchArg| -> Result<Option<(Store, String)>, Failure> {
        let Some(address) = &arg.store.store else { return Ok(None) };
        let store = Store::connect(address)?;
        let name = list::find(&store, &arg.batch)?;
        Ok(Some((store, name)))
    };
    match verb {
        BatchVerb::List(arg) => list_batches(app, arg.store.as_ref()).map(|()| 0),
        BatchVerb::Show(arg) => match on(arg)? {
            Some((store, name)) => {
                let state = list::show(&store, &name)?;
                app.output.result(&state, || words(&state)).map(|()| 0)
            }
            None => {
                let report = BatchReport::of(&app.library, &record::find(&app.library, &arg.batch)?);
                app.output.result(&report, || report.summary()).map(|()| 0)
            }
        },
        BatchVerb::Watch(arg) => match on(arg)? {
            Some((store, name)) => {
                let batch = submitted(app, &store, &name)?;
                let _lock = batch.lock()?;
                follow(app, &store, &name, Batch::read(&batch.folder)?)
            }
            None => watch_folder(app, &arg.batch),
        },
        BatchVerb::Cancel(arg) => {
            match on(arg)? {
                Some((store, name)) => submit::cancel(&store, &name)?,
                None => interrupt(app, &arg.batch)?,
            }
            app.output
                .result(&json!({ "cancelled": arg.batch }), || "cancelled: what runs wraps up\n".into())?;
            Ok(0)
        }
        BatchVerb::Report(arg) => {
            let batch = match on(arg)? {
                Some((store, name)) => {
                    let batch = submitted(app, &store, &name)?;
                    let _lock = batch.lock()?;
                    let mut batch = Batch::read(&batch.folder)?;
                    collect::once(&store, &app.library, &name, &mut batch)?;
                    batch
                }
                None => record::find(&app.library, &arg.batch)?,
            };
            let report = BatchReport::of(&app.library, &batch);
            report.write(&mut page::gallery(&batch.record.sessions))?;
            announce(app, &batch, &report);
            Ok(report.status())
        }
        BatchVerb::Remove(arg) => {
            let (store, name) = on(arg)?.ok_or_else(|| {
                Failure::input("a batch of the library is removed with its sessions")
                    .remedy("`chemigram prune` does that; name a store to remove a batch from it")
            })?;
            list::remove(&store, &name)?;
            app.output.result(&json!({ "removed": name }), || format!("removed {name}\n"))?;
            Ok(0)
        }
    }
}

fn list_batches(app: &App, address: Option<&Address>) -> Result<(), Failure> {
    if let Some(address) = address {
        let lines = list::list(&Store::connect(address)?)?;
        return app.output.result(&lines, || {
            lines.iter().fold(String::new(), |mut text, line| {
                let of = line.evaluation.as_ref().map(|run| format!(" of the evaluation {run}"));
                let of = of.unwrap_or_default();
                let _ = writeln!(text, "{}  {:9}  {} sessions{of}", line.name, line.state, line.jobs);
                text
            })
        });
    }
    let mut rows = Vec::new();
    for name in record::names(&app.library) {
        let batch = record::find(&app.library, &name)?;
        let elsewhere = Elsewhere::of(&batch);
        let state = if batch.is_over() { "over" } else { "open" };
        rows.push(json!({
            "name": name, "state": state, "jobs": batch.record.sessions.len(),
            "store": elsewhere.map(|elsewhere| format!("{} as {}", elsewhere.store, elsewhere.batch)),
        }));
    }
    app.output.result(&rows, || {
        rows.iter().fold(String::new(), |mut text, row| {
            let word = |key: &str| row.get(key).and_then(|value| value.as_str()).unwrap_or_default();
            let place = if word("store").is_empty() { String::new() } else { format!("  {}", word("store")) };
            let jobs = row.get("jobs").and_then(serde_json::Value::as_u64).unwrap_or(0);
            let _ = writeln!(text, "{}  {:4}  {jobs} sessions{place}", word("name"), word("state"));
            text
        })
    })
}

fn words(state: &BatchState) -> String {
    let mut text = format!("{} ({})\n", state.name, state.state);
    for (place, job) in (1..).zip(&state.jobs) {
        let by = if job.worker.is_empty() { String::new() } else { format!(" by {}", job.worker) };
        let why = if job.why.is_empty() { String::new() } else { format!(": {}", job.why) };
        let again = if job.claims > 1 { format!(", claimed {} times", job.claims) } else { String::new() };
        let _ = writeln!(text, "{place:4}. {}  {}{by}{again}{why}", job.photo, job.state);
    }
    let (spent, reserved) = (state.spent, state.reserved);
    let _ = writeln!(
        text,
        "spent: {} iterations, {} branches, {} USD; reserved: {} iterations, {} branches, {} USD",
        spent.iterations,
        spent.branches,
        usd(spent.cost_micro_usd),
        reserved.iterations,
        reserved.branches,
        usd(reserved.cost_micro_usd)
    );
    let needs = &state.requires;
    let _ = writeln!(text, "workers need chemigram {}, darktable {}", needs.chemigram, needs.darktable);
    text
}

/// The batch of this library that was submitted under that name.
fn submitted(app: &App, store: &Store, name: &str) -> Result<Batch, Failure> {
    for own in record::names(&app.library).iter().rev() {
        let batch = record::find(&app.library, own)?;
        if Elsewhere::of(&batch).is_some_and(|elsewhere| elsewhere.batch == name) {
            return Ok(batch);
        }
    }
    if let Some(run) = list::evaluation(store, name)? {
        let message = format!("the batch {name} is of an evaluation");
        return Err(Failure::new(ErrorCode::InvalidInput, message).remedy(format!(
            "where it was submitted, `chemigram eval resume {run}` follows and collects it, and `chemigram eval report \
             {run}` writes its report"
        )));
    }
    let message = format!("the batch {name} was not submitted from this library");
    Err(Failure::new(ErrorCode::NotFound, message)
        .remedy("`chemigram batch show` says how it stands; follow it where it was submitted"))
}

/// Waits until a batch of the library is over, or nobody runs it.
fn watch_folder(app: &App, named: &str) -> Result<u8, Failure> {
    let mut batch = record::find(&app.library, named)?;
    loop {
        let running = matches!(batch.lock(), Err(BatchError::Busy { .. }));
        if batch.is_over() || !running {
            break;
        }
        std::thread::sleep(Duration::from_secs(1));
        batch = Batch::read(&batch.folder)?;
    }
    let report = BatchReport::of(&app.library, &batch);
    app.output.result(&report, || report.summary())?;
    Ok(report.status())
}

/// Asks the process that runs a batch of the library to wrap up, as Ctrl-C does.
fn interrupt(app: &App, named: &str) -> Result<(), Failure> {
    let batch = record::find(&app.library, named)?;
    let pid = match batch.lock() {
        Err(BatchError::Busy { pid, .. }) => i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw),
        Err(error) => return Err(error.into()),
        Ok(_) => {
            let message = format!("no process is running the batch {}", batch.record.name);
            return Err(Failure::new(ErrorCode::StateError, message));
        }
    };
    let sent = pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::INT));
    match sent {
        Some(Ok(())) => Ok(()),
        _ => Err(Failure::new(ErrorCode::StateError, "the process that runs the batch cannot be reached")),
    }
}

/// The address where a batch is worked on: the one given, else the one that it was submitted to.
pub fn address_of(batch: &Batch, given: Option<&Address>) -> Result<Option<Address>, Failure> {
    match (given, Elsewhere::of(batch)) {
        (Some(address), _) => Ok(Some(address.clone())),
        (None, Some(elsewhere)) => elsewhere.store.parse().map(Some).map_err(Failure::input),
        (None, None) => Ok(None),
    }
}

/// The sessions of a plan as other machines can run them.
pub fn portable(
    app: &App,
    launcher: &Launcher,
    sessions: Vec<record::PlannedSession>,
) -> Result<Vec<record::PlannedSession>, Failure> {
    Ok(submit::portable(launcher, &app.library, sessions)?)
}
