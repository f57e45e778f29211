//! What a protocol's machine asks for, done: each under a permit where it is an effect, and each a line.

use serde_json::{Value, json};

use crate::conversation::ToolCall;
use crate::protocol::checks::{Check, Measured, Numbers, Report, numbers};
use crate::protocol::machine::{Command, Event as Input};
use crate::session::SessionError;
use crate::session::driver::{Host, Session};
use crate::session::opinion::Inquiry;
use crate::session::state::Phase;
use crate::session::{steering, wording};
use crate::tools::{self, NoPicture, ToolContext};
use crate::transcript::Event;
use base::error::{Coded as _, ErrorCode, Fault};
use base::ids::RefName;
use darktable::render::{Quality, RenderError};

impl Session {
    /// Carries out one command.
    pub(super) async fn carry(&mut self, command: Command, host: &dyn Host) -> Result<(), SessionError> {
        match command {
            Command::Work(brief) => {
                let text = wording::brief(&brief, &self.state);
                self.record(Event::Brief {
                    state: brief.state,
                    attempt: brief.attempt,
                    attempts: brief.attempts,
                    visit: brief.visit,
                    text,
                })
            }
            Command::Act { tool, args } => self.act(&tool, &args, host),
            Command::Rollback { to } => {
                let branch = to.branch.as_ref().map(RefName::as_str);
                self.act(tools::ROLLBACK, &json!({ "commit": to.commit, "branch": branch }), host)
            }
            Command::Measure { checks } => self.measure(&checks, host),
            Command::AskReferee { criteria, legal } => {
                self.consult(&Inquiry::Criteria { criteria, legal }, host).await
            }
            Command::Compare { against, orders, criteria } => {
                self.consult(&Inquiry::Pair { against, orders, criteria }, host).await
            }
            Command::AskPerson { state } => {
                let question = wording::may_stand(&state);
                let answer = host.answer(&question);
                self.record(Event::Clarification { question, answer })
            }
            Command::Remark { flag } => match self.state.head.branch.clone() {
                Some(branch) => self.record(Event::Flagged { branch, flag: steering::flag(flag) }),
                None => self.broken("a remark without a branch".into()),
            },
            Command::Note { text } => self.record(Event::Note { text, details: serde_json::Map::new() }),
            // The fold handles the first two, and `State::next` the third.
            Command::RunTool { .. } | Command::Refuse { .. } | Command::Finish(_) => {
                self.broken("a command that nobody carries out".into())
            }
        }
    }

    /// Records an event for the machine that no other line holds.
    fn happened(&mut self, event: &Input, text: String) -> Result<(), SessionError> {
        let state = self.state.steering.as_ref().map_or("", |s| s.state_name()).to_owned();
        let event = serde_json::to_value(event)
            .map_err(|e| Fault::new(ErrorCode::StateError, format!("an event cannot be written: {e}")))?;
        self.record(Event::Protocol { state, event, text })
    }

    fn broken(&mut self, message: String) -> Result<(), SessionError> {
        self.happened(&Input::Broken { message }, String::new())
    }

    /// A tool that the engine itself calls.
    fn act(&mut self, name: &str, args: &Value, host: &dyn Host) -> Result<(), SessionError> {
        let call = ToolCall {
            id: format!("engine_{}", self.gate.lines()),
            name: name.to_owned(),
            arguments: args.to_string(),
            extra: serde_json::Map::new(),
        };
        let failed = |message: String| match name {
            tools::ROLLBACK => Input::Broken { message },
            _ => Input::Failed { message },
        };
        let Some(tool) = tools::find(name) else {
            return self.happened(&failed(format!("there is no tool `{name}`")), String::new());
        };
        let arguments = match tool.check(&call) {
            Ok(arguments) => arguments,
            Err(fault) => return self.happened(&failed(fault.to_string()), String::new()),
        };
        let intent = self.intent(tool, &call, &arguments, true);
        let reserved = intent.reserved;
        match self.gate.admit(intent)? {
            Ok(permit) => {
                self.fold(host);
                self.run_tool(tool, &call, &arguments, reserved, permit, host)
            }
            Err(exhausted) if self.state.phase != Phase::WrappingUp => {
                self.record(Event::CapFired { exhausted })
            }
            Err(exhausted) => self.happened(&failed(exhausted.to_string()), String::new()),
        }
    }

    /// Renders and measures what the checks need.
    fn measure(&mut self, checks: &[Check], host: &dyn Host) -> Result<(), SessionError> {
        let busy = |what: &str| host.busy(&format!("rendering ({what})"));
        let entry = self.state.steering.as_ref().map(|s| s.run().entry().commit.to_string());
        let found = measured(&mut self.context(0, &busy), entry.as_deref());
        self.fold(host);
        match found {
            Ok(measured) => {
                let report = Report::of(checks, &measured);
                let text = match (report.passed(), report.misses()) {
                    (true, misses) if misses.is_empty() => "passed".to_owned(),
                    (true, misses) => format!("passed, with a warning: {misses}"),
                    (false, misses) => format!("failed: {misses}"),
                };
                self.happened(&Input::Measured(Box::new(measured)), text)
            }
            Err(fault) if fault.halts => Err(fault.into()),
            Err(fault) if fault.code == ErrorCode::BudgetExhausted => {
                match self.gate.take_refusal().filter(|_| self.state.phase != Phase::WrappingUp) {
                    Some(exhausted) => self.record(Event::CapFired { exhausted }),
                    None => self.happened(&Input::Failed { message: fault.to_string() }, String::new()),
                }
            }
            Err(fault) => self.happened(&Input::Failed { message: fault.to_string() }, String::new()),
        }
    }

    /// Records for the machine what is left of the budget.
    pub(super) fn report_budget(&mut self) -> Result<(), SessionError> {
        let (ledger, elapsed) = (self.gate.ledger(), self.gate.elapsed());
        let (budget, spent) = (ledger.budget(), ledger.settled());
        let rows = [
            ("time_seconds", Some(budget.time_seconds), elapsed.as_secs()),
            ("iterations", Some(budget.max_iterations), spent.iterations),
            ("branches", Some(budget.max_branches), spent.branches),
            ("model_calls", Some(budget.max_model_calls()), spent.model_calls),
            ("tokens", budget.max_tokens, spent.tokens),
            ("renders", budget.max_renders, spent.renders),
        ];
        let mut left: Numbers = rows
            .into_iter()
            .filter_map(|(name, limit, used)| Some((name.to_owned(), limit?.saturating_sub(used) as f64)))
            .collect();
        if let Some(limit) = budget.max_cost_micro_usd {
            left.insert("cost_usd".into(), limit.saturating_sub(spent.cost_micro_usd) as f64 / 1e6);
        }
        self.happened(&Input::Left { left }, String::new())
    }
}

/// The measurements of the present picture. That darktable could not make it, or not with the whole edit, is a
/// finding; an error says nothing about the edit.
fn measured(context: &mut ToolContext<'_>, entry: Option<&str>) -> Result<Measured, Fault> {
    let (edge, quality) = (context.view.start.preview_edge, Quality::Preview);
    let here = context.place(None)?;
    let rendered = match context.render(&here.state, edge, quality) {
        Ok(rendered) => rendered,
        Err(NoPicture::Failed(error)) if error.code() == ErrorCode::DarktableError => {
            let drift = matches!(error, RenderError::Dropped { .. });
            return Ok(Measured { rendered: drift, drift, ..Measured::default() });
        }
        Err(error) => return Err(error.into()),
    };
    let stats = context.stats(&rendered);
    let branch = context.view.head.branch.clone();
    let versus = context.versus_baseline((branch.as_ref(), &here.commit), &rendered, edge, quality)?;
    let parent = context.place(entry.or(Some("baseline")))?;
    let before = context.render(&parent.state, edge, quality)?;
    let moved = context.difference(&before, &rendered)?;
    Ok(Measured {
        rendered: true,
        drift: false,
        same_as_parent: before.pixel_hash == rendered.pixel_hash,
        direction: Some(versus.local().direction),
        now: numbers(&stats, None),
        baseline: Some(numbers(&versus.base_stats, Some(&versus.difference))),
        parent: Some(numbers(&context.stats(&before), Some(&moved))),
    })
}
