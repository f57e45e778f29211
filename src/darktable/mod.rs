//! darktable: its file formats, and pixels by running it as a process.

pub mod baseline;
pub mod cache;
pub mod checks;
pub mod dng;
pub mod faulty;
pub mod oneshot;
pub mod probe;
pub mod process;
pub mod render;
pub mod scratch;
pub mod srgb;
pub mod state;
