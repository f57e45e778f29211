//! The cost of the machinery around a session: `cargo bench --bench session`.
//!
//! A scripted session of 1,000 calls without renders (edits, looks, log) measures what the gate, the
//! transcript, the op-log and the object store cost, and whether a call late in a session costs more than an
//! early one. The first and the last tenth are of the same run, so their ratio is fair. With `ahead` behind `--`,
//! darktable works ahead meanwhile, as in any session that has one, and shares the processors.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::clock::Deadline;

use chemigram::transcript::{Event, Line};
use darktable::render::{RenderError, RenderPermit, RenderRequest, Rendered, Renderer};
use support::{Studio, confirm, reply, request};

const CALLS: usize = 1_000;

fn script() -> String {
    let mut script = confirm(&["tone"]) + &reply(&[("branch", r#"{"name": "branch_b_tone"}"#)]);
    for n in 0..CALLS / 4 {
        let value = 0.01 + (n % 150) as f64 / 100.0;
        let edit =
            format!(r#"{{"primitive_name": "shadows_lift", "parameter_values": {{"amount": {value}}}}}"#);
        script += &reply(&[
            ("apply_primitive", &edit),
            ("get_state", "{}"),
            ("diff", "{}"),
            ("log", r#"{"limit": 5}"#),
        ]);
    }
    script + &reply(&[("end_mode_b_session", r#"{"session_summary": "Done."}"#)])
}

/// Renders the baseline and then nothing, so that no darktable works ahead beside what is measured.
struct BaselineOnly {
    renderer: Arc<dyn Renderer>,
    done: AtomicBool,
}

impl Renderer for BaselineOnly {
    fn render(
        &self,
        request: &RenderRequest<'_>,
        deadline: &Deadline,
        permit: &dyn RenderPermit,
    ) -> Result<Rendered, RenderError> {
        if self.done.swap(true, Ordering::Relaxed) {
            return Err(RenderError::Missing("not wanted".into()));
        }
        self.renderer.render(request, deadline, permit)
    }

    fn darktable_version(&self) -> &str {
        self.renderer.darktable_version()
    }
}

/// Mean time between the results of the calls in `part`.
fn mean(lines: &[Line], part: std::ops::Range<usize>) -> Duration {
    let times: Vec<u64> = lines
        .iter()
        .filter(|l| matches!(l.event, Event::ToolResult { intent: Some(_), .. }))
        .map(|l| l.mono_ms)
        .collect();
    let calls = u32::try_from(part.len()).unwrap();
    Duration::from_millis(times[part.end.min(times.len()) - 1] - times[part.start]) / calls
}

fn main() {
    let mut studio = Studio::new();
    if !std::env::args().any(|word| word == "ahead") {
        studio.renderer =
            Arc::new(BaselineOnly { renderer: studio.renderer.clone(), done: AtomicBool::new(false) });
    }
    let mut session = studio.scripted(
        &script(),
        &request("time=30m,iterations=2000,branches=1", &[("tone", "lift the shadows")]),
    );
    let started = Instant::now();
    let end = support::run(&mut session);
    let took = started.elapsed();
    let lines = studio.lines(&session.state.start.session);
    let calls = lines.iter().filter(|l| matches!(l.event, Event::ToolResult { intent: Some(_), .. })).count();
    assert!(calls >= CALLS, "only {calls} calls ran: {:?} {}", end.outcome, end.reason);
    let (early, late) = (mean(&lines, 100..200), mean(&lines, calls - 100..calls));
    println!("calls                     {calls}");
    println!("whole session             {took:.2?}");
    println!("a call, calls 100 to 200  {early:.2?}");
    println!("a call, the last 100      {late:.2?}");
    println!("late to early             {:.2}", late.as_secs_f64() / early.as_secs_f64());
    println!("transcript lines          {}", end.lines);
}
