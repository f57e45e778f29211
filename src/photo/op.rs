//! What was done to a photo, as data: the same in a commit, in the op-log and in a replay.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::darktable::layout::Layouts;
use crate::darktable::state::EditState;
use crate::ids::{Hash, RefName};
use crate::vocabulary::{
    Applied, ApplyRequest, MaskSpec, Move, PhotoFacts, STRENGTH, Vocabulary, VocabularyError,
};

/// One thing that was done. The first group makes commits and is part of their hashes, so it holds nothing
/// of time, place or author; the second only moves names about and stands in the op-log alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Operation {
    /// The photo came in; the commit holds darktable's default edit.
    Ingest {
        /// SHA-256 of the raw.
        raw: Hash,
    },
    /// One move.
    Apply(AppliedMove),
    /// Several masked moves as one step.
    ApplyPerRegion {
        /// The moves in the order of the regions.
        moves: Vec<AppliedMove>,
    },
    /// Several moves under one name.
    ApplyLook {
        /// The look's name.
        look: String,
        /// Where it acts, as it was asked for; everywhere if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mask: Option<serde_json::Value>,
        /// 0…1.
        strength: f64,
    },
    /// Spots healed or cloned.
    ApplySpot {
        /// The spots.
        spots: Vec<Spot>,
    },
    /// A module instance was taken out, or put back to darktable's default.
    RemoveModule {
        /// `multi_priority`.
        instance: u32,
        /// darktable's name of the module.
        module: String,
    },
    /// Back to the baseline.
    Reset,
    /// A state was recorded as it stood.
    Snapshot,
    /// The attempt was given up; the commit holds the baseline's state.
    Abandon,
    /// The edit was taken over from a sidecar.
    ImportSidecar {
        /// SHA-256 of the sidecar.
        sidecar: Hash,
    },
    /// A branch was made.
    CreateBranch,
    /// A tag was made.
    CreateTag,
    /// A branch was pointed at another commit.
    MoveBranch,
    /// A branch was deleted.
    DeleteBranch,
    /// A branch was put back to where a transcript says it was.
    RestoreBranch,
    /// HEAD was moved.
    Checkout {
        /// The branch that HEAD now follows; `None` for a bare commit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        branch: Option<RefName>,
    },
}

/// A vocabulary move as it was applied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AppliedMove {
    /// `multi_priority` of the module instance that holds it.
    pub instance: u32,
    /// Where it acts, as it was asked for; everywhere if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<serde_json::Value>,
    /// darktable's name of the module.
    pub module: String,
    /// The move's name.
    #[serde(rename = "move")]
    pub name: String,
    /// Its parameters, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, Setting>,
}

/// A parameter's value in the unit that a photographer would say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// `EV`, `%`, `°`…; empty for a plain number.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// The value; always finite.
    pub value: f64,
}

/// One healed or cloned spot, in 0…1 of the displayed picture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spot {
    /// `heal` or `clone`.
    pub action: String,
    /// Radius in units of the shorter side.
    pub radius: f64,
    /// Where the pixels come from, if given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<[f64; 2]>,
    /// Its centre, left to right.
    pub x: f64,
    /// Its centre, top to bottom.
    pub y: f64,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ingest { .. } => f.write_str("ingest: darktable's defaults"),
            Self::Apply(applied) => applied.fmt(f),
            Self::ApplyPerRegion { moves } => {
                write!(f, "{} regions: ", moves.len())?;
                for (i, applied) in moves.iter().enumerate() {
                    if i > 0 {
                        f.write_str("; ")?;
                    }
                    applied.fmt(f)?;
                }
                Ok(())
            }
            Self::ApplyLook { look, mask, strength } => {
                write!(f, "look {look} at {:.0} %", strength * 100.0)?;
                mask_words(mask.as_ref(), f)
            }
            Self::ApplySpot { spots } => {
                for (i, spot) in spots.iter().enumerate() {
                    if i > 0 {
                        f.write_str("; ")?;
                    }
                    write!(f, "{} spot at {:.2}, {:.2}", spot.action, spot.x, spot.y)?;
                }
                Ok(())
            }
            Self::RemoveModule { instance: 0, module } => write!(f, "remove {module}"),
            Self::RemoveModule { instance, module } => write!(f, "remove {module} #{instance}"),
            Self::Reset => f.write_str("reset to the baseline"),
            Self::Snapshot => f.write_str("snapshot"),
            Self::Abandon => f.write_str("abandon: back to the baseline"),
            Self::ImportSidecar { sidecar } => write!(f, "import sidecar {}", sidecar.short()),
            Self::CreateBranch => f.write_str("create branch"),
            Self::CreateTag => f.write_str("create tag"),
            Self::MoveBranch => f.write_str("move branch"),
            Self::DeleteBranch => f.write_str("delete branch"),
            Self::RestoreBranch => f.write_str("restore branch from the transcript"),
            Self::Checkout { branch: Some(branch) } => write!(f, "check out {branch}"),
            Self::Checkout { branch: None } => f.write_str("check out a commit"),
        }
    }
}

impl Operation {
    /// Applies a move or a look of the vocabulary: the new state, and what was done.
    pub fn apply(
        request: &ApplyRequest<'_>,
        vocabulary: &Vocabulary,
        state: &EditState,
        facts: &PhotoFacts,
        layouts: &Layouts,
        darktable_version: &str,
    ) -> Result<(EditState, Self), VocabularyError> {
        if let Some(look) = vocabulary.look(request.move_name) {
            let applied = vocabulary.apply_look(request, state, facts, layouts, darktable_version)?;
            let mask = request.mask.and_then(|mask| serde_json::to_value(mask).ok());
            let operation = Self::ApplyLook { look: look.name.clone(), mask, strength: applied.strength };
            return Ok((applied.state, operation));
        }
        let applied = vocabulary.apply(request, state, facts, layouts, darktable_version)?;
        let entry = vocabulary.get(request.move_name)?;
        let operation = Self::Apply(AppliedMove::of(entry, &applied, request.mask));
        Ok((applied.state, operation))
    }

    /// What a person or a model would name as made: the move, or the look as if it were one with its strength.
    pub fn made(&self) -> Option<AppliedMove> {
        match self {
            Self::Apply(applied) => Some(applied.clone()),
            Self::ApplyLook { look, mask, strength } => Some(AppliedMove {
                mask: mask.clone(),
                name: look.clone(),
                values: [(STRENGTH.to_owned(), Setting { unit: String::new(), value: *strength })].into(),
                ..AppliedMove::default()
            }),
            _ => None,
        }
    }
}

impl AppliedMove {
    /// The record of a move that was applied: `entry` is the move, `mask` what was asked for.
    pub fn of(entry: &Move, applied: &Applied, mask: Option<&MaskSpec>) -> Self {
        let setting = |(name, value): (&String, &f64)| {
            let unit = entry.parameters.get(name).map(|p| p.unit.clone()).unwrap_or_default();
            (name.clone(), Setting { unit, value: *value })
        };
        Self {
            instance: applied.instance,
            mask: mask.and_then(|mask| serde_json::to_value(mask).ok()),
            module: applied.op.clone(),
            name: entry.name.clone(),
            values: applied.values.iter().map(setting).collect(),
        }
    }
}

impl fmt::Display for AppliedMove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for (name, setting) in &self.values {
            write!(f, " {name}={setting}")?;
        }
        mask_words(self.mask.as_ref(), f)
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Two digits, as sliders show them, unless that would hide the value.
        if self.value != 0.0 && self.value.abs() < 0.01 {
            write!(f, "{}", self.value)?;
        } else {
            write!(f, "{:.2}", self.value)?;
        }
        if self.unit.is_empty() { Ok(()) } else { write!(f, " {}", self.unit) }
    }
}

/// ` on NAME` or ` on SHAPE`: the mask's shortest description.
fn mask_words(mask: Option<&serde_json::Value>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some(mask) = mask else { return Ok(()) };
    let word = ["named", "name", "shape", "range"]
        .iter()
        .find_map(|key| mask.get(*key).and_then(serde_json::Value::as_str))
        .unwrap_or("a mask");
    write!(f, " on {word}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lift() -> AppliedMove {
        AppliedMove {
            module: "toneequal".into(),
            name: "shadows_lift".into(),
            values: BTreeMap::from([("amount".into(), Setting { unit: "EV".into(), value: 0.6 })]),
            ..AppliedMove::default()
        }
    }

    #[test]
    fn an_operation_reads_as_a_photographer_would_say_it() {
        assert_eq!(Operation::Apply(lift()).to_string(), "shadows_lift amount=0.60 EV");
        let masked = AppliedMove { mask: Some(serde_json::json!({"named": "sky"})), ..lift() };
        assert_eq!(
            Operation::ApplyPerRegion { moves: vec![lift(), masked] }.to_string(),
            "2 regions: shadows_lift amount=0.60 EV; shadows_lift amount=0.60 EV on sky"
        );
        let look = Operation::ApplyLook { look: "dusk".into(), mask: None, strength: 0.5 };
        assert_eq!(look.to_string(), "look dusk at 50 %");
        assert_eq!(look.made().unwrap().to_string(), "dusk strength=0.50");
        assert_eq!(
            Operation::RemoveModule { instance: 1, module: "exposure".into() }.to_string(),
            "remove exposure #1"
        );
    }

    #[test]
    fn an_operation_survives_json() {
        let op = Operation::Apply(lift());
        let text = serde_json::to_string(&op).unwrap();
        assert!(text.starts_with(r#"{"kind":"apply","#), "{text}");
        assert_eq!(serde_json::from_str::<Operation>(&text).unwrap(), op);
        assert_eq!(serde_json::to_string(&Operation::Reset).unwrap(), r#"{"kind":"reset"}"#);
    }
}
