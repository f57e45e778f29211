//! Points in time as every file and every output spells them: RFC 3339 in UTC, with milliseconds.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serializer};

/// Writes `2026-11-25T03:04:05.678Z`. For `#[serde(with = "base::stamp")]`.
///
/// # Errors
/// The serializer's.
pub fn serialize<S: Serializer>(t: &Timestamp, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(&format_args!("{t:.3}"))
}

/// Reads any RFC 3339 timestamp: earlier builds wrote nanoseconds, or none.
///
/// # Errors
/// The deserializer's, and text that is no timestamp.
pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Timestamp, D::Error> {
    String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
}
