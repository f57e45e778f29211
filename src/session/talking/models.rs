//! What the explorer says, and what a small model is given.

use super::*;

#[test]
fn the_explorer_holds_a_simple_conversation() {
    let rig = Rig::new();
    let mut setup = rig.setup("");
    let explorer: Arc<dyn Provider> = Arc::new(Explorer::new(0));
    setup.provider = explorer;
    let mut session = begin_with(setup, BUDGET);
    advance(&mut session, &Unwatched);
    let shift = |session: &mut Session| {
        let moves = moves(session);
        let found = moves
            .iter()
            .find_map(|m| m.strip_prefix("warmth shift=")?.split(' ').next()?.parse::<f64>().ok());
        found.unwrap_or(0.0)
    };
    assert!(say(&mut session, "a little warmer", &Unwatched).is_none());
    let little = shift(&mut session);
    assert!(little > 0.0, "{:?}", moves(&mut session));
    assert!(spoken(&session.state).contains("warmth"), "{}", spoken(&session.state));
    assert!(say(&mut session, "more", &Unwatched).is_none());
    let more = shift(&mut session);
    assert!(more > little, "{little} {more}");
    assert!(say(&mut session, "undo", &Unwatched).is_none());
    assert_eq!(shift(&mut session), little);
    assert!(say(&mut session, "paint a horse", &Unwatched).is_none());
    assert!(spoken(&session.state).contains("no language model"), "{}", spoken(&session.state));
    let person = Person::answering(&["yes"]);
    let end = say(&mut session, "perfect", &person).unwrap();
    assert_eq!(end.outcome, Outcome::Completed);
    assert!(end.summary.contains("warmth"), "{}", end.summary);
}

#[test]
fn a_conversation_with_a_small_model_has_the_tools_that_its_prompt_is_made_for() {
    let rig = Rig::new();
    let script = [
        reply("", &[WARMER]),
        reply("", &[PROPOSE]),
        reply("", &[PROPOSE]),
        reply("", &[BRIGHTER]),
        reply("", &[LOOK]),
        reply("I cannot.", &[]),
    ];
    let setup = rig.setup(&script.concat());
    for entry in setup.prompts.list() {
        for tool in setup.prompts.tools(&entry.name).unwrap_or_default() {
            assert!(tools::find(tool).is_some(), "{}: there is no tool `{tool}`", entry.name);
        }
    }
    let request = Request { prompt: "mode_a/short".into(), ..request(BUDGET) };
    let plan = talk::plan(&setup, &request).unwrap();
    let names: Vec<&str> = plan.tools.iter().map(|tool| tool.name.as_str()).collect();
    let made_for = [
        "apply_primitive",
        "list_vocabulary",
        "propose_edit",
        "propose_notes_update",
        "propose_taste_update",
        "undo",
    ];
    assert_eq!(names, made_for);

    // What it says of the moves is so.
    let vocabulary = Vocabulary::load(&Overlay::vocabulary(None)).unwrap();
    let mut named = 0;
    for line in plan.system.lines().filter(|line| line.contains("primitive_name")) {
        let (call, range) = line.split_once("} (").unwrap();
        let call = call.split_once("`apply_primitive` ").unwrap().1.to_owned() + "}";
        let call: serde_json::Value = serde_json::from_str(&call).unwrap();
        let (parameter, value) = call["parameter_values"].as_object().unwrap().iter().next().unwrap();
        let found = &vocabulary.get(call["primitive_name"].as_str().unwrap()).unwrap().parameters[parameter];
        let ends = range.split([';', ')']).next().unwrap().split_once(" to ").unwrap();
        let [least, most]: [f64; 2] = [ends.0, ends.1].map(|end| end.parse().unwrap());
        assert!(found.min <= least && most <= found.max, "{line}: {} to {}", found.min, found.max);
        assert!((least..=most).contains(&value.as_f64().unwrap()), "{line}");
        named += 1;
    }
    assert_eq!(named, 5);

    let mut session = start::start(setup, plan).unwrap();
    let person = Person::answering(&["no", "yes"]);
    let replies = |session: &mut Session, words: &str| {
        let before = session.state.replies_heard();
        assert!(say(session, words, &person).is_none());
        session.state.replies_heard() - before
    };
    assert_eq!(replies(&mut session, "warmer, please"), 1, "an edit is the end of its turn");
    assert!(moves(&mut session).iter().any(|line| line.contains("warmth")));
    assert_eq!(replies(&mut session, "hello"), 1, "so is a no");
    session.state.declined.clear();
    assert_eq!(replies(&mut session, "and now?"), 2, "but what is wanted is made first");
    assert!(moves(&mut session).iter().any(|line| line.contains("exposure")));
    assert_eq!(replies(&mut session, "look"), 2);
    let refused = session.state.messages.iter().any(|message| match message {
        Message::Results { results } => {
            results.iter().any(|r| r.text.contains("there is no tool `render_preview`"))
        }
        _ => false,
    });
    assert!(refused, "{:?}", session.state.messages);
}
