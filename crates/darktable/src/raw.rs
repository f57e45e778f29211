//! Whether a raw is still the file that was ingested.
//!
//! A memory card mounted where another one was, or a file written over, leaves the name as it was. The bytes are
//! what counts, and hashing them takes longer than a look at a picture that is in the cache. So what was hashed
//! is remembered with the file's size, time of change and inode number, and hashed again when one of them differs.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::render::{RawFile, RenderError};
use base::files;
use base::ids::Hash;

/// Whether a file that was modified then cannot be modified again without its time telling. FAT counts in steps of two
/// seconds, some file systems in whole seconds, most in ticks of the kernel's clock, of 10 ms at most.
fn is_settled(modified: SystemTime, now: SystemTime) -> bool {
    let fraction = modified.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
    let step = Duration::from_millis(if fraction == 0 { 2_000 } else { 100 });
    // A camera's clock may be ahead.
    now.duration_since(modified).unwrap_or_else(|ahead| ahead.duration()) > step
}

/// What this process has hashed.
static HASHED: Mutex<BTreeMap<PathBuf, (FileIdentity, Hash)>> = Mutex::new(BTreeMap::new());

/// What tells a file from others, and from itself at another time. Not the time of its last change of status: a
/// hard link, as one is made for each render, is such a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileIdentity {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl FileIdentity {
    /// Of the file at `path`, through links.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        Ok(Self::of_metadata(&fs::metadata(path)?))
    }

    fn of_metadata(about: &Metadata) -> Self {
        Self {
            device: about.dev(),
            inode: about.ino(),
            bytes: about.len(),
            modified: (about.mtime(), about.mtime_nsec()),
        }
    }
}

impl RawFile {
    /// Fails unless the file has the bytes that its hash names. Where it was hashed before in this process and has
    /// not changed since, that takes one look at its size and time.
    ///
    /// # Errors
    /// [`RenderError::Replaced`] for another file, [`RenderError::Raw`] where there is none that can be read.
    pub fn prove(&self) -> Result<(), RenderError> {
        let found = hash_now(&self.path)
            .map_err(|e| RenderError::Raw { path: self.path.clone(), reason: e.to_string() })?;
        if found == self.sha256 {
            return Ok(());
        }
        Err(RenderError::Replaced { path: self.path.clone(), expected: self.sha256.clone(), found })
    }

    /// [`Self::prove`] for what does not need the file: one that is away is not another one.
    ///
    /// # Errors
    /// [`RenderError::Replaced`] for another file.
    pub fn refuse_another(&self) -> Result<(), RenderError> {
        match self.prove() {
            Err(error @ RenderError::Replaced { .. }) => Err(error),
            _ => Ok(()),
        }
    }
}

/// The hash of the bytes that are at `path` now. A file that was hashed before in this process and has not changed
/// since is not read again.
pub(super) fn hash_now(path: &Path) -> io::Result<Hash> {
    let known = || HASHED.lock().unwrap_or_else(PoisonError::into_inner);
    let now = FileIdentity::of(path)?;
    if let Some((_, hash)) = known().get(path).filter(|(then, _)| *then == now) {
        return Ok(hash.clone());
    }
    let mut file = files::open(path)?;
    let about = file.metadata()?;
    let (hash, _) = files::hash_open(&mut file)?;
    if is_settled(about.modified()?, SystemTime::now()) {
        known().insert(path.to_owned(), (FileIdentity::of_metadata(&about), hash.clone()));
    }
    Ok(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_settled_when_its_file_system_would_tell_the_next_change() {
        let settled = |modified_ms: u64, now_ms: u64| {
            let at = |ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms);
            is_settled(at(modified_ms), at(now_ms))
        };
        assert!(!settled(8_003, 8_100) && settled(8_003, 8_104));
        assert!(!settled(8_000, 10_000) && settled(8_000, 10_001));
        // By a clock that is ahead.
        assert!(!settled(8_100, 8_003) && settled(8_104, 8_003));
        assert!(is_settled(SystemTime::UNIX_EPOCH - Duration::from_secs(9), SystemTime::UNIX_EPOCH));
    }

    #[test]
    fn another_file_in_the_raws_place_is_seen_however_alike_and_the_right_one_is_hashed_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.dng");
        let write = |text: &str, age: u64| {
            fs::write(&path, text).unwrap();
            let then = SystemTime::now() - Duration::from_secs(age);
            fs::File::open(&path).unwrap().set_modified(then).unwrap();
        };
        write("coffee", 100);
        let raw = RawFile { path: path.clone(), sha256: Hash::of("coffee") };
        raw.prove().unwrap();
        // It is not read again.
        HASHED.lock().unwrap().get_mut(&path).unwrap().1 = Hash::of("cat");
        assert!(raw.prove().is_err());
        HASHED.lock().unwrap().remove(&path);
        raw.prove().unwrap();

        write("kitten", 50);
        match raw.prove().unwrap_err() {
            RenderError::Replaced { expected, found, .. } => {
                assert_eq!((expected, found), (Hash::of("coffee"), Hash::of("kitten")));
            }
            other => panic!("{other}"),
        }
        write("coffee", 100);
        raw.prove().unwrap();
        // Written over so soon after that the times are equal, where they are whole seconds.
        let since = SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let second = SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs() + 1);
        for text in ["coffee", "kitten"] {
            fs::write(&path, text).unwrap();
            fs::File::open(&path).unwrap().set_modified(second).unwrap();
            assert_eq!(
                (raw.prove().is_ok(), raw.refuse_another().is_ok()),
                (text == "coffee", text == "coffee")
            );
        }

        fs::remove_file(&path).unwrap();
        assert!(matches!(raw.prove(), Err(RenderError::Raw { .. })));
        raw.refuse_another().unwrap();
        // A device in its place is not read for ever.
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(matches!(raw.prove(), Err(RenderError::Raw { .. })));
    }
}
