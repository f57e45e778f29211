//! The lists of `words.toml`, and how a text is cut into what they name.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::Value;

use super::reading::{PLAIN, Size};

/// `words.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Words {
    pub act: Vec<ActRow>,
    pub object: Vec<ObjectRow>,
    pub place: Vec<PlaceRow>,
    pub size: Vec<SizeRow>,
    pub complaint: Vec<ComplaintRow>,
    pub stops: BTreeMap<String, f64>,
    pub cut: Cut,
    /// What is done for each kind.
    pub wish: Vec<super::part::Recipe>,
    /// What takes back a side effect.
    pub partner: Vec<super::part::Partner>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ActRow {
    pub words: Vec<String>,
    pub act: Act,
    pub sign: i8,
    #[serde(default)]
    pub needs_object: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Act {
    Light,
    Open,
    Deep,
    Warmth,
    Tint,
    Richness,
    More,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ObjectRow {
    pub words: Vec<String>,
    pub zone: Option<String>,
    pub hue: Option<String>,
    pub cast: Option<i8>,
    pub quality: Option<String>,
    pub size: Option<String>,
    #[serde(default)]
    pub needs_act: bool,
    pub turn: Option<i8>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlaceRow {
    pub words: Vec<String>,
    pub mask: Value,
    pub sure: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SizeRow {
    pub words: Vec<String>,
    pub size: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ComplaintRow {
    pub words: Vec<String>,
    pub kind: String,
    pub sign: i8,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cut {
    pub ends: Vec<String>,
    pub silent: Vec<String>,
    pub purpose: Vec<String>,
    pub tells: Vec<String>,
    pub spares: Vec<String>,
    pub confines: Vec<String>,
    pub bare: Vec<String>,
    pub again: Vec<String>,
    pub fillers: Vec<String>,
}

/// The words, read once. Were the file wrong, nothing would be read; a test reads it.
pub(super) fn words() -> &'static Words {
    static WORDS: OnceLock<Words> = OnceLock::new();
    WORDS.get_or_init(|| toml::from_str(include_str!("words.toml")).unwrap_or_default())
}

/// What is meant by a word or phrase.
#[derive(Clone, Copy)]
pub(super) enum Token {
    Act(&'static ActRow),
    Object(&'static ObjectRow),
    Place(&'static PlaceRow),
    Complaint(&'static ComplaintRow),
    Spare,
    Again,
    Tells,
    /// In no list.
    Other,
}

/// A part of a sentence.
pub(super) struct Clause {
    pub text: String,
    /// Whether it only says what for, or how far.
    pub aside: bool,
    /// Whether an "and" joins it to the one before.
    pub joined: bool,
}

/// The word of a token that says nothing at all.
pub(super) const FILLER: &str = "-";

/// The clauses of a sentence.
pub(super) fn clauses(sentence: &str) -> Vec<Clause> {
    let cut = &words().cut;
    let padded = |text: &str| format!(" {} ", text.trim());
    let mut found = Vec::new();
    for part in sentence.split(',') {
        let mut part = padded(part);
        // A purpose ends with its comma.
        let purpose = |part: &str| {
            let starts = cut.purpose.iter().map(String::as_str).chain(["until"]);
            starts.filter_map(|words| part.find(&format!(" {words} "))).min()
        };
        let tail = purpose(&part).map(|at| part.split_off(at));
        for end in &cut.ends {
            part = part.replace(end.as_str(), " , ");
        }
        found.extend(part.split(',').enumerate().map(|(at, clause)| Clause {
            text: padded(clause),
            aside: false,
            joined: at > 0,
        }));
        found.extend(tail.map(|tail| Clause { text: padded(&tail), aside: true, joined: false }));
    }
    found.retain(|clause| !clause.text.trim().is_empty());
    found
}

/// Phrases with an "and" in them, such as "black and white", held together.
pub(super) fn together(text: &str) -> String {
    let stops = words().stops.keys().map(String::as_str);
    let phrases = lexicon().iter().map(|(phrase, _)| *phrase).chain(stops);
    let phrases = phrases.filter(|phrase| phrase.contains(" and "));
    phrases.fold(text.to_owned(), |text, phrase| text.replace(phrase, &phrase.replace(" and ", " & ")))
}

pub(super) fn list(clause: &str) -> Vec<&str> {
    clause
        .split(|c: char| !(c.is_alphanumeric() || matches!(c, '\'' | '-' | '&' | '.')))
        .filter(|word| !word.is_empty())
        .collect()
}

/// Whether the words begin with a phrase, and how many words that takes.
pub(super) fn fits(words: &[&str], phrase: &str) -> Option<usize> {
    let mut count = 0;
    for pattern in phrase.split(' ') {
        let word = words.get(count)?;
        let fits = match pattern.strip_suffix('*') {
            Some(stem) => word.starts_with(stem),
            None => *word == pattern || (*word == "&" && pattern == "and"),
        };
        if !fits {
            return None;
        }
        count += 1;
    }
    Some(count)
}

/// The tokens of a clause, the longest phrase first.
pub(super) fn tokens(clause: &str) -> Vec<(Token, &'static str)> {
    let lexicon = lexicon();
    let spoken = list(clause);
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = spoken.get(at..).filter(|rest| !rest.is_empty()) {
        let best = lexicon
            .iter()
            .filter_map(|(phrase, token)| Some((fits(rest, phrase)?, phrase.len(), *phrase, *token)))
            .max_by_key(|(count, length, ..)| (*count, *length));
        match best {
            Some((count, _, phrase, token)) => {
                let noun = rest.get(count).filter(|next| {
                    let known = |list: &[String]| list.iter().any(|word| word == *next);
                    let cut = &words().cut;
                    !known(&cut.fillers)
                        && !known(&cut.again)
                        && !lexicon.iter().any(|(p, _)| fits(&[*next], p).is_some())
                });
                let bare = count == 1
                    && matches!(token, Token::Act(_))
                    && words().cut.bare.iter().any(|word| rest.first() == Some(&word.as_str()));
                if bare && noun.is_some() {
                    found.push((Token::Other, ""));
                    at += 1;
                    continue;
                }
                found.push((token, phrase.trim_end_matches('*')));
                // The ending of a comparative tells it from an order.
                if let (Token::Act(_), Some(word)) = (token, rest.get(count - 1))
                    && let Some(last) = found.last_mut()
                {
                    if word.ends_with("er") {
                        last.1 = "…er";
                    } else if word.ends_with("ed") {
                        last.1 = "…ed";
                    }
                }
                at += count;
            }
            None => {
                let filler = rest.first().is_some_and(|word| words().cut.fillers.iter().any(|f| f == word));
                found.push((Token::Other, if filler { FILLER } else { "" }));
                at += 1;
            }
        }
    }
    found
}

pub(super) fn lexicon() -> &'static [(&'static str, Token)] {
    static LEXICON: OnceLock<Vec<(&'static str, Token)>> = OnceLock::new();
    LEXICON.get_or_init(|| {
        let words = words();
        let mut all: Vec<(&'static str, Token)> = Vec::new();
        for row in &words.act {
            all.extend(row.words.iter().map(|word| (word.as_str(), Token::Act(row))));
        }
        for row in &words.object {
            all.extend(row.words.iter().map(|word| (word.as_str(), Token::Object(row))));
        }
        for row in &words.place {
            all.extend(row.words.iter().map(|word| (word.as_str(), Token::Place(row))));
        }
        for row in &words.complaint {
            all.extend(row.words.iter().map(|word| (word.as_str(), Token::Complaint(row))));
        }
        let plain = [
            (&words.cut.spares, Token::Spare),
            (&words.cut.again, Token::Again),
            (&words.cut.tells, Token::Tells),
        ];
        for (list, token) in plain {
            all.extend(list.iter().map(|word| (word.as_str(), token)));
        }
        all
    })
}

/// The sizes that a clause says, stops first.
pub(super) fn sizes(clause: &str) -> Vec<Size> {
    let words = words();
    let mut found = Vec::new();
    let longest = words
        .stops
        .iter()
        .filter(|(phrase, _)| clause.contains(&format!(" {} ", phrase.replace(" and ", " & "))));
    if let Some((_, stops)) = longest.max_by_key(|(phrase, _)| phrase.len()) {
        found.push(Size::Stops(*stops));
    }
    let spoken = list(clause);
    for pair in spoken.windows(2) {
        if let [number, "ev" | "stop" | "stops"] = pair
            && let Ok(stops) = number.trim_matches(['+', '-']).parse::<f64>()
        {
            found.push(Size::Stops(stops));
        }
    }
    for at in 0..spoken.len() {
        let rest = spoken.get(at..).unwrap_or_default();
        let hits = words.size.iter().flat_map(|row| row.words.iter().map(move |phrase| (phrase, &row.size)));
        let best =
            hits.filter_map(|(phrase, size)| Some((fits(rest, phrase)?, size))).max_by_key(|hit| hit.0);
        found.extend(best.and_then(|(_, size)| size_named(size)));
    }
    found
}

/// The size that words on an intensity say.
pub(super) fn size_of(words: &str) -> Option<Size> {
    size_named(words).or_else(|| sizes(&format!(" {} ", words.to_lowercase())).first().copied())
}

pub(super) fn size_named(name: &str) -> Option<Size> {
    Some(match name {
        "gentle" => Size::Of(0),
        "plain" => PLAIN,
        "clear" => Size::Of(2),
        "strong" => Size::Of(3),
        "normal" => Size::Normal,
        "neutral" => Size::Neutral,
        _ => return None,
    })
}
