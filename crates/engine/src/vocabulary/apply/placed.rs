//! Changing a masked instance that is there: its values, or its mask.

use std::collections::BTreeMap;

use crate::vocabulary::apply::{Applied, PhotoFacts, Work, finish, renumber, replace};
use crate::vocabulary::error::VocabularyError;
use crate::vocabulary::load::Vocabulary;
use crate::vocabulary::mask::MaskSpec;
use crate::vocabulary::regions::same_place;
use darktable::layout::Layouts;
use darktable::order;
use darktable::state::{EditState, Module};

/// A masked instance that carries a move.
#[derive(Clone, Copy, Debug)]
pub struct PlacedInstance<'a> {
    /// The move's name.
    pub move_name: &'a str,
    /// The module's instance number.
    pub instance: u32,
    /// Its values, as far as they are known.
    pub values: &'a BTreeMap<String, f64>,
}

impl Vocabulary {
    /// Sets other values on a placed move; its mask stays, wherever a later crop has put it. Values that are not given
    /// stay, or take their defaults where they are not known. At neutral values the instance goes.
    ///
    /// # Errors
    /// [`VocabularyError`] says which name or value is not taken, and what would be.
    pub fn set_placed(
        &self,
        at: PlacedInstance<'_>,
        values: &BTreeMap<String, f64>,
        state: &EditState,
        facts: &PhotoFacts,
        layouts: &Layouts,
        darktable_version: &str,
    ) -> Result<Applied, VocabularyError> {
        let PlacedInstance { move_name: name, instance, values: known } = at;
        let work = self.work(name, facts, layouts, darktable_version)?;
        let mut given = known.clone();
        given.extend(values.clone());
        let values = work.entry.resolve(&given)?;
        let mut module = instance_of(state, &work, instance)?.clone();
        let mut new = state.clone();
        if work.entry.is_idle(&values) {
            new.modules.retain(|m| m.op != module.op || m.instance != instance);
            return Ok(work.applied(new, 0, values, None));
        }
        work.set(&mut module, &values, None)?;
        if let Some(blend) = module.blend.as_mut().filter(|_| work.entry.opacity.is_some()) {
            let before = work.entry.resolve(known).map_or(100.0, |known| work.opacity(&known));
            // What the mask itself lets through, in percent, without the rounding of a division.
            let mask = if before > 0.0 { blend.opacity / before * 100.0 } else { 100.0 };
            blend.opacity = (mask * 1e3).round() / 1e3;
            blend.opacity *= work.opacity(&values) / 100.0;
        }
        let mask_id = module.blend.as_ref().and_then(|blend| blend.mask_id);
        replace(&mut new, module);
        Ok(work.applied(new, instance, values, mask_id))
    }

    /// Gives a placed move another mask; its values stay.
    ///
    /// # Errors
    /// [`VocabularyError`] where the mask is not usable, or another instance of the move has it already.
    pub fn replace_mask(
        &self,
        at: PlacedInstance<'_>,
        mask: &MaskSpec,
        state: &EditState,
        facts: &PhotoFacts,
        layouts: &Layouts,
        darktable_version: &str,
    ) -> Result<Applied, VocabularyError> {
        let PlacedInstance { move_name: name, instance, values: known } = at;
        let work = self.work(name, facts, layouts, darktable_version)?;
        let mut module = instance_of(state, &work, instance)?.clone();
        let values = work.entry.resolve(known).unwrap_or_default();
        let (forms, mut blend) = work.masked(mask, state)?;
        blend.opacity *= match (&work.entry.opacity, known.is_empty(), &module.blend) {
            (Some(_), true, Some(old)) => old.opacity / 100.0,
            (Some(_), ..) => work.opacity(&values) / 100.0,
            (None, ..) => 1.0,
        };
        let mask_id = blend.mask_id;
        module.blend = Some(blend);
        let twin = |m: &Module| m.instance > 0 && m.instance != instance && same_place(m, &module);
        if state.modules.iter().any(twin) {
            let reason = format!("another `{name}` has it already: take one of the two back");
            return Err(VocabularyError::Mask(reason));
        }
        let mut new = state.clone();
        replace(&mut new, module);
        new.masks
            .extend(forms.into_iter().filter(|form| !state.masks.iter().any(|known| known.id == form.id)));
        Ok(work.applied(new, instance, if known.is_empty() { BTreeMap::new() } else { values }, mask_id))
    }
}

fn instance_of<'s>(
    state: &'s EditState,
    work: &Work<'_>,
    instance: u32,
) -> Result<&'s Module, VocabularyError> {
    let found = state.module(&work.entry.module, instance).filter(|module| module.name == work.entry.name);
    found.ok_or_else(|| VocabularyError::NothingToRemove {
        selector: format!("`{}` as instance {instance}", work.entry.name),
        present: "others".into(),
    })
}

impl Work<'_> {
    /// Brings a state in order after one instance of the move has changed.
    fn applied(
        &self,
        mut state: EditState,
        instance: u32,
        values: BTreeMap<String, f64>,
        mask_id: Option<i32>,
    ) -> Applied {
        finish(&mut state, self.facts);
        let instance = renumber(&mut state, self.facts, &self.entry.module, instance);
        order::sort(&mut state);
        Applied { state, op: self.entry.module.clone(), instance, values, mask_id }
    }
}
