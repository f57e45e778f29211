//! A studio for tests: a library with the demo raw ingested through real darktable, and sessions on it.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a studio that cannot be built fails the test")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use base::assets::Overlay;
use base::clock::{Clock, Stop, SystemClock};
use base::ids::SessionId;
use base::redact::Redactor;
use chemigram::budget::Budget;
use chemigram::prompts::Store;
use chemigram::provider::Provider;
use chemigram::provider::explorer::Explorer;
use chemigram::provider::script::Script;
use chemigram::session::SessionError;
use chemigram::session::driver::{Session, Unwatched};
use chemigram::session::replay::{Replay, replay};
use chemigram::session::start::{self, Request, Setup};
use chemigram::transcript::{self, Event, Line, SessionEnd, Vector};
use darktable::cache::{Cache, Cached};
use darktable::layout::Layouts;
use darktable::oneshot::OneShot;
use darktable::render::Renderer;
use darktable::worker::Worker;
use darktable::{dng, xmp};
use engine::photo::{IngestOptions, Library, Workspace, ingest};
use engine::vocabulary::Vocabulary;
use testkit::folder::kept_folder;
use testkit::kept;
pub use testkit::kept::darktable;

/// Small enough to be quick, large enough to measure.
pub const EDGE: u32 = 320;

/// The moves, read once for all tests of a file.
static VOCABULARY: LazyLock<Arc<Vocabulary>> =
    LazyLock::new(|| Arc::new(Vocabulary::load(&Overlay::vocabulary(None)).unwrap()));

pub struct Studio {
    pub dir: tempfile::TempDir,
    pub workspace: Workspace,
    pub layouts: Arc<Layouts>,
    pub renderer: Arc<dyn Renderer>,
}

/// Where renders and darktable's configuration are kept between tests: they are addressed by content.
pub fn shared() -> PathBuf {
    kept_folder("studio")
}

/// Darktables that stay alive, because starting one costs more than rendering a small picture, with the shared cache.
pub static RENDERER: LazyLock<Arc<dyn Renderer>> = LazyLock::new(|| {
    let layouts = Layouts::new(Overlay::vocabulary(None));
    let encode = move |state: &_, name: &str| xmp::write(state, &layouts, name).map_err(|e| e.to_string());
    let worker = Worker::new(darktable(), &shared().join("darktable"), Arc::new(encode)).unwrap();
    Arc::new(Cached::new(Arc::new(worker), Cache::new(shared().join("renders"), 1 << 30)))
});

impl Studio {
    pub fn new() -> Self {
        Self::at(tempfile::tempdir().unwrap())
    }

    fn at(dir: tempfile::TempDir) -> Self {
        Self::with(dir, &dng::demo_raw().unwrap())
    }

    /// A studio in `dir` with another raw.
    pub fn with(dir: tempfile::TempDir, raw_bytes: &[u8]) -> Self {
        let raw = dir.path().join("coffee.dng");
        std::fs::write(&raw, raw_bytes).unwrap();
        let layouts = Arc::new(Layouts::new(Overlay::vocabulary(None)));
        let ask = |raw: &Path| kept::ask(&layouts, raw, &shared().join("darktable"));
        let library = Library::new(dir.path().join("photos"));
        let options = IngestOptions {
            id: Some("coffee".parse().unwrap()),
            brief: Some("# Coffee\n\nQuiet, warm.".into()),
        };
        let workspace = ingest(&library, &raw, options, &ask).unwrap().workspace;
        Self { dir, workspace, layouts, renderer: RENDERER.clone() }
    }

    /// What a session needs, with this model.
    pub fn setup(&self, provider: Arc<dyn Provider>) -> Setup {
        Setup {
            workspace: self.workspace.clone(),
            vocabulary: VOCABULARY.clone(),
            layouts: self.layouts.clone(),
            renderer: self.renderer.clone(),
            renderers: 1,
            tastes: self.dir.path().join("tastes"),
            provider,
            prompts: Store::new(Overlay::prompts(None)).unwrap(),
            clock: Arc::new(SystemClock) as Arc<dyn Clock>,
            redactor: Redactor::default(),
            stop: Stop::default(),
            traces: None,
            mirror: None,
        }
    }

    /// Starts a session on a script (TOML text).
    pub fn scripted(&self, script: &str, request: &Request) -> Session {
        let setup = self.setup(Arc::new(Script::parse("test script", script).unwrap()));
        let plan = start::plan(&setup, request).unwrap();
        start::start(setup, plan).unwrap()
    }

    /// Runs a script to its end and returns the closing line with all lines.
    pub fn run(&self, script: &str, request: &Request) -> (SessionEnd, Vec<Line>) {
        let mut session = self.scripted(script, request);
        let end = run(&mut session);
        (end, self.lines(&session.state.start.session))
    }

    /// The lines of a session.
    pub fn lines(&self, session: &SessionId) -> Vec<Line> {
        transcript::read(&self.workspace.session_folder(session).join("transcript.jsonl")).unwrap().lines
    }

    /// The tip of a branch, if it exists.
    pub fn tip(&self, branch: &str) -> Option<String> {
        self.workspace.branch(&branch.parse().unwrap()).unwrap().map(|h| h.to_string())
    }
}

/// Runs a session on a runtime of its own.
pub fn run(session: &mut Session) -> SessionEnd {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(session.run(&Unwatched))
        .unwrap()
}

pub fn request(budget: &str, vectors: &[(&str, &str)]) -> Request {
    Request {
        brief: None,
        vectors: vectors
            .iter()
            .map(|(name, direction)| Vector {
                name: name.parse().unwrap(),
                direction: (*direction).into(),
                intensity: None,
            })
            .collect(),
        budget: Budget::parse(budget).unwrap(),
        from: "main".into(),
        criteria: None,
        prompt: "mode_b/system".into(),
        preview_edge: EDGE,
        unattended: true,
        seed: 0,
        proposes: true,
    }
}

/// One scripted reply that makes these calls.
pub fn reply(calls: &[(&str, &str)]) -> String {
    let calls: Vec<String> = calls
        .iter()
        .map(|(name, arguments)| format!("{{ name = \"{name}\", arguments = '{arguments}' }}"))
        .collect();
    format!("[[reply]]\ncalls = [{}]\n\n", calls.join(", "))
}

/// The reply that confirms a plan with these vectors.
pub fn confirm(vectors: &[&str]) -> String {
    let restated: Vec<String> =
        vectors.iter().map(|v| format!(r#"{{"name": "{v}", "restated": "Push {v}."}}"#)).collect();
    reply(&[("confirm_session", &format!(r#"{{"vectors": [{}]}}"#, restated.join(", ")))])
}

/// The results of calls of a tool: (code if failed, text).
pub fn results<'a>(lines: &'a [Line], tool: &str) -> Vec<(Option<base::error::ErrorCode>, &'a str)> {
    lines
        .iter()
        .filter_map(|l| match &l.event {
            Event::ToolResult { result, code, .. } if result.name == tool => {
                Some((*code, result.text.as_str()))
            }
            _ => None,
        })
        .collect()
}

/// A session made again, on a darktable that knows no picture.
pub fn replayed(studio: &Studio, id: &SessionId) -> Result<Replay, SessionError> {
    let scratch = tempfile::tempdir().unwrap();
    let layouts = studio.layouts.clone();
    let encode = move |state: &_, name: &str| xmp::write(state, &layouts, name).map_err(|e| e.to_string());
    let oneshot = OneShot::new(darktable(), &scratch.path().join("darktable"), Arc::new(encode)).unwrap();
    let cached = Cached::new(Arc::new(oneshot), Cache::new(scratch.path().join("renders"), 1 << 30));
    let setup = Setup { renderer: Arc::new(cached), ..studio.setup(Arc::new(Explorer::new(0))) };
    replay(setup, id, &scratch.path().join("photos"), &|_, _| {})
}
