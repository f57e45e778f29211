//! darktable: its file formats, and pixels by running it as a process.

pub mod blend;
pub mod forms;
pub mod layout;
pub mod order;
pub mod params;
pub mod render;
pub mod state;
pub mod xmp;
