//! What darktable makes of edits, held against pixels; and darktable itself, as a process that may fail.
#![allow(
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

#[path = "../support/mod.rs"]
mod support;

mod any_photograph;
mod closer_look;
mod demo_raw;
mod duplicates;
mod export;
mod formats;
mod framing;
mod grey_card;
mod import;
mod lens;
mod looks;
mod luts;
mod marks;
mod masks;
mod measuring;
mod objects;
mod orientations;
mod preload;
mod proxy;
mod regions;
mod render;
mod rendering;
mod show_mask;
mod vocabulary;
mod warps;
mod worker;
