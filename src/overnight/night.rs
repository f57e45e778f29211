//! A sitting: the open sessions of a night, worked off a few at a time under the night's budget.
//!
//! Before a session begins, the most that it may spend is reserved; when it has ended, what its transcript says is
//! settled. One that does not fit waits while others run, for they may leave some of theirs; when nothing runs, it
//! is cut to what is left, or not begun. What a session runs into ends that session and never the night.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::budget::{Amounts, Budget, Ledger, Reserve};
use crate::overnight::BatchError;
use crate::overnight::record::{Batch, Entry, PlannedSession, SessionStatus, Stamped, Track};
use crate::overnight::share;
use crate::session::driver::Session;
use crate::session::listing;
use crate::session::start::{self, Plan, Setup};
use crate::session::{SessionError, state::State};
use crate::transcript::{Event, Line, Outcome};
use base::clock::{Cancel, Clock};
use base::error::{Fault, caught};
use base::ids::{Hash, PhotoId, SessionId};
use engine::photo::{Library, Workspace};

/// How often a worker that waits looks whether it was told to stop.
const TICK: Duration = Duration::from_millis(200);

/// What a night needs of its surroundings. Errors are of the one session that is asked about.
pub trait BatchHost: Sync {
    /// The photo of a session, taken into the library if it is not there yet.
    fn photo(&self, order: &PlannedSession) -> Result<Workspace, Fault>;
    /// A session of this budget, planned; nothing is written.
    fn plan(
        &self,
        order: &PlannedSession,
        workspace: &Workspace,
        budget: &Budget,
    ) -> Result<(Setup, Plan), Fault>;
    /// A session of the night that goes on.
    fn resume(&self, order: &PlannedSession, workspace: Workspace, id: &SessionId) -> Result<Session, Fault>;
    /// Runs a session to its end. It is asked to wrap up when the night is stopped, and after `until`.
    fn run(&self, place: usize, session: &mut Session, until: Option<Duration>) -> Result<(), SessionError>;
    /// Something was written down.
    fn tell(&self, stamped: &Stamped);
}

/// What the sessions of a night have spent, by their transcripts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Everything that is counted.
    pub amounts: Amounts,
    /// Time that was worked on the night.
    pub time: Duration,
}

impl Spent {
    /// Reads the transcripts of every session that was begun. One that cannot be read is charged in full.
    pub fn of(library: &Library, night: &Batch) -> Self {
        let mut spent = Self::default();
        let mut ran = BTreeMap::new();
        for (order, track) in night.record.orders.iter().zip(night.tracks()) {
            spent.amounts = spent.amounts.plus(bill(library, order, &track, &mut ran));
        }
        spent.time = worked(&night.entries, ran);
        spent
    }
}

/// How long a session ran each time that it was begun or taken up, by its own clock.
type Runs = VecDeque<Duration>;

/// What the sessions of one order have spent; how long they ran goes to `ran`.
fn bill(
    library: &Library,
    order: &PlannedSession,
    track: &Track,
    ran: &mut BTreeMap<SessionId, Runs>,
) -> Amounts {
    let sessions = track.all.iter().map(|(photo, id, budget)| match read(library, photo, id) {
        Ok(Some(session)) => {
            ran.insert(id.clone(), runs(&session.lines));
            session.ledger.settled()
        }
        Ok(None) => Amounts::default(),
        // What it spent cannot be read: all that it might have.
        Err(_) => share::most(budget, order.free),
    });
    sessions.fold(Amounts::default(), Amounts::plus)
}

/// The time that was worked on a night: to its last entry, and to the end of every session that an entry began,
/// for a kill leaves no entry. Of entries without a time of their own the sessions count one after the other.
fn worked(entries: &[Stamped], mut ran: BTreeMap<SessionId, Runs>) -> Duration {
    let mut until = Duration::ZERO;
    for stamped in entries {
        let at = stamped.mono_ms.map_or(until, Duration::from_millis);
        let lasted = match &stamped.entry {
            Entry::Started { session, .. } => ran.get_mut(session).and_then(VecDeque::pop_front),
            _ => None,
        };
        until = until.max(at + lasted.unwrap_or_default());
    }
    until
}

/// A session of the night; `None` if it was killed before it had a transcript.
fn read(
    library: &Library,
    photo: &PhotoId,
    id: &SessionId,
) -> Result<Option<listing::Session>, SessionError> {
    let workspace = library.open(photo)?;
    if !workspace.session_folder(id).join("transcript.jsonl").exists() {
        return Ok(None);
    }
    listing::read(&workspace, id).map(Some)
}

/// How long each run of a session lasted: from its first line, and from each at which it was taken up, to the last
/// before it was cut, with what an effect that a crash hid may have taken.
fn runs(lines: &[Line]) -> Runs {
    let mut found = Runs::new();
    let mut from = Duration::ZERO;
    for line in lines {
        if let Event::Resumed { assumed_ms, .. } = line.event {
            if let Some(last) = found.back_mut() {
                *last += Duration::from_millis(assumed_ms);
            }
            from = line.at();
            found.push_back(Duration::ZERO);
        }
        match found.back_mut() {
            Some(last) => *last = line.at().saturating_sub(from),
            None => found.push_back(line.at()),
        }
    }
    found
}

/// Whether a session that ended like this is taken up by the next sitting: it was no fault of its own.
pub(super) fn failed(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::ProviderFailed | Outcome::EngineFailed)
}

/// A session whose turn has come, with what it may spend.
enum Turn {
    /// From its beginning.
    Fresh(Budget),
    /// On from where it was.
    Again(PhotoId, SessionId),
}

/// What the night's budget says to a session whose turn has come.
enum Claim {
    Go(Turn, Amounts),
    Wait,
    No(String),
}

/// Works off what is open: what was cut, what failed and what was not begun. Returns when nothing is left to do,
/// or, once `cut` is raised, when the sessions under way have ended.
pub fn run_pending(
    night: &mut Batch,
    library: &Library,
    house: &dyn BatchHost,
    clock: &dyn Clock,
    jobs: usize,
    cut: &Cancel,
) -> Result<(), BatchError> {
    let jobs = jobs.max(1);
    let before = Spent::of(library, night);
    house.tell(&night.append(Entry::RunStarted { pid: std::process::id(), jobs }, before.time)?);
    let waiting = open(night, library, house, before.time)?;
    let caps = night.record.caps.clone();
    let mut ledger = Ledger::new(caps.budget(), Reserve::default());
    ledger.reserve(u64::MAX, before.amounts);
    ledger.settle(u64::MAX, before.amounts);
    let (orders, tracks) = (night.record.orders.clone(), night.tracks());
    let billed =
        orders.iter().zip(&tracks).map(|(order, track)| bill(library, order, track, &mut BTreeMap::new()));
    let desk = Scheduler {
        library,
        house,
        clock,
        cut,
        orders: &orders,
        tracks: &tracks,
        billed: billed.collect(),
        cap: caps.time_seconds.map(Duration::from_secs),
        began: clock.monotonic(),
        before: before.time,
        paper: Mutex::new(SchedulerState { night, ledger, waiting, under_way: BTreeMap::new(), error: None }),
        changed: Condvar::new(),
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| while desk.one() {});
        }
    });
    let elapsed = desk.elapsed();
    let error = desk.paper.into_inner().unwrap_or_else(PoisonError::into_inner).error;
    if let Some(error) = error {
        return Err(error);
    }
    let left = |track: &Track| {
        let cut = matches!(track.standing, SessionStatus::Ended { cut: true, .. });
        cut || matches!(track.standing, SessionStatus::Waiting | SessionStatus::Begun)
    };
    if !night.tracks().iter().any(left) {
        house.tell(&night.append(Entry::Closed, elapsed)?);
    }
    Ok(())
}

/// The places that are open, in the plan's order. A session that ended and of which a kill kept the ledger from
/// hearing is written down now.
fn open(
    night: &mut Batch,
    library: &Library,
    house: &dyn BatchHost,
    now: Duration,
) -> Result<VecDeque<usize>, BatchError> {
    let mut places = VecDeque::new();
    for (place, track) in night.tracks().into_iter().enumerate() {
        match (&track.standing, &track.session) {
            (SessionStatus::Begun | SessionStatus::Failed(_), Some((photo, id, _))) => {
                let session = read(library, photo, id).ok().flatten();
                let ended = session.as_ref().and_then(|session| session.state.end.as_ref());
                match (&session, ended) {
                    (Some(session), Some(end)) => {
                        let cut = end.outcome == Outcome::Cancelled;
                        house.tell(&night.append(ended_entry(place, id, &session.state, cut), now)?);
                        if cut || failed(end.outcome) {
                            places.push_back(place);
                        }
                    }
                    _ => places.push_back(place),
                }
            }
            (SessionStatus::Ended { cut: false, outcome, .. }, _) if !failed(*outcome) => {}
            _ => places.push_back(place),
        }
    }
    Ok(places)
}

fn ended_entry(place: usize, id: &SessionId, state: &State, cut: bool) -> Entry {
    let outcome = state.end.as_ref().map_or(Outcome::Interrupted, |end| end.outcome);
    let status = outcome.exit_status(state.has_agent_judgment());
    Entry::Ended { place, session: id.clone(), outcome, status, cut }
}

/// What the workers share.
struct Scheduler<'a> {
    library: &'a Library,
    house: &'a dyn BatchHost,
    clock: &'a dyn Clock,
    cut: &'a Cancel,
    orders: &'a [PlannedSession],
    /// As they stood when the sitting began.
    tracks: &'a [Track],
    /// What each had spent by then.
    billed: Vec<Amounts>,
    /// The night's time.
    cap: Option<Duration>,
    began: Duration,
    /// Time that earlier sittings took.
    before: Duration,
    paper: Mutex<SchedulerState<'a>>,
    /// Told when a session ends: some of the budget may be free again.
    changed: Condvar,
}

/// What they write on, one at a time.
struct SchedulerState<'a> {
    night: &'a mut Batch,
    ledger: Ledger,
    waiting: VecDeque<usize>,
    /// Those that run, by place, with the raws that they work on.
    under_way: BTreeMap<usize, Hash>,
    error: Option<BatchError>,
}

impl SchedulerState<'_> {
    /// Writes an entry down; a night whose ledger cannot be written does not go on.
    fn note(&mut self, entry: Entry, at: Duration, house: &dyn BatchHost) {
        match self.night.append(entry, at) {
            Ok(stamped) => house.tell(&stamped),
            Err(error) => self.error = self.error.take().or(Some(error)),
        }
    }
}

impl<'a> Scheduler<'a> {
    fn paper(&self) -> MutexGuard<'_, SchedulerState<'a>> {
        self.paper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The night's time.
    fn elapsed(&self) -> Duration {
        self.before + self.clock.monotonic().saturating_sub(self.began)
    }

    /// Time that the night has left; `None` without a cap.
    fn left(&self) -> Option<Duration> {
        self.cap.map(|cap| cap.saturating_sub(self.elapsed()))
    }

    /// Takes the next session and runs it; false when there is none to take.
    fn one(&self) -> bool {
        let Some((place, turn)) = self.take() else { return false };
        let Some(order) = self.orders.get(place) else { return false };
        let entry = caught(|| self.work(place, order, turn)).flatten();
        let entry = entry.unwrap_or_else(|fault| Some(Entry::failed(place, &fault)));
        self.put(place, entry);
        true
    }

    /// The next session, once the night's budget has room for it.
    fn take(&self) -> Option<(usize, Turn)> {
        let mut paper = self.paper();
        loop {
            if self.cut.is_cancelled() || paper.error.is_some() || paper.waiting.is_empty() {
                return None;
            }
            // Two sessions cannot work on one photo at once.
            let free = |place: &&usize| {
                let raw = self.orders.get(**place).map(|order| &order.sha256);
                paper.under_way.values().all(|busy| Some(busy) != raw)
            };
            let next = paper.waiting.iter().find(free).copied();
            let claim = next.map(|place| (place, self.claim(place, &paper)));
            match claim {
                Some((place, Claim::Go(turn, most))) => {
                    paper.waiting.retain(|waiting| *waiting != place);
                    paper.ledger.reserve(place as u64, most);
                    let raw = self.orders.get(place)?.sha256.clone();
                    paper.under_way.insert(place, raw);
                    return Some((place, turn));
                }
                Some((place, Claim::No(why))) => {
                    paper.waiting.retain(|waiting| *waiting != place);
                    paper.note(Entry::NotBegun { place, why }, self.elapsed(), self.house);
                }
                Some((_, Claim::Wait)) | None => {
                    let waited = self.changed.wait_timeout(paper, TICK);
                    paper = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }

    /// What a session would take, and whether the night has it.
    fn claim(&self, place: usize, paper: &SchedulerState<'_>) -> Claim {
        let (Some(order), Some(track)) = (self.orders.get(place), self.tracks.get(place)) else {
            return Claim::No("the plan has no such session".into());
        };
        let begun = track.session.as_ref().map(|(photo, id, _)| (photo, id, read(self.library, photo, id)));
        let mut asked = order.budget.clone();
        let (turn, most) = match begun {
            Some((photo, id, Ok(Some(session)))) => {
                asked = session.ledger.budget().clone();
                asked.time_seconds = asked.time_seconds.saturating_sub(session.elapsed().as_secs());
                let most = share::most(&asked, order.free).minus(session.ledger.settled());
                (Turn::Again(photo.clone(), id.clone()), most)
            }
            // Going on will say what is wrong with it.
            Some((photo, id, Err(_))) => (Turn::Again(photo.clone(), id.clone()), Amounts::default()),
            Some((_, _, Ok(None))) | None => (Turn::Fresh(asked.clone()), share::most(&asked, order.free)),
        };
        if let Err(why) = share::in_time(asked.clone(), self.left()) {
            return Claim::No(why);
        }
        let fits = paper.ledger.admit(&most, Duration::ZERO);
        match (fits, turn) {
            (Ok(()), turn) => Claim::Go(turn, most),
            (Err(_), _) if !paper.under_way.is_empty() => Claim::Wait,
            (Err(exhausted), Turn::Again(..)) => {
                Claim::No(format!("budget of the batch: {}", exhausted.words()))
            }
            (Err(_), Turn::Fresh(asked)) => {
                match share::share(&asked, order.free, order.vectors.len() as u64, &paper.ledger) {
                    Ok(given) => {
                        let most = share::most(&given, order.free);
                        Claim::Go(Turn::Fresh(given), most)
                    }
                    Err(why) => Claim::No(why),
                }
            }
        }
    }

    /// Runs one session, and says how it ended; nothing if the night was stopped before it began. An error is one
    /// of this session alone.
    fn work(&self, place: usize, order: &PlannedSession, turn: Turn) -> Result<Option<Entry>, Fault> {
        let begins = |photo: &PhotoId, session: &SessionId, budget: &Budget, again: bool| {
            let (photo, session, budget) = (photo.clone(), session.clone(), budget.clone());
            let mut paper = self.paper();
            paper.note(Entry::Started { place, photo, session, budget, again }, self.elapsed(), self.house);
            // A session that the ledger does not know must not begin.
            paper.error.as_ref().map_or(Ok(()), |error| Err(Fault::from(error)))
        };
        let (workspace, id, mut session, until) = match turn {
            Turn::Fresh(budget) => {
                let workspace = self.house.photo(order)?;
                let budget = share::in_time(budget, self.left())
                    .map_err(|why| Fault::new(base::error::ErrorCode::BudgetExhausted, why))?;
                let (setup, plan) = self.house.plan(order, &workspace, &budget)?;
                let id = plan.start.session.clone();
                if self.cut.is_cancelled() {
                    return Ok(None);
                }
                begins(workspace.id(), &id, &plan.start.budget, false)?;
                let session = start::start(setup, plan).map_err(|e| Fault::from(&e))?;
                (workspace, id, session, None)
            }
            Turn::Again(photo, id) => {
                let workspace = self.library.open(&photo).map_err(|e| Fault::from(&e))?;
                let budget = listing::read(&workspace, &id).map_err(|e| Fault::from(&e))?;
                let budget = budget.ledger.budget().clone();
                begins(&photo, &id, &budget, true)?;
                let session = self.house.resume(order, workspace.clone(), &id)?;
                // Its own clock knows nothing of the night's end.
                let until = self.left().map(|left| left.saturating_sub(budget.wrap_up_time()));
                (workspace, id, session, until)
            }
        };
        let ran = self.house.run(place, &mut session, until);
        drop(session);
        ran.map_err(|e| Fault::from(&e))?;
        let session = listing::read(&workspace, &id).map_err(|e| Fault::from(&e))?;
        let cancelled = session.state.end.as_ref().is_some_and(|end| end.outcome == Outcome::Cancelled);
        Ok(Some(ended_entry(place, &id, &session.state, cancelled && self.cut.is_cancelled())))
    }

    /// Writes down how a session ended, and gives back what it left of its share.
    fn put(&self, place: usize, entry: Option<Entry>) {
        let mut guard = self.paper();
        let paper = &mut *guard;
        if let Some(entry) = entry {
            paper.note(entry, self.elapsed(), self.house);
        }
        let tracks = paper.night.tracks();
        if let (Some(order), Some(track)) = (self.orders.get(place), tracks.get(place)) {
            let now = bill(self.library, order, track, &mut BTreeMap::new());
            // What it had spent when the sitting began is on the bill already.
            let before = self.billed.get(place).copied().unwrap_or_default();
            paper.ledger.settle(place as u64, now.minus(before));
        }
        paper.under_way.remove(&place);
        drop(guard);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::rig::{self, Rig};
    use crate::session::start::{Request, Resume};

    fn entry(mono_ms: Option<u64>, entry: Entry) -> Stamped {
        // What the clock on the wall says goes back from entry to entry.
        let wall =
            jiff::Timestamp::UNIX_EPOCH - jiff::SignedDuration::from_millis(mono_ms.unwrap_or(0) as i64);
        Stamped { t: wall, mono_ms, entry }
    }

    fn started(mono_ms: Option<u64>, session: &SessionId) -> Stamped {
        let (photo, budget) = ("p".parse().unwrap(), Budget::parse("lite").unwrap());
        entry(mono_ms, Entry::Started { place: 0, photo, session: session.clone(), budget, again: false })
    }

    #[test]
    fn a_nights_time_is_its_own_whatever_the_clock_on_the_wall_does() {
        let ids = [SessionId::mint(), SessionId::mint()];
        let ran = |of: [&[u64]; 2]| {
            let runs = of.map(|ms| ms.iter().copied().map(Duration::from_millis).collect::<Runs>());
            ids.iter().cloned().zip(runs).collect::<BTreeMap<_, _>>()
        };
        let ms = |entries: &[Stamped], of| worked(entries, ran(of)).as_millis();
        assert_eq!(ms(&[], [&[], &[]]), 0);
        // Two at once, the second killed and taken up in a later sitting.
        let sitting = |at| entry(Some(at), Entry::RunStarted { pid: 1, jobs: 2 });
        let first = [sitting(0), started(Some(100), &ids[0]), started(Some(200), &ids[1])];
        assert_eq!(ms(&first, [&[5_000], &[7_000]]), 7_200);
        let both = [first.as_slice(), &[sitting(7_200), started(Some(7_300), &ids[1])]].concat();
        assert_eq!(ms(&both, [&[5_000], &[7_000, 1_000]]), 8_300);
        let over = [both.as_slice(), &[entry(Some(9_000), Entry::Closed)]].concat();
        assert_eq!(ms(&over, [&[5_000], &[7_000, 1_000]]), 9_000);
        // Yesterday's ledgers have no time of their own.
        assert_eq!(ms(&[started(None, &ids[0]), started(None, &ids[1])], [&[5_000], &[7_000]]), 12_000);
    }

    /// A night on the rig's photo, whose sessions are run by `runs`.
    struct Defective<'a> {
        rig: &'a Rig,
        script: String,
        runs: &'a (dyn Fn(usize, &mut Session) -> Result<(), SessionError> + Sync),
    }

    impl BatchHost for Defective<'_> {
        fn photo(&self, order: &PlannedSession) -> Result<Workspace, Fault> {
            assert_ne!(order.photo, "defect", "a defect before the session");
            Ok(rig::photo(&self.rig.library))
        }

        fn plan(&self, _: &PlannedSession, _: &Workspace, budget: &Budget) -> Result<(Setup, Plan), Fault> {
            let setup = self.rig.setup(&self.script);
            let request = Request { budget: budget.clone(), ..rig::request("lite", &["tone"]) };
            let plan = start::plan(&setup, &request).map_err(|e| Fault::from(&e))?;
            Ok((setup, plan))
        }

        fn resume(&self, _: &PlannedSession, _: Workspace, id: &SessionId) -> Result<Session, Fault> {
            let setup = self.rig.setup(&self.script);
            start::resume(setup, id, Resume::default()).map_err(|e| Fault::from(&e))
        }

        fn run(&self, place: usize, session: &mut Session, _: Option<Duration>) -> Result<(), SessionError> {
            (self.runs)(place, session)
        }

        fn tell(&self, _: &Stamped) {}
    }

    #[test]
    fn a_defect_in_a_session_of_the_night_ends_that_session_alone_and_the_next_sitting_takes_it_up() {
        let rig = Rig::new();
        let library = Library::new(&rig.library);
        let order = |photo: &str| PlannedSession {
            photo: photo.into(),
            raw: None,
            sha256: Hash::of("one raw"),
            brief: None,
            criteria: None,
            vectors: Vec::new(),
            budget: Budget::parse("time=20h,iterations=3,branches=1").unwrap(),
            provider: "script".into(),
            model: "script".into(),
            free: true,
            protocol: None,
            vars: BTreeMap::new(),
            referee: None,
            from: "main".into(),
            prompt: None,
            seed: 1,
            preview_size: 128,
            proxy: "off".into(),
        };
        let orders = vec![order("defect"), order("cup"), order("cup")];
        let plan = (std::path::Path::new("/plan.toml"), "# plan");
        let caps = crate::overnight::plan::Caps::default();
        let now = jiff::Timestamp::UNIX_EPOCH;
        let mut night = crate::overnight::record::begin(&library, plan, caps, orders, now).unwrap();
        let script = "[[reply]]\ncalls = [{ name = \"end_mode_b_session\", arguments = { session_summary = \"Done.\" } }]\n";
        let run_pending = |night: &mut Batch, defect: bool| {
            let runs = |place: usize, session: &mut Session| {
                assert!(!defect || place != 1, "a defect within the session");
                rig::run(session).map(drop)
            };
            let house = Defective { rig: &rig, script: script.into(), runs: &runs };
            for jobs in [1, 2] {
                run_pending(night, &library, &house, &base::clock::SystemClock, jobs, &Cancel::default())
                    .unwrap();
            }
        };
        run_pending(&mut night, true);
        let standing = |night: &Batch| {
            let read = Batch::read(&night.folder).unwrap();
            assert!(read.is_over());
            read.tracks().into_iter().map(|track| track.standing).collect::<Vec<_>>()
        };
        let told = standing(&night);
        for (place, why) in [(0, "a defect before the session"), (1, "a defect within the session")] {
            let SessionStatus::Failed(fault) = &told[place] else { panic!("{told:?}") };
            assert!(fault.message.contains(why), "{fault}");
        }
        assert!(matches!(told[2], SessionStatus::Ended { outcome: Outcome::Completed, .. }), "{told:?}");
        // Somebody mended it.
        run_pending(&mut night, false);
        let told = standing(&night);
        assert!(matches!(told[1], SessionStatus::Ended { outcome: Outcome::Completed, .. }), "{told:?}");
        assert_eq!(night.tracks()[1].all.len(), 1, "one session, taken up and not begun again");
    }
}
