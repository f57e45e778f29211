//! Mechanical checks: what is asked of numbers, as data, and whether measured numbers answer it.
//!
//! Nothing here looks at a picture. Whoever renders and measures fills in a [`Measured`]; a number that is
//! missing, or is none, never passes a check.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schema::{By, CheckFields, Op, Reference, Weight};
use base::hint::did_you_mean;
use darktable::render::Picture;
use pixels::metrics::check::Verdict;
use pixels::metrics::difference::Difference;
use pixels::metrics::stats::ImageStats;

/// Below this mean ΔE2000 against the step before, nothing was done.
const NOOP: f64 = 0.05;
/// A picture whose 99th percentile of L* is below this is black.
const BLACK: f64 = 2.0;
/// The default band of the mean ΔE2000: below it nobody sees the edit, above it is another photograph.
const BAND: (f64, f64) = (0.3, 12.0);
/// The default growth of clipped pixels, in percentage points.
const CLIPPING: f64 = 0.5;

/// The checks that have a name, each with what it asks.
pub const NAMED: &[(&str, &str)] = &[
    ("render_ok", "darktable made a picture of the right size"),
    ("no_drift", "darktable read every module of the edit as it was meant"),
    ("not_noop", "the picture is not that of the step before (mean ΔE of at least 0.05)"),
    ("not_black", "the picture is not black (99th percentile of L* of at least 2)"),
    ("delta_e_band", "the mean ΔE against `vs` (baseline) is from `min` (0.3) to `max` (12)"),
    ("no_new_clipping", "clipped highlights and shadows grew by at most `max` (0.5) percentage points"),
    ("vector_direction", "the vector's direction moved as asked, or nothing measurable was asked"),
];

/// Metrics of the way between two pictures.
const DISTANCES: [&str; 4] = ["delta_e_mean", "delta_e_p95", "delta_e_max", "changed_pct"];

/// Numbers by the name of their metric.
pub type Numbers = BTreeMap<String, f64>;

/// The metrics that can be asked for: every figure of [`ImageStats`], as `lightness.p50`, and the distances.
pub static METRICS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let nothing = Picture { width: 0, height: 0, rgb: Vec::new() };
    let stats = ImageStats::of(&nothing);
    numbers(&stats, None).into_keys().chain(DISTANCES.map(str::to_owned)).collect()
});

/// The numbers of a picture, and of its distance from another, as the checks name them.
pub fn numbers(stats: &ImageStats, distance: Option<&Difference>) -> Numbers {
    let mut found = Numbers::new();
    if let Ok(value) = serde_json::to_value(stats) {
        flatten(&value, "", &mut found);
    }
    // A size is no metric.
    found.remove("width");
    found.remove("height");
    if let Some(distance) = distance {
        let values = [distance.mean, distance.p95, distance.max, distance.changed_pct];
        found.extend(DISTANCES.iter().map(|name| (*name).to_owned()).zip(values));
    }
    found
}

fn flatten(value: &Value, path: &str, found: &mut Numbers) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                flatten(value, &super::source::join(path, key), found);
            }
        }
        Value::Number(number) => {
            found.extend(number.as_f64().map(|n| (path.to_owned(), n)));
        }
        _ => {}
    }
}

/// What was measured of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Whether there is a picture, and of the right size.
    pub rendered: bool,
    /// Whether darktable said that it read a module otherwise than it was written, or not at all.
    #[serde(default)]
    pub drift: bool,
    /// Whether the pixels are those of the attempt's beginning.
    #[serde(default)]
    pub same_as_parent: bool,
    /// Whether the vector's direction moved; `None` when it was not looked at.
    pub direction: Option<Verdict>,
    /// The picture's numbers.
    #[serde(default)]
    pub now: Numbers,
    /// Those of the baseline, and the distance from it.
    pub baseline: Option<Numbers>,
    /// Those of the state that the attempt began from, and the distance from it.
    pub parent: Option<Numbers>,
}

impl Measured {
    /// The numbers of the other picture, with the distance from it.
    fn other(&self, reference: Reference) -> Option<&Numbers> {
        match reference {
            Reference::Baseline => self.baseline.as_ref(),
            Reference::Parent => self.parent.as_ref(),
        }
    }

    /// A metric, held against another picture where one is named. Distances are found beside that picture's
    /// own numbers.
    pub fn metric(&self, name: &str, vs: Option<Reference>, by: By) -> Option<f64> {
        let number = if DISTANCES.contains(&name) {
            *self.other(vs.unwrap_or_default())?.get(name)?
        } else {
            let now = *self.now.get(name)?;
            match (vs, by) {
                (None, _) => now,
                (Some(vs), By::Delta) => now - self.other(vs)?.get(name)?,
                (Some(vs), By::Ratio) => now / self.other(vs)?.get(name)?,
            }
        };
        number.is_finite().then_some(number)
    }
}

/// What a check asks.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// There is a picture.
    RenderOk,
    /// Every module was read as it was meant.
    NoDrift,
    /// Something was done.
    NotNoop,
    /// Something is to be seen.
    NotBlack,
    /// The edit's size is in a band.
    DeltaEBand {
        /// Against what.
        vs: Reference,
        /// From.
        min: f64,
        /// To.
        max: f64,
    },
    /// Not more than this is newly clipped.
    NoNewClipping {
        /// Percentage points.
        max: f64,
    },
    /// The direction moved as asked.
    VectorDirection,
    /// A metric compares so with a number.
    Metric {
        /// Its name.
        metric: String,
        /// Against what.
        vs: Option<Reference>,
        /// How.
        by: By,
        /// The comparison.
        op: Op,
        /// The number.
        value: f64,
    },
}

/// One check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// What is asked.
    pub rule: Rule,
    /// Whether a miss fails the attempt.
    pub severity: Weight,
}

/// How a check came out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    /// Whether it was met.
    pub met: bool,
    /// Whether a miss fails the attempt.
    pub severity: Weight,
    /// What was asked and what was found, in a sentence.
    pub message: String,
}

/// How all checks of an attempt came out.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Each.
    pub checks: Vec<Checked>,
}

impl Report {
    /// Holds measured numbers against checks.
    pub fn of(checks: &[Check], measured: &Measured) -> Self {
        Self { checks: checks.iter().map(|check| check.held_against(measured)).collect() }
    }

    /// Whether no check fails the attempt.
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.met || check.severity == Weight::Warn)
    }

    /// What was missed, one sentence a check.
    pub fn misses(&self) -> String {
        let missed = self.checks.iter().filter(|check| !check.met);
        missed.map(|check| check.message.as_str()).collect::<Vec<_>>().join("; ")
    }
}

impl Check {
    /// Reads a check as it is written; an error says what is wrong with it and whether a name is unknown.
    pub(super) fn read(fields: &CheckFields) -> Result<Self, Wrong> {
        let rule = match (&fields.check, &fields.metric) {
            (Some(name), None) => named(name, fields)?,
            (None, Some(metric)) => any_metric(metric, fields)?,
            _ => return Err(Wrong::Form("a check has either `check` or `metric`".into())),
        };
        Ok(Self { rule, severity: fields.severity })
    }

    fn held_against(&self, m: &Measured) -> Checked {
        let distance = |vs: Reference| m.metric("delta_e_mean", Some(vs), By::Delta);
        let (met, message) = match &self.rule {
            Rule::RenderOk => (m.rendered, "there must be a picture of the right size".to_owned()),
            Rule::NoDrift => (!m.drift, "darktable must read every module as it was meant".to_owned()),
            Rule::NotNoop => {
                let moved = distance(Reference::Parent);
                let met = !m.same_as_parent && moved.is_some_and(|d| d >= NOOP);
                (
                    met,
                    format!(
                        "something must have changed: mean ΔE against the step before is {}",
                        told(moved)
                    ),
                )
            }
            Rule::NotBlack => {
                let bright = m.metric("lightness.p99", None, By::Delta);
                let met = bright.is_some_and(|l| l >= BLACK);
                (met, format!("the picture must not be black: its brightest L* is {}", told(bright)))
            }
            Rule::DeltaEBand { vs, min, max } => {
                let moved = distance(*vs);
                let met = moved.is_some_and(|d| (*min..=*max).contains(&d));
                let against = name_of(*vs);
                (met, format!("mean ΔE against the {against} must be {min} to {max} and is {}", told(moved)))
            }
            Rule::NoNewClipping { max } => {
                let grown = |name| m.metric(name, Some(Reference::Baseline), By::Delta);
                let (high, low) = (grown("clip_high_pct"), grown("clip_low_pct"));
                let met = [high, low].iter().all(|g| g.is_some_and(|g| g <= *max));
                let (high, low) = (told(high), told(low));
                let text = "percentage points of the picture may be newly clipped";
                (met, format!("at most {max} {text}: highlights {high}, shadows {low}"))
            }
            Rule::VectorDirection => {
                let met = matches!(m.direction, Some(Verdict::Met | Verdict::NotApplicable));
                let found = if m.direction.is_none() { "not measured" } else { "it did not" };
                (
                    met,
                    format!(
                        "the vector's direction must have moved as asked: {}",
                        if met { "it did" } else { found }
                    ),
                )
            }
            Rule::Metric { metric, vs, by, op, value } => {
                let found = m.metric(metric, *vs, *by);
                let met = found.is_some_and(|found| op.holds(found, *value));
                let against = match (vs, by) {
                    (None, _) => String::new(),
                    (Some(vs), By::Delta) => format!(" against the {}", name_of(*vs)),
                    (Some(vs), By::Ratio) => format!(" times the {}'s", name_of(*vs)),
                };
                (met, format!("{metric}{against} must be {} {value} and is {}", op.as_str(), told(found)))
            }
        };
        Checked { met, severity: self.severity, message }
    }
}

/// Why a check cannot be read.
pub(super) enum Wrong {
    /// A name that is not known.
    Name(String),
    /// Its fields.
    Form(String),
}

fn named(name: &str, fields: &CheckFields) -> Result<Rule, Wrong> {
    let (min, max) = (fields.min, fields.max);
    let refuse = |given: bool, field: &str| match given {
        true => Err(Wrong::Form(format!("the check `{name}` takes no `{field}`"))),
        false => Ok(()),
    };
    refuse(fields.op.is_some(), "op")?;
    refuse(fields.value.is_some(), "value")?;
    refuse(fields.by.is_some(), "by")?;
    let banded = name == "delta_e_band";
    refuse(fields.vs.is_some() && !banded, "vs")?;
    refuse(min.is_some() && !banded, "min")?;
    refuse(max.is_some() && !banded && name != "no_new_clipping", "max")?;
    Ok(match name {
        "render_ok" => Rule::RenderOk,
        "no_drift" => Rule::NoDrift,
        "not_noop" => Rule::NotNoop,
        "not_black" => Rule::NotBlack,
        "vector_direction" => Rule::VectorDirection,
        "no_new_clipping" => Rule::NoNewClipping { max: max.unwrap_or(CLIPPING) },
        "delta_e_band" => {
            let (min, max) = (min.unwrap_or(BAND.0), max.unwrap_or(BAND.1));
            if min > max {
                return Err(Wrong::Form(format!("the band from {min} to {max} is empty")));
            }
            Rule::DeltaEBand { vs: fields.vs.unwrap_or_default(), min, max }
        }
        _ => {
            let hint = did_you_mean(name, NAMED.iter().map(|(name, _)| *name));
            return Err(Wrong::Name(format!("there is no check `{name}`{hint}")));
        }
    })
}

fn any_metric(metric: &str, fields: &CheckFields) -> Result<Rule, Wrong> {
    known_metric(metric).map_err(Wrong::Name)?;
    let (Some(op), Some(value)) = (fields.op, fields.value) else {
        return Err(Wrong::Form("a check of a metric needs `op` and `value`".into()));
    };
    if fields.min.is_some() || fields.max.is_some() {
        return Err(Wrong::Form("a check of a metric takes `op` and `value`, not `min` and `max`".into()));
    }
    let distance = DISTANCES.contains(&metric);
    if fields.by.is_some() && (fields.vs.is_none() || distance) {
        let why = if distance { "is a distance already" } else { "needs `vs` with it" };
        return Err(Wrong::Form(format!("`by` does not go with this: `{metric}` {why}")));
    }
    let vs = if distance { Some(fields.vs.unwrap_or_default()) } else { fields.vs };
    Ok(Rule::Metric { metric: metric.to_owned(), vs, by: fields.by.unwrap_or_default(), op, value })
}

/// Whether a metric exists; else what to say.
pub(super) fn known_metric(name: &str) -> Result<(), String> {
    if METRICS.iter().any(|known| known == name) {
        return Ok(());
    }
    Err(format!("there is no metric `{name}`{}", did_you_mean(name, METRICS.iter().map(String::as_str))))
}

fn name_of(reference: Reference) -> &'static str {
    match reference {
        Reference::Baseline => "baseline",
        Reference::Parent => "step before",
    }
}

fn told(number: Option<f64>) -> String {
    number.map_or_else(|| "not known".to_owned(), |n| format!("{:.2}", n + 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str) -> Check {
        let spec: crate::protocol::schema::CheckSpec = serde_json::from_str(json).unwrap();
        Check::read(&spec.0).ok().unwrap()
    }

    fn numbers(pairs: &[(&str, f64)]) -> Numbers {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    /// An edit that is well: brighter, ΔE 3 from the baseline and 1 from the step before.
    fn well() -> Measured {
        Measured {
            rendered: true,
            drift: false,
            same_as_parent: false,
            direction: Some(Verdict::Met),
            now: numbers(&[
                ("lightness.p99", 95.0),
                ("lightness.p50", 60.0),
                ("clip_high_pct", 0.4),
                ("clip_low_pct", 0.0),
            ]),
            baseline: Some(numbers(&[
                ("lightness.p50", 50.0),
                ("clip_high_pct", 0.1),
                ("clip_low_pct", 0.0),
                ("delta_e_mean", 3.0),
            ])),
            parent: Some(numbers(&[("lightness.p50", 58.0), ("delta_e_mean", 1.0)])),
        }
    }

    #[test]
    fn every_named_check_can_pass_and_can_fail() {
        type Spoil = fn(&mut Measured);
        let spoils: &[(&str, Spoil)] = &[
            ("render_ok", |m| m.rendered = false),
            ("no_drift", |m| m.drift = true),
            ("not_noop", |m| m.same_as_parent = true),
            ("not_noop", |m| m.parent = Some(numbers(&[("delta_e_mean", 0.04)]))),
            ("not_noop", |m| m.parent = None),
            ("not_black", |m| m.now.extend(numbers(&[("lightness.p99", 1.0)]))),
            ("not_black", |m| m.now.clear()),
            ("delta_e_band", |m| m.baseline = Some(numbers(&[("delta_e_mean", 21.0)]))),
            ("delta_e_band", |m| m.baseline = Some(numbers(&[("delta_e_mean", 0.1)]))),
            ("delta_e_band", |m| m.baseline = Some(numbers(&[("delta_e_mean", f64::NAN)]))),
            ("no_new_clipping", |m| m.now.extend(numbers(&[("clip_high_pct", 3.0)]))),
            ("no_new_clipping", |m| m.now.extend(numbers(&[("clip_low_pct", 3.0)]))),
            ("vector_direction", |m| m.direction = Some(Verdict::Missed)),
            ("vector_direction", |m| m.direction = None),
        ];
        for (name, spoil) in spoils {
            let checks = [check(&format!("\"{name}\""))];
            assert!(Report::of(&checks, &well()).passed(), "{name}");
            let mut spoilt = well();
            spoil(&mut spoilt);
            let report = Report::of(&checks, &spoilt);
            assert!(!report.passed() && !report.misses().is_empty(), "{name}: {report:?}");
        }
        for (name, _) in NAMED {
            assert!(spoils.iter().any(|(spoilt, _)| spoilt == name), "{name} is not tried");
        }
    }

    #[test]
    fn any_metric_compares_with_a_number_the_baseline_or_the_step_before() {
        let cases = [
            (r#"{"metric": "lightness.p50", "op": ">=", "value": 60}"#, true),
            (r#"{"metric": "lightness.p50", "vs": "baseline", "op": "==", "value": 10}"#, true),
            (r#"{"metric": "lightness.p50", "vs": "parent", "op": ">", "value": 2}"#, false),
            (
                r#"{"metric": "lightness.p50", "vs": "baseline", "by": "ratio", "op": "<=", "value": 1.2}"#,
                true,
            ),
            (r#"{"metric": "delta_e_mean", "op": "<", "value": 3}"#, false),
            (r#"{"metric": "delta_e_mean", "vs": "parent", "op": "<", "value": 3}"#, true),
            (r#"{"metric": "sharpness", "op": "!=", "value": 0}"#, false),
        ];
        for (json, met) in cases {
            let report = Report::of(&[check(json)], &well());
            assert_eq!(report.passed(), met, "{json}: {report:?}");
        }
        let warned = check(r#"{"check": "delta_e_band", "max": 2, "severity": "warn"}"#);
        let report = Report::of(&[warned], &well());
        assert!(report.passed() && report.misses().contains("0.3 to 2"), "{report:?}");
    }

    #[test]
    fn metrics_are_those_of_a_measured_picture() {
        for name in ["lightness.p50", "hues.reds.share_pct", "clip_high_pct", "delta_e_mean"] {
            assert!(known_metric(name).is_ok(), "{name}");
        }
        assert!(METRICS.len() > 30, "{METRICS:?}");
        assert!(known_metric("lightnes.p50").unwrap_err().contains("did you mean `lightness.p50`"));
    }
}
