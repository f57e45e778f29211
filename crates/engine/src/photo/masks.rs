//! Masks that one photo gives names: saved once, meant by name wherever a mask is written, before the vocabulary's.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::photo::error::PhotoError;
use crate::photo::jsonl;
use crate::photo::oplog::time;
use crate::photo::workspace::Workspace;
use crate::photo::writer::{Authority, Writer};
use crate::vocabulary::MaskSpec;

/// Its file in a photo's folder. Append-only: the last line of a name counts, and one without a mask ends it.
const FILE: &str = "masks.jsonl";
/// The most names of a photo.
const MOST: usize = 64;

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Line {
    #[serde(with = "time")]
    t: jiff::Timestamp,
    by: String,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mask: Option<MaskSpec>,
}

/// A mask with a name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SavedMask {
    /// The mask, on the picture as it was shown.
    pub mask: MaskSpec,
    /// `person`, or the session's id.
    pub by: String,
}

impl Workspace {
    /// The photo's masks by their names.
    ///
    /// # Errors
    /// [`PhotoError`], if the file cannot be read.
    pub fn saved_masks(&self) -> Result<BTreeMap<String, SavedMask>, PhotoError> {
        let mut saved = BTreeMap::new();
        for Line { name, mask, by, .. } in jsonl::read::<Line>(&self.folder().join(FILE))?.items {
            match mask {
                Some(mask) => _ = saved.insert(name, SavedMask { mask, by }),
                None => _ = saved.remove(&name),
            }
        }
        Ok(saved)
    }

    /// A mask with the photo's own masks in place of their names; every other name is left to the vocabulary.
    ///
    /// # Errors
    /// [`PhotoError`], if the file cannot be read.
    pub fn with_saved(&self, mask: &MaskSpec) -> Result<MaskSpec, PhotoError> {
        if !mask.is_named() {
            return Ok(mask.clone());
        }
        let saved = self.saved_masks()?;
        Ok(mask.replacing(&|name| saved.get(name).map(|saved| saved.mask.clone())))
    }
}

impl Writer {
    /// Gives a mask a name, or another mask to the name; the same mask again changes nothing. A session may not change
    /// what somebody else saved.
    ///
    /// # Errors
    /// [`PhotoError::Invalid`] for a name that is none, [`PhotoError::Denied`] and [`PhotoError::Lease`], where the
    /// authority does not hold.
    pub fn save_mask(&mut self, name: &str, mask: &MaskSpec) -> Result<(), PhotoError> {
        let legal = (1..=32).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        if !legal {
            let message = format!("`{name}` is no name for a mask: up to 32 of a-z, 0-9 and _");
            return Err(PhotoError::Invalid(message));
        }
        self.put_mask(name, Some(mask))
    }

    /// Takes a name back. Edits that used it keep their mask.
    ///
    /// # Errors
    /// As [`Self::save_mask`]; [`PhotoError::Invalid`] if there is none.
    pub fn delete_mask(&mut self, name: &str) -> Result<(), PhotoError> {
        if !self.workspace().saved_masks()?.contains_key(name) {
            return Err(PhotoError::Invalid(format!("this photo has no mask `{name}`")));
        }
        self.put_mask(name, None)
    }

    fn put_mask(&mut self, name: &str, mask: Option<&MaskSpec>) -> Result<(), PhotoError> {
        self.check_lease()?;
        let saved = self.workspace().saved_masks()?;
        let by = self.authority().name().to_owned();
        if let Some(known) = saved.get(name) {
            if Some(&known.mask) == mask {
                return Ok(());
            }
            if known.by != by && !matches!(self.authority(), Authority::Person) {
                let message = format!("the mask `{name}` is not this session's; choose another name");
                return Err(PhotoError::Denied(message));
            }
        } else if saved.len() >= MOST {
            return Err(PhotoError::Invalid(format!("a photo has at most {MOST} named masks")));
        }
        let line = Line { t: self.now(), by, name: name.to_owned(), mask: mask.cloned() };
        jsonl::append(&self.workspace().folder().join(FILE), &line)
    }
}

#[cfg(test)]
mod tests {
    use crate::photo::testing::TestPhoto;
    use crate::vocabulary::MaskSpec;

    fn mask(json: &str) -> MaskSpec {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn b19_a_name_of_the_photo_stands_for_its_mask_before_the_vocabularys() {
        let photo = TestPhoto::new();
        let circle = mask(r#"{"shape":"circle","center":[0.5,0.4],"radius":0.2}"#);
        let mut person = photo.person();
        person.save_mask("sky", &circle).unwrap();
        person.save_mask("sky", &circle).unwrap();
        for wrong in ["", "Sky", "a b", "../x"] {
            assert!(person.save_mask(wrong, &circle).is_err(), "{wrong}");
        }
        let found =
            |json: &str| serde_json::to_value(photo.workspace.with_saved(&mask(json)).unwrap()).unwrap();
        let circle = serde_json::to_value(&circle).unwrap();
        assert_eq!(found(r#"{"named":"sky"}"#), circle);
        assert_eq!(
            found(r#"{"named":"sky","invert":true}"#),
            serde_json::json!({"union": [circle], "invert": true})
        );
        assert_eq!(
            found(r#"{"difference":[{"named":"greens"},{"named":"sky"}]}"#),
            serde_json::json!({"difference": [{"named": "greens"}, circle]})
        );
        drop(person);
        // A session adds its own, and leaves those of others alone.
        let other = mask(r#"{"range":"luminance","from":0,"to":30}"#);
        let (mut session, _) = photo.session();
        assert!(session.save_mask("sky", &other).unwrap_err().to_string().contains("not this session's"));
        session.save_mask("deep", &other).unwrap();
        drop(session);
        assert_eq!(photo.workspace.saved_masks().unwrap().keys().collect::<Vec<_>>(), ["deep", "sky"]);
        photo.person().delete_mask("deep").unwrap();
        assert!(photo.person().delete_mask("deep").is_err());
        assert_eq!(found(r#"{"named":"deep"}"#), serde_json::json!({"named": "deep"}));
        assert_eq!(photo.workspace.fsck().unwrap().damages, vec![]);
    }
}
