//! What is changed on the disk below a folder, in order, for the tests that cut a session after each change.
//!
//! What was noted can be done again elsewhere, up to any change and to the middle of it: that is the disk as a process
//! leaves it that is killed there.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "it is for tests")]

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Who listens: the folder, and what was changed below it. A session changes files from several threads.
static LISTENERS: Mutex<Vec<(PathBuf, Changes)>> = Mutex::new(Vec::new());

/// Changes with their paths, oldest first.
pub type Changes = Vec<(PathBuf, Change)>;

/// One change to one file or folder.
#[derive(Clone, Debug)]
pub enum Change {
    /// A folder was made.
    Folder,
    /// A file was written under another name, and took its place.
    Replace(Vec<u8>),
    /// A file was made, if there was none, and got these bytes at its end; a loss of power may take them unless they
    /// are `synced`.
    Append {
        /// What was added.
        bytes: Vec<u8>,
        /// Whether it is on the disk for certain.
        synced: bool,
    },
    /// A file was cut to this length.
    Truncate(u64),
    /// A file took this name.
    Rename(PathBuf),
    /// A file was removed.
    Remove,
}

/// Notes a change that was made, where anybody listens.
pub fn note(path: &Path, change: impl FnOnce() -> Change) {
    let mut listeners = LISTENERS.lock().unwrap();
    if let Some((_, changes)) = listeners.iter_mut().find(|(folder, _)| path.starts_with(folder)) {
        changes.push((path.to_owned(), change()));
    }
}

/// Does some work, and tells what it changed below a folder.
pub fn of<T>(folder: &Path, work: impl FnOnce() -> T) -> (T, Changes) {
    LISTENERS.lock().unwrap().push((folder.to_owned(), Changes::new()));
    let done = work();
    let mut listeners = LISTENERS.lock().unwrap();
    let own = listeners.iter().position(|(listens, _)| listens == folder).unwrap();
    (done, listeners.swap_remove(own).1)
}

impl Change {
    /// Makes the change at `path`.
    pub fn make(&self, path: &Path) {
        match self {
            Self::Folder => fs::create_dir(path).unwrap(),
            Self::Replace(bytes) => fs::write(path, bytes).unwrap(),
            Self::Append { bytes, .. } => append(path, bytes),
            Self::Truncate(length) => {
                OpenOptions::new().write(true).open(path).unwrap().set_len(*length).unwrap();
            }
            Self::Rename(to) => fs::rename(path, path.with_file_name(to.file_name().unwrap())).unwrap(),
            Self::Remove => fs::remove_file(path).unwrap(),
        }
    }

    /// How many bytes are written before it is complete.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Replace(bytes) | Self::Append { bytes, .. } => bytes.len(),
            Self::Folder | Self::Truncate(_) | Self::Rename(_) | Self::Remove => 0,
        }
    }

    /// Makes the first `bytes` bytes of it at `path`, as far as a process comes that is killed in the middle.
    pub fn begin(&self, path: &Path, bytes: usize) {
        match self {
            Self::Replace(all) => fs::write(path.with_file_name(".tmp-cut"), &all[..bytes]).unwrap(),
            Self::Append { bytes: all, .. } => append(path, &all[..bytes]),
            Self::Folder | Self::Truncate(_) | Self::Rename(_) | Self::Remove => {}
        }
    }
}

fn append(path: &Path, bytes: &[u8]) {
    let mut file: File = OpenOptions::new().create(true).append(true).open(path).unwrap();
    file.write_all(bytes).unwrap();
}
