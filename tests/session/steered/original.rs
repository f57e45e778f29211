//! The original format runs as it did in the original.

use std::sync::Arc;

use base::error::Coded as _;
use chemigram::protocol::schema::Trust;
use chemigram::protocol::{Options, load};
use chemigram::provider::script::Script;
use chemigram::session::opinion::Referee;
use chemigram::session::protocols::{ProtocolSource, needs_referee};
use chemigram::transcript::{Event, Outcome};
use serde_json::{Value, json};

use super::judge::Judge;
use super::{Ran, run, wanted};
use crate::support::{Studio, reply};

const ORIGIN: &str = include_str!("../../protocols/origin_example.json");

/// The origin's own example, with a model that looks once an attempt and a referee that rules like this.
fn played(rule: impl Fn(usize) -> Value + Send + Sync + 'static) -> Ran {
    let asked =
        ProtocolSource { file: "origin.json".into(), text: ORIGIN.into(), ..ProtocolSource::default() };
    let studio = Studio::new();
    let work = reply(&[("get_state", "{}"), ("attempt_done", "{}")])
        .replace("[[reply]]\n", "[[reply]]\nrepeat = \"forever\"\ntext = \"Referee: Passed\"\n");
    let model = Arc::new(Script::parse("work", &work).unwrap());
    let judge = Judge::new(move |number, _| ("give_ruling", rule(number)));
    run(&studio, model, judge.referee(), &wanted("time=10m,iterations=90,branches=1", &[]), &asked)
}

fn passed(next: Value) -> Value {
    json!({"found": "It does.", "passed": true, "feedback": "", "next_state": next})
}

fn failed() -> Value {
    json!({"found": "It does not.", "passed": false, "feedback": "look again", "next_state": null})
}

#[test]
fn its_example_loads_with_one_warning_and_runs_to_its_end() {
    let loaded = load("origin.json", ORIGIN, &Options::default());
    assert_eq!(loaded.findings.len(), 1, "{:?}", loaded.findings);
    let ran = played(|number| if number == 0 { passed("Fix".into()) } else { passed(Value::Null) });
    assert_eq!(ran.way(), ["Analyze", "(referee)", "Fix", "(referee)"]);
    assert_eq!(ran.end.outcome, Outcome::Completed, "{}", ran.end.reason);
}

#[test]
fn i2_i5_a_state_says_that_words_are_a_result_and_without_a_model_that_judges_it_does_not_begin() {
    let ran = played(|number| if number == 0 { passed("Fix".into()) } else { passed(Value::Null) });
    for brief in ["Analyze", "Fix"].map(|state| ran.briefs(state)[0].to_owned()) {
        assert!(brief.contains("What you write is a result too"), "{brief}");
        assert!(brief.contains("You may call: any tool."), "{brief}");
    }
    // I2: nobody who only measures can tell what "if bug found" means.
    let protocol = load("origin.json", ORIGIN, &Options::default()).into_protocol().unwrap();
    for who in [Referee::Nobody, Referee::Offline] {
        let refused = needs_referee(&protocol, &who).unwrap_err();
        assert!(refused.remedy().unwrap().contains("--referee PROVIDER"), "{refused}");
    }
}

#[test]
fn i9_a_variable_without_a_value_says_how_to_give_it_one() {
    let text = ORIGIN.replace("in the logs", "in {{place}}");
    assert_ne!(text, ORIGIN);
    let mut options = Options::default();
    let said =
        load("origin.json", &text, &options).findings.iter().map(ToString::to_string).collect::<String>();
    assert!(said.contains("there is no variable `place`: give it a value with --var place=VALUE"), "{said}");
    options.values.set("place", "the shadows", Trust::User);
    assert!(!load("origin.json", &text, &options).has_errors());
}

#[test]
fn three_attempts_are_all_and_each_is_told_why() {
    let ran = played(|_| failed());
    assert_eq!(ran.way(), ["Analyze", "(referee)", "Analyze", "(referee)", "Analyze", "(referee)"]);
    let briefs = ran.briefs("Analyze");
    assert!(!briefs[0].contains("look again") && briefs[1].contains("look again"), "{briefs:?}");
    assert_eq!(ran.end.outcome, Outcome::ProtocolFailed);
    assert!(ran.end.reason.contains("used up in `Analyze`"), "{}", ran.end.reason);
}

#[test]
fn twenty_transitions_are_all() {
    let ran = played(|_| passed("Fix".into()));
    let visits = ran.lines.iter().filter(|line| matches!(line.event, Event::Brief { .. })).count();
    assert_eq!(visits, 20);
    assert_eq!(ran.end.outcome, Outcome::BudgetExhausted);
    assert!(ran.end.reason.contains("20 transitions"), "{}", ran.end.reason);
}

#[test]
fn an_undeclared_state_costs_the_attempt_and_the_legal_names_are_told() {
    let ran = played(|number| match number {
        0 => passed("Search".into()),
        _ => passed(Value::Null),
    });
    assert_eq!(ran.way(), ["Analyze", "(referee)", "Analyze", "(referee)"]);
    let told = ran.briefs("Analyze")[1];
    assert!(told.contains("attempt 2 of 3") && told.contains("Analyze, Fix, or null"), "{told}");
    assert_eq!(ran.end.outcome, Outcome::Completed, "{}", ran.end.reason);
}
