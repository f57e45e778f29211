//! What all cells of a run share.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::budget::Budget;
use crate::eval::baselines;
use crate::eval::golden::Golden;
use crate::eval::manifest::{Contestant, MadeWith};
use crate::eval::metrics::{EDGE, METRICS_VERSION};
use crate::eval::scenario::Scenario;
use crate::launch::{Ask, Launcher};
use crate::provider::{Choice, ModelInfo, Provider};
use crate::session::ENGINE;
use crate::session::protocols::ProtocolSource;
use crate::tools;
use base::assets::Overlay;
use base::error::Fault;
use base::ids::Hash;
use darktable::baseline::Untouched;
use darktable::render::{RenderError, Renderer};

/// What all cells of a run share.
pub struct EvalContext {
    /// The folder of evaluations.
    pub home: PathBuf,
    /// The set.
    pub golden: Golden,
    /// Where raws are looked for that are not beside their scenario.
    pub raws: Option<PathBuf>,
    /// What sessions are made with.
    pub launcher: Launcher,
    /// The renderer of all sessions and measurements.
    pub renderer: Arc<dyn Renderer>,
    /// Asks darktable about a raw.
    pub ask: Arc<Ask>,
    /// The model that goes on where a contestant fails for good, as `PROVIDER[:MODEL]`.
    pub fallback: Option<String>,
    /// The protocols of the run, each by its name in the request.
    pub protocols: BTreeMap<String, ProtocolSource>,
    /// The files of the vocabulary.
    pub vocabulary_files: Overlay,
    /// What darktable reported of raws already: scenarios and repeats share them.
    pub defaults: Mutex<HashMap<PathBuf, Untouched>>,
}

/// A contestant as it takes part on one scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Entrant {
    /// Its provider, or the baseline's name.
    pub provider: String,
    /// Its model.
    pub model: String,
    /// Whether it costs nothing.
    pub free: bool,
    /// What else identifies it, the model that goes on in its place included.
    pub facts: BTreeMap<String, String>,
    /// That model.
    pub fallback: Option<ModelInfo>,
}

impl EvalContext {
    /// The contestant on a scenario with a seed. Reads its key, once for all scenarios (`known` keeps what was
    /// found); sends nothing.
    pub fn entrant(
        &self,
        who: &Contestant,
        scenario: &Scenario,
        seed: u64,
        known: &mut BTreeMap<(Contestant, u64), Entrant>,
    ) -> Result<Entrant, Fault> {
        if let Some(script) = script(who, scenario) {
            let facts = [("script_sha256".to_owned(), Hash::of(script).to_string())].into();
            return Ok(Entrant {
                provider: who.provider.clone(),
                model: "baseline".into(),
                free: true,
                facts,
                fallback: None,
            });
        }
        if let Some(entrant) = known.get(&(who.clone(), seed)) {
            return Ok(entrant.clone());
        }
        let provider = self.connect(who, seed)?;
        let info = provider.info();
        let other = self.other(who, seed)?.map(|other| other.info().clone());
        let mut facts = info.facts.clone();
        if let Some(other) = &other {
            facts.insert("fallback".to_owned(), format!("{}/{}", other.provider, other.model));
        }
        let entrant = Entrant {
            provider: info.provider.clone(),
            model: info.model.clone(),
            free: info.free && other.as_ref().is_none_or(|other| other.free),
            facts,
            fallback: other,
        };
        known.insert((who.clone(), seed), entrant.clone());
        Ok(entrant)
    }

    /// Connects a contestant.
    pub(super) fn connect(&self, who: &Contestant, seed: u64) -> Result<Arc<dyn Provider>, Fault> {
        let choice =
            Choice { provider: who.provider.clone(), model: who.model.clone(), base_url: None, seed };
        self.launcher.connect(&choice)
    }

    /// The model that goes on where this contestant fails for good; a baseline has none.
    pub(super) fn other(&self, who: &Contestant, seed: u64) -> Result<Option<Arc<dyn Provider>>, Fault> {
        let named = self.fallback.as_deref().filter(|_| !baselines::is(who));
        self.launcher.fallback(named, seed)
    }

    /// The budget of a session on a scenario: its own, with the cost of one cell cut to `most`.
    pub fn budget(scenario: &Scenario, free: bool, most: Option<u64>) -> Budget {
        let mut budget = scenario.budget.clone();
        if !free {
            let caps = [budget.max_cost_micro_usd, most];
            budget.max_cost_micro_usd = caps.into_iter().flatten().min();
        }
        budget
    }

    /// What darktable does to a raw by default; it is asked once for each raw.
    pub(super) fn defaults(&self, raw: &Path) -> Result<Untouched, RenderError> {
        let defaults = || self.defaults.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = defaults().get(raw) {
            return Ok(known.clone());
        }
        let reported = (self.ask)(raw)?;
        defaults().insert(raw.to_owned(), reported.clone());
        Ok(reported)
    }
}

/// The script of a baseline on a scenario; `None` for everyone else.
pub(super) fn script(who: &Contestant, scenario: &Scenario) -> Option<String> {
    match who.provider.as_str() {
        "idle" => Some(baselines::idle(scenario)),
        "oracle" => Some(baselines::oracle(scenario)),
        _ => None,
    }
}

/// What all sessions of a run are made with.
pub(super) fn made_with(context: &EvalContext, binary: Hash) -> MadeWith {
    MadeWith {
        chemigram: env!("CARGO_PKG_VERSION").into(),
        engine: ENGINE,
        binary,
        darktable: context.renderer.darktable_version().into(),
        vocabulary: vocabulary_hash(&context.vocabulary_files),
        tools: Hash::of(serde_json::to_vec(&tools::specs()).unwrap_or_default()),
        metrics: METRICS_VERSION,
        preview_edge: EDGE,
    }
}

/// The hash of all files of the vocabulary, names included.
fn vocabulary_hash(files: &Overlay) -> Hash {
    let mut all = BTreeMap::new();
    for folder in ["", "looks", "masks", "modules", "moves", "styles", "bindings"] {
        for name in files.list(folder, "").into_keys() {
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            if let Some(bytes) = files.read(&path) {
                all.insert(path, Hash::of(bytes));
            }
        }
    }
    Hash::of(serde_json::to_vec(&all).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_vocabulary_counts() {
        let own = tempfile::tempdir().unwrap();
        let files = || Overlay::vocabulary(Some(own.path().to_owned()));
        let before = vocabulary_hash(&files());
        assert_eq!(before, vocabulary_hash(&Overlay::vocabulary(None)));
        std::fs::create_dir(own.path().join("looks")).unwrap();
        std::fs::write(own.path().join("looks/mine.toml"), "# nothing yet").unwrap();
        assert_ne!(vocabulary_hash(&files()), before);
    }
}
