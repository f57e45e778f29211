//! Retouching: places that are healed, cloned from a place beside them, blurred, or filled with one colour.
//!
//! All spots of a photo are in one instance of darktable's `retouch`, in the order in which they came: a later
//! one works on what an earlier one left. A round spot is known by its centre and one with an outline by its corners,
//! so that the same spot again replaces itself. Without a source the program takes the nearest place that lies in the
//! frame and touches no other spot: 2.5 radii away, then 3.5, 5 and 7; at each distance right, left, below, above,
//! then between these. Half the width of an outline is its radius.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::vocabulary::apply::{PhotoFacts, finish, replace};
use crate::vocabulary::error::VocabularyError;
use crate::vocabulary::frames::seen;
use crate::vocabulary::load::Vocabulary;
use crate::vocabulary::mask::Frame;
use base::error::{Coded, ErrorCode};
use darktable::blend;
use darktable::forms::{self, FormError};
use darktable::layout::{BlendSpace, Layouts};
use darktable::order;
use darktable::params;
use darktable::state::{Blend, EditState, GroupMember, MaskForm, Module, Params, Shape, Value};

use outline::{Outline, Picture};
use place::{BLUR, SpotShape, check, middle};
use table::{Row, rows, write};

pub mod fill;
mod outline;
mod place;
mod table;

/// darktable's module.
pub(super) const OP: &str = "retouch";

/// How many spots the module holds.
const MOST: usize = 300;

/// How far a spot fades out beyond its radius, as a share of it.
const FEATHER: f64 = 0.3;

/// How far from a spot a source is looked for, in radii.
const DISTANCES: [f64; 4] = [2.5, 3.5, 5.0, 7.0];

/// Where it is looked for, in the order of preference.
const DIRECTIONS: [[f64; 2]; 8] =
    [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0], [D, D], [-D, D], [D, -D], [-D, -D]];
const D: f64 = std::f64::consts::FRAC_1_SQRT_2;

/// What is done with a spot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SpotAction {
    /// The source's texture in the colour and light that surround the spot.
    #[default]
    Heal,
    /// An exact copy of the source.
    Clone,
    /// The spot itself, without its detail.
    Blur,
    /// The source's mean colour, without any detail.
    Fill,
    /// Remove the spot at this place.
    Remove,
}

impl SpotAction {
    /// As it is spelt.
    pub fn name(self) -> &'static str {
        match self {
            Self::Heal => "heal",
            Self::Clone => "clone",
            Self::Blur => "blur",
            Self::Fill => "fill",
            Self::Remove => "remove",
        }
    }

    /// darktable's number, of `dt_iop_retouch_algo_type_t`.
    fn algorithm(self) -> i64 {
        match self {
            Self::Clone => 1,
            Self::Heal | Self::Remove => 2,
            Self::Blur => 3,
            Self::Fill => 4,
        }
    }

    /// Whether it takes something from another place.
    fn takes(self) -> bool {
        matches!(self, Self::Heal | Self::Clone | Self::Fill)
    }
}

/// One spot, in 0…1 of the displayed picture: a circle, or the area that `path` encloses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Spot {
    /// heal: the source's texture in the spot's light; clone: a copy; fill: its mean colour; blur: no detail; remove: takes a spot back.
    #[serde(default)]
    pub action: SpotAction,
    /// Centre of a circle, share of the width.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<f64>,
    /// Share of the height.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub y: Option<f64>,
    /// Share of the shorter side, a little more than the blemish; left out = 0.02.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.002, max = 0.25))]
    pub radius: Option<f64>,
    /// Instead of a circle: corners [x, y].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Vec<[f64; 2]>>,
    /// Where to take from, [x, y]; left out = beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<[f64; 2]>,
    /// Reach of a blur, share of the shorter side; left out = 0.01.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0005, max = 0.1))]
    pub blur_radius: Option<f64>,
    /// The colour that a fill paints, in the numbers that darktable has there: measured at the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub color: Option<[f64; 3]>,
}

impl Spot {
    /// The radius when none is given.
    pub const RADIUS: f64 = 0.02;

    /// The centre of a circle, or the mean of an outline's corners.
    pub fn center(&self) -> [f64; 2] {
        match &self.path {
            Some(corners) => middle(corners),
            None => [self.x, self.y].map(Option::unwrap_or_default),
        }
    }
}

/// Spots that were applied.
#[derive(Clone, Debug, PartialEq)]
pub struct AppliedSpots {
    /// The new state.
    pub state: EditState,
    /// The spots in order, each with its source.
    pub spots: Vec<Spot>,
    /// How many spots the photo has now.
    pub standing: usize,
}

/// Why spots are refused. Nothing of the call was applied.
#[derive(Debug, thiserror::Error)]
pub enum SpotError {
    /// No spot was given.
    #[error("`spots` is empty: name at least one")]
    Empty,
    /// The module holds no more.
    #[error("{count} spots are too many: a photo has at most {MOST}")]
    TooMany {
        /// How many there would be.
        count: usize,
    },
    /// Spots are not usable.
    #[error("{} (counted from 0); nothing was applied", .0.join("; "))]
    Refused(Vec<String>),
    /// darktable's module cannot be written.
    #[error(transparent)]
    Vocabulary(#[from] VocabularyError),
    /// A form cannot be written.
    #[error(transparent)]
    Form(#[from] FormError),
}

impl Coded for SpotError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Empty | Self::TooMany { .. } | Self::Refused(_) => ErrorCode::InvalidInput,
            Self::Vocabulary(error) => error.code(),
            Self::Form(error) => error.code(),
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::Vocabulary(error) => error.remedy(),
            _ => None,
        }
    }
}

impl Vocabulary {
    /// The spots with their sources, as [`Self::apply_spots`] takes them; a fill's colour where it is known already.
    /// Those that [`fill::is_wanting`] are to be measured before.
    ///
    /// # Errors
    /// Spots that lie outside of the picture, have no place to take from, or are not there to be removed.
    pub fn place_spots(
        &self,
        spots: &[Spot],
        state: &EditState,
        facts: &PhotoFacts,
        layouts: &Layouts,
        darktable_version: &str,
    ) -> Result<Vec<Spot>, SpotError> {
        work(spots, state, facts, layouts, darktable_version).map(|(placed, ..)| placed)
    }

    /// Retouches, or takes spots back. Pure, and all or nothing; the same spot again is the same state.
    ///
    /// # Errors
    /// As [`Self::place_spots`]; too many spots; a fill without a colour.
    pub fn apply_spots(
        &self,
        spots: &[Spot],
        state: &EditState,
        facts: &PhotoFacts,
        layouts: &Layouts,
        darktable_version: &str,
    ) -> Result<AppliedSpots, SpotError> {
        let (placed, rows, mut module) = work(spots, state, facts, layouts, darktable_version)?;
        if let Some(at) = placed.iter().position(fill::is_wanting) {
            return Err(SpotError::Refused(vec![format!("spots[{at}]: its colour was not measured")]));
        }
        let standing = rows.len();
        if standing > MOST {
            return Err(SpotError::TooMany { count: standing });
        }
        let mut new = state.clone();
        if rows.is_empty() {
            self.restore(&mut new, facts, OP);
        } else {
            let member = |(at, row): (usize, &Row)| {
                // Used, shown, and joined to those before it.
                let state = if at == 0 { 1 | 2 } else { 1 | 2 | 8 };
                GroupMember { form: row.form.id, opacity: row.opacity, state }
            };
            let group = forms::clone_group("spots", rows.iter().enumerate().map(member).collect())?;
            let blend = module.blend.take().unwrap_or_else(|| blend::normal(BlendSpace::RgbScene));
            module.blend = Some(Blend { mask_id: Some(group.id), ..blend });
            module.enabled = true;
            write(&mut module, &rows);
            for form in rows.into_iter().map(|row| row.form).chain([group]) {
                if !new.masks.iter().any(|known| known.id == form.id) {
                    new.masks.push(form);
                }
            }
            replace(&mut new, module);
        }
        finish(&mut new, facts);
        order::sort(&mut new);
        Ok(AppliedSpots { state: new, spots: placed, standing })
    }
}

/// The spots with their sources, the rows that the photo has with them, and the instance that they are for.
fn work(
    spots: &[Spot],
    state: &EditState,
    facts: &PhotoFacts,
    layouts: &Layouts,
    darktable_version: &str,
) -> Result<(Vec<Spot>, Vec<Row>, Module), SpotError> {
    if spots.is_empty() {
        return Err(SpotError::Empty);
    }
    let (module, rows) = match state.module(OP, 0) {
        Some(module) => (module.clone(), rows(module, &state.masks)?),
        None => (fresh(layouts, darktable_version)?, Vec::new()),
    };
    let picture = Picture::of(&Frame::of(state, facts));
    let places: Vec<_> = spots.iter().map(|spot| check(spot, &picture)).collect();
    let asked: Vec<&SpotShape> = spots
        .iter()
        .zip(&places)
        .filter(|(spot, _)| spot.action != SpotAction::Remove)
        .filter_map(|(_, place)| place.as_ref().ok())
        .collect();
    let mut retouch = Retouch { picture, rows };
    let (mut placed, mut bad) = (Vec::new(), Vec::new());
    for (at, (spot, place)) in spots.iter().zip(&places).enumerate() {
        match place.as_ref().map_err(String::clone).and_then(|place| retouch.set(spot, place, &asked)) {
            Ok(spot) => placed.push(spot),
            Err(reason) => bad.push(format!("spots[{at}]: {reason}")),
        }
    }
    if bad.is_empty() { Ok((placed, retouch.rows, module)) } else { Err(SpotError::Refused(bad)) }
}

/// A new instance without spots.
fn fresh(layouts: &Layouts, darktable_version: &str) -> Result<Module, VocabularyError> {
    let known = layouts.module(OP).map_err(|error| unencodable(&error.to_string()))?;
    let layout = known.as_ref().filter(|known| {
        known.lowest().is_some_and(|lowest| known.accepts(darktable_version, lowest.modversion))
    });
    let layout = layout.and_then(|known| known.lowest()).ok_or_else(|| VocabularyError::Unavailable {
        name: "apply_spot".into(),
        module: OP.into(),
        version: darktable_version.to_owned(),
    })?;
    Ok(Module {
        blend: None,
        enabled: true,
        instance: 0,
        modversion: layout.modversion,
        name: String::new(),
        op: OP.into(),
        params: Params::Fields(params::defaults(layout)),
    })
}

fn unencodable(reason: &str) -> VocabularyError {
    VocabularyError::Unencodable { name: "apply_spot".into(), reason: reason.to_owned() }
}

/// The spots of a photo while they are worked on.
struct Retouch {
    picture: Picture,
    rows: Vec<Row>,
}

impl Retouch {
    /// Sets one spot, and returns it with its source; `asked` are the places of the call, which keep clear of each
    /// other.
    fn set(&mut self, spot: &Spot, place: &SpotShape, asked: &[&SpotShape]) -> Result<Spot, String> {
        if spot.action == SpotAction::Remove {
            return self.remove(spot, place.center());
        }
        let shape = self.picture.shape(place);
        let same = |row: &Row| {
            let standing = forms::without_clone(&row.form);
            standing.is_some_and(|standing| corners(&standing) == corners(&shape))
        };
        let row = self.rows.iter().position(same);
        let mut cells = BTreeMap::from([
            (ALGORITHM.to_owned(), Value::Ints(vec![spot.action.algorithm()])),
            // darktable's present way to carry a spot through lens and perspective corrections.
            ("rt_forms.distort_mode".to_owned(), Value::Ints(vec![2])),
        ]);
        if spot.action == SpotAction::Blur {
            let pixels = self.picture.short() * spot.blur_radius.unwrap_or(BLUR);
            cells.insert("rt_forms.blur_radius".to_owned(), Value::Floats(vec![pixels as f32]));
        }
        // The same spot again keeps the place that it was given before, and its colour.
        let old = row.and_then(|row| self.rows.get(row)).filter(|old| {
            spot.source.is_none()
                && spot.color.is_none()
                && forms::without_clone(&old.form).as_ref() == Some(&shape)
                && cells.iter().all(|(name, cell)| old.cells.get(name) == Some(cell))
        });
        if let Some(old) = old {
            return Ok(match (spot.action, old.cells.get(COLOR)) {
                (SpotAction::Heal | SpotAction::Clone, _) => {
                    Spot { source: Some(self.source_of(old, place)), ..spot.clone() }
                }
                (SpotAction::Fill, Some(Value::Floats(cell))) => {
                    let color = <[f32; 3]>::try_from(cell.as_slice()).ok();
                    Spot { color: color.map(|color| color.map(f64::from)), ..spot.clone() }
                }
                _ => spot.clone(),
            });
        }
        let source = match spot.source {
            _ if !spot.action.takes() => None,
            Some(source) => Some(source),
            None => Some(self.source(place, row, asked)?),
        };
        if let Some(source) = source {
            let [x, y] = self.picture.pixels(place.center());
            let [to_x, to_y] = self.picture.pixels(source);
            if (to_x - x).hypot(to_y - y) < place.half_width(self.picture.size) {
                return Err("its `source` lies in the spot itself".into());
            }
        }
        if let Some(color) = spot.color {
            let color = Value::Floats(color.map(|channel| channel as f32).to_vec());
            cells.insert(COLOR.to_owned(), color);
            cells.insert("rt_forms.fill_mode".to_owned(), Value::Ints(vec![PAINT]));
        }
        let form = self.form(spot.action, place, &shape, source)?;
        cells.insert("rt_forms.formid".to_owned(), Value::Ints(vec![form.id.into()]));
        let new = Row { form, opacity: 1.0, cells };
        match row.and_then(|row| self.rows.get_mut(row)) {
            Some(old) => *old = new,
            None => self.rows.push(new),
        }
        Ok(Spot { source, ..spot.clone() })
    }

    fn remove(&mut self, spot: &Spot, at: [f64; 2]) -> Result<Spot, String> {
        let point = self.picture.pixels(at);
        let outlines = self.rows.iter().map(|row| self.picture.standing(&row.form));
        let hit = outlines.enumerate().filter_map(|(row, outline)| Some((row, outline?.hit(point)?)));
        let Some((row, _)) = hit.min_by(|(_, a), (_, b)| a.total_cmp(b)) else {
            let count = self.rows.len();
            return Err(format!("no spot stands at {}, {}, of the {count} there are", at[0], at[1]));
        };
        self.rows.remove(row);
        Ok(spot.clone())
    }

    /// The form of a spot. What its first corner, or its centre, shows comes from the form's own source.
    fn form(
        &self,
        action: SpotAction,
        place: &SpotShape,
        shape: &Shape,
        source: Option<[f64; 2]>,
    ) -> Result<MaskForm, String> {
        let origin = match source {
            // What is painted or blurred takes nothing while it is rendered.
            Some(source) if action != SpotAction::Fill => {
                let [x, y] = self.picture.frame.point(source);
                let [by_x, by_y] = self.corner_of(place);
                [x + by_x, y + by_y]
            }
            _ => [0.0, 0.0],
        };
        forms::clone_shape(action.name(), shape, origin).map_err(|error| error.to_string())
    }

    /// How far the first corner of a place is from its middle, in the raw frame: nothing for a circle.
    fn corner_of(&self, place: &SpotShape) -> [f32; 2] {
        match place {
            SpotShape::Circle { .. } => [0.0, 0.0],
            SpotShape::Path(corners) => {
                let [x, y] = self.picture.frame.point(corners.first().copied().unwrap_or_default());
                let [at_x, at_y] = self.picture.frame.point(middle(corners));
                [x - at_x, y - at_y]
            }
        }
    }

    /// The source of a spot that is there already.
    fn source_of(&self, row: &Row, place: &SpotShape) -> [f64; 2] {
        let [by_x, by_y] = self.corner_of(place);
        let [x, y] = row.form.source;
        seen(&self.picture.frame, [x - by_x, y - by_y]).map(rounded)
    }

    /// The place to take from: see the head of this file.
    fn source(
        &self,
        place: &SpotShape,
        own: Option<usize>,
        asked: &[&SpotShape],
    ) -> Result<[f64; 2], String> {
        let Picture { size, .. } = self.picture;
        let (outline, step) = (self.picture.outline(place), place.half_width(self.picture.size));
        let standing = self.rows.iter().enumerate().filter(|(row, _)| Some(*row) != own);
        let standing = standing.filter_map(|(_, row)| self.picture.standing(&row.form));
        let others = asked.iter().filter(|other| other.center() != place.center());
        let taken: Vec<Outline> = standing.chain(others.map(|other| self.picture.outline(other))).collect();
        let center = self.picture.pixels(place.center());
        for distance in DISTANCES {
            for direction in DIRECTIONS {
                let way = direction.map(|part| part * distance * step);
                let there = outline.moved(way);
                // An outline may be longer than it is far away.
                let beside = there.distance(&outline) > step / 4.0;
                if beside
                    && there.lies_within(size, &outline)
                    && taken.iter().all(|other| there.is_clear_of(other))
                {
                    let at = [center[0] + way[0], center[1] + way[1]];
                    return Ok([rounded(at[0] / size[0]), rounded(at[1] / size[1])]);
                }
            }
        }
        Err("there is no free place beside it to take from: give its `source`, or make it smaller".into())
    }
}

/// What makes two shapes the same spot: the centre of a circle, the corners of a path.
fn corners(shape: &Shape) -> Vec<[u32; 2]> {
    match shape {
        Shape::Circle { center, .. } => vec![center.map(f32::to_bits)],
        Shape::Path { points } => points.iter().map(|point| point.corner.map(f32::to_bits)).collect(),
        _ => Vec::new(),
    }
}

const ALGORITHM: &str = "rt_forms.algorithm";
const COLOR: &str = "rt_forms.fill_color";

/// darktable's way to fill with a colour, and not with nothing.
const PAINT: i64 = 1;

/// To a ten-thousandth: what a message shows is then what is done.
fn rounded(share: f64) -> f64 {
    (share * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests;
