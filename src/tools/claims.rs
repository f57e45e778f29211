//! What an agent says that it did, held against what was done. It may be worded in any way, also as a tool put it;
//! names and numbers have to be right.

use crate::tools::context::History;
use base::error::{ErrorCode, Fault};
use engine::photo::{AppliedMove, MoveId};

/// The name under which retouched spots are in a history.
const SPOTS: &str = "apply_spot";
/// Words for the one value of a move.
const VALUE: [&str; 8] = ["value", "val", "amount", "strength", "intensity", "by", "to", "opacity"];
/// Keys of a mask.
const PLACE: [&str; 10] =
    ["center", "radius", "feather", "rotation", "anchor", "angle", "width", "refine", "blur", "softness"];
/// How many words a move's name may have.
const WORDS: usize = 4;

/// Checks a claimed move against those made: each name in it, and each number that it gives for one.
///
/// # Errors
/// `INVALID_INPUT` says what was not done, and lists the moves in effect as `real_moves`.
pub fn verify_claim(claim: &str, history: &History<'_>) -> Result<(), Fault> {
    // What a tool said about the state, word for word.
    if history.lines.iter().any(|line| line.trim() == claim.trim()) {
        return Ok(());
    }
    let real: Vec<String> = history.moves.iter().map(|made| history.standing.words(made)).collect();
    let refuse = |message: String| {
        let there = if real.is_empty() { "none".to_owned() } else { real.join("; ") };
        Err(Fault::new(ErrorCode::InvalidInput, format!("{message}; the moves in effect are: {there}"))
            .with("field", "key_moves")
            .with("real_moves", real.clone()))
    };
    let mentions = mentions(claim, history);
    if mentions.is_empty() {
        let word = claim.split_whitespace().next().unwrap_or_default();
        return refuse(format!("`{word}` is not a move that was applied on this branch"));
    }
    for mention in &mentions {
        let named = |made: &&AppliedMove| {
            let id = mention.number.map(|number| MoveId { name: mention.name.clone(), number });
            made.name == mention.name && (id.is_none() || id == history.standing.id(made))
        };
        let candidates: Vec<&AppliedMove> = history.moves.iter().filter(named).collect();
        if candidates.is_empty() {
            return refuse(format!("`{}` was not applied on this branch", mention.id()));
        }
        if !candidates.iter().any(|made| mention.agrees(made)) {
            return refuse(format!("`{}` does not have the values of `{claim}`", mention.id()));
        }
    }
    Ok(())
}

/// A move as a claim names it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Mention {
    name: String,
    /// Of `exposure#2`.
    number: Option<u32>,
    figures: Vec<Figure>,
}

/// A number in a claim.
#[derive(Clone, Debug, PartialEq)]
struct Figure {
    /// The word that it is given for.
    of: Option<String>,
    value: f64,
    percent: bool,
    /// Whether it comes after words about the place, and so may be part of them.
    about_place: bool,
}

impl Mention {
    fn id(&self) -> String {
        self.number.map_or_else(|| self.name.clone(), |number| format!("{}#{number}", self.name))
    }

    fn agrees(&self, made: &AppliedMove) -> bool {
        if made.name == SPOTS {
            return true;
        }
        let mut place = Vec::new();
        if let Some(mask) = &made.mask {
            numbers_in(mask, &mut place);
        }
        let mut found = false;
        self.figures.iter().all(|figure| {
            let right = figure.is_of(made);
            // Once a value is right, further words are nobody's claim.
            let passed = figure.about_place && (found || place.iter().any(|number| figure.is(*number, "")));
            found |= right;
            right || passed
        })
    }
}

impl Figure {
    fn is_of(&self, made: &AppliedMove) -> bool {
        let is = |(_, setting): (&String, &engine::photo::Setting)| self.is(setting.value, &setting.unit);
        match self.of.as_deref() {
            Some(name) if made.values.contains_key(name) => made.values.get_key_value(name).is_some_and(is),
            Some(name) if !VALUE.contains(&name) => false,
            _ => made.values.iter().any(is),
        }
    }

    /// Whether it is `value`, rounded as one does.
    fn is(&self, value: f64, unit: &str) -> bool {
        let near = |value: f64| (value - self.value).abs() <= 0.005 + value.abs() * 0.01;
        near(value) || self.percent && unit != "%" && near(value * 100.0)
    }
}

fn numbers_in(value: &serde_json::Value, found: &mut Vec<f64>) {
    match value {
        serde_json::Value::Number(number) => found.extend(number.as_f64()),
        serde_json::Value::Array(items) => {
            found.push(items.len() as f64);
            items.iter().for_each(|item| numbers_in(item, found));
        }
        serde_json::Value::Object(fields) => fields.values().for_each(|field| numbers_in(field, found)),
        _ => {}
    }
}

/// A piece of a claim.
#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Number(f64),
    /// `#2`.
    Id(u32),
    /// `=` or `:`.
    Assign,
    Percent,
    Arrow,
    /// `;`: what follows is about another place.
    Break,
    Comma,
}

/// The moves that a claim names, with the numbers that it gives for each.
fn mentions(claim: &str, history: &History<'_>) -> Vec<Mention> {
    let tokens = tokens(&plain(claim, history));
    let mut found: Vec<Mention> = Vec::new();
    // Numbers before the first name.
    let mut early: Vec<Figure> = Vec::new();
    let (mut of, mut about_place) = (None, false);
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            Token::Word(word) => {
                let rest = tokens.get(at - 1..).unwrap_or_default();
                let current = found.last().map(|mention| mention.name.as_str());
                let parameter = history
                    .moves
                    .iter()
                    .any(|made| Some(made.name.as_str()) == current && made.values.contains_key(word));
                let name = name_at(rest, history).filter(|(name, length)| {
                    if parameter {
                        return false;
                    }
                    let made = history.moves.iter().any(|made| made.name == *name);
                    let figures = rest.get(*length..).unwrap_or_default();
                    // A word of prose may be the name of a move that nobody claims.
                    found.is_empty() || !about_place && made || has_figure(figures)
                });
                if let Some((name, length)) = name {
                    let number = match tokens.get(at - 1 + length) {
                        Some(Token::Id(number)) => Some(*number),
                        _ => None,
                    };
                    found.push(Mention { name, number, figures: std::mem::take(&mut early) });
                    (of, about_place) = (None, false);
                    at += length - 1;
                    continue;
                }
                if ["region", "regions", "place", "places", "move", "moves"].contains(&word.as_str()) {
                    early.pop();
                }
                let assigned = tokens.get(at) == Some(&Token::Assign);
                of = (parameter || assigned || VALUE.contains(&word.as_str())).then(|| word.clone());
                let key = !parameter && PLACE.contains(&word.as_str());
                about_place |= current.is_some() && (key || of.is_none() && !is_filler(word, history));
            }
            Token::Number(value) => {
                let percent = tokens.get(at) == Some(&Token::Percent);
                let before = tokens.get(at + usize::from(percent)) == Some(&Token::Arrow);
                // `0.5 → 0.8` claims 0.8.
                if !before {
                    let figure = Figure { of: of.take(), value: *value, percent, about_place };
                    match found.last_mut() {
                        Some(mention) => mention.figures.push(figure),
                        None => early.push(figure),
                    }
                }
            }
            Token::Break => {
                if let Some(mention) = found.last().filter(|mention| !mention.figures.is_empty()) {
                    found.push(Mention { figures: Vec::new(), ..mention.clone() });
                }
                (of, about_place) = (None, false);
            }
            Token::Comma => of = None,
            Token::Id(_) | Token::Assign | Token::Percent | Token::Arrow => {}
        }
    }
    found
}

/// The move, look or style whose name begins here, and how many words it has; `spots` are one too.
fn name_at(tokens: &[Token], history: &History<'_>) -> Option<(String, usize)> {
    let words: Vec<&str> = tokens
        .iter()
        .map_while(|token| match token {
            Token::Word(word) => Some(word.as_str()),
            _ => None,
        })
        .take(WORDS)
        .collect();
    let known = |name: &str| {
        let vocabulary = history.vocabulary;
        history.moves.iter().any(|made| made.name == name)
            || vocabulary.get(name).is_ok()
            || vocabulary.look(name).is_some()
            || vocabulary.style(name).is_some()
    };
    let whole = (1..=words.len()).rev().find_map(|length| {
        let name = words.get(..length)?.join("_");
        known(&name).then_some((name, length))
    });
    let spots = words.first().filter(|word| ["spot", "spots", SPOTS].contains(*word));
    whole.or_else(|| spots.map(|_| (SPOTS.to_owned(), 1)))
}

/// Whether a number is given for the name before, perhaps by way of a parameter.
fn has_figure(tokens: &[Token]) -> bool {
    let direct = tokens.iter().find(|token| !matches!(token, Token::Assign | Token::Id(_)));
    let named = tokens.windows(3).next().is_some_and(|next| {
        matches!(
            next,
            [Token::Word(_), Token::Number(_), _] | [Token::Word(_), Token::Assign, Token::Number(_)]
        )
    });
    named || matches!(direct, Some(Token::Number(_))) || matches!(tokens, [Token::Word(_), Token::Number(_)])
}

/// Words that say nothing of the place: units, and what models put around names and values.
fn is_filler(word: &str, history: &History<'_>) -> bool {
    const FILLERS: [&str; 12] = [
        "parameter_values",
        "parameters",
        "params",
        "values",
        "of",
        "is",
        "set",
        "was",
        "ev",
        "x",
        "percent",
        "region",
    ];
    let unit = |made: &AppliedMove| {
        made.values.values().any(|setting| setting.unit.to_lowercase().starts_with(word))
    };
    FILLERS.contains(&word) || history.moves.iter().any(unit)
}

/// The claim in lower case, without a list's bullet, without what was left out of a long line, and without units that
/// have digits in them.
fn plain(claim: &str, history: &History<'_>) -> String {
    let claim =
        claim.split("; …").next().unwrap_or_default().to_lowercase().replace("->", "→").replace('−', "-");
    let bullet = claim.trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
    let mut plain = match bullet.strip_prefix(['.', ')']) {
        Some(rest) if rest.starts_with(' ') => rest.to_owned(),
        _ => claim,
    };
    let units =
        history.moves.iter().flat_map(|made| made.values.values()).map(|setting| setting.unit.to_lowercase());
    for unit in units.filter(|unit| unit.contains(|c: char| c.is_ascii_digit())) {
        plain = plain.replace(&unit, "");
    }
    plain
}

fn tokens(claim: &str) -> Vec<Token> {
    let chars: Vec<char> = claim.chars().collect();
    let is = |at: usize, test: fn(&char) -> bool| chars.get(at).is_some_and(test);
    // Where a run of such characters ends.
    let end = |from: usize, within: &dyn Fn(usize) -> bool| (from..).find(|at| !within(*at)).unwrap_or(from);
    let text = |from: usize, to: usize| chars.get(from..to).unwrap_or_default().iter().collect::<String>();
    let number =
        |at: usize| is(at, char::is_ascii_digit) || is(at, |c| *c == '.') && is(at + 1, char::is_ascii_digit);
    let mut tokens: Vec<Token> = Vec::new();
    let mut at = 0;
    while let Some(first) = chars.get(at) {
        let from = at;
        at += 1;
        // A dash between two numbers is a range, and one within a word a hyphen.
        let alone = from == 0 || !is(from - 1, |c| c.is_alphanumeric());
        if number(from) || "+-–".contains(*first) && alone && number(at) {
            at = end(at, &|at| is(at, |c| c.is_ascii_digit() || *c == '.'));
            let digits = text(from, at).replace('–', "-");
            tokens.extend(digits.trim_end_matches('.').parse().ok().map(Token::Number));
        } else if first.is_alphabetic() || *first == '_' {
            at = end(at, &|at| {
                let hyphen = is(at, |c| *c == '-') && is(at + 1, |c| c.is_alphabetic());
                hyphen || is(at, |c| c.is_alphanumeric() || *c == '_')
            });
            tokens.push(Token::Word(text(from, at).replace('-', "_")));
        } else if *first == '#' && is(at, char::is_ascii_digit) {
            at = end(at, &|at| is(at, char::is_ascii_digit));
            tokens.extend(text(from + 1, at).parse().ok().map(Token::Id));
        } else {
            tokens.extend(match first {
                '=' | ':' => Some(Token::Assign),
                '%' => Some(Token::Percent),
                '→' => Some(Token::Arrow),
                ';' | '\n' => Some(Token::Break),
                ',' => Some(Token::Comma),
                _ => None,
            });
        }
    }
    tokens
}

#[cfg(test)]
mod tests;
