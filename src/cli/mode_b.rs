//! `mode-b`: sessions that are over, or run elsewhere.

use super::args::SessionVerb;
use super::failure::Failure;
use super::setup::App;
use crate::error::ErrorCode;
use crate::ids::SessionId;
use crate::photo::Workspace;
use crate::review::{ReviewModel, summary_line, text};
use crate::session::listing::{self, Condition};
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
            app.output.result(&sessions, || {
                sessions.iter().map(|s| format!("{}\n", summary_line(s, style))).collect()
            })
        }
        SessionVerb::Status { session } => {
            let (workspace, id) = app.session(session)?;
            let summary = listing::summary(&workspace, &id);
            app.output.result(&summary, || format!("{}\n", summary_line(&summary, style)))
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
    app.output.result(&model, || text(&model, app.output.style()))
}

/// Asks a session that another process runs to wrap up.
fn stop(app: &App, part: &str) -> Result<(), Failure> {
    let (workspace, id) = app.session(part)?;
    let condition = listing::summary(&workspace, &id).condition;
    let Condition::Running { pid } = condition else {
        let message = format!("session {id} does not run: it is {}", condition.word());
        return Err(Failure::new(ErrorCode::StateError, message));
    };
    listing::ask_to_stop(&workspace, &id)?;
    app.output.result(&json!({ "session": id, "asked": true, "pid": pid }), || {
        format!(
            "session {} is asked to wrap up; `chemigram mode-b show {}` shows what it brings\n",
            id.short(),
            id.short()
        )
    })
}
