//! What a model has to read, in tokens of a real tokenizer, pictures left out.
#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

use crate::support;
use std::sync::{Arc, LazyLock, Mutex};

use crate::support::{Studio, confirm, reply, request, results};
use base::assets::Overlay;
use base::ids::Hash;
use chemigram::conversation::Message;
use chemigram::gate::{ModelCall, Permit};
use chemigram::prompts::Store;
use chemigram::provider::script::Script;
use chemigram::provider::{Attempt, ModelInfo, ModelRequest, Provider};
use chemigram::session::estimate::Estimate;
use chemigram::session::start;
use chemigram::tools;
use chemigram::transcript::{Line, Outcome};
use serde_json::{Value, json};
use tiktoken_rs::CoreBPE;

static TOKENIZER: LazyLock<CoreBPE> = LazyLock::new(|| tiktoken_rs::o200k_base().unwrap());

fn tokens(text: &str) -> usize {
    TOKENIZER.encode_ordinary(text).len()
}

/// What the session of [`twelve_turns`] sent before replies, lists and schemas were cut down: measured by this test at
/// the commit before, with the prompt that was the default then (`mode_b/system@v1`).
const BEFORE: usize = 206_157;
/// The tokens that all schemas may have, less room for tools to come.
const SCHEMAS: usize = 5_000;

/// A script that adds up what it is sent.
struct Metered {
    script: Script,
    sent: Mutex<Vec<usize>>,
    last: Mutex<String>,
}

impl Provider for Metered {
    fn info(&self) -> &ModelInfo {
        self.script.info()
    }

    fn attempt<'a>(&'a self, permit: Permit<ModelCall>, request: &'a ModelRequest<'a>) -> Attempt<'a> {
        let mut parts = vec![request.system.to_owned(), serde_json::to_string(&request.tools).unwrap()];
        for message in request.messages {
            match message {
                Message::User { text, .. } => parts.push(text.clone()),
                Message::Assistant { text, calls, .. } => {
                    parts.push(text.clone());
                    parts.extend(calls.iter().flat_map(|call| [call.name.clone(), call.arguments.clone()]));
                }
                Message::Results { results } => {
                    parts.extend(results.iter().map(|result| result.text.clone()))
                }
            }
        }
        self.sent.lock().unwrap().push(parts.iter().map(|part| tokens(part)).sum());
        *self.last.lock().unwrap() = parts.join("\n");
        self.script.attempt(permit, request)
    }
}

/// Twelve turns of one branch, as a model with eyes takes them: two masks looked at, four edits, a comparison.
fn twelve_turns() -> String {
    let face = r#"{"shape": "ellipse", "center": [0.45, 0.4], "radius": [0.2, 0.25], "feather": 0.1}"#;
    let lamp = r#"{"intersection": [{"range": "luminance", "from": 60, "to": 100}, {"named": "left_half"}]}"#;
    let looks = |mask: &str| format!(r#"{{"show_mask": {mask}}}"#);
    let apply = |name: &str, values: &str, mask: &str| {
        let mask = if mask.is_empty() { String::new() } else { format!(r#", "mask": {mask}"#) };
        format!(r#"{{"primitive_name": "{name}", "parameter_values": {{{values}}}{mask}}}"#)
    };
    [
        reply(&[("read_context", "{}"), ("list_vocabulary", "{}")]),
        reply(&[("render_preview", "{}"), ("get_state", "{}")]),
        confirm(&["tone"]),
        reply(&[
            ("branch", r#"{"name": "branch_b_tone"}"#),
            ("apply_primitive", &apply("shadows_lift", r#""amount": 0.8"#, "")),
            ("render_preview", "{}"),
        ]),
        reply(&[("render_preview", &looks(face))]),
        reply(&[("apply_primitive", &apply("exposure", r#""ev": 0.5"#, face)), ("render_preview", "{}")]),
        reply(&[("render_preview", &looks(lamp))]),
        reply(&[("apply_primitive", &apply("exposure", r#""ev": -0.4"#, lamp)), ("render_preview", "{}")]),
        reply(&[("apply_primitive", &apply("contrast", r#""amount": 0.15"#, "")), ("render_preview", "{}")]),
        reply(&[("compare", "{}"), ("get_state", "{}")]),
        reply(&[(
            "record_judgment",
            r#"{"branch": "branch_b_tone", "judged_score": 4, "judged_reasoning": "The shadows are open and the lamp is held.", "key_moves": ["shadows_lift amount=0.8"]}"#,
        )]),
        reply(&[("end_mode_b_session", r#"{"session_summary": "One branch: shadows opened, the lamp held."}"#)]),
    ]
    .concat()
}

/// The data of a tool's answers, in order.
fn answers(lines: &[Line], tool: &str) -> Vec<Value> {
    let read = |(code, text): &(_, &str)| {
        assert_eq!(*code, None::<base::error::ErrorCode>, "{text}");
        let answer: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        answer["data"].clone()
    };
    results(lines, tool).iter().map(read).collect()
}

#[test]
fn a_session_of_twelve_turns_reads_half_of_what_it_read() {
    let studio = Studio::new();
    let script = Script::parse("twelve turns", &twelve_turns()).unwrap();
    let provider = Arc::new(Metered { script, sent: Mutex::default(), last: Mutex::default() });
    let setup = studio.setup(provider.clone());
    let asked = request("time=10m,iterations=60,branches=1", &[("tone", "open the shadows")]);
    let plan = start::plan(&setup, &asked).unwrap();
    let system = plan.system.clone();
    let estimate = |iterations: u64| {
        let mut plan = start::plan(&setup, &asked).unwrap();
        plan.start.budget.max_iterations = iterations;
        Estimate::of(provider.info(), &plan)
    };
    let estimates: Vec<Estimate> = (0..60).map(estimate).collect();
    let mut session = start::start(setup, plan).unwrap();
    let end = support::run(&mut session);
    assert_eq!(end.outcome, Outcome::Completed, "{}", end.reason);
    let lines = studio.lines(&session.state.start.session);

    let sent = provider.sent.lock().unwrap();
    let sum: usize = sent.iter().sum();
    eprintln!("system {}, sent {sum}: {sent:?}", tokens(&system));
    for (tool, most) in
        [("list_vocabulary", 2_500), ("render_preview", 200), ("compare", 350), ("get_state", 250)]
    {
        for (_, text) in results(&lines, tool) {
            eprintln!("{tool} {}: {text}", tokens(text));
            assert!(tokens(text) <= most, "{tool}: {} tokens in {text}", tokens(text));
        }
    }
    assert_eq!(sent.len(), 12);
    // What is told before a session is about what it will be.
    let told = estimates[usize::try_from(end.spent.iterations).unwrap()];
    eprintln!("estimated {told:?}");
    assert!((8..=18).contains(&told.replies), "{told:?}");
    let share = told.input as f64 / sum as f64;
    assert!((0.6..1.7).contains(&share), "{told:?} for {sum} tokens");
    assert!(2 * sum < BEFORE, "{sum} tokens");

    let last = provider.last.lock().unwrap();
    assert_eq!(last.matches("Quiet, warm.").count(), 1, "the brief comes once");
    assert!(!last.contains("channel"), "darktable's channels are in what a model reads");

    // Every number has its line in the glossary.
    let looks = answers(&lines, "render_preview");
    let compared = &answers(&lines, "compare")[0];
    let plain = ["a", "at", "b", "changed", "covered_percent", "mask", "numbers", "size", "warnings"];
    for answer in looks.iter().chain([compared]) {
        let fields = answer.as_object().unwrap().keys();
        let numbers = answer["numbers"].as_object().into_iter().flatten().map(|(name, _)| name);
        for field in fields.chain(numbers).filter(|field| !plain.contains(&field.as_str())) {
            assert!(system.contains(&format!("`{field}`")), "`{field}` is defined nowhere");
        }
    }
    let [untouched, lifted, ..] = looks.as_slice() else { panic!("{looks:?}") };
    for field in ["warnings", "direction", "changed"] {
        assert_eq!(untouched.get(field), None, "the baseline is no edit: {untouched}");
    }
    assert_eq!(
        (lifted["changed"][0].as_str(), lifted["direction"].as_str()),
        (Some("shadows_lift amount=0.80 EV"), Some("met"))
    );
    assert!(lifted["numbers"]["mean_L"].as_str().unwrap().contains(" → "), "{lifted}");
    assert!(lifted["steps"]["shadows"].as_str().unwrap().starts_with('+'), "{lifted}");
    assert!(studio.workspace.resolve(lifted["state"].as_str().unwrap()).is_ok(), "a state is a ref");
    assert!(compared["delta_e"].as_f64().unwrap() > 0.0 && compared["delta_e_p95"].is_f64(), "{compared}");
}

#[test]
fn schemas_leave_room_and_say_the_rules_of_masks() {
    for (which, specs) in [("all", tools::specs()), ("steered", tools::steered_specs())] {
        let schemas = tokens(&serde_json::to_string(&specs).unwrap());
        let mut each: Vec<(usize, &str)> = specs
            .iter()
            .map(|spec| (tokens(&serde_json::to_string(spec).unwrap()), spec.name.as_str()))
            .collect();
        each.sort_unstable();
        eprintln!("{which}: {schemas} {each:?}");
        assert!(schemas <= SCHEMAS, "{which}: {schemas} tokens: {each:?}");
    }
    let apply = tools::find("apply_primitive").unwrap().spec();
    let mask = &apply.parameters["properties"]["mask"]["properties"];
    for (field, rule) in [
        ("feather", "outward"),
        ("width", "share of the diagonal"),
        ("radius", "circle: share of the shorter side; ellipse: [share of width, share of height]"),
        ("blur", "the whole mask"),
        ("range", "L*"),
    ] {
        let text = mask[field]["description"].as_str().unwrap();
        assert!(text.contains(rule), "{field}: {text}");
    }
    let judge = tools::find("record_judgment").unwrap().spec();
    assert!(!judge.parameters["required"].as_array().unwrap().contains(&json!("judged_score")));
}

#[test]
fn a_session_is_offered_what_it_can_need() {
    let studio = Studio::new();
    let offered = |budget: &str| {
        let setup = studio.setup(Arc::new(Script::parse("none", "").unwrap()));
        let plan = start::plan(&setup, &request(budget, &[("tone", "open the shadows")])).unwrap();
        assert_eq!(
            plan.start.tools,
            Hash::of(serde_json::to_vec(&plan.tools).unwrap()),
            "it is in the header"
        );
        let lacks = |tool: &&&str| !plan.tools.iter().any(|spec| spec.name == **tool);
        tools::DISPENSABLE.iter().filter(lacks).copied().collect::<Vec<_>>()
    };
    assert_eq!(offered("time=10m,iterations=60,branches=1"), tools::DISPENSABLE);
    assert_eq!(offered("time=10m,iterations=60,branches=2"), ["bind_layers", "read_session_transcript"]);
    let masked = r#"{"primitive_name": "exposure", "parameter_values": {"ev": 0.5}, "mask": {"range": "luminance", "from": 60, "to": 100}}"#;
    let abandoned = r#"{"branch": "branch_b_tone", "judged_reasoning": "Flat.", "abandoned": true}"#;
    let script = [
        confirm(&["tone"]),
        reply(&[
            ("list_vocabulary", r#"{"query": "cooler in the lamp light"}"#),
            ("list_vocabulary", r#"{"tag": "wb"}"#),
            ("list_vocabulary", r#"{"tag": "elephants"}"#),
        ]),
        reply(&[("list_vocabulary", r#"{"axis": "warmth"}"#), ("list_vocabulary", r#"{"looks": true}"#)]),
        reply(&[("branch", r#"{"name": "branch_b_tone"}"#), ("apply_primitive", masked)]),
        // Not in the list, and answered all the same.
        reply(&[("get_state", "{}"), ("diff", "{}"), ("record_judgment", abandoned)]),
        reply(&[("end_mode_b_session", r#"{"session_summary": "Nothing."}"#)]),
    ]
    .concat();
    let asked = request("time=10m,iterations=60,branches=1", &[("tone", "open the shadows")]);
    let (end, lines) = studio.run(&script, &asked);
    assert_eq!(end.outcome, Outcome::Completed, "{}", end.reason);
    assert_eq!(offered("time=10m,iterations=60,branches=2"), ["bind_layers"]);

    let [lamp, wb, none, warmth, looks] = answers(&lines, "list_vocabulary").try_into().unwrap();
    let line = |answer: &Value, name: &str| {
        let moves = answer["moves"].as_array().unwrap().iter().map(|line| line.as_str().unwrap());
        moves
            .into_iter()
            .find(|line| line.starts_with(name))
            .unwrap_or_else(|| panic!("{name}: {answer}"))
            .to_owned()
    };
    assert!(line(&lamp, "highlights_warmth").ends_with("[may be masked]"));
    assert!(line(&lamp, "warmth").ends_with("[whole frame only]"));
    assert!(line(&wb, "local_warmth").ends_with("[may be masked]"));
    assert_eq!((&none["count"], &none["moves"]), (&json!(0), &json!([])));
    assert!(none["tags"].as_array().unwrap().contains(&json!("white_balance")), "{none}");
    assert!(warmth["moves"][0].as_str().unwrap().starts_with("warmth"), "{warmth}");
    assert!(looks["looks"].as_array().unwrap().len() > 30 && looks.get("moves").is_none());

    let made = "exposure ev=0.50 EV on luminance 60–100";
    assert_eq!(answers(&lines, "get_state")[0]["moves"], json!([made.replacen("exposure", "exposure#1", 1)]));
    assert_eq!(answers(&lines, "diff")[0]["changes"], json!([format!("{made}: added")]));
}

#[test]
fn prompt_and_tool_score_in_the_same_words() {
    let prompts = Store::new(Overlay::prompts(None)).unwrap();
    let text = prompts.show("mode_b/system", None).unwrap().source;
    let scale = "1 worse, 2 no better, 3 a fair alternative, 4 meets the brief, 5 meets it and nothing could be taken away";
    let judge = tools::find("record_judgment").unwrap().spec();
    let field = judge.parameters["properties"]["judged_score"]["description"].as_str().unwrap().to_owned();
    for place in [text, field] {
        assert!(place.contains(scale), "{place}");
    }
}
