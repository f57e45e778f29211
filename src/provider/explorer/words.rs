//! What the explorer says, always with the numbers it saw.

use serde_json::{Value, json};

use crate::provider::explorer::Habit;
use crate::provider::explorer::aim::Aim;
use crate::provider::explorer::memory::{Branch, Figures, Goal, Memory, Settings, Trial};
use crate::provider::explorer::search;
use crate::provider::explorer::second::telling;

/// Longest quotation of the photographer's words, in characters.
const QUOTE: usize = 160;
/// Tries listed in a reasoning.
const LISTED: usize = 8;
/// How every summary begins.
const HONEST: &str = "Explorer: measured only, not viewed.";

/// A vector in a sentence.
pub(super) fn restated(aim: &Aim) -> String {
    let words = quote(&aim.direction);
    if aim.whole() {
        return format!("I read `{words}` as {} to its end.", aim.axes_in_words());
    }
    if aim.measurable {
        return format!(
            "I read `{words}` as {}, and aim at about {:.0} just-noticeable steps on that.",
            aim.axes_in_words(),
            aim.wanted()
        );
    }
    format!(
        "I find no measurable axis in `{words}`: I treat it as a gentle overall change, \
         explored along {}, at a mean ΔE of about {:.1}.",
        aim.axes_in_words(),
        aim.wanted()
    )
}

/// A setting, short: `shadows_lift amount=0.7`.
pub(super) fn setting(settings: &Settings) -> String {
    let one = |(name, values): (&String, &std::collections::BTreeMap<String, f64>)| {
        let values: String = values.iter().map(|(key, value)| format!(" {key}={value}")).collect();
        format!("{name}{values}")
    };
    settings.iter().map(one).collect::<Vec<_>>().join(" with ")
}

/// What was seen of a setting, short.
fn figures(seen: &Figures) -> String {
    let leakage = seen
        .check
        .leakage
        .map_or("no side effects measured".to_owned(), |leakage| format!("leakage {leakage:.2}"));
    let warned = match seen.check.warnings.len() {
        0 => String::new(),
        _ => format!(", warnings: {}", seen.check.warnings.join("; ")),
    };
    format!("moved {:+.2} steps, {leakage}, mean ΔE {:.2}{warned}", seen.check.moved, seen.difference.mean)
}

/// Why a branch is judged as it is.
pub(super) fn reasoning(branch: &Branch) -> String {
    let aim = &branch.aim;
    let mut text = match aim.direction.as_str() {
        "" => format!("No direction was given; explored {}.", aim.axes_in_words()),
        direction => format!("Asked: `{}`, read as {}", quote(direction), aim.axes_in_words()),
    };
    if !aim.direction.is_empty() {
        text.push_str(match aim.measurable {
            true => ".",
            false => ", because no word of it can be measured.",
        });
    }
    match search::best(branch).and_then(|best| Some((best, best.figures.as_ref()?))) {
        Some((best, seen)) => {
            let kept = setting(&best.goal);
            text.push_str(&format!(
                " Kept `{kept}`: {} (aim {:.0} {}; 95th percentile of ΔE {:.2}).",
                figures(seen),
                aim.wanted(),
                if aim.measurable { "steps" } else { "of mean ΔE" },
                seen.difference.p95,
            ));
        }
        None => text.push_str(&format!(" Abandoned: {}.", why_abandoned(branch))),
    }
    let tried: Vec<String> = branch
        .trials
        .iter()
        .take(LISTED)
        .map(|trial| {
            let seen = trial.figures.as_ref().map_or("could not be applied".to_owned(), figures);
            format!("{}: {seen}", setting(&trial.goal))
        })
        .collect();
    if !tried.is_empty() {
        text.push_str(&format!(" Tried {}: {}.", branch.trials.len(), tried.join(" | ")));
    }
    cut(&text, 2_900)
}

/// The setting that a branch keeps.
pub(super) fn kept<'a>(memory: &Memory, branch: &'a Branch) -> Option<&'a Trial> {
    match memory.habit {
        Habit::Random => branch.trials.last(),
        Habit::Wishing => telling::kept(memory, branch).map(|(trial, _)| trial),
        _ => search::best(branch),
    }
}

fn why_abandoned(branch: &Branch) -> String {
    let seen: Vec<&Figures> = branch.trials.iter().filter_map(|trial| trial.figures.as_ref()).collect();
    if branch.candidates.is_empty() {
        return format!("the vocabulary has no move that affects {}", branch.aim.axes_in_words());
    }
    if seen.is_empty() {
        return match branch.trials.len() {
            0 => "no picture was measured before exploring had to stop".to_owned(),
            tries => format!("none of {tries} settings could be applied and rendered"),
        };
    }
    let met: Vec<&&Figures> = seen.iter().filter(|figures| figures.went_there()).collect();
    if met.is_empty() {
        let furthest = seen.iter().map(|figures| figures.check.moved).fold(f64::NEG_INFINITY, f64::max);
        return format!(
            "no setting met the asked direction, the furthest moved {furthest:+.2} steps where 1 is needed"
        );
    }
    let warning = met.iter().find_map(|figures| search::objections(&branch.aim, figures).next());
    match warning {
        Some(warning) => format!("every setting that met the direction had a warning, such as: {warning}"),
        None => "every setting was too small to be seen".to_owned(),
    }
}

/// The one thing worth keeping about this photo: which move did most for what was asked.
pub(super) fn note(memory: &Memory) -> Option<String> {
    let measured = memory.branches.iter().filter_map(|branch| {
        let seen = kept(memory, branch)?.figures.as_ref()?;
        branch.aim.measurable.then(|| (branch, seen, search::merit(&branch.aim, seen)))
    });
    let (branch, seen, _) = measured.reduce(|best, next| if next.2 > best.2 { next } else { best })?;
    Some(format!(
        "Measured by the numeric explorer: on this photo {} moved {} by {:.1} \
         just-noticeable steps, at a mean ΔE of {:.1} and a leakage of {:.2}.",
        seen.ops.join(" with "),
        branch.aim.axes_in_words(),
        seen.check.moved,
        seen.difference.mean,
        seen.check.leakage.unwrap_or(0.0),
    ))
}

/// The report of a missing move.
pub(super) fn gap(goal: &Goal) -> Value {
    let aim = Aim::of(Some(goal), 0);
    json!({
        "description": format!("No listed move pushes {}, asked for by vector `{}`.", aim.axes_in_words(), goal.name),
        "intent": quote(&goal.direction),
        "missing_capability": aim.axes_in_words(),
        "satisfaction": -1,
    })
}

/// The session across branches.
pub(super) fn summary(memory: &Memory) -> String {
    let made = memory.branches.len();
    let mut text = match (memory.plan.len(), made) {
        (0, 1) => format!("{HONEST} 1 branch was made."),
        (0, _) => format!("{HONEST} {made} branches were made."),
        (planned, _) => format!("{HONEST} {made} of {planned} planned branches were made."),
    };
    for branch in &memory.branches {
        let Some((score, abandoned)) = branch.judged else {
            text.push_str(&format!(" {}: the judgment was refused.", branch.name));
            continue;
        };
        let found = kept(memory, branch).and_then(|best| best.figures.as_ref());
        text.push_str(&match found {
            Some(seen) if !abandoned => {
                format!(" {}: {score}/5, {}; {}.", branch.name, seen.ops.join(" with "), figures(seen))
            }
            _ if memory.habit == Habit::Wishing => {
                format!(" {}: abandoned, {}.", branch.name, telling::why_abandoned(memory, branch))
            }
            _ => format!(" {}: abandoned, {}.", branch.name, why_abandoned(branch)),
        });
    }
    if memory.outcomes("confirm_session").0 == 0 {
        text.push_str(" The plan could not be confirmed, so nothing was edited.");
    } else if memory.moves.is_empty() {
        text.push_str(" No vocabulary could be read, so nothing was edited.");
    } else {
        let unmade: Vec<&str> = memory
            .plan
            .iter()
            .map(|planned| planned.name.as_str())
            .filter(|name| memory.branches.iter().all(|branch| branch.name != *name))
            .collect();
        if !unmade.is_empty() {
            let why = if memory.outcomes("branch").1 > 0 {
                "could not be made"
            } else {
                "the budget was too small"
            };
            text.push_str(&format!(" Not made ({why}): {}.", unmade.join(", ")));
        }
    }
    cut(&text, 3_900)
}

fn quote(words: &str) -> String {
    cut(&words.replace('`', "'"), QUOTE)
}

fn cut(text: &str, limit: usize) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    let kept: String = text.chars().take(limit - 1).collect();
    format!("{kept}…")
}
