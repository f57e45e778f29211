//! Sessions that a protocol steers, on a real raw through real darktable.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::Arc;

use chemigram::assets::Overlay;
use chemigram::protocol::store;
use chemigram::provider::explorer::Explorer;
use chemigram::session::driver::Session;
use chemigram::session::opinion::Referee;
use chemigram::session::protocols::{self, Asked};
use chemigram::session::start::{self, Request};
use chemigram::transcript::{Event, Flag, Line, Outcome};
use support::{Studio, request};

fn shipped(name: &str) -> Asked {
    let (entry, text) = store::find(&Overlay::protocols(None), name).unwrap();
    Asked { file: entry.file, text, ..Asked::default() }
}

fn steered(budget: &str, vectors: &[(&str, &str)]) -> Request {
    Request { prompt: protocols::PROMPT.into(), ..request(budget, vectors) }
}

fn states(lines: &[Line]) -> Vec<String> {
    lines
        .iter()
        .filter_map(|l| match &l.event {
            Event::Brief { state, .. } => Some(state.clone()),
            Event::ToolCall(intent) if intent.engine => Some(format!("({})", intent.call.name)),
            Event::Referee(_) => Some("(referee)".into()),
            _ => None,
        })
        .collect()
}

#[test]
fn the_explorer_walks_through_mode_b_explore() {
    let studio = Studio::new();
    let setup = studio.setup(Arc::new(Explorer::new(1)));
    let request = steered(
        "time=10m,iterations=60,branches=3",
        &[
            ("tone", "open the shadows"),
            ("color", "warmer and a little richer"),
            ("structure", "more texture and clarity"),
        ],
    );
    let plan = protocols::plan(&setup, &request, &shipped("mode_b_explore"))
        .unwrap()
        .with_referee(Referee::Offline)
        .unwrap();
    let mut session: Session = start::start(setup, plan).unwrap();
    let end = support::run(&mut session);
    let lines = studio.lines(&session.state.start.session);
    for line in &lines {
        eprintln!("{}", serde_json::to_string(&line.event).unwrap().chars().take(400).collect::<String>());
    }
    eprintln!("{:?}", states(&lines));
    assert_eq!((end.outcome, end.reason.as_str()), (Outcome::Completed, ""));
    let _ = Flag::Disputed;
}
