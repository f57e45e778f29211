//! The vocabulary as an agent reads it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use serde::Serialize;

use crate::vocabulary::error::VocabularyError;
use crate::vocabulary::load::Vocabulary;
use crate::vocabulary::looks::{Look, STRENGTH};
use crate::vocabulary::moves::{Move, Parameter};
use darktable::layout::Layouts;
use pixels::metrics::axes::Axis;

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

impl Filter<'_> {
    /// With the tag that a usual abbreviation stands for.
    fn plain(self) -> Self {
        let tag = self.tag.map(|tag| match tag {
            "wb" | "WB" | "white-balance" | "white balance" => "white_balance",
            _ => tag,
        });
        Self { tag, ..self }
    }
}

/// One move or look, with all that there is to choose.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListedMove<'a> {
    /// Its name.
    pub name: &'a str,
    /// `move` or `look`.
    pub kind: &'static str,
    /// What it does.
    pub description: &'a str,
    /// What it pushes at its default values, `+1` or `-1`.
    pub axes: BTreeMap<&'static str, i8>,
    /// What can be chosen.
    pub parameters: BTreeMap<&'a str, ListedParameter<'a>>,
    /// darktable's module; empty, and left out, for a look.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub module: &'a str,
    /// What it is listed under: the name of its file.
    #[serde(skip)]
    pub group: &'a str,
    /// The moves of a look with their values at full strength; empty, and left out, for a move.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moves: Option<&'a BTreeMap<String, BTreeMap<String, f64>>>,
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
    /// Whether it takes whole numbers only; left out if not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
    /// The values that it takes, by name; left out if all are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choices: Option<&'a BTreeMap<String, i64>>,
}

impl Vocabulary {
    /// The moves that this darktable has and that the filter lets through, by name.
    ///
    /// # Errors
    /// [`VocabularyError`], if the layouts of darktable cannot be read.
    pub fn list(
        &self,
        filter: &Filter<'_>,
        layouts: &Layouts,
        darktable_version: &str,
    ) -> Result<Vec<ListedMove<'_>>, VocabularyError> {
        let mut listed = Vec::new();
        let filter = filter.plain();
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

    /// The looks of which this darktable has every module and that the filter lets through, by name.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub fn list_looks(
        &self,
        filter: &Filter<'_>,
        layouts: &Layouts,
        darktable_version: &str,
    ) -> Result<Vec<ListedMove<'_>>, VocabularyError> {
        let mut listed = Vec::new();
        let filter = filter.plain();
        for look in self.looks() {
            let mut wanted = filter.tag.is_none_or(|tag| look.tags.iter().any(|t| t == tag))
                && filter.axis.is_none_or(|axis| look.axes.contains_key(&axis))
                && filter.module.is_none();
            let mut maskable = true;
            for name in look.moves.keys() {
                let entry = self.get(name)?;
                match self.layout(entry, layouts, darktable_version)? {
                    Some((module, _)) => maskable &= self.mask_refusal(entry, &module).is_none(),
                    None => wanted = false,
                }
            }
            if wanted {
                listed.push(ListedMove::of_look(look, maskable));
            }
        }
        Ok(listed)
    }
}

impl<'a> ListedMove<'a> {
    fn of(entry: &'a Move, maskable: bool) -> Self {
        Self {
            name: &entry.name,
            kind: "move",
            description: &entry.description,
            axes: named(&entry.axes),
            parameters: entry
                .parameters
                .iter()
                .map(|(name, p)| (name.as_str(), ListedParameter::of(p)))
                .collect(),
            module: &entry.module,
            group: group(&entry.file),
            moves: None,
            maskable,
            tags: &entry.tags,
        }
    }

    fn of_look(look: &'a Look, maskable: bool) -> Self {
        Self {
            name: &look.name,
            kind: "look",
            description: &look.description,
            axes: named(&look.axes),
            parameters: BTreeMap::from([(STRENGTH, ListedParameter::strength())]),
            module: "",
            group: group(&look.file),
            moves: Some(&look.moves),
            maskable,
            tags: &look.tags,
        }
    }

    /// One line: `name(parameter least..greatest unit = default): what it does`. A `!` after the name says that it
    /// takes no mask.
    pub fn line(&self) -> String {
        format!("{}({}): {}", self.marked(), self.choices(), self.description)
    }

    /// The name, with a `!` if it takes no mask.
    pub(super) fn marked(&self) -> String {
        format!("{}{}", self.name, if self.maskable { "" } else { "!" })
    }

    /// The same in fewer words, `±` for a range about 0 and without the name `amount`.
    pub(super) fn choices_in_short(&self) -> String {
        let words = |(name, p): (&&str, &ListedParameter<'_>)| {
            let mut words = p.words(name);
            if p.choices.is_none() && p.min == -p.max {
                words = words.replace(&format!("{}..{}", p.min, p.max), &format!("±{}", p.max));
            }
            let words = words.replace(" = ", "=");
            words.strip_prefix("amount ").unwrap_or(&words).to_owned()
        };
        self.parameters.iter().map(words).collect::<Vec<_>>().join(", ")
    }

    /// The parameters with range and default.
    pub(super) fn choices(&self) -> String {
        let parameters: Vec<String> = self.parameters.iter().map(|(name, p)| p.words(name)).collect();
        parameters.join(", ")
    }
}

/// The name of a file without folder and ending.
fn group(file: &str) -> &str {
    Path::new(file).file_stem().and_then(OsStr::to_str).unwrap_or(file)
}

fn named(axes: &BTreeMap<Axis, i8>) -> BTreeMap<&'static str, i8> {
    axes.iter().map(|(axis, sign)| (axis.name(), *sign)).collect()
}

impl<'a> ListedParameter<'a> {
    fn of(parameter: &'a Parameter) -> Self {
        Self {
            unit: &parameter.unit,
            min: parameter.min,
            max: parameter.max,
            default: parameter.default,
            neutral: (!parameter.direction).then_some(parameter.neutral),
            whole: parameter.whole,
            choices: (!parameter.choices.is_empty()).then_some(&parameter.choices),
        }
    }

    fn strength() -> Self {
        let Parameter { min, max, default, neutral, .. } = Look::parameter();
        Self { unit: "", min, max, default, neutral: Some(neutral), whole: false, choices: None }
    }

    /// `amount 0..2 EV = 0.6`, or `method 0 unchanged|2 inpaint = 2`.
    fn words(&self, name: &str) -> String {
        let range = match self.choices {
            None => {
                let unit = if self.unit.is_empty() { "" } else { " " };
                format!("{}..{}{unit}{}", self.min, self.max, self.unit)
            }
            Some(choices) => {
                let mut choices: Vec<(i64, &str)> = choices.iter().map(|(n, v)| (*v, n.as_str())).collect();
                choices.sort_unstable();
                choices.iter().map(|(value, name)| format!("{value} {name}")).collect::<Vec<_>>().join("|")
            }
        };
        let whole = if self.whole && self.choices.is_none() { " whole" } else { "" };
        format!("{name} {range}{whole} = {}", self.default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::assets::Overlay;

    #[test]
    fn a_filter_narrows_and_the_installed_darktable_decides() {
        let vocabulary = Vocabulary::load(&Overlay::vocabulary(None)).unwrap();
        let layouts = Layouts::new(Overlay::vocabulary(None));
        let count =
            |filter: Filter<'_>, version: &str| vocabulary.list(&filter, &layouts, version).unwrap().len();
        let all = Filter::default();
        assert_eq!(count(all, "5.4.1"), vocabulary.moves().count());
        assert!(count(all, "4.2.1") < count(all, "5.0.1"), "some modules came with darktable 5");
        assert_eq!(count(all, "3.0.0"), 0);
        assert_eq!(count(Filter { module: Some("temperature"), ..all }, "4.2.1"), 3);
        assert_eq!(count(Filter { tag: Some("no such tag"), ..all }, "4.2.1"), 0);
        let tagged = |tag| {
            let listed = vocabulary.list(&Filter { tag: Some(tag), ..all }, &layouts, "4.2.1").unwrap();
            listed.iter().map(|m| m.name.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(tagged("wb"), tagged("white_balance"));
        assert!(tagged("wb").contains(&"local_warmth".to_owned()));
        let warm = vocabulary.list(&Filter { axis: Some(Axis::Warmth), ..all }, &layouts, "4.2.1").unwrap();
        assert!(warm.iter().any(|m| m.name == "warmth" && !m.maskable && m.axes["warmth"] == 1));
        assert!(warm.iter().all(|m| m.axes.contains_key("warmth")));
    }

    #[test]
    fn a_line_says_what_there_is_to_choose() {
        let vocabulary = Vocabulary::load(&Overlay::vocabulary(None)).unwrap();
        let layouts = Layouts::new(Overlay::vocabulary(None));
        let moves = vocabulary.list(&Filter::default(), &layouts, "5.4.1").unwrap();
        let looks = vocabulary.list_looks(&Filter::default(), &layouts, "5.4.1").unwrap();
        let line = |name: &str| {
            let found = moves.iter().chain(&looks).find(|listed| listed.name == name).unwrap();
            (found.line(), found.kind)
        };
        let (exposure, kind) = line("exposure");
        assert!(exposure.starts_with("exposure(ev -3..3 EV = 0.5): Brighten"), "{exposure}");
        assert_eq!(kind, "move");
        assert!(line("straighten").0.starts_with("straighten!(angle -20..20 degrees = 2): "));
        assert!(line("turn").0.contains("quarter_turns 0..3 quarter turns whole = 1"));
        assert!(line("highlight_method").0.contains("method 0 white|1 grey|"));
        assert!(line("golden_hour").0.starts_with("golden_hour!(strength 0..1 = 0.7): "));
        // What a model reads at once fits well into a small one's context.
        let all: usize = moves.iter().chain(&looks).map(|listed| listed.line().len() + 3).sum();
        assert!(all < 32_000, "{all} bytes");
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
