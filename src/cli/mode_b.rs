//! `mode-b`: sessions that are over, or run elsewhere.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::failure::Failure;
use super::setup::{App, CACHE_LIMIT};
use super::{images, progress, prune, signals, watch};
use crate::provider::explorer::Explorer;
use crate::review::{ReviewModel, line as plain, status_lines, summary_line, text};
use crate::session;
use crate::session::listing::{self, Condition};
use crate::session::next::StopRequest;
use crate::session::replay::{Difference, Proof, Replay};
use crate::traces::{self, Content};
use base::clock::{Cancel, Stop};
use base::durable;
use base::error::ErrorCode;
use base::ids::{PhotoId, SessionId};
use clap::Subcommand;
use darktable::cache::Cache;
use darktable::proxy::Choice;
use engine::photo::Workspace;
use serde_json::json;

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum SessionVerb {
    /// List the sessions, newest first
    List {
        /// Only those of this photo
        photo: Option<PhotoId>,
    },
    /// Show a session's state in a few lines
    Status {
        /// The session: at least four characters of its id, or `last`
        session: String,
    },
    /// Show the review of a session: branches, scores, measurements, next steps
    Show {
        /// The session: at least four characters of its id, or `last`
        session: String,
        /// Show its pictures, too, in a terminal that can (kitty, iTerm2, WezTerm, Ghostty; in others as coloured blocks)
        #[arg(long)]
        images: bool,
    },
    /// Repeat a session from its transcript in a scratch copy and compare every commit and pixel
    Replay {
        /// The session: at least four characters of its id, or `last`
        session: String,
    },
    /// Write the trace of a session as OTLP/JSON, or send it to an OpenTelemetry collector
    Otel {
        /// The session: at least four characters of its id, or `last`
        session: String,
        /// Write it to this file [default: to standard output]
        #[arg(long, short, value_name = "FILE", conflicts_with = "endpoint")]
        output: Option<PathBuf>,
        /// Send it to the collector at this address, such as http://localhost:4318
        #[arg(long, value_name = "URL")]
        endpoint: Option<String>,
    },
    /// Ask a running session to wrap up; a second time, to stop at once
    Stop {
        /// The session: at least four characters of its id, or `last`
        session: String,
    },
    /// Watch running sessions: what they do, their pictures and scores, and how much budget is left
    Watch {
        /// Only this session: at least four characters of its id, or `last` [default: all that run]
        session: Option<String>,
        /// Print how they stand now, and end
        #[arg(long)]
        once: bool,
    },
    /// Delete a session that is over: its transcript, its pictures, and branches that it gave up
    Delete {
        /// The session: at least four characters of its id, or `last`
        session: String,
        /// Delete all its branches, too, unless they were changed since
        #[arg(long)]
        branches: bool,
        /// Only say what would be deleted
        #[arg(long)]
        dry_run: bool,
        /// Delete without asking
        #[arg(long, short)]
        yes: bool,
    },
}

pub fn mode_b(app: &App, verb: &SessionVerb) -> Result<u8, Failure> {
    let style = app.output.style();
    match verb {
        SessionVerb::List { photo } => {
            let sessions = listing::list(&app.library, photo.as_ref())?;
            if sessions.is_empty() {
                app.output.remark("no sessions yet; `chemigram run-mode-b --help` explains how to run one");
            }
            app.output.styled(&sessions, || {
                sessions.iter().map(|s| format!("{}\n", summary_line(s, style))).collect()
            })?;
        }
        SessionVerb::Status { session } => {
            let (workspace, id) = app.session(session)?;
            let summary = listing::summary(&workspace, &id);
            app.output.styled(&summary, || status_lines(&summary, style))?;
        }
        SessionVerb::Show { session, images } => {
            let (workspace, id) = app.session(session)?;
            let model = show_session(app, &workspace, &id)?;
            if *images {
                images::show(app, &model)?;
            }
        }
        SessionVerb::Stop { session } => stop(app, session)?,
        SessionVerb::Watch { session, once } => return watch::watch(app, session.as_deref(), *once),
        SessionVerb::Delete { session, branches, dry_run, yes } => {
            return prune::delete_session(app, session, *branches, *dry_run, *yes);
        }
        SessionVerb::Replay { session } => return replay(app, session),
        SessionVerb::Otel { session, output, endpoint } => {
            trace(app, session, output.as_deref(), endpoint.as_deref())?;
        }
    }
    Ok(0)
}

/// Shows the review of a session.
pub fn show_session(app: &App, workspace: &Workspace, id: &SessionId) -> Result<ReviewModel, Failure> {
    let session = listing::read(workspace, id)?;
    let model = ReviewModel::of(workspace, &session)?;
    app.output.styled(&model, || text(&model, app.output.style()))?;
    Ok(model)
}

/// Repeats a session, and reports what that proves.
fn replay(app: &App, part: &str) -> Result<u8, Failure> {
    let (workspace, id) = app.session(part)?;
    let begun = listing::read(&workspace, &id)?.state.start;
    let scratch = tempfile::tempdir()
        .map_err(|e| Failure::new(ErrorCode::StateError, format!("cannot create a temporary folder: {e}")))?;
    let (runner, cut) = signals::cancelling()?;
    let stop = Stop { soft: cut, hard: Cancel::default() };
    let renderer = app.steady_renderer_with(Cache::new(scratch.path().join("renders"), CACHE_LIMIT))?;
    let mut launcher = app.launcher(None)?;
    launcher.renderer = Box::new(move || Ok(renderer.clone()));
    // No model is called.
    let mut setup = launcher.setup(workspace, Arc::new(Explorer::new(begun.seed)), 1, stop)?;
    launcher.preview_from_copy(
        &mut setup,
        begun.proxy.map_or(Choice::Off, Choice::By),
        begun.preview_edge,
    )?;
    let bar = progress::waiting(&app.output);
    let progress = |done, all| bar.set_message(format!("step {} of {all}", done + 1));
    let found = session::replay::replay(setup, &id, scratch.path(), &progress)?;
    bar.finish_and_clear();
    drop(runner);
    app.output.result(&found, || replayed(&found))?;
    Ok(match found.proof {
        Proof::SamePixels | Proof::SameEdits => 0,
        Proof::Differs => ErrorCode::VersioningError.exit_status(),
    })
}

fn replayed(found: &Replay) -> String {
    let Replay { calls, commits, pictures, darktable: [then, now], .. } = found;
    let calls = format!("{calls} calls repeated, {commits} commits identical");
    match (&found.difference, found.proof) {
        (Some(Difference { line, what }), _) => {
            format!(
                "different at line {line} of the transcript: {}\n{calls}, {pictures} pictures identical\n",
                plain(what)
            )
        }
        (None, Proof::SameEdits) => {
            format!(
                "same edits; pictures not compared: darktable {now} is installed, the session used {then}\n{calls}\n"
            )
        }
        (None, _) => format!("same pixels: {calls}, {pictures} pictures identical\n"),
    }
}

/// Writes the trace of a session, or sends it.
fn trace(app: &App, part: &str, output: Option<&Path>, endpoint: Option<&str>) -> Result<(), Failure> {
    let (workspace, id) = app.session(part)?;
    let spans = traces::spans(&listing::read(&workspace, &id)?.lines, Content::from_env());
    let count = spans.len();
    let to = match (output, endpoint) {
        (None, None) => {
            let otlp = traces::json(spans)?;
            return app.output.result(&otlp, || otlp.to_string());
        }
        (_, Some(endpoint)) => {
            traces::send(&spans, endpoint)?;
            endpoint.to_owned()
        }
        (Some(file), None) => {
            let text = format!("{}\n", traces::json(spans)?);
            durable::write(file, text.as_bytes()).map_err(|e| Failure::file("write", file, &e))?;
            file.display().to_string()
        }
    };
    let told = json!({ "session": id, "spans": count, "to": to });
    app.output.result(&told, || format!("{count} spans of session {} are at {to}\n", id.short()))
}

/// Asks a session that another process runs to wrap up; the second time, to stop at once.
fn stop(app: &App, part: &str) -> Result<(), Failure> {
    let (workspace, id) = app.session(part)?;
    let condition = listing::summary(&workspace, &id).condition;
    let Condition::Running { pid } = condition else {
        let message = format!("session {id} is not running: it is {}", condition.word());
        return Err(Failure::new(ErrorCode::StateError, message));
    };
    let at_once = listing::ask_to_stop(&workspace, &id)? == StopRequest::Now;
    app.output.result(&json!({ "session": id, "asked": true, "at_once": at_once, "pid": pid }), || {
        let what = if at_once { "to stop at once" } else { "to wrap up" };
        format!(
            "asked session {} {what}; see its review with `chemigram mode-b show {}`\n",
            id.short(),
            id.short()
        )
    })
}
