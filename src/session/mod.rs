//! One bounded run on one photo.

pub mod state;
pub mod wording;
