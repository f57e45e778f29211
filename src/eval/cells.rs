//! One cell: an ordinary session on a fresh copy of a scenario, in a folder named by everything that matters.
//!
//! ```text
//! cells/<key>/
//!   inputs.json      what the key is the hash of
//!   photos/ tastes/  the session's library: workspace, transcript, previews
//!   failed_1/ …      libraries of attempts that the surroundings cut
//!   failures.jsonl   why
//!   cell.json        what came of it; with this file, the cell is never run again
//! ```
//!
//! A session without a closing line goes on where it stopped; one that the provider or the engine failed is set
//! aside and begun anew. What is left of it is evidence, and what it spent stays on the bill.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::budget::{Amounts, Budget};
use crate::eval::baselines;
use crate::eval::golden::Golden;
use crate::eval::manifest::{CellRecord, CellStatus, Contestant, Done, Failure, MadeWith};
use crate::eval::metrics::{EDGE, Finished, METRICS_VERSION, MeasureContext, measure};
use crate::eval::scenario::Scenario;
use crate::eval::steering::{Protocol, Steered};
use crate::prompts::Store;
use crate::provider::{Choice, Provider, Registry, connect};
use crate::session::driver::Session;
use crate::session::listing::{self, Condition};
use crate::session::opinion::Referee;
use crate::session::protocols;
use crate::session::start::{self, Resume, Setup};
use crate::session::{ENGINE, SessionError};
use crate::tools;
use crate::transcript::{Event, Outcome, SessionEnd};
use base::assets::Overlay;
use base::clock::{Deadline, Stop, SystemClock};
use base::durable;
use base::error::{ErrorCode, Fault};
use base::files;
use base::ids::Hash;
use base::redact::Redactor;
use darktable::baseline::Untouched;
use darktable::layout::Layouts;
use darktable::render::{RenderError, Renderer};
use engine::photo::{Library, Workspace};
use engine::vocabulary::Vocabulary;

/// The version of [`Inputs`].
const FORMAT: u32 = 2;
/// Attempts at one cell in one sitting.
pub const ATTEMPTS: u64 = 3;
/// How long darktable may take over one picture that is measured.
const PATIENCE: Duration = Duration::from_secs(600);

/// Asks darktable about a raw.
pub type Ask = dyn Fn(&Path) -> Result<Untouched, RenderError> + Send + Sync;

/// Runs a session to its end; `None` if it was cut and can go on. The runtime is the caller's.
pub type Execute<'a> = dyn Fn(&mut Session) -> Result<Option<SessionEnd>, SessionError> + Sync + 'a;

/// What every cell needs.
pub struct EvalContext {
    /// The folder of evaluations.
    pub home: PathBuf,
    /// The set.
    pub golden: Golden,
    /// Where raws are looked for that are not beside their scenario.
    pub raws: Option<PathBuf>,
    /// The providers.
    pub registry: Registry,
    /// The prompts.
    pub prompts: Overlay,
    /// The protocols of the run, by what they are asked for as.
    pub protocols: BTreeMap<String, protocols::ProtocolSource>,
    /// The files of the vocabulary.
    pub vocabulary_files: Overlay,
    /// The moves.
    pub vocabulary: Arc<Vocabulary>,
    /// The layouts.
    pub layouts: Arc<Layouts>,
    /// The eyes.
    pub renderer: Arc<dyn Renderer>,
    /// What darktable does to a raw by default.
    pub ask: Box<Ask>,
    /// What no transcript may hold.
    pub redactor: Redactor,
    /// Untouched that were asked for already, by raw: scenarios and repeats share them.
    pub asked: Mutex<HashMap<PathBuf, Untouched>>,
}

/// Everything that matters to what a session does: the key of a cell is its hash. The executable is not part of
/// it: another build of the same engine does the same, and whoever looks at figures pays for no session twice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inputs {
    format: u32,
    scenario: String,
    scenario_sha256: Hash,
    prompt: String,
    template_sha256: Hash,
    provider: String,
    model: String,
    facts: BTreeMap<String, String>,
    seed: u64,
    budget: Budget,
    chemigram: String,
    engine: u32,
    darktable: String,
    vocabulary: Hash,
    tools: Hash,
    preview_edge: u32,
    /// Left out where nothing steers, so that a session of the free loop has the key that it always had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    steered: Option<Steered>,
}

impl Inputs {
    /// Of a session on `scenario`.
    pub fn of(
        scenario: &Scenario,
        (prompt, template_sha256): (&str, &Hash),
        seat: &Entrant,
        seed: u64,
        budget: Budget,
        with: &MadeWith,
        steered: Option<Steered>,
    ) -> Self {
        Self {
            format: FORMAT,
            scenario: scenario.id.clone(),
            scenario_sha256: scenario.sha256.clone(),
            prompt: prompt.to_owned(),
            template_sha256: template_sha256.clone(),
            provider: seat.provider.clone(),
            model: seat.model.clone(),
            facts: seat.facts.clone(),
            seed,
            budget,
            chemigram: with.chemigram.clone(),
            engine: with.engine,
            darktable: with.darktable.clone(),
            vocabulary: with.vocabulary.clone(),
            tools: with.tools.clone(),
            preview_edge: with.preview_edge,
            steered,
        }
    }

    /// The key.
    pub fn key(&self) -> Hash {
        Hash::of(serde_json::to_vec(self).unwrap_or_default())
    }
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
    /// What else identifies it.
    pub facts: BTreeMap<String, String>,
}

impl EvalContext {
    /// The contestant on a scenario with a seed. Reads its key, once for all scenarios (`known` keeps what was
    /// found); sends nothing.
    pub fn seat(
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
            });
        }
        if let Some(seat) = known.get(&(who.clone(), seed)) {
            return Ok(seat.clone());
        }
        let provider = self.connect(who, seed)?;
        let info = provider.info();
        let seat = Entrant {
            provider: info.provider.clone(),
            model: info.model.clone(),
            free: info.free,
            facts: info.facts.clone(),
        };
        known.insert((who.clone(), seed), seat.clone());
        Ok(seat)
    }

    fn connect(&self, who: &Contestant, seed: u64) -> Result<Arc<dyn Provider>, Fault> {
        let choice =
            Choice { provider: who.provider.clone(), model: who.model.clone(), base_url: None, seed };
        connect(&self.registry, &choice).map_err(|e| Fault::from(&e))
    }

    /// Who gives second opinions, connected anew: `offline`, or `PROVIDER[:MODEL]`.
    pub fn referee(&self, named: Option<&str>, seed: u64) -> Result<Referee, Fault> {
        Referee::named(named, &self.registry, &self.store()?, seed)
    }

    /// A store of the prompts.
    pub fn store(&self) -> Result<Store, Fault> {
        Store::new(self.prompts.clone()).map_err(|e| Fault::from(&e))
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

    fn defaults(&self, raw: &Path) -> Result<Untouched, RenderError> {
        let known = |asked: &HashMap<PathBuf, Untouched>| asked.get(raw).cloned();
        if let Some(defaults) = known(&self.asked.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(defaults);
        }
        let defaults = (self.ask)(raw)?;
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.insert(raw.to_owned(), defaults.clone());
        Ok(defaults)
    }
}

/// The script of a baseline on a scenario; `None` for everyone else.
fn script(who: &Contestant, scenario: &Scenario) -> Option<String> {
    match who.provider.as_str() {
        "idle" => Some(baselines::idle(scenario)),
        "oracle" => Some(baselines::oracle(scenario)),
        _ => None,
    }
}

/// What is done about one cell.
pub struct Job<'a> {
    /// What all cells share.
    pub surroundings: &'a EvalContext,
    /// The run that pays.
    pub run: &'a str,
    /// SHA-256 of the executable.
    pub binary: &'a Hash,
    /// The cell.
    pub cell: &'a CellRecord,
    /// Its scenario.
    pub scenario: &'a Scenario,
    /// Who works on it.
    pub who: &'a Contestant,
    /// What steers it; the free loop if nothing.
    pub protocol: Option<&'a Protocol>,
    /// What it may spend.
    pub budget: &'a Budget,
    /// Asked before an attempt is repeated, with what the failed one spent: whether the run has room for another.
    pub again: &'a dyn Fn(Amounts) -> bool,
}

/// What is on disk about a finished cell, measured by the present metrics or not.
pub fn finished(home: &Path, key: &Hash) -> Option<Done> {
    let text = files::read_text(&folder(home, key).join("cell.json"), files::LARGEST_LIST).ok()?;
    serde_json::from_str(&text).ok()
}

/// The folder of a cell.
pub fn folder(home: &Path, key: &Hash) -> PathBuf {
    home.join("cells").join(key.as_str())
}

/// The photo of a cell, for looking at what a session left.
pub fn workspace(home: &Path, cell: &CellRecord) -> Option<Workspace> {
    let library = Library::new(folder(home, &cell.key).join("photos"));
    library.open(&cell.scenario.parse().ok()?).ok()
}

impl Job<'_> {
    fn folder(&self) -> PathBuf {
        folder(&self.surroundings.home, &self.cell.key)
    }

    /// Runs the cell, as far as it has not been run. Failures of the surroundings are tried again.
    pub fn run(&self, inputs: &Inputs, execute: &Execute<'_>) -> CellStatus {
        let before = finished(&self.surroundings.home, &self.cell.key);
        if let Some(done) = before.as_ref().filter(|done| done.measured.version == METRICS_VERSION) {
            return CellStatus::Done(Box::new(done.clone()));
        }
        // What is measured anew was paid, and made, by whoever ran it.
        let origin = match before {
            Some(done) => (done.paid_by, done.binary),
            None => (self.run.to_owned(), Some(self.binary.clone())),
        };
        for attempt in 1.. {
            match self.attempt(inputs, &origin, execute) {
                Ok(Some(done)) => return CellStatus::Done(Box::new(done)),
                Ok(None) => {
                    let why = "it was interrupted, and can be resumed".into();
                    return CellStatus::NotRun { why, failures: self.failures() };
                }
                Err((fault, spent)) => {
                    let helps = matches!(
                        fault.code,
                        ErrorCode::ProviderError | ErrorCode::DarktableError | ErrorCode::Interrupted
                    );
                    self.note(&fault, spent);
                    if attempt >= ATTEMPTS || !helps || !(self.again)(spent) {
                        break;
                    }
                }
            }
        }
        CellStatus::Failed { failures: self.failures() }
    }

    /// One attempt; an error is the surroundings', with what it had spent.
    fn attempt(
        &self,
        inputs: &Inputs,
        (payer, binary): &(String, Option<Hash>),
        execute: &Execute<'_>,
    ) -> Result<Option<Done>, (Fault, Amounts)> {
        let nothing = |fault: Fault| (fault, Amounts::default());
        let folder = self.folder();
        let text = serde_json::to_vec_pretty(inputs).unwrap_or_default();
        write(&folder.join("inputs.json"), &text).map_err(nothing)?;
        let (workspace, session) = match self.begin().map_err(nothing)? {
            Begun::Session(workspace, mut session) => {
                let ended =
                    execute(&mut session).map_err(|e| (Fault::from(&e), session.gate.ledger().settled()))?;
                if ended.is_none() {
                    return Ok(None);
                }
                (workspace, session.state.start.session.clone())
            }
            Begun::Ended(workspace, id) => (workspace, id),
        };
        let session = listing::read(&workspace, &session).map_err(|e| nothing(Fault::from(&e)))?;
        let spent = session.ledger.settled();
        let Some(end) = session.state.end.as_ref() else {
            return Err((Fault::new(ErrorCode::Interrupted, "the session did not end"), spent));
        };
        if let Some(code) = failed(end.outcome) {
            let reason = format!("{}: {}", end.outcome.as_str(), end.reason);
            self.set_aside().map_err(nothing)?;
            return Err((Fault::new(code, reason), spent));
        }
        let deadline = Deadline::after(Arc::new(SystemClock), PATIENCE);
        let surroundings = self.surroundings;
        let eyes = MeasureContext {
            vocabulary: &surroundings.vocabulary,
            layouts: &surroundings.layouts,
            renderer: surroundings.renderer.as_ref(),
            deadline: &deadline,
        };
        let finished = Finished { workspace: &workspace, session: &session };
        let measured = measure(self.scenario, &finished, &eyes).map_err(|e| nothing(Fault::from(&e)))?;
        let served = session.lines.iter().filter_map(|line| match &line.event {
            Event::ModelReply { model_served, .. } => model_served.clone(),
            _ => None,
        });
        let done = Done {
            session: session.id.to_string(),
            outcome: end.outcome,
            cap: end.cap,
            models_served: served.collect::<BTreeSet<_>>(),
            spent,
            wall_ms: tools::millis(session.elapsed()),
            ended: session.lines.last().map(|line| line.t).unwrap_or_default(),
            paid_by: payer.clone(),
            binary: binary.clone(),
            measured,
            failures: self.failures(),
        };
        let text = serde_json::to_vec_pretty(&done).unwrap_or_default();
        write(&folder.join("cell.json"), &text).map_err(nothing)?;
        Ok(Some(done))
    }

    /// Stages the scenario, and takes up the session that is there, or starts one.
    fn begin(&self) -> Result<Begun, Fault> {
        let mut workspace = match self.stage() {
            Ok(workspace) => workspace,
            // A kill in the middle of taking the raw in leaves a folder that cannot be opened.
            Err(_) if self.folder().join("photos").is_dir() => {
                self.set_aside()?;
                self.stage()?
            }
            Err(fault) => return Err(fault),
        };
        let sessions = listing::of_photo(&workspace).map_err(|e| Fault::from(&e))?;
        if let Some(id) = sessions.first() {
            match listing::summary(&workspace, id).condition {
                Condition::Running { pid } => {
                    let message = format!("process {pid} is running this session");
                    return Err(Fault::new(ErrorCode::StateError, message));
                }
                Condition::Interrupted => {
                    let setup = self.setup(workspace.clone())?;
                    let with = Resume { referee: self.referee()?, ..Resume::default() };
                    let session = start::resume(setup, id, with).map_err(|e| Fault::from(&e))?;
                    return Ok(Begun::Session(workspace, Box::new(session)));
                }
                Condition::Ended { outcome }
                    if outcome != Outcome::Cancelled && failed(outcome).is_none() =>
                {
                    return Ok(Begun::Ended(workspace, id.clone()));
                }
                Condition::Ended { .. } | Condition::Damaged { .. } => {
                    self.set_aside()?;
                    workspace = self.stage()?;
                }
            }
        }
        let setup = self.setup(workspace.clone())?;
        let mut request = self.scenario.request(&self.cell.prompt, self.cell.seed);
        request.budget = self.budget.clone();
        let plan = match self.protocol {
            Some(protocol) => protocols::plan(&setup, &request, &protocol.asked),
            None => start::plan(&setup, &request),
        };
        let referee = self.referee()?;
        let plan = plan.and_then(|plan| plan.with_referee(referee)).map_err(|e| Fault::from(&e))?;
        let session = start::start(setup, plan).map_err(|e| Fault::from(&e))?;
        Ok(Begun::Session(workspace, Box::new(session)))
    }

    /// Who gives second opinions in this session.
    fn referee(&self) -> Result<Referee, Fault> {
        match self.protocol {
            Some(protocol) => protocol.referee(self.surroundings, self.cell.seed),
            None => Ok(Referee::Nobody),
        }
    }

    fn stage(&self) -> Result<Workspace, Fault> {
        let library = Library::new(self.folder().join("photos"));
        let ask = |raw: &Path| self.surroundings.defaults(raw);
        let raws = self.surroundings.raws.as_deref();
        self.scenario.stage(&library, &self.folder().join("tastes"), raws, &ask).map_err(|e| Fault::from(&e))
    }

    fn setup(&self, workspace: Workspace) -> Result<Setup, Fault> {
        let surroundings = self.surroundings;
        let provider = match script(self.who, self.scenario) {
            Some(text) => {
                let path = self.folder().join("baseline.toml");
                write(&path, text.as_bytes())?;
                let model = Some(path.to_string_lossy().into_owned());
                surroundings.connect(&Contestant { provider: "script".into(), model }, self.cell.seed)?
            }
            None => surroundings.connect(self.who, self.cell.seed)?,
        };
        Ok(Setup {
            workspace,
            vocabulary: surroundings.vocabulary.clone(),
            layouts: surroundings.layouts.clone(),
            renderer: surroundings.renderer.clone(),
            renderers: 1,
            tastes: self.folder().join("tastes"),
            provider,
            prompts: surroundings.store()?,
            clock: Arc::new(SystemClock),
            redactor: surroundings.redactor.clone(),
            // A signal lets sessions end by themselves or cuts them: none is wrapped up half-way.
            stop: Stop::default(),
        })
    }

    /// Puts the library of a failed attempt aside.
    fn set_aside(&self) -> Result<(), Fault> {
        let folder = self.folder();
        let free = (1..).map(|n| folder.join(format!("failed_{n}"))).find(|path| !path.exists());
        let free = free.unwrap_or_else(|| folder.join("failed"));
        std::fs::rename(folder.join("photos"), &free).map_err(|e| io("set aside", &free, &e))
    }

    fn note(&self, fault: &Fault, spent: Amounts) {
        let at = jiff::Timestamp::now();
        let failure = Failure { code: fault.code, message: fault.message.clone(), spent, at };
        let line = json!(failure).to_string();
        // The failure itself is on its way to the person; a note that cannot be written changes nothing.
        let _ = durable::append_line(&self.folder().join("failures.jsonl"), &line);
    }

    /// What becomes of a cell that the program itself broke off.
    pub fn broke(&self, fault: &Fault) -> CellStatus {
        let session = workspace(&self.surroundings.home, self.cell).and_then(|workspace| {
            let id = listing::of_photo(&workspace).ok()?.into_iter().next()?;
            listing::read(&workspace, &id).ok()
        });
        // What was under way may have been paid for.
        let spent = session.as_ref().map(|session| session.ledger.settled().plus(session.ledger.reserved()));
        self.note(fault, spent.unwrap_or_default());
        // What is on the bill now would come on it once more if the session went on. One that has ended waits to be
        // measured, and is not paid again.
        if session.is_some_and(|session| session.state.end.is_none()) {
            // Best effort: what was spent is written down.
            let _ = self.set_aside();
        }
        CellStatus::Failed { failures: self.failures() }
    }

    fn failures(&self) -> Vec<Failure> {
        let text =
            files::read(&self.folder().join("failures.jsonl"), files::LARGEST_LIST).unwrap_or_default();
        text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
    }
}

/// Where a cell stands when its turn has come.
enum Begun {
    /// A session that can run.
    Session(Workspace, Box<Session>),
    /// One that has ended and was not measured.
    Ended(Workspace, base::ids::SessionId),
}

/// The code of an outcome that is no result.
fn failed(outcome: Outcome) -> Option<ErrorCode> {
    match outcome {
        Outcome::ProviderFailed => Some(ErrorCode::ProviderError),
        Outcome::EngineFailed => Some(ErrorCode::DarktableError),
        Outcome::Cancelled | Outcome::Interrupted => Some(ErrorCode::Interrupted),
        Outcome::Completed
        | Outcome::BudgetExhausted
        | Outcome::NeedsClarification
        | Outcome::ProtocolFailed => None,
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Fault> {
    durable::write(path, bytes).map_err(|e| io("write", path, &e))
}

fn io(doing: &str, path: &Path, error: &std::io::Error) -> Fault {
    let code = crate::transcript::file_code(error);
    Fault::new(code, format!("cannot {doing} {}: {error}", path.display()))
}

/// What all sessions of a run are made with.
pub fn made_with(surroundings: &EvalContext, binary: Hash) -> MadeWith {
    MadeWith {
        chemigram: env!("CARGO_PKG_VERSION").into(),
        engine: ENGINE,
        binary,
        darktable: surroundings.renderer.darktable_version().into(),
        vocabulary: hash_of(&surroundings.vocabulary_files),
        tools: Hash::of(serde_json::to_vec(&tools::specs()).unwrap_or_default()),
        metrics: METRICS_VERSION,
        preview_edge: EDGE,
    }
}

/// The hash of all files of the vocabulary, names included.
fn hash_of(files: &Overlay) -> Hash {
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
    use crate::eval::scenario::tests::cup;

    fn inputs(with: &MadeWith, steered: Option<Steered>) -> Inputs {
        let facts = BTreeMap::new();
        let seat = Entrant { provider: "explorer".into(), model: "explorer-1".into(), free: true, facts };
        let scenario = cup();
        let budget = scenario.budget.clone();
        Inputs::of(&scenario, ("mode_b/system@v1", &Hash::of("v1")), &seat, 1, budget, with, steered)
    }

    #[test]
    fn what_a_session_depends_on_is_in_its_key_and_the_build_is_not() {
        let with = MadeWith {
            chemigram: "0.1.0".into(),
            engine: ENGINE,
            binary: Hash::of("a build"),
            darktable: "4.2.1".into(),
            vocabulary: Hash::of("moves"),
            tools: Hash::of("tools"),
            metrics: METRICS_VERSION,
            preview_edge: EDGE,
        };
        let key = |change: &dyn Fn(&mut MadeWith)| {
            let mut other = with.clone();
            change(&mut other);
            inputs(&other, None).key()
        };
        let before = key(&|_| {});
        assert_eq!(key(&|with| with.binary = Hash::of("another build")), before);
        assert_eq!(key(&|with| with.metrics += 1), before, "figures are measured anew, sessions are not run");
        let changes: [&dyn Fn(&mut MadeWith); 5] = [
            &|with| with.engine += 1,
            &|with| with.chemigram = "0.2.0".into(),
            &|with| with.darktable = "5.0.1".into(),
            &|with| with.vocabulary = Hash::of("more moves"),
            &|with| with.tools = Hash::of("other tools"),
        ];
        for (at, change) in changes.into_iter().enumerate() {
            assert_ne!(key(change), before, "change {at}");
        }
        // The free loop says nothing of protocols: its key is that of a program without them.
        let free = serde_json::to_value(inputs(&with, None)).unwrap();
        assert_eq!(free.get("steered"), None);
    }

    #[test]
    fn every_file_of_the_vocabulary_counts() {
        let own = tempfile::tempdir().unwrap();
        let files = || Overlay::vocabulary(Some(own.path().to_owned()));
        let before = hash_of(&files());
        assert_eq!(before, hash_of(&Overlay::vocabulary(None)));
        std::fs::create_dir(own.path().join("looks")).unwrap();
        std::fs::write(own.path().join("looks/mine.toml"), "# nothing yet").unwrap();
        assert_ne!(hash_of(&files()), before);
    }
}
