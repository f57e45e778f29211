//! What a tool handler works with.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

use crate::conversation::ImageRef;
use crate::gate::Gate;
use crate::render_queue::Queue;
use crate::tools::measures::make_room;
use crate::tools::moves::{KnownMoves, known_moves_of};
use crate::tools::{BlobStore, Measures};
use crate::transcript::{HeadState, Judgment, SessionStart, Vector};
use base::error::{ErrorCode, Fault};
use base::ids::{Hash, RefName};
use darktable::layout::Layouts;
use darktable::render::{Quality, RawFile, Renderer};
use darktable::state::EditState;
use engine::photo::{AppliedMove, Commit, LayerContext, Standing, Writer};
use engine::vocabulary::{PhotoFacts, Vocabulary};
use pixels::metrics::axes::Axis;
use pixels::metrics::vectors::vector_axes;

/// States that are kept: where the session is, its baseline, and those just before.
const STATES: usize = 8;

/// What stays the same for a whole session.
pub struct Engine {
    /// The moves.
    pub vocabulary: Arc<Vocabulary>,
    /// Parameter layouts.
    pub layouts: Arc<Layouts>,
    /// What the vocabulary must know of the photo.
    pub facts: PhotoFacts,
    /// The renderer, with work ahead.
    pub renderer: Queue,
    /// The raw.
    pub raw: RawFile,
    /// The folder of taste files.
    pub tastes: PathBuf,
    /// Commits that were read and proved once: they never change.
    pub commits: Mutex<HashMap<Hash, Commit>>,
    /// Whether commits come from the session's baseline.
    pub descent: Mutex<HashMap<Hash, bool>>,
    /// The moves in effect at commits: a long branch is asked for them with each call, and is not walked again.
    pub moves: Mutex<KnownMoves>,
    /// The latest states that were read and proved, the newest at the end.
    pub states: Mutex<VecDeque<(Hash, EditState)>>,
    /// What was measured of pictures.
    pub measures: Arc<Measures>,
    /// What stands at commits, which is walked for as often.
    pub standing: Mutex<HashMap<Hash, Standing>>,
}

impl Engine {
    /// The version of darktable that renders.
    pub fn darktable_version(&self) -> &str {
        self.renderer.darktable_version()
    }

    /// What an edit works with.
    pub fn layer_context(&self) -> LayerContext<'_> {
        LayerContext {
            vocabulary: &self.vocabulary,
            facts: &self.facts,
            layouts: &self.layouts,
            darktable: self.darktable_version(),
        }
    }
}

/// What decides a picture of a session's photo: state, size and level.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RenderKey {
    pub(super) state: Hash,
    pub(super) long_edge: u32,
    pub(super) quality: Quality,
}

impl RenderKey {
    /// The picture of that state, longest side and level of quality.
    pub fn new(state: &Hash, long_edge: u32, quality: Quality) -> Self {
        Self { state: state.clone(), long_edge, quality }
    }
}

/// A branch as the session knows it.
#[derive(Clone, Debug)]
pub struct BranchView {
    /// Its name.
    pub name: RefName,
    /// Its tip.
    pub tip: Hash,
    /// Its judgment, if it has one.
    pub judgment: Option<Judgment>,
}

/// Where a session is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The plan waits for the agent's confirmation.
    Planned,
    /// Exploring.
    Running,
    /// Judging and closing.
    WrappingUp,
    /// Closed.
    Ended,
}

impl Phase {
    /// As the model reads it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Running => "running",
            Self::WrappingUp => "wrapping up",
            Self::Ended => "ended",
        }
    }
}

/// The part of the session's state that tools may look at.
#[derive(Clone, Debug)]
pub struct View {
    /// The header.
    pub start: SessionStart,
    /// Where in its life.
    pub phase: Phase,
    /// The session's head.
    pub head: HeadState,
    /// Its branches.
    pub branches: Vec<BranchView>,
    /// Proposals made so far, (taste, notes).
    pub proposals: (usize, usize),
    /// Pictures begun ahead and not paid for, by the line of their intent.
    pub ahead: BTreeMap<RenderKey, u64>,
    /// Whether the engine makes this call because the protocol says so, and not the model.
    pub acting: bool,
    /// Whether the photographer has just said that the conversation is not over.
    pub goes_on: bool,
    /// Edits that were proposed and declined, as [`proposed`](crate::tools::proposed) says them.
    pub declined: BTreeSet<String>,
}

impl View {
    /// The vector that a branch explores.
    pub fn vector(&self, branch: &RefName) -> Option<&Vector> {
        self.start.branches.iter().find(|b| &b.branch == branch).and_then(|b| b.vector.as_ref())
    }

    /// The axes that a branch's vector asks to move.
    pub fn axes(&self, branch: Option<&RefName>) -> Vec<(Axis, i8)> {
        branch
            .and_then(|b| self.vector(b))
            .map(|v| vector_axes(v.name.as_str(), &v.direction))
            .unwrap_or_default()
    }
}

/// What was done up to a commit.
pub struct History<'a> {
    /// The moves in effect.
    pub moves: Vec<AppliedMove>,
    /// The placed ones, with their ids.
    pub standing: Standing,
    /// Names that a claim may use.
    pub vocabulary: &'a Vocabulary,
    /// The differences from the baseline, as `diff` says them.
    pub lines: Vec<String>,
}

/// Everything a handler may touch.
pub struct ToolContext<'a> {
    /// What stays the same.
    pub engine: &'a Engine,
    /// The photo, with the session's authority.
    pub photo: &'a mut Writer,
    /// The gate.
    pub gate: &'a mut Gate,
    /// The session, to look at.
    pub view: View,
    /// Where pictures go.
    pub blobs: &'a BlobStore,
    /// The session's folder.
    pub folder: &'a Path,
    /// Transcript line of this call.
    pub call: u64,
    /// Called when a render starts.
    pub on_render: &'a dyn Fn(&str),
}

/// What a handler gives back.
#[derive(Debug, Default)]
pub struct Answer {
    /// For the model.
    pub data: Value,
    /// Pictures for the model.
    pub images: Vec<ImageRef>,
    /// The session's new head, if it moved.
    pub head: Option<HeadState>,
}

impl Answer {
    /// Adds a field to what the model reads.
    pub fn add(&mut self, field: &str, value: Value) {
        if let Some(data) = self.data.as_object_mut() {
            data.insert(field.to_owned(), value);
        }
    }
}

impl From<Value> for Answer {
    fn from(data: Value) -> Self {
        Self { data, ..Self::default() }
    }
}

/// A commit with its state, resolved.
pub struct ResolvedRef {
    /// How it was named.
    pub name: String,
    /// The commit.
    pub commit: Hash,
    /// Its state's hash.
    pub state_hash: Hash,
    /// Its state.
    pub state: EditState,
}

impl ToolContext<'_> {
    /// Resolves `baseline`, a branch, tag or commit; `None` is the session's head.
    pub fn place(&self, name: Option<&str>) -> Result<ResolvedRef, Fault> {
        let (name, commit) = match name.map(str::trim) {
            None | Some("" | "HEAD" | "head" | "current") => {
                let head = &self.view.head;
                (head.branch.as_ref().map_or("baseline".into(), ToString::to_string), head.commit.clone())
            }
            Some("baseline") => ("baseline".to_owned(), self.view.start.baseline.clone()),
            Some(other) => {
                (other.to_owned(), self.photo.workspace().resolve(other).map_err(|e| Fault::from(&e))?)
            }
        };
        let info = self.commit(&commit)?;
        let state = self.state(&info.state)?;
        Ok(ResolvedRef { name, commit, state_hash: info.state, state })
    }

    /// A commit, kept with others that were read.
    pub fn commit(&self, hash: &Hash) -> Result<Commit, Fault> {
        let mut known = self.engine.commits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(commit) = known.get(hash) {
            return Ok(commit.clone());
        }
        let commit = self.photo.workspace().commit(hash).map_err(|e| Fault::from(&e))?;
        make_room(&mut known);
        known.insert(hash.clone(), commit.clone());
        Ok(commit)
    }

    /// A state, kept while it is one of the latest.
    fn state(&self, hash: &Hash) -> Result<EditState, Fault> {
        let mut known = self.engine.states.lock().unwrap_or_else(PoisonError::into_inner);
        let held = known.iter().position(|(of, _)| of == hash).and_then(|at| known.remove(at));
        let latest = match held {
            Some(held) => held,
            None => {
                let read = self.photo.workspace().state(hash).map_err(|e| Fault::from(&e))?;
                if known.len() >= STATES {
                    known.pop_front();
                }
                (hash.clone(), read)
            }
        };
        let state = latest.1.clone();
        known.push_back(latest);
        Ok(state)
    }

    /// The moves in effect at a commit: [`moves_of`](crate::tools::moves_of).
    pub fn moves(&self, commit: &Hash) -> Result<Vec<AppliedMove>, Fault> {
        let mut known = self.engine.moves.lock().unwrap_or_else(PoisonError::into_inner);
        let (read, state) = (|hash: &Hash| self.commit(hash), |hash: &Hash| self.state(hash));
        known_moves_of(&read, commit, &self.view.start.baseline, &state, &mut known)
    }

    /// What stands at a commit: the placed moves with their ids.
    pub fn standing(&self, commit: &Hash) -> Result<Standing, Fault> {
        let mut known = self.engine.standing.lock().unwrap_or_else(PoisonError::into_inner);
        let workspace = self.photo.workspace();
        workspace.standing(commit, &self.engine.vocabulary, &mut known).map_err(|e| Fault::from(&e))
    }

    /// The differences between two places by module and field, placed moves by their ids.
    fn fields_changed(&self, a: &ResolvedRef, b: &ResolvedRef) -> Result<Vec<String>, Fault> {
        let numbered = |at: &ResolvedRef| Ok::<_, Fault>(self.standing(&at.commit)?.numbered(&at.state));
        Ok(engine::photo::diff(&numbered(a)?, &numbered(b)?).iter().map(ToString::to_string).collect())
    }

    /// What was done up to a commit, for claims about it.
    pub fn history(&self, commit: &Hash) -> Result<History<'_>, Fault> {
        let [before, after] = [&self.view.start.baseline, commit].map(|at| self.place(Some(at.as_str())));
        let (before, after) = (before?, after?);
        let lines = [self.fields_changed(&before, &after)?, self.changes(&before, &after)?].concat();
        Ok(History {
            moves: self.moves(commit)?,
            standing: self.standing(commit)?,
            vocabulary: &self.engine.vocabulary,
            lines,
        })
    }

    /// The session's current branch.
    pub fn branch(&self) -> Result<RefName, Fault> {
        self.view.head.branch.clone().ok_or_else(|| {
            Fault::new(
                ErrorCode::StateError,
                "you stand on the baseline, which cannot be edited: make a branch first",
            )
            .with("example", r#"branch {"name": "branch_b_tone"}"#)
        })
    }
}

/// Whole milliseconds.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
