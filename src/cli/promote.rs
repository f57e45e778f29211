//! `promote`: a branch, or all that a person picked on a page, becomes the main edit or gets a tag.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use super::failure::Failure;
use super::setup::App;
use crate::review::picks::{self, PhotoPicks, Pick, PicksFile, Verdict};
use base::error::ErrorCode;
use base::ids::{Hash, PhotoId, RefName};
use engine::photo::{Workspace, Writer};

pub(super) const EXAMPLES: &str = "\
Examples:
  chemigram promote iguana branch_b_tone --to-main
  chemigram promote last branch_b_tone --tag v2
  chemigram promote --picks ~/Downloads/picks.json --dry-run
  chemigram promote --picks ~/Downloads/picks.json --to-main

--picks takes the file that `Save picks` of a page wrote: what you picked is tagged `picked`, or with --tag; a second one \
of the same photo `picked_2`. With --to-main, main moves to the one with the most stars. Nothing is done unless each of \
them is still there as you saw it. `chemigram undo PHOTO` takes it back.";

/// The tag of what was picked, unless another is wanted.
const PICKED: &str = "picked";
/// The longest label of a step.
const LABEL: usize = 200;

#[derive(Args, Debug)]
#[command(
    override_usage = "chemigram promote [OPTIONS] <PHOTO|SESSION> <BRANCH>\n       chemigram promote [OPTIONS] --picks <FILE>"
)]
pub struct PromoteArgs {
    /// The photo's id, part of a session's id, or `last` for the newest session
    #[arg(value_name = "PHOTO|SESSION", required_unless_present = "picks")]
    pub subject: Option<String>,
    /// The branch to promote
    #[arg(required_unless_present = "picks")]
    pub branch: Option<RefName>,
    /// Promote what you picked on a page instead, and import the picks
    #[arg(long, value_name = "FILE", conflicts_with_all = ["subject", "branch"])]
    pub picks: Option<PathBuf>,
    /// Create this tag at it
    #[arg(long, value_name = "NAME", required_unless_present_any = ["to_main", "picks"])]
    pub tag: Option<RefName>,
    /// Move `main` to it
    #[arg(long)]
    pub to_main: bool,
    /// Only say what would be done
    #[arg(long)]
    pub dry_run: bool,
}

/// What one branch is to become.
#[derive(Debug, Serialize)]
struct Promotion {
    photo: PhotoId,
    branch: RefName,
    commit: Hash,
    tag: Option<RefName>,
    #[serde(rename = "main_moved")]
    to_main: bool,
    /// The tag under which commits of main are kept that nothing else leads to.
    #[serde(rename = "main_kept")]
    kept: Option<RefName>,
}

impl Promotion {
    /// Does it, under one label, which makes it one step for `undo`.
    fn carry_out(&mut self, writer: &mut Writer, label: &str) -> Result<(), Failure> {
        // Where a kill came after the tag, the same command does the rest.
        if let Some(tag) = &self.tag
            && writer.workspace().tag(tag)?.as_ref() != Some(&self.commit)
        {
            writer.create_tag(tag, &self.commit, label)?;
        }
        if self.to_main {
            let main: RefName = "main".parse()?;
            let expected = writer.workspace().resolve("refs/heads/main")?;
            self.kept = keep_replaced(writer, &expected, &self.commit)?;
            writer.move_branch(&main, &expected, &self.commit, label)?;
        }
        Ok(())
    }

    fn text(&self, dry_run: bool) -> String {
        let tagged = self.tag.as_ref().map(|tag| format!("tagged {tag}"));
        let moved = self.to_main.then(|| "main is moved to it".to_owned());
        let what = tagged.into_iter().chain(moved).collect::<Vec<_>>().join(", and ");
        let done = if dry_run { "would promote" } else { "promoted" };
        let mut text = format!("{}: {done} {} ({}): {what}\n", self.photo, self.branch, self.commit.short());
        if let Some(tag) = &self.kept {
            text.push_str(&format!(
                "main had commits of its own, which no other branch or tag leads to: they are kept under the tag {tag}\n"
            ));
        }
        text
    }
}

/// Tags a branch, moves `main` to it, or does so with all that was picked.
pub fn promote(app: &App, args: &PromoteArgs) -> Result<(), Failure> {
    match (&args.picks, &args.subject, &args.branch) {
        (Some(file), ..) => promote_picks(app, file, args),
        (None, Some(subject), Some(branch)) => promote_branch(app, subject, branch, args),
        _ => Err(Failure::input("name a photo and a branch, or a file of picks with --picks")),
    }
}

fn promote_branch(app: &App, subject: &str, branch: &RefName, args: &PromoteArgs) -> Result<(), Failure> {
    let photo = match subject.parse::<PhotoId>() {
        Ok(id) if app.library.open(&id).is_ok() => id,
        _ => app.session(subject)?.0.id().clone(),
    };
    let mut writer = app.writer(&photo, "promote")?;
    let commit = writer.workspace().resolve(&format!("refs/heads/{branch}"))?;
    if let Some(warning) = no_difference(writer.workspace(), branch, &commit)? {
        app.output.remark(&warning);
    }
    let (tag, to_main) = (args.tag.clone(), args.to_main);
    let mut promotion = Promotion { photo, branch: branch.clone(), commit, tag, to_main, kept: None };
    if !args.dry_run {
        promotion.carry_out(&mut writer, &format!("promote {branch}"))?;
    }
    let mut result = json!(promotion);
    if let Some(fields) = result.as_object_mut() {
        fields.insert("dry_run".into(), Value::Bool(args.dry_run));
    }
    app.output.result(&result, || promotion.text(args.dry_run))
}

fn promote_picks(app: &App, path: &Path, args: &PromoteArgs) -> Result<(), Failure> {
    let file = picks::read(path)?;
    let photos: BTreeSet<&PhotoId> = file.photos.iter().map(|one| &one.photo).collect();
    // All are held before anything is planned, so that all of it is done or none.
    let mut writers = Vec::new();
    if !args.dry_run {
        for photo in &photos {
            writers.push(app.writer(photo, "promote")?);
        }
    }
    let mut planned = Vec::new();
    for photo in photos {
        planned.extend(plan(app, photo, &file, args)?);
    }
    if planned.is_empty() {
        let message = format!("nothing is picked in {}", path.display());
        return Err(Failure::new(ErrorCode::NotFound, message)
            .remedy("pick with P or the button on the page, and save the picks again"));
    }
    let mut new = 0;
    for mut writer in writers {
        let photo = writer.workspace().id().clone();
        for mine in file.photos.iter().filter(|mine| mine.photo == photo) {
            // What was rejected may be deleted by now.
            let there = |pick: &&Pick| writer.workspace().commit(&pick.commit).is_ok();
            let picks = mine.picks.iter().filter(there).cloned().collect();
            let mine = PhotoPicks { picks, ..mine.clone() };
            new += picks::import(writer.workspace(), &mine, jiff::Timestamp::now())?;
        }
        let mut these: Vec<_> = planned.iter_mut().filter(|one| one.photo == photo).collect();
        let names: Vec<&str> = these.iter().map(|one| one.branch.as_str()).collect();
        let label: String = format!("promote picks: {}", names.join(", ")).chars().take(LABEL).collect();
        these.iter_mut().try_for_each(|one| one.carry_out(&mut writer, &label))?;
    }
    let result = json!({ "file": path, "dry_run": args.dry_run, "new_picks": new, "promoted": planned });
    app.output.result(&result, || planned.iter().map(|one| one.text(args.dry_run)).collect())
}

/// What becomes of the picks of a photo, the best first.
///
/// # Errors
/// Where one of them is not as it was picked, or several want to be main.
fn plan(app: &App, photo: &PhotoId, file: &PicksFile, args: &PromoteArgs) -> Result<Vec<Promotion>, Failure> {
    let workspace = app.photo(photo)?;
    let mine = file.photos.iter().filter(|one| one.photo == *photo).flat_map(|one| &one.picks);
    let mut picked: Vec<&Pick> = mine.filter(|pick| pick.verdict == Some(Verdict::Pick)).collect();
    picked.sort_by_key(|pick| Reverse(pick.stars));
    for pick in &picked {
        still_there(&workspace, &pick.branch, &pick.commit)?;
    }
    if let [first, second, ..] = picked.as_slice()
        && args.to_main
        && first.stars == second.stars
        && first.commit != second.commit
    {
        let message = format!(
            "{photo}: main can move to one branch only, and {} and {} are picked with as many stars",
            first.branch, second.branch
        );
        return Err(Failure::input(message)
            .remedy("give one of them more stars on the page, and save the picks again"));
    }
    let mut tags = workspace.tags()?;
    let mut planned = Vec::new();
    for (place, pick) in picked.into_iter().enumerate() {
        let (branch, commit) = (pick.branch.clone(), pick.commit.clone());
        if let Some(warning) = no_difference(&workspace, &branch, &commit)? {
            app.output.remark(&format!("{photo}: {warning}"));
        }
        let to_main = args.to_main && place == 0;
        let tag = match &args.tag {
            None if args.to_main => None,
            tag => Some(tag_for(tag.as_ref().map_or(PICKED, RefName::as_str), &mut tags, &commit)?),
        };
        if tag.is_some() || to_main {
            planned.push(Promotion { photo: photo.clone(), branch, commit, tag, to_main, kept: None });
        } else {
            app.output
                .remark(&format!("{photo}: {branch} is picked, too, and stays a branch; --tag tags it"));
        }
    }
    Ok(planned)
}

/// Fails unless a branch is where it was when it was picked.
fn still_there(workspace: &Workspace, branch: &RefName, commit: &Hash) -> Result<(), Failure> {
    let photo = workspace.id();
    match workspace.branch(branch)? {
        Some(at) if at == *commit => Ok(()),
        Some(at) => {
            let message = format!(
                "{photo}: {branch} was at {} when you picked it, and is at {} now",
                commit.short(),
                at.short()
            );
            Err(Failure::new(ErrorCode::StateError, message)
                .remedy("look at it again with `chemigram review`, or promote it by its name"))
        }
        None => {
            let message = format!("{photo}: there is no branch {branch} any more");
            Err(Failure::new(ErrorCode::NotFound, message)
                .remedy(format!("if you deleted it, `chemigram undo {photo}` brings it back")))
        }
    }
}

/// The tag of that name that is at the commit, else the first that is free: `picked`, `picked_2`, ….
fn tag_for(name: &str, tags: &mut Vec<(RefName, Hash)>, commit: &Hash) -> Result<RefName, Failure> {
    let mut number = 1;
    loop {
        let tag: RefName = if number == 1 { name.to_owned() } else { format!("{name}_{number}") }.parse()?;
        match tags.iter().find(|(known, _)| *known == tag) {
            Some((_, at)) if at == commit => return Ok(tag),
            Some(_) => number += 1,
            None => {
                tags.push((tag.clone(), commit.clone()));
                return Ok(tag);
            }
        }
    }
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
