//! PLAN.toml, the plan of a batch: read as a tree first and then value by value, so that all mistakes are reported at
//! once, each with its line.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::budget::Budget;
use crate::transcript::Vector;
use base::hint::did_you_mean;
use darktable::proxy;

/// A plan with everything that one can contain, for `overnight --example`.
pub const EXAMPLE: &str = include_str!("example.toml");

/// The caps of a batch, by their names in `[budget]`.
const CAPS: [&str; 6] = ["time", "cost", "iterations", "branches", "renders", "tokens"];
/// The texts of a session, or of `[defaults]`.
const TEXTS: [&str; 10] =
    ["brief", "criteria", "budget", "provider", "model", "fallback", "protocol", "referee", "from", "prompt"];
/// What else a session has.
const OTHERS: [&str; 6] = ["vectors", "vars", "seed", "preview_size", "proxy", "proposals"];
/// What names the photo; not in `[defaults]`.
const PHOTO: &str = "photo";
/// The sides of a preview that are allowed, in pixels, as with `--preview-size`.
const PREVIEW_SIZES: std::ops::RangeInclusive<i64> = 256..=4096;
/// The budget of a session with a protocol, where none is given.
const PROTOCOL_BUDGET: &str = "standard";

/// What a whole batch may use; a cap that is absent does not limit it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caps {
    /// Time by the clock while sessions run, in seconds.
    pub time_seconds: Option<u64>,
    /// Money, in millionths of a US dollar.
    pub cost_micro_usd: Option<u64>,
    /// Tool calls.
    pub iterations: Option<u64>,
    /// Branches made.
    pub branches: Option<u64>,
    /// Pictures rendered.
    pub renders: Option<u64>,
    /// Tokens, in and out.
    pub tokens: Option<u64>,
}

impl Caps {
    /// The same as the budget of a ledger, without a limit where a cap is absent. Time is not counted by the ledger.
    pub fn budget(&self) -> Budget {
        Budget {
            time_seconds: 1 << 40,
            max_iterations: self.iterations.unwrap_or(u64::MAX),
            max_branches: self.branches.unwrap_or(u64::MAX),
            max_tokens: self.tokens,
            max_cost_micro_usd: self.cost_micro_usd,
            max_renders: self.renders,
            // The sessions have their own guard rails.
            max_model_calls: Some(u64::MAX),
        }
    }
}

/// Something that is wrong in a plan.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mistake {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and what to write instead where that is known.
    pub message: String,
}

/// A value, and its line.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed<T> {
    /// The value.
    pub value: T,
    /// The line, from 1.
    pub line: usize,
}

/// A session as planned, with `[defaults]` filled in; nothing is looked up yet.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The line of its `[[session]]`, from 1.
    pub line: usize,
    texts: BTreeMap<&'static str, Placed<String>>,
    /// The axes to explore.
    pub vectors: Option<Placed<Vec<Vector>>>,
    /// Values of the protocol's variables.
    pub vars: Option<Placed<BTreeMap<String, String>>>,
    /// The seed.
    pub seed: Option<Placed<u64>>,
    /// Longest side of previews.
    pub preview_size: Option<Placed<u32>>,
    /// Whether previews come from a smaller copy: `off`, `auto` or how many times smaller.
    pub proxy: Option<Placed<String>>,
    /// Whether it may propose something for taste and notes.
    pub proposals: Option<bool>,
}

impl Wanted {
    /// One of the values that are text, by its key.
    pub fn text(&self, key: &str) -> Option<&Placed<String>> {
        self.texts.get(key)
    }

    /// The value of that key, if there is one.
    pub fn value(&self, key: &str) -> Option<String> {
        self.text(key).map(|placed| placed.value.clone())
    }

    /// The line of a key, or of the session.
    pub fn line_of(&self, key: &str) -> usize {
        match key {
            "vectors" => self.vectors.as_ref().map(|placed| placed.line),
            "vars" => self.vars.as_ref().map(|placed| placed.line),
            "proxy" => self.proxy.as_ref().map(|placed| placed.line),
            _ => self.text(key).map(|placed| placed.line),
        }
        .unwrap_or(self.line)
    }

    /// What it may spend; `None` where the plan does not say it, or not in a way that can be read.
    pub fn budget(&self) -> Option<Budget> {
        let default = || self.texts.contains_key("protocol").then(|| PROTOCOL_BUDGET.to_owned());
        Budget::parse(&self.value("budget").or_else(default)?).ok()
    }

    fn or(mut self, defaults: &Self) -> Self {
        // The model of another provider is no default for this one.
        let own = self.texts.contains_key("provider");
        for (key, value) in &defaults.texts {
            if !(own && *key == "model") {
                self.texts.entry(key).or_insert_with(|| value.clone());
            }
        }
        self.vectors = self.vectors.or_else(|| defaults.vectors.clone());
        self.vars = self.vars.or_else(|| defaults.vars.clone());
        self.seed = self.seed.or_else(|| defaults.seed.clone());
        self.preview_size = self.preview_size.or_else(|| defaults.preview_size.clone());
        self.proxy = self.proxy.or_else(|| defaults.proxy.clone());
        self.proposals = self.proposals.or(defaults.proposals);
        self
    }
}

/// A plan as far as it could be read, and what is wrong with it.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// What the batch may use.
    pub caps: Caps,
    /// The sessions, in the order in which they are run.
    pub sessions: Vec<Wanted>,
    /// What is wrong, by line.
    pub mistakes: Vec<Mistake>,
}

/// Reads a plan from its text alone.
pub fn read(text: &str) -> Draft {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader { text, mistakes: Vec::new() };
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let at = error.span().map_or(0, |span| span.start);
        reader.say(at, error.message().trim().replace('\n', ", "));
    }
    let mut draft = Draft::default();
    if reader.mistakes.is_empty() {
        reader.root(root.get_ref(), &mut draft);
    }
    draft.mistakes = reader.mistakes;
    draft.mistakes.sort();
    draft.mistakes.dedup();
    draft
}

struct Reader<'a> {
    text: &'a str,
    mistakes: Vec<Mistake>,
}

type Value<'a> = Spanned<DeValue<'a>>;

impl Reader<'_> {
    fn line(&self, at: usize) -> usize {
        self.text.get(..at).unwrap_or(self.text).matches('\n').count() + 1
    }

    fn say(&mut self, at: usize, message: impl Into<String>) {
        let line = self.line(at);
        self.mistakes.push(Mistake { line, message: message.into() });
    }

    /// Says of every key that is not known that it is not.
    fn strict(&mut self, table: &DeTable<'_>, place: &str, known: &[&str]) {
        for key in table.keys().filter(|key| !known.contains(&key.get_ref().as_ref())) {
            let hint = did_you_mean(key.get_ref(), known.iter().copied());
            let known = known.join(", ");
            let hint = if hint.is_empty() { format!("; known are {known}") } else { hint };
            self.say(key.span().start, format!("`{}` is unknown {place}{hint}", key.get_ref()));
        }
    }

    fn table<'v, 'd>(&mut self, value: &'v Value<'d>, what: &str) -> Option<&'v DeTable<'d>> {
        match value.get_ref() {
            DeValue::Table(table) => Some(table),
            _ => {
                self.say(value.span().start, format!("write {what}"));
                None
            }
        }
    }

    fn root(&mut self, root: &DeTable<'_>, draft: &mut Draft) {
        self.strict(root, "in a plan", &["budget", "defaults", "session"]);
        match root.get("budget") {
            Some(value) => {
                if let Some(table) = self.table(value, "the budget of the batch as [budget]") {
                    draft.caps = self.caps(table, value.span().start);
                }
            }
            None => self.say(0, "the batch has no budget: add [budget] with time = \"7h\", cost = 6.00"),
        }
        let mut defaults = Wanted::default();
        if let Some(value) = root.get("defaults")
            && let Some(table) = self.table(value, "defaults as [defaults]")
        {
            self.strict(table, "in [defaults]", &[&TEXTS[..], &OTHERS[..]].concat());
            defaults = self.wanted(table, 0);
        }
        let sessions = match root.get("session").map(|value| (value, value.get_ref())) {
            Some((_, DeValue::Array(sessions))) => sessions.iter().collect::<Vec<_>>(),
            Some((value, _)) => return self.say(value.span().start, "write a session as [[session]]"),
            None => Vec::new(),
        };
        if sessions.is_empty() {
            return self.say(0, "there are no sessions: add [[session]] with photo = \"…\"");
        }
        for value in sessions {
            let at = value.span().start;
            let Some(table) = self.table(value, "a session as [[session]]") else { continue };
            self.strict(table, "in a session", &[&[PHOTO], &TEXTS[..], &OTHERS[..]].concat());
            if !table.contains_key(PHOTO) {
                self.say(at, "the session names no photo: add photo = \"…\" with an id or a raw file");
            }
            let wanted = self.wanted(table, at).or(&defaults);
            self.whole(&wanted, at);
            draft.sessions.push(wanted);
        }
    }

    fn caps(&mut self, table: &DeTable<'_>, at: usize) -> Caps {
        self.strict(table, "in [budget]", &CAPS);
        let mut caps = Caps::default();
        for name in CAPS {
            let Some(value) = table.get(name) else { continue };
            let words = match value.get_ref() {
                DeValue::String(words) => words.to_string(),
                DeValue::Integer(digits) => digits.as_str().to_owned(),
                DeValue::Float(digits) => digits.as_str().to_owned(),
                _ => String::new(),
            };
            // The first three are needed there; the one that is meant comes last, and counts.
            match Budget::parse(&format!(
                "time=1s,iterations=1,branches=1,{name}={}",
                words.replace(',', " ")
            )) {
                Ok(read) => match name {
                    "time" => caps.time_seconds = Some(read.time_seconds),
                    "cost" => caps.cost_micro_usd = read.max_cost_micro_usd,
                    "iterations" => caps.iterations = Some(read.max_iterations),
                    "branches" => caps.branches = Some(read.max_branches),
                    "renders" => caps.renders = read.max_renders,
                    _ => caps.tokens = read.max_tokens,
                },
                Err(error) => self.say(value.span().start, error.to_string()),
            }
        }
        if table.is_empty() {
            self.say(at, "[budget] is empty: give at least one limit, such as time = \"7h\"");
        }
        caps
    }

    /// The values in the table of a session or of the defaults.
    fn wanted(&mut self, table: &DeTable<'_>, at: usize) -> Wanted {
        let mut wanted = Wanted { line: self.line(at), ..Wanted::default() };
        for key in TEXTS.into_iter().chain([PHOTO]) {
            let Some(value) = table.get(key) else { continue };
            if let Some(text) = self.words(key, value) {
                wanted.texts.insert(key, text);
            }
        }
        if let Some(budget) = wanted.texts.get("budget")
            && let Err(error) = Budget::parse(&budget.value)
        {
            self.mistakes.push(Mistake { line: budget.line, message: error.to_string() });
        }
        wanted.vectors = table.get("vectors").and_then(|value| self.vectors(value));
        wanted.vars = table.get("vars").and_then(|value| self.vars(value));
        wanted.seed = table.get("seed").and_then(|value| {
            let seed = self.number("seed", value, 0..=i64::MAX)?;
            Some(Placed { value: seed.unsigned_abs(), line: self.line(value.span().start) })
        });
        wanted.preview_size = table.get("preview_size").and_then(|value| {
            let size = u32::try_from(self.number("preview_size", value, PREVIEW_SIZES)?).ok()?;
            Some(Placed { value: size, line: self.line(value.span().start) })
        });
        wanted.proposals = table.get("proposals").and_then(|value| {
            if let DeValue::Boolean(proposes) = value.get_ref() {
                return Some(*proposes);
            }
            self.say(value.span().start, "`proposals` must be true or false");
            None
        });
        wanted.proxy = table.get("proxy").and_then(|value| {
            let words = match value.get_ref() {
                DeValue::Integer(digits) => digits.as_str().to_owned(),
                _ => self.words("proxy", value)?.value,
            };
            match words.parse::<proxy::Choice>() {
                Ok(_) => Some(Placed { value: words, line: self.line(value.span().start) }),
                Err(error) => {
                    self.say(value.span().start, format!("`proxy`: {error}"));
                    None
                }
            }
        });
        wanted
    }

    fn words(&mut self, key: &str, value: &Value<'_>) -> Option<Placed<String>> {
        let at = value.span().start;
        match value.get_ref() {
            DeValue::String(words) if !words.trim().is_empty() => {
                Some(Placed { value: words.trim().to_owned(), line: self.line(at) })
            }
            DeValue::String(_) => {
                self.say(at, format!("`{key}` is empty: give it a value, or leave it out"));
                None
            }
            _ => {
                self.say(at, format!("`{key}` must be a text in quotes"));
                None
            }
        }
    }

    fn number(&mut self, key: &str, value: &Value<'_>, range: std::ops::RangeInclusive<i64>) -> Option<i64> {
        let number = match value.get_ref() {
            DeValue::Integer(digits) => i64::from_str_radix(digits.as_str(), digits.radix()).ok(),
            _ => None,
        };
        let found = number.filter(|n| range.contains(n));
        if found.is_none() {
            let (low, high) = range.into_inner();
            let range =
                if high == i64::MAX { format!("from {low}") } else { format!("from {low} to {high}") };
            self.say(value.span().start, format!("`{key}` must be a whole number {range}"));
        }
        found
    }

    fn vectors(&mut self, value: &Value<'_>) -> Option<Placed<Vec<Vector>>> {
        let at = value.span().start;
        let DeValue::Array(items) = value.get_ref() else {
            self.say(at, "`vectors` must be a list: [\"tone=more dramatic\", \"color=warmer:subtle\"]");
            return None;
        };
        let (mut vectors, mut names) = (Vec::new(), BTreeSet::new());
        for item in items {
            let at = item.span().start;
            let Some(text) = self.words("vectors", item) else { continue };
            match text.value.parse::<Vector>() {
                Ok(vector) if names.insert(vector.name.clone()) => vectors.push(vector),
                Ok(vector) => self.say(at, format!("the direction `{}` is given twice", vector.name)),
                Err(error) => self.say(at, format!("`{}` is not a direction: {error}", text.value)),
            }
        }
        Some(Placed { value: vectors, line: self.line(at) })
    }

    fn vars(&mut self, value: &Value<'_>) -> Option<Placed<BTreeMap<String, String>>> {
        let table = self.table(value, "the protocol's variables as vars = { name = \"value\" }")?;
        let mut vars = BTreeMap::new();
        for (key, value) in table {
            if let Some(text) = self.words(key.get_ref(), value) {
                vars.insert(key.get_ref().to_string(), text.value);
            }
        }
        Some(Placed { value: vars, line: self.line(value.span().start) })
    }

    /// What a session lacks, or has too much of.
    fn whole(&mut self, wanted: &Wanted, at: usize) {
        if wanted.text("budget").is_none() && wanted.text("protocol").is_none() {
            self.say(at, "the session has no budget: add budget = \"standard\" here or in [defaults]");
        }
        let vectors = wanted.vectors.as_ref().map_or(0, |placed| placed.value.len()) as u64;
        if let Some(budget) = wanted.budget().filter(|budget| vectors > budget.max_branches) {
            let line = wanted.line_of("vectors");
            let message = format!(
                "{vectors} directions need {vectors} branches, but the budget allows {}",
                budget.max_branches
            );
            self.mistakes.push(Mistake { line, message });
        }
        if wanted.vars.is_some() && wanted.text("protocol").is_none() {
            let line = wanted.line_of("vars");
            let message = "`vars` need a protocol, and the session has none".into();
            self.mistakes.push(Mistake { line, message });
        }
    }
}

/// Why a batch with a session of this budget would have no bound, if so; `free` says that its model costs nothing.
pub fn unbounded(caps: &Caps, budget: &Budget, free: bool) -> Option<String> {
    let rows = [
        ("cost", "cost=1.00", caps.cost_micro_usd.filter(|_| !free), budget.max_cost_micro_usd),
        ("tokens", "tokens=400k", caps.tokens, budget.max_tokens),
        ("renders", "renders=80", caps.renders, budget.max_renders),
    ];
    for (name, example, of_batch, own) in rows {
        if of_batch.is_some() && own.is_none() {
            return Some(format!(
                "one session could use all {name} of the batch: limit {name} in its budget too, such as {example}"
            ));
        }
    }
    let limited = free || budget.max_cost_micro_usd.is_some() || budget.max_tokens.is_some();
    (!limited).then(|| {
        "the cost of this session is not limited: add cost to its budget, such as cost=1.00".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(text: &str) -> Vec<(usize, String)> {
        read(text).mistakes.into_iter().map(|m| (m.line, m.message)).collect()
    }

    #[test]
    fn the_example_is_a_plan() {
        let draft = read(EXAMPLE);
        assert_eq!(draft.mistakes, []);
        assert_eq!((draft.caps.time_seconds, draft.caps.cost_micro_usd), (Some(7 * 3600), Some(6_000_000)));
        let [first, second, third] = &draft.sessions[..] else { panic!("three sessions") };
        assert_eq!(first.budget().unwrap().max_branches, 3);
        assert_eq!(first.vectors.as_ref().unwrap().value.len(), 2);
        assert_eq!(second.vectors.as_ref().unwrap().value[0].intensity.as_deref(), Some("strong"));
        assert_eq!(second.value("model").as_deref(), Some("gpt-5-mini"));
        assert!(third.vectors.as_ref().unwrap().value.is_empty());
    }

    #[test]
    fn a_session_that_names_its_provider_does_not_take_the_other_ones_model() {
        let draft = read(
            "[budget]\ntime='1h'\n[defaults]\nprovider='openai'\nmodel='gpt-5-mini'\nbudget='lite'\n\
             [[session]]\nphoto='a'\nprovider='ollama'\n",
        );
        assert_eq!((draft.mistakes.len(), draft.sessions[0].value("model")), (0, None));
    }

    #[test]
    fn every_mistake_is_told_with_its_line() {
        let text = "[budget]\ncoste = 3\ntime = \"soon\"\n\n[defaults]\nbudget = \"lite\"\nseed = \"x\"\n\n\
                    [[session]]\nphoto = 7\nvectors = [\"tone\", \"a=b\", \"a=c\"]\n\n\
                    [[session]]\nphto = \"iguana\"\nvars = { move = \"x\" }\nproxy = \"half\"\n";
        let told = mistakes(text);
        let starts = |at: usize, line: usize, words: &str| {
            let (l, m) = &told[at];
            assert!(*l == line && m.contains(words), "{at}: {told:#?}");
        };
        starts(0, 2, "`coste` is unknown in [budget]; did you mean `cost`?");
        starts(1, 3, "`soon` is not a valid time");
        starts(2, 7, "`seed` must be a whole number from 0");
        starts(3, 10, "`photo` must be a text");
        starts(4, 11, "`tone` is not a direction");
        starts(5, 11, "the direction `a` is given twice");
        starts(6, 13, "names no photo");
        starts(7, 14, "did you mean `photo`?");
        starts(8, 15, "`vars` need a protocol");
        starts(9, 16, "`proxy`: must be auto, off, or 2 to 16");
        assert_eq!(told.len(), 10, "{told:#?}");
    }

    #[test]
    fn what_is_no_toml_says_where_and_what_lacks_everything_says_so() {
        assert_eq!(mistakes("a = 1\nb = = 2\n")[0].0, 2);
        let empty: Vec<String> = mistakes("").into_iter().map(|m| m.1).collect();
        assert!(empty.len() == 2 && empty.iter().any(|m| m.contains("[[session]]")), "{empty:?}");
        let plan = "[budget]\n[[session]]\nphoto='a'\n[[session]]\nphoto='b'\nbudget='standard'\nvectors=['a=x','b=x','c=x','d=x']\n";
        let lines: Vec<usize> = mistakes(plan).into_iter().map(|m| m.0).collect();
        assert_eq!(lines, [1, 2, 7]);
    }

    #[test]
    fn what_the_batch_caps_every_session_caps() {
        let caps = Caps { cost_micro_usd: Some(1), ..Caps::default() };
        let standard = Budget::parse("standard").unwrap();
        assert!(unbounded(&caps, &standard, false).unwrap().contains("cost=1.00"));
        assert_eq!(unbounded(&caps, &standard, true), None);
        assert_eq!(unbounded(&caps, &Budget::parse("standard,cost=1").unwrap(), false), None);
        assert!(unbounded(&Caps::default(), &standard, false).is_some());
        let caps = Caps { tokens: Some(1), ..Caps::default() };
        assert!(unbounded(&caps, &standard, true).unwrap().contains("tokens"));
    }
}
