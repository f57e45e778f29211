//! A whole picture in CIELAB.

use crate::ciede::{TILE, Tile};
use crate::parallel::both;

/// The pixels of a picture in CIELAB under D65, row by row, in single precision: 16 bytes a pixel.
pub struct Planes {
    tiles: Vec<Tile>,
    pixels: usize,
    /// Sum of relative luminance.
    pub luminance: f64,
}

impl std::fmt::Debug for Planes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Planes").field("pixels", &self.pixels).finish_non_exhaustive()
    }
}

impl Planes {
    /// Converts 8-bit sRGB, three bytes per pixel. The two halves are done at once; where they meet does not depend on
    /// the machine, and so no sum does.
    pub fn of(rgb: &[u8]) -> Self {
        let pixels = rgb.len() / 3;
        let mut tiles = vec![Tile::new(); pixels.div_ceil(TILE)];
        let half = middle(tiles.len());
        let (first, second) = tiles.split_at_mut(half);
        let (upper, lower) = rgb.split_at(rgb.len().min(3 * TILE * half));
        let (upper, lower) = both(|| fill(upper, first), || fill(lower, second));
        Self { tiles, pixels, luminance: upper + lower }
    }

    pub(crate) fn tiles(&self) -> &[Tile] {
        &self.tiles
    }

    /// How many pixels there are; what the last tile has beyond them is black.
    pub fn pixels(&self) -> usize {
        self.pixels
    }

    /// L* of every pixel.
    pub fn lightness(&self) -> Vec<f32> {
        let mut lightness = Vec::with_capacity(self.tiles.len() * TILE);
        for tile in &self.tiles {
            lightness.extend_from_slice(&tile.l);
        }
        lightness.truncate(self.pixels);
        lightness
    }
}

/// Where tiles are parted in two halves.
pub(crate) fn middle(tiles: usize) -> usize {
    tiles.div_ceil(2)
}

fn fill(rgb: &[u8], tiles: &mut [Tile]) -> f64 {
    rgb.chunks(3 * TILE).zip(tiles).map(|(rgb, tile)| tile.fill(rgb)).sum()
}
