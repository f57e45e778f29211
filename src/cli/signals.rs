//! Ctrl-C and its relatives: the first asks a session to wrap up, the second ends it within a second, whatever it
//! is doing.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::failure::Failure;
use crate::launch::Runner;
use base::clock::{Cancel, Stop};
use base::error::ErrorCode;

/// How long a session that is stopped at once has for its last lines. What is cut here can be resumed.
const LAST_WORDS: Duration = Duration::from_millis(900);

/// Raises `stop` when signals come, and says so through `say`. Call it on the runtime.
pub fn listen(stop: Stop, say: impl Fn(&str) + Send + 'static) -> Result<(), Failure> {
    let handler = |kind| {
        signal(kind).map_err(|e| Failure::new(ErrorCode::StateError, format!("cannot handle signals: {e}")))
    };
    let mut interrupt = handler(SignalKind::interrupt())?;
    let mut terminate = handler(SignalKind::terminate())?;
    let mut hangup = handler(SignalKind::hangup())?;
    tokio::spawn(async move {
        loop {
            // A terminal that closes may say so more than once.
            let again = tokio::select! {
                _ = interrupt.recv() => true,
                _ = terminate.recv() => true,
                _ = hangup.recv() => false,
            };
            if !stop.soft.is_cancelled() {
                stop.soft.cancel();
                say("wrapping up: everything is kept and scored; press Ctrl-C again to stop at once");
            } else if again {
                stop.hard.cancel();
                say("stopping at once");
                std::thread::spawn(|| {
                    std::thread::sleep(LAST_WORDS);
                    std::process::exit(ErrorCode::Interrupted.exit_status().into());
                });
            }
        }
    });
    Ok(())
}

/// A flag that is raised by Ctrl-C and its relatives, for a command that has nothing to wrap up. They are handled
/// as long as the runner lives.
pub fn cancelling() -> Result<(Runner, Cancel), Failure> {
    let runner = Runner::new()?;
    let cancel = Cancel::default();
    let stop = Stop { soft: cancel.clone(), hard: Cancel::default() };
    runner.block_on(async { listen(stop, |_| {}) })?;
    Ok((runner, cancel))
}
