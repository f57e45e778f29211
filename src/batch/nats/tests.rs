//! Against a real server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::journal::{Message, What};
use super::parent::{Reservation, Reserved};
use super::*;
use crate::budget::{Amounts, Budget, Ledger};
use base::error::{Coded as _, ErrorCode};

use testkit::nats::Server;

fn store(server: &Server) -> Store {
    Store::connect(&server.address("test").parse().unwrap()).unwrap()
}

fn message(epoch: u64, worker: &str, why: &str) -> Message {
    Message { epoch, worker: worker.into(), what: What::NotBegun { why: why.into() } }
}

#[test]
fn who_was_overtaken_is_refused_and_nothing_of_it_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path());
    let (one, two) = (store(&server), store(&server));
    let job = Hash::of("job");
    assert!(one.last(&job).unwrap().is_none());
    let first = one.write(&job, &message(1, "one", "a"), 0).unwrap();
    let second = two.write(&job, &message(2, "two", "b"), first).unwrap();
    assert!(matches!(one.write(&job, &message(1, "one", "late"), first), Err(StoreError::Fenced)));
    // The same message again, because the answer was lost, is the same message.
    assert_eq!(two.write(&job, &message(2, "two", "b"), first).unwrap(), second);
    server.restart();
    let third = two.write(&job, &message(2, "two", "c"), second).unwrap();
    let history = one.history(&job).unwrap();
    let told: Vec<(u64, &str)> =
        history.iter().map(|stored| (stored.sequence, stored.message.worker.as_str())).collect();
    assert_eq!(told, [(first, "one"), (second, "two"), (third, "two")]);
    assert_eq!(one.last(&job).unwrap().unwrap().sequence, third);
    one.forget(&job).unwrap();
    assert!(two.history(&job).unwrap().is_empty());
}

#[test]
fn a_job_is_handed_out_once_and_again_when_its_lease_runs_out() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let (store, lease) = (store(&server), Duration::from_secs(2));
    let consumer = store.consumer("group", lease).unwrap();
    let next = |patience| store.next_job(&consumer, Duration::from_millis(patience), lease).unwrap();
    assert!(store.is_empty(&consumer).unwrap());
    for _ in 0..2 {
        store.queue("group", "job", &"payload").unwrap();
    }
    let claimed = next(5000).unwrap();
    assert_eq!(claimed.payload, b"\"payload\"");
    // Renewed for longer than its lease.
    assert!(next(3000).is_none(), "handed out twice");
    drop(claimed);
    let again = next(10_000).unwrap();
    store.give_back(&again, Duration::ZERO);
    let third = next(5000).unwrap();
    store.done(&third);
    assert!(store.is_empty(&consumer).unwrap());
}

#[test]
fn caps_hold_whoever_reserves() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let caps = Budget::parse("time=1h,iterations=1000,branches=20").unwrap();
    let one = Arc::new(store(&server));
    one.make_parent("b").unwrap();
    one.make_parent("b").unwrap();
    let wanted = Budget::parse("time=1m,iterations=10,branches=3").unwrap();
    let most = Amounts { iterations: 10, branches: 3, ..Amounts::default() };
    let decide = |_: &Ledger| Ok(Reservation { budget: wanted.clone(), most });
    let taken = std::thread::scope(|scope| {
        let each = |number: usize| {
            let (server, caps, decide) = (&server, &caps, &decide);
            scope.spawn(move || {
                let store = store(server);
                let reserved = (0..3)
                    .map(|n| (Hash::of(format!("{number}/{n}")), 3 * number + n))
                    .map(|(job, place)| store.reserve("b", (&job, place), caps, decide).unwrap());
                reserved.filter(|reserved| matches!(reserved, Reserved::Has(_))).count()
            })
        };
        let running: Vec<_> = (0..4).map(each).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    assert_eq!(taken, 6, "20 branches are enough for six jobs of three");
    let parent = one.parent("b").unwrap();
    let held: Vec<Hash> = parent.reserved.keys().cloned().collect();
    assert_eq!(held.len(), 6);
    let new = Hash::of("new");
    assert_eq!(one.reserve("b", (&held[0], 100), &caps, decide).unwrap(), Reserved::Has(wanted.clone()));
    assert_eq!(one.reserve("b", (&new, 99), &caps, decide).unwrap(), Reserved::Wait);
    let spent = Amounts { iterations: 4, branches: 1, ..Amounts::default() };
    let placed: Vec<(&Hash, usize)> = held.iter().zip(100..).collect();
    for job in placed.iter().chain(&placed) {
        one.settle("b", *job, spent).unwrap();
    }
    // A worker that was stopped while others ran the job, and claims it now.
    for job in &placed {
        assert_eq!(one.reserve("b", *job, &caps, decide).unwrap(), Reserved::Over);
        one.settle("b", *job, spent).unwrap();
    }
    let parent = one.parent("b").unwrap();
    assert_eq!((parent.settled.branches, parent.reserved.len()), (6, 0), "each settled once");
    let never = |_: &Ledger| Err::<Reservation, _>("no".to_owned());
    assert_eq!(one.reserve("b", (&new, 99), &caps, never).unwrap(), Reserved::Never("no".into()));
}

#[test]
fn objects_are_kept_by_what_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let store = store(&server);
    let large: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
    for content in [b"".as_slice(), b"small", &large] {
        let hash = store.put(content).unwrap();
        assert_eq!(store.put(content).unwrap(), hash);
        assert_eq!(store.fetch(&hash).unwrap(), content);
    }
    assert!(store.fetch(&Hash::of("never stored")).is_err());
}

#[test]
fn a_store_that_cannot_be_used_says_why_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let connect = |server: &Server| match Store::connect(&server.address("test").parse().unwrap()) {
        Err(error) => error,
        Ok(_) => panic!("connected"),
    };
    let folder = |name: &str| {
        let folder = dir.path().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    };
    let mut plain = Server::with(&folder("plain"), &[]);
    let error = connect(&plain);
    assert!(matches!(error, StoreError::NoJetStream { .. }), "{error}");
    assert!(error.remedy().unwrap().contains("-js"), "{error:?}");
    plain.kill();
    let error = connect(&plain);
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    let guarded = Server::with(&folder("guarded"), &["-js", "--user", "me", "--pass", "right"]);
    let error = connect(&guarded);
    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    assert_eq!(error.code(), ErrorCode::PermissionDenied);
    let address = guarded.address("test").replace("nats://", "nats://me:right@");
    Store::connect(&address.parse().unwrap()).unwrap();
    let missing: Address = format!("{}?creds=/nowhere/x.creds", guarded.address("test")).parse().unwrap();
    let Err(error) = Store::connect(&missing) else { panic!("connected") };
    assert!(matches!(error, StoreError::Credentials { .. }), "{error}");
    // Room for less than what is stored.
    let small = folder("small");
    let config = small.join("server.conf");
    std::fs::write(&config, "jetstream { max_file_store: 2MB, max_memory_store: 1MB }").unwrap();
    let server = Server::with(&small, &["-c", config.to_str().unwrap()]);
    let store = store(&server);
    let error = store.put(&vec![7; 4 << 20]).unwrap_err();
    assert!(matches!(error, StoreError::Full { .. }), "{error}");
    assert!(error.remedy().unwrap().contains("max_file_store"));
}

/// A replica that is behind is not asked: what one has written is there for everyone.
#[test]
fn what_was_written_is_read_on_a_cluster_too() {
    let dir = tempfile::tempdir().unwrap();
    let servers = Server::cluster(dir.path(), 3);
    let until = Instant::now() + Duration::from_secs(120);
    // A cluster takes a while to agree on who leads.
    let stores: Vec<Store> = servers
        .iter()
        .map(|server| {
            let address = format!("{}?replicas=3", server.address("test")).parse().unwrap();
            loop {
                match Store::connect(&address) {
                    Ok(store) => break store,
                    Err(error) => assert!(Instant::now() < until, "{error}"),
                }
            }
        })
        .collect();
    for n in 0..300 {
        let (writer, reader) = (&stores[n % 3], &stores[(n + 1) % 3]);
        let key = format!("key.{n}");
        assert!(writer.create(&key, &n).unwrap());
        let read = reader.get::<usize>(&key).unwrap();
        assert_eq!(read.map(|read| read.value), Some(n), "{key}");
        let object = writer.put(key.as_bytes()).unwrap();
        assert_eq!(reader.fetch(&object).unwrap(), key.as_bytes(), "{key}");
    }
}
