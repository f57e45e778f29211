//! Retouching: spots that are healed or cloned from a place beside them.
//!
//! All spots of a photo stand in one instance of darktable's `retouch`, in the order in which they came: a later
//! one works on what an earlier one left. A spot is known by its centre, so that the same spot again replaces
//! itself. Without a source the program takes the nearest place that lies in the frame and touches no other spot:
//! 2.5 radii away, then 3.5, 5 and 7; at each distance right, left, below, above, then between these.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::darktable::blend;
use crate::darktable::forms::{self, FormError};
use crate::darktable::layout::{BlendSpace, Layouts};
use crate::darktable::order;
use crate::darktable::params;
use crate::darktable::state::{Blend, EditState, GroupMember, MaskForm, Module, Params, Shape, Value};
use crate::error::{Coded, ErrorCode};
use crate::vocabulary::apply::{PhotoFacts, finish, replace};
use crate::vocabulary::error::VocabularyError;
use crate::vocabulary::frames::seen;
use crate::vocabulary::load::Vocabulary;
use crate::vocabulary::mask::Frame;

/// darktable's module.
pub(super) const OP: &str = "retouch";

/// How many spots the module holds.
const MOST: usize = 300;

/// How far a spot fades out beyond its radius, as a share of it.
const FEATHER: f64 = 0.3;

/// The radii that a spot may have, as shares of the picture's shorter side.
const RADII: std::ops::RangeInclusive<f64> = 0.002..=0.25;

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
    /// Take back the spot that stands here.
    Remove,
}

impl SpotAction {
    /// As it is spelt.
    pub fn name(self) -> &'static str {
        match self {
            Self::Heal => "heal",
            Self::Clone => "clone",
            Self::Remove => "remove",
        }
    }
}

/// One spot, in 0…1 of the displayed picture.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Spot {
    /// heal takes the source's texture and keeps the light around the spot, clone copies, remove takes a spot back.
    #[serde(default)]
    pub action: SpotAction,
    /// Its centre, from the left, 0..1 of the displayed picture.
    pub x: f64,
    /// The same from the top.
    pub y: f64,
    /// Its radius, as a share of the picture's shorter side: a little more than the blemish.
    #[serde(default = "small")]
    #[schemars(range(min = 0.002, max = 0.25))]
    pub radius: f64,
    /// Centre [x, y] of the place to take from; left out = a free place beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<[f64; 2]>,
}

impl Spot {
    /// The radius when none is given.
    pub const RADIUS: f64 = 0.02;
}

fn small() -> f64 {
    Spot::RADIUS
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
    /// Heals, clones or takes back spots. Pure, and all or nothing; the same spot again is the same state.
    pub fn apply_spots(
        &self,
        spots: &[Spot],
        state: &EditState,
        facts: &PhotoFacts,
        layouts: &Layouts,
        darktable_version: &str,
    ) -> Result<AppliedSpots, SpotError> {
        if spots.is_empty() {
            return Err(SpotError::Empty);
        }
        let (mut module, rows) = match state.module(OP, 0) {
            Some(module) => (module.clone(), rows(module, &state.masks)?),
            None => (fresh(layouts, darktable_version)?, Vec::new()),
        };
        let mut table = Table { picture: Picture::of(&Frame::of(state, facts)), rows };
        let mut done = Vec::new();
        let mut bad = Vec::new();
        let asked: Vec<&Spot> = spots.iter().filter(|spot| spot.action != SpotAction::Remove).collect();
        for (at, spot) in spots.iter().enumerate() {
            match check(spot).and_then(|()| table.put(spot, &asked)) {
                Ok(spot) => done.push(spot),
                Err(reason) => bad.push(format!("spots[{at}]: {reason}")),
            }
        }
        if !bad.is_empty() {
            return Err(SpotError::Refused(bad));
        }
        let rows = table.rows;
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
        Ok(AppliedSpots { state: new, spots: done, standing })
    }
}

fn check(spot: &Spot) -> Result<(), String> {
    let source = spot.source.unwrap_or_default();
    for (name, value) in [("x", spot.x), ("y", spot.y), ("source", source[0]), ("source", source[1])] {
        if !(0.0..=1.0).contains(&value) {
            return Err(format!("`{name}` cannot be {value}: it goes from 0 to 1, across the picture"));
        }
    }
    if !RADII.contains(&spot.radius) {
        let (least, most) = (RADII.start(), RADII.end());
        return Err(format!(
            "`radius` cannot be {}: it goes from {least} to {most} of the picture's shorter side",
            spot.radius
        ));
    }
    Ok(())
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

/// A spot that stands in a photo: its form, and its row in the module's table.
struct Row {
    form: MaskForm,
    opacity: f32,
    cells: BTreeMap<String, Value>,
}

/// The table's columns; each field of the module that begins so is a list with a place for every spot.
const TABLE: &str = "rt_forms.";

/// The spots of an instance, in the order in which they are retouched.
fn rows(module: &Module, masks: &[MaskForm]) -> Result<Vec<Row>, VocabularyError> {
    let Params::Fields(fields) = &module.params else {
        let (name, module, version) = ("apply_spot".into(), OP.into(), module.modversion);
        return Err(VocabularyError::OldModule { name, module, version });
    };
    let Some(Value::Ints(ids)) = fields.get("rt_forms.formid") else { return Ok(Vec::new()) };
    let form = |id: i32| masks.iter().find(|form| form.id == id);
    let group = module.blend.as_ref().and_then(|blend| form(blend.mask_id?));
    let members = group.map(forms::members).unwrap_or_default();
    let row = |member: GroupMember| {
        let place = ids.iter().position(|id| *id == i64::from(member.form))?;
        let cells = fields.iter().filter(|(name, _)| name.starts_with(TABLE)).map(|(name, value)| {
            let cell = match value {
                Value::Ints(list) => Value::Ints(cells(list, place).to_vec()),
                Value::Floats(list) => Value::Floats(cells(list, place).to_vec()),
                other => other.clone(),
            };
            (name.clone(), cell)
        });
        Some(Row { form: form(member.form)?.clone(), opacity: member.opacity, cells: cells.collect() })
    };
    Ok(members.into_iter().filter_map(row).collect())
}

/// A row's part of a column.
fn cells<T>(list: &[T], place: usize) -> &[T] {
    let width = list.len() / MOST;
    list.get(place * width..(place + 1) * width).unwrap_or_default()
}

/// Writes the table anew.
fn write(module: &mut Module, rows: &[Row]) {
    fn fill<'a, T: Copy + Default + 'a>(list: &mut [T], rows: impl Iterator<Item = Option<&'a Vec<T>>>) {
        let width = (list.len() / MOST).max(1);
        list.fill(T::default());
        for (place, row) in list.chunks_mut(width).zip(rows) {
            place.iter_mut().zip(row.into_iter().flatten()).for_each(|(cell, value)| *cell = *value);
        }
    }
    let Params::Fields(fields) = &mut module.params else { return };
    for (name, value) in fields.iter_mut().filter(|(name, _)| name.starts_with(TABLE)) {
        match value {
            Value::Ints(list) => fill(
                list,
                rows.iter().map(|row| match row.cells.get(name) {
                    Some(Value::Ints(cells)) => Some(cells),
                    _ => None,
                }),
            ),
            Value::Floats(list) => fill(
                list,
                rows.iter().map(|row| match row.cells.get(name) {
                    Some(Value::Floats(cells)) => Some(cells),
                    _ => None,
                }),
            ),
            _ => {}
        }
    }
}

/// The displayed picture, in pixels.
struct Picture {
    frame: Frame,
    size: [f64; 2],
}

/// A round place on the displayed picture, its soft edge included, in pixels.
struct Disc {
    center: [f64; 2],
    radius: f64,
}

impl Disc {
    fn distance(&self, [x, y]: [f64; 2]) -> f64 {
        (self.center[0] - x).hypot(self.center[1] - y)
    }
}

impl Picture {
    fn of(frame: &Frame) -> Self {
        Self { frame: *frame, size: frame.shown().into() }
    }

    fn pixels(&self, radius: f64) -> f64 {
        radius * self.size[0].min(self.size[1])
    }

    fn disc(&self, spot: &Spot) -> Disc {
        let center = [spot.x * self.size[0], spot.y * self.size[1]];
        Disc { center, radius: self.pixels(spot.radius) * (1.0 + FEATHER) }
    }

    fn circle(&self, spot: &Spot) -> Shape {
        let (at, radius) = ([spot.x, spot.y], self.pixels(spot.radius));
        Shape::Circle {
            border: self.frame.length(at, radius * FEATHER),
            center: self.frame.point(at),
            radius: self.frame.length(at, radius),
        }
    }

    /// Where a circle that stands already is; `None` for another shape.
    fn standing(&self, form: &MaskForm) -> Option<Disc> {
        let Some(Shape::Circle { border, center, radius }) = forms::without_clone(form) else { return None };
        let at = seen(&self.frame, center);
        let pixels = f64::from(radius + border) / f64::from(self.frame.length(at, 1.0));
        Some(Disc { center: [at[0] * self.size[0], at[1] * self.size[1]], radius: pixels })
    }
}

/// The spots of a photo while they are worked on.
struct Table {
    picture: Picture,
    rows: Vec<Row>,
}

impl Table {
    /// Sets one spot, and returns it with its source; `asked` are the spots of the call, which keep clear of each other.
    fn put(&mut self, spot: &Spot, asked: &[&Spot]) -> Result<Spot, String> {
        let at = self.picture.disc(spot).center;
        if spot.action == SpotAction::Remove {
            let discs = self.rows.iter().map(|row| self.picture.standing(&row.form));
            let hit = discs.enumerate().filter_map(|(place, disc)| Some((place, disc?)));
            let hit = hit.filter(|(_, disc)| disc.distance(at) <= disc.radius);
            let nearest = hit.min_by(|(_, a), (_, b)| a.distance(at).total_cmp(&b.distance(at)));
            let Some((place, _)) = nearest else {
                let count = self.rows.len();
                return Err(format!("no spot stands at {}, {}, of the {count} there are", spot.x, spot.y));
            };
            self.rows.remove(place);
            return Ok(*spot);
        }
        let shape = self.picture.circle(spot);
        let center = |shape: &Shape| match shape {
            Shape::Circle { center, .. } => Some(center.map(f32::to_bits)),
            _ => None,
        };
        let same = |row: &Row| forms::without_clone(&row.form).is_some_and(|s| center(&s) == center(&shape));
        let place = self.rows.iter().position(same);
        let old = place.and_then(|place| self.rows.get(place));
        let algorithm = Value::Ints(vec![if spot.action == SpotAction::Clone { 1 } else { 2 }]);
        // The same spot again keeps the place that it was given before.
        let kept = old.filter(|row| {
            spot.source.is_none()
                && forms::without_clone(&row.form).as_ref() == Some(&shape)
                && row.cells.get(ALGORITHM) == Some(&algorithm)
        });
        if let Some(row) = kept {
            return Ok(Spot {
                source: Some(seen(&self.picture.frame, row.form.source).map(rounded)),
                ..*spot
            });
        }
        let source = match spot.source {
            Some(source) => source,
            None => self.source(spot, place, asked)?,
        };
        let [width, height] = self.picture.size;
        let (dx, dy) = (source[0] * width - at[0], source[1] * height - at[1]);
        if dx.hypot(dy) < self.picture.pixels(spot.radius) {
            return Err("its `source` lies in the spot itself".into());
        }
        let form = forms::clone_shape(spot.action.name(), &shape, self.picture.frame.point(source));
        let form = form.map_err(|error| error.to_string())?;
        let cells = [
            ("rt_forms.formid", Value::Ints(vec![form.id.into()])),
            (ALGORITHM, algorithm),
            // darktable's present way to carry a spot through lens and perspective corrections.
            ("rt_forms.distort_mode", Value::Ints(vec![2])),
        ];
        let cells = cells.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let row = Row { form, opacity: 1.0, cells };
        match place.and_then(|place| self.rows.get_mut(place)) {
            Some(old) => *old = row,
            None => self.rows.push(row),
        }
        Ok(Spot { source: Some(source), ..*spot })
    }

    /// The place to take from: see the head of this file.
    fn source(&self, spot: &Spot, own: Option<usize>, asked: &[&Spot]) -> Result<[f64; 2], String> {
        let Picture { size, .. } = self.picture;
        let Disc { center, radius } = self.picture.disc(spot);
        let standing = self.rows.iter().enumerate().filter(|(place, _)| Some(*place) != own);
        let standing = standing.filter_map(|(_, row)| self.picture.standing(&row.form));
        let others = asked.iter().filter(|other| [other.x, other.y] != [spot.x, spot.y]);
        let taken: Vec<Disc> = standing.chain(others.map(|other| self.picture.disc(other))).collect();
        let step = self.picture.pixels(spot.radius);
        for distance in DISTANCES {
            for [right, down] in DIRECTIONS {
                let at = [center[0] + right * distance * step, center[1] + down * distance * step];
                let within = at.iter().zip(size).all(|(at, size)| (radius..=size - radius).contains(at));
                if within && taken.iter().all(|disc| disc.distance(at) >= disc.radius + radius) {
                    return Ok([rounded(at[0] / size[0]), rounded(at[1] / size[1])]);
                }
            }
        }
        Err("there is no free place beside it to take from: give its `source`, or a smaller `radius`".into())
    }
}

const ALGORITHM: &str = "rt_forms.algorithm";

/// To a ten-thousandth: what a message shows is then what is done.
fn rounded(share: f64) -> f64 {
    (share * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests;
