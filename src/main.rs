//! The `chemigram` program: everything is in the library, see [`chemigram::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(chemigram::cli::main())
}
