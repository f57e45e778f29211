//! Quicker previews: while an agent chooses, it looks at renders of a smaller copy of the raw.
//!
//! [`Proxies`] makes and keeps the copies; [`Proxied`] is a renderer that has one in place of the raw for
//! [`Quality::Preview`] and for nothing else. What a copy cannot show in full, and what fails with it, is
//! rendered from the raw.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::bayer::Mosaic;
use crate::render::{Quality, RawFile, RenderError, RenderPermit, RenderRequest, Rendered, Renderer};
use base::clock::Deadline;
use base::error::{Coded, ErrorCode};
use base::files;
use base::ids::Hash;

/// Goes up whenever a copy is made otherwise.
const FORMAT: u32 = 1;
/// How many copies are kept.
const MOST: usize = 16;
/// The least and the most that a side is divided by.
const FACTORS: std::ops::RangeInclusive<u32> = 2..=16;
const DIGITS: usize = 64;

/// Whether previews come from a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// They do not.
    #[default]
    Off,
    /// They do where one can be made, of the smallest that is half as large again as the previews: at their own
    /// size, what the mosaic loses shows (mean ΔE2000 of 2.5, and of 1.0 at twice their size, on the demo's photo).
    Auto,
    /// They do, of one with so many times fewer columns and rows.
    By(u32),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("off", _) => Ok(Self::Off),
            ("auto", _) => Ok(Self::Auto),
            (_, Ok(n)) if FACTORS.contains(&n) => Ok(Self::By(n)),
            _ => Err("must be auto, off, or 2 to 16".into()),
        }
    }
}

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The raw is of a kind that none can be made of.
    #[error("no smaller copy can be made of {path}: {reason}")]
    Kind {
        /// The raw.
        path: PathBuf,
        /// Why.
        reason: &'static str,
    },
    /// The copy would be smaller than the previews.
    #[error("a copy {n} times smaller has {long_edge} pixels, the previews are to have {wanted}")]
    Small {
        /// As asked for.
        n: u32,
        /// Its longer side.
        long_edge: usize,
        /// That of the previews.
        wanted: u32,
    },
    /// Another file is in the raw's place.
    #[error(transparent)]
    Raw(RenderError),
    /// A file could not be read or written.
    #[error("cannot use {path} for a smaller copy of the raw: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

impl Coded for ProxyError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Kind { .. } | Self::Small { .. } => ErrorCode::InvalidInput,
            Self::Raw(error) => error.code(),
            Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => ErrorCode::NotFound,
            Self::Io { .. } => ErrorCode::StateError,
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::Kind { .. } => Some("only uncompressed Bayer DNGs work; leave out --proxy".into()),
            Self::Small { .. } => Some("--proxy auto chooses a suitable size".into()),
            Self::Raw(error) => error.remedy(),
            Self::Io { .. } => None,
        }
    }
}

/// A folder of copies. Each is a DNG followed by the 64 hexadecimal digits of its SHA-256, which is looked at
/// before the copy is believed; raw decoders do not read that far.
#[derive(Clone, Debug)]
pub struct Proxies {
    folder: PathBuf,
}

impl Proxies {
    /// The copies in `folder`, which is made when first written to.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// A copy of `raw` for previews of `long_edge` pixels, and by how much it is smaller; `None` where none is
    /// wanted, or the raw is hardly larger than the previews.
    ///
    /// # Errors
    /// [`ProxyError`] for a raw of which no smaller copy can be made.
    pub fn of(
        &self,
        raw: &RawFile,
        choice: Choice,
        long_edge: u32,
    ) -> Result<Option<(u32, RawFile)>, ProxyError> {
        if choice == Choice::Off {
            return Ok(None);
        }
        let file = files::read(&raw.path, files::LARGEST).map_err(at(&raw.path))?;
        let kind = |reason| ProxyError::Kind { path: raw.path.clone(), reason };
        let mosaic = Mosaic::read(&file).map_err(kind)?;
        let found = Hash::of(&file);
        if found != raw.sha256 {
            let (path, expected) = (raw.path.clone(), raw.sha256.clone());
            return Err(ProxyError::Raw(RenderError::Replaced { path, expected, found }));
        }
        // The copy has whole cells of two sites.
        let least = u64::from(long_edge.max(1).next_multiple_of(2));
        let large = mosaic.long_edge() as u64;
        let n = match choice {
            Choice::By(n) if large / least < n.into() => {
                let small = mosaic.long_edge() / n as usize;
                return Err(ProxyError::Small { n, long_edge: small, wanted: long_edge });
            }
            Choice::By(n) => n,
            _ => {
                let fitting = u32::try_from(2 * large / (3 * least)).unwrap_or(u32::MAX);
                if fitting < *FACTORS.start() {
                    return Ok(None);
                }
                fitting.min(*FACTORS.end())
            }
        };
        let path = self.folder.join(format!("{}-{n}-{FORMAT}.dng", raw.sha256));
        if let Some(sha256) = kept(&path) {
            return Ok(Some((n, RawFile { path, sha256 })));
        }
        let mut copy = mosaic.shrunk(n as usize).ok_or_else(|| kind("it is too small"))?;
        let digits = Hash::of(&copy);
        copy.extend_from_slice(digits.as_str().as_bytes());
        let sha256 = Hash::of(&copy);
        base::durable::write(&path, &copy).map_err(at(&path))?;
        self.evict().map_err(at(&self.folder))?;
        Ok(Some((n, RawFile { path, sha256 })))
    }

    /// Removes all copies.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn clear(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.folder) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    /// Removes those that were not used for longest.
    fn evict(&self) -> io::Result<()> {
        let mut copies = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            copies.push((entry.metadata().and_then(|about| about.modified())?, entry.path()));
        }
        copies.sort();
        let surplus = copies.len().saturating_sub(MOST);
        copies.into_iter().take(surplus).try_for_each(|(_, path)| fs::remove_file(path))
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> ProxyError {
    move |source| ProxyError::Io { path: path.to_owned(), source }
}

/// The hash of a copy's file that is there and whole.
fn kept(path: &Path) -> Option<Hash> {
    let file = files::read(path, files::LARGEST).ok()?;
    let (copy, digits) = file.split_at_checked(file.len().checked_sub(DIGITS)?)?;
    if Hash::of(copy).as_str().as_bytes() != digits {
        tracing::warn!(copy = %path.display(), "a damaged copy of a raw is replaced");
        return None;
    }
    // The order of eviction; nothing else depends on it.
    let _ = fs::File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
    Some(Hash::of(&file))
}

/// A renderer whose previews of one raw come from a copy of it.
pub struct Proxied {
    inner: Arc<dyn Renderer>,
    raw: Hash,
    copy: RawFile,
}

impl std::fmt::Debug for Proxied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxied").field("raw", &self.raw).field("copy", &self.copy).finish_non_exhaustive()
    }
}

impl Proxied {
    /// Puts `copy` in the place of `raw` for the previews of `inner`.
    pub fn new(inner: Arc<dyn Renderer>, raw: &RawFile, copy: RawFile) -> Self {
        Self { inner, raw: raw.sha256.clone(), copy }
    }

    /// The request for the copy, if it may answer.
    fn by_copy<'a>(&'a self, request: &RenderRequest<'a>) -> Option<RenderRequest<'a>> {
        (request.quality == Quality::Preview && request.raw.sha256 == self.raw)
            .then(|| RenderRequest { raw: &self.copy, ..request.clone() })
    }
}

/// Whether the raw itself would give no larger picture: what is cropped shows less of the copy than was asked for.
fn suffices(rendered: &Rendered, request: &RenderRequest<'_>) -> bool {
    rendered.picture.width.max(rendered.picture.height) >= request.long_edge
}

impl Renderer for Proxied {
    fn render(
        &self,
        request: &RenderRequest<'_>,
        deadline: &Deadline,
        permit: &dyn RenderPermit,
    ) -> Result<Rendered, RenderError> {
        request.raw.refuse_another()?;
        match self.by_copy(request).map(|by_copy| self.inner.render(&by_copy, deadline, permit)) {
            Some(Ok(rendered)) if suffices(&rendered, request) => return Ok(rendered),
            Some(Err(error)) if error.code() == ErrorCode::Interrupted => return Err(error),
            Some(Err(error)) => tracing::warn!(%error, "the smaller copy failed: rendering from the raw"),
            Some(Ok(_)) | None => {}
        }
        self.inner.render(request, deadline, permit)
    }

    fn darktable_version(&self) -> &str {
        self.inner.darktable_version()
    }

    fn cached(&self, request: &RenderRequest<'_>) -> Option<Rendered> {
        let by_copy = self.by_copy(request).and_then(|by_copy| self.inner.cached(&by_copy));
        by_copy.filter(|rendered| suffices(rendered, request)).or_else(|| self.inner.cached(request))
    }

    fn estimate(&self, raw: &Hash, long_edge: u32, quality: Quality) -> Option<Duration> {
        let by_copy = quality == Quality::Preview && *raw == self.raw;
        self.inner.estimate(if by_copy { &self.copy.sha256 } else { raw }, long_edge, quality)
    }

    fn take_notes(&self) -> Vec<String> {
        self.inner.take_notes()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::dng::{DngOptions, write_dng};
    use crate::render::{ByHand, Picture};
    use crate::state::EditState;

    fn raw(folder: &Path, width: u32, height: u32) -> RawFile {
        let rgb = (0..width * height * 3).map(|i| (i % 199) as u8).collect();
        let bytes = write_dng(&Picture { width, height, rgb }, &DngOptions::default()).unwrap();
        let path = folder.join("raw.dng");
        fs::write(&path, &bytes).unwrap();
        RawFile { path, sha256: Hash::of(bytes) }
    }

    #[test]
    fn the_choice_is_read_and_the_factor_follows_from_the_sizes() {
        assert_eq!("auto".parse(), Ok(Choice::Auto));
        assert_eq!("4".parse(), Ok(Choice::By(4)));
        for bad in ["1", "17", "-2", "", "half"] {
            assert!(bad.parse::<Choice>().is_err(), "{bad}");
        }
        let dir = tempfile::tempdir().unwrap();
        let raw = raw(dir.path(), 400, 260);
        let proxies = Proxies::new(dir.path().join("proxies"));
        let factor = |choice, edge| proxies.of(&raw, choice, edge).unwrap().map(|(n, _)| n);
        assert_eq!(factor(Choice::Off, 100), None);
        assert_eq!(factor(Choice::Auto, 135), None);
        assert_eq!(factor(Choice::Auto, 133), None);
        assert_eq!(factor(Choice::Auto, 132), Some(2));
        assert_eq!(factor(Choice::Auto, 66), Some(4));
        assert_eq!(factor(Choice::Auto, 10), Some(16));
        assert_eq!(factor(Choice::By(2), 200), Some(2));
        assert_eq!(factor(Choice::By(4), 99), Some(4));
        assert!(matches!(proxies.of(&raw, Choice::By(5), 100), Err(ProxyError::Small { long_edge: 80, .. })));
        let text = RawFile { path: dir.path().join("text.nef"), ..raw.clone() };
        fs::write(&text.path, "no raw").unwrap();
        assert!(matches!(proxies.of(&text, Choice::Auto, 100), Err(ProxyError::Kind { .. })));
    }

    #[test]
    fn no_copy_is_made_of_another_file_in_the_raws_place() {
        let dir = tempfile::tempdir().unwrap();
        let right = raw(dir.path(), 64, 48);
        raw(dir.path(), 64, 50);
        let proxies = Proxies::new(dir.path().join("proxies"));
        let error = proxies.of(&right, Choice::By(2), 32).unwrap_err();
        assert!(matches!(error, ProxyError::Raw(RenderError::Replaced { .. })), "{error}");
        assert!(!proxies.folder.exists());
    }

    #[test]
    fn a_copy_is_kept_believed_only_whole_and_bounded_in_number() {
        let dir = tempfile::tempdir().unwrap();
        let raw = raw(dir.path(), 64, 48);
        let proxies = Proxies::new(dir.path().join("proxies"));
        let get = || proxies.of(&raw, Choice::By(2), 32).unwrap().unwrap().1;
        let copy = get();
        let whole = fs::read(&copy.path).unwrap();
        assert_eq!(
            Hash::of(&whole[..whole.len() - DIGITS]).as_str().as_bytes(),
            &whole[whole.len() - DIGITS..]
        );
        assert_ne!(copy.sha256, raw.sha256);
        copy.prove().unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 1;
        for damaged in [&whole[..whole.len() - 1], &[], &flipped] {
            fs::write(&copy.path, damaged).unwrap();
            assert_eq!(get().sha256, copy.sha256);
            assert_eq!(fs::read(&copy.path).unwrap(), whole);
        }
        for n in 0..MOST {
            let old = proxies.folder.join(format!("old-{n}"));
            fs::write(&old, "").unwrap();
            fs::File::open(&old).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
        fs::remove_file(&copy.path).unwrap();
        get();
        assert_eq!(fs::read_dir(&proxies.folder).unwrap().count(), MOST);
        assert!(copy.path.exists());
        proxies.clear().unwrap();
        assert!(!proxies.folder.exists() && proxies.clear().is_ok());
    }

    /// Notes which raw each request was for, and answers with a picture of that size, or an error.
    struct Recording(Mutex<Vec<String>>, fn(&RenderRequest<'_>) -> Result<u32, RenderError>);

    impl Renderer for Recording {
        fn render(
            &self,
            request: &RenderRequest<'_>,
            _: &Deadline,
            _: &dyn RenderPermit,
        ) -> Result<Rendered, RenderError> {
            self.0.lock().unwrap().push(request.raw.path.display().to_string());
            let width = self.1(request)?;
            let picture = Picture { width, height: 1, rgb: vec![9; 3 * width as usize] };
            let pixel_hash = picture.pixel_hash();
            Ok(Rendered { picture: Arc::new(picture), pixel_hash, elapsed: Duration::ZERO, cached: false })
        }

        fn darktable_version(&self) -> &str {
            "4.2.1"
        }
    }

    #[test]
    fn only_previews_of_this_raw_come_from_its_copy_and_only_what_it_can_show() {
        let file = |name: &str| RawFile { path: PathBuf::from(name), sha256: Hash::of(name) };
        let (raw, copy, other) = (file("raw"), file("copy"), file("other"));
        let state = EditState::default();
        let asked = |raw_of: &RawFile, quality, answer| {
            let eyes = Arc::new(Recording(Mutex::default(), answer));
            let proxied = Proxied::new(eyes.clone(), &raw, copy.clone());
            let request = RenderRequest { raw: raw_of, state: &state, long_edge: 8, quality };
            let answer = proxied.render(&request, &Deadline::never(), &ByHand);
            let asked = eyes.0.lock().unwrap().clone();
            (asked, answer)
        };
        let full = |_: &RenderRequest<'_>| Ok(8);
        assert_eq!(asked(&raw, Quality::Preview, full).0, ["copy"]);
        assert_eq!(asked(&raw, Quality::Judge, full).0, ["raw"]);
        assert_eq!(asked(&other, Quality::Preview, full).0, ["other"]);
        let both = ["copy", "raw"];
        // Cropped so far that the copy has too little.
        assert_eq!(asked(&raw, Quality::Preview, |_| Ok(5)).0, both);
        let (by, answer) = asked(&raw, Quality::Preview, |request| match request.raw.path.to_str() {
            Some("copy") => Err(RenderError::Untrusted("broken".into())),
            _ => Ok(8),
        });
        assert!(by == both && answer.is_ok());
        let cut = |_: &RenderRequest<'_>| Err(RenderError::Cancelled { after: Duration::ZERO });
        assert_eq!(asked(&raw, Quality::Preview, cut).0, ["copy"], "a cut is the end");
    }
}
