//! Append-only files of one JSON value per line. A line that a crash tore is skipped and reported, never a reason to
//! refuse the rest.

use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::photo::error::PhotoError;
use base::durable;
use base::files;
use base::seal::{self, Seal};

/// What a file of lines holds.
pub(super) struct Lines<T> {
    /// The values, oldest first.
    pub items: Vec<T>,
    /// Lines that do not parse, or are not as they were written.
    pub bad: Vec<BadLine>,
}

/// A line that does not parse, or is not as it was written.
pub(super) struct BadLine {
    /// Counted from 1.
    pub number: usize,
    /// Whether it merely ends too soon, as a crash leaves it.
    pub torn: bool,
    /// What is wrong with it.
    pub reason: String,
}

/// Appends one value, synced, under a hash of it and of the line before it.
pub(super) fn append(path: &Path, value: &impl Serialize) -> Result<(), PhotoError> {
    let line = serde_json::to_string(value).map_err(|e| PhotoError::Invalid(e.to_string()))?;
    let line = seal::seal(&last_line(path)?, &line);
    durable::append_line(path, &line).map_err(PhotoError::io("append to", path))
}

/// The value at the very end; `None` if there is none, or its line is torn or damaged.
pub(super) fn last<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, PhotoError> {
    Ok(read_line(&last_line(path)?).ok())
}

fn last_line(path: &Path) -> Result<Vec<u8>, PhotoError> {
    let bytes = ending(path, |bytes| filled(bytes).count() > 1)?;
    Ok(filled(&bytes).last().unwrap_or_default().to_vec())
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
    let bytes = ending(path, |bytes| filled(bytes).filter(|line| read_line::<T>(line).is_ok()).count() > n)?;
    let mut items: Vec<T> = filled(&bytes).filter_map(|line| read_line(line).ok()).collect();
    items.drain(..items.len().saturating_sub(n));
    Ok(items)
}

/// The end of a file, as much as `enough` asks for, or all of it. Its first line may be cut.
fn ending(path: &Path, enough: impl Fn(&[u8]) -> bool) -> Result<Vec<u8>, PhotoError> {
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
        let mut bytes = Vec::with_capacity(usize::try_from(length - start).unwrap_or(0) + 1);
        file.seek(SeekFrom::Start(start)).map_err(io())?;
        file.by_ref().take(length - start).read_to_end(&mut bytes).map_err(io())?;
        if start == 0 || enough(&bytes) {
            return Ok(bytes);
        }
        window = window.saturating_mul(4);
    }
}

/// The lines that are not empty.
fn filled(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty())
}

fn read_line<T: DeserializeOwned>(line: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice(line)
}

/// What a file of lines holds, from its beginning. A value that is not as it was written is among the values all the
/// same.
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Lines<T> {
    let mut lines = Lines { items: Vec::new(), bad: Vec::new() };
    let (mut before, mut sealed): (&[u8], bool) = (b"", false);
    for (index, line) in bytes.split(|b| *b == b'\n').enumerate().filter(|(_, line)| !line.is_empty()) {
        let mut bad = |torn, reason| lines.bad.push(BadLine { number: index + 1, torn, reason });
        match (read_line(line), seal::check(before, line)) {
            // What still has a hash at its end was not torn.
            (Err(e), found) => bad(e.is_eof() && found == Seal::Absent, e.to_string()),
            (Ok(item), found) => {
                match found {
                    Seal::Broken => {
                        bad(false, "it was changed, or lines before it were changed or lost".into())
                    }
                    Seal::Absent if sealed => bad(false, "it carries no hash, as lines before it do".into()),
                    _ => {}
                }
                sealed |= found == Seal::Whole;
                lines.items.push(item);
            }
        }
        before = line;
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
    fn a_flipped_bit_and_a_lost_line_are_found_and_a_torn_line_is_neither() {
        #[derive(Serialize, serde::Deserialize)]
        struct Item {
            n: u32,
            label: String,
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        // As an earlier build wrote it.
        fs::write(&path, "{\"n\":0,\"label\":\"\"}\n{\"n\":1,\"la").unwrap();
        for n in 2..6 {
            append(&path, &Item { n, label: "warm".into() }).unwrap();
        }
        let good = fs::read_to_string(&path).unwrap();
        let bad = |text: &str| {
            fs::write(&path, text).unwrap();
            let lines = read::<Item>(&path).unwrap();
            lines.bad.iter().filter(|bad| !bad.torn).map(|bad| bad.number).collect::<Vec<_>>()
        };
        assert!(bad(&good).is_empty());
        assert_eq!(bad(&good.replacen("warm", "harm", 1)), [3, 4]);
        let lines: Vec<&str> = good.lines().collect();
        for lost in 1..5 {
            let mut fewer = lines.clone();
            fewer.remove(lost);
            assert_eq!(bad(&fewer.join("\n")), [lost + 1], "line {lost}");
        }
        assert_eq!(bad(&(good.clone() + "{\"n\":9,\"label\":\"\"}\n")), [7]);
        fs::write(&path, &good).unwrap();
        let last = tail::<Item>(&path, 2).unwrap();
        assert_eq!(last.iter().map(|item| item.n).collect::<Vec<_>>(), [4, 5]);
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
