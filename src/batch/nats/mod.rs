//! The store of batches that many machines share: JetStream of a NATS server.
//!
//! | here | there |
//! |---|---|
//! | jobs that wait or run | a work queue, `PREFIX_jobs`; the lease of a job is its ack wait, renewed while it runs |
//! | what happened to a job | one subject a job in the stream `PREFIX_journal`, each message with the sequence that it expects before it: who was overtaken is refused |
//! | batches and their ledgers | keys in the bucket `PREFIX_keys`, changed by compare-and-swap |
//! | raws, pictures, other files | the object store `PREFIX_objects`, by SHA-256 |
//!
//! Calls wait on the calling thread, whatever runs on it: the connection has a thread of its own.

use std::collections::BTreeSet;
use std::future::Future;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::{PublishMessage, StreamMessage};
use async_nats::jetstream::object_store::{self, ObjectStore};
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use async_nats::jetstream::{self, AckKind, Context, kv};
use futures_util::{StreamExt as _, TryStreamExt as _, stream as futures};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub mod address;
pub mod checkup;
mod connection;
pub mod errors;
pub(crate) mod journal;
pub(crate) mod parent;
#[cfg(test)]
mod tests;

use connection::open;

pub use address::Address;
pub use errors::StoreError;

use crate::traces::metrics;
use base::ids::Hash;

/// How long the server may take to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// How long a server that does not answer is tried again: it may be restarted meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(250);
/// Requests that are under way at once.
const AT_ONCE: usize = 64;

/// A connection to a store.
pub struct Store {
    address: Address,
    runtime: tokio::runtime::Runtime,
    context: Context,
    jobs: Stream,
    journal: Stream,
    keys: kv::Store,
    objects: ObjectStore,
    /// The stream behind [`Self::objects`].
    chunks: Stream,
}

/// A value with its revision, by which it is changed, and the time at which the server took it, in milliseconds since
/// 1970.
pub(crate) struct Versioned<T> {
    pub value: T,
    pub revision: u64,
    pub at_ms: i64,
}

/// A job that was handed out. Dropped without an answer it is handed out again when its lease has run out.
pub(crate) struct Claimed {
    /// The job.
    pub payload: Vec<u8>,
    message: jetstream::Message,
    renewal: tokio::task::JoinHandle<()>,
}

impl Drop for Claimed {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

impl Store {
    /// Connects, and makes what is missing in the store.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn connect(address: &Address) -> Result<Self, StoreError> {
        let runtime = runtime(address)?;
        let at = address.clone();
        let opened = wait(&runtime, async move { open(&at).await })?;
        let (context, jobs, journal, keys, objects, chunks) = opened;
        Ok(Self { address: address.clone(), runtime, context, jobs, journal, keys, objects, chunks })
    }

    /// Where it is.
    pub fn address(&self) -> &Address {
        &self.address
    }

    fn other(&self, doing: impl Into<String>, error: impl std::fmt::Display) -> StoreError {
        refused(&self.address, doing, &error.to_string())
    }

    fn damaged(&self, what: impl Into<String>, error: impl std::fmt::Display) -> StoreError {
        StoreError::Damaged {
            address: self.address.to_string(),
            what: what.into(),
            reason: error.to_string(),
        }
    }

    /// Tries until the server answers, or patience ends. `operation` is what metrics call it.
    fn retried<T, E, F>(
        &self,
        operation: &'static str,
        again: impl Fn(&E) -> bool,
        mut one: impl FnMut() -> F,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: std::fmt::Debug + Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        let began = Instant::now();
        loop {
            let asked = Instant::now();
            let answer = wait(&self.runtime, one());
            metrics::asked(operation, asked.elapsed(), answer.is_ok());
            match answer {
                Err(error) if again(&error) && began.elapsed() < PATIENCE => {
                    tracing::debug!(?error, operation, "the store is asked again");
                    std::thread::sleep(PAUSE);
                }
                result => return result,
            }
        }
    }

    // Keys.

    /// The value of a key.
    pub(crate) fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<Versioned<T>>, StoreError> {
        let entry = self.retried(
            "kv.get",
            |_: &kv::EntryError| true,
            || {
                let (keys, key) = (self.keys.clone(), key.to_owned());
                async move { keys.entry(key).await }
            },
        );
        let entry = entry.map_err(|e| self.other(format!("read `{key}`"), e))?;
        let Some(entry) = entry.filter(|entry| entry.operation == kv::Operation::Put) else {
            return Ok(None);
        };
        let value = serde_json::from_slice(&entry.value).map_err(|e| self.damaged(format!("`{key}`"), e))?;
        Ok(Some(Versioned { value, revision: entry.revision, at_ms: milliseconds(entry.created) }))
    }

    /// Makes a key; false if there is one.
    pub(crate) fn create(&self, key: &str, value: &impl Serialize) -> Result<bool, StoreError> {
        let value = bytes(value);
        let again = |e: &kv::CreateError| {
            !matches!(e.kind(), kv::CreateErrorKind::AlreadyExists) && !is_full(&words(e))
        };
        let made = self.retried("kv.create", again, || {
            let (keys, key, value) = (self.keys.clone(), key.to_owned(), value.clone());
            async move { keys.create(key, value.into()).await }
        });
        match made {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == kv::CreateErrorKind::AlreadyExists => Ok(false),
            Err(e) => Err(self.other(format!("make `{key}`"), words(&e))),
        }
    }

    /// Changes a key that has this revision; false if it has another by now.
    pub(crate) fn swap(&self, key: &str, value: &impl Serialize, revision: u64) -> Result<bool, StoreError> {
        let value = bytes(value);
        // One that timed out may have been made: the caller reads the key again.
        let (keys, name) = (self.keys.clone(), key.to_owned());
        let asked = Instant::now();
        let swapped = wait(&self.runtime, async move { keys.update(name, value.into(), revision).await });
        metrics::asked("kv.update", asked.elapsed(), swapped.is_ok());
        match swapped {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == kv::UpdateErrorKind::WrongLastRevision => Ok(false),
            Err(e) if e.kind() == kv::UpdateErrorKind::TimedOut => Ok(false),
            Err(e) => Err(self.other(format!("change `{key}`"), words(&e))),
        }
    }

    /// Deletes a key, without the mark that the client would leave in its place.
    pub(crate) fn delete(&self, key: &str) -> Result<(), StoreError> {
        let deleted = self.retried(
            "kv.purge",
            |_: &String| true,
            || {
                let (keys, key) = (self.keys.clone(), key.to_owned());
                async move {
                    let subject = format!("{}{key}", keys.prefix);
                    keys.stream.purge().filter(subject).await.map_err(|e| words(&e))
                }
            },
        );
        deleted.map(drop).map_err(|e| self.other(format!("delete `{key}`"), e))
    }

    /// The keys that begin so; those that an earlier build deleted may be among them.
    pub(crate) fn keys(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        // The client would make a consumer and read the keys as messages. Of a cluster that has lost a server, some
        // versions put every third consumer on the lost one, which never answers.
        let listed = self.retried(
            "stream.info",
            |_: &String| true,
            || {
                let keys = self.keys.clone();
                async move {
                    let info = keys.stream.info_with_subjects(format!("{}>", keys.prefix)).await;
                    let subjects = info.map_err(|e| words(&e))?.map_ok(|(subject, _)| subject);
                    let subjects: Vec<String> = subjects.try_collect().await.map_err(|e| words(&e))?;
                    let name = |subject: &String| subject.strip_prefix(&keys.prefix).map(str::to_owned);
                    Ok::<_, String>(subjects.iter().filter_map(name).collect::<Vec<_>>())
                }
            },
        );
        let mut names = listed.map_err(|e| self.other("list the keys", e))?;
        names.retain(|name| name.starts_with(prefix));
        names.sort();
        Ok(names)
    }

    // Objects.

    /// Stores bytes under their SHA-256, unless they are there.
    pub(crate) fn put(&self, content: &[u8]) -> Result<Hash, StoreError> {
        let hash = Hash::of(content);
        self.put_from(&hash, || Ok(content.to_vec()))?;
        Ok(hash)
    }

    /// Stores a file of this SHA-256, unless it is there.
    pub(crate) fn put_file(&self, hash: &Hash, path: &Path) -> Result<(), StoreError> {
        self.put_from(hash, || {
            std::fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))
        })
    }

    fn put_from(
        &self,
        hash: &Hash,
        content: impl FnOnce() -> Result<Vec<u8>, String>,
    ) -> Result<(), StoreError> {
        let (objects, name) = (self.objects.clone(), hash.to_string());
        if wait(&self.runtime, async move { objects.info(name).await }).is_ok_and(|info| !info.deleted) {
            return Ok(());
        }
        let content = content().map_err(|e| self.other("store an object", e))?;
        let content = std::sync::Arc::<[u8]>::from(content);
        let put = self.retried(
            "object.put",
            |e: &object_store::PutError| !is_full(&words(e)),
            || {
                let (objects, name, content) = (self.objects.clone(), hash.to_string(), content.clone());
                async move { objects.put(name.as_str(), &mut &*content).await }
            },
        );
        put.map(drop).map_err(|e| self.other("store an object", words(&e)))
    }

    /// An object, checked against its SHA-256.
    pub(crate) fn fetch(&self, hash: &Hash) -> Result<Vec<u8>, StoreError> {
        let info = self.retried(
            "object.get",
            |e: &String| !e.contains("not found"),
            || {
                let (objects, name) = (self.objects.clone(), hash.to_string());
                async move { objects.info(name).await.map_err(|e| words(&e)) }
            },
        );
        let missing = |why: &str| self.other(format!("fetch the object {hash}"), why);
        let info = info.map_err(|e| missing(&e))?;
        // The client would make a consumer, as for the keys.
        let subject = format!("$O.{}.C.{}", info.bucket, info.nuid);
        let (mut content, mut next) = (Vec::new(), 1);
        for _ in 0..info.chunks {
            let chunk = self.first_from(&self.chunks, &subject, next)?;
            let chunk = chunk.ok_or_else(|| missing("object not found"))?;
            next = chunk.sequence + 1;
            content.extend_from_slice(&chunk.payload);
        }
        if Hash::of(&content) != *hash {
            return Err(self.damaged(format!("the object {hash}"), "its bytes have another SHA-256"));
        }
        Ok(content)
    }

    /// Deletes an object.
    fn forget_object(&self, hash: &Hash) -> Result<(), StoreError> {
        let (objects, name) = (self.objects.clone(), hash.to_string());
        let deleted = wait(&self.runtime, async move { objects.delete(name).await });
        deleted.map_err(|e| self.other("delete an object", words(&e)))
    }

    // The queue.

    /// Queues a job once: `name` is what it is known by for two minutes.
    pub(crate) fn queue(&self, group: &str, name: &str, job: &impl Serialize) -> Result<(), StoreError> {
        let (subject, payload) = (format!("{}.jobs.{group}", self.address.prefix), bytes(job));
        self.publish(subject, payload, name, None).map(drop)
    }

    /// The SHA-256 of each job of a group that is queued, or being worked on.
    pub(crate) fn queued(&self, group: &str) -> Result<BTreeSet<Hash>, StoreError> {
        let (subject, mut found, mut next) =
            (format!("{}.jobs.{group}", self.address.prefix), BTreeSet::new(), 1);
        while let Some(job) = self.first_from(&self.jobs, &subject, next)? {
            next = job.sequence + 1;
            found.insert(Hash::of(&job.payload));
        }
        Ok(found)
    }

    /// The first message on a subject from this sequence on.
    fn first_from(
        &self,
        stream: &Stream,
        subject: &str,
        sequence: u64,
    ) -> Result<Option<StreamMessage>, StoreError> {
        let read = self.retried(
            "stream.get",
            |_: &String| true,
            || {
                let (stream, subject) = (stream.clone(), subject.to_owned());
                async move {
                    match stream.get_first_raw_message_by_subject(&subject, sequence).await {
                        Ok(message) => Ok(Some(message)),
                        Err(e) if matches!(e.kind(), LastRawMessageErrorKind::NoMessageFound) => Ok(None),
                        Err(e) => Err(words(&e)),
                    }
                }
            },
        );
        read.map_err(|e| self.other(format!("read `{subject}`"), e))
    }

    /// The consumer that hands out the jobs of a group; their lease is what it was made with.
    pub(crate) fn consumer(&self, group: &str, lease: Duration) -> Result<PullConsumer, StoreError> {
        let config = pull::Config {
            durable_name: Some(format!("workers_{group}")),
            filter_subject: format!("{}.jobs.{group}", self.address.prefix),
            ack_policy: AckPolicy::Explicit,
            ack_wait: lease,
            max_ack_pending: 100_000,
            ..pull::Config::default()
        };
        let made = self.retried(
            "consumer.create",
            |_: &String| true,
            || {
                let (jobs, config) = (self.jobs.clone(), config.clone());
                async move { jobs.create_consumer(config).await.map_err(|e| words(&e)) }
            },
        );
        made.map_err(|e| self.other("wait for jobs", e))
    }

    /// Deletes the consumer of a group.
    fn forget_consumer(&self, group: &str) -> Result<(), StoreError> {
        let (jobs, name) = (self.jobs.clone(), format!("workers_{group}"));
        let deleted = wait(&self.runtime, async move { jobs.delete_consumer(&name).await });
        deleted.map(drop).map_err(|e| self.other("delete a consumer", words(&e)))
    }

    /// The next job, if one comes within `patience`. Its lease is renewed until it is dropped.
    pub(crate) fn next_job(
        &self,
        consumer: &PullConsumer,
        patience: Duration,
        lease: Duration,
    ) -> Result<Option<Claimed>, StoreError> {
        let consumer = consumer.clone();
        let handed = wait(&self.runtime, async move {
            let batch = consumer.batch().max_messages(1).expires(patience).messages().await;
            let mut batch = batch.map_err(|e| e.to_string())?;
            batch.next().await.transpose().map_err(|e| e.to_string())
        });
        let Some(message) = handed.map_err(|e| self.other("wait for jobs", e))? else { return Ok(None) };
        let renewed = message.clone();
        let renewal = self.runtime.spawn(async move {
            loop {
                tokio::time::sleep(lease / 4).await;
                let _ = renewed.ack_with(AckKind::Progress).await;
            }
        });
        Ok(Some(Claimed { payload: message.payload.to_vec(), message, renewal }))
    }

    /// Whether no job waits or is worked on.
    pub(crate) fn is_empty(&self, consumer: &PullConsumer) -> Result<bool, StoreError> {
        let mut consumer = consumer.clone();
        let info = wait(&self.runtime, async move { consumer.info().await.cloned().map_err(|e| words(&e)) });
        let info = info.map_err(|e| self.other("look at the queue", e))?;
        Ok(info.num_pending == 0 && info.num_ack_pending == 0)
    }

    /// Takes a job off the queue.
    pub(crate) fn done(&self, claimed: &Claimed) {
        let message = claimed.message.clone();
        // One that is handed out again because this was not heard is found to be over.
        if let Err(error) = wait(&self.runtime, async move { message.double_ack().await }) {
            tracing::debug!(%error, "a job was not taken off the queue");
        }
    }

    /// Gives a job back, to be handed out again after a while.
    pub(crate) fn give_back(&self, claimed: &Claimed, after: Duration) {
        claimed.renewal.abort();
        let message = claimed.message.clone();
        let answer = AckKind::Nak(Some(after));
        if let Err(error) = wait(&self.runtime, async move { message.ack_with(answer).await }) {
            tracing::debug!(%error, "a job was not given back");
        }
        let client = self.context.client();
        let _ = wait(&self.runtime, async move { client.flush().await });
    }

    // Publishing.

    /// Publishes a message once, `name` being what it is known by; with `expected`, only if the last message on the
    /// subject has that sequence.
    fn publish(
        &self,
        subject: String,
        payload: Vec<u8>,
        name: &str,
        expected: Option<u64>,
    ) -> Result<u64, StoreError> {
        let again = |error: &(PublishErrorKind, String)| {
            !matches!(error.0, PublishErrorKind::WrongLastSequence | PublishErrorKind::MaxPayloadExceeded)
                && !is_full(&error.1)
        };
        let published = self.retried("publish", again, || {
            let (context, subject, payload) = (self.context.clone(), subject.clone(), payload.clone());
            let message = PublishMessage::build().payload(payload.into()).message_id(name);
            let message = match expected {
                Some(sequence) => message.expected_last_subject_sequence(sequence),
                None => message,
            };
            async move {
                let kind = |e: jetstream::context::PublishError| (e.kind(), words(&e));
                context.send_publish(subject, message).await.map_err(kind)?.await.map_err(kind)
            }
        });
        match published {
            Ok(ack) => Ok(ack.sequence),
            Err((PublishErrorKind::WrongLastSequence, _)) => {
                metrics::fenced();
                Err(StoreError::Fenced)
            }
            Err((_, reason)) => Err(self.other("publish", reason)),
        }
    }
}

/// The thread of a connection.
fn runtime(address: &Address) -> Result<tokio::runtime::Runtime, StoreError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.map_err(|e| refused(address, "connect", &e.to_string()))
}

/// Waits for a future on the connection's own thread.
fn wait<T: Send + 'static>(
    runtime: &tokio::runtime::Runtime,
    future: impl Future<Output = T> + Send + 'static,
) -> T {
    let (send, receive) = mpsc::sync_channel(1);
    runtime.spawn(async move {
        let _ = send.send(future.await);
    });
    match receive.recv() {
        Ok(value) => value,
        // The task panicked: so does whoever waits for it, which ends one job.
        #[allow(clippy::panic, reason = "a defect in a task is a defect of its caller")]
        Err(_) => panic!("a task of the store ended without a result"),
    }
}

fn refused(address: &Address, doing: impl Into<String>, reason: &str) -> StoreError {
    let (address, reason) = (address.to_string(), reason.to_owned());
    if is_full(&reason) {
        return StoreError::Full { address, reason };
    }
    StoreError::Other { address, doing: doing.into(), reason }
}

/// Whether a refusal says that no more fits: the words of the server, whose codes the client does not pass on.
fn is_full(reason: &str) -> bool {
    [
        "insufficient",
        "maximum bytes exceeded",
        "resource limits exceeded",
        "maximum messages exceeded",
        "no space",
    ]
    .iter()
    .any(|words| reason.contains(words))
}

/// An error with its causes.
fn words(error: &dyn std::error::Error) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.ends_with(&words) {
            text = format!("{text}: {words}");
        }
        cause = error.source();
    }
    text
}

fn bytes(value: &impl Serialize) -> Vec<u8> {
    // What is written here are structures of text and numbers.
    serde_json::to_vec(value).unwrap_or_default()
}

fn milliseconds(time: async_nats::datetime::DateTime) -> i64 {
    i64::try_from(time.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX)
}
