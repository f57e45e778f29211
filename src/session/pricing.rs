//! What a model call may cost, before it is made, and what it did cost.

use crate::budget::{Amounts, Budget, Cap, Ledger, Reserve};
use crate::conversation::{Message, ToolSpec, Usage};
use crate::gate;
use crate::provider::{ModelInfo, ModelReply, ProviderFault};
use crate::session::SessionError;
use crate::session::state::State;
use crate::transcript::{CostByKind, CostSource, Line, SessionStart};
use base::error::{ErrorCode, Fault};

/// The longest reply that is asked for, in tokens.
pub const MAX_OUTPUT_TOKENS: u32 = 4_096;
/// The shortest useful reply; below it the cap fires.
const MIN_OUTPUT_TOKENS: u32 = 256;
/// Bytes of text that are at least one token: an upper bound on the count for any tokenizer in use on
/// English and JSON. Where the provider has reported a count, only what came since is bounded like this; where a
/// report was above its bound, the bound grows ([`State::factor`]).
const BYTES_PER_TOKEN: u64 = 2;
/// Tokens around a message, a call or a result at most: who speaks, where it begins and ends.
const FRAME_TOKENS: u64 = 17;
/// Bytes of text that are at most one token, several times the longest of English and JSON: a report of fewer
/// tokens than that is not believed.
const MOST_BYTES_PER_TOKEN: u64 = 16;
/// The longest side, in pixels, of a picture of [`ModelInfo::image_tokens`].
const PICTURE_EDGE: u64 = 1024;
/// What the closing call sends on top of the conversation: the results of the previous turn and how to end.
const CLOSING_TEXT_TOKENS: u64 = 4_096;
/// Pictures among these results.
const CLOSING_PICTURES: u64 = 2;
/// The shortest reply with which a session can be closed properly.
const CLOSING_OUTPUT_TOKENS: u64 = 1_024;

/// The worst case of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// What is reserved.
    pub reserved: Amounts,
    /// The limit of the reply.
    pub max_output_tokens: u32,
    /// What is sent, at most and at least.
    pub input: Input,
}

/// Tokens of what one call sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// Not more.
    pub most: u64,
    /// Not fewer; pictures are not counted.
    pub least: u64,
}

impl Input {
    /// The same, as the provider counts it. It calls that an estimate, so a fiftieth is added.
    pub fn counted(self, count: u64) -> Self {
        Self { most: count.saturating_add(count.div_ceil(50)), ..self }
    }
}

impl Bound {
    /// One call with these tokens in place of the reserved ones.
    fn spent(&self, tokens: Option<u64>, cost_micro_usd: Option<u64>) -> Amounts {
        Amounts {
            model_calls: 1,
            tokens: tokens.unwrap_or(self.reserved.tokens),
            cost_micro_usd: cost_micro_usd.unwrap_or(self.reserved.cost_micro_usd),
            ..Amounts::default()
        }
    }
}

/// The tokens that the present conversation sends.
pub fn conversation(info: &ModelInfo, state: &State, system: &str, tools: &[ToolSpec]) -> Input {
    let all = tokens(info, system, tools, &state.messages);
    let most = match state.last_input {
        Some((reported, covered)) if reported >= least(system, tools, earlier(state, covered)) => {
            let new = tokens(info, "", &[], state.messages.get(covered..).unwrap_or_default());
            reported.saturating_add(new.most.saturating_mul(state.factor))
        }
        _ => all.most.saturating_mul(state.factor),
    };
    Input { most: most.max(all.least), least: all.least }
}

fn earlier(state: &State, covered: usize) -> &[Message] {
    state.messages.get(..covered).unwrap_or(&state.messages)
}

/// The tokens of what is sent.
pub fn tokens(info: &ModelInfo, system: &str, tools: &[ToolSpec], messages: &[Message]) -> Input {
    let text = text_bytes(system, tools, messages).div_ceil(BYTES_PER_TOKEN);
    let pictures = messages.iter().flat_map(Message::pictures).map(|picture| {
        let edge = u64::from(picture.width.max(picture.height)).max(PICTURE_EDGE);
        let area = info.image_tokens.saturating_mul(edge * edge);
        area.div_ceil(PICTURE_EDGE * PICTURE_EDGE)
    });
    let framed: usize = messages.iter().map(framed).sum();
    let most = pictures.fold(text, u64::saturating_add).saturating_add(FRAME_TOKENS * framed as u64);
    Input { most, least: least(system, tools, messages) }
}

/// The parts of a message that a server puts between marks of its own.
fn framed(message: &Message) -> usize {
    match message {
        Message::User { .. } => 1,
        Message::Assistant { calls, .. } => 1 + calls.len(),
        Message::Results { results } => results.len(),
    }
}

fn least(system: &str, tools: &[ToolSpec], messages: &[Message]) -> u64 {
    text_bytes(system, tools, messages) / MOST_BYTES_PER_TOKEN
}

fn text_bytes(system: &str, tools: &[ToolSpec], messages: &[Message]) -> u64 {
    let specs: usize = tools.iter().map(|t| t.description.len() + t.parameters.to_string().len() + 64).sum();
    (system.len() + specs + messages.iter().map(Message::text_bytes).sum::<usize>()) as u64
}

/// The reserve for the wrap-up: the worst case of the call that closes the session after the next one, which sends
/// `sent`. At most half of a cap, so that a small one leaves room to work.
pub fn closing(info: &ModelInfo, sent: Input, budget: &Budget) -> Reserve {
    if info.free && budget.max_tokens.is_none() {
        return Reserve::default();
    }
    let input = sent
        .most
        .saturating_add(u64::from(MAX_OUTPUT_TOKENS) + CLOSING_TEXT_TOKENS)
        .saturating_add(info.image_tokens.saturating_mul(CLOSING_PICTURES));
    let keep = |cap: Option<u64>, wanted: u64| cap.map_or(0, |cap| wanted.min(cap / 2));
    Reserve {
        tokens: keep(budget.max_tokens, input.saturating_add(CLOSING_OUTPUT_TOKENS)),
        cost_micro_usd: keep(budget.max_cost_micro_usd, worst_price(info, input, CLOSING_OUTPUT_TOKENS)),
        ..Reserve::default()
    }
}

/// Refuses a budget with a cap on cost for a model whose price is unknown.
pub fn payable(info: &ModelInfo, budget: &Budget) -> Result<(), SessionError> {
    if budget.max_cost_micro_usd.is_some()
        && !info.free
        && (info.price.input.is_none() || info.price.output.is_none())
    {
        return Err(Fault::new(
            ErrorCode::InvalidInput,
            format!(
                "the budget limits the cost, but the price of `{}` at `{}` is unknown",
                info.model, info.provider
            ),
        )
        .with(
            "remedy",
            "add its price to your own copy of the provider's file (`price = { input = 0.75, output = 4.50, as_of = \"2026-11-21\" }`, US dollars per million tokens), or limit `tokens=` instead of `cost=`",
        )
        .into());
    }
    Ok(())
}

/// The ledger of a session that starts or resumes, folded from its lines. Refused where the cost of a model cannot be
/// capped.
pub fn ledger(
    start: &SessionStart,
    lines: &[Line],
    raise: Option<&Budget>,
    agent: &ModelInfo,
    referee: Option<&ModelInfo>,
) -> Result<Ledger, SessionError> {
    let ledger = gate::ledger(start, lines);
    let budget = raise.unwrap_or(ledger.budget());
    payable(agent, budget)?;
    referee.map_or(Ok(()), |referee| payable(referee, budget))?;
    Ok(ledger)
}

/// The worst case of a call that sends `sent` and wants at most `most` tokens back, the reply clamped to what
/// tokens and money allow.
pub fn bound(info: &ModelInfo, ledger: &Ledger, sent: Input, most: u32) -> Bound {
    if info.free && ledger.budget().max_tokens.is_none() {
        let reserved = Amounts { model_calls: 1, ..Amounts::default() };
        return Bound { reserved, max_output_tokens: most, input: sent };
    }
    let input = sent.most;
    let mut output = u64::from(most);
    if let Some(left) = ledger.left_of(Cap::Tokens) {
        output = output.min(left.saturating_sub(input));
    }
    if let (Some(left), Some(per_million)) = (ledger.left_of(Cap::Cost), info.price.output.filter(|p| *p > 0))
    {
        let left = left.saturating_sub(price(info.price.input, input));
        output = output.min(left.saturating_mul(1_000_000) / per_million);
    }
    let max_output_tokens = u32::try_from(output).unwrap_or(most).max(MIN_OUTPUT_TOKENS);
    let output = u64::from(max_output_tokens);
    let reserved = Amounts {
        model_calls: 1,
        tokens: input.saturating_add(output),
        cost_micro_usd: worst_price(info, input, output),
        ..Amounts::default()
    };
    Bound { reserved, max_output_tokens, input: sent }
}

/// What is kept for the closing call, and the worst case of the next one, which sends `sent`.
pub fn bounded(info: &ModelInfo, ledger: &Ledger, sent: Input) -> (Reserve, Bound) {
    let keep = closing(info, sent, ledger.budget());
    (keep, bound(info, &ledger.clone().keeping(keep), sent, MAX_OUTPUT_TOKENS))
}

/// Whether the worst case of the next call is more than half of what it may still use of a cap.
pub fn is_near(info: &ModelInfo, ledger: &Ledger, sent: Input) -> bool {
    let (keep, bound) = bounded(info, ledger, sent);
    let ledger = ledger.clone().keeping(keep);
    let near = |cap, wanted: u64| ledger.left_of(cap).is_some_and(|left| wanted > left / 2);
    near(Cap::Tokens, bound.reserved.tokens) || near(Cap::Cost, bound.reserved.cost_micro_usd)
}

/// The highest price of so many tokens. A cache write may be dearer than fresh input.
fn worst_price(info: &ModelInfo, input: u64, output: u64) -> u64 {
    if info.free {
        return 0;
    }
    let input_price = info.price.input.max(info.price.cache_write);
    price(input_price, input).saturating_add(price(info.price.output, output))
}

/// Tokens times micro-dollars per million, rounded up; an unknown price counts as nothing here, which is why
/// a session with a cost cap does not start without a price.
fn price(per_million: Option<u64>, tokens: u64) -> u64 {
    let product = u128::from(per_million.unwrap_or(0)) * u128::from(tokens);
    u64::try_from(product.div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// The price of reported tokens; `None` when a part that was used has no price.
pub(super) fn priced(info: &ModelInfo, usage: &Usage) -> Option<CostByKind> {
    let p = info.price;
    let part = |tokens: Option<u64>, per_million: Option<u64>| match tokens.unwrap_or(0) {
        0 => Some(0),
        tokens => Some(price(Some(per_million?), tokens)),
    };
    Some(CostByKind {
        fresh: part(usage.input_fresh, p.input)?,
        cache_read: part(usage.input_cache_read, p.cache_read.or(p.input))?,
        cache_write: part(usage.input_cache_write, p.cache_write.or(p.input))?,
        output: part(usage.output, p.output)?,
    })
}

/// What an attempt did cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    /// What is charged.
    pub amounts: Amounts,
    /// Where the cost comes from.
    pub source: CostSource,
    /// The cost by kind of token, where it is the price of what was reported.
    pub by_kind: Option<CostByKind>,
    /// What was not believed of the report.
    pub notes: Vec<String>,
}

/// What an attempt is charged: as reported; else its worst case, unless the model never worked on it. `None` is an
/// attempt of which nothing came back.
pub fn settle(info: &ModelInfo, bound: &Bound, came: Option<&Result<ModelReply, ProviderFault>>) -> Settled {
    let unreported =
        |amounts| Settled { amounts, source: CostSource::Estimated, by_kind: None, notes: Vec::new() };
    match came {
        Some(Ok(reply)) => {
            reported(info, bound, &reply.usage, reply.cost_micro_usd, reply.message.written_bytes())
        }
        Some(Err(fault)) if fault.usage.total().is_some() => reported(info, bound, &fault.usage, None, 0),
        Some(Err(fault)) if !fault.sent => unreported(bound.spent(Some(0), Some(0))),
        Some(Err(_)) | None => unreported(bound.reserved),
    }
}

/// The charge of a reply with `said` bytes. What its report leaves out, and what cannot be true, counts at its worst
/// case.
fn reported(info: &ModelInfo, bound: &Bound, usage: &Usage, reported: Option<u64>, said: usize) -> Settled {
    let mut notes = Vec::new();
    let believed = believed(info, bound, usage, said, &mut notes);
    let tokens = believed.as_ref().and_then(Usage::total);
    if info.free {
        let amounts = bound.spent(tokens, Some(0));
        return Settled { amounts, source: CostSource::Free, by_kind: None, notes };
    }
    let by_kind = believed.as_ref().and_then(|usage| priced(info, usage));
    let by_price = match believed {
        Some(_) => by_kind.map(|cost| cost.total()),
        None => Some(bound.reserved.cost_micro_usd),
    };
    let least = match by_price {
        Some(price) if reported == Some(0) && price > 0 => {
            notes.push(
                "the provider reported a cost of 0, but the model has a price; the price is used".to_owned(),
            );
            price
        }
        Some(price) if believed.as_ref() != Some(usage) => price,
        _ => 0,
    };
    let (cost, source) = match (reported, tokens, by_price) {
        (Some(cost), _, _) if cost >= least && cost > 0 => (cost, CostSource::Reported),
        (_, None, _) => (bound.reserved.cost_micro_usd, CostSource::Estimated),
        (_, Some(_), Some(cost)) => (cost, CostSource::Priced),
        (Some(cost), Some(_), None) => (cost, CostSource::Reported),
        (None, Some(_), None) => (0, CostSource::Unknown),
    };
    let as_reported = source == CostSource::Priced && believed.as_ref() == Some(usage);
    let by_kind = by_kind.filter(|_| as_reported);
    Settled { amounts: bound.spent(tokens, Some(cost)), source, by_kind, notes }
}

/// The tokens that count: as reported, but for what is missing or cannot be true. `None` when nothing was reported.
fn believed(
    info: &ModelInfo,
    bound: &Bound,
    usage: &Usage,
    said: usize,
    notes: &mut Vec<String>,
) -> Option<Usage> {
    usage.total()?;
    let mut counts = *usage;
    let cached = [usage.input_cache_read, usage.input_cache_write];
    let cached = cached.into_iter().flatten().fold(0, u64::saturating_add);
    if usage.input_fresh.is_none() || usage.output.is_none() {
        notes.push("the reported usage is incomplete; the missing part is counted at its maximum".to_owned());
        counts.input_fresh = usage.input_fresh.or(Some(bound.input.most.saturating_sub(cached)));
        counts.output = usage.output.or(Some(u64::from(bound.max_output_tokens)));
    }
    let fresh = counts.input_fresh.unwrap_or(0);
    let little_said = said as u64 / MOST_BYTES_PER_TOKEN;
    // A free server has no reason to report too little.
    if !info.free && fresh.saturating_add(cached) < bound.input.least {
        notes.push(format!(
            "{} input tokens are reported for a request of at least {}; the maximum is counted",
            fresh.saturating_add(cached),
            bound.input.least
        ));
        counts.input_fresh = Some(bound.input.most.saturating_sub(cached));
    }
    if let Some(output) = counts.output.filter(|output| !info.free && *output < little_said) {
        notes.push(format!(
            "{output} output tokens are reported for a reply of at least {little_said}; the maximum is counted"
        ));
        counts.output = Some(u64::from(bound.max_output_tokens).max(little_said));
    }
    Some(counts)
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
            input: Input { most: 90, least: 10 },
        };
        let settled = |info: &ModelInfo, usage: &Usage, cost| reported(info, &bound, usage, cost, 80);
        assert_eq!(settled(&info, &usage, None).source, CostSource::Unknown);
        info.price.output = Some(10_000_000);
        let row = |usage: &Usage, cost| {
            let Settled { amounts, source, notes, .. } = settled(&info, usage, cost);
            (amounts.tokens, amounts.cost_micro_usd, source, notes.len())
        };
        assert_eq!(row(&usage, None), (15, 70, CostSource::Priced, 0));
        assert_eq!(row(&Usage::default(), None), (99, 77, CostSource::Estimated, 0));
        assert_eq!(row(&Usage::default(), Some(0)), (99, 77, CostSource::Estimated, 1));
        assert_eq!(row(&usage, Some(33)), (15, 33, CostSource::Reported, 0));
        // A cost of nothing beside a price.
        assert_eq!(row(&usage, Some(0)), (15, 70, CostSource::Priced, 1));
        // One half of a report.
        let half = Usage { input_fresh: None, ..usage };
        assert_eq!(row(&half, None), (95, 230, CostSource::Priced, 1));
        assert_eq!(row(&Usage { output: None, ..usage }, Some(1)), (19, 110, CostSource::Priced, 1));
        // Fewer tokens than what was sent, and what came back, can be.
        assert_eq!(row(&Usage { input_fresh: Some(9), ..usage }, None), (95, 230, CostSource::Priced, 1));
        assert_eq!(row(&Usage { output: Some(4), ..usage }, None), (19, 110, CostSource::Priced, 1));
        assert_eq!(row(&Usage { output: Some(4), ..usage }, Some(500)).1, 500);
        // What was read from a cache was sent too.
        let cached = Usage { input_fresh: Some(0), input_cache_read: Some(10), ..usage };
        assert_eq!(row(&cached, None).3, 0);
        // What the server seals, and its ids, are no measure of what was written.
        let call = crate::conversation::ToolCall {
            id: "i".repeat(200),
            name: "undo".into(),
            arguments: "{}".into(),
            extra: Default::default(),
        };
        let sealed = crate::conversation::OpaqueBlock { origin: "p/m".into(), block: "s".repeat(900).into() };
        let message = Message::Assistant { text: "Back.".into(), calls: vec![call], opaque: vec![sealed] };
        assert_eq!(message.written_bytes(), 11);
        assert!(message.text_bytes() > 1_100, "all of it is sent again");
        info.free = true;
        let free = reported(&info, &bound, &Usage::default(), None, 80);
        assert_eq!((free.amounts.tokens, free.amounts.cost_micro_usd), (99, 0), "under a cap on tokens");
    }
}
