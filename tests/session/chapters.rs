//! Sessions that outgrow the model's context: the conversation begins anew, and the session goes on.

use std::sync::{Arc, Mutex};

use base::ids::SessionId;
use chemigram::conversation::{Message, ToolSpec};
use chemigram::gate::{ModelCall, Permit};
use chemigram::provider::script::Script;
use chemigram::provider::{Attempt, FaultClass, ModelInfo, ModelRequest, Provider, ProviderFault, Usage};
use chemigram::session::start::{self, Resume};
use chemigram::transcript::{ChapterCause, Event, Line, Outcome};

use crate::support::{self, Studio, confirm, reply, request};

/// A model with a small context, which refuses what is larger, as servers do. It keeps what it was sent.
struct Narrow {
    script: Script,
    info: ModelInfo,
    /// The greatest body that it takes, in bytes of its messages.
    most: usize,
    /// Fails for good at this call, counted from 0.
    fails_at: Option<usize>,
    seen: Mutex<Vec<Sent>>,
}

#[derive(Clone, PartialEq, Debug)]
struct Sent {
    system: String,
    tools: Vec<ToolSpec>,
    messages: Vec<Message>,
}

impl Narrow {
    fn new(script: &str, context: Option<u64>, most: usize) -> Self {
        let script = Script::parse("a long script", script).unwrap();
        let info = ModelInfo { context, ..script.info().clone() };
        Self { script, info, most, fails_at: None, seen: Mutex::default() }
    }

    fn fault(&self, class: FaultClass) -> ProviderFault {
        ProviderFault {
            provider: "narrow".into(),
            class,
            status: Some(400),
            message: "no".into(),
            remedy: None,
            retry_after: None,
            sent: false,
            usage: Usage::default(),
            raw: Vec::new(),
        }
    }
}

impl Provider for Narrow {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn attempt<'a>(&'a self, permit: Permit<ModelCall>, request: &'a ModelRequest<'a>) -> Attempt<'a> {
        let (system, tools) = (request.system.to_owned(), request.tools.to_vec());
        let mut seen = self.seen.lock().unwrap();
        let call = seen.len();
        seen.push(Sent { system, tools, messages: request.messages.to_vec() });
        let size = request.messages.iter().map(|m| serde_json::to_string(m).unwrap().len()).sum::<usize>();
        let class = match self.fails_at {
            Some(at) if at == call => Some(FaultClass::BadRequest),
            _ => (size > self.most).then_some(FaultClass::TooLarge),
        };
        match class.map(|class| self.fault(class)) {
            Some(fault) => Box::pin(async move { Err(fault) }),
            None => self.script.attempt(permit, request),
        }
    }
}

/// So many times three calls on one branch, and a judgment.
fn script(rounds: u32) -> String {
    let mut script = confirm(&["tone"]) + &reply(&[("branch", r#"{"name": "branch_b_tone"}"#)]);
    for n in 1..=rounds {
        let edit = format!(
            r#"{{"primitive_name": "shadows_lift", "parameter_values": {{"amount": {}}}}}"#,
            f64::from(n) / 100.0
        );
        script += &reply(&[("apply_primitive", &edit), ("get_state", "{}"), ("log", r#"{"limit": 5}"#)]);
    }
    let judgment = r#"{"branch": "branch_b_tone", "judged_score": 3, "judged_reasoning": "Brighter.", "comparable_to_baseline": true, "key_moves": ["shadows_lift"]}"#;
    script += &reply(&[("record_judgment", judgment)]);
    script + &reply(&[("end_mode_b_session", r#"{"session_summary": "Done."}"#)])
}

const BUDGET: &str = "time=30m,iterations=400,branches=1";
const CONTEXT: u64 = 24_000;
/// Two hundred calls.
const LONG: u32 = 66;

fn chapters(lines: &[Line]) -> Vec<(ChapterCause, &str)> {
    let chapter = |line: &'_ Line| matches!(line.event, Event::Chapter { .. });
    let found = lines.iter().filter(|line| chapter(line));
    found
        .map(|line| match &line.event {
            Event::Chapter { cause, text, .. } => (*cause, text.as_str()),
            _ => unreachable!(),
        })
        .collect()
}

fn begin(studio: &Studio, model: &Arc<Narrow>) -> SessionId {
    let setup = studio.setup(model.clone());
    let plan = start::plan(&setup, &request(BUDGET, &[("tone", "lift the shadows")])).unwrap();
    let mut session = start::start(setup, plan).unwrap();
    support::run(&mut session);
    session.state.start.session.clone()
}

/// Each request extends the one before, or begins a chapter; system prompt and tools never change.
fn check_growth(seen: &[Sent]) -> usize {
    let mut anew = 0;
    for pair in seen.windows(2) {
        let [before, after] = pair else { unreachable!() };
        assert_eq!(before.system, after.system);
        let grew = after.messages.starts_with(&before.messages);
        if !grew {
            anew += 1;
            assert!(
                matches!(&after.messages[..], [Message::User { text, .. }] if text.contains("What has happened"))
            );
        }
        assert_eq!(before.tools, after.tools);
    }
    anew
}

/// Without what depends on the clock: the last line, which says what is left.
fn timeless(text: &str) -> &str {
    text.rsplit_once('\n').unwrap().0
}

#[test]
fn k2_two_hundred_calls_in_a_small_context_end_well_over_several_chapters() {
    let studio = Studio::new();
    let model = Arc::new(Narrow::new(&script(LONG), Some(CONTEXT), usize::MAX));
    let id = begin(&studio, &model);
    let lines = studio.lines(&id);
    let Some(Event::SessionEnd(end)) = lines.last().map(|line| &line.event) else { panic!("no end") };
    assert_eq!(end.outcome, Outcome::Completed, "{}", end.reason);
    let calls = lines.iter().filter(|l| matches!(l.event, Event::ToolResult { .. })).count();
    assert!(calls >= 200, "{calls} calls");
    let found = chapters(&lines);
    assert!(found.len() >= 3, "{} chapters", found.len());
    assert!(found.iter().all(|(cause, _)| *cause == ChapterCause::Context));
    assert_eq!(check_growth(&model.seen.lock().unwrap()), found.len());
    // What a model needs to go on: the plan, the branch with its moves, where it is.
    let (_, text) = found.last().unwrap();
    for part in ["lift the shadows", "confirmed `tone`", "`branch_b_tone` at ", "shadows_lift", "You are on"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }

    // The same script gives the same chapters.
    let again = Studio::new();
    let model = Arc::new(Narrow::new(&script(LONG), Some(CONTEXT), usize::MAX));
    let lines_again = again.lines(&begin(&again, &model));
    let texts = |found: &[(ChapterCause, &str)]| -> Vec<String> {
        found.iter().map(|(_, text)| timeless(text).to_owned()).collect()
    };
    assert_eq!(texts(&found), texts(&chapters(&lines_again)));
}

#[test]
fn a_session_is_resumed_in_each_of_its_chapters() {
    let whole = {
        let studio = Studio::new();
        let model = Arc::new(Narrow::new(&script(24), Some(CONTEXT), usize::MAX));
        begin(&studio, &model);
        model.seen.lock().unwrap().clone()
    };
    // The calls that send the beginning of a chapter and nothing else, and one within each.
    let anew: Vec<usize> = (1..whole.len()).filter(|at| whole[*at].messages.len() == 1).collect();
    assert!(anew.len() >= 2, "{} chapters", anew.len());
    // Once its branch is judged, a session that a provider leaves is over.
    let judged = whole.len() - 2;
    for at in anew.iter().flat_map(|at| [*at, at + 1]).filter(|at| *at < judged) {
        let studio = Studio::new();
        let broken = Narrow { fails_at: Some(at), ..Narrow::new(&script(24), Some(CONTEXT), usize::MAX) };
        let broken = Arc::new(broken);
        let id = begin(&studio, &broken);
        let Some(Event::SessionEnd(end)) = studio.lines(&id).last().map(|line| line.event.clone()) else {
            panic!("no end")
        };
        assert_eq!(end.outcome, Outcome::ProviderFailed, "{}", end.reason);
        let model = Arc::new(Narrow::new(&script(24), Some(CONTEXT), usize::MAX));
        let mut session = start::resume(studio.setup(model.clone()), &id, Resume::default()).unwrap();
        let end = support::run(&mut session);
        assert_eq!(end.outcome, Outcome::Completed, "{}", end.reason);
        // It goes on with what the failed call has sent.
        let (sent, resumed) = (broken.seen.lock().unwrap(), model.seen.lock().unwrap());
        assert_eq!(resumed[0], sent[at], "call {at}");
    }
}

#[test]
fn a_conversation_that_the_server_finds_too_large_begins_anew_once() {
    let studio = Studio::new();
    // It does not say how much it takes.
    let model = Arc::new(Narrow::new(&script(LONG), None, 40_000));
    let lines = studio.lines(&begin(&studio, &model));
    let Some(Event::SessionEnd(end)) = lines.last().map(|line| &line.event) else { panic!("no end") };
    assert_eq!(end.outcome, Outcome::Completed, "{}", end.reason);
    let found = chapters(&lines);
    assert!(found.len() >= 2 && found.iter().all(|(cause, _)| *cause == ChapterCause::TooLarge));
    let refused = |line: &&Line| matches!(&line.event, Event::Attempt { class: FaultClass::TooLarge, .. });
    assert_eq!(lines.iter().filter(refused).count(), found.len());

    // A beginning that does not fit either is the end.
    let studio = Studio::new();
    let model = Arc::new(Narrow::new(&script(1), None, 100));
    let lines = studio.lines(&begin(&studio, &model));
    let Some(Event::SessionEnd(end)) = lines.last().map(|line| &line.event) else { panic!("no end") };
    assert_eq!(end.outcome, Outcome::ProviderFailed, "{}", end.reason);
    assert!(chapters(&lines).is_empty());
}
