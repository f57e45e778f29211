//! What a worker publishes of a session, before each effect.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::packed;
use crate::batch::changes::{Holds, Watched};
use crate::batch::nats::journal::{Message, What};
use crate::batch::nats::{Store, StoreError};
use crate::transcript::{Event, Mirror};
use base::clock::Cancel;
use base::ids::Hash;
use tempfile::TempDir;

/// How long a session waits for room in the store.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(500);

/// A claim of a job, and what was published of it.
pub(super) struct Published {
    store: Arc<Store>,
    job: Hash,
    epoch: u64,
    worker: String,
    /// Raised when the worker is to end: the session is left before its next effect.
    leave: Cancel,
    state: Mutex<State>,
}

struct State {
    watched: Option<Watched>,
    /// What the folder is in: a session that fails is published when nobody else has it any more.
    kept: Option<Arc<TempDir>>,
    /// The sequence of the last message about the job.
    sequence: u64,
    /// Why nothing more is published.
    end: Option<End>,
}

/// Why a session was left without a closing line.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// The worker is to end.
    Left,
    /// The store refused what was to be published, or cannot be reached.
    Store(StoreError),
}

impl fmt::Debug for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Published({} epoch {})", self.job, self.epoch)
    }
}

impl Published {
    pub fn new(store: Arc<Store>, job: Hash, epoch: u64, worker: &str, sequence: u64, leave: Cancel) -> Self {
        let state = Mutex::new(State { watched: None, kept: None, sequence, end: None });
        Self { store, job, epoch, worker: worker.to_owned(), leave, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes from now on what changes in this folder within `place`, which is as the store has it.
    pub fn watch(&self, place: &Arc<TempDir>, folder: &Path, holds: Holds) -> io::Result<()> {
        let mut watched = Watched::new(folder, holds);
        watched.look()?;
        let mut state = self.state();
        (state.watched, state.kept) = (Some(watched), Some(place.clone()));
        Ok(())
    }

    /// Why the session was left, if it was.
    pub fn end(&self) -> Option<End> {
        self.state().end.clone()
    }

    /// Publishes what has changed.
    pub fn publish(&self) -> Result<(), StoreError> {
        let mut state = self.state();
        if let Some(End::Store(error)) = &state.end {
            return Err(error.clone());
        }
        let Some(watched) = &mut state.watched else { return Ok(()) };
        let changed = watched.look().map_err(|e| StoreError::Other {
            address: self.store.address().to_string(),
            doing: "read what is to be published".into(),
            reason: e.to_string(),
        });
        let changes = changed.and_then(|changed| self.with_room(|| packed(&self.store, changed.clone())));
        let written = match changes {
            Ok(changes) if changes.is_empty() => return Ok(()),
            Ok(changes) => {
                self.with_room(|| self.written(&mut state, What::Changed { changes: changes.clone() }))
            }
            Err(error) => Err(error),
        };
        if let Err(error) = &written {
            state.end = Some(End::Store(error.clone()));
        }
        written
    }

    /// Does something, again and again while the store is full: what the session has paid for is not thrown away.
    fn with_room<T>(&self, mut act: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let began = Instant::now();
        let mut told = false;
        loop {
            match act() {
                Err(error @ StoreError::Full { .. })
                    if began.elapsed() < PATIENCE && !self.leave.is_cancelled() =>
                {
                    if !std::mem::replace(&mut told, true) {
                        tracing::warn!("{error}; the session waits for room");
                    }
                    std::thread::sleep(PAUSE);
                }
                done => return done,
            }
        }
    }

    /// Gives the job back once the store has room for that, while the claim is renewed: a worker that only went away
    /// would count as one that the job took down.
    pub fn release(&self, why: &str, failures: u32, stop: &Cancel) -> Result<(), StoreError> {
        loop {
            match self.write(What::Released { why: why.to_owned(), failures }) {
                Err(StoreError::Full { .. }) if !stop.is_cancelled() => std::thread::sleep(PAUSE),
                done => return done,
            }
        }
    }

    /// Writes what happened to the job.
    pub fn write(&self, what: What) -> Result<(), StoreError> {
        self.written(&mut self.state(), what)
    }

    fn written(&self, state: &mut State, what: What) -> Result<(), StoreError> {
        let message = Message { epoch: self.epoch, worker: self.worker.clone(), what };
        state.sequence = self.store.write(&self.job, &message, state.sequence)?;
        Ok(())
    }
}

/// Whether an event announces an effect.
fn announces(event: &Event) -> bool {
    matches!(
        event,
        Event::ModelIntent(_)
            | Event::CountIntent(_)
            | Event::ToolCall(_)
            | Event::RenderIntent(_)
            | Event::RefereeIntent(_)
    )
}

impl Mirror for Published {
    fn before(&self, event: &Event) -> io::Result<()> {
        if self.leave.is_cancelled() && announces(event) {
            self.publish().map_err(io::Error::other)?;
            self.state().end.get_or_insert(End::Left);
            return Err(io::Error::other("the worker is to end"));
        }
        Ok(())
    }

    fn synced(&self) -> io::Result<()> {
        self.publish().map_err(io::Error::other)
    }
}
