//! The referee that knows numbers alone: no model, no network, the same answer every time.
//!
//! It weighs each picture against the one that the work began from, and prefers the weightier. Everything is
//! in just-noticeable steps ([`Axis::steps`]), so that what was gained and what it cost can be subtracted:
//!
//! ```text
//! merit = gain − clipping − size − noise − detail − aside − hue
//!
//! gain      m, the mean movement on the axes that the goal names, + as asked, up to W; W from W to 2W;
//!           beyond that W − (m − 2W) / 2. W, what the goal's intensity asks for, is 2, 4 or 7. "Black and
//!           white" has no beyond. 0 where the goal names no axis. Where one of several axes went the other way
//!           by a step or more, what the others gained does not count: m is what was lost there.
//! clipping  half of the percentage points of newly clipped highlights above 0.5; the same of shadows,
//!           but not for "black and white", which takes dark colours to black
//! size      mean ΔE2000 from the start above 12; not for "black and white", nor where the frame changed
//! noise     noise above 1.5 times the start's, in steps; none where noise was asked for
//! detail    sharpness below 0.75 times the start's, in steps; none where softness was asked for
//! aside     half of the mean movement on the other main axes, as far as it exceeds |m|; none where
//!           the goal names no axis
//! hue       a quarter of the degrees by which the colours of one hue turned ([`Difference::hue_shift`]) above 8,
//!           or above 18 where the goal is about the colour of the light; not for "black and white"
//! ```
//!
//! What went against an axis of the goal is worse than the start, whatever else it gained.
//!
//! One step makes a difference that counts: a merit higher by 1 or more is the better picture, less is `same`;
//! where the goal names no axis, a difference that can be seen (mean ΔE of 0.3) and costs nothing is `unsure`.
//! A picture whose pattern is not the start's ([`pixels::metrics::likeness`]) is another photograph: off the
//! brief. Exchanging A and B exchanges the answer, and nothing in either picture can be read as words.

use super::{Goal, Opinion, Preference};
use crate::protocol::rules::Ruling;
use darktable::render::Picture;
use pixels::metrics::axes::{Axis, Step};
use pixels::metrics::check::{VectorCheck, against, aside};
use pixels::metrics::difference::{Difference, DifferenceError};
use pixels::metrics::intensity::Intensity;
use pixels::metrics::likeness::alike;
use pixels::metrics::stats::ImageStats;

/// The formula, as a header or a manifest names it: with any other number in it, it is another one.
pub const NAME: &str = "numbers-2";

/// How much more merit counts.
const COUNTS: f64 = 1.0;
/// Below this mean ΔE2000 nobody sees a difference.
const UNSEEN: f64 = 0.3;
/// Above this mean ΔE2000 an edit makes another picture.
const LARGE: f64 = 12.0;
/// Percentage points that may newly clip.
const CLIPPED: f64 = 0.5;
/// How much noisier, and how much less sharp, a picture may become.
const NOISIER: f64 = 1.5;
const SOFTER: f64 = 0.75;
/// Degrees that one hue may turn, and where the colour of the light is to change.
const TURNED: (f64, f64) = (8.0, 18.0);

/// What a picture gained on its way from the start, and what that cost, in just-noticeable steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Merit {
    /// Movement as asked.
    pub moved: f64,
    /// What of it counts.
    pub gain: f64,
    /// What was lost.
    pub cost: f64,
    /// Whether it shows the same photograph.
    pub alike: bool,
    /// The axis of the goal that went the other way, and by how many steps.
    pub against: Option<(Axis, f64)>,
}

impl Merit {
    /// Weighs a picture against the one that the work began from.
    pub fn of(goal: Option<Goal<'_>>, start: &Picture, now: &Picture) -> Result<Self, DifferenceError> {
        if now == start {
            return Ok(Self { moved: 0.0, gain: 0.0, cost: 0.0, alike: true, against: None });
        }
        let axes = goal.map(|goal| goal.axes()).unwrap_or_default();
        let intensity = goal.map_or(Intensity::Plain, |goal| Intensity::of(goal.direction, goal.intensity));
        let whole = intensity == Intensity::Whole;
        let difference = Difference::between(start, now)?;
        let alike = difference.mean < UNSEEN && !difference.resized || alike(start, now);
        let (base, stats) = (ImageStats::of(start), ImageStats::of(now));
        let check = VectorCheck::of(&axes, &base, &stats, &difference);
        let (moved, wanted) = (check.moved, intensity.steps());
        let beyond = if whole { 0.0 } else { (moved - 2.0 * wanted).max(0.0) / 2.0 };

        let asked = |axis: Axis, sign: i8| axes.contains(&(axis, sign));
        let clipped = |before: f64, after: f64| (after - before - CLIPPED).max(0.0) / 2.0;
        let mut cost = clipped(base.clip_high_pct, stats.clip_high_pct);
        if !whole {
            cost += clipped(base.clip_low_pct, stats.clip_low_pct);
        }
        if !whole && !difference.resized {
            cost += (difference.mean - LARGE).max(0.0);
        }
        if !asked(Axis::Noise, 1) {
            cost += steps(Axis::Noise, stats.noise_sigma - NOISIER * base.noise_sigma);
        }
        if ![Axis::Sharpness, Axis::LocalContrast, Axis::Noise].iter().any(|axis| asked(*axis, -1)) {
            cost += steps(Axis::Sharpness, SOFTER * base.sharpness - stats.sharpness);
        }
        if !axes.is_empty() {
            cost += (aside(&axes, &base, &stats) - moved.abs()).max(0.0) / 2.0;
        }
        if !whole && !difference.resized {
            let light = axes.iter().any(|(axis, _)| LIGHT.contains(axis));
            let free = if light { TURNED.1 } else { TURNED.0 };
            cost += (difference.hue_shift - free).max(0.0) / 4.0;
        }
        let against = against(&axes, &base, &stats);
        let gain = match against {
            Some((_, steps)) => -(steps * 100.0).round() / 100.0,
            None => moved.min(wanted) - beyond,
        };
        Ok(Self { moved, gain, cost, alike, against })
    }

    /// What remains.
    pub fn net(&self) -> f64 {
        self.gain - self.cost
    }

    fn in_words(&self) -> String {
        if let Some((axis, steps)) = self.against {
            return format!(
                "moved {axis} by {steps:.1} steps against what was asked, at a cost of {:.1}",
                self.cost
            );
        }
        let what = if self.alike { "" } else { ", and shows another photograph" };
        format!(
            "moved {:+.1} steps as asked, of which {:+.1} count, at a cost of {:.1}{what}",
            self.moved, self.gain, self.cost
        )
    }
}

/// Axes of the colour of the light: where they are asked for, all colours turn a little.
const LIGHT: [Axis; 6] = [
    Axis::Warmth,
    Axis::Tint,
    Axis::ShadowWarmth,
    Axis::HighlightWarmth,
    Axis::ShadowTint,
    Axis::HighlightTint,
];

/// An amount on an axis in its steps; nothing below none.
fn steps(axis: Axis, amount: f64) -> f64 {
    match axis.info().step {
        Step::Absolute(step) => amount.max(0.0) / step,
        Step::Relative(_) => 0.0,
    }
}

/// Which of two pictures serves the goal better; `start` is what the work began from, and may be one of them.
pub fn opinion(
    goal: Option<Goal<'_>>,
    start: &Picture,
    a: &Picture,
    b: &Picture,
) -> Result<Opinion, DifferenceError> {
    let (one, two) = (Merit::of(goal, start, a)?, Merit::of(goal, start, b)?);
    let ahead = two.net() - one.net();
    let better = if ahead >= COUNTS {
        Preference::B
    } else if ahead <= -COUNTS {
        Preference::A
    } else if goal.is_none_or(|goal| goal.axes().is_empty()) && Difference::between(a, b)?.mean >= UNSEEN {
        Preference::Unsure
    } else {
        Preference::Same
    };
    Ok(Opinion {
        better,
        a_off_brief: !one.alike,
        b_off_brief: !two.alike,
        why: format!("By numbers alone: A {}; B {}.", one.in_words(), two.in_words()),
    })
}

/// What numbers can say of criteria: they object to a picture that became worse, or another one, and to
/// nothing else. They read no prose, so that a next state cannot be had from them (`names_state`).
pub fn ruling(
    goal: Option<Goal<'_>>,
    start: &Picture,
    now: &Picture,
    names_state: bool,
) -> Result<Ruling, DifferenceError> {
    let merit = Merit::of(goal, start, now)?;
    if merit.alike && merit.net() > -COUNTS {
        return Ok(if names_state { Ruling::Unavailable } else { Ruling::Passed { next: None } });
    }
    Ok(Ruling::Failed {
        feedback: format!("by numbers alone the picture became worse: it {}", merit.in_words()),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::referee::Side;

    /// A picture of soft waves, edited: light times `gain`, then to the power of `gamma`, reds times `red`.
    fn waves(gain: f64, gamma: f64, red: f64, tilt: f64) -> Picture {
        let (width, height) = (48_u32, 32_u32);
        let pixel = |x: u32, y: u32| {
            let (u, v) = (f64::from(x), f64::from(y));
            let light = 0.45 + 0.2 * (0.5 * u + tilt * v).sin() + 0.15 * (0.9 * v - tilt * u).cos();
            let code =
                |share: f64| (255.0 * (gain * share * light).clamp(0.0, 1.0).powf(gamma)).round() as u8;
            [code(red), code(1.0), code(0.9)]
        };
        let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        Picture { width, height, rgb: pixels.flat_map(|(x, y)| pixel(x, y)).collect() }
    }

    fn words(at: usize) -> Option<Goal<'static>> {
        let direction =
            ["", "brighter", "warmer, gently", "much more contrast", "black and white"].get(at)?;
        Some(Goal { name: "v", direction, intensity: None }).filter(|goal| !goal.direction.is_empty())
    }

    fn edits() -> impl Strategy<Value = Picture> {
        let tilt = prop_oneof![9 => Just(0.2), 1 => Just(0.7)];
        (0.2..4.0_f64, 0.6..1.6_f64, 0.7..1.3_f64, tilt).prop_map(|(g, p, r, t)| waves(g, p, r, t))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10))]
        #[test]
        fn exchanging_the_pictures_exchanges_the_answer(a in edits(), b in edits(), at in 0..5_usize) {
            let (start, goal) = (waves(1.0, 1.0, 1.0, 0.2), words(at));
            let forth = opinion(goal, &start, &a, &b).unwrap();
            let back = opinion(goal, &start, &b, &a).unwrap();
            prop_assert_eq!(forth.verdict(Side::A), back.verdict(Side::B));
            prop_assert_eq!(forth.verdict(Side::B), back.verdict(Side::A));
            let same = opinion(goal, &start, &a, &a).unwrap();
            prop_assert_eq!(same.better, Preference::Same);
        }
    }

    #[test]
    fn cooler_shadows_that_became_warmer_are_never_better() {
        let start = waves(1.0, 1.0, 1.0, 0.2);
        let warm = Picture {
            rgb: start
                .rgb
                .chunks_exact(3)
                .flat_map(|p| [p[0], p[1], (f64::from(p[2]) * 0.85) as u8])
                .collect(),
            ..start.clone()
        };
        let goal = Goal { name: "color", direction: "cooler shadows, warmer highlights", intensity: None };
        let merit = Merit::of(Some(goal), &start, &warm).unwrap();
        assert_eq!(merit.against.unwrap().0, Axis::ShadowWarmth, "{merit:?}");
        let found = opinion(Some(goal), &start, &start, &warm).unwrap();
        assert_eq!(found.better, Preference::A, "{found:?}");
        assert!(found.why.contains("shadow_warmth by"), "{}", found.why);
        assert!(matches!(ruling(Some(goal), &start, &warm, false).unwrap(), Ruling::Failed { .. }));
        let warmer = Goal { direction: "warmer", ..goal };
        assert_eq!(opinion(Some(warmer), &start, &start, &warm).unwrap().better, Preference::B);
    }

    #[test]
    fn a_subject_that_turns_to_another_hue_costs() {
        let cup = |rgb: [u8; 3]| {
            let mut picture = waves(1.0, 1.0, 1.0, 0.2);
            picture.rgb.chunks_exact_mut(3).take(300).for_each(|pixel| pixel.copy_from_slice(&rgb));
            picture
        };
        let goal = Goal { name: "c", direction: "richer", intensity: None };
        let cost = |rgb| Merit::of(Some(goal), &cup([150, 50, 50]), &cup(rgb)).unwrap().cost;
        assert!(cost([165, 90, 30]) > cost([165, 45, 45]) + 2.0);
    }

    #[test]
    fn each_term_costs_and_the_gain_bends_where_it_is_said() {
        let start = waves(1.0, 1.0, 1.0, 0.2);
        let merit = |direction: &str, now: &Picture| {
            Merit::of(Some(Goal { name: "v", direction, intensity: None }), &start, now).unwrap()
        };
        // A little light, more than enough, and far too much.
        let (little, enough, much) =
            (waves(1.05, 1.0, 1.0, 0.2), waves(1.15, 1.0, 1.0, 0.2), waves(1.6, 1.0, 1.0, 0.2));
        let (one, two, three) =
            (merit("brighter", &little), merit("brighter", &enough), merit("brighter", &much));
        assert!(one.moved > 1.0 && one.moved < 4.0 && one.gain == one.moved && one.cost == 0.0, "{one:?}");
        assert!(two.moved > 4.0 && two.moved < 8.0 && two.gain == 4.0, "{two:?}");
        assert!(three.moved > 8.0 && three.gain == 4.0 - (three.moved - 8.0) / 2.0, "{three:?}");
        assert!(three.cost > 5.0 && three.net() < 0.0, "{three:?}");
        assert_eq!(merit("darker", &little).gain, -one.gain);
        // Gentle words are satisfied sooner.
        assert_eq!(merit("slightly brighter", &enough).gain, 2.0 - (two.moved - 4.0).max(0.0) / 2.0);
        // Another photograph.
        assert!(!merit("brighter", &waves(1.0, 1.0, 1.0, 0.7)).alike && three.alike);
        // Grain costs, unless it was asked for.
        let mut grainy = start.clone();
        for (at, pixel) in grainy.rgb.chunks_exact_mut(3).enumerate() {
            let noise = (at * 7919 % 23) as u8;
            pixel.iter_mut().for_each(|value| *value = value.saturating_add(noise).saturating_sub(11));
        }
        let (plain, asked) = (merit("warmer", &grainy), merit("add grain", &grainy));
        assert!(plain.cost > 1.0 && asked.net() > plain.net() + 2.0, "{plain:?} {asked:?}");
    }
}
