//! What a session gets of what its batch has left.

use std::time::Duration;

use crate::budget::{Amounts, Budget, Ledger, Reserve, usd};
use crate::overnight::plan::Caps;
use crate::overnight::record::PlannedSession;

/// A session that would get less than one part in so many of its budget is not started: it would spend and achieve
/// nothing.
const LEAST_SHARE: u64 = 4;

/// The most that a session of this budget can spend of what the batch counts.
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

/// The budget that a session gets: its own if the batch has that much left, else cut to what is left. An error says
/// why that is too little. Time is dealt with in [`in_time`].
pub fn share(wanted: &Budget, free: bool, vectors: u64, ledger: &Ledger) -> Result<Budget, String> {
    let left = ledger.left();
    let mut budget = wanted.clone();
    let least = |wanted: u64| wanted.div_ceil(LEAST_SHARE);
    let enough = |name: &str, wanted: u64, left: u64, least: u64, say: &dyn Fn(u64) -> String| {
        if left >= least {
            return Ok(wanted.min(left));
        }
        Err(format!("not enough {name} left in the batch: {}, {} needed", say(left), say(wanted)))
    };
    let count = |n: u64| n.to_string();
    let dollars = |n: u64| format!("{} USD", usd(n));
    let branches = least(wanted.max_branches).max(vectors);
    budget.max_branches = enough("branches", wanted.max_branches, left.branches, branches, &count)?;
    budget.max_iterations =
        enough("iterations", wanted.max_iterations, left.iterations, least(wanted.max_iterations), &count)?;
    let optional = |name, wanted: Option<u64>, left, say| match wanted {
        Some(wanted) => enough(name, wanted, left, least(wanted), say).map(Some),
        None => Ok(None),
    };
    budget.max_tokens = optional("tokens", wanted.max_tokens, left.tokens, &count)?;
    budget.max_renders = optional("renders", wanted.max_renders, left.renders, &count)?;
    if !free {
        budget.max_cost_micro_usd =
            optional("cost", wanted.max_cost_micro_usd, left.cost_micro_usd, &dollars)?;
    }
    Ok(budget)
}

/// The same budget with no more time than the batch has left; `None` is a batch without a time cap.
pub fn in_time(mut budget: Budget, left: Option<Duration>) -> Result<Budget, String> {
    let Some(left) = left.map(|left| left.as_secs()) else { return Ok(budget) };
    let wanted = budget.time_seconds;
    if left == 0 || left < wanted.div_ceil(LEAST_SHARE) {
        return Err(format!("not enough time left in the batch: {}, {} needed", clock(left), clock(wanted)));
    }
    budget.time_seconds = wanted.min(left);
    Ok(budget)
}

/// What each session would get if all sessions before it used all they may, `jobs` at a time; an error says why it
/// would not be started.
pub fn forecast(caps: &Caps, sessions: &[PlannedSession], jobs: usize) -> Vec<Result<Budget, String>> {
    let mut ledger = Ledger::new(caps.budget(), Reserve::default());
    // When each of those that run at once is free again.
    let mut free_at = vec![0u64; jobs.max(1)];
    let mut given = Vec::new();
    for (place, planned) in sessions.iter().enumerate() {
        free_at.sort_unstable();
        let now = free_at.first().copied().unwrap_or(0);
        let left = caps.time_seconds.map(|cap| Duration::from_secs(cap.saturating_sub(now)));
        let gets = in_time(planned.budget.clone(), left)
            .and_then(|budget| share(&budget, planned.free, planned.vectors.len() as u64, &ledger));
        if let Ok(budget) = &gets {
            ledger.reserve(place as u64, most(budget, planned.free));
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
        let mut ledger = Ledger::new(caps.budget(), Reserve::default());
        let wanted = budget("standard,cost=1.00");
        assert_eq!(share(&wanted, false, 2, &ledger), Ok(wanted.clone()));
        ledger.reserve(0, most(&wanted, false));
        let second = share(&wanted, false, 1, &ledger);
        assert!(second.unwrap_err().contains("not enough iterations left in the batch: 10, 50 needed"));
        let second = share(&budget("time=5m,iterations=12,branches=2,cost=1.00"), false, 1, &ledger).unwrap();
        assert_eq!((second.max_iterations, second.max_branches), (10, 1));
        assert_eq!(second.max_cost_micro_usd, Some(500_000));
        let two = share(&budget("time=5m,iterations=12,branches=2"), true, 2, &ledger);
        assert!(
            two.unwrap_err().contains("not enough branches left in the batch: 1"),
            "two vectors need two"
        );
    }

    #[test]
    fn time_is_cut_to_what_is_left() {
        let left = |seconds| in_time(budget("standard"), Some(Duration::from_secs(seconds)));
        assert_eq!(left(9_999).unwrap().time_seconds, 1800);
        assert_eq!(left(600).unwrap().time_seconds, 600);
        assert!(left(449).unwrap_err().contains("not enough time left in the batch: 7 min, 30 min needed"));
        assert!(in_time(budget("time=1s,iterations=1,branches=1"), Some(Duration::ZERO)).is_err());
        assert_eq!(in_time(budget("standard"), None).unwrap().time_seconds, 1800);
    }

    proptest! {
        /// Whatever sessions there are, and whatever they use of their shares, the caps of the batch hold.
        #[test]
        fn no_order_of_sessions_passes_the_caps_of_the_batch(
            sessions in prop::collection::vec((1u64..40, 1u64..5, 1u64..2000, 0u64..=100), 0..60)
        ) {
            let caps = Caps { iterations: Some(100), branches: Some(9), tokens: Some(5000), ..Caps::default() };
            let mut ledger = Ledger::new(caps.budget(), Reserve::default());
            for (seq, (iterations, branches, tokens, used)) in sessions.into_iter().enumerate() {
                let wanted = budget(&format!("time=5m,iterations={iterations},branches={branches},tokens={tokens}"));
                let Ok(given) = share(&wanted, true, 1, &ledger) else { continue };
                let want = most(&given, true);
                prop_assert!(ledger.admit(&want, Duration::ZERO).is_ok());
                ledger.reserve(seq as u64, want);
                let part = |n: u64| n * used / 100;
                if used < 90 {
                    let spent = Amounts { iterations: part(want.iterations), branches: part(want.branches), tokens: part(want.tokens), ..want };
                    ledger.settle(seq as u64, spent);
                }
            }
            let taken = ledger.settled().plus(ledger.reserved());
            prop_assert!(taken.iterations <= 100 && taken.branches <= 9 && taken.tokens <= 5000);
        }
    }
}
