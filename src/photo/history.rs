//! Looking back: the ancestry of a commit, the op-log, and where the photo stands.

use std::collections::HashMap;

use serde::{Serialize, Serializer};

use crate::ids::{Hash, PhotoId, RefName};
use crate::photo::error::PhotoError;
use crate::photo::jsonl;
use crate::photo::lock::Holder;
use crate::photo::op::Operation;
use crate::photo::oplog::{self, OpLine};
use crate::photo::refs::{Head, RefKind};
use crate::photo::workspace::Workspace;

/// One commit of an ancestry.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogEntry {
    /// The commit.
    pub commit: Hash,
    /// Its edit.
    pub state: Hash,
    /// Where it comes from.
    pub parents: Vec<Hash>,
    /// What was done.
    pub op: Operation,
    /// The same in one line.
    pub words: String,
    /// Words given for it.
    pub label: String,
    /// When it was recorded, where the op-log says so.
    #[serde(serialize_with = "optional_time")]
    pub t: Option<jiff::Timestamp>,
    /// `person` or a session's id, where the op-log says so.
    pub by: Option<String>,
    /// The refs that point at it, in full.
    pub refs: Vec<String>,
}

/// Where a photo stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// The photo.
    pub photo: PhotoId,
    /// What HEAD says.
    pub head: Head,
    /// The commit that HEAD stands for.
    pub commit: Hash,
    /// Its edit.
    pub state: Hash,
    /// Whether that edit is the baseline's.
    pub is_baseline: bool,
    /// How many commits it is from the baseline.
    pub commits: usize,
    /// Module instances of the edit.
    pub modules: usize,
    /// Those of them that run.
    pub enabled: usize,
    /// Branches with their tips.
    pub branches: Vec<(RefName, Hash)>,
    /// Tags.
    pub tags: Vec<(RefName, Hash)>,
    /// Proposals that wait for a person.
    pub proposals: usize,
    /// Who holds the lock.
    pub held_by: Option<Holder>,
}

impl Workspace {
    /// The commits from `from` back to the baseline by first parents, newest first, at most `limit`. Time and
    /// author come from the op-log; where equal edits were made several times, from the line of the branch
    /// that `from` names, else from the first.
    pub fn log(&self, from: &str, limit: usize) -> Result<Vec<LogEntry>, PhotoError> {
        let mut next = Some(self.resolve(from)?);
        let short = from.strip_prefix(RefKind::Branch.prefix()).unwrap_or(from);
        let branch = match (from, self.head()) {
            ("HEAD", Ok(Head::Branch(branch))) => RefKind::Branch.full(&branch),
            _ => format!("{}{short}", RefKind::Branch.prefix()),
        };
        let mut lines: HashMap<Hash, OpLine> = HashMap::new();
        for line in jsonl::read::<OpLine>(&self.folder().join(oplog::FILE))?.items {
            let Some(after) = line.after.clone().filter(|_| makes_commit(&line.op)) else { continue };
            let better =
                lines.get(&after).is_none_or(|old| old.reference != branch && line.reference == branch);
            if better {
                lines.insert(after, line);
            }
        }
        let mut refs: HashMap<Hash, Vec<String>> = HashMap::new();
        for (kind, list) in [(RefKind::Branch, self.branches()?), (RefKind::Tag, self.tags()?)] {
            for (name, hash) in list {
                refs.entry(hash).or_default().push(kind.full(&name));
            }
        }
        let mut entries = Vec::new();
        while let Some(hash) = next.take().filter(|_| entries.len() < limit) {
            let commit = self.commit(&hash)?;
            let line = lines.remove(&hash);
            next = commit.parents.first().cloned();
            entries.push(LogEntry {
                state: commit.state,
                parents: commit.parents,
                words: commit.op.to_string(),
                op: commit.op,
                label: commit.label,
                t: line.as_ref().map(|l| l.t),
                by: line.map(|l| l.by),
                refs: refs.remove(&hash).unwrap_or_default(),
                commit: hash,
            });
        }
        Ok(entries)
    }

    /// The last `limit` lines of the op-log, newest first: every mutation on every ref, as it happened.
    pub fn recent_operations(&self, limit: usize) -> Result<Vec<OpLine>, PhotoError> {
        let mut lines: Vec<OpLine> = jsonl::tail(&self.folder().join(oplog::FILE), limit)?;
        lines.reverse();
        Ok(lines)
    }

    /// Where the photo stands.
    pub fn status(&self) -> Result<Status, PhotoError> {
        let commit = self.head_commit()?;
        let state_hash = self.commit(&commit)?.state;
        let state = self.state(&state_hash)?;
        let mut commits = 0;
        let mut at = self.commit(&commit)?;
        while let Some(parent) = at.parents.first() {
            commits += 1;
            at = self.commit(parent)?;
        }
        Ok(Status {
            photo: self.id().clone(),
            head: self.head()?,
            is_baseline: self.commit(self.baseline())?.state == state_hash,
            commit,
            state: state_hash,
            commits,
            modules: state.modules.len(),
            enabled: state.modules.iter().filter(|m| m.enabled).count(),
            branches: self.branches()?,
            tags: self.tags()?,
            proposals: self.pending_proposals()?.len(),
            held_by: self.held_by()?,
        })
    }
}

fn makes_commit(op: &Operation) -> bool {
    !matches!(
        op,
        Operation::CreateBranch
            | Operation::CreateTag
            | Operation::MoveBranch
            | Operation::DeleteBranch
            | Operation::RestoreBranch
            | Operation::Checkout { .. }
    )
}

fn optional_time<S: Serializer>(t: &Option<jiff::Timestamp>, s: S) -> Result<S::Ok, S::Error> {
    match t {
        Some(t) => oplog::time::serialize(t, s),
        None => s.serialize_none(),
    }
}
