//! Deleting what no ref leads to: only when a person runs it, and with a dry run.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;

use serde::Serialize;

use crate::photo::error::PhotoError;
use crate::photo::fsck::litter;
use crate::photo::objects::Kind;
use crate::photo::refs::Head;
use crate::photo::workspace::Workspace;
use crate::photo::writer::Writer;
use base::ids::Hash;

/// What `gc` removed, or would remove.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GcReport {
    /// Whether nothing was removed.
    pub dry_run: bool,
    /// Commits that no ref leads to.
    pub commits: Vec<Hash>,
    /// States that no remaining commit has.
    pub states: Vec<Hash>,
    /// Temporary files that a crash left behind.
    pub litter: Vec<PathBuf>,
    /// The bytes of all of them.
    pub bytes: u64,
}

/// What the refs lead to.
pub(super) struct Reachable {
    pub commits: HashSet<Hash>,
    pub states: HashSet<Hash>,
}

impl Workspace {
    /// All commits and states that a ref, HEAD or the baseline leads to. Fails at the first damaged one.
    pub(super) fn reachable(&self) -> Result<Reachable, PhotoError> {
        let mut todo: Vec<Hash> = vec![self.baseline().clone()];
        todo.extend(self.branches()?.into_iter().chain(self.tags()?).map(|(_, hash)| hash));
        if let Head::Detached(commit) = self.head()? {
            todo.push(commit);
        }
        let mut reachable = Reachable { commits: HashSet::new(), states: HashSet::new() };
        while let Some(hash) = todo.pop() {
            if reachable.commits.contains(&hash) {
                continue;
            }
            let commit = self.commit(&hash)?;
            reachable.commits.insert(hash);
            reachable.states.insert(commit.state);
            todo.extend(commit.parents);
        }
        Ok(reachable)
    }
}

impl Writer {
    /// Removes commits and states that no ref leads to, and temporary files that a crash left. With `dry_run`
    /// it only says which. For a person only.
    ///
    /// # Errors
    /// [`PhotoError::Damaged`] while anything that a ref leads to is damaged.
    pub fn gc(&mut self, dry_run: bool) -> Result<GcReport, PhotoError> {
        self.person_only("delete unreachable commits")?;
        let workspace = self.workspace();
        let keep = workspace.reachable()?;
        let objects = workspace.objects();
        let unreachable = |kind, keep: &HashSet<Hash>| -> Result<Vec<Hash>, PhotoError> {
            let mut list = objects.list(kind)?.0;
            list.retain(|hash| !keep.contains(hash));
            Ok(list)
        };
        let mut report = GcReport {
            dry_run,
            commits: unreachable(Kind::Commit, &keep.commits)?,
            states: unreachable(Kind::State, &keep.states)?,
            litter: litter(workspace.folder())?,
            bytes: 0,
        };
        // Commits before states: a kill in between leaves states without a commit, never the reverse.
        let commits = report.commits.iter().map(|hash| objects.path(Kind::Commit, hash));
        let states = report.states.iter().map(|hash| objects.path(Kind::State, hash));
        for path in commits.chain(states).chain(report.litter.iter().cloned()) {
            report.bytes += fs::metadata(&path).map_or(0, |meta| meta.len());
            if !dry_run {
                fs::remove_file(&path).map_err(PhotoError::io("delete", &path))?;
            }
        }
        Ok(report)
    }
}
