//! Exchanges with a server, kept as files (`--record DIR`) and played back (`cassette:DIR`). docs/providers.md has the
//! format.
//!
//! A cassette is played strictly: a request is answered if it was recorded, and otherwise with the difference to the
//! nearest one. What only says what the time is, is not compared, nor is the name of the session.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::profile::{Dialect, ImageRules, SetupError, Wire};
use super::{ModelInfo, ProviderFault};
use crate::budget::without_clock;
use base::durable;
use base::files;
use base::ids::Hash;
use base::redact::Redactor;

/// The file that makes a folder a cassette.
const MODEL: &str = "model.json";
/// The form of the files.
const FORMAT: u32 = 1;
/// The largest file of a cassette that is read.
const FILE: u64 = 64 << 20;
/// How the name ends under which a session's referee is asked.
pub(crate) const REFEREE: &str = "-referee";
/// How JPEG data begin in base64.
const JPEG: &str = "/9j/";
/// Headers that are kept, in full or by a part of their name: none of them can hold a key.
const KEPT: [&str; 8] = [
    "content-type",
    "anthropic-version",
    "anthropic-beta",
    "retry-after",
    "x-should-retry",
    "ratelimit",
    "request-id",
    "processing-ms",
];
/// Characters of a text that are shown before and after its first difference.
const AROUND: (usize, usize) = (24, 60);

/// The model of a cassette, and how its requests are written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    format: u32,
    /// What is known of it.
    pub info: ModelInfo,
    /// What it speaks.
    pub dialect: Dialect,
    /// Quirks of its server.
    pub wire: Wire,
    /// What it wants of pictures.
    pub image: ImageRules,
    /// Fields of the body that only it wants.
    pub body: Map<String, Value>,
}

/// A request as it is kept.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    session: String,
    to: String,
    headers: BTreeMap<String, String>,
    body: Value,
}

/// What came back, but for its body.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Reply {
    /// Absent where no head came.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    headers: BTreeMap<String, String>,
    /// Why the connection ended early, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<Lost>,
}

/// A connection that ended early.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Lost {
    /// Why.
    pub(super) message: String,
    /// Whether the server may have worked on the request.
    pub(super) sent: bool,
}

impl Model {
    pub(super) fn new(
        info: ModelInfo,
        dialect: Dialect,
        wire: Wire,
        image: ImageRules,
        body: Map<String, Value>,
    ) -> Self {
        // A header of a profile may hold what nobody else is to read.
        let wire = Wire { headers: BTreeMap::new(), ..wire };
        Self { format: FORMAT, info, dialect, wire, image, body }
    }
}

/// Where exchanges are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recording {
    /// All of a model in one cassette below the folder.
    Together(PathBuf),
    /// Those of each session in a folder of its own below it.
    EachSession(PathBuf),
}

/// Where one exchange is kept.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    folder: PathBuf,
    number: u64,
}

/// Writes cassettes.
#[derive(Debug)]
pub(super) struct Recorder {
    record: Recording,
    /// The folder of the model.
    name: String,
    model: Model,
    to: String,
    /// Knows the keys of every provider.
    redactor: Redactor,
}

impl Recorder {
    /// One whose folder the first request makes. `to` is the address.
    pub(super) fn new(record: Recording, model: Model, to: &reqwest::Url, redactor: Redactor) -> Self {
        let legal = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
        let name: String =
            format!("{}-{}", model.info.provider, model.info.model).chars().map(legal).collect();
        let to = format!("{}://{}{}", to.scheme(), to.authority(), to.path());
        Self { record, name, model, to, redactor }
    }

    /// The folder of a session's exchanges.
    pub(super) fn folder(&self, session: &str) -> PathBuf {
        match &self.record {
            Recording::Together(folder) => folder.join(&self.name),
            // A second opinion is part of its session.
            Recording::EachSession(folder) => {
                folder.join(session.strip_suffix(REFEREE).unwrap_or(session)).join(&self.name)
            }
        }
    }

    /// Keeps a request under the next free number.
    pub(super) fn request(&self, session: &str, headers: &HeaderMap, body: &[u8]) -> io::Result<Slot> {
        let folder = self.folder(session);
        durable::make_folder(&folder)?;
        let model = serde_json::to_vec_pretty(&self.model)?;
        match durable::publish(&folder.join(MODEL), &model, false) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && read_model(&folder)? == self.model => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                return Err(io::Error::other("it holds what was recorded of the model with other settings"));
            }
            done => done?,
        }
        let mut body = serde_json::from_slice(body)?;
        for (name, bytes) in cut_out_pictures(&mut body) {
            durable::publish(&folder.join(name), &bytes, true)?;
        }
        let (session, to) = (session.to_owned(), self.to.clone());
        let request = Request { session, to, headers: kept(headers), body };
        let text = self.redactor.clean(serde_json::to_string_pretty(&request)?);
        let mut number = numbers(&folder)?.last().map_or(1, |last| last + 1);
        loop {
            match durable::publish(&folder.join(named(number, "request.json")), text.as_bytes(), false) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => number += 1,
                done => return done.map(|()| Slot { folder, number }),
            }
        }
    }

    /// Keeps what came back: a head and a body, byte for byte as long as no key is in it, and why there was no more.
    pub(super) fn reply(
        &self,
        Slot { folder, number }: &Slot,
        head: Option<(u16, &HeaderMap)>,
        body: &[u8],
        fault: Option<&ProviderFault>,
    ) -> io::Result<()> {
        let text = String::from_utf8_lossy(body).into_owned();
        let clean = self.redactor.clean(text.clone());
        let body = if clean == text { body } else { clean.as_bytes() };
        let reply = Reply {
            status: head.map(|(status, _)| status),
            headers: head.map(|(_, headers)| kept(headers)).unwrap_or_default(),
            lost: fault.map(|fault| Lost { message: fault.message.clone(), sent: fault.sent }),
        };
        if head.is_some() {
            durable::publish(&folder.join(named(*number, "reply.txt")), body, true)?;
        }
        let head = self.redactor.clean(serde_json::to_string_pretty(&reply)?);
        durable::publish(&folder.join(named(*number, "reply.json")), head.as_bytes(), true)
    }
}

fn read_model(folder: &Path) -> io::Result<Model> {
    Ok(serde_json::from_slice(&files::read(&folder.join(MODEL), FILE)?)?)
}

/// Answers from a cassette.
#[derive(Debug)]
pub(super) struct Player {
    folder: PathBuf,
    exchanges: Vec<Exchange>,
    played: Mutex<Vec<bool>>,
}

#[derive(Debug)]
struct Exchange {
    number: u64,
    /// The body, to be compared.
    body: Value,
    reply: Option<(Reply, Vec<u8>)>,
}

impl Player {
    /// Reads a cassette: `folder`, or the only one in it.
    ///
    /// # Errors
    /// It is none, holds several, or a file of it cannot be read.
    pub(super) fn open(provider: &str, folder: &Path) -> Result<(Self, Model), SetupError> {
        let bad = |cause: String| SetupError::Folder { provider: provider.to_owned(), cause };
        let shown = folder.display();
        let mut folders: Vec<PathBuf> = vec![folder.to_owned()];
        if !folder.join(MODEL).is_file() {
            let entries = fs::read_dir(folder).map_err(|e| bad(format!(": {shown}: {e}")))?;
            folders = entries.flatten().map(|e| e.path()).filter(|p| p.join(MODEL).is_file()).collect();
            folders.sort();
        }
        let [folder] = folders.as_slice() else {
            let several = folders.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
            return Err(bad(match several.is_empty() {
                true => format!(" that --record has written, and {shown} is none"),
                false => format!(" of one model, and {shown} holds several: {}", several.join(", ")),
            }));
        };
        let read = || -> io::Result<(Vec<Exchange>, Model)> {
            let model = read_model(folder)?;
            let exchanges = numbers(folder)?.into_iter().map(|number| exchange(folder, number));
            Ok((exchanges.collect::<io::Result<_>>()?, model))
        };
        let (exchanges, model) =
            read().map_err(|e| bad(format!(" whose files can be read, and in {} {e}", folder.display())))?;
        if model.format != FORMAT {
            return Err(bad(format!(
                " of form {FORMAT}, and {} has form {}",
                folder.display(),
                model.format
            )));
        }
        let played = Mutex::new(vec![false; exchanges.len()]);
        Ok((Self { folder: folder.clone(), exchanges, played }, model))
    }

    /// The folder.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What was answered to this request: an answer, and why it ended early if it did. The same request is answered
    /// as often as it was recorded, in the order of that time. Else why there is no answer.
    pub(super) fn answer(
        &self,
        session: &str,
        body: &[u8],
    ) -> Result<(Option<reqwest::Response>, Option<Lost>), String> {
        let place = self.folder.display();
        let mut body: Value =
            serde_json::from_slice(body).map_err(|e| format!("the request is no JSON: {e}"))?;
        cut_out_pictures(&mut body);
        let body = comparable(body, session);
        let same: Vec<usize> =
            (0..).zip(&self.exchanges).filter(|(_, e)| e.body == body).map(|(at, _)| at).collect();
        let mut played = self.played.lock().unwrap_or_else(PoisonError::into_inner);
        let next = same.iter().find(|at| played.get(**at) == Some(&false));
        let Some((at, exchange)) = next.and_then(|at| Some((*at, self.exchanges.get(*at)?))) else {
            return Err(match same.len() {
                0 => format!("{place} has no recording of this request{}", self.nearest(&body)),
                times => format!("{place} has this request {times} times, and it is made once more"),
            });
        };
        if let Some(played) = played.get_mut(at) {
            *played = true;
        }
        let Some((reply, bytes)) = &exchange.reply else {
            return Err(format!("{place} has no reply to {}", named(exchange.number, "request.json")));
        };
        let Some(status) = reply.status else { return Ok((None, reply.lost.clone())) };
        let mut answer = http::Response::builder().status(status);
        for (name, value) in &reply.headers {
            answer = answer.header(name, value);
        }
        let answer = answer
            .body(bytes.clone())
            .map_err(|e| format!("{place}: {} is no answer: {e}", named(exchange.number, "reply.json")))?;
        Ok((Some(answer.into()), reply.lost.clone()))
    }

    /// The recorded request that differs least, and its first difference.
    fn nearest(&self, body: &Value) -> String {
        let compared = self.exchanges.iter().map(|exchange| {
            let mut found = Differences::default();
            found.compare(&exchange.body, body, "");
            (exchange, found)
        });
        let Some((exchange, found)) = compared.min_by_key(|(_, found)| found.count) else {
            return "; it is empty".to_owned();
        };
        let (at, recorded, now) = found.first.unwrap_or_default();
        let name = named(exchange.number, "request.json");
        let places = if found.count == 1 { "place" } else { "places" };
        format!(
            "; the nearest is {name}, which differs in {} {places}, first in `{at}`: recorded {recorded}, now {now}",
            found.count
        )
    }
}

/// An exchange as its files have it.
fn exchange(folder: &Path, number: u64) -> io::Result<Exchange> {
    let in_file = |name: &str, e: &dyn std::fmt::Display| io::Error::other(format!("{name}: {e}"));
    let name = named(number, "request.json");
    let read = |name: &str| files::read(&folder.join(name), FILE).map_err(|e| in_file(name, &e));
    let request: Request = serde_json::from_slice(&read(&name)?).map_err(|e| in_file(&name, &e))?;
    let name = named(number, "reply.json");
    let reply = match folder.join(&name).is_file() {
        false => None,
        true => {
            let reply: Reply = serde_json::from_slice(&read(&name)?).map_err(|e| in_file(&name, &e))?;
            let body = reply.status.map(|_| read(&named(number, "reply.txt"))).transpose()?;
            Some((reply, body.unwrap_or_default()))
        }
    };
    Ok(Exchange { number, body: comparable(request.body, &request.session), reply })
}

fn named(number: u64, rest: &str) -> String {
    format!("{number:04}-{rest}")
}

/// The numbers of the requests in a folder, in their order.
fn numbers(folder: &Path) -> io::Result<Vec<u64>> {
    let number =
        |entry: fs::DirEntry| entry.file_name().to_str()?.strip_suffix("-request.json")?.parse::<u64>().ok();
    let mut numbers: Vec<u64> = fs::read_dir(folder)?.flatten().filter_map(number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The headers that are kept.
fn kept(headers: &HeaderMap) -> BTreeMap<String, String> {
    let kept = headers.iter().filter(|(name, value)| {
        !value.is_sensitive() && KEPT.iter().any(|part| name.as_str().contains(part))
    });
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    kept.map(|(name, value)| (name.to_string(), text(value.as_bytes()))).collect()
}

/// Takes the pictures out of a request, with a name for each that stays in its place.
fn cut_out_pictures(body: &mut Value) -> BTreeMap<String, Vec<u8>> {
    let mut pictures = BTreeMap::new();
    each_text(body, &mut |text| {
        let at = text.find(";base64,").filter(|_| text.starts_with("data:")).map_or(0, |at| at + 8);
        let Some(bytes) =
            text.get(at..).filter(|data| data.starts_with(JPEG)).and_then(|data| STANDARD.decode(data).ok())
        else {
            return;
        };
        let name = format!("{}.jpg", Hash::of(&bytes).short());
        text.replace_range(at.., &format!("<{name}>"));
        pictures.insert(name, bytes);
    });
    pictures
}

/// A body without what differs from one session to the next.
fn comparable(mut body: Value, session: &str) -> Value {
    each_text(&mut body, &mut |text| {
        if text.contains(session) && !session.is_empty() {
            *text = text.replace(session, "SESSION");
        }
        *text = without_clock(text);
    });
    body
}

fn each_text(value: &mut Value, change: &mut dyn FnMut(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| each_text(item, change)),
        Value::Object(fields) => fields.values_mut().for_each(|field| each_text(field, change)),
        _ => {}
    }
}

/// In how many places two values differ, and where first: the place, what was recorded, and what is there now.
#[derive(Default)]
struct Differences {
    count: usize,
    first: Option<(String, String, String)>,
}

impl Differences {
    fn compare(&mut self, recorded: &Value, now: &Value, at: &str) {
        match (recorded, now) {
            (Value::Object(recorded), Value::Object(now)) => {
                let mut keys: Vec<&String> = recorded.keys().chain(now.keys()).collect();
                // The conversation is last in a request, whatever it is called.
                let conversation =
                    |key: &&String| at.is_empty() && matches!(key.as_str(), "messages" | "input");
                keys.sort_by_key(|key| (conversation(key), Reverse(recorded.contains_key(*key)), *key));
                keys.dedup();
                for key in keys {
                    let place = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
                    self.optional(recorded.get(key), now.get(key), &place);
                }
            }
            (Value::Array(recorded), Value::Array(now)) => {
                for n in 0..recorded.len().max(now.len()) {
                    self.optional(recorded.get(n), now.get(n), &format!("{at}[{n}]"));
                }
            }
            _ if recorded == now => {}
            (Value::String(recorded), Value::String(now)) => {
                let (recorded, now) = excerpts(recorded, now);
                self.found(1, at, recorded, now);
            }
            _ => self.found(1, at, excerpt(recorded), excerpt(now)),
        }
    }

    fn optional(&mut self, recorded: Option<&Value>, now: Option<&Value>, at: &str) {
        match (recorded, now) {
            (Some(recorded), Some(now)) => self.compare(recorded, now, at),
            (one, other) => {
                let size = one.or(other).map_or(0, leaves);
                self.found(size, at, shown(one), shown(other));
            }
        }
    }

    fn found(&mut self, count: usize, at: &str, recorded: String, now: String) {
        self.count += count;
        self.first.get_or_insert_with(|| (at.to_owned(), recorded, now));
    }
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".to_owned(), excerpt)
}

fn leaves(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(leaves).sum::<usize>().max(1),
        Value::Object(fields) => fields.values().map(leaves).sum::<usize>().max(1),
        _ => 1,
    }
}

fn excerpt(value: &Value) -> String {
    part(&value.to_string(), 0)
}

/// Two texts around the place where they part.
fn excerpts(recorded: &str, now: &str) -> (String, String) {
    let same = recorded.chars().zip(now.chars()).take_while(|(a, b)| a == b).count();
    (format!("{:?}", part(recorded, same)), format!("{:?}", part(now, same)))
}

/// The part of a text around a character of it.
fn part(text: &str, at: usize) -> String {
    let from = at.saturating_sub(AROUND.0);
    let (before, mut rest) = (if from > 0 { "…" } else { "" }, text.chars().skip(from));
    let shown: String = rest.by_ref().take(at - from + AROUND.1).collect();
    format!("{before}{shown}{}", if rest.next().is_some() { "…" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_difference_is_shown_with_its_place() {
        let differ = |recorded: Value, now: Value| {
            let mut found = Differences::default();
            found.compare(&recorded, &now, "");
            (found.count, found.first)
        };
        let long = "word ".repeat(20);
        let (count, first) = differ(
            json!({"messages": [{"content": "a"}], "tools": [{"name": format!("{long}x{long}")}], "n": 1}),
            json!({"messages": [{"content": "b"}], "tools": [{"name": format!("{long}y{long}")}], "n": 1}),
        );
        let (at, recorded, now) = first.unwrap();
        assert_eq!((count, at.as_str()), (2, "tools[0].name"), "the conversation is last");
        assert!(recorded.starts_with("\"…") && recorded.ends_with("…\"") && recorded.contains(" xword"));
        assert!(now.contains(" yword") && now.len() < 120, "{now}");
        let (count, first) = differ(json!({"input": [1, [2, 3]]}), json!({"input": [1], "seed": 7}));
        let first = first.unwrap();
        assert_eq!(
            (count, first.0.as_str(), first.1.as_str(), first.2.as_str()),
            (3, "seed", "nothing", "7")
        );
        assert_eq!(differ(json!({"a": 1}), json!({"a": 1})), (0, None));
    }

    #[test]
    fn pictures_are_cut_out_of_every_dialect() {
        let data = STANDARD.encode([0xff, 0xd8, 0xff, 0xe0, 1, 2, 3]);
        let mut body = json!({
            "chat": format!("data:image/jpeg;base64,{data}"), "messages": {"data": data},
            "text": "data:image/jpeg;base64,/9j/ is no picture", "other": "/9j/ neither!"
        });
        let pictures = cut_out_pictures(&mut body);
        let name = pictures.keys().next().unwrap();
        assert_eq!((pictures.len(), pictures[name].len()), (1, 7));
        assert_eq!(body["chat"], format!("data:image/jpeg;base64,<{name}>"));
        assert_eq!(body["messages"]["data"], format!("<{name}>"));
        assert_eq!(body["other"], "/9j/ neither!");
    }
}
