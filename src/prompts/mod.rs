//! The templates a model reads: versioned, append-only, pinned by hash, rendered strictly.
//!
//! A template is `prompts/<name>_<version>.j2`; `prompts/MANIFEST.toml` names its versions, their SHA-256
//! and the context they take. A published version is never edited: a change is a new version beside it,
//! with a changelog, so that a transcript that names `mode_b/system@v1` names one text for ever.

mod authoring;
mod marks;
mod store;

pub use authoring::{AuthorError, Draft, Published, Remark};
pub use store::{Entry, PromptError, Rendered, Store, Template, Version};
