//! The loop: ask the state what is next, pass the gate, do it, write down what came of it.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::budget::{self, Amounts, Ledger, Stage};
use crate::conversation::{ToolCall, ToolResult, ToolSpec};
use crate::gate::{Gate, Permit, ToolRun};
use crate::provider::Provider;
pub use crate::session::model_call::Patience;
use crate::session::next::{Effect, StopRequest};
use crate::session::opinion::Referee;
use crate::session::state::{Phase, REPEATS, State};
use crate::session::{SessionError, listing, wording};
use crate::tools::{self, Answer, BlobStore, Engine, Target, Tool, ToolContext, View};
use crate::traces::Live;
use crate::transcript::{Event, Line, Outcome, Party, SessionEnd, ToolIntent};
use base::clock::Stop;
use base::error::{ErrorCode, Fault, caught};
use base::ids::{Hash, RefName};
use darktable::render::{Quality, Rendered};
use darktable::state::EditState;
use engine::photo::Writer;

/// Who watches a session: the command line, or a test.
pub trait Host: Send + Sync {
    /// A line was written.
    fn line(&self, _line: &Line, _state: &State, _ledger: &Ledger) {}
    /// Something takes a while.
    fn busy(&self, _what: &str) {}
    /// The model is writing: letters so far, hidden reasoning included, and the text of the reply so far.
    fn streaming(&self, _amount: usize, _text: &str) {}
    /// The agent asks; `None` when nobody is there.
    fn answer(&self, _question: &str) -> Option<String> {
        None
    }
}

/// Where a session pauses.
#[derive(Debug)]
pub enum Turn {
    /// The photographer is to speak.
    Person,
    /// It is over: its closing line.
    Over(Box<SessionEnd>),
}

/// A host that watches nothing.
pub struct Unwatched;
impl Host for Unwatched {}

/// A session that can run.
pub struct Session {
    /// What tools work with.
    pub engine: Engine,
    /// The photo, locked, with the session's authority.
    pub photo: Writer,
    /// The gate.
    pub gate: Gate,
    /// The fold.
    pub state: State,
    /// The model.
    pub provider: Arc<dyn Provider>,
    /// The model that goes on if this one fails for good.
    pub fallback: Option<Arc<dyn Provider>>,
    /// Who gives second opinions.
    pub referee: Referee,
    /// Pictures and bodies.
    pub blobs: BlobStore,
    /// The session's folder.
    pub folder: PathBuf,
    /// The system prompt.
    pub system: String,
    /// The tools, frozen.
    pub tools: Vec<ToolSpec>,
    /// Cancelled when a person asks to stop.
    pub stop: Stop,
    /// What it does when its provider cannot be reached.
    pub patience: Patience,
    /// Who is sent its spans.
    pub traces: Option<Live>,
}

impl Session {
    /// Runs to the end. What it returns is also the transcript's last line.
    pub async fn run(&mut self, host: &dyn Host) -> Result<SessionEnd, SessionError> {
        match self.advance(host).await? {
            Turn::Over(end) => Ok(*end),
            Turn::Person => {
                let id = self.state.start.session.short();
                Err(Fault::new(
                    ErrorCode::StateError,
                    "it is a conversation, which waits for the photographer",
                )
                .with("remedy", format!("go on with `chemigram chat --resume {id}`"))
                .into())
            }
        }
    }

    /// Runs until the photographer is to speak, in a conversation, or to the end.
    pub async fn advance(&mut self, host: &dyn Host) -> Result<Turn, SessionError> {
        loop {
            // Without this a session that never waits could not be cancelled between two effects.
            tokio::task::yield_now().await;
            self.fold(host);
            match self.state.next(self.gate.ledger(), self.gate.elapsed(), self.halt()) {
                Effect::Model { turn, attempt, pause } => self.call_model(turn, attempt, pause, host).await?,
                Effect::Tool(call) => self.answer(&call, host)?,
                Effect::Skip(call, failed) => self.refuse(&call, &wording::skipped(&failed))?,
                Effect::Redo { seq, intent } => self.redo(seq, &intent, host)?,
                Effect::Nudge(text) => self.record(Event::Nudge { text })?,
                Effect::Carry(command) => self.carry(*command, host).await?,
                Effect::ReportBudget => self.report_budget()?,
                Effect::Opinion { branch, commit } => self.second_opinion(branch, &commit, host).await?,
                Effect::Flag(branch, flag) => self.record(Event::Flagged { branch, flag })?,
                Effect::WrapUp { cap, reason } => {
                    if let Some(exhausted) = cap.filter(|_| self.state.cap.is_none()) {
                        self.record(Event::CapFired { exhausted })?;
                    }
                    // A protocol brings its own text.
                    let free = self.state.steering.is_none();
                    let text = if free {
                        wording::wrap_up(&self.state, &self.tools, reason.as_str())
                    } else {
                        String::new()
                    };
                    self.record(Event::WrapUp { reason, text })?;
                }
                Effect::Finish { reason, .. } if self.falls_back(&reason)? => {}
                Effect::Finish { outcome, reason } => self.finish(outcome, reason, host)?,
                Effect::OpenBranch(name) => self.open_branch(&name, host)?,
                Effect::CapFired(exhausted) => self.record(Event::CapFired { exhausted })?,
                Effect::Interrupt(call) => self.refuse(&call, &wording::interrupted())?,
                Effect::Await => {
                    // It waits because its model gave up.
                    let why = self.state.given_up().map(str::to_owned);
                    if !why.map_or(Ok(false), |why| self.falls_back(&why))? {
                        return Ok(Turn::Person);
                    }
                }
                Effect::Done => {
                    let end = self.state.end.clone().ok_or(SessionError::NotEnded)?;
                    return Ok(Turn::Over(Box::new(end)));
                }
            }
        }
    }

    /// Applies the new lines to the state: the only way in which it changes.
    pub(super) fn fold(&mut self, host: &dyn Host) {
        for line in self.gate.drain_unfolded() {
            self.state.fold(&line);
            if let Some(traces) = &mut self.traces {
                traces.line(&line);
            }
            host.line(&line, &self.state, self.gate.ledger());
        }
    }

    pub(super) fn record(&mut self, event: Event) -> Result<(), SessionError> {
        self.gate.record(event)?;
        Ok(())
    }

    /// What a person requested, by a signal or by `mode-b stop` from another terminal.
    pub(super) fn halt(&self) -> StopRequest {
        match listing::asked_to_stop(&self.folder) {
            StopRequest::None => {}
            StopRequest::WrapUp => self.stop.soft.cancel(),
            StopRequest::Now => self.stop.hard.cancel(),
        }
        match (self.stop.hard.is_cancelled(), self.stop.soft.is_cancelled()) {
            (true, _) => StopRequest::Now,
            (false, true) => StopRequest::WrapUp,
            (false, false) => StopRequest::None,
        }
    }

    /// Answers one call: refuses it, or runs it under a permit.
    fn answer(&mut self, call: &ToolCall, host: &dyn Host) -> Result<(), SessionError> {
        if let Some(fault) = self.state.steering.as_ref().and_then(|steering| steering.refusal(call)) {
            return self.refuse(call, &fault);
        }
        let (tool, arguments) = match self.vet(call) {
            Ok(vetted) => vetted,
            Err(fault) => return self.refuse(call, &fault),
        };
        let intent = self.intent(tool, call, &arguments, false);
        let reserved = intent.reserved;
        let permit = match self.gate.admit(intent)? {
            Ok(permit) => permit,
            Err(exhausted) => {
                if self.state.cap.is_none() {
                    self.record(Event::CapFired { exhausted })?;
                }
                return self.refuse(call, &exhausted.into());
            }
        };
        self.fold(host);
        self.run_tool(tool, call, &arguments, reserved, permit, host)
    }

    /// The intent of a call.
    pub(super) fn intent(&self, tool: &Tool, call: &ToolCall, arguments: &Value, engine: bool) -> ToolIntent {
        let mut reserved = tool.wants();
        if self.gate.ledger().stage() == Stage::WrapUp {
            reserved.iterations = 0;
        }
        ToolIntent {
            call: call.clone(),
            class: tool.class,
            reserved,
            before: self.state.head.clone(),
            target: self.target(tool, arguments),
            engine,
        }
    }

    /// Runs a call again that a crash interrupted: the branch is reset to where it was before the call, so the same
    /// call makes the same commit.
    fn redo(&mut self, seq: u64, intent: &ToolIntent, host: &dyn Host) -> Result<(), SessionError> {
        let permit = match self.gate.readmit(seq, intent) {
            Ok(permit) => permit,
            Err(exhausted) => {
                return self.close_call(seq, &intent.call, &exhausted.into());
            }
        };
        let Some(tool) = tools::find(&intent.call.name) else {
            return self.close_call(
                seq,
                &intent.call,
                &Fault::new(ErrorCode::Interrupted, "the tool is gone"),
            );
        };
        let arguments = match tool.check(&intent.call) {
            Ok(arguments) => arguments,
            Err(fault) => return self.close_call(seq, &intent.call, &fault),
        };
        if let Some((branch, commit)) = &intent.target {
            self.photo.restore_ref(branch, commit.as_ref())?;
        }
        self.run_tool(tool, &intent.call, &arguments, Amounts::default(), permit, host)
    }

    /// Runs a call under its permit and records its result.
    pub(super) fn run_tool(
        &mut self,
        tool: &Tool,
        call: &ToolCall,
        arguments: &Value,
        reserved: Amounts,
        permit: Permit<ToolRun>,
        host: &dyn Host,
    ) -> Result<(), SessionError> {
        host.busy(tool.name);
        let seq = permit.seq();
        let started = self.gate.elapsed();
        let busy = |what: &str| host.busy(&format!("rendering ({what})"));
        let run = || tool.run(&mut self.context(seq, &busy), arguments, permit);
        let mut result = caught(run).flatten();
        self.fold(host);
        if let Err(fault) = &result
            && fault.halts
        {
            // The call stays open, so that it runs again when the session is resumed.
            return Err(fault.clone().into());
        }
        if let Some(question) = self.state.question.clone()
            && let Some(answer) = host.answer(&question)
        {
            let concludes = question == tools::SHALL_WE_END && wording::is_yes(&answer);
            self.record(Event::Clarification { question, answer: Some(answer.clone()) })?;
            if concludes {
                self.record(Event::Concluded { by: Party::Person })?;
            }
            result = Ok(json!({ "answer": answer }).into());
        }
        let settled = match &result {
            Ok(_) => reserved,
            // A call that changed nothing because its arguments were wrong costs no iteration.
            Err(fault) if fault.recoverable => Amounts::default(),
            Err(_) => Amounts { branches: 0, ..reserved },
        };
        if let Err(fault) = &result
            && fault.code == ErrorCode::BudgetExhausted
            && self.state.cap.is_none()
            && let Some(exhausted) = self.gate.take_refusal()
        {
            self.record(Event::CapFired { exhausted })?;
        }
        let ms = tools::millis(self.gate.elapsed().saturating_sub(started));
        let moved = result.as_ref().is_ok_and(|answer| answer.head.is_some());
        self.close(Some(seq), call, result, settled, ms)?;
        self.fold(host);
        if moved { self.look_ahead() } else { Ok(()) }
    }

    /// Starts the render that the model will probably ask for next, unless its last reply still has a change pending.
    fn look_ahead(&mut self) -> Result<(), SessionError> {
        let changes = |call: &ToolCall| tools::find(&call.name).is_some_and(|tool| tool.class.mutates());
        if self.state.phase != Phase::Running || self.state.pending().any(changes) {
            return Ok(());
        }
        Ok(self.context(0, &|_| {}).render_ahead()?)
    }

    /// Records the result of a call; every call has exactly one.
    fn close(
        &mut self,
        intent: Option<u64>,
        call: &ToolCall,
        result: Result<Answer, Fault>,
        settled: Amounts,
        ms: u64,
    ) -> Result<(), SessionError> {
        let mut figures = serde_json::Map::new();
        let (body, images, head, code) = match result {
            Ok(mut answer) => {
                figures = answer.take_figures();
                (json!({ "ok": true, "data": answer.data }), answer.images, answer.head, None)
            }
            Err(fault) => (json!({ "ok": false, "error": fault }), Vec::new(), None, Some(fault.code)),
        };
        let mut text = body.to_string();
        let told = intent.is_none() || !self.state.acting();
        let repeats = tools::find(&call.name).map_or(0, |t| self.state.repeats(call, t.class));
        if intent.is_some() && repeats >= REPEATS[0] {
            text.push_str(
                "\nYou have made this very call on this very state before; a further one will be refused.",
            );
        }
        // The model is only told about its own calls.
        let due = wording::due_reminder(&self.state, self.gate.ledger(), self.gate.elapsed());
        if let Some(percent) = due.filter(|_| told) {
            self.record(Event::BudgetReminder { percent })?;
            text.push('\n');
            text.push_str(budget::reminder(percent));
        }
        text.push('\n');
        text.push_str(&self.gate.ledger().line(self.gate.elapsed()));
        // What a person or the engine calls is not sent to the model.
        let images = if self.provider.info().vision || !told { images } else { Vec::new() };
        let result = ToolResult {
            call_id: call.id.clone(),
            name: call.name.clone(),
            text,
            images,
            is_error: code.is_some(),
            figures,
        };
        let head = head.unwrap_or_else(|| self.state.head.clone());
        self.record(Event::ToolResult { intent, result, code, settled, head, ms })
    }

    fn refuse(&mut self, call: &ToolCall, fault: &Fault) -> Result<(), SessionError> {
        self.close(None, call, Err(fault.clone()), Amounts::default(), 0)
    }

    fn close_call(&mut self, seq: u64, call: &ToolCall, fault: &Fault) -> Result<(), SessionError> {
        self.close(Some(seq), call, Err(fault.clone()), Amounts::default(), 0)
    }

    /// Checks a call against everything but the budget.
    fn vet(&mut self, call: &ToolCall) -> Result<(&'static Tool, Value), Fault> {
        let offered = |tool: &&Tool| {
            tools::DISPENSABLE.contains(&tool.name) || self.tools.iter().any(|spec| spec.name == tool.name)
        };
        let Some(tool) = tools::find(&call.name).filter(offered) else {
            let names: Vec<&str> = self.tools.iter().map(|t| t.name.as_str()).collect();
            let message = format!("there is no tool `{}`; the tools are: {}", call.name, names.join(", "));
            return Err(Fault::new(ErrorCode::NotFound, message));
        };
        let phases = tool.phases;
        if let Some(exhausted) = self.state.cap.filter(|_| !phases.closing) {
            return Err(exhausted.into());
        }
        if self.state.phase == Phase::WrappingUp && !phases.closing {
            return Err(Fault::new(
                ErrorCode::BudgetExhausted,
                "exploration is over: only judging and ending are left",
            )
            .fatal());
        }
        let planned = self.state.phase == Phase::Planned;
        // An attempt may end before the confirmation, unless its purpose is to confirm.
        let done = tool.name == tools::ATTEMPT_DONE && !self.state.asks_to_confirm();
        if planned && !phases.planned && !done {
            let example = tools::find(tools::CONFIRM_SESSION).map_or("", |t| t.example);
            return Err(Fault::new(
                ErrorCode::SessionNotConfirmed,
                "confirm the plan with confirm_session first",
            )
            .with("example", format!("confirm_session {example}")));
        }
        if !planned && !phases.running {
            return Err(Fault::new(ErrorCode::StateError, "the plan is confirmed already: go on with it"));
        }
        let arguments = tool.check(call)?;
        let repeats = self.state.repeats(call, tool.class);
        if repeats + 1 >= REPEATS[1] && !tool.repeatable {
            let message = "this very call was made on this very state before, and nothing has changed since: its result is in the conversation; do something else";
            return Err(Fault::new(ErrorCode::StateError, message));
        }
        Ok((tool, arguments))
    }

    /// The branch that a call will write to, and its present tip.
    fn target(&self, tool: &Tool, arguments: &Value) -> Option<(RefName, Option<Hash>)> {
        let named = |field: &str| arguments.get(field)?.as_str()?.parse::<RefName>().ok();
        let current = || self.state.head.branch.clone();
        let name = match tool.target {
            Target::Nothing => return None,
            Target::Current => current()?,
            Target::Named(field) => named(field)?,
            Target::NamedOrCurrent(field) => named(field).or_else(current)?,
        };
        let tip = self.state.tip(&name).cloned();
        // A branch that exists but is not the session's own is never reset by it.
        let foreign = tip.is_none() && self.photo.workspace().resolve(&format!("refs/heads/{name}")).is_ok();
        (!foreign).then_some((name, tip))
    }

    /// What a tool handler works with, as of now.
    pub(super) fn context<'a>(&'a mut self, call: u64, on_render: &'a dyn Fn(&str)) -> ToolContext<'a> {
        ToolContext {
            view: self.view(),
            engine: &self.engine,
            photo: &mut self.photo,
            gate: &mut self.gate,
            blobs: &self.blobs,
            folder: &self.folder,
            call,
            on_render,
        }
    }

    /// Renders a state outside any tool, under a permit of its own.
    pub(super) fn picture(&mut self, state: &EditState, quality: Quality) -> Result<Rendered, Fault> {
        let edge = self.state.start.preview_edge;
        Ok(self.context(0, &|_| {}).render(state, edge, quality)?)
    }

    fn view(&self) -> View {
        View {
            start: self.state.start.clone(),
            phase: self.state.phase,
            head: self.state.head.clone(),
            branches: self.state.branches.clone(),
            proposals: self.state.proposals,
            ahead: self.state.ahead.clone(),
            acting: self.state.acting(),
            goes_on: self.state.goes_on,
            declined: self.state.declined.clone(),
        }
    }

    /// Closes the session: every call has its result, every branch its judgment, and the last line is written.
    pub(super) fn finish(
        &mut self,
        outcome: Outcome,
        reason: String,
        host: &dyn Host,
    ) -> Result<(), SessionError> {
        host.busy("closing the session");
        for call in self.state.pending().cloned().collect::<Vec<_>>() {
            let fault = Fault::new(ErrorCode::Interrupted, "the session ended before this call").fatal();
            let intent = self.state.open_call(&call.id);
            self.close(intent, &call, Err(fault), Amounts::default(), 0)?;
            self.fold(host);
        }
        let busy = |what: &str| host.busy(&format!("rendering ({what})"));
        while let Some((branch, _)) = self.state.wants_opinion() {
            self.record_no_opinion(Some(branch), "the session ended before the referee was asked")?;
            self.fold(host);
        }
        while let Some((branch, flag)) = self.state.owed().cloned() {
            self.record(Event::Flagged { branch, flag })?;
            self.fold(host);
        }
        if outcome != Outcome::NeedsClarification {
            for (name, tip) in self.state.unjudged() {
                let judgment = tools::default_judgment(&mut self.context(0, &busy), &name, &tip);
                self.record(Event::Judgment(Box::new(judgment)))?;
                self.fold(host);
            }
        }
        self.context(0, &busy).close_ahead(|_| true, "nobody asked for it")?;
        self.fold(host);
        let ledger = self.gate.ledger();
        let end = SessionEnd {
            outcome,
            cap: self.state.cap,
            summary: self.state.ending.as_ref().map(|e| e.0.clone()).unwrap_or_default(),
            spent: ledger.settled(),
            assumed: ledger.assumed(),
            wall_ms: tools::millis(self.gate.elapsed()),
            model_ms: self.state.model_ms,
            render_ms: self.state.render_ms,
            lines: self.gate.lines(),
            reason,
        };
        self.record(Event::SessionEnd(Box::new(end)))?;
        self.fold(host);
        Ok(())
    }
}

#[cfg(test)]
impl Session {
    /// [`Self::advance`] on a runtime of its own.
    pub(crate) fn advance_alone(&mut self, host: &dyn Host) -> Result<Turn, SessionError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(self.advance(host))
    }

    /// [`Self::run`] on a runtime of its own.
    pub(crate) fn run_alone(&mut self, host: &dyn Host) -> Result<SessionEnd, SessionError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(self.run(host))
    }
}
