//! Keys: where they come from. They are wrapped as they are read, and no message quotes them.

use std::process::Command;

use secrecy::SecretString;

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
