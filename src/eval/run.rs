//! A run: which cells there are, what they may cost at most, and the sittings in which they are worked off.
//!
//! A ledger over all cells admits each before it begins, with the most that it may cost, so that the run's own
//! cap holds whatever the sessions do. The manifest is on disk after every cell. What was cut or killed goes on
//! in the next sitting; what is finished is never paid twice, not even by another run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::budget::{Amounts, Budget, Ledger, Reserve};
use crate::eval::baselines;
use crate::eval::cells::{self, ATTEMPTS, Entrant, EvalContext, Execute, Inputs, Job};
use crate::eval::file::FileError;
use crate::eval::manifest::{
    Arm, CellRecord, CellStatus, Checkout, Contestant, FORMAT, GoldenRecord, HistoryLine, MadeWith, Manifest,
    ManifestError, ModelRecord, PromptRecord, RunRequest,
};
use crate::eval::metrics::METRICS_VERSION;
use crate::eval::scenario::Scenario;
use crate::eval::steering::{self, Protocol, SteeringError, Way};
use base::clock::{Cancel, Clock, SystemClock};
use base::error::{Coded, ErrorCode, Fault, caught};
use base::hint::did_you_mean;
use base::ids::Hash;

/// So many failed cells in a row, and the fault is not the cells'.
const MOST_FAILED_IN_A_ROW: usize = 3;
/// A run without a time cap.
const FOREVER: u64 = 1 << 40;
/// How often a worker that waits for money looks whether it was told to stop.
const TICK: Duration = Duration::from_millis(200);

/// Why a run cannot be planned or go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No scenario matches.
    #[error("no scenario of {golden} matches `{pattern}`{hint}")]
    NoScenario {
        /// The set.
        golden: String,
        /// As asked for.
        pattern: String,
        /// A near one.
        hint: String,
    },
    /// Nothing says what a session may cost.
    #[error("the cost of a session of {who} on {scenario} is not limited")]
    Unbounded {
        /// The contestant.
        who: String,
        /// The scenario.
        scenario: String,
    },
    /// The run is no longer what was planned.
    #[error("{run} cannot be resumed: {what} has changed")]
    Changed {
        /// The run.
        run: String,
        /// What.
        what: &'static str,
    },
    /// The manifest.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The protocols, or the prompts.
    #[error(transparent)]
    Steering(#[from] SteeringError),
    /// Anything with a code of its own.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl Coded for RunError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::NoScenario { .. } => ErrorCode::NotFound,
            Self::Unbounded { .. } => ErrorCode::InvalidInput,
            Self::Changed { .. } => ErrorCode::StateError,
            Self::Manifest(error) => error.code(),
            Self::Steering(error) => error.code(),
            Self::Fault(fault) => fault.code,
        }
    }

    fn remedy(&self) -> Option<String> {
        match self {
            Self::Unbounded { .. } => {
                Some("limit it in US dollars, such as `--cell-cost 0.50`".into())
            }
            Self::Changed { .. } => Some(
                "undo the change, or start a new run: finished sessions that did not change are reused at no cost".into(),
            ),
            Self::Manifest(error) => error.remedy(),
            Self::Steering(error) => error.remedy(),
            Self::Fault(fault) => fault.remedy(),
            Self::NoScenario { .. } => None,
        }
    }
}

/// A run that was planned.
pub struct Plan {
    /// Its record, nothing run yet but what was there already.
    pub manifest: Manifest,
    /// What it may take.
    pub bound: Bound,
    tasks: Vec<Task>,
    ways: Vec<Way>,
}

/// What one cell needs beside its record.
struct Task {
    scenario: usize,
    who: Contestant,
    /// Its place among the ways.
    way: usize,
    budget: Budget,
    /// The most that it may cost, in millionths of a US dollar.
    most: u64,
    inputs: Inputs,
}

/// What a run may take at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bound {
    /// Cells.
    pub cells: usize,
    /// Of these, finished before.
    pub finished: usize,
    /// What the others may cost at most, in millionths of a US dollar: the sum of their caps, from which their
    /// referees are paid too, or the run's own cap.
    pub cost_micro_usd: u64,
    /// How long they may take at most, one after the other, in seconds.
    pub seconds: u64,
    /// How often models may be called at most, referees included.
    pub model_calls: u64,
    /// How often referees may be asked at most. One that is a model is called for it.
    pub referee_calls: u64,
}

/// Where a sitting stands.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Cells finished or failed.
    pub settled: usize,
    /// Cells in all.
    pub total: usize,
    /// Those under way, by scenario.
    pub under_way: Vec<String>,
    /// What the run has cost, in millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// How much longer it takes, judged by the cells of this sitting; unknown before the first has ended.
    pub remaining: Option<Duration>,
    /// The cell that has just ended.
    pub ended: Option<CellRecord>,
}

/// Plans a run: everything is checked, every key is worked out, nothing is written or sent.
pub fn plan(
    surroundings: &EvalContext,
    mut asked: RunRequest,
    binary: Hash,
    checkout: Option<Checkout>,
    now: Timestamp,
) -> Result<Plan, RunError> {
    let golden = &surroundings.golden;
    let chosen = choose(golden.manifest.version.as_str(), &golden.scenarios, &asked.scenarios)?;
    let with = cells::made_with(surroundings, binary);
    let ways = steering::ways(surroundings, &asked)?;
    let mut prompts: Vec<PromptRecord> = Vec::new();
    for prompt in ways.iter().flat_map(|way| &way.prompts) {
        if !prompts.contains(prompt) {
            prompts.push(prompt.clone());
        }
    }
    // By version: whichever is the active one by then, the run goes on with these.
    asked.prompts = prompts.iter().map(|prompt| prompt.prompt.clone()).collect();
    let (mut records, mut tasks, mut models) = (Vec::new(), Vec::new(), Vec::<ModelRecord>::new());
    let (mut bound, mut seats) = (Bound::default(), BTreeMap::new());
    // Repeats outermost: a run that is cut early has every scenario before it has any twice.
    for repeat in 1..=asked.repeats {
        let seed = asked.seed + u64::from(repeat - 1);
        for &place in &chosen {
            let Some(scenario) = golden.scenarios.get(place) else { continue };
            for who in &asked.contestants {
                let seat = surroundings.seat(who, scenario, seed, &mut seats)?;
                remember(&mut models, &seat);
                for (way, prompt) in each_prompt(&ways) {
                    let protocol = ways.get(way).and_then(|way| way.protocol.as_ref());
                    if protocol.is_some() && baselines::is(who) {
                        continue;
                    }
                    let free = seat.free && protocol.is_none_or(Protocol::free);
                    let budget = EvalContext::budget(scenario, free, asked.cell_cost_micro_usd);
                    let fitted = protocol.map(|p| p.on(scenario, &budget, &seat.model)).transpose()?;
                    let narrowed = fitted.as_ref().map_or(&budget, |fitted| &fitted.budget);
                    let cost = most(&seat, protocol, narrowed, scenario)?;
                    let (seconds, calls) = (narrowed.time_seconds, narrowed.max_model_calls());
                    let questions = fitted.as_ref().map_or(0, |fitted| fitted.questions);
                    let named = (prompt.prompt.as_str(), &prompt.template_sha256);
                    let steered = fitted.map(|fitted| fitted.steered);
                    let inputs = Inputs::of(scenario, named, &seat, seed, budget.clone(), &with, steered);
                    let key = inputs.key();
                    let done = cells::finished(&surroundings.home, &key);
                    let standing = match done {
                        Some(done) if done.measured.version == METRICS_VERSION => {
                            bound.finished += 1;
                            CellStatus::Done(Box::new(done))
                        }
                        Some(_) => not_begun(),
                        None => {
                            let add = |sum: &mut u64, one: u64| *sum = sum.saturating_add(one * ATTEMPTS);
                            add(&mut bound.cost_micro_usd, cost);
                            add(&mut bound.seconds, seconds);
                            add(&mut bound.model_calls, calls);
                            add(&mut bound.referee_calls, questions);
                            not_begun()
                        }
                    };
                    records.push(CellRecord {
                        key,
                        scenario: scenario.id.clone(),
                        prompt: prompt.prompt.clone(),
                        protocol: protocol.map(|protocol| protocol.record.protocol.clone()),
                        referee: protocol.and_then(|protocol| protocol.record.referee.as_ref()).map(called),
                        provider: seat.provider.clone(),
                        model: seat.model.clone(),
                        repeat,
                        seed,
                        standing,
                    });
                    tasks.push(Task { scenario: place, who: who.clone(), way, budget, most: cost, inputs });
                }
            }
        }
    }
    bound.cells = records.len();
    bound.cost_micro_usd = bound.cost_micro_usd.min(asked.cost_micro_usd.unwrap_or(u64::MAX));
    let scenarios = chosen.iter().filter_map(|&place| golden.scenarios.get(place));
    let manifest = Manifest {
        format: FORMAT,
        run: String::new(),
        golden: GoldenRecord {
            version: golden.manifest.version.clone(),
            sha256: golden.sha256.clone(),
            primary: golden.manifest.primary.clone(),
            weights: golden.manifest.weights.clone(),
            scenarios: scenarios.map(|s| (s.id.clone(), s.sha256.clone())).collect(),
        },
        asked,
        made_with: with,
        checkout,
        prompts,
        protocols: ways.iter().filter_map(|way| Some(way.protocol.as_ref()?.record.clone())).collect(),
        models,
        begun: now,
        ended: None,
        seconds: 0,
        cells: records,
    };
    Ok(Plan { manifest, bound, tasks, ways })
}

/// The prompts of each way, with the way's place.
fn each_prompt(ways: &[Way]) -> impl Iterator<Item = (usize, &PromptRecord)> {
    ways.iter().enumerate().flat_map(|(place, way)| way.prompts.iter().map(move |prompt| (place, prompt)))
}

/// `provider/model`.
fn called(model: &ModelRecord) -> String {
    format!("{}/{}", model.provider, model.model)
}

fn not_begun() -> CellStatus {
    CellStatus::NotRun { why: "not begun".into(), failures: Vec::new() }
}

/// The most that a session may cost, what its referee costs included: both are paid from one budget.
fn most(
    seat: &Entrant,
    protocol: Option<&Protocol>,
    budget: &Budget,
    scenario: &Scenario,
) -> Result<u64, RunError> {
    let referee = protocol.and_then(|protocol| protocol.record.referee.as_ref()).filter(|r| !r.free);
    match (seat.free && referee.is_none(), budget.max_cost_micro_usd) {
        (true, _) => Ok(0),
        (false, Some(cost)) => Ok(cost),
        (false, None) => {
            let mut who = format!("{}/{}", seat.provider, seat.model);
            if let Some(referee) = referee {
                who = format!("{who} with {} as referee", called(referee));
            }
            Err(RunError::Unbounded { who, scenario: scenario.id.clone() })
        }
    }
}

fn remember(models: &mut Vec<ModelRecord>, seat: &Entrant) {
    let known = |m: &&mut ModelRecord| (&m.provider, &m.model) == (&seat.provider, &seat.model);
    match models.iter_mut().find(known) {
        // What changes with seed or scenario is in each cell's inputs.
        Some(model) => model.facts.retain(|name, value| seat.facts.get(name) == Some(value)),
        None => models.push(ModelRecord {
            provider: seat.provider.clone(),
            model: seat.model.clone(),
            free: seat.free,
            facts: seat.facts.clone(),
        }),
    }
}

/// The places of the scenarios that match one of the patterns; all without a pattern.
fn choose(golden: &str, scenarios: &[Scenario], patterns: &[String]) -> Result<Vec<usize>, RunError> {
    let mut chosen = BTreeSet::new();
    for pattern in patterns {
        let matching = scenarios.iter().enumerate().filter(|(_, scenario)| matches(pattern, &scenario.id));
        let before = chosen.len();
        chosen.extend(matching.map(|(place, _)| place));
        if chosen.len() == before && !scenarios.iter().any(|scenario| matches(pattern, &scenario.id)) {
            let hint = did_you_mean(pattern, scenarios.iter().map(|scenario| scenario.id.as_str()));
            return Err(RunError::NoScenario { golden: golden.into(), pattern: pattern.clone(), hint });
        }
    }
    if patterns.is_empty() {
        chosen.extend(0..scenarios.len());
    }
    Ok(chosen.into_iter().collect())
}

/// Whether a name matches a pattern in which `*` stands for anything.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(tail) = name.strip_prefix(head) else { return false };
    tail.char_indices()
        .map(|(at, _)| at)
        .chain([tail.len()])
        .any(|at| tail.get(at..).is_some_and(|t| matches(rest, t)))
}

impl Plan {
    /// Gives the run its name and writes its manifest: from now on it can be resumed.
    pub fn begin(&mut self, home: &Path) -> Result<PathBuf, RunError> {
        let runs = home.join("runs");
        let refused = |path: &Path| FileError::at("make", path);
        std::fs::create_dir_all(&runs).map_err(refused(&runs)).map_err(ManifestError::from)?;
        let stamp = self.manifest.begun.strftime("%Y-%m-%dT%H-%M-%SZ").to_string();
        let (mut name, mut number) = (stamp.clone(), 2);
        // Two runs may begin in one second.
        let folder = loop {
            let folder = runs.join(&name);
            match std::fs::create_dir(&folder) {
                Ok(()) => break folder,
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                    name = format!("{stamp}_{number}");
                    number += 1;
                }
                Err(error) => return Err(ManifestError::from(refused(&folder)(error)).into()),
            }
        };
        self.manifest.run = name;
        self.manifest.write(&folder)?;
        Ok(folder)
    }

    /// Makes this plan the next sitting of a run: it has to be the same run.
    pub fn go_on(&mut self, begun: Manifest) -> Result<(), RunError> {
        let changed = |what| RunError::Changed { run: begun.run.clone(), what };
        let now = &self.manifest;
        // Figures of other metrics are measured anew from the sessions that are there; a build is no engine.
        let without = |with: &MadeWith| MadeWith { metrics: 0, binary: Hash::of(""), ..with.clone() };
        if now.golden.sha256 != begun.golden.sha256 {
            return Err(changed("the golden set"));
        }
        if now.prompts != begun.prompts {
            return Err(changed("a prompt"));
        }
        if now.protocols != begun.protocols {
            return Err(changed("a protocol or its referee"));
        }
        let keys = |manifest: &Manifest| manifest.cells.iter().map(|c| c.key.clone()).collect::<Vec<_>>();
        if keys(now) != keys(&begun) {
            let what = match without(&now.made_with) == without(&begun.made_with) {
                true => "a model or a budget",
                false => "the program, darktable or the vocabulary",
            };
            return Err(changed(what));
        }
        self.manifest.run = begun.run;
        self.manifest.begun = begun.begun;
        self.manifest.checkout = begun.checkout;
        self.manifest.seconds = begun.seconds;
        for (cell, before) in self.manifest.cells.iter_mut().zip(&begun.cells) {
            if let CellStatus::NotRun { failures, .. } = &mut cell.standing {
                *failures = before.standing.failures().to_vec();
            }
        }
        Ok(())
    }

    /// Works the cells off, `jobs` at a time, until all are done, a cap fires, or `cut` is raised. The manifest in
    /// `folder` is written after every cell, and history gets its line.
    pub fn run_pending(
        &mut self,
        surroundings: &EvalContext,
        folder: &Path,
        jobs: usize,
        cut: &Cancel,
        execute: &Execute<'_>,
        watch: &(dyn Fn(&Progress) + Sync),
    ) -> Result<(), RunError> {
        let asked = &self.manifest.asked;
        let limits = Budget {
            time_seconds: asked.time_seconds.unwrap_or(FOREVER),
            max_iterations: u64::MAX,
            max_branches: u64::MAX,
            max_tokens: None,
            max_cost_micro_usd: asked.cost_micro_usd,
            max_renders: None,
            max_model_calls: None,
        };
        let mut ledger = Ledger::new(limits, Reserve::default());
        // What earlier sittings spent stays spent.
        let before = Amounts { cost_micro_usd: self.manifest.spent().0, ..Amounts::default() };
        ledger.reserve(u64::MAX, before);
        ledger.settle(u64::MAX, before);
        let open = |cell: &CellRecord| !matches!(cell.standing, CellStatus::Done(_));
        let mut waiting: Vec<usize> =
            self.manifest.cells.iter().enumerate().filter(|(_, cell)| open(cell)).map(|(at, _)| at).collect();
        waiting.reverse();
        for &at in &waiting {
            if let Some(cell) = self.manifest.cells.get_mut(at) {
                cell.leave("not begun");
            }
        }
        let run = &self.manifest.run;
        let paid = waiting.iter().filter_map(|&at| Some((at, self.manifest.cells.get(at)?.spent(run).0)));
        let paid = paid.collect();
        let desk = Scheduler {
            surroundings,
            folder,
            cut,
            execute,
            watch,
            jobs: jobs.max(1),
            tasks: &self.tasks,
            ways: &self.ways,
            began: SystemClock.monotonic(),
            before: Duration::from_secs(self.manifest.seconds),
            paper: Mutex::new(SchedulerState {
                manifest: &mut self.manifest,
                ledger,
                waiting,
                under_way: BTreeMap::new(),
                paid,
                took: BTreeMap::new(),
                failed_in_a_row: 0,
                over: None,
                error: None,
            }),
            changed: Condvar::new(),
        };
        std::thread::scope(|scope| {
            for _ in 0..desk.jobs {
                scope.spawn(|| while desk.one() {});
            }
        });
        desk.close()?;
        HistoryLine::of(&self.manifest).append(&surroundings.home)?;
        Ok(())
    }
}

/// What the workers share.
struct Scheduler<'a> {
    surroundings: &'a EvalContext,
    folder: &'a Path,
    cut: &'a Cancel,
    execute: &'a Execute<'a>,
    watch: &'a (dyn Fn(&Progress) + Sync),
    jobs: usize,
    tasks: &'a [Task],
    ways: &'a [Way],
    began: Duration,
    before: Duration,
    paper: Mutex<SchedulerState<'a>>,
    /// Told when a cell ends: money may be free again.
    changed: Condvar,
}

/// What they write on, one at a time.
struct SchedulerState<'a> {
    manifest: &'a mut Manifest,
    ledger: Ledger,
    /// Cells that wait for their turn, the next one last.
    waiting: Vec<usize>,
    under_way: BTreeMap<usize, String>,
    /// What failed attempts at the cells that are open are settled with.
    paid: BTreeMap<usize, u64>,
    /// Seconds and cells of this sitting, by arm.
    took: BTreeMap<Arm, (f64, u32)>,
    failed_in_a_row: usize,
    /// Why no further cell begins.
    over: Option<String>,
    error: Option<ManifestError>,
}

impl<'a> Scheduler<'a> {
    /// The paper; a job that panics is a failed cell, and nothing panics while the paper is held.
    fn paper(&self) -> MutexGuard<'_, SchedulerState<'a>> {
        self.paper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn elapsed(&self) -> Duration {
        self.before + SystemClock.monotonic().saturating_sub(self.began)
    }

    /// Takes the next cell and runs it; false when there is none to take.
    fn one(&self) -> bool {
        let Some((at, cell)) = self.take() else { return false };
        let Some(task) = self.tasks.get(at) else { return false };
        let Some(scenario) = self.surroundings.golden.scenarios.get(task.scenario) else { return false };
        let (run, binary) = {
            let paper = self.paper();
            (paper.manifest.run.clone(), paper.manifest.made_with.binary.clone())
        };
        let began = self.elapsed();
        let job = Job {
            surroundings: self.surroundings,
            run: &run,
            binary: &binary,
            cell: &cell,
            scenario,
            who: &task.who,
            protocol: self.ways.get(task.way).and_then(|way| way.protocol.as_ref()),
            budget: &task.budget,
            again: &|failed| self.again(at, task.most, failed),
        };
        let standing =
            caught(|| job.run(&task.inputs, self.execute)).unwrap_or_else(|fault| job.broke(&fault));
        self.put(at, CellRecord { standing, ..cell }, self.elapsed().saturating_sub(began));
        true
    }

    /// The next cell, once the ledger admits it.
    fn take(&self) -> Option<(usize, CellRecord)> {
        let mut paper = self.paper();
        loop {
            if self.cut.is_cancelled() && paper.over.is_none() {
                paper.over = Some("the run was stopped first".into());
            }
            if paper.over.is_some() || paper.error.is_some() {
                return None;
            }
            let &at = paper.waiting.last()?;
            let cost_micro_usd = self.tasks.get(at)?.most;
            let want = Amounts { cost_micro_usd, ..Amounts::default() };
            match paper.ledger.admit(&want, self.elapsed()) {
                Ok(()) => {
                    paper.waiting.pop();
                    paper.ledger.reserve(at as u64, want);
                    let cell = paper.manifest.cells.get(at)?.clone();
                    paper.under_way.insert(at, cell.scenario.clone());
                    (self.watch)(&self.progress(&paper, None));
                    return Some((at, cell));
                }
                // What runs may leave some of its reserve.
                Err(_) if !paper.under_way.is_empty() => {
                    let waited = self.changed.wait_timeout(paper, TICK);
                    paper = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                Err(exhausted) => paper.over = Some(format!("budget of the run: {}", exhausted.words())),
            }
        }
    }

    /// Settles a failed attempt at a cell, and reserves another; false when there is nothing left for it.
    fn again(&self, at: usize, most: u64, failed: Amounts) -> bool {
        let mut paper = self.paper();
        let failed = Amounts { cost_micro_usd: failed.cost_micro_usd, ..Amounts::default() };
        paper.ledger.settle(at as u64, failed);
        let want = Amounts { cost_micro_usd: most, ..Amounts::default() };
        let admitted = paper.ledger.admit(&want, self.elapsed()).is_ok();
        // What is not admitted is reserved as nothing, for the cell to be settled with.
        paper.ledger.reserve(at as u64, if admitted { want } else { Amounts::default() });
        *paper.paid.entry(at).or_default() += failed.cost_micro_usd;
        admitted
    }

    fn put(&self, at: usize, cell: CellRecord, took: Duration) {
        let mut guard = self.paper();
        let paper = &mut *guard;
        let (cost, tokens) = cell.spent(&paper.manifest.run);
        let cost_micro_usd = cost.saturating_sub(paper.paid.get(&at).copied().unwrap_or_default());
        paper.ledger.settle(at as u64, Amounts { cost_micro_usd, tokens, ..Amounts::default() });
        paper.under_way.remove(&at);
        match &cell.standing {
            CellStatus::Done(_) => {
                paper.failed_in_a_row = 0;
                let sum = paper.took.entry(cell.arm()).or_default();
                sum.0 += took.as_secs_f64();
                sum.1 += 1;
            }
            CellStatus::Failed { failures } => {
                paper.failed_in_a_row += 1;
                if paper.failed_in_a_row >= MOST_FAILED_IN_A_ROW {
                    let last = failures.last().map(|f| f.message.clone()).unwrap_or_default();
                    let why =
                        format!("{MOST_FAILED_IN_A_ROW} sessions in a row failed; the last error: {last}");
                    paper.over.get_or_insert(why);
                }
            }
            CellStatus::NotRun { .. } => {}
        }
        let ended = cell.clone();
        if let Some(slot) = paper.manifest.cells.get_mut(at) {
            *slot = cell;
        }
        self.write(paper);
        (self.watch)(&self.progress(paper, Some(ended)));
        drop(guard);
        self.changed.notify_all();
    }

    fn write(&self, paper: &mut SchedulerState<'_>) {
        paper.manifest.seconds = self.elapsed().as_secs();
        paper.manifest.ended = Some(Timestamp::now());
        if let Err(error) = paper.manifest.write(self.folder) {
            paper.error = Some(error);
        }
    }

    fn progress(&self, paper: &SchedulerState<'_>, ended: Option<CellRecord>) -> Progress {
        let left = paper.waiting.len() + paper.under_way.len();
        Progress {
            settled: paper.manifest.cells.len() - left,
            total: paper.manifest.cells.len(),
            under_way: paper.under_way.values().cloned().collect(),
            cost_micro_usd: paper.manifest.spent().0,
            remaining: self.remaining(paper),
            ended,
        }
    }

    /// What is left, each cell by the mean of its own arm where that is known.
    fn remaining(&self, paper: &SchedulerState<'_>) -> Option<Duration> {
        let all = paper.took.values().fold((0.0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        if all.1 == 0 {
            return None;
        }
        let left = paper.waiting.iter().chain(paper.under_way.keys());
        let seconds = left.filter_map(|&at| {
            let cell = paper.manifest.cells.get(at)?;
            let own = paper.took.get(&cell.arm());
            let (sum, n) = own.copied().unwrap_or(all);
            Some(sum / f64::from(n))
        });
        Some(Duration::from_secs_f64(seconds.sum::<f64>() / self.jobs as f64))
    }

    /// Says of what is left why it was not run, and writes the manifest a last time.
    fn close(self) -> Result<(), RunError> {
        let mut guard = self.paper();
        let paper = &mut *guard;
        let why = paper.over.clone().unwrap_or_else(|| "not begun".into());
        for at in std::mem::take(&mut paper.waiting) {
            if let Some(cell) = paper.manifest.cells.get_mut(at) {
                cell.leave(&why);
            }
        }
        self.write(paper);
        match paper.error.take() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::eval::golden::Golden;
    use crate::provider::Registry;
    use crate::session::driver::{Host, Session};
    use crate::session::rig;
    use crate::session::state::State;
    use crate::transcript::{Event, Line};
    use base::assets::Overlay;
    use base::redact::Redactor;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, name, expected) in [
            ("*", "001_a", true),
            ("001*", "001_a", true),
            ("*portrait*", "002_portrait_face", true),
            ("0*_*t*e", "002_portrait_face", true),
            ("001_a", "001_a", true),
            ("001", "001_a", false),
            ("*b", "001_a", false),
            ("", "001_a", false),
            ("*ü", "größe_ü", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    /// A set of two scenarios, and what a run over it needs; no darktable.
    fn surroundings(folder: &Path) -> EvalContext {
        let set = folder.join("golden_test");
        std::fs::create_dir_all(set.join("raws")).unwrap();
        std::fs::write(set.join("raws/cup.dng"), "sensor data").unwrap();
        for id in ["001_cup", "002_cup"] {
            let text = format!(
                "[metadata]\nid = \"{id}\"\ntitle = \"A cup\"\ncreated = \"2026-11-22\"\n\
                 [brief]\nsubject = \"A cup.\"\nintent = \"Open.\"\n\
                 [image]\npath = \"../raws/cup.dng\"\nsha256 = \"{}\"\n\
                 [budget]\ntime = 3600\niterations = 10\nbranches = 1\ncost = 2.0\n\
                 [[vectors]]\nname = \"light\"\ndirection = \"open the shadows\"\n\
                 [[hidden]]\nmove = \"exposure\"\nvalues = {{ ev = 0.5 }}\n",
                Hash::of("sensor data")
            );
            std::fs::create_dir_all(set.join(id)).unwrap();
            std::fs::write(set.join(id).join("scenario.toml"), text).unwrap();
        }
        let today = "2026-11-22".parse().unwrap();
        let golden = Golden::freeze(&set, "recovery", [].into(), "for a test", today).unwrap();
        let (vocabulary, layouts) = rig::moves();
        EvalContext {
            home: folder.join("evaluations"),
            golden,
            raws: None,
            registry: Registry::with_env(&Overlay::providers(None), |_| None),
            prompts: Overlay::prompts(None),
            protocols: BTreeMap::new(),
            vocabulary_files: Overlay::vocabulary(None),
            vocabulary,
            layouts,
            renderer: Arc::new(rig::Sums::default()),
            ask: Box::new(rig::untouched),
            redactor: Redactor::default(),
            asked: Mutex::default(),
        }
    }

    /// Panics once the model was paid.
    struct Defect(bool);

    impl Host for Defect {
        fn line(&self, line: &Line, _: &State, _: &Ledger) {
            assert!(!self.0 || !matches!(line.event, Event::ModelReply { .. }), "a defect after it was paid");
        }
    }

    #[test]
    fn a_defect_in_a_cell_ends_that_cell_alone_and_what_it_had_spent_is_on_the_bill() {
        let folder = rig::folder();
        let surroundings = surroundings(folder.path());
        let script = folder.path().join("script.toml");
        let reply = "[model]\nfree = false\nprice = { input = 1.0, output = 4.0, as_of = \"2026-11-01\" }\n[[reply]]\n\
                     calls = [{ name = \"end_mode_b_session\", arguments = { session_summary = \"Done.\" } }]\n\
                     usage = { input_fresh = 20000, output = 100 }\n";
        std::fs::write(&script, reply).unwrap();
        let asked = RunRequest {
            golden: folder.path().join("golden_test"),
            scenarios: Vec::new(),
            prompts: vec!["mode_b/system@v1".into()],
            protocols: Vec::new(),
            referee: None,
            prompt_folder: None,
            contestants: vec![Contestant {
                provider: "script".into(),
                model: Some(script.to_str().unwrap().to_owned()),
            }],
            repeats: 1,
            seed: 1,
            cost_micro_usd: Some(10_000_000),
            time_seconds: None,
            cell_cost_micro_usd: None,
        };
        for jobs in [1, 2] {
            let mut plan = plan(
                &surroundings,
                RunRequest { seed: jobs, ..asked.clone() },
                Hash::of(""),
                None,
                Timestamp::now(),
            )
            .unwrap();
            let run = plan.begin(&surroundings.home).unwrap();
            let execute = |session: &mut Session| {
                let defect = session.state.start.photo.as_str() == "001_cup";
                // As one that was cut: what a session is worth is not the question here.
                session.run_alone(&Defect(defect)).map(|_| None)
            };
            plan.run_pending(&surroundings, &run, jobs as usize, &Cancel::default(), &execute, &|_| {})
                .unwrap();
            let cells = Manifest::read(&run).unwrap().cells;
            let CellStatus::Failed { failures } = &cells[0].standing else { panic!("{:?}", cells[0]) };
            let last = failures.last().unwrap();
            assert!(last.message.contains("a defect of chemigram: "), "{last:?}");
            assert!(last.message.contains("a defect after it was paid"), "{last:?}");
            assert!(last.spent.cost_micro_usd >= 20_400, "{last:?}");
            assert!(
                matches!(&cells[1].standing, CellStatus::NotRun { why, .. } if why.contains("was interrupted"))
            );
        }
    }
}
