//! A run as one page: figures, plots, and a grid of pictures, scenario by contestant.
//!
//! The plots are drawn here as SVG, because each shows one thing and needs neither axes to configure nor a
//! library that brings fonts along.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use serde::Serialize;
use serde_json::json;

use crate::eval::cells;
use crate::eval::compare::Comparison;
use crate::eval::history::HistoryLine;
use crate::eval::manifest::{Arm, Manifest};
use crate::eval::stats::spearman;
use crate::review::page::{Gallery, render};
use crate::review::{Group, ReviewModel, Shot, plain, shot};
use crate::session::listing;

/// Width of a plot.
const WIDTH: f64 = 760.0;
/// Room at the left of a plot, for words.
const LEFT: f64 = 220.0;
/// The height of a line of a plot.
const LINE: f64 = 20.0;

/// A plot with what is said before and after it.
#[derive(Debug, Default, Serialize)]
struct Plot {
    title: String,
    before: Vec<String>,
    svg: String,
    after: Vec<String>,
    cautions: Vec<String>,
}

/// The page of a run. `comparisons`, and `picks`, what the scores have to do with a person's, are shown as they are; `history` is that of the same home.
///
/// # Errors
/// A template that cannot be filled in, which is a fault of the program.
pub fn page(
    run: &Manifest,
    home: &Path,
    (comparisons, picks): (&[Comparison], &[String]),
    history: &[HistoryLine],
) -> io::Result<String> {
    let mut plots: Vec<Plot> = comparisons.iter().map(compared).collect();
    plots.extend(cost_and_quality(run));
    plots.extend(calibration(run));
    plots.extend(over_time(run, history));
    let (tally, with, primary) = (run.tally(), &run.made_with, &run.golden.primary);
    let intro = format!(
        "{} ({}), {} scenarios, {} repeats; darktable {}, chemigram {} (engine {}, build {}), metrics {}. \
         {} sessions done, {} failed, {} not run. {primary} decides. {}",
        run.golden.version,
        run.golden.sha256.short(),
        run.golden.scenarios.len(),
        run.request.repeats,
        with.darktable,
        with.chemigram,
        with.engine,
        with.binary.short(),
        with.metrics,
        tally.done,
        tally.failed,
        tally.not_run,
        picks.join(" "),
    );
    let broken = run.broken();
    let broken =
        broken.iter().map(|b| format!("invariant failed: {} on {}: {}", b.metric, b.scenario, b.why));
    let broken = broken.chain(run.went_on());
    let arms = run.arms();
    let tokens =
        arms.iter().filter_map(|arm| Some(format!("{}: {}", arm.short(&arms), run.money(arm).words()?)));
    let context = json!({
        "intro": intro,
        "columns": [
            "arm", primary, "scenarios", "USD per session", "s per session", "tokens per session", "from the cache",
        ],
        "rows": rows(run),
        "tokens": tokens.collect::<Vec<_>>(),
        "broken": broken.collect::<Vec<_>>(),
        "plots": plots,
        "groups": pictures(run, home),
    });
    render("evaluation", &run.run, &format!("Evaluation {}", run.run), false, &context)
}

fn rows(run: &Manifest) -> Vec<[String; 7]> {
    let (arms, primary) = (run.arms(), &run.golden.primary);
    let row = |arm: &Arm| {
        let cell = |metric: &str, digits: usize| {
            run.mean(arm, metric).map_or_else(|| "–".to_owned(), |(mean, _)| format!("{mean:.digits$}"))
        };
        let scenarios = run.mean(arm, primary).map_or(0, |(_, n)| n).to_string();
        [
            arm.short(&arms),
            cell(primary, 3),
            scenarios,
            cell("cost", 4),
            cell("seconds", 1),
            cell("tokens", 0),
            run.money(arm).hit_percent().map_or_else(|| "–".to_owned(), |hits| format!("{hits} %")),
        ]
    };
    arms.iter().map(row).collect()
}

/// Foreign text in the markup of a plot.
fn text(raw: &str) -> String {
    let mut html = String::with_capacity(raw.len());
    for c in plain(raw).chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            _ => html.push(c),
        }
    }
    html
}

/// A name that fits into `room` characters.
fn fitting(name: &str, room: usize) -> String {
    if name.chars().count() <= room {
        return name.to_owned();
    }
    name.chars().take(room.saturating_sub(1)).chain(['…']).collect()
}

/// A linear scale onto pixels.
#[derive(Clone, Copy)]
struct Scale {
    from: (f64, f64),
    to: (f64, f64),
}

impl Scale {
    /// One that shows all values with a little room around; zero-width ranges are widened.
    fn of(values: impl Iterator<Item = f64>, to: (f64, f64)) -> Self {
        let ends = values
            .filter(|v| v.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        let (low, high) = if ends.0 > ends.1 { (0.0, 1.0) } else { ends };
        let room = ((high - low) * 0.06).max(1e-3);
        Self { from: (low - room, high + room), to }
    }

    fn at(self, value: f64) -> f64 {
        let share = (value - self.from.0) / (self.from.1 - self.from.0);
        self.to.0 + share * (self.to.1 - self.to.0)
    }

    /// Round values to mark: 1, 2 or 5 times a power of ten apart.
    fn marks(self) -> Vec<f64> {
        let rough = (self.from.1 - self.from.0) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= rough).unwrap_or(rough);
        let first = (self.from.0 / step).ceil() as i64;
        let last = (self.from.1 / step).floor() as i64;
        (first..=last.min(first + 20)).map(|k| k as f64 * step).collect()
    }
}

/// A number, as short as possible.
fn short(value: f64) -> String {
    let text = format!("{:.4}", value + 0.0);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.is_empty() || text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// The vertical lines of a scale with their values, and its foot.
fn grid(svg: &mut String, scale: Scale, top: f64, bottom: f64) {
    for mark in scale.marks() {
        let x = scale.at(mark);
        let _ = write!(
            svg,
            "<line class=axis x1={x:.1} y1={top:.1} x2={x:.1} y2={bottom:.1} /><text x={x:.1} y={:.1} text-anchor=middle>{}</text>",
            bottom + 16.0,
            short(mark)
        );
    }
}

/// The horizontal ones.
fn shelves(svg: &mut String, scale: Scale, left: f64, right: f64) {
    for mark in scale.marks() {
        let y = scale.at(mark);
        let _ = write!(
            svg,
            "<line class=axis x1={left:.1} y1={y:.1} x2={right:.1} y2={y:.1} /><text x={:.1} y={:.1} text-anchor=end>{}</text>",
            left - 6.0,
            y + 4.0,
            short(mark)
        );
    }
}

fn svg(height: f64, label: &str, body: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" width={WIDTH} role=img aria-label=\"{}\">{body}</svg>\n",
        text(label)
    )
}

/// What a comparison says, and the gain of every scenario.
fn compared(c: &Comparison) -> Plot {
    let (metric, paired) = (c.primary.metric, &c.primary.paired);
    let arms = [c.a.1.clone(), c.b.1.clone()];
    let title =
        format!("{}: {} against {}", c.primary.verdict.as_str(), c.b.1.short(&arms), c.a.1.short(&arms));
    let before = vec![
        format!("A: {} {}\nB: {} {}", c.a.0, c.a.1, c.b.0, c.b.1),
        format!("{}. {} wins, {} ties, {} losses.", c.sentence(), paired.wins, paired.ties, paired.losses),
    ];
    let ends =
        c.scenarios.iter().flat_map(|row| row.range.unwrap_or([row.gain; 2]).into_iter().chain([row.gain]));
    let all = ends.chain(paired.interval.into_iter().flatten()).chain([0.0]);
    let scale = Scale::of(all, (LEFT, WIDTH - 20.0));
    let bottom = LINE * (c.scenarios.len() as f64 + 2.0);
    let mut body = String::new();
    grid(&mut body, scale, 4.0, bottom);
    let mut rows: Vec<_> = c.scenarios.iter().collect();
    rows.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    for (place, row) in rows.into_iter().enumerate() {
        let y = LINE * (place as f64 + 0.8);
        if let Some([low, high]) = row.range {
            let (low, high) = (scale.at(low), scale.at(high));
            let _ = write!(body, "<line class=bar x1={low:.1} y1={y:.1} x2={high:.1} y2={y:.1} />");
        }
        let _ = write!(
            body,
            "<circle class=dot cx={:.1} cy={y:.1} r=4><title>{}: {:.3} and {:.3}</title></circle><text x={:.1} y={:.1} text-anchor=end>{}</text>",
            scale.at(row.gain),
            text(&row.scenario),
            row.a,
            row.b,
            LEFT - 10.0,
            y + 4.0,
            text(&fitting(&row.scenario, 30))
        );
    }
    let y = bottom - LINE * 0.7;
    if let Some([low, high]) = paired.interval {
        let (low, high) = (scale.at(low), scale.at(high));
        let _ = write!(body, "<line class=mean-bar x1={low:.1} y1={y:.1} x2={high:.1} y2={y:.1} />");
    }
    let _ = write!(
        body,
        "<circle class=mean cx={:.1} cy={y:.1} r=6 /><text x={:.1} y={:.1} text-anchor=end>mean, 95 %</text>",
        scale.at(paired.mean),
        LEFT - 10.0,
        y + 4.0
    );
    let svg = svg(bottom + 22.0, &format!("gain in {metric} by scenario"), &body);
    let mut after = vec![format!(
        "Gain of B over A in {metric}; further right is better. Each dot is a scenario, each line the range of its repeats."
    )];
    after.extend(c.excluded.iter().map(|one| format!("Not compared: {}: {}.", one.scenario, one.why)));
    Plot { title, before, svg, after, cautions: c.cautions.iter().map(ToString::to_string).collect() }
}

/// What each arm costs and what it is worth.
fn cost_and_quality(run: &Manifest) -> Option<Plot> {
    let primary = &run.golden.primary;
    let free = run.models.iter().all(|model| model.free);
    let (price, label) =
        if free { ("seconds", "seconds per session") } else { ("cost", "US dollars per session") };
    let points: Vec<(Arm, f64, f64)> = run
        .arms()
        .into_iter()
        .filter_map(|arm| Some((run.mean(&arm, price)?.0, run.mean(&arm, primary)?.0, arm)))
        .map(|(x, y, arm)| (arm, x, y))
        .collect();
    if points.len() < 2 {
        return None;
    }
    let arms = run.arms();
    let (top, bottom) = (10.0, 230.0);
    let across = Scale::of(points.iter().map(|p| p.1).chain([0.0]), (60.0, WIDTH - 320.0));
    let up = Scale::of(points.iter().map(|p| p.2), (bottom, top));
    let mut body = String::new();
    grid(&mut body, across, top, bottom);
    shelves(&mut body, up, 60.0, WIDTH - 320.0);
    let at: Vec<(f64, f64)> = points.iter().map(|(_, x, y)| (across.at(*x), up.at(*y))).collect();
    let heights = apart(at.iter().map(|point| point.1));
    for (((arm, ..), (x, y)), label) in points.iter().zip(&at).zip(heights) {
        let _ = write!(
            body,
            "<circle class=dot cx={x:.1} cy={y:.1} r=5 /><line class=axis x1={x:.1} y1={y:.1} x2={:.1} y2={label:.1} /><text x={:.1} y={:.1}>{}</text>",
            WIDTH - 312.0,
            WIDTH - 308.0,
            label + 4.0,
            text(&fitting(&arm.short(&arms), 42))
        );
    }
    let svg = svg(bottom + 24.0, "cost and quality", &body);
    Some(Plot {
        title: "Cost".into(),
        before: vec![format!("{primary} over {label}, by arm.")],
        svg,
        ..Plot::default()
    })
}

/// Whether a high score means a good picture.
fn calibration(run: &Manifest) -> Vec<Plot> {
    let mut plots = Vec::new();
    let arms = run.arms();
    for arm in run.arms() {
        let branches = run.of_arm(&arm).flat_map(|(_, done)| &done.measured.branches);
        let pairs: Vec<(f64, f64)> =
            branches.filter_map(|b| Some((f64::from(b.judged_score?), b.recovery?))).collect();
        let Some(rho) = spearman(&pairs) else { continue };
        let (top, bottom) = (10.0, 200.0);
        let up = Scale::of(pairs.iter().map(|p| p.1).chain([0.0, 1.0]), (bottom, top));
        let across = Scale { from: (0.5, 5.5), to: (60.0, 460.0) };
        let mut body = String::new();
        shelves(&mut body, up, 60.0, 460.0);
        for score in 1..=5 {
            let x = across.at(f64::from(score));
            let _ = write!(body, "<text x={x:.1} y={:.1} text-anchor=middle>{score}</text>", bottom + 18.0);
        }
        for (score, recovery) in &pairs {
            let (x, y) = (across.at(*score), up.at(*recovery));
            let _ = write!(body, "<circle class=dot cx={x:.1} cy={y:.1} r=4 fill-opacity=.5 />");
        }
        plots.push(Plot {
            title: format!("Do the scores match the results? {}", arm.short(&arms)),
            before: vec![format!(
                "The score of each branch, and how much of the hidden edit it recovered. Rank correlation {rho:+.2} over {} branches.",
                pairs.len()
            )],
            svg: svg(bottom + 24.0, "scores and recovery", &body),
            ..Plot::default()
        });
    }
    plots
}

/// The deciding metric over the runs on the same set.
fn over_time(run: &Manifest, history: &[HistoryLine]) -> Option<Plot> {
    let same: Vec<&HistoryLine> = history
        .iter()
        .filter(|line| line.golden_sha256 == run.golden.sha256 && line.metrics == run.made_with.metrics)
        .collect();
    if same.len() < 2 {
        return None;
    }
    let mut arms: BTreeMap<&Arm, Vec<(usize, f64, usize)>> = BTreeMap::new();
    for (place, line) in same.iter().enumerate() {
        for arm in &line.arms {
            if let Some(mean) = arm.mean {
                arms.entry(&arm.arm).or_default().push((place, mean, arm.scenarios));
            }
        }
    }
    let all: Vec<Arm> = arms.keys().map(|arm| (*arm).clone()).collect();
    let (top, bottom) = (10.0, 200.0);
    let across = Scale::of([0.0, (same.len() - 1) as f64].into_iter(), (60.0, WIDTH - 320.0));
    let up = Scale::of(arms.values().flatten().map(|p| p.1), (bottom, top));
    let mut body = String::new();
    shelves(&mut body, up, 60.0, WIDTH - 320.0);
    for points in arms.values() {
        let line: Vec<String> =
            points.iter().map(|p| format!("{:.1},{:.1}", across.at(p.0 as f64), up.at(p.1))).collect();
        let _ = write!(body, "<polyline class=bar fill=none points=\"{}\" />", line.join(" "));
        for (place, mean, scenarios) in points {
            let (x, y) = (across.at(*place as f64), up.at(*mean));
            let name = same.get(*place).map(|line| line.run.as_str()).unwrap_or_default();
            let _ = write!(
                body,
                "<circle class=dot cx={x:.1} cy={y:.1} r=4><title>{}: {mean:.3} over {scenarios} scenarios</title></circle>",
                text(name)
            );
        }
    }
    let ends: Vec<(&Arm, f64)> =
        arms.iter().filter_map(|(arm, points)| Some((*arm, up.at(points.last()?.1)))).collect();
    for ((arm, _), y) in ends.iter().zip(apart(ends.iter().map(|end| end.1))) {
        let name = text(&fitting(&arm.short(&all), 42));
        let _ = write!(body, "<text x={:.1} y={:.1}>{name}</text>", WIDTH - 308.0, y + 4.0);
    }
    let before = vec![format!(
        "{} of each arm over {} runs on this set, oldest first. Runs with different scenarios are not comparable: each dot shows the number of scenarios.",
        run.golden.primary,
        same.len()
    )];
    Some(Plot {
        title: "History".into(),
        before,
        svg: svg(bottom + 14.0, "history", &body),
        ..Plot::default()
    })
}

/// Heights for labels beside points of these heights, in their order: as near as possible, and none over another.
fn apart(heights: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut order: Vec<(usize, f64)> = heights.enumerate().collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut free = f64::NEG_INFINITY;
    for (_, height) in &mut order {
        *height = height.max(free);
        free = *height + 16.0;
    }
    order.sort_by_key(|(place, _)| *place);
    order.into_iter().map(|(_, height)| height).collect()
}

/// The pictures of each scenario's first repeat: what there was, and the best branch of each arm.
fn pictures(run: &Manifest, home: &Path) -> Vec<Group> {
    let arms = run.arms();
    let mut gallery = Gallery::of(run.golden.scenarios.len() * (arms.len() + 1));
    let mut groups = Vec::new();
    for (number, scenario) in run.golden.scenarios.keys().enumerate() {
        let mut group = Group { id: format!("s{number}"), photo: scenario.clone(), ..Group::default() };
        for arm in &arms {
            let found =
                run.of_arm(arm).find(|(cell, _)| cell.scenario == *scenario).and_then(|(cell, done)| {
                    let workspace = cells::workspace(home, cell)?;
                    let session = listing::read(&workspace, &done.session.parse().ok()?).ok()?;
                    let review = ReviewModel::of(&workspace, &session).ok()?;
                    Some((review, done.measured.get(&run.golden.primary)))
                });
            let Some((review, value)) = found else { continue };
            if group.shots.is_empty() {
                group.brief.clone_from(&review.brief);
                let of = Group::of(&review, &mut gallery, false);
                group.shots.extend(of.shots.into_iter().find(|shot| shot.before));
            }
            let best = review.best().or_else(|| review.branches.first());
            let mut one =
                best.map_or_else(Shot::default, |best| shot(&review, best, false, &mut gallery, false));
            if review.best().is_none() {
                (one.src, one.why) = (None, "nothing differs from before".into());
            }
            one.name = arm.short(&arms);
            one.branch = false;
            one.score =
                value.map(|value| format!("{} {}", run.golden.primary, short(value))).unwrap_or_default();
            group.shots.push(one);
        }
        if !group.shots.is_empty() {
            groups.push(group);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_shows_everything_and_marks_round_values() {
        let scale = Scale::of([-0.31, 0.42].into_iter(), (100.0, 200.0));
        assert!(scale.at(-0.31) > 100.0 && scale.at(0.42) < 200.0);
        let marks: Vec<String> = scale.marks().into_iter().map(short).collect();
        assert_eq!(marks, ["-0.2", "0", "0.2", "0.4"]);
        // One value, or none, is no division by zero.
        assert!(Scale::of([0.5].into_iter(), (0.0, 9.0)).at(0.5).is_finite());
        assert!(Scale::of(std::iter::empty(), (0.0, 9.0)).at(0.5).is_finite());
    }
}
