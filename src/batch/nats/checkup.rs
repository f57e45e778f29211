//! Whether a store can be used: each step of its use, tried once.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use async_nats::jetstream::{self, consumer};
use base::error::{Coded as _, ErrorCode};
use base::ids::{Hash, SessionId};
use futures_util::TryStreamExt as _;

use super::connection::{account, connect};
use super::journal::{Message, What};
use super::{Address, Store, StoreError, runtime, wait, words};

/// The oldest server that will do: major and minor version.
const OLDEST: (u32, u32) = (2, 9);
/// Room for some photos, in bytes.
const ROOM: u64 = 500_000_000;
/// A difference of clocks that is worth a word.
const DIFFERENCE: Duration = Duration::from_secs(2);
/// The size of the object that is written, in bytes: more than one piece.
const OBJECT: usize = 200_000;

/// What was found in a step.
#[derive(Clone, Debug)]
pub struct Step {
    /// What was looked at, in a word or two.
    pub what: &'static str,
    /// What was found.
    pub found: String,
    /// The code of what is wrong, if something is.
    pub wrong: Option<ErrorCode>,
    /// Whether a batch can be worked on in spite of it.
    pub bearable: bool,
    /// What to do about it.
    pub remedy: Option<String>,
}

impl Step {
    fn well(what: &'static str, found: String) -> Self {
        Self { what, found, wrong: None, bearable: true, remedy: None }
    }

    fn remark(what: &'static str, found: String, remedy: &str) -> Self {
        let wrong = Some(ErrorCode::StateError);
        Self { what, found, wrong, bearable: true, remedy: Some(remedy.to_owned()) }
    }

    fn failed(what: &'static str, error: &StoreError) -> Self {
        Self {
            what,
            found: error.to_string(),
            wrong: Some(error.code()),
            bearable: false,
            remedy: error.remedy(),
        }
    }
}

/// The workers that meet the same requirements.
struct Group {
    /// Places for a session that wait for one.
    idle: usize,
    /// Sessions that somebody has.
    running: usize,
}

/// Tries everything that batches need of a store, until something fails. What is missing in the store is made, as its
/// first use would; what is written on trial is deleted. With the steps, the store, if all went well.
pub fn checkup(address: &Address) -> (Vec<Step>, Option<Store>) {
    let mut steps = Vec::new();
    let store = tried(address, &mut steps);
    match store {
        Ok(store) => (steps, Some(store)),
        Err(step) => {
            steps.push(step);
            (steps, None)
        }
    }
}

fn tried(address: &Address, steps: &mut Vec<Step>) -> Result<Store, Step> {
    let runtime = runtime(address).map_err(|e| Step::failed("server", &e))?;
    let at = address.clone();
    let connected = wait(&runtime, async move { connect(&at).await });
    let client = connected.map_err(|e| {
        let what = match e {
            StoreError::Refused { .. } | StoreError::Credentials { .. } => "credentials",
            StoreError::Encryption { .. } => "encryption",
            _ => "server",
        };
        Step::failed(what, &e)
    })?;
    let info = client.server_info();
    steps.push(version(&info.version, &info.server_name)?);
    steps.push(secrecy(address, address.tls || info.tls_required));

    let asked = client.clone();
    let account = wait(&runtime, async move { account(&asked).await });
    let account = account.map_err(|reason| {
        Step::failed("JetStream", &StoreError::NoJetStream { address: address.to_string(), reason })
    })?;
    steps.push(room(&account));

    let names = ["jobs", "journal"].map(|name| format!("{}_{name}", address.prefix));
    let buckets = [format!("KV_{}_keys", address.prefix), format!("OBJ_{}_objects", address.prefix)];
    let all = [names, buckets].concat();
    let before = wait(&runtime, replicas(client, all.clone()));
    let store = Store::connect(address).map_err(|e| Step::failed("streams", &e))?;
    let after = wait(&store.runtime, replicas(store.context.client(), all));
    steps.push(streams(address, &before, &after));

    let key = format!("doctor.{}", SessionId::mint());
    let tried = round_trip(&store, &key);
    let (took, ahead) = tried.map_err(|e| Step::failed("round trip", &e))?;
    steps.push(Step::well(
        "round trip",
        format!("key, message, job and object written, read and deleted in {} ms", took.as_millis()),
    ));
    steps.push(Step::well("clocks", clocks(ahead)));
    steps.push(workers(&store).map_err(|e| Step::failed("workers", &e))?);
    Ok(store)
}

fn version(version: &str, name: &str) -> Result<Step, Step> {
    let found = format!("NATS {version}, {name}");
    if is_recent(version) {
        return Ok(Step::well("server", found));
    }
    Err(Step {
        what: "server",
        found: format!("{found}: too old"),
        wrong: Some(ErrorCode::StateError),
        bearable: false,
        remedy: Some(format!("install a server of version {}.{} or later", OLDEST.0, OLDEST.1)),
    })
}

fn is_recent(version: &str) -> bool {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= OLDEST,
        _ => false,
    }
}

/// How the connection is protected.
fn secrecy(address: &Address, encrypted: bool) -> Step {
    let entry = match address {
        Address { creds: Some(_), .. } => "a credentials file",
        Address { nkey: Some(_), .. } => "an NKEY",
        Address { user: Some(_), .. } => "user and password",
        Address { own: Some(_), .. } => "a certificate",
        _ => "no credentials",
    };
    let found = format!("{}, with {entry}", if encrypted { "encrypted" } else { "not encrypted" });
    let here = ["nats://127.", "nats://localhost:", "nats://[::1]"];
    if here.iter().any(|here| address.server.starts_with(here)) || (encrypted && entry != "no credentials") {
        return Step::well("access", found);
    }
    let remedy = "whoever reaches the server can read raws and bring edits into libraries: give it TLS and credentials";
    Step::remark("access", found, remedy)
}

/// What the account has in files, and what it may have. The limit of the server as a whole is not told to its clients:
/// that there is room now, the round trip shows.
fn room(account: &serde_json::Value) -> Step {
    let number = |path: &str| account.pointer(path).and_then(serde_json::Value::as_i64);
    let used = number("/storage").and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
    let limit = number("/limits/max_storage").and_then(|n| u64::try_from(n).ok());
    let mb = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    let Some(limit) = limit else {
        let found = format!("on, {} in files, no limit but the server's", mb(used));
        return Step::well("JetStream", found);
    };
    let found = format!("on, {} in files of the {} that this account may have", mb(used), mb(limit));
    if limit.saturating_sub(used) >= ROOM {
        return Step::well("JetStream", found);
    }
    Step::remark(
        "JetStream",
        found,
        "give the account more room; `chemigram batch remove` frees what was written of old batches, but not their \
         raws and pictures",
    )
}

/// How many servers keep each of these streams; `None` for one that does not exist.
async fn replicas(client: async_nats::Client, names: Vec<String>) -> Vec<Option<usize>> {
    let context = jetstream::new(client);
    let mut found = Vec::new();
    for name in names {
        let stream = context.get_stream(name).await;
        found.push(stream.ok().map(|stream| stream.cached_info().config.num_replicas));
    }
    found
}

fn streams(address: &Address, before: &[Option<usize>], after: &[Option<usize>]) -> Step {
    let made = before.iter().filter(|there| there.is_none()).count();
    let kept: BTreeSet<usize> = after.iter().flatten().copied().collect();
    let each: Vec<String> = kept.iter().map(usize::to_string).collect();
    let found = format!(
        "{} in `{}`, each on {} server{}",
        match made {
            0 => "queue, journal, keys and objects are".to_owned(),
            4 => "queue, journal, keys and objects were made now".to_owned(),
            some => format!("{some} of queue, journal, keys and objects were made now"),
        },
        address.prefix,
        each.join(" or "),
        if each == ["1"] { "" } else { "s" },
    );
    if kept.iter().all(|kept| *kept == address.replicas) {
        return Step::well("streams", found);
    }
    let remedy = format!(
        "the address asks for replicas={}, which counts when a store is first used; change it with `nats stream edit`",
        address.replicas
    );
    Step::remark("streams", found, &remedy)
}

/// Writes, reads, compares and swaps, and deletes; how long that took, and by how many milliseconds the server's clock
/// is ahead.
fn round_trip(store: &Store, key: &str) -> Result<(Duration, i64), StoreError> {
    let began = Instant::now();
    let wrong = |what: &str| Err(store.damaged(what, "it is not what was written"));
    let sent = jiff::Timestamp::now();
    if !store.create(key, &1)? {
        return wrong("a new key");
    }
    let answered = jiff::Timestamp::now();
    let Some(first) = store.get::<u8>(key)? else { return wrong("a new key") };
    let swapped = store.swap(key, &2, first.revision)?;
    if !swapped
        || store.swap(key, &3, first.revision)?
        || store.get::<u8>(key)?.map(|now| now.value) != Some(2)
    {
        return wrong("a changed key");
    }
    store.delete(key)?;

    let job = Hash::of(key);
    let message = |worker: &str| Message { epoch: 0, worker: worker.to_owned(), what: What::Queued };
    store.write(&job, &message("doctor"), 0)?;
    let fenced = matches!(store.write(&job, &message("another"), 0), Err(StoreError::Fenced));
    let read = store.history(&job)?.len();
    store.forget(&job)?;
    if !fenced || read != 1 {
        return wrong("a message");
    }

    let group = key.replace('.', "_");
    let lease = Duration::from_secs(30);
    let consumer = store.consumer(&group, lease)?;
    let handed =
        store.queue(&group, key, &key).and_then(|()| store.next_job(&consumer, super::ANSWER, lease));
    if let Ok(Some(claimed)) = &handed {
        store.done(claimed);
    }
    store.forget_consumer(&group)?;
    if handed?.is_none() {
        return wrong("a queued job");
    }

    let content: Vec<u8> = key.bytes().cycle().take(OBJECT).collect();
    let object = store.put(&content)?;
    let fetched = store.fetch(&object);
    store.forget_object(&object)?;
    if fetched? != content {
        return wrong("an object");
    }
    // The server took it in the middle of the exchange, give or take.
    let here = (sent.as_millisecond() + answered.as_millisecond()) / 2;
    Ok((began.elapsed(), first.at_ms - here))
}

fn clocks(ahead_ms: i64) -> String {
    let difference = Duration::from_millis(ahead_ms.unsigned_abs());
    if difference < DIFFERENCE {
        return "the same here and on the server".into();
    }
    let seconds = difference.as_secs();
    let words = match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{:.1} h", seconds as f64 / 3600.0),
    };
    let way = if ahead_ms > 0 { "ahead" } else { "behind" };
    format!("the server's is {words} {way}, which does no harm: batches go by the server's")
}

/// Who takes jobs off the queue now.
fn workers(store: &Store) -> Result<Step, StoreError> {
    let jobs = store.jobs.clone();
    let listed = wait(&store.runtime, async move {
        jobs.consumers().try_collect::<Vec<consumer::Info>>().await.map_err(|e| words(&e))
    });
    let listed = listed.map_err(|e| store.other("list the workers", e))?;
    let groups = listed.iter().filter(|one| one.name.starts_with("workers_"));
    let groups = groups.map(|one| Group { idle: one.num_waiting, running: one.num_ack_pending });
    let (idle, running) =
        groups.fold((0, 0), |(idle, running), group| (idle + group.idle, running + group.running));
    Ok(Step::well("workers", format!("{idle} waiting for a session, {running} sessions under way")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        for (version, recent) in [
            ("2.9.10", true),
            ("2.10.1", true),
            ("v2.12.0", false),
            ("3.0.0-dev", true),
            ("2.8.4", false),
            ("1.4.1", false),
            ("", false),
        ] {
            assert_eq!(is_recent(version), recent, "{version}");
        }
    }

    #[test]
    fn a_difference_of_clocks_is_told_in_words() {
        assert!(clocks(900).starts_with("the same"));
        assert!(clocks(-5000).contains("5 s behind"));
        assert!(clocks(18_000_000).contains("5.0 h ahead"));
    }

    #[test]
    fn an_open_server_beyond_this_machine_is_remarked() {
        let of = |address: &str, encrypted| secrecy(&address.parse().unwrap(), encrypted).wrong.is_some();
        assert!(!of("nats://127.0.0.1:4222/studio", false));
        assert!(of("nats://queue:4222/studio", false));
        assert!(of("nats://queue:4222/studio?nkey=x", false));
        assert!(!of("nats://queue:4222/studio?nkey=x", true));
    }
}
