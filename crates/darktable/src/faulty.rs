//! A renderer that misbehaves on demand, for tests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::checks;
use crate::render::{Picture, RenderError, RenderPermit, RenderRequest, Rendered, Renderer};
use base::clock::Deadline;

/// One way to misbehave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Does nothing until the deadline.
    Hang,
    /// Fails as a crashed darktable does.
    Crash,
    /// Fails as a black picture does.
    Black,
    /// Fails as a dropped module does.
    Dropped,
    /// Works, but so much later.
    Slow(Duration),
}

/// A real renderer whose next renders fail in these ways, in order; after that they are the real ones.
pub struct Faulty {
    inner: Arc<dyn Renderer>,
    faults: Mutex<VecDeque<Fault>>,
}

impl std::fmt::Debug for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faulty").field("faults", &self.faults).finish_non_exhaustive()
    }
}

impl Faulty {
    /// Lets the next renders of `inner` go wrong.
    pub fn new(inner: Arc<dyn Renderer>, faults: impl IntoIterator<Item = Fault>) -> Self {
        Self { inner, faults: Mutex::new(faults.into_iter().collect()) }
    }

    fn next(&self) -> Option<Fault> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

impl Renderer for Faulty {
    fn render(
        &self,
        request: &RenderRequest<'_>,
        deadline: &Deadline,
        permit: &dyn RenderPermit,
    ) -> Result<Rendered, RenderError> {
        match self.next() {
            None => self.inner.render(request, deadline, permit),
            Some(Fault::Hang) => Err(wait(Duration::MAX, deadline)),
            Some(Fault::Slow(delay)) => {
                let cut = wait(delay, deadline);
                if deadline.expired() { Err(cut) } else { self.inner.render(request, deadline, permit) }
            }
            Some(Fault::Crash) => Err(RenderError::Failed {
                status: "signal: 6 (SIGABRT)".into(),
                stderr: "free(): invalid next size (normal)".into(),
            }),
            Some(Fault::Dropped) => Err(RenderError::Dropped {
                line: "[dev_read_history] module `exposure' version mismatch: history is 99, darktable is 6."
                    .into(),
            }),
            Some(Fault::Black) => {
                let black = Picture { width: 2, height: 2, rgb: vec![0; 12] };
                let photo = Picture { rgb: (0..12).collect(), ..black.clone() };
                checks::not_blank(&black, || Ok(photo))?;
                self.inner.render(request, deadline, permit)
            }
        }
    }

    fn darktable_version(&self) -> &str {
        self.inner.darktable_version()
    }
}

/// Waits, but not past the deadline; the error to return if that is what ended it.
fn wait(delay: Duration, deadline: &Deadline) -> RenderError {
    let started = Instant::now();
    while started.elapsed() < delay && !deadline.expired() {
        std::thread::sleep(Duration::from_millis(4).min(deadline.remaining()));
    }
    RenderError::interrupted(started.elapsed(), deadline.is_cancelled())
}
