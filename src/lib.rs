//! chemigram: bounded, unattended photo-editing sessions over darktable.
//!
//! The modules stand on floors, and a floor uses only the floors below it
//! (`tests/architecture.rs` reads the `use` lines and enforces this map):
//!
//! ```text
//!  7  cli          what a person types; nothing is decided here
//!  6  eval         scenarios, metrics, and what a session is worth
//!     review       what a person sees after a session
//!     overnight    many sessions under one budget, and what became of them
//!  5  session      one bounded run: plan, agent loop, wrap-up, resume
//!     referee      the second opinion: a model that sees two pictures, or numbers alone
//!     protocol     declared states that steer a run: file, lint, machine
//!  4  tools        what the model may call: schema, handler, effect class
//!  3  photo        one photograph as a project: snapshots, refs, op-log, context
//!  2  vocabulary   moves and masks: from a name and values to an edit state
//!  1  darktable    formats and pixels: sidecars, parameters, rendering
//!     provider     wires to language models, and the offline explorer
//!     prompts      the template store
//!     metrics      numbers from pixels; the arithmetic is crates/pixels
//!  0  budget  gate  transcript  conversation  clock  ids  error  hint  redact  durable  files  seal  assets
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

pub mod assets;
pub mod budget;
pub mod cli;
pub mod clock;
pub mod conversation;
pub mod darktable;
pub mod durable;
pub mod error;
pub mod eval;
pub mod files;
pub mod gate;
pub mod hint;
pub mod ids;
pub mod metrics;
pub mod overnight;
pub mod photo;
pub mod prompts;
pub mod protocol;
pub mod provider;
pub mod redact;
pub mod referee;
pub mod review;
pub mod seal;
pub mod session;
pub mod tools;
pub mod transcript;
pub mod vocabulary;
