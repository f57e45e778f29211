//! A protocol that a model wrote: cut out of its reply, and brought down to what a session allows anyway.
//!
//! Nothing of it is trusted. What would choose a model or a referee is taken out, a variable can not speak for the
//! program, tools that the session does not offer are dropped, and no budget is larger than the photographer's.
//! What is left goes through the loader like any other file.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::finding::{Code, Dialect, Finding, Findings};
use super::source::{Format, Source};
use crate::budget::Budget;
use crate::tools::ATTEMPT_DONE;
use base::hint::did_you_mean;

/// Fields by which a protocol says who works and who judges, and under which provider.
const CHOICES: [&str; 3] = ["model", "provider", "referee"];

/// What a session allows anyway.
#[derive(Clone, Copy, Debug)]
pub struct Limits<'a> {
    /// What it may spend.
    pub budget: &'a Budget,
    /// The tools that it offers.
    pub tools: &'a BTreeSet<String>,
}

/// A reply, brought down to what a session allows.
#[derive(Clone, Debug, Default)]
pub struct Tidied {
    /// The protocol as JSON: the same text for the same reply under the same limits; empty when there is none.
    pub text: String,
    /// What was dropped and clamped, each in a sentence.
    pub remarks: Vec<String>,
    /// What is wrong with it that the loader would not see.
    pub findings: Vec<Finding>,
}

/// Takes the protocol out of a model's reply: what stands from the first brace to the last, be it within a fence
/// or between words.
pub fn tidy(reply: &str, limits: Limits<'_>) -> Tidied {
    let mut findings = Findings { dialect: Dialect::Strict, ..Findings::default() };
    let inside = reply.find('{').zip(reply.rfind('}')).and_then(|(from, to)| reply.get(from..=to));
    let read = match inside {
        Some(json) => Source::read(json, Format::Json).map_err(|(_, why)| format!("it is not JSON: {why}")),
        None => Err("there is no JSON object in the reply".to_owned()),
    };
    let (mut fields, twice) = match read {
        Ok(Source { value: Value::Object(fields), twice, .. }) => (fields, twice),
        Ok(_) => (Map::new(), Vec::new()),
        Err(message) => {
            findings.add(Code::P001, "", message);
            return Tidied { findings: findings.list, ..Tidied::default() };
        }
    };
    for path in twice {
        findings.add(Code::P001, &path, "it is given twice");
    }
    let mut remarks = Vec::new();
    for field in CHOICES {
        if fields.remove(field).is_some() {
            remarks.push(format!("`{field}` was removed: only you choose the model and the referee"));
        }
    }
    // Whatever it calls itself, it is read by the rules of version 2, now and later.
    fields.insert("protocolVersion".into(), 2.into());
    for (name, variable) in objects(fields.get_mut("variables")) {
        if variable.get("trust").is_some_and(|trust| trust == "host") {
            variable.insert("trust".into(), "user".into());
            remarks.push(format!("the trust of the variable `{name}` was changed from `host` to `user`"));
        }
    }
    clamp(fields.get_mut("budget"), limits.budget, "budget", &mut remarks);
    let states = fields.get_mut("states").and_then(Value::as_array_mut);
    for (index, state) in states.into_iter().flatten().enumerate() {
        let Some(state) = state.as_object_mut() else { continue };
        let name = state.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        clamp(state.get_mut("budget"), limits.budget, &format!("budget of `{name}`"), &mut remarks);
        let works = state.get("kind").is_none_or(|kind| kind == "task" || kind == "judge");
        let left = match state.get_mut("tools").map(Value::as_array_mut) {
            Some(Some(tools)) => {
                drop_tools(tools, &name, limits.tools, &mut remarks);
                tools.len()
            }
            // Of another type: the loader says so.
            Some(None) => continue,
            None => 0,
        };
        if works && left == 0 {
            let message = format!("`{name}` is left without a tool: name what may be called there");
            findings.add(Code::P030, format!("states[{index}].tools"), message);
        }
    }
    let text = serde_json::to_string_pretty(&fields).unwrap_or_default() + "\n";
    Tidied { text, remarks, findings: findings.list }
}

/// The objects among the fields of an object.
fn objects(value: Option<&mut Value>) -> impl Iterator<Item = (&String, &mut Map<String, Value>)> {
    let fields = value.and_then(Value::as_object_mut);
    fields.into_iter().flatten().filter_map(|(name, value)| Some((name, value.as_object_mut()?)))
}

fn drop_tools(tools: &mut Vec<Value>, state: &str, allowed: &BTreeSet<String>, remarks: &mut Vec<String>) {
    tools.retain(|tool| {
        let Some(name) = tool.as_str() else { return true };
        let kept = allowed.contains(name);
        // It is offered in every state, and listed in none.
        if !kept && name != ATTEMPT_DONE {
            let hint = did_you_mean(name, allowed.iter().map(String::as_str));
            remarks
                .push(format!("the tool `{name}` was removed from `{state}`: sessions do not have it{hint}"));
        }
        kept
    });
}

/// Brings every cap down to the photographer's.
fn clamp(spec: Option<&mut Value>, budget: &Budget, what: &str, remarks: &mut Vec<String>) {
    let Some(spec) = spec.and_then(Value::as_object_mut) else { return };
    let whole = [
        ("time_seconds", Some(budget.time_seconds)),
        ("max_iterations", Some(budget.max_iterations)),
        ("max_branches", Some(budget.max_branches)),
        ("max_model_calls", Some(budget.max_model_calls())),
        ("max_tokens", budget.max_tokens),
        ("max_renders", budget.max_renders),
    ];
    let cost = budget.max_cost_micro_usd.map(|micro| Value::from(micro as f64 / 1e6));
    let caps = whole.into_iter().map(|(name, cap)| (name, cap.map(Value::from)));
    for (name, cap) in caps.chain([("max_cost_usd", cost)]) {
        let number = |value: &Value| value.as_f64();
        let (Some(asked), Some(cap)) = (spec.get(name).and_then(number), cap) else { continue };
        if number(&cap).is_some_and(|cap| asked > cap) {
            remarks.push(format!("`{name}` in the {what} was lowered from {asked} to your limit of {cap}"));
            spec.insert(name.into(), cap);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tidied(reply: &str) -> Tidied {
        let budget = Budget::parse("time=5m,iterations=20,branches=1,cost=0.50").unwrap();
        let tools = ["branch", "render_preview"].map(str::to_owned).into();
        tidy(reply, Limits { budget: &budget, tools: &tools })
    }

    fn value(reply: &str) -> (Value, Vec<String>) {
        let tidied = tidied(reply);
        (serde_json::from_str(&tidied.text).unwrap(), tidied.remarks)
    }

    #[test]
    fn the_protocol_is_taken_out_of_whatever_stands_around_it() {
        let bare = r#"{"states": []}"#;
        let expected = tidied(bare).text;
        assert!(expected.contains("\"protocolVersion\": 2"), "{expected}");
        for reply in [format!("```json\n{bare}\n```"), format!("Here it is:\n{bare}\nGood luck!")] {
            assert_eq!(tidied(&reply).text, expected);
        }
        for (reply, what) in [
            ("I would rather not.", "no JSON object"),
            ("} and {", "no JSON object"),
            ("{\"states\": [}", "not JSON"),
        ] {
            let tidied = tidied(reply);
            assert!(tidied.text.is_empty() && tidied.findings[0].message.contains(what), "{tidied:?}");
        }
        let twice = &tidied(r#"{"name": "a", "name": "b"}"#).findings[0];
        assert_eq!((twice.code, twice.path.as_str()), (Code::P001, "name"));
    }

    #[test]
    fn it_chooses_neither_who_works_nor_who_judges_and_speaks_for_nobody() {
        let (value, remarks) = value(
            r#"{"provider": "x", "model": "y", "referee": {"provider": "z"}, "protocolVersion": 1,
                "variables": {"a": {"type": "string", "trust": "host"}, "b": {"trust": "image"}}}"#,
        );
        assert_eq!(remarks.len(), 4, "{remarks:?}");
        assert_eq!(
            value,
            serde_json::json!({"protocolVersion": 2, "variables": {"a": {"type": "string", "trust": "user"}, "b": {"trust": "image"}}})
        );
    }

    #[test]
    fn tools_that_are_not_offered_are_dropped_and_an_empty_state_is_a_finding() {
        let tidied = tidied(
            r#"{"states": [
                {"name": "A", "tools": ["render_preveiw", "branch", "attempt_done", "rollback"]},
                {"name": "B", "kind": "judge", "tools": ["promote"]},
                {"name": "C"},
                {"name": "D", "kind": "final"},
                {"name": "E", "tools": "all"}]}"#,
        );
        let value: Value = serde_json::from_str(&tidied.text).unwrap();
        assert_eq!(value["states"][0]["tools"], serde_json::json!(["branch"]));
        assert_eq!(tidied.remarks.len(), 3, "{:?}", tidied.remarks);
        assert!(tidied.remarks[0].contains("did you mean `render_preview`"), "{:?}", tidied.remarks);
        let paths: Vec<&str> = tidied.findings.iter().map(|f| f.path.as_str()).collect();
        assert_eq!(paths, ["states[1].tools", "states[2].tools"]);
    }

    #[test]
    fn no_budget_is_larger_than_the_photographers() {
        let (value, remarks) = value(
            r#"{"budget": {"time_seconds": 9000, "max_iterations": 20, "max_cost_usd": 3, "max_tokens": 5, "max_model_calls": 41},
                "states": [{"name": "A", "tools": ["branch"], "budget": {"max_branches": 7}}]}"#,
        );
        assert_eq!(
            value["budget"],
            serde_json::json!({"time_seconds": 300, "max_iterations": 20, "max_cost_usd": 0.5, "max_tokens": 5, "max_model_calls": 40})
        );
        assert_eq!(value["states"][0]["budget"]["max_branches"], 1);
        assert_eq!(remarks.len(), 4, "{remarks:?}");
        assert!(
            remarks.contains(
                &"`time_seconds` in the budget was lowered from 9000 to your limit of 300".to_owned()
            ),
            "{remarks:?}"
        );
    }
}
