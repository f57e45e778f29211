//! An explorer with luck: it forgets a third of the moves, others with each seed and each plan.
//!
//! A comparison has to be tried on contestants that are equal and yet never do the same. This one is equal to
//! itself under another seed, and a little worse than the explorer that remembers everything. What it forgets on
//! one photo says nothing of the next: luck that held for a whole run would make all of its scenarios one.

use serde_json::Value;

use super::candidate::hash;
use crate::conversation::Message;

/// The conversation as it is remembered: without some of the moves that `list_vocabulary` told.
pub(super) fn remembered(messages: &[Message], seed: u64) -> Vec<Message> {
    let plan = messages.iter().find_map(|message| match message {
        Message::User { text, .. } => Some(text.as_str()),
        _ => None,
    });
    // The baseline's commit knows when it was made; the same seed is to have the same luck again.
    let lines = plan.unwrap_or_default().lines().filter(|line| !line.starts_with("Baseline:"));
    let luck = lines.fold(seed, |luck, line| hash(line, luck));
    let mut messages = messages.to_vec();
    let results = messages.iter_mut().filter_map(|message| match message {
        Message::Results { results } => Some(results),
        _ => None,
    });
    for result in results.flatten().filter(|result| result.name == "list_vocabulary" && !result.is_error) {
        // The last line is the budget that is left.
        let Some((json, budget)) = result.text.rsplit_once('\n') else { continue };
        let Ok(mut value) = serde_json::from_str::<Value>(json) else { continue };
        if let Some(moves) = value.pointer_mut("/data/moves").and_then(Value::as_array_mut) {
            // The upper bits of this hash are the well-mixed ones.
            let number = |row: &Value| hash(row["name"].as_str().unwrap_or_default(), luck) >> 33;
            moves.retain(|row| !number(row).is_multiple_of(3));
        }
        result.text = format!("{value}\n{budget}");
    }
    messages
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::conversation::ToolResult;

    fn told(plan: &str, name: &str) -> Vec<Message> {
        let moves: Vec<Value> = (0..60).map(|n| json!({ "name": format!("move_{n}") })).collect();
        let text = format!("{}\nleft: 3", json!({ "data": { "moves": moves }, "ok": true }));
        let (call_id, name) = ("c".to_owned(), name.to_owned());
        let (images, figures) = (Vec::new(), serde_json::Map::new());
        let result = ToolResult { call_id, name, text, images, is_error: false, figures };
        let plan = Message::User { text: plan.into(), images: Vec::new() };
        vec![plan, Message::Results { results: vec![result] }]
    }

    fn names(messages: &[Message]) -> Vec<String> {
        let [_, Message::Results { results }] = messages else { panic!("{messages:?}") };
        let (json, budget) = results[0].text.rsplit_once('\n').unwrap();
        assert_eq!(budget, "left: 3");
        let value: Value = serde_json::from_str(json).unwrap();
        value["data"]["moves"]
            .as_array()
            .unwrap()
            .iter()
            .map(|m| m["name"].as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn a_third_is_forgotten_and_seed_and_plan_say_which() {
        let one = names(&remembered(&told("plan", "list_vocabulary"), 1));
        assert!((30..=50).contains(&one.len()), "{}", one.len());
        assert_eq!(one, names(&remembered(&told("plan", "list_vocabulary"), 1)));
        assert_ne!(one, names(&remembered(&told("plan", "list_vocabulary"), 2)));
        assert_ne!(one, names(&remembered(&told("another", "list_vocabulary"), 1)));
        assert_eq!(one, names(&remembered(&told("plan\nBaseline: now", "list_vocabulary"), 1)));
        assert_eq!(remembered(&told("plan", "read_context"), 1), told("plan", "read_context"));
    }
}
