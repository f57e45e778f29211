//! One cell: an ordinary session on a fresh copy of a scenario, in a folder named by everything that matters.
//!
//! ```text
//! cells/<key>/
//!   inputs.json      what the key is the hash of
//!   photos/ tastes/  the session's library: workspace, transcript, previews
//!   failed_1/ …      libraries of failed attempts
//!   failures.jsonl   why
//!   cell.json        what came of it; with this file, the cell is never run again
//! ```
//!
//! A session without a closing line continues where it stopped; one that the provider or the engine failed is set
//! aside and started again. What is left of it is evidence, and what it spent stays on the bill.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::budget::{Amounts, Budget};
use crate::eval::context::{Entrant, EvalContext, script};
use crate::eval::manifest::{CellRecord, CellStatus, Contestant, Done, Failure, MadeWith};
use crate::eval::metrics::{Finished, METRICS_VERSION, MeasureContext, measure};
use crate::eval::scenario::Scenario;
use crate::eval::steering::{Protocol, Steered};
use crate::launch::{Overrides, Runner, SessionSpec};
use crate::provider::Provider;
use crate::session::bill::Money;
use crate::session::driver::{Host, Session};
use crate::session::listing::{self, Condition};
use crate::session::opinion::Referee;
use crate::tools;
use crate::transcript::{Event, ModelName, Outcome};
use base::clock::{Cancel, Deadline, Stop, SystemClock};
use base::durable;
use base::error::{ErrorCode, Fault};
use base::files;
use base::ids::Hash;
use darktable::proxy;
use engine::photo::{Library, Workspace};

/// The version of [`Inputs`].
const FORMAT: u32 = 2;
/// Attempts at one cell each time the run is resumed.
pub const ATTEMPTS: u64 = 3;
/// How long darktable may take over one picture that is measured.
const PATIENCE: Duration = Duration::from_secs(600);
/// Why a cell whose session began is not run.
pub(super) const INTERRUPTED: &str = "it was interrupted, and can be resumed";

/// Everything that matters to what a session does: the key of a cell is its hash. The executable is not part of
/// it: another build of the same engine does the same, and nobody pays for a session twice.
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
    /// Left out where nothing steers, so that a session of the free loop keeps its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    steered: Option<Steered>,
}

impl Inputs {
    /// Of a session on `scenario`.
    pub fn of(
        scenario: &Scenario,
        (prompt, template_sha256): (&str, &Hash),
        entrant: &Entrant,
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
            provider: entrant.provider.clone(),
            model: entrant.model.clone(),
            facts: entrant.facts.clone(),
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

    /// What its session may spend.
    pub(super) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The names of what differs in `other`.
    pub(super) fn differing(&self, other: &Self) -> Vec<String> {
        let fields = |inputs: &Self| match serde_json::to_value(inputs) {
            Ok(serde_json::Value::Object(fields)) => fields,
            _ => serde_json::Map::new(),
        };
        let (own, other) = (fields(self), fields(other));
        let names: BTreeSet<&String> = own.keys().chain(other.keys()).collect();
        names.into_iter().filter(|name| own.get(*name) != other.get(*name)).cloned().collect()
    }

    /// The key.
    pub fn key(&self) -> Hash {
        Hash::of(serde_json::to_vec(self).unwrap_or_default())
    }
}

/// One cell to run.
pub struct Job<'a> {
    /// What all cells share.
    pub context: &'a EvalContext,
    /// The run that pays.
    pub run: &'a str,
    /// SHA-256 of the executable.
    pub binary: &'a Hash,
    /// The cell.
    pub cell: &'a CellRecord,
    /// Its scenario.
    pub scenario: &'a Scenario,
    /// Who edits.
    pub who: &'a Contestant,
    /// What steers it; the free loop if nothing.
    pub protocol: Option<&'a Protocol>,
    /// What it may spend.
    pub budget: &'a Budget,
    /// Whether the run has room for another attempt, after one that failed and spent this.
    pub retry: &'a dyn Fn(Amounts) -> bool,
    /// Where its session runs.
    pub runner: &'a Runner,
    /// Leaves the running session where it is.
    pub cut: &'a Cancel,
    /// Who watches its session.
    pub host: &'a dyn Host,
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
        folder(&self.context.home, &self.cell.key)
    }

    /// Runs what has not been run of the cell. An attempt that fails for an external reason is repeated.
    pub fn run(&self, inputs: &Inputs) -> CellStatus {
        let before = finished(&self.context.home, &self.cell.key);
        if let Some(done) = before.as_ref().filter(|done| done.measured.version == METRICS_VERSION) {
            return CellStatus::Done(Box::new(done.clone()));
        }
        // A session that is measured again was paid, and made, by the run that it was first part of.
        let origin = match before {
            Some(done) => (done.paid_by, done.binary),
            None => (self.run.to_owned(), Some(self.binary.clone())),
        };
        for attempt in 1.. {
            match self.attempt(inputs, &origin) {
                Ok(Some(done)) => return CellStatus::Done(Box::new(done)),
                Ok(None) => {
                    return CellStatus::NotRun { why: INTERRUPTED.into(), failures: self.failures() };
                }
                Err((fault, spent)) => {
                    let helps = matches!(
                        fault.code,
                        ErrorCode::ProviderError | ErrorCode::DarktableError | ErrorCode::Interrupted
                    );
                    self.note(&fault, spent);
                    if attempt >= ATTEMPTS || !helps || !(self.retry)(spent) {
                        break;
                    }
                }
            }
        }
        CellStatus::Failed { failures: self.failures() }
    }

    /// One attempt; an error has an external reason, and comes with what was spent.
    fn attempt(
        &self,
        inputs: &Inputs,
        (payer, binary): &(String, Option<Hash>),
    ) -> Result<Option<Done>, (Fault, Amounts)> {
        let nothing = |fault: Fault| (fault, Amounts::default());
        let folder = self.folder();
        let text = serde_json::to_vec_pretty(inputs).unwrap_or_default();
        write(&folder.join("inputs.json"), &text).map_err(nothing)?;
        let (workspace, session) = match self.begin().map_err(nothing)? {
            Begun::Session(workspace, mut session) => {
                let ended = self.runner.run_unless(self.cut, &mut session, self.host);
                let ended = ended.map_err(|e| (Fault::from(&e), session.gate.ledger().settled()))?;
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
        let EvalContext { launcher, renderer, .. } = self.context;
        let measuring = MeasureContext {
            vocabulary: &launcher.vocabulary,
            layouts: &launcher.layouts,
            renderer: renderer.as_ref(),
            deadline: &deadline,
        };
        let finished = Finished { workspace: &workspace, session: &session };
        let measured = measure(self.scenario, &finished, &measuring).map_err(|e| nothing(Fault::from(&e)))?;
        let served = session.lines.iter().filter_map(|line| match &line.event {
            Event::ModelReply { model_served, .. } => model_served.clone(),
            _ => None,
        });
        let done = Done {
            session: session.id.to_string(),
            outcome: end.outcome,
            cap: end.cap,
            models_served: served.collect::<BTreeSet<_>>(),
            went_on: session.went_on().map(|ModelName { provider, model }| format!("{provider}/{model}")),
            budget: Some(session.ledger.budget().clone()),
            spent,
            money: Some(Money::of(&session.lines, &spent)),
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

    /// Stages the scenario, and resumes the session that is there, or starts one.
    fn begin(&self) -> Result<Begun, Fault> {
        let mut workspace = match self.stage() {
            Ok(workspace) => workspace,
            // A kill while the raw is added leaves a folder that cannot be opened.
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
                    let session = listing::read(&workspace, id).map_err(|e| Fault::from(&e))?;
                    // Once another model went on it has it.
                    let provider = session.went_on().is_none().then(|| self.provider()).transpose()?;
                    let tastes = Some(self.folder().join("tastes"));
                    let overrides = Overrides { provider, tastes, ..Overrides::default() };
                    let launcher = &self.context.launcher;
                    let session = launcher.resume(workspace.clone(), &session, overrides, Stop::default())?;
                    return Ok(Begun::Session(workspace, Box::new(session)));
                }
                Condition::Ended { .. } => return Ok(Begun::Ended(workspace, id.clone())),
                Condition::Damaged { .. } => {
                    self.set_aside()?;
                    workspace = self.stage()?;
                }
            }
        }
        let mut request = self.scenario.request(&self.cell.prompt, self.cell.seed);
        request.budget = self.budget.clone();
        let referee = match self.protocol {
            Some(protocol) => protocol.referee(self.context, self.cell.seed)?,
            None => Referee::Nobody,
        };
        let spec = SessionSpec {
            request,
            protocol: self.protocol.map(|protocol| protocol.source.clone()),
            provider: self.provider()?,
            fallback: self.context.other(self.who, self.cell.seed)?,
            referee,
            proxy: proxy::Choice::Off,
            renderers: 1,
            tastes: Some(self.folder().join("tastes")),
        };
        // A signal lets sessions end by themselves or cuts them: none is wrapped up half-way.
        let prepared = self.context.launcher.prepare(workspace.clone(), spec, Stop::default())?;
        Ok(Begun::Session(workspace, Box::new(prepared.plan()?.start()?)))
    }

    fn stage(&self) -> Result<Workspace, Fault> {
        stage(self.context, self.scenario, &self.cell.key)
    }

    /// Connects the contestant; a baseline is a script in the folder of the cell.
    fn provider(&self) -> Result<Arc<dyn Provider>, Fault> {
        let Some(text) = script(self.who, self.scenario) else {
            return self.context.connect(self.who, self.cell.seed);
        };
        let path = self.folder().join("baseline.toml");
        write(&path, text.as_bytes())?;
        let model = Some(path.to_string_lossy().into_owned());
        self.context.connect(&Contestant { provider: "script".into(), model }, self.cell.seed)
    }

    /// Puts the library of a failed attempt aside.
    fn set_aside(&self) -> Result<(), Fault> {
        set_aside(&self.folder())
    }

    fn note(&self, fault: &Fault, spent: Amounts) {
        note(&self.folder(), fault, spent);
    }

    /// The status of a cell whose run panicked.
    pub fn panicked(&self, fault: &Fault) -> CellStatus {
        given_up(&self.context.home, &self.cell.key, &self.cell.scenario, fault)
    }

    fn failures(&self) -> Vec<Failure> {
        failures(&self.folder())
    }
}

/// Makes the photo of a cell, or opens it if it is there.
pub(super) fn stage(context: &EvalContext, scenario: &Scenario, key: &Hash) -> Result<Workspace, Fault> {
    let folder = folder(&context.home, key);
    let library = Library::new(folder.join("photos"));
    let ask = |raw: &Path| context.defaults(raw);
    let raws = context.raws.as_deref();
    scenario.stage(&library, &folder.join("tastes"), raws, &ask).map_err(|e| Fault::from(&e))
}

fn set_aside(folder: &Path) -> Result<(), Fault> {
    let free = (1..).map(|n| folder.join(format!("failed_{n}"))).find(|path| !path.exists());
    let free = free.unwrap_or_else(|| folder.join("failed"));
    std::fs::rename(folder.join("photos"), &free).map_err(|e| io("set aside", &free, &e))
}

fn note(folder: &Path, fault: &Fault, spent: Amounts) {
    let at = jiff::Timestamp::now();
    let failure = Failure { code: fault.code, message: fault.message.clone(), spent, at };
    let line = json!(failure).to_string();
    // The failure itself is reported; a note that cannot be written changes nothing.
    let _ = durable::append_line(&folder.join("failures.jsonl"), &line);
}

/// The status of a cell that ended without a result: by a panic, or by the loss of its workers.
pub(super) fn given_up(home: &Path, key: &Hash, scenario: &str, fault: &Fault) -> CellStatus {
    let folder = folder(home, key);
    let session = sessions_of(&folder.join("photos"), scenario).into_iter().next();
    // What was running may have been paid for.
    let spent = session.as_ref().map(|session| session.ledger.settled().plus(session.ledger.reserved()));
    note(&folder, fault, spent.unwrap_or_default());
    // What is counted now would be counted again if the session continued, or if its failure was noted. One that has
    // ended well waits to be measured, and is not paid again.
    let waits =
        |session: listing::Session| session.state.end.is_some_and(|end| failed(end.outcome).is_none());
    if session.is_some_and(|session| !waits(session)) {
        // Best effort: what was spent is recorded.
        let _ = set_aside(&folder);
    }
    CellStatus::Failed { failures: failures(&folder) }
}

/// The failed attempts at a cell.
pub(super) fn failures(folder: &Path) -> Vec<Failure> {
    let text = files::read(&folder.join("failures.jsonl"), files::LARGEST_LIST).unwrap_or_default();
    text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

/// The libraries of a cell: that of its session, and those of failed attempts.
fn libraries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let named = |name: &str| name == "photos" || name.starts_with("failed");
    let entries = entries.filter(|entry| entry.file_name().to_str().is_some_and(named));
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// The sessions on a scenario's photo that can be read.
fn sessions_of(library: &Path, scenario: &str) -> Vec<listing::Session> {
    let workspace = scenario.parse().ok().and_then(|id| Library::new(library.to_owned()).open(&id).ok());
    let Some(workspace) = workspace else { return Vec::new() };
    let ids = listing::of_photo(&workspace).unwrap_or_default();
    ids.iter().filter_map(|id| listing::read(&workspace, id).ok()).collect()
}

fn sum(libraries: impl Iterator<Item = PathBuf>, scenario: &str) -> Amounts {
    let sessions = libraries.flat_map(|library| sessions_of(&library, scenario));
    let each = sessions.map(|session| session.ledger.settled().plus(session.ledger.reserved()));
    each.fold(Amounts::default(), Amounts::plus)
}

/// What all sessions of a cell have spent by their transcripts, what is open at its worst case.
pub(crate) fn spent(folder: &Path, scenario: &str) -> Amounts {
    sum(libraries(folder).into_iter(), scenario)
}

/// What those of failed attempts have spent.
pub(crate) fn spent_before(folder: &Path, scenario: &str) -> Amounts {
    sum(libraries(folder).into_iter().filter(|library| !library.ends_with("photos")), scenario)
}

/// Links the photos of all attempts to the raw, where that is missing.
pub(crate) fn link_raws(folder: &Path, scenario: &str, raw: &Path) -> Result<(), Fault> {
    let raw = std::fs::canonicalize(raw).map_err(|e| io("find", raw, &e))?;
    for library in libraries(folder) {
        let opened = scenario.parse().ok().and_then(|id| Library::new(library).open(&id).ok());
        let Some(workspace) = opened else { continue };
        // What came from elsewhere names no other folder.
        let Some(name) = Path::new(&workspace.photo().raw.name).file_name() else { continue };
        let link = workspace.folder().join("raw").join(name);
        if link.symlink_metadata().is_ok() {
            continue;
        }
        if let Some(parent) = link.parent() {
            std::fs::create_dir_all(parent).map_err(|e| io("make", parent, &e))?;
        }
        std::os::unix::fs::symlink(&raw, &link).map_err(|e| io("link", &link, &e))?;
    }
    Ok(())
}

/// What a cell has when its turn comes.
enum Begun {
    /// A session that can run.
    Session(Workspace, Box<Session>),
    /// One that has ended, and was neither measured nor noted as failed: the program ended in between.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::metrics::EDGE;
    use crate::eval::scenario::tests::cup;
    use crate::session::ENGINE;

    fn inputs(with: &MadeWith, steered: Option<Steered>) -> Inputs {
        let facts = BTreeMap::new();
        let entrant = Entrant {
            provider: "explorer".into(),
            model: "explorer-1".into(),
            free: true,
            facts,
            fallback: None,
        };
        let scenario = cup();
        let budget = scenario.budget.clone();
        Inputs::of(&scenario, ("mode_b/system@v1", &Hash::of("v1")), &entrant, 1, budget, with, steered)
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
        assert_eq!(
            key(&|with| with.metrics += 1),
            before,
            "figures are measured again, sessions are not run"
        );
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
}
