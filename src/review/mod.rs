//! What a photographer comes back to: one model, folded from a session's transcript and its photo's folder,
//! and its faces. Here is the text; a program reads the model itself as JSON.

mod group;
mod heard;
mod model;
pub mod page;
pub mod picks;
mod plain;
pub mod preferences;
#[cfg(test)]
pub(crate) mod rig;
#[cfg(test)]
mod rows;
mod session_page;
mod text;

pub(crate) use group::shot;
pub use group::{Group, Remark, Shot};
pub use heard::{ProtocolUsed, SecondOpinion, WentOn};
pub use model::{BranchReview, CapUse, NextStep, PendingProposal, ReviewModel};
pub use plain::{count, line, plain, wrap};
pub use session_page::{review_page, session_page};
pub use text::{Style, flag_words, status_lines, summary_line, text};
