//! A photo in a temporary library, and sessions with a live lease, for the tests of this module.
#![allow(
    missing_docs,
    clippy::missing_errors_doc,
    clippy::new_without_default,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "it is for tests"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::lease::Lessor;
use crate::photo::{Authority, IngestOptions, Ingested, Library, PhotoError, Workspace, Writer, ingest};
use base::ids::{Hash, RefName, SessionId};
use darktable::baseline::{FileFacts, Untouched};
use darktable::frame::StoredSize;
use darktable::render::RenderError;
use darktable::state::{EditState, Module, Params, Value};

/// A library with one photo, `iguana`.
pub struct TestPhoto {
    pub dir: TempDir,
    pub library: Library,
    pub workspace: Workspace,
}

impl TestPhoto {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let library = Library::new(dir.path().join("library"));
        let raw = raw_file(dir.path(), "Iguana.DNG", "sensor data");
        let workspace = take_in(&library, &raw).unwrap().workspace;
        Self { dir, library, workspace }
    }

    pub fn person(&self) -> Writer {
        self.workspace.lock(Authority::Person, "a test").unwrap()
    }

    /// A session's writer with a live lease.
    pub fn session(&self) -> (Writer, Lessor) {
        let lessor = Lessor::default();
        lessor.grant();
        let authority = Authority::Session { session: SessionId::mint(), lease: lessor.lease() };
        (self.workspace.lock(authority, "a test session").unwrap(), lessor)
    }

    pub fn tip(&self, branch: &str) -> Hash {
        self.workspace.branch(&name(branch)).unwrap().unwrap()
    }

    pub fn log_lines(&self) -> usize {
        self.read("log.jsonl").lines().count()
    }

    pub fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.workspace.folder().join(file)).unwrap()
    }

    pub fn write(&self, file: &str, text: &str) {
        std::fs::write(self.workspace.folder().join(file), text).unwrap();
    }
}

pub fn raw_file(dir: &Path, name: &str, content: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, content).unwrap();
    path
}

pub fn take_in(library: &Library, raw: &Path) -> Result<Ingested, PhotoError> {
    ingest(library, raw, IngestOptions::default(), &defaults)
}

/// What a darktable of the tests says of a raw.
pub fn defaults(_raw: &Path) -> Result<Untouched, RenderError> {
    let facts =
        FileFacts { size: StoredSize { width: 300, height: 200 }, orientation: 6, ..FileFacts::default() };
    Ok(Untouched { state: exposure(0.0), sidecar: Vec::new(), facts, darktable: "4.2.1".into() })
}

pub fn exposure(ev: f32) -> EditState {
    let module = Module {
        blend: None,
        enabled: true,
        instance: 0,
        modversion: 6,
        name: String::new(),
        op: "exposure".into(),
        params: Params::Fields(BTreeMap::from([("exposure".into(), Value::Float(ev))])),
    };
    EditState { modules: vec![module], ..EditState::default() }
}

pub fn name(text: &str) -> RefName {
    text.parse().unwrap()
}
