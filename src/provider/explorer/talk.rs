//! The explorer in a conversation: it makes what it finds in the words, says what it measured, and understands "more",
//! "less", "undo" and "that's all". Where an edit clips, it proposes the move that takes that back, once; at the end it
//! proposes to remember what was decided. It is no language model, and says so when it does not understand.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::conversation::{Message, ToolCall, ToolResult};
use crate::provider::explorer::aim::Aim;
use crate::provider::explorer::branch::{Settings, unkey};
use crate::provider::explorer::candidate::ListedMove;
use crate::provider::explorer::memory::{Answer, Goal};
use crate::provider::explorer::second::part::Partner;
use crate::provider::explorer::second::reading::{Reading, Wish};
use crate::provider::explorer::second::{part, reading};
use crate::provider::explorer::words::setting;

/// How the first message of a conversation begins.
const OPENING: &str = "Conversation with the photographer";
/// How the message begins that asks for the look back.
const CLOSING: &str = "The conversation is over";
/// How the host tells of an undo that the photographer made.
const TAKEN_BACK: &str = "The photographer took back";

/// What "more" adds to the last edit, in shares of it, and what "less" takes off.
const MORE: f64 = 0.6;
const A_LITTLE_MORE: f64 = 0.3;
const MUCH_MORE: f64 = 1.2;
const LESS: f64 = -0.4;

/// What has to clip since the conversation began before it is spoken of, in percent of the picture.
const CLIPPED: f64 = 2.0;
/// How often the same has to be asked for before it is proposed as taste.
const OFTEN: usize = 2;
/// How much of that is proposed.
const TASTES: usize = 2;

const HELP: &str = "I am the built-in explorer and no language model: I read words by lists and look at numbers, not at pictures. Try \"a little warmer\", \"open the shadows\", \"less contrast in the sky\", \"more\", \"less\", \"undo\" or \"that's all\".";

/// Whether the messages are those of a conversation.
pub(super) fn is_talk(messages: &[Message]) -> bool {
    matches!(messages.first(), Some(Message::User { text, .. }) if text.starts_with(OPENING))
}

/// What the photographer wants.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wanted {
    /// The last edit again, by this share of it.
    Again(f64),
    Undo,
    /// The end; whether that is certain.
    End(bool),
    /// What was proposed; whether it is to be made.
    Proposed(bool),
    /// What the words say.
    Wishes,
}

fn wanted(said: &str) -> Wanted {
    let words: Vec<String> = said
        .to_lowercase()
        .replace('’', "'")
        .split(|c: char| !c.is_alphanumeric() && c != '\'')
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    let text = words.join(" ");
    let is = |texts: &[&str]| texts.contains(&text.as_str());
    let has = |word: &str| words.iter().any(|one| one == word);
    if has("undo") || text.starts_with("take it back") || text.starts_with("take that back") {
        return Wanted::Undo;
    }
    if is(&[
        "that's all",
        "that is all",
        "that's it",
        "that is it",
        "i'm done",
        "i am done",
        "we're done",
        "done",
        "finished",
    ]) || text.starts_with("that's all")
        || text.starts_with("that's it")
    {
        return Wanted::End(true);
    }
    if is(&[
        "good",
        "great",
        "perfect",
        "thanks",
        "thank you",
        "ok",
        "okay",
        "nice",
        "lovely",
        "enough",
        "enough for tonight",
        "good night",
    ]) {
        return Wanted::End(false);
    }
    let short = words.len() <= 4;
    if short
        && (has("more") || has("stronger") || has("further") || is(&["again", "once more"]))
        && only(&words)
    {
        let a_little = has("little") || has("bit") || has("slightly") || has("touch");
        let much = has("much") || has("lot");
        return Wanted::Again(if a_little {
            A_LITTLE_MORE
        } else if much {
            MUCH_MORE
        } else {
            MORE
        });
    }
    if short && (has("less") || has("weaker") || is(&["too much", "that's too much"])) && only(&words) {
        return Wanted::Again(LESS);
    }
    Wanted::Wishes
}

/// A plain answer to a proposal; `None` for other words.
fn yes_or_no(said: &str) -> Option<bool> {
    match said.trim().trim_end_matches(['.', '!']).to_lowercase().as_str() {
        "y" | "yes" | "yes please" | "yes, please" | "ok" | "okay" | "sure" => Some(true),
        "n" | "no" | "no thanks" | "no, thanks" => Some(false),
        _ => None,
    }
}

/// What the words aim at, and what is read in them.
fn read(said: &str) -> (Aim, Reading) {
    let wish = Goal { name: "wish".into(), direction: said.to_owned(), intensity: None };
    (Aim::of(Some(&wish), 0), reading::reading("", Some(&wish), true))
}

/// Whether the words are about the last edit and name nothing of their own.
fn only(words: &[String]) -> bool {
    const OWN: [&str; 22] = [
        "a", "again", "bit", "even", "further", "less", "little", "lot", "more", "much", "once", "please",
        "slightly", "still", "stronger", "that", "that's", "too", "touch", "weaker", "than", "yet",
    ];
    words.iter().all(|word| OWN.contains(&word.as_str()))
}

/// Something that was asked for and made.
struct Request {
    /// In the photographer's words.
    said: String,
    /// What was read in them; for "more", what it was more of.
    wishes: Vec<Wish>,
    /// How many of its edits stand.
    edits: usize,
}

/// What is known, from the messages.
#[derive(Default)]
struct Talk {
    moves: Vec<ListedMove>,
    /// What stood after each edit, the present last.
    states: Vec<Settings>,
    /// What was asked for, the last one last.
    requests: Vec<Request>,
    /// What was proposed, the last one last.
    proposed: Vec<&'static Partner>,
    /// Whether the last proposal is still to be answered, or is answered by what was said last.
    open: bool,
    answered: bool,
    /// What the photographer said last.
    said: Option<String>,
    /// What was called since, with its answer if it was good.
    done: Vec<(String, Option<Value>)>,
    closing: bool,
    replies: usize,
}

impl Talk {
    fn of(messages: &[Message]) -> Self {
        let mut talk = Self { states: vec![Settings::new()], ..Self::default() };
        let mut rest = messages.iter().skip(1).peekable();
        while let Some(message) = rest.next() {
            match message {
                Message::User { text, .. } if text.starts_with(CLOSING) => {
                    talk.closing = true;
                    talk.done.clear();
                }
                Message::User { text, .. } if text.starts_with(TAKEN_BACK) => talk.taken_back(),
                Message::User { text, .. } => {
                    talk.said = Some(text.clone());
                    talk.done.clear();
                    talk.answered = std::mem::take(&mut talk.open);
                }
                Message::Assistant { calls, .. } => {
                    talk.replies += 1;
                    let results = match rest.peek() {
                        Some(Message::Results { results }) => results.as_slice(),
                        _ => &[],
                    };
                    calls.iter().for_each(|call| talk.called(call, results));
                }
                Message::Results { .. } => {}
            }
        }
        talk
    }

    fn now(&self) -> Settings {
        self.states.last().cloned().unwrap_or_default()
    }

    fn taken_back(&mut self) {
        if self.states.len() > 1 {
            self.states.pop();
        }
        if let Some(request) = self.requests.iter_mut().rfind(|request| request.edits > 0) {
            request.edits -= 1;
        }
    }

    fn called(&mut self, call: &ToolCall, results: &[ToolResult]) {
        let answer = match Answer::to(call, results) {
            Answer::Good(data) => Some(data),
            Answer::Bad { .. } => None,
        };
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
        match (call.name.as_str(), &answer) {
            ("list_vocabulary", Some(data)) => {
                let rows = data.get("moves").and_then(Value::as_array).into_iter().flatten();
                self.moves = rows.filter_map(|row| ListedMove::deserialize(row).ok()).collect();
            }
            ("apply_primitive", Some(_)) => {
                let mut settings = self.now();
                crate::provider::explorer::branch::edit(&call.name, &arguments, &mut settings, &self.moves);
                self.states.push(settings);
                let goes_on =
                    self.since().iter().any(|(name, answer)| name == "apply_primitive" && answer.is_some());
                if !goes_on {
                    self.requests.push(self.request());
                }
                if let Some(request) = self.requests.last_mut() {
                    request.edits += 1;
                }
            }
            ("propose_edit", Some(data)) => {
                let named = |partner: &&Partner| {
                    arguments.pointer("/moves/0") == Some(&json!(setting(&partner.does)))
                };
                self.proposed.extend(part::partners().iter().find(named));
                self.open = data.get("asked").is_some();
            }
            ("undo", Some(_)) => self.taken_back(),
            _ => {}
        }
        self.done.push((call.name.clone(), answer));
    }

    /// What is asked for now.
    fn request(&self) -> Request {
        let said = self.said.clone().unwrap_or_default();
        let wishes = match self.wanted() {
            Wanted::Wishes => read(&said).1.wishes,
            Wanted::Again(share) if share > 0.0 => {
                self.standing().map(|last| last.wishes.clone()).unwrap_or_default()
            }
            _ => Vec::new(),
        };
        Request { said, wishes, edits: 0 }
    }

    /// The last request of which something stands.
    fn standing(&self) -> Option<&Request> {
        self.requests.iter().rfind(|request| request.edits > 0)
    }

    /// The edits of the last request: from where to where.
    fn last(&self) -> Option<(&Settings, &Settings)> {
        let edits = self.standing()?.edits;
        let before = self.states.len().checked_sub(1 + edits)?;
        Some((self.states.get(before)?, self.states.last()?))
    }

    /// Where the photographer's words lead, as settings to be made; empty where they say nothing that is known.
    fn goal(&self, wanted: Wanted, said: &str) -> Settings {
        let now = self.now();
        let mut goal = Settings::new();
        match wanted {
            Wanted::Again(share) => {
                let Some((before, after)) = self.last() else { return goal };
                for (key, values) in after.iter().filter(|(key, values)| before.get(*key) != Some(values)) {
                    let Some(listed) = self.listed(key) else { continue };
                    let earlier = before.get(key);
                    let further = |(dial, value): (&String, &f64)| {
                        let from = earlier.and_then(|values| values.get(dial)).copied();
                        let step = value - from.unwrap_or_else(|| listed.neutral(dial));
                        (dial.clone(), listed.within(dial, value + share * step))
                    };
                    goal.insert(key.clone(), values.iter().map(further).collect());
                }
            }
            _ => {
                let wished = match (wanted, self.proposed.last()) {
                    (Wanted::Proposed(true), Some(partner)) => partner.does.clone(),
                    (Wanted::Wishes, _) => self.wished(said),
                    _ => Settings::new(),
                };
                for (key, values) in wished {
                    let Some(listed) = self.listed(&key) else { continue };
                    // What is asked for comes on top of what is there.
                    let on_top = |(dial, value): (&String, &f64)| {
                        let there = now.get(&key).and_then(|values| values.get(dial));
                        let value = there.map_or(*value, |there| there + value - listed.neutral(dial));
                        (dial.clone(), listed.within(dial, value))
                    };
                    let values: BTreeMap<String, f64> = values.iter().map(on_top).collect();
                    goal.insert(key, values);
                }
            }
        }
        goal.retain(|key, values| now.get(key) != Some(values));
        goal
    }

    /// The moves for what the words say.
    fn wished(&self, said: &str) -> Settings {
        let (aim, read) = read(said);
        // Words that say nothing are no wish for just any change.
        let known = !read.wishes.is_empty() || aim.measurable;
        let mut wished = Settings::new();
        for part in part::parts(&read, &aim, &self.moves) {
            if known || part.wish.kind.starts_with("move ") {
                part.add(&read.kept, &self.moves, &mut wished);
            }
        }
        wished
    }

    /// What was called since the last proposal, if there was one in this reply.
    fn since(&self) -> &[(String, Option<Value>)] {
        let proposed = self.done.iter().rposition(|(name, _)| name == "propose_edit");
        proposed.and_then(|at| self.done.get(at + 1..)).unwrap_or(&self.done)
    }

    /// What the photographer wants now.
    fn wanted(&self) -> Wanted {
        let said = self.said.as_deref().unwrap_or_default();
        let proposal = self.done.iter().rfind(|(name, _)| name == "propose_edit");
        if let Some(answer) = proposal.and_then(|(_, data)| data.as_ref()?.get("answer")?.as_str()) {
            return Wanted::Proposed(yes_or_no(answer) == Some(true));
        }
        match yes_or_no(said).filter(|_| self.answered) {
            Some(yes) => Wanted::Proposed(yes),
            None => wanted(said),
        }
    }

    /// What clips that did not when the conversation began, and what takes that back; proposed once.
    fn proposal(&self) -> Option<(&'static Partner, String)> {
        let looked = self.since().iter().rfind(|(name, _)| name == "render_preview")?;
        let numbers = looked.1.as_ref()?.get("numbers")?;
        let wished = &self.standing()?.wishes;
        part::partners().iter().find_map(|partner| {
            let (number, colour) = match partner.fault.as_str() {
                "clipped_highlights" => ("clip_high", "white"),
                _ => ("clip_low", "black"),
            };
            let (began, now) = numbers.get(number)?.as_str()?.split_once(" → ")?;
            let more = now.parse::<f64>().ok()? - began.parse::<f64>().ok()?;
            let wanted = wished.iter().any(|wish| partner.unless.contains(&wish.kind));
            let before = self.proposed.iter().any(|earlier| earlier.fault == partner.fault);
            let known = partner.does.keys().all(|name| self.listed(name).is_some());
            let why = format!(
                "{now} % of the picture is {colour} without detail now; it was {began} % when we began."
            );
            (more > CLIPPED && !wanted && !before && known).then_some((partner, why))
        })
    }

    /// What is proposed to be remembered: as taste what was asked for again and stands, as a note all that stands.
    fn to_remember(&self) -> Calls {
        let quoted = |requests: Vec<&Request>| -> Vec<String> {
            requests.iter().map(|request| format!("\"{}\"", request.said)).collect()
        };
        let mut last: BTreeMap<&str, (&Wish, &Request)> = BTreeMap::new();
        for request in &self.requests {
            let named = |wish: &&Wish| wish.kind.starts_with("move ");
            let wishes = request.wishes.iter().filter(|wish| !named(wish));
            last.extend(wishes.map(|wish| (wish.kind.as_str(), (wish, request))));
        }
        let mut calls = Calls::new();
        for (wish, _) in last.values().filter(|(_, request)| request.edits > 0) {
            let likes = wish.liked();
            let asks = |request: &&Request| request.wishes.iter().any(|wish| wish.liked() == likes);
            let said = quoted(self.requests.iter().filter(asks).collect());
            if said.len() >= OFTEN {
                let text =
                    format!("Likes {likes}: asked for it in one conversation with {}.", said.join(" and "));
                calls.push(("propose_taste_update", json!({ "text": text, "category": "appearance" })));
            }
        }
        calls.truncate(TASTES);
        let stands = quoted(self.requests.iter().filter(|request| request.edits > 0).collect());
        if !stands.is_empty() {
            let text = format!("Asked for {}, which became {}.", stands.join(", "), setting(&self.now()));
            calls.push(("propose_notes_update", json!({ "text": text })));
        }
        calls
    }

    fn listed(&self, key: &str) -> Option<&ListedMove> {
        let (name, _) = unkey(key);
        self.moves.iter().find(|listed| listed.name == name)
    }
}

/// The next reply.
pub(super) fn next(messages: &[Message]) -> Message {
    let talk = Talk::of(messages);
    let (text, calls) = decide(&talk);
    let number = talk.replies + 1;
    let calls = (1..).zip(calls).map(|(at, (name, arguments)): (usize, (&str, Value))| ToolCall {
        id: format!("call_{number}_{at}"),
        name: name.into(),
        arguments: arguments.to_string(),
        extra: serde_json::Map::new(),
    });
    Message::Assistant { text, calls: calls.collect(), opaque: Vec::new() }
}

type Calls = Vec<(&'static str, Value)>;

fn decide(talk: &Talk) -> (String, Calls) {
    if talk.closing {
        if talk.done.iter().any(|(name, _)| name == "end_conversation") {
            return ("Good-bye.".into(), Vec::new());
        }
        let kept: Vec<String> = talk.now().keys().map(|key| unkey(key).0.replace('_', " ")).collect();
        let summary = match kept.as_slice() {
            [] => "Nothing was changed in the end.".to_owned(),
            moves => format!("Made together: {}.", moves.join(", ")),
        };
        let mut calls = talk.to_remember();
        calls.push(("end_conversation", json!({ "summary": summary })));
        return (String::new(), calls);
    }
    let said = talk.said.as_deref().unwrap_or_default();
    let wanted = talk.wanted();
    let made: Vec<&(String, Option<Value>)> =
        talk.since().iter().filter(|(name, _)| name != "list_vocabulary").collect();
    if !made.is_empty() {
        let propose = |(partner, why): (&Partner, String)| {
            ("propose_edit", json!({ "moves": [setting(&partner.does)], "why": why }))
        };
        let asks = matches!(wanted, Wanted::Wishes | Wanted::Again(_));
        let proposal = talk.proposal().filter(|_| asks).map(propose);
        return (report(talk, &made, wanted), proposal.into_iter().collect());
    }
    match wanted {
        Wanted::Proposed(false) => ("Then it stays as it is.".into(), Vec::new()),
        Wanted::Undo => {
            let edits = talk.standing().map_or(1, |request| request.edits);
            let undos = std::iter::repeat_n(("undo", json!({})), edits);
            (String::new(), undos.chain([("render_preview", json!({}))]).collect())
        }
        Wanted::End(certain) => (String::new(), vec![("end_conversation", json!({ "certain": certain }))]),
        _ if talk.moves.is_empty() && talk.done.is_empty() => {
            ("Which moves are there?".into(), vec![("list_vocabulary", json!({ "details": true }))])
        }
        _ => {
            let goal = talk.goal(wanted, said);
            if goal.is_empty() {
                let why = match wanted {
                    Wanted::Again(_) => "There is no last edit that could become more or less.",
                    _ => "I found no wish in that.",
                };
                return (format!("{why} {HELP}"), Vec::new());
            }
            let mut calls: Calls = Vec::new();
            for (key, values) in &goal {
                let (name, mask) = unkey(key);
                let mut arguments = json!({ "primitive_name": name, "parameter_values": values });
                if let (Some(mask), Some(fields)) = (mask, arguments.as_object_mut()) {
                    fields.insert("mask".into(), mask);
                }
                calls.push(("apply_primitive", arguments));
            }
            calls.push(("render_preview", json!({})));
            (String::new(), calls)
        }
    }
}

/// What was done and what it measured.
fn report(talk: &Talk, made: &[&(String, Option<Value>)], wanted: Wanted) -> String {
    let ops: Vec<&str> = made.iter().filter_map(|(_, answer)| answer.as_ref()?.get("op")?.as_str()).collect();
    let failed = made.iter().any(|(_, answer)| answer.is_none());
    let mut text = match (wanted, ops.as_slice()) {
        (Wanted::End(_), _) => return "Then let us go on. What shall I change?".into(),
        (Wanted::Undo, []) => "There was nothing to take back.".to_owned(),
        (Wanted::Undo, _) => "Taken back.".to_owned(),
        (_, []) => "That could not be done.".to_owned(),
        (_, ops) => format!("{}.", ops.join("; ")),
    };
    if failed && !ops.is_empty() {
        text.push_str(" Not all of it could be done.");
    }
    let looked =
        made.iter().rev().find(|(name, _)| name == "render_preview").and_then(|(_, answer)| answer.as_ref());
    let rows = looked.and_then(|data| data.get("numbers")).and_then(Value::as_object);
    let moved: Vec<String> = rows
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| {
            value.as_str().filter(|value| value.contains('→')).map(|value| format!("{name} {value}"))
        })
        .collect();
    if !moved.is_empty() {
        text.push_str(&format!(" From the start of our conversation: {}.", moved.join(", ")));
    }
    if talk.replies < 4 {
        text.push_str(" I read words by lists and see numbers only; say \"more\", \"less\" or \"undo\".");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_answers_are_understood_and_wishes_are_not_taken_for_them() {
        for (said, expected) in [
            ("More!", Wanted::Again(MORE)),
            ("a little more", Wanted::Again(A_LITTLE_MORE)),
            ("much more, please", Wanted::Again(MUCH_MORE)),
            ("less", Wanted::Again(LESS)),
            ("That’s too much.", Wanted::Again(LESS)),
            ("Undo", Wanted::Undo),
            ("take that back please", Wanted::Undo),
            ("that's all, thanks", Wanted::End(true)),
            ("Perfect.", Wanted::End(false)),
            ("enough for tonight", Wanted::End(false)),
            ("more contrast", Wanted::Wishes),
            ("less green", Wanted::Wishes),
            ("a little warmer", Wanted::Wishes),
        ] {
            assert_eq!(wanted(said), expected, "{said}");
        }
    }
}
