//! One run of a batch: its open sessions, scheduled under the batch's budget.
//!
//! A session whose budget does not fit waits while others run; when none runs, it is cut to what is left, or not
//! started.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::batch::{self, Admission, Jobs, Queue, Reservation};
use crate::budget::{Amounts, Budget};
use crate::launch::{Launcher, Overrides, Runner};
use crate::overnight::BatchError;
use crate::overnight::outage::Outages;
use crate::overnight::record::{Batch, Entry, PlannedSession, SessionStatus, Stamped, Track};
use crate::overnight::spent::{Spent, bill, read};
use crate::overnight::{outage, resolve, share};
use crate::session::driver::Host;
use crate::session::state::State;
use crate::session::{SessionError, listing};
use crate::tools;
use crate::transcript::Outcome;
use base::clock::{Clock, Stop};
use base::error::{ErrorCode, Fault};
use base::ids::{PhotoId, SessionId};
use engine::photo::{Library, Workspace};

#[cfg(test)]
mod fallback_tests;
#[cfg(test)]
mod outage_tests;
#[cfg(test)]
mod tests;

/// Who watches a batch.
pub trait Observer: Sync {
    /// Who watches the session at this place in the plan, which is about to run on `photo`.
    fn session(&self, place: usize, photo: &str) -> Box<dyn Host + '_>;
    /// An entry was written to the ledger of the batch.
    fn recorded(&self, stamped: &Stamped);
}

/// Where a batch runs.
pub struct Run<'a> {
    /// What its sessions are made with.
    pub launcher: &'a Launcher,
    /// The library of its photos.
    pub library: &'a Library,
    /// Where its sessions run.
    pub runner: &'a Runner,
    /// The time.
    pub clock: &'a dyn Clock,
    /// Its `soft` part lets the running sessions wrap up and starts no more, its `hard` part stops them at once.
    pub stop: &'a Stop,
}

/// Whether the next run of the batch resumes a session with this outcome: the failure was not the session's own.
pub(super) fn failed(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::ProviderFailed | Outcome::EngineFailed)
}

/// How a session is to run.
enum Start {
    /// New, with this budget.
    New(Budget),
    /// Resumed.
    Resumed(PhotoId, SessionId),
}

impl Run<'_> {
    /// Runs what is open: what was cut, what failed and what was not started. Returns when nothing is left to do, or,
    /// once the batch was stopped, when the running sessions have ended.
    pub fn run(&self, batch: &mut Batch, jobs: usize, observer: &dyn Observer) -> Result<(), BatchError> {
        let jobs = jobs.max(1);
        let before = Spent::of(self.library, batch);
        observer.recorded(&batch.append(Entry::RunStarted { pid: std::process::id(), jobs }, before.time)?);
        let open = self.open(batch, observer, before.time)?;
        let caps = batch.record.caps.clone();
        let (planned, tracks) = (batch.record.sessions.clone(), batch.tracks());
        let plan = batch.record.plan.clone();
        let spent = planned.iter().zip(&tracks);
        let spent =
            spent.map(|(planned, track)| bill(self.library, planned.free, track, &mut BTreeMap::new()));
        let sessions = Sessions {
            run: self,
            observer,
            planned: &planned,
            plan: &plan,
            settled: Mutex::new(spent.collect()),
            outages: Mutex::default(),
            again: Mutex::default(),
            cap: caps.time_seconds.map(Duration::from_secs),
            began: self.clock.monotonic(),
            before: before.time,
            record: Mutex::new((batch, None)),
        };
        batch::run(&sessions, Queue::new(caps.budget(), before.amounts, open), jobs, &self.stop.soft);
        let elapsed = sessions.elapsed();
        let (batch, error) = sessions.record.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = error {
            return Err(error);
        }
        let left = |track: &Track| {
            let cut = matches!(track.status, SessionStatus::Ended { cut: true, .. });
            cut || matches!(track.status, SessionStatus::Waiting | SessionStatus::Started)
        };
        if !batch.tracks().iter().any(left) {
            observer.recorded(&batch.append(Entry::Closed, elapsed)?);
        }
        Ok(())
    }

    /// The open places, in the plan's order. A session that ended before a kill kept that from the ledger is recorded
    /// now.
    fn open(
        &self,
        batch: &mut Batch,
        observer: &dyn Observer,
        now: Duration,
    ) -> Result<Vec<usize>, BatchError> {
        let mut places = Vec::new();
        for (place, track) in batch.tracks().into_iter().enumerate() {
            match (&track.status, &track.session) {
                (SessionStatus::Started | SessionStatus::Failed(_), Some((photo, id, _))) => {
                    let session = read(self.library, photo, id).ok().flatten();
                    let ended = session.as_ref().and_then(|session| session.state.end.as_ref());
                    match (&session, ended) {
                        (Some(session), Some(end)) => {
                            let cut = end.outcome == Outcome::Cancelled;
                            let entry = ended_entry(place, id, &session.state, cut);
                            observer.recorded(&batch.append(entry, now)?);
                            if cut || failed(end.outcome) {
                                places.push(place);
                            }
                        }
                        _ => places.push(place),
                    }
                }
                (SessionStatus::Ended { cut: false, outcome, .. }, _) if !failed(*outcome) => {}
                _ => places.push(place),
            }
        }
        Ok(places)
    }
}

fn ended_entry(place: usize, id: &SessionId, state: &State, cut: bool) -> Entry {
    let outcome = state.end.as_ref().map_or(Outcome::Interrupted, |end| end.outcome);
    let status = outcome.exit_status(state.has_agent_judgment());
    Entry::Ended { place, session: id.clone(), outcome, status, cut }
}

/// The sessions of one run, as jobs.
struct Sessions<'a> {
    run: &'a Run<'a>,
    observer: &'a dyn Observer,
    planned: &'a [PlannedSession],
    /// The file of the plan.
    plan: &'a Path,
    /// What each had spent when it was last settled.
    settled: Mutex<Vec<Amounts>>,
    /// The providers that cannot be reached.
    outages: Mutex<Outages>,
    /// What failed and was taken up once more.
    again: Mutex<BTreeSet<usize>>,
    /// The time cap of the batch.
    cap: Option<Duration>,
    began: Duration,
    /// How long earlier runs took.
    before: Duration,
    /// The batch, and the error that kept its ledger from being written.
    record: Mutex<(&'a mut Batch, Option<BatchError>)>,
}

impl<'a> Sessions<'a> {
    fn record(&self) -> MutexGuard<'_, (&'a mut Batch, Option<BatchError>)> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outages(&self) -> MutexGuard<'_, Outages> {
        self.outages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the ledger of the batch says of a session now.
    fn track(&self, place: usize) -> Option<Track> {
        self.record().0.tracks().into_iter().nth(place)
    }

    /// Whether this is the first failure of a session in this run: it is taken up once more, after the others.
    fn is_first(&self, place: usize) -> bool {
        self.again.lock().unwrap_or_else(PoisonError::into_inner).insert(place)
    }

    /// Writes an entry. A batch whose ledger cannot be written does not continue.
    fn note(&self, entry: Entry) -> Result<(), Fault> {
        let (batch, error) = &mut *self.record();
        match batch.append(entry, self.elapsed()) {
            Ok(stamped) => self.observer.recorded(&stamped),
            Err(refused) => _ = error.get_or_insert(refused),
        }
        error.as_ref().map_or(Ok(()), |error| Err(Fault::from(error)))
    }

    /// How long the batch has run.
    fn elapsed(&self) -> Duration {
        self.before + self.run.clock.monotonic().saturating_sub(self.began)
    }

    /// Time that the batch has left; `None` without a cap.
    fn left(&self) -> Option<Duration> {
        self.cap.map(|cap| cap.saturating_sub(self.elapsed()))
    }

    /// Whether the batch has what a session may spend; an error says why it is not started.
    fn claim(&self, place: usize, queue: &Queue) -> Result<Admission<Start>, String> {
        let (Some(planned), Some(track)) = (self.planned.get(place), self.track(place)) else {
            return Err("the plan has no such session".into());
        };
        // Two sessions cannot work on one photo at once.
        let raw = |place: &usize| self.planned.get(*place).map(|planned| &planned.sha256);
        if queue.running.iter().any(|busy| raw(busy) == Some(&planned.sha256)) {
            return Ok(Admission::Pass);
        }
        let begun = track.session.as_ref();
        let gone = self.outages().gone(planned, self.elapsed());
        let given_up = |why: String| match (&gone, begun) {
            (Some((gone, _)), Some((_, id, _))) => format!(
                "{gone}; when it answers again, continue with `chemigram run-mode-b --resume {} --yes`",
                id.short()
            ),
            (Some((gone, _)), None) => format!(
                "{gone}; when it answers again, start it with `chemigram overnight {}`",
                self.plan.display()
            ),
            (None, _) => why,
        };
        let left = self.left();
        if left.is_none() && gone.as_ref().is_some_and(|gone| gone.1) {
            return Err(given_up(String::new()));
        }
        let same = |busy: &usize| {
            self.planned.get(*busy).is_some_and(|busy| outage::shared(busy, planned, &self.outages()))
        };
        let probed = queue.running.iter().any(same);
        let due = self.outages().due(planned, self.elapsed(), probed);
        let due = due.map(|due| left.map_or(due, |left| due.min(left)));
        if let Some(due) = due.filter(|due| !due.is_zero()) {
            return Ok(Admission::Later(due));
        }
        let begun = begun.map(|(photo, id, _)| (photo, id, read(self.run.library, photo, id)));
        let mut budget = planned.budget.clone();
        let (start, most) = match begun {
            Some((photo, id, Ok(Some(session)))) => {
                budget = session.ledger.budget().clone();
                budget.time_seconds = budget.time_seconds.saturating_sub(session.elapsed().as_secs());
                let most = share::most(&budget, planned.free).minus(session.ledger.settled());
                (Start::Resumed(photo.clone(), id.clone()), most)
            }
            // Resuming it will say what is wrong with it.
            Some((photo, id, Err(_))) => (Start::Resumed(photo.clone(), id.clone()), Amounts::default()),
            Some((_, _, Ok(None))) | None => (Start::New(budget.clone()), share::most(&budget, planned.free)),
        };
        share::in_time(budget.clone(), left).map_err(given_up)?;
        match (queue.ledger.admit(&most, Duration::ZERO), start) {
            (Ok(()), start) => Ok(Admission::Start(start, most)),
            (Err(_), _) if !queue.running.is_empty() => Ok(Admission::Wait),
            (Err(exhausted), Start::Resumed(..)) => {
                Err(format!("budget of the batch: {}", exhausted.words()))
            }
            (Err(_), Start::New(budget)) => {
                let given = share::share(&budget, planned.free, planned.vectors.len() as u64, &queue.ledger)?;
                let most = share::most(&given, planned.free);
                Ok(Admission::Start(Start::New(given), most))
            }
        }
    }

    /// The photo of a session, added to the library if it is not there yet.
    fn photo(&self, planned: &PlannedSession) -> Result<Workspace, Fault> {
        let Run { launcher, library, .. } = self.run;
        if let Some(id) = library.find_raw(&planned.sha256).map_err(|e| Fault::from(&e))? {
            return launcher.photo(library, &id);
        }
        let Some(raw) = &planned.raw else {
            let message = format!("`{}` is no longer in the library", planned.photo);
            return Err(Fault::new(ErrorCode::NotFound, message));
        };
        launcher.add(library, raw, planned.brief.clone())
    }

    /// Runs a session. Returns how it ended; nothing if the batch was stopped before it started.
    fn session(&self, place: usize, start: Start) -> Result<Option<Entry>, Fault> {
        let Run { launcher, library, runner, stop, .. } = self.run;
        // A session that the ledger does not know must not start.
        let started = |photo: &PhotoId, session: &SessionId, budget: Budget, again: bool| {
            let (photo, session) = (photo.clone(), session.clone());
            self.note(Entry::Started { place, photo, session, budget, again })
        };
        let (workspace, id, mut session, until) = match start {
            Start::New(budget) => {
                let missing = || Fault::new(ErrorCode::NotFound, "the plan has no such session");
                let planned = self.planned.get(place).ok_or_else(missing)?;
                let workspace = self.photo(planned)?;
                let budget = share::in_time(budget, self.left())
                    .map_err(|why| Fault::new(ErrorCode::BudgetExhausted, why))?;
                let launch = resolve::launch(launcher, planned, workspace.clone(), budget)?;
                let header = &launch.plan.start;
                let id = header.session.clone();
                if stop.soft.is_cancelled() {
                    return Ok(None);
                }
                started(workspace.id(), &id, header.budget.clone(), false)?;
                (workspace, id, launch.start()?, None)
            }
            Start::Resumed(photo, id) => {
                let workspace = library.open(&photo).map_err(|e| Fault::from(&e))?;
                let session = listing::read(&workspace, &id).map_err(|e| Fault::from(&e))?;
                let budget = session.ledger.budget().clone();
                started(&photo, &id, budget.clone(), true)?;
                let mut resumed =
                    launcher.resume(workspace.clone(), &session, Overrides::default(), Stop::default())?;
                // Its own clock does not know when the time of the batch ends.
                let until = self.left().map(|left| left.saturating_sub(budget.wrap_up_time()));
                resumed.patience.probes =
                    self.planned.get(place).is_some_and(|planned| self.outages().holds(planned));
                (workspace, id, resumed, until)
            }
        };
        let host = self.observer.session(place, session.state.start.photo.as_str());
        session.patience.leaves = true;
        let ran = runner.run(&mut session, stop, until, &*host);
        drop(session);
        match ran {
            Err(SessionError::Unreachable { provider, message, retry_after }) => {
                let pause = self.outages().failed(&provider, self.elapsed(), retry_after);
                // Whoever waits for the second model has lost the first.
                if let Some(planned) = self.planned.get(place).filter(|planned| planned.provider != provider)
                    && planned.fallback.as_deref().is_some_and(|named| outage::provider(named) == provider)
                {
                    self.outages().failed(&planned.provider, self.elapsed(), retry_after);
                }
                let pause_ms = tools::millis(pause);
                return Ok(Some(Entry::Paused { place, session: id, why: message, pause_ms }));
            }
            Err(error) => return Err(Fault::from(&error)),
            Ok(_) => {}
        }
        let session = listing::read(&workspace, &id).map_err(|e| Fault::from(&e))?;
        let cancelled = session.state.end.as_ref().is_some_and(|end| end.outcome == Outcome::Cancelled);
        Ok(Some(ended_entry(place, &id, &session.state, cancelled && stop.soft.is_cancelled())))
    }
}

impl Jobs for Sessions<'_> {
    type Start = Start;
    type End = Option<Entry>;

    fn admit(&self, place: usize, queue: &Queue) -> Admission<Start> {
        match self.claim(place, queue) {
            Ok(admission) => admission,
            Err(why) => match self.note(Entry::NotBegun { place, why }) {
                Ok(()) => Admission::Skip,
                Err(fault) => Admission::Stop(fault.message),
            },
        }
    }

    fn run(&self, place: usize, start: Start, _: &Reservation<'_>) -> Option<Entry> {
        self.session(place, start).unwrap_or_else(|fault| Some(Entry::failed(place, &fault)))
    }

    fn panicked(&self, place: usize, fault: Fault) -> Option<Entry> {
        Some(Entry::failed(place, &fault))
    }

    fn clock(&self) -> &dyn Clock {
        self.run.clock
    }

    fn ended(&self, place: usize, end: Option<Entry>, queue: &mut Queue) -> Amounts {
        match (&end, self.planned.get(place)) {
            (Some(Entry::Paused { .. }), _) => queue.waiting.push_front(place),
            (Some(Entry::Ended { outcome, cut, .. }), Some(planned)) => {
                if *outcome != Outcome::ProviderFailed {
                    self.outages().over(planned);
                }
                if !cut && failed(*outcome) && self.is_first(place) {
                    queue.waiting.push_back(place);
                }
            }
            (Some(Entry::Failed { .. }), _) if self.is_first(place) => queue.waiting.push_back(place),
            _ => {}
        }
        if let Some(Err(fault)) = end.map(|entry| self.note(entry)) {
            queue.stopped.get_or_insert(fault.message);
        }
        let (Some(planned), Some(track)) = (self.planned.get(place), self.track(place)) else {
            return Amounts::default();
        };
        let spent = bill(self.run.library, planned.free, &track, &mut BTreeMap::new());
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        let before = settled.get_mut(place).map(|settled| std::mem::replace(settled, spent));
        spent.minus(before.unwrap_or_default())
    }
}
