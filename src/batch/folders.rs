//! The folders of batches: each is named by the time at which it was begun, and found by its name.

use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

/// Makes a folder for a new batch in `parent`, which exists; its name, and its path.
pub(crate) fn make(parent: &Path, begun: Timestamp) -> io::Result<(String, PathBuf)> {
    let stamp = begun.strftime("%Y-%m-%dT%H-%M-%SZ").to_string();
    let (mut name, mut number) = (stamp.clone(), 2);
    // Two may be begun in one second.
    loop {
        let folder = parent.join(&name);
        match std::fs::create_dir(&folder) {
            Ok(()) => return Ok((name, folder)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                name = format!("{stamp}_{number}");
                number += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// The names of the folders in `parent` that hold the file `record`, oldest first.
pub(crate) fn names(parent: &Path, record: &str) -> Vec<String> {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let entries = entries.filter(|entry| entry.path().join(record).is_file());
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Those of `names` that have this name, or begin with it; the newest for `last`.
pub(crate) fn matching<'a>(names: &'a [String], name: &str) -> Vec<&'a String> {
    match name {
        "last" => names.last().into_iter().collect(),
        _ if names.iter().any(|known| known == name) => names.iter().filter(|known| *known == name).collect(),
        _ => names.iter().filter(|known| !name.is_empty() && known.starts_with(name)).collect(),
    }
}
