//! A session of the program is recorded with a server that speaks Messages, and played without it in another library.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::process::{Command, Output};

use darktable::dng;
use serde_json::{Value, json};

use crate::home::settle;
use testkit::chat_stub::{ChatStub, StubReply};

const KEY: &str = "sk-canary-recorded-77aa31";

fn run(root: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chemigram"));
    settle(&mut command, root);
    command.current_dir(root).args(arguments);
    // Only who asks the server needs its key.
    if arguments.contains(&"first") {
        command.env("FIRST_KEY", KEY);
    }
    command.output().unwrap()
}

fn told(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat()
}

#[test]
fn the_program_records_a_session_and_plays_it_in_another_library() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    std::fs::write(root.join("cup.dng"), dng::demo_raw().unwrap()).unwrap();
    let libraries = ["one", "two", "three"];
    for library in libraries {
        let output = run(root, &["--library", library, "ingest", "cup.dng", "--brief", "Quiet."]);
        assert!(output.status.success(), "{}", told(&output));
    }
    let lift = json!({"primitive_name": "shadows_lift", "parameter_values": {"amount": 1.0}});
    let judgment = json!({"branch": "branch_b_tone", "judged_score": 4, "judged_reasoning": "Open.",
                          "key_moves": ["shadows_lift"]});
    let stub = ChatStub::start(vec![
        StubReply::call("confirm_session", json!({"vectors": [{"name": "tone", "restated": "Open it."}]}))
            .thinking("a thought", json!(null)),
        StubReply::call("branch", json!({"name": "branch_b_tone"})),
        StubReply::calls(&[("apply_primitive", lift), ("render_preview", json!({}))]),
        StubReply::call("mode_b_status", json!({})),
        StubReply::call("read_session_transcript", json!({})),
        StubReply::call("record_judgment", judgment),
        StubReply::call("end_mode_b_session", json!({"session_summary": "Done."})),
    ]);
    let providers = root.join("config/chemigram/providers");
    std::fs::create_dir_all(&providers).unwrap();
    let profile = format!(
        "name = \"first\"\nsummary = \"\"\ndialect = \"messages\"\nbase_url = \"{}\"\nkey_env = \"FIRST_KEY\"\n\
         default_model = \"m\"\n[[model]]\nid = \"m\"\nvision = true\n\
         price = {{ input = 1.0, output = 4.0, cache_read = 0.1, cache_write = 1.25, as_of = \"2026-11-01\" }}\n",
        stub.url()
    );
    std::fs::write(providers.join("first.toml"), profile).unwrap();
    let session = |library: &str, direction: &str, more: &[&str]| {
        let vector = format!("tone={direction}");
        let mut arguments = vec!["--library", library, "--json", "run-mode-b", "cup", "--vector", &vector];
        arguments.extend(["--budget", "time=9m,iterations=9,branches=1,cost=3", "--preview-size", "256"]);
        arguments.extend(more);
        run(root, &arguments)
    };
    let planned = session("one", "brighter", &["--provider", "first", "--dry-run"]);
    let plan: Value = serde_json::from_slice(&planned.stdout).unwrap();
    let (with, without) = (&plan["estimate"]["cost_micro_usd"], &plan["estimate"]["uncached_micro_usd"]);
    assert!(with.as_u64().unwrap() > 1_000 && with.as_u64() < without.as_u64(), "{plan}");
    let result = |output: &Output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        serde_json::from_str::<Value>(text.lines().last().unwrap_or_default()).unwrap_or_default()
    };
    let recorded = session("one", "brighter", &["--provider", "first", "--record", "kept", "--yes"]);
    assert!(recorded.status.success(), "{}", told(&recorded));
    assert_eq!(stub.requests().len(), 7);
    drop(stub);

    // The clock has gone on, and the folder is found by where it is.
    let played = session("two", "brighter", &["--provider", "cassette:kept", "--yes"]);
    assert!(played.status.success(), "{}", told(&played));
    let [before, after] = [&recorded, &played].map(|output| result(output)["review"].clone());
    assert_eq!(before["branches"][0]["commit"], after["branches"][0]["commit"]);
    assert_eq!(before["money"], after["money"]);
    assert!(before["money"]["reply"]["cost_micro_usd"].as_u64().unwrap() > 0, "{before}");
    assert_eq!(after["provider"], "cassette");

    let missed = session("three", "darker", &["--provider", "cassette:kept/first-m", "--yes"]);
    assert!(!missed.status.success());
    let why = told(&missed);
    assert!(why.contains("has no recording of this request; the nearest is 0001-request.json"), "{why}");
    assert!(why.contains("brighter") && why.contains("darker"), "{why}");

    let refused = session("three", "brighter", &["--provider", "explorer", "--record", "none", "--yes"]);
    assert_eq!(refused.status.code(), Some(2), "{}", told(&refused));
    assert!(told(&refused).contains("asks no server") && !root.join("none").exists());
    for entry in std::fs::read_dir(root.join("kept/first-m")).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(KEY.len()).any(|part| part == KEY.as_bytes()));
    }
}

/// What a model does that opens the shadows of one photo on this branch.
fn opens(branch: &str, direction: &str) -> Vec<StubReply> {
    let lift = json!({"primitive_name": "shadows_lift", "parameter_values": {"amount": 1.0}});
    let judgment = json!({"branch": branch, "judged_score": 4, "judged_reasoning": "Open.",
                          "key_moves": ["shadows_lift"]});
    vec![
        StubReply::call("confirm_session", json!({"vectors": [{"name": direction, "restated": "Open it."}]})),
        StubReply::call("branch", json!({"name": branch})),
        StubReply::calls(&[("apply_primitive", lift), ("render_preview", json!({}))]),
        StubReply::call("record_judgment", judgment),
        StubReply::call("end_mode_b_session", json!({"session_summary": "Done."})),
    ]
}

/// A provider `first` behind a stub that needs no key.
pub fn keyless(root: &Path, stub: &ChatStub) {
    let providers = root.join("config/chemigram/providers");
    std::fs::create_dir_all(&providers).unwrap();
    let profile = format!(
        "name = \"first\"\nsummary = \"\"\ndialect = \"messages\"\nbase_url = \"{}\"\ndefault_model = \"m\"\n\
         [[model]]\nid = \"m\"\nvision = true\nprice = {{ input = 1.0, output = 4.0, as_of = \"2026-11-01\" }}\n",
        stub.url()
    );
    std::fs::write(providers.join("first.toml"), profile).unwrap();
}

fn names(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|one| one.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn each_session_of_a_batch_is_recorded_by_itself_and_can_be_played() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let raw = dng::demo_raw().unwrap();
    std::fs::write(root.join("cup.dng"), &raw).unwrap();
    std::fs::write(root.join("pot.dng"), [raw, vec![0]].concat()).unwrap();
    let ok = |arguments: &[&str]| {
        let output = run(root, arguments);
        assert!(output.status.success(), "{arguments:?}: {}", told(&output));
        serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default()
    };
    for library in ["one", "two"] {
        ok(&["--library", library, "ingest", "cup.dng", "pot.dng"]);
    }
    let photos = ["cup", "pot"];
    let plan = |name: &str, sessions: [String; 2]| {
        let text = format!(
            "[budget]\ncost = 9.0\n[defaults]\npreview_size = 256\nvectors = [\"tone=brighter\"]\n\
             budget = \"time=9m,iterations=9,branches=1,cost=3\"\n{}{}",
            sessions[0], sessions[1]
        );
        std::fs::write(root.join(name), text).unwrap();
    };
    let session = |photo: &str, model: &str| format!("[[session]]\nphoto = \"{photo}\"\n{model}\n");
    plan("first.toml", photos.map(|photo| session(photo, "provider = \"first\"\nmodel = \"m\"")));
    let replies = [opens("branch_b_tone", "tone"), opens("branch_b_tone", "tone")].concat();
    let stub = ChatStub::start(replies).allow_compaction();
    keyless(root, &stub);
    ok(&["--library", "one", "overnight", "first.toml", "--record", "kept"]);
    assert_eq!(stub.requests().len(), 10);
    drop(stub);

    let sessions = photos.map(|photo| {
        let list = ok(&["--library", "one", "--json", "mode-b", "list", photo]);
        list[0]["session"].as_str().unwrap().to_owned()
    });
    let mut expected = sessions.to_vec();
    expected.sort();
    assert_eq!(names(&root.join("kept")), expected, "a folder for each session");
    for session in &sessions {
        let files = names(&root.join("kept").join(session).join("first-m"));
        let of = |end: &str| files.iter().filter(|name| name.ends_with(end)).count();
        assert_eq!((of("-request.json"), of("-reply.txt")), (5, 5), "{files:?}");
    }

    let played = |at: usize| format!("provider = \"cassette\"\nmodel = \"kept/{}\"", sessions[at]);
    plan("played.toml", [session("cup", &played(0)), session("pot", &played(1))]);
    ok(&["--library", "two", "overnight", "played.toml"]);
    for photo in photos {
        let [before, after] = ["one", "two"]
            .map(|library| ok(&["--library", library, "--json", "log", photo, "branch_b_tone"]));
        assert!(before[0]["words"].as_str().unwrap().contains("shadows_lift"), "{before}");
        assert_eq!(before[0]["commit"], after[0]["commit"], "{photo}: the same edits");
    }

    // Where a session runs elsewhere, nobody records it.
    let refused =
        run(root, &["overnight", "first.toml", "--record", "kept", "--store", "nats://127.0.0.1:1/x"]);
    assert_eq!(refused.status.code(), Some(2), "{}", told(&refused));
}

#[test]
fn each_session_of_an_evaluation_is_recorded_by_itself_and_can_be_played() {
    let home = crate::eval::Home::new(2);
    let replies = [opens("branch_b_light", "light"), opens("branch_b_light", "light")].concat();
    let stub = ChatStub::start(replies).allow_compaction();
    keyless(&home.path(""), &stub);
    let (status, recorded) = home.run(&["--provider", "first", "--cell-cost", "3", "--record", "kept"]);
    assert_eq!((status, stub.requests().len()), (0, 10));
    drop(stub);
    let kept = names(&home.path("kept"));
    assert_eq!(kept.len(), 2, "{kept:?}");

    let of = |run: &chemigram::eval::manifest::Manifest| run.mean(&run.arms()[0], &run.golden.primary);
    let mut found = Vec::new();
    for (scenario, session) in ["001*", "002*"].into_iter().zip(kept) {
        let contestant = format!("cassette:kept/{session}");
        let (status, played) =
            home.run(&["--provider", &contestant, "--cell-cost", "3", "--scenarios", scenario]);
        assert_eq!(status, 0);
        found.push(of(&played).unwrap().0);
    }
    let (mean, _) = of(&recorded).unwrap();
    assert!((found.iter().sum::<f64>() / 2.0 - mean).abs() < 1e-9, "{found:?} {mean}");
    assert!(mean > 0.1, "{mean}");
}
