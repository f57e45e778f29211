//! What was done to a photo, as data: the same in a commit, in the op-log and in a replay.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::vocabulary::{
    Applied, AppliedRegions, ApplyRequest, MaskSpec, Move, PhotoFacts, Region, RegionsRequest, STRENGTH,
    Spot, SpotAction, Vocabulary, VocabularyError,
};
use base::ids::{Hash, RefName};
use darktable::layout::Layouts;
use darktable::state::EditState;

/// How many columns a line about a batch fills before it is cut short.
const COLUMNS: usize = 120;

/// One thing that was done. The first group makes commits and is part of their hashes, so it holds nothing
/// of time, place or author; the second only moves names, and is in the op-log alone.
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
        /// How many regions.
        n_regions: usize,
        /// The one move of all regions, where they have one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        primitive: Option<String>,
        /// The regions in order.
        regions: Vec<RegionRecord>,
    },
    /// Several moves under one name.
    ApplyLook {
        /// The look's name.
        look: String,
        /// Where it acts, as it was given; everywhere if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mask: Option<serde_json::Value>,
        /// 0…1.
        strength: f64,
    },
    /// Spots retouched or removed.
    ApplySpot {
        /// The spots, each with its source.
        spots: Vec<Spot>,
    },
    /// A module or a move was taken out, or put back to darktable's default.
    RemoveModule {
        /// `multi_priority`, if one instance of the module was meant.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance: Option<u32>,
        /// darktable's name of the module, or the move's name.
        module: String,
    },
    /// One placed move was taken back.
    RemovePlaced {
        /// Its id: `exposure#2`; number 0 for the one without a mask.
        id: String,
        /// `multi_priority` of the instance that held it.
        instance: u32,
        /// darktable's name of the module.
        module: String,
    },
    /// A placed move got another mask.
    ReplaceMask {
        /// Its id.
        id: String,
        /// `multi_priority` of the instance that held it before.
        was: u32,
        /// The move with its new mask.
        applied: AppliedMove,
    },
    /// Edits were taken over from another photo, or from another state of this one.
    Propagate {
        /// What was taken over, in words.
        edits: Vec<String>,
        /// The state that they were taken from.
        source: Hash,
    },
    /// Back to the baseline.
    Reset,
    /// A state was recorded as it stood.
    Snapshot,
    /// The attempt was given up; the commit holds the baseline's state.
    Abandon,
    /// A protocol undid an attempt; the commit holds the state that the attempt began from.
    Rollback {
        /// The commit that it began from.
        to: Hash,
    },
    /// The edit was taken over from a sidecar.
    ImportSidecar {
        /// SHA-256 of the sidecar.
        sidecar: Hash,
    },
    /// What camera and lens call for, and a look to start from.
    BindLayers {
        /// The moves and looks in their order.
        steps: Vec<Operation>,
    },
    /// A branch was made.
    CreateBranch,
    /// A tag was made.
    CreateTag,
    /// A branch was pointed at another commit.
    MoveBranch,
    /// A branch was deleted.
    DeleteBranch,
    /// A tag was deleted.
    DeleteTag,
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
    /// Where it acts, as it was given; everywhere if absent.
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

/// One region of a batch as it was applied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RegionRecord {
    /// Where it is, as it was given.
    pub mask: serde_json::Value,
    /// The same in a few words.
    pub mask_summary: String,
    /// Its moves; the mask is not said again in them.
    pub moves: Vec<AppliedMove>,
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

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ingest { .. } => f.write_str("ingest: darktable's defaults"),
            Self::Apply(applied) => applied.fmt(f),
            Self::ApplyPerRegion { n_regions, primitive, regions } => {
                let plural = if *n_regions == 1 { "" } else { "s" };
                let of = primitive.as_ref().map(|name| format!(" of {name}")).unwrap_or_default();
                let parts = regions.iter().map(|region| region.words(primitive.is_some()));
                f.write_str(&one_line(&format!("{n_regions} region{plural}{of}: "), parts))
            }
            Self::ApplyLook { look, mask, strength } => {
                write!(f, "look {look} at {:.0} %", strength * 100.0)?;
                mask_words(mask.as_ref(), f)
            }
            Self::ApplySpot { spots } => {
                let plural = if spots.len() == 1 { "" } else { "s" };
                let parts = spots.iter().map(|spot| {
                    let [x, y] = spot.center();
                    format!("{} at {x:.2}, {y:.2}", spot.action.name())
                });
                f.write_str(&one_line(&format!("{} spot{plural}: ", spots.len()), parts))
            }
            Self::RemoveModule { instance: None, module } => write!(f, "remove {module}"),
            Self::RemoveModule { instance: Some(instance), module } => {
                write!(f, "remove {module} #{instance}")
            }
            Self::RemovePlaced { id, .. } => write!(f, "remove {id}"),
            Self::ReplaceMask { id, applied, .. } => {
                write!(f, "{id} mask replaced:")?;
                mask_words(applied.mask.as_ref(), f)
            }
            Self::Propagate { edits, source } => f.write_str(&one_line(
                &format!("taken over from {}: ", source.short()),
                edits.iter().cloned(),
            )),
            Self::Reset => f.write_str("reset to the baseline"),
            Self::Snapshot => f.write_str("snapshot"),
            Self::Abandon => f.write_str("abandon: back to the baseline"),
            Self::Rollback { to } => write!(f, "attempt taken back to {}", to.short()),
            Self::ImportSidecar { sidecar } => write!(f, "import sidecar {}", sidecar.short()),
            Self::BindLayers { steps } => {
                f.write_str("layers: ")?;
                for (i, step) in steps.iter().enumerate() {
                    if i > 0 {
                        f.write_str("; ")?;
                    }
                    step.fmt(f)?;
                }
                Ok(())
            }
            Self::CreateBranch => f.write_str("create branch"),
            Self::CreateTag => f.write_str("create tag"),
            Self::MoveBranch => f.write_str("move branch"),
            Self::DeleteBranch => f.write_str("delete branch"),
            Self::DeleteTag => f.write_str("delete tag"),
            Self::RestoreBranch => f.write_str("restore branch from the transcript"),
            Self::Checkout { branch: Some(branch) } => write!(f, "check out {branch}"),
            Self::Checkout { branch: None } => f.write_str("check out a commit"),
        }
    }
}

impl Operation {
    /// Applies a move, a look or a saved style of the vocabulary: the new state, and what was done.
    ///
    /// # Errors
    /// [`VocabularyError`] as for [`Vocabulary::apply`].
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
        if let Some(style) = vocabulary.style(request.move_name) {
            if request.mask.is_some() || !request.values.is_empty() {
                return Err(VocabularyError::NotAdjustable { name: style.name.clone() });
            }
            let new = vocabulary.apply_style(style, state, layouts, darktable_version)?;
            return Ok((new, Self::ApplyLook { look: style.name.clone(), mask: None, strength: 1.0 }));
        }
        let applied = vocabulary.apply(request, state, facts, layouts, darktable_version)?;
        let entry = vocabulary.get(request.move_name)?;
        let operation = Self::Apply(AppliedMove::of(entry, &applied, request.mask));
        Ok((applied.state, operation))
    }

    /// The record of a batch that was applied.
    pub fn of_regions(
        request: &RegionsRequest<'_>,
        applied: &AppliedRegions,
        vocabulary: &Vocabulary,
    ) -> Self {
        let record = |(at, region): (usize, &Region)| {
            let mask = serde_json::to_value(&region.mask).unwrap_or_default();
            let moves = applied.moves.iter().filter(|done| done.region == at).map(|done| AppliedMove {
                instance: done.instance,
                mask: None,
                module: done.op.clone(),
                name: done.name.clone(),
                values: settings(vocabulary.get(&done.name).ok(), &done.values),
            });
            RegionRecord { mask_summary: region.mask.summary(), mask, moves: moves.collect() }
        };
        Self::ApplyPerRegion {
            n_regions: request.regions.len(),
            primitive: request.move_name.map(str::to_owned),
            regions: request.regions.iter().enumerate().map(record).collect(),
        }
    }

    /// The moves that it applied, each with its mask; spots count as one move, `apply_spot`.
    pub fn moves(&self) -> Vec<AppliedMove> {
        match self {
            Self::Apply(applied) | Self::ReplaceMask { applied, .. } => vec![applied.clone()],
            Self::ApplyPerRegion { regions, .. } => {
                regions.iter().flat_map(RegionRecord::with_mask).collect()
            }
            Self::ApplySpot { spots } if spots.iter().any(|spot| spot.action != SpotAction::Remove) => {
                let (name, module) = ("apply_spot".into(), "retouch".into());
                vec![AppliedMove { name, module, ..AppliedMove::default() }]
            }
            Self::BindLayers { steps } => steps.iter().flat_map(Self::moves).collect(),
            // As if it were one move, with its strength.
            Self::ApplyLook { look, mask, strength } => vec![AppliedMove {
                mask: mask.clone(),
                name: look.clone(),
                values: [(STRENGTH.to_owned(), Setting { unit: String::new(), value: *strength })].into(),
                ..AppliedMove::default()
            }],
            _ => Vec::new(),
        }
    }
}

impl RegionRecord {
    fn with_mask(&self) -> impl Iterator<Item = AppliedMove> {
        self.moves.iter().map(|applied| AppliedMove { mask: Some(self.mask.clone()), ..applied.clone() })
    }

    /// `+0.30 EV ellipse at 0.32, 0.41`, with the moves' names unless all regions have the one.
    fn words(&self, one_move: bool) -> String {
        let moves: Vec<String> = self.moves.iter().map(|applied| applied.strength(one_move)).collect();
        format!("{} {}", moves.join(", "), self.mask_summary)
    }
}

/// The head and as many parts as fit into a line, and how many did not.
pub(super) fn one_line(head: &str, parts: impl ExactSizeIterator<Item = String>) -> String {
    let count = parts.len();
    let mut line = head.to_owned();
    for (at, part) in parts.enumerate() {
        if at > 0 && line.chars().count() + part.chars().count() > COLUMNS {
            line.push_str(&format!("; … and {} more", count - at));
            break;
        }
        if at > 0 {
            line.push_str("; ");
        }
        line.push_str(&part);
    }
    line
}

fn settings(entry: Option<&Move>, values: &BTreeMap<String, f64>) -> BTreeMap<String, Setting> {
    let unit = |name: &str| entry.and_then(|entry| entry.parameters.get(name)).map(|p| p.unit.clone());
    let setting = |(name, value): (&String, &f64)| {
        (name.clone(), Setting { unit: unit(name).unwrap_or_default(), value: *value })
    };
    values.iter().map(setting).collect()
}

impl AppliedMove {
    /// The record of a move that was applied: `entry` is the move, `mask` the one given.
    pub fn of(entry: &Move, applied: &Applied, mask: Option<&MaskSpec>) -> Self {
        Self {
            instance: applied.instance,
            mask: mask.and_then(|mask| serde_json::to_value(mask).ok()),
            module: applied.op.clone(),
            name: entry.name.clone(),
            values: settings(Some(entry), &applied.values),
        }
    }

    /// The values in short, as one of several in a line: `+0.30 EV`, `exposure +0.30 EV`, `amount=0.60 hue=30.00 °`.
    fn strength(&self, nameless: bool) -> String {
        let values: Vec<String> = match self.values.iter().collect::<Vec<_>>().as_slice() {
            [(_, only)] => vec![only.words(true)],
            all => all.iter().map(|(name, setting)| format!("{name}={setting}")).collect(),
        };
        let name = if nameless { "" } else { self.name.as_str() };
        format!("{name} {}", values.join(" ")).trim().to_owned()
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

impl Setting {
    fn words(&self, signed: bool) -> String {
        // Two digits, as sliders show them, unless that would hide the value.
        let small = self.value != 0.0 && self.value.abs() < 0.01;
        let number = match (small, signed) {
            (true, true) => format!("{:+}", self.value),
            (true, false) => self.value.to_string(),
            (false, true) => format!("{:+.2}", self.value),
            (false, false) => format!("{:.2}", self.value),
        };
        if self.unit.is_empty() { number } else { format!("{number} {}", self.unit) }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words(false))
    }
}

/// A mask of the record in a few words: `ellipse at 0.32, 0.41`.
fn mask_summary(mask: &serde_json::Value) -> String {
    let words = serde_json::from_value::<MaskSpec>(mask.clone()).map(|mask| mask.summary());
    words.unwrap_or_else(|_| "a mask".into())
}

/// ` on ` and the mask, if there is one.
fn mask_words(mask: Option<&serde_json::Value>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    mask.map_or(Ok(()), |mask| write!(f, " on {}", mask_summary(mask)))
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
        assert_eq!(Operation::Apply(masked).to_string(), "shadows_lift amount=0.60 EV on sky");
        let look = Operation::ApplyLook { look: "dusk".into(), mask: None, strength: 0.5 };
        assert_eq!(look.to_string(), "look dusk at 50 %");
        assert_eq!(look.moves()[0].to_string(), "dusk strength=0.50");
        assert_eq!(
            Operation::RemoveModule { instance: Some(1), module: "exposure".into() }.to_string(),
            "remove exposure #1"
        );
    }

    #[test]
    fn a_batch_is_one_line_however_large() {
        let region = |x: f64| {
            let mask = serde_json::json!({"shape": "ellipse", "center": [x, 0.41], "radius": [0.1, 0.1]});
            RegionRecord { mask_summary: mask_summary(&mask), mask, moves: vec![lift()] }
        };
        let batch = |regions: Vec<RegionRecord>, primitive: Option<&str>| Operation::ApplyPerRegion {
            n_regions: regions.len(),
            primitive: primitive.map(str::to_owned),
            regions,
        };
        let one = batch(vec![region(0.32)], Some("shadows_lift"));
        assert_eq!(one.to_string(), "1 region of shadows_lift: +0.60 EV ellipse at 0.32, 0.41");
        let mut mixed = region(0.5);
        mixed.moves.push(AppliedMove { name: "velvia".into(), ..lift() });
        assert_eq!(
            batch(vec![region(0.32), mixed], None).to_string(),
            "2 regions: shadows_lift +0.60 EV ellipse at 0.32, 0.41; shadows_lift +0.60 EV, velvia +0.60 EV ellipse at 0.50, 0.41"
        );
        let many = batch((0..32).map(|i| region(f64::from(i) / 32.0)).collect(), Some("shadows_lift"));
        let words = many.to_string();
        assert!(words.starts_with("32 regions of shadows_lift: +0.60 EV ellipse at 0.00, 0.41; "), "{words}");
        assert!(words.ends_with("; … and 29 more") && words.chars().count() < 140, "{words}");
        assert_eq!(many.moves().len(), 32);
        assert_eq!(many.moves()[1].mask.as_ref().unwrap()["center"][0], 1.0 / 32.0);
        let spot = Spot { x: Some(0.25), y: Some(0.5), ..Spot::default() };
        assert_eq!(Operation::ApplySpot { spots: vec![spot] }.to_string(), "1 spot: heal at 0.25, 0.50");
        let path = Some(vec![[0.1, 0.1], [0.3, 0.1], [0.2, 0.4]]);
        let spot = Spot { action: SpotAction::Fill, path, ..Spot::default() };
        assert_eq!(Operation::ApplySpot { spots: vec![spot] }.to_string(), "1 spot: fill at 0.20, 0.20");
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
