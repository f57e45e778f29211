//! `propagate`: edits of one photo, taken over to others.

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::failure::Failure;
use super::history::current_branch;
use super::setup::App;
use crate::review::line;
use base::error::ErrorCode;
use base::ids::{Hash, PhotoId, RefName};
use engine::photo::{Head, Operation, Workspace};
use engine::vocabulary::Extra;
use engine::vocabulary::{Edits, PhotoEdit, Selection, Vocabulary};

pub(super) const PROPAGATE_EXAMPLES: &str = "\
Examples:
  chemigram propagate iguana@branch_b_tone iguana_2 iguana_3
  chemigram propagate iguana heron --moves warmth,shadows_lift --branch from_iguana
  chemigram propagate iguana heron --include crop,spots --dry-run

White balance and exposure are applied relative to each photo; masks keep their position in the picture. The target's \
other edits are kept. Each target gets one commit, on its current branch or on --branch.";

#[derive(Args, Debug)]
pub struct PropagateArgs {
    /// The photo to copy from, at HEAD or at REF
    #[arg(value_name = "SOURCE[@REF]", value_parser = source)]
    pub source: (PhotoId, Option<String>),
    /// The photos to copy to
    #[arg(value_name = "TARGET", required = true)]
    pub targets: Vec<PhotoId>,
    /// Only these moves
    #[arg(long, value_name = "MOVE,…", value_delimiter = ',', conflicts_with = "modules")]
    pub moves: Vec<String>,
    /// Only these darktable modules
    #[arg(long, value_name = "MODULE,…", value_delimiter = ',')]
    pub modules: Vec<String>,
    /// Also copy what is left out by default
    #[arg(long, value_name = "WHAT,…", value_delimiter = ',')]
    pub include: Vec<Include>,
    /// Commit to this branch of each target; created at HEAD if it does not exist
    #[arg(long, value_name = "NAME")]
    pub branch: Option<RefName>,
    /// Message for the history [default: the source]
    #[arg(long)]
    pub label: Option<String>,
    /// Show what would change, without changing anything
    #[arg(long)]
    pub dry_run: bool,
}

/// What `propagate` leaves out by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Include {
    /// The crop.
    Crop,
    /// Perspective and straightening.
    Perspective,
    /// Retouched spots; they replace the target's own.
    Spots,
    /// Lens corrections.
    Lens,
}

impl From<Include> for Extra {
    fn from(include: Include) -> Self {
        match include {
            Include::Crop => Self::Crop,
            Include::Perspective => Self::Perspective,
            Include::Spots => Self::Spots,
            Include::Lens => Self::Lens,
        }
    }
}

/// `PHOTO[@REF]`.
fn source(text: &str) -> Result<(PhotoId, Option<String>), String> {
    let (photo, at) = text.split_once('@').map_or((text, None), |(photo, at)| (photo, Some(at)));
    let photo = photo.parse().map_err(|e: base::ids::InvalidName| e.to_string())?;
    match at {
        Some("") => Err("there is no ref after the @".into()),
        at => Ok((photo, at.map(str::to_owned))),
    }
}

/// What came of one target.
struct Row {
    photo: PhotoId,
    outcome: Result<Done, Failure>,
}

/// A target that was reached.
struct Done {
    branch: RefName,
    /// The commit; its parent, in a dry run.
    commit: Hash,
    state: Hash,
    /// The target had all of it already.
    unchanged: bool,
}

/// Sets edits of one photo on others, each whole or not at all. The exit status is that of the first target that
/// failed.
pub fn propagate(app: &App, args: &PropagateArgs) -> Result<u8, Failure> {
    let (photo, at) = (&args.source.0, args.source.1.as_deref().unwrap_or("HEAD"));
    let twice = args.targets.iter().enumerate().find(|(i, t)| args.targets.iter().take(*i).any(|o| o == *t));
    if let Some((_, target)) = twice {
        return Err(Failure::input(format!("`{target}` is given twice")));
    }
    let vocabulary = app.vocabulary()?;
    let source = app.photo(photo)?;
    let commit = source.resolve(at)?;
    source.refuse_another_raw()?;
    let (state, facts) = (source.state_of(&commit)?, source.facts(&commit)?);
    let selection = Selection {
        moves: args.moves.clone(),
        modules: args.modules.clone(),
        include: args.include.iter().map(|include| (*include).into()).collect(),
    };
    let edits = vocabulary.edits(PhotoEdit { state: &state, facts: &facts }, &selection)?;
    let operation = Operation::Propagate { edits: edits.words(), source: state.hash() };
    let label = args.label.clone().unwrap_or_else(|| format!("from {photo}@{at}"));
    let rows: Vec<Row> = args
        .targets
        .iter()
        .map(|target| {
            let outcome = one(app, args, &vocabulary, &edits, target, &operation, &label);
            Row { photo: target.clone(), outcome }
        })
        .collect();
    let failed = rows.iter().find_map(|row| row.outcome.as_ref().err());
    let result = json!({
        "source": { "photo": photo, "ref": at, "state": state.hash() },
        "edits": edits.words(),
        "left_behind": edits.left,
        "dry_run": args.dry_run,
        "targets": rows.iter().map(Row::to_json).collect::<Vec<_>>(),
    });
    app.output.result(&result, || table(&rows, &edits, args.dry_run))?;
    Ok(failed.map_or(0, Failure::exit_status))
}

/// Where a target is written, and what is there now. `main` moves only if HEAD is on it.
fn place(workspace: &Workspace, wanted: Option<&RefName>) -> Result<(RefName, Hash, bool), Failure> {
    let head = workspace.head()?;
    let Some(branch) = wanted.filter(|branch| head != Head::Branch((*branch).clone())) else {
        return Ok((current_branch(&head, workspace.id())?, workspace.head_commit()?, true));
    };
    if branch.as_str() == "main" {
        let message = format!("cannot change `main` of {}: it is not checked out", workspace.id());
        return Err(Failure::new(ErrorCode::PermissionDenied, message).remedy(format!(
            "run `chemigram checkout {} main` first, or use another branch",
            workspace.id()
        )));
    }
    let tip = workspace.branch(branch)?;
    let exists = tip.is_some();
    Ok((branch.clone(), tip.map_or_else(|| workspace.head_commit(), Ok)?, exists))
}

fn one(
    app: &App,
    args: &PropagateArgs,
    vocabulary: &Vocabulary,
    edits: &Edits<'_>,
    target: &PhotoId,
    operation: &Operation,
    label: &str,
) -> Result<Done, Failure> {
    let set = |workspace: &Workspace| {
        workspace.refuse_another_raw()?;
        let (branch, parent, exists) = place(workspace, args.branch.as_ref())?;
        let (state, facts) = (workspace.state_of(&parent)?, workspace.facts(&parent)?);
        let new = vocabulary.propagate(edits, PhotoEdit { state: &state, facts: &facts }, &app.layouts())?;
        let unchanged = new.hash() == state.hash();
        Ok::<_, Failure>((branch, parent, exists, new, unchanged))
    };
    if args.dry_run {
        let (branch, commit, _, new, unchanged) = set(&app.photo(target)?)?;
        return Ok(Done { branch, commit, state: new.hash(), unchanged });
    }
    let mut writer = app.writer(target, "propagate")?;
    let (branch, parent, exists, new, unchanged) = set(writer.workspace())?;
    if unchanged {
        return Ok(Done { branch, commit: parent, state: new.hash(), unchanged });
    }
    if !exists {
        writer.create_branch(&branch, &parent)?;
    }
    let info = writer.record_edit(&branch, &parent, &new, operation.clone(), label)?;
    Ok(Done { branch, commit: info.commit, state: info.state, unchanged })
}

impl Row {
    fn to_json(&self) -> Value {
        match &self.outcome {
            Ok(Done { branch, commit, state, unchanged }) => json!({
                "photo": self.photo, "branch": branch, "commit": commit, "state": state, "unchanged": unchanged,
            }),
            Err(failure) => {
                let mut value = serde_json::to_value(failure.to_output()).unwrap_or_default();
                if let Some(fields) = value.as_object_mut() {
                    fields.insert("photo".into(), json!(self.photo));
                }
                value
            }
        }
    }
}

fn table(rows: &[Row], edits: &Edits<'_>, dry_run: bool) -> String {
    let mut text = format!("{}\n", edits.words().join(", "));
    if !edits.left.is_empty() {
        text.push_str(&format!("not copied: {}\n", edits.left.join(", ")));
    }
    let wide = rows.iter().map(|row| row.photo.as_str().len()).max().unwrap_or(0);
    for row in rows {
        let said = match &row.outcome {
            Ok(done) => {
                let what = match (done.unchanged, dry_run) {
                    (true, _) => "unchanged: already has this",
                    (false, true) => "would be copied",
                    (false, false) => "copied",
                };
                format!("{}  {}  {what}", done.branch, done.commit.short())
            }
            Err(failure) => format!("FAILED: {}", line(failure.message())),
        };
        text.push_str(&format!("{:wide$}  {said}\n", row.photo.as_str()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_photo_and_perhaps_a_ref() {
        let read = |text: &str| source(text).map(|(photo, at)| (photo.to_string(), at));
        assert_eq!(read("iguana"), Ok(("iguana".into(), None)));
        assert_eq!(read("iguana@branch_b_tone"), Ok(("iguana".into(), Some("branch_b_tone".into()))));
        assert!(read("iguana@").is_err() && read("../x").is_err());
    }
}
