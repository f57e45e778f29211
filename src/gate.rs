//! The one gate through which every effect of a session passes.
//!
//! The gate owns the ledger and the transcript. [`Gate::admit`] asks the ledger, writes the intent as a
//! transcript line (synced before an effect that mutates or is paid for), and only then hands out a [`Permit`]; there is
//! no other way to get one. [`Gate::record`] writes what came of it, which settles the reservation. Every
//! line passes through [`fold`], live and on resume alike, so the ledger *is* a fold of the transcript.

use std::marker::PhantomData;
use std::time::Duration;

use darktable::render::RenderPermit;
use engine::lease::Lessor;

use crate::budget::{Amounts, Exhausted, Ledger, Stage};
use crate::transcript::{
    CountIntent, Event, Line, ModelIntent, RefereeIntent, RenderIntent, SessionStart, ToolIntent, Transcript,
    TranscriptError,
};
use base::clock::{Cancel, Deadline, Stop};

/// Permission for exactly one effect of the kind `E`. Only the gate makes one; whoever executes the effect takes it by
/// value. Dropping it ends the permission.
#[derive(Debug)]
#[must_use = "a permit without its effect is a reservation lost"]
pub struct Permit<E> {
    seq: u64,
    lessor: Option<Lessor>,
    effect: PhantomData<E>,
}

/// One attempt at a model call, of the agent or of a referee.
#[derive(Debug)]
pub enum ModelCall {}

/// One tool call.
#[derive(Debug)]
pub enum ToolRun {}

/// One render.
#[derive(Debug)]
pub enum Render {}

/// One question to a provider for the input tokens of a call.
#[derive(Debug)]
pub enum TokenCount {}

impl<E> Permit<E> {
    /// The transcript line that holds the intent.
    pub fn seq(&self) -> u64 {
        self.seq
    }
}

impl<E> Drop for Permit<E> {
    fn drop(&mut self) {
        if let Some(lessor) = &self.lessor {
            lessor.end();
        }
    }
}

impl RenderPermit for Permit<Render> {}

/// What the gate gives permits for.
pub trait Intent {
    /// The effect that is permitted.
    type Effect;

    /// The line that announces it.
    fn line(self) -> Event;
}

impl Intent for ModelIntent {
    type Effect = ModelCall;

    fn line(self) -> Event {
        Event::ModelIntent(self)
    }
}

impl Intent for RefereeIntent {
    type Effect = ModelCall;

    fn line(self) -> Event {
        Event::RefereeIntent(Box::new(self))
    }
}

impl Intent for CountIntent {
    type Effect = TokenCount;

    fn line(self) -> Event {
        Event::CountIntent(self)
    }
}

impl Intent for RenderIntent {
    type Effect = Render;

    fn line(self) -> Event {
        Event::RenderIntent(self)
    }
}

impl Intent for ToolIntent {
    type Effect = ToolRun;

    fn line(self) -> Event {
        Event::ToolCall(Box::new(self))
    }
}

/// The gate.
#[derive(Debug)]
pub struct Gate {
    ledger: Ledger,
    transcript: Transcript,
    lessor: Lessor,
    stop: Stop,
    fresh: Vec<Line>,
    refusal: Option<Exhausted>,
}

impl Gate {
    /// A gate over a transcript; `ledger` must be the fold of the lines that are already in it.
    pub fn new(ledger: Ledger, transcript: Transcript, lessor: Lessor, stop: Stop) -> Self {
        Self { ledger, transcript, lessor, stop, fresh: Vec::new(), refusal: None }
    }

    /// The ledger.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Session time now.
    pub fn elapsed(&self) -> Duration {
        self.transcript.elapsed()
    }

    /// The deadline of the present stage.
    pub fn deadline(&self) -> Deadline {
        let cancel = match self.ledger.stage() {
            Stage::Work => &self.stop.soft,
            Stage::WrapUp => &self.stop.hard,
        };
        self.until(self.ledger.stage_end(), cancel)
    }

    /// The deadline of the whole session.
    pub fn hard_deadline(&self) -> Deadline {
        self.until(self.ledger.budget().time(), &self.stop.hard)
    }

    fn until(&self, end: Duration, cancel: &Cancel) -> Deadline {
        let left = end.saturating_sub(self.elapsed());
        Deadline::after(self.transcript.clock(), left).with_cancel(cancel.clone())
    }

    /// Whether an effect would be admitted now.
    pub fn check(&self, want: &Amounts) -> Result<(), Exhausted> {
        self.ledger.admit(want, self.elapsed())
    }

    /// Whether a render that is expected to take `estimate` would be admitted now.
    pub fn check_render(&self, want: &Amounts, estimate: Option<Duration>) -> Result<(), Exhausted> {
        self.check(want)?;
        self.ledger.admit_time(estimate.unwrap_or_default(), self.elapsed())
    }

    /// Asks the ledger, writes the intent, gives the permit; or names the cap that refuses it.
    ///
    /// # Errors
    /// The intent could not be written, so nothing may happen.
    pub fn admit<I: Intent>(
        &mut self,
        intent: I,
    ) -> Result<Result<Permit<I::Effect>, Exhausted>, TranscriptError> {
        let intent = intent.line();
        let reserved = reserved(&intent).unwrap_or_default();
        let checked = match &intent {
            Event::ModelIntent(call) => {
                self.ledger.clone().keeping(call.keep).admit(&reserved, self.elapsed())
            }
            Event::RenderIntent(render) => {
                self.check_render(&reserved, render.estimate_ms.map(Duration::from_millis))
            }
            _ => self.check(&reserved),
        };
        if let Err(exhausted) = checked {
            self.lessor.refuse(exhausted);
            self.refusal = Some(exhausted);
            return Ok(Err(exhausted));
        }
        let (mutates, sync) = (mutates(&intent), is_synced(&intent));
        let seq = self.append(intent, sync)?;
        Ok(Ok(self.permit(seq, mutates)))
    }

    /// The permit of a tool call whose intent is the line `seq`, already written by a process that died
    /// before it could say what came of it. The resume has charged it in full; it is not charged again.
    pub fn readmit(&mut self, seq: u64, intent: &ToolIntent) -> Result<Permit<ToolRun>, Exhausted> {
        if let Err(exhausted) = self.check(&Amounts::default()) {
            self.lessor.refuse(exhausted);
            return Err(exhausted);
        }
        Ok(self.permit(seq, intent.class.mutates()))
    }

    fn permit<E>(&self, seq: u64, mutates: bool) -> Permit<E> {
        let lessor = mutates.then(|| self.lessor.clone());
        if let Some(lessor) = &lessor {
            lessor.grant();
        }
        Permit { seq, lessor, effect: PhantomData }
    }

    /// Writes an outcome or anything else that is not an effect. What a resume would find out by itself is not synced
    /// at once, but with the next line that is.
    pub fn record(&mut self, event: Event) -> Result<u64, TranscriptError> {
        let sync = is_synced(&event);
        self.append(event, sync)
    }

    /// Takes the cap of the last refusal, which may have occurred inside a tool.
    pub fn take_refusal(&mut self) -> Option<Exhausted> {
        self.refusal.take()
    }

    /// Gives the transcript its final name, with which the session exists.
    pub fn name(&mut self, path: &std::path::Path) -> Result<(), TranscriptError> {
        self.transcript.rename(path)
    }

    /// How many lines the transcript has.
    pub fn lines(&self) -> u64 {
        self.transcript.next_seq()
    }

    /// Adds the unknown time before a crash; see [`Event::Resumed`].
    pub fn assume_elapsed(&mut self, more: Duration) {
        self.transcript.assume_elapsed(more);
    }

    /// The lines written since the last call, for the session's own fold.
    pub fn drain_unfolded(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.fresh)
    }

    fn append(&mut self, event: Event, sync: bool) -> Result<u64, TranscriptError> {
        if let Event::CapFired { exhausted } = &event {
            self.lessor.refuse(*exhausted);
        }
        let line = self.transcript.append(event, sync)?;
        fold(&mut self.ledger, &line);
        let seq = line.seq;
        self.fresh.push(line);
        Ok(seq)
    }
}

/// Whether a line must be on the disk before anything else happens; not needed for what a resume would find out or
/// repeat at no cost.
fn is_synced(event: &Event) -> bool {
    match event {
        Event::ToolCall(_) => mutates(event),
        Event::BudgetReminder { .. }
        | Event::CountIntent(_)
        | Event::Note { .. }
        | Event::Render { .. }
        | Event::RenderIntent(_)
        | Event::SnapshotCreated { .. }
        | Event::ToolResult { .. } => false,
        _ => true,
    }
}

/// What an intent reserves; `None` for what is no intent.
fn reserved(event: &Event) -> Option<Amounts> {
    match event {
        Event::ModelIntent(intent) => Some(intent.reserved),
        Event::RenderIntent(intent) => Some(intent.reserved),
        Event::ToolCall(intent) => Some(intent.reserved),
        Event::RefereeIntent(intent) => Some(intent.reserved),
        _ => None,
    }
}

fn mutates(event: &Event) -> bool {
    matches!(event, Event::ToolCall(intent) if intent.class.mutates())
}

/// The ledger of a session, folded from its lines.
pub fn ledger(start: &SessionStart, lines: &[Line]) -> Ledger {
    let mut ledger = Ledger::new(start.budget.clone(), start.reserve);
    lines.iter().for_each(|line| fold(&mut ledger, line));
    ledger
}

/// Applies a line to the ledger: the only way in which a ledger changes.
pub fn fold(ledger: &mut Ledger, line: &Line) {
    if let Some(amounts) = reserved(&line.event) {
        ledger.reserve(line.seq, amounts);
        if let Event::ModelIntent(call) = &line.event {
            ledger.keep(call.keep);
        }
        // A render that was begun ahead reserved nothing; the one that joins it pays.
        if let Event::RenderIntent(RenderIntent { joins: Some(ahead), .. }) = &line.event {
            ledger.settle(*ahead, Amounts::default());
        }
        return;
    }
    match &line.event {
        Event::Attempt { intent, settled, .. } | Event::ModelReply { intent, settled, .. } => {
            ledger.settle(*intent, *settled);
        }
        Event::Referee(reply) => {
            if let Some(intent) = reply.intent {
                ledger.settle(intent, reply.settled);
            }
        }
        Event::ToolResult { intent: Some(intent), settled, .. }
        | Event::Render { intent: Some(intent), settled, .. } => ledger.settle(*intent, *settled),
        Event::Resumed { .. } => ledger.charge_open(),
        Event::Raised { budget } => ledger.raise(budget.clone()),
        Event::WrapUp { .. } => ledger.wrap_up(),
        // A session that is resumed after its end explores again.
        Event::SessionEnd(_) => ledger.close(),
        _ => {}
    }
}

/// A permit for tests of providers.
#[cfg(test)]
pub(crate) fn permit() -> Permit<ModelCall> {
    Permit { seq: 0, lessor: None, effect: PhantomData }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use engine::lease::Lease;

    use super::*;
    use crate::budget::{Budget, Cap, Reserve};
    use crate::conversation::ToolCall;
    use crate::transcript::{EffectClass, HeadState, read};
    use base::clock::ManualClock;
    use base::error::ErrorCode;
    use base::ids::Hash;
    use base::redact::Redactor;
    use darktable::render::Quality;

    fn mutation(n: u64) -> ToolIntent {
        ToolIntent {
            call: ToolCall {
                id: format!("c{n}"),
                name: "apply_primitive".into(),
                arguments: "{}".into(),
                extra: serde_json::Map::new(),
            },
            class: EffectClass::Mutate,
            reserved: Amounts { iterations: 1, ..Amounts::default() },
            before: HeadState { branch: None, commit: Hash::of(b""), state: Hash::of(b"") },
            target: None,
            engine: false,
        }
    }

    fn paid() -> ModelIntent {
        let (reserved, max_output_tokens, messages) = (Amounts::default(), 1, 1);
        ModelIntent { turn: 1, attempt: 1, reserved, max_output_tokens, messages, keep: Reserve::default() }
    }

    fn gate(dir: &std::path::Path, spec: &str) -> (Gate, Lease, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::default());
        let transcript =
            Transcript::create(&dir.join("t.jsonl"), clock.clone(), Redactor::default()).unwrap();
        let lessor = Lessor::default();
        let lease = lessor.lease();
        let ledger = Ledger::new(Budget::parse(spec).unwrap(), Reserve::default());
        (Gate::new(ledger, transcript, lessor, Stop::default()), lease, clock)
    }

    #[test]
    fn the_lease_lives_as_long_as_a_permit_and_never_past_the_cap() {
        let dir = tempfile::tempdir().unwrap();
        let (mut gate, lease, clock) = gate(dir.path(), "time=10m,iterations=2,branches=1");
        assert_eq!(lease.check().unwrap_err().code, ErrorCode::BudgetExhausted);
        let permit = gate.admit(mutation(0)).unwrap().unwrap();
        assert!(lease.check().is_ok());
        drop(permit);
        assert!(lease.check().is_err());
        drop(gate.admit(mutation(1)).unwrap().unwrap());
        match gate.admit(mutation(2)).unwrap() {
            Err(e) => assert_eq!((e.cap, e.reserved, e.limit), (Cap::Iterations, 2, 2)),
            other => panic!("{other:?}"),
        }
        let fault = lease.check().unwrap_err();
        assert_eq!(fault.details["cap"], "iterations");
        clock.advance(Duration::from_secs(700));
        assert!(gate.readmit(0, &mutation(0)).is_err(), "time is out for what a crash left too");
    }

    #[test]
    fn the_ledger_of_a_live_gate_is_the_fold_of_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let (mut gate, _, _) = gate(dir.path(), "time=10m,iterations=9,branches=1,renders=5");
        for n in 0..4 {
            let permit = gate.admit(mutation(n)).unwrap().unwrap();
            if n % 2 == 0 {
                let settled = Amounts { iterations: 1, ..Amounts::default() };
                gate.record(Event::Render {
                    intent: Some(permit.seq()),
                    state: Hash::of(b"s"),
                    long_edge: 64,
                    quality: Quality::Preview,
                    pixel_hash: None,
                    settled,
                    error: None,
                    ms: 1,
                })
                .unwrap();
            }
        }
        gate.record(Event::Resumed { assumed_ms: 0, torn: false }).unwrap();
        let mut folded = Ledger::new(gate.ledger().budget().clone(), Reserve::default());
        for line in read(&dir.path().join("t.jsonl")).unwrap().lines {
            fold(&mut folded, &line);
        }
        assert_eq!(&folded, gate.ledger());
        assert_eq!(folded.settled().iterations, 4);
        assert_eq!(folded.assumed().iterations, 2);
    }

    #[test]
    fn there_is_no_permit_for_an_effect_whose_intent_is_not_on_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let fails = |name: &str, admit: fn(&mut Gate) -> bool| {
            let folder = dir.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            let (mut gate, _, _) = gate(&folder, "lite");
            base::durable::failing::without(libc::SYS_fdatasync, move || admit(&mut gate))
        };
        assert!(fails("tool", |gate| gate.admit(mutation(0)).is_err()));
        assert!(fails("model", |gate| gate.admit(paid()).is_err()));
    }

    #[test]
    fn what_is_paid_for_is_on_the_disk_before_it_is_asked_for() {
        assert!(is_synced(&paid().line()) && is_synced(&mutation(0).line()));
        assert!(!is_synced(&Event::BudgetReminder { percent: 50 }));
    }
}
