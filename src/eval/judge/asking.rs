//! A judge at work: its questions, each under a permit, and its answers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::json;

use super::{BASELINE, Bench, Judged, Pair, RUBRIC, Rating, Shot, picture};
use crate::budget::Reserve;
use crate::conversation::{ImageRef, Message, ToolSpec};
use crate::gate::Gate;
use crate::protocol::checks::{Numbers, numbers};
use crate::protocol::rules::Verdict;
use crate::provider::classify::backoff;
use crate::provider::{ModelReply, ModelRequest};
use crate::referee::model::arguments;
use crate::referee::qualify::cases;
use crate::referee::{Answer, Goal, Kind, Prompted, Question, Shown, Side};
use crate::session::model_call::{attempt, sleep_until};
use crate::session::{SessionError, pricing};
use crate::tools::BlobStore;
use crate::transcript::{Event, ModelIntent};
use base::error::Fault;
use base::ids::Hash;
use base::{durable, files};
use darktable::render::Picture;
use pixels::metrics::stats::ImageStats;

/// What a pair is judged by.
const CRITERIA: &str = "Which picture serves what was asked for better?";
/// The tool by which it rates.
const RATE: &str = "give_ratings";
/// Attempts at a question.
const ATTEMPTS: u32 = 4;

/// What the model is to call.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    seen: String,
    intent: u8,
    craft: u8,
    photograph: u8,
}

/// What came of a question, or why no more are asked.
type Heard<T> = Result<Result<T, String>, SessionError>;

/// A judge at work.
pub(super) struct Asking<'a> {
    pub(super) bench: &'a Bench<'a>,
    pub(super) gate: Gate,
    pub(super) blobs: BlobStore,
    pub(super) answers: PathBuf,
    pub(super) asked: usize,
    pub(super) prompts: BTreeMap<String, Hash>,
}

impl Asking<'_> {
    /// Asks everything; why it ended early, if it did.
    pub(super) async fn all(
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
                (BASELINE, &shot.base)
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

    fn shown(&self, picture: &Picture) -> Result<(ImageRef, Numbers), SessionError> {
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
            ..asked.request(&info.model, "judge", Some(1), &self.blobs, &|_, _| {})
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
