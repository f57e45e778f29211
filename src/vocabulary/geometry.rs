//! What forms cannot say about the frame: turning the picture from how it lies, and the part of a straightened
//! picture that has no empty corners.
//!
//! darktable's `ashift` works on the frame as the sensor saw it, before `flip` turns it for display. Moves speak of
//! the picture as the photo shows it; [`as_seen`] translates.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::darktable::state::Value;
use crate::vocabulary::apply::PhotoFacts;
use crate::vocabulary::form::Target;
use crate::vocabulary::mask::Frame;

/// What has to be worked out for a module when a move sets its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkedOut {
    /// The form says by how many quarter turns clockwise the picture turns from how the photo lies, plus 4 to mirror
    /// it left to right afterwards; the field becomes darktable's orientation.
    Orientation,
    /// The fields are those of the photo as it is shown, and `cl`, `cr`, `ct`, `cb` become the largest upright part
    /// of the photo's own shape without empty corners, which darktable itself works out in its window only.
    Perspective,
    /// The forms of `x` and `y` say how much warmer (in mired) and more magenta (in Duv) the picture becomes; the
    /// fields become the light that does it, under CAT16: see [`crate::vocabulary::illuminant`].
    Illuminant,
}

/// How much smaller than exact the kept part is: interpolation reaches a little over the edge.
const INSIDE: f64 = 0.996;

/// darktable's orientation of the photo turned as `code` says: see [`WorkedOut::Orientation`].
pub(crate) fn turned(facts: &PhotoFacts, code: f64) -> f64 {
    let code = code as u8;
    let turned = facts.orientation_of(&facts.baseline).quarter_turns(code % 4);
    f64::from(if code >= 4 { turned.mirrored() } else { turned }.bits())
}

/// The field of `ashift`, with a sign, that does to the sensor's frame what `target` says of the photo as it is shown.
pub(crate) fn as_seen(target: &Target, facts: &PhotoFacts) -> (Target, f64) {
    let lies = facts.orientation_of(&facts.baseline);
    let sign = |flipped: bool| if flipped { -1.0 } else { 1.0 };
    let field = |name: &str| Target { field: name.to_owned(), index: None };
    match (target.field.as_str(), lies.swaps()) {
        // darktable counts anticlockwise; an odd number of exchanges makes that clockwise.
        ("rotation", swaps) => (target.clone(), -sign(swaps ^ lies.flips_x() ^ lies.flips_y())),
        ("lensshift_v", false) => (target.clone(), sign(lies.flips_y())),
        ("lensshift_h", false) => (target.clone(), sign(lies.flips_x())),
        ("lensshift_v", true) => (field("lensshift_h"), sign(lies.flips_x())),
        ("lensshift_h", true) => (field("lensshift_v"), sign(lies.flips_y())),
        _ => (target.clone(), 1.0),
    }
}

/// Sets the fields of `ashift` that say which part of the result is kept.
pub(crate) fn keep_whole_corners(fields: &mut BTreeMap<String, Value>, facts: &PhotoFacts) {
    let float = |name: &str| match fields.get(name) {
        Some(Value::Float(value)) => f64::from(*value),
        _ => 0.0,
    };
    let warp = Warp {
        size: Frame::of(&facts.baseline, facts).sensor(),
        rotation: float("rotation").to_radians(),
        vertical: float("lensshift_v").exp(),
        horizontal: float("lensshift_h").exp(),
    };
    for (name, value) in ["cl", "cr", "ct", "cb"].into_iter().zip(warp.kept()) {
        fields.insert(name.to_owned(), Value::Float(value as f32));
    }
}

/// What `ashift` does to a frame: a turn about its centre, then a keystone along the height, then one along the width.
struct Warp {
    size: [f64; 2],
    rotation: f64,
    /// By how much the keystone makes the upper edge longer than the lower.
    vertical: f64,
    /// By how much it makes the left edge longer than the right.
    horizontal: f64,
}

impl Warp {
    fn point(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        let [width, height] = self.size;
        let (x, y) = (x - width / 2.0, y - height / 2.0);
        let (sin, cos) = self.rotation.sin_cos();
        let (x, y) = (cos * x + sin * y + width / 2.0, cos * y - sin * x + height / 2.0);
        let [y, x] = keystone([y, x], [height, width], self.vertical);
        keystone([x, y], [width, height], self.horizontal)
    }

    /// Left, right, top, bottom of what is kept, in shares of the box around the whole result.
    fn kept(&self) -> [f64; 4] {
        let [width, height] = self.size;
        let corners = [[0.0, 0.0], [width, 0.0], [width, height], [0.0, height]].map(|at| self.point(at));
        let ends = |axis: usize| {
            let along = corners.map(|corner| if axis == 0 { corner[0] } else { corner[1] });
            (along.iter().copied().fold(f64::MAX, f64::min), along.iter().copied().fold(f64::MIN, f64::max))
        };
        let ((left, right), (top, bottom)) = (ends(0), ends(1));
        let scale = |x: f64, y: f64| scale_within(&corners, [x, y], self.size);
        let best_x = |y: f64| summit(left, right, |x| scale(x, y));
        let y = summit(top, bottom, |y| scale(best_x(y), y));
        let x = best_x(y);
        let half = scale(x, y).max(0.0) * INSIDE / 2.0;
        [
            (x - half * width - left) / (right - left),
            (x + half * width - left) / (right - left),
            (y - half * height - top) / (bottom - top),
            (y + half * height - top) / (bottom - top),
        ]
    }
}

/// Stretches one end of a frame and shrinks the other, `ratio` to 1, keeping its length: the picture of a plane that
/// leans. `at` and `size` are along and across.
fn keystone([along, across]: [f64; 2], [length, breadth]: [f64; 2], ratio: f64) -> [f64; 2] {
    let depth = 1.0 + (ratio - 1.0) * along / length;
    let widening = 2.0 * ratio / (ratio + 1.0);
    [ratio * along / depth, breadth / 2.0 + widening * (across - breadth / 2.0) / depth]
}

/// The scale at which an upright rectangle of that size around a centre just fits between four corners, which go
/// clockwise; negative outside.
fn scale_within(corners: &[[f64; 2]; 4], [x, y]: [f64; 2], [width, height]: [f64; 2]) -> f64 {
    let next = corners.iter().cycle().skip(1);
    let room = corners.iter().zip(next).map(|([ax, ay], [bx, by])| {
        let (inward_x, inward_y) = (ay - by, bx - ax);
        let distance = inward_x * (x - ax) + inward_y * (y - ay);
        2.0 * distance / (inward_x.abs() * width + inward_y.abs() * height)
    });
    room.fold(f64::MAX, f64::min)
}

/// Where a function that rises and then falls is highest; the middle, where it is flat.
fn summit(mut low: f64, mut high: f64, height: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..60 {
        let third = (high - low) / 3.0;
        let (left, right) = (height(low + third), height(high - third));
        // Both ends move where the two are alike, so that a flat top is met in its middle.
        let flat = (left - right).abs() <= 1.0e-12;
        if left < right || flat {
            low += third;
        }
        if right < left || flat {
            high -= third;
        }
    }
    (low + high) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(rotation: f64, vertical: f64, horizontal: f64) -> [f64; 4] {
        let (vertical, horizontal) = (f64::exp(vertical), f64::exp(horizontal));
        Warp { size: [600.0, 400.0], rotation: rotation.to_radians(), vertical, horizontal }.kept()
    }

    #[test]
    fn a_turn_keeps_a_centred_part_of_the_known_size() {
        let [left, right, top, bottom] = kept(5.0, 0.0, 0.0);
        assert!((left + right - 1.0).abs() < 1e-6 && (top + bottom - 1.0).abs() < 1e-6);
        // A frame of w x h turned by a keeps min(w / (w cos a + h sin a), h / (w sin a + h cos a)) of itself.
        let (sin, cos) = 5_f64.to_radians().sin_cos();
        let scale = 400.0 / (600.0 * sin + 400.0 * cos);
        let expected = INSIDE * scale * 600.0 / (600.0 * cos + 400.0 * sin);
        assert!((right - left - expected).abs() < 1e-6, "{left} {right} {expected}");
        assert_eq!(
            kept(-5.0, 0.0, 0.0).map(|x| (x * 1e6).round()),
            kept(5.0, 0.0, 0.0).map(|x| (x * 1e6).round())
        );
    }

    #[test]
    fn what_is_kept_lies_within_the_corners_and_has_the_photos_shape() {
        for (rotation, vertical, horizontal) in
            [(0.0, 0.5, 0.0), (0.0, 0.0, -0.5), (8.0, 0.4, 0.3), (-20.0, -0.6, 0.5)]
        {
            let [left, right, top, bottom] = kept(rotation, vertical, horizontal);
            assert!(
                0.0 <= left && left < right && right <= 1.0 && 0.0 <= top && top < bottom && bottom <= 1.0
            );
            assert!((right - left) > 0.4, "{rotation} {vertical} {horizontal}: {left} {right}");
        }
    }
}
