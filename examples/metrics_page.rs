//! `cargo run --example metrics_page > docs/metrics.md`: the page of metrics, from their table.
#![allow(missing_docs, reason = "an example has no readers but its own")]
#![allow(clippy::print_stdout, reason = "it is run by hand")]

fn main() {
    print!("{}", chemigram::eval::metrics::page());
}
