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
  chemigram eval verify golden_v2 --json

SET is looked for as a folder, then in ./scenarios, then in scenarios in the data folder. golden_v1 and golden_v2 are \
part of the program and are found from any folder.

Exit status: 0 if it is unchanged, 5 if a file was changed, removed or added.";

const FREEZE_EXAMPLES: &str = "\
Example:
  chemigram eval freeze scenarios/golden_v3

Writes manifest.json with the hash of every file. A set that already has one is refused.";

const NEW_EXAMPLES: &str = "\
Examples:
  chemigram eval new-scenario iguana --set scenarios/golden_v3 --id 001_iguana \\
      --subject \"An iguana on black lava\" \\
      --intent \"Warm it, and open the shadows on the rock.\"
  chemigram eval new-scenario iguana v2 --set scenarios/golden_v3 --id 002_iguana \\
      --subject … --intent … --direction tone=\"open the shadows\"

The edit at AT becomes the hidden edit; it must consist of moves on top of darktable's default edit. Check the scenario \
afterwards: name the regions, add what is forbidden, and do not name a move in the brief.";

// The verbs of golden sets.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum GoldenVerb {
    /// Check that a golden set is unchanged
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify {
        /// The set: a name, or a folder
        #[arg(default_value = "golden_v1")]
        set: String,
    },
    /// Freeze a folder of scenarios, so that later changes are detected
    #[command(after_help = FREEZE_EXAMPLES)]
    Freeze {
        /// The folder, `golden_vN`
        folder: PathBuf,
        /// The primary metric, which decides comparisons
        #[arg(long, default_value = "recovery")]
        primary: String,
        /// Weight of a metric in the weighted score; repeatable [default: only the primary metric]
        #[arg(long = "weight", value_name = "METRIC=WEIGHT", value_parser = weight)]
        weights: Vec<(String, f64)>,
        /// Notes for readers of the set
        #[arg(long, default_value = "", hide_default_value = true)]
        notes: String,
    },
    /// Create a scenario from a photo that you edited
    #[command(after_help = NEW_EXAMPLES)]
    NewScenario(Box<NewScenario>),
}

#[derive(Args, Debug)]
pub struct NewScenario {
    /// The photo's id
    pub photo: PhotoId,
    /// The edit to hide: a branch, tag or commit
    #[arg(default_value = "HEAD")]
    pub at: String,
    /// Folder of the set; created if it does not exist
    #[arg(long, value_name = "DIR")]
    pub set: PathBuf,
    /// Name of the scenario, such as 001_iguana
    #[arg(long)]
    pub id: String,
    /// Title in lists; it must not give the answer away
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
    /// A direction to explore, such as tone="open the shadows"; repeatable [default: one open-ended branch]
    #[arg(long = "vector", visible_alias = "direction", value_name = "NAME=DIRECTION[:INTENSITY]")]
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

/// The folder of a set by its name: in `./scenarios`, then in the user's own, then out of the program; or the folder
/// itself.
pub fn set_folder(app: &App, name: &str) -> Result<PathBuf, Failure> {
    let roots = [PathBuf::from("scenarios"), app.folders.golden_sets()];
    Ok(Golden::find_or_unpack(name, &roots, &app.folders.unpacked_sets())?)
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
            format!("{set}: CHANGED\n{}", lines.collect::<String>())
        })?;
        return Ok(ErrorCode::VersioningError.exit_status());
    }
    let golden = Golden::load(&folder)?;
    app.output.result(&result, || format!("{set}: unchanged, {}\n", contents(&golden))).map(|()| 0)
}

fn new_scenario(app: &App, new: &NewScenario) -> Result<(), Failure> {
    let workspace = app.photo(&new.photo)?;
    let commit = workspace.resolve(&new.at)?;
    let (vocabulary, layouts, renderer) = (app.vocabulary()?, app.layouts(), app.renderer()?);
    let deadline = interactive_deadline();
    let measuring = MeasureContext {
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
    let scenario = draft(&new.set, words, &workspace, &commit, &measuring, today())?;
    let file = scenario.folder.join(crate::eval::scenario::SCENARIO_FILE);
    let result = json!({ "scenario": scenario.id, "file": file, "hidden": scenario.hidden });
    app.output.result(&result, || {
        let hidden: Vec<&str> = scenario.hidden.iter().map(|hidden| hidden.name.as_str()).collect();
        format!(
            "{}\nHidden edit: {}\nCheck the scenario. When the set is complete, run `chemigram eval freeze {}`.\n",
            file.display(),
            hidden.join(", "),
            new.set.display()
        )
    })
}
