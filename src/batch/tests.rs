use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

fn dollars(n: u64) -> Amounts {
    Amounts { cost_micro_usd: n * 1_000_000, ..Amounts::default() }
}

/// Jobs that reserve and spend whole dollars, and note what happens to them.
struct Scripted<'a> {
    most: &'a [u64],
    runs: &'a (dyn Fn(usize, &Reservation<'_>) -> u64 + Sync),
    notes: Mutex<Vec<String>>,
    /// The most jobs that ran at once.
    at_once: AtomicUsize,
}

impl Scripted<'_> {
    fn note(&self, text: String) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }
}

impl Jobs for Scripted<'_> {
    type Start = ();
    type End = Result<u64, String>;

    fn admit(&self, job: usize, queue: &Queue) -> Admission<()> {
        assert_ne!(self.most[job], 99, "an admission that panics");
        let most = dollars(self.most[job]);
        match queue.ledger.admit(&most, Duration::ZERO) {
            Ok(()) => Admission::Start((), most),
            Err(_) if !queue.running.is_empty() => Admission::Wait,
            Err(_) => {
                self.note(format!("{job} skipped"));
                Admission::Skip
            }
        }
    }

    fn run(&self, job: usize, (): (), reservation: &Reservation<'_>) -> Self::End {
        self.at_once.fetch_max(reservation.queue().running.len(), Ordering::Relaxed);
        Ok((self.runs)(job, reservation))
    }

    fn panicked(&self, _: usize, fault: Fault) -> Self::End {
        Err(fault.message)
    }

    fn ended(&self, job: usize, end: Self::End, _: &mut Queue) -> Amounts {
        match end {
            Ok(spent) => {
                assert_ne!(spent, 77, "a record that panics");
                self.note(format!("{job} spent {spent}"));
                dollars(spent)
            }
            Err(why) => {
                self.note(format!("{job} {why}"));
                dollars(self.most[job])
            }
        }
    }
}

/// Runs jobs under a cap in dollars; what was noted, sorted, and the queue that is left.
fn run_under(
    cap: u64,
    most: &[u64],
    workers: usize,
    runs: &(dyn Fn(usize, &Reservation<'_>) -> u64 + Sync),
) -> (Vec<String>, Queue, usize) {
    let caps = Budget::parse(&format!("time=1h,iterations=1,branches=1,cost={cap}")).unwrap();
    let jobs = Scripted { most, runs, notes: Mutex::default(), at_once: AtomicUsize::new(0) };
    let queue = Queue::new(caps, dollars(1), 0..most.len());
    let queue = run(&jobs, queue, workers, &Cancel::default());
    assert_eq!(
        (queue.ledger.reserved(), queue.running.len()),
        (Amounts::default(), 0),
        "a reservation leaked"
    );
    let mut notes = jobs.notes.into_inner().unwrap();
    notes.sort();
    (notes, queue, jobs.at_once.into_inner())
}

#[test]
fn a_job_waits_for_what_others_leave_and_is_skipped_when_nothing_runs() {
    for workers in [1, 4] {
        let (notes, queue, _) = run_under(10, &[6, 6, 6, 2], workers, &|_, _| 3);
        assert_eq!(notes, ["0 spent 3", "1 spent 3", "2 skipped", "3 spent 3"], "{workers} workers");
        assert_eq!(queue.ledger.settled(), dollars(10), "what earlier runs spent counts");
    }
}

#[test]
fn no_more_jobs_run_at_once_than_there_are_workers() {
    let slowly = |_: usize, _: &Reservation<'_>| {
        std::thread::sleep(Duration::from_millis(5));
        1
    };
    let (notes, _, at_once) = run_under(100, &[1; 12], 3, &slowly);
    assert_eq!(notes.len(), 12);
    assert!((1..=3).contains(&at_once), "{at_once}");
}

#[test]
fn a_panic_ends_its_job_alone_and_no_reservation_leaks() {
    let runs = |job: usize, _: &Reservation<'_>| match job {
        0 => panic!("a job that panics"),
        1 => 77,
        _ => 1,
    };
    for workers in [1, 2] {
        let (notes, queue, _) = run_under(20, &[3, 4, 99, 5], workers, &runs);
        let [first, second, last] = notes.as_slice() else { panic!("{notes:?}") };
        assert!(first.starts_with("0 a defect") && first.ends_with("a job that panics"), "{first}");
        assert!(second.starts_with("2 a defect") && second.contains("an admission that panics"), "{second}");
        assert_eq!(last, "3 spent 1");
        // What a job that was not recorded has spent is not known: all that it might have.
        assert_eq!(queue.ledger.settled(), dollars(1 + 3 + 4 + 1));
    }
}

#[test]
fn every_attempt_is_reserved_and_the_last_one_is_not_charged_twice() {
    let retried = AtomicUsize::new(0);
    // Each attempt costs its 3 dollars: 1 + 3 + 3 leave no room for a third under 9.
    let runs = |_: usize, reservation: &Reservation<'_>| {
        while reservation.retry(dollars(3), Duration::ZERO) {
            retried.fetch_add(1, Ordering::Relaxed);
        }
        6
    };
    let (notes, queue, _) = run_under(9, &[3], 1, &runs);
    assert_eq!((notes, retried.into_inner()), (vec!["0 spent 6".to_owned()], 1));
    assert_eq!(queue.ledger.settled(), dollars(7));
}

#[test]
fn a_cancelled_batch_leaves_its_jobs_waiting() {
    let cancel = Cancel::default();
    let runs = |_: usize, _: &Reservation<'_>| {
        cancel.cancel();
        1
    };
    let jobs =
        Scripted { most: &[1, 1, 1], runs: &runs, notes: Mutex::default(), at_once: AtomicUsize::new(0) };
    let caps = Budget::parse("lite").unwrap();
    let queue = run(&jobs, Queue::new(caps, Amounts::default(), 0..3), 1, &cancel);
    assert_eq!(queue.waiting, [1, 2]);
}
