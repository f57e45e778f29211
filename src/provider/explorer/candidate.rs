//! Which moves may serve an aim, and with what values.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::Deserialize;

use crate::provider::explorer::aim::Aim;
use pixels::metrics::axes::Axis;

/// How many moves are tried for a branch.
const CANDIDATES: usize = 2;
/// Moves that exclude each other share this tag.
const EXCLUSIVE: &str = "tone_mapper";

/// A move as `list_vocabulary` gives it, as far as the explorer reads it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct ListedMove {
    pub name: String,
    pub module: String,
    axes: BTreeMap<String, i8>,
    parameters: BTreeMap<String, ListedParameter>,
    #[serde(default)]
    tags: Vec<String>,
    /// Whether it takes a mask.
    #[serde(default)]
    pub maskable: bool,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct ListedParameter {
    min: f64,
    max: f64,
    default: f64,
    /// Absent for a direction (a hue), which stays at its default.
    #[serde(default)]
    neutral: Option<f64>,
    /// A switch or a choice: nothing to search along.
    #[serde(default)]
    whole: bool,
}

/// A move that may serve, turned the way it is needed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    /// The move.
    pub name: String,
    /// The greatest strength, in units of the default's distance from neutral.
    pub limit: f64,
    /// The share of the asked axes that it pushes.
    pub covers: f64,
    /// Whether it excludes other moves of its kind.
    pub exclusive: bool,
    dials: Vec<Dial>,
    axes: Vec<Axis>,
    fit: f64,
}

/// A parameter that makes a move stronger or weaker.
#[derive(Clone, Debug, PartialEq)]
struct Dial {
    name: String,
    neutral: f64,
    /// Change for one unit of strength, with the sign that is needed.
    unit: f64,
    min: f64,
    max: f64,
}

impl Dial {
    /// The value for a strength.
    fn at(&self, strength: f64) -> f64 {
        let digits = (100.0 / (self.max - self.min)).log10().ceil().clamp(0.0, 9.0) as i32;
        let scale = 10_f64.powi(digits);
        let value = (self.neutral + strength * self.unit).clamp(self.min, self.max);
        // Without a negative zero.
        (value * scale).round() / scale + 0.0
    }
}

impl ListedMove {
    /// What makes it stronger or weaker, with the units turned round if `way` is -1.
    fn dials(&self, way: f64) -> Vec<Dial> {
        let dial = |(name, p): (&String, &ListedParameter)| {
            let neutral = p.neutral.filter(|_| !p.whole)?;
            let unit = way * (p.default - neutral);
            Some(Dial { name: name.clone(), neutral, unit, min: p.min, max: p.max })
        };
        let dials = self.parameters.iter().filter_map(dial);
        dials.filter(|dial| dial.unit != 0.0 && dial.max > dial.min).collect()
    }

    /// A value of a parameter within its range, in about a thousandth of it.
    pub fn within(&self, parameter: &str, value: f64) -> f64 {
        let Some(p) = self.parameters.get(parameter) else { return value };
        let digits = (1000.0 / (p.max - p.min)).log10().ceil().clamp(0.0, 9.0) as i32;
        let scale = 10_f64.powi(digits);
        (value.clamp(p.min, p.max) * scale).round() / scale + 0.0
    }

    /// Where a parameter does nothing; 0 where that is not known.
    pub fn neutral(&self, parameter: &str) -> f64 {
        self.parameters.get(parameter).and_then(|p| p.neutral).unwrap_or_default()
    }

    /// The axis that it is made for.
    pub fn declared(&self) -> Option<(Axis, i8)> {
        self.axes.iter().find_map(|(axis, sign)| Some((axis.parse().ok()?, *sign)))
    }

    /// Values with a strength of its own for each parameter that has one.
    pub fn at(&self, mut strength: impl FnMut(&str) -> f64) -> BTreeMap<String, f64> {
        self.dials(1.0).iter().map(|dial| (dial.name.clone(), dial.at(strength(&dial.name)))).collect()
    }
}

impl Candidate {
    /// The values for a strength, rounded to about a hundredth of each range.
    pub fn values(&self, strength: f64) -> BTreeMap<String, f64> {
        self.dials.iter().map(|dial| (dial.name.clone(), dial.at(strength))).collect()
    }

    /// The strength that gives such values.
    pub fn strength(&self, values: &BTreeMap<String, f64>) -> Option<f64> {
        let dial = self.dials.first()?;
        values.get(&dial.name).map(|value| (value - dial.neutral) / dial.unit)
    }

    fn of(listed: &ListedMove, aim: &Aim, turned: bool) -> Option<Self> {
        if listed.parameters.values().any(|p| p.whole) {
            return None;
        }
        let way = if turned { -1.0 } else { 1.0 };
        let dials = listed.dials(way);
        // Several dials together are a balance: their default is all there is of it.
        let balance = if dials.len() > 1 { 1.0 } else { f64::INFINITY };
        let reach = |dial: &Dial| {
            let end = if dial.unit < 0.0 { dial.min } else { dial.max };
            (end - dial.neutral) / dial.unit
        };
        let limit = dials.iter().map(reach).fold(balance, f64::min);
        // Several dials turned round together are another move than the one described.
        if dials.is_empty() || limit < 0.25 || (turned && dials.len() > 1) {
            return None;
        }
        let pushed =
            listed.axes.iter().map(|(axis, sign)| (axis.parse::<Axis>().ok(), f64::from(*sign) * way));
        let (mut fit, mut axes) = (0.0, Vec::new());
        for (axis, push) in pushed {
            let asked = aim.axes.iter().position(|&(asked, _)| Some(asked) == axis);
            match (asked.and_then(|at| Some((at, aim.axes.get(at)?.1))), axis) {
                (Some((place, sign)), Some(axis)) => {
                    // What was named first weighs a little more.
                    fit += push * f64::from(sign) * if place == 0 { 1.0 } else { 0.9 };
                    axes.push(axis);
                }
                (_, Some(axis)) => {
                    fit += aim.axes.iter().map(|&asked| beside(asked, axis, push)).fold(-0.4, f64::max)
                }
                (_, None) => fit -= 0.4,
            }
        }
        if fit <= 0.0 || axes.is_empty() {
            return None;
        }
        let words: Vec<&str> = listed.name.split('_').collect();
        let named = |axis: &(Axis, i8)| match axis.0.name() {
            name if name == listed.name => 0.2,
            name if words.first() == Some(&name) => 0.15,
            name if words.contains(&name) => 0.1,
            _ => 0.0,
        };
        fit += aim.axes.iter().map(named).fold(0.0, f64::max);
        // Of otherwise equal moves, the one of the shorter name is the more general.
        fit -= 0.02 * words.len() as f64;
        let spoken = aim.direction.to_lowercase();
        if listed.tags.iter().chain([&listed.name]).any(|word| spoken.contains(&word.replace('_', " "))) {
            fit += 0.5;
        }
        // One dial is easier to read than three, and a move made for the direction than one turned round.
        fit -= if dials.len() > 1 { 0.2 } else { 0.0 } + if turned { 0.05 } else { 0.0 };
        Some(Self {
            name: listed.name.clone(),
            limit,
            covers: axes.len() as f64 / aim.axes.len().max(1) as f64,
            exclusive: listed.tags.iter().any(|tag| tag == EXCLUSIVE),
            dials,
            axes,
            fit,
        })
    }
}

/// What a push beside the asked axis is worth: a little if it is part of what was asked, else a loss.
fn beside((asked, sign): (Axis, i8), axis: Axis, push: f64) -> f64 {
    let kin: &[Axis] = match asked {
        Axis::Brightness => &[Axis::Shadows, Axis::Midtones, Axis::Highlights],
        Axis::Midtones => &[Axis::Brightness],
        Axis::Blacks => &[Axis::Shadows],
        Axis::Whites => &[Axis::Highlights],
        Axis::Chroma => &[Axis::Colourfulness],
        Axis::Colourfulness => &[Axis::Chroma],
        Axis::Sharpness => &[Axis::LocalContrast],
        Axis::LocalContrast => &[Axis::Sharpness],
        _ => &[],
    };
    if kin.contains(&axis) && push * f64::from(sign) > 0.0 { 0.1 } else { -0.4 }
}

/// The moves that fit an aim best, best first. The second is one that pushes what the first leaves out, if
/// there is such a one. Equal fits go by name, or by a hash of name and seed when the seed is not 0.
pub(super) fn candidates(moves: &[ListedMove], aim: &Aim, seed: u64) -> Vec<Candidate> {
    let turns = moves.iter().flat_map(|listed| [(listed, false), (listed, true)]);
    let mut rest: Vec<Candidate> = turns.filter_map(|(m, turned)| Candidate::of(m, aim, turned)).collect();
    let mut chosen: Vec<Candidate> = Vec::new();
    while chosen.len() < CANDIDATES {
        let worth = |candidate: &Candidate| {
            let pushed = |axis: &&Axis| chosen.iter().any(|other| other.axes.contains(*axis));
            let fresh = candidate.axes.iter().filter(|axis| !pushed(axis)).count();
            candidate.fit + if chosen.is_empty() { 0.0 } else { 0.5 * fresh as f64 }
        };
        rest.sort_by(|a, b| worth(b).total_cmp(&worth(a)).then_with(|| order(&a.name, &b.name, seed)));
        if rest.is_empty() {
            break;
        }
        let next = rest.remove(0);
        rest.retain(|other| other.name != next.name);
        chosen.push(next);
    }
    chosen
}

fn order(a: &str, b: &str, seed: u64) -> Ordering {
    match seed {
        0 => a.cmp(b),
        _ => (hash(a, seed), a).cmp(&(hash(b, seed), b)),
    }
}

/// FNV-1a over seed and name.
pub(super) fn hash(name: &str, seed: u64) -> u64 {
    let bytes = seed.to_le_bytes().into_iter().chain(name.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::provider::explorer::memory::Goal;

    fn dial(min: f64, max: f64, default: f64) -> Value {
        json!({"min": min, "max": max, "default": default, "neutral": 0.0})
    }

    /// A listed move: the parameters given, and an amount with minimum, maximum and default.
    fn row(name: &str, axes: Value, others: &Value, amount: Option<(f64, f64, f64)>, tags: &[&str]) -> Value {
        let mut parameters = others.clone();
        if let Some((min, max, default)) = amount {
            parameters["amount"] = dial(min, max, default);
        }
        json!({"name": name, "module": "m", "axes": axes, "parameters": parameters, "tags": tags})
    }

    fn vocabulary() -> Vec<ListedMove> {
        let bare = json!({});
        let hue = json!({"hue": {"min": 0, "max": 360, "default": 60}});
        let weights =
            json!({"red": dial(0.0, 1.0, 0.3), "green": dial(0.0, 1.0, 0.6), "blue": dial(0.0, 1.0, 0.1)});
        serde_json::from_value(json!([
            row(
                "black_and_white",
                json!({"chroma": -1, "colourfulness": -1}),
                &weights,
                None,
                &["black_and_white"]
            ),
            row("black_point", json!({"blacks": -1, "shadows": -1}), &bare, Some((-0.02, 0.02, 0.004)), &[]),
            row("brilliance", json!({"brightness": 1}), &bare, Some((-0.6, 0.6, 0.15)), &[]),
            row("chroma", json!({"chroma": 1, "colourfulness": 1}), &bare, Some((-1.0, 1.0, 0.25)), &[]),
            row(
                "exposure",
                json!({"brightness": 1, "midtones": 1, "shadows": 1}),
                &bare,
                Some((-3.0, 3.0, 0.5)),
                &[]
            ),
            row("fill_light", json!({"shadows": 1, "blacks": 1}), &bare, Some((0.0, 100.0, 50.0)), &[]),
            row("highlights_recover", json!({"highlights": -1}), &bare, Some((0.0, 2.0, 0.8)), &[]),
            row(
                "midtones_lower",
                json!({"midtones": -1, "brightness": -1}),
                &bare,
                Some((0.0, 1.5, 0.5)),
                &[]
            ),
            row("saturation", json!({"chroma": 1, "colourfulness": 1}), &bare, Some((-1.0, 1.0, 0.25)), &[]),
            row("shadows_lift", json!({"shadows": 1}), &bare, Some((0.0, 2.0, 0.7)), &["shadows"]),
            row("tint_all", json!({"warmth": 1}), &hue, Some((0.0, 0.5, 0.05)), &[]),
            row("warmth", json!({"warmth": 1}), &bare, Some((-90.0, 90.0, 25.0)), &["warm", "cool"]),
        ]))
        .unwrap()
    }

    fn names(direction: &str, seed: u64) -> Vec<String> {
        let goal = Goal { name: "v".into(), direction: direction.into(), intensity: None };
        let found = candidates(&vocabulary(), &Aim::of(Some(&goal), 0), seed);
        found.into_iter().map(|c| c.name).collect()
    }

    #[test]
    fn moves_are_chosen_by_what_they_push() {
        for (direction, expected) in [
            ("open the shadows", vec!["shadows_lift", "fill_light"]),
            ("open the shadows and recover the highlights", vec!["shadows_lift", "highlights_recover"]),
            ("darker", vec!["exposure", "midtones_lower"]),
            ("warmer", vec!["warmth", "tint_all"]),
            ("cooler", vec!["warmth"]),
            ("muted", vec!["chroma", "saturation"]),
            ("black and white", vec!["black_and_white", "chroma"]),
            ("sharper", vec![]),
        ] {
            assert_eq!(names(direction, 0), expected, "{direction}");
        }
    }

    #[test]
    fn the_seed_decides_only_between_equals() {
        assert!((1..50).all(|seed| names("open the shadows", seed) == names("open the shadows", 0)));
        let equals = |seed| {
            let listed = |name| row(name, json!({"tint": 1}), &json!({}), Some((0.0, 1.0, 0.5)), &[]);
            let moves: Vec<ListedMove> = serde_json::from_value(json!([listed("p"), listed("q")])).unwrap();
            let aim = Aim { axes: vec![(Axis::Tint, 1)], ..Aim::of(None, 0) };
            candidates(&moves, &aim, seed)[0].name.clone()
        };
        assert_eq!(equals(0), "p");
        assert!((1..50).any(|seed| equals(seed) == "q"));
    }

    #[test]
    fn strength_is_in_defaults_and_stays_in_range() {
        let goal = Goal { name: "v".into(), direction: "cooler".into(), intensity: None };
        let cool = &candidates(&vocabulary(), &Aim::of(Some(&goal), 0), 0)[0];
        assert_eq!(cool.values(1.0), BTreeMap::from([("amount".to_owned(), -25.0)]));
        assert_eq!(cool.values(9.0)["amount"], -90.0);
        assert_eq!(cool.limit, 3.6);
        let goal = Goal { name: "v".into(), direction: "deeper blacks".into(), intensity: None };
        let black = &candidates(&vocabulary(), &Aim::of(Some(&goal), 0), 0)[0];
        assert_eq!(black.values(0.77)["amount"], 0.0031);
    }
}
