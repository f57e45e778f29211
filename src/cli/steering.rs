//! What steers a session, as it is named: a protocol, and who gives second opinions.

use std::path::Path;

use super::failure::Failure;
use super::resolve;
use super::setup::App;
use crate::protocol::schema::Trust;
use crate::protocol::store;
use crate::review::plain;
use crate::session::protocols::{ProtocolSource, needs_referee};
use crate::session::start::Plan;
use base::assets::Overlay;

/// Whether a protocol is named by its file.
pub fn is_file(named: &str) -> bool {
    Path::new(named).is_file() || named.contains('/')
}

/// The protocol that is named: by its file, or by its name.
pub fn asked(app: &App, named: &str, vars: &[(String, String)]) -> Result<ProtocolSource, Failure> {
    let (file, text) = if is_file(named) {
        (named.to_owned(), resolve::file(Path::new(named))?)
    } else {
        let files = Overlay::protocols(Some(app.folders.protocols()));
        let (entry, text) = store::find(&files, named)?;
        (entry.file, text)
    };
    let mut asked = ProtocolSource { file, text, ..ProtocolSource::default() };
    for (name, value) in vars {
        asked.values.set(name, value.as_str(), Trust::User);
    }
    Ok(asked)
}

/// Says what is worth knowing of a plan before it begins.
pub fn remarks(app: &App, plan: &Plan) {
    let Some(steered) = &plan.protocol else { return };
    for warning in &steered.warnings {
        app.output.remark(&plain(&warning.to_string()));
    }
    if let Some(referee) = plan.start.referee.as_ref()
        && (&referee.provider, &referee.model) == (&plan.start.provider, &plan.start.model)
    {
        app.output.remark("the referee is the model that it referees: another one would be a second opinion");
    }
}

/// A protocol of the original format cannot run without somebody who names the next state.
pub fn check_referee(plan: &Plan) -> Result<(), Failure> {
    let Some(steered) = &plan.protocol else { return Ok(()) };
    Ok(needs_referee(&steered.protocol, &plan.referee)?)
}
