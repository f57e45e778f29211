//! The providers there are, and the way from a name to one that answers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::openai_chat::OpenAiChat;
use super::profile::{Dialect, Profile, SetupError};
use super::script::Script;
use super::{ModelInfo, Price, Provider, key};
use crate::assets::{Origin, Overlay};
use crate::hint::did_you_mean;

/// Overrides the address of a provider that is reached over HTTP.
pub const BASE_URL_ENV: &str = "CHEMIGRAM_BASE_URL";

/// Tokens of one picture when nobody has said: above every figure measured for 1024 pixels.
const IMAGE_TOKENS: u64 = 1600;

/// Where environment variables are read.
type Env = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// All provider files, embedded and the user's own.
pub struct Registry {
    entries: BTreeMap<String, Entry>,
    env: Env,
}

struct Entry {
    origin: Origin,
    profile: Result<Profile, SetupError>,
}

/// Which provider and model a person wants.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// The provider's name.
    pub provider: String,
    /// The model; else the provider's default. For `script` the path of its file.
    pub model: Option<String>,
    /// Another address; before the environment's and the file's.
    pub base_url: Option<String>,
    /// The seed of the explorer.
    pub seed: u64,
}

impl Registry {
    /// Reads all provider files. A file that is broken is reported when its provider is asked for.
    pub fn new(files: &Overlay) -> Self {
        Self::with_env(files, |name| std::env::var(name).ok())
    }

    /// As [`Registry::new`], with environment variables from elsewhere.
    pub fn with_env(files: &Overlay, env: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        let entries = files
            .list("", ".toml")
            .into_iter()
            .map(|(file, origin)| {
                let shown = match &origin {
                    Origin::Embedded => file.clone(),
                    Origin::User(path) => path.display().to_string(),
                };
                let profile = match files.text(&file) {
                    Some(text) => Profile::parse(&shown, &text, &origin),
                    None => Err(SetupError::BadProfile { file: shown, cause: "it is not UTF-8".to_owned() }),
                };
                (file.trim_end_matches(".toml").to_owned(), Entry { origin, profile })
            })
            .collect();
        Self { entries, env: Arc::new(env) }
    }

    /// Every provider by name, with where its file is; broken files as their error.
    pub fn list(&self) -> impl Iterator<Item = (&str, &Origin, Result<&Profile, &SetupError>)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), &entry.origin, entry.profile.as_ref()))
    }

    /// The provider of that name.
    pub fn get(&self, name: &str) -> Result<&Profile, SetupError> {
        match self.entries.get(name) {
            Some(entry) => entry.profile.as_ref().map_err(Clone::clone),
            None => Err(SetupError::UnknownProvider {
                name: name.to_owned(),
                suggestion: did_you_mean(name, self.entries.keys().map(String::as_str)),
                known: self.entries.keys().cloned().collect(),
            }),
        }
    }

    /// Whether the key of a provider is at hand (or none is needed). Commands are not run.
    pub fn has_key(&self, profile: &Profile) -> bool {
        let found =
            profile.key_env.as_ref().is_some_and(|name| (self.env)(name).is_some_and(|k| !k.is_empty()));
        found || profile.key_optional || profile.key_env.is_none() || !profile.key_cmd.is_empty()
    }

    /// What is known of the model that `choice` names. Reads no key and opens no connection.
    pub fn model_info(&self, choice: &Choice) -> Result<ModelInfo, SetupError> {
        let profile = self.get(&choice.provider)?;
        let id = choice
            .model
            .clone()
            .or_else(|| profile.default_model.clone())
            .ok_or_else(|| SetupError::NoModel { provider: profile.name.clone() })?;
        let mut info = ModelInfo {
            provider: profile.name.clone(),
            model: id.clone(),
            vision: false,
            context: None,
            free: profile.free,
            price: Price::default(),
            image_tokens: IMAGE_TOKENS,
            facts: BTreeMap::new(),
        };
        if let Some(model) = profile.model(&id) {
            info.vision = model.vision;
            info.context = model.context;
            info.image_tokens = model.image_tokens.unwrap_or(IMAGE_TOKENS);
            if let Some(entry) = &model.price {
                info.price = entry.price().unwrap_or_default();
                info.facts.insert("price_as_of".to_owned(), entry.as_of.clone());
            }
        } else if let Some(other) = &profile.other_models {
            info.vision = other.vision;
            info.context = other.context;
            info.image_tokens = other.image_tokens.unwrap_or(IMAGE_TOKENS);
        } else {
            let known = || profile.models.iter().map(|m| m.id.as_str());
            return Err(SetupError::UnknownModel {
                provider: profile.name.clone(),
                suggestion: did_you_mean(&id, known()),
                known: known().map(str::to_owned).collect(),
                model: id,
            });
        }
        if profile.dialect == Dialect::OpenaiChat {
            let url = self.base_url(profile, choice)?;
            info.facts.insert("endpoint_host".to_owned(), url.authority().to_owned());
        }
        Ok(info)
    }

    /// The address: the argument's, else the environment's, else the file's.
    fn base_url(&self, profile: &Profile, choice: &Choice) -> Result<reqwest::Url, SetupError> {
        let text = choice
            .base_url
            .clone()
            .or_else(|| (self.env)(BASE_URL_ENV).filter(|u| !u.is_empty()))
            .or_else(|| profile.base_url.clone())
            .unwrap_or_default();
        let bad =
            |url: String, cause: String| SetupError::BadUrl { provider: profile.name.clone(), url, cause };
        let mut url = reqwest::Url::parse(&text).map_err(|e| bad(text.clone(), e.to_string()))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad(url.host_str().unwrap_or_default().to_owned(), "it holds a password".to_owned()));
        }
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(bad(text, "it must begin with http:// or https://".to_owned()));
        }
        let path = format!("{}/chat/completions", url.path().trim_end_matches('/'));
        url.set_path(&path);
        Ok(url)
    }
}

/// Makes the provider that `choice` names: reads its key, checks its address; sends nothing.
pub fn connect(registry: &Registry, choice: &Choice) -> Result<Arc<dyn Provider>, SetupError> {
    let profile = registry.get(&choice.provider)?;
    match profile.dialect {
        Dialect::Explorer => explorer(profile, choice.seed),
        Dialect::Script => {
            let path = choice
                .model
                .as_deref()
                .ok_or_else(|| SetupError::NoModel { provider: profile.name.clone() })?;
            Ok(Arc::new(Script::open(Path::new(path))?))
        }
        Dialect::OpenaiChat => {
            let info = registry.model_info(choice)?;
            let url = registry.base_url(profile, choice)?;
            let key = key::read(profile, registry.env.as_ref())?;
            Ok(Arc::new(OpenAiChat::new(profile, info, url, key)?))
        }
    }
}

// HOOK: the explorer is made here, as `Ok(Arc::new(super::explorer::Explorer::new(seed)))`.
fn explorer(profile: &Profile, _seed: u64) -> Result<Arc<dyn Provider>, SetupError> {
    Err(SetupError::Client { provider: profile.name.clone(), cause: "it is not built in".to_owned() })
}
