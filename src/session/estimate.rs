//! What a session will use if it makes all its iterations, told before it starts: an estimate from typical sizes, where
//! [`super::pricing`] has the bounds.

use std::iter::Sum;

use serde::Serialize;

use crate::budget::usd;
use crate::conversation::Usage;
use crate::provider::ModelInfo;
use crate::session::pricing;
use crate::session::start::Plan;

/// Iterations that two replies make.
const ITERATIONS: u64 = 3;
/// Tokens of a reply, thoughts included.
const REPLY: u64 = 300;
/// Tokens that the results of a reply add, without pictures.
const RESULTS: u64 = 250;
/// Tokens of what a new chapter begins with.
const CHAPTER: u64 = 1_500;
/// Bytes of a token.
const BYTES: usize = 4;
/// The longest side, in pixels, of a picture of [`ModelInfo::image_tokens`].
const EDGE: u64 = 1024;
/// The share of the context, in percent, at which a chapter ends.
const FULL: u64 = 70;

/// An estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Estimate {
    /// Replies of the model.
    pub replies: u64,
    /// Tokens that it reads in all of them together.
    pub input: u64,
    /// Of these, tokens that it has read before.
    pub cached: u64,
    /// Tokens of its replies.
    pub output: u64,
    /// What this costs where what was read before comes from a cache; unknown without a price.
    pub cost_micro_usd: Option<u64>,
    /// What it costs where nothing does.
    pub uncached_micro_usd: Option<u64>,
}

impl Estimate {
    /// Of a session as planned, within its caps.
    pub fn of(info: &ModelInfo, plan: &Plan) -> Self {
        let budget = &plan.start.budget;
        let specs: usize =
            plan.tools.iter().map(|t| t.description.len() + t.parameters.to_string().len()).sum();
        let fixed = ((plan.system.len() + specs) / BYTES) as u64;
        let first = fixed + (plan.message.len() / BYTES) as u64;
        let edge = u64::from(plan.start.preview_edge);
        let picture = info.image_tokens.saturating_mul(edge * edge) / (EDGE * EDGE);
        // Of two replies one looks.
        let added = REPLY + RESULTS + if info.vision { picture / 2 } else { 0 };
        let most = budget.max_iterations.saturating_mul(2) / ITERATIONS + budget.max_branches + 2;
        let mut estimate = Self::default();
        let (mut held, mut seen) = (first, 0);
        for _ in 0..most.min(10_000) {
            if info.context.is_some_and(|context| held >= context / 100 * FULL) {
                (held, seen) = (first + CHAPTER, fixed);
            }
            let mut next = estimate;
            next.replies += 1;
            next.input += held;
            next.cached += seen;
            next.output += REPLY;
            next.price(info);
            let over =
                |cap: Option<u64>, used: Option<u64>| cap.zip(used).is_some_and(|(cap, used)| used > cap);
            if over(budget.max_tokens, Some(next.input + next.output))
                || over(budget.max_cost_micro_usd, next.cost_micro_usd)
            {
                break;
            }
            (estimate, seen) = (next, held);
            held += added;
        }
        estimate
    }

    fn price(&mut self, info: &ModelInfo) {
        let (new, output) = (self.input - self.cached, Some(self.output));
        let usage = match info.price.cache_write {
            Some(_) => Usage { input_cache_write: Some(new), ..Usage::default() },
            None => Usage { input_fresh: Some(new), ..Usage::default() },
        };
        let cached = Usage { input_cache_read: Some(self.cached), output, ..usage };
        let all = Usage { input_fresh: Some(self.input), output, ..Usage::default() };
        let cost = |usage| pricing::priced(info, &usage).filter(|_| !info.free).map(|cost| cost.total());
        (self.cost_micro_usd, self.uncached_micro_usd) = (cost(cached), cost(all));
    }

    /// `about 0.2103 USD, 0.6410 without a cache: 36 replies, 412000 tokens, if it makes all iterations`.
    pub fn words(&self, info: &ModelInfo) -> String {
        let Self { replies, input, output, .. } = self;
        let day = info.facts.get("price_as_of").map(|day| format!(" (prices of {day})")).unwrap_or_default();
        let (money, tokens) = (self.money(), input + output);
        format!("{money}{day}: {replies} replies with {tokens} tokens, if it makes all its iterations")
    }

    /// `about 0.2103 USD, 0.6410 without a cache`.
    pub fn money(&self) -> String {
        match (self.cost_micro_usd, self.uncached_micro_usd) {
            (Some(cost), Some(all)) if cost != all => {
                format!("about {} USD, {} without a cache", usd(cost), usd(all))
            }
            (Some(cost), _) => format!("about {} USD", usd(cost)),
            (None, _) => "at an unknown price".to_owned(),
        }
    }
}

/// Several sessions together. What they cost is unknown if it is so of one.
impl Sum for Estimate {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        let both = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
        let nothing = Self { cost_micro_usd: Some(0), uncached_micro_usd: Some(0), ..Self::default() };
        all.fold(nothing, |sum, one| Self {
            replies: sum.replies + one.replies,
            input: sum.input + one.input,
            cached: sum.cached + one.cached,
            output: sum.output + one.output,
            cost_micro_usd: both(sum.cost_micro_usd, one.cost_micro_usd),
            uncached_micro_usd: both(sum.uncached_micro_usd, one.uncached_micro_usd),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Price;
    use crate::session::rig::{Rig, request};

    fn priced(read: Option<u64>) -> ModelInfo {
        let price = Price {
            input: Some(1_000_000),
            output: Some(4_000_000),
            cache_read: read,
            cache_write: read.map(|_| 1_250_000),
        };
        ModelInfo {
            provider: "p".into(),
            model: "m".into(),
            vision: true,
            context: Some(200_000),
            free: false,
            price,
            image_tokens: 1_500,
            facts: Default::default(),
        }
    }

    fn plan(budget: &str) -> Plan {
        let rig = Rig::new();
        crate::session::start::plan(&rig.setup("[[reply]]\ntext = \"Done.\"\n"), &request(budget, &["tone"]))
            .unwrap()
    }

    #[test]
    fn a_cache_makes_a_session_cheaper_and_a_cap_ends_the_estimate() {
        let long = plan("time=1h,iterations=60,branches=2");
        let estimate = Estimate::of(&priced(Some(100_000)), &long);
        assert_eq!(estimate.replies, 44);
        assert!(estimate.cached * 100 / estimate.input >= 90, "{estimate:?}");
        let (cost, uncached) = (estimate.cost_micro_usd.unwrap(), estimate.uncached_micro_usd.unwrap());
        assert_eq!(uncached, estimate.input + 4 * estimate.output);
        let fresh = estimate.input - estimate.cached;
        let expected = estimate.cached / 10 + fresh * 5 / 4 + 4 * estimate.output;
        assert!(cost.abs_diff(expected) <= 2 && cost * 3 < uncached, "{cost} {expected} {uncached}");
        // A model without a price of its own for what was read before.
        let plain = Estimate::of(&priced(None), &long);
        assert_eq!(plain.cost_micro_usd, plain.uncached_micro_usd);
        let words = plain.words(&priced(None));
        assert!(words.starts_with("about 0.") && !words.contains("without a cache"), "{words}");

        let capped =
            Estimate::of(&priced(Some(100_000)), &plan("time=1h,iterations=60,branches=2,cost=0.05"));
        assert!(capped.cost_micro_usd.unwrap() <= 50_000 && capped.replies < 44, "{capped:?}");
        let capped = Estimate::of(&priced(None), &plan("time=1h,iterations=60,branches=2,tokens=90k"));
        assert!(capped.input + capped.output <= 90_000, "{capped:?}");
        // In a small context the conversation begins anew.
        let small = ModelInfo { context: Some(24_000), ..priced(Some(100_000)) };
        assert!(Estimate::of(&small, &long).input < estimate.input);
        let unknown = ModelInfo { price: Price::default(), ..priced(None) };
        let unknown_cost = Estimate::of(&unknown, &long);
        assert!(unknown_cost.words(&unknown).starts_with("at an unknown price: 44 replies"));
        assert_eq!(Estimate::of(&ModelInfo { free: true, ..priced(None) }, &long).cost_micro_usd, None);
    }
}
