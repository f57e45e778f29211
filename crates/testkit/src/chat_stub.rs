//! A server on loopback that answers from a list and judges every request, in the dialect of the path that it is
//! asked at: Chat Completions, Responses or Messages.
//!
//! ```text
//! let stub = ChatStub::start(vec![
//!     StubReply::call("read_context", json!({})),
//!     StubReply::status(429, &[("retry-after-ms", "10")], r#"{"error":{"message":"slow down"}}"#),
//!     StubReply::text("Done."),
//! ]);
//! // --provider openai, CHEMIGRAM_BASE_URL = stub.url(), OPENAI_API_KEY = anything
//! ```
//!
//! With `CHEMIGRAM_WIRE_DUMP=FOLDER` in the environment each request is kept in that folder, with its reply where that
//! is a message of the stub's own, and `scripts/wire-types.py` compares them with the types of the vendors' clients.
//!
//! The n-th request gets the n-th reply, streamed if it asked for a stream; after the last, the text
//! `(no reply left)`. Each request must keep the protocol: one system message, first; every call of an
//! assistant message answered by exactly one tool message, in order, before anything else; call ids unique;
//! arguments JSON objects; pictures in user messages alone; and the conversation of one system prompt only
//! appended to (`allow_compaction` lifts the last). A breach is answered 400 and fails the test on drop.
//! It needs no async runtime, so it serves tests that start the binary as well.

pub mod dialects;

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dialects::{Dialect, Said};
use serde_json::{Value, json};

/// One answer.
#[derive(Clone, Debug)]
pub enum StubReply {
    /// An assistant message: text and calls (name, arguments as JSON text). A usage of `null` is counted by the
    /// stub. A thought that is not empty goes before them, in a form that is to come back.
    Message { text: String, thought: String, calls: Vec<(String, String)>, usage: Value },
    /// A status with headers and a body.
    Status { status: u16, headers: Vec<(String, String)>, body: String },
    /// Bytes of a whole HTTP answer, piece by piece with a pause after each, then the connection is closed.
    Raw { pieces: Vec<Vec<u8>>, pause: Duration },
    /// Nothing, until the client leaves or the stub ends.
    Hang,
    /// A message with more headers.
    With { headers: Vec<(String, String)>, reply: Box<StubReply> },
}

impl StubReply {
    pub fn text(text: &str) -> Self {
        Self::Message { text: text.to_owned(), thought: String::new(), calls: Vec::new(), usage: Value::Null }
    }

    pub fn call(name: &str, arguments: Value) -> Self {
        Self::calls(&[(name, arguments)])
    }

    pub fn calls(calls: &[(&str, Value)]) -> Self {
        let calls =
            calls.iter().map(|(name, arguments)| ((*name).to_owned(), arguments.to_string())).collect();
        Self::Message { text: String::new(), thought: String::new(), calls, usage: Value::Null }
    }

    /// The same with a thought before it, and with this usage.
    pub fn thinking(self, before: &str, tokens: Value) -> Self {
        match self {
            Self::Message { text, calls, .. } => {
                Self::Message { text, calls, thought: before.to_owned(), usage: tokens }
            }
            other => other,
        }
    }

    pub fn status(status: u16, headers: &[(&str, &str)], body: &str) -> Self {
        let headers = headers.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Self::Status { status, headers, body: body.to_owned() }
    }

    /// The same with these headers.
    pub fn with(self, headers: &[(&str, &str)]) -> Self {
        let headers = headers.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Self::With { headers, reply: Box::new(self) }
    }

    /// A stream of events that ends where the text ends.
    pub fn events(text: &str) -> Self {
        Self::Raw { pieces: vec![event_head(), text.as_bytes().to_vec()], pause: Duration::ZERO }
    }
}

/// The head of an event stream without a length.
pub fn event_head() -> Vec<u8> {
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".to_vec()
}

/// Four bytes of text are a token, and a picture is a thousand; 100 at least.
fn usage_of(request: &Value) -> Value {
    fn tokens(value: &Value) -> u64 {
        match value {
            Value::String(text) if text.starts_with("data:") => 1000,
            Value::String(text) => text.len() as u64 / 4,
            Value::Array(items) => items.iter().map(tokens).sum(),
            Value::Object(fields) => {
                fields.iter().map(|(key, value)| key.len() as u64 / 4 + tokens(value)).sum()
            }
            _ => 1,
        }
    }
    let lists = ["messages", "input", "tools"];
    let input = lists.iter().map(|list| tokens(&request[*list])).sum::<u64>().max(100);
    json!({"prompt_tokens": input, "completion_tokens": 20, "total_tokens": input + 20,
           "prompt_tokens_details": {"cached_tokens": 60}})
}

#[derive(Default)]
struct Shared {
    replies: Vec<StubReply>,
    requests: Vec<Value>,
    bodies: Vec<Vec<u8>>,
    heads: Vec<String>,
    breaches: Vec<String>,
    tokens: u64,
    counts: Vec<Value>,
    count: Option<u64>,
    allow_compaction: bool,
    closing: bool,
}

/// The running server.
pub struct ChatStub {
    address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
}

impl ChatStub {
    pub fn start(replies: Vec<StubReply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Mutex::new(Shared { replies, ..Shared::default() }));
        let state = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if state.lock().unwrap().closing {
                    return;
                }
                let state = state.clone();
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        Self { address, shared }
    }

    /// Lifts the rule that a conversation only grows.
    pub fn allow_compaction(self) -> Self {
        self.shared.lock().unwrap().allow_compaction = true;
        self
    }

    /// Answers whoever asks for the tokens of a request; without this such a question is refused.
    pub fn counting(self, tokens: u64) -> Self {
        self.shared.lock().unwrap().count = Some(tokens);
        self
    }

    /// The bodies of all questions for the tokens of a request.
    pub fn counts(&self) -> Vec<Value> {
        self.shared.lock().unwrap().counts.clone()
    }

    /// The base URL: what stands before the end of the dialect.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The tokens of all messages with a usage that the stub counted.
    pub fn tokens(&self) -> u64 {
        self.shared.lock().unwrap().tokens
    }

    /// The bodies of all requests so far.
    pub fn requests(&self) -> Vec<Value> {
        self.shared.lock().unwrap().requests.clone()
    }

    /// The same as they came.
    pub fn bodies(&self) -> Vec<Vec<u8>> {
        self.shared.lock().unwrap().bodies.clone()
    }

    /// The heads of all requests so far.
    pub fn heads(&self) -> Vec<String> {
        self.shared.lock().unwrap().heads.clone()
    }

    /// The `authorization` headers of all requests so far.
    pub fn authorizations(&self) -> Vec<Option<String>> {
        let header = |head: &String| {
            head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("authorization").then(|| value.trim().to_owned())
            })
        };
        self.shared.lock().unwrap().heads.iter().map(header).collect()
    }
}

impl Drop for ChatStub {
    fn drop(&mut self) {
        let breaches = {
            let mut shared = self.shared.lock().unwrap();
            shared.closing = true;
            shared.breaches.clone()
        };
        // Wakes the listener, which then ends.
        let _ = TcpStream::connect(self.address);
        if !std::thread::panicking() {
            assert!(breaches.is_empty(), "requests broke the protocol: {breaches:#?}");
        }
    }
}

fn serve(mut stream: TcpStream, state: &Mutex<Shared>) {
    let Some((head, bytes)) = read_request(&mut stream) else { return };
    let body: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    let path = head.split(' ').nth(1).unwrap_or_default();
    let counts =
        [("/messages/count_tokens", "messages_count"), ("/responses/input_tokens", "responses_count")];
    if let Some((_, kind)) = counts.iter().find(|(end, _)| path.ends_with(end)) {
        let mut shared = state.lock().unwrap();
        shared.counts.push(body.clone());
        let reply = shared.count.map(|tokens| match *kind {
            "responses_count" => {
                json!({"object": "response.input_tokens", "input_tokens": tokens}).to_string()
            }
            _ => json!({ "input_tokens": tokens }).to_string(),
        });
        dump(kind, &body, reply.as_deref().unwrap_or_default());
        let status = if reply.is_some() { 200 } else { 404 };
        return answer(&mut stream, status, &[], reply.unwrap_or_default().as_bytes());
    }
    let dialect = Dialect::of(&head);
    let (turn, reply) = {
        let mut shared = state.lock().unwrap();
        let turn = shared.requests.len();
        let breach = match dialect {
            None => Some(format!("asked for {}", head.lines().next().unwrap_or_default())),
            Some(dialect) => dialect.judge(&head, &body).or_else(|| {
                if shared.allow_compaction { None } else { grows(dialect, &shared.requests, &body) }
            }),
        };
        shared.requests.push(body.clone());
        shared.bodies.push(bytes);
        shared.heads.push(head);
        let reply = match breach {
            Some(breach) => {
                shared.breaches.push(breach.clone());
                StubReply::status(400, &[], &json!({"error": {"message": breach}}).to_string())
            }
            None => shared.replies.get(turn).cloned().unwrap_or_else(|| StubReply::text("(no reply left)")),
        };
        (turn, reply)
    };
    let (more, reply) = match reply {
        StubReply::With { headers, reply } => (headers, *reply),
        reply => (Vec::new(), reply),
    };
    if let Some(dialect) = dialect.filter(|_| !matches!(reply, StubReply::Message { .. })) {
        dump(&format!("{dialect:?}").to_lowercase(), &body, "");
    }
    match reply {
        StubReply::With { .. } => unreachable!("headers around headers"),
        StubReply::Message { text, thought, calls, mut usage } => {
            if usage.is_null() {
                usage = usage_of(&body);
                state.lock().unwrap().tokens += usage["total_tokens"].as_u64().unwrap();
            }
            let streamed = body["stream"] == json!(true);
            let dialect = dialect.unwrap_or(Dialect::Chat);
            let said = Said { turn, text: &text, thought: &thought, calls: &calls, usage: &usage };
            let (kind, payload) = dialect.reply(&said, streamed);
            dump(&format!("{dialect:?}").to_lowercase(), &body, &payload);
            let headers = [vec![("content-type".to_owned(), kind.to_owned())], more].concat();
            answer(&mut stream, 200, &headers, payload.as_bytes());
        }
        StubReply::Status { status, headers, body } => answer(&mut stream, status, &headers, body.as_bytes()),
        StubReply::Raw { pieces, pause } => {
            let _ = stream.set_nodelay(true);
            for piece in pieces {
                if stream.write_all(&piece).is_err() {
                    return;
                }
                std::thread::sleep(pause);
            }
        }
        StubReply::Hang => {
            // Ends when the client leaves.
            let _ = stream.read(&mut [0; 64]);
        }
    }
}

/// The head and the body of one request.
pub fn read_request(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut piece = [0; 8192];
    loop {
        if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length: usize = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
            })?;
            while bytes.len() < end + 4 + length {
                match stream.read(&mut piece).ok()? {
                    0 => return None,
                    n => bytes.extend_from_slice(&piece[..n]),
                }
            }
            return Some((head, bytes.split_off(end + 4)));
        }
        match stream.read(&mut piece).ok()? {
            0 => return None,
            n => bytes.extend_from_slice(&piece[..n]),
        }
    }
}

/// Answers with a status, headers and a body, and says that the connection is closed.
pub fn answer(stream: &mut TcpStream, status: u16, headers: &[(String, String)], body: &[u8]) {
    let mut head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

fn finish(calls: &[(String, String)]) -> &'static str {
    if calls.is_empty() { "stop" } else { "tool_calls" }
}

/// A whole reply. Call ids are `call_<turn>_<n>`.
pub fn body_of(turn: usize, text: &str, calls: &[(String, String)], usage: &Value) -> String {
    let mut message = json!({"role": "assistant", "content": text});
    if !calls.is_empty() {
        message["content"] = Value::Null;
        message["tool_calls"] = calls
            .iter()
            .enumerate()
            .map(|(n, (name, arguments))| {
                json!({"id": format!("call_{turn}_{n}"), "type": "function",
                       "function": {"name": name, "arguments": arguments}})
            })
            .collect();
    }
    let choice = json!({"index": 0, "message": message, "finish_reason": finish(calls)});
    json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "stub",
           "choices": [choice], "usage": usage})
    .to_string()
}

/// The same reply as a stream, arguments in pieces of a few letters.
pub fn stream_of(turn: usize, text: &str, calls: &[(String, String)], usage: &Value) -> String {
    let chunk = |delta: Value, finish: Value| {
        let choices = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
        format!(
            "data: {}\n\n",
            json!({"model": "stub", "object": "chat.completion.chunk", "choices": choices})
        )
    };
    let mut out = chunk(json!({"role": "assistant", "content": null}), Value::Null);
    for word in text.split_inclusive(' ') {
        out.push_str(&chunk(json!({"content": word}), Value::Null));
    }
    for (n, (name, arguments)) in calls.iter().enumerate() {
        let head = json!({"index": n, "id": format!("call_{turn}_{n}"), "type": "function",
                          "function": {"name": name, "arguments": ""}});
        out.push_str(&chunk(json!({"tool_calls": [head]}), Value::Null));
        for piece in arguments.chars().collect::<Vec<_>>().chunks(5) {
            let piece: String = piece.iter().collect();
            let call = json!({"index": n, "function": {"arguments": piece}});
            out.push_str(&chunk(json!({"tool_calls": [call]}), Value::Null));
        }
    }
    out.push_str(&chunk(json!({}), finish(calls).into()));
    out.push_str(&format!("data: {}\n\n", json!({"model": "stub", "choices": [], "usage": usage})));
    out.push_str("data: [DONE]\n\n");
    out
}

/// Whether the conversation goes on from the one before it of the same system prompt.
fn grows(dialect: Dialect, earlier: &[Value], body: &Value) -> Option<String> {
    let before = earlier.iter().rev().find(|e| dialect.system(e) == dialect.system(body))?;
    let (before, messages) = (dialect.conversation(before), dialect.conversation(body));
    (!messages.starts_with(before)).then(|| "the conversation was changed, not appended to".to_owned())
}

/// Keeps a request and its reply, if the environment names a folder for them.
fn dump(kind: &str, request: &Value, reply: &str) {
    let Some(folder) = std::env::var_os("CHEMIGRAM_WIRE_DUMP") else { return };
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let both = json!({"dialect": kind, "request": request, "reply": reply});
    let file = format!("{}-{n}.json", std::process::id());
    std::fs::write(std::path::Path::new(&folder).join(file), both.to_string()).unwrap();
}

/// The first breach of the protocol in a request, if any.
fn judge(body: &Value) -> Option<String> {
    let messages = body["messages"].as_array().filter(|m| !m.is_empty())?;
    let mut open: Vec<String> = Vec::new();
    let mut ids = HashSet::new();
    for (at, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if (role == "system") != (at == 0) {
            return Some(format!("message {at} is `{role}`: one system message, and first"));
        }
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            if open.first().map(String::as_str) != Some(id) {
                return Some(format!("message {at} answers `{id}`, but open are {open:?}"));
            }
            open.remove(0);
        } else if !open.is_empty() {
            return Some(format!("message {at} is `{role}` while calls {open:?} have no result"));
        }
        let parts = message["content"].as_array().cloned().unwrap_or_default();
        for part in parts.iter().filter(|p| p["type"] == "image_url") {
            let url = part["image_url"]["url"].as_str().unwrap_or_default();
            if role != "user" || !url.starts_with("data:image/jpeg;base64,") {
                return Some(format!("message {at} is `{role}` and holds a picture"));
            }
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let id = call["id"].as_str().unwrap_or_default().to_owned();
            let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
            if !serde_json::from_str::<Value>(arguments).is_ok_and(|a| a.is_object()) {
                return Some(format!("call {id} has arguments {arguments:?}"));
            }
            if id.is_empty() || !ids.insert(id.clone()) {
                return Some(format!("call id `{id}` is empty or used twice"));
            }
            open.push(id);
        }
    }
    (!open.is_empty()).then(|| format!("calls {open:?} have no result"))
}
