//! A batch on many machines: `cargo bench --bench many`, or `-- workers`, `-- jobs` for one part.
//!
//! `workers`: 24 scripted sessions that wait 1.5 s for each reply, by 1, 2, 4 and 8 workers as they are released. All
//! pictures are in the cache, so that two cores do not limit what eight workers do.
//!
//! `jobs`: what one server bears. 10,000 jobs go through the store's own code as a worker takes them (queue, claim,
//! ledger, journal), without sessions, by 100 threads with a connection each. `MANY_JOBS` and `MANY_THREADS` set other
//! numbers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing
)]

mod batch;
mod jobs;
mod workers;

// The store's code finds them here.
use chemigram::{budget, traces, transcript};

fn main() {
    let part = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let wanted = |name: &str| part.as_deref().is_none_or(|part| part == name);
    if wanted("workers") {
        workers::measure();
    }
    if wanted("jobs") {
        jobs::measure();
    }
}

/// A number of the environment.
fn number(name: &str, usual: usize) -> usize {
    std::env::var(name).ok().map_or(usual, |text| text.parse().expect("a number"))
}

/// The middle of some values, and what 95 of 100 do not exceed.
fn spread(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |part: f64| values.get((values.len() as f64 * part) as usize).copied().unwrap_or(f64::NAN);
    (at(0.5), at(0.95))
}
