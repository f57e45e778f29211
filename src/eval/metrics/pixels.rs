//! What a session's pictures are worth: rendered again from the photo's history, and held against the
//! baseline and, where the scenario has one, against the hidden edit.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::eval::metrics::conduct::{judgments, moves_in_effect, reported};
use crate::eval::metrics::{BranchReading, EDGE, Finished, MeasureContext, MeasureError, Readings};
use crate::eval::scenario::{Direction, Region, Scenario};
use crate::transcript::{Judgment, JudgmentSource, Vector};
use base::ids::RefName;
use darktable::render::{ByHand, Picture, Quality, RawFile, RenderRequest};
use darktable::state::EditState;
use engine::photo::AppliedMove;
use engine::vocabulary::{MaskSpec, PhotoFacts};
use pixels::metrics::axes::Axis;
use pixels::metrics::check::{VectorCheck, Verdict};
use pixels::metrics::difference::{Difference, distances};
use pixels::metrics::stats::ImageStats;
use pixels::metrics::vectors::vector_axes;

/// Below this mean ΔE2000 from the baseline there is nothing to recover: nobody would see it.
const NOTHING_TO_DO: f64 = 0.3;

/// The mean ΔE2000 from the baseline at which an edit where none was wanted is worth as little as no edit where one was
/// wanted: about as much as a hidden edit changes.
pub const ORDINARY_EDIT: f64 = 4.0;

/// Two branches whose recovery differs by less are as good as each other.
const SAME_RECOVERY: f64 = 0.02;

/// By how much a distance measured twice may differ, in mean ΔE2000.
const SAME_DISTANCE: f64 = 0.1;

/// From this share of overlap on, a mask is on the place that was meant.
const ON_TARGET: f64 = 0.5;

/// Weights of the pixels of a picture, 0…1, row by row.
pub type Weights = Vec<f32>;

/// The distances that say how much of a hidden edit was found.
#[derive(Clone, Debug)]
pub struct Yardstick {
    base: Arc<Picture>,
    target: Arc<Picture>,
    /// ΔE2000 from the baseline to the hidden edit, a pixel each.
    asked: Vec<f32>,
    regions: Vec<(String, Weights)>,
}

/// A picture held against a yardstick.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The share of the distance between baseline and hidden edit that it removed: 0 by doing nothing, 1 by
    /// the hidden edit itself, less than 0 when it went away from it.
    pub recovery: f64,
    /// The same by region; a region on which the hidden edit does nothing is left out.
    pub regions: BTreeMap<String, f64>,
    /// How much farther from the baseline it is than the hidden edit, in mean ΔE2000.
    pub over_edit: f64,
    /// The same outside all regions; none without regions.
    pub spill: Option<f64>,
}

impl Yardstick {
    /// Between two pictures of one size, with the regions' weights; none when nobody would see the edit, or
    /// when it changes the frame.
    pub fn new(base: Arc<Picture>, target: Arc<Picture>, regions: Vec<(String, Weights)>) -> Option<Self> {
        let asked = distances(&base, &target)?;
        (mean(&asked, None) >= NOTHING_TO_DO).then_some(Self { base, target, asked, regions })
    }

    /// Mean ΔE2000 of the hidden edit.
    pub fn length(&self) -> f64 {
        mean(&self.asked, None)
    }

    /// Mean ΔE2000 of the hidden edit in each region.
    pub fn regions(&self) -> BTreeMap<&str, f64> {
        self.regions.iter().map(|(name, weights)| (name.as_str(), mean(&self.asked, Some(weights)))).collect()
    }

    /// Holds a picture against it. One of another size recovers nothing, since its pixels are others.
    pub fn hold(&self, picture: &Picture) -> Found {
        let (Some(left), Some(moved)) = (distances(picture, &self.target), distances(&self.base, picture))
        else {
            return Found { recovery: 0.0, regions: BTreeMap::new(), over_edit: 0.0, spill: None };
        };
        let share = |weights: Option<&[f32]>| {
            let asked = mean(&self.asked, weights);
            (asked >= NOTHING_TO_DO).then(|| 1.0 - mean(&left, weights) / asked)
        };
        let regions =
            self.regions.iter().filter_map(|(name, weights)| Some((name.clone(), share(Some(weights))?)));
        let beyond: Vec<f32> =
            moved.iter().zip(&self.asked).map(|(moved, asked)| (moved - asked).max(0.0)).collect();
        let spill = (!self.regions.is_empty()).then(|| mean(&beyond, Some(&self.outside())));
        Found {
            recovery: share(None).unwrap_or_default(),
            regions: regions.collect(),
            over_edit: mean(&beyond, None),
            spill,
        }
    }

    /// The weight of each pixel outside all regions.
    fn outside(&self) -> Weights {
        let mut outside = vec![1.0_f32; self.asked.len()];
        for (_, weights) in &self.regions {
            for (outside, inside) in outside.iter_mut().zip(weights) {
                *outside = outside.min(1.0 - inside);
            }
        }
        outside
    }
}

/// The mean, by weight where there are weights; 0 of nothing.
fn mean(values: &[f32], weights: Option<&[f32]>) -> f64 {
    let (mut sum, mut whole) = (0.0, 0.0);
    for (at, value) in values.iter().enumerate() {
        let weight = weights.map_or(1.0, |weights| weights.get(at).copied().unwrap_or(0.0));
        sum += f64::from(*value) * f64::from(weight);
        whole += f64::from(weight);
    }
    if whole > 0.0 { sum / whole } else { 0.0 }
}

/// How much two masks overlap: what both have over what either has.
pub fn overlap(a: &[f32], b: &[f32]) -> f64 {
    let pairs = a.iter().zip(b);
    let (both, either) = pairs.fold((0.0_f64, 0.0_f64), |(both, either), (a, b)| {
        (both + f64::from(a.min(*b)), either + f64::from(a.max(*b)))
    });
    if either > 0.0 { both / either } else { 0.0 }
}

/// Renders and measures the photo of a scenario.
pub struct Gaze<'a> {
    context: &'a MeasureContext<'a>,
    raw: RawFile,
    facts: PhotoFacts,
    long_edge: u32,
}

impl<'a> Gaze<'a> {
    /// At the photo as darktable develops it by default, in pictures of this longest side.
    pub fn new(context: &'a MeasureContext<'a>, raw: RawFile, facts: PhotoFacts, long_edge: u32) -> Self {
        Self { context, raw, facts, long_edge }
    }

    /// What an edit looks like.
    pub fn see(&self, state: &EditState) -> Result<Arc<Picture>, MeasureError> {
        let Self { raw, long_edge, .. } = self;
        let request = RenderRequest { raw, state, long_edge: *long_edge, quality: Quality::Judge };
        Ok(self.context.renderer.render(&request, self.context.deadline, &ByHand)?.picture)
    }

    /// Where a mask lies on the baseline.
    pub fn cover(&self, mask: &MaskSpec) -> Result<Weights, MeasureError> {
        let MeasureContext { vocabulary, layouts, .. } = self.context;
        let probe = vocabulary.mask_probe(mask, &self.facts.baseline, &self.facts, layouts)?;
        let shown = probe.read(&*self.see(&probe.without)?, &*self.see(&probe.with)?);
        Ok(shown.map(|shown| shown.effect().to_vec()).unwrap_or_default())
    }

    /// Where the regions lie.
    pub fn regions(&self, regions: &[Region]) -> Result<Vec<(String, Weights)>, MeasureError> {
        regions.iter().map(|region| Ok((region.name.clone(), self.cover(&region.mask)?))).collect()
    }

    /// The yardstick of a scenario; none when it has no hidden edit that anyone would see.
    pub fn yardstick(&self, scenario: &Scenario) -> Result<Option<Yardstick>, MeasureError> {
        let Some(target) = scenario.target(self.context, &self.facts)? else { return Ok(None) };
        let (base, target) = (self.see(&self.facts.baseline)?, self.see(&target)?);
        Ok(Yardstick::new(base, target, self.regions(&scenario.regions)?))
    }
}

/// A branch with its picture.
struct Seen {
    name: RefName,
    picture: Arc<Picture>,
    stats: ImageStats,
    difference: Difference,
    vector: Option<Vector>,
}

/// Every metric of pictures, into `readings`; and the branches, a reading each.
pub(super) fn pixels(
    scenario: &Scenario,
    finished: &Finished<'_>,
    context: &MeasureContext<'_>,
    readings: &mut Readings,
) -> Result<Vec<BranchReading>, MeasureError> {
    let Finished { workspace, session } = *finished;
    let start = &session.state.start;
    let gaze = Gaze::new(context, workspace.raw(), workspace.facts(&start.baseline)?, EDGE);
    let base = gaze.see(&workspace.state_of(&start.baseline)?)?;
    let base_stats = ImageStats::of(&base);
    let mut branches = Vec::new();
    for branch in &session.state.branches {
        let picture = gaze.see(&workspace.state_of(&branch.tip)?)?;
        let planned = start.branches.iter().find(|planned| planned.branch == branch.name);
        branches.push(Seen {
            name: branch.name.clone(),
            stats: ImageStats::of(&picture),
            difference: Difference::between(&base, &picture)?,
            picture,
            vector: planned.and_then(|planned| planned.vector.clone()),
        });
    }
    let yardstick = gaze.yardstick(scenario)?;
    let judgments = judgments(session);
    let judgment = |name: &RefName| judgments.iter().find(|judgment| judgment.branch == *name);
    let mut found: Vec<BranchReading> = Vec::new();
    for seen in &branches {
        let held = yardstick.as_ref().map(|yardstick| yardstick.hold(&seen.picture));
        let check = check(scenario, seen, &base_stats);
        let own = judgment(&seen.name);
        let score = own.filter(|one| one.source == JudgmentSource::Agent).map(|one| one.judged_score);
        let grown = |now: f64, before: f64| (now - before).max(0.0);
        // Where nothing is to be changed, every change is one too many.
        let unchanged = scenario.expected.unchanged.then_some(seen.difference.mean);
        found.push(BranchReading {
            branch: seen.name.clone(),
            judged_score: score,
            judged_reasoning: own.map(|one| one.judged_reasoning.clone()).unwrap_or_default(),
            key_moves: own.map(|one| one.key_moves.clone()).unwrap_or_default(),
            abandoned: own.is_some_and(|one| one.abandoned),
            delta_e: seen.difference.mean,
            recovery: held
                .as_ref()
                .map(|held| held.recovery)
                .or(unchanged.map(|delta_e| 1.0 - delta_e / ORDINARY_EDIT)),
            regions: held.as_ref().map(|held| held.regions.clone()).unwrap_or_default(),
            over_edit: held.as_ref().map(|held| held.over_edit).or(unchanged),
            spill: held.as_ref().and_then(|held| held.spill),
            leakage: check.as_ref().and_then(|check| check.leakage),
            clipping: grown(seen.stats.clip_high_pct, base_stats.clip_high_pct)
                .max(grown(seen.stats.clip_low_pct, base_stats.clip_low_pct)),
        });
    }
    let nothing = match (yardstick.is_some(), scenario.expected.unchanged) {
        (true, _) => Some(0.0),
        (false, true) => Some(1.0),
        (false, false) => None,
    };
    recovered(nothing, &found, readings);
    directions(scenario, &branches, &base_stats, readings);
    sizes(&branches, &found, readings)?;
    numbers(&branches, &judgments, &base_stats, readings);
    let moves = moves_in_effect(finished)?;
    variety(&branches, &moves, readings);
    targets(scenario, &gaze, &moves, readings)?;
    calibration(&found, readings);
    Ok(found)
}

/// The axes that a branch was to move: the scenario's where it names some, else what the vector's words say.
fn axes(scenario: &Scenario, vector: Option<&Vector>) -> Vec<(Axis, i8)> {
    let named: Vec<(Axis, i8)> = scenario
        .expected
        .directions
        .iter()
        .filter(|direction| applies(direction, vector))
        .map(|direction| (direction.axis, if direction.min + direction.max < 0.0 { -1 } else { 1 }))
        .collect();
    match vector {
        Some(vector) if named.is_empty() => vector_axes(vector.name.as_str(), &vector.direction),
        _ => named,
    }
}

/// Whether a direction applies to the branch of this vector.
fn applies(direction: &Direction, vector: Option<&Vector>) -> bool {
    direction.vector.is_none() || direction.vector.as_ref() == vector.map(|vector| &vector.name)
}

fn check(scenario: &Scenario, seen: &Seen, base: &ImageStats) -> Option<VectorCheck> {
    let axes = axes(scenario, seen.vector.as_ref());
    (!axes.is_empty()).then(|| VectorCheck::of(&axes, base, &seen.stats, &seen.difference))
}

/// Recovery and what goes with it: of the branch that came nearest, and of the one that the agent puts first.
/// `nothing` is what doing nothing is worth; none where the scenario has no answer.
fn recovered(nothing: Option<f64>, found: &[BranchReading], readings: &mut Readings) {
    const FROM_YARDSTICK: [&str; 5] =
        ["recovery", "recovery_chosen", "recovery_regions", "over_edit", "spill"];
    if nothing.is_none() {
        FROM_YARDSTICK.into_iter().for_each(|name| readings.none(name, "the scenario has no hidden edit"));
        return;
    }
    let recovery = |one: &&BranchReading| one.recovery.unwrap_or(0.0);
    let Some(best) = found.iter().max_by(|a, b| recovery(a).total_cmp(&recovery(b))) else {
        // Doing nothing is a result: it recovers nothing, or everything where nothing was to be done.
        readings.put("recovery", nothing, "no branch was made");
        readings.put("recovery_chosen", nothing, "no branch was made");
        ["recovery_regions", "over_edit", "spill"]
            .into_iter()
            .for_each(|name| readings.none(name, "no branch was made"));
        return;
    };
    readings.put("recovery", best.recovery, best.branch.to_string());
    let judged = found.iter().filter(|one| one.judged_score.is_some() && !one.abandoned);
    // Of equal scores the first made, as the review has it.
    let chosen = judged.rev().max_by_key(|one| one.judged_score);
    match chosen {
        Some(chosen) => readings.put("recovery_chosen", chosen.recovery, chosen.branch.to_string()),
        None => readings.put("recovery_chosen", nothing, "the agent puts no branch forward"),
    }
    let regions: Vec<f64> = best.regions.values().copied().collect();
    match regions.is_empty() {
        true => {
            readings.none("recovery_regions", "the scenario names no region that the hidden edit changes")
        }
        false => {
            let parts = best.regions.iter().map(|(name, value)| format!("{name} {value:.2}"));
            let why = parts.collect::<Vec<_>>().join(", ");
            readings.put("recovery_regions", Some(regions.iter().sum::<f64>() / regions.len() as f64), why);
        }
    }
    readings.put("over_edit", best.over_edit, best.branch.to_string());
    match best.spill {
        Some(spill) => readings.put("spill", Some(spill), best.branch.to_string()),
        None => readings.none("spill", "the scenario names no region"),
    }
}

/// Whether the branches moved where they should, and what else moved.
fn directions(scenario: &Scenario, branches: &[Seen], base: &ImageStats, readings: &mut Readings) {
    let (mut met, mut asked) = (0, 0);
    let mut missed = Vec::new();
    let mut tell = |name: &str, axis: &str, steps: f64, holds: bool| {
        asked += 1;
        met += usize::from(holds);
        if !holds {
            missed.push(format!("{name}: {axis} moved {steps:+.1} steps"));
        }
    };
    for direction in &scenario.expected.directions {
        let fitting: Vec<&Seen> =
            branches.iter().filter(|seen| applies(direction, seen.vector.as_ref())).collect();
        if fitting.is_empty() {
            tell("no branch", direction.axis.name(), 0.0, false);
        }
        for seen in fitting {
            let steps = direction.axis.steps(base, &seen.stats);
            let holds = (direction.min..=direction.max).contains(&steps);
            tell(seen.name.as_str(), direction.axis.name(), steps, holds);
        }
    }
    if scenario.expected.directions.is_empty() {
        for seen in branches {
            if let Some(check) = check(scenario, seen, base) {
                tell(seen.name.as_str(), "its vector", check.moved, check.direction == Verdict::Met);
            }
        }
    }
    readings.share("direction_met", met, asked, "no direction can be measured");
    if let Some(reading) = readings.0.get_mut("direction_met").filter(|_| !missed.is_empty()) {
        reading.why = missed.join("; ");
    }
}

/// How large the edits are, and what they broke.
fn sizes(branches: &[Seen], found: &[BranchReading], readings: &mut Readings) -> Result<(), MeasureError> {
    let average =
        |values: Vec<f64>| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
    let none = "no branch was made";
    match average(found.iter().map(|one| one.delta_e).collect()) {
        Some(size) => readings.value("edit_size", size),
        None => readings.none("edit_size", none),
    }
    match found.iter().map(|one| one.clipping).reduce(f64::max) {
        Some(most) => readings.value("clipping", most),
        None => readings.none("clipping", none),
    }
    match average(found.iter().filter_map(|one| one.leakage).collect()) {
        Some(leakage) => readings.value("leakage", leakage),
        None => readings.none("leakage", "no direction moved that can be measured"),
    }
    let mut apart = Vec::new();
    for (at, one) in branches.iter().enumerate() {
        for two in branches.iter().skip(at + 1) {
            apart.push(Difference::between(&one.picture, &two.picture)?.mean);
        }
    }
    match average(apart) {
        Some(apart) => readings.value("diversity", apart),
        None => readings.none("diversity", "fewer than two branches"),
    }
    Ok(())
}

/// Whether what the transcript says was measured can be measured again.
fn numbers(branches: &[Seen], judgments: &[Judgment], base: &ImageStats, readings: &mut Readings) {
    let (mut same, mut all) = (0, 0);
    let mut differ = Vec::new();
    for judgment in judgments {
        let seen = branches.iter().find(|seen| seen.name == judgment.branch);
        // What was measured at another size is another number.
        let reported = reported(judgment).filter(|reported| reported.long_edge == EDGE);
        let (Some(reported), Some(seen)) = (reported, seen) else { continue };
        let axes =
            seen.vector.as_ref().map(|v| vector_axes(v.name.as_str(), &v.direction)).unwrap_or_default();
        let now = VectorCheck::of(&axes, base, &seen.stats, &seen.difference);
        let agrees = (reported.delta_e_mean - seen.difference.mean).abs() <= SAME_DISTANCE
            && reported.vector.direction == now.direction;
        all += 1;
        same += usize::from(agrees);
        if !agrees {
            let (then, now) = (reported.delta_e_mean, seen.difference.mean);
            differ.push(format!("{}: ΔE {then:.2} then, {now:.2} now", seen.name));
        }
    }
    readings.share("numbers_true", same, all, "nothing that was judged was measured at this size");
    if let Some(reading) = readings.0.get_mut("numbers_true").filter(|_| !differ.is_empty()) {
        reading.why = differ.join("; ");
    }
}

/// How much the branches differ in what was done: one less the share of moves that two have in common, over
/// all pairs.
fn variety(branches: &[Seen], moves: &[(RefName, Vec<AppliedMove>)], readings: &mut Readings) {
    let names = |at: usize| -> std::collections::BTreeSet<&str> {
        moves.get(at).into_iter().flat_map(|(_, moves)| moves.iter().map(|m| m.name.as_str())).collect()
    };
    let mut apart = Vec::new();
    for one in 0..branches.len() {
        for two in one + 1..branches.len() {
            let (a, b) = (names(one), names(two));
            let either = a.union(&b).count();
            let both = a.intersection(&b).count();
            apart.push(if either == 0 { 0.0 } else { 1.0 - both as f64 / either as f64 });
        }
    }
    match apart.is_empty() {
        true => readings.none("diversity_moves", "fewer than two branches"),
        false => readings.value("diversity_moves", apart.iter().sum::<f64>() / apart.len() as f64),
    }
}

/// Whether some masked move meets each place that the scenario names.
fn targets(
    scenario: &Scenario,
    gaze: &Gaze<'_>,
    moves: &[(RefName, Vec<AppliedMove>)],
    readings: &mut Readings,
) -> Result<(), MeasureError> {
    let wanted = &scenario.expected.mask_targets;
    let mut masks: Vec<&serde_json::Value> =
        moves.iter().flat_map(|(_, moves)| moves).filter_map(|applied| applied.mask.as_ref()).collect();
    masks.dedup();
    let mut covers = Vec::new();
    if !wanted.is_empty() {
        for mask in masks {
            let Ok(mask) = serde_json::from_value::<MaskSpec>(mask.clone()) else { continue };
            covers.push(gaze.cover(&mask)?);
        }
    }
    let (mut hit, mut nearest) = (0, Vec::new());
    for region in scenario.regions.iter().filter(|region| wanted.contains(&region.name)) {
        let place = gaze.cover(&region.mask)?;
        let best = covers.iter().map(|cover| overlap(cover, &place)).fold(0.0, f64::max);
        hit += usize::from(best >= ON_TARGET);
        nearest.push(format!("{} {best:.2}", region.name));
    }
    readings.share("mask_targets", hit, wanted.len(), "the scenario names none");
    if let Some(reading) = readings.0.get_mut("mask_targets").filter(|_| !nearest.is_empty()) {
        reading.why = nearest.join(", ");
    }
    Ok(())
}

/// How far the agent's scores agree with what its branches recovered.
fn calibration(found: &[BranchReading], readings: &mut Readings) {
    let scored: Vec<(f64, f64)> = found
        .iter()
        .filter(|one| !one.abandoned)
        .filter_map(|one| Some((f64::from(one.judged_score?), one.recovery?)))
        .collect();
    let (mut agree, mut pairs) = (0.0, 0);
    for (at, (score, recovery)) in scored.iter().enumerate() {
        for (other_score, other_recovery) in scored.iter().skip(at + 1) {
            let better = recovery - other_recovery;
            if better.abs() < SAME_RECOVERY {
                continue;
            }
            pairs += 1;
            agree += match (score - other_score) * better {
                order if order > 0.0 => 1.0,
                0.0 => 0.5,
                _ => 0.0,
            };
        }
    }
    match pairs {
        0 => readings.none("judgment_order", "no two judged branches recovered more and less"),
        _ => readings.value("judgment_order", agree / f64::from(pairs)),
    }
    let off = scored.iter().map(|(score, recovery)| ((score - 1.0) / 4.0 - recovery.clamp(0.0, 1.0)).abs());
    match scored.len() {
        0 => readings.none("judgment_error", "no judged branch has a recovery"),
        all => readings.value("judgment_error", off.sum::<f64>() / all as f64),
    }
}

#[cfg(test)]
mod tests;
