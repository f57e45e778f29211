//! Moves on several regions as one step: dodging and burning, eyes, patches of skin.
//!
//! A batch is the same state as its moves applied one by one, in the order of its regions. It is applied whole or
//! not at all, and everything that is wrong with it is said at once.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::vocabulary::apply::{ApplyRequest, PhotoFacts};
use crate::vocabulary::error::VocabularyError;
use crate::vocabulary::load::Vocabulary;
use crate::vocabulary::mask::MaskSpec;
use base::error::{Coded, ErrorCode};
use darktable::layout::Layouts;
use darktable::state::{Blend, EditState, Module};

/// The most regions of a batch: photographers stay below twenty.
const MOST_REGIONS: usize = 32;

/// The most moves of a batch, over all its regions.
const MOST_MOVES: usize = 64;

/// One region of a batch.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Region {
    /// As `mask` of apply_primitive.
    #[serde(alias = "mask_spec")]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub mask: MaskSpec,
    /// Of the one move.
    #[serde(default)]
    pub parameter_values: BTreeMap<String, f64>,
    /// The moves here, without the one move for all.
    #[serde(default)]
    pub ops: Vec<RegionOp>,
}

/// One move of a region.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RegionOp {
    /// A move.
    pub primitive_name: String,
    /// Left out = its defaults.
    #[serde(default)]
    pub parameter_values: BTreeMap<String, f64>,
}

/// A request for a batch.
#[derive(Clone, Copy, Debug)]
pub struct RegionsRequest<'a> {
    /// The one move of all regions; `None` where each region names its own.
    pub move_name: Option<&'a str>,
    /// The regions.
    pub regions: &'a [Region],
}

/// A batch that was applied.
#[derive(Clone, Debug, PartialEq)]
pub struct AppliedRegions {
    /// The new state.
    pub state: EditState,
    /// The moves, in order.
    pub moves: Vec<RegionMove>,
}

/// One move of a batch that was applied.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionMove {
    /// Which region, counted from 0.
    pub region: usize,
    /// The move's name.
    pub name: String,
    /// darktable's module.
    pub op: String,
    /// The instance that carries the move in the new state; 0 for a move at rest, which has none.
    pub instance: u32,
    /// Every parameter of the move, as applied.
    pub values: BTreeMap<String, f64>,
}

/// Why a batch is refused. Nothing of it was applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegionsError {
    /// There is no region.
    #[error("`regions` is empty: a batch has 1 to {MOST_REGIONS} regions")]
    Empty,
    /// There are too many.
    #[error("{count} regions are too many: a batch has 1 to {MOST_REGIONS}")]
    Regions {
        /// How many there are.
        count: usize,
    },
    /// The regions have too many moves together.
    #[error("{count} moves are too many: the regions of a batch have at most {MOST_MOVES} together")]
    Moves {
        /// How many there are.
        count: usize,
    },
    /// Regions are not usable.
    #[error("{} (counted from 0); nothing was applied", listed(.0))]
    Refused(Vec<BadRegion>),
}

/// What is wrong with a region, or with several alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRegion {
    /// Which, counted from 0.
    pub regions: Vec<usize>,
    /// What is wrong.
    pub reason: String,
    /// The code of that.
    pub code: ErrorCode,
    /// What to do about it.
    pub remedy: Option<String>,
}

fn listed(bad: &[BadRegion]) -> String {
    let one = |bad: &BadRegion| {
        let names: Vec<String> = bad.regions.iter().map(|at| format!("regions[{at}]")).collect();
        format!("{}: {}", names.join(", "), bad.reason)
    };
    bad.iter().map(one).collect::<Vec<_>>().join("; ")
}

impl RegionsError {
    /// The argument at fault: `regions[2]`, the first of several, or `regions`.
    pub fn field(&self) -> String {
        match self {
            Self::Refused(bad) => {
                let first = bad.iter().flat_map(|bad| &bad.regions).min();
                first.map_or_else(|| "regions".into(), |at| format!("regions[{at}]"))
            }
            _ => "regions".into(),
        }
    }
}

impl Coded for RegionsError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Refused(bad) => bad.first().map_or(ErrorCode::InvalidInput, |bad| bad.code),
            _ => ErrorCode::InvalidInput,
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::Empty => None,
            Self::Regions { .. } | Self::Moves { .. } => Some("make several batches of them".into()),
            Self::Refused(bad) => bad.iter().find_map(|bad| bad.remedy.clone()),
        }
    }
}

impl Vocabulary {
    /// Applies a batch. Pure, and all or nothing.
    ///
    /// # Errors
    /// [`RegionsError`] names every region at fault.
    pub fn apply_regions(
        &self,
        request: &RegionsRequest<'_>,
        state: &EditState,
        facts: &PhotoFacts,
        layouts: &Layouts,
        darktable_version: &str,
    ) -> Result<AppliedRegions, RegionsError> {
        let RegionsRequest { move_name, regions } = *request;
        match regions.len() {
            0 => return Err(RegionsError::Empty),
            count if count > MOST_REGIONS => return Err(RegionsError::Regions { count }),
            _ => {}
        }
        let count = regions.iter().map(|region| region.ops.len()).sum();
        if count > MOST_MOVES {
            return Err(RegionsError::Moves { count });
        }
        let mut bad = Bad::default();
        let mut new = state.clone();
        let mut made: Vec<(RegionMove, Option<Module>)> = Vec::new();
        for (at, region) in regions.iter().enumerate() {
            let moves = match moves_of(move_name, region) {
                Ok(moves) => moves,
                Err(reason) => {
                    bad.add(at, reason.to_owned(), ErrorCode::InvalidInput, None);
                    continue;
                }
            };
            for (name, values) in moves {
                let asked = ApplyRequest { move_name: name, values, mask: Some(&region.mask) };
                let applied = match self.apply(&asked, &new, facts, layouts, darktable_version) {
                    Ok(applied) => applied,
                    Err(error) => {
                        bad.add_error(at, &error);
                        continue;
                    }
                };
                let module = applied.state.module(&applied.op, applied.instance);
                let module = module.filter(|module| module.instance > 0).cloned();
                // Two masks may differ and still be one place: the strength of a mask is no part of where it is.
                let twin = made.iter().find(|(other, carrier)| {
                    let masks = regions.get(other.region).is_some_and(|r| r.mask == region.mask);
                    let places = carrier.as_ref().zip(module.as_ref()).is_some_and(|(a, b)| same_place(a, b));
                    other.name == name && (masks || places)
                });
                if let Some((twin, _)) = twin {
                    let reason = format!(
                        "the mask and the move `{name}` of regions[{}] again, whose values it would replace",
                        twin.region
                    );
                    bad.add(at, reason, ErrorCode::InvalidInput, Some("leave one of the two out"));
                    continue;
                }
                let done = RegionMove {
                    region: at,
                    name: name.to_owned(),
                    op: applied.op,
                    instance: applied.instance,
                    values: applied.values,
                };
                made.push((done, module));
                new = applied.state;
            }
        }
        if !bad.0.is_empty() {
            return Err(RegionsError::Refused(bad.0));
        }
        // Each move of the batch may have renumbered the instances of those before it.
        let moves = made.into_iter().map(|(done, carrier)| {
            let carrier = carrier.and_then(|old| new.modules.iter().find(|now| same_place(now, &old)));
            RegionMove { instance: carrier.map_or(0, |module| module.instance), ..done }
        });
        let moves = moves.collect();
        Ok(AppliedRegions { state: new, moves })
    }
}

/// Whether two module instances are one move in one place: what they do there, and how strongly, may differ.
pub fn same_place(a: &Module, b: &Module) -> bool {
    let place = |module: &Module| module.blend.as_ref().map(|blend| Blend { opacity: 0.0, ..blend.clone() });
    a.op == b.op && a.name == b.name && place(a) == place(b)
}

type NamedValues<'a> = (&'a str, &'a BTreeMap<String, f64>);

/// The moves of a region, by name and values.
fn moves_of<'a>(one: Option<&'a str>, region: &'a Region) -> Result<Vec<NamedValues<'a>>, &'static str> {
    match one {
        Some(name) if region.ops.is_empty() => Ok(vec![(name, &region.parameter_values)]),
        Some(_) => Err("it has `ops`, though the batch has one primitive_name for all regions"),
        None if !region.parameter_values.is_empty() => {
            Err("its `parameter_values` belong to no move: the batch has no primitive_name")
        }
        None if region.ops.is_empty() => {
            Err("it has no move: name `ops` here, or one primitive_name for all")
        }
        None => Ok(region.ops.iter().map(|op| (op.primitive_name.as_str(), &op.parameter_values)).collect()),
    }
}

/// What is wrong so far; equal reasons together.
#[derive(Default)]
struct Bad(Vec<BadRegion>);

impl Bad {
    fn add(&mut self, region: usize, reason: String, code: ErrorCode, remedy: Option<&str>) {
        match self.0.iter_mut().find(|bad| bad.reason == reason) {
            Some(bad) if bad.regions.last() == Some(&region) => {}
            Some(bad) => bad.regions.push(region),
            None => {
                let remedy = remedy.map(str::to_owned);
                self.0.push(BadRegion { regions: vec![region], reason, code, remedy });
            }
        }
    }

    fn add_error(&mut self, region: usize, error: &VocabularyError) {
        self.add(region, error.to_string(), error.code(), error.remedy().as_deref());
    }
}

#[cfg(test)]
mod tests;
