//! A folder that stays from run to run, and from clone to clone, as long as what starts darktable and reads its answers
//! is the same.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::SystemTime;

use base::ids::Hash;

/// The hash of the files below a folder, with their names.
pub fn hash_of(folder: &Path) -> Hash {
    let mut names: Vec<PathBuf> = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { names.push(path) }
        }
    }
    names.sort();
    let text = names.iter().map(|name| {
        let below = name.strip_prefix(folder).unwrap();
        format!("{} {}\n", below.display(), Hash::of(std::fs::read(name).unwrap()))
    });
    Hash::of(text.collect::<String>())
}

/// How many states of the sources keep their folders: clones share them, and a change may be taken back.
const STATES: usize = 3;

/// Where the folders are: `CHEMIGRAM_TEST_KEPT`, or below the user's cache, so that a fresh clone finds what another has
/// left.
fn root() -> PathBuf {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = || named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")));
    named("CHEMIGRAM_TEST_KEPT")
        .or_else(|| Some(cache()?.join("chemigram/tests")))
        .expect("CHEMIGRAM_TEST_KEPT, XDG_CACHE_HOME or HOME is set")
}

/// The folder of this name, made if it is not there. Those of older sources stay only if they were used last.
pub fn kept_folder(name: &str) -> PathBuf {
    static SOURCES: LazyLock<Hash> =
        LazyLock::new(|| hash_of(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../darktable"))));
    let all = root().join(name);
    let folder = all.join(SOURCES.short());
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::File::open(&folder).unwrap().set_modified(SystemTime::now()).unwrap();
    let mut others: Vec<(SystemTime, PathBuf)> = std::fs::read_dir(&all)
        .unwrap()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.metadata().and_then(|about| about.modified()).ok()?, entry.path()))
        })
        .collect();
    others.sort_unstable_by(|a, b| b.cmp(a));
    for (_, other) in others.iter().skip(STATES) {
        // Another run may be removing it as well.
        let _ = std::fs::remove_dir_all(other);
    }
    folder
}
