//! Two models in one session, each with a key of its own: what each of them is shown, and where the keys are found.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

use std::path::Path;
use std::process::Command;

use darktable::dng;
use serde_json::json;

use crate::home::settle;
use testkit::chat_stub::{ChatStub, StubReply};

const KEYS: [(&str, &str); 2] =
    [("FIRST_KEY", "sk-canary-first-1f2e3d4c"), ("SECOND_KEY", "sk-canary-second-5b6a7988")];

fn command(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chemigram"));
    settle(&mut command, root);
    command.current_dir(root).envs(KEYS).args(arguments);
    command
}

/// What a command prints that must succeed.
fn ok(root: &Path, arguments: &[&str]) -> String {
    let output = command(root, arguments).output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{arguments:?}: {out}{err}");
    out + &err
}

/// The files under a folder that hold one of the keys.
fn holders(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            holders(&path, found);
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        if KEYS.iter().any(|(_, key)| bytes.windows(key.len()).any(|part| part == key.as_bytes())) {
            found.push(path.display().to_string());
        }
    }
}

#[test]
fn another_model_goes_on_with_its_own_key_and_the_session_stays_with_it() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    std::fs::write(root.join("cup.dng"), dng::demo_raw().unwrap()).unwrap();
    ok(root, &["ingest", "cup.dng"]);
    let [_, (_, second_key)] = KEYS;
    let confirm = json!({"vectors": [{"name": "tone", "restated": "Open the shadows."}]});
    // It has no credit, and says the key that it was given.
    let broke = format!(
        r#"{{"type":"error","error":{{"type":"billing_error","message":"no credit for {}"}}}}"#,
        KEYS[0].1
    );
    let first = ChatStub::start(vec![
        StubReply::call("confirm_session", confirm).thinking("a thought", json!(null)),
        StubReply::call("branch", json!({"name": "branch_b_tone"})),
        StubReply::status(402, &[], &broke),
    ]);
    let judgment = json!({"branch": "branch_b_tone", "judged_score": 4, "judged_reasoning": "Open.",
                          "key_moves": ["shadows_lift"]});
    let end = || StubReply::call("end_mode_b_session", json!({"session_summary": "Done."}));
    let said = StubReply::text(&format!("Your key is {second_key}."));
    let lift = json!({"primitive_name": "shadows_lift", "parameter_values": {"amount": 1.0}});
    let second = ChatStub::start(vec![
        said,
        StubReply::call("apply_primitive", lift),
        StubReply::call("record_judgment", judgment),
        end(),
        end(),
    ]);
    let providers = root.join("config/chemigram/providers");
    std::fs::create_dir_all(&providers).unwrap();
    for (name, dialect, key, stub) in
        [("first", "messages", KEYS[0].0, &first), ("second", "responses", KEYS[1].0, &second)]
    {
        let text = format!(
            "name = \"{name}\"\nsummary = \"\"\ndialect = \"{dialect}\"\nbase_url = \"{}\"\nkey_env = \"{key}\"\n\
             default_model = \"m\"\n[[model]]\nid = \"m\"\nvision = true\n\
             price = {{ input = 1.0, output = 4.0, as_of = \"2026-11-01\" }}\n",
            stub.url()
        );
        std::fs::write(providers.join(format!("{name}.toml")), text).unwrap();
    }
    let run = [
        "-vvv",
        "--log-file",
        "log",
        "run-mode-b",
        "cup",
        "--yes",
        "--preview-size",
        "256",
        "--vector",
        "tone=brighter",
        "--budget",
        "time=5m,iterations=9,branches=1,cost=3",
        "--provider",
        "first",
        "--fallback",
        "second:m",
    ];
    let told = ok(root, &run);
    assert!(told.contains("second m goes on"), "{told}");
    let review = ok(root, &["mode-b", "show", "last"]);
    assert!(review.contains("Went on with") && review.contains("no credit"), "{review}");
    assert_eq!((first.requests().len(), second.requests().len()), (3, 4));

    // Resumed, it stays with the one that had it last, and needs no other.
    let resume = ["run-mode-b", "--resume", "last", "--raise", "iterations=5", "--yes"];
    ok(root, &resume);
    assert_eq!((first.requests().len(), second.requests().len()), (3, 5));
    let thought = second.requests().iter().any(|request| request.to_string().contains("a thought"));
    assert!(!thought, "another model's");

    for (stub, own, other) in [(&first, KEYS[0].1, KEYS[1].1), (&second, KEYS[1].1, KEYS[0].1)] {
        assert!(stub.heads().iter().all(|head| head.contains(own)), "the canary was really in use");
        for (head, body) in stub.heads().iter().zip(stub.bodies()) {
            let all = format!("{head}{}", String::from_utf8_lossy(&body));
            assert!(!all.contains(other), "{all}");
        }
    }
    let mut found = Vec::new();
    holders(root, &mut found);
    assert!(found.is_empty(), "keys are in {found:?}");
    assert!(!(told + &review).contains("sk-canary"));
}
