//! The two sessions between which every other lies: one that does nothing, and one that knows the answer.
//!
//! Both are scripts of [`crate::provider::script`] and run as any session does, so that what they score tells
//! whether scenario and metrics are sound: `recovery` is 0 for the one and 1 for the other.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::eval::manifest::Contestant;
use crate::eval::scenario::Scenario;
use base::ids::RefName;

/// Whether a contestant is one of them. They follow a script, and so no protocol.
pub fn is(who: &Contestant) -> bool {
    ["idle", "oracle"].contains(&who.provider.as_str())
}

/// A script that makes every branch of the plan and edits none.
pub fn idle(scenario: &Scenario) -> String {
    script(scenario, false)
}

/// A script that makes the hidden edit on every branch.
pub fn oracle(scenario: &Scenario) -> String {
    script(scenario, true)
}

fn script(scenario: &Scenario, answer: bool) -> String {
    let mut script = String::new();
    let mut reply = |calls: &[(&str, Value)]| {
        let calls: Vec<String> = calls
            .iter()
            // A JSON text is a TOML basic string once it is quoted as JSON again.
            .map(|(name, arguments)| {
                format!("{{ name = \"{name}\", arguments = {} }}", json!(arguments.to_string()))
            })
            .collect();
        let _ = writeln!(script, "[[reply]]\ncalls = [{}]\n", calls.join(", "));
    };
    let restated: Vec<Value> = scenario
        .vectors
        .iter()
        .map(|vector| json!({ "name": vector.name, "restated": vector.direction }))
        .collect();
    reply(&[("read_context", json!({}))]);
    reply(&[("confirm_session", json!({ "vectors": restated }))]);
    for branch in branches(scenario) {
        reply(&[("branch", json!({ "name": branch }))]);
        if answer {
            for hidden in &scenario.hidden {
                let mut arguments =
                    json!({ "primitive_name": hidden.name, "parameter_values": hidden.values });
                if let (Some(mask), Some(object)) = (&hidden.mask, arguments.as_object_mut()) {
                    object.insert("mask".into(), json!(mask));
                }
                reply(&[("apply_primitive", arguments)]);
            }
        }
        let (score, reasoning) = match answer {
            true => (5, "This is the edit that the scenario hides."),
            false => (1, "Nothing was done."),
        };
        reply(&[(
            "record_judgment",
            json!({ "branch": branch, "judged_score": score, "judged_reasoning": reasoning }),
        )]);
    }
    reply(&[("end_mode_b_session", json!({ "session_summary": "A measuring session." }))]);
    script
}

/// The branches of the plan.
fn branches(scenario: &Scenario) -> Vec<String> {
    let names = scenario.vectors.iter().map(|vector| format!("branch_b_{}", vector.name));
    let named: Vec<String> = names.filter(|name| name.parse::<RefName>().is_ok()).collect();
    if named.is_empty() { vec!["branch_b_depth_1".into()] } else { named }
}
