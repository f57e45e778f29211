//! What a session may spend, and the ledger that says what it has spent.
//!
//! The ledger works in three strokes: before an effect its worst case is *reserved*, the effect is
//! *dispatched*, and afterwards the reservation is *settled* to what was really used. Nothing is admitted
//! unless settled + reserved + wanted fits under every cap, so a cap cannot be passed by construction.
//! The ledger holds no clock: elapsed time comes in with each question.

mod words;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use base::error::{Coded, ErrorCode, Fault};

/// The caps of one session. The first three are always given; the lowest-firing cap wins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// `standard` and `overnight` fill the first three and may be overridden by later parts.
    pub fn parse(spec: &str) -> Result<Self, BudgetError> {
        let (mut time, mut iterations, mut branches) = (None, None, None);
        let (mut tokens, mut cost, mut renders) = (None, None, None);
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

    /// The most calls of the model: the cap where one is given, else the guard rail.
    pub fn max_model_calls(&self) -> u64 {
        self.max_model_calls.unwrap_or_else(|| self.max_iterations.saturating_add(20))
    }

    /// The whole time.
    pub fn time(&self) -> Duration {
        Duration::from_secs(self.time_seconds)
    }

    /// What is left of it once this was spent, or the first cap of which nothing is.
    pub fn after(&self, spent: &Amounts, took: Duration) -> Result<Self, Exhausted> {
        // Begun seconds count, so that both together never take longer.
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

    /// The time kept for wrapping up: 60 s or 5 %, whichever is less.
    pub fn wrap_up_time(&self) -> Duration {
        Duration::from_secs(60).min(self.time().mul_f64(0.05))
    }
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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

/// Amounts of everything that is counted but time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amounts {
    /// Tool calls.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub iterations: u64,
    /// Branches.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub branches: u64,
    /// Renders.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub renders: u64,
    /// Attempts to call the model.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub model_calls: u64,
    /// Tokens.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens: u64,
    /// Micro-dollars.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cost_micro_usd: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the shape serde wants")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Amounts {
    /// What is left of these when `less` is taken off, nothing below zero.
    #[must_use]
    pub fn minus(self, less: Self) -> Self {
        Self {
            iterations: self.iterations.saturating_sub(less.iterations),
            branches: self.branches.saturating_sub(less.branches),
            renders: self.renders.saturating_sub(less.renders),
            model_calls: self.model_calls.saturating_sub(less.model_calls),
            tokens: self.tokens.saturating_sub(less.tokens),
            cost_micro_usd: self.cost_micro_usd.saturating_sub(less.cost_micro_usd),
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            iterations: self.iterations.saturating_add(other.iterations),
            branches: self.branches.saturating_add(other.branches),
            renders: self.renders.saturating_add(other.renders),
            model_calls: self.model_calls.saturating_add(other.model_calls),
            tokens: self.tokens.saturating_add(other.tokens),
            cost_micro_usd: self.cost_micro_usd.saturating_add(other.cost_micro_usd),
        }
    }
}

/// Calls of the model that the wrap-up has of the guard rail: one, with its retries.
const WRAP_UP_CALLS: u64 = 4;

/// The slice of a session that only the wrap-up may use. Its time is [`Budget::wrap_up_time`], or what is said
/// here where that is more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserve {
    /// Tokens of one call.
    pub tokens: u64,
    /// Its price.
    pub cost_micro_usd: u64,
    /// Wall time.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub time_seconds: u64,
    /// Calls of the model.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub model_calls: u64,
    /// Renders.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub renders: u64,
}

impl Reserve {
    /// Whether nothing is kept.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether the session still explores or only closes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Everything is allowed; the reserve is not to be touched.
    #[default]
    Work,
    /// Only judging, proposing and ending; the reserve pays for it.
    WrapUp,
}

/// What a session has spent and has under way.
#[derive(Clone, Debug, PartialEq)]
pub struct Ledger {
    budget: Budget,
    reserve: Reserve,
    closing: Reserve,
    stage: Stage,
    settled: Amounts,
    open: BTreeMap<u64, Amounts>,
    assumed: Amounts,
}

impl Ledger {
    /// An untouched ledger.
    pub fn new(budget: Budget, reserve: Reserve) -> Self {
        let (settled, assumed) = (Amounts::default(), Amounts::default());
        Self {
            budget,
            reserve,
            closing: Reserve::default(),
            stage: Stage::Work,
            settled,
            open: BTreeMap::new(),
            assumed,
        }
    }

    /// The same ledger, with at least this kept for the call that closes the session.
    #[must_use]
    pub fn keeping(mut self, closing: Reserve) -> Self {
        self.keep(closing);
        self
    }

    pub(crate) fn keep(&mut self, closing: Reserve) {
        self.closing = closing;
    }

    /// What the present stage must leave.
    fn kept(&self) -> Reserve {
        match self.stage {
            Stage::Work => Reserve {
                tokens: self.reserve.tokens.max(self.closing.tokens),
                cost_micro_usd: self.reserve.cost_micro_usd.max(self.closing.cost_micro_usd),
                ..self.reserve
            },
            Stage::WrapUp => Reserve::default(),
        }
    }

    /// The caps.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The stage.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// What is settled.
    pub fn settled(&self) -> Amounts {
        self.settled
    }

    /// What is reserved by effects under way.
    pub fn reserved(&self) -> Amounts {
        self.open.values().fold(Amounts::default(), |sum, a| sum.plus(*a))
    }

    /// What was charged in full because a crash left its outcome unknown.
    pub fn assumed(&self) -> Amounts {
        self.assumed
    }

    /// The time kept for wrapping up.
    pub fn wrap_up_time(&self) -> Duration {
        self.budget.wrap_up_time().max(Duration::from_secs(self.reserve.time_seconds))
    }

    /// What may still be reserved; `u64::MAX` of what has no cap. The reserve is not taken off.
    pub fn left(&self) -> Amounts {
        let (spent, budget) = (self.settled.plus(self.reserved()), &self.budget);
        let left = |cap: Option<u64>, spent: u64| match cap {
            None | Some(u64::MAX) => u64::MAX,
            Some(cap) => cap.saturating_sub(spent),
        };
        Amounts {
            iterations: left(Some(budget.max_iterations), spent.iterations),
            branches: left(Some(budget.max_branches), spent.branches),
            renders: left(budget.max_renders, spent.renders),
            model_calls: left(Some(budget.max_model_calls()), spent.model_calls),
            tokens: left(budget.max_tokens, spent.tokens),
            cost_micro_usd: left(budget.max_cost_micro_usd, spent.cost_micro_usd),
        }
    }

    /// When work, as against the wrap-up, must end.
    pub fn work_time(&self) -> Duration {
        self.budget.time().saturating_sub(self.wrap_up_time())
    }

    /// The moment of the present stage's end, on the session's own clock.
    pub fn stage_end(&self) -> Duration {
        match self.stage {
            Stage::Work => self.work_time(),
            Stage::WrapUp => self.budget.time(),
        }
    }

    /// Whether `want` fits at session time `elapsed`; else the cap that fires. In doubt the order is time,
    /// iterations, branches, tokens, cost, renders, model calls.
    pub fn admit(&self, want: &Amounts, elapsed: Duration) -> Result<(), Exhausted> {
        let millis = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        if elapsed >= self.stage_end() {
            let limit = millis(self.budget.time());
            let reserved = limit.saturating_sub(millis(self.stage_end()));
            return Err(Exhausted { cap: Cap::Time, used: millis(elapsed), reserved, limit, wanted: 0 });
        }
        let (used, open) = (self.settled, self.reserved());
        let mut keep = self.kept();
        if self.stage == Stage::Work && self.budget.max_model_calls.is_none() {
            // Of the guard rail, one call with its retries is for the wrap-up.
            keep.model_calls = keep.model_calls.max(WRAP_UP_CALLS);
        }
        let unlimited = u64::MAX;
        let rows = [
            (
                Cap::Iterations,
                used.iterations,
                open.iterations,
                want.iterations,
                self.budget.max_iterations,
                0,
            ),
            (Cap::Branches, used.branches, open.branches, want.branches, self.budget.max_branches, 0),
            (
                Cap::Tokens,
                used.tokens,
                open.tokens,
                want.tokens,
                self.budget.max_tokens.unwrap_or(unlimited),
                keep.tokens,
            ),
            (
                Cap::Cost,
                used.cost_micro_usd,
                open.cost_micro_usd,
                want.cost_micro_usd,
                self.budget.max_cost_micro_usd.unwrap_or(unlimited),
                keep.cost_micro_usd,
            ),
            (
                Cap::Renders,
                used.renders,
                open.renders,
                want.renders,
                self.budget.max_renders.unwrap_or(unlimited),
                keep.renders,
            ),
            (
                Cap::ModelCalls,
                used.model_calls,
                open.model_calls,
                want.model_calls,
                self.budget.max_model_calls(),
                keep.model_calls,
            ),
        ];
        for (cap, used, open, wanted, limit, keep) in rows {
            let reserved = open.saturating_add(keep);
            let passes = used.saturating_add(reserved).saturating_add(wanted) > limit;
            // A call whose bound is nothing may cost something all the same.
            let spent =
                want.model_calls > 0 && matches!(cap, Cap::Tokens | Cap::Cost) && used >= limit.max(1);
            if limit != unlimited && (wanted > 0 && passes || spent) {
                return Err(Exhausted { cap, used, reserved, limit, wanted });
            }
        }
        Ok(())
    }

    /// Whether work that takes `wanted` can end before the present stage does, begun at session time `elapsed`.
    pub fn admit_time(&self, wanted: Duration, elapsed: Duration) -> Result<(), Exhausted> {
        let end = self.stage_end();
        if elapsed.saturating_add(wanted) <= end {
            return Ok(());
        }
        let millis = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        let limit = millis(self.budget.time());
        let (reserved, wanted) = (limit.saturating_sub(millis(end)), millis(wanted));
        Err(Exhausted { cap: Cap::Time, used: millis(elapsed), reserved, limit, wanted })
    }

    /// Tokens that a model call may still use, `None` without a cap.
    pub fn tokens_left(&self) -> Option<u64> {
        let keep = self.kept().tokens;
        let spoken = self.settled.tokens.saturating_add(self.reserved().tokens).saturating_add(keep);
        self.budget.max_tokens.map(|limit| limit.saturating_sub(spoken))
    }

    /// Micro-dollars that a model call may still use, `None` without a cap.
    pub fn cost_left(&self) -> Option<u64> {
        let keep = self.kept().cost_micro_usd;
        let spoken =
            self.settled.cost_micro_usd.saturating_add(self.reserved().cost_micro_usd).saturating_add(keep);
        self.budget.max_cost_micro_usd.map(|limit| limit.saturating_sub(spoken))
    }

    pub(crate) fn reserve(&mut self, seq: u64, amounts: Amounts) {
        self.open.insert(seq, amounts);
    }

    pub(crate) fn settle(&mut self, seq: u64, amounts: Amounts) {
        // A reservation that a resume has already charged in full is not charged again.
        if self.open.remove(&seq).is_some() {
            self.settled = self.settled.plus(amounts);
        }
    }

    pub(crate) fn charge_open(&mut self) {
        for amounts in std::mem::take(&mut self.open).into_values() {
            self.settled = self.settled.plus(amounts);
            self.assumed = self.assumed.plus(amounts);
        }
    }

    pub(crate) fn wrap_up(&mut self) {
        self.stage = Stage::WrapUp;
    }

    /// The session is over; what comes after is work of a new run.
    pub(crate) fn close(&mut self) {
        self.stage = Stage::Work;
    }

    pub(crate) fn raise(&mut self, budget: Budget) {
        self.budget = budget;
        self.stage = Stage::Work;
    }

    /// The share of the budget that is left on its scarcest cap, 0…1.
    pub fn share_left(&self, elapsed: Duration) -> f64 {
        let share = |used: u64, limit: u64| 1.0 - used as f64 / limit.max(1) as f64;
        let spent = self.settled.plus(self.reserved());
        let mut left = 1.0 - elapsed.as_secs_f64() / self.budget.time().as_secs_f64().max(1.0);
        left = left.min(share(spent.iterations, self.budget.max_iterations));
        if let Some(limit) = self.budget.max_tokens {
            left = left.min(share(spent.tokens, limit));
        }
        if let Some(limit) = self.budget.max_cost_micro_usd {
            left = left.min(share(spent.cost_micro_usd, limit));
        }
        left.max(0.0)
    }

    /// One short line for the end of a tool result.
    pub fn line(&self, elapsed: Duration) -> String {
        let spent = self.settled.plus(self.reserved());
        let left = self.budget.time().saturating_sub(elapsed).as_secs();
        let mut line = format!(
            "[budget: {}:{:02} left, {}/{} iterations, {}/{} branches",
            left / 60,
            left % 60,
            spent.iterations,
            self.budget.max_iterations,
            spent.branches,
            self.budget.max_branches
        );
        if let Some(limit) = self.budget.max_tokens {
            line.push_str(&format!(", {}/{limit} tokens", spent.tokens));
        }
        if let Some(limit) = self.budget.max_cost_micro_usd {
            line.push_str(&format!(", {}/{} USD", usd(spent.cost_micro_usd), usd(limit)));
        }
        if let Some(limit) = self.budget.max_renders {
            line.push_str(&format!(", {}/{limit} renders", spent.renders));
        }
        line.push(']');
        line
    }
}

/// Micro-dollars as dollars with four decimals.
pub fn usd(micro: u64) -> String {
    format!("{}.{:04}", micro / 1_000_000, micro % 1_000_000 / 100)
}

#[cfg(test)]
mod tests;
