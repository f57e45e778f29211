//! Where a spot lies on the displayed picture, in its pixels.

use crate::vocabulary::frames::seen;
use crate::vocabulary::mask::{Drawn, Frame};
use darktable::forms;
use darktable::state::{MaskForm, Shape};

use super::FEATHER;
use super::place::SpotShape;

/// The displayed picture.
pub(super) struct Picture {
    pub(super) frame: Frame,
    pub(super) size: [f64; 2],
}

/// An area with a rounded edge: all points within `reach` of a point, or of a polygon.
pub(super) struct Outline {
    /// One corner is a disc.
    corners: Vec<[f64; 2]>,
    reach: f64,
}

impl Picture {
    pub(super) fn of(frame: &Frame) -> Self {
        Self { frame: *frame, size: frame.shown().into() }
    }

    pub(super) fn short(&self) -> f64 {
        self.size[0].min(self.size[1])
    }

    pub(super) fn pixels(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        [x * self.size[0], y * self.size[1]]
    }

    /// A place with its soft edge.
    pub(super) fn outline(&self, place: &SpotShape) -> Outline {
        let half = place.half_width(self.size);
        match place {
            SpotShape::Circle { center, .. } => {
                Outline { corners: vec![self.pixels(*center)], reach: half * (1.0 + FEATHER) }
            }
            SpotShape::Path(corners) => Outline {
                corners: corners.iter().map(|at| self.pixels(*at)).collect(),
                reach: half * FEATHER,
            },
        }
    }

    /// A place in darktable's terms.
    pub(super) fn shape(&self, place: &SpotShape) -> Shape {
        match place {
            SpotShape::Circle { center, radius } => {
                let radius = radius * self.short();
                Shape::Circle {
                    border: self.frame.length(*center, radius * FEATHER),
                    center: self.frame.point(*center),
                    radius: self.frame.length(*center, radius),
                }
            }
            SpotShape::Path(corners) => {
                let feather = place.half_width(self.size) * FEATHER / self.short();
                Drawn::Polygon { corners: corners.clone(), feather }.shape(&self.frame)
            }
        }
    }

    /// Where a spot that is there already is; `None` for a shape that no spot of ours has.
    pub(super) fn standing(&self, form: &MaskForm) -> Option<Outline> {
        let pixels = |at: [f64; 2], length: f32| f64::from(length) / f64::from(self.frame.length(at, 1.0));
        match forms::without_clone(form)? {
            Shape::Circle { border, center, radius } => {
                let at = seen(&self.frame, center);
                Some(Outline { corners: vec![self.pixels(at)], reach: pixels(at, radius + border) })
            }
            Shape::Path { points } => {
                let first = points.first()?;
                let reach = pixels(seen(&self.frame, first.corner), first.border[0]);
                let corners = points.iter().map(|point| self.pixels(seen(&self.frame, point.corner)));
                Some(Outline { corners: corners.collect(), reach })
            }
            _ => None,
        }
    }
}

impl Outline {
    /// The same area so many pixels further right and down.
    pub(super) fn moved(&self, [right, down]: [f64; 2]) -> Self {
        let corners = self.corners.iter().map(|[x, y]| [x + right, y + down]).collect();
        Self { corners, reach: self.reach }
    }

    /// Whether it lies in a picture of that size, or where it is to be shown does not either: a wire from edge to
    /// edge has no place beside it that is any shorter.
    pub(super) fn lies_within(&self, size: [f64; 2], shown: &Self) -> bool {
        [0, 1].into_iter().zip(size).all(|(axis, side)| {
            let ([least, most], [own_least, own_most]) = (self.ends(axis), shown.ends(axis));
            let [low, high] = match self.corners.len() {
                1 => [self.reach, side - self.reach],
                _ => [self.reach.min(own_least), (side - self.reach).max(own_most)],
            };
            low <= least && most <= high
        })
    }

    /// The least and the greatest of its corners' places along an axis.
    fn ends(&self, axis: usize) -> [f64; 2] {
        let places = self.corners.iter().filter_map(|corner| corner.get(axis));
        places.fold([f64::INFINITY, f64::NEG_INFINITY], |[least, most], at| [least.min(*at), most.max(*at)])
    }

    /// Whether the two have no point in common, soft edges included.
    pub(super) fn is_clear_of(&self, other: &Self) -> bool {
        self.distance(other) >= self.reach + other.reach
    }

    /// Whether a point lies in it, and how far from its middle line or area.
    pub(super) fn hit(&self, at: [f64; 2]) -> Option<f64> {
        let point = Self { corners: vec![at], reach: 0.0 };
        Some(self.distance(&point)).filter(|distance| *distance <= self.reach)
    }

    /// Pixels from one point or polygon to the other, 0 where they overlap.
    pub(super) fn distance(&self, other: &Self) -> f64 {
        let within = |a: &Self, b: &Self| a.corners.first().is_some_and(|at| b.encloses(*at));
        if within(self, other) || within(other, self) {
            return 0.0;
        }
        let pairs = sides(&self.corners).flat_map(|a| sides(&other.corners).map(move |b| between(a, b)));
        pairs.fold(f64::INFINITY, f64::min)
    }

    /// Whether a point is inside the polygon: a ray from it crosses the sides an odd number of times.
    fn encloses(&self, [x, y]: [f64; 2]) -> bool {
        let crossed =
            |([ax, ay], [bx, by]): &Side| (*ay > y) != (*by > y) && x < ax + (y - ay) / (by - ay) * (bx - ax);
        sides(&self.corners).filter(crossed).count() % 2 == 1
    }
}

type Side = ([f64; 2], [f64; 2]);

/// The sides of a closed polygon; of one corner, the side from it to itself.
pub(super) fn sides(corners: &[[f64; 2]]) -> impl Iterator<Item = Side> + '_ {
    corners.iter().copied().zip(corners.iter().copied().cycle().skip(1))
}

/// The distance between two segments.
fn between(a: Side, b: Side) -> f64 {
    let turn = |([ax, ay], [bx, by]): Side, [x, y]: [f64; 2]| (bx - ax) * (y - ay) - (by - ay) * (x - ax);
    let apart = |line: Side, (p, q): Side| turn(line, p) * turn(line, q) < 0.0;
    if apart(a, b) && apart(b, a) {
        return 0.0;
    }
    to_point(a, b.0).min(to_point(a, b.1)).min(to_point(b, a.0)).min(to_point(b, a.1))
}

/// The distance from a segment to a point.
fn to_point(([ax, ay], [bx, by]): Side, [x, y]: [f64; 2]) -> f64 {
    let [dx, dy] = [bx - ax, by - ay];
    let length = dx * dx + dy * dy;
    let along = if length > 0.0 { (((x - ax) * dx + (y - ay) * dy) / length).clamp(0.0, 1.0) } else { 0.0 };
    (x - ax - along * dx).hypot(y - ay - along * dy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn polygon(corners: &[[f64; 2]]) -> Outline {
        Outline { corners: corners.to_vec(), reach: 0.0 }
    }

    #[test]
    fn distances_are_from_edge_to_edge_and_nothing_where_areas_overlap() {
        let square = polygon(&[[0.0, 0.0], [10.0, 0.0], [10.0, 10.0], [0.0, 10.0]]);
        assert_eq!(square.distance(&square.moved([13.0, 14.0])), 5.0);
        assert_eq!(square.distance(&square.moved([5.0, 5.0])), 0.0);
        assert_eq!(square.distance(&polygon(&[[4.0, 4.0]])), 0.0);
        assert_eq!(square.distance(&polygon(&[[4.0, 13.0]])), 3.0);
        // A bar across the square has no corner in it.
        let bar = polygon(&[[-5.0, 4.0], [15.0, 4.0], [15.0, 6.0], [-5.0, 6.0]]);
        assert_eq!((bar.distance(&square), square.distance(&bar)), (0.0, 0.0));
        let disc = Outline { corners: vec![[0.0, 20.0]], reach: 4.0 };
        assert!(disc.is_clear_of(&square) && !disc.moved([0.0, -7.0]).is_clear_of(&square));
        assert_eq!((disc.hit([3.0, 20.0]), disc.hit([5.0, 20.0])), (Some(3.0), None));
    }
}
