//! Sessions at their edges: a cap that fires between two pictures, a defect of the program itself, and a secret that
//! a person wrote down.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::conversation::Usage;
use crate::provider::ProviderFault;
use crate::session::model_call::{alone, sleep_until};
use crate::session::rig::{self, Rig, Sums, begin, request, run};
use crate::session::start::{self, Request, Resume, Setup};
use crate::transcript::{self, Event, FaultClass, Line, Outcome};
use base::clock::{Clock, Deadline, ManualClock};
use base::error::ErrorCode;
use base::redact::Redactor;
use darktable::render::{Quality, RenderError, RenderPermit, RenderRequest, Rendered, Renderer};

const CONFIRM: &str = r#"
[[reply]]
calls = [{ name = "confirm_session", arguments = { vectors = [{ name = "tone", restated = "Open." }] } }]
"#;
const EDIT: &str = r#"
[[reply]]
calls = [{ name = "branch", arguments = { name = "branch_b_tone" } }, { name = "apply_primitive", arguments = { primitive_name = "exposure", parameter_values = { ev = 0.4 } } }]
"#;
const LOOK: &str = r#"
[[reply]]
calls = [{ name = "render_preview" }]
"#;
const CLOSE: &str = r#"
[[reply]]
calls = [{ name = "record_judgment", arguments = { branch = "branch_b_tone", judged_score = 4, judged_reasoning = "Open.", comparable_to_baseline = true } }]
[[reply]]
calls = [{ name = "end_mode_b_session", arguments = { session_summary = "Done." } }]
"#;

fn lines(rig: &Rig) -> Vec<Line> {
    let id = rig::sessions(&rig.library).remove(0);
    transcript::read(&rig::photo(&rig.library).session_folder(&id).join("transcript.jsonl")).unwrap().lines
}

#[test]
fn of_two_pictures_of_which_one_is_refused_neither_stays_reserved() {
    let rig = Rig::new();
    let script = format!("{CONFIRM}{EDIT}{CLOSE}");
    // One for the baseline at the start, one for the first of the two that a judgment takes.
    let budget = "time=20h,iterations=9,branches=1,renders=2";
    let mut session = begin(rig.setup(&script), &request(budget, &["tone"])).unwrap();
    let end = run(&mut session).unwrap();
    let told: Vec<(u64, Option<u64>, String)> = lines(&rig)
        .iter()
        .filter_map(|line| match &line.event {
            Event::Render { intent, settled, error, .. } => {
                Some((settled.renders, *intent, error.clone().unwrap_or_default()))
            }
            _ => None,
        })
        .collect();
    let given_back = told.iter().filter(|(renders, intent, why)| {
        *renders == 0 && intent.is_some() && why.contains("no room for the others")
    });
    assert_eq!(given_back.count(), 1, "{told:?}");
    assert_eq!(session.gate.ledger().reserved().renders, 0, "{told:?}");
    assert_eq!((end.spent.renders, end.assumed.renders), (1, 0), "{told:?}");
}

/// Panics at every picture of this quality but the first.
struct Defect(Option<Quality>, Sums, AtomicU32);

impl Renderer for Defect {
    fn render(
        &self,
        request: &RenderRequest<'_>,
        deadline: &Deadline,
        permit: &dyn RenderPermit,
    ) -> Result<Rendered, RenderError> {
        let chosen = self.0.is_none_or(|quality| quality == request.quality);
        assert!(!chosen || self.2.fetch_add(1, Ordering::SeqCst) == 0, "a slice of nothing");
        self.1.render(request, deadline, permit)
    }

    fn darktable_version(&self) -> &str {
        "4.2.1"
    }
}

#[test]
fn a_defect_within_a_tool_ends_that_call_alone_and_is_written_down() {
    let script = format!("{CONFIRM}{EDIT}{LOOK}{CLOSE}");
    let budget = "time=20h,iterations=9,branches=1,renders=20";
    for (quality, outcome) in [(Some(Quality::Preview), Outcome::Completed), (None, Outcome::ProviderFailed)]
    {
        let rig = Rig::new();
        let defect = Arc::new(Defect(quality, Sums::default(), AtomicU32::new(0)));
        let setup = Setup { renderer: defect, ..rig.setup(&script) };
        let mut session = begin(setup, &request(budget, &["tone"])).unwrap();
        let end = run(&mut session).unwrap();
        assert_eq!(end.outcome, outcome, "{}", end.reason);
        let lines = lines(&rig);
        let result = lines.iter().find_map(|line| match &line.event {
            Event::ToolResult { result, code, .. } if result.name == "render_preview" => {
                Some((code, &result.text))
            }
            _ => None,
        });
        let (code, text) = result.unwrap();
        assert_eq!(*code, Some(ErrorCode::StateError));
        assert!(text.contains("a defect of chemigram: ") && text.contains("a slice of nothing"), "{text}");
        // Where even the end cannot measure, the branch has its neutral judgment all the same.
        assert_eq!(
            session.state.branches[0].judgment.as_ref().unwrap().measured.is_some(),
            quality.is_some()
        );
    }
}

#[test]
fn a_brief_that_quotes_a_key_is_kept_without_it_and_its_session_can_be_resumed() {
    let key = "sk-canary-0123456789";
    let rig = Rig::new();
    let ask =
        "[[reply]]\ncalls = [{ name = \"ask_clarification\", arguments = { question = \"Which?\" } }]\n";
    let script = format!("{ask}{CONFIRM}{EDIT}{CLOSE}");
    let setup = || Setup { redactor: Redactor::new([key.into()]), ..rig.setup(&script) };
    let brief = Some(format!("My key is {key}. Quiet."));
    let criteria = Some(format!("As {key} says."));
    let mut with_key = Request { brief, criteria, ..request("time=20h,iterations=9,branches=1", &["tone"]) };
    with_key.vectors[0].direction = format!("like {key}");
    let mut session = begin(setup(), &with_key).unwrap();
    assert_eq!(run(&mut session).unwrap().outcome, Outcome::NeedsClarification);
    let id = session.state.start.session.clone();
    drop(session);
    let answer = Some(format!("The one of {key}."));
    let mut session = start::resume(setup(), &id, Resume { answer, ..Resume::default() }).unwrap();
    let end = run(&mut session).unwrap();
    assert_eq!(end.outcome, Outcome::Completed, "{}", end.reason);
    let folder = rig::photo(&rig.library).session_folder(&id);
    let mut files = vec![folder.join("transcript.jsonl")];
    files.extend(std::fs::read_dir(folder.join("blobs")).unwrap().map(|entry| entry.unwrap().path()));
    let mut marks = 0;
    for file in files {
        let text = String::from_utf8_lossy(&std::fs::read(&file).unwrap()).into_owned();
        assert!(!text.contains(key), "{}", file.display());
        marks += text.matches(Redactor::MARK).count();
    }
    assert!(marks > 4, "{marks}");
}

#[test]
fn a_provider_that_fails_as_the_work_ends_is_asked_again_for_the_judgments() {
    let rig = Rig::new();
    let clock = Arc::new(ManualClock::default());
    let setup = Setup { clock: clock.clone(), ..rig.setup(CLOSE) };
    let session = begin(setup, &request("time=1000s,iterations=30,branches=1", &["tone"])).unwrap();
    // The work ends at 950 s.
    clock.advance(Duration::from_secs(949));
    let pause = |seconds| {
        let fault = ProviderFault {
            provider: "script".into(),
            class: FaultClass::Transient,
            status: Some(503),
            message: String::new(),
            remedy: None,
            retry_after: Some(Duration::from_secs(seconds)),
            sent: false,
            usage: Usage::default(),
            raw: Vec::new(),
        };
        session.retry_pause(&fault, 1, 1)
    };
    assert_eq!(pause(10), Some(Duration::from_secs(10)), "there is time for the judgments");
    assert_eq!(pause(51), None);
}

#[test]
fn a_wait_ends_at_a_deadline_that_is_no_whole_millisecond_away() {
    /// A clock on which whoever waits has waited at once.
    #[derive(Debug, Default)]
    struct Skipping(ManualClock);
    impl Clock for Skipping {
        fn monotonic(&self) -> Duration {
            self.0.monotonic()
        }
        fn wall(&self) -> jiff::Timestamp {
            self.0.wall()
        }
        fn skip(&self, by: Duration) -> bool {
            self.0.advance(by);
            true
        }
    }
    for pause in [Duration::from_nanos(1), Duration::from_micros(120_500), Duration::from_secs(3)] {
        let clock = Arc::new(Skipping::default());
        let (until, asked) = (Deadline::after(clock.clone(), pause), Cell::new(0));
        let cut = || {
            asked.set(asked.get() + 1);
            asked.get() > 10_000
        };
        alone(sleep_until(&until, cut));
        assert!(until.expired(), "{pause:?}: asked {} times", asked.get());
        assert_eq!(clock.monotonic(), pause);
    }
}
