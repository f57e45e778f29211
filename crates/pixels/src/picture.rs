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
}
