//! What an ellipse becomes where the frame is turned, stretched or tilted.

use crate::vocabulary::mask::projection::Projection;

/// An ellipse, in pixels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ellipse {
    pub center: [f64; 2],
    /// The half axes.
    pub radius: [f64; 2],
    /// From the x axis to the first half axis, towards y, in radians.
    pub rotation: f64,
}

impl Ellipse {
    /// Its image, an ellipse too while all of it lies before the horizon.
    ///
    /// Source: the dual of a conic, `C`, goes to `H C Hᵀ` (Hartley and Zisserman, Multiple View Geometry, 2.2.3).
    /// Divided by its last element, the dual of an ellipse holds its centre `c` in the last column, and in the rest
    /// `c cᵀ - S`, where the eigenvectors of `S` are the axes, and its eigenvalues their half lengths squared.
    pub(crate) fn through(&self, projection: &Projection) -> Self {
        let (sin, cos) = self.rotation.sin_cos();
        let ([x, y], [a, b]) = (self.center, self.radius);
        let from_unit_circle = Projection([[a * cos, -b * sin, x], [a * sin, b * cos, y], [0.0, 0.0, 1.0]]);
        let onto = projection.after(&from_unit_circle);
        let Projection([u, v, w]) = &onto;
        let dual = |[a, b, c]: &[f64; 3], [d, e, f]: &[f64; 3]| a * d + b * e - c * f;
        let scale = dual(w, w);
        let [cx, cy] = [dual(u, w) / scale, dual(v, w) / scale];
        let [xx, xy, yy] =
            [cx * cx - dual(u, u) / scale, cx * cy - dual(u, v) / scale, cy * cy - dual(v, v) / scale];

        let (mean, half, spread) = ((xx + yy) / 2.0, (xx - yy) / 2.0, ((xx - yy) / 2.0).hypot(xy));
        let [to, from] = [1.0, -1.0].map(|end| onto.point([end, 0.0]));
        let first = (to[1] - from[1]).atan2(to[0] - from[0]);
        // A circle has no longest axis.
        let longest = if spread < 1e-9 * mean { first } else { xy.atan2(half) / 2.0 };
        // The axis that is nearest to where the first one went stays the first.
        let quarters = ((first - longest) / std::f64::consts::FRAC_PI_2).round();
        let [long, short] = [mean + spread, mean - spread].map(|square| square.max(0.0).sqrt());
        Self {
            center: [cx, cy],
            radius: if quarters.rem_euclid(2.0) == 1.0 { [short, long] } else { [long, short] },
            rotation: longest + quarters * std::f64::consts::FRAC_PI_2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_of_an_ellipse_goes_to_its_image() {
        let leaning = Projection([[0.9, 0.2, 5.0], [-0.3, 1.2, 7.0], [4e-4, -7e-4, 1.0]]);
        let ellipse = Ellipse { center: [120.0, 340.0], radius: [60.0, 25.0], rotation: 0.6 };
        let image = ellipse.through(&leaning);
        let along = |ellipse: &Ellipse, turn: f64| {
            let ((sin, cos), [a, b]) = (ellipse.rotation.sin_cos(), ellipse.radius);
            let (x, y) = (a * turn.cos(), b * turn.sin());
            [ellipse.center[0] + x * cos - y * sin, ellipse.center[1] + x * sin + y * cos]
        };
        for step in 0..12 {
            let [x, y] = leaning.point(along(&ellipse, f64::from(step) * 0.5));
            let ((sin, cos), [a, b]) = (image.rotation.sin_cos(), image.radius);
            let (x, y) = (x - image.center[0], y - image.center[1]);
            let off = ((x * cos + y * sin) / a).hypot((y * cos - x * sin) / b) - 1.0;
            assert!(off.abs() < 1e-9, "{step}: {off}");
        }
        // The image of the centre is not the centre of the image.
        let [x, y] = leaning.point(ellipse.center);
        assert!((x - image.center[0]).hypot(y - image.center[1]) > 0.5);
        let back = image.through(&leaning.inverse().unwrap());
        assert!((back.radius[0] - 60.0).abs() < 1e-6 && (back.rotation - 0.6).abs() < 1e-9, "{back:?}");
    }

    #[test]
    fn the_first_axis_stays_the_first() {
        let turned = Projection([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]);
        for radius in [[3.0, 2.0], [2.0, 3.0], [2.0, 2.0]] {
            let image = Ellipse { center: [0.0; 2], radius, rotation: 0.2 }.through(&turned);
            assert!((image.rotation - 0.2 - std::f64::consts::FRAC_PI_2).abs() < 1e-9, "{image:?}");
            assert!((image.radius[0] - radius[0]).abs() < 1e-9 && (image.radius[1] - radius[1]).abs() < 1e-9);
        }
    }
}
