//! Names: content hashes, photo ids, ref names, vector names, session ids. Each is valid by construction.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{Coded, ErrorCode};

/// A name that does not match its pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not a valid {what}: it must match {pattern}")]
pub struct InvalidName {
    /// What the name was for.
    pub what: &'static str,
    /// The name as given.
    pub given: String,
    /// The rule, in words or as a regular expression.
    pub pattern: &'static str,
}

impl Coded for InvalidName {
    fn code(&self) -> ErrorCode {
        ErrorCode::InvalidInput
    }
}

/// A SHA-256 in 64 lower-case hexadecimal digits: the name of a piece of content.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct Hash(String);

impl Hash {
    /// Hashes bytes.
    pub fn of(bytes: impl AsRef<[u8]>) -> Self {
        Self::finish(Sha256::new_with_prefix(bytes))
    }

    /// Ends an incremental digest.
    pub fn finish(digest: Sha256) -> Self {
        Self(hex(&digest.finalize()))
    }

    /// All 64 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first twelve digits, for a person's eyes.
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

impl FromStr for Hash {
    type Err = InvalidName;
    fn from_str(s: &str) -> Result<Self, InvalidName> {
        if s.len() == 64 && s.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
            Ok(Self(s.to_owned()))
        } else {
            Err(InvalidName { what: "hash", given: s.to_owned(), pattern: "^[0-9a-f]{64}$" })
        }
    }
}

impl TryFrom<String> for Hash {
    type Error = InvalidName;
    fn try_from(s: String) -> Result<Self, InvalidName> {
        s.parse()
    }
}

impl From<Hash> for String {
    fn from(h: Hash) -> Self {
        h.0
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hash({})", self.short())
    }
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |n: u8| char::from(if n < 10 { b'0' + n } else { b'a' + n - 10 });
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    text
}

/// The bytes of a hexadecimal text of either case; `None` when it is not one.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let mut bytes = Vec::with_capacity(pairs.len());
    for [high, low] in pairs {
        bytes.push(digit(*high)? << 4 | digit(*low)?);
    }
    Some(bytes)
}

/// Declares a validated string newtype.
macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $what:literal, $pattern:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(
            Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
        )]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;
            fn from_str(s: &str) -> Result<Self, InvalidName> {
                let check: fn(&str) -> bool = $check;
                if check(s) {
                    Ok(Self(s.to_owned()))
                } else {
                    Err(InvalidName { what: $what, given: s.to_owned(), pattern: $pattern })
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;
            fn try_from(s: String) -> Result<Self, InvalidName> {
                s.parse()
            }
        }

        impl From<$name> for String {
            fn from(n: $name) -> Self {
                n.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

fn lower_or_digit(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

name_type!(
    /// The name of a photo's workspace folder.
    PhotoId, "photo id", "^[a-z0-9][a-z0-9_-]{0,63}$",
    |s| (1..=64).contains(&s.len())
        && s.bytes().enumerate().all(|(i, b)| lower_or_digit(b) || (i > 0 && (b == b'_' || b == b'-')))
);

name_type!(
    /// A branch or tag name, without its `refs/heads/` or `refs/tags/`.
    RefName, "branch or tag name", "^[a-z0-9][a-z0-9_./-]{0,99}$ without `..`, `//`, `/.` or a trailing `/`, `.` or `.lock`",
    |s| (1..=100).contains(&s.len())
        && s.bytes().enumerate().all(|(i, b)| lower_or_digit(b) || (i > 0 && b"_./-".contains(&b)))
        && !["..", "//", "/."].iter().any(|bad| s.contains(bad))
        && !s.ends_with(['/', '.'])
        && !s.ends_with(".lock")
);

name_type!(
    /// The name of an exploration axis, such as `tone`.
    VectorName, "vector name", "^[a-z0-9_]{1,32}$",
    |s| (1..=32).contains(&s.len()) && s.bytes().all(|b| lower_or_digit(b) || b == b'_')
);

name_type!(
    /// A session's UUIDv7.
    SessionId, "session id", "a UUID in its usual form",
    |s| uuid::Uuid::try_parse(s).is_ok_and(|u| u.hyphenated().to_string() == s)
);

impl SessionId {
    /// Mints an id from the present time and the system's randomness.
    pub fn mint() -> Self {
        Self(uuid::Uuid::now_v7().hyphenated().to_string())
    }

    /// The last twelve digits: unlike the first, they differ between sessions of one minute.
    pub fn short(&self) -> &str {
        self.0.get(24..).unwrap_or(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_lower_case_hex() {
        assert_eq!(
            Hash::of(b"abc").as_str(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert!("BA78".parse::<Hash>().is_err());
        assert_eq!(unhex("00ff10"), Some(vec![0, 255, 16]));
        assert_eq!(unhex("0"), None);
        assert_eq!(unhex("zz"), None);
    }

    #[test]
    fn ref_names_cannot_leave_their_folder() {
        for bad in
            ["", "../x", "x/../../y", "/x", "x/", "x//y", "x/.y", "X", "x y", "x.lock", "x\0", "-x", "é"]
        {
            assert!(bad.parse::<RefName>().is_err(), "{bad:?} was accepted");
        }
        for good in ["main", "branch_b_tone", "v2", "a/b.c-d"] {
            assert!(good.parse::<RefName>().is_ok(), "{good:?} was refused");
        }
    }

    #[test]
    fn photo_ids_and_vectors_are_plain() {
        assert!("iguana-1".parse::<PhotoId>().is_ok());
        assert!("..".parse::<PhotoId>().is_err());
        assert!("tone".parse::<VectorName>().is_ok());
        assert!("to-ne".parse::<VectorName>().is_err());
        let id = SessionId::mint();
        assert_eq!(id.as_str().parse::<SessionId>(), Ok(id.clone()));
        assert_eq!(id.short().len(), 12);
    }
}
