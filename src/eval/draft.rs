//! A scenario from a photo that somebody edited: its history becomes the hidden edit, its masks become the
//! regions, and where the picture went becomes what is expected. The words stay with the person.

use std::path::{Path, PathBuf};

use jiff::civil::Date;
use serde::Serialize;

use crate::eval::file::FileError;
use crate::eval::metrics::pixels::Gaze;
use crate::eval::metrics::{EDGE, MeasureContext, MeasureError};
use crate::eval::scenario::{
    Brief, Count, Direction, Expected, HiddenMove, Image, Metadata, Region, SCENARIO_FILE, Scenario,
    ScenarioError,
};
use crate::tools::moves_of;
use crate::transcript::Vector;
use base::durable;
use base::error::{Coded, ErrorCode, Fault};
use base::files;
use base::ids::Hash;
use engine::photo::{AppliedMove, Workspace};
use engine::vocabulary::MaskSpec;
use pixels::metrics::axes::Axis;
use pixels::metrics::stats::ImageStats;

/// The axes that a draft may expect movement on: about independent, and what a person would notice.
const AXES: [Axis; 8] = [
    Axis::Brightness,
    Axis::Shadows,
    Axis::Highlights,
    Axis::Contrast,
    Axis::LocalContrast,
    Axis::Warmth,
    Axis::Tint,
    Axis::Chroma,
];

/// Of the hidden edit's own movement, the least and the most that is expected.
const BOUNDS: [f64; 2] = [0.35, 1.8];

/// What a person says about a new scenario.
#[derive(Clone, Debug)]
pub struct Words {
    /// The folder's name, `NNN_slug`.
    pub id: String,
    /// For lists; the id where there is none.
    pub title: Option<String>,
    /// What is in the picture.
    pub subject: String,
    /// What it should become.
    pub intent: String,
    /// Genres and techniques.
    pub tags: Vec<String>,
    /// The axes to explore.
    pub vectors: Vec<Vector>,
}

/// Why there is no new scenario.
#[derive(Debug, thiserror::Error)]
pub enum DraftError {
    /// There is one of that name.
    #[error("{path} already exists")]
    Exists {
        /// Its folder.
        path: PathBuf,
    },
    /// The history has an edit that is no move of the vocabulary.
    #[error("the edit cannot be expressed as moves: {reason}")]
    NotMoves {
        /// What prevents it.
        reason: String,
    },
    /// A file that the system refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// The scenario cannot be written down.
    #[error("the scenario cannot be written as TOML")]
    Toml(#[from] toml::ser::Error),
    /// What was written is no scenario.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The pictures.
    #[error(transparent)]
    Measure(#[from] MeasureError),
}

impl Coded for DraftError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Exists { .. } => ErrorCode::StateError,
            Self::NotMoves { .. } | Self::Toml(_) => ErrorCode::InvalidInput,
            Self::File(error) => error.code(),
            Self::Scenario(error) => error.code(),
            Self::Measure(error) => error.code(),
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::Exists { .. } => Some("give another --id, or delete the folder".into()),
            Self::NotMoves { .. } => Some(
                "make the edit with `chemigram apply` on the photo's default edit, without spots, imports or styles"
                    .into(),
            ),
            Self::Scenario(error) => error.remedy(),
            Self::Measure(error) => error.remedy(),
            _ => None,
        }
    }
}

/// `scenario.toml` as it is written: tables last, as TOML wants it.
#[derive(Serialize)]
struct File<'a> {
    metadata: Metadata,
    brief: Brief,
    image: Image,
    budget: Budget,
    #[serde(skip_serializing_if = "<[Vector]>::is_empty")]
    vectors: &'a [Vector],
    expected: Expected,
    hidden: Vec<HiddenMove>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    regions: Vec<Region>,
}

#[derive(Serialize)]
struct Budget {
    time: u64,
    iterations: u64,
    branches: u64,
}

/// Writes the scenario `words.id` into the folder `set`, with the edit at `commit` hidden in it. The raw goes
/// into the set's `raws/` unless it is there. What was written is read again, and its hidden edit is proved to
/// be the edit at `commit`.
pub fn draft(
    set: &Path,
    words: Words,
    workspace: &Workspace,
    commit: &Hash,
    context: &MeasureContext<'_>,
    today: Date,
) -> Result<Scenario, DraftError> {
    let folder = set.join(&words.id);
    if folder.exists() {
        return Err(DraftError::Exists { path: folder });
    }
    let facts = workspace.facts(workspace.baseline()).map_err(MeasureError::from)?;
    let state = workspace.state_of(commit).map_err(MeasureError::from)?;
    let hidden = hidden(workspace, commit)?;
    let gaze = Gaze::new(context, workspace.raw(), facts.clone(), EDGE);
    let expected = expected(&words, &hidden, &*gaze.see(&facts.baseline)?, &*gaze.see(&state)?);
    let image = keep_raw(set, workspace)?;
    let branches = (words.vectors.len() as u64).max(1);
    let file = File {
        metadata: Metadata {
            title: words.title.clone().unwrap_or_else(|| words.id.replace(['_', '-'], " ")),
            id: words.id,
            created: today,
            tags: words.tags,
        },
        brief: Brief { subject: words.subject, intent: words.intent, constraints: Vec::new() },
        image,
        budget: Budget { time: 240 + 60 * branches, iterations: 10 + 20 * branches, branches },
        vectors: &words.vectors,
        regions: regions(&hidden),
        expected,
        hidden,
    };
    let text = toml::to_string(&file)?;
    let reference = reference(&file);
    std::fs::create_dir_all(&folder).map_err(FileError::at("make", &folder))?;
    let path = folder.join("reference.md");
    durable::write(&path, reference.as_bytes()).map_err(FileError::at("write", &path))?;
    let written = prove(&folder, &text, context, &facts, &state);
    if written.is_err() {
        // Best effort: half a scenario is none.
        let _ = std::fs::remove_dir_all(&folder);
    }
    written
}

/// What the task is after, for people.
fn reference(file: &File<'_>) -> String {
    let mut text = format!(
        "# {}\n\nThe brief describes an edit that was made first, of these moves:\n\n",
        file.metadata.title
    );
    for hidden in &file.hidden {
        let values: Vec<String> =
            hidden.values.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        let place = if hidden.mask.is_some() { " on a mask" } else { "" };
        text.push_str(&format!("- `{}` with {}{place}\n", hidden.name, values.join(", ")));
    }
    text
}

fn prove(
    folder: &Path,
    text: &str,
    context: &MeasureContext<'_>,
    facts: &engine::vocabulary::PhotoFacts,
    state: &darktable::state::EditState,
) -> Result<Scenario, DraftError> {
    let path = folder.join(SCENARIO_FILE);
    durable::write(&path, text.as_bytes()).map_err(FileError::at("write", &path))?;
    let scenario = Scenario::load(folder)?;
    match scenario.target(context, facts)? {
        Some(made) if made.hash() == state.hash() => Ok(scenario),
        _ => Err(DraftError::NotMoves {
            reason: "its moves, applied to the default edit, give a different edit".into(),
        }),
    }
}

/// The moves in effect at a commit, oldest first.
fn hidden(workspace: &Workspace, commit: &Hash) -> Result<Vec<HiddenMove>, DraftError> {
    let read = |hash: &Hash| workspace.commit(hash).map_err(|e| Fault::from(&e));
    let state = |hash: &Hash| workspace.state(hash).map_err(|e| Fault::from(&e));
    let moves = moves_of(&read, commit, workspace.baseline(), &state).map_err(MeasureError::from)?;
    if moves.is_empty() {
        return Err(DraftError::NotMoves { reason: "it has no moves".into() });
    }
    moves.into_iter().map(hidden_move).collect()
}

fn hidden_move(applied: AppliedMove) -> Result<HiddenMove, DraftError> {
    if applied.name == "apply_spot" {
        return Err(DraftError::NotMoves { reason: "it has retouched spots".into() });
    }
    let mask: Option<MaskSpec> = applied
        .mask
        .map(serde_json::from_value)
        .transpose()
        .map_err(|e| DraftError::NotMoves { reason: format!("the mask of {}: {e}", applied.name) })?;
    let values = applied.values.into_iter().map(|(name, setting)| (name, setting.value)).collect();
    Ok(HiddenMove { name: applied.name, values, mask })
}

/// One region a mask, by number: the person knows better names.
fn regions(hidden: &[HiddenMove]) -> Vec<Region> {
    let mut masks: Vec<&MaskSpec> = Vec::new();
    for mask in hidden.iter().filter_map(|hidden| hidden.mask.as_ref()) {
        if !masks.contains(&mask) {
            masks.push(mask);
        }
    }
    let region =
        |(at, mask): (usize, &MaskSpec)| Region { name: format!("place_{}", at + 1), mask: mask.clone() };
    masks.into_iter().enumerate().map(region).collect()
}

/// What the hidden edit itself does, as bounds around it.
fn expected(
    words: &Words,
    hidden: &[HiddenMove],
    base: &darktable::render::Picture,
    target: &darktable::render::Picture,
) -> Expected {
    let (before, after) = (ImageStats::of(base), ImageStats::of(target));
    let steps = AXES.map(|axis| (axis, axis.steps(&before, &after)));
    let most =
        steps.into_iter().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs())).filter(|most| most.1.abs() >= 1.0);
    let tenth = |value: f64| (value * 10.0).round() / 10.0;
    let direction = |(axis, steps): (Axis, f64)| {
        let [one, two] = BOUNDS.map(|share| tenth(share * steps));
        Direction { vector: None, axis, min: one.min(two), max: one.max(two) }
    };
    let mut likely: Vec<String> = hidden.iter().map(|hidden| hidden.name.clone()).collect();
    likely.sort();
    likely.dedup();
    let branches = (words.vectors.len() as u64).max(1);
    Expected {
        likely_primitives: likely,
        forbidden_primitives: Vec::new(),
        mask_targets: regions(hidden).into_iter().map(|region| region.name).collect(),
        branch_count: Some(Count { min: branches, max: branches }),
        directions: most.map(direction).into_iter().collect(),
        unchanged: false,
    }
}

/// Puts the photo's raw into the set's `raws/`, unless the same file is there.
fn keep_raw(set: &Path, workspace: &Workspace) -> Result<Image, DraftError> {
    let raw = workspace.raw();
    let raws = set.join("raws");
    std::fs::create_dir_all(&raws).map_err(FileError::at("make", &raws))?;
    let bytes = files::read(&raw.path, files::LARGEST).map_err(FileError::at("read", &raw.path))?;
    raw.prove().map_err(MeasureError::from)?;
    let name = &workspace.photo().raw.name;
    let path = raws.join(name);
    match files::hash(&path) {
        Ok((there, _)) if there == raw.sha256 => {}
        Ok(_) => return Err(DraftError::Exists { path }),
        Err(_) => durable::write(&path, &bytes).map_err(FileError::at("write", &path))?,
    }
    Ok(Image { path: Path::new("../raws").join(name), sha256: raw.sha256, recipe: None })
}
