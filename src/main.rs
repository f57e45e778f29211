//! The `chemigram` program: everything is in the library, see [`chemigram::cli`].

use std::process::ExitCode;

/// Hours of large, short-lived pictures and requests fragment the system's heap.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ExitCode::from(chemigram::cli::main())
}
