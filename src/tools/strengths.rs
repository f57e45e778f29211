//! `try_strengths`: one move at several strengths, or several moves, side by side on one picture. Nothing is changed.
//!
//! The pictures have the session's preview size, so that the one that is chosen is there when it is applied.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::json;

use crate::budget::Cap;
use crate::tools::look::io_fault;
use crate::tools::measure::number;
use crate::tools::pictures::CHANGED;
use crate::tools::{Answer, ToolContext};
use base::error::{ErrorCode, Fault};
use darktable::layout::Layouts;
use darktable::render::{Picture, Quality};
use darktable::state::EditState;
use engine::photo::Operation;
use engine::vocabulary::{ApplyRequest, MaskSpec, PhotoFacts, STRENGTH, Vocabulary};
use pixels::metrics::difference::{Difference, distances};
use pixels::metrics::region::mean_of;
use pixels::metrics::stats::ImageStats;
use pixels::sheet::contact_sheet;

/// Longest side of the sheet in pixels.
pub const SHEET_EDGE: u32 = 1536;

/// How many are tried in one call.
const TRIED: std::ops::RangeInclusive<usize> = 2..=6;

/// Arguments of `try_strengths`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TryStrengths {
    /// A move or look.
    #[serde(default)]
    pub primitive_name: Option<String>,
    /// Which takes the values; left out = the only one, or a look's `strength`.
    #[serde(default)]
    pub parameter: Option<String>,
    /// 2 to 6 values.
    #[serde(default)]
    pub values: Vec<f64>,
    /// The others; left out = defaults.
    #[serde(default)]
    pub parameter_values: BTreeMap<String, f64>,
    /// Instead: 2 to 6 moves or looks.
    #[serde(default)]
    pub alternatives: Vec<String>,
    /// As in apply_primitive.
    #[serde(default)]
    #[schemars(schema_with = "mask")]
    pub mask: Option<MaskSpec>,
}

/// Without the schema of a mask once more: it goes to the model with every request.
fn mask(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object" })
}

pub fn try_strengths(context: &mut ToolContext<'_>, args: TryStrengths) -> Result<Answer, Fault> {
    let names = match (&args.primitive_name, args.alternatives.as_slice()) {
        (Some(name), []) => vec![name.clone()],
        (None, names) => names.to_vec(),
        (Some(_), _) => {
            return Err(input("alternatives", "give primitive_name with values, or alternatives, not both"));
        }
    };
    let place = context.place(None)?;
    let mask = args.mask.as_ref().map(|mask| context.find_mask(mask, &place.state)).transpose()?;
    let asked = Asked {
        names: &names,
        parameter: args.parameter.as_deref(),
        values: &args.values,
        others: &args.parameter_values,
        mask: mask.as_deref(),
    };
    let engine = context.engine;
    let version = engine.darktable_version();
    let mut trials =
        asked.trials(&place.state, &engine.vocabulary, &engine.facts, &engine.layouts, version)?;
    let (edge, quality) = (context.view.start.preview_edge, Quality::Preview);
    let wanted = trials.len();
    let new = |trial: &Trial| context.looked_at(&trial.state, edge, quality).is_none();
    let left = context.gate.ledger().left_of(Cap::Renders).unwrap_or(u64::MAX);
    let left_out: Vec<String> = trials
        .split_off(affordable(trials.iter().map(new), left))
        .into_iter()
        .map(|trial| trial.label)
        .collect();
    let here = context.looked_at(&place.state, edge, quality);
    let states: Vec<&EditState> = trials.iter().map(|trial| &trial.state).collect();
    let rendered = context.render_all(&states, edge, quality)?;

    let mut tiles: Vec<(String, &Picture)> =
        here.iter().map(|here| ("now".to_owned(), &*here.picture)).collect();
    let mut lines: Vec<String> = here.iter().map(|here| line("now", &context.stats(here), None)).collect();
    for ((at, trial), rendered) in trials.iter().enumerate().zip(&rendered) {
        let label = format!("{}: {}", at + 1, trial.label);
        let apart = here.as_ref().map(|here| context.difference(here, rendered)).transpose()?;
        lines.push(line(&label, &context.stats(rendered), apart.map(|apart| apart.mean)));
        tiles.push((label, &rendered.picture));
    }
    let too_large = || Fault::new(ErrorCode::StateError, "the pictures do not fit on one");
    if mask.is_some() && here.is_some() {
        lines = self::lines(&tiles, true);
    }
    let sheet = contact_sheet(&tiles, SHEET_EDGE).ok_or_else(too_large)?;
    let caption = format!("{} on {} at {}", asked.words(), place.name, place.commit.short());
    let image = context.blobs.put_picture(&sheet, caption).map_err(|e| io_fault(&e))?;
    let data = json!({
        "at": place.name,
        "state": place.commit.short(),
        "tried": asked.words(),
        "tiles": lines,
        "note": "nothing was changed: apply the one you choose",
    });
    let mut answer = Answer { data, images: vec![image], head: None };
    if !left_out.is_empty() {
        let why = format!(
            "{} of {wanted} were rendered: no render is left for {}",
            trials.len(),
            left_out.join(", ")
        );
        answer.add("left_out", why.into());
    }
    Ok(answer)
}

/// How many of the trials can be paid for, in order, where each says whether it must be rendered; at least one, so that
/// the gate refuses where nothing is left.
fn affordable(new: impl Iterator<Item = bool>, mut left: u64) -> usize {
    let mut fits = 0;
    for new in new {
        if new && left == 0 && fits > 0 {
            break;
        }
        left = left.saturating_sub(u64::from(new));
        fits += 1;
    }
    fits
}

fn line(label: &str, stats: &ImageStats, apart: Option<f64>) -> String {
    let apart = apart.map(|apart| format!(", ΔE {}", number(apart, 1))).unwrap_or_default();
    format!(
        "{label}: L* {}, contrast {}, C* {}, a* {}, b* {}, clipped low/high {}/{} %{apart}",
        number(stats.lightness.mean, 1),
        number(stats.lightness.std, 1),
        number(stats.chroma_mean, 1),
        number(stats.a_mean, 1),
        number(stats.b_mean, 1),
        number(stats.clip_low_pct, 1),
        number(stats.clip_high_pct, 1),
    )
}

/// The figures of a sheet's tiles, a line each: [`Place`](super::measure::Place) has those of a part. Of moves under a
/// mask they are of the pixels that any of them changes.
pub fn lines(tiles: &[(String, &Picture)], masked: bool) -> Vec<String> {
    let Some((_, first)) = tiles.first() else { return Vec::new() };
    let first = *first;
    let apart: Vec<Vec<f32>> =
        tiles.iter().map(|(_, picture)| distances(first, picture).unwrap_or_default()).collect();
    let places: Option<Vec<usize>> = masked.then(|| {
        let pixels = first.rgb.len() / 3;
        let moved = |at: &usize| apart.iter().any(|one| one.get(*at).is_some_and(|far| *far >= CHANGED));
        (0..pixels).filter(moved).collect()
    });
    let places = places.filter(|places| !places.is_empty());
    let of = |(at, (label, picture)): (usize, &(String, &Picture))| {
        let whole = ImageStats::of(picture);
        let difference = Difference::between(first, picture).ok().filter(|_| at > 0);
        match &places {
            Some(places) => {
                let far = mean_of(
                    apart.get(at).map(Vec::as_slice).unwrap_or_default(),
                    places.iter().map(|at| (*at, 1.0)),
                );
                let far = difference.map(|_| far);
                let label = if at == 0 { &format!("{label}, where it acts") } else { label };
                line(label, &whole.of_part(picture, places), far)
            }
            None => line(label, &whole, difference.map(|apart| apart.mean)),
        }
    };
    tiles.iter().enumerate().map(of).collect()
}

/// What is to be tried: several values of one move, or several moves.
pub struct Asked<'a> {
    /// One move or look, or several.
    pub names: &'a [String],
    /// The parameter that takes the values.
    pub parameter: Option<&'a str>,
    /// Its values.
    pub values: &'a [f64],
    /// Values of the other parameters.
    pub others: &'a BTreeMap<String, f64>,
    /// Where to act.
    pub mask: Option<&'a MaskSpec>,
}

/// One of the states that are compared.
pub struct Trial {
    /// What is tried, such as `ev 0.5`.
    pub label: String,
    /// The state that it makes.
    pub state: EditState,
}

impl Asked<'_> {
    /// The states, all made from the same one.
    pub fn trials(
        &self,
        state: &EditState,
        vocabulary: &Vocabulary,
        facts: &PhotoFacts,
        layouts: &Layouts,
        version: &str,
    ) -> Result<Vec<Trial>, Fault> {
        let apply = |field: String, name: &str, values: &BTreeMap<String, f64>| {
            let request = ApplyRequest { move_name: name, values, mask: self.mask };
            let applied = Operation::apply(&request, vocabulary, state, facts, layouts, version);
            applied.map(|(state, _)| state).map_err(|error| Fault::from(&error).with("field", field))
        };
        let many = |field: &str, count: usize| {
            let message = format!("{count} {field}: compare {} to {}", TRIED.start(), TRIED.end());
            if TRIED.contains(&count) { Ok(()) } else { Err(input(field, message)) }
        };
        let [name] = self.names else {
            if self.parameter.is_some() || !self.values.is_empty() || !self.others.is_empty() {
                return Err(input(
                    "values",
                    "several moves are tried at their defaults; values go with one move",
                ));
            }
            many("alternatives", self.names.len())?;
            let trial = |(at, name): (usize, &String)| {
                let state = apply(format!("alternatives[{at}]"), name, &BTreeMap::new())?;
                Ok(Trial { label: name.clone(), state })
            };
            return self.names.iter().enumerate().map(trial).collect();
        };
        let parameter = match self.parameter {
            Some(parameter) => parameter.to_owned(),
            None => only_parameter(vocabulary, name)?,
        };
        many("values", self.values.len())?;
        if self.others.contains_key(&parameter) {
            return Err(input(
                "parameter_values",
                format!("`{parameter}` already takes the values that are tried"),
            ));
        }
        let trial = |(at, value): (usize, &f64)| {
            let mut values = self.others.clone();
            values.insert(parameter.clone(), *value);
            let state = apply(format!("values[{at}]"), name, &values)?;
            Ok(Trial { label: format!("{parameter} {value}"), state })
        };
        self.values.iter().enumerate().map(trial).collect()
    }

    /// What is tried, in words.
    pub fn words(&self) -> String {
        let wher = self.mask.map(|mask| format!(", {mask}")).unwrap_or_default();
        match self.names {
            [name] => {
                let values: Vec<String> = self.values.iter().map(ToString::to_string).collect();
                let parameter = self.parameter.map(|parameter| format!(" {parameter}")).unwrap_or_default();
                format!("{name}{parameter} {}{wher}", values.join(", "))
            }
            names => format!("{}{wher}", names.join(", ")),
        }
    }
}

/// The parameter that is meant where none is named.
fn only_parameter(vocabulary: &Vocabulary, name: &str) -> Result<String, Fault> {
    // A style has none, which it says itself.
    if vocabulary.look(name).is_some() || vocabulary.style(name).is_some() {
        return Ok(STRENGTH.to_owned());
    }
    let entry = vocabulary.get(name).map_err(|error| Fault::from(&error))?;
    let names: Vec<&str> = entry.parameters.keys().map(String::as_str).collect();
    match names.as_slice() {
        [only] => Ok((*only).to_owned()),
        _ => Err(input(
            "parameter",
            format!("`{name}` has several parameters; name one of {}", names.join(", ")),
        )),
    }
}

fn input(field: &str, message: impl Into<String>) -> Fault {
    Fault::new(ErrorCode::InvalidInput, message.into()).with("field", field)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::assets::Overlay;
    use darktable::frame::{Orientation, StoredSize};
    use engine::vocabulary::Shot;

    /// The labels of the trials, or the field at fault with the message.
    fn tried(
        names: &[&str],
        parameter: Option<&str>,
        values: &[f64],
    ) -> Result<Vec<String>, (String, String)> {
        let vocabulary = Vocabulary::load(&Overlay::vocabulary(None)).unwrap();
        let layouts = Layouts::new(Overlay::vocabulary(None));
        let facts = PhotoFacts {
            baseline: EditState::default(),
            size: StoredSize { width: 300, height: 200 },
            orientation: Orientation::default(),
            shot: Shot::default(),
        };
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let asked = Asked { names: &names, parameter, values, others: &BTreeMap::new(), mask: None };
        let trials = asked.trials(&facts.baseline, &vocabulary, &facts, &layouts, "4.2.1");
        let trials = trials.map_err(|fault| {
            (fault.details["field"].as_str().unwrap_or_default().to_owned(), fault.message)
        })?;
        assert!(trials.windows(2).all(|pair| pair[0].state != pair[1].state), "{names:?}");
        assert!(trials.iter().all(|trial| trial.state != facts.baseline));
        Ok(trials.into_iter().map(|trial| trial.label).collect())
    }

    #[test]
    fn values_of_one_move_or_several_moves_are_tried_from_the_same_state() {
        let labels = tried(&["exposure"], Some("ev"), &[-0.5, 0.25, 1.0]).unwrap();
        assert_eq!(labels, ["ev -0.5", "ev 0.25", "ev 1"]);
        assert_eq!(tried(&["exposure"], None, &[0.5, 1.0]).unwrap()[0], "ev 0.5");
        assert_eq!(tried(&["clarity", "contrast"], None, &[]).unwrap(), ["clarity", "contrast"]);
    }

    #[test]
    fn the_figures_of_a_masked_move_are_of_the_pixels_that_it_changes() {
        let half = |code: u8| Picture {
            width: 40,
            height: 20,
            rgb: (0..800).flat_map(|at| [if at % 40 < 20 { code } else { 119 }; 3]).collect(),
        };
        let (dark, darker) = (half(60), half(20));
        let tiles = [("now".to_owned(), &half(119)), ("1".to_owned(), &dark), ("2".to_owned(), &darker)];
        let found = lines(&tiles, true);
        assert!(found[0].starts_with("now, where it acts: L* 50.0"), "{found:?}");
        assert!(found[1].starts_with("1: L* 25.") && found[2].starts_with("2: L* 6."), "{found:?}");
        let whole = lines(&tiles, false);
        assert!(whole[0].starts_with("now: L* 50.0") && whole[1].starts_with("1: L* 37."), "{whole:?}");
    }

    #[test]
    fn what_cannot_be_tried_is_refused_with_its_field_before_anything_is_rendered() {
        let field =
            |names: &[&str], parameter, values: &[f64]| tried(names, parameter, values).unwrap_err().0;
        assert_eq!(field(&["exposure"], None, &[0.5]), "values");
        assert_eq!(field(&["exposure"], None, &[0.1; 7]), "values");
        assert_eq!(field(&["exposure"], None, &[0.5, 99.0]), "values[1]");
        assert_eq!(field(&["exposure"], Some("evs"), &[0.5, 0.6]), "values[0]");
        assert_eq!(field(&["clarity", "contrast"], None, &[0.5, 0.6]), "values");
        assert_eq!(field(&["contrast", "no_such_move"], None, &[]), "alternatives[1]");
        assert_eq!(field(&[], None, &[]), "alternatives");
        let (field, message) = tried(&["warp_push"], None, &[0.1, 0.2]).unwrap_err();
        assert_eq!(field, "parameter");
        assert!(message.contains("name one of") && message.contains("amount"), "{message}");
    }

    #[test]
    fn no_more_are_tried_than_renders_are_left() {
        let fits = |new: &[bool], left| affordable(new.iter().copied(), left);
        assert_eq!(fits(&[true; 4], u64::MAX), 4);
        assert_eq!(fits(&[true; 4], 3), 3);
        assert_eq!(fits(&[true, false, true, true], 1), 2, "what is there already costs nothing");
        assert_eq!(fits(&[false, true], 0), 1);
        assert_eq!(fits(&[true, true], 0), 1, "the gate refuses it");
    }
}
