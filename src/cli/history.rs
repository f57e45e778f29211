//! `log`, `diff`, `branch`, `tag`, `undo`, `checkout`, `reset`, `fsck`, `gc`.

use std::collections::HashMap;

use serde_json::json;

use super::failure::Failure;
use super::setup::App;
use crate::review::{count, line};
use crate::session;
use base::error::ErrorCode;
use base::ids::{Hash, PhotoId, RefName};
use engine::photo::{FsckReport, Head, diff as differences};

pub fn log(app: &App, photo: &PhotoId, at: &str, limit: usize) -> Result<(), Failure> {
    let entries = app.photo(photo)?.log(at, limit)?;
    app.output.result(&entries, || {
        let mut text = String::new();
        for entry in &entries {
            let short = |name: &String| {
                let name = name.strip_prefix("refs/heads/").or_else(|| name.strip_prefix("refs/tags/"));
                name.map(str::to_owned)
            };
            let refs: Vec<String> = entry.refs.iter().filter_map(short).collect();
            let refs = if refs.is_empty() { String::new() } else { format!(" ({})", refs.join(", ")) };
            text.push_str(&format!("{}{refs}  {}", entry.commit.short(), line(&entry.words)));
            let labels = std::iter::once(&entry.label).chain(&entry.labels);
            for label in labels.filter(|label| !label.is_empty()) {
                text.push_str(&format!("  \u{201c}{}\u{201d}", line(label)));
            }
            if let (Some(t), Some(by)) = (&entry.t, &entry.by) {
                let by = if by == "person" { by.as_str() } else { "session" };
                text.push_str(&format!("  [{:.0} {by}]", t));
            }
            text.push('\n');
        }
        text
    })
}

pub fn diff(app: &App, photo: &PhotoId, a: &str, b: &str) -> Result<(), Failure> {
    let workspace = app.photo(photo)?;
    let (from, to) = (workspace.resolve(a)?, workspace.resolve(b)?);
    let (vocabulary, mut known) = (app.vocabulary()?, HashMap::new());
    let mut at = |commit: &Hash| {
        let standing = workspace.standing(commit, &vocabulary, &mut known)?;
        Ok::<_, Failure>(standing.numbered(&workspace.state_of(commit)?))
    };
    let changes = differences(&at(&from)?, &at(&to)?);
    let result = json!({ "from": from, "to": to, "changes": changes });
    app.output.result(&result, || match changes.is_empty() {
        true => "no difference\n".to_owned(),
        false => changes.iter().map(|change| format!("{}\n", line(&change.to_string()))).collect(),
    })
}

/// Lists, makes, renames or deletes branches.
pub fn branch(
    app: &App,
    photo: &PhotoId,
    name: Option<&RefName>,
    from: &str,
    delete: bool,
    rename: Option<&RefName>,
) -> Result<(), Failure> {
    let Some(name) = name else {
        let workspace = app.photo(photo)?;
        let head = workspace.head()?;
        let branches = workspace.branches()?;
        return app.output.result(&json!({ "head": head, "branches": named(&branches) }), || {
            let mark = |name: &RefName| if head == Head::Branch(name.clone()) { '*' } else { ' ' };
            branches.iter().map(|(name, at)| format!("{} {name}  {}\n", mark(name), at.short())).collect()
        });
    };
    let mut writer = app.writer(photo, "branch")?;
    if delete {
        writer.delete_branch(name)?;
        let result = json!({ "deleted": name });
        return app.output.result(&result, || {
            format!("deleted {name}; `chemigram undo {photo}` brings it back, until `gc`\n")
        });
    }
    if let Some(new) = rename {
        writer.rename_branch(name, new)?;
        let result = json!({ "branch": new, "renamed_from": name });
        return app.output.result(&result, || format!("{name} is now {new}\n"));
    }
    let at = writer.workspace().resolve(from)?;
    writer.create_branch(name, &at)?;
    app.output.result(&json!({ "branch": name, "commit": at }), || format!("{name}  {}\n", at.short()))
}

/// Lists, makes or deletes tags.
pub fn tag(
    app: &App,
    photo: &PhotoId,
    name: Option<&RefName>,
    at: &str,
    delete: bool,
) -> Result<(), Failure> {
    let Some(name) = name else {
        let tags = app.photo(photo)?.tags()?;
        return app.output.result(&json!({ "tags": named(&tags) }), || {
            tags.iter().map(|(name, at)| format!("{name}  {}\n", at.short())).collect()
        });
    };
    let mut writer = app.writer(photo, "tag")?;
    if delete {
        writer.delete_tag(name)?;
        return app.output.result(&json!({ "deleted": name }), || {
            format!("deleted the tag {name}; `chemigram undo {photo}` brings it back, until `gc`\n")
        });
    }
    let at = writer.workspace().resolve(at)?;
    writer.create_tag(name, &at, "")?;
    app.output.result(&json!({ "tag": name, "commit": at }), || format!("{name}  {}\n", at.short()))
}

fn named(refs: &[(RefName, Hash)]) -> serde_json::Map<String, serde_json::Value> {
    refs.iter().map(|(name, at)| (name.to_string(), json!(at))).collect()
}

pub fn checkout(app: &App, photo: &PhotoId, at: &str) -> Result<(), Failure> {
    let mut writer = app.writer(photo, "checkout")?;
    let head = writer.checkout(at)?;
    let commit = writer.workspace().head_commit()?;
    app.output.result(&json!({ "head": head, "commit": commit }), || match &head {
        Head::Branch(branch) => format!("on {branch} at {}\n", commit.short()),
        Head::Detached(_) => {
            format!(
                "at {}, not on a branch: `chemigram branch {photo} NAME` creates one here\n",
                commit.short()
            )
        }
    })
}

/// Sets the current branch back.
pub fn reset(app: &App, photo: &PhotoId) -> Result<(), Failure> {
    let mut writer = app.writer(photo, "reset")?;
    let branch = current_branch(&writer.workspace().head()?, photo)?;
    let info = writer.reset(&branch)?;
    let result = json!({ "branch": branch, "commit": info.commit, "unchanged": info.unchanged });
    app.output.result(&result, || match info.unchanged {
        true => format!("{branch} already is the baseline's edit\n"),
        false => format!("{branch}  {}  the baseline's edit\n", info.commit.short()),
    })
}

/// The branch that HEAD follows; edits need one.
pub fn current_branch(head: &Head, photo: &PhotoId) -> Result<RefName, Failure> {
    match head {
        Head::Branch(branch) => Ok(branch.clone()),
        Head::Detached(commit) => {
            let message = format!("HEAD is at commit {}, not on a branch", commit.short());
            Err(Failure::new(ErrorCode::StateError, message).remedy(format!(
                "create a branch here and switch to it: `chemigram branch {photo} NAME`, then `chemigram checkout {photo} NAME`"
            )))
        }
    }
}

/// Takes back what the person did last.
pub fn undo(app: &App, photo: &PhotoId, dry_run: bool) -> Result<(), Failure> {
    let undone = app.writer(photo, "undo")?.undo(dry_run)?;
    app.output.result(&undone, || {
        let done = if dry_run { "would undo" } else { "undid" };
        let mut text = format!("{done} {} ({:.0})\n", line(&undone.step), undone.done);
        for moved in &undone.moved {
            let name = moved.reference.strip_prefix("refs/heads/").unwrap_or(&moved.reference);
            let name = name.strip_prefix("refs/tags/").unwrap_or(name);
            let at = |at: &Option<Hash>| at.as_ref().map_or("none", Hash::short).to_owned();
            text.push_str(&format!("  {}  {} → {}\n", line(name), at(&moved.from), at(&moved.to)));
        }
        text
    })
}

/// Checks folders for damage; the status is that of the worst.
pub fn fsck(app: &App, photo: Option<&PhotoId>) -> Result<u8, Failure> {
    let photos = match photo {
        Some(photo) => vec![photo.clone()],
        None => app.library.photos()?,
    };
    let mut reports: Vec<(PhotoId, Result<FsckReport, Failure>)> = Vec::new();
    for id in photos {
        let report = app.photo(&id).and_then(|workspace| {
            let report = session::fsck::fsck(&workspace)?;
            Ok(report)
        });
        match (report, photo) {
            (Err(failure), Some(_)) => return Err(failure),
            (report, _) => reports.push((id, report)),
        }
    }
    let whole = reports.iter().all(|(_, r)| r.as_ref().is_ok_and(FsckReport::is_whole));
    let rows: Vec<_> = reports
        .iter()
        .map(|(id, report)| match report {
            Ok(report) => json!({ "photo": id, "whole": report.is_whole(), "report": report }),
            Err(failure) => json!({ "photo": id, "whole": false, "problem": failure.message() }),
        })
        .collect();
    app.output.result(&rows, || reports.iter().map(|(id, report)| fsck_text(id, report)).collect())?;
    Ok(if whole { 0 } else { ErrorCode::VersioningError.exit_status() })
}

fn fsck_text(id: &PhotoId, report: &Result<FsckReport, Failure>) -> String {
    let report = match report {
        Ok(report) => report,
        Err(failure) => return format!("{id}: cannot be read: {}\n", line(failure.message())),
    };
    let verdict = if report.is_whole() { "no damage" } else { "DAMAGED" };
    let mut text = format!(
        "{id}: {verdict} ({}, {}, {}, {}, {}, {} unreachable)\n",
        count(report.commits as u64, "commit"),
        count(report.states as u64, "state"),
        count(report.refs as u64, "ref"),
        count(report.log_lines as u64, "log line"),
        count(report.sessions as u64, "session"),
        report.dangling
    );
    for (kind, findings) in [("damage", &report.damages), ("note", &report.notes)] {
        for finding in findings {
            text.push_str(&format!("  {kind}: {}\n", line(&finding.to_string())));
        }
    }
    text
}

/// Shows or removes what no ref leads to.
pub fn gc(app: &App, photo: &PhotoId, yes: bool) -> Result<(), Failure> {
    let report = app.writer(photo, "gc")?.gc(!yes)?;
    app.output.result(&report, || {
        let all = report.commits.len() + report.states.len() + report.litter.len();
        let what = format!(
            "{}, {}, {}, {}",
            count(report.commits.len() as u64, "commit"),
            count(report.states.len() as u64, "state"),
            count(report.litter.len() as u64, "left-over file"),
            count(report.bytes, "byte")
        );
        match (yes, all) {
            (_, 0) => "nothing to delete\n".to_owned(),
            (true, _) => format!("deleted {what}\n"),
            (false, _) => format!("would delete {what}; run `chemigram gc {photo} --yes` to do it\n"),
        }
    })
}
