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

/// The providers whose models can edit in a session.
fn editors(planned: &PlannedSession) -> impl Iterator<Item = &str> {
    std::iter::once(planned.provider.as_str()).chain(planned.fallback.as_deref().map(provider))
}

/// The provider in `PROVIDER[:MODEL]`.
pub(super) fn provider(named: &str) -> &str {
    named.split_once(':').map_or(named, |(who, _)| who)
}

/// Whether both sessions need somebody who cannot be reached.
pub(super) fn shared(one: &PlannedSession, other: &PlannedSession, outages: &Outages) -> bool {
    let others = outages.missing(other);
    outages.missing(one).iter().any(|who| others.contains(who))
}

impl Outages {
    /// Notes a failure of a provider at `now`; how long nothing is tried.
    pub fn failed(&mut self, provider: &str, now: Duration, asked: Option<Duration>) -> Duration {
        let known = self.0.get(provider).copied();
        let pause = known.map_or(FIRST, |known| (known.pause * 2).min(LONGEST));
        let until = now + pause.max(asked.unwrap_or_default());
        let since = known.map_or(now, |known| known.since);
        self.0.insert(provider.to_owned(), Outage { since, pause, until });
        until.saturating_sub(now)
    }

    /// Who cannot be reached without whom this session cannot go on: all models that can edit, or its referee.
    fn missing<'a>(&self, planned: &'a PlannedSession) -> Vec<&'a str> {
        let gone = |who: &&str| self.0.contains_key(*who);
        let stuck = editors(planned).all(|who| gone(&who));
        let referee = planned.referee.as_deref().map(provider).filter(gone);
        editors(planned).filter(|_| stuck).chain(referee).collect()
    }

    /// Who has to answer for this session has answered.
    pub fn over(&mut self, planned: &PlannedSession) {
        for who in editors(planned).chain(planned.referee.as_deref().map(provider)) {
            self.0.remove(who);
        }
    }

    /// Whether somebody who has to answer for this session cannot be reached.
    pub fn holds(&self, planned: &PlannedSession) -> bool {
        !self.missing(planned).is_empty()
    }

    /// How long a session must wait, if it must: one at a time sees whether the provider is back.
    pub fn due(&self, planned: &PlannedSession, now: Duration, probed: bool) -> Option<Duration> {
        let until = self.missing(planned).into_iter().filter_map(|who| Some(self.0.get(who)?.until)).max()?;
        let left = until.saturating_sub(now);
        let left = if probed { left.max(Duration::from_secs(1)) } else { left };
        (!left.is_zero()).then_some(left)
    }

    /// Who could not be reached for how long, in words, if somebody cannot; and whether that is longer than a batch waits
    /// that has no limit on its time.
    pub fn gone(&self, planned: &PlannedSession, now: Duration) -> Option<(String, bool)> {
        let (who, outage) =
            self.missing(planned).into_iter().find_map(|who| Some((who, self.0.get(who)?)))?;
        let gone = now.saturating_sub(outage.since);
        let words = format!("provider `{who}` could not be reached for {}", clock(gone.as_secs()));
        Some((words, gone >= NIGHT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overnight::record::tests::planned;

    #[test]
    fn k1_who_needs_the_one_that_is_gone_waits_and_nobody_else() {
        let of = |provider: &str, referee: Option<&str>| PlannedSession {
            provider: provider.into(),
            referee: referee.map(Into::into),
            ..planned("cup")
        };
        let (plain, offline) = (of("a", None), of("a", Some("offline")));
        let (judged, other) = (of("a", Some("b:vision")), of("c", Some("b")));
        let (mut outages, minute) = (Outages::default(), Duration::from_secs(60));
        assert_eq!(outages.failed("b", minute, None), FIRST);
        assert_eq!(
            [&plain, &offline, &judged, &other].map(|one| outages.holds(one)),
            [false, false, true, true]
        );
        assert_eq!(outages.due(&plain, minute, false), None);
        assert_eq!(outages.due(&judged, minute, false), Some(FIRST));
        assert!(shared(&judged, &other, &outages) && !shared(&plain, &judged, &outages), "`a` answers");
        assert!(outages.gone(&other, 2 * minute).unwrap().0.starts_with("provider `b` could not be reached"));
        outages.over(&plain);
        assert!(outages.holds(&other));
        outages.over(&judged);
        assert!(!outages.holds(&other));
        // Who has another model waits when both are gone.
        let two = PlannedSession { fallback: Some("b:m".into()), ..of("a", None) };
        outages.failed("a", minute, None);
        assert!(!outages.holds(&two) && outages.holds(&plain) && !shared(&two, &plain, &outages));
        outages.failed("b", minute, None);
        assert!(outages.holds(&two) && shared(&two, &plain, &outages));
        outages.over(&two);
        assert!(!outages.holds(&plain));
    }
}
