//! The explorer in a conversation: what it proposes besides, and what it proposes to remember.

use serde_json::{Value, json};

use super::super::*;
use crate::conversation::ToolResult;

/// A conversation about a picture whose highlights clip as soon as it is half a stop brighter.
struct Talk {
    messages: Vec<Message>,
    /// What the photographer answers where she is asked; without an answer the reply waits.
    answer: Option<&'static str>,
    exposures: Vec<f64>,
    called: Vec<(String, Value)>,
}

impl Talk {
    fn new(answer: Option<&'static str>) -> Self {
        let text = "Conversation with the photographer about photo `cup`.".to_owned();
        let messages = vec![Message::User { text, images: Vec::new() }];
        Self { messages, answer, exposures: vec![0.0], called: Vec::new() }
    }

    /// What is answered to a message.
    fn say(&mut self, text: &str) -> String {
        self.messages.push(Message::User { text: text.to_owned(), images: Vec::new() });
        loop {
            let reply = Explorer::new(0).reply("", &[], &self.messages).message;
            self.messages.push(reply.clone());
            let Message::Assistant { text, calls, .. } = reply else { panic!("{reply:?}") };
            if calls.is_empty() {
                return text;
            }
            let results: Vec<ToolResult> = calls.iter().map(|call| self.result(call)).collect();
            let waits = results
                .iter()
                .any(|result| result.text.contains("asked") || result.name == "end_conversation");
            self.messages.push(Message::Results { results });
            if waits {
                return text;
            }
        }
    }

    fn result(&mut self, call: &ToolCall) -> ToolResult {
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
        let parameter = |dial: &str, min: f64, max: f64, default: f64| json!({ dial: { "min": min, "max": max, "default": default, "neutral": 0.0 } });
        let data = match call.name.as_str() {
            "list_vocabulary" => json!({ "moves": [
                { "name": "exposure", "module": "exposure", "axes": { "brightness": 1 }, "parameters": parameter("ev", -3.0, 3.0, 0.5) },
                { "name": "warmth", "module": "temperature", "axes": { "warmth": 1 }, "parameters": parameter("shift", -60.0, 60.0, 20.0) },
                { "name": "highlights_recover", "module": "toneequal", "axes": { "highlights": -1 }, "parameters": parameter("amount", 0.0, 2.0, 0.8) },
            ] }),
            "apply_primitive" => {
                let now = self.exposures.last().copied().unwrap();
                let ev = arguments.pointer("/parameter_values/ev").and_then(Value::as_f64);
                self.exposures.push(ev.unwrap_or(now));
                json!({ "op": arguments["primitive_name"] })
            }
            "undo" => {
                self.exposures.pop().unwrap();
                json!({ "op": "taken back" })
            }
            "render_preview" => {
                let clips = 22.0 * self.exposures.last().unwrap();
                json!({ "numbers": { "clip_high": format!("0.0 → {clips:.1}"), "mean_L": "39.4 → 44.7" } })
            }
            "propose_edit" => match self.answer {
                Some(answer) => json!({ "answer": answer }),
                None => json!({ "asked": true, "answer": "comes with what the photographer says next" }),
            },
            _ => json!({}),
        };
        self.called.push((call.name.clone(), arguments));
        ToolResult {
            call_id: call.id.clone(),
            name: call.name.clone(),
            text: json!({ "ok": true, "data": data }).to_string(),
            images: Vec::new(),
            is_error: false,
            figures: Map::new(),
        }
    }

    fn calls(&self, name: &str) -> Vec<&Value> {
        self.called.iter().filter(|(called, _)| called == name).map(|(_, arguments)| arguments).collect()
    }
}

#[test]
fn what_clips_is_spoken_of_once_and_left_after_a_no() {
    let mut talk = Talk::new(Some("no"));
    talk.say("warmer, please");
    assert!(talk.calls("propose_edit").is_empty(), "nothing clips");
    assert_eq!(talk.say("and brighter"), "Then it stays as it is.");
    let proposed = talk.calls("propose_edit");
    assert_eq!(proposed.len(), 1);
    assert_eq!(proposed[0]["moves"], json!(["highlights_recover amount=0.6"]));
    assert!(
        proposed[0]["why"].as_str().unwrap().starts_with("11.0 % of the picture is white"),
        "{proposed:?}"
    );
    talk.say("brighter still");
    assert_eq!(talk.calls("propose_edit").len(), 1, "after a no it does not come back to it");
    let made = talk.calls("apply_primitive");
    assert!(made.iter().all(|call| call["primitive_name"] != "highlights_recover"), "{made:?}");
}

#[test]
fn what_is_proposed_is_made_after_a_yes_and_taken_back_alone() {
    for answer in [Some("yes"), None] {
        let mut talk = Talk::new(answer);
        talk.say("brighter");
        if answer.is_none() {
            let recovered = talk
                .calls("apply_primitive")
                .iter()
                .any(|call| call["primitive_name"] == "highlights_recover");
            assert!(!recovered, "nobody has said yes");
            talk.say("Yes, please.");
        }
        let last = talk.calls("apply_primitive").last().map(|call| (*call).clone()).unwrap();
        assert_eq!(
            (&last["primitive_name"], &last["parameter_values"]),
            (&json!("highlights_recover"), &json!({ "amount": 0.6 }))
        );
        talk.say("undo");
        assert_eq!(talk.calls("undo").len(), 1, "{answer:?}: the request before it stands");
    }
}

#[test]
fn words_that_answer_nothing_go_on_with_the_conversation() {
    let mut talk = Talk::new(None);
    talk.say("brighter");
    talk.say("warmer");
    let made: Vec<&Value> =
        talk.calls("apply_primitive").iter().map(|call| &call["primitive_name"]).collect();
    assert_eq!(made, ["exposure", "warmth"]);
    assert!(talk.say("yes").contains("I found no wish"), "the proposal is past");
}

#[test]
fn what_was_asked_for_again_and_stands_is_proposed_as_taste_and_all_that_stands_as_a_note() {
    let mut talk = Talk::new(Some("no"));
    talk.say("warmer, please");
    talk.say("and brighter");
    talk.say("undo");
    talk.say("brighter after all");
    talk.say("The conversation is over: the photographer is done.");
    let taste = talk.calls("propose_taste_update");
    let [taste] = taste.as_slice() else { panic!("{taste:?}") };
    let text = "Likes more brightness: asked for it in one conversation with \"and brighter\" and \"brighter after all\".";
    assert_eq!(taste["text"], text);
    let notes = talk.calls("propose_notes_update");
    let text = "Asked for \"warmer, please\", \"brighter after all\", which became exposure ev=0.5 with warmth shift=22.";
    assert_eq!((notes.len(), &notes[0]["text"]), (1, &json!(text)));

    let mut talk = Talk::new(None);
    talk.say("brighter");
    talk.say("brighter");
    talk.say("undo");
    talk.say("The conversation is over: the photographer is done.");
    assert!(talk.calls("propose_taste_update").is_empty(), "what was taken back is not liked");

    let mut talk = Talk::new(None);
    talk.say("paint a horse");
    talk.say("The conversation is over: the photographer is done.");
    let names: Vec<&str> = talk.called.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["list_vocabulary", "end_conversation"]);
}
