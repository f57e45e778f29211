//! How a picture lies in its file and how it is shown: the two sizes, and the orientation between them.

use serde::{Deserialize, Serialize};

/// Columns and rows of the pixels in the file, before the picture is turned for display. Of a raw this is the whole
/// sensor, with the margins that `rawprepare` cuts off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSize {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

/// Width and height of a picture as it is shown at full size, in pixels: without margins, straightened, turned and
/// cropped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DisplayedSize {
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
}

impl DisplayedSize {
    /// The shorter side.
    pub fn short(self) -> f64 {
        self.width.min(self.height)
    }

    /// The diagonal.
    pub fn diagonal(self) -> f64 {
        self.width.hypot(self.height)
    }
}

impl From<DisplayedSize> for [f64; 2] {
    fn from(DisplayedSize { width, height }: DisplayedSize) -> Self {
        [width, height]
    }
}

/// How stored pixels are turned for display, in darktable's bits: 1 upside down, 2 mirrored left to right (both in
/// the stored frame), then 4 with rows and columns exchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Orientation(u8);

impl Orientation {
    const FLIP_Y: u8 = 1;
    const FLIP_X: u8 = 2;
    const SWAP: u8 = 4;
    /// The Exif tag's values 1 to 8 in darktable's bits.
    const EXIF: [u8; 8] = [0, 2, 3, 1, 4, 5, 7, 6];

    /// All eight.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..8).map(Self)
    }

    /// From darktable's bits; `None` for anything else, such as -1, "as the file says".
    pub fn from_bits(bits: i64) -> Option<Self> {
        u8::try_from(bits).ok().filter(|bits| *bits < 8).map(Self)
    }

    /// From the Exif tag (1 to 8); anything else counts as upright.
    pub fn from_exif(tag: u32) -> Self {
        let place = usize::try_from(tag).ok().and_then(|tag| tag.checked_sub(1));
        Self(place.and_then(|place| Self::EXIF.get(place)).copied().unwrap_or(0))
    }

    /// The Exif tag's value.
    pub fn exif(self) -> u16 {
        (1..).zip(Self::EXIF).find(|(_, bits)| *bits == self.0).map_or(1, |(tag, _)| tag)
    }

    /// darktable's bits.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Whether rows and columns are exchanged.
    pub fn swaps(self) -> bool {
        self.0 & Self::SWAP != 0
    }

    /// Whether left and right are exchanged, in the stored frame.
    pub fn flips_x(self) -> bool {
        self.0 & Self::FLIP_X != 0
    }

    /// Whether top and bottom are exchanged, in the stored frame.
    pub fn flips_y(self) -> bool {
        self.0 & Self::FLIP_Y != 0
    }

    /// What is shown turned a quarter clockwise, so many times.
    pub fn quarter_turns(self, times: u8) -> Self {
        (0..times % 4).fold(self, |turned, _| turned.then(Self(Self::SWAP | Self::FLIP_Y)))
    }

    /// What is shown mirrored left to right.
    pub fn mirrored(self) -> Self {
        self.then(Self(Self::FLIP_X))
    }

    /// One orientation after another. What `second` flips lies along the other stored axis where `self` swaps them.
    fn then(self, second: Self) -> Self {
        let flips = match (self.swaps(), second.0 & (Self::FLIP_X | Self::FLIP_Y)) {
            (true, Self::FLIP_X) => Self::FLIP_Y,
            (true, Self::FLIP_Y) => Self::FLIP_X,
            (_, flips) => flips,
        };
        Self(self.0 ^ flips ^ (second.0 & Self::SWAP))
    }

    /// Width and height, exchanged if rows and columns are.
    pub fn turned(self, [width, height]: [f64; 2]) -> [f64; 2] {
        if self.swaps() { [height, width] } else { [width, height] }
    }

    /// A point of the turned picture, back in the stored one of that width and height.
    pub fn back(self, point: [f64; 2], [width, height]: [f64; 2]) -> [f64; 2] {
        let [x, y] = self.turned(point);
        [if self.flips_x() { width - x } else { x }, if self.flips_y() { height - y } else { y }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exif_tag_goes_there_and_back() {
        let bits: Vec<u8> = (1..=8).map(|tag| Orientation::from_exif(tag).bits()).collect();
        assert_eq!(bits, [0, 2, 3, 1, 4, 5, 7, 6]);
        for tag in 1..=8 {
            assert_eq!(u32::from(Orientation::from_exif(tag).exif()), tag);
        }
        for none in [0, 9, u32::MAX] {
            assert_eq!(Orientation::from_exif(none), Orientation::default());
        }
        assert_eq!([-1, 8].map(Orientation::from_bits), [None, None]);
    }

    #[test]
    fn four_quarter_turns_and_two_mirrors_are_nothing_from_every_orientation() {
        for start in Orientation::all() {
            assert_eq!(start.quarter_turns(3).quarter_turns(1), start);
            assert_ne!(start.quarter_turns(2), start);
            assert_eq!(start.mirrored().mirrored(), start);
        }
        // darktable's own names: 5 is a turn clockwise, 3 is half a turn, 6 is one anticlockwise.
        let upright = Orientation::default();
        assert_eq!([1, 2, 3].map(|times| upright.quarter_turns(times).bits()), [5, 3, 6]);
    }
}
