//! A provider is a TOML file: which dialect, which address, which key, which models at which price.

use std::collections::BTreeMap;

use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Price;
use base::assets::Origin;
use base::error::{Coded, ErrorCode};
use base::hint::toml_error;

/// A provider that cannot be set up. Nothing was sent.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SetupError {
    /// No provider of that name.
    #[error("there is no provider `{name}`{suggestion}")]
    UnknownProvider {
        /// The name as given.
        name: String,
        /// `; did you mean …?`, or nothing.
        suggestion: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// The provider's file lists its models, and this is not among them.
    #[error("provider `{provider}` has no model `{model}`{suggestion}")]
    UnknownModel {
        /// The provider.
        provider: String,
        /// The model as given.
        model: String,
        /// `; did you mean …?`, or nothing.
        suggestion: String,
        /// The models there are.
        known: Vec<String>,
    },
    /// No model was named and the provider's file has no default.
    #[error("provider `{provider}` needs a model")]
    NoModel {
        /// The provider.
        provider: String,
    },
    /// The file does not describe a provider.
    #[error("provider file {file} cannot be used: {cause}")]
    BadProfile {
        /// The file.
        file: String,
        /// Where and why.
        cause: String,
    },
    /// No key in the environment.
    #[error("provider `{provider}` needs a key, and {env} is not set")]
    MissingKey {
        /// The provider.
        provider: String,
        /// The environment variable.
        env: String,
    },
    /// The key holds blanks, control or non-ASCII characters.
    #[error("the key of provider `{provider}` contains invalid characters")]
    BadKey {
        /// The provider.
        provider: String,
    },
    /// The command that prints the key failed.
    #[error("the key command of provider `{provider}` failed: {cause}")]
    KeyCommand {
        /// The provider.
        provider: String,
        /// Why.
        cause: String,
    },
    /// The address is not an HTTP address.
    #[error("provider `{provider}`: `{url}` is not a usable address: {cause}")]
    BadUrl {
        /// The provider.
        provider: String,
        /// The address, without user name and password.
        url: String,
        /// Why.
        cause: String,
    },
    /// A script file that is not there.
    #[error("there is no script {path}")]
    NoScript {
        /// The file.
        path: String,
    },
    /// A script file that cannot be read or understood.
    #[error("script {path} cannot be used: {cause}")]
    Script {
        /// The file.
        path: String,
        /// Where and why.
        cause: String,
    },
    /// The folder of requests and replies is missing from the choice, or is something else.
    #[error("provider `{provider}` needs a folder{cause}")]
    Folder {
        /// The provider.
        provider: String,
        /// `, and PATH is not one`, or nothing.
        cause: String,
    },
    /// A key for another machine, and no encryption on the way.
    #[error("provider `{provider}`: the key would go to {host} over plain http, where others can read it")]
    Insecure {
        /// The provider.
        provider: String,
        /// The host and port.
        host: String,
    },
    /// The HTTP client could not be made (no certificates…).
    #[error("provider `{provider}`: the HTTP client could not be created: {cause}")]
    Client {
        /// The provider.
        provider: String,
        /// Why.
        cause: String,
    },
}

impl Coded for SetupError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::UnknownProvider { .. } | Self::UnknownModel { .. } | Self::NoScript { .. } => {
                ErrorCode::NotFound
            }
            Self::NoModel { .. }
            | Self::BadProfile { .. }
            | Self::BadUrl { .. }
            | Self::Insecure { .. }
            | Self::Folder { .. }
            | Self::Script { .. } => ErrorCode::InvalidInput,
            Self::MissingKey { .. } | Self::BadKey { .. } | Self::KeyCommand { .. } | Self::Client { .. } => {
                ErrorCode::ProviderError
            }
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::UnknownProvider { known, .. } => Some(format!("choose one of: {}", known.join(", "))),
            Self::UnknownModel { known, .. } => Some(format!(
                "choose one of: {}; or add the model to your own copy of the provider's file",
                known.join(", ")
            )),
            Self::Folder { provider, .. } => Some(format!("name one, as in `--provider {provider}:DIR`")),
            Self::NoModel { .. } => Some("add --model NAME".to_owned()),
            Self::MissingKey { env, .. } => {
                Some(format!("set {env}, or use --provider explorer, which needs no key"))
            }
            Self::BadKey { .. } => Some("check for quotes, spaces or line breaks around the key".to_owned()),
            Self::BadUrl { .. } => {
                Some("an address looks like https://host/v1, without user name and password".to_owned())
            }
            Self::Insecure { provider, .. } => Some(format!(
                "use an https address; or, on a network that you trust, set `insecure_http = true` in \
                 providers/{provider}.toml"
            )),
            Self::NoScript { .. } => {
                Some("check the path, or give the file with `--provider script --model FILE`".to_owned())
            }
            Self::BadProfile { .. } | Self::KeyCommand { .. } | Self::Script { .. } | Self::Client { .. } => {
                None
            }
        }
    }
}

/// Headers that carry keys.
const KEY_HEADERS: [&str; 3] = ["authorization", "x-api-key", "proxy-authorization"];

/// The language a provider speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// The embedded numeric explorer; no wire at all.
    Explorer,
    /// Replies from a file; the model is the file's path.
    Script,
    /// Requests and replies as files; the model is their folder.
    Manual,
    /// Replies that were recorded; the model is the folder of the recording.
    Cassette,
    /// OpenAI Chat Completions and what imitates it.
    #[serde(alias = "openai_chat")]
    ChatCompletions,
    /// OpenAI Responses.
    Responses,
    /// Anthropic Messages.
    Messages,
}

impl Dialect {
    /// What follows the base address; nothing for what has no wire.
    pub fn path(self) -> Option<&'static str> {
        match self {
            Self::ChatCompletions => Some("/chat/completions"),
            Self::Responses => Some("/responses"),
            Self::Messages => Some("/messages"),
            Self::Explorer | Self::Script | Self::Manual | Self::Cassette => None,
        }
    }
}

/// One provider, as its file describes it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The name: also the file's, without `.toml`.
    pub name: String,
    /// One line for a list.
    pub summary: String,
    /// The dialect.
    pub dialect: Dialect,
    /// The address before what the dialect adds: `/chat/completions`, `/responses` or `/messages`.
    pub base_url: Option<String>,
    /// The environment variable of the key.
    pub key_env: Option<String>,
    /// Whether it works without a key.
    #[serde(default)]
    pub key_optional: bool,
    /// Whether the key may go to another machine without encryption.
    #[serde(default)]
    pub insecure_http: bool,
    /// A command, with its arguments, that prints the key. Only in a user's own file.
    #[serde(default)]
    pub key_cmd: Vec<String>,
    /// Whether calls cost no money by nature.
    #[serde(default)]
    pub free: bool,
    /// The model when none is named.
    pub default_model: Option<String>,
    /// What the dialect needs to know.
    #[serde(default)]
    pub wire: Wire,
    /// What it wants of pictures.
    #[serde(default)]
    pub image: ImageRules,
    /// Models with known properties.
    #[serde(default, rename = "model")]
    pub models: Vec<Model>,
    /// Properties of models that are not listed; absent, they are refused.
    pub other_models: Option<OtherModels>,
}

/// Quirks of an OpenAI-shaped server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Wire {
    /// The field that bounds the reply.
    pub max_tokens_field: MaxTokensField,
    /// Whether to stream.
    pub stream: bool,
    /// Whether to ask for usage in the stream.
    pub stream_usage: bool,
    /// Sent as `parallel_tool_calls`; absent, not sent.
    pub parallel_tool_calls: Option<bool>,
    /// Sent as `tool_choice`; absent, not sent.
    pub tool_choice: Option<String>,
    /// Whether the session id is sent as `prompt_cache_key`.
    pub prompt_cache_key: bool,
    /// Whether the seed is sent.
    pub seed: bool,
    /// The field of a Chat Completions message that holds what the model thought and goes back as it came, such as
    /// `reasoning_content`; absent, none goes back.
    pub reasoning_field: Option<String>,
    /// Whether the server counts the input tokens of a request for nothing: Messages at `/messages/count_tokens`,
    /// Responses at `/responses/input_tokens`.
    pub count_tokens: bool,
    /// Seconds to wait for the first event of a reply; four times as many while a server keeps the connection alive.
    pub first_byte_seconds: u64,
    /// The same for each further one.
    pub idle_seconds: u64,
    /// More headers. Not for keys: files are no place for them.
    #[serde(skip_serializing)]
    pub headers: BTreeMap<String, String>,
    /// More fields of the request body.
    pub body: Map<String, Value>,
}

impl Default for Wire {
    fn default() -> Self {
        Self {
            max_tokens_field: MaxTokensField::MaxTokens,
            stream: true,
            stream_usage: true,
            parallel_tool_calls: None,
            tool_choice: None,
            prompt_cache_key: false,
            seed: false,
            reasoning_field: None,
            count_tokens: false,
            first_byte_seconds: 30,
            idle_seconds: 120,
            headers: BTreeMap::new(),
            body: Map::new(),
        }
    }
}

/// The field that bounds the reply in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaxTokensField {
    /// `max_tokens`: what imitators know.
    MaxTokens,
    /// `max_completion_tokens`: what OpenAI's reasoning models insist on.
    MaxCompletionTokens,
}

/// What a provider wants of pictures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ImageRules {
    /// The longest edge worth sending, in pixels.
    pub max_edge: u32,
    /// `detail` of the picture part; absent, not sent.
    pub detail: Option<ImageDetail>,
    /// Where the picture of a tool result goes.
    pub place: ImagePlace,
}

impl Default for ImageRules {
    fn default() -> Self {
        Self { max_edge: 2048, detail: None, place: ImagePlace::NextUserMessage }
    }
}

/// `detail` of a picture part, as Chat Completions names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageDetail {
    /// The provider decides.
    Auto,
    /// Few tokens.
    Low,
    /// Many tokens.
    High,
    /// Never scaled down.
    Original,
}

impl ImageDetail {
    /// As the wire has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Low => "low",
            Self::High => "high",
            Self::Original => "original",
        }
    }
}

/// Where the picture of a tool result goes. A `tool` message of Chat Completions carries text alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImagePlace {
    /// Into one user message after all results of the turn.
    NextUserMessage,
    /// Beside the text of the result, in its `tool` message: what some servers accept beyond the standard.
    ToolMessage,
}

/// One model with known properties.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The id at the provider.
    pub id: String,
    /// Context window in tokens.
    pub context: Option<u64>,
    /// Whether it sees pictures.
    #[serde(default)]
    pub vision: bool,
    /// Tokens of one picture at `max_edge`: an upper bound.
    pub image_tokens: Option<u64>,
    /// Prices, as people write them.
    pub price: Option<PriceEntry>,
    /// Prices that have been announced, in the order of their days.
    #[serde(default)]
    pub later_price: Vec<PriceEntry>,
    /// Fields of the request body that only this model wants.
    #[serde(default)]
    pub body: Map<String, Value>,
}

/// Properties assumed of a model that is not listed; its price stays unknown.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OtherModels {
    /// Context window in tokens.
    pub context: Option<u64>,
    /// Whether it is taken to see pictures.
    pub vision: bool,
    /// Tokens of one picture: an upper bound.
    pub image_tokens: Option<u64>,
}

/// US dollars per million tokens.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceEntry {
    /// Fresh input.
    pub input: Option<f64>,
    /// Output.
    pub output: Option<f64>,
    /// Cache read.
    pub cache_read: Option<f64>,
    /// Cache write.
    pub cache_write: Option<f64>,
    /// The day they were looked up.
    pub as_of: String,
    /// The first day on which they hold, of a later price.
    pub from: Option<Date>,
}

impl Model {
    /// The prices of a day.
    pub fn price_on(&self, day: Date) -> Option<&PriceEntry> {
        let due = self.later_price.iter().rev().find(|price| price.from.is_some_and(|from| from <= day));
        due.or(self.price.as_ref())
    }
}

impl PriceEntry {
    /// In micro-dollars per million tokens, rounded up; `None` for a figure that is no price.
    pub fn price(&self) -> Option<Price> {
        let part = |usd: Option<f64>| match usd {
            None => Some(None),
            Some(usd) => micro_usd(usd).map(Some),
        };
        Some(Price {
            input: part(self.input)?,
            output: part(self.output)?,
            cache_read: part(self.cache_read)?,
            cache_write: part(self.cache_write)?,
        })
    }
}

/// Dollars in micro-dollars, rounded up, by the shortest decimal form of the number, so that 0.075 is
/// 75000 and not 75001. `None` for what is negative, not finite or too large.
pub fn micro_usd(usd: f64) -> Option<u64> {
    let text = format!("{usd}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let (kept, rest) = fraction.split_at(fraction.len().min(6));
    let whole: u64 = whole.parse().ok()?;
    let micro: u64 = format!("{kept:0<6}").parse().ok()?;
    let up = u64::from(rest.bytes().any(|b| b != b'0'));
    whole.checked_mul(1_000_000)?.checked_add(micro)?.checked_add(up)
}

impl Profile {
    /// Reads the text of a provider's file and checks what the types cannot.
    pub fn parse(file: &str, text: &str, origin: &Origin) -> Result<Self, SetupError> {
        let bad = |cause: String| SetupError::BadProfile { file: file.to_owned(), cause };
        let profile: Self = toml::from_str(text).map_err(|e| bad(toml_error(text, &e)))?;
        if file.rsplit('/').next() != Some(&format!("{}.toml", profile.name)) {
            return Err(bad(format!("name = \"{}\" is not the file's name", profile.name)));
        }
        if !profile.key_cmd.is_empty() && *origin == Origin::Embedded {
            return Err(bad("key_cmd is only allowed in a user's own file".to_owned()));
        }
        if profile.dialect.path().is_some() && profile.base_url.is_none() {
            return Err(bad("base_url is missing".to_owned()));
        }
        if let Some(name) =
            profile.wire.headers.keys().find(|n| KEY_HEADERS.iter().any(|k| n.eq_ignore_ascii_case(k)))
        {
            return Err(bad(format!("header {name}: keys come from key_env or key_cmd")));
        }
        for model in &profile.models {
            let mut prices = model.price.iter().chain(&model.later_price);
            if prices.any(|p| p.price().is_none()) {
                return Err(bad("a price is negative or not a number".to_owned()));
            }
            if !model.later_price.iter().map(|p| p.from).is_sorted_by(|a, b| a < b)
                || model.later_price.iter().any(|p| p.from.is_none())
            {
                return Err(bad(format!(
                    "{}: later_price needs days, `from`, one after the other",
                    model.id
                )));
            }
        }
        Ok(profile)
    }

    /// The listed model of that id.
    pub fn model(&self, id: &str) -> Option<&Model> {
        self.models.iter().find(|m| m.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_become_exact_micro_dollars() {
        for (usd, micro) in [(0.0, 0), (0.075, 75_000), (4.5, 4_500_000), (10.0, 10_000_000), (0.1, 100_000)]
        {
            assert_eq!(micro_usd(usd), Some(micro), "{usd}");
        }
        assert_eq!(micro_usd(0.000_000_1), Some(1), "rounded up");
        assert_eq!(micro_usd(-1.0), None);
        assert_eq!(micro_usd(f64::NAN), None);
        assert_eq!(micro_usd(f64::INFINITY), None);
    }

    #[test]
    fn a_broken_file_says_where_and_why() {
        let parse =
            |file: &str, text: &str| Profile::parse(file, text, &Origin::Embedded).unwrap_err().to_string();
        let base = "name = \"x\"\nsummary = \"\"\ndialect = \"openai_chat\"\n";
        assert!(
            parse("x.toml", &format!("{base}colour = 1\n"))
                .contains("line 4, column 1: unknown field `colour`")
        );
        assert!(parse("x.toml", base).contains("base_url is missing"));
        let whole = format!("{base}base_url = \"http://h/v1\"\n");
        assert!(parse("y.toml", &whole).contains("not the file's name"));
        assert!(parse("x.toml", &format!("{whole}key_cmd = [\"pass\"]\n")).contains("user's own file"));
        let header = format!("{whole}[wire.headers]\nauthorization = \"Bearer x\"\n");
        assert!(parse("x.toml", &header).contains("key_env"));
        let later = |from: &str| {
            format!("{whole}[[model]]\nid = \"m\"\n[[model.later_price]]\nas_of = \"2026-11-21\"\n{from}\n")
        };
        assert!(parse("x.toml", &later("")).contains("needs days"));
        assert!(parse("x.toml", &later("from = \"soon\"")).contains("line 9"));
    }
}
