//! Edits as duplicates: sidecars that darktable finds beside a picture, each as one more version of it.
//!
//! The version 0 of `photo.dng` has its edit in `photo.dng.xmp`, and the others in `photo_01.dng.xmp` and so on.
//! darktable reads them all when it imports the picture, and so does `darktable-cli`. Where there is no version 0, the
//! first of them takes its place (measured on 4.2.1).

use std::io;
use std::path::{Path, PathBuf};

use crate::state::EditState;
use base::durable;
use base::files;

/// The most duplicates of one picture: darktable writes two digits at least, and nobody looks through more.
const MOST: u32 = 99;

/// The property of a sidecar by which darktable's list of duplicates calls one.
const VERSION_NAME: &str = "darktable:version_name";

/// A duplicate that is there now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// Its sidecar.
    pub file: PathBuf,
    /// It was there already, byte for byte.
    pub unchanged: bool,
}

/// The edit under the name by which darktable's list of duplicates shows it. The pixels are the same.
#[must_use]
pub fn named(state: &EditState, name: &str) -> EditState {
    let mut state = state.clone();
    state.extras.insert(VERSION_NAME.into(), name.into());
    state
}

/// The sidecar of the `number`th duplicate of a picture, in `folder`: `photo_01.dng.xmp` for `photo.dng`.
#[must_use]
pub fn place(folder: &Path, picture: &str, number: u32) -> PathBuf {
    let name = match picture.rsplit_once('.') {
        Some((stem, ending)) => format!("{stem}_{number:02}.{ending}.xmp"),
        None => format!("{picture}_{number:02}.xmp"),
    };
    folder.join(name)
}

/// Writes `sidecar` as a duplicate of `picture` into `folder`, under the first number that is free. No file that is
/// there is replaced; one that is the same already is the duplicate.
///
/// # Errors
/// `AlreadyExists` when all 99 numbers are taken; the error of the file system.
pub fn write(folder: &Path, picture: &str, sidecar: &str) -> io::Result<Duplicate> {
    for number in 1..=MOST {
        let file = place(folder, picture, number);
        match durable::publish(&file, sidecar.as_bytes(), false) {
            Ok(()) => return Ok(Duplicate { file, unchanged: false }),
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Err(_) => {}
        }
        if files::read(&file, sidecar.len() as u64 + 1).is_ok_and(|there| there == sidecar.as_bytes()) {
            return Ok(Duplicate { file, unchanged: true });
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("there are {MOST} duplicates of {picture}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn nothing_that_is_there_is_replaced_and_the_same_edit_is_written_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, text) in [("a.b.dng.xmp", "theirs"), ("a.b_01.dng.xmp", "theirs too")] {
            fs::write(at(name), text).unwrap();
        }
        // Not even what is no file gives way.
        std::os::unix::fs::symlink("nowhere", at("a.b_02.dng.xmp")).unwrap();
        let first = write(folder.path(), "a.b.dng", "one").unwrap();
        assert_eq!(first, Duplicate { file: at("a.b_03.dng.xmp"), unchanged: false });
        assert_eq!(write(folder.path(), "a.b.dng", "two").unwrap().file, at("a.b_04.dng.xmp"));
        assert_eq!(write(folder.path(), "a.b.dng", "one").unwrap(), Duplicate { unchanged: true, ..first });
        assert_eq!(fs::read_to_string(at("a.b.dng.xmp")).unwrap(), "theirs");
        assert_eq!(fs::read_to_string(at("a.b_01.dng.xmp")).unwrap(), "theirs too");
        assert!(!at("nowhere").exists());
        for number in 5..=MOST {
            fs::write(place(folder.path(), "a.b.dng", number), "theirs").unwrap();
        }
        let full = write(folder.path(), "a.b.dng", "three").unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(place(folder.path(), "raw", 7), at("raw_07.xmp"));
    }
}
