//! A session's lease on a photo: the engine's own barrier, behind the gate of the loop.

use std::sync::{Arc, Mutex, PoisonError};

use base::error::{ErrorCode, Fault};

/// A session's permission to change its photo. It is live only while its [`Lessor`] grants it; whoever holds the photo
/// otherwise gets `BUDGET_EXHAUSTED`, loop or no loop.
#[derive(Clone, Debug)]
pub struct Lease(Arc<Mutex<State>>);

/// Who may grant a [`Lease`]. Clones grant the same one.
#[derive(Clone, Debug, Default)]
pub struct Lessor(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    live: bool,
    refusal: Option<Fault>,
}

impl Lease {
    /// Whether the photo may be changed now.
    ///
    /// # Errors
    /// What the lessor refused it with last; `BUDGET_EXHAUSTED` where it was not asked.
    pub fn check(&self) -> Result<(), Fault> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.live {
            return Ok(());
        }
        Err(state.refusal.clone().unwrap_or_else(|| {
            Fault::new(ErrorCode::BudgetExhausted, "no permit is live for a change to this workspace").fatal()
        }))
    }
}

impl Lessor {
    /// The lease that it grants.
    pub fn lease(&self) -> Lease {
        Lease(self.0.clone())
    }

    /// From now on the photo may be changed.
    pub fn grant(&self) {
        self.state().live = true;
    }

    /// From now on it may not.
    pub fn end(&self) {
        self.state().live = false;
    }

    /// Says why it is not granted.
    pub fn refuse(&self, refusal: impl Into<Fault>) {
        self.state().refusal = Some(refusal.into());
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
