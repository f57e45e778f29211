//! Ten thousand jobs on one server.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::ids::{Hash, SessionId};
use serde_json::json;

use crate::batch::changes::{Change, Content};
use crate::batch::nats::Store;
use crate::batch::nats::journal::{Message, What};
use crate::batch::nats::parent::{Reservation, Reserved};
use crate::budget::{Amounts, Budget, Ledger};
use crate::transcript::Outcome;
use crate::{number, spread};
use testkit::nats::Server;

const BATCH: &str = "bench";
const LEASE: Duration = Duration::from_secs(30);
/// What each job reserves, and what it then turns out to have spent.
const MOST: u64 = 12;
const SPENT: u64 = 4;
/// The messages of a session between its claim and its end.
const LINES: usize = 10;

/// What one claim took.
struct Claim {
    /// From asking for a job to being allowed to begin.
    claim: f64,
    /// The reservation alone, and how often it was tried.
    reserve: f64,
    tries: u32,
    settle: f64,
}

pub fn measure() {
    let (jobs, threads) = (number("MANY_JOBS", 10_000), number("MANY_THREADS", 100));
    println!(
        "\n| jobs, {threads} workers | submitted in | claimed in, median (95 %) | reserved in | tries, mean (most) | settled \
         in | all done in | jobs a second | server's memory | on disk |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    );
    // As sessions take time; and as fast as they come, which is the most that the ledger can bear.
    run(jobs, threads, Duration::from_secs(2));
    run(jobs / 5, threads, Duration::ZERO);
}

fn run(jobs: usize, threads: usize, thinking: Duration) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let connect = || Store::connect(&server.address("bench").parse().unwrap()).unwrap();
    let store = connect();
    let budget = Budget::parse("time=5m,iterations=12,branches=1").unwrap();
    // All that is spent, and what may be reserved meanwhile: a job that is counted twice leaves none for another.
    let iterations = jobs as u64 * SPENT + threads as u64 * MOST;
    let caps = Budget { max_iterations: iterations, max_branches: jobs as u64, ..budget.clone() };

    let began = Instant::now();
    submit(&store, jobs);
    let submitted = began.elapsed();

    let stores: Vec<Store> = (0..threads).map(|_| connect()).collect();
    let (over, began) = (AtomicBool::new(false), Instant::now());
    let claims: Vec<Claim> = std::thread::scope(|scope| {
        let (store, caps, budget, over) = (&store, &caps, &budget, &over);
        let watch = scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let ledger = store.parent(BATCH).unwrap().ledger(caps.clone());
                let all = ledger.settled().plus(ledger.reserved());
                assert!(
                    all.iterations <= caps.max_iterations && all.branches <= caps.max_branches,
                    "{all:?}"
                );
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        let each = stores
            .iter()
            .enumerate()
            .map(|(n, store)| scope.spawn(move || work(store, &format!("w{n}"), caps, budget, thinking)));
        let each: Vec<_> = each.collect();
        let claims = each.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        over.store(true, Ordering::Relaxed);
        watch.join().unwrap();
        claims
    });
    let took = began.elapsed().as_secs_f64();

    let parent = store.parent(BATCH).unwrap();
    assert_eq!(
        (claims.len(), parent.settled.branches, parent.reserved.len()),
        (jobs, jobs as u64, 0),
        "each settled once"
    );
    assert_eq!(
        parent.settled,
        Amounts { iterations: jobs as u64 * SPENT, branches: jobs as u64, ..Amounts::default() }
    );
    let of = |value: fn(&Claim) -> f64| {
        let (middle, most) = spread(claims.iter().map(value).collect());
        format!("{:.1} ms ({:.1})", middle * 1e3, most * 1e3)
    };
    let tries = claims.iter().map(|claim| f64::from(claim.tries)).sum::<f64>() / claims.len() as f64;
    let most = claims.iter().map(|claim| claim.tries).max().unwrap_or(0);
    let (memory, disk) = (memory(server.id()) / 1024.0, bytes(folder.path()) as f64 / 1e6);
    println!(
        "| {jobs} that take {thinking:.0?} | {:.1} s | {} | {} | {tries:.2} ({most}) | {} | {took:.0} s | {:.0} | {memory:.0} MiB | \
         {disk:.0} MB |",
        submitted.as_secs_f64(),
        of(|claim| claim.claim),
        of(|claim| claim.reserve),
        of(|claim| claim.settle),
        jobs as f64 / took,
    );
}

/// Puts a batch into the store, as whoever submits does: for each job the folder of its photo as an object, the job in
/// the queue, and the first message about it. The raws, as large as they are, are left out.
fn submit(store: &Store, jobs: usize) {
    store.make_parent(BATCH).unwrap();
    store.create("batch.bench", &json!({ "offer": Hash::of("offer"), "jobs": jobs })).unwrap();
    for n in 0..jobs {
        let pack = store.put(format!("{n} {}", "folder ".repeat(300)).as_bytes()).unwrap();
        let job = json!({ "place": n, "folder": pack, "planned": "session ".repeat(120) });
        let name = Hash::of(serde_json::to_vec(&job).unwrap());
        store.queue("bench", &name.to_string(), &job).unwrap();
        let queued = Message { epoch: 0, worker: String::new(), what: What::Queued };
        store.write(&name, &queued, 0).unwrap();
    }
}

/// Takes jobs until none is left, with the requests that a worker makes for each.
fn work(store: &Store, name: &str, caps: &Budget, budget: &Budget, thinking: Duration) -> Vec<Claim> {
    let consumer = store.consumer("bench", LEASE).unwrap();
    let mut claims = Vec::new();
    let most = Amounts { iterations: MOST, branches: 1, ..Amounts::default() };
    let spent = Amounts { iterations: SPENT, branches: 1, ..Amounts::default() };
    loop {
        let asked = Instant::now();
        let Some(claimed) = store.next_job(&consumer, Duration::from_secs(1), LEASE).unwrap() else {
            if store.is_empty(&consumer).unwrap() {
                return claims;
            }
            continue;
        };
        let job = Hash::of(&claimed.payload);
        store.get::<serde_json::Value>("batch.bench").unwrap().unwrap();
        let last = store.last(&job).unwrap().unwrap();
        let (began, tries) = (Instant::now(), std::cell::Cell::new(0));
        let decide = |_: &Ledger| {
            tries.set(tries.get() + 1);
            Ok(Reservation { budget: budget.clone(), most })
        };
        let place: serde_json::Value = serde_json::from_slice(&claimed.payload).unwrap();
        let placed = (&job, usize::try_from(place["place"].as_u64().unwrap()).unwrap());
        let reserved = store.reserve(BATCH, placed, caps, decide).unwrap();
        assert!(matches!(reserved, Reserved::Has(_)), "{reserved:?}");
        let reserve = began.elapsed().as_secs_f64();
        let write = |what: What, after: u64| {
            store.write(&job, &Message { epoch: 1, worker: name.to_owned(), what }, after).unwrap()
        };
        let mut after = write(What::Claimed { lost: 0, failures: 0, budget: budget.clone() }, last.sequence);
        let claim = asked.elapsed().as_secs_f64();

        let session: SessionId = "01a20e63-ad57-701c-adf9-dee0b76ea818".parse().unwrap();
        for n in 0..LINES {
            std::thread::sleep(thinking / u32::try_from(LINES).unwrap());
            let (path, text) = (
                format!("sessions/mode_b/{session}/transcript.jsonl"),
                format!("{n} {}\n", "line ".repeat(200)),
            );
            let change = Change { path, at: Some(n as u64 * 1000), content: Some(Content::Text(text)) };
            after = write(What::Changed { changes: vec![change] }, after);
        }
        write(What::Ended { session, outcome: Outcome::Completed, status: 0, cut: false, spent }, after);
        let began = Instant::now();
        store.settle(BATCH, placed, spent).unwrap();
        let settle = began.elapsed().as_secs_f64();
        store.done(&claimed);
        claims.push(Claim { claim, reserve, tries: tries.get(), settle });
    }
}

/// The most memory that a process had, in KiB.
fn memory(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// The bytes of all files in a folder.
fn bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| {
            if entry.path().is_dir() { bytes(&entry.path()) } else { entry.metadata().map_or(0, |m| m.len()) }
        })
        .sum()
}
