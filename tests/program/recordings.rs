//! A session of the program is recorded with a server that speaks Messages, and played without it in another library.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::path::Path;
use std::process::{Command, Output};

use darktable::dng;
use serde_json::{Value, json};

use crate::chat_stub::{ChatStub, StubReply};
use crate::home::settle;

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
