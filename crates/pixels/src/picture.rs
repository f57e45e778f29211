//! A picture in memory.

use base::ids::Hash;
use sha2::{Digest, Sha256};

/// A decoded picture: 8-bit sRGB, interleaved, row by row.
#[derive(Clone, PartialEq, Eq)]
pub struct Picture {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// `width * height * 3` bytes.
    pub rgb: Vec<u8>,
}

impl std::fmt::Debug for Picture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Picture({}x{})", self.width, self.height)
    }
}

impl Picture {
    /// The picture's identity: SHA-256 over width and height (little-endian u32) and the RGB bytes.
    /// Files carry time stamps, pixels do not.
    pub fn pixel_hash(&self) -> Hash {
        let mut digest = Sha256::new();
        digest.update(self.width.to_le_bytes());
        digest.update(self.height.to_le_bytes());
        digest.update(&self.rgb);
        Hash::finish(digest)
    }

    /// A picture of one colour.
    pub(crate) fn blank(width: u32, height: u32, colour: [u8; 3]) -> Self {
        Self { width, height, rgb: colour.repeat(width as usize * height as usize) }
    }

    /// Fills a rectangle, as far as it lies on the picture.
    pub(crate) fn fill(&mut self, [left, top]: [u32; 2], [width, height]: [u32; 2], colour: [u8; 3]) {
        let right = left.saturating_add(width).min(self.width);
        for row in top..top.saturating_add(height).min(self.height) {
            let at = |column: u32| 3 * (row as usize * self.width as usize + column as usize);
            let columns = at(left)..at(right);
            if let Some(line) = self.rgb.get_mut(columns) {
                line.as_chunks_mut().0.fill(colour);
            }
        }
    }

    /// Puts another picture on this one, its upper left corner at `left`, `top`. This one must have room for its columns.
    pub(crate) fn paste(&mut self, [left, top]: [u32; 2], other: &Self) {
        let columns = 3 * other.width as usize;
        for (row, pixels) in (top as usize..).zip(other.rgb.chunks_exact(columns.max(1))) {
            let at = 3 * (row * self.width as usize + left as usize);
            if let Some(place) = self.rgb.get_mut(at..at + columns) {
                place.copy_from_slice(pixels);
            }
        }
    }
}
