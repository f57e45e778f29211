//! `--provider`, `--model` and `--record`: which model is asked.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use super::failure::Failure;
use super::setup::App;
use crate::launch::Launcher;
use crate::provider::{Choice, Provider, Recording};

// Which provider and model.
#[derive(Args, Clone, Debug)]
pub struct ChoiceArgs {
    /// The provider of the model; `explorer` needs no key, `manual:DIR` asks you through files in a folder, `cassette:DIR` plays a recording [default: explorer]
    #[arg(long, value_name = "NAME[:MODEL]")]
    pub provider: Option<String>,
    /// The provider's model; for `script`, a file, for `manual`, a folder
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Record every request to a server and its reply in this folder, without keys
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
}

impl ChoiceArgs {
    /// The provider: the one named, else the one in the environment, else the explorer.
    pub fn choice(&self, seed: u64) -> Choice {
        crate::launch::choice(self.provider.clone(), self.model.clone(), seed)
    }

    /// What sessions are made with, which records where that is asked for.
    pub fn launcher(&self, app: &App, prompts: Option<&PathBuf>) -> Result<Launcher, Failure> {
        let mut launcher = app.launcher(prompts)?;
        launcher.registry = launcher.registry.recording(self.record.clone().map(Recording::Together));
        Ok(launcher)
    }

    /// Connects the model, and refuses to record one that asks no server.
    pub fn connect(&self, launcher: &Launcher, choice: &Choice) -> Result<Arc<dyn Provider>, Failure> {
        let provider = launcher.connect(choice)?;
        let asks = launcher.registry.get(&choice.provider)?.dialect.path().is_some();
        if self.record.is_some() && !asks {
            return Err(Failure::input(format!(
                "`{}` asks no server, so nothing can be recorded",
                choice.provider
            ))
            .remedy("leave out --record, or name the provider of a model"));
        }
        Ok(provider)
    }
}
