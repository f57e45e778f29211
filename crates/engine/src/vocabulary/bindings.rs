//! Bindings: which moves and looks a photo gets for its camera and lens, before anybody edits it.
//!
//! Layer 1 is what the camera and the lens call for, layer 2 a look to start from, layer 3 the moves of a
//! session or a person. Bindings say the first two, by the very words that the camera wrote into the file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::vocabulary::error::VocabularyError;
use crate::vocabulary::load::Vocabulary;
use base::assets::{Origin, Overlay};

/// The folder of the bindings, within the vocabulary.
const BINDINGS: &str = "bindings";

/// What photos of a camera, or of a camera and a lens, get.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Binding {
    /// EXIF's camera model, exactly; any camera if absent.
    #[serde(default)]
    pub camera: Option<String>,
    /// EXIF's lens model, exactly; any lens if absent.
    #[serde(default)]
    pub lens: Option<String>,
    /// 1 for camera and lens, 2 for a look.
    pub layer: u8,
    /// What is applied, in this order.
    pub apply: Vec<Bound>,
    /// The file that says so.
    #[serde(skip)]
    pub file: String,
}

/// One thing that a binding applies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Bound {
    /// A move.
    Move {
        /// Its name.
        #[serde(rename = "move")]
        name: String,
        /// Its values; those not given take their defaults.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        values: BTreeMap<String, f64>,
    },
    /// A look or a style.
    Look {
        /// Its name.
        look: String,
        /// 0…1; a style has none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        strength: Option<f64>,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BindingFile {
    #[serde(default)]
    binding: Vec<Binding>,
}

/// Every binding of the vocabulary's files, in the order of the files' names.
pub(super) fn load(assets: &Overlay) -> Result<Vec<Binding>, VocabularyError> {
    let mut bindings = Vec::new();
    for (file, origin) in assets.list(BINDINGS, ".toml") {
        let path = format!("{BINDINGS}/{file}");
        let shown = match origin {
            Origin::Embedded => path.clone(),
            Origin::User(path) => path.display().to_string(),
        };
        let text = assets.text(&path).ok_or_else(|| VocabularyError::File {
            file: shown.clone(),
            reason: "not readable as UTF-8 text".into(),
        })?;
        bindings.extend(parse(&shown, &text)?);
    }
    Ok(bindings)
}

/// Reads one file of bindings.
///
/// # Errors
/// [`VocabularyError::File`] with the line.
pub fn parse(file: &str, text: &str) -> Result<Vec<Binding>, VocabularyError> {
    let bad = |reason: String| VocabularyError::File { file: file.to_owned(), reason };
    let read: BindingFile = toml::from_str(text).map_err(|error| bad(error.to_string().trim().to_owned()))?;
    let mut bindings = read.binding;
    for (place, binding) in bindings.iter_mut().enumerate() {
        let wrong = |what: &str| bad(format!("binding {}: {what}", place + 1));
        if !matches!(binding.layer, 1 | 2) {
            return Err(wrong("layer is 1 (camera and lens) or 2 (look)"));
        }
        if binding.layer == 1 && binding.camera.is_none() {
            return Err(wrong("a binding of layer 1 names a camera, by its EXIF model"));
        }
        if binding.apply.is_empty() {
            return Err(wrong("it has nothing to apply"));
        }
        binding.file = file.to_owned();
    }
    Ok(bindings)
}

impl Binding {
    /// Whether it is for this camera and lens.
    pub fn fits(&self, camera: Option<&str>, lens: Option<&str>) -> bool {
        let fits = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| Some(wanted) == found)
        };
        fits(&self.camera, camera) && fits(&self.lens, lens)
    }
}

impl Vocabulary {
    /// Every binding.
    pub fn bindings(&self) -> &[Binding] {
        &self.bindings
    }

    /// The bindings of a layer for a camera and a lens: those for any lens first, so that the one for this
    /// lens has the last word.
    pub(crate) fn bindings_for(&self, layer: u8, camera: Option<&str>, lens: Option<&str>) -> Vec<&Binding> {
        let mut found: Vec<&Binding> =
            self.bindings.iter().filter(|b| b.layer == layer && b.fits(camera, lens)).collect();
        found.sort_by_key(|b| (b.camera.is_some(), b.lens.is_some()));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
[[binding]]
camera = "X-T4"
lens = "XF35mm F1.4 R"
layer = 1
apply = [{ move = "exposure", values = { ev = 0.3 } }]

[[binding]]
camera = "X-T4"
layer = 1
apply = [{ move = "exposure" }]

[[binding]]
layer = 2
apply = [{ look = "dusk", strength = 0.5 }]
"#;

    #[test]
    fn bindings_fit_by_the_exact_words_and_the_closest_comes_last() {
        let mut vocabulary = Vocabulary::default();
        vocabulary.bindings = parse("a.toml", GOOD).unwrap();
        let lenses = |camera, lens| {
            let found = vocabulary.bindings_for(1, camera, lens);
            found.into_iter().map(|b| b.lens.clone()).collect::<Vec<_>>()
        };
        let lens = Some("XF35mm F1.4 R");
        assert_eq!(lenses(Some("X-T4"), lens), [None, lens.map(Into::into)]);
        assert_eq!(lenses(Some("X-T4"), Some("XF35mm")), [None]);
        assert_eq!(lenses(Some("x-t4"), lens), []);
        assert_eq!(lenses(None, None), []);
        assert_eq!(vocabulary.bindings_for(2, None, None).len(), 1);
    }

    #[test]
    fn each_mistake_is_named_with_its_file() {
        for (from, to, expected) in [
            ("layer = 2", "layer = 3", "layer is 1"),
            ("camera = \"X-T4\"\nlayer", "layer", "names a camera"),
            ("[{ move = \"exposure\" }]", "[]", "it has nothing to apply"),
            ("move = \"exposure\" }", "moove = \"exposure\" }", "did not match"),
            ("layer = 2", "layer = 2\nstrength = 1", "unknown field"),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let error = parse("a.toml", &GOOD.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("a.toml"), "{to}: {error}");
        }
    }
}
