//! Keeps secrets out of everything that is written: known values are replaced at the sink.

use secrecy::{ExposeSecret, SecretString};

/// Replaces known secret values in text.
#[derive(Clone, Default)]
pub struct Redactor(Vec<SecretString>);

impl Redactor {
    /// What stands in a secret's place.
    pub const MARK: &'static str = "[redacted]";

    /// Makes a redactor for these values; values too short to be keys are left out.
    pub fn new(secrets: impl IntoIterator<Item = SecretString>) -> Self {
        Self(secrets.into_iter().filter(|s| s.expose_secret().len() >= 8).collect())
    }

    /// The text without the secrets.
    pub fn clean(&self, mut text: String) -> String {
        for secret in &self.0 {
            if text.contains(secret.expose_secret()) {
                text = text.replace(secret.expose_secret(), Self::MARK);
            }
        }
        text
    }
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} secrets)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_are_replaced_and_never_shown() {
        let redactor = Redactor::new(["sk-canary-123456".into(), "x".into()]);
        assert_eq!(redactor.clean("key sk-canary-123456 x".into()), "key [redacted] x");
        assert!(!format!("{redactor:?}").contains("canary"));
    }
}
