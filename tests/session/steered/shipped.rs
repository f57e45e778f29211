//! The protocols that come along, with the explorer.

use std::sync::Arc;

use chemigram::protocol::schema::Trust;
use chemigram::provider::explorer::Explorer;
use chemigram::session::opinion::Referee;
use chemigram::session::replay::Proof;
use chemigram::transcript::{Event, Flag, JudgmentSource, Outcome};

use super::{named, run, wanted};
use crate::support::{Studio, replayed};

#[test]
fn mode_b_explore_takes_three_branches_to_a_second_opinion() {
    let studio = Studio::new();
    let main = studio.tip("main");
    let vectors = [("light", "brighter"), ("color", "warmer"), ("rich", "richer colours")];
    let request = wanted("time=10m,iterations=60,branches=3", &vectors);
    let ran = run(&studio, Arc::new(Explorer::new(1)), Referee::Offline, &request, &named("mode_b_explore"));
    assert_eq!((ran.end.outcome, ran.end.reason.as_str()), (Outcome::Completed, ""), "{:?}", ran.way());
    let way = ran.way();
    assert_eq!(way.first().map(String::as_str), Some("Plan"));
    assert_eq!(way.last().map(String::as_str), Some("WrapUp"));
    assert_eq!(ran.session.state.branches.len(), 3);
    for (name, _) in vectors {
        let branch = format!("branch_b_{name}");
        let seen = |wanted: &str| {
            ran.briefs(wanted).iter().any(|text| text.contains(&format!("You stand on `{branch}`.\n")))
        };
        assert!(seen("Explore") && seen("Judge"), "{branch}: {way:?}");
        let heard = ran.lines.iter().any(|line| {
            matches!(&line.event, Event::Referee(reply)
                if reply.branch.as_ref().is_some_and(|b| b.as_str() == branch) && reply.opinion.is_some())
        });
        assert!(heard, "{branch}: {way:?}");
        assert!(!ran.flags(&branch).contains(&Flag::Unrefereed), "{branch}");
    }
    assert!(ran.referee_calls() <= 8, "{way:?}");
    assert_eq!(studio.tip("main"), main, "main was moved");

    let again = replayed(&studio, &ran.session.state.start.session).unwrap();
    assert_eq!((again.proof, &again.difference), (Proof::SamePixels, &None), "{again:?}");
    assert!(again.commits > 3 && again.pictures > 3, "{again:?}");
}

#[test]
fn one_move_is_made_in_earnest_and_argued_about() {
    let studio = Studio::new();
    let mut asked = named("tactical_one_move");
    asked.values.set("move", "heavy clarity on the cup", Trust::User);
    let request = wanted("time=10m,iterations=30,branches=1", &[]);
    let ran = run(&studio, Arc::new(Explorer::new(1)), Referee::Nobody, &request, &asked);
    assert_eq!(ran.end.outcome, Outcome::Completed, "{} {:?}", ran.end.reason, ran.way());
    let way = ran.way();
    assert_eq!(way, ["Plan", "(branch)", "Push", "Argue", "WrapUp"]);
    let judgment = ran.session.state.branches[0].judgment.as_ref().unwrap();
    assert_eq!((judgment.source, judgment.branch.as_str()), (JudgmentSource::Agent, "branch_b_tactical"));
    assert_ne!(studio.tip("branch_b_tactical"), studio.tip("main"));
    // Once more would make a branch that stands.
    let setup = studio.setup(Arc::new(Explorer::new(1)));
    let again = chemigram::session::protocols::plan(&setup, &request, &asked).err().unwrap();
    assert!(again.to_string().contains("`branch_b_tactical`"), "{again}");
}

#[test]
fn a_brief_is_read_three_times() {
    let studio = Studio::new();
    let request = wanted("time=10m,iterations=40,branches=3", &[]);
    let ran = run(&studio, Arc::new(Explorer::new(1)), Referee::Nobody, &request, &named("calibrate_brief"));
    assert_eq!(ran.end.outcome, Outcome::Completed, "{} {:?}", ran.end.reason, ran.way());
    let branches = ran.session.state.branches.iter();
    let judged: Vec<&str> = branches.filter(|b| b.judgment.is_some()).map(|b| b.name.as_str()).collect();
    assert_eq!(judged, ["branch_b_literal", "branch_b_restrained", "branch_b_bold"]);
    let tips: std::collections::BTreeSet<_> = judged.iter().map(|branch| studio.tip(branch)).collect();
    assert_eq!(tips.len(), 3, "the readings do not differ: {:?}", ran.way());
}
