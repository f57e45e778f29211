//! The end of a conversation: what is remembered, and what was made.

use serde_json::json;

use super::input::{Input, Typed};
use crate::cli::failure::Failure;
use crate::cli::learn;
use crate::cli::setup::App;
use crate::review::{count, line, plain, wrap};
use crate::session::answers;
use crate::session::listing::{self, Session};
use crate::tools;
use crate::transcript::{Event, SessionEnd};
use base::ids::{PhotoId, RefName, SessionId};
use engine::photo::{Proposal, ProposalKind, ProposalStatus, Workspace};

/// Whether a conversation has proposals that nobody has answered.
pub fn waits(workspace: &Workspace, id: &SessionId) -> Result<bool, Failure> {
    Ok(workspace.pending_proposals()?.iter().any(|proposal| proposal.session.as_ref() == Some(id)))
}

/// Lets the person answer what the conversation proposes to remember, and the tag that it suggests.
pub fn look_back(app: &App, id: &SessionId, input: &mut Input) -> Result<(), Failure> {
    let (workspace, _) = app.session(id.as_str())?;
    let session = listing::read(&workspace, id)?;
    let mut open = workspace.pending_proposals()?;
    open.retain(|proposal| proposal.session.as_ref() == Some(id));
    if !app.output.can_ask() {
        if !open.is_empty() {
            app.output.remark(&format!(
                "{} to be answered: `chemigram proposals list {}`",
                count(open.len() as u64, "proposal"),
                workspace.id()
            ));
        }
        return Ok(());
    }
    for said in &session.lines {
        if let Event::Gap { description } = &said.event {
            app.output.text(&format!("missing move, noted: {}", line(description)));
        }
    }
    for proposal in open {
        show_proposal(app, &proposal);
        answer(app, workspace.id(), &proposal, input)?;
    }
    let state = &session.state;
    let suggested = state.ending.as_ref().and_then(|(_, tag)| tag.clone());
    match suggested.filter(|_| state.head.commit != state.start.baseline) {
        Some(suggested) => tag(app, &workspace, &session, suggested, input),
        None => Ok(()),
    }
}

/// Asks about a tag at the end of the conversation's branch.
fn tag(
    app: &App,
    workspace: &Workspace,
    session: &Session,
    suggested: String,
    input: &mut Input,
) -> Result<(), Failure> {
    app.output.text(&format!("\nTo tag this state: {}", line(&suggested)));
    let mut name = suggested.clone();
    loop {
        let Some(answer) = ask(app, input) else { return Ok(()) };
        let status = match answer {
            Answer::Edit => {
                app.output.say("its name:");
                let Typed::Words(words) = input.read() else { continue };
                name = words;
                ProposalStatus::Accepted { edited: Some(name.clone()).filter(|name| *name != suggested) }
            }
            Answer::Accept => {
                name.clone_from(&suggested);
                ProposalStatus::Accepted { edited: None }
            }
            Answer::Decline => ProposalStatus::Declined { reason: String::new() },
        };
        let mut writer = app.writer(workspace.id(), "answer a proposal")?;
        if matches!(status, ProposalStatus::Accepted { .. }) {
            let made = name.parse::<RefName>().map_err(Failure::from).and_then(|tag| {
                Ok(writer.create_tag(&tag, &session.state.head.commit, "at the end of a conversation")?)
            });
            // A name that is taken or no name: another one is asked for.
            if let Err(failure) = made {
                app.output.say(failure.message());
                continue;
            }
        }
        app.output.say(&line(&status.to_string()));
        return Ok(answers::record_tag(&writer, &session.id, &app.redactor, status)?);
    }
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

/// What a person says to a proposal.
enum Answer {
    Accept,
    Edit,
    Decline,
}

/// Asks until one of the answers is given; `None` for none, which leaves it open.
fn ask(app: &App, input: &mut Input) -> Option<Answer> {
    loop {
        app.output.say("[a]ccept, [e]dit, [d]ecline, or Enter for later");
        let said = match input.read() {
            Typed::Words(words) => words.to_lowercase(),
            Typed::Command(word, _) => word,
            Typed::Nothing | Typed::Leave => return None,
        };
        match said.as_str() {
            "a" | "accept" | "y" | "yes" => return Some(Answer::Accept),
            "e" | "edit" => return Some(Answer::Edit),
            "d" | "decline" | "n" | "no" => return Some(Answer::Decline),
            _ => {}
        }
    }
}

fn answer(app: &App, photo: &PhotoId, proposal: &Proposal, input: &mut Input) -> Result<(), Failure> {
    loop {
        let Some(answer) = ask(app, input) else { return Ok(()) };
        let mut edited = None;
        if matches!(answer, Answer::Edit) {
            app.output.say("write it as it should be remembered:");
            let Typed::Words(words) = input.read() else { continue };
            edited = Some(words);
        }
        let mut writer = app.writer(photo, "answer a proposal")?;
        let (_, said) = match answer {
            Answer::Decline => learn::decline(app, &mut writer, &proposal.id, "")?,
            _ => learn::accept(app, &mut writer, &proposal.id, edited.as_deref())?,
        };
        app.output.say(said.trim());
        return Ok(());
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
    let told = |is: fn(&ProposalStatus) -> bool| {
        let answers = state.answers.iter().filter(|(id, _)| *id != answers::TAG);
        answers.filter(|(_, status)| is(status)).count() as u64
    };
    let accepted = told(|status| matches!(status, ProposalStatus::Accepted { .. }));
    let declined = told(|status| matches!(status, ProposalStatus::Declined { .. }));
    let open = workspace.pending_proposals()?;
    let open = open.iter().filter(|proposal| proposal.session.as_ref() == Some(id)).count() as u64;
    let tagged = matches!(state.answers.get(answers::TAG), Some(ProposalStatus::Accepted { .. }));
    let promote = match (tag.as_ref().filter(|_| !state.answers.contains_key(answers::TAG)), changed) {
        (_, false) => None,
        (Some(tag), true) => Some(format!("chemigram promote {} {branch} --tag {tag}", workspace.id())),
        (None, true) => Some(format!("chemigram promote {} {branch} --to-main", workspace.id())),
    };
    let value = json!({
        "kind": "result", "session": id, "branch": branch, "commit": state.head.commit, "outcome": end.outcome,
        "summary": end.summary, "tag_suggestion": tag, "spent": end.spent, "next": promote,
        "proposals": { "accepted": accepted, "declined": declined, "pending": open },
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
        "done: {}, {}, {} minutes; branch {branch}{}{}",
        count(state.replies_heard(), "answer"),
        count(end.spent.renders, "render"),
        end.wall_ms.div_ceil(60_000),
        if !changed {
            " is as it began"
        } else if tagged {
            ", tagged"
        } else {
            ""
        },
        if accepted + declined + open == 0 {
            String::new()
        } else {
            format!("; {accepted} accepted, {declined} declined, {open} to be answered")
        },
    ));
    if state.end.as_ref().is_some_and(|end| end.summary.contains(tools::EXPORTS)) {
        app.output.text(&format!("to export it: chemigram export {} {branch} -o FILE", workspace.id()));
    }
    if let Some(promote) = promote {
        app.output.text(&format!("to keep it: {promote}"));
    }
    Ok(())
}
