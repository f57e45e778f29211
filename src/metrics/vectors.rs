//! From a photographer's words to axes.

use crate::metrics::axes::Axis;

/// The version of the word table; it goes into manifests, since it decides what `met` means.
pub const VECTOR_TABLE_VERSION: u32 = 1;

/// The axes that a vector asks to move, the most important first, each with +1 or −1.
/// Empty when the words say nothing measurable.
pub fn vector_axes(_name: &str, _direction: &str) -> Vec<(Axis, i8)> {
    Vec::new()
}
