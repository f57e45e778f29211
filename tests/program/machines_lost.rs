//! Workers that end, are killed, or are stopped and wake up too late: each session is counted once, and what it cost is
//! what its transcript says.

use std::cell::RefCell;

use crate::many_machines::{Studio, TAKEN_OVER, ended, until};
use crate::overnight::{Home, script};
use chemigram::overnight::record::SessionStatus;
use chemigram::transcript::Outcome;
use rustix::process::{Pid, Signal, kill_process};

/// A batch of one session that waits so long, in milliseconds, before it judges its branch.
fn one(home: &Home, pause: u64) {
    home.write("script.toml", script("Open.", pause));
    home.plan("branches = 1\ntime = \"1h\"", "[[session]]\nphoto = \"cup\"\n");
}

/// The branches that an undisturbed run makes.
fn undisturbed() -> Vec<String> {
    let home = Home::new(&["cup"]);
    one(&home, 0);
    assert_eq!(home.overnight(&[]), 0);
    home.branches()
}

pub fn signal(studio: &Studio, worker: usize, signal: Signal) {
    let pid = i32::try_from(studio.workers[worker].id()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

#[test]
fn a_worker_that_is_asked_to_end_finishes_what_is_under_way_and_gives_the_session_back() {
    let mut studio = Studio::new(&["cup"]);
    one(&studio.home, 2500);
    studio.worker("first", &[]);
    let submitted = studio.submit();
    until("an edit", || studio.edited("first"));
    signal(&studio, 0, Signal::TERM);
    let first = studio.workers.remove(0);
    assert_eq!(ended(first).status.code(), Some(0), "{}", studio.logs());
    let job = studio.show()["jobs"][0].clone();
    assert_eq!(
        (job["state"].as_str(), job["why"].as_str()),
        (Some("waiting"), Some("its worker ended")),
        "{job}"
    );
    studio.worker("second", &[]);
    assert_eq!(ended(submitted).status.code(), Some(0), "{}", studio.logs());
    assert_eq!(studio.home.outcomes(), [(0, Outcome::Completed)]);
    assert_eq!(studio.home.branches(), undisturbed());
    assert_eq!(studio.counted(), studio.spent());
    // The reply that was under way is not paid again.
    assert_eq!(studio.spent().model_calls, 5);
}

#[test]
fn a_worker_that_wakes_up_after_its_lease_is_refused_and_nothing_of_it_is_kept() {
    let mut studio = Studio::new(&["cup"]);
    studio.lease = TAKEN_OVER;
    one(&studio.home, 2500);
    studio.worker("first", &[]);
    let submitted = studio.submit();
    until("an edit", || studio.edited("first"));
    signal(&studio, 0, Signal::STOP);
    studio.worker("second", &[]);
    until("a second claim", || studio.claimed_by("second"));
    signal(&studio, 0, Signal::CONT);
    until("a refusal", || studio.log("first").contains("another worker has taken over"));
    assert_eq!(ended(submitted).status.code(), Some(0), "{}", studio.logs());
    assert_eq!(studio.home.outcomes(), [(0, Outcome::Completed)]);
    assert_eq!(studio.home.branches(), undisturbed());
    assert_eq!(studio.counted(), studio.spent());
    assert_eq!(studio.home.status(&["fsck", "cup"]), 0);
}

#[test]
fn a_session_whose_worker_was_lost_goes_on_where_none_would_be_begun_any_more() {
    let mut studio = Studio::new(&["cup"]);
    studio.lease = TAKEN_OVER;
    studio.home.write("script.toml", script("Open.", 2500));
    // A session is begun with a quarter of the five minutes that it asks for, and this is a second more.
    studio.home.plan("branches = 1\ntime = \"76s\"", "[[session]]\nphoto = \"cup\"\n");
    studio.worker("first", &[]);
    let submitted = studio.submit();
    until("an edit", || studio.edited("first"));
    studio.workers[0].kill().unwrap();
    studio.workers[0].wait().unwrap();
    studio.worker("second", &[]);
    let output = ended(submitted);
    let tracks = studio.home.batch().unwrap().tracks();
    assert!(
        matches!(tracks[0].status, SessionStatus::Ended { .. }),
        "{tracks:?}\n{output:?}\n{}",
        studio.logs()
    );
    assert_eq!(studio.counted(), studio.spent());
    assert!(studio.spent().model_calls >= 4, "{:?}", studio.spent());
}

#[test]
fn a_session_that_takes_three_workers_down_at_the_same_step_is_given_up_and_reported() {
    let mut studio = Studio::new(&["cup"]);
    studio.lease = TAKEN_OVER;
    one(&studio.home, 60_000);
    let submitted = RefCell::new(studio.submit());
    let over = || submitted.borrow_mut().try_wait().unwrap().is_some();
    let mut lost = 0;
    loop {
        let name = format!("w{lost}");
        studio.worker(&name, &[]);
        until("a claim, or the end", || over() || studio.claimed_by(&name));
        if over() {
            break;
        }
        until("the step at which it is lost", || studio.edited(&name));
        let mut worker = studio.workers.pop().unwrap();
        worker.kill().unwrap();
        worker.wait().unwrap();
        lost += 1;
    }
    // One that is killed before it has published the step does not count.
    assert!((3..=5).contains(&lost), "{lost}\n{}", studio.logs());
    assert_eq!(ended(submitted.into_inner()).status.code(), Some(1), "{}", studio.logs());
    let tracks = studio.home.batch().unwrap().tracks();
    let SessionStatus::Failed(fault) = &tracks[0].status else { panic!("{tracks:?}") };
    assert!(fault.message.contains("3 workers in a row were lost"), "{fault}");
    assert!(studio.home.report("report.txt").contains("3 workers in a row"));
    studio.settled();
}

#[test]
fn a_batch_that_is_cancelled_wraps_up_and_starts_nothing_more() {
    let mut studio = Studio::new(&["cup", "bar"]);
    studio.home.write("script.toml", script("Open.", 8000));
    studio.home.plan(
        "branches = 2\ntime = \"1h\"",
        "[[session]]\nphoto = \"cup\"\n\n[[session]]\nphoto = \"bar\"\n",
    );
    studio.worker("first", &[]);
    let submitted = studio.submit();
    until("an edit", || studio.edited("first"));
    let address = studio.address();
    assert_eq!(studio.home.status(&["batch", "cancel", "last", "--store", &address]), 0);
    assert_eq!(ended(submitted).status.code(), Some(1), "{}", studio.logs());
    let tracks = studio.home.batch().unwrap().tracks();
    assert!(matches!(tracks[1].status, SessionStatus::Failed(_)), "{tracks:?}");
    assert!(matches!(tracks[0].status, SessionStatus::Ended { .. }), "{tracks:?}");
    assert_eq!(studio.counted(), studio.spent());
    // What is over can be removed from the store, and stays in the library.
    assert_eq!(studio.home.status(&["batch", "remove", "last", "--store", &address]), 0);
    let listed = studio.home.run(&["batch", "list", "--store", &address, "--json"]);
    assert_eq!(String::from_utf8(listed.stdout).unwrap().trim(), "[]");
    assert_eq!(studio.home.status(&["batch", "report", "last"]), 1);
}
