//! The program as a person uses it, and what holds for its sources and documents.
#![allow(
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

mod home;
#[path = "../support/mod.rs"]
mod support;
mod talks;

mod agreement;
mod api;
mod architecture;
mod bad_disk;
mod bad_input;
mod batch_verbs;
mod chat;
mod chat_cuts;
mod cli;
mod cup;
mod demo;
mod docs;
mod earlier_build;
mod eval;
mod eval_judge;
mod floods;
mod fuzz_corpus;
mod help;
mod http_proxy;
mod machines_lost;
mod machines_lost_at_random;
mod made_pages;
mod many_cells;
mod many_machines;
mod overnight;
mod pages;
mod printed;
mod prune;
mod recordings;
mod store_doctor;
mod store_errors;
mod terminals;
mod traces;
mod two_models;
mod verbs;
mod walk;
mod whole_way;
mod worker_metrics;
