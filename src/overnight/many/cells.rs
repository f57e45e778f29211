//! Works on a cell of an evaluation.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::mirror::Published;
use super::worker::{Task, Worker, failed_with, left_off};
use super::{Pack, apply, changes_of, read};
use crate::batch::changes::Holds;
use crate::batch::nats::journal::{Stored, What};
use crate::budget::Amounts;
use crate::eval::cells;
use crate::eval::manifest::CellStatus;
use crate::eval::many::{Cell, With};
use crate::launch;
use base::error::{ErrorCode, Fault};

/// The folder of evaluations of one job, gone with it.
struct Place {
    home: Arc<tempfile::TempDir>,
    /// The cell's.
    folder: PathBuf,
}

impl Place {
    /// Makes the folder of a cell as the messages say that it is, and beside it what its set consists of.
    fn make(worker: &Worker<'_>, cell: &Cell, history: &[Stored]) -> Result<Self, Fault> {
        let store = &worker.store;
        let refused = |path: &Path, e: &std::io::Error| launch::refused("write", path, e);
        let home = tempfile::Builder::new().prefix("cell-").tempdir_in(&worker.home);
        let home = home.map_err(|e| refused(&worker.home, &e))?;
        apply(store, home.path(), Holds::Photo, &read::<Pack>(store, &cell.set)?.files)?;
        let folder = cells::folder(home.path(), &cell.key());
        std::fs::create_dir_all(&folder).map_err(|e| refused(&folder, &e))?;
        apply(store, &folder, Holds::Cell, &read::<Pack>(store, &cell.folder)?.files)?;
        apply(store, &folder, Holds::Cell, changes_of(history))?;
        let (name, sha256) = &cell.raw;
        let name = Path::new(name).file_name().and_then(|name| name.to_str()).unwrap_or("raw");
        let cached = worker.raw(sha256, name)?;
        let raws = home.path().join("raws");
        std::fs::create_dir_all(&raws).map_err(|e| refused(&raws, &e))?;
        let link = raws.join(name);
        std::os::unix::fs::symlink(&cached, &link).map_err(|e| refused(&link, &e))?;
        cells::link_raws(&folder, cell.scenario(), &cached)?;
        Ok(Self { home: Arc::new(home), folder })
    }
}

impl Worker<'_> {
    /// Runs the sessions of a claimed cell, or goes on with them; what is to be said of the job, and if it is given
    /// back, how long it waits then.
    pub(super) fn cell(
        &self,
        task: &Task,
        cell: &Cell,
        left: Option<Duration>,
        failures: u32,
        published: &Arc<Published>,
    ) -> Result<(What, Duration), Fault> {
        let history = self.store.history(&task.name).map_err(|e| Fault::from(&e))?;
        let place = Place::make(self, cell, &history)?;
        let (home, scenario) = (place.home.path(), cell.scenario());
        let spent = || cells::spent(&place.folder, scenario).minus(cell.paid);
        if left.is_some_and(|left| left.is_zero()) {
            let fault = Fault::new(ErrorCode::BudgetExhausted, "the time of the run is over");
            return Ok((failed_with(&fault, spent()), Duration::ZERO));
        }
        let watched = published.watch(&place.home, &place.folder, Holds::Cell);
        watched.map_err(|e| launch::refused("read", &place.folder, &e))?;
        // Sessions that failed stay paid, and the next one may cost as much again.
        let room = || {
            let most = cells::spent_before(&place.folder, scenario).minus(cell.paid).plus(cell.most);
            let caps = task.offer.caps.budget();
            self.store.raise(&task.job.batch, &task.name, &caps, most).map_err(|e| Fault::from(&e))
        };
        if !room()? {
            let fault =
                Fault::new(ErrorCode::BudgetExhausted, "the budget of the run has nothing left for it");
            return Ok((failed_with(&fault, spent()), Duration::ZERO));
        }
        let retry = |_: Amounts| published.end().is_none() && room().unwrap_or(false);
        let with =
            With { mirror: published.clone(), retry: &retry, runner: self.runner, cut: &self.stop.hard };
        let status = self.evaluator.run(cell, home, with)?;
        if published.end().is_some() {
            // What was noted since then is of a session that another worker goes on with.
            return Err(Fault::new(ErrorCode::Interrupted, "the cell was left"));
        }
        published.publish().map_err(|e| Fault::from(&e))?;
        let spent = spent();
        let what = match status {
            CellStatus::NotRun { .. } => left_off(failures),
            CellStatus::Done(done) => {
                let session = done.session.parse().map_err(|_| {
                    Fault::new(ErrorCode::VersioningError, format!("`{}` is no session", done.session))
                })?;
                let (outcome, status) = (done.outcome, done.outcome.exit_status(true));
                What::Ended { session, outcome, status, cut: false, spent }
            }
            CellStatus::Failed { failures } => {
                let last = failures.last();
                let message = last.map_or("it failed", |failure| failure.message.as_str());
                failed_with(&Fault::new(last.map_or(ErrorCode::StateError, |one| one.code), message), spent)
            }
        };
        Ok((what, Duration::ZERO))
    }

    /// What a cell that nobody works on has spent.
    pub(super) fn cell_spent(&self, task: &Task, cell: &Cell) -> Result<Amounts, Fault> {
        let history = self.store.history(&task.name).map_err(|e| Fault::from(&e))?;
        if history.iter().all(|stored| stored.message.epoch == 0) {
            return Ok(Amounts::default());
        }
        let place = Place::make(self, cell, &history)?;
        Ok(cells::spent(&place.folder, cell.scenario()).minus(cell.paid))
    }
}
