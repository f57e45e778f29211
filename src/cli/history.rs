//! `log`, `diff`, `branch`, `tag`, `undo`, `checkout`, `reset`, `promote`, `fsck`, `gc`.

use std::collections::HashMap;

use serde_json::json;

use super::failure::Failure;
use super::setup::App;
use crate::review::line;
use crate::session;
use base::error::ErrorCode;
use base::ids::{Hash, PhotoId, RefName};
use engine::photo::{FsckReport, Head, Workspace, Writer, diff as differences};

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

/// Tags a branch, and moves `main` to it on request.
pub fn promote(
    app: &App,
    subject: &str,
    branch: &RefName,
    tag: Option<&RefName>,
    to_main: bool,
) -> Result<(), Failure> {
    let photo = match subject.parse::<PhotoId>() {
        Ok(id) if app.library.open(&id).is_ok() => id,
        _ => app.session(subject)?.0.id().clone(),
    };
    let mut writer = app.writer(&photo, "promote")?;
    let commit = writer.workspace().resolve(&format!("refs/heads/{branch}"))?;
    if let Some(warning) = no_difference(writer.workspace(), branch, &commit)? {
        app.output.remark(&warning);
    }
    // One label makes it one step for `undo`.
    let label = format!("promote {branch}");
    // Where a kill came after the tag, the same command does the rest.
    if let Some(tag) = tag
        && writer.workspace().tag(tag)?.as_ref() != Some(&commit)
    {
        writer.create_tag(tag, &commit, &label)?;
    }
    let mut kept = None;
    if to_main {
        let main: RefName = "main".parse()?;
        let expected = writer.workspace().resolve("refs/heads/main")?;
        kept = keep_replaced(&mut writer, &expected, &commit)?;
        writer.move_branch(&main, &expected, &commit, &label)?;
    }
    let result = json!({ "photo": photo, "branch": branch, "commit": commit, "tag": tag, "main_moved": to_main, "main_kept": kept });
    app.output.result(&result, || {
        let tagged = tag.map(|tag| format!("tagged {tag}"));
        let moved = to_main.then(|| "main is moved to it".to_owned());
        let done: Vec<String> = tagged.into_iter().chain(moved).collect();
        let kept = kept.map(|tag| {
            format!("main had commits of its own, which no other branch or tag leads to: they are kept under the tag {tag}\n")
        });
        format!(
            "{photo}: promoted {branch} ({}): {}\n{}",
            commit.short(),
            done.join(", and "),
            kept.unwrap_or_default()
        )
    })
}

/// The warning for a branch whose edit is nothing new.
fn no_difference(workspace: &Workspace, branch: &RefName, commit: &Hash) -> Result<Option<String>, Failure> {
    let state = workspace.commit(commit)?.state;
    let main = workspace.resolve("refs/heads/main")?;
    let baseline = workspace.commit(workspace.baseline())?.state == state;
    Ok(if baseline {
        Some(format!("warning: {branch} does not differ from darktable's default edit"))
    } else if main != *commit && workspace.commit(&main)?.state == state {
        Some(format!("warning: {branch} does not differ from main"))
    } else {
        None
    })
}

/// Before main leaves the commit `old` for `new`: tags it, where nothing else leads to it and `gc` would delete it.
fn keep_replaced(writer: &mut Writer, old: &Hash, new: &Hash) -> Result<Option<RefName>, Failure> {
    let workspace = writer.workspace();
    let branches = workspace.branches()?.into_iter().filter(|(name, _)| name.as_str() != "main");
    let mut tips: Vec<Hash> = branches.chain(workspace.tags()?).map(|(_, tip)| tip).collect();
    tips.push(new.clone());
    for tip in tips {
        if workspace.log(tip.as_str(), usize::MAX)?.iter().any(|entry| entry.commit == *old) {
            return Ok(None);
        }
    }
    let tag: RefName = format!("main_{}", old.short()).parse()?;
    writer.create_tag(&tag, old, "main, before it was moved")?;
    Ok(Some(tag))
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
        "{id}: {verdict} ({} commits, {} states, {} refs, {} log lines, {} sessions, {} unreachable)\n",
        report.commits, report.states, report.refs, report.log_lines, report.sessions, report.dangling
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
        let count = report.commits.len() + report.states.len() + report.litter.len();
        let what = format!(
            "{} commits, {} states, {} left-over files, {} bytes",
            report.commits.len(),
            report.states.len(),
            report.litter.len(),
            report.bytes
        );
        match (yes, count) {
            (_, 0) => "nothing to delete\n".to_owned(),
            (true, _) => format!("deleted {what}\n"),
            (false, _) => format!("would delete {what}; run `chemigram gc {photo} --yes` to do it\n"),
        }
    })
}
