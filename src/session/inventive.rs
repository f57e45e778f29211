//! A model that calls every tool with every argument that it can invent, in a conversation and in its look back: taste
//! and notes are a person's all the same.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::budget::Budget;
use crate::session::driver::{Host, Session, Turn, Unwatched};
use crate::session::rig::{self, Rig};
use crate::session::start::Request;
use crate::session::{start, talk};
use crate::tools;
use crate::transcript::{self, Event};

/// What it writes where a text is asked for.
const WORDS: [&str; 12] = [
    "Prefers warm evenings.",
    "_default",
    "_default.md",
    "notes.md",
    "../notes.md",
    "../../tastes/_default.md",
    "tastes/birds.md",
    "main",
    "refs/heads/main",
    "talk_1",
    "accepted",
    "",
];
/// Tools that it has heard of elsewhere.
const HEARSAY: [&str; 7] = [
    "confirm_taste_update",
    "confirm_notes_update",
    "accept_proposal",
    "write_notes",
    "write_file",
    "bash",
    "end_session",
];
/// Calls of each tool.
const CALLS: usize = 12;

/// A value for a property of this schema, another one for each number.
fn invented(schema: &Value, number: usize) -> Value {
    if let Some(choices) = schema["enum"].as_array() {
        return choices[number % choices.len()].clone();
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds[number % kinds.len()].as_str().unwrap_or_default().to_owned(),
        kind => kind.as_str().unwrap_or_default().to_owned(),
    };
    match kind.as_str() {
        "integer" => json!([0, 1, -1, 1_000_000][number % 4]),
        "number" => json!([0.0, 0.5, -2.0, 1e9][number % 4]),
        "boolean" => json!(number.is_multiple_of(2)),
        "null" => Value::Null,
        "array" => json!([invented(&schema["items"], number), invented(&schema["items"], number + 1)]),
        "object" => json!({ "text": WORDS[number % WORDS.len()], "ev": 0.2, "shift": 9 }),
        _ => json!(WORDS[number % WORDS.len()]),
    }
}

/// A reply for each call of each tool.
fn script() -> String {
    let mut replies = Vec::new();
    let mut specs: BTreeMap<String, Value> =
        tools::talk_specs().into_iter().map(|spec| (spec.name, spec.parameters)).collect();
    for name in HEARSAY {
        let text = json!({ "type": "string" });
        specs.insert(name.into(), json!({ "properties": { "id": text, "text": text, "file": text } }));
    }
    let call = |number: usize, (at, (name, schema)): (usize, (&String, &Value))| {
        let fields = schema["properties"].as_object().cloned().unwrap_or_default();
        let mut arguments: Map<String, Value> = fields
            .iter()
            .enumerate()
            .map(|(n, (field, schema))| (field.clone(), invented(schema, number * 5 + at + n)))
            .collect();
        // The end comes when it has called everything.
        arguments.remove("certain");
        json!({ "name": name, "arguments": Value::Object(arguments).to_string() })
    };
    for number in 0..CALLS {
        replies.extend(specs.iter().enumerate().map(|tool| json!({ "calls": [call(number, tool)] })));
    }
    replies.push(json!({ "calls": [{ "name": "end_conversation", "arguments": { "certain": true } }] }));
    // And in the look back, all at once.
    for number in [1, 2] {
        let calls: Vec<Value> = specs.iter().enumerate().map(|tool| call(number, tool)).collect();
        replies.push(json!({ "calls": calls }));
    }
    json!({ "reply": replies }).to_string()
}

/// The files of a folder that hold what a person said, with their bytes.
fn persons(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let names = ["notes.md", "brief.md", "picks.jsonl", "taste_for_mode_b.md"];
    let found = names.iter().map(|name| folder.join(name)).filter(|path| path.exists());
    found.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

#[test]
fn a_model_that_calls_every_tool_with_everything_writes_neither_taste_nor_notes() {
    struct Yes;
    impl Host for Yes {
        fn answer(&self, question: &str) -> Option<String> {
            // A yes to the question about the end would end it too early.
            Some(if question == tools::SHALL_WE_END { "no" } else { "yes" }.into())
        }
    }
    let rig = Rig::new();
    let folder = rig::photo(&rig.library).folder().to_owned();
    let before = persons(&folder);
    let main = rig::photo(&rig.library).branch(&"main".parse().unwrap()).unwrap();
    let setup = rig.setup(&script());
    let request = Request {
        brief: None,
        vectors: Vec::new(),
        budget: Budget::parse("time=20h,iterations=5000,branches=50").unwrap(),
        from: "main".into(),
        criteria: None,
        prompt: talk::PROMPT.into(),
        preview_edge: 128,
        unattended: false,
        proposes: true,
        seed: 0,
    };
    let plan = talk::plan(&setup, &request).unwrap();
    let mut session: Session = start::start(setup, plan).unwrap();
    let id = session.state.start.session.clone();
    for _ in 0..2000 {
        if matches!(session.advance_alone(&Yes).unwrap(), Turn::Over(_)) {
            break;
        }
        session.say("do as you like", &Unwatched).unwrap();
    }
    assert!(session.state.end.is_some(), "one of its calls ends it");
    drop(session);
    let path = rig::photo(&rig.library).session_folder(&id).join("transcript.jsonl");
    let lines = transcript::read(&path).unwrap().lines;
    let called: std::collections::BTreeSet<String> = lines
        .iter()
        .filter_map(|line| match &line.event {
            Event::ToolResult { result, .. } => Some(result.name.clone()),
            _ => None,
        })
        .collect();
    assert!(called.len() > 20, "{called:?}");
    assert!(!rig.library.join("tastes").exists());
    assert_eq!(persons(&folder), before);
    let photo = rig::photo(&rig.library);
    assert_eq!(photo.branch(&"main".parse().unwrap()).unwrap(), main);
    assert!(
        photo.proposals().unwrap().iter().all(|one| one.status == engine::photo::ProposalStatus::Pending)
    );
}
