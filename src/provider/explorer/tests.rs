//! The explorer against a small simulated session: moves that push axes in proportion to their strength.

mod talking;
mod world;

use serde_json::{Value, json};

use super::*;
use crate::conversation::ToolResult;
use pixels::metrics::check::Verdict;
use world::World;

const THREE: &[(&str, &str)] = &[
    ("tone", "open the shadows and recover the highlights"),
    ("warmth", "subtly cooler"),
    ("colour", "much richer colours"),
];

/// Every reply follows from what was said before it, and from nothing else.
fn assert_replays(messages: &[Message], explorer: &Explorer) {
    for (at, message) in messages.iter().enumerate() {
        if matches!(message, Message::Assistant { .. }) {
            assert_eq!(&explorer.reply("", &[], &messages[..at]).message, message, "reply at {at}");
        }
    }
}

#[test]
fn three_vectors_are_explored_judged_and_ended() {
    let mut world = World::new(50, THREE);
    let messages = world.run(&Explorer::with(Habit::Searching, 0));
    assert!(world.used < 50 && !world.closing, "it ends by itself, after {}", world.used);
    assert_eq!(world.called[..3], ["read_context", "confirm_session", "list_vocabulary"]);
    assert_eq!(world.called.last().unwrap(), "end_mode_b_session");

    let tone = &world.judgments["branch_b_tone"];
    assert_eq!((&tone["judged_score"], &tone["abandoned"]), (&json!(4), &Value::Null));
    let tip = &world.branches["branch_b_tone"];
    assert_eq!(tip.len(), 2, "both axes were asked for, so the two moves belong together: {tip:?}");
    assert_eq!(tone["key_moves"].as_array().unwrap().len(), 2);
    let (_, check) = world.measure("branch_b_tone");
    assert!((3.5..5.0).contains(&check.moved), "aimed at 4: {check:?}");
    assert!(tone["judged_reasoning"].as_str().unwrap().contains(&format!("moved {:+.2} steps", check.moved)));

    let (_, check) = world.measure("branch_b_warmth");
    assert!((1.8..2.6).contains(&check.moved), "a subtle vector aims at 2: {check:?}");
    assert!(world.branches["branch_b_warmth"]["warmth"] < 0.0, "the move was turned round");

    let colour = &world.judgments["branch_b_colour"];
    assert_eq!((&colour["judged_score"], &colour["abandoned"]), (&json!(2), &json!(true)));
    let summary = world.ended.unwrap();
    assert!(summary.contains("3 of 3") && summary.contains("branch_b_colour: abandoned"), "{summary}");
    assert_eq!(messages.len() % 2, 0, "plan, then pairs, then the last word");
}

#[test]
fn any_prefix_gives_the_same_next_reply() {
    for cap in [8, 20, 50, 200] {
        let explorer = Explorer::with(Habit::Searching, 7);
        let (one, two) = (World::new(cap, THREE).run(&explorer), World::new(cap, THREE).run(&explorer));
        assert_eq!(one, two);
        assert_replays(&one, &explorer);
    }
}

#[test]
fn the_time_left_changes_nothing() {
    let calls = |seconds: u64| {
        let mut world = World { seconds, ..World::new(50, THREE) };
        let messages = world.run(&Explorer::with(Habit::Searching, 0));
        messages.into_iter().filter(|m| matches!(m, Message::Assistant { .. })).collect::<Vec<_>>()
    };
    assert_eq!(calls(1800), calls(3));
}

#[test]
fn every_budget_is_kept_and_every_branch_made_is_judged() {
    for cap in 1..60 {
        let mut world = World::new(cap, THREE);
        world.run(&Explorer::with(Habit::Searching, 0));
        assert!(world.used <= cap);
        assert_eq!(world.judgments.len(), world.branches.len(), "cap {cap}");
        assert!(cap < 2 || !world.closing, "cap {cap} was run into");
        let made = world.branches.len();
        assert_eq!(
            made,
            if cap < 5 {
                0
            } else if cap < 8 {
                1
            } else if cap < 11 {
                2
            } else {
                3
            },
            "cap {cap}"
        );
    }
    let mut world = World::new(8, THREE);
    world.run(&Explorer::with(Habit::Searching, 0));
    assert!(world.ended.unwrap().contains("branch_b_colour"), "what was not made is named");
}

#[test]
fn the_budget_gone_at_any_moment_still_gives_judgments() {
    for cut in 0..50 {
        let mut world = World { cut, ..World::new(50, THREE) };
        let explorer = Explorer::with(Habit::Searching, 0);
        let messages = world.run(&explorer);
        assert_eq!(world.judgments.len(), world.branches.len(), "cut {cut}");
        let closed = messages.iter().rposition(
            |m| matches!(m, Message::User { text, .. } if text.starts_with("Exploration is over")),
        );
        if let Some(closed) = closed {
            let replies =
                messages[closed..].iter().filter(|m| matches!(m, Message::Assistant { .. })).count() - 1;
            assert!(replies <= 3, "the wrap-up takes three replies, not {replies} (cut {cut})");
        }
        for (branch, judgment) in world.judgments.clone() {
            if let Some(commit) = judgment["hash"].as_str() {
                let judged = world.rendered[commit.parse::<usize>().unwrap()].clone();
                world.branches.insert(branch.clone(), judged);
            }
            let claims_more = judgment["judged_score"].as_u64().unwrap() >= 3;
            let met = world.measure(&branch).1.direction == Verdict::Met;
            assert_eq!(claims_more, met, "cut {cut}: {judgment}");
        }
        assert_replays(&messages, &explorer);
    }
}

#[test]
fn failing_calls_are_skipped_and_never_repeated() {
    let every: fn(&str, &Value) -> Option<&'static str> =
        |tool, _| (tool == "apply_primitive").then_some("SYNTHESIZER_ERROR");
    let one: fn(&str, &Value) -> Option<&'static str> = |tool, a| {
        (tool == "apply_primitive" && a["primitive_name"] == "shadows_lift").then_some("INVALID_INPUT")
    };
    let render: fn(&str, &Value) -> Option<&'static str> =
        |tool, _| (tool == "render_preview").then_some("DARKTABLE_ERROR");
    let undo: fn(&str, &Value) -> Option<&'static str> =
        |tool, _| ["reset", "remove_module"].contains(&tool).then_some("STATE_ERROR");
    let branch: fn(&str, &Value) -> Option<&'static str> =
        |tool, a| (tool == "branch" && a["name"] == "branch_b_warmth").then_some("STATE_ERROR");
    let list: fn(&str, &Value) -> Option<&'static str> =
        |tool, _| (tool == "list_vocabulary").then_some("STATE_ERROR");
    let confirm: fn(&str, &Value) -> Option<&'static str> =
        |tool, _| (tool == "confirm_session").then_some("INVALID_INPUT");
    for (what, fail, kept, made) in [
        ("every apply", every, 0, 3),
        ("one move", one, 2, 3),
        ("every render", render, 0, 3),
        ("every undo", undo, 2, 3),
        ("one branch", branch, 1, 2),
        ("the vocabulary", list, 0, 0),
        ("the confirmation", confirm, 0, 0),
    ] {
        let mut world = World { fail, ..World::new(50, THREE) };
        let explorer = Explorer::with(Habit::Searching, 0);
        let messages = world.run(&explorer);
        let score = world.judgments.values().filter(|j| j["abandoned"] != true).count();
        assert_eq!((score, world.branches.len()), (kept, made), "{what}: {:?}", world.called);
        assert!(world.used < 50, "{what}");
        assert_replays(&messages, &explorer);
    }
}

#[test]
fn a_refused_judgment_is_made_once_more_and_a_refused_end_gives_up() {
    let fail: fn(&str, &Value) -> Option<&'static str> =
        |tool, _| ["record_judgment", "end_mode_b_session"].contains(&tool).then_some("INVALID_INPUT");
    let mut world = World { fail, ..World::new(50, &THREE[..1]) };
    let explorer = Explorer::with(Habit::Searching, 0);
    let mut messages = vec![Message::User { text: world.plan.clone(), images: Vec::new() }];
    loop {
        let reply = explorer.reply("", &[], &messages).message;
        let Message::Assistant { calls, .. } = &reply else { panic!() };
        let results: Vec<ToolResult> = calls.iter().map(|call| world.answer(call)).collect();
        messages.push(reply);
        if results.is_empty() {
            break;
        }
        messages.push(Message::Results { results });
    }
    let count = |tool: &str| world.called.iter().filter(|name| *name == tool).count();
    assert_eq!((count("record_judgment"), count("end_mode_b_session")), (2, 3));
}

#[test]
fn words_without_an_axis_get_a_plain_change_and_no_high_score() {
    let mut world = World::new(20, &[("zz", "qqq")]);
    let messages = world.run(&Explorer::with(Habit::Searching, 0));
    let judgment = &world.judgments["branch_b_zz"];
    assert_eq!(judgment["judged_score"], 3);
    let (difference, _) = world.measure("branch_b_zz");
    assert!((2.5..3.5).contains(&difference.mean), "{difference:?}");
    let said = serde_json::to_string(&messages).unwrap();
    assert!(said.contains("no measurable axis in `qqq`"), "the restatement says so");
    assert!(judgment["judged_reasoning"].as_str().unwrap().contains("no word of it can be measured"));
}

#[test]
fn a_first_try_too_weak_to_be_seen_is_strengthened() {
    let mut world = World::new(20, &[("texture", "subtly more clarity")]);
    world.run(&Explorer::with(Habit::Searching, 0));
    let tip = world.branches["branch_b_texture"]["clarity"];
    assert!(tip >= 0.5, "0.25 is invisible: {tip}");
    assert_ne!(world.judgments["branch_b_texture"]["abandoned"], true);
}

#[test]
fn a_setting_with_a_warning_is_weakened_until_it_has_none() {
    let mut world = World::new(30, &[("glow", "brighter")]);
    world.run(&Explorer::with(Habit::Searching, 0));
    let tip = world.branches["branch_b_glow"]["exposure"];
    // It clips above 0.15, and meets the direction from 0.05.
    assert!((0.05..=0.15).contains(&tip), "{tip}");
    assert_eq!(world.called.iter().filter(|tool| *tool == "render_preview").count(), 3);
}

#[test]
fn black_and_white_goes_to_its_end() {
    let mut world = World::new(20, &[("mono", "black and white")]);
    world.run(&Explorer::with(Habit::Searching, 0));
    let tried: Vec<f64> = world.rendered.iter().map(|settings| settings["chroma"]).collect();
    assert_eq!(tried, [-1.0]);
}

#[test]
fn a_vector_without_a_move_is_abandoned_and_reported() {
    let mut world = World::new(20, &[("grain", "more grain")]);
    world.run(&Explorer::with(Habit::Searching, 0));
    assert_eq!(world.judgments["branch_b_grain"]["abandoned"], true);
    assert!(world.called.iter().any(|tool| tool == "log_vocabulary_gap"));
    assert!(!world.closing);
}

#[test]
fn a_cap_on_renders_is_planned_for() {
    let mut world = World::new(50, THREE);
    world.plan = world.plan.replace("3 branches", "3 branches, 12 renders");
    world.run(&Explorer::with(Habit::Searching, 0));
    let renders = world.called.iter().filter(|tool| *tool == "render_preview").count();
    assert!(renders + world.judgments.len() + 2 <= 12, "{renders} looks");
    assert_eq!(world.branches.len(), 3);
}

#[tokio::test]
async fn an_attempt_is_free_and_says_who_answered() {
    struct None;
    impl crate::provider::Blobs for None {
        fn bytes(&self, _: &base::ids::Hash) -> std::io::Result<Vec<u8>> {
            Err(std::io::ErrorKind::NotFound.into())
        }
    }
    let explorer = Explorer::with(Habit::Searching, 3);
    let messages = [Message::User { text: World::new(50, THREE).plan, images: Vec::new() }];
    let request = ModelRequest {
        model: "explorer-1",
        system: "",
        tools: &[],
        messages: &messages,
        earlier: 0,
        max_output_tokens: 1000,
        session: "s",
        seed: Option::None,
        blobs: &None,
        time_left: Option::None,
        on_progress: &|_, _| {},
    };
    let reply = explorer.attempt(crate::gate::permit(), &request).await.unwrap();
    assert_eq!(reply.finish, Finish::ToolCalls);
    assert_eq!((reply.usage.total(), reply.cost_micro_usd), (Some(0), Some(0)));
    assert_eq!(reply.model_served.as_deref(), Some(explorer.info().model.as_str()));
    assert_eq!(serde_json::from_slice::<Message>(&reply.raw).unwrap(), reply.message);
    let Message::Assistant { calls, .. } = reply.message else { panic!() };
    assert_eq!(calls[0].id, "call_1_1");
}

#[test]
fn a_habit_is_kept() {
    let looks = |habit| {
        let explorer = Explorer::with(habit, 3);
        let mut world = World::new(50, THREE);
        let messages = world.run(&explorer);
        assert_replays(&messages, &explorer);
        assert!(world.ended.is_some(), "{habit:?}");
        assert_eq!(Explorer::named(habit.model(), 3).unwrap().habit, habit);
        let looks = world.called.iter().filter(|name| *name == "render_preview").count();
        let calls = messages.iter().filter_map(|message| match message {
            Message::Assistant { calls, .. } => Some(calls),
            _ => None,
        });
        let first = calls.flatten().find(|call| call.name == "apply_primitive").unwrap();
        let first: Value = serde_json::from_str(&first.arguments).unwrap();
        let values = first["parameter_values"].as_object().unwrap();
        (looks, values.values().next().unwrap().as_f64().unwrap(), world)
    };
    let (searching, start, _) = looks(Habit::Searching);
    let (first, same, tried) = looks(Habit::FirstTry);
    assert_eq!(start, same);
    assert!(searching > 6 && first <= 3, "{searching} and {first}");
    assert_eq!(tried.branches["branch_b_warmth"].len(), 1);
    let (_, quarter, _) = looks(Habit::Timid);
    assert!((quarter / start - 0.25).abs() < 0.02, "{quarter} of {start}");
    let (drawn, _, lot) = looks(Habit::Random);
    assert_eq!(drawn, 3, "one look a branch");
    assert!(lot.branches.values().all(|moves| moves.len() == 2), "{:?}", lot.branches);
    assert!(lot.judgments.values().all(|judgment| judgment["abandoned"].is_null()));
    assert!(Explorer::named("explorer-9", 0).is_none());
}
