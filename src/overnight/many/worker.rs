//! Works on the jobs of a store: claims one, makes its photo's folder, runs its session, publishes, settles.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::losses;
use super::mirror::{End, Published};
use super::place::Place;
use super::{
    Head, Job, Offer, PhotoSession, Requirements, Work, begun_key, content, head_key, read, session_of,
};
use crate::batch::changes::Holds;
use crate::batch::nats::journal::{Message, Stored, What};
use crate::batch::nats::parent::{Reservation, Reserved};
use crate::batch::nats::{Claimed, Store, StoreError};
use crate::budget::{Amounts, Budget, Ledger};
use crate::eval::many::Evaluator;
use crate::launch::{self, Launcher, Overrides, Runner};
use crate::overnight::run::failed;
use crate::overnight::{resolve, share};
use crate::session::driver::{Host, Session};
use crate::session::state::State;
use crate::session::{SessionError, listing};
use crate::traces::metrics;
use crate::transcript::{Line, Outcome};
use base::clock::Stop;
use base::error::{Coded as _, ErrorCode, Fault, caught};
use base::ids::{Hash, SessionId};

/// How long a job waits for another of its photo, or for what others reserved.
const SOON: Duration = Duration::from_secs(1);
/// How long a job waits whose provider cannot be reached.
const OUTAGE: Duration = Duration::from_secs(30);
/// How often a running session looks whether its batch was cancelled.
const LOOK: Duration = Duration::from_secs(5);
/// How long a worker waits for a job before it asks again.
const IDLE: Duration = Duration::from_secs(1);
/// How often a worker without a job looks for batches that it declines.
const AROUND: Duration = Duration::from_secs(30);

/// Where jobs are worked on.
pub struct Worker<'a> {
    /// Makes what sessions are made with; each has its own.
    pub launcher: &'a (dyn Fn() -> Result<Launcher, Fault> + Sync),
    /// Makes what cells of evaluations are made with.
    pub evaluator: Evaluator<'a>,
    /// Where sessions run.
    pub runner: &'a Runner,
    /// The store.
    pub store: Arc<Store>,
    /// A folder of its own: photos while they are worked on, and raws.
    pub home: PathBuf,
    /// Its name, for people.
    pub name: String,
    /// What this machine is.
    pub here: Requirements,
    /// How long a claim holds without being renewed.
    pub lease: Duration,
    /// Its `soft` part ends the worker before the next effect of its sessions, its `hard` part at once.
    pub stop: &'a Stop,
    /// Whether it ends when there is no job.
    pub until_empty: bool,
    /// Tells a person what happens.
    pub remark: &'a (dyn Fn(&str) + Sync),
}

/// What becomes of a claim.
enum Next {
    /// The job is over: it leaves the queue.
    Done,
    /// The job is given back, to be claimed again after a while.
    Back(Duration),
    /// Somebody else has it, or the store is away: nothing more is said of it.
    Leave,
}

/// The batch that was last worked on.
type Offers = Mutex<Option<(Hash, Arc<Offer>)>>;

/// A job that was handed out, and what is known of it.
pub(super) struct Task {
    pub job: Job,
    pub name: Hash,
    pub offer: Arc<Offer>,
    last: Option<Stored>,
}

impl Task {
    fn epoch(&self) -> u64 {
        self.last.as_ref().map_or(0, |last| last.message.epoch)
    }

    fn sequence(&self) -> u64 {
        self.last.as_ref().map_or(0, |last| last.sequence)
    }
}

impl Worker<'_> {
    /// Works, `jobs` sessions at once, until it is stopped.
    ///
    /// # Errors
    /// The store cannot be used at the start. A store that goes away later is waited for.
    pub fn run(&self, jobs: usize) -> Result<(), Fault> {
        let group = self.here.group();
        let consumer = self.store.consumer(&group, self.lease).map_err(|e| Fault::from(&e))?;
        std::fs::create_dir_all(&self.home).map_err(|e| launch::refused("make", &self.home, &e))?;
        let (declined, offers) = (Mutex::new(Vec::new()), Offers::default());
        self.decline(&declined)?;
        std::thread::scope(|scope| {
            for _ in 0..jobs.max(1) {
                scope.spawn(|| {
                    let (mut told, mut looked) = (false, Instant::now());
                    while !self.stop.soft.is_cancelled() {
                        match self.store.next_job(&consumer, IDLE, self.lease) {
                            Ok(Some(claimed)) => self.take(&claimed, &offers),
                            Ok(None) => {
                                told = false;
                                if looked.elapsed() >= AROUND {
                                    looked = Instant::now();
                                    // A store that is away is said above.
                                    let _ = self.decline(&declined);
                                }
                                if self.until_empty && self.store.is_empty(&consumer).unwrap_or(false) {
                                    return;
                                }
                            }
                            Err(error) => {
                                if !std::mem::replace(&mut told, true) {
                                    (self.remark)(&format!("{error}; trying again"));
                                }
                                std::thread::sleep(IDLE);
                            }
                        }
                    }
                });
            }
        });
        Ok(())
    }

    /// Says once of each open batch that it asks for something else than what is here.
    fn decline(&self, told: &Mutex<Vec<String>>) -> Result<(), Fault> {
        for key in self.store.keys("batch.").map_err(|e| Fault::from(&e))? {
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            if told.contains(&key) {
                continue;
            }
            let head = self.store.get::<Head>(&key).map_err(|e| Fault::from(&e))?;
            let open = head.filter(|head| !head.value.over);
            let differences =
                open.map(|head| head.value.requires.differences(&self.here)).unwrap_or_default();
            if !differences.is_empty() {
                let name = key.trim_start_matches("batch.");
                (self.remark)(&format!("declines the batch {name}: {differences}"));
            }
            told.push(key);
        }
        Ok(())
    }

    /// The batch of a job, which is read once: it may have ten thousand sessions.
    fn offer(&self, object: &Hash, offers: &Offers) -> Result<Arc<Offer>, Fault> {
        let mut last = offers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = last.as_ref().filter(|(known, _)| known == object) {
            return Ok(known.clone());
        }
        let offer: Arc<Offer> = Arc::new(read(&self.store, object)?);
        *last = Some((object.clone(), offer.clone()));
        Ok(offer)
    }

    /// Works on a job that was handed out.
    fn take(&self, claimed: &Claimed, offers: &Offers) {
        let next = caught(|| self.work(claimed, offers)).unwrap_or_else(|fault| {
            (self.remark)(&format!("a job ended with a defect: {fault}"));
            Ok(Next::Back(SOON))
        });
        match next {
            Ok(Next::Done) => self.store.done(claimed),
            Ok(Next::Back(after)) => self.store.give_back(claimed, after),
            Ok(Next::Leave) => {}
            Err(fault) => (self.remark)(&fault.to_string()),
        }
    }

    fn work(&self, claimed: &Claimed, offers: &Offers) -> Result<Next, Fault> {
        let (store, handed_out) = (&self.store, Instant::now());
        let told = |e: StoreError| Fault::from(&e);
        let name = Hash::of(&claimed.payload);
        let Ok(job) = serde_json::from_slice::<Job>(&claimed.payload) else {
            (self.remark)(&format!("the job {name} cannot be read: it is taken off the queue"));
            return Ok(Next::Done);
        };
        // A batch that was removed has no jobs.
        let Some(head) = store.get::<Head>(&head_key(&job.batch)).map_err(told)? else {
            return Ok(Next::Done);
        };
        let offer = self.offer(&head.value.offer, offers)?;
        let last = store.last(&name).map_err(told)?;
        let task = Task { job, name, offer, last };
        if let Some(last) = task.last.as_ref().filter(|last| last.message.what.is_final()) {
            return self.settle(&task, last.message.what.spent());
        }
        let before = self.before(&task)?;
        if before.iter().any(|last| !last.as_ref().is_some_and(|last| last.message.what.is_final())) {
            return Ok(Next::Back(SOON));
        }
        let (lost, failures) = match task.last.as_ref().map(|last| &last.message.what) {
            Some(What::Claimed { .. } | What::Changed { .. }) => self.losses(&task)?,
            Some(What::Released { failures, .. }) => (0, *failures),
            _ => (0, 0),
        };
        if head.value.cancelled || lost >= losses::MOST {
            let fault = if head.value.cancelled {
                Fault::new(ErrorCode::Interrupted, "the batch was cancelled")
            } else {
                let message = format!("{lost} workers in a row were lost with it at the same step");
                let remedy = "look into the logs of the workers; a session on this photo alone shows more";
                Fault::new(ErrorCode::StateError, message).with("remedy", remedy)
            };
            return self.give_up(&task, &fault);
        }
        let decide = |ledger: &Ledger| match &task.job.work {
            Work::Session(own) => decided(&own.planned, ledger),
            Work::Cell(cell) => Ok(cell.reservation()),
        };
        let caps = task.offer.caps.budget();
        let placed = (&task.name, task.job.place);
        let budget = match store.reserve(&task.job.batch, placed, &caps, decide).map_err(told)? {
            Reserved::Has(budget) => budget,
            Reserved::Over => return Ok(Next::Back(Duration::ZERO)),
            Reserved::Wait => return Ok(Next::Back(SOON)),
            Reserved::Never(why) => return self.end(&task, What::NotBegun { why }),
        };
        let claim = Message {
            epoch: task.epoch() + 1,
            worker: self.name.clone(),
            what: What::Claimed { lost, failures, budget: budget.clone() },
        };
        let sequence = match store.write(&task.name, &claim, task.sequence()) {
            Ok(sequence) => sequence,
            // Another worker was faster.
            Err(StoreError::Fenced) => return Ok(Next::Back(self.lease)),
            Err(error) => return Err(told(error)),
        };
        let _active = metrics::claimed(handed_out.elapsed(), lost > 0);
        let left = self.left(&task)?;
        let published = Arc::new(Published::new(
            store.clone(),
            task.name.clone(),
            claim.epoch,
            &self.name,
            sequence,
            self.stop.soft.clone(),
        ));
        let what = match &task.job.work {
            Work::Session(own) => self.session(&task, own, budget, left, failures, &published),
            Work::Cell(cell) => self.cell(&task, cell, left, failures, &published),
        };
        let (what, after) = match what {
            Ok(ended) => ended,
            Err(fault) => match published.end() {
                Some(End::Store(error)) => {
                    (self.remark)(&format!("{}: left: {error}", self.words(&task)));
                    let full = matches!(error, StoreError::Full { .. });
                    let released =
                        full && published.release(&error.to_string(), failures, &self.stop.soft).is_ok();
                    metrics::done(if released { "given_back" } else { "lost" }, None, None);
                    return Ok(if released { Next::Back(OUTAGE) } else { Next::Leave });
                }
                Some(End::Left) => (left_off(failures), Duration::ZERO),
                None => {
                    // What it did until then is of use to whoever tries next.
                    published.publish().map_err(told)?;
                    self.failure(&task, &fault, failures)
                }
            },
        };
        let (is_final, spent) = (what.is_final(), what.spent());
        (self.remark)(&format!("{}: {}", self.words(&task), described(&what)));
        let written = published.write(what.clone());
        match &written {
            Ok(()) => count(&what),
            Err(_) => metrics::done("lost", None, None),
        }
        match written {
            Ok(()) if is_final => self.settle(&task, spent),
            Ok(()) => Ok(Next::Back(after)),
            Err(StoreError::Fenced) => Ok(Next::Leave),
            Err(error) => Err(told(error)),
        }
    }

    fn words(&self, task: &Task) -> String {
        let what = match &task.job.work {
            Work::Session(own) => own.photo.to_string(),
            Work::Cell(cell) => cell.called(),
        };
        format!("{} {}. {what}", task.job.batch, task.job.place + 1)
    }

    /// How many workers in a row were lost with a job where it stands, and how often it has failed.
    fn losses(&self, task: &Task) -> Result<(u32, u32), Fault> {
        let history = self.store.history(&task.name).map_err(|e| Fault::from(&e))?;
        losses::losses(&history, |change| content(&self.store, change))
    }

    /// The last messages about the jobs on the same photo that come before this one.
    fn before(&self, task: &Task) -> Result<Vec<Option<Stored>>, Fault> {
        self.store.lasts(&earlier(task)).map_err(|e| Fault::from(&e))
    }

    /// Time that the batch has left, by the server's clock.
    fn left(&self, task: &Task) -> Result<Option<Duration>, Fault> {
        let told = |e: StoreError| Fault::from(&e);
        let Some(cap) = task.offer.caps.time_seconds else { return Ok(None) };
        let key = begun_key(&task.job.batch);
        self.store.create(&key, &self.name).map_err(told)?;
        let begun = self.store.get::<String>(&key).map_err(told)?.map(|begun| begun.at_ms);
        // `batch remove` may have taken it meanwhile.
        let begun =
            begun.ok_or_else(|| Fault::new(ErrorCode::NotFound, format!("there is no key `{key}`")))?;
        let now = self.store.last(&task.name).map_err(told)?.map_or(begun, |last| last.at_ms);
        let ran = Duration::from_millis(u64::try_from(now - begun).unwrap_or(0));
        Ok(Some(Duration::from_secs(cap).saturating_sub(ran)))
    }

    /// Writes the last message about a job that nobody works on, and settles it.
    fn end(&self, task: &Task, what: What) -> Result<Next, Fault> {
        let spent = what.spent();
        count(&what);
        (self.remark)(&format!("{}: {}", self.words(task), described(&what)));
        let message = Message { epoch: task.epoch() + 1, worker: self.name.clone(), what };
        match self.store.write(&task.name, &message, task.sequence()) {
            Ok(_) => self.settle(task, spent),
            Err(StoreError::Fenced) => Ok(Next::Back(SOON)),
            Err(error) => Err(Fault::from(&error)),
        }
    }

    fn settle(&self, task: &Task, spent: Amounts) -> Result<Next, Fault> {
        let placed = (&task.name, task.job.place);
        self.store.settle(&task.job.batch, placed, spent).map_err(|e| Fault::from(&e))?;
        Ok(Next::Done)
    }

    /// Ends a job that is not worked on any more, with what its transcript says that it spent.
    fn give_up(&self, task: &Task, fault: &Fault) -> Result<Next, Fault> {
        let spent = match &task.job.work {
            Work::Session(own) => {
                let all = || share::most(&own.planned.budget, own.planned.free);
                self.spent(task, own)?.map_or_else(Amounts::default, |spent| spent.unwrap_or_else(all))
            }
            Work::Cell(cell) => self.cell_spent(task, cell)?,
        };
        self.end(task, failed_with(fault, spent))
    }

    /// What the session of a job has spent by its transcript, if it has one; `None` within if that cannot be read.
    fn spent(&self, task: &Task, own: &PhotoSession) -> Result<Option<Option<Amounts>>, Fault> {
        let history = self.store.history(&task.name).map_err(|e| Fault::from(&e))?;
        let Some(id) = session_of(&history) else { return Ok(None) };
        let place = Place::make(self, task, own, &history)?;
        Ok(Some(place.spent(own, &id)))
    }

    /// A first failure is tried once more, by whoever claims the job next.
    fn failure(&self, task: &Task, fault: &Fault, failures: u32) -> (What, Duration) {
        if failures == 0 {
            return (What::Released { why: fault.to_string(), failures: 1 }, SOON);
        }
        let spent = match &task.job.work {
            Work::Session(own) => self.spent(task, own).ok().flatten().flatten(),
            Work::Cell(cell) => self.cell_spent(task, cell).ok(),
        };
        (failed_with(fault, spent.unwrap_or_default()), Duration::ZERO)
    }

    /// Runs the session of a claimed job, or goes on with it; what is to be said of the job, and if it is given back,
    /// how long it waits then.
    fn session(
        &self,
        task: &Task,
        own: &PhotoSession,
        budget: Budget,
        left: Option<Duration>,
        failures: u32,
        published: &Arc<Published>,
    ) -> Result<(What, Duration), Fault> {
        let history = self.store.history(&task.name).map_err(|e| Fault::from(&e))?;
        let place = Place::make(self, task, own, &history)?;
        let mut launcher = (self.launcher)()?;
        launcher.tastes = place.tastes.clone();
        launcher.mirror = Some(published.clone());
        let workspace = place.workspace(own)?;
        let watched = published.watch(&place.folder, workspace.folder(), Holds::Photo);
        watched.map_err(|e| launch::refused("read", workspace.folder(), &e))?;
        let (id, mut session, until) = match session_of(&history) {
            None => {
                let budget = match share::in_time(budget, left) {
                    Ok(budget) => budget,
                    Err(why) => return Ok((What::NotBegun { why }, Duration::ZERO)),
                };
                let planned = place.planned(own)?;
                let launch = resolve::launch(&launcher, &planned, workspace.clone(), budget)?;
                (launch.plan.start.session.clone(), launch.start()?, None)
            }
            Some(id) => {
                let read = listing::read(&workspace, &id).map_err(|e| Fault::from(&e))?;
                // It was lost between its closing line and the message that says so.
                if let Some(end) = &read.state.end
                    && !failed(end.outcome)
                {
                    return Ok((ended(&id, &read, false), Duration::ZERO));
                }
                let until = left.map(|left| left.saturating_sub(read.ledger.budget().wrap_up_time()));
                let resumed =
                    launcher.resume(workspace.clone(), &read, Overrides::default(), Stop::default())?;
                (id, resumed, until)
            }
        };
        (self.remark)(&format!("{}: session {}", self.words(task), id.short()));
        session.patience.leaves = true;
        let ran = self.drive(task, &mut session, until);
        drop(session);
        let stopped = match ran {
            Err(SessionError::Unreachable { message, .. }) => {
                published.publish().map_err(|e| Fault::from(&e))?;
                return Ok((What::Released { why: message, failures }, OUTAGE));
            }
            Err(error) => match published.end() {
                Some(End::Left) => return Ok((left_off(failures), Duration::ZERO)),
                _ => return Err(Fault::from(&error)),
            },
            Ok(cancelled) => cancelled,
        };
        published.publish().map_err(|e| Fault::from(&e))?;
        let read = listing::read(&workspace, &id).map_err(|e| Fault::from(&e))?;
        let outcome = read.state.end.as_ref().map_or(Outcome::Interrupted, |end| end.outcome);
        if failed(outcome) && failures == 0 {
            let why = format!("the session ended with {}", outcome.as_str());
            return Ok((What::Released { why, failures: 1 }, SOON));
        }
        Ok((ended(&id, &read, stopped && outcome == Outcome::Cancelled), Duration::ZERO))
    }

    /// Runs a session until it ends; whether its batch was cancelled meanwhile.
    fn drive(
        &self,
        task: &Task,
        session: &mut Session,
        until: Option<Duration>,
    ) -> Result<bool, SessionError> {
        let stop = Stop { soft: base::clock::Cancel::default(), hard: self.stop.hard.clone() };
        let host = Looking {
            store: &self.store,
            batch: head_key(&task.job.batch),
            stop: &stop,
            next: Mutex::new(Instant::now() + LOOK),
        };
        self.runner.run(session, &stop, until, &host)?;
        Ok(stop.soft.is_cancelled())
    }
}

/// What a session gets of what its batch has left: its own budget, or a share of it.
fn decided(
    planned: &crate::overnight::record::PlannedSession,
    ledger: &Ledger,
) -> Result<Reservation, String> {
    let of = |budget: Budget| Reservation { most: share::most(&budget, planned.free), budget };
    let whole = of(planned.budget.clone());
    // What is cut down is only given when nobody else can give anything back, which the caller sees to.
    if ledger.admit(&whole.most, Duration::ZERO).is_ok() || ledger.reserved() != Amounts::default() {
        return Ok(whole);
    }
    share::share(&planned.budget, planned.free, planned.vectors.len() as u64, ledger).map(of)
}

/// The jobs on the same photo that come before this one.
pub(super) fn earlier(task: &Task) -> Vec<Hash> {
    // Each cell has a copy of its own.
    let Work::Session(own) = &task.job.work else { return Vec::new() };
    let before = task.offer.sessions.iter().zip(&task.offer.jobs).take(task.job.place);
    let same = before.filter(|(planned, _)| planned.sha256 == own.planned.sha256);
    same.map(|(_, job)| job.clone()).collect()
}

fn ended(id: &SessionId, read: &listing::Session, cut: bool) -> What {
    let outcome = read.state.end.as_ref().map_or(Outcome::Interrupted, |end| end.outcome);
    let status = outcome.exit_status(read.state.has_agent_judgment());
    What::Ended { session: id.clone(), outcome, status, cut, spent: read.ledger.settled() }
}

/// What is said of a job whose worker was asked to end.
pub(super) fn left_off(failures: u32) -> What {
    What::Released { why: "its worker ended".into(), failures }
}

pub(super) fn failed_with(fault: &Fault, spent: Amounts) -> What {
    What::Failed { code: fault.code, message: fault.message.clone(), remedy: fault.remedy(), spent }
}

fn described(what: &What) -> String {
    match what {
        What::Ended { outcome, .. } => outcome.as_str().to_owned(),
        What::Failed { message, .. } => format!("failed: {message}"),
        What::NotBegun { why } => format!("not begun: {why}"),
        What::Released { why, .. } => format!("given back: {why}"),
        What::Queued | What::Claimed { .. } | What::Changed { .. } => String::new(),
    }
}

/// Counts what became of a job.
fn count(what: &What) {
    match what {
        What::Ended { outcome, .. } => metrics::done("finished", Some(outcome.as_str()), None),
        What::Failed { code, .. } => metrics::done("failed", None, Some(*code)),
        What::NotBegun { .. } => metrics::done("not_begun", None, None),
        What::Released { .. } => metrics::done("given_back", None, None),
        What::Queued | What::Claimed { .. } | What::Changed { .. } => {}
    }
}

/// Looks now and then whether the batch of a running session was cancelled.
struct Looking<'a> {
    store: &'a Store,
    batch: String,
    stop: &'a Stop,
    next: Mutex<Instant>,
}

impl Host for Looking<'_> {
    fn line(&self, _: &Line, _: &State, _: &crate::budget::Ledger) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if Instant::now() < *next {
            return;
        }
        *next = Instant::now() + LOOK;
        if let Ok(Some(head)) = self.store.get::<Head>(&self.batch)
            && head.value.cancelled
        {
            self.stop.soft.cancel();
        }
    }
}
