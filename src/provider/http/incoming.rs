//! The body of a reply as it arrives.

use std::time::Duration;

use serde_json::Value;

use crate::provider::FaultClass;
use crate::provider::classify::{self, Classification};
use crate::provider::dialect::{Reading, Step};
use crate::provider::json;
use crate::provider::reply::Draft;
use crate::provider::sse::{EVENT, Sse};

/// Events of Anthropic and of OpenAI that only keep the connection alive.
const ALIVE: [&str; 2] = ["ping", "keepalive"];
/// The longest such event, in bytes: as much of one may come without its end.
const PING: usize = 64;

/// A body as it arrives.
#[derive(Default)]
pub(super) struct Incoming {
    pub raw: Vec<u8>,
    pub first_byte: Option<Duration>,
    /// How often something of a reply came: an event, or a part of one. What only keeps the connection alive is none.
    pub events: u64,
    /// The splitter, if the body is an event stream.
    sse: Option<Sse>,
    pub draft: Draft,
    reading: Reading,
    /// `[DONE]` was seen.
    done: bool,
    error: Option<Classification>,
    /// The server itself sent an error.
    pub reported_error: bool,
    pub note: Option<String>,
}

impl Incoming {
    /// Nothing yet of a body, which may be an event stream.
    pub fn new(streams: bool, reading: Reading) -> Self {
        Self { sse: streams.then(Sse::default), reading, ..Self::default() }
    }

    pub fn push(&mut self, piece: &[u8]) {
        self.raw.extend_from_slice(piece);
        let held = |incoming: &Self| incoming.sse.as_ref().map_or(0, Sse::held);
        let before = held(self).max(PING);
        for payload in self.sse.as_mut().map(|sse| sse.push(piece)).unwrap_or_default() {
            self.take(&payload);
        }
        self.events += u64::from(self.sse.is_none() || held(self) > before);
        if self.sse.as_ref().is_some_and(Sse::too_long) && !self.ended() {
            self.garbage(format!("an event of the stream has more than {EVENT} bytes"));
        }
    }

    pub fn ended(&self) -> bool {
        self.done || self.error.is_some()
    }

    /// Takes the end of the body. A body that is not what its content type says is read as what it is.
    pub fn finish(&mut self) {
        let bare = self.raw.trim_ascii_start();
        let json = bare.starts_with(b"{") || bare.starts_with(b"[");
        let events = [&b"data:"[..], b"event:", b":"].iter().any(|mark| bare.starts_with(mark));
        match self.sse.take() {
            Some(sse) if !json || self.ended() || self.draft.any_choice() => {
                for payload in sse.end() {
                    self.take(&payload);
                }
            }
            None if events => {
                let mut sse = Sse::default();
                let payloads = sse.push(&self.raw);
                for payload in payloads.into_iter().chain(sse.end()) {
                    self.take(&payload);
                }
            }
            _ => {
                // One whole body: with its end it has all it needs.
                self.done = true;
                let raw = std::mem::take(&mut self.raw);
                match json::parse(&raw) {
                    Ok(value) => self.take_value(&String::from_utf8_lossy(&raw), &value),
                    Err(why) => self.garbage(format!("the body {why}")),
                }
                self.raw = raw;
            }
        }
    }

    fn take(&mut self, payload: &str) {
        if self.ended() {
            return;
        }
        if payload.trim() == "[DONE]" {
            self.done = true;
            return;
        }
        match json::parse(payload.as_bytes()) {
            Ok(value) => self.take_value(payload, &value),
            Err(why) => self.garbage(format!("an event of the stream {why}")),
        }
    }

    fn take_value(&mut self, text: &str, value: &Value) {
        let kind = value.get("type").and_then(Value::as_str);
        self.events += u64::from(!kind.is_some_and(|kind| ALIVE.contains(&kind)));
        match self.reading.take(text, value, &mut self.draft) {
            Step::Failed(holder) => {
                self.error = Some(classify::in_body(&holder));
                self.reported_error = true;
            }
            Step::Done => self.done = true,
            Step::More => {}
        }
        if let (None, Some(excess)) = (&self.error, self.draft.excess()) {
            self.garbage(excess.to_owned());
        }
    }

    fn garbage(&mut self, message: String) {
        self.error = Some(Classification { class: FaultClass::Garbage, message, retry_after: None });
    }

    /// Whether this is a reply, perhaps with a note, or why it is not.
    pub fn verdict(&self) -> Result<Option<String>, Classification> {
        let fault =
            |class, message: &str| Classification { class, message: message.to_owned(), retry_after: None };
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        match (self.draft.finish_reason(), self.done) {
            (Some("error"), _) => Err(fault(FaultClass::Transient, "the provider ended the reply early")),
            (None, false) => Err(fault(FaultClass::Transport, "the stream ended early")),
            _ if !self.draft.any_choice() => {
                Err(fault(FaultClass::Garbage, "the body is JSON but holds no reply"))
            }
            (None, true) => Ok(Some("the reply gave no finish reason".to_owned())),
            (Some(_), _) => Ok(None),
        }
    }
}
