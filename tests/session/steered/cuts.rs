//! A session that is cut after any line ends as the one that was not.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base::ids::SessionId;
use chemigram::budget::Ledger;
use chemigram::provider::Provider;
use chemigram::provider::script::Script;
use chemigram::session::driver::{Host, Session};
use chemigram::session::opinion::Referee;
use chemigram::session::start::{self, Resume};
use chemigram::session::state::State;
use chemigram::transcript::{self, Event, Line};
use engine::photo::{Library, Workspace};

use super::{begin, named, wanted};
use crate::support::{self, Studio, confirm, reply, request};

/// What a session comes to.
fn outcome(session: &Session, workspace: &Workspace) -> Vec<String> {
    let state = &session.state;
    let mut said: Vec<String> = state
        .branches
        .iter()
        .map(|branch| {
            let judgment = branch.judgment.as_ref().unwrap();
            let tip = workspace.branch(&branch.name).unwrap().unwrap();
            assert_eq!(tip, branch.tip);
            format!(
                "{} {tip} {} {:?} {:?}",
                branch.name, judgment.judged_score, judgment.flags, judgment.source
            )
        })
        .collect();
    let end = state.end.as_ref().unwrap();
    said.push(format!("{:?} {:?} {}", end.outcome, end.cap, end.summary));
    said.push(format!("{:?}", state.steering.as_ref().and_then(|s| s.ending())));
    said
}

/// Copies the photos at each line, with the transcript cut after it.
struct Copies {
    from: PathBuf,
    to: PathBuf,
    session: SessionId,
    made: Mutex<BTreeMap<u64, String>>,
}

impl Host for Copies {
    fn line(&self, line: &Line, _: &State, _: &Ledger) {
        let to = self.to.join(line.seq.to_string());
        copy(&self.from, &to);
        let transcript = open(&to).session_folder(&self.session).join("transcript.jsonl");
        let text = std::fs::read_to_string(&transcript).unwrap();
        let kept: String = text.split_inclusive('\n').take(line.seq as usize + 1).collect();
        std::fs::write(&transcript, kept).unwrap();
        let kind = serde_json::to_value(&line.event).unwrap()["kind"].as_str().unwrap().to_owned();
        self.made.lock().unwrap().insert(line.seq, kind);
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else if entry.path().extension().is_some_and(|e| e == "dng") {
            std::fs::hard_link(entry.path(), target).unwrap();
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn open(photos: &Path) -> Workspace {
    Library::new(photos).open(&"coffee".parse().unwrap()).unwrap()
}

/// Cuts a session after its lines and takes it up again: after the first line of every kind, and after
/// every `step`-th line besides. `CHEMIGRAM_TEST_CUT_STEP` stands for `step`: 1 cuts after every line, which takes
/// minutes.
fn cut(studio: &Studio, mut session: Session, model: &dyn Fn() -> Arc<dyn Provider>, step: u64) {
    let copies = Copies {
        from: studio.dir.path().join("photos"),
        to: studio.dir.path().join("copies"),
        session: session.state.start.session.clone(),
        made: Mutex::default(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(session.run(&copies)).unwrap();
    let expected = outcome(&session, &studio.workspace);
    let id = copies.session.clone();
    let made = copies.made.into_inner().unwrap();
    let asked = std::env::var("CHEMIGRAM_TEST_CUT_STEP").ok();
    let step = asked.map_or(step, |step| step.parse().expect("a number of lines"));
    let mut first = BTreeMap::new();
    for (seq, kind) in &made {
        first.entry(kind.clone()).or_insert(*seq);
    }
    let chosen = |seq: &u64| seq.is_multiple_of(step) || first.values().any(|s| s == seq);
    drop(session);
    let mut tried = 0;
    for seq in made.keys().filter(|seq| chosen(seq)) {
        let workspace = open(&copies.to.join(seq.to_string()));
        let mut setup = studio.setup(model());
        setup.workspace = workspace.clone();
        let with = Resume { referee: Referee::Offline, ..Resume::default() };
        let mut resumed = match start::resume(setup, &id, with) {
            Ok(resumed) => resumed,
            Err(error) => {
                assert_eq!(made[seq], "session_end", "line {seq}: {error}");
                continue;
            }
        };
        support::run(&mut resumed);
        assert_eq!(outcome(&resumed, &workspace), expected, "cut after line {seq}, a {}", made[seq]);
        // What is read again is what was lived through.
        let path = workspace.session_folder(&id).join("transcript.jsonl");
        let lines = transcript::read(&path).unwrap().lines;
        let folded = start::fold(&workspace, &lines).unwrap();
        assert_eq!(
            folded.steering.as_ref().map(|s| s.run()),
            resumed.state.steering.as_ref().map(|s| s.run()),
        );
        assert!(lines.iter().any(|line| matches!(line.event, Event::Resumed { .. })));
        tried += 1;
    }
    assert!(tried > 12, "{tried}");
}

fn exposure(ev: f64) -> String {
    format!(r#"{{"primitive_name": "exposure", "parameter_values": {{"ev": {ev}}}}}"#)
}

const JUDGED: &str =
    r#"{"branch": "branch_b_tone", "judged_score": 4, "judged_reasoning": "Brighter, and it holds."}"#;

#[test]
fn a_session_that_a_protocol_steers() {
    let studio = Studio::new();
    let script = [
        confirm(&["tone"]),
        reply(&[("attempt_done", "{}")]),
        reply(&[("apply_primitive", &exposure(3.0)), ("tag", r#"{"name": "branch_b_x"}"#)]),
        reply(&[("attempt_done", "{}")]),
        reply(&[("apply_primitive", &exposure(0.3)), ("render_preview", "{}")]),
        reply(&[("attempt_done", "{}"), ("render_preview", "{}")]),
        reply(&[("record_judgment", JUDGED)]),
        reply(&[("end_mode_b_session", r#"{"session_summary": "Brighter."}"#)]),
    ]
    .concat();
    let model = || Arc::new(Script::parse("agent", &script).unwrap()) as Arc<dyn Provider>;
    let wanted = wanted("time=10m,iterations=40,branches=1", &[("tone", "brighter")]);
    let session = begin(&studio, model(), Referee::Offline, &wanted, &named("mode_b_explore"));
    cut(&studio, session, &model, 9);
}

#[test]
fn a_free_session() {
    let studio = Studio::new();
    let script = [
        confirm(&["tone"]),
        reply(&[("branch", r#"{"name": "branch_b_tone"}"#), ("apply_primitive", &exposure(0.3))]),
        reply(&[("render_preview", "{}")]),
        reply(&[("record_judgment", JUDGED)]),
        reply(&[("end_mode_b_session", r#"{"session_summary": "Brighter."}"#)]),
    ]
    .concat();
    let model = || Arc::new(Script::parse("agent", &script).unwrap()) as Arc<dyn Provider>;
    let setup = studio.setup(model());
    let mut wanted = request("time=10m,iterations=40,branches=1", &[("tone", "brighter")]);
    wanted.preview_edge = 256;
    let plan = start::plan(&setup, &wanted).unwrap().with_referee(Referee::Offline).unwrap();
    let session = start::start(setup, plan).unwrap();
    cut(&studio, session, &model, 7);
}
