//! Append-only files of one JSON value a line, read with patience: a line that a crash tore is skipped and
//! reported, never a reason to refuse the rest.

use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::durable;
use crate::files;
use crate::photo::error::PhotoError;

/// What a file of lines holds.
pub(super) struct Lines<T> {
    /// The values, oldest first.
    pub items: Vec<T>,
    /// Lines that do not parse.
    pub bad: Vec<BadLine>,
}

/// A line that does not parse.
pub(super) struct BadLine {
    /// Counted from 1.
    pub number: usize,
    /// Whether it merely ends too soon, as a crash leaves it.
    pub torn: bool,
    /// What the parser said.
    pub reason: String,
}

/// Appends one value, synced.
pub(super) fn append(path: &Path, value: &impl Serialize) -> Result<(), PhotoError> {
    let line = serde_json::to_string(value).map_err(|e| PhotoError::Invalid(e.to_string()))?;
    durable::append_line(path, &line).map_err(PhotoError::io("append to", path))
}

/// Reads the whole file; a missing one is empty.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<Lines<T>, PhotoError> {
    match files::read_own(path, files::LARGEST) {
        Ok(bytes) => Ok(parse(&bytes)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Lines { items: Vec::new(), bad: Vec::new() }),
        Err(e) => Err(PhotoError::io("read", path)(e)),
    }
}

/// Reads the last `n` values, oldest first, without reading the whole of a long file.
pub(super) fn tail<T: DeserializeOwned>(path: &Path, n: usize) -> Result<Vec<T>, PhotoError> {
    let io = || PhotoError::io("read", path);
    let mut file = match files::open_own(path, OpenOptions::new().read(true)) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(io()(e)),
    };
    let length = file.seek(SeekFrom::End(0)).map_err(io())?;
    let mut window = 4096_u64;
    loop {
        let start = length.saturating_sub(window);
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(start)).map_err(io())?;
        file.by_ref().take(length - start).read_to_end(&mut bytes).map_err(io())?;
        // Unless the window holds the start of the file, its first line is cut.
        let whole = if start == 0 {
            bytes.as_slice()
        } else {
            let cut = bytes.iter().position(|b| *b == b'\n').map_or(bytes.len(), |i| i + 1);
            bytes.get(cut..).unwrap_or_default()
        };
        let mut items = parse(whole).items;
        if items.len() >= n || start == 0 {
            items.drain(..items.len().saturating_sub(n));
            return Ok(items);
        }
        window = window.saturating_mul(4);
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Lines<T> {
    let mut lines = Lines { items: Vec::new(), bad: Vec::new() };
    for (index, line) in bytes.split(|b| *b == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        match serde_json::from_slice(line) {
            Ok(item) => lines.items.push(item),
            Err(e) => {
                lines.bad.push(BadLine { number: index + 1, torn: e.is_eof(), reason: e.to_string() });
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_torn_line_costs_only_itself() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        append(&path, &[1]).unwrap();
        fs::write(&path, "[1]\n[2\n[3]\nx\n[4").unwrap();
        let lines = read::<Vec<u32>>(&path).unwrap();
        assert_eq!(lines.items, [[1], [3]]);
        let bad: Vec<_> = lines.bad.iter().map(|b| (b.number, b.torn)).collect();
        assert_eq!(bad, [(2, true), (4, false), (5, true)]);
        assert!(read::<u32>(&dir.path().join("none")).unwrap().items.is_empty());
    }

    #[test]
    fn the_tail_of_a_long_file_is_its_last_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let text: String = (0..5000).map(|i| format!("[{i}]\n")).collect();
        fs::write(&path, text).unwrap();
        assert_eq!(tail::<[u32; 1]>(&path, 3).unwrap(), [[4997], [4998], [4999]]);
        assert_eq!(tail::<[u32; 1]>(&path, 4999).unwrap().first(), Some(&[1]));
        assert_eq!(tail::<[u32; 1]>(&path, 9000).unwrap().len(), 5000);
        assert!(tail::<[u32; 1]>(&path, 0).unwrap().is_empty());
    }
}
