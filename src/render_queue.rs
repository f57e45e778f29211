//! Renders that begin before anyone asks for them.
//!
//! While a model thinks about its next call, the picture of the state that it has just made is rendered. A later
//! request for that picture joins the running job or gets its result. A picture that was requested never waits for
//! one that was not: it is rendered on the caller's own thread, in parallel with whatever was begun ahead.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::gate::{Permit, Render};
use base::clock::{Cancel, Deadline};
use base::error::caught;
use base::ids::Hash;
use darktable::render::{Quality, RawFile, RenderError, RenderPermit, RenderRequest, Rendered, Renderer};
use darktable::state::EditState;

/// How often a caller that waits for a job checks its own deadline.
const TICK: Duration = Duration::from_millis(20);
/// How many finished pictures that nobody has requested yet are kept in memory.
const HELD: usize = 4;

/// A renderer with a few lanes for work ahead.
pub struct Queue {
    shared: Arc<Shared>,
    lanes: usize,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    renderer: Arc<dyn Renderer>,
    board: Mutex<Board>,
    /// Notified when a job ends.
    ended: Condvar,
    /// Cancelled when the queue is dropped.
    closed: Cancel,
}

#[derive(Default)]
struct Board {
    /// In the order in which they came.
    jobs: Vec<Job>,
    /// Threads at work.
    busy: usize,
}

struct Job {
    key: Key,
    state: JobState,
}

enum JobState {
    Waiting(Box<QueuedRender>),
    Running,
    Done(Rendered),
    /// A later request renders it again and gets the error itself.
    Failed,
}

/// What a job needs while it waits.
struct QueuedRender {
    permit: Permit<Render>,
    raw: RawFile,
    state: EditState,
    deadline: Deadline,
    finish: Box<dyn FnOnce(&Rendered) + Send>,
}

/// What decides a picture, within one session.
#[derive(Clone, PartialEq, Eq)]
struct Key {
    raw: Hash,
    state: Hash,
    long_edge: u32,
    quality: Quality,
}

impl Key {
    fn of(request: &RenderRequest<'_>) -> Self {
        Self {
            raw: request.raw.sha256.clone(),
            state: request.state.hash(),
            long_edge: request.long_edge,
            quality: request.quality,
        }
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("lanes", &self.lanes).finish_non_exhaustive()
    }
}

impl Queue {
    /// A queue before `renderer` with so many lanes (at least one): as many jobs run ahead at once, and as
    /// many pictures of one [`Self::render_all`].
    pub fn new(renderer: Arc<dyn Renderer>, lanes: usize) -> Self {
        let board = Mutex::default();
        let shared = Shared { renderer, board, ended: Condvar::new(), closed: Cancel::default() };
        Self { shared: Arc::new(shared), lanes: lanes.max(1), threads: Mutex::default() }
    }

    /// Begins a render that nobody waits for yet, which uses up the permit. Jobs that have not begun are dropped,
    /// because the newest state is the one that will be looked at; the lines of their permits are returned. `finish`
    /// runs on the picture as soon as it is there, without holding up a caller that waits for it.
    pub fn ahead(
        &self,
        permit: Permit<Render>,
        request: &RenderRequest<'_>,
        deadline: &Deadline,
        finish: impl FnOnce(&Rendered) + Send + 'static,
    ) -> Vec<u64> {
        let key = Key::of(request);
        let render = QueuedRender {
            permit,
            raw: request.raw.clone(),
            state: request.state.clone(),
            deadline: deadline.clone().with_cancel(self.shared.closed.clone()),
            finish: Box::new(finish),
        };
        let mut board = self.shared.lock();
        let mut dropped = Vec::new();
        board.jobs.retain(|job| match &job.state {
            JobState::Waiting(render) => {
                dropped.push(render.permit.seq());
                false
            }
            _ => true,
        });
        board.jobs.push(Job { key, state: JobState::Waiting(Box::new(render)) });
        let begin = board.busy < self.lanes;
        board.busy += usize::from(begin);
        drop(board);
        if begin {
            let shared = self.shared.clone();
            let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
            threads.retain(|thread| !thread.is_finished());
            threads.push(std::thread::spawn(move || shared.work()));
        }
        dropped
    }

    /// Renders several pictures, each for the permit beside it, as many at once as there are lanes; the answers are
    /// in the order of `requests`.
    pub fn render_all<P: RenderPermit>(
        &self,
        requests: Vec<(RenderRequest<'_>, P)>,
        deadline: &Deadline,
    ) -> Vec<Result<Rendered, RenderError>> {
        let render = |(request, permit): &(RenderRequest<'_>, P)| self.render(request, deadline, permit);
        if self.lanes < 2 || requests.len() < 2 {
            return requests.iter().map(render).collect();
        }
        let next = AtomicUsize::new(0);
        let work = || {
            let mut answers = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(request) = requests.get(at) else { return answers };
                answers.push((at, render(request)));
            }
        };
        let mut answers = std::thread::scope(|scope| {
            let others: Vec<_> = (1..self.lanes.min(requests.len())).map(|_| scope.spawn(work)).collect();
            let mut answers = work();
            for other in others {
                answers.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            answers
        });
        answers.sort_by_key(|(at, _)| *at);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    /// The answer of a job that was begun ahead; `None` if the caller has to render.
    fn join(
        &self,
        request: &RenderRequest<'_>,
        deadline: &Deadline,
    ) -> Option<Result<Rendered, RenderError>> {
        let started = Instant::now();
        let key = Key::of(request);
        let mut board = self.shared.lock();
        loop {
            let at = board.jobs.iter().position(|job| job.key == key)?;
            if matches!(board.jobs.get(at)?.state, JobState::Running) {
                if deadline.expired() {
                    return Some(Err(RenderError::interrupted(started.elapsed(), deadline.is_cancelled())));
                }
                let wait = TICK.min(deadline.remaining());
                board = self.shared.ended.wait_timeout(board, wait).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            // A job that has not begun is taken over by the caller.
            return match board.jobs.remove(at).state {
                JobState::Done(rendered) => Some(Ok(rendered)),
                JobState::Waiting(_) | JobState::Running | JobState::Failed => None,
            };
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.shared.closed.cancel();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // A lane that panicked has been logged already.
            let _ = thread.join();
        }
    }
}

impl Renderer for Queue {
    fn render(
        &self,
        request: &RenderRequest<'_>,
        deadline: &Deadline,
        permit: &dyn RenderPermit,
    ) -> Result<Rendered, RenderError> {
        self.join(request, deadline).unwrap_or_else(|| self.shared.renderer.render(request, deadline, permit))
    }

    fn darktable_version(&self) -> &str {
        self.shared.renderer.darktable_version()
    }

    fn cached(&self, request: &RenderRequest<'_>) -> Option<Rendered> {
        self.shared.renderer.cached(request)
    }

    fn estimate(&self, raw: &Hash, long_edge: u32, quality: Quality) -> Option<Duration> {
        self.shared.renderer.estimate(raw, long_edge, quality)
    }

    fn take_notes(&self) -> Vec<String> {
        self.shared.renderer.take_notes()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One lane: renders what waits, the newest first, until nothing does.
    fn work(&self) {
        loop {
            let mut board = self.lock();
            let newest = board.jobs.iter_mut().rev().find(|job| matches!(job.state, JobState::Waiting(_)));
            let taken =
                newest.map(|job| (job.key.clone(), std::mem::replace(&mut job.state, JobState::Running)));
            let Some((key, JobState::Waiting(render))) = taken else {
                board.busy -= 1;
                return;
            };
            drop(board);
            let request = RenderRequest {
                raw: &render.raw,
                state: &render.state,
                long_edge: key.long_edge,
                quality: key.quality,
            };
            let state = match caught(|| self.renderer.render(&request, &render.deadline, &render.permit)) {
                Ok(Ok(rendered)) => JobState::Done(rendered),
                Err(fault) => {
                    tracing::error!(%fault, "a render that was begun ahead failed");
                    JobState::Failed
                }
                Ok(Err(error)) => {
                    tracing::debug!(%error, "a render that was begun ahead failed");
                    JobState::Failed
                }
            };
            let rendered = if let JobState::Done(rendered) = &state { Some(rendered.clone()) } else { None };
            let mut board = self.lock();
            if let Some(job) = board.jobs.iter_mut().find(|job| job.key == key) {
                job.state = state;
            }
            let ended = |job: &&Job| !matches!(job.state, JobState::Waiting(_) | JobState::Running);
            let surplus = board.jobs.iter().filter(ended).count().saturating_sub(HELD);
            let oldest = board.jobs.iter().filter(ended).take(surplus).map(|job| job.key.clone());
            let oldest: Vec<Key> = oldest.collect();
            board.jobs.retain(|job| !oldest.contains(&job.key));
            self.ended.notify_all();
            drop(board);
            if let Some(rendered) = rendered {
                let finished = caught(|| (render.finish)(&rendered));
                drop(
                    finished.inspect_err(|fault| tracing::error!(%fault, "a picture was not measured ahead")),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, AtomicU64};

    use super::*;
    use crate::budget::{Amounts, Budget, Ledger, Reserve};
    use crate::gate::Gate;
    use crate::transcript::{RenderIntent, Transcript};
    use base::clock::{Stop, SystemClock};
    use base::redact::Redactor;
    use darktable::render::{ByHand, Picture};
    use engine::lease::Lessor;

    /// A renderer whose first picture, or every one, takes until it is let go; pictures are told apart by size.
    struct Slow {
        /// The smallest picture that is held.
        held: AtomicU32,
        begun: Mutex<Vec<String>>,
        at_once: AtomicU64,
        most_at_once: AtomicU64,
        fails: bool,
        /// The picture of this size is a defect of the program.
        panics_at: Option<u32>,
    }

    impl Slow {
        /// Holds pictures of up to so many pixels.
        fn holding(most: u32) -> Arc<Self> {
            Arc::new(Self {
                held: AtomicU32::new(most),
                begun: Mutex::default(),
                at_once: AtomicU64::new(0),
                most_at_once: AtomicU64::new(0),
                fails: false,
                panics_at: None,
            })
        }

        fn begun(&self) -> Vec<String> {
            self.begun.lock().unwrap().clone()
        }

        fn let_go(&self) {
            self.held.store(0, Ordering::SeqCst);
        }
    }

    impl Renderer for Slow {
        fn render(
            &self,
            request: &RenderRequest<'_>,
            deadline: &Deadline,
            _: &dyn RenderPermit,
        ) -> Result<Rendered, RenderError> {
            self.begun.lock().unwrap().push(request.long_edge.to_string());
            let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_at_once.fetch_max(now, Ordering::SeqCst);
            let started = Instant::now();
            while request.long_edge <= self.held.load(Ordering::SeqCst) && !deadline.expired() {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.at_once.fetch_sub(1, Ordering::SeqCst);
            assert_ne!(self.panics_at, Some(request.long_edge), "a defect");
            if deadline.expired() {
                return Err(RenderError::interrupted(started.elapsed(), deadline.is_cancelled()));
            }
            if self.fails {
                return Err(RenderError::Untrusted("it is flat".into()));
            }
            let rgb = request.long_edge.to_le_bytes().repeat(3);
            let picture = Arc::new(Picture { width: 4, height: 1, rgb });
            let pixel_hash = picture.pixel_hash();
            Ok(Rendered { picture, pixel_hash, elapsed: started.elapsed(), cached: false })
        }

        fn darktable_version(&self) -> &str {
            "4.2.1"
        }
    }

    /// Permits, and a photo whose pictures differ by their size.
    struct Bench {
        gate: Gate,
        raw: RawFile,
        state: EditState,
        _dir: tempfile::TempDir,
    }

    impl Bench {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("transcript.jsonl");
            let transcript = Transcript::create(&path, Arc::new(SystemClock), Redactor::default()).unwrap();
            let ledger = Ledger::new(Budget::parse("standard").unwrap(), Reserve::default());
            let gate = Gate::new(ledger, transcript, Lessor::default(), Stop::default());
            let raw = RawFile { path: "a.dng".into(), sha256: Hash::of("raw") };
            Self { gate, raw, state: EditState::default(), _dir: dir }
        }

        fn permit(&mut self, long_edge: u32) -> Permit<Render> {
            let intent = RenderIntent {
                state: self.state.hash(),
                long_edge,
                quality: Quality::Preview,
                reserved: Amounts::default(),
                ahead: true,
                joins: None,
                estimate_ms: None,
            };
            self.gate.admit(intent).unwrap().unwrap()
        }

        fn ahead(&mut self, queue: &Queue, long_edge: u32) -> Vec<u64> {
            let permit = self.permit(long_edge);
            queue.ahead(permit, &self.ask(long_edge), &Deadline::never(), |_| {})
        }

        fn ask(&self, long_edge: u32) -> RenderRequest<'_> {
            RenderRequest { raw: &self.raw, state: &self.state, long_edge, quality: Quality::Preview }
        }
    }

    /// No test takes so long, however busy the machine is.
    const LONG: Duration = Duration::from_secs(120);

    fn patient() -> Deadline {
        Deadline::after(Arc::new(SystemClock), LONG)
    }

    fn until(what: impl Fn() -> bool) {
        let started = Instant::now();
        while !what() {
            assert!(started.elapsed() < LONG, "it never came to be");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn who_asks_joins_the_running_job_and_nothing_is_rendered_twice() {
        let (slow, mut bench) = (Slow::holding(100), Bench::new());
        let queue = Queue::new(slow.clone(), 1);
        assert!(bench.ahead(&queue, 100).is_empty());
        until(|| !slow.begun().is_empty());
        let joined = std::thread::scope(|scope| {
            let asks = scope.spawn(|| queue.render(&bench.ask(100), &patient(), &ByHand).unwrap());
            slow.let_go();
            asks.join().unwrap()
        });
        assert_eq!(joined.picture.rgb[0], 100);
        // And a job that has ended is answered from what it left.
        bench.ahead(&queue, 200);
        until(|| slow.begun().len() == 2 && slow.at_once.load(Ordering::SeqCst) == 0);
        assert_eq!(queue.render(&bench.ask(200), &patient(), &ByHand).unwrap().picture.rgb[0], 200);
        assert_eq!(slow.begun(), ["100", "200"]);
    }

    #[test]
    fn what_is_asked_for_never_waits_for_what_is_not() {
        let (slow, mut bench) = (Slow::holding(1), Bench::new());
        let queue = Queue::new(slow.clone(), 1);
        bench.ahead(&queue, 1);
        until(|| slow.begun() == ["1"]);
        // Waits for the lane, and is taken over by whoever asks.
        bench.ahead(&queue, 2);
        queue.render(&bench.ask(2), &patient(), &ByHand).unwrap();
        queue.render(&bench.ask(3), &patient(), &ByHand).unwrap();
        assert_eq!(slow.begun(), ["1", "2", "3"]);
        assert_eq!(slow.at_once.load(Ordering::SeqCst), 1, "the first is still at work");
    }

    #[test]
    fn a_newer_state_drops_what_has_not_begun_and_its_line_is_told() {
        let (slow, mut bench) = (Slow::holding(1), Bench::new());
        let queue = Queue::new(slow.clone(), 1);
        bench.ahead(&queue, 1);
        until(|| slow.begun() == ["1"]);
        let (second, third) = (bench.ahead(&queue, 2), bench.ahead(&queue, 3));
        assert_eq!((second, third), (vec![], vec![1]), "the second intent is line 1");
        slow.let_go();
        queue.render(&bench.ask(3), &patient(), &ByHand).unwrap();
        until(|| slow.at_once.load(Ordering::SeqCst) == 0);
        assert_eq!(slow.begun(), ["1", "3"]);
    }

    #[test]
    fn several_lanes_render_side_by_side_and_answer_in_order() {
        let bench = Bench::new();
        let asks = || (1..=5).map(|edge| (bench.ask(edge), ByHand)).collect();
        for lanes in [1, 3] {
            // All are held until as many are at work as there are lanes.
            let slow = Slow::holding(5);
            let queue = Queue::new(slow.clone(), lanes);
            let answers = std::thread::scope(|scope| {
                let answers = scope.spawn(|| queue.render_all(asks(), &patient()));
                until(|| slow.at_once.load(Ordering::SeqCst) == lanes as u64);
                slow.let_go();
                answers.join().unwrap()
            });
            let order: Vec<u8> = answers.iter().map(|a| a.as_ref().unwrap().picture.rgb[0]).collect();
            assert_eq!(order, [1, 2, 3, 4, 5]);
            assert_eq!(slow.most_at_once.load(Ordering::SeqCst), lanes as u64);
        }
    }

    #[test]
    fn whoever_joins_keeps_the_own_deadline_and_the_queue_ends_at_once() {
        let (slow, mut bench) = (Slow::holding(1), Bench::new());
        let queue = Queue::new(slow.clone(), 1);
        bench.ahead(&queue, 1);
        until(|| slow.begun() == ["1"]);
        // Nobody lets it go: whoever comes back was not made to wait for it.
        let soon = Deadline::after(Arc::new(SystemClock), Duration::from_millis(100));
        let error = queue.render(&bench.ask(1), &soon, &ByHand).unwrap_err();
        assert!(matches!(error, RenderError::TimedOut { .. }), "{error}");
        drop(queue);
        assert_eq!(slow.at_once.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_job_that_failed_is_rendered_again_by_whoever_asks() {
        let mut bench = Bench::new();
        let mut slow = Slow::holding(0);
        Arc::get_mut(&mut slow).unwrap().fails = true;
        let queue = Queue::new(slow.clone(), 1);
        bench.ahead(&queue, 1);
        until(|| slow.begun().len() == 1 && slow.at_once.load(Ordering::SeqCst) == 0);
        let error = queue.render(&bench.ask(1), &patient(), &ByHand).unwrap_err();
        assert!(matches!(error, RenderError::Untrusted(_)), "{error}");
        assert_eq!(slow.begun().len(), 2);
    }

    #[test]
    fn a_defect_in_a_job_ends_that_job_alone_and_nobody_waits_for_it() {
        let mut bench = Bench::new();
        let mut slow = Slow::holding(0);
        Arc::get_mut(&mut slow).unwrap().panics_at = Some(1);
        let queue = Queue::new(slow.clone(), 1);
        bench.ahead(&queue, 1);
        until(|| slow.begun() == ["1"] && slow.at_once.load(Ordering::SeqCst) == 0);
        // Whoever joins does it again, and has the reason first-hand.
        let soon = Deadline::after(Arc::new(SystemClock), Duration::from_secs(60));
        let joined = caught(|| queue.render(&bench.ask(1), &soon, &ByHand)).unwrap_err();
        assert!(joined.message.contains("a defect"), "{joined}");
        assert_eq!(slow.begun(), ["1", "1"]);
        // The lane is free for the next one, and a defect in what is done with the picture costs that alone.
        let permit = bench.permit(2);
        queue.ahead(permit, &bench.ask(2), &Deadline::never(), |_| panic!("a defect in measuring"));
        until(|| slow.begun().len() == 3 && slow.at_once.load(Ordering::SeqCst) == 0);
        assert_eq!(queue.render(&bench.ask(2), &soon, &ByHand).unwrap().picture.rgb[0], 2);
        bench.ahead(&queue, 3);
        until(|| slow.begun().len() == 4);
        assert_eq!(queue.render(&bench.ask(3), &soon, &ByHand).unwrap().picture.rgb[0], 3);
        assert_eq!(slow.begun(), ["1", "1", "2", "3"], "nothing else was rendered twice");
        // Of several that are asked for at once, the defect comes to whoever asked, and the others were done.
        let queue = Queue::new(slow.clone(), 2);
        let asks = |edges: &[u32]| edges.iter().map(|edge| (bench.ask(*edge), ByHand)).collect();
        assert!(caught(|| queue.render_all(asks(&[1, 4, 5]), &soon)).is_err());
        assert_eq!(queue.render_all(asks(&[4, 5]), &soon).len(), 2);
    }
}
