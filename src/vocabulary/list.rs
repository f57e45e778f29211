//! The vocabulary as an agent reads it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::darktable::layout::Layouts;
use crate::metrics::axes::Axis;
use crate::vocabulary::error::VocabularyError;
use crate::vocabulary::load::{Move, Parameter, Vocabulary};

/// Which moves to list; what is `None` does not restrict.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter<'a> {
    /// Only moves with this tag.
    pub tag: Option<&'a str>,
    /// Only moves that push this axis, either way.
    pub axis: Option<Axis>,
    /// Only moves of this module.
    pub module: Option<&'a str>,
}

/// One move, as short as it can be understood.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListedMove<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it does.
    pub description: &'a str,
    /// What it pushes at its default values, `+1` or `-1`.
    pub axes: BTreeMap<&'static str, i8>,
    /// What can be chosen.
    pub parameters: BTreeMap<&'a str, ListedParameter<'a>>,
    /// darktable's module.
    pub module: &'a str,
    /// Whether it takes a mask.
    pub maskable: bool,
    /// Words to find it by.
    pub tags: &'a [String],
}

/// One parameter of a listed move.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListedParameter<'a> {
    /// The unit; left out for a plain number.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub unit: &'a str,
    /// The least value.
    pub min: f64,
    /// The greatest value.
    pub max: f64,
    /// The value when none is given.
    pub default: f64,
    /// The value at which the move does nothing; left out for a direction, which does nothing by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub neutral: Option<f64>,
}

impl Vocabulary {
    /// The moves that this darktable has and that the filter lets through, by name.
    pub fn list(
        &self,
        filter: &Filter<'_>,
        layouts: &Layouts,
        darktable_version: &str,
    ) -> Result<Vec<ListedMove<'_>>, VocabularyError> {
        let mut listed = Vec::new();
        for entry in self.moves() {
            let wanted = filter.tag.is_none_or(|tag| entry.tags.iter().any(|t| t == tag))
                && filter.axis.is_none_or(|axis| entry.axes.contains_key(&axis))
                && filter.module.is_none_or(|module| entry.module == module);
            if !wanted {
                continue;
            }
            if let Some((module, _)) = self.layout(entry, layouts, darktable_version)? {
                listed.push(ListedMove::of(entry, self.mask_refusal(entry, &module).is_none()));
            }
        }
        Ok(listed)
    }
}

impl<'a> ListedMove<'a> {
    fn of(entry: &'a Move, maskable: bool) -> Self {
        Self {
            name: &entry.name,
            description: &entry.description,
            axes: entry.axes.iter().map(|(axis, sign)| (axis.name(), *sign)).collect(),
            parameters: entry
                .parameters
                .iter()
                .map(|(name, p)| (name.as_str(), ListedParameter::of(p)))
                .collect(),
            module: &entry.module,
            maskable,
            tags: &entry.tags,
        }
    }
}

impl<'a> ListedParameter<'a> {
    fn of(parameter: &'a Parameter) -> Self {
        Self {
            unit: &parameter.unit,
            min: parameter.min,
            max: parameter.max,
            default: parameter.default,
            neutral: (!parameter.direction).then_some(parameter.neutral),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assets::Overlay;

    #[test]
    fn a_filter_narrows_and_the_installed_darktable_decides() {
        let vocabulary = Vocabulary::load(&Overlay::vocabulary(None)).unwrap();
        let layouts = Layouts::new(Overlay::vocabulary(None));
        let count =
            |filter: Filter<'_>, version: &str| vocabulary.list(&filter, &layouts, version).unwrap().len();
        let all = Filter::default();
        assert_eq!(count(all, "4.2.1"), vocabulary.moves().count());
        assert_eq!(count(all, "5.4.1"), vocabulary.moves().count());
        assert_eq!(count(all, "3.0.0"), 0);
        assert_eq!(count(Filter { module: Some("temperature"), ..all }, "4.2.1"), 2);
        assert_eq!(count(Filter { tag: Some("no such tag"), ..all }, "4.2.1"), 0);
        let warm = vocabulary.list(&Filter { axis: Some(Axis::Warmth), ..all }, &layouts, "4.2.1").unwrap();
        assert!(warm.iter().any(|m| m.name == "warmth" && !m.maskable && m.axes["warmth"] == 1));
        assert!(warm.iter().all(|m| m.axes.contains_key("warmth")));
    }

    #[test]
    fn the_listing_is_compact_json() {
        let vocabulary = Vocabulary::load(&Overlay::vocabulary(None)).unwrap();
        let layouts = Layouts::new(Overlay::vocabulary(None));
        let filter = Filter { module: Some("exposure"), ..Filter::default() };
        let json = serde_json::to_value(vocabulary.list(&filter, &layouts, "4.2.1").unwrap()).unwrap();
        assert_eq!(json[1]["name"], "exposure");
        assert_eq!(
            json[1]["parameters"]["ev"],
            serde_json::json!({"unit": "EV", "min": -3.0, "max": 3.0, "default": 0.5, "neutral": 0.0})
        );
    }
}
