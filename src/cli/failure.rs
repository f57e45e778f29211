//! Why a command failed, as a person and as a program read it.

use schemars::JsonSchema;
use serde::Serialize;

use base::error::{Coded, ErrorCode, Fault};

/// An error as a program reads it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ErrorOutput {
    /// The error.
    pub error: ErrorBody,
}

/// What went wrong.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ErrorBody {
    /// The code: see docs/exit-codes.md.
    #[schemars(with = "String")]
    pub code: ErrorCode,
    /// The cause.
    pub message: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

/// An error on its way out: cause first, remedy if there is one. Every library error becomes one.
#[derive(Debug)]
pub struct Failure {
    fault: Fault,
    status: Option<u8>,
}

impl Failure {
    /// A failure of this program's own.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { fault: Fault::new(code, message), status: None }
    }

    pub fn input(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidInput, message)
    }

    /// A file that the system refused.
    pub fn file(doing: &str, path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::from(crate::launch::refused(doing, path, error))
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { fault: self.fault.with("remedy", remedy.into()), ..self }
    }

    /// Gives it an exit status of its own.
    #[must_use]
    pub fn status(self, status: u8) -> Self {
        Self { status: Some(status), ..self }
    }

    pub fn exit_status(&self) -> u8 {
        self.status.unwrap_or_else(|| self.fault.code.exit_status())
    }

    pub fn message(&self) -> &str {
        &self.fault.message
    }

    /// What to do about it.
    pub fn help(&self) -> Option<String> {
        Coded::remedy(&self.fault)
    }

    /// As a program reads it.
    pub fn to_output(&self) -> ErrorOutput {
        let (code, message) = (self.fault.code, self.fault.message.clone());
        ErrorOutput { error: ErrorBody { code, message, remedy: self.help() } }
    }
}

impl<E: Coded> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { fault: Fault::from(&error), status: None }
    }
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        failure.fault
    }
}
