//! An evaluation on many machines: real workers and a real server make what a run on one machine makes, also when a
//! worker or whoever submitted it is killed, and within the same budget.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::eval::{but_for_times, golden_set};
use crate::home::settle;
use crate::many_machines::{Studio, TAKEN_OVER, awaits_judgment, ended, until};
use crate::overnight::{Home, script};
use chemigram::budget::Amounts;
use chemigram::eval::cells;
use chemigram::eval::manifest::{self, CellRecord, CellStatus, Manifest};
use chemigram::session::listing;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// A home with such a set, and a script of the model.
fn home(scenarios: usize) -> Home {
    let home = Home::new(&[]);
    golden_set(&home.path("golden_test"), scenarios);
    home
}

fn studio(scenarios: usize) -> Studio {
    let studio = Studio::new(&[]);
    golden_set(&studio.home.path("golden_test"), scenarios);
    studio
}

/// `eval run` of the set with these arguments, which ends with a status.
fn run(home: &Home, more: &[&str]) -> i32 {
    let set = home.path("golden_test");
    home.status(&[&["eval", "run", "--golden", set.to_str().unwrap()], more].concat())
}

fn on(studio: &Studio, more: &[&str]) -> i32 {
    run(&studio.home, &[more, &["--store", &studio.address()]].concat())
}

/// The same, not waited for.
fn begun(studio: &Studio, more: &[&str]) -> Child {
    let (set, address) = (studio.home.path("golden_test"), studio.address());
    let args = [&["eval", "run", "--golden", set.to_str().unwrap(), "--store", &address], more].concat();
    studio.home.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn evaluations(home: &Home) -> PathBuf {
    home.path("data/chemigram/evaluations")
}

fn last(home: &Home) -> Manifest {
    try_last(home).unwrap()
}

fn try_last(home: &Home) -> Option<Manifest> {
    Manifest::read(&manifest::find(&evaluations(home), "last").ok()?).ok()
}

/// A script on the branch of the set's direction, under a path that all workers have.
fn scripted(home: &Home, name: &str, text: &str) -> String {
    home.write(name, text);
    format!("script/{}", home.path(name).display())
}

/// Every branch of a cell's photo, with its commit.
fn branches(home: &Home, cell: &CellRecord) -> Vec<String> {
    let workspace = cells::workspace(&evaluations(home), cell).unwrap();
    let rows = workspace.branches().unwrap();
    rows.into_iter().map(|(name, commit)| format!("{} {name} {commit}", cell.scenario)).collect()
}

fn all_branches(home: &Home) -> Vec<String> {
    last(home).cells.iter().flat_map(|cell| branches(home, cell)).collect()
}

/// The names of all files of a cell but for locks, which stay where they were held.
fn files(home: &Home, cell: &CellRecord) -> BTreeSet<String> {
    fn walk(folder: &Path, within: &str, session: &str, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap().replace(session, "SESSION");
            let path = format!("{within}/{name}");
            match entry.file_type().unwrap().is_dir() {
                true => walk(&entry.path(), &path, session, found),
                false if path.ends_with("lock") => {}
                false => _ = found.insert(path),
            }
        }
    }
    let mut found = BTreeSet::new();
    let session = &cell.done().unwrap().session;
    walk(&cells::folder(&evaluations(home), &cell.key), "", session, &mut found);
    found
}

/// What the sessions of a run spent by their transcripts.
fn spent(home: &Home) -> Amounts {
    let each = last(home).cells.into_iter().filter_map(|cell| {
        let session = cell.done()?.session.parse().unwrap();
        let workspace = cells::workspace(&evaluations(home), &cell).unwrap();
        Some(listing::read(&workspace, &session).unwrap().ledger.settled())
    });
    each.fold(Amounts::default(), Amounts::plus)
}

/// Whether a cell of this worker waits for its model's judgment.
fn edited(studio: &Studio, worker: &str) -> bool {
    let all =
        |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    all(studio.home.path(&format!("{worker}.home")))
        .flat_map(|home| all(home.join("cells")))
        .flat_map(|cell| all(cell.join("photos")))
        .flat_map(|photo| all(photo.join("sessions/mode_b")))
        .map(|session| std::fs::read_to_string(session.join("transcript.jsonl")).unwrap_or_default())
        .any(|text| awaits_judgment(&text))
}

#[test]
fn workers_make_of_an_evaluation_what_one_machine_makes() {
    let who = ["--provider", "explorer,idle,explorer/explorer-1-timid", "--repeat", "2"];
    let alone = home(2);
    assert_eq!(run(&alone, &who), 0);
    let mut studio = studio(2);
    for name in ["one", "two"] {
        studio.worker(name, &[]);
    }
    assert_eq!(on(&studio, &who), 0, "{}", studio.logs());
    let (here, there) = (last(&alone), last(&studio.home));
    assert_eq!(there.cells.len(), 12);
    assert_eq!(but_for_times(&there), but_for_times(&here));
    assert_eq!(all_branches(&studio.home), all_branches(&alone));
    for (one, other) in there.cells.iter().zip(&here.cells) {
        assert_eq!(files(&studio.home, one), files(&alone, other), "{}", one.scenario);
        let photos = cells::folder(&evaluations(&studio.home), &one.key).join("photos");
        let mut fsck = Command::new(env!("CARGO_BIN_EXE_chemigram"));
        fsck.arg("--library").arg(photos).args(["fsck", &one.scenario]);
        settle(&mut fsck, &studio.home.path(""));
        assert!(fsck.output().unwrap().status.success(), "{}", one.scenario);
    }
    let shown = studio.settled();
    assert_eq!((shown["state"].as_str(), shown["evaluation"].as_str()), (Some("over"), Some(&*there.run)));
    assert_eq!(studio.counted(), spent(&studio.home));
    let workers: BTreeSet<&str> =
        shown["jobs"].as_array().unwrap().iter().filter_map(|job| job["worker"].as_str()).collect();
    assert_eq!(workers, ["one", "two"].into());
    // What reads a run needs to know nothing of it; finished cells are not run again, here or there.
    for verb in [["eval", "report", "last"], ["eval", "show", "last"]] {
        let output = studio.home.command(&verb).current_dir(studio.home.path("")).output().unwrap();
        assert!(output.status.success(), "{verb:?}");
    }
    assert_eq!(run(&studio.home, &who), 0);
    assert_eq!(last(&studio.home).cells, there.cells);
    // A batch of an evaluation is followed as an evaluation.
    let refused = studio.home.run(&["batch", "watch", "last", "--store", &studio.address(), "--json"]);
    let refused: Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert!(refused["error"]["remedy"].as_str().unwrap().contains("eval resume"), "{refused}");
    assert_eq!(studio.home.status(&["batch", "remove", "last", "--store", &studio.address()]), 0);
    assert_eq!(studio.home.run(&["batch", "list", "--store", &studio.address()]).stdout, b"");
}

#[test]
fn a_worker_killed_in_a_cell_and_a_submitter_killed_cost_nothing() {
    let text = script("Open.", 2500).replace("tone", "light");
    let undisturbed = home(2);
    let who = scripted(&undisturbed, "script.toml", &text.replace("2500", "0"));
    assert_eq!(run(&undisturbed, &["--provider", &who]), 0);
    let mut studio = studio(2);
    let who = scripted(&studio.home, "script.toml", &text);
    studio.lease = TAKEN_OVER;
    studio.worker("first", &[]);
    let mut submitter = begun(&studio, &["--provider", &who]);
    until("an edit", || edited(&studio, "first"));
    studio.workers[0].kill().unwrap();
    studio.workers[0].wait().unwrap();
    submitter.kill().unwrap();
    submitter.wait().unwrap();
    studio.worker("second", &[]);
    // The run remembers its store.
    assert_eq!(studio.home.status(&["eval", "resume", "last"]), 0, "{}", studio.logs());
    assert_eq!(all_branches(&studio.home), all_branches(&undisturbed));
    let shown = studio.show();
    assert_eq!((&shown["jobs"][0]["worker"], &shown["jobs"][0]["claims"]), (&json!("second"), &json!(2)));
    assert_eq!(studio.counted(), spent(&studio.home));
    let cut = last(&studio.home);
    assert!(cut.cells.iter().all(|cell| cell.status.failures().is_empty()), "{:?}", cut.cells);
    let calls = |home: &Home| spent(home).model_calls;
    // No more than the call that was under way when the worker was killed is made twice.
    assert!(calls(&studio.home) - calls(&undisturbed) <= 1, "{}", calls(&studio.home));
    assert!(!evaluations(&studio.home).join("runs").join(&cut.run).join("store.json").exists());
}

#[test]
fn a_worker_that_is_asked_to_end_gives_the_cell_back() {
    let mut studio = studio(1);
    let text = script("Open.", 2500).replace("tone", "light");
    let who = scripted(&studio.home, "script.toml", &text);
    studio.worker("first", &[]);
    let submitted = begun(&studio, &["--provider", &who]);
    until("an edit", || edited(&studio, "first"));
    let pid = i32::try_from(studio.workers[0].id()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    assert_eq!(ended(studio.workers.remove(0)).status.code(), Some(0), "{}", studio.logs());
    let job = studio.show()["jobs"][0].clone();
    assert_eq!(
        (job["state"].as_str(), job["why"].as_str()),
        (Some("waiting"), Some("its worker ended")),
        "{job}"
    );
    // Ctrl-C ends the following, and not the batch.
    let pid = i32::try_from(submitted.id()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::INT).unwrap();
    assert_eq!(ended(submitted).status.code(), Some(25));
    assert_eq!(studio.show()["state"], "open");
    studio.worker("second", &[]);
    let resume = ["eval", "resume", "last", "--store", &studio.address()];
    assert_eq!(studio.home.status(&resume), 0, "{}", studio.logs());
    // The reply that was under way is not paid again.
    assert_eq!(spent(&studio.home).model_calls, 5);
    assert_eq!(studio.counted(), spent(&studio.home));
}

#[test]
fn the_budget_of_the_run_holds_over_all_workers_and_a_failure_is_no_result() {
    let mut studio = studio(3);
    for name in ["one", "two"] {
        studio.worker(name, &[]);
    }
    let model = "[model]\nfree = false\nprice = { input = 1.0, output = 5.0, as_of = \"2026-11-01\" }\n";
    // A session that fails is paid, and tried again as long as there is room for another.
    let fault = "[[reply]]\nfault = { class = \"quota\", times = 99, usage = { input_fresh = 40000, output = 100 } }\n";
    let who = scripted(&studio.home, "cut.toml", &format!("{model}{fault}"));
    let one = ["--provider", &who, "--scenarios", "001*", "--cell-cost", "0.10"];
    for (cap, attempts) in [("cost=0.25", 3), ("cost=0.15", 2)] {
        let other = ["--seed", if attempts == 3 { "1" } else { "2" }];
        assert_eq!(on(&studio, &[one.as_slice(), &["--budget", cap], other.as_slice()].concat()), 12);
        let failed = last(&studio.home);
        assert_eq!(
            (failed.cells[0].status.failures().len(), failed.spent().0),
            (attempts, attempts as u64 * 40_500)
        );
        assert_eq!(studio.counted().cost_micro_usd, attempts as u64 * 40_500);
    }
    // Six cents a session, at most twenty: after the first, the second might pass twenty-five and a half.
    let confirm = r#"calls = [{ name = "confirm_session", arguments = '{"vectors": [{"name": "light", "restated": "brighter"}]}' }]"#;
    let end = r#"calls = [{ name = "end_mode_b_session", arguments = '{"session_summary": "Nothing."}' }]"#;
    let used = "usage = { input_fresh = 30000, output = 20 }";
    let dear = format!("{model}[[reply]]\n{used}\n{confirm}\n[[reply]]\n{used}\n{end}\n");
    let who = scripted(&studio.home, "dear.toml", &dear);
    let dear = ["--provider", &who, "--cell-cost", "0.20", "--budget", "cost=0.255"];
    assert_eq!(on(&studio, &dear), 10, "{}", studio.logs());
    let poor = last(&studio.home);
    assert_eq!((poor.tally().done, poor.tally().not_run, poor.spent().0), (1, 2, 60_200));
    let open = poor.cells.iter().find_map(|cell| match &cell.status {
        CellStatus::NotRun { why, .. } => Some(why.clone()),
        _ => None,
    });
    assert!(open.unwrap().contains("the budget of the batch has nothing left for it"));
    let resume = ["eval", "resume", "last", "--budget", "cost=1", "--store", &studio.address()];
    assert_eq!(studio.home.status(&resume), 0, "{}", studio.logs());
    let rich = last(&studio.home);
    assert_eq!((rich.tally().done, rich.spent().0), (3, 180_600));
    assert_eq!(studio.counted().cost_micro_usd, 120_400);
}

#[test]
fn a_worker_with_another_vocabulary_says_so_and_a_cancelled_run_goes_on_later() {
    let mut studio = studio(1);
    studio.lease = TAKEN_OVER;
    let config = studio.home.path("data/chemigram/vocabulary/looks");
    let submitted = begun(&studio, &["--provider", "idle"]);
    until("a batch", || studio.show()["state"] == "open");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("mine.toml"), "# nothing yet").unwrap();
    studio.worker("one", &[]);
    let output = ended(submitted);
    assert_eq!(output.status.code(), Some(4), "{}", studio.logs());
    let failed = last(&studio.home);
    let CellStatus::Failed { failures } = &failed.cells[0].status else { panic!("{:?}", failed.cells[0]) };
    assert!(failures[0].message.contains("it differs in vocabulary"), "{failures:?}\n{}", studio.logs());
    std::fs::remove_dir_all(config).unwrap();
    // Cancelled before anybody works on it, and collected when a worker has said so.
    let address = studio.address();
    studio.workers[0].kill().unwrap();
    studio.workers[0].wait().unwrap();
    let mut resumed = studio.home.command(&["eval", "resume", "last", "--store", &address]).spawn().unwrap();
    until("another batch", || studio.show()["state"] == "open");
    assert_eq!(studio.home.status(&["batch", "cancel", "last", "--store", &address]), 0);
    studio.worker("two", &[]);
    assert_ne!(resumed.wait().unwrap().code(), Some(0));
    let cancelled = try_last(&studio.home).unwrap();
    let CellStatus::NotRun { why, .. } = &cancelled.cells[0].status else {
        panic!("{:?}", cancelled.cells[0])
    };
    assert_eq!(why, "the batch was cancelled");
    assert_eq!(studio.home.status(&["eval", "resume", "last"]), 0);
    assert_eq!(last(&studio.home).tally().done, 1);
}
