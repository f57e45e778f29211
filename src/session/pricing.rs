//! What a model call may cost, before it is made, and what it did cost.

use crate::budget::{Amounts, Budget, Ledger};
use crate::conversation::{Message, ToolSpec, Usage};
use crate::error::{ErrorCode, Fault};
use crate::provider::ModelInfo;
use crate::session::SessionError;
use crate::session::state::State;
use crate::transcript::CostSource;

/// The longest reply that is asked for, in tokens.
pub const MAX_OUTPUT_TOKENS: u32 = 4_096;
/// The shortest that is of any use; below it the cap fires.
const MIN_OUTPUT_TOKENS: u32 = 256;
/// Bytes of text that are at least one token: an upper bound on the count for any tokenizer in use on
/// English and JSON. Where the provider has reported a count, only what came since is bounded like this.
const BYTES_PER_TOKEN: u64 = 2;

/// The worst case of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// What is reserved.
    pub reserved: Amounts,
    /// The reply's clamp.
    pub max_output_tokens: u32,
}

impl Bound {
    /// One call with these tokens in place of the reserved ones.
    pub fn spent(&self, tokens: Option<u64>, cost_micro_usd: Option<u64>) -> Amounts {
        Amounts {
            model_calls: 1,
            tokens: tokens.unwrap_or(self.reserved.tokens),
            cost_micro_usd: cost_micro_usd.unwrap_or(self.reserved.cost_micro_usd),
            ..Amounts::default()
        }
    }
}

/// Upper bound of the tokens that the present conversation sends.
fn input_tokens(info: &ModelInfo, state: &State, system: &str, tools: &[ToolSpec]) -> u64 {
    match state.last_input {
        Some((reported, covered)) => {
            reported + tokens(info, "", &[], state.messages.get(covered..).unwrap_or_default())
        }
        None => tokens(info, system, tools, &state.messages),
    }
}

/// Upper bound of the tokens of what is sent.
pub fn tokens(info: &ModelInfo, system: &str, tools: &[ToolSpec], messages: &[Message]) -> u64 {
    let text = |bytes: usize| (bytes as u64).div_ceil(BYTES_PER_TOKEN);
    let specs: usize = tools.iter().map(|t| t.description.len() + t.parameters.to_string().len() + 64).sum();
    let said = |m: &Message| text(m.text_bytes()) + info.image_tokens.saturating_mul(m.images() as u64) + 16;
    text(system.len() + specs) + messages.iter().map(said).sum::<u64>()
}

/// Whether what a model costs can be held under the budget's cap: that takes its price.
pub fn payable(info: &ModelInfo, budget: &Budget) -> Result<(), SessionError> {
    if budget.max_cost_micro_usd.is_some()
        && !info.free
        && (info.price.input.is_none() || info.price.output.is_none())
    {
        return Err(Fault::new(
            ErrorCode::InvalidInput,
            format!(
                "the budget caps the cost, but the price of `{}` at `{}` is not known",
                info.model, info.provider
            ),
        )
        .with(
            "remedy",
            "give it one in the provider's file of your own (`price = { input = 0.75, output = 4.50, as_of = \"2026-11-21\" }`, US dollars a million tokens; `chemigram providers show NAME` shows the form), or cap `tokens=` in place of `cost=`",
        )
        .into());
    }
    Ok(())
}

/// The worst case of the next call, its reply clamped to what tokens and money allow.
pub fn bound(info: &ModelInfo, state: &State, ledger: &Ledger, system: &str, tools: &[ToolSpec]) -> Bound {
    bound_of(info, ledger, input_tokens(info, state, system, tools), MAX_OUTPUT_TOKENS)
}

/// The worst case of a call that sends at most `input` tokens and wants at most `most` back, the reply clamped to
/// what tokens and money allow.
pub fn bound_of(info: &ModelInfo, ledger: &Ledger, input: u64, most: u32) -> Bound {
    if info.free && ledger.budget().max_tokens.is_none() {
        let reserved = Amounts { model_calls: 1, ..Amounts::default() };
        return Bound { reserved, max_output_tokens: most };
    }
    let mut output = u64::from(most);
    if let Some(left) = ledger.tokens_left() {
        output = output.min(left.saturating_sub(input));
    }
    if let (Some(left), Some(per_million)) = (ledger.cost_left(), info.price.output.filter(|p| *p > 0)) {
        let left = left.saturating_sub(price(info.price.input, input));
        output = output.min(left.saturating_mul(1_000_000) / per_million);
    }
    let max_output_tokens = u32::try_from(output).unwrap_or(most).max(MIN_OUTPUT_TOKENS);
    let output = u64::from(max_output_tokens);
    // A cache write may be dearer than fresh input; the worst case is the dearest.
    let input_price = info.price.input.max(info.price.cache_write);
    let reserved = Amounts {
        model_calls: 1,
        tokens: input.saturating_add(output),
        cost_micro_usd: if info.free {
            0
        } else {
            price(input_price, input) + price(info.price.output, output)
        },
        ..Amounts::default()
    };
    Bound { reserved, max_output_tokens }
}

/// Tokens times micro-dollars per million, rounded up; an unknown price counts as nothing here, which is why
/// a session with a cost cap does not start without a price.
fn price(per_million: Option<u64>, tokens: u64) -> u64 {
    let product = u128::from(per_million.unwrap_or(0)) * u128::from(tokens);
    u64::try_from(product.div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// The price of reported tokens; `None` when a part that was used has no price.
fn priced(info: &ModelInfo, usage: &Usage) -> Option<u64> {
    let p = info.price;
    let rows = [
        (usage.input_fresh, p.input),
        (usage.output, p.output),
        (usage.input_cache_read, p.cache_read.or(p.input)),
        (usage.input_cache_write, p.cache_write.or(p.input)),
    ];
    let mut total = 0u64;
    for (tokens, per_million) in rows {
        let tokens = tokens.unwrap_or(0);
        if tokens > 0 {
            total = total.saturating_add(price(Some(per_million?), tokens));
        }
    }
    Some(total)
}

/// What a reply did cost, and where the figure comes from.
pub fn settle(
    info: &ModelInfo,
    bound: &Bound,
    usage: &Usage,
    reported: Option<u64>,
) -> (Amounts, CostSource) {
    if info.free {
        return (bound.spent(Some(usage.total().unwrap_or(0)), Some(0)), CostSource::Free);
    }
    match (reported, usage.total()) {
        (Some(cost), tokens) => (bound.spent(tokens, Some(cost)), CostSource::Reported),
        (None, None) => (bound.spent(None, None), CostSource::Estimated),
        (None, Some(tokens)) => match priced(info, usage) {
            Some(cost) => (bound.spent(Some(tokens), Some(cost)), CostSource::Priced),
            None => (bound.spent(Some(tokens), Some(0)), CostSource::Unknown),
        },
    }
}

/// What a failed attempt did cost: what was reported, else nothing but the attempt itself.
pub fn settle_failure(info: &ModelInfo, bound: &Bound, usage: &Usage) -> Amounts {
    match usage.total() {
        Some(_) => settle(info, bound, usage, None).0,
        None => bound.spent(Some(0), Some(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_rounded_up_and_an_unknown_price_is_not_zero() {
        assert_eq!(price(Some(2_000_000), 1), 2);
        assert_eq!(price(Some(100_000), 1), 1);
        assert_eq!(price(None, 5), 0);
        let mut info = ModelInfo {
            provider: "p".into(),
            model: "m".into(),
            vision: false,
            context: None,
            free: false,
            price: crate::provider::Price { input: Some(2_000_000), ..Default::default() },
            image_tokens: 0,
            facts: Default::default(),
        };
        let usage = Usage { input_fresh: Some(10), output: Some(5), ..Usage::default() };
        let bound = Bound {
            reserved: Amounts { tokens: 99, cost_micro_usd: 77, ..Amounts::default() },
            max_output_tokens: 9,
        };
        assert_eq!(settle(&info, &bound, &usage, None).1, CostSource::Unknown);
        info.price.output = Some(10_000_000);
        let (amounts, source) = settle(&info, &bound, &usage, None);
        assert_eq!((amounts.cost_micro_usd, amounts.tokens, source), (70, 15, CostSource::Priced));
        let (amounts, source) = settle(&info, &bound, &Usage::default(), None);
        assert_eq!((amounts.cost_micro_usd, amounts.tokens, source), (77, 99, CostSource::Estimated));
    }
}
