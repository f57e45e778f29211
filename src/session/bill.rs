//! What a session's models used and cost, by kind of token: the one place where it is added up, for the review of a
//! session, the report of a batch, and that of an evaluation.

use serde::{Deserialize, Serialize};

use crate::budget::{Amounts, usd};
use crate::transcript::{Event, Line};

/// Tokens, and what they cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Part {
    /// Tokens.
    pub tokens: u64,
    /// Money, in micro-dollars.
    pub cost_micro_usd: u64,
}

/// Tokens and money by kind. Together they are what was charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Money {
    /// Input that was neither read from a cache nor written to one.
    pub fresh: Part,
    /// Input read from a cache.
    pub cached: Part,
    /// Input written to a cache.
    pub written: Part,
    /// Replies.
    pub reply: Part,
    /// Second opinions, in and out.
    pub referee: Part,
    /// What was charged without a report by kind: attempts that were cut, and money that a provider gives as a sum.
    pub other: Part,
}

impl Part {
    fn plus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            cost_micro_usd: self.cost_micro_usd.saturating_add(other.cost_micro_usd),
        }
    }
}

impl Money {
    /// Of a session with these lines, which was charged `spent`.
    pub fn of(lines: &[Line], spent: &Amounts) -> Self {
        let mut money = Self::default();
        for line in lines {
            match &line.event {
                Event::ModelReply { usage, settled, cost_by_kind, .. } => {
                    // Tokens that were charged otherwise than reported are of no known kind.
                    let tokens = Some(*usage).filter(|usage| usage.total() == Some(settled.tokens));
                    let (tokens, cost) = (tokens.unwrap_or_default(), cost_by_kind.unwrap_or_default());
                    for (part, tokens, cost) in [
                        (&mut money.fresh, tokens.input_fresh, cost.fresh),
                        (&mut money.cached, tokens.input_cache_read, cost.cache_read),
                        (&mut money.written, tokens.input_cache_write, cost.cache_write),
                        (&mut money.reply, tokens.output, cost.output),
                    ] {
                        *part = part.plus(Part { tokens: tokens.unwrap_or(0), cost_micro_usd: cost });
                    }
                }
                Event::Referee(reply) => {
                    let Amounts { tokens, cost_micro_usd, .. } = reply.settled;
                    money.referee = money.referee.plus(Part { tokens, cost_micro_usd });
                }
                _ => {}
            }
        }
        let known = money.total();
        money.other = Part {
            tokens: spent.tokens.saturating_sub(known.tokens),
            cost_micro_usd: spent.cost_micro_usd.saturating_sub(known.cost_micro_usd),
        };
        money
    }

    /// The sum of two sessions.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            fresh: self.fresh.plus(other.fresh),
            cached: self.cached.plus(other.cached),
            written: self.written.plus(other.written),
            reply: self.reply.plus(other.reply),
            referee: self.referee.plus(other.referee),
            other: self.other.plus(other.other),
        }
    }

    /// Everything together.
    pub fn total(&self) -> Part {
        let parts = [self.fresh, self.cached, self.written, self.reply, self.referee, self.other];
        parts.into_iter().fold(Part::default(), Part::plus)
    }

    /// The share of the input that was read from a cache, in percent; `None` where no input was reported.
    pub fn hit_percent(&self) -> Option<u64> {
        let input = self.fresh.plus(self.cached).plus(self.written).tokens;
        (input > 0)
            .then(|| u64::try_from(u128::from(self.cached.tokens) * 100 / u128::from(input)).unwrap_or(100))
    }

    /// `12000 fresh (0.0120 USD), 90000 from the cache (0.0090 USD), …; 88 % of the input came from the cache`; nothing
    /// where no tokens were counted.
    pub fn words(&self) -> Option<String> {
        let parts = [
            (self.fresh, "fresh"),
            (self.cached, "from the cache"),
            (self.written, "written to the cache"),
            (self.reply, "in replies"),
            (self.referee, "for the referee"),
            (self.other, "of no known kind"),
        ];
        let word = |(part, name): (Part, &str)| match (part.tokens, part.cost_micro_usd) {
            (0, 0) => None,
            (0, cost) => Some(format!("{} USD {name}", usd(cost))),
            (tokens, 0) => Some(format!("{tokens} {name}")),
            (tokens, cost) => Some(format!("{tokens} {name} ({} USD)", usd(cost))),
        };
        let words: Vec<String> = parts.into_iter().filter_map(word).collect();
        let hits = self.hit_percent().map(|hits| format!("; {hits} % of the input came from the cache"));
        (!words.is_empty()).then(|| format!("{}{}", words.join(", "), hits.unwrap_or_default()))
    }
}
