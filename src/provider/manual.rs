//! A provider that is answered through files: a person at the keyboard, or any program, is the model.
//!
//! Each call writes `0007-request.md` (what is new, to be read), its pictures (`0007-1-branch_b_tone.jpg`) and, last,
//! `0007-request.json` (the whole request), and waits for `0007-reply.json` or `0007-reply.txt`. docs/providers.md has
//! the format. A number is never used twice in a folder, so an old reply cannot answer a new call.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use super::dialect::WireConfig;
use super::http::BODY;
use super::profile::{ImageRules, SetupError, Wire};
use super::reply::Draft;
use super::{
    Attempt, FaultClass, ImageRef, Message, ModelInfo, ModelReply, ModelRequest, Price, Provider,
    ProviderFault, ToolSpec, Usage, json,
};
use crate::gate::{ModelCall, Permit};
use base::durable;
use base::files;
use base::hint::did_you_mean;

/// How often the folder is searched for a reply.
const POLL: Duration = Duration::from_millis(250);
/// For so many searches in a row a file that may be half written has to stay as it is.
const STILL: u32 = 6;
/// What a reply looks like.
const EXAMPLE: &str = r#"{"text": "I look first.", "calls": [{"name": "render_preview", "arguments": {}}]}"#;
/// The longest part of a picture's caption in its file's name, in characters.
const SLUG: usize = 48;
/// Numbers from here on are not those of requests.
const LAST: u64 = 1_000_000_000;

/// The provider.
#[derive(Debug)]
pub struct Manual {
    info: ModelInfo,
    folder: PathBuf,
}

impl Manual {
    /// With its folder, which the first call makes if it is missing.
    ///
    /// # Errors
    /// The path leads to something that is not a folder.
    pub fn new(provider: &str, folder: &Path) -> Result<Self, SetupError> {
        let bad = |cause: String| SetupError::Folder { provider: provider.to_owned(), cause };
        // A session may be resumed from elsewhere.
        let folder = std::path::absolute(folder).map_err(|e| bad(format!(": {e}")))?;
        let Some(shown) = folder.to_str() else {
            return Err(bad(format!(" with a UTF-8 name, not {}", folder.display())));
        };
        if folder.exists() && !folder.is_dir() {
            return Err(bad(format!(", and {shown} is not one")));
        }
        let info = ModelInfo {
            provider: provider.to_owned(),
            model: shown.to_owned(),
            vision: true,
            context: None,
            free: true,
            price: Price::default(),
            image_tokens: 0,
            facts: BTreeMap::new(),
        };
        Ok(Self { info, folder })
    }

    async fn ask(&self, request: &ModelRequest<'_>) -> Result<ModelReply, ProviderFault> {
        let failed = |sent: bool, error: &io::Error| ProviderFault {
            provider: self.info.provider.clone(),
            class: FaultClass::BadRequest,
            status: None,
            message: format!("{} cannot be used: {error}", self.folder.display()),
            remedy: Some("name a folder that can be written, with `--provider manual:DIR`".to_owned()),
            retry_after: None,
            sent,
            usage: Usage::default(),
            raw: Vec::new(),
        };
        let mut call = Call::write(&self.folder, request).map_err(|e| failed(false, &e))?;
        let mut seen = None;
        loop {
            if let Some((name, bytes)) = call.look(&mut seen) {
                let decoded = bytes.and_then(|bytes| {
                    let message = if name.ends_with(".json") {
                        message(&bytes, request.tools)?
                    } else {
                        let text = String::from_utf8(bytes.clone()).map_err(|_| "it is not UTF-8 text")?;
                        json!({ "content": text.trim() })
                    };
                    self.decode(&message, request).map(|reply| ModelReply { raw: bytes, ..reply })
                });
                match decoded {
                    Ok(reply) => {
                        call.answered = true;
                        let _ = fs::remove_file(call.path("reply.error.txt"));
                        (request.on_progress)(reply.raw.len(), "");
                        return Ok(reply);
                    }
                    Err(cause) => call.reject(&name, &cause).map_err(|e| failed(true, &e))?,
                }
                seen = None;
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// The reply of a message in the form of Chat Completions.
    fn decode(&self, message: &Value, request: &ModelRequest<'_>) -> Result<ModelReply, String> {
        let mut draft = Draft::default();
        draft.absorb(&json!({ "choices": [{ "message": message }] }));
        if let Some(excess) = draft.excess() {
            return Err(excess.to_owned());
        }
        if !draft.said_anything() {
            return Err("it has neither text nor calls".to_owned());
        }
        let config = WireConfig {
            dialect: super::profile::Dialect::Manual,
            origin: self.info.provider.clone(),
            vision: true,
            wire: Wire::default(),
            image: ImageRules::default(),
            model_body: Map::default(),
        };
        let decoded = draft.decode(&config, request);
        Ok(ModelReply {
            message: decoded.message,
            finish: decoded.finish,
            usage: Usage::default(),
            cost_micro_usd: None,
            model_served: None,
            raw: Vec::new(),
            first_byte: None,
            notes: decoded.notes,
        })
    }
}

impl Provider for Manual {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn attempt<'a>(&'a self, _permit: Permit<ModelCall>, request: &'a ModelRequest<'a>) -> Attempt<'a> {
        Box::pin(self.ask(request))
    }

    fn notice(&self) -> Option<String> {
        Some(format!(
            "you are the model: read each NNNN-request.md in {}, and write NNNN-reply.json (or .txt) beside it; the \
             request says how much time is left",
            self.folder.display()
        ))
    }
}

/// The names of a tool's arguments; a `?` is behind those that may be left out.
fn arguments(tool: &ToolSpec) -> String {
    let needed = |name: &str| {
        let needed = tool.parameters.get("required").and_then(Value::as_array).into_iter().flatten();
        needed.into_iter().any(|one| one == name)
    };
    let named = tool.parameters.get("properties").and_then(Value::as_object).into_iter().flatten();
    let names = named.map(|(name, _)| if needed(name) { name.clone() } else { format!("{name}?") });
    names.collect::<Vec<_>>().join(", ")
}

/// JSON over several lines, with what has no objects in it on one.
fn readable(value: &Value, indent: &str) -> String {
    let deeper = format!("{indent}  ");
    let within = |value: &Value| !value.is_object() && !format!("{value:#}").contains('{');
    let (open, close, items): (_, _, Vec<String>) = match value {
        Value::Object(fields) if !fields.is_empty() => {
            let item = |(name, value): (&String, &Value)| {
                format!("{deeper}{}: {}", Value::from(name.as_str()), readable(value, &deeper))
            };
            ('{', '}', fields.iter().map(item).collect())
        }
        Value::Array(items) if !(items.is_empty() || within(value) && value.to_string().len() < 80) => {
            ('[', ']', items.iter().map(|item| format!("{deeper}{}", readable(item, &deeper))).collect())
        }
        _ => return value.to_string(),
    };
    format!("{open}\n{}\n{indent}{close}", items.join(",\n"))
}

/// A request that waits for its reply. Dropped without one, it is closed.
struct Call<'a> {
    folder: &'a Path,
    number: u64,
    answered: bool,
}

/// The state of a reply's file, and for how many searches it has not changed.
type Seen = Option<(String, u64, Option<SystemTime>, u32)>;

impl<'a> Call<'a> {
    /// Writes a request under the next free number.
    fn write(folder: &'a Path, request: &ModelRequest<'_>) -> io::Result<Self> {
        durable::make_folder(folder)?;
        let last = request.messages.iter().rposition(|m| matches!(m, Message::Assistant { .. }));
        let new = last.and_then(|at| request.messages.get(at..)).unwrap_or(request.messages);
        let mut call = Self { folder, number: next_number(folder)?, answered: true };
        let pictures = loop {
            let pictures: Vec<(String, &ImageRef)> = new
                .iter()
                .flat_map(Message::pictures)
                .zip(1..)
                .map(|(picture, n)| (call.name(&format!("{n}-{}.jpg", slug(&picture.caption))), picture))
                .collect();
            let text = call.text(request, new, &pictures);
            // The number is taken by whoever makes this file.
            match durable::publish(&call.path("request.md"), text.as_bytes(), false) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => call.number += 1,
                done => break done.map(|()| pictures)?,
            }
        };
        call.answered = false;
        for (name, picture) in &pictures {
            durable::publish(&folder.join(name), &request.blobs.bytes(&picture.sha256)?, true)?;
        }
        let files: Vec<Value> = pictures
            .iter()
            .map(|(name, picture)| json!({ "file": name, "sha256": picture.sha256, "caption": picture.caption }))
            .collect();
        let whole = json!({
            "request": call.number,
            "reply_to": call.name("reply.json"),
            "seconds_left": request.time_left.map(|left| left.as_secs()),
            "session": request.session,
            "system": request.system,
            "tools": request.tools,
            "messages": request.messages,
            "new_from": request.messages.len() - new.len(),
            "pictures": files,
        });
        durable::publish(&call.path("request.json"), &serde_json::to_vec_pretty(&whole)?, true)?;
        Ok(call)
    }

    fn name(&self, rest: &str) -> String {
        format!("{:04}-{rest}", self.number)
    }

    fn path(&self, rest: &str) -> PathBuf {
        self.folder.join(self.name(rest))
    }

    /// What is new in a request, to be read.
    fn text(&self, request: &ModelRequest<'_>, new: &[Message], pictures: &[(String, &ImageRef)]) -> String {
        let (reply, plain) = (self.name("reply.json"), self.name("reply.txt"));
        let mut text = format!(
            "# Request {}\n\nWrite `{reply}` into this folder, or `{plain}` for text alone",
            self.number
        );
        if let Some(left) = request.time_left {
            let _ = write!(text, ", within {} min {:02} s", left.as_secs() / 60, left.as_secs() % 60);
        }
        let _ = writeln!(text, ":\n\n```json\n{EXAMPLE}\n```");
        let first = new.len() == request.messages.len();
        if first {
            let _ = writeln!(text, "\n## System prompt\n\n{}\n\n## Tools\n", request.system);
            for tool in request.tools {
                let _ = writeln!(text, "- `{}`({}): {}", tool.name, arguments(tool), tool.description);
            }
            let file = self.name("request.json");
            let _ = writeln!(
                text,
                "\nA `?` is behind what may be left out. What arguments mean is in `tools` of `{file}`."
            );
        }
        let mut pictures = pictures.iter();
        let mut show = |text: &mut String, images: &[ImageRef]| {
            for (name, picture) in pictures.by_ref().take(images.len()) {
                let _ = writeln!(text, "\n![{}]({name})", picture.caption);
            }
        };
        for message in new {
            match message {
                Message::User { text: said, images } => {
                    let _ = writeln!(text, "\n## From chemigram\n\n{said}");
                    show(&mut text, images);
                }
                Message::Assistant { text: said, calls, .. } => {
                    let _ = writeln!(text, "\n## Your last reply\n\n{said}\n");
                    for call in calls {
                        let _ = writeln!(text, "- `{}` {}", call.name, call.arguments);
                    }
                }
                Message::Results { results } => {
                    for result in results {
                        let failed = if result.is_error { " (failed)" } else { "" };
                        let _ = writeln!(text, "\n## Result of `{}`{failed}\n", result.name);
                        let (body, rest) = result.text.split_once('\n').unwrap_or((&result.text, ""));
                        let value = serde_json::from_str::<Value>(body);
                        let body = value.map_or_else(|_| body.to_owned(), |value| readable(&value, ""));
                        let _ = writeln!(text, "```json\n{body}\n```\n\n{rest}");
                        show(&mut text, &result.images);
                    }
                }
            }
        }
        text
    }

    /// A reply that is complete: its name, and its bytes or why they cannot be taken.
    fn look(&self, seen: &mut Seen) -> Option<(String, Result<Vec<u8>, String>)> {
        let named = ["reply.json", "reply.txt"].map(|rest| self.name(rest));
        let found = named.into_iter().find_map(|name| {
            let about = fs::symlink_metadata(self.folder.join(&name)).ok()?;
            Some((name, about))
        });
        let Some((name, about)) = found else {
            *seen = None;
            return None;
        };
        let now = (name.clone(), about.len(), about.modified().ok());
        let still = match seen.take() {
            Some((name, bytes, at, times)) if (&name, bytes, at) == (&now.0, now.1, now.2) => times + 1,
            _ => 0,
        };
        *seen = Some((now.0, now.1, now.2, still));
        let bytes = files::read_own(&self.folder.join(&name), BODY as u64);
        // A JSON text that is whole says so itself. An empty file is one that was only just made.
        let whole = name.ends_with(".json") && bytes.as_ref().is_ok_and(|b| json::parse(unfenced(b)).is_ok());
        let taken = whole || (still >= STILL && !bytes.as_ref().is_ok_and(Vec::is_empty));
        taken.then(|| (name, bytes.map_err(|e| e.to_string())))
    }

    /// Puts a reply aside that cannot be taken, and says why.
    fn reject(&self, name: &str, cause: &str) -> io::Result<()> {
        let (stem, ending) = name.rsplit_once('.').unwrap_or((name, ""));
        let aside = (1u64..)
            .map(|n| format!("{stem}.bad-{n}.{ending}"))
            .find(|aside| fs::symlink_metadata(self.folder.join(aside)).is_err())
            .unwrap_or_default();
        fs::rename(self.folder.join(name), self.folder.join(&aside))?;
        let text = format!(
            "{name} was not taken: {cause}\n\nIt is now called {aside}. Correct it and write {} again; it looks like \
             this:\n\n{EXAMPLE}\n\nA reply of text alone may also be written to {}.\n",
            self.name("reply.json"),
            self.name("reply.txt")
        );
        durable::publish(&self.path("reply.error.txt"), text.as_bytes(), true)
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if !self.answered {
            let text = "No reply to this request is read any more: its time is up, or the session was stopped. A \
                        request with a higher number takes its place, if one does.\n";
            let _ = durable::publish(&self.path("closed.txt"), text.as_bytes(), true);
        }
    }
}

/// One more than the highest number in the folder.
fn next_number(folder: &Path) -> io::Result<u64> {
    let mut highest = 0;
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.split_once('-'))
            .and_then(|(n, _)| n.parse().ok())
            .filter(|n| *n < LAST);
        highest = highest.max(number.unwrap_or(0));
    }
    Ok(highest.saturating_add(1))
}

/// What a picture shows, as a part of a file's name; without the commit that its caption ends with.
fn slug(caption: &str) -> String {
    let shown = caption.split(" at ").next().unwrap_or(caption);
    let words = shown.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    let slug: String = words.collect::<Vec<_>>().join("-").chars().take(SLUG).collect();
    if slug.is_empty() { "picture".to_owned() } else { slug }
}

/// A text without the fence of a code block around it.
fn unfenced(bytes: &[u8]) -> &[u8] {
    let bare = bytes.trim_ascii();
    let inner = bare.strip_prefix(b"```").and_then(|bare| bare.strip_suffix(b"```"));
    inner.map_or(bare, |inner| inner.strip_prefix(b"json").unwrap_or(inner).trim_ascii())
}

/// A reply as a message of Chat Completions, or in words why it is none.
fn message(bytes: &[u8], tools: &[ToolSpec]) -> Result<Value, String> {
    let value = json::parse(unfenced(bytes)).map_err(|why| format!("it {why}"))?;
    let (text, calls) = match value {
        Value::Array(calls) => (String::new(), calls),
        Value::Object(object) if object.contains_key("name") || object.contains_key("function") => {
            (String::new(), vec![Value::Object(object)])
        }
        Value::Object(object) => {
            let (mut text, mut calls) = (String::new(), Vec::new());
            for (key, value) in object {
                match (key.as_str(), value) {
                    ("text" | "content", Value::String(said)) => text = said,
                    ("calls" | "tool_calls", Value::Array(made)) => calls = made,
                    ("text" | "content" | "calls" | "tool_calls", Value::Null) | ("role", _) => {}
                    ("text" | "content", _) => return Err(format!("`{key}` is not a text")),
                    ("calls" | "tool_calls", _) => return Err(format!("`{key}` is not a list of calls")),
                    _ => {
                        let hint = did_you_mean(&key, ["text", "calls"]);
                        return Err(format!("the key `{key}` is not known{hint}"));
                    }
                }
            }
            (text, calls)
        }
        _ => return Err("it is neither an object nor a list of calls".to_owned()),
    };
    let calls =
        calls.iter().zip(1..).map(|(call, n)| call_of(call, tools).map_err(|why| format!("call {n} {why}")));
    Ok(json!({ "content": text, "tool_calls": calls.collect::<Result<Vec<_>, _>>()? }))
}

/// A call in the form of Chat Completions, or in words what is wrong with it.
fn call_of(call: &Value, tools: &[ToolSpec]) -> Result<Value, String> {
    let function = call.get("function").unwrap_or(call);
    let Some(name) = function.get("name").and_then(Value::as_str) else {
        return Err("has no `name`".to_owned());
    };
    if !tools.iter().any(|tool| tool.name == name) {
        let hint = did_you_mean(name, tools.iter().map(|tool| tool.name.as_str()));
        return Err(format!("names the tool `{name}`, which is not offered{hint}"));
    }
    let given = ["arguments", "input"].into_iter().find_map(|key| function.get(key));
    let arguments = match given {
        None | Some(Value::Null) => "{}".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    match serde_json::from_str::<Value>(&arguments) {
        Ok(Value::Object(_)) => Ok(json!({ "function": { "name": name, "arguments": arguments } })),
        Ok(_) => Err(format!("(`{name}`): its `arguments` are not an object")),
        Err(e) => Err(format!("(`{name}`): its `arguments` are not JSON: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> Vec<ToolSpec> {
        let tool =
            |name: &str| ToolSpec { name: name.into(), description: String::new(), parameters: json!({}) };
        vec![tool("look"), tool("branch")]
    }

    #[test]
    fn what_people_and_programs_write_for_a_reply_is_understood() {
        let look = json!([{ "function": { "name": "look", "arguments": "{\"size\":8}" } }]);
        for text in [
            r#"{"calls": [{"name": "look", "arguments": {"size": 8}}]}"#,
            r#"{"content": null, "tool_calls": [{"type": "function", "function": {"name": "look", "arguments": "{\"size\":8}"}}]}"#,
            r#"[{"name": "look", "input": {"size": 8}}]"#,
            r#" {"name": "look", "arguments": {"size": 8}} "#,
            "```json\n{\"name\": \"look\", \"arguments\": {\"size\": 8}}\n```\n",
        ] {
            let read = message(text.as_bytes(), &tools()).unwrap();
            assert_eq!((&read["tool_calls"], &read["content"]), (&look, &json!("")), "{text}");
        }
        let read = message(br#"{"text": "Dark.", "calls": [{"name": "look"}]}"#, &tools()).unwrap();
        assert_eq!(
            (&read["content"], &read["tool_calls"][0]["function"]["arguments"]),
            (&json!("Dark."), &json!("{}"))
        );
    }

    #[test]
    fn a_mistake_is_named() {
        for (text, cause) in [
            ("{\"text\": \"a\"", "it is not JSON: EOF while parsing"),
            ("17", "it is neither an object nor a list of calls"),
            (r#"{"cals": []}"#, "the key `cals` is not known; did you mean `calls`?"),
            (r#"{"calls": {}}"#, "`calls` is not a list of calls"),
            (r#"{"text": 1}"#, "`text` is not a text"),
            (r#"[{"name": "look"}, {"arguments": {}}]"#, "call 2 has no `name`"),
            (
                r#"[{"name": "brnch"}]"#,
                "call 1 names the tool `brnch`, which is not offered; did you mean `branch`?",
            ),
            (r#"[{"name": "look", "arguments": [1]}]"#, "call 1 (`look`): its `arguments` are not an object"),
            (r#"[{"name": "look", "arguments": "{"}]"#, "call 1 (`look`): its `arguments` are not JSON: EOF"),
        ] {
            let why = message(text.as_bytes(), &tools()).unwrap_err();
            assert!(why.starts_with(cause), "{text}: {why}");
        }
    }

    #[test]
    fn a_picture_is_named_by_what_it_shows() {
        for (caption, name) in [
            ("branch_b_tone at 0a1b2c", "branch_b_tone"),
            ("a: main at 0a1b2c", "a-main"),
            ("mask over ../../x at 0a1b2c: sky", "mask-over-x"),
            ("…", "picture"),
        ] {
            assert_eq!(slug(caption), name);
        }
    }

    #[test]
    fn no_number_is_used_twice() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(next_number(dir.path()).unwrap(), 1);
        for name in ["0007-reply.json", "notes.txt", "99999999999999999999-x", "18446744073709551615-x"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(next_number(dir.path()).unwrap(), 8, "a reply without its request counts");
    }
}
