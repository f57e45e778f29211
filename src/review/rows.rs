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
fn g13_an_earlier_session_of_the_photo_can_be_read_summarized() {
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
