//! The second opinion: who is asked, what is put before it, and what is written down of the answer.
//!
//! The session renders, pays, asks and records; [`crate::referee`] makes the question and reads the answer. Each
//! question is an intent under a permit and one line of answer, for every kind of referee.

use std::time::Duration;

use crate::budget::{Amounts, Budget};
use crate::gate::{ModelCall, Permit};
use crate::prompts::Store;
use crate::protocol::checks::{Numbers, numbers};
use crate::protocol::schema::{Kind as StateKind, Reference, Validator};
use crate::protocol::{Dialect, Protocol};
use crate::provider::{Choice, ModelInfo, REFEREE, Registry, connect};
use crate::referee::{Answer, Goal, Kind, ModelReferee, Prompted, Question, Shown, Side, offline};
use crate::session::SessionError;
use crate::session::driver::{Host, Session};
use crate::session::model_call::words;
use crate::session::next::StopRequest;
use crate::session::pricing;
use crate::session::start::Plan;
use crate::session::steering::RefereeOutcome;
use crate::tools;
use crate::transcript::{Event, RefereeIntent, RefereeReply, RefereeStart};
use base::error::Fault;
use base::ids::{Hash, RefName};
use darktable::render::{Quality, Rendered};

/// The name of the referee that only uses measurements.
pub const OFFLINE: &str = "offline";
/// The criterion of a comparison without a protocol.
const CRITERIA: &str = "Which picture serves what was asked for better?";
/// Questions about pairs beyond two for each branch.
const SPARE_CALLS: u64 = 2;

/// Who gives second opinions.
#[derive(Clone, Default)]
pub enum Referee {
    /// Nobody.
    #[default]
    Nobody,
    /// Measurements only.
    Offline,
    /// A language model that sees pictures.
    Model(ModelReferee),
}

impl Referee {
    /// The referee of that name: `offline` or `PROVIDER[:MODEL]`.
    pub fn named(
        named: Option<&str>,
        registry: &Registry,
        prompts: &Store,
        seed: u64,
    ) -> Result<Self, Fault> {
        let Some(named) = named else { return Ok(Self::Nobody) };
        let (provider, model) = match named.split_once(':') {
            Some((provider, model)) => (provider, Some(model.to_owned())),
            None => (named, None),
        };
        if provider == OFFLINE {
            return Ok(Self::Offline);
        }
        let choice = Choice { provider: provider.to_owned(), model, base_url: None, seed };
        let provider = connect(registry, &choice).map_err(|e| Fault::from(&e))?;
        Ok(Self::Model(ModelReferee::new(provider, prompts).map_err(|e| Fault::from(&e))?))
    }

    /// The model behind it, where it is one.
    pub fn info(&self) -> Option<&ModelInfo> {
        match self {
            Self::Model(referee) => Some(referee.provider().info()),
            Self::Nobody | Self::Offline => None,
        }
    }

    /// As a session's header names it.
    pub fn start(&self) -> Option<RefereeStart> {
        match self {
            Self::Nobody => None,
            Self::Offline => Some(RefereeStart { provider: OFFLINE.into(), model: offline::NAME.into() }),
            Self::Model(referee) => {
                let info = referee.provider().info();
                Some(RefereeStart { provider: info.provider.clone(), model: info.model.clone() })
            }
        }
    }
}

impl Plan {
    /// The same plan, with somebody who gives second opinions.
    pub fn with_referee(mut self, referee: Referee) -> Result<Self, SessionError> {
        if let Some(info) = referee.info() {
            pricing::payable(info, &self.start.budget)?;
        }
        self.start.referee = referee.start();
        self.referee = referee;
        Ok(self)
    }
}

/// How often a referee may be asked about pairs: both orders for each branch, and one pair again.
fn most_about_pairs(branches: u64) -> u64 {
    2 * branches.max(1) + SPARE_CALLS
}

/// The most questions to a referee in a session with a protocol. Questions about criteria only follow work, so that
/// the model's own calls limit them.
pub fn most_questions(protocol: &Protocol, budget: &Budget) -> u64 {
    let calls = budget.max_model_calls();
    if protocol.dialect == Dialect::Compat
        || protocol.states.iter().any(|state| state.validated_by == Validator::Referee)
    {
        return calls;
    }
    match protocol.states.iter().any(|state| state.kind == StateKind::Referee) {
        true => most_about_pairs(budget.max_branches).min(calls),
        false => 0,
    }
}

/// A question.
pub(super) enum Inquiry {
    /// Which of two pictures is better.
    Pair { against: Reference, orders: u8, criteria: String },
    /// Whether criteria are met, and where to go on.
    Criteria { criteria: String, legal: Vec<String> },
}

/// The picture in question.
struct Subject {
    branch: Option<RefName>,
    commit: Hash,
}

/// What the referee is shown.
struct ShownPictures {
    /// The states of the picture in question and of the one that it is compared with.
    states: [Hash; 2],
    new: Rendered,
    old: Rendered,
    start: Rendered,
}

impl Session {
    /// Asks a protocol's question about the present picture.
    pub(super) async fn consult(&mut self, ask: &Inquiry, host: &dyn Host) -> Result<(), SessionError> {
        let head = self.state.head.clone();
        self.ask_once(ask, Subject { branch: head.branch, commit: head.commit }, host).await
    }

    /// Asks about a judged branch in a session without a protocol.
    pub(super) async fn second_opinion(
        &mut self,
        branch: RefName,
        commit: &Hash,
        host: &dyn Host,
    ) -> Result<(), SessionError> {
        let ask = Inquiry::Pair { against: Reference::Baseline, orders: 2, criteria: CRITERIA.into() };
        self.ask_once(&ask, Subject { branch: Some(branch), commit: commit.clone() }, host).await
    }

    /// Records that nobody could be asked.
    pub(super) fn record_no_opinion(
        &mut self,
        branch: Option<RefName>,
        why: &str,
    ) -> Result<(), SessionError> {
        let mut reply = self.blank(branch, self.state.head.state.clone(), 0);
        reply.error = Some(why.into());
        self.record(Event::Referee(Box::new(reply)))
    }

    fn blank(&self, branch: Option<RefName>, state: Hash, orders: u8) -> RefereeReply {
        RefereeReply {
            intent: None,
            branch,
            state,
            orders,
            opinion: None,
            error: None,
            pause_ms: None,
            settled: Amounts::default(),
            usage: None,
            model_served: None,
            raw: None,
            ms: 0,
        }
    }

    fn most_calls(&self) -> u64 {
        most_about_pairs(self.state.start.branches.len().max(self.state.branches.len()) as u64)
    }

    /// Asks one question in one order, once.
    async fn ask_once(
        &mut self,
        ask: &Inquiry,
        subject: Subject,
        host: &dyn Host,
    ) -> Result<(), SessionError> {
        let referee = self.referee.clone();
        if matches!(referee, Referee::Nobody) {
            return self.record_no_opinion(subject.branch, "there is no referee");
        }
        let pair = matches!(ask, Inquiry::Pair { .. });
        if pair && self.state.referee_calls >= self.most_calls() {
            let why = format!("a referee was asked {} times, which is all it may", self.state.referee_calls);
            return self.record_no_opinion(subject.branch, &why);
        }
        let pictures = match self.pictures(ask, &subject, host) {
            Ok(pictures) => pictures,
            Err(fault) if fault.halts => return Err(fault.into()),
            Err(fault) => {
                self.fold(host);
                // The session goes on without an opinion that it cannot afford.
                self.gate.take_refusal();
                return self.record_no_opinion(subject.branch, &fault.to_string());
            }
        };
        self.fold(host);
        self.wait(self.state.opinion().pause, host).await;
        match referee {
            Referee::Nobody => Ok(()),
            Referee::Offline => self.by_numbers(ask, subject, &pictures, host),
            Referee::Model(model) => self.by_model(ask, subject, &pictures, &model, host).await,
        }
    }

    /// Renders what the referee is shown at judging quality; after a judgment it is in the cache.
    fn pictures(
        &mut self,
        ask: &Inquiry,
        subject: &Subject,
        host: &dyn Host,
    ) -> Result<ShownPictures, Fault> {
        let entry = self.state.steering.as_ref().map(|s| s.run().entry().commit.to_string());
        let other = match ask {
            Inquiry::Pair { against: Reference::Parent, .. } => entry,
            _ => None,
        };
        let (edge, quality) = (self.state.start.preview_edge, Quality::Judge);
        let busy = |what: &str| host.busy(&format!("rendering ({what})"));
        let mut context = self.context(0, &busy);
        let new = context.place(Some(subject.commit.as_str()))?;
        let old = context.place(Some(other.as_deref().unwrap_or("baseline")))?;
        let start = context.place(Some("baseline"))?;
        Ok(ShownPictures {
            states: [new.state_hash, old.state_hash],
            new: context.render(&new.state, edge, quality)?,
            old: context.render(&old.state, edge, quality)?,
            start: context.render(&start.state, edge, quality)?,
        })
    }

    /// The side of the picture in question; the other one in the second order.
    fn side(&self, pictures: &ShownPictures) -> Side {
        let first =
            pictures.states.first().and_then(|state| state.as_str().bytes().last()).unwrap_or_default();
        match (usize::from(first) + self.state.opinion().verdicts.len()) % 2 {
            0 => Side::A,
            _ => Side::B,
        }
    }

    fn goal(&self, branch: Option<&RefName>) -> Option<crate::transcript::Vector> {
        let planned = self.state.start.branches.iter().find(|planned| Some(&planned.branch) == branch)?;
        planned.vector.clone()
    }

    /// The intent of a question.
    fn question(&self, ask: &Inquiry, subject: &Subject, pictures: &ShownPictures) -> RefereeIntent {
        let [state, against] = pictures.states.clone();
        let (against, orders) = match ask {
            Inquiry::Pair { orders, .. } => (Some(against), *orders),
            Inquiry::Criteria { .. } => (None, 1),
        };
        let opinion = self.state.opinion();
        RefereeIntent {
            branch: subject.branch.clone(),
            state,
            against,
            order: u8::try_from(opinion.verdicts.len()).unwrap_or(u8::MAX).saturating_add(1),
            orders,
            attempt: opinion.failures + 1,
            reserved: Amounts::default(),
            request: None,
        }
    }

    /// Asks the gate; `None`, recorded as no opinion, when the budget does not allow the question.
    fn admitted(
        &mut self,
        intent: RefereeIntent,
    ) -> Result<Option<(Permit<ModelCall>, RefereeReply)>, SessionError> {
        let reply = self.blank(intent.branch.clone(), intent.state.clone(), intent.orders);
        let branch = intent.branch.clone();
        match self.gate.admit(intent)? {
            Ok(permit) => {
                let intent = Some(permit.seq());
                Ok(Some((permit, RefereeReply { intent, ..reply })))
            }
            Err(exhausted) => self.record_no_opinion(branch, &exhausted.to_string()).map(|()| None),
        }
    }

    fn by_numbers(
        &mut self,
        ask: &Inquiry,
        subject: Subject,
        pictures: &ShownPictures,
        host: &dyn Host,
    ) -> Result<(), SessionError> {
        let (intent, side) = (self.question(ask, &subject, pictures), self.side(pictures));
        let Some((permit, mut reply)) = self.admitted(intent)? else { return Ok(()) };
        self.fold(host);
        let started = self.gate.elapsed();
        let vector = self.goal(subject.branch.as_ref());
        let goal = vector.as_ref().map(Goal::from);
        let (new, old, start) = (&pictures.new.picture, &pictures.old.picture, &pictures.start.picture);
        let said = match ask {
            Inquiry::Pair { .. } => {
                let (a, b) = if side == Side::A { (new, old) } else { (old, new) };
                offline::opinion(goal, start, a, b).map(|opinion| RefereeOutcome::of(opinion, side))
            }
            Inquiry::Criteria { legal, .. } => {
                offline::ruling(goal, start, new, !legal.is_empty()).map(RefereeOutcome::Ruling)
            }
        };
        drop(permit);
        match said {
            Ok(said) => reply.opinion = serde_json::to_value(said).ok(),
            Err(error) => reply.error = Some(error.to_string()),
        }
        reply.ms = tools::millis(self.gate.elapsed().saturating_sub(started));
        self.record(Event::Referee(Box::new(reply)))
    }

    async fn by_model(
        &mut self,
        ask: &Inquiry,
        subject: Subject,
        pictures: &ShownPictures,
        referee: &ModelReferee,
        host: &dyn Host,
    ) -> Result<(), SessionError> {
        let show = |session: &Self, rendered: &Rendered| {
            let image = session.blobs.put_picture(&rendered.picture, String::new());
            let stats = session.engine.measures.stats(rendered);
            image.map(|image| (image, numbers(&stats, None))).map_err(SessionError::Blob)
        };
        let (new, old) = (show(self, &pictures.new)?, show(self, &pictures.old)?);
        let vector = self.goal(subject.branch.as_ref());
        let brief = self.state.start.brief.clone();
        let ran = self.state.steering.as_ref().map(|s| s.ran().to_vec()).unwrap_or_default();
        let said = self.state.steering.as_ref().map(|s| s.said().to_owned()).unwrap_or_default();
        let side = self.side(pictures);
        let goal = vector.as_ref().map(Goal::from);
        let question = Question { brief: &brief, goal, kind: kind(ask, side, [&new, &old], &ran, &said) };
        let asked = match referee.request(&question) {
            Ok(asked) => asked,
            Err(error) => return self.record_no_opinion(subject.branch, &error.to_string()),
        };
        let provider = referee.provider().as_ref();
        let info = provider.info().clone();
        let input = pricing::tokens(&info, &asked.system, &asked.tools, &asked.messages);
        // Each question is a conversation of its own, with pictures that no cache has.
        let refill = provider.refill(input.most, input.most);
        if let Some(refill) = refill.filter(|refill| !self.outlasts(refill)) {
            self.pace(refill, "referee", host).await?;
            if self.halt() != StopRequest::None {
                return Ok(());
            }
        }
        let late = refill.filter(|refill| self.outlasts(refill));
        let bound = pricing::bound(&info, self.gate.ledger(), input, asked.max_output_tokens);
        let mut intent = self.question(ask, &subject, pictures);
        intent.reserved = bound.reserved;
        intent.request = Some(self.blobs.put(&sent(&asked)).map_err(SessionError::Blob)?);
        let (attempt, seed) = (intent.attempt, self.state.start.seed);
        let Some((permit, mut reply)) = self.admitted(intent)? else { return Ok(()) };
        self.fold(host);
        host.busy("waiting for the referee");
        let name = format!("{}{REFEREE}", self.state.start.session);
        let progress = |amount: usize, _: &str| host.streaming(amount, "");
        let request = asked.request(&info.model, &name, Some(seed), &self.blobs, &progress);
        let (came, mut charge) = self.attempt(provider, (permit, &bound), &request, late).await?;
        let mut left = None;
        match came {
            Some(Ok(answer)) => {
                (self.patience.waited, self.patience.probes) = (Duration::ZERO, false);
                reply.raw = charge.raw;
                reply.usage = Some(answer.usage);
                reply.model_served = answer.model_served.clone();
                let said = referee.read(&question, &answer).map(|answer| match answer {
                    Answer::Pair(opinion) => RefereeOutcome::of(opinion, side),
                    Answer::Criteria(ruling) => RefereeOutcome::Ruling(ruling),
                });
                match said {
                    Ok(said) => reply.opinion = serde_json::to_value(said).ok(),
                    Err(error) => {
                        reply.error = Some(error.to_string());
                        // One retry, and then there is no opinion.
                        reply.pause_ms = (attempt < 2).then_some(0);
                    }
                }
            }
            Some(Err(fault)) => {
                let seed = seed ^ self.gate.lines();
                let pause;
                (pause, left) = self.after_failure(provider, &fault, attempt, seed, &mut charge);
                // The question of a session that is left stays open.
                reply.pause_ms = pause.or(left.as_ref().map(|_| Duration::ZERO)).map(tools::millis);
                reply.error = Some(words(&fault, ""));
            }
            None => reply.error = Some("the time for it was up".into()),
        }
        (reply.settled, reply.ms) = (charge.settled.amounts, charge.ms);
        self.record(Event::Referee(Box::new(reply)))?;
        self.leave(left, host)
    }
}

/// The question about pictures and their numbers, the new one on its side.
fn kind<'a>(
    ask: &'a Inquiry,
    side: Side,
    [new, old]: [&'a (crate::conversation::ImageRef, Numbers); 2],
    ran: &'a [String],
    said: &'a str,
) -> Kind<'a> {
    let shown = |(picture, numbers): &'a (_, _)| Shown { picture, numbers };
    match ask {
        Inquiry::Pair { criteria, .. } => {
            let (a, b) = if side == Side::A { (new, old) } else { (old, new) };
            Kind::Pair { criteria, a: shown(a), b: shown(b) }
        }
        Inquiry::Criteria { criteria, legal } => {
            Kind::Criteria { criteria, legal, now: shown(new), start: Some(shown(old)), done: ran, said }
        }
    }
}

/// What is sent, for the record; pictures by their hash.
fn sent(asked: &Prompted) -> Vec<u8> {
    let prompts = asked
        .prompts
        .each_ref()
        .map(|p| serde_json::json!({ "name": p.name, "template_sha256": p.template_sha256 }));
    let text = serde_json::json!({
        "prompts": prompts, "system": asked.system, "tools": asked.tools, "messages": asked.messages,
        "max_output_tokens": asked.max_output_tokens,
    });
    text.to_string().into_bytes()
}
