//! A run as one page: no script, no network, every picture inside.
//!
//! The plots are drawn here as SVG, because each shows one thing and needs neither axes to configure nor a
//! library that brings fonts along.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use crate::eval::cells;
use crate::eval::compare::Comparison;
use crate::eval::history::HistoryLine;
use crate::eval::manifest::{Arm, Manifest};
use crate::eval::stats::spearman;
use crate::review::ReviewModel;
use crate::review::html::{self, text, thumbnail};
use crate::session::listing;

/// Longest side of a thumbnail in pixels.
const THUMBNAIL: u32 = 240;
/// Width of a plot.
const WIDTH: f64 = 760.0;
/// Room at the left of a plot, for words.
const LEFT: f64 = 220.0;
/// The height of a line of a plot.
const LINE: f64 = 20.0;

const STYLE: &str = "\
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse}td,th{padding:.2rem .7rem .2rem 0;text-align:left;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
svg{max-width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:currentColor}
.axis{stroke:currentColor;stroke-opacity:.35}.bar{stroke:#3b7dd8;stroke-width:2}.dot{fill:#3b7dd8}
.mean{fill:#d2691e}.mean-bar{stroke:#d2691e;stroke-width:3}
.row{display:flex;gap:.7rem;overflow-x:auto}figure{margin:0 0 1rem}figure img{display:block;border-radius:3px}
figcaption{font-size:13px}.bad{color:#c0392b}code{font-size:13px}";

/// The page of a run. `comparisons` are shown as they are; `history` is that of the same home.
pub fn page(run: &Manifest, home: &Path, comparisons: &[Comparison], history: &[HistoryLine]) -> String {
    let mut page = html::head(&format!("Evaluation {}", run.run), STYLE);
    overview(&mut page, run);
    for comparison in comparisons {
        compared(&mut page, comparison);
    }
    cost_and_quality(&mut page, run);
    calibration(&mut page, run);
    over_time(&mut page, run, history);
    pictures(&mut page, run, home);
    page.push_str("</body></html>\n");
    page
}

fn overview(page: &mut String, run: &Manifest) {
    let (tally, with, primary) = (run.tally(), &run.made_with, &run.golden.primary);
    let _ = writeln!(
        page,
        "<p>{} ({}), {} scenarios, {} repeats; darktable {}, chemigram {} (engine {}, build {}), metrics {}. \
         {} sessions done, {} failed, {} not run. <b>{}</b> decides.</p>",
        text(&run.golden.version),
        run.golden.sha256.short(),
        run.golden.scenarios.len(),
        run.request.repeats,
        text(&with.darktable),
        text(&with.chemigram),
        with.engine,
        with.binary.short(),
        with.metrics,
        tally.done,
        tally.failed,
        tally.not_run,
        text(primary)
    );
    let _ = writeln!(
        page,
        "<table><tr><th>arm</th><th class=n>{}</th><th class=n>scenarios</th><th class=n>USD per session</th><th class=n>s per session</th><th class=n>tokens per session</th></tr>",
        text(primary)
    );
    for arm in run.arms() {
        let cell = |metric: &str, digits: usize| {
            run.mean(&arm, metric).map_or_else(|| "–".to_owned(), |(mean, _)| format!("{mean:.digits$}"))
        };
        let scenarios = run.mean(&arm, primary).map_or(0, |(_, n)| n);
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td class=n>{}</td><td class=n>{scenarios}</td><td class=n>{}</td><td class=n>{}</td><td class=n>{}</td></tr>",
            text(&arm.to_string()),
            cell(primary, 3),
            cell("cost", 4),
            cell("seconds", 1),
            cell("tokens", 0)
        );
    }
    page.push_str("</table>\n");
    for broken in run.broken() {
        let line = format!("invariant failed: {} on {}: {}", broken.metric, broken.scenario, broken.why);
        let _ = writeln!(page, "<p class=bad>{}</p>", text(&line));
    }
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
fn compared(page: &mut String, c: &Comparison) {
    let (metric, paired) = (c.primary.metric, &c.primary.paired);
    let _ = writeln!(
        page,
        "<h2>{}</h2><p>A: {}<br>B: {}</p><p>{}. {} wins, {} ties, {} losses.</p>",
        text(c.primary.verdict.as_str()),
        text(&format!("{} {}", c.a.0, c.a.1)),
        text(&format!("{} {}", c.b.0, c.b.1)),
        text(&c.sentence()),
        paired.wins,
        paired.ties,
        paired.losses
    );
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
            text(&row.scenario)
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
    page.push_str(&svg(bottom + 22.0, &format!("gain in {metric} by scenario"), &body));
    let _ = writeln!(
        page,
        "<p>Gain of B over A in {}; further right is better. Each dot is a scenario, each line the range of its repeats.</p>",
        text(metric)
    );
    for caution in &c.cautions {
        let _ = writeln!(page, "<p class=bad>{}</p>", text(caution));
    }
    for excluded in &c.excluded {
        let _ = writeln!(page, "<p>Not compared: {}: {}.</p>", text(&excluded.scenario), text(&excluded.why));
    }
}

/// What each arm costs and what it is worth.
fn cost_and_quality(page: &mut String, run: &Manifest) {
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
        return;
    }
    let arms = run.arms();
    let (top, bottom) = (10.0, 230.0);
    let across = Scale::of(points.iter().map(|p| p.1).chain([0.0]), (60.0, WIDTH - 320.0));
    let up = Scale::of(points.iter().map(|p| p.2), (bottom, top));
    let mut body = String::new();
    grid(&mut body, across, top, bottom);
    shelves(&mut body, up, 60.0, WIDTH - 320.0);
    for (arm, x, y) in &points {
        let (x, y) = (across.at(*x), up.at(*y));
        let _ = write!(
            body,
            "<circle class=dot cx={x:.1} cy={y:.1} r=5 /><text x={:.1} y={:.1}>{}</text>",
            x + 9.0,
            y + 4.0,
            text(&arm.short(&arms))
        );
    }
    let _ = writeln!(page, "<h2>Cost</h2><p>{} over {label}, by arm.</p>", text(primary));
    page.push_str(&svg(bottom + 24.0, "cost and quality", &body));
}

/// Whether a high score means a good picture.
fn calibration(page: &mut String, run: &Manifest) {
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
        let _ = writeln!(
            page,
            "<h2>Do its scores match the results?</h2><p>{}: the score of each branch, and how much of the hidden edit it recovered. Rank correlation {rho:+.2} over {} branches.</p>",
            text(&arm.to_string()),
            pairs.len()
        );
        page.push_str(&svg(bottom + 24.0, "scores and recovery", &body));
    }
}

/// The deciding metric over the runs on the same set.
fn over_time(page: &mut String, run: &Manifest, history: &[HistoryLine]) {
    let same: Vec<&HistoryLine> = history
        .iter()
        .filter(|line| line.golden_sha256 == run.golden.sha256 && line.metrics == run.made_with.metrics)
        .collect();
    if same.len() < 2 {
        return;
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
    for (arm, points) in &arms {
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
        if let Some((place, mean, _)) = points.last() {
            let (x, y) = (across.at(*place as f64), up.at(*mean));
            let _ = write!(body, "<text x={:.1} y={:.1}>{}</text>", x + 9.0, y + 4.0, text(&arm.short(&all)));
        }
    }
    let _ = writeln!(
        page,
        "<h2>History</h2><p>{} of each arm over {} runs on this set, oldest first. Runs with different scenarios are not comparable: each dot shows the number of scenarios.</p>",
        text(&run.golden.primary),
        same.len()
    );
    page.push_str(&svg(bottom + 14.0, "history", &body));
}

/// The pictures of each scenario's first repeat: what there was, and the best branch of each arm.
fn pictures(page: &mut String, run: &Manifest, home: &Path) {
    page.push_str("<h2>Pictures</h2>\n");
    let arms = run.arms();
    for scenario in run.golden.scenarios.keys() {
        let mut row = String::new();
        let mut baseline = None;
        for arm in &arms {
            let cell = run.of_arm(arm).find(|(cell, _)| cell.scenario == *scenario);
            let Some(review) = cell.and_then(|(cell, done)| {
                let workspace = cells::workspace(home, cell)?;
                let session = listing::read(&workspace, &done.session.parse().ok()?).ok()?;
                let review = ReviewModel::of(&workspace, &session).ok()?;
                Some((review, done.measured.get(&run.golden.primary)))
            }) else {
                continue;
            };
            let (review, value) = review;
            baseline = baseline.or_else(|| thumbnail(review.baseline_preview.as_deref()?, THUMBNAIL));
            let best = review.best().and_then(|best| thumbnail(best.preview.as_deref()?, THUMBNAIL));
            let value = value.map(short).unwrap_or_default();
            let _ = match best {
                Some(uri) => write!(
                    row,
                    "<figure><img src=\"{uri}\" alt=\"\"><figcaption>{} {value}</figcaption></figure>",
                    text(&arm.short(&arms))
                ),
                None => write!(
                    row,
                    "<figure><figcaption>{}: same as baseline</figcaption></figure>",
                    text(&arm.short(&arms))
                ),
            };
        }
        if let Some(uri) = baseline {
            let _ = writeln!(
                page,
                "<h3>{}</h3><div class=row><figure><img src=\"{uri}\" alt=\"\"><figcaption>before</figcaption></figure>{row}</div>",
                text(scenario)
            );
        }
    }
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
