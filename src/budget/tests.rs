use super::*;
use proptest::prelude::*;

#[test]
fn b5_a_spec_names_what_it_lacks() {
    let full = Budget::parse("time=30m,iterations=50,branches=3,tokens=400k,cost=2.00,renders=80").unwrap();
    assert_eq!(full.time_seconds, 1800);
    assert_eq!((full.max_tokens, full.max_cost_micro_usd), (Some(400_000), Some(2_000_000)));
    assert_eq!(Budget::parse("standard,branches=2").unwrap().max_branches, 2);
    assert_eq!(Budget::parse("time=5m").unwrap_err(), BudgetError::Missing(vec!["iterations", "branches"]));
    // The names of the fields, and a JSON object of them.
    let named = "time_seconds=1800, max_iterations=50,max_branches=3,max_tokens=400k,max_cost_usd=2.00,max_renders=80";
    assert_eq!(Budget::parse(named).unwrap(), full);
    let json = r#"{"time_seconds": 1800, "max_iterations": 50, "max_branches": 3, "max_tokens": "400k", "cost": 2.0, "renders": 80}"#;
    assert_eq!(Budget::parse(json).unwrap(), full);
    let missing = Budget::parse(r#"{"time_seconds": 600}"#).unwrap_err();
    assert_eq!(missing, BudgetError::Missing(vec!["iterations", "branches"]));
    for wrong in [
        r#"{"time_seconds": true}"#,
        r#"{"time_seconds": 1800"#,
        "{}",
        "max_shots=3",
        "time=-1,iterations=1,branches=1",
        "time=0s",
        "iterations=1.5",
        "cost=NaN",
        "huge",
        "shots=3",
    ] {
        assert!(Budget::parse(wrong).is_err(), "{wrong} was accepted");
    }
    assert_eq!(seconds("1h30m"), Some(5400));
    assert_eq!(micro_usd("0.000001"), Some(1));
    assert_eq!(micro_usd("0.0000001"), None);
}

#[test]
fn the_reserve_is_kept_from_work_and_given_to_the_wrap_up() {
    let mut budget = Budget::parse("time=10m,iterations=5,branches=1,tokens=1000").unwrap();
    budget.max_cost_micro_usd = Some(100);
    let mut ledger = Ledger::new(budget, Reserve { tokens: 300, cost_micro_usd: 40, ..Reserve::default() });
    let want = Amounts { tokens: 700, model_calls: 1, ..Amounts::default() };
    assert!(ledger.admit(&want, Duration::ZERO).is_ok());
    let more = Amounts { tokens: 701, ..want };
    assert_eq!(ledger.admit(&more, Duration::ZERO).unwrap_err().cap, Cap::Tokens);
    assert_eq!(ledger.admit(&want, Duration::from_secs(570)).unwrap_err().cap, Cap::Time);
    ledger.wrap_up();
    assert!(ledger.admit(&more, Duration::from_secs(570)).is_ok());
    assert_eq!(ledger.admit(&more, Duration::from_secs(600)).unwrap_err().cap, Cap::Time);
}

#[test]
fn what_was_spent_before_is_taken_off_and_nothing_left_is_a_cap() {
    let budget = Budget::parse("time=1m,iterations=5,branches=1,tokens=1000").unwrap();
    let spent = Amounts { tokens: 400, model_calls: 2, ..Amounts::default() };
    let left = budget.after(&spent, Duration::from_millis(1500)).unwrap();
    assert_eq!((left.time_seconds, left.max_tokens, left.max_model_calls), (58, Some(600), Some(23)));
    assert_eq!((left.max_iterations, left.max_branches, left.max_renders), (5, 1, None));
    let fired = |spent: Amounts, secs| budget.after(&spent, Duration::from_secs(secs)).unwrap_err().cap;
    assert_eq!(fired(Amounts { tokens: 1000, ..spent }, 1), Cap::Tokens);
    assert_eq!(fired(Amounts { model_calls: 25, ..spent }, 1), Cap::ModelCalls);
    assert_eq!(fired(spent, 60), Cap::Time);
}

#[test]
fn a_protocol_may_keep_time_calls_and_renders_for_its_wrap_up() {
    let mut budget = Budget::parse("time=10m,iterations=5,branches=1,renders=4").unwrap();
    budget.max_model_calls = Some(3);
    let reserve = Reserve { time_seconds: 240, model_calls: 1, renders: 3, ..Reserve::default() };
    let mut ledger = Ledger::new(budget, reserve);
    let spend = |renders, model_calls| Amounts { renders, model_calls, ..Amounts::default() };
    let fired = |ledger: &Ledger, want, at| ledger.admit(&want, Duration::from_secs(at)).err().map(|e| e.cap);
    assert_eq!(fired(&ledger, spend(1, 2), 359), None);
    assert_eq!(fired(&ledger, spend(2, 0), 0), Some(Cap::Renders));
    assert_eq!(fired(&ledger, spend(0, 3), 0), Some(Cap::ModelCalls));
    assert_eq!(fired(&ledger, spend(0, 0), 360), Some(Cap::Time));
    ledger.wrap_up();
    assert_eq!(fired(&ledger, spend(4, 3), 360), None);
    assert_eq!(fired(&ledger, spend(0, 4), 360), Some(Cap::ModelCalls), "a cap is a cap");
}

#[test]
fn what_is_used_up_refuses_a_call_that_wants_nothing() {
    let budget = Budget::parse("time=10m,iterations=5,branches=1,tokens=1000,cost=0.01").unwrap();
    let call = Amounts { model_calls: 1, ..Amounts::default() };
    let spent = |spent: Amounts| {
        let mut ledger = Ledger::new(budget.clone(), Reserve::default());
        ledger.reserve(0, spent);
        ledger.settle(0, spent);
        ledger.wrap_up();
        ledger
    };
    fn fired(ledger: &Ledger, want: &Amounts) -> Option<Cap> {
        ledger.admit(want, Duration::ZERO).err().map(|e| e.cap)
    }
    let cost = spent(Amounts { cost_micro_usd: 10_000, ..Amounts::default() });
    assert_eq!(fired(&cost, &call), Some(Cap::Cost));
    assert_eq!(fired(&cost, &Amounts { iterations: 1, ..Amounts::default() }), None, "a tool costs nothing");
    let tokens = spent(Amounts { tokens: 1_200, ..Amounts::default() });
    assert_eq!(fired(&tokens, &call), Some(Cap::Tokens));
    assert_eq!(fired(&spent(Amounts::default()), &call), None);
    // What it takes to go on is named by the cap that fired.
    assert_eq!(tokens.admit(&call, Duration::ZERO).unwrap_err().raise(), "tokens=1k");
    assert_eq!(cost.admit(&call, Duration::ZERO).unwrap_err().raise(), "cost=0.01");
}

#[test]
fn of_the_guard_rail_of_calls_four_are_for_the_wrap_up() {
    let budget = Budget::parse("time=10m,iterations=5,branches=1").unwrap();
    let mut ledger = Ledger::new(budget, Reserve::default());
    let calls = |model_calls| Amounts { model_calls, ..Amounts::default() };
    assert!(ledger.admit(&calls(21), Duration::ZERO).is_ok());
    assert_eq!(ledger.admit(&calls(22), Duration::ZERO).unwrap_err().cap, Cap::ModelCalls);
    ledger.wrap_up();
    assert!(ledger.admit(&calls(25), Duration::ZERO).is_ok());
    assert_eq!(ledger.admit(&calls(26), Duration::ZERO).unwrap_err().cap, Cap::ModelCalls);
}

#[test]
fn a_limit_is_given_in_its_unit_and_a_reserve_only_where_there_is_one() {
    let reached = |cap, used, reserved, limit| Exhausted { cap, used, reserved, limit, wanted: 0 }.words();
    let time = reached(Cap::Time, 1_740_000, 0, 1_800_000);
    assert_eq!(time, "time limit reached: 1740 s of 1800 s used");
    let cost = reached(Cap::Cost, 1_900_000, 100_000, 2_000_000);
    assert_eq!(cost, "cost limit reached: 1.9000 USD of 2.0000 USD used, 0.1000 USD reserved");
    assert_eq!(reached(Cap::Iterations, 50, 0, 50), "iterations limit reached: 50 of 50 used");
}

proptest! {
    /// Whatever is asked, in whatever order, settled amounts never pass a cap.
    #[test]
    fn no_order_of_requests_passes_a_cap(
        wants in prop::collection::vec((0u64..3, 0u64..2, 0u64..400, 0u64..3, any::<bool>()), 0..200)
    ) {
        let budget = Budget::parse("time=1h,iterations=20,branches=3,tokens=2000,renders=10").unwrap();
        let mut ledger = Ledger::new(budget.clone(), Reserve { tokens: 200, ..Reserve::default() });
        for (seq, (iterations, branches, tokens, renders, settle_lower)) in wants.into_iter().enumerate() {
            let want = Amounts { iterations, branches, tokens, renders, ..Amounts::default() };
            if ledger.admit(&want, Duration::ZERO).is_ok() {
                ledger.reserve(seq as u64, want);
                if settle_lower {
                    ledger.settle(seq as u64, Amounts { tokens: tokens / 2, ..want });
                }
            }
        }
        ledger.charge_open();
        let spent = ledger.settled();
        prop_assert!(spent.iterations <= budget.max_iterations);
        prop_assert!(spent.branches <= budget.max_branches);
        prop_assert!(spent.tokens <= 1800);
        prop_assert!(spent.renders <= 10);
    }
}

#[test]
fn c7_reminders_come_for_pictures_too_and_the_line_names_every_cap() {
    let budget = Budget::parse("time=1h,iterations=100,branches=4,renders=10").unwrap();
    let mut ledger = Ledger::new(budget, Reserve::default());
    let spend = |renders, branches| Amounts { renders, branches, ..Amounts::default() };
    ledger.reserve(1, spend(4, 4));
    assert_eq!(ledger.share_left(Duration::ZERO), 0.6, "branches that are made are no reason to end");
    ledger.settle(1, spend(8, 4));
    assert!((ledger.share_left(Duration::ZERO) - 0.2).abs() < 1e-9);
    let line = ledger.line(Duration::ZERO);
    assert!(line.contains("4/4 branches") && line.contains("8/10 renders"), "{line}");
}
