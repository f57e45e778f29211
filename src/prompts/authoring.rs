//! Writing prompts of one's own: a draft of the next version, what it changes, its publication, and the proof
//! that nothing published was touched since.
//!
//! Everything is written to the user's own folder. A draft is a template that no manifest names; publishing
//! writes its hash into the folder's `MANIFEST.toml`, and from then on another text under that version is
//! refused.

use std::path::{Path, PathBuf};

use serde::Serialize;
use similar::TextDiff;
use toml_edit::{DocumentMut, Item, Table, value};

use crate::prompts::store::{PromptError, Store, path};
use base::assets::Origin;
use base::durable;
use base::error::{Coded, ErrorCode};
use base::files;
use base::ids::Hash;

/// Why nothing was drafted or published.
#[derive(Debug, thiserror::Error)]
pub enum AuthorError {
    /// The prompt itself.
    #[error(transparent)]
    Prompt(#[from] PromptError),
    /// There is such a file already.
    #[error("{path} already exists")]
    Exists {
        /// The file.
        path: String,
    },
    /// The version is inside the program.
    #[error("`{name}@{version}` is built into the program")]
    Shipped {
        /// The prompt.
        name: String,
        /// The version.
        version: String,
    },
    /// Nobody has said what the version changes.
    #[error("`{name}@{version}` has no changelog")]
    NoChangelog {
        /// The prompt.
        name: String,
        /// The version.
        version: String,
        /// Where it belongs.
        path: String,
    },
    /// The folder cannot be written or read.
    #[error("cannot write {path}: {source}")]
    File {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The folder's manifest is not TOML.
    #[error("the prompt manifest cannot be used: {0}")]
    Manifest(String),
}

impl Coded for AuthorError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Prompt(error) => error.code(),
            Self::Exists { .. } | Self::Shipped { .. } | Self::NoChangelog { .. } => ErrorCode::StateError,
            Self::File { source, .. } => crate::transcript::file_code(source),
            Self::Manifest(_) => ErrorCode::InvalidInput,
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::Prompt(error) => error.remedy(),
            Self::Exists { .. } => Some("edit that one, or remove it".into()),
            Self::Shipped { .. } => Some("start your own version with `chemigram prompts new NAME`".into()),
            Self::NoChangelog { path, .. } => Some(format!("describe in {path} what changed and why")),
            Self::File { source, .. } => Some(crate::transcript::file_remedy(source).into()),
            Self::Manifest(_) => None,
        }
    }
}

/// A draft that was begun.
#[derive(Clone, Debug, Serialize)]
pub struct Draft {
    /// The prompt.
    pub name: String,
    /// The new version.
    pub version: String,
    /// The version that it was copied from.
    pub from: String,
    /// The template.
    pub template: PathBuf,
    /// Its changelog.
    pub changelog: PathBuf,
}

/// A version that was published.
#[derive(Clone, Debug, Serialize)]
pub struct Published {
    /// The prompt.
    pub name: String,
    /// The version.
    pub version: String,
    /// SHA-256 of the template.
    pub template_sha256: Hash,
    /// Whether it is used from now on where no version is named.
    pub active: bool,
    /// Whether it had been published before.
    pub unchanged: bool,
}

/// What was found about one version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remark {
    /// The prompt.
    pub name: String,
    /// The version.
    pub version: String,
    /// Whether it must not be.
    pub wrong: bool,
    /// What it is.
    pub text: String,
}

impl Store {
    /// Begins the next version of a prompt in `folder` as a copy of `from`, or of the active one.
    pub fn draft(&self, name: &str, from: Option<&str>, folder: &Path) -> Result<Draft, AuthorError> {
        let source = self.show(name, from)?;
        let newest = self.versions(name).last().and_then(|(version, _)| number(version)).unwrap_or_default();
        let version = format!("v{}", newest + 1);
        let template = folder.join(path(name, &version));
        let changelog = changelog(folder, name, &version);
        let words = stub(name, &version, &source.version);
        for (file, text) in [(&changelog, words), (&template, source.source)] {
            durable::publish(file, text.as_bytes(), false).map_err(|error| match error.kind() {
                std::io::ErrorKind::AlreadyExists => AuthorError::Exists { path: file.display().to_string() },
                _ => unwritable(file, error),
            })?;
        }
        Ok(Draft { name: name.to_owned(), version, from: source.version, template, changelog })
    }

    /// Writes the hash of a version in `folder` into the folder's manifest; with `activate`, the version is used
    /// from then on where none is named.
    pub fn publish(
        &self,
        name: &str,
        version: &str,
        activate: bool,
        folder: &Path,
    ) -> Result<Published, AuthorError> {
        let template = self.show(name, Some(version))?;
        if template.origin == Origin::Embedded {
            return Err(AuthorError::Shipped { name: name.to_owned(), version: version.to_owned() });
        }
        let written = changelog(folder, name, version);
        let said = files::read_text(&written, files::LARGEST_TEXT).unwrap_or_default();
        let unsaid =
            self.versions(name).iter().any(|(from, _)| said.trim() == stub(name, version, from).trim());
        if unsaid || said.trim().is_empty() {
            let (name, version) = (name.to_owned(), version.to_owned());
            return Err(AuthorError::NoChangelog { name, version, path: written.display().to_string() });
        }
        let file = folder.join("MANIFEST.toml");
        let text = match files::read_text(&file, files::LARGEST_TEXT) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => HEAD.to_owned(),
            Err(error) => return Err(unwritable(&file, error)),
        };
        let mut manifest: DocumentMut = text.parse().map_err(|e| AuthorError::Manifest(format!("{e}")))?;
        let entry = self.list().into_iter().find(|entry| entry.name == name);
        let active = match &entry {
            Some(entry) if !activate => entry.active.clone(),
            _ => version.to_owned(),
        };
        let unreadable = || AuthorError::Manifest(format!("`prompts.\"{name}\"` is not a table"));
        let prompts = manifest.entry("prompts").or_insert(Item::Table(implicit())).as_table_mut();
        let prompt = prompts.ok_or_else(unreadable)?.entry(name).or_insert(Item::Table(Table::new()));
        let prompt = prompt.as_table_mut().ok_or_else(unreadable)?;
        prompt.insert("active", value(active.as_str()));
        let versions = prompt.entry("versions").or_insert(Item::Table(Table::new())).as_table_mut();
        let versions = versions.ok_or_else(unreadable)?;
        let known = versions.insert(version, value(template.template_sha256.as_str())).is_some();
        durable::publish(&file, manifest.to_string().as_bytes(), true).map_err(|e| unwritable(&file, e))?;
        Ok(Published {
            name: name.to_owned(),
            version: version.to_owned(),
            template_sha256: template.template_sha256,
            active: active == version,
            unchanged: known,
        })
    }

    /// What one version changes of another, line by line, with three lines around; empty when nothing.
    pub fn diff(&self, name: &str, from: &str, to: &str) -> Result<String, PromptError> {
        let (old, new) = (self.show(name, Some(from))?, self.show(name, Some(to))?);
        let (before, after) = (format!("{name}@{from}"), format!("{name}@{to}"));
        Ok(TextDiff::from_lines(&old.source, &new.source)
            .unified_diff()
            .context_radius(3)
            .header(&before, &after)
            .to_string())
    }

    /// Proves that every published version is the text that was published and has a changelog, and says which
    /// are drafts.
    pub fn verify(&self) -> Vec<Remark> {
        let mut remarks = Vec::new();
        for entry in self.list() {
            let mut remark = |version: &str, wrong: bool, text: String| {
                remarks.push(Remark { name: entry.name.clone(), version: version.to_owned(), wrong, text });
            };
            for version in self.published(&entry.name) {
                if let Err(error) = self.show(&entry.name, Some(&version)) {
                    remark(&version, true, error.to_string());
                } else if !self.has(&format!("{}_{version}.changelog.md", entry.name)) {
                    remark(&version, true, "it has no changelog".into());
                }
            }
            for found in &entry.versions {
                let shipped = self.shipped(&entry.name, &found.version);
                if found.user && shipped.as_ref().is_some_and(|hash| *hash != found.template_sha256.as_str())
                {
                    remark(&found.version, true, "your own file replaces the published text".into());
                } else if found.user && !self.published(&entry.name).contains(&found.version) {
                    remark(&found.version, false, "a draft; publish it with `prompts publish`".into());
                }
            }
            if !entry.versions.iter().any(|found| found.version == entry.active) {
                remark(&entry.active, true, "it is the active version, but it does not exist".into());
            }
        }
        remarks
    }
}

const HEAD: &str =
    "# Prompts of your own. Append only: a version's text never changes once its hash is here.\n";

/// The number of a version: 7 of `v7`.
fn number(version: &str) -> Option<u32> {
    version.strip_prefix('v')?.parse().ok()
}

fn changelog(folder: &Path, name: &str, version: &str) -> PathBuf {
    folder.join(format!("{name}_{version}.changelog.md"))
}

fn stub(name: &str, version: &str, from: &str) -> String {
    format!(
        "# {name} {version}\n\nFrom {from}.\n\n- **What changed.**\n- **Why**, and which scenarios should show it.\n"
    )
}

/// A table that is named only by those within it.
fn implicit() -> Table {
    let mut table = Table::new();
    table.set_implicit(true);
    table
}

fn unwritable(path: &Path, source: std::io::Error) -> AuthorError {
    AuthorError::File { path: path.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::assets::Overlay;

    const NAME: &str = "mode_b/system";

    fn store(folder: &Path) -> Store {
        Store::new(Overlay::prompts(Some(folder.to_owned()))).unwrap()
    }

    /// The next version of the standing orders, drafted and worked on.
    fn worked(folder: &Path) -> (Store, String) {
        let draft = store(folder).draft(NAME, None, folder).unwrap();
        let text = std::fs::read_to_string(&draft.template).unwrap();
        std::fs::write(&draft.template, text.replace("apprentice", "assistant")).unwrap();
        (store(folder), draft.version)
    }

    #[test]
    fn a_draft_is_the_next_version_and_never_overwrites_one() {
        let dir = tempfile::tempdir().unwrap();
        let (store, version) = worked(dir.path());
        let next = number(&version).unwrap() + 1;
        assert_eq!(store.draft(NAME, Some("v1"), dir.path()).unwrap().version, format!("v{next}"));
        let other = changelog(dir.path(), NAME, &format!("v{}", next + 1));
        std::fs::write(&other, "Notes of mine.").unwrap();
        assert!(matches!(store.draft(NAME, None, dir.path()), Err(AuthorError::Exists { .. })));
        assert_eq!(store.versions(NAME).last().unwrap().0, format!("v{next}"), "nothing was begun");
        let unknown = store.draft("mode_b/sytem", None, dir.path()).unwrap_err();
        assert!(unknown.to_string().contains("did you mean"), "{unknown}");
    }

    #[test]
    fn what_changed_is_shown_line_by_line() {
        let dir = tempfile::tempdir().unwrap();
        let (store, version) = worked(dir.path());
        let diff = store.diff(NAME, "v3", &version).unwrap();
        let changed = |sign: char| diff.lines().filter(|line| line.starts_with(sign)).count();
        assert!(changed('-') > 1 && changed('-') == changed('+'), "{diff}");
        assert_eq!(store.diff(NAME, "v1", "v1").unwrap(), "");
    }

    #[test]
    fn a_version_is_published_once_it_says_what_it_changes_and_is_frozen_then() {
        let dir = tempfile::tempdir().unwrap();
        let (own, version) = worked(dir.path());
        let draft = own.verify();
        assert!(draft.iter().any(|r| r.version == version && !r.wrong && r.text.starts_with("a draft")));
        let unsaid = own.publish(NAME, &version, false, dir.path()).unwrap_err();
        assert!(matches!(unsaid, AuthorError::NoChangelog { .. }), "{unsaid}");
        std::fs::write(changelog(dir.path(), NAME, &version), "It is kinder.\n").unwrap();
        let published = own.publish(NAME, &version, true, dir.path()).unwrap();
        assert!(published.active && !published.unchanged);

        let after = store(dir.path());
        assert_eq!(after.verify(), []);
        assert_eq!(after.show(NAME, None).unwrap().version, version);
        assert!(after.publish(NAME, &version, false, dir.path()).unwrap().unchanged);
        let template = dir.path().join(path(NAME, &version));
        let text = std::fs::read_to_string(&template).unwrap();
        std::fs::write(&template, text.replacen('a', "e", 1)).unwrap();
        let changed = store(dir.path());
        assert!(matches!(changed.show(NAME, None), Err(PromptError::HashMismatch { .. })));
        assert!(matches!(
            changed.publish(NAME, &version, false, dir.path()),
            Err(AuthorError::Prompt(PromptError::HashMismatch { .. }))
        ));
        assert!(changed.verify().iter().any(|r| r.wrong && r.version == version), "{:?}", changed.verify());
    }

    #[test]
    fn what_the_program_ships_is_neither_published_again_nor_silently_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let own = store(dir.path());
        assert_eq!(own.verify(), []);
        assert!(matches!(own.publish(NAME, "v1", false, dir.path()), Err(AuthorError::Shipped { .. })));
        std::fs::create_dir_all(dir.path().join("mode_b")).unwrap();
        std::fs::write(dir.path().join("mode_b/system_v1.j2"), "mine").unwrap();
        let remarks = store(dir.path()).verify();
        assert!(
            remarks.iter().any(|r| r.wrong && r.text.contains("replaces the published text")),
            "{remarks:?}"
        );
    }

    #[test]
    fn a_manifest_keeps_its_comments_and_its_other_prompts() {
        let dir = tempfile::tempdir().unwrap();
        let (_, version) = worked(dir.path());
        std::fs::write(changelog(dir.path(), NAME, &version), "It is kinder.\n").unwrap();
        std::fs::create_dir_all(dir.path().join("my")).unwrap();
        std::fs::write(dir.path().join("my/own_v1.j2"), "{{ x }}").unwrap();
        std::fs::write(dir.path().join("my/own_v1.changelog.md"), "First.").unwrap();
        let first = "# by hand\n[prompts.\"my/own\"]\nsummary = \"mine\"\nactive = \"v1\"\ncontext_required = [\"x\"]\nversions = {}\n";
        std::fs::write(dir.path().join("MANIFEST.toml"), first).unwrap();
        store(dir.path()).publish(NAME, &version, false, dir.path()).unwrap();
        let text = std::fs::read_to_string(dir.path().join("MANIFEST.toml")).unwrap();
        assert!(text.starts_with(first.trim_end()), "{text}");
        assert_eq!(store(dir.path()).show(NAME, None).unwrap().version, "v3", "not activated");
    }
}
