//! What is drawn on pictures or made of two of them, so that a viewer can point, compare and see what changed.

use crate::Picture;
use crate::distance::distances;
use crate::text::{self, draw_text};

const PAPER: [u8; 3] = [24, 24, 24];
const INK: [u8; 3] = [255, 255, 255];

/// A part of a picture: left, top, right, bottom, as shares of its width and height.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part([f64; 4]);

impl Part {
    /// All of it.
    pub const WHOLE: Self = Self([0.0, 0.0, 1.0, 1.0]);

    /// The part within these edges.
    ///
    /// # Errors
    /// A sentence that says which edges can be used.
    pub fn new(edges: [f64; 4]) -> Result<Self, String> {
        let [left, top, right, bottom] = edges;
        let inside = edges.iter().all(|edge| (0.0..=1.0).contains(edge));
        if inside && right - left >= 0.01 && bottom - top >= 0.01 {
            return Ok(Self(edges));
        }
        Err(format!(
            "[{left}, {top}, {right}, {bottom}] is no part of the picture: write [left, top, right, bottom] in 0..1, \
             at least 0.01 wide and high, such as [0.3, 0.2, 0.6, 0.5]"
        ))
    }

    /// The longest side that the whole picture must have, so that this part has a longest side of `edge` pixels; never
    /// more than the whole has at full size, `[width, height]`.
    pub fn whole_edge(&self, edge: u32, [width, height]: [f64; 2]) -> u32 {
        let Self([left, top, right, bottom]) = *self;
        let part = ((right - left) * width).max((bottom - top) * height).max(1.0);
        let scale = (f64::from(edge) / part).min(1.0);
        (scale * width.max(height)).ceil().max(1.0) as u32
    }

    /// This part of a picture, at least one pixel of it.
    pub fn cut(&self, picture: &Picture) -> Picture {
        let Self([left, top, right, bottom]) = *self;
        let ends = |from: f64, to: f64, size: u32| {
            let at = |share: f64| (share * f64::from(size)).round() as u32;
            let from = at(from).min(size.saturating_sub(1));
            (from, at(to).clamp(from + 1, size.max(from + 1)))
        };
        let (x0, x1) = ends(left, right, picture.width);
        let (y0, y1) = ends(top, bottom, picture.height);
        let mut rgb = Vec::with_capacity(3 * ((x1 - x0) * (y1 - y0)) as usize);
        for row in y0..y1 {
            let at = |x: u32| 3 * (row as usize * picture.width as usize + x as usize);
            rgb.extend_from_slice(picture.rgb.get(at(x0)..at(x1)).unwrap_or_default());
        }
        Picture { width: x1 - x0, height: y1 - y0, rgb }
    }
}

/// The dots of a label are this many pixels wide on a picture of that size.
fn scale_for(picture: &Picture) -> u32 {
    (picture.width.max(picture.height) / 500).clamp(1, 4)
}

/// Draws lines with their coordinates: every tenth of the whole picture, closer where `part` of it is small.
pub fn grid(picture: &mut Picture, part: Part) {
    let Part([left, top, right, bottom]) = part;
    let extent = (right - left).max(bottom - top);
    let hundredths = match extent {
        extent if extent > 0.4 => 10,
        extent if extent > 0.2 => 5,
        extent if extent > 0.08 => 2,
        _ => 1,
    };
    let scale = scale_for(picture);
    let marks = |from: f64, to: f64, size: u32| -> Vec<(u32, String)> {
        let inside = (1..100).filter(|at| at % hundredths == 0).map(|at| f64::from(at) / 100.0);
        let inside = inside.filter(|at| *at > from + 1e-6 && *at < to - 1e-6);
        let last = size.saturating_sub(1);
        let place = |at: f64| (((at - from) / (to - from) * f64::from(size)).round() as u32).min(last);
        let name = |at: f64| if hundredths == 10 { format!("{at:.1}") } else { format!("{at:.2}") };
        inside.map(|at| (place(at), name(at))).collect()
    };
    let (across, down) = (marks(left, right, picture.width), marks(top, bottom, picture.height));
    for (x, _) in &across {
        line(picture, *x, true);
    }
    for (y, _) in &down {
        line(picture, *y, false);
    }
    for (x, name) in &across {
        label(picture, [x + scale, scale], scale, name);
    }
    for (y, name) in &down {
        label(picture, [scale, y + scale], scale, name);
    }
}

/// A line that shows on light and dark: each pixel half way to the far end of the scale.
fn line(picture: &mut Picture, at: u32, upright: bool) {
    let (width, height) = (picture.width as usize, picture.height as usize);
    let at = at as usize;
    let places = if upright { height } else { width };
    for place in 0..places {
        let pixel = if upright { place * width + at } else { at * width + place };
        for value in picture.rgb.iter_mut().skip(3 * pixel).take(3) {
            *value = if *value > 127 { *value - 96 } else { *value + 96 };
        }
    }
}

/// A text on a ground of its own.
fn label(picture: &mut Picture, [x, y]: [u32; 2], scale: u32, text: &str) {
    let size = [text::width(text, scale) + scale, (text::HEIGHT + 2) * scale];
    picture.fill([x, y], size, PAPER);
    draw_text(picture, x + scale, y + scale, scale, text, INK);
}

/// Two pictures in one at their own size, each under its label: side by side where they are upright, else one above the
/// other.
pub fn beside(first: (&Picture, &str), second: (&Picture, &str)) -> Picture {
    let upright = first.0.height > first.0.width;
    let scale = scale_for(first.0);
    let strip = (text::HEIGHT + 4) * scale;
    let gap = 2 * scale;
    let (a, b) = (first.0, second.0);
    let (width, height, at) = match upright {
        true => (a.width + gap + b.width, strip + a.height.max(b.height), [a.width + gap, 0]),
        false => (a.width.max(b.width), 2 * strip + a.height + gap + b.height, [0, strip + a.height + gap]),
    };
    let mut both = Picture::blank(width, height, PAPER);
    for ((picture, name), [x, y]) in [(first, [0, 0]), (second, at)] {
        let most = (picture.width / (text::ADVANCE * scale)) as usize;
        let name: String = name.chars().take(most).collect();
        draw_text(&mut both, x + scale, y + 2 * scale, scale, &name, INK);
        both.paste([x, y + strip], picture);
    }
    both
}

/// The ΔE2000 at which the heat map is white.
const HOTTEST: f32 = 12.0;

/// Colours of the heat map at equal steps from 0 to [`HOTTEST`].
const HEAT: [[f32; 3]; 5] =
    [[0.0, 0.0, 0.0], [40.0, 50.0, 190.0], [215.0, 40.0, 60.0], [255.0, 205.0, 50.0], [255.0, 255.0, 255.0]];

/// How far two pictures are apart in each pixel (CIEDE2000), from black (0) over blue, red and yellow to white
/// (12 and more); `None` when they are not of one size.
pub fn heat_map(a: &Picture, b: &Picture) -> Option<Picture> {
    if (a.width, a.height) != (b.width, b.height) || a.rgb.len() != b.rgb.len() {
        return None;
    }
    let rgb = distances(&a.rgb, &b.rgb).into_iter().flat_map(heat).collect();
    Some(Picture { width: a.width, height: a.height, rgb })
}

/// A heat map above a strip that shows its scale.
pub fn with_scale(map: &Picture) -> Picture {
    let scale = scale_for(map);
    let strip = (text::HEIGHT + 4) * scale;
    let mut shown = Picture::blank(map.width, map.height + strip, PAPER);
    shown.paste([0, 0], map);
    let name = "ΔE";
    draw_text(&mut shown, scale, map.height + 2 * scale, scale, name, INK);
    let left = text::width(name, scale) + 2 * scale;
    let bar = map.width.saturating_sub(left + 3 * text::ADVANCE * scale);
    for x in 0..bar {
        let colour = heat(HOTTEST * x as f32 / bar as f32);
        shown.fill([left + x, map.height + scale], [1, strip - 2 * scale], colour);
    }
    for mark in [0_u32, 3, 6, 9, 12] {
        let x = left + (f64::from(bar) * f64::from(mark) / f64::from(HOTTEST)) as u32;
        label(&mut shown, [x, map.height + scale], scale, &mark.to_string());
    }
    shown
}

fn heat(distance: f32) -> [u8; 3] {
    let steps = (HEAT.len() - 1) as f32;
    let place = (distance / HOTTEST).clamp(0.0, 1.0) * steps;
    let from = (place as usize).min(HEAT.len() - 2);
    let share = place - from as f32;
    let colour = |at: usize| HEAT.get(at).copied().unwrap_or_default();
    let (low, high) = (colour(from), colour(from + 1));
    [0, 1, 2].map(|c: usize| {
        let [low, high] = [low, high].map(|colour| colour.get(c).copied().unwrap_or_default());
        (low + share * (high - low)).round() as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(width: u32, height: u32, value: u8) -> Picture {
        Picture { width, height, rgb: vec![value; 3 * (width * height) as usize] }
    }

    fn pixel(picture: &Picture, x: u32, y: u32) -> [u8; 3] {
        let at = 3 * (y * picture.width + x) as usize;
        [picture.rgb[at], picture.rgb[at + 1], picture.rgb[at + 2]]
    }

    #[test]
    fn a_part_is_cut_at_its_edges_and_asks_for_no_more_than_there_is() {
        let rgb = (0..4_u8).flat_map(|y| (0..6_u8).flat_map(move |x| [x, y, 0])).collect();
        let picture = Picture { width: 6, height: 4, rgb };
        let part = Part::new([0.5, 0.25, 1.0, 0.75]).unwrap();
        let cut = part.cut(&picture);
        assert_eq!((cut.width, cut.height), (3, 2));
        assert_eq!((pixel(&cut, 0, 0), pixel(&cut, 2, 1)), ([3, 1, 0], [5, 2, 0]));
        assert_eq!(Part::WHOLE.cut(&picture), picture);
        // The least part of a picture of one pixel is that pixel.
        assert_eq!(Part::new([0.9, 0.9, 1.0, 1.0]).unwrap().cut(&plain(1, 1, 7)), plain(1, 1, 7));
        // Half the width at 1000 pixels is the whole at 2000; of a photo of 1500 there is no more than that.
        let part = Part::new([0.0, 0.0, 0.5, 0.5]).unwrap();
        assert_eq!(part.whole_edge(1000, [6000.0, 4000.0]), 2000);
        assert_eq!(part.whole_edge(1000, [1500.0, 1000.0]), 1500);
        // An upright part of a lying picture is limited by its height.
        assert_eq!(Part::new([0.4, 0.0, 0.5, 1.0]).unwrap().whole_edge(400, [6000.0, 4000.0]), 600);
        for edges in
            [[0.5, 0.0, 0.5, 1.0], [0.6, 0.0, 0.5, 1.0], [-0.1, 0.0, 1.0, 1.0], [0.0, 0.0, f64::NAN, 1.0]]
        {
            assert!(Part::new(edges).unwrap_err().contains("[0.3, 0.2, 0.6, 0.5]"));
        }
    }

    #[test]
    fn the_grid_has_a_line_at_every_tenth_and_hundredths_in_a_small_part() {
        let lines = |part: Part, y: u32| {
            let mut picture = plain(1000, 400, 100);
            grid(&mut picture, part);
            // Below the labels.
            (0..1000).filter(|x| pixel(&picture, *x, y) == [196; 3]).collect::<Vec<u32>>()
        };
        let tenths: Vec<u32> = (1..10).map(|at| at * 100).collect();
        assert_eq!(lines(Part::WHOLE, 110), tenths);
        let small = Part::new([0.5, 0.5, 0.6, 0.6]).unwrap();
        assert_eq!(lines(small, 150), [200, 400, 600, 800]);
        // Labels on a ground of their own.
        let mut picture = plain(1000, 400, 100);
        grid(&mut picture, Part::WHOLE);
        assert_eq!(pixel(&picture, 102, 2), PAPER);
        assert!((102..160).any(|x| (2..20).any(|y| pixel(&picture, x, y) == INK)));
    }

    #[test]
    fn both_halves_are_the_pictures_themselves() {
        for (width, height, second) in [(60, 40, [0.0, 0.5]), (40, 60, [0.5, 0.0])] {
            let (a, b) = (plain(width, height, 10), plain(width, height, 200));
            let both = beside((&a, "a"), (&b, "b"));
            let of = |value: u8| both.rgb.chunks_exact(3).filter(|p| **p == [value; 3]).count() as u32;
            assert_eq!([of(10), of(200)], [width * height; 2]);
            // Where the second begins.
            let [x, y] = second.map(|share: f64| share);
            let probe = pixel(
                &both,
                (f64::from(both.width) * (x + 0.3)) as u32,
                (f64::from(both.height) * (y + 0.4)) as u32,
            );
            assert_eq!(probe, [200; 3], "{width}x{height}");
        }
    }

    #[test]
    fn equal_pictures_are_black_and_far_ones_white_on_the_map() {
        let mut far = plain(300, 20, 90);
        far.rgb[..3].copy_from_slice(&[255, 0, 0]);
        let map = heat_map(&plain(300, 20, 90), &far).unwrap();
        assert_eq!(map.rgb.iter().filter(|value| **value > 0).count(), 3);
        let map = with_scale(&map);
        assert_eq!(pixel(&map, 0, 0), [255; 3]);
        assert!(
            (1..300).all(|x| pixel(&map, x, 0) == [0; 3]) && (0..300).all(|x| pixel(&map, x, 19) == [0; 3])
        );
        // The scale below it.
        assert!(map.height > 20);
        let colours: std::collections::BTreeSet<_> = (0..300).map(|x| pixel(&map, x, 22)).collect();
        assert!(colours.len() > 100, "{}", colours.len());
        assert_eq!(
            [heat(0.0), heat(3.0), heat(6.0), heat(40.0)],
            [[0; 3], [40, 50, 190], [215, 40, 60], [255; 3]]
        );
        assert!(heat_map(&plain(3, 3, 0), &plain(3, 4, 0)).is_none());
    }
}
