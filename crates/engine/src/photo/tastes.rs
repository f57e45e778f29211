//! Taste files: what a photographer likes in every picture (`_default.md`), and in one kind (`birds.md`…).

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::photo::error::PhotoError;
use base::{durable, files};

/// The file that always counts.
pub(super) const DEFAULT: &str = "_default.md";

/// The optional file that speaks to Mode B alone.
pub(super) const FOR_MODE_B: &str = "taste_for_mode_b.md";

/// A taste file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TasteFile {
    /// Its file name: `_default.md`, `birds.md`…
    pub name: String,
    /// Its text.
    pub text: String,
}

/// One point of a taste file: a bullet or a line of prose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Point {
    /// The file.
    pub file: String,
    /// The line, without its bullet and date.
    pub text: String,
}

/// Two points that cannot both be followed. The second is of the later file, so it wins; a model should ask
/// where a person can answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Contradiction {
    /// The point that gives way.
    pub general: Point,
    /// The point that wins, or is its equal between two genre files.
    pub specific: Point,
}

/// The folder of taste files.
#[derive(Clone, Debug)]
pub struct Tastes {
    folder: PathBuf,
}

impl Tastes {
    /// The taste files in a folder, which need not exist.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Where a file is, by its name with or without `.md`.
    ///
    /// # Errors
    /// [`PhotoError::Invalid`] for a name that no taste file has.
    pub fn path(&self, name: &str) -> Result<PathBuf, PhotoError> {
        path(&self.folder, name)
    }

    /// The files: `_default.md` first, then the others by name.
    ///
    /// # Errors
    /// [`PhotoError::Io`] for a file that cannot be read.
    pub fn files(&self) -> Result<Vec<TasteFile>, PhotoError> {
        let entries = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(PhotoError::io("read", &self.folder)(e)),
        };
        let named = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> =
            named.filter(|name| file_name(name).is_ok_and(|full| full == *name)).collect();
        names.sort_by_key(|name| (name != DEFAULT, name.clone()));
        let mut files = Vec::new();
        for name in names {
            if let Some(text) = read(&self.folder.join(&name))? {
                files.push(TasteFile { name, text });
            }
        }
        Ok(files)
    }

    /// The points that cannot be followed together with this one.
    ///
    /// # Errors
    /// As [`Self::files`].
    pub fn opposed_to(&self, text: &str) -> Result<Vec<Point>, PhotoError> {
        let new = TasteFile { name: String::new(), text: text.to_owned() };
        let files = self.files()?.into_iter().flat_map(|file| contradictions(&[file, new.clone()]));
        Ok(files.map(|found| found.general).collect())
    }

    /// Adds a point to a file, below a heading with the date.
    ///
    /// # Errors
    /// [`PhotoError::Invalid`] for a name that no taste file has, [`PhotoError::Io`].
    pub fn add(&self, name: &str, text: &str, date: jiff::civil::Date) -> Result<(), PhotoError> {
        add_under(&self.path(name)?, &format!("## {date}"), text)
    }

    /// Removes the point of this number, from 1, and returns it.
    ///
    /// # Errors
    /// [`PhotoError::Invalid`] for a name or a number that there is not, [`PhotoError::Io`].
    pub fn forget(&self, name: &str, number: usize) -> Result<Point, PhotoError> {
        let path = self.path(name)?;
        let file = TasteFile { name: file_name(name)?, text: read(&path)?.unwrap_or_default() };
        let places =
            file.text.lines().enumerate().filter_map(|(at, line)| Some((at, point(&file.name, line)?)));
        let found = number.checked_sub(1).and_then(|skipped| places.clone().nth(skipped));
        let Some((at, point)) = found else {
            let count = places.count();
            return Err(PhotoError::Invalid(format!(
                "{} has {count} points, and none of number {number}",
                file.name
            )));
        };
        let kept = file.text.lines().enumerate().filter(|(line, _)| *line != at);
        let text: String = kept.map(|(_, line)| format!("{line}\n")).collect();
        durable::write(&path, text.as_bytes()).map_err(PhotoError::io("write", &path))?;
        Ok(point)
    }
}

impl TasteFile {
    /// Its points in order.
    pub fn points(&self) -> Vec<Point> {
        self.text.lines().filter_map(|line| point(&self.name, line)).collect()
    }
}

/// Adds `text` to the file at `path`, below `heading` unless that is its last heading already. A file that
/// ends with `text` is left alone: an answer that a crash cut before it was recorded is given again.
pub(super) fn add_under(path: &Path, heading: &str, text: &str) -> Result<(), PhotoError> {
    let old = read(path)?.unwrap_or_default();
    let body = old.trim_end();
    if body.ends_with(&format!("\n{text}")) {
        return Ok(());
    }
    let last_heading = body.lines().rev().find(|line| line.starts_with('#'));
    let mut new = body.to_owned();
    if !new.is_empty() {
        new.push_str("\n\n");
    }
    if last_heading != Some(heading) {
        new.push_str(heading);
        new.push_str("\n\n");
    }
    new.push_str(text);
    new.push('\n');
    durable::write(path, new.as_bytes()).map_err(PhotoError::io("write", path))
}

/// Checks the name of a taste file, with or without `.md`, and returns it with.
pub(super) fn file_name(name: &str) -> Result<String, PhotoError> {
    let stem = name.strip_suffix(".md").unwrap_or(name);
    let plain = |(i, b): (usize, u8)| {
        b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || (i > 0 && b == b'-')
    };
    if (1..=64).contains(&stem.len()) && stem.bytes().enumerate().all(plain) {
        Ok(format!("{stem}.md"))
    } else {
        Err(PhotoError::Invalid(format!(
            "`{name}` is not a taste file's name: it must match ^[a-z0-9_][a-z0-9_-]{{0,63}}(\\.md)?$"
        )))
    }
}

/// Where a taste file is.
pub(super) fn path(folder: &Path, name: &str) -> Result<PathBuf, PhotoError> {
    Ok(folder.join(file_name(name)?))
}

/// The genres that a brief names in its line `Tastes: a, b` (any case, also in bold, also bracketed).
pub(super) fn genres(brief: &str) -> Vec<String> {
    let mut genres: Vec<String> = Vec::new();
    for line in brief.lines() {
        let line: String =
            line.chars().filter(|c| !matches!(c, '*' | '[' | ']' | '"' | '\'' | '`')).collect();
        let line = line.trim_start_matches(['-', ' ', '\t', '_', '#']);
        let Some((key, names)) = line.split_once(':') else { continue };
        if !key.trim().trim_end_matches('_').eq_ignore_ascii_case("tastes") {
            continue;
        }
        for name in names.split([',', ';']) {
            let name = name.trim().trim_matches('_').to_lowercase().replace(' ', "-");
            let name = name.strip_suffix(".md").unwrap_or(&name);
            if !name.is_empty() && name != "default" && !genres.iter().any(|g| g == name) {
                genres.push(name.to_owned());
            }
        }
    }
    genres
}

/// The text of a file; `None` if it is missing. A link is refused: what it leads to would be sent to a model.
pub(super) fn read(path: &Path) -> Result<Option<String>, PhotoError> {
    match files::read_own(path, files::LARGEST_TEXT) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(PhotoError::io("read", path)(e)),
    }
}

/// Words that turn a point round.
const NEGATIONS: &[&str] = &[
    "no", "not", "never", "avoid", "without", "dont", "doesnt", "cant", "isnt", "stop", "refuse", "hate",
    "dislike",
];

/// Words that carry no subject.
const FILLERS: &[&str] = &[
    "a", "an", "the", "my", "i", "me", "in", "on", "of", "to", "for", "and", "or", "with", "at", "is", "are",
    "be", "it", "its", "always", "usually", "often", "prefer", "like", "love", "want", "keep", "make", "use",
    "do", "very", "quite", "slightly", "please", "them", "they", "this", "that", "should", "must", "rather",
    "go", "let",
];

/// Pairs of opposites: within a pair, the first word pushes one way and the second the other.
const OPPOSITES: &[(&[&str], &[&str])] = &[
    (&["warm", "warmer", "golden"], &["cool", "cooler", "cold", "colder"]),
    (&["bright", "brighter", "lighter", "light", "airy"], &["dark", "darker", "moody"]),
    (&["lift", "lifted", "open", "raised"], &["crush", "crushed", "deep", "closed", "black"]),
    (
        &["high", "higher", "more", "strong", "stronger", "heavy", "bold"],
        &["low", "lower", "less", "subtle", "gentle", "weak", "weaker"],
    ),
    (&["soft", "softer", "smooth"], &["hard", "harder", "crisp", "crisper", "sharp", "harsh"]),
    (
        &["saturated", "vivid", "vibrant", "colorful", "colourful", "rich"],
        &["muted", "desaturated", "pale", "faded"],
    ),
    (&["punchy", "contrasty"], &["flat", "matte"]),
    (&["grain", "grainy"], &["clean", "noiseless"]),
    (&["wide", "wider", "loose"], &["tight", "tighter"]),
];

/// A point taken apart.
struct Parsed {
    subject: BTreeSet<String>,
    /// Index into [`OPPOSITES`] and side, negations counted in.
    axes: Vec<(usize, bool)>,
    negated: bool,
}

/// Points of different files that cannot both be followed.
///
/// The rule is simple and errs on the side of silence. Each point is reduced to its subject words, the pairs
/// of opposites it uses (warm/cool, lifted/crushed, more/less…) and whether it is negated (avoid, no,
/// never…). Two points contradict when they share at least half of the subject words of the shorter one, and
/// either use opposite sides of the same pair (a negation turns the side), or use no pair at all, share two
/// words or more, and exactly one of them is negated. It knows words, not meaning.
pub(super) fn contradictions(files: &[TasteFile]) -> Vec<Contradiction> {
    let parsed =
        |file: &TasteFile| file.points().into_iter().map(|point| (parse(&point.text), point)).collect();
    let files: Vec<Vec<(Parsed, Point)>> = files.iter().map(parsed).collect();
    let mut found = Vec::new();
    for (later, specific) in files.iter().enumerate() {
        for general in files.iter().take(later) {
            for (a, general) in general {
                for (b, specific) in specific {
                    if opposed(a, b) {
                        found.push(Contradiction { general: general.clone(), specific: specific.clone() });
                    }
                }
            }
        }
    }
    found
}

/// The point that a line of a file makes, if it makes one.
fn point(file: &str, line: &str) -> Option<Point> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') || line.starts_with("<!--") {
        return None;
    }
    let text = line.trim_start_matches(['-', '*', '+', ' ']);
    // A date before the point is not part of it: `2026-05-14: …`, `(2026-05-14) …`.
    let dated = text.trim_start_matches(['(', '[']);
    let is_date = dated.get(..10).is_some_and(|d| d.parse::<jiff::civil::Date>().is_ok());
    let text = if is_date {
        dated.get(10..).unwrap_or_default().trim_start_matches([')', ']', ':', '-', '–', '—', ' '])
    } else {
        text
    };
    (!text.is_empty()).then(|| Point { file: file.to_owned(), text: text.to_owned() })
}

fn parse(text: &str) -> Parsed {
    let text: String = text.to_lowercase().chars().filter(|c| !matches!(c, '\'' | '’')).collect();
    let mut parsed = Parsed { subject: BTreeSet::new(), axes: Vec::new(), negated: false };
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()) {
        if NEGATIONS.contains(&word) {
            parsed.negated = !parsed.negated;
        } else if let Some(axis) = axis_of(word) {
            parsed.axes.push(axis);
        } else if !FILLERS.contains(&word) {
            // Good enough for "shadow" and "shadows".
            parsed.subject.insert(word.strip_suffix('s').filter(|w| w.len() > 2).unwrap_or(word).to_owned());
        }
    }
    if parsed.negated {
        parsed.axes.iter_mut().for_each(|(_, side)| *side = !*side);
    }
    parsed
}

fn axis_of(word: &str) -> Option<(usize, bool)> {
    OPPOSITES.iter().enumerate().find_map(|(index, (first, second))| {
        if first.contains(&word) {
            Some((index, true))
        } else {
            second.contains(&word).then_some((index, false))
        }
    })
}

fn opposed(a: &Parsed, b: &Parsed) -> bool {
    let shared = a.subject.intersection(&b.subject).count();
    let shorter = a.subject.len().min(b.subject.len());
    if shared == 0 || shared * 2 < shorter {
        return false;
    }
    if a.axes.is_empty() && b.axes.is_empty() {
        return shared >= 2 && a.negated != b.negated;
    }
    let meet = |same: bool| {
        a.axes.iter().any(|(axis, side)| b.axes.iter().any(|(other, s)| axis == other && (side == s) == same))
    };
    meet(false) && !meet(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> TasteFile {
        TasteFile { name: name.into(), text: text.into() }
    }

    #[test]
    fn names_cannot_leave_the_folder() {
        for bad in ["", "../x", "a/b", "/etc/passwd", "x\0", "A", "..", ".md", "x.txt", "a.b"] {
            assert!(file_name(bad).is_err(), "{bad:?} was accepted");
        }
        assert_eq!(file_name("birds").unwrap(), "birds.md");
        assert_eq!(file_name("_default.md").unwrap(), "_default.md");
    }

    #[test]
    fn the_brief_names_genres_in_every_usual_spelling() {
        for line in [
            "Tastes: birds, night",
            "**Tastes:** birds, night",
            "tastes: [birds, \"night.md\"]",
            "- __Tastes__: Birds; night",
        ] {
            assert_eq!(genres(&format!("# Brief\nIntent: quiet\n{line}\n")), ["birds", "night"], "{line}");
        }
        assert!(genres("my tastes: none here\nTastes:\n").is_empty());
    }

    #[test]
    fn a_point_is_added_found_against_others_and_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let tastes = Tastes::new(dir.path().join("tastes"));
        assert_eq!(tastes.files().unwrap(), []);
        let date = jiff::civil::date(2026, 5, 14);
        tastes.add("birds", "Keep feathers crisp.", date).unwrap();
        tastes.add("_default", "Lifted shadows.", date).unwrap();
        tastes.add("birds.md", "Cool backgrounds.", date).unwrap();
        let files = tastes.files().unwrap();
        let names: Vec<_> = files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["_default.md", "birds.md"]);
        let opposed = tastes.opposed_to("Crushed shadows").unwrap();
        assert_eq!(opposed, [Point { file: "_default.md".into(), text: "Lifted shadows.".into() }]);
        assert_eq!(tastes.opposed_to("More grain").unwrap(), []);
        assert_eq!(tastes.forget("birds", 1).unwrap().text, "Keep feathers crisp.");
        let birds = &tastes.files().unwrap()[1];
        assert_eq!(birds.text, "## 2026-05-14\n\n\nCool backgrounds.\n");
        for (name, number) in [("birds", 0), ("birds", 2), ("../birds", 1), ("none", 1)] {
            assert!(tastes.forget(name, number).is_err(), "{name} {number}");
        }
    }

    #[test]
    fn contradictions_are_found_and_agreement_is_not_one() {
        let default = file(
            "_default.md",
            "# Tone\n- Shadows: lifted, always\n- avoid halos around edges\n- warm skin tones\n",
        );
        let cases = [
            ("- deep shadows", Some("Shadows: lifted, always")),
            ("- 2026-05-14: Shadows: crushed", Some("Shadows: lifted, always")),
            ("- halos around edges are my look", Some("avoid halos around edges")),
            ("- cool skin tones", Some("warm skin tones")),
            ("- lifted shadows", None),
            ("- never crushed shadows", None),
            ("- cool water", None),
            ("- avoid halos", None),
        ];
        for (line, expected) in cases {
            let found = contradictions(&[default.clone(), file("birds.md", line)]);
            let general: Vec<_> = found.iter().map(|c| c.general.text.as_str()).collect();
            assert_eq!(general, expected.into_iter().collect::<Vec<_>>(), "{line}");
        }
    }
}
