//! Files that somebody else may have put there: only regular ones are opened, and no more of them is read than fits.
//!
//! A name may lead to a device, a pipe that nobody writes to, or a sparse file larger than the memory. What was found
//! by asking for the size first may be something else when it is opened, so it is the open file that is asked.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};

use crate::ids::Hash;

/// The most that a text of somebody's own may hold, in bytes: a brief, a taste, a scenario.
pub const LARGEST_TEXT: u64 = 1 << 20;

/// The most that a list may hold: a manifest, a script, an object, a blob.
pub const LARGEST_LIST: u64 = 64 << 20;

/// The most that may be read whole at all: a transcript, a log, a picture, a raw.
pub const LARGEST: u64 = 4 << 30;

/// How much room is made for a file before any of it was read, in bytes.
const MOST_ROOM: u64 = 64 << 20;

/// How much of a file is held in memory while it is hashed, in bytes.
const PIECE: usize = 1 << 20;

/// Opens a regular file for reading, through links. Waits for nobody.
///
/// # Errors
/// `IsADirectory` for a folder, `InvalidInput` for a device, pipe or socket.
pub fn open(path: &Path) -> io::Result<File> {
    // Without the flag, opening a pipe waits for its writer.
    regular(OpenOptions::new().read(true).custom_flags(flags(OFlags::NONBLOCK)).open(path)?)
}

/// The file, unless it is another thing.
fn regular(file: File) -> io::Result<File> {
    let about = file.metadata()?;
    if about.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder, not a file"));
    }
    if !about.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(file)
}

/// Opens a file of this program's own, that lies where somebody else may have put a link in its place: a link is not
/// followed, or what is written would go to whatever file it leads to. What is made is for its owner alone.
///
/// # Errors
/// As [`open`]; `InvalidInput` for a link.
pub fn open_own(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let opened = options.mode(0o600).custom_flags(flags(OFlags::NONBLOCK | OFlags::NOFOLLOW)).open(path);
    let file = opened.map_err(|error| match rustix::io::Errno::from_io_error(&error) {
        Some(rustix::io::Errno::LOOP) => {
            io::Error::new(io::ErrorKind::InvalidInput, "it is a symbolic link, which is not followed here")
        }
        _ => error,
    })?;
    regular(file)
}

/// The whole of a regular file of at most `limit` bytes.
///
/// # Errors
/// As [`open`]; `InvalidData` for a larger one.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_open(open(path)?, limit)
}

/// [`read`] of a file of this program's own.
///
/// # Errors
/// As [`read`]; `InvalidInput` for a link.
pub fn read_own(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_open(open_own(path, OpenOptions::new().read(true))?, limit)
}

fn read_open(file: File, limit: u64) -> io::Result<Vec<u8>> {
    // The reported size only says how much room to make: the file may grow, and some that are not empty report 0.
    let room = file.metadata()?.len().min(limit).min(MOST_ROOM);
    let mut bytes = Vec::with_capacity(usize::try_from(room).unwrap_or(0) + 1);
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let message = format!("it is larger than {}", words(limit));
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(bytes)
}

/// [`read`] of a text.
///
/// # Errors
/// As [`read`]; `InvalidData` for what is not UTF-8.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text");
    String::from_utf8(read(path, limit)?).map_err(not_text)
}

/// SHA-256 and length of a regular file of any size, read in pieces.
///
/// # Errors
/// As [`open`].
pub fn hash(path: &Path) -> io::Result<(Hash, u64)> {
    hash_open(&mut open(path)?)
}

/// [`hash`] of an open file, from its position.
///
/// # Errors
/// The error of the file system.
pub fn hash_open(file: &mut File) -> io::Result<(Hash, u64)> {
    let mut digest = Sha256::new();
    let mut buffer = vec![0; PIECE];
    let mut length = 0;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok((Hash::finish(digest), length)),
            Ok(n) => {
                digest.update(buffer.get(..n).unwrap_or_default());
                length += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether the system took no more bytes, whoever asks: the disk is full or may not be written.
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge
            | io::ErrorKind::ReadOnlyFilesystem
    )
}

/// Where the disk is mounted that `path` lies on, or would.
pub fn disk(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let device = |path: &Path| path.metadata().ok().map(|about| about.dev());
    let mut above = path.ancestors().skip_while(|path| device(path).is_none()).peekable();
    let own = above.peek().and_then(|path| device(path));
    let within = above.take_while(|path| device(path) == own);
    within.last().map_or_else(|| path.clone(), Path::to_owned)
}

/// A limit, as a person reads it.
fn words(bytes: u64) -> String {
    let whole = |unit: u64| bytes >= unit && bytes.is_multiple_of(unit);
    match bytes {
        _ if whole(1 << 30) => format!("{} GiB", bytes >> 30),
        _ if whole(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if whole(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} bytes"),
    }
}

/// As the standard library wants them.
fn flags(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_device_or_a_pipe_is_refused_and_not_waited_for_and_a_large_file_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("text"), "warm").unwrap();
        symlink(at("text"), at("link")).unwrap();
        assert_eq!(read_text(&at("link"), 4).unwrap(), "warm");
        assert_eq!(read(&at("link"), 3).unwrap_err().to_string(), "it is larger than 3 bytes");
        assert_eq!(hash(&at("link")).unwrap(), (Hash::of("warm"), 4));
        let made = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
        assert!(made.success());
        symlink("/dev/zero", at("zero")).unwrap();
        for (name, kind) in [
            ("pipe", io::ErrorKind::InvalidInput),
            ("zero", io::ErrorKind::InvalidInput),
            (".", io::ErrorKind::IsADirectory),
            ("none", io::ErrorKind::NotFound),
        ] {
            assert_eq!(read(&at(name), 9).unwrap_err().kind(), kind, "{name}");
            assert_eq!(hash(&at(name)).unwrap_err().kind(), kind, "{name}");
        }
        // A sparse file of a terabyte costs the limit.
        File::create(at("sparse")).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read(&at("sparse"), 1 << 20).unwrap_err().to_string(), "it is larger than 1 MiB");
        fs::write(at("bytes"), [0xff]).unwrap();
        assert_eq!(read_text(&at("bytes"), 9).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_disk_is_named_by_where_it_is_mounted() {
        assert_eq!(disk(Path::new("/proc/self/none/at/all")), Path::new("/proc"));
        assert_eq!(disk(Path::new("/")), Path::new("/"));
    }

    #[test]
    fn a_file_of_its_own_is_never_opened_through_a_link_and_is_for_its_owner() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let (own, link, precious) =
            (dir.path().join("log"), dir.path().join("link"), dir.path().join("precious"));
        fs::write(&precious, "text").unwrap();
        symlink(&precious, &link).unwrap();
        let append = |path: &Path| open_own(path, OpenOptions::new().create(true).append(true));
        for error in [append(&link).unwrap_err(), read_own(&link, 9).unwrap_err()] {
            assert!(error.to_string().contains("symbolic link"), "{error}");
        }
        append(&own).unwrap();
        assert_eq!(fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(read_own(&precious, 9).unwrap(), b"text");
    }
}
