//! The spans of a session, from its lines.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{
    Event as SpanEvent, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Array, InstrumentationScope, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents};
use serde::Serialize;
use serde_json::json;

use crate::budget::Amounts;
use crate::conversation::{Finish, Message, ToolCall, Usage};
use crate::transcript::{Event, Line, ModelName, Outcome, RefereeReply, SessionStart};
use base::ids::Hash;

/// The variable that lets prompts, replies, arguments and results into the spans, as the conventions name it.
const CAPTURE: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";

/// The version of the conventions whose names are used.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.44.0";

/// What the conventions call a provider, where that differs from the name of its profile.
const PROVIDERS: [(&str, &str); 3] = [("gemini", "gcp.gemini"), ("mistral", "mistral_ai"), ("xai", "x_ai")];

/// Whether spans hold what was said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// Names, figures and codes.
    #[default]
    Off,
    /// Prompts, replies, arguments, results and error messages, too.
    On,
}

impl Content {
    /// What the environment asks for.
    pub fn from_env() -> Self {
        let wanted = std::env::var(CAPTURE).unwrap_or_default().to_lowercase();
        match wanted.as_str() {
            "true" | "1" | "span_only" | "span_and_event" => Self::On,
            _ => Self::Off,
        }
    }
}

/// All spans of a session so far, the session's own last. One that was resumed after its end has that once.
pub fn spans(lines: &[Line], content: Content) -> Vec<SpanData> {
    let mut fold = Spans::new(content);
    let mut found: Vec<SpanData> = lines.iter().flat_map(|line| fold.fold(line)).collect();
    found.extend(lines.last().filter(|_| !fold.ended).and_then(|last| fold.root(last, None)));
    let mut newest = BTreeMap::new();
    for (at, span) in found.iter().enumerate() {
        newest.insert(span.span_context.span_id().to_bytes(), at);
    }
    let mut at = 0usize..;
    found.retain(|span| newest.get(&span.span_context.span_id().to_bytes()).copied() == at.next());
    found
}

/// The fold of lines into spans.
pub struct Spans {
    content: Content,
    session: String,
    root: Option<Open>,
    /// What is under way, by its line.
    open: BTreeMap<u64, Open>,
    /// The line of the tool call under way.
    tool: Option<u64>,
    model: ModelName,
    referee: Option<ModelName>,
    /// What the model has not been sent yet.
    said: Vec<serde_json::Value>,
    /// What happened to the session.
    events: Vec<SpanEvent>,
    used: Usage,
    ended: bool,
}

/// A span that has begun.
struct Open {
    seq: u64,
    parent: Option<u64>,
    kind: SpanKind,
    name: String,
    begun: SystemTime,
    mono_ms: u64,
    attributes: Vec<KeyValue>,
}

impl Open {
    fn at(line: &Line, kind: SpanKind, name: String, attributes: Vec<KeyValue>) -> Self {
        let (begun, mono_ms) = (SystemTime::from(line.t), line.mono_ms);
        Self { seq: line.seq, parent: Some(0), kind, name, begun, mono_ms, attributes }
    }
}

/// How a span failed: a code, and what was said about it.
struct Error {
    code: String,
    words: String,
}

impl Error {
    fn new(code: impl Serialize, words: &str) -> Self {
        Self { code: word(code), words: words.to_owned() }
    }
}

impl Spans {
    /// Before the first line.
    pub fn new(content: Content) -> Self {
        Self {
            content,
            session: String::new(),
            root: None,
            open: BTreeMap::new(),
            tool: None,
            model: ModelName { provider: String::new(), model: String::new() },
            referee: None,
            said: Vec::new(),
            events: Vec::new(),
            used: Usage::default(),
            ended: false,
        }
    }

    /// The spans that the line ends.
    pub fn fold(&mut self, line: &Line) -> Vec<SpanData> {
        match &line.event {
            Event::SessionStart(start) => self.begin(line, start),
            Event::Plan { text }
            | Event::Nudge { text }
            | Event::Message { text }
            | Event::Brief { text, .. } => self.say("user", text),
            Event::ModelIntent(intent) => {
                let mut attributes = self.chat(&self.model);
                attributes
                    .push(KeyValue::new("gen_ai.request.max_tokens", i64::from(intent.max_output_tokens)));
                attributes.push(number("chemigram.turn", intent.turn));
                attributes.push(number("chemigram.attempt", intent.attempt.into()));
                // What was sent before is in the spans before.
                let said = serde_json::Value::Array(self.said.clone());
                self.tell(&mut attributes, "gen_ai.input.messages", || said.to_string());
                let name = format!("chat {}", self.model.model);
                self.open(Open::at(line, SpanKind::Client, name, attributes));
            }
            Event::Attempt { intent, class, status, message, settled, .. } => {
                let mut attributes = spent(settled);
                let status = status.map(|status| number("http.response.status_code", status.into()));
                attributes.extend(status);
                return self.close(line, *intent, attributes, Some(Error::new(class, message)));
            }
            Event::ModelReply { intent, message, finish, usage, settled, model_served, .. } => {
                self.said.clear();
                let mut attributes = tokens(usage);
                attributes.extend(spent(settled));
                attributes.push(texts("gen_ai.response.finish_reasons", &[reason(finish)]));
                let served = model_served.clone();
                attributes.extend(served.map(|model| KeyValue::new("gen_ai.response.model", model)));
                self.tell(&mut attributes, "gen_ai.output.messages", || replied(message, finish));
                self.used = together(&self.used, usage);
                return self.close(line, *intent, attributes, None);
            }
            Event::Fallback { to, .. } => {
                self.model = to.clone();
                let attributes = vec![provider(to), KeyValue::new("gen_ai.request.model", to.model.clone())];
                self.happened(line, "chemigram.fallback", attributes);
            }
            Event::ToolCall(intent) => {
                self.tool = Some(line.seq);
                let mut attributes = self.tool_attributes(&intent.call);
                attributes.push(KeyValue::new("chemigram.tool.class", word(intent.class)));
                attributes.extend(intent.engine.then(|| KeyValue::new("chemigram.tool.by", "protocol")));
                let name = format!("execute_tool {}", intent.call.name);
                self.open(Open::at(line, SpanKind::Internal, name, attributes));
            }
            Event::ToolResult { intent, result, code, .. } => {
                let seq = intent.unwrap_or_else(|| {
                    // Refused before it began.
                    let call = ToolCall {
                        id: result.call_id.clone(),
                        name: result.name.clone(),
                        arguments: String::new(),
                        extra: serde_json::Map::new(),
                    };
                    let (attributes, name) =
                        (self.tool_attributes(&call), format!("execute_tool {}", call.name));
                    self.open(Open::at(line, SpanKind::Internal, name, attributes));
                    line.seq
                });
                self.tool = None;
                let mut attributes = Vec::new();
                self.tell(&mut attributes, "gen_ai.tool.call.result", || result.text.clone());
                if self.content == Content::On {
                    let (id, text) = (&result.call_id, &result.text);
                    let part = json!({ "type": "tool_call_response", "id": id, "response": text });
                    self.said.push(json!({ "role": "tool", "parts": [part] }));
                }
                let error = code.map(|code| Error::new(code, &result.text));
                return self.close(line, seq, attributes, error);
            }
            Event::RenderIntent(intent) => {
                // The picture that was begun ahead is the one that is waited for now.
                intent.joins.map(|ahead| self.open.remove(&ahead));
                let attributes = vec![
                    KeyValue::new("chemigram.render.quality", intent.quality.as_str()),
                    number("chemigram.render.long_edge", intent.long_edge.into()),
                    KeyValue::new("chemigram.render.ahead", intent.ahead || intent.joins.is_some()),
                    KeyValue::new("chemigram.render.cached", false),
                ];
                let parent = self.tool.filter(|_| !intent.ahead).or(Some(0));
                let name = format!("render {}", intent.quality.as_str());
                self.open(Open { parent, ..Open::at(line, SpanKind::Internal, name, attributes) });
            }
            Event::Render { intent, long_edge, quality, error, .. } => {
                let seq = intent.unwrap_or_else(|| {
                    let attributes = vec![
                        KeyValue::new("chemigram.render.quality", quality.as_str()),
                        number("chemigram.render.long_edge", (*long_edge).into()),
                        KeyValue::new("chemigram.render.cached", true),
                    ];
                    let name = format!("render {}", quality.as_str());
                    let parent = self.tool.or(Some(0));
                    self.open(Open { parent, ..Open::at(line, SpanKind::Internal, name, attributes) });
                    line.seq
                });
                let error = error.as_ref().map(|words| Error::new("render_failed", words));
                return self.close(line, seq, Vec::new(), error);
            }
            Event::RefereeIntent(intent) => {
                let asked = self.referee.clone().filter(|_| intent.request.is_some());
                let (kind, name, mut attributes) = match &asked {
                    Some(model) => (SpanKind::Client, format!("chat {}", model.model), self.chat(model)),
                    None => (SpanKind::Internal, "referee".to_owned(), Vec::new()),
                };
                attributes.push(KeyValue::new("chemigram.referee", true));
                attributes.push(number("chemigram.attempt", intent.attempt.into()));
                self.open(Open::at(line, kind, name, attributes));
            }
            Event::Referee(reply) => return self.refereed(line, reply),
            Event::Judgment(judgment) => {
                let mut attributes = vec![
                    KeyValue::new("gen_ai.evaluation.name", "judged_score"),
                    KeyValue::new("gen_ai.evaluation.score.value", f64::from(judgment.judged_score)),
                    KeyValue::new("chemigram.branch", judgment.branch.to_string()),
                    KeyValue::new("chemigram.judgment.source", word(judgment.source)),
                ];
                let reasoning = || judgment.judged_reasoning.clone();
                self.tell(&mut attributes, "gen_ai.evaluation.explanation", reasoning);
                self.happened(line, "gen_ai.evaluation.result", attributes);
            }
            Event::CapFired { exhausted } => {
                let cap = vec![KeyValue::new("chemigram.cap", word(exhausted.cap))];
                self.happened(line, "chemigram.cap_fired", cap);
            }
            Event::WrapUp { text, .. } => {
                self.say("user", text);
                self.happened(line, "chemigram.wrap_up", Vec::new());
            }
            Event::Chapter { cause, text, .. } => {
                self.said.clear();
                self.say("user", text);
                let cause = vec![KeyValue::new("chemigram.chapter.cause", word(cause))];
                self.happened(line, "chemigram.chapter", cause);
            }
            Event::Resumed { .. } => {
                self.ended = false;
                self.happened(line, "chemigram.resumed", Vec::new());
                let tool = self.tool;
                if let Some(open) = tool.and_then(|seq| self.open.get_mut(&seq)) {
                    // It is run again, now.
                    (open.begun, open.mono_ms) = (SystemTime::from(line.t), line.mono_ms);
                }
                return self.interrupt(line, tool);
            }
            Event::SessionEnd(end) => {
                self.ended = true;
                let mut ended = self.interrupt(line, None);
                ended.extend(self.root(line, Some((end.outcome, &end.spent, &end.reason))));
                return ended;
            }
            _ => {}
        }
        Vec::new()
    }

    fn begin(&mut self, line: &Line, start: &SessionStart) {
        self.session = start.session.to_string();
        self.model = ModelName { provider: start.provider.clone(), model: start.model.clone() };
        let referee = start.referee.as_ref();
        self.referee = referee.map(|r| ModelName { provider: r.provider.clone(), model: r.model.clone() });
        let mut attributes = vec![
            KeyValue::new("gen_ai.operation.name", "invoke_agent"),
            KeyValue::new("gen_ai.agent.name", "chemigram"),
            KeyValue::new("gen_ai.agent.version", start.chemigram.clone()),
            KeyValue::new("gen_ai.conversation.id", self.session.clone()),
            KeyValue::new("gen_ai.request.model", start.model.clone()),
            provider(&self.model),
            KeyValue::new("chemigram.mode", word(start.mode)),
            KeyValue::new("chemigram.prompt", start.prompt.clone()),
            KeyValue::new("chemigram.darktable.version", start.darktable.clone()),
        ];
        self.tell(&mut attributes, "chemigram.photo", || start.photo.to_string());
        let name = "invoke_agent chemigram".to_owned();
        self.root = Some(Open { parent: None, ..Open::at(line, SpanKind::Internal, name, attributes) });
    }

    fn refereed(&mut self, line: &Line, reply: &RefereeReply) -> Vec<SpanData> {
        let Some(seq) = reply.intent else { return Vec::new() };
        let mut attributes = reply.usage.as_ref().map(tokens).unwrap_or_default();
        attributes.extend(spent(&reply.settled));
        let served = reply.model_served.clone();
        attributes.extend(served.map(|model| KeyValue::new("gen_ai.response.model", model)));
        let opinion = reply.opinion.as_ref().map(ToString::to_string);
        self.tell(&mut attributes, "gen_ai.output.messages", || {
            let part = json!({ "type": "text", "content": opinion.unwrap_or_default() });
            json!([{ "role": "assistant", "parts": [part], "finish_reason": "stop" }]).to_string()
        });
        let error = reply.error.as_ref().map(|words| Error::new("referee_failed", words));
        self.close(line, seq, attributes, error)
    }

    /// The session's own span, up to this line.
    fn root(&self, line: &Line, end: Option<(Outcome, &Amounts, &str)>) -> Option<SpanData> {
        let open = self.root.as_ref()?;
        let mut attributes = open.attributes.clone();
        attributes.extend(tokens(&self.used));
        let mut error = None;
        if let Some((outcome, amounts, reason)) = end {
            attributes.push(KeyValue::new("chemigram.outcome", outcome.as_str()));
            attributes.extend(spent(amounts));
            attributes.push(number("chemigram.spent.iterations", amounts.iterations));
            attributes.push(number("chemigram.spent.renders", amounts.renders));
            let failed =
                matches!(outcome, Outcome::ProviderFailed | Outcome::EngineFailed | Outcome::ProtocolFailed);
            error = failed.then(|| Error::new(outcome, reason));
        }
        let mut events = SpanEvents::default();
        events.events.clone_from(&self.events);
        let span = self.span(open, line, attributes, error);
        // It holds the time between two runs, too.
        let end_time = span.end_time.max(line.t.into());
        Some(SpanData { events, end_time, ..span })
    }

    fn chat(&self, model: &ModelName) -> Vec<KeyValue> {
        vec![
            KeyValue::new("gen_ai.operation.name", "chat"),
            KeyValue::new("gen_ai.conversation.id", self.session.clone()),
            KeyValue::new("gen_ai.request.model", model.model.clone()),
            provider(model),
        ]
    }

    fn tool_attributes(&self, call: &ToolCall) -> Vec<KeyValue> {
        let mut attributes = vec![
            KeyValue::new("gen_ai.operation.name", "execute_tool"),
            KeyValue::new("gen_ai.conversation.id", self.session.clone()),
            KeyValue::new("gen_ai.tool.name", call.name.clone()),
            KeyValue::new("gen_ai.tool.call.id", call.id.clone()),
            KeyValue::new("gen_ai.tool.type", "function"),
        ];
        self.tell(&mut attributes, "gen_ai.tool.call.arguments", || call.arguments.clone());
        attributes
    }

    fn say(&mut self, role: &str, text: &str) {
        if self.content == Content::On && !text.is_empty() {
            self.said.push(json!({ "role": role, "parts": [{ "type": "text", "content": text }] }));
        }
    }

    fn tell(&self, attributes: &mut Vec<KeyValue>, name: &'static str, text: impl FnOnce() -> String) {
        if self.content == Content::On {
            attributes.push(KeyValue::new(name, text()));
        }
    }

    fn happened(&mut self, line: &Line, name: &'static str, attributes: Vec<KeyValue>) {
        self.events.push(SpanEvent::new(name, line.t.into(), attributes, 0));
    }

    fn open(&mut self, open: Open) {
        self.open.insert(open.seq, open);
    }

    fn close(&mut self, line: &Line, seq: u64, more: Vec<KeyValue>, error: Option<Error>) -> Vec<SpanData> {
        let Some(open) = self.open.remove(&seq) else { return Vec::new() };
        let attributes = [open.attributes.clone(), more].concat();
        vec![self.span(&open, line, attributes, error)]
    }

    /// Ends what is under way, but for the call of the line `except`: nobody knows what became of it.
    fn interrupt(&mut self, line: &Line, except: Option<u64>) -> Vec<SpanData> {
        let under_way: Vec<u64> = self.open.keys().copied().filter(|seq| Some(*seq) != except).collect();
        let close = |seq| self.close(line, seq, Vec::new(), Some(Error::new("interrupted", "")));
        under_way.into_iter().flat_map(close).collect()
    }

    fn span(
        &self,
        open: &Open,
        line: &Line,
        mut attributes: Vec<KeyValue>,
        error: Option<Error>,
    ) -> SpanData {
        let status = match &error {
            None => Status::Unset,
            Some(Error { words, .. }) if self.content == Content::On => Status::error(words.clone()),
            Some(_) => Status::error(""),
        };
        attributes.extend(error.map(|error| KeyValue::new("error.type", error.code)));
        let (trace, own) = (self.trace_id(), self.span_id(open.seq));
        SpanData {
            span_context: SpanContext::new(trace, own, TraceFlags::SAMPLED, false, TraceState::default()),
            parent_span_id: open.parent.map_or(SpanId::INVALID, |seq| self.span_id(seq)),
            parent_span_is_remote: false,
            span_kind: open.kind.clone(),
            name: open.name.clone().into(),
            start_time: open.begun,
            // Session time does not run while the machine's clock is set.
            end_time: open.begun + Duration::from_millis(line.mono_ms.saturating_sub(open.mono_ms)),
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: opentelemetry_sdk::trace::SpanLinks::default(),
            status,
            instrumentation_scope: InstrumentationScope::builder("chemigram")
                .with_version(env!("CARGO_PKG_VERSION"))
                .with_schema_url(SCHEMA)
                .build(),
        }
    }

    /// The session's id, which is a UUID: 128 bits, as a trace's.
    fn trace_id(&self) -> TraceId {
        let digits: String = self.session.chars().filter(|c| *c != '-').collect();
        TraceId::from_hex(&digits).unwrap_or(TraceId::INVALID)
    }

    /// Of the session and the number of the line with which the span begins.
    fn span_id(&self, seq: u64) -> SpanId {
        let digest = Hash::of(format!("{}:{seq}", self.session)).to_string();
        digest.get(..16).and_then(|digits| SpanId::from_hex(digits).ok()).unwrap_or(SpanId::INVALID)
    }
}

/// A name as JSON has it.
fn word(value: impl Serialize) -> String {
    let name = serde_json::to_value(value).ok();
    name.and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_else(|| "_OTHER".to_owned())
}

fn number(name: &'static str, value: u64) -> KeyValue {
    KeyValue::new(name, i64::try_from(value).unwrap_or(i64::MAX))
}

fn texts(name: &'static str, values: &[String]) -> KeyValue {
    let values = values.iter().cloned().map(StringValue::from).collect();
    KeyValue::new(name, Value::Array(Array::String(values)))
}

fn provider(model: &ModelName) -> KeyValue {
    let name = PROVIDERS.iter().find(|(ours, _)| *ours == model.provider);
    let name = name.map_or_else(|| model.provider.clone(), |(_, theirs)| (*theirs).to_owned());
    KeyValue::new("gen_ai.provider.name", name)
}

/// Why a reply ended, in the words of the conventions.
fn reason(finish: &Finish) -> String {
    match finish {
        Finish::Stop => "stop".to_owned(),
        Finish::ToolCalls => "tool_call".to_owned(),
        Finish::Length => "length".to_owned(),
        Finish::Refusal => "content_filter".to_owned(),
        Finish::Other(reason) => reason.clone(),
    }
}

/// The tokens that were reported; what was read from a cache is part of the input, as the conventions want it.
fn tokens(usage: &Usage) -> Vec<KeyValue> {
    let input = [usage.input_fresh, usage.input_cache_read, usage.input_cache_write];
    let rows = [
        ("gen_ai.usage.input_tokens", input.into_iter().flatten().reduce(u64::saturating_add)),
        ("gen_ai.usage.output_tokens", usage.output),
        ("gen_ai.usage.cache_read.input_tokens", usage.input_cache_read),
        ("gen_ai.usage.cache_creation.input_tokens", usage.input_cache_write),
        ("gen_ai.usage.reasoning.output_tokens", usage.reasoning),
    ];
    rows.into_iter().filter_map(|(name, value)| value.map(|value| number(name, value))).collect()
}

fn together(a: &Usage, b: &Usage) -> Usage {
    let sum = |a: Option<u64>, b: Option<u64>| [a, b].into_iter().flatten().reduce(u64::saturating_add);
    Usage {
        input_fresh: sum(a.input_fresh, b.input_fresh),
        input_cache_read: sum(a.input_cache_read, b.input_cache_read),
        input_cache_write: sum(a.input_cache_write, b.input_cache_write),
        output: sum(a.output, b.output),
        reasoning: sum(a.reasoning, b.reasoning),
    }
}

/// What was charged.
fn spent(amounts: &Amounts) -> Vec<KeyValue> {
    vec![
        number("chemigram.spent.tokens", amounts.tokens),
        number("chemigram.spent.cost_micro_usd", amounts.cost_micro_usd),
    ]
}

/// A reply, as the conventions write messages.
fn replied(message: &Message, finish: &Finish) -> String {
    let Message::Assistant { text, calls, .. } = message else { return "[]".to_owned() };
    let said = (!text.is_empty()).then(|| json!({ "type": "text", "content": text }));
    let calls = calls.iter().map(|call| {
        let arguments = serde_json::from_str(&call.arguments);
        let arguments: serde_json::Value = arguments.unwrap_or_else(|_| call.arguments.clone().into());
        json!({ "type": "tool_call", "id": call.id, "name": call.name, "arguments": arguments })
    });
    let parts: Vec<serde_json::Value> = said.into_iter().chain(calls).collect();
    json!([{ "role": "assistant", "parts": parts, "finish_reason": reason(finish) }]).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of earlier builds, one of each kind.
    const EARLIER: &str = include_str!("../transcript/earlier.jsonl");

    fn one(kind: &str) -> Event {
        let lines = EARLIER.lines().map(|text| serde_json::from_str::<Line>(text).unwrap());
        let events = lines.map(|line| line.event);
        let mut found = events.filter(|event| serde_json::to_value(event).unwrap()["kind"] == kind);
        found.next().unwrap()
    }

    #[test]
    fn what_a_crash_interrupts_is_one_span_and_a_session_that_goes_on_is_one_trace() {
        let resumed = || Event::Resumed { assumed_ms: 0, torn: false };
        let mut result = one("tool_result");
        if let Event::ToolResult { intent, .. } = &mut result {
            *intent = Some(3);
        }
        let events = [
            one("session_start"),
            one("model_intent"),
            resumed(),
            one("tool_call"),
            resumed(),
            result,
            one("session_end"),
            resumed(),
            one("session_end"),
        ];
        let at = |seq: usize, event: Event| Line {
            seq: seq as u64,
            t: jiff::Timestamp::from_second(1_000 + 10 * seq as i64).unwrap(),
            mono_ms: 1_000 * seq as u64,
            prev: Hash::of(b""),
            event,
        };
        let lines: Vec<Line> = events.into_iter().enumerate().map(|(seq, event)| at(seq, event)).collect();
        let found = spans(&lines, Content::Off);
        let names: Vec<&str> = found.iter().map(|span| span.name.as_ref()).collect();
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(
            names[0].starts_with("chat ")
                && names[1..] == ["execute_tool read_context", "invoke_agent chemigram"]
        );
        let second = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let times: Vec<(u64, u64)> =
            found.iter().map(|s| (second(s.start_time), second(s.end_time))).collect();
        assert_eq!(times, [(1_010, 1_011), (1_040, 1_041), (1_000, 1_080)]);
        let interrupted = KeyValue::new("error.type", "interrupted");
        assert_eq!(found.iter().filter(|span| span.attributes.contains(&interrupted)).count(), 1);
        assert_eq!(found[2].events.len(), 3, "resumed three times");
        assert!(found[..2].iter().all(|span| span.parent_span_id == found[2].span_context.span_id()));
        // While it runs, its own span ends at its last line.
        let running = spans(&lines[..6], Content::Off);
        assert_eq!(second(running.last().unwrap().end_time), 1_050);
        // Lines of every kind, in any order, are no reason to stop.
        let all: Vec<Line> = EARLIER.lines().map(|text| serde_json::from_str(text).unwrap()).collect();
        assert!(!spans(&all, Content::On).is_empty());
    }
}
