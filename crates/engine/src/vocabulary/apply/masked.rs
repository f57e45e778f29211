//! A move under a mask: on a separate instance.

use std::collections::BTreeMap;

use crate::vocabulary::apply::{Work, replace};
use crate::vocabulary::error::VocabularyError;
use crate::vocabulary::mask::{Encoded, MaskSpec};
use darktable::blend::Layer;
use darktable::state::{Blend, EditState, MaskForm, Module};

impl Work<'_> {
    /// Returns the instance (before renumbering) and the group of the mask's drawn part, if it has one; instance 0
    /// when nothing is left to mask.
    pub(super) fn apply_masked(
        &self,
        state: &mut EditState,
        values: &BTreeMap<String, f64>,
        idle: bool,
        mask: &MaskSpec,
    ) -> Result<(u32, Option<i32>), VocabularyError> {
        let op = &self.entry.module;
        let (forms, mut blend) = self.masked(mask, state)?;
        blend.opacity *= self.opacity(values) / 100.0;
        // Another strength of the same mask takes the place of the old one.
        let same = |m: &Module| {
            m.op == *op
                && m.instance > 0
                && m.name == self.entry.name
                && m.blend.as_ref().is_some_and(|b| Blend { opacity: blend.opacity, ..b.clone() } == blend)
        };
        let standing = state.modules.iter().position(same).map(|at| state.modules.remove(at));
        if idle {
            return Ok((0, None));
        }
        let instance = match &standing {
            Some(module) => module.instance,
            None => {
                let used = state.modules.iter().filter(|m| m.op == *op).map(|m| m.instance);
                used.max().unwrap_or(0) + 1
            }
        };
        let mut module = match standing {
            Some(module) => module,
            None => self.fresh()?,
        };
        module.instance = instance;
        module.name = self.entry.name.clone();
        let mask_id = blend.mask_id;
        module.blend = Some(blend);
        self.set(&mut module, values, None)?;
        replace(state, module);
        for form in forms {
            if !state.masks.iter().any(|known| known.id == form.id) {
                state.masks.push(form);
            }
        }
        Ok((instance, mask_id))
    }

    /// The blend of an instance under a mask, with the forms of its drawn part.
    pub(super) fn masked(
        &self,
        mask: &MaskSpec,
        state: &EditState,
    ) -> Result<(Vec<MaskForm>, Blend), VocabularyError> {
        if let Some(reason) = self.vocabulary.mask_refusal(self.entry, &self.module) {
            return Err(VocabularyError::NotMaskable { name: self.entry.name.clone(), reason });
        }
        let layer = self.rules.layer;
        let target = (self.entry.module.as_str(), layer.map_or(self.module.blend_colorspace, Layer::space));
        let Encoded { forms, blend } = mask.encode(self.vocabulary.masks(), target, state, self.facts)?;
        Ok((forms, layer.map_or(blend.clone(), |layer| layer.over(blend))))
    }
}
