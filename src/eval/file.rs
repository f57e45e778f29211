//! A file that the system refused: the same for sets, scenarios, drafts and runs.

use std::io;
use std::path::{Path, PathBuf};

use crate::transcript::file_code;
use base::error::{Coded, ErrorCode};

/// A file that the system refused.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {path}")]
pub struct FileError {
    /// What was tried.
    pub doing: &'static str,
    /// The file.
    pub path: PathBuf,
    /// The system's answer.
    pub source: io::Error,
}

impl FileError {
    /// The error of `doing` something to `path`, for `map_err`.
    pub fn at(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self { doing, path, source }
    }
}

impl Coded for FileError {
    fn code(&self) -> ErrorCode {
        file_code(&self.source)
    }
}
