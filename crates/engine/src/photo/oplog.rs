//! The op-log: one line per mutation, with who, when, and in which call. A mutation is made when its line is on the
//! disk: refs and HEAD only repeat what the lines say.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::photo::error::PhotoError;
use crate::photo::jsonl;
use crate::photo::op::Operation;
use crate::photo::refs::Head;
use base::ids::Hash;

/// Its file in a photo's folder.
pub(super) const FILE: &str = "log.jsonl";

/// How far back the line of a repeated call is looked for. A call makes one or two lines.
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

impl OpLine {
    /// The commit that it only labels, if it moves nothing.
    pub fn labels(&self) -> Option<&Hash> {
        self.after
            .as_ref()
            .filter(|after| self.op == Operation::Snapshot && self.before.as_ref() == Some(after))
    }

    /// Where it puts HEAD, if that is what it moves.
    pub(super) fn head(&self) -> Option<Head> {
        let Operation::Checkout { branch } = &self.op else { return None };
        branch.clone().map(Head::Branch).or_else(|| self.after.clone().map(Head::Detached))
    }
}

/// What the lines say of refs and HEAD.
pub(super) struct Moves<'a> {
    /// The lines about each branch and tag, oldest first.
    pub refs: BTreeMap<&'a str, Vec<&'a OpLine>>,
    /// Where HEAD was, oldest first: at least on `main`, where ingest puts it.
    pub heads: Vec<Head>,
}

impl<'a> Moves<'a> {
    pub(super) fn of(lines: &'a [OpLine]) -> Self {
        let mut moves = Self { refs: BTreeMap::new(), heads: Vec::new() };
        moves.heads.extend("main".parse().ok().map(Head::Branch));
        for line in lines {
            match &line.op {
                Operation::Checkout { .. } => moves.heads.extend(line.head()),
                _ => moves.refs.entry(&line.reference).or_default().push(line),
            }
        }
        moves
    }

    pub(super) fn last(&self, reference: &str) -> Option<&'a OpLine> {
        self.refs.get(reference)?.last().copied()
    }
}

/// Appends `line`, synced: from then on it is in effect.
pub(super) fn append(folder: &Path, line: &OpLine) -> Result<(), PhotoError> {
    jsonl::append(&folder.join(FILE), line)
}

/// The line at the very end; `None` if there is none, or it is torn.
pub(super) fn last(folder: &Path) -> Result<Option<OpLine>, PhotoError> {
    jsonl::last(&folder.join(FILE))
}

/// All lines that can be read, oldest first.
pub(super) fn lines(folder: &Path) -> Result<Vec<OpLine>, PhotoError> {
    Ok(jsonl::read(&folder.join(FILE))?.items)
}

/// The last line about a ref, however long ago.
pub(super) fn last_of(folder: &Path, reference: &str) -> Result<Option<OpLine>, PhotoError> {
    Ok(lines(folder)?.into_iter().rfind(|line| line.reference == reference))
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
