//! Projective maps of the plane.

/// A projective map: a 3x3 matrix by rows, for columns `[x, y, 1]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Projection(pub [[f64; 3]; 3]);

impl Projection {
    /// Moves every point by `x` and `y`.
    pub(crate) fn shift(x: f64, y: f64) -> Self {
        Self([[1.0, 0.0, x], [0.0, 1.0, y], [0.0, 0.0, 1.0]])
    }

    /// First `first`, then this.
    pub(crate) fn after(&self, first: &Self) -> Self {
        let Self([[a, b, c], [d, e, f], [g, h, i]]) = first;
        let row = |[p, q, r]: [f64; 3]| [p * a + q * d + r * g, p * b + q * e + r * h, p * c + q * f + r * i];
        Self(self.0.map(row))
    }

    /// Where a point goes.
    pub(crate) fn point(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        let [a, b, scale] = self.0.map(|[p, q, r]| p * x + q * y + r);
        [a / scale, b / scale]
    }

    /// The way back, by cofactors: a factor of the whole matrix does not matter. `None` where lines become points.
    pub(crate) fn inverse(&self) -> Option<Self> {
        let [[a, b, c], [d, e, f], [g, h, i]] = &self.0;
        let cofactors = [
            [e * i - f * h, c * h - b * i, b * f - c * e],
            [f * g - d * i, a * i - c * g, c * d - a * f],
            [d * h - e * g, b * g - a * h, a * e - b * d],
        ];
        let determinant = a * cofactors[0][0] + b * cofactors[1][0] + c * cofactors[2][0];
        (determinant.abs() > 1e-12).then_some(Self(cofactors))
    }

    /// The same with x and y exchanged.
    pub(crate) fn transposed(&self) -> Self {
        let Self([[a, b, c], [d, e, f], [g, h, i]]) = *self;
        Self([[e, d, f], [b, a, c], [h, g, i]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_comes_back() {
        let there = Projection([[0.9, 0.2, 5.0], [-0.2, 0.9, 1.0], [1e-3, -2e-3, 1.0]]);
        let [x, y] = there.inverse().unwrap().point(there.point([120.0, 70.0]));
        assert!((x - 120.0).abs() < 1e-9 && (y - 70.0).abs() < 1e-9);
        assert!(Projection([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 0.0, 1.0]]).inverse().is_none());
        let ([a, b], [c, d]) = (there.point([120.0, 70.0]), there.transposed().point([70.0, 120.0]));
        assert!((a - d).abs() < 1e-9 && (b - c).abs() < 1e-9);
    }
}
