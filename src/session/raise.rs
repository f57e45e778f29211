//! More budget for a session that goes on.

use super::SessionError;
use crate::budget::Budget;
use base::error::{ErrorCode, Fault};

/// A raise such as `time=10m,iterations=20`: what is named is added to the caps that a session has.
pub fn raised(budget: &Budget, spec: &str) -> Result<Budget, SessionError> {
    let refused = |message: String| {
        let remedy = "say what to add, for example `--raise time=10m,iterations=20`";
        Err(Fault::new(ErrorCode::InvalidInput, message).with("remedy", remedy).into())
    };
    let spec = &crate::budget::short(spec).map_err(|e| Fault::from(&e))?;
    let more =
        Budget::parse(&format!("time=1s,iterations=1,branches=1,{spec}")).map_err(|e| Fault::from(&e))?;
    let parts = spec.split(',').filter_map(|part| Some(part.split_once('=')?.0.trim()));
    let named: std::collections::BTreeSet<&str> = parts.collect();
    for (name, cap) in
        [("tokens", budget.max_tokens), ("cost", budget.max_cost_micro_usd), ("renders", budget.max_renders)]
    {
        if named.contains(name) && cap.is_none() {
            return refused(format!("`{spec}` raises the limit on {name}, but this session has none"));
        }
    }
    let more_of =
        |name: &str, cap: u64, more: u64| cap.saturating_add(if named.contains(name) { more } else { 0 });
    let optional = |cap: Option<u64>, more: Option<u64>| cap.map(|cap| cap.saturating_add(more.unwrap_or(0)));
    let raised = Budget {
        time_seconds: more_of("time", budget.time_seconds, more.time_seconds),
        max_iterations: more_of("iterations", budget.max_iterations, more.max_iterations),
        max_branches: more_of("branches", budget.max_branches, more.max_branches),
        max_tokens: optional(budget.max_tokens, more.max_tokens),
        max_cost_micro_usd: optional(budget.max_cost_micro_usd, more.max_cost_micro_usd),
        max_renders: optional(budget.max_renders, more.max_renders),
        // A cap on calls grows with what the calls are for.
        max_model_calls: optional(
            budget.max_model_calls,
            named.contains("iterations").then_some(more.max_iterations),
        ),
    };
    if raised == *budget {
        return refused(format!("`{spec}` raises none of this session's limits"));
    }
    Ok(raised)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raise_adds_what_it_names_and_says_what_it_cannot() {
        let budget = Budget::parse("time=10m,iterations=5,branches=1,tokens=1000").unwrap();
        let with = |spec: &str| raised(&budget, spec);
        let more = with(" time =10m , iterations= 20").unwrap();
        assert_eq!((more.time_seconds, more.max_iterations, more.max_branches), (1200, 25, 1));
        assert_eq!(with("tokens=2k").unwrap().max_tokens, Some(3000));
        for (spec, why) in [
            ("cost=1", "raises the limit on cost, but this session has none"),
            ("time=10m,renders=5", "raises the limit on renders, but this session has none"),
            ("lite", "raises none of this session's limits"),
            ("", "raises none of this session's limits"),
        ] {
            let error = with(spec).unwrap_err().to_string();
            assert!(error.contains(why), "{spec}: {error}");
        }
        assert!(with("time=soon").is_err());
    }
}
