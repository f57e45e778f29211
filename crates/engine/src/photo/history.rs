//! Looking back: the ancestry of a commit, the op-log, and the photo's status.

use std::collections::HashMap;

use serde::{Serialize, Serializer};

use crate::photo::error::PhotoError;
use crate::photo::jsonl;
use crate::photo::lock::Holder;
use crate::photo::op::Operation;
use crate::photo::oplog::{self, OpLine};
use crate::photo::refs::{Head, RefKind};
use crate::photo::workspace::Workspace;
use base::ids::{Hash, PhotoId, RefName};

/// One commit of an ancestry.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct LogEntry {
    /// The commit.
    pub commit: Hash,
    /// Its edit.
    pub state: Hash,
    /// Where it comes from.
    pub parents: Vec<Hash>,
    /// What was done.
    #[schemars(with = "serde_json::Value")]
    pub op: Operation,
    /// The same in one line.
    pub words: String,
    /// Words given for it.
    pub label: String,
    /// Labels that it was given later, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// When it was recorded, where the op-log says so.
    #[serde(serialize_with = "optional_time")]
    #[schemars(with = "Option<jiff::Timestamp>")]
    pub t: Option<jiff::Timestamp>,
    /// `person` or a session's id, where the op-log says so.
    pub by: Option<String>,
    /// The refs that point at it, in full.
    pub refs: Vec<String>,
}

/// HEAD, branches, tags and what is pending.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Status {
    /// The photo.
    pub photo: PhotoId,
    /// What HEAD says.
    pub head: Head,
    /// The commit that HEAD leads to.
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
    /// Branches with their tips, as an object.
    #[serde(serialize_with = "by_name")]
    #[schemars(with = "std::collections::BTreeMap<RefName, Hash>")]
    pub branches: Vec<(RefName, Hash)>,
    /// Tags, as an object.
    #[serde(serialize_with = "by_name")]
    #[schemars(with = "std::collections::BTreeMap<RefName, Hash>")]
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
    ///
    /// # Errors
    /// [`PhotoError`], if `from` names no commit, or one behind it is damaged.
    pub fn log(&self, from: &str, limit: usize) -> Result<Vec<LogEntry>, PhotoError> {
        let mut next = Some(self.resolve(from)?);
        let short = from.strip_prefix(RefKind::Branch.prefix()).unwrap_or(from);
        let branch = match (from, self.head()) {
            ("HEAD", Ok(Head::Branch(branch))) => RefKind::Branch.full(&branch),
            _ => format!("{}{short}", RefKind::Branch.prefix()),
        };
        let mut lines: HashMap<Hash, OpLine> = HashMap::new();
        let mut labels: HashMap<Hash, Vec<String>> = HashMap::new();
        for line in jsonl::read::<OpLine>(&self.folder().join(oplog::FILE))?.items {
            if let Some(labelled) = line.labels() {
                labels.entry(labelled.clone()).or_default().push(line.label);
                continue;
            }
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
                labels: labels.remove(&hash).unwrap_or_default(),
                t: line.as_ref().map(|l| l.t),
                by: line.map(|l| l.by),
                refs: refs.remove(&hash).unwrap_or_default(),
                commit: hash,
            });
        }
        Ok(entries)
    }

    /// The last `limit` lines of the op-log, newest first: every mutation on every ref, as it happened.
    ///
    /// # Errors
    /// [`PhotoError::Io`].
    pub fn recent_operations(&self, limit: usize) -> Result<Vec<OpLine>, PhotoError> {
        let mut lines: Vec<OpLine> = jsonl::tail(&self.folder().join(oplog::FILE), limit)?;
        lines.reverse();
        Ok(lines)
    }

    /// The photo's status.
    ///
    /// # Errors
    /// [`PhotoError`], if HEAD or a commit behind it is damaged.
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
            | Operation::DeleteTag
            | Operation::RestoreBranch
            | Operation::Checkout { .. }
    )
}

/// Pairs as an object.
fn by_name<S: Serializer>(refs: &[(RefName, Hash)], s: S) -> Result<S::Ok, S::Error> {
    s.collect_map(refs.iter().map(|(name, at)| (name, at)))
}

fn optional_time<S: Serializer>(t: &Option<jiff::Timestamp>, s: S) -> Result<S::Ok, S::Error> {
    match t {
        Some(t) => oplog::time::serialize(t, s),
        None => s.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::photo::testing::{TestPhoto, exposure, name};
    use base::clock::ManualClock;

    #[test]
    fn the_log_walks_the_ancestry_and_knows_when_and_who() {
        let photo = TestPhoto::new();
        let clock = Arc::new(ManualClock::default());
        let mut writer = photo.person().with_clock(clock.clone());
        let baseline = photo.workspace.baseline().clone();
        let main = name("main");
        clock.advance(Duration::from_secs(60));
        let one = writer.record_edit(&main, &baseline, &exposure(0.5), Operation::Snapshot, "one").unwrap();
        writer.create_branch(&name("side"), &one.commit).unwrap();
        let two = writer.record_edit(&main, &one.commit, &exposure(0.8), Operation::Snapshot, "two").unwrap();
        drop(writer);
        // The same edit again, on another branch and later: the same commit, with two op-log lines.
        clock.advance(Duration::from_secs(3600));
        let mut writer = photo.person().with_clock(clock);
        let again = writer
            .record_edit(&name("side"), &one.commit, &exposure(0.8), Operation::Snapshot, "two")
            .unwrap();
        assert_eq!(again, two);

        let log = photo.workspace.log("HEAD", 10).unwrap();
        assert_eq!(log.iter().map(|e| e.label.as_str()).collect::<Vec<_>>(), ["two", "one", "baseline"]);
        assert_eq!(log[0].refs, ["refs/heads/main", "refs/heads/side"]);
        assert_eq!(log[2].refs, ["refs/tags/baseline"]);
        assert_eq!(log[0].t.unwrap().as_second(), 60);
        assert_eq!(log[0].by.as_deref(), Some("person"));
        assert_eq!(photo.workspace.log("side", 1).unwrap()[0].t.unwrap().as_second(), 3660);
        assert_eq!(photo.workspace.log("main", 2).unwrap().len(), 2);
        assert_eq!(serde_json::to_value(&log).unwrap()[0]["t"], "1970-01-01T00:01:00.000Z");

        let recent = photo.workspace.recent_operations(2).unwrap();
        assert_eq!(recent[0].reference, "refs/heads/side");
        assert_eq!(recent[1].after, Some(two.commit));
    }

    #[test]
    fn a_log_without_an_op_log_still_has_its_commits() {
        let photo = TestPhoto::new();
        photo.write("log.jsonl", "{\"torn");
        let log = photo.workspace.log("main", 10).unwrap();
        assert_eq!((log.len(), log[0].t, log[0].words.as_str()), (1, None, "ingest: darktable's defaults"));
    }

    #[test]
    fn the_status_says_where_a_photo_stands() {
        let photo = TestPhoto::new();
        let fresh = photo.workspace.status().unwrap();
        assert!(fresh.is_baseline && fresh.commits == 0 && fresh.held_by.is_none());
        let mut writer = photo.person();
        let tip = photo.tip("main");
        writer.record_edit(&name("main"), &tip, &exposure(1.0), Operation::Snapshot, "").unwrap();
        let status = photo.workspace.status().unwrap();
        assert!(!status.is_baseline && status.held_by.is_some());
        assert_eq!((status.commits, status.modules, status.enabled), (1, 1, 1));
        assert_eq!(status.head, Head::Branch(name("main")));
        writer.reset(&name("main")).unwrap();
        let status = photo.workspace.status().unwrap();
        assert!(status.is_baseline && status.commits == 2);
    }
}
