//! Renders within a session: begun ahead, side by side, foreseen, and put right when a darktable dies.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure in a helper is the failure of its test")]

use crate::support;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use crate::support::{EDGE, Studio, confirm, reply, request};
use base::clock::Deadline;
use base::ids::Hash;
use chemigram::budget::{Amounts, Cap};
use chemigram::gate::{ModelCall, Permit};
use chemigram::provider::script::Script;
use chemigram::provider::{Attempt, Message, ModelInfo, ModelRequest, Provider};
use chemigram::session::start;
use chemigram::transcript::{Event, Line, Outcome, SessionEnd};
use darktable::cache::{Cache, Cached};
use darktable::render::{ByHand, Quality, RenderError, RenderPermit, RenderRequest, Rendered, Renderer};
use darktable::worker::Worker;
use darktable::xmp;

const TONE: &[(&str, &str)] = &[("tone", "lift the shadows")];
const BRANCH: (&str, &str) = ("branch", r#"{"name": "branch_b_tone"}"#);
const LOOK: (&str, &str) = ("render_preview", "{}");
const JUDGE: (&str, &str) = (
    "record_judgment",
    r#"{"branch": "branch_b_tone", "judged_score": 3, "judged_reasoning": "Brighter.", "comparable_to_baseline": true, "key_moves": ["shadows_lift"]}"#,
);
const END: (&str, &str) = ("end_mode_b_session", r#"{"session_summary": "Done."}"#);

fn lift(amount: f64) -> String {
    format!(r#"{{"primitive_name": "shadows_lift", "parameter_values": {{"amount": {amount}}}}}"#)
}

/// A reply that thinks for so long before its calls.
fn after(millis: u64, calls: &[(&str, &str)]) -> String {
    reply(calls).replacen("[[reply]]\n", &format!("[[reply]]\ndelay_ms = {millis}\n"), 1)
}

/// A darktable that is kept alive, with a cache of its own.
fn worker(studio: &Studio) -> Arc<Worker> {
    let layouts = studio.layouts.clone();
    let encode = move |state: &_, name: &str| xmp::write(state, &layouts, name).map_err(|e| e.to_string());
    let base = support::shared().join("darktable");
    Arc::new(Worker::new(support::darktable(), &base, Arc::new(encode)).unwrap())
}

fn cached(studio: &Studio, renderer: Arc<dyn Renderer>) -> Arc<dyn Renderer> {
    Arc::new(Cached::new(renderer, Cache::new(studio.dir.path().join("renders"), 1 << 30)))
}

fn run(
    studio: &Studio,
    renderer: Arc<dyn Renderer>,
    renderers: usize,
    script: &str,
    budget: &str,
) -> (SessionEnd, Vec<Line>) {
    let mut setup = studio.setup(Arc::new(Script::parse("rendering", script).unwrap()));
    setup.renderer = renderer;
    setup.renderers = renderers;
    let plan = start::plan(&setup, &request(budget, TONE)).unwrap();
    let mut session = start::start(setup, plan).unwrap();
    let end = support::run(&mut session);
    let lines = studio.lines(&session.state.start.session);
    (end, lines)
}

/// The intents of renders: (line, ahead, joins, reserved renders).
fn intents(lines: &[Line]) -> Vec<(u64, bool, Option<u64>, u64)> {
    let of = |line: &Line| match &line.event {
        Event::RenderIntent(intent) => Some((line.seq, intent.ahead, intent.joins, intent.reserved.renders)),
        _ => None,
    };
    lines.iter().filter_map(of).collect()
}

/// What came of the render that was begun by the line `intent`: renders charged, and the error.
fn outcome(lines: &[Line], intent: u64) -> Option<(u64, Option<&str>)> {
    lines.iter().find_map(|line| match &line.event {
        Event::Render { intent: Some(of), settled, error, .. } if *of == intent => {
            Some((settled.renders, error.as_deref()))
        }
        _ => None,
    })
}

#[test]
fn a_picture_is_begun_when_its_state_is_made_and_paid_for_when_it_is_asked_for() {
    let studio = Studio::new();
    let script = confirm(&["tone"])
        + &reply(&[BRANCH, ("apply_primitive", &lift(0.4))])
        + &reply(&[LOOK])
        // Looked at twice, paid once; the next state is looked at by nobody.
        + &reply(&[LOOK, ("apply_primitive", &lift(0.9))])
        + &reply(&[JUDGE, END]);
    // The model thinks until the picture is there: the baseline's is the first, those of the edits follow.
    let counting = Arc::new(Counting { renderer: worker(&studio), ended: AtomicU32::new(0) });
    let thinking = Thinking {
        script: Script::parse("rendering", &script).unwrap(),
        until: [0, 0, 2, 0, 3],
        of: counting.clone(),
    };
    let mut setup = studio.setup(Arc::new(thinking));
    setup.renderer = cached(&studio, counting.clone());
    let asked = request("time=5m,iterations=20,branches=1,renders=20", TONE);
    let plan = start::plan(&setup, &asked).unwrap();
    let mut session = start::start(setup, plan).unwrap();
    let end = support::run(&mut session);
    let lines = studio.lines(&session.state.start.session);
    assert_eq!(end.outcome, Outcome::Completed, "{}", end.reason);
    let [baseline, ahead, joined, unused, judged @ ..] = &intents(&lines)[..] else {
        panic!("{:?}", intents(&lines))
    };
    assert_eq!((baseline.1, baseline.2, baseline.3), (false, None, 1));
    assert_eq!((ahead.1, ahead.2, ahead.3), (true, None, 0), "nothing is reserved for it");
    assert_eq!((joined.1, joined.2, joined.3), (false, Some(ahead.0), 1), "it is paid for when asked for");
    assert_eq!(outcome(&lines, joined.0), Some((1, None)));
    assert_eq!(outcome(&lines, ahead.0), None, "the line that joins it closes it");
    assert_eq!((unused.1, outcome(&lines, unused.0)), (true, Some((0, Some("nobody asked for it")))));
    // The judgment measures the branch and the baseline, with care.
    assert_eq!(judged.iter().map(|intent| intent.3).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(end.spent.renders, 4);
    // Baseline, two edits, and the two of the judgment: what was ready when it was asked for was not made again.
    assert_eq!(counting.ended.load(SeqCst), 5);
}

/// Counts the pictures that are there.
struct Counting {
    renderer: Arc<Worker>,
    ended: AtomicU32,
}

impl Renderer for Counting {
    fn render(
        &self,
        request: &RenderRequest<'_>,
        deadline: &Deadline,
        permit: &dyn RenderPermit,
    ) -> Result<Rendered, RenderError> {
        let rendered = self.renderer.render(request, deadline, permit);
        self.ended.fetch_add(1, SeqCst);
        rendered
    }

    fn darktable_version(&self) -> &str {
        self.renderer.darktable_version()
    }
}

/// A script that replies, turn by turn, once so many pictures are there.
struct Thinking {
    script: Script,
    until: [u32; 5],
    of: Arc<Counting>,
}

impl Provider for Thinking {
    fn info(&self) -> &ModelInfo {
        self.script.info()
    }

    fn attempt<'a>(&'a self, permit: Permit<ModelCall>, request: &'a ModelRequest<'a>) -> Attempt<'a> {
        Box::pin(async move {
            let turn = request.messages.iter().filter(|m| matches!(m, Message::Assistant { .. })).count();
            while self.of.ended.load(SeqCst) < self.until.get(turn).copied().unwrap_or(0) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            self.script.attempt(permit, request).await
        })
    }
}

#[test]
fn what_is_begun_ahead_never_passes_the_cap_and_is_not_begun_when_it_could_not_be_paid() {
    let studio = Studio::new();
    let mut script = confirm(&["tone"]) + &reply(&[BRANCH]);
    // An agent that edits and looks for ever.
    for n in 1..12 {
        script += &reply(&[("apply_primitive", &lift(f64::from(n) / 10.0))]);
        script += &after(150, &[LOOK]);
    }
    let renderer = cached(&studio, worker(&studio));
    let (end, lines) = run(&studio, renderer, 1, &script, "time=5m,iterations=50,branches=1,renders=4");
    assert_eq!(end.outcome, Outcome::BudgetExhausted);
    assert_eq!(end.cap.unwrap().cap, Cap::Renders);
    let intents = intents(&lines);
    let paid: u64 = intents.iter().map(|intent| intent.3).sum();
    assert_eq!((paid, end.spent.renders), (4, 4));
    // The baseline and three looks: with the cap reached, the next edit's picture is not even begun.
    assert_eq!(intents.iter().filter(|intent| intent.1).count(), 3, "{intents:?}");
}

#[test]
fn changes_in_one_reply_are_rendered_once_and_a_parent_nobody_saw_stays_unseen() {
    let studio = Studio::new();
    let script = confirm(&["tone"])
        + &reply(&[BRANCH, ("apply_primitive", &lift(0.3)), ("apply_primitive", &lift(0.6))])
        + &after(900, &[("apply_primitive", &lift(0.8))])
        + &after(900, &[LOOK, JUDGE, END]);
    let renderer = cached(&studio, worker(&studio));
    let (end, lines) = run(&studio, renderer, 1, &script, "time=5m,iterations=20,branches=1");
    assert_eq!(end.outcome, Outcome::Completed, "{}", end.reason);
    assert_eq!(intents(&lines).iter().filter(|intent| intent.1).count(), 2, "{:?}", intents(&lines));
    // The step before was rendered ahead but never asked for: comparing with it would be a look for nothing.
    let look = support::results(&lines, "render_preview")[0].1;
    assert!(!look.contains("versus_parent"), "{look}");
}

/// A renderer that says how long it will take.
struct Foreseen(Arc<dyn Renderer>, Duration);

impl Renderer for Foreseen {
    fn render(
        &self,
        request: &RenderRequest<'_>,
        deadline: &Deadline,
        permit: &dyn RenderPermit,
    ) -> Result<Rendered, RenderError> {
        self.0.render(request, deadline, permit)
    }

    fn darktable_version(&self) -> &str {
        self.0.darktable_version()
    }

    fn estimate(&self, _: &Hash, long_edge: u32, _: Quality) -> Option<Duration> {
        (long_edge != EDGE).then_some(self.1)
    }
}

#[test]
fn a_render_that_cannot_end_in_time_is_refused_before_it_begins() {
    let studio = Studio::new();
    let script = confirm(&["tone"]) + &reply(&[("render_preview", r#"{"size": 200}"#)]) + &reply(&[END]);
    let renderer = Arc::new(Foreseen(studio.renderer.clone(), Duration::from_secs(4_000)));
    let (end, lines) = run(&studio, renderer, 1, &script, "time=3000s,iterations=20,branches=1");
    assert!(end.wall_ms < 2_000_000, "it was waited for");
    let fired = end.cap.unwrap();
    assert_eq!((fired.cap, fired.wanted), (Cap::Time, 4_000_000));
    let (code, text) = support::results(&lines, "render_preview")[0];
    assert!(code.is_some() && text.contains("the next step takes about 4000 s"), "{text}");
    // The baseline, at the size that is quick: and nothing was begun at the other.
    let begun: Vec<u32> = lines
        .iter()
        .filter_map(|line| match &line.event {
            Event::RenderIntent(intent) => Some(intent.long_edge),
            _ => None,
        })
        .collect();
    assert!(begun.iter().all(|edge| *edge == EDGE), "{begun:?}");
}

#[test]
fn real_renders_teach_what_the_next_will_take() {
    let studio = Studio::new();
    let renderer = cached(&studio, worker(&studio));
    let (raw, state) =
        (studio.workspace.raw(), studio.workspace.state_of(&studio.workspace.resolve("main").unwrap()));
    let state = state.unwrap();
    assert_eq!(renderer.estimate(&raw.sha256, 200, Quality::Preview), None);
    let request = RenderRequest { raw: &raw, state: &state, long_edge: 200, quality: Quality::Preview };
    let took = renderer.render(&request, &Deadline::never(), &ByHand).unwrap().elapsed;
    let foreseen = renderer.estimate(&raw.sha256, 200, Quality::Preview).unwrap();
    assert_eq!(foreseen.as_millis(), took.as_millis());
    // A hit teaches nothing.
    assert!(renderer.render(&request, &Deadline::never(), &ByHand).unwrap().cached);
    assert_eq!(renderer.estimate(&raw.sha256, 200, Quality::Preview), Some(foreseen));
}

/// A worker whose darktable is killed before every second picture.
struct Killer {
    worker: Arc<Worker>,
    asked: AtomicU32,
    killed: AtomicU32,
}

impl Renderer for Killer {
    fn render(
        &self,
        request: &RenderRequest<'_>,
        deadline: &Deadline,
        permit: &dyn RenderPermit,
    ) -> Result<Rendered, RenderError> {
        if self.asked.fetch_add(1, SeqCst) % 2 == 1 {
            for pid in self.worker.pids() {
                let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
                // An idle child of this very test, still unreaped: its number cannot be another's.
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
                self.killed.fetch_add(1, SeqCst);
            }
        }
        self.worker.render(request, deadline, permit)
    }

    fn darktable_version(&self) -> &str {
        self.worker.darktable_version()
    }

    fn take_notes(&self) -> Vec<String> {
        self.worker.take_notes()
    }
}

#[test]
fn a_darktable_that_is_killed_costs_a_line_in_the_transcript_and_no_picture() {
    let studio = Studio::new();
    let worker = worker(&studio);
    let mut script = confirm(&["tone"]) + &reply(&[BRANCH]);
    for n in 1..8 {
        script += &after(120, &[("apply_primitive", &lift(f64::from(n) / 10.0)), LOOK]);
    }
    script += &reply(&[JUDGE, END]);
    let killer = Arc::new(Killer { worker, asked: AtomicU32::new(0), killed: AtomicU32::new(0) });
    let renderer = cached(&studio, killer.clone());
    let (end, lines) = run(&studio, renderer, 1, &script, "time=5m,iterations=40,branches=1");
    assert!(killer.killed.load(SeqCst) >= 3);
    assert_eq!(end.outcome, Outcome::Completed, "{}", end.reason);
    let looks = support::results(&lines, "render_preview");
    assert!(looks.len() == 7 && looks.iter().all(|(code, _)| code.is_none()), "{looks:?}");
    let notes: Vec<&str> = lines
        .iter()
        .filter_map(|line| match &line.event {
            Event::Note { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert!(notes.iter().any(|note| note.contains("was replaced")), "{notes:?}");
    // The pixels are those of a darktable that nobody touched.
    for line in &lines {
        if let Event::Render { state, long_edge, pixel_hash: Some(pixels), quality, .. } = &line.event
            && *quality == Quality::Preview
        {
            let state = studio.workspace.state(state).unwrap();
            let raw = studio.workspace.raw();
            let request =
                RenderRequest { raw: &raw, state: &state, long_edge: *long_edge, quality: Quality::Preview };
            assert_eq!(
                &studio.renderer.render(&request, &Deadline::never(), &ByHand).unwrap().pixel_hash,
                pixels
            );
        }
    }
}

#[test]
fn two_renderers_make_the_pictures_that_one_makes() {
    let script = confirm(&["tone"])
        + &reply(&[BRANCH, ("apply_primitive", &lift(0.7))])
        + &reply(&[
            ("compare", "{}"),
            ("render_preview", r#"{"show_mask": {"shape": "circle", "center": [0.5, 0.5], "radius": 0.2}}"#),
        ])
        + &reply(&[JUDGE, END]);
    let runs = [1, 2].map(|renderers| {
        let studio = Studio::new();
        let worker = worker(&studio);
        let budget = "time=5m,iterations=20,branches=1";
        let (end, lines) = run(&studio, cached(&studio, worker.clone()), renderers, &script, budget);
        assert_eq!(end.outcome, Outcome::Completed, "{}", end.reason);
        assert_eq!(worker.troubles(), 0);
        let pictures: Vec<_> = lines
            .iter()
            .filter_map(|line| match &line.event {
                Event::Render { state, quality, pixel_hash: Some(pixels), .. } => {
                    Some((state.clone(), *quality, pixels.clone()))
                }
                _ => None,
            })
            .collect();
        let Amounts { renders, .. } = end.spent;
        (pictures, renders)
    });
    assert!(runs[0].1 >= 6, "{:?}", runs[0]);
    assert_eq!(runs[0], runs[1]);
}
