//! `mode-b`: sessions that are over, or run elsewhere.

use super::args::SessionVerb;
use super::failure::Failure;
use super::setup::App;
use crate::error::ErrorCode;
use crate::ids::SessionId;
use crate::photo::Workspace;
use crate::review::{ReviewModel, summary_line, text};
use crate::session::listing::{self, Condition};
use crate::session::state::Halt;
use serde_json::json;

/// `mode-b`.
pub fn mode_b(app: &App, verb: &SessionVerb) -> Result<(), Failure> {
    let style = app.output.style();
    match verb {
        SessionVerb::List { photo } => {
            let sessions = listing::list(&app.library, photo.as_ref())?;
            if sessions.is_empty() {
                app.output.remark("no sessions yet: `chemigram run-mode-b --help` says how to run one");
            }
            app.output.styled(&sessions, || {
                sessions.iter().map(|s| format!("{}\n", summary_line(s, style))).collect()
            })
        }
        SessionVerb::Status { session } => {
            let (workspace, id) = app.session(session)?;
            let summary = listing::summary(&workspace, &id);
            app.output.styled(&summary, || format!("{}\n", summary_line(&summary, style)))
        }
        SessionVerb::Show { session } => {
            let (workspace, id) = app.session(session)?;
            show_session(app, &workspace, &id)
        }
        SessionVerb::Stop { session } => stop(app, session),
    }
}

/// Shows the review of a session.
pub fn show_session(app: &App, workspace: &Workspace, id: &SessionId) -> Result<(), Failure> {
    let session = listing::read(workspace, id)?;
    let model = ReviewModel::of(workspace, &session)?;
    app.output.styled(&model, || text(&model, app.output.style()))
}

/// Asks a session that another process runs to wrap up; asked again, to stop at once.
fn stop(app: &App, part: &str) -> Result<(), Failure> {
    let (workspace, id) = app.session(part)?;
    let condition = listing::summary(&workspace, &id).condition;
    let Condition::Running { pid } = condition else {
        let message = format!("session {id} does not run: it is {}", condition.word());
        return Err(Failure::new(ErrorCode::StateError, message));
    };
    let at_once = listing::ask_to_stop(&workspace, &id)? == Halt::Now;
    app.output.result(&json!({ "session": id, "asked": true, "at_once": at_once, "pid": pid }), || {
        let what = if at_once { "to stop at once" } else { "to wrap up" };
        format!(
            "session {} is asked {what}; `chemigram mode-b show {}` shows what it brings\n",
            id.short(),
            id.short()
        )
    })
}
