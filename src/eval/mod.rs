//! Is this prompt better? Sessions over a frozen set of scenarios, and what may be concluded from them.
//!
//! [`stats`] is arithmetic alone: what a handful of paired differences shows, and what it cannot show.

pub mod stats;
