//! A person's word, budgets of states, conditions on what is left, stops and caps: each leads where the protocol
//! says.

use std::sync::Arc;
use std::time::Duration;

use base::clock::ManualClock;
use chemigram::budget::Cap;
use chemigram::gate::{ModelCall, Permit};
use chemigram::protocol::machine::EndKind;
use chemigram::provider::script::Script;
use chemigram::provider::{Attempt, ModelInfo, ModelRequest, Provider};
use chemigram::session::opinion::Referee;
use chemigram::session::protocols::{self, ProtocolSource};
use chemigram::session::start::{self, Resume};
use chemigram::transcript::{Event, Outcome};

use super::{Ran, begin, named, run, wanted};
use crate::support::{self, Studio, confirm, reply};

fn model(script: &str) -> Arc<Script> {
    Arc::new(Script::parse("agent", script).unwrap())
}

/// A protocol that looks, with these fields in its one working state.
fn look(fields: &str) -> ProtocolSource {
    let text = format!(
        r#"
        protocolVersion = 2
        initialState = "Look"
        maxIterations = 5
        [defaults]
        onExhausted = "Close"
        onBudget = "Close"
        [[states]]
        name = "Look"
        instructions = "Look."
        validationCriteria = "Looked."
        tools = ["get_state", "log"]
        {fields}
        [[states]]
        name = "Close"
        usesReserve = true
        instructions = "End."
        validationCriteria = "Ended."
        tools = ["end_mode_b_session"]
        transitions = [{{ on = "pass", to = "Done" }}, {{ on = "exhausted", to = "Done" }}]
        [[states]]
        name = "Done"
        kind = "final"
        [[states]]
        name = "Sorry"
        kind = "final"
        outcome = "failed"
        "#
    );
    ProtocolSource { file: "look.toml".into(), text, ..ProtocolSource::default() }
}

fn looked() -> String {
    reply(&[("get_state", "{}"), ("log", "{}"), ("attempt_done", "{}")])
}

fn ended() -> String {
    reply(&[("end_mode_b_session", r#"{"session_summary": "Looked."}"#)])
}

fn ran(fields: &str, budget: &str, script: &str) -> Ran {
    let studio = Studio::new();
    run(&studio, model(script), Referee::Nobody, &wanted(budget, &[]), &look(fields))
}

const BUDGET: &str = "time=5m,iterations=9,branches=1";

#[test]
fn a_person_who_is_not_there_is_waited_for() {
    let gate = r#"gate = "confirm"
        transitions = [{ on = "pass", to = "Close" }, { on = "declined", to = "Sorry" }]"#;
    for (answer, outcome, way) in
        [("yes", Outcome::Completed, vec!["Look", "Close"]), ("no", Outcome::ProtocolFailed, vec!["Look"])]
    {
        let studio = Studio::new();
        let script = looked() + &ended();
        let first = run(&studio, model(&script), Referee::Nobody, &wanted(BUDGET, &[]), &look(gate));
        assert_eq!(first.end.outcome, Outcome::NeedsClarification);
        let id = first.session.state.start.session.clone();
        drop(first);
        let with = Resume { answer: Some(answer.into()), ..Resume::default() };
        let mut session = start::resume(studio.setup(model(&script)), &id, with).unwrap();
        let end = support::run(&mut session);
        assert_eq!(end.outcome, outcome, "{}", end.reason);
        let lines = studio.lines(&id);
        let states: Vec<&str> = lines
            .iter()
            .filter_map(|line| match &line.event {
                Event::Brief { state, .. } => Some(state.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(states, way);
        drop(session);
        // A run that has ended is over.
        let again = start::resume(studio.setup(model(&script)), &id, Resume::default()).err().unwrap();
        assert!(again.to_string().contains("so has its protocol"), "{again}");
    }
}

#[test]
fn a_state_that_has_used_up_its_own_budget_is_exhausted() {
    let fields = r#"budget = { max_iterations = 2 }
        transitions = [{ on = "pass", to = "Sorry" }]"#;
    let ran = ran(fields, BUDGET, &(looked() + &ended()));
    assert_eq!(ran.way(), ["Look", "Close"]);
    assert_eq!(ran.end.outcome, Outcome::Completed, "{}", ran.end.reason);
    // What the reply asked for besides came too late.
    assert!(support::results(&ran.lines, "attempt_done")[0].1.contains("is over"));
}

#[test]
fn a_condition_may_ask_what_is_left() {
    let fields = r#"transitions = [
            { on = "pass", when = { budget = "iterations", op = ">=", value = 8 }, to = "Sorry" },
            { on = "pass", to = "Close" },
        ]"#;
    for (iterations, outcome) in [(9, Outcome::Completed), (10, Outcome::ProtocolFailed)] {
        let budget = format!("time=5m,iterations={iterations},branches=1");
        let ran = ran(fields, &budget, &(looked() + &ended()));
        assert_eq!(ran.end.outcome, outcome, "of {iterations}: {}", ran.end.reason);
    }
}

#[test]
fn a_stop_and_a_cap_lead_to_the_wrap_up() {
    let studio = Studio::new();
    let request = wanted("time=5m,iterations=9,branches=1", &[("tone", "brighter")]);
    let script = ended();
    let mut session = begin(&studio, model(&script), Referee::Nobody, &request, &named("mode_b_explore"));
    session.stop.soft.cancel();
    let end = support::run(&mut session);
    assert_eq!((end.outcome, end.summary.as_str()), (Outcome::Cancelled, "Looked."));
    let ending = session.state.steering.as_ref().unwrap().ending().unwrap().clone();
    assert_eq!((ending.kind, ending.wrapped_up), (EndKind::Cancelled, true));
    drop(session);

    let ev = |ev: f64| {
        let args = format!(r#"{{"primitive_name": "exposure", "parameter_values": {{"ev": {ev}}}}}"#);
        reply(&[("apply_primitive", &args)])
    };
    let script = confirm(&["tone"])
        + &reply(&[("attempt_done", "{}")])
        + &ev(0.1)
        + &ev(0.2)
        + &ev(0.3)
        + &reply(&[("apply_primitive", "{}")])
        + &ended();
    let request = wanted("time=5m,iterations=4,branches=1", &[("tone", "brighter")]);
    let ran = run(&studio, model(&script), Referee::Nobody, &request, &named("mode_b_explore"));
    assert_eq!(
        (ran.end.outcome, ran.end.cap.map(|c| c.cap)),
        (Outcome::BudgetExhausted, Some(Cap::Iterations))
    );
    // What no check has seen is taken back, with the wrap-up's own means.
    assert_eq!(ran.way(), ["Plan", "(branch)", "Explore", "(rollback)", "WrapUp"]);
    assert!(ran.end.spent.iterations <= 4, "{:?}", ran.end.spent);
}

/// A protocol that looks, within this budget of the whole run.
fn within(budget: &str) -> ProtocolSource {
    let mut asked = look(
        r#"maxSteps = 100
        transitions = [{ on = "pass", to = "Close" }]"#,
    );
    asked.text =
        asked.text.replacen("maxIterations = 5", &format!("maxIterations = 5\nbudget = {budget}"), 1);
    asked
}

/// An agent that looks again and again, and only ends the session when it is told to.
fn dawdler() -> String {
    let looks: Vec<String> = (1..30).map(|n| reply(&[("log", &format!(r#"{{"limit": {n}}}"#))])).collect();
    looks.concat()
}

#[test]
fn a_runs_model_calls_are_a_cap_and_its_reserve_is_kept() {
    for (calls, reserve) in [(6, 2), (4, 1)] {
        let studio = Studio::new();
        let budget = format!(
            "{{ max_model_calls = {calls}, reserve = {{ time_seconds = 5, model_calls = {reserve} }} }}"
        );
        let work = calls - reserve;
        // As many looks as the work may take; what comes then is the wrap-up's.
        let script: String = dawdler().split_inclusive("\n\n").take(work).collect();
        let ran = run(
            &studio,
            model(&(script + &ended())),
            Referee::Nobody,
            &wanted(BUDGET, &[]),
            &within(&budget),
        );
        let fired = ran.end.cap.unwrap();
        assert_eq!((fired.cap, fired.limit), (Cap::ModelCalls, calls as u64), "{}", ran.end.reason);
        assert_eq!(ran.way(), ["Look", "Close"]);
        assert_eq!(ran.end.summary, "Looked.", "the wrap-up could not be paid");
        assert_eq!(ran.end.spent.model_calls, work as u64 + 1);
    }
    // Who dawdles in the wrap-up too has no call beyond the cap.
    let studio = Studio::new();
    let budget = "{ max_model_calls = 5, reserve = { time_seconds = 5, model_calls = 2 } }";
    let ran = run(&studio, model(&dawdler()), Referee::Nobody, &wanted(BUDGET, &[]), &within(budget));
    assert_eq!(ran.end.outcome, Outcome::BudgetExhausted, "{}", ran.end.reason);
    assert_eq!(ran.end.spent.model_calls, 5);
}

#[test]
fn a_runs_reserve_of_time_is_kept_and_must_fit() {
    let studio = Studio::new();
    let clock = Arc::new(ManualClock::default());
    let script = dawdler().split_inclusive("\n\n").take(5).collect::<String>() + &ended();
    let slow = Slow { script: model(&script), clock: clock.clone() };
    let mut setup = studio.setup(Arc::new(slow));
    setup.clock = clock;
    let asked = within("{ reserve = { time_seconds = 300, model_calls = 1 } }");
    let request = wanted("time=10m,iterations=9,branches=1", &[]);
    let plan = protocols::plan(&setup, &request, &asked).unwrap();
    let mut session = start::start(setup, plan).unwrap();
    let end = support::run(&mut session);
    // Five replies of a minute each have used up what is not kept.
    assert_eq!(
        (end.cap.map(|cap| cap.cap), end.summary.as_str()),
        (Some(Cap::Time), "Looked."),
        "{}",
        end.reason
    );
    assert_eq!(end.spent.model_calls, 6);
    drop(session);

    let short = wanted("time=5m,iterations=9,branches=1", &[]);
    let refused = protocols::plan(&studio.setup(model(&script)), &short, &asked).err().unwrap();
    assert!(
        refused.to_string().contains("reserves 300 seconds for its wrap-up, but the budget has only 300"),
        "{refused}"
    );
}

/// A model that takes a minute for each reply.
struct Slow {
    script: Arc<Script>,
    clock: Arc<ManualClock>,
}

impl Provider for Slow {
    fn info(&self) -> &ModelInfo {
        self.script.info()
    }

    fn attempt<'a>(&'a self, permit: Permit<ModelCall>, request: &'a ModelRequest<'a>) -> Attempt<'a> {
        self.clock.advance(Duration::from_secs(60));
        self.script.attempt(permit, request)
    }
}
