//! darktable: its file formats, and pixels by running it as a process.

pub mod layout;
pub mod order;
pub mod params;
pub mod render;
pub mod state;
