use super::*;
use crate::eval::metrics::Measured;

/// Left half and right half of a picture in greys of these codes.
fn halves(left: u8, right: u8) -> Arc<Picture> {
    let rgb = (0..20 * 10).flat_map(|at| [if at % 20 < 10 { left } else { right }; 3]).collect();
    Arc::new(Picture { width: 20, height: 10, rgb })
}

fn left_half() -> Weights {
    (0..20 * 10).map(|at| if at % 20 < 10 { 1.0 } else { 0.0 }).collect()
}

fn yardstick(base: &Arc<Picture>, target: &Arc<Picture>) -> Yardstick {
    Yardstick::new(base.clone(), target.clone(), vec![("left".into(), left_half())]).unwrap()
}

#[test]
fn recovery_is_0_for_nothing_1_for_the_answer_and_less_than_0_the_other_way() {
    let (base, target) = (halves(100, 100), halves(140, 100));
    let yardstick = yardstick(&base, &target);
    let recovery = |picture: &Picture| yardstick.hold(picture).recovery;
    assert_eq!((recovery(&base), recovery(&target)), (0.0, 1.0));
    let half = recovery(&halves(120, 100));
    assert!((0.4..0.6).contains(&half), "{half}");
    assert!(recovery(&halves(60, 100)) < -0.5);
    assert_eq!(recovery(&Picture { width: 10, height: 10, rgb: vec![140; 300] }), 0.0, "another frame");
}

#[test]
fn regions_are_measured_by_themselves_and_an_edit_beside_them_is_spill() {
    let yardstick = yardstick(&halves(100, 100), &halves(140, 100));
    let blunt = yardstick.hold(&halves(140, 140));
    assert_eq!(blunt.regions["left"], 1.0);
    assert!(blunt.recovery < 0.1 && blunt.spill.unwrap() > 10.0, "{blunt:?}");
    let clean = yardstick.hold(&halves(140, 100));
    assert_eq!((clean.spill, clean.over_edit), (Some(0.0), 0.0));
}

#[test]
fn going_too_far_is_over_editing_and_going_half_way_is_not() {
    let yardstick = yardstick(&halves(100, 100), &halves(140, 140));
    assert!(yardstick.hold(&halves(180, 180)).over_edit > 10.0);
    assert_eq!(yardstick.hold(&halves(120, 120)).over_edit, 0.0);
}

#[test]
fn an_edit_that_nobody_sees_is_no_yardstick() {
    assert!(Yardstick::new(halves(100, 100), halves(100, 100), Vec::new()).is_none());
}

#[test]
fn masks_overlap_as_far_as_they_share() {
    let left = left_half();
    let right: Weights = left.iter().map(|weight| 1.0 - weight).collect();
    let all = vec![1.0; left.len()];
    assert_eq!((overlap(&left, &left), overlap(&left, &right), overlap(&left, &all)), (1.0, 0.0, 0.5));
    assert_eq!(overlap(&[], &[]), 0.0);
}

fn branch(name: &str, judged_score: Option<u8>, recovery: f64) -> BranchReading {
    BranchReading {
        branch: format!("branch_b_{name}").parse().unwrap(),
        judged_score,
        abandoned: false,
        delta_e: 1.0,
        recovery: Some(recovery),
        regions: BTreeMap::new(),
        over_edit: Some(0.0),
        spill: None,
        leakage: None,
        clipping: 0.0,
    }
}

fn collect(fill: impl FnOnce(&mut Readings)) -> Measured {
    let mut readings = Readings::default();
    fill(&mut readings);
    Measured { version: 1, metrics: readings.0, branches: Vec::new() }
}

#[test]
fn the_best_branch_is_not_always_the_one_that_the_agent_chose() {
    let found = [branch("a", Some(2), 0.9), branch("b", Some(5), 0.3), branch("c", None, 0.5)];
    let told = collect(|readings| recovered(Some(0.0), &found, readings));
    assert_eq!((told.get("recovery"), told.get("recovery_chosen")), (Some(0.9), Some(0.3)));
    let none = collect(|readings| recovered(Some(0.0), &[], readings));
    assert_eq!((none.get("recovery"), none.get("over_edit")), (Some(0.0), None));
    let open = collect(|readings| recovered(None, &found, readings));
    assert_eq!(open.get("recovery"), None);
    let equals = [branch("a", Some(4), 0.1), branch("b", Some(4), 0.8)];
    let told = collect(|readings| recovered(Some(0.0), &equals, readings));
    assert_eq!(told.get("recovery_chosen"), Some(0.1), "the first of equals");
}

#[test]
fn scores_are_held_against_what_was_recovered() {
    let order = |found: &[BranchReading]| collect(|readings| calibration(found, readings));
    let right = order(&[branch("a", Some(5), 1.0), branch("b", Some(1), 0.0)]);
    assert_eq!((right.get("judgment_order"), right.get("judgment_error")), (Some(1.0), Some(0.0)));
    let wrong = order(&[branch("a", Some(1), 1.0), branch("b", Some(5), 0.0)]);
    assert_eq!((wrong.get("judgment_order"), wrong.get("judgment_error")), (Some(0.0), Some(1.0)));
    let same = order(&[branch("a", Some(3), 0.9), branch("b", Some(3), 0.1)]);
    assert_eq!(same.get("judgment_order"), Some(0.5));
    let blind = order(&[branch("a", None, 0.9)]);
    assert_eq!((blind.get("judgment_order"), blind.get("judgment_error")), (None, None));
}

fn seen(name: &str, base: &Picture, picture: Arc<Picture>, direction: &str) -> Seen {
    Seen {
        name: format!("branch_b_{name}").parse().unwrap(),
        stats: ImageStats::of(&picture),
        difference: Difference::between(base, &picture).unwrap(),
        picture,
        vector: Some(Vector { name: name.parse().unwrap(), direction: direction.into(), intensity: None }),
    }
}

#[test]
fn equal_branches_have_no_diversity_and_burnt_ones_are_told() {
    let base = halves(100, 60);
    let branches = |codes: [(u8, u8); 2]| {
        let [a, b] = codes.map(|(left, right)| halves(left, right));
        let seen = [seen("a", &base, a, "brighter"), seen("b", &base, b, "darker")];
        let readings = seen.each_ref().map(|one| BranchReading {
            clipping: one.stats.clip_high_pct,
            delta_e: one.difference.mean,
            leakage: Some(0.5),
            ..branch(one.name.as_str().trim_start_matches("branch_b_"), None, 0.0)
        });
        collect(|all| sizes(&seen, &readings, all).unwrap())
    };
    let same = branches([(140, 100), (140, 100)]);
    assert_eq!(
        (same.get("diversity"), same.get("clipping"), same.get("leakage")),
        (Some(0.0), Some(0.0), Some(0.5))
    );
    let apart = branches([(255, 100), (40, 20)]);
    assert!(apart.get("diversity").unwrap() > 20.0 && apart.get("edit_size").unwrap() > 10.0);
    assert_eq!(apart.get("clipping"), Some(50.0));
}

#[test]
fn branches_made_of_the_same_moves_are_no_variety() {
    let base = halves(100, 60);
    let two = [seen("a", &base, base.clone(), "x"), seen("b", &base, base.clone(), "x")];
    let made = |names: [&str; 2]| {
        let moves = names.map(|name| {
            let applied = AppliedMove { name: name.into(), ..AppliedMove::default() };
            ("branch_b_a".parse().unwrap(), vec![applied])
        });
        collect(|readings| variety(&two, &moves, readings)).get("diversity_moves")
    };
    assert_eq!((made(["exposure", "exposure"]), made(["exposure", "warmth"])), (Some(0.0), Some(1.0)));
}
