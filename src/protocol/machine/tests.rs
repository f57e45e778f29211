//! The machine: by hand where a rule is to be seen, and by the hundred thousand where it must always hold.

mod random;

use std::sync::LazyLock;

use super::*;
use crate::protocol::schema::*;
use crate::protocol::variables::{Purpose, Values};
use crate::protocol::{Options, load};
use pixels::metrics::check::Verdict as Direction;

/// Places of a photo, made once: hashes are dear when there are a hundred thousand runs.
static PLACES: LazyLock<Vec<Hash>> = LazyLock::new(|| (0..8).map(|n: u32| Hash::of(n.to_string())).collect());

fn head(n: u32) -> HeadState {
    let place = &PLACES[n as usize];
    HeadState { branch: None, commit: place.clone(), state: place.clone() }
}

fn protocol(toml: &str) -> Protocol {
    load("test.toml", toml, &Options::default()).into_protocol().unwrap()
}

fn origin() -> Protocol {
    let text = include_str!("../../../tests/protocols/origin_example.json");
    load("origin.json", text, &Options::default()).into_protocol().unwrap()
}

/// A strict protocol of one working state with these fields.
fn one(fields: &str) -> Protocol {
    protocol(&format!(
        r#"
        protocolVersion = 2
        initialState = "Work"
        maxIterations = 9
        [defaults]
        onExhausted = "Close"
        onBudget = "Close"
        [[states]]
        name = "Work"
        instructions = "Work."
        validationCriteria = "Done."
        tools = ["render_preview", "apply_primitive"]
        transitions = [{{ on = "pass", to = "Close" }}]
        {fields}
        [[states]]
        name = "Close"
        usesReserve = true
        instructions = "Close."
        validationCriteria = "Closed."
        tools = ["record_judgment"]
        transitions = [{{ on = "pass", to = "Done" }}, {{ on = "exhausted", to = "Done" }}]
        [[states]]
        name = "Done"
        kind = "final"
        "#
    ))
}

/// A run with its last commands.
struct Play<'a> {
    protocol: &'a Protocol,
    run: Run,
    commands: Vec<Command>,
}

impl<'a> Play<'a> {
    fn begin(protocol: &'a Protocol) -> Self {
        let (run, commands) = Run::begin(protocol, head(0));
        Self { protocol, run, commands }
    }

    fn tell(&mut self, event: Event) -> &mut Self {
        (self.run, self.commands) = self.run.clone().step(self.protocol, event);
        self
    }

    fn state(&self) -> &str {
        &self.protocol.state(self.run.state()).unwrap().name
    }

    fn call(&mut self, tool: &str, ok: bool, to: u32) -> &mut Self {
        self.tell(Event::ToolAsked { tool: tool.into(), args: "{}".into() });
        self.tell(Event::ToolReturned { tool: tool.into(), args: "{}".into(), ok, head: Some(head(to)) })
    }

    fn done(&mut self) -> &mut Self {
        self.tell(Event::Finished { fields: Numbers::new() })
    }

    fn brief(&self) -> &Brief {
        let work =
            self.commands.iter().find_map(|c| if let Command::Work(brief) = c { Some(brief) } else { None });
        work.unwrap_or_else(|| panic!("no work in {:?}", self.commands))
    }

    fn ending(&self) -> (EndKind, bool) {
        let ending = self.run.ending().unwrap_or_else(|| panic!("not at the end: {:?}", self.commands));
        (ending.kind, ending.wrapped_up)
    }
}

fn passed(next: &str) -> Event {
    Event::Ruled(Ruling::Passed { next: Some(next.into()) })
}

fn failed(feedback: &str) -> Event {
    Event::Ruled(Ruling::Failed { feedback: feedback.into() })
}

#[test]
fn the_original_has_three_attempts_in_all_and_tells_why() {
    let protocol = origin();
    let mut play = Play::begin(&protocol);
    for attempt in 1..=3 {
        assert_eq!((play.brief().attempt, play.brief().attempts), (attempt, 3));
        assert_eq!(play.brief().feedback.is_some(), attempt > 1);
        play.done();
        let Some(Command::AskReferee { legal, .. }) = play.commands.first() else {
            panic!("{:?}", play.commands)
        };
        assert_eq!(legal, &["Analyze", "Fix"]);
        play.tell(failed("look again"));
    }
    assert_eq!(play.ending(), (EndKind::Exhausted, false));
    assert_eq!(play.run.transitions(), 0);
}

#[test]
fn the_original_makes_twenty_transitions() {
    let protocol = origin();
    let mut play = Play::begin(&protocol);
    let mut visits = 0;
    while play.run.ending().is_none() {
        visits += 1;
        play.done().tell(passed("Fix"));
    }
    assert_eq!((visits, play.run.transitions()), (20, 20));
    assert_eq!(play.ending(), (EndKind::Transitions, false));
    // A pass that names no state ends it, on the first visit or the twentieth.
    let mut play = Play::begin(&protocol);
    for _ in 0..19 {
        play.done().tell(passed("Fix"));
    }
    play.done().tell(Event::Ruled(Ruling::Passed { next: None }));
    assert_eq!(play.ending(), (EndKind::Completed, false));
}

#[test]
fn an_undeclared_state_costs_the_attempt_and_the_legal_names_are_told() {
    let protocol = origin();
    let mut play = Play::begin(&protocol);
    play.done().tell(passed("Search"));
    let feedback = play.brief().feedback.clone().unwrap();
    assert!(feedback.contains("`Search`") && feedback.contains("Analyze, Fix, or null"), "{feedback}");
    assert_eq!(play.brief().attempt, 2);
    play.done().tell(passed("Search")).done().tell(passed("Search"));
    assert_eq!(play.ending(), (EndKind::ProtocolError, false));
}

#[test]
fn a_state_allows_its_own_tools_only() {
    let protocol = one("");
    let mut play = Play::begin(&protocol);
    play.tell(Event::ToolAsked { tool: "tag".into(), args: "{}".into() });
    let [Command::Refuse { fault, .. }] = play.commands.as_slice() else { panic!("{:?}", play.commands) };
    assert_eq!(fault.code, ErrorCode::PermissionDenied);
    assert!(fault.message.contains("apply_primitive, render_preview"), "{}", fault.message);
    play.tell(Event::ToolAsked { tool: "render_preview".into(), args: "{}".into() });
    assert!(matches!(play.commands.as_slice(), [Command::RunTool { .. }]));
    // While a call is under way the attempt is not done.
    play.done();
    assert!(matches!(play.commands.as_slice(), [Command::Note { .. }]));
}

#[test]
fn checks_decide_before_the_referee_and_it_may_only_tighten() {
    let protocol = one(r#"checks = ["render_ok"]
        validatedBy = "referee""#);
    let measured = |rendered| Event::Measured(Box::new(Measured { rendered, ..Measured::default() }));
    let mut play = Play::begin(&protocol);
    play.done();
    assert!(matches!(play.commands.as_slice(), [Command::Measure { .. }]));
    play.tell(measured(false));
    assert_eq!(play.run.referee_calls(), 0);
    assert!(play.brief().feedback.as_ref().unwrap().contains("picture"));
    play.done().tell(measured(true));
    assert!(matches!(play.commands.as_slice(), [Command::AskReferee { .. }]));
    play.tell(failed("flat"));
    assert_eq!((play.brief().attempt, play.brief().feedback.as_deref()), (3, Some("flat")));
    // Without an answer the checks stand, and it is said.
    play.done().tell(measured(true)).tell(Event::Failed { message: "no referee".into() });
    assert!(play.commands.contains(&Command::Remark { flag: Flag::Unrefereed }));
    assert_eq!(play.state(), "Close");
}

#[test]
fn a_failed_attempt_is_rolled_back_where_the_state_says_so() {
    for (fields, rolled) in [("onFail = \"rollback\"", true), ("", false)] {
        let protocol = one(fields);
        let mut play = Play::begin(&protocol);
        play.call("apply_primitive", true, 1).tell(Event::Failed { message: "lost".into() });
        let back = play.commands.contains(&Command::Rollback { to: head(0) });
        assert_eq!(back, rolled, "{:?}", play.commands);
        assert_eq!(play.brief().attempt, 2);
        // A cap cuts an attempt that nothing has checked.
        play.call("apply_primitive", true, 2).tell(Event::CapFired { cap: "renders".into() });
        assert_eq!(play.commands.contains(&Command::Rollback { to: head(u32::from(!rolled)) }), rolled);
        assert_eq!(play.state(), "Close");
    }
}

#[test]
fn caps_stops_and_limits_lead_to_the_wrap_up() {
    let protocol = one("budget = { max_renders = 2 }");
    let spent = Event::Spent { amounts: Amounts { renders: 1, ..Amounts::default() }, ms: 10 };
    let cases = [
        (vec![Event::CapFired { cap: "time".into() }], EndKind::Budget, true),
        (vec![Event::Stop { now: false }], EndKind::Cancelled, true),
        (vec![Event::Stop { now: true }], EndKind::Cancelled, false),
        (vec![Event::Broken { message: "disk".into() }], EndKind::Broken, false),
        (vec![spent.clone(), spent], EndKind::Completed, true),
    ];
    for (events, kind, wrapped) in cases {
        let mut play = Play::begin(&protocol);
        for event in events.clone() {
            play.tell(event);
        }
        assert_eq!(play.run.ending().is_none(), wrapped, "{events:?}");
        if wrapped {
            assert_eq!((play.state(), play.run.stage()), ("Close", Stage::WrapUp), "{events:?}");
            // Whatever fires now, the wrap-up can only end.
            play.tell(Event::CapFired { cap: "tokens".into() });
            let kind = if kind == EndKind::Completed { EndKind::Budget } else { kind };
            assert_eq!(play.ending(), (kind, true), "{events:?}");
        } else {
            assert_eq!(play.ending(), (kind, false), "{events:?}");
        }
    }
}

#[test]
fn circles_are_found() {
    let protocol = one("maxAttempts = 1");
    let repeated = |event: Event, times: usize| {
        let mut play = Play::begin(&protocol);
        for _ in 0..times {
            play.tell(event.clone());
        }
        play.state().to_owned()
    };
    assert_eq!(repeated(Event::Spoke, 2), "Work");
    assert_eq!(repeated(Event::Spoke, 3), "Close");
    let mut play = Play::begin(&protocol);
    play.call("render_preview", false, 0);
    assert_eq!(play.state(), "Work");
    play.call("render_preview", false, 0);
    assert_eq!(play.state(), "Close");
    let mut play = Play::begin(&protocol);
    for to in [1, 0, 1, 0] {
        play.call("apply_primitive", true, to);
    }
    assert_eq!(play.state(), "Close");
    let pair = protocol_of_two();
    let mut play = Play::begin(&pair);
    for state in ["A", "B", "A"] {
        assert_eq!(play.state(), state);
        play.done();
    }
    assert_eq!(play.ending(), (EndKind::Loop, false));
    // With something new on the way it is no circle.
    let mut play = Play::begin(&pair);
    for edit in 1..5 {
        play.call("apply_primitive", true, edit).done();
    }
    assert!(play.run.ending().is_none());
}

/// Two states that pass the ball to each other.
fn protocol_of_two() -> Protocol {
    let state = |name: &str, other: &str| {
        format!(
            r#"
            [[states]]
            name = "{name}"
            instructions = "Work."
            validationCriteria = "Done."
            tools = ["apply_primitive"]
            transitions = [{{ on = "pass", to = "{other}" }}, {{ on = "exhausted" }}]
            "#
        )
    };
    let top =
        "protocolVersion = 2\ninitialState = \"A\"\nmaxIterations = 9\ndefaults = { onBudget = \"@done\" }\n";
    protocol(&format!("{top}{}{}", state("A", "B"), state("B", "A")))
}

#[test]
fn the_shipped_exploration_takes_every_vector_in_turn() {
    let text = include_str!("../../../protocols/mode_b_explore.toml");
    let mut values = Values::default();
    let vectors = serde_json::json!([
        { "name": "tone", "direction": "more {{brief}} <drama>" },
        { "name": "color", "direction": "warmer", "branch": "branch_b_color_2" },
        { "name": "depth", "direction": "softer" },
    ]);
    values.set("vectors", vectors, Trust::User);
    values.set("brief", "quiet", Trust::User);
    let options = Options { values, purpose: Purpose::Run, ..Options::default() };
    let protocol = load("mode_b_explore.toml", text, &options).into_protocol().unwrap();
    let good = || {
        let numbers =
            |pairs: &[(&str, f64)]| pairs.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect::<Numbers>();
        let clip = [("clip_high_pct", 0.0), ("clip_low_pct", 0.0), ("delta_e_mean", 3.0)];
        Event::Measured(Box::new(Measured {
            rendered: true,
            direction: Some(Direction::Met),
            now: numbers(&[("lightness.p99", 90.0), ("clip_high_pct", 0.0), ("clip_low_pct", 0.0)]),
            baseline: Some(numbers(&clip)),
            parent: Some(numbers(&clip)),
            ..Measured::default()
        }))
    };
    let judged = |score: f64| Event::Finished {
        fields: [("judged_score".to_owned(), score), ("abandoned".to_owned(), 0.0)].into(),
    };
    let acted = |play: &Play<'_>, tool: &str| {
        let found = play.commands.iter().find_map(|c| match c {
            Command::Act { tool: t, args } if t == tool => Some(args.clone()),
            _ => None,
        });
        found.unwrap_or_else(|| panic!("no {tool} in {:?}", play.commands))
    };
    let back =
        |tool: &str| Event::ToolReturned { tool: tool.into(), args: String::new(), ok: true, head: None };

    let mut play = Play::begin(&protocol);
    assert!(play.brief().instructions.contains("<data name=\"vectors\">tone (more {{brief}} ‹drama›)"));
    play.done();
    // The first vector: better, kept.
    assert_eq!(acted(&play, "branch"), serde_json::json!({ "name": "branch_b_tone" }));
    play.tell(back("branch"));
    let told = play.brief().instructions.clone();
    assert!(told.contains("`branch_b_tone`"), "{told}");
    assert!(told.contains("<data name=\"vector.direction\">more {{brief}} ‹drama›</data>"), "{told}");
    play.done().tell(good());
    assert_eq!(play.state(), "Judge");
    play.tell(judged(4.0));
    assert!(matches!(play.commands.as_slice(), [Command::Compare { orders: 2, .. }]));
    play.tell(Event::Judged { verdict: Verdict::Better });
    assert_eq!(acted(&play, "tag"), serde_json::json!({ "name": "branch_b_tone_pick" }));
    play.tell(back("tag"));
    // The second: a planted bad move fails by its numbers, then the referee turns the rest down.
    assert_eq!(acted(&play, "branch"), serde_json::json!({ "name": "branch_b_color_2" }));
    play.tell(back("branch")).done();
    let calls = play.run.referee_calls();
    let mut bright = Measured { rendered: true, ..Measured::default() };
    bright.baseline = Some([("delta_e_mean".to_owned(), 22.0)].into());
    play.tell(Event::Measured(Box::new(bright)));
    assert_eq!((play.state(), play.run.attempt(), play.run.referee_calls()), ("Explore", 2, calls));
    play.done().tell(good()).tell(judged(5.0)).tell(Event::Judged { verdict: Verdict::Worse });
    assert_eq!((play.state(), play.run.visits(play.run.state())), ("Explore", 2));
    play.done().tell(good()).tell(judged(5.0)).tell(Event::Judged { verdict: Verdict::Worse });
    assert!(play.commands.contains(&Command::Remark { flag: Flag::Disputed }));
    assert_eq!(acted(&play, "record_judgment")["branch"], "branch_b_color_2");
    play.tell(back("record_judgment"));
    // The third: no referee is left; then the list is used up.
    play.tell(back("branch")).done().tell(good()).tell(judged(4.0));
    play.tell(Event::Failed { message: "no referee".into() });
    assert!(play.commands.contains(&Command::Remark { flag: Flag::Unrefereed }));
    play.tell(back("tag"));
    assert_eq!(play.state(), "WrapUp");
    play.done();
    assert_eq!(play.ending(), (EndKind::Completed, true));
    assert!(play.run.referee_calls() <= 8, "{}", play.run.referee_calls());
}

#[test]
fn the_call_that_is_one_too_many_is_not_made() {
    let protocol = one("maxSteps = 2");
    let mut play = Play::begin(&protocol);
    play.call("render_preview", true, 0).call("apply_primitive", true, 1);
    assert_eq!((play.run.attempt(), play.run.phase()), (1, Phase::Working));
    play.tell(Event::ToolAsked { tool: "render_preview".into(), args: "{}".into() });
    assert!(
        matches!(play.commands.as_slice(), [Command::Work(brief)] if brief.attempt == 2),
        "{:?}",
        play.commands
    );
    // Done within the limit is done.
    play.call("render_preview", true, 1).tell(Event::Spoke).done();
    assert_eq!(play.state(), "Close");
}

#[test]
fn a_person_may_decline() {
    let protocol = protocol(
        r#"
        protocolVersion = 2
        initialState = "Plan"
        maxIterations = 9
        defaults = { onExhausted = "Done", onBudget = "Done" }
        [[states]]
        name = "Plan"
        instructions = "Plan."
        validationCriteria = "Planned."
        tools = ["read_context"]
        gate = "confirm"
        transitions = [{ on = "pass", to = "Done" }, { on = "declined" }]
        [[states]]
        name = "Done"
        kind = "final"
        "#,
    );
    for (accepted, kind) in [(true, EndKind::Completed), (false, EndKind::Declined)] {
        let mut play = Play::begin(&protocol);
        play.done();
        assert_eq!(play.commands, [Command::AskPerson { state: "Plan".into() }]);
        play.tell(Event::Answered { accepted });
        assert_eq!(play.ending().0, kind);
    }
}
