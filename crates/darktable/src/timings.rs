//! How long renders took on this machine, so that the next one can be foreseen.
//!
//! One small file beside the cached pictures, shared by sessions as these are. It is advice: a lost or damaged
//! file costs nothing but the foresight.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::render::Quality;
use base::files;
use base::ids::Hash;

const FILE: &str = "timings.json";
/// Renders of a kind that are remembered.
const RENDERS: usize = 16;
/// Kinds that are remembered.
const KINDS: usize = 256;

/// What was measured lately.
#[derive(Debug)]
pub struct Timings {
    file: PathBuf,
    darktable: String,
    known: Mutex<Vec<Kind>>,
}

/// Renders of one raw at one size and level by one darktable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Kind {
    raw: Hash,
    long_edge: u32,
    quality: Quality,
    darktable: String,
    /// Milliseconds, the latest last.
    ms: Vec<u64>,
}

impl Timings {
    /// The timings kept in `folder`, for renders by darktable of that version.
    pub fn open(folder: &Path, darktable: &str) -> Self {
        let file = folder.join(FILE);
        let known = read(&file);
        Self { file, darktable: darktable.into(), known: Mutex::new(known) }
    }

    /// Notes a render.
    pub fn add(&self, raw: &Hash, long_edge: u32, quality: Quality, took: Duration) {
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Another process may have written meanwhile; what it measured of other kinds is kept.
        let theirs = read(&self.file);
        known.retain(|kind| self.is(kind, raw, long_edge, quality));
        known.splice(0..0, theirs.into_iter().filter(|kind| !self.is(kind, raw, long_edge, quality)));
        match known.last_mut().filter(|kind| self.is(kind, raw, long_edge, quality)) {
            Some(kind) => {
                kind.ms.push(ms);
                let surplus = kind.ms.len().saturating_sub(RENDERS);
                kind.ms.drain(..surplus);
            }
            None => known.push(Kind {
                raw: raw.clone(),
                long_edge,
                quality,
                darktable: self.darktable.clone(),
                ms: vec![ms],
            }),
        }
        let surplus = known.len().saturating_sub(KINDS);
        known.drain(..surplus);
        if let Err(error) = write(&self.file, &known) {
            tracing::debug!(%error, "the time of a render could not be noted");
        }
    }

    /// What nine of ten such renders keep within; `None` if there was none.
    pub fn expect(&self, raw: &Hash, long_edge: u32, quality: Quality) -> Option<Duration> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = known.iter().find(|kind| self.is(kind, raw, long_edge, quality))?;
        let mut ms = kind.ms.clone();
        ms.sort_unstable();
        ms.get((ms.len() * 9).div_ceil(10).saturating_sub(1)).copied().map(Duration::from_millis)
    }

    fn is(&self, kind: &Kind, raw: &Hash, long_edge: u32, quality: Quality) -> bool {
        (&kind.raw, kind.long_edge, kind.quality, &kind.darktable)
            == (raw, long_edge, quality, &self.darktable)
    }
}

fn read(file: &Path) -> Vec<Kind> {
    files::read(file, files::LARGEST_TEXT)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default()
}

/// Whole or not at all; not synced, because nothing depends on it.
fn write(file: &Path, known: &[Kind]) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut part = tempfile::Builder::new().prefix(".timings-").tempfile_in(folder)?;
    part.write_all(&serde_json::to_vec(known)?)?;
    part.persist(file).map(|_| ()).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREVIEW: Quality = Quality::Preview;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn the_slow_tenth_is_foreseen_by_kind_and_old_renders_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let timings = Timings::open(dir.path(), "4.2.1");
        let raw = Hash::of("a raw");
        assert_eq!(timings.expect(&raw, 1024, PREVIEW), None);
        for n in [9_000, 9_000].into_iter().chain(1..=16) {
            timings.add(&raw, 1024, PREVIEW, ms(n));
        }
        assert_eq!(timings.expect(&raw, 1024, PREVIEW), Some(ms(15)));
        assert_eq!(timings.expect(&raw, 512, PREVIEW), None);
        assert_eq!(timings.expect(&raw, 1024, Quality::Judge), None);
        assert_eq!(timings.expect(&Hash::of("another"), 1024, PREVIEW), None);
        assert_eq!(Timings::open(dir.path(), "5.4.1").expect(&raw, 1024, PREVIEW), None);
    }

    #[test]
    fn two_writers_keep_each_others_kinds_and_a_damaged_file_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (Timings::open(dir.path(), "4.2.1"), Timings::open(dir.path(), "4.2.1"));
        let raws = [Hash::of("1"), Hash::of("2")];
        one.add(&raws[0], 512, PREVIEW, ms(3));
        two.add(&raws[1], 512, PREVIEW, ms(5));
        one.add(&raws[0], 512, PREVIEW, ms(4));
        let third = Timings::open(dir.path(), "4.2.1");
        assert_eq!(raws.clone().map(|raw| third.expect(&raw, 512, PREVIEW)), [Some(ms(4)), Some(ms(5))]);
        fs::write(dir.path().join(FILE), "[{").unwrap();
        assert_eq!(Timings::open(dir.path(), "4.2.1").expect(&raws[0], 512, PREVIEW), None);
    }

    #[test]
    fn the_file_stays_small() {
        let dir = tempfile::tempdir().unwrap();
        let timings = Timings::open(dir.path(), "4.2.1");
        let raw = |n: usize| Hash::of(n.to_le_bytes());
        for n in 0..KINDS + 3 {
            timings.add(&raw(n), 512, PREVIEW, ms(1));
        }
        assert_eq!(read(&dir.path().join(FILE)).len(), KINDS);
        assert_eq!(timings.expect(&raw(0), 512, PREVIEW), None);
        assert_eq!(timings.expect(&raw(KINDS + 2), 512, PREVIEW), Some(ms(1)));
    }
}
