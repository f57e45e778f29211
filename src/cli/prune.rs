//! `prune` and `mode-b delete`: sessions and batches that are over and not needed any more.

use std::collections::BTreeSet;

use base::ids::{PhotoId, SessionId};
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;

use super::failure::Failure;
use super::setup::App;
use crate::overnight::record::{self, OldBatch};
use crate::review::{count, line};
use crate::session::prune::{self, Doomed, Filter, Spared};
use crate::transcript::Outcome;
use base::error::ErrorCode;

/// Examples of `prune`.
pub const EXAMPLES: &str = "\
Examples:
  chemigram prune --older-than 30d --dry-run
  chemigram prune --outcome provider_failed --outcome cancelled
  chemigram prune --older-than 90d --branches --yes

A session goes with its transcript, its pictures and the branches that it gave up itself. It stays while it runs, while \
a batch that is not over has it, while a proposal of it waits for an answer, and while another branch of it stands; with \
--branches these are deleted too, unless they were changed since or are checked out. A tag or main keeps what it names. \
A batch goes when it is over and none of its sessions is left. Commits stay until `gc`, and `undo` brings a deleted \
branch back until then; sessions do not come back.";

#[derive(Args, Debug)]
#[command(
    group(clap::ArgGroup::new("which").required(true).multiple(true)),
    override_usage = "chemigram prune [OPTIONS] --older-than AGE | --outcome OUTCOME | --all"
)]
pub struct PruneArgs {
    /// Only sessions of this photo
    #[arg(long, value_name = "PHOTO")]
    pub photo: Option<PhotoId>,
    /// Sessions that began longer ago than this, such as 12h, 30d or 8w
    #[arg(long, value_name = "AGE", value_parser = age, group = "which")]
    pub older_than: Option<SignedDuration>,
    /// Sessions that ended so; repeatable
    #[arg(long, value_name = "OUTCOME", value_parser = outcome(), group = "which")]
    pub outcome: Vec<String>,
    /// Sessions whose files are larger than this, such as 20MB
    #[arg(long, value_name = "SIZE", value_parser = size, group = "which")]
    pub larger_than: Option<u64>,
    /// All sessions that are over
    #[arg(long, group = "which")]
    pub all: bool,
    /// Delete the branches of these sessions, too, unless they were changed since
    #[arg(long)]
    pub branches: bool,
    /// Only say what would be deleted
    #[arg(long)]
    pub dry_run: bool,
    /// Delete without asking (for scripts)
    #[arg(long, short)]
    pub yes: bool,
}

const OUTCOMES: [Outcome; 8] = [
    Outcome::Completed,
    Outcome::BudgetExhausted,
    Outcome::NeedsClarification,
    Outcome::Cancelled,
    Outcome::ProviderFailed,
    Outcome::EngineFailed,
    Outcome::ProtocolFailed,
    Outcome::Interrupted,
];

fn outcome() -> clap::builder::PossibleValuesParser {
    OUTCOMES.map(Outcome::as_str).into()
}

/// A number and its unit.
fn split(text: &str) -> Option<(f64, &str)> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(at)?;
    Some((number.parse().ok()?, unit.trim()))
}

fn age(text: &str) -> Result<SignedDuration, String> {
    let hours = match split(text) {
        Some((n, "h")) => n,
        Some((n, "d")) => n * 24.0,
        Some((n, "w")) => n * 168.0,
        _ => return Err("write it like 12h, 30d or 8w".into()),
    };
    SignedDuration::try_from_secs_f64(hours * 3600.0).map_err(|_| "that is too long ago".into())
}

/// Bytes, such as `500MB`.
pub fn size(text: &str) -> Result<u64, String> {
    let bytes = match split(text).map(|(n, unit)| (n, unit.to_ascii_uppercase())) {
        Some((n, unit)) if unit == "KB" => n * 1e3,
        Some((n, unit)) if unit == "MB" => n * 1e6,
        Some((n, unit)) if unit == "GB" => n * 1e9,
        _ => return Err("write it like 500MB or 8GB".into()),
    };
    Ok(bytes as u64)
}

/// What was deleted, or would be.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Pruned {
    /// Whether nothing was deleted.
    pub dry_run: bool,
    /// Sessions that go.
    pub sessions: Vec<Doomed>,
    /// Batches that go.
    pub batches: Vec<OldBatch>,
    /// Sessions that were meant and stay.
    pub kept: Vec<Spared>,
    /// The bytes of what goes.
    pub bytes: u64,
}

/// Deletes what is not needed any more.
pub fn prune(app: &App, args: &PruneArgs) -> Result<u8, Failure> {
    let before = args.older_than.and_then(|age| Timestamp::now().checked_sub(age).ok());
    let named = |outcome: &Outcome| args.outcome.iter().any(|name| name == outcome.as_str());
    let filter = Filter {
        photo: args.photo.clone(),
        session: None,
        before,
        outcomes: OUTCOMES.into_iter().filter(named).collect(),
        at_least: args.larger_than.unwrap_or(0),
        branches: args.branches,
    };
    let sorted = prune::sort(&app.library, &filter, &record::in_open_batches(&app.library)?)?;
    // Batches have no photo, size or outcome.
    let whole = args.photo.is_none() && args.outcome.is_empty() && args.larger_than.is_none();
    let batches = match whole {
        true => {
            let going: BTreeSet<SessionId> = sorted.remove.iter().map(|one| one.session.clone()).collect();
            let there = |id: &SessionId, photo: &PhotoId| {
                let folder = app.library.open(photo).map(|workspace| workspace.session_folder(id));
                !going.contains(id) && folder.is_ok_and(|folder| folder.join("transcript.jsonl").exists())
            };
            record::old(&app.library, before, &there)?
        }
        false => Vec::new(),
    };
    let bytes = sorted.remove.iter().map(|one| one.bytes).chain(batches.iter().map(|one| one.bytes)).sum();
    let (sessions, kept) = (sorted.remove, sorted.keep);
    carry_out(app, Pruned { dry_run: args.dry_run, sessions, batches, kept, bytes }, args.yes)
}

/// Deletes one session.
pub fn delete_session(
    app: &App,
    part: &str,
    branches: bool,
    dry_run: bool,
    yes: bool,
) -> Result<u8, Failure> {
    let (workspace, id) = app.session(part)?;
    let filter = Filter {
        photo: Some(workspace.id().clone()),
        session: Some(id.clone()),
        branches,
        ..Filter::default()
    };
    let sorted = prune::sort(&app.library, &filter, &record::in_open_batches(&app.library)?)?;
    if let Some(spared) = sorted.keep.first() {
        let message = format!("session {} stays: {}", id.short(), spared.why);
        return Err(Failure::new(ErrorCode::StateError, message));
    }
    let bytes = sorted.remove.iter().map(|one| one.bytes).sum();
    let pruned = Pruned { dry_run, sessions: sorted.remove, batches: Vec::new(), kept: Vec::new(), bytes };
    carry_out(app, pruned, yes)
}

fn carry_out(app: &App, pruned: Pruned, yes: bool) -> Result<u8, Failure> {
    let nothing = pruned.sessions.is_empty() && pruned.batches.is_empty();
    let asks = !pruned.dry_run && !nothing && !yes;
    if asks {
        confirm(app, &pruned)?;
    }
    if !pruned.dry_run && !nothing {
        for batch in &pruned.batches {
            record::remove(&app.library, &batch.name)?;
        }
        let mut at = pruned.sessions.as_slice();
        // All of a photo under one lock.
        while let Some(first) = at.first() {
            let (these, rest) = at.split_at(at.partition_point(|one| one.photo == first.photo).max(1));
            let mut writer = app.writer(&first.photo, "prune")?;
            these.iter().try_for_each(|doomed| prune::remove(&mut writer, doomed))?;
            at = rest;
        }
    }
    // What the question listed is not said again.
    app.output.result(&pruned, || if asks { total(&pruned) } else { text(&pruned) })?;
    Ok(0)
}

fn confirm(app: &App, pruned: &Pruned) -> Result<(), Failure> {
    if !app.output.can_ask() {
        return Err(Failure::input("there is no terminal to confirm the deletion")
            .remedy("add --yes to delete without asking, or --dry-run to see what would be deleted"));
    }
    app.output.remark(&text(&Pruned { dry_run: true, ..copy(pruned) }));
    let answer = app.output.ask("Delete these? [yes/no]").unwrap_or_default();
    if matches!(answer.to_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    Err(Failure::new(ErrorCode::SessionNotConfirmed, "nothing was deleted"))
}

fn copy(pruned: &Pruned) -> Pruned {
    Pruned {
        dry_run: pruned.dry_run,
        sessions: pruned.sessions.clone(),
        batches: pruned.batches.clone(),
        kept: pruned.kept.clone(),
        bytes: pruned.bytes,
    }
}

fn text(pruned: &Pruned) -> String {
    let mut text = String::new();
    for one in &pruned.sessions {
        let branches = match one.branches.is_empty() {
            true => String::new(),
            false => {
                let names: Vec<&str> = one.branches.keys().map(|name| name.as_str()).collect();
                format!("  with {}", names.join(", "))
            }
        };
        text.push_str(&format!(
            "{}  {:.0}  {}  {}  {}{branches}\n",
            one.session.short(),
            one.started,
            one.photo,
            one.outcome.as_str(),
            megabytes(one.bytes)
        ));
    }
    for batch in &pruned.batches {
        text.push_str(&format!("batch {}  {}\n", batch.name, megabytes(batch.bytes)));
    }
    for one in &pruned.kept {
        text.push_str(&format!("{}  {}  stays: {}\n", one.session.short(), one.photo, line(&one.why)));
    }
    text + &total(pruned)
}

fn total(pruned: &Pruned) -> String {
    let (sessions, batches) = (pruned.sessions.len() as u64, pruned.batches.len() as u64);
    let what = match (sessions, batches) {
        (0, 0) => return "nothing to delete\n".into(),
        (_, 0) => count(sessions, "session"),
        (0, _) => count(batches, "batch"),
        _ => format!("{} and {}", count(sessions, "session"), count(batches, "batch")),
    };
    let done = if pruned.dry_run { "would delete" } else { "deleted" };
    format!("{done} {what}, {}\n", megabytes(pruned.bytes))
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_sizes_are_read_or_an_example_is_given() {
        assert_eq!(age("36h").unwrap(), age("1.5d").unwrap());
        assert_eq!(age("2w").unwrap().as_hours(), 336);
        assert_eq!((size("500MB"), size("1.5gb")), (Ok(500_000_000), Ok(1_500_000_000)));
        for wrong in ["", "d", "30", "30 days ago", "-3d", "1e9d"] {
            assert!(age(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "5", "5PB", "-5MB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
