//! The embedded default: no key, no network, no language model, but a deterministic policy that answers as
//! one would.
//!
//! It does the real job with the real tools and reads only what a model reads: the plan, and the JSON of tool
//! results. It holds no state. Every reply is worked out anew from the whole conversation, so that a killed
//! session goes on exactly where it stood, and the same photo, seed and darktable give the same branches.
//! It plans by iterations, branches and renders, and never looks at the time that is left, which would make
//! two runs differ.
//!
//! For each branch of the plan it reads the vector's words as axes ([`pixels::metrics::vectors`]), picks the
//! two moves whose declared axes fit best, sets each at two strengths by a line search on rendered numbers,
//! tries the two together, refines the best once (or weakens what met the direction with a warning until it
//! has none), and keeps it or abandons the branch.
//!
//! Where a protocol steers, it does in each state what the state's tools allow: confirm, explore the branch that
//! the engine has made, judge it, end. A setting that the checks or a referee turned down is not taken again.
//!
//! That is explorer-1 and its variants. The default, explorer-2, reads more of the words and makes the moves that a
//! list names ([`second`]); its formula is in `second/telling.rs`.
//!
//! # The published formula of explorer-1
//!
//! A setting is *kept* only if the asked direction was met (or nothing measurable was asked), the engine had
//! no warning about it that was not asked for, and the mean ΔE2000 against the baseline is at least 0.3.
//! Among those, the one of the greatest merit wins:
//!
//! ```text
//! merit = 2 · reach − 0.5 · min(leakage, 2) − band
//! reach = moved / aim, 0 to 1; beyond twice the aim it sinks by a quarter per further aim;
//!         where nothing measurable was asked, a quarter of that, with the mean ΔE as what moved
//! aim   = 2, 4 or 7 just-noticeable steps (gentle, plain, strong), or a mean ΔE of 3
//! band  = 0 for a mean ΔE of 1 to 8; below 1 it is 1 − ΔE, above 8 it is (ΔE − 8) / 4; at most 1;
//!         0 when the frame changed its size, because ΔE tells nothing then; 0 for black and white, which is
//!         taken to its end: no ΔE and no reach is too large then, and blacker shadows are no warning
//! score = 2.5 + merit, rounded, 1 to 4; an abandoned branch has 2
//! ```
//!
//! Clipping needs no term: it comes as a warning, and a warning is never kept. There is no 5, because a 5
//! means the photographer's own voice, and no number here hears that.

mod aim;
mod branch;
mod candidate;
mod forgetful;
mod lot;
mod memory;
mod policy;
mod search;
mod second;
mod stage;
mod talk;
#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::conversation::{Finish, Message, ToolCall, ToolSpec, Usage};
use crate::gate::{ModelCall, Permit};
use crate::provider::{Attempt, ModelInfo, ModelReply, ModelRequest, Price, Provider};

/// The one tool of a check of the connection.
pub const CHECK: &str = "say_ready";

/// How an explorer works. The others than [`Habit::Searching`] are there to be compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Habit {
    /// Explorer-2: wish by wish, as [`second`] says.
    #[default]
    Wishing,
    /// Explorer-1: as this module says.
    Searching,
    /// It forgets a third of the moves, others with each seed and each plan: a contestant with luck.
    Forgetful,
    /// It keeps the first setting of the move that fits best, if that can be kept: no search.
    FirstTry,
    /// It does the same at a quarter of the strength: worse by plan, which a comparison should find.
    Timid,
    /// It draws two moves and their strengths by lot, whatever was asked, and keeps them.
    Random,
}

impl Habit {
    const ALL: [Self; 6] =
        [Self::Wishing, Self::Searching, Self::Forgetful, Self::FirstTry, Self::Timid, Self::Random];

    /// The model's id, which changes whenever the policy does.
    fn model(self) -> &'static str {
        match self {
            Self::Wishing => "explorer-2",
            Self::Searching => "explorer-1",
            Self::Forgetful => "explorer-1-forgetful",
            Self::FirstTry => "explorer-1-first-try",
            Self::Timid => "explorer-1-timid",
            Self::Random => "explorer-1-random",
        }
    }
}

/// The offline explorer.
#[derive(Clone, Debug)]
pub struct Explorer {
    seed: u64,
    habit: Habit,
    info: ModelInfo,
}

impl Explorer {
    /// Makes an explorer. The seed decides between moves that fit a vector equally well; 0 takes them in the
    /// order of their names.
    pub fn new(seed: u64) -> Self {
        Self::with(Habit::default(), seed)
    }

    /// One with a habit of its own.
    pub fn with(habit: Habit, seed: u64) -> Self {
        let info = ModelInfo {
            provider: "explorer".into(),
            model: habit.model().into(),
            vision: false,
            context: None,
            free: true,
            price: Price { input: Some(0), output: Some(0), cache_read: Some(0), cache_write: Some(0) },
            image_tokens: 0,
            facts: BTreeMap::from([("explorer_seed".to_owned(), seed.to_string())]),
        };
        Self { seed, habit, info }
    }

    /// The one of that model id.
    pub fn named(model: &str, seed: u64) -> Option<Self> {
        Habit::ALL.into_iter().find(|habit| habit.model() == model).map(|habit| Self::with(habit, seed))
    }

    /// The next reply to a conversation.
    fn reply(&self, system: &str, tools: &[ToolSpec], messages: &[Message]) -> ModelReply {
        let brief = brief(system);
        let next = |messages: &[Message]| policy::next(messages, (brief, tools), self.seed, self.habit);
        let message = match self.habit {
            _ if talk::is_talk(messages) => talk::next(messages),
            Habit::Forgetful => next(&forgetful::remembered(messages, self.seed)),
            _ => next(messages),
        };
        let finish = match &message {
            Message::Assistant { calls, .. } if !calls.is_empty() => Finish::ToolCalls,
            _ => Finish::Stop,
        };
        ModelReply {
            raw: serde_json::to_vec(&message).unwrap_or_default(),
            message,
            finish,
            usage: Usage {
                input_fresh: Some(0),
                input_cache_read: Some(0),
                input_cache_write: Some(0),
                output: Some(0),
                reasoning: Some(0),
            },
            cost_micro_usd: Some(0),
            model_served: Some(self.info.model.clone()),
            first_byte: None,
            notes: Vec::new(),
        }
    }
}

/// What it says in a check of the connection: the word that it is asked to say.
fn said(messages: &[Message], tools: &[ToolSpec]) -> Message {
    let word = messages.iter().rev().find_map(|message| match message {
        Message::User { text, .. } => text.split('"').nth(1),
        _ => None,
    });
    let call = tools.iter().zip(word).map(|(tool, word)| {
        let fields = tool.parameters.get("required").and_then(Value::as_array).into_iter().flatten();
        let arguments: Map<String, Value> =
            fields.filter_map(|field| Some((field.as_str()?.to_owned(), word.into()))).collect();
        ToolCall {
            id: "call_1".to_owned(),
            name: tool.name.clone(),
            arguments: Value::from(arguments).to_string(),
            extra: Map::new(),
        }
    });
    Message::Assistant { text: String::new(), calls: call.collect(), opaque: Vec::new() }
}

/// The photographer's brief, which the system prompt quotes between tags; empty where there is none.
fn brief(system: &str) -> &str {
    let quoted = system.split_once("<brief>").and_then(|(_, rest)| rest.split_once("</brief>"));
    let brief = quoted.map(|(brief, _)| brief.trim()).unwrap_or_default();
    if brief.starts_with("The photographer left no brief") { "" } else { brief }
}

impl Provider for Explorer {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn attempt<'a>(&'a self, _permit: Permit<ModelCall>, request: &'a ModelRequest<'a>) -> Attempt<'a> {
        let mut reply = self.reply(request.system, request.tools, request.messages);
        if request.tools.iter().any(|tool| tool.name == CHECK) {
            (reply.message, reply.finish) = (said(request.messages, request.tools), Finish::ToolCalls);
        }
        Box::pin(std::future::ready(Ok(reply)))
    }
}
