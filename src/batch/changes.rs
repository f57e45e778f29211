//! What changes in the folder of a photo, or of a cell of an evaluation: the difference between one moment and the next,
//! and how it is applied to another copy of the folder.
//!
//! Lists (`*.jsonl`) only grow, so that of them only the new end is taken. Everything else is taken whole. Links, the
//! lock, and what can be made again or belongs to a person alone are left out.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use base::files;
use base::ids::Hash;

/// What is left out at the top of a photo's folder.
const LEFT_OUT: [&str; 3] = ["raw", "exports", "lock"];

/// What a folder holds, by which it is known where the folders of photos are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// A photo.
    Photo,
    /// A cell: the photo of each attempt, as `photos/ID`, `failed_1/ID`…
    Cell,
}

impl Holds {
    fn leaves_out(self, path: &str) -> bool {
        let above = match self {
            Self::Photo => 0,
            Self::Cell => 2,
        };
        let name = Path::new(path).components().nth(above);
        name.is_some_and(|name| LEFT_OUT.iter().any(|out| name.as_os_str() == std::ffi::OsStr::new(out)))
    }
}

/// What one file was when it was last looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    bytes: u64,
    modified: (i64, i64),
    inode: u64,
}

/// One change of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Change {
    /// The file, from the folder, its parts separated by `/`.
    pub path: String,
    /// Where its new bytes begin; the file as it was before is kept up to there. `None` replaces it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    /// Its new bytes; `None` if it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
}

/// The bytes of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Content {
    /// Text, as it is.
    Text(String),
    /// An object, by its SHA-256.
    Object(Hash),
}

/// A folder as it was when it was last looked at.
#[derive(Debug)]
pub(crate) struct Watched {
    folder: PathBuf,
    holds: Holds,
    seen: BTreeMap<String, Seen>,
}

/// A file that has changed, with its new bytes.
#[derive(Clone)]
pub(crate) struct Changed {
    pub path: String,
    pub at: Option<u64>,
    /// `None` if it is gone.
    pub bytes: Option<Vec<u8>>,
}

impl Watched {
    /// A folder of which nothing was seen yet.
    pub fn new(folder: &Path, holds: Holds) -> Self {
        Self { folder: folder.to_owned(), holds, seen: BTreeMap::new() }
    }

    /// What has changed since the last look, and takes it as seen.
    pub fn look(&mut self) -> io::Result<Vec<Changed>> {
        let mut now = BTreeMap::new();
        walk(&self.folder, self.holds, "", &mut now)?;
        let mut changed = Vec::new();
        for (path, seen) in &now {
            let before = self.seen.get(path);
            if before == Some(seen) {
                continue;
            }
            let grown = before.filter(|before| {
                path.ends_with(".jsonl") && before.inode == seen.inode && before.bytes <= seen.bytes
            });
            let at = grown.map(|before| before.bytes);
            let mut file = files::open_own(&self.folder.join(path), OpenOptions::new().read(true))?;
            file.seek(SeekFrom::Start(at.unwrap_or(0)))?;
            let mut bytes = Vec::new();
            // No further than what was seen: the rest is the next look's.
            file.take(seen.bytes - at.unwrap_or(0)).read_to_end(&mut bytes)?;
            if at.is_none() || !bytes.is_empty() {
                changed.push(Changed { path: path.clone(), at, bytes: Some(bytes) });
            }
        }
        let gone = self.seen.keys().filter(|path| !now.contains_key(*path));
        changed.extend(gone.map(|path| Changed { path: path.clone(), at: None, bytes: None }));
        self.seen = now;
        Ok(changed)
    }
}

fn walk(folder: &Path, holds: Holds, within: &str, found: &mut BTreeMap<String, Seen>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = if within.is_empty() { name.clone() } else { format!("{within}/{name}") };
        if holds.leaves_out(&path) {
            continue;
        }
        // A file that is being written goes away or gets its name in a moment.
        let meta = match entry.metadata() {
            Ok(meta) => meta,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(e),
        };
        if meta.is_dir() {
            walk(&entry.path(), holds, &path, found)?;
        } else if meta.is_file() && !name.starts_with('.') {
            let modified = (meta.mtime(), meta.mtime_nsec());
            found.insert(path, Seen { bytes: meta.len(), modified, inode: meta.ino() });
        }
    }
    Ok(())
}

/// Whether a change names a file within the folder, and none that is left out.
pub(crate) fn is_inside(holds: Holds, path: &str) -> bool {
    let plain = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    plain && !path.is_empty() && !holds.leaves_out(path)
}

/// Makes a change in a copy of the folder; `bytes` are those of its content.
pub(crate) fn apply(folder: &Path, holds: Holds, change: &Change, bytes: Option<&[u8]>) -> io::Result<()> {
    if !is_inside(holds, &change.path) {
        let message = format!("`{}` is not a file of a photo", change.path);
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    let path = folder.join(&change.path);
    let Some(bytes) = bytes else {
        return match std::fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        };
    };
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let Some(at) = change.at else { return base::durable::write(&path, bytes) };
    let mut file = files::open_own(&path, OpenOptions::new().read(true).write(true))?;
    if file.metadata()?.len() < at {
        let message = format!("`{}` is shorter than it was before this change", change.path);
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    file.set_len(at)?;
    file.seek(SeekFrom::Start(at))?;
    file.write_all(bytes)?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(from: &mut Watched, to: &Path) -> Vec<String> {
        let changed = from.look().unwrap();
        for one in &changed {
            let change = Change { path: one.path.clone(), at: one.at, content: None };
            apply(to, Holds::Photo, &change, one.bytes.as_deref()).unwrap();
        }
        changed.into_iter().map(|one| format!("{}@{:?}", one.path, one.at)).collect()
    }

    #[test]
    fn another_copy_of_a_folder_follows_it() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        std::fs::create_dir_all(one.join("refs")).unwrap();
        std::fs::create_dir_all(one.join("raw")).unwrap();
        std::fs::create_dir_all(&two).unwrap();
        let write = |name: &str, text: &str| std::fs::write(one.join(name), text).unwrap();
        for name in ["log.jsonl", "refs/main", "raw/cup.dng", "lock"] {
            write(name, "1\n");
        }
        let mut watched = Watched::new(&one, Holds::Photo);
        assert_eq!(copy(&mut watched, &two), ["log.jsonl@None", "refs/main@None"]);
        assert!(copy(&mut watched, &two).is_empty());
        let mut log = OpenOptions::new().append(true).open(one.join("log.jsonl")).unwrap();
        log.write_all(b"2\n").unwrap();
        std::fs::remove_file(one.join("refs/main")).unwrap();
        assert_eq!(copy(&mut watched, &two), ["log.jsonl@Some(2)", "refs/main@None"]);
        assert_eq!(std::fs::read_to_string(two.join("log.jsonl")).unwrap(), "1\n2\n");
        assert!(!two.join("refs/main").exists() && !two.join("lock").exists());
    }

    #[test]
    fn the_raws_and_locks_of_all_attempts_at_a_cell_stay() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        std::fs::create_dir_all(&two).unwrap();
        for path in ["photos/raw/raw/a.dng", "photos/raw/refs/raw/x", "failed_1/lock/lock", "inputs.json"] {
            let path = one.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "1").unwrap();
        }
        let mut watched = Watched::new(&one, Holds::Cell);
        let changed: Vec<String> = watched.look().unwrap().into_iter().map(|one| one.path).collect();
        assert_eq!(changed, ["inputs.json", "photos/raw/refs/raw/x"]);
        for (path, inside) in [("photos//id/raw/x", false), ("photos/id/./lock", false), ("raw/x", true)] {
            assert_eq!(is_inside(Holds::Cell, path), inside, "{path}");
        }
    }

    #[test]
    fn no_change_leaves_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["../x", "/etc/x", "a/../../x", "raw/x", "lock", ""] {
            let change = Change { path: path.into(), at: None, content: None };
            assert!(apply(dir.path(), Holds::Photo, &change, Some(b"x")).is_err(), "{path}");
        }
        let change = Change { path: "log.jsonl".into(), at: Some(5), content: None };
        std::fs::write(dir.path().join("log.jsonl"), "1\n").unwrap();
        assert!(apply(dir.path(), Holds::Photo, &change, Some(b"x")).is_err(), "a hole");
    }
}
