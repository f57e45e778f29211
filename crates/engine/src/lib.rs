//! The editing engine: from words and values to a commit. A [`vocabulary`] of moves turns a name and its values into a
//! darktable edit; a [`photo`] keeps every edit as a snapshot; a [`lease`] says when a session may change one.
#![warn(clippy::missing_errors_doc)]
#![cfg_attr(test, allow(clippy::string_slice, reason = "what is there to configure it knows no tests"))]

pub mod lease;
pub mod photo;
pub mod vocabulary;
