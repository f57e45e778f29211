//! Masks: where a move acts, as an agent writes it on the picture that it sees, and its way to darktable.
//!
//! [`spec`](MaskSpec) is the written mask, `check` checks its ranges, `combine` turns it into what one module
//! instance can do, `shapes`, `ellipse` and `frame` bring what is drawn to the raw frame, through a `projection` that `tilt` has a part in, `ranges` and `tone` bring tones
//! and colours to a module's channels, `object` finds things in a picture, `named` are the masks of the vocabulary, `shown` makes one visible. `docs/masks.md` is the manual.

mod check;
mod combine;
mod ellipse;
mod frame;
mod named;
mod object;
mod projection;
mod ranges;
mod shapes;
mod shown;
mod spec;
mod tilt;
mod tone;

pub(crate) use ellipse::Ellipse;
pub(crate) use frame::Frame;
pub use named::{ListedMask, NamedMask, NamedMasks};
pub use object::{OBJECT_EDGE, ObjectSpec, sought_in};
pub(crate) use projection::Projection;
pub(crate) use shapes::Drawn;
pub use shown::{MaskProbe, ShownMask};
pub use spec::MaskSpec;
pub(crate) use tilt::warp;

use crate::vocabulary::apply::PhotoFacts;
use crate::vocabulary::error::VocabularyError;
use darktable::blend;
use darktable::layout::BlendSpace;
use darktable::state::{Blend, EditState, MaskForm};
use ranges::MIDDLE;
use tone::Tones;

/// A mask in darktable's terms.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Encoded {
    /// The forms of its drawn part.
    pub forms: Vec<MaskForm>,
    /// The blend parameters of an instance that uses it.
    pub blend: Blend,
}

impl MaskSpec {
    /// The mask for a module of that name and blend space, on this state of the photo.
    pub(crate) fn encode(
        &self,
        named: &NamedMasks,
        (op, space): (&str, BlendSpace),
        state: &EditState,
        facts: &PhotoFacts,
    ) -> Result<Encoded, VocabularyError> {
        let checked = self.check(named)?;
        let compiled = checked.mask.compile()?;
        let frame = Frame::of(state, facts);
        let tones = Tones::of(&facts.baseline, op);
        let mut blend = blend::normal(space);
        let mut forms = Vec::new();
        blend.mask_id = compiled.drawn.map(|drawn| drawn.forms(&frame, &mut forms));
        // Ranges that add to each other say nothing of each other.
        let about = compiled.ranges.iter().filter(|_| !compiled.inclusive);
        let seen = about.filter_map(|chosen| chosen.range.middle(chosen.inverted)).next().unwrap_or(MIDDLE);
        for chosen in compiled.ranges {
            let (channel, mut range) = chosen.range.channel(space, &tones, seen).ok_or_else(|| {
                VocabularyError::Mask(format!(
                    "module {op} works on sensor values, which have no {}; use a shape, or another move",
                    chosen.range.kind.name()
                ))
            })?;
            range.inverted ^= chosen.inverted;
            blend.ranges.insert(channel, range);
        }
        if compiled.inclusive {
            blend.combine |= blend::INCLUSIVE;
        }
        blend.opacity = (checked.mask.opacity * 100.0) as f32;
        let short = frame.shown().short();
        let pixels = |name: &str, share: f64, most: f64| match (share * short).round() {
            pixels if pixels <= most => Ok(pixels as f32),
            pixels => Err(VocabularyError::Mask(format!(
                "`{name}` {share} is {pixels} pixels of this photo; darktable goes up to {most}"
            ))),
        };
        blend.feathering_radius = pixels("refine", checked.refine, 250.0)?;
        blend.mask_blur = pixels("blur", checked.blur, 100.0)?;
        blend::check(&blend).map_err(|error| VocabularyError::Mask(error.to_string()))?;
        Ok(Encoded { forms, blend })
    }
}

#[cfg(test)]
mod tests;
