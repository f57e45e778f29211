//! `eval verify`, `eval freeze` and `eval new-scenario`: golden sets and what is in them.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use super::failure::Failure;
use super::setup::{App, interactive_deadline};
use crate::eval::draft::{Words, draft};
use crate::eval::golden::Golden;
use crate::eval::metrics::MeasureContext;
use crate::review::line;
use crate::transcript::Vector;
use base::error::ErrorCode;
use base::ids::PhotoId;

const VERIFY_EXAMPLES: &str = "\
Examples:
  chemigram eval verify
  chemigram eval verify scenarios/golden_v1 --json

A set is looked for as a folder, then in ./scenarios and in the data folder's scenarios.
Exit status: 0 when it is as it was shipped, 5 when a file was changed, is missing or was added.";

const FREEZE_EXAMPLES: &str = "\
Example:
  chemigram eval freeze scenarios/golden_v2

Writes manifest.json, which names every file by its hash. A set that has one is refused.";

const NEW_EXAMPLES: &str = "\
Examples:
  chemigram eval new-scenario iguana --set scenarios/golden_v2 --id 001_iguana \\
    --subject \"An iguana on black lava\" --intent \"Warm it, and open the shadows on the rock.\"
  chemigram eval new-scenario iguana v2 --set scenarios/golden_v2 --id 002_iguana --subject … --intent … \\
    --vector tone=\"open the shadows\"

The edit at AT becomes the hidden edit; it must be made of moves on darktable's default edit. Read what was
written: give the regions names, add what is forbidden, and say nothing in the brief that names a move.";

/// The verbs of golden sets.
#[derive(Debug, Subcommand)]
pub enum GoldenVerb {
    /// Prove that a golden set is as it was shipped, or name the files that are not
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify {
        /// A set's name, or its folder
        #[arg(default_value = "golden_v1")]
        set: String,
    },
    /// Freeze a folder of scenarios as it is now
    #[command(after_help = FREEZE_EXAMPLES)]
    Freeze {
        /// The folder, `golden_vN`
        folder: PathBuf,
        /// The metric that decides
        #[arg(long, default_value = "recovery")]
        primary: String,
        /// A metric's share in the weighted score; repeatable [default: the primary metric alone]
        #[arg(long = "weight", value_name = "METRIC=WEIGHT", value_parser = weight)]
        weights: Vec<(String, f64)>,
        /// What a reader should know of the set
        #[arg(long, default_value = "")]
        notes: String,
    },
    /// Write a scenario from a photo that you edited
    #[command(after_help = NEW_EXAMPLES)]
    NewScenario(Box<NewScenario>),
}

/// `eval new-scenario`.
#[derive(Args, Debug)]
pub struct NewScenario {
    /// The photo's id
    pub photo: PhotoId,
    /// The edit to hide: a branch, tag or commit
    #[arg(default_value = "HEAD")]
    pub at: String,
    /// The folder of the set; made if it is not there
    #[arg(long, value_name = "DIR")]
    pub set: PathBuf,
    /// The scenario's name, such as 001_iguana
    #[arg(long)]
    pub id: String,
    /// Its title in lists; it must not name the answer
    #[arg(long)]
    pub title: Option<String>,
    /// What is in the picture
    #[arg(long)]
    pub subject: String,
    /// What it should become, in a photographer's words
    #[arg(long)]
    pub intent: String,
    /// A genre or technique; repeatable
    #[arg(long = "tag")]
    pub tags: Vec<String>,
    /// An axis to explore, as NAME="DIRECTION"; repeatable; none means one open-ended branch
    #[arg(long = "vector", value_name = "NAME=DIRECTION[:INTENSITY]")]
    pub vectors: Vec<Vector>,
}

fn weight(text: &str) -> Result<(String, f64), String> {
    let pair = text.split_once('=').and_then(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
    pair.ok_or_else(|| format!("`{text}` is not METRIC=WEIGHT, such as recovery=0.7"))
}

/// The verbs of golden sets; the status of a check says whether the set is frozen.
pub fn golden(app: &App, verb: &GoldenVerb) -> Result<u8, Failure> {
    match verb {
        GoldenVerb::Verify { set } => verify(app, set),
        GoldenVerb::Freeze { folder, primary, weights, notes } => {
            let weights = weights.iter().cloned().collect();
            let golden = Golden::freeze(folder, primary, weights, notes, today())?;
            let result = json!({
                "set": golden.manifest.version, "sha256": golden.sha256,
                "scenarios": golden.scenarios.len(), "files": golden.manifest.files.len(),
            });
            let text = || format!("{}: frozen, {}\n", golden.manifest.version, contents(&golden));
            app.output.result(&result, text).map(|()| 0)
        }
        GoldenVerb::NewScenario(new) => new_scenario(app, new).map(|()| 0),
    }
}

/// The folder of a set by its name: in `./scenarios`, then in the user's own; or the folder itself.
pub fn set_folder(app: &App, name: &str) -> Result<PathBuf, Failure> {
    Ok(Golden::find(name, &[PathBuf::from("scenarios"), app.folders.golden_sets()])?)
}

/// Where raws are looked for that are not in their set.
pub fn raws_dir() -> Option<PathBuf> {
    std::env::var_os("CHEMIGRAM_GOLDEN_RAWS_DIR")
        .map(PathBuf::from)
        .filter(|path| !path.as_os_str().is_empty())
}

fn today() -> jiff::civil::Date {
    jiff::Zoned::now().date()
}

fn contents(golden: &Golden) -> String {
    let hidden = golden.scenarios.iter().filter(|scenario| !scenario.hidden.is_empty()).count();
    format!(
        "{} scenarios ({hidden} with a hidden edit), {} files, manifest {}",
        golden.scenarios.len(),
        golden.manifest.files.len(),
        golden.sha256.short()
    )
}

fn verify(app: &App, set: &str) -> Result<u8, Failure> {
    let folder = set_folder(app, set)?;
    let findings = Golden::verify(&folder)?;
    let result = json!({ "set": set, "folder": folder, "frozen": findings.is_empty(), "findings": findings });
    if !findings.is_empty() {
        app.output.result(&result, || {
            let lines = findings.iter().map(|finding| format!("  {}\n", line(&finding.to_string())));
            format!("{set}: NOT as it was shipped\n{}", lines.collect::<String>())
        })?;
        return Ok(ErrorCode::VersioningError.exit_status());
    }
    let golden = Golden::load(&folder)?;
    app.output.result(&result, || format!("{set}: as it was shipped, {}\n", contents(&golden))).map(|()| 0)
}

fn new_scenario(app: &App, new: &NewScenario) -> Result<(), Failure> {
    let workspace = app.photo(&new.photo)?;
    let commit = workspace.resolve(&new.at)?;
    let (vocabulary, layouts, renderer) = (app.vocabulary()?, app.layouts(), app.renderer()?);
    let deadline = interactive_deadline();
    let eyes = MeasureContext {
        vocabulary: &vocabulary,
        layouts: &layouts,
        renderer: &*renderer,
        deadline: &deadline,
    };
    let words = Words {
        id: new.id.clone(),
        title: new.title.clone(),
        subject: new.subject.clone(),
        intent: new.intent.clone(),
        tags: new.tags.clone(),
        vectors: new.vectors.clone(),
    };
    let scenario = draft(&new.set, words, &workspace, &commit, &eyes, today())?;
    let file = scenario.folder.join(crate::eval::scenario::SCENARIO_FILE);
    let result = json!({ "scenario": scenario.id, "file": file, "hidden": scenario.hidden });
    app.output.result(&result, || {
        let hidden: Vec<&str> = scenario.hidden.iter().map(|hidden| hidden.name.as_str()).collect();
        format!(
            "{}\nhidden in it: {}\nread it, then `chemigram eval freeze {}` when the set is complete\n",
            file.display(),
            hidden.join(", "),
            new.set.display()
        )
    })
}
