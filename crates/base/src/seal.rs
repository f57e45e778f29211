//! JSON objects that carry their own hash, so that a bit that flips anywhere in one is found.
//!
//! The hash is in a last field and is of the object's text without that field, and of the line before where the
//! object is a line of a log: then a line that is lost is found too. Readers that know nothing of it see a field more.

use sha2::{Digest as _, Sha256};

use crate::ids::Hash;

/// What precedes the hash.
const FIELD: &str = ",\"own_sha256\":\"";
/// And behind it.
const END: &str = "\"}";
/// Hexadecimal digits of the hash.
const DIGITS: usize = 64;
/// So many bytes of [`FIELD`] and [`END`] may be other ones, and what is there still was a seal.
const FLIPPED: usize = 2;

/// What an object's text says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seal {
    /// Nothing: an earlier build wrote it.
    Absent,
    /// It is as it was written.
    Whole,
    /// It was changed, or what stood before it was.
    Broken,
}

/// The object `text` with its hash. `before` is the line before it; empty where there is none, or where lines are
/// chained otherwise. What is not an object is left as it is.
pub fn seal(before: &[u8], text: &str) -> String {
    match text.strip_suffix('}') {
        Some(open) => format!("{open}{FIELD}{}{END}", hash(before, text.as_bytes())),
        None => text.to_owned(),
    }
}

/// Whether `line`, which follows `before`, is as [`seal`] made it.
pub fn check(before: &[u8], line: &[u8]) -> Seal {
    let Some((text, sealed)) = open(line) else { return Seal::Absent };
    match sealed == hash(before, &text).as_str().as_bytes() && line.ends_with(END.as_bytes()) {
        true => Seal::Whole,
        false => Seal::Broken,
    }
}

/// The object without its seal, and the digits in it. A seal that was changed itself gives digits that fit nothing.
fn open(line: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (rest, end) = line.split_at_checked(line.len().checked_sub(END.len())?)?;
    let (rest, digits) = rest.split_at_checked(rest.len().checked_sub(DIGITS)?)?;
    let (text, field) = rest.split_at_checked(rest.len().checked_sub(FIELD.len())?)?;
    let written = FIELD.bytes().chain(END.bytes());
    let flipped = field.iter().chain(end).zip(written).filter(|(found, byte)| **found != *byte).count();
    match flipped {
        0 => Some(([text, b"}"].concat(), digits)),
        1..=FLIPPED => Some((text.to_vec(), b"")),
        _ => None,
    }
}

fn hash(before: &[u8], text: &[u8]) -> Hash {
    let mut digest = Sha256::new();
    for part in [before, b"\n", text] {
        digest.update(part);
    }
    Hash::finish(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_of_a_sealed_object_is_found_and_a_lost_line_before_it() {
        let text = r#"{"after":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}"#;
        assert_eq!(check(b"", text.as_bytes()), Seal::Absent);
        let sealed = seal(b"one", text);
        serde_json::from_str::<serde_json::Value>(&sealed).unwrap();
        assert_eq!(check(b"one", sealed.as_bytes()), Seal::Whole);
        assert_eq!(check(b"two", sealed.as_bytes()), Seal::Broken);
        for at in 0..sealed.len() * 8 {
            let mut bytes = sealed.clone().into_bytes();
            bytes[at / 8] ^= 1 << (at % 8);
            assert_eq!(check(b"one", &bytes), Seal::Broken, "bit {at}");
        }
        for short in ["", "}", "[1]", &sealed[sealed.len() - 81..]] {
            assert_ne!(check(b"one", short.as_bytes()), Seal::Whole, "{short}");
        }
        assert_eq!(seal(b"", "[1]"), "[1]");
    }
}
