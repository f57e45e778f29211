//! A run: its cells, scheduled under the caps of the run.
//!
//! The manifest is on disk after every cell. What was cut or killed continues when the run is resumed; what is finished
//! is never paid twice, not even by another run.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use crate::batch::{self, Admission, Jobs, Queue, Reservation};
use crate::budget::{Amounts, Budget};
use crate::eval::cells::{INTERRUPTED, Job};
use crate::eval::context::EvalContext;
use crate::eval::history::HistoryLine;
use crate::eval::manifest::{Arm, CellRecord, CellStatus, Failure, Manifest, ManifestError};
use crate::eval::plan::{Plan, RunError, Task};
use crate::eval::steering::Variant;
use crate::launch::Runner;
use crate::session::driver::Host;
use base::clock::{Clock as _, Stop, SystemClock};
use base::error::Fault;

#[cfg(test)]
mod tests;

/// So many failed cells in a row, and the fault is not the cells'.
pub(super) const MOST_FAILED_IN_A_ROW: usize = 3;
/// The time of a run without a time cap, in seconds.
const FOREVER: u64 = 1 << 40;

/// How far a run is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Cells finished or failed.
    pub settled: usize,
    /// Cells in all.
    pub total: usize,
    /// The scenarios of the running cells.
    pub running: Vec<String>,
    /// What the run has cost, in millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// How much longer it takes, judged by the cells that have ended since it was started or resumed; unknown before the
    /// first.
    pub remaining: Option<Duration>,
    /// The cell that has just ended.
    pub ended: Option<CellRecord>,
}

/// Where a run runs, and who watches it.
pub struct Running<'a> {
    /// What its cells share.
    pub context: &'a EvalContext,
    /// Its folder.
    pub folder: &'a Path,
    /// Sessions at once.
    pub jobs: usize,
    /// Where its sessions run.
    pub runner: &'a Runner,
    /// Its `soft` part starts no more cells, its `hard` part leaves the running sessions where they are.
    pub stop: &'a Stop,
    /// Who watches each session.
    pub host: &'a dyn Host,
    /// Called whenever a cell has started or ended.
    pub progress: &'a (dyn Fn(&Progress) + Sync),
}

impl Plan {
    /// Runs the open cells until all are done, a cap fires, or the run is stopped. The manifest is written after every
    /// cell, and history gets its line.
    pub fn run(&mut self, running: &Running<'_>) -> Result<(), RunError> {
        let request = &self.manifest.request;
        let caps = Budget {
            time_seconds: request.time_seconds.unwrap_or(FOREVER),
            max_iterations: u64::MAX,
            max_branches: u64::MAX,
            max_tokens: None,
            max_cost_micro_usd: request.cost_micro_usd,
            max_renders: None,
            max_model_calls: None,
        };
        // What the run has spent so far stays spent.
        let before = Amounts { cost_micro_usd: self.manifest.spent().0, ..Amounts::default() };
        let (mut open, mut paid_before) = (Vec::new(), BTreeMap::new());
        for (at, cell) in self.manifest.cells.iter_mut().enumerate() {
            if cell.done().is_none() {
                cell.leave("not begun");
                paid_before.insert(at, cell.spent(&self.manifest.run).0);
                open.push(at);
            }
        }
        let cells = Cells {
            running,
            tasks: &self.tasks,
            variants: &self.variants,
            began: SystemClock.monotonic(),
            before: Duration::from_secs(self.manifest.seconds),
            paid_before,
            record: Mutex::new(Record {
                manifest: &mut self.manifest,
                took: BTreeMap::new(),
                failed_in_a_row: 0,
                error: None,
            }),
        };
        let queue = Queue::new(caps, before, open);
        let queue = batch::run(&cells, queue, running.jobs, &running.stop.soft);
        cells.close(queue)?;
        HistoryLine::of(&self.manifest).append(&running.context.home)?;
        Ok(())
    }
}

/// The cells of a run, as jobs.
struct Cells<'a> {
    running: &'a Running<'a>,
    tasks: &'a [Task],
    variants: &'a [Variant],
    began: Duration,
    /// How long the run took before it was resumed.
    before: Duration,
    /// What failed attempts at the open cells had cost before the run was resumed.
    paid_before: BTreeMap<usize, u64>,
    record: Mutex<Record<'a>>,
}

/// What the cells write to.
struct Record<'a> {
    manifest: &'a mut Manifest,
    /// Seconds and cells since the run was started or resumed, by arm.
    took: BTreeMap<Arm, (f64, u32)>,
    failed_in_a_row: usize,
    error: Option<ManifestError>,
}

/// The status of a cell after it ran, and how long that took.
type Ended = (CellStatus, Duration);

impl<'a> Cells<'a> {
    fn record(&self) -> MutexGuard<'_, Record<'a>> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the run has taken.
    fn elapsed(&self) -> Duration {
        self.before + SystemClock.monotonic().saturating_sub(self.began)
    }

    /// Calls `with` with the cell as a job.
    fn with_job<T>(
        &self,
        at: usize,
        retry: &dyn Fn(Amounts) -> bool,
        with: impl FnOnce(&Job<'_>, &Task) -> T,
    ) -> Option<T> {
        let task = self.tasks.get(at)?;
        let (run, binary, cell) = {
            let manifest = &self.record().manifest;
            (manifest.run.clone(), manifest.made_with.binary.clone(), manifest.cells.get(at)?.clone())
        };
        let job = Job {
            context: self.running.context,
            run: &run,
            binary: &binary,
            cell: &cell,
            scenario: self.running.context.golden.scenarios.get(task.scenario)?,
            who: &task.who,
            protocol: self.variants.get(task.variant).and_then(|variant| variant.protocol.as_ref()),
            budget: &task.budget,
            retry,
            runner: self.running.runner,
            cut: &self.running.stop.hard,
            host: self.running.host,
        };
        Some(with(&job, task))
    }

    fn write(&self, record: &mut Record<'_>) {
        record.manifest.seconds = self.elapsed().as_secs();
        record.manifest.ended = Some(Timestamp::now());
        if let Err(error) = record.manifest.write(self.running.folder) {
            record.error = Some(error);
        }
    }

    fn report(&self, record: &Record<'_>, queue: &Queue, ended: Option<CellRecord>) {
        let cells = &record.manifest.cells;
        let scenario = |&at: &usize| cells.get(at).map(|cell| cell.scenario.clone());
        (self.running.progress)(&Progress {
            settled: cells.len() - queue.waiting.len() - queue.running.len(),
            total: cells.len(),
            running: queue.running.iter().filter_map(scenario).collect(),
            cost_micro_usd: record.manifest.spent().0,
            remaining: self.remaining(record, queue),
            ended,
        });
    }

    /// How much longer the run takes, each cell by the mean of its own arm where that is known.
    fn remaining(&self, record: &Record<'_>, queue: &Queue) -> Option<Duration> {
        let all = record.took.values().fold((0.0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        if all.1 == 0 {
            return None;
        }
        let left = queue.waiting.iter().chain(&queue.running);
        let seconds = left.filter_map(|&at| {
            let cell = record.manifest.cells.get(at)?;
            let (sum, n) = record.took.get(&cell.arm()).copied().unwrap_or(all);
            Some(sum / f64::from(n))
        });
        Some(Duration::from_secs_f64(seconds.sum::<f64>() / self.running.jobs.max(1) as f64))
    }

    /// Records of the cells that are left why they did not run, and writes the manifest a last time.
    fn close(self, queue: Queue) -> Result<(), RunError> {
        let stopped = self.running.stop.soft.is_cancelled().then(|| "the run was stopped first".to_owned());
        let why = queue.stopped.or(stopped).unwrap_or_else(|| "not begun".into());
        let mut record = self.record();
        for at in queue.waiting {
            if let Some(cell) = record.manifest.cells.get_mut(at) {
                cell.leave(&why);
            }
        }
        self.write(&mut record);
        match record.error.take() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}

impl Jobs for Cells<'_> {
    type Start = ();
    type End = Ended;

    fn admit(&self, at: usize, queue: &Queue) -> Admission<()> {
        let cost_micro_usd = self.tasks.get(at).map_or(0, |task| task.most);
        let most = Amounts { cost_micro_usd, ..Amounts::default() };
        match queue.ledger.admit(&most, self.elapsed()) {
            Ok(()) => Admission::Start((), most),
            Err(_) if !queue.running.is_empty() => Admission::Wait,
            Err(exhausted) => Admission::Stop(format!("budget of the run: {}", exhausted.words())),
        }
    }

    fn run(&self, at: usize, (): (), reservation: &Reservation<'_>) -> Ended {
        {
            let queue = reservation.queue();
            let mut record = self.record();
            // Whatever ends the program before the session does leaves this.
            if let Some(cell) = record.manifest.cells.get_mut(at) {
                cell.leave(INTERRUPTED);
            }
            self.write(&mut record);
            self.report(&record, &queue, None);
        }
        let began = self.elapsed();
        let retry = |failed: Amounts| {
            let cost_micro_usd = failed.cost_micro_usd;
            reservation.retry(Amounts { cost_micro_usd, ..Amounts::default() }, self.elapsed())
        };
        let status = self.with_job(at, &retry, |job, task| job.run(&task.inputs));
        let missing = || CellStatus::NotRun { why: "the plan has no such cell".into(), failures: Vec::new() };
        (status.unwrap_or_else(missing), self.elapsed().saturating_sub(began))
    }

    fn panicked(&self, at: usize, fault: Fault) -> Ended {
        let status = self.with_job(at, &|_| false, |job, _| job.panicked(&fault));
        let spent = Amounts::default();
        let failure = Failure { code: fault.code, message: fault.message, spent, at: Timestamp::now() };
        (status.unwrap_or_else(|| CellStatus::Failed { failures: vec![failure] }), Duration::ZERO)
    }

    fn ended(&self, at: usize, (status, took): Ended, queue: &mut Queue) -> Amounts {
        let mut guard = self.record();
        let record = &mut *guard;
        match &status {
            CellStatus::Done(_) => record.failed_in_a_row = 0,
            CellStatus::Failed { failures } => {
                record.failed_in_a_row += 1;
                if record.failed_in_a_row >= MOST_FAILED_IN_A_ROW {
                    let last = failures.last().map(|f| f.message.clone()).unwrap_or_default();
                    queue.stopped.get_or_insert(format!(
                        "{MOST_FAILED_IN_A_ROW} sessions in a row failed; the last error: {last}"
                    ));
                }
            }
            CellStatus::NotRun { .. } => {}
        }
        let Some(cell) = record.manifest.cells.get_mut(at) else { return Amounts::default() };
        cell.status = status;
        let cell = cell.clone();
        if cell.done().is_some() {
            let sum = record.took.entry(cell.arm()).or_default();
            sum.0 += took.as_secs_f64();
            sum.1 += 1;
        }
        let (cost, tokens) = cell.spent(&record.manifest.run);
        self.write(record);
        if let Some(error) = &record.error {
            queue.stopped.get_or_insert(error.to_string());
        }
        self.report(record, queue, Some(cell));
        let cost_micro_usd = cost.saturating_sub(self.paid_before.get(&at).copied().unwrap_or_default());
        Amounts { cost_micro_usd, tokens, ..Amounts::default() }
    }
}
