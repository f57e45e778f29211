//! Brings what workers made into the library of whoever submitted a batch, and says there what happened.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Head, Offer, changes_of, content, head_key, read, session_of, submit, unknown};
use crate::batch::changes::{self, Change, Holds};
use crate::batch::nats::journal::{Stored, What};
use crate::batch::nats::{Store, StoreError};
use crate::launch;
use crate::overnight::record::{Batch, Entry, Stamped};
use crate::overnight::run::Observer;
use crate::session::driver::Host;
use base::clock::Stop;
use base::error::{ErrorCode, Fault};
use base::ids::{Hash, PhotoId};
use engine::photo::{Authority, Library, PhotoError};

/// How often the store is asked what has happened.
const LOOK: Duration = Duration::from_millis(500);
/// The longest pause between two looks, however long the last one took.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Follows a batch until all of it is collected, or `stop` is raised; says when a job is claimed.
pub fn watch(
    store: &Store,
    library: &Library,
    name: &str,
    batch: &mut Batch,
    observer: &dyn Observer,
    stop: &Stop,
    say: &dyn Fn(&str),
) -> Result<bool, Fault> {
    let told = |e: StoreError| Fault::from(&e);
    let head = store.get::<Head>(&head_key(name)).map_err(told)?.ok_or_else(|| unknown(store, name))?;
    let offer: Offer = read(store, &head.value.offer)?;
    let mut collector = Collector { store, library, observer, begun: None };
    let mut open: Vec<usize> = collected(batch, offer.jobs.len());
    let mut claimed = vec![0; offer.jobs.len()];
    let mut told_busy = BTreeSet::new();
    // At least once, so that what is over is collected even by who is about to leave.
    while !open.is_empty() {
        let names: Vec<Hash> = open.iter().filter_map(|place| offer.jobs.get(*place).cloned()).collect();
        let began = Instant::now();
        let lasts = store.lasts(&names).map_err(told)?;
        // Asking takes a tenth of the time, as a batch may have thousands; a server may have been away for a minute.
        let pause = (began.elapsed() * 9).clamp(LOOK, LONGEST_PAUSE);
        let mut left = Vec::new();
        for ((place, job), last) in open.iter().zip(&names).zip(lasts) {
            let Some(last) = last else {
                left.push(*place);
                continue;
            };
            if let Some(known) = claimed.get_mut(*place)
                && last.message.epoch > *known
            {
                *known = last.message.epoch;
                let photo = offer.sessions.get(*place).map_or("", |planned| planned.photo.as_str());
                say(&format!("{}. {photo}: claimed by {}", place + 1, last.message.worker));
            }
            if !last.message.what.is_final() {
                left.push(*place);
                continue;
            }
            match collector.collect(&offer, *place, job, batch) {
                Ok(()) => {}
                // Its time comes when whoever works on the photo is done.
                Err(fault) if fault.code == ErrorCode::StateError && !fault.halts => {
                    if told_busy.insert(*place) {
                        say(&format!("{}. waits to be collected: {fault}", place + 1));
                    }
                    left.push(*place);
                }
                Err(fault) => return Err(fault),
            }
        }
        open = left;
        let until = Instant::now() + pause;
        while !open.is_empty() && !stop.soft.is_cancelled() && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
        if stop.soft.is_cancelled() {
            break;
        }
    }
    if !open.is_empty() {
        return Ok(false);
    }
    if !batch.is_over() {
        let at = collector.elapsed(batch);
        observer.recorded(&batch.append(Entry::Closed, at).map_err(|e| Fault::from(&e))?);
    }
    submit::close(store, name, &offer.plan)?;
    Ok(true)
}

/// Collects what is over by now.
pub fn once(store: &Store, library: &Library, name: &str, batch: &mut Batch) -> Result<bool, Fault> {
    let stop = Stop::default();
    stop.soft.cancel();
    watch(store, library, name, batch, &Silent, &stop, &|_| {})
}

/// Watches nothing.
struct Silent;

impl Observer for Silent {
    fn session(&self, _: usize, _: &str) -> Box<dyn Host + '_> {
        Box::new(crate::session::driver::Unwatched)
    }

    fn recorded(&self, _: &Stamped) {}
}

/// The places of a batch that are not collected yet.
fn collected(batch: &Batch, jobs: usize) -> Vec<usize> {
    let over: BTreeSet<usize> = batch
        .entries
        .iter()
        .filter_map(|stamped| match &stamped.entry {
            Entry::Ended { place, .. } | Entry::Failed { place, .. } | Entry::NotBegun { place, .. } => {
                Some(*place)
            }
            _ => None,
        })
        .collect();
    (0..jobs).filter(|place| !over.contains(place)).collect()
}

struct Collector<'a> {
    store: &'a Store,
    library: &'a Library,
    observer: &'a dyn Observer,
    /// When the first job was claimed, in milliseconds since 1970, by the server's clock.
    begun: Option<i64>,
}

impl Collector<'_> {
    fn elapsed(&self, batch: &Batch) -> Duration {
        Duration::from_millis(batch.entries.iter().filter_map(|stamped| stamped.mono_ms).max().unwrap_or(0))
    }

    /// Collects a job that is over.
    fn collect(&mut self, offer: &Offer, place: usize, job: &Hash, batch: &mut Batch) -> Result<(), Fault> {
        let told = |e: StoreError| Fault::from(&e);
        let Some(planned) = offer.sessions.get(place) else { return Ok(()) };
        let history = self.store.history(job).map_err(told)?;
        let photo: PhotoId = planned.photo.parse().map_err(|_| {
            Fault::new(ErrorCode::NotFound, format!("`{}` is no photo of the library", planned.photo))
        })?;
        let session = session_of(&history);
        if session.is_some() {
            self.bring(&photo, &history)?;
        }
        let claim = history.iter().find(|stored| matches!(stored.message.what, What::Claimed { .. }));
        let first = claim.map_or(0, |claim| claim.at_ms);
        let begun = *self.begun.get_or_insert(first);
        let after = |ms: i64| Duration::from_millis(u64::try_from(ms - begun).unwrap_or(0));
        let mut note = |entry: Entry, at: Duration| -> Result<(), Fault> {
            self.observer.recorded(&batch.append(entry, at).map_err(|e| Fault::from(&e))?);
            Ok(())
        };
        let budget = history.iter().rev().find_map(|stored| match &stored.message.what {
            What::Claimed { budget, .. } => Some(budget.clone()),
            _ => None,
        });
        if let (Some(session), Some(budget)) = (session, budget) {
            note(Entry::Started { place, photo, session, budget, again: false }, after(first))?;
        }
        let Some(last) = history.last() else { return Ok(()) };
        let entry = match &last.message.what {
            What::Ended { session, outcome, status, cut, .. } => Entry::Ended {
                place,
                session: session.clone(),
                outcome: *outcome,
                status: *status,
                cut: *cut,
            },
            What::Failed { code, message, remedy, .. } => {
                Entry::Failed { place, code: *code, message: message.clone(), remedy: remedy.clone() }
            }
            What::NotBegun { why } => Entry::NotBegun { place, why: why.clone() },
            _ => return Ok(()),
        };
        note(entry, after(last.at_ms))
    }

    /// Brings what a session made into the photo's folder: its objects, its own folder, its previews, and its lines in
    /// the lists of the photo. The op-log says what branches there are; taking the lock again writes them.
    fn bring(&self, photo: &PhotoId, history: &[Stored]) -> Result<(), Fault> {
        let workspace = self.library.open(photo).map_err(|e| Fault::from(&e))?;
        let folder = workspace.folder();
        let lock = || {
            workspace.lock(Authority::Person, "collecting a batch").map_err(|e: PhotoError| Fault::from(&e))
        };
        let held = lock()?;
        for change in changes_of(history) {
            let own = ["objects/", "sessions/mode_b/", "previews/"];
            if own.iter().any(|own| change.path.starts_with(own)) {
                let bytes = content(self.store, change)?;
                changes::apply(folder, Holds::Photo, change, bytes.as_deref())
                    .map_err(|e| launch::refused("write", &folder.join(&change.path), &e))?;
            } else if change.path.ends_with(".jsonl") && !change.path.contains('/') {
                self.append(folder, change)?;
            }
        }
        drop(held);
        lock().map(drop)
    }

    /// Appends lines to a list of the photo, unless they are there.
    fn append(&self, folder: &Path, change: &Change) -> Result<(), Fault> {
        let path = folder.join(&change.path);
        let text = submit::text(self.store, change)?;
        let there = match base::files::read_own(&path, base::files::LARGEST) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(launch::refused("read", &path, &e)),
        };
        let there: BTreeSet<&[u8]> = there.split(|byte| *byte == b'\n').collect();
        for line in text.lines().filter(|line| !there.contains(line.as_bytes())) {
            base::durable::append_line(&path, line).map_err(|e| launch::refused("write", &path, &e))?;
        }
        Ok(())
    }
}
