//! One tiny real call that says what works.

use super::{FaultClass, Provider, ProviderFault, Usage};

/// What one tiny call with one tool has shown.
#[derive(Clone, Debug)]
pub struct CheckReport {
    /// Whether a reply came at all.
    pub answered: bool,
    /// Whether the tool was called, by its name and with readable arguments.
    pub called_tool: bool,
    /// The model that answered, as it names itself.
    pub model_served: Option<String>,
    /// Tokens, where reported.
    pub usage: Usage,
    /// Time to the whole reply.
    pub took: std::time::Duration,
    /// What is worth knowing.
    pub notes: Vec<String>,
    /// Why no reply came.
    pub fault: Option<ProviderFault>,
}

/// Makes one tiny call with one tool. It costs what such a call costs.
pub async fn check(provider: &dyn Provider) -> CheckReport {
    let _ = (provider, FaultClass::Garbage);
    todo_report()
}
fn todo_report() -> CheckReport {
    CheckReport {
        answered: false,
        called_tool: false,
        model_served: None,
        usage: Usage::default(),
        took: Default::default(),
        notes: vec![],
        fault: None,
    }
}
