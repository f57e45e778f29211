//! A judge of an evaluation: a model that sees pictures and made none of them, asked after the sessions have ended.
//!
//! It is first asked about pairs whose answer nobody disputes ([`qualify`]), and where it fails nothing else is asked.
//! Then it rates each branch by a rubric, and says of each pair (two arms on one scenario, or an arm and the baseline)
//! which is better, in both orders. Its answers stand beside the measurements and are none of the metrics, so that a
//! golden set cannot name them as the one that decides.
//!
//! Each question goes through a gate with a ledger and a transcript of its own. Answers are kept by the hash of the
//! question, so that none is paid for twice.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::budget::{Amounts, Budget, Ledger, Reserve};
use crate::conversation::{Message, ToolSpec};
use crate::eval::manifest::Manifest;
use crate::eval::{cells, file::FileError};
use crate::gate::Gate;
use crate::prompts::Store;
use crate::protocol::checks::{Numbers, numbers};
use crate::protocol::rules::Verdict;
use crate::provider::classify::backoff;
use crate::provider::{ModelReply, ModelRequest};
use crate::referee::model::arguments;
use crate::referee::qualify::{Tally, cases};
use crate::referee::{Answer, Goal, Kind, ModelReferee, Prompted, Question, Shown, Side};
use crate::review::ReviewModel;
use crate::session::model_call::{attempt, sleep_until};
use crate::session::{SessionError, listing, pricing};
use crate::tools::BlobStore;
use crate::transcript::{Event, ModelIntent, Transcript, Vector};
use base::clock::{Clock, Stop};
use base::error::{ErrorCode, Fault};
use base::ids::Hash;
use base::redact::Redactor;
use base::{durable, files};
use darktable::checks::decode;
use darktable::render::Picture;
use engine::lease::Lessor;
use pixels::metrics::stats::ImageStats;

/// The standing orders of the rubric.
pub const RUBRIC: &str = "judge/rubric";
/// What it was asked and said, in the folder of a run.
pub const FILE: &str = "judged.json";
/// What a pair is judged by.
const CRITERIA: &str = "Which picture serves what was asked for better?";
/// The tool by which it rates.
const RATE: &str = "give_ratings";
/// Attempts at a question.
const ATTEMPTS: u32 = 4;

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

/// What the model is to call.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    seen: String,
    intent: u8,
    craft: u8,
    photograph: u8,
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

/// What came of a question, or why no more are asked.
type Heard<T> = Result<Result<T, String>, SessionError>;

/// A judge at work.
struct Asking<'a> {
    bench: &'a Bench<'a>,
    gate: Gate,
    blobs: BlobStore,
    answers: PathBuf,
    asked: usize,
    prompts: BTreeMap<String, Hash>,
}

impl Asking<'_> {
    /// Asks everything; why it ended early, if it did.
    async fn all(
        &mut self,
        judged: &mut Judged,
        shots: &[Shot],
        (good, other): (&Picture, &Picture),
    ) -> Result<Option<String>, SessionError> {
        for case in cases(good, other) {
            let goal = Goal::default();
            let verdicts = match self.pair(("", goal), &case.candidate, good).await? {
                Ok((verdicts, _)) => verdicts,
                Err(why) => return Ok(Some(why)),
            };
            judged.qualification.count(&case, verdicts.0, verdicts.1);
        }
        if !judged.qualification.qualified() {
            let wrong = judged.qualification.wrong.join(", ");
            return Ok(Some(format!(
                "not qualified: it was wrong about pairs that nobody disputes ({wrong})"
            )));
        }
        let mut references: BTreeMap<(&str, u32, &str), &Shot> = BTreeMap::new();
        let first = shots.first().map(|shot| shot.arm.as_str()).unwrap_or_default();
        let alone = shots.iter().all(|shot| shot.arm == first);
        for shot in shots {
            match self.rated(shot).await? {
                Ok(rating) => judged.ratings.push(rating),
                Err(why) => return Ok(Some(why)),
            }
            let key = (shot.scenario.as_str(), shot.repeat, shot.branch.as_str());
            let (against, old) = if alone {
                ("baseline", &shot.base)
            } else if shot.arm == first {
                references.insert(key, shot);
                continue;
            } else {
                let Some(reference) = references.get(&key) else { continue };
                (first, &reference.picture)
            };
            let goal = shot.vector.as_ref().map(Goal::from).unwrap_or_default();
            match self.pair((&shot.brief, goal), &picture(&shot.picture)?, &picture(old)?).await? {
                Ok((verdicts, why)) => judged.pairs.push(Pair {
                    arm: shot.arm.clone(),
                    against: against.to_owned(),
                    scenario: shot.scenario.clone(),
                    repeat: shot.repeat,
                    branch: shot.branch.clone(),
                    verdict: Verdict::of_orders(verdicts.0, verdicts.1),
                    flipped: verdicts.0 != verdicts.1,
                    why,
                }),
                Err(why) => return Ok(Some(why)),
            }
        }
        Ok(None)
    }

    fn shown(&self, picture: &Picture) -> Result<(crate::conversation::ImageRef, Numbers), SessionError> {
        let image = self.blobs.put_picture(picture, String::new()).map_err(SessionError::Blob)?;
        Ok((image, numbers(&ImageStats::of(picture), None)))
    }

    /// The verdicts on `new`, shown first and shown second, and the last reason.
    async fn pair(
        &mut self,
        (brief, goal): (&str, Goal<'_>),
        new: &Picture,
        old: &Picture,
    ) -> Heard<((Verdict, Verdict), String)> {
        let (new, old) = (self.shown(new)?, self.shown(old)?);
        let shown = |(picture, numbers)| Shown { picture, numbers };
        let (new, old) = (shown((&new.0, &new.1)), shown((&old.0, &old.1)));
        let goal = Some(goal).filter(|goal| !goal.direction.is_empty());
        let (mut verdicts, mut reason) = ((Verdict::Unsure, Verdict::Unsure), String::new());
        for (verdict, side) in [(&mut verdicts.0, Side::A), (&mut verdicts.1, Side::B)] {
            let (a, b) = if side == Side::A { (new, old) } else { (old, new) };
            let question = Question { brief, goal, kind: Kind::Pair { criteria: CRITERIA, a, b } };
            let judge = self.bench.judge.clone();
            let asked = judge.request(&question).map_err(|e| Fault::from(&e))?;
            let read = |reply: &ModelReply| match judge.read(&question, reply) {
                Ok(Answer::Pair(opinion)) => Ok(opinion),
                Ok(_) => Err("an answer of another kind".to_owned()),
                Err(error) => Err(error.to_string()),
            };
            match self.ask(&asked, read).await? {
                Ok(opinion) => (*verdict, reason) = (opinion.verdict(side), opinion.why),
                Err(why) => return Ok(Err(why)),
            }
        }
        Ok(Ok((verdicts, reason)))
    }

    async fn rated(&mut self, shot: &Shot) -> Heard<Rating> {
        let (base, now) = (self.shown(&picture(&shot.base)?)?, self.shown(&picture(&shot.picture)?)?);
        let goal = shot.vector.as_ref().map(Goal::from);
        let kind = Kind::Criteria {
            criteria: "",
            legal: &[],
            now: Shown { picture: &now.0, numbers: &now.1 },
            start: Some(Shown { picture: &base.0, numbers: &base.1 }),
            done: &[],
            said: "",
        };
        // The question is the referee's; its standing orders and its answer are the rubric's.
        let mut asked = self
            .bench
            .judge
            .request(&Question { brief: &shot.brief, goal, kind })
            .map_err(|e| Fault::from(&e))?;
        let orders = self.bench.prompts.render(RUBRIC, &json!({})).map_err(|e| Fault::from(&e))?;
        if let Some(first) = asked.prompts.first_mut() {
            *first = (&orders).into();
        }
        asked.system = orders.text;
        asked.tools = vec![rating_tool()];
        let read = |reply: &ModelReply| {
            let said: Said = arguments(RATE, reply).map_err(|error| error.to_string())?;
            let fits =
                [said.intent, said.craft, said.photograph].iter().all(|rating| (1..=5).contains(rating));
            if fits { Ok(said) } else { Err("a rating is not within 1 to 5".to_owned()) }
        };
        Ok(self.ask(&asked, read).await?.map(|said| Rating {
            arm: shot.arm.clone(),
            scenario: shot.scenario.clone(),
            repeat: shot.repeat,
            branch: shot.branch.clone(),
            intent: said.intent,
            craft: said.craft,
            photograph: said.photograph,
            seen: said.seen.chars().take(600).collect(),
        }))
    }

    /// The answer to a question: one that is kept, or the judge's.
    async fn ask<T>(
        &mut self,
        asked: &Prompted,
        read: impl Fn(&ModelReply) -> Result<T, String>,
    ) -> Heard<T> {
        for prompt in &asked.prompts {
            self.prompts.insert(prompt.name.clone(), prompt.template_sha256.clone());
        }
        let info = self.bench.judge.provider().info().clone();
        let whole = (&info.provider, &info.model, &asked.system, &asked.tools, &asked.messages);
        let key = Hash::of(serde_json::to_vec(&whole).unwrap_or_default());
        let kept = self.answers.join(format!("{key}.json"));
        let known = files::read_text(&kept, files::LARGEST_TEXT).ok();
        let known = known.and_then(|text| serde_json::from_str::<Message>(&text).ok());
        if let Some(message) = known
            && let Ok(answer) = read(&replied(message))
        {
            return Ok(Ok(answer));
        }
        let mut last = String::new();
        for number in 1..=ATTEMPTS {
            (self.bench.progress)(self.asked);
            let (reply, pause) = match self.call(asked, number).await? {
                Ok(called) => called,
                Err(why) => return Ok(Err(why)),
            };
            if let Some(reply) = reply {
                match read(&reply) {
                    Ok(answer) => {
                        let text = serde_json::to_vec(&reply.message).unwrap_or_default();
                        durable::write(&kept, &text).map_err(SessionError::Blob)?;
                        self.asked += 1;
                        return Ok(Ok(answer));
                    }
                    Err(why) => last = why,
                }
            } else if let Some((pause, why)) = pause {
                last = why;
                let stop = self.bench.stop.clone();
                sleep_until(&self.gate.deadline().at_most(pause), || stop.soft.is_cancelled()).await;
            }
            if self.bench.stop.soft.is_cancelled() {
                return Ok(Err("it was stopped".into()));
            }
        }
        Ok(Err(format!("no answer in {ATTEMPTS} attempts: {last}")))
    }

    /// One attempt under its permit: a reply, or the pause before another with the reason.
    async fn call(
        &mut self,
        asked: &Prompted,
        number: u32,
    ) -> Heard<(Option<ModelReply>, Option<(std::time::Duration, String)>)> {
        let provider = self.bench.judge.provider().clone();
        let info = provider.info();
        let input = pricing::tokens(info, &asked.system, &asked.tools, &asked.messages);
        let bound = pricing::bound(info, self.gate.ledger(), input, asked.max_output_tokens);
        let intent = ModelIntent {
            turn: self.asked as u64 + 1,
            attempt: number,
            reserved: bound.reserved,
            max_output_tokens: bound.max_output_tokens,
            messages: asked.messages.len() as u64,
            keep: Reserve::default(),
        };
        let permit = match self.gate.admit(intent)? {
            Ok(permit) => permit,
            Err(exhausted) => {
                self.gate.record(Event::CapFired { exhausted })?;
                return Ok(Err(format!("its budget is used up: {}", exhausted.words())));
            }
        };
        let seq = permit.seq();
        let request = ModelRequest {
            max_output_tokens: bound.max_output_tokens,
            ..asked.request(&info.model, "judge", Some(1), &self.blobs, &|_| {})
        };
        let deadline = self.gate.deadline();
        let (came, charge) =
            attempt(&*provider, (permit, &bound), &request, &self.gate, &self.blobs, || deadline.expired())
                .await?;
        match came {
            Some(Ok(reply)) => {
                self.gate.record(charge.reply(seq, reply.clone()))?;
                Ok(Ok((Some(reply), None)))
            }
            Some(Err(fault)) => {
                let again = fault.class.retryable() && number < ATTEMPTS;
                let pause = again.then(|| backoff(number, fault.retry_after, seq));
                self.gate.record(charge.failure(seq, &fault, fault.to_string(), pause))?;
                match pause {
                    Some(pause) => Ok(Ok((None, Some((pause, fault.to_string()))))),
                    None => Ok(Err(fault.to_string())),
                }
            }
            None => {
                let why = "the time for it was up, or it was stopped";
                self.gate.record(charge.timed_out(seq, why.into()))?;
                Ok(Err(why.into()))
            }
        }
    }
}

/// A kept answer, as it came.
fn replied(message: Message) -> ModelReply {
    ModelReply {
        message,
        finish: crate::conversation::Finish::ToolCalls,
        usage: Default::default(),
        cost_micro_usd: None,
        model_served: None,
        raw: Vec::new(),
        first_byte: None,
        notes: Vec::new(),
    }
}

fn rating_tool() -> ToolSpec {
    let rating = |what: &str| json!({"type": "integer", "minimum": 1, "maximum": 5, "description": what});
    ToolSpec {
        name: RATE.to_owned(),
        description: "Rates the edit.".to_owned(),
        parameters: json!({
            "type": "object",
            "properties": {
                "seen": {"type": "string", "description": "What differs. One or two sentences."},
                "intent": rating("Whether it does what was asked."),
                "craft": rating("Whether it is clean."),
                "photograph": rating("Whether it is the better photograph."),
            },
            "required": ["seen", "intent", "craft", "photograph"],
            "additionalProperties": false,
        }),
    }
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
