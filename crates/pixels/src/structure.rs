//! What depends on where pixels lie: blocks, fine detail, noise, and the edges against the centre.

use crate::moments::Moments;

/// A block of this many pixels a side is what local contrast and noise are measured in.
const BLOCK: usize = 16;

/// The picture cut into whole blocks; a smaller picture has none.
#[derive(Clone, Debug)]
pub struct Blocks(Vec<Block>);

/// One block: its top left corner, and mean and standard deviation of L*.
#[derive(Clone, Copy, Debug)]
struct Block {
    left: usize,
    top: usize,
    mean: f64,
    deviation: f64,
}

impl Blocks {
    /// Of L*, row by row.
    pub fn of(lightness: &[f32], width: usize, height: usize) -> Self {
        let mut blocks = Vec::with_capacity((width / BLOCK) * (height / BLOCK));
        for top in (0..(height / BLOCK) * BLOCK).step_by(BLOCK) {
            for left in (0..(width / BLOCK) * BLOCK).step_by(BLOCK) {
                let mut block = Moments::default();
                for row in rows(lightness, width, left, top) {
                    block.add_all(row);
                }
                let (mean, deviation) = (block.mean(), block.deviation());
                blocks.push(Block { left, top, mean, deviation });
            }
        }
        Self(blocks)
    }

    /// The mean of the blocks' standard deviations; 0 of none.
    pub fn mean_deviation(&self) -> f64 {
        self.0.iter().map(|block| block.deviation).sum::<f64>() / self.0.len().max(1) as f64
    }

    /// The median absolute diagonal Haar coefficient over 0.6745 (Donoho and Johnstone 1994), on the quarter
    /// of the unclipped blocks that is flattest: there, what is left of the finest diagonal band is noise.
    pub fn noise(&self, lightness: &[f32], width: usize) -> f64 {
        let mut flat: Vec<_> = self.0.iter().filter(|block| (2.0..98.0).contains(&block.mean)).collect();
        flat.sort_by(|one, two| one.deviation.total_cmp(&two.deviation));
        flat.truncate(flat.len().div_ceil(4));
        let mut diagonal = Vec::with_capacity(flat.len() * BLOCK * BLOCK / 4);
        for block in &flat {
            let mut block = rows(lightness, width, block.left, block.top);
            while let (Some(upper), Some(lower)) = (block.next(), block.next()) {
                for (up, down) in upper.chunks_exact(2).zip(lower.chunks_exact(2)) {
                    if let ([a, b], [c, d]) = (up, down) {
                        diagonal.push(((a - b - c + d) / 2.0).abs());
                    }
                }
            }
        }
        if diagonal.is_empty() {
            return 0.0;
        }
        let middle = diagonal.len() / 2;
        let (_, median, _) = diagonal.select_nth_unstable_by(middle, f32::total_cmp);
        f64::from(*median) / 0.6745
    }
}

/// The rows of one block.
fn rows(lightness: &[f32], width: usize, left: usize, top: usize) -> impl Iterator<Item = &[f32]> {
    (top..top + BLOCK).filter_map(move |y| lightness.get(y * width + left..y * width + left + BLOCK))
}

/// The standard deviation of the four-neighbour Laplacian of L*, the outermost pixels left out.
pub fn laplacian_deviation(lightness: &[f32], width: usize, height: usize) -> f64 {
    if width < 3 || height < 3 {
        return 0.0;
    }
    let mut laplacian = Moments::default();
    let lines: Vec<&[f32]> = lightness.chunks_exact(width).collect();
    let mut row = vec![0.0; width - 2];
    for around in lines.windows(3) {
        let &[above, here, below] = around else { continue };
        let across = here.iter().zip(here.iter().skip(1)).zip(here.iter().skip(2));
        let along = above.iter().skip(1).zip(below.iter().skip(1));
        for (value, (((left, middle), right), (up, down))) in row.iter_mut().zip(across.zip(along)) {
            *value = up + down + left + right - 4.0 * middle;
        }
        laplacian.add_all(&row);
    }
    laplacian.deviation()
}

/// Mean L* outside the centred ellipse of 90 % of width and height, minus mean L* of the central third of both.
pub fn edge_brightness(lightness: &[f32], width: usize, height: usize) -> f64 {
    if lightness.is_empty() || width == 0 || height == 0 {
        return 0.0;
    }
    // -1 to 1 from edge to edge.
    let place = |at: usize, of: usize| (2 * at + 1) as f32 / of as f32 - 1.0;
    let columns: Vec<f32> = (0..width).map(|x| place(x, width)).collect();
    let (left, right) = columns.split_at(width / 2);
    let central = |at: &f32| at.abs() <= 1.0 / 3.0;
    let middle = left.partition_point(|u| !central(u))..left.len() + right.partition_point(central);
    let (mut outer, mut centre) = (Moments::default(), Moments::default());
    for (y, line) in lightness.chunks_exact(width).enumerate() {
        let v = place(y, height);
        // The ellipse leaves the two ends of a row.
        let outside = |u: &f32| u * u + v * v > 0.9 * 0.9;
        let inner = left.partition_point(outside)..left.len() + right.partition_point(|u| !outside(u));
        outer.add_all(line.get(..inner.start).unwrap_or_default());
        outer.add_all(line.get(inner.end..).unwrap_or_default());
        if central(&v) {
            centre.add_all(line.get(middle.clone()).unwrap_or_default());
        }
    }
    outer.mean() - centre.mean()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pixel_is_at_the_edge_or_central_or_neither() {
        for (width, height) in [(1, 1), (2, 3), (7, 5), (40, 9), (33, 64)] {
            let lightness: Vec<f32> = (0..width * height).map(|at| (at * 37 % 101) as f32).collect();
            let (mut outer, mut centre) = (Moments::default(), Moments::default());
            for (at, l) in lightness.iter().enumerate() {
                let [u, v] = [(at % width, width), (at / width, height)]
                    .map(|(at, of)| (2 * at + 1) as f32 / of as f32 - 1.0);
                if u * u + v * v > 0.81 {
                    outer.add(f64::from(*l));
                } else if u.abs().max(v.abs()) <= 1.0 / 3.0 {
                    centre.add(f64::from(*l));
                }
            }
            let found = edge_brightness(&lightness, width, height);
            assert!((found - (outer.mean() - centre.mean())).abs() < 1e-9, "{width}x{height}: {found}");
        }
    }
}
