//! `proposals` and `gaps`: what sessions leave for a person to decide.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::failure::Failure;
use super::setup::{App, optional_text, text};
use super::taste::warn_of_opposites;
use crate::review::{line, wrap};
use crate::session::answers;
use base::ids::PhotoId;
use engine::photo::{Gap, PhotoError, Proposal, ProposalKind, ProposalStatus, Tastes, Writer, rank};

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum ProposalVerb {
    /// List the open proposals
    List {
        /// Only those of this photo
        photo: Option<PhotoId>,
        /// Include answered ones
        #[arg(long)]
        all: bool,
    },
    /// Accept proposals: add their texts to the taste file or the photo's notes
    Accept {
        #[command(flatten)]
        which: Which,
        /// Use this text instead, for a single proposal: text, or @FILE
        #[arg(long, value_name = "TEXT|@FILE", conflicts_with_all = ["all", "session"])]
        edit: Option<String>,
    },
    /// Accept a proposal with another text: as `accept ID --edit TEXT`
    Edit {
        /// The proposal's id
        #[arg(value_name = "ID")]
        id: String,
        /// What is to be remembered: text, or @FILE
        #[arg(value_name = "TEXT|@FILE")]
        text: String,
    },
    /// Decline proposals
    Decline {
        #[command(flatten)]
        which: Which,
        /// The reason
        #[arg(long, default_value = "", hide_default_value = true)]
        reason: String,
    },
}

// Which proposals are answered.
#[derive(Args, Debug)]
pub struct Which {
    /// The proposals' ids
    #[arg(value_name = "ID", required_unless_present_any = ["all", "session"], conflicts_with_all = ["all", "session"])]
    ids: Vec<String>,
    /// All that are open
    #[arg(long, conflicts_with = "session")]
    all: bool,
    /// All that are open of one session: at least four characters of its id, or `last`
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
}

impl Which {
    /// Their photos and ids. All of them are there and open, so that either all are answered or none is.
    fn found(&self, app: &App) -> Result<Vec<(PhotoId, String)>, Failure> {
        let mut found = Vec::new();
        for id in &self.ids {
            let photo = owner(app, id)?;
            let proposal = app.photo(&photo)?.proposal(id)?;
            if proposal.status != ProposalStatus::Pending {
                let (id, status) = (id.clone(), proposal.status.to_string());
                return Err(PhotoError::Settled { id, status }.into());
            }
            found.push((photo, id.clone()));
        }
        let session = self.session.as_deref().map(|part| app.session(part)).transpose()?;
        if self.all || session.is_some() {
            for photo in photos(app, session.as_ref().map(|(workspace, _)| workspace.id()))? {
                let open = app.photo(&photo)?.pending_proposals()?.into_iter();
                let of = |p: &Proposal| session.as_ref().is_none_or(|(_, id)| p.session.as_ref() == Some(id));
                found.extend(open.filter(of).map(|p| (photo.clone(), p.id)));
            }
            if found.is_empty() {
                app.output.remark("no open proposals");
            }
        }
        Ok(found)
    }
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum GapVerb {
    /// List gaps, newest first
    List {
        /// Only those of this photo
        photo: Option<PhotoId>,
        /// Show at most N per photo
        #[arg(short = 'n', long = "limit", value_name = "N", default_value_t = 50)]
        limit: usize,
    },
    /// Count which moves are missed most, over all photos
    Rank,
}

pub fn proposals(app: &App, verb: &ProposalVerb) -> Result<(), Failure> {
    match verb {
        ProposalVerb::List { photo, all } => {
            let mut rows = Vec::new();
            for id in photos(app, photo.as_ref())? {
                let proposals = app.photo(&id)?.proposals()?;
                let wanted = |p: &Proposal| *all || p.status == ProposalStatus::Pending;
                rows.extend(proposals.into_iter().filter(wanted).map(|p| (id.clone(), p)));
            }
            let values: Vec<Value> = rows.iter().map(|(id, p)| with_photo(id, p)).collect();
            if rows.is_empty() {
                app.output.remark("no open proposals");
            }
            let width = app.output.style().width;
            app.output.result(&values, || {
                rows.iter().map(|(id, proposal)| proposal_text(id, proposal, width)).collect()
            })
        }
        ProposalVerb::Accept { which, edit } => {
            let edited = optional_text(edit.as_ref())?;
            if edited.is_some() && which.ids.len() > 1 {
                return Err(Failure::input("--edit is for one proposal").remedy("accept them one by one"));
            }
            answer(app, which, |app, id, writer| accept(app, writer, id, edited.as_deref()))
        }
        ProposalVerb::Edit { id, text: edited } => {
            let edited = text(edited)?;
            let which = Which { ids: vec![id.clone()], all: false, session: None };
            answer(app, &which, |app, id, writer| accept(app, writer, id, Some(&edited)))
        }
        ProposalVerb::Decline { which, reason } => {
            answer(app, which, |app, id, writer| decline(app, writer, id, reason))
        }
    }
}

/// Accepts a proposal, and says where its text went.
pub fn accept(
    app: &App,
    writer: &mut Writer,
    id: &str,
    edited: Option<&str>,
) -> Result<(Proposal, String), Failure> {
    let tastes = Tastes::new(app.folders.tastes());
    let proposed = writer.workspace().proposal(id)?.proposed;
    let file = proposed.file.as_deref().unwrap_or("_default.md");
    let place = match proposed.kind {
        ProposalKind::Taste => {
            warn_of_opposites(app, &tastes, edited.unwrap_or(&proposed.text))?;
            tastes.path(file)?
        }
        ProposalKind::Notes => writer.workspace().folder().join("notes.md"),
    };
    let proposal = writer.accept_proposal(id, edited, &app.folders.tastes())?;
    told(app, writer, &proposal)?;
    Ok((proposal, format!("{id} accepted, written to {}\n", place.display())))
}

/// Declines a proposal, and says so.
pub fn decline(
    app: &App,
    writer: &mut Writer,
    id: &str,
    reason: &str,
) -> Result<(Proposal, String), Failure> {
    let proposal = writer.decline_proposal(id, reason)?;
    told(app, writer, &proposal)?;
    Ok((proposal, format!("{id} declined\n")))
}

/// Writes an answer into the transcript of the session that proposed.
fn told(app: &App, writer: &Writer, proposal: &Proposal) -> Result<(), Failure> {
    let session = proposal.session.as_ref();
    Ok(session.map_or(Ok(()), |id| answers::record(writer, id, &app.redactor))?)
}

/// Answers proposals one after the other.
fn answer(
    app: &App,
    which: &Which,
    each: impl Fn(&App, &str, &mut Writer) -> Result<(Proposal, String), Failure>,
) -> Result<(), Failure> {
    let (mut values, mut text) = (Vec::new(), String::new());
    for (photo, id) in which.found(app)? {
        let mut writer = app.writer(&photo, "answer a proposal")?;
        let (proposal, said) = each(app, &id, &mut writer)?;
        values.push(with_photo(&photo, &proposal));
        text.push_str(&said);
    }
    match values.as_slice() {
        [one] if which.ids.len() == 1 => app.output.result(one, || text),
        all => app.output.result(all, || text),
    }
}

/// The photo of a proposal.
fn owner(app: &App, id: &str) -> Result<PhotoId, Failure> {
    for photo in app.library.photos()? {
        if app.photo(&photo)?.proposal(id).is_ok() {
            return Ok(photo);
        }
    }
    Err(PhotoError::NoProposal(id.to_owned()).into())
}

fn with_photo(photo: &PhotoId, proposal: &Proposal) -> Value {
    let mut value = serde_json::to_value(proposal).unwrap_or_default();
    if let Some(map) = value.as_object_mut() {
        map.insert("photo".into(), json!(photo));
    }
    value
}

fn proposal_text(photo: &PhotoId, proposal: &Proposal, width: usize) -> String {
    let target = match proposal.proposed.kind {
        ProposalKind::Taste => {
            format!("taste {}", line(proposal.proposed.file.as_deref().unwrap_or("_default.md")))
        }
        ProposalKind::Notes => "notes".to_owned(),
    };
    let mut text = format!("{}  {photo}  {target}  {}\n", proposal.id, line(&proposal.status.to_string()));
    for row in wrap(&proposal.proposed.text, width.saturating_sub(4)) {
        text.push_str(&format!("    {row}\n"));
    }
    text
}

const NO_GAPS: &str = "no missing moves were reported";

pub fn gaps(app: &App, verb: &GapVerb) -> Result<(), Failure> {
    match verb {
        GapVerb::List { photo, limit } => {
            let gaps = all_gaps(app, photo.as_ref(), *limit)?;
            if gaps.is_empty() {
                app.output.remark(NO_GAPS);
            }
            app.output.result(&gaps, || {
                let row = |g: &Gap| format!("{:.0}  {}  {}\n", g.t, g.photo, line(&g.report.description));
                gaps.iter().map(row).collect()
            })
        }
        GapVerb::Rank => {
            let ranked = rank(&all_gaps(app, None, usize::MAX)?);
            if ranked.is_empty() {
                app.output.remark(NO_GAPS);
            }
            app.output.result(&ranked, || {
                ranked
                    .iter()
                    .map(|r| format!("{:4}× on {} photos  {}\n", r.count, r.photos, line(&r.wanted)))
                    .collect()
            })
        }
    }
}

fn all_gaps(app: &App, photo: Option<&PhotoId>, limit: usize) -> Result<Vec<Gap>, Failure> {
    let mut gaps = Vec::new();
    for id in photos(app, photo)? {
        gaps.extend(app.photo(&id)?.gaps(limit)?);
    }
    gaps.sort_by_key(|gap| std::cmp::Reverse(gap.t));
    Ok(gaps)
}

fn photos(app: &App, photo: Option<&PhotoId>) -> Result<Vec<PhotoId>, Failure> {
    match photo {
        Some(photo) => Ok(vec![photo.clone()]),
        None => Ok(app.library.photos()?),
    }
}
