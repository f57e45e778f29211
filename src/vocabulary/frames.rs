//! From darktable's raw frame back to the displayed picture, and on to the raw frame of another photo.

use std::f64::consts::FRAC_PI_2;

use crate::darktable::state::{PathPoint, Shape};
use crate::vocabulary::mask::{Frame, degrees};

/// The way from a raw frame to the displayed picture: what [`Frame::point`] does, backwards.
#[derive(Clone, Copy, Debug)]
pub(super) struct Back {
    origin: [f64; 2],
    /// Where one step to the right, and one down, on the displayed picture lead on the raw frame.
    right: [f64; 2],
    down: [f64; 2],
}

impl Back {
    pub fn of(frame: &Frame) -> Self {
        let at = |point| frame.point(point).map(f64::from);
        let origin = at([0.0, 0.0]);
        let from_origin = |[x, y]: [f64; 2]| [x - origin[0], y - origin[1]];
        Self { origin, right: from_origin(at([1.0, 0.0])), down: from_origin(at([0.0, 1.0])) }
    }

    /// A point of the raw frame, in 0…1 of the displayed picture.
    pub fn point(&self, [x, y]: [f32; 2]) -> [f64; 2] {
        let [x, y] = [f64::from(x) - self.origin[0], f64::from(y) - self.origin[1]];
        let area = self.right[0] * self.down[1] - self.right[1] * self.down[0];
        [(x * self.down[1] - y * self.down[0]) / area, (y * self.right[0] - x * self.right[1]) / area]
    }
}

/// The way from one photo's raw frame to another's, by the place on the displayed pictures.
pub(super) struct Transfer {
    from: Frame,
    to: Frame,
    back: Back,
}

impl Transfer {
    /// `None` where both frames are one: there is nothing to do.
    pub fn between(from: Frame, to: Frame) -> Option<Self> {
        let corners = |frame: &Frame| [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]].map(|at| frame.point(at));
        let same = corners(&from) == corners(&to)
            && from.shown() == to.shown()
            && from.length(1.0).to_bits() == to.length(1.0).to_bits();
        (!same).then(|| Self { back: Back::of(&from), from, to })
    }

    /// The same place on the other photo.
    pub fn point(&self, at: [f32; 2]) -> [f32; 2] {
        self.to.point(self.back.point(at))
    }

    /// The same shape on the other photo: as large against the displayed picture, and turned as it is seen.
    /// What is not modelled stays as it is.
    pub fn shape(&self, shape: &Shape) -> Shape {
        match shape {
            Shape::Circle { border, center, radius } => Shape::Circle {
                border: self.length(*border),
                center: self.point(*center),
                radius: self.length(*radius),
            },
            Shape::Ellipse { border, center, proportional, radius, rotation } => {
                let (radius, rotation) = self.ellipse(*radius, *rotation);
                Shape::Ellipse {
                    border: if *proportional { *border } else { self.length(*border) },
                    center: self.point(*center),
                    proportional: *proportional,
                    radius,
                    rotation,
                }
            }
            Shape::Gradient { anchor, compression, curvature, rotation, sigmoidal } => {
                let share = self.diagonal(&self.to) / self.diagonal(&self.from);
                Shape::Gradient {
                    anchor: self.point(*anchor),
                    compression: (f64::from(*compression) * share) as f32,
                    curvature: *curvature,
                    rotation: self.gradient_angle(*rotation),
                    sigmoidal: *sigmoidal,
                }
            }
            Shape::Path { points } => {
                let corner = |p: &PathPoint| PathPoint {
                    border: p.border.map(|border| self.length(border)),
                    control1: self.point(p.control1),
                    control2: self.point(p.control2),
                    corner: self.point(p.corner),
                    user: p.user,
                };
                Shape::Path { points: points.iter().map(corner).collect() }
            }
            other => other.clone(),
        }
    }

    /// A length as large against the shorter side of the displayed picture.
    fn length(&self, length: f32) -> f32 {
        let short = |frame: &Frame| frame.shown()[0].min(frame.shown()[1]);
        let pixels = f64::from(length) / f64::from(self.from.length(1.0));
        self.to.length(pixels / short(&self.from) * short(&self.to))
    }

    /// The displayed picture's diagonal against the raw frame's.
    fn diagonal(&self, frame: &Frame) -> f64 {
        let [width, height] = frame.shown();
        let back = Back::of(frame);
        // The raw frame's sides in pixels, from how much of them the displayed picture covers.
        let side = |right: f64, down: f64| {
            if right.abs() > down.abs() { width / right.abs() } else { height / down.abs() }
        };
        let raw = side(back.right[0], back.down[0]).hypot(side(back.right[1], back.down[1]));
        width.hypot(height) / raw
    }

    /// The half axes scaled with the displayed picture, each way by itself, so that a wide ellipse covers as
    /// much of the width on an upright picture.
    fn ellipse(&self, radius: [f32; 2], rotation: f32) -> ([f32; 2], f32) {
        let [from, to] = [self.from.shown(), self.to.shown()];
        let scale = [to[0] / from[0], to[1] / from[1]];
        let angle = f64::from(rotation).to_radians();
        let axis = |length: f32, angle: f64| {
            let [x, y] = seen(&self.from, [angle.cos(), angle.sin()]);
            let pixels = f64::from(length) / f64::from(self.from.length(1.0));
            self.to.direction([x * pixels * scale[0], y * pixels * scale[1]])
        };
        let [a, b] = [axis(radius[0], angle), axis(radius[1], angle + FRAC_PI_2)];
        // The axes of the ellipse that two conjugate half diameters span (Rytz): where the derivative of its
        // squared radius along the curve vanishes.
        let turn = 0.5 * (2.0 * (a[0] * b[0] + a[1] * b[1])).atan2(square(a) - square(b));
        // Of its two axes the one nearest to the first stays the first.
        let turn = turn - (turn / FRAC_PI_2).round() * FRAC_PI_2;
        let half = |turn: f64| [a[0] * turn.cos() + b[0] * turn.sin(), a[1] * turn.cos() + b[1] * turn.sin()];
        let (first, second) = (half(turn), half(turn + FRAC_PI_2));
        let length = |axis: [f64; 2]| self.to.length(axis[0].hypot(axis[1]));
        ([length(first), length(second)], degrees(first[1].atan2(first[0])))
    }

    /// A gradient's rotation goes the other way round than an ellipse's, and 0 is up.
    fn gradient_angle(&self, rotation: f32) -> f32 {
        let angle = f64::from(rotation).to_radians();
        let [x, y] = self.to.direction(seen(&self.from, [-angle.sin(), -angle.cos()]));
        degrees((-x).atan2(-y))
    }
}

fn square([x, y]: [f64; 2]) -> f64 {
    x * x + y * y
}

/// A direction on the raw frame, as it lies on the displayed picture: [`Frame::direction`] backwards, which turns
/// and mirrors, so that its columns are its inverse's rows.
fn seen(frame: &Frame, [x, y]: [f64; 2]) -> [f64; 2] {
    let [right, down] = [frame.direction([1.0, 0.0]), frame.direction([0.0, 1.0])];
    [x * right[0] + y * right[1], x * down[0] + y * down[1]]
}
