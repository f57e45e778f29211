//! `overnight`: from a plan to its sessions, their night, and the report.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::MultiProgress;
use jiff::Timestamp;
use serde_json::json;
use tokio::runtime::Handle;

use super::failure::Failure;
use super::overnight_args::OvernightArgs;
use super::progress::{self, Watch};
use super::resolve;
use super::run::{self, Anew, DEFAULT_PROVIDER, DEFAULT_SEED, SessionSpec};
use super::run_args::ChoiceArgs;
use super::setup::App;
use super::signals;
use super::steering;
use crate::budget::{Budget, usd};
use crate::overnight::night::{self, BatchHost};
use crate::overnight::plan::{self, Draft, EXAMPLE, Mistake, Wanted};
use crate::overnight::record::{self, Batch, Entry, PlannedSession, Stamped};
use crate::overnight::report::BatchReport;
use crate::overnight::share::{self, clock, words};
use crate::provider::{Choice, ModelInfo, connect};
use crate::review::line as one_line;
use crate::session::SessionError;
use crate::session::driver::Session;
use crate::session::listing;
use crate::session::opinion::Referee;
use crate::session::protocols::ProtocolSource;
use crate::session::start::{self, Plan, Request, Resume, Setup};
use base::clock::{Clock as _, Stop, SystemClock};
use base::error::{Coded as _, ErrorCode, Fault};
use base::files;
use base::hint::did_you_mean;
use base::ids::{Hash, PhotoId, SessionId};
use engine::photo::{IngestOptions, PhotoError, Workspace};

/// How often a session is told what was asked of the night.
const TICK: Duration = Duration::from_millis(50);
/// The preview's longest side where nothing is said, as of `run-mode-b`.
const PREVIEW_SIZE: u32 = 1024;

/// Carries out `overnight`; its help says which status means what.
pub fn overnight(app: &App, args: &OvernightArgs) -> Result<u8, Failure> {
    if args.example {
        app.output.raw(EXAMPLE.as_bytes());
        return Ok(0);
    }
    if let Some(name) = &args.resume {
        return spend(app, record::find(&app.library, name)?, args.jobs.into());
    }
    let path = args.plan.as_deref().unwrap_or(Path::new(""));
    let path = std::path::absolute(path).map_err(|e| Failure::file("find", path, &e))?;
    let text = resolve::file(&path)?;
    let draft = plan::read(&text);
    let orders = orders(app, &path, &draft)?;
    if args.dry_run {
        return dry_run(app, &draft, &orders, args.jobs.into()).map(|()| 0);
    }
    let night = match record::unfinished(&app.library, &record::hash(&draft.caps, &orders)) {
        Some(night) => {
            let name = &night.record.night;
            app.output.remark(&format!("this plan has an unfinished batch: resuming {name}"));
            night
        }
        None => record::begin(&app.library, (&path, &text), draft.caps, orders, Timestamp::now())?,
    };
    spend(app, night, args.jobs.into())
}

/// One sitting of a night, with its progress, its signals and its report.
fn spend(app: &App, mut night: Batch, jobs: usize) -> Result<u8, Failure> {
    // Held until the report is written.
    let _lock = night.lock()?;
    // Somebody may have worked on it until now.
    night = Batch::read(&night.folder)?;
    let runtime = signals::runtime()?;
    let (stop, lines, output) = (Stop::default(), progress::lines(&app.output), app.output.clone());
    let (heard, bars) = (stop.clone(), lines.clone());
    runtime.block_on(async {
        signals::listen(stop.clone(), move |_| {
            let text = match heard.hard.is_cancelled() {
                false => "wrapping up the running sessions, starting no more: everything is kept and scored; press Ctrl-C again to stop at once",
                true => "stopping at once",
            };
            bars.suspend(|| output.remark(text));
        })
    })?;
    let crew = CliHost {
        app,
        handle: runtime.handle().clone(),
        stop: stop.clone(),
        lines,
        folder: &night.folder.clone(),
    };
    night::run_pending(&mut night, &app.library, &crew, &SystemClock, jobs, &stop.soft)?;
    let morning = BatchReport::of(&app.library, &night);
    morning.write()?;
    let report = night.folder.join("report.html");
    if app.output.json {
        let value =
            json!({ "event": "report", "status": morning.status(), "file": report, "report": morning });
        app.output.line(&value.to_string());
    } else {
        app.output.text(&format!("{}\n\n{}", morning.summary(), report.display()));
    }
    Ok(morning.status())
}

/// Everything looked up and read that a plan names; all mistakes are one failure.
fn orders(app: &App, path: &Path, draft: &Draft) -> Result<Vec<PlannedSession>, Failure> {
    let mut desk = PlanResolver {
        app,
        folder: path.parent().unwrap_or(Path::new(".")),
        mistakes: draft.mistakes.clone(),
        models: BTreeMap::new(),
    };
    let orders: Vec<PlannedSession> =
        draft.sessions.iter().filter_map(|wanted| desk.order(&draft.caps, wanted)).collect();
    let mut mistakes = desk.mistakes;
    mistakes.sort();
    mistakes.dedup();
    if mistakes.is_empty() {
        return Ok(orders);
    }
    let count = match mistakes.len() {
        1 => "an error".to_owned(),
        n => format!("{n} errors"),
    };
    let mut text = format!("{} has {count}; nothing was started", path.display());
    for Mistake { line, message } in &mistakes {
        let _ = write!(text, "\n  line {line}: {}", one_line(message));
    }
    Err(Failure::input(text).remedy("`chemigram overnight --example` prints a complete example"))
}

/// Where orders are made of wishes.
struct PlanResolver<'a> {
    app: &'a App,
    /// The plan's folder, from which its files are named.
    folder: &'a Path,
    mistakes: Vec<Mistake>,
    /// Models that were asked for already: a key may come from a command.
    models: BTreeMap<(String, Option<String>), Result<ModelInfo, String>>,
}

impl PlanResolver<'_> {
    fn say(&mut self, line: usize, message: impl Into<String>) {
        self.mistakes.push(Mistake { line, message: message.into() });
    }

    /// The value, or what is wrong as a mistake.
    fn tried<T>(&mut self, line: usize, result: Result<T, Failure>) -> Option<T> {
        let failure = match result {
            Ok(value) => return Some(value),
            Err(failure) => failure,
        };
        let remedy = failure.help().map(|help| format!(" ({help})")).unwrap_or_default();
        self.say(line, format!("{}{remedy}", failure.message()));
        None
    }

    /// A session, everything looked up; what is wrong with it is added to the mistakes.
    fn order(&mut self, caps: &plan::Caps, wanted: &Wanted) -> Option<PlannedSession> {
        let before = self.mistakes.len();
        let photo = wanted.text("photo");
        let subject = photo.and_then(|photo| {
            let found = self.subject(&photo.value);
            self.tried(photo.line, found)
        });
        let brief = self.text(wanted, "brief");
        let criteria = self.text(wanted, "criteria");
        let vars = wanted.vars.as_ref().map(|vars| vars.value.clone()).unwrap_or_default();
        let protocol = wanted.value("protocol").map(|named| self.file(&named).unwrap_or(named));
        let asked = protocol.as_ref().and_then(|named| {
            let vars: Vec<(String, String)> = vars.clone().into_iter().collect();
            let asked = steering::asked(self.app, named, &vars);
            self.tried(wanted.line_of("protocol"), asked)
        });
        let wishes = asked.as_ref().map(ProtocolSource::wishes).unwrap_or_default();
        let seed = wanted.seed.as_ref().map_or(DEFAULT_SEED, |seed| seed.value);
        let typed = ChoiceArgs { provider: wanted.value("provider"), model: self.model(wanted) };
        // Who is named in a plan has the address of its file.
        let mut choice = Choice { base_url: None, ..run::choice(&typed, seed) };
        if choice.model.is_none() && choice.provider != DEFAULT_PROVIDER {
            choice.model = wishes.model;
        }
        let key = (choice.provider.clone(), choice.model.clone());
        let (app, models) = (self.app, &mut self.models);
        let info = models.entry(key).or_insert_with(|| {
            let connected = connect(&app.registry(), &choice);
            connected.map(|provider| provider.info().clone()).map_err(|error| {
                let remedy = error.remedy().map(|remedy| format!(" ({remedy})")).unwrap_or_default();
                format!("{error}{remedy}")
            })
        });
        let info = info.clone();
        let provider_line = wanted.line_of(if typed.provider.is_some() { "provider" } else { "model" });
        let info = info.map_err(|message| self.say(provider_line, message)).ok();
        if let (Some(info), Some(budget)) = (&info, wanted.budget())
            && let Some(message) = plan::unbounded(caps, &budget, info.free)
        {
            self.say(wanted.line_of("budget"), message);
        }
        let referee = wanted.value("referee").or(wishes.referee);
        let store = self.app.prompts(None);
        let store = self.tried(wanted.line, store)?;
        if let Some(named) = &referee {
            let referee = Referee::named(Some(named), &self.app.registry(), &store, seed);
            self.tried(wanted.line_of("referee"), referee.map_err(Failure::from));
        }
        if let Some(prompt) = wanted.value("prompt") {
            let (name, version) =
                prompt.split_once('@').map_or((prompt.as_str(), None), |(n, v)| (n, Some(v)));
            let shown = store.show(name, version).map_err(Failure::from);
            self.tried(wanted.line_of("prompt"), shown);
        }
        if self.mistakes.len() > before {
            return None;
        }
        let (raw, sha256, workspace) = subject?;
        let info = info?;
        let order = PlannedSession {
            photo: photo?.value.clone(),
            raw,
            sha256,
            brief,
            criteria,
            vectors: wanted.vectors.as_ref().map(|vectors| vectors.value.clone()).unwrap_or_default(),
            budget: wanted.budget()?,
            provider: info.provider.clone(),
            model: info.model,
            free: info.free,
            protocol,
            vars,
            referee,
            from: wanted.value("from").unwrap_or_else(|| "HEAD".into()),
            prompt: wanted.value("prompt"),
            seed,
            preview_size: wanted.preview_size.as_ref().map_or(PREVIEW_SIZE, |size| size.value),
            proxy: wanted.proxy.as_ref().map_or_else(|| "off".into(), |proxy| proxy.value.clone()),
        };
        // A photo of the library can be planned to the end; one that is still to be taken in cannot.
        if let Some(workspace) = workspace {
            let planned = planned(self.app, &order, &workspace, &order.budget);
            self.tried(wanted.line, planned)?;
        }
        Some(order)
    }

    /// The model as typed; of `script` the file, from the plan's folder.
    fn model(&self, wanted: &Wanted) -> Option<String> {
        let model = wanted.value("model")?;
        let script = wanted.value("provider").is_some_and(|provider| provider == "script");
        Some(self.file(&model).filter(|_| script).unwrap_or(model))
    }

    /// The path of a file that is named from the plan's folder, if there is one.
    fn file(&self, named: &str) -> Option<String> {
        let path = self.folder.join(named);
        path.is_file().then(|| path.to_string_lossy().into_owned())
    }

    /// A text, or that of the file after an `@`, from the plan's folder.
    fn text(&mut self, wanted: &Wanted, key: &str) -> Option<String> {
        let text = wanted.text(key)?;
        match text.value.strip_prefix('@') {
            Some(path) => {
                let read = resolve::file(&self.folder.join(path));
                self.tried(text.line, read)
            }
            None => Some(text.value.clone()),
        }
    }

    /// The photo that is named: its raw file if that is how, the raw's hash, and the photo if the library has it.
    fn subject(&self, named: &str) -> Result<(Option<PathBuf>, Hash, Option<Workspace>), Failure> {
        let library = &self.app.library;
        let id = named.parse::<PhotoId>().ok();
        if let Some(id) = id.filter(|id| library.folder(id).exists()) {
            let workspace = self.app.photo(&id)?;
            return Ok((None, workspace.photo().raw.sha256.clone(), Some(workspace)));
        }
        let path = self.folder.join(named);
        if !path.is_file() {
            let photos = library.photos()?;
            let hint = did_you_mean(named, photos.iter().map(PhotoId::as_str));
            let message = format!("`{named}` is neither a photo in the library nor a file{hint}");
            return Err(Failure::new(ErrorCode::NotFound, message));
        }
        let (sha256, _) = files::hash(&path).map_err(|e| Failure::file("read", &path, &e))?;
        let known = library.find_raw(&sha256)?;
        let workspace = known.map(|id| self.app.photo(&id)).transpose()?;
        Ok((Some(path), sha256, workspace))
    }
}

/// An order as a session on a photo, planned; nothing is written.
fn planned(
    app: &App,
    order: &PlannedSession,
    workspace: &Workspace,
    budget: &Budget,
) -> Result<(Setup, Plan), Failure> {
    let vars: Vec<(String, String)> = order.vars.clone().into_iter().collect();
    let asked = order.protocol.as_deref().map(|named| steering::asked(app, named, &vars)).transpose()?;
    let (model, seed) = (Some(order.model.clone()), order.seed);
    let choice = Choice { provider: order.provider.clone(), model, base_url: None, seed };
    let provider = connect(&app.registry(), &choice)?;
    let referee = Referee::named(order.referee.as_deref(), &app.registry(), &app.prompts(None)?, order.seed)?;
    let prompt = order.prompt.clone().unwrap_or_else(|| run::usual_prompt(asked.is_some()).into());
    let wish = SessionSpec {
        request: Request {
            brief: order.brief.clone(),
            vectors: order.vectors.clone(),
            budget: budget.clone(),
            from: order.from.clone(),
            criteria: order.criteria.clone(),
            prompt,
            preview_edge: order.preview_size,
            unattended: true,
            seed: order.seed,
        },
        asked,
        provider,
        referee,
        proxy: order.proxy.parse().map_err(Failure::input)?,
        prompts: None,
        renderers: 1,
    };
    let (setup, proxy) = wish.setup(app, workspace.clone(), Stop::default())?;
    let plan = wish.plan(&setup, proxy)?;
    Ok((setup, plan))
}

/// Who carries out what a night asks for.
struct CliHost<'a> {
    app: &'a App,
    handle: Handle,
    /// What was asked of the night. Each session has a stop of its own, for `mode-b stop` ends one and not all.
    stop: Stop,
    lines: MultiProgress,
    folder: &'a Path,
}

impl BatchHost for CliHost<'_> {
    fn photo(&self, order: &PlannedSession) -> Result<Workspace, Fault> {
        let library = &self.app.library;
        let known = library.find_raw(&order.sha256).map_err(|e| Fault::from(&e))?;
        if let Some(id) = known {
            return Ok(self.app.photo(&id)?);
        }
        let Some(raw) = &order.raw else {
            let message = format!("`{}` is no longer in the library", order.photo);
            return Err(Fault::new(ErrorCode::NotFound, message));
        };
        let options = IngestOptions { id: None, brief: order.brief.clone() };
        match self.app.try_ingest(raw, options)? {
            Ok(ingested) => Ok(ingested.workspace),
            Err(PhotoError::AlreadyIngested { id, .. }) => Ok(self.app.photo(&id)?),
            Err(error) => Err(Fault::from(&error)),
        }
    }

    fn plan(
        &self,
        order: &PlannedSession,
        workspace: &Workspace,
        budget: &Budget,
    ) -> Result<(Setup, Plan), Fault> {
        planned(self.app, order, workspace, budget).map_err(Fault::from)
    }

    fn resume(&self, order: &PlannedSession, workspace: Workspace, id: &SessionId) -> Result<Session, Fault> {
        let session = listing::read(&workspace, id).map_err(|e| Fault::from(&e))?;
        let anew = Anew {
            choice: ChoiceArgs { provider: None, model: None },
            seed: Some(order.seed),
            referee: None,
            prompts: None,
            renderers: 1,
        };
        let (setup, referee) = run::take_up(self.app, workspace, &session, anew, Stop::default())?;
        let with = Resume { referee, ..Resume::default() };
        start::resume(setup, id, with).map_err(|e| Fault::from(&e))
    }

    fn run(&self, _place: usize, session: &mut Session, until: Option<Duration>) -> Result<(), SessionError> {
        let (asked, own) = (self.stop.clone(), session.stop.clone());
        let begun = SystemClock.monotonic();
        let relay = self.handle.spawn(async move {
            loop {
                let late = until.is_some_and(|until| SystemClock.monotonic().saturating_sub(begun) >= until);
                if late || asked.soft.is_cancelled() {
                    own.soft.cancel();
                }
                if asked.hard.is_cancelled() {
                    own.hard.cancel();
                }
                tokio::time::sleep(TICK).await;
            }
        });
        let watch = Watch::among(&self.app.output, &self.lines, session.state.start.photo.to_string());
        watch.start();
        let end = self.handle.block_on(session.run(&watch));
        relay.abort();
        watch.finish();
        end.map(drop)
    }

    fn tell(&self, stamped: &Stamped) {
        if self.app.output.json {
            if let Ok(text) = serde_json::to_string(stamped) {
                self.app.output.line(&text);
            }
        } else if let Some(text) = told(stamped) {
            self.lines.suspend(|| self.app.output.remark(&text));
        }
        if !matches!(stamped.entry, Entry::RunStarted { .. } | Entry::Started { .. }) {
            // A night that is killed has its report up to the last session that ended.
            let written =
                Batch::read(self.folder).and_then(|night| BatchReport::of(&self.app.library, &night).write());
            if let Err(error) = written {
                tracing::warn!(%error, "the report cannot be written");
            }
        }
    }
}

/// A line for a person, where there is something to say.
fn told(stamped: &Stamped) -> Option<String> {
    Some(match &stamped.entry {
        Entry::Started { photo, session, budget, again, place } => {
            let verb = if *again { "resuming" } else { "starting" };
            format!("{}. {photo}: {verb} session {} ({})", place + 1, session.short(), words(budget))
        }
        Entry::Ended { place, outcome, .. } => format!("{}. {}", place + 1, outcome.as_str()),
        Entry::Failed { place, message, .. } => format!("{}. failed: {}", place + 1, one_line(message)),
        Entry::NotBegun { place, why } => format!("{}. not begun: {}", place + 1, one_line(why)),
        Entry::RunStarted { .. } | Entry::Closed => return None,
    })
}

/// What would be run, what it may take at most, and whether the night has that.
fn dry_run(app: &App, draft: &Draft, orders: &[PlannedSession], jobs: usize) -> Result<(), Failure> {
    let given = share::forecast(&draft.caps, orders, jobs);
    let cost = |order: &PlannedSession| (!order.free).then_some(order.budget.max_cost_micro_usd);
    let costs: Vec<Option<Option<u64>>> = orders.iter().map(cost).collect();
    // A model that costs something and has no cap on it makes the sum unknown.
    let known = costs.iter().all(|cost| *cost != Some(None));
    let cost: Option<u64> = known.then(|| costs.iter().flatten().flatten().sum());
    let cost = [cost, draft.caps.cost_micro_usd].into_iter().flatten().min();
    let seconds: u64 = orders.iter().map(|order| order.budget.time_seconds).sum();
    let fits = orders.iter().zip(&given).all(|(order, given)| given.as_ref() == Ok(&order.budget));
    let sessions: Vec<_> = orders
        .iter()
        .zip(&given)
        .map(|(order, given)| json!({ "order": order, "gets": given.as_ref().ok(), "why_not": given.as_ref().err() }))
        .collect();
    let value = json!({
        "caps": draft.caps, "sessions": sessions, "fits": fits,
        "at_most": { "cost_micro_usd": cost, "session_seconds": seconds },
    });
    app.output.result(&value, || {
        let plural = if orders.len() == 1 { "" } else { "s" };
        let mut text = format!("{} session{plural}, at most:\n", orders.len());
        for (order, given) in orders.iter().zip(&given) {
            let by = format!("{} {}", order.provider, order.model);
            let _ =
                write!(text, "  {}: {}, by {}", one_line(&order.photo), words(&order.budget), one_line(&by));
            let _ = match given {
                Ok(given) if *given == order.budget => writeln!(text),
                Ok(given) => writeln!(
                    text,
                    "\n    may get only {}, if the sessions before it use all of theirs",
                    words(given)
                ),
                Err(why) => {
                    writeln!(text, "\n    may not start, if the sessions before it use all of theirs: {why}")
                }
            };
        }
        let cost =
            cost.map_or_else(|| "an unlimited amount of money".into(), |cost| format!("{} USD", usd(cost)));
        let _ = writeln!(text, "together at most {cost} and {} of session time", clock(seconds));
        let caps = &draft.caps;
        let time = caps.time_seconds.map(|time| format!(", {}", clock(time))).unwrap_or_default();
        let money = caps.cost_micro_usd.map(|cost| format!(", {} USD", usd(cost))).unwrap_or_default();
        let verdict = if fits { "all of it fits within" } else { "not all of it fits within" };
        let _ = writeln!(text, "{verdict} the budget of the batch{time}{money}");
        text.push_str("Nothing was sent and nothing was spent.");
        text
    })
}
