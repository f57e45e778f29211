//! What commands work with, each part made when it is first asked for.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::Duration;

use super::args::Globals;
use super::failure::Failure;
use super::output::Output;
use super::paths::Folders;
use crate::prompts::Store;
use crate::provider::Registry;
use crate::session::listing;
use base::assets::Overlay;
use base::clock::{Deadline, SystemClock};
use base::error::ErrorCode;
use base::ids::{PhotoId, SessionId};
use base::redact::Redactor;
use darktable::baseline::{self, Untouched};
use darktable::cache::{Cache, Cached};
use darktable::layout::{Layouts, MEASURED};
use darktable::oneshot::{Encoder, OneShot};
use darktable::probe::DarktableCli;
use darktable::proxy::{Choice, Proxied, Proxies, ProxyError};
use darktable::render::{RawFile, RenderError, Renderer};
use darktable::sandbox::Isolation;
use darktable::state::EditState;
use darktable::worker::Worker;
use darktable::xmp;
use engine::photo::{Authority, IngestOptions, Ingested, Library, PhotoError, Workspace, Writer, ingest};
use engine::vocabulary::Vocabulary;

/// How large the cache of rendered pictures may become.
pub const CACHE_LIMIT: u64 = 4 << 30;

/// How long darktable may take over one picture that a person waits for.
const PATIENCE: Duration = Duration::from_secs(600);

/// The program's surroundings.
pub struct App {
    /// Where everything is said.
    pub output: Output,
    /// The user's folders.
    pub folders: Folders,
    /// The photos.
    pub library: Library,
    /// How much it matters that darktable is confined.
    pub isolation: Isolation,
    /// What no log or transcript may hold: the keys of all providers.
    pub redactor: Redactor,
    /// Passes once it was said that nothing confines it.
    said: Arc<Once>,
}

impl App {
    /// With the library that the arguments name, or the user's own.
    pub fn new(output: Output, globals: &Globals) -> Result<Self, Failure> {
        let folders = Folders::find()?;
        let library = Library::new(globals.library.clone().unwrap_or_else(|| folders.library()));
        let isolation = if globals.require_sandbox { Isolation::Required } else { Isolation::WherePossible };
        let redactor = Redactor::default();
        let app = Self { output, folders, library, isolation, redactor, said: Arc::new(Once::new()) };
        // The keys of the environment are known from now on.
        app.registry();
        Ok(app)
    }

    /// The same with another library.
    pub fn with_library(&self, folder: PathBuf) -> Self {
        Self {
            output: self.output.clone(),
            folders: self.folders.clone(),
            library: Library::new(folder),
            isolation: self.isolation,
            redactor: self.redactor.clone(),
            said: Arc::clone(&self.said),
        }
    }

    /// A photo, for reading.
    pub fn photo(&self, id: &PhotoId) -> Result<Workspace, Failure> {
        Ok(self.corrected(self.library.open(id)?))
    }

    /// The photo with the facts of its file as darktable tells them, where an earlier build took it in: it is asked
    /// once. Where it cannot be asked now, a remark says so and the old facts stay.
    pub fn corrected(&self, workspace: Workspace) -> Workspace {
        if !workspace.needs_facts() {
            return workspace;
        }
        let id = workspace.id();
        let raw = workspace.raw().path;
        let asked = workspace
            .refuse_another_raw()
            .map_err(Failure::from)
            .and_then(|()| Ok(self.ask()?(&raw)?))
            .and_then(|told| Ok(workspace.correct_facts(&told)?));
        match asked {
            Ok(corrected) => {
                let misplaced = corrected.photo().corrected.as_ref().map_or(0, |c| c.misplaced.len());
                self.output.remark(&match misplaced {
                    0 => format!("photo `{id}` was taken in by an earlier chemigram: its size and orientation are darktable's now"),
                    n => format!(
                        "photo `{id}` was taken in by an earlier chemigram, which had its sides wrong. They are right now, \
                         but {n} of its edits placed shapes, spots or straightening in another frame: \
                         `chemigram fsck {id}` lists them"
                    ),
                });
                corrected
            }
            Err(failure) => {
                self.output.remark(&format!(
                    "photo `{id}` was taken in by an earlier chemigram, and darktable cannot be asked about it now ({}): \
                     shapes may land in the wrong place",
                    failure.message()
                ));
                workspace
            }
        }
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

    /// The providers: those that come along and the user's own.
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

    /// The moves.
    pub fn vocabulary(&self) -> Result<Vocabulary, Failure> {
        Ok(Vocabulary::load(&self.vocabulary_files())?)
    }

    /// The layouts of darktable's parameters.
    pub fn layouts(&self) -> Layouts {
        Layouts::new(self.vocabulary_files())
    }

    /// The cache of rendered pictures.
    pub fn cache(&self) -> Cache {
        Cache::new(self.folders.renders(), CACHE_LIMIT)
    }

    /// The installed darktable. Where nothing confines it, that is said once.
    pub fn darktable(&self) -> Result<DarktableCli, Failure> {
        let cli = DarktableCli::find_as(self.isolation, &interactive_deadline())?;
        if let Err(reason) = cli.sandbox() {
            self.said.call_once(|| {
                tracing::warn!("darktable runs without a sandbox ({reason}); `chemigram doctor` says more");
            });
        }
        Ok(cli)
    }

    /// The version of the installed darktable; where there is none, the newest that is known.
    pub fn darktable_version(&self) -> String {
        let newest = MEASURED.last().copied().unwrap_or_default();
        self.darktable().map_or_else(|_| newest.to_owned(), |cli| cli.version().to_owned())
    }

    /// Eyes for many looks: a darktable that stays alive, behind the cache.
    pub fn steady_renderer(&self) -> Result<Arc<dyn Renderer>, Failure> {
        self.steady_renderer_with(self.cache())
    }

    /// [`Self::steady_renderer`] behind another cache.
    pub fn steady_renderer_with(&self, cache: Cache) -> Result<Arc<dyn Renderer>, Failure> {
        let worker = Worker::new(self.darktable()?, &self.folders.darktable(), self.encoder())?;
        let worker = worker.with_luts(&self.folders.luts()).with_lenses(&self.folders.lenses());
        Ok(Arc::new(Cached::new(Arc::new(worker), cache)))
    }

    /// Eyes for a single look: darktable behind the cache.
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

    /// `renderer`, with previews of `raw` from a smaller copy where that is wanted and can be, and by how much it
    /// is smaller. Where `auto` cannot, it says so and goes on without.
    pub fn proxied(
        &self,
        renderer: Arc<dyn Renderer>,
        raw: &RawFile,
        choice: Choice,
        long_edge: u32,
    ) -> Result<(Arc<dyn Renderer>, Option<u32>), Failure> {
        match self.proxies().of(raw, choice, long_edge) {
            Ok(Some((n, copy))) => Ok((Arc::new(Proxied::new(renderer, raw, copy)), Some(n))),
            Ok(None) => Ok((renderer, None)),
            Err(error @ ProxyError::Kind { .. }) if choice == Choice::Auto => {
                self.output.remark(&format!("{error}; previews come from the raw itself"));
                Ok((renderer, None))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn encoder(&self) -> Arc<Encoder> {
        let layouts = self.layouts();
        Arc::new(move |state: &EditState, name: &str| {
            xmp::write(state, &layouts, name).map_err(|e| e.to_string())
        })
    }

    /// Takes a raw into the library, asking darktable for its default edit.
    pub fn ingest(&self, raw: &Path, options: IngestOptions) -> Result<Ingested, Failure> {
        Ok(self.try_ingest(raw, options)??)
    }

    /// [`Self::ingest`], with the library's own answer: what is in it already may be just as well.
    pub fn try_ingest(
        &self,
        raw: &Path,
        options: IngestOptions,
    ) -> Result<Result<Ingested, PhotoError>, Failure> {
        let ask = self.ask()?;
        Ok(ingest(&self.library, raw, options, &ask))
    }

    /// Asks darktable about a raw.
    pub fn ask(&self) -> Result<impl Fn(&Path) -> Result<Untouched, RenderError> + use<>, Failure> {
        let (cli, layouts, base) = (self.darktable()?, self.layouts(), self.folders.darktable());
        Ok(move |raw: &Path| baseline::ask(&cli, &layouts, raw, &base, &interactive_deadline()))
    }
}

/// The time that darktable gets while a person waits.
pub fn interactive_deadline() -> Deadline {
    Deadline::after(Arc::new(SystemClock), PATIENCE)
}
