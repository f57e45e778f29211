//! One tiny real call with one tool, that says what works.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use crate::budget::{Budget, Ledger, Reserve};
use crate::conversation::{Finish, Message, ToolSpec, Usage};
use crate::gate::Gate;
use crate::provider::{ModelReply, ModelRequest, Provider, ProviderFault, explorer};
use crate::session::model_call::attempt;
use crate::session::{SessionError, pricing};
use crate::tools::BlobStore;
use crate::transcript::{ModelIntent, Transcript};
use base::clock::{Stop, SystemClock};
use base::error::{ErrorCode, Fault};
use base::redact::Redactor;
use engine::lease::Lessor;

/// The longest reply that is asked for, in tokens.
const MAX_OUTPUT_TOKENS: u32 = 512;
/// What a check may spend: one call, which even a server that loads its model first answers in that time.
const BUDGET: Budget = Budget {
    time_seconds: 30 * 60,
    max_iterations: 1,
    max_branches: 1,
    max_tokens: Some(4_096),
    max_cost_micro_usd: None,
    max_renders: None,
    max_model_calls: Some(1),
};

/// The tool the model is asked to call, and the word it is asked to say.
const TOOL: &str = explorer::CHECK;
const WORD: &str = "ready";
const SYSTEM: &str = "You test a connection. Use the tool.";

/// What one tiny call has shown.
#[derive(Clone, Debug, Serialize)]
pub struct CheckReport {
    /// Whether a reply came.
    pub answered: bool,
    /// Whether the tool was called, as a call or as text.
    pub called_tool: bool,
    /// Whether its arguments were as asked.
    pub arguments_right: bool,
    /// The model that answered, as it names itself.
    pub model_served: Option<String>,
    /// Tokens, where reported.
    pub usage: Usage,
    /// Money in micro-dollars, where the provider reports it.
    pub cost_micro_usd: Option<u64>,
    /// Time to the first byte, for providers on a wire.
    pub first_byte: Option<Duration>,
    /// Time to the whole reply.
    pub took: Duration,
    /// What is worth knowing, one sentence each.
    pub notes: Vec<String>,
    /// Why no reply came.
    #[serde(skip)]
    pub fault: Option<ProviderFault>,
}

impl CheckReport {
    /// Whether a session can run on it.
    pub fn passed(&self) -> bool {
        self.answered && self.called_tool && self.arguments_right
    }
}

/// Makes one call through a gate of its own: the reply or the failure, and how long it took. It costs what such a call
/// costs, and is not repeated.
///
/// # Errors
/// The transcript of the call, which is kept while it lasts, cannot be written; or nothing came in half an hour.
pub(super) async fn once(
    provider: &dyn Provider,
    redactor: &Redactor,
    (system, tools): (&str, &[ToolSpec]),
    text: String,
) -> Result<(Result<ModelReply, ProviderFault>, Duration), SessionError> {
    let info = provider.info();
    let messages = [Message::User { text, images: Vec::new() }];
    let folder = tempfile::tempdir().map_err(SessionError::Blob)?;
    let blobs = BlobStore::new(folder.path().join("blobs"), redactor.clone());
    let path = folder.path().join("transcript.jsonl");
    let transcript = Transcript::create(&path, Arc::new(SystemClock), redactor.clone())?;
    let ledger = Ledger::new(BUDGET, Reserve::default());
    let mut gate = Gate::new(ledger, transcript, Lessor::default(), Stop::default());
    let sent = pricing::tokens(info, system, tools, &messages);
    let bound = pricing::bound(info, gate.ledger(), sent, MAX_OUTPUT_TOKENS);
    let intent = ModelIntent {
        turn: 1,
        attempt: 1,
        reserved: bound.reserved,
        max_output_tokens: bound.max_output_tokens,
        messages: 1,
        keep: Reserve::default(),
    };
    let permit = gate.admit(intent)?.map_err(Fault::from)?;
    let intent = permit.seq();
    let request = ModelRequest {
        model: &info.model,
        system,
        tools,
        messages: &messages,
        earlier: 0,
        max_output_tokens: bound.max_output_tokens,
        session: "check",
        seed: Some(1),
        blobs: &blobs,
        time_left: Some(gate.deadline().remaining()),
        on_progress: &|_, _| {},
    };
    let deadline = gate.deadline();
    let (came, charge) =
        attempt(provider, (permit, &bound), &request, &gate, &blobs, || deadline.expired()).await?;
    let took = Duration::from_millis(charge.ms);
    let reply = match came {
        Some(Ok(reply)) => reply,
        Some(Err(fault)) => {
            gate.record(charge.failure(intent, &fault, fault.to_string(), None))?;
            return Ok((Err(fault), took));
        }
        None => {
            let message = format!("{}: no answer in {} minutes", info.provider, BUDGET.time_seconds / 60);
            gate.record(charge.timed_out(intent, message.clone()))?;
            return Err(Fault::new(ErrorCode::ProviderError, message).into());
        }
    };
    gate.record(charge.reply(intent, reply.clone()))?;
    Ok((Ok(reply), took))
}

/// Makes one tiny call with one tool, through a gate of its own. It costs what such a call costs, and is not repeated.
///
/// # Errors
/// The transcript of the call, which is kept while it lasts, cannot be written.
pub async fn check(provider: &dyn Provider, redactor: &Redactor) -> Result<CheckReport, SessionError> {
    let info = provider.info();
    let tools = [ToolSpec {
        name: TOOL.to_owned(),
        description: "Says that the connection works.".to_owned(),
        parameters: json!({
            "type": "object",
            "properties": {"word": {"type": "string", "description": "The word to say."}},
            "required": ["word"],
            "additionalProperties": false,
        }),
    }];
    let text = format!("Call the tool `{TOOL}` with the word \"{WORD}\". Say nothing else.");
    let (came, took) = once(provider, redactor, (SYSTEM, &tools), text).await?;
    let mut report = CheckReport {
        answered: false,
        called_tool: false,
        arguments_right: false,
        model_served: None,
        usage: Usage::default(),
        cost_micro_usd: None,
        first_byte: None,
        took,
        notes: Vec::new(),
        fault: None,
    };
    let reply = match came {
        Ok(reply) => reply,
        Err(fault) => {
            report.usage = fault.usage;
            report.fault = Some(fault);
            return Ok(report);
        }
    };
    report.answered = true;
    if let Message::Assistant { calls, .. } = &reply.message
        && let Some(call) = calls.iter().find(|call| call.name == TOOL)
    {
        report.called_tool = true;
        let said = serde_json::from_str::<Value>(&call.arguments).ok();
        report.arguments_right = said.is_some_and(|a| a.get("word").and_then(Value::as_str) == Some(WORD));
    }
    report.notes = reply.notes;
    let mut note = |text: String| report.notes.push(text);
    if !report.called_tool {
        note("it answered in text instead of calling the tool".to_owned());
    } else if !report.arguments_right {
        note("it called the tool with other arguments than asked".to_owned());
    }
    if reply.finish == Finish::Length {
        note("the reply was longer than 512 tokens".to_owned());
    }
    if reply.usage.total().is_none() && !info.free {
        note("it reports no token counts; token and cost limits use upper bounds".to_owned());
    }
    if let Some(served) = reply.model_served.as_ref().filter(|served| **served != info.model) {
        note(format!("asked for {}, answered by {served}", info.model));
    }
    report.model_served = reply.model_served;
    report.usage = reply.usage;
    report.cost_micro_usd = reply.cost_micro_usd;
    report.first_byte = reply.first_byte;
    Ok(report)
}
