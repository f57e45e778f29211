//! What there is to measure: one row a metric. The page of the documentation is made from this table.

use std::fmt::Write as _;

use crate::eval::metrics::METRICS_VERSION;

/// Which end of a metric is the good one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// It is watched, not judged.
    Neither,
}

/// What kind of number a metric is, which decides how two versions are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 0 or 1.
    Flag,
    /// 0 to 1.
    Share,
    /// Anything else.
    Number,
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// The unit; empty for flags, shares and plain numbers.
    pub unit: &'static str,
    /// Which end is good.
    pub better: Better,
    /// What kind of number it is.
    pub kind: Kind,
    /// Whether a session that fails it has failed, whatever else it has done.
    pub hard: bool,
    /// What it tells.
    pub meaning: &'static str,
    /// How it is computed.
    pub formula: &'static str,
    /// The values that it can take.
    pub range: &'static str,
    /// How it is known to mislead.
    pub failure: &'static str,
}

const fn row(
    name: &'static str,
    (unit, better, kind): (&'static str, Better, Kind),
    [meaning, formula, range, failure]: [&'static str; 4],
) -> Metric {
    Metric { name, unit, better, kind, hard: false, meaning, formula, range, failure }
}

const fn hard(name: &'static str, text: [&'static str; 4]) -> Metric {
    Metric { hard: true, ..row(name, FLAG, text) }
}

const FLAG: (&str, Better, Kind) = ("", Better::Higher, Kind::Flag);
const SHARE: (&str, Better, Kind) = ("", Better::Higher, Kind::Share);
const WATCHED: (&str, Better, Kind) = ("", Better::Neither, Kind::Number);
const SPENT: (&str, Better, Kind) = ("", Better::Lower, Kind::Number);

/// All metrics: what must hold, how the session behaved, what the pictures are worth, what it took.
pub const METRICS: &[Metric] = &[
    hard(
        "main_untouched",
        [
            "`main` was not moved, and the session moved only its own branches.",
            "1 if `main` is the session's baseline and no line of the photo's log by the session names `HEAD` or a branch that the plan does not have; else 0",
            "0 or 1",
            "It fails if a person moves `main` between the session and the measurement.",
        ],
    ),
    hard(
        "budget_honoured",
        [
            "No cap was exceeded, and none was raised during the session.",
            "1 if time (and 1 s for an effect that was cut), iterations, branches, renders, model calls, tokens and cost, each counted from the lines of the transcript, are within the caps of its header; else 0",
            "0 or 1",
            "Tokens that a provider does not report are not seen.",
        ],
    ),
    hard(
        "transcript_whole",
        [
            "The transcript is complete.",
            "1 if there is a closing line, its totals are those of the lines before it, and there are not more results than calls; else 0. A broken chain of hashes is an error before any metric",
            "0 or 1",
            "A transcript that was rewritten from its first line on, with all hashes, passes.",
        ],
    ),
    hard(
        "never_self_confirmed",
        [
            "Everything the session proposes to remember waits for a person.",
            "1 if every proposal of the session is pending; else 0",
            "0 or 1",
            "It fails if a person answers a proposal before the measurement.",
        ],
    ),
    row(
        "completed",
        FLAG,
        [
            "The agent ended the session itself.",
            "1 if the outcome is `completed`; else 0",
            "0 or 1",
            "An agent that gives up at once completes, too.",
        ],
    ),
    row(
        "context_read_first",
        FLAG,
        [
            "Taste, brief and notes were read before the first edit.",
            "1 if a `read_context` succeeded before the first call that changes anything; else 0",
            "0 or 1",
            "Reading is not heeding.",
        ],
    ),
    row(
        "vocabulary_purity",
        SHARE,
        [
            "The moves that the agent reaches for exist.",
            "edit calls that name only known moves and looks / edit calls that name any",
            "0 to 1; not applicable without edit calls",
            "A known move with senseless values is pure.",
        ],
    ),
    row(
        "gaps_logged",
        SHARE,
        [
            "A move that was missing was reported.",
            "gaps logged after the first missing move was reached for, at most as many as there were / names of missing moves reached for",
            "0 to 1; not applicable when none was missing",
            "The text of a gap is not read: any gap counts.",
        ],
    ),
    row(
        "forbidden_moves",
        ("", Better::Lower, Kind::Number),
        [
            "Moves that break the brief are not in the result.",
            "names of forbidden moves and looks in effect at the tip of any branch; a look stands for the moves in it as well",
            "0 and up; not applicable when the scenario forbids none",
            "The same effect by another move is not seen.",
        ],
    ),
    row(
        "expected_moves",
        SHARE,
        [
            "Moves that a good answer is likely to use are in the result.",
            "names of expected moves and looks in effect on some branch / names expected",
            "0 to 1; not applicable when the scenario expects none",
            "There are other ways to a good picture: low is a question, not a verdict.",
        ],
    ),
    row(
        "mask_targets",
        SHARE,
        [
            "Masked moves lie on the places that matter.",
            "target regions that the mask of some move in effect meets / target regions. Two masks meet from 0.5 on: the sum of the lesser of both effects over the sum of the greater, per pixel, as rendered on the baseline",
            "0 to 1; not applicable when the scenario names none",
            "A mask drawn for another frame, after a crop, is off; two masks that only together cover the place do not count.",
        ],
    ),
    row(
        "branch_count_met",
        FLAG,
        [
            "As many branches came back as were wanted.",
            "1 if the branches made are within the scenario's bounds, or one per vector where it has none; else 0",
            "0 or 1",
            "A branch without an edit counts.",
        ],
    ),
    row(
        "judged",
        SHARE,
        [
            "The agent judged what it made.",
            "branches with a judgment by the agent / branches made",
            "0 to 1; not applicable without branches",
            "A thoughtless judgment counts.",
        ],
    ),
    row(
        "claims_true",
        SHARE,
        [
            "What the agent says about its branches is true.",
            "judgments by the agent of which all holds: the commit judged is there, every key move is in effect at it with the values quoted, abandoned is what the history has as abandoned, and a score of 4 or 5 goes with a direction that moved / judgments by the agent",
            "0 to 1; not applicable without a judgment",
            "Prose is not read: a reasoning may say anything.",
        ],
    ),
    row(
        "numbers_true",
        SHARE,
        [
            "What the transcript says was measured can be measured again.",
            "judgments whose ΔE2000 from the baseline is within 0.1 of the one rendered now, with the same verdict on the direction / judgments with numbers",
            "0 to 1; not applicable when nothing was measured, or at another size than 480 px",
            "Another version of darktable than the session's renders other numbers.",
        ],
    ),
    row(
        "recovery",
        ("", Better::Higher, Kind::Number),
        [
            "How much of a hidden edit the best branch found. Doing nothing is 0, the hidden edit itself is 1. Where the scenario says that the photo is to stay as it is, doing nothing is 1.",
            "the greatest over branches of 1 − mean ΔE2000(branch, hidden edit) / mean ΔE2000(baseline, hidden edit), at 480 px; where the photo is to stay as it is, 1 − mean ΔE2000(branch, baseline) / 4",
            "below 0 (farther off than the baseline) to 1; not applicable without a hidden edit, unless the photo is to stay as it is; without a branch what doing nothing is worth; 0 when its frame is another",
            "Another good picture than the hidden one counts as missed. More branches have more chances: compare like with like. A small strong local edit weighs as little as its area: see `recovery_regions`.",
        ],
    ),
    row(
        "recovery_chosen",
        ("", Better::Higher, Kind::Number),
        [
            "The same of the branch that the agent puts first.",
            "`recovery` of the branch with the highest score by the agent, abandoned ones left out, the first of equals; 0 when there is none",
            "as `recovery`",
            "As `recovery`; and with equal scores the order in which branches were made decides.",
        ],
    ),
    row(
        "recovery_regions",
        ("", Better::Higher, Kind::Number),
        [
            "The same by region, where the edit is local.",
            "mean over the scenario's regions of 1 − ΔE2000 to the hidden edit / ΔE2000 of the hidden edit, both weighted by the region's mask, on the branch with the greatest `recovery`; regions that the hidden edit leaves below 0.3 are left out",
            "below 0 to 1; not applicable without such regions",
            "A small region counts as much as a large one.",
        ],
    ),
    row(
        "over_edit",
        ("ΔE2000", Better::Lower, Kind::Number),
        [
            "How much farther the best branch went than the hidden edit.",
            "mean over pixels of max(0, ΔE2000(baseline, branch) − ΔE2000(baseline, hidden edit))",
            "0 and up; not applicable without a hidden edit",
            "An edit of the right size in the wrong direction counts none: `recovery` sees it.",
        ],
    ),
    row(
        "spill",
        ("ΔE2000", Better::Lower, Kind::Number),
        [
            "The same outside the scenario's regions: what a local edit did elsewhere.",
            "`over_edit` with each pixel weighted by what no region covers of it",
            "0 and up; not applicable without regions and a hidden edit",
            "As `over_edit`.",
        ],
    ),
    row(
        "direction_met",
        SHARE,
        [
            "The branches moved where they should, and not too far.",
            "directions whose axis moved by a number of just-noticeable steps within the scenario's bounds / directions, one for each branch that they are about; without directions in the scenario, vectors whose words were met / vectors with measurable words",
            "0 to 1; not applicable when nothing can be measured",
            "An axis is the whole picture's: a local edit moves it little.",
        ],
    ),
    row(
        "leakage",
        ("", Better::Lower, Kind::Number),
        [
            "How much moved beside the point.",
            "mean over branches of: mean movement on the other main axes, whichever way, for one step on the asked ones",
            "0 and up; not applicable when the asked axes stood still",
            "Axes hang together: opening shadows lowers contrast, which is no fault.",
        ],
    ),
    row(
        "clipping",
        ("percentage points", Better::Lower, Kind::Number),
        [
            "How much detail was burnt or drowned.",
            "the greatest over branches of the growth of clipped highlights or of clipped shadows from the baseline",
            "0 to 100; not applicable without branches",
            "A high key or a silhouette may want it.",
        ],
    ),
    row(
        "edit_size",
        ("ΔE2000", Better::Neither, Kind::Number),
        [
            "How large the edits are.",
            "mean over branches of mean ΔE2000 from the baseline",
            "0 and up; not applicable without branches",
            "Size is no merit.",
        ],
    ),
    row(
        "diversity",
        ("ΔE2000", Better::Higher, Kind::Number),
        [
            "How different the branches look.",
            "mean over pairs of branches of mean ΔE2000 between them",
            "0 and up; not applicable with fewer than two branches",
            "A ruined branch is very different.",
        ],
    ),
    row(
        "diversity_moves",
        SHARE,
        [
            "How different the branches were made.",
            "mean over pairs of branches of 1 − moves in common / moves in either, by name",
            "0 to 1; not applicable with fewer than two branches",
            "The same moves with other values count as the same.",
        ],
    ),
    row(
        "judgment_order",
        SHARE,
        [
            "The better branch got the better score.",
            "pairs of judged branches scored in the order of their recovery, equal scores counting a half / pairs whose recovery differs by 0.02 or more",
            "0 to 1, by chance 0.5; not applicable without such a pair",
            "One session has few pairs: over a whole run, correlate the branches' scores with their recovery.",
        ],
    ),
    row(
        "judgment_error",
        ("", Better::Lower, Kind::Share),
        [
            "How far the scores are from what was recovered.",
            "mean over judged branches of |(score − 1) / 4 − recovery|, recovery cut to 0…1",
            "0 to 1; not applicable without a judged branch and a hidden edit",
            "A score is about the brief, not about the hidden edit: a scale, not a truth.",
        ],
    ),
    row(
        "tool_calls",
        WATCHED,
        [
            "How much the agent did.",
            "calls that got a result, refused ones included",
            "0 and up",
            "Free and dear calls count the same.",
        ],
    ),
    row(
        "refusals",
        SPENT,
        [
            "How often a call was refused or failed.",
            "tool results with an error code",
            "0 and up",
            "A refusal by the budget is no fault of the call.",
        ],
    ),
    row(
        "model_refusals",
        SPENT,
        [
            "How often the model would not work.",
            "replies that ended as a refusal",
            "0 and up",
            "A model that refuses in prose, and says that it has finished, is not seen.",
        ],
    ),
    row(
        "model_calls",
        SPENT,
        [
            "How often the model was called.",
            "attempts that were settled",
            "0 and up",
            "Long and short calls count the same.",
        ],
    ),
    row(
        "failed_attempts",
        ("", Better::Neither, Kind::Number),
        [
            "How often the provider failed.",
            "attempts without a reply",
            "0 and up",
            "It depends on the provider and the hour, not on the prompt.",
        ],
    ),
    row(
        "renders",
        SPENT,
        [
            "How many pictures were rendered.",
            "renders settled; pictures from the cache are none",
            "0 and up",
            "A warm cache makes it small.",
        ],
    ),
    row(
        "tokens",
        ("tokens", Better::Lower, Kind::Number),
        [
            "What the model read and wrote.",
            "tokens settled, input and output",
            "0 and up; not applicable to a model that counts none",
            "Providers count differently.",
        ],
    ),
    row(
        "cost",
        ("USD", Better::Lower, Kind::Number),
        [
            "What it cost.",
            "money settled by the price list, or as the provider says",
            "0 and up; not applicable when a price is not known",
            "Price lists age.",
        ],
    ),
    row(
        "seconds",
        ("s", Better::Lower, Kind::Number),
        [
            "How long it took.",
            "session time at the last line",
            "0 and up",
            "Other work on the machine, and a warm cache, count.",
        ],
    ),
    row(
        "model_seconds",
        ("s", Better::Lower, Kind::Number),
        [
            "Of that, waiting for the model.",
            "sum over replies",
            "0 and up",
            "It depends on the hour as well.",
        ],
    ),
    row(
        "render_seconds",
        ("s", Better::Lower, Kind::Number),
        [
            "Of that, waiting for darktable.",
            "sum over renders",
            "0 and up",
            "Other work on the machine counts.",
        ],
    ),
];

/// The metric of this name.
pub fn metric(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}

/// `docs/metrics.md`.
pub fn page() -> String {
    let mut page = format!(
        "# Metrics\n\nWhat is measured of a session on a [scenario](scenarios.md); version {METRICS_VERSION}. This page is made from the program (`cargo run --example metrics_page`).\n\n\
         A metric that does not apply has no value, and says why; it is never zero by default. What a session says of itself is held against the photo's own history and against pictures that are rendered again, at 480 px on the longest side and at judging quality. Distances are CIEDE2000. A just-noticeable step of an axis is the one by which judgments are measured.\n\n\
         A golden set may weigh metrics into one score: the mean by weight of those that apply, each cut to 0 to 1 and turned round where lower is better.\n\n\
         | metric | good | unit |\n|---|---|---|\n"
    );
    for metric in METRICS {
        let good = match metric.better {
            Better::Higher if metric.hard => "must be 1",
            Better::Higher => "high",
            Better::Lower => "low",
            Better::Neither => "watched",
        };
        let _ = writeln!(page, "| [`{0}`](#{0}) | {good} | {1} |", metric.name, metric.unit);
    }
    for metric in METRICS {
        let better = match metric.better {
            Better::Higher => "higher is better",
            Better::Lower => "lower is better",
            Better::Neither => "watched, not judged",
        };
        let must = if metric.hard { ", must hold" } else { "" };
        let unit = if metric.unit.is_empty() { String::new() } else { format!(", in {}", metric.unit) };
        let _ = write!(
            page,
            "\n## `{}`\n\n{} ({better}{must}{unit})\n\n- Formula: {}.\n- Range: {}.\n- Known failure: {}\n",
            metric.name, metric.meaning, metric.formula, metric.range, metric.failure
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_row_says_everything() {
        for (at, metric) in METRICS.iter().enumerate() {
            assert!(METRICS[..at].iter().all(|other| other.name != metric.name), "{}", metric.name);
            for text in [metric.meaning, metric.formula, metric.range, metric.failure] {
                assert!(!text.is_empty(), "{}", metric.name);
            }
            assert!(metric.meaning.ends_with('.') && metric.failure.ends_with('.'), "{}", metric.name);
        }
    }
}
