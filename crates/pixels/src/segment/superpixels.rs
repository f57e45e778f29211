//! A picture divided into small parts of one colour each (SLIC).

use std::collections::BTreeMap;

use super::edge::around;
use super::{Feature, Plane, difference};

/// About how many there are.
const COUNT: usize = 1800;
/// How many units of Lab are worth one distance between parts: more makes them rounder.
const ROUNDNESS: f32 = 9.0;
const ROUNDS: usize = 5;

/// The parts of a picture and how they lie.
pub(super) struct Superpixels {
    pub width: usize,
    pub height: usize,
    /// Of each pixel, its part.
    pub labels: Vec<u32>,
    /// About the width of one, in pixels.
    pub side: f32,
    pub features: Vec<Feature>,
    /// In pixels.
    pub areas: Vec<f32>,
    /// Whether it touches the frame's border.
    pub touching: Vec<bool>,
    pub borders: Vec<Border>,
    /// Of each part, the others that it touches, and how much they differ.
    pub neighbours: Vec<Vec<(usize, f32)>>,
}

/// Where two parts touch.
pub(super) struct Border {
    pub parts: [usize; 2],
    /// In pixels.
    pub length: f32,
    /// How much the parts differ, in Lab.
    pub step: f32,
}

/// A cluster of pixels: mean colour and place.
#[derive(Clone, Copy, Default)]
struct Center {
    lab: [f32; 3],
    at: [f32; 2],
}

impl Superpixels {
    pub(super) fn of(plane: &Plane) -> Self {
        let Plane { width, height, .. } = *plane;
        let side = ((width * height) as f32 / COUNT as f32).sqrt().max(3.0);
        let labels = joined(plane, &clusters(plane, side), (side * side / 4.0) as usize);
        let count = labels.iter().max().map_or(0, |most| *most as usize + 1);
        let mut sums = vec![[0.0_f64; 5]; count];
        let mut touching = vec![false; count];
        let mut lengths: BTreeMap<[usize; 2], f32> = BTreeMap::new();
        for (at, label) in labels.iter().enumerate() {
            let part = *label as usize;
            let [l, a, b] = plane.lab[at].map(f64::from);
            let add = [l, a, b, l * l, 1.0];
            (0..5).for_each(|i| sums[part][i] += add[i]);
            let (x, y) = (at % width, at / width);
            touching[part] |= x == 0 || y == 0 || x + 1 == width || y + 1 == height;
            let forward = [(x + 1 < width).then_some(at + 1), (y + 1 < height).then_some(at + width)];
            for other in forward.into_iter().flatten().map(|near| labels[near] as usize) {
                if other != part {
                    *lengths.entry([part.min(other), part.max(other)]).or_default() += 1.0;
                }
            }
        }
        let feature = |[l, a, b, squares, area]: &[f64; 5]| {
            let [l, a, b] = [l / area, a / area, b / area];
            let spread = (squares / area - l * l).max(0.0).sqrt();
            [l as f32, a as f32, b as f32, spread as f32]
        };
        let features: Vec<Feature> = sums.iter().map(feature).collect();
        let mut neighbours = vec![Vec::new(); count];
        let mut borders = Vec::new();
        for ([a, b], length) in lengths {
            let step = difference(&features[a], &features[b]);
            neighbours[a].push((b, step));
            neighbours[b].push((a, step));
            borders.push(Border { parts: [a, b], length, step });
        }
        let areas = sums.iter().map(|sum| sum[4] as f32).collect();
        Self { width, height, labels, side, features, areas, touching, borders, neighbours }
    }
}

/// Each pixel with the nearest of the centers around it, in colour and place.
fn clusters(plane: &Plane, side: f32) -> Vec<u32> {
    let Plane { width, height, .. } = *plane;
    let [columns, rows] = [width, height].map(|size| ((size as f32 / side).round() as usize).max(1));
    let cell = |x: usize, y: usize| [x * columns / width, y * rows / height];
    let mut centers: Vec<Center> = (0..rows * columns)
        .map(|at| {
            let x = ((at % columns) as f32 + 0.5) * width as f32 / columns as f32;
            let y = ((at / columns) as f32 + 0.5) * height as f32 / rows as f32;
            let pixel = (y as usize).min(height - 1) * width + (x as usize).min(width - 1);
            Center { lab: plane.lab[pixel], at: [x, y] }
        })
        .collect();
    let pull = (ROUNDNESS / side) * (ROUNDNESS / side);
    let mut labels = vec![0_u32; width * height];
    for _ in 0..ROUNDS {
        let mut sums = vec![[0.0_f32; 6]; centers.len()];
        for y in 0..height {
            for x in 0..width {
                let [column, row] = cell(x, y);
                let lab = &plane.lab[y * width + x];
                let (mut best, mut least) = (0, f32::MAX);
                for r in row.saturating_sub(1)..=(row + 1).min(rows - 1) {
                    for c in column.saturating_sub(1)..=(column + 1).min(columns - 1) {
                        let center = &centers[r * columns + c];
                        let [dl, da, db] = [0, 1, 2].map(|i| lab[i] - center.lab[i]);
                        let [dx, dy] = [x as f32 - center.at[0], y as f32 - center.at[1]];
                        let apart = dl * dl + da * da + db * db + pull * (dx * dx + dy * dy);
                        if apart < least {
                            (best, least) = (r * columns + c, apart);
                        }
                    }
                }
                labels[y * width + x] = best as u32;
                let add = [lab[0], lab[1], lab[2], x as f32, y as f32, 1.0];
                (0..6).for_each(|i| sums[best][i] += add[i]);
            }
        }
        for (center, [l, a, b, x, y, count]) in centers.iter_mut().zip(sums) {
            if count > 0.0 {
                *center = Center { lab: [l / count, a / count, b / count], at: [x / count, y / count] };
            }
        }
    }
    labels
}

/// Connected parts, numbered from 0; one smaller than `least` joins what it touches that is most like it.
fn joined(plane: &Plane, clusters: &[u32], least: usize) -> Vec<u32> {
    let Plane { width, height, .. } = *plane;
    let none = u32::MAX;
    let mut labels = vec![none; clusters.len()];
    let mut count = 0;
    for start in 0..clusters.len() {
        if labels[start] != none {
            continue;
        }
        let (mut piece, mut next) = (vec![start], 0);
        labels[start] = count;
        let mut beside: Vec<usize> = Vec::new();
        while let Some(at) = piece.get(next).copied() {
            next += 1;
            for near in around(at, width, height) {
                if labels[near] == none && clusters[near] == clusters[start] {
                    labels[near] = count;
                    piece.push(near);
                } else if labels[near] != none && labels[near] != count {
                    beside.push(near);
                }
            }
        }
        let here = plane.lab[start];
        let apart = |at: &usize| (0..3).map(|i| (plane.lab[*at][i] - here[i]).abs()).sum::<f32>();
        let home = beside.iter().min_by(|a, b| apart(a).total_cmp(&apart(b)));
        match home {
            Some(home) if piece.len() < least => {
                let home = labels[*home];
                piece.iter().for_each(|at| labels[*at] = home);
            }
            _ => count += 1,
        }
    }
    labels
}
