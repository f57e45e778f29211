//! Looks: several moves under one name and one strength.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::vocabulary::apply::{Applied, ApplyRequest, PhotoFacts};
use crate::vocabulary::error::VocabularyError;
use crate::vocabulary::form::{Target, is_name};
use crate::vocabulary::load::Vocabulary;
use crate::vocabulary::moves::{Move, Parameter};
use darktable::layout::Layouts;
use darktable::state::EditState;
use pixels::metrics::axes::Axis;

/// The one parameter of every look.
pub const STRENGTH: &str = "strength";

/// Several moves under one name.
#[derive(Clone, Debug)]
pub struct Look {
    /// Its name: lower-case letters, digits, underscores; no move has it.
    pub name: String,
    /// What it makes of a photo, in a photographer's words.
    pub description: String,
    /// What it pushes at full strength, and which way: +1 or -1.
    pub axes: BTreeMap<Axis, i8>,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// Its moves with their values at full strength; parameters that are left out have the move's default.
    pub moves: BTreeMap<String, BTreeMap<String, f64>>,
    /// The file that defines it.
    pub file: String,
}

/// A look as its file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LookEntry {
    pub(super) name: String,
    description: String,
    axes: BTreeMap<Axis, i8>,
    tags: Vec<String>,
    moves: BTreeMap<String, BTreeMap<String, f64>>,
}

/// A look that was applied.
#[derive(Clone, Debug, PartialEq)]
pub struct AppliedLook {
    /// The new state.
    pub state: EditState,
    /// 0…1.
    pub strength: f64,
    /// Its moves as they were applied, by name.
    pub moves: BTreeMap<String, BTreeMap<String, f64>>,
}

impl Look {
    pub(super) fn new(entry: LookEntry, file: &str) -> Self {
        let LookEntry { name, description, axes, tags, moves } = entry;
        Self { name, description, axes, tags, moves, file: file.to_owned() }
    }

    /// The strength as a parameter: at 0 the look does nothing, at 1 it is what its file says.
    pub fn parameter() -> Parameter {
        Parameter {
            unit: String::new(),
            min: 0.0,
            max: 1.0,
            default: 0.7,
            neutral: 0.0,
            direction: false,
            whole: false,
            choices: BTreeMap::new(),
        }
    }

    /// The given strength; the default if none is.
    fn strength(&self, values: &BTreeMap<String, f64>) -> Result<f64, VocabularyError> {
        let Parameter { min, max, default, unit, .. } = Self::parameter();
        if let Some(parameter) = values.keys().find(|name| *name != STRENGTH) {
            return Err(VocabularyError::UnknownParameter {
                name: self.name.clone(),
                parameter: parameter.clone(),
                legal: format!("`{STRENGTH}` ({})", Self::parameter().legal()),
            });
        }
        match values.get(STRENGTH) {
            None => Ok(default),
            Some(strength) if (min..=max).contains(strength) => Ok(*strength),
            Some(strength) => Err(VocabularyError::OutOfRange {
                name: self.name.clone(),
                parameter: STRENGTH.to_owned(),
                value: *strength,
                min,
                max,
                unit,
            }),
        }
    }
}

/// The values of a move at a share of the full ones: each that far from its neutral value, directions whole.
fn scaled(entry: &Move, full: &BTreeMap<String, f64>, strength: f64) -> BTreeMap<String, f64> {
    let value = |(name, p): (&String, &Parameter)| {
        let full = full.get(name).copied().unwrap_or(p.default);
        let value = match p {
            Parameter { direction: true, .. } => full,
            // A choice or a switch is made as soon as there is any of the look.
            Parameter { whole: true, .. } if strength > 0.0 => full,
            _ => p.neutral + strength * (full - p.neutral),
        };
        (name.clone(), value)
    };
    entry.parameters.iter().map(value).collect()
}

impl Vocabulary {
    /// Every look, by name.
    pub fn looks(&self) -> impl Iterator<Item = &Look> {
        self.looks.values()
    }

    /// The look of this name.
    pub fn look(&self, name: &str) -> Option<&Look> {
        self.looks.get(name)
    }

    /// Applies a look: `move_name` is its name, and the one value is `strength`. At 0 its moves are back at rest.
    ///
    /// # Errors
    /// [`VocabularyError`] as for each of its moves.
    pub fn apply_look(
        &self,
        request: &ApplyRequest<'_>,
        state: &EditState,
        facts: &PhotoFacts,
        layouts: &Layouts,
        darktable_version: &str,
    ) -> Result<AppliedLook, VocabularyError> {
        let look = self.look(request.move_name).ok_or_else(|| VocabularyError::UnknownMove {
            name: request.move_name.to_owned(),
            near: Vec::new(),
        })?;
        let strength = look.strength(request.values)?;
        let (mut state, mut moves) = (state.clone(), BTreeMap::new());
        for (name, full) in &look.moves {
            let values = scaled(self.get(name)?, full, strength);
            let request = ApplyRequest { move_name: name, values: &values, mask: request.mask };
            let applied: Applied =
                self.apply(&request, &state, facts, layouts, darktable_version).map_err(|e| match e {
                    VocabularyError::NotMaskable { name, reason } => VocabularyError::NotMaskable {
                        name: look.name.clone(),
                        reason: format!("its move `{name}` takes no mask, because {reason}"),
                    },
                    other => other,
                })?;
            state = applied.state;
            moves.insert(name.clone(), applied.values);
        }
        Ok(AppliedLook { state, strength, moves })
    }

    /// Holds every look to the moves: each is there, with legal values, and no two of a look undo each other.
    pub(super) fn check_looks(&self) -> Result<(), VocabularyError> {
        for look in self.looks.values() {
            self.check_look(look).map_err(|reason| VocabularyError::Move {
                file: look.file.clone(),
                name: look.name.clone(),
                reason,
            })?;
        }
        Ok(())
    }

    fn check_look(&self, look: &Look) -> Result<(), String> {
        if !is_name(&look.name) {
            return Err("the name may have lower-case letters, digits and underscores".into());
        }
        if look.description.trim().is_empty() || look.tags.is_empty() || look.axes.is_empty() {
            return Err("description, tags and axes may not be empty".into());
        }
        if let Some((axis, sign)) = look.axes.iter().find(|(_, sign)| sign.abs() != 1) {
            return Err(format!("axis {} has sign {sign}; write +1 or -1", axis.name()));
        }
        let mut set: BTreeSet<(&str, &Target)> = BTreeSet::new();
        let mut modules: BTreeSet<&str> = BTreeSet::new();
        for (name, values) in &look.moves {
            let entry = self.get(name).map_err(|e| e.to_string())?;
            let values = entry.resolve(values).map_err(|e| e.to_string())?;
            if entry.is_idle(&values) {
                return Err(format!("its move `{name}` does nothing at these values"));
            }
            for target in entry.set.keys().chain(entry.scale.keys()).chain(entry.fixed.keys()) {
                if !set.insert((&entry.module, target)) {
                    return Err(format!("two of its moves set `{target}` of {}", entry.module));
                }
            }
            if let Some(rival) = self.rivals(&entry.module).into_iter().find(|rival| modules.contains(rival))
            {
                return Err(format!("{rival} and {} exclude each other", entry.module));
            }
            modules.insert(&entry.module);
        }
        if look.moves.len() < 2 {
            return Err("a look has two moves or more".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::assets::Overlay;

    const GOOD: &str = r#"
[[look]]
name = "dusk_of_mine"
description = "Darker, and cool below."
axes = { brightness = -1 }
tags = ["night"]
moves.exposure = { ev = -1 }
moves.tint_shadows = { hue = 220, strength = 0.1 }
"#;

    fn load(text: &str) -> Result<Vocabulary, VocabularyError> {
        Vocabulary::load_with(&Overlay::vocabulary(None), std::path::Path::new("mine.toml"), text)
    }

    #[test]
    fn every_parameter_is_as_far_from_neutral_as_the_strength_says_but_directions() {
        let vocabulary = load(GOOD).unwrap();
        let look = vocabulary.look("dusk_of_mine").unwrap();
        let at = |name: &str, strength| scaled(vocabulary.get(name).unwrap(), &look.moves[name], strength);
        assert_eq!(at("exposure", 0.25)["ev"], -0.25);
        assert_eq!(
            at("tint_shadows", 0.5),
            BTreeMap::from([("hue".into(), 220.0), ("strength".into(), 0.05)])
        );
        let vocabulary = load(&GOOD.replace("exposure = { ev = -1 }", "black_and_white = {}")).unwrap();
        let look = vocabulary.look("dusk_of_mine").unwrap();
        let grey = scaled(vocabulary.get("black_and_white").unwrap(), &look.moves["black_and_white"], 0.5);
        assert_eq!(grey["green"], 0.3, "a parameter that is left out has the move's default");
    }

    #[test]
    fn each_contradiction_is_refused_and_named() {
        for (from, to, expected) in [
            ("exposure = { ev = -1 }", "exposure = { ev = -9 }", "-3 to 3"),
            ("exposure = { ev = -1 }", "exposure = { ev = 0 }", "does nothing"),
            ("exposure = { ev = -1 }", "exposure = { amount = 1 }", "no parameter `amount`"),
            ("exposure = { ev = -1 }", "exposures = {}", "did you mean `exposure`?"),
            ("moves.exposure = { ev = -1 }", "", "two moves"),
            (
                "moves.exposure = { ev = -1 }",
                "moves.s_curve = {}\nmoves.midtones_lift = {}\nmoves.midtones_lower = {}",
                "set `highlights`",
            ),
            (
                "moves.exposure = { ev = -1 }",
                "moves.filmic_contrast = {}\nmoves.sigmoid_contrast = {}",
                "exclude",
            ),
            ("dusk_of_mine", "exposure", "defined twice"),
            ("dusk_of_mine", "golden_hour", "defined twice"),
            ("brightness = -1", "brightness = -2", "sign -2"),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let error = load(&GOOD.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("mine.toml"), "{to}: {error}");
        }
    }

    #[test]
    fn a_users_folder_of_looks_is_read() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("looks")).unwrap();
        std::fs::write(folder.path().join("looks/mine.toml"), GOOD).unwrap();
        let vocabulary = Vocabulary::load(&Overlay::vocabulary(Some(folder.path().to_owned()))).unwrap();
        let look = vocabulary.look("dusk_of_mine").unwrap();
        assert!(look.file.ends_with("looks/mine.toml"));
        assert!(vocabulary.looks().count() > 30);
    }

    #[test]
    fn the_strength_is_held_to_its_range() {
        let vocabulary = load(GOOD).unwrap();
        let look = vocabulary.look("dusk_of_mine").unwrap();
        let ask = |name: &str, value| look.strength(&BTreeMap::from([(name.to_owned(), value)]));
        assert_eq!(ask(STRENGTH, 0.3).unwrap(), 0.3);
        assert_eq!(look.strength(&BTreeMap::new()).unwrap(), 0.7);
        for value in [-0.1, 1.1, f64::NAN] {
            assert!(ask(STRENGTH, value).unwrap_err().to_string().contains("0 to 1"));
        }
        assert!(ask("amount", 1.0).unwrap_err().to_string().contains("`strength` (0 to 1)"));
    }
}
