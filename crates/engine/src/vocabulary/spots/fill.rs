//! The colour that a place is filled with: that of another place, in the numbers that `retouch` works in.
//!
//! The module runs before exposure and the colour profile. A development that ends there and takes its numbers for
//! linear Rec. 709, the primaries of an sRGB picture, shows exactly these numbers.

use pixels::srgb::LINEAR;

use super::{OP, Spot, SpotAction};
use crate::vocabulary::grey_card::Patch;
use darktable::order;
use darktable::render::Picture;
use darktable::state::{EditState, Params, Value};

/// darktable's number of linear Rec. 709 among the input profiles.
const LINEAR_REC709: i64 = 3;

/// What is kept behind the module: where a place on the displayed picture is, and the way to pixels.
const KEPT: [&str; 6] = ["ashift", "flip", "crop", "colorin", "colorout", "gamma"];

/// The edit whose picture has the numbers of the colours to fill with.
pub fn probe(state: &EditState) -> EditState {
    let mut plain = state.clone();
    let place = |op: &str| order::position(state.order, op);
    plain.modules.retain(|m| place(&m.op) < place(OP) || KEPT.contains(&m.op.as_str()));
    for module in &mut plain.modules {
        if let ("colorin", Params::Fields(fields)) = (module.op.as_str(), &mut module.params) {
            fields.insert("type".into(), Value::Int(LINEAR_REC709));
        }
    }
    plain
}

/// Whether a spot's colour has still to be measured.
pub fn is_wanting(spot: &Spot) -> bool {
    spot.action == SpotAction::Fill && spot.color.is_none()
}

/// Gives each spot that wants one the mean colour around its source, from the picture of [`probe`].
pub fn measure(spots: &mut [Spot], picture: &Picture) {
    let size = [f64::from(picture.width), f64::from(picture.height)];
    for spot in spots.iter_mut().filter(|spot| is_wanting(spot)) {
        let [x, y] = spot.source.unwrap_or_default();
        let half = match &spot.path {
            Some(corners) => super::place::SpotShape::Path(corners.clone()).half_width(size),
            None => spot.radius.unwrap_or(Spot::RADIUS) * size[0].min(size[1]),
        };
        // At least a pixel.
        let place = Patch { center: [x, y], radius: half.max(1.0) / size[0].min(size[1]) };
        let mut sum = [0.0; 3];
        let mut count = 0.0;
        for pixel in place.pixels(picture) {
            count += 1.0;
            for (sum, code) in sum.iter_mut().zip(pixel) {
                *sum += LINEAR.get(usize::from(*code)).copied().unwrap_or_default();
            }
        }
        spot.color = (count > 0.0).then(|| sum.map(|sum| sum / count));
    }
}
