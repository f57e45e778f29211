//! The contract of a renderer: what is asked, what comes back, what can go wrong.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use pixels::Picture;
use serde::{Deserialize, Serialize};

use crate::luts::LutError;
use crate::state::EditState;
use base::clock::Deadline;
use base::error::{Coded, ErrorCode};
use base::files;
use base::ids::Hash;

/// The raw file of a photo.
#[derive(Clone, Debug)]
pub struct RawFile {
    /// Where it is.
    pub path: PathBuf,
    /// SHA-256 of its bytes.
    pub sha256: Hash,
}

/// How much care a render gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quality {
    /// Fast: scaled early in the pipe (`--hq false`). For choosing.
    Preview,
    /// High quality: the whole pipe at full size, scaled last (`--hq true`). For judging and review.
    Judge,
}

impl Quality {
    /// The name used in cache keys and transcripts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Preview => "preview",
            Self::Judge => "judge",
        }
    }
}

/// One picture that is wanted.
#[derive(Clone, Debug)]
pub struct RenderRequest<'a> {
    /// The raw.
    pub raw: &'a RawFile,
    /// The edit.
    pub state: &'a EditState,
    /// The longest side in pixels; a smaller picture is never enlarged.
    pub long_edge: u32,
    /// The level.
    pub quality: Quality,
}

/// A picture that was rendered and checked.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// The pixels.
    pub picture: Arc<Picture>,
    /// [`Picture::pixel_hash`].
    pub pixel_hash: Hash,
    /// Wall time that this answer took.
    pub elapsed: Duration,
    /// Whether it came from the cache.
    pub cached: bool,
}

/// Permission for one render. Whoever keeps a budget implements it for what it hands out.
pub trait RenderPermit: Send + Sync {}

/// The permit of a render that a person started and no budget pays for.
#[derive(Debug)]
pub struct ByHand;

impl RenderPermit for ByHand {}

/// Something that turns states into pictures. Blocking; returns soon after the deadline, whatever hangs.
pub trait Renderer: Send + Sync {
    /// Renders one picture.
    ///
    /// # Errors
    /// [`RenderError`]: no picture that can be believed was made in time.
    fn render(
        &self,
        request: &RenderRequest<'_>,
        deadline: &Deadline,
        permit: &dyn RenderPermit,
    ) -> Result<Rendered, RenderError>;

    /// The version of the darktable behind it, such as `4.2.1`.
    fn darktable_version(&self) -> &str;

    /// The answer to `request`, if it is there already and costs no render.
    fn cached(&self, _request: &RenderRequest<'_>) -> Option<Rendered> {
        None
    }

    /// How long a picture of that size and level of the raw with that SHA-256 takes on this machine, if any was
    /// rendered lately.
    fn estimate(&self, _raw: &Hash, _long_edge: u32, _quality: Quality) -> Option<Duration> {
        None
    }

    /// What went wrong behind the answers since the last call, in words, and was made good.
    fn take_notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// `darktable-cli` cannot be started.
    #[error("darktable-cli was not found or cannot be started ({0})")]
    Missing(String),
    /// The installed darktable is older than what is supported.
    #[error("darktable {found} is too old: {least} is the oldest that works")]
    TooOld {
        /// What is installed.
        found: String,
        /// What is needed.
        least: &'static str,
    },
    /// darktable was to be confined, and nothing here confines it.
    #[error("darktable was not started, because no sandbox holds ({0})")]
    Unconfined(String),
    /// The raw is missing or unreadable.
    #[error("cannot read the raw {path}: {reason}")]
    Raw {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// Another file is in the raw's place.
    #[error("{path} is not the raw that was taken in: its SHA-256 is {found}, and not {expected}")]
    Replaced {
        /// The file.
        path: PathBuf,
        /// SHA-256 of the raw.
        expected: Hash,
        /// SHA-256 of what is there.
        found: Hash,
    },
    /// darktable decodes the photograph, but does not tell what cannot be done without.
    #[error("darktable does not tell the {what} of {path}")]
    Untold {
        /// The file.
        path: PathBuf,
        /// Size or orientation.
        what: &'static str,
    },
    /// darktable ended with a failure.
    #[error("darktable failed ({status}): {stderr}")]
    Failed {
        /// Exit status or signal, in words.
        status: String,
        /// The last lines it printed.
        stderr: String,
    },
    /// darktable ended well, but it dropped or misread part of the edit.
    #[error("darktable did not apply the whole edit: {line}")]
    Dropped {
        /// The line that says so.
        line: String,
    },
    /// The output is missing, damaged, of the wrong size, or black or flat without cause.
    #[error("the rendered picture cannot be trusted: {0}")]
    Untrusted(String),
    /// The state cannot be written for this darktable.
    #[error("the edit cannot be encoded: {0}")]
    Encode(String),
    /// A LUT of the edit is missing, or another one than it was.
    #[error(transparent)]
    Lut(#[from] LutError),
    /// The deadline passed.
    #[error("the render timed out after {after:?}")]
    TimedOut {
        /// How long it ran.
        after: Duration,
    },
    /// The work was cancelled.
    #[error("the render was cancelled after {after:?}")]
    Cancelled {
        /// How long it ran.
        after: Duration,
    },
    /// A file could not be read or written.
    #[error("rendering needs {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
}

impl RenderError {
    /// The error of work that ran for `after` and was ended by cancellation or else by the clock.
    pub fn interrupted(after: Duration, cancelled: bool) -> Self {
        if cancelled { Self::Cancelled { after } } else { Self::TimedOut { after } }
    }
}

impl Coded for RenderError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Raw { .. } => ErrorCode::NotFound,
            Self::Replaced { .. } => ErrorCode::VersioningError,
            Self::Encode(_) => ErrorCode::SynthesizerError,
            Self::Lut(error) => error.code(),
            Self::TimedOut { .. } | Self::Cancelled { .. } => ErrorCode::Interrupted,
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
                ErrorCode::PermissionDenied
            }
            _ => ErrorCode::DarktableError,
        }
    }

    fn halts(&self) -> bool {
        match self {
            Self::Replaced { .. } => true,
            Self::Io { source, .. } => files::is_full(source),
            _ => false,
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::Missing(_) | Self::TooOld { .. } => {
                Some("run `chemigram doctor`: it names the command that installs darktable".into())
            }
            Self::Unconfined(_) => Some(
                "run `chemigram doctor`: it names what confines darktable; or leave out --require-sandbox"
                    .into(),
            ),
            Self::Lut(error) => error.remedy(),
            Self::Raw { .. } => Some("check that the raw is still where it was ingested from".into()),
            Self::Replaced { .. } => Some(
                "put the original back, or ingest the file that is there now as a photo of its own; \
                 nothing was rendered from it"
                    .into(),
            ),
            Self::Io { source, path } if files::is_full(source) => {
                Some(format!("free some space on the disk at {}", files::disk(path).display()))
            }
            Self::Io { .. } => Some("check free space and permissions".into()),
            _ => None,
        }
    }
}
