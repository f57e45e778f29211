//! One attempt at a model call, whoever makes it: permitted, ended at its deadline, charged.

use std::time::Duration;

use crate::budget::Stage;
use crate::gate::{Gate, ModelCall, Permit};
use crate::provider::classify::backoff;
use crate::provider::{
    FaultClass, ModelInfo, ModelReply, ModelRequest, Provider, ProviderFault, Refill, Usage,
};
use crate::session::driver::{Host, Session};
use crate::session::next::StopRequest;
use crate::session::pricing::{self, Bound, Input, Settled};
use crate::session::{SessionError, chapter, wording};
use crate::tools::{self, BlobStore};
use crate::transcript::{CountIntent, Event, ModelIntent, ModelName, Outcome, WrapUpReason};
use base::clock::Deadline;
use base::ids::Hash;

/// Attempts at one model turn.
pub(super) const MAX_ATTEMPTS: u32 = 4;
/// The longest pause of a session between two attempts that wait for a provider to come back.
const LONGEST_PAUSE: Duration = Duration::from_secs(2 * 60);
/// How often a wait checks whether it has to end.
const TICK: Duration = Duration::from_millis(50);

/// A reply, or the failure; `None` where the deadline ended the attempt.
pub(crate) type AttemptResult = Option<Result<ModelReply, ProviderFault>>;

/// Why a session is left.
pub(super) type Left = Option<Box<SessionError>>;

/// What an attempt cost.
pub(crate) struct Charge {
    /// What it is charged.
    pub settled: Settled,
    /// The body that came.
    pub raw: Option<Hash>,
    /// Milliseconds.
    pub ms: u64,
}

impl Charge {
    /// The line of a reply to the intent of the line `intent`.
    pub fn reply(self, intent: u64, reply: ModelReply) -> Event {
        Event::ModelReply {
            intent,
            message: reply.message,
            finish: reply.finish,
            usage: reply.usage,
            settled: self.settled.amounts,
            cost_source: self.settled.source,
            cost_by_kind: self.settled.by_kind,
            model_served: reply.model_served,
            raw: self.raw.unwrap_or_else(|| Hash::of(&reply.raw)),
            ms: self.ms,
            notes: [reply.notes, self.settled.notes].concat(),
        }
    }

    /// The line of a provider's failure. The class `deadline` is reserved for [`Self::timed_out`].
    pub fn failure(
        self,
        intent: u64,
        fault: &ProviderFault,
        message: String,
        pause: Option<Duration>,
    ) -> Event {
        let class = if fault.class == FaultClass::Deadline { FaultClass::Transport } else { fault.class };
        let Self { settled, raw, ms } = self;
        let (settled, pause_ms) = (settled.amounts, pause.map(tools::millis));
        Event::Attempt { intent, class, status: fault.status, message, pause_ms, settled, ms, raw }
    }

    /// The line of an attempt that the deadline ended.
    pub fn timed_out(self, intent: u64, message: String) -> Event {
        let (class, settled) = (FaultClass::Deadline, self.settled.amounts);
        Event::Attempt {
            intent,
            class,
            status: None,
            message,
            pause_ms: None,
            settled,
            ms: self.ms,
            raw: None,
        }
    }
}

/// Makes one attempt, which uses up the permit, until `expired`.
pub(crate) async fn attempt(
    provider: &dyn Provider,
    (permit, bound): (Permit<ModelCall>, &Bound),
    request: &ModelRequest<'_>,
    gate: &Gate,
    blobs: &BlobStore,
    expired: impl Fn() -> bool,
) -> Result<(AttemptResult, Charge), SessionError> {
    let started = gate.elapsed();
    let mut call = provider.attempt(permit, request);
    let came = loop {
        // The tick checks the session's own clock, which unlike the timer includes suspend.
        tokio::select! {
            result = &mut call => break Some(result),
            () = tokio::time::sleep(TICK) => if expired() { break None },
        }
    };
    let ms = tools::millis(gate.elapsed().saturating_sub(started));
    let raw = match &came {
        Some(Ok(reply)) => Some(&reply.raw),
        Some(Err(fault)) => Some(&fault.raw).filter(|raw| !raw.is_empty()),
        None => None,
    };
    let raw = raw.map(|raw| blobs.put(raw)).transpose().map_err(SessionError::Blob)?;
    let settled = pricing::settle(provider.info(), bound, came.as_ref());
    Ok((came, Charge { settled, raw, ms }))
}

/// Waits until then, or until `cut` is true.
pub(crate) async fn sleep_until(until: &Deadline, cut: impl Fn() -> bool) {
    while !until.expired() && !cut() {
        let step = TICK.min(until.remaining());
        if !until.skip(step) {
            tokio::time::sleep(step).await;
        }
    }
}

/// What a session does when its provider cannot be reached, after the first few attempts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Patience {
    /// How long it waits for one reply, within its own time, with growing pauses.
    pub wait: Duration,
    /// Whether it is then left as it is, with [`SessionError::Unreachable`], to be resumed, and not ended.
    pub leaves: bool,
    /// Whether it has been left before, and its first call is one attempt only, to see whether the provider is back.
    pub probes: bool,
    /// How long it has waited for the present reply.
    pub waited: Duration,
}

impl Patience {
    /// The pause after the attempt of this number, as long as there is patience.
    fn pause(&self, attempt: u32, asked: Option<Duration>) -> Option<Duration> {
        let left = self.wait.saturating_sub(self.waited);
        let grown = Duration::from_secs(8).saturating_mul(1 << attempt.saturating_sub(MAX_ATTEMPTS).min(8));
        let pause = grown.min(LONGEST_PAUSE).max(asked.unwrap_or_default());
        (!left.is_zero() && asked.is_none_or(|asked| asked <= left)).then(|| pause.min(left))
    }
}

/// What a provider would say if it were asked before its limit has room again.
fn too_late(info: &ModelInfo, refill: Refill) -> ProviderFault {
    ProviderFault {
        provider: info.provider.clone(),
        class: FaultClass::RateLimit,
        status: None,
        message: format!("too few {} are left of its rate limit for the next call", refill.of),
        remedy: None,
        retry_after: Some(refill.pause),
        sent: false,
        usage: Usage::default(),
        raw: Vec::new(),
    }
}

/// A model as a transcript names it.
pub(super) fn named(info: &ModelInfo) -> ModelName {
    ModelName { provider: info.provider.clone(), model: info.model.clone() }
}

/// A failure with what was added to it, and what to do about it.
pub(super) fn words(fault: &ProviderFault, added: &str) -> String {
    let remedy = fault.remedy.as_ref().map(|r| format!(" ({r})")).unwrap_or_default();
    format!("{fault}{added}{remedy}")
}

impl Session {
    /// One attempt at one model turn.
    pub(super) async fn call_model(
        &mut self,
        turn: u64,
        attempt: u32,
        pause: Duration,
        host: &dyn Host,
    ) -> Result<(), SessionError> {
        self.wait(pause, host).await;
        let provider = self.provider.clone();
        let info = provider.info();
        let sent = pricing::conversation(info, &self.state, &self.system, &self.tools);
        if let Some(cause) = chapter::due(info, &self.state, sent) {
            let line = self.new_chapter(cause)?;
            return self.record(line);
        }
        let refill = provider.refill(sent.most, self.state.unread(sent.most));
        if let Some(refill) = refill.filter(|refill| !self.outlasts(refill)) {
            return self.pace(refill, "provider", host).await;
        }
        let sent = self.counted(&*provider, sent, host).await?;
        let (keep, bound) = pricing::bounded(info, self.gate.ledger(), sent);
        let intent = ModelIntent {
            turn,
            attempt,
            reserved: bound.reserved,
            max_output_tokens: bound.max_output_tokens,
            messages: self.state.messages.len() as u64,
            keep,
        };
        let permit = match self.gate.admit(intent)? {
            Ok(permit) => permit,
            Err(exhausted) => {
                self.record(Event::CapFired { exhausted })?;
                if self.gate.ledger().stage() == Stage::WrapUp {
                    self.fold(host);
                    self.finish(Outcome::BudgetExhausted, exhausted.to_string(), host)?;
                }
                return Ok(());
            }
        };
        // The host is told of the call when it is made, not when it is answered.
        self.fold(host);
        host.busy("waiting for the model");
        let intent = permit.seq();
        let progress = |amount: usize, text: &str| host.streaming(amount, text);
        let request = self.request(info, bound.max_output_tokens, &progress);
        let (came, mut charge) = self.attempt(provider.as_ref(), (permit, &bound), &request, refill).await?;
        let mut left = None;
        let line = match came {
            Some(Ok(reply)) => {
                (self.patience.waited, self.patience.probes) = (Duration::ZERO, false);
                charge.reply(intent, reply)
            }
            Some(Err(fault)) => {
                let seed = self.state.start.seed ^ intent;
                let pause;
                (pause, left) = self.after_failure(&*provider, &fault, attempt, seed, &mut charge);
                // With another model to go on, nobody waits for this one.
                left = left.filter(|_| self.fallback.is_none());
                let left = self.gate.hard_deadline().remaining();
                let later = fault.retry_after.filter(|asked| pause.is_none() && *asked >= left);
                let later = later
                    .map(|asked| format!("; it asks to retry in {} minutes", asked.as_secs().div_ceil(60)));
                let message = words(&fault, &later.unwrap_or_default());
                charge.failure(intent, &fault, message, pause)
            }
            None => {
                let why = match self.halt() {
                    StopRequest::Now => wording::STOPPED_AT_ONCE,
                    StopRequest::WrapUp if !self.state.stopped => WrapUpReason::Stopped.as_str(),
                    _ => "the time for it was up",
                };
                charge.timed_out(intent, format!("cut: {why}"))
            }
        };
        self.record(line)?;
        self.leave(left, host)
    }

    fn request<'a>(
        &'a self,
        info: &'a ModelInfo,
        max_output_tokens: u32,
        on_progress: &'a (dyn Fn(usize, &str) + Send + Sync),
    ) -> ModelRequest<'a> {
        ModelRequest {
            model: &info.model,
            system: &self.system,
            tools: &self.tools,
            messages: &self.state.messages,
            earlier: self.state.earlier_replies(),
            max_output_tokens,
            session: self.state.start.session.as_str(),
            seed: Some(self.state.start.seed),
            blobs: &self.blobs,
            time_left: Some(self.gate.deadline().remaining()),
            on_progress,
        }
    }

    /// Whether a limit of a provider has no room before the session ends.
    pub(super) fn outlasts(&self, refill: &Refill) -> bool {
        refill.pause >= self.gate.hard_deadline().remaining()
    }

    /// Waits until a limit of the provider has room again.
    pub(super) async fn pace(
        &mut self,
        refill: Refill,
        whose: &str,
        host: &dyn Host,
    ) -> Result<(), SessionError> {
        let pause = refill.pause;
        let seconds = pause.as_secs_f64().ceil();
        let text = format!(
            "waiting {seconds} s: the {whose} has too few {} left for the next call until then",
            refill.of
        );
        let details = [("pause_ms".to_owned(), tools::millis(pause).into())].into_iter().collect();
        self.record(Event::Note { text, details })?;
        self.fold(host);
        host.busy(&format!("waiting {seconds} s for the {whose}'s rate limit"));
        let until = self.gate.deadline().at_most(pause);
        sleep_until(&until, || self.halt() != StopRequest::None).await;
        Ok(())
    }

    /// What a call sends, as the provider counts it where a cap is near: the bound by bytes may be too high for it.
    async fn counted(
        &mut self,
        provider: &dyn Provider,
        sent: Input,
        host: &dyn Host,
    ) -> Result<Input, SessionError> {
        let info = provider.info();
        let quiet = |_: usize, _: &str| {};
        if !provider.counts() || !pricing::is_near(info, self.gate.ledger(), sent) {
            return Ok(sent);
        }
        let Ok(permit) = self.gate.admit(CountIntent { most: sent.most })? else { return Ok(sent) };
        self.fold(host);
        host.busy("asking the provider for the tokens of the next call");
        let request = self.request(info, 0, &quiet);
        let count = provider.count(permit, &request);
        let count = tokio::time::timeout(self.gate.deadline().remaining(), count).await.ok().flatten();
        let counted = count.filter(|count| *count >= sent.least).map(|count| sent.counted(count));
        let text = match (count, counted) {
            (Some(count), Some(_)) => format!("the provider counts {count}; the bound was {}", sent.most),
            _ => format!("there is no count that can be believed; the bound of {} stands", sent.most),
        };
        self.record(Event::Note { text, details: serde_json::Map::new() })?;
        Ok(counted.unwrap_or(sent))
    }

    /// After an attempt that failed: the pause before the next one, and, where there is none but the session can be
    /// left as it is, why it is left.
    pub(super) fn after_failure(
        &mut self,
        provider: &dyn Provider,
        fault: &ProviderFault,
        attempt: u32,
        seed: u64,
        charge: &mut Charge,
    ) -> (Option<Duration>, Left) {
        let pause = self.retry_pause(fault, attempt, seed);
        self.patience.waited += pause.filter(|_| attempt >= MAX_ATTEMPTS).unwrap_or_default();
        if !fault.sent && (self.patience.probes || attempt > MAX_ATTEMPTS) {
            // The guard rail on calls is for calls; that many attempts are bounded by time.
            charge.settled.amounts.model_calls = 0;
        }
        let leaves = pause.is_none() && fault.class.retryable() && self.patience.leaves;
        let left = || SessionError::Unreachable {
            provider: provider.info().provider.clone(),
            message: words(fault, ""),
            retry_after: fault.retry_after,
        };
        (pause, leaves.then(|| Box::new(left())))
    }

    /// Leaves the session as it is, unless a person stops it, to be taken up when its provider is back.
    pub(super) fn leave(&mut self, left: Left, host: &dyn Host) -> Result<(), SessionError> {
        let Some(left) = left.filter(|_| self.halt() == StopRequest::None) else {
            return Ok(());
        };
        self.fold(host);
        self.context(0, &|_| {}).close_ahead(|_| true, "the session waits for its provider")?;
        self.fold(host);
        Err(*left)
    }

    /// Lets the other model go on, if there is one and the session would end because this one cannot.
    pub(super) fn falls_back(&mut self, reason: &str) -> Result<bool, SessionError> {
        let why = self.state.given_up().filter(|why| !why.is_empty());
        if why.is_none_or(|why| !reason.ends_with(why)) {
            return Ok(false);
        }
        let Some(provider) = self.fallback.take() else { return Ok(false) };
        self.record(Event::Fallback { to: named(provider.info()), reason: reason.to_owned() })?;
        self.provider = provider;
        self.patience.waited = Duration::ZERO;
        Ok(true)
    }

    /// A pause before a further attempt; a request to stop ends it.
    pub(super) async fn wait(&self, pause: Duration, host: &dyn Host) {
        if !pause.is_zero() {
            host.busy("waiting to retry the model");
            let until = self.gate.deadline().at_most(pause);
            sleep_until(&until, || self.halt() != StopRequest::None).await;
        }
    }

    /// The pause before a further attempt, where there is to be one. One that outlasts the work ends with it: what is
    /// left of the session is for the judgments.
    pub(super) fn retry_pause(&self, fault: &ProviderFault, attempt: u32, seed: u64) -> Option<Duration> {
        if !fault.class.retryable() {
            return None;
        }
        let pause = match self.patience.probes {
            false if attempt < MAX_ATTEMPTS => Some(backoff(attempt, fault.retry_after, seed)),
            _ => self.patience.pause(attempt, fault.retry_after),
        };
        pause.filter(|pause| *pause < self.gate.hard_deadline().remaining())
    }

    /// One attempt, which ends with the stage, or sooner after a request to stop. With a limit that has no room before
    /// the session ends, nothing is sent: it is known to be refused.
    pub(super) async fn attempt(
        &self,
        provider: &dyn Provider,
        paid: (Permit<ModelCall>, &Bound),
        request: &ModelRequest<'_>,
        late: Option<Refill>,
    ) -> Result<(AttemptResult, Charge), SessionError> {
        if let Some(refill) = late {
            let came = Some(Err(too_late(provider.info(), refill)));
            let settled = pricing::settle(provider.info(), paid.1, came.as_ref());
            return Ok((came, Charge { settled, raw: None, ms: 0 }));
        }
        let mut deadline: Deadline = self.gate.deadline();
        if self.state.stopped {
            // After a request to stop nobody should wait long for a model that hangs.
            deadline = deadline.at_most(self.gate.ledger().wrap_up_time());
        }
        let expired = || {
            // Whoever is there wants no look back that goes on behind a request to stop.
            let halted = self.halt() != StopRequest::None;
            deadline.expired() || halted && self.state.talks()
        };
        attempt(provider, paid, request, &self.gate, &self.blobs, expired).await
    }
}

/// Waits for a future on a runtime of its own.
#[cfg(test)]
pub(super) fn alone<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}
