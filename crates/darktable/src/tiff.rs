//! Directories of a TIFF file, and so of a DNG: where the tags are and what they point to.
//!
//! Source: TIFF 6.0, section 2. Nothing is changed here, and no offset is believed before it was looked at.

use std::ops::Range;

/// A TIFF's bytes and their order.
#[derive(Clone, Copy)]
pub struct Tiff<'a> {
    file: &'a [u8],
    little: bool,
}

/// A tag's entry.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The tag.
    pub tag: u16,
    /// Where the entry is; its value or the place of it 8 bytes on.
    pub at: usize,
    /// How many values.
    pub count: usize,
    /// The size of one in bytes.
    pub size: usize,
    /// Where its value is, if not in the entry.
    pub outside: Option<Range<usize>>,
}

impl<'a> Tiff<'a> {
    /// Looks at the first bytes; `None` for a file of another kind.
    pub fn open(file: &'a [u8]) -> Option<Self> {
        match file.get(..4)? {
            b"II*\0" => Some(Self { file, little: true }),
            b"MM\0*" => Some(Self { file, little: false }),
            _ => None,
        }
    }

    /// The 16-bit number at `at`.
    pub fn short(&self, at: usize) -> Option<u16> {
        let bytes = *self.file.get(at..)?.first_chunk()?;
        Some(if self.little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    }

    /// The 32-bit number at `at`.
    pub fn long(&self, at: usize) -> Option<usize> {
        let bytes = *self.file.get(at..)?.first_chunk()?;
        let value = if self.little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) };
        usize::try_from(value).ok()
    }

    /// A 16-bit number as the file has them.
    pub fn short_bytes(&self, value: u16) -> [u8; 2] {
        if self.little { value.to_le_bytes() } else { value.to_be_bytes() }
    }

    /// A 32-bit number as the file has them.
    pub fn long_bytes(&self, value: u32) -> [u8; 4] {
        if self.little { value.to_le_bytes() } else { value.to_be_bytes() }
    }

    /// The whole numbers of an entry: bytes, shorts or longs.
    pub fn numbers(&self, entry: &Entry) -> Option<Vec<usize>> {
        let start = entry.outside.as_ref().map_or(entry.at + 8, |outside| outside.start);
        let number = |n: usize| {
            let at = start + n * entry.size;
            match entry.size {
                1 => self.file.get(at).map(|byte| usize::from(*byte)),
                2 => self.short(at).map(usize::from),
                4 => self.long(at),
                _ => None,
            }
        };
        (0..entry.count).map(number).collect()
    }

    /// The entries of the directory at `directory`, which must lie in the file with all they point to.
    pub fn entries(&self, directory: usize) -> Option<Vec<Entry>> {
        let count = usize::from(self.short(directory)?);
        self.file.get(directory..directory + 6 + 12 * count)?;
        let entry = |n: usize| {
            let at = directory + 2 + 12 * n;
            let size = match self.short(at + 2)? {
                3 | 8 => 2,
                4 | 9 | 11 | 13 => 4,
                5 | 10 | 12 => 8,
                _ => 1,
            };
            let count = self.long(at + 4)?;
            let length = count.checked_mul(size)?;
            let outside = match length {
                0..=4 => None,
                _ => {
                    let start = self.long(at + 8)?;
                    Some(start..start.checked_add(length).filter(|end| *end <= self.file.len())?)
                }
            };
            Some(Entry { tag: self.short(at)?, at, count, size, outside })
        };
        (0..count).map(entry).collect()
    }
}
