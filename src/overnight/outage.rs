//! Providers that cannot be reached while a batch runs: how long nothing is tried, and when the batch gives up.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::overnight::record::PlannedSession;
use crate::overnight::share::clock;

/// The first pause; each further one is twice as long.
const FIRST: Duration = Duration::from_secs(30);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(2 * 60);
/// How long a batch without a limit on its time waits.
const NIGHT: Duration = Duration::from_secs(12 * 3600);

/// A provider that cannot be reached. Times are those of the batch.
#[derive(Clone, Copy, Debug)]
struct Outage {
    since: Duration,
    pause: Duration,
    until: Duration,
}

/// The providers that cannot be reached now.
#[derive(Debug, Default)]
pub(super) struct Outages(BTreeMap<String, Outage>);

/// What an outage concerns: sessions of one provider fail together.
pub(super) fn key(planned: &PlannedSession) -> &str {
    &planned.provider
}

impl Outages {
    /// Notes a failure at `now`; how long nothing is tried.
    pub fn failed(&mut self, planned: &PlannedSession, now: Duration, asked: Option<Duration>) -> Duration {
        let known = self.0.get(key(planned)).copied();
        let pause = known.map_or(FIRST, |known| (known.pause * 2).min(LONGEST));
        let until = now + pause.max(asked.unwrap_or_default());
        let since = known.map_or(now, |known| known.since);
        self.0.insert(key(planned).to_owned(), Outage { since, pause, until });
        until.saturating_sub(now)
    }

    /// The provider of this session has answered.
    pub fn over(&mut self, planned: &PlannedSession) {
        self.0.remove(key(planned));
    }

    /// Whether the provider of this session cannot be reached.
    pub fn holds(&self, planned: &PlannedSession) -> bool {
        self.0.contains_key(key(planned))
    }

    /// How long a session must wait, if it must: one at a time sees whether the provider is back.
    pub fn due(&self, planned: &PlannedSession, now: Duration, probed: bool) -> Option<Duration> {
        let outage = self.0.get(key(planned))?;
        let left = outage.until.saturating_sub(now);
        let left = if probed { left.max(Duration::from_secs(1)) } else { left };
        (!left.is_zero()).then_some(left)
    }

    /// For how long the provider of this session could not be reached, in words, if it cannot; and whether that is
    /// longer than a batch waits that has no limit on its time.
    pub fn gone(&self, planned: &PlannedSession, now: Duration) -> Option<(String, bool)> {
        let gone = now.saturating_sub(self.0.get(key(planned))?.since);
        let words = format!("provider `{}` could not be reached for {}", key(planned), clock(gone.as_secs()));
        Some((words, gone >= NIGHT))
    }
}
