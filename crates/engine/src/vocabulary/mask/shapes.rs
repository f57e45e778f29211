//! Drawn shapes, and their way to darktable's forms.

use crate::vocabulary::mask::ellipse::Ellipse;
use crate::vocabulary::mask::frame::Frame;
use darktable::frame::DisplayedSize;
use darktable::state::{BrushPoint, PathPoint, Shape};

/// A drawn shape with every number in place and checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Drawn {
    Circle { center: [f64; 2], radius: f64, feather: f64 },
    Ellipse { center: [f64; 2], radius: [f64; 2], rotation: f64, feather: f64 },
    Gradient { anchor: [f64; 2], angle: f64, width: f64 },
    Polygon { corners: Vec<[f64; 2]>, feather: f64 },
    Stroke { points: Vec<[f64; 2]>, width: f64, hardness: f64, density: f64 },
}

impl Drawn {
    /// What darktable's mask manager shows.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Circle { .. } => "circle",
            Self::Ellipse { .. } => "ellipse",
            Self::Gradient { .. } => "gradient",
            Self::Polygon { .. } => "path",
            Self::Stroke { .. } => "brush",
        }
    }

    /// In darktable's terms.
    pub(crate) fn shape(&self, frame: &Frame) -> Shape {
        let DisplayedSize { width, height } = frame.shown();
        let short = width.min(height);
        match self {
            Self::Circle { center, radius, feather } => {
                let [x, y] = *center;
                let radius = radius * short;
                let drawn = Ellipse { center: [x * width, y * height], radius: [radius; 2], rotation: 0.0 };
                let stored = drawn.through(&frame.projection());
                let [a, b] = stored.radius;
                if (a / b - 1.0).abs() > 1e-3 {
                    return ellipse(&stored, *feather, frame);
                }
                let radius = frame.length(*center, radius);
                // A circle's border is a length of its own, an ellipse's is a share of its radius.
                Shape::Circle { border: radius * *feather as f32, center: frame.point(*center), radius }
            }
            Self::Ellipse { center: [x, y], radius: [a, b], rotation, feather } => {
                let (center, radius) = ([x * width, y * height], [a * width, b * height]);
                let drawn = Ellipse { center, radius, rotation: rotation.to_radians() };
                ellipse(&drawn.through(&frame.projection()), *feather, frame)
            }
            Self::Gradient { anchor, angle, width: share } => {
                let (sin, cos) = angle.to_radians().sin_cos();
                // Across the line of half effect, towards the effect; and along the line.
                let across = frame.step(*anchor, [sin, -cos]);
                let along = frame.step(*anchor, [cos, sin]);
                let normal = perpendicular(along, across);
                let reach =
                    0.5 * share * width.hypot(height) * (across[0] * normal[0] + across[1] * normal[1]);
                Shape::Gradient {
                    anchor: frame.point(*anchor),
                    // The transition reaches `compression` diagonals of the raw frame to either side.
                    compression: (reach / frame.diagonal()) as f32,
                    curvature: 0.0,
                    // darktable turns the other way round.
                    rotation: degrees((-normal[0]).atan2(-normal[1])),
                    sigmoidal: false,
                }
            }
            Self::Polygon { corners, feather } => {
                let border = frame.length(middle(corners), feather * short);
                let corner = |at: &[f64; 2]| {
                    let corner = frame.point(*at);
                    // Control points on the corner make the sides straight.
                    PathPoint { border: [border; 2], control1: corner, control2: corner, corner, user: false }
                };
                Shape::Path { points: corners.iter().map(corner).collect() }
            }
            Self::Stroke { points, width: share, hardness, density } => {
                let point = |(at, [before, after]): (&[f64; 2], [[f64; 2]; 2])| {
                    let along = [(after[0] - before[0]) * width, (after[1] - before[1]) * height];
                    BrushPoint {
                        border: [frame.across(*at, along, middle(points), 0.5 * share * short); 2],
                        control1: frame.point(before),
                        control2: frame.point(after),
                        corner: frame.point(*at),
                        density: *density as f32,
                        hardness: *hardness as f32,
                        user: false,
                    }
                };
                Shape::Brush { points: points.iter().zip(controls(points)).map(point).collect() }
            }
        }
    }
}

/// An ellipse of the raw frame, in darktable's terms.
fn ellipse(stored: &Ellipse, feather: f64, frame: &Frame) -> Shape {
    Shape::Ellipse {
        border: feather as f32,
        center: frame.stored(stored.center),
        proportional: true,
        radius: stored.radius.map(|pixels| frame.share(pixels)),
        rotation: degrees(stored.rotation),
    }
}

/// The unit vector perpendicular to `along`, on the side of `towards`.
fn perpendicular([x, y]: [f64; 2], towards: [f64; 2]) -> [f64; 2] {
    let length = x.hypot(y).copysign(y * towards[0] - x * towards[1]);
    [y / length, -x / length]
}

fn middle(points: &[[f64; 2]]) -> [f64; 2] {
    let count = points.len().max(1) as f64;
    [0, 1].map(|axis: usize| points.iter().filter_map(|p| p.get(axis)).sum::<f64>() / count)
}

/// The control points before and after each point that make a stroke flow through its points (Catmull-Rom).
fn controls(points: &[[f64; 2]]) -> Vec<[[f64; 2]; 2]> {
    let at = |index: usize| points.get(index).or(points.last()).copied().unwrap_or_default();
    (0..points.len())
        .map(|index| {
            let (before, here, after) = (at(index.saturating_sub(1)), at(index), at(index + 1));
            let part = [(after[0] - before[0]) / 6.0, (after[1] - before[1]) / 6.0];
            [[here[0] - part[0], here[1] - part[1]], [here[0] + part[0], here[1] + part[1]]]
        })
        .collect()
}

/// Degrees in (-180, 180], rounded so that equal angles have equal bits.
fn degrees(radians: f64) -> f32 {
    let degrees = (radians.to_degrees() * 1e3).round() / 1e3;
    // The sum turns -0.0 into 0.0.
    (if degrees <= -180.0 { degrees + 360.0 } else { degrees } + 0.0) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::mask::frame::tests::{WHOLE, frame};

    #[test]
    fn a_circle_is_measured_by_the_shorter_side_on_show() {
        let circle = Drawn::Circle { center: [0.5, 0.5], radius: 0.5, feather: 0.2 };
        let Shape::Circle { border, radius, .. } = circle.shape(&frame(0, [0.5, 0.0, 1.0, 0.5])) else {
            panic!("a circle")
        };
        // The shorter side on show is 100 px, the raw's is 200.
        assert!((border - 0.05).abs() < 1e-6 && (radius - 0.25).abs() < 1e-6);
    }

    #[test]
    fn an_ellipse_on_a_turned_raw_turns_too() {
        let ellipse = |rotation, orientation| {
            let drawn = Drawn::Ellipse { center: [0.5, 0.5], radius: [0.4, 0.1], rotation, feather: 0.5 };
            let Shape::Ellipse { radius, rotation, .. } = drawn.shape(&frame(orientation, WHOLE)) else {
                panic!("an ellipse")
            };
            (radius, rotation)
        };
        // 0.4 of 200 px wide, 0.1 of 300 px high; wide on show is upright on the sensor.
        let (radius, rotation) = ellipse(0.0, 6);
        assert!((radius[0] - 0.4).abs() < 1e-6 && (radius[1] - 0.15).abs() < 1e-6, "{radius:?}");
        assert_eq!(rotation.abs(), 90.0);
        assert_eq!(ellipse(30.0, 2).1, 150.0);
    }

    #[test]
    fn a_gradient_points_where_it_is_told_however_the_raw_lies() {
        let rotation = |angle: f64, orientation: i64| {
            let drawn = Drawn::Gradient { anchor: [0.5, 0.5], angle, width: 0.5 };
            let Shape::Gradient { rotation, compression, .. } = drawn.shape(&frame(orientation, WHOLE))
            else {
                panic!("a gradient")
            };
            assert!((compression - 0.25).abs() < 1e-6);
            rotation
        };
        // darktable: 0 top, 90 left, 180 bottom, -90 right.
        assert_eq!([0.0, 90.0, 180.0, 270.0].map(|a| rotation(a, 0)), [0.0, -90.0, 180.0, 90.0]);
        // Clockwise for display: what is shown at the top is the raw's left.
        assert_eq!(rotation(0.0, 5), 90.0);
        assert_eq!(rotation(0.0, 3), 180.0);
        // Mirrored, the same side stays the same side.
        assert_eq!(rotation(0.0, 2), 0.0);
        assert_eq!(rotation(90.0, 2), 90.0);
    }

    #[test]
    fn a_stroke_flows_through_its_points() {
        let controls = controls(&[[0.0, 0.0], [0.3, 0.3], [0.6, 0.0]]);
        let close = |a: [f64; 2], b: [f64; 2]| (a[0] - b[0]).abs() < 1e-9 && (a[1] - b[1]).abs() < 1e-9;
        assert!(close(controls[0][1], [0.05, 0.05]));
        assert!(close(controls[1][0], [0.2, 0.3]) && close(controls[1][1], [0.4, 0.3]));
        assert!(close(controls[2][0], [0.55, 0.05]));
    }
}
