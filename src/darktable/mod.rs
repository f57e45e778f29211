//! darktable: its file formats, and pixels by running it as a process.

pub mod render;
pub mod state;
