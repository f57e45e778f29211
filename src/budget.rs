//! What a session may spend: its caps, and what is said when one of them is reached.

mod ledger;
mod told;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use base::error::{Coded, ErrorCode, Fault};
pub use ledger::{Amounts, Ledger, Reserve, Stage};
pub use told::{reminder, without_clock};

/// The caps of one session. The first three are always given; the lowest-firing cap wins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Budget {
    /// Wall time, suspend included.
    pub time_seconds: u64,
    /// Dispatched tool calls (the free ones not counted).
    pub max_iterations: u64,
    /// Branches made.
    pub max_branches: u64,
    /// Input and output tokens together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Money, in millionths of a US dollar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_micro_usd: Option<u64>,
    /// Pictures rendered (cache hits are not renders).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_renders: Option<u64>,
    /// Calls of the model, retries included, where fewer than the guard rail allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_model_calls: Option<u64>,
}

/// A budget that cannot be read, or lacks one of its three caps.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// A part is not `name=value` or a preset.
    #[error("`{0}` is not part of a budget: give a preset (lite, standard, overnight) or name=value")]
    Part(String),
    /// An unknown cap.
    #[error("`{0}` is not a limit: the limits are time, iterations, branches, tokens, cost, renders")]
    Cap(String),
    /// A value that is no positive amount of its cap.
    #[error("`{value}` is not a valid {cap}: write it like {example}")]
    Value {
        /// The cap.
        cap: &'static str,
        /// As given.
        value: String,
        /// A legal example.
        example: &'static str,
    },
    /// A required cap is missing.
    #[error("the budget lacks {}: time, iterations and branches are all required", .0.join(", "))]
    Missing(Vec<&'static str>),
}

impl Coded for BudgetError {
    fn code(&self) -> ErrorCode {
        ErrorCode::InvalidInput
    }

    fn remedy(&self) -> Option<String> {
        Some("for example `--budget time=30m,iterations=50,branches=3` or `--budget standard`".into())
    }
}

impl Budget {
    /// Reads `time=30m,iterations=50,branches=3[,tokens=400k][,cost=2.00][,renders=80]`; the presets `lite`,
    /// `standard` and `overnight` fill the first three and may be overridden by later parts. The names of the fields
    /// (`time_seconds`, `max_iterations`, …) and a JSON object of either names are the same.
    pub fn parse(spec: &str) -> Result<Self, BudgetError> {
        let (mut time, mut iterations, mut branches) = (None, None, None);
        let (mut tokens, mut cost, mut renders) = (None, None, None);
        let spec = &short(spec)?;
        for part in spec.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let Some((name, value)) = part.split_once('=') else {
                let (t, i, b) = match part {
                    "lite" => (5 * 60, 20, 1),
                    "standard" => (30 * 60, 50, 3),
                    "overnight" => (30 * 60, 200, 5),
                    _ => return Err(BudgetError::Part(part.into())),
                };
                (time, iterations, branches) = (Some(t), Some(i), Some(b));
                continue;
            };
            let value = value.trim();
            match name.trim() {
                "time" => time = Some(seconds(value).ok_or_else(|| bad("time", value, "30m, 90s or 1h"))?),
                "iterations" => {
                    iterations = Some(count(value).ok_or_else(|| bad("iterations", value, "50"))?)
                }
                "branches" => branches = Some(count(value).ok_or_else(|| bad("branches", value, "3"))?),
                "tokens" => tokens = Some(count(value).ok_or_else(|| bad("tokens", value, "400k"))?),
                "cost" => {
                    cost = Some(micro_usd(value).ok_or_else(|| bad("cost", value, "2.00 (US dollars)"))?)
                }
                "renders" => renders = Some(count(value).ok_or_else(|| bad("renders", value, "80"))?),
                other => return Err(BudgetError::Cap(other.into())),
            }
        }
        match (time, iterations, branches) {
            (Some(time_seconds), Some(max_iterations), Some(max_branches)) => Ok(Self {
                time_seconds,
                max_iterations,
                max_branches,
                max_tokens: tokens,
                max_cost_micro_usd: cost,
                max_renders: renders,
                max_model_calls: None,
            }),
            _ => {
                let named = [("time", time), ("iterations", iterations), ("branches", branches)];
                Err(BudgetError::Missing(named.iter().filter(|n| n.1.is_none()).map(|n| n.0).collect()))
            }
        }
    }

    /// The most model calls: the cap where one is given, else the guard rail.
    pub fn max_model_calls(&self) -> u64 {
        self.max_model_calls.unwrap_or_else(|| self.max_iterations.saturating_add(20))
    }

    /// The whole time.
    pub fn time(&self) -> Duration {
        Duration::from_secs(self.time_seconds)
    }

    /// What is left after this was spent, or the first cap of which nothing is left.
    pub fn after(&self, spent: &Amounts, took: Duration) -> Result<Self, Exhausted> {
        // Rounded up, so that both together never take longer.
        let seconds = u64::try_from(took.as_millis().div_ceil(1000)).unwrap_or(u64::MAX);
        let rest = |cap: Cap, limit: u64, used: u64| match limit.saturating_sub(used) {
            0 => Err(Exhausted { cap, used, reserved: 0, limit, wanted: 1 }),
            rest => Ok(rest),
        };
        let optional =
            |cap: Cap, limit: Option<u64>, used: u64| limit.map(|limit| rest(cap, limit, used)).transpose();
        Ok(Self {
            time_seconds: rest(Cap::Time, self.time_seconds * 1000, seconds.saturating_mul(1000))? / 1000,
            max_iterations: rest(Cap::Iterations, self.max_iterations, spent.iterations)?,
            max_branches: rest(Cap::Branches, self.max_branches, spent.branches)?,
            max_tokens: optional(Cap::Tokens, self.max_tokens, spent.tokens)?,
            max_cost_micro_usd: optional(Cap::Cost, self.max_cost_micro_usd, spent.cost_micro_usd)?,
            max_renders: optional(Cap::Renders, self.max_renders, spent.renders)?,
            max_model_calls: Some(rest(Cap::ModelCalls, self.max_model_calls(), spent.model_calls)?),
        })
    }

    /// The most that may be spent; `u64::MAX` of what has no cap.
    pub fn most(&self) -> Amounts {
        Amounts {
            iterations: self.max_iterations,
            branches: self.max_branches,
            renders: self.max_renders.unwrap_or(u64::MAX),
            model_calls: self.max_model_calls(),
            tokens: self.max_tokens.unwrap_or(u64::MAX),
            cost_micro_usd: self.max_cost_micro_usd.unwrap_or(u64::MAX),
        }
    }

    /// The limit of a cap on amounts; `None` without one.
    fn limit(&self, cap: Cap) -> Option<u64> {
        Some(self.most().of(cap)).filter(|limit| *limit != u64::MAX)
    }

    /// The time kept for wrapping up: 60 s or 5 %, whichever is less.
    pub fn wrap_up_time(&self) -> Duration {
        Duration::from_secs(60).min(self.time().mul_f64(0.05))
    }
}

/// A budget in its short form: a JSON object becomes `name=value` parts, and the names of fields those of caps.
pub fn short(spec: &str) -> Result<String, BudgetError> {
    let parts: Vec<(String, Option<String>)> = if spec.trim_start().starts_with('{') {
        let object: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(spec).map_err(|_| BudgetError::Part(spec.into()))?;
        let text = |value: serde_json::Value| match value {
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        };
        object.into_iter().map(|(name, value)| (name, Some(text(value)))).collect()
    } else {
        let parts = spec.split(',').map(str::trim).filter(|part| !part.is_empty());
        let part = |part: &str| match part.split_once('=') {
            Some((name, value)) => (name.trim().to_owned(), Some(value.trim().to_owned())),
            None => (part.to_owned(), None),
        };
        parts.map(part).collect()
    };
    let name = |name: &str| match name {
        "time_seconds" => "time".to_owned(),
        "max_cost_usd" => "cost".to_owned(),
        other => other.strip_prefix("max_").unwrap_or(other).to_owned(),
    };
    let parts = parts.into_iter().map(|(named, value)| match value {
        Some(value) => format!("{}={value}", name(&named)),
        None => named,
    });
    Ok(parts.collect::<Vec<_>>().join(","))
}

fn bad(cap: &'static str, value: &str, example: &'static str) -> BudgetError {
    BudgetError::Value { cap, value: value.into(), example }
}

/// A positive whole number, with an optional `k` or `m` for thousands and millions.
fn count(text: &str) -> Option<u64> {
    let thousands = text.strip_suffix(['k', 'K']).map(|digits| (digits, 1_000));
    let millions = text.strip_suffix(['m', 'M']).map(|digits| (digits, 1_000_000));
    let (digits, factor) = thousands.or(millions).unwrap_or((text, 1));
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(factor).filter(|&n| n > 0)
}

/// A duration such as `30m`, `90s`, `1h30m` or plain seconds, from one second to a week.
fn seconds(text: &str) -> Option<u64> {
    let total = match text.parse::<u64>() {
        Ok(seconds) => seconds,
        Err(_) => u64::try_from(text.parse::<jiff::SignedDuration>().ok()?.as_secs()).ok()?,
    };
    (1..=7 * 24 * 3600).contains(&total).then_some(total)
}

/// Dollars with up to six decimals, exactly.
fn micro_usd(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if part.len() > 6 || !part.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let fraction: u64 = if part.is_empty() { 0 } else { format!("{part:0<6}").parse().ok()? };
    whole.checked_mul(1_000_000)?.checked_add(fraction).filter(|&n| n > 0)
}

/// A limit that can end the work.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Cap {
    /// Milliseconds of wall time.
    Time,
    /// Dispatched tool calls.
    Iterations,
    /// Branches.
    Branches,
    /// Tokens.
    Tokens,
    /// Micro-dollars.
    Cost,
    /// Renders.
    Renders,
    /// Model calls, retries included (guard rail).
    ModelCalls,
    /// Bad calls in a row (guard rail).
    BadCalls,
    /// The same call with no change (guard rail).
    Loop,
}

impl Cap {
    /// The cap's name as a person reads it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Iterations => "iterations",
            Self::Branches => "branches",
            Self::Tokens => "tokens",
            Self::Cost => "cost",
            Self::Renders => "renders",
            Self::ModelCalls => "model calls",
            Self::BadCalls => "bad calls in a row",
            Self::Loop => "repeated calls",
        }
    }
}

impl fmt::Display for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A cap that leaves no room for what was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exhausted {
    /// The cap.
    pub cap: Cap,
    /// Settled so far.
    pub used: u64,
    /// Reserved by effects under way, and for the wrap-up.
    pub reserved: u64,
    /// The limit.
    pub limit: u64,
    /// What was wanted on top.
    pub wanted: u64,
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cap, used, reserved, limit, .. } = self;
        match cap {
            Cap::Time => {
                write!(f, "the {cap} cap has fired: {} s of {} s used", used / 1000, limit / 1000)?;
                match self.wanted {
                    0 => Ok(()),
                    wanted => write!(f, ", and the next step takes about {} s", wanted.div_ceil(1000)),
                }
            }
            _ => write!(f, "the {cap} cap has fired: {used} of {limit} used, {reserved} reserved"),
        }
    }
}

impl Exhausted {
    /// `time limit reached: 1800 s of 1800 s used`.
    pub fn words(&self) -> String {
        let Self { cap, used, reserved, limit, .. } = *self;
        let say = |n: u64| match cap {
            Cap::Time => format!("{} s", n / 1000),
            Cap::Cost => format!("{} USD", usd(n)),
            _ => n.to_string(),
        };
        let kept = if reserved > 0 { format!(", {} reserved", say(reserved)) } else { String::new() };
        format!("{cap} limit reached: {} of {} used{kept}", say(used), say(limit))
    }

    /// What to add to the budget for the session to go on: half as much again, or what was wanted.
    pub fn raise(&self) -> String {
        let missing = self.used.saturating_add(self.reserved).saturating_add(self.wanted);
        let more = (self.limit / 2).max(missing.saturating_sub(self.limit)).max(1);
        match self.cap {
            Cap::Time => "time=10m,iterations=20".into(),
            Cap::Iterations | Cap::ModelCalls | Cap::BadCalls | Cap::Loop => "iterations=20".into(),
            Cap::Branches => "branches=1,iterations=20".into(),
            Cap::Tokens => format!("tokens={}k", more.div_ceil(1_000)),
            Cap::Cost => format!("cost={}.{:02}", more.div_ceil(10_000) / 100, more.div_ceil(10_000) % 100),
            Cap::Renders => format!("renders={more}"),
        }
    }
}

impl From<Exhausted> for Fault {
    fn from(e: Exhausted) -> Self {
        Fault::new(ErrorCode::BudgetExhausted, e.to_string())
            .with("cap", e.cap.as_str())
            .with("used", e.used)
            .with("reserved", e.reserved)
            .with("limit", e.limit)
            .fatal()
    }
}

/// Micro-dollars as dollars with four decimals.
pub fn usd(micro: u64) -> String {
    format!("{}.{:04}", micro / 1_000_000, micro % 1_000_000 / 100)
}

#[cfg(test)]
mod tests;
