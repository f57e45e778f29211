//! What a store says of its batches.

use serde::Serialize;

use super::{Head, Offer, Requirements, head_key, read, unknown};
use crate::batch::nats::journal::What;
use crate::batch::nats::{Store, StoreError};
use crate::budget::Amounts;
use crate::overnight::plan::Caps;
use base::error::Fault;

/// A batch of a store, in a line.
#[derive(Clone, Debug, Serialize)]
pub struct BatchLine {
    /// Its name.
    pub name: String,
    /// `open`, `cancelled` or `over`.
    pub state: &'static str,
    /// Sessions.
    pub jobs: usize,
    /// The run, if it is an evaluation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluation: Option<String>,
}

/// A batch of a store.
#[derive(Clone, Debug, Serialize)]
pub struct BatchState {
    /// Its name.
    pub name: String,
    /// `open`, `cancelled` or `over`.
    pub state: &'static str,
    /// The run, if it is an evaluation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluation: Option<String>,
    /// What it asks of workers.
    pub requires: Requirements,
    /// What it may spend.
    pub caps: Caps,
    /// What sessions that are over have spent.
    pub spent: Amounts,
    /// What those that are not may still spend.
    pub reserved: Amounts,
    /// Its jobs, in the plan's order.
    pub jobs: Vec<JobState>,
}

/// A job of a batch.
#[derive(Clone, Debug, Serialize)]
pub struct JobState {
    /// The photo, or what the cell of an evaluation is called.
    pub photo: String,
    /// `waiting`, `claimed`, `ended`, `failed` or `not begun`.
    pub state: &'static str,
    /// Who has it, or had it last.
    pub worker: String,
    /// How often it was claimed.
    pub claims: u64,
    /// How it ended, or why not.
    pub why: String,
    /// What it spent, once it is over.
    pub spent: Amounts,
}

fn state(head: &Head) -> &'static str {
    match (head.over, head.cancelled) {
        (true, _) => "over",
        (false, true) => "cancelled",
        (false, false) => "open",
    }
}

/// The batches of a store, oldest first.
pub fn list(store: &Store) -> Result<Vec<BatchLine>, Fault> {
    let told = |e: StoreError| Fault::from(&e);
    let mut lines = Vec::new();
    for key in store.keys("batch.").map_err(told)? {
        let Some(head) = store.get::<Head>(&key).map_err(told)? else { continue };
        let name = key.trim_start_matches("batch.").to_owned();
        let (state, Head { jobs, evaluation, .. }) = (state(&head.value), head.value);
        lines.push(BatchLine { name, state, jobs, evaluation });
    }
    Ok(lines)
}

/// The name of a batch by the beginning of it, or `last`.
pub fn find(store: &Store, named: &str) -> Result<String, Fault> {
    let names: Vec<String> = list(store)?.into_iter().map(|line| line.name).collect();
    match crate::batch::folders::matching(&names, named).as_slice() {
        [one] => Ok((*one).clone()),
        [] => Err(unknown(store, named)),
        several => {
            let message = format!("`{named}` is the beginning of {} batch names", several.len());
            Err(Fault::new(base::error::ErrorCode::InvalidInput, message)
                .with("remedy", "give more of the name"))
        }
    }
}

/// A batch and its jobs.
pub fn show(store: &Store, name: &str) -> Result<BatchState, Fault> {
    let told = |e: StoreError| Fault::from(&e);
    let head = store.get::<Head>(&head_key(name)).map_err(told)?.ok_or_else(|| unknown(store, name))?.value;
    let offer: Offer = read(store, &head.offer)?;
    let parent = store.parent(name).map_err(told)?;
    let lasts = store.lasts(&offer.jobs).map_err(told)?;
    let photos = offer.sessions.iter().map(|planned| &planned.photo);
    let jobs = photos.chain(&offer.cells).zip(lasts).map(|(photo, last)| {
        let mut job = JobState {
            photo: photo.clone(),
            state: "waiting",
            worker: String::new(),
            claims: 0,
            why: String::new(),
            spent: Amounts::default(),
        };
        let Some(message) = last.map(|last| last.message) else { return job };
        (job.worker, job.claims, job.spent) = (message.worker, message.epoch, message.what.spent());
        (job.state, job.why) = match message.what {
            What::Queued => ("waiting", String::new()),
            What::Claimed { .. } | What::Changed { .. } => ("claimed", String::new()),
            What::Released { why, .. } => ("waiting", why),
            What::Ended { outcome, .. } => ("ended", outcome.as_str().to_owned()),
            What::Failed { message, .. } => ("failed", message),
            What::NotBegun { why } => ("not begun", why),
        };
        job
    });
    let reserved = parent.reserved.values().fold(Amounts::default(), |sum, one| sum.plus(one.most));
    Ok(BatchState {
        name: name.to_owned(),
        state: state(&head),
        evaluation: head.evaluation,
        jobs: jobs.collect(),
        requires: head.requires,
        caps: offer.caps,
        spent: parent.settled,
        reserved,
    })
}

/// The run of a batch that is an evaluation.
pub fn evaluation(store: &Store, name: &str) -> Result<Option<String>, Fault> {
    let head = store.get::<Head>(&head_key(name)).map_err(|e| Fault::from(&e))?;
    Ok(head.and_then(|head| head.value.evaluation))
}

/// Deletes a batch from a store; what was collected of it stays. Objects stay: other batches may have them.
pub fn remove(store: &Store, name: &str) -> Result<(), Fault> {
    let told = |e: StoreError| Fault::from(&e);
    let head = store.get::<Head>(&head_key(name)).map_err(told)?.ok_or_else(|| unknown(store, name))?.value;
    let offer: Offer = read(store, &head.offer)?;
    // Workers find no batch of that name from now on, and take its jobs off the queue.
    store.delete(&head_key(name)).map_err(told)?;
    for job in &offer.jobs {
        store.forget(job).map_err(told)?;
    }
    store.forget_parent(name).map_err(told)?;
    store.delete(&super::begun_key(name)).map_err(told)?;
    let open = store.get::<String>(&super::open_key(&offer.plan)).map_err(told)?;
    if open.is_some_and(|open| open.value == name) {
        store.delete(&super::open_key(&offer.plan)).map_err(told)?;
    }
    Ok(())
}
