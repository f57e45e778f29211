//! From what is requested to a session that can run, new or resumed: the one place where its provider, prompts,
//! referee, renderer, preview copy and budget are put together, for the command line, batches and evaluations alike.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::budget::Budget;
use crate::prompts::Store;
use crate::protocol::schema::Trust;
use crate::protocol::store;
use crate::provider::{self, Choice, Provider, Registry, connect};
use crate::session::SessionError;
use crate::session::driver::{Host, Session};
use crate::session::listing;
use crate::session::opinion::Referee;
use crate::session::protocols::{self, ProtocolSource, needs_referee};
use crate::session::start::{self, Plan, Request, Resume, Setup};
use crate::session::talk;
use crate::traces::Live;
use crate::transcript::{Mirror, ModelName, SessionEnd};
use base::assets::Overlay;
use base::clock::{Cancel, Clock, Stop, SystemClock};
use base::error::{ErrorCode, Fault};
use base::files;
use base::ids::PhotoId;
use base::redact::Redactor;
use darktable::baseline::Untouched;
use darktable::layout::Layouts;
use darktable::proxy::{Choice as ProxyChoice, Proxied, Proxies, ProxyError};
use darktable::render::{RawFile, RenderError, Renderer};
use engine::photo::{IngestOptions, Library, PhotoError, Workspace, ingest};
use engine::vocabulary::Vocabulary;

/// The provider when none is named.
pub(crate) const DEFAULT_PROVIDER: &str = "explorer";
/// The seed when none is given.
pub(crate) const DEFAULT_SEED: u64 = 1;
/// The prompt of a session without a protocol.
pub(crate) const PROMPT: &str = "mode_b/system";
/// How often a running session is told that it is to stop.
const TICK: Duration = Duration::from_millis(50);

/// Asks darktable about a raw file.
pub type Ask = dyn Fn(&Path) -> Result<Untouched, RenderError> + Send + Sync;
/// Something that is looked up when it is first needed.
pub type Lookup<T> = Box<dyn Fn() -> Result<T, Fault> + Send + Sync>;

/// What sessions are made with.
pub struct Launcher {
    /// The providers.
    pub registry: Registry,
    /// The prompts.
    pub prompts: Store,
    /// The protocols.
    pub protocols: Overlay,
    /// The moves.
    pub vocabulary: Arc<Vocabulary>,
    /// The layouts of darktable's parameters.
    pub layouts: Arc<Layouts>,
    /// The folder of taste files.
    pub tastes: PathBuf,
    /// Smaller copies of raws.
    pub proxies: Proxies,
    /// What must not be written into a transcript.
    pub redactor: Redactor,
    /// The clock of its sessions.
    pub clock: Arc<dyn Clock>,
    /// Who keeps copies of its sessions elsewhere.
    pub mirror: Option<Arc<dyn Mirror>>,
    /// Makes a session's renderer.
    pub renderer: Lookup<Arc<dyn Renderer>>,
    /// Finds the darktable that is asked about raws.
    pub ask: Lookup<Arc<Ask>>,
    /// Shows a remark to the person who started this.
    pub remark: Box<dyn Fn(&str) + Send + Sync>,
}

/// A session to be made on a photo.
pub struct SessionSpec {
    /// What the photographer asks for.
    pub request: Request,
    /// The protocol that steers it.
    pub protocol: Option<ProtocolSource>,
    /// The model.
    pub provider: Arc<dyn Provider>,
    /// The model that goes on if that one fails for good.
    pub fallback: Option<Arc<dyn Provider>>,
    /// Who gives second opinions.
    pub referee: Referee,
    /// Whether previews come from a smaller copy of the raw.
    pub proxy: ProxyChoice,
    /// How many pictures may be rendered at once.
    pub renderers: u8,
    /// A folder of taste files other than the user's own.
    pub tastes: Option<PathBuf>,
}

/// What differs in a session that is resumed; what is left out is as it began.
pub struct Overrides {
    /// The model.
    pub provider: Option<Arc<dyn Provider>>,
    /// The model that goes on if that one fails for good.
    pub fallback: Option<Arc<dyn Provider>>,
    /// Who gives second opinions: `offline`, or `PROVIDER[:MODEL]`.
    pub referee: Option<String>,
    /// The answer to the question on which it ended.
    pub answer: Option<String>,
    /// A larger budget.
    pub raise: Option<Budget>,
    /// How many pictures may be rendered at once.
    pub renderers: u8,
    /// A folder of taste files other than the user's own.
    pub tastes: Option<PathBuf>,
}

impl Default for Overrides {
    fn default() -> Self {
        Self {
            provider: None,
            fallback: None,
            referee: None,
            answer: None,
            raise: None,
            renderers: 1,
            tastes: None,
        }
    }
}

/// A session whose photo and parts are there, and whose plan is not made yet.
pub struct Prepared {
    /// What it works with.
    pub setup: Setup,
    /// What it is to do.
    pub spec: SessionSpec,
    /// By how much the copy is smaller that its previews come from.
    proxy: Option<u32>,
}

/// A session that is planned: everything was checked, and nothing was written.
pub struct Launch {
    /// What it works with.
    pub setup: Setup,
    /// What it does.
    pub plan: Plan,
}

impl Launcher {
    /// Connects a provider.
    pub fn connect(&self, choice: &Choice) -> Result<Arc<dyn Provider>, Fault> {
        let provider = connect(&self.registry, choice).map_err(|e| Fault::from(&e))?;
        if let Some(notice) = provider.notice() {
            (self.remark)(&notice);
        }
        Ok(provider)
    }

    /// Connects a model that is named `PROVIDER[:MODEL]`, at the address of its profile.
    pub fn fallback(&self, named: Option<&str>, seed: u64) -> Result<Option<Arc<dyn Provider>>, Fault> {
        let choice = |named: &str| {
            let (provider, model) = provider::named(named.to_owned(), None);
            Choice { provider, model, base_url: None, seed }
        };
        named.map(|named| self.connect(&choice(named))).transpose()
    }

    /// Connects a referee: `offline`, or `PROVIDER[:MODEL]`; nobody where none is named.
    pub fn referee(&self, named: Option<&str>, seed: u64) -> Result<Referee, Fault> {
        Referee::named(named, &self.registry, &self.prompts, seed)
    }

    /// A protocol, by its file or its name, with values for its variables.
    pub fn protocol(&self, named: &str, vars: &[(String, String)]) -> Result<ProtocolSource, Fault> {
        let (file, text) = if is_file(named) {
            (named.to_owned(), read_text(Path::new(named))?)
        } else {
            let (entry, text) = store::find(&self.protocols, named).map_err(|e| Fault::from(&e))?;
            (entry.file, text)
        };
        let mut source = ProtocolSource { file, text, ..ProtocolSource::default() };
        for (name, value) in vars {
            source.values.set(name, value.as_str(), Trust::User);
        }
        Ok(source)
    }

    /// Puts together what a session on a photo works with.
    pub fn prepare(&self, workspace: Workspace, spec: SessionSpec, stop: Stop) -> Result<Prepared, Fault> {
        let mut setup = self.setup(workspace, spec.provider.clone(), spec.renderers, stop)?;
        if let Some(tastes) = &spec.tastes {
            setup.tastes.clone_from(tastes);
        }
        let proxy = self.preview_from_copy(&mut setup, spec.proxy, spec.request.preview_edge)?;
        Ok(Prepared { setup, spec, proxy })
    }

    /// Resumes a session; [`start::resume`] says which can be.
    pub fn resume(
        &self,
        workspace: Workspace,
        session: &listing::Session,
        overrides: Overrides,
        stop: Stop,
    ) -> Result<Session, Fault> {
        let begun = &session.state.start;
        let by = |ModelName { provider, model }: ModelName| {
            self.connect(&Choice { provider, model: Some(model), base_url: None, seed: begun.seed })
        };
        let now = session.model();
        // The other one is used up once it has gone on.
        let left = begun.fallback.clone().filter(|other| *other != now);
        let fallback = match (overrides.fallback, left) {
            (Some(other), _) => Some(other),
            (None, left) => left.map(by).transpose()?,
        };
        let provider = overrides.provider.map_or_else(|| by(now), Ok)?;
        let referee = begun.referee.as_ref().map(|r| format!("{}:{}", r.provider, r.model));
        let referee = self.referee(overrides.referee.or(referee).as_deref(), begun.seed)?;
        let mut setup = self.setup(workspace, provider, overrides.renderers, stop)?;
        if let Some(tastes) = overrides.tastes {
            setup.tastes = tastes;
        }
        // As it began: a model that continues must see what it has seen.
        let proxy = begun.proxy.map_or(ProxyChoice::Off, ProxyChoice::By);
        self.preview_from_copy(&mut setup, proxy, begun.preview_edge)?;
        let with = Resume { answer: overrides.answer, raise: overrides.raise, referee, fallback };
        start::resume(setup, &session.id, with).map_err(|e| Fault::from(&e))
    }

    /// What a session on a photo works with, its previews rendered from the raw itself.
    pub fn setup(
        &self,
        workspace: Workspace,
        provider: Arc<dyn Provider>,
        renderers: u8,
        stop: Stop,
    ) -> Result<Setup, Fault> {
        Ok(Setup {
            workspace,
            vocabulary: self.vocabulary.clone(),
            layouts: self.layouts.clone(),
            renderer: (self.renderer)()?,
            renderers: renderers.into(),
            tastes: self.tastes.clone(),
            provider,
            prompts: self.prompts.clone(),
            clock: self.clock.clone(),
            redactor: self.redactor.clone(),
            stop,
            traces: Live::from_env(),
            mirror: self.mirror.clone(),
        })
    }

    /// Lets previews come from a smaller copy of the raw; by how much it is smaller, if they do.
    pub fn preview_from_copy(
        &self,
        setup: &mut Setup,
        choice: ProxyChoice,
        long_edge: u32,
    ) -> Result<Option<u32>, Fault> {
        let (renderer, raw) = (setup.renderer.clone(), setup.workspace.raw());
        let (renderer, n) = proxied(&self.proxies, renderer, &raw, (choice, long_edge), &self.remark)?;
        setup.renderer = renderer;
        Ok(n)
    }

    /// A photo of the library, its facts [corrected].
    pub fn photo(&self, library: &Library, id: &PhotoId) -> Result<Workspace, Fault> {
        let workspace = library.open(id).map_err(|e| Fault::from(&e))?;
        Ok(corrected(workspace, &self.ask, &self.remark))
    }

    /// Adds a raw file to the library, or opens its photo if that is there already.
    pub fn add(&self, library: &Library, raw: &Path, brief: Option<String>) -> Result<Workspace, Fault> {
        let ask = (self.ask)()?;
        match ingest(library, raw, IngestOptions { id: None, brief }, &|raw: &Path| ask(raw)) {
            Ok(ingested) => Ok(ingested.workspace),
            Err(PhotoError::AlreadyIngested { id, .. }) => self.photo(library, &id),
            Err(error) => Err(Fault::from(&error)),
        }
    }
}

impl Prepared {
    /// Plans the session; nothing is written.
    pub fn plan(self) -> Result<Launch, Fault> {
        let Self { setup, spec, proxy } = self;
        let plan = match &spec.protocol {
            Some(protocol) => protocols::plan(&setup, &spec.request, protocol),
            None => start::plan(&setup, &spec.request),
        };
        let plan = plan.and_then(|plan| plan.with_referee(spec.referee)?.with_fallback(spec.fallback));
        let mut plan = plan.map_err(|e| Fault::from(&e))?;
        plan.start.proxy = proxy;
        if let Some(steered) = &plan.protocol {
            // A protocol of the original format cannot run without somebody who names the next state.
            needs_referee(&steered.protocol, &plan.referee)?;
        }
        Ok(Launch { setup, plan })
    }
}

impl Prepared {
    /// Plans a conversation; nothing is written.
    pub fn talk(self) -> Result<Launch, Fault> {
        let Self { setup, spec, .. } = self;
        let plan = talk::plan(&setup, &spec.request).and_then(|plan| plan.with_fallback(spec.fallback));
        Ok(Launch { plan: plan.map_err(|e| Fault::from(&e))?, setup })
    }
}

impl Launch {
    /// Starts the session.
    pub fn start(self) -> Result<Session, Fault> {
        start::start(self.setup, self.plan).map_err(|e| Fault::from(&e))
    }
}

/// The prompt of a session where none is named.
pub(crate) fn usual_prompt(steered: bool) -> &'static str {
    if steered { protocols::PROMPT } else { PROMPT }
}

/// The provider's address in the environment. It belongs to the provider that is named on the command line or beside
/// it in the environment: a key must not travel to the address of another provider.
pub(crate) const BASE_URL_ENV: &str = "CHEMIGRAM_BASE_URL";

/// A variable of the environment that is set and not empty.
pub(crate) fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The provider: the one named, else the one in the environment, else the explorer.
pub(crate) fn choice(provider: Option<String>, model: Option<String>, seed: u64) -> Choice {
    let named = provider.is_some();
    match provider.or_else(|| env("CHEMIGRAM_PROVIDER")) {
        Some(provider) => {
            let (provider, model) = provider::named(provider, model);
            let model = model.or_else(|| (!named).then(|| env("CHEMIGRAM_MODEL")).flatten());
            Choice { provider, model, base_url: env(BASE_URL_ENV), seed }
        }
        None => Choice { provider: DEFAULT_PROVIDER.into(), model, base_url: None, seed },
    }
}

/// Whether a protocol is named by its file.
pub(crate) fn is_file(named: &str) -> bool {
    Path::new(named).is_file() || named.contains('/')
}

/// A text file of reasonable size.
pub(crate) fn read_text(path: &Path) -> Result<String, Fault> {
    files::read_text(path, files::LARGEST_TEXT).map_err(|e| refused("read", path, &e))
}

/// A file that the system refused.
pub(crate) fn refused(doing: &str, path: &Path, error: &std::io::Error) -> Fault {
    let code = match error.kind() {
        std::io::ErrorKind::NotFound => ErrorCode::NotFound,
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
            ErrorCode::PermissionDenied
        }
        std::io::ErrorKind::InvalidInput | std::io::ErrorKind::InvalidData => ErrorCode::InvalidInput,
        _ => ErrorCode::StateError,
    };
    Fault::new(code, format!("cannot {doing} {}: {error}", path.display()))
}

/// `renderer`, with previews of `raw` from a smaller copy where that is chosen and possible, and by how much it is
/// smaller. Where `auto` is not possible, a remark says so.
pub(crate) fn proxied(
    proxies: &Proxies,
    renderer: Arc<dyn Renderer>,
    raw: &RawFile,
    (choice, long_edge): (ProxyChoice, u32),
    remark: &dyn Fn(&str),
) -> Result<(Arc<dyn Renderer>, Option<u32>), Fault> {
    match proxies.of(raw, choice, long_edge) {
        Ok(Some((n, copy))) => Ok((Arc::new(Proxied::new(renderer, raw, copy)), Some(n))),
        Ok(None) => Ok((renderer, None)),
        Err(error @ ProxyError::Kind { .. }) if choice == ProxyChoice::Auto => {
            remark(&format!("{error}; previews are rendered from the raw itself"));
            Ok((renderer, None))
        }
        Err(error) => Err(Fault::from(&error)),
    }
}

/// The photo, its size and orientation corrected by darktable once if an earlier build added it. If darktable cannot
/// run now, a remark says so and the old values stay.
pub(crate) fn corrected(
    workspace: Workspace,
    ask: &dyn Fn() -> Result<Arc<Ask>, Fault>,
    remark: &dyn Fn(&str),
) -> Workspace {
    if !workspace.needs_facts() {
        return workspace;
    }
    let id = workspace.id();
    let raw = workspace.raw().path;
    let corrected = workspace
        .refuse_another_raw()
        .map_err(|e| Fault::from(&e))
        .and_then(|()| ask()?(&raw).map_err(|e| Fault::from(&e)))
        .and_then(|reported| workspace.correct_facts(&reported).map_err(|e| Fault::from(&e)));
    match corrected {
        Ok(corrected) => {
            let misplaced = corrected.photo().corrected.as_ref().map_or(0, |c| c.misplaced.len());
            remark(&match misplaced {
                0 => format!(
                    "photo `{id}` was added by an older chemigram; its size and orientation now come from darktable"
                ),
                n => format!(
                    "photo `{id}` was added by an older chemigram, which recorded its size wrongly. The size is corrected, \
                     but shapes, spots or straightening of {n} edits may be in the wrong place: \
                     `chemigram fsck {id}` lists them"
                ),
            });
            corrected
        }
        Err(fault) => {
            remark(&format!(
                "photo `{id}` was added by an older chemigram, and darktable cannot check its size now ({fault}): \
                 shapes may be in the wrong place"
            ));
            workspace
        }
    }
}

/// Where sessions run: each on the thread that calls, its timers and connections on a thread of the runtime, which
/// hears signals even while a tool blocks.
pub struct Runner(tokio::runtime::Runtime);

impl Runner {
    /// Starts the runtime.
    pub fn new() -> Result<Self, Fault> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        runtime.map(Self).map_err(|e| Fault::new(ErrorCode::StateError, format!("cannot start: {e}")))
    }

    /// Waits for a future on the calling thread.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.0.block_on(future)
    }

    /// Runs a session of a batch to its end. Its own stop, by which `mode-b stop` ends it alone, follows that of the
    /// batch; it is asked to wrap up after `until`, too.
    pub fn run(
        &self,
        session: &mut Session,
        stop: &Stop,
        until: Option<Duration>,
        host: &dyn Host,
    ) -> Result<SessionEnd, SessionError> {
        let (batch, own, began) = (stop.clone(), session.stop.clone(), SystemClock.monotonic());
        let relay = self.0.spawn(async move {
            loop {
                let late = until.is_some_and(|until| SystemClock.monotonic().saturating_sub(began) >= until);
                if late || batch.soft.is_cancelled() {
                    own.soft.cancel();
                }
                if batch.hard.is_cancelled() {
                    own.hard.cancel();
                }
                tokio::time::sleep(TICK).await;
            }
        });
        let end = self.block_on(session.run(host));
        relay.abort();
        end
    }

    /// Runs a session to its end, or leaves it where it is when `cut` is raised, as a kill would: `None`.
    pub fn run_unless(
        &self,
        cut: &Cancel,
        session: &mut Session,
        host: &dyn Host,
    ) -> Result<Option<SessionEnd>, SessionError> {
        self.block_on(async {
            let cut = async {
                while !cut.is_cancelled() {
                    tokio::time::sleep(TICK).await;
                }
            };
            tokio::select! {
                biased;
                () = cut => Ok(None),
                end = session.run(host) => end.map(Some),
            }
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::session::rig;

    /// A launcher that needs no darktable and knows the built-in providers, prompts and protocols only.
    pub(crate) fn launcher(renderer: Arc<dyn Renderer>) -> Launcher {
        let (vocabulary, layouts) = rig::moves();
        Launcher {
            registry: Registry::with_env(&Overlay::providers(None), |_| None),
            prompts: Store::new(Overlay::prompts(None)).unwrap(),
            protocols: Overlay::protocols(None),
            vocabulary,
            layouts,
            tastes: PathBuf::from("/nowhere"),
            proxies: Proxies::new(PathBuf::from("/nowhere")),
            redactor: Redactor::default(),
            clock: Arc::new(SystemClock),
            mirror: None,
            renderer: Box::new(move || Ok(renderer.clone())),
            ask: Box::new(|| Ok(Arc::new(rig::untouched))),
            remark: Box::new(|_| {}),
        }
    }
}
