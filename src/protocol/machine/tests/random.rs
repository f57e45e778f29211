//! By the hundred thousand: random protocols under random events, for what must always hold.

use super::*;
use crate::protocol::build::Host;
use crate::protocol::finding::{Dialect, Findings};
use crate::protocol::load::assemble;
use crate::protocol::model::{Target, Transition};
use crate::protocol::variables::Bound;

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
