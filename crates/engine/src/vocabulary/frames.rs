//! From darktable's raw frame back to the displayed picture, and on to the raw frame of another photo.
//!
//! What is read back is rounded to a millionth of the picture, so that a shape that was drawn with round numbers has
//! these numbers again, and lands on the other photo as if it had been drawn there.

use crate::vocabulary::apply::PhotoFacts;
use crate::vocabulary::mask::{Drawn, Ellipse, Frame};
use darktable::frame::DisplayedSize;
use darktable::state::{BrushPoint, EditState, MaskForm, Module, PathPoint, Shape};

/// What is put around the picture, or cut off, besides what a [`Frame`] knows of.
const AROUND: [&str; 3] = ["clipping", "enlargecanvas", "borders"];

/// Whether a place of the displayed picture is the same place of the photo in both states. Corrections of the lens
/// and warps, which move it a little, are disregarded.
pub fn same_frame(one: &EditState, other: &EditState, facts: &PhotoFacts) -> bool {
    let around = |state: &EditState| -> Vec<Module> {
        let there =
            state.modules.iter().filter(|module| module.enabled && AROUND.contains(&module.op.as_str()));
        there.cloned().collect()
    };
    around(one) == around(other)
        && Transfer::between(Frame::of(one, facts), Frame::of(other, facts)).is_none()
}

/// A point of the raw frame, in 0…1 of the displayed picture, rounded: see above.
pub(super) fn seen(frame: &Frame, raw: [f32; 2]) -> [f64; 2] {
    frame.displayed(raw).map(round)
}

/// The way from one photo's raw frame to another's, by the place on the displayed pictures.
pub(super) struct Transfer {
    from: Frame,
    to: Frame,
}

impl Transfer {
    /// `None` where both frames are one: there is nothing to do.
    pub fn between(from: Frame, to: Frame) -> Option<Self> {
        let corners =
            |frame: &Frame| [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]].map(|at| frame.point(at));
        let size = |frame: &Frame| (frame.shown(), frame.diagonal());
        (corners(&from) != corners(&to) || size(&from) != size(&to)).then_some(Self { from, to })
    }

    /// The same place on the other photo.
    pub fn point(&self, at: [f32; 2]) -> [f32; 2] {
        self.to.point(seen(&self.from, at))
    }

    /// A form that is no group, as it lies on the other photo: as large against the displayed picture, and turned
    /// as it is seen. What is not modelled stays as it is.
    pub fn form(&self, form: &MaskForm) -> MaskForm {
        match self.shape(&form.shape) {
            shape if shape == form.shape => form.clone(),
            shape => MaskForm::new(form.name.clone(), shape),
        }
    }

    /// The geometry of [`Self::form`].
    pub fn shape(&self, shape: &Shape) -> Shape {
        let DisplayedSize { width, height } = self.from.shown();
        match shape {
            Shape::Circle { border, center, radius } => {
                let at = seen(&self.from, *center);
                let share =
                    |length: f32| f64::from(length) / f64::from(self.from.length(at, width.min(height)));
                let feather = round(f64::from(*border) / f64::from(*radius));
                Drawn::Circle { center: at, radius: round(share(*radius)), feather }.shape(&self.to)
            }
            Shape::Ellipse { border, center, proportional, radius, rotation } => {
                let stored = Ellipse {
                    center: self.from.pixels(*center),
                    radius: radius.map(|share| f64::from(share) / f64::from(self.from.share(1.0))),
                    rotation: f64::from(*rotation).to_radians(),
                };
                let Some(back) = self.from.projection().inverse() else { return shape.clone() };
                let Ellipse { center: [x, y], radius: [a, b], rotation } = stored.through(&back);
                let at = [round(x / width), round(y / height)];
                let (radius, rotation) = ([round(a / width), round(b / height)], degrees(rotation));
                let feather = f64::from(*border);
                match (
                    Drawn::Ellipse { center: at, radius, rotation, feather }.shape(&self.to),
                    *proportional,
                ) {
                    (Shape::Ellipse { center, radius, rotation, .. }, false) => Shape::Ellipse {
                        border: self.length(at, *border),
                        center,
                        proportional: false,
                        radius,
                        rotation,
                    },
                    (ellipse, _) => ellipse,
                }
            }
            Shape::Gradient { anchor, compression, curvature, rotation, sigmoidal } => {
                let at = seen(&self.from, *anchor);
                let (sin, cos) = f64::from(*rotation).to_radians().sin_cos();
                let normal = [-sin, -cos];
                // The line of half effect as it is seen, and the way across it on the side of the effect.
                let [x, y] = self.direction(at, [cos, -sin]);
                let towards = self.direction(at, normal);
                let length = x.hypot(y).copysign(y * towards[0] - x * towards[1]);
                let across = [y / length, -x / length];
                let step = self.from.step(at, across);
                let reach = f64::from(*compression) * self.from.diagonal()
                    / (step[0] * normal[0] + step[1] * normal[1]);
                let drawn = Drawn::Gradient {
                    anchor: at,
                    angle: degrees(across[0].atan2(-across[1])),
                    width: round(2.0 * reach / width.hypot(height)),
                };
                match drawn.shape(&self.to) {
                    Shape::Gradient { anchor, compression, rotation, .. } => {
                        let (curvature, sigmoidal) = (*curvature, *sigmoidal);
                        Shape::Gradient { anchor, compression, curvature, rotation, sigmoidal }
                    }
                    other => other,
                }
            }
            Shape::Path { points } => {
                let middle = self.middle(points.iter().map(|p| p.corner));
                let point = |p: &PathPoint| PathPoint {
                    border: p.border.map(|border| self.length(middle, border)),
                    control1: self.point(p.control1),
                    control2: self.point(p.control2),
                    corner: self.point(p.corner),
                    user: p.user,
                };
                Shape::Path { points: points.iter().map(point).collect() }
            }
            Shape::Brush { points } => {
                let middle = self.middle(points.iter().map(|p| p.corner));
                let point = |p: &BrushPoint| BrushPoint {
                    border: p.border.map(|border| self.across(p, middle, border)),
                    control1: self.point(p.control1),
                    control2: self.point(p.control2),
                    corner: self.point(p.corner),
                    ..*p
                };
                Shape::Brush { points: points.iter().map(point).collect() }
            }
            Shape::Group { .. } | Shape::Opaque { .. } => shape.clone(),
        }
    }

    /// Pixels of the displayed picture, as many against its shorter side.
    pub fn pixels(&self, pixels: f32) -> f32 {
        (f64::from(pixels) / self.from.shown().short() * self.to.shown().short()).round() as f32
    }

    /// A length around a point of the displayed picture, as large against its shorter side.
    fn length(&self, at: [f64; 2], length: f32) -> f32 {
        let share = f64::from(length) / f64::from(self.from.length(at, self.from.shown().short()));
        self.to.length(at, round(share) * self.to.shown().short())
    }

    /// The reach of a brush at one of its points, as large against the displayed picture's shorter side.
    fn across(&self, point: &BrushPoint, middle: [f64; 2], border: f32) -> f32 {
        let [at, before, after] =
            [point.corner, point.control1, point.control2].map(|at| seen(&self.from, at));
        let reach = |frame: &Frame, pixels: f64| {
            let DisplayedSize { width, height } = frame.shown();
            let along = [(after[0] - before[0]) * width, (after[1] - before[1]) * height];
            frame.across(at, along, middle, pixels)
        };
        let share = f64::from(border) / f64::from(reach(&self.from, self.from.shown().short()));
        reach(&self.to, round(share) * self.to.shown().short())
    }

    fn middle(&self, points: impl ExactSizeIterator<Item = [f32; 2]>) -> [f64; 2] {
        let count = points.len().max(1) as f64;
        let sum = points
            .map(|at| seen(&self.from, at))
            .fold([0.0, 0.0], |sum, at| [sum[0] + at[0], sum[1] + at[1]]);
        sum.map(|sum| sum / count)
    }

    /// A small step on the raw frame, in its pixels, as it is seen: [`Frame::step`] backwards.
    fn direction(&self, at: [f64; 2], step: [f64; 2]) -> [f64; 2] {
        solve(self.from.step(at, [1.0, 0.0]), self.from.step(at, [0.0, 1.0]), step)
    }
}

/// How many times `across` and `down` make `sum`.
fn solve(across: [f64; 2], down: [f64; 2], sum: [f64; 2]) -> [f64; 2] {
    let area = across[0] * down[1] - across[1] * down[0];
    [(sum[0] * down[1] - sum[1] * down[0]) / area, (sum[1] * across[0] - sum[0] * across[1]) / area]
}

fn round(share: f64) -> f64 {
    (share * 1e6).round() / 1e6
}

fn degrees(radians: f64) -> f64 {
    (radians.to_degrees() * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::testing::{Photo, module};

    #[test]
    fn what_is_seen_is_what_was_drawn_on_every_frame() {
        let mut straight = Photo::new();
        let known = straight.layouts.module("ashift").unwrap().unwrap();
        let fields = [("rotation", 7.0), ("lensshift_v", 0.3), ("cr", 1.0), ("cb", 1.0)];
        let tilt = module(&straight.layouts, "ashift", known.lowest().unwrap().modversion, &fields);
        straight.state.modules.push(tilt);
        let mut upright = Photo::new().upright();
        upright.apply("crop_left", &[("margin", 0.3)], None);
        for photo in [Photo::new(), upright, straight] {
            let frame = Frame::of(&photo.state, &photo.facts);
            for at in [[0.0, 0.0], [0.5, 0.5], [0.9, 0.1], [0.25, 1.0]] {
                let [x, y] = seen(&frame, frame.point(at));
                assert!((x - at[0]).abs() < 5e-6 && (y - at[1]).abs() < 5e-6, "{at:?}: {x} {y}");
            }
        }
    }

    #[test]
    fn a_shape_goes_to_another_frame_and_comes_back() {
        let [one, other] = [Photo::new(), Photo::new().upright()];
        let frame = |photo: &Photo| Frame::of(&photo.state, &photo.facts);
        let there = Transfer::between(frame(&one), frame(&other)).unwrap();
        let back = Transfer::between(frame(&other), frame(&one)).unwrap();
        assert!(Transfer::between(frame(&one), frame(&Photo::new())).is_none());
        let point = |at: [f32; 2]| PathPoint {
            border: [0.05; 2],
            control1: at,
            control2: [at[0] + 0.1, at[1]],
            corner: at,
            user: true,
        };
        let dab = |at: [f32; 2]| BrushPoint {
            border: [0.05; 2],
            control1: at,
            control2: at,
            corner: at,
            density: 0.5,
            hardness: 0.25,
            user: false,
        };
        for shape in [
            Shape::Circle { border: 0.05, center: [0.25, 0.5], radius: 0.125 },
            Shape::Ellipse {
                border: 0.1,
                center: [0.5, 0.25],
                proportional: false,
                radius: [0.25, 0.125],
                rotation: 30.0,
            },
            Shape::Gradient {
                anchor: [0.5, 0.25],
                compression: 0.25,
                curvature: 0.5,
                rotation: -120.0,
                sigmoidal: true,
            },
            Shape::Path { points: [[0.25, 0.25], [0.5, 0.25], [0.25, 0.5]].map(point).to_vec() },
            Shape::Brush { points: [[0.25, 0.25], [0.5, 0.25]].map(dab).to_vec() },
        ] {
            let moved = there.shape(&shape);
            assert_ne!(moved, shape);
            assert_eq!(words(&back.shape(&moved)), words(&shape));
        }
    }

    /// A shape with its numbers rounded to a hundredth of a pixel.
    fn words(shape: &Shape) -> String {
        fn walk(value: &serde_json::Value) -> String {
            match value {
                serde_json::Value::Number(n) => format!("{:.4}", n.as_f64().unwrap() + 1e-9),
                serde_json::Value::Array(list) => list.iter().map(walk).collect::<Vec<_>>().join(","),
                serde_json::Value::Object(map) => map.values().map(walk).collect::<Vec<_>>().join(" "),
                other => other.to_string(),
            }
        }
        walk(&serde_json::to_value(shape).unwrap())
    }
}
