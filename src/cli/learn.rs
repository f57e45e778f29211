//! `proposals` and `gaps`: what sessions leave for a person to decide.

use clap::Subcommand;
use serde_json::{Value, json};

use super::failure::Failure;
use super::setup::{App, optional_text};
use crate::review::{line, wrap};
use base::ids::PhotoId;
use engine::photo::{Gap, PhotoError, Proposal, ProposalKind, ProposalStatus, rank};

#[derive(Debug, Subcommand)]
pub enum ProposalVerb {
    /// List the open proposals
    List {
        /// Only those of this photo
        photo: Option<PhotoId>,
        /// Include answered ones
        #[arg(long)]
        all: bool,
    },
    /// Accept a proposal: add its text to the taste file or the photo's notes
    Accept {
        /// The proposal's id
        id: String,
        /// Use this text instead: text, or @FILE
        #[arg(long, value_name = "TEXT|@FILE")]
        edit: Option<String>,
    },
    /// Decline a proposal
    Decline {
        /// The proposal's id
        id: String,
        /// The reason
        #[arg(long, default_value = "", hide_default_value = true)]
        reason: String,
    },
}

#[derive(Debug, Subcommand)]
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
        ProposalVerb::Accept { id, edit } => {
            let edited = optional_text(edit.as_ref())?;
            let mut writer = app.writer(&owner(app, id)?, "accept a proposal")?;
            let tastes = app.folders.tastes();
            let proposal = writer.accept_proposal(id, edited.as_deref(), &tastes)?;
            let place = match proposal.proposed.kind {
                ProposalKind::Taste => {
                    tastes.join(proposal.proposed.file.as_deref().unwrap_or("_default.md"))
                }
                ProposalKind::Notes => writer.workspace().folder().join("notes.md"),
            };
            app.output.result(&with_photo(writer.workspace().id(), &proposal), || {
                format!("{id} accepted, written to {}\n", place.display())
            })
        }
        ProposalVerb::Decline { id, reason } => {
            let mut writer = app.writer(&owner(app, id)?, "decline a proposal")?;
            let proposal = writer.decline_proposal(id, reason)?;
            app.output.result(&with_photo(writer.workspace().id(), &proposal), || format!("{id} declined\n"))
        }
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
