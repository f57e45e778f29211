//! What a session may have of what the night has left.

use std::time::Duration;

use crate::budget::{Amounts, Budget, Ledger, Reserve, usd};
use crate::overnight::plan::Caps;
use crate::overnight::record::PlannedSession;

/// A session that could have less than this share of what it asks for (one in so many) is not begun: it would
/// spend and bring nothing.
const LEAST_SHARE: u64 = 4;

/// The most that a session of this budget can spend of what the night counts.
pub fn most(budget: &Budget, free: bool) -> Amounts {
    Amounts {
        iterations: budget.max_iterations,
        branches: budget.max_branches,
        renders: budget.max_renders.unwrap_or(0),
        model_calls: 0,
        tokens: budget.max_tokens.unwrap_or(0),
        cost_micro_usd: if free { 0 } else { budget.max_cost_micro_usd.unwrap_or(0) },
    }
}

/// The budget that a session gets: its own where the night has that much left, else cut to what there is. An
/// error says why what there is is too little. Time is looked at in [`in_time`].
pub fn share(asked: &Budget, free: bool, vectors: u64, ledger: &Ledger) -> Result<Budget, String> {
    let left = ledger.left();
    let mut budget = asked.clone();
    let least = |asked: u64| asked.div_ceil(LEAST_SHARE);
    let enough = |name: &str, asked: u64, left: u64, least: u64, say: &dyn Fn(u64) -> String| {
        if left >= least {
            return Ok(asked.min(left));
        }
        Err(format!("the night's {name}: {} left, and it asks for {}", say(left), say(asked)))
    };
    let count = |n: u64| n.to_string();
    let dollars = |n: u64| format!("{} USD", usd(n));
    let branches = least(asked.max_branches).max(vectors);
    budget.max_branches = enough("branches", asked.max_branches, left.branches, branches, &count)?;
    budget.max_iterations =
        enough("iterations", asked.max_iterations, left.iterations, least(asked.max_iterations), &count)?;
    let optional = |name, asked: Option<u64>, left, say| match asked {
        Some(asked) => enough(name, asked, left, least(asked), say).map(Some),
        None => Ok(None),
    };
    budget.max_tokens = optional("tokens", asked.max_tokens, left.tokens, &count)?;
    budget.max_renders = optional("renders", asked.max_renders, left.renders, &count)?;
    if !free {
        budget.max_cost_micro_usd =
            optional("cost", asked.max_cost_micro_usd, left.cost_micro_usd, &dollars)?;
    }
    Ok(budget)
}

/// The same budget with no more time than the night has left; `None` is a night without a time cap.
pub fn in_time(mut budget: Budget, left: Option<Duration>) -> Result<Budget, String> {
    let Some(left) = left.map(|left| left.as_secs()) else { return Ok(budget) };
    let asked = budget.time_seconds;
    if left == 0 || left < asked.div_ceil(LEAST_SHARE) {
        return Err(format!("the night's time: {} left, and it asks for {}", clock(left), clock(asked)));
    }
    budget.time_seconds = asked.min(left);
    Ok(budget)
}

/// What each session would get if every one before it took all that it may, `jobs` at a time; an error says why
/// it would not be begun.
pub fn forecast(caps: &Caps, orders: &[PlannedSession], jobs: usize) -> Vec<Result<Budget, String>> {
    let mut night = Ledger::new(caps.budget(), Reserve::default());
    // When each of those that run at once is free again.
    let mut free_at = vec![0u64; jobs.max(1)];
    let mut given = Vec::new();
    for (place, order) in orders.iter().enumerate() {
        free_at.sort_unstable();
        let now = free_at.first().copied().unwrap_or(0);
        let left = caps.time_seconds.map(|cap| Duration::from_secs(cap.saturating_sub(now)));
        let gets = in_time(order.budget.clone(), left)
            .and_then(|budget| share(&budget, order.free, order.vectors.len() as u64, &night));
        if let Ok(budget) = &gets {
            night.reserve(place as u64, most(budget, order.free));
            if let Some(first) = free_at.first_mut() {
                *first = now.saturating_add(budget.time_seconds);
            }
        }
        given.push(gets);
    }
    given
}

/// Seconds as `45 s`, `30 min` or `7 h 05 min`.
pub fn clock(seconds: u64) -> String {
    match seconds {
        0..=89 => format!("{seconds} s"),
        90..=5399 => format!("{} min", (seconds + 30) / 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// A budget in words: `30 min, 50 iterations, 3 branches, 1.0000 USD`.
pub fn words(budget: &Budget) -> String {
    let mut words = format!(
        "{}, {} iterations, {} branches",
        clock(budget.time_seconds),
        budget.max_iterations,
        budget.max_branches
    );
    if let Some(cost) = budget.max_cost_micro_usd {
        words.push_str(&format!(", {} USD", usd(cost)));
    }
    if let Some(tokens) = budget.max_tokens {
        words.push_str(&format!(", {tokens} tokens"));
    }
    if let Some(renders) = budget.max_renders {
        words.push_str(&format!(", {renders} renders"));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn budget(spec: &str) -> Budget {
        Budget::parse(spec).unwrap()
    }

    #[test]
    fn a_session_gets_what_there_is_or_nothing() {
        let caps = Caps {
            cost_micro_usd: Some(1_500_000),
            iterations: Some(60),
            branches: Some(4),
            ..Caps::default()
        };
        let mut night = Ledger::new(caps.budget(), Reserve::default());
        let asked = budget("standard,cost=1.00");
        assert_eq!(share(&asked, false, 2, &night), Ok(asked.clone()));
        night.reserve(0, most(&asked, false));
        let second = share(&asked, false, 1, &night);
        assert!(second.unwrap_err().contains("the night's iterations: 10 left, and it asks for 50"));
        let second = share(&budget("time=5m,iterations=12,branches=2,cost=1.00"), false, 1, &night).unwrap();
        assert_eq!((second.max_iterations, second.max_branches), (10, 1));
        assert_eq!(second.max_cost_micro_usd, Some(500_000));
        let two = share(&budget("time=5m,iterations=12,branches=2"), true, 2, &night);
        assert!(two.unwrap_err().contains("branches: 1 left"), "two vectors need two");
    }

    #[test]
    fn time_is_cut_to_what_is_left() {
        let left = |seconds| in_time(budget("standard"), Some(Duration::from_secs(seconds)));
        assert_eq!(left(9_999).unwrap().time_seconds, 1800);
        assert_eq!(left(600).unwrap().time_seconds, 600);
        assert!(left(449).unwrap_err().contains("7 min left, and it asks for 30 min"));
        assert!(in_time(budget("time=1s,iterations=1,branches=1"), Some(Duration::ZERO)).is_err());
        assert_eq!(in_time(budget("standard"), None).unwrap().time_seconds, 1800);
    }

    proptest! {
        /// However sessions come and whatever they use of their shares, the caps of the night hold.
        #[test]
        fn no_order_of_sessions_passes_the_nights_caps(
            sessions in prop::collection::vec((1u64..40, 1u64..5, 1u64..2000, 0u64..=100), 0..60)
        ) {
            let caps = Caps { iterations: Some(100), branches: Some(9), tokens: Some(5000), ..Caps::default() };
            let mut night = Ledger::new(caps.budget(), Reserve::default());
            for (seq, (iterations, branches, tokens, used)) in sessions.into_iter().enumerate() {
                let asked = budget(&format!("time=5m,iterations={iterations},branches={branches},tokens={tokens}"));
                let Ok(given) = share(&asked, true, 1, &night) else { continue };
                let want = most(&given, true);
                prop_assert!(night.admit(&want, Duration::ZERO).is_ok());
                night.reserve(seq as u64, want);
                let part = |n: u64| n * used / 100;
                if used < 90 {
                    let spent = Amounts { iterations: part(want.iterations), branches: part(want.branches), tokens: part(want.tokens), ..want };
                    night.settle(seq as u64, spent);
                }
            }
            let taken = night.settled().plus(night.reserved());
            prop_assert!(taken.iterations <= 100 && taken.branches <= 9 && taken.tokens <= 5000);
        }
    }
}
