//! Masks as an agent draws them, on the picture that it sees, and their way to darktable's raw frame.
//!
//! darktable keeps mask coordinates in the frame of the raw, before orientation and crop, and lengths in units of
//! that frame's shorter side. What is drawn here is relative to the displayed picture, so that "the upper left
//! quarter" means what it says on a cropped portrait too. Lens correction and perspective are not undone: their
//! shifts are small against a mask's soft edge.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::darktable::blend;
use crate::darktable::layout::BlendSpace;
use crate::darktable::state::{
    Blend, EditState, GroupMember, MaskForm, Module, Params, PathPoint, Shape, Value,
};
use crate::vocabulary::apply::PhotoFacts;
use crate::vocabulary::error::VocabularyError;

/// A drawn mask: where a move acts. Points are `[x, y]` in 0…1 of the displayed picture, from its upper left
/// corner; angles are in degrees, clockwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "shape", rename_all = "snake_case", deny_unknown_fields)]
pub enum MaskSpec {
    /// A circle.
    Circle {
        /// The centre.
        center: [f64; 2],
        /// The radius of full effect, as a share of the picture's shorter side.
        radius: f64,
        /// How far the effect fades out beyond the radius, as a share of it: 0 hard, 1 very soft.
        #[serde(default = "half")]
        feather: f64,
        /// Act outside instead of inside.
        #[serde(default)]
        invert: bool,
        /// Strength of the effect, 0…1.
        #[serde(default = "one")]
        opacity: f64,
    },
    /// An ellipse.
    Ellipse {
        /// The centre.
        center: [f64; 2],
        /// The half axes of full effect: a share of the picture's width, a share of its height.
        radius: [f64; 2],
        /// Turns the ellipse, clockwise.
        #[serde(default)]
        rotation: f64,
        /// How far the effect fades out beyond the radius, as a share of it: 0 hard, 1 very soft.
        #[serde(default = "half")]
        feather: f64,
        /// Act outside instead of inside.
        #[serde(default)]
        invert: bool,
        /// Strength of the effect, 0…1.
        #[serde(default = "one")]
        opacity: f64,
    },
    /// A straight gradient, from full effect on one side to none on the other.
    Gradient {
        /// A point on the line of half effect.
        anchor: [f64; 2],
        /// The side that gets the effect: 0 the top, 90 the right, 180 the bottom, 270 the left.
        #[serde(default)]
        angle: f64,
        /// The width of the transition, as a share of the picture's diagonal.
        #[serde(default = "half")]
        width: f64,
        /// Act on the other side.
        #[serde(default)]
        invert: bool,
        /// Strength of the effect, 0…1.
        #[serde(default = "one")]
        opacity: f64,
    },
    /// An upright rectangle.
    Rectangle {
        /// One corner.
        from: [f64; 2],
        /// The corner across.
        to: [f64; 2],
        /// The width of the soft edge outside, as a share of the picture's shorter side.
        #[serde(default = "narrow")]
        feather: f64,
        /// Act outside instead of inside.
        #[serde(default)]
        invert: bool,
        /// Strength of the effect, 0…1.
        #[serde(default = "one")]
        opacity: f64,
    },
    /// A closed polygon.
    Path {
        /// Its corners in order, 3 to 64 of them.
        points: Vec<[f64; 2]>,
        /// The width of the soft edge outside, as a share of the picture's shorter side.
        #[serde(default = "narrow")]
        feather: f64,
        /// Act outside instead of inside.
        #[serde(default)]
        invert: bool,
        /// Strength of the effect, 0…1.
        #[serde(default = "one")]
        opacity: f64,
    },
}

fn half() -> f64 {
    0.5
}

fn one() -> f64 {
    1.0
}

fn narrow() -> f64 {
    0.05
}

/// How the raw is turned for display, in darktable's bits: 1 upside down, 2 mirrored left to right (both in the
/// raw's frame), then 4 with rows and columns exchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orientation(u8);

impl Orientation {
    const FLIP_Y: u8 = 1;
    const FLIP_X: u8 = 2;
    const SWAP: u8 = 4;

    /// From the Exif tag (1 to 8); anything else counts as upright.
    pub fn from_exif(tag: u32) -> Self {
        Self(match tag {
            2 => 2,
            3 => 3,
            4 => 1,
            5 => 4,
            6 => 5,
            7 => 7,
            8 => 6,
            _ => 0,
        })
    }

    /// From the field of darktable's `flip` module; `None` for its "as the file says" (-1).
    fn from_flip(value: i64) -> Option<Self> {
        u8::try_from(value).ok().filter(|bits| *bits < 8).map(Self)
    }

    /// darktable's bits.
    pub(crate) fn bits(self) -> u8 {
        self.0
    }

    fn has(self, bit: u8) -> bool {
        self.0 & bit != 0
    }
}

/// The displayed picture's place in the raw frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    /// The whole picture upright, in pixels.
    upright: [f64; 2],
    /// What of it is shown: left, top, right, bottom, 0…1.
    crop: [f64; 4],
    orientation: Orientation,
    /// Pixels of the raw that are not shown at all: left, top, right, bottom.
    margins: [f64; 4],
}

impl Frame {
    /// The frame of this state of the photo.
    pub(crate) fn of(state: &EditState, facts: &PhotoFacts) -> Self {
        let active = |op: &str| state.module(op, 0).filter(|module| module.enabled);
        let number = |op: &str, field: &str| active(op).and_then(|module| number(module, field));
        let orientation = number("flip", "orientation")
            .and_then(|value| Orientation::from_flip(value as i64))
            .unwrap_or(facts.orientation);
        let crop = match active("crop") {
            Some(_) => ["cx", "cy", "cw", "ch"].map(|field| number("crop", field).unwrap_or(0.0)),
            None => [0.0, 0.0, 1.0, 1.0],
        };
        Self {
            upright: [f64::from(facts.width), f64::from(facts.height)],
            crop,
            orientation,
            margins: ["x", "y", "width", "height"].map(|field| number("rawprepare", field).unwrap_or(0.0)),
        }
    }

    /// Width and height of what is shown, in pixels.
    pub(crate) fn shown(&self) -> [f64; 2] {
        let [left, top, right, bottom] = self.crop;
        [self.upright[0] * (right - left), self.upright[1] * (bottom - top)]
    }

    /// Width and height of the raw frame without its margins.
    fn sensor(&self) -> [f64; 2] {
        let [width, height] = self.upright;
        if self.orientation.has(Orientation::SWAP) { [height, width] } else { [width, height] }
    }

    fn raw(&self) -> [f64; 2] {
        let [width, height] = self.sensor();
        let [left, top, right, bottom] = self.margins;
        [width + left + right, height + top + bottom]
    }

    /// A point of the displayed picture, in 0…1 of the raw frame.
    fn point(&self, [x, y]: [f64; 2]) -> [f32; 2] {
        let [left, top, right, bottom] = self.crop;
        let x = (left + x * (right - left)) * self.upright[0];
        let y = (top + y * (bottom - top)) * self.upright[1];
        let [mut x, mut y] = if self.orientation.has(Orientation::SWAP) { [y, x] } else { [x, y] };
        let [width, height] = self.sensor();
        if self.orientation.has(Orientation::FLIP_X) {
            x = width - x;
        }
        if self.orientation.has(Orientation::FLIP_Y) {
            y = height - y;
        }
        let raw = self.raw();
        [((x + self.margins[0]) / raw[0]) as f32, ((y + self.margins[1]) / raw[1]) as f32]
    }

    /// A direction on the displayed picture (y down), as it lies on the raw frame.
    fn direction(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        let [x, y] = if self.orientation.has(Orientation::SWAP) { [y, x] } else { [x, y] };
        [
            if self.orientation.has(Orientation::FLIP_X) { -x } else { x },
            if self.orientation.has(Orientation::FLIP_Y) { -y } else { y },
        ]
    }

    /// Pixels, as a share of the raw frame's shorter side.
    fn length(&self, pixels: f64) -> f32 {
        let [width, height] = self.raw();
        (pixels / width.min(height)) as f32
    }
}

fn number(module: &Module, field: &str) -> Option<f64> {
    let Params::Fields(fields) = &module.params else { return None };
    match fields.get(field)? {
        Value::Int(whole) => Some(*whole as f64),
        Value::Float(float) => Some(f64::from(*float)),
        _ => None,
    }
}

impl MaskSpec {
    /// Checks every number; the message names the field and its range.
    pub fn check(&self) -> Result<(), VocabularyError> {
        let (_, opacity) = self.common();
        within("opacity", opacity, 0.0, 1.0)?;
        let point = |name: &str, at: &[f64; 2]| at.iter().try_for_each(|x| within(name, *x, -0.5, 1.5));
        match self {
            Self::Circle { center, radius, feather, .. } => {
                point("center", center)?;
                within("radius", *radius, 0.005, 1.5)?;
                within("feather", *feather, 0.0, 1.0)
            }
            Self::Ellipse { center, radius, rotation, feather, .. } => {
                point("center", center)?;
                radius.iter().try_for_each(|r| within("radius", *r, 0.005, 1.5))?;
                within("rotation", *rotation, -360.0, 360.0)?;
                within("feather", *feather, 0.0, 1.0)
            }
            Self::Gradient { anchor, angle, width, .. } => {
                point("anchor", anchor)?;
                within("angle", *angle, -360.0, 360.0)?;
                within("width", *width, 0.01, 2.0)
            }
            Self::Rectangle { from, to, feather, .. } => {
                point("from", from)?;
                point("to", to)?;
                if from.iter().zip(to).any(|(a, b)| (a - b).abs() < 0.005) {
                    return Err(VocabularyError::Mask("`from` and `to` enclose nothing".into()));
                }
                within("feather", *feather, 0.0, 1.0)
            }
            Self::Path { points, feather, .. } => {
                if !(3..=64).contains(&points.len()) {
                    let count = points.len();
                    return Err(VocabularyError::Mask(format!(
                        "`points` has {count} corners; it needs 3 to 64"
                    )));
                }
                points.iter().try_for_each(|p| point("points", p))?;
                within("feather", *feather, 0.0, 1.0)
            }
        }
    }

    /// The forms for darktable: the shape, and the group by which a module uses it.
    pub(crate) fn forms(&self, frame: &Frame) -> [MaskForm; 2] {
        let shape = MaskForm::new(self.name(), self.shape(frame));
        let member = GroupMember { form: shape.id, opacity: 1.0, state: 1 | 2 };
        let group = MaskForm::new(format!("{} group", self.name()), Shape::Group { members: vec![member] });
        [shape, group]
    }

    /// The blend parameters of an instance that uses this mask by the group of that id.
    pub(crate) fn blend(&self, group: i32, space: BlendSpace) -> Blend {
        let (invert, opacity) = self.common();
        Blend {
            combine: u32::from(invert),
            mask_id: Some(group),
            opacity: (opacity * 100.0) as f32,
            ..blend::normal(space)
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Circle { .. } => "circle",
            Self::Ellipse { .. } => "ellipse",
            Self::Gradient { .. } => "gradient",
            Self::Rectangle { .. } => "rectangle",
            Self::Path { .. } => "path",
        }
    }

    fn common(&self) -> (bool, f64) {
        match self {
            Self::Circle { invert, opacity, .. }
            | Self::Ellipse { invert, opacity, .. }
            | Self::Gradient { invert, opacity, .. }
            | Self::Rectangle { invert, opacity, .. }
            | Self::Path { invert, opacity, .. } => (*invert, *opacity),
        }
    }

    fn shape(&self, frame: &Frame) -> Shape {
        let [width, height] = frame.shown();
        match self {
            Self::Circle { center, radius, feather, .. } => Shape::Circle {
                // A circle's border is a length of its own, an ellipse's is a share of its radius.
                border: frame.length(radius * feather * width.min(height)),
                center: frame.point(*center),
                radius: frame.length(radius * width.min(height)),
            },
            Self::Ellipse { center, radius, rotation, feather, .. } => {
                let angle = rotation.to_radians();
                let [x, y] = frame.direction([angle.cos(), angle.sin()]);
                Shape::Ellipse {
                    border: *feather as f32,
                    center: frame.point(*center),
                    proportional: true,
                    radius: [frame.length(radius[0] * width), frame.length(radius[1] * height)],
                    rotation: degrees(y.atan2(x)),
                }
            }
            Self::Gradient { anchor, angle, width: share, .. } => {
                // darktable turns the other way round, and its transition reaches `compression` diagonals of the
                // raw frame to either side of the line.
                let angle = angle.to_radians();
                let [x, y] = frame.direction([angle.sin(), -angle.cos()]);
                let [raw_width, raw_height] = frame.raw();
                Shape::Gradient {
                    anchor: frame.point(*anchor),
                    compression: (0.5 * share * width.hypot(height) / raw_width.hypot(raw_height)) as f32,
                    curvature: 0.0,
                    rotation: degrees((-x).atan2(-y)),
                    sigmoidal: false,
                }
            }
            Self::Rectangle { from: [x0, y0], to: [x1, y1], feather, .. } => {
                polygon(frame, &[[*x0, *y0], [*x1, *y0], [*x1, *y1], [*x0, *y1]], *feather)
            }
            Self::Path { points, feather, .. } => polygon(frame, points, *feather),
        }
    }
}

fn polygon(frame: &Frame, corners: &[[f64; 2]], feather: f64) -> Shape {
    let [width, height] = frame.shown();
    let border = frame.length(feather * width.min(height));
    let corner = |at: &[f64; 2]| {
        let corner = frame.point(*at);
        // Control points on the corner make the sides straight.
        PathPoint { border: [border; 2], control1: corner, control2: corner, corner, user: false }
    };
    Shape::Path { points: corners.iter().map(corner).collect() }
}

/// Degrees in (-180, 180], rounded so that equal angles have equal bits.
fn degrees(radians: f64) -> f32 {
    let degrees = (radians.to_degrees() * 1e4).round() / 1e4;
    // The sum turns -0.0 into 0.0.
    (if degrees <= -180.0 { degrees + 360.0 } else { degrees } + 0.0) as f32
}

fn within(name: &str, value: f64, min: f64, max: f64) -> Result<(), VocabularyError> {
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(VocabularyError::Mask(format!("`{name}` cannot be {value}: it goes from {min} to {max}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(orientation: u8, crop: [f64; 4]) -> Frame {
        // Upright 300x200, or 200x300 when the raw lies on its side.
        let upright = if orientation & Orientation::SWAP != 0 { [200.0, 300.0] } else { [300.0, 200.0] };
        Frame { upright, crop, orientation: Orientation(orientation), margins: [0.0; 4] }
    }

    const WHOLE: [f64; 4] = [0.0, 0.0, 1.0, 1.0];

    fn read(text: &str) -> Result<MaskSpec, String> {
        let spec: MaskSpec = serde_json::from_str(text).map_err(|e| e.to_string())?;
        spec.check().map_err(|e| e.to_string())?;
        Ok(spec)
    }

    #[test]
    fn points_follow_the_orientation() {
        let at = |orientation| frame(orientation, WHOLE).point([0.25, 0.125]);
        assert_eq!(at(0), [0.25, 0.125]);
        assert_eq!(at(1), [0.25, 0.875]);
        assert_eq!(at(2), [0.75, 0.125]);
        assert_eq!(at(3), [0.75, 0.875]);
        assert_eq!(at(4), [0.125, 0.25]);
        // Turned clockwise for display (5): the upper left corner on show is the raw's lower left.
        assert_eq!(frame(5, WHOLE).point([0.0, 0.0]), [0.0, 1.0]);
        assert_eq!(at(5), [0.125, 0.75]);
        // Counter-clockwise (6): it is the raw's upper right.
        assert_eq!(frame(6, WHOLE).point([0.0, 0.0]), [1.0, 0.0]);
        assert_eq!(at(7), [0.875, 0.75]);
        let exif: Vec<u8> = (1..=8).map(|tag| Orientation::from_exif(tag).0).collect();
        assert_eq!(exif, [0, 2, 3, 1, 4, 5, 7, 6]);
    }

    #[test]
    fn points_and_lengths_follow_the_crop_and_the_sensor_margins() {
        let cropped = frame(0, [0.5, 0.0, 1.0, 0.5]);
        assert_eq!(cropped.point([0.5, 0.5]), [0.75, 0.25]);
        let circle = read(r#"{"shape":"circle","center":[0.5,0.5],"radius":0.5,"feather":0.2}"#).unwrap();
        let Shape::Circle { border, radius, .. } = circle.shape(&cropped) else { panic!("a circle") };
        // The shorter side on show is 100 px, the raw's is 200.
        assert_eq!((border, radius), (0.05, 0.25));
        let framed = Frame { margins: [100.0, 0.0, 0.0, 0.0], ..frame(0, WHOLE) };
        assert_eq!(framed.point([0.0, 1.0]), [0.25, 1.0]);
    }

    #[test]
    fn an_ellipse_on_a_turned_raw_turns_too() {
        let spec = read(r#"{"shape":"ellipse","center":[0.5,0.5],"radius":[0.4,0.1]}"#).unwrap();
        let Shape::Ellipse { radius, rotation, .. } = spec.shape(&frame(6, WHOLE)) else {
            panic!("an ellipse")
        };
        // 0.4 of 200 px wide, 0.1 of 300 px high; wide on show is upright on the sensor.
        assert_eq!(radius, [0.4, 0.15]);
        assert_eq!(rotation.abs(), 90.0);
        let tilted =
            read(r#"{"shape":"ellipse","center":[0.5,0.5],"radius":[0.4,0.1],"rotation":30}"#).unwrap();
        let Shape::Ellipse { rotation, .. } = tilted.shape(&frame(2, WHOLE)) else { panic!("an ellipse") };
        assert_eq!(rotation, 150.0);
    }

    #[test]
    fn a_gradient_points_where_it_is_told_however_the_raw_lies() {
        let rotation = |angle: f64, orientation: u8| {
            let spec =
                MaskSpec::Gradient { anchor: [0.5, 0.5], angle, width: 0.5, invert: false, opacity: 1.0 };
            let Shape::Gradient { rotation, compression, .. } = spec.shape(&frame(orientation, WHOLE)) else {
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
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_the_field() {
        for (text, expected) in [
            (
                r#"{"shape":"circle","center":[0.5,0.5],"radius":99}"#,
                "`radius` cannot be 99: it goes from 0.005",
            ),
            (r#"{"shape":"circle","center":[0.5,7],"radius":0.2}"#, "`center`"),
            (r#"{"shape":"circle","center":[0.5,0.5],"radius":0.2,"softness":1}"#, "softness"),
            (r#"{"shape":"star","center":[0.5,0.5]}"#, "star"),
            (r#"{"shape":"circle","center":[0.5,0.5],"radius":0.2,"opacity":2}"#, "`opacity`"),
            (r#"{"shape":"path","points":[[0,0],[1,1]]}"#, "3 to 64"),
            (r#"{"shape":"rectangle","from":[0.2,0.2],"to":[0.2,0.9]}"#, "enclose nothing"),
            (r#"{"shape":"gradient","anchor":[0.5,0.5],"width":0}"#, "`width`"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let nan = MaskSpec::Circle {
            center: [f64::NAN, 0.5],
            radius: 0.1,
            feather: 0.5,
            invert: false,
            opacity: 1.0,
        };
        assert!(nan.check().is_err());
    }

    #[test]
    fn equal_masks_have_equal_ids_and_the_group_names_the_shape() {
        let spec =
            read(r#"{"shape":"rectangle","from":[0.1,0.1],"to":[0.4,0.4],"invert":true,"opacity":0.5}"#)
                .unwrap();
        let [shape, group] = spec.forms(&frame(0, WHOLE));
        assert_eq!(spec.forms(&frame(0, WHOLE)), [shape.clone(), group.clone()]);
        let Shape::Group { members } = &group.shape else { panic!("a group") };
        assert_eq!((members[0].form, members[0].state), (shape.id, 3));
        let blend = spec.blend(group.id, BlendSpace::Lab);
        assert_eq!((blend.colorspace, blend.combine, blend.opacity), (2, 1, 50.0));
    }
}
