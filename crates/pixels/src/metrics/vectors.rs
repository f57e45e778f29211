//! From a photographer's words to axes: "warmer", "more dramatic shadow lift", "less saturated reds".
//!
//! Not a language model: a table of words and four rules. A *target* (shadows, contrast, the reds…) takes the
//! modifiers of its clause; without a target each word means what it means alone; "less" turns the next word
//! round; what follows "not", "without", "keep"… is left alone. Words that are not in the table say nothing.

use crate::metrics::axes::Axis;

/// The axes that a vector asks to move, the most important first, each with +1 or −1.
/// Empty when the words say nothing measurable.
pub fn vector_axes(name: &str, direction: &str) -> Vec<(Axis, i8)> {
    let (name, direction) = (normal(name), normal(direction));
    // The name may be the object of the direction: "shadows": "lift them".
    let object = words(&name).find_map(|word| match meaning(word) {
        Some(Meaning::Target(target)) => Some(target),
        _ => None,
    });
    let mut found = read(&direction, object);
    if found.is_empty() {
        found = read(&format!("{direction} {name}"), None);
    }
    if found.is_empty() {
        found = read(&name, None);
    }
    found
}

/// What a word can be the object of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// A range of tones, with its lightness, warmth and tint.
    Zone(Axis, Axis, Axis),
    /// The saturation of one hue.
    Hue(Axis),
    /// A quality that there can be more or less of; the sign is what more of it does.
    Quality(&'static [(Axis, i8)]),
}

/// What a word says.
#[derive(Clone, Copy, Debug)]
enum Meaning {
    /// An object.
    Target(Target),
    /// More or less of the target.
    Amount(i8),
    /// Lighter or darker: the target zone, else the picture.
    Light(i8),
    /// Warmer or cooler: the target zone, else the picture.
    Warmth(i8),
    /// More magenta or more green: the target zone, else the picture.
    Tint(i8),
    /// Richer or paler colours: the target hue, else all.
    Richness(i8),
    /// A mood with its own axes; beside a target it is mere emphasis.
    Mood(&'static [(Axis, i8)]),
    /// Turns the next word round.
    Less,
    /// The rest of the clause is not to be moved.
    Spare,
}

const SHADOWS: Target = Target::Zone(Axis::Shadows, Axis::ShadowWarmth, Axis::ShadowTint);
const BLACKS: Target = Target::Zone(Axis::Blacks, Axis::ShadowWarmth, Axis::ShadowTint);
const MIDTONES: Target = Target::Zone(Axis::Midtones, Axis::Warmth, Axis::Tint);
const HIGHLIGHTS: Target = Target::Zone(Axis::Highlights, Axis::HighlightWarmth, Axis::HighlightTint);
const WHITES: Target = Target::Zone(Axis::Whites, Axis::HighlightWarmth, Axis::HighlightTint);
const CONTRAST: Target = Target::Quality(&[(Axis::Contrast, 1)]);
const COLOUR: Target = Target::Quality(&[(Axis::Chroma, 1)]);
const STRUCTURE: Target = Target::Quality(&[(Axis::LocalContrast, 1), (Axis::Sharpness, 1)]);
const HAZE: Target = Target::Quality(&[(Axis::Contrast, -1), (Axis::LocalContrast, -1)]);
const NOISE: Target = Target::Quality(&[(Axis::Noise, 1)]);
const VIGNETTE: Target = Target::Quality(&[(Axis::EdgeBrightness, -1)]);
const EDGES: Target = Target::Zone(Axis::EdgeBrightness, Axis::Warmth, Axis::Tint);

/// Phrases that would fall apart as words, with one word that means the same. Tried in this order.
const PHRASES: &[(&str, &str)] = &[
    ("black and white", "monochrome"),
    ("black & white", "monochrome"),
    ("b&w", "monochrome"),
    ("teal and orange", "splittone"),
    ("orange and teal", "splittone"),
    ("high key", "airy"),
    ("high-key", "airy"),
    ("low key", "moody"),
    ("low-key", "moody"),
    ("mid tone", "midtone"),
    ("mid-tone", "midtone"),
    ("local contrast", "clarity"),
    ("white balance", "temperature"),
    ("draw the eye", "vignette"),
    ("focus on", "vignette"),
    ("pull down", "lower"),
    ("bring down", "lower"),
    ("hold back", "lower"),
    ("bring up", "raise"),
    ("bring out", "raise"),
    ("open up", "open"),
    ("don't", "not"),
    ("go deeper", "explore"),
    ("rather than", "not"),
    ("instead of", "not"),
];

/// Words; a `*` is any ending. The first row that fits counts.
const WORDS: &[(&str, Meaning)] = &[
    // Tones.
    ("shadow*", Meaning::Target(SHADOWS)),
    ("blacks", Meaning::Target(BLACKS)),
    ("midtone*", Meaning::Target(MIDTONES)),
    ("mids", Meaning::Target(MIDTONES)),
    ("highlight*", Meaning::Target(HIGHLIGHTS)),
    ("whites", Meaning::Target(WHITES)),
    ("edges", Meaning::Target(EDGES)),
    ("corners", Meaning::Target(EDGES)),
    ("borders", Meaning::Target(EDGES)),
    // Hues.
    ("red", Meaning::Target(Target::Hue(Axis::Reds))),
    ("reds", Meaning::Target(Target::Hue(Axis::Reds))),
    ("orange*", Meaning::Target(Target::Hue(Axis::Yellows))),
    ("yellow", Meaning::Target(Target::Hue(Axis::Yellows))),
    ("yellows", Meaning::Target(Target::Hue(Axis::Yellows))),
    ("green", Meaning::Target(Target::Hue(Axis::Greens))),
    ("greens", Meaning::Target(Target::Hue(Axis::Greens))),
    ("foliage", Meaning::Target(Target::Hue(Axis::Greens))),
    ("cyan*", Meaning::Target(Target::Hue(Axis::Cyans))),
    ("teal*", Meaning::Target(Target::Hue(Axis::Cyans))),
    ("blue", Meaning::Target(Target::Hue(Axis::Blues))),
    ("blues", Meaning::Target(Target::Hue(Axis::Blues))),
    ("magentas", Meaning::Target(Target::Hue(Axis::Magentas))),
    ("purple*", Meaning::Target(Target::Hue(Axis::Magentas))),
    // Qualities.
    ("contrast*", Meaning::Target(CONTRAST)),
    ("tone", Meaning::Target(CONTRAST)),
    ("tones", Meaning::Target(CONTRAST)),
    ("tonal", Meaning::Target(CONTRAST)),
    ("tonality", Meaning::Target(CONTRAST)),
    ("punch*", Meaning::Target(CONTRAST)),
    ("color", Meaning::Target(COLOUR)),
    ("colors", Meaning::Target(COLOUR)),
    ("colour", Meaning::Target(COLOUR)),
    ("colours", Meaning::Target(COLOUR)),
    ("saturation", Meaning::Target(COLOUR)),
    ("vibrance", Meaning::Target(COLOUR)),
    ("structure*", Meaning::Target(STRUCTURE)),
    ("clarity", Meaning::Target(STRUCTURE)),
    ("texture*", Meaning::Target(STRUCTURE)),
    ("detail*", Meaning::Target(STRUCTURE)),
    ("grain*", Meaning::Target(NOISE)),
    ("noise", Meaning::Target(NOISE)),
    ("haze", Meaning::Target(HAZE)),
    ("fog", Meaning::Target(HAZE)),
    ("vignett*", Meaning::Target(VIGNETTE)),
    ("warmth", Meaning::Target(Target::Quality(&[(Axis::Warmth, 1)]))),
    ("temperature", Meaning::Target(Target::Quality(&[(Axis::Warmth, 1)]))),
    ("tint", Meaning::Target(Target::Quality(&[(Axis::Tint, 1)]))),
    ("exposure", Meaning::Target(Target::Quality(&[(Axis::Brightness, 1)]))),
    ("brightness", Meaning::Target(Target::Quality(&[(Axis::Brightness, 1)]))),
    ("sharpness", Meaning::Target(Target::Quality(&[(Axis::Sharpness, 1)]))),
    // More and less of a target.
    ("more", Meaning::Amount(1)),
    ("boost*", Meaning::Amount(1)),
    ("increas*", Meaning::Amount(1)),
    ("add*", Meaning::Amount(1)),
    ("strong*", Meaning::Amount(1)),
    ("enhanc*", Meaning::Amount(1)),
    ("emphasi*", Meaning::Amount(1)),
    ("less", Meaning::Less),
    ("fewer", Meaning::Less),
    ("reduc*", Meaning::Less),
    ("remov*", Meaning::Less),
    ("decreas*", Meaning::Less),
    ("tam*", Meaning::Less),
    ("lower*", Meaning::Less),
    ("weak*", Meaning::Less),
    ("cut", Meaning::Less),
    // Light.
    ("bright*", Meaning::Light(1)),
    ("light", Meaning::Light(1)),
    ("lighter", Meaning::Light(1)),
    ("lighten*", Meaning::Light(1)),
    ("lift*", Meaning::Light(1)),
    ("open*", Meaning::Light(1)),
    ("rais*", Meaning::Light(1)),
    ("luminous", Meaning::Light(1)),
    ("dark*", Meaning::Light(-1)),
    ("deep*", Meaning::Light(-1)),
    ("crush*", Meaning::Light(-1)),
    ("dim*", Meaning::Light(-1)),
    ("recover*", Meaning::Light(-1)),
    ("burn*", Meaning::Light(-1)),
    // Colour.
    ("warm*", Meaning::Warmth(1)),
    ("golden", Meaning::Warmth(1)),
    ("amber", Meaning::Warmth(1)),
    ("yellower", Meaning::Warmth(1)),
    ("cool*", Meaning::Warmth(-1)),
    ("cold*", Meaning::Warmth(-1)),
    ("bluer", Meaning::Warmth(-1)),
    ("icy", Meaning::Warmth(-1)),
    ("magenta", Meaning::Tint(1)),
    ("pinker", Meaning::Tint(1)),
    ("greener", Meaning::Tint(-1)),
    ("rich*", Meaning::Richness(1)),
    ("saturat*", Meaning::Richness(1)),
    ("vibran*", Meaning::Richness(1)),
    ("vivid*", Meaning::Richness(1)),
    ("colorful*", Meaning::Richness(1)),
    ("colourful*", Meaning::Richness(1)),
    ("muted", Meaning::Richness(-1)),
    ("mute", Meaning::Richness(-1)),
    ("desaturat*", Meaning::Richness(-1)),
    ("pastel*", Meaning::Richness(-1)),
    ("pale*", Meaning::Richness(-1)),
    ("subdued", Meaning::Richness(-1)),
    ("monochrom*", Meaning::Richness(-1)),
    ("bw", Meaning::Richness(-1)),
    ("splittone", Meaning::Mood(&[(Axis::ShadowWarmth, -1), (Axis::HighlightWarmth, 1)])),
    // Moods.
    ("dramatic*", Meaning::Mood(&[(Axis::Contrast, 1)])),
    ("drama", Meaning::Mood(&[(Axis::Contrast, 1)])),
    ("bold*", Meaning::Mood(&[(Axis::Contrast, 1)])),
    ("flat*", Meaning::Mood(&[(Axis::Contrast, -1)])),
    ("gentl*", Meaning::Mood(&[(Axis::Contrast, -1)])),
    ("matte", Meaning::Mood(&[(Axis::Blacks, 1), (Axis::Contrast, -1)])),
    ("faded", Meaning::Mood(&[(Axis::Blacks, 1), (Axis::Contrast, -1)])),
    ("mood*", Meaning::Mood(&[(Axis::Brightness, -1)])),
    ("brooding", Meaning::Mood(&[(Axis::Brightness, -1)])),
    ("airy", Meaning::Mood(&[(Axis::Brightness, 1)])),
    ("airier", Meaning::Mood(&[(Axis::Brightness, 1)])),
    ("crisp*", Meaning::Mood(&[(Axis::LocalContrast, 1), (Axis::Sharpness, 1)])),
    ("gritt*", Meaning::Mood(&[(Axis::LocalContrast, 1), (Axis::Sharpness, 1)])),
    ("sharp*", Meaning::Mood(&[(Axis::Sharpness, 1), (Axis::LocalContrast, 1)])),
    ("soft*", Meaning::Mood(&[(Axis::LocalContrast, -1)])),
    ("dream*", Meaning::Mood(&[(Axis::LocalContrast, -1)])),
    ("smooth*", Meaning::Mood(&[(Axis::LocalContrast, -1)])),
    ("dehaz*", Meaning::Mood(&[(Axis::Contrast, 1), (Axis::LocalContrast, 1)])),
    ("denois*", Meaning::Mood(&[(Axis::Noise, -1)])),
    ("clean*", Meaning::Mood(&[(Axis::Noise, -1)])),
    ("crop*", Meaning::Mood(&[(Axis::FrameArea, -1)])),
    ("tighter", Meaning::Mood(&[(Axis::FrameArea, -1)])),
    // Left alone.
    ("not", Meaning::Spare),
    ("no", Meaning::Spare),
    ("never", Meaning::Spare),
    ("without", Meaning::Spare),
    ("avoid*", Meaning::Spare),
    ("keep*", Meaning::Spare),
    ("protect*", Meaning::Spare),
    ("preserv*", Meaning::Spare),
    ("hold*", Meaning::Spare),
    ("retain*", Meaning::Spare),
];

/// Words between "less" and what it is about.
const FILLERS: &[&str] = &["the", "a", "of", "so", "very", "bit", "overall", "all", "its", "their"];

fn meaning(word: &str) -> Option<Meaning> {
    let fits = |pattern: &str| match pattern.strip_suffix('*') {
        Some(stem) => word.starts_with(stem),
        None => word == pattern,
    };
    WORDS.iter().find(|(pattern, _)| fits(pattern)).map(|&(_, meaning)| meaning)
}

/// Lower case, underscores as spaces, phrases as one word.
fn normal(text: &str) -> String {
    let text = text.to_lowercase().replace('_', " ").replace('\u{2019}', "'");
    PHRASES.iter().fold(text, |text, (phrase, word)| text.replace(phrase, word))
}

fn words(clause: &str) -> impl Iterator<Item = &str> {
    clause.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// Reads clause by clause; `object` is the target of clauses that name none.
fn read(text: &str, object: Option<Target>) -> Vec<(Axis, i8)> {
    let mut found: Vec<(Axis, i8)> = Vec::new();
    let text = [" and ", " but ", " while ", " with "].iter().fold(text.to_owned(), |t, w| t.replace(w, ","));
    for clause in text.split([',', ';', '.', ':', '/', '+', '\n', '\u{2014}']) {
        for (axis, sign) in read_clause(clause, object) {
            // Said twice is said once; the first word on an axis counts.
            if !found.iter().any(|&(known, _)| known == axis) {
                found.push((axis, sign));
            }
        }
    }
    found
}

fn read_clause(clause: &str, object: Option<Target>) -> Vec<(Axis, i8)> {
    let spoken = words(clause).filter(|word| !FILLERS.contains(word)).filter_map(meaning);
    let spoken: Vec<Meaning> = spoken.take_while(|word| !matches!(word, Meaning::Spare)).collect();
    let named = spoken.iter().find_map(|word| match word {
        Meaning::Target(target) => Some(*target),
        _ => None,
    });

    let mut found = Vec::new();
    let mut turn = 1;
    let mut amount = None;
    for word in &spoken {
        match *word {
            Meaning::Less => {
                turn = -1;
                amount = Some(-1);
                continue;
            }
            Meaning::Amount(sign) => {
                amount.get_or_insert(sign);
                continue;
            }
            Meaning::Target(_) | Meaning::Spare => {}
            // A mood beside a named target is emphasis: "dramatic shadow lift".
            Meaning::Mood(_) if named.is_some() => {}
            Meaning::Mood(axes) => found.extend(axes.iter().map(|&(axis, sign)| (axis, sign * turn))),
            Meaning::Light(sign) => found.extend(light(named.or(object), sign * turn)),
            Meaning::Warmth(sign) => found.push((warmth(named.or(object)), sign * turn)),
            Meaning::Tint(sign) => found.push((tint(named.or(object)), sign * turn)),
            Meaning::Richness(sign) => found.push((richness(named.or(object)), sign * turn)),
        }
        turn = 1;
    }
    if !found.is_empty() {
        return found;
    }
    let target = if amount.is_some() { named.or(object) } else { named };
    match (target, spoken.iter().any(|word| is_detail(*word))) {
        // "More highlight detail" is darker highlights, "more shadow detail" brighter shadows.
        (Some(HIGHLIGHTS | WHITES), true) => light(target, -amount.unwrap_or(1)),
        (Some(target), _) => more_of(target, amount),
        (None, _) => found,
    }
}

fn is_detail(word: Meaning) -> bool {
    matches!(word, Meaning::Target(STRUCTURE))
}

/// More (or less) of a target. Of a zone, only "less" or "more" says which way; a bare zone says nothing.
fn more_of(target: Target, amount: Option<i8>) -> Vec<(Axis, i8)> {
    match (target, amount) {
        (Target::Quality(axes), _) => {
            axes.iter().map(|&(axis, sign)| (axis, sign * amount.unwrap_or(1))).collect()
        }
        (Target::Zone(axis, ..) | Target::Hue(axis), Some(sign)) => vec![(axis, sign)],
        (Target::Zone(..) | Target::Hue(_), None) => Vec::new(),
    }
}

fn light(target: Option<Target>, sign: i8) -> Vec<(Axis, i8)> {
    match target {
        Some(Target::Zone(axis, ..)) => vec![(axis, sign)],
        // "Deeper blues" are richer, "brighter reds" too.
        Some(Target::Hue(axis)) => vec![(axis, 1)],
        // "Lift the contrast", "raise the clarity"; but "darker tone" is about the picture.
        Some(target @ Target::Quality(axes)) if target != CONTRAST && sign > 0 => axes.to_vec(),
        _ => vec![(Axis::Brightness, sign)],
    }
}

fn warmth(target: Option<Target>) -> Axis {
    match target {
        Some(Target::Zone(_, warmth, _)) => warmth,
        _ => Axis::Warmth,
    }
}

fn tint(target: Option<Target>) -> Axis {
    match target {
        Some(Target::Zone(_, _, tint)) => tint,
        _ => Axis::Tint,
    }
}

fn richness(target: Option<Target>) -> Axis {
    match target {
        Some(Target::Hue(axis)) => axis,
        _ => Axis::Chroma,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::axes::Axis::*;

    #[test]
    fn photographers_words_name_their_axes() {
        type Case = (&'static str, &'static str, &'static [(Axis, i8)]);
        let cases: &[Case] = &[
            ("tone", "more dramatic shadow lift", &[(Shadows, 1)]),
            ("tone", "more dramatic", &[(Contrast, 1)]),
            ("tone", "darker, moodier", &[(Brightness, -1)]),
            ("tone", "brighter and airier", &[(Brightness, 1)]),
            ("tone", "lift", &[(Brightness, 1)]),
            ("tone", "recover highlights", &[(Highlights, -1)]),
            ("tone", "tame the highlights", &[(Highlights, -1)]),
            ("tone", "pull down the highlights", &[(Highlights, -1)]),
            ("tone", "more highlight detail", &[(Highlights, -1)]),
            ("tone", "more shadow detail", &[(Shadows, 1)]),
            ("tone", "deeper blacks", &[(Blacks, -1)]),
            ("tone", "open the shadows and recover the highlights", &[(Shadows, 1), (Highlights, -1)]),
            ("tone", "less contrast", &[(Contrast, -1)]),
            ("tone", "punchier", &[(Contrast, 1)]),
            ("tone", "faded, matte", &[(Blacks, 1), (Contrast, -1)]),
            ("tone", "", &[(Contrast, 1)]),
            ("tone", "go deeper", &[(Contrast, 1)]),
            ("color", "warmer", &[(Warmth, 1)]),
            ("colour", "cooler", &[(Warmth, -1)]),
            ("color", "less warm", &[(Warmth, -1)]),
            ("color", "richer", &[(Chroma, 1)]),
            ("color", "saturated, vibrant", &[(Chroma, 1)]),
            ("color", "muted", &[(Chroma, -1)]),
            ("color", "desaturated", &[(Chroma, -1)]),
            ("color", "less saturated", &[(Chroma, -1)]),
            ("color", "reduce the saturation", &[(Chroma, -1)]),
            ("color", "black and white", &[(Chroma, -1)]),
            ("mono", "B&W", &[(Chroma, -1)]),
            ("color", "cooler shadows, warmer highlights", &[(ShadowWarmth, -1), (HighlightWarmth, 1)]),
            ("color", "teal and orange", &[(ShadowWarmth, -1), (HighlightWarmth, 1)]),
            ("color", "deeper blues", &[(Blues, 1)]),
            ("color", "less saturated reds", &[(Reds, -1)]),
            ("color", "less green", &[(Greens, -1)]),
            ("color", "greener", &[(Tint, -1)]),
            ("color", "warmer, but not too saturated", &[(Warmth, 1)]),
            ("color", "warmer without crushing the shadows", &[(Warmth, 1)]),
            ("color", "not too warm", &[(Chroma, 1)]),
            ("color", "", &[(Chroma, 1)]),
            ("structure", "", &[(LocalContrast, 1), (Sharpness, 1)]),
            ("structure", "rock detail", &[(LocalContrast, 1), (Sharpness, 1)]),
            ("structure", "more", &[(LocalContrast, 1), (Sharpness, 1)]),
            ("structure", "softer, dreamier", &[(LocalContrast, -1)]),
            ("clarity", "less", &[(LocalContrast, -1), (Sharpness, -1)]),
            ("depth", "bring out texture in the wood", &[(LocalContrast, 1), (Sharpness, 1)]),
            ("shadows", "lift them", &[(Shadows, 1)]),
            ("warmth", "less", &[(Warmth, -1)]),
            ("warmth", "a touch", &[(Warmth, 1)]),
            ("focus", "a vignette", &[(EdgeBrightness, -1)]),
            ("focus", "darken the corners", &[(EdgeBrightness, -1)]),
            ("focus", "focus on the centre", &[(EdgeBrightness, -1)]),
            ("focus", "remove the vignette", &[(EdgeBrightness, 1)]),
            ("air", "less haze", &[(Contrast, 1), (LocalContrast, 1)]),
            ("detail", "reduce noise", &[(Noise, -1)]),
            ("frame", "tighter crop", &[(FrameArea, -1)]),
        ];
        for (name, direction, expected) in cases {
            assert_eq!(vector_axes(name, direction), *expected, "{name}: {direction}");
        }
    }

    #[test]
    fn other_words_name_none() {
        for (name, direction) in [
            ("", ""),
            ("depth", "more"),
            ("story", "as if remembered"),
            ("x", "not warm"),
            ("sky", "\u{1f600}"),
        ] {
            assert_eq!(vector_axes(name, direction), [], "{name}: {direction}");
        }
    }

    #[test]
    fn no_row_of_the_table_is_hidden_by_an_earlier_one() {
        for (index, (pattern, _)) in WORDS.iter().enumerate() {
            let word = pattern.trim_end_matches('*');
            let first = WORDS.iter().position(|(earlier, _)| match earlier.strip_suffix('*') {
                Some(stem) => word.starts_with(stem),
                None => word == *earlier,
            });
            assert_eq!(first, Some(index), "{pattern}");
        }
    }
}
