//! What a session's state answers.

use super::{Failed, State};
use crate::conversation::ToolCall;
use crate::session::steering::{Opinion, Steering};
use crate::tools::{self, CONFIRM_SESSION, Tool};
use crate::transcript::{EffectClass, Flag};
use base::ids::{Hash, RefName};

impl State {
    /// A flag that has not been recorded yet.
    pub fn owed(&self) -> Option<&(RefName, Flag)> {
        self.owed.front()
    }

    /// The progress of the present question to the referee.
    pub fn opinion(&self) -> &Opinion {
        self.steering.as_ref().map_or(&self.opinion, Steering::opinion)
    }

    /// Whether the protocol's present state asks for the confirmation of the plan.
    pub fn asks_to_confirm(&self) -> bool {
        let tools = self.steering.as_ref().and_then(Steering::tools);
        tools.is_some_and(|tools| tools.contains(&CONFIRM_SESSION))
    }

    /// How often this call was dispatched on the present state before.
    pub fn repeats(&self, call: &ToolCall, class: EffectClass) -> u32 {
        self.repeats.get(&self.repeat_key(call, class)).copied().unwrap_or(0)
    }

    /// Whether the call that is under way is the engine's own.
    pub fn acting(&self) -> bool {
        self.open_tool.as_ref().is_some_and(|(_, intent)| intent.engine)
    }

    /// The line of a call that was dispatched and has no result yet.
    pub fn open_call(&self, call_id: &str) -> Option<u64> {
        self.open_tool.as_ref().filter(|(_, intent)| intent.call.id == call_id).map(|(seq, _)| *seq)
    }

    /// The calls of the last reply that wait for a result.
    pub fn pending(&self) -> impl Iterator<Item = &ToolCall> {
        self.pending.iter()
    }

    /// The failed change because of which a call of the same reply is not made: it would act on another state than the
    /// model thought. Looking goes on.
    pub fn skips(&self, call: &ToolCall) -> Option<&Failed> {
        self.failed.as_ref().filter(|_| tools::find(&call.name).is_some_and(Tool::builds))
    }

    /// Of `sent` input tokens those that the provider has not read before.
    pub fn unread(&self, sent: u64) -> u64 {
        sent.saturating_sub(self.last_input.map_or(0, |(read, _)| read))
    }

    /// The tip of a branch of this session.
    pub fn tip(&self, name: &RefName) -> Option<&Hash> {
        self.branches.iter().find(|b| &b.name == name).map(|b| &b.tip)
    }
}
