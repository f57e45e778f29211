//! The files of branches, tags and HEAD, as in git, one small file each: what the op-log says of them, for people and
//! for reading quickly.
//!
//! Nothing here follows a symbolic link: a link planted in `refs/` could make a ref read or replace a file
//! outside the photo's folder.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::photo::error::PhotoError;
use base::durable;
use base::files;
use base::ids::{Hash, RefName};

/// HEAD's file in a photo's folder.
const HEAD: &str = "HEAD";

/// The most that such a file may hold, in bytes.
const LARGEST: u64 = 4096;

/// Branch or tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefKind {
    /// Moves with each commit made on it.
    Branch,
    /// Never moves.
    Tag,
}

impl RefKind {
    /// The full name, as the op-log and [`crate::photo::Workspace::resolve`] spell it.
    pub fn full(self, name: &RefName) -> String {
        format!("{}{name}", self.prefix())
    }

    /// The kind and name of a full name.
    pub(super) fn split(full: &str) -> Option<(Self, RefName)> {
        [Self::Branch, Self::Tag]
            .into_iter()
            .find_map(|kind| Some((kind, full.strip_prefix(kind.prefix())?.parse().ok()?)))
    }

    pub(super) fn prefix(self) -> &'static str {
        match self {
            Self::Branch => "refs/heads/",
            Self::Tag => "refs/tags/",
        }
    }
}

impl fmt::Display for RefKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Branch => "branch",
            Self::Tag => "tag",
        })
    }
}

/// What HEAD says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Head {
    /// It follows a branch.
    Branch(RefName),
    /// It names a commit.
    Detached(Hash),
}

/// The refs of one photo.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refs<'a> {
    photo: &'a Path,
}

impl<'a> Refs<'a> {
    pub(super) fn of(photo: &'a Path) -> Self {
        Self { photo }
    }

    /// The file of a ref, after a look at every step of the way to it.
    fn path(self, kind: RefKind, name: &RefName) -> Result<PathBuf, PhotoError> {
        let mut path = self.photo.to_owned();
        let full = kind.full(name);
        let mut steps = full.split('/').peekable();
        while let Some(step) = steps.next() {
            path.push(step);
            match fs::symlink_metadata(&path) {
                Ok(meta) if meta.is_symlink() => {
                    let what = format!("{kind} `{name}`");
                    let reason = format!("{} is a symbolic link, which refs never are", path.display());
                    return Err(PhotoError::Damaged { what, reason });
                }
                Ok(meta) if meta.is_file() && steps.peek().is_some() => {
                    let shorter = path.strip_prefix(self.photo).unwrap_or(&path).display().to_string();
                    return Err(PhotoError::RefTaken(format!("`{full}` cannot exist beside `{shorter}`")));
                }
                _ => {}
            }
        }
        Ok(path)
    }

    /// Where a ref points; `None` if there is none of that name.
    pub(super) fn read(self, kind: RefKind, name: &RefName) -> Result<Option<Hash>, PhotoError> {
        let path = match self.path(kind, name) {
            Err(PhotoError::RefTaken(_)) => return Ok(None),
            path => path?,
        };
        if path.is_dir() {
            return Ok(None);
        }
        match files::read(&path, LARGEST) {
            Ok(bytes) => parse_hash(&bytes).map(Some).ok_or_else(|| PhotoError::Damaged {
                what: format!("{kind} `{name}`"),
                reason: format!("{} does not hold a commit's name", path.display()),
            }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(PhotoError::io("read", &path)(e)),
        }
    }

    /// The file of a ref that is to be written.
    ///
    /// # Errors
    /// [`PhotoError::RefTaken`] where another ref is in its way.
    pub(super) fn place(self, kind: RefKind, name: &RefName) -> Result<PathBuf, PhotoError> {
        let path = self.path(kind, name)?;
        // A folder that deleted branches left empty may give way; one with refs in it may not.
        if path.is_dir() && fs::remove_dir(&path).is_err() {
            let message = format!("`{}` cannot exist beside the refs below `{name}/`", kind.full(name));
            return Err(PhotoError::RefTaken(message));
        }
        Ok(path)
    }

    pub(super) fn write(self, kind: RefKind, name: &RefName, to: &Hash) -> Result<(), PhotoError> {
        let path = self.place(kind, name)?;
        durable::write(&path, format!("{to}\n").as_bytes()).map_err(PhotoError::io("write", &path))
    }

    pub(super) fn delete(self, kind: RefKind, name: &RefName) -> Result<(), PhotoError> {
        let path = self.path(kind, name)?;
        match fs::remove_file(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            removed => removed.map_err(PhotoError::io("delete", &path))?,
        }
        #[cfg(test)]
        durable::journal::note(&path, || durable::journal::Change::Remove);
        let folder = path.parent().unwrap_or(self.photo);
        durable::sync_folder(folder).map_err(PhotoError::io("write", folder))
    }

    /// The names of all refs of a kind, in order, and the files among them that are no refs.
    pub(super) fn names(self, kind: RefKind) -> Result<(Vec<RefName>, Vec<PathBuf>), PhotoError> {
        let top = self.photo.join(kind.prefix());
        let (mut names, mut strange) = (Vec::new(), Vec::new());
        let mut folders = vec![top.clone()];
        while let Some(folder) = folders.pop() {
            let entries = match fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(PhotoError::io("list", &folder)(e)),
            };
            for entry in entries {
                let path = entry.map_err(PhotoError::io("list", &folder))?.path();
                if fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir()) {
                    folders.push(path);
                    continue;
                }
                match path.strip_prefix(&top).ok().and_then(Path::to_str).and_then(|name| name.parse().ok()) {
                    Some(name) => names.push(name),
                    None => strange.push(path),
                }
            }
        }
        names.sort();
        Ok((names, strange))
    }

    /// All refs of a kind with their commits.
    pub(super) fn all(self, kind: RefKind) -> Result<Vec<(RefName, Hash)>, PhotoError> {
        let mut refs = Vec::new();
        for name in self.names(kind)?.0 {
            if let Some(hash) = self.read(kind, &name)? {
                refs.push((name, hash));
            }
        }
        Ok(refs)
    }

    pub(super) fn head(self) -> Result<Head, PhotoError> {
        let path = self.photo.join(HEAD);
        let damaged = |reason: &str| PhotoError::Damaged { what: "HEAD".into(), reason: reason.into() };
        let text = match files::read_text(&path, LARGEST) {
            Ok(_) if path.is_symlink() => return Err(damaged("it is a symbolic link, which refs never are")),
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(damaged("it is missing")),
            Err(e) => return Err(PhotoError::io("read", &path)(e)),
        };
        let text = text.strip_suffix('\n').unwrap_or(&text);
        match text.strip_prefix("ref: refs/heads/") {
            Some(branch) => branch.parse().map(Head::Branch).ok(),
            None => text.parse().map(Head::Detached).ok(),
        }
        .ok_or_else(|| damaged("it names neither a branch nor a commit"))
    }

    pub(super) fn set_head(self, head: &Head) -> Result<(), PhotoError> {
        let path = self.photo.join(HEAD);
        let text = match head {
            Head::Branch(branch) => format!("ref: refs/heads/{branch}\n"),
            Head::Detached(commit) => format!("{commit}\n"),
        };
        durable::write(&path, text.as_bytes()).map_err(PhotoError::io("write", &path))
    }
}

fn parse_hash(bytes: &[u8]) -> Option<Hash> {
    std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::{Coded, ErrorCode};

    fn name(text: &str) -> RefName {
        text.parse().unwrap()
    }

    #[test]
    fn refs_and_head_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let refs = Refs::of(dir.path());
        let (a, b) = (Hash::of("a"), Hash::of("b"));
        assert_eq!(refs.read(RefKind::Branch, &name("main")).unwrap(), None);
        refs.write(RefKind::Branch, &name("main"), &a).unwrap();
        refs.write(RefKind::Branch, &name("x/y"), &b).unwrap();
        refs.write(RefKind::Tag, &name("main"), &b).unwrap();
        assert_eq!(refs.all(RefKind::Branch).unwrap(), [(name("main"), a.clone()), (name("x/y"), b.clone())]);
        assert_eq!(refs.read(RefKind::Tag, &name("main")).unwrap(), Some(b));
        for head in [Head::Branch(name("x/y")), Head::Detached(a)] {
            refs.set_head(&head).unwrap();
            assert_eq!(refs.head().unwrap(), head);
        }
        fs::write(dir.path().join(HEAD), "ref: refs/heads/../../x\n").unwrap();
        assert_eq!(refs.head().unwrap_err().code(), ErrorCode::VersioningError);
    }

    #[test]
    fn a_ref_is_not_a_folder_of_refs() {
        let dir = tempfile::tempdir().unwrap();
        let refs = Refs::of(dir.path());
        let a = Hash::of("a");
        refs.write(RefKind::Branch, &name("x"), &a).unwrap();
        assert!(matches!(refs.write(RefKind::Branch, &name("x/y"), &a), Err(PhotoError::RefTaken(_))));
        assert_eq!(refs.read(RefKind::Branch, &name("x/y")).unwrap(), None);
        refs.delete(RefKind::Branch, &name("x")).unwrap();
        refs.write(RefKind::Branch, &name("x/y"), &a).unwrap();
        assert!(matches!(refs.write(RefKind::Branch, &name("x"), &a), Err(PhotoError::RefTaken(_))));
        refs.delete(RefKind::Branch, &name("x/y")).unwrap();
        refs.write(RefKind::Branch, &name("x"), &a).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn links_are_not_followed() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        fs::write(&outside, format!("{}\n", Hash::of("a"))).unwrap();
        let photo = dir.path().join("photo");
        fs::create_dir_all(photo.join("refs/heads")).unwrap();
        symlink(&outside, photo.join("refs/heads/evil")).unwrap();
        symlink(dir.path(), photo.join("refs/heads/dir")).unwrap();
        let refs = Refs::of(&photo);
        for bad in ["evil", "dir/outside"] {
            assert_eq!(
                refs.read(RefKind::Branch, &name(bad)).unwrap_err().code(),
                ErrorCode::VersioningError
            );
            assert!(refs.write(RefKind::Branch, &name(bad), &Hash::of("b")).is_err());
        }
        assert_eq!(fs::read_to_string(&outside).unwrap(), format!("{}\n", Hash::of("a")));
    }
}
