//! Sessions that a protocol steers, on a real raw through real darktable.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cuts;
mod generate;
mod judge;
mod original;
mod referees;
mod shipped;
mod ways;

use std::sync::Arc;

use crate::support::{Studio, request};
use base::assets::Overlay;
use chemigram::protocol::store;
use chemigram::provider::Provider;
use chemigram::session::driver::Session;
use chemigram::session::opinion::Referee;
use chemigram::session::protocols::{self, ProtocolSource};
use chemigram::session::start::{self, Request};
use chemigram::transcript::{Event, Flag, Line, SessionEnd};

/// A protocol that comes along.
fn named(name: &str) -> ProtocolSource {
    let (entry, text) = store::find(&Overlay::protocols(None), name).unwrap();
    ProtocolSource { file: entry.file, text, ..ProtocolSource::default() }
}

fn wanted(budget: &str, vectors: &[(&str, &str)]) -> Request {
    Request { prompt: protocols::PROMPT.into(), preview_edge: 256, ..request(budget, vectors) }
}

/// A session that was run to its end.
struct Ran {
    session: Session,
    end: SessionEnd,
    lines: Vec<Line>,
}

fn begin(
    studio: &Studio,
    model: Arc<dyn Provider>,
    referee: Referee,
    request: &Request,
    asked: &ProtocolSource,
) -> Session {
    let setup = studio.setup(model);
    let plan = protocols::plan(&setup, request, asked).unwrap().with_referee(referee).unwrap();
    start::start(setup, plan).unwrap()
}

fn run(
    studio: &Studio,
    model: Arc<dyn Provider>,
    referee: Referee,
    request: &Request,
    asked: &ProtocolSource,
) -> Ran {
    let mut session = begin(studio, model, referee, request, asked);
    let end = crate::support::run(&mut session);
    let lines = studio.lines(&session.state.start.session);
    Ran { session, end, lines }
}

impl Ran {
    /// The way through the states: the model's, the engine's own calls and the referee's opinions in brackets.
    fn way(&self) -> Vec<String> {
        let step = |line: &Line| match &line.event {
            Event::Brief { state, .. } => Some(state.clone()),
            Event::ToolCall(intent) if intent.engine => Some(format!("({})", intent.call.name)),
            Event::Referee(_) => Some("(referee)".into()),
            _ => None,
        };
        self.lines.iter().filter_map(step).collect()
    }

    /// What the model was told at the beginning of each attempt in a state.
    fn briefs(&self, of: &str) -> Vec<&str> {
        self.lines
            .iter()
            .filter_map(|line| match &line.event {
                Event::Brief { state, text, .. } if state == of => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }

    fn flags(&self, branch: &str) -> Vec<Flag> {
        let branches = &self.session.state.branches;
        let found = branches.iter().find(|b| b.name.as_str() == branch).unwrap();
        found.judgment.as_ref().unwrap().flags.clone()
    }

    fn referee_calls(&self) -> usize {
        self.lines.iter().filter(|line| matches!(line.event, Event::RefereeIntent(_))).count()
    }
}
