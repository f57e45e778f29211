//! darktable: its file formats, and pixels by running it as a process.

pub mod baseline;
pub mod blend;
pub mod cache;
pub mod checks;
pub mod complete;
pub mod dng;
pub mod dtstyle;
pub mod faulty;
pub mod forms;
pub mod layout;
mod live;
pub mod oneshot;
pub mod order;
pub mod params;
pub mod probe;
pub mod process;
pub mod queue;
pub mod render;
pub mod scratch;
pub mod srgb;
pub mod state;
pub mod timings;
pub mod worker;
pub mod xmp;
