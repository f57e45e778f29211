//! A whole session, scripted, on a real raw through real darktable.
#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

use crate::support;
use std::path::PathBuf;
use std::sync::Arc;

use crate::support::{Studio, confirm, reply, request, results};
use base::error::{Coded as _, ErrorCode};
use chemigram::budget::Ledger;
use chemigram::provider::script::Script;
use chemigram::session::SessionError;
use chemigram::session::driver::{Host, Session, Unwatched};
use chemigram::session::start::{self, Resume};
use chemigram::session::state::State;
use chemigram::transcript::{Event, Flag, Line, Outcome, SessionEnd};
use engine::photo::Authority;

#[test]
fn a_branch_is_made_edited_looked_at_judged_and_main_stays() {
    let studio = Studio::new();
    let main = studio.tip("main").unwrap();
    let script = [
        reply(&[("read_context", "{}"), ("list_vocabulary", r#"{"axis": "shadows"}"#)]),
        confirm(&["tone"]),
        reply(&[("branch", r#"{"name": "branch_b_tone"}"#)]),
        reply(&[
            ("apply_primitive", r#"{"primitive_name": "shadows_lift", "parameter_values": {"amount": 1.0}}"#),
            ("render_preview", "{}"),
        ]),
        reply(&[("compare", "{}"), ("get_state", "{}"), ("log", "{}"), ("diff", "{}"), ("image_stats", "{}")]),
        reply(&[(
            "record_judgment",
            r#"{"branch": "branch_b_tone", "judged_score": 4, "judged_reasoning": "Shadows open.", "key_moves": ["shadows_lift amount=1.0"]}"#,
        )]),
        reply(&[("propose_notes_update", r#"{"text": "The shadows carry a lot."}"#)]),
        reply(&[("end_mode_b_session", r#"{"session_summary": "One branch, shadows opened."}"#)]),
    ]
    .concat();
    let (end, lines) =
        studio.run(&script, &request("time=5m,iterations=30,branches=1", &[("tone", "lift the shadows")]));
    for line in &lines {
        if let Event::ToolResult { result, code: Some(code), .. } = &line.event {
            panic!("{} failed with {code:?}: {}", result.name, result.text);
        }
    }
    assert_eq!((end.outcome, end.cap), (Outcome::Completed, None));
    assert_eq!(end.summary, "One branch, shadows opened.");
    assert_eq!(studio.tip("main").unwrap(), main, "main was moved");
    assert_ne!(studio.tip("branch_b_tone").unwrap(), main);
    let judgment = lines.iter().find_map(|l| match &l.event {
        Event::Judgment(j) => Some(j),
        _ => None,
    });
    let judgment = judgment.expect("a judgment");
    let measured = judgment.measured.as_ref().expect("it is measured");
    assert_ne!(measured["pixel_hash"], measured["baseline_pixel_hash"]);
    assert_eq!(measured["vector"]["direction"], "met", "{measured:#}");
    assert!(!judgment.flags.contains(&Flag::IdenticalToBaseline));
    assert!(studio.workspace.folder().join(measured["preview"].as_str().unwrap()).is_file());
    assert_eq!(studio.workspace.pending_proposals().unwrap().len(), 1);
    assert!(
        !lines.iter().any(|l| serde_json::to_string(l).unwrap().contains("/9j/")),
        "a picture is in the transcript"
    );
}

#[test]
fn a_raw_that_is_taken_in_twice_has_one_baseline() {
    let [first, second] = [Studio::new(), Studio::new()];
    assert_ne!(first.workspace.folder(), second.workspace.folder());
    assert_eq!(first.workspace.photo().baseline, second.workspace.photo().baseline);
    assert_eq!(first.tip("main"), second.tip("main"));
}

#[test]
fn an_abandoned_branch_shows_the_baseline_and_keeps_its_attempts() {
    let studio = Studio::new();
    let script = [
        confirm(&["tone"]),
        reply(&[("branch", r#"{"name": "branch_b_tone"}"#)]),
        reply(&[("apply_primitive", r#"{"primitive_name": "shadows_lift", "parameter_values": {"amount": 1.5}}"#)]),
        reply(&[(
            "record_judgment",
            r#"{"branch": "branch_b_tone", "judged_score": 2, "judged_reasoning": "Flat.", "abandoned": true}"#,
        )]),
        reply(&[("end_mode_b_session", r#"{"session_summary": "Nothing beat the baseline."}"#)]),
    ]
    .concat();
    let (_, lines) =
        studio.run(&script, &request("time=5m,iterations=30,branches=1", &[("tone", "lift the shadows")]));
    let tip: base::ids::Hash = studio.tip("branch_b_tone").unwrap().parse().unwrap();
    let workspace = &studio.workspace;
    assert_eq!(workspace.state_of(&tip).unwrap(), workspace.state_of(workspace.baseline()).unwrap());
    assert_eq!(workspace.log(tip.as_str(), 10).unwrap().len(), 3, "baseline, attempt, abandonment");
    let judgment = lines.iter().find_map(|l| match &l.event {
        Event::Judgment(j) => Some(j.clone()),
        _ => None,
    });
    let flags = judgment.unwrap().flags;
    assert_eq!(flags, [Flag::Weak, Flag::IdenticalToBaseline, Flag::Abandoned]);
}

#[test]
fn nothing_is_edited_before_the_plan_is_confirmed_and_every_vector_is_restated() {
    let studio = Studio::new();
    let script = [
        reply(&[("branch", r#"{"name": "branch_b_tone"}"#)]),
        reply(&[("record_judgment", "{}")]),
        reply(&[("confirm_session", r#"{"vectors": []}"#)]),
        reply(&[("confirm_session", r#"{"vectors": [{"name": "toon", "restated": "x"}]}"#)]),
        confirm(&["branch_b_tone"]), // the branch is taken for its vector
        reply(&[("confirm_session", r#"{"vectors": []}"#)]),
        reply(&[("end_mode_b_session", r#"{"session_summary": "Done."}"#)]),
    ]
    .concat();
    let (end, lines) =
        studio.run(&script, &request("time=5m,iterations=30,branches=1", &[("tone", "lift the shadows")]));
    assert_eq!(end.outcome, Outcome::Completed);
    assert_eq!(results(&lines, "branch")[0].0, Some(ErrorCode::SessionNotConfirmed));
    assert_eq!(results(&lines, "record_judgment")[0].0, Some(ErrorCode::SessionNotConfirmed));
    let confirmations: Vec<_> = results(&lines, "confirm_session").iter().map(|r| r.0).collect();
    assert_eq!(
        confirmations,
        [Some(ErrorCode::InvalidInput), Some(ErrorCode::InvalidInput), None, Some(ErrorCode::StateError)]
    );
    assert!(studio.tip("branch_b_tone").is_none());
}

#[test]
fn c5_e5_a_closer_look_at_parts_differences_and_masks_has_its_numbers() {
    let studio = Studio::new();
    let look = |arguments: &str| reply(&[("render_preview", arguments)]);
    let half = r#"{"shape": "rectangle", "from": [0, 0], "to": [0.5, 1], "feather": 0}"#;
    let apply =
        r#"{"primitive_name": "exposure", "parameter_values": {"ev": -1}, "mask": HALF, "show_mask": true}"#;
    let script = [
        confirm(&["tone"]),
        reply(&[("branch", r#"{"name": "branch_b_tone"}"#)]),
        look(r#"{"beside": "baseline", "difference": true}"#),
        reply(&[("apply_primitive", &apply.replace("HALF", half))]),
        look(r#"{"difference": true, "grid": true}"#),
        look(r#"{"beside": "baseline"}"#),
        look(r#"{"crop": [0.1, 0.1, 0.2, 0.2], "size": 1024, "grid": true}"#),
        look(r#"{"crop": [0.2, 0.1, 0.1, 0.2]}"#),
        look(
            r#"{"show_mask": "exposure", "inside": [[0.25, 0.5], [0.75, 0.5], {"named": "left_half"}, "exposure#1"]}"#,
        ),
        look(r#"{"show_mask": "exposure", "beside": "baseline"}"#),
        reply(&[("end_mode_b_session", r#"{"session_summary": "Looked closely."}"#)]),
    ]
    .concat();
    let (_, lines) =
        studio.run(&script, &request("time=5m,iterations=30,branches=1", &[("tone", "darken the left")]));
    let data = |text: &str| {
        let answer: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        answer["data"].clone()
    };
    let applied = data(results(&lines, "apply_primitive")[0].1);
    let near = |value: &serde_json::Value, wanted: f64| (value.as_f64().unwrap() - wanted).abs() < 2.0;
    assert!(near(&applied["shown"]["covered_percent"], 50.0), "{applied}");
    assert!(near(&applied["shown"]["soft_percent"], 0.0), "{applied}");
    let looks = results(&lines, "render_preview");
    assert_eq!(data(looks[0].1)["delta_e"]["max"], 0.0);
    let changed = data(looks[1].1);
    assert!(changed["delta_e"]["mean"].as_f64().unwrap() > 2.0, "{changed}");
    assert_eq!(data(looks[2].1)["beside"], "baseline");
    let size = data(looks[3].1)["size"].as_str().unwrap().to_owned();
    assert!(size.starts_with("1024 asked, the photo has "), "{size}");
    assert_eq!(looks[4].0, Some(ErrorCode::InvalidInput));
    let inside = data(looks[5].1)["inside"].clone();
    assert!(near(&inside[0]["effect_percent"], 100.0) && near(&inside[1]["effect_percent"], 0.0), "{inside}");
    assert!(inside[2]["share_percent"].as_f64().unwrap() > 70.0, "{inside}");
    assert!(near(&inside[3]["share_percent"], 100.0), "{inside}");
    assert_eq!(looks[6].0, Some(ErrorCode::InvalidInput));
}

#[test]
fn a_mask_is_shown_before_it_is_used_and_its_renders_are_counted() {
    let studio = Studio::new();
    let show = |mask: &str| reply(&[("render_preview", &format!(r#"{{"show_mask": {mask}}}"#))]);
    let script = [
        confirm(&["tone"]),
        reply(&[("branch", r#"{"name": "branch_b_tone"}"#), ("list_vocabulary", "{}")]),
        show(r#"{"shape": "gradient", "anchor": [0.5, 0.5], "width": 0.1}"#),
        show(r#"{"named": "left_half", "opacity": 0.5}"#),
        show(r#""shadows_lift""#),
        show(r#"{"named": "lefthalf"}"#),
        reply(&[("apply_primitive", r#"{"primitive_name": "shadows_lift", "mask": {"named": "top_half"}}"#)]),
        show(r#""shadows_lift""#),
        reply(&[("end_mode_b_session", r#"{"session_summary": "Looked at masks."}"#)]),
    ]
    .concat();
    let (_, lines) =
        studio.run(&script, &request("time=5m,iterations=30,branches=1", &[("tone", "lift the shadows")]));
    let listed = results(&lines, "list_vocabulary")[0].1;
    assert!(listed.contains("named_masks") && listed.contains("skin_tones"));
    let shown = results(&lines, "render_preview");
    let covered: Vec<Option<f64>> = shown
        .iter()
        .map(|(_, text)| {
            let answer: serde_json::Value = serde_json::from_str(text.lines().next()?).ok()?;
            answer["data"]["covered_percent"].as_f64()
        })
        .collect();
    let [Some(top), Some(left), None, None, Some(lifted)] = covered[..] else { panic!("{shown:#?}") };
    assert!(
        (top - 50.0).abs() < 2.0 && (left - 25.0).abs() < 2.0 && (lifted - 50.0).abs() < 2.0,
        "{covered:?}"
    );
    assert_eq!((shown[2].0, shown[3].0), (Some(ErrorCode::NotFound), Some(ErrorCode::MaskingError)));
    assert!(shown[3].1.contains("did you mean `left_half`?"), "{}", shown[3].1);
    assert!(shown[4].1.contains("\"top_half\""), "{}", shown[4].1);
    // The picture, the same without the mask's light for every mask on a state, and one with it: all are counted.
    let looks = |l: &&chemigram::transcript::Line| !matches!(&l.event, Event::ToolCall(intent) if intent.call.name == "render_preview");
    let rendered: Vec<_> = lines
        .iter()
        .skip_while(looks)
        .filter_map(|l| match &l.event {
            Event::Render { state, .. } => Some(state),
            _ => None,
        })
        .collect();
    let [picture, without, with, again, same, other, ..] = rendered.as_slice() else {
        panic!("{rendered:?}")
    };
    assert!((picture, without) == (again, same) && with != other && without != with, "{rendered:?}");
}

/// Puts another file in the raw's place as soon as the branch is made.
struct Exchanger(PathBuf);

impl Host for Exchanger {
    fn line(&self, line: &Line, _: &State, _: &Ledger) {
        if matches!(&line.event, Event::ToolResult { result, .. } if result.name == "branch") {
            let mut bytes = std::fs::read(&self.0).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(&self.0, bytes).unwrap();
        }
    }
}

fn ran(session: &mut Session, host: &dyn Host) -> Result<SessionEnd, SessionError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(session.run(host))
}

#[test]
fn a_resume_takes_nothing_back_that_a_person_did_on_the_branch_meanwhile() {
    let studio = Studio::new();
    let script = [
        confirm(&["tone"]),
        reply(&[("branch", r#"{"name": "branch_b_tone"}"#)]),
        reply(&[(
            "apply_primitive",
            r#"{"primitive_name": "shadows_lift", "parameter_values": {"amount": 0.7}}"#,
        )]),
        reply(&[(
            "record_judgment",
            r#"{"branch": "branch_b_tone", "judged_score": 4, "judged_reasoning": "Open.", "key_moves": ["shadows_lift amount=0.7"]}"#,
        )]),
        reply(&[("end_mode_b_session", r#"{"session_summary": "Opened."}"#)]),
    ]
    .concat();
    let asked = request("time=5m,iterations=30,branches=1", &[("tone", "lift the shadows")]);
    let (_, lines) = studio.run(&script, &asked);
    let made = studio.tip("branch_b_tone");
    // As if it had been killed when the edit was made and its result not yet written.
    let Event::SessionStart(start) = &lines[0].event else { panic!() };
    let id = start.session.clone();
    let file = studio.workspace.session_folder(&id).join("transcript.jsonl");
    let call =
        |line: &Line| matches!(&line.event, Event::ToolCall(intent) if intent.call.name == "apply_primitive");
    let cut = lines.iter().position(call).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let text: String = text.split_inclusive('\n').take(cut + 1).collect();
    std::fs::write(&file, &text).unwrap();

    let branch = "branch_b_tone".parse().unwrap();
    let person = studio.workspace.lock(Authority::Person, "a person").unwrap().reset(&branch).unwrap();
    let provider = Arc::new(Script::parse("test script", &script).unwrap());
    let resume = || start::resume(studio.setup(provider.clone()), &id, Resume::default()).unwrap();
    for _ in 0..2 {
        let error = ran(&mut resume(), &Unwatched).unwrap_err();
        assert_eq!(error.code(), ErrorCode::VersioningError);
        assert!(error.to_string().contains("was moved since the session was interrupted"), "{error}");
        assert!(error.remedy().unwrap().contains("chemigram branch coffee NAME branch_b_tone"));
        assert_eq!(studio.tip("branch_b_tone").unwrap(), person.commit.to_string());
    }
    // With the branch where the session had it, it goes on as if nothing had been.
    let mut writer = studio.workspace.lock(Authority::Person, "a person").unwrap();
    writer.delete_branch(&branch).unwrap();
    writer.create_branch(&branch, &start.baseline).unwrap();
    drop(writer);
    assert_eq!(support::run(&mut resume()).outcome, Outcome::Completed);
    assert_eq!(studio.tip("branch_b_tone"), made);
    assert!(chemigram::session::fsck::fsck(&studio.workspace).unwrap().is_whole());
}

#[test]
fn a_raw_exchanged_during_a_session_ends_it_and_it_goes_on_when_the_right_one_is_back() {
    let script = [
        confirm(&["tone"]),
        reply(&[("branch", r#"{"name": "branch_b_tone"}"#)]),
        reply(&[("apply_primitive", r#"{"primitive_name": "shadows_lift", "parameter_values": {"amount": 0.7}}"#)]),
        reply(&[("render_preview", "{}")]),
        reply(&[(
            "record_judgment",
            r#"{"branch": "branch_b_tone", "judged_score": 4, "judged_reasoning": "Open.", "key_moves": ["shadows_lift amount=0.7"]}"#,
        )]),
        reply(&[("end_mode_b_session", r#"{"session_summary": "Opened."}"#)]),
    ]
    .concat();
    let asked = request("time=5m,iterations=30,branches=1", &[("tone", "lift the shadows")]);
    let undisturbed = Studio::new();
    undisturbed.run(&script, &asked);

    let studio = Studio::new();
    let raw = studio.dir.path().join("coffee.dng");
    let right = std::fs::read(&raw).unwrap();
    let mut session = studio.scripted(&script, &asked);
    let id = session.state.start.session.clone();
    let ran = |session: &mut Session, host: &dyn Host| {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(session.run(host))
    };
    let error = ran(&mut session, &Exchanger(raw.clone())).unwrap_err();
    drop(session);
    assert_eq!(error.code(), ErrorCode::VersioningError);
    let found = base::ids::Hash::of(std::fs::read(&raw).unwrap());
    for hash in [found, base::ids::Hash::of(&right)] {
        assert!(error.to_string().contains(hash.as_str()), "{error}");
    }
    assert!(error.remedy().unwrap().contains("put the original back"));
    let lines = studio.lines(&id);
    assert!(
        results(&lines, "render_preview").is_empty(),
        "the model saw a picture, or an error in its place"
    );

    let provider = Arc::new(Script::parse("test script", &script).unwrap());
    let resume = || start::resume(studio.setup(provider.clone()), &id, Resume::default());
    assert_eq!(resume().err().unwrap().code(), ErrorCode::VersioningError, "the wrong one is still there");
    std::fs::write(&raw, right).unwrap();
    let end = support::run(&mut resume().unwrap());
    assert_eq!(end.outcome, Outcome::Completed);
    assert_eq!(studio.tip("branch_b_tone"), undisturbed.tip("branch_b_tone"));
}
