//! The end of a conversation: what is remembered, and what was made.

use serde_json::json;

use super::{Input, Typed};
use crate::cli::failure::Failure;
use crate::cli::learn;
use crate::cli::setup::App;
use crate::review::{count, line, plain, wrap};
use crate::session::listing;
use crate::transcript::SessionEnd;
use base::ids::{PhotoId, SessionId};
use engine::photo::{Proposal, ProposalKind};

/// Lets the person answer what the conversation proposes to remember.
pub fn look_back(app: &App, id: &SessionId, input: &mut Input) -> Result<(), Failure> {
    let (workspace, _) = app.session(id.as_str())?;
    let mut open = workspace.pending_proposals()?;
    open.retain(|proposal| proposal.session.as_ref() == Some(id));
    if open.is_empty() {
        return Ok(());
    }
    if !app.output.can_ask() {
        app.output.remark(&format!(
            "{} to be answered: `chemigram proposals list {}`",
            count(open.len() as u64, "proposal"),
            workspace.id()
        ));
        return Ok(());
    }
    for proposal in open {
        show_proposal(app, &proposal);
        answer(app, workspace.id(), &proposal, input)?;
    }
    Ok(())
}

fn show_proposal(app: &App, proposal: &Proposal) {
    let proposed = &proposal.proposed;
    let what = match proposed.kind {
        ProposalKind::Taste => format!("your taste, {}", proposed.file.as_deref().unwrap_or("_default.md")),
        ProposalKind::Notes => "the photo's notes".to_owned(),
    };
    app.output.text(&format!("\nTo remember in {}:", line(&what)));
    for row in wrap(&plain(&proposed.text), app.output.style().width.saturating_sub(2)) {
        app.output.text(&format!("  {row}"));
    }
}

fn answer(app: &App, photo: &PhotoId, proposal: &Proposal, input: &mut Input) -> Result<(), Failure> {
    loop {
        app.output.say("[a]ccept, [e]dit, [d]ecline, or Enter for later");
        let typed = input.read();
        let said = match &typed {
            Typed::Words(words) => words.to_lowercase(),
            Typed::Command(word, _) => word.clone(),
            Typed::Nothing | Typed::Leave => return Ok(()),
        };
        let mut writer = app.writer(photo, "answer a proposal")?;
        match said.as_str() {
            "a" | "accept" | "y" | "yes" => {
                let (_, text) = learn::accept(app, &mut writer, &proposal.id, None)?;
                app.output.say(text.trim());
                return Ok(());
            }
            "e" | "edit" => {
                app.output.say("write it as it should be remembered:");
                if let Typed::Words(words) = input.read() {
                    let (_, text) = learn::accept(app, &mut writer, &proposal.id, Some(&words))?;
                    app.output.say(text.trim());
                    return Ok(());
                }
            }
            "d" | "decline" | "n" | "no" => {
                writer.decline_proposal(&proposal.id, "")?;
                app.output.say("declined");
                return Ok(());
            }
            _ => {}
        }
    }
}

/// The closing line: what was made, what it took, and what can be done with it.
pub fn closing(app: &App, id: &SessionId, end: &SessionEnd) -> Result<(), Failure> {
    let (workspace, _) = app.session(id.as_str())?;
    let session = listing::read(&workspace, id)?;
    let state = &session.state;
    let branch = state.head.branch.as_ref().map(ToString::to_string).unwrap_or_default();
    let changed = state.head.commit != state.start.baseline;
    let tag = state.ending.as_ref().and_then(|(_, tag)| tag.clone());
    let promote = match (&tag, changed) {
        (_, false) => None,
        (Some(tag), true) => Some(format!("chemigram promote {} {branch} --tag {tag}", workspace.id())),
        (None, true) => Some(format!("chemigram promote {} {branch} --to-main", workspace.id())),
    };
    let value = json!({
        "kind": "result", "session": id, "branch": branch, "commit": state.head.commit, "outcome": end.outcome,
        "summary": end.summary, "tag_suggestion": tag, "spent": end.spent, "next": promote,
    });
    if app.output.json {
        app.output.object(&value);
        return Ok(());
    }
    if !end.summary.is_empty() {
        app.output.text(&line(&end.summary));
    }
    if !end.reason.is_empty() {
        app.output.text(&line(&end.reason));
    }
    app.output.text(&format!(
        "done: {}, {}, {} minutes; branch {branch}{}",
        count(state.replies_heard(), "answer"),
        count(end.spent.renders, "render"),
        end.wall_ms.div_ceil(60_000),
        if changed { "" } else { " is as it began" },
    ));
    if let Some(promote) = promote {
        app.output.text(&format!("to keep it: {promote}"));
    }
    Ok(())
}
