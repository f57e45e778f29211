//! The offline explorer does the whole job on a real raw through real darktable, twice the same way.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::{Studio, request, run};
use base::ids::Hash;
use chemigram::provider::explorer::{Explorer, Habit};
use chemigram::session::start;
use chemigram::transcript::{Event, Judgment, Line, Outcome, SessionEnd};

const VECTORS: &[(&str, &str)] =
    &[("tone", "open the shadows"), ("mono", "black and white"), ("mystery", "qqq")];

fn explore(studio: &Studio, budget: &str) -> (SessionEnd, Vec<Line>) {
    let setup = studio.setup(Arc::new(Explorer::with(Habit::Searching, 0)));
    let plan = start::plan(&setup, &request(budget, VECTORS)).unwrap();
    let mut session = start::start(setup, plan).unwrap();
    let end = run(&mut session);
    (end, studio.lines(&session.state.start.session))
}

fn judgments(lines: &[Line]) -> BTreeMap<String, Judgment> {
    let judged = lines.iter().filter_map(|line| match &line.event {
        Event::Judgment(judgment) => Some((judgment.branch.to_string(), (**judgment).clone())),
        _ => None,
    });
    judged.collect()
}

fn failures(lines: &[Line]) -> Vec<String> {
    let failed = lines.iter().filter_map(|line| match &line.event {
        Event::ToolResult { result, code: Some(_), .. } => Some(format!("{}: {}", result.name, result.text)),
        _ => None,
    });
    failed.collect()
}

/// The pixels of each branch, as judged.
fn pixels(judged: &BTreeMap<String, Judgment>) -> BTreeMap<String, String> {
    let pixel = |j: &Judgment| j.measured.as_ref().unwrap()["pixel_hash"].as_str().unwrap().to_owned();
    judged.iter().map(|(branch, judgment)| (branch.clone(), pixel(judgment))).collect()
}

#[test]
fn three_branches_come_back_measured_and_twice_the_same() {
    let studio = Studio::new();
    let main = studio.tip("main").unwrap();
    let (end, lines) = explore(&studio, "time=20m,iterations=50,branches=3");
    assert_eq!(failures(&lines), Vec::<String>::new());
    assert_eq!((end.outcome, end.cap), (Outcome::Completed, None), "{}", end.summary);
    assert_eq!(studio.tip("main").unwrap(), main, "main was moved");
    assert!(end.summary.starts_with("Explorer: measured only, not viewed."), "{}", end.summary);

    let judged = judgments(&lines);
    assert_eq!(judged.len(), 3);
    for (branch, judgment) in &judged {
        assert!(judgment.judged_reasoning.contains("mean ΔE"), "{}", judgment.judged_reasoning);
        let measured = judgment.measured.as_ref().expect("it is measured");
        if judgment.abandoned {
            assert_eq!(measured["pixel_hash"], measured["baseline_pixel_hash"], "{branch}");
            continue;
        }
        assert!(!judgment.key_moves.is_empty(), "{branch}");
        assert_ne!(measured["pixel_hash"], measured["baseline_pixel_hash"], "{branch}");
        assert_eq!(studio.tip(branch).map(|tip| tip.parse::<Hash>().unwrap()), Some(judgment.hash.clone()));
    }
    for branch in ["branch_b_tone", "branch_b_mono"] {
        let judgment = &judged[branch];
        assert!(!judgment.abandoned, "{}", judgment.judged_reasoning);
        assert_eq!(judgment.measured.as_ref().unwrap()["vector"]["direction"], "met", "{branch}");
    }

    let again = judgments(&explore(&Studio::new(), "time=5m,iterations=50,branches=3").1);
    assert_eq!(pixels(&again), pixels(&judged), "another time budget changes nothing");
}

/// Explorer-2: a place, a size, a prohibition and two wishes that pull apart, on real pixels.
#[test]
fn places_sizes_and_prohibitions_reach_the_pixels_and_no_contradiction_is_praised() {
    let studio = Studio::new();
    let setup = studio.setup(Arc::new(Explorer::new(0)));
    let vectors = [
        ("sky", "darken the sky by a stop, without crushing the blacks"),
        ("color", "cooler shadows, warmer light"),
    ];
    let plan = start::plan(&setup, &request("time=20m,iterations=40,branches=2", &vectors)).unwrap();
    let mut session = start::start(setup, plan).unwrap();
    let end = run(&mut session);
    let lines = studio.lines(&session.state.start.session);
    assert_eq!(failures(&lines), Vec::<String>::new());
    assert_eq!(end.outcome, Outcome::Completed, "{}", end.summary);
    let judged = judgments(&lines);
    let sky = &judged["branch_b_sky"];
    assert!(
        sky.key_moves.iter().any(|moved| moved.contains("exposure ev=-1") && moved.contains(" on ")),
        "{sky:?}"
    );
    for judgment in judged.values() {
        let check = &judgment.measured.as_ref().unwrap()["vector"];
        assert!(check["direction"] != "missed" || judgment.judged_score <= 3, "{judgment:?}");
    }
    let color = &judged["branch_b_color"];
    let against = color.judged_reasoning.contains("went the other way");
    assert!(!against || color.judged_score <= 2, "{}", color.judged_reasoning);
}
