//! Finding a template by name and version, checking it against the manifest, and filling it in.

use std::collections::BTreeMap;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::prompts::marks::contained;
use base::assets::{Origin, Overlay};
use base::error::{Coded, ErrorCode};
use base::hint::{did_you_mean, toml_error};
use base::ids::Hash;

/// Steps one rendering may take; the longest of ours needs a few hundred.
const FUEL: u64 = 200_000;

/// A prompt that cannot be found, trusted or filled in.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PromptError {
    /// The manifest is not readable.
    #[error("the prompt manifest cannot be used: {0}")]
    Manifest(String),
    /// No prompt of that name.
    #[error("there is no prompt `{name}`{suggestion}")]
    UnknownPrompt {
        /// The name as given.
        name: String,
        /// `; did you mean …?`, or nothing.
        suggestion: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// The prompt has no such version.
    #[error("prompt `{name}` has no version `{version}`")]
    MissingVersion {
        /// The prompt.
        name: String,
        /// The version as given.
        version: String,
        /// The versions there are.
        known: Vec<String>,
    },
    /// A published template is not the one that was published.
    #[error(
        "prompt `{name}@{version}` was changed after it was published: its hash is {found}, not {expected}"
    )]
    HashMismatch {
        /// The prompt.
        name: String,
        /// The version.
        version: String,
        /// The manifest's hash.
        expected: String,
        /// The file's hash.
        found: Hash,
    },
    /// The context lacks something the prompt needs.
    #[error("prompt `{name}` needs `{key}`")]
    MissingContext {
        /// The prompt.
        name: String,
        /// The key that is missing.
        key: String,
    },
    /// The context holds something the prompt does not take.
    #[error("prompt `{name}` takes no `{key}`{suggestion}")]
    UnknownContext {
        /// The prompt.
        name: String,
        /// The key too many.
        key: String,
        /// `; did you mean …?`, or nothing.
        suggestion: String,
        /// The keys it takes.
        allowed: Vec<String>,
    },
    /// The template itself is wrong, or does not fit its context.
    #[error("prompt `{name}@{version}` cannot be rendered: {cause}")]
    Render {
        /// The prompt.
        name: String,
        /// The version.
        version: String,
        /// Where and why.
        cause: String,
    },
}

impl Coded for PromptError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::UnknownPrompt { .. } | Self::MissingVersion { .. } => ErrorCode::NotFound,
            Self::HashMismatch { .. } => ErrorCode::VersioningError,
            Self::Manifest(_)
            | Self::MissingContext { .. }
            | Self::UnknownContext { .. }
            | Self::Render { .. } => ErrorCode::InvalidInput,
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::UnknownPrompt { known, .. } => Some(format!("choose one of: {}", known.join(", "))),
            Self::MissingVersion { known, .. } => Some(format!("choose one of: {}", known.join(", "))),
            Self::HashMismatch { .. } => {
                Some("published prompts cannot be edited: add a new version".to_owned())
            }
            Self::UnknownContext { allowed, .. } => Some(format!("it takes: {}", allowed.join(", "))),
            Self::Manifest(_) | Self::MissingContext { .. } | Self::Render { .. } => None,
        }
    }
}

/// `MANIFEST.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    #[serde(default)]
    prompts: BTreeMap<String, Declared>,
}

/// One prompt in the manifest.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Declared {
    #[serde(default)]
    summary: String,
    active: String,
    #[serde(default)]
    context_required: Vec<String>,
    #[serde(default)]
    context_optional: Vec<String>,
    /// The tools that a session with it has; without this, all that fit.
    #[serde(default)]
    tools: Option<Vec<String>>,
    /// In a conversation, the tools after whose success the photographer speaks next.
    #[serde(default)]
    hands_back: Vec<String>,
    /// Version to SHA-256 of the template.
    versions: BTreeMap<String, String>,
}

/// One prompt, for a list.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// The name, such as `mode_b/system`.
    pub name: String,
    /// What it is for, in one line.
    pub summary: String,
    /// The version that is used when none is named.
    pub active: String,
    /// Keys the context must hold.
    pub context_required: Vec<String>,
    /// Keys it may hold.
    pub context_optional: Vec<String>,
    /// All versions, in the order they were made (`v2` before `v10`).
    pub versions: Vec<Version>,
}

/// One version of a prompt.
#[derive(Clone, Debug, Serialize)]
pub struct Version {
    /// `v1`, `v2`…
    pub version: String,
    /// SHA-256 of the template.
    pub template_sha256: Hash,
    /// Whether it comes from the user's own folder.
    pub user: bool,
}

/// A template as it stands.
#[derive(Clone, Debug)]
pub struct Template {
    /// The prompt.
    pub name: String,
    /// The version.
    pub version: String,
    /// The text of the template.
    pub source: String,
    /// SHA-256 of the template.
    pub template_sha256: Hash,
    /// Where it was found.
    pub origin: Origin,
}

/// A template filled in.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// What the model reads.
    pub text: String,
    /// The prompt.
    pub name: String,
    /// The version.
    pub version: String,
    /// SHA-256 of the template (of the text: `Hash::of(&rendered.text)`).
    pub template_sha256: Hash,
    /// Where the template was found.
    pub origin: Origin,
}

/// All prompts: the embedded ones and the user's own.
#[derive(Clone)]
pub struct Store {
    files: Overlay,
    declared: BTreeMap<String, Declared>,
    /// What the program itself declares.
    embedded: BTreeMap<String, Declared>,
}

impl Store {
    /// Reads the manifests: the embedded one, and a user's own, which may add prompts and versions and
    /// choose another active version, but cannot take back a published one.
    pub fn new(files: Overlay) -> Result<Self, PromptError> {
        let embedded = manifest(&Overlay::prompts(None))?;
        let mut declared = embedded.clone();
        for (name, mine) in manifest(&files)? {
            match declared.get_mut(&name) {
                Some(known) => {
                    known.active = mine.active;
                    for (version, hash) in mine.versions {
                        known.versions.entry(version).or_insert(hash);
                    }
                }
                None => {
                    declared.insert(name, mine);
                }
            }
        }
        Ok(Self { files, declared, embedded })
    }

    /// All prompts of the manifests, by name.
    pub fn list(&self) -> Vec<Entry> {
        let entry = |(name, declared): (&String, &Declared)| Entry {
            name: name.clone(),
            summary: declared.summary.clone(),
            active: declared.active.clone(),
            context_required: declared.context_required.clone(),
            context_optional: declared.context_optional.clone(),
            versions: self
                .versions(name)
                .into_iter()
                .filter_map(|(version, origin)| {
                    let source = self.files.text(&path(name, &version))?;
                    Some(Version {
                        version,
                        template_sha256: Hash::of(source.as_bytes()),
                        user: origin != Origin::Embedded,
                    })
                })
                .collect(),
        };
        self.declared.iter().map(entry).collect()
    }

    /// The template of a prompt; its active version when none is named.
    pub fn show(&self, name: &str, version: Option<&str>) -> Result<Template, PromptError> {
        let versions = self.versions(name);
        let declared = self.declared.get(name);
        if versions.is_empty() && declared.is_none() {
            let known = || self.declared.keys().map(String::as_str);
            return Err(PromptError::UnknownPrompt {
                name: name.to_owned(),
                suggestion: did_you_mean(name, known()),
                known: known().map(str::to_owned).collect(),
            });
        }
        let version = match (version, declared) {
            (Some(version), _) => version.to_owned(),
            (None, Some(declared)) => declared.active.clone(),
            (None, None) => versions.last().map(|(v, _)| v.clone()).unwrap_or_default(),
        };
        let missing = || PromptError::MissingVersion {
            name: name.to_owned(),
            version: version.clone(),
            known: versions.iter().map(|(v, _)| v.clone()).collect(),
        };
        let origin =
            versions.iter().find(|(v, _)| *v == version).map(|(_, o)| o.clone()).ok_or_else(missing)?;
        let source = self.files.text(&path(name, &version)).ok_or_else(missing)?.into_owned();
        let template_sha256 = Hash::of(source.as_bytes());
        let published = declared.and_then(|d| d.versions.get(&version));
        let changed = match published {
            Some(hash) => hash != template_sha256.as_str(),
            None => origin == Origin::Embedded,
        };
        // A file of the user's own may stand in for one that the program ships, but not for one that she published.
        if changed && (origin == Origin::Embedded || self.shipped(name, &version).is_none()) {
            return Err(PromptError::HashMismatch {
                name: name.to_owned(),
                version,
                expected: published.cloned().unwrap_or_else(|| "in no manifest".to_owned()),
                found: template_sha256,
            });
        }
        Ok(Template { name: name.to_owned(), version, source, template_sha256, origin })
    }

    /// The tools that `name` or `name@version` is made for, where it names them.
    pub fn tools(&self, prompt: &str) -> Option<&[String]> {
        let name = prompt.split('@').next().unwrap_or_default();
        self.declared.get(name)?.tools.as_deref()
    }

    /// The tools after whose success a conversation with `name` or `name@version` is the photographer's again.
    pub fn hands_back(&self, prompt: &str) -> &[String] {
        let name = prompt.split('@').next().unwrap_or_default();
        self.declared.get(name).map_or(&[], |declared| &declared.hands_back)
    }

    /// Fills in `name` or `name@version` with a context, a JSON object. No value can close a mark such as `<brief>`
    /// that the template puts around it.
    pub fn render(&self, prompt: &str, context: &Value) -> Result<Rendered, PromptError> {
        let (name, version) = match prompt.split_once('@') {
            Some((name, version)) => (name, Some(version)),
            None => (prompt, None),
        };
        let template = self.show(name, version)?;
        if let Some(declared) = self.declared.get(name) {
            check_context(name, declared, context)?;
        }
        let file = path(name, &template.version);
        let context = contained(&template.source, context);
        let text =
            environment().and_then(|env| env.render_named_str(&file, &template.source, Serde(&context)));
        let text = text.map_err(|e| PromptError::Render {
            name: name.to_owned(),
            version: template.version.clone(),
            cause: e.to_string(),
        })?;
        let Template { name, version, template_sha256, origin, .. } = template;
        // A template file ends in a line break; a message does not.
        let text = text.trim_end().to_owned();
        Ok(Rendered { text, name, version, template_sha256, origin })
    }

    /// The versions of a prompt that were published.
    pub(super) fn published(&self, name: &str) -> Vec<String> {
        self.declared.get(name).map(|d| d.versions.keys().cloned().collect()).unwrap_or_default()
    }

    /// The hash under which the program ships a version.
    pub(super) fn shipped(&self, name: &str, version: &str) -> Option<&str> {
        self.embedded.get(name)?.versions.get(version).map(String::as_str)
    }

    /// Whether there is such a file.
    pub(super) fn has(&self, file: &str) -> bool {
        self.files.read(file).is_some()
    }

    /// The versions that have a file, oldest first, each with its origin.
    pub(super) fn versions(&self, name: &str) -> Vec<(String, Origin)> {
        let (folder, base) = name.rsplit_once('/').unwrap_or(("", name));
        let mut found: Vec<(u32, Origin)> = self
            .files
            .list(folder, ".j2")
            .into_iter()
            .filter_map(|(file, origin)| {
                let digits = file.strip_prefix(base)?.strip_prefix("_v")?.strip_suffix(".j2")?;
                Some((digits.parse().ok()?, origin))
            })
            .collect();
        found.sort_by_key(|(number, _)| *number);
        found.into_iter().map(|(number, origin)| (format!("v{number}"), origin)).collect()
    }
}

pub(super) fn path(name: &str, version: &str) -> String {
    format!("{name}_{version}.j2")
}

fn manifest(files: &Overlay) -> Result<BTreeMap<String, Declared>, PromptError> {
    let Some(text) = files.text("MANIFEST.toml") else {
        return Err(PromptError::Manifest("MANIFEST.toml is missing or not UTF-8".to_owned()));
    };
    let parsed = toml::from_str::<Manifest>(&text);
    parsed.map(|m| m.prompts).map_err(|e| PromptError::Manifest(toml_error(&text, &e)))
}

fn check_context(name: &str, declared: &Declared, context: &Value) -> Result<(), PromptError> {
    let given = context.as_object();
    let missing = declared.context_required.iter().find(|key| !given.is_some_and(|c| c.contains_key(*key)));
    if let Some(key) = missing {
        return Err(PromptError::MissingContext { name: name.to_owned(), key: key.clone() });
    }
    let allowed = || declared.context_required.iter().chain(&declared.context_optional);
    let strange = given.into_iter().flat_map(|c| c.keys()).find(|key| !allowed().any(|a| a == *key));
    match strange {
        None => Ok(()),
        Some(key) => Err(PromptError::UnknownContext {
            name: name.to_owned(),
            key: key.clone(),
            suggestion: did_you_mean(key, allowed().map(String::as_str)),
            allowed: allowed().cloned().collect(),
        }),
    }
}

/// No file access, no escaping (a prompt is not HTML), no undefined values, an end to every loop.
fn environment() -> Result<Environment<'static>, minijinja::Error> {
    let mut env = Environment::new();
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_fuel(Some(FUEL));
    env.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    Ok(env)
}

#[cfg(test)]
mod tests;
