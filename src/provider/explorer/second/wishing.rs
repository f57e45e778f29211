//! From wishes to moves: all wishes at once, at the sizes that were said, then corrected by what was measured.
//!
//! It is written straight through and run anew for each reply, as the search of explorer-1 is: what was rendered
//! already is looked up, and the first setting that was not ends the run as the next one to try. A correction is one
//! of these, in this order:
//!
//! 1. "until neutral" and "to a normal exposure" are followed along a straight line to where they are met;
//! 2. a wish whose axis went the other way gets its next move, or is dropped;
//! 3. highlights or shadows that newly clip, or tones that were to be left alone, get the partner that takes it back,
//!    then twice as much of it, and if that does not do, what caused it is made weaker;
//! 4. colours that turn to another hue make the moves of colour weaker;
//! 5. an edit that nobody would see is made stronger, unless little was asked for.
//!
//! Of all that was rendered, the setting of the fewest faults is kept, the latest of equals.

use serde_json::Value;

use super::lexicon::words;
use super::part::{Part, Partner};
use super::reading::{Reading, Size, Wish};
use crate::provider::explorer::candidate::ListedMove;
use crate::provider::explorer::memory::{Branch, Figures, Settings, key};
use crate::provider::explorer::search::{Edit, Step};
use pixels::metrics::axes::{Axis, measure};
use pixels::metrics::stats::ImageStats;

/// Settings that are rendered for a branch at most.
const ROUNDS: usize = 8;
/// Movement against a wish that counts, in steps.
const AGAINST: f64 = 1.0;
/// Percentage points that may newly clip.
const CLIPPED: f64 = 1.0;
/// The L* below which a screen in a room shows black: what was darker before is not lost by clipping.
const NEARLY_BLACK: f64 = 5.0;
/// Steps that tones may move that were to be left alone.
const SPARED: f64 = 2.0;
/// Degrees that one hue may turn, and where the colour of the light was to change.
const HUE: (f64, f64) = (8.0, 18.0);
/// Mean ΔE2000 below which a plain wish is not seen on the whole picture, and a gentle one.
const SEEN: (f64, f64) = (2.0, 0.6);
/// The 95th percentile of ΔE2000 below which what was done to a part is not seen.
const SEEN_PART: f64 = 3.0;
/// Steps below which a wish without a size is hardly met.
const FAINT: f64 = 2.0;
/// The mean L* of a well exposed picture of an ordinary scene.
const EXPOSED: f64 = 48.0;
/// The share of a cast that "until neutral" takes away.
const NEUTRAL: f64 = 0.85;
/// How far from a clear warming or cooling "until neutral" may lead.
const CAST: (f64, f64) = (0.6, 1.3);
/// The largest change of scale in one correction.
const STRETCH: (f64, f64) = (0.3, 2.2);

/// Something that is wrong with a setting.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) enum Fault {
    /// A wish moved the other way, by so many steps.
    Against(usize, f64),
    /// So much newly clips, in percentage points.
    Highlights(f64),
    /// The same of shadows.
    Shadows(f64),
    /// A tone that was to be left alone moved by so many steps.
    Spared(Axis, f64),
    /// A hue turned by so many degrees.
    Hue(f64),
    /// Nobody would see it.
    Unseen,
}

impl Fault {
    /// In words.
    pub fn in_words(&self, parts: &[Part]) -> String {
        match self {
            Self::Against(at, steps) => {
                let wish = parts.get(*at).map(|part| part.wish.in_words()).unwrap_or_default();
                format!("{wish} went the other way by {steps:.1} steps")
            }
            Self::Highlights(by) => format!("{by:.1} % of the picture newly clips to white"),
            Self::Shadows(by) => format!("{by:.1} % of the picture newly clips to black"),
            Self::Spared(axis, steps) => {
                format!("{axis} moved by {steps:.1} steps, which was to be left alone")
            }
            Self::Hue(by) => format!("the colours of one hue turned by {by:.0}°"),
            Self::Unseen => "nobody would see it".into(),
        }
    }
}

/// A partner that was taken, where, and how much of it.
struct Taken {
    partner: &'static Partner,
    mask: Option<Value>,
    strength: f64,
}

/// Why a run stops before its end.
enum Pause {
    Try(Settings),
    NoRoom,
}

/// A setting that was rendered, and what is wrong with it.
#[derive(Clone, Debug)]
pub(in super::super) struct Seen {
    /// The setting.
    pub goal: Settings,
    /// What is wrong.
    pub faults: Vec<Fault>,
}

/// The next step on a branch.
pub(in super::super) fn next(branch: &Branch, base: Option<&ImageStats>, moves: &[ListedMove]) -> Step {
    let mut seen = Vec::new();
    match run(branch, base, moves, &mut seen) {
        Err(Pause::Try(goal)) => Step::Try(goal),
        Err(Pause::NoRoom) | Ok(()) => Step::Done,
    }
}

/// The best of what was rendered: of the fewest faults, the latest.
pub(in super::super) fn best(
    branch: &Branch,
    base: Option<&ImageStats>,
    moves: &[ListedMove],
) -> Option<Seen> {
    let mut seen = Vec::new();
    // Where it stopped tells nothing about what was seen before.
    let _ = run(branch, base, moves, &mut seen);
    seen.retain(|one| !branch.rejected.contains(&one.goal));
    let weight = |one: &Seen| one.faults.iter().map(cost).sum::<f64>();
    seen.into_iter().reduce(|best, next| if weight(&next) <= weight(&best) { next } else { best })
}

fn cost(fault: &Fault) -> f64 {
    match fault {
        Fault::Against(..) => 4.0,
        Fault::Unseen => 3.0,
        Fault::Spared(..) => 1.0,
        Fault::Highlights(by) | Fault::Shadows(by) => 1.0 + by / 10.0,
        Fault::Hue(by) => 1.0 + by / 90.0,
    }
}

fn run(
    branch: &Branch,
    base: Option<&ImageStats>,
    moves: &[ListedMove],
    seen: &mut Vec<Seen>,
) -> Result<(), Pause> {
    let mut parts = branch.parts.clone();
    let mut partners: Vec<Taken> = Vec::new();
    let reading = &branch.reading;
    for part in &mut parts {
        if let Some(base) = base.filter(|_| part.wish.sign == 0) {
            // Neutral, whichever way that is.
            let way = if cast(base) > 0.0 { -1 } else { 1 };
            let wish = Wish { sign: way, ..part.wish.clone() };
            if let Some(turned) = Part::of(wish, &[], moves) {
                *part = turned;
            }
        }
    }
    for _ in 0..ROUNDS {
        let mut goal = Settings::new();
        parts.iter().for_each(|part| part.add(&reading.kept, moves, &mut goal));
        for Taken { partner, mask, strength } in &partners {
            for (name, values) in &partner.does {
                let Some(listed) = moves.iter().find(|listed| &listed.name == name) else { continue };
                let scaled =
                    |(dial, value): (&String, &f64)| (dial.clone(), listed.within(dial, value * strength));
                goal.entry(key(name, mask.as_ref())).or_insert_with(|| values.iter().map(scaled).collect());
            }
        }
        goal.retain(|_, values| values.values().any(|value| *value != 0.0));
        if goal.is_empty() {
            return Ok(());
        }
        let Some(figures) = look(branch, &goal)? else {
            // It could not be made: the last wish goes.
            if parts.len() < 2 {
                return Ok(());
            }
            parts.pop();
            continue;
        };
        let faults = faults(&parts, reading, base, figures);
        seen.push(Seen { goal, faults: faults.clone() });
        if !correct(&mut parts, &mut partners, &faults, base, figures, moves) {
            return Ok(());
        }
    }
    Ok(())
}

/// The colour of the light, as b* of the brightest third, which is nearest to white.
fn cast(stats: &ImageStats) -> f64 {
    measure(Axis::HighlightWarmth, stats)
}

/// The share of a picture below [`NEARLY_BLACK`], in percent, from its percentiles up to half.
fn nearly_black(stats: &ImageStats) -> f64 {
    let light = &stats.lightness;
    let curve = [
        (0.0, 0.0),
        (1.0, light.p1),
        (5.0, light.p5),
        (10.0, light.p10),
        (25.0, light.p25),
        (50.0, light.p50),
    ];
    let mut share = 0.0;
    for pair in curve.windows(2) {
        let [(from, dark), (to, bright)] = pair else { continue };
        let part = ((NEARLY_BLACK - dark) / (bright - dark).max(0.01)).clamp(0.0, 1.0);
        share = from + (to - from) * part;
        if part < 1.0 {
            break;
        }
    }
    share
}

/// Whether a wish can be held against the baseline: without its colours a picture has another contrast.
pub(in super::super) fn comparable(parts: &[Part], part: &Part) -> bool {
    part.whole || !parts.iter().any(|other| other.whole)
}

/// What is wrong with a setting.
pub(in super::super) fn faults(
    parts: &[Part],
    reading: &Reading,
    base: Option<&ImageStats>,
    figures: &Figures,
) -> Vec<Fault> {
    let mut found = Vec::new();
    let (Some(base), Some(now)) = (base, figures.stats.as_ref()) else { return found };
    for (at, part) in parts.iter().enumerate() {
        if let Some(moved) =
            part.moved(base, now).filter(|_| comparable(parts, part)).filter(|moved| *moved <= -AGAINST)
        {
            found.push(Fault::Against(at, -moved));
        }
    }
    let whole = parts.iter().any(|part| part.whole);
    let high = now.clip_high_pct - base.clip_high_pct;
    if high > CLIPPED {
        found.push(Fault::Highlights(high));
    }
    let low = now.clip_low_pct - base.clip_low_pct.max(nearly_black(base));
    let wanted = parts.iter().any(|part| part.reaches(false) && (part.wish.sign < 0 || !part.modest()));
    if low > if wanted { 4.0 * CLIPPED } else { CLIPPED } && !whole {
        found.push(Fault::Shadows(low));
    }
    for (kind, axis, way) in
        [("blacks", Axis::Blacks, -1.0), ("highlights", Axis::Whites, 1.0), ("shadows", Axis::Shadows, -1.0)]
    {
        let steps = way * axis.steps(base, now);
        let asked =
            parts.iter().any(|part| part.wish.kind == "brightness" && f64::from(part.wish.sign) == way);
        if reading.spared.iter().any(|spared| spared == kind) && steps > SPARED && !asked {
            found.push(Fault::Spared(axis, steps));
        }
    }
    let light = parts.iter().any(|part| part.wish.kind == "warmth" || part.wish.kind == "tint");
    if figures.difference.hue_shift > if light { HUE.1 } else { HUE.0 } && !whole {
        found.push(Fault::Hue(figures.difference.hue_shift));
    }
    let gentle = parts.iter().all(Part::gentle);
    let difference = &figures.difference;
    let seen = if parts.iter().all(Part::partial) {
        difference.p95 >= if gentle { 1.0 } else { SEEN_PART }
    } else {
        // Much of a dark picture stays what it is.
        difference.mean >= if gentle { SEEN.1 } else { SEEN.0 } || difference.p95 >= 3.0 * SEEN.0
    };
    if !seen
        && !difference.resized
        && !parts.iter().all(|part| part.axis.is_some_and(|(axis, _)| axis == Axis::Noise))
    {
        found.push(Fault::Unseen);
    }
    found
}

/// Corrects the parts by what was seen; whether anything was changed.
fn correct(
    parts: &mut Vec<Part>,
    partners: &mut Vec<Taken>,
    faults: &[Fault],
    base: Option<&ImageStats>,
    figures: &Figures,
    moves: &[ListedMove],
) -> bool {
    let (Some(base), Some(now)) = (base, figures.stats.as_ref()) else { return false };
    let mut changed = false;
    for part in parts.iter_mut() {
        let (before, after, goal) = match part.wish.size {
            Size::Neutral if part.wish.kind == "warmth" => {
                (cast(base), cast(now), cast(base) * (1.0 - NEUTRAL))
            }
            Size::Normal if part.wish.kind == "brightness" => {
                (base.lightness.mean, now.lightness.mean, EXPOSED)
            }
            _ => continue,
        };
        let share = (goal - before) / (after - before);
        let stretched = if share.is_finite() && share > 0.0 { share } else { 0.5 };
        let stretched = stretched.clamp(STRETCH.0, STRETCH.1);
        // The brightest third may be coloured itself, and a scene dark by itself: a guess has its bounds.
        let bounds = if part.wish.size == Size::Neutral { CAST } else { (0.3, 2.2) };
        let scale = (part.scale * stretched).clamp(bounds.0, bounds.1);
        if (scale / part.scale - 1.0).abs() > 0.08 {
            part.scale = scale;
            changed = true;
        }
    }
    if changed {
        return true;
    }
    for fault in faults {
        if let Fault::Against(at, _) = fault
            && let Some(part) = parts.get_mut(*at)
        {
            if part.chosen + 1 < part.options.len() {
                part.chosen += 1;
            } else if parts.len() > 1 {
                parts.remove(*at);
            } else {
                return false;
            }
            return true;
        }
    }
    for fault in faults {
        let (name, white) = match fault {
            Fault::Highlights(_) | Fault::Spared(Axis::Whites, _) => ("clipped_highlights", true),
            Fault::Shadows(_) | Fault::Spared(Axis::Blacks | Axis::Shadows, _) => ("clipped_shadows", false),
            Fault::Hue(_) => {
                let mut colours =
                    parts.iter_mut().filter(|part| part.colours() && part.wish.size != Size::Neutral);
                let changed = colours.any(weaken);
                if changed {
                    return true;
                }
                continue;
            }
            _ => continue,
        };
        let partner = words().partner.iter().find(|partner| partner.fault == name).filter(|partner| {
            let wanted = parts.iter().any(|part| partner.unless.contains(&part.wish.kind));
            let known = partner.does.keys().all(|name| moves.iter().any(|listed| &listed.name == name));
            known && !wanted && !partners.iter().any(|taken| taken.partner.fault == partner.fault)
        });
        if let Some(partner) = partner {
            // What was done in one place is taken back there.
            let causes = || parts.iter().filter(|part| part.reaches(white));
            let placed = causes().all(|part| part.wish.place.is_some());
            let mask = causes().find_map(|part| part.wish.place.as_ref()).map(|place| place.mask.clone());
            partners.push(Taken { partner, mask: mask.filter(|_| placed), strength: 1.0 });
            return true;
        }
        if let Some(taken) =
            partners.iter_mut().find(|taken| taken.partner.fault == name && taken.strength < 2.0)
        {
            taken.strength = 2.0;
            return true;
        }
        // What was ordered in stops stays as it was ordered.
        let cause = |part: &&mut Part| part.reaches(white) && !matches!(part.wish.size, Size::Stops(_));
        let mut weaker = false;
        parts.iter_mut().filter(cause).for_each(|part| {
            // What is half as strong and still at fault is the wrong move.
            if part.scale < 0.6 && part.chosen + 1 < part.options.len() {
                (part.chosen, part.scale) = (part.chosen + 1, 1.0);
                weaker = true;
            } else {
                weaker |= weaken(part);
            }
        });
        if weaker {
            return true;
        }
    }
    if faults.is_empty() {
        // No size was said, and the axis hardly moved.
        let mut stronger = false;
        for part in parts.iter_mut().filter(|part| !part.wish.sized && !part.partial() && part.scale < 1.5) {
            if part.moved(base, now).is_some_and(|moved| (0.0..FAINT).contains(&moved)) {
                part.scale *= 1.5;
                stronger = true;
            }
        }
        if stronger {
            return true;
        }
    }
    if faults.contains(&Fault::Unseen) {
        let mut stronger = false;
        for part in
            parts.iter_mut().filter(|part| part.scale < 2.2 && !matches!(part.wish.size, Size::Stops(_)))
        {
            part.scale *= 1.5;
            stronger = true;
        }
        return stronger;
    }
    false
}

fn weaken(part: &mut Part) -> bool {
    let weaker = part.scale > 0.45;
    if weaker {
        part.scale *= 0.75;
    }
    weaker
}

/// What was seen of a setting; `None` if it could not be made.
fn look<'a>(branch: &'a Branch, goal: &Settings) -> Result<Option<&'a Figures>, Pause> {
    match branch.trials.iter().find(|trial| &trial.goal == goal) {
        Some(trial) => Ok(trial.figures.as_ref()),
        None if has_room(branch, goal) => Err(Pause::Try(goal.clone())),
        None => Err(Pause::NoRoom),
    }
}

/// Whether a setting can be tried, and another still be restored after it.
fn has_room(branch: &Branch, goal: &Settings) -> bool {
    let back = branch.trials.first().map_or(0, |first| way(goal, &first.goal).len());
    let cost = way(&branch.settings, goal).len() + 1 + back;
    branch.spent + cost as u64 <= branch.share && (branch.trials.len() as u64) < branch.looks
}

/// The edits that lead from one setting to another: what goes, goes by starting again.
pub(in super::super) fn way(from: &Settings, to: &Settings) -> Vec<Edit> {
    let apply = |(name, _): (&String, _)| Edit::Apply(name.clone());
    if from.keys().all(|name| to.contains_key(name)) {
        return to.iter().filter(|(name, values)| from.get(*name) != Some(values)).map(apply).collect();
    }
    std::iter::once(Edit::Reset).chain(to.iter().map(apply)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pixels::Picture;

    #[test]
    fn nearly_black_is_the_share_that_a_screen_shows_as_black() {
        let ramp = |from: u32| {
            let line = (0..256).flat_map(|x: u32| [u8::try_from((from + x).min(255)).unwrap_or(255); 3]);
            let line: Vec<u8> = line.collect();
            ImageStats::of(&Picture { width: 256, height: 64, rgb: line.repeat(64) })
        };
        let share = nearly_black(&ramp(0));
        assert!((5.0..9.0).contains(&share), "L* 5 is near 17 of 255, {share} %");
        assert!(nearly_black(&ramp(60)) < 1.0, "nothing is dark");
    }
}
