//! The displayed picture's place in darktable's raw frame.
//!
//! darktable keeps mask coordinates in the frame of the raw, before straightening, orientation and crop, and lengths
//! in units of that frame's shorter side. What an agent draws is relative to the displayed picture, so that "the
//! upper left quarter" means what it says on a cropped portrait too. Lens correction and liquify are not undone:
//! their shifts are small against a mask's soft edge.

use crate::vocabulary::apply::PhotoFacts;
use crate::vocabulary::mask::projection::Projection;
use crate::vocabulary::mask::tilt::Tilt;
use darktable::frame::{DisplayedSize, Orientation};
use darktable::state::{EditState, Module, Params, Value};

/// The displayed picture's place in the raw frame. Pixels are those of the raw, at full size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    /// Width and height of the raw as it is stored, margins included.
    raw: [f64; 2],
    /// Pixels of the raw that are not shown at all: left, top, right, bottom.
    margins: [f64; 4],
    /// How `ashift` straightens it.
    tilt: Option<Tilt>,
    orientation: Orientation,
    /// What of the straightened and turned picture is shown: left, top, right, bottom, 0…1.
    crop: [f64; 4],
}

impl Frame {
    /// The frame of this state of the photo.
    pub(crate) fn of(state: &EditState, facts: &PhotoFacts) -> Self {
        let field = |op, field: &str| active(state, op).and_then(|module| number(module, field));
        let crop = match active(state, "crop") {
            Some(_) => ["cx", "cy", "cw", "ch"].map(|name| field("crop", name).unwrap_or(0.0)),
            None => [0.0, 0.0, 1.0, 1.0],
        };
        let raw = [f64::from(facts.size.width), f64::from(facts.size.height)];
        let margins = ["x", "y", "width", "height"].map(|name| field("rawprepare", name).unwrap_or(0.0));
        let mut frame = Self { raw, margins, tilt: None, orientation: facts.orientation_of(state), crop };
        let ashift = active(state, "ashift");
        frame.tilt = ashift.and_then(|module| Tilt::of(|name| number(module, name), frame.sensor()));
        frame
    }

    /// Width and height of the raw without its margins.
    pub(crate) fn sensor(&self) -> [f64; 2] {
        let [left, top, right, bottom] = self.margins;
        [self.raw[0] - left - right, self.raw[1] - top - bottom]
    }

    /// Width and height of what is shown.
    pub(crate) fn shown(&self) -> DisplayedSize {
        let [left, top, right, bottom] = self.crop;
        let [width, height] = self.orientation.turned(self.straight());
        DisplayedSize { width: width * (right - left), height: height * (bottom - top) }
    }

    /// Width and height of the straightened picture, before it is turned.
    fn straight(&self) -> [f64; 2] {
        self.tilt.as_ref().map_or_else(|| self.sensor(), Tilt::size)
    }

    /// From the displayed picture to the raw frame, in pixels of both.
    pub(crate) fn projection(&self) -> Projection {
        let [left, top, ..] = self.crop;
        let straight = self.straight();
        let [width, height] = self.orientation.turned(straight);
        let back = |x, y| self.orientation.back([left * width + x, top * height + y], straight);
        // The origin, and a step across and down.
        let [[x, y], [ax, ay], [dx, dy]] = [back(0.0, 0.0), back(1.0, 0.0), back(0.0, 1.0)];
        let turned = Projection([[ax - x, dx - x, x], [ay - y, dy - y, y], [0.0, 0.0, 1.0]]);
        let sensor = self.tilt.as_ref().map_or(turned, |tilt| tilt.undo.after(&turned));
        Projection::shift(self.margins[0], self.margins[1]).after(&sensor)
    }

    /// A point of the displayed picture, in pixels of the raw frame.
    fn place(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        let DisplayedSize { width, height } = self.shown();
        self.projection().point([x * width, y * height])
    }

    /// A point of the raw frame in pixels, in 0…1 of it.
    pub(crate) fn stored(&self, [x, y]: [f64; 2]) -> [f32; 2] {
        let [width, height] = self.raw;
        [(x / width) as f32, (y / height) as f32]
    }

    /// A point of the raw frame, 0…1, in pixels of it.
    pub(crate) fn pixels(&self, [x, y]: [f32; 2]) -> [f64; 2] {
        let [width, height] = self.raw;
        [f64::from(x) * width, f64::from(y) * height]
    }

    /// A point of the raw frame, 0…1, in 0…1 of the displayed picture.
    pub(crate) fn displayed(&self, at: [f32; 2]) -> [f64; 2] {
        let (raw, shown) = (self.pixels(at), self.shown());
        let [x, y] = self.projection().inverse().map_or(raw, |back| back.point(raw));
        [x / shown.width, y / shown.height]
    }

    /// A point of the displayed picture, in 0…1 of the raw frame.
    pub(crate) fn point(&self, at: [f64; 2]) -> [f32; 2] {
        self.stored(self.place(at))
    }

    /// What a small step on the displayed picture, in its pixels, is at this point of the raw frame.
    pub(crate) fn step(&self, [x, y]: [f64; 2], [dx, dy]: [f64; 2]) -> [f64; 2] {
        let DisplayedSize { width, height } = self.shown();
        let half = [0.5 / width, 0.5 / height];
        let difference = |step: [f64; 2]| {
            let [to, from] = [1.0, -1.0].map(|sign| self.place([x + sign * step[0], y + sign * step[1]]));
            [to[0] - from[0], to[1] - from[1]]
        };
        let (across, down) = (difference([half[0], 0.0]), difference([0.0, half[1]]));
        [across[0] * dx + down[0] * dy, across[1] * dx + down[1] * dy]
    }

    /// Raw pixels, as a share of the raw frame's shorter side.
    pub(crate) fn share(&self, pixels: f64) -> f32 {
        let [width, height] = self.raw;
        (pixels / width.min(height)) as f32
    }

    /// Pixels of the displayed picture around a point, as a share of the raw frame's shorter side.
    pub(crate) fn length(&self, at: [f64; 2], pixels: f64) -> f32 {
        let ([a, b], [c, d]) = (self.step(at, [1.0, 0.0]), self.step(at, [0.0, 1.0]));
        self.share(pixels * (a * d - b * c).abs().sqrt())
    }

    /// Pixels of the displayed picture across a line through a point, which goes `along` so many pixels, as a share of
    /// the raw frame's shorter side; by the scale in the middle of the whole line where a step is as long in every
    /// direction.
    pub(crate) fn across(&self, at: [f64; 2], along: [f64; 2], middle: [f64; 2], pixels: f64) -> f32 {
        let ([a, b], [c, d]) = (self.step(at, [1.0, 0.0]), self.step(at, [0.0, 1.0]));
        let area = (a * d - b * c).abs();
        let [x, y] = self.step(at, along);
        let stretch = x.hypot(y) / along[0].hypot(along[1]);
        match stretch.is_finite() && (stretch * stretch / area - 1.0).abs() > 1e-3 {
            true => self.share(pixels * area / stretch),
            false => self.length(middle, pixels),
        }
    }

    /// The length of the raw frame's diagonal in its pixels.
    pub(crate) fn diagonal(&self) -> f64 {
        let [width, height] = self.raw;
        width.hypot(height)
    }
}

/// The base instance of a module, if it is on.
fn active<'a>(state: &'a EditState, op: &str) -> Option<&'a Module> {
    state.module(op, 0).filter(|module| module.enabled)
}

/// A numeric parameter.
pub(crate) fn number(module: &Module, field: &str) -> Option<f64> {
    let Params::Fields(fields) = &module.params else { return None };
    match fields.get(field)? {
        Value::Int(whole) => Some(*whole as f64),
        Value::Float(float) => Some(f64::from(*float)),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A raw of which the picture on show is 300x200, or 200x300 when it lies on its side.
    pub(crate) fn frame(orientation: i64, crop: [f64; 4]) -> Frame {
        Frame {
            raw: [300.0, 200.0],
            margins: [0.0; 4],
            tilt: None,
            orientation: Orientation::from_bits(orientation).unwrap(),
            crop,
        }
    }

    pub(crate) const WHOLE: [f64; 4] = [0.0, 0.0, 1.0, 1.0];

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
    }

    #[test]
    fn points_and_lengths_follow_the_crop_and_the_sensor_margins() {
        let cropped = frame(0, [0.5, 0.0, 1.0, 0.5]);
        assert_eq!(cropped.point([0.5, 0.5]), [0.75, 0.25]);
        assert_eq!(cropped.shown(), DisplayedSize { width: 150.0, height: 100.0 });
        assert!((cropped.length([0.5, 0.5], 50.0) - 0.25).abs() < 1e-6);
        let framed = Frame { raw: [400.0, 200.0], margins: [100.0, 0.0, 0.0, 0.0], ..frame(0, WHOLE) };
        assert_eq!(framed.point([0.0, 1.0]), [0.25, 1.0]);
    }

    #[test]
    fn a_straightened_picture_is_turned_back_about_its_centre() {
        let fields = |name: &str| match name {
            "rotation" => Some(10.0),
            "cr" | "cb" | "aspect" => Some(1.0),
            _ => None,
        };
        let straight = Frame { tilt: Tilt::of(fields, [300.0, 200.0]), ..frame(0, WHOLE) };
        let [x, y] = straight.point([0.5, 0.5]);
        assert!((x - 0.5).abs() < 0.005 && (y - 0.5).abs() < 0.005, "{x} {y}");
        // The corners of the raw stick out of the middles of nothing: the picture on show has grown around them.
        let DisplayedSize { width, height } = straight.shown();
        assert!(width > 325.0 && height > 245.0, "{width} {height}");
        // A step to the right on show is as long on the raw, and turned.
        let [dx, dy] = straight.step([0.3, 0.6], [1.0, 0.0]);
        assert!((dx.hypot(dy) - 1.0).abs() < 1e-6 && (dy.atan2(dx).to_degrees().abs() - 10.0).abs() < 1e-3);
        assert!((straight.length([0.3, 0.6], 20.0) - 0.1).abs() < 1e-6);
    }
}
