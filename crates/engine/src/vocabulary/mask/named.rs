//! Named masks: `masks/*.toml` of the vocabulary, with a person's own beside or instead of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::vocabulary::error::VocabularyError;
use crate::vocabulary::mask::spec::MaskSpec;
use base::assets::{Origin, Overlay};
use base::hint;

/// The folder of the mask files, within the vocabulary.
const MASKS: &str = "masks";

/// Every named mask there is.
#[derive(Clone, Debug, Default)]
pub struct NamedMasks(BTreeMap<String, NamedMask>);

/// A mask with a name.
#[derive(Clone, Debug)]
pub struct NamedMask {
    /// Its name.
    pub name: String,
    /// Where it acts, in a sentence for someone who looks at the picture.
    pub description: String,
    /// The mask itself, without another name in it.
    pub spec: MaskSpec,
    /// The file that defines it.
    pub file: String,
}

/// A named mask as an agent reads it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListedMask<'a> {
    /// Its name.
    pub name: &'a str,
    /// Where it acts.
    pub description: &'a str,
}

impl ListedMask<'_> {
    /// Whether a wish has a word of its name.
    pub fn is_meant(&self, query: &str) -> bool {
        let words = || query.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
        self.name
            .split('_')
            .any(|part| words().any(|word| word.trim_end_matches('s') == part.trim_end_matches('s')))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MaskFile {
    #[serde(default)]
    mask: Vec<MaskEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MaskEntry {
    name: String,
    description: String,
    is: MaskSpec,
}

impl NamedMasks {
    /// Reads every mask file; what is wrong in one is an error.
    pub(crate) fn load(assets: &Overlay) -> Result<Self, VocabularyError> {
        let mut masks = Self::default();
        for (name, origin) in assets.list(MASKS, ".toml") {
            let path = format!("{MASKS}/{name}");
            let file = match origin {
                Origin::Embedded => path.clone(),
                Origin::User(path) => path.display().to_string(),
            };
            let bad = |reason: String| VocabularyError::File { file: file.clone(), reason };
            let text = assets.text(&path).ok_or_else(|| bad("not readable as UTF-8 text".into()))?;
            let parsed: MaskFile = toml::from_str(&text).map_err(|e| bad(hint::toml_error(&text, &e)))?;
            for MaskEntry { name, description, is: spec } in parsed.mask {
                let bad = |reason: String| bad(format!("mask `{name}`: {reason}"));
                let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
                if name.is_empty() || !name.chars().all(legal) {
                    return Err(bad("a name has lower-case letters, digits and underscores".into()));
                }
                if !description.ends_with('.') {
                    return Err(bad("the description must be a sentence, with its full stop".into()));
                }
                // Without names to look up, a name within the mask is an error too.
                spec.check(&Self::default())
                    .and_then(|c| c.mask.compile())
                    .map_err(|e| bad(e.to_string()))?;
                if let Some(first) = masks.0.get(&name) {
                    return Err(bad(format!("the name is also used in {}; rename one", first.file)));
                }
                let mask = NamedMask { name: name.clone(), description, spec, file: file.clone() };
                masks.0.insert(name, mask);
            }
        }
        Ok(masks)
    }

    /// Every named mask, by name.
    pub fn iter(&self) -> impl Iterator<Item = &NamedMask> {
        self.0.values()
    }

    /// The mask of this name.
    ///
    /// # Errors
    /// [`VocabularyError`] names the mask that is spelled like it, or all.
    pub fn get(&self, name: &str) -> Result<&NamedMask, VocabularyError> {
        self.0.get(name).ok_or_else(|| {
            let names = || self.0.keys().map(String::as_str);
            let near = hint::did_you_mean(name, names());
            let all = names().collect::<Vec<_>>().join(", ");
            let rest = match (near.is_empty(), all.is_empty()) {
                (_, true) => String::new(),
                (false, _) => near,
                (true, false) => format!("; there are {all}"),
            };
            VocabularyError::Mask(format!("there is no named mask `{name}`{rest}"))
        })
    }

    /// As an agent reads them.
    pub fn list(&self) -> Vec<ListedMask<'_>> {
        self.iter().map(|mask| ListedMask { name: &mask.name, description: &mask.description }).collect()
    }
}
