//! Styles that were exported from darktable: applied whole, not adjustable.
//!
//! A style is two files in the person's own folder: `styles/NAME.dtstyle`, kept as darktable wrote it, and
//! `styles/NAME.toml`, which says what it is.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::vocabulary::error::VocabularyError;
use crate::vocabulary::form::is_name;
use crate::vocabulary::load::Vocabulary;
use base::assets::{Origin, Overlay};
use base::durable;
use darktable::dtstyle;
use darktable::layout::Layouts;
use darktable::state::EditState;

/// The folder of the styles, within the vocabulary.
const STYLES: &str = "styles";

/// The longest name of a style.
const LONGEST_NAME: usize = 60;

/// A style that was imported.
#[derive(Clone, Debug)]
pub struct SavedStyle {
    /// Its name: lower-case letters, digits, underscores; no move has it.
    pub name: String,
    /// What the person says about it.
    pub about: StyleAbout,
    /// Its `.dtstyle` file.
    pub bytes: Arc<[u8]>,
    /// The file that defines it.
    pub file: String,
}

/// What a style's TOML file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StyleAbout {
    /// Its name in darktable.
    pub title: String,
    /// What it does, in a photographer's words.
    pub description: String,
    /// Words to find it by.
    #[serde(default)]
    pub tags: Vec<String>,
}

/// Every style of the vocabulary's files, by name.
pub(super) fn load(assets: &Overlay) -> Result<BTreeMap<String, SavedStyle>, VocabularyError> {
    let mut styles = BTreeMap::new();
    for (file, origin) in assets.list(STYLES, ".toml") {
        let path = format!("{STYLES}/{file}");
        let shown = match origin {
            Origin::Embedded => path.clone(),
            Origin::User(path) => path.display().to_string(),
        };
        let bad = |reason: String| VocabularyError::File { file: shown.clone(), reason };
        let name = file.trim_end_matches(".toml").to_owned();
        check_name(&name).map_err(bad)?;
        let text = assets.text(&path).ok_or_else(|| bad("not readable as UTF-8 text".into()))?;
        let about = toml::from_str(&text).map_err(|error| bad(error.to_string().trim().to_owned()))?;
        let bytes = assets
            .read(&format!("{STYLES}/{name}.dtstyle"))
            .ok_or_else(|| bad(format!("there is no readable {name}.dtstyle beside it")))?;
        styles
            .insert(name.clone(), SavedStyle { name, about, bytes: bytes.into_owned().into(), file: shown });
    }
    Ok(styles)
}

/// Writes a style into the person's folder of vocabulary files.
///
/// # Errors
/// The error of the file system.
pub fn save(folder: &Path, name: &str, about: &StyleAbout, bytes: &[u8]) -> std::io::Result<()> {
    let folder = folder.join(STYLES);
    let text = toml::to_string(about).map_err(std::io::Error::other)?;
    // A style without its description is not there, so the description is last.
    durable::write(&folder.join(format!("{name}.dtstyle")), bytes)?;
    durable::write(&folder.join(format!("{name}.toml")), text.as_bytes())
}

/// A name for a style that is called `title` in darktable; empty when nothing of it can be used.
pub fn name_of(title: &str) -> String {
    let mut name = String::new();
    for c in title.to_lowercase().chars() {
        match c {
            'a'..='z' | '0'..='9' => name.push(c),
            _ if !name.is_empty() && !name.ends_with('_') => name.push('_'),
            _ => {}
        }
    }
    let name = name.trim_start_matches(|c: char| !c.is_ascii_lowercase());
    name.chars().take(LONGEST_NAME).collect::<String>().trim_end_matches('_').to_owned()
}

/// Whether a style can be called that.
///
/// # Errors
/// What is legal, in words.
pub fn check_name(name: &str) -> Result<(), String> {
    if is_name(name) && name.len() <= LONGEST_NAME {
        return Ok(());
    }
    Err(format!(
        "a style's name has lower-case letters, digits and underscores, at most {LONGEST_NAME}, and begins with a letter"
    ))
}

impl Vocabulary {
    /// Every style, by name.
    pub fn styles(&self) -> impl Iterator<Item = &SavedStyle> {
        self.styles.values()
    }

    /// The style of this name, if there is one.
    pub fn style(&self, name: &str) -> Option<&SavedStyle> {
        self.styles.get(name)
    }

    /// The state with a style on top: see [`dtstyle::Style::apply`].
    pub(crate) fn apply_style(
        &self,
        style: &SavedStyle,
        state: &EditState,
        layouts: &Layouts,
        darktable_version: &str,
    ) -> Result<EditState, VocabularyError> {
        let read = dtstyle::read(&style.bytes, layouts, darktable_version);
        let read = read.map_err(|source| VocabularyError::Style {
            name: style.name.clone(),
            source: Box::new(source),
        })?;
        Ok(read.apply(state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_becomes_a_name() {
        for (title, name) in [
            ("Dusk & Dawn (v2)", "dusk_dawn_v2"),
            ("  2026|Ilford HP5+ ", "ilford_hp5"),
            ("_über", "ber"),
            ("日本", ""),
        ] {
            assert_eq!(name_of(title), name);
            assert!(name.is_empty() || check_name(name).is_ok());
        }
        assert_eq!(name_of(&"a".repeat(200)).len(), LONGEST_NAME);
        for bad in ["", "Dusk", "../x", "a b", "a-b"] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_saved_style_is_found_and_half_of_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let about = StyleAbout { title: "Dusk \"1\"".into(), description: "warm".into(), tags: vec![] };
        save(dir.path(), "dusk", &about, b"<x/>").unwrap();
        let assets = Overlay::vocabulary(Some(dir.path().to_owned()));
        let styles = load(&assets).unwrap();
        assert_eq!((&styles["dusk"].about, &styles["dusk"].bytes[..]), (&about, &b"<x/>"[..]));
        // A style may not take a move's name.
        save(dir.path(), "shadows_lift", &about, b"<x/>").unwrap();
        let error = Vocabulary::load(&assets).unwrap_err().to_string();
        assert!(error.contains("shadows_lift") && error.contains("twice"), "{error}");
        std::fs::remove_file(dir.path().join("styles/shadows_lift.dtstyle")).unwrap();
        let error = load(&assets).unwrap_err().to_string();
        assert!(error.contains("shadows_lift.dtstyle"), "{error}");
    }
}
