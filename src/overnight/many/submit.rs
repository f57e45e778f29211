//! Puts a batch into a store: once, however often it is done.

use std::collections::BTreeSet;
use std::path::Path;

use super::{
    FORMAT, Head, Job, Offer, PhotoSession, Requirements, Work, content, head_key, is_found_later, open_key,
    read, unknown,
};
use crate::batch::changes::{Change, Holds, Watched};
use crate::batch::nats::journal::{Message, What};
use crate::batch::nats::{Store, StoreError};
use crate::launch::{self, Launcher};
use crate::overnight::record::{Batch, PlannedSession};
use base::error::{ErrorCode, Fault};
use base::ids::Hash;
use engine::photo::Library;

/// The file in a batch's folder that says in which store it is.
const WHERE: &str = "store.json";

/// Where a batch is worked on.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Elsewhere {
    /// The store, without credentials.
    pub store: String,
    /// Its name there.
    pub batch: String,
}

impl Elsewhere {
    /// Where a batch of the library is worked on; `None` if that is here.
    pub fn of(batch: &Batch) -> Option<Self> {
        Self::within(&batch.folder)
    }

    /// The same of a batch in this folder, or of an evaluation's run.
    pub(crate) fn within(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(folder.join(WHERE)).ok()?).ok()
    }

    /// Nothing is worked on elsewhere any more.
    pub(crate) fn forget(folder: &Path) -> Result<(), Fault> {
        let path = folder.join(WHERE);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(launch::refused("remove", &path, &e)),
            _ => Ok(()),
        }
    }

    pub(crate) fn write(&self, folder: &Path) -> Result<(), Fault> {
        let path = folder.join(WHERE);
        let text = serde_json::to_vec_pretty(self).unwrap_or_default();
        base::durable::write(&path, &text).map_err(|e| launch::refused("write", &path, &e))
    }
}

/// The sessions of a plan as any machine can run them: each on a photo of the library, into which raws that are named
/// by their files are taken now.
pub fn portable(
    launcher: &Launcher,
    library: &Library,
    sessions: Vec<PlannedSession>,
) -> Result<Vec<PlannedSession>, Fault> {
    let each = sessions.into_iter().map(|mut planned| {
        if matches!(planned.provider.as_str(), "manual" | "script")
            && !Path::new(&planned.model).is_absolute()
        {
            let message = format!("provider `{}` works with files of this machine", planned.provider);
            return Err(Fault::new(ErrorCode::InvalidInput, message)
                .with("remedy", "name its folder or file by a path that all workers have"));
        }
        let known = library.find_raw(&planned.sha256).map_err(|e| Fault::from(&e))?;
        let workspace = match (known, &planned.raw) {
            (Some(id), _) => launcher.photo(library, &id)?,
            (None, Some(raw)) => launcher.add(library, raw, planned.brief.clone())?,
            (None, None) => {
                let message = format!("`{}` is no longer in the library", planned.photo);
                return Err(Fault::new(ErrorCode::NotFound, message));
            }
        };
        planned.photo = workspace.id().to_string();
        planned.raw = None;
        Ok(planned)
    });
    each.collect()
}

/// Puts a batch into the store, or finds that the same plan is there and not over; its name there.
pub fn submit(
    store: &Store,
    library: &Library,
    tastes: &Path,
    batch: &Batch,
    requires: &Requirements,
) -> Result<String, Fault> {
    let told = |e: StoreError| Fault::from(&e);
    if let Some(elsewhere) = Elsewhere::of(batch)
        && elsewhere.store == store.address().to_string()
        && let Some(head) = store.get::<Head>(&head_key(&elsewhere.batch)).map_err(told)?
        && (head.value.over || is_queued(store, &head.value)?)
    {
        return Ok(elsewhere.batch);
    }
    let record = &batch.record;
    let short: String = record.sha256.to_string().chars().take(6).collect();
    let wanted = format!("{}-{short}", record.name);
    let key = open_key(&record.sha256);
    store.create(&key, &wanted).map_err(told)?;
    let name = store.get::<String>(&key).map_err(told)?.map_or(wanted, |open| open.value);
    let elsewhere = Elsewhere { store: store.address().to_string(), batch: name.clone() };
    // Another submitter may have died in the middle: everything is done again that is not there.
    let tastes = pack(store, tastes)?;
    let mut jobs = Vec::new();
    for (place, planned) in record.sessions.iter().enumerate() {
        let id = planned.photo.parse().map_err(|_| {
            Fault::new(ErrorCode::NotFound, format!("`{}` is no photo of the library", planned.photo))
        })?;
        let workspace = library.open(&id).map_err(|e| Fault::from(&e))?;
        workspace.refuse_another_raw().map_err(|e| Fault::from(&e))?;
        let raw = workspace.raw();
        store.put_file(&raw.sha256, &raw.path).map_err(told)?;
        let protocol = planned.protocol.as_deref().filter(|named| launch::is_file(named));
        let protocol = protocol.map(|named| launch::read_text(Path::new(named))).transpose()?;
        jobs.push(Job {
            format: FORMAT,
            batch: name.clone(),
            place,
            work: Work::Session(Box::new(PhotoSession {
                planned: planned.clone(),
                photo: id,
                folder: pack(store, workspace.folder())?,
                tastes: tastes.clone(),
                protocol,
            })),
        });
    }
    let offer = Offer {
        format: FORMAT,
        plan: record.sha256.clone(),
        begun: record.begun,
        caps: record.caps.clone(),
        requires: requires.clone(),
        sessions: record.sessions.clone(),
        cells: Vec::new(),
        jobs: names(&jobs),
    };
    // First, so that no batch of the store is unknown here.
    elsewhere.write(&batch.folder)?;
    put(store, &name, &offer, None, &jobs)?;
    Ok(name)
}

/// Whether all jobs of a batch were queued: its submitter may have died in the middle.
fn is_queued(store: &Store, head: &Head) -> Result<bool, Fault> {
    let offer: Offer = read(store, &head.offer)?;
    let lasts = store.lasts(&offer.jobs).map_err(|e| Fault::from(&e))?;
    Ok(lasts.iter().all(Option::is_some))
}

/// What each job is known by.
pub(crate) fn names(jobs: &[Job]) -> Vec<Hash> {
    jobs.iter().map(|job| Hash::of(serde_json::to_vec(job).unwrap_or_default())).collect()
}

/// Makes a batch and queues its jobs, all that is not there yet. One that is there and is another stays as it is.
pub(crate) fn put(
    store: &Store,
    name: &str,
    offer: &Offer,
    evaluation: Option<String>,
    jobs: &[Job],
) -> Result<(), Fault> {
    let told = |e: StoreError| Fault::from(&e);
    let head = Head {
        offer: store.put(&serde_json::to_vec(offer).unwrap_or_default()).map_err(told)?,
        requires: offer.requires.clone(),
        jobs: jobs.len(),
        evaluation,
        cancelled: false,
        over: false,
    };
    let group = offer.requires.group();
    let mut queued = BTreeSet::new();
    store.make_parent(name).map_err(told)?;
    if !store.create(&head_key(name), &head).map_err(told)? {
        // Somebody else's offer holds. If that is this one, and its submitter died, what is missing is queued now.
        let theirs = store.get::<Head>(&head_key(name)).map_err(told)?;
        if theirs.is_none_or(|theirs| theirs.value.offer != head.offer) {
            return Ok(());
        }
        queued = store.queued(&group).map_err(told)?;
    }
    let lasts = store.lasts(&offer.jobs).map_err(told)?;
    for ((hash, job), last) in offer.jobs.iter().zip(jobs).zip(lasts) {
        if last.is_some() {
            continue;
        }
        // One that was queued, but not written down before its submitter died, is there once.
        if !queued.contains(hash) {
            store.queue(&group, &hash.to_string(), job).map_err(told)?;
        }
        let queued = Message { epoch: 0, worker: String::new(), what: What::Queued };
        match store.write(hash, &queued, 0) {
            // A worker that was faster has written already.
            Ok(_) | Err(StoreError::Fenced) => {}
            Err(error) => return Err(told(error)),
        }
    }
    Ok(())
}

/// The files of a folder as an object: of a photo those that a later session finds.
fn pack(store: &Store, folder: &Path) -> Result<Hash, Fault> {
    let mut changed = match Watched::new(folder, Holds::Photo).look() {
        Ok(changed) => changed,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(e) => return Err(launch::refused("read", folder, &e)),
    };
    changed.retain(|one| is_found_later(&one.path));
    super::pack(store, changed)
}

/// Cancels a batch: what runs wraps up, nothing more is started.
pub fn cancel(store: &Store, batch: &str) -> Result<(), Fault> {
    let told = |e: StoreError| Fault::from(&e);
    loop {
        let head = store.get::<Head>(&head_key(batch)).map_err(told)?.ok_or_else(|| unknown(store, batch))?;
        let cancelled = Head { cancelled: true, ..head.value };
        if store.swap(&head_key(batch), &cancelled, head.revision).map_err(told)? {
            return Ok(());
        }
    }
}

/// Says of a batch that everything of it was collected.
pub(crate) fn close(store: &Store, batch: &str, plan: &Hash) -> Result<(), Fault> {
    let told = |e: StoreError| Fault::from(&e);
    while let Some(head) = store.get::<Head>(&head_key(batch)).map_err(told)? {
        let over = Head { over: true, ..head.value };
        if store.swap(&head_key(batch), &over, head.revision).map_err(told)? {
            break;
        }
    }
    let open = store.get::<String>(&open_key(plan)).map_err(told)?;
    if open.is_some_and(|open| open.value == batch) {
        store.delete(&open_key(plan)).map_err(told)?;
    }
    Ok(())
}

/// The new bytes of a change as text.
pub(super) fn text(store: &Store, change: &Change) -> Result<String, Fault> {
    let bytes = content(store, change)?.unwrap_or_default();
    String::from_utf8(bytes)
        .map_err(|e| Fault::new(ErrorCode::VersioningError, format!("{}: {e}", change.path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use testkit::nats::Server;

    fn job(place: usize) -> Job {
        let planned = serde_json::json!({
            "photo": "coffee", "sha256": Hash::of("raw"), "budget": Budget::parse("lite").unwrap(),
            "provider": "explorer", "model": "explorer-2", "free": true, "from": "HEAD", "seed": 1,
            "preview_size": 1024, "proxy": "off",
        });
        let work = Work::Session(Box::new(PhotoSession {
            planned: serde_json::from_value(planned).unwrap(),
            photo: "coffee".parse().unwrap(),
            folder: Hash::of("folder"),
            tastes: Hash::of("tastes"),
            protocol: None,
        }));
        Job { format: FORMAT, batch: "b".into(), place, work }
    }

    #[test]
    fn a_job_whose_submitter_died_before_it_wrote_it_down_is_queued_once() {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start(dir.path());
        let store = Store::connect(&server.address("test").parse().unwrap()).unwrap();
        let jobs = [job(0), job(1)];
        let requires = Requirements::here("4.2.1".into(), Hash::of("pixels"));
        let offer = Offer {
            format: FORMAT,
            plan: Hash::of("plan"),
            begun: jiff::Timestamp::now(),
            caps: serde_json::from_value(serde_json::json!({})).unwrap(),
            requires: requires.clone(),
            sessions: Vec::new(),
            cells: Vec::new(),
            jobs: names(&jobs),
        };
        // What is there of a batch when its submitter dies after the first job, and the server has forgotten by which
        // name that was queued.
        put(&store, "b", &offer, None, &[]).unwrap();
        store.queue(&requires.group(), "forgotten", &jobs[0]).unwrap();
        for _ in 0..2 {
            put(&store, "b", &offer, None, &jobs).unwrap();
        }
        let lease = std::time::Duration::from_secs(30);
        let consumer = store.consumer(&requires.group(), lease).unwrap();
        let next = || store.next_job(&consumer, std::time::Duration::from_millis(500), lease).unwrap();
        let claimed: Vec<_> = std::iter::from_fn(next).collect();
        let queued: Vec<Hash> = claimed.iter().map(|claimed| Hash::of(&claimed.payload)).collect();
        assert_eq!(queued, offer.jobs);
        let lasts = store.lasts(&offer.jobs).unwrap();
        assert!(lasts.iter().all(|last| last.as_ref().is_some_and(|last| last.message.what == What::Queued)));
    }
}
