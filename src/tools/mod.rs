//! What the model may call. A tool is its schema, its effect class and its handler, in one table.
//!
//! The schema comes from the Rust type of the arguments; the class decides gate, lease and retry safety; the columns
//! of a row say when it may be called, what it counts and which branch it writes to.
//! Handlers run under a permit that the session got for them; a handler that needs a picture asks the gate
//! for a permit of its own.

mod args;
mod balance;
pub mod blobs;
mod claims;
mod context;
mod earlier;
mod edit;
mod judge;
mod learn;
mod lifecycle;
mod look;
pub(crate) mod measure;
mod measures;
mod moves;
mod pictures;
mod placed;
mod reply;
mod show;
mod sought;
pub(crate) mod strengths;
mod table;
mod talk;

use std::collections::BTreeMap;

use serde_json::Value;

pub use blobs::BlobStore;
pub use claims::verify_claim;
pub use context::{Answer, BranchView, Engine, History, Phase, RenderKey, ToolContext, View, millis};
pub use judge::{Measured, baseline_preview, default_judgment};
pub use measures::Measures;
pub use moves::moves_of;
pub use pictures::NoPicture;
pub use placed::{taken, words};
pub use table::{STEERED, TALK, TOOLS};
pub use talk::{EXPORTS, SHALL_WE_END, proposed};

use crate::budget::Amounts;
use crate::conversation::{ToolCall, ToolSpec};
use crate::gate::{Permit, ToolRun};
use crate::transcript::EffectClass;
use base::error::{ErrorCode, Fault};

type Handler = fn(&mut ToolContext<'_>, &Value) -> Result<Answer, Fault>;

/// One tool.
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// What it is for, as the model reads it.
    pub description: &'static str,
    /// What it does to the world.
    pub class: EffectClass,
    /// When it may be called.
    pub phases: Phases,
    /// What a call counts.
    pub cost: Cost,
    /// The branch that it writes to.
    pub target: Target,
    /// Whether the same call on the same state may have another answer; of every other tool, who repeats a call is
    /// told so.
    pub repeatable: bool,
    /// Legal arguments, shown with every argument error.
    pub example: &'static str,
    schema: fn() -> Value,
    check: fn(&Value) -> Result<(), Fault>,
    run: Handler,
}

/// The phases of a session in which a tool may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phases {
    /// While the plan waits for its confirmation.
    pub planned: bool,
    /// While the session explores.
    pub running: bool,
    /// In the wrap-up.
    pub closing: bool,
}

/// What a call counts besides time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Nothing.
    Free,
    /// An iteration.
    Iteration,
    /// An iteration and a branch.
    Branch,
}

/// The branch that a call writes to. Where a crash cuts the call, the branch is put back before the call is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// None.
    Nothing,
    /// The one where the session is.
    Current,
    /// The one that this argument names.
    Named(&'static str),
    /// The one that this argument names, or else where the session is.
    NamedOrCurrent(&'static str),
}

/// Standing on another branch.
const CHECKOUT: &str = "checkout";
/// Tools that are left out of a session's list where it cannot need them. A call is answered nevertheless, for prompts
/// that name them.
pub const DISPENSABLE: [&str; 8] =
    ["bind_layers", "checkout", "diff", "log", "read_session_transcript", "save_mask", "snapshot", "tag"];

/// The model's word that it has understood the plan.
pub const CONFIRM_SESSION: &str = "confirm_session";
/// The model's word that the session is over.
pub const END_SESSION: &str = "end_mode_b_session";
/// The model's word that an attempt is done.
pub const ATTEMPT_DONE: &str = "attempt_done";
/// The model's word that a conversation is over.
pub const END_CONVERSATION: &str = "end_conversation";
/// Taking the last edit of a conversation back.
pub const UNDO: &str = "undo";
/// Tools that a conversation has no use for: they belong to plans and judgments.
const NOT_FOR_TALK: [&str; 9] = [
    "ask_clarification",
    "branch",
    "checkout",
    "confirm_session",
    "end_mode_b_session",
    "mode_b_status",
    "record_judgment",
    "snapshot",
    "tag",
];
/// The engine's way to take an attempt back.
pub const ROLLBACK: &str = "rollback";

impl Tool {
    /// What a call of it may spend, before it is known.
    pub fn wants(&self) -> Amounts {
        Amounts {
            iterations: u64::from(self.cost != Cost::Free),
            branches: u64::from(self.cost == Cost::Branch),
            ..Amounts::default()
        }
    }

    /// Whether calls after it in the same reply build on it: it changes the edit, where the session stands, or how far
    /// it is. Looking does not, nor do notes for next time.
    pub fn builds(&self) -> bool {
        let notes = ["log_vocabulary_gap", "propose_notes_update", "propose_taste_update"];
        self.name == CHECKOUT || self.class.mutates() && !notes.contains(&self.name)
    }

    /// Whether the arguments of a call are well-formed; the fault has the field path and a legal example.
    pub fn check(&self, call: &ToolCall) -> Result<Value, Fault> {
        let value = args::object(self.name, &call.arguments).and_then(|v| (self.check)(&v).map(|()| v));
        value.map_err(|fault| fault.with("example", self.example))
    }

    /// Runs a call. The permit is used up by it.
    pub fn run(
        &self,
        context: &mut ToolContext<'_>,
        arguments: &Value,
        permit: Permit<ToolRun>,
    ) -> Result<Answer, Fault> {
        let answer = (self.run)(context, arguments);
        drop(permit);
        answer.map_err(|fault| match fault.code {
            ErrorCode::InvalidInput if !fault.details.contains_key("example") => {
                fault.with("example", self.example)
            }
            _ => fault,
        })
    }

    /// The tool as a model sees it.
    pub fn spec(&self) -> ToolSpec {
        ToolSpec { name: self.name.into(), description: self.description.into(), parameters: (self.schema)() }
    }
}

/// The tool of that name.
pub fn find(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().chain(STEERED).chain(TALK).find(|t| t.name == name)
}

/// The tools, with a field of `record_judgment` for the answer to each criterion that has a name.
#[must_use]
pub fn asking(mut specs: Vec<ToolSpec>, criteria: &BTreeMap<String, String>) -> Vec<ToolSpec> {
    let judge = specs.iter_mut().find(|spec| spec.name == "record_judgment");
    if let Some(spec) = judge.filter(|_| !criteria.is_empty())
        && let Some(fields) = spec.parameters.get_mut("properties").and_then(Value::as_object_mut)
    {
        let names: Vec<&String> = criteria.keys().collect();
        let answers: serde_json::Map<String, Value> =
            criteria.keys().map(|name| (name.clone(), serde_json::json!({ "type": "string" }))).collect();
        let schema = serde_json::json!({
            "type": "object", "properties": answers, "required": names, "description": "An answer to each criterion.",
        });
        fields.insert("criteria".into(), schema);
    }
    specs
}

/// Takes from a list the tools that leave something for next time.
pub fn keep_to_itself(specs: &mut Vec<ToolSpec>) {
    specs.retain(|spec| !matches!(spec.name.as_str(), "propose_notes_update" | "propose_taste_update"));
}

/// Takes from a list all tools but those of these names, if there are any.
pub fn keep_only(specs: &mut Vec<ToolSpec>, names: Option<&[String]>) {
    if let Some(names) = names {
        specs.retain(|spec| names.contains(&spec.name));
    }
}

/// The specs of all tools that the model has in a session that a protocol steers, in order.
pub fn steered_specs() -> Vec<ToolSpec> {
    let mut specs = specs();
    specs.extend(find(ATTEMPT_DONE).map(Tool::spec));
    specs.sort_by(|a, b| a.name.cmp(&b.name));
    specs
}

/// The specs of the tools of a conversation, in order.
pub fn talk_specs() -> Vec<ToolSpec> {
    let mut specs = specs_without(&NOT_FOR_TALK);
    specs.extend(TALK.iter().map(Tool::spec));
    specs.sort_by(|a, b| a.name.cmp(&b.name));
    specs
}

/// The specs of all tools, in order.
pub fn specs() -> Vec<ToolSpec> {
    specs_without(&[])
}

/// The specs of the tools of a session that has no use for some of [`DISPENSABLE`], in order.
pub fn specs_without(unneeded: &[&str]) -> Vec<ToolSpec> {
    TOOLS.iter().filter(|tool| !unneeded.contains(&tool.name)).map(Tool::spec).collect()
}
