//! One line that says what a session is doing, and the way to ask the photographer.

use std::sync::Mutex;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};

use super::output::Output;
use crate::budget::Ledger;
use crate::review::{line as one_line, plain};
use crate::session::driver::Host;
use crate::session::state::State;
use crate::transcript::{Event, Flag, Line};

/// The longest text of what is being done.
const DOING: usize = 48;

/// How often the line moves.
const TICK: Duration = Duration::from_millis(120);

/// Where lines are drawn: nowhere where nobody looks.
fn target(output: &Output) -> ProgressDrawTarget {
    if output.shows_progress() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() }
}

/// A line with the time that has passed and a message; hidden where there is no terminal.
fn spinner(output: &Output) -> ProgressBar {
    styled(ProgressBar::with_draw_target(None, target(output)))
}

fn styled(bar: ProgressBar) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {elapsed_precise} {wide_msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar
}

/// Room for several lines, one a session.
pub fn lines(output: &Output) -> MultiProgress {
    MultiProgress::with_draw_target(target(output))
}

/// [`spinner`] for a command that waits; it moves until it is dropped.
pub fn waiting(output: &Output) -> ProgressBar {
    let bar = spinner(output).with_finish(ProgressFinish::AndClear);
    bar.enable_steady_tick(TICK);
    bar
}

/// A session's host at the command line.
pub struct Watch<'a> {
    output: &'a Output,
    bar: ProgressBar,
    asks: bool,
    /// Its name among several; a session alone has none.
    name: Option<String>,
    seen: Mutex<Seen>,
}

/// What the line is made of.
#[derive(Default)]
struct Seen {
    /// The next transcript line to print with `--json`.
    next: u64,
    budget: Option<Figures>,
    doing: String,
    streamed: usize,
}

struct Figures {
    seconds: u64,
    iterations: (u64, u64),
    branches: (u64, u64),
}

impl<'a> Watch<'a> {
    /// A host that shows its line where somebody looks, and asks where `asks` says that somebody is there.
    pub fn new(output: &'a Output, asks: bool) -> Self {
        Self { output, bar: spinner(output), asks, name: None, seen: Mutex::new(Seen::default()) }
    }

    /// The host of one of several sessions: no question is put, every remark has its name, and with `--json` its
    /// transcript is not printed.
    pub fn among(output: &'a Output, lines: &MultiProgress, name: String) -> Self {
        let bar = ProgressBar::new_spinner().with_finish(ProgressFinish::AndClear);
        let bar = styled(lines.add(bar));
        Self { output, bar, asks: false, name: Some(name), seen: Mutex::new(Seen::default()) }
    }

    /// The line itself, for remarks from elsewhere.
    pub fn bar(&self) -> ProgressBar {
        self.bar.clone()
    }

    /// Begins to show the line.
    pub fn start(&self) {
        self.bar.reset();
        self.bar.enable_steady_tick(TICK);
    }

    /// Prints the lines that were written before the session had a host, with `--json`; those before `first`
    /// are an earlier run's.
    pub fn catch_up(&self, lines: &[Line], first: u64) {
        self.update(|seen| seen.next = first);
        lines.iter().for_each(|line| self.event(line));
    }

    /// Prints a transcript line, once.
    fn event(&self, line: &Line) {
        let mut seen = self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if self.output.json && line.seq >= seen.next {
            seen.next = line.seq + 1;
            if let Ok(json) = serde_json::to_string(line) {
                self.output.line(&json);
            }
        }
    }

    /// Takes the line away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn named(&self, text: &str) -> String {
        self.name.as_ref().map_or_else(|| text.to_owned(), |name| format!("{name}: {text}"))
    }

    fn update(&self, change: impl FnOnce(&mut Seen)) {
        let mut seen = self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        change(&mut seen);
        self.bar.set_message(self.named(&seen.message()));
    }
}

impl Seen {
    fn message(&self) -> String {
        let mut text = String::new();
        if let Some(f) = &self.budget {
            text = format!(
                "/ {}:{:02} | {}/{} iterations | {}/{} branches | ",
                f.seconds / 60,
                f.seconds % 60,
                f.iterations.0,
                f.iterations.1,
                f.branches.0,
                f.branches.1
            );
        }
        text.push_str(&self.doing);
        if self.streamed > 0 {
            text.push_str(&format!(" ({} so far)", self.streamed));
        }
        text
    }
}

impl Host for Watch<'_> {
    fn line(&self, line: &Line, state: &State, ledger: &Ledger) {
        log(line, state);
        if self.output.json {
            if self.name.is_none() {
                self.event(line);
            }
            return;
        }
        let (budget, spent) = (ledger.budget(), ledger.settled());
        self.update(|seen| {
            seen.budget = Some(Figures {
                seconds: budget.time_seconds,
                iterations: (spent.iterations, budget.max_iterations),
                branches: (spent.branches, budget.max_branches),
            });
        });
        if let Some(remark) = remark(&line.event)
            && !self.output.quiet
        {
            self.bar.suspend(|| self.output.remark(&self.named(&remark)));
        }
    }

    fn busy(&self, what: &str) {
        let doing: String = one_line(what).chars().take(DOING).collect();
        self.update(|seen| (seen.doing, seen.streamed) = (doing, 0));
    }

    fn streaming(&self, amount: usize, _: &str) {
        self.update(|seen| seen.streamed = amount);
    }

    fn answer(&self, question: &str) -> Option<String> {
        if !self.asks {
            return None;
        }
        let ask = || self.output.ask(&format!("the model asks: {}\n>", plain(question)));
        self.bar.suspend(ask).filter(|answer| !answer.is_empty())
    }
}

/// Logs a transcript line: what was done as an action, all others for whoever wants everything.
fn log(line: &Line, state: &State) {
    let (session, seq) = (state.start.session.short(), line.seq);
    match told(&line.event) {
        Some(what) => tracing::info!(session, seq, "{what}"),
        None => {
            let kind = serde_json::to_value(&line.event).ok();
            let kind = kind.as_ref().and_then(|value| value["kind"].as_str()).unwrap_or_default();
            tracing::debug!(session, seq, "{kind}");
        }
    }
}

/// An event as a log tells it, if it is an action.
fn told(event: &Event) -> Option<String> {
    Some(match event {
        Event::SessionStart(start) => {
            format!(
                "session on {} with {} {}",
                start.photo,
                one_line(&start.provider),
                one_line(&start.model)
            )
        }
        Event::ModelReply { settled, ms, .. } => {
            format!("the model answered after {:.1} s, {} tokens", *ms as f64 / 1000.0, settled.tokens)
        }
        Event::ToolCall(call) => format!("tool {}", one_line(&call.call.name)),
        Event::ToolResult { result, code: Some(code), .. } => {
            format!("tool {} failed: {code:?}", one_line(&result.name))
        }
        Event::Render { error: Some(error), .. } => format!("render failed: {}", one_line(error)),
        Event::Render { ms, long_edge, .. } => {
            format!("rendered {long_edge} pixels in {:.1} s", *ms as f64 / 1000.0)
        }
        Event::SessionEnd(end) => format!("session ended: {}", end.outcome.as_str()),
        other => remark(other)?,
    })
}

/// The remark about an event that is to stay on the screen, if any.
fn remark(event: &Event) -> Option<String> {
    Some(match event {
        Event::Judgment(judgment) => format!(
            "{}: {}/5{}",
            judgment.branch,
            judgment.judged_score,
            if judgment.abandoned { ", abandoned" } else { "" }
        ),
        Event::SnapshotCreated { name, op, .. } => {
            format!("{}: {}", name.rsplit('/').next().unwrap_or(name), one_line(op))
        }
        Event::Attempt { message, pause_ms: Some(pause), .. } => {
            format!("{}; retrying in {:.1} s", one_line(message), *pause as f64 / 1000.0)
        }
        Event::Attempt { message, .. } => one_line(message),
        Event::Fallback { to, .. } => {
            format!("{} {} goes on", one_line(&to.provider), one_line(&to.model))
        }
        Event::CapFired { exhausted } => exhausted.words(),
        Event::WrapUp { reason, .. } => format!("wrapping up: {}", one_line(reason.as_str())),
        Event::Brief { state, attempt, attempts, .. } => {
            let again =
                if *attempt > 1 { format!(", attempt {attempt} of {attempts}") } else { String::new() };
            format!("state {}{again}", one_line(state))
        }
        Event::Protocol { state, text, .. } if !text.is_empty() => {
            format!("{}: checks {}", one_line(state), one_line(text))
        }
        Event::Referee(reply) => match (&reply.opinion, &reply.error) {
            (Some(said), _) => {
                let word = said["verdict"].as_str().or(said["ruling"].as_str()).unwrap_or_default();
                format!("referee: {}", one_line(word))
            }
            (None, error) => format!("referee: {}", one_line(error.as_deref().unwrap_or_default())),
        },
        Event::Flagged { branch, flag: Flag::Disputed } => format!("{branch}: disputed by the referee"),
        Event::Flagged { branch, .. } => format!("{branch}: no second opinion"),
        Event::Gap { description } => format!("missing move: {}", one_line(description)),
        _ => return None,
    })
}
