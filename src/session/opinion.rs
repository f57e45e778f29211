//! The second opinion: who is asked, what is put before it, and what is written down of the answer.
//!
//! The session renders, pays, asks and writes; [`crate::referee`] makes the question and reads the answer. Each
//! question is an intent under a permit and one line of answer, whoever is asked.

use crate::budget::{Amounts, Budget};
use crate::gate::{Permit, Refusal};
use crate::prompts::Store;
use crate::protocol::checks::{Numbers, numbers};
use crate::protocol::schema::{Kind as StateKind, Reference, Validator};
use crate::protocol::{Dialect, Protocol};
use crate::provider::classify::backoff;
use crate::provider::{Choice, Registry, connect};
use crate::referee::{Answer, Goal, Kind, ModelReferee, Prompted, Question, Shown, Side, offline};
use crate::session::SessionError;
use crate::session::driver::{Host, MAX_ATTEMPTS, Session};
use crate::session::pricing;
use crate::session::start::Plan;
use crate::session::steering::RefereeOutcome;
use crate::tools;
use crate::transcript::{Event, RefereeIntent, RefereeReply, RefereeStart};
use base::error::Fault;
use base::ids::{Hash, RefName};
use darktable::render::{Quality, Rendered};

/// The name of the referee that works from numbers alone.
pub const OFFLINE: &str = "offline";
/// What a comparison goes by where no protocol says it.
const CRITERIA: &str = "Which picture serves what was asked for better?";
/// Questions about pairs beyond two for each branch.
const SPARE_CALLS: u64 = 2;

/// Who gives second opinions.
#[derive(Clone, Default)]
pub enum Referee {
    /// Nobody.
    #[default]
    Nobody,
    /// Numbers alone.
    Offline,
    /// A language model that sees pictures.
    Model(ModelReferee),
}

impl Referee {
    /// The referee that is named: `offline`, or `PROVIDER[:MODEL]`; nobody where none is.
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
        if let Referee::Model(model) = &referee {
            pricing::payable(model.provider().info(), &self.start.budget)?;
        }
        self.start.referee = referee.start();
        self.referee = referee;
        Ok(self)
    }
}

/// How often a referee may be asked about pairs: both orders for each branch, and a pair again.
fn most_about_pairs(branches: u64) -> u64 {
    2 * branches.max(1) + SPARE_CALLS
}

/// How often a referee is asked at most in a session that a protocol steers. Criteria are asked about after
/// work alone, so that the model's own calls bound them.
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
pub(super) enum Ask {
    /// Which of two pictures is better.
    Pair { against: Reference, orders: u8, criteria: String },
    /// Whether criteria are met, and where to go on.
    Criteria { criteria: String, legal: Vec<String> },
}

/// The picture that is asked about.
struct Subject {
    branch: Option<RefName>,
    commit: Hash,
}

/// What lies before the referee.
struct Exhibits {
    /// The state of the picture that is asked about, and of the one that it is held against.
    states: [Hash; 2],
    new: Rendered,
    old: Rendered,
    start: Rendered,
}

impl Session {
    /// Asks what a protocol wants to know of the picture at hand.
    pub(super) async fn consult(&mut self, ask: &Ask, host: &dyn Host) -> Result<(), SessionError> {
        let head = self.state.head.clone();
        self.ask_once(ask, Subject { branch: head.branch, commit: head.commit }, host).await
    }

    /// Asks about a branch that was judged where no protocol says when.
    pub(super) async fn second_opinion(
        &mut self,
        branch: RefName,
        commit: &Hash,
        host: &dyn Host,
    ) -> Result<(), SessionError> {
        let ask = Ask::Pair { against: Reference::Baseline, orders: 2, criteria: CRITERIA.into() };
        self.ask_once(&ask, Subject { branch: Some(branch), commit: commit.clone() }, host).await
    }

    /// Writes down that nobody could be asked.
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

    /// Puts one question, in one order, once.
    async fn ask_once(&mut self, ask: &Ask, subject: Subject, host: &dyn Host) -> Result<(), SessionError> {
        let referee = self.referee.clone();
        if matches!(referee, Referee::Nobody) {
            return self.record_no_opinion(subject.branch, "there is no referee");
        }
        let pair = matches!(ask, Ask::Pair { .. });
        if pair && self.state.referee_calls >= self.most_calls() {
            let why = format!("a referee was asked {} times, which is all it may", self.state.referee_calls);
            return self.record_no_opinion(subject.branch, &why);
        }
        let table = match self.table(ask, &subject, host) {
            Ok(table) => table,
            Err(fault) if fault.halts => return Err(fault.into()),
            Err(fault) => {
                self.fold(host);
                // That it cannot be paid ends no session.
                self.gate.take_refusal();
                return self.record_no_opinion(subject.branch, &fault.to_string());
            }
        };
        self.fold(host);
        self.wait(self.state.opinion().pause, host).await;
        match referee {
            Referee::Nobody => Ok(()),
            Referee::Offline => self.by_numbers(ask, subject, &table, host),
            Referee::Model(model) => self.by_model(ask, subject, &table, &model, host).await,
        }
    }

    /// Renders what is put before a referee, at judging quality: after a judgment it is there already.
    fn table(&mut self, ask: &Ask, subject: &Subject, host: &dyn Host) -> Result<Exhibits, Fault> {
        let entry = self.state.steering.as_ref().map(|s| s.run().entry().commit.to_string());
        let other = match ask {
            Ask::Pair { against: Reference::Parent, .. } => entry,
            _ => None,
        };
        let (edge, quality) = (self.state.start.preview_edge, Quality::Judge);
        let busy = |what: &str| host.busy(&format!("darktable renders ({what})"));
        let mut context = self.context(0, &busy);
        let new = context.place(Some(subject.commit.as_str()))?;
        let old = context.place(Some(other.as_deref().unwrap_or("baseline")))?;
        let start = context.place(Some("baseline"))?;
        Ok(Exhibits {
            states: [new.state_hash, old.state_hash],
            new: context.render(&new.state, edge, quality)?,
            old: context.render(&old.state, edge, quality)?,
            start: context.render(&start.state, edge, quality)?,
        })
    }

    /// Which side the picture that is asked about lies on: the other one in the second order.
    fn side(&self, table: &Exhibits) -> Side {
        let first = table.states.first().and_then(|state| state.as_str().bytes().last()).unwrap_or_default();
        match (usize::from(first) + self.state.opinion().verdicts.len()) % 2 {
            0 => Side::A,
            _ => Side::B,
        }
    }

    fn wish(&self, branch: Option<&RefName>) -> Option<crate::transcript::Vector> {
        let planned = self.state.start.branches.iter().find(|planned| Some(&planned.branch) == branch)?;
        planned.vector.clone()
    }

    /// The line that announces a question.
    fn question(&self, ask: &Ask, subject: &Subject, table: &Exhibits) -> RefereeIntent {
        let [state, against] = table.states.clone();
        let (against, orders) = match ask {
            Ask::Pair { orders, .. } => (Some(against), *orders),
            Ask::Criteria { .. } => (None, 1),
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

    /// Asks the gate; `None` when there is nothing left to pay the question with, which is then written down.
    fn admitted(&mut self, intent: RefereeIntent) -> Result<Option<(Permit, RefereeReply)>, SessionError> {
        let reply = self.blank(intent.branch.clone(), intent.state.clone(), intent.orders);
        let branch = intent.branch.clone();
        match self.gate.admit(Event::RefereeIntent(Box::new(intent))) {
            Ok(permit) => {
                let intent = Some(permit.seq());
                Ok(Some((permit, RefereeReply { intent, ..reply })))
            }
            Err(Refusal::Transcript(error)) => Err(error.into()),
            Err(Refusal::Exhausted(exhausted)) => {
                self.record_no_opinion(branch, &exhausted.to_string()).map(|()| None)
            }
        }
    }

    fn by_numbers(
        &mut self,
        ask: &Ask,
        subject: Subject,
        table: &Exhibits,
        host: &dyn Host,
    ) -> Result<(), SessionError> {
        let (intent, side) = (self.question(ask, &subject, table), self.side(table));
        let Some((permit, mut reply)) = self.admitted(intent)? else { return Ok(()) };
        self.fold(host);
        let started = self.gate.elapsed();
        let vector = self.wish(subject.branch.as_ref());
        let wish = vector.as_ref().map(Goal::from);
        let (new, old, start) = (&table.new.picture, &table.old.picture, &table.start.picture);
        let said = match ask {
            Ask::Pair { .. } => {
                let (a, b) = if side == Side::A { (new, old) } else { (old, new) };
                offline::opinion(wish, start, a, b).map(|opinion| RefereeOutcome::of(opinion, side))
            }
            Ask::Criteria { legal, .. } => {
                offline::ruling(wish, start, new, !legal.is_empty()).map(RefereeOutcome::Ruling)
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
        ask: &Ask,
        subject: Subject,
        table: &Exhibits,
        referee: &ModelReferee,
        host: &dyn Host,
    ) -> Result<(), SessionError> {
        let show = |session: &Self, rendered: &Rendered| {
            let image = session.blobs.put_picture(&rendered.picture, String::new());
            let stats = session.engine.measures.stats(rendered);
            image.map(|image| (image, numbers(&stats, None))).map_err(SessionError::Blob)
        };
        let (new, old) = (show(self, &table.new)?, show(self, &table.old)?);
        let vector = self.wish(subject.branch.as_ref());
        let brief = self.state.start.brief.clone();
        let ran = self.state.steering.as_ref().map(|s| s.ran().to_vec()).unwrap_or_default();
        let side = self.side(table);
        let wish = vector.as_ref().map(Goal::from);
        let question = Question { brief: &brief, wish, kind: kind(ask, side, &new, &old, &ran) };
        let asked = match referee.request(&question) {
            Ok(asked) => asked,
            Err(error) => return self.record_no_opinion(subject.branch, &error.to_string()),
        };
        let info = referee.provider().info().clone();
        let input = pricing::tokens(&info, &asked.system, &asked.tools, &asked.messages);
        let bound = pricing::bound_of(&info, self.gate.ledger(), input, asked.max_output_tokens);
        let mut intent = self.question(ask, &subject, table);
        intent.reserved = bound.reserved;
        intent.request = Some(self.blobs.put(&sent(&asked)).map_err(SessionError::Blob)?);
        let (attempt, seed) = (intent.attempt, self.state.start.seed);
        let Some((permit, mut reply)) = self.admitted(intent)? else { return Ok(()) };
        self.fold(host);
        host.busy("the referee looks");
        let started = self.gate.elapsed();
        let name = format!("{}-referee", self.state.start.session);
        let progress = |amount| host.streaming(amount);
        let request = asked.request(&info.model, &name, Some(seed), &self.blobs, &progress);
        let came = self.in_time(permit, referee.provider().attempt(&request)).await;
        reply.ms = tools::millis(self.gate.elapsed().saturating_sub(started));
        match came {
            Some(Ok(answer)) => {
                reply.raw = Some(self.blobs.put(&answer.raw).map_err(SessionError::Blob)?);
                let said = answer.message.text_bytes();
                reply.settled =
                    pricing::settle(&info, &bound, &answer.usage, answer.cost_micro_usd, said).amounts;
                reply.usage = Some(answer.usage);
                reply.model_served = answer.model_served.clone();
                match referee.read(&question, &answer) {
                    Ok(Answer::Pair(opinion)) => {
                        reply.opinion = serde_json::to_value(RefereeOutcome::of(opinion, side)).ok();
                    }
                    Ok(Answer::Criteria(ruling)) => {
                        reply.opinion = serde_json::to_value(RefereeOutcome::Ruling(ruling)).ok();
                    }
                    Err(error) => {
                        reply.error = Some(error.to_string());
                        // Once more, and then it has nothing to say.
                        reply.pause_ms = (attempt < 2).then_some(0);
                    }
                }
            }
            Some(Err(fault)) => {
                reply.settled = pricing::settle_failure(&info, &bound, &fault);
                let pause = (fault.class.retryable() && attempt < MAX_ATTEMPTS)
                    .then(|| backoff(attempt, fault.retry_after, seed ^ self.gate.lines()))
                    .filter(|pause| *pause < self.gate.deadline().remaining());
                reply.pause_ms = pause.map(tools::millis);
                let remedy = fault.remedy.as_ref().map(|r| format!(" ({r})")).unwrap_or_default();
                reply.error = Some(format!("{fault}{remedy}"));
            }
            None => {
                reply.settled = bound.reserved;
                reply.error = Some("the time for it was up".into());
            }
        }
        self.record(Event::Referee(Box::new(reply)))
    }
}

/// The question about pictures and their numbers, the new one on its side.
fn kind<'a>(
    ask: &'a Ask,
    side: Side,
    new: &'a (crate::conversation::ImageRef, Numbers),
    old: &'a (crate::conversation::ImageRef, Numbers),
    ran: &'a [String],
) -> Kind<'a> {
    let shown = |(picture, numbers): &'a (_, _)| Shown { picture, numbers };
    match ask {
        Ask::Pair { criteria, .. } => {
            let (a, b) = if side == Side::A { (new, old) } else { (old, new) };
            Kind::Pair { criteria, a: shown(a), b: shown(b) }
        }
        Ask::Criteria { criteria, legal } => {
            Kind::Criteria { criteria, legal, now: shown(new), start: Some(shown(old)), done: ran }
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
