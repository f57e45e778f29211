//! Renders every move on the demo photo and writes `docs/vocabulary.md`.
//!
//! Needs darktable; takes one to three minutes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a tool for developers, who want the backtrace")]
#![allow(missing_docs, reason = "an example has no readers but its own")]

#[path = "../tests/support/demo.rs"]
mod demo;

use chemigram::vocabulary::table::page;

fn main() -> std::io::Result<()> {
    let demos = demo::Demo::open_all();
    let surveyed = demos.iter().flat_map(|demo| demo.survey().1);
    let measured: Vec<_> = surveyed.map(|surveyed| surveyed.measured).collect();
    let demo = &demos[0];
    let on = format!("the demo photo with darktable {}", demo.version());
    std::fs::write("docs/vocabulary.md", page(&demo.vocabulary, &measured, &on))
}
