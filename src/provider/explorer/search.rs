//! The line search of one branch.
//!
//! It is written straight through, as if every look were at hand, and runs from its start for each reply:
//! what was tried already is looked up, and the first setting that was not tried ends the run as the next
//! one to try.

use crate::provider::explorer::aim::Aim;
use crate::provider::explorer::candidate::Candidate;
use crate::provider::explorer::memory::{Branch, Figures, Settings, Trial};
use pixels::metrics::axes::Axis;

/// The band of mean ΔE2000 that is seen without making another photograph.
const BAND: (f64, f64) = (1.0, 8.0);
/// Below this mean ΔE2000 nobody sees the edit.
const INVISIBLE: f64 = 0.3;
/// What is left of a strength that brought a warning.
const WEAKER: f64 = 0.6;
/// Strengths nearer to each other than this share are the same.
const SAME: f64 = 0.1;

/// The score of an abandoned branch: weak, because all that was tried was.
pub(super) const ABANDONED: u8 = 2;

/// What to do next on a branch.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Render this setting.
    Try(Settings),
    /// Nothing more is to be tried.
    Done,
}

/// One edit to the branch.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Edit {
    Reset,
    Remove(String),
    Apply(String),
}

/// Why a run of the search stops before its end.
enum Pause {
    Try(Settings),
    NoRoom,
}

/// The next step of the search.
pub(super) fn next(branch: &Branch) -> Step {
    match run(branch) {
        Err(Pause::Try(goal)) => Step::Try(goal),
        Err(Pause::NoRoom) | Ok(()) => Step::Done,
    }
}

/// The one setting of somebody who does not search: the best candidate at a share of the strength that a search
/// begins with.
pub(super) fn first(branch: &Branch, share: f64) -> Step {
    match branch.candidates.first() {
        Some(candidate) if branch.trials.is_empty() => {
            Step::Try(setting(candidate, (branch.aim.start() * share).min(candidate.limit)))
        }
        _ => Step::Done,
    }
}

fn run(branch: &Branch) -> Result<(), Pause> {
    let mut climbed = Vec::new();
    for candidate in &branch.candidates {
        climbed.push((candidate, climb(branch, candidate)?));
    }
    if branch.aim.whole() {
        return Ok(());
    }
    if let [(first, Some(one)), (second, Some(two))] = climbed.as_slice()
        && !(first.exclusive && second.exclusive)
    {
        // Moves on different axes or with different side effects: together as far as either should go alone.
        let far = response(&branch.aim, one.figures) + response(&branch.aim, two.figures);
        let scale = (branch.aim.wanted() / far.max(f64::MIN_POSITIVE)).clamp(0.5, 1.0);
        let mut goal = setting(first, one.strength * scale);
        goal.extend(setting(second, two.strength * scale));
        look(branch, goal)?;
    }
    match best(branch) {
        // A last word on the best single move, from all that is known of it.
        Some(best) => {
            let single = |c: &&Candidate| best.goal.len() == 1 && best.goal.contains_key(&c.name);
            if let Some(candidate) = branch.candidates.iter().find(single)
                && let Some(strength) = propose(&branch.aim, candidate, &points(branch, candidate))
            {
                look(branch, setting(candidate, strength))?;
            }
        }
        // Whatever met the direction had a warning: ever weaker, until one has none or misses it.
        None => {
            let warned = |seen: &Figures| seen.check.moved >= 1.0 && !keepable(&branch.aim, seen);
            for (candidate, point) in climbed.iter().filter_map(|(c, point)| Some((c, (*point)?))) {
                let mut strength = point.strength;
                let mut seen = Some(point.figures);
                while seen.is_some_and(warned) {
                    strength *= WEAKER;
                    seen = look(branch, setting(candidate, strength))?;
                }
            }
        }
    }
    Ok(())
}

/// A move at a strength, and what was seen.
#[derive(Clone, Copy)]
struct Point<'a> {
    strength: f64,
    figures: &'a Figures,
}

/// Tries a move at two strengths; the better one, unless the move goes the wrong way or does not work here.
fn climb<'a>(branch: &'a Branch, candidate: &Candidate) -> Result<Option<Point<'a>>, Pause> {
    let aim = &branch.aim;
    let start = aim.start().min(candidate.limit);
    let Some(figures) = look(branch, setting(candidate, start))? else { return Ok(None) };
    let first = Point { strength: start, figures };
    if response(aim, figures) <= 0.0 {
        return Ok(None);
    }
    if aim.whole() {
        return Ok(Some(first));
    }
    let Some(strength) = propose(aim, candidate, &[first]) else { return Ok(Some(first)) };
    let Some(figures) = look(branch, setting(candidate, strength))? else { return Ok(Some(first)) };
    let second = Point { strength, figures };
    Ok(Some(if worth(aim, figures) > worth(aim, first.figures) { second } else { first }))
}

/// What was seen of a setting; `None` if it could not be made. One that was never tried pauses the run.
fn look(branch: &Branch, goal: Settings) -> Result<Option<&Figures>, Pause> {
    match branch.trials.iter().find(|trial| trial.goal == goal) {
        Some(trial) => Ok(trial.figures.as_ref()),
        None if has_room(branch, &goal) => Err(Pause::Try(goal)),
        None => Err(Pause::NoRoom),
    }
}

/// Whether a setting can be tried, and the best one so far still be restored after it.
fn has_room(branch: &Branch, goal: &Settings) -> bool {
    let back = best(branch).map_or(0, |best| way(goal, &best.goal).len());
    let cost = way(&branch.settings, goal).len() + 1 + back;
    branch.spent + cost as u64 <= branch.share && (branch.trials.len() as u64) < branch.looks
}

/// The edits that lead from one setting to another.
pub(super) fn way(from: &Settings, to: &Settings) -> Vec<Edit> {
    let mut edits = Vec::new();
    if !from.is_empty() && from.keys().all(|name| !to.contains_key(name)) {
        edits.push(Edit::Reset);
    } else {
        edits.extend(from.keys().filter(|name| !to.contains_key(*name)).cloned().map(Edit::Remove));
    }
    edits.extend(
        to.iter().filter(|(name, v)| from.get(*name) != Some(v)).map(|(n, _)| Edit::Apply(n.clone())),
    );
    edits
}

fn setting(candidate: &Candidate, strength: f64) -> Settings {
    Settings::from([(candidate.name.clone(), candidate.values(strength))])
}

/// The looks at a move alone, in order of strength.
fn points<'a>(branch: &'a Branch, candidate: &Candidate) -> Vec<Point<'a>> {
    let mut points: Vec<Point<'a>> = branch
        .trials
        .iter()
        .filter(|trial| trial.goal.len() == 1)
        .filter_map(|trial| {
            let strength = candidate.strength(trial.goal.get(&candidate.name)?)?;
            Some(Point { strength, figures: trial.figures.as_ref()? })
        })
        .collect();
    points.sort_by(|a, b| a.strength.total_cmp(&b.strength));
    points
}

/// How far a setting went: steps on the asked axes, or ΔE where nothing measurable was asked.
fn response(aim: &Aim, figures: &Figures) -> f64 {
    if aim.measurable { figures.check.moved } else { figures.difference.mean }
}

/// The strength that should be tried next, by a straight line through the nearest points (a move at strength
/// 0 does nothing). `None` when no other strength promises more.
fn propose(aim: &Aim, candidate: &Candidate, points: &[Point<'_>]) -> Option<f64> {
    let wanted = aim.wanted() * candidate.covers;
    let (mut below, mut above) = ((0.0, 0.0), None);
    for point in points {
        let at = (point.strength, response(aim, point.figures));
        if at.1 < wanted {
            below = at;
        } else if above.is_none() {
            above = Some(at);
        }
    }
    let strength = match above {
        Some(above) => below.0 + (wanted - below.1) * (above.0 - below.0) / (above.1 - below.1),
        // Beyond what was seen, at most three times as far.
        None if below.1 > 0.0 => (below.0 * wanted / below.1).min(below.0 * 3.0),
        None => return None,
    };
    let ceiling = points.iter().filter_map(|point| {
        let mean = point.figures.difference.mean;
        // That an edit cannot be seen is a warning too, but no reason for a weaker one.
        if mean >= INVISIBLE && objections(aim, point.figures).next().is_some() {
            Some(WEAKER * point.strength)
        } else {
            (mean > BAND.1).then(|| point.strength * 0.8 * BAND.1 / mean)
        }
    });
    let strength = ceiling.fold(strength, f64::min).min(candidate.limit);
    let fresh = |point: &Point<'_>| (strength - point.strength).abs() > SAME * point.strength;
    (strength > 0.02 && points.iter().all(fresh)).then_some(strength)
}

/// The warnings about a setting that are not what was asked for.
pub(super) fn objections<'a>(aim: &'a Aim, figures: &'a Figures) -> impl Iterator<Item = &'a str> {
    let asked = |warning: &str| {
        let says = |words: &str| warning.starts_with(words);
        // Dark colours turned grey reach black in all channels at once.
        (aim.whole() && (says("a very large edit") || says("clipped shadows")))
            || (aim.asks(Axis::Noise) && says("noise"))
            || (aim.asks(Axis::FrameArea) && figures.difference.resized && warning.contains("size"))
    };
    figures.check.warnings.iter().map(String::as_str).filter(move |warning| !asked(warning))
}

/// Whether a setting may be kept.
pub(super) fn keepable(aim: &Aim, figures: &Figures) -> bool {
    let seen = figures.difference.resized || figures.difference.mean >= INVISIBLE;
    figures.went_there() && seen && objections(aim, figures).next().is_none()
}

/// The published merit of a setting.
pub(super) fn merit(aim: &Aim, figures: &Figures) -> f64 {
    let far = response(aim, figures) / aim.wanted();
    let beyond = if aim.whole() { 0.0 } else { ((far - 2.0) / 4.0).clamp(0.0, 1.0) };
    let reach = far.clamp(0.0, 1.0) - beyond;
    let reach = if aim.measurable { reach } else { reach / 4.0 };
    let leakage = figures.check.leakage.unwrap_or(0.0).min(2.0);
    let mean = figures.difference.mean;
    let band = match figures.difference.resized || aim.whole() {
        true => 0.0,
        false => (BAND.0 - mean).max((mean - BAND.1) / 4.0).clamp(0.0, 1.0),
    };
    2.0 * reach - 0.5 * leakage - band
}

/// The published score of a kept setting, 1 to 4.
pub(super) fn score(merit: f64) -> u8 {
    match (2.5 + merit).round() {
        s if s >= 4.0 => 4,
        s if s >= 3.0 => 3,
        s if s >= 2.0 => 2,
        _ => 1,
    }
}

/// Merit for choosing between strengths: what cannot be kept comes last.
fn worth(aim: &Aim, figures: &Figures) -> (bool, f64) {
    (keepable(aim, figures), merit(aim, figures))
}

/// The best setting that may be kept and was not turned down; the first of equals.
pub(super) fn best(branch: &Branch) -> Option<&Trial> {
    let open = branch.trials.iter().filter(|trial| !branch.rejected.contains(&trial.goal));
    let kept = open.filter_map(|trial| {
        let figures = trial.figures.as_ref().filter(|figures| keepable(&branch.aim, figures))?;
        Some((trial, merit(&branch.aim, figures)))
    });
    kept.reduce(|best, next| if next.1 > best.1 { next } else { best }).map(|(trial, _)| trial)
}
