//! Moves that a command makes for a person: each a separate file in their vocabulary folder, which they may edit.

use std::path::{Path, PathBuf};

use toml::Value;

use crate::vocabulary::error::VocabularyError;
use crate::vocabulary::lens::FAR;
use crate::vocabulary::load::Vocabulary;
use crate::vocabulary::styles;
use base::durable;
use darktable::lensfun::Fitted;
use darktable::luts::Lut;

/// The colour spaces that a LUT may be made for: this program's names, and darktable's numbers.
pub const LUT_SPACES: [(&str, i64); 5] =
    [("srgb", 0), ("adobe-rgb", 1), ("rec709", 2), ("linear-rec709", 3), ("linear-rec2020", 4)];

/// Where words may be: this program's names, darktable's numbers, and the way in from the edge, across and down.
pub const MARK_PLACES: [(&str, i64, [f64; 2]); 6] = [
    ("top-left", 0, [1.0, 1.0]),
    ("top", 1, [0.0, 1.0]),
    ("top-right", 2, [-1.0, 1.0]),
    ("bottom-left", 6, [1.0, -1.0]),
    ("bottom", 7, [0.0, -1.0]),
    ("bottom-right", 8, [-1.0, -1.0]),
];

/// How far from the edges words are, as shares of the picture's width and height.
const MARGIN: f64 = 0.03;

/// The most characters of a mark.
const LONGEST_MARK: usize = 60;

/// A move that is to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeMove {
    /// Its name.
    pub name: String,
    /// Its file, below the vocabulary folder.
    pub file: PathBuf,
    /// Its text.
    pub text: String,
}

/// The move of a LUT: its strength is the opacity of its picture over the one beneath.
pub fn lut(name: &str, title: &str, lut: &Lut, space: i64) -> MadeMove {
    let description = format!("The LUT \"{title}\", as strongly as is said.");
    let text = format!(
        "[[move]]\nname = {}\nmodule = \"lut3d\"\ndescription = {}\naxes = {{}}\ntags = [\"lut\", \"color\"]\n\
         not_monotonic = \"what a LUT does is its maker's choice\"\n\
         parameters.opacity = {{ unit = \"%\", min = 0, max = 100, default = 100 }}\nopacity = \"opacity\"\n\
         fixed.filepath = {}\nfixed.colorspace = {space}\n",
        quoted(name),
        quoted(&description),
        quoted(&lut.name),
    );
    MadeMove { name: name.to_owned(), file: file("lut", name), text }
}

/// Whether words can be a mark.
///
/// # Errors
/// Why not, in words.
pub fn check_words(words: &str) -> Result<(), String> {
    let odd = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}' | '\u{2028}' | '\u{2029}');
    if words.is_empty() || words.chars().count() > LONGEST_MARK || words.contains(odd) {
        return Err(format!("a mark is one line of 1 to {LONGEST_MARK} characters"));
    }
    // darktable would put in today's date, a file's name, a place: another picture tomorrow, or one that reveals too much.
    if words.contains("$(") {
        return Err("a mark cannot contain darktable variables, `$(…)`: write the text itself".into());
    }
    Ok(())
}

/// The move of a mark: words in white, whose strength is their opacity. `size` is the height of the letters in percent
/// of the picture's shorter side.
pub fn mark(name: &str, words: &str, place: &str, size: f64) -> MadeMove {
    let known = MARK_PLACES.iter().find(|(known, ..)| *known == place);
    let (alignment, [across, down]) =
        known.map_or((8, [-1.0, -1.0]), |(_, number, inward)| (*number, *inward));
    // darktable takes the width of the words. An em is about 1.4 times as high as a capital, and most letters are
    // about 0.6 of it wide. Beyond the whole width the words would run off the picture.
    let scale = (size * 1.4 * 0.6 * words.chars().count() as f64).clamp(1.0, 90.0);
    let text = format!(
        "[[move]]\nname = {}\nmodule = \"watermark\"\ndescription = {}\naxes = {{}}\ntags = [\"mark\", \"copyright\"]\n\
         not_monotonic = \"words push no axis\"\n\
         parameters.opacity = {{ unit = \"%\", min = 0, max = 100, default = 80 }}\nset.opacity = \"opacity\"\n\
         fixed.filename = \"simple-text.svg\"\nfixed.text = {}\nfixed.font = \"DejaVu Sans Book 10\"\n\
         fixed.color = [1, 1, 1]\nfixed.alignment = {alignment}\nfixed.xoffset = {:?}\nfixed.yoffset = {:?}\n\
         fixed.scale = {:?}\nfixed.sizeto = 2\n",
        quoted(name),
        quoted(&format!("Write \"{words}\" into the picture ({place}).")),
        quoted(words),
        across * MARGIN + 0.0,
        down * MARGIN,
        (scale * 10.0).round() / 10.0,
    );
    MadeMove { name: name.to_owned(), file: file("mark", name), text }
}

/// The move of a lens that was chosen by hand, whatever the file says of one. A focal length in mm or an f-number that
/// is not given is the lens's only one, or the file's.
pub fn lens(name: &str, fitted: &Fitted, focal: Option<f64>, aperture: Option<f64>) -> MadeMove {
    let Fitted { lens, camera } = fitted;
    let only = lens.focal.filter(|(from, to)| from == to).map(|(at, _)| at);
    let description = format!(
        "Correct the lens \"{}\" on a sensor of crop factor {}, whatever the file says. `focal` and `aperture` are what \
         it was set to; 0 takes what the file says, and without an aperture dark corners stay.",
        lens.model, camera.crop,
    );
    let text = format!(
        "[[move]]\nname = {}\nmodule = \"lens\"\ndescription = {}\naxes = {{}}\n\
         tags = [\"lens\", \"geometry\", \"distortion\", \"vignette\"]\n\
         not_monotonic = \"a lens is corrected or not\"\n\
         parameters.on = {{ unit = \"\", min = 0, max = 1, default = 1, whole = true }}\n\
         parameters.focal = {{ unit = \"mm\", min = 0, max = 5000, default = {:?}, direction = true }}\n\
         parameters.aperture = {{ unit = \"f-number\", min = 0, max = 128, default = {:?}, direction = true }}\n\
         set.modify_flags = \"7*on\"\nset.focal = \"focal\"\nset.aperture = \"aperture\"\n\
         fixed.camera = {}\nfixed.lens = {}\nfixed.crop = {:?}\nfixed.distance = {FAR:?}\n\
         fixed.scale = 0\nfixed.target_geom = 0\nfixed.modified = 1\n",
        quoted(name),
        quoted(&description),
        focal.or(only).unwrap_or(0.0),
        aperture.unwrap_or(0.0),
        quoted(&camera.model),
        quoted(&lens.model),
        camera.crop,
    );
    MadeMove { name: name.to_owned(), file: file("lens", name), text }
}

/// No file that comes with the program is called so, and takes the place of another.
fn file(kind: &str, name: &str) -> PathBuf {
    Path::new("moves").join(format!("{kind}_{name}.toml"))
}

fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

impl Vocabulary {
    /// Whether a move of that name is in its own file already and does the same.
    ///
    /// # Errors
    /// [`VocabularyError`] says who has the name.
    pub fn has_made(&self, made: &MadeMove, folder: &Path) -> Result<bool, VocabularyError> {
        let reason = |reason: String| VocabularyError::File { file: made.file.display().to_string(), reason };
        styles::check_name(&made.name).map_err(reason)?;
        let file = folder.join(&made.file);
        let other = match self.get(&made.name) {
            Ok(entry) if Path::new(&entry.file) == file => {
                let mut alone = Self::default();
                alone.add(&entry.file, &made.text)?;
                match alone.moves.get(&made.name) {
                    // What a lens was set to is part of what the move does; else parameters are the person's to edit.
                    Some(new)
                        if new.fixed == entry.fixed
                            && (new.module != "lens" || new.parameters == entry.parameters) =>
                    {
                        return Ok(true);
                    }
                    _ => Some(&entry.file),
                }
            }
            Ok(entry) => Some(&entry.file),
            Err(_) => self.look(&made.name).map(|look| &look.file),
        };
        match other.or_else(|| self.style(&made.name).map(|style| &style.file)) {
            None => Ok(false),
            Some(first) => Err(VocabularyError::Duplicate {
                name: made.name.clone(),
                first: first.clone(),
                second: made.file.display().to_string(),
            }),
        }
    }
}

impl MadeMove {
    /// Writes it into the person's folder of vocabulary files.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn save(&self, folder: &Path) -> std::io::Result<()> {
        durable::write(&folder.join(&self.file), self.text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::testing::Photo;
    use base::assets::Overlay;

    #[test]
    fn what_is_made_is_a_move_that_an_edit_takes_and_gives_back() {
        let folder = tempfile::tempdir().unwrap();
        let words = "© \"Ann\" \\ <b> ' Ω";
        check_words(words).unwrap();
        let file = Lut { name: "x.cube".into(), bytes: Vec::new(), size: 2, title: None };
        let made = [mark("signature", words, "top-left", 2.5), lut("print", "a \"b\" \\", &file, 2)];
        for made in &made {
            made.save(folder.path()).unwrap();
        }
        let vocabulary = Vocabulary::load(&Overlay::vocabulary(Some(folder.path().to_owned()))).unwrap();
        for made in &made {
            assert!(vocabulary.has_made(made, folder.path()).unwrap());
        }
        let other = mark("signature", "other", "top", 1.0);
        assert!(vocabulary.has_made(&other, folder.path()).unwrap_err().to_string().contains("signature"));
        let taken = mark("exposure", "other", "top", 1.0);
        assert!(vocabulary.has_made(&taken, folder.path()).is_err());
        let mut photo = Photo::new();
        photo.vocabulary = vocabulary;
        let untouched = photo.state.clone();
        photo.apply("signature", &[], None);
        photo.apply("print", &[("opacity", 40.0)], None);
        let [mark, lut] = ["watermark", "lut3d"].map(|op| photo.state.module(op, 0).unwrap());
        assert_eq!((mark.modversion, lut.blend.as_ref().unwrap().opacity), (5, 40.0));
        photo.apply("print", &[("opacity", 0.0)], None);
        photo.apply("signature", &[("opacity", 0.0)], None);
        assert_eq!(photo.state, untouched);
    }

    #[test]
    fn words_are_one_plain_line() {
        for bad in ["", "a\nb", "a\u{2028}b", "\u{1b}[31m", "$(YEAR)", "x".repeat(61).as_str()] {
            assert!(check_words(bad).is_err(), "{bad:?}");
        }
        for good in ["© 2024", "a & b", "$5", "日本"] {
            assert!(check_words(good).is_ok(), "{good}");
        }
    }
}
