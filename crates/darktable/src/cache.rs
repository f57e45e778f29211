//! Rendered pictures on disk, so that nothing is rendered twice: not in one session, not on another branch,
//! not next year.
//!
//! An entry is a file named by the SHA-256 of everything that decides its pixels. It is a plain PPM that any
//! viewer opens, followed by the 64 hexadecimal digits of its pixel hash (decoders stop at the last pixel).
//! An entry is believed only after that hash was checked; without compression this takes a millisecond or two.
//! Several processes may share a folder: an entry appears whole or not at all, and equal names mean equal
//! content. The pictures that were used last are also held in memory, so that those which every look is compared
//! with are not read and checked each time.
//!
//! Beside the pictures it keeps how long they took, so that the next one of its kind can be foreseen, and what
//! darktable said of the files.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;

use crate::render::{Picture, Quality, RenderError, RenderPermit, RenderRequest, Rendered, Renderer};
use crate::scratch;
use crate::timings::Timings;
use base::clock::Deadline;
use base::files;
use base::ids::Hash;

/// Goes up whenever the key, the entry's form or the way of rendering changes.
const FORMAT: u32 = 4;
const SUFFIX: &str = ".ppm";
/// The prefix of files that are being written.
const PART: &str = ".part-";
/// A part this old was left behind by a process that was killed.
const STALE: Duration = Duration::from_secs(3600);
const DIGITS: usize = 64;
/// Bytes of pixels that are held in memory: eight pictures of 2048 by 1365.
const HELD: usize = 64 << 20;
/// Pictures that are held in memory, however small they are.
const HELD_PICTURES: usize = 64;

/// A folder of rendered pictures.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
    limit: u64,
}

/// What a cache holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CacheInfo {
    /// Where it is.
    pub folder: PathBuf,
    /// Pictures.
    pub entries: u64,
    /// Their size on disk.
    pub bytes: u64,
    /// How large it may become.
    pub limit: u64,
}

struct Entry {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

impl Cache {
    /// A cache in `folder`, made when first written to, of at most `limit` bytes.
    pub fn new(folder: impl Into<PathBuf>, limit: u64) -> Self {
        Self { folder: folder.into(), limit }
    }

    /// Counts what is there.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn info(&self) -> io::Result<CacheInfo> {
        let entries = self.entries()?;
        Ok(CacheInfo {
            folder: self.folder.clone(),
            entries: entries.len() as u64,
            bytes: entries.iter().map(|e| e.bytes).sum(),
            limit: self.limit,
        })
    }

    /// Removes every entry, with what darktable said of files, and returns what was removed.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn clear(&self) -> io::Result<CacheInfo> {
        let info = self.info()?;
        for entry in self.entries()? {
            remove(&entry.path)?;
        }
        self.forget_answers()?;
        Ok(info)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    fn path(&self, key: &Hash) -> PathBuf {
        self.folder.join(format!("{key}{SUFFIX}"))
    }

    /// The picture under `key`, checked. A damaged entry is removed.
    fn get(&self, key: &Hash) -> Option<(Picture, Hash)> {
        let path = self.path(key);
        let bytes = files::read(&path, files::LARGEST).ok()?;
        let found = open_entry(bytes);
        match &found {
            Some(_) => {
                // The order of eviction; nothing else depends on it.
                let touched = fs::File::open(&path).and_then(|f| f.set_modified(SystemTime::now()));
                if let Err(error) = touched {
                    tracing::debug!(%error, "cannot note the use of a cached render");
                }
            }
            None => {
                tracing::warn!(entry = %path.display(), "a damaged cached render was dropped");
                let _ = remove(&path);
            }
        }
        found
    }

    fn put(&self, key: &Hash, picture: &Picture, pixel_hash: &Hash) -> io::Result<()> {
        let bytes = close_entry(picture, pixel_hash);
        fs::create_dir_all(&self.folder)?;
        // No sync: a torn entry after a power cut is found by its hash and rendered again.
        let mut part = tempfile::Builder::new().prefix(PART).tempfile_in(&self.folder)?;
        part.write_all(&bytes)?;
        part.persist(self.path(key)).map_err(|e| e.error)?;
        self.evict()
    }

    /// Removes the entries that were not used for longest until the rest fits.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn evict(&self) -> io::Result<()> {
        let mut entries = self.entries()?;
        let mut total: u64 = entries.iter().map(|e| e.bytes).sum();
        entries.sort_by_key(|e| e.used);
        for entry in entries {
            if total <= self.limit {
                break;
            }
            remove(&entry.path)?;
            total = total.saturating_sub(entry.bytes);
        }
        Ok(())
    }

    /// The entries; parts that killed processes left are removed on the way.
    fn entries(&self) -> io::Result<Vec<Entry>> {
        let listing = match fs::read_dir(&self.folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut entries = Vec::new();
        for item in listing {
            let item = item?;
            let name = item.file_name();
            let name = name.to_string_lossy();
            // Another process may have removed it meanwhile.
            let Ok(about) = item.metadata() else { continue };
            let used = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            if name.strip_suffix(SUFFIX).is_some_and(|key| key.parse::<Hash>().is_ok()) {
                entries.push(Entry { path: item.path(), bytes: about.len(), used });
            } else if name.starts_with(PART) && used.elapsed().is_ok_and(|age| age > STALE) {
                remove(&item.path())?;
            }
        }
        Ok(entries)
    }
}

/// Removes a file that another process may have removed.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Binary PPM, three bytes per pixel, and the digits.
fn close_entry(picture: &Picture, pixel_hash: &Hash) -> Vec<u8> {
    let mut bytes = format!("P6\n{} {}\n255\n", picture.width, picture.height).into_bytes();
    bytes.reserve_exact(picture.rgb.len() + DIGITS);
    bytes.extend_from_slice(&picture.rgb);
    bytes.extend_from_slice(pixel_hash.as_str().as_bytes());
    bytes
}

/// `None` if anything about the entry is damaged.
fn open_entry(mut bytes: Vec<u8>) -> Option<(Picture, Hash)> {
    let digits = bytes.split_off(bytes.len().checked_sub(DIGITS)?);
    let promised: Hash = std::str::from_utf8(&digits).ok()?.parse().ok()?;
    let mut lines = bytes.splitn(4, |&byte| byte == b'\n');
    let (magic, size, range, pixels) = (lines.next()?, lines.next()?, lines.next()?, lines.next()?);
    if (magic, range) != (b"P6", b"255") {
        return None;
    }
    let (width, height) = std::str::from_utf8(size).ok()?.split_once(' ')?;
    let (width, height) = (width.parse().ok()?, height.parse().ok()?);
    if u64::from(width) * u64::from(height) * 3 != pixels.len() as u64 {
        return None;
    }
    let header = bytes.len() - pixels.len();
    bytes.drain(..header);
    let picture = Picture { width, height, rgb: bytes };
    (picture.pixel_hash() == promised).then_some((picture, promised))
}

/// The pictures that were used last, the latest at the end.
#[derive(Default)]
struct Held(VecDeque<(Hash, Arc<Picture>, Hash)>);

impl Held {
    fn get(&mut self, key: &Hash) -> Option<(Arc<Picture>, Hash)> {
        let at = self.0.iter().position(|(held, ..)| held == key)?;
        let found = self.0.remove(at)?;
        self.0.push_back(found.clone());
        Some((found.1, found.2))
    }

    fn put(&mut self, key: Hash, picture: Arc<Picture>, pixel_hash: Hash) {
        self.0.retain(|(held, ..)| *held != key);
        self.0.push_back((key, picture, pixel_hash));
        let bytes = |held: &Self| held.0.iter().map(|(_, picture, _)| picture.rgb.len()).sum::<usize>();
        while self.0.len() > HELD_PICTURES || bytes(self) > HELD {
            self.0.pop_front();
        }
    }
}

/// A renderer that looks into a [`Cache`] first. A cache that cannot be written costs time, never a picture.
///
/// A picture is written beside whoever waited for it, and is on disk when this is dropped, if not before.
pub struct Cached {
    inner: Arc<dyn Renderer>,
    cache: Cache,
    held: Mutex<Held>,
    timings: Timings,
    /// What is written now, and by whom.
    writing: Mutex<Option<(Hash, JoinHandle<()>)>>,
}

impl std::fmt::Debug for Cached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cached").field("cache", &self.cache).finish_non_exhaustive()
    }
}

impl Cached {
    /// Puts `cache` before `inner`.
    pub fn new(inner: Arc<dyn Renderer>, cache: Cache) -> Self {
        let timings = Timings::open(&cache.folder, inner.darktable_version());
        Self { inner, cache, held: Mutex::default(), timings, writing: Mutex::default() }
    }

    fn hold(&self, key: Hash, rendered: &Rendered) {
        let (picture, pixel_hash) = (Arc::clone(&rendered.picture), rendered.pixel_hash.clone());
        lock(&self.held).put(key, picture, pixel_hash);
    }

    /// Begins to write a picture, one at a time.
    fn write(&self, key: &Hash, rendered: &Rendered) {
        let (cache, entry, rendered) = (self.cache.clone(), key.clone(), rendered.clone());
        let write = move || {
            if let Err(error) = cache.put(&entry, &rendered.picture, &rendered.pixel_hash) {
                tracing::warn!(%error, "a render could not be cached");
            }
        };
        let mut writing = lock(&self.writing);
        written(&mut writing);
        *writing = Some((key.clone(), std::thread::spawn(write)));
    }

    /// The name of everything that decides the pixels of an answer. The raw's own hash was proved before.
    fn key(&self, request: &RenderRequest<'_>) -> Hash {
        Hash::of(format!(
            "chemigram render {FORMAT}\nraw {}\nname {}\nstate {}\nedge {}\nquality {}\ndarktable {}\nopencl off\n",
            request.raw.sha256,
            scratch::name_of(&request.raw.path),
            request.state.hash(),
            request.long_edge,
            request.quality.as_str(),
            self.inner.darktable_version(),
        ))
    }
}

impl Renderer for Cached {
    fn render(
        &self,
        request: &RenderRequest<'_>,
        deadline: &Deadline,
        permit: &dyn RenderPermit,
    ) -> Result<Rendered, RenderError> {
        request.raw.refuse_another()?;
        if let Some(rendered) = self.cached(request) {
            return Ok(rendered);
        }
        let rendered = self.inner.render(request, deadline, permit)?;
        // The picture is kept under the raw's hash: it may have been exchanged meanwhile.
        request.raw.prove()?;
        self.timings.add(&request.raw.sha256, request.long_edge, request.quality, rendered.elapsed);
        let key = self.key(request);
        self.write(&key, &rendered);
        self.hold(key, &rendered);
        Ok(rendered)
    }

    fn darktable_version(&self) -> &str {
        self.inner.darktable_version()
    }

    fn cached(&self, request: &RenderRequest<'_>) -> Option<Rendered> {
        let started = Instant::now();
        // Whoever gets nothing here asks for a render, and learns why.
        request.raw.refuse_another().ok()?;
        let key = self.key(request);
        let held = lock(&self.held).get(&key);
        let (picture, pixel_hash) = match held {
            Some(found) => found,
            None => {
                let mut writing = lock(&self.writing);
                // A picture too large to be held may be on its way.
                if writing.as_ref().is_some_and(|(written, _)| *written == key) {
                    written(&mut writing);
                }
                drop(writing);
                let (picture, pixel_hash) = self.cache.get(&key)?;
                (Arc::new(picture), pixel_hash)
            }
        };
        let found = Rendered { picture, pixel_hash, elapsed: started.elapsed(), cached: true };
        self.hold(key, &found);
        Some(found)
    }

    fn estimate(&self, raw: &Hash, long_edge: u32, quality: Quality) -> Option<Duration> {
        self.timings.expect(raw, long_edge, quality)
    }

    fn take_notes(&self) -> Vec<String> {
        self.inner.take_notes()
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        written(&mut lock(&self.writing));
    }
}

/// Waits for what is written.
fn written(writing: &mut Option<(Hash, JoinHandle<()>)>) {
    if let Some((_, thread)) = writing.take() {
        // Whatever went wrong there, the picture was given out.
        let _ = thread.join();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(seed: u8) -> Picture {
        let rgb = (0..64 * 48 * 3).map(|i| (i % 251) as u8 ^ seed).collect();
        Picture { width: 64, height: 48, rgb }
    }

    fn key(n: u8) -> Hash {
        Hash::of([n])
    }

    /// Shows the raw's first byte, and may write another raw in its place before or after it looks.
    struct Recording {
        before: Mutex<Option<&'static str>>,
        after: Mutex<Option<&'static str>>,
    }

    impl Renderer for Recording {
        fn render(
            &self,
            request: &RenderRequest<'_>,
            _: &Deadline,
            _: &dyn RenderPermit,
        ) -> Result<Rendered, RenderError> {
            let path = &request.raw.path;
            let exchange =
                |by: &Mutex<Option<&str>>| lock(by).take().map(|text| fs::write(path, text).unwrap());
            exchange(&self.before);
            let picture = picture(fs::read(path).unwrap()[0]);
            exchange(&self.after);
            let pixel_hash = picture.pixel_hash();
            let picture = Arc::new(picture);
            Ok(Rendered { picture, pixel_hash, elapsed: Duration::ZERO, cached: false })
        }

        fn darktable_version(&self) -> &str {
            "4.2.1"
        }
    }

    #[test]
    fn a_picture_of_another_raw_is_never_kept_and_another_raw_is_refused() {
        use crate::render::{ByHand, RawFile};
        use crate::state::EditState;
        let dir = tempfile::tempdir().unwrap();
        let raw = RawFile { path: dir.path().join("a.dng"), sha256: Hash::of("coffee") };
        fs::write(&raw.path, "coffee").unwrap();
        let eyes = Arc::new(Recording { before: Mutex::default(), after: Mutex::default() });
        let cached = Cached::new(eyes.clone(), Cache::new(dir.path().join("cache"), u64::MAX));
        let state = EditState::default();
        let ask = |long_edge| {
            let quality = Quality::Preview;
            cached.render(
                &RenderRequest { raw: &raw, state: &state, long_edge, quality },
                &Deadline::never(),
                &ByHand,
            )
        };
        let is_replaced = |answer| matches!(answer, Err(RenderError::Replaced { .. }));
        let coffee = ask(64).unwrap().pixel_hash;
        // Exchanged while darktable worked: before it opened the file, and after.
        for moment in [&eyes.before, &eyes.after] {
            *lock(moment) = Some("kitten");
            assert!(is_replaced(ask(32)));
            fs::write(&raw.path, "coffee").unwrap();
        }
        // And before it was asked, though the picture is there already.
        fs::write(&raw.path, "kitten").unwrap();
        assert!(is_replaced(ask(32)) && is_replaced(ask(64)));
        let request = RenderRequest { raw: &raw, state: &state, long_edge: 64, quality: Quality::Preview };
        assert!(cached.cached(&request).is_none());
        drop(lock(&cached.writing).take().map(|(_, thread)| thread.join()));
        assert_eq!(cached.cache.info().unwrap().entries, 1);
        fs::write(&raw.path, "coffee").unwrap();
        let now = ask(32).unwrap();
        assert_eq!((now.cached, &now.pixel_hash), (false, &coffee));
        // What is cached is the right raw's, so it may be shown while the raw is away.
        fs::remove_file(&raw.path).unwrap();
        assert!(ask(64).unwrap().cached);
    }

    fn put(cache: &Cache, n: u8) {
        let picture = picture(n);
        cache.put(&key(n), &picture, &picture.pixel_hash()).unwrap();
    }

    #[test]
    fn what_was_put_comes_back_to_the_pixel_and_any_viewer_can_open_it() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path().join("deep"), u64::MAX);
        assert_eq!(cache.info().unwrap().entries, 0);
        put(&cache, 1);
        let (found, hash) = cache.get(&key(1)).unwrap();
        assert_eq!(found, picture(1));
        assert_eq!(hash, picture(1).pixel_hash());
        let opened = image::open(cache.path(&key(1))).unwrap().into_rgb8();
        assert_eq!(opened.into_raw(), picture(1).rgb);
        assert!(cache.get(&key(2)).is_none());
        assert_eq!(cache.clear().unwrap().entries, 1);
        assert_eq!(cache.info().unwrap().bytes, 0);
    }

    #[test]
    fn damage_of_any_kind_is_found_and_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path(), u64::MAX);
        let whole = close_entry(&picture(1), &picture(1).pixel_hash());
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 0x40;
        let wrong = close_entry(&picture(2), &picture(1).pixel_hash());
        let mut wide = whole.clone();
        wide[3..8].copy_from_slice(b"48 64");
        for damaged in [&whole[..whole.len() - 1], &whole[..40], &[], &flipped, &wrong, &wide] {
            fs::write(cache.path(&key(1)), damaged).unwrap();
            assert!(cache.get(&key(1)).is_none());
            assert!(!cache.path(&key(1)).exists());
        }
    }

    #[test]
    fn what_is_held_is_what_was_used_last() {
        let mut held = Held::default();
        let large = |n: u8| Arc::new(Picture { width: 1, height: 1, rgb: vec![n; HELD / 3] });
        for n in 0..3 {
            held.put(key(n), large(n), key(n));
        }
        assert!(held.get(&key(0)).is_some(), "and thereby used just now");
        held.put(key(3), large(3), key(3));
        assert!(held.get(&key(1)).is_none());
        assert_eq!(held.get(&key(3)).unwrap().0.rgb[0], 3);
        held.put(key(3), large(4), key(4));
        assert_eq!((held.0.len(), held.get(&key(3)).unwrap().1), (3, key(4)));
        let small = Arc::new(Picture { width: 1, height: 1, rgb: vec![0; 3] });
        for n in 4..=4 + HELD_PICTURES as u8 {
            held.put(key(n), small.clone(), key(n));
        }
        assert_eq!(held.0.len(), HELD_PICTURES);
        assert!(held.get(&key(4)).is_none() && held.get(&key(5)).is_some());
    }

    #[test]
    fn the_limit_removes_what_was_not_used_for_longest() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path(), u64::MAX);
        for n in 0..4 {
            put(&cache, n);
            let age = Duration::from_secs(100 - u64::from(n));
            fs::File::open(cache.path(&key(n))).unwrap().set_modified(SystemTime::now() - age).unwrap();
        }
        assert!(cache.get(&key(0)).is_some(), "and thereby used just now");
        let one = fs::metadata(cache.path(&key(0))).unwrap().len();
        let small = Cache::new(dir.path(), one * 5 / 2);
        small.evict().unwrap();
        let left: Vec<u8> = (0..4).filter(|&n| small.path(&key(n)).exists()).collect();
        assert_eq!(left, [0, 3]);
        assert!(small.info().unwrap().bytes <= small.limit);
    }

    #[test]
    fn several_writers_and_readers_agree() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(dir.path(), 40_000);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in (0..6).cycle().take(24) {
                        put(&cache, n);
                        if let Some((found, _)) = cache.get(&key(n)) {
                            assert_eq!(found, picture(n));
                        }
                    }
                });
            }
        });
        assert!(cache.info().unwrap().bytes <= 40_000);
        let parts = fs::read_dir(dir.path())
            .unwrap()
            .filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().starts_with(PART));
        assert_eq!(parts.count(), 0);
    }
}
