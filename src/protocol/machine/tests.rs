//! The machine: by hand where a rule is to be seen, and by the hundred thousand where it must always hold.

use std::sync::LazyLock;

use super::*;
use crate::metrics::check::Verdict as Direction;
use crate::protocol::build::Host;
use crate::protocol::finding::{Dialect, Findings};
use crate::protocol::load::assemble;
use crate::protocol::model::{Target, Transition};
use crate::protocol::schema::*;
use crate::protocol::variables::{Bound, Purpose, Values};
use crate::protocol::{Options, load};

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
    let mut document = random(&mut Dice(1));
    let go = |on, to: &str| TransitionSpec { on, to: Some(to.into()), ..TransitionSpec::default() };
    let state = StateSpec {
        name: "W0".into(),
        instructions: "Plan.".into(),
        validation_criteria: "Planned.".into(),
        gate: Some(Gate::Confirm),
        transitions: Some(vec![go(Outcome::Pass, "Done"), go(Outcome::Declined, "@done")]),
        ..StateSpec::default()
    };
    let done = StateSpec { name: "Done".into(), kind: Kind::Final, ..StateSpec::default() };
    (document.states, document.variables) = (vec![state, done], BTreeMap::new());
    (document.defaults.on_exhausted, document.defaults.on_budget) =
        (Some("Done".into()), Some("Done".into()));
    let mut findings = Findings { dialect: Dialect::Strict, list: Vec::new() };
    let protocol = assemble(&document, "gate", &Host::default(), &mut Bound::default(), &mut findings);
    assert!(findings.list.is_empty(), "{:?}", findings.list);
    for (accepted, kind) in [(true, EndKind::Completed), (false, EndKind::Declined)] {
        let mut play = Play::begin(&protocol);
        play.done();
        assert_eq!(play.commands, [Command::AskPerson { state: "W0".into() }]);
        play.tell(Event::Answered { accepted });
        assert_eq!(play.ending().0, kind);
    }
}

/// A small generator of numbers: SplitMix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// A number now and then.
    fn maybe(&mut self, most: u32) -> Option<u32> {
        self.one_in(3).then(|| 1 + self.below(most as usize) as u32)
    }
}

const TOOLS: [&str; 5] = ["render_preview", "apply_primitive", "snapshot", "record_judgment", "image_stats"];

/// A protocol at random: mostly in order, now and then not.
fn random(dice: &mut Dice) -> Document {
    let (work, close) = (1 + dice.below(4), dice.below(3));
    let works: Vec<String> = (0..work).map(|i| format!("W{i}")).collect();
    let closes: Vec<String> = (0..close).map(|i| format!("C{i}")).collect();
    let anywhere = |dice: &mut Dice| match dice.below(6) {
        0 => None,
        1 => Some("Done".to_owned()),
        2 if close > 0 => Some("C0".to_owned()),
        _ => Some(dice.pick(&works).clone()),
    };
    let ending = |dice: &mut Dice, from: usize| match dice.below(4) {
        0 => None,
        1 | 2 if from < close => Some(format!("C{from}")),
        _ => Some("Done".to_owned()),
    };
    let guard = |dice: &mut Dice| {
        let mut guard =
            GuardSpec { op: Some(Op::Less), value: Some(dice.below(4) as f64), ..GuardSpec::default() };
        match dice.below(4) {
            0 => guard.counter = Some(format!("visits.W{}", dice.below(work))),
            1 => guard.counter = Some("items_left".into()),
            2 => guard.field = Some("judged_score".into()),
            _ => guard.budget = Some("renders".into()),
        }
        if dice.one_in(4) { GuardSpec { not: Some(Box::new(guard)), ..GuardSpec::default() } } else { guard }
    };
    let mut states = Vec::new();
    for (index, name) in works.iter().chain(&closes).enumerate() {
        let reserve = index >= work;
        let kind = *dice.pick(&[Kind::Task, Kind::Task, Kind::Judge, Kind::Fixed, Kind::Referee]);
        let thinks = matches!(kind, Kind::Task | Kind::Judge);
        let mut state = StateSpec {
            name: name.clone(),
            kind,
            instructions: "Work.".into(),
            validation_criteria: "Done.".into(),
            uses_reserve: reserve,
            max_steps: Some(1 + dice.below(5) as u32),
            max_visits: dice.maybe(3),
            ..StateSpec::default()
        };
        if kind != Kind::Referee {
            state.max_attempts = dice.maybe(3);
            if dice.one_in(3) {
                state.on_fail = OnFail::Rollback;
            }
            if dice.one_in(4) && !reserve {
                (state.foreach, state.alias) = (Some("list".into()), Some(format!("item{index}")));
            }
        }
        if thinks {
            let tools = TOOLS.iter().filter(|_| dice.one_in(2)).map(|t| (*t).to_owned());
            state.tools = Some(tools.collect());
            state.gate = dice.one_in(5).then_some(Gate::Confirm);
            state.validated_by = dice.one_in(4).then_some(Validator::Referee);
            state.output = dice.one_in(4).then_some(Output::Judgment);
        }
        if kind == Kind::Fixed {
            state.action = Some(ActionSpec { tool: "reset".into(), ..ActionSpec::default() });
        }
        if dice.one_in(3) {
            let check = CheckFields { check: Some("render_ok".into()), ..CheckFields::default() };
            state.checks = Some(vec![CheckSpec(check)]);
        }
        if dice.one_in(5) {
            state.budget =
                Some(BudgetSpec { max_renders: Some(1 + dice.below(3) as u64), ..BudgetSpec::default() });
        }
        use Outcome::*;
        let mut needed =
            if kind == Kind::Referee { vec![Better, Same, Worse, Unavailable] } else { vec![Pass] };
        needed.extend(state.gate.map(|_| Declined));
        needed.extend(state.foreach.as_ref().map(|_| Done));
        needed.extend((!dice.one_in(3) || reserve).then_some(Exhausted));
        needed.extend((dice.one_in(6) && kind != Kind::Referee).then_some(*dice.pick(&[Fail, Error])));
        if !reserve {
            needed.extend((dice.one_in(3)).then_some(Budget));
        }
        let mut transitions = Vec::new();
        for on in needed {
            let to = |dice: &mut Dice| match (reserve, on) {
                (true, _) => ending(dice, index - work + 1),
                (false, Budget) => ending(dice, 0),
                _ => anywhere(dice),
            };
            for _ in 0..dice.below(2) {
                transitions.push(TransitionSpec { on, when: Some(guard(dice)), to: to(dice), flag: None });
            }
            transitions.push(TransitionSpec { on, when: None, to: to(dice), flag: None });
        }
        state.transitions = Some(transitions);
        states.push(state);
    }
    states.push(StateSpec { name: "Done".into(), kind: Kind::Final, ..StateSpec::default() });
    let defaults = Defaults {
        max_attempts: dice.maybe(3),
        on_exhausted: ending(dice, 0).or_else(|| Some("@done".into())),
        on_budget: ending(dice, 0).or_else(|| Some("@done".into())),
        ..Defaults::default()
    };
    let length = dice.below(4);
    let list = Variable {
        kind: VariableKind::List,
        items: Some(ItemKind::Name),
        default: Some((0..length).map(|i| serde_json::Value::from(format!("i{i}"))).collect()),
        ..Variable::default()
    };
    let looped = states.iter().any(|s| s.foreach.is_some());
    Document {
        protocol_version: Some(2),
        initial_state: "W0".into(),
        max_iterations: if dice.one_in(4) { None } else { Some(1 + dice.below(10) as u32) },
        variables: if looped { [("list".to_owned(), list)].into() } else { BTreeMap::new() },
        defaults,
        states,
        ..Document::default()
    }
}

/// An event at random: what is waited for, mostly; now and then anything.
fn event(dice: &mut Dice, protocol: &Protocol, run: &Run, open: &[String]) -> Event {
    let phase = if dice.one_in(5) {
        *dice.pick(&[
            Phase::Working,
            Phase::Acting,
            Phase::Checking,
            Phase::Refereeing,
            Phase::Comparing,
            Phase::Asking,
        ])
    } else {
        run.phase()
    };
    let place = |dice: &mut Dice| dice.one_in(2).then(|| head(dice.below(4) as u32));
    match (dice.below(40), phase) {
        (0, _) => Event::CapFired { cap: "time".into() },
        (1, _) => Event::Stop { now: dice.one_in(3) },
        (2, _) if dice.one_in(3) => Event::Broken { message: "broken".into() },
        (3, _) => Event::Failed { message: "failed".into() },
        (4, _) => Event::Left { left: [("renders".to_owned(), dice.below(5) as f64)].into() },
        (5 | 6, _) => Event::Spent { amounts: Amounts { renders: 1, ..Amounts::default() }, ms: 500 },
        (_, Phase::Working) => match dice.below(6) {
            0 => Event::Spoke,
            1 | 2 => {
                let own = protocol.state(run.state()).and_then(|s| s.tools.as_ref()).into_iter().flatten();
                let own: Vec<&str> = own.map(String::as_str).collect();
                let tool = if own.is_empty() || dice.one_in(3) { dice.pick(&TOOLS) } else { dice.pick(&own) };
                Event::ToolAsked { tool: (*tool).to_owned(), args: "{}".into() }
            }
            3 if !open.is_empty() => {
                let tool = dice.pick(open).clone();
                Event::ToolReturned { tool, args: "{}".into(), ok: !dice.one_in(4), head: place(dice) }
            }
            _ => {
                let score = dice.one_in(2).then(|| ("judged_score".to_owned(), dice.below(6) as f64));
                Event::Finished { fields: score.into_iter().collect() }
            }
        },
        (_, Phase::Acting) => Event::ToolReturned {
            tool: "reset".into(),
            args: String::new(),
            ok: !dice.one_in(4),
            head: place(dice),
        },
        (_, Phase::Checking) => {
            Event::Measured(Box::new(Measured { rendered: !dice.one_in(3), ..Measured::default() }))
        }
        (_, Phase::Refereeing) => Event::Ruled(match dice.below(3) {
            0 => Ruling::Passed { next: None },
            1 => Ruling::Failed { feedback: "worse".into() },
            _ => Ruling::Unavailable,
        }),
        (_, Phase::Comparing) => {
            use Verdict::*;
            Event::Judged { verdict: *dice.pick(&[Better, Same, Worse, OffBrief, Unsure]) }
        }
        (_, Phase::Asking | Phase::Ended) => Event::Answered { accepted: dice.one_in(2) },
    }
}

/// What one random run came to.
#[derive(Default)]
struct Tally {
    clean: u32,
    refused: u32,
    steps: u64,
    wrapped: u32,
    kinds: BTreeMap<String, u32>,
}

/// Whether every working state goes to the wrap-up when a cap fires, whatever the conditions.
fn always_wraps(protocol: &Protocol) -> bool {
    let reserve = |t: &Transition| match t.to {
        Target::State(id) => protocol.states[id].uses_reserve && protocol.states[id].max_visits.is_none(),
        _ => false,
    };
    let work = protocol.states.iter().filter(|s| s.kind != Kind::Final && !s.uses_reserve);
    work.flat_map(|s| &s.transitions).filter(|t| t.on == Outcome::Budget).all(reserve)
}

/// Plays one run to its end and looks at every step.
fn play(dice: &mut Dice, protocol: &Protocol, tally: &mut Tally) {
    let (mut run, mut commands) = Run::begin(protocol, head(0));
    let reserve = protocol.states.iter().filter(|s| s.uses_reserve).count() as u32;
    let mut open: Vec<String> = Vec::new();
    let mut taken: BTreeMap<StateId, Vec<String>> = BTreeMap::new();
    let (mut steps, mut abrupt, mut before) = (0u64, false, None);
    let mut note_item = |run: &Run, commands: &[Command]| {
        let state = &protocol.states[run.state()];
        let begun = commands.iter().any(|c| matches!(c, Command::Work(_) | Command::Act { .. }));
        if let (Some(foreach), true, 1) = (&state.foreach, begun, run.attempt()) {
            taken.entry(run.state()).or_default().push(run.items()[&foreach.alias][""].clone());
        }
    };
    note_item(&run, &commands);
    while run.ending().is_none() {
        let at = run.state();
        let event = event(dice, protocol, &run, &open);
        abrupt |= matches!(event, Event::Stop { now: true } | Event::Broken { .. });
        let fails = matches!(&event, Event::Measured(m) if !m.rendered);
        before = Some(run.state());
        (run, commands) = run.step(protocol, event);
        steps += 1;
        assert!(steps <= protocol.max_events(), "more than {} events", protocol.max_events());
        assert!(run.transitions() <= protocol.max_transitions + reserve + 1, "{}", run.transitions());
        let state = &protocol.states[run.state()];
        assert!(run.attempt() <= state.max_attempts);
        let within = run.steps <= state.max_steps && run.events <= state.max_events();
        assert!(within || run.ending().is_some(), "{} steps, {} events", run.steps, run.events);
        assert!(state.max_visits.is_none_or(|most| run.visits(run.state()) <= most));
        let wrapping = run.stage() == Stage::WrapUp && run.ending().is_none();
        assert!(!wrapping || state.uses_reserve, "{} works on the reserve", state.name);
        for command in &commands {
            match command {
                Command::RunTool { tool, .. } => {
                    let tools = protocol.states[at].tools.as_ref().unwrap();
                    assert!(tools.contains(tool), "{tool} in {}", protocol.states[at].name);
                    open.push(tool.clone());
                }
                Command::Act { tool, .. } => assert_eq!(Some(tool), state.action.as_ref().map(|a| &a.tool)),
                Command::Rollback { .. } => assert_eq!(protocol.states[at].on_fail, OnFail::Rollback),
                Command::AskReferee { .. } => {
                    assert!(!(fails && run.phase() == Phase::Refereeing && at == run.state()))
                }
                Command::Work(brief) => {
                    open.clear();
                    assert_eq!(brief.state, state.name);
                }
                _ => {}
            }
        }
        note_item(&run, &commands);
    }
    for (state, taken) in &taken {
        let items = &protocol.states[*state].foreach.as_ref().unwrap().items;
        let names: Vec<&String> = items.iter().map(|item| &item[""]).collect();
        assert!(taken.iter().eq(names.into_iter().take(taken.len())), "{taken:?} of {items:?}");
    }
    let ending = run.ending().unwrap().clone();
    assert!(matches!(commands.last(), Some(Command::Finish(last)) if *last == ending), "{commands:?}");
    assert!(!ending.reason.is_empty());
    let forced =
        matches!(ending.kind, EndKind::Budget | EndKind::Transitions | EndKind::Loop | EndKind::Cancelled);
    if forced && !abrupt && always_wraps(protocol) {
        assert!(ending.wrapped_up, "{ending:?} from {before:?}");
    }
    let (after, commands) = run.clone().step(protocol, Event::Spoke);
    assert!(commands.is_empty() && after == run, "something happened after the end");
    tally.steps += steps;
    tally.wrapped += u32::from(ending.wrapped_up);
    *tally.kinds.entry(format!("{:?}", ending.kind)).or_default() += 1;
}

#[test]
fn a_hundred_thousand_random_protocols_end_within_their_caps() {
    const EACH: u32 = 50_000;
    let threads: Vec<Tally> = std::thread::scope(|scope| {
        let work = |seed: u64| {
            scope.spawn(move || {
                let (mut dice, mut tally) = (Dice(seed), Tally::default());
                while tally.clean < EACH {
                    let document = random(&mut dice);
                    let mut findings = Findings { dialect: Dialect::Strict, list: Vec::new() };
                    let mut bound =
                        Bound::declared(&document.variables, &Values::default(), Purpose::Run, &mut findings);
                    let protocol = assemble(&document, "random", &Host::default(), &mut bound, &mut findings);
                    if findings.has_errors() {
                        tally.refused += 1;
                        continue;
                    }
                    tally.clean += 1;
                    play(&mut dice, &protocol, &mut tally);
                }
                tally
            })
        };
        let handles: Vec<_> = [11, 47].into_iter().map(work).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    let sum = |of: fn(&Tally) -> u32| threads.iter().map(of).sum::<u32>();
    let mut kinds: BTreeMap<String, u32> = BTreeMap::new();
    for (kind, count) in threads.iter().flat_map(|t| &t.kinds) {
        *kinds.entry(kind.clone()).or_default() += count;
    }
    let steps: u64 = threads.iter().map(|t| t.steps).sum();
    let told =
        format!("refused {}, steps {steps}, wrapped {}, {kinds:?}", sum(|t| t.refused), sum(|t| t.wrapped));
    assert_eq!(sum(|t| t.clean), 2 * EACH);
    // A test that never comes to the interesting places proves nothing.
    assert!(steps > 300_000 && sum(|t| t.wrapped) > 10_000, "{told}");
    for kind in [
        "Completed",
        "Exhausted",
        "Declined",
        "Failed",
        "Budget",
        "Transitions",
        "Loop",
        "Cancelled",
        "Broken",
    ] {
        assert!(kinds.get(kind).is_some_and(|n| *n > 100), "{kind}: {told}");
    }
}
