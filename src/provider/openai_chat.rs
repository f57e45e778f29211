//! OpenAI Chat Completions over HTTP.
use super::profile::{Profile, SetupError};
use super::{Attempt, ModelInfo, ModelRequest, Provider};
use secrecy::SecretString;

/// One model behind one Chat Completions address.
pub struct OpenAiChat {
    info: ModelInfo,
}
impl OpenAiChat {
    /// Makes the client.
    pub fn new(
        profile: &Profile,
        info: ModelInfo,
        url: reqwest::Url,
        key: Option<SecretString>,
    ) -> Result<Self, SetupError> {
        let _ = (profile, url, key);
        Ok(Self { info })
    }
}
impl Provider for OpenAiChat {
    fn info(&self) -> &ModelInfo {
        &self.info
    }
    fn attempt<'a>(&'a self, _request: &'a ModelRequest<'a>) -> Attempt<'a> {
        Box::pin(std::future::pending())
    }
}
