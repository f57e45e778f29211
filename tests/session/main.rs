//! Sessions: agent loop, budget, providers, protocols, judgments, recovery; with the real darktable where there are pictures.
#![allow(
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

#[path = "../common/permits.rs"]
mod permits;
#[path = "../common/pictures.rs"]
mod pictures;
#[path = "../support/mod.rs"]
mod support;

mod bills;
mod budget_caps;
mod cassettes;
mod chapters;
mod course;
mod dialect_errors;
mod dialect_sessions;
mod explorer;
mod golden_metrics;
mod golden_set;
mod golden_v2;
mod manual;
mod model_trial;
mod money;
mod pacing;
mod photo_recovery;
mod protocol;
mod provider_wire;
mod real_server;
mod recovery;
mod referee;
mod refusals;
mod replay;
mod session_wire;
mod steered;
mod tokens;
mod use_cases;
