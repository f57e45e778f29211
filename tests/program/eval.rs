//! Evaluations as a person runs them: real sessions over a small golden set of the demo's raw, through real
//! darktable. What is killed goes on to the same figures, nothing is paid twice, and a failure of the
//! surroundings is not a bad result.
#![allow(clippy::indexing_slicing, clippy::string_slice, clippy::unwrap_used, clippy::panic)]

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::home::settle;
use base::ids::Hash;
use chemigram::eval::cells;
use chemigram::eval::golden::Golden;
use chemigram::eval::history;
use chemigram::eval::manifest::{self, CellStatus, Manifest};
use chemigram::transcript::Outcome;
use darktable::dng;
use rustix::process::Signal;
use serde_json::Value;

/// A golden set of so many scenarios, each with shadows that were opened by a known amount.
pub fn golden_set(set: &Path, scenarios: usize) {
    let raw = dng::demo_raw().unwrap();
    std::fs::create_dir_all(set.join("raws")).unwrap();
    std::fs::write(set.join("raws/demo.dng"), &raw).unwrap();
    let sha256 = Hash::of(&raw);
    for n in 1..=scenarios {
        let id = format!("00{n}_shadows");
        let amount = 0.4 + 0.3 * n as f64;
        let folder = set.join(&id);
        std::fs::create_dir_all(&folder).unwrap();
        let text = format!(
            r#"
[metadata]
id = "{id}"
title = "A dark cup"
created = "2026-11-22"

[brief]
subject = "A cup."
intent = "Open the shadows."

[image]
path = "../raws/demo.dng"
sha256 = "{sha256}"

[budget]
time = 120
iterations = 10
branches = 1

[[vectors]]
name = "light"
direction = "open the shadows"

[[hidden]]
move = "shadows_lift"
values = {{ amount = {amount} }}
"#
        );
        std::fs::write(folder.join("scenario.toml"), text).unwrap();
    }
    let today = "2026-11-22".parse().unwrap();
    Golden::freeze(set, "recovery", [].into(), "for a test", today).unwrap();
}

/// A home with such a set.
pub struct Home(pub(crate) tempfile::TempDir);

impl Home {
    pub fn new(scenarios: usize) -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        golden_set(&home.path("golden_test"), scenarios);
        home
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chemigram"));
        command.arg("eval").args(arguments).arg("--json").stdin(Stdio::null());
        command.current_dir(self.0.path()).env_remove("CHEMIGRAM_GOLDEN_RAWS_DIR");
        settle(&mut command, self.0.path());
        command
    }

    /// The status and the JSON of `eval …`.
    pub(crate) fn eval(&self, arguments: &[&str]) -> (i32, Value) {
        let Output { status, stdout, stderr } = self.command(arguments).output().unwrap();
        let text = String::from_utf8(stdout).unwrap();
        let value = serde_json::from_str(&text);
        let value = value.unwrap_or_else(|e| panic!("{e}: {text}{}", String::from_utf8_lossy(&stderr)));
        (status.code().unwrap(), value)
    }

    pub fn run(&self, arguments: &[&str]) -> (i32, Manifest) {
        let (status, value) = self.eval(&[&["run", "--golden", "golden_test"], arguments].concat());
        let folder = value["folder"].as_str().unwrap_or_else(|| panic!("{value:#}"));
        (status, Manifest::read(Path::new(folder)).unwrap())
    }

    /// A run in a process group of its own. What it prints for a person is in `said`.
    fn begin(&self, arguments: &[&str]) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chemigram"));
        command.arg("eval").args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        command.current_dir(self.0.path()).env_remove("CHEMIGRAM_GOLDEN_RAWS_DIR");
        settle(&mut command, self.0.path());
        command.stderr(std::fs::File::create(self.0.path().join("said")).unwrap());
        command.process_group(0).spawn().unwrap()
    }

    /// The newest run, once the transcript of its second session is so far.
    fn wait_for_second(&self, far: impl Fn(&str) -> bool) -> String {
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < Duration::from_secs(120), "the second session never came so far");
            std::thread::sleep(Duration::from_millis(5));
            let Ok(folder) = manifest::find(&self.evaluations(), "last") else { continue };
            let Ok(manifest) = Manifest::read(&folder) else { continue };
            if self.second(&manifest).is_some_and(|transcript| far(&transcript)) {
                return manifest.run;
            }
        }
    }

    /// The transcript of a run's second session, as far as it is.
    fn second(&self, run: &Manifest) -> Option<String> {
        let cell = &run.cells[1];
        let photos = self.evaluations().join("cells").join(cell.key.as_str()).join("photos");
        let sessions = photos.join(&cell.scenario).join("sessions/mode_b");
        let entry = std::fs::read_dir(sessions).ok()?.next()?.ok()?;
        std::fs::read_to_string(entry.path().join("transcript.jsonl")).ok()
    }

    pub(crate) fn evaluations(&self) -> PathBuf {
        self.path("data/chemigram/evaluations")
    }
}

/// The sessions of a run: scenario, contestant, session, payer, recovery.
fn sessions(run: &Manifest) -> Vec<(String, String, String, String, f64)> {
    let row = |cell: &manifest::CellRecord| {
        let done = cell.done().unwrap_or_else(|| panic!("{cell:?}"));
        let recovery = done.measured.get("recovery").unwrap();
        let (session, payer) = (done.session.clone(), done.paid_by.clone());
        (cell.scenario.clone(), cell.provider.clone(), session, payer, recovery)
    };
    run.cells.iter().map(row).collect()
}

/// A manifest without names, times and what only tells of them.
pub fn but_for_times(run: &Manifest) -> Value {
    let mut value = serde_json::to_value(run).unwrap();
    for name in ["run", "begun", "ended", "seconds"] {
        value[name] = Value::Null;
    }
    value["asked"]["golden"] = Value::Null;
    for cell in value["cells"].as_array_mut().unwrap() {
        let standing = &mut cell["standing"];
        for name in ["session", "ended", "wall_ms", "paid_by"] {
            standing[name] = Value::Null;
        }
        // Renders depend on what the cache had, seconds on the machine, and a call that a kill cut is made twice.
        standing["spent"] = Value::Null;
        for name in ["seconds", "model_seconds", "render_seconds", "renders", "model_calls"] {
            standing["measured"]["metrics"][name] = Value::Null;
        }
    }
    value
}

#[test]
fn the_baselines_frame_the_explorer_and_a_finished_cell_is_never_paid_twice() {
    let home = Home::new(2);
    let who = ["--provider", "idle,explorer,oracle", "--jobs", "2"];
    let (status, plan) =
        home.eval(&[&["run", "--golden", "golden_test", "--dry-run"], who.as_slice()].concat());
    assert_eq!((status, plan["at_most"]["cells"].as_u64()), (0, Some(6)));
    assert!(!home.evaluations().exists(), "a dry run writes nothing");

    let (status, first) = home.run(&who);
    assert_eq!(status, 0);
    for (scenario, provider, _, payer, recovery) in sessions(&first) {
        match provider.as_str() {
            "idle" => assert!(recovery.abs() < 0.01, "{scenario}: {recovery}"),
            "oracle" => assert!((recovery - 1.0).abs() < 0.01, "{scenario}: {recovery}"),
            _ => assert!(recovery > 0.1, "{scenario}: {recovery}"),
        }
        assert_eq!(payer, first.run);
    }
    assert!(first.broken().is_empty() && first.ended.is_some());

    let (status, second) = home.run(&who);
    assert_eq!((status, sessions(&second)), (0, sessions(&first)));
    assert_ne!(second.run, first.run);
    // Another seed is another cell.
    let (_, third) = home.run(&["--provider", "idle", "--seed", "2", "--scenarios", "*1_sha*"]);
    assert_eq!((third.cells.len(), &third.cells[0].done().unwrap().paid_by), (1, &third.run));

    let (_, list) = home.eval(&["list"]);
    assert_eq!(list.as_array().unwrap().len(), 3);
    assert_eq!(history::history(&home.evaluations()).len(), 3);
    // Two scenarios show nothing, whatever the figures say; and the gate lets pass what has not got worse.
    let pair = [format!("{}:idle", first.run), format!("{}:oracle", second.run)];
    let junit = home.path("compare.xml");
    let gate = ["--gate", "--junit", "compare.xml"];
    let (status, compared) = home.eval(&[&["compare", &pair[0], &pair[1]], gate.as_slice()].concat());
    assert_eq!((status, compared["primary"]["verdict"].as_str()), (0, Some("inconclusive")));
    assert!(std::fs::read_to_string(&junit).unwrap().contains("tests=\"5\" failures=\"0\""));
    let (status, _) = home.eval(&["compare", &pair[0], &pair[1], "--gate=improvement"]);
    assert_eq!(status, 1);
    // The page holds everything: two comparisons, cost against quality, and the pictures: before, and
    // what is worth a look. What `idle` leaves is not.
    let (status, _) = home.eval(&["report", &second.run]);
    let page = std::fs::read_to_string(home.path("evaluation.html")).unwrap();
    assert_eq!((status, page.matches("<img src=\"data:image/jpeg").count()), (0, 6));
    assert_eq!((page.matches("<h2>inconclusive: ").count(), page.matches("<svg").count()), (2, 4));
    let words: String =
        page.split("data:image/jpeg").map(|part| part.split_once('"').map_or(part, |p| p.1)).collect();
    assert!(words.matches("<script").count() == 1 && !words.contains("http://"));
    let (_, shown) = words.split_once("<main>").unwrap();
    assert!(!shown.split("<script>").next().unwrap().contains("NaN"));
    let (status, failure) = home.eval(&["compare", "last", &pair[1], "--metric", "recovry"]);
    assert_eq!(status, 2);
    assert!(failure["error"]["message"].as_str().unwrap().contains("did you mean `recovery`"));
}

#[test]
fn a_killed_run_goes_on_to_the_same_figures() {
    let home = Home::new(1);
    let who = ["--provider", "idle,explorer"];
    let mut child = home.begin(&[&["run", "--golden", "golden_test"], who.as_slice()].concat());
    let cut = home.wait_for_second(|transcript| transcript.lines().count() > 25);
    child.kill().unwrap();
    child.wait().unwrap();
    let folder = manifest::find(&home.evaluations(), &cut).unwrap();
    let killed = Manifest::read(&folder).unwrap();
    assert_eq!((killed.tally().done, killed.tally().not_run), (1, 1), "it was not killed in the middle");
    let CellStatus::NotRun { why, .. } = &killed.cells[1].status else { panic!("{:?}", killed.cells[1]) };
    assert!(why.contains("can be resumed"), "{why}");

    let (status, value) = home.eval(&["resume", &cut[..13]]);
    let resumed = Manifest::read(&folder).unwrap();
    assert_eq!((status, value["run"].as_str()), (0, Some(cut.as_str())), "{:#?}", resumed.cells);
    assert_eq!(resumed.cells[0], killed.cells[0], "the finished one was run again");
    let transcript = home.second(&resumed).unwrap();
    assert!(transcript.contains("\"kind\":\"resumed\""), "the killed session was begun anew");

    // The same in one go, elsewhere.
    let (status, whole) = Home::new(1).run(&who);
    assert_eq!(status, 0);
    assert_eq!(but_for_times(&resumed), but_for_times(&whole));
}

#[test]
fn ctrl_c_lets_a_session_end_twice_cuts_it_and_the_run_goes_on_to_the_same_figures() {
    let home = Home::new(1);
    let who = ["--provider", "idle,explorer,oracle"];
    // A terminal signals the whole group: darktable must not die of it.
    let interrupt = |child: &Child| {
        rustix::process::kill_process_group(rustix::process::Pid::from_child(child), Signal::INT).unwrap();
    };
    let ended = |mut child: Child, most: u64| {
        let began = Instant::now();
        let status = child.wait().unwrap();
        assert!(began.elapsed() < Duration::from_secs(most), "it took {:?}", began.elapsed());
        status.code()
    };
    let child = home.begin(&[&["run", "--golden", "golden_test"], who.as_slice()].concat());
    let run = home.wait_for_second(|transcript| transcript.lines().count() > 25);
    interrupt(&child);
    // Two signals at once would be one.
    let began = Instant::now();
    while !std::fs::read_to_string(home.0.path().join("said")).unwrap().contains("Ctrl-C again") {
        assert!(began.elapsed() < Duration::from_secs(60), "it did not hear the first");
        std::thread::sleep(Duration::from_millis(5));
    }
    interrupt(&child);
    // As long as one picture takes, on a busy machine.
    assert_eq!(ended(child, 120), Some(25));
    let folder = manifest::find(&home.evaluations(), &run).unwrap();
    let cut = Manifest::read(&folder).unwrap();
    assert_eq!((cut.tally().done, cut.tally().not_run), (1, 2));
    let CellStatus::NotRun { why, .. } = &cut.cells[1].status else { panic!("{:?}", cut.cells[1]) };
    assert!(why.contains("can be resumed"), "{why}");

    let child = home.begin(&["resume", &run]);
    home.wait_for_second(|transcript| transcript.contains("\"kind\":\"resumed\""));
    interrupt(&child);
    assert_eq!(ended(child, 300), Some(25));
    let stopped = Manifest::read(&folder).unwrap();
    assert_eq!((stopped.tally().done, stopped.tally().not_run), (2, 1), "{:?}", stopped.cells);
    assert_eq!(stopped.cells[0], cut.cells[0], "the finished one was run again");

    let (status, _) = home.eval(&["resume", &run]);
    assert_eq!(status, 0);
    let whole = home
        .eval(&[&["run", "--golden", "golden_test", "--evaluations", "other"], who.as_slice()].concat())
        .1;
    let whole = Manifest::read(Path::new(whole["folder"].as_str().unwrap())).unwrap();
    assert_eq!(but_for_times(&Manifest::read(&folder).unwrap()), but_for_times(&whole));
}

#[test]
fn the_surroundings_fail_the_money_runs_out_and_neither_is_a_bad_result() {
    let home = Home::new(3);
    std::fs::write(
        home.path("down.toml"),
        "[[reply]]\nfault = { class = \"auth\", status = 401, message = \"no such key\", times = 99 }\n",
    )
    .unwrap();
    let (status, failed) = home.run(&["--provider", "script/down.toml", "--scenarios", "001*"]);
    assert_eq!((status, failed.tally().failed), (12, 1));
    let CellStatus::Failed { failures } = &failed.cells[0].status else { panic!("{:?}", failed.cells[0]) };
    assert_eq!(failures.len(), 3, "it is tried again, and not for ever");
    assert!(failures[0].message.contains("no such key"), "{}", failures[0].message);
    assert_eq!(failed.mean(&failed.arms()[0], "recovery"), None, "a failure has no figure");

    // A call that was cut is paid, each attempt is set aside before it is made, and a resumed run remembers.
    let cut = "[model]\nfree = false\nprice = { input = 1.0, output = 5.0, as_of = \"2026-11-01\" }\n\
               [[reply]]\nfault = { class = \"quota\", times = 99, usage = { input_fresh = 40000, output = 100 } }\n";
    std::fs::write(home.path("cut.toml"), cut).unwrap();
    let one = ["--provider", "script/cut.toml", "--scenarios", "001*", "--cell-cost", "0.10"];
    let (_, thrice) = home.run(&[one.as_slice(), &["--budget", "cost=0.25"]].concat());
    assert_eq!((thrice.cells[0].status.failures().len(), thrice.spent().0), (3, 3 * 40_500));
    let resumed = |cap: &str| {
        home.eval(&["resume", "last", "--budget", cap]);
        let run = Manifest::read(&manifest::find(&home.evaluations(), "last").unwrap()).unwrap();
        (run.cells[0].status.failures().len(), run.spent().0)
    };
    assert_eq!(resumed("cost=0.20"), (3, 3 * 40_500), "there is no room for another attempt");
    let manifest = manifest::find(&home.evaluations(), "last").unwrap().join("manifest.json");
    let before = std::fs::read(&manifest).unwrap();
    assert_eq!(resumed("cost=0.25"), (4, 4 * 40_500), "there is room for one");
    // A program that ends between the closing line of a session and the note that it failed.
    let cell = cells::folder(&home.evaluations(), &thrice.cells[0].key);
    let noted = std::fs::read_to_string(cell.join("failures.jsonl")).unwrap();
    let noted: Vec<&str> = noted.lines().take(3).collect();
    std::fs::write(cell.join("failures.jsonl"), noted.join("\n") + "\n").unwrap();
    std::fs::rename(cell.join("failed_4"), cell.join("photos")).unwrap();
    std::fs::write(&manifest, before).unwrap();
    assert_eq!(resumed("cost=0.23"), (4, 4 * 40_500), "it is noted then");
    assert!(cell.join("failed_4").is_dir() && !cell.join("failed_5").exists(), "and no other was begun");

    // Six cents a session, at most twenty: after the first, the second might pass twenty-five and a half.
    let model = "[model]\nfree = false\nprice = { input = 1.0, output = 5.0, as_of = \"2026-11-01\" }\n";
    let confirm = r#"calls = [{ name = "confirm_session", arguments = '{"vectors": [{"name": "light", "restated": "brighter"}]}' }]"#;
    let end = r#"calls = [{ name = "end_mode_b_session", arguments = '{"session_summary": "Nothing."}' }]"#;
    let used = "usage = { input_fresh = 30000, output = 20 }";
    let script = format!("{model}[[reply]]\n{used}\n{confirm}\n[[reply]]\n{used}\n{end}\n");
    std::fs::write(home.path("dear.toml"), script).unwrap();
    let dear = ["--provider", "script/dear.toml"];
    let (status, refused) = home.eval(&[&["run", "--golden", "golden_test"], dear.as_slice()].concat());
    assert_eq!(status, 2);
    assert!(refused["error"]["message"].as_str().unwrap().contains("is not limited"), "{refused}");
    let capped = [dear.as_slice(), &["--cell-cost", "0.20", "--budget", "cost=0.255"]].concat();
    let (status, poor) = home.run(&capped);
    assert_eq!((status, poor.tally().done, poor.tally().not_run), (10, 1, 2), "{:?}", poor.spent());
    assert_eq!(poor.spent().0, 60_200);
    let CellStatus::NotRun { why, .. } = &poor.cells[1].status else { panic!("{:?}", poor.cells[1]) };
    assert!(why.contains("cost limit reached"), "{why}");
    let (status, _) = home.eval(&["resume", "last", "--budget", "cost=1"]);
    let rich = Manifest::read(&manifest::find(&home.evaluations(), "last").unwrap()).unwrap();
    assert_eq!((status, rich.tally().done, rich.spent().0), (0, 3, 180_600));
    // A session that did nothing is a result, and a bad one.
    assert_eq!(rich.mean(&rich.arms()[0], "recovery"), Some((0.0, 3)));
    assert!(rich.cells.iter().all(|cell| cell.done().unwrap().outcome == Outcome::Completed));
}

#[test]
fn a_protocol_is_an_arm_of_its_own_and_a_changed_one_is_a_new_cell() {
    let home = Home::new(1);
    let own = |name: &str, text: &str| std::fs::write(home.path(name), text).unwrap();
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/golden_v1");
    let run = |more: &[&str]| {
        let set =
            ["run", "--golden", golden, "--scenarios", "006*,017*", "--jobs", "2", "--referee", "offline"];
        home.eval(&[set.as_slice(), more].concat())
    };
    let (status, done) = run(&["--protocol", "none,mode_b_explore"]);
    assert_eq!(status, 0, "{done:#}");
    let first = Manifest::read(Path::new(done["folder"].as_str().unwrap())).unwrap();
    let [free, steered] = first.arms().try_into().unwrap();
    assert_eq!((free.protocol, free.referee, free.prompt.as_str()), (None, None, "mode_b/system@v3"));
    assert_eq!(steered.prompt, "mode_b/protocol@v2");
    let named = steered.protocol.unwrap();
    assert!(named.starts_with("mode_b_explore@") && first.protocols[0].protocol == named);
    assert_eq!(steered.referee.as_deref(), Some("offline/numbers-2"));
    for cell in &first.cells {
        let photos = home.evaluations().join("cells").join(cell.key.as_str()).join("photos");
        let session = photos.join(&cell.scenario).join("sessions/mode_b").join(&cell.done().unwrap().session);
        let transcript = std::fs::read_to_string(session.join("transcript.jsonl")).unwrap();
        let asked = transcript.contains("\"kind\":\"referee\"");
        assert_eq!(asked, cell.protocol.is_some(), "{} {:?}", cell.scenario, cell.protocol);
    }

    let sides = ["last:protocol=none", "last:mode_b_explore"];
    let (status, compared) =
        home.eval(&[&["compare"], sides.as_slice(), &["--gate", "--junit", "compare.xml"]].concat());
    assert_eq!((status, compared["primary"]["verdict"].as_str()), (0, Some("inconclusive")));
    assert_eq!((&compared["a"][1]["protocol"], &compared["b"][1]["protocol"]), (&Value::Null, &named.into()));
    assert_eq!(compared["cautions"], serde_json::json!([]), "prompt and referee come with the protocol");
    let junit = std::fs::read_to_string(home.path("compare.xml")).unwrap();
    assert!(junit.contains("protocol=mode_b_explore@"), "{junit}");
    let (status, _) = home.eval(&["report", "last"]);
    let page = std::fs::read_to_string(home.path("evaluation.html")).unwrap();
    assert!(status == 0 && page.contains("protocol=mode_b_explore@") && page.contains("protocol=none"));

    // The same text under another name is the same protocol; a changed one is another, and the rest stays.
    let text = include_str!("../../protocols/mode_b_explore.toml");
    own("mine.toml", text);
    let (_, plan) = run(&["--protocol", "none,mine.toml", "--dry-run"]);
    assert_eq!((&plan["at_most"]["cells"], &plan["at_most"]["finished"]), (&4.into(), &4.into()));
    own("mine.toml", &text.replace("default = 12", "default = 11"));
    let (_, plan) = run(&["--protocol", "none,mine.toml", "--dry-run"]);
    for (cell, before) in plan["plan"]["cells"].as_array().unwrap().iter().zip(&first.cells) {
        let same = cell["key"] == before.key.as_str();
        assert_eq!((same, cell["standing"]["is"] == "done"), (before.protocol.is_none(), same), "{cell:#}");
    }

    // A referee that costs is paid from the session's budget, and nothing else limits that here.
    let script = "[model]\nvision = true\nfree = false\nprice = { input = 1.0, output = 5.0, as_of = \"2026-11-01\" }\n";
    own("judge.toml", script);
    let dear = ["--protocol", "none,mine.toml", "--dry-run", "--referee", "script:judge.toml"];
    let again = |more: &[&str]| {
        let set = ["run", "--golden", golden, "--scenarios", "006*,017*"];
        home.eval(&[set.as_slice(), &dear, more].concat())
    };
    let (status, refused) = again(&[]);
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(status == 2 && message.contains("with script/judge.toml as referee"), "{status} {message}");
    let (_, plan) = again(&["--cell-cost", "0.10"]);
    let at_most = &plan["at_most"];
    assert_eq!((&at_most["finished"], &at_most["cost_micro_usd"]), (&2.into(), &600_000.into()));
    // Both orders of the one branch, and a pair again; of thirty iterations and twenty calls beside them. All of
    // it three times, for a session that the provider fails is repeated twice.
    assert_eq!((&at_most["referee_calls"], &at_most["model_calls"]), (&24.into(), &300.into()));

    // What cannot be steered is said before anything begins.
    let needy = text.replace("[variables.brief]", "[variables.mood]\ntype = \"string\"\n\n[variables.brief]");
    own("needy.toml", &needy.replace("Change nothing yet.", "Change nothing yet. {{mood}}"));
    for (arguments, said) in [
        (["--protocol", "needy.toml"], "needs `mood`, which 006_coffee_morning does not give"),
        (["--protocol", "calibrate_brief"], "cannot steer a session on 006_coffee_morning"),
        (["--protocol", "mode_b_exlpore"], "did you mean `mode_b_explore`"),
        (["--protocol", "none"], "no protocol asks for one"),
    ] {
        let (status, refused) = run(&arguments);
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains(said), "{message}");
        assert_eq!(status, if said.starts_with("did") { 3 } else { 2 }, "{message}");
    }
    assert_eq!(manifest::runs(&home.evaluations()).len(), 1);
}

#[test]
fn e10_the_sets_in_the_program_are_found_from_any_folder_and_doing_nothing_may_be_the_whole_answer() {
    let home = Home::new(1);
    for set in ["golden_v1", "golden_v2", "v2"] {
        let (status, verified) = home.eval(&["verify", set]);
        assert_eq!((status, &verified["frozen"]), (0, &Value::Bool(true)), "{verified:#}");
        assert!(verified["folder"].as_str().unwrap().starts_with(home.0.path().to_str().unwrap()));
    }
    let (status, refused) = home.eval(&["verify", "golden_v3"]);
    assert!(status == 3 && refused.to_string().contains("golden_v2"), "{status} {refused}");
    // A photo that meets its brief already: the raw is made, and a session that edits nothing has found everything.
    let set = ["run", "--golden", "golden_v2", "--scenarios", "017*", "--provider", "idle"];
    let (status, done) = home.eval(&set);
    assert_eq!(status, 0, "{done:#}");
    let run = Manifest::read(Path::new(done["folder"].as_str().unwrap())).unwrap();
    assert_eq!(run.mean(&run.arms()[0], "recovery"), Some((1.0, 1)));
    assert_eq!(run.mean(&run.arms()[0], "over_edit"), Some((0.0, 1)));
    assert_eq!(std::fs::read_dir(home.evaluations().join("raws")).unwrap().count(), 1);
}
