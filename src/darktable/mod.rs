//! darktable: its file formats, and pixels by running it as a process.

pub mod dng;
pub mod render;
pub mod srgb;
pub mod state;
