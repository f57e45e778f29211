//! A provider that reads its replies from a file: for tests, demonstrations and replays of a plan.
//!
//! ```toml
//! [model]                                  # all optional
//! vision = true
//! free = true
//!
//! [[reply]]
//! text = "I look first."
//! calls = [{ name = "read_context", arguments = {} }]
//! usage = { input_fresh = 900, output = 40 }
//! fault = { class = "rate_limit", status = 429, retry_after_ms = 20, times = 2 }
//!
//! [[reply]]
//! calls = [{ name = "mode_b_status" }]
//! repeat = 3                               # or "forever"
//!
//! [[reply]]
//! text = "Word by word."
//! word_ms = 50                             # comes in pieces of a word, so long after each other
//! ```
//!
//! It keeps no place of its own: the reply that is due follows from the number of replies before it in
//! the session, so that a resumed session goes on where it was. Only faults are remembered, per process:
//! a reply with a fault fails `times` times, then succeeds.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::profile::{PriceEntry, SetupError};
use super::{
    Attempt, FaultClass, Finish, Message, ModelInfo, ModelReply, ModelRequest, Price, Provider,
    ProviderFault, ToolCall, Usage,
};
use crate::gate::{ModelCall, Permit};
use base::hint::toml_error;
use base::ids::Hash;

/// What is said when the file has no reply left.
pub const END_OF_SCRIPT: &str = "(end of script)";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    model: ModelTable,
    #[serde(default, rename = "reply")]
    replies: Vec<Reply>,
}

/// `[model]`: what the script pretends to be.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ModelTable {
    vision: bool,
    free: bool,
    context: Option<u64>,
    image_tokens: u64,
    price: Option<PriceEntry>,
}

impl Default for ModelTable {
    fn default() -> Self {
        Self { vision: true, free: true, context: None, image_tokens: 0, price: None }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Reply {
    text: String,
    calls: Vec<Call>,
    delay_ms: u64,
    word_ms: u64,
    repeat: Repeat,
    finish: Option<Finish>,
    usage: Usage,
    fault: Option<Fault>,
    /// A body that makes no sense; alone it is a fault of class `garbage`.
    raw: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    name: String,
    /// A table, or a text that is passed on as it is, broken or not.
    #[serde(default)]
    arguments: Value,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fault {
    class: FaultClass,
    status: Option<u16>,
    message: Option<String>,
    retry_after_ms: Option<u64>,
    #[serde(default = "once")]
    times: u32,
    #[serde(default)]
    usage: Usage,
}

fn once() -> u32 {
    1
}

/// How many turns a reply serves.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Value")]
enum Repeat {
    Times(usize),
    Forever,
}

impl Default for Repeat {
    fn default() -> Self {
        Self::Times(1)
    }
}

impl TryFrom<Value> for Repeat {
    type Error = &'static str;
    fn try_from(value: Value) -> Result<Self, Self::Error> {
        match (value.as_str(), value.as_u64().and_then(|n| usize::try_from(n).ok())) {
            (Some("forever"), _) => Ok(Self::Forever),
            (None, Some(n)) if n > 0 => Ok(Self::Times(n)),
            _ => Err("repeat is a number from 1, or \"forever\""),
        }
    }
}

/// The scripted provider.
#[derive(Debug)]
pub struct Script {
    info: ModelInfo,
    replies: Vec<Reply>,
    /// Faults already served, by turn.
    served: Mutex<HashMap<usize, u32>>,
}

impl Script {
    /// Reads a script from a `.toml` or `.json` file.
    pub fn open(path: &Path) -> Result<Self, SetupError> {
        let shown = path.display().to_string();
        let text = base::files::read_text(path, base::files::LARGEST_LIST).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => SetupError::NoScript { path: shown.clone() },
            _ => SetupError::Script { path: shown.clone(), cause: e.to_string() },
        })?;
        Self::parse(&shown, &text)
    }

    /// Reads a script from text: JSON if it begins with a brace, else TOML. `path` names it.
    pub fn parse(path: &str, text: &str) -> Result<Self, SetupError> {
        let bad = |cause: String| SetupError::Script { path: path.to_owned(), cause };
        let file: File = if text.trim_start().starts_with('{') {
            let json = &mut serde_json::Deserializer::from_str(text);
            serde_path_to_error::deserialize(json).map_err(|e| bad(e.to_string()))?
        } else {
            toml::from_str(text).map_err(|e| bad(toml_error(text, &e)))?
        };
        let price = match &file.model.price {
            None => Price::default(),
            Some(entry) => {
                entry.price().ok_or_else(|| bad("model.price: a price is not a number".to_owned()))?
            }
        };
        let info = ModelInfo {
            provider: "script".to_owned(),
            model: path.to_owned(),
            vision: file.model.vision,
            context: file.model.context,
            free: file.model.free,
            price,
            image_tokens: file.model.image_tokens,
            facts: BTreeMap::from([("script_sha256".to_owned(), Hash::of(text).to_string())]),
        };
        Ok(Self { info, replies: file.replies, served: Mutex::default() })
    }

    /// The reply that is due at `turn` (from 0).
    fn due(&self, turn: usize) -> Option<&Reply> {
        let mut end = 0usize;
        self.replies.iter().find(|reply| {
            end = match reply.repeat {
                Repeat::Times(n) => end.saturating_add(n),
                Repeat::Forever => usize::MAX,
            };
            turn < end
        })
    }

    /// Whether this attempt is one that fails; counts it.
    fn fails(&self, turn: usize, times: u32) -> bool {
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        let count = served.entry(turn).or_default();
        let fails = *count < times;
        *count = count.saturating_add(1);
        fails
    }

    fn fault(&self, reply: &Reply, turn: usize) -> Option<ProviderFault> {
        let raw = reply.raw.clone().unwrap_or_default().into_bytes();
        let garbage = || Fault {
            class: FaultClass::Garbage,
            status: Some(200),
            message: Some("the body is not a reply".to_owned()),
            retry_after_ms: None,
            times: 1,
            usage: Usage::default(),
        };
        let fault = reply.fault.clone().or_else(|| reply.raw.is_some().then(garbage))?;
        self.fails(turn, fault.times).then(|| ProviderFault {
            provider: self.info.provider.clone(),
            class: fault.class,
            status: fault.status,
            message: fault.message.unwrap_or_else(|| "a scripted fault".to_owned()),
            remedy: None,
            retry_after: fault.retry_after_ms.map(Duration::from_millis),
            // As on a wire: an error by its status is the server's refusal, anything else was worked on.
            sent: fault.status.is_none_or(|status| (200..300).contains(&status)),
            usage: fault.usage,
            raw,
        })
    }
}

impl Provider for Script {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn attempt<'a>(&'a self, _permit: Permit<ModelCall>, request: &'a ModelRequest<'a>) -> Attempt<'a> {
        Box::pin(async move {
            let here = request.messages.iter().filter(|m| matches!(m, Message::Assistant { .. })).count();
            let turn = here + usize::try_from(request.earlier).unwrap_or(usize::MAX - here);
            let due = self.due(turn);
            let delay = due.map_or(0, |reply| reply.delay_ms);
            if delay > 0 {
                tokio::time::sleep(Duration::from_millis(delay)).await;
            }
            let reply =
                due.cloned().unwrap_or_else(|| Reply { text: END_OF_SCRIPT.to_owned(), ..Reply::default() });
            if let Some(fault) = self.fault(&reply, turn) {
                return Err(fault);
            }
            let calls: Vec<ToolCall> =
                reply.calls.iter().enumerate().map(|(n, call)| call.at(turn, n)).collect();
            let finish = match reply.finish {
                Some(finish) => finish,
                None if calls.is_empty() => Finish::Stop,
                None => Finish::ToolCalls,
            };
            let words = reply.text.match_indices(' ').map(|(at, _)| at + 1);
            for end in words.filter(|_| reply.word_ms > 0) {
                let so_far = reply.text.get(..end).unwrap_or_default();
                (request.on_progress)(end, so_far);
                tokio::time::sleep(Duration::from_millis(reply.word_ms)).await;
            }
            (request.on_progress)(reply.text.len(), &reply.text);
            Ok(ModelReply {
                message: Message::Assistant { text: reply.text, calls, opaque: Vec::new() },
                finish,
                usage: reply.usage,
                cost_micro_usd: None,
                model_served: None,
                raw: Vec::new(),
                first_byte: None,
                notes: Vec::new(),
            })
        })
    }
}

impl Call {
    /// The call as made at a turn; its id follows from the place alone.
    fn at(&self, turn: usize, n: usize) -> ToolCall {
        let arguments = match &self.arguments {
            Value::String(text) => text.clone(),
            Value::Null => "{}".to_owned(),
            other => other.to_string(),
        };
        ToolCall {
            id: format!("call_{turn}_{n}"),
            name: self.name.clone(),
            arguments,
            extra: Default::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Blobs;

    struct NoBlobs;

    impl Blobs for NoBlobs {
        fn bytes(&self, _: &Hash) -> std::io::Result<Vec<u8>> {
            Err(std::io::ErrorKind::NotFound.into())
        }
    }

    const SCRIPT: &str = r#"
        [model]
        free = false
        price = { input = 2.0, output = 10.0, cache_read = 0.1, cache_write = 2.5, as_of = "2026-11-21" }

        [[reply]]
        text = "I look."
        calls = [{ name = "read_context" }, { name = "render_preview", arguments = { size = 8 } }]
        usage = { input_fresh = 900, output = 40 }
        fault = { class = "rate_limit", status = 429, retry_after_ms = 20, times = 2 }

        [[reply]]
        calls = [{ name = "look", arguments = "{broken" }]
        repeat = 2

        [[reply]]
        raw = "<html>"
        text = "after all"
        finish = "length"
    "#;

    /// One attempt after `turns` assistant messages.
    async fn at(script: &Script, turns: usize) -> Result<ModelReply, ProviderFault> {
        let said = Message::Assistant { text: "x".to_owned(), calls: Vec::new(), opaque: Vec::new() };
        let request = ModelRequest {
            model: "m",
            system: "s",
            tools: &[],
            messages: &vec![said; turns],
            earlier: 0,
            max_output_tokens: 9,
            session: "s1",
            seed: None,
            blobs: &NoBlobs,
            time_left: None,
            on_progress: &|_, _| {},
        };
        script.attempt(crate::gate::permit(), &request).await
    }

    fn shown(reply: &ModelReply) -> String {
        let Message::Assistant { text, calls, .. } = &reply.message else { panic!("{reply:?}") };
        let calls: Vec<String> =
            calls.iter().map(|c| format!("{} {}{}", c.id, c.name, c.arguments)).collect();
        format!("{text}|{}", calls.join("|"))
    }

    #[tokio::test]
    async fn the_place_follows_from_the_conversation() {
        let script = Script::parse("x.toml", SCRIPT).unwrap();
        assert_eq!(script.info().price.output, Some(10_000_000));
        for _ in 0..2 {
            let fault = at(&script, 0).await.unwrap_err();
            assert_eq!((fault.class, fault.status), (FaultClass::RateLimit, Some(429)));
            assert_eq!(fault.retry_after, Some(Duration::from_millis(20)));
        }
        let first = at(&script, 0).await.unwrap();
        assert_eq!(shown(&first), "I look.|call_0_0 read_context{}|call_0_1 render_preview{\"size\":8}");
        assert_eq!((first.usage.total(), first.finish), (Some(940), Finish::ToolCalls));
        assert_eq!(shown(&at(&script, 2).await.unwrap()), "|call_2_0 look{broken");
        assert_eq!(shown(&at(&script, 1).await.unwrap()), "|call_1_0 look{broken");
        let fault = at(&script, 3).await.unwrap_err();
        assert_eq!((fault.class, fault.raw.as_slice()), (FaultClass::Garbage, b"<html>".as_slice()));
        let last = at(&script, 3).await.unwrap();
        assert_eq!((shown(&last), last.finish), ("after all|".to_owned(), Finish::Length));
        for turns in [4, 90] {
            assert_eq!(shown(&at(&script, turns).await.unwrap()), "(end of script)|");
        }
        let resumed = Script::parse("x.toml", SCRIPT).unwrap();
        assert_eq!(shown(&at(&resumed, 2).await.unwrap()), "|call_2_0 look{broken");
    }

    #[tokio::test]
    async fn a_json_script_may_go_on_for_ever() {
        let text = r#"{"reply": [{"text": "again", "repeat": "forever"}]}"#;
        let script = Script::parse("x.json", text).unwrap();
        assert_eq!(shown(&at(&script, 5000).await.unwrap()), "again|");
    }

    #[test]
    fn a_broken_script_says_where() {
        let cause = |text: &str| Script::parse("x.toml", text).unwrap_err().to_string();
        let stray = cause("[[reply]]\ntxt = 1\n");
        assert!(stray.contains("line 2, column 1: unknown field `txt`"), "{stray}");
        let none = cause("[[reply]]\nrepeat = 0\n");
        assert!(none.contains("line 2, column 10: repeat is a number from 1"), "{none}");
        let class = cause("[[reply]]\nfault = { class = \"tired\" }\n");
        assert!(class.contains("unknown variant `tired`"), "{class}");
        let json = cause("{\"reply\": [{\"calls\": [{\"nam\": 1}]}]}");
        assert!(json.contains("reply[0].calls[0]") && json.contains("line 1"), "{json}");
        let missing = Script::open(Path::new("/no/such/script.toml")).unwrap_err().to_string();
        assert_eq!(missing, "there is no script /no/such/script.toml");
        let folder = Script::open(Path::new("/")).unwrap_err().to_string();
        assert!(folder.starts_with("script / cannot be used: "), "{folder}");
    }
}
