//! The home of a program under test, in which it finds the pictures again that an earlier run has rendered.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

#[path = "../support/home.rs"]
mod bare;
#[path = "../support/kept_folder.rs"]
mod folder;

/// The pictures that the program keeps: by its own names for them, with all that decides their pixels.
static RENDERS: LazyLock<PathBuf> = LazyLock::new(|| folder::kept_folder("renders"));

/// Lets a command find its home, and everything of the user's, under `root`, with the pictures of earlier runs.
pub fn settle(command: &mut Command, root: &Path) {
    bare::settle(command, root);
    let cache = root.join("cache/chemigram");
    std::fs::create_dir_all(&cache).unwrap();
    let _ = std::os::unix::fs::symlink(&*RENDERS, cache.join("renders"));
}
