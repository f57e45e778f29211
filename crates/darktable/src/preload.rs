//! How darktable is kept from giving one edit several pictures.
//!
//! Replay, the cache and every comparison of pictures need the same pixels for the same edit. What darktable does
//! not do by itself is done from outside, by its environment; `docs/adr/0010-repeatable-pixels.md` has the
//! measurements.

use std::fs;
use std::io;
use std::path::Path;

use crate::probe::DarktableCli;

/// What is loaded into darktable; empty on systems that it was not built for. Its sources are in `preload`, built
/// by `build.rs`.
static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/preload.so"));
const FILE: &str = "preload.so";
/// With a folder, so that it is not searched for, and without the way there, which may have a space or a colon in
/// it: the loader would split it there.
const PRELOAD: (&str, &str) = ("LD_PRELOAD", "./preload.so");

/// Where the library cannot be loaded, which clears memory itself: glibc fills what it hands out with the
/// complement of this, which is zeros. darktable reads memory that it has not written.
const ZEROS: (&str, &str) = ("MALLOC_PERTURB_", "255");
/// Every buffer of that size or more is given back to the system when it is done with.
const GIVEN_BACK: (&str, &str) = ("MALLOC_MMAP_THRESHOLD_", "65536");
/// And taken from it in large pages. 4 kB at a time takes as long as a fifth of a preview.
const LARGE_PAGES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");

/// All threads take their memory from one place. With places of their own, what each keeps grows by chance: a tenth
/// in four hundred pictures.
const ONE_ARENA: (&str, &str) = ("MALLOC_ARENA_MAX", "1");

/// A thread that waits for the other one sleeps, so that two darktables at once are quicker than one after the
/// other.
const PATIENT: (&str, &str) = ("OMP_WAIT_POLICY", "passive");

/// Where the library cannot be loaded, 4.x has no other way to repeat itself. 5.4.1 would crash in haze removal,
/// and mostly repeats itself without.
const ONE_THREAD: (&str, &str) = ("OMP_NUM_THREADS", "1");
/// Beside the library, for the few parallel regions that it does not know: darktable believes it that there are two
/// processors, and has buffers for no more.
const TWO_THREADS: (&str, &str) = ("OMP_NUM_THREADS", "2");

/// The library then keeps EXIF out of the pictures, for a darktable whose pictures nobody keeps; the name is
/// also in `preload/exif.rs`.
pub const WITHOUT_EXIF: (&str, &str) = ("CHEMIGRAM_WITHOUT_EXIF", "1");

/// The library then keeps large buffers for the next picture, up to 2 GB that nobody uses; the name is also in
/// `preload/buffers.rs`.
pub const KEEPS_BUFFERS: (&str, &str) = ("CHEMIGRAM_KEEPS_BUFFERS", "1");

/// An environment, for a process whose working directory is `folder`.
pub type Settings = Vec<(&'static str, &'static str)>;

/// What loads the library into a program, and puts it where that program looks for it; nothing where there is
/// none.
pub(super) fn preload(folder: &Path) -> io::Result<Settings> {
    if LIBRARY.is_empty() {
        return Ok(Vec::new());
    }
    fs::write(folder.join(FILE), LIBRARY)?;
    Ok(vec![PRELOAD])
}

/// What makes this darktable's pixels repeatable when it works in `folder`, where a small file is left.
///
/// # Errors
/// The error of the file system, if the file cannot be left in `folder`.
pub fn repeatable(cli: &DarktableCli, folder: &Path) -> io::Result<Settings> {
    let mut settings = if cli.takes_preload() { preload(folder)? } else { vec![ZEROS] };
    // Other C libraries take no notice of these.
    settings.extend([GIVEN_BACK, LARGE_PAGES, ONE_ARENA, PATIENT]);
    if cli.version().starts_with("4.") {
        settings.push(ONE_THREAD);
    } else if cli.takes_preload() {
        settings.push(TWO_THREADS);
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn the_library_is_aboard_and_needs_no_other() {
        assert!(LIBRARY.starts_with(b"\x7fELF"), "see what build.rs warned of");
        let dir = tempfile::tempdir().unwrap();
        let settings = preload(dir.path()).unwrap();
        // A shell has no OpenMP, and runs all the same.
        let said = std::process::Command::new("sh")
            .args(["-c", "cat /proc/self/maps"])
            .envs(settings)
            .current_dir(dir.path())
            .output()
            .unwrap();
        assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
        assert!(String::from_utf8_lossy(&said.stdout).contains("/preload.so"));
    }
}
