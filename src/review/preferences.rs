//! What a person's picks have in common: in which way the pictures that were preferred differ from those beside them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use statrs::distribution::{Binomial, DiscreteCDF as _};

use crate::review::ReviewModel;
use crate::review::picks::Kept;
use crate::session::listing;
use base::error::Fault;
use base::ids::SessionId;
use engine::photo::{Library, Workspace};
use pixels::metrics::axes::Axis;
use pixels::metrics::stats::ImageStats;

/// What is looked at, with the words for more and for less of it: about independent, and what a person would notice.
const AXES: [(Axis, &str, &str); 8] = [
    (Axis::Shadows, "open shadows", "deep shadows"),
    (Axis::Midtones, "bright pictures", "dark pictures"),
    (Axis::Highlights, "bright highlights", "quiet highlights"),
    (Axis::Contrast, "strong contrast", "low contrast"),
    (Axis::LocalContrast, "clear texture", "soft texture"),
    (Axis::Warmth, "warm colours", "cool colours"),
    (Axis::Tint, "a tint towards magenta", "a tint towards green"),
    (Axis::Chroma, "rich colours", "muted colours"),
];

/// How often all suggestions of a set of picks that show nothing may be wrong.
const LEVEL: f64 = 0.05;

/// How a choice differs from what was passed over, in just-noticeable steps by axis.
pub type Choice = BTreeMap<Axis, f64>;

/// Something that the picks show.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Preference {
    /// The line that could be remembered.
    pub text: String,
    /// The same as a model words it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
    /// What it is measured by.
    #[schemars(with = "String")]
    pub axis: Axis,
    /// Choices that went this way by a step or more.
    pub with: u64,
    /// Choices that went the other way.
    pub against: u64,
    /// Choices in all.
    pub choices: u64,
    /// How probable so uneven a count is by chance, two-sided.
    pub p: f64,
}

/// The difference between the pictures that were preferred and those beside them; `None` unless there are both.
fn choice(preferred: &[&ImageStats], others: &[&ImageStats]) -> Option<Choice> {
    let pairs: Vec<_> =
        preferred.iter().flat_map(|one| others.iter().map(move |other| (*other, *one))).collect();
    let mean = |axis: Axis| {
        pairs.iter().map(|(other, one)| axis.steps(other, one)).sum::<f64>() / pairs.len() as f64
    };
    (!pairs.is_empty()).then(|| AXES.iter().map(|(axis, ..)| (*axis, mean(*axis))).collect())
}

/// What the choices show: an exact sign test an axis, by Holm's rule for all of them together, the clearest first.
pub fn of(choices: &[Choice]) -> Vec<Preference> {
    let tested = AXES.iter().map(|(axis, more, less)| {
        let moved = |way: f64| {
            let steps = choices.iter().filter_map(|choice| choice.get(axis));
            steps.filter(|steps| **steps * way >= 1.0).count() as u64
        };
        let (up, down) = (moved(1.0), moved(-1.0));
        let (text, with, against) = if up >= down { (more, up, down) } else { (less, down, up) };
        let choices = choices.len() as u64;
        let p = two_sided(with, against);
        Preference { text: format!("Prefers {text}."), words: None, axis: *axis, with, against, choices, p }
    });
    let mut tested: Vec<Preference> = tested.collect();
    tested.sort_by(|a, b| a.p.total_cmp(&b.p));
    let passes = |(at, found): &(usize, Preference)| found.p * (AXES.len() - at) as f64 <= LEVEL;
    tested.into_iter().enumerate().take_while(passes).map(|(_, found)| found).collect()
}

/// The two-sided probability of so uneven a count, if both ways were equally likely.
fn two_sided(a: u64, b: u64) -> f64 {
    Binomial::new(0.5, a + b).map_or(1.0, |binomial| (2.0 * binomial.cdf(a.min(b))).min(1.0))
}

/// The choices of a photo: one for each session of which a person prefers some branch to another.
///
/// # Errors
/// A session that cannot be read.
fn of_photo(workspace: &Workspace, kept: &[Kept]) -> Result<Vec<Choice>, Fault> {
    let mut sessions: Vec<&SessionId> = kept.iter().map(|one| &one.session).collect();
    sessions.sort();
    sessions.dedup();
    let mut choices = Vec::new();
    for id in sessions {
        // A session may have been deleted since.
        let Ok(session) = listing::read(workspace, id) else { continue };
        let model = ReviewModel::of(workspace, &session).map_err(|e| Fault::from(&e))?;
        let ranked = model.branches.iter().filter_map(|branch| {
            let said = kept.iter().find(|one| one.session == *id && one.pick.commit == branch.commit);
            Some((said.map(|one| one.pick.rank()).unwrap_or_default(), &branch.measured.as_ref()?.stats))
        });
        let ranked: Vec<_> = ranked.collect();
        let best = ranked.iter().map(|(rank, _)| *rank).max();
        let of = |preferred: bool| -> Vec<&ImageStats> {
            ranked
                .iter()
                .filter(|(rank, _)| (Some(*rank) == best) == preferred)
                .map(|(_, stats)| *stats)
                .collect()
        };
        choices.extend(choice(&of(true), &of(false)));
    }
    Ok(choices)
}

/// The choices in a library.
///
/// # Errors
/// Picks or a session that cannot be read.
pub fn of_library(library: &Library) -> Result<Vec<Choice>, Fault> {
    let mut choices = Vec::new();
    for (workspace, kept) in super::picks::of_library(library)? {
        choices.extend(of_photo(&workspace, &kept)?);
    }
    Ok(choices)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same numbers for the same seed.
    fn dice(seed: u64) -> impl FnMut() -> f64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1_u64 << 53) as f64
        }
    }

    /// Twenty choices by chance, of which `planted` in twenty have less contrast.
    fn twenty(seed: u64, planted: usize) -> Vec<Choice> {
        let mut roll = dice(seed);
        let mut one = |at: usize| -> Choice {
            let by_chance = AXES.iter().map(|(axis, ..)| (*axis, (roll() - 0.5) * 12.0));
            let mut choice: Choice = by_chance.collect();
            if at < planted {
                choice.insert(Axis::Contrast, -3.0);
            }
            choice
        };
        (0..20).map(&mut one).collect()
    }

    #[test]
    fn a_planted_preference_is_found_with_its_evidence() {
        let found = of(&twenty(1, 20));
        assert_eq!(found.len(), 1, "{found:?}");
        let Preference { text, axis, with, against, choices, p, .. } = &found[0];
        assert_eq!((text.as_str(), axis), ("Prefers low contrast.", &Axis::Contrast));
        assert_eq!((*with, *against, *choices), (20, 0, 20));
        assert!(*p < 1e-5);
    }

    #[test]
    fn of_choices_by_chance_nothing_is_said_but_for_one_set_in_twenty() {
        assert_eq!(of(&twenty(2, 0)), []);
        let wrong = (0..2000).filter(|seed| !of(&twenty(1000 + seed, 0)).is_empty()).count();
        assert!(wrong <= 100, "{wrong} of 2000");
        assert_eq!(of(&[]), []);
    }

    /// Sessions with a warm branch and a bright one, and the picks of a page: always the warm one, or either by chance.
    fn picked(warm: impl Fn(usize) -> bool) -> Vec<Preference> {
        let rig = crate::session::rig::Rig::new();
        for number in 0..20 {
            crate::review::rig::picked(&rig, number, usize::from(!warm(number)));
        }
        let choices = of_library(&Library::new(&rig.library)).unwrap();
        assert_eq!(choices.len(), 20);
        of(&choices)
    }

    #[test]
    fn twenty_recorded_picks_show_what_was_picked_by_and_picks_by_chance_show_nothing() {
        let found = picked(|_| true);
        let warm = found.iter().find(|one| one.axis == Axis::Warmth).unwrap();
        assert_eq!((warm.text.as_str(), warm.with, warm.against), ("Prefers warm colours.", 20, 0));
        assert_eq!(picked(|number| [0, 2, 3, 6, 8, 11, 12, 15, 17, 18].contains(&number)), []);
    }

    #[test]
    fn a_choice_needs_both_sides_and_is_measured_against_what_was_passed_over() {
        use pixels::Picture;
        let grey = |value: u8| ImageStats::of(&Picture { width: 16, height: 16, rgb: vec![value; 768] });
        let (dark, light) = (grey(60), grey(120));
        assert_eq!(choice(&[&dark], &[]), None);
        let chosen = choice(&[&light], &[&dark, &dark]).unwrap();
        assert!(chosen[&Axis::Midtones] > 10.0 && chosen[&Axis::Chroma].abs() < 0.5, "{chosen:?}");
    }
}
