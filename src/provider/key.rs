//! Keys: where they come from, and how they stay out of everything that is written.

use std::process::Command;

use secrecy::{ExposeSecret, SecretString};

use super::profile::{Profile, SetupError};

/// Reads the key of `profile`: from its environment variable, else from its command (which only a profile
/// in the user's own folder may name). `None` where the profile does without.
pub(super) fn read(
    profile: &Profile,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<SecretString>, SetupError> {
    if let Some(name) = &profile.key_env
        && let Some(key) = env(name).map(|k| k.trim().to_owned()).filter(|k| !k.is_empty())
    {
        return usable(profile, key).map(Some);
    }
    if !profile.key_cmd.is_empty() {
        return command(profile).map(Some);
    }
    match &profile.key_env {
        Some(name) if !profile.key_optional => {
            Err(SetupError::MissingKey { provider: profile.name.clone(), env: name.clone() })
        }
        _ => Ok(None),
    }
}

fn command(profile: &Profile) -> Result<SecretString, SetupError> {
    let failed = |cause: String| SetupError::KeyCommand { provider: profile.name.clone(), cause };
    let Some((program, arguments)) = profile.key_cmd.split_first() else {
        return Err(failed("it is empty".to_owned()));
    };
    let output = Command::new(program).args(arguments).output().map_err(|e| failed(e.to_string()))?;
    if !output.status.success() {
        return Err(failed(format!("`{program}` ended with {}", output.status)));
    }
    let key = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if key.is_empty() {
        return Err(failed(format!("`{program}` printed nothing")));
    }
    usable(profile, key)
}

/// A key must fit into an HTTP header; the message never quotes it.
fn usable(profile: &Profile, key: String) -> Result<SecretString, SetupError> {
    if key.bytes().all(|b| b.is_ascii_graphic()) {
        Ok(SecretString::from(key))
    } else {
        Err(SetupError::BadKey { provider: profile.name.clone() })
    }
}

/// Removes a key from what a server sent, should it echo it.
#[derive(Debug)]
pub(super) struct Redactor(Option<SecretString>);

impl Redactor {
    /// What stands in its place.
    pub const MARK: &'static str = "[key removed]";

    /// A redactor for `key`. Dummy keys of local servers (under eight letters) are no secret, and
    /// removing them would tear ordinary words.
    pub fn new(key: Option<&SecretString>) -> Self {
        Self(key.filter(|k| k.expose_secret().len() >= 8).cloned())
    }

    /// The text without the key.
    pub fn text(&self, text: &str) -> String {
        match &self.0 {
            Some(key) => text.replace(key.expose_secret(), Self::MARK),
            None => text.to_owned(),
        }
    }

    /// The bytes without the key.
    pub fn bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        let Some(key) = &self.0 else { return bytes };
        let key = key.expose_secret().as_bytes();
        if !bytes.windows(key.len()).any(|w| w == key) {
            return bytes;
        }
        let mut clean = Vec::with_capacity(bytes.len());
        let mut rest = bytes.as_slice();
        while let Some((first, tail)) = rest.split_first() {
            if let Some(after) = rest.strip_prefix(key) {
                clean.extend_from_slice(Self::MARK.as_bytes());
                rest = after;
            } else {
                clean.push(*first);
                rest = tail;
            }
        }
        clean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echoed_key_is_removed_wherever_it_stands() {
        let key = SecretString::from("sk-canary-1234567890".to_owned());
        let redactor = Redactor::new(Some(&key));
        assert_eq!(redactor.text("bad key sk-canary-1234567890!"), "bad key [key removed]!");
        let clean = redactor.bytes(b"\xff sk-canary-1234567890sk-canary-1234567890".to_vec());
        assert_eq!(clean, b"\xff [key removed][key removed]");
        let dummy = Redactor::new(Some(&SecretString::from("a".to_owned())));
        assert_eq!(dummy.text("banana"), "banana");
    }
}
