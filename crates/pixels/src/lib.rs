//! Pictures, and what is measured in them.
//!
//! Pictures are 8-bit sRGB, three bytes a pixel, row by row; colours are CIELAB under D65. Every sum is the same on
//! every machine. It is a crate of its own so that it is optimized in a build for tests too.

mod ciede;
pub mod distance;
pub mod lab;
pub mod metrics;
pub mod moments;
pub mod parallel;
mod picture;
pub mod planes;
pub mod resize;
pub mod srgb;
pub mod structure;
pub mod tally;

pub use picture::Picture;
