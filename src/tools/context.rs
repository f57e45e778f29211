//! What a tool handler works with.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::budget::Amounts;
use crate::conversation::ImageRef;
use crate::darktable::layout::Layouts;
use crate::darktable::render::{Picture, Quality, RawFile, RenderError, RenderRequest, Rendered, Renderer};
use crate::darktable::state::EditState;
use crate::error::{ErrorCode, Fault};
use crate::gate::{Gate, Permit};
use crate::ids::{Hash, RefName};
use crate::metrics::axes::Axis;
use crate::metrics::check::VectorCheck;
use crate::metrics::difference::Difference;
use crate::metrics::stats::ImageStats;
use crate::metrics::vectors::vector_axes;
use crate::photo::{AppliedMove, Commit, Writer};
use crate::tools::{BlobStore, moves_of};
use crate::transcript::{Event, HeadState, Judgment, SessionStart, Vector};
use crate::vocabulary::{PhotoFacts, Vocabulary};

/// What stays the same for a whole session: the hands.
pub struct Engine {
    /// The moves.
    pub vocabulary: Arc<Vocabulary>,
    /// Parameter layouts.
    pub layouts: Arc<Layouts>,
    /// What the vocabulary must know of the photo.
    pub facts: PhotoFacts,
    /// The eyes.
    pub renderer: Arc<dyn Renderer>,
    /// The raw.
    pub raw: RawFile,
    /// The folder of taste files.
    pub tastes: PathBuf,
    /// Commits that were read and proved once: they never change, and a long branch is walked often.
    pub commits: Mutex<HashMap<Hash, Commit>>,
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

/// The part of the session's state that tools may look at.
#[derive(Clone, Debug)]
pub struct View {
    /// The header.
    pub start: SessionStart,
    /// The phase, in a word.
    pub phase: &'static str,
    /// Where the session stands.
    pub head: HeadState,
    /// Its branches.
    pub branches: Vec<BranchView>,
    /// Proposals made so far, (taste, notes).
    pub proposals: (usize, usize),
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

/// Everything a handler may touch.
pub struct ToolContext<'a> {
    /// The hands.
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
    /// Told when a render starts.
    pub on_render: &'a dyn Fn(&str),
}

/// What a handler gives back.
#[derive(Debug, Default)]
pub struct Answer {
    /// For the model.
    pub data: Value,
    /// Pictures for the model.
    pub images: Vec<ImageRef>,
    /// Where the session stands now, if it moved.
    pub head: Option<HeadState>,
}

impl From<Value> for Answer {
    fn from(data: Value) -> Self {
        Self { data, ..Self::default() }
    }
}

/// A commit with its state, resolved.
pub struct Place {
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
    /// Resolves `baseline`, a branch, tag or commit; nothing is where the session stands.
    pub fn place(&self, name: Option<&str>) -> Result<Place, Fault> {
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
        let info = self.photo.workspace().commit(&commit).map_err(|e| Fault::from(&e))?;
        let state = self.photo.workspace().state(&info.state).map_err(|e| Fault::from(&e))?;
        Ok(Place { name, commit, state_hash: info.state, state })
    }

    /// A commit, read once a session.
    pub fn commit(&self, hash: &Hash) -> Result<Commit, Fault> {
        let mut known = self.engine.commits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(commit) = known.get(hash) {
            return Ok(commit.clone());
        }
        let commit = self.photo.workspace().commit(hash).map_err(|e| Fault::from(&e))?;
        known.insert(hash.clone(), commit.clone());
        Ok(commit)
    }

    /// The moves in effect at a commit: [`moves_of`].
    pub fn moves(&self, commit: &Hash) -> Result<Vec<AppliedMove>, Fault> {
        let state = |hash: &Hash| self.photo.workspace().state(hash).map_err(|e| Fault::from(&e));
        moves_of(&|hash| self.commit(hash), commit, &self.view.start.baseline, &state)
    }

    /// The branch that the session stands on.
    pub fn branch(&self) -> Result<RefName, Fault> {
        self.view.head.branch.clone().ok_or_else(|| {
            Fault::new(
                ErrorCode::StateError,
                "you stand on the baseline, which cannot be edited: make a branch first",
            )
            .with("example", r#"branch {"name": "branch_b_tone"}"#)
        })
    }

    /// The picture of a state, if it is there already.
    pub fn looked_at(&self, state: &EditState, long_edge: u32, quality: Quality) -> Option<Rendered> {
        self.engine.renderer.cached(&RenderRequest { raw: &self.engine.raw, state, long_edge, quality })
    }

    /// The picture of a state: from the cache, or rendered under a permit.
    pub fn render(&mut self, state: &EditState, long_edge: u32, quality: Quality) -> Result<Rendered, Fault> {
        if let Some(found) = self.looked_at(state, long_edge, quality) {
            self.note_render(None, state, long_edge, quality, Ok(&found), found.elapsed)?;
            return Ok(found);
        }
        let reserved = Amounts { renders: 1, ..Amounts::default() };
        let name = quality.as_str().to_owned();
        let intent = Event::RenderIntent { state: state.hash(), long_edge, quality: name, reserved };
        let permit = self.gate.admit(intent).map_err(|e| Fault::from(&e).fatal())?;
        (self.on_render)(quality.as_str());
        let started = self.gate.elapsed();
        let seq = permit.seq();
        let result = self.develop(permit, state, long_edge, quality);
        let took = self.gate.elapsed().saturating_sub(started);
        self.note_render(Some(seq), state, long_edge, quality, result.as_ref(), took)?;
        result.map_err(|error| match (&error, self.gate.check(&Amounts::default())) {
            (RenderError::Cut { cancelled: false, .. }, Err(exhausted)) => exhausted.into(),
            _ => Fault::from(&error),
        })
    }

    /// Runs the renderer, for which the permit is used up.
    fn develop(
        &self,
        _permit: Permit,
        state: &EditState,
        long_edge: u32,
        quality: Quality,
    ) -> Result<Rendered, RenderError> {
        let request = RenderRequest { raw: &self.engine.raw, state, long_edge, quality };
        self.engine.renderer.render(&request, &self.gate.deadline())
    }

    fn note_render(
        &mut self,
        intent: Option<u64>,
        state: &EditState,
        long_edge: u32,
        quality: Quality,
        result: Result<&Rendered, &RenderError>,
        took: Duration,
    ) -> Result<(), Fault> {
        let event = Event::Render {
            intent,
            state: state.hash(),
            long_edge,
            quality: quality.as_str().into(),
            pixel_hash: result.ok().map(|r| r.pixel_hash.clone()),
            settled: Amounts { renders: u64::from(intent.is_some()), ..Amounts::default() },
            error: result.err().map(ToString::to_string),
            ms: millis(took),
        };
        self.gate.record(event).map(|_| ()).map_err(|e| Fault::from(&e).fatal())
    }

    /// The numbers of a picture against the baseline's: the difference, and whether the vector's way was taken.
    pub fn versus_baseline(
        &mut self,
        branch: Option<&RefName>,
        picture: &Picture,
        stats: &ImageStats,
        long_edge: u32,
        quality: Quality,
    ) -> Result<Comparison, Fault> {
        let baseline = self.place(Some("baseline"))?;
        let base = self.render(&baseline.state, long_edge, quality)?;
        let base_stats = ImageStats::of(&base.picture);
        let difference = difference(&base.picture, picture)?;
        let axes = self.view.axes(branch);
        let check = VectorCheck::of(&axes, &base_stats, stats, &difference);
        Ok(Comparison { difference, check, axes, base_stats, base })
    }
}

/// A picture held against the baseline's.
pub struct Comparison {
    /// How far apart.
    pub difference: Difference,
    /// Whether the asked direction moved.
    pub check: VectorCheck,
    /// The axes that were asked for.
    pub axes: Vec<(Axis, i8)>,
    /// The baseline's numbers.
    pub base_stats: ImageStats,
    /// The baseline's picture.
    pub base: Rendered,
}

impl Comparison {
    /// As the model reads it.
    pub fn to_json(&self) -> Value {
        let axes: Vec<Value> = self
            .axes
            .iter()
            .map(|(axis, sign)| json!({"axis": axis.name(), "asked": if *sign < 0 { "-" } else { "+" }}))
            .collect();
        json!({ "difference": self.difference, "vector": self.check, "axes": axes })
    }
}

/// The difference of two pictures.
pub fn difference(a: &Picture, b: &Picture) -> Result<Difference, Fault> {
    Difference::between(a, b).map_err(|e| Fault::new(ErrorCode::StateError, e.to_string()))
}

/// Whole milliseconds.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
