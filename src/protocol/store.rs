//! The protocols by name: those that come along, and the user's own, which take precedence.

use std::collections::BTreeMap;

use super::ProtocolError;
use base::assets::{Origin, Overlay};
use base::hint::did_you_mean;

/// The endings of a protocol's file, in the order in which they are tried.
const ENDINGS: [&str; 2] = [".toml", ".json"];

/// A protocol's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The file's name, with its ending.
    pub file: String,
    /// Where it is.
    pub origin: Origin,
}

/// All protocols, by name. Of two files of one name the user's counts, and then the TOML.
pub fn list(files: &Overlay) -> BTreeMap<String, Entry> {
    let mut found: BTreeMap<String, Entry> = BTreeMap::new();
    for ending in ENDINGS {
        for (file, origin) in files.list("", ending) {
            let Some(name) = file.strip_suffix(ending).filter(|name| !name.is_empty()).map(str::to_owned)
            else {
                continue;
            };
            let own = origin != Origin::Embedded;
            let kept = found.get(&name).is_some_and(|other| !own || other.origin != Origin::Embedded);
            if !kept {
                found.insert(name, Entry { file, origin });
            }
        }
    }
    found
}

/// The file's name and text of the protocol of that name.
pub fn find(files: &Overlay, name: &str) -> Result<(Entry, String), ProtocolError> {
    let mut all = list(files);
    let hint = did_you_mean(name, all.keys().map(String::as_str));
    let unknown = || ProtocolError::Unknown { name: name.to_owned(), hint };
    let Some(entry) = all.remove(name) else { return Err(unknown()) };
    match files.text(&entry.file) {
        Some(text) => Ok((entry, text.into_owned())),
        None => Err(unknown()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_own_file_takes_precedence_whatever_its_notation() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("mode_b_explore.json"), "{}").unwrap();
        std::fs::write(folder.path().join("own.toml"), "x = 1").unwrap();
        let files = Overlay::protocols(Some(folder.path().to_owned()));
        let all = list(&files);
        assert_eq!(all["mode_b_explore"].file, "mode_b_explore.json");
        assert!(matches!(all["own"].origin, Origin::User(_)));
        assert_eq!(all["calibrate_brief"].origin, Origin::Embedded);
        assert_eq!(find(&files, "own").unwrap().1, "x = 1");
        let error = find(&files, "mode_b_exlpore").unwrap_err().to_string();
        assert!(error.contains("did you mean `mode_b_explore`"), "{error}");
    }
}
