//! What steers a session, as it is named: a protocol, and who gives second opinions.

use std::path::Path;

use super::failure::Failure;
use super::resolve;
use super::setup::App;
use crate::assets::Overlay;
use crate::error::ErrorCode;
use crate::prompts::Store;
use crate::protocol::schema::Trust;
use crate::protocol::variables::Purpose;
use crate::protocol::{Options, load, store};
use crate::provider::{Choice, connect};
use crate::referee::ModelReferee;
use crate::review::plain;
use crate::session::opinion::{OFFLINE, Referee};
use crate::session::protocols::{Asked, needs_referee};
use crate::session::start::Plan;

/// The protocol that is named: by its file, or by its name.
pub fn asked(app: &App, named: &str, vars: &[(String, String)]) -> Result<Asked, Failure> {
    let path = Path::new(named);
    let (file, text) = if path.is_file() || named.contains('/') {
        (named.to_owned(), resolve::file(path)?)
    } else {
        let files = Overlay::protocols(Some(app.folders.protocols()));
        let (entry, text) = store::find(&files, named)?;
        (entry.file, text)
    };
    let mut asked = Asked { file, text, ..Asked::default() };
    for (name, value) in vars {
        asked.values.set(name, value.as_str(), Trust::User);
    }
    Ok(asked)
}

/// What a protocol's file says of who works and who judges.
#[derive(Default)]
pub struct Wishes {
    /// The model that works.
    pub model: Option<String>,
    /// The referee, as `PROVIDER[:MODEL]`.
    pub referee: Option<String>,
}

/// The wishes of a protocol, as far as its file can be read.
pub fn wishes(asked: &Asked) -> Wishes {
    let options = Options { purpose: Purpose::Check, ..Options::default() };
    let loaded = load(&asked.file, &asked.text, &options);
    let Some(protocol) = loaded.draft() else { return Wishes::default() };
    let referee = &protocol.referee;
    let named = |provider: &String| match &referee.model {
        Some(model) => format!("{provider}:{model}"),
        None => provider.clone(),
    };
    Wishes { model: protocol.model.clone(), referee: referee.provider.as_ref().map(named) }
}

/// Who gives second opinions: `offline`, or `PROVIDER[:MODEL]`.
pub fn referee(app: &App, named: Option<&str>, prompts: &Store, seed: u64) -> Result<Referee, Failure> {
    let Some(named) = named else { return Ok(Referee::Nobody) };
    let (provider, model) = match named.split_once(':') {
        Some((provider, model)) => (provider, Some(model.to_owned())),
        None => (named, None),
    };
    if provider == OFFLINE {
        return Ok(Referee::Offline);
    }
    let choice = Choice { provider: provider.to_owned(), model, base_url: None, seed };
    let provider = connect(&app.registry(), &choice)?;
    Ok(Referee::Model(ModelReferee::new(provider, prompts)?))
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
    let nobody = plan.start.referee.as_ref().is_none_or(|referee| referee.provider == OFFLINE);
    match &plan.protocol {
        Some(steered) if nobody && needs_referee(&steered.protocol) => {
            let message =
                "in the original format a referee names the next state, and there is none that reads";
            Err(Failure::new(ErrorCode::InvalidInput, message)
                .remedy("name one: --referee PROVIDER[:MODEL], a model that sees pictures"))
        }
        _ => Ok(()),
    }
}
