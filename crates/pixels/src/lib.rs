//! Pictures, and what is measured in them.
//!
//! Pictures are 8-bit sRGB, three bytes per pixel, row by row; colours are CIELAB under D65. Every sum is the same on
//! every machine. It is a separate crate so that a build for tests optimizes it too.
#![warn(clippy::missing_errors_doc)]

mod ciede;
mod distance;
mod hue;
mod jpeg;
pub mod lab;
pub mod metrics;
mod moments;
pub mod outline;
pub mod overlay;
pub mod parallel;
mod picture;
pub mod planes;
pub mod segment;
pub mod sheet;
pub mod srgb;
mod structure;
mod tally;
mod text;

pub use jpeg::jpeg;
pub use picture::Picture;
