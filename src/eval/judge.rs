//! A judge of an evaluation: a model that sees pictures and made none of them, asked after the sessions have ended.
//!
//! It is first asked about pairs whose answer nobody disputes ([`crate::referee::qualify`]), and where it fails nothing else is asked.
//! Then it rates each branch by a rubric, and says of each pair (two arms on one scenario, or an arm and the baseline)
//! which is better, in both orders. Its answers stand beside the measurements and are none of the metrics, so that a
//! golden set cannot name them as the one that decides.
//!
//! Each question goes through a gate with a ledger and a transcript of its own. Answers are kept by the hash of the
//! question, so that none is paid for twice.

mod asking;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use self::asking::Asking;
use crate::budget::{Amounts, Budget, Ledger, Reserve};
use crate::eval::manifest::Manifest;
use crate::eval::{cells, file::FileError};
use crate::gate::Gate;
use crate::prompts::Store;
use crate::protocol::rules::Verdict;
use crate::referee::ModelReferee;
use crate::referee::qualify::Tally;
use crate::review::ReviewModel;
use crate::session::{SessionError, listing, pricing};
use crate::tools::BlobStore;
use crate::transcript::{Transcript, Vector};
use base::clock::{Clock, Stop};
use base::error::{ErrorCode, Fault};
use base::ids::Hash;
use base::redact::Redactor;
use base::{durable, files};
use darktable::checks::decode;
use darktable::render::Picture;
use engine::lease::Lessor;

/// The standing orders of the rubric.
pub const RUBRIC: &str = "judge/rubric";
/// What it was asked and said, in the folder of a run.
pub const FILE: &str = "judged.json";
/// What a branch is held against in a run with one arm.
const BASELINE: &str = "baseline";

/// What a judge said of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// The run.
    pub run: String,
    /// The judge's provider.
    pub provider: String,
    /// Its model.
    pub model: String,
    /// Its prompts, `name@version`, each with its hash.
    pub prompts: BTreeMap<String, Hash>,
    /// What makes it less than independent.
    pub cautions: Vec<String>,
    /// How it did on pairs that nobody disputes.
    pub qualification: Tally,
    /// Its ratings of the branches.
    pub ratings: Vec<Rating>,
    /// Its verdicts on pairs.
    pub pairs: Vec<Pair>,
    /// On how many pairs it found the picture better that is nearer to the hidden edit, of those where one is.
    pub agreement: (usize, usize),
    /// What was spent this time.
    pub spent: Amounts,
    /// Why it is not complete, if it is not.
    pub stopped: Option<String>,
}

/// A branch, rated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rating {
    /// The arm.
    pub arm: String,
    /// The scenario.
    pub scenario: String,
    /// The repeat, from 1.
    pub repeat: u32,
    /// The branch.
    pub branch: String,
    /// 1 to 5: what was asked.
    pub intent: u8,
    /// 1 to 5: how cleanly.
    pub craft: u8,
    /// 1 to 5: whether it is the better photograph.
    pub photograph: u8,
    /// What it saw.
    pub seen: String,
}

/// Two pictures of one wish, compared in both orders.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// The arm whose picture the verdict is about.
    pub arm: String,
    /// What it was held against: another arm, or `baseline`.
    pub against: String,
    /// The scenario.
    pub scenario: String,
    /// The repeat, from 1.
    pub repeat: u32,
    /// The branch.
    pub branch: String,
    /// The verdict, both orders taken together.
    pub verdict: Verdict,
    /// Whether its answer went with the order.
    pub flipped: bool,
    /// Why, as said last.
    pub why: String,
}

/// What a judge works with.
pub struct Bench<'a> {
    /// The model.
    pub judge: ModelReferee,
    /// Its prompts.
    pub prompts: &'a Store,
    /// What it may spend.
    pub budget: Budget,
    /// The clock.
    pub clock: std::sync::Arc<dyn Clock>,
    /// What must not be written.
    pub redactor: Redactor,
    /// Raised when a person stops it.
    pub stop: Stop,
    /// Told of each question: how many were asked.
    pub progress: &'a (dyn Fn(usize) + Sync),
}

/// A branch with the files of its picture and the baseline's.
struct Shot {
    arm: String,
    scenario: String,
    repeat: u32,
    branch: String,
    brief: String,
    vector: Option<Vector>,
    base: PathBuf,
    picture: PathBuf,
}

impl Judged {
    /// What a judge said of the run in this folder, if one was asked.
    pub fn read(folder: &Path) -> Option<Self> {
        let text = files::read_text(&folder.join(FILE), files::LARGEST_LIST).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// The mean of each rating of an arm, and of how many branches.
    pub fn mean(&self, arm: &str) -> Option<([f64; 3], usize)> {
        let of: Vec<&Rating> = self.ratings.iter().filter(|rating| rating.arm == arm).collect();
        let sum =
            |field: fn(&Rating) -> u8| of.iter().map(|r| f64::from(field(r))).sum::<f64>() / of.len() as f64;
        (!of.is_empty()).then(|| ([sum(|r| r.intent), sum(|r| r.craft), sum(|r| r.photograph)], of.len()))
    }

    /// How often each verdict was given on an arm's pairs.
    pub fn verdicts(&self, arm: &str) -> BTreeMap<String, usize> {
        let mut found = BTreeMap::new();
        for pair in self.pairs.iter().filter(|pair| pair.arm == arm) {
            *found.entry(pair.verdict.outcome().to_string()).or_default() += 1;
        }
        found
    }
}

/// The family of a model: the letters that its name begins with, whatever house serves it.
fn family(model: &str) -> String {
    let name = model.rsplit('/').next().unwrap_or(model).to_lowercase();
    name.chars().take_while(char::is_ascii_alphabetic).collect()
}

/// Contestants that share the judge's family: models prefer what their kin makes.
fn kin(manifest: &Manifest, model: &str) -> Vec<String> {
    let kin = manifest.models.iter().filter(|one| family(&one.model) == family(model));
    kin.map(|one| {
        format!(
            "the judge `{model}` and the contestant `{}/{}` are of one family, and models prefer what their kin makes: \
             choose another judge",
            one.provider, one.model
        )
    })
    .collect()
}

/// By how much more of the hidden edit a picture must have than another to be nearer to it.
const NEARER: f64 = 0.1;

/// How often verdicts agree with the hidden edit, and of how many: pairs of which one picture is clearly nearer to it.
fn agreement(pairs: &[Pair], manifest: &Manifest) -> (usize, usize) {
    let recovery = |arm: &str, pair: &Pair| {
        let cell = manifest.cells.iter().find(|cell| {
            (cell.arm().to_string().as_str(), &cell.scenario, cell.repeat)
                == (arm, &pair.scenario, pair.repeat)
        })?;
        let branches = &cell.done()?.measured.branches;
        branches.iter().find(|branch| branch.branch.as_str() == pair.branch)?.recovery
    };
    let (mut agrees, mut told) = (0, 0);
    for pair in pairs {
        let against = if pair.against == BASELINE { Some(0.0) } else { recovery(&pair.against, pair) };
        let Some(more) = recovery(&pair.arm, pair).zip(against).map(|(new, old)| new - old) else { continue };
        if more.abs() >= NEARER {
            told += 1;
            let nearer = if more > 0.0 { Verdict::Better } else { Verdict::Worse };
            agrees += usize::from(pair.verdict == nearer);
        }
    }
    (agrees, told)
}

/// Asks a judge about a run, and keeps what it says in the run's folder.
///
/// # Errors
/// A picture, the transcript or the answers cannot be read or written; a model without a price under a cap on cost.
pub async fn judge(
    bench: &Bench<'_>,
    manifest: &Manifest,
    home: &Path,
    folder: &Path,
) -> Result<Judged, SessionError> {
    let info = bench.judge.provider().info().clone();
    pricing::payable(&info, &bench.budget)?;
    let shots = shots(manifest, home)?;
    let Some(good) = shots.first() else {
        return Err(Fault::new(ErrorCode::StateError, "the run has no finished session with a branch").into());
    };
    let own = folder.join("judge");
    durable::make_folder(&own.join("answers")).map_err(SessionError::Blob)?;
    let path = own.join(format!("{}.jsonl", base::ids::SessionId::mint()));
    let transcript = Transcript::create(&path, bench.clock.clone(), bench.redactor.clone())?;
    let ledger = Ledger::new(bench.budget.clone(), Reserve::default());
    let mut asking = Asking {
        bench,
        gate: Gate::new(ledger, transcript, Lessor::default(), bench.stop.clone()),
        blobs: BlobStore::new(own.join("blobs"), bench.redactor.clone()),
        answers: own.join("answers"),
        asked: 0,
        prompts: BTreeMap::new(),
    };
    let mut judged = Judged {
        run: manifest.run.clone(),
        provider: info.provider.clone(),
        model: info.model.clone(),
        prompts: BTreeMap::new(),
        cautions: kin(manifest, &info.model),
        qualification: Tally::default(),
        ratings: Vec::new(),
        pairs: Vec::new(),
        agreement: (0, 0),
        spent: Amounts::default(),
        stopped: None,
    };
    let good = picture(&good.base)?;
    // Scenarios may share a photo. Where there is one only, upside down it is another to whoever looks.
    let mut other =
        Picture { rgb: good.rgb.chunks_exact(3).rev().flatten().copied().collect(), ..good.clone() };
    for shot in &shots {
        let base = picture(&shot.base)?;
        if (base.width, base.height) == (good.width, good.height) && base != good {
            other = base;
            break;
        }
    }
    let stopped = asking.all(&mut judged, &shots, (&good, &other)).await?;
    judged.stopped = stopped;
    judged.agreement = agreement(&judged.pairs, manifest);
    judged.prompts = asking.prompts;
    judged.spent = asking.gate.ledger().settled();
    let text = serde_json::to_vec_pretty(&judged).unwrap_or_default();
    let file = folder.join(FILE);
    durable::write(&file, &text).map_err(|e| Fault::from(&FileError::at("write", &file)(e)))?;
    Ok(judged)
}

/// The branches of a run that have review pictures.
fn shots(manifest: &Manifest, home: &Path) -> Result<Vec<Shot>, SessionError> {
    let mut shots = Vec::new();
    for cell in &manifest.cells {
        let (Some(done), Some(workspace)) = (cell.done(), cells::workspace(home, cell)) else { continue };
        let Ok(id) = done.session.parse() else { continue };
        let session = listing::read(&workspace, &id)?;
        let review = ReviewModel::of(&workspace, &session)?;
        let Some(base) = review.baseline_preview else { continue };
        for branch in review.branches {
            let Some(picture) = branch.preview else { continue };
            let planned = session.state.start.branches.iter().find(|planned| planned.branch == branch.branch);
            shots.push(Shot {
                arm: cell.arm().to_string(),
                scenario: cell.scenario.clone(),
                repeat: cell.repeat,
                branch: branch.branch.to_string(),
                brief: review.brief.clone(),
                vector: planned.and_then(|planned| planned.vector.clone()),
                base: base.clone(),
                picture,
            });
        }
    }
    Ok(shots)
}

/// Reads a review picture.
fn picture(path: &Path) -> Result<Picture, SessionError> {
    let bytes = files::read(path, files::LARGEST_LIST).map_err(SessionError::Blob)?;
    let unreadable = |why| Fault::new(ErrorCode::StateError, format!("{}: {why}", path.display()));
    decode(&bytes, image::ImageFormat::Jpeg).map_err(|why| unreadable(why).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e12_a_family_is_what_a_name_begins_with() {
        for (model, of) in [
            ("gpt-5-mini", "gpt"),
            ("openai/gpt-5", "gpt"),
            ("anthropic/claude-sonnet-4.5", "claude"),
            ("gemma4:31b", "gemma"),
            ("Qwen2.5-VL-7B", "qwen"),
        ] {
            assert_eq!(family(model), of);
        }
    }
}
