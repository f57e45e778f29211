//! The demo photo, opened by the installed darktable, with the vocabulary at hand.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use base::assets::Overlay;
use base::clock::{Deadline, SystemClock};
use base::ids::Hash;
use darktable::baseline::Untouched;
use darktable::dng::{DngOptions, write_dng};
use darktable::layout::Layouts;
use darktable::oneshot::{Encoder, OneShot};
use darktable::probe::DarktableCli;
use darktable::render::{ByHand, Picture, Quality, RawFile, RenderRequest, Renderer};
use darktable::state::EditState;
use darktable::worker::Worker;
use darktable::xmp;
use engine::photo::Operation;
use engine::vocabulary::{Applied, ApplyRequest, MaskSpec, PhotoFacts, Vocabulary, VocabularyError};

use crate::folder::kept_folder;
use crate::kept::{self, ALIVE, ALONE, Kept};
use crate::photos::{self, halved};

/// As large as the demo photo: nothing is scaled, and a crop shows as a smaller picture.
pub const LONG_EDGE: u32 = 600;

/// Two darktables that stay alive, because starting one costs more than rendering a small picture; and the pictures that
/// earlier runs have made. They end with the test program; what they leave in their folder is removed a day later.
static WORKERS: LazyLock<[Kept<Worker>; 2]> = LazyLock::new(|| {
    let base = kept_folder("workers");
    let layouts = Arc::new(Layouts::new(Overlay::vocabulary(None)));
    [(); 2].map(|()| {
        let worker = Worker::new(kept::darktable(), &base, encoder(&layouts)).unwrap();
        Kept::new(worker, ALIVE, encoder(&layouts), None)
    })
});

pub struct Demo {
    pub vocabulary: Vocabulary,
    pub layouts: Arc<Layouts>,
    pub facts: PhotoFacts,
    untouched: Untouched,
    /// Which of the photos it is: see [`photos::photo`].
    pub kind: Option<String>,
    pub raw: RawFile,
    pub renderer: OneShot,
    /// A darktable for each picture, and the pictures that earlier runs have made.
    alone: Kept<OneShot>,
    cli: DarktableCli,
    base: PathBuf,
    /// What each state looks like, or why it cannot be rendered.
    seen: Mutex<HashMap<Hash, Result<Arc<Picture>, String>>>,
    // Dropped last: the raw and darktable's configuration live in it.
    _folder: tempfile::TempDir,
}

impl Demo {
    pub fn open() -> Self {
        Self::open_photo(None)
    }

    /// One for every photo that some move needs to show what it does, the demo's own photo first; those of the kinds
    /// `small` at half their size.
    pub fn open_all(small: &[Option<&str>]) -> Vec<Self> {
        let open =
            |kind| Self::of_kind(kind, |photo| if small.contains(&kind) { halved(&photo) } else { photo });
        let demo = open(None);
        let chosen = demo.vocabulary.moves().filter(|entry| wanted(&entry.name));
        let mut kinds: Vec<String> = chosen.filter_map(|entry| entry.shown_on.clone()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        std::iter::once(demo).chain(kinds.iter().map(|kind| open(Some(kind)))).collect()
    }

    /// At the photo's own size, which is quicker than the demo's doubled raw and does as well here.
    pub fn open_photo(kind: Option<&str>) -> Self {
        Self::of_kind(kind, |photo| photo)
    }

    fn of_kind(kind: Option<&str>, change: impl Fn(Picture) -> Picture) -> Self {
        let (photo, options) = photos::photo(kind);
        Self { kind: kind.map(str::to_owned), ..Self::with(&change(photo), &options) }
    }

    /// A raw of another picture, as the demo's camera would have taken it.
    pub fn of(photo: &Picture) -> Self {
        Self::with(photo, &DngOptions::default())
    }

    /// A raw of another picture, taken otherwise.
    pub fn with(photo: &Picture, options: &DngOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bytes = write_dng(photo, options).unwrap();
        let raw = RawFile { path: folder.path().join("demo.dng"), sha256: Hash::of(&bytes) };
        std::fs::write(&raw.path, bytes).unwrap();
        let base = folder.path().join("darktable");
        let cli = kept::darktable();
        let layouts = Arc::new(Layouts::new(Overlay::vocabulary(None)));
        let untouched = kept::ask(&layouts, &raw.path, &base).unwrap();
        let facts = PhotoFacts::new(untouched.state.clone(), &untouched.facts);
        let renderer = OneShot::new(cli.clone(), &base, encoder(&layouts)).unwrap();
        let alone = OneShot::new(cli.clone(), &base, encoder(&layouts)).unwrap();
        let alone = Kept::new(alone, ALONE, encoder(&layouts), None);
        let vocabulary = Vocabulary::load(&Overlay::vocabulary(None)).unwrap();
        let seen = Mutex::default();
        Self {
            vocabulary,
            layouts,
            facts,
            untouched,
            kind: None,
            raw,
            renderer,
            alone,
            cli,
            base,
            seen,
            _folder: folder,
        }
    }

    /// What darktable itself writes for the untouched photo.
    pub fn default_sidecar(&self) -> Vec<u8> {
        self.untouched.sidecar.clone()
    }

    pub fn version(&self) -> &str {
        self.renderer.darktable_version()
    }

    pub fn try_apply(
        &self,
        state: &EditState,
        name: &str,
        values: &BTreeMap<String, f64>,
        mask: Option<&str>,
    ) -> Result<Applied, VocabularyError> {
        let mask: Option<MaskSpec> = mask.map(|text| serde_json::from_str(text).unwrap());
        let request = ApplyRequest { move_name: name, values, mask: mask.as_ref() };
        self.vocabulary.apply(&request, state, &self.facts, &self.layouts, self.version())
    }

    /// The state that a move or a look makes.
    pub fn try_state(
        &self,
        state: &EditState,
        name: &str,
        values: &BTreeMap<String, f64>,
        mask: Option<&str>,
    ) -> Result<EditState, VocabularyError> {
        let mask: Option<MaskSpec> = mask.map(|text| serde_json::from_str(text).unwrap());
        let request = ApplyRequest { move_name: name, values, mask: mask.as_ref() };
        Operation::apply(&request, &self.vocabulary, state, &self.facts, &self.layouts, self.version())
            .map(|(state, _)| state)
    }

    pub fn apply(
        &self,
        state: &EditState,
        name: &str,
        values: &[(&str, f64)],
        mask: Option<&str>,
    ) -> Applied {
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        self.try_apply(state, name, &values, mask).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// One picture by a darktable of its own, in this run or in one before.
    pub fn render(&self, state: &EditState) -> Arc<Picture> {
        self.shoot(&self.alone, state).unwrap_or_else(|e| panic!("{e}"))
    }

    fn shoot(&self, renderer: &dyn Renderer, state: &EditState) -> Result<Arc<Picture>, String> {
        let request =
            RenderRequest { raw: &self.raw, state, long_edge: LONG_EDGE, quality: Quality::Preview };
        renderer.render(&request, &deadline(), &ByHand).map(|r| r.picture).map_err(|e| e.to_string())
    }

    /// [`Self::render`] of all, two at a time.
    pub fn render_alone(&self, states: &[EditState]) -> Vec<Arc<Picture>> {
        two_at_a_time(states, |state| self.render(state))
    }

    /// A renderer that keeps darktable alive, working beside the plain one.
    pub fn worker(&self) -> Worker {
        self.worker_of(self.cli.clone())
    }

    /// The same with another program for darktable-cli.
    pub fn worker_of(&self, cli: DarktableCli) -> Worker {
        Worker::new(cli, &self.base, encoder(&self.layouts)).unwrap()
    }

    /// Another program for darktable-cli that stays alive; `by` says what it does.
    pub fn alive_by(&self, by: &str, cli: DarktableCli) -> Kept<Worker> {
        Kept::new(self.worker_of(cli), by, encoder(&self.layouts), None)
    }

    /// The installed darktable-cli.
    pub fn cli(&self) -> &DarktableCli {
        &self.cli
    }

    /// What a state looks like. Equal states are rendered once.
    pub fn see(&self, states: &[EditState]) -> Vec<Result<Arc<Picture>, String>> {
        let hashes: Vec<Hash> = states.iter().map(EditState::hash).collect();
        let mut new = BTreeSet::new();
        let missing: Vec<(&Hash, &EditState)> = {
            let seen = self.seen.lock().unwrap();
            let pairs = hashes.iter().zip(states);
            pairs.filter(|(hash, _)| !seen.contains_key(*hash) && new.insert(hash.as_str())).collect()
        };
        let halves = missing.chunks(missing.len().div_ceil(2).max(1)).zip(&*WORKERS);
        let pictures = two_at_a_time(&halves.collect::<Vec<_>>(), |(half, worker)| {
            half.iter().map(|(_, state)| self.shoot(*worker, state)).collect::<Vec<_>>()
        });
        let mut seen = self.seen.lock().unwrap();
        for ((hash, _), picture) in missing.iter().zip(pictures.into_iter().flatten()) {
            seen.insert((*hash).clone(), picture);
        }
        hashes.iter().map(|hash| seen[hash].clone()).collect()
    }

    /// How many pictures [`Self::see`] has had rendered.
    pub fn renders(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// [`Self::see`] where every state can be rendered.
    pub fn render_all(&self, states: &[EditState]) -> Vec<Arc<Picture>> {
        self.see(states).into_iter().map(|picture| picture.unwrap_or_else(|e| panic!("{e}"))).collect()
    }
}

/// What writes the sidecars.
fn encoder(layouts: &Arc<Layouts>) -> Arc<Encoder> {
    let layouts = Arc::clone(layouts);
    Arc::new(move |state: &EditState, name: &str| {
        xmp::write(state, &layouts, name).map_err(|e| e.to_string())
    })
}

/// Does `work` on every item by two threads; the answers stand in the order of the items.
pub fn two_at_a_time<T: Sync, U: Send>(items: &[T], work: impl Fn(&T) -> U + Sync) -> Vec<U> {
    let next = AtomicUsize::new(0);
    let run = || {
        let mut done = Vec::new();
        while let Some((at, item)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            items.get(at).map(|item| (at, item))
        } {
            done.push((at, work(item)));
        }
        done
    };
    let mut done = std::thread::scope(|scope| {
        let threads = [scope.spawn(run), scope.spawn(run)];
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, answer)| answer).collect()
}

/// Whether a move is to be measured: all are, unless `CHEMIGRAM_ONLY` names some, parted by commas, for work on these.
pub fn wanted(name: &str) -> bool {
    only().is_none_or(|only| only.split(',').any(|one| one == name))
}

/// The moves that `CHEMIGRAM_ONLY` names; where it names some, nothing may be said about how many there are.
pub fn only() -> Option<String> {
    std::env::var("CHEMIGRAM_ONLY").ok().filter(|only| !only.is_empty())
}

pub fn deadline() -> Deadline {
    Deadline::after(Arc::new(SystemClock), Duration::from_secs(120))
}
