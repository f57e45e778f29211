//! What a session has spent and has under way.
//!
//! The ledger works in three steps: before an effect its worst case is *reserved*, the effect is
//! *dispatched*, and afterwards the reservation is *settled* to what was really used. Nothing is admitted
//! unless settled + reserved + wanted fits under every cap, so a cap cannot be passed by construction.
//! The ledger holds no clock: elapsed time comes in with each question.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Budget, Cap, Exhausted, usd};

/// Amounts of everything that is counted but time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
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
        self.with(less, u64::saturating_sub)
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    fn with(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            iterations: combine(self.iterations, other.iterations),
            branches: combine(self.branches, other.branches),
            renders: combine(self.renders, other.renders),
            model_calls: combine(self.model_calls, other.model_calls),
            tokens: combine(self.tokens, other.tokens),
            cost_micro_usd: combine(self.cost_micro_usd, other.cost_micro_usd),
        }
    }

    /// The amount that a cap limits.
    pub(super) fn of(&self, cap: Cap) -> u64 {
        match cap {
            Cap::Iterations => self.iterations,
            Cap::Branches => self.branches,
            Cap::Tokens => self.tokens,
            Cap::Cost => self.cost_micro_usd,
            Cap::Renders => self.renders,
            Cap::ModelCalls => self.model_calls,
            Cap::Time | Cap::BadCalls | Cap::Loop => 0,
        }
    }
}

/// The caps on amounts, in the order in which they are asked.
const COUNTED: [Cap; 6] =
    [Cap::Iterations, Cap::Branches, Cap::Tokens, Cap::Cost, Cap::Renders, Cap::ModelCalls];

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

    fn of(&self, cap: Cap) -> u64 {
        match cap {
            Cap::Tokens => self.tokens,
            Cap::Cost => self.cost_micro_usd,
            Cap::Renders => self.renders,
            Cap::ModelCalls => self.model_calls,
            _ => 0,
        }
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

    /// What is left of each cap at session time `elapsed`, by its name.
    pub fn remaining(&self, elapsed: Duration) -> BTreeMap<&'static str, u64> {
        let (budget, spent) = (self.budget(), self.settled());
        let rows = [
            ("time_seconds", Some(budget.time_seconds), elapsed.as_secs()),
            ("iterations", Some(budget.max_iterations), spent.iterations),
            ("branches", Some(budget.max_branches), spent.branches),
            ("tokens", budget.max_tokens, spent.tokens),
            ("cost_micro_usd", budget.max_cost_micro_usd, spent.cost_micro_usd),
            ("renders", budget.max_renders, spent.renders),
        ];
        let left =
            |(name, limit, used): (&'static str, Option<u64>, u64)| Some((name, limit?.saturating_sub(used)));
        rows.into_iter().filter_map(left).collect()
    }

    /// What may still be reserved; `u64::MAX` of what has no cap. The reserve is not taken off.
    pub fn left(&self) -> Amounts {
        let spent = self.settled.plus(self.reserved());
        let left = |limit: u64, spent| if limit == u64::MAX { limit } else { limit.saturating_sub(spent) };
        self.budget.most().with(spent, left)
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
        for cap in COUNTED {
            let Some(limit) = self.budget.limit(cap) else { continue };
            let (used, wanted) = (used.of(cap), want.of(cap));
            let reserved = open.of(cap).saturating_add(keep.of(cap));
            let passes = used.saturating_add(reserved).saturating_add(wanted) > limit;
            // A call whose bound is nothing may cost something all the same.
            let spent =
                want.model_calls > 0 && matches!(cap, Cap::Tokens | Cap::Cost) && used >= limit.max(1);
            if wanted > 0 && passes || spent {
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

    /// Tokens, micro-dollars or whatever `cap` limits that an effect may still use; `None` without a limit.
    pub fn left_of(&self, cap: Cap) -> Option<u64> {
        let gone = self.settled.plus(self.reserved()).of(cap).saturating_add(self.kept().of(cap));
        self.budget.limit(cap).map(|limit| limit.saturating_sub(gone))
    }

    /// Reserves what an effect, or a job of a batch, may use: the one that is known by this number.
    pub fn reserve(&mut self, seq: u64, amounts: Amounts) {
        self.open.insert(seq, amounts);
    }

    /// Takes a reservation back, and counts what was used instead; without one it does nothing.
    pub fn settle(&mut self, seq: u64, amounts: Amounts) {
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
        let time = 1.0 - elapsed.as_secs_f64() / self.budget.time().as_secs_f64().max(1.0);
        let caps = [Cap::Iterations, Cap::Tokens, Cap::Cost, Cap::Renders];
        let limits = caps.iter().filter_map(|cap| Some((*cap, self.budget.limit(*cap)?)));
        let left = limits.fold(time, |left, (cap, limit)| left.min(share(spent.of(cap), limit)));
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
