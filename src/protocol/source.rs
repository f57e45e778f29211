//! From text to a tree of values, JSON or TOML, with the place of every path in the file.
//!
//! JSON is read by `serde_json`; a second, small pass over text that is known to be well-formed finds the
//! places, and keys that are given twice, which `serde_json` passes over.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value};
use toml::de::{DeTable, DeValue};

use super::finding::Position;
use base::hint;

/// The longest file, in bytes: a protocol is a page or two.
pub(super) const MAX_BYTES: usize = 64 * 1024;

/// The deepest nesting of tables and lists.
const MAX_DEPTH: usize = 64;
/// The longest path whose place is kept.
const MAX_PATH: usize = 256;

/// In which notation a protocol is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON.
    Json,
    /// TOML.
    Toml,
}

impl Format {
    /// By the file's name, else by its first character: JSON begins with a brace.
    pub fn of(name: &str, text: &str) -> Self {
        match name.rsplit('.').next().map(str::to_ascii_lowercase).as_deref() {
            Some("json") => Self::Json,
            Some("toml") => Self::Toml,
            _ if text.trim_start().starts_with('{') => Self::Json,
            _ => Self::Toml,
        }
    }
}

/// A file's values, and where each stands.
pub(super) struct Source {
    pub value: Value,
    pub places: BTreeMap<String, Position>,
    /// Keys that were given twice.
    pub twice: Vec<String>,
}

impl Source {
    /// Reads a file. An error is a message with its place, if it has one.
    pub fn read(text: &str, format: Format) -> Result<Self, (Option<Position>, String)> {
        if text.len() > MAX_BYTES {
            return Err((
                None,
                format!("{} bytes are more than a protocol may have: {MAX_BYTES}", text.len()),
            ));
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        match format {
            Format::Json => {
                let value = serde_json::from_str(text).map_err(|e| {
                    let at = Position { line: e.line().max(1), column: e.column().max(1) };
                    let words = e.to_string();
                    (Some(at), words.split(" at line ").next().unwrap_or(&words).to_owned())
                })?;
                let mut scan = Scan { text, at: 0, places: BTreeMap::new(), twice: Vec::new() };
                scan.value("");
                Ok(Self { value, places: scan.places, twice: scan.twice })
            }
            Format::Toml => {
                let table = DeTable::parse(text).map_err(|e| {
                    let at = e.span().map(|span| Position::of(text, span.start));
                    let message = hint::toml_error("", &e);
                    (at, message.split_once(": ").map_or(message.clone(), |(_, m)| m.to_owned()))
                })?;
                let mut places = BTreeMap::new();
                let value = of_table(table.get_ref(), "", text, &mut places, MAX_DEPTH)?;
                Ok(Self { value, places, twice: Vec::new() })
            }
        }
    }

    /// The place of a path, or of the nearest that encloses it.
    pub fn place(&self, path: &str) -> Option<Position> {
        let mut path = path;
        loop {
            if let Some(at) = self.places.get(path) {
                return Some(*at);
            }
            path = path.get(..path.rfind(['.', '['])?)?;
        }
    }
}

/// The path of `key` in the table at `path`.
pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

type Places = BTreeMap<String, Position>;

/// Keeps the place of a path, unless it has one or is longer than any that is looked for.
fn keep(places: &mut Places, path: &str, text: &str, offset: usize) {
    if path.len() <= MAX_PATH && !places.contains_key(path) {
        places.insert(path.to_owned(), Position::of(text, offset));
    }
}

fn of_table(
    table: &DeTable<'_>,
    path: &str,
    text: &str,
    places: &mut Places,
    depth: usize,
) -> Result<Value, (Option<Position>, String)> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err((None, format!("nested deeper than {MAX_DEPTH} levels")));
    };
    let mut map = Map::new();
    for (key, value) in table {
        let path = join(path, key.get_ref());
        keep(places, &path, text, key.span().start);
        map.insert(key.get_ref().to_string(), of_value(value.get_ref(), &path, text, places, depth)?);
    }
    Ok(Value::Object(map))
}

fn of_value(
    value: &DeValue<'_>,
    path: &str,
    text: &str,
    places: &mut Places,
    depth: usize,
) -> Result<Value, (Option<Position>, String)> {
    let Some(inner) = depth.checked_sub(1) else {
        return Err((None, format!("nested deeper than {MAX_DEPTH} levels")));
    };
    let bad = |places: &Places, what: String| Err((places.get(path).copied(), what));
    Ok(match value {
        DeValue::String(words) => Value::String(words.to_string()),
        DeValue::Integer(digits) => match i64::from_str_radix(digits.as_str(), digits.radix()) {
            Ok(number) => Value::Number(number.into()),
            Err(_) => return bad(places, format!("`{path}` is too large a number")),
        },
        DeValue::Float(digits) => match digits.as_str().parse().ok().and_then(Number::from_f64) {
            Some(number) => Value::Number(number),
            None => return bad(places, format!("`{path}` is not a finite number")),
        },
        DeValue::Boolean(value) => Value::Bool(*value),
        DeValue::Datetime(_) => return bad(places, format!("`{path}` is a date, which no field takes")),
        DeValue::Array(items) => {
            let mut list = Vec::new();
            for (index, item) in items.iter().enumerate() {
                let path = format!("{path}[{index}]");
                keep(places, &path, text, item.span().start);
                list.push(of_value(item.get_ref(), &path, text, places, inner)?);
            }
            Value::Array(list)
        }
        DeValue::Table(table) => of_table(table, path, text, places, depth)?,
    })
}

/// Walks well-formed JSON; on anything else it stops early, never panics.
struct Scan<'a> {
    text: &'a str,
    at: usize,
    places: Places,
    twice: Vec<String>,
}

impl Scan<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blank(&mut self) {
        while self.peek().is_some_and(|b| b.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    /// Steps over the text of a string and gives it, escapes resolved.
    fn string(&mut self) -> String {
        let start = self.at;
        self.at += 1;
        while let Some(byte) = self.peek() {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                break;
            }
        }
        serde_json::from_str(self.text.get(start..self.at).unwrap_or_default()).unwrap_or_default()
    }

    fn value(&mut self, path: &str) {
        self.blank();
        if !path.is_empty() {
            keep(&mut self.places, path, self.text, self.at);
        }
        match self.peek() {
            Some(b'{') => self.object(path),
            Some(b'[') => {
                self.at += 1;
                let mut index = 0;
                loop {
                    self.blank();
                    match self.peek() {
                        Some(b']') => break self.at += 1,
                        Some(b',') => self.at += 1,
                        None => break,
                        _ => {
                            let before = self.at;
                            self.value(&format!("{path}[{index}]"));
                            index += 1;
                            if self.at == before {
                                break;
                            }
                        }
                    }
                }
            }
            Some(b'"') => drop(self.string()),
            _ => {
                while self.peek().is_some_and(|b| !b",]} \n\r\t".contains(&b)) {
                    self.at += 1;
                }
            }
        }
    }

    fn object(&mut self, path: &str) {
        self.at += 1;
        let mut keys = std::collections::BTreeSet::new();
        loop {
            self.blank();
            match self.peek() {
                Some(b'}') => break self.at += 1,
                Some(b',') => self.at += 1,
                Some(b'"') => {
                    let at = self.at;
                    let key = self.string();
                    let path = join(path, &key);
                    if !keys.insert(key) {
                        self.twice.push(path.clone());
                    }
                    keep(&mut self.places, &path, self.text, at);
                    self.blank();
                    self.at += 1;
                    self.value(&path);
                }
                _ => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_notations_know_their_places() {
        let json = "{\n  \"a\": [1, {\"b\\u0063\": null}],\n  \"a\": 2\n}";
        let source = Source::read(json, Format::Json).unwrap();
        assert_eq!(source.places["a[1].bc"], Position { line: 2, column: 13 });
        assert_eq!(source.twice, ["a"]);
        let toml = "a = 1\n[[s]]\nname = 'x'\n[[s]]\nname = 'y'\nt = [{ to = 'z' }]\n";
        let source = Source::read(toml, Format::Toml).unwrap();
        assert_eq!(source.places["s[1].name"], Position { line: 5, column: 1 });
        assert_eq!(source.places["s[1].t[0].to"], Position { line: 6, column: 8 });
        assert_eq!(source.place("s[1].t[0].on.deep"), source.places.get("s[1].t[0]").copied());
        assert_eq!(source.value["s"][1]["t"][0]["to"], "z");
    }

    #[test]
    fn numbers_are_read_as_toml_writes_them() {
        let source = Source::read("a = [1_000, 0x1F, +5, -0.5, 1e3, 1_0.5]", Format::Toml).unwrap();
        assert_eq!(source.value["a"], serde_json::json!([1000, 31, 5, -0.5, 1000.0, 10.5]));
    }

    #[test]
    fn what_is_no_protocol_says_where() {
        let (at, message) = Source::read("{\"a\": }", Format::Json).err().unwrap();
        assert_eq!((at.unwrap().line, message.as_str()), (1, "expected value"));
        let (at, _) = Source::read("a = 1\nb = {\n", Format::Toml).err().unwrap();
        assert_eq!(at.unwrap().line, 2);
        for wrong in ["a = nan", "a = 1979-05-27", "a = 99999999999999999999"] {
            assert!(Source::read(wrong, Format::Toml).is_err(), "{wrong}");
        }
        assert!(Source::read(&" ".repeat(MAX_BYTES + 1), Format::Json).is_err());
        assert!(Source::read(&"[".repeat(100_000), Format::Json).is_err());
    }
}
