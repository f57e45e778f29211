//! `mode-b watch`: a live view of sessions that run, in this process or another, from their transcripts alone.

use std::collections::BTreeMap;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use schemars::JsonSchema;
use serde::Serialize;

use super::failure::Failure;
use super::progress;
use super::setup::App;
use super::signals;
use crate::review::{CapUse, ReviewModel, count, line};
use crate::session::listing::{self, Condition, Session};
use crate::transcript::{Event, Line};
use base::ids::{PhotoId, SessionId};
use engine::photo::Workspace;

/// How often the transcripts are looked at.
const EVERY: Duration = Duration::from_millis(500);

/// The longest text of what is being done.
const DOING: usize = 60;

/// A session at a moment.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Moment {
    /// Its id.
    pub session: SessionId,
    /// Its photo.
    pub photo: PhotoId,
    /// How it stands.
    #[serde(flatten)]
    pub condition: Condition,
    /// Who works.
    pub model: String,
    /// What it is doing, in words.
    pub doing: String,
    /// Milliseconds of its time that are left at most; other caps may end it sooner.
    pub left_ms: u64,
    /// Pictures rendered so far.
    pub pictures: u64,
    /// Each branch with its score; absent while it has none.
    pub branches: BTreeMap<String, Option<u8>>,
    /// How far each cap is used.
    pub budget: Vec<CapUse>,
}

impl Moment {
    fn of(workspace: &Workspace, id: &SessionId) -> Result<Self, Failure> {
        let session = listing::read(workspace, id)?;
        let review = ReviewModel::of(workspace, &session)?;
        let limit = session.ledger.budget().time_seconds.saturating_mul(1000);
        let branches = session.state.branches.iter();
        Ok(Self {
            session: id.clone(),
            photo: workspace.id().clone(),
            doing: doing(&session),
            model: format!("{} {}", session.state.start.provider, session.state.start.model),
            left_ms: limit.saturating_sub(review.elapsed_ms),
            pictures: session.ledger.settled().renders,
            branches: branches
                .map(|b| (b.name.to_string(), b.judgment.as_ref().map(|j| j.judged_score)))
                .collect(),
            budget: review.budget,
            condition: session.condition,
        })
    }

    fn is_over(&self) -> bool {
        !matches!(self.condition, Condition::Running { .. })
    }

    /// The cap that is used furthest, in thousandths.
    fn used(&self) -> u64 {
        let share = |cap: &CapUse| cap.limit.map(|limit| cap.used.saturating_mul(1000) / limit.max(1));
        self.budget.iter().filter_map(share).max().unwrap_or(0).min(1000)
    }

    /// What goes below the bar.
    fn rows(&self) -> [String; 3] {
        let left = self.left_ms / 1000;
        let left =
            if self.is_over() { String::new() } else { format!("{}:{:02} left | ", left / 60, left % 60) };
        let caps = self.budget.iter().filter(|cap| cap.limit.is_some()).map(|cap| cap.words.clone());
        let branches = self.branches.iter().map(|(name, score)| match score {
            Some(score) => format!("{} {score}/5", line(name)),
            None => format!("{} …", line(name)),
        });
        let branches: Vec<String> = branches.collect();
        let made = if branches.is_empty() { "no branch yet".to_owned() } else { branches.join(", ") };
        [
            format!("{} {}  {}", self.photo, self.session.short(), line(&self.model)),
            format!("  {left}{}", caps.take(3).collect::<Vec<_>>().join(" | ")),
            format!("  {} | {made} | {}", count(self.pictures, "picture"), self.doing),
        ]
    }
}

/// What a session is doing, by its last line.
fn doing(session: &Session) -> String {
    if !matches!(session.condition, Condition::Running { .. }) {
        return session.condition.word().to_owned();
    }
    let words = session.lines.iter().rev().find_map(|Line { event, .. }| match event {
        Event::ModelIntent(_) => Some("waiting for the model".to_owned()),
        Event::ToolCall(call) => Some(format!("runs {}", call.call.name)),
        Event::CountIntent(_) => Some("asking for the tokens of the next call".to_owned()),
        Event::RenderIntent(_) => Some("rendering".to_owned()),
        Event::RefereeIntent(_) => Some("asking the referee".to_owned()),
        Event::Attempt { message, .. } => Some(message.clone()),
        Event::WrapUp { .. } => Some("finishing".to_owned()),
        Event::SnapshotCreated { op, .. } => Some(op.clone()),
        Event::ModelReply { .. } => Some("reading the model's reply".to_owned()),
        Event::ToolResult { result, .. } => Some(format!("{} is done", result.name)),
        Event::SessionStart(_) => Some("planning".to_owned()),
        _ => None,
    });
    line(&words.unwrap_or_default()).chars().take(DOING).collect()
}

/// One session on the screen: a bar and three rows.
struct View {
    bar: ProgressBar,
    last: Option<Moment>,
}

impl View {
    fn new(lines: &MultiProgress) -> Self {
        let bar = lines.add(ProgressBar::new(1000));
        let style =
            ProgressStyle::with_template("{prefix:.bold}\n  [{bar:40}] {percent} % of the budget\n{msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
        Self { bar, last: None }
    }

    fn show(&mut self, app: &App, moment: Moment, live: bool) {
        if self.last.as_ref() == Some(&moment) {
            return;
        }
        let width = app.output.style().width;
        let [title, budget, made] = moment.rows().map(|row| row.chars().take(width).collect::<String>());
        if live {
            self.bar.set_prefix(title);
            self.bar.set_position(moment.used());
            self.bar.set_message(format!("{budget}\n{made}"));
        } else if app.output.json {
            app.output.object(&moment);
        } else {
            let used = format!("  {} % of the budget", moment.used() / 10);
            app.output.text(&format!("{title}\n{used}\n{budget}\n{made}"));
        }
        self.last = Some(moment);
    }
}

/// Watches one session, or all that run, until they are over or the person has seen enough.
pub fn watch(app: &App, part: Option<&str>, once: bool) -> Result<u8, Failure> {
    let mut watched: Vec<(Workspace, SessionId)> = match part {
        Some(part) => vec![app.session(part)?],
        None => running(app)?,
    };
    if watched.is_empty() {
        app.output.remark("no session is running; `chemigram mode-b list` lists those that are over");
        return Ok(0);
    }
    let (_runner, cancel) = signals::cancelling()?;
    let live = app.output.shows_progress() && !once;
    let hidden = || MultiProgress::with_draw_target(ProgressDrawTarget::hidden());
    let lines = if live { progress::lines(&app.output) } else { hidden() };
    let mut views: Vec<View> = watched.iter().map(|_| View::new(&lines)).collect();
    loop {
        for ((workspace, id), view) in watched.iter().zip(&mut views) {
            // A line that is just being written is read the next time.
            match Moment::of(workspace, id) {
                Ok(moment) => view.show(app, moment, live),
                Err(error) if view.last.is_none() => return Err(error),
                Err(error) => tracing::debug!(message = error.message(), "a session was not read"),
            }
        }
        let over = views.iter().all(|view| view.last.as_ref().is_some_and(Moment::is_over));
        if once || over || cancel.is_cancelled() {
            break;
        }
        std::thread::sleep(EVERY);
        if part.is_none() {
            for (workspace, id) in running(app)? {
                if watched.iter().all(|(_, known)| *known != id) {
                    watched.push((workspace, id));
                    views.push(View::new(&lines));
                }
            }
        }
    }
    if live {
        views.iter().for_each(|view| view.bar.abandon());
    }
    let last = views.iter().filter_map(|view| view.last.as_ref()).filter(|moment| moment.is_over());
    for moment in last {
        app.output.remark(&format!("see its review with `chemigram mode-b show {}`", moment.session.short()));
    }
    Ok(0)
}

fn running(app: &App) -> Result<Vec<(Workspace, SessionId)>, Failure> {
    let ids = listing::running(&app.library)?;
    ids.into_iter().map(|(photo, id)| Ok((app.photo(&photo)?, id))).collect()
}
