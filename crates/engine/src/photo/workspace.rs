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
mod tests {
    use super::*;
    use crate::photo::Operation;
    use crate::photo::testing::{TestPhoto, exposure, name, raw_file, take_in};
    use base::error::{Coded, ErrorCode};

    #[test]
    fn a_spec_names_a_commit_in_every_documented_way() {
        let photo = TestPhoto::new();
        let baseline = photo.workspace.baseline().clone();
        let mut writer = photo.person();
        let info =
            writer.record_edit(&name("main"), &baseline, &exposure(1.0), Operation::Snapshot, "").unwrap();
        let tip = info.commit;
        writer.create_tag(&name("main"), &baseline, "").unwrap();
        let short = tip.as_str().get(..7).unwrap();
        for spec in ["HEAD", "main", "refs/heads/main", tip.as_str(), short, &short.to_uppercase()] {
            assert_eq!(photo.workspace.resolve(spec).unwrap(), tip, "{spec}");
        }
        for spec in ["baseline", "refs/tags/main", "refs/tags/baseline"] {
            assert_eq!(photo.workspace.resolve(spec).unwrap(), baseline, "{spec}");
        }
        // A branch wins over a short hash of the same letters.
        writer.create_branch(&name(short), &baseline).unwrap();
        assert_eq!(photo.workspace.resolve(short).unwrap(), baseline);
    }

    #[test]
    fn what_names_nothing_or_too_much_is_an_error_that_says_so() {
        let photo = TestPhoto::new();
        let prefix = photo.workspace.baseline().as_str().get(..10).unwrap().to_owned();
        for bad in
            ["nothing", "refs/heads/nothing", "1234567", "ABCDEF", "", &prefix[..6], &info_state(&photo)]
        {
            let error = photo.workspace.resolve(bad).unwrap_err();
            assert_eq!(error.code(), ErrorCode::VersioningError, "{bad}: {error}");
        }
        for bad in ["refs/heads/../../HEAD", "refs/tags//etc/passwd", "refs/heads/x\0"] {
            assert_eq!(photo.workspace.resolve(bad).unwrap_err().code(), ErrorCode::InvalidInput, "{bad}");
        }
        for bad in ["../../HEAD", "/etc/passwd", "a\0b"] {
            assert!(photo.workspace.resolve(bad).is_err(), "{bad}");
        }
        let (shard, rest) = prefix.split_at(2);
        let twin = format!("objects/commits/{shard}/{rest}{}", "0".repeat(54));
        photo.write(&twin, "");
        match photo.workspace.resolve(&prefix).unwrap_err() {
            PhotoError::Ambiguous { matches, .. } => assert_eq!(matches.len(), 2),
            other => panic!("{other}"),
        }
    }

    /// A state's hash: it names an object, but no commit.
    fn info_state(photo: &TestPhoto) -> String {
        photo.workspace.commit(photo.workspace.baseline()).unwrap().state.to_string()
    }

    #[test]
    fn a_library_lists_its_photos_and_names_what_it_lacks() {
        let photo = TestPhoto::new();
        let other = raw_file(photo.dir.path(), "b.nef", "other");
        take_in(&photo.library, &other).unwrap();
        std::fs::create_dir(photo.library.root().join("stray")).unwrap();
        let ids: Vec<String> = photo.library.photos().unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(ids, ["b", "iguana"]);
        let error = photo.library.open(&"heron".parse().unwrap()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::NotFound);
        assert!(error.remedy().unwrap().contains("ingest"));
        assert!(Library::new("/nowhere/at/all").photos().unwrap().is_empty());
    }

    #[test]
    fn a_photo_file_that_lies_is_damage() {
        let photo = TestPhoto::new();
        let text = photo.read(PHOTO_FILE);
        let open = || photo.library.open(photo.workspace.id()).map(drop).map_err(|e| e.code());
        for (from, to, code) in [
            ("\"iguana\"", "\"heron\"", ErrorCode::VersioningError),
            ("\"Iguana.DNG\"", "\"../../x\"", ErrorCode::VersioningError),
            ("\"format\": 2", "\"format\": 3", ErrorCode::StateError),
            ("{", "", ErrorCode::VersioningError),
        ] {
            photo.write(PHOTO_FILE, &text.replacen(from, to, 1));
            assert_eq!(open(), Err(code), "{to}");
        }
        photo.write(PHOTO_FILE, &text);
        assert_eq!(open(), Ok(()));
    }

    /// A process that is killed while it starts a child leaves its lock to that child for as long as this has not become
    /// another program: on a busy machine for seconds.
    #[test]
    fn a_lock_that_a_killed_process_left_to_its_child_is_waited_for() {
        use std::process::{Command, Stdio};
        let photo = TestPhoto::new();
        let path = photo.workspace.folder().join("lock");
        let mut killed = Command::new("true").spawn().unwrap();
        killed.wait().unwrap();
        let inherited = |seconds: &str| {
            let file = fs::File::create(&path).unwrap();
            file.lock().unwrap();
            let since = jiff::Timestamp::UNIX_EPOCH;
            let holder = Holder { pid: killed.id(), purpose: "mode-b session".into(), since };
            fs::write(&path, serde_json::to_string(&holder).unwrap()).unwrap();
            Command::new("sleep").arg(seconds).stdin(Stdio::from(file)).spawn().unwrap()
        };
        let mut child = inherited("0.4");
        assert_eq!(photo.workspace.held_by().unwrap(), None, "its holder has ended");
        child.wait().unwrap();
        let mut child = inherited("0.4");
        drop(photo.workspace.lock(Authority::Person, "another").unwrap());
        child.wait().unwrap();
    }

    #[test]
    fn a_held_lock_names_its_holder() {
        let photo = TestPhoto::new();
        let writer = photo.person();
        let error = photo.workspace.lock(Authority::Person, "another").unwrap_err();
        assert_eq!(error.code(), ErrorCode::StateError);
        let text = error.to_string();
        assert!(text.contains(&std::process::id().to_string()) && text.contains("a test"), "{text}");
        assert_eq!(photo.workspace.held_by().unwrap().unwrap().purpose, "a test");
        drop(writer);
        assert_eq!(photo.workspace.held_by().unwrap(), None);
        drop(photo.person());
    }

    #[test]
    fn nothing_is_read_or_written_through_a_link_in_a_photos_folder() {
        use std::os::unix::fs::symlink;
        let photo = TestPhoto::new();
        let precious = photo.dir.path().join("precious");
        std::fs::write(&precious, "text\n").unwrap();
        let tip = photo.tip("main");
        for name in ["lock", "log.jsonl", "brief.md", "notes.md"] {
            let own = photo.workspace.folder().join(name);
            let kept = std::fs::read(&own).unwrap();
            std::fs::remove_file(&own).unwrap();
            symlink(&precious, &own).unwrap();
            let edit = |exposed| {
                let op = Operation::Snapshot;
                let mut writer = photo.workspace.lock(Authority::Person, "x")?;
                writer.record_edit(&crate::photo::testing::name("main"), &tip, &exposure(exposed), op, "")
            };
            match name {
                "lock" | "log.jsonl" => {
                    let error = edit(1.0).unwrap_err();
                    assert!(error.to_string().contains("symbolic link"), "{error}");
                    assert_eq!(error.code(), ErrorCode::InvalidInput);
                }
                _ => {
                    let tastes = photo.dir.path();
                    assert!(crate::photo::read_context(&photo.workspace, tastes, false).is_err(), "{name}");
                }
            }
            assert_eq!(std::fs::read_to_string(&precious).unwrap(), "text\n", "{name}");
            std::fs::remove_file(&own).unwrap();
            std::fs::write(&own, kept).unwrap();
        }
        assert_eq!(photo.tip("main"), tip);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_said_to_be_so() {
        let photo = TestPhoto::new();
        // Root may write everywhere, so the obstacle is a folder in the lock's place.
        std::fs::remove_file(photo.workspace.folder().join("lock")).unwrap();
        std::fs::create_dir(photo.workspace.folder().join("lock")).unwrap();
        let error = photo.workspace.lock(Authority::Person, "x").unwrap_err();
        assert!(matches!(error, PhotoError::Io { .. }) && error.remedy().is_some(), "{error}");
        // And a file where the objects should go.
        std::fs::remove_dir(photo.workspace.folder().join("lock")).unwrap();
        std::fs::remove_dir_all(photo.workspace.folder().join("objects/states")).unwrap();
        photo.write("objects/states", "");
        let tip = photo.tip("main");
        let result = photo.person().record_edit(&name("main"), &tip, &exposure(1.0), Operation::Snapshot, "");
        assert!(matches!(result, Err(PhotoError::Io { .. })));
        assert_eq!(photo.tip("main"), tip);
    }

    #[test]
    fn moves_are_relative_to_the_nearest_import_until_the_photo_goes_back() {
        let photo = TestPhoto::new();
        let baseline = photo.workspace.baseline().clone();
        let ground = |commit: &Hash| photo.workspace.facts(commit).unwrap().baseline;
        let mut writer = photo.person();
        let mut tip = baseline.clone();
        let mut step = |ev: f32, op: Operation| {
            tip = writer.record_edit(&name("main"), &tip, &exposure(ev), op, "").unwrap().commit;
            tip.clone()
        };
        let edited = step(0.5, Operation::Snapshot);
        let imported = step(1.0, Operation::ImportSidecar { sidecar: Hash::of("x") });
        let moved = step(1.5, Operation::Snapshot);
        let again = step(2.0, Operation::ImportSidecar { sidecar: Hash::of("y") });
        let back = step(0.0, Operation::Reset);
        let after = step(0.2, Operation::Snapshot);
        for (commit, ev) in [
            (baseline, 0.0),
            (edited, 0.0),
            (imported, 1.0),
            (moved, 1.0),
            (again, 2.0),
            (back, 0.0),
            (after, 0.0),
        ] {
            assert_eq!(ground(&commit), exposure(ev));
        }
    }
}
