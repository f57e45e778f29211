//! JSON from a server that may send anything: its brackets are followed as it comes, in linear time, and its
//! values are counted before any is built. A value takes up to a hundred times its text in memory.

use serde_json::Value;

/// The most values in one text. A reply with as many calls as are taken has a few thousand.
pub(super) const VALUES: usize = 50_000;

/// The brackets of a text that comes in pieces.
#[derive(Debug, Default)]
pub(super) struct Brackets {
    depth: usize,
    opened: bool,
    in_string: bool,
    escaped: bool,
    values: usize,
}

impl Brackets {
    /// Takes the next piece.
    pub(super) fn push(&mut self, text: &[u8]) {
        for byte in text {
            match (self.in_string, *byte) {
                (true, _) if self.escaped => self.escaped = false,
                (true, b'\\') => self.escaped = true,
                (_, b'"') => self.in_string = !self.in_string,
                (true, _) => {}
                (false, b'{' | b'[') => {
                    (self.opened, self.depth) = (true, self.depth + 1);
                    self.values += 1;
                }
                (false, b'}' | b']') => self.depth = self.depth.saturating_sub(1),
                (false, b',') => self.values += 1,
                _ => {}
            }
        }
    }

    /// Whether a bracket was opened and all that were are closed.
    pub(super) fn closed(&self) -> bool {
        self.opened && self.depth == 0 && !self.in_string
    }

    /// The brackets of a whole text.
    pub(super) fn of(text: &[u8]) -> Self {
        let mut brackets = Self::default();
        brackets.push(text);
        brackets
    }
}

/// The parts of an object or a list, as they stand in its text.
fn parts(text: &str) -> Vec<&str> {
    let (mut brackets, mut parts, mut from) = (Brackets::default(), Vec::new(), 0);
    for (at, byte) in text.bytes().enumerate() {
        let (depth, within) = (brackets.depth, brackets.in_string);
        brackets.push(&[byte]);
        match (depth, within) {
            (0, false) if brackets.depth == 1 => from = at + 1,
            (1, false) if byte == b',' || brackets.depth == 0 => {
                parts.extend(text.get(from..at).map(str::trim));
                from = at + 1;
            }
            _ => {}
        }
    }
    parts
}

/// The value of a member of an object, as it stands in its text.
pub(super) fn member<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    parts(text).into_iter().find_map(|part| {
        let rest = part.strip_prefix('"')?.strip_prefix(name)?.strip_prefix('"')?;
        Some(rest.trim_start().strip_prefix(':')?.trim_start())
    })
}

/// The elements of a list, as they stand in its text.
pub(super) fn elements(text: &str) -> Vec<&str> {
    parts(text).into_iter().filter(|part| !part.is_empty()).collect()
}

/// The value of a text, or in words why there is none.
pub(super) fn parse(text: &[u8]) -> Result<Value, String> {
    if Brackets::of(text).values > VALUES {
        return Err(format!("holds more than {VALUES} values"));
    }
    serde_json::from_slice(text).map_err(|e| format!("is not JSON: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_in_strings_do_not_count_and_pieces_do_not_matter() {
        let text = br#"{"a": "}]\"[", "b": [1, {"c": "\\"}]}"#;
        for at in 0..text.len() {
            let (first, second) = text.split_at(at);
            let mut brackets = Brackets::default();
            brackets.push(first);
            assert!(!brackets.closed(), "{at}");
            brackets.push(second);
            assert!(brackets.closed(), "{at}");
        }
        assert!(!Brackets::of(b"17").closed());
    }

    #[test]
    fn members_and_elements_are_found_as_they_stand() {
        let text = r#" {"a" : "},{\"b\":1", "b": [ {"x": "]"} , 2,"é\u00e9" ],"c":{"a":[1,{}]} } "#;
        assert_eq!(member(text, "a"), Some(r#""},{\"b\":1""#));
        assert_eq!(member(text, "c"), Some(r#"{"a":[1,{}]}"#));
        assert_eq!(member(text, "x"), None);
        assert_eq!(elements(member(text, "b").unwrap()), [r#"{"x": "]"}"#, "2", r#""é\u00e9""#]);
        assert!(elements("[]").is_empty() && elements("[ ]").is_empty() && member("{", "a").is_none());
    }

    #[test]
    fn a_text_of_too_many_values_is_not_built() {
        let list = |n: usize| format!("[{}0]", "0,".repeat(n - 1));
        assert!(parse(list(VALUES).as_bytes()).is_ok());
        assert!(parse(list(VALUES + 1).as_bytes()).is_err_and(|why| why == "holds more than 50000 values"));
    }
}
