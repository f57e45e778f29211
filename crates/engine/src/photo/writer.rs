//! Changing a photo: under the lock, with an authority, content first and the op-log line last.

use std::sync::Arc;

use crate::lease::Lease;
use crate::photo::error::PhotoError;
use crate::photo::lock::Lock;
use crate::photo::objects::Commit;
use crate::photo::op::Operation;
use crate::photo::oplog::{self, OpLine};
use crate::photo::positions::BASELINE;
use crate::photo::refs::{Head, RefKind};
use crate::photo::workspace::Workspace;
use base::clock::{Clock, SystemClock};
use base::ids::{Hash, RefName, SessionId};
use darktable::state::EditState;

/// What the names of a session's refs begin with: of an exploration, and of a conversation.
const SESSION_PREFIXES: [&str; 2] = ["branch_b_", "talk_"];

/// The longest label, in characters.
const LABEL_LIMIT: usize = 200;

/// In whose name a photo is changed.
#[derive(Clone, Debug)]
pub enum Authority {
    /// Somebody at the keyboard: everything but breaking what is immutable.
    Person,
    /// A session: while its lease is live, and only on refs that begin with `branch_b_` or `talk_`.
    Session {
        /// Which.
        session: SessionId,
        /// Its lease.
        lease: Lease,
    },
}

impl Authority {
    /// As the op-log spells it: `person`, or the session's id.
    pub fn name(&self) -> &str {
        match self {
            Self::Person => "person",
            Self::Session { session, .. } => session.as_str(),
        }
    }
}

/// What recording an edit came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitInfo {
    /// The commit that holds the edit.
    pub commit: Hash,
    /// Its state.
    pub state: Hash,
    /// The edit equals its parent's: no commit was made, and `commit` is the parent.
    pub unchanged: bool,
}

/// The right to change one photo: its lock, and in whose name. Dropping it gives the lock back.
#[derive(Debug)]
pub struct Writer {
    workspace: Workspace,
    authority: Authority,
    clock: Arc<dyn Clock>,
    call: Option<u64>,
    _lock: Lock,
}

impl Writer {
    pub(super) fn new(workspace: Workspace, authority: Authority, lock: Lock) -> Self {
        Self { workspace, authority, clock: Arc::new(SystemClock), call: None, _lock: lock }
    }

    #[cfg(test)]
    pub(super) fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Says for which tool call (its transcript sequence number) the changes that follow are made. Repeating
    /// a call that a crash cut then succeeds, and leaves one op-log line, not two.
    pub fn set_call(&mut self, call: Option<u64>) {
        self.call = call;
    }

    /// The photo, for reading.
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// In whose name.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Records `state` as a commit on `branch`, which must be at `parent`. The order is: state, commit,
    /// op-log line. If `branch` is at the very commit already (the call is repeated), that is success.
    ///
    /// # Errors
    /// [`PhotoError::Moved`], if it is elsewhere; [`PhotoError::Denied`] and [`PhotoError::Lease`], where the authority does not
    /// hold; [`PhotoError::Invalid`] for a label or an edit that cannot be stored.
    pub fn record_edit(
        &mut self,
        branch: &RefName,
        parent: &Hash,
        state: &EditState,
        op: Operation,
        label: &str,
    ) -> Result<CommitInfo, PhotoError> {
        self.may_write_ref(RefKind::Branch, branch)?;
        check_label(label)?;
        let objects = self.workspace.objects();
        let tip = self.workspace.branch(branch)?.ok_or_else(|| no_branch(branch))?;
        let old = objects.commit(parent)?;
        let state_hash = state.hash();
        let moved =
            || PhotoError::Moved { branch: branch.clone(), expected: parent.clone(), found: tip.clone() };
        if state_hash == old.state {
            if tip != *parent {
                return Err(moved());
            }
            if op == Operation::Snapshot && !label.is_empty() {
                self.label(RefKind::Branch.full(branch), &tip, label)?;
            }
            return Ok(CommitInfo { commit: tip, state: state_hash, unchanged: true });
        }
        let commit =
            Commit { label: label.to_owned(), op, parents: vec![parent.clone()], state: state_hash.clone() };
        let canonical = commit.canonical()?;
        let hash = Hash::of(&canonical);
        if tip != *parent && tip != hash {
            return Err(moved());
        }
        objects.put_state(state)?;
        objects.put_commit(&canonical)?;
        if tip != hash {
            self.publish(commit.op, RefKind::Branch.full(branch), Some(tip), Some(hash.clone()), label)?;
        }
        Ok(CommitInfo { commit: hash, state: state_hash, unchanged: false })
    }

    /// Sets `branch` back to the baseline's edit, as a new commit on top: nothing is lost.
    ///
    /// # Errors
    /// As [`Self::record_edit`].
    pub fn reset(&mut self, branch: &RefName) -> Result<CommitInfo, PhotoError> {
        self.may_write_ref(RefKind::Branch, branch)?;
        let tip = self.workspace.branch(branch)?.ok_or_else(|| no_branch(branch))?;
        let state = self.workspace.state_of(self.workspace.baseline())?;
        self.record_edit(branch, &tip, &state, Operation::Reset, "")
    }

    /// Makes a branch at the commit `at`.
    ///
    /// # Errors
    /// [`PhotoError::RefTaken`]; [`PhotoError::Denied`] and [`PhotoError::Lease`], where the authority does not hold.
    pub fn create_branch(&mut self, name: &RefName, at: &Hash) -> Result<(), PhotoError> {
        self.create_ref(RefKind::Branch, name, at, Operation::CreateBranch, "")
    }

    /// Makes a tag, which never moves, at the commit `at`.
    ///
    /// # Errors
    /// As [`Self::create_branch`].
    pub fn create_tag(&mut self, name: &RefName, at: &Hash, label: &str) -> Result<(), PhotoError> {
        self.create_ref(RefKind::Tag, name, at, Operation::CreateTag, label)
    }

    /// Points `branch` at another commit, if it is at `expected`.
    ///
    /// # Errors
    /// As [`Self::record_edit`].
    pub fn move_branch(
        &mut self,
        branch: &RefName,
        expected: &Hash,
        to: &Hash,
        label: &str,
    ) -> Result<(), PhotoError> {
        self.may_write_ref(RefKind::Branch, branch)?;
        check_label(label)?;
        self.workspace.commit(to)?;
        let found = self.workspace.branch(branch)?.ok_or_else(|| no_branch(branch))?;
        if found == *to {
            return Ok(());
        }
        if found != *expected {
            return Err(PhotoError::Moved { branch: branch.clone(), expected: expected.clone(), found });
        }
        self.publish(
            Operation::MoveBranch,
            RefKind::Branch.full(branch),
            Some(found),
            Some(to.clone()),
            label,
        )
    }

    /// Puts a branch to where a transcript says it was: at `to`, or, if that is `None`, nowhere. For taking up
    /// a session that was cut between an edit and its transcript line.
    ///
    /// # Errors
    /// [`PhotoError::MovedSince`] unless it was this session that moved it last.
    pub fn restore_ref(&mut self, branch: &RefName, to: Option<&Hash>) -> Result<(), PhotoError> {
        self.may_write_ref(RefKind::Branch, branch)?;
        if let Some(commit) = to {
            self.workspace.commit(commit)?;
        }
        let found = self.workspace.branch(branch)?;
        if found.as_ref() == to {
            return Ok(());
        }
        let full = RefKind::Branch.full(branch);
        let last = oplog::last_of(self.workspace.folder(), &full)?;
        let own = |line: &OpLine| line.by == self.authority.name() && line.after == found;
        if !last.as_ref().is_some_and(own) {
            return Err(PhotoError::MovedSince {
                photo: self.workspace.id().clone(),
                branch: branch.clone(),
                found,
                to: to.cloned(),
            });
        }
        if to.is_none() {
            self.refuse_if_head_follows(branch)?;
        }
        self.publish(Operation::RestoreBranch, full, found, to.cloned(), "")
    }

    /// Deletes a branch. Its commits stay until `gc`. For a person only.
    ///
    /// # Errors
    /// [`PhotoError::Denied`] for a session; [`PhotoError::State`], if it is checked out.
    pub fn delete_branch(&mut self, branch: &RefName) -> Result<(), PhotoError> {
        self.person_only("delete a branch")?;
        let tip = self.workspace.branch(branch)?.ok_or_else(|| no_branch(branch))?;
        self.refuse_if_head_follows(branch)?;
        self.publish(Operation::DeleteBranch, RefKind::Branch.full(branch), Some(tip), None, "")
    }

    /// Deletes a tag. What it named stays until `gc`. For a person only.
    ///
    /// # Errors
    /// [`PhotoError::Denied`] for a session; [`PhotoError::State`] for `baseline`, on which everything is built.
    pub fn delete_tag(&mut self, tag: &RefName) -> Result<(), PhotoError> {
        self.person_only("delete a tag")?;
        if RefKind::Tag.full(tag) == BASELINE {
            return Err(PhotoError::State("the tag `baseline` cannot be deleted".into()));
        }
        let at = self.workspace.tag(tag)?.ok_or_else(|| no_tag(tag))?;
        self.publish(Operation::DeleteTag, RefKind::Tag.full(tag), Some(at), None, "")
    }

    /// Gives a branch another name; HEAD goes with it. A kill in between leaves it under both. For a person only.
    ///
    /// # Errors
    /// [`PhotoError::Denied`] for a session; [`PhotoError::State`] for `main`; [`PhotoError::RefTaken`].
    pub fn rename_branch(&mut self, old: &RefName, new: &RefName) -> Result<(), PhotoError> {
        self.person_only("rename a branch")?;
        if old.as_str() == "main" {
            return Err(PhotoError::State("the branch `main` cannot be renamed".into()));
        }
        let tip = self.workspace.branch(old)?.ok_or_else(|| no_branch(old))?;
        let label: String = format!("rename {old} to {new}").chars().take(LABEL_LIMIT).collect();
        let follows = self.workspace.head()? == Head::Branch(old.clone());
        self.create_ref(RefKind::Branch, new, &tip, Operation::CreateBranch, &label)?;
        if follows {
            let op = Operation::Checkout { branch: Some(new.clone()) };
            self.publish(op, "HEAD".into(), Some(tip.clone()), Some(tip.clone()), &label)?;
        }
        self.publish(Operation::DeleteBranch, RefKind::Branch.full(old), Some(tip), None, &label)
    }

    /// Moves HEAD to a branch, if `spec` names one, else to the commit that it resolves to. For a person only.
    ///
    /// # Errors
    /// [`PhotoError::Denied`] for a session; [`PhotoError::Unresolved`].
    pub fn checkout(&mut self, spec: &str) -> Result<Head, PhotoError> {
        self.person_only("move HEAD")?;
        if spec == "HEAD" {
            return self.workspace.head();
        }
        let after = self.workspace.resolve(spec)?;
        let short = spec.strip_prefix(RefKind::Branch.prefix()).unwrap_or(spec);
        let branch = match short.parse::<RefName>() {
            Ok(name) if self.workspace.branch(&name)?.is_some() => Some(name),
            _ => None,
        };
        // HEAD never goes where nothing can be read.
        self.workspace.state_of(&after)?;
        let before = self.workspace.head_commit().ok();
        let head = branch.clone().map_or_else(|| Head::Detached(after.clone()), Head::Branch);
        if self.workspace.head().is_ok_and(|now| now == head) {
            return Ok(head);
        }
        self.publish(Operation::Checkout { branch }, "HEAD".into(), before, Some(after), "")?;
        Ok(head)
    }

    /// Fails unless the authority holds now.
    pub(super) fn check_lease(&self) -> Result<(), PhotoError> {
        match &self.authority {
            Authority::Person => Ok(()),
            Authority::Session { lease, .. } => lease.check().map_err(PhotoError::Lease),
        }
    }

    /// Fails for a session.
    pub(super) fn person_only(&self, what: &str) -> Result<(), PhotoError> {
        self.check_lease()?;
        match self.authority {
            Authority::Person => Ok(()),
            Authority::Session { .. } => {
                Err(PhotoError::Denied(format!("a session may not {what}: that is left to the photographer")))
            }
        }
    }

    /// The session, if it is one.
    pub(super) fn session(&self) -> Option<&SessionId> {
        match &self.authority {
            Authority::Person => None,
            Authority::Session { session, .. } => Some(session),
        }
    }

    pub(super) fn call(&self) -> Option<u64> {
        self.call
    }

    pub(super) fn now(&self) -> jiff::Timestamp {
        self.clock.wall()
    }

    fn create_ref(
        &mut self,
        kind: RefKind,
        name: &RefName,
        at: &Hash,
        op: Operation,
        label: &str,
    ) -> Result<(), PhotoError> {
        self.may_write_ref(kind, name)?;
        check_label(label)?;
        self.workspace.commit(at)?;
        if let Some(found) = self.workspace.position(kind, name)? {
            if found == *at && self.is_repeat(kind, name, at)? {
                return Ok(());
            }
            return Err(PhotoError::RefTaken(format!(
                "{kind} `{name}` stands already, at {}",
                found.short()
            )));
        }
        self.publish(op, kind.full(name), None, Some(at.clone()), label)
    }

    /// Whether this very call made the ref before a crash.
    fn is_repeat(&self, kind: RefKind, name: &RefName, at: &Hash) -> Result<bool, PhotoError> {
        let Some(call) = self.call else { return Ok(false) };
        let full = kind.full(name);
        Ok(oplog::recent(self.workspace.folder())?.iter().any(|line| {
            line.call == Some(call)
                && line.by == self.authority.name()
                && line.reference == full
                && line.before.is_none()
                && line.after.as_ref() == Some(at)
        }))
    }

    /// The ref policy.
    fn may_write_ref(&self, kind: RefKind, name: &RefName) -> Result<(), PhotoError> {
        self.check_lease()?;
        if matches!(self.authority, Authority::Person) {
            return Ok(());
        }
        let own = SESSION_PREFIXES.iter().find_map(|prefix| name.as_str().strip_prefix(prefix));
        let rest = own.unwrap_or_default();
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        let allowed = match kind {
            RefKind::Branch => (1..=40).contains(&rest.len()) && rest.bytes().all(plain),
            RefKind::Tag => !rest.is_empty(),
        };
        if allowed {
            return Ok(());
        }
        let pattern = match kind {
            RefKind::Branch => "branch_b_[a-z0-9_]{1,40}` or `talk_…",
            RefKind::Tag => "branch_b_…` or `talk_…",
        };
        Err(PhotoError::Denied(format!(
            "a session may only make and move its own {kind} names, `{pattern}`; `{name}` belongs to the photographer"
        )))
    }

    pub(super) fn refuse_if_head_follows(&self, branch: &RefName) -> Result<(), PhotoError> {
        match self.workspace.head()? {
            Head::Branch(current) if current == *branch => Err(PhotoError::State(format!(
                "branch `{branch}` is checked out; check out another one first"
            ))),
            _ => Ok(()),
        }
    }

    /// Labels a commit that is there already, by a line of the op-log: one, however often a cut call is repeated.
    fn label(&self, reference: String, tip: &Hash, label: &str) -> Result<(), PhotoError> {
        let last = oplog::last_of(self.workspace.folder(), &reference)?;
        let known = last.is_some_and(|last| last.labels() == Some(tip) && last.label == label);
        if known {
            return Ok(());
        }
        self.publish(Operation::Snapshot, reference, Some(tip.clone()), Some(tip.clone()), label)
    }

    pub(super) fn publish(
        &self,
        op: Operation,
        reference: String,
        before: Option<Hash>,
        after: Option<Hash>,
        label: &str,
    ) -> Result<(), PhotoError> {
        let line = OpLine {
            t: self.now(),
            by: self.authority.name().to_owned(),
            call: self.call,
            op,
            reference,
            before,
            after,
            label: label.to_owned(),
        };
        self.workspace.publish(&line)
    }
}

fn no_branch(name: &RefName) -> PhotoError {
    PhotoError::Unresolved { spec: name.to_string(), reason: "there is no such branch".into() }
}

fn no_tag(name: &RefName) -> PhotoError {
    PhotoError::Unresolved { spec: name.to_string(), reason: "there is no such tag".into() }
}

fn check_label(label: &str) -> Result<(), PhotoError> {
    if label.chars().count() > LABEL_LIMIT || label.chars().any(char::is_control) {
        return Err(PhotoError::Invalid(format!(
            "a label is one line of at most {LABEL_LIMIT} characters without control characters"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
