//! The demo photo, opened by the installed darktable, with the vocabulary at hand.
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
use chemigram::darktable::{dng, xmp};
use chemigram::ids::Hash;
use chemigram::vocabulary::{Applied, ApplyRequest, MaskSpec, Orientation, PhotoFacts, Vocabulary};

/// As large as the demo photo: nothing is scaled, and a crop shows as a smaller picture.
const LONG_EDGE: u32 = 600;

pub struct Demo {
    pub vocabulary: Vocabulary,
    pub layouts: Arc<Layouts>,
    pub facts: PhotoFacts,
    raw: RawFile,
    renderer: OneShot,
    // Dropped last: the raw and darktable's configuration live in it.
    _folder: tempfile::TempDir,
}

impl Demo {
    pub fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // At the photo's own size, which is quicker than the demo's doubled raw and does as well here.
        let photo = dng::demo_photo().unwrap();
        let bytes = dng::write_dng(&photo, &dng::DngOptions::default()).unwrap();
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
        Self { vocabulary, layouts, facts, raw, renderer, _folder: folder }
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

fn deadline() -> Deadline {
    Deadline::after(Arc::new(SystemClock), Duration::from_secs(60))
}
