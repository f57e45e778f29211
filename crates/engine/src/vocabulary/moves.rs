//! A move, its parameters, and the rules of the module that it drives.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::vocabulary::error::VocabularyError;
use crate::vocabulary::form::{Form, Target};
use crate::vocabulary::geometry::WorkedOut;
use darktable::blend::Layer;
use darktable::layout::Layout;
use darktable::params;
use darktable::state::{Module, Params, Value};
use pixels::metrics::axes::Axis;

/// One named edit with parameters.
#[derive(Clone, Debug)]
pub struct Move {
    /// Its name: lower-case letters, digits, underscores.
    pub name: String,
    /// darktable's name of the module that it drives.
    pub module: String,
    /// What it does, in a photographer's words.
    pub description: String,
    /// What it pushes at its default values, and which way: +1 or -1.
    pub axes: BTreeMap<Axis, i8>,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// What can be chosen.
    pub parameters: BTreeMap<String, Parameter>,
    /// The fields that it sets, and to what.
    pub set: BTreeMap<Target, Form>,
    /// The fields whose baseline value it multiplies, and by what.
    pub scale: BTreeMap<Target, Form>,
    /// How strongly the module's result is blended with the picture beneath, 0…100; `None` for wholly.
    pub opacity: Option<Form>,
    /// The fields that it gives one value each. The module carries one move of the kind at a time.
    pub fixed: BTreeMap<Target, Fixed>,
    /// Why more of it does not always go further along its axes; `None` for a move of which it does.
    pub not_monotonic: Option<String>,
    /// The kind of photo on which it shows what it does (`overexposed`, `noisy`…); `None` for any.
    pub shown_on: Option<String>,
    /// The file that defines it.
    pub file: String,
}

/// One parameter of a move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// The unit, such as `EV` or `mired`; empty for a plain number.
    pub unit: String,
    /// The least value.
    pub min: f64,
    /// The greatest value.
    pub max: f64,
    /// The value when none is given.
    pub default: f64,
    /// The value at which the move does nothing.
    #[serde(default)]
    pub neutral: f64,
    /// Whether it only says where the others go (a hue): it does nothing while they are neutral, whatever its value.
    #[serde(default)]
    pub direction: bool,
    /// Whether it takes whole numbers only: a switch, a count, a choice.
    #[serde(default)]
    pub whole: bool,
    /// The values that it takes, by name; empty when every value in the range is one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub choices: BTreeMap<String, i64>,
}

/// What holds for a module whatever move drives it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModuleRules {
    /// The fields that moves drive, each with the value at which it rests; `None` for one that is only ever
    /// multiplied, and so rests at the baseline's own value.
    pub driven: BTreeMap<Target, Option<f64>>,
    /// The fields that moves give one value each.
    pub fixed: BTreeSet<Target>,
    /// Whether a move blends the module's result with the picture beneath: without opacity it is at rest.
    pub fades: bool,
    /// The fields that a fresh instance has other than darktable's defaults.
    pub start: BTreeMap<Target, Constant>,
    /// The group of modules of which one at most is on (the tone mappers).
    pub exclusive: Option<String>,
    /// What has to be worked out beyond what forms can say.
    pub worked_out: Option<WorkedOut>,
    /// Why its moves take no mask, though darktable would let them.
    pub whole_frame: Option<String>,
    /// How an instance is laid over the picture before it; in its place without.
    pub layer: Option<Layer>,
}

/// What a move gives a field.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Fixed {
    /// A text: a file, some words.
    Text(String),
    /// A number: a place, a choice.
    Number(f64),
    /// An array of numbers: a colour.
    List(Vec<f64>),
}

/// A fixed value of a field.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Constant {
    /// A number (enums and switches too).
    Number(f64),
    /// An array from its first element, or from the one that is named; what it leaves out keeps its default.
    List(Vec<f64>),
}

impl ModuleRules {
    /// Every field that a layout must have for the module's moves.
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        self.driven.keys().chain(self.start.keys()).chain(&self.fixed)
    }
}

impl Fixed {
    /// As the field takes it; `None` where it does not fit.
    pub(super) fn value(&self, layout: &Layout, target: &Target) -> Option<Value> {
        let field = layout.field(&target.field).filter(|_| target.index.is_none())?;
        let value = match self {
            Self::Text(text) => Value::Text(text.clone()),
            Self::Number(number) => params::number(layout, field, *number).ok()?,
            Self::List(list) => Value::Floats(list.iter().map(|number| *number as f32 + 0.0).collect()),
        };
        params::check_value(layout, field, &value).ok().map(|()| value)
    }

    /// Whether a field has it.
    fn is(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Text(text), Value::Text(value)) => text == value,
            (Self::Number(number), Value::Float(value)) => *number as f32 == *value,
            (Self::Number(number), Value::Int(value)) => *number == *value as f64,
            (Self::List(list), Value::Floats(values)) => {
                list.len() == values.len() && list.iter().zip(values).all(|(a, b)| *a as f32 == *b)
            }
            _ => false,
        }
    }
}

impl Move {
    /// Whether a module instance carries this move rather than another one of its kind.
    pub(super) fn is_in(&self, module: &Module) -> bool {
        let Params::Fields(fields) = &module.params else { return self.fixed.is_empty() };
        let has = |(target, fixed): (&Target, &Fixed)| fields.get(&target.field).is_some_and(|v| fixed.is(v));
        self.fixed.iter().all(has)
    }

    /// All parameters at their neutral values.
    pub fn neutral(&self) -> BTreeMap<String, f64> {
        self.parameters.iter().map(|(name, p)| (name.clone(), p.neutral)).collect()
    }

    /// All parameters at their default values.
    pub fn defaults(&self) -> BTreeMap<String, f64> {
        self.parameters.iter().map(|(name, p)| (name.clone(), p.default)).collect()
    }

    /// The parameter that says how much of the move there is: the only one that is not a direction. `None` for a
    /// move that several parameters make up.
    pub fn strength(&self) -> Option<(&str, &Parameter)> {
        let mut strengths = self.parameters.iter().filter(|(_, p)| !p.direction);
        match (strengths.next(), strengths.next()) {
            (Some((name, parameter)), None) => Some((name, parameter)),
            _ => None,
        }
    }

    /// Whether these values make the move do nothing.
    pub(crate) fn is_idle(&self, values: &BTreeMap<String, f64>) -> bool {
        self.parameters.iter().all(|(name, p)| p.direction || values.get(name) == Some(&p.neutral))
    }

    /// The given values, completed by defaults.
    ///
    /// # Errors
    /// [`VocabularyError`] for a name that is unknown, or a value that the parameter does not take.
    pub fn resolve(&self, values: &BTreeMap<String, f64>) -> Result<BTreeMap<String, f64>, VocabularyError> {
        let mut resolved = self.defaults();
        for (name, &value) in values {
            let Some(parameter) = self.parameters.get(name) else {
                return Err(VocabularyError::UnknownParameter {
                    name: self.name.clone(),
                    parameter: name.clone(),
                    legal: self.legal(),
                });
            };
            if !(parameter.min..=parameter.max).contains(&value) {
                return Err(VocabularyError::OutOfRange {
                    name: self.name.clone(),
                    parameter: name.clone(),
                    value,
                    min: parameter.min,
                    max: parameter.max,
                    unit: parameter.unit.clone(),
                });
            }
            if parameter.whole && value.fract() != 0.0 || !parameter.takes(value) {
                return Err(VocabularyError::NotAChoice {
                    name: self.name.clone(),
                    parameter: name.clone(),
                    value,
                    legal: parameter.legal(),
                });
            }
            resolved.insert(name.clone(), value);
        }
        Ok(resolved)
    }

    fn legal(&self) -> String {
        let one = |(name, p): (&String, &Parameter)| format!("`{name}` ({})", p.legal());
        self.parameters.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

impl Parameter {
    /// Whether a value in the range is one of the choices, if there are choices; neutral always is.
    fn takes(&self, value: f64) -> bool {
        self.choices.is_empty() || value == self.neutral || self.choices.values().any(|v| *v as f64 == value)
    }

    /// What it takes, in words: `-1 to 1 EV`, or every choice with its number.
    pub fn legal(&self) -> String {
        if self.choices.is_empty() {
            let unit = if self.unit.is_empty() { "" } else { " " };
            let whole = if self.whole { ", whole" } else { "" };
            return format!("{} to {}{unit}{}{whole}", self.min, self.max, self.unit);
        }
        let mut choices: Vec<(i64, &str)> =
            self.choices.iter().map(|(name, v)| (*v, name.as_str())).collect();
        choices.sort_unstable();
        let neutral = (self.neutral as i64, "unchanged");
        if choices.iter().all(|(value, _)| *value != neutral.0) {
            choices.insert(0, neutral);
        }
        choices.iter().map(|(value, name)| format!("{value} {name}")).collect::<Vec<_>>().join(", ")
    }

    /// What is wrong with it, if anything is.
    pub(super) fn fault(&self) -> Option<&'static str> {
        let sound = [self.min, self.max].iter().all(|x| x.is_finite())
            && self.min < self.max
            && (self.min..=self.max).contains(&self.default)
            && (self.min..=self.max).contains(&self.neutral);
        let steps = || [self.min, self.max, self.default, self.neutral].iter().all(|x| x.fract() == 0.0);
        if !sound {
            Some("min < max, with default and neutral between them")
        } else if self.whole && !steps() {
            Some("whole numbers throughout, because it is `whole`")
        } else if !(self.choices.is_empty() || self.whole && self.takes(self.default)) {
            Some("`whole = true` and a default among its choices")
        } else {
            None
        }
    }
}
