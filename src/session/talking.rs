//! Whole conversations, without darktable: who speaks when, what is kept, and what an interruption leaves.

mod models;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::json;

use crate::budget::{Budget, Cap};
use crate::conversation::Message;
use crate::provider::Provider;
use crate::provider::explorer::Explorer;
use crate::session::driver::{Host, Session, Turn, Unwatched};
use crate::session::rig::{self, Rig};
use crate::session::start::{self, Request, Resume, Setup};
use crate::session::state::State;
use crate::session::talk;
use crate::tools;
use crate::transcript::{self, Event, Outcome, SessionEnd};
use base::assets::Overlay;
use base::ids::{RefName, SessionId};
use engine::vocabulary::Vocabulary;

const WARMER: &str = r#"{ name = "apply_primitive", arguments = { primitive_name = "warmth", parameter_values = { shift = 12 } } }"#;
const BRIGHTER: &str = r#"{ name = "apply_primitive", arguments = { primitive_name = "exposure", parameter_values = { ev = 0.4 } } }"#;
const LOOK: &str = r#"{ name = "render_preview" }"#;
const PROPOSE: &str = r#"{ name = "propose_edit", arguments = { moves = ["vignette strength=-0.3"], why = "It would hold the eye on the cup." } }"#;
const MAYBE_OVER: &str = r#"{ name = "end_conversation" }"#;
const OVER: &str = r#"{ name = "end_conversation", arguments = { certain = true } }"#;
const TASTE: &str = r#"{ name = "propose_taste_update", arguments = { text = "Prefers warm evenings.", category = "appearance" } }"#;
const NOTE: &str =
    r#"{ name = "propose_notes_update", arguments = { text = "The cup stays on the cool side." } }"#;
const CLOSE: &str = r#"{ name = "end_conversation", arguments = { summary = "Warmer, with the shadows open.", tag = "v2", exports = ["a JPEG for the web"] } }"#;

fn reply(text: &str, calls: &[&str]) -> String {
    format!("[[reply]]\ntext = {text:?}\ncalls = [{}]\n", calls.join(", "))
}

fn request(budget: &str) -> Request {
    Request {
        brief: None,
        vectors: Vec::new(),
        budget: Budget::parse(budget).unwrap(),
        from: "main".into(),
        criteria: None,
        prompt: talk::PROMPT.into(),
        preview_edge: 128,
        unattended: false,
        proposes: true,
        seed: 0,
    }
}

const BUDGET: &str = "time=20h,iterations=100,branches=2";

fn begin_with(setup: Setup, budget: &str) -> Session {
    let plan = talk::plan(&setup, &request(budget)).unwrap();
    start::start(setup, plan).unwrap()
}

fn begin(rig: &Rig, script: &str) -> Session {
    begin_with(rig.setup(script), BUDGET)
}

/// A person with answers ready.
#[derive(Default)]
struct Person {
    answers: Mutex<VecDeque<&'static str>>,
    asked: Mutex<Vec<String>>,
}

impl Person {
    fn answering(answers: &[&'static str]) -> Self {
        Self { answers: Mutex::new(answers.iter().copied().collect()), asked: Mutex::default() }
    }
}

impl Host for Person {
    fn answer(&self, question: &str) -> Option<String> {
        self.asked.lock().unwrap().push(question.to_owned());
        self.answers.lock().unwrap().pop_front().map(str::to_owned)
    }
}

fn advance(session: &mut Session, host: &dyn Host) -> Turn {
    session.advance_alone(host).unwrap()
}

/// Says something and waits for the reply.
fn say(session: &mut Session, text: &str, host: &dyn Host) -> Option<SessionEnd> {
    session.say(text, host).unwrap();
    over(advance(session, host))
}

fn over(turn: Turn) -> Option<SessionEnd> {
    match turn {
        Turn::Person => None,
        Turn::Over(end) => Some(*end),
    }
}

fn spoken(state: &State) -> &str {
    match state.messages.last() {
        Some(Message::Assistant { text, .. }) => text,
        other => panic!("{other:?}"),
    }
}

/// The moves in effect where the conversation stands.
fn moves(session: &mut Session) -> Vec<String> {
    let result = session.by_hand("get_state", &json!({}), &Unwatched).unwrap();
    let read: serde_json::Value =
        serde_json::Deserializer::from_str(&result.text).into_iter().next().unwrap().unwrap();
    read["data"]["moves"].as_array().unwrap().iter().map(|m| m.as_str().unwrap().to_owned()).collect()
}

fn lines(rig: &Rig, id: &SessionId) -> Vec<Event> {
    let path = rig::photo(&rig.library).session_folder(id).join("transcript.jsonl");
    transcript::read(&path).unwrap().lines.into_iter().map(|line| line.event).collect()
}

#[test]
fn a_conversation_edits_asks_takes_back_and_looks_back() {
    let rig = Rig::new();
    let script = [
        reply("", &[WARMER, LOOK]),
        reply("Warmer now.", &[]),
        reply("", &[BRIGHTER, PROPOSE]),
        reply("Brighter, and no vignette.", &[]),
        reply("", &[MAYBE_OVER]),
        reply("Then let us go on.", &[]),
        reply("", &[BRIGHTER]),
        reply("Brighter again.", &[]),
        reply("", &[OVER]),
        reply("", &[TASTE, NOTE, CLOSE]),
    ]
    .concat();
    let before = rig::photo(&rig.library).branch(&"main".parse().unwrap()).unwrap();
    let mut session = begin(&rig, &script);
    let id = session.state.start.session.clone();
    let person = Person::answering(&["no", "no"]);
    assert!(over(advance(&mut session, &person)).is_none());
    assert_eq!(session.state.head.branch, Some("talk_1".parse::<RefName>().unwrap()));
    assert_eq!(session.state.replies_heard(), 0, "the photographer speaks first");

    assert!(say(&mut session, "warmer, please", &person).is_none());
    assert_eq!(spoken(&session.state), "Warmer now.");
    assert_eq!(moves(&mut session), ["warmth shift=12.00 mired"]);

    assert!(say(&mut session, "and brighter", &person).is_none());
    assert_eq!(moves(&mut session).len(), 2);
    let asked = person.asked.lock().unwrap().clone();
    assert!(asked[0].contains("hold the eye") && asked[0].contains("- vignette strength=-0.3"), "{asked:?}");

    // The photographer takes back by hand, and the model is told.
    let undone = session.by_hand(tools::UNDO, &json!({}), &person).unwrap();
    assert!(undone.text.contains("exposure ev=0.40 EV"), "{}", undone.text);
    session.tell("The photographer took back: exposure ev=0.40 EV.", &person).unwrap();
    assert_eq!(moves(&mut session), ["warmth shift=12.00 mired"]);

    assert!(say(&mut session, "good", &person).is_none(), "that may mean the end, and the answer was no");
    assert_eq!(person.asked.lock().unwrap()[1], tools::SHALL_WE_END);
    assert!(say(&mut session, "brighter after all", &person).is_none());
    assert_eq!(moves(&mut session).len(), 2);

    let end = say(&mut session, "that's all", &person).unwrap();
    assert_eq!((end.outcome, end.reason.as_str()), (Outcome::Completed, ""));
    assert_eq!(
        end.summary,
        "Warmer, with the shadows open. Exports spoken of and not made: a JPEG for the web."
    );
    assert_eq!(session.state.ending.as_ref().unwrap().1.as_deref(), Some("v2"));
    let folded = start::fold(session.photo.workspace(), &{
        let path = session.folder.join("transcript.jsonl");
        transcript::read(&path).unwrap().lines
    })
    .unwrap();
    assert_eq!(format!("{:?}", folded.messages), format!("{:?}", session.state.messages));
    drop(session);

    let photo = rig::photo(&rig.library);
    assert_eq!(photo.branch(&"main".parse().unwrap()).unwrap(), before, "main is the photographer's");
    let proposals = photo.pending_proposals().unwrap();
    assert_eq!(proposals.len(), 2, "{proposals:?}");
    assert!(!rig.library.join("tastes").exists(), "nothing is remembered without a person's word");
    let said = lines(&rig, &id);
    let declined = said.iter().any(|event| {
        matches!(event, Event::Clarification { question, answer: Some(answer) } if question.contains("vignette") && answer == "no")
    });
    assert!(declined, "what was declined stands in the transcript");
    assert!(said.iter().all(|event| !matches!(event, Event::Judgment(_))), "the photographer judges");
}

/// What was said and what came of it is the same, wherever a conversation is cut and taken up again.
#[test]
fn a_conversation_cut_after_any_line_goes_on() {
    let script = [
        reply("", &[WARMER]),
        reply("Warmer now.", &[]),
        reply("", &[BRIGHTER, LOOK]),
        reply("Brighter.", &[]),
        reply("", &[OVER]),
        reply("", &[NOTE, CLOSE]),
    ]
    .concat();
    let says = ["warmer", "brighter", "that's all"];
    let rig = Rig::new();
    let mut session = begin(&rig, &script);
    let id = session.state.start.session.clone();
    let copies = Copies { library: rig.library.clone(), to: rig::folder(), made: Mutex::default() };
    let goes_on = |session: &mut Session, from: usize, host: &dyn Host| {
        let mut ended = over(advance(session, host));
        for text in says.iter().skip(from) {
            assert!(ended.is_none());
            ended = say(session, text, host);
        }
        ended.unwrap()
    };
    assert_eq!(goes_on(&mut session, 0, &copies).outcome, Outcome::Completed);
    let tip = session.state.head.commit.clone();
    drop(session);
    let made = copies.made.into_inner().unwrap();
    assert!(made.len() > 20, "{made:?}");
    for cut in made {
        let photo = rig::photo(&cut);
        let path = photo.session_folder(&id).join("transcript.jsonl");
        let events = transcript::read(&path).unwrap().lines;
        let heard = events.iter().filter(|line| matches!(line.event, Event::Message { .. })).count();
        if events.iter().any(|line| matches!(line.event, Event::SessionEnd(_))) {
            continue;
        }
        let setup = rig::setup(&cut, &script, Arc::new(rig::Sums::default()));
        let mut session = start::resume(setup, &id, Resume::default()).unwrap();
        let lines = events.len();
        assert_eq!(
            goes_on(&mut session, heard, &Unwatched).outcome,
            Outcome::Completed,
            "cut after {lines} lines"
        );
        assert_eq!(session.state.head.commit, tip, "cut after {lines} lines");
        drop(session);
        assert_eq!(photo.pending_proposals().unwrap().len(), 1, "cut after {lines} lines");
    }
}

/// A host that keeps a copy of the library as it is after each line.
struct Copies {
    library: PathBuf,
    to: tempfile::TempDir,
    made: Mutex<Vec<PathBuf>>,
}

impl Host for Copies {
    fn line(&self, line: &transcript::Line, _: &State, _: &crate::budget::Ledger) {
        let to = self.to.path().join(line.seq.to_string());
        copy(&self.library, &to);
        self.made.lock().unwrap().push(to);
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().unwrap().is_dir() {
            copy(&from, &to);
        } else if from.is_symlink() {
            std::os::unix::fs::symlink(std::fs::read_link(&from).unwrap(), &to).unwrap();
        } else {
            std::fs::copy(&from, &to).unwrap();
        }
    }
}

#[test]
fn without_an_edit_there_is_no_look_back_and_no_call() {
    let rig = Rig::new();
    let mut session = begin(&rig, "");
    assert!(over(advance(&mut session, &Unwatched)).is_none());
    session.conclude(&Unwatched).unwrap();
    let end = over(advance(&mut session, &Unwatched)).unwrap();
    assert_eq!((end.outcome, end.spent.model_calls), (Outcome::Completed, 0));
}

#[test]
fn the_look_back_has_two_rounds_at_most() {
    let rig = Rig::new();
    let again = reply("", &[r#"{ name = "read_session_transcript" }"#]);
    let script = [reply("", &[WARMER]), reply("Done.", &[]), again.clone(), again.clone(), again].concat();
    let mut session = begin(&rig, &script);
    advance(&mut session, &Unwatched);
    assert!(say(&mut session, "warmer", &Unwatched).is_none());
    session.conclude(&Unwatched).unwrap();
    let end = over(advance(&mut session, &Unwatched)).unwrap();
    assert_eq!((end.outcome, session.state.replies_heard()), (Outcome::Completed, 4));
}

#[test]
fn an_ambiguous_ending_is_asked_about_once() {
    let rig = Rig::new();
    let again = r#"{ name = "end_conversation", arguments = { summary = "Done." } }"#;
    let script = [
        reply("", &[MAYBE_OVER]),
        reply("", &[again]),
        reply("Then let us go on.", &[]),
        reply("", &[MAYBE_OVER]),
    ]
    .concat();
    let mut session = begin(&rig, &script);
    let person = Person::answering(&["no", "yes"]);
    advance(&mut session, &person);
    assert!(say(&mut session, "enough for tonight", &person).is_none());
    assert_eq!(spoken(&session.state), "Then let us go on.");
    assert_eq!(*person.asked.lock().unwrap(), [tools::SHALL_WE_END]);
    // Other words are another question.
    let end = say(&mut session, "good", &person).unwrap();
    assert_eq!((end.outcome, person.asked.lock().unwrap().len()), (Outcome::Completed, 2));
}

#[test]
fn what_was_declined_is_not_asked_again() {
    let rig = Rig::new();
    let other_words = PROPOSE.replace("It would hold the eye on the cup.", "Once more.");
    let other = PROPOSE.replace("-0.3", "-0.1");
    let script = [
        reply("", &[PROPOSE, &other]),
        reply("As it is.", &[]),
        reply("", &[&other_words]),
        reply("", &[&other]),
        reply("As it is.", &[]),
    ]
    .concat();
    let mut session = begin(&rig, &script);
    let person = Person::answering(&["no", "yes", "no"]);
    advance(&mut session, &person);
    assert!(say(&mut session, "hello", &person).is_none());
    assert!(say(&mut session, "what do you think?", &person).is_none());
    let asked = person.asked.lock().unwrap().join("; ");
    let count = |edit: &str| asked.matches(edit).count();
    assert_eq!((count("strength=-0.3"), count("strength=-0.1")), (1, 2), "{asked}");
    let refused = session.state.messages.iter().filter(|message| match message {
        Message::Results { results } => results.iter().any(|r| r.text.contains("has said no to this")),
        _ => false,
    });
    assert_eq!(refused.count(), 1);

    // Nobody answers at once, and the answer is what is said next.
    let rig = Rig::new();
    let script = [reply("", &[PROPOSE]), reply("", &[PROPOSE]), reply("As it is.", &[])].concat();
    let mut session = begin(&rig, &script);
    advance(&mut session, &Unwatched);
    assert!(say(&mut session, "hello", &Unwatched).is_none());
    assert!(session.state.question.is_some());
    assert!(say(&mut session, "no", &Unwatched).is_none());
    assert_eq!((spoken(&session.state), session.state.question.is_none()), ("As it is.", true));
}

#[test]
fn three_calls_without_an_edit_are_worth_a_look_back() {
    for (calls, replies) in [(2, 2), (3, 3)] {
        let rig = Rig::new();
        let looks: Vec<String> =
            (1..=calls).map(|n| format!(r#"{{ name = "log", arguments = {{ limit = {n} }} }}"#)).collect();
        let looks: Vec<&str> = looks.iter().map(String::as_str).collect();
        let script = [reply("", &looks), reply("So.", &[]), reply("", &[CLOSE])].concat();
        let mut session = begin(&rig, &script);
        advance(&mut session, &Unwatched);
        assert!(say(&mut session, "what was done?", &Unwatched).is_none());
        session.conclude(&Unwatched).unwrap();
        assert!(over(advance(&mut session, &Unwatched)).is_some());
        assert_eq!(session.state.replies_heard(), replies, "{calls} calls");
    }
}

#[test]
fn the_look_back_proposes_two_points_of_taste_and_one_note_at_most() {
    use engine::photo::TasteCategory::{Appearance, Process};
    let rig = Rig::new();
    let taste = |text: &str, file: &str, category: &str| {
        format!(
            r#"{{ name = "propose_taste_update", arguments = {{ text = "{text}", file = "{file}", category = "{category}" }} }}"#
        )
    };
    let tastes = [
        taste("Prefers warm evenings.", "evenings", "appearance"),
        taste("Looks at whites first.", "_default", "process"),
        taste("Nothing may look like a filter.", "_default", "value"),
    ];
    let calls = [&tastes[0], &tastes[1], &tastes[2], NOTE, &NOTE.replace("cool", "warm"), CLOSE];
    let script = [reply("", &[WARMER]), reply("Done.", &[]), reply("", &calls)].concat();
    let mut session = begin(&rig, &script);
    advance(&mut session, &Unwatched);
    assert!(say(&mut session, "warmer", &Unwatched).is_none());
    session.conclude(&Unwatched).unwrap();
    assert!(over(advance(&mut session, &Unwatched)).is_some());
    drop(session);
    let made = rig::photo(&rig.library).pending_proposals().unwrap();
    let told: Vec<_> = made
        .iter()
        .map(|one| (one.proposed.file.as_deref(), one.proposed.category, one.proposed.text.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            (Some("evenings.md"), Some(Appearance), "Prefers warm evenings."),
            (Some("_default.md"), Some(Process), "Looks at whites first."),
            (None, None, "The cup stays on the cool side."),
        ]
    );
}

#[test]
fn a_look_back_that_fails_says_why() {
    let fault = "[[reply]]\nfault = { class = \"auth\", status = 401, times = 9 }\n";
    for (last, why) in [(fault, "no look back: "), ("", "")] {
        let rig = Rig::new();
        let script = [reply("", &[WARMER]), reply("Done.", &[]), last.to_owned()].concat();
        let mut session = begin(&rig, &script);
        advance(&mut session, &Unwatched);
        assert!(say(&mut session, "warmer", &Unwatched).is_none());
        session.conclude(&Unwatched).unwrap();
        let end = over(advance(&mut session, &Unwatched)).unwrap();
        assert_eq!(end.outcome, Outcome::Completed);
        assert!(end.reason.starts_with(why), "{}", end.reason);
    }
    // A stop, and a cap that is reached.
    let rig = Rig::new();
    let script = [reply("", &[WARMER]), reply("Done.", &[])].concat();
    let mut session = begin_with(rig.setup(&script), "time=20h,iterations=2,branches=1");
    advance(&mut session, &Unwatched);
    assert!(say(&mut session, "warmer", &Unwatched).is_none());
    session.conclude(&Unwatched).unwrap();
    session.stop.soft.cancel();
    assert!(over(advance(&mut session, &Unwatched)).is_some());
    assert_eq!(session.state.proposals, (0, 0));
}

/// With another model a reply is not lost, and nobody has to ask again.
#[test]
fn another_model_goes_on_where_the_first_gives_up() {
    let rig = Rig::new();
    let fault = "[[reply]]\nfault = { class = \"auth\", status = 401, times = 9 }\n";
    let setup = rig.setup(&[reply("", &[WARMER]), fault.to_owned()].concat());
    let plan = talk::plan(&setup, &request(BUDGET)).unwrap();
    let other =
        rig.setup(&[reply("", &[]), reply("I go on: warmer.", &[]), reply("Still here.", &[])].concat());
    let mut session = start::start(setup, plan.with_fallback(Some(other.provider)).unwrap()).unwrap();
    let id = session.state.start.session.clone();
    advance(&mut session, &Unwatched);
    assert!(say(&mut session, "warmer", &Unwatched).is_none());
    assert_eq!((spoken(&session.state), session.state.given_up()), ("I go on: warmer.", None));
    assert!(say(&mut session, "are you there?", &Unwatched).is_none());
    assert_eq!(spoken(&session.state), "Still here.");
    let fell = lines(&rig, &id).iter().filter(|event| matches!(event, Event::Fallback { .. })).count();
    assert_eq!(fell, 1);
    assert_eq!(moves(&mut session), ["warmth shift=12.00 mired"]);
}

#[test]
fn a_stopped_reply_leaves_no_call_open_and_the_conversation_goes_on() {
    struct Stops<'a>(&'a base::clock::Cancel);
    impl Host for Stops<'_> {
        fn busy(&self, what: &str) {
            if what == "apply_primitive" {
                self.0.cancel();
            }
        }
    }
    let rig = Rig::new();
    let script = [reply("", &[WARMER, BRIGHTER, LOOK]), reply("Only warmer, then.", &[])].concat();
    let mut session = begin(&rig, &script);
    advance(&mut session, &Unwatched);
    let soft = session.stop.soft.clone();
    assert!(say(&mut session, "warmer and brighter", &Stops(&soft)).is_none());
    let results = match session.state.messages.last() {
        Some(Message::Results { results }) => results.clone(),
        other => panic!("{other:?}"),
    };
    let failed: Vec<bool> = results.iter().map(|result| result.is_error).collect();
    assert_eq!(failed, [false, true, true], "what was under way is finished, the rest is not made");
    assert!(say(&mut session, "what did you do?", &Unwatched).is_none());
    assert_eq!(spoken(&session.state), "Only warmer, then.");
    assert_eq!(moves(&mut session), ["warmth shift=12.00 mired"]);
}

#[test]
fn a_provider_that_fails_costs_a_reply_and_not_the_conversation() {
    let rig = Rig::new();
    let fault = "[[reply]]\ntext = \"Here again.\"\nfault = { class = \"auth\", status = 401, times = 1 }\n";
    let mut session = begin(&rig, fault);
    advance(&mut session, &Unwatched);
    assert!(say(&mut session, "warmer", &Unwatched).is_none());
    assert!(session.state.given_up().is_some());
    assert!(say(&mut session, "are you there?", &Unwatched).is_none());
    assert_eq!((spoken(&session.state), session.state.given_up()), ("Here again.", None));
}

#[test]
fn no_cap_is_passed_and_a_raise_goes_on() {
    let rig = Rig::new();
    let look = r#"{ name = "get_state", arguments = { ref = "baseline" } }"#;
    let script =
        [reply("", &[WARMER, look, BRIGHTER]), reply("", &[BRIGHTER]), reply("Now it is brighter.", &[])]
            .concat();
    // One iteration makes the branch, and two are left.
    let mut session = begin_with(rig.setup(&script), "time=20h,iterations=3,branches=1");
    advance(&mut session, &Unwatched);
    assert!(say(&mut session, "warmer and brighter", &Unwatched).is_none());
    assert_eq!(session.state.cap.unwrap().cap, Cap::Iterations);
    assert_eq!(session.gate.ledger().settled().iterations, 3);
    assert!(say(&mut session, "go on", &Unwatched).is_none(), "words do not raise it");
    assert_eq!(session.state.replies_heard(), 1);
    session.raise("iterations=5", &Unwatched).unwrap();
    assert!(over(advance(&mut session, &Unwatched)).is_none());
    assert_eq!(spoken(&session.state), "Now it is brighter.");
}

#[test]
fn a_conversation_is_not_run_like_an_unattended_session() {
    let rig = Rig::new();
    let mut session = begin(&rig, "");
    let error = session.run_alone(&Unwatched).unwrap_err();
    assert!(error.to_string().contains("waits for the photographer"), "{error}");
}

/// Whatever a model calls, taste and notes are a person's.
#[test]
fn a_model_that_calls_everything_remembers_nothing() {
    let rig = Rig::new();
    let notes = rig::photo(&rig.library).folder().join("notes.md");
    let before = std::fs::read_to_string(&notes).unwrap_or_default();
    let arguments = [
        "{}".to_owned(),
        r#"{ text = "I like it", file = "_default", category = "value" }"#.to_owned(),
        r#"{ text = "../x", file = "../../x" }"#.to_owned(),
        r#"{ certain = true, summary = "x", tag = "main", exports = ["x"] }"#.to_owned(),
        r#"{ name = "main", ref = "main", commit = "main", branch = "main", label = "x" }"#.to_owned(),
    ];
    let names = [
        "accept_proposal",
        "bind_layers",
        "branch",
        "checkout",
        "confirm_taste_update",
        "end_conversation",
        "propose_notes_update",
        "propose_taste_update",
        "record_judgment",
        "reset",
        "rollback",
        "save_mask",
        "snapshot",
        "tag",
        "undo",
        "write_notes",
    ];
    let mut script = String::new();
    for arguments in &arguments {
        let calls: Vec<String> =
            names.iter().map(|name| format!("{{ name = {name:?}, arguments = {arguments} }}")).collect();
        for call in calls {
            script.push_str(&reply("", &[&call]));
        }
    }
    let mut session = begin(&rig, &script);
    let before_main = session.photo.workspace().branch(&"main".parse().unwrap()).unwrap();
    advance(&mut session, &Unwatched);
    session.say("do as you like", &Unwatched).unwrap();
    for _ in 0..100 {
        if over(advance(&mut session, &Unwatched)).is_some() {
            break;
        }
        session.say("go on", &Unwatched).unwrap();
    }
    let results = lines(&rig, &session.state.start.session.clone());
    let results = results.iter().filter(|event| matches!(event, Event::ToolResult { .. })).count();
    assert!(results > 20, "{results}");
    assert!(!rig.library.join("tastes").exists());
    assert_eq!(std::fs::read_to_string(&notes).unwrap_or_default(), before);
    assert_eq!(session.photo.workspace().branch(&"main".parse().unwrap()).unwrap(), before_main);
}

#[test]
fn a_conversation_begins_on_the_next_free_branch() {
    let rig = Rig::new();
    for name in ["talk_1", "talk_2"] {
        let mut session = begin(&rig, "");
        advance(&mut session, &Unwatched);
        assert_eq!(session.state.head.branch.as_ref().unwrap().as_str(), name);
        let foreign = session.by_hand("branch", &json!({ "name": "main2" }), &Unwatched).unwrap();
        assert!(foreign.is_error && foreign.text.contains("PERMISSION_DENIED"), "{}", foreign.text);
    }
}
