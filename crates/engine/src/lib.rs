//! The editing engine: from words and values to a commit. A [`vocabulary`] of moves turns a name and its values into a
//! darktable edit; a [`photo`] keeps every edit as a snapshot; a [`lease`] says when a session may change one.

pub mod lease;
pub mod photo;
pub mod vocabulary;
