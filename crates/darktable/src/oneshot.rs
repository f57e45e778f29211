//! The plain renderer: one `darktable-cli` for each picture.
//!
//! It is the oracle that any faster renderer is compared with, and the fallback when that one fails.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use crate::checks;
use crate::probe::DarktableCli;
use crate::render::{Picture, Quality, RenderError, RenderPermit, RenderRequest, Rendered, Renderer};
use crate::scratch::{Base, History, PICTURE, RenderJob, Scratch};
use crate::state::EditState;
use base::clock::Deadline;

/// Spells a state as a sidecar for a picture of the given file name; the error says why it cannot be.
pub type Encoder = dyn Fn(&EditState, &str) -> Result<String, String> + Send + Sync;

/// Renders by starting `darktable-cli`, waiting for it, and judging what it left behind.
#[derive(Clone)]
pub struct OneShot {
    pub(super) cli: DarktableCli,
    pub(super) base: Base,
    encode: Arc<Encoder>,
}

impl std::fmt::Debug for OneShot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OneShot").field("cli", &self.cli).field("base", &self.base).finish_non_exhaustive()
    }
}

impl OneShot {
    /// A renderer that keeps darktable's configuration and its scratch folders in `base`, which is made if
    /// need be. Photographs on the file system of `base` are linked, others copied for each render.
    ///
    /// # Errors
    /// [`RenderError`], if `base` cannot be made or written.
    pub fn new(cli: DarktableCli, base: &Path, encode: Arc<Encoder>) -> Result<Self, RenderError> {
        Ok(Self { cli, base: Base::new(base)?, encode })
    }

    /// The same with a folder of LUTs that edits may name. Without one, an edit that names a LUT is refused.
    #[must_use]
    pub fn with_luts(self, folder: &Path) -> Self {
        Self { base: self.base.with_luts(folder), ..self }
    }

    /// The same with a folder of lens profiles besides lensfun's own.
    #[must_use]
    pub fn with_lenses(self, folder: &Path) -> Self {
        Self { base: self.base.with_lenses(folder), ..self }
    }

    /// The sidecar of an edit of `raw`, whose LUTs are all there.
    pub(super) fn sidecar(&self, raw: &Path, state: &EditState) -> Result<String, RenderError> {
        self.base.check_luts(state)?;
        let name = raw.file_name().unwrap_or_default().to_string_lossy();
        (self.encode)(state, &name).map_err(RenderError::Encode)
    }

    /// Renders `raw` with the sidecar text given. Its LUTs are not checked. Nothing beside the raw is read or written.
    ///
    /// # Errors
    /// [`RenderError`] as for any render.
    pub fn render_sidecar(
        &self,
        raw: &Path,
        sidecar: &str,
        long_edge: u32,
        quality: Quality,
        deadline: &Deadline,
        _permit: &dyn RenderPermit,
    ) -> Result<Rendered, RenderError> {
        let started = Instant::now();
        if long_edge == 0 {
            return Err(RenderError::Encode("a picture of 0 pixels was asked for".into()));
        }
        let scratch = Scratch::new(&self.base, raw)?;
        let sidecar = scratch.write_sidecar(sidecar)?;
        let order = RenderJob {
            sidecar: Some(&sidecar),
            long_edge,
            quality,
            history: History::Unsaid,
            export: None,
            script: None,
        };
        let ended = scratch.run(&self.cli, &self.base, &order, deadline)?;
        checks::ending(&ended, raw, &scratch.output())?;
        let picture = Arc::new(checks::decoded(&scratch.output(), PICTURE, long_edge)?);
        checks::not_blank(&picture, || self.untouched(raw, long_edge, quality, deadline))?;
        let pixel_hash = picture.pixel_hash();
        Ok(Rendered { picture, pixel_hash, elapsed: started.elapsed(), cached: false })
    }

    /// What darktable makes of `raw` by its own defaults, blank or not.
    pub(super) fn untouched(
        &self,
        raw: &Path,
        long_edge: u32,
        quality: Quality,
        deadline: &Deadline,
    ) -> Result<Picture, RenderError> {
        let scratch = Scratch::new(&self.base, raw)?;
        let order = RenderJob {
            sidecar: None,
            long_edge,
            quality,
            history: History::Unsaid,
            export: None,
            script: None,
        };
        let ended = scratch.run(&self.cli, &self.base, &order, deadline)?;
        checks::ending(&ended, raw, &scratch.output())?;
        checks::decoded(&scratch.output(), PICTURE, long_edge)
    }
}

impl Renderer for OneShot {
    fn render(
        &self,
        request: &RenderRequest<'_>,
        deadline: &Deadline,
        permit: &dyn RenderPermit,
    ) -> Result<Rendered, RenderError> {
        let raw = &request.raw.path;
        let sidecar = self.sidecar(raw, request.state)?;
        self.render_sidecar(raw, &sidecar, request.long_edge, request.quality, deadline, permit)
    }

    fn darktable_version(&self) -> &str {
        self.cli.version()
    }
}
