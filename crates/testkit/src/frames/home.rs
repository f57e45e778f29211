//! A user's home with a library, and a darktable that stays alive.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;

use base::assets::Overlay;
use base::ids::Hash;
use darktable::layout::Layouts;
use darktable::oneshot::OneShot;
use darktable::render::{ByHand, Picture, Quality, RawFile, RenderError, RenderRequest, Renderer};
use darktable::state::EditState;
use darktable::worker::Worker;
use darktable::xmp;
use engine::photo::{Library, Workspace};
use engine::vocabulary::{ApplyRequest, PhotoFacts, Vocabulary};

use super::{EDGE, OWN, Step, patience};
use crate::kept::{self, ALIVE, Kept, RENDERS};

/// A user's home with a library, and a darktable that stays alive.
pub struct Home {
    program: &'static str,
    pub vocabulary: Vocabulary,
    pub layouts: Arc<Layouts>,
    worker: Kept<Worker>,
    /// A darktable for each picture, which exports too.
    pub oneshot: OneShot,
    // Dropped last: the photos and darktable's configuration live in it.
    folder: tempfile::TempDir,
}

impl Home {
    /// `program` is the chemigram under test.
    pub fn new(program: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let layouts = Arc::new(Layouts::new(Overlay::vocabulary(None)));
        let known = Arc::clone(&layouts);
        let encode =
            move |state: &EditState, name: &str| xmp::write(state, &known, name).map_err(|e| e.to_string());
        let cli = kept::darktable();
        let base = folder.path().join("darktable");
        let luts = folder.path().join(OWN).join("luts");
        let worker = Worker::new(cli.clone(), &base, Arc::new(encode.clone())).unwrap().with_luts(&luts);
        let worker = Kept::new(worker, ALIVE, Arc::new(encode.clone()), Some(&luts));
        let oneshot = OneShot::new(cli, &base, Arc::new(encode)).unwrap().with_luts(&luts);
        let vocabulary = Vocabulary::load(&Overlay::vocabulary(None)).unwrap();
        // What earlier runs were told of the photos, and none of their pictures: those are what is tested.
        let cache = folder.path().join(".cache/chemigram/renders");
        std::fs::create_dir_all(&cache).unwrap();
        let asked = RENDERS.join("asked");
        std::fs::create_dir_all(&asked).unwrap();
        std::os::unix::fs::symlink(asked, cache.join("asked")).unwrap();
        Self { program, vocabulary, layouts, worker, oneshot, folder }
    }

    /// Reads the vocabulary again, with what commands have put into the user's own folder.
    pub fn reload(&mut self) {
        self.vocabulary = Vocabulary::load(&Overlay::vocabulary(Some(self.path(OWN)))).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file of that name.
    pub fn file(&self, name: &str, bytes: &[u8]) -> RawFile {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        RawFile { path, sha256: Hash::of(bytes) }
    }

    /// The program's answer to a command.
    pub fn run(&self, arguments: &[&str]) -> Output {
        Command::new(self.program)
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.folder.path())
            .env("CHEMIGRAM_LIBRARY", self.path("photos"))
            .current_dir(self.folder.path())
            .output()
            .unwrap()
    }

    /// What the program says, on both streams, about a command that it has to carry out.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let said = [output.stderr, output.stdout].map(|said| String::from_utf8_lossy(&said).into_owned());
        assert!(output.status.success(), "{arguments:?}: {}", said.concat());
        said.concat()
    }

    /// Has the program take in a file, under the name `id`.
    pub fn ingest(&self, name: &str, id: &str) -> Workspace {
        self.ok(&["ingest", name, "--id", id]);
        self.open(id)
    }

    pub fn open(&self, id: &str) -> Workspace {
        Library::new(self.path("photos")).open(&id.parse().unwrap()).unwrap()
    }

    pub fn render(&self, raw: &RawFile, state: &EditState) -> Arc<Picture> {
        self.try_render(&self.worker, raw, state).unwrap_or_else(|e| panic!("{}: {e}", raw.path.display()))
    }

    /// By this renderer, or by the darktable that stays alive.
    pub fn try_render(
        &self,
        renderer: &dyn Renderer,
        raw: &RawFile,
        state: &EditState,
    ) -> Result<Arc<Picture>, RenderError> {
        let request = RenderRequest { raw, state, long_edge: EDGE, quality: Quality::Preview };
        renderer.render(&request, &patience(), &ByHand).map(|rendered| rendered.picture)
    }

    /// The baseline of a photo and what the program knows of it.
    pub fn facts(&self, workspace: &Workspace) -> (EditState, PhotoFacts) {
        let baseline = workspace.baseline();
        (workspace.state_of(baseline).unwrap(), workspace.facts(baseline).unwrap())
    }

    pub fn apply(&self, state: &EditState, facts: &PhotoFacts, moves: &[Step]) -> Result<EditState, String> {
        moves.iter().try_fold(state.clone(), |state, (name, values)| {
            let values: BTreeMap<String, f64> = values.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect();
            let request = ApplyRequest { move_name: name, values: &values, mask: None };
            let applied = self.vocabulary.apply(&request, &state, facts, &self.layouts, self.version());
            applied.map(|applied| applied.state).map_err(|e| format!("{name}: {e}"))
        })
    }

    pub fn version(&self) -> &str {
        self.worker.darktable_version()
    }

    pub fn worker(&self) -> &Worker {
        self.worker.renderer()
    }
}
