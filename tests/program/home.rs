//! The home of a program under test, in which it finds the pictures again that an earlier run has rendered.

use std::path::Path;
use std::process::Command;

use testkit::home;
use testkit::kept::RENDERS;

/// Lets a command find its home, and everything of the user's, under `root`, with the pictures of earlier runs unless
/// it is [`cold`].
pub fn settle(command: &mut Command, root: &Path) {
    home::settle(command, root);
    let renders = root.join("cache/chemigram/renders");
    if !renders.exists() {
        std::fs::create_dir_all(renders.parent().unwrap()).unwrap();
        // Another thread may have done it.
        let _ = std::os::unix::fs::symlink(&*RENDERS, renders);
    }
}

/// Leaves the pictures of earlier runs out of the home under `root`.
pub fn cold(root: &Path) {
    std::fs::create_dir_all(root.join("cache/chemigram/renders")).unwrap();
}
