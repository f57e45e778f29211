//! What a server says of its rate limits, in the headers of OpenAI (which most others imitate) and of Anthropic.

use std::time::Duration;

use reqwest::header::HeaderMap;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Calls.
    Requests,
    /// Tokens of a call, all of them.
    Tokens,
    /// Tokens of a call but for those that a cache has.
    FreshTokens,
    /// Tokens of the reply.
    OutputTokens,
}

/// How much is left of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// What is counted.
    pub unit: Unit,
    /// How much is left.
    pub remaining: u64,
    /// How much there is when it is full, where that is told.
    pub limit: Option<u64>,
    /// How long until it is full again.
    pub reset: Duration,
}

/// A pause after which a limit has room for the next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refill {
    /// The pause.
    pub pause: Duration,
    /// Of what there is too little.
    pub of: &'static str,
}

impl RateLimit {
    /// The pause before a call that sends `sent` tokens, of which `fresh` are in no cache. A limit fills up evenly, as
    /// both vendors say; one that is too small for the call is waited for until it is full.
    pub fn refill(&self, sent: u64, fresh: u64) -> Option<Refill> {
        let (needed, of) = match self.unit {
            Unit::Requests => (1, "requests"),
            Unit::Tokens => (sent, "tokens"),
            Unit::FreshTokens => (fresh, "input tokens"),
            Unit::OutputTokens => (1, "output tokens"),
        };
        let needed = needed.min(self.limit.unwrap_or(u64::MAX)).max(1);
        if self.remaining >= needed {
            return None;
        }
        let missing = self
            .limit
            .filter(|limit| *limit > self.remaining)
            .map_or(1.0, |limit| (needed - self.remaining) as f64 / (limit - self.remaining) as f64);
        let pause = Duration::try_from_secs_f64(self.reset.as_secs_f64() * missing.min(1.0));
        Some(Refill { pause: pause.unwrap_or(Duration::MAX), of }).filter(|refill| !refill.pause.is_zero())
    }
}

/// The limits that the headers tell of.
pub fn read(headers: &HeaderMap, now: jiff::Timestamp) -> Vec<RateLimit> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let one = |(unit, anthropic, name): (Unit, bool, &str)| {
        let at = |part: &str| match anthropic {
            true => text(&format!("anthropic-ratelimit-{name}-{part}")),
            false => text(&format!("x-ratelimit-{part}-{name}")),
        };
        let number = |part: &str| at(part)?.parse::<u64>().ok();
        let reset = at("reset")?;
        // A date here, a duration such as `6m0s` there.
        let reset = match reset.parse::<jiff::Timestamp>() {
            Ok(date) => date.duration_since(now),
            Err(_) => reset.parse::<jiff::SignedDuration>().ok()?,
        };
        let reset = Duration::try_from(reset).unwrap_or_default();
        Some(RateLimit { unit, remaining: number("remaining")?, limit: number("limit"), reset })
    };
    let rows = [
        (Unit::Requests, false, "requests"),
        (Unit::Tokens, false, "tokens"),
        (Unit::Requests, true, "requests"),
        (Unit::FreshTokens, true, "tokens"),
        (Unit::FreshTokens, true, "input-tokens"),
        (Unit::OutputTokens, true, "output-tokens"),
    ];
    rows.into_iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::{HeaderName, HeaderValue};

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn what_is_left_says_how_long_to_wait_for_the_next_call() {
        let now: jiff::Timestamp = "2026-11-26T08:00:00Z".parse().unwrap();
        let openai = headers(&[
            ("x-ratelimit-limit-requests", "500"),
            ("x-ratelimit-remaining-requests", "499"),
            ("x-ratelimit-reset-requests", "120ms"),
            ("x-ratelimit-limit-tokens", "30000"),
            ("x-ratelimit-remaining-tokens", "10000"),
            ("x-ratelimit-reset-tokens", "40s"),
        ]);
        let wait = |headers: &HeaderMap, sent, fresh| {
            let found = read(headers, now);
            let pauses = found.iter().filter_map(|limit| limit.refill(sent, fresh));
            pauses.max_by_key(|refill| refill.pause).map(|refill| (refill.pause.as_millis(), refill.of))
        };
        assert_eq!(wait(&openai, 10_000, 0), None);
        assert_eq!(wait(&openai, 15_000, 0), Some((10_000, "tokens")), "a quarter of what is missing");
        assert_eq!(wait(&openai, 90_000, 0), Some((40_000, "tokens")), "it never has room, so it is full");

        let anthropic = headers(&[
            ("anthropic-ratelimit-requests-limit", "50"),
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "2026-11-26T08:01:00Z"),
            ("anthropic-ratelimit-input-tokens-limit", "20000"),
            ("anthropic-ratelimit-input-tokens-remaining", "4000"),
            ("anthropic-ratelimit-input-tokens-reset", "2026-11-26T08:00:32Z"),
            ("anthropic-ratelimit-output-tokens-remaining", "0"),
            ("anthropic-ratelimit-output-tokens-reset", "2026-11-26T07:59:00Z"),
        ]);
        assert_eq!(wait(&anthropic, 90_000, 100), Some((1_200, "requests")), "the cache has the rest");
        assert_eq!(wait(&anthropic, 90_000, 6_000), Some((4_000, "input tokens")));

        // Without a limit nobody knows how fast it fills; Azure has sent -1; a date of the past is now.
        let bare = [("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "6m0s")];
        assert_eq!(wait(&headers(&bare), 1, 1), Some((360_000, "requests")));
        for strange in [
            [("x-ratelimit-remaining-tokens", "-1"), ("x-ratelimit-reset-tokens", "0")],
            [("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "soon")],
            [("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "0s")],
        ] {
            assert_eq!(wait(&headers(&strange), 1, 1), None, "{strange:?}");
        }
    }
}
