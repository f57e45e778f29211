//! A limit that was reached, as a person reads it. What a model reads is the `Display` of [`Exhausted`].

use super::{Cap, Exhausted, usd};

impl Exhausted {
    /// `time limit reached: 1800 s of 1800 s used`.
    pub fn words(&self) -> String {
        let Self { cap, used, reserved, limit, .. } = *self;
        let say = |n: u64| match cap {
            Cap::Time => format!("{} s", n / 1000),
            Cap::Cost => format!("{} USD", usd(n)),
            _ => n.to_string(),
        };
        let kept = if reserved > 0 { format!(", {} reserved", say(reserved)) } else { String::new() };
        format!("{cap} limit reached: {} of {} used{kept}", say(used), say(limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_given_in_its_unit_and_a_reserve_only_where_there_is_one() {
        let reached =
            |cap, used, reserved, limit| Exhausted { cap, used, reserved, limit, wanted: 0 }.words();
        let time = reached(Cap::Time, 1_740_000, 0, 1_800_000);
        assert_eq!(time, "time limit reached: 1740 s of 1800 s used");
        let cost = reached(Cap::Cost, 1_900_000, 100_000, 2_000_000);
        assert_eq!(cost, "cost limit reached: 1.9000 USD of 2.0000 USD used, 0.1000 USD reserved");
        assert_eq!(reached(Cap::Iterations, 50, 0, 50), "iterations limit reached: 50 of 50 used");
    }
}
