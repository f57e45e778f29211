//! Several pictures on one, each under its label, and the small letters that labels are written in.

use crate::Picture;
use crate::metrics::resize;

/// Columns and rows of a letter, and the columns from one letter to the next.
const LETTER: [u32; 2] = [5, 9];
const ADVANCE: u32 = 6;
/// How many rows the tails of g, j, p, q and y hang down.
const TAIL: u32 = 2;
/// Pixels of the font around a label.
const MARGIN: u32 = 2;
/// Pixels between tiles.
const GAP: u32 = 6;
/// Letters on a sheet are at most this much larger than the font.
const LARGEST: u32 = 3;

const BACKGROUND: [u8; 3] = [28; 3];
const INK: [u8; 3] = [245; 3];

/// The letters: seven rows of five bits each, the highest bit on the left. Capitals are written as small letters.
#[rustfmt::skip]
const FONT: [(char, [u8; 7]); 56] = [
    ('0', [0x0e, 0x11, 0x13, 0x15, 0x19, 0x11, 0x0e]), ('1', [0x04, 0x0c, 0x04, 0x04, 0x04, 0x04, 0x0e]),
    ('2', [0x0e, 0x11, 0x01, 0x06, 0x08, 0x10, 0x1f]), ('3', [0x1e, 0x01, 0x01, 0x0e, 0x01, 0x01, 0x1e]),
    ('4', [0x02, 0x06, 0x0a, 0x12, 0x1f, 0x02, 0x02]), ('5', [0x1f, 0x10, 0x1e, 0x01, 0x01, 0x11, 0x0e]),
    ('6', [0x06, 0x08, 0x10, 0x1e, 0x11, 0x11, 0x0e]), ('7', [0x1f, 0x01, 0x02, 0x02, 0x04, 0x04, 0x04]),
    ('8', [0x0e, 0x11, 0x11, 0x0e, 0x11, 0x11, 0x0e]), ('9', [0x0e, 0x11, 0x11, 0x0f, 0x01, 0x02, 0x0c]),
    ('a', [0x00, 0x00, 0x0e, 0x01, 0x0f, 0x11, 0x0f]), ('b', [0x10, 0x10, 0x1e, 0x11, 0x11, 0x11, 0x1e]),
    ('c', [0x00, 0x00, 0x0e, 0x11, 0x10, 0x11, 0x0e]), ('d', [0x01, 0x01, 0x0f, 0x11, 0x11, 0x11, 0x0f]),
    ('e', [0x00, 0x00, 0x0e, 0x11, 0x1f, 0x10, 0x0e]), ('f', [0x06, 0x09, 0x08, 0x1c, 0x08, 0x08, 0x08]),
    ('g', [0x0f, 0x11, 0x11, 0x11, 0x0f, 0x01, 0x0e]), ('h', [0x10, 0x10, 0x1e, 0x11, 0x11, 0x11, 0x11]),
    ('i', [0x04, 0x00, 0x0c, 0x04, 0x04, 0x04, 0x0e]), ('j', [0x06, 0x02, 0x02, 0x02, 0x02, 0x12, 0x0c]),
    ('k', [0x10, 0x10, 0x12, 0x14, 0x18, 0x14, 0x12]), ('l', [0x0c, 0x04, 0x04, 0x04, 0x04, 0x04, 0x0e]),
    ('m', [0x00, 0x00, 0x1a, 0x15, 0x15, 0x15, 0x15]), ('n', [0x00, 0x00, 0x1e, 0x11, 0x11, 0x11, 0x11]),
    ('o', [0x00, 0x00, 0x0e, 0x11, 0x11, 0x11, 0x0e]), ('p', [0x1e, 0x11, 0x11, 0x11, 0x1e, 0x10, 0x10]),
    ('q', [0x0f, 0x11, 0x11, 0x11, 0x0f, 0x01, 0x01]), ('r', [0x00, 0x00, 0x16, 0x19, 0x10, 0x10, 0x10]),
    ('s', [0x00, 0x00, 0x0f, 0x10, 0x0e, 0x01, 0x1e]), ('t', [0x08, 0x08, 0x1c, 0x08, 0x08, 0x09, 0x06]),
    ('u', [0x00, 0x00, 0x11, 0x11, 0x11, 0x11, 0x0f]), ('v', [0x00, 0x00, 0x11, 0x11, 0x0a, 0x0a, 0x04]),
    ('w', [0x00, 0x00, 0x11, 0x15, 0x15, 0x15, 0x0a]), ('x', [0x00, 0x00, 0x11, 0x0a, 0x04, 0x0a, 0x11]),
    ('y', [0x11, 0x11, 0x11, 0x11, 0x0f, 0x01, 0x0e]), ('z', [0x00, 0x00, 0x1f, 0x02, 0x04, 0x08, 0x1f]),
    ('.', [0x00, 0x00, 0x00, 0x00, 0x00, 0x0c, 0x0c]), (',', [0x00, 0x00, 0x00, 0x0c, 0x0c, 0x04, 0x08]),
    (':', [0x00, 0x0c, 0x0c, 0x00, 0x0c, 0x0c, 0x00]), ('-', [0x00, 0x00, 0x00, 0x0e, 0x00, 0x00, 0x00]),
    ('+', [0x00, 0x04, 0x04, 0x1f, 0x04, 0x04, 0x00]), ('=', [0x00, 0x00, 0x1f, 0x00, 0x1f, 0x00, 0x00]),
    ('_', [0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x1f]), ('/', [0x01, 0x01, 0x02, 0x04, 0x08, 0x10, 0x10]),
    ('%', [0x19, 0x1a, 0x02, 0x04, 0x08, 0x0b, 0x13]), ('°', [0x0c, 0x12, 0x12, 0x0c, 0x00, 0x00, 0x00]),
    ('(', [0x02, 0x04, 0x08, 0x08, 0x08, 0x04, 0x02]), (')', [0x08, 0x04, 0x02, 0x02, 0x02, 0x04, 0x08]),
    ('<', [0x02, 0x04, 0x08, 0x10, 0x08, 0x04, 0x02]), ('>', [0x08, 0x04, 0x02, 0x01, 0x02, 0x04, 0x08]),
    ('#', [0x0a, 0x0a, 0x1f, 0x0a, 0x1f, 0x0a, 0x0a]), ('*', [0x00, 0x15, 0x0e, 0x1f, 0x0e, 0x15, 0x00]),
    ('!', [0x04, 0x04, 0x04, 0x04, 0x04, 0x00, 0x04]), ('?', [0x0e, 0x11, 0x01, 0x02, 0x04, 0x00, 0x04]),
    ('δ', [0x04, 0x04, 0x0a, 0x0a, 0x11, 0x11, 0x1f]), (' ', [0x00; 7]),
];

/// What is written for a letter that the font has not.
const UNKNOWN: [u8; 7] = [0x1f, 0x11, 0x11, 0x11, 0x11, 0x11, 0x1f];

/// Width and height of [`draw_label`]'s box in pixels, at `scale` pixels for one of the font's.
pub fn label_size(text: &str, scale: u32) -> [u32; 2] {
    let letters = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
    [(letters.saturating_mul(ADVANCE) + 2 * MARGIN).saturating_mul(scale), (LETTER[1] + 2 * MARGIN) * scale]
}

/// Writes a text on a picture, its upper left corner at `[x, y]` in pixels. The font has digits, small letters and
/// common signs; a letter is 5 by 9 pixels, times `scale`. What lies outside the picture is left out.
pub fn draw_text(picture: &mut Picture, [left, top]: [u32; 2], text: &str, scale: u32, ink: [u8; 3]) {
    for (at, letter) in (0_u32..).zip(text.chars().flat_map(char::to_lowercase)) {
        let rows = FONT.iter().find(|(known, _)| *known == letter).map_or(UNKNOWN, |(_, rows)| *rows);
        let drop = if "gjpqy".contains(letter) { TAIL } else { 0 };
        let left = left.saturating_add(at.saturating_mul(ADVANCE * scale));
        for (row, bits) in (drop..).zip(rows) {
            for column in (0..LETTER[0]).filter(|column| bits >> (LETTER[0] - 1 - column) & 1 == 1) {
                fill(picture, [left.saturating_add(column * scale), top + row * scale], [scale; 2], ink);
            }
        }
    }
}

/// [`draw_text`] in light letters on a dark box of [`label_size`], to be read on any picture.
pub fn draw_label(picture: &mut Picture, [left, top]: [u32; 2], text: &str, scale: u32) {
    fill(picture, [left, top], label_size(text, scale), BACKGROUND);
    draw_text(picture, [left + MARGIN * scale, top + MARGIN * scale], text, scale, INK);
}

/// Fills a rectangle, as far as it lies on the picture.
fn fill(picture: &mut Picture, [left, top]: [u32; 2], [width, height]: [u32; 2], colour: [u8; 3]) {
    let right = left.saturating_add(width).min(picture.width);
    for row in top..top.saturating_add(height).min(picture.height) {
        let start = |column: u32| 3 * (row as usize * picture.width as usize + column as usize);
        if let Some(line) = picture.rgb.get_mut(start(left)..start(right)) {
            line.as_chunks_mut().0.fill(colour);
        }
    }
}

/// One picture of several, row by row, each under its label; no side is longer than `long_edge`, and nothing is
/// enlarged. `None` without a tile, and where the tiles do not fit.
pub fn contact_sheet(tiles: &[(String, &Picture)], long_edge: u32) -> Option<Picture> {
    let largest = |side: fn(&Picture) -> u32| tiles.iter().map(|(_, picture)| side(picture)).max();
    let [width, height] = [largest(|picture| picture.width)?, largest(|picture| picture.height)?];
    let count = u32::try_from(tiles.len()).ok()?;
    // A strip for the label above each tile.
    let strip = label_size("", LARGEST)[1];
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
    let rgb = BACKGROUND.repeat(across as usize * down as usize);
    let mut sheet = Picture { width: across, height: down, rgb };
    for (at, (label, tile)) in (0_u32..).zip(tiles) {
        let [left, top] = [at % columns * cell[0] + GAP, at / columns * cell[1] + GAP];
        let small = resize::to(tile, scaled(tile.width), scaled(tile.height)).ok()?;
        // As large as fits, and a label that never fits is cut off.
        let room = cell[0] - GAP;
        let scale = (1..=LARGEST).rev().find(|scale| label_size(label, *scale)[0] <= room).unwrap_or(1);
        let letters = (room / ADVANCE) as usize;
        let label: String = label.chars().take(letters).collect();
        draw_label(&mut sheet, [left, top], &label, scale);
        paste(&mut sheet, [left, top + strip], &small);
    }
    Some(sheet)
}

fn paste(sheet: &mut Picture, [left, top]: [u32; 2], tile: &Picture) {
    let (from, to) = (3 * tile.width as usize, 3 * sheet.width as usize);
    let start = top as usize * to + 3 * left as usize;
    let rows = sheet.rgb.get_mut(start..).unwrap_or_default().chunks_mut(to);
    for (row, line) in rows.zip(tile.rgb.chunks_exact(from)) {
        if let Some(place) = row.get_mut(..from) {
            place.copy_from_slice(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(width: u32, height: u32, code: u8) -> Picture {
        Picture { width, height, rgb: vec![code; (width * height * 3) as usize] }
    }

    /// The picture as rows of signs, `#` where it is brighter than the middle.
    fn drawn(picture: &Picture) -> Vec<String> {
        let signs: Vec<char> =
            picture.rgb.chunks(3).map(|rgb| if rgb[0] > 127 { '#' } else { '.' }).collect();
        signs.chunks(picture.width as usize).map(|row| row.iter().collect()).collect()
    }

    #[test]
    fn a_text_is_written_as_it_reads_with_tails_below_the_line() {
        let mut picture = flat(18, 9, 0);
        draw_text(&mut picture, [0, 0], "L1y", 1, INK);
        assert_eq!(
            drawn(&picture),
            [
                ".##.....#.........",
                "..#....##.........",
                "..#.....#...#...#.",
                "..#.....#...#...#.",
                "..#.....#...#...#.",
                "..#.....#...#...#.",
                ".###...###...####.",
                "................#.",
                ".............###..",
            ]
        );
        // Twice as large is every pixel four times; what is outside the picture is left out.
        let mut double = flat(10, 30, 0);
        draw_text(&mut double, [0, 4], "11", 2, INK);
        assert_eq!(drawn(&double)[4], "....##....");
        assert_eq!(drawn(&double)[6], "..####....");
        assert_eq!(double.rgb.len(), 900);
    }

    #[test]
    fn no_two_letters_look_the_same_and_one_that_is_missing_is_a_box() {
        let shape = |letter: char| {
            let mut picture = flat(6, 9, 0);
            draw_text(&mut picture, [0, 0], &letter.to_string(), 1, INK);
            drawn(&picture)
        };
        let mut seen: Vec<_> = FONT.iter().map(|(letter, _)| shape(*letter)).collect();
        seen.push(shape('€'));
        let all = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), all);
        assert_eq!(shape('Δ'), shape('δ'));
        assert_ne!(shape('A'), shape('€'));
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
