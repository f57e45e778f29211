//! Taking back what a person did last, by the op-log.
//!
//! Nothing is removed from the log: an undo is one more line, whose label begins with [`UNDO`]. So what was done is
//! still there to be read, the commits stay until `gc`, and a further undo goes on with the step before.

use serde::Serialize;

use crate::photo::error::PhotoError;
use crate::photo::op::Operation;
use crate::photo::oplog::{self, OpLine};
use crate::photo::refs::{Head, RefKind};
use crate::photo::writer::{Authority, Writer};
use base::ids::{Hash, RefName};

/// What the label of a line begins with that takes another one back. Nobody types the label of a line that moves a
/// name.
const UNDO: &str = "undo ";

/// One step as a person sees it, and where it left each name.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Undone {
    /// What was taken back, in words.
    pub step: String,
    /// When it was done.
    #[serde(with = "oplog::time")]
    #[schemars(with = "jiff::Timestamp")]
    pub done: jiff::Timestamp,
    /// Each name that moved back: a full ref, or `HEAD`.
    pub moved: Vec<UndoneRef>,
}

/// A name, and where an undo put it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct UndoneRef {
    /// A full ref, or `HEAD`.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Where it was.
    pub from: Option<Hash>,
    /// Where it is; `None` if it is gone.
    pub to: Option<Hash>,
}

/// Whether a line takes another one back.
fn is_undo(line: &OpLine) -> bool {
    line.label.starts_with(UNDO) && moves_a_name(&line.op)
}

/// Operations that make no commit.
fn moves_a_name(op: &Operation) -> bool {
    matches!(
        op,
        Operation::CreateBranch
            | Operation::CreateTag
            | Operation::MoveBranch
            | Operation::DeleteBranch
            | Operation::DeleteTag
            | Operation::Checkout { .. }
    )
}

/// Lines that one command wrote: those that move names under one label.
fn same_step(a: &OpLine, b: &OpLine) -> bool {
    !a.label.is_empty() && a.label == b.label && moves_a_name(&a.op) && moves_a_name(&b.op)
}

/// A step in words.
fn words(step: &[OpLine]) -> String {
    let Some(line) = step.first() else { return String::new() };
    let short =
        |full: &str| RefKind::split(full).map_or_else(|| full.to_owned(), |(_, name)| name.to_string());
    match (&line.op, moves_a_name(&line.op)) {
        (_, true) if !line.label.is_empty() => line.label.clone(),
        (Operation::Checkout { branch: Some(branch) }, _) => format!("checkout {branch}"),
        (Operation::Checkout { .. }, _) => {
            format!("checkout {}", line.after.as_ref().map(Hash::short).unwrap_or_default())
        }
        (op, true) => format!("{op} {}", short(&line.reference)),
        (op, false) => format!("{op} on {}", short(&line.reference)),
    }
}

impl Writer {
    /// Takes back the last step of the person that was not taken back yet: an edit, a promotion, a checkout, a name
    /// that was made, moved or deleted. With `dry_run` it only says which. For a person only.
    ///
    /// # Errors
    /// [`PhotoError::State`], if there is none, or a name has moved since; [`PhotoError::Unresolved`], if a commit
    /// that it goes back to was deleted; [`PhotoError::Denied`] for a session.
    pub fn undo(&mut self, dry_run: bool) -> Result<Undone, PhotoError> {
        self.person_only("undo")?;
        let lines = oplog::lines(self.workspace().folder())?;
        let step = last_step(&lines, self.authority())
            .ok_or_else(|| PhotoError::State("there is nothing of yours to undo on this photo".into()))?;
        let said = words(&step);
        let mut moved = Vec::new();
        // The last line first, as each was made on the one before.
        for line in step.iter().rev() {
            self.may_go_back(line)?;
            moved.push(UndoneRef {
                reference: line.reference.clone(),
                from: line.after.clone(),
                to: line.before.clone(),
            });
        }
        if !dry_run {
            let label: String = format!("{UNDO}{said}").chars().take(200).collect();
            for line in step.iter().rev() {
                let op = self.inverse(line, &lines)?;
                self.publish(op, line.reference.clone(), line.after.clone(), line.before.clone(), &label)?;
            }
        }
        let done = step.last().map(|line| line.t).unwrap_or_default();
        Ok(Undone { step: said, done, moved })
    }

    /// Fails where a name is no longer where the line left it, or what it was at is gone.
    fn may_go_back(&self, line: &OpLine) -> Result<(), PhotoError> {
        let workspace = self.workspace();
        if let Some(before) = &line.before {
            workspace.commit(before)?;
        }
        let Some((kind, name)) = RefKind::split(&line.reference) else { return Ok(()) };
        let found = workspace.position(kind, &name)?;
        if found == line.after {
            return Ok(());
        }
        let at = found.as_ref().map_or("gone".to_owned(), |at| format!("at {}", at.short()));
        Err(PhotoError::State(format!(
            "{kind} `{name}` is {at}, and not where your last step left it: something else has moved it since"
        )))
    }

    /// What takes a line back.
    fn inverse(&self, line: &OpLine, lines: &[OpLine]) -> Result<Operation, PhotoError> {
        if line.reference == "HEAD" {
            return Ok(Operation::Checkout { branch: self.head_before(line, lines)? });
        }
        let named = RefKind::split(&line.reference);
        if let (Some((RefKind::Branch, branch)), None) = (&named, &line.before) {
            self.refuse_if_head_follows(branch)?;
        }
        Ok(match (named.map(|(kind, _)| kind), &line.before, &line.after) {
            (Some(RefKind::Tag), Some(_), _) => Operation::CreateTag,
            (Some(RefKind::Tag), None, _) => Operation::DeleteTag,
            (_, None, _) => Operation::DeleteBranch,
            (_, Some(_), None) => Operation::CreateBranch,
            (_, Some(_), Some(_)) => Operation::MoveBranch,
        })
    }

    /// The branch that HEAD followed before a checkout.
    fn head_before(&self, line: &OpLine, lines: &[OpLine]) -> Result<Option<RefName>, PhotoError> {
        let at = lines.iter().position(|one| one == line).unwrap_or_default();
        let earlier = lines.iter().take(at).rev().find_map(OpLine::head);
        let head = earlier.or_else(|| "main".parse().ok().map(Head::Branch));
        match head {
            Some(Head::Branch(branch)) if self.workspace().branch(&branch)?.is_none() => {
                Err(PhotoError::State(format!("branch `{branch}`, which was checked out before, is deleted")))
            }
            Some(Head::Branch(branch)) => Ok(Some(branch)),
            _ => Ok(None),
        }
    }
}

/// The lines of the last step that was not taken back, oldest first.
fn last_step(lines: &[OpLine], who: &Authority) -> Option<Vec<OpLine>> {
    let own: Vec<&OpLine> = lines.iter().filter(|line| line.by == who.name()).collect();
    let mut steps = own.chunk_by(|a, b| same_step(a, b)).rev();
    let mut taken_back = 0_usize;
    steps.find_map(|step| {
        let first = step.first()?;
        if is_undo(first) {
            // Two undos of equal steps stand side by side under one label: each name that moved twice is one more.
            let twice = step.iter().filter(|line| line.reference == first.reference).count();
            taken_back += twice.max(1);
            return None;
        }
        if matches!(first.op, Operation::Ingest { .. }) {
            return None;
        }
        if taken_back > 0 {
            taken_back -= 1;
            return None;
        }
        Some(step.iter().map(|line| (*line).clone()).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::photo::testing::{TestPhoto, exposure, name};

    fn edit(writer: &mut Writer, branch: &str, ev: f32) -> Hash {
        let tip = writer.workspace().branch(&name(branch)).unwrap().unwrap();
        writer
            .record_edit(&name(branch), &tip, &exposure(ev), Operation::Snapshot, "brighter")
            .unwrap()
            .commit
    }

    /// Everything that names a commit.
    fn refs(photo: &TestPhoto) -> (Head, [Vec<(RefName, Hash)>; 2]) {
        let workspace = &photo.workspace;
        (workspace.head().unwrap(), [workspace.branches().unwrap(), workspace.tags().unwrap()])
    }

    #[test]
    fn every_step_is_taken_back_in_turn_to_the_very_refs_before_it() {
        let photo = TestPhoto::new();
        let mut writer = photo.person();
        let baseline = photo.workspace.baseline().clone();
        let mut before = vec![refs(&photo)];
        let steps: [fn(&mut Writer); 11] = [
            |w| drop(edit(w, "main", 0.5)),
            |w| drop(edit(w, "main", 0.8)),
            |w| w.create_branch(&name("print"), &w.workspace().baseline().clone()).unwrap(),
            |w| drop(w.checkout("print").unwrap()),
            |w| drop(edit(w, "print", 0.3)),
            |w| w.rename_branch(&name("print"), &name("web")).unwrap(),
            |w| w.create_tag(&name("v1"), &w.workspace().head_commit().unwrap(), "").unwrap(),
            |w| {
                let (web, main) = (w.workspace().head_commit().unwrap(), w.workspace().branch(&name("main")));
                w.create_tag(&name("v2"), &web, "promote web").unwrap();
                w.move_branch(&name("main"), &main.unwrap().unwrap(), &web, "promote web").unwrap();
            },
            |w| w.delete_tag(&name("v1")).unwrap(),
            |w| drop(w.checkout("baseline").unwrap()),
            |w| w.delete_branch(&name("web")).unwrap(),
        ];
        for step in steps {
            step(&mut writer);
            before.push(refs(&photo));
        }
        for wanted in before.iter().rev().skip(1) {
            let said = writer.undo(true).unwrap();
            assert_eq!(writer.undo(false).unwrap(), said);
            assert_eq!(refs(&photo), *wanted, "{}", said.step);
        }
        let nothing = writer.undo(false).unwrap_err().to_string();
        assert!(nothing.contains("nothing of yours to undo"), "{nothing}");
        assert_eq!(photo.tip("main"), baseline);

        // After an undo comes another edit, and the undo of that; then it goes on before the first one.
        edit(&mut writer, "main", 0.1);
        let first = photo.tip("main");
        edit(&mut writer, "main", 0.2);
        writer.undo(false).unwrap();
        edit(&mut writer, "main", 0.4);
        writer.undo(false).unwrap();
        assert_eq!(photo.tip("main"), first);
        writer.undo(false).unwrap();
        assert_eq!(photo.tip("main"), baseline);
        drop(writer);
        let report = photo.workspace.fsck().unwrap();
        assert!(report.is_whole() && report.notes.is_empty(), "{:?} {:?}", report.damages, report.notes);
    }

    #[test]
    fn what_a_session_did_is_not_undone_and_what_it_moved_since_is_refused() {
        let photo = TestPhoto::new();
        let (mut session, _lessor) = photo.session();
        let baseline = photo.workspace.baseline().clone();
        session.create_branch(&name("branch_b_tone"), &baseline).unwrap();
        assert!(matches!(session.undo(false), Err(PhotoError::Denied(_))));
        drop(session);
        assert!(photo.person().undo(false).unwrap_err().to_string().contains("nothing of yours"));
        edit(&mut photo.person(), "branch_b_tone", 0.5);
        let (mut session, _lessor) = photo.session();
        edit(&mut session, "branch_b_tone", 0.9);
        let tip = photo.tip("branch_b_tone");
        drop(session);
        let refused = photo.person().undo(false).unwrap_err().to_string();
        assert!(refused.contains("something else has moved it since"), "{refused}");
        assert_eq!(photo.tip("branch_b_tone"), tip);
    }
}
