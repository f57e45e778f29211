//! Scores held against a person's picks, as `eval show` and `eval report` tell it: real sessions of one model, those of
//! an evaluation and those of the library.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)]

use std::process::{Command, Output, Stdio};

use chemigram::session::listing;
use darktable::dng;
use engine::photo::Library;
use serde_json::{Value, json};

use crate::eval::Home;
use crate::home::settle;
use testkit::chat_stub::{ChatStub, StubReply};

/// What the command prints, which must succeed.
fn ok(home: &Home, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chemigram"));
    command.args(arguments).args(["--library", "lib"]).stdin(Stdio::null()).current_dir(home.path(""));
    settle(&mut command, &home.path(""));
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

/// A branch with one edit and this score.
fn scored(branch: &str, primitive: &str, values: Value, score: u8) -> StubReply {
    let edit = json!({"primitive_name": primitive, "parameter_values": values});
    let judgment = json!({"branch": branch, "judged_score": score, "judged_reasoning": "As asked."});
    StubReply::calls(&[
        ("branch", json!({"name": branch})),
        ("apply_primitive", edit),
        ("record_judgment", judgment),
    ])
}

#[test]
fn eval_show_and_eval_report_say_how_often_the_scores_agree_with_the_picks() {
    let home = Home::new(1);
    let confirm = |names: &[&str]| {
        let vectors: Vec<Value> =
            names.iter().map(|name| json!({"name": name, "restated": "As asked."})).collect();
        StubReply::call("confirm_session", json!({ "vectors": vectors }))
    };
    let end = || StubReply::call("end_mode_b_session", json!({"session_summary": "Done."}));
    // The evaluation's session, and two of the library: the person likes what was scored higher, and what was not.
    let mut replies =
        vec![confirm(&["light"]), scored("branch_b_light", "shadows_lift", json!({"amount": 0.7}), 4), end()];
    for number in ["", "_2"] {
        let [warm, light] = ["warm", "light"].map(|name| format!("branch_b_{name}{number}"));
        replies.extend([
            confirm(&["warm", "light"]),
            scored(&warm, "warmth", json!({"shift": 20}), 3),
            scored(&light, "exposure", json!({"ev": 0.4}), 4),
            end(),
        ]);
    }
    let count = replies.len();
    let stub = ChatStub::start(replies).allow_compaction();
    crate::recordings::keyless(&home.path(""), &stub);
    let (status, run) = home.run(&["--provider", "first", "--cell-cost", "3"]);
    assert_eq!(status, 0);

    std::fs::write(home.path("cup.dng"), dng::demo_raw().unwrap()).unwrap();
    ok(&home, &["ingest", "cup.dng"]);
    let shown =
        || -> Value { serde_json::from_str(&ok(&home, &["eval", "show", "last", "--json"])).unwrap() };
    assert_eq!(shown().get("agreement"), None, "nothing was picked");
    for _ in 0..2 {
        let words = ["run-mode-b", "cup", "--vector", "warm=warmer", "--vector", "light=brighter", "--yes"];
        let limits = ["--budget", "time=9m,iterations=20,branches=2,cost=3", "--preview-size", "256"];
        ok(&home, &[&words[..], &limits, &["--provider", "first"]].concat());
    }
    assert_eq!(stub.requests().len(), count);

    let workspace = Library::new(home.path("lib")).open(&"cup".parse().unwrap()).unwrap();
    let picked = |(session, at): (&base::ids::SessionId, usize)| {
        let read = listing::read(&workspace, session).unwrap();
        let judged = read.state.branches[at].judgment.as_ref().unwrap();
        json!({"photo": "cup", "session": session, "baseline": read.state.start.baseline, "picks": [
            {"branch": judged.branch, "commit": judged.hash, "verdict": "pick", "stars": null, "note": "", "blind": true},
        ]})
    };
    let sessions = listing::of_photo(&workspace).unwrap();
    let photos: Vec<Value> = sessions.iter().zip([0, 1]).map(picked).collect();
    let picks = json!({"format": 1, "kind": "chemigram picks", "photos": photos});
    std::fs::write(home.path("picks.json"), picks.to_string()).unwrap();
    ok(&home, &["picks", "import", "picks.json"]);

    let told = shown();
    let agreement = told["agreement"].as_array().unwrap_or_else(|| panic!("{told:#}"));
    assert_eq!(agreement.len(), 1, "{told:#}");
    assert_eq!(agreement[0]["arm"]["provider"], "first");
    let numbers = ["pairs", "same", "other"].map(|field| agreement[0][field].as_u64().unwrap());
    assert_eq!(numbers, [2, 1, 1]);
    let sentence = "Of 2 pairs of branches in which you prefer one, the scores prefer the same in 1, the other in 1, neither in 0.";
    let text = ok(&home, &["eval", "show", "last"]);
    assert!(text.contains(sentence), "{text}");
    ok(&home, &["eval", "report", &run.run, "--output", "report.html"]);
    let page = std::fs::read_to_string(home.path("report.html")).unwrap();
    assert!(page.contains(sentence), "the report has it too");
}
