//! The error codes that every face of the program shares, and the form in which a model reads an error.
//!
//! Each module has its own `thiserror` enum; what unites them is [`Coded`]: a stable code, which the
//! binary maps to an exit status and the tools put into [`Fault`].

use serde::{Deserialize, Serialize};

/// A stable, documented error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ErrorCode {
    /// An argument, file or value is not usable as given.
    InvalidInput,
    /// A photo, ref, object, move or file does not exist.
    NotFound,
    /// The request does not fit the present state (a second session, a photo already ingested…).
    StateError,
    /// A commit, ref or object cannot be resolved, or is damaged.
    VersioningError,
    /// darktable is missing, failed, or produced something that cannot be trusted.
    DarktableError,
    /// A mask cannot be built as asked.
    MaskingError,
    /// A move cannot be encoded for the installed darktable.
    SynthesizerError,
    /// The caller may not do this (a session that wants to move `main`…), or the system refused access.
    PermissionDenied,
    /// A cap has fired; nothing that costs is dispatched any more.
    BudgetExhausted,
    /// A mutating tool was called before the plan was confirmed.
    SessionNotConfirmed,
    /// A call was not made because one before it in the same reply failed.
    SkippedAfterError,
    /// The language-model provider failed, refused or is not configured.
    ProviderError,
    /// The work was cut by a signal, a kill or a deadline.
    Interrupted,
}

impl ErrorCode {
    /// The process exit status for this code (3 to 12; 2 is reserved for usage, so bad input shares it).
    pub fn exit_status(self) -> u8 {
        match self {
            Self::InvalidInput => 2,
            Self::NotFound => 3,
            Self::StateError | Self::SkippedAfterError => 4,
            Self::VersioningError => 5,
            Self::DarktableError => 6,
            Self::MaskingError => 7,
            Self::SynthesizerError => 8,
            Self::PermissionDenied => 9,
            Self::BudgetExhausted => 10,
            Self::SessionNotConfirmed => 11,
            Self::ProviderError => 12,
            Self::Interrupted => 25,
        }
    }
}

/// An error that knows its code, and the remedy for a person, if there is one.
pub trait Coded: std::error::Error {
    /// The stable code.
    fn code(&self) -> ErrorCode;
    /// One sentence that says what to do about it.
    fn remedy(&self) -> Option<String> {
        None
    }
    /// Whether nobody but a person can help, and whatever is tried before then is wasted: a disk that is full,
    /// another file in the raw's place.
    fn halts(&self) -> bool {
        false
    }
}

/// An error as a model reads it: short, with the field at fault and a legal example where there is one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// The stable code.
    pub code: ErrorCode,
    /// What went wrong, in one or two sentences.
    pub message: String,
    /// Machine-readable particulars (`field`, `expected`, `example`, `cap`…).
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub details: serde_json::Map<String, serde_json::Value>,
    /// Whether another call with other arguments may succeed.
    pub recoverable: bool,
    /// [`Coded::halts`]: a session ends with it, and makes the call again when it is taken up.
    #[serde(skip)]
    pub halts: bool,
}

impl Fault {
    /// Makes a recoverable fault without details.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let details = serde_json::Map::new();
        Self { code, message: message.into(), details, recoverable: true, halts: false }
    }

    /// Adds one detail.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<serde_json::Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }

    /// Marks the fault as final: no other arguments will help.
    #[must_use]
    pub fn fatal(mut self) -> Self {
        self.recoverable = false;
        self
    }
}

impl<E: Coded> From<&E> for Fault {
    fn from(error: &E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let words = cause.to_string();
            // Some messages quote their cause already.
            if !message.ends_with(&words) {
                message.push_str(": ");
                message.push_str(&words);
            }
            source = cause.source();
        }
        let halts = error.halts();
        let fault = Self { recoverable: !halts, halts, ..Self::new(error.code(), message) };
        match error.remedy() {
            Some(remedy) => fault.with("remedy", remedy),
            None => fault,
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

impl Coded for Fault {
    fn code(&self) -> ErrorCode {
        self.code
    }

    fn remedy(&self) -> Option<String> {
        self.details.get("remedy").and_then(|v| v.as_str()).map(str::to_owned)
    }

    fn halts(&self) -> bool {
        self.halts
    }
}

/// Does one job; a panic in it is an error of this job alone, which says what went wrong.
///
/// # Errors
/// `STATE_ERROR` when the job panicked.
pub fn caught<T>(job: impl FnOnce() -> T) -> Result<T, Fault> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).map_err(|payload| {
        let said = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let said = said.or_else(|| payload.downcast_ref::<String>().cloned());
        let message = format!("a defect of chemigram: {}", said.as_deref().unwrap_or("it panicked"));
        Fault::new(ErrorCode::StateError, message)
            .with("remedy", "please report it, with this message")
            .fatal()
    })
}
