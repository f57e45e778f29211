//! Files that survive a crash: content first, then its name.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::files;

#[cfg(all(target_os = "linux", any(test, feature = "testing")))]
pub mod failing;
#[cfg(any(test, feature = "testing"))]
pub mod journal;

/// Writes `bytes` to `path` so that a reader sees the old file or the whole new one, never a part:
/// a temporary file beside it, synced, renamed over it, and the folder synced.
///
/// # Errors
/// The error of the file system.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or_else(|| io::Error::other("path has no folder"))?;
    make_folder(folder)?;
    filled(folder, bytes, 0o600)?.persist(path).map_err(|e| e.error)?;
    #[cfg(any(test, feature = "testing"))]
    journal::note(path, || journal::Change::Replace(bytes.to_vec()));
    sync_folder(folder)
}

/// [`write`] for a file that somebody asked for: whoever the umask lets may read it. Unless it may `replace`, it
/// fails with `AlreadyExists` rather than touch a file that is there.
///
/// # Errors
/// `AlreadyExists` unless it may `replace`; the error of the file system.
pub fn publish(path: &Path, bytes: &[u8], replace: bool) -> io::Result<()> {
    let folder = path.parent().ok_or_else(|| io::Error::other("path has no folder"))?;
    make_folder(folder)?;
    let file = filled(folder, bytes, 0o666)?;
    let persisted = if replace { file.persist(path) } else { file.persist_noclobber(path) };
    persisted.map_err(|e| e.error)?;
    sync_folder(folder)
}

/// A temporary file in `folder` whose content is on disk. The umask is taken off `mode`.
fn filled(folder: &Path, bytes: &[u8], mode: u32) -> io::Result<tempfile::NamedTempFile> {
    let mode = fs::Permissions::from_mode(mode);
    let mut file = tempfile::Builder::new().prefix(".tmp-").permissions(mode).tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_data()?;
    Ok(file)
}

/// How long a lock is waited for whose holder has ended.
const INHERITED: Duration = Duration::from_secs(30);

/// Locks `file`, unless somebody else keeps it locked for a tenth of a second; `holder` names the process that does.
///
/// A lock outlives its process where that one was killed while it started a child, which has the file open until its own
/// program begins: a lock whose holder has ended is waited for. And some only look whether a file is locked.
///
/// # Errors
/// `WouldBlock` where somebody else holds it.
pub fn try_lock(file: &File, holder: impl Fn() -> Option<u32>) -> Result<(), TryLockError> {
    patiently(|| file.try_lock(), holder, 5)
}

/// Whether somebody holds the lock on `file`, as [`try_lock`] would find it.
///
/// # Errors
/// The error of the file system.
pub fn is_locked(file: &File, holder: impl Fn() -> Option<u32>) -> io::Result<bool> {
    match patiently(|| file.try_lock_shared(), holder, 0) {
        Ok(()) => file.unlock().map(|()| false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn patiently(
    lock: impl Fn() -> Result<(), TryLockError>,
    holder: impl Fn() -> Option<u32>,
    least: u32,
) -> Result<(), TryLockError> {
    let (began, mut tries) = (Instant::now(), 0);
    loop {
        match lock() {
            Err(TryLockError::WouldBlock)
                if tries < least || began.elapsed() < INHERITED && holder().is_some_and(has_ended) =>
            {
                tries += 1;
                sleep(Duration::from_millis(20));
            }
            ended => return ended,
        }
    }
}

/// Whether there is no process of that number. One that may not be asked is there.
fn has_ended(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

/// Appends `line` and a newline to `path` and syncs it. A torn last line left by a crash is ended first,
/// so that it cannot swallow the new one.
///
/// # Errors
/// The error of the file system; the file is then as it was.
pub fn append_line(path: &Path, line: &str) -> io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    if let Some(folder) = path.parent() {
        make_folder(folder)?;
    }
    let mut file = files::open_own(path, OpenOptions::new().create(true).read(true).append(true))?;
    let mut text = String::with_capacity(line.len() + 2);
    let length = file.seek(SeekFrom::End(0))?;
    if length > 0 {
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            text.push('\n');
        }
    }
    text.push_str(line);
    text.push('\n');
    if let Err(error) = file.write_all(text.as_bytes()) {
        // A full disk may have taken half of it: leave the file as it was.
        let _ = file.set_len(length);
        return Err(error);
    }
    file.sync_data()?;
    #[cfg(any(test, feature = "testing"))]
    journal::note(path, || journal::Change::Append { bytes: text.into_bytes(), synced: true });
    match (length, path.parent()) {
        // The file may be new, and its name is on disk with its folder.
        (0, Some(folder)) => sync_folder(folder),
        _ => Ok(()),
    }
}

/// Makes a folder, and those above it that are missing, so that they survive a crash.
///
/// # Errors
/// The error of the file system, where a file is in the way too.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    let above = folder.parent().unwrap_or(Path::new(""));
    make_folder(above)?;
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists || !folder.is_dir() => return Err(error),
        _ => {}
    }
    #[cfg(any(test, feature = "testing"))]
    journal::note(folder, || journal::Change::Folder);
    sync_folder(above)
}

/// Makes a rename or a new file in `folder` survive a crash.
///
/// # Errors
/// The error of the file system.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    let here = Path::new(".");
    File::open(if folder.as_os_str().is_empty() { here } else { folder })?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_replaces_whole_files_and_leaves_no_litter() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/file");
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(publish(&path, b"three", false).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"two");
        publish(&path, b"three", true).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"three");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let usual = dir.path().join("usual");
        fs::write(&usual, b"").unwrap();
        assert_eq!(mode(&path), mode(&usual));
    }

    #[test]
    fn a_new_file_and_a_new_folder_are_errors_where_their_names_cannot_be_synced() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("there")).unwrap();
        for file in ["there/log", "new/log"] {
            let path = dir.path().join(file);
            let (appended, written) =
                failing::without(libc::SYS_fsync, || (append_line(&path, "x"), write(&path, b"x")));
            assert!(appended.is_err() && written.is_err(), "{file}: {appended:?} {written:?}");
        }
        // With fsync back, both are made.
        append_line(&dir.path().join("later/log"), "x").unwrap();
    }

    #[test]
    fn a_folder_is_made_with_those_above_it_and_a_file_in_the_way_is_said() {
        let dir = tempfile::tempdir().unwrap();
        make_folder(&dir.path().join("a/b/c")).unwrap();
        make_folder(&dir.path().join("a/b")).unwrap();
        assert!(dir.path().join("a/b/c").is_dir());
        fs::write(dir.path().join("file"), "").unwrap();
        for blocked in ["file", "file/below"] {
            assert!(make_folder(&dir.path().join(blocked)).is_err(), "{blocked}");
        }
    }

    #[test]
    fn a_torn_last_line_does_not_swallow_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        fs::write(&path, "whole\nto").unwrap();
        append_line(&path, "next").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole\nto\nnext\n");
    }

    #[test]
    fn a_lock_that_is_let_go_of_soon_is_waited_for_and_another_is_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::open(file.path()).unwrap();
        let (first, second) = (open(), open());
        try_lock(&first, || None).unwrap();
        assert!(matches!(try_lock(&second, || Some(std::process::id())), Err(TryLockError::WouldBlock)));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                sleep(Duration::from_millis(30));
                drop(first);
            });
            try_lock(&second, || None).unwrap();
        });
    }
}
