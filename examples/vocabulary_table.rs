//! Renders every move on the demo photo and writes `docs/vocabulary.md`.
//!
//! Needs darktable; takes about two minutes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a tool for developers, who want the backtrace")]
#![allow(missing_docs, reason = "an example has no readers but its own")]

#[path = "../tests/support/demo.rs"]
mod demo;

use chemigram::metrics::difference::Difference;
use chemigram::metrics::stats::ImageStats;
use chemigram::vocabulary::table::{Measured, page};

fn main() -> std::io::Result<()> {
    let demo = demo::Demo::open();
    let baseline = &demo.facts.baseline;
    let moves: Vec<_> = demo.vocabulary.moves().collect();
    let mut states = vec![baseline.clone()];
    // Where in `states` the move at rest is, and the move at work.
    let mut places = Vec::new();
    for entry in &moves {
        let neutral: Vec<_> = entry.neutral().into_iter().collect();
        let neutral: Vec<(&str, f64)> = neutral.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let applied = demo.apply(baseline, &entry.name, &[], None).state;
        // The way back, from the move at work to the move at rest; the baseline again is not rendered again.
        let idle = demo.apply(&applied, &entry.name, &neutral, None).state;
        let rest = if idle.hash() == baseline.hash() { 0 } else { states.len() };
        if rest > 0 {
            states.push(idle);
        }
        places.push([rest, states.len()]);
        states.push(applied);
    }
    let pictures = demo.render_all(&states);
    let untouched = &pictures[0];
    let before = ImageStats::of(untouched);
    let measured: Vec<Measured> = moves
        .iter()
        .zip(&places)
        .map(|(entry, places)| {
            let [idle, moved] = places.map(|at| Difference::between(untouched, &pictures[at]).unwrap());
            let after = ImageStats::of(&pictures[places[1]]);
            Measured {
                name: entry.name.clone(),
                steps: entry.axes.keys().map(|axis| (*axis, axis.steps(&before, &after))).collect(),
                delta_e: (!moved.resized).then_some(moved.mean),
                neutral: idle.max_channel,
            }
        })
        .collect();
    let on = format!("the demo photo with darktable {}", demo.version());
    std::fs::write("docs/vocabulary.md", page(&demo.vocabulary, &measured, &on))
}
