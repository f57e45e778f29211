//! A scenario: one task of a golden set, as a folder with a `scenario.toml`.
//!
//! ```toml
//! [metadata]
//! id = "003_window_portrait"          # the folder's name
//! title = "Portrait by a window"      # says what the picture is, never what the answer is
//! created = "2026-11-22"
//! tags = ["portrait"]
//!
//! [brief]
//! subject = "An astronaut in an orange suit, half length, by a flag."
//! intent = "The room was dim and I exposed for the suit. Give the face its light back."
//! constraints = ["The background stays as dark as it is."]
//!
//! [taste_fragments]                   # what the photographer's taste file says
//! entries = ["Skin is never orange."]
//!
//! [image]
//! path = "../raws/astronaut_dim.dng"  # from this folder
//! sha256 = "…"
//!
//! [budget]
//! time = 300                          # seconds
//! iterations = 30
//! branches = 1                        # and, if wanted: tokens, cost (US dollars), renders
//!
//! [[vectors]]                         # none: one open-ended branch
//! name = "light"
//! direction = "open the face"
//!
//! [expected]
//! likely_primitives = ["midtones_lift"]
//! forbidden_primitives = ["black_and_white"]
//! mask_targets = ["face"]             # regions that some masked move should meet
//! branch_count = { min = 1, max = 1 }
//!
//! [[expected.directions]]             # in just-noticeable steps from the baseline
//! vector = "light"                    # left out: on every branch
//! axis = "midtones"
//! min = 1.0
//! max = 14.0
//!
//! [[hidden]]                          # the answer, in order; the agent never reads it
//! move = "midtones_lift"
//! values = { amount = 0.8 }
//! mask = { shape = "ellipse", center = [0.45, 0.25], radius = [0.14, 0.2] }
//!
//! [[regions]]
//! name = "face"
//! mask = { shape = "ellipse", center = [0.45, 0.25], radius = [0.14, 0.2] }
//! ```
//!
//! A `reference.md` beside it tells a person what the task is after; nothing reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use crate::budget::Budget;
use crate::eval::file::FileError;
use crate::eval::metrics::{EDGE, MeasureContext};
use crate::eval::recipe::{Recipe, RecipeError};
use crate::session::start::Request;
use crate::transcript::Vector;
use base::durable;
use base::error::{Coded, ErrorCode};
use base::files;
use base::hint::{did_you_mean, toml_error};
use base::ids::{Hash, PhotoId, VectorName};
use darktable::render::RawFile;
use darktable::state::EditState;
use engine::photo::{AskDefaults, IngestOptions, Library, Operation, PhotoError, Workspace, ingest};
use engine::vocabulary::{ApplyRequest, MaskSpec, PhotoFacts, Vocabulary, VocabularyError};
use pixels::metrics::axes::Axis;

/// The file that makes a folder a scenario.
pub const SCENARIO_FILE: &str = "scenario.toml";

/// What a scenario is called and filed under.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metadata {
    /// The folder's name, `NNN_slug`.
    pub id: String,
    /// A title for lists. It may name the picture; it must not name the answer.
    pub title: String,
    /// When it was written.
    pub created: Date,
    /// Genres and techniques, for choosing scenarios.
    #[serde(default)]
    pub tags: Vec<String>,
}

/// What the photographer says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Brief {
    /// What is in the picture.
    pub subject: String,
    /// What it should become.
    pub intent: String,
    /// What must hold whatever else is done.
    #[serde(default)]
    pub constraints: Vec<String>,
}

/// The raw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// Where it is, from the scenario's folder.
    pub path: PathBuf,
    /// SHA-256 of its bytes.
    pub sha256: Hash,
    /// How it is made where it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<Recipe>,
}

/// A number of branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Count {
    /// At least.
    pub min: u64,
    /// At most.
    pub max: u64,
}

/// Where a branch should have moved to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Direction {
    /// Whose branch; on every branch if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vector: Option<VectorName>,
    /// Along which axis.
    pub axis: Axis,
    /// The least movement from the baseline, in just-noticeable steps; negative is the other way.
    pub min: f64,
    /// The most.
    pub max: f64,
}

/// What is expected of a session, which does not see it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expected {
    /// Moves and looks that a good answer is likely to use.
    pub likely_primitives: Vec<String>,
    /// Moves and looks that break the brief.
    pub forbidden_primitives: Vec<String>,
    /// Names of regions that some masked move should meet.
    pub mask_targets: Vec<String>,
    /// How many branches should come back; one a vector if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch_count: Option<Count>,
    /// Where the branches should have moved to.
    pub directions: Vec<Direction>,
    /// Whether the photo is to stay as it is, because it meets the brief already: there is no hidden edit then, and
    /// doing nothing is the whole answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unchanged: bool,
}

/// One move of the hidden edit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HiddenMove {
    /// A move or a look of the vocabulary.
    #[serde(rename = "move")]
    pub name: String,
    /// Its parameters; what is left out has the move's default.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, f64>,
    /// Where it acts; everywhere if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<MaskSpec>,
}

/// A named part of the picture, as it lies on the baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Region {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub mask: MaskSpec,
}

/// `[taste_fragments]`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Taste {
    entries: Vec<String>,
}

/// `[budget]`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Caps {
    time: u64,
    iterations: u64,
    branches: u64,
    tokens: Option<u64>,
    cost: Option<f64>,
    renders: Option<u64>,
}

impl Caps {
    fn budget(self) -> Option<Budget> {
        let cost = match self.cost {
            Some(usd) if usd.is_finite() && usd > 0.0 => Some((usd * 1e6).round() as u64),
            Some(_) => return None,
            None => None,
        };
        let given = [Some(self.time), Some(self.iterations), Some(self.branches), self.tokens, self.renders];
        let positive = given.into_iter().flatten().all(|cap| cap > 0);
        positive.then_some(Budget {
            time_seconds: self.time,
            max_iterations: self.iterations,
            max_branches: self.branches,
            max_tokens: self.tokens,
            max_cost_micro_usd: cost,
            max_renders: self.renders,
            max_model_calls: None,
        })
    }
}

/// `scenario.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    metadata: Metadata,
    brief: Brief,
    #[serde(default)]
    vectors: Vec<Vector>,
    #[serde(default)]
    taste_fragments: Taste,
    image: Image,
    budget: Caps,
    #[serde(default)]
    expected: Expected,
    #[serde(default)]
    hidden: Vec<HiddenMove>,
    #[serde(default)]
    regions: Vec<Region>,
}

/// One task.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name, which is its folder's.
    pub id: String,
    /// Its folder.
    pub folder: PathBuf,
    /// SHA-256 of `scenario.toml`, which names the raw by its hash: the identity of the whole task.
    pub sha256: Hash,
    /// What it is called and filed under.
    pub metadata: Metadata,
    /// What the photographer says.
    pub brief: Brief,
    /// The axes to explore; none means one open-ended branch.
    pub vectors: Vec<Vector>,
    /// What the photographer's taste file says, a sentence each.
    pub taste: Vec<String>,
    /// The raw.
    pub image: Image,
    /// What a session may spend.
    pub budget: Budget,
    /// What is expected.
    pub expected: Expected,
    /// The hidden edit; empty where there is none, and a scenario then has no recovery.
    pub hidden: Vec<HiddenMove>,
    /// Parts of the picture that are measured by themselves.
    pub regions: Vec<Region>,
}

/// Why a scenario cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// A file that the system refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// `scenario.toml` does not say what it has to.
    #[error("{path}: {reason}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong, with its place.
        reason: String,
    },
    /// The raw is nowhere.
    #[error("the raw file of {scenario} is missing: {path}")]
    NoRaw {
        /// The scenario.
        scenario: String,
        /// Where it was looked for first.
        path: PathBuf,
    },
    /// The raw cannot be made.
    #[error("the raw file of {scenario} cannot be made")]
    Recipe {
        /// The scenario.
        scenario: String,
        /// Why.
        source: RecipeError,
    },
    /// The raw is another file.
    #[error("the raw file of {scenario} is a different one: {path}")]
    OtherRaw {
        /// The scenario.
        scenario: String,
        /// The file.
        path: PathBuf,
    },
    /// The hidden edit cannot be made.
    #[error("the hidden edit of {scenario} cannot be made: {name}")]
    Hidden {
        /// The scenario.
        scenario: String,
        /// The move at fault.
        name: String,
        /// Why; boxed, since it is large and every result would be.
        source: Box<VocabularyError>,
    },
    /// The photo's folder.
    #[error(transparent)]
    Photo(#[from] PhotoError),
}

impl Coded for ScenarioError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::File(error) => error.code(),
            Self::Invalid { .. } => ErrorCode::InvalidInput,
            Self::NoRaw { .. } => ErrorCode::NotFound,
            Self::Recipe { source, .. } => source.code(),
            Self::OtherRaw { .. } => ErrorCode::VersioningError,
            Self::Hidden { source, .. } => source.code(),
            Self::Photo(error) => error.code(),
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::NoRaw { .. } | Self::OtherRaw { .. } => Some(
                "put the raw files of the set into a folder and set CHEMIGRAM_GOLDEN_RAWS_DIR to it".into(),
            ),
            Self::Invalid { .. } => Some(
                "docs/scenarios.md describes the format; `chemigram eval new-scenario` writes one".into(),
            ),
            Self::Photo(error) => error.remedy(),
            _ => None,
        }
    }
}

impl Scenario {
    /// Reads the scenario in `folder` and checks everything that needs neither raw nor vocabulary.
    pub fn load(folder: &Path) -> Result<Self, ScenarioError> {
        let path = folder.join(SCENARIO_FILE);
        let text = files::read_text(&path, files::LARGEST_TEXT).map_err(FileError::at("read", &path))?;
        Self::parse(folder, &text).map_err(|reason| ScenarioError::Invalid { path, reason })
    }

    /// [`Self::load`] of a text; the error is a reason.
    fn parse(folder: &Path, text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|e| toml_error(text, &e))?;
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if file.metadata.id != name {
            return Err(format!("metadata.id is `{}`, the folder is `{name}`", file.metadata.id));
        }
        file.metadata.id.parse::<PhotoId>().map_err(|e| format!("metadata.id: {e}"))?;
        let budget = file.budget.budget().ok_or("budget: every cap must be positive")?;
        let scenario = Self {
            id: file.metadata.id.clone(),
            folder: folder.to_owned(),
            sha256: Hash::of(text),
            metadata: file.metadata,
            brief: file.brief,
            vectors: file.vectors,
            taste: file.taste_fragments.entries,
            image: file.image,
            budget,
            expected: file.expected,
            hidden: file.hidden,
            regions: file.regions,
        };
        scenario.check()?;
        Ok(scenario)
    }

    /// What can be checked without the vocabulary.
    fn check(&self) -> Result<(), String> {
        for (field, text) in [("brief.subject", &self.brief.subject), ("brief.intent", &self.brief.intent)] {
            if text.trim().is_empty() {
                return Err(format!("{field} is empty"));
            }
        }
        let mut seen = BTreeSet::new();
        for vector in &self.vectors {
            if vector.direction.trim().is_empty() {
                return Err(format!("the vector `{}` has no direction", vector.name));
            }
            if !seen.insert(vector.name.as_str()) {
                return Err(format!("the vector `{}` is given twice", vector.name));
            }
        }
        if self.vectors.len() as u64 > self.budget.max_branches {
            return Err(format!(
                "{} vectors need budget.branches of at least that many, it is {}",
                self.vectors.len(),
                self.budget.max_branches
            ));
        }
        for direction in &self.expected.directions {
            let Direction { vector, axis, min, max } = direction;
            if !(min.is_finite() && max.is_finite() && min <= max) {
                return Err(format!("the bounds of {axis} must be numbers, the lesser one first"));
            }
            if let Some(name) = vector.as_ref().filter(|name| !seen.contains(name.as_str())) {
                let hint = did_you_mean(name.as_str(), seen.iter().copied());
                return Err(format!("a direction names the vector `{name}`, which does not exist{hint}"));
            }
        }
        if let Some(Count { min, max }) = self.expected.branch_count
            && min > max
        {
            return Err(format!("expected.branch_count has a min of {min} and a max of {max}"));
        }
        if self.expected.unchanged && !self.hidden.is_empty() {
            return Err("expected.unchanged and a hidden edit exclude each other".into());
        }
        let mut names = BTreeSet::new();
        for region in &self.regions {
            if !names.insert(region.name.as_str()) {
                return Err(format!("the region `{}` is given twice", region.name));
            }
        }
        for target in &self.expected.mask_targets {
            if !names.contains(target.as_str()) {
                let hint = did_you_mean(target, names.iter().copied());
                return Err(format!("the mask target `{target}` is not a region{hint}"));
            }
        }
        Ok(())
    }

    /// What is wrong with the names of moves in it, a sentence each.
    pub fn unknown_moves(&self, vocabulary: &Vocabulary) -> Vec<String> {
        let expected = &self.expected;
        let named = expected.likely_primitives.iter().chain(&expected.forbidden_primitives);
        let named = named.chain(self.hidden.iter().map(|hidden| &hidden.name));
        let unknown = named.filter(|name| !known(vocabulary, name));
        unknown.filter_map(|name| vocabulary.get(name).err()).map(|error| error.to_string()).collect()
    }

    /// How many branches should come back.
    pub fn branch_count(&self) -> Count {
        let planned = (self.vectors.len() as u64).max(1);
        self.expected.branch_count.unwrap_or(Count { min: planned, max: planned })
    }

    /// The raw, its hash proved. Where it is not in its place, it is looked for by its name in `elsewhere`; where
    /// it is not there either and the scenario has a recipe for it, it is made there once.
    ///
    /// # Errors
    /// [`ScenarioError`], where it is nowhere and cannot be made, or is another file.
    pub fn raw(&self, elsewhere: Option<&Path>) -> Result<RawFile, ScenarioError> {
        let own = self.folder.join(&self.image.path);
        let other = elsewhere.zip(own.file_name()).map(|(folder, name)| folder.join(name));
        let made = elsewhere.zip(self.image.recipe.as_ref()).map(|(folder, recipe)| {
            // Two sets may call different raws by one name.
            let name = own.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            (folder.join(format!("{name}-{}.dng", self.image.sha256.short())), recipe)
        });
        let path = match (other, &made) {
            (_, _) if own.is_file() => own.clone(),
            (Some(other), _) if other.is_file() => other,
            (_, Some((made, _))) => made.clone(),
            (other, None) => other.unwrap_or_else(|| own.clone()),
        };
        let read = |path: &Path| match files::hash(path) {
            Ok((found, _)) => Ok(Some(found)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(ScenarioError::from(FileError::at("read", path)(error))),
        };
        let mut found = read(&path)?;
        if let Some((target, recipe)) = made.filter(|(made, _)| *made == path)
            && found.as_ref() != Some(&self.image.sha256)
        {
            let bytes = recipe.make(&self.folder);
            let bytes =
                bytes.map_err(|source| ScenarioError::Recipe { scenario: self.id.clone(), source })?;
            if let Some(folder) = target.parent() {
                std::fs::create_dir_all(folder).map_err(FileError::at("make", folder))?;
            }
            durable::write(&target, &bytes).map_err(FileError::at("write", &target))?;
            found = Some(Hash::of(&bytes));
        }
        match found {
            Some(found) if found == self.image.sha256 => {
                Ok(RawFile { path, sha256: self.image.sha256.clone() })
            }
            Some(_) => Err(ScenarioError::OtherRaw { scenario: self.id.clone(), path }),
            None => Err(ScenarioError::NoRaw { scenario: self.id.clone(), path: own }),
        }
    }

    /// The brief as a photographer writes it into `brief.md`. Nothing of the answer is in it.
    pub fn brief_text(&self) -> String {
        let mut text = format!("{}\n\n{}\n", self.brief.subject.trim(), self.brief.intent.trim());
        if !self.brief.constraints.is_empty() {
            text.push('\n');
        }
        for constraint in &self.brief.constraints {
            text.push_str(&format!("- {}\n", constraint.trim()));
        }
        text
    }

    /// Makes the scenario a photo of `library`, under its own id and with its brief, and writes its tastes as
    /// the default taste file of `tastes`. A photo that exists already is opened as it is. `raws` is where
    /// raws are looked for that are not in their place; `ask` says what darktable does by default.
    pub fn stage(
        &self,
        library: &Library,
        tastes: &Path,
        raws: Option<&Path>,
        ask: &AskDefaults<'_>,
    ) -> Result<Workspace, ScenarioError> {
        std::fs::create_dir_all(tastes).map_err(FileError::at("make", tastes))?;
        let file = tastes.join("_default.md");
        let lines: String = self.taste.iter().map(|line| format!("- {}\n", line.trim())).collect();
        durable::write(&file, lines.as_bytes()).map_err(FileError::at("write", &file))?;
        let id: PhotoId = self.id.parse().map_err(|e: base::ids::InvalidName| ScenarioError::Invalid {
            path: self.folder.join(SCENARIO_FILE),
            reason: e.to_string(),
        })?;
        if library.folder(&id).is_dir() {
            return Ok(library.open(&id)?);
        }
        let raw = self.raw(raws)?;
        let options = IngestOptions { id: Some(id), brief: Some(self.brief_text()) };
        Ok(ingest(library, &raw.path, options, ask)?.workspace)
    }

    /// The session that the scenario asks for: unattended, from `main`, with its own brief and budget.
    pub fn request(&self, prompt: &str, seed: u64) -> Request {
        Request {
            brief: None,
            vectors: self.vectors.clone(),
            budget: self.budget.clone(),
            from: "main".into(),
            criteria: None,
            prompt: prompt.to_owned(),
            preview_edge: EDGE,
            unattended: true,
            seed,
            proposes: true,
        }
    }

    /// The hidden edit, made on the photo's own default edit; `None` where the scenario has none.
    pub fn target(
        &self,
        context: &MeasureContext<'_>,
        facts: &PhotoFacts,
    ) -> Result<Option<EditState>, ScenarioError> {
        if self.hidden.is_empty() {
            return Ok(None);
        }
        let mut state = facts.baseline.clone();
        for HiddenMove { name, values, mask } in &self.hidden {
            let request = ApplyRequest { move_name: name, values, mask: mask.as_ref() };
            let version = context.renderer.darktable_version();
            let made =
                Operation::apply(&request, context.vocabulary, &state, facts, context.layouts, version);
            (state, _) = made.map_err(|source| ScenarioError::Hidden {
                scenario: self.id.clone(),
                name: name.clone(),
                source: Box::new(source),
            })?;
        }
        Ok(Some(state))
    }
}

/// Whether the vocabulary has a move, a look or a saved style of this name.
pub(super) fn known(vocabulary: &Vocabulary, name: &str) -> bool {
    vocabulary.get(name).is_ok() || vocabulary.look(name).is_some() || vocabulary.style(name).is_some()
}

#[cfg(test)]
pub(super) mod tests;
