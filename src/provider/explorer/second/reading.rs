//! From a brief and a direction to wishes: what is to become more or less of what, where, and how much; and what
//! is to be left alone.
//!
//! Not a language model: the lists of `words.toml` and a few rules. A sentence is cut into clauses. A clause that
//! tells how things are is no wish, what follows "so that" is none, and what follows "not", "keep", "without"… is
//! left alone. An *act* ("darker") takes the clause's object ("the shadows"), the place is where it is done, and a
//! size is the clause's own. What no list has says nothing.

use serde_json::Value;

use super::lexicon::{
    Act, ActRow, Clause, FILLER, ObjectRow, PlaceRow, Token, clauses, size_of, sizes, together, tokens, words,
};
use crate::provider::explorer::memory::Goal;

/// How much of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) enum Size {
    /// One of the four sizes of a wish in `words.toml`: gentle, plain, clear, strong.
    Of(usize),
    /// So many stops.
    Stops(f64),
    /// Until the picture is about as bright as a well exposed one.
    Normal,
    /// Until the light has about no colour.
    Neutral,
}

/// The size of a wish without one.
pub(in super::super) const PLAIN: Size = Size::Of(1);

/// Where a wish is about, as a rule of thumb says.
#[derive(Clone, Debug)]
pub(in super::super) struct Place {
    /// As it was said.
    pub name: String,
    /// The mask of it.
    pub mask: Value,
    /// How sure it is, 0 to 1: the move is made so much weaker.
    pub sure: f64,
}

/// The same place by whatever name.
impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.mask == other.mask
    }
}

/// One thing that is wished.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct Wish {
    /// The kind, as an entry of `words.toml` is called.
    pub kind: String,
    /// The hue, of a wish about one.
    pub hue: Option<String>,
    /// +1 for more, -1 for less, 0 for whichever way it takes to be neutral.
    pub sign: i8,
    /// `None`: everywhere.
    pub place: Option<Place>,
    /// How much.
    pub size: Size,
    /// Whether the size was said.
    pub sized: bool,
}

impl Wish {
    /// In words: `brightness + at face`.
    pub fn in_words(&self) -> String {
        let way = match self.sign {
            0 => "until neutral",
            1 => "+",
            _ => "−",
        };
        format!("{} {way}{}", self.what(), self.at())
    }

    /// What somebody likes who wishes this often: `more brightness at face`.
    pub fn liked(&self) -> String {
        let way = match self.sign {
            0 => "neutral",
            1 => "more",
            _ => "less",
        };
        format!("{way} {}{}", self.what(), self.at())
    }

    fn what(&self) -> String {
        match &self.hue {
            Some(hue) if self.kind == "hue_light" => format!("lightness of {hue}"),
            Some(hue) => hue.clone(),
            None => self.kind.replace('_', " "),
        }
    }

    fn at(&self) -> String {
        self.place.as_ref().map(|place| format!(" at {}", place.name)).unwrap_or_default()
    }

    fn same(&self, other: &Self) -> bool {
        self.kind == other.kind && self.hue == other.hue
    }
}

/// What a branch is to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in super::super) struct Reading {
    /// The wishes, as they were said.
    pub wishes: Vec<Wish>,
    /// Kinds that are to be left alone.
    pub spared: Vec<String>,
    /// Places that are to be left alone.
    pub kept: Vec<Place>,
}

/// What was spoken of last, in this sentence or the one before: what an "it" means.
#[derive(Clone, Default)]
struct Last {
    place: Option<Place>,
    object: Option<&'static ObjectRow>,
    /// More or less, of what an "and" goes on with.
    amount: Option<i8>,
    /// Whether this sentence spoke of anything.
    fresh: bool,
}

/// Reads what a branch is to do. Of a plan with a single branch the brief's wishes count, of one with more only what
/// the brief says of the direction's wishes.
pub(in super::super) fn reading(brief: &str, goal: Option<&Goal>, alone: bool) -> Reading {
    let mut said = Reading::of(brief);
    let Some(goal) = goal else { return said };
    let mut asked = Reading::of(&goal.direction);
    if asked.wishes.is_empty() {
        asked = Reading::of(&format!("{} {}", goal.direction, goal.name));
    }
    if let Some(size) = goal.intensity.as_deref().and_then(size_of) {
        asked.wishes.iter_mut().filter(|wish| !wish.sized).for_each(|wish| {
            (wish.size, wish.sized) = (size, true);
        });
    }
    if !alone {
        said.wishes.retain(|wish| asked.wishes.iter().any(|other| other.same(wish)));
    }
    for wish in asked.wishes {
        let placed = |other: &Wish| other.place.is_some() && wish.place.is_none();
        let same = |other: &&mut Wish| other.same(&wish) && (other.place == wish.place || placed(other));
        let alike = said.wishes.iter().any(|other| alike(other, &wish));
        match said.wishes.iter_mut().find(same) {
            Some(known) => {
                if !known.sized || (!alone && wish.sized) {
                    (known.size, known.sized) = (wish.size, wish.sized);
                }
                // Which way it goes, the direction says.
                known.sign = wish.sign;
            }
            // "Warmer" is what a brown print is.
            None if alike => {}
            None => {
                // One wish without a place, where the direction names it.
                let bare = said.wishes.iter().position(|other| other.same(&wish) && other.place.is_none());
                match bare.filter(|_| wish.place.is_some()) {
                    Some(at) => {
                        let size = said.wishes.get(at).filter(|known| known.sized).map(|known| known.size);
                        let size = size.unwrap_or(wish.size);
                        if let Some(known) = said.wishes.get_mut(at) {
                            *known = Wish { size, ..wish };
                        }
                    }
                    None => said.wishes.push(wish),
                }
            }
        }
    }
    said.spared.extend(asked.spared);
    said.kept.extend(asked.kept);
    said.spared.retain(|kind| said.wishes.iter().all(|wish| wish.kind != *kind));
    if confines(&goal.direction.to_lowercase()) {
        said.wishes.iter_mut().filter(|wish| wish.place.is_none() && wish.hue.is_none()).for_each(timid);
    }
    said
}

/// Whether a direction is about one thing alone.
fn confines(text: &str) -> bool {
    words().cut.confines.iter().any(|phrase| text.contains(phrase.as_str()))
}

/// Makes a wish gentle: it is about a thing that no list can place, and all the rest of the picture would suffer it.
fn timid(wish: &mut Wish) {
    (wish.size, wish.sized) = match wish.size {
        Size::Stops(stops) => (Size::Stops(stops.clamp(-0.3, 0.3)), true),
        _ => (Size::Of(0), true),
    };
}

/// Whether two wishes are measured by the same, and go the same way.
fn alike(one: &Wish, two: &Wish) -> bool {
    let measured = |wish: &Wish| {
        let recipe = words().wish.iter().find(|recipe| recipe.kind == wish.kind)?;
        recipe.measured_by().map(|(axis, sign)| (axis.to_owned(), sign * wish.sign))
    };
    one.place == two.place
        && one.kind != two.kind
        && measured(one).is_some()
        && measured(one) == measured(two)
}

impl Reading {
    /// Reads a text by itself.
    pub fn of(text: &str) -> Self {
        let mut found = Self::default();
        let mut last = Last::default();
        let text = together(&text.to_lowercase().replace(['\u{2019}', '\u{2018}'], "'"));
        let text = words().cut.silent.iter().fold(text, |text, silent| text.replace(silent.as_str(), ""));
        // A point within a number ends nothing.
        let text = text.replace(". ", "\n");
        for sentence in text.split(['!', '?', ';', ':', '\n']) {
            let mut carried = None;
            last.fresh = false;
            let before = found.wishes.len();
            for Clause { text, aside, joined } in clauses(sentence.trim_end_matches('.')) {
                if aside {
                    // Only how far: "until the greys are neutral".
                    if sizes(&text).contains(&Size::Neutral)
                        && let Some(wish) = found.wishes.last_mut().filter(|wish| wish.kind == "warmth")
                    {
                        (wish.size, wish.sized) = (Size::Neutral, true);
                    }
                    continue;
                }
                if !joined {
                    last.amount = None;
                }
                let known = found.wishes.len();
                found.clause(&text, &mut last, &mut carried);
                // "More light, by about a stop".
                if let Some(stops @ Size::Stops(_)) = sizes(&text).first()
                    && found.wishes.len() == known
                    && let Some(wish) = found.wishes.get_mut(before..).and_then(<[Wish]>::last_mut)
                    && !matches!(wish.size, Size::Stops(_))
                {
                    (wish.size, wish.sized) = (*stops, true);
                }
            }
            if !last.fresh {
                last = Last::default();
            }
        }
        found
    }

    fn clause(&mut self, clause: &str, last: &mut Last, carried: &mut Option<(usize, usize)>) {
        let mut tokens = tokens(clause);
        if let Some(at) = tokens.iter().position(|(token, _)| matches!(token, Token::Spare)) {
            // "Without crushing the blacks", but "the window stays as it is".
            let verb =
                tokens.get(at).is_some_and(|(_, word)| word.starts_with("stay") || word.ends_with('s'));
            let tail = tokens.split_off(if verb { 0 } else { at });
            self.spare(&tail);
            remember(&tail, last);
        }
        let size = sizes(clause).into_iter().reduce(|kept, next| match (kept, next) {
            (Size::Stops(_) | Size::Normal | Size::Neutral, _) => kept,
            (_, Size::Stops(_) | Size::Normal | Size::Neutral) => next,
            _ => kept,
        });
        if let Some((Token::Complaint(row), _)) =
            tokens.iter().find(|(token, _)| matches!(token, Token::Complaint(_)))
        {
            let size = match (row.kind.as_str(), size) {
                (_, Some(size @ Size::Stops(_))) => size,
                ("brightness", _) => Size::Normal,
                ("warmth", _) => Size::Neutral,
                _ => PLAIN,
            };
            remember(&tokens, last);
            return self.add(Wish {
                kind: row.kind.clone(),
                hue: None,
                sign: row.sign,
                place: None,
                size,
                sized: true,
            });
        }
        let tells = tokens.iter().any(|(token, _)| matches!(token, Token::Tells));
        let compares = tokens.iter().any(
            |(token, word)| matches!(token, Token::Act(row) if row.act != Act::More && word.ends_with("er")),
        );
        if tells && !compares {
            return remember(&tokens, last);
        }
        let objects: Vec<&'static ObjectRow> = tokens
            .iter()
            .filter_map(|(token, _)| if let Token::Object(row) = token { Some(*row) } else { None })
            .collect();
        let again = tokens
            .iter()
            .any(|(token, word)| matches!(token, Token::Again) || word.split(' ').any(|part| part == "it"));
        let mut place = tokens.iter().find_map(|(token, word)| match token {
            Token::Place(row) => Some(Place::of(row, word)),
            _ => None,
        });
        let mut object = objects.first().copied();
        if again && place.is_none() && object.is_none() {
            place.clone_from(&last.place);
            object = last.object.filter(|row| row.quality.is_some());
        }
        let before = self.wishes.len();
        let sized = size.is_some();
        let mut make = |kind: &str, hue: Option<String>, sign: i8, own: Option<&str>| {
            let size = size.or_else(|| own.and_then(size_of)).unwrap_or(PLAIN);
            self.add(Wish {
                kind: kind.to_owned(),
                hue,
                sign,
                place: place.clone(),
                size,
                sized: sized || own.is_some(),
            });
        };
        let mut turn = 1;
        let mut amount = None;
        let mut adjective = false;
        let acts: Vec<(&ActRow, &str)> = tokens
            .iter()
            .filter_map(|(token, word)| if let Token::Act(row) = token { Some((*row, *word)) } else { None })
            .collect();
        for (row, word) in &acts {
            if row.act == Act::More {
                (turn, amount) = (row.sign, Some(row.sign));
                continue;
            }
            adjective |= word.ends_with("er") || word.ends_with("ed");
            let sign = row.sign * turn;
            turn = 1;
            // "Brighter, calmer greens", "the greens calmer and darker": what was named beside it.
            if !(row.needs_object && object.is_none()) {
                act(row.act, sign, object, &mut make);
            }
            amount = None;
        }
        let done = acts.iter().any(|(row, _)| row.act != Act::More);
        let amount = amount.or(last.amount.filter(|_| acts.is_empty()));
        last.amount = amount;
        if let Some(sign) = amount {
            let named = if objects.is_empty() { object.into_iter().collect() } else { objects.clone() };
            named.into_iter().for_each(|row| more(row, sign, true, &mut make));
        } else if !done {
            objects.iter().for_each(|row| more(row, 1, false, &mut make));
        }
        if acts.is_empty() && objects.iter().all(|row| row.quality.is_none()) {
            match size {
                Some(Size::Neutral) => make("warmth", None, 0, None),
                Some(Size::Normal) => make("brightness", None, 1, None),
                _ => {}
            }
        }
        self.carry(object, &objects, adjective, before, carried);
        remember(&tokens, last);
    }

    /// Hands the hue of a clause on to the bare comparatives beside it.
    fn carry(
        &mut self,
        object: Option<&'static ObjectRow>,
        objects: &[&'static ObjectRow],
        adjective: bool,
        before: usize,
        carried: &mut Option<(usize, usize)>,
    ) {
        let hue = object.and_then(|row| row.hue.clone());
        let bare = adjective && objects.is_empty();
        let own = |wish: &mut Wish, hue: &str| {
            let kind = match wish.kind.as_str() {
                "brightness" => "hue_light",
                "richness" | "vibrance" => "hue_richness",
                _ => return,
            };
            (wish.kind, wish.hue) = (kind.to_owned(), Some(hue.to_owned()));
        };
        match (hue, bare, *carried) {
            // "Less saturated, darker greens".
            (Some(hue), _, Some((from, to))) if adjective => {
                for wish in self.wishes.iter_mut().take(to).skip(from) {
                    own(wish, &hue);
                }
                *carried = None;
            }
            // "The greens calmer and somewhat darker".
            (None, true, _) => {
                let known = before.checked_sub(1).and_then(|at| self.wishes.get(at)?.hue.clone());
                match known {
                    Some(hue) => self.wishes.iter_mut().skip(before).for_each(|wish| own(wish, &hue)),
                    None => *carried = Some((before, self.wishes.len())),
                }
            }
            _ => *carried = None,
        }
        // Two of the same that became one by that.
        let mut kept: Vec<Wish> = Vec::new();
        for wish in std::mem::take(&mut self.wishes) {
            if !kept.iter().any(|other| other.same(&wish) && other.place == wish.place) {
                kept.push(wish);
            }
        }
        self.wishes = kept;
    }

    fn add(&mut self, wish: Wish) {
        match self.wishes.iter_mut().find(|other| other.same(&wish) && other.place == wish.place) {
            Some(known) if wish.sized && !known.sized => *known = wish,
            Some(_) => {}
            None => self.wishes.push(wish),
        }
    }

    fn spare(&mut self, tokens: &[(Token, &str)]) {
        // "Do not darken the eyes" forbids that there, and nothing else.
        let forbids = tokens.iter().any(|(token, _)| match token {
            Token::Act(row) => row.act != Act::More,
            Token::Object(row) => row.zone.is_some() || row.quality.is_some(),
            _ => false,
        });
        for (token, word) in tokens {
            match token {
                Token::Place(row) if !forbids => self.kept.push(Place::of(row, word)),
                Token::Object(row) => {
                    self.spared.extend(row.zone.iter().chain(&row.quality).chain(&row.hue).cloned());
                }
                Token::Act(row) if row.act == Act::Light && row.sign > 0 => {
                    self.spared.push("highlights".into());
                }
                _ => {}
            }
        }
    }
}

impl Place {
    fn of(row: &PlaceRow, name: &str) -> Self {
        Self { name: name.to_owned(), mask: row.mask.clone(), sure: row.sure.unwrap_or(1.0) }
    }
}

/// What a clause with a verb spoke of, for an "it" later on: its object, and the place that it begins with.
fn remember(tokens: &[(Token, &str)], last: &mut Last) {
    let verb = |(token, _): &(Token, &str)| {
        matches!(token, Token::Act(_) | Token::Tells | Token::Spare | Token::Again)
    };
    if !tokens.iter().any(verb) {
        return;
    }
    let first = tokens.iter().position(|(_, word)| *word != FILLER);
    for (at, (token, word)) in tokens.iter().enumerate() {
        match token {
            Token::Place(row)
                if Some(at) == first || tokens.iter().any(|(t, _)| matches!(t, Token::Act(_))) =>
            {
                (last.place, last.object, last.fresh) = (Some(Place::of(row, word)), None, true);
            }
            Token::Object(row) => {
                (last.object, last.place, last.fresh) = (Some(*row), None, true);
            }
            _ => {}
        }
    }
}

fn act(
    act: Act,
    sign: i8,
    object: Option<&ObjectRow>,
    make: &mut impl FnMut(&str, Option<String>, i8, Option<&str>),
) {
    let zone = object.and_then(|row| row.zone.as_deref());
    let hue = object.and_then(|row| row.hue.clone());
    let quality = object.and_then(|row| row.quality.as_deref());
    match (act, zone, hue, quality) {
        (Act::Light | Act::Open | Act::Deep, Some(zone), ..) => make(zone, None, sign, None),
        (Act::Light, _, Some(hue), _) => make("hue_light", Some(hue), sign, None),
        (Act::Deep, _, Some(hue), _) => make("hue_richness", Some(hue), 1, None),
        (Act::Light, _, _, Some("vignette")) => make("vignette", None, 1, None),
        (Act::Light, ..) => make("brightness", None, sign, None),
        (Act::Open, ..) => {}
        (Act::Deep, ..) => make("shadows", None, sign, None),
        (Act::Warmth, Some(zone @ ("shadows" | "highlights")), ..) => {
            make(&format!("{zone}_warmth"), None, sign, None);
        }
        (Act::Warmth, ..) => make("warmth", None, sign, None),
        (Act::Tint, ..) => make("tint", None, sign, None),
        (Act::Richness, _, Some(hue), _) => make("hue_richness", Some(hue), sign, None),
        (Act::Richness, _, _, Some("vibrance")) => make("vibrance", None, sign, None),
        (Act::Richness, ..) => make("richness", None, sign, None),
        (Act::More, ..) => {}
    }
}

fn more(
    row: &ObjectRow,
    sign: i8,
    said: bool,
    make: &mut impl FnMut(&str, Option<String>, i8, Option<&str>),
) {
    if let Some(quality) = row.quality.as_deref().filter(|_| said || !row.needs_act) {
        make(quality, None, sign * row.turn.unwrap_or(1), row.size.as_deref());
    } else if let Some(cast) = row.cast.filter(|_| said) {
        make("warmth", None, cast * sign, None);
    } else if let Some(hue) = row.hue.clone().filter(|_| said) {
        make("hue_richness", Some(hue), sign, None);
    } else if let Some(zone) = row.zone.as_deref().filter(|_| said) {
        make(zone, None, sign, None);
    }
}

impl Reading {
    /// One of several readings of a brief without directions: as it says, with restraint, and further; then the same
    /// with each wish in turn left out.
    pub fn variant(mut self, place: usize) -> Self {
        let shift = |size: Size, by: i32| match size {
            Size::Of(at) => Size::Of((at as i32 + by).clamp(0, 3) as usize),
            Size::Stops(stops) => Size::Stops(stops * if by < 0 { 0.6 } else { 1.5 }),
            size => {
                if by < 0 {
                    Size::Of(0)
                } else {
                    Size::Of(3).max_of(size)
                }
            }
        };
        let by = match place % 3 {
            0 => 0,
            1 => -1,
            _ => 1,
        };
        if by != 0 {
            self.wishes.iter_mut().for_each(|wish| wish.size = shift(wish.size, by));
        }
        let turn = place / 3;
        if turn > 0 && self.wishes.len() > 1 {
            self.wishes.remove((turn - 1) % self.wishes.len());
        }
        self
    }
}

impl Size {
    /// The one that goes further where both are measured.
    fn max_of(self, other: Self) -> Self {
        if matches!(other, Self::Normal | Self::Neutral) { other } else { self }
    }
}

#[cfg(test)]
#[path = "reading_tests.rs"]
mod tests;
