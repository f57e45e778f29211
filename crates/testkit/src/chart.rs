//! A chart of 24 colour patches, photographed by the made-up camera.
//!
//! The patches are those of the classic colour checker, by their published 8-bit sRGB values.

use darktable::render::Picture;
use pixels::srgb::LINEAR;

/// Columns and rows of patches.
pub const COLUMNS: u32 = 6;
pub const ROWS: u32 = 4;

/// The side of a patch in pixels.
const SIDE: u32 = 100;

/// Names and sRGB values, row by row.
pub const PATCHES: [(&str, [u8; 3]); 24] = [
    ("dark skin", [115, 82, 68]),
    ("light skin", [194, 150, 130]),
    ("blue sky", [98, 122, 157]),
    ("foliage", [87, 108, 67]),
    ("blue flower", [133, 128, 177]),
    ("bluish green", [103, 189, 170]),
    ("orange", [214, 126, 44]),
    ("purplish blue", [80, 91, 166]),
    ("moderate red", [193, 90, 99]),
    ("purple", [94, 60, 108]),
    ("yellow green", [157, 188, 64]),
    ("orange yellow", [224, 163, 46]),
    ("blue", [56, 61, 150]),
    ("green", [70, 148, 73]),
    ("red", [175, 54, 60]),
    ("yellow", [231, 199, 31]),
    ("magenta", [187, 86, 149]),
    ("cyan", [8, 133, 161]),
    ("white", [243, 243, 242]),
    ("neutral 8", [200, 200, 200]),
    ("neutral 6.5", [160, 160, 160]),
    ("neutral 5", [122, 122, 121]),
    ("neutral 3.5", [85, 85, 85]),
    ("black", [52, 52, 52]),
];

/// The chart as a picture.
pub fn picture() -> Picture {
    let (width, height) = (COLUMNS * SIDE, ROWS * SIDE);
    let patch = |x: u32, y: u32| PATCHES[(y / SIDE * COLUMNS + x / SIDE) as usize].1;
    let rgb = (0..height).flat_map(|y| (0..width).flat_map(move |x| patch(x, y))).collect();
    Picture { width, height, rgb }
}

/// The mean of each patch in a render of the whole chart, away from its borders: linear sRGB, 0…1.
pub fn patches(picture: &Picture) -> [[f64; 3]; 24] {
    assert_eq!((picture.width, picture.height), (COLUMNS * SIDE, ROWS * SIDE));
    std::array::from_fn(|patch| {
        let (column, row) = (patch as u32 % COLUMNS * SIDE, patch as u32 / COLUMNS * SIDE);
        let inner = SIDE * 3 / 10..SIDE * 7 / 10;
        let mut sum = [0.0; 3];
        for (x, y) in inner.clone().flat_map(|y| inner.clone().map(move |x| (column + x, row + y))) {
            let at = 3 * (y * picture.width + x) as usize;
            for (sum, code) in sum.iter_mut().zip(&picture.rgb[at..at + 3]) {
                *sum += LINEAR[usize::from(*code)] / f64::from(SIDE * SIDE * 16 / 100);
            }
        }
        sum
    })
}
