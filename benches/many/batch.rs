//! The store's own code, of which the package shows nothing to others.
#![allow(dead_code, unused_imports, reason = "it is measured in part, and its tests are not run")]

#[path = "../../src/batch/changes.rs"]
pub mod changes;
#[path = "../../src/batch/nats/mod.rs"]
pub mod nats;
