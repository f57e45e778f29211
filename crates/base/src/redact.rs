//! Keeps secrets out of everything that is written: known values are replaced at the sink.

use std::sync::{Arc, PoisonError, RwLock};

use secrecy::{ExposeSecret, SecretString};

/// The shortest value that can be a key.
const SHORTEST: usize = 8;
/// The longest lower-case word that is taken for a word and not for a key: a server of one's own that wants any key
/// is given `llamacpp`, and a transcript in which that word is gone cannot be read again.
const LONGEST_WORD: usize = 24;

/// Replaces known secret values in text. Clones share what they know.
#[derive(Clone, Default)]
pub struct Redactor(Arc<RwLock<Vec<SecretString>>>);

impl Redactor {
    /// What replaces a secret.
    pub const MARK: &'static str = "[redacted]";

    /// Makes a redactor for these values; see [`Self::learn`].
    pub fn new(secrets: impl IntoIterator<Item = SecretString>) -> Self {
        let redactor = Self::default();
        secrets.into_iter().for_each(|secret| redactor.learn(secret));
        redactor
    }

    /// Replaces this value too from now on, unless it is too short for a key, or a lower-case word.
    pub fn learn(&self, secret: SecretString) {
        let text = secret.expose_secret();
        let word = |b: u8| b.is_ascii_lowercase() || matches!(b, b'_' | b'-');
        let is_word = text.len() <= LONGEST_WORD && text.bytes().all(word);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if text.len() >= SHORTEST && !is_word && !known.iter().any(|k| k.expose_secret() == text) {
            known.push(secret);
        }
    }

    /// The text without the secrets, those too that are written with the escapes of JSON.
    pub fn clean(&self, mut text: String) -> String {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        for secret in known.iter().map(ExposeSecret::expose_secret) {
            if text.contains(secret) {
                text = text.replace(secret, Self::MARK);
            }
            if text.contains('\\') {
                text = without_escaped(text, secret.as_bytes());
            }
        }
        text
    }
}

/// The text without `secret` where letters of it are written as `\u0073`, or behind a backslash.
fn without_escaped(text: String, secret: &[u8]) -> String {
    let mut clean = String::new();
    let mut kept = 0;
    let mut at = 0;
    while at < text.len() {
        match escaped(text.as_bytes().get(at..).unwrap_or_default(), secret) {
            Some(length) => {
                clean.push_str(text.get(kept..at).unwrap_or_default());
                clean.push_str(Redactor::MARK);
                at += length;
                kept = at;
            }
            None => at += 1,
        }
    }
    if kept == 0 {
        return text;
    }
    clean + text.get(kept..).unwrap_or_default()
}

/// How many bytes `secret` takes at the beginning of `text`; `None` where something else is there. JSON within
/// JSON has several backslashes before one letter.
fn escaped(text: &[u8], secret: &[u8]) -> Option<usize> {
    let mut rest = text;
    for letter in secret {
        let slashes = if *letter == b'\\' { 0 } else { rest.iter().take_while(|b| **b == b'\\').count() };
        let (_, unescaped) = rest.split_at(slashes);
        rest = match unescaped {
            [b'u', hex @ ..] if slashes > 0 && is_code_of(hex.get(..4)?, *letter) => hex.get(4..)?,
            [first, after @ ..] if first == letter => after,
            _ => return None,
        };
    }
    Some(text.len() - rest.len())
}

fn is_code_of(hex: &[u8], letter: u8) -> bool {
    let code = std::str::from_utf8(hex).ok().and_then(|hex| u32::from_str_radix(hex, 16).ok());
    code == Some(u32::from(letter))
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        write!(f, "Redactor({} secrets)", known.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_are_replaced_and_never_shown() {
        let redactor = Redactor::new(["sk-canary-123456".into(), "x".into()]);
        assert_eq!(redactor.clean("key sk-canary-123456 x".into()), "key [redacted] x");
        assert!(!format!("{redactor:?}").contains("canary"));
        let shared = redactor.clone();
        redactor.learn("sk-from-a-command-7".into());
        assert_eq!(shared.clean("a sk-from-a-command-7 b".into()), "a [redacted] b");
    }

    #[test]
    fn a_key_in_the_escapes_of_json_is_replaced() {
        let redactor = Redactor::new(["sk-canary/123456".into()]);
        for text in [
            r"é \u0073\u006b-canary\/123456 é",
            r"é sk\u002Dcanary/123456 é",
            r"é \\\u0073k-canary\\/123456 é",
        ] {
            assert_eq!(redactor.clean(text.into()), "é [redacted] é", "{text}");
        }
        for text in [r"\u0073k-canary", r"\", r"\u", r"\u00", r"a\u0073\u006b-canary\/123457"] {
            assert_eq!(redactor.clean(text.into()), text);
        }
    }

    #[test]
    fn a_dummy_key_that_is_a_word_breaks_no_line() {
        let redactor = Redactor::new(["llamacpp".into(), "budget_exhausted".into(), "Llamacpp1".into()]);
        assert_eq!(
            redactor.clean("llamacpp budget_exhausted Llamacpp1".into()),
            "llamacpp budget_exhausted [redacted]"
        );
    }
}
