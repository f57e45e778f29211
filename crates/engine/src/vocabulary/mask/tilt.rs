//! What darktable's `ashift` does to a picture's geometry: rotation, shear, lens shift, and its own crop.
//!
//! The model is that of ShiftN, as darktable applies it: a product of projective maps.

use crate::vocabulary::mask::projection::Projection;

/// A straightened picture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tilt {
    /// From the straightened picture back to the sensor.
    pub undo: Projection,
    /// Width and height before its crop.
    full: [f64; 2],
    /// What of it is kept: left, top, right, bottom, 0…1.
    kept: [f64; 4],
}

impl Tilt {
    /// From the fields of the module, for a picture of that size; `None` when the module does nothing.
    pub(crate) fn of(field: impl Fn(&str) -> Option<f64>, [width, height]: [f64; 2]) -> Option<Self> {
        let get = |name: &str, missing: f64| field(name).unwrap_or(missing);
        let kept = [get("cl", 0.0), get("ct", 0.0), get("cr", 1.0), get("cb", 1.0)];
        let [left, top, right, bottom] = kept;
        let whole = [left, top, 1.0 - right, 1.0 - bottom].iter().all(|amount| amount.abs() < 1e-4);
        let map = match warp(&field, [width, height]) {
            None if whole => return None,
            None => Projection::shift(0.0, 0.0),
            Some(map) => map,
        };
        let corners = [[0.0, 0.0], [width - 1.0, 0.0], [0.0, height - 1.0], [width - 1.0, height - 1.0]]
            .map(|corner| map.point(corner));
        let bound = |of: fn(f64, f64) -> f64, from: f64| {
            corners.iter().fold([from; 2], |[x, y], corner| [of(x, corner[0]), of(y, corner[1])])
        };
        let (least, greatest) = (bound(f64::min, f64::MAX), bound(f64::max, f64::MIN));
        let full = [greatest[0] - least[0] + 1.0, greatest[1] - least[1] + 1.0];
        let corner = Projection::shift(-least[0] - kept[0] * full[0], -least[1] - kept[1] * full[1]);
        Some(Self { undo: corner.after(&map).inverse()?, full, kept })
    }

    /// Width and height of what it keeps, in pixels.
    pub(crate) fn size(&self) -> [f64; 2] {
        let [left, top, right, bottom] = self.kept;
        [(self.full[0] * (right - left)).floor(), (self.full[1] * (bottom - top)).floor()]
    }
}

/// Where the module puts the points of a picture of that size, before its crop; `None` when it leaves them alone.
pub(crate) fn warp(field: impl Fn(&str) -> Option<f64>, [width, height]: [f64; 2]) -> Option<Projection> {
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
    let moves = [rotation, vertical, horizontal, shear, aspect - 1.0];
    if moves.iter().all(|amount| amount.abs() < 1e-4) {
        return None;
    }
    let (sin, cos) = rotation.to_radians().sin_cos();
    let (cx, cy) = (0.5 * width, 0.5 * height);
    let turn = [[cos, sin, cx - cos * cx - sin * cy], [-sin, cos, cy + sin * cx - cos * cy], [0.0, 0.0, 1.0]];
    let shear = Projection([[1.0, shear, 0.0], [shear, 1.0, 0.0], [0.0, 0.0, 1.0]]);
    // A vertical shift is a horizontal one with x and y exchanged.
    let upright = shift(vertical, [height, width], focal, orthogonal).transposed();
    let across = shift(horizontal, [width, height], focal, orthogonal);
    let stretch = Projection([[aspect.sqrt(), 0.0, 0.0], [0.0, 1.0 / aspect.sqrt(), 0.0], [0.0, 0.0, 1.0]]);
    Some([shear, upright, across, stretch].iter().fold(Projection(turn), |map, next| next.after(&map)))
}

/// The lens shift along x, with the narrowing across it that comes with the lens.
fn shift(amount: f64, [along, across]: [f64; 2], focal: f64, orthogonal: f64) -> Projection {
    let growth = amount.exp();
    let ratio = (growth - 1.0) / (growth + 1.0);
    let angle = (focal / (14.4 + (along / across - 1.0) * 7.2) * ratio).atan().clamp(-1.5, 1.5);
    let narrow = (1.0 - 2.0 * orthogonal / 100.0 * (0.5 * angle).sin().powi(2)).max(0.1);
    let map = Projection([
        [growth, 0.0, 0.0],
        [0.5 * (growth - 1.0) * across / along, 2.0 * growth / (growth + 1.0), -0.5 * ratio * across],
        [(growth - 1.0) / along, 0.0, 1.0],
    ]);
    Projection([[1.0, 0.0, 0.0], [0.0, narrow, 0.5 * across * (1.0 - narrow)], [0.0, 0.0, 1.0]]).after(&map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_module_does_nothing_and_a_crop_alone_only_crops() {
        assert!(Tilt::of(|name| (name == "cr").then_some(1.0), [300.0, 200.0]).is_none());
        let cropped = Tilt::of(|name| (name == "cl").then_some(0.2), [300.0, 200.0]).unwrap();
        assert_eq!(cropped.size(), [240.0, 200.0]);
        let [x, y] = cropped.undo.point([0.0, 50.0]);
        assert!((x - 60.0).abs() < 1e-9 && (y - 50.0).abs() < 1e-9);
    }
}
