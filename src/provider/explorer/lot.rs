//! Two moves drawn by lot, at strengths drawn by lot: what an edit is worth that listens to nobody.
//!
//! Whoever is evaluated should do better than this. Strengths are even between twice a move's default and the
//! same the other way, as far as its range goes: ordinary edits, not wild ones.

use std::collections::BTreeMap;

use super::candidate::{ListedMove, hash};
use super::memory::{Branch, Settings};

/// How many moves are drawn for a branch, as many as the explorer tries.
const MOVES: usize = 2;
/// The strongest, in distances of a move's default from neutral.
const STRONGEST: f64 = 2.0;

/// The moves of a branch and their values. The same seed and branch draw the same.
pub(super) fn drawn(moves: &[ListedMove], branch: &Branch, seed: u64) -> Settings {
    // The upper bits of this hash are the well-mixed ones.
    let number = |what: &str| hash(&format!("{}/{what}", branch.name), seed) >> 33;
    let mut lots: Vec<(u64, &ListedMove)> = moves.iter().map(|m| (number(&m.name), m)).collect();
    lots.sort_by_key(|(lot, listed)| (*lot, &listed.name));
    let settings = lots.into_iter().map(|(_, listed)| {
        let values: BTreeMap<String, f64> = listed.at(|parameter| {
            let share = number(&format!("{}/{parameter}", listed.name)) as f64 / f64::from(1_u32 << 31);
            STRONGEST * (2.0 * share - 1.0)
        });
        (listed.name.clone(), values)
    });
    settings.filter(|(_, values)| !values.is_empty()).take(MOVES).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::provider::explorer::aim::Aim;

    #[test]
    fn the_seed_draws_moves_of_either_sign_within_their_ranges() {
        let listed = |n: usize| {
            let amount = json!({"min": -1.0, "max": 1.0, "default": 0.25, "neutral": 0.0});
            json!({"name": format!("move_{n}"), "module": "m", "axes": {}, "parameters": {"amount": amount}})
        };
        let switch = json!({"name": "a_switch", "module": "m", "axes": {}, "parameters": {}});
        let rows: Vec<_> = (0..20).map(listed).chain([switch]).collect();
        let moves: Vec<ListedMove> = serde_json::from_value(json!(rows)).unwrap();
        let branch = Branch::fresh("branch_b_light", Aim::of(None, 0));
        let draws: Vec<Settings> = (0..50).map(|seed| drawn(&moves, &branch, seed)).collect();
        assert_eq!(draws[7], drawn(&moves, &branch, 7));
        assert!(draws.iter().all(|draw| draw.len() == MOVES && !draw.contains_key("a_switch")));
        let values: Vec<f64> = draws.iter().flat_map(|draw| draw.values().map(|v| v["amount"])).collect();
        assert!(values.iter().all(|value| value.abs() <= 0.5));
        assert!(values.iter().any(|v| *v > 0.3) && values.iter().any(|v| *v < -0.3), "{values:?}");
        let names: std::collections::BTreeSet<_> = draws.iter().flat_map(|draw| draw.keys()).collect();
        assert!(names.len() > 15, "{names:?}");
        let other = Branch::fresh("branch_b_colour", Aim::of(None, 0));
        assert_ne!(draws[7], drawn(&moves, &other, 7));
    }
}
