//! Parameter blocks: named values to bytes and back, by the module's [`Layout`].
//!
//! darktable takes a wrong block without a word: the item is dropped, or the picture is garbage. So whatever
//! is written is checked here. Two degrees: [`encode`] takes every value that the type can hold, because
//! darktable's own histories go beyond the nominal bounds (the border module's default aspect is −1, its
//! minimum 1); [`check_value`] also holds a *new* setting to the bounds and to the enumeration.

use std::collections::BTreeMap;

use crate::layout::{Field, FieldType, Layout};
use crate::state::Value;
use base::error::{Coded, ErrorCode};

/// Every field at its default. Some modules choose other defaults for each picture (white balance, crop…):
/// those come from darktable's own history, not from here.
pub fn defaults(layout: &Layout) -> BTreeMap<String, Value> {
    layout.fields.iter().map(|field| (field.name.clone(), default_of(field))).collect()
}

fn default_of(field: &Field) -> Value {
    #[expect(clippy::cast_possible_truncation, reason = "a layout's defaults are of the field's own type")]
    let (whole, float) = (field.default as i64, no_negative_zero(field.default as f32));
    match (field.kind, field.count) {
        (FieldType::Text, _) => Value::Text(String::new()),
        (FieldType::Float, None) => Value::Float(float),
        (FieldType::Float, Some(count)) => Value::Floats(vec![float; count]),
        (_, None) => Value::Int(whole),
        (_, Some(count)) => Value::Ints(vec![whole; count]),
    }
}

/// The value of the field's own type for a number, checked like [`check_value`]; for scalar fields only.
///
/// # Errors
/// [`ParamError`] for a number that the field does not take.
pub fn number(layout: &Layout, field: &Field, number: f64) -> Result<Value, ParamError> {
    let value = if field.kind == FieldType::Float {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "what overflows becomes infinite, which the check refuses"
        )]
        let narrow = number as f32;
        Value::Float(no_negative_zero(narrow))
    } else if number.fract() == 0.0 && number.abs() < 9.0e15 {
        #[expect(clippy::cast_possible_truncation, reason = "whole and within 53 bits")]
        let whole = number as i64;
        Value::Int(whole)
    } else {
        return Err(type_error(layout, field, format!("the number {number}")));
    };
    check_value(layout, field, &value)?;
    Ok(value)
}

/// Holds a new setting to the field's type, bounds and enumeration.
///
/// # Errors
/// [`ParamError`] names the field, and what it takes.
pub fn check_value(layout: &Layout, field: &Field, value: &Value) -> Result<(), ParamError> {
    check_type(layout, field, value)?;
    match value {
        Value::Float(v) => check_bounds(layout, field, f64::from(*v)),
        Value::Floats(vs) => vs.iter().try_for_each(|v| check_bounds(layout, field, f64::from(*v))),
        Value::Int(v) => check_whole(layout, field, *v),
        Value::Ints(vs) => vs.iter().try_for_each(|v| check_whole(layout, field, *v)),
        Value::Text(_) => Ok(()),
    }
}

fn check_whole(layout: &Layout, field: &Field, value: i64) -> Result<(), ParamError> {
    let allowed = match field.kind {
        FieldType::Bool => value == 0 || value == 1,
        FieldType::Enum => field.values.is_empty() || field.values.values().any(|v| *v == value),
        _ => true,
    };
    if !allowed {
        return Err(ParamError::NotAMember {
            module: layout.op.clone(),
            field: field.name.clone(),
            value,
            legal: if field.kind == FieldType::Bool { "0 or 1".into() } else { members(field) },
        });
    }
    #[expect(clippy::cast_precision_loss, reason = "at most 32 bits: the type was checked")]
    check_bounds(layout, field, value as f64)
}

/// The bounds are compared as `f32`, the type in which darktable states them.
fn check_bounds(layout: &Layout, field: &Field, value: f64) -> Result<(), ParamError> {
    #[expect(clippy::cast_possible_truncation, reason = "see above")]
    let narrow = |bound: f64| if field.kind == FieldType::Float { f64::from(bound as f32) } else { bound };
    if field.min.is_some_and(|min| value < narrow(min)) || field.max.is_some_and(|max| value > narrow(max)) {
        return Err(ParamError::OutOfRange {
            module: layout.op.clone(),
            field: field.name.clone(),
            value,
            legal: legal_range(field),
        });
    }
    Ok(())
}

/// The bounds of a field in words, for messages.
pub(crate) fn legal_range(field: &Field) -> String {
    match (field.min, field.max) {
        (Some(min), Some(max)) => format!("{min} to {max}"),
        (Some(min), None) => format!("at least {min}"),
        (None, Some(max)) => format!("at most {max}"),
        (None, None) => "any".into(),
    }
}

fn members(field: &Field) -> String {
    let mut pairs: Vec<(i64, &str)> =
        field.values.iter().map(|(name, value)| (*value, name.as_str())).collect();
    pairs.sort_unstable();
    pairs.iter().map(|(value, name)| format!("{value} ({name})")).collect::<Vec<_>>().join(", ")
}

/// Holds a value to what the bytes can carry: the type, the length, finiteness, the width of whole numbers.
fn check_type(layout: &Layout, field: &Field, value: &Value) -> Result<(), ParamError> {
    let length = |found: usize| {
        if found == field.len() {
            return Ok(());
        }
        Err(ParamError::Length {
            module: layout.op.clone(),
            field: field.name.clone(),
            expected: field.len(),
            found,
        })
    };
    let finite = |v: &f32| {
        if v.is_finite() {
            return Ok(());
        }
        Err(ParamError::NotFinite { module: layout.op.clone(), field: field.name.clone() })
    };
    let fits = |v: &i64| match field.kind.whole_range() {
        Some((least, most)) if *v < least || *v > most => Err(ParamError::OutOfRange {
            module: layout.op.clone(),
            field: field.name.clone(),
            #[expect(clippy::cast_precision_loss, reason = "for a message")]
            value: *v as f64,
            legal: format!("{least} to {most}"),
        }),
        _ => Ok(()),
    };
    match (field.kind, field.count, value) {
        (FieldType::Text, _, Value::Text(text)) => {
            if text.len() >= field.len() || text.contains('\0') {
                return Err(ParamError::Text {
                    module: layout.op.clone(),
                    field: field.name.clone(),
                    reason: format!("it has to be shorter than {} bytes, without NUL", field.len()),
                });
            }
            Ok(())
        }
        (FieldType::Float, None, Value::Float(v)) => finite(v),
        (FieldType::Float, Some(_), Value::Floats(vs)) => {
            length(vs.len())?;
            vs.iter().try_for_each(finite)
        }
        (FieldType::Float | FieldType::Text, _, other) => Err(type_error(layout, field, describe(other))),
        (_, None, Value::Int(v)) => fits(v),
        (_, Some(_), Value::Ints(vs)) => {
            length(vs.len())?;
            vs.iter().try_for_each(fits)
        }
        (_, _, other) => Err(type_error(layout, field, describe(other))),
    }
}

fn describe(value: &Value) -> String {
    match value {
        Value::Int(v) => format!("the whole number {v}"),
        Value::Float(v) => format!("the float {v}"),
        Value::Ints(vs) => format!("an array of {} whole numbers", vs.len()),
        Value::Floats(vs) => format!("an array of {} floats", vs.len()),
        Value::Text(_) => "a text".into(),
    }
}

fn type_error(layout: &Layout, field: &Field, found: String) -> ParamError {
    let expected = match field.count {
        Some(count) if field.kind != FieldType::Text => {
            format!("{count} values of type {}", field.kind.as_str())
        }
        _ => field.kind.as_str().to_owned(),
    };
    ParamError::Type { module: layout.op.clone(), field: field.name.clone(), expected, found }
}

/// The parameter block: exactly `layout.size` bytes, padding zero. Every field has to be there, no other may be.
///
/// # Errors
/// [`ParamError`] for a field that is missing, unknown, or does not take its value.
pub fn encode(layout: &Layout, values: &BTreeMap<String, Value>) -> Result<Vec<u8>, ParamError> {
    if let Some(unknown) = values.keys().find(|name| layout.field(name).is_none()) {
        return Err(ParamError::Unknown {
            module: layout.op.clone(),
            modversion: layout.modversion,
            field: unknown.clone(),
        });
    }
    let mut bytes = vec![0; layout.size];
    for field in &layout.fields {
        let value = values
            .get(&field.name)
            .ok_or_else(|| ParamError::Missing { module: layout.op.clone(), field: field.name.clone() })?;
        check_type(layout, field, value)?;
        match value {
            Value::Float(v) => put_float(&mut bytes, field, 0, *v),
            Value::Floats(vs) => vs.iter().enumerate().for_each(|(i, v)| put_float(&mut bytes, field, i, *v)),
            Value::Int(v) => put_whole(&mut bytes, field, 0, *v),
            Value::Ints(vs) => vs.iter().enumerate().for_each(|(i, v)| put_whole(&mut bytes, field, i, *v)),
            Value::Text(text) => put(&mut bytes, field.offset, text.as_bytes()),
        }
    }
    Ok(bytes)
}

/// Copies `part` to `at`. The layout was checked on loading, so that it always fits.
fn put(bytes: &mut [u8], at: usize, part: &[u8]) {
    if let Some(target) = bytes.get_mut(at..at + part.len()) {
        target.copy_from_slice(part);
    }
}

fn put_float(bytes: &mut [u8], field: &Field, index: usize, value: f32) {
    let value = if field.nan_when_zero && value == 0.0 { f32::NAN } else { value };
    put(bytes, field.at(index), &value.to_le_bytes());
}

fn put_whole(bytes: &mut [u8], field: &Field, index: usize, value: i64) {
    // Two's complement: the low bytes are right for signed and unsigned alike, once the width was checked.
    let all = value.to_le_bytes();
    put(bytes, field.at(index), all.get(..field.kind.size()).unwrap_or(&all));
}

/// Every field of a parameter block. Padding, and what follows a text's NUL, is ignored.
///
/// # Errors
/// `NotFinite` and `Text` mean that the block is of the right size but holds a value that a state
/// cannot: such a block is kept whole instead.
pub fn decode(layout: &Layout, bytes: &[u8]) -> Result<BTreeMap<String, Value>, ParamError> {
    if bytes.len() != layout.size {
        return Err(ParamError::Size {
            module: layout.op.clone(),
            modversion: layout.modversion,
            expected: layout.size,
            found: bytes.len(),
        });
    }
    let mut values = BTreeMap::new();
    for field in &layout.fields {
        let float = |index: usize| {
            let value = f32::from_le_bytes(take(bytes, field.at(index)));
            match value.is_finite() {
                true => Ok(no_negative_zero(value)),
                false if field.nan_when_zero => Ok(0.0),
                false => Err(ParamError::NotFinite { module: layout.op.clone(), field: field.name.clone() }),
            }
        };
        let value = match (field.kind, field.count) {
            (FieldType::Text, _) => Value::Text(text(layout, field, bytes)?),
            (FieldType::Float, None) => Value::Float(float(0)?),
            (FieldType::Float, Some(count)) => {
                Value::Floats((0..count).map(float).collect::<Result<_, _>>()?)
            }
            (_, None) => Value::Int(whole(bytes, field, 0)),
            (_, Some(count)) => Value::Ints((0..count).map(|i| whole(bytes, field, i)).collect()),
        };
        values.insert(field.name.clone(), value);
    }
    Ok(values)
}

/// The `N` bytes at `at`; zeros where there are none, which a checked layout never asks for.
fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

fn whole(bytes: &[u8], field: &Field, index: usize) -> i64 {
    let at = field.at(index);
    match field.kind {
        FieldType::Uint => u32::from_le_bytes(take(bytes, at)).into(),
        FieldType::Ushort => u16::from_le_bytes(take(bytes, at)).into(),
        FieldType::Int8 => i8::from_le_bytes(take(bytes, at)).into(),
        _ => i32::from_le_bytes(take(bytes, at)).into(),
    }
}

fn text(layout: &Layout, field: &Field, bytes: &[u8]) -> Result<String, ParamError> {
    let error = |reason: &str| ParamError::Text {
        module: layout.op.clone(),
        field: field.name.clone(),
        reason: reason.into(),
    };
    let buffer = bytes.get(field.offset..field.offset + field.len()).unwrap_or_default();
    let end = buffer.iter().position(|b| *b == 0).ok_or_else(|| error("it has no final NUL"))?;
    let text =
        std::str::from_utf8(buffer.get(..end).unwrap_or_default()).map_err(|_| error("it is not UTF-8"))?;
    Ok(text.to_owned())
}

/// `-0.0` would be a second name for the same state.
pub(crate) fn no_negative_zero(value: f32) -> f32 {
    if value == 0.0 { 0.0 } else { value }
}

/// Why parameters cannot be written or read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ParamError {
    /// The layout has a field for which there is no value.
    #[error("`{module}` lacks a value for `{field}`")]
    Missing {
        /// The module.
        module: String,
        /// The field.
        field: String,
    },
    /// There is a value for which the layout has no field.
    #[error("`{module}` version {modversion} has no field `{field}`")]
    Unknown {
        /// The module.
        module: String,
        /// The version of the layout.
        modversion: u32,
        /// The name that was given.
        field: String,
    },
    /// The value is of another type than the field.
    #[error("`{module}.{field}` takes {expected}, not {found}")]
    Type {
        /// The module.
        module: String,
        /// The field.
        field: String,
        /// What the field takes.
        expected: String,
        /// What was given.
        found: String,
    },
    /// An array has the wrong number of elements.
    #[error("`{module}.{field}` takes {expected} values, not {found}")]
    Length {
        /// The module.
        module: String,
        /// The field.
        field: String,
        /// Elements wanted.
        expected: usize,
        /// Elements given.
        found: usize,
    },
    /// NaN or an infinity.
    #[error("`{module}.{field}` is not a finite number")]
    NotFinite {
        /// The module.
        module: String,
        /// The field.
        field: String,
    },
    /// Beyond the field's bounds, or those of its type.
    #[error("`{module}.{field}` cannot be {value}: the legal range is {legal}")]
    OutOfRange {
        /// The module.
        module: String,
        /// The field.
        field: String,
        /// What was given.
        value: f64,
        /// The bounds in words.
        legal: String,
    },
    /// Not a value of the enumeration.
    #[error("`{module}.{field}` cannot be {value}: it is one of {legal}")]
    NotAMember {
        /// The module.
        module: String,
        /// The field.
        field: String,
        /// What was given.
        value: i64,
        /// The values with their names.
        legal: String,
    },
    /// A text is too long, not UTF-8 or not terminated.
    #[error("the text `{module}.{field}` cannot be used: {reason}")]
    Text {
        /// The module.
        module: String,
        /// The field.
        field: String,
        /// What is wrong.
        reason: String,
    },
    /// The block has the wrong number of bytes.
    #[error("`{module}` version {modversion} has {expected} bytes of parameters, not {found}")]
    Size {
        /// The module.
        module: String,
        /// The version of the layout.
        modversion: u32,
        /// Bytes wanted.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
}

impl Coded for ParamError {
    fn code(&self) -> ErrorCode {
        ErrorCode::SynthesizerError
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::OutOfRange { legal, .. } => Some(format!("choose a value in the legal range: {legal}")),
            Self::NotAMember { legal, .. } => Some(format!("choose one of {legal}")),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::layout::Layouts;
    use base::assets::Overlay;

    fn layout(op: &str, modversion: u32) -> Layout {
        let layouts = Layouts::new(Overlay::vocabulary(None));
        layouts.module(op).unwrap().unwrap().version(modversion).unwrap().clone()
    }

    fn check(op: &str, version: u32, field: &str, value: &Value) -> Result<(), ParamError> {
        let layout = layout(op, version);
        check_value(&layout, layout.field(field).unwrap(), value)
    }

    #[test]
    fn darktables_own_exposure_block_reads_and_writes_back() {
        // Out of a default sidecar of 4.2.1.
        let bytes = hex("00000000000080b93333333f00004842000080c001000000");
        let layout = layout("exposure", 6);
        let values = decode(&layout, &bytes).unwrap();
        assert_eq!(values["exposure"], Value::Float(0.7));
        assert_eq!(values["compensate_exposure_bias"], Value::Int(1));
        assert_eq!(encode(&layout, &values).unwrap(), bytes);
    }

    #[test]
    fn the_unused_fourth_coefficient_is_nan_in_darktable_and_zero_here() {
        let bytes = hex("000000400000803fcdcccc3f0000c07f");
        let layout = layout("temperature", 3);
        let values = decode(&layout, &bytes).unwrap();
        assert_eq!((&values["red"], &values["g2"]), (&Value::Float(2.0), &Value::Float(0.0)));
        assert_eq!(encode(&layout, &values).unwrap(), bytes);
    }

    #[test]
    fn every_default_of_every_module_round_trips() {
        let layouts = Layouts::new(Overlay::vocabulary(None));
        for name in layouts.names() {
            for layout in &layouts.module(&name).unwrap().unwrap().versions {
                let values = defaults(layout);
                let bytes = encode(layout, &values).unwrap();
                assert_eq!(decode(layout, &bytes).unwrap(), values, "{name}");
            }
        }
    }

    #[test]
    fn what_is_new_is_held_to_the_bounds_and_what_darktable_wrote_is_not() {
        assert!(check("exposure", 6, "exposure", &Value::Float(18.0)).is_ok());
        let error = check("exposure", 6, "exposure", &Value::Float(18.1)).unwrap_err();
        assert!(error.to_string().ends_with("the legal range is -18 to 18"), "{error}");
        // The default is below the minimum; that is darktable's business.
        assert!(check("borders", 3, "aspect", &Value::Float(-1.0)).is_err());
        let borders = layout("borders", 3);
        assert!(encode(&borders, &defaults(&borders)).is_ok());
        // A bound that is not exact in binary is legal itself.
        assert!(check("defringe", 1, "thresh", &Value::Float(0.5)).is_ok());
        assert!(check("lens", 6, "tca_r", &Value::Float(0.99)).is_ok());
    }

    #[test]
    fn wrong_values_are_refused_by_kind() {
        let float = Value::Float(1.0);
        assert!(matches!(check("exposure", 6, "mode", &float), Err(ParamError::Type { .. })));
        assert!(matches!(check("exposure", 6, "exposure", &Value::Int(1)), Err(ParamError::Type { .. })));
        assert!(matches!(check("exposure", 6, "mode", &Value::Int(2)), Err(ParamError::NotAMember { .. })));
        let bias = "compensate_exposure_bias";
        assert!(matches!(check("exposure", 6, bias, &Value::Int(2)), Err(ParamError::NotAMember { .. })));
        for bad in [f32::NAN, f32::INFINITY] {
            let error = check("exposure", 6, "exposure", &Value::Float(bad)).unwrap_err();
            assert!(matches!(error, ParamError::NotFinite { .. }), "{error}");
        }
        let short = Value::Floats(vec![0.0; 3]);
        assert!(matches!(check("channelmixerrgb", 3, "red", &short), Err(ParamError::Length { .. })));
        let white = Value::Int(65_536);
        assert!(matches!(
            check("rawprepare", 2, "raw_white_point", &white),
            Err(ParamError::OutOfRange { .. })
        ));
        let long = Value::Text("x".repeat(512));
        assert!(matches!(check("colorin", 7, "filename", &long), Err(ParamError::Text { .. })));
    }

    #[test]
    fn numbers_take_the_fields_type() {
        let layout = layout("exposure", 6);
        let of = |name: &str, n: f64| number(&layout, layout.field(name).unwrap(), n);
        assert_eq!(of("exposure", 0.5), Ok(Value::Float(0.5)));
        assert_eq!(of("mode", 1.0), Ok(Value::Int(1)));
        assert!(of("mode", 0.5).is_err());
        assert!(of("exposure", f64::NAN).is_err());
        assert!(of("exposure", 1e300).is_err());
    }

    #[test]
    fn blocks_of_the_wrong_size_and_incomplete_values_are_refused() {
        let layout = layout("exposure", 6);
        assert!(matches!(decode(&layout, &[0; 20]), Err(ParamError::Size { expected: 24, found: 20, .. })));
        let mut values = defaults(&layout);
        values.insert("extra".into(), Value::Int(0));
        assert!(matches!(encode(&layout, &values), Err(ParamError::Unknown { .. })));
        values.remove("extra");
        values.remove("mode");
        assert!(matches!(encode(&layout, &values), Err(ParamError::Missing { .. })));
    }

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Any bytes either read and write back to the same values, or are refused.
        #[test]
        fn any_block_reads_to_what_it_writes(
            op in prop::sample::select(vec!["exposure", "retouch", "liquify", "lens", "rawprepare", "tonecurve", "shadhi"]),
            seed in prop::collection::vec(any::<u8>(), 64),
        ) {
            let layouts = Layouts::new(Overlay::vocabulary(None));
            let module = layouts.module(op).unwrap().unwrap();
            let layout = module.lowest().unwrap();
            let bytes: Vec<u8> = seed.iter().cycle().take(layout.size).copied().collect();
            match decode(layout, &bytes) {
                Ok(values) => {
                    let again = encode(layout, &values).unwrap();
                    prop_assert_eq!(decode(layout, &again).unwrap(), values);
                }
                Err(ParamError::NotFinite { .. } | ParamError::Text { .. }) => {}
                Err(other) => prop_assert!(false, "{}", other),
            }
        }

        /// Values survive the way through JSON, where a state is kept.
        #[test]
        fn a_state_s_numbers_survive_json(ev in -18f32..18.0, mode in 0i64..2) {
            let layout = layout("exposure", 6);
            let mut values = defaults(&layout);
            values.insert("exposure".into(), Value::Float(no_negative_zero(ev)));
            values.insert("mode".into(), Value::Int(mode));
            let text = serde_json::to_string(&values).unwrap();
            let back: BTreeMap<String, Value> = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(encode(&layout, &back).unwrap(), encode(&layout, &values).unwrap());
        }
    }
}
