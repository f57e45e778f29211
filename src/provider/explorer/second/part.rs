//! A wish with its moves: which may serve it, at which sizes, and where.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::lexicon::words;
use super::reading::{PLAIN, Place, Reading, Size, Wish};
use crate::provider::explorer::aim::Aim;
use crate::provider::explorer::candidate::ListedMove;
use crate::provider::explorer::memory::{Settings, key};
use pixels::metrics::axes::Axis;
use pixels::metrics::stats::ImageStats;

/// The values of a move's dials, for gentle, plain, clear and strong.
type Dials = BTreeMap<String, [f64; 4]>;
/// Moves that are made together.
type Together = BTreeMap<String, Dials>;

/// What is done for a kind of wish.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Recipe {
    pub kind: String,
    /// What it is measured by; a wish about a hue by that hue.
    axis: Option<String>,
    /// -1 where more of it is less on the axis.
    #[serde(default = "one")]
    measured: i8,
    /// Whether it has no beyond: a picture without colour is far from one in colour.
    #[serde(default)]
    whole: bool,
    #[serde(default)]
    hue: bool,
    #[serde(default)]
    up: Vec<Together>,
    #[serde(default)]
    down: Vec<Together>,
    #[serde(default)]
    placed_up: Vec<Together>,
    #[serde(default)]
    placed_down: Vec<Together>,
}

impl Recipe {
    /// Its moves with their dials.
    #[cfg(test)]
    pub fn moves(&self) -> impl Iterator<Item = (&String, &Dials)> {
        [&self.up, &self.down, &self.placed_up, &self.placed_down].into_iter().flatten().flatten()
    }

    /// What it is measured by, with the sign of more of it.
    pub fn measured_by(&self) -> Option<(&str, i8)> {
        Some((self.axis.as_deref()?, self.measured))
    }
}

const fn one() -> i8 {
    1
}

/// What takes back a side effect.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Partner {
    /// The side effect.
    pub(in super::super) fault: String,
    #[serde(rename = "move")]
    /// The moves, and their values.
    pub(in super::super) does: Settings,
    /// Kinds of wishes that want the very side effect.
    pub(in super::super) unless: Vec<String>,
}

/// All that take back a side effect.
pub(in super::super) fn partners() -> &'static [Partner] {
    &words().partner
}

/// A wish with the moves that may serve it.
#[derive(Clone, Debug)]
pub(in super::super) struct Part {
    /// The wish.
    pub wish: Wish,
    /// What it is measured by, and the sign of what is wanted.
    pub axis: Option<(Axis, i8)>,
    /// The moves that may serve it, the first choice first.
    pub(super) options: Vec<Together>,
    /// Which of them is made.
    pub(super) chosen: usize,
    /// How strongly, 1 as the words say.
    pub(super) scale: f64,
    /// Whether it has no beyond.
    pub(super) whole: bool,
}

impl Part {
    /// The moves for a wish, those first that the words name.
    pub fn of(wish: Wish, named: &[String], moves: &[ListedMove]) -> Option<Self> {
        if let Some(name) = wish.kind.strip_prefix("move ") {
            let listed = moves.iter().find(|listed| listed.name == name)?;
            let scaled = listed.at(|_| 1.0).into_keys().map(|dial| {
                let at = |strength: f64| listed.at(|_| strength).get(&dial).copied().unwrap_or_default();
                let way = f64::from(wish.sign);
                (dial.clone(), [0.6, 1.0, 1.4, 2.0].map(|strength| at(way * strength)))
            });
            let dials: Dials = scaled.collect();
            let axis = listed.declared().map(|(axis, sign)| (axis, sign * wish.sign));
            let options = vec![Together::from([(name.to_owned(), dials)])];
            return Some(Self { wish, axis, options, chosen: 0, scale: 1.0, whole: false });
        }
        let recipe = words().wish.iter().find(|recipe| recipe.kind == wish.kind)?;
        let up = wish.sign >= 0;
        let lists = match (wish.place.is_some(), up) {
            (true, true) => [&recipe.placed_up, &recipe.up],
            (true, false) => [&recipe.placed_down, &recipe.down],
            (false, true) => [&recipe.up, &recipe.up],
            (false, false) => [&recipe.down, &recipe.down],
        };
        let list = lists.into_iter().find(|list| !list.is_empty())?;
        let hue = wish.hue.as_deref().unwrap_or_default();
        let hued = |together: &Together| -> Together {
            together.iter().map(|(name, dials)| (name.replace('*', hue), dials.clone())).collect()
        };
        let listed = |together: &Together| {
            let fits = |one: &ListedMove| wish.place.is_none() || one.maskable;
            together.keys().all(|name| moves.iter().any(|one| &one.name == name && fits(one)))
        };
        let mut options: Vec<Together> = list.iter().map(hued).filter(listed).collect();
        options.sort_by_key(|together| !together.keys().any(|name| named.contains(name)));
        if options.is_empty() {
            return None;
        }
        let axis = match (&recipe.axis, recipe.hue) {
            (Some(axis), _) => axis.parse::<Axis>().ok().map(|axis| (axis, recipe.measured * wish.sign)),
            (None, true) if wish.kind == "hue_richness" => hue_axis(hue).map(|axis| (axis, wish.sign)),
            _ => None,
        };
        Some(Self { wish, axis, options, chosen: 0, scale: 1.0, whole: recipe.whole })
    }

    /// Adds the moves of this wish to a setting.
    pub(in super::super) fn add(&self, kept: &[Place], moves: &[ListedMove], setting: &mut Settings) {
        let Some(option) = self.options.get(self.chosen) else { return };
        for (name, dials) in option {
            let Some(listed) = moves.iter().find(|listed| &listed.name == name) else { continue };
            let value = |dial: &str, sizes: &[f64; 4]| {
                let plain = sizes.get(1).copied().unwrap_or_default();
                let value = match self.wish.size {
                    Size::Of(at) => sizes.get(at).copied().unwrap_or(plain),
                    // A stop of exposure is one, a stop in a zone is about one there.
                    Size::Stops(stops) if dial == "ev" => stops * plain.signum(),
                    Size::Stops(stops) => plain * (stops / 0.6).clamp(0.5, 2.0),
                    Size::Normal => plain * 1.4,
                    Size::Neutral => sizes.get(2).copied().unwrap_or(plain),
                };
                let sure = self.wish.place.as_ref().map_or(1.0, |place| place.sure);
                // A direction, such as a hue, has no strength.
                let turned =
                    sizes.iter().all(|size| size == sizes.first().unwrap_or(size)) && sizes.len() > 1;
                let value = if turned { plain } else { value * self.scale * sure };
                listed.within(dial, value)
            };
            let values: BTreeMap<String, f64> =
                dials.iter().map(|(dial, sizes)| (dial.clone(), value(dial, sizes))).collect();
            let mask = self.mask(kept, listed.maskable);
            let place = setting.entry(key(name, mask.as_ref())).or_default();
            for (dial, value) in values {
                let known = place.entry(dial).or_insert(value);
                // Two wishes for the same move: the stronger one.
                if value.abs() > known.abs() {
                    *known = value;
                }
            }
        }
    }

    /// Where it is done: its place, without the places that are to be left alone.
    fn mask(&self, kept: &[Place], maskable: bool) -> Option<Value> {
        if !maskable {
            return None;
        }
        if let Some(place) = &self.wish.place {
            return Some(place.mask.clone());
        }
        // What is about one colour or about tones stays there by itself.
        let free =
            matches!(self.wish.kind.as_str(), "brightness" | "contrast" | "clarity" | "richness" | "warmth");
        let first = kept.first().filter(|_| free)?;
        let mut mask = first.mask.clone();
        let fields = mask.as_object_mut()?;
        let inverted = fields.get("invert").and_then(Value::as_bool).unwrap_or(false);
        fields.insert("invert".into(), (!inverted).into());
        Some(mask)
    }

    /// How far it went, in steps as wished.
    pub fn moved(&self, base: &ImageStats, now: &ImageStats) -> Option<f64> {
        let (axis, sign) = self.axis?;
        Some(f64::from(sign) * axis.steps(base, now) + 0.0)
    }

    pub(super) fn modest(&self) -> bool {
        matches!(self.wish.size, Size::Of(0 | 1))
    }

    pub(super) fn gentle(&self) -> bool {
        self.wish.size == Size::Of(0)
    }

    pub(super) fn partial(&self) -> bool {
        self.wish.place.is_some() || self.wish.hue.is_some()
    }

    /// Whether it changes colours.
    pub(super) fn colours(&self) -> bool {
        matches!(
            self.wish.kind.as_str(),
            "warmth" | "tint" | "richness" | "vibrance" | "hue_richness" | "hue_light"
        ) || self.wish.kind.ends_with("_warmth")
    }

    /// Whether it makes tones reach white, or black.
    pub(super) fn reaches(&self, white: bool) -> bool {
        let way = if white { 1 } else { -1 };
        match self.wish.kind.as_str() {
            "brightness" | "highlights" | "midtones" | "shadows" | "blacks" | "veil" => self.wish.sign == way,
            "contrast" | "clarity" | "sharpness" | "richness" | "vibrance" => self.wish.sign > 0,
            "haze" => self.wish.sign < 0,
            _ => false,
        }
    }
}

fn hue_axis(hue: &str) -> Option<Axis> {
    match hue {
        "oranges" => Some(Axis::Yellows),
        "purples" => Some(Axis::Magentas),
        hue => hue.parse().ok(),
    }
}

/// The wishes of a branch with their moves. Where the words say nothing that is in the lists, the axes that they name
/// elsewhere are wished for, or, if there are none, a plain overall change.
pub(in super::super) fn parts(reading: &Reading, aim: &Aim, moves: &[ListedMove]) -> Vec<Part> {
    let mut wishes = reading.wishes.clone();
    let named = named(&aim.direction, moves);
    for (name, sign) in &named {
        let served = |wish: &Wish| {
            let recipe = words().wish.iter().find(|recipe| recipe.kind == wish.kind);
            let mut lists = recipe.into_iter().flat_map(|recipe| [&recipe.up, &recipe.down]).flatten();
            lists.any(|together| together.contains_key(name))
        };
        if !wishes.iter().any(served) {
            let size = wishes.first().map_or(PLAIN, |wish| wish.size);
            wishes.insert(
                0,
                Wish {
                    kind: format!("move {name}"),
                    hue: None,
                    sign: *sign,
                    place: None,
                    size,
                    sized: false,
                },
            );
        }
    }
    if wishes.is_empty() {
        wishes = aim
            .axes
            .iter()
            .map(|&(axis, sign)| {
                let fits = |recipe: &&Recipe| recipe.axis.as_deref() == Some(axis.name());
                let recipe = words().wish.iter().find(fits);
                let (kind, hue, sign) = match recipe {
                    Some(recipe) => (recipe.kind.clone(), None, sign * recipe.measured),
                    None => ("hue_richness".to_owned(), Some(axis.name().to_owned()), sign),
                };
                let size = match aim.intensity {
                    pixels::metrics::intensity::Intensity::Gentle => Size::Of(0),
                    pixels::metrics::intensity::Intensity::Strong => Size::Of(3),
                    _ => PLAIN,
                };
                Wish { kind, hue, sign, place: None, size, sized: false }
            })
            .collect();
    }
    let named: Vec<String> = named.into_iter().map(|(name, _)| name).collect();
    wishes.into_iter().filter_map(|wish| Part::of(wish, &named, moves)).collect()
}

/// The moves that words name, `fill light`, `bloom`, and whether more or less of each. What is only forbidden is not
/// among them.
fn named(direction: &str, moves: &[ListedMove]) -> Vec<(String, i8)> {
    let text = direction.to_lowercase();
    let spoken: Vec<&str> =
        text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let says = |name: &str| {
        let parts: Vec<&str> = name.split('_').collect();
        let at = spoken.windows(parts.len()).position(|window| window == parts)?;
        let before = spoken.get(at.saturating_sub(3)..at).unwrap_or_default();
        let said = |words: &[&str]| before.iter().any(|word| words.contains(word));
        (!said(&["no", "not", "without", "never", "avoid"]))
            .then(|| if said(&["less", "reduce", "lower"]) { -1 } else { 1 })
    };
    moves.iter().filter_map(|listed| Some((listed.name.clone(), says(&listed.name)?))).collect()
}
