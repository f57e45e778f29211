//! What a photographer comes back to: one model, folded from a session's transcript and its photo's folder,
//! and its faces. Here is the text; a program reads the model itself as JSON.

mod heard;
pub mod html;
mod model;
mod plain;
mod text;

pub use heard::{ProtocolUsed, SecondOpinion};
pub use model::{BranchReview, CapUse, NextStep, PendingProposal, ReviewModel};
pub use plain::{count, line, plain, wrap};
pub use text::{Style, flag_words, status_lines, summary_line, text};
