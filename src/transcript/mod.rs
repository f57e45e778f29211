//! The transcript: a session's only truth. One JSON object a line, chained by hash, written before an
//! effect and after it. Everything else about a session is a fold of these lines.

mod blobs;
mod event;
mod file;

pub use event::{
    CostSource, EffectClass, Event, Flag, HeadState, Judgment, JudgmentSource, Outcome, Party, PlannedBranch,
    ProtocolStart, RefereeIntent, RefereeReply, RefereeStart, SessionEnd, SessionStart, ToolIntent,
    VariableValue, Vector,
};
pub use file::{Line, Read, Transcript, TranscriptError, file_code, file_remedy, read};
