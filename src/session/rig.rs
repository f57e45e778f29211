//! Whole sessions within a test: the real loop, gate, workspace and vocabulary, with a scripted model and a renderer
//! that is arithmetic.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use crate::budget::Budget;
use crate::prompts::Store;
use crate::provider::script::Script;
use crate::session::driver::{Session, Unwatched};
use crate::session::start::{self, Request, Setup};
use crate::session::{SessionError, listing};
use crate::transcript::{Event, Line, SessionEnd, Vector};
use base::assets::Overlay;
use base::clock::{Clock, Deadline, Stop};
use base::ids::{Hash, SessionId};
use base::redact::Redactor;
use darktable::baseline::{FileFacts, Untouched};
use darktable::frame::StoredSize;
use darktable::layout::Layouts;
use darktable::render::{Picture, RenderError, RenderPermit, RenderRequest, Rendered, Renderer};
use darktable::state::{EditState, Params, Value};
use engine::photo::{IngestOptions, Library, Workspace, ingest};
use engine::vocabulary::Vocabulary;
use engine::vocabulary::testing::Photo;

/// What is read once for all tests: moves, layouts, and the untouched photo's edit.
static PHOTO: LazyLock<(Arc<Vocabulary>, Arc<Layouts>, EditState)> = LazyLock::new(|| {
    let Photo { vocabulary, layouts, state, .. } = Photo::new();
    (Arc::new(vocabulary), Arc::new(layouts), state)
});

/// The photo of every rig.
const CUP: &str = "cup";

/// A library with one photo.
pub(crate) struct Rig {
    _dir: tempfile::TempDir,
    pub library: PathBuf,
}

impl Rig {
    pub fn new() -> Self {
        let dir = folder();
        let raw = dir.path().join("cup.dng");
        std::fs::write(&raw, "sensor data").unwrap();
        let library = dir.path().join("photos");
        let options = IngestOptions { id: Some(CUP.parse().unwrap()), brief: Some("Quiet.".into()) };
        ingest(&Library::new(&library), &raw, options, &untouched).unwrap();
        Self { _dir: dir, library }
    }

    pub fn setup(&self, script: &str) -> Setup {
        setup(&self.library, script, Arc::new(Sums::default()))
    }
}

/// What a darktable would say of any raw.
pub(crate) fn untouched(_: &Path) -> Result<Untouched, RenderError> {
    let size = StoredSize { width: 300, height: 200 };
    let facts = FileFacts { size, orientation: 1, ..FileFacts::default() };
    Ok(Untouched { state: PHOTO.2.clone(), sidecar: Vec::new(), facts, darktable: "4.2.1".into() })
}

/// The moves, and the layouts.
pub(crate) fn moves() -> (Arc<Vocabulary>, Arc<Layouts>) {
    (PHOTO.0.clone(), PHOTO.1.clone())
}

/// A folder in memory, where the system has one: these tests write much and keep nothing.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// The photo in a library.
pub(crate) fn photo(library: &Path) -> Workspace {
    Library::new(library).open(&CUP.parse().unwrap()).unwrap()
}

/// What a session in that library needs.
pub(crate) fn setup(library: &Path, script: &str, renderer: Arc<dyn Renderer>) -> Setup {
    Setup {
        workspace: photo(library),
        vocabulary: PHOTO.0.clone(),
        layouts: PHOTO.1.clone(),
        renderer,
        renderers: 1,
        tastes: library.join("tastes"),
        provider: Arc::new(Script::parse("script", script).unwrap()),
        prompts: Store::new(Overlay::prompts(None)).unwrap(),
        clock: Arc::new(Strides::default()),
        redactor: Redactor::default(),
        stop: Stop::default(),
        traces: None,
        mirror: None,
    }
}

pub(crate) fn request(budget: &str, vectors: &[&str]) -> Request {
    let vector = |name: &&str| Vector {
        name: name.parse().unwrap(),
        direction: "lift the shadows".into(),
        intensity: None,
    };
    Request {
        brief: None,
        vectors: vectors.iter().map(vector).collect(),
        budget: Budget::parse(budget).unwrap(),
        from: "main".into(),
        criteria: None,
        prompt: "mode_b/system".into(),
        preview_edge: 128,
        unattended: true,
        seed: 0,
        proposes: true,
    }
}

/// Starts a session.
pub(crate) fn begin(setup: Setup, request: &Request) -> Result<Session, SessionError> {
    let plan = start::plan(&setup, request)?;
    start::start(setup, plan)
}

/// Runs a session to its end.
pub(crate) fn run(session: &mut Session) -> Result<SessionEnd, SessionError> {
    session.run_alone(&Unwatched)
}

/// The sessions of the photo, newest first.
pub(crate) fn sessions(library: &Path) -> Vec<SessionId> {
    listing::of_photo(&photo(library)).unwrap()
}

/// A clock that goes on by a second whenever it is asked, so that no wait takes any time.
#[derive(Debug, Default)]
struct Strides(AtomicU64);

impl Clock for Strides {
    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.0.fetch_add(1, Ordering::SeqCst))
    }

    fn wall(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH
    }
}

/// A renderer whose pictures are told by the state's exposure and warmth, and which knows those that it has made.
#[derive(Default)]
pub(crate) struct Sums(Mutex<BTreeSet<(Hash, u32, &'static str)>>);

impl Sums {
    /// One that knows the pictures which these lines say were rendered, as a cache does that outlives its process.
    pub fn knowing(lines: &[Line]) -> Self {
        let known = lines.iter().filter_map(|line| match &line.event {
            Event::Render { state, long_edge, quality, pixel_hash: Some(_), .. } => {
                Some((state.clone(), *long_edge, quality.as_str()))
            }
            _ => None,
        });
        Self(Mutex::new(known.collect()))
    }
}

impl Renderer for Sums {
    fn render(
        &self,
        request: &RenderRequest<'_>,
        _: &Deadline,
        _: &dyn RenderPermit,
    ) -> Result<Rendered, RenderError> {
        self.0.lock().unwrap().insert(key(request));
        Ok(picture(request, false))
    }

    fn darktable_version(&self) -> &str {
        "4.2.1"
    }

    fn cached(&self, request: &RenderRequest<'_>) -> Option<Rendered> {
        self.0.lock().unwrap().contains(&key(request)).then(|| picture(request, true))
    }
}

fn key(request: &RenderRequest<'_>) -> (Hash, u32, &'static str) {
    (request.state.hash(), request.long_edge, request.quality.as_str())
}

fn picture(request: &RenderRequest<'_>, cached: bool) -> Rendered {
    let field = |op: &str, field: &str| {
        let modules = request.state.modules.iter().filter(|module| module.op == op);
        let values = modules.filter_map(|module| match &module.params {
            Params::Fields(fields) => fields.get(field),
            _ => None,
        });
        let values =
            values.map(|value| if let Value::Float(value) = value { f64::from(*value) } else { 0.0 });
        values.sum::<f64>()
    };
    let gain = field("exposure", "exposure").exp2() / 2.0;
    let gains = [field("temperature", "red") / 2.0, 1.0, field("temperature", "blue") / 1.6];
    // Low, for speed: nobody compares it with the photo's own shape.
    let (width, height) = (request.long_edge, request.long_edge / 8);
    // Along a row it repeats itself after forty pixels: each by itself takes a second in a hundred pictures.
    let mut rgb = Vec::new();
    for y in 0..height {
        let light = (0..40).map(|x| f64::from(4 + (x * 5 + y * 3) % 200));
        let some: Vec<u8> =
            light.flat_map(|light| gains.map(|own| (light * own * gain).clamp(0.0, 255.0) as u8)).collect();
        let row = some.repeat(width as usize / 40 + 1);
        rgb.extend_from_slice(&row[..width as usize * 3]);
    }
    let picture = Arc::new(Picture { width, height, rgb });
    Rendered { pixel_hash: picture.pixel_hash(), picture, elapsed: Duration::ZERO, cached }
}
