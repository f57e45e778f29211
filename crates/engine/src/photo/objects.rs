//! The object store: states and commits, each named by the SHA-256 of its canonical JSON and checked against
//! that name on every read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::photo::error::PhotoError;
use crate::photo::op::Operation;
use base::durable;
use base::files;
use base::ids::Hash;
use darktable::state::EditState;

/// A point in a photo's history. Holds nothing of time, place or author, so that equal edits of one raw have
/// equal hashes on every machine and in every replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Commit {
    /// A person's or the model's words for it; may be empty.
    pub label: String,
    /// What led from the first parent's state to this one.
    pub op: Operation,
    /// Where it comes from; empty for the baseline.
    pub parents: Vec<Hash>,
    /// The edit.
    pub state: Hash,
}

impl Commit {
    /// The canonical form: compact JSON with sorted keys.
    pub(crate) fn canonical(&self) -> Result<Vec<u8>, PhotoError> {
        let invalid = |e: serde_json::Error| PhotoError::Invalid(format!("the operation is not JSON: {e}"));
        let mut value = serde_json::to_value(self).map_err(invalid)?;
        value.sort_all_objects();
        serde_json::to_vec(&value).map_err(invalid)
    }
}

/// The two kinds of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    State,
    Commit,
}

impl Kind {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Commit => "commit",
        }
    }

    fn folder(self) -> &'static str {
        match self {
            Self::State => "states",
            Self::Commit => "commits",
        }
    }
}

/// The object store of one photo.
#[derive(Clone, Copy, Debug)]
pub(super) struct Objects<'a> {
    photo: &'a Path,
}

impl<'a> Objects<'a> {
    pub(super) fn of(photo: &'a Path) -> Self {
        Self { photo }
    }

    pub(super) fn folder(self, kind: Kind) -> PathBuf {
        self.photo.join("objects").join(kind.folder())
    }

    pub(super) fn path(self, kind: Kind, hash: &Hash) -> PathBuf {
        let (shard, rest) = hash.as_str().split_at(2);
        self.folder(kind).join(shard).join(rest)
    }

    pub(super) fn exists(self, kind: Kind, hash: &Hash) -> bool {
        self.path(kind, hash).is_file()
    }

    /// The bytes of an object, checked.
    pub(super) fn read(self, kind: Kind, hash: &Hash) -> Result<Vec<u8>, PhotoError> {
        let path = self.path(kind, hash);
        let bytes = match files::read_own(&path, files::LARGEST_LIST) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(damaged(kind, hash, "it is missing".into()));
            }
            Err(e) => return Err(PhotoError::io("read", &path)(e)),
        };
        let found = Hash::of(&bytes);
        if found == *hash {
            Ok(bytes)
        } else {
            let reason = format!("its {} bytes hash to {}", bytes.len(), found.short());
            Err(damaged(kind, hash, reason))
        }
    }

    pub(super) fn state(self, hash: &Hash) -> Result<EditState, PhotoError> {
        let bytes = self.read(Kind::State, hash)?;
        serde_json::from_slice(&bytes).map_err(|e| damaged(Kind::State, hash, e.to_string()))
    }

    pub(super) fn commit(self, hash: &Hash) -> Result<Commit, PhotoError> {
        let bytes = self.read(Kind::Commit, hash)?;
        serde_json::from_slice(&bytes).map_err(|e| damaged(Kind::Commit, hash, e.to_string()))
    }

    /// Stores a state. One that would not read back as itself (a NaN) is refused.
    pub(super) fn put_state(self, state: &EditState) -> Result<Hash, PhotoError> {
        let bytes = state.canonical();
        let reads_back = serde_json::from_slice::<EditState>(&bytes).is_ok_and(|s| s.canonical() == bytes);
        if !reads_back {
            return Err(PhotoError::Invalid(
                "the edit holds a value that cannot be stored, such as NaN".into(),
            ));
        }
        self.put(Kind::State, &bytes)
    }

    /// Stores a commit's canonical form.
    pub(super) fn put_commit(self, canonical: &[u8]) -> Result<Hash, PhotoError> {
        if let Err(e) = serde_json::from_slice::<Commit>(canonical) {
            return Err(PhotoError::Invalid(format!("the operation cannot be stored: {e}")));
        }
        self.put(Kind::Commit, canonical)
    }

    /// Stores bytes under their name. An object that is there already is left alone, unless it is damaged.
    fn put(self, kind: Kind, bytes: &[u8]) -> Result<Hash, PhotoError> {
        let hash = Hash::of(bytes);
        if self.exists(kind, &hash) && self.read(kind, &hash).is_ok() {
            return Ok(hash);
        }
        let path = self.path(kind, &hash);
        durable::write(&path, bytes).map_err(PhotoError::io("write", &path))?;
        Ok(hash)
    }

    /// All objects of a kind by name, in order, and the files among them that are no objects.
    pub(super) fn list(self, kind: Kind) -> Result<(Vec<Hash>, Vec<PathBuf>), PhotoError> {
        let (mut objects, mut strange) = (Vec::new(), Vec::new());
        for shard in entries(&self.folder(kind))? {
            for path in if shard.is_dir() { entries(&shard)? } else { vec![shard.clone()] } {
                match name_of(&path) {
                    Some(hash) if self.path(kind, &hash) == path => objects.push(hash),
                    _ => strange.push(path),
                }
            }
        }
        objects.sort();
        Ok((objects, strange))
    }

    /// The commits whose names begin with `prefix` (at least two lower-case hex digits).
    pub(super) fn commits_with_prefix(self, prefix: &str) -> Result<Vec<Hash>, PhotoError> {
        let Some((shard, rest)) = prefix.split_at_checked(2) else { return Ok(Vec::new()) };
        let mut found: Vec<Hash> = entries(&self.folder(Kind::Commit).join(shard))?
            .iter()
            .filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(rest)))
            .filter_map(|path| name_of(path))
            .collect();
        found.sort();
        Ok(found)
    }
}

/// The hash that a path `…/ab/cdef…` spells.
fn name_of(path: &Path) -> Option<Hash> {
    let shard = path.parent()?.file_name()?.to_str()?;
    format!("{shard}{}", path.file_name()?.to_str()?).parse().ok()
}

/// What is in a folder; nothing, if it is missing.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, PhotoError> {
    let read = match fs::read_dir(folder) {
        Ok(read) => read,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(PhotoError::io("list", folder)(e)),
    };
    read.map(|entry| entry.map(|e| e.path()))
        .collect::<io::Result<_>>()
        .map_err(PhotoError::io("list", folder))
}

fn damaged(kind: Kind, hash: &Hash, reason: String) -> PhotoError {
    PhotoError::Damaged { what: format!("{} {hash}", kind.word()), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::{Coded, ErrorCode};
    use darktable::state::{Module, Params, Value};
    use std::collections::BTreeMap;

    #[test]
    fn writing_twice_is_writing_once_and_damage_is_seen_and_healed() {
        let dir = tempfile::tempdir().unwrap();
        let objects = Objects::of(dir.path());
        let hash = objects.put_state(&EditState::default()).unwrap();
        assert_eq!(hash, EditState::default().hash());
        assert_eq!(objects.put_state(&EditState::default()).unwrap(), hash);
        assert_eq!(objects.list(Kind::State).unwrap().0, std::slice::from_ref(&hash));

        fs::write(objects.path(Kind::State, &hash), "{}").unwrap();
        let error = objects.state(&hash).unwrap_err();
        assert_eq!(error.code(), ErrorCode::VersioningError);
        assert!(error.to_string().contains(hash.as_str()), "{error}");
        assert!(error.remedy().unwrap().contains("chemigram fsck"));

        objects.put_state(&EditState::default()).unwrap();
        assert_eq!(objects.state(&hash).unwrap(), EditState::default());
    }

    #[test]
    fn a_commit_is_canonical_and_has_a_name_that_stays() {
        let commit = Commit {
            label: "open".into(),
            op: Operation::RemoveModule { instance: Some(0), module: "exposure".into() },
            parents: vec![Hash::of("a")],
            state: Hash::of("b"),
        };
        let bytes = commit.canonical().unwrap();
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert!(
            text.starts_with(
                r#"{"label":"open","op":{"instance":0,"kind":"remove_module","module":"exposure"}"#
            ),
            "{text}"
        );
        // The name of a commit is a promise to every stored session: this line may never need a change.
        assert_eq!(Hash::of(&bytes).short(), "1a3f4e2d0e91");
        let dir = tempfile::tempdir().unwrap();
        let hash = Objects::of(dir.path()).put_commit(&bytes).unwrap();
        assert_eq!(Objects::of(dir.path()).commit(&hash).unwrap(), commit);
    }

    #[test]
    fn what_cannot_be_read_back_is_never_stored() {
        let dir = tempfile::tempdir().unwrap();
        let module = Module {
            blend: None,
            enabled: true,
            instance: 0,
            modversion: 6,
            name: String::new(),
            op: "exposure".into(),
            params: Params::Fields(BTreeMap::from([("exposure".into(), Value::Float(f32::NAN))])),
        };
        let state = EditState { modules: vec![module], ..EditState::default() };
        let error = Objects::of(dir.path()).put_state(&state).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidInput);
        assert!(!dir.path().join("objects").exists());
    }
}
