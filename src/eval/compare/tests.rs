use super::*;
use crate::budget::Amounts;
use crate::eval::manifest::{CellStatus, Done, FORMAT, Failure, GoldenRecord, MadeWith, RunRequest};
use crate::eval::metrics::{METRICS_VERSION, Measured, Reading};
use crate::eval::stats::SplitMix;
use crate::transcript::Outcome;
use base::error::ErrorCode;
use base::ids::Hash;

fn reading(value: f64) -> Reading {
    Reading { value: Some(value), unit: String::new(), why: String::new() }
}

/// A finished session of run `a` with these metrics; whatever must hold holds.
fn done(metrics: &[(&str, f64)]) -> CellStatus {
    done_by("a", metrics)
}

/// A finished session with these metrics; whatever must hold holds.
fn done_by(name: &str, metrics: &[(&str, f64)]) -> CellStatus {
    let hard = METRICS.iter().filter(|m| m.hard).map(|m| (m.name.to_owned(), reading(1.0)));
    let own = metrics.iter().map(|(name, value)| ((*name).to_owned(), reading(*value)));
    CellStatus::Done(Box::new(Done {
        session: "s".into(),
        outcome: Outcome::Completed,
        cap: None,
        models_served: ["m".to_owned()].into(),
        went_on: None,
        budget: None,
        spent: Amounts { cost_micro_usd: 10, ..Amounts::default() },
        money: None,
        wall_ms: 1000,
        ended: jiff::Timestamp::UNIX_EPOCH,
        paid_by: name.into(),
        binary: None,
        measured: Measured {
            version: METRICS_VERSION,
            metrics: hard.chain(own).collect(),
            branches: Vec::new(),
        },
        failures: Vec::new(),
    }))
}

fn failed() -> CellStatus {
    let failure = Failure {
        code: ErrorCode::ProviderError,
        message: "down".into(),
        spent: Amounts { cost_micro_usd: 7, ..Amounts::default() },
        at: jiff::Timestamp::UNIX_EPOCH,
    };
    CellStatus::Failed { failures: vec![failure] }
}

/// A run of one arm over so many scenarios and repeats.
fn run(
    name: &str,
    prompt: &str,
    size: (usize, u32),
    status: &mut dyn FnMut(usize, u32) -> CellStatus,
) -> Manifest {
    let (scenarios, repeats) = size;
    let id = |n: usize| format!("{n:03}_scenario");
    let cells = (0..scenarios).flat_map(|scenario| (1..=repeats).map(move |repeat| (scenario, repeat)));
    let cells = cells.map(|(scenario, repeat)| CellRecord {
        key: Hash::of(format!("{name} {scenario} {repeat}")),
        scenario: id(scenario),
        prompt: prompt.into(),
        protocol: None,
        referee: None,
        provider: "explorer".into(),
        model: "explorer-1".into(),
        repeat,
        seed: u64::from(repeat),
        status: status(scenario, repeat),
    });
    let cells = cells.collect();
    Manifest {
        format: FORMAT,
        run: name.into(),
        request: RunRequest {
            golden: "g".into(),
            scenarios: Vec::new(),
            prompts: vec![prompt.into()],
            protocols: Vec::new(),
            referee: None,
            fallback: None,
            prompt_folder: None,
            contestants: Vec::new(),
            repeats,
            seed: 1,
            cost_micro_usd: None,
            time_seconds: None,
            cell_cost_micro_usd: None,
        },
        golden: GoldenRecord {
            version: "golden_v1".into(),
            sha256: Hash::of("set"),
            primary: "recovery".into(),
            weights: BTreeMap::new(),
            scenarios: (0..scenarios).map(|n| (id(n), Hash::of(id(n)))).collect(),
        },
        made_with: MadeWith {
            chemigram: "0".into(),
            engine: 1,
            binary: Hash::of("b"),
            darktable: "4.2.1".into(),
            vocabulary: Hash::of("v"),
            tools: Hash::of("t"),
            metrics: METRICS_VERSION,
            preview_edge: 480,
        },
        checkout: None,
        prompts: Vec::new(),
        protocols: Vec::new(),
        models: Vec::new(),
        begun: jiff::Timestamp::UNIX_EPOCH,
        ended: None,
        seconds: 0,
        cells,
    }
}

fn compared(a: &Manifest, b: &Manifest, metric: Option<&str>) -> Comparison {
    let arms = (arm(a, None).unwrap(), arm(b, None).unwrap());
    compare(Side { manifest: a, arm: &arms.0 }, Side { manifest: b, arm: &arms.1 }, metric, MARGIN).unwrap()
}

/// A standard normal number, from twelve uniform ones.
fn normal(random: &mut SplitMix) -> f64 {
    (0..12).map(|_| random.unit()).sum::<f64>() - 6.0
}

/// Two versions on made-up scenarios: each scenario has its own difficulty and its own effect (sd 0.5 around the
/// mean effect), each session its own luck (sd 0.7). The whole way is taken, from sessions to verdict.
fn trial(random: &mut SplitMix, size: (usize, u32), effect: f64) -> Comparison {
    let scenarios: Vec<(f64, f64)> =
        (0..size.0).map(|_| (normal(random), effect + 0.5 * normal(random))).collect();
    let mut side = |name: &str, has_effect: f64| {
        run(name, "p@v1", size, &mut |scenario, _| {
            let (difficulty, own) = scenarios[scenario];
            done(&[("recovery", difficulty + has_effect * own + 0.7 * normal(random))])
        })
    };
    let (a, b) = (side("a", 0.0), side("b", 1.0));
    compared(&a, &b, None)
}

#[test]
fn equals_are_told_apart_no_more_often_than_one_time_in_twenty() {
    const TRIALS: usize = 400;
    let mut random = SplitMix(11);
    for size in [(6, 2), (12, 3), (20, 3)] {
        let claims = (0..TRIALS).filter(|_| {
            let verdict = trial(&mut random, size, 0.0).primary.verdict;
            assert_ne!(verdict, Conclusion::Equivalent, "this noise proves nothing equal");
            verdict != Conclusion::Inconclusive
        });
        // 5 % of 400 is 20, give or take 4.4: more than 2.5 of these would be no luck.
        let claims = claims.count();
        assert!(claims <= 31, "{size:?}: {claims} false claims of {TRIALS}");
        assert!(claims > 0, "{size:?}: a test that never claims anything shows nothing");
    }
}

#[test]
fn a_planted_improvement_is_found_with_its_size() {
    const TRIALS: usize = 100;
    let mut random = SplitMix(12);
    let (mut found, mut covered) = (0, 0);
    for _ in 0..TRIALS {
        let Compared { verdict, paired, .. } = trial(&mut random, (20, 3), 0.6).primary;
        found += usize::from(verdict == Conclusion::Improved);
        covered += usize::from(paired.interval.is_some_and(|[low, high]| (low..=high).contains(&0.6)));
        assert_ne!(verdict, Conclusion::Regressed);
    }
    assert!(found >= 80, "found {found} of {TRIALS}");
    assert!((88..=100).contains(&covered), "the interval holds the truth {covered} times of {TRIALS}");
    // The other way round it is a regression.
    let worse = trial(&mut random, (20, 3), -1.0);
    assert_eq!(worse.primary.verdict, Conclusion::Regressed);
    assert!(!worse.passes(Gate::NoRegression) && worse.sentence().starts_with("B is worse"));
}

#[test]
fn five_scenarios_cannot_tell_and_say_why() {
    let mut random = SplitMix(13);
    for _ in 0..50 {
        let comparison = trial(&mut random, (5, 3), 3.0);
        assert_eq!(comparison.primary.verdict, Conclusion::Inconclusive);
        assert!(
            comparison.sentence().contains("inconclusive: 5 scenarios, at least"),
            "{}",
            comparison.sentence()
        );
        assert!(!comparison.passes(Gate::Improvement) && comparison.passes(Gate::NoRegression));
    }
    // Six can tell, if all agree; where they cannot, the size that could be told is named.
    let twelve = trial(&mut random, (12, 1), 0.05);
    assert_eq!(twelve.primary.verdict, Conclusion::Inconclusive);
    let seen = format!("{:.3}", twelve.primary.paired.detectable.unwrap());
    assert!(twelve.sentence().contains(&format!("a true difference of {seen}")), "{}", twelve.sentence());
}

#[test]
fn the_same_run_against_itself_is_equivalent() {
    let mut random = SplitMix(14);
    let one = run("a", "p@v1", (8, 2), &mut |_, _| done(&[("recovery", normal(&mut random))]));
    let comparison = compared(&one, &one, None);
    assert_eq!(comparison.primary.verdict, Conclusion::Equivalent);
    assert_eq!((comparison.primary.paired.ties, comparison.cautions.len()), (8, 0));
}

#[test]
fn a_metric_where_less_is_better_is_turned_round() {
    let tokens = |each: f64| {
        run("a", "p@v1", (8, 1), &mut |n, _| done(&[("recovery", 0.5), ("tokens", each + n as f64)]))
    };
    let comparison = compared(&tokens(1000.0), &tokens(800.0), None);
    let tokens = comparison.others.iter().find(|o| o.metric == "tokens").unwrap();
    assert_eq!((tokens.paired.mean, tokens.paired.wins), (200.0, 8));
    assert_eq!(tokens.verdict, Conclusion::Improved);
    assert_eq!((tokens.mean_a, tokens.mean_b), (1003.5, 803.5));
}

#[test]
fn many_looks_need_more_evidence_than_one() {
    // Seven of eight with a p that stands alone and does not stand among many.
    let gains = [0.5, 0.4, 0.45, 0.6, 0.3, 0.35, 0.2, -0.05];
    let run = |of: f64| {
        run("a", "p@v1", (8, 1), &mut |n, _| {
            let values = [("recovery", of * gains[n]), ("leakage", 1.0 - of * gains[n]), ("over_edit", 0.0)];
            done(&[values.as_slice(), &[("spill", 0.0), ("clipping", 0.0)]].concat())
        })
    };
    let (a, b) = (run(0.0), run(1.0));
    let comparison = compared(&a, &b, None);
    assert_eq!(comparison.primary.verdict, Conclusion::Improved);
    let leakage = comparison.others.iter().find(|o| o.metric == "leakage").unwrap();
    assert!((leakage.paired.p - comparison.primary.paired.p).abs() < 1e-12);
    assert!(leakage.p_adjusted > 4.0 * leakage.paired.p - 1e-12);
    // Chosen after the fact, the same metric decides nothing.
    let looked = compared(&a, &b, Some("leakage"));
    assert_eq!(looked.primary.verdict, Conclusion::Inconclusive);
    assert!(looked.cautions.iter().any(|c| c.contains("chosen afterwards")), "{:?}", looked.cautions);
}

#[test]
fn flags_are_shares_with_intervals_and_mcnemar() {
    let run = |fails: usize| {
        run("a", "p@v1", (12, 2), &mut |n, repeat| {
            let completed = if n < fails && repeat == 2 { 0.0 } else { 1.0 };
            done(&[("recovery", 0.5), ("completed", completed)])
        })
    };
    let comparison = compared(&run(0), &run(8), None);
    let flag = comparison.flags.iter().find(|f| f.metric == "completed").unwrap();
    assert_eq!((flag.passes_a, flag.passes_b, flag.of), (12, 4, 12));
    assert!((flag.p - 2.0 / 256.0).abs() < 1e-12, "{}", flag.p);
    assert!(flag.interval_b.unwrap()[1] < flag.interval_a.unwrap()[0]);
}

#[test]
fn what_failed_is_named_and_never_averaged_in() {
    let a = run("a", "p@v1", (8, 2), &mut |_, _| done(&[("recovery", 0.5)]));
    let b = run("b", "p@v1", (8, 2), &mut |n, repeat| match (n, repeat) {
        (0, _) | (1, 2) => failed(),
        (2, _) => done(&[]),
        _ => done(&[("recovery", 0.5)]),
    });
    assert_eq!(b.tally().failed, 3);
    assert_eq!(b.mean(&b.arms()[0], "recovery"), Some((0.5, 6)));
    // Its sessions were paid by another run, its failures were not.
    assert_eq!((a.spent().0, b.spent().0), (16 * 10, 3 * 7));
    let comparison = compared(&a, &b, None);
    assert_eq!((comparison.primary.paired.n, comparison.primary.paired.mean), (6, 0.0));
    let why: Vec<&str> = comparison.excluded.iter().map(|e| e.why.as_str()).collect();
    assert_eq!(why, ["B has no finished session", "`recovery` does not apply in B"]);
    assert!(comparison.cautions.iter().any(|c| c.starts_with("3 sessions of B are missing")));
}

#[test]
fn a_broken_promise_fails_the_gate_whatever_the_figures_say() {
    let a = run("a", "p@v1", (6, 1), &mut |_, _| done(&[("recovery", 0.1)]));
    let mut b = run("b", "p@v1", (6, 1), &mut |n, _| done(&[("recovery", 0.5 + n as f64 / 10.0)]));
    let passing = compared(&a, &b, None);
    assert_eq!(passing.primary.verdict, Conclusion::Improved);
    assert!(passing.passes(Gate::Improvement));
    assert!(passing.junit(Gate::Improvement).contains("failures=\"0\""));
    if let CellStatus::Done(done) = &mut b.cells[3].status {
        let reading = done.measured.metrics.get_mut("main_untouched").unwrap();
        *reading = Reading { value: Some(0.0), unit: String::new(), why: "main <moved>".into() };
    }
    let broken = compared(&a, &b, None);
    assert_eq!(broken.broken[0].scenario, "003_scenario");
    assert!(!broken.passes(Gate::NoRegression));
    let junit = broken.junit(Gate::NoRegression);
    assert!(junit.contains("failures=\"1\"") && junit.contains("main &lt;moved&gt;"), "{junit}");
}

#[test]
fn only_like_is_compared_with_like() {
    let a = run("a", "p@v1", (6, 1), &mut |_, _| done(&[("recovery", 0.1)]));
    let side_a = arm(&a, None).unwrap();
    let refusal = |b: &Manifest, metric| {
        let side_b = arm(b, None).unwrap();
        compare(Side { manifest: &a, arm: &side_a }, Side { manifest: b, arm: &side_b }, metric, MARGIN)
            .unwrap_err()
    };
    let mut b = a.clone();
    b.golden.sha256 = Hash::of("another");
    assert!(matches!(refusal(&b, None), CompareError::OtherSet { .. }));
    b = a.clone();
    b.made_with.metrics += 1;
    assert!(matches!(refusal(&b, None), CompareError::OtherMetrics { .. }));
    let unknown = refusal(&a, Some("recovry"));
    assert!(unknown.to_string().contains("did you mean `recovery`"), "{unknown}");
    assert!(matches!(refusal(&a, Some("tokens")), CompareError::Nothing { .. }));
    // Which arm is meant has to be said where there are two.
    b = a.clone();
    b.cells[5].prompt = "p@v2".into();
    assert!(matches!(arm(&b, None), Err(CompareError::WhichArm { count: 2, .. })));
    assert_eq!(arm(&b, Some("v2")).unwrap().prompt, "p@v2");
    assert!(matches!(arm(&b, Some("v3")), Err(CompareError::NoArm { .. })));
    // A whole word comes before a part of one.
    b.cells[4].model = "explorer-1-random".into();
    b.cells[5].prompt = "p@v1".into();
    assert_eq!(arm(&b, Some("explorer-1")).unwrap().model, "explorer-1");
    assert_eq!(arm(&b, Some("random")).unwrap().model, "explorer-1-random");
    assert!(matches!(arm(&b, Some("explorer")), Err(CompareError::WhichArm { count: 2, .. })));
    b.cells[4].model = "explorer-1".into();
    b.cells[5].prompt = "p@v2".into();
    b.made_with.darktable = "5.0".into();
    let v2 = arm(&b, Some("v2")).unwrap();
    let both = compare(Side { manifest: &a, arm: &side_a }, Side { manifest: &b, arm: &v2 }, None, MARGIN);
    let cautions = both.unwrap().cautions;
    assert!(cautions.iter().any(|c| c == "darktable differs: 4.2.1 and 5.0"), "{cautions:?}");
    // A run may have taken sessions that another build left.
    let CellStatus::Done(done) = &mut b.cells[5].status else { panic!() };
    done.binary = Some(Hash::of("another build"));
    b.cells.iter_mut().for_each(|cell| {
        cell.prompt = "p@v1".into();
        cell.protocol = Some("mode_b_explore@0".into());
        cell.model = "explorer-2".into();
    });
    let cautions = compared(&a, &b, None).cautions;
    assert!(cautions.iter().any(|c| c.starts_with("more than one build of the program")), "{cautions:?}");
    let model = "besides the protocol, the model differs: explorer/explorer-1 and explorer/explorer-2";
    assert!(cautions.iter().any(|c| c == model), "{cautions:?}");
    assert!(!cautions.iter().any(|c| c.contains("prompt")), "{cautions:?}");
}

/// Sessions of two branches with picks: the one that the model scored higher, and the other one.
#[test]
fn scores_are_held_against_the_picks_of_sessions_with_the_same_model_and_prompt() {
    use crate::eval::agreement;
    use crate::review::picks::Agreement;
    use crate::review::rig::picked;
    use crate::session::rig::Rig;
    let rig = Rig::new();
    let [_, _, own] = [(0, 0), (1, 1), (2, 1)].map(|(number, pick)| picked(&rig, number, pick));
    let mut made = run("r", &own.prompt, (1, 1), &mut |_, _| failed());
    let library = engine::photo::Library::new(&rig.library);
    let agreed = |made: &Manifest| agreement::of(made, rig.library.as_path(), &library).unwrap();
    assert!(agreed(&made).is_empty(), "of another model");
    for cell in &mut made.cells {
        (cell.provider, cell.model) = (own.provider.clone(), own.model.clone());
    }
    let found = agreed(&made);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].agreement, Agreement { pairs: 3, same: 2, other: 1 });
    let words = found[0].words(&made.arms());
    assert!(words.contains("the scores prefer the same in 2, the other in 1"), "{words}");
}
