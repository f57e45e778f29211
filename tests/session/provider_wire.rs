//! A provider on a real wire: what is sent, what is understood, what is an error, and how it ends.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../provider/dialects.rs"]
mod dialects;
#[path = "../provider/hostile.rs"]
mod hostile;
#[path = "../provider/replies.rs"]
mod replies;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::permits::permit;
use crate::pictures::Pictures;
use base::assets::Overlay;
use base::redact::Redactor;
use chemigram::provider::http::HttpModel;
use chemigram::provider::{
    Choice, FaultClass, Finish, ImageRef, Message, ModelReply, ModelRequest, Provider, ProviderFault,
    Registry, ToolCall, ToolResult, ToolSpec, connect,
};
use chemigram::session::check::check;
use replies::deltas;
use serde_json::{Value, json};
use testkit::chat_stub::{ChatStub, StubReply, body_of, event_head};
use wiremock::matchers::{method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

const KEY: &str = "sk-canary-7f3a9b2c5d";

fn registry(user: Option<PathBuf>) -> Registry {
    Registry::with_env(&Overlay::providers(user), |name| (name == "OPENAI_API_KEY").then(|| KEY.to_owned()))
}

fn openai(url: &str) -> Arc<dyn Provider> {
    named("openai-chat", url, None)
}

fn named(provider: &str, url: &str, user: Option<PathBuf>) -> Arc<dyn Provider> {
    let choice =
        Choice { provider: provider.to_owned(), base_url: Some(url.to_owned()), ..Choice::default() };
    connect(&registry(user), &choice).unwrap()
}

/// A provider of the user's own that soon loses patience.
fn impatient(url: &str) -> (tempfile::TempDir, Arc<dyn Provider>) {
    waiting(url, 1)
}

/// A provider of the user's own that waits for so many seconds.
fn waiting(url: &str, seconds: u64) -> (tempfile::TempDir, Arc<dyn Provider>) {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "name = \"mine\"\nsummary = \"\"\ndialect = \"openai_chat\"\nbase_url = \"http://x/v1\"\n\
         default_model = \"m\"\n[other_models]\nvision = true\n\
         [wire]\nfirst_byte_seconds = {seconds}\nidle_seconds = {seconds}\n"
    );
    std::fs::write(dir.path().join("mine.toml"), text).unwrap();
    let provider = named("mine", url, Some(dir.path().to_owned()));
    (dir, provider)
}

fn tools() -> Vec<ToolSpec> {
    let tool = |name: &str| ToolSpec {
        name: name.to_owned(),
        description: format!("does {name}"),
        parameters: json!({"type": "object", "properties": {}, "additionalProperties": false}),
    };
    vec![tool("apply_primitive"), tool("render_preview")]
}

fn user(text: &str) -> Message {
    Message::User { text: text.to_owned(), images: Vec::new() }
}

async fn ask(
    provider: &dyn Provider,
    messages: &[Message],
    blobs: &Pictures,
) -> Result<ModelReply, ProviderFault> {
    let tools = tools();
    let info = provider.info();
    let request = ModelRequest {
        model: &info.model,
        system: "You edit.",
        tools: &tools,
        messages,
        earlier: 0,
        max_output_tokens: 500,
        session: "s1",
        seed: Some(7),
        blobs,
        time_left: None,
        on_progress: &|_, _| {},
    };
    provider.attempt(permit(), &request).await
}

async fn ask_once(provider: &dyn Provider) -> Result<ModelReply, ProviderFault> {
    ask(provider, &[user("Go.")], &Pictures::default()).await
}

fn calls(reply: &ModelReply) -> &[ToolCall] {
    match &reply.message {
        Message::Assistant { calls, .. } => calls,
        other => panic!("{other:?}"),
    }
}

fn text(reply: &ModelReply) -> &str {
    match &reply.message {
        Message::Assistant { text, .. } => text,
        other => panic!("{other:?}"),
    }
}

fn result(call: &ToolCall, text: &str, images: Vec<ImageRef>) -> ToolResult {
    ToolResult {
        call_id: call.id.clone(),
        name: call.name.clone(),
        text: text.to_owned(),
        images,
        is_error: false,
        figures: serde_json::Map::new(),
    }
}

#[tokio::test]
async fn a_conversation_with_pictures_only_grows() {
    let stub = ChatStub::start(vec![
        StubReply::calls(&[
            ("apply_primitive", json!({"move": "expo_up", "strength": 0.6})),
            ("render_preview", json!({"size": 8})),
        ]),
        StubReply::call("render_preview", json!({})),
        StubReply::text("Good enough."),
    ]);
    let provider = openai(&stub.url());
    let mut pictures = Pictures::default();
    let mut messages = vec![Message::User {
        text: "Brighten it.".to_owned(),
        images: vec![pictures.add(b"baseline", "the baseline")],
    }];
    for turn in 0..3 {
        let reply = ask(provider.as_ref(), &messages, &pictures).await.unwrap();
        assert!(reply.usage.input_fresh.is_some_and(|tokens| tokens >= 40));
        assert_eq!(reply.usage.input_cache_read, Some(60));
        assert_eq!(reply.usage.input_cache_write, None);
        assert_eq!(reply.usage.output, Some(20));
        assert_eq!(reply.model_served.as_deref(), Some("stub"));
        assert!(reply.first_byte.is_some() && reply.notes.is_empty(), "{:?}", reply.notes);
        let made = calls(&reply).to_vec();
        let finish = if turn < 2 { Finish::ToolCalls } else { Finish::Stop };
        assert_eq!(reply.finish, finish);
        messages.push(reply.message);
        if made.is_empty() {
            continue;
        }
        let images = vec![pictures.add(format!("turn {turn}").as_bytes(), "after the move")];
        let last = made.len() - 1;
        let results = made.iter().enumerate().map(|(n, call)| {
            result(call, "{\"ok\":true}", if n == last { images.clone() } else { Vec::new() })
        });
        messages.push(Message::Results { results: results.collect() });
    }
    let sent = stub.requests();
    assert_eq!(sent.len(), 3, "one request an attempt");
    assert!(stub.authorizations().iter().all(|a| a.as_deref() == Some(&format!("Bearer {KEY}"))));

    // Byte for byte: each request's messages begin with the whole of the one before.
    for pair in sent.windows(2) {
        let [before, after] = pair else { unreachable!() };
        let (before, after) = (before["messages"].to_string(), after["messages"].to_string());
        assert!(after.starts_with(before.trim_end_matches(']')), "{before}\n{after}");
        assert!(after.len() > before.len());
    }
    let last = &sent[2];
    let roles: Vec<&str> =
        last["messages"].as_array().unwrap().iter().filter_map(|m| m["role"].as_str()).collect();
    assert_eq!(
        roles,
        ["system", "user", "assistant", "tool", "tool", "user", "assistant", "tool", "user"],
        "pictures follow all results of their turn"
    );
    let shown = &last["messages"][5]["content"];
    assert_eq!(shown[0]["text"], "Picture of call call_0_1: after the move");
    assert_eq!(shown[1]["image_url"]["url"], "data:image/jpeg;base64,dHVybiAw");
    assert_eq!(shown[1]["image_url"]["detail"], "high");
    assert_eq!(last["messages"][2]["content"], Value::Null, "no text beside calls is null, and present");
    assert!(last["messages"][2].as_object().unwrap().contains_key("content"));
    assert_eq!(last["max_completion_tokens"], 500);
    assert_eq!(last["reasoning_effort"], "none");
    assert_eq!(last["prompt_cache_key"], "s1");
    assert_eq!(last["tools"][0]["function"]["name"], "apply_primitive");
    assert!(last.get("max_tokens").is_none() && last.get("seed").is_none());
}

#[tokio::test]
async fn what_a_server_would_refuse_is_not_replayed_and_what_it_needs_is() {
    let stub = ChatStub::start(vec![]);
    let provider = openai(&stub.url());
    let call = |id: &str, name: &str, arguments: &str, extra: Value| ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
        extra: extra.as_object().cloned().unwrap_or_default(),
    };
    let made = vec![
        call("a", "render_preview", "{\"size\": ", json!({})),
        call("b", "functions.render preview", "[1]", json!({})),
        call(
            "c",
            "apply_primitive",
            "{\n \"x\": 1}",
            json!({"extra_content": {"google": {"thought_signature": "s=="}}}),
        ),
    ];
    let results = made.iter().map(|c| result(c, "refused", vec![])).collect();
    let empty = Message::Assistant { text: String::new(), calls: vec![], opaque: vec![] };
    let messages = vec![
        user("Go."),
        Message::Assistant { text: String::new(), calls: made, opaque: vec![] },
        Message::Results { results },
        empty,
        user("Call a tool."),
    ];
    ask(provider.as_ref(), &messages, &Pictures::default()).await.unwrap();
    let sent = &stub.requests()[0]["messages"];
    let replayed = &sent[2]["tool_calls"];
    assert_eq!(replayed[0]["function"]["arguments"], "{}");
    assert_eq!(replayed[1]["function"]["arguments"], "{}");
    assert_eq!(replayed[1]["function"]["name"], "functions_render_preview");
    assert_eq!(replayed[2]["function"]["arguments"], "{\n \"x\": 1}", "sound text is not reformatted");
    assert_eq!(replayed[2]["extra_content"]["google"]["thought_signature"], "s==");
    assert_eq!(sent[6]["content"], "(empty reply)");
}

#[tokio::test]
async fn reasoning_goes_back_to_its_origin_alone() {
    let details = |piece: Value| json!({"reasoning_details": [piece]});
    let stream = deltas(
        "stop",
        &[
            details(json!({"type": "reasoning.text", "index": 0, "text": "It is ", "signature": null})),
            details(json!({"type": "reasoning.text", "index": 0, "text": "dark.", "signature": "s=="})),
            details(json!({"type": "reasoning.encrypted", "index": 1, "data": "xyz"})),
            json!({"content": "Brighter."}),
        ],
    );
    let stub = ChatStub::start(vec![StubReply::events(&stream)]);
    let provider = openai(&stub.url());
    let reply = ask_once(provider.as_ref()).await.unwrap();
    let mut messages = vec![user("Go."), reply.message, user("Go on.")];
    ask(provider.as_ref(), &messages, &Pictures::default()).await.unwrap();
    let expected = json!([
        {"type": "reasoning.text", "index": 0, "text": "It is dark.", "signature": "s=="},
        {"type": "reasoning.encrypted", "index": 1, "data": "xyz"},
    ]);
    assert_eq!(stub.requests()[1]["messages"][2]["reasoning_details"], expected);
    if let Message::Assistant { opaque, .. } = &mut messages[1] {
        opaque[0].origin = "openrouter/another".to_owned();
    }
    let stub = ChatStub::start(vec![]);
    ask(openai(&stub.url()).as_ref(), &messages, &Pictures::default()).await.unwrap();
    assert_eq!(stub.requests()[0]["messages"][2], json!({"role": "assistant", "content": "Brighter."}));
}

#[tokio::test]
async fn a_thought_in_a_field_of_its_own_goes_back_where_the_profile_says_so() {
    let said = || {
        let thought = |text: &str| json!({"reasoning_content": text});
        deltas("stop", &[thought("It is "), thought("dark."), json!({"content": "Brighter."})])
    };
    let dir = tempfile::tempdir().unwrap();
    for (field, expected) in
        [("reasoning_field = \"reasoning_content\"", json!("It is dark.")), ("", Value::Null)]
    {
        let stub = ChatStub::start(vec![StubReply::events(&said())]);
        let text = format!(
            "name = \"mine\"\nsummary = \"\"\ndialect = \"chat_completions\"\nbase_url = \"http://x/v1\"\n\
             default_model = \"m\"\n[other_models]\nvision = true\n[wire]\n{field}\n"
        );
        std::fs::write(dir.path().join("mine.toml"), text).unwrap();
        let provider = named("mine", &stub.url(), Some(dir.path().to_owned()));
        let reply = ask_once(provider.as_ref()).await.unwrap();
        let messages = [user("Go."), reply.message, user("Go on.")];
        ask(provider.as_ref(), &messages, &Pictures::default()).await.unwrap();
        assert_eq!(stub.requests()[1]["messages"][2]["reasoning_content"], expected, "{field}");
    }
}

#[tokio::test]
async fn the_explorer_passes_its_check() {
    for model in ["explorer-2", "explorer-1", "explorer-1-random"] {
        let choice =
            Choice { provider: "explorer".to_owned(), model: Some(model.to_owned()), ..Choice::default() };
        let explorer = connect(&registry(None), &choice).unwrap();
        let report = check(explorer.as_ref(), &Redactor::default()).await.unwrap();
        assert!(report.passed(), "{report:?}");
    }
}

#[tokio::test]
async fn a_server_that_speaks_no_tls_is_a_fault_and_no_panic() {
    let stub = ChatStub::start(vec![]);
    let fault = ask_once(openai(&stub.url().replace("http:", "https:")).as_ref()).await.unwrap_err();
    assert_eq!(fault.class, FaultClass::Transport);
    assert!(stub.requests().is_empty(), "nothing readable was sent: {fault}");
}

#[tokio::test]
async fn a_model_without_vision_gets_no_pictures() {
    let stub = ChatStub::start(vec![]);
    let provider = named("llamacpp", &stub.url(), None);
    assert!(!provider.info().vision && provider.info().free);
    let mut pictures = Pictures::default();
    let images = vec![pictures.add(b"x", "the baseline")];
    ask(provider.as_ref(), &[Message::User { text: "Go.".into(), images }], &pictures).await.unwrap();
    assert_eq!(stub.requests()[0]["messages"][1]["content"], "Go.");
    assert_eq!(stub.authorizations(), [None], "no key, no header");
    assert_eq!(stub.requests()[0]["seed"], 7);
}

/// Answers that are no reply: each is one request, whatever it is.
#[tokio::test]
async fn each_error_is_one_request_and_has_its_class() {
    let rows = [
        (401, "", r#"{"error":{"message":"no","code":"invalid_api_key"}}"#, FaultClass::Auth),
        (402, "", r#"{"error":{"message":"no","code":402}}"#, FaultClass::Quota),
        (404, "", r#"{"error":{"message":"no such model"}}"#, FaultClass::BadRequest),
        (408, "", "", FaultClass::Transient),
        (413, "", "<html><title>Too big</title></html>", FaultClass::TooLarge),
        (429, "1200", r#"{"error":{"message":"slow"}}"#, FaultClass::RateLimit),
        (429, "", r#"{"error":{"message":"no money","code":"insufficient_quota"}}"#, FaultClass::Quota),
        (
            500,
            "",
            r#"{"error":{"code":500,"message":"image input is not supported - hint: x"}}"#,
            FaultClass::BadRequest,
        ),
        (500, "", "oops", FaultClass::Transient),
        (503, "50", r#"{"error":{"code":503,"message":"Loading model"}}"#, FaultClass::Transient),
        (
            529,
            "",
            r#"{"type":"error","error":{"type":"overloaded_error","message":"x"}}"#,
            FaultClass::Transient,
        ),
        (307, "", "", FaultClass::BadRequest),
        (200, "", r#"{"error":{"code":429,"message":"busy"}}"#, FaultClass::RateLimit),
        (200, "", r#"{"object":"error","message":"broken"}"#, FaultClass::Transient),
        (200, "", "<html>hotel wifi</html>", FaultClass::Garbage),
        (200, "", "", FaultClass::Garbage),
        (200, "", "{}", FaultClass::Garbage),
    ];
    for (status, wait, body, class) in rows {
        let server = MockServer::start().await;
        let mut answer = ResponseTemplate::new(status).set_body_string(body);
        if !wait.is_empty() {
            answer = answer.insert_header("retry-after-ms", wait);
        }
        if status == 307 {
            answer = answer.insert_header("location", format!("{}/elsewhere", server.uri()));
        }
        Mock::given(method("POST"))
            .and(path("/v1/chat/completions"))
            .respond_with(answer)
            .expect(1)
            .mount(&server)
            .await;
        let fault = ask_once(openai(&format!("{}/v1", server.uri())).as_ref()).await.unwrap_err();
        assert_eq!(fault.class, class, "{status} {body}: {fault:?}");
        assert_eq!(fault.status, Some(status), "{body}");
        let asked = wait.parse().ok().map(Duration::from_millis);
        assert_eq!(fault.retry_after, asked, "{status}");
        assert_eq!(fault.raw, body.as_bytes(), "the body is kept");
        assert_eq!(server.received_requests().await.unwrap().len(), 1, "{status}: one attempt, one request");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_transport_fault_with_a_remedy() {
    // The port is free once the listener is dropped.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let fault = ask_once(openai(&format!("http://{address}/v1")).as_ref()).await.unwrap_err();
    assert_eq!(fault.class, FaultClass::Transport);
    assert!(fault.to_string().contains(&format!("{address} cannot be reached: ")), "{fault}");
    assert_eq!(fault.remedy, Some(format!("is the server at {address} running?")));
}

#[tokio::test]
async fn a_silent_server_is_left_at_once_when_the_future_is_dropped() {
    let stub = ChatStub::start(vec![StubReply::Hang]);
    let provider = openai(&stub.url());
    let heard = async {
        while stub.requests().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        answer = ask_once(provider.as_ref()) => panic!("{answer:?}"),
        () = heard => {}
    }
    assert_eq!(stub.requests().len(), 1);
}

#[tokio::test]
async fn patience_ends_before_the_head_before_the_body_and_within_it() {
    let head = event_head();
    let slow_head: Vec<Vec<u8>> = head.iter().map(|b| vec![*b]).collect();
    let stall = Duration::from_secs(60);
    let started_text = b"data: {\"choices\":[{\"delta\":{\"content\":\"I\"}}]}\n\n".to_vec();
    let stub = ChatStub::start(vec![
        StubReply::Hang,
        StubReply::Raw { pieces: slow_head, pause: Duration::from_millis(50) },
        StubReply::Raw { pieces: vec![head.clone()], pause: stall },
        StubReply::Raw { pieces: vec![[head, started_text].concat()], pause: stall },
    ]);
    let (_dir, provider) = impatient(&stub.url());
    for _ in 0..4 {
        let fault = ask_once(provider.as_ref()).await.unwrap_err();
        assert_eq!(fault.class, FaultClass::Transport, "{fault:?}");
        assert!(fault.message.ends_with("sent nothing for 1s"), "{fault}");
    }
}

#[tokio::test]
async fn the_key_is_in_no_error_no_reply_and_no_debug_text() {
    let echo = format!("{{\"error\":{{\"message\":\"Incorrect API key provided: {KEY}\"}}}}");
    let page = format!("<html><title>{KEY}</title></html>");
    let said = body_of(0, &format!("Your key is {KEY}."), &[], &json!(null));
    let stream = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{KEY}\"}}}}]}}\n\n");
    let stub = ChatStub::start(vec![
        StubReply::status(401, &[], &echo),
        StubReply::status(500, &[], &page),
        StubReply::status(200, &[], &echo),
        StubReply::events(&stream),
        StubReply::status(200, &[], &said),
    ]);
    let provider = openai(&stub.url());
    for _ in 0..4 {
        let fault = ask_once(provider.as_ref()).await.unwrap_err();
        let all = format!("{fault} {fault:?} {fault:#?} {}", String::from_utf8_lossy(&fault.raw));
        assert!(!all.contains(KEY), "{all}");
        let numbers = format!("{:?}", KEY.as_bytes());
        assert!(!all.contains(numbers.trim_matches(['[', ']'])), "nor as a list of bytes");
    }
    let reply = ask_once(provider.as_ref()).await.unwrap();
    assert_eq!(text(&reply), "Your key is [redacted].");
    assert!(!String::from_utf8_lossy(&reply.raw).contains(KEY));
    let sent = stub.authorizations();
    assert_eq!(sent[0].as_deref(), Some(format!("Bearer {KEY}").as_str()), "the canary was really in use");
}

#[test]
fn the_key_is_in_no_debug_text_of_the_provider() {
    let registry = registry(None);
    let choice = Choice { provider: "openai-chat".to_owned(), ..Choice::default() };
    let info = registry.model_info(&choice).unwrap();
    let url = "https://api.example.com/v1/chat/completions".parse().unwrap();
    let key = secrecy::SecretString::from(KEY.to_owned());
    let provider = HttpModel::new(registry.get("openai-chat").unwrap(), info, url, Some(key)).unwrap();
    let shown = format!("{provider:?} {provider:#?}");
    assert!(shown.contains("gpt-5.4-mini") && !shown.contains(KEY) && !shown.contains("canary"), "{shown}");
}

#[tokio::test]
async fn calls_written_as_text_and_reused_ids_are_put_right() {
    let fenced = "I look.\n```json\n{\"name\": \"render_preview\", \"arguments\": {\"size\": 8}}\n```";
    let stub = ChatStub::start(vec![
        StubReply::text(fenced),
        StubReply::status(200, &[], &body_of(0, "", &[("render_preview".into(), "{}".into())], &json!(null))),
        StubReply::status(200, &[], &body_of(0, "", &[("render_preview".into(), "{}".into())], &json!(null))),
    ]);
    let provider = openai(&stub.url());
    let mut messages = vec![user("Go.")];
    let mut ids = Vec::new();
    for turn in 0..3 {
        let reply = ask(provider.as_ref(), &messages, &Pictures::default()).await.unwrap();
        assert_eq!(reply.finish, Finish::ToolCalls);
        let made = calls(&reply).to_vec();
        assert_eq!(made.len(), 1);
        assert_eq!(reply.notes.len(), usize::from(turn != 1), "{:?}", reply.notes);
        ids.push(made[0].id.clone());
        messages.push(reply.message);
        messages.push(Message::Results { results: vec![result(&made[0], "ok", vec![])] });
    }
    assert_eq!(ids, ["call_fenced_0", "call_0_0", "call_5_0"]);
}

#[tokio::test]
async fn progress_is_told_while_the_reply_comes() {
    let stub = ChatStub::start(vec![StubReply::text("one two three four")]);
    let provider = openai(&stub.url());
    let most = AtomicUsize::new(0);
    let seen = std::sync::Mutex::new(Vec::new());
    let request = ModelRequest {
        model: "m",
        system: "s",
        tools: &[],
        messages: &[user("Go.")],
        earlier: 0,
        max_output_tokens: 9,
        session: "s1",
        seed: None,
        blobs: &Pictures::default(),
        time_left: None,
        on_progress: &|n, text| {
            most.fetch_max(n, Ordering::SeqCst);
            seen.lock().unwrap().push(text.to_owned());
        },
    };
    provider.attempt(permit(), &request).await.unwrap();
    assert_eq!(most.load(Ordering::SeqCst), "one two three four".len());
    let seen = seen.into_inner().unwrap();
    assert!(seen.is_sorted() && seen.last().unwrap() == "one two three four", "{seen:?}");
}

#[tokio::test]
async fn the_check_says_what_works() {
    let right = StubReply::call("say_ready", json!({"word": "ready"}));
    let stub = ChatStub::start(vec![right, StubReply::text("Ready!"), StubReply::status(401, &[], "")])
        .allow_compaction();
    let provider = openai(&stub.url());
    let report = check(provider.as_ref(), &Redactor::default()).await.unwrap();
    assert!(report.passed(), "{report:?}");
    assert_eq!(report.usage.total(), Some(120));
    assert_eq!(report.notes, ["asked for gpt-5.4-mini, answered by stub"]);
    let report = check(provider.as_ref(), &Redactor::default()).await.unwrap();
    assert!(report.answered && !report.called_tool && !report.passed());
    let report = check(provider.as_ref(), &Redactor::default()).await.unwrap();
    assert!(!report.answered);
    assert_eq!(report.fault.unwrap().remedy.as_deref(), Some("check the key in OPENAI_API_KEY"));
}

#[tokio::test]
async fn servers_on_this_machine_are_asked_for_their_models_without_a_key_and_no_other() {
    let listing = |status: u16, body: &str| {
        let answer = ResponseTemplate::new(status).set_body_string(body.to_owned());
        async move {
            let server = MockServer::start().await;
            Mock::given(method("GET")).and(path("/v1/models")).respond_with(answer).mount(&server).await;
            server
        }
    };
    let two = listing(200, r#"{"object":"list","data":[{"id":"a"},{"id":"b"},{"x":1}]}"#).await;
    let locked = listing(401, "").await;
    let page = listing(200, "<html>").await;
    let silent = ChatStub::start(vec![]);
    let dir = tempfile::tempdir().unwrap();
    let profile = |name: &str, dialect: &str, url: &str| {
        let text = format!(
            "name = \"{name}\"\nsummary = \"\"\ndialect = \"{dialect}\"\nbase_url = \"{url}/v1\"\n\
             key_env = \"OPENAI_API_KEY\"\n[other_models]\nvision = true\n"
        );
        std::fs::write(dir.path().join(format!("{name}.toml")), text).unwrap();
    };
    profile("two", "chat_completions", &two.uri());
    profile("locked", "messages", &locked.uri());
    profile("page", "responses", &page.uri());
    profile("far", "responses", "https://example.invalid");
    profile("silent", "responses", silent.url().trim_end_matches("/v1"));
    let servers = registry(Some(dir.path().to_owned())).local_servers();
    assert!(servers.iter().all(|(name, _)| !matches!(name.as_str(), "far" | "openai" | "anthropic")));
    let own =
        servers.into_iter().filter(|(name, _)| !matches!(name.as_str(), "ollama" | "llamacpp" | "vllm"));
    let found = chemigram::provider::local::models(own.collect(), Duration::from_secs(60)).await;
    assert_eq!(found["two"].as_deref(), Some(&["a".to_owned(), "b".to_owned()][..]));
    assert_eq!((&found["locked"], &found["page"], &found["silent"]), (&Some(Vec::new()), &None, &None));
    assert_eq!(found.len(), 4);
    for server in [two, locked, page] {
        for request in server.received_requests().await.unwrap() {
            let headers = format!("{:?}", request.headers);
            assert!(!headers.contains("canary") && !headers.contains("authorization"), "{headers}");
        }
    }
}
