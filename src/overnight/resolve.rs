//! From a plan as it is written to the sessions of a batch, with everything read and looked up that it names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::budget::Budget;
use crate::launch::{self, DEFAULT_PROVIDER, DEFAULT_SEED, Launch, Launcher, SessionSpec, usual_prompt};
use crate::overnight::plan::{self, Draft, Mistake, Wanted};
use crate::overnight::record::PlannedSession;
use crate::provider::{Choice, ModelInfo};
use crate::session::estimate::Estimate;
use crate::session::pricing;
use crate::session::protocols::ProtocolSource;
use crate::session::start::Request;
use base::clock::Stop;
use base::error::{Coded as _, ErrorCode, Fault};
use base::files;
use base::hint::did_you_mean;
use base::ids::{Hash, PhotoId};
use engine::photo::{Library, Workspace};

/// The longest side of previews where a plan does not say, as in `run-mode-b`.
const PREVIEW_SIZE: u32 = 1024;

/// The sessions of a plan in `folder`, or all mistakes in it.
pub fn resolve(
    launcher: &Launcher,
    library: &Library,
    folder: &Path,
    draft: &Draft,
) -> Result<Vec<PlannedSession>, Vec<Mistake>> {
    let (mistakes, models) = (draft.mistakes.clone(), BTreeMap::new());
    let mut resolver = Resolver { launcher, library, folder, mistakes, models };
    let planned = draft.sessions.iter().filter_map(|wanted| resolver.session(&draft.caps, wanted)).collect();
    let mut mistakes = resolver.mistakes;
    mistakes.sort();
    mistakes.dedup();
    if mistakes.is_empty() { Ok(planned) } else { Err(mistakes) }
}

/// Plans a session of a batch on its photo, with this budget; nothing is written.
pub(super) fn launch(
    launcher: &Launcher,
    session: &PlannedSession,
    workspace: Workspace,
    budget: Budget,
) -> Result<Launch, Fault> {
    let vars: Vec<(String, String)> = session.vars.clone().into_iter().collect();
    let protocol = session.protocol.as_deref().map(|named| launcher.protocol(named, &vars)).transpose()?;
    let seed = session.seed;
    let choice = Choice {
        provider: session.provider.clone(),
        model: Some(session.model.clone()),
        base_url: None,
        seed,
    };
    let prompt = session.prompt.clone().unwrap_or_else(|| usual_prompt(protocol.is_some()).into());
    let spec = SessionSpec {
        request: Request {
            brief: session.brief.clone(),
            vectors: session.vectors.clone(),
            budget,
            from: session.from.clone(),
            criteria: session.criteria.clone(),
            prompt,
            preview_edge: session.preview_size,
            unattended: true,
            seed,
            proposes: !session.no_proposals,
        },
        protocol,
        provider: launcher.connect(&choice)?,
        fallback: launcher.fallback(session.fallback.as_deref(), seed)?,
        referee: launcher.referee(session.referee.as_deref(), seed)?,
        proxy: session.proxy.parse().map_err(|why: String| Fault::new(ErrorCode::InvalidInput, why))?,
        renderers: 1,
        tastes: None,
    };
    launcher.prepare(workspace, spec, Stop::default())?.plan()
}

/// What a session will use if it makes all its iterations; `None` on a photo that is not in the library yet. One with a
/// model that is free costs nothing.
///
/// # Errors
/// The session cannot be planned.
pub fn estimate(
    launcher: &Launcher,
    library: &Library,
    session: &PlannedSession,
) -> Result<Option<Estimate>, Fault> {
    let known = library.find_raw(&session.sha256).map_err(|e| Fault::from(&e))?;
    let Some(id) = known else { return Ok(None) };
    let planned = launch(launcher, session, launcher.photo(library, &id)?, session.budget.clone())?;
    let info = planned.setup.provider.info();
    let estimate = Estimate::of(info, &planned.plan);
    let free = Estimate { cost_micro_usd: Some(0), uncached_micro_usd: Some(0), ..estimate };
    Ok(Some(if info.free { free } else { estimate }))
}

/// Resolves the sessions of a plan one by one, and collects what is wrong with them.
struct Resolver<'a> {
    launcher: &'a Launcher,
    library: &'a Library,
    /// The plan's folder, to which its file names are relative.
    folder: &'a Path,
    mistakes: Vec<Mistake>,
    /// Models that were connected already: a key may come from a command.
    models: BTreeMap<(String, Option<String>), Result<ModelInfo, String>>,
}

impl Resolver<'_> {
    fn mistake(&mut self, line: usize, message: impl Into<String>) {
        self.mistakes.push(Mistake { line, message: message.into() });
    }

    /// The value; an error is a mistake on that line.
    fn tried<T>(&mut self, line: usize, result: Result<T, Fault>) -> Option<T> {
        result.map_err(|fault| self.mistake(line, with_remedy(&fault))).ok()
    }

    /// A session, resolved; what is wrong with it is added to the mistakes.
    fn session(&mut self, caps: &plan::Caps, wanted: &Wanted) -> Option<PlannedSession> {
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
        let source = protocol.as_ref().and_then(|named| {
            let vars: Vec<(String, String)> = vars.clone().into_iter().collect();
            self.tried(wanted.line_of("protocol"), self.launcher.protocol(named, &vars))
        });
        let preferences = source.as_ref().map(ProtocolSource::preferences).unwrap_or_default();
        let seed = wanted.seed.as_ref().map_or(DEFAULT_SEED, |seed| seed.value);
        let named = wanted.value("provider");
        let model = wanted.value("model").map(|model| self.model(named.as_deref(), model));
        let provider_line = wanted.line_of(if named.is_some() { "provider" } else { "model" });
        // A provider that a plan names has the address of its file.
        let mut choice = Choice { base_url: None, ..launch::choice(named, model, seed) };
        if choice.model.is_none() && choice.provider != DEFAULT_PROVIDER {
            choice.model = preferences.model;
        }
        let key = (choice.provider.clone(), choice.model.clone());
        let (launcher, models) = (self.launcher, &mut self.models);
        let info = models.entry(key).or_insert_with(|| {
            let connected = launcher.connect(&choice);
            connected.map(|provider| provider.info().clone()).map_err(|fault| with_remedy(&fault))
        });
        let info = info.clone().map_err(|message| self.mistake(provider_line, message)).ok();
        let fallback = self.fallback(wanted);
        let other =
            self.tried(wanted.line_of("fallback"), launcher.fallback(fallback.as_deref(), seed)).flatten();
        let free = info.as_ref().is_some_and(|info| info.free)
            && other.as_ref().is_none_or(|other| other.info().free);
        if let (Some(_), Some(budget)) = (&info, wanted.budget())
            && let Some(message) = plan::unbounded(caps, &budget, free)
        {
            self.mistake(wanted.line_of("budget"), message);
        }
        if let (Some(other), Some(budget)) = (&other, wanted.budget()) {
            let payable = pricing::payable(other.info(), &budget).map_err(|e| Fault::from(&e));
            self.tried(wanted.line_of("fallback"), payable);
        }
        let referee = wanted.value("referee").or(preferences.referee);
        self.tried(wanted.line_of("referee"), launcher.referee(referee.as_deref(), seed));
        if let Some(prompt) = wanted.value("prompt") {
            let (name, version) =
                prompt.split_once('@').map_or((prompt.as_str(), None), |(n, v)| (n, Some(v)));
            let shown = launcher.prompts.show(name, version).map_err(|e| Fault::from(&e));
            self.tried(wanted.line_of("prompt"), shown);
        }
        if self.mistakes.len() > before {
            return None;
        }
        let (raw, sha256, workspace) = subject?;
        let info = info?;
        let session = PlannedSession {
            photo: photo?.value.clone(),
            raw,
            sha256,
            brief,
            criteria,
            vectors: wanted.vectors.as_ref().map(|vectors| vectors.value.clone()).unwrap_or_default(),
            budget: wanted.budget()?,
            provider: info.provider.clone(),
            model: info.model,
            fallback,
            free,
            protocol,
            vars,
            referee,
            from: wanted.value("from").unwrap_or_else(|| "HEAD".into()),
            prompt: wanted.value("prompt"),
            seed,
            preview_size: wanted.preview_size.as_ref().map_or(PREVIEW_SIZE, |size| size.value),
            proxy: wanted.proxy.as_ref().map_or_else(|| "off".into(), |proxy| proxy.value.clone()),
            no_proposals: wanted.proposals == Some(false),
        };
        // A session on a photo of the library can be planned; one on a photo that is still to be added cannot.
        if let Some(workspace) = workspace {
            let planned = launch(launcher, &session, workspace, session.budget.clone());
            self.tried(wanted.line, planned)?;
        }
        Some(session)
    }

    /// The model as named; of `script` the file, of `manual` and `cassette` the folder, relative to the plan's folder.
    fn model(&self, provider: Option<&str>, model: String) -> String {
        match provider {
            Some("script") => self.file(&model).unwrap_or(model),
            Some("manual" | "cassette") => self.folder.join(model).to_string_lossy().into_owned(),
            _ => model,
        }
    }

    /// `PROVIDER[:MODEL]`, likewise.
    fn fallback(&self, wanted: &Wanted) -> Option<String> {
        let named = wanted.value("fallback")?;
        let Some((provider, model)) = named.split_once(':') else { return Some(named) };
        Some(format!("{provider}:{}", self.model(Some(provider), model.to_owned())))
    }

    /// The path of a file, relative to the plan's folder, if there is one.
    fn file(&self, named: &str) -> Option<String> {
        let path = self.folder.join(named);
        path.is_file().then(|| path.to_string_lossy().into_owned())
    }

    /// A text, or that of the file after an `@`, relative to the plan's folder.
    fn text(&mut self, wanted: &Wanted, key: &str) -> Option<String> {
        let text = wanted.text(key)?;
        match text.value.strip_prefix('@') {
            Some(path) => {
                let read = launch::read_text(&self.folder.join(path));
                self.tried(text.line, read)
            }
            None => Some(text.value.clone()),
        }
    }

    /// A photo by its id or raw file: the file if that was named, the raw's hash, and the photo if the library has it.
    fn subject(&self, named: &str) -> Result<(Option<PathBuf>, Hash, Option<Workspace>), Fault> {
        let (launcher, library) = (self.launcher, self.library);
        let id = named.parse::<PhotoId>().ok();
        if let Some(id) = id.filter(|id| library.folder(id).exists()) {
            let workspace = launcher.photo(library, &id)?;
            return Ok((None, workspace.photo().raw.sha256.clone(), Some(workspace)));
        }
        let path = self.folder.join(named);
        if !path.is_file() {
            let photos = library.photos().map_err(|e| Fault::from(&e))?;
            let hint = did_you_mean(named, photos.iter().map(PhotoId::as_str));
            let message = format!("`{named}` is neither a photo in the library nor a file{hint}");
            return Err(Fault::new(ErrorCode::NotFound, message));
        }
        let (sha256, _) = files::hash(&path).map_err(|e| launch::refused("read", &path, &e))?;
        let known = library.find_raw(&sha256).map_err(|e| Fault::from(&e))?;
        let workspace = known.map(|id| launcher.photo(library, &id)).transpose()?;
        Ok((Some(path), sha256, workspace))
    }
}

/// An error in one line, with its remedy in brackets.
fn with_remedy(fault: &Fault) -> String {
    let remedy = fault.remedy().map(|remedy| format!(" ({remedy})")).unwrap_or_default();
    format!("{fault}{remedy}")
}
