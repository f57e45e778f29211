//! Finding a move: by words, by an axis, and the short list of all.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::vocabulary::error::VocabularyError;
use crate::vocabulary::list::{Filter, ListedMove};
use crate::vocabulary::load::Vocabulary;
use base::assets::Overlay;
use base::hint;
use darktable::layout::Layouts;
use pixels::metrics::axes::Axis;

/// The synonyms, within the vocabulary.
const WORDS: &str = "words.toml";

/// What a word is worth where it is found: in a name, among tags or axes, in the description.
const NAME: f64 = 6.0;
const TAG: f64 = 4.0;
const AXIS: f64 = 3.0;
const TEXT: f64 = 2.0;
/// The share of it for a synonym.
const SYNONYM: f64 = 0.8;
/// For a name that is the word and nothing else.
const WHOLE_NAME: f64 = 3.0;
/// Below this share of the best match, a match is chance.
const CHANCE: f64 = 0.25;

/// What people say, and the words by which the vocabulary says it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Words {
    words: BTreeMap<String, Vec<String>>,
    /// Groups of moves for special cases.
    #[serde(default)]
    special: Vec<String>,
}

impl Words {
    /// Reads the table; a person's own takes its place.
    pub(super) fn load(assets: &Overlay) -> Result<Self, VocabularyError> {
        let Some(text) = assets.text(WORDS) else { return Ok(Self::default()) };
        toml::from_str(&text)
            .map_err(|e| VocabularyError::File { file: WORDS.into(), reason: hint::toml_error(&text, &e) })
    }

    /// The words of a wish that say something, each with what else it may be called and what that is worth.
    fn of(&self, query: &str) -> Vec<Vec<(String, f64)>> {
        let words = query.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
        words
            .filter(|word| !word.is_empty())
            .filter_map(|word| match self.words.get(&word) {
                Some(others) if others.is_empty() => None,
                others => {
                    let others = others.into_iter().flatten().map(|other| (stem(other), SYNONYM));
                    Some([(stem(&word), 1.0)].into_iter().chain(others).collect())
                }
            })
            .collect()
    }
}

impl Vocabulary {
    /// The moves and then the looks that a filter lets through, best match first: by the words of `query`, else by how
    /// much a move is made for the filter's axis, else by name. An axis also finds what moves a part of it, such as
    /// the warmth of the highlights.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub fn search(
        &self,
        filter: &Filter<'_>,
        query: Option<&str>,
        layouts: &Layouts,
        darktable_version: &str,
    ) -> Result<Vec<ListedMove<'_>>, VocabularyError> {
        let wide = Filter { axis: None, ..*filter };
        let mut found = self.list(&wide, layouts, darktable_version)?;
        found.extend(self.list_looks(&wide, layouts, darktable_version)?);
        let words = query.map(|query| self.words.of(query));
        let mut ranked: Vec<(f64, ListedMove<'_>)> = Vec::new();
        for listed in found {
            let by_axis = match filter.axis {
                None => 0.0,
                Some(axis) => match made_for(&listed, axis) {
                    Some(worth) => worth,
                    None => continue,
                },
            };
            let worth = match &words {
                None => by_axis,
                Some(words) => match words.iter().map(|word| matches(&listed, word)).sum::<f64>() {
                    0.0 => continue,
                    // Among equals, the one that does less besides.
                    worth => worth - 0.01 * listed.axes.len() as f64,
                },
            };
            ranked.push((worth, listed));
        }
        if words.is_some() {
            let best = ranked.iter().map(|(worth, _)| *worth).fold(0.0, f64::max);
            ranked.retain(|(worth, _)| *worth >= CHANCE * best);
        }
        ranked.sort_by(|(a, x), (b, y)| {
            (x.kind == "look").cmp(&(y.kind == "look")).then(b.total_cmp(a)).then(x.name.cmp(y.name))
        });
        Ok(ranked.into_iter().map(|(_, listed)| listed).collect())
    }

    /// Every tag of a move, by name.
    pub fn tags(&self) -> Vec<&str> {
        let mut tags: Vec<&str> =
            self.moves().flat_map(|entry| entry.tags.iter().map(String::as_str)).collect();
        tags.sort_unstable();
        tags.dedup();
        tags
    }
}

impl Vocabulary {
    /// Moves as a short list, by group (the file that they come from). Moves of a group with the same parameters share
    /// an entry: `reds_hue, blues_hue (±0.15=0.05)`. Where a parameter is called `amount`, its name is left out; of
    /// special groups there are only the names.
    pub fn by_group(&self, moves: &[ListedMove<'_>]) -> BTreeMap<String, String> {
        let mut groups: BTreeMap<String, Vec<(String, Vec<String>)>> = BTreeMap::new();
        for listed in moves {
            let special = self.words.special.iter().any(|group| group == listed.group);
            let group = groups.entry(listed.group.to_owned()).or_default();
            let choices = if special { String::new() } else { listed.choices_in_short() };
            match group.iter_mut().find(|(shared, _)| *shared == choices) {
                Some((_, names)) => names.push(listed.marked()),
                None => group.push((choices, vec![listed.marked()])),
            }
        }
        let entry = |(choices, names): (String, Vec<String>)| match choices.as_str() {
            "" => names.join(", "),
            choices => format!("{} ({choices})", names.join(", ")),
        };
        let line = |rows: Vec<_>| rows.into_iter().map(entry).collect::<Vec<_>>().join("; ");
        groups.into_iter().map(|(group, rows)| (group, line(rows))).collect()
    }
}

/// How much a move is made for an axis, and does not only touch it in passing; `None` if it does not move it.
fn made_for(listed: &ListedMove<'_>, axis: Axis) -> Option<f64> {
    let parts: &[Axis] = match axis {
        Axis::Warmth => &[Axis::HighlightWarmth, Axis::ShadowWarmth],
        Axis::Tint => &[Axis::HighlightTint, Axis::ShadowTint],
        _ => &[],
    };
    let moves = |axis: Axis| listed.axes.contains_key(axis.name());
    if !moves(axis) && !parts.iter().any(|part| moves(*part)) {
        return None;
    }
    let words: Vec<(String, f64)> = axis.name().split('_').map(|word| (stem(word), 1.0)).collect();
    let named = matches(listed, &words) - AXIS;
    Some(named + f64::from(moves(axis)) / listed.axes.len() as f64)
}

/// What a word or one of its synonyms is worth for a move: the best place where any of them is found.
fn matches(listed: &ListedMove<'_>, word: &[(String, f64)]) -> f64 {
    let names = |text: &str, word: &str| match word.contains('_') {
        true => text.contains(word),
        false => text.split('_').any(|part| stem(part) == word),
    };
    let text = |word: &str| {
        listed
            .description
            .split(|c: char| !c.is_alphanumeric())
            .any(|part| stem(&part.to_lowercase()) == word)
    };
    let worth = |(word, share): &(String, f64)| {
        let found = if stem(listed.name) == *word {
            NAME + WHOLE_NAME
        } else if names(listed.name, word) {
            NAME
        } else if listed.tags.iter().any(|tag| stem(tag) == *word || names(tag, word)) {
            TAG
        } else if listed.axes.keys().any(|axis| names(axis, word)) {
            AXIS
        } else if text(word) {
            TEXT
        } else {
            0.0
        };
        found * share
    };
    let best = word.iter().map(worth).fold(0.0, f64::max);
    // A move that several synonyms find is meant more surely than one that a single one does.
    let others: f64 = word.iter().map(worth).sum::<f64>() - best;
    best + 0.25 * others
}

/// A word without the ending of its plural.
fn stem(word: &str) -> String {
    match word.strip_suffix('s') {
        Some(one) if one.len() > 2 && !one.ends_with('s') => one.to_owned(),
        _ => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocabulary() -> (Vocabulary, Layouts) {
        (Vocabulary::load(&Overlay::vocabulary(None)).unwrap(), Layouts::new(Overlay::vocabulary(None)))
    }

    fn names(filter: Filter<'_>, query: Option<&str>) -> Vec<String> {
        let (vocabulary, layouts) = vocabulary();
        let found = vocabulary.search(&filter, query, &layouts, "4.2.1").unwrap();
        found.iter().map(|listed| listed.name.to_owned()).collect()
    }

    #[test]
    fn words_of_a_wish_lead_to_the_moves_for_it() {
        let first =
            |query: &str| names(Filter::default(), Some(query)).into_iter().take(5).collect::<Vec<_>>();
        for (query, wanted) in [
            ("cooler in the lamp light", &["highlights_warmth", "warmth"] as &[&str]),
            ("wb", &["warmth", "white_balance_gains", "tint"]),
            ("open the shadows", &["shadows_lift"]),
            ("half a stop brighter", &["exposure"]),
            ("the sky a deeper blue", &["patch_sky"]),
            ("blown highlights", &["highlights_recover"]),
            ("bw", &["black_and_white"]),
            ("crooked horizon", &["straighten"]),
            ("exposure", &["exposure"]),
        ] {
            let found = first(query);
            for name in wanted {
                assert!(found.iter().any(|one| one == name), "{query}: {name} is not in {found:?}");
            }
        }
        assert_eq!(first("zzz the of"), [""; 0]);
    }

    #[test]
    fn an_axis_leads_first_to_what_is_made_for_it() {
        let found = names(Filter { axis: Some(Axis::Warmth), ..Filter::default() }, None);
        assert_eq!(found[0], "warmth", "{found:?}");
        let place = |name: &str| found.iter().position(|one| one == name).unwrap();
        // A move for the light of one place may stand between them.
        assert!(place("highlights_warmth") < 4 && place("shadows_warmth") < 4, "{found:?}");
        assert!(place("golden_foliage") > place("shadows_warmth"));
        let shadows = names(Filter { axis: Some(Axis::Shadows), ..Filter::default() }, None);
        assert!(shadows[..6].iter().any(|name| name == "shadows_lift"), "{shadows:?}");
    }

    #[test]
    fn the_short_list_has_every_move_and_special_ones_without_their_numbers() {
        let (vocabulary, layouts) = vocabulary();
        let moves = vocabulary.list(&Filter::default(), &layouts, "5.4.1").unwrap();
        let groups = vocabulary.by_group(&moves);
        let all = groups.values().cloned().collect::<Vec<_>>().join(", ");
        for listed in &moves {
            assert!(all.split([',', ';', ' ']).any(|name| name == listed.marked()), "{}", listed.name);
        }
        let with = |group: &str, part: &str| groups[group].contains(part);
        assert!(with("tone", "exposure (ev ±3 EV=0.5)"), "{:?}", groups["tone"]);
        assert!(with("tone", "shadows_lift (0..2 EV=0.8)") && with("geometry", "straighten! ("));
        for group in &vocabulary.words.special {
            assert!(groups.contains_key(group) && !with(group, "("), "{group}");
        }
    }

    #[test]
    fn synonyms_lead_to_words_of_the_vocabulary() {
        let (vocabulary, layouts) = vocabulary();
        let listed = vocabulary.list(&Filter::default(), &layouts, "5.4.1").unwrap();
        for (word, others) in &vocabulary.words.words {
            for other in others {
                let known = listed.iter().any(|one| matches(one, &[(stem(other), 1.0)]) >= AXIS);
                assert!(known, "{word} = {other}: no move has it as part of its name, tags or axes");
            }
        }
    }
}
