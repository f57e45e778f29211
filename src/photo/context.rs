//! What a model should know before it touches a photo: tastes, brief, notes, what was done, what was missing.

use std::path::Path;

use serde::Serialize;

use crate::photo::error::PhotoError;
use crate::photo::gaps::Gap;
use crate::photo::oplog::OpLine;
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

/// How many op-log lines and gaps are told.
const RECENT: usize = 10;

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
}

/// The notes on a photo.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Notes {
    /// The text; empty if there is none.
    pub text: String,
    /// How many lines were left out of its middle.
    pub elided: usize,
}

/// Reads the context of a photo. Missing files are empty. Long notes are shortened unless `full`.
pub fn read_context(workspace: &Workspace, tastes_dir: &Path, full: bool) -> Result<Context, PhotoError> {
    let folder = workspace.folder();
    let brief = tastes::read(&folder.join(BRIEF))?.unwrap_or_default();
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
    })
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
