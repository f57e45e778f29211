//! Follows the cells of a run in a store, and brings what workers made into its folder.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;

use super::Cell;
use crate::batch::changes::Holds;
use crate::batch::nats::journal::{Stored, What};
use crate::batch::nats::{Store, StoreError};
use crate::eval::cells::{self, folder as cell_folder};
use crate::eval::context::EvalContext;
use crate::eval::history::HistoryLine;
use crate::eval::manifest::{CellRecord, CellStatus};
use crate::eval::metrics::METRICS_VERSION;
use crate::eval::plan::{Plan, RunError};
use crate::eval::run::{MOST_FAILED_IN_A_ROW, Progress};
use crate::launch;
use crate::overnight::many::submit::{Elsewhere, cancel, close};
use crate::overnight::many::{Head, Job, Offer, Pack, Work, apply, changes_of, head_key, read, unknown};
use base::clock::Stop;
use base::error::{ErrorCode, Fault};
use base::ids::Hash;

/// How often the store is asked what has happened.
const LOOK: Duration = Duration::from_millis(500);

/// A run whose cells are in a store.
pub struct Following<'a> {
    /// What its cells share.
    pub context: &'a EvalContext,
    /// Its folder.
    pub folder: &'a Path,
    /// The store.
    pub store: &'a Store,
    /// The batch there.
    pub batch: &'a str,
    /// Its `soft` part ends the following, and not the batch.
    pub stop: &'a Stop,
    /// Called whenever a cell was claimed or has ended.
    pub progress: &'a (dyn Fn(&Progress) + Sync),
    /// Says something to a person.
    pub say: &'a dyn Fn(&str),
}

/// A cell in the store that is not collected yet.
struct Open {
    /// Its place in the batch.
    place: usize,
    job: Hash,
    cell: Cell,
    /// How often it was claimed.
    claims: u64,
}

impl Plan {
    /// Follows the cells of the run until all are collected, or the following is stopped: whether all are.
    ///
    /// # Errors
    /// The store, or a file that the system refuses. What was collected until then stays.
    pub fn follow(&mut self, following: &Following<'_>) -> Result<bool, RunError> {
        let Following { store, batch, folder, .. } = following;
        let told = |e: StoreError| Fault::from(&e);
        let head = store.get::<Head>(&head_key(batch)).map_err(told)?.ok_or_else(|| unknown(store, batch))?;
        let offer: Offer = read(store, &head.value.offer)?;
        let before = self.manifest.seconds;
        for record in self.manifest.cells.iter_mut().filter(|record| record.done().is_none()) {
            record.leave("its batch goes on");
        }
        self.manifest.write(folder)?;
        let mut open = opened(store, &offer)?;
        let (mut first, mut last_at, mut failed_in_a_row) = (None, None, 0);
        // At least once, so that what is over is collected even by who is about to leave.
        while !open.is_empty() {
            let names: Vec<Hash> = open.iter().map(|one| one.job.clone()).collect();
            let (lasts, mut left) = (store.lasts(&names).map_err(told)?, Vec::new());
            let mut ended = Vec::new();
            for (mut one, last) in open.into_iter().zip(lasts) {
                let Some(last) = last else {
                    left.push(one);
                    continue;
                };
                if last.message.epoch > one.claims && !last.message.what.is_final() {
                    one.claims = last.message.epoch;
                    let (called, worker) = (one.cell.called(), &last.message.worker);
                    (following.say)(&format!("{}. {called}: claimed by {worker}", one.place + 1));
                }
                if last.message.what.is_final() { ended.push(one) } else { left.push(one) }
            }
            open = left;
            for one in ended {
                let history = store.history(&one.job).map_err(told)?;
                let status = self.collected(following, &one, &history)?;
                first = first
                    .into_iter()
                    .chain(history.iter().find(|one| one.message.epoch > 0).map(|one| one.at_ms))
                    .min();
                last_at = last_at.into_iter().chain(history.last().map(|one| one.at_ms)).max();
                let took = last_at.zip(first).map_or(0, |(last, first): (i64, i64)| last - first);
                self.manifest.seconds = before + u64::try_from(took / 1000).unwrap_or(0);
                self.manifest.ended = Some(Timestamp::now());
                failed_in_a_row = match &status {
                    CellStatus::Failed { .. } => failed_in_a_row + 1,
                    CellStatus::Done(_) => 0,
                    CellStatus::NotRun { .. } => failed_in_a_row,
                };
                let key = one.cell.key();
                for record in self.manifest.cells.iter_mut().filter(|record| record.key == key) {
                    record.status = status.clone();
                }
                self.manifest.write(folder)?;
                let record = self.manifest.cells.iter().find(|record| record.key == key).cloned();
                self.report(following, &open, record);
                if failed_in_a_row == MOST_FAILED_IN_A_ROW {
                    (following.say)(&format!(
                        "{MOST_FAILED_IN_A_ROW} sessions in a row failed: the batch is cancelled"
                    ));
                    cancel(store, batch)?;
                }
            }
            if following.stop.soft.is_cancelled() {
                break;
            }
            if !open.is_empty() {
                self.report(following, &open, None);
                std::thread::sleep(LOOK);
            }
        }
        if !open.is_empty() {
            return Ok(false);
        }
        close(store, batch, &offer.plan)?;
        Elsewhere::forget(folder)?;
        HistoryLine::of(&self.manifest).append(&following.context.home)?;
        Ok(true)
    }

    fn report(&self, following: &Following<'_>, open: &[Open], ended: Option<CellRecord>) {
        let running = open.iter().filter(|one| one.claims > 0).map(|one| one.cell.scenario().to_owned());
        (following.progress)(&Progress {
            settled: self.manifest.cells.len().saturating_sub(open.len()),
            total: self.manifest.cells.len(),
            running: running.collect(),
            cost_micro_usd: self.manifest.spent().0,
            remaining: None,
            ended,
        });
    }

    /// Brings the folder of a cell that is over; what became of it.
    fn collected(
        &self,
        following: &Following<'_>,
        one: &Open,
        history: &[Stored],
    ) -> Result<CellStatus, Fault> {
        let (context, cell, key) = (following.context, &one.cell, one.cell.key());
        let worked_on = history.iter().any(|stored| stored.message.epoch > 0);
        let finished = || {
            let done = cells::finished(&context.home, &key);
            done.filter(|done| done.measured.version == METRICS_VERSION)
        };
        if worked_on && finished().is_none() {
            let place = self.manifest.cells.iter().position(|record| record.key == key);
            let scenario = place.and_then(|place| self.tasks.get(place)).map(|task| task.scenario);
            let scenario = scenario.and_then(|scenario| context.golden.scenarios.get(scenario));
            let scenario = scenario.ok_or_else(|| {
                Fault::new(ErrorCode::StateError, format!("{} is no cell of this run", cell.called()))
            })?;
            let raw = scenario.raw(context.raws.as_deref()).map_err(|e| Fault::from(&e))?;
            bring(following.store, &context.home, cell, history, &raw.path)?;
        }
        let Some(last) = history.last() else { return Ok(not_run("its batch goes on")) };
        let failures = || cells::failures(&cell_folder(&context.home, &key));
        Ok(match &last.message.what {
            What::Failed { code: ErrorCode::Interrupted | ErrorCode::BudgetExhausted, message, .. }
                if failures().last().is_none_or(|last| last.message != *message) =>
            {
                CellStatus::NotRun { why: message.clone(), failures: failures() }
            }
            What::Failed { code, message, .. } => {
                if failures().last().is_none_or(|last| last.message != *message) {
                    // Its workers were lost, or could not begin.
                    return Ok(cells::given_up(
                        &context.home,
                        &key,
                        cell.scenario(),
                        &Fault::new(*code, message.clone()),
                    ));
                }
                CellStatus::Failed { failures: failures() }
            }
            What::NotBegun { why } => CellStatus::NotRun { why: why.clone(), failures: failures() },
            _ => match finished() {
                Some(done) => CellStatus::Done(Box::new(done)),
                None => not_run("its worker left no result"),
            },
        })
    }
}

fn not_run(why: &str) -> CellStatus {
    CellStatus::NotRun { why: why.into(), failures: Vec::new() }
}

/// The cells of a batch.
fn opened(store: &Store, offer: &Offer) -> Result<Vec<Open>, Fault> {
    let mut found = Vec::new();
    for (place, name) in offer.jobs.iter().enumerate() {
        let job: Job = read(store, name)?;
        if let Work::Cell(cell) = job.work {
            found.push(Open { place, job: name.clone(), cell: *cell, claims: 0 });
        }
    }
    Ok(found)
}

/// Makes the folder of a cell as its messages say that it is, whole or not at all.
fn bring(store: &Store, home: &Path, cell: &Cell, history: &[Stored], raw: &Path) -> Result<(), Fault> {
    let folder = cell_folder(home, &cell.key());
    let parent = home.join("cells");
    let beside = tempfile::Builder::new().prefix(".collected-").tempdir_in(&parent);
    let beside = beside.map_err(|e| launch::refused("make", &parent, &e))?;
    let made = beside.path().join("new");
    std::fs::create_dir_all(&made).map_err(|e| launch::refused("make", &made, &e))?;
    apply(store, &made, Holds::Cell, &read::<Pack>(store, &cell.folder)?.files)?;
    apply(store, &made, Holds::Cell, changes_of(history))?;
    cells::link_raws(&made, cell.scenario(), raw)?;
    match std::fs::rename(&folder, beside.path().join("old")) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(launch::refused("move", &folder, &e));
        }
        _ => {}
    }
    std::fs::rename(&made, &folder).map_err(|e| launch::refused("move", &made, &e))
}
