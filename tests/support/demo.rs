//! The demo photo, opened by the installed darktable, with the vocabulary at hand.
#![allow(dead_code, reason = "the tests and the table each use their own part")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "test support: a failure is the test's failure"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use chemigram::assets::Overlay;
use chemigram::clock::{Deadline, SystemClock};
use chemigram::darktable::baseline::ask_baseline;
use chemigram::darktable::layout::Layouts;
use chemigram::darktable::oneshot::OneShot;
use chemigram::darktable::probe::DarktableCli;
use chemigram::darktable::render::{Picture, Quality, RawFile, RenderRequest, Renderer};
use chemigram::darktable::state::EditState;
use chemigram::darktable::worker::Worker;
use chemigram::darktable::{dng, xmp};
use chemigram::ids::Hash;
use chemigram::metrics::axes::Axis;
use chemigram::metrics::difference::Difference;
use chemigram::metrics::stats::ImageStats;
use chemigram::vocabulary::table::Measured;
use chemigram::vocabulary::{Applied, ApplyRequest, MaskSpec, Move, Orientation, PhotoFacts, Vocabulary};

/// As large as the demo photo: nothing is scaled, and a crop shows as a smaller picture.
pub const LONG_EDGE: u32 = 600;

pub struct Demo {
    pub vocabulary: Vocabulary,
    pub layouts: Arc<Layouts>,
    pub facts: PhotoFacts,
    pub raw: RawFile,
    pub renderer: OneShot,
    // Dropped last: the raw and darktable's configuration live in it.
    folder: tempfile::TempDir,
}

/// One move, rendered and measured from its least strength to its greatest.
pub struct Surveyed<'a> {
    pub entry: &'a Move,
    /// The move at rest, from the untouched photo: rendered, not assumed.
    pub neutral: Arc<Picture>,
    /// The move at its default values.
    pub default: Arc<Picture>,
    /// The move at its greatest strength; at its default values if it has no strength.
    pub greatest: Arc<Picture>,
    pub measured: Measured,
}

impl Demo {
    pub fn open() -> Self {
        // At the photo's own size, which is quicker than the demo's doubled raw and does as well here.
        Self::of(&dng::demo_photo().unwrap())
    }

    /// A raw of another picture, as the demo's camera would have taken it.
    pub fn of(photo: &Picture) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bytes = dng::write_dng(photo, &dng::DngOptions::default()).unwrap();
        let raw = RawFile { path: folder.path().join("demo.dng"), sha256: Hash::of(&bytes) };
        std::fs::write(&raw.path, bytes).unwrap();
        let base = folder.path().join("darktable");
        let cli = DarktableCli::find(&deadline()).unwrap();
        let layouts = Arc::new(Layouts::new(Overlay::vocabulary(None)));
        let sidecar = ask_baseline(&cli, &raw.path, &base, &deadline()).unwrap();
        let baseline = xmp::read(&sidecar, &layouts).unwrap();
        let facts = PhotoFacts {
            baseline,
            width: photo.width,
            height: photo.height,
            orientation: Orientation::default(),
        };
        let encoder = {
            let layouts = Arc::clone(&layouts);
            Arc::new(move |state: &EditState, name: &str| {
                xmp::write(state, &layouts, name).map_err(|e| e.to_string())
            })
        };
        let renderer = OneShot::new(cli, &base, encoder).unwrap();
        let vocabulary = Vocabulary::load(&Overlay::vocabulary(None)).unwrap();
        Self { vocabulary, layouts, facts, raw, renderer, folder }
    }

    pub fn version(&self) -> &str {
        self.renderer.darktable_version()
    }

    pub fn apply(
        &self,
        state: &EditState,
        name: &str,
        values: &[(&str, f64)],
        mask: Option<&str>,
    ) -> Applied {
        let values: BTreeMap<String, f64> =
            values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let mask: Option<MaskSpec> = mask.map(|text| serde_json::from_str(text).unwrap());
        let request = ApplyRequest { move_name: name, values: &values, mask: mask.as_ref() };
        self.vocabulary
            .apply(&request, state, &self.facts, &self.layouts, self.version())
            .unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    pub fn render(&self, state: &EditState) -> Arc<Picture> {
        let request =
            RenderRequest { raw: &self.raw, state, long_edge: LONG_EDGE, quality: Quality::Preview };
        self.renderer.render(&request, &deadline()).unwrap_or_else(|e| panic!("{e}")).picture
    }

    /// A renderer that keeps darktable alive, working beside the plain one.
    pub fn worker(&self) -> Worker {
        let layouts = Arc::clone(&self.layouts);
        let encode =
            move |state: &EditState, name: &str| xmp::write(state, &layouts, name).map_err(|e| e.to_string());
        let cli = DarktableCli::find(&deadline()).unwrap();
        Worker::new(cli, &self.folder.path().join("darktable"), Arc::new(encode)).unwrap()
    }

    /// The untouched photo, and every move at every rung of its strength.
    pub fn survey(&self) -> (Arc<Picture>, Vec<Surveyed<'_>>) {
        let baseline = &self.facts.baseline;
        let mut states = vec![baseline.clone()];
        let mut ladders = Vec::new();
        for entry in self.vocabulary.moves().filter(|entry| wanted(&entry.name)) {
            let ladder = ladder(entry);
            let first = states.len();
            for values in &ladder {
                let values: Vec<(&str, f64)> = values.iter().map(|(n, v)| (n.as_str(), *v)).collect();
                states.push(self.apply(baseline, &entry.name, &values, None).state);
            }
            ladders.push((entry, ladder, first..states.len()));
        }
        let pictures = self.render_all(&states);
        let untouched = &pictures[0];
        let before = ImageStats::of(untouched);
        let survey = ladders.into_iter().map(|(entry, ladder, places)| {
            let pictures = &pictures[places];
            let stats: Vec<_> = pictures.iter().map(|picture| ImageStats::of(picture)).collect();
            let along = |axis: &Axis| (*axis, stats.iter().map(|after| axis.steps(&before, after)).collect());
            let idle = ladder.iter().position(|values| entry.is_idle(values)).unwrap();
            let default = ladder.iter().position(|values| *values == entry.defaults()).unwrap();
            let difference = Difference::between(untouched, &pictures[default]).unwrap();
            let measured = Measured {
                name: entry.name.clone(),
                steps: entry.axes.keys().map(along).collect(),
                default,
                delta_e: (!difference.resized).then_some(difference.mean),
                neutral: pictures[idle].pixel_hash() == untouched.pixel_hash(),
            };
            let [neutral, default, greatest] =
                [idle, default, pictures.len() - 1].map(|at| Arc::clone(&pictures[at]));
            Surveyed { entry, neutral, default, greatest, measured }
        });
        (Arc::clone(untouched), survey.collect())
    }

    /// Renders all, two at a time.
    pub fn render_all(&self, states: &[EditState]) -> Vec<Arc<Picture>> {
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            while let Some((at, state)) = {
                let at = next.fetch_add(1, Ordering::Relaxed);
                states.get(at).map(|state| (at, state))
            } {
                done.push((at, self.render(state)));
            }
            done
        };
        let mut pictures = std::thread::scope(|scope| {
            let threads = [scope.spawn(work), scope.spawn(work)];
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        pictures.sort_by_key(|(at, _)| *at);
        pictures.into_iter().map(|(_, picture)| picture).collect()
    }
}

/// Whether a move is to be measured: all are, unless `CHEMIGRAM_ONLY` names some, parted by commas, for work on these.
fn wanted(name: &str) -> bool {
    std::env::var("CHEMIGRAM_ONLY").map_or(true, |only| only.split(',').any(|one| one == name))
}

/// The values at which a move is measured: see [`Measured::steps`].
fn ladder(entry: &Move) -> Vec<BTreeMap<String, f64>> {
    let mut ladder = vec![entry.neutral(), entry.defaults()];
    if let Some((name, strength)) = entry.strength() {
        ladder = [strength.min, strength.neutral, strength.default, strength.max]
            .into_iter()
            .map(|value| {
                let mut values = entry.defaults();
                values.insert(name.to_owned(), value);
                values
            })
            .collect();
        ladder.sort_by(|a, b| a[name].total_cmp(&b[name]));
        ladder.dedup();
    }
    ladder
}

pub fn deadline() -> Deadline {
    Deadline::after(Arc::new(SystemClock), Duration::from_secs(60))
}
