//! The one gate through which every effect of a session passes.

use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{ErrorCode, Fault};

/// A session's leave to mutate its workspace: the second wall behind the gate. It is live only while a
/// permit for a mutating effect is being used; whoever holds a session's workspace handle otherwise gets
/// `BUDGET_EXHAUSTED`, loop or no loop. Clones share one lease.
#[derive(Clone, Debug, Default)]
pub struct Lease(Arc<Mutex<LeaseState>>);

#[derive(Debug, Default)]
struct LeaseState {
    live: bool,
    refusal: Option<Fault>,
}

impl Lease {
    /// Whether a mutation may happen now.
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
