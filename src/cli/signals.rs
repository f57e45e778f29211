//! Ctrl-C and its relatives: the first asks a session to wrap up, the second stops it at once.

use tokio::signal::unix::{SignalKind, signal};

use super::failure::Failure;
use crate::clock::{Cancel, Stop};
use crate::error::ErrorCode;

/// A runtime whose signals are heard while a tool blocks: the session runs on the calling thread, signals on
/// a thread of their own.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|e| Failure::new(ErrorCode::StateError, format!("cannot start: {e}")))
}

/// Raises `stop` when signals come, and says so through `say`. Call it on the runtime.
pub fn listen(stop: Stop, say: impl Fn(&str) + Send + 'static) -> Result<(), Failure> {
    let hear = |kind| {
        signal(kind).map_err(|e| Failure::new(ErrorCode::StateError, format!("cannot hear signals: {e}")))
    };
    let mut interrupt = hear(SignalKind::interrupt())?;
    let mut terminate = hear(SignalKind::terminate())?;
    let mut hangup = hear(SignalKind::hangup())?;
    tokio::spawn(async move {
        loop {
            // Only a second Ctrl-C stops at once; a service manager's repeated SIGTERM does not.
            let again = tokio::select! {
                _ = interrupt.recv() => true,
                _ = terminate.recv() => false,
                _ = hangup.recv() => false,
            };
            if !stop.soft.is_cancelled() {
                stop.soft.cancel();
                say("wrapping up: what was made is kept and judged; Ctrl-C again stops at once");
            } else if again {
                stop.hard.cancel();
                say("stopping at once");
            }
        }
    });
    Ok(())
}

/// A flag that is raised by Ctrl-C and its relatives, for a command that has nothing to wrap up. They are heard
/// as long as the runtime lives.
pub fn cancelling() -> Result<(tokio::runtime::Runtime, Cancel), Failure> {
    let runtime = runtime()?;
    let cancel = Cancel::default();
    let stop = Stop { soft: cancel.clone(), hard: Cancel::default() };
    runtime.block_on(async { listen(stop, |_| {}) })?;
    Ok((runtime, cancel))
}
