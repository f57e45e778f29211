//! What the tests of several crates share: photos, homes, a darktable at hand, and the arithmetic on pixels, which is
//! why it is a crate and optimized.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::new_without_default,
    clippy::panic,
    clippy::string_slice,
    clippy::unwrap_used,
    missing_docs,
    reason = "a failure in a helper is the failure of its test"
)]

pub mod browser;
pub mod chart;
pub mod chat_stub;
pub mod chroma;
pub mod contract;
pub mod demo;
pub mod folder;
pub mod frames;
pub mod home;
pub mod kept;
pub mod nats;
pub mod objects;
pub mod photo_files;
pub mod photos;
