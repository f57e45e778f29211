//! What the sessions of a batch have spent: the fold of their transcripts.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::budget::Amounts;
use crate::overnight::record::{Batch, Entry, Stamped, Track};
use crate::overnight::share;
use crate::session::SessionError;
use crate::session::listing;
use crate::transcript::{Event, Line};
use base::ids::{PhotoId, SessionId};
use engine::photo::Library;

/// What the sessions of a batch have spent, by their transcripts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Everything that is counted.
    pub amounts: Amounts,
    /// Time during which the batch ran.
    pub time: Duration,
}

impl Spent {
    /// Reads the transcripts of every session that was started. One that cannot be read is charged in full.
    pub fn of(library: &Library, batch: &Batch) -> Self {
        let mut spent = Self::default();
        let mut ran = BTreeMap::new();
        for (planned, track) in batch.record.sessions.iter().zip(batch.tracks()) {
            spent.amounts = spent.amounts.plus(bill(library, planned.free, &track, &mut ran));
        }
        spent.time = ran_for(&batch.entries, ran);
        spent
    }
}

/// How long a session ran each time that it was started or resumed, by its own clock.
type Runs = VecDeque<Duration>;

/// What the sessions of one place in the plan have spent; how long they ran goes to `ran`.
pub(super) fn bill(
    library: &Library,
    free: bool,
    track: &Track,
    ran: &mut BTreeMap<SessionId, Runs>,
) -> Amounts {
    let sessions = track.all.iter().map(|(photo, id, budget)| match read(library, photo, id) {
        Ok(Some(session)) => {
            ran.insert(id.clone(), runs(&session.lines));
            session.ledger.settled()
        }
        Ok(None) => Amounts::default(),
        // What it spent cannot be read: all that it might have.
        Err(_) => share::most(budget, free),
    });
    sessions.fold(Amounts::default(), Amounts::plus)
}

/// How long a batch ran: to its last entry, and to the end of every session that an entry starts, because a kill
/// leaves no entry. Where entries have no time of their own, the sessions count one after the other.
fn ran_for(entries: &[Stamped], mut ran: BTreeMap<SessionId, Runs>) -> Duration {
    let mut until = Duration::ZERO;
    for stamped in entries {
        let at = stamped.mono_ms.map_or(until, Duration::from_millis);
        let lasted = match &stamped.entry {
            Entry::Started { session, .. } => ran.get_mut(session).and_then(VecDeque::pop_front),
            _ => None,
        };
        until = until.max(at + lasted.unwrap_or_default());
    }
    until
}

/// A session of a batch; `None` if it was killed before it had a transcript.
pub(super) fn read(
    library: &Library,
    photo: &PhotoId,
    id: &SessionId,
) -> Result<Option<listing::Session>, SessionError> {
    let workspace = library.open(photo)?;
    if !workspace.session_folder(id).join("transcript.jsonl").exists() {
        return Ok(None);
    }
    listing::read(&workspace, id).map(Some)
}

/// How long each run of a session lasted: from its first line, or the line at which it was resumed, to the last line
/// before it was cut, with the time of an effect whose end a crash hid.
fn runs(lines: &[Line]) -> Runs {
    let mut found = Runs::new();
    let mut from = Duration::ZERO;
    for line in lines {
        if let Event::Resumed { assumed_ms, .. } = line.event {
            if let Some(last) = found.back_mut() {
                *last += Duration::from_millis(assumed_ms);
            }
            from = line.at();
            found.push_back(Duration::ZERO);
        }
        match found.back_mut() {
            Some(last) => *last = line.at().saturating_sub(from),
            None => found.push_back(line.at()),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;

    fn entry(mono_ms: Option<u64>, entry: Entry) -> Stamped {
        // The wall clock goes back from entry to entry.
        let wall =
            jiff::Timestamp::UNIX_EPOCH - jiff::SignedDuration::from_millis(mono_ms.unwrap_or(0) as i64);
        Stamped { t: wall, mono_ms, entry }
    }

    fn started(mono_ms: Option<u64>, session: &SessionId) -> Stamped {
        let (photo, budget) = ("p".parse().unwrap(), Budget::parse("lite").unwrap());
        entry(mono_ms, Entry::Started { place: 0, photo, session: session.clone(), budget, again: false })
    }

    #[test]
    fn the_time_of_a_batch_does_not_depend_on_the_wall_clock() {
        let ids = [SessionId::mint(), SessionId::mint()];
        let ran = |of: [&[u64]; 2]| {
            let runs = of.map(|ms| ms.iter().copied().map(Duration::from_millis).collect::<Runs>());
            ids.iter().cloned().zip(runs).collect::<BTreeMap<_, _>>()
        };
        let ms = |entries: &[Stamped], of| ran_for(entries, ran(of)).as_millis();
        assert_eq!(ms(&[], [&[], &[]]), 0);
        // Two at once, the second killed and resumed in a later run.
        let run_started = |at| entry(Some(at), Entry::RunStarted { pid: 1, jobs: 2 });
        let first = [run_started(0), started(Some(100), &ids[0]), started(Some(200), &ids[1])];
        assert_eq!(ms(&first, [&[5_000], &[7_000]]), 7_200);
        let both = [first.as_slice(), &[run_started(7_200), started(Some(7_300), &ids[1])]].concat();
        assert_eq!(ms(&both, [&[5_000], &[7_000, 1_000]]), 8_300);
        let over = [both.as_slice(), &[entry(Some(9_000), Entry::Closed)]].concat();
        assert_eq!(ms(&over, [&[5_000], &[7_000, 1_000]]), 9_000);
        // The ledgers of older builds have no time of their own.
        assert_eq!(ms(&[started(None, &ids[0]), started(None, &ids[1])], [&[5_000], &[7_000]]), 12_000);
    }
}
