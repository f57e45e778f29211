//! A folder in `target/` that stays from run to run as long as what starts darktable and reads its answers is the same.

use std::path::{Path, PathBuf};

use base::ids::Hash;

/// The hash of the files below a folder, with their names.
pub fn hash_of(folder: &Path) -> Hash {
    let mut names: Vec<PathBuf> = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { names.push(path) }
        }
    }
    names.sort();
    let text =
        names.iter().map(|name| format!("{} {}\n", name.display(), Hash::of(std::fs::read(name).unwrap())));
    Hash::of(text.collect::<String>())
}

/// The folder of this name, made if it is not there. What older sources have left in it is removed.
pub fn kept_folder(name: &str) -> PathBuf {
    let sources = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../darktable"));
    // A test is `target/PROFILE/deps/NAME`.
    let program = std::env::current_exe().unwrap();
    let all = program.ancestors().nth(3).unwrap().join("tmp").join(name);
    let folder = all.join(hash_of(sources).short());
    std::fs::create_dir_all(&folder).unwrap();
    for other in std::fs::read_dir(&all).unwrap().map(|entry| entry.unwrap().path()) {
        if other != folder {
            // Another run may be removing it as well.
            let _ = std::fs::remove_dir_all(other);
        }
    }
    folder
}
