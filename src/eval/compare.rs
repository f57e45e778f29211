//! The comparison of two arms.
//!
//! A scenario counts once: the mean of its repeats on each side, and the difference between the two. One metric
//! decides, named by the golden set before anything ran; the others are adjusted by Holm for being many.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Serialize;

use crate::eval::manifest::{Arm, Broken, CellRecord, Manifest};
use crate::eval::metrics::{Better, Kind, METRICS, Metric, metric};
use crate::eval::stats::{self, Conclusion, FEWEST, Paired};
use base::error::{Coded, ErrorCode};
use base::hint::did_you_mean;

/// The difference of the deciding metric that does not matter, unless another is named.
pub const MARGIN: f64 = 0.02;

/// One side of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The run.
    pub manifest: &'a Manifest,
    /// One of its arms.
    pub arm: &'a Arm,
}

/// Two arms compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The run and the arm that is compared with.
    pub a: (String, Arm),
    /// The run and the arm that is judged.
    pub b: (String, Arm),
    /// The golden set.
    pub golden: String,
    /// The metric that decides.
    pub primary: Compared,
    /// The others that both have; their p is adjusted for being many.
    pub others: Vec<Compared>,
    /// Metrics that hold or do not.
    pub flags: Vec<FlagCompared>,
    /// The deciding metric, scenario by scenario.
    pub scenarios: Vec<Row>,
    /// Scenarios that are on one side only, or not at all, and why.
    pub excluded: Vec<Excluded>,
    /// What must hold and did not, on side B.
    pub broken: Vec<Broken>,
    /// What else differs between the two, so that the difference may be its work.
    pub cautions: Vec<String>,
    /// The margin of the deciding metric.
    pub margin: f64,
}

/// One metric, compared. Every difference is turned so that more is better.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// The metric.
    pub metric: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Mean over scenarios of A.
    pub mean_a: f64,
    /// Mean over scenarios of B.
    pub mean_b: f64,
    /// What the differences show.
    #[serde(flatten)]
    pub paired: Paired,
    /// The p, adjusted for the other comparisons; the deciding metric's own.
    pub p_adjusted: f64,
    /// The conclusion.
    pub verdict: Conclusion,
}

/// A metric that holds or does not. A scenario passes if all its repeats do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlagCompared {
    /// The metric.
    pub metric: &'static str,
    /// Scenarios that pass on side A.
    pub passes_a: u64,
    /// Scenarios that pass on side B.
    pub passes_b: u64,
    /// Scenarios.
    pub of: u64,
    /// Wilson's interval of A's share.
    pub interval_a: Option<[f64; 2]>,
    /// Wilson's interval of B's share.
    pub interval_b: Option<[f64; 2]>,
    /// McNemar's exact p.
    pub p: f64,
    /// The same, adjusted for the other comparisons.
    pub p_adjusted: f64,
}

/// One scenario under the deciding metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The scenario.
    pub scenario: String,
    /// Mean of A's repeats.
    pub a: f64,
    /// Mean of B's repeats.
    pub b: f64,
    /// B's gain over A.
    pub gain: f64,
    /// Repeats of each.
    pub repeats: [usize; 2],
    /// The least and the greatest gain between single repeats of the same number; absent for one repeat.
    pub range: Option<[f64; 2]>,
}

/// A scenario that is not compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Excluded {
    /// The scenario.
    pub scenario: String,
    /// Why.
    pub why: String,
}

/// What passes a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Whatever has not got worse.
    NoRegression,
    /// Only what has got better.
    Improvement,
}

/// Why two arms cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// The sets differ.
    #[error("{a} and {b} use different golden sets")]
    OtherSet {
        /// A run.
        a: String,
        /// The other.
        b: String,
    },
    /// The metrics differ.
    #[error("{a} and {b} use different versions of the metrics: {version_a} and {version_b}")]
    OtherMetrics {
        /// A run.
        a: String,
        /// Its version.
        version_a: u32,
        /// The other.
        b: String,
        /// Its version.
        version_b: u32,
    },
    /// There is no such metric.
    #[error("`{name}` is not a metric{hint}")]
    UnknownMetric {
        /// As given.
        name: String,
        /// A near one.
        hint: String,
    },
    /// No scenario has the metric on both sides.
    #[error("no scenario has `{metric}` in both runs")]
    Nothing {
        /// The metric.
        metric: String,
    },
    /// A run has several arms.
    #[error("{run} has {count} arms")]
    WhichArm {
        /// The run.
        run: String,
        /// How many.
        count: usize,
        /// Their names.
        arms: Vec<String>,
    },
    /// A run has no such arm.
    #[error("{run} has no arm `{name}`")]
    NoArm {
        /// The run.
        run: String,
        /// As given.
        name: String,
        /// Those it has.
        arms: Vec<String>,
    },
}

impl Coded for CompareError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::OtherSet { .. } | Self::OtherMetrics { .. } | Self::Nothing { .. } => ErrorCode::StateError,
            Self::UnknownMetric { .. } | Self::WhichArm { .. } => ErrorCode::InvalidInput,
            Self::NoArm { .. } => ErrorCode::NotFound,
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::OtherSet { .. } => Some("run both on the same golden set".into()),
            Self::OtherMetrics { .. } => {
                Some("`chemigram eval resume RUN` measures its sessions again, at no cost".into())
            }
            Self::WhichArm { run, arms, .. } | Self::NoArm { run, arms, .. } => {
                Some(format!("name one after a colon, such as `{run}:v1`; the arms are {}", arms.join(", ")))
            }
            _ => None,
        }
    }
}

/// The arm of a run that `part` is part of; without a part, its only one.
pub fn arm(manifest: &Manifest, part: Option<&str>) -> Result<Arm, CompareError> {
    let arms = manifest.arms();
    let named = || arms.iter().map(Arm::to_string).collect::<Vec<_>>();
    let wanted = part.unwrap_or_default();
    let whole = |arm: &&Arm| arm.is(wanted);
    let found: Vec<&Arm> = match arms.iter().filter(whole).collect::<Vec<_>>() {
        none if none.is_empty() => arms.iter().filter(|arm| arm.to_string().contains(wanted)).collect(),
        some => some,
    };
    let run = manifest.run.clone();
    match found.as_slice() {
        [one] => Ok((*one).clone()),
        [] => Err(CompareError::NoArm { run, name: wanted.to_owned(), arms: named() }),
        several => Err(CompareError::WhichArm { run, count: several.len(), arms: named() }),
    }
}

/// The values of a metric on one side: scenario, then repeat.
type Values<'a> = BTreeMap<&'a str, BTreeMap<u32, f64>>;

fn values<'a>(side: Side<'a>, metric: &str) -> Values<'a> {
    let mut values = Values::new();
    for (cell, done) in side.manifest.of_arm(side.arm) {
        if let Some(value) = done.measured.get(metric) {
            values.entry(&cell.scenario).or_default().insert(cell.repeat, value);
        }
    }
    values
}

/// `p 0.031`, and never a p of nothing.
fn p_value(p: f64) -> String {
    if p < 0.0005 { "p < 0.001".to_owned() } else { format!("p {p:.3}") }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len() as f64;
    values.sum::<f64>() / n
}

/// Compares B with A. `metric` looks at another metric than the one that decides; `margin` is the difference
/// that does not matter.
pub fn compare(
    a: Side<'_>,
    b: Side<'_>,
    metric: Option<&str>,
    margin: f64,
) -> Result<Comparison, CompareError> {
    let names = (a.manifest.run.clone(), b.manifest.run.clone());
    if a.manifest.golden.sha256 != b.manifest.golden.sha256 {
        return Err(CompareError::OtherSet { a: names.0, b: names.1 });
    }
    let versions = (a.manifest.made_with.metrics, b.manifest.made_with.metrics);
    if versions.0 != versions.1 {
        let (version_a, version_b) = versions;
        return Err(CompareError::OtherMetrics { a: names.0, version_a, b: names.1, version_b });
    }
    let deciding = a.manifest.golden.primary.as_str();
    let looked_at = known(metric.unwrap_or(deciding))?;
    let (all_a, all_b) = (values(a, looked_at.name), values(b, looked_at.name));
    let scenarios = rows(looked_at, &all_a, &all_b);
    let gains: Vec<f64> = scenarios.iter().map(|row| row.gain).collect();
    let paired =
        Paired::of(&gains).ok_or_else(|| CompareError::Nothing { metric: looked_at.name.to_owned() })?;
    let mut primary = Compared {
        metric: looked_at.name,
        unit: looked_at.unit,
        mean_a: mean(scenarios.iter().map(|row| row.a)),
        mean_b: mean(scenarios.iter().map(|row| row.b)),
        p_adjusted: paired.p,
        verdict: paired.verdict(margin),
        paired,
    };
    let (mut others, mut flags) = (Vec::new(), Vec::new());
    for other in METRICS.iter().filter(|other| other.name != looked_at.name) {
        match other.kind {
            Kind::Flag => flags.extend(flag(other, a, b)),
            _ if other.better == Better::Neither => {}
            _ => others.extend(number(other, a, b)),
        }
    }
    adjust(&mut others, &mut flags);
    let mut cautions = cautions(a, b);
    if looked_at.name != deciding {
        // Chosen after the fact: one look of many.
        let looks = (others.len() + flags.len() + 1) as f64;
        primary.p_adjusted = (primary.p_adjusted * looks).min(1.0);
        primary.verdict = primary.paired.verdict_at(primary.p_adjusted, margin);
        cautions.push(format!(
            "`{deciding}` is the primary metric; `{}` was chosen afterwards, so its p is adjusted",
            looked_at.name
        ));
    }
    let same = |cell: &&CellRecord| cell.arm() == *b.arm;
    let keys: BTreeSet<_> = b.manifest.cells.iter().filter(same).map(|cell| &cell.key).collect();
    let broken = b.manifest.broken().into_iter().filter(|broken| keys.contains(&broken.key));
    Ok(Comparison {
        golden: a.manifest.golden.version.clone(),
        broken: broken.collect(),
        excluded: excluded(a, b, looked_at, &scenarios),
        a: (names.0, a.arm.clone()),
        b: (names.1, b.arm.clone()),
        primary,
        others,
        flags,
        scenarios,
        cautions,
        margin,
    })
}

fn known(name: &str) -> Result<&'static Metric, CompareError> {
    metric(name).ok_or_else(|| {
        let hint = did_you_mean(name, METRICS.iter().map(|m| m.name));
        CompareError::UnknownMetric { name: name.to_owned(), hint }
    })
}

/// The scenarios that have the metric on both sides.
fn rows(metric: &Metric, a: &Values<'_>, b: &Values<'_>) -> Vec<Row> {
    let sign = if metric.better == Better::Lower { -1.0 } else { 1.0 };
    let row = |(scenario, of_a): (&&str, &BTreeMap<u32, f64>)| {
        let of_b = b.get(scenario)?;
        let (mean_a, mean_b) = (mean(of_a.values().copied()), mean(of_b.values().copied()));
        let singles: Vec<f64> =
            of_a.iter().filter_map(|(repeat, a)| Some(sign * (of_b.get(repeat)? - a))).collect();
        let least = singles.iter().copied().fold(f64::INFINITY, f64::min);
        let most = singles.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Row {
            scenario: (*scenario).to_owned(),
            a: mean_a,
            b: mean_b,
            gain: sign * (mean_b - mean_a),
            repeats: [of_a.len(), of_b.len()],
            range: (singles.len() > 1).then_some([least, most]),
        })
    };
    a.iter().filter_map(row).collect()
}

fn number(metric: &'static Metric, a: Side<'_>, b: Side<'_>) -> Option<Compared> {
    let rows = rows(metric, &values(a, metric.name), &values(b, metric.name));
    let paired = Paired::of(&rows.iter().map(|row| row.gain).collect::<Vec<_>>())?;
    Some(Compared {
        metric: metric.name,
        unit: metric.unit,
        mean_a: mean(rows.iter().map(|row| row.a)),
        mean_b: mean(rows.iter().map(|row| row.b)),
        p_adjusted: paired.p,
        verdict: Conclusion::Inconclusive,
        paired,
    })
}

fn flag(metric: &'static Metric, a: Side<'_>, b: Side<'_>) -> Option<FlagCompared> {
    let (of_a, of_b) = (values(a, metric.name), values(b, metric.name));
    let passes = |repeats: &BTreeMap<u32, f64>| repeats.values().all(|value| *value >= 1.0);
    let pairs: Vec<(bool, bool)> = of_a
        .iter()
        .filter_map(|(scenario, repeats)| Some((passes(repeats), passes(of_b.get(scenario)?))))
        .collect();
    if pairs.is_empty() {
        return None;
    }
    let count = |wanted: fn(&(bool, bool)) -> bool| pairs.iter().filter(|pair| wanted(pair)).count() as u64;
    let (passes_a, passes_b, of) = (count(|p| p.0), count(|p| p.1), pairs.len() as u64);
    let p = stats::mcnemar(count(|p| p.0 && !p.1), count(|p| !p.0 && p.1));
    Some(FlagCompared {
        metric: metric.name,
        passes_a,
        passes_b,
        of,
        interval_a: stats::wilson(passes_a, of),
        interval_b: stats::wilson(passes_b, of),
        p,
        p_adjusted: p,
    })
}

/// Adjusts all comparisons but the deciding one for being many.
fn adjust(others: &mut [Compared], flags: &mut [FlagCompared]) {
    let ps: Vec<f64> = others.iter().map(|o| o.paired.p).chain(flags.iter().map(|f| f.p)).collect();
    let mut adjusted = stats::holm(&ps).into_iter();
    for (other, p) in others.iter_mut().zip(&mut adjusted) {
        other.p_adjusted = p;
        other.verdict = other.paired.verdict_at(p, 0.0);
    }
    for (flag, p) in flags.iter_mut().zip(adjusted) {
        flag.p_adjusted = p;
    }
}

/// The scenarios of either side that are not among the rows.
fn excluded(a: Side<'_>, b: Side<'_>, metric: &Metric, rows: &[Row]) -> Vec<Excluded> {
    let compared: BTreeSet<&str> = rows.iter().map(|row| row.scenario.as_str()).collect();
    let of =
        |side: Side<'_>| -> BTreeSet<String> { side.manifest.golden.scenarios.keys().cloned().collect() };
    let why = |side: Side<'_>, name: &str, scenario: &str| -> Option<String> {
        let planned = side.manifest.cells.iter().any(|c| c.scenario == scenario && c.arm() == *side.arm);
        let done = side.manifest.of_arm(side.arm).filter(|(cell, _)| cell.scenario == scenario);
        let values: Vec<Option<f64>> = done.map(|(_, done)| done.measured.get(metric.name)).collect();
        match (planned, values.is_empty()) {
            (false, _) => Some(format!("not part of {name}")),
            (true, true) => Some(format!("{name} has no finished session")),
            (true, false) if values.iter().all(Option::is_none) => {
                Some(format!("`{}` does not apply in {name}", metric.name))
            }
            _ => None,
        }
    };
    let missing = of(a).union(&of(b)).filter(|s| !compared.contains(s.as_str())).cloned().collect::<Vec<_>>();
    let reason = |scenario: String| {
        let why: Vec<String> =
            [why(a, "A", &scenario), why(b, "B", &scenario)].into_iter().flatten().collect();
        Excluded { why: why.join("; "), scenario }
    };
    missing.into_iter().map(reason).collect()
}

/// What is not the same in two arms, the first of which is taken for what is compared. A protocol brings its own
/// prompt and its referee, so these say nothing beside it where the other side has none.
fn varied(a: &Arm, b: &Arm) -> Vec<(&'static str, String, String)> {
    let or_none = |name: &Option<String>| name.as_deref().unwrap_or("none").to_owned();
    let model = |arm: &Arm| format!("{}/{}", arm.provider, arm.model);
    let mut rows = vec![("the protocol", or_none(&a.protocol), or_none(&b.protocol))];
    if a.protocol.is_some() == b.protocol.is_some() {
        rows.push(("the prompt", a.prompt.clone(), b.prompt.clone()));
        rows.push(("the referee", or_none(&a.referee), or_none(&b.referee)));
    }
    rows.push(("the model", model(a), model(b)));
    rows.retain(|(_, a, b)| a != b);
    rows
}

/// The executables that ended a side's sessions.
fn builds(side: Side<'_>) -> impl Iterator<Item = &str> {
    let last = &side.manifest.made_with.binary;
    side.manifest.of_arm(side.arm).map(move |(_, done)| done.binary.as_ref().unwrap_or(last).short())
}

/// What else differs between the sides.
fn cautions(a: Side<'_>, b: Side<'_>) -> Vec<String> {
    let mut cautions = Vec::new();
    let (with_a, with_b) = (&a.manifest.made_with, &b.manifest.made_with);
    let mut differ = |what: &str, a: &str, b: &str| {
        if a != b {
            cautions.push(format!("{what} differs: {a} and {b}"));
        }
    };
    differ("darktable", &with_a.darktable, &with_b.darktable);
    differ("the program", &with_a.chemigram, &with_b.chemigram);
    differ("the engine", &with_a.engine.to_string(), &with_b.engine.to_string());
    differ("the vocabulary", with_a.vocabulary.short(), with_b.vocabulary.short());
    differ("the tools", with_a.tools.short(), with_b.tools.short());
    let mut varied = varied(a.arm, b.arm).into_iter();
    if let Some((subject, ..)) = varied.next() {
        for (what, of_a, of_b) in varied {
            differ(&format!("besides {subject}, {what}"), &of_a, &of_b);
        }
    }
    let builds: BTreeSet<&str> = [a, b].into_iter().flat_map(builds).collect();
    if builds.len() > 1 {
        let builds: Vec<&str> = builds.into_iter().collect();
        cautions.push(format!("more than one build of the program was used: {}", builds.join(", ")));
    }
    let served = |side: Side<'_>| -> BTreeSet<String> {
        side.manifest.of_arm(side.arm).flat_map(|(_, done)| done.models_served.clone()).collect()
    };
    for (name, side) in [("A", a), ("B", b)] {
        let served = served(side);
        if served.len() > 1 {
            let served: Vec<String> = served.into_iter().collect();
            cautions.push(format!("{name} was answered by more than one model: {}", served.join(", ")));
        }
        let failed =
            side.manifest.cells.iter().filter(|c| c.arm() == *side.arm && c.done().is_none()).count();
        if failed > 0 {
            cautions.push(format!(
                "{failed} sessions of {name} are missing; they are not counted as bad results"
            ));
        }
    }
    cautions
}

impl Comparison {
    /// Whether the gate lets B pass: what must hold holds, and the deciding metric says nothing against it.
    pub fn passes(&self, gate: Gate) -> bool {
        let verdict = self.primary.verdict;
        self.broken.is_empty()
            && match gate {
                Gate::NoRegression => verdict != Conclusion::Regressed,
                Gate::Improvement => verdict == Conclusion::Improved,
            }
    }

    /// The conclusion, in a sentence.
    pub fn sentence(&self) -> String {
        let Compared { metric, paired, verdict, .. } = &self.primary;
        let n = paired.n;
        let interval = paired
            .interval
            .map(|[low, high]| format!(", 95 % interval {low:+.3} to {high:+.3}"))
            .unwrap_or_default();
        let figures = format!(
            "{metric} {:+.3} over {n} scenarios{interval}, {}",
            paired.mean,
            p_value(self.primary.p_adjusted)
        );
        let seen = paired.detectable.map(|d| format!("{d:.3}"));
        match verdict {
            Conclusion::Improved => format!("B is better: {figures}"),
            Conclusion::Regressed => format!("B is worse: {figures}"),
            Conclusion::Equivalent => {
                format!("B is as good as A, within {:.3}: {figures}", self.margin)
            }
            Conclusion::Inconclusive => match seen {
                None => format!("inconclusive: {n} scenarios, at least {FEWEST} are needed ({figures})"),
                Some(seen) => format!(
                    "inconclusive: {figures}; a true difference of {seen} would be detected four times out of five"
                ),
            },
        }
    }

    /// The comparison as a JUnit file: what must hold, and the deciding metric.
    pub fn junit(&self, gate: Gate) -> String {
        let hard: Vec<&Metric> = METRICS.iter().filter(|m| m.hard).collect();
        let verdict = self.primary.verdict;
        let metric_fails = match gate {
            Gate::NoRegression => verdict == Conclusion::Regressed,
            Gate::Improvement => verdict != Conclusion::Improved,
        };
        let side = |name: &str, (run, arm): &(String, Arm)| {
            let arm = xml(&arm.to_string());
            format!("      <property name=\"{name}\" value=\"{} {arm}\"/>\n", xml(run))
        };
        let mut cases = String::new();
        let mut failures = 0;
        let mut case = |name: &str, failure: Option<String>| {
            let _ = write!(cases, "    <testcase classname=\"{}\" name=\"{}\"", xml(&self.golden), xml(name));
            match failure {
                None => cases.push_str("/>\n"),
                Some(text) => {
                    failures += 1;
                    let _ = writeln!(cases, "><failure message=\"{}\"/></testcase>", xml(&text));
                }
            }
        };
        for metric in &hard {
            let broken: Vec<String> = self
                .broken
                .iter()
                .filter(|broken| broken.metric == metric.name)
                .map(|broken| format!("{}: {}", broken.scenario, broken.why))
                .collect();
            case(metric.name, (!broken.is_empty()).then(|| broken.join("; ")));
        }
        case(self.primary.metric, metric_fails.then(|| self.sentence()));
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"chemigram eval compare\" tests=\"{}\" failures=\"{failures}\">\n    <properties>\n{}{}    </properties>\n{cases}  </testsuite>\n</testsuites>\n",
            hard.len() + 1,
            side("A", &self.a),
            side("B", &self.b),
        )
    }
}

/// Text inside an attribute of XML.
fn xml(text: &str) -> String {
    let clean: String = text.chars().filter(|c| !c.is_control()).collect();
    clean.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests;
