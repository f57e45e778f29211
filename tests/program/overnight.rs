//! Batches as a photographer runs them: scripted sessions on the demo's raw, through the real darktable. One that
//! fails does not end the batch, the budget of the batch holds, a kill costs nothing, and no text becomes markup.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::home;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::support::{confirm, reply};
use base::assets::Overlay;
use chemigram::overnight::record::{self, Batch, Entry};
use chemigram::session::listing;
use chemigram::transcript::{Event, Outcome};
use darktable::baseline::Untouched;
use darktable::dng;
use darktable::layout::Layouts;
use engine::photo::{IngestOptions, Library, ingest};
use serde_json::json;
use testkit::chat_stub::{ChatStub, StubReply};
use testkit::folder::kept_folder;
use testkit::kept;

/// A home, with renders that all tests of this file share.
pub struct Home(tempfile::TempDir);

/// What darktable does to the demo's raw by default, asked once.
static UNTOUCHED: LazyLock<Untouched> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    let raw = dir.path().join("demo.dng");
    std::fs::write(&raw, dng::demo_raw().unwrap()).unwrap();
    let layouts = Layouts::new(Overlay::vocabulary(None));
    kept::ask(&layouts, &raw, dir.path()).unwrap()
});

impl Home {
    /// With these photos in its library, which differ by a byte.
    pub fn new(photos: &[&str]) -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        let ask = |_: &Path| Ok(UNTOUCHED.clone());
        for (number, name) in photos.iter().enumerate() {
            let mut raw = dng::demo_raw().unwrap();
            raw.extend(std::iter::repeat_n(0, number));
            let file = format!("{name}.dng");
            home.write(&file, raw);
            let options = IngestOptions { id: Some(name.parse().unwrap()), brief: None };
            ingest(&home.library(), &home.path(&file), options, &ask).unwrap();
        }
        home
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), bytes).unwrap();
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chemigram"));
        command.arg("--library").arg(self.path("photos")).args(args);
        home::settle(&mut command, self.0.path());
        command.env("XDG_CACHE_HOME", kept_folder("nights"));
        for name in ["CHEMIGRAM_PROVIDER", "CHEMIGRAM_MODEL", "CHEMIGRAM_LIBRARY"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap()
    }

    pub fn status(&self, args: &[&str]) -> i32 {
        let output = self.run(args);
        output.status.code().unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stderr)))
    }

    /// Writes `plan.toml`: these caps, and scripted sessions.
    pub fn plan(&self, caps: &str, sessions: &str) {
        let defaults = "[defaults]\nprovider = \"script\"\nmodel = \"script.toml\"\npreview_size = 256\n\
                        budget = \"time=5m,iterations=12,branches=1\"\nvectors = [\"tone=lift the shadows\"]\n";
        self.write("plan.toml", format!("[budget]\n{caps}\n\n{defaults}\n{sessions}"));
    }

    pub fn overnight(&self, more: &[&str]) -> i32 {
        let plan = self.path("plan.toml");
        self.status(&[&["overnight", plan.to_str().unwrap()], more].concat())
    }

    pub fn begin(&self) -> Child {
        let plan = self.path("plan.toml");
        self.command(&["overnight", plan.to_str().unwrap()]).spawn().unwrap()
    }

    pub fn library(&self) -> Library {
        Library::new(self.path("photos"))
    }

    pub fn batch(&self) -> Option<Batch> {
        record::find(&self.library(), "last").ok()
    }

    /// The sessions that were begun, by place, each id once.
    pub fn begun(&self) -> Vec<(usize, String)> {
        let mut begun: Vec<(usize, String)> = Vec::new();
        for stamped in self.batch().unwrap().entries {
            if let Entry::Started { place, session, .. } = stamped.entry
                && !begun.iter().any(|(_, known)| known == session.as_str())
            {
                begun.push((place, session.to_string()));
            }
        }
        begun
    }

    pub fn outcomes(&self) -> Vec<(usize, Outcome)> {
        let ended = |stamped: record::Stamped| match stamped.entry {
            Entry::Ended { place, outcome, .. } => Some((place, outcome)),
            _ => None,
        };
        self.batch().unwrap().entries.into_iter().filter_map(ended).collect()
    }

    /// All branches of all photos with their commits.
    pub fn branches(&self) -> Vec<String> {
        let library = self.library();
        let mut all = Vec::new();
        for id in library.photos().unwrap() {
            let workspace = library.open(&id).unwrap();
            let rows = workspace.branches().unwrap();
            all.extend(rows.into_iter().map(|(name, commit)| format!("{id} {name} {commit}")));
        }
        all
    }

    pub fn report(&self, name: &str) -> String {
        std::fs::read_to_string(self.batch().unwrap().folder.join(name)).unwrap()
    }

    /// Waits until something holds.
    pub fn wait(&self, what: &str, holds: impl Fn() -> bool) {
        let started = Instant::now();
        while !holds() {
            assert!(started.elapsed() < Duration::from_secs(60), "{what} did not come about");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether the session at `place` is about to wait for its model's last but one reply: its branch is edited.
    pub fn edited(&self, place: usize) -> bool {
        let Some(batch) = self.batch() else { return false };
        let Some(Some((photo, id, _))) = batch.tracks().get(place).map(|track| track.session.clone()) else {
            return false;
        };
        let Ok(workspace) = self.library().open(&photo) else { return false };
        let path = workspace.session_folder(&id).join("transcript.jsonl");
        std::fs::read_to_string(path).is_ok_and(|text| text.matches("snapshot_created").count() >= 2)
    }
}

/// A session that lifts the shadows and judges that, with these words; before the judgment it waits.
pub fn script(words: &str, pause_ms: u64) -> String {
    let judgment = format!(
        r#"{{"branch": "branch_b_tone", "judged_score": 4, "judged_reasoning": "{words}", "key_moves": ["shadows_lift"]}}"#
    );
    let end = format!(r#"{{"session_summary": "{words}"}}"#);
    let judge = reply(&[("record_judgment", &judgment)]);
    [
        confirm(&["tone"]),
        reply(&[("branch", r#"{"name": "branch_b_tone"}"#)]),
        reply(&[(
            "apply_primitive",
            r#"{"primitive_name": "shadows_lift", "parameter_values": {"amount": 0.8}}"#,
        )]),
        judge.replace("[[reply]]\n", &format!("[[reply]]\ndelay_ms = {pause_ms}\n")),
        reply(&[("end_mode_b_session", &end)]),
    ]
    .concat()
}

/// Words that are markup, if anyone takes them for it.
const HOSTILE: &str = "<script>alert(1)</script><img src=x onerror=alert(2)>&amp; ok";

#[test]
fn one_fails_the_budget_stops_the_last_and_the_report_says_so_in_plain_text() {
    let home = Home::new(&[]);
    home.write("script.toml", script(HOSTILE, 0));
    home.write("one.dng", dng::demo_raw().unwrap());
    home.write("broken.dng", &dng::demo_raw().unwrap()[..2000]);
    home.write("two.dng", [dng::demo_raw().unwrap(), vec![0]].concat());
    home.write("brief.md", "A bar.</p><script src='http://evil.example/x.js'></script>\n\"Quiet\" & warm.");
    let last = "vectors = [\"a=x\", \"b=y\"]\nbudget = \"time=5m,iterations=12,branches=2\"";
    home.plan(
        "branches = 2\ntime = \"1h\"",
        &format!(
            "[[session]]\nphoto = \"one.dng\"\nbrief = \"@brief.md\"\n\n[[session]]\nphoto = \"broken.dng\"\n\n\
             [[session]]\nphoto = \"two.dng\"\n{last}\n"
        ),
    );
    assert_eq!(home.overnight(&["--dry-run"]), 0);
    assert!(!home.path("photos").exists(), "a dry run took something in");
    assert_eq!(home.overnight(&[]), 1);
    assert_eq!(home.outcomes(), [(0, Outcome::Completed)]);
    let branches = home.branches();
    let [tone, main] = &branches[..] else { panic!("{branches:?}") };
    let baseline = home.library().open(&"one".parse().unwrap()).unwrap().baseline().to_string();
    assert!(
        main.ends_with(&baseline) && tone.starts_with("one branch_b_tone"),
        "main was moved: {branches:?}"
    );

    let text = home.report("report.txt");
    for words in [
        "darktable cannot decode it",
        "not enough branches left in the batch: 1, 2 needed",
        "1 of 2 branches",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let html = home.report("report.html");
    for words in [
        "not enough branches left in the batch: 1",
        "&lt;script&gt;alert(1)",
        "copy it from the card again",
        "4&#x2f;5",
    ] {
        assert!(html.contains(words), "{words} is not in the page");
    }
    // One script, ours, and no address but those of the pictures and of an empty icon.
    assert_eq!(html.matches("<script").count(), 1);
    for markup in ["<img src=x", "<iframe", "src=\"http", "href=\"http"] {
        assert!(!html.contains(markup), "{markup} is in the page");
    }
    // The baseline and the branch.
    assert_eq!(html.matches("<img src=\"data:image/jpeg;base64,").count(), 2);
    assert!(html.contains("chemigram promote one branch_b_tone"), "how to accept is not in the page");

    // Going on tries what failed, and nothing else.
    let begun = home.begun();
    assert_eq!(home.status(&["overnight", "--resume", "last"]), 1);
    assert_eq!((home.begun(), home.branches()), (begun, branches));
}

/// A server that is out for three calls, then does what [`script`] does.
fn recovering() -> ChatStub {
    let out = || StubReply::status(503, &[("retry-after-ms", "20")], "<html>maintenance</html>");
    let mut replies: Vec<StubReply> = (0..3).map(|_| out()).collect();
    replies.extend([
        StubReply::call("confirm_session", json!({"vectors": [{"name": "tone", "restated": "Open it."}]})),
        StubReply::call("branch", json!({"name": "branch_b_tone"})),
        StubReply::call(
            "apply_primitive",
            json!({"primitive_name": "shadows_lift", "parameter_values": {"amount": 0.8}}),
        ),
        StubReply::call(
            "record_judgment",
            json!({"branch": "branch_b_tone", "judged_score": 4, "judged_reasoning": "Open.", "key_moves": ["shadows_lift"]}),
        ),
        StubReply::call("end_mode_b_session", json!({"session_summary": "Done."})),
    ]);
    ChatStub::start(replies)
}

#[test]
fn a_run_that_ended_well_and_left_nothing_to_look_at_says_so_by_its_status() {
    let home = Home::new(&["one", "two"]);
    let ends = reply(&[("end_mode_b_session", r#"{"session_summary": "It is good as it is."}"#)]);
    home.write("idle.toml", confirm(&["tone"]) + &ends);
    home.write("script.toml", script("Open.", 0));
    let idle = |photo: &str| format!("[[session]]\nphoto = \"{photo}\"\nmodel = \"idle.toml\"\n\n");
    home.plan("branches = 4", &[idle("one"), idle("two")].concat());
    assert_eq!(home.overnight(&[]), 28);
    assert_eq!(home.outcomes(), [(0, Outcome::Completed), (1, Outcome::Completed)]);
    // One branch is enough.
    home.plan("branches = 4", &(idle("one") + "[[session]]\nphoto = \"two\"\n"));
    assert_eq!(home.overnight(&[]), 0);
}

#[test]
fn k1_six_photos_with_a_broken_raw_and_a_provider_that_is_out_for_a_while() {
    let raws = ["one", "two", "three", "four", "five"];
    let home = Home::new(&raws);
    home.write("script.toml", script("Open.", 0));
    home.write("broken.dng", &dng::demo_raw().unwrap()[..2000]);
    let server = recovering();
    std::fs::create_dir_all(home.path("config/chemigram/providers")).unwrap();
    let profile = format!(
        "name = \"studio\"\nsummary = \"a server in the studio\"\ndialect = \"openai_chat\"\nbase_url = \"{}\"\n\
         key_env = \"STUDIO_API_KEY\"\nkey_optional = true\nfree = true\n\n[other_models]\ncontext = 32768\nvision = false\n",
        server.url()
    );
    home.write("config/chemigram/providers/studio.toml", profile);
    let session = |photo: &str, more: &str| format!("[[session]]\nphoto = \"{photo}\"\n{more}\n");
    let lan = "provider = \"studio\"\nmodel = \"any\"\n";
    let sessions = [
        session("one", ""),
        session("two", ""),
        session("broken.dng", ""),
        session("three", lan),
        session("four", ""),
        session("five", ""),
    ];
    home.plan("branches = 6\ntime = \"1h\"", &sessions.concat());
    assert_eq!(home.overnight(&[]), 1, "one did not come to its end");
    let done: Vec<(usize, Outcome)> = [0, 1, 3, 4, 5].map(|place| (place, Outcome::Completed)).into();
    assert_eq!(home.outcomes(), done);
    assert_eq!(home.branches().len(), 10, "main and one branch of each: {:?}", home.branches());

    // The outage is in the transcript of the session that it met, and cost it three calls.
    let (_, session) = home.begun().into_iter().find(|(place, _)| *place == 3).unwrap();
    let workspace = home.library().open(&"three".parse().unwrap()).unwrap();
    let read = listing::read(&workspace, &session.parse().unwrap()).unwrap();
    let met = read.lines.iter().filter(|l| matches!(&l.event, Event::Attempt { status: Some(503), .. }));
    assert_eq!((met.count(), server.requests().len()), (3, 8));

    let text = home.report("report.txt");
    assert!(text.contains("darktable cannot decode it"), "{text}");
    let html = home.report("report.html");
    assert!(html.contains("copy it from the card again"), "the remedy is not in the page");
    for raw in raws {
        assert!(html.contains(&format!("chemigram promote {raw} branch_b_tone")), "{raw} is not in the page");
        assert!(text.contains(raw), "{raw}: {text}");
    }
    // Five baselines and five branches.
    assert_eq!(html.matches("<img src=\"data:image/jpeg;base64,").count(), 10);
}

#[test]
fn a_batch_killed_in_its_second_session_ends_as_an_undisturbed_one() {
    let raws = ["one", "two", "three"];
    let sessions: String = raws.map(|raw| format!("[[session]]\nphoto = \"{raw}\"\n\n")).concat();
    let calm = Home::new(&raws);
    calm.write("script.toml", script("Open.", 0));
    calm.plan("branches = 3", &sessions);
    assert_eq!(calm.overnight(&[]), 0);
    let expected = calm.branches();
    assert_eq!(expected.len(), 6, "{expected:?}");

    let torn = Home::new(&raws);
    torn.write("script.toml", script("Open.", 700));
    torn.plan("branches = 3", &sessions);
    let mut child = torn.begin();
    torn.wait("the second session", || torn.edited(1));
    assert_eq!(torn.status(&["overnight", "--resume", "last"]), 4, "two processes run one batch");
    child.kill().unwrap();
    child.wait().unwrap();
    let begun = torn.begun();
    assert_eq!(begun.len(), 2);
    // The same plan again finds it.
    assert_eq!(torn.overnight(&[]), 0);
    assert_eq!(torn.branches(), expected);
    assert_eq!(torn.begun()[..2], begun[..], "a session was begun anew");
    let places: Vec<usize> = torn.outcomes().into_iter().map(|(place, _)| place).collect();
    assert_eq!((torn.begun().len(), places), (3, vec![0, 1, 2]));
    assert!(torn.report("report.txt").starts_with("Batch ") && torn.batch().unwrap().is_over());
    let entries = torn.batch().unwrap().entries;
    assert_eq!(entries.iter().filter(|s| matches!(s.entry, Entry::RunStarted { .. })).count(), 2);
}

#[test]
fn ctrl_c_wraps_up_starts_nothing_more_and_the_batch_is_resumed_later() {
    let home = Home::new(&["one", "two"]);
    home.write("script.toml", script("Open.", 1500));
    home.plan("time = \"1h\"", "[[session]]\nphoto = \"one\"\n\n[[session]]\nphoto = \"two\"\n");
    let mut child = home.begin();
    home.wait("the first session", || home.edited(0));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(25));
    assert_eq!((home.outcomes(), home.begun().len()), (vec![(0, Outcome::Cancelled)], 1));
    let report = home.report("report.txt");
    assert!(report.contains("waiting") && report.contains("overnight --resume"), "{report}");
    assert!(report.contains("Score: 4/5"), "what was made is not judged: {report}");
    assert_eq!(home.status(&["overnight", "--resume", "last"]), 0);
    assert_eq!(home.outcomes()[1..], [(0, Outcome::Completed), (1, Outcome::Completed)]);
    assert_eq!(home.begun().len(), 2);
}

#[test]
fn every_mistake_of_a_plan_is_told_before_anything_begins() {
    let home = Home::new(&[]);
    home.write("one.dng", "");
    home.write("script.toml", "[model]\nfree = false\n");
    home.plan(
        "tim = \"1h\"\ncost = 3.00",
        "[[session]]\nphoto = \"onee.dng\"\n\n[[session]]\nphoto = \"one.dng\"\nbrief = \"@gone.md\"\n\
         provider = \"opnai\"\nprompt = \"mode_b/sytem\"\nprotocol = \"mode_b_explor\"\nreferee = \"ofline\"\n",
    );
    let plan = home.path("plan.toml");
    let output = home.run(&["overnight", plan.to_str().unwrap()]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    for words in [
        "has 8 errors; nothing was started",
        "line 2: `tim` is unknown in [budget]; did you mean `time`?",
        "line 9: one session could use all cost of the batch",
        "line 13: `onee.dng` is neither a photo in the library nor a file",
        "line 17: cannot read",
        "line 18:",
        "did you mean `openai`?",
        "line 19:",
        "line 20:",
        "line 21:",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!home.path("photos").exists(), "something was begun");
}

#[test]
fn two_at_once_never_use_more_than_the_batch_has() {
    // The last one works on the first one's photo, and not at the same time.
    let raws = ["one", "two", "three", "one"];
    let home = Home::new(&raws[..3]);
    // An agent that would make thirty edits.
    let greedy: String = (1..=10)
        .map(|n| {
            let edit = |m: u32| {
                format!(r#"{{"primitive_name": "exposure", "parameter_values": {{"ev": 0.{m:02}}}}}"#)
            };
            let edits = [edit(3 * n), edit(3 * n + 1), edit(3 * n + 2)];
            reply(&edits.each_ref().map(|edit| ("apply_primitive", edit.as_str())))
        })
        .collect();
    let head = [confirm(&["tone"]), reply(&[("branch", r#"{"name": "branch_b_tone"}"#)])].concat();
    home.write("script.toml", head + &greedy);
    let sessions: String = raws
        .map(|raw| {
            format!("[[session]]\nphoto = \"{raw}\"\nbudget = \"time=5m,iterations=6,branches=1\"\n\n")
        })
        .concat();
    home.plan("iterations = 14", &sessions);
    // None of them was judged.
    assert_eq!(home.overnight(&["--jobs", "2"]), 1);
    let batch = home.batch().unwrap();
    let (mut taken, mut given) = (Vec::new(), Vec::new());
    for track in batch.tracks() {
        let Some((photo, id, budget)) = track.session else { continue };
        let workspace = home.library().open(&photo).unwrap();
        taken.push(listing::read(&workspace, &id).unwrap().ledger.settled().iterations);
        given.push(budget.max_iterations);
    }
    assert_eq!((given, taken.iter().sum::<u64>()), (vec![6, 6, 2], 14), "{taken:?}");
    assert!(
        home.report("report.txt").contains("Budget reduced to what the batch had left: 5 min, 2 iterations")
    );
    assert!(home.report("report.txt").contains("not enough iterations left in the batch: 0, 6 needed"));
    let second = batch.entries.iter().position(|s| matches!(s.entry, Entry::Started { place: 1, .. }));
    let first_end = batch.entries.iter().position(|s| matches!(s.entry, Entry::Ended { .. }));
    assert!(second.unwrap() < first_end.unwrap(), "they did not run at once");
}

#[test]
fn a_dry_run_estimates_each_session_and_all_together() {
    let home = Home::new(&["one", "two"]);
    home.write("new.dng", [dng::demo_raw().unwrap(), vec![0; 9]].concat());
    let providers = home.path("config/chemigram/providers");
    std::fs::create_dir_all(&providers).unwrap();
    let profile = "name = \"mine\"\nsummary = \"\"\ndialect = \"messages\"\nbase_url = \"http://127.0.0.1:1\"\n\
         default_model = \"m\"\n[[model]]\nid = \"m\"\nvision = true\n\
         price = { input = 1.0, output = 4.0, cache_read = 0.1, cache_write = 1.25, as_of = \"2026-11-01\" }\n";
    std::fs::write(providers.join("mine.toml"), profile).unwrap();
    home.write("script.toml", confirm(&["tone"]));
    let priced = "provider = \"mine\"\nmodel = \"m\"\n";
    let budget = "time=5m,iterations=12,branches=1,cost=3";
    let session = |photo: &str, more: &str| format!("[[session]]\nphoto = \"{photo}\"\n{more}");
    let paid = |photo: &str| session(photo, &format!("budget = \"{budget}\"\n{priced}"));
    home.plan("time = \"1h\"", &[paid("one"), session("two", ""), paid("two"), paid("new.dng")].concat());
    let plan = home.path("plan.toml");
    let dry = ["overnight", plan.to_str().unwrap(), "--dry-run"];
    let json = |args: &[&str]| {
        let output = home.run(&[&["--json"], args].concat());
        let told = String::from_utf8_lossy(&output.stderr);
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap_or_else(|e| panic!("{e}: {told}"))
    };
    let told = json(&dry);
    let vector = "tone=lift the shadows";
    let alone = json(&[
        "run-mode-b",
        "one",
        "--vector",
        vector,
        "--budget",
        budget,
        "--provider",
        "mine",
        "--dry-run",
        "--preview-size",
        "256",
    ]);
    let of = |place: usize| &told["sessions"][place]["estimate"];
    assert_eq!(of(0), &alone["estimate"], "as of the session by itself");
    assert!(of(0)["cost_micro_usd"].as_u64().unwrap() > 1_000, "{told}");
    assert_eq!((&of(1)["cost_micro_usd"], of(3)), (&json!(0), &json!(null)), "free; and not in the library");
    for field in ["replies", "input", "cached", "output", "cost_micro_usd", "uncached_micro_usd"] {
        let sum: u64 = (0..3).map(|place| of(place)[field].as_u64().unwrap()).sum();
        assert_eq!(told["estimate"][field], json!(sum), "{field}");
    }
    assert_eq!(told["not_estimated"], 1);

    let text = String::from_utf8(home.run(&dry).stdout).unwrap();
    assert_eq!(text.matches("    estimate: about ").count(), 3, "{text}");
    assert!(text.contains("no estimate, because the photo is not in the library yet"), "{text}");
    assert!(text.contains("estimate together, without 1 session: about 0."), "{text}");
    assert!(text.contains("without a cache; "), "{text}");
    assert!(home.batch().is_none(), "nothing was begun");
}
