//! The vocabulary as a page: what each move is, and what it was measured to do.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::vocabulary::error::VocabularyError;
use crate::vocabulary::load::Vocabulary;
use crate::vocabulary::looks::{Look, STRENGTH};
use crate::vocabulary::moves::{Move, Parameter};
use base::assets::Overlay;
use pixels::metrics::axes::Axis;

/// How far an axis must move, in just-noticeable steps, to count as moved.
pub const LEAST_STEPS: f64 = 0.25;

/// Stands for the figures of a move that the darktable of the page does not have.
const NOT_OFFERED: &str = "not offered by this darktable";

/// A move or look by name, as the page and the tests see it.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it does.
    pub description: &'a str,
    /// What it pushes, and which way: +1 or -1.
    pub axes: &'a BTreeMap<Axis, i8>,
    /// darktable's modules that it drives.
    pub modules: Vec<&'a str>,
    /// What can be chosen.
    pub parameters: BTreeMap<&'a str, Parameter>,
    /// Why more of it does not always go further; `None` when it does.
    pub not_monotonic: Option<&'a str>,
    /// The kind of photo on which it shows what it does; `None` for any.
    pub shown_on: Option<&'a str>,
    /// The file that defines it.
    pub file: &'a str,
}

impl<'a> From<&'a Move> for Entry<'a> {
    fn from(entry: &'a Move) -> Self {
        Self {
            name: &entry.name,
            description: &entry.description,
            axes: &entry.axes,
            modules: vec![&entry.module],
            parameters: entry.parameters.iter().map(|(name, p)| (name.as_str(), p.clone())).collect(),
            not_monotonic: entry.not_monotonic.as_deref(),
            shown_on: entry.shown_on.as_deref(),
            file: &entry.file,
        }
    }
}

impl Entry<'_> {
    /// The parameter that says how much of it there is: the only one that is not a direction. `None` where several
    /// parameters make it up.
    pub fn strength(&self) -> Option<(&str, &Parameter)> {
        let mut strengths = self.parameters.iter().filter(|(_, p)| !p.direction);
        match (strengths.next(), strengths.next()) {
            (Some((name, parameter)), None) => Some((name, parameter)),
            _ => None,
        }
    }

    /// A value for every parameter.
    pub fn values(&self, choose: impl Fn(&Parameter) -> f64) -> BTreeMap<String, f64> {
        self.parameters.iter().map(|(name, p)| ((*name).to_owned(), choose(p))).collect()
    }
}

/// What a move was measured to do to a photo.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The move.
    pub name: String,
    /// The declared axes, each with the signed changes from the untouched photo, in just-noticeable steps: at the
    /// least strength, neutral, default and the greatest strength, each once and in rising order. A move that
    /// several parameters make up ([`Entry::strength`]) has neutral and default.
    pub steps: Vec<(Axis, Vec<f64>)>,
    /// Which of these is the default.
    pub default: usize,
    /// Mean CIEDE2000 from the untouched photo at the default values; `None` when the frame changed.
    pub delta_e: Option<f64>,
    /// Whether the state at the neutral values is the untouched one, and so its picture pixel for pixel.
    pub neutral: bool,
}

impl Measured {
    /// Whether a stronger move never goes back on a declared axis; it may stay, as blacks do that have reached
    /// black, and less than [`LEAST_STEPS`] is staying. `None` when no single parameter is the strength.
    pub fn monotonic(&self, entry: &Entry<'_>) -> Option<bool> {
        entry.strength()?;
        let rises = |(axis, steps): &(Axis, Vec<f64>)| {
            let sign = f64::from(entry.axes.get(axis).copied().unwrap_or(1));
            steps.iter().zip(steps.iter().skip(1)).all(|(less, more)| sign * (more - less) > -LEAST_STEPS)
        };
        Some(self.steps.iter().all(rises))
    }
}

impl Vocabulary {
    /// Every move and look, by file and then by name.
    pub fn entries(&self) -> Vec<Entry<'_>> {
        let look = |look| self.look_entry(look);
        let mut entries: Vec<Entry<'_>> =
            self.moves().map(Entry::from).chain(self.looks().map(look)).collect();
        entries.sort_by_key(|entry| (entry.file, entry.name));
        entries
    }

    fn look_entry<'a>(&'a self, look: &'a Look) -> Entry<'a> {
        let modules =
            look.moves.keys().filter_map(|name| self.get(name).ok()).map(|entry| entry.module.as_str());
        Entry {
            name: &look.name,
            description: &look.description,
            axes: &look.axes,
            modules: modules.collect::<BTreeSet<_>>().into_iter().collect(),
            parameters: BTreeMap::from([(STRENGTH, Look::parameter())]),
            not_monotonic: None,
            shown_on: None,
            file: &look.file,
        }
    }
}

/// The file that says why a module has no move, within the vocabulary.
const UNREACHED: &str = "unreached.toml";

/// darktable's modules that no move reaches, each with the reason.
///
/// # Errors
/// [`VocabularyError::File`], if the list cannot be read.
pub fn unreached(assets: &Overlay) -> Result<BTreeMap<String, String>, VocabularyError> {
    let bad = |reason: String| VocabularyError::File { file: UNREACHED.to_owned(), reason };
    let text = assets.text(UNREACHED).ok_or_else(|| bad("not readable as UTF-8 text".to_owned()))?;
    toml::from_str(&text).map_err(|error| bad(error.to_string().trim().to_owned()))
}

/// The page, in Markdown. `unreached` are the modules without a move, `measured_on` says which photo and which
/// darktable.
pub fn page(
    vocabulary: &Vocabulary,
    unreached: &BTreeMap<String, String>,
    measured: &[Measured],
    measured_on: &str,
) -> String {
    let mut page = String::from(
        "# Vocabulary\n\n\
         What an agent may do to a photograph: every move, what it does, and what it was measured to do.\n\
         Generated by `cargo run --example vocabulary_table`; the same promises are held by `tests/pixels/vocabulary.rs`,\n\
         on every darktable of [darktable-versions.md](darktable-versions.md).\n\n",
    );
    let _ = write!(
        page,
        "Measured on {measured_on}. *Steps* are just-noticeable steps from the untouched photo on the declared\n\
         axes (the arrow is the declared way): at the least strength, neutral, **default** and the greatest strength;\n\
         where a move brings another tone mapper, from that mapper at rest.\n\
         *Monotonic*: a stronger move never goes back on a declared axis. *ΔE* is the mean CIEDE2000 at the default\n\
         values. *Neutral*: at the neutral values the picture is the untouched one, pixel for pixel. The strips show the\n\
         photo before, at the default values and at the strongest.\n"
    );
    let entries = vocabulary.entries();
    for group in entries.chunk_by(|a, b| a.file == b.file) {
        let _ = write!(page, "\n## {}\n\n", group.first().map(|entry| title(entry.file)).unwrap_or_default());
        page.push_str(
            "| name | what it does | module | parameters | measured steps | monotonic | ΔE | neutral | before, default, strongest |\n",
        );
        page.push_str("|---|---|---|---|---|---|---:|---|---|\n");
        for entry in group {
            row(&mut page, entry, measured.iter().find(|m| m.name == entry.name));
        }
    }
    page.push_str(
        "\n## Modules without a move\n\nWhat darktable has besides, and why nothing here reaches it.\n\n",
    );
    for (op, reason) in unreached {
        page.push_str(&without_a_move(op, reason));
    }
    page
}

fn without_a_move(op: &str, reason: &str) -> String {
    format!("- `{op}`: {reason}\n")
}

fn row(page: &mut String, entry: &Entry<'_>, measured: Option<&Measured>) {
    let parameters: Vec<String> = entry.parameters.iter().map(|(name, p)| parameter(name, p)).collect();
    let found = match measured {
        None => format!("{NOT_OFFERED} | | | |"),
        Some(measured) => {
            let steps: Vec<String> = measured
                .steps
                .iter()
                .map(|(axis, steps)| rungs(entry, *axis, steps, measured.default))
                .collect();
            let monotonic = match (&entry.not_monotonic, measured.monotonic(entry)) {
                (Some(reason), _) => format!("no: {reason}"),
                (None, Some(true)) => "yes".to_owned(),
                // The tests refuse such a move; the page shows where.
                (None, _) => "NO".to_owned(),
            };
            let delta_e = measured.delta_e.map_or("another frame".to_owned(), |delta| format!("{delta:.2}"));
            let neutral = if measured.neutral { "same" } else { "DIFFERENT" };
            let strip = format!("![{0}](vocabulary/{0}.jpg)", entry.name);
            format!("{} | {monotonic} | {delta_e} | {neutral} | {strip}", steps.join("<br>"))
        }
    };
    let _ = writeln!(
        page,
        "| `{}` | {} | {} | {} | {found} |",
        entry.name,
        entry.description,
        entry.modules.join("<br>"),
        parameters.join("<br>"),
    );
}

/// `chroma ↑ -3.1 · 0 · **+7.1** · +20.4`.
fn rungs(entry: &Entry<'_>, axis: Axis, steps: &[f64], default: usize) -> String {
    let arrow = if entry.axes.get(&axis).is_some_and(|sign| *sign < 0) { '↓' } else { '↑' };
    let shown: Vec<String> = steps
        .iter()
        .enumerate()
        .map(|(at, steps)| match (at == default, *steps == 0.0) {
            (true, _) => format!("**{steps:+.1}**"),
            (false, true) => "0".to_owned(),
            (false, false) => format!("{steps:+.1}"),
        })
        .collect();
    format!("{} {arrow} {}", axis.name(), shown.join(" · "))
}

fn parameter(name: &str, p: &Parameter) -> String {
    let unit = if p.unit.is_empty() { String::new() } else { format!(" {}", p.unit) };
    format!("`{name}` {} … {}{unit}, default {}", p.min, p.max, p.default)
}

/// `moves/white_balance.toml` is "White balance", and what is in another folder names it: "Looks: black and white".
pub fn title(file: &str) -> String {
    let stem = |part: &str| part.trim_end_matches(".toml").replace('_', " ");
    let mut parts = file.rsplit(['/', '\\']);
    let (name, folder) = (stem(parts.next().unwrap_or(file)), stem(parts.next().unwrap_or_default()));
    let text = if folder == "looks" { format!("{folder}: {name}") } else { name };
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::spots;
    use darktable::layout::{Layouts, MEASURED};
    use darktable::luts;
    use darktable::order;
    use darktable::state::PipelineOrder;

    fn measured(name: &str, axis: Axis, steps: &[f64]) -> Measured {
        Measured {
            name: name.into(),
            steps: vec![(axis, steps.to_vec())],
            default: 1,
            delta_e: Some(1.234),
            neutral: true,
        }
    }

    #[test]
    fn every_move_has_its_row_with_what_was_measured() {
        let vocabulary = Vocabulary::load(&Overlay::vocabulary(None)).unwrap();
        let measured = [
            measured("vignette", Axis::EdgeBrightness, &[0.0, -4.17, -9.0]),
            measured("black_and_white", Axis::Chroma, &[0.0, -40.0]),
            measured("vibrance", Axis::Chroma, &[0.0, 4.0, 3.0]),
        ];
        let unreached = BTreeMap::from([("clahe".to_owned(), "replaced".to_owned())]);
        let page = page(&vocabulary, &unreached, &measured, "a photo");
        assert!(page.ends_with("\n- `clahe`: replaced\n"), "{page}");
        for entry in vocabulary.entries() {
            assert!(
                page.contains(&format!("\n| `{}` | {} |", entry.name, entry.description)),
                "{}",
                entry.name
            );
        }
        assert!(page.contains("| edge_brightness ↓ 0 · **-4.2** · -9.0 | yes | 1.23 | same | ![vignette](vocabulary/vignette.jpg) |"), "{page}");
        assert!(page.contains("| chroma ↓ 0 · **-40.0** | no: three weights"), "{page}");
        assert!(page.contains("| chroma ↑ 0 · **+4.0** · +3.0 | NO |"), "{page}");
        assert!(page.contains("\n## White balance\n"));
        assert!(page.contains("`shift` -90 … 90 mired, default 25"));
    }

    #[test]
    fn every_module_of_the_oldest_darktable_is_reached_or_has_a_reason() {
        let assets = Overlay::vocabulary(None);
        let (vocabulary, layouts) = (Vocabulary::load(&assets).unwrap(), Layouts::new(assets.clone()));
        let unreached = unreached(&assets).unwrap();
        let all: BTreeSet<&str> = order::modules(PipelineOrder::V30).collect();
        let installed = |op: &&str| match layouts.module(op).unwrap() {
            Some(module) => module.own_version(MEASURED[0]).is_some(),
            // What darktable says nothing about are modules of the oldest one.
            None => true,
        };
        let oldest: BTreeSet<&str> = all.iter().copied().filter(installed).collect();
        assert_eq!(oldest.len(), 86);
        let moved: BTreeSet<&str> = vocabulary.moves().map(|entry| entry.module.as_str()).collect();
        // Spots have tools of their own, and the moves of a look-up table or of a name in a corner are a person's own.
        let own = [spots::OP, luts::OP, "watermark"];
        let reached: BTreeSet<&str> = moved.into_iter().chain(own).collect();
        for op in &all {
            let excused = unreached.contains_key(*op);
            assert_ne!(reached.contains(op), excused, "{op}: reached, or a reason in {UNREACHED}");
        }
        assert!(unreached.keys().all(|op| all.contains(op.as_str())), "{unreached:?}");
        assert!(unreached.values().all(|reason| reason.len() > 10), "{unreached:?}");
        let count = oldest.intersection(&reached).count();
        assert!(count >= 71, "{count} modules are reached");
    }

    #[test]
    fn a_stronger_move_may_stay_where_it_is_but_not_go_back() {
        let vocabulary = Vocabulary::load(&Overlay::vocabulary(None)).unwrap();
        let monotonic = |name: &str, steps: &[f64]| {
            let entry = Entry::from(vocabulary.get(name).unwrap());
            let axis = *entry.axes.keys().next().unwrap();
            measured(name, axis, steps).monotonic(&entry)
        };
        assert_eq!(monotonic("vignette", &[2.0, 0.0, -1.0, -1.0]), Some(true));
        assert_eq!(monotonic("vignette", &[-2.0, 0.0, -1.0, -3.0]), Some(false));
        assert_eq!(monotonic("vibrance", &[0.0, 1.0, 0.9]), Some(true));
        assert_eq!(monotonic("vibrance", &[0.0, 1.0, 0.7]), Some(false));
        assert_eq!(monotonic("vibrance", &[0.0, f64::NAN]), Some(false));
        assert_eq!(monotonic("black_and_white", &[0.0, -1.0]), None);
    }

    #[test]
    fn a_group_is_named_after_its_file_and_looks_after_their_folder() {
        assert_eq!(title("moves/white_balance.toml"), "White balance");
        assert_eq!(title("looks/film.toml"), "Looks: film");
        assert_eq!(title("mine.toml"), "Mine");
    }

    #[test]
    fn the_page_in_docs_has_every_move_as_it_is_now() {
        let vocabulary = Vocabulary::load(&Overlay::vocabulary(None)).unwrap();
        let docs = include_str!("../../../../docs/vocabulary.md");
        let mut left_out = 0;
        let strips = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/vocabulary");
        for entry in vocabulary.entries() {
            let mut fresh = String::new();
            row(&mut fresh, &entry, None);
            let stable = fresh.split(NOT_OFFERED).next().unwrap_or_default();
            let line = docs.lines().find(|line| line.starts_with(stable));
            let line = line.unwrap_or_else(|| {
                panic!("run `cargo run --example vocabulary_table`: {} has changed", entry.name)
            });
            if line.contains(NOT_OFFERED) {
                left_out += 1;
                continue;
            }
            let verdict = match &entry.not_monotonic {
                Some(reason) => format!("| no: {reason} |"),
                None => "| yes |".to_owned(),
            };
            assert!(line.contains(&verdict) && line.contains("| same |"), "{line}");
            let strip = format!("{strips}/{}.jpg", entry.name);
            assert!(std::path::Path::new(&strip).is_file(), "there is no {strip}");
        }
        for (op, reason) in unreached(&Overlay::vocabulary(None)).unwrap() {
            assert!(docs.contains(&without_a_move(&op, &reason)), "{op}");
        }
        let entries = vocabulary.entries().len();
        assert_eq!(docs.matches("\n| `").count(), entries);
        let pictures = std::fs::read_dir(strips).unwrap().count();
        assert_eq!(pictures, entries - left_out, "strips of moves that are gone");
        assert!(left_out < 12, "{left_out} moves are for newer darktables only");
        assert!(docs.contains(" with darktable 4."), "the page says which darktable measured it");
    }

    #[test]
    fn the_page_of_versions_has_a_verdict_for_every_move_and_none_is_red() {
        let vocabulary = Vocabulary::load(&Overlay::vocabulary(None)).unwrap();
        let docs = include_str!("../../../../docs/darktable-versions.md");
        for entry in vocabulary.entries() {
            let start = format!("| `{}` |", entry.name);
            let line = docs.lines().find(|line| line.starts_with(&start));
            let line =
                line.unwrap_or_else(|| panic!("run `scripts/darktable-versions.sh`: no {}", entry.name));
            let verdicts = line.split('|').map(str::trim).skip(2).take(MEASURED.len());
            assert!(verdicts.into_iter().all(|v| ["green", "not offered"].contains(&v)), "{line}");
        }
    }
}
