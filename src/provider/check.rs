//! One tiny real call with one tool, that says what works.

use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};

use super::{Blobs, Finish, Message, ModelRequest, Provider, ProviderFault, ToolSpec, Usage};
use base::ids::Hash;

/// The tool the model is asked to call, and the word it is asked to say.
const TOOL: &str = "say_ready";
const WORD: &str = "ready";

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

struct NoBlobs;

impl Blobs for NoBlobs {
    fn bytes(&self, _: &Hash) -> std::io::Result<Vec<u8>> {
        Err(std::io::ErrorKind::NotFound.into())
    }
}

/// Makes one tiny call with one tool. It costs what such a call costs, and is not repeated.
pub async fn check(provider: &dyn Provider) -> CheckReport {
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
    let started = Instant::now();
    let result = provider
        .attempt(&ModelRequest {
            model: &provider.info().model,
            system: "You test a connection. Use the tool.",
            tools: &tools,
            messages: &[Message::User { text, images: Vec::new() }],
            max_output_tokens: 512,
            session: "check",
            seed: Some(1),
            blobs: &NoBlobs,
            on_progress: &|_| {},
        })
        .await;
    let mut report = CheckReport {
        answered: false,
        called_tool: false,
        arguments_right: false,
        model_served: None,
        usage: Usage::default(),
        cost_micro_usd: None,
        first_byte: None,
        took: started.elapsed(),
        notes: Vec::new(),
        fault: None,
    };
    let reply = match result {
        Ok(reply) => reply,
        Err(fault) => {
            report.usage = fault.usage;
            report.fault = Some(fault);
            return report;
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
    if reply.usage.total().is_none() && !provider.info().free {
        note("it reports no token counts; token and cost limits use upper bounds".to_owned());
    }
    if let Some(served) = reply.model_served.as_ref().filter(|served| **served != provider.info().model) {
        note(format!("asked for {}, answered by {served}", provider.info().model));
    }
    report.model_served = reply.model_served;
    report.usage = reply.usage;
    report.cost_micro_usd = reply.cost_micro_usd;
    report.first_byte = reply.first_byte;
    report
}
