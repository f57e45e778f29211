//! Server-sent events, from bytes that may be torn anywhere to the payloads of their `data:` lines.
//!
//! Format: WHATWG HTML, "Server-sent events". Beyond it, for servers that are careless: a complete JSON
//! payload ends at its line even when the blank line after it is missing, and a bare JSON line counts as
//! a payload (an error thrown into a running stream). Every byte is looked at a fixed number of times.

use super::json::Brackets;

/// The longest event, in bytes. One carries a few letters of a reply; the longest is a whole reply.
pub const EVENT: usize = 1 << 20;

/// Splits a byte stream into payloads.
#[derive(Debug, Default)]
pub struct Sse {
    line: Vec<u8>,
    data: String,
    brackets: Brackets,
    after_cr: bool,
    too_long: bool,
}

impl Sse {
    /// Takes the next bytes and gives the payloads that they complete; none after an event of more than
    /// [`EVENT`] bytes.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut payloads = Vec::new();
        for &byte in bytes {
            let second_half = byte == b'\n' && self.after_cr;
            self.after_cr = byte == b'\r';
            match byte {
                _ if second_half => {}
                b'\r' | b'\n' => self.end_line(&mut payloads),
                _ => self.line.push(byte),
            }
            if self.too_long || self.line.len() + self.data.len() > EVENT {
                self.too_long = true;
                break;
            }
        }
        payloads
    }

    /// Whether an event had more than [`EVENT`] bytes.
    pub fn too_long(&self) -> bool {
        self.too_long
    }

    /// The bytes of an event that is not complete.
    pub fn held(&self) -> usize {
        let data = self.line.starts_with(b"data:") || self.line.starts_with(b"{");
        self.data.len() + if data { self.line.len() } else { 0 }
    }

    /// Takes the end of the stream: a last line without its end counts.
    pub fn end(mut self) -> Vec<String> {
        let mut payloads = Vec::new();
        self.end_line(&mut payloads);
        self.dispatch(&mut payloads);
        payloads
    }

    fn end_line(&mut self, payloads: &mut Vec<String>) {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_start_matches('\u{feff}');
        if line.is_empty() {
            return self.dispatch(payloads);
        }
        let value = match line.strip_prefix("data:") {
            Some(value) => value.strip_prefix(' ').unwrap_or(value),
            None if line.starts_with('{') && Brackets::of(line.as_bytes()).closed() => line,
            // Comments (`:`), `event:`, `id:`, `retry:`: the payload says all we need.
            None => return,
        };
        if self.brackets.closed() {
            self.dispatch(payloads);
        }
        if !self.data.is_empty() {
            self.data.push('\n');
        }
        self.data.push_str(value);
        self.brackets.push(value.as_bytes());
    }

    fn dispatch(&mut self, payloads: &mut Vec<String>) {
        self.brackets = Brackets::default();
        let data = std::mem::take(&mut self.data);
        if !data.trim().is_empty() {
            payloads.push(data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str, at: usize) -> Vec<String> {
        let mut sse = Sse::default();
        let mut payloads = sse.push(&text.as_bytes()[..at]);
        payloads.extend(sse.push(&text.as_bytes()[at..]));
        payloads.extend(sse.end());
        payloads
    }

    #[test]
    fn torn_anywhere_the_payloads_are_the_same() {
        let text = "\u{feff}: OPENROUTER PROCESSING\r\n\r\nevent: x\r\ndata: {\"a\":\r\ndata: \"é\"}\r\n\r\n\
                    data:{\"b\":1}\rdata: {\"c\":2}\n\n{\"error\":\"x\"}\n\ndata: [DONE]";
        let expected = ["{\"a\":\n\"é\"}", "{\"b\":1}", "{\"c\":2}", "{\"error\":\"x\"}", "[DONE]"];
        for at in 0..=text.len() {
            assert_eq!(split(text, at), expected, "split at {at}");
        }
    }
}
