//! Taking a raw into the library: once, whole, or not at all.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::photo::context::{BRIEF, NOTES};
use crate::photo::error::PhotoError;
use crate::photo::facts;
use crate::photo::import::sidecar_beside;
use crate::photo::lock::{self, Lock};
use crate::photo::objects::{Commit, Objects};
use crate::photo::op::Operation;
use crate::photo::oplog::{self, OpLine};
use crate::photo::refs::{Head, RefKind, Refs};
use crate::photo::workspace::{FORMAT, Library, PHOTO_FILE, Photo, PhotoKind, RawRecord, Workspace};
use base::durable;
use base::files;
use base::ids::{Hash, PhotoId, RefName};
use darktable::baseline::Untouched;
use darktable::render::{RawFile, RenderError};
use darktable::state::EditState;

/// What the folder of a photo in the making is called, in the library.
const TEMPORARY: &str = ".ingest-";

/// The library's own lock, held for moments.
const LIBRARY_LOCK: &str = ".lock";

/// Files that are finished pictures; everything else counts as sensor data.
const RASTER: &[&str] = &[
    "jpg", "jpeg", "png", "tif", "tiff", "webp", "avif", "heic", "heif", "jxl", "jp2", "exr", "pfm", "ppm",
    "pgm", "bmp", "gif",
];

/// How darktable is asked about a raw: its path in, its default edit and the facts of the file out.
pub type AskDefaults<'a> = dyn Fn(&Path) -> Result<Untouched, RenderError> + 'a;

/// What may be said at ingest.
#[derive(Clone, Debug, Default)]
pub struct IngestOptions {
    /// The id; derived from the file's name if absent.
    pub id: Option<PhotoId>,
    /// The text of `brief.md`.
    pub brief: Option<String>,
}

/// A photo that was ingested.
#[derive(Clone, Debug)]
pub struct Ingested {
    /// It.
    pub workspace: Workspace,
    /// A sidecar beside the raw. It was ignored: the baseline is darktable's own.
    pub foreign_sidecar: Option<PathBuf>,
    /// What a person should know about the file, in sentences.
    pub remarks: Vec<String>,
}

/// Takes `raw` into `library`. `ask` is given the raw (through the link in the new folder, where no sidecar
/// lies) and answers with darktable's default edit and its version. The folder is built beside its place and
/// renamed into it at the end, so that a crash leaves no half photo.
///
/// # Errors
/// [`PhotoError::AlreadyIngested`] carries the id; [`PhotoError::BadRaw`] for a file that is no photo;
/// [`PhotoError::IdTaken`]; [`PhotoError::Baseline`], if darktable cannot open it.
pub fn ingest(
    library: &Library,
    raw: &Path,
    options: IngestOptions,
    ask: &AskDefaults<'_>,
) -> Result<Ingested, PhotoError> {
    let original = check_raw(raw)?;
    let (sha256, bytes) = files::hash(&original).map_err(PhotoError::io("read", raw))?;
    refuse_known(library, raw, &sha256)?;
    if let Some(id) = options.id.as_ref().filter(|id| library.folder(id).exists()) {
        return Err(PhotoError::IdTaken { id: id.clone() });
    }
    let (folder, _lock) = begin(library)?;
    let name = link(&original, &folder.path().join("raw"))?;
    let linked = RawFile { path: folder.path().join("raw").join(&name), sha256: sha256.clone() };
    let told = ask(&linked.path).map_err(|e| undecoded(raw, e))?;
    // What darktable said must be about the bytes that were hashed.
    linked.prove()?;
    let baseline = first_commit(folder.path(), &told.state, &sha256)?;
    let kind = kind_of(&original);
    let remarks = remarks(&original, kind);
    for (file, text) in [(BRIEF, options.brief.unwrap_or_default()), (NOTES, String::new())] {
        let path = folder.path().join(file);
        durable::write(&path, text.as_bytes()).map_err(PhotoError::io("write", &path))?;
    }
    for sub in ["sessions/mode_b", "previews", "exports"] {
        let path = folder.path().join(sub);
        fs::create_dir_all(&path).map_err(PhotoError::io("make", &path))?;
    }
    let mut photo = Photo {
        format: FORMAT,
        id: options.id.clone().map_or_else(|| derived_id(&original, 1), Ok)?,
        raw: RawRecord { name, original: original.to_string_lossy().into_owned(), sha256, bytes },
        kind,
        facts_from: facts::sources(&told.darktable, &told.facts),
        facts: told.facts,
        darktable: told.darktable,
        baseline,
        corrected: None,
    };

    // From here to the rename nobody else takes an id or this raw.
    let _library_lock = lock_library(library)?;
    refuse_known(library, raw, &photo.raw.sha256)?;
    let mut number = 1;
    while library.folder(&photo.id).exists() {
        if options.id.is_some() {
            return Err(PhotoError::IdTaken { id: photo.id });
        }
        number += 1;
        photo.id = derived_id(&original, number)?;
    }
    let path = folder.path().join(PHOTO_FILE);
    durable::write(&path, photo.text()?.as_bytes()).map_err(PhotoError::io("write", &path))?;
    sync_folders(folder.path())?;
    let place = library.folder(&photo.id);
    fs::rename(folder.path(), &place).map_err(PhotoError::io("make", &place))?;
    // It has moved: there is nothing left to remove.
    let _ = folder.keep();
    durable::sync_folder(library.root()).map_err(PhotoError::io("write", library.root()))?;
    let workspace = library.open(&photo.id)?;
    Ok(Ingested { workspace, foreign_sidecar: sidecar_beside(&original), remarks })
}

/// The raw's own path, if it is a file with something in it.
fn check_raw(raw: &Path) -> Result<PathBuf, PhotoError> {
    let original = fs::canonicalize(raw).map_err(PhotoError::io("read", raw))?;
    let meta = fs::metadata(&original).map_err(PhotoError::io("read", raw))?;
    let bad = |reason: &str| Err(PhotoError::BadRaw { path: raw.to_owned(), reason: reason.into() });
    if meta.is_dir() {
        return bad("it is a folder, not a photograph");
    }
    if !meta.is_file() {
        return bad("it is not an ordinary file");
    }
    if meta.len() == 0 {
        return bad("it is empty");
    }
    Ok(original)
}

/// What darktable says of a raw that it cannot open, under the name by which the raw was given. Of what its
/// decoders say the last words are for people; before them are places in their source.
fn undecoded(raw: &Path, error: RenderError) -> PhotoError {
    if let RenderError::Untold { what, .. } = &error {
        let reason = format!("darktable does not report its {what}");
        return PhotoError::BadRaw { path: raw.to_owned(), reason };
    }
    let RenderError::Raw { reason, .. } = error else { return error.into() };
    tracing::debug!(%reason, "darktable cannot decode the raw");
    let words = reason.rsplit_once(": ").map_or(reason.as_str(), |(_, words)| words);
    PhotoError::BadRaw {
        path: raw.to_owned(),
        reason: format!("darktable cannot decode it ({})", words.trim()),
    }
}

fn refuse_known(library: &Library, raw: &Path, sha256: &Hash) -> Result<(), PhotoError> {
    match library.find_raw(sha256)? {
        Some(id) => Err(PhotoError::AlreadyIngested { path: raw.to_owned(), id }),
        None => Ok(()),
    }
}

/// A folder for the photo in the making, locked to distinguish it from one that a crash left; those are
/// swept away on this occasion.
fn begin(library: &Library) -> Result<(tempfile::TempDir, Lock), PhotoError> {
    let root = library.root();
    durable::make_folder(root).map_err(PhotoError::io("make", root))?;
    let _library_lock = lock_library(library)?;
    for entry in fs::read_dir(root).map_err(PhotoError::io("list", root))? {
        let path = entry.map_err(PhotoError::io("list", root))?.path();
        let temporary = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(TEMPORARY));
        if temporary && lock::held_by(&path).is_ok_and(|holder| holder.is_none()) {
            // Best effort: what stays is hidden and swept next time.
            let _ = fs::remove_dir_all(&path);
        }
    }
    let folder = tempfile::Builder::new()
        .prefix(TEMPORARY)
        .tempdir_in(root)
        .map_err(PhotoError::io("make a folder in", root))?;
    let lock = Lock::take(folder.path(), "ingest", jiff::Timestamp::now())?;
    Ok((folder, lock))
}

fn lock_library(library: &Library) -> Result<File, PhotoError> {
    let path = library.root().join(LIBRARY_LOCK);
    let io = || PhotoError::io("lock", &path);
    let mut options = File::options();
    let file = files::open_own(&path, options.create(true).truncate(false).write(true)).map_err(io())?;
    file.lock().map_err(io())?;
    Ok(file)
}

/// Links the original into `folder`, or, where links do not work, copies it; returns its name there.
fn link(original: &Path, folder: &Path) -> Result<String, PhotoError> {
    fs::create_dir_all(folder).map_err(PhotoError::io("make", folder))?;
    let name = match original.file_name().and_then(|name| name.to_str()) {
        Some(name) => name.to_owned(),
        None => {
            let extension = original.extension().and_then(|e| e.to_str());
            extension.map_or_else(|| "raw".to_owned(), |e| format!("raw.{e}"))
        }
    };
    let path = folder.join(&name);
    #[cfg(unix)]
    let linked = std::os::unix::fs::symlink(original, &path);
    #[cfg(not(unix))]
    let linked: std::io::Result<()> = Err(std::io::ErrorKind::Unsupported.into());
    linked
        .or_else(|_| fs::hard_link(original, &path))
        .or_else(|_| fs::copy(original, &path).map(drop))
        .map_err(PhotoError::io("link the raw to", &path))?;
    Ok(name)
}

/// Makes every folder of the new photo survive a crash, so that its appearance is its completion.
fn sync_folders(folder: &Path) -> Result<(), PhotoError> {
    for entry in fs::read_dir(folder).map_err(PhotoError::io("list", folder))? {
        let entry = entry.map_err(PhotoError::io("list", folder))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            sync_folders(&entry.path())?;
        }
    }
    durable::sync_folder(folder).map_err(PhotoError::io("write", folder))
}

/// The baseline: its state, its commit, `main`, the tag `baseline`, HEAD, and the op-log's first line.
fn first_commit(folder: &Path, state: &EditState, raw: &Hash) -> Result<Hash, PhotoError> {
    let objects = Objects::of(folder);
    let op = Operation::Ingest { raw: raw.clone() };
    let commit = Commit {
        label: "baseline".into(),
        op: op.clone(),
        parents: Vec::new(),
        state: objects.put_state(state)?,
    };
    let hash = objects.put_commit(&commit.canonical()?)?;
    let main: RefName = "main".parse()?;
    let line = OpLine {
        t: jiff::Timestamp::now(),
        by: "person".into(),
        call: None,
        op,
        reference: RefKind::Branch.full(&main),
        before: None,
        after: Some(hash.clone()),
        label: commit.label,
    };
    oplog::append(folder, &line)?;
    let refs = Refs::of(folder);
    refs.write(RefKind::Tag, &"baseline".parse()?, &hash)?;
    refs.write(RefKind::Branch, &main, &hash)?;
    refs.set_head(&Head::Branch(main))?;
    Ok(hash)
}

/// What the file is: by its content where that is a finished picture's, or else by its name, because a TIFF begins as
/// many raws do.
pub(super) fn kind_of(path: &Path) -> PhotoKind {
    let extension = path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
    let raster = finished(path).is_some() || RASTER.contains(&extension.as_str());
    if raster { PhotoKind::Raster } else { PhotoKind::Raw }
}

/// The format of a finished picture, by the file's first bytes.
fn finished(path: &Path) -> Option<&'static str> {
    let mut head = [0; 12];
    files::open(path).and_then(|mut file| file.read_exact(&mut head)).ok()?;
    match head {
        [0xff, 0xd8, 0xff, ..] => Some("JPEG"),
        [0x89, b'P', b'N', b'G', ..] => Some("PNG"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P'] => Some("WebP"),
        _ => None,
    }
}

/// What a person should know about a file whose content is not what its name says.
fn remarks(path: &Path, kind: PhotoKind) -> Vec<String> {
    let extension = path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
    match finished(path) {
        Some(format) if kind == PhotoKind::Raster && !RASTER.contains(&extension.as_str()) => vec![format!(
            "the file is named .{extension}, but it is a {format}: it has no sensor data, and is edited as a finished picture"
        )],
        _ => Vec::new(),
    }
}

/// The file's stem as an id, with a number if it is not the first of that name.
fn derived_id(path: &Path, number: usize) -> Result<PhotoId, PhotoError> {
    let stem = path.file_stem().map(|s| s.to_string_lossy().to_lowercase()).unwrap_or_default();
    let mut id = String::new();
    for c in stem.chars() {
        let c = if c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' { c } else { '-' };
        if !(c == '-' && (id.is_empty() || id.ends_with('-'))) && !(c == '_' && id.is_empty()) {
            id.push(c);
        }
    }
    id.truncate(56);
    let id = id.trim_end_matches(['-', '_']);
    let id = if id.is_empty() { "photo" } else { id };
    let numbered = if number > 1 { format!("{id}-{number}") } else { id.to_owned() };
    Ok(numbered.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::photo::testing::{TestPhoto, defaults, exposure, raw_file, take_in};
    use base::error::{Coded, ErrorCode};

    fn folders(library: &Library) -> Vec<String> {
        let entries = fs::read_dir(library.root()).unwrap();
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.retain(|name| name != LIBRARY_LOCK);
        names.sort();
        names
    }

    #[test]
    fn a_photo_is_whole_from_its_first_moment() {
        let photo = TestPhoto::new();
        let workspace = &photo.workspace;
        assert_eq!(workspace.id().as_str(), "iguana");
        assert_eq!(workspace.state_of(workspace.baseline()).unwrap(), exposure(0.0));
        for spec in ["HEAD", "main", "baseline"] {
            assert_eq!(workspace.resolve(spec).unwrap(), *workspace.baseline());
        }
        assert_eq!(fs::read_to_string(workspace.raw().path).unwrap(), "sensor data");
        assert_eq!(workspace.photo().kind, PhotoKind::Raw);
        assert_eq!((photo.read("brief.md"), photo.read("notes.md")), (String::new(), String::new()));
        assert!(workspace.sessions_folder().is_dir());
        assert!(workspace.fsck().unwrap().is_whole());
        assert_eq!(folders(&photo.library), ["iguana"]);
        assert_eq!(workspace.held_by().unwrap(), None);
    }

    #[test]
    fn the_same_raw_is_known_and_another_of_its_name_gets_a_number() {
        let photo = TestPhoto::new();
        let copy = raw_file(photo.dir.path(), "copy.dng", "sensor data");
        match take_in(&photo.library, &copy).unwrap_err() {
            PhotoError::AlreadyIngested { id, .. } => assert_eq!(id.as_str(), "iguana"),
            other => panic!("{other}"),
        }
        let other = photo.dir.path().join("elsewhere");
        fs::create_dir(&other).unwrap();
        let other = raw_file(&other, "iguana.jpg", "other data");
        let second = take_in(&photo.library, &other).unwrap().workspace;
        assert_eq!(second.id().as_str(), "iguana-2");
        assert_eq!(second.photo().kind, PhotoKind::Raster);
        let options = IngestOptions { id: Some("iguana".parse().unwrap()), brief: None };
        let third = raw_file(photo.dir.path(), "c.nef", "third");
        let error = ingest(&photo.library, &third, options, &defaults).unwrap_err();
        assert_eq!(error.code(), ErrorCode::StateError);
    }

    #[test]
    fn the_baseline_is_of_the_bytes_and_the_edit_not_of_name_place_or_time() {
        let photo = TestPhoto::new();
        let library = Library::new(photo.dir.path().join("another library"));
        let copy = raw_file(photo.dir.path(), "copy.nef", "sensor data");
        let again = take_in(&library, &copy).unwrap().workspace;
        assert_ne!(again.id(), photo.workspace.id());
        assert_eq!(again.photo().baseline, photo.workspace.photo().baseline);
        let other = raw_file(photo.dir.path(), "other.nef", "other data");
        let other = take_in(&library, &other).unwrap().workspace;
        assert_ne!(other.photo().baseline, again.photo().baseline);
    }

    #[test]
    fn an_id_is_made_of_any_file_name() {
        let id = |name: &str, n| derived_id(Path::new(name), n).unwrap().to_string();
        assert_eq!(id("/a/IMG_0042.CR2", 1), "img_0042");
        assert_eq!(id("Foto (3) – Über.nef", 1), "foto-3-ber");
        assert_eq!(id("___.raf", 2), "photo-2");
        assert_eq!(id("日本.arw", 1), "photo");
        assert_eq!(id(&format!("{}.dng", "x".repeat(300)), 12).len(), 59);
    }

    #[test]
    fn what_cannot_be_ingested_says_why_and_leaves_nothing() {
        let photo = TestPhoto::new();
        let dir = photo.dir.path();
        let empty = raw_file(dir, "empty.dng", "");
        let raw = raw_file(dir, "new.dng", "new");
        let code = |raw: &Path| take_in(&photo.library, raw).unwrap_err().code();
        assert_eq!(code(&dir.join("missing.dng")), ErrorCode::NotFound);
        assert_eq!(code(dir), ErrorCode::InvalidInput);
        assert_eq!(code(&empty), ErrorCode::InvalidInput);
        let failed = ingest(&photo.library, &raw, IngestOptions::default(), &|_| {
            Err(RenderError::Missing("no such file".into()))
        });
        assert_eq!(failed.unwrap_err().code(), ErrorCode::DarktableError);
        assert_eq!(folders(&photo.library), ["iguana"]);

        let in_the_way = Library::new(raw_file(dir, "library-is-a-file", ""));
        let error = take_in(&in_the_way, &raw).unwrap_err();
        assert!(error.remedy().unwrap().contains("a file stands where a folder should be"), "{error}");
        let below = Library::new(dir.join("library-is-a-file/below"));
        assert!(take_in(&below, &raw).is_err());
    }

    #[test]
    fn a_sidecar_beside_the_raw_is_mentioned_and_not_seen_by_darktable() {
        let photo = TestPhoto::new();
        let raw = raw_file(photo.dir.path(), "b.nef", "other");
        let xmp = raw_file(photo.dir.path(), "b.nef.xmp", "<x/>");
        let ask = |raw: &Path| {
            assert_eq!(fs::read_dir(raw.parent().unwrap()).unwrap().count(), 1);
            assert_eq!(fs::read_to_string(raw).unwrap(), "other");
            defaults(raw)
        };
        let options = IngestOptions { id: None, brief: Some("quiet".into()) };
        let taken = ingest(&photo.library, &raw, options, &ask).unwrap();
        assert_eq!(taken.foreign_sidecar, Some(fs::canonicalize(xmp).unwrap()));
        assert_eq!(fs::read_to_string(taken.workspace.folder().join("brief.md")).unwrap(), "quiet");
    }

    #[test]
    fn what_a_crash_left_is_swept_but_not_what_is_being_made() {
        let photo = TestPhoto::new();
        let (stale, live) = (photo.library.root().join(".ingest-a"), photo.library.root().join(".ingest-b"));
        fs::create_dir(&stale).unwrap();
        fs::create_dir(&live).unwrap();
        let _lock = Lock::take(&live, "ingest", jiff::Timestamp::UNIX_EPOCH).unwrap();
        take_in(&photo.library, &raw_file(photo.dir.path(), "b.nef", "b")).unwrap();
        assert_eq!(folders(&photo.library), [".ingest-b", "b", "iguana"]);
    }
}
