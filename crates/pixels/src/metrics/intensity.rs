//! How far a vector asks to go, from a photographer's words: "subtle", "much warmer", "black and white".

/// Words that ask for all there is of something.
const WHOLE: &[&str] = &["black and white", "black & white", "b&w", "monochrom"];
/// Words of size; a `*` is any ending.
const GENTLE: &[&str] =
    &["gentl*", "subtl*", "slight*", "mild*", "faint*", "touch", "hint", "little", "low", "light"];
const STRONG: &[&str] = &["strong*", "dramatic*", "bold*", "heav*", "extreme*", "intens*", "max*", "high"];

/// How far to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intensity {
    /// A little.
    Gentle,
    /// Nothing was said.
    Plain,
    /// Far.
    Strong,
    /// To the end: black and white is no matter of degree.
    Whole,
}

impl Intensity {
    /// What a vector's words say: those on its intensity where there are any, else its direction's.
    pub fn of(direction: &str, intensity: Option<&str>) -> Self {
        if WHOLE.iter().any(|words| direction.to_lowercase().contains(words)) {
            return Self::Whole;
        }
        let words = intensity.unwrap_or(direction).to_lowercase();
        let fits = |word: &str, pattern: &str| match pattern.strip_suffix('*') {
            Some(stem) => word.starts_with(stem),
            None => word == pattern,
        };
        let says = |patterns: &[&str]| {
            let mut spoken = words.split(|c: char| !c.is_alphanumeric());
            spoken.any(|word| patterns.iter().any(|pattern| fits(word, pattern)))
        };
        if says(GENTLE) {
            Self::Gentle
        } else if says(STRONG) {
            Self::Strong
        } else {
            Self::Plain
        }
    }

    /// The movement that satisfies it, in just-noticeable steps on the asked axes.
    pub const fn steps(self) -> f64 {
        match self {
            Self::Gentle => 2.0,
            Self::Plain => 4.0,
            Self::Strong | Self::Whole => 7.0,
        }
    }
}
