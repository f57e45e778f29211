//! The region of a picture that a few points are in: a thing, told from what is around it.
//!
//! The picture is divided into superpixels. A minimum cut through their adjacency graph separates those that are near
//! the inside points from those near the outside points and the frame's border, near by geodesic distance (colour
//! differences summed along a path) and alike by colour. At the end the boundary moves to the strongest edges close
//! by. A cut on single pixels costs ten times as much and follows noise; a geodesic distance alone leaks through
//! every gap in an edge.
//!
//! Superpixels: Achanta et al., "SLIC superpixels", PAMI 34 (2012). Cut with alternating colour models: Rother, Kolmogorov
//! and Blake, "GrabCut", SIGGRAPH 2004. Nothing is random, and no function is called whose last bit differs
//! between C libraries.
#![allow(clippy::indexing_slicing, reason = "every index is a pixel's or a superpixel's own")]

mod cut;
mod edge;
mod superpixels;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Picture;
use crate::lab::Lab;
use cut::Cut;
use superpixels::Superpixels;

/// The longest side on which superpixels are made.
const WORKED: usize = 512;

/// A region of a picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Whether each pixel is inside, row by row.
    pub inside: Vec<bool>,
}

impl Region {
    /// The share of the picture inside, 0…1.
    pub fn covered(&self) -> f64 {
        self.inside.iter().filter(|inside| **inside).count() as f64 / self.inside.len().max(1) as f64
    }
}

/// Four features of a place: L*, a*, b*, and how much L* varies around it.
type Feature = [f32; 4];

/// The region around `inside` that leaves out `outside`; points are [x, y] in 0…1 of the picture. Empty without an inside
/// point or a picture.
pub fn segment(picture: &Picture, inside: &[[f64; 2]], outside: &[[f64; 2]]) -> Region {
    let (width, height) = (picture.width as usize, picture.height as usize);
    let empty = || Region { width, height, inside: vec![false; width * height] };
    if inside.is_empty() || width < 8 || height < 8 || picture.rgb.len() != width * height * 3 {
        return empty();
    }
    let factor = width.max(height).div_ceil(WORKED);
    let small = Plane::of(picture, factor);
    let parts = Superpixels::of(&small);
    let label = |[x, y]: &[f64; 2]| parts.labels[small.at([*x, *y])] as usize;
    let [inside_parts, outside_parts] =
        [inside, outside].map(|points| points.iter().map(label).collect::<Vec<_>>());
    let chosen = choose(&parts, &inside_parts, &outside_parts);
    let coarse: Vec<bool> = parts.labels.iter().map(|label| chosen[*label as usize]).collect();
    let full = if factor == 1 { small } else { Plane::of(picture, 1) };
    let scale = |x: usize, y: usize| {
        coarse[(y / factor).min(parts.height - 1) * parts.width + (x / factor).min(parts.width - 1)]
    };
    let rough: Vec<bool> =
        (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).map(|(x, y)| scale(x, y)).collect();
    let mut found = Region { width, height, inside: edge::settle(&full, &rough, 2 + 2 * factor) };
    tidy(&mut found, inside, outside);
    found
}

/// A picture in Lab, row by row, slightly smoothed.
pub(crate) struct Plane {
    pub width: usize,
    pub height: usize,
    pub lab: Vec<[f32; 3]>,
}

impl Plane {
    /// The picture, each side divided by `factor`.
    fn of(picture: &Picture, factor: usize) -> Self {
        let full = picture.width as usize;
        let (width, height) = ((full / factor).max(1), (picture.height as usize / factor).max(1));
        let mut lab = Vec::with_capacity(width * height);
        let count = (factor * factor) as u32;
        for y in 0..height {
            for x in 0..width {
                let mut sum = [0_u32; 3];
                for row in y * factor..(y + 1) * factor {
                    let start = (row * full + x * factor) * 3;
                    for pixel in picture.rgb[start..start + 3 * factor].chunks_exact(3) {
                        (0..3).for_each(|c| sum[c] += u32::from(pixel[c]));
                    }
                }
                let colour = Lab::from_srgb(sum.map(|sum| ((sum + count / 2) / count) as u8));
                lab.push([colour.l, colour.a, colour.b]);
            }
        }
        let mut plane = Self { width, height, lab };
        plane.smooth();
        plane
    }

    /// One binomial pass, 1 2 1 across and down.
    fn smooth(&mut self) {
        let (width, height) = (self.width, self.height);
        let mix =
            |a: [f32; 3], b: [f32; 3], c: [f32; 3]| [0, 1, 2].map(|i| 0.25 * (a[i] + c[i]) + 0.5 * b[i]);
        let mut across = self.lab.clone();
        for y in 0..height {
            let row = &self.lab[y * width..(y + 1) * width];
            for x in 0..width {
                across[y * width + x] = mix(row[x.saturating_sub(1)], row[x], row[(x + 1).min(width - 1)]);
            }
        }
        for y in 0..height {
            let [above, below] = [y.saturating_sub(1), (y + 1).min(height - 1)];
            for x in 0..width {
                self.lab[y * width + x] =
                    mix(across[above * width + x], across[y * width + x], across[below * width + x]);
            }
        }
    }

    /// The index of the pixel at a point in 0…1.
    fn at(&self, [x, y]: [f64; 2]) -> usize {
        let place = |share: f64, size: usize| ((share * size as f64).max(0.0) as usize).min(size - 1);
        place(y, self.height) * self.width + place(x, self.width)
    }
}

/// Which superpixels are inside.
fn choose(parts: &Superpixels, inside: &[usize], outside: &[usize]) -> Vec<bool> {
    let count = parts.features.len();
    let mut steps: Vec<f32> = parts.borders.iter().map(|border| border.step).collect();
    steps.sort_by(f32::total_cmp);
    // What is usual between neighbours; less than one unit nobody sees.
    let usual = steps.get(steps.len() / 2).copied().unwrap_or(1.0).max(1.0);
    let near = geodesic(parts, usual, inside.iter().map(|part| (*part, 0.0)));
    let mut reached: Vec<f32> =
        (0..count).filter(|part| parts.touching[*part]).map(|part| near[part]).collect();
    reached.sort_by(f32::total_cmp);
    let typical = reached.get(reached.len() / 4).copied().unwrap_or(0.0);
    // The frame's border is outside, the more so the farther it is from the inside points.
    let border = (0..count)
        .filter(|part| parts.touching[*part])
        .map(|part| (part, (typical - near[part]).max(0.0) * BORDER));
    let far = geodesic(parts, usual, outside.iter().map(|part| (*part, 0.0)).chain(border));
    let mut chosen: Vec<bool> = (0..count).map(|part| near[part] < far[part]).collect();
    let likeness = Likeness::of(parts);
    for round in 0..ROUNDS {
        let colour = likeness.lean(parts, &chosen, inside, outside);
        let mut cut = Cut::new(count);
        for part in 0..count {
            let place = (near[part] - far[part]) / (near[part] + far[part] + 1e-3);
            let trust = if round == 0 { 2.0 * PLACE } else { PLACE };
            cut.lean(part, parts.areas[part] * (COLOUR * colour[part] + trust * place));
        }
        inside.iter().for_each(|part| cut.lean(*part, -1e6));
        outside.iter().for_each(|part| cut.lean(*part, 1e6));
        for border in &parts.borders {
            let ratio = border.step / (CONTRAST * usual);
            cut.join(border.parts, SMOOTH * border.length * parts.side / (1.0 + ratio * ratio));
        }
        let next = cut.minimum();
        if next == chosen {
            break;
        }
        chosen = next;
    }
    connected(parts, &chosen, inside)
}

/// How much the border between neighbours weighs, and what is alike in colour, and what is near.
const SMOOTH: f32 = 1.2;
const COLOUR: f32 = 1.0;
const PLACE: f32 = 0.7;
/// How often the cut is made again with the colours that it found, at most.
const ROUNDS: usize = 5;
/// How many usual steps between neighbours are an edge.
const CONTRAST: f32 = 1.6;
/// How much of its nearness to the inside points keeps the frame's border from being outside.
const BORDER: f32 = 0.5;

/// The distance of every superpixel from the nearest source, which starts at its own distance.
fn geodesic(parts: &Superpixels, usual: f32, sources: impl Iterator<Item = (usize, f32)>) -> Vec<f32> {
    let mut distance = vec![f32::MAX; parts.features.len()];
    let mut queue = BinaryHeap::new();
    for (part, start) in sources {
        if start < distance[part] {
            distance[part] = start;
            // Bits of positive numbers are in the order of the numbers.
            queue.push(Reverse((start.to_bits(), part)));
        }
    }
    while let Some(Reverse((bits, part))) = queue.pop() {
        let here = f32::from_bits(bits);
        if here > distance[part] {
            continue;
        }
        for (next, step) in &parts.neighbours[part] {
            // Small steps, as of a gradient or noise, count less than their sum.
            let there = here + step * step / (step + usual) + 0.03 * usual;
            if there < distance[*next] {
                distance[*next] = there;
                queue.push(Reverse((there.to_bits(), *next)));
            }
        }
    }
    distance
}

/// How alike superpixels are, pair by pair.
struct Likeness(Vec<f32>);

impl Likeness {
    fn of(parts: &Superpixels) -> Self {
        let count = parts.features.len();
        let mut alike = vec![1.0; count * count];
        for a in 0..count {
            for b in 0..a {
                let step = difference(&parts.features[a], &parts.features[b]);
                // A Student kernel: no exponential, and far colours still count a little.
                let k = 1.0 / (1.0 + step * step / (KERNEL * KERNEL));
                let k = k * k;
                alike[a * count + b] = k;
                alike[b * count + a] = k;
            }
        }
        Self(alike)
    }

    /// For every superpixel, -1 where only what is inside looks like it, 1 where only what is outside does.
    fn lean(&self, parts: &Superpixels, chosen: &[bool], inside: &[usize], outside: &[usize]) -> Vec<f32> {
        let count = chosen.len();
        let total: f32 = parts.areas.iter().sum();
        let mut weight: Vec<[f32; 2]> = chosen
            .iter()
            .zip(&parts.areas)
            .map(|(chosen, area)| if *chosen { [*area, 0.0] } else { [0.0, *area] })
            .collect();
        // What was pointed at counts for more than its size.
        inside.iter().for_each(|part| weight[*part] = [weight[*part][0] + POINTED * total, 0.0]);
        outside.iter().for_each(|part| weight[*part] = [0.0, weight[*part][1] + POINTED * total]);
        let sums = weight.iter().fold([1.0_f32; 2], |sum, w| [sum[0] + w[0], sum[1] + w[1]]);
        (0..count)
            .map(|part| {
                let row = &self.0[part * count..(part + 1) * count];
                let seen = row
                    .iter()
                    .zip(&weight)
                    .fold([0.0; 2], |s: [f32; 2], (k, w)| [s[0] + k * w[0], s[1] + k * w[1]]);
                let [inner, outer] = [seen[0] / sums[0], seen[1] / sums[1]];
                // What looks like neither is more likely outside.
                (outer - inner + UNKNOWN) / (outer + inner + UNKNOWN)
            })
            .collect()
    }
}

/// The difference in Lab at which two parts are a quarter alike.
const KERNEL: f32 = 7.0;
/// The share of the picture that a part counts for if a point lies in it.
const POINTED: f32 = 0.01;
/// How alike something has to be to what is inside, at least.
const UNKNOWN: f32 = 0.02;

fn difference(a: &Feature, b: &Feature) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f32>().sqrt()
}

/// What of the chosen is connected with an inside point.
fn connected(parts: &Superpixels, chosen: &[bool], inside: &[usize]) -> Vec<bool> {
    let mut kept = vec![false; chosen.len()];
    let mut open = inside.to_vec();
    while let Some(part) = open.pop() {
        if !kept[part] {
            kept[part] = true;
            open.extend(parts.neighbours[part].iter().map(|(next, _)| *next).filter(|next| chosen[*next]));
        }
    }
    kept
}

/// The least share of the picture that is a hole or a piece of its own.
const LEAST: f64 = 0.0008;

/// Fills small holes and drops small pieces, unless a point lies in them.
fn tidy(region: &mut Region, inside: &[[f64; 2]], outside: &[[f64; 2]]) {
    let Region { width, height, .. } = *region;
    let least = (LEAST * (width * height) as f64) as usize;
    let place = |[x, y]: &[f64; 2]| {
        let at = |share: f64, size: usize| ((share * size as f64).max(0.0) as usize).min(size - 1);
        at(*y, height) * width + at(*x, width)
    };
    let pointed: Vec<usize> = inside.iter().chain(outside).map(place).collect();
    let mut seen = vec![false; width * height];
    for start in 0..width * height {
        if seen[start] {
            continue;
        }
        let value = region.inside[start];
        let (mut piece, mut next) = (vec![start], 0);
        seen[start] = true;
        while let Some(at) = piece.get(next).copied() {
            next += 1;
            let (x, y) = (at % width, at / width);
            let around = [
                (x > 0).then(|| at - 1),
                (x + 1 < width).then_some(at + 1),
                (y > 0).then(|| at - width),
                (y + 1 < height).then_some(at + width),
            ];
            for near in around.into_iter().flatten() {
                if !seen[near] && region.inside[near] == value {
                    seen[near] = true;
                    piece.push(near);
                }
            }
        }
        if piece.len() < least && !pointed.iter().any(|at| piece.contains(at)) {
            piece.iter().for_each(|at| region.inside[*at] = !value);
        }
    }
}
