//! The table of darktable's `retouch`: one row per spot, in columns of equal length.

use std::collections::BTreeMap;

use super::{MOST, OP};
use crate::vocabulary::error::VocabularyError;
use darktable::forms;
use darktable::state::{GroupMember, MaskForm, Module, Params, Value};

/// A spot of a photo: its form, and its row in the module's table.
pub(super) struct Row {
    pub(super) form: MaskForm,
    pub(super) opacity: f32,
    pub(super) cells: BTreeMap<String, Value>,
}

/// The table's columns; each field of the module that begins so is a list with a place for every spot.
const TABLE: &str = "rt_forms.";

/// The spots of an instance, in the order in which they are retouched.
pub(super) fn rows(module: &Module, masks: &[MaskForm]) -> Result<Vec<Row>, VocabularyError> {
    let Params::Fields(fields) = &module.params else {
        let (name, module, version) = ("apply_spot".into(), OP.into(), module.modversion);
        return Err(VocabularyError::OldModule { name, module, version });
    };
    let Some(Value::Ints(ids)) = fields.get("rt_forms.formid") else { return Ok(Vec::new()) };
    let form = |id: i32| masks.iter().find(|form| form.id == id);
    let group = module.blend.as_ref().and_then(|blend| form(blend.mask_id?));
    let members = group.map(forms::members).unwrap_or_default();
    let row = |member: GroupMember| {
        let place = ids.iter().position(|id| *id == i64::from(member.form))?;
        let cells = fields.iter().filter(|(name, _)| name.starts_with(TABLE)).map(|(name, value)| {
            let cell = match value {
                Value::Ints(list) => Value::Ints(cells(list, place).to_vec()),
                Value::Floats(list) => Value::Floats(cells(list, place).to_vec()),
                other => other.clone(),
            };
            (name.clone(), cell)
        });
        Some(Row { form: form(member.form)?.clone(), opacity: member.opacity, cells: cells.collect() })
    };
    Ok(members.into_iter().filter_map(row).collect())
}

/// A row's part of a column.
fn cells<T>(list: &[T], place: usize) -> &[T] {
    let width = list.len() / MOST;
    list.get(place * width..(place + 1) * width).unwrap_or_default()
}

/// Writes the table again.
pub(super) fn write(module: &mut Module, rows: &[Row]) {
    fn fill<'a, T: Copy + Default + 'a>(list: &mut [T], rows: impl Iterator<Item = Option<&'a Vec<T>>>) {
        let width = (list.len() / MOST).max(1);
        list.fill(T::default());
        for (place, row) in list.chunks_mut(width).zip(rows) {
            place.iter_mut().zip(row.into_iter().flatten()).for_each(|(cell, value)| *cell = *value);
        }
    }
    let Params::Fields(fields) = &mut module.params else { return };
    for (name, value) in fields.iter_mut().filter(|(name, _)| name.starts_with(TABLE)) {
        match value {
            Value::Ints(list) => fill(
                list,
                rows.iter().map(|row| match row.cells.get(name) {
                    Some(Value::Ints(cells)) => Some(cells),
                    _ => None,
                }),
            ),
            Value::Floats(list) => fill(
                list,
                rows.iter().map(|row| match row.cells.get(name) {
                    Some(Value::Floats(cells)) => Some(cells),
                    _ => None,
                }),
            ),
            _ => {}
        }
    }
}
