//! darktable: its file formats, and pixels by running it as a process.
#![warn(clippy::missing_errors_doc)]
#![cfg_attr(test, allow(clippy::string_slice, reason = "what is there to configure it knows no tests"))]

mod asked;
pub mod baseline;
mod bayer;
pub mod blend;
pub mod cache;
pub mod checks;
pub mod complete;
pub mod dng;
pub mod dtstyle;
pub mod duplicates;
pub mod export;
#[cfg(any(test, feature = "testing"))]
mod faulty;
pub mod forms;
pub mod frame;
mod icc;
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
mod process;
pub mod proxy;
mod raw;
pub mod render;
pub mod sandbox;
mod scratch;
pub mod state;
mod tiff;
mod timings;
pub mod worker;
pub mod xmp;

/// What only tests need, of the inside of this crate.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    pub use crate::faulty::{Fault, Faulty};
    pub use crate::process::{Job, arguments, memory};
    pub use crate::scratch::{Base, History, PICTURE, RenderJob, Scratch};
}
