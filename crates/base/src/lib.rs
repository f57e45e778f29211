//! What every part of chemigram uses: ids, coded errors, time, and files that survive a crash. Nothing here knows
//! of photos or models.
#![warn(clippy::missing_errors_doc)]
#![cfg_attr(test, allow(clippy::string_slice, reason = "what is there to configure it knows no tests"))]

pub mod assets;
pub mod clock;
pub mod durable;
pub mod error;
pub mod files;
pub mod hint;
pub mod ids;
pub mod redact;
pub mod seal;
pub mod stamp;
