//! chemigram: bounded, unattended photo-editing sessions over darktable.
//!
//! This package is the host: it runs the loop, and everything that a person types. Below it stand four crates:
//! `base` (ids, errors, files), `pixels` (pictures and their numbers), `darktable` (its formats and its process) and
//! `engine` (the vocabulary, and a photo with its versions). Within the package a module uses only those of its own
//! line and of the lines below (`tests/program/architecture.rs`):
//!
//! ```text
//!  cli          what a person types; nothing is decided here
//!  eval         scenarios, metrics, and what a session is worth
//!  overnight    many sessions under one budget, and what became of them
//!  review       what a person sees after a session
//!  batch        the scheduler: bounded workers, and the ledger of a batch
//!  launch       from a request to a session that can run
//!  session      one bounded run: plan, agent loop, wrap-up, resume
//!  referee      the second opinion: a model that sees two pictures, or numbers alone
//!  protocol     declared states that steer a run: file, lint, machine
//!  tools        what the model may call: schema, handler, effect class
//!  provider     wires to language models, and the offline explorer
//!  prompts      the template store
//!  traces       sessions as traces of OpenTelemetry
//!  render_queue renders that are begun before anybody asks for them
//!  budget  gate  transcript  conversation
//! ```
//!
//! Three invariants hold the program together:
//!
//! 1. No effect without a permit ([`gate::Permit`] has one constructor, inside the gate).
//! 2. No permit without a transcript line (the gate writes it first).
//! 3. No session state that is not a fold of the transcript (resuming is that fold).
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::string_slice, reason = "what is there to configure it knows no tests"))]

mod batch;
pub mod budget;
pub mod cli;
pub mod conversation;
pub mod eval;
pub mod gate;
pub mod launch;
pub mod overnight;
pub mod prompts;
pub mod protocol;
pub mod provider;
pub mod referee;
pub mod render_queue;
pub mod review;
pub mod session;
pub mod tools;
pub mod traces;
pub mod transcript;
