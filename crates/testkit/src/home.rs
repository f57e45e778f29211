//! Folders of its own for a program under test.

use std::path::Path;
use std::process::Command;

/// Lets a command find its home, and everything of the user's, under `root`.
pub fn settle(command: &mut Command, root: &Path) {
    for (name, folder) in [
        ("HOME", "home"),
        ("XDG_CACHE_HOME", "cache"),
        ("XDG_DATA_HOME", "data"),
        ("XDG_CONFIG_HOME", "config"),
    ] {
        command.env(name, root.join(folder));
    }
}
