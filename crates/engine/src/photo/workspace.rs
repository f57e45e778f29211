//! The folder of photos, and one photo's folder for reading.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::photo::error::PhotoError;
use crate::photo::facts::{Correction, OldExif};
use crate::photo::lock::{self, Holder, Lock};
use crate::photo::objects::{Commit, Objects};
use crate::photo::op::Operation;
use crate::photo::refs::{RefKind, Refs};
use crate::photo::writer::{Authority, Writer};
use crate::vocabulary::PhotoFacts;
use base::files;
use base::ids::{Hash, PhotoId, RefName, SessionId};
use base::seal::{self, Seal};
use darktable::baseline::FileFacts;
use darktable::render::RawFile;
use darktable::state::EditState;

/// The layout of a photo's folder that this program writes.
pub(super) const FORMAT: u32 = 2;

/// The file that makes a folder a photo's.
pub(super) const PHOTO_FILE: &str = "photo.json";

/// A folder with one folder per photo.
#[derive(Clone, Debug)]
pub struct Library {
    root: PathBuf,
}

impl Library {
    /// The library at `root`, which need not exist yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Its folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder that a photo of this id has or would have.
    pub fn folder(&self, id: &PhotoId) -> PathBuf {
        self.root.join(id.as_str())
    }

    /// Opens one photo for reading.
    ///
    /// # Errors
    /// As [`Workspace::open`].
    pub fn open(&self, id: &PhotoId) -> Result<Workspace, PhotoError> {
        Workspace::open(&self.root, id)
    }

    /// The ids of all photos, in order. Folders without a `photo.json` are none.
    ///
    /// # Errors
    /// [`PhotoError::Io`].
    pub fn photos(&self) -> Result<Vec<PhotoId>, PhotoError> {
        let entries = match fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(PhotoError::io("list", &self.root)(e)),
        };
        let mut ids = Vec::new();
        for entry in entries {
            let entry = entry.map_err(PhotoError::io("list", &self.root))?;
            let id = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some(id) = id.filter(|_| entry.path().join(PHOTO_FILE).is_file()) {
                ids.push(id);
            }
        }
        ids.sort();
        Ok(ids)
    }

    /// The photo whose raw has this hash, if there is one. Photos that cannot be read are passed over.
    ///
    /// # Errors
    /// [`PhotoError::Io`].
    pub fn find_raw(&self, sha256: &Hash) -> Result<Option<PhotoId>, PhotoError> {
        let has = |id: &PhotoId| self.open(id).is_ok_and(|w| w.photo().raw.sha256 == *sha256);
        Ok(self.photos()?.into_iter().find(has))
    }
}

/// Whether a photo is sensor data or a finished picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhotoKind {
    /// Sensor data.
    Raw,
    /// JPEG, PNG, TIFF and the like.
    Raster,
}

/// The original file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RawRecord {
    /// Its name within `raw/`.
    pub name: String,
    /// Where it was when it was ingested.
    pub original: String,
    /// SHA-256 of its bytes.
    pub sha256: Hash,
    /// Its size in bytes.
    pub bytes: u64,
}

/// What `photo.json` holds: facts fixed at ingest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Stored")]
pub struct Photo {
    /// The layout of the folder.
    pub format: u32,
    /// The photo's name.
    pub id: PhotoId,
    /// The original.
    pub raw: RawRecord,
    /// Raw or raster.
    pub kind: PhotoKind,
    /// Size, orientation, camera and exposure.
    pub facts: FileFacts,
    /// Where each of them comes from, in words.
    pub facts_from: BTreeMap<String, String>,
    /// The version of darktable that made the baseline.
    pub darktable: String,
    /// The first commit: darktable's own default edit.
    pub baseline: Hash,
    /// Where the facts of an earlier build were corrected: what they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrected: Option<Correction>,
}

impl Photo {
    /// The text of `photo.json`.
    pub(super) fn text(&self) -> Result<String, PhotoError> {
        let text = serde_json::to_string_pretty(self).map_err(|e| PhotoError::Invalid(e.to_string()))?;
        Ok(seal::seal(b"", &text) + "\n")
    }
}

/// `photo.json` of every format.
#[derive(Deserialize)]
struct Stored {
    format: u32,
    id: PhotoId,
    raw: RawRecord,
    kind: PhotoKind,
    facts: Option<FileFacts>,
    /// Format 1.
    exif: Option<OldExif>,
    #[serde(default)]
    facts_from: BTreeMap<String, String>,
    darktable: String,
    baseline: Hash,
    corrected: Option<Correction>,
}

impl TryFrom<Stored> for Photo {
    type Error = &'static str;

    fn try_from(stored: Stored) -> Result<Self, Self::Error> {
        let facts = stored.facts.or_else(|| stored.exif.map(OldExif::facts));
        Ok(Self {
            format: stored.format,
            id: stored.id,
            raw: stored.raw,
            kind: stored.kind,
            facts: facts.ok_or("it has no facts of the file")?,
            facts_from: stored.facts_from,
            darktable: stored.darktable,
            baseline: stored.baseline,
            corrected: stored.corrected,
        })
    }
}

/// One photo's folder, for reading. Cheap to clone; reads the folder at every call, so that what it
/// returns is never stale.
#[derive(Clone, Debug)]
pub struct Workspace {
    folder: PathBuf,
    photo: Photo,
}

impl Workspace {
    /// Opens the photo `id` of the library at `root`.
    ///
    /// # Errors
    /// [`PhotoError::NoPhoto`]; [`PhotoError::Damaged`]; [`PhotoError::State`] for a photo of a newer build.
    pub fn open(root: &Path, id: &PhotoId) -> Result<Self, PhotoError> {
        let folder = root.join(id.as_str());
        let path = folder.join(PHOTO_FILE);
        let bytes = match files::read_own(&path, files::LARGEST_LIST) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(PhotoError::NoPhoto { id: id.clone(), library: root.to_owned() });
            }
            Err(e) => return Err(PhotoError::io("read", &path)(e)),
        };
        let damaged = |reason: String| PhotoError::Damaged { what: path.display().to_string(), reason };
        let photo: Photo = serde_json::from_slice(&bytes).map_err(|e| damaged(e.to_string()))?;
        if photo.format > FORMAT {
            let message = format!("photo `{id}` was written by a newer chemigram (format {})", photo.format);
            return Err(PhotoError::State(message));
        }
        if seal::check(b"", bytes.trim_ascii_end()) == Seal::Broken {
            return Err(damaged("it was changed".into()));
        }
        if photo.id != *id {
            return Err(damaged(format!("it says that this is photo `{}`", photo.id)));
        }
        if Path::new(&photo.raw.name).file_name() != Some(photo.raw.name.as_ref()) {
            return Err(damaged(format!("`{}` is not a plain file name", photo.raw.name)));
        }
        Ok(Self { folder, photo })
    }

    /// The facts fixed at ingest.
    pub fn photo(&self) -> &Photo {
        &self.photo
    }

    /// The photo's name.
    pub fn id(&self) -> &PhotoId {
        &self.photo.id
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of one Mode B session.
    pub fn session_folder(&self, session: &SessionId) -> PathBuf {
        self.sessions_folder().join(session.as_str())
    }

    /// The folder of all Mode B sessions.
    pub fn sessions_folder(&self) -> PathBuf {
        self.folder.join("sessions").join("mode_b")
    }

    /// The original, through its link in `raw/`.
    pub fn raw(&self) -> RawFile {
        RawFile {
            path: self.folder.join("raw").join(&self.photo.raw.name),
            sha256: self.photo.raw.sha256.clone(),
        }
    }

    /// Fails where another file is in the raw's place. One that is away is none.
    ///
    /// # Errors
    /// [`PhotoError::Baseline`] with both hashes.
    pub fn refuse_another_raw(&self) -> Result<(), PhotoError> {
        Ok(self.raw().refuse_another()?)
    }

    /// Takes the exclusive lock in order to change the photo, and completes what a crash cut.
    ///
    /// # Errors
    /// [`PhotoError::Busy`] at once, with the holder, when it is held.
    pub fn lock(&self, authority: Authority, purpose: &str) -> Result<Writer, PhotoError> {
        let lock = Lock::take(&self.folder, purpose, jiff::Timestamp::now())?;
        self.repair()?;
        Ok(Writer::new(self.clone(), authority, lock))
    }

    /// Who holds the lock now.
    ///
    /// # Errors
    /// [`PhotoError::Io`].
    pub fn held_by(&self) -> Result<Option<Holder>, PhotoError> {
        lock::held_by(&self.folder)
    }

    pub(super) fn objects(&self) -> Objects<'_> {
        Objects::of(&self.folder)
    }

    pub(super) fn refs(&self) -> Refs<'_> {
        Refs::of(&self.folder)
    }

    /// The first commit: darktable's own default edit.
    pub fn baseline(&self) -> &Hash {
        &self.photo.baseline
    }

    /// A state, checked against its hash.
    ///
    /// # Errors
    /// [`PhotoError::Damaged`], also where it is missing.
    pub fn state(&self, hash: &Hash) -> Result<EditState, PhotoError> {
        self.objects().state(hash)
    }

    /// A commit, checked against its hash.
    ///
    /// # Errors
    /// [`PhotoError::Damaged`], also where it is missing.
    pub fn commit(&self, hash: &Hash) -> Result<Commit, PhotoError> {
        self.objects().commit(hash)
    }

    /// What the vocabulary must know about the photo, for an edit on top of `commit`: moves are relative to
    /// darktable's own edit, or to the one that was imported, whichever was last.
    ///
    /// # Errors
    /// [`PhotoError::State`] where an earlier build took the photo in without its size.
    pub fn facts(&self, commit: &Hash) -> Result<PhotoFacts, PhotoError> {
        let facts = &self.photo.facts;
        if facts.size.width == 0 || facts.size.height == 0 {
            return Err(PhotoError::State(format!(
                "the size of photo `{0}` is not known: an earlier chemigram did not find it. \
                 `chemigram status {0}` asks darktable for it, which needs the raw in its place",
                self.photo.id
            )));
        }
        Ok(PhotoFacts::new(self.state(&self.ground(commit)?)?, facts))
    }

    /// The same folder with other facts.
    pub(super) fn with_photo(&self, photo: Photo) -> Self {
        Self { folder: self.folder.clone(), photo }
    }

    /// The state that moves on top of `commit` are relative to: that of the nearest imported commit behind it,
    /// unless the photo went back to the baseline since.
    fn ground(&self, commit: &Hash) -> Result<Hash, PhotoError> {
        let untouched = self.commit(self.baseline())?.state;
        let mut at = commit.clone();
        loop {
            let found = self.commit(&at)?;
            if matches!(found.op, Operation::ImportSidecar { .. }) {
                return Ok(found.state);
            }
            match found.parents.into_iter().next() {
                Some(parent) if found.state != untouched => at = parent,
                _ => return Ok(untouched),
            }
        }
    }

    /// The edit that a commit holds.
    ///
    /// # Errors
    /// [`PhotoError::Damaged`], also where it is missing.
    pub fn state_of(&self, commit: &Hash) -> Result<EditState, PhotoError> {
        self.state(&self.commit(commit)?.state)
    }

    /// The commit that `spec` names: `HEAD`, a branch, a tag (a branch wins), `refs/heads/…`, `refs/tags/…`,
    /// a commit's hash, or its first seven digits or more.
    ///
    /// # Errors
    /// [`PhotoError::Unresolved`], [`PhotoError::Ambiguous`].
    pub fn resolve(&self, spec: &str) -> Result<Hash, PhotoError> {
        if spec == "HEAD" {
            return self.head_commit();
        }
        let unresolved =
            |reason: &str| PhotoError::Unresolved { spec: spec.to_owned(), reason: reason.into() };
        for kind in [RefKind::Branch, RefKind::Tag] {
            if let Some(name) = spec.strip_prefix(kind.prefix()) {
                let name: RefName = name.parse()?;
                return self
                    .position(kind, &name)?
                    .ok_or_else(|| unresolved(&format!("there is no such {kind}")));
            }
        }
        if let Ok(name) = spec.parse::<RefName>() {
            for kind in [RefKind::Branch, RefKind::Tag] {
                if let Some(commit) = self.position(kind, &name)? {
                    return Ok(commit);
                }
            }
        }
        let digits = spec.to_ascii_lowercase();
        if !digits.bytes().all(|b| b.is_ascii_hexdigit()) || digits.len() > 64 {
            return Err(unresolved("there is no branch or tag of that name"));
        }
        if digits.len() < 7 {
            return Err(unresolved(
                "there is no branch or tag of that name, and a short hash has seven digits or more",
            ));
        }
        let mut matches = self.objects().commits_with_prefix(&digits)?;
        match (matches.pop(), matches.is_empty()) {
            (Some(commit), true) => Ok(commit),
            (None, _) => Err(unresolved("no commit's hash begins like that")),
            (Some(last), false) => {
                matches.push(last);
                Err(PhotoError::Ambiguous { prefix: spec.to_owned(), matches })
            }
        }
    }
}

#[cfg(test)]
mod tests;
