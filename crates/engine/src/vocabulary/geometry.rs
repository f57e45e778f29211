//! What forms cannot say about the frame: turning the picture from how it lies, and the part of a straightened
//! picture that has no empty corners.
//!
//! darktable's `ashift` works on the frame as the sensor saw it, before `flip` turns it for display. Moves speak of
//! the picture as the photo shows it; [`as_seen`] translates.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::vocabulary::apply::PhotoFacts;
use crate::vocabulary::form::Target;
use crate::vocabulary::mask::{Frame, Projection, warp};
use darktable::state::Value;

/// What has to be worked out for a module when a move sets its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkedOut {
    /// The form says by how many quarter turns clockwise the picture turns from how the photo lies, plus 4 to mirror
    /// it left to right afterwards; the field becomes darktable's orientation.
    Orientation,
    /// The fields are those of the photo as it is shown, and `cl`, `cr`, `ct`, `cb` become the largest upright part
    /// without empty corners, which darktable itself works out in its window only.
    Perspective,
    /// The fields say of one place on the displayed picture what is done there; the module holds many: see
    /// [`crate::vocabulary::warps`].
    Warp,
    /// The forms of `x` and `y` say how much warmer (in mired) and more magenta (in Duv) the picture becomes; the
    /// fields become the light that does it, under CAT16: see [`crate::vocabulary::illuminant`].
    Illuminant,
    /// The fields say what is corrected; by which lens, where the file's own does not do, is worked out: see
    /// [`crate::vocabulary::lens`].
    Lens,
}

/// How much smaller than exact the kept part is: interpolation reaches a little over the edge.
const INSIDE: f64 = 0.996;

/// The field that keeps the requested ratio, taken from what it is at rest: darktable reads it with its
/// specific lens model only, and moves use the generic one.
const RATIO: &str = "orthocorr";
const RATIO_AT_REST: f64 = 100.0;

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
        // About the upper left corner of the sensor's frame: how it adds up with a keystone depends on where that is.
        ("shear", _) => (target.clone(), sign(lies.flips_x() ^ lies.flips_y())),
        ("lensshift_v", false) => (target.clone(), sign(lies.flips_y())),
        ("lensshift_h", false) => (target.clone(), sign(lies.flips_x())),
        ("lensshift_v", true) => (field("lensshift_h"), sign(lies.flips_x())),
        ("lensshift_h", true) => (field("lensshift_v"), sign(lies.flips_y())),
        _ => (target.clone(), 1.0),
    }
}

/// Sets the fields of `ashift` that say which part of the result is kept: one without empty corners, of the photo's own
/// shape or of the requested one.
pub(crate) fn keep_whole_corners(fields: &mut BTreeMap<String, Value>, facts: &PhotoFacts) {
    let float = |name: &str| match fields.get(name) {
        Some(Value::Float(value)) => Some(f64::from(*value)),
        _ => None,
    };
    let size = Frame::of(&facts.baseline, facts).sensor();
    let ratio = float(RATIO).map_or(0.0, |value| RATIO_AT_REST - value);
    let shape = match ratio {
        ratio if ratio <= 0.0 => size,
        ratio => facts.orientation_of(&facts.baseline).turned([ratio, 1.0]),
    };
    let kept = match warp(float, size) {
        Some(map) => kept(&map, size, shape, INSIDE),
        None => kept(&Projection::shift(0.0, 0.0), size, shape, 1.0),
    };
    for (name, value) in ["cl", "cr", "ct", "cb"].into_iter().zip(kept) {
        fields.insert(name.to_owned(), Value::Float(value as f32));
    }
}

/// Left, right, top, bottom of the largest upright part of that shape in a picture that `map` has warped, about the
/// middle of the largest part of the picture's own shape; in shares of the box around the whole result, and `inside`
/// times as long as exact.
fn kept(map: &Projection, [width, height]: [f64; 2], shape: [f64; 2], inside: f64) -> [f64; 4] {
    let corners = [[0.0, 0.0], [width, 0.0], [width, height], [0.0, height]].map(|at| map.point(at));
    let ends = |axis: usize| {
        let along = corners.map(|corner| if axis == 0 { corner[0] } else { corner[1] });
        (along.iter().copied().fold(f64::MAX, f64::min), along.iter().copied().fold(f64::MIN, f64::max))
    };
    let ((left, right), (top, bottom)) = (ends(0), ends(1));
    let scale = |x: f64, y: f64| scale_within(&corners, [x, y], [width, height]);
    let best_x = |y: f64| summit(left, right, |x| scale(x, y));
    let y = summit(top, bottom, |y| scale(best_x(y), y));
    let x = best_x(y);
    let half = scale_within(&corners, [x, y], shape).max(0.0) * inside / 2.0;
    [
        (x - half * shape[0] - left) / (right - left),
        (x + half * shape[0] - left) / (right - left),
        (y - half * shape[1] - top) / (bottom - top),
        (y + half * shape[1] - top) / (bottom - top),
    ]
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

    const SIZE: [f64; 2] = [600.0, 400.0];

    fn part(fields: &[(&str, f64)], shape: [f64; 2]) -> [f64; 4] {
        let field = |name: &str| fields.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        kept(&warp(field, SIZE).unwrap(), SIZE, shape, INSIDE)
    }

    #[test]
    fn a_turn_keeps_a_centred_part_of_the_known_size() {
        let [left, right, top, bottom] = part(&[("rotation", 5.0)], SIZE);
        assert!((left + right - 1.0).abs() < 1e-6 && (top + bottom - 1.0).abs() < 1e-6);
        // A frame of w x h turned by a keeps min(w / (w cos a + h sin a), h / (w sin a + h cos a)) of itself.
        let (sin, cos) = 5_f64.to_radians().sin_cos();
        let scale = 400.0 / (600.0 * sin + 400.0 * cos);
        let expected = INSIDE * scale * 600.0 / (600.0 * cos + 400.0 * sin);
        assert!((right - left - expected).abs() < 1e-6, "{left} {right} {expected}");
        let back = part(&[("rotation", -5.0)], SIZE).map(|x| (x * 1e6).round());
        assert_eq!(back, part(&[("rotation", 5.0)], SIZE).map(|x| (x * 1e6).round()));
    }

    #[test]
    fn what_is_kept_lies_within_the_corners() {
        for (rotation, vertical, horizontal, shear) in
            [(0.0, 0.5, 0.0, 0.0), (0.0, 0.0, -0.5, 0.1), (8.0, 0.4, 0.3, 0.0), (-20.0, -0.6, 0.5, -0.2)]
        {
            let fields = [
                ("rotation", rotation),
                ("lensshift_v", vertical),
                ("lensshift_h", horizontal),
                ("shear", shear),
            ];
            for shape in [SIZE, [1.0, 1.0], [1.0, 2.0]] {
                let [left, right, top, bottom] = part(&fields, shape);
                assert!(
                    0.0 <= left
                        && left < right
                        && right <= 1.0
                        && 0.0 <= top
                        && top < bottom
                        && bottom <= 1.0
                );
                assert!(bottom - top > 0.3, "{fields:?} {shape:?}: {top} {bottom}");
            }
        }
    }

    #[test]
    fn a_ratio_alone_is_the_middle_of_the_photo_to_its_edges() {
        let still = Projection::shift(0.0, 0.0);
        let rounded = |shape| kept(&still, SIZE, shape, 1.0).map(|x| (x * 1e9).round() / 1e9);
        assert_eq!(rounded([1.5, 1.0]), [0.0, 1.0, 0.0, 1.0]);
        assert_eq!(
            rounded([1.0, 1.0]),
            [1.0 / 6.0, 5.0 / 6.0, 0.0, 1.0].map(|x: f64| (x * 1e9).round() / 1e9)
        );
        assert_eq!(rounded([2.0, 1.0]), [0.0, 1.0, 0.125, 0.875]);
    }
}
