//! The providers there are, and the way from a name to one that answers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::cassette::Recording;
use super::explorer::Explorer;
use super::http::{HttpModel, is_loopback};
use super::manual::Manual;
use super::profile::{Dialect, Model, PriceEntry, Profile, SetupError};
use super::script::Script;
use super::{ModelInfo, Price, Provider, key};
use base::assets::{Origin, Overlay};
use base::clock::{Clock as _, SystemClock};
use base::hint::did_you_mean;
use base::redact::Redactor;

/// Tokens of one picture when nobody has said: above every figure measured for 1024 pixels.
const IMAGE_TOKENS: u64 = 1600;

/// Where environment variables are read.
type Env = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// All provider files, embedded and the user's own.
pub struct Registry {
    entries: BTreeMap<String, Entry>,
    env: Env,
    redactor: Redactor,
    /// Where exchanges with servers are recorded.
    record: Option<Recording>,
    /// The day whose prices count.
    day: Date,
}

struct Entry {
    origin: Origin,
    profile: Result<Profile, SetupError>,
}

/// A provider as it is named, `PROVIDER[:MODEL]`, and its model; the one that was named apart comes first.
pub fn named(provider: String, model: Option<String>) -> (String, Option<String>) {
    match provider.split_once(':') {
        Some((name, own)) if !own.is_empty() => (name.to_owned(), model.or_else(|| Some(own.to_owned()))),
        _ => (provider, model),
    }
}

/// Which provider and model a person wants.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// The provider's name.
    pub provider: String,
    /// The model; else the provider's default. For `script` the path of its file, for `manual` and `cassette` of its
    /// folder.
    pub model: Option<String>,
    /// Another address than the file's. It is this provider's and no other's: the key goes there.
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
        // Tomorrow's: a session may run into it.
        let now = SystemClock.wall().to_zoned(TimeZone::UTC).date();
        let day = now.tomorrow().unwrap_or(now);
        Self { entries, env: Arc::new(env), redactor: Redactor::default(), record: None, day }
    }

    /// With the prices of another day.
    #[must_use]
    pub fn on(mut self, day: Date) -> Self {
        self.day = day;
        self
    }

    /// Records every exchange with a server.
    #[must_use]
    pub fn recording(mut self, record: Option<Recording>) -> Self {
        self.record = record;
        self
    }

    /// The prices of a model.
    pub fn price<'a>(&self, model: &'a Model) -> Option<&'a PriceEntry> {
        model.price_on(self.day)
    }

    /// Tells `redactor` every key: those in the environment now, those of commands when they are read.
    #[must_use]
    pub fn telling(mut self, redactor: &Redactor) -> Self {
        self.redactor = redactor.clone();
        let names = self.entries.values().filter_map(|entry| entry.profile.as_ref().ok()?.key_env.as_ref());
        for key in names.filter_map(|name| (self.env)(name)) {
            redactor.learn(key.trim().into());
        }
        self
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
            if let Some(entry) = self.price(model) {
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
        if profile.dialect.path().is_some() {
            let url = self.base_url(profile, choice)?;
            info.facts.insert("endpoint_host".to_owned(), url.authority().to_owned());
        }
        Ok(info)
    }

    /// The servers on this machine that have a profile, by its name, each with the address of its list of models.
    pub fn local_servers(&self) -> Vec<(String, reqwest::Url)> {
        let server = |entry: &Entry| {
            let profile = entry.profile.as_ref().ok()?;
            let path = profile.dialect.path()?;
            let mut url = self.base_url(profile, &Choice::default()).ok().filter(is_loopback)?;
            let list = format!("{}/models", url.path().strip_suffix(path)?);
            url.set_path(&list);
            Some((profile.name.clone(), url))
        };
        self.entries.values().filter_map(server).collect()
    }

    /// The address: the argument's, else the file's.
    fn base_url(&self, profile: &Profile, choice: &Choice) -> Result<reqwest::Url, SetupError> {
        let text = choice.base_url.clone().or_else(|| profile.base_url.clone()).unwrap_or_default();
        let bad =
            |url: String, cause: String| SetupError::BadUrl { provider: profile.name.clone(), url, cause };
        let mut url = reqwest::Url::parse(&text).map_err(|e| bad(text.clone(), e.to_string()))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad(url.host_str().unwrap_or_default().to_owned(), "it holds a password".to_owned()));
        }
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(bad(text, "it must begin with http:// or https://".to_owned()));
        }
        let end = profile.dialect.path().unwrap_or_default();
        let path = format!("{}{end}", url.path().trim_end_matches('/'));
        url.set_path(&path);
        Ok(url)
    }
}

/// Makes the provider that `choice` names: reads its key, checks its address; sends nothing.
pub fn connect(registry: &Registry, choice: &Choice) -> Result<Arc<dyn Provider>, SetupError> {
    let profile = registry.get(&choice.provider)?;
    match profile.dialect {
        Dialect::Explorer => {
            let model = registry.model_info(choice)?.model;
            let explorer = Explorer::named(&model, choice.seed).unwrap_or_else(|| Explorer::new(choice.seed));
            Ok(Arc::new(explorer))
        }
        Dialect::Script => {
            let path = choice
                .model
                .as_deref()
                .ok_or_else(|| SetupError::NoModel { provider: profile.name.clone() })?;
            Ok(Arc::new(Script::open(Path::new(path))?))
        }
        Dialect::Manual | Dialect::Cassette => {
            let folder = choice
                .model
                .as_deref()
                .map(Path::new)
                .ok_or_else(|| SetupError::Folder { provider: profile.name.clone(), cause: String::new() })?;
            match profile.dialect {
                Dialect::Manual => Ok(Arc::new(Manual::new(&profile.name, folder)?)),
                _ => Ok(Arc::new(HttpModel::playing(&profile.name, folder)?)),
            }
        }
        Dialect::ChatCompletions | Dialect::Responses | Dialect::Messages => {
            let info = registry.model_info(choice)?;
            let url = registry.base_url(profile, choice)?;
            let key = key::read(profile, registry.env.as_ref())?;
            if let Some(key) = &key {
                registry.redactor.learn(key.clone());
                if url.scheme() == "http" && !is_loopback(&url) && !profile.insecure_http {
                    let (provider, host) = (profile.name.clone(), url.authority().to_owned());
                    return Err(SetupError::Insecure { provider, host });
                }
            }
            let model = HttpModel::new(profile, info, url, key)?;
            Ok(Arc::new(match &registry.record {
                Some(record) => model.recording(record.clone(), &registry.redactor),
                None => model,
            }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::Coded;

    fn registry(user: Option<&Path>, env: &'static [(&'static str, &'static str)]) -> Registry {
        let files = Overlay::providers(user.map(Path::to_owned));
        Registry::with_env(&files, |name| env.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    }

    fn choice(provider: &str, model: Option<&str>) -> Choice {
        Choice { provider: provider.to_owned(), model: model.map(str::to_owned), ..Choice::default() }
    }

    fn refusal(registry: &Registry, choice: &Choice) -> SetupError {
        match connect(registry, choice) {
            Ok(provider) => panic!("{:?} was connected", provider.info()),
            Err(error) => error,
        }
    }

    #[test]
    fn every_embedded_file_is_sound_and_its_default_model_is_known() {
        let registry = registry(None, &[]);
        let names: Vec<&str> = registry.list().map(|(name, ..)| name).collect();
        assert_eq!(
            names,
            [
                "anthropic",
                "cassette",
                "explorer",
                "gemini",
                "llamacpp",
                "manual",
                "mistral",
                "ollama",
                "openai",
                "openai-chat",
                "openrouter",
                "script",
                "vllm",
                "xai"
            ]
        );
        for (name, origin, profile) in registry.list() {
            let profile = profile.unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(*origin, Origin::Embedded);
            for model in &profile.models {
                let info = registry.model_info(&choice(name, Some(&model.id))).unwrap();
                let price = info.price;
                let full = [price.input, price.output, price.cache_read, price.cache_write]
                    .iter()
                    .all(Option::is_some);
                assert!(info.free || full, "{}: a listed model that costs has a full price", model.id);
            }
            let default = profile.default_model.as_ref();
            assert!(default.is_none_or(|id| profile.model(id).is_some()), "{name}: {default:?}");
        }
        let mini = registry.model_info(&choice("openai-chat", None)).unwrap();
        assert_eq!((mini.price.input, mini.price.cache_read), (Some(750_000), Some(75_000)));
        assert_eq!(mini.facts["endpoint_host"], "api.openai.com");
        assert_eq!(mini.facts["price_as_of"], "2026-11-25");
        let stranger = registry.model_info(&choice("openai", Some("gpt-9"))).unwrap();
        assert_eq!((stranger.price, stranger.free), (Price::default(), false), "unknown is not zero");
    }

    #[test]
    fn a_price_that_was_announced_holds_from_its_day() {
        let input = |day: &str| {
            let registry = registry(None, &[]).on(day.parse().unwrap());
            registry.model_info(&choice("gemini", Some("gemini-4-argon"))).unwrap().price.input
        };
        assert_eq!((input("2026-11-30"), input("2026-12-01")), (Some(2_000_000), Some(4_000_000)));
        assert_eq!(input("2030-01-01"), Some(4_000_000));
    }

    #[test]
    fn what_is_missing_is_named_with_its_remedy() {
        let none = registry(None, &[]);
        let error = refusal(&none, &choice("opnai", None));
        assert_eq!(error.to_string(), "there is no provider `opnai`; did you mean `openai`?");
        assert!(error.remedy().unwrap().contains("llamacpp, manual, mistral, ollama"));
        let error = refusal(&none, &choice("openai", None));
        assert_eq!(error.to_string(), "provider `openai` needs a key, and OPENAI_API_KEY is not set");
        assert!(error.remedy().unwrap().starts_with("set OPENAI_API_KEY"));
        assert!(!none.has_key(none.get("openai").unwrap()) && none.has_key(none.get("ollama").unwrap()));
        assert_eq!(refusal(&none, &choice("ollama", None)).to_string(), "provider `ollama` needs a model");
        let error = refusal(&none, &choice("explorer", Some("explorer-22")));
        assert_eq!(
            error.to_string(),
            "provider `explorer` has no model `explorer-22`; did you mean `explorer-2`?"
        );
        let spoilt = registry(None, &[("OPENAI_API_KEY", "sk-se cret")]);
        let error = refusal(&spoilt, &choice("openai", None));
        assert!(!error.to_string().contains("cret") && matches!(error, SetupError::BadKey { .. }), "{error}");
    }

    #[test]
    fn the_address_is_the_arguments_then_the_files() {
        let plain = registry(None, &[]);
        let host = |registry: &Registry, url: Option<&str>| {
            let choice = Choice { base_url: url.map(str::to_owned), ..choice("llamacpp", None) };
            registry.model_info(&choice).map(|info| info.facts["endpoint_host"].clone())
        };
        assert_eq!(host(&plain, None).unwrap(), "localhost:8080");
        assert_eq!(host(&plain, Some("http://here:2")).unwrap(), "here:2");
        let moved = Choice { base_url: Some("http://elsewhere:1/v1/".into()), ..choice("llamacpp", None) };
        let url = plain.base_url(plain.get("llamacpp").unwrap(), &moved).unwrap();
        assert_eq!(url.as_str(), "http://elsewhere:1/v1/chat/completions");
        for bad in ["ftp://h/", "not an address", "file:///x"] {
            assert!(matches!(host(&plain, Some(bad)), Err(SetupError::BadUrl { .. })), "{bad}");
        }
        let error = host(&plain, Some("http://me:hunter2@h/v1")).unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    #[test]
    fn no_key_goes_over_plain_http_to_another_host() {
        let with_key = registry(None, &[("OPENAI_API_KEY", "sk-canary-123456")]);
        let at = |url: &str| Choice { base_url: Some(url.to_owned()), ..choice("openai", None) };
        for open in
            ["http://gpu-box:8080/v1", "http://10.0.0.7/v1", "http://[fe80::1]/v1", "http://localhost.net/v1"]
        {
            let error = refusal(&with_key, &at(open));
            assert!(matches!(error, SetupError::Insecure { .. }), "{open}: {error}");
            assert!(error.remedy().unwrap().contains("insecure_http = true"));
        }
        for fine in
            ["https://gpu-box/v1", "http://localhost:1/v1", "http://127.0.0.9:1/v1", "http://[::1]:1/v1"]
        {
            connect(&with_key, &at(fine)).unwrap();
        }
        // A server that wants no key may be anywhere.
        let box_ = Choice { base_url: Some("http://gpu-box:8080/v1".into()), ..choice("llamacpp", None) };
        connect(&registry(None, &[]), &box_).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let text = "name = \"mine\"\nsummary = \"\"\ndialect = \"openai_chat\"\nbase_url = \"http://gpu-box/v1\"\n\
                    key_env = \"OPENAI_API_KEY\"\ninsecure_http = true\nother_models = { vision = true }\n";
        std::fs::write(dir.path().join("mine.toml"), text).unwrap();
        let trusted = registry(Some(dir.path()), &[("OPENAI_API_KEY", "sk-canary-123456")]);
        connect(&trusted, &choice("mine", Some("m"))).unwrap();
    }

    #[test]
    fn every_key_is_told_to_the_redactor() {
        let dir = tempfile::tempdir().unwrap();
        let text = "name = \"mine\"\nsummary = \"\"\ndialect = \"openai_chat\"\nbase_url = \"https://h/v1\"\n\
                    other_models = { vision = true }\nkey_cmd = [\"printf\", \"sk-from-a-command-7\"]\n";
        std::fs::write(dir.path().join("mine.toml"), text).unwrap();
        let redactor = Redactor::default();
        let registry =
            registry(Some(dir.path()), &[("OPENAI_API_KEY", "sk-canary-123456")]).telling(&redactor);
        connect(&registry, &choice("mine", Some("m"))).unwrap();
        let clean = redactor.clean("sk-canary-123456 sk-from-a-command-7".into());
        assert_eq!(clean, "[redacted] [redacted]");
    }

    #[test]
    fn a_users_file_extends_replaces_or_breaks_one_provider_alone() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        let mine = |name: &str, command: &str| {
            format!(
                "name = \"{name}\"\nsummary = \"\"\ndialect = \"openai_chat\"\nbase_url = \"https://h/v1\"\n\
                 other_models = {{ vision = true }}\nkey_cmd = {command}\n"
            )
        };
        write("openai.toml", "name = \"openai\"\nsumary = 1\n");
        write("mine.toml", &mine("mine", "[\"printf\", \"sk-from-a-command\\\\n\"]"));
        write("dumb.toml", &mine("dumb", "[\"false\"]"));
        let registry = registry(Some(dir.path()), &[]);
        let error = refusal(&registry, &choice("openai", None)).to_string();
        assert!(
            error.contains("openai.toml cannot be used: line 2, column 1: unknown field `sumary`"),
            "{error}"
        );
        assert_eq!(connect(&registry, &choice("mine", Some("m"))).unwrap().info().model, "m");
        let error = refusal(&registry, &choice("dumb", Some("m"))).to_string();
        assert!(error.contains("`false` ended with"), "{error}");
        registry.get("ollama").unwrap();
    }
}
