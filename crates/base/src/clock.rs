//! Time as a value: a clock that counts suspend, and deadlines that cut work.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Where time comes from. Tests use [`ManualClock`].
pub trait Clock: Send + Sync + fmt::Debug {
    /// Time since an arbitrary origin; counts while the machine is suspended where the system offers that.
    fn monotonic(&self) -> Duration;
    /// The date and time, for people and logs only: nothing is decided by it.
    fn wall(&self) -> jiff::Timestamp;
    /// Passes this much time at once, if it is a clock of a test that can; false: whoever waits must wait.
    fn skip(&self, _by: Duration) -> bool {
        false
    }
}

/// The machine's own clock (`CLOCK_BOOTTIME` on Linux, the monotonic clock elsewhere).
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        #[cfg(target_os = "linux")]
        let id = rustix::time::ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let id = rustix::time::ClockId::Monotonic;
        let t = rustix::time::clock_gettime(id);
        Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), u32::try_from(t.tv_nsec).unwrap_or(0))
    }

    fn wall(&self) -> jiff::Timestamp {
        let now = jiff::Timestamp::now();
        now.round(jiff::Unit::Millisecond).unwrap_or(now)
    }
}

/// A clock that moves only when [`ManualClock::advance`] is called. It counts nanoseconds: one that dropped a fraction
/// would never reach a deadline that is less than its unit away.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::SeqCst))
    }

    fn wall(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH
            + jiff::SignedDuration::try_from(self.monotonic()).unwrap_or(jiff::SignedDuration::ZERO)
    }
}

/// A flag that asks running work to stop. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks for the stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Takes the request back, where work goes on after a pause.
    pub fn reset(&self) {
        self.0.store(false, Ordering::SeqCst);
    }

    /// Whether the stop was asked for.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// A person's request to end a session: softly (wrap up, keep everything) or now.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    /// Stop exploring and wrap up.
    pub soft: Cancel,
    /// Stop now.
    pub hard: Cancel,
}

/// The moment at which work must have ended, on one clock, or a cancellation before it.
#[derive(Clone, Debug)]
pub struct Deadline {
    clock: Arc<dyn Clock>,
    at: Option<Duration>,
    cancels: Vec<Cancel>,
}

impl Deadline {
    /// No moment; ends only by cancellation.
    pub fn never() -> Self {
        Self { clock: Arc::new(SystemClock), at: None, cancels: Vec::new() }
    }

    /// A moment `after` from now.
    pub fn after(clock: Arc<dyn Clock>, after: Duration) -> Self {
        let at = clock.monotonic().checked_add(after);
        Self { clock, at, cancels: Vec::new() }
    }

    /// The same moment, ended early when `cancel` is raised too.
    #[must_use]
    pub fn with_cancel(mut self, cancel: Cancel) -> Self {
        self.cancels.push(cancel);
        self
    }

    /// The earlier of this deadline and `after` from now.
    #[must_use]
    pub fn at_most(&self, after: Duration) -> Self {
        let limit = self.clock.monotonic().checked_add(after);
        let at = match (self.at, limit) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Self { clock: self.clock.clone(), at, cancels: self.cancels.clone() }
    }

    /// What is left; zero once the moment has passed or the work was cancelled.
    pub fn remaining(&self) -> Duration {
        if self.is_cancelled() {
            return Duration::ZERO;
        }
        match self.at {
            Some(at) => at.saturating_sub(self.clock.monotonic()),
            None => Duration::MAX,
        }
    }

    /// [`Clock::skip`] on its clock.
    pub fn skip(&self, by: Duration) -> bool {
        self.clock.skip(by)
    }

    /// Whether the work must stop now.
    pub fn expired(&self) -> bool {
        self.remaining().is_zero()
    }

    /// Whether it was a cancellation, not the clock, that ended it.
    pub fn is_cancelled(&self) -> bool {
        self.cancels.iter().any(Cancel::is_cancelled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_ends_by_clock_or_by_cancel() {
        let clock = Arc::new(ManualClock::default());
        let deadline = Deadline::after(clock.clone(), Duration::from_secs(10));
        assert_eq!(deadline.at_most(Duration::from_secs(3)).remaining(), Duration::from_secs(3));
        clock.advance(Duration::from_secs(4));
        assert_eq!(deadline.remaining(), Duration::from_secs(6));
        clock.advance(Duration::from_secs(6));
        assert!(deadline.expired() && !deadline.is_cancelled());
        let cancel = Cancel::default();
        let never = Deadline::never().with_cancel(cancel.clone());
        assert!(!never.expired());
        cancel.cancel();
        assert!(never.expired() && never.is_cancelled());
    }
}
