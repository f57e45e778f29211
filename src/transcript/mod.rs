//! The transcript: a session's only truth. One JSON object a line, chained by hash, written before an
//! effect and after it. Everything else about a session is a fold of these lines.

mod event;
mod file;
mod header;
mod intent;
mod outcome;

pub use event::{
    ChapterCause, CostByKind, CostSource, Event, FaultClass, Flag, Judgment, JudgmentSource, Party,
    RefereeReply, WrapUpReason,
};
pub use file::{Line, Mirror, Read, Transcript, TranscriptError, file_code, file_remedy, read};
pub use header::{
    Mode, ModelName, PlannedBranch, ProtocolStart, RefereeStart, SessionStart, VariableValue, Vector,
};
pub use intent::{CountIntent, EffectClass, HeadState, ModelIntent, RefereeIntent, RenderIntent, ToolIntent};
pub use outcome::{NOTHING_USEFUL, Outcome, SessionEnd};
