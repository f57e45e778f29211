//! Moves that a command makes for a person: each a file of its own in their vocabulary folder, which they may edit.

use std::path::{Path, PathBuf};

use toml::Value;

use crate::darktable::luts::Lut;
use crate::durable;
use crate::vocabulary::error::VocabularyError;
use crate::vocabulary::load::Vocabulary;
use crate::vocabulary::styles;

/// The colour spaces that a LUT may be made for: this program's names, and darktable's numbers.
pub const LUT_SPACES: [(&str, i64); 5] =
    [("srgb", 0), ("adobe-rgb", 1), ("rec709", 2), ("linear-rec709", 3), ("linear-rec2020", 4)];

/// A move that is to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeMove {
    /// Its name.
    pub name: String,
    /// Its file, below the vocabulary folder.
    pub file: PathBuf,
    /// What stands in it.
    pub text: String,
}

/// The move of a LUT: its strength is how much of its picture lies over the one beneath.
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

/// No file that comes with the program is called so, and takes the place of another.
fn file(kind: &str, name: &str) -> PathBuf {
    Path::new("moves").join(format!("{kind}_{name}.toml"))
}

fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

impl Vocabulary {
    /// Whether a move of that name stands in its own file already and does the same. The error says who has the name.
    pub fn has_made(&self, made: &MadeMove, folder: &Path) -> Result<bool, VocabularyError> {
        let reason = |reason: String| VocabularyError::File { file: made.file.display().to_string(), reason };
        styles::check_name(&made.name).map_err(reason)?;
        let file = folder.join(&made.file);
        let other = match self.get(&made.name) {
            Ok(entry) if Path::new(&entry.file) == file => {
                let mut alone = Self::default();
                alone.add(&entry.file, &made.text)?;
                match alone.moves.get(&made.name) {
                    Some(new) if new.fixed == entry.fixed => return Ok(true),
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
    /// Writes it into the person's folder of vocabulary files. The error is the system's.
    pub fn save(&self, folder: &Path) -> std::io::Result<()> {
        durable::write(&folder.join(&self.file), self.text.as_bytes())
    }
}
