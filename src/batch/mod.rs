//! The scheduler of a batch: its jobs, a few at a time, under one budget.
//!
//! Before a job starts, the most that it may spend is reserved in the ledger of the batch, and again before each
//! retry; when it has ended, the reservation is settled to what was spent. A job that does not fit waits while others
//! run, because they may spend less than they reserved. What goes wrong in a job, a panic included, ends that job
//! only. What a job is and where its result is recorded is up to the [`Jobs`].

use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::budget::{Amounts, Budget, Ledger, Reserve};
use base::clock::{Cancel, Clock, SystemClock};
use base::error::{Fault, caught};

pub(crate) mod changes;
pub(crate) mod folders;
pub mod nats;
#[cfg(test)]
mod tests;

/// How often a worker that waits checks whether the batch was cancelled.
const TICK: Duration = Duration::from_millis(200);

/// Whether a job may start now.
pub(crate) enum Admission<S> {
    /// It starts, and one attempt spends at most this.
    Start(S, Amounts),
    /// It waits until another job has ended, and so do the jobs behind it.
    Wait,
    /// It waits, but the jobs behind it need not.
    Pass,
    /// It is not due for so long, and the jobs behind it need not wait.
    Later(Duration),
    /// It leaves the queue; [`Jobs::admit`] has recorded why.
    Skip,
    /// No further job starts: why.
    Stop(String),
}

/// The jobs of a batch, each known by its number.
pub(crate) trait Jobs: Sync {
    /// What a job was admitted with.
    type Start;
    /// How a job ended.
    type End;

    /// Decides whether a job may start. The queue is locked meanwhile.
    fn admit(&self, job: usize, queue: &Queue) -> Admission<Self::Start>;
    /// Runs a job on the calling thread.
    fn run(&self, job: usize, start: Self::Start, reservation: &Reservation<'_>) -> Self::End;
    /// How a job ended that panicked.
    fn panicked(&self, job: usize, fault: Fault) -> Self::End;
    /// The clock by which a job is due later.
    fn clock(&self) -> &dyn Clock {
        &SystemClock
    }
    /// Records how a job ended, and returns what all its attempts in this run of the batch spent.
    fn ended(&self, job: usize, end: Self::End, queue: &mut Queue) -> Amounts;
}

/// What is running, and what is still to run.
pub(crate) struct Queue {
    /// What the batch has spent and reserved.
    pub ledger: Ledger,
    /// Jobs that have not started, in order.
    pub waiting: VecDeque<usize>,
    /// Jobs that run.
    pub running: BTreeSet<usize>,
    /// Why no further job starts.
    pub stopped: Option<String>,
}

impl Queue {
    /// A queue under the caps of a batch that has spent `before` in earlier runs.
    pub fn new(caps: Budget, before: Amounts, waiting: impl IntoIterator<Item = usize>) -> Self {
        let mut ledger = Ledger::new(caps, Reserve::default());
        ledger.reserve(u64::MAX, before);
        ledger.settle(u64::MAX, before);
        let waiting = waiting.into_iter().collect();
        Self { ledger, waiting, running: BTreeSet::new(), stopped: None }
    }
}

/// Runs the jobs of a queue, `workers` at a time, until none is left, one stops the batch, or `cancel` is raised.
/// Returns when the running jobs have ended, with the jobs that did not start still waiting.
pub(crate) fn run<J: Jobs>(jobs: &J, queue: Queue, workers: usize, cancel: &Cancel) -> Queue {
    let scheduler = Scheduler { queue: Mutex::new(queue), ended: Condvar::new(), cancel };
    std::thread::scope(|scope| {
        for _ in 0..workers.max(1) {
            scope.spawn(|| while scheduler.run_next(jobs) {});
        }
    });
    scheduler.queue.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// What the workers share.
struct Scheduler<'a> {
    queue: Mutex<Queue>,
    /// Notified when a job has ended: part of the budget may be free again.
    ended: Condvar,
    cancel: &'a Cancel,
}

/// What the batch keeps for a running job. Dropped without being settled, it is charged in full: nothing says then
/// what the job spent.
pub(crate) struct Reservation<'a> {
    scheduler: &'a Scheduler<'a>,
    job: usize,
    /// The most that one attempt spends.
    most: Amounts,
    /// What is reserved now.
    open: Cell<Amounts>,
    /// What failed attempts were settled to.
    failed: Cell<Amounts>,
}

impl Reservation<'_> {
    /// The queue, locked.
    pub fn queue(&self) -> MutexGuard<'_, Queue> {
        self.scheduler.lock()
    }

    /// Settles a failed attempt and reserves another one. False if the batch, which has run for `elapsed`, has nothing
    /// left for it.
    pub fn retry(&self, spent: Amounts, elapsed: Duration) -> bool {
        let mut queue = self.queue();
        queue.ledger.settle(self.job as u64, spent);
        self.failed.set(self.failed.get().plus(spent));
        let fits = queue.ledger.admit(&self.most, elapsed).is_ok();
        self.open.set(if fits { self.most } else { Amounts::default() });
        queue.ledger.reserve(self.job as u64, self.open.get());
        fits
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let mut queue = self.queue();
        queue.running.remove(&self.job);
        // Does nothing if the job was settled.
        queue.ledger.settle(self.job as u64, self.open.get());
        drop(queue);
        self.scheduler.ended.notify_all();
    }
}

impl Scheduler<'_> {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the next job; false if there is none.
    fn run_next<J: Jobs>(&self, jobs: &J) -> bool {
        let Some((reservation, start)) = self.admit_next(jobs) else { return false };
        let job = reservation.job;
        let end = caught(|| jobs.run(job, start, &reservation));
        self.record(jobs, job, end, reservation.failed.get());
        true
    }

    /// Records how a job ended and settles it, `failed` of what it spent being settled already.
    fn record<J: Jobs>(&self, jobs: &J, job: usize, end: Result<J::End, Fault>, failed: Amounts) {
        let recorded = caught(|| {
            let end = end.unwrap_or_else(|fault| jobs.panicked(job, fault));
            let mut queue = self.lock();
            queue.running.remove(&job);
            let spent = jobs.ended(job, end, &mut queue);
            queue.ledger.settle(job as u64, spent.minus(failed));
        });
        if let Err(error) = recorded {
            tracing::error!(job, %error, "the result of a job was not recorded");
        }
    }

    /// The next job, once the batch has room for it.
    fn admit_next<J: Jobs>(&self, jobs: &J) -> Option<(Reservation<'_>, J::Start)> {
        let mut queue = self.lock();
        let (mut at, mut due) = (0, None::<Duration>);
        loop {
            if self.cancel.is_cancelled() || queue.stopped.is_some() || queue.waiting.is_empty() {
                return None;
            }
            let Some(&job) = queue.waiting.get(at) else {
                let idle = queue.running.is_empty();
                if !due.is_some_and(|due| idle && jobs.clock().skip(due)) {
                    queue = self.wait(queue);
                }
                (at, due) = (0, None);
                continue;
            };
            match caught(|| jobs.admit(job, &queue)) {
                Ok(Admission::Start(start, most)) => {
                    queue.waiting.remove(at);
                    queue.ledger.reserve(job as u64, most);
                    queue.running.insert(job);
                    let (open, failed) = (Cell::new(most), Cell::default());
                    return Some((Reservation { scheduler: self, job, most, open, failed }, start));
                }
                Ok(Admission::Wait) => {
                    queue = self.wait(queue);
                    at = 0;
                }
                Ok(Admission::Pass) => at += 1,
                Ok(Admission::Later(by)) => {
                    due = Some(due.map_or(by, |due| due.min(by)));
                    at += 1;
                }
                Ok(Admission::Skip) => _ = queue.waiting.remove(at),
                Ok(Admission::Stop(why)) => queue.stopped = Some(why),
                Err(fault) => {
                    queue.waiting.remove(at);
                    drop(queue);
                    self.record(jobs, job, Err(fault), Amounts::default());
                    queue = self.lock();
                    at = 0;
                }
            }
        }
    }

    fn wait<'q>(&self, queue: MutexGuard<'q, Queue>) -> MutexGuard<'q, Queue> {
        self.ended.wait_timeout(queue, TICK).unwrap_or_else(PoisonError::into_inner).0
    }
}
