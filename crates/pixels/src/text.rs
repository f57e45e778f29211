//! Short labels on pictures, in a bitmap font of 5×7 dots.

use crate::Picture;

/// Columns of a character with the gap after it, in dots.
pub(crate) const ADVANCE: u32 = 6;
/// Rows of a character, in dots.
pub(crate) const HEIGHT: u32 = 7;

/// Rows from top to bottom, five bits each, the left column highest.
#[rustfmt::skip]
const GLYPHS: &[(char, [u8; 7])] = &[
    ('0', [14, 17, 19, 21, 25, 17, 14]), ('1', [4, 12, 4, 4, 4, 4, 14]), ('2', [14, 17, 1, 6, 8, 16, 31]),
    ('3', [31, 2, 4, 2, 1, 17, 14]), ('4', [2, 6, 10, 18, 31, 2, 2]), ('5', [31, 16, 30, 1, 1, 17, 14]),
    ('6', [6, 8, 16, 30, 17, 17, 14]), ('7', [31, 1, 2, 4, 8, 8, 8]), ('8', [14, 17, 17, 14, 17, 17, 14]),
    ('9', [14, 17, 17, 15, 1, 2, 12]),
    ('A', [14, 17, 17, 31, 17, 17, 17]), ('B', [30, 17, 17, 30, 17, 17, 30]), ('C', [14, 17, 16, 16, 16, 17, 14]),
    ('D', [28, 18, 17, 17, 17, 18, 28]), ('E', [31, 16, 16, 30, 16, 16, 31]), ('F', [31, 16, 16, 30, 16, 16, 16]),
    ('G', [14, 17, 16, 23, 17, 17, 15]), ('H', [17, 17, 17, 31, 17, 17, 17]), ('I', [14, 4, 4, 4, 4, 4, 14]),
    ('J', [7, 2, 2, 2, 2, 18, 12]), ('K', [17, 18, 20, 24, 20, 18, 17]), ('L', [16, 16, 16, 16, 16, 16, 31]),
    ('M', [17, 27, 21, 21, 17, 17, 17]), ('N', [17, 25, 21, 19, 17, 17, 17]), ('O', [14, 17, 17, 17, 17, 17, 14]),
    ('P', [30, 17, 17, 30, 16, 16, 16]), ('Q', [14, 17, 17, 17, 21, 18, 13]), ('R', [30, 17, 17, 30, 20, 18, 17]),
    ('S', [15, 16, 16, 14, 1, 1, 30]), ('T', [31, 4, 4, 4, 4, 4, 4]), ('U', [17, 17, 17, 17, 17, 17, 14]),
    ('V', [17, 17, 17, 17, 17, 10, 4]), ('W', [17, 17, 17, 21, 21, 27, 17]), ('X', [17, 17, 10, 4, 10, 17, 17]),
    ('Y', [17, 17, 10, 4, 4, 4, 4]), ('Z', [31, 1, 2, 4, 8, 16, 31]),
    ('a', [0, 0, 14, 1, 15, 17, 15]), ('b', [16, 16, 30, 17, 17, 17, 30]), ('c', [0, 0, 15, 16, 16, 16, 15]),
    ('d', [1, 1, 15, 17, 17, 17, 15]), ('e', [0, 0, 14, 17, 31, 16, 14]), ('f', [6, 8, 28, 8, 8, 8, 8]),
    ('g', [0, 15, 17, 17, 15, 1, 14]), ('h', [16, 16, 30, 17, 17, 17, 17]), ('i', [4, 0, 12, 4, 4, 4, 14]),
    ('j', [2, 0, 6, 2, 2, 18, 12]), ('k', [16, 16, 18, 20, 24, 20, 18]), ('l', [12, 4, 4, 4, 4, 4, 14]),
    ('m', [0, 0, 26, 21, 21, 21, 21]), ('n', [0, 0, 30, 17, 17, 17, 17]), ('o', [0, 0, 14, 17, 17, 17, 14]),
    ('p', [0, 30, 17, 17, 30, 16, 16]), ('q', [0, 15, 17, 17, 15, 1, 1]), ('r', [0, 0, 22, 24, 16, 16, 16]),
    ('s', [0, 0, 15, 16, 14, 1, 30]), ('t', [8, 8, 28, 8, 8, 8, 6]), ('u', [0, 0, 17, 17, 17, 17, 15]),
    ('v', [0, 0, 17, 17, 17, 10, 4]), ('w', [0, 0, 17, 17, 21, 21, 10]), ('x', [0, 0, 17, 10, 4, 10, 17]),
    ('y', [0, 17, 17, 17, 15, 1, 14]), ('z', [0, 0, 31, 2, 4, 8, 31]),
    ('.', [0, 0, 0, 0, 0, 12, 12]), (',', [0, 0, 0, 0, 12, 4, 8]), (':', [0, 12, 12, 0, 12, 12, 0]),
    ('-', [0, 0, 0, 31, 0, 0, 0]), ('+', [0, 4, 4, 31, 4, 4, 0]), ('=', [0, 0, 31, 0, 31, 0, 0]),
    ('_', [0, 0, 0, 0, 0, 0, 31]), ('/', [1, 1, 2, 4, 8, 16, 16]), ('%', [25, 26, 2, 4, 8, 11, 19]),
    ('#', [10, 10, 31, 10, 31, 10, 10]), ('(', [2, 4, 8, 8, 8, 4, 2]), (')', [8, 4, 2, 2, 2, 4, 8]),
    ('<', [2, 4, 8, 16, 8, 4, 2]), ('>', [8, 4, 2, 1, 2, 4, 8]), ('*', [0, 21, 14, 31, 14, 21, 0]),
    ('!', [4, 4, 4, 4, 4, 0, 4]), ('?', [14, 17, 1, 2, 4, 0, 4]), ('°', [12, 18, 18, 12, 0, 0, 0]),
    ('Δ', [4, 4, 10, 10, 17, 17, 31]),
];

/// What is drawn for a character that the font does not have.
const UNKNOWN: [u8; 7] = [31, 17, 17, 17, 17, 17, 31];

/// Width of a text in pixels.
pub(crate) fn width(text: &str, scale: u32) -> u32 {
    u32::try_from(text.chars().count()).unwrap_or(u32::MAX).saturating_mul(ADVANCE * scale)
}

/// Draws a line of text with its upper left corner at `x`, `y`, each dot `scale` pixels wide; what lies outside the
/// picture is cut off.
pub(crate) fn draw_text(picture: &mut Picture, x: u32, y: u32, scale: u32, text: &str, colour: [u8; 3]) {
    for (place, letter) in (0_u32..).zip(text.chars().filter(|_| scale > 0)) {
        if letter == ' ' {
            continue;
        }
        let rows = GLYPHS.iter().find(|(known, _)| *known == letter).map_or(UNKNOWN, |(_, rows)| *rows);
        let left = x.saturating_add(place.saturating_mul(ADVANCE * scale));
        for (row, bits) in (0_u32..).zip(rows) {
            for column in (0..5_u32).filter(|column| bits & (16 >> column) != 0) {
                picture.fill([left.saturating_add(column * scale), y + row * scale], [scale; 2], colour);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(text: &str, scale: u32) -> Vec<String> {
        let mut picture = Picture { width: 14, height: 8, rgb: vec![0; 14 * 8 * 3] };
        draw_text(&mut picture, 1, 1, scale, text, [255, 0, 0]);
        let rows = picture.rgb.chunks_exact(14 * 3);
        rows.map(|row| row.chunks_exact(3).map(|p| if p[0] > 0 { '#' } else { '.' }).collect()).collect()
    }

    #[test]
    fn letters_are_drawn_where_they_belong_and_cut_off_at_the_edge() {
        let shown = drawn("1L", 1);
        assert_eq!(shown[1], "...#...#......");
        assert_eq!(shown[7], "..###..#####..");
        // At twice the size only the left and upper part has room.
        assert_eq!(drawn("1", 2)[1], ".....##.......");
        assert!(drawn("1L", 40).iter().all(|row| row.len() == 14));
        assert_eq!(width("0.1", 2), 36);
        // A box stands for a character that the font does not have.
        assert_eq!(drawn("€", 1)[1..3], [".#####........", ".#...#........"]);
    }

    #[test]
    fn every_glyph_is_a_shape_of_its_own() {
        for (at, (letter, rows)) in GLYPHS.iter().enumerate() {
            assert!(rows.iter().all(|row| *row < 32) && rows.iter().any(|row| *row > 0), "{letter}");
            let twin = GLYPHS[..at].iter().find(|(_, other)| other == rows);
            assert!(twin.is_none(), "{letter} {twin:?}");
        }
        let known = |letter: char| GLYPHS.iter().any(|(glyph, _)| *glyph == letter);
        assert!(('0'..='9').chain('a'..='z').chain('A'..='Z').all(known));
    }
}
