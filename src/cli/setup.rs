//! What commands work with, each part made when it is first needed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use super::args::Globals;
use super::failure::Failure;
use super::output::Output;
use super::paths::Folders;
use crate::launch::{self, Ask, Launcher};
use crate::prompts::Store;
use crate::provider::Registry;
use crate::session::listing;
use base::assets::Overlay;
use base::clock::{Deadline, SystemClock};
use base::error::ErrorCode;
use base::ids::{PhotoId, SessionId};
use base::redact::Redactor;
use darktable::baseline;
use darktable::cache::{Cache, Cached};
use darktable::layout::{Layouts, MEASURED};
use darktable::oneshot::{Encoder, OneShot};
use darktable::probe::DarktableCli;
use darktable::proxy::Proxies;
use darktable::render::Renderer;
use darktable::sandbox::Isolation;
use darktable::state::EditState;
use darktable::worker::Worker;
use darktable::xmp;
use engine::photo::{Authority, IngestOptions, Ingested, Library, Workspace, Writer, ingest};
use engine::vocabulary::Vocabulary;

/// How large the cache of rendered pictures may become, unless a person sets it.
pub const CACHE_LIMIT: u64 = 4 << 30;

/// How long darktable may take over one picture that a person waits for.
const PATIENCE: Duration = Duration::from_secs(600);

/// For how long a darktable that was found is not looked for again. A batch needs it several times a session; but
/// another version may be installed while a worker waits.
const FRESH: Duration = Duration::from_secs(60);

/// What commands work with.
#[derive(Clone)]
pub struct App {
    /// Where everything is printed.
    pub output: Output,
    pub folders: Folders,
    pub library: Library,
    /// How much it matters that darktable is confined.
    pub isolation: Isolation,
    /// What no log or transcript may hold: the keys of all providers.
    pub redactor: Redactor,
    /// Passes once it was reported that nothing confines darktable.
    unconfined: Arc<Once>,
    /// The darktable that was found last, and when.
    found: Arc<Mutex<Option<(Instant, DarktableCli)>>>,
}

impl App {
    /// With the library that the arguments name, or the user's own.
    pub fn new(output: Output, globals: &Globals) -> Result<Self, Failure> {
        let folders = Folders::find()?;
        let library = Library::new(globals.library.clone().unwrap_or_else(|| folders.library()));
        let isolation = if globals.require_sandbox { Isolation::Required } else { Isolation::WherePossible };
        let redactor = Redactor::default();
        let (unconfined, found) = (Arc::new(Once::new()), Arc::default());
        let app = Self { output, folders, library, isolation, redactor, unconfined, found };
        // The keys of the environment are known from now on.
        app.registry();
        Ok(app)
    }

    /// The same with another library.
    pub fn with_library(&self, folder: PathBuf) -> Self {
        Self { library: Library::new(folder), ..self.clone() }
    }

    pub fn photo(&self, id: &PhotoId) -> Result<Workspace, Failure> {
        Ok(self.corrected(self.library.open(id)?))
    }

    /// The photo with its facts [`launch::corrected`].
    pub fn corrected(&self, workspace: Workspace) -> Workspace {
        launch::corrected(workspace, &|| Ok(self.ask()?), &|text| self.output.remark(text))
    }

    /// A photo, to be changed by the person at the keyboard.
    pub fn writer(&self, id: &PhotoId, purpose: &str) -> Result<Writer, Failure> {
        Ok(self.photo(id)?.lock(Authority::Person, purpose)?)
    }

    /// A session, by a part of its id.
    pub fn session(&self, part: &str) -> Result<(Workspace, SessionId), Failure> {
        let (photo, session) = listing::find(&self.library, part)?;
        Ok((self.photo(&photo)?, session))
    }

    /// The providers: the built-in ones and the user's own.
    pub fn registry(&self) -> Registry {
        Registry::new(&Overlay::providers(Some(self.folders.providers()))).telling(&self.redactor)
    }

    /// The prompts, with the user's own from `own` or their usual folder.
    pub fn prompts(&self, own: Option<&PathBuf>) -> Result<Store, Failure> {
        if let Some(folder) = own.filter(|folder| !folder.is_dir()) {
            return Err(Failure::new(ErrorCode::NotFound, format!("{} is not a folder", folder.display())));
        }
        let folder = own.cloned().unwrap_or_else(|| self.folders.prompts());
        Ok(Store::new(Overlay::prompts(Some(folder)))?)
    }

    /// The files of the vocabulary.
    pub fn vocabulary_files(&self) -> Overlay {
        Overlay::vocabulary(Some(self.folders.vocabulary()))
    }

    pub fn vocabulary(&self) -> Result<Vocabulary, Failure> {
        Ok(Vocabulary::load(&self.vocabulary_files())?)
    }

    /// The layouts of darktable's parameters.
    pub fn layouts(&self) -> Layouts {
        Layouts::new(self.vocabulary_files())
    }

    /// The cache of rendered pictures.
    pub fn cache(&self) -> Cache {
        let set = std::fs::read_to_string(self.folders.cache_limit()).ok();
        let limit = set.and_then(|text| text.trim().parse().ok()).unwrap_or(CACHE_LIMIT);
        Cache::new(self.folders.renders(), limit)
    }

    /// The installed darktable. If nothing confines it, a warning says so once.
    pub fn darktable(&self) -> Result<DarktableCli, Failure> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, cli)) = found.as_ref().filter(|(when, _)| when.elapsed() < FRESH) {
            return Ok(cli.clone());
        }
        let cli = self.cache().darktable(self.isolation, &interactive_deadline())?;
        *found = Some((Instant::now(), cli.clone()));
        if let Err(reason) = cli.sandbox() {
            self.unconfined.call_once(|| {
                tracing::warn!(
                    "darktable runs without a sandbox ({reason}); run `chemigram doctor` for details"
                );
            });
        }
        Ok(cli)
    }

    /// The version of the installed darktable; where there is none, the newest that is known.
    pub fn darktable_version(&self) -> String {
        let newest = MEASURED.last().copied().unwrap_or_default();
        self.darktable().map_or_else(|_| newest.to_owned(), |cli| cli.version().to_owned())
    }

    /// A renderer for many pictures: a darktable that stays alive, behind the cache.
    pub fn steady_renderer(&self) -> Result<Arc<dyn Renderer>, Failure> {
        self.steady_renderer_with(self.cache())
    }

    /// [`Self::steady_renderer`] behind another cache.
    pub fn steady_renderer_with(&self, cache: Cache) -> Result<Arc<dyn Renderer>, Failure> {
        let worker = Worker::new(self.darktable()?, &self.folders.darktable(), self.encoder())?;
        let worker = worker.with_luts(&self.folders.luts()).with_lenses(&self.folders.lenses());
        Ok(Arc::new(Cached::new(Arc::new(worker), cache)))
    }

    /// A renderer for a single picture: darktable behind the cache.
    pub fn renderer(&self) -> Result<Arc<dyn Renderer>, Failure> {
        Ok(Arc::new(Cached::new(self.uncached_renderer()?, self.cache())))
    }

    /// darktable itself.
    pub fn uncached_renderer(&self) -> Result<Arc<dyn Renderer>, Failure> {
        Ok(Arc::new(self.oneshot()?))
    }

    /// darktable itself, which exports too.
    pub fn oneshot(&self) -> Result<OneShot, Failure> {
        let oneshot = OneShot::new(self.darktable()?, &self.folders.darktable(), self.encoder())?;
        Ok(oneshot.with_luts(&self.folders.luts()).with_lenses(&self.folders.lenses()))
    }

    /// The smaller copies of raws.
    pub fn proxies(&self) -> Proxies {
        Proxies::new(self.folders.proxies())
    }

    /// What sessions are made with, with prompts of the user's own from `prompts` or their usual folder.
    pub fn launcher(&self, prompts: Option<&PathBuf>) -> Result<Launcher, Failure> {
        let (for_renderer, for_ask, output) = (self.clone(), self.clone(), self.output.clone());
        Ok(Launcher {
            registry: self.registry(),
            prompts: self.prompts(prompts)?,
            protocols: Overlay::protocols(Some(self.folders.protocols())),
            vocabulary: Arc::new(self.vocabulary()?),
            layouts: Arc::new(self.layouts()),
            tastes: self.folders.tastes(),
            proxies: self.proxies(),
            redactor: self.redactor.clone(),
            clock: Arc::new(SystemClock),
            mirror: None,
            renderer: Box::new(move || Ok(for_renderer.steady_renderer()?)),
            ask: Box::new(move || Ok(for_ask.ask()?)),
            remark: Box::new(move |text| output.remark(text)),
        })
    }

    fn encoder(&self) -> Arc<Encoder> {
        let layouts = self.layouts();
        Arc::new(move |state: &EditState, name: &str| {
            xmp::write(state, &layouts, name).map_err(|e| e.to_string())
        })
    }

    /// Adds a raw to the library, asking darktable for its default edit.
    pub fn ingest(&self, raw: &Path, options: IngestOptions) -> Result<Ingested, Failure> {
        let ask = self.ask()?;
        Ok(ingest(&self.library, raw, options, &|raw: &Path| ask(raw))?)
    }

    /// Asks darktable about a raw.
    pub fn ask(&self) -> Result<Arc<Ask>, Failure> {
        let (cli, layouts, base) = (self.darktable()?, self.layouts(), self.folders.darktable());
        let cache = self.cache();
        Ok(Arc::new(move |raw: &Path| {
            let ask = || baseline::ask(&cli, &layouts, raw, &base, &interactive_deadline());
            cache.asked(raw, cli.version(), &layouts, ask)
        }))
    }
}

/// The time that darktable gets while a person waits.
pub fn interactive_deadline() -> Deadline {
    Deadline::after(Arc::new(SystemClock), PATIENCE)
}

/// The text itself, or that of the file after an `@`.
pub fn text(given: &str) -> Result<String, Failure> {
    match given.strip_prefix('@') {
        Some(path) => Ok(launch::read_text(Path::new(path))?),
        None => Ok(given.to_owned()),
    }
}

/// [`text`] of an optional argument.
pub fn optional_text(given: Option<&String>) -> Result<Option<String>, Failure> {
    given.map(|given| text(given)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_at_sign_names_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("brief.md");
        std::fs::write(&path, "warm").unwrap();
        let named = format!("@{}", path.display());
        assert_eq!(text(&named).unwrap(), "warm");
        assert_eq!(text("plain").unwrap(), "plain");
        let missing = text("@/nowhere").unwrap_err();
        assert_eq!((missing.exit_status(), missing.message().contains("/nowhere")), (3, true));
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert_eq!(text(&named).unwrap_err().exit_status(), 2);
    }
}
