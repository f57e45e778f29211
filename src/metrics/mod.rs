//! Numbers from pixels: what a picture looks like, how far two pictures are apart, and whether an edit
//! went where it was asked to go.
//!
//! Everything is measured on 8-bit sRGB, in CIELAB under D65, the same way on every machine.

pub mod axes;
pub mod check;
mod ciede;
pub mod difference;
pub mod intensity;
pub mod lab;
pub mod likeness;
mod moments;
pub(crate) mod parallel;
pub mod planes;
mod resize;
pub mod stats;
mod structure;
#[cfg(test)]
mod synthetic;
pub mod vectors;
