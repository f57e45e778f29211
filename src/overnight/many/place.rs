//! The folder that a worker makes of a job's photo.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::worker::{Task, Worker, earlier};
use super::{Pack, PhotoSession, apply, changes_of, is_found_later, read};
use crate::batch::changes::Holds;
use crate::batch::nats::journal::Stored;
use crate::budget::Amounts;
use crate::launch;
use crate::overnight::record::PlannedSession;
use crate::session::listing;
use base::error::Fault;
use base::ids::{Hash, SessionId};
use engine::photo::{Library, Workspace};

/// A job's own library, gone with it.
pub(super) struct Place {
    pub folder: Arc<tempfile::TempDir>,
    library: Library,
    pub tastes: PathBuf,
}

impl Place {
    /// Makes the folder of the job's photo as the messages say that it is.
    pub fn make(
        worker: &Worker<'_>,
        task: &Task,
        job: &PhotoSession,
        history: &[Stored],
    ) -> Result<Self, Fault> {
        let store = &worker.store;
        let refused = |path: &Path, e: &std::io::Error| launch::refused("write", path, e);
        let folder = tempfile::Builder::new().prefix("job-").tempdir_in(&worker.home);
        let folder = folder.map_err(|e| refused(&worker.home, &e))?;
        let tastes = folder.path().join("tastes");
        std::fs::create_dir_all(&tastes).map_err(|e| refused(&tastes, &e))?;
        apply(store, &tastes, Holds::Photo, &read::<Pack>(store, &job.tastes)?.files)?;
        let library = Library::new(folder.path().join("photos"));
        let photo = library.folder(&job.photo);
        let raw = photo.join("raw");
        std::fs::create_dir_all(&raw).map_err(|e| refused(&raw, &e))?;
        apply(store, &photo, Holds::Photo, &read::<Pack>(store, &job.folder)?.files)?;
        for earlier in earlier(task) {
            let history = store.history(&earlier).map_err(|e| Fault::from(&e))?;
            let edits = changes_of(&history).filter(|change| is_found_later(&change.path));
            apply(store, &photo, Holds::Photo, edits)?;
        }
        apply(store, &photo, Holds::Photo, changes_of(history))?;
        let workspace = library.open(&job.photo).map_err(|e| Fault::from(&e))?;
        let record = &workspace.photo().raw;
        let cached = worker.raw(&record.sha256, &record.name)?;
        let link = raw.join(&record.name);
        std::os::unix::fs::symlink(&cached, &link).map_err(|e| refused(&link, &e))?;
        Ok(Self { folder: Arc::new(folder), library, tastes })
    }

    pub fn workspace(&self, own: &PhotoSession) -> Result<Workspace, Fault> {
        self.library.open(&own.photo).map_err(|e| Fault::from(&e))
    }

    /// What its session is, with the protocol in a file of its own.
    pub fn planned(&self, own: &PhotoSession) -> Result<PlannedSession, Fault> {
        let mut planned = own.planned.clone();
        if let (Some(text), Some(named)) = (&own.protocol, &planned.protocol) {
            let name = Path::new(named).file_name().unwrap_or_else(|| "protocol.toml".as_ref());
            let path = self.folder.path().join(name);
            std::fs::write(&path, text).map_err(|e| launch::refused("write", &path, &e))?;
            planned.protocol = Some(path.to_string_lossy().into_owned());
        }
        Ok(planned)
    }

    /// What a session has spent, by its transcript.
    pub fn spent(&self, own: &PhotoSession, id: &SessionId) -> Option<Amounts> {
        let read = listing::read(&self.workspace(own).ok()?, id).ok()?;
        Some(read.ledger.settled().plus(read.ledger.reserved()))
    }
}

impl Worker<'_> {
    /// A raw of the store, fetched once.
    pub(super) fn raw(&self, sha256: &Hash, name: &str) -> Result<PathBuf, Fault> {
        let folder = self.home.join("raws").join(sha256.to_string());
        let path = folder.join(name);
        if !path.exists() {
            std::fs::create_dir_all(&folder).map_err(|e| launch::refused("make", &folder, &e))?;
            let bytes = self.store.fetch(sha256).map_err(|e| Fault::from(&e))?;
            base::durable::write(&path, &bytes).map_err(|e| launch::refused("write", &path, &e))?;
        }
        std::path::absolute(&path).map_err(|e| launch::refused("find", &path, &e))
    }
}
