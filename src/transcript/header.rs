//! The first line: what a session is about and what it was begun with.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::budget::{Budget, Reserve};
use base::ids::{Hash, PhotoId, RefName, SessionId, VectorName};

/// One axis to explore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Vector {
    /// Its name; the branch is `branch_b_<name>`.
    pub name: VectorName,
    /// Where to push, in the photographer's words.
    pub direction: String,
    /// How far, in the photographer's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intensity: Option<String>,
}

/// `NAME=DIRECTION[:INTENSITY]`; the last colon divides.
impl std::str::FromStr for Vector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = "write it like tone=\"more dramatic, open shadows\" or color=\"warmer\":subtle";
        let (name, rest) = text.split_once('=').ok_or_else(|| example.to_owned())?;
        let name: VectorName = name.trim().parse().map_err(|e: base::ids::InvalidName| e.to_string())?;
        let (direction, intensity) = rest.rsplit_once(':').unwrap_or((rest, ""));
        let unquoted = |text: &str| text.trim().trim_matches('"').trim().to_owned();
        let (direction, intensity) = (unquoted(direction), unquoted(intensity));
        if direction.is_empty() {
            return Err(format!("it says no direction: {example}"));
        }
        Ok(Self { name, direction, intensity: (!intensity.is_empty()).then_some(intensity) })
    }
}

/// A vector with the branch that will hold it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedBranch {
    /// The branch.
    pub branch: RefName,
    /// The vector, or `None` for an open-ended depth branch.
    pub vector: Option<Vector>,
}

/// What kind of session a transcript is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A conversation with the photographer.
    ModeA,
    /// An agent explores on its own.
    ModeB,
    /// A model writes a protocol.
    Generate,
}

/// The header line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionStart {
    /// The session's id.
    pub session: SessionId,
    /// What kind of session.
    pub mode: Mode,
    /// The photo.
    pub photo: PhotoId,
    /// SHA-256 of the raw.
    pub raw_sha256: Hash,
    /// The commit that the session forks from.
    pub baseline: Hash,
    /// How it was named.
    pub baseline_ref: String,
    /// The photographer's brief.
    pub brief: String,
    /// What to judge by.
    pub criteria: String,
    /// The criteria by name, where they were given so: each is answered in a judgment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub named_criteria: BTreeMap<String, String>,
    /// The branches to make, in order.
    pub branches: Vec<PlannedBranch>,
    /// The caps.
    pub budget: Budget,
    /// The slice kept for the wrap-up.
    pub reserve: Reserve,
    /// The provider's name.
    pub provider: String,
    /// The model asked for.
    pub model: String,
    /// Prompt name, version and hash.
    pub prompt: String,
    /// SHA-256 of the template.
    pub template_sha256: Hash,
    /// The rendered system prompt: a blob.
    pub system: Hash,
    /// The tool list: a blob.
    pub tools: Hash,
    /// Longest side of previews, in pixels.
    pub preview_edge: u32,
    /// By how much the copy of the raw is smaller that previews come from; none, and they come from the raw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<u32>,
    /// Whether nobody is at the keyboard.
    pub unattended: bool,
    /// The seed.
    pub seed: u64,
    /// Version of darktable.
    pub darktable: String,
    /// Version of this program.
    pub chemigram: String,
    /// The protocol that steers it, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<ProtocolStart>,
    /// Who gives a second opinion, if anyone does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub referee: Option<RefereeStart>,
    /// The model that goes on if this one fails for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<ModelName>,
    /// In a conversation, the tools after whose success the photographer speaks next; without them, after a reply
    /// without a call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hands_back: Vec<String>,
}

/// A model and its provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ModelName {
    /// The provider.
    pub provider: String,
    /// The model's id there.
    pub model: String,
}

/// The protocol of a session, as it was loaded: loaded again in the same way it is the same protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProtocolStart {
    /// Its name.
    pub name: String,
    /// Its file's name, which says how it is written.
    pub file: String,
    /// Its text: a blob.
    pub source: Hash,
    /// The values of its variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, VariableValue>,
    /// The tools that the host allowed; every one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<Vec<String>>,
}

/// A value of a protocol's variable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VariableValue {
    /// The value.
    pub value: Value,
    /// Who gave it: `host`, `user` or `image`.
    pub by: String,
}

/// Who gives second opinions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RefereeStart {
    /// Its provider; `offline` for the one that works from numbers alone.
    pub provider: String,
    /// Its model.
    pub model: String,
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_a_name_a_direction_and_perhaps_an_intensity() {
        let read = |text: &str| text.parse().map(|v: Vector| (v.name.to_string(), v.direction, v.intensity));
        let some = |a: &str, b: &str, c: Option<&str>| Ok((a.into(), b.into(), c.map(Into::into)));
        assert_eq!(read("tone=more dramatic, open"), some("tone", "more dramatic, open", None));
        assert_eq!(read("color=warmer:subtle"), some("color", "warmer", Some("subtle")));
        assert_eq!(read("color=\"warmer\":\"very subtle\""), some("color", "warmer", Some("very subtle")));
        assert_eq!(read("a=like this: evening:"), some("a", "like this: evening", None));
        for bad in ["tone", "Tone=x", "=x", "tone=", "tone= :strong"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
