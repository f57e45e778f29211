//! Several pictures on one, each under its label.

use crate::Picture;
use crate::metrics::resize;
use crate::text::{self, draw_text};

/// Dots of the font around a label.
const MARGIN: u32 = 2;
/// Pixels between tiles.
const GAP: u32 = 6;
/// A dot of the font is at most this many pixels wide.
const LARGEST: u32 = 3;

const BACKGROUND: [u8; 3] = [28; 3];
const INK: [u8; 3] = [245; 3];

/// One picture of several, row by row, each under its label; no side is longer than `long_edge`, and nothing is
/// enlarged. `None` without a tile, and where the tiles do not fit.
pub fn contact_sheet(tiles: &[(String, &Picture)], long_edge: u32) -> Option<Picture> {
    let largest = |side: fn(&Picture) -> u32| tiles.iter().map(|(_, picture)| side(picture)).max();
    let [width, height] = [largest(|picture| picture.width)?, largest(|picture| picture.height)?];
    let count = u32::try_from(tiles.len()).ok()?;
    // A strip for the label above each tile.
    let strip = (text::HEIGHT + 2 * MARGIN) * LARGEST;
    let share = |columns: u32| {
        let room = |tiles: u32, beside: u32| f64::from(long_edge) - f64::from(tiles * (beside + GAP) + GAP);
        let rows = count.div_ceil(columns);
        let across = room(columns, 0) / f64::from(columns * width);
        across.min(room(rows, strip) / f64::from(rows * height)).min(1.0)
    };
    let longest = |columns: u32| (columns * width).max(count.div_ceil(columns) * (height + strip));
    // The tiles as large as they can be, and then the sheet as small.
    let better = |one: u32, other: u32| {
        share(other).total_cmp(&share(one)).then(longest(one).cmp(&longest(other))).is_lt()
    };
    let columns = (1..=count).reduce(|best, more| if better(more, best) { more } else { best })?;
    let share = share(columns);
    let scaled = |length: u32| ((f64::from(length) * share) as u32).max(1);
    let cell = [scaled(width) + GAP, scaled(height) + strip + GAP];
    if share <= 0.0 {
        return None;
    }
    let [across, down] = [columns * cell[0] + GAP, count.div_ceil(columns) * cell[1] + GAP];
    let mut sheet = Picture::blank(across, down, BACKGROUND);
    for (at, (label, tile)) in (0_u32..).zip(tiles) {
        let [left, top] = [at % columns * cell[0] + GAP, at / columns * cell[1] + GAP];
        let small = resize::to(tile, scaled(tile.width), scaled(tile.height)).ok()?;
        // As large as fits, and a label that never fits is cut off.
        let room = cell[0] - GAP;
        let fits = |scale: &u32| text::width(label, *scale).saturating_add(2 * MARGIN * scale) <= room;
        let scale = (1..=LARGEST).rev().find(fits).unwrap_or(1);
        let letters = (room / text::ADVANCE) as usize;
        let label: String = label.chars().take(letters).collect();
        draw_text(&mut sheet, left + MARGIN * scale, top + MARGIN * scale, scale, &label, INK);
        sheet.paste([left, top + strip], &small);
    }
    Some(sheet)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(width: u32, height: u32, code: u8) -> Picture {
        Picture { width, height, rgb: vec![code; (width * height * 3) as usize] }
    }

    #[test]
    fn a_sheet_has_every_tile_whole_in_its_order_under_its_label() {
        let codes = [60, 100, 140, 180, 220];
        let pictures: Vec<Picture> = codes.iter().map(|code| flat(300, 200, *code)).collect();
        let tiles: Vec<_> =
            codes.iter().zip(&pictures).map(|(code, tile)| (format!("{code}"), tile)).collect();
        for long_edge in [320, 700, 4000] {
            let sheet = contact_sheet(&tiles, long_edge).unwrap();
            assert!(sheet.width.max(sheet.height) <= long_edge, "{sheet:?} {long_edge}");
            assert_eq!(sheet.rgb.len(), (3 * sheet.width * sheet.height) as usize);
            let mut order: Vec<u8> =
                sheet.rgb.chunks(3).map(|rgb| rgb[0]).filter(|c| codes.contains(c)).collect();
            let share = order.len() as f64 / (5.0 * 60_000.0);
            let size = |code| order.iter().filter(|c| **c == code).count();
            assert!(codes.iter().all(|code| size(*code) == size(60)), "{long_edge}");
            assert_eq!(share == 1.0, long_edge == 4000, "{share}");
            order.dedup();
            // Tiles of one row take turns line by line; the first sight of each is in order.
            let mut firsts: Vec<u8> = Vec::new();
            order.iter().for_each(|code| {
                if !firsts.contains(code) {
                    firsts.push(*code);
                }
            });
            assert_eq!(firsts, codes);
            assert!(sheet.rgb.chunks(3).any(|rgb| rgb == INK), "no label at {long_edge}");
        }
        assert!(contact_sheet(&[], 700).is_none());
        assert!(contact_sheet(&tiles, 40).is_none());
    }

    #[test]
    fn tiles_of_several_sizes_keep_their_shapes() {
        let (wide, high) = (flat(200, 100, 200), flat(100, 200, 100));
        let tiles = [("wide".to_owned(), &wide), ("high".to_owned(), &high)];
        let sheet = contact_sheet(&tiles, 1000).unwrap();
        let count = |code| sheet.rgb.chunks(3).filter(|rgb| *rgb == [code; 3]).count();
        assert_eq!((count(200), count(100)), (20_000, 20_000));
    }
}
