//! `--generate`: a protocol that the model writes from a goal, shown before it runs.

use serde_json::json;

use super::failure::Failure;
use super::progress;
use super::protocol::{as_json, as_text};
use super::run::RunOptions;
use super::setup::App;
use super::signals;
use crate::launch::Runner;
use crate::protocol::schema::Trust;
use crate::protocol::variables::Values;
use crate::review::{line, plain};
use crate::session::generate::{self, GenerateError, GenerateRequest, UNUSABLE_STATUS, Watcher, Written};
use crate::session::protocols::ProtocolSource;
use crate::session::start::{Request, Setup};
use base::error::ErrorCode;

/// The spinner, which says what is being done.
struct Spinner<'a> {
    app: &'a App,
    bar: indicatif::ProgressBar,
}

impl Watcher for Spinner<'_> {
    fn busy(&self, what: &str) {
        self.bar.set_message(crate::review::line(what));
    }

    fn remark(&self, text: &str) {
        self.bar.suspend(|| self.app.output.remark(&plain(text)));
    }
}

fn generate_request(app: &App, goal: &str, vars: &[(String, String)]) -> GenerateRequest {
    let mut values = Values::default();
    for (name, value) in vars {
        values.set(name, value.as_str(), Trust::User);
    }
    GenerateRequest { goal: goal.to_owned(), values, allowed: None, folder: app.folders.protocols() }
}

/// Prints what the model would be sent, and spends nothing.
pub fn dry_run(app: &App, setup: &Setup, request: &Request, goal: &str) -> Result<u8, Failure> {
    let prompt = generate::first_prompt(setup, request, &generate_request(app, goal, &[]))?;
    let result = json!({
        "prompt": prompt.prompt, "system": prompt.system, "message": prompt.message,
        "at_most": { "model_calls": generate::MAX_CALLS },
    });
    app.output.result(&result, || {
        format!(
            "# System prompt ({})\n\n{}\n\n# First message\n\n{}\n\nAt most {} model calls. Nothing was sent and nothing was spent.\n",
            prompt.prompt,
            plain(&prompt.system),
            plain(&prompt.message),
            generate::MAX_CALLS
        )
    })?;
    Ok(0)
}

/// Has the protocol written, shows it, and asks whether it may run. What writing it spent is taken off the
/// request's budget.
pub fn write(
    app: &App,
    setup: &Setup,
    request: &mut Request,
    goal: &str,
    args: &RunOptions,
) -> Result<ProtocolSource, Failure> {
    let runner = Runner::new()?;
    let bar = progress::waiting(&app.output);
    let (output, above) = (app.output.clone(), bar.clone());
    let watcher = Spinner { app, bar };
    let written = runner.block_on(async {
        signals::listen(setup.stop.clone(), move |_| {
            above.suspend(|| output.remark("stopping: the protocol will not run"))
        })?;
        let wanted = generate_request(app, goal, &args.vars);
        generate::generate(setup, request, &wanted, &watcher).await.map_err(|error| {
            let unusable = matches!(error, GenerateError::Unusable { .. });
            let failure = Failure::from(error);
            if unusable { failure.status(UNUSABLE_STATUS) } else { failure }
        })
    });
    drop(watcher);
    let written = written?;
    show(app, &written);
    if !args.yes {
        confirm(app, &written, setup)?;
    }
    request.budget = written.left;
    Ok(written.source)
}

fn show(app: &App, written: &Written) {
    let Written { name, path, remarks, spent, transcript, .. } = written;
    if app.output.json {
        let result = json!({ "kind": "written", "name": name, "file": path, "remarks": remarks,
            "spent": spent, "left": written.left, "transcript": transcript,
            "protocol": as_json(&written.protocol, &written.source.file) });
        return app.output.line(&result.to_string());
    }
    app.output.remark(&format!("The model wrote this protocol (saved as {}):\n", path.display()));
    app.output.remark(&as_text(&written.protocol));
    for remark in remarks {
        app.output.remark(&format!("note: {}", line(remark)));
    }
    app.output.remark(&format!(
        "Writing it took {} model call{}, deducted from the budget.",
        spent.model_calls,
        if spent.model_calls == 1 { "" } else { "s" }
    ));
}

fn confirm(app: &App, written: &Written, setup: &Setup) -> Result<(), Failure> {
    let name = &written.name;
    let (photo, info) = (setup.workspace.id(), setup.provider.info());
    let by = format!("--provider {} --model {}", info.provider, info.model);
    let again = format!("`chemigram run-protocol {name} --photo {photo} {by} --yes` runs it");
    if !app.output.can_ask() {
        let message =
            format!("the protocol is saved as `{name}` but was not run: there is no terminal to confirm it");
        return Err(Failure::new(ErrorCode::SessionNotConfirmed, message).remedy(again));
    }
    let answer = app.output.ask("\nRun it? [yes/no]").unwrap_or_default();
    // Ctrl-C is handled by now, and does not end the question: it counts as a no, whatever is typed after it.
    let yes = matches!(answer.to_lowercase().as_str(), "y" | "yes") && !setup.stop.soft.is_cancelled();
    if !yes {
        let message = format!("not run; the protocol is saved as `{name}`");
        return Err(Failure::new(ErrorCode::SessionNotConfirmed, message).remedy(again));
    }
    Ok(())
}
