//! A rough boundary moved to the strongest edges close by.

use super::Plane;

/// Steps of contrast that are told apart, of half a unit of Lab each.
const STEPS: usize = 160;

/// Decides anew for each pixel within `reach` of the boundary: what is certain on both sides grows towards the other,
/// over weak contrast first, until they meet where it is strongest (a watershed).
pub(super) fn settle(plane: &Plane, rough: &[bool], reach: usize) -> Vec<bool> {
    let (width, height) = (plane.width, plane.height);
    let mut open = vec![false; width * height];
    // The band: grown from the boundary, ring by ring.
    let mut ring: Vec<usize> = (0..width * height)
        .filter(|at| around(*at, width, height).any(|near| rough[near] != rough[*at]))
        .collect();
    ring.iter().for_each(|at| open[*at] = true);
    for _ in 1..reach {
        let mut next = Vec::new();
        for at in &ring {
            for near in around(*at, width, height) {
                if !open[near] {
                    open[near] = true;
                    next.push(near);
                }
            }
        }
        ring = next;
    }
    let mut label: Vec<Option<bool>> =
        rough.iter().zip(&open).map(|(inside, open)| (!open).then_some(*inside)).collect();
    // A thing too thin to have certain pixels keeps what it had.
    keep_thin(&mut label, rough, width, height);
    let mut buckets: Vec<Vec<(usize, bool)>> = vec![Vec::new(); STEPS];
    let push =
        |buckets: &mut Vec<Vec<(usize, bool)>>, label: &[Option<bool>], at: usize, inside, least: usize| {
            for near in around(at, width, height).filter(|near| label[*near].is_none()) {
                let step = (contrast(plane, near) as usize).clamp(least, STEPS - 1);
                buckets[step].push((near, inside));
            }
        };
    for at in 0..width * height {
        if let Some(inside) = label[at] {
            push(&mut buckets, &label, at, inside, 0);
        }
    }
    for step in 0..STEPS {
        let mut next = 0;
        while let Some((at, inside)) = buckets[step].get(next).copied() {
            next += 1;
            if label[at].is_none() {
                label[at] = Some(inside);
                push(&mut buckets, &label, at, inside, step);
            }
        }
    }
    label.iter().zip(rough).map(|(label, rough)| label.unwrap_or(*rough)).collect()
}

/// Where a band swallowed a whole piece, the middle of the piece is certain: pixels all of whose neighbours agree, as far
/// as no certain one is near.
fn keep_thin(label: &mut [Option<bool>], rough: &[bool], width: usize, height: usize) {
    let mut seen = vec![false; rough.len()];
    for start in 0..rough.len() {
        if seen[start] || label[start].is_some() {
            continue;
        }
        let value = rough[start];
        let (mut piece, mut next, mut certain) = (vec![start], 0, false);
        seen[start] = true;
        while let Some(at) = piece.get(next).copied() {
            next += 1;
            for near in around(at, width, height).filter(|near| rough[*near] == value) {
                certain |= label[near].is_some();
                if label[near].is_none() && !seen[near] {
                    seen[near] = true;
                    piece.push(near);
                }
            }
        }
        if !certain {
            piece.iter().for_each(|at| label[*at] = Some(value));
        }
    }
}

/// The contrast at a pixel, in half units of Lab: the greatest difference across it.
fn contrast(plane: &Plane, at: usize) -> f32 {
    let (x, y) = (at % plane.width, at / plane.width);
    let row = y * plane.width;
    let [left, right] = [row + x.saturating_sub(1), row + (x + 1).min(plane.width - 1)];
    let [up, down] = [y.saturating_sub(1) * plane.width + x, (y + 1).min(plane.height - 1) * plane.width + x];
    let apart = |a: usize, b: usize| {
        plane.lab[a].iter().zip(&plane.lab[b]).map(|(a, b)| (a - b) * (a - b)).sum::<f32>()
    };
    2.0 * (apart(left, right) + apart(up, down)).sqrt()
}

/// The four pixels beside one.
pub(super) fn around(at: usize, width: usize, height: usize) -> impl Iterator<Item = usize> {
    let (x, y) = (at % width, at / width);
    [
        (x > 0).then(|| at - 1),
        (x + 1 < width).then_some(at + 1),
        (y > 0).then(|| at - width),
        (y + 1 < height).then_some(at + width),
    ]
    .into_iter()
    .flatten()
}
