//! What a model should know before it touches a photo: tastes, brief, notes, what was done, what was missing.

use std::path::Path;

use serde::Serialize;

use crate::photo::error::PhotoError;
use crate::photo::gaps::Gap;
use crate::photo::oplog::OpLine;
use crate::photo::proposals::{Proposal, ProposalKind, ProposalStatus};
use crate::photo::tastes::{self, Contradiction, TasteFile};
use crate::photo::workspace::Workspace;

/// The photographer's brief, in a photo's folder.
pub(super) const BRIEF: &str = "brief.md";

/// What was learnt about this photo, in its folder.
pub(super) const NOTES: &str = "notes.md";

/// Longer notes are shortened…
const NOTES_LINES: usize = 40;
/// …to this many lines of their head…
const NOTES_HEAD: usize = 10;
/// …and this many of their tail.
const NOTES_TAIL: usize = 30;

/// How many op-log lines and gaps are listed.
const RECENT: usize = 10;

/// How much of an answered proposal is told, in characters.
const ANSWERED_TEXT: usize = 300;

/// The context of one photo, in the order in which a model should read it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Context {
    /// `_default.md`, then the genre files that the brief names. A later file wins over an earlier one.
    pub tastes: Vec<TasteFile>,
    /// Genres that the brief names and for which there is no file, or which are no file names.
    pub missing_tastes: Vec<String>,
    /// Points of the taste files that cannot both be followed.
    pub contradictions: Vec<Contradiction>,
    /// `taste_for_mode_b.md`; empty if there is none.
    pub taste_for_mode_b: String,
    /// `brief.md`; empty if there is none.
    pub brief: String,
    /// `notes.md`.
    pub notes: Notes,
    /// The last ten mutations, newest first.
    pub recent_operations: Vec<OpLine>,
    /// The last ten gaps, newest first.
    pub recent_gaps: Vec<Gap>,
    /// What a person made of the last ten proposals that were answered, newest first: `declined: not mine (taste: More
    /// grain.)`.
    pub answered_proposals: Vec<String>,
}

/// The notes on a photo.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Notes {
    /// The text; empty if there is none.
    pub text: String,
    /// How many lines were left out of its middle.
    pub elided: usize,
}

impl Workspace {
    /// The photographer's brief; empty if there is none.
    ///
    /// # Errors
    /// [`PhotoError`] for a file that cannot be read, or is too large.
    pub fn brief(&self) -> Result<String, PhotoError> {
        Ok(tastes::read(&self.folder().join(BRIEF))?.unwrap_or_default())
    }
}

/// Reads the context of a photo. Missing files are empty. Long notes are shortened unless `full`.
///
/// # Errors
/// As [`Workspace::brief`].
pub fn read_context(workspace: &Workspace, tastes_dir: &Path, full: bool) -> Result<Context, PhotoError> {
    let folder = workspace.folder();
    let brief = workspace.brief()?;
    let mut files = Vec::new();
    let mut missing_tastes = Vec::new();
    if let Some(text) = tastes::read(&tastes_dir.join(tastes::DEFAULT))? {
        files.push(TasteFile { name: tastes::DEFAULT.into(), text });
    }
    for genre in tastes::genres(&brief) {
        let text = match tastes::path(tastes_dir, &genre) {
            Ok(path) => tastes::read(&path)?,
            Err(_) => None,
        };
        match text {
            Some(text) => files.push(TasteFile { name: format!("{genre}.md"), text }),
            None => missing_tastes.push(genre),
        }
    }
    let notes = tastes::read(&folder.join(NOTES))?.unwrap_or_default();
    Ok(Context {
        contradictions: tastes::contradictions(&files),
        tastes: files,
        missing_tastes,
        taste_for_mode_b: tastes::read(&tastes_dir.join(tastes::FOR_MODE_B))?.unwrap_or_default(),
        brief,
        notes: if full { Notes { text: notes, elided: 0 } } else { shorten(notes) },
        recent_operations: workspace.recent_operations(RECENT)?,
        recent_gaps: workspace.gaps(RECENT)?,
        answered_proposals: answered(workspace)?,
    })
}

fn answered(workspace: &Workspace) -> Result<Vec<String>, PhotoError> {
    let proposals = workspace.proposals()?;
    let settled = proposals.iter().rev().filter(|proposal| proposal.status != ProposalStatus::Pending);
    let words = |proposal: &Proposal| {
        let kind = match proposal.proposed.kind {
            ProposalKind::Taste => "taste",
            ProposalKind::Notes => "notes",
        };
        let text: String = proposal.proposed.text.chars().take(ANSWERED_TEXT).collect();
        format!("{} ({kind}: {text})", proposal.status.told())
    };
    Ok(settled.take(RECENT).map(words).collect())
}

fn shorten(text: String) -> Notes {
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() <= NOTES_LINES {
        return Notes { text, elided: 0 };
    }
    let elided = lines.len() - NOTES_HEAD - NOTES_TAIL;
    let marker = format!("[… {elided} lines left out; ask for the full notes to read them …]");
    let head = lines.iter().take(NOTES_HEAD).copied();
    let tail = lines.iter().skip(lines.len() - NOTES_TAIL).copied();
    let text = head.chain([marker.as_str()]).chain(tail).collect::<Vec<_>>().join("\n") + "\n";
    Notes { text, elided }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::photo::GapReport;
    use crate::photo::testing::TestPhoto;

    #[test]
    fn nothing_there_is_an_empty_context() {
        let photo = TestPhoto::new();
        fs::remove_file(photo.workspace.folder().join(NOTES)).unwrap();
        let context = read_context(&photo.workspace, Path::new("/nowhere"), false).unwrap();
        assert!(context.tastes.is_empty() && context.brief.is_empty() && context.notes.text.is_empty());
        assert_eq!(context.recent_operations.len(), 1);
    }

    #[test]
    fn tastes_come_in_order_and_a_name_cannot_leave_the_folder() {
        let photo = TestPhoto::new();
        let tastes = photo.dir.path().join("tastes");
        fs::create_dir(&tastes).unwrap();
        fs::write(photo.dir.path().join("secret.md"), "secret").unwrap();
        for (file, text) in [
            ("_default.md", "- lifted shadows\n"),
            ("birds.md", "- deep shadows\n"),
            ("night.md", "- quiet\n"),
            ("portrait.md", "- unused\n"),
            ("taste_for_mode_b.md", "be bold"),
        ] {
            fs::write(tastes.join(file), text).unwrap();
        }
        photo.write(BRIEF, "# Iguana\n**Tastes:** Night, birds, snow, ../secret\n");
        let context = read_context(&photo.workspace, &tastes, false).unwrap();
        let names: Vec<_> = context.tastes.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["_default.md", "night.md", "birds.md"]);
        assert_eq!(context.missing_tastes, ["snow", "../secret"]);
        assert_eq!(context.taste_for_mode_b, "be bold");
        assert_eq!(context.contradictions.len(), 1);
        assert_eq!(context.contradictions[0].specific.file, "birds.md");
        std::os::unix::fs::symlink("../secret.md", tastes.join("snow.md")).unwrap();
        let error = read_context(&photo.workspace, &tastes, false).unwrap_err();
        assert!(error.to_string().contains("symbolic link"), "{error}");
    }

    #[test]
    fn long_notes_are_shortened_and_recent_things_come_newest_first() {
        let photo = TestPhoto::new();
        let notes: String = (1..=100).map(|i| format!("line {i}\n")).collect();
        photo.write(NOTES, &notes);
        for i in 0..12 {
            let report = GapReport { description: format!("gap {i}"), ..GapReport::default() };
            photo.person().log_gap(report, None).unwrap();
        }
        let context = read_context(&photo.workspace, Path::new("/nowhere"), false).unwrap();
        let lines: Vec<_> = context.notes.text.lines().collect();
        assert_eq!((lines.len(), context.notes.elided), (41, 60));
        assert_eq!((lines[9], lines[11]), ("line 10", "line 71"));
        assert!(lines[10].contains("60 lines"), "{}", lines[10]);
        let gaps: Vec<_> = context.recent_gaps.iter().map(|g| g.report.description.as_str()).collect();
        assert_eq!((gaps.len(), gaps[0], gaps[9]), (10, "gap 11", "gap 2"));
        let full = read_context(&photo.workspace, Path::new("/nowhere"), true).unwrap();
        assert_eq!((full.notes.text, full.notes.elided), (notes, 0));
        let forty: String = (1..=40).map(|i| format!("{i}\n")).collect();
        assert_eq!(shorten(forty.clone()), Notes { text: forty, elided: 0 });
    }
}
