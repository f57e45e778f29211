//! The original format: a file with an initial state and states of a name, instructions and criteria, and the
//! fields of its configuration.

use serde::Deserialize;

use super::schema::{Document, StateSpec};

/// The original's limit on transitions.
pub(super) const TRANSITIONS: u32 = 20;
/// The original's attempts in a state, the first included.
pub(super) const ATTEMPTS: u32 = 3;

/// A whole file. Its variables are read before it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CompatDocument {
    pub initial_state: String,
    pub states: Vec<CompatState>,
    /// 1, if it says.
    pub protocol_version: Option<u32>,
    pub name: Option<String>,
    #[serde(default)]
    pub description: String,
    pub max_iterations: Option<u32>,
    pub max_retries: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CompatState {
    pub name: String,
    #[serde(default)]
    pub instructions: String,
    #[serde(default)]
    pub validation_criteria: String,
}

impl From<CompatDocument> for Document {
    fn from(compat: CompatDocument) -> Self {
        let state = |state: CompatState| StateSpec {
            name: state.name,
            instructions: state.instructions,
            validation_criteria: state.validation_criteria,
            ..StateSpec::default()
        };
        Self {
            protocol_version: compat.protocol_version,
            name: compat.name,
            description: compat.description,
            initial_state: compat.initial_state,
            max_iterations: compat.max_iterations,
            max_retries: compat.max_retries,
            states: compat.states.into_iter().map(state).collect(),
            ..Self::default()
        }
    }
}
