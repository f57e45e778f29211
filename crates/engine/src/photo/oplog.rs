//! The op-log: one line a mutation, with who, when, and in which call.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::photo::error::PhotoError;
use crate::photo::jsonl;
use crate::photo::op::Operation;
use base::ids::Hash;

/// Its file in a photo's folder.
pub(super) const FILE: &str = "log.jsonl";

/// How far back a repeated line is looked for. A call makes one or two lines, so a repeat after a crash is
/// among the last few; looking further would make an edit dearer as the history grows.
const LOOK_BACK: usize = 8;

/// One line of the op-log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpLine {
    /// When, in UTC (RFC 3339).
    #[serde(with = "time")]
    pub t: jiff::Timestamp,
    /// `person`, or the session's id.
    pub by: String,
    /// The transcript's sequence number of the tool call that did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<u64>,
    /// What was done.
    pub op: Operation,
    /// The ref that moved: `HEAD`, `refs/heads/…` or `refs/tags/…`.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Where it was; `None` if it was made by this.
    pub before: Option<Hash>,
    /// Where it is; `None` if it was deleted by this.
    pub after: Option<Hash>,
    /// A person's or the model's words for it; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
}

/// Appends `line`, unless the same mutation stands there already because a crash came between it and the ref.
/// Returns whether it was appended.
pub(super) fn append(folder: &Path, line: &OpLine) -> Result<bool, PhotoError> {
    let recent = recent(folder)?;
    let same_end =
        |old: &OpLine| old.by == line.by && old.reference == line.reference && old.after == line.after;
    let repeated = match line.call {
        // What the call did was taken back since, if another line about the ref follows it.
        Some(_) => recent
            .iter()
            .rfind(|old| old.reference == line.reference)
            .is_some_and(|old| old.call == line.call && same_end(old)),
        // Without a call number only the very last line can be a repeat: had its ref moved, the same move
        // could not be made again without another line between.
        None => recent.last().is_some_and(|old| {
            old.call.is_none() && same_end(old) && old.before == line.before && old.op == line.op
        }),
    };
    if !repeated {
        jsonl::append(&folder.join(FILE), line)?;
    }
    Ok(!repeated)
}

/// The last line about a ref, however long ago.
pub(super) fn last_of(folder: &Path, reference: &str) -> Result<Option<OpLine>, PhotoError> {
    let lines = jsonl::read::<OpLine>(&folder.join(FILE))?.items;
    Ok(lines.into_iter().rfind(|line| line.reference == reference))
}

/// The last few lines, oldest first.
pub(super) fn recent(folder: &Path) -> Result<Vec<OpLine>, PhotoError> {
    jsonl::tail(&folder.join(FILE), LOOK_BACK)
}

/// RFC 3339 in UTC.
pub(super) mod time {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(in crate::photo) fn serialize<S: Serializer>(t: &jiff::Timestamp, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&format_args!("{t:.3}"))
    }

    pub(in crate::photo) fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> Result<jiff::Timestamp, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}
