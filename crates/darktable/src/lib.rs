//! darktable: its file formats, and pixels by running it as a process.
#![cfg_attr(test, allow(clippy::string_slice, reason = "what is there to configure it knows no tests"))]

pub mod baseline;
pub mod bayer;
pub mod blend;
pub mod cache;
pub mod checks;
pub mod complete;
pub mod dng;
pub mod dtstyle;
pub mod export;
pub mod faulty;
pub mod forms;
pub mod frame;
pub mod icc;
pub mod layout;
pub mod lensfun;
mod live;
pub mod luts;
pub mod metadata;
pub mod oneshot;
pub mod order;
pub mod params;
pub mod preload;
pub mod probe;
pub mod process;
pub mod proxy;
pub mod raw;
pub mod render;
pub mod sandbox;
pub mod scratch;
pub mod state;
pub mod tiff;
pub mod timings;
pub mod worker;
pub mod xmp;
