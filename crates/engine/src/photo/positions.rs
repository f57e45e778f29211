//! Where the branches, tags and HEAD of a photo are.
//!
//! The op-log says it: a line that is on the disk is in effect. The files in `refs/` and HEAD repeat it, and are written
//! after their line, so that a crash leaves them at most one line behind. Reading applies that line; taking the
//! lock brings the files up to it.
//!
//! A file may also hold what no line says: ingest logs no line about the tag `baseline`, earlier builds may have lost
//! lines, and people edit files. If that is a commit of this photo, it is kept, and a line added about it. A file that
//! is where an older line left it is behind, also where an earlier build went on without bringing it up.

use std::collections::{BTreeMap, BTreeSet};

use crate::photo::error::PhotoError;
use crate::photo::objects::Kind;
use crate::photo::op::Operation;
use crate::photo::oplog::{self, Moves, OpLine};
use crate::photo::refs::{Head, RefKind};
use crate::photo::workspace::Workspace;
use base::ids::{Hash, RefName};

/// The tag that ingest makes, at the baseline, without a line about it.
pub(super) const BASELINE: &str = "refs/tags/baseline";

/// What a line says that was added because of what a file holds.
const FOUND: &str = "found in its file";

impl Workspace {
    /// What HEAD says.
    ///
    /// # Errors
    /// [`PhotoError::Damaged`], if it is missing or says neither.
    pub fn head(&self) -> Result<Head, PhotoError> {
        match self.last_line()?.and_then(|line| line.head()) {
            Some(head) => Ok(head),
            None => self.refs().head(),
        }
    }

    /// All branches with their tips, by name.
    ///
    /// # Errors
    /// [`PhotoError::Damaged`] names the branch.
    pub fn branches(&self) -> Result<Vec<(RefName, Hash)>, PhotoError> {
        self.positions(RefKind::Branch)
    }

    /// All tags, by name.
    ///
    /// # Errors
    /// [`PhotoError::Damaged`] names the tag.
    pub fn tags(&self) -> Result<Vec<(RefName, Hash)>, PhotoError> {
        self.positions(RefKind::Tag)
    }

    /// Where a branch is; `None` if there is none of that name.
    ///
    /// # Errors
    /// [`PhotoError::Damaged`], if its file holds no commit.
    pub fn branch(&self, name: &RefName) -> Result<Option<Hash>, PhotoError> {
        self.position(RefKind::Branch, name)
    }

    /// Where a tag is; `None` if there is none of that name.
    ///
    /// # Errors
    /// As [`Self::branch`].
    pub fn tag(&self, name: &RefName) -> Result<Option<Hash>, PhotoError> {
        self.position(RefKind::Tag, name)
    }

    /// The commit that HEAD leads to.
    ///
    /// # Errors
    /// [`PhotoError::Damaged`], also where HEAD follows a branch that is not there.
    pub fn head_commit(&self) -> Result<Hash, PhotoError> {
        match self.head()? {
            Head::Detached(commit) => Ok(commit),
            Head::Branch(branch) => self.branch(&branch)?.ok_or_else(|| PhotoError::Damaged {
                what: "HEAD".into(),
                reason: format!("it follows the branch `{branch}`, which does not exist"),
            }),
        }
    }

    pub(super) fn position(&self, kind: RefKind, name: &RefName) -> Result<Option<Hash>, PhotoError> {
        match self.last_line()? {
            Some(line) if line.reference == kind.full(name) => Ok(line.after),
            _ => self.refs().read(kind, name),
        }
    }

    fn positions(&self, kind: RefKind) -> Result<Vec<(RefName, Hash)>, PhotoError> {
        // The files first: what is written meanwhile is in the line.
        let mut all: BTreeMap<RefName, Hash> = self.refs().all(kind)?.into_iter().collect();
        if let Some(line) = self.last_line()?
            && let Some((found, name)) = RefKind::split(&line.reference)
            && found == kind
        {
            match line.after {
                Some(commit) => drop(all.insert(name, commit)),
                None => drop(all.remove(&name)),
            }
        }
        Ok(all.into_iter().collect())
    }

    /// The last line of the op-log, which its file may not have followed yet. A damaged one is none.
    fn last_line(&self) -> Result<Option<OpLine>, PhotoError> {
        Ok(oplog::last(self.folder())?.filter(|line| self.has(line.after.as_ref())))
    }

    /// Whether a line can have left its ref there.
    fn has(&self, after: Option<&Hash>) -> bool {
        after.is_none_or(|commit| self.objects().exists(Kind::Commit, commit))
    }

    /// Writes down a mutation: once its line is on the disk, it is in effect. Its ref's file follows; where that fails,
    /// reading does without, and the next to change the photo tries again.
    pub(super) fn publish(&self, line: &OpLine) -> Result<(), PhotoError> {
        if let (Some((kind, name)), Some(_)) = (RefKind::split(&line.reference), &line.after) {
            self.refs().place(kind, &name)?;
        }
        if let Some(last) = self.last_line()? {
            passing_links(self.show(&last))?;
        }
        oplog::append(self.folder(), line)?;
        if let Err(error) = self.show(line) {
            tracing::warn!(%error, reference = line.reference, "a ref's file is behind the op-log");
        }
        Ok(())
    }

    /// Brings the file of a line's ref up to it.
    fn show(&self, line: &OpLine) -> Result<(), PhotoError> {
        let refs = self.refs();
        if let Some(head) = line.head() {
            return if refs.head().ok().as_ref() == Some(&head) { Ok(()) } else { refs.set_head(&head) };
        }
        let Some((kind, name)) = RefKind::split(&line.reference) else { return Ok(()) };
        match &line.after {
            Some(commit) if refs.read(kind, &name).ok().flatten().as_ref() == Some(commit) => Ok(()),
            Some(commit) => refs.write(kind, &name, commit),
            None => refs.delete(kind, &name),
        }
    }

    /// Brings refs and HEAD up to the op-log, and adds lines about what only a file says. For who holds the lock.
    ///
    /// # Errors
    /// [`PhotoError::Io`] where they cannot be read or written. A link in their place stays for `fsck` to name.
    pub(super) fn repair(&self) -> Result<(), PhotoError> {
        let lines = oplog::lines(self.folder())?;
        let moves = Moves::of(&lines);
        let mut names: BTreeSet<String> = moves.refs.keys().map(|full| (*full).to_owned()).collect();
        for kind in [RefKind::Branch, RefKind::Tag] {
            names.extend(self.refs().names(kind)?.0.iter().map(|name| kind.full(name)));
        }
        for (kind, name) in names.iter().filter_map(|full| RefKind::split(full)) {
            let of_ref = moves.refs.get(kind.full(&name).as_str()).map_or(&[][..], Vec::as_slice);
            passing_links(self.repair_ref(kind, &name, of_ref))?;
        }
        passing_links(self.repair_head(&moves.heads))
    }

    fn repair_ref(&self, kind: RefKind, name: &RefName, lines: &[&OpLine]) -> Result<(), PhotoError> {
        let full = kind.full(name);
        let file = self.refs().read(kind, name).ok().flatten();
        let last = lines.iter().rfind(|line| self.has(line.after.as_ref()));
        let logged = last.and_then(|line| line.after.clone());
        let known = |file: &Hash| {
            lines.iter().any(|line| [&line.before, &line.after].into_iter().flatten().any(|at| at == file))
                || (full == BASELINE && file == self.baseline())
        };
        match (file, last) {
            (file, _) if file == logged => Ok(()),
            (Some(file), _) if !known(&file) && self.commit(&file).is_ok() => {
                let op = match (kind, &logged) {
                    (RefKind::Branch, Some(_)) => Operation::MoveBranch,
                    (RefKind::Branch, None) => Operation::CreateBranch,
                    (RefKind::Tag, _) => Operation::CreateTag,
                };
                oplog::append(self.folder(), &found(op, full, logged, file))
            }
            (_, Some(line)) => self.show(line),
            (_, None) => Ok(()),
        }
    }

    fn repair_head(&self, heads: &[Head]) -> Result<(), PhotoError> {
        let Some(logged) = heads.iter().rfind(|head| self.leads_to(head).is_some()) else { return Ok(()) };
        let file = self.refs().head().ok();
        match &file {
            Some(file) if file == logged => Ok(()),
            Some(file)
                if !heads.contains(file)
                    && let Some(commit) = self.leads_to(file) =>
            {
                let branch = if let Head::Branch(branch) = file { Some(branch.clone()) } else { None };
                let op = Operation::Checkout { branch };
                oplog::append(self.folder(), &found(op, "HEAD".into(), self.leads_to(logged), commit))
            }
            _ => self.refs().set_head(logged),
        }
    }

    /// The commit that HEAD would lead to there, if it is whole.
    fn leads_to(&self, head: &Head) -> Option<Hash> {
        let commit = match head {
            Head::Detached(commit) => commit.clone(),
            Head::Branch(branch) => self.refs().read(RefKind::Branch, branch).ok()??,
        };
        self.commit(&commit).is_ok().then_some(commit)
    }
}

fn found(op: Operation, reference: String, before: Option<Hash>, after: Hash) -> OpLine {
    let (t, by, label) = (jiff::Timestamp::now(), "person".to_owned(), FOUND.to_owned());
    OpLine { t, by, call: None, op, reference, before, after: Some(after), label }
}

fn passing_links(result: Result<(), PhotoError>) -> Result<(), PhotoError> {
    match result {
        Err(PhotoError::Damaged { .. } | PhotoError::RefTaken(_)) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::photo::testing::{TestPhoto, exposure, name};
    use crate::photo::{Authority, Library, PhotoError, Writer};
    use base::durable::journal;
    use base::ids::PhotoId;

    type Mutation = fn(&mut Writer, &Workspace) -> Result<(), PhotoError>;

    fn edit(writer: &mut Writer, branch: &str, ev: f32) -> Result<(), PhotoError> {
        let tip = writer.workspace().branch(&name(branch))?.unwrap();
        writer.record_edit(&name(branch), &tip, &exposure(ev), Operation::Snapshot, "").map(drop)
    }

    /// One of each kind.
    const MUTATIONS: [Mutation; 10] = [
        |writer, _| edit(writer, "main", 0.5),
        |writer, photo| writer.create_branch(&name("side"), photo.baseline()),
        |writer, _| edit(writer, "side", 0.8),
        |writer, photo| writer.create_tag(&name("v1"), &photo.branch(&name("side"))?.unwrap(), ""),
        |writer, _| writer.checkout("side").map(drop),
        |writer, _| writer.reset(&name("side")).map(drop),
        |writer, photo| {
            let tip = photo.branch(&name("main"))?.unwrap();
            writer.move_branch(&name("main"), &tip, photo.baseline(), "back")
        },
        |writer, _| writer.checkout("v1").map(drop),
        |writer, _| writer.delete_branch(&name("side")),
        |writer, _| edit(writer, "main", 0.9),
    ];

    /// HEAD, branches and tags.
    fn names(photo: &Workspace) -> String {
        format!("{:?}", (photo.head().unwrap(), photo.branches().unwrap(), photo.tags().unwrap()))
    }

    /// The same as the files have it.
    fn in_files(photo: &Workspace) -> String {
        let refs = photo.refs();
        let all = |kind| refs.all(kind).unwrap();
        format!("{:?}", (refs.head().unwrap(), all(RefKind::Branch), all(RefKind::Tag)))
    }

    #[test]
    fn a_mutation_cut_at_any_write_is_whole_or_was_never_made() {
        let photo = TestPhoto::new();
        let (before, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        copy(photo.library.root(), before.path());
        let (seen, changes) = journal::of(photo.library.root(), || {
            let mut writer = photo.person();
            let mut seen = vec![names(&photo.workspace)];
            for mutation in MUTATIONS {
                mutation(&mut writer, &photo.workspace).unwrap();
                seen.push(names(&photo.workspace));
            }
            seen
        });
        copy(before.path(), disk.path());
        let (mut made, mut behind) = (0, 0);
        for (path, change) in &changes {
            for bytes in change.bytes().saturating_sub(1)..=change.bytes() {
                let cut = tempfile::tempdir().unwrap();
                copy(disk.path(), cut.path());
                let here = cut.path().join(path.strip_prefix(photo.library.root()).unwrap());
                if bytes < change.bytes() {
                    change.begin(&here, bytes)
                } else {
                    change.make(&here)
                }
                let library = Library::new(cut.path());
                let found = library.open(photo.workspace.id()).unwrap();
                // A reader sees one mutation after the other, and none is undone.
                let published = names(&found);
                made += usize::from(published != seen[made]);
                assert_eq!(published, seen[made], "{}", path.display());
                behind += usize::from(in_files(&found) != published);
                assert!(found.fsck().unwrap().is_whole());
                // A writer brings the files up, adds no line, and goes on to the same end.
                let lines = oplog::lines(found.folder()).unwrap();
                let mut writer = found.lock(Authority::Person, "a test").unwrap();
                assert_eq!((in_files(&found), names(&found)), (published.clone(), published));
                assert_eq!(oplog::lines(found.folder()).unwrap(), lines);
                MUTATIONS[made..].iter().for_each(|mutation| mutation(&mut writer, &found).unwrap());
                assert_eq!(names(&found), *seen.last().unwrap());
                assert!(found.fsck().unwrap().is_whole());
            }
            change.make(&disk.path().join(path.strip_prefix(photo.library.root()).unwrap()));
        }
        assert_eq!(made, MUTATIONS.len());
        assert!(behind >= MUTATIONS.len(), "{behind}");
    }

    #[test]
    fn a_file_that_cannot_be_written_does_not_undo_the_line() {
        let photo = TestPhoto::new();
        let tip = photo.tip("main");
        let mut writer = photo.person();
        edit(&mut writer, "main", 0.5).unwrap();
        let next = photo.tip("main");
        // The file is lost, and the next line finds it so.
        photo.write("refs/heads/main", &format!("{tip}\n"));
        writer.create_tag(&name("v1"), &next, "").unwrap();
        assert_eq!(photo.read("refs/heads/main"), format!("{next}\n"));
        // A ref that could have no file gets no line.
        let lines = photo.log_lines();
        assert!(matches!(writer.create_branch(&name("main/x"), &tip), Err(PhotoError::RefTaken(_))));
        assert_eq!(photo.log_lines(), lines);
    }

    /// `tests/old_library`, as builds of 2026-11 left it.
    fn old() -> (tempfile::TempDir, Workspace) {
        let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/old_library");
        let folder = tempfile::tempdir().unwrap();
        copy(&old, folder.path());
        let id: PhotoId = "portrait".parse().unwrap();
        let photo = Library::new(folder.path()).open(&id).unwrap();
        (folder, photo)
    }

    #[test]
    fn what_only_the_files_of_an_old_library_say_is_kept_and_logged() {
        let (_folder, photo) = old();
        let (before, log) = (names(&photo), photo.folder().join(oplog::FILE));
        let text = fs::read_to_string(&log).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        drop(photo.lock(Authority::Person, "a test").unwrap());
        assert_eq!(fs::read_to_string(&log).unwrap(), text);

        // Lines were lost: all, or some, so that a ref has none or is ahead.
        for kept in [vec![], vec![0], vec![0, 1], vec![0, 1, 2, 4], vec![3]] {
            let (_folder, photo) = old();
            let log = photo.folder().join(oplog::FILE);
            let text: String = kept.iter().map(|at| lines[*at].to_owned() + "\n").collect();
            fs::write(&log, &text).unwrap();
            let main = photo.refs().read(RefKind::Branch, &name("main")).unwrap().unwrap();
            let mut writer = photo.lock(Authority::Person, "a test").unwrap();
            assert_eq!((names(&photo), in_files(&photo)), (before.clone(), before.clone()), "{kept:?}");
            let added = oplog::lines(photo.folder()).unwrap().split_off(kept.len());
            assert!(!added.is_empty() && added.iter().all(|line| line.label == FOUND), "{added:?}");
            writer.record_edit(&name("main"), &main, &exposure(1.0), Operation::Snapshot, "").unwrap();
            drop(writer);
            let history = photo.log("main", 9).unwrap();
            assert_eq!((history.len(), history[0].parents[0].clone()), (5, main));
            assert!(photo.lock(Authority::Person, "a test").is_ok());
            assert_eq!(oplog::lines(photo.folder()).unwrap().len(), kept.len() + added.len() + 1);
        }
    }

    #[test]
    fn what_a_person_wrote_into_a_file_is_kept_if_it_is_a_commit_and_an_older_place_is_not() {
        let photo = TestPhoto::new();
        let baseline = photo.workspace.baseline().clone();
        let mut writer = photo.person();
        writer.create_branch(&name("side"), &baseline).unwrap();
        edit(&mut writer, "side", 0.5).unwrap();
        edit(&mut writer, "main", 0.8).unwrap();
        let (side, main) = (photo.tip("side"), photo.tip("main"));
        writer.create_tag(&name("v1"), &main, "").unwrap();
        drop(writer);
        let file = |name: &str| photo.read(&format!("refs/heads/{name}")).trim_end().to_owned();
        photo.write("refs/heads/main", &format!("{side}\n"));
        photo.write("refs/heads/side", &format!("{baseline}\n"));
        photo.write("HEAD", &format!("{main}\n"));
        drop(photo.person());
        assert_eq!((file("main"), file("side")), (side.to_string(), side.to_string()));
        assert_eq!((photo.tip("main"), photo.tip("side")), (side.clone(), side));
        assert_eq!(photo.workspace.head().unwrap(), Head::Detached(main));
        assert!(photo.workspace.fsck().unwrap().is_whole());
        // A last line that cannot be so counts for nothing.
        let log = photo.read("log.jsonl");
        let last = photo.workspace.last_line().unwrap().unwrap();
        let wrong = OpLine { reference: "refs/heads/main".into(), after: Some(Hash::of("x")), ..last };
        oplog::append(photo.workspace.folder(), &OpLine { op: Operation::MoveBranch, ..wrong }).unwrap();
        assert_eq!(photo.tip("main"), photo.tip("side"));
        drop(photo.person());
        assert_eq!(photo.tip("main"), photo.tip("side"));
        photo.write("log.jsonl", &log);
    }

    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
            let to = to.join(entry.file_name());
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                copy(&entry.path(), &to);
            } else if kind.is_symlink() {
                std::os::unix::fs::symlink(fs::read_link(entry.path()).unwrap(), &to).unwrap();
            } else {
                fs::copy(entry.path(), &to).unwrap();
            }
        }
    }
}
