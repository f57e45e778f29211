//! What the documents that the program follows ask of a session, a test a row of the list of their requirements.

use std::time::Duration;

use serde_json::Value;

use crate::review::ReviewModel;
use crate::session::driver::Patience;
use crate::session::listing;
use crate::session::rig::{self, Rig, begin, photo, request, run};
use crate::transcript::{Event, FaultClass, Line, Outcome};

const BUDGET: &str = "time=20h,iterations=30,branches=2,renders=60,tokens=900k";
const STYLE: crate::review::Style = crate::review::Style { color: false, width: 100 };
const OPEN: &str = r#"
[[reply]]
calls = [{ name = "read_context" }, { name = "confirm_session", arguments = { vectors = [{ name = "tone", restated = "Open." }] } }]
[[reply]]
calls = [{ name = "branch", arguments = { name = "branch_b_tone" } }, { name = "apply_primitive", arguments = { primitive_name = "exposure", parameter_values = { ev = 0.4 } } }]
"#;
const END: &str = r#"
[[reply]]
calls = [{ name = "end_mode_b_session", arguments = { session_summary = "Tone it is." } }]
"#;

fn judged(more: &str) -> String {
    format!(
        r#"
[[reply]]
calls = [{{ name = "record_judgment", arguments = {{ branch = "branch_b_tone", judged_score = 4, judged_reasoning = "Open and quiet.", comparable_to_baseline = true, key_moves = ["exposure ev=0.4"]{more} }} }}]
"#
    )
}

/// Runs a session with this script; its lines.
fn lines(rig: &Rig, script: &str, criteria: Option<&str>) -> Vec<Line> {
    let mut wanted = request(BUDGET, &["tone"]);
    wanted.criteria = criteria.map(str::to_owned);
    let mut session = begin(rig.setup(script), &wanted).unwrap();
    assert_eq!(run(&mut session).unwrap().outcome, Outcome::Completed);
    let id = session.state.start.session.clone();
    drop(session);
    listing::read(&photo(&rig.library), &id).unwrap().lines
}

/// The results of a tool, in order.
fn results(lines: &[Line], tool: &str) -> Vec<Value> {
    let result = |line: &Line| match &line.event {
        Event::ToolResult { result, .. } if result.name == tool => {
            serde_json::from_str(result.text.lines().next().unwrap()).ok()
        }
        _ => None,
    };
    lines.iter().filter_map(result).collect()
}

#[test]
fn b7_each_named_criterion_is_answered_in_the_judgment() {
    let rig = Rig::new();
    let criteria = r#"{"mood": "stays quiet", "skin": "keeps its texture"}"#;
    let half = judged(r#", criteria = { mood = "It does." }"#);
    let odd = judged(r#", criteria = { mood = "It does.", skin = "Yes.", sky = "Blue." }"#);
    let whole = judged(r#", criteria = { mood = "It does.", skin = "A little soft." }"#);
    let lines = lines(&rig, &format!("{OPEN}{half}{odd}{whole}{END}"), Some(criteria));
    let told = results(&lines, "record_judgment");
    assert!(told[0]["error"]["message"].as_str().unwrap().contains("not answered: skin"), "{}", told[0]);
    assert!(told[1]["error"]["message"].as_str().unwrap().contains("no criterion `sky`"), "{}", told[1]);
    assert_eq!(told[2]["ok"], true);
    assert_eq!(
        results(&lines, "confirm_session")[0]["data"]["criteria"],
        serde_json::json!(["mood", "skin"])
    );
    let id = rig::sessions(&rig.library).remove(0);
    let workspace = photo(&rig.library);
    let session = listing::read(&workspace, &id).unwrap();
    assert!(session.state.start.criteria.starts_with("- mood: stays quiet\n- skin: keeps its texture"));
    let review = ReviewModel::of(&workspace, &session).unwrap();
    assert_eq!(review.branches[0].criteria["skin"], "A little soft.");
    let text = crate::review::text(&review, STYLE);
    assert!(text.contains("skin: A little soft."), "{text}");
    let tools = serde_json::to_string(
        &begin(rig.setup(END), &{
            let mut wanted = request(BUDGET, &["tone"]);
            wanted.criteria = Some(criteria.into());
            wanted
        })
        .unwrap()
        .tools,
    )
    .unwrap();
    assert!(tools.contains("An answer to each criterion."), "the model is told where");
    // No object of texts.
    for wrong in [r#"{"mood": 3}"#, "{}", r#"{"mood": ""}"#, "{mood"] {
        let mut wanted = request(BUDGET, &["tone"]);
        wanted.criteria = Some(wrong.into());
        assert!(begin(rig.setup(END), &wanted).is_err(), "{wrong}");
    }
}

#[test]
fn b11_the_end_answers_with_each_branch_its_reasoning_and_its_moves() {
    let rig = Rig::new();
    let lines = lines(&rig, &format!("{OPEN}{}{END}", judged("")), None);
    let ended = &results(&lines, "end_mode_b_session")[0]["data"];
    let branch = &ended["branches"][0];
    assert_eq!((&branch["branch"], &branch["judged_score"]), (&"branch_b_tone".into(), &4.into()));
    assert_eq!(branch["judged_reasoning"], "Open and quiet.");
    assert_eq!(branch["key_moves"], serde_json::json!(["exposure ev=0.4"]));
    assert_eq!(ended["session_summary"], "Tone it is.");
}

#[test]
fn b15_the_status_has_what_is_left_and_the_caps() {
    let rig = Rig::new();
    lines(&rig, &format!("{OPEN}{}{END}", judged("")), None);
    let summary = listing::summary(&photo(&rig.library), &rig::sessions(&rig.library)[0]);
    let told = serde_json::to_value(&summary).unwrap();
    let (left, caps) = (&told["budget_remaining"], &told["budget"]);
    assert_eq!((&left["branches"], &caps["max_branches"]), (&1.into(), &2.into()));
    let spent = told["spent"]["iterations"].as_u64().unwrap();
    assert!(spent > 0 && left["iterations"].as_u64().unwrap() == 30 - spent, "{told}");
    assert!(left["time_seconds"].as_u64().unwrap() < 72_000);
    assert_eq!(told["current_branch"], "branch_b_tone");
    assert!(told["last_line_ms_ago"].as_u64().is_some());
    let text = crate::review::status_lines(&summary, STYLE);
    assert!(text.contains("branches 1 of 2") && text.contains("last line: "), "{text}");
}

#[test]
fn c3_the_label_of_a_snapshot_is_kept_though_nothing_changed() {
    let rig = Rig::new();
    let snapshot =
        "[[reply]]\ncalls = [{ name = \"snapshot\", arguments = { label = \"half way there\" } }]\n";
    let lines = lines(&rig, &format!("{OPEN}{snapshot}{}{END}", judged("")), None);
    assert_eq!(results(&lines, "snapshot")[0]["data"]["unchanged"], true);
    let log = photo(&rig.library).log("branch_b_tone", 10).unwrap();
    assert_eq!(log[0].labels, ["half way there"]);
}

#[test]
fn e6_e17_g13_an_earlier_session_of_the_photo_can_be_read_summarized() {
    let rig = Rig::new();
    lines(&rig, &format!("{OPEN}{}{END}", judged("")), None);
    let first = rig::sessions(&rig.library).remove(0);
    let read = |part: &str| {
        format!(
            "[[reply]]\ncalls = [{{ name = \"read_session_transcript\", arguments = {{ session = \"{part}\" }} }}]\n"
        )
    };
    let open = OPEN.replace("branch_b_tone", "branch_b_tone_2");
    let script = [
        &*open,
        &read("last"),
        &read(first.short()),
        &read("no-such"),
        &judged("").replace("branch_b_tone", "branch_b_tone_2"),
        END,
    ];
    let lines = lines(&rig, &script.concat(), None);
    let told = results(&lines, "read_session_transcript");
    assert_eq!(told[0]["data"], told[1]["data"]);
    let data = &told[0]["data"];
    assert_eq!((&data["session"], &data["outcome"]), (&first.as_str().into(), &"completed".into()));
    assert_eq!(data["branches"][0]["direction"], "lift the shadows");
    assert_eq!(data["branches"][0]["key_moves"], serde_json::json!(["exposure ev=0.4"]));
    assert_eq!(data["session_summary"], "Tone it is.");
    assert!(told[2]["error"]["message"].as_str().unwrap().contains(first.short()), "{}", told[2]);
    let context = &results(&lines, "read_context")[0]["data"]["earlier_sessions"];
    let row = context[0].as_str().unwrap();
    assert!(row.contains("tone \"lift the shadows\" 4/5 (completed)"), "{row}");
    assert_eq!(context.as_array().unwrap().len(), 1);
}

#[test]
fn k1_a_session_waits_for_its_provider_as_long_as_it_has_patience() {
    let fault = "fault = { class = \"transient\", status = 503, times = 7 }\n";
    let script = format!("{OPEN}{}{fault}{END}", judged(""));
    let ended = |patience: u64| {
        let rig = Rig::new();
        let mut session = begin(rig.setup(&script), &request(BUDGET, &["tone"])).unwrap();
        session.patience = Patience { wait: Duration::from_secs(patience), ..Patience::default() };
        let outcome = run(&mut session).unwrap().outcome;
        let lines = listing::read(&photo(&rig.library), &session.state.start.session).unwrap().lines;
        let pauses = lines.iter().filter_map(|line| match &line.event {
            Event::Attempt { class: FaultClass::Transient, pause_ms, settled, .. } => {
                Some((*pause_ms, settled.model_calls))
            }
            _ => None,
        });
        (outcome, pauses.collect::<Vec<_>>())
    };
    let (outcome, pauses) = ended(600);
    assert_eq!((outcome, pauses.len()), (Outcome::Completed, 7));
    assert_eq!(pauses[3..], [(Some(8_000), 1), (Some(16_000), 0), (Some(32_000), 0), (Some(64_000), 0)]);
    let (outcome, pauses) = ended(20);
    assert_eq!((outcome, pauses.len()), (Outcome::ProviderFailed, 6), "{pauses:?}");
    assert_eq!(pauses[3..], [(Some(8_000), 1), (Some(12_000), 0), (None, 0)], "no longer than its patience");
    let (outcome, pauses) = ended(0);
    assert_eq!((outcome, pauses.len()), (Outcome::ProviderFailed, 4));
}

#[test]
fn g6_a_tag_is_suggested_though_no_branch_is_worth_taking() {
    let rig = Rig::new();
    let given_up = r#"
[[reply]]
calls = [{ name = "record_judgment", arguments = { branch = "branch_b_tone", judged_reasoning = "Flat.", abandoned = true } }]
"#;
    let end = END.replace("session_summary", "tag_suggestion = \"v1_export\", session_summary");
    lines(&rig, &format!("{OPEN}{given_up}{end}"), None);
    let workspace = photo(&rig.library);
    let session = listing::read(&workspace, &rig::sessions(&rig.library)[0]).unwrap();
    let review = ReviewModel::of(&workspace, &session).unwrap();
    let next: Vec<&str> = review.next.iter().map(|step| step.command.as_str()).collect();
    assert!(next.contains(&"chemigram tag cup v1_export"), "{next:?}");
}

/// The first message to the model, and its tools.
fn told(rig: &Rig, wanted: &crate::session::start::Request) -> (String, Vec<String>) {
    let plan = crate::session::start::plan(&rig.setup(END), wanted).unwrap();
    (plan.message, plan.tools.into_iter().map(|tool| tool.name).collect())
}

#[test]
fn g15_a_session_that_is_to_propose_nothing_cannot() {
    let rig = Rig::new();
    let taste =
        "[[reply]]\ncalls = [{ name = \"propose_taste_update\", arguments = { text = \"More light.\" } }]\n";
    let mut wanted = request(BUDGET, &["tone"]);
    let (message, tools) = told(&rig, &wanted);
    assert!(tools.iter().any(|name| name == "propose_taste_update") && !message.contains("no proposals"));
    wanted.proposes = false;
    let (message, tools) = told(&rig, &wanted);
    assert!(message.contains("no proposals for taste and notes"), "{message}");
    assert!(!tools.iter().any(|name| name.starts_with("propose_")), "{tools:?}");
    let script = format!("{OPEN}{}{taste}{END}", judged(""));
    let mut session = begin(rig.setup(&script), &wanted).unwrap();
    assert_eq!(run(&mut session).unwrap().outcome, Outcome::Completed);
    let id = session.state.start.session.clone();
    let said = crate::session::wording::wrap_up(&session.state, &session.tools, "time");
    assert!(!said.contains("propose_"), "{said}");
    drop(session);
    let lines = listing::read(&photo(&rig.library), &id).unwrap().lines;
    assert_eq!(results(&lines, "propose_taste_update")[0]["error"]["code"], "NOT_FOUND");
    assert!(photo(&rig.library).proposals().unwrap().is_empty());
}

#[test]
fn g19_a_later_session_reads_the_answers_and_proposes_nothing_again() {
    let rig = Rig::new();
    let taste = |text: &str| {
        format!(
            "[[reply]]\ncalls = [{{ name = \"propose_taste_update\", arguments = {{ text = \"{text}\" }} }}]\n"
        )
    };
    lines(&rig, &format!("{OPEN}{}{}{}{END}", judged(""), taste("More light."), taste("Warm whites.")), None);
    let made = photo(&rig.library).proposals().unwrap();
    let mut person = photo(&rig.library).lock(engine::photo::Authority::Person, "decline").unwrap();
    person.decline_proposal(&made[0].id, "only here").unwrap();
    drop(person);
    let again = format!("{OPEN}{}{}{}{END}", judged(""), taste("More light!"), taste("Warm whites"));
    let lines = lines(&rig, &again.replace("branch_b_tone", "branch_b_tone_2"), None);
    let answers = &results(&lines, "read_context")[0]["data"]["answered_proposals"];
    assert_eq!(answers, &serde_json::json!(["declined: only here (taste: More light.)"]));
    let told = results(&lines, "propose_taste_update");
    assert!(told[0]["error"]["message"].as_str().unwrap().contains("declined: only here"), "{}", told[0]);
    assert_eq!(told[1]["data"]["proposal"], made[1].id.as_str(), "the one that waits");
    assert_eq!(photo(&rig.library).proposals().unwrap().len(), 2);
}

#[test]
fn h3_h14_a_region_may_say_mask_spec_and_one_out_of_range_is_named_and_refuses_all() {
    let rig = Rig::new();
    let circle = r#"{ shape = "circle", center = [0.3, 0.4], radius = 0.1 }"#;
    let other = r#"{ shape = "circle", center = [0.7, 0.4], radius = 0.1 }"#;
    let batch = |ev: &str| {
        format!(
            "[[reply]]\ncalls = [{{ name = \"apply_per_region\", arguments = {{ primitive_name = \"exposure\", regions = [\
             {{ mask_spec = {circle}, parameter_values = {{ ev = 0.3 }} }}, {{ mask = {other}, parameter_values = {{ ev = {ev} }} }}] }} }}]\n"
        )
    };
    let lines = lines(&rig, &format!("{OPEN}{}{}{}{END}", batch("99.0"), batch("-0.3"), judged("")), None);
    let told = results(&lines, "apply_per_region");
    assert_eq!(told[0]["error"]["details"]["field"], "regions[1]", "{}", told[0]);
    assert_eq!(told[1]["data"]["n_regions"], 2, "{}", told[1]);
    let log = photo(&rig.library).log("branch_b_tone", 10).unwrap();
    let batches = log.iter().filter(|entry| entry.op.to_string().starts_with("2 regions")).count();
    assert_eq!(batches, 1, "the first changed nothing");
    // What a model reads of it.
    let tools = crate::tools::specs();
    let spec = tools.iter().find(|spec| spec.name == "apply_per_region").unwrap();
    let region = spec.parameters.to_string();
    assert!(region.contains("\"mask\"") && region.contains("parameter_values"), "{region}");
}

#[test]
fn d6_a_brief_alone_is_read_once_a_branch_and_the_prompt_says_so() {
    let rig = Rig::new();
    let plan = |wanted: &crate::session::start::Request| {
        crate::session::start::plan(&rig.setup(END), wanted).unwrap()
    };
    let mut wanted = request("time=1h,iterations=30,branches=3", &[]);
    wanted.brief = Some("A quiet bar after hours.".into());
    let names = ["branch_b_depth_1", "branch_b_depth_2", "branch_b_depth_3"];
    let told = plan(&wanted);
    let made: Vec<&str> = told.start.branches.iter().map(|one| one.branch.as_str()).collect();
    assert_eq!(made, names);
    assert!(told.start.branches.iter().all(|one| one.vector.is_none()));
    assert!(told.system.contains("No vectors were given: find the strongest readings"), "{}", told.system);
    assert!(!told.system.contains("go deeper") && told.system.contains("A quiet bar after hours."));
    for name in names {
        assert!(
            told.message.contains(&format!("- {name}: open-ended: a reading of the brief\n")),
            "{}",
            told.message
        );
    }
    // The photo's own brief is as good, as long as nothing was done; then what was done comes first.
    wanted.brief = None;
    assert_eq!(plan(&wanted).start.branches.len(), 3);
    lines(&rig, &format!("{OPEN}{}{END}", judged("")), None);
    let deeper = plan(&wanted);
    assert_eq!(deeper.start.branches.len(), 1);
    assert!(
        deeper.message.contains("- branch_b_depth_1: vector `tone`: go deeper: lift the shadows"),
        "{}",
        deeper.message
    );
    assert!(deeper.system.contains("go deeper: lift the shadows") && !deeper.system.contains("No vectors"));
    wanted.brief = Some("Once more, from the beginning.".into());
    assert_eq!(plan(&wanted).start.branches.len(), 3);
}

#[test]
fn k1_a_session_waits_for_its_referee_as_for_its_provider() {
    use crate::referee::ModelReferee;
    use crate::session::{SessionError, opinion::Referee, start};
    let verdict = r#"
[[reply]]
calls = [{ name = "give_verdict", arguments = { difference = "B has open shadows.", better = "B", not_as_asked = "neither" } }]
"#;
    let fault = "fault = { class = \"transient\", status = 503, times = 7 }\n";
    let away = verdict.replacen("[[reply]]\n", &format!("[[reply]]\n{fault}"), 1);
    let begun = |rig: &Rig, referee: &str, patience: Patience| {
        let setup = rig.setup(&format!("{OPEN}{}{END}", judged("")));
        let script = std::sync::Arc::new(crate::provider::script::Script::parse("judge", referee).unwrap());
        let referee = Referee::Model(ModelReferee::new(script, &setup.prompts).unwrap());
        let plan = start::plan(&setup, &request(BUDGET, &["tone"])).unwrap().with_referee(referee).unwrap();
        let mut session = start::start(setup, plan).unwrap();
        session.patience = patience;
        session
    };
    let asked = |rig: &Rig| {
        let workspace = photo(&rig.library);
        let session = listing::read(&workspace, &rig::sessions(&rig.library)[0]).unwrap();
        let replies = session.lines.iter().filter_map(|line| match &line.event {
            Event::Referee(reply) => Some((**reply).clone()),
            _ => None,
        });
        (replies.collect::<Vec<_>>(), session.state.branches[0].judgment.clone().unwrap().flags)
    };
    let unrefereed = crate::transcript::Flag::Unrefereed;
    // It waits, within its patience, and then the opinion comes.
    let rig = Rig::new();
    let both = format!("{away}{verdict}");
    let patient = Patience { wait: Duration::from_secs(600), ..Patience::default() };
    assert_eq!(run(&mut begun(&rig, &both, patient)).unwrap().outcome, Outcome::Completed);
    let (replies, flags) = asked(&rig);
    assert_eq!(replies.iter().filter(|reply| reply.opinion.is_some()).count(), 2, "{replies:?}");
    let pauses: Vec<_> = replies.iter().filter_map(|reply| reply.pause_ms).collect();
    assert_eq!(pauses[3..], [8_000, 16_000, 32_000, 64_000]);
    assert!(!flags.contains(&unrefereed), "{flags:?}");
    // Without patience it goes on without an opinion, and says so.
    let rig = Rig::new();
    assert_eq!(run(&mut begun(&rig, &both, Patience::default())).unwrap().outcome, Outcome::Completed);
    let (replies, flags) = asked(&rig);
    assert!(
        replies.iter().all(|reply| reply.opinion.is_none()) && flags.contains(&unrefereed),
        "{replies:?}"
    );
    // In a batch it is left as it is, its question open.
    let rig = Rig::new();
    let left = run(&mut begun(&rig, &both, Patience { leaves: true, ..Patience::default() }));
    assert!(matches!(left, Err(SessionError::Unreachable { .. })), "{left:?}");
    let (replies, flags) = asked(&rig);
    assert!(replies.last().unwrap().pause_ms.is_some() && !flags.contains(&unrefereed));
}

#[test]
fn b9_the_baseline_is_called_by_the_tag_that_stands_there() {
    let rig = Rig::new();
    let tag = |name: &str| {
        let workspace = photo(&rig.library);
        let main = workspace.resolve("main").unwrap();
        let mut person = workspace.lock(engine::photo::Authority::Person, "tag").unwrap();
        person.create_tag(&name.parse().unwrap(), &main, "").unwrap();
    };
    let mut wanted = request(BUDGET, &["tone"]);
    wanted.from = "HEAD".into();
    let mut session = begin(rig.setup(&format!("{OPEN}{}{END}", judged(""))), &wanted).unwrap();
    run(&mut session).unwrap();
    let id = session.state.start.session.clone();
    drop(session);
    let called = || {
        let workspace = photo(&rig.library);
        ReviewModel::of(&workspace, &listing::read(&workspace, &id).unwrap()).unwrap().baseline_ref
    };
    assert_eq!(called(), "baseline", "the tag that every photo has");
    tag("v1b");
    assert_eq!(called(), "v1b");
}

#[test]
fn b23_an_abandoned_branch_is_no_better_than_the_baseline() {
    let rig = Rig::new();
    let praised = r#"
[[reply]]
calls = [{ name = "record_judgment", arguments = { branch = "branch_b_tone", judged_score = 5, judged_reasoning = "Flat.", abandoned = true } }]
"#;
    let lines = lines(&rig, &format!("{OPEN}{praised}{END}"), None);
    let told = &results(&lines, "record_judgment")[0]["data"]["judged_score"];
    assert!(told.as_str().unwrap().contains("no better than the baseline"), "{told}");
    let workspace = photo(&rig.library);
    let session = listing::read(&workspace, &rig::sessions(&rig.library)[0]).unwrap();
    assert_eq!(session.state.branches[0].judgment.as_ref().unwrap().judged_score, 2);
}

#[test]
fn c17_a_referees_reason_says_which_picture_is_which() {
    use crate::referee::Side;
    use crate::session::steering::RefereeOutcome;
    let of = |why: &str, side| {
        let opinion = crate::referee::Opinion {
            better: crate::referee::Preference::B,
            a_off_brief: false,
            b_off_brief: false,
            why: why.into(),
        };
        RefereeOutcome::of(opinion, side)
    };
    for (said, side, told) in [
        ("B has open shadows.", Side::B, "B has open shadows. (B is the new picture)"),
        ("A is flat.", Side::B, "A is flat. (B is the new picture)"),
        ("The sky is paler.", Side::A, "The sky is paler."),
    ] {
        let RefereeOutcome::Verdict { why, .. } = of(said, side) else { panic!("a pair has a verdict") };
        assert_eq!(why, told);
    }
}
