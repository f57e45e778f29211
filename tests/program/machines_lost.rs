//! Workers that end, are killed, or are stopped and wake up too late, and a server that is killed: each session is
//! counted once, and what it cost is what its transcript says.

use std::time::Duration;

use crate::many_machines::{Studio, ended, until};
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

fn signal(studio: &Studio, worker: usize, signal: Signal) {
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
fn a_session_that_takes_three_workers_down_is_given_up_and_reported() {
    let mut studio = Studio::new(&["cup"]);
    one(&studio.home, 60_000);
    let submitted = studio.submit();
    for name in ["first", "second", "third"] {
        studio.worker(name, &[]);
        until("a claim", || studio.claimed_by(name));
        let mut worker = studio.workers.pop().unwrap();
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
    studio.worker("fourth", &[]);
    assert_eq!(ended(submitted).status.code(), Some(1), "{}", studio.logs());
    let tracks = studio.home.batch().unwrap().tracks();
    let SessionStatus::Failed(fault) = &tracks[0].status else { panic!("{tracks:?}") };
    assert!(fault.message.contains("3 workers in a row were lost"), "{fault}");
    assert!(studio.home.report("report.txt").contains("3 workers in a row"));
    assert_eq!(studio.show()["reserved"], serde_json::json!({}));
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
    assert_eq!(studio.show()["reserved"], serde_json::json!({}));
    assert_eq!(studio.counted(), studio.spent());
    // What is over can be removed from the store, and stays in the library.
    assert_eq!(studio.home.status(&["batch", "remove", "last", "--store", &address]), 0);
    let listed = studio.home.run(&["batch", "list", "--store", &address, "--json"]);
    assert_eq!(String::from_utf8(listed.stdout).unwrap().trim(), "[]");
    assert_eq!(studio.home.status(&["batch", "report", "last"]), 1);
}

/// How many events of how many seeds; a long run sets both.
fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().map_or(usual, |text| text.parse().unwrap())
}

/// The next of a row of numbers (a linear congruential generator of Knuth's).
fn next(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

#[test]
fn whatever_is_killed_each_session_has_one_result_and_is_paid_once() {
    let (events, seeds) = (number("CHEMIGRAM_TEST_EVENTS", 5), number("CHEMIGRAM_TEST_SEEDS", 1));
    let photos = ["cup", "bar", "hat", "jar"];
    let alone = Home::new(&photos);
    let plan = |home: &Home, pause| {
        home.write("script.toml", script("Open.", pause));
        let sessions: String =
            photos.iter().map(|photo| format!("[[session]]\nphoto = \"{photo}\"\n\n")).collect();
        home.plan("branches = 4\ntime = \"1h\"", &sessions);
    };
    plan(&alone, 0);
    assert_eq!(alone.overnight(&[]), 0);
    for seed in 1..=seeds {
        let mut studio = Studio::new(&photos);
        plan(&studio.home, 700);
        let mut submitted = studio.submit();
        let mut state = seed;
        for number in 0..3 {
            studio.worker(&format!("w{number}"), &[]);
        }
        for event in 0..events {
            std::thread::sleep(Duration::from_millis(next(&mut state, 3000)));
            let which = usize::try_from(next(&mut state, 3)).unwrap();
            match next(&mut state, 5) {
                0 => studio.server.restart(),
                1 => {
                    submitted.kill().unwrap();
                    submitted.wait().unwrap();
                    submitted = studio.submit();
                }
                2 => {
                    signal(&studio, which, Signal::STOP);
                    std::thread::sleep(Duration::from_secs(4));
                    signal(&studio, which, Signal::CONT);
                }
                _ => {
                    studio.workers[which].kill().unwrap();
                    studio.workers[which].wait().unwrap();
                    studio.worker(&format!("w{which}-{event}"), &[]);
                    let fresh = studio.workers.pop().unwrap();
                    studio.workers[which] = fresh;
                }
            }
        }
        assert_eq!(ended(submitted).status.code(), Some(0), "seed {seed}: {}", studio.logs());
        assert_eq!(studio.home.branches(), alone.branches(), "seed {seed}");
        let mut outcomes = studio.home.outcomes();
        outcomes.sort_by_key(|(place, _)| *place);
        assert_eq!(outcomes.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [0, 1, 2, 3], "seed {seed}");
        assert_eq!(studio.counted(), studio.spent(), "seed {seed}");
        for photo in photos {
            assert_eq!(studio.home.status(&["fsck", photo]), 0, "seed {seed}: {photo}");
        }
    }
}
