//! What explorer-2 says of a branch, always with the numbers it saw, and the score that follows from them.
//!
//! ```text
//! 4  every wish that can be measured went the way it was asked, by half a step or more, and nothing is wrong
//! 3  the same with a fault or a warning that is named, or a wish that no number shows
//! 2  a wish went the other way, or a wish stood still, or nothing was kept
//! ```

use super::reading::Reading;
use super::wishing::{self, Fault};
use crate::provider::explorer::memory::{Branch, Goal, Memory, Settings, Trial, unkey};
use crate::provider::explorer::search;

/// Movement that counts as having gone there, in steps of the whole picture; less for a part of it.
const WENT: (f64, f64) = (0.5, 0.1);

/// Other change for each wanted step that is worth a word.
const SIDE: f64 = 0.5;

/// A direction in a sentence.
pub(in super::super) fn restated(goal: &Goal, reading: &Reading) -> String {
    let words: String = goal.direction.replace('`', "'").chars().take(160).collect();
    if reading.wishes.is_empty() {
        return format!(
            "I find no wish in `{words}` that I can measure, and treat it as a gentle overall change."
        );
    }
    let mut text = format!("I read `{words}` as {}.", wishes(reading));
    let kept: Vec<&str> = reading.kept.iter().map(|place| place.name.as_str()).collect();
    let spared = reading.spared.iter().map(String::as_str);
    let left: Vec<&str> = kept.into_iter().chain(spared).collect();
    if !left.is_empty() {
        text.push_str(&format!(" Left alone: {}.", left.join(", ")));
    }
    text
}

fn wishes(reading: &Reading) -> String {
    reading.wishes.iter().map(super::reading::Wish::in_words).collect::<Vec<_>>().join(", ")
}

/// A setting, short: `exposure ev=0.5, exposure at a mask ev=0.9`.
pub(in super::super) fn setting(settings: &Settings) -> String {
    let one = |(key, values): (&String, &std::collections::BTreeMap<String, f64>)| {
        let (name, mask) = unkey(key);
        let place = if mask.is_some() { " under a mask" } else { "" };
        let values: String = values.iter().map(|(dial, value)| format!(" {dial}={value}")).collect();
        format!("{name}{values}{place}")
    };
    settings.iter().map(one).collect::<Vec<_>>().join(" with ")
}

/// The setting that is kept, with its faults. One that nobody would see is not kept.
pub(in super::super) fn kept<'a>(memory: &Memory, branch: &'a Branch) -> Option<(&'a Trial, Vec<Fault>)> {
    let best = wishing::best(branch, memory.baseline.as_ref(), &memory.moves)?;
    let visible = !best.faults.contains(&Fault::Unseen);
    let trial = branch.trials.iter().find(|trial| trial.goal == best.goal)?;
    visible.then_some((trial, best.faults))
}

/// Why a branch is judged as it is, and its score.
pub(in super::super) fn judged(memory: &Memory, branch: &Branch) -> (String, u8) {
    let mut text = String::new();
    if !branch.aim.direction.is_empty() {
        let quoted: String = branch.aim.direction.replace('`', "'").chars().take(160).collect();
        text.push_str(&format!("Asked: `{quoted}`. "));
    }
    let names: Vec<String> = branch.parts.iter().map(|part| part.wish.in_words()).collect();
    match names.is_empty() {
        true => text.push_str("No move of the vocabulary serves it."),
        false => text.push_str(&format!("Read as: {}.", names.join(", "))),
    }
    let score = match kept(memory, branch) {
        Some((trial, faults)) => {
            text.push_str(&format!(" Kept `{}`.", setting(&trial.goal)));
            let (told, score) = measured(memory, branch, trial, &faults);
            text.push_str(&told);
            if branch.argued {
                text.push_str(&argument(branch, trial, &faults, score));
            }
            score
        }
        None => {
            text.push_str(&format!(" Abandoned: {}.", why_abandoned(memory, branch)));
            2
        }
    };
    let tried: Vec<String> = branch.trials.iter().take(8).map(|trial| setting(&trial.goal)).collect();
    if tried.len() > 1 {
        text.push_str(&format!(" Tried {}: {}.", branch.trials.len(), tried.join(" | ")));
    }
    (text.chars().take(2_900).collect(), score)
}

fn measured(memory: &Memory, branch: &Branch, trial: &Trial, faults: &[Fault]) -> (String, u8) {
    let Some(figures) = trial.figures.as_ref() else { return (String::new(), 2) };
    let mut rows = Vec::new();
    let (mut all, mut shown) = (true, true);
    if let (Some(base), Some(now)) = (memory.baseline.as_ref(), figures.stats.as_ref()) {
        for part in &branch.parts {
            let moved = part.moved(base, now).filter(|_| wishing::comparable(&branch.parts, part));
            match (moved, part.axis) {
                (Some(moved), Some((axis, _))) => {
                    rows.push(format!("{}: {axis} {moved:+.1} steps as asked", part.wish.in_words()));
                    let local = part.wish.place.is_some() || part.wish.hue.is_some();
                    all &= moved >= if local { WENT.1 } else { WENT.0 };
                }
                _ => shown = false,
            }
        }
    }
    let mut text = format!(" Measured: {}", rows.join("; "));
    if rows.is_empty() {
        text = " Measured".into();
    }
    text.push_str(&format!(
        "; mean ΔE {:.1}, 95th percentile {:.1}.",
        figures.difference.mean, figures.difference.p95
    ));
    let wrong: Vec<String> = faults.iter().map(|fault| fault.in_words(&branch.parts)).collect();
    if !wrong.is_empty() {
        text.push_str(&format!(" At fault: {}.", wrong.join("; ")));
    }
    let warned: Vec<&str> = search::objections(&branch.aim, figures).collect();
    if wrong.is_empty() && !warned.is_empty() {
        text.push_str(&format!(" Warned: {}.", warned.join("; ")));
    }
    let against = faults.iter().any(|fault| matches!(fault, Fault::Against(..)));
    let score = match (against || !all, wrong.is_empty() && warned.is_empty() && shown && !rows.is_empty()) {
        (true, _) => 2,
        (false, true) => 4,
        (false, false) => 3,
    };
    (text, score)
}

/// What speaks for a move that was tried because it had been avoided, and what against it.
fn argument(branch: &Branch, trial: &Trial, faults: &[Fault], score: u8) -> String {
    let Some(figures) = trial.figures.as_ref() else { return String::new() };
    let mut against: Vec<String> = faults.iter().map(|fault| fault.in_words(&branch.parts)).collect();
    against.extend(search::objections(&branch.aim, figures).map(str::to_owned));
    let side = figures.check.leakage.filter(|leakage| *leakage > SIDE);
    against.extend(side.map(|leakage| format!("{leakage:.1} steps of other change for each wanted one")));
    let why = match score {
        2 => "little: it does not go where it was asked to",
        _ => "it goes where it was asked to, and far enough to be seen",
    };
    match against.is_empty() {
        true => format!(
            " For it: {why}. Against it: nothing that was measured, so that a reason to avoid it is one of taste, which numbers do not show."
        ),
        false => {
            format!(" For it: {why}. Against it: {}. Half of it would do less of that.", against.join("; "))
        }
    }
}

/// Why nothing is kept of a branch.
pub(in super::super) fn why_abandoned(memory: &Memory, branch: &Branch) -> String {
    let best = wishing::best(branch, memory.baseline.as_ref(), &memory.moves);
    match (best, branch.trials.len()) {
        (Some(_), tries) => format!("none of {tries} settings made a change that somebody would see"),
        (None, 0) => "no picture was measured before exploring had to stop".into(),
        (None, tries) => {
            format!("none of {tries} settings could be applied and rendered, or all were turned down")
        }
    }
}
