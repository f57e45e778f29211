//! The quick renderer: a `darktable-cli` that is started once and renders on request.
//!
//! Most of a small render's time is darktable's start: its modules, its lens database, its profiles. A script of
//! ours, run by a stock `darktable-cli`, keeps the process alive and renders one picture per request. Each request
//! imports the photograph with its sidecar beside it; where the photograph is the one before, darktable puts the
//! whole sidecar in place of that one's, and does not decode the raw again.
//!
//! A child that hangs past the deadline or misbehaves is killed with its group. One that died is replaced at
//! once; whatever a fresh one cannot do either is done by the [`OneShot`] renderer, whose word is final: about
//! pixels, and about errors. After trouble the children rest for a while, and after much of it for good.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use image::{ExtendedColorType, ImageEncoder as _};
use tempfile::TempDir;

use crate::checks;
use crate::live::{Live, LiveError};
use crate::oneshot::{Encoder, OneShot};
use crate::probe::DarktableCli;
use crate::process::RunError;
use crate::raw::FileIdentity;
use crate::render::{Quality, RenderError, RenderPermit, RenderRequest, Rendered, Renderer};
use crate::scratch::{Base, SERVED, Scratch, at, name_of};
use crate::state::{EditState, Params, Value};
use base::clock::Deadline;

const SCRIPT: &str = include_str!("worker/serve.lua");
const SCRIPT_NAME: &str = "serve.lua";
/// What the script's answers begin with.
const MARK: &str = "@chemigram ";
/// A start that takes longer has failed.
const START: Duration = Duration::from_secs(30);
/// After so many troubles in a row, no further child is started.
const MOST_TROUBLES: u32 = 3;
/// Notes that wait to be taken; a worker that nobody asks for them does not collect for ever.
const MOST_NOTES: usize = 32;
/// darktable's number of the sRGB profile, in the field `type` of `colorout`.
const SRGB: i64 = 1;

/// Renders by children that stay alive. As many run at once as there are callers at once.
pub struct Worker {
    oneshot: OneShot,
    cli: DarktableCli,
    base: Base,
    idle: Mutex<Vec<Child>>,
    /// Process numbers of those that render.
    busy: Mutex<Vec<u32>>,
    trouble: Mutex<Breaker>,
    notes: Mutex<Vec<String>>,
}

/// One living darktable.
struct Child {
    live: Live,
    /// The level that it renders at: darktable reads that once, at its start.
    quality: Quality,
    /// The photograph that it rendered last.
    place: Option<LoadedPhoto>,
    /// The script and the picture that it was started with.
    _folder: TempDir,
}

/// A photograph where a child has it.
struct LoadedPhoto {
    scratch: Scratch,
    /// The photograph there, as it was then.
    file: FileIdentity,
}

impl LoadedPhoto {
    fn new(base: &Base, raw: &Path) -> Result<Self, RenderError> {
        let scratch = Scratch::new(base, raw)?;
        // Of the link; where the photograph is another file by now, it does not hold that.
        let file = FileIdentity::of(scratch.input()).map_err(at(scratch.input()))?;
        Ok(Self { scratch, file })
    }

    /// Whether that is `raw`, as it is now. A copy is never known to be, nor is another photo of the same bytes.
    fn holds(&self, raw: &Path) -> bool {
        let same = |path| FileIdentity::of(path).is_ok_and(|file| file == self.file);
        let input = self.scratch.input();
        input.ends_with(name_of(raw)) && same(raw) && same(input)
    }
}

/// What went wrong lately.
#[derive(Debug, Default)]
struct Breaker {
    in_a_row: u32,
    last: Option<Instant>,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker")
            .field("cli", &self.cli)
            .field("trouble", &self.trouble)
            .finish_non_exhaustive()
    }
}

impl Worker {
    /// A renderer on the same terms as [`OneShot::new`]; the first child is started by the first render.
    ///
    /// # Errors
    /// As [`OneShot::new`].
    pub fn new(cli: DarktableCli, base: &Path, encode: Arc<Encoder>) -> Result<Self, RenderError> {
        let oneshot = OneShot::new(cli.clone(), base, encode)?;
        Ok(Self {
            oneshot,
            cli,
            base: Base::new(base)?,
            idle: Mutex::default(),
            busy: Mutex::default(),
            trouble: Mutex::default(),
            notes: Mutex::default(),
        })
    }

    /// The same with a folder of LUTs: see [`OneShot::with_luts`].
    #[must_use]
    pub fn with_luts(self, folder: &Path) -> Self {
        Self { oneshot: self.oneshot.with_luts(folder), base: self.base.with_luts(folder), ..self }
    }

    /// The same with a folder of lens profiles: see [`OneShot::with_lenses`].
    #[must_use]
    pub fn with_lenses(self, folder: &Path) -> Self {
        Self { oneshot: self.oneshot.with_lenses(folder), base: self.base.with_lenses(folder), ..self }
    }

    /// How many children live and wait for work.
    pub fn children(&self) -> usize {
        lock(&self.idle).len()
    }

    /// The process numbers of these and of those that render.
    pub fn pids(&self) -> Vec<u32> {
        let mut pids = lock(&self.busy).clone();
        pids.extend(lock(&self.idle).iter().filter_map(|child| child.live.pid()));
        pids
    }

    /// How many requests in a row a child failed at, and [`OneShot`] answered.
    pub fn troubles(&self) -> u32 {
        lock(&self.trouble).in_a_row
    }

    /// Asks a child for the picture, and a fresh one if that has died; the outer error is final, the inner one
    /// means "ask the other renderer".
    fn by_child(
        &self,
        request: &RenderRequest<'_>,
        sidecar: &str,
        deadline: &Deadline,
    ) -> Result<Result<Rendered, LiveError>, RenderError> {
        let started = Instant::now();
        if let Some(child) = self.idle_child(request.quality) {
            match self.ask(child, request, sidecar, started, deadline)? {
                Err(LiveError::Died(reason)) => {
                    self.note(format!("the rendering process died and was replaced: {reason}"));
                }
                answered => return Ok(answered),
            }
        }
        match self.start(request.quality, &deadline.at_most(START)) {
            Ok(child) => self.ask(child, request, sidecar, started, deadline),
            Err(LiveError::Run(RunError::Cut { cancelled, .. })) if deadline.expired() => {
                Err(RenderError::interrupted(started.elapsed(), cancelled))
            }
            Err(error) => Ok(Err(error)),
        }
    }

    /// Asks this child.
    fn ask(
        &self,
        mut child: Child,
        request: &RenderRequest<'_>,
        sidecar: &str,
        started: Instant,
        deadline: &Deadline,
    ) -> Result<Result<Rendered, LiveError>, RenderError> {
        let raw = request.raw.path.as_path();
        // Whatever goes wrong below, the next picture has a fresh place.
        let place = match child.place.take().filter(|place| place.holds(raw)) {
            Some(place) => place,
            None => LoadedPhoto::new(&self.base, raw)?,
        };
        let scratch = &place.scratch;
        scratch.write_sidecar_beside(sidecar)?;
        let output = scratch.output().join(SERVED);
        let line =
            format!("render\t{}\t{}\t{}", scratch.input().display(), output.display(), request.long_edge);
        let pid = child.live.pid().unwrap_or_default();
        lock(&self.busy).push(pid);
        let asked = child.live.send(&line).and_then(|()| child.live.reply(MARK, deadline));
        lock(&self.busy).retain(|other| *other != pid);
        let reply = match asked {
            Err(LiveError::Run(RunError::Cut { cancelled, .. })) if deadline.expired() => {
                return Err(RenderError::interrupted(started.elapsed(), cancelled));
            }
            Err(error) => return Ok(Err(error)),
            Ok(reply) => reply,
        };
        let picture = if reply.line == "done" {
            let picture = checks::complaints(&reply.watched, raw)
                .and_then(|()| checks::decoded(&scratch.output(), SERVED, request.long_edge));
            if picture.is_ok() && fs::remove_file(&output).is_ok() {
                child.place = Some(place);
            }
            picture.map(Ok)
        } else {
            Ok(Err(LiveError::Refused(reply.line)))
        };
        lock(&self.idle).push(child);
        let picture = picture?;
        if let Ok(picture) = &picture {
            let untouched = || self.oneshot.untouched(raw, request.long_edge, request.quality, deadline);
            checks::not_blank(picture, untouched)?;
        }
        Ok(picture.map(|picture| {
            let pixel_hash = picture.pixel_hash();
            Rendered { picture: Arc::new(picture), pixel_hash, elapsed: started.elapsed(), cached: false }
        }))
    }

    fn idle_child(&self, quality: Quality) -> Option<Child> {
        let mut idle = lock(&self.idle);
        idle.iter().position(|child| child.quality == quality).map(|at| idle.swap_remove(at))
    }

    fn note(&self, text: String) {
        tracing::warn!("{text}");
        let mut notes = lock(&self.notes);
        if notes.len() < MOST_NOTES {
            notes.push(text);
        }
    }

    fn start(&self, quality: Quality, deadline: &Deadline) -> Result<Child, LiveError> {
        let failed = |error: std::io::Error| LiveError::Run(RunError::Watch(error));
        let folder = self.base.scratch_folder().map_err(failed)?;
        fs::write(folder.path().join(SCRIPT_NAME), SCRIPT).map_err(failed)?;
        fs::write(folder.path().join("boot.png"), boot_picture().map_err(failed)?).map_err(failed)?;
        let mut live = self.base.start_server(&self.cli, folder.path(), SCRIPT_NAME, quality, |line| {
            line.starts_with(MARK) || checks::is_telling(line)
        })?;
        let reply = live.reply(MARK, deadline)?;
        match reply.line.as_str() {
            "ready" => Ok(Child { live, quality, place: None, _folder: folder }),
            other => Err(LiveError::Refused(other.to_owned())),
        }
    }

    fn record_failure(&self, error: &LiveError) {
        let mut trouble = lock(&self.trouble);
        trouble.in_a_row += 1;
        trouble.last = Some(Instant::now());
        let how_long = if trouble.in_a_row < MOST_TROUBLES { "for now" } else { "from now on" };
        drop(trouble);
        self.note(format!(
            "the rendering process failed ({error}): {how_long}, darktable is started anew for each picture"
        ));
    }

    /// Whether a child may be asked: not soon after trouble, and not at all after much of it.
    fn trusted(&self) -> bool {
        let trouble = lock(&self.trouble);
        let pause = Duration::from_secs(1 << trouble.in_a_row.min(MOST_TROUBLES));
        trouble.in_a_row < MOST_TROUBLES && trouble.last.is_none_or(|last| last.elapsed() > pause)
    }
}

impl Renderer for Worker {
    fn render(
        &self,
        request: &RenderRequest<'_>,
        deadline: &Deadline,
        permit: &dyn RenderPermit,
    ) -> Result<Rendered, RenderError> {
        let raw = request.raw.path.as_path();
        let sidecar = self.oneshot.sidecar(raw, request.state)?;
        let oneshot = || {
            self.oneshot.render_sidecar(raw, &sidecar, request.long_edge, request.quality, deadline, permit)
        };
        // An import passes over a sidecar that it cannot read, and says nothing.
        let whole = sidecar.contains("</darktable:history>");
        if request.long_edge == 0 || !whole || !ends_in_srgb(request.state) || !self.trusted() {
            return oneshot();
        }
        let error = match self.by_child(request, &sidecar, deadline)? {
            Ok(rendered) => {
                *lock(&self.trouble) = Breaker::default();
                return Ok(rendered);
            }
            Err(error) => error,
        };
        let rendered = oneshot();
        // A picture that nobody can render is not the child's fault.
        if rendered.is_ok() || !matches!(error, LiveError::Refused(_)) {
            self.record_failure(&error);
        }
        rendered
    }

    fn darktable_version(&self) -> &str {
        self.cli.version()
    }

    fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.notes))
    }
}

/// Whether the edit itself asks for sRGB, which the one-shot renderer insists on and a script cannot.
fn ends_in_srgb(state: &EditState) -> bool {
    match state.module("colorout", 0).map(|module| &module.params) {
        Some(Params::Fields(fields)) => fields.get("type") == Some(&Value::Int(SRGB)),
        Some(Params::Opaque(_)) => false,
        None => true,
    }
}

/// The smallest thing that darktable exports without complaint.
fn boot_picture() -> std::io::Result<Vec<u8>> {
    let mut png = Vec::new();
    image::codecs::png::PngEncoder::new(&mut png)
        .write_image(&[128; 16 * 16 * 3], 16, 16, ExtendedColorType::Rgb8)
        .map_err(std::io::Error::other)?;
    Ok(png)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
