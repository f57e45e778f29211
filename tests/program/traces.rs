//! A session as a trace of OpenTelemetry: sent while it runs, written from its transcript afterwards, and never in its
//! way.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use darktable::dng;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value as Kind};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use serde_json::json;

use crate::home::settle;
use testkit::chat_stub::{ChatStub, StubReply, answer, read_request};

/// Words that are said in the session, each in another place.
const WORDS: [&str; 5] =
    ["brighter than it was", "Open the shadows.", "I look at it first.", "Open now.", "shadows_lift"];

/// The head and the body of each request.
pub type Requests = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// A collector on loopback that takes what it is sent.
pub struct Collector {
    pub address: String,
    pub requests: Requests,
}

impl Collector {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let requests = Requests::default();
        let kept = requests.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let Some(request) = read_request(&mut stream) else { continue };
                kept.lock().unwrap().push(request);
                answer(&mut stream, 200, &[("content-type".into(), "application/x-protobuf".into())], b"");
            }
        });
        Self { address, requests }
    }

    /// The spans so far, by their ids.
    fn spans(&self) -> BTreeMap<Vec<u8>, Span> {
        let requests = self.requests.lock().unwrap();
        let read =
            |(_, body): &(String, Vec<u8>)| ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
        by_id(requests.iter().map(read))
    }
}

fn by_id(requests: impl Iterator<Item = ExportTraceServiceRequest>) -> BTreeMap<Vec<u8>, Span> {
    let resources = requests.flat_map(|request| request.resource_spans);
    let scopes = resources.flat_map(|resource| resource.scope_spans);
    scopes.flat_map(|scope| scope.spans).map(|span| (span.span_id.clone(), span)).collect()
}

fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let value = attributes.iter().find(|attribute| attribute.key == key)?.value.clone()?.value?;
    Some(match value {
        Kind::StringValue(text) => text,
        Kind::IntValue(number) => number.to_string(),
        Kind::DoubleValue(number) => number.to_string(),
        Kind::BoolValue(flag) => flag.to_string(),
        other => format!("{other:?}"),
    })
}

/// A home with a photo and a model that answers from a list.
struct Home {
    root: tempfile::TempDir,
    stub: ChatStub,
}

impl Home {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("cup.dng"), dng::demo_raw().unwrap()).unwrap();
        let usage = |cached: u64| {
            json!({"prompt_tokens": 9_000, "completion_tokens": 40,
                   "prompt_tokens_details": {"cached_tokens": cached}})
        };
        let restated = json!({"vectors": [{"name": "tone", "restated": WORDS[1]}]});
        let lift = json!({"primitive_name": WORDS[4], "parameter_values": {"amount": 1.0}});
        let judgment = json!({"branch": "branch_b_tone", "judged_score": 4, "judged_reasoning": WORDS[3],
                              "key_moves": [WORDS[4]]});
        let stub = ChatStub::start(vec![
            StubReply::Message {
                text: WORDS[2].to_owned(),
                thought: String::new(),
                calls: vec![("confirm_session".to_owned(), restated.to_string())],
                usage: usage(0),
            },
            StubReply::status(503, &[("retry-after-ms", "1")], r#"{"error":{"message":"loading"}}"#),
            StubReply::call("branch", json!({"name": "branch_b_tone"})).thinking("", usage(8_000)),
            StubReply::calls(&[("apply_primitive", lift), ("render_preview", json!({}))])
                .thinking("", usage(8_000)),
            StubReply::call("no_such_tool", json!({})).thinking("", usage(8_000)),
            StubReply::call("record_judgment", judgment).thinking("", usage(8_000)),
            StubReply::call("end_mode_b_session", json!({"session_summary": "Done."}))
                .thinking("", usage(8_000)),
        ]);
        let providers = root.path().join("config/chemigram/providers");
        std::fs::create_dir_all(&providers).unwrap();
        let profile = format!(
            "name = \"mistral\"\nsummary = \"\"\ndialect = \"chat_completions\"\nbase_url = \"{}\"\n\
             default_model = \"m\"\n[[model]]\nid = \"m\"\nvision = true\n\
             price = {{ input = 1.0, output = 4.0, as_of = \"2026-11-01\" }}\n",
            stub.url()
        );
        std::fs::write(providers.join("mistral.toml"), profile).unwrap();
        let home = Self { root, stub };
        home.ok(&["ingest", "cup.dng"], &[]);
        home
    }

    fn path(&self) -> &Path {
        self.root.path()
    }

    fn run(&self, arguments: &[&str], env: &[(&str, &str)]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chemigram"));
        settle(&mut command, self.path());
        command.current_dir(self.path()).args(arguments).envs(env.iter().copied()).output().unwrap()
    }

    /// What a command prints that must succeed: results and remarks.
    fn ok(&self, arguments: &[&str], env: &[(&str, &str)]) -> [String; 2] {
        let output = self.run(arguments, env);
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(output.status.success(), "{arguments:?}: {said:?}");
        said
    }

    fn session(&self, env: &[(&str, &str)]) -> [String; 2] {
        let direction = format!("tone={}", WORDS[0]);
        let budget = "time=5m,iterations=19,branches=1,cost=3";
        let run = ["run-mode-b", "cup", "--yes", "--preview-size", "256", "--provider", "mistral"];
        let said = self.ok(&[&run[..], &["--vector", &direction, "--budget", budget]].concat(), env);
        assert_eq!(self.stub.requests().len(), 7);
        said
    }
}

#[test]
fn the_spans_of_a_session_arrive_while_it_runs_and_are_the_same_from_its_transcript() {
    let (home, live) = (Home::new(), Collector::start());
    home.session(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &live.address),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-canary=here"),
    ]);
    for (head, _) in live.requests.lock().unwrap().iter() {
        let head = head.to_lowercase();
        assert!(head.starts_with("post /v1/traces http/1.1"), "{head}");
        assert!(
            head.contains("content-type: application/x-protobuf") && head.contains("x-canary: here"),
            "{head}"
        );
    }
    let spans = live.spans();

    // One tree, with the session's id as its trace.
    let id = home.ok(&["--json", "mode-b", "status", "last"], &[])[0].clone();
    let id: serde_json::Value = serde_json::from_str(&id).unwrap();
    let trace: String = id["session"].as_str().unwrap().replace('-', "");
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let roots: Vec<&Span> = spans.values().filter(|span| span.parent_span_id.is_empty()).collect();
    assert_eq!(roots.len(), 1);
    for span in spans.values() {
        assert_eq!(hex(&span.trace_id), trace);
        let within = spans.get(&span.parent_span_id).unwrap_or(span);
        assert!(span.start_time_unix_nano >= within.start_time_unix_nano, "{span:?}");
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano, "{span:?}");
        assert!(span.parent_span_id.is_empty() || spans.contains_key(&span.parent_span_id), "{span:?}");
    }

    // What the conventions want of each kind.
    let named = |name: &str| spans.values().filter(|span| span.name == name).collect::<Vec<_>>();
    let value = |span: &Span, key: &str| text(&span.attributes, key);
    let root = roots[0];
    assert_eq!((root.name.as_str(), root.kind), ("invoke_agent chemigram", 1));
    assert_eq!(value(root, "gen_ai.operation.name").as_deref(), Some("invoke_agent"));
    assert_eq!(value(root, "gen_ai.conversation.id").as_deref(), id["session"].as_str());
    assert_eq!(value(root, "chemigram.outcome").as_deref(), Some("completed"));
    assert_eq!(value(root, "gen_ai.usage.input_tokens").as_deref(), Some("54000"));
    let judged = root.events.iter().find(|event| event.name == "gen_ai.evaluation.result").unwrap();
    assert_eq!(text(&judged.attributes, "gen_ai.evaluation.score.value").as_deref(), Some("4"));

    let chats = named("chat m");
    assert_eq!(chats.len(), 7, "six replies and one that failed");
    let failed: Vec<&&Span> = chats.iter().filter(|span| value(span, "error.type").is_some()).collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(value(failed[0], "error.type").as_deref(), Some("transient"));
    assert_eq!(value(failed[0], "http.response.status_code").as_deref(), Some("503"));
    assert_eq!(failed[0].status.as_ref().unwrap().code, 2);
    for chat in chats.iter().filter(|span| value(span, "error.type").is_none()) {
        assert_eq!(chat.kind, 3, "a call of another service");
        assert_eq!(value(chat, "gen_ai.provider.name").as_deref(), Some("mistral_ai"));
        assert_eq!(value(chat, "gen_ai.request.model").as_deref(), Some("m"));
        assert_eq!(value(chat, "gen_ai.response.model").as_deref(), Some("stub"));
        assert_eq!(value(chat, "gen_ai.usage.input_tokens").as_deref(), Some("9000"));
        assert_eq!(value(chat, "gen_ai.usage.output_tokens").as_deref(), Some("40"));
        assert!(value(chat, "gen_ai.response.finish_reasons").unwrap().contains("tool_call"));
    }
    let cached = chats.iter().filter_map(|chat| value(chat, "gen_ai.usage.cache_read.input_tokens"));
    assert_eq!(cached.filter(|tokens| tokens == "8000").count(), 5);

    let tools: BTreeSet<&str> = spans.values().filter_map(|s| s.name.strip_prefix("execute_tool ")).collect();
    let expected = [
        "apply_primitive",
        "branch",
        "confirm_session",
        "end_mode_b_session",
        "no_such_tool",
        "record_judgment",
        "render_preview",
    ];
    assert_eq!(tools, BTreeSet::from(expected));
    let unknown = named("execute_tool no_such_tool")[0];
    assert_eq!(value(unknown, "error.type").as_deref(), Some("NOT_FOUND"));
    assert_eq!(unknown.status.as_ref().unwrap().code, 2);
    let looked = named("execute_tool render_preview")[0];
    let renders = spans.values().filter(|span| span.name.starts_with("render "));
    assert!(renders.clone().count() >= 2, "the baseline and the branch");
    assert!(
        renders.clone().any(|span| span.parent_span_id == looked.span_id
            || value(span, "chemigram.render.ahead").as_deref() == Some("true")),
        "{:?}",
        renders.collect::<Vec<_>>()
    );

    // What was said is nowhere, names of tools aside.
    let all = format!("{spans:?}");
    for word in WORDS {
        assert!(!all.contains(word), "{word}");
    }

    // The same from the transcript, as a file, twice, and at another collector.
    let written = [(); 2].map(|()| home.ok(&["mode-b", "otel", "last"], &[])[0].clone());
    assert_eq!(written[0], written[1]);
    let read: ExportTraceServiceRequest = serde_json::from_str(&written[0]).unwrap();
    assert_eq!(by_id(std::iter::once(read)), spans);
    home.ok(&["mode-b", "otel", "last", "-o", "trace.json"], &[]);
    assert_eq!(std::fs::read_to_string(home.path().join("trace.json")).unwrap(), written[0]);
    let other = Collector::start();
    home.ok(&["mode-b", "otel", "last", "--endpoint", &other.address], &[]);
    assert_eq!(other.spans(), spans);

    // With what was said, if that is asked for.
    let capture = [("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")];
    let told = home.ok(&["mode-b", "otel", "last"], &capture)[0].clone();
    for word in WORDS {
        assert!(told.contains(word), "{word}");
    }
    for key in ["gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.tool.call.arguments"] {
        assert!(told.contains(key), "{key}");
    }
}

#[test]
fn a_collector_that_is_not_there_costs_a_session_nothing_but_a_line_of_the_log() {
    // Nobody listens, somebody never answers, and somebody does not want it.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let angry = TcpListener::bind("127.0.0.1:0").unwrap();
    let addresses = [gone, mute.local_addr().unwrap(), angry.local_addr().unwrap()];
    std::thread::spawn(move || {
        let mut open = Vec::new();
        open.extend(mute.incoming().flatten());
    });
    std::thread::spawn(move || {
        for mut stream in angry.incoming().flatten() {
            let _ = read_request(&mut stream);
            answer(&mut stream, 500, &[], b"no");
            let _ = stream.read(&mut [0; 8]);
        }
    });
    for address in addresses {
        let (home, url) = (Home::new(), format!("http://{address}"));
        let said = home.session(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &url)]);
        assert!(said[0].contains("branch_b_tone"), "{said:?}");
        // One that never answers may not have been given up when the session ends.
        assert!(said[1].matches("spans are lost").count() <= 1, "{said:?}");
        if address != addresses[1] {
            assert_eq!(said[1].matches("spans are lost").count(), 1, "{said:?}");
        }
        let sent = home.run(&["mode-b", "otel", "last", "--endpoint", &url], &[]);
        let told = String::from_utf8(sent.stderr).unwrap();
        assert!(!sent.status.success() && told.contains("did not take the trace"), "{told}");
    }
}

#[test]
fn what_is_no_address_of_a_collector_is_said_before_anything_is_sent() {
    let home = Home::new();
    home.session(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"), ("OTEL_SDK_DISABLED", "TRUE")]);
    for endpoint in ["collector:4318", "http://ann:secret@127.0.0.1:4318", "file:///tmp/x"] {
        let output = home.run(&["mode-b", "otel", "last", "--endpoint", endpoint], &[]);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains("http://localhost:4318") && !told.contains("secret"), "{told}");
    }
}
