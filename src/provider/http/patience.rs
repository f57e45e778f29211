//! How long the next event of a reply is waited for.

use std::time::{Duration, Instant};

/// So many times as long is waited for the next event of a server that keeps the connection alive: OpenRouter sends
/// comments while a model queues, Anthropic pings while a model thinks unseen.
const ALIVE: u32 = 4;

/// The wait for the next event of a reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// How long it may be silent now.
    limit: Duration,
    /// The same after the first event.
    idle: Duration,
    /// When anything came last.
    heard: Instant,
    /// When an event came last; before the first, when the request was sent.
    event: Instant,
}

impl Patience {
    /// For a request that was sent then, and limits in seconds.
    pub fn new(sent: Instant, first: u64, idle: u64) -> Self {
        let (limit, idle) = (Duration::from_secs(first), Duration::from_secs(idle));
        Self { limit, idle, heard: sent, event: sent }
    }

    /// Something came: an event of the reply, or what only keeps the connection alive.
    pub fn came(&mut self, now: Instant, event: bool) {
        self.heard = now;
        if event {
            (self.event, self.limit) = (now, self.idle);
        }
    }

    /// What is left until it has been silent, or without an event, for too long.
    pub fn left(&self, now: Instant) -> Duration {
        let silent = self.limit.saturating_sub(now.saturating_duration_since(self.heard));
        silent.min(self.longest().saturating_sub(now.saturating_duration_since(self.event)))
    }

    /// Why it was waited for no longer.
    pub fn words(&self, now: Instant) -> String {
        if now.saturating_duration_since(self.heard) >= self.limit {
            return format!("sent nothing for {:?}", self.limit);
        }
        format!("kept the connection alive for {:?} and sent nothing of a reply", self.longest())
    }

    fn longest(&self) -> Duration {
        self.limit.saturating_mul(ALIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_of_life_extend_a_wait_to_four_times_its_length_and_no_further() {
        let sent = Instant::now();
        let at = |seconds| sent + Duration::from_secs(seconds);
        let left = |patience: Patience, seconds| patience.left(at(seconds)).as_secs();
        let mut patience = Patience::new(sent, 60, 120);
        assert_eq!((left(patience, 0), left(patience, 59), left(patience, 60)), (60, 1, 0));
        assert_eq!(patience.words(at(60)), "sent nothing for 60s");
        for seconds in [15, 70, 129, 188] {
            assert!(left(patience, seconds) > 0);
            patience.came(at(seconds), false);
            assert_eq!(left(patience, seconds), 60.min(240 - seconds));
        }
        patience.came(at(230), false);
        assert_eq!((left(patience, 230), left(patience, 240)), (10, 0));
        assert_eq!(patience.words(at(240)), "kept the connection alive for 240s and sent nothing of a reply");
        // An event begins the wait for the next one.
        patience.came(at(239), true);
        assert_eq!(left(patience, 239), 120);
        patience.came(at(349), false);
        assert_eq!((left(patience, 349), left(patience, 469)), (120, 0));
        for seconds in [400, 500, 600, 700] {
            patience.came(at(seconds), false);
        }
        assert_eq!((left(patience, 700), left(patience, 719)), (19, 0));
    }
}
