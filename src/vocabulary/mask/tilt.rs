//! What darktable's `ashift` does to a picture's geometry: rotation, shear, lens shift, and its own crop.
//!
//! The model is that of ShiftN, as darktable applies it: a product of projective maps.

/// A projective map of the plane: rows of a 3x3 matrix, for columns `[x, y, 1]`.
type Map = [[f64; 3]; 3];

/// A straightened picture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tilt {
    /// From the straightened picture, before its crop, back to the sensor.
    undo: Map,
    /// Width and height before its crop.
    full: [f64; 2],
    /// What of it is kept: left, top, right, bottom, 0…1.
    kept: [f64; 4],
}

impl Tilt {
    /// From the fields of the module, for a picture of that size; `None` when the module does nothing.
    pub(crate) fn of(field: impl Fn(&str) -> Option<f64>, [width, height]: [f64; 2]) -> Option<Self> {
        let get = |name: &str, missing: f64| field(name).unwrap_or(missing);
        let [rotation, vertical, horizontal, shear] =
            ["rotation", "lensshift_v", "lensshift_h", "shear"].map(|name| get(name, 0.0));
        // The generic lens model leaves these three out.
        let specific = get("mode", 0.0) != 0.0;
        let (focal, orthogonal, aspect) = if specific {
            (get("f_length", 28.0) * get("crop_factor", 1.0), get("orthocorr", 100.0), get("aspect", 1.0))
        } else {
            (28.0, 0.0, 1.0)
        };
        let kept = [get("cl", 0.0), get("ct", 0.0), get("cr", 1.0), get("cb", 1.0)];
        let [left, top, right, bottom] = kept;
        let moves =
            [rotation, vertical, horizontal, shear, aspect - 1.0, left, top, 1.0 - right, 1.0 - bottom];
        if moves.iter().all(|amount| amount.abs() < 1e-4) {
            return None;
        }
        let (sin, cos) = rotation.to_radians().sin_cos();
        let (cx, cy) = (0.5 * width, 0.5 * height);
        let turn =
            [[cos, sin, cx - cos * cx - sin * cy], [-sin, cos, cy + sin * cx - cos * cy], [0.0, 0.0, 1.0]];
        let shear = [[1.0, shear, 0.0], [shear, 1.0, 0.0], [0.0, 0.0, 1.0]];
        // A vertical shift is a horizontal one with x and y exchanged.
        let upright = transposed(shift(vertical, [height, width], focal, orthogonal));
        let across = shift(horizontal, [width, height], focal, orthogonal);
        let stretch = [[aspect.sqrt(), 0.0, 0.0], [0.0, 1.0 / aspect.sqrt(), 0.0], [0.0, 0.0, 1.0]];
        let map = [shear, upright, across, stretch].iter().fold(turn, |map, next| times(next, &map));
        let corners = [[0.0, 0.0], [width - 1.0, 0.0], [0.0, height - 1.0], [width - 1.0, height - 1.0]]
            .map(|corner| applied(&map, corner));
        let least = |axis: usize| corners.iter().fold(f64::MAX, |least, c| least.min(c[axis]));
        let greatest = |axis: usize| corners.iter().fold(f64::MIN, |greatest, c| greatest.max(c[axis]));
        let [left, top] = [least(0), least(1)];
        let moved = times(&[[1.0, 0.0, -left], [0.0, 1.0, -top], [0.0, 0.0, 1.0]], &map);
        Some(Self { undo: inverse(&moved)?, full: [greatest(0) - left + 1.0, greatest(1) - top + 1.0], kept })
    }

    /// Width and height of what it keeps, in pixels.
    pub(crate) fn size(&self) -> [f64; 2] {
        let [left, top, right, bottom] = self.kept;
        [(self.full[0] * (right - left)).floor(), (self.full[1] * (bottom - top)).floor()]
    }

    /// A point of what it keeps, back on the sensor.
    pub(crate) fn undo(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        applied(&self.undo, [x + self.full[0] * self.kept[0], y + self.full[1] * self.kept[1]])
    }
}

/// The lens shift along x, with the narrowing across it that comes with the lens.
fn shift(amount: f64, [along, across]: [f64; 2], focal: f64, orthogonal: f64) -> Map {
    let growth = amount.exp();
    let ratio = (growth - 1.0) / (growth + 1.0);
    let angle = (focal / (14.4 + (along / across - 1.0) * 7.2) * ratio).atan().clamp(-1.5, 1.5);
    let narrow = (1.0 - 2.0 * orthogonal / 100.0 * (0.5 * angle).sin().powi(2)).max(0.1);
    let map = [
        [growth, 0.0, 0.0],
        [0.5 * (growth - 1.0) * across / along, 2.0 * growth / (growth + 1.0), -0.5 * ratio * across],
        [(growth - 1.0) / along, 0.0, 1.0],
    ];
    times(&[[1.0, 0.0, 0.0], [0.0, narrow, 0.5 * across * (1.0 - narrow)], [0.0, 0.0, 1.0]], &map)
}

/// The same map with x and y exchanged.
fn transposed([[a, b, c], [d, e, f], [g, h, i]]: Map) -> Map {
    [[e, d, f], [b, a, c], [h, g, i]]
}

/// First `b`, then `a`.
fn times(a: &Map, b: &Map) -> Map {
    let [x, y, z] = b;
    a.map(|[p, q, r]| [0, 1, 2].map(|column: usize| p * x[column] + q * y[column] + r * z[column]))
}

fn applied([a, b, c]: &Map, [x, y]: [f64; 2]) -> [f64; 2] {
    let row = |[p, q, r]: &[f64; 3]| p * x + q * y + r;
    let scale = row(c);
    [row(a) / scale, row(b) / scale]
}

/// By cofactors; a projective map needs no determinant, unless it is 0.
fn inverse([[a, b, c], [d, e, f], [g, h, i]]: &Map) -> Option<Map> {
    let cofactors = [
        [e * i - f * h, c * h - b * i, b * f - c * e],
        [f * g - d * i, a * i - c * g, c * d - a * f],
        [d * h - e * g, b * g - a * h, a * e - b * d],
    ];
    let determinant = a * cofactors[0][0] + b * cofactors[1][0] + c * cofactors[2][0];
    (determinant.abs() > 1e-12).then_some(cofactors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_undone() {
        let map = times(
            &shift(0.4, [300.0, 200.0], 28.0, 50.0),
            &[[0.9, 0.2, 5.0], [-0.2, 0.9, 1.0], [0.0, 0.0, 1.0]],
        );
        let [x, y] = applied(&inverse(&map).unwrap(), applied(&map, [120.0, 70.0]));
        assert!((x - 120.0).abs() < 1e-9 && (y - 70.0).abs() < 1e-9);
        assert!(inverse(&[[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 0.0, 1.0]]).is_none());
        let swapped = transposed(map);
        let ([a, b], [c, d]) = (applied(&map, [120.0, 70.0]), applied(&swapped, [70.0, 120.0]));
        assert!((a - d).abs() < 1e-9 && (b - c).abs() < 1e-9);
    }

    #[test]
    fn an_idle_module_does_nothing_and_a_crop_alone_only_crops() {
        assert!(Tilt::of(|name| (name == "cr").then_some(1.0), [300.0, 200.0]).is_none());
        let cropped = Tilt::of(|name| (name == "cl").then_some(0.2), [300.0, 200.0]).unwrap();
        assert_eq!(cropped.size(), [240.0, 200.0]);
        let [x, y] = cropped.undo([0.0, 50.0]);
        assert!((x - 60.0).abs() < 1e-9 && (y - 50.0).abs() < 1e-9);
    }
}
