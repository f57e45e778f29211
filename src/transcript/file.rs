//! The transcript as a file: append with a hash chain, read with proof.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::transcript::Event;
use base::clock::Clock;
#[cfg(test)]
use base::durable::journal::{self, Change};
use base::error::{Coded, ErrorCode};
use base::files;
use base::ids::Hash;
use base::redact::Redactor;
use base::seal::{self, Seal};

/// The most that one line may hold; what is larger belongs into a blob.
const LINE_LIMIT: u64 = 16 << 20;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Position, from 0.
    pub seq: u64,
    /// Date and time, for people.
    pub t: jiff::Timestamp,
    /// Session time in milliseconds: does not run while the session is interrupted.
    pub mono_ms: u64,
    /// SHA-256 of the line before, as bytes without its newline; of nothing for the first.
    pub prev: Hash,
    /// What is said.
    #[serde(flatten)]
    pub event: Event,
}

impl Line {
    /// The session time at which it was written.
    pub fn at(&self) -> Duration {
        Duration::from_millis(self.mono_ms)
    }
}

/// A transcript that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TranscriptError {
    /// The system refused.
    #[error("cannot {doing} the transcript {path}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A line other than a torn last one is not what was written.
    #[error("the transcript {path} is damaged at line {line}: {reason}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: u64,
        /// What is wrong.
        reason: String,
    },
}

impl Coded for TranscriptError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Io { source, .. } => file_code(source),
            Self::Damaged { .. } => ErrorCode::VersioningError,
        }
    }

    /// Nothing may happen that cannot be written down.
    fn halts(&self) -> bool {
        matches!(self, Self::Io { .. })
    }

    fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Io { source, path, .. } if files::is_full(source) => {
                format!("free some space on the disk at {}", files::disk(path).display())
            }
            Self::Io { source, .. } => file_remedy(source).into(),
            Self::Damaged { .. } => {
                "the session cannot be resumed; its branches and commits are not affected (check them with `chemigram fsck`)".into()
            }
        })
    }
}

/// The code of what the system said about a session's file.
pub fn file_code(source: &io::Error) -> ErrorCode {
    match source.kind() {
        io::ErrorKind::NotFound => ErrorCode::NotFound,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ErrorCode::PermissionDenied,
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => ErrorCode::InvalidInput,
        _ => ErrorCode::StateError,
    }
}

/// What to do about it.
pub fn file_remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            "free some space on the disk that holds the photo's folder"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "make the photo's folder writable, or use another library"
        }
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
            "put a regular file of a reasonable size in its place"
        }
        _ => "check free space and permissions of the photo's folder",
    }
}

/// Keeps a copy of a session elsewhere, from which another machine can go on with it.
pub trait Mirror: Debug + Send + Sync {
    /// A line is about to be written. With an error it is not, nor is any other.
    fn before(&self, event: &Event) -> io::Result<()>;
    /// A synced line is on the disk here, and what it announces is not done yet. With an error nothing more is.
    fn synced(&self) -> io::Result<()>;
}

/// A transcript as read.
#[derive(Debug)]
pub struct Read {
    /// The lines.
    pub lines: Vec<Line>,
    /// Bytes of a torn last line, which is not among them.
    pub torn: usize,
    end: Hash,
    length: u64,
}

/// Reads a transcript and proves its chain. A last line without its newline was cut by a crash and is left
/// out; damage anywhere else is an error that names the line.
pub fn read(path: &Path) -> Result<Read, TranscriptError> {
    let io = |source| TranscriptError::Io { doing: "read", path: path.into(), source };
    let bytes = files::read_own(path, files::LARGEST).map_err(io)?;
    let mut tail: &[u8] = &[];
    let mut lines = Vec::new();
    let mut prev = Hash::of(b"");
    for (index, text) in bytes.split_inclusive(|&b| b == b'\n').enumerate() {
        let Some(text) = text.strip_suffix(b"\n") else {
            tail = text;
            break;
        };
        let seq = index as u64;
        let damaged = |reason: String| TranscriptError::Damaged { path: path.into(), line: seq + 1, reason };
        if seal::check(b"", text) == Seal::Broken {
            return Err(damaged("it was changed".into()));
        }
        let line: Line = serde_json::from_slice(text).map_err(|e| damaged(e.to_string()))?;
        if line.seq != seq {
            return Err(damaged(format!("it is numbered {}", line.seq + 1)));
        }
        if line.prev != prev {
            return Err(damaged("the line before it was changed".into()));
        }
        prev = Hash::of(text);
        lines.push(line);
    }
    // A line that was whole once was not torn: its end was changed.
    if let Some((_, line)) = tail.split_last()
        && seal::check(b"", line) == Seal::Whole
    {
        let (path, line) = (path.into(), lines.len() as u64 + 1);
        return Err(TranscriptError::Damaged { path, line, reason: "its end was changed".into() });
    }
    let length = (bytes.len() - tail.len()) as u64;
    Ok(Read { lines, torn: tail.len(), end: prev, length })
}

/// A transcript open for appending. One writer a file; the workspace lock sees to that.
#[derive(Debug)]
pub struct Transcript {
    file: File,
    path: PathBuf,
    clock: Arc<dyn Clock>,
    redactor: Redactor,
    origin: Duration,
    base: Duration,
    seq: u64,
    prev: Hash,
    /// Why nothing is written any more.
    broken: Option<(io::ErrorKind, String)>,
    mirror: Option<Arc<dyn Mirror>>,
}

impl Transcript {
    /// Starts a new file, readable by its owner only; an existing one is an error.
    pub fn create(path: &Path, clock: Arc<dyn Clock>, redactor: Redactor) -> Result<Self, TranscriptError> {
        let io = |source| TranscriptError::Io { doing: "create", path: path.into(), source };
        let mut options = OpenOptions::new();
        let file = files::open_own(path, options.append(true).create_new(true)).map_err(io)?;
        #[cfg(test)]
        journal::note(path, || Change::Append { bytes: Vec::new(), synced: true });
        if let Some(folder) = path.parent() {
            base::durable::sync_folder(folder).map_err(io)?;
        }
        Ok(Self::at(file, path, clock, redactor, &[], Hash::of(b"")))
    }

    /// One that goes on after these lines, the last of which has this hash.
    fn at(
        file: File,
        path: &Path,
        clock: Arc<dyn Clock>,
        redactor: Redactor,
        lines: &[Line],
        prev: Hash,
    ) -> Self {
        let (origin, path) = (clock.monotonic(), path.into());
        let base = lines.last().map_or(Duration::ZERO, Line::at);
        let seq = lines.len() as u64;
        Self { file, path, clock, redactor, origin, base, seq, prev, broken: None, mirror: None }
    }

    /// Has a copy of it kept elsewhere.
    #[must_use]
    pub fn mirrored(self, mirror: Option<Arc<dyn Mirror>>) -> Self {
        Self { mirror, ..self }
    }

    /// Gives the file this name, under which whoever reads it looks: what it holds by then is found whole or not at
    /// all.
    pub fn rename(&mut self, path: &Path) -> Result<(), TranscriptError> {
        let io = |source| TranscriptError::Io { doing: "name", path: path.into(), source };
        std::fs::rename(&self.path, path).map_err(io)?;
        #[cfg(test)]
        journal::note(&self.path, || Change::Rename(path.to_owned()));
        self.path = path.into();
        path.parent().map_or(Ok(()), base::durable::sync_folder).map_err(io)
    }

    /// Goes on with a file that was read: a torn last line is cut, the session clock goes on where the last
    /// line stood.
    pub fn resume(
        path: &Path,
        read: &Read,
        clock: Arc<dyn Clock>,
        redactor: Redactor,
    ) -> Result<Self, TranscriptError> {
        let io = |source| TranscriptError::Io { doing: "open", path: path.into(), source };
        let mut file = files::open_own(path, OpenOptions::new().read(true).append(true)).map_err(io)?;
        file.set_len(read.length).map_err(io)?;
        #[cfg(test)]
        journal::note(path, || Change::Truncate(read.length));
        file.seek(SeekFrom::End(0)).map_err(io)?;
        Ok(Self::at(file, path, clock, redactor, &read.lines, read.end.clone()))
    }

    /// Session time now.
    pub fn elapsed(&self) -> Duration {
        self.base + self.clock.monotonic().saturating_sub(self.origin)
    }

    /// Adds to the session time what a crash hid.
    pub fn assume_elapsed(&mut self, more: Duration) {
        self.base += more;
    }

    /// The number of the next line.
    pub fn next_seq(&self) -> u64 {
        self.seq
    }

    /// The clock behind the session's time.
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    /// Appends a line; with `sync` it is on the disk when this returns. What cannot be written is the end: nobody
    /// knows how much of it the disk has, and a line of the same number after it would make the file a damaged one.
    pub fn append(&mut self, event: Event, sync: bool) -> Result<Line, TranscriptError> {
        let path = self.path.clone();
        let io = move |source| TranscriptError::Io { doing: "write", path: path.clone(), source };
        if let Some((kind, why)) = &self.broken {
            return Err(io(io::Error::new(*kind, why.clone())));
        }
        if let Some(Err(error)) = self.mirror.as_ref().map(|mirror| mirror.before(&event)) {
            self.broken = Some((error.kind(), error.to_string()));
            return Err(io(error));
        }
        let mono_ms = u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX);
        let line = Line { seq: self.seq, t: self.clock.wall(), mono_ms, prev: self.prev.clone(), event };
        let plain = serde_json::to_string(&line).map_err(|e| io(io::Error::other(e)))?;
        let mut text = self.redactor.clean(plain.clone());
        if text.len() as u64 > LINE_LIMIT {
            return Err(io(io::Error::new(io::ErrorKind::FileTooLarge, "a line of more than 16 MiB")));
        }
        // What was written is what is folded: a redacted line must read back as it stands.
        let line = if text == plain {
            line
        } else {
            serde_json::from_str(&text).map_err(|e| io(io::Error::other(e)))?
        };
        // The chain proves every line but the last.
        text = seal::seal(b"", &text);
        let hash = Hash::of(&text);
        text.push('\n');
        if let Err(error) = self.write(text.as_bytes(), sync) {
            self.broken = Some((error.kind(), error.to_string()));
            return Err(io(error));
        }
        (self.prev, self.seq) = (hash, self.seq + 1);
        Ok(line)
    }

    fn write(&mut self, text: &[u8], sync: bool) -> io::Result<()> {
        let before = self.file.metadata()?.len();
        if let Err(error) = self.file.write_all(text) {
            // A full disk may have taken half of it: leave the file as it was.
            let _ = self.file.set_len(before);
            return Err(error);
        }
        #[cfg(test)]
        journal::note(&self.path, || Change::Append { bytes: text.to_vec(), synced: sync });
        if !sync {
            return Ok(());
        }
        self.file.sync_data()?;
        self.mirror.as_ref().map_or(Ok(()), |mirror| mirror.synced())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::clock::ManualClock;

    fn note(text: &str) -> Event {
        Event::Note { text: text.into(), details: serde_json::Map::new() }
    }

    fn sample(path: &Path, lines: usize) {
        let mut transcript =
            Transcript::create(path, Arc::new(ManualClock::default()), Redactor::default()).unwrap();
        for n in 0..lines {
            transcript.append(note(&format!("line {n}")), false).unwrap();
        }
    }

    #[test]
    fn truncation_at_every_byte_loses_only_the_torn_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        sample(&path, 4);
        let bytes = std::fs::read(&path).unwrap();
        let ends: Vec<usize> =
            bytes.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i + 1).collect();
        for cut in 0..=bytes.len() {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let back = read(&path).unwrap();
            assert_eq!(back.lines.len(), ends.iter().filter(|e| **e <= cut).count(), "cut at {cut}");
            let mut again =
                Transcript::resume(&path, &back, Arc::new(ManualClock::default()), Redactor::default())
                    .unwrap();
            again.append(note("more"), true).unwrap();
            assert_eq!(read(&path).unwrap().lines.len(), back.lines.len() + 1);
        }
    }

    #[test]
    fn after_a_line_that_could_not_be_synced_none_is_written_and_the_file_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        let (clock, redactor) = (Arc::new(ManualClock::default()), Redactor::default());
        let mut transcript = Transcript::create(&path, clock.clone(), redactor.clone()).unwrap();
        transcript.append(note("first"), true).unwrap();
        base::durable::failing::without(libc::SYS_fdatasync, || {
            assert!(transcript.append(note("not synced"), true).is_err());
        });
        assert!(transcript.append(note("after"), true).is_err());
        let back = read(&path).unwrap();
        Transcript::resume(&path, &back, clock, redactor).unwrap().append(note("again"), true).unwrap();
    }

    #[test]
    fn after_a_line_that_could_not_be_written_none_is_and_the_file_stays_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        sample(&path, 2);
        let back = read(&path).unwrap();
        let (clock, redactor) = (Arc::new(ManualClock::default()), Redactor::default());
        let mut transcript = Transcript::resume(&path, &back, clock.clone(), redactor.clone()).unwrap();
        let whole =
            std::mem::replace(&mut transcript.file, File::options().write(true).open("/dev/full").unwrap());
        let first = transcript.append(note("lost"), true).unwrap_err();
        assert!(first.halts());
        // There is space again; what was lost is lost all the same.
        transcript.file = whole;
        let second = transcript.append(note("after"), true).unwrap_err();
        let source = |error: &TranscriptError| std::error::Error::source(error).unwrap().to_string();
        assert_eq!(source(&first), source(&second));
        assert!(second.remedy().unwrap().contains("free some space on the disk at "));
        let back = read(&path).unwrap();
        assert_eq!(back.lines.len(), 2);
        Transcript::resume(&path, &back, clock, redactor).unwrap().append(note("again"), true).unwrap();
        assert_eq!(read(&path).unwrap().lines.len(), 3);
    }

    #[test]
    fn a_transcript_is_not_gone_on_with_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("t.jsonl"), dir.path().join("link"));
        sample(&path, 2);
        let mut torn = std::fs::read(&path).unwrap();
        torn.pop();
        std::fs::write(&path, &torn).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let (clock, redactor) = (Arc::new(ManualClock::default()), Redactor::default());
        let back = read(&path).unwrap();
        assert!(read(&link).is_err());
        assert!(Transcript::resume(&link, &back, clock, redactor).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), torn);
    }

    #[test]
    fn a_changed_byte_is_found_and_its_line_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        sample(&path, 5);
        let good = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, good.replace("line 2", "line X")).unwrap();
        match read(&path) {
            Err(TranscriptError::Damaged { line, .. }) => {
                assert_eq!(line, 3)
            }
            other => panic!("{other:?}"),
        }
        // Every bit of the last line too, which no chain proves.
        let last = good.trim_end().rfind('\n').unwrap() + 1;
        for at in last * 8..good.len() * 8 {
            let mut bytes = good.clone().into_bytes();
            bytes[at / 8] ^= 1 << (at % 8);
            std::fs::write(&path, bytes).unwrap();
            assert!(read(&path).is_err(), "bit {at}");
        }
        // An earlier build wrote lines without a hash of their own.
        let plain: String = (0..2)
            .scan(Hash::of(b""), |prev, seq| {
                let t = jiff::Timestamp::UNIX_EPOCH;
                let line = Line { seq, t, mono_ms: 0, prev: prev.clone(), event: note("x") };
                let text = serde_json::to_string(&line).unwrap();
                *prev = Hash::of(&text);
                Some(text + "\n")
            })
            .collect();
        std::fs::write(&path, plain).unwrap();
        assert_eq!(read(&path).unwrap().lines.len(), 2);
        let mut lines: Vec<&str> = good.lines().collect();
        lines.remove(1);
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        assert!(matches!(read(&path), Err(TranscriptError::Damaged { line: 2, .. })));
    }

    #[test]
    fn session_time_goes_on_after_a_resume_and_secrets_stay_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        let clock = Arc::new(ManualClock::default());
        let redactor = Redactor::new(["sk-canary-123456".into()]);
        let mut transcript = Transcript::create(&path, clock.clone(), redactor.clone()).unwrap();
        clock.advance(Duration::from_secs(5));
        let line = transcript.append(note("key sk-canary-123456"), true).unwrap();
        assert_eq!(line.event, note("key [redacted]"));
        drop(transcript);
        clock.advance(Duration::from_secs(1000));
        let back = read(&path).unwrap();
        let transcript = Transcript::resume(&path, &back, clock.clone(), redactor).unwrap();
        clock.advance(Duration::from_secs(2));
        assert_eq!(transcript.elapsed(), Duration::from_secs(7));
        assert!(!std::fs::read_to_string(&path).unwrap().contains("canary"));
    }
}
