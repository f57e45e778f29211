//! Taste files: what a photographer likes in every picture (`_default.md`), and in one kind (`birds.md`…).

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::photo::error::PhotoError;
use base::files;

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
    let parsed = |file| points(file).into_iter().map(|point| (parse(&point.text), point)).collect();
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

fn points(file: &TasteFile) -> Vec<Point> {
    file.text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#') && !line.starts_with("<!--"))
        .map(|line| {
            let text = line.trim_start_matches(['-', '*', '+', ' ']);
            // A date before the point is not part of it: `2026-05-14: …`, `(2026-05-14) …`.
            let dated = text.trim_start_matches(['(', '[']);
            let is_date = dated.get(..10).is_some_and(|d| d.parse::<jiff::civil::Date>().is_ok());
            let text = if is_date {
                dated.get(10..).unwrap_or_default().trim_start_matches([')', ']', ':', '-', '–', '—', ' '])
            } else {
                text
            };
            Point { file: file.name.clone(), text: text.to_owned() }
        })
        .filter(|point| !point.text.is_empty())
        .collect()
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
