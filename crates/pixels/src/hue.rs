//! How far hues turn from one picture to another.

use crate::ciede::Tile;

/// Colours of less chroma C* are grey to the eye: their hue is noise.
const COLOURED: f32 = 12.0;

/// The turns of hue between pixels of two pictures, by sixths of the circle of hue.
#[derive(Clone, Copy, Default)]
pub struct Turns {
    samples: u64,
    sectors: [Sector; 6],
}

/// The turns of colours of like hue.
#[derive(Clone, Copy, Default)]
struct Sector {
    count: u64,
    /// Sums of the cosines and sines of the turns, each times the lesser of the two chromas.
    along: f64,
    across: f64,
}

impl Turns {
    /// Takes in one pixel of two tiles.
    pub fn add(&mut self, one: &Tile, two: &Tile, at: usize) {
        self.samples += 1;
        let pixel = |tile: &Tile| Some([*tile.a.get(at)?, *tile.b.get(at)?, *tile.chroma.get(at)?]);
        let (Some([a1, b1, c1]), Some([a2, b2, c2])) = (pixel(one), pixel(two)) else { return };
        if c1 < COLOURED || c2 < COLOURED {
            return;
        }
        let (along, across) = (a1 * a2 + b1 * b2, a1 * b2 - b1 * a2);
        // The hue between the two, so that their order does not matter, as in `ciede`: along their sum at equal
        // length, and across their difference where little is left of the sum. No branches: which one a colour
        // would take cannot be predicted, and a wrong guess costs more than both.
        let ((x1, y1), (x2, y2)) = ((a1 * c2, b1 * c2), (a2 * c1, b2 * c1));
        let sign = if across < 0.0 { -1.0 } else { 1.0 };
        let (x, y) = if along < 0.0 { (sign * (y2 - y1), sign * (x1 - x2)) } else { (x1 + x2, y1 + y2) };
        if let Some(sector) = self.sectors.get_mut(sixth(x, y)) {
            let weight = c1.min(c2) / (c1 * c2);
            sector.count += 1;
            sector.along += f64::from(along * weight);
            sector.across += f64::from(across * weight);
        }
    }

    /// The sum of both.
    pub fn plus(mut self, other: &Self) -> Self {
        self.samples += other.samples;
        for (sector, other) in self.sectors.iter_mut().zip(&other.sectors) {
            sector.count += other.count;
            sector.along += other.along;
            sector.across += other.across;
        }
        self
    }

    /// The largest mean turn, in degrees from 0 to 180, of the sectors that have 1 % of the pixels or more.
    pub fn largest(&self) -> f64 {
        let sectors = self.sectors.iter().filter(|sector| sector.count > 0);
        let seen = sectors.filter(|sector| sector.count * 100 >= self.samples);
        seen.map(|sector| sector.across.atan2(sector.along).abs().to_degrees()).fold(0.0, f64::max)
    }
}

/// Which sixth of the circle a direction is in; the first one has 0° in its middle.
fn sixth(x: f32, y: f32) -> usize {
    const ROOT_OF_3: f32 = 1.732_050_8;
    let (left, down) = (usize::from(x < 0.0), usize::from(y < 0.0));
    let (flat, steep) = (3 * left, 3 * down + 1 + (left ^ down));
    if y.abs() * ROOT_OF_3 <= x.abs() { flat } else { steep }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sixth_of_the_circle_is_around_its_middle() {
        for degrees in -29_i32..=329 {
            let (y, x) = f64::from(degrees).to_radians().sin_cos();
            let between = (degrees + 30).rem_euclid(60) != 0;
            let expected = (degrees + 30).rem_euclid(360) as usize / 60;
            assert!(!between || sixth(x as f32, y as f32) == expected, "{degrees}");
        }
    }

    #[test]
    fn a_turn_is_told_in_degrees_also_between_opposite_hues() {
        for (from, turn) in
            (0..360).step_by(7).flat_map(|from| [3, 40, 89, 91, 150, 179].map(|turn| (from, turn)))
        {
            let tile = |degrees: i32, chroma: f32| {
                let (sin, cos) = (degrees as f32).to_radians().sin_cos();
                let mut tile = Tile::new();
                (tile.a[0], tile.b[0], tile.chroma[0]) = (chroma * cos, chroma * sin, chroma);
                tile
            };
            let (one, two) = (tile(from, 20.0), tile(from + turn, 50.0));
            for (one, two) in [(&one, &two), (&two, &one)] {
                let mut turns = Turns::default();
                turns.add(one, two, 0);
                assert!(
                    (turns.largest() - f64::from(turn)).abs() < 1e-3,
                    "{from} {turn}: {}",
                    turns.largest()
                );
                let middle = (2 * from + turn + 60).rem_euclid(720);
                let sector = turns.sectors.iter().position(|sector| sector.count == 1).unwrap();
                assert!(middle % 120 == 0 || sector == middle as usize / 120, "{from} {turn}");
            }
        }
    }
}
