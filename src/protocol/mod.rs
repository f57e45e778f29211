//! Protocols: declared states that steer a session, instead of a model's own sense of order.
//!
//! A file becomes a [`Protocol`] by [`load::load`], which says what is wrong with it ([`finding`]); a
//! [`machine::Run`] is the fold of what happened, and says what to do next. Nothing here does any I/O but
//! [`store`], which finds files by name. `docs/protocols.md` is the reference of the format.

pub mod build;
pub mod checks;
mod compat;
pub mod finding;
mod graph;
pub mod load;
pub mod machine;
pub mod model;
mod prose;
pub mod rules;
pub mod schema;
pub mod source;
pub mod store;
pub mod template;
pub mod variables;
pub mod written;

pub use finding::{Code, Dialect, Finding, Severity};
pub use load::{Loaded, Options, load};
pub use model::Protocol;

use base::error::{Coded, ErrorCode};

/// Why there is no protocol.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// It has errors.
    #[error("the protocol `{name}` has errors: {}", first(findings))]
    Refused {
        /// Its name.
        name: String,
        /// Everything that was found, warnings too.
        findings: Vec<Finding>,
    },
    /// There is none of that name.
    #[error("there is no protocol `{name}`{hint}")]
    Unknown {
        /// The name.
        name: String,
        /// What may have been meant.
        hint: String,
    },
}

/// The first error, and how many more there are.
fn first(findings: &[Finding]) -> String {
    let mut errors = findings.iter().filter(|f| f.severity == Severity::Error);
    let first = errors.next().map(ToString::to_string).unwrap_or_default();
    match errors.count() {
        0 => first,
        more => format!("{first} (and {more} more)"),
    }
}

impl Coded for ProtocolError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Refused { .. } => ErrorCode::InvalidInput,
            Self::Unknown { .. } => ErrorCode::NotFound,
        }
    }

    fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Refused { .. } => "`chemigram protocol check FILE` lists everything".into(),
            Self::Unknown { .. } => "`chemigram protocol list` shows what there is".into(),
        })
    }
}
