//! The outline of a region as few straight lines: marching squares on the distance from its edge, and Douglas-Peucker.
#![allow(clippy::indexing_slicing, reason = "every index is a pixel's own")]

use std::collections::BTreeMap;

use crate::segment::Region;

/// How far a region that reaches the frame's border is continued beyond it, as a share of the shorter side, so that a soft
/// edge lies outside of the picture.
const BEYOND: f64 = 0.05;

/// Corners in 0…1 of the picture; a little outside where the region reaches its border.
pub type Ring = Vec<[f64; 2]>;

/// What encloses a region.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outline {
    /// Around its pieces, the largest first.
    pub pieces: Vec<Ring>,
    /// Around what is left out of them.
    pub holes: Vec<Ring>,
    /// Around pieces inside of holes.
    pub islands: Vec<Ring>,
}

impl Outline {
    /// The outline of a region, moved outwards by `grow`, a share of the picture's shorter side. A ring has at most `most`
    /// corners; rings around less than the share `least` of the picture are dropped.
    pub fn of(region: &Region, grow: f64, most: usize, least: f64) -> Self {
        let Region { width, height, .. } = *region;
        let short = width.min(height) as f64;
        let (signed, pad) = distances(region, (BEYOND * short).ceil() as usize + 2);
        let level = (grow * short) as f32;
        let mut rings: Vec<(f64, Ring)> = rings(&signed, width + 2 * pad, height + 2 * pad, level)
            .into_iter()
            .map(|ring| (area(&ring), ring))
            .filter(|(area, _)| area.abs() >= (least * (width * height) as f64).max(4.0))
            .collect();
        rings.sort_by(|(a, _), (b, _)| b.abs().total_cmp(&a.abs()));
        let place = |ring: &Ring| -> Ring {
            let mut tolerance = 0.8;
            let mut simple = simplified(ring, tolerance);
            while simple.len() > most {
                tolerance *= 1.3;
                simple = simplified(ring, tolerance);
            }
            let share = |at: f64, size: usize| (at - pad as f64 + 0.5) / size as f64;
            let rounded = |value: f64| (value * 1e4).round() / 1e4;
            simple.iter().map(|[x, y]| [rounded(share(*x, width)), rounded(share(*y, height))]).collect()
        };
        let mut outline = Self::default();
        let around: Vec<Ring> =
            rings.iter().filter(|(area, _)| *area < 0.0).map(|(_, ring)| ring.clone()).collect();
        for (area, ring) in &rings {
            let simple = place(ring);
            if simple.len() < 3 {
                continue;
            }
            match *area < 0.0 {
                true => outline.holes.push(simple),
                false if around.iter().any(|hole| encloses(hole, ring[0])) => outline.islands.push(simple),
                false => outline.pieces.push(simple),
            }
        }
        outline
    }
}

/// The distance of each pixel's middle from the region's edge in pixels, positive outside, in a frame with a margin
/// into which the region is continued; and the margin.
fn distances(region: &Region, pad: usize) -> (Vec<f32>, usize) {
    let Region { width, height, .. } = *region;
    let (wide, high) = (width + 2 * pad, height + 2 * pad);
    let inside = |at: usize| {
        let (x, y) = (at % wide, at / wide);
        let edge = x == 0 || y == 0 || x + 1 == wide || y + 1 == high;
        let [x, y] = [(x, width), (y, height)].map(|(at, size)| at.saturating_sub(pad).min(size - 1));
        !edge && region.inside[y * width + x]
    };
    let mask: Vec<bool> = (0..wide * high).map(inside).collect();
    let to = |value: bool| squared(&mask, value, wide, high);
    let (outer, inner) = (to(true), to(false));
    let steps: Vec<f32> = outer
        .iter()
        .zip(&inner)
        // Half a pixel lies between a pixel's middle and the edge.
        .map(|(outer, inner)| if *outer > 0.0 { outer.sqrt() - 0.5 } else { 0.5 - inner.sqrt() })
        .collect();
    // A slanted edge of whole pixels is a staircase.
    let mut signed = steps.clone();
    for y in 1..high - 1 {
        for x in 1..wide - 1 {
            let at = y * wide + x;
            let row = |at: usize| steps[at - 1] + 2.0 * steps[at] + steps[at + 1];
            signed[at] = (row(at - wide) + 2.0 * row(at) + row(at + wide)) / 16.0;
        }
    }
    (signed, pad)
}

/// The squared distance of each pixel from the nearest one with that value: Felzenszwalb and Huttenlocher, "Distance
/// transforms of sampled functions", Theory of Computing 8 (2012).
fn squared(mask: &[bool], value: bool, width: usize, height: usize) -> Vec<f32> {
    let mut far: Vec<f32> = mask.iter().map(|at| if *at == value { 0.0 } else { 1e12 }).collect();
    let mut line = Vec::new();
    for x in 0..width {
        line.clear();
        line.extend((0..height).map(|y| far[y * width + x]));
        for (y, found) in envelope(&line).into_iter().enumerate() {
            far[y * width + x] = found;
        }
    }
    for row in far.chunks_exact_mut(width) {
        let found = envelope(row);
        row.copy_from_slice(&found);
    }
    far
}

/// The lower envelope of parabolas that stand on the values of a line.
fn envelope(values: &[f32]) -> Vec<f32> {
    let mut feet: Vec<usize> = Vec::with_capacity(values.len());
    let mut begins: Vec<f32> = Vec::with_capacity(values.len());
    for (at, value) in values.iter().enumerate() {
        let meets = |foot: usize| {
            let (a, b) = (at as f32, foot as f32);
            ((value - values[foot]) / (a - b) + a + b) / 2.0
        };
        let mut begin = f32::NEG_INFINITY;
        while let (Some(foot), Some(last)) = (feet.last(), begins.last()) {
            begin = meets(*foot);
            if begin > *last {
                break;
            }
            feet.pop();
            begins.pop();
            begin = f32::NEG_INFINITY;
        }
        feet.push(at);
        begins.push(begin);
    }
    let mut which = 0;
    (0..values.len())
        .map(|at| {
            while begins.get(which + 1).is_some_and(|begin| *begin < at as f32) {
                which += 1;
            }
            let foot = feet[which];
            let apart = at as f32 - foot as f32;
            apart * apart + values[foot]
        })
        .collect()
}

/// The closed lines of that level, with less than it on the same side everywhere: `area` is positive around a piece and
/// negative around a hole.
fn rings(values: &[f32], width: usize, height: usize, level: f32) -> Vec<Ring> {
    // An end of a segment lies on a side between two pixels: the first one's index, and whether the side goes down.
    type Side = (usize, bool);
    let mut follows: BTreeMap<Side, Side> = BTreeMap::new();
    for y in 0..height - 1 {
        for x in 0..width - 1 {
            let at = y * width + x;
            let corners = [at, at + 1, at + width + 1, at + width];
            let inside = corners.map(|corner| values[corner] < level);
            let sides: [Side; 4] = [(at, false), (at + 1, true), (at + width, false), (at, true)];
            // Walking round the square, the line comes in where it gets inside, and goes out where it leaves.
            let enters: Vec<usize> = (0..4).filter(|i| !inside[*i] && inside[(i + 1) % 4]).collect();
            for enter in enters {
                let leave =
                    (1..4).map(|step| (enter + step) % 4).find(|i| inside[*i] && !inside[(i + 1) % 4]);
                if let Some(leave) = leave {
                    follows.insert(sides[leave], sides[enter]);
                }
            }
        }
    }
    let point = |(at, down): Side| {
        let next = if down { at + width } else { at + 1 };
        let share = f64::from((level - values[at]) / (values[next] - values[at]));
        let (x, y) = ((at % width) as f64, (at / width) as f64);
        if down { [x, y + share] } else { [x + share, y] }
    };
    let mut rings = Vec::new();
    while let Some((start, mut next)) = follows.pop_first() {
        let mut ring = vec![point(start)];
        while next != start {
            ring.push(point(next));
            match follows.remove(&next) {
                Some(after) => next = after,
                None => break,
            }
        }
        rings.push(ring);
    }
    rings
}

/// In square pixels: positive around a piece, negative around a hole.
fn area(ring: &Ring) -> f64 {
    let turned = ring.iter().zip(ring.iter().cycle().skip(1));
    0.5 * turned.map(|([ax, ay], [bx, by])| ax * by - bx * ay).sum::<f64>()
}

fn encloses(ring: &Ring, [x, y]: [f64; 2]) -> bool {
    let sides = ring.iter().zip(ring.iter().cycle().skip(1));
    sides
        .filter(|([ax, ay], [bx, by])| (*ay > y) != (*by > y) && x < (bx - ax) * (y - ay) / (by - ay) + ax)
        .count()
        % 2
        == 1
}

/// A ring with the corners left out that lie within `tolerance` of the line without them (Douglas-Peucker).
fn simplified(ring: &Ring, tolerance: f64) -> Ring {
    let apart = |[ax, ay]: [f64; 2], [bx, by]: [f64; 2]| (ax - bx).hypot(ay - by);
    // Its two halves begin at a corner and at the one farthest from it.
    let farthest =
        (0..ring.len()).max_by(|a, b| apart(ring[0], ring[*a]).total_cmp(&apart(ring[0], ring[*b])));
    let Some(half) = farthest else { return Vec::new() };
    let mut line = ring.clone();
    line.push(ring[0]);
    let mut kept = vec![false; line.len()];
    kept[0] = true;
    kept[half] = true;
    let mut open = vec![(0, half), (half, ring.len())];
    while let Some((from, to)) = open.pop() {
        let ([ax, ay], [bx, by]) = (line[from], line[to]);
        let length = (bx - ax).hypot(by - ay);
        let off = |[x, y]: [f64; 2]| match length > 0.0 {
            true => ((bx - ax) * (y - ay) - (by - ay) * (x - ax)).abs() / length,
            false => (x - ax).hypot(y - ay),
        };
        let most = (from + 1..to).map(|at| (off(line[at]), at)).max_by(|(a, _), (b, _)| a.total_cmp(b));
        if let Some((_, at)) = most.filter(|(off, _)| *off > tolerance) {
            kept[at] = true;
            open.extend([(from, at), (at, to)]);
        }
    }
    ring.iter().zip(&kept).filter(|(_, kept)| **kept).map(|(at, _)| *at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(width: usize, height: usize, inside: impl Fn(f64, f64) -> bool) -> Region {
        let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (x as f64 + 0.5, y as f64 + 0.5)));
        Region { width, height, inside: pixels.map(|(x, y)| inside(x, y)).collect() }
    }

    fn within(outline: &Outline, at: [f64; 2]) -> bool {
        let any = |rings: &[Ring]| rings.iter().any(|ring| encloses(ring, at));
        any(&outline.pieces) && !any(&outline.holes) || any(&outline.islands)
    }

    fn share(outline: &Outline) -> f64 {
        let count = (0..10_000).filter(|i| {
            within(outline, [(f64::from(i % 100) + 0.5) / 100.0, (f64::from(i / 100) + 0.5) / 100.0])
        });
        count.count() as f64 / 10_000.0
    }

    #[test]
    fn a_disc_becomes_few_corners_of_the_same_area_and_grows() {
        let disc = region(200, 200, |x, y| (x - 100.0).hypot(y - 100.0) < 50.0);
        let plain = Outline::of(&disc, 0.0, 200, 0.001);
        assert!(plain.pieces.len() == 1 && plain.holes.is_empty());
        assert!((8..60).contains(&plain.pieces[0].len()), "{}", plain.pieces[0].len());
        assert!((share(&plain) - 0.196).abs() < 0.004, "{}", share(&plain));
        // Five hundredths of 200 px are 10 px.
        assert!((share(&Outline::of(&disc, 0.05, 200, 0.001)) - 0.283).abs() < 0.005);
        assert!((share(&Outline::of(&disc, -0.05, 200, 0.001)) - 0.126).abs() < 0.005);
        assert!(Outline::of(&disc, 0.0, 12, 0.001).pieces[0].len() <= 12);
    }

    #[test]
    fn holes_islands_and_pieces_are_told_apart() {
        let ring = region(200, 200, |x, y| {
            let far = (x - 80.0).hypot(y - 100.0);
            far < 15.0 || (30.0..60.0).contains(&far) || (x - 180.0).hypot(y - 100.0) < 12.0
        });
        let outline = Outline::of(&ring, 0.0, 100, 0.001);
        assert_eq!([outline.pieces.len(), outline.holes.len(), outline.islands.len()], [2, 1, 1]);
        for (at, inside) in [
            ([0.4, 0.5], true),
            ([0.5, 0.5], false),
            ([0.62, 0.5], true),
            ([0.9, 0.5], true),
            ([0.75, 0.5], false),
        ] {
            assert_eq!(within(&outline, at), inside, "{at:?}");
        }
        let coarse = Outline::of(&ring, 0.0, 100, 0.03);
        assert_eq!([coarse.pieces.len(), coarse.holes.len(), coarse.islands.len()], [1, 1, 0]);
    }

    #[test]
    fn what_reaches_the_border_goes_beyond_it() {
        let half = region(120, 80, |x, _| x < 60.0);
        let outline = Outline::of(&half, 0.0, 100, 0.001);
        let ring = &outline.pieces[0];
        assert!(ring.iter().any(|[x, y]| *x < -0.02 && *y < -0.02) && ring.iter().any(|[_, y]| *y > 1.02));
        assert!(ring.len() <= 8 && ring.iter().all(|[x, _]| *x < 0.51));
    }
}
