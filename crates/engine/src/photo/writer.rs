//! Changing a photo: under the lock, with an authority, content first and the ref last.

use std::sync::Arc;

use crate::lease::Lease;
use crate::photo::error::PhotoError;
use crate::photo::lock::Lock;
use crate::photo::objects::Commit;
use crate::photo::op::Operation;
use crate::photo::oplog::{self, OpLine};
use crate::photo::refs::{Head, RefKind};
use crate::photo::workspace::Workspace;
use base::clock::{Clock, SystemClock};
use base::ids::{Hash, RefName, SessionId};
use darktable::state::EditState;

/// What the names of a session's refs begin with.
const SESSION_PREFIX: &str = "branch_b_";

/// The longest label, in characters.
const LABEL_LIMIT: usize = 200;

/// In whose name a photo is changed.
#[derive(Clone, Debug)]
pub enum Authority {
    /// Somebody at the keyboard: everything but breaking what is immutable.
    Person,
    /// A Mode B session: while its lease is live, and only on refs that begin with `branch_b_`.
    Session {
        /// Which.
        session: SessionId,
        /// Its leave.
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
    /// The commit that now stands for the edit.
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

    /// Takes the op-log's times from `clock`.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Says for which tool call (its transcript sequence number) the changes that follow are made. Repeating
    /// a call that a crash cut then completes it, and leaves one op-log line, not two.
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
    /// op-log line, ref. If `branch` is at the very commit already (the call is repeated), that is success.
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
        let (objects, refs) = (self.workspace.objects(), self.workspace.refs());
        let tip = refs.read(RefKind::Branch, branch)?.ok_or_else(|| no_branch(branch))?;
        let old = objects.commit(parent)?;
        let state_hash = state.hash();
        let moved =
            || PhotoError::Moved { branch: branch.clone(), expected: parent.clone(), found: tip.clone() };
        if state_hash == old.state {
            if tip != *parent {
                return Err(moved());
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
            self.log(commit.op, RefKind::Branch.full(branch), Some(tip), Some(hash.clone()), label)?;
            refs.write(RefKind::Branch, branch, &hash)?;
        }
        Ok(CommitInfo { commit: hash, state: state_hash, unchanged: false })
    }

    /// Sets `branch` back to the baseline's edit, as a new commit on top: nothing is lost.
    pub fn reset(&mut self, branch: &RefName) -> Result<CommitInfo, PhotoError> {
        self.may_write_ref(RefKind::Branch, branch)?;
        let tip = self.workspace.branch(branch)?.ok_or_else(|| no_branch(branch))?;
        let state = self.workspace.state_of(self.workspace.baseline())?;
        self.record_edit(branch, &tip, &state, Operation::Reset, "")
    }

    /// Makes a branch at the commit `at`.
    pub fn create_branch(&mut self, name: &RefName, at: &Hash) -> Result<(), PhotoError> {
        self.create_ref(RefKind::Branch, name, at, Operation::CreateBranch, "")
    }

    /// Makes a tag, which never moves, at the commit `at`.
    pub fn create_tag(&mut self, name: &RefName, at: &Hash, label: &str) -> Result<(), PhotoError> {
        self.create_ref(RefKind::Tag, name, at, Operation::CreateTag, label)
    }

    /// Points `branch` at another commit, if it is at `expected`.
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
        self.log(Operation::MoveBranch, RefKind::Branch.full(branch), Some(found), Some(to.clone()), label)?;
        self.workspace.refs().write(RefKind::Branch, branch, to)
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
        // The line before its ref: where that was cut, the branch is where the line found it.
        let own =
            |line: &OpLine| line.by == self.authority.name() && (line.after == found || line.before == found);
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
        self.log(Operation::RestoreBranch, full, found, to.cloned(), "")?;
        match to {
            Some(commit) => self.workspace.refs().write(RefKind::Branch, branch, commit),
            None => self.workspace.refs().delete(RefKind::Branch, branch),
        }
    }

    /// Deletes a branch. Its commits stay until `gc`. For a person only.
    pub fn delete_branch(&mut self, branch: &RefName) -> Result<(), PhotoError> {
        self.person_only("delete a branch")?;
        let tip = self.workspace.branch(branch)?.ok_or_else(|| no_branch(branch))?;
        self.refuse_if_head_follows(branch)?;
        self.log(Operation::DeleteBranch, RefKind::Branch.full(branch), Some(tip), None, "")?;
        self.workspace.refs().delete(RefKind::Branch, branch)
    }

    /// Moves HEAD to a branch, if `spec` names one, else to the commit that it resolves to. For a person only.
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
        self.log(Operation::Checkout { branch }, "HEAD".into(), before, Some(after), "")?;
        self.workspace.refs().set_head(&head)?;
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
        if let Some(found) = self.workspace.refs().read(kind, name)? {
            if found == *at && self.is_repeat(kind, name, at)? {
                return Ok(());
            }
            return Err(PhotoError::RefTaken(format!(
                "{kind} `{name}` stands already, at {}",
                found.short()
            )));
        }
        self.log(op, kind.full(name), None, Some(at.clone()), label)?;
        self.workspace.refs().write(kind, name, at)
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
        let rest = name.as_str().strip_prefix(SESSION_PREFIX).unwrap_or_default();
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        let allowed = match kind {
            RefKind::Branch => (1..=40).contains(&rest.len()) && rest.bytes().all(plain),
            RefKind::Tag => !rest.is_empty(),
        };
        if allowed {
            return Ok(());
        }
        let pattern = match kind {
            RefKind::Branch => "branch_b_[a-z0-9_]{1,40}",
            RefKind::Tag => "branch_b_…",
        };
        Err(PhotoError::Denied(format!(
            "a session may only make and move its own {kind} names, `{pattern}`; `{name}` belongs to the photographer"
        )))
    }

    fn refuse_if_head_follows(&self, branch: &RefName) -> Result<(), PhotoError> {
        match self.workspace.head()? {
            Head::Branch(current) if current == *branch => Err(PhotoError::State(format!(
                "branch `{branch}` is checked out; check out another one first"
            ))),
            _ => Ok(()),
        }
    }

    fn log(
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
        oplog::append(self.workspace.folder(), &line).map(drop)
    }
}

fn no_branch(name: &RefName) -> PhotoError {
    PhotoError::Unresolved { spec: name.to_string(), reason: "there is no such branch".into() }
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
mod tests {
    use std::path::Path;

    use super::*;
    use crate::photo::testing::{TestPhoto, exposure, name};
    use crate::photo::{GapReport, ProposalKind, ProposedText};
    use base::error::{Coded, ErrorCode};

    fn edit(writer: &mut Writer, branch: &str, ev: f32) -> Result<CommitInfo, PhotoError> {
        let tip = writer.workspace().branch(&name(branch))?.unwrap();
        writer.record_edit(&name(branch), &tip, &exposure(ev), Operation::Snapshot, "")
    }

    #[test]
    fn an_edit_moves_its_branch_and_equal_edits_have_equal_names_everywhere() {
        let tips: Vec<Hash> = (0..2)
            .map(|_| {
                let photo = TestPhoto::new();
                let mut writer = photo.person();
                edit(&mut writer, "main", 0.5).unwrap();
                let info = edit(&mut writer, "main", 0.8).unwrap();
                assert!(!info.unchanged);
                assert_eq!(photo.workspace.state_of(&photo.tip("main")).unwrap(), exposure(0.8));
                assert_eq!(photo.tip("main"), info.commit);
                info.commit
            })
            .collect();
        assert_eq!(tips[0], tips[1]);
    }

    #[test]
    fn an_edit_that_changes_nothing_makes_no_commit() {
        let photo = TestPhoto::new();
        let lines = photo.log_lines();
        let info = edit(&mut photo.person(), "main", 0.0).unwrap();
        assert!(info.unchanged);
        assert_eq!((info.commit, photo.log_lines()), (photo.workspace.baseline().clone(), lines));
    }

    #[test]
    fn an_edit_from_a_stale_parent_is_refused() {
        let photo = TestPhoto::new();
        let mut writer = photo.person();
        let old = photo.tip("main");
        edit(&mut writer, "main", 0.5).unwrap();
        let stale = writer.record_edit(&name("main"), &old, &exposure(0.8), Operation::Snapshot, "");
        let error = stale.unwrap_err();
        assert!(matches!(error, PhotoError::Moved { .. }), "{error}");
        assert_eq!(error.code(), ErrorCode::VersioningError);
        let tip = photo.tip("main");
        let elsewhere = photo.workspace.baseline().clone();
        assert!(writer.move_branch(&name("main"), &old, &elsewhere, "").is_err());
        assert_eq!(photo.tip("main"), tip);
    }

    #[test]
    fn a_call_that_was_cut_is_completed_by_its_repetition() {
        let photo = TestPhoto::new();
        let (mut writer, _) = photo.session();
        let branch = name("branch_b_tone");
        let baseline = photo.workspace.baseline().clone();
        writer.set_call(Some(7));
        writer.create_branch(&branch, &baseline).unwrap();
        writer.create_branch(&branch, &baseline).unwrap();
        writer.set_call(Some(8));
        assert!(matches!(writer.create_branch(&branch, &baseline), Err(PhotoError::RefTaken(_))));

        let apply =
            |w: &mut Writer| w.record_edit(&branch, &baseline, &exposure(1.0), Operation::Snapshot, "");
        let first = apply(&mut writer).unwrap();
        let lines = photo.log_lines();
        // The ref was moved: the repetition finds everything done.
        assert_eq!(apply(&mut writer).unwrap(), first);
        // The kill came between op-log and ref.
        photo.write("refs/heads/branch_b_tone", &format!("{baseline}\n"));
        assert_eq!(apply(&mut writer).unwrap(), first);
        assert_eq!((photo.tip("branch_b_tone"), photo.log_lines()), (first.commit, lines));
    }

    #[test]
    fn a_redo_ends_the_log_where_the_branch_is_and_takes_nothing_of_anyone_else_back() {
        let photo = TestPhoto::new();
        let branch = name("branch_b_tone");
        let baseline = photo.workspace.baseline().clone();
        let (mut writer, _) = photo.session();
        writer.set_call(Some(7));
        writer.create_branch(&branch, &baseline).unwrap();
        writer.set_call(Some(8));
        let apply =
            |w: &mut Writer| w.record_edit(&branch, &baseline, &exposure(1.0), Operation::Snapshot, "");
        let made = apply(&mut writer).unwrap().commit;
        // Cut after the ref was moved: put back, and done again.
        writer.set_call(None);
        writer.restore_ref(&branch, Some(&baseline)).unwrap();
        writer.set_call(Some(8));
        assert_eq!(apply(&mut writer).unwrap().commit, made);
        let last = oplog::last_of(photo.workspace.folder(), "refs/heads/branch_b_tone").unwrap().unwrap();
        assert_eq!((last.call, last.after), (Some(8), Some(made.clone())));
        let report = photo.workspace.fsck().unwrap();
        assert_eq!((report.damages, report.notes), (vec![], vec![]));

        // Somebody went on from there while the session was cut.
        let authority = writer.authority().clone();
        drop(writer);
        let kept = edit(&mut photo.person(), "branch_b_tone", 2.0).unwrap().commit;
        let mut writer = photo.workspace.lock(authority, "the session again").unwrap();
        for to in [Some(&baseline), None] {
            let error = writer.restore_ref(&branch, to).unwrap_err();
            assert_eq!(error.code(), ErrorCode::VersioningError);
            assert!(error.remedy().unwrap().contains("--delete"), "{error}");
        }
        assert_eq!(photo.tip("branch_b_tone"), kept);
        // As the remedy says: it is kept under another name, and the branch made again where the session had it.
        let authority = writer.authority().clone();
        drop(writer);
        let mut person = photo.person();
        person.create_branch(&name("kept"), &kept).unwrap();
        person.delete_branch(&branch).unwrap();
        person.create_branch(&branch, &baseline).unwrap();
        drop(person);
        let mut writer = photo.workspace.lock(authority, "the session again").unwrap();
        writer.restore_ref(&branch, Some(&baseline)).unwrap();
        writer.set_call(Some(8));
        assert_eq!(apply(&mut writer).unwrap().commit, made);
        assert_eq!(photo.tip("kept"), kept);
        assert!(photo.workspace.fsck().unwrap().is_whole());
    }

    #[test]
    fn a_persons_repetition_after_a_kill_leaves_one_line_too() {
        let photo = TestPhoto::new();
        let mut writer = photo.person();
        let baseline = photo.workspace.baseline().clone();
        edit(&mut writer, "main", 0.5).unwrap();
        let lines = photo.log_lines();
        photo.write("refs/heads/main", &format!("{baseline}\n"));
        edit(&mut writer, "main", 0.5).unwrap();
        assert_eq!(photo.log_lines(), lines);
        // Undone and done again is not a repetition.
        let tip = photo.tip("main");
        writer.move_branch(&name("main"), &tip, &baseline, "undo").unwrap();
        edit(&mut writer, "main", 0.5).unwrap();
        assert_eq!(photo.log_lines(), lines + 2);
    }

    #[test]
    fn a_session_owns_its_own_refs_and_no_others() {
        let photo = TestPhoto::new();
        let (mut writer, _) = photo.session();
        let baseline = photo.workspace.baseline().clone();
        writer.create_branch(&name("branch_b_tone"), &baseline).unwrap();
        let tip = edit(&mut writer, "branch_b_tone", 1.0).unwrap().commit;
        writer.create_tag(&name("branch_b_tone-best"), &tip, "").unwrap();
        assert!(!writer.reset(&name("branch_b_tone")).unwrap().unchanged);
        writer.restore_ref(&name("branch_b_tone"), Some(&tip)).unwrap();
        assert_eq!(photo.tip("branch_b_tone"), tip);
        writer.restore_ref(&name("branch_b_tone"), None).unwrap();
        assert_eq!(photo.workspace.branch(&name("branch_b_tone")).unwrap(), None);

        let long = format!("branch_b_{}", "x".repeat(41));
        let refused = [
            edit(&mut writer, "main", 1.0).map(drop),
            writer.reset(&name("main")).map(drop),
            writer.move_branch(&name("main"), &baseline, &tip, ""),
            writer.restore_ref(&name("main"), None),
            writer.restore_ref(&name("main"), Some(&tip)),
            writer.create_branch(&name("tone"), &tip),
            writer.create_branch(&name("branch_b_"), &tip),
            writer.create_branch(&name("branch_b_a/b"), &tip),
            writer.create_branch(&name("branch_b_a-b"), &tip),
            writer.create_branch(&name(&long), &tip),
            writer.create_tag(&name("v2"), &tip, ""),
            writer.delete_branch(&name("main")),
            writer.checkout("main").map(drop),
            writer.gc(true).map(drop),
            writer.accept_proposal("x", None, Path::new("/")).map(drop),
            writer.decline_proposal("x", "").map(drop),
        ];
        for (i, result) in refused.into_iter().enumerate() {
            let error = result.unwrap_err();
            assert_eq!(error.code(), ErrorCode::PermissionDenied, "{i}: {error}");
        }
        let message = writer.create_branch(&name("tone"), &tip).unwrap_err().to_string();
        assert!(message.contains("branch_b_[a-z0-9_]{1,40}"), "{message}");
        assert_eq!(photo.tip("main"), baseline);
    }

    #[test]
    fn without_a_live_lease_a_session_changes_nothing() {
        let photo = TestPhoto::new();
        let (mut writer, lessor) = photo.session();
        let baseline = photo.workspace.baseline().clone();
        let branch = name("branch_b_tone");
        writer.create_branch(&branch, &baseline).unwrap();
        lessor.end();
        let text = ProposedText { kind: ProposalKind::Notes, file: None, text: "x".into(), category: None };
        let gap = GapReport { description: "x".into(), ..GapReport::default() };
        let before = photo.read("log.jsonl");
        let refused = [
            writer.record_edit(&branch, &baseline, &exposure(1.0), Operation::Snapshot, "").map(drop),
            writer.reset(&branch).map(drop),
            writer.create_branch(&name("branch_b_x"), &baseline),
            writer.create_tag(&name("branch_b_x"), &baseline, ""),
            writer.move_branch(&branch, &baseline, &baseline, ""),
            writer.restore_ref(&branch, None),
            writer.delete_branch(&branch),
            writer.checkout("main").map(drop),
            writer.log_gap(gap, None).map(drop),
            writer.propose(text).map(drop),
            writer.accept_proposal("x", None, Path::new("/")).map(drop),
            writer.decline_proposal("x", "").map(drop),
            writer.gc(false).map(drop),
        ];
        for (i, result) in refused.into_iter().enumerate() {
            let error = result.unwrap_err();
            assert_eq!(error.code(), ErrorCode::BudgetExhausted, "{i}: {error}");
            assert_eq!(error.to_fault().code, ErrorCode::BudgetExhausted);
        }
        assert_eq!(photo.read("log.jsonl"), before);
    }

    #[test]
    fn a_person_checks_out_tags_and_deletes() {
        let photo = TestPhoto::new();
        let mut writer = photo.person();
        let baseline = photo.workspace.baseline().clone();
        writer.create_branch(&name("try"), &baseline).unwrap();
        assert_eq!(writer.checkout("try").unwrap(), Head::Branch(name("try")));
        assert!(matches!(writer.delete_branch(&name("try")), Err(PhotoError::State(_))));
        let tip = edit(&mut writer, "try", 1.0).unwrap().commit;
        assert_eq!(photo.workspace.head_commit().unwrap(), tip);
        writer.create_tag(&name("v1"), &tip, "for print").unwrap();
        assert!(matches!(writer.create_tag(&name("v1"), &baseline, ""), Err(PhotoError::RefTaken(_))));
        assert_eq!(writer.checkout("v1").unwrap(), Head::Detached(tip.clone()));
        assert_eq!(writer.checkout("refs/heads/main").unwrap(), Head::Branch(name("main")));
        writer.delete_branch(&name("try")).unwrap();
        assert_eq!(photo.workspace.resolve("v1").unwrap(), tip);
        assert!(writer.checkout("try").is_err());
        assert!(writer.create_branch(&name("x"), &Hash::of("nothing")).is_err());
    }

    #[test]
    fn labels_are_one_short_line() {
        let photo = TestPhoto::new();
        let mut writer = photo.person();
        let tip = photo.tip("main");
        for bad in ["a\nb".to_owned(), "x".repeat(201)] {
            let result = writer.record_edit(&name("main"), &tip, &exposure(1.0), Operation::Snapshot, &bad);
            assert_eq!(result.unwrap_err().code(), ErrorCode::InvalidInput);
        }
    }
}
