//! Pictures of darktable's, kept between runs of the tests. A test that runs again on an unchanged edit reads the
//! picture that darktable made of it; everything else is rendered.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use base::clock::Deadline;
use base::ids::Hash;
use darktable::oneshot::Encoder;
use darktable::render::{Picture, RenderError, RenderPermit, RenderRequest, Rendered, Renderer};
use darktable::worker::Worker;

use crate::folder::{hash_of, kept_folder};

static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| kept_folder("pictures"));

/// A darktable that stays alive, asked only for what no run before has seen.
pub struct Kept {
    worker: Worker,
    encode: Arc<Encoder>,
    /// The LUTs that an edit may name.
    luts: Option<PathBuf>,
}

impl Kept {
    pub fn new(worker: Worker, encode: Arc<Encoder>, luts: Option<&Path>) -> Self {
        Self { worker, encode, luts: luts.map(Path::to_owned) }
    }

    /// The darktable itself, which renders whatever it is asked for.
    pub fn worker(&self) -> &Worker {
        &self.worker
    }

    /// Everything that decides the pixels besides the program: the sidecar is compared as it is written, not as the
    /// state that it was made from.
    fn path(&self, request: &RenderRequest<'_>) -> Option<PathBuf> {
        let name = request.raw.path.file_name()?.to_str()?;
        let sidecar = (self.encode)(request.state, name).ok()?;
        let key = Hash::of(format!(
            "{} {} {name} {} {} {} {}\n{sidecar}",
            self.darktable_version(),
            request.raw.sha256,
            request.long_edge,
            request.quality.as_str(),
            self.luts.as_deref().map_or_else(String::new, |luts| hash_of(luts).to_string()),
            std::env::var("CHEMIGRAM_DARKTABLE_CLI").unwrap_or_default(),
        ));
        Some(FOLDER.join(format!("{key}.png")))
    }
}

impl Renderer for Kept {
    fn render(
        &self,
        request: &RenderRequest<'_>,
        deadline: &Deadline,
        permit: &dyn RenderPermit,
    ) -> Result<Rendered, RenderError> {
        let path = self.path(request);
        let known = path.as_deref().and_then(|path| image::open(path).ok()).map(|image| image.into_rgb8());
        if let Some(image) = known {
            let picture = Picture { width: image.width(), height: image.height(), rgb: image.into_raw() };
            let pixel_hash = picture.pixel_hash();
            return Ok(Rendered {
                picture: Arc::new(picture),
                pixel_hash,
                elapsed: Duration::ZERO,
                cached: true,
            });
        }
        let rendered = self.worker.render(request, deadline, permit)?;
        if let Some(path) = path {
            let picture = &rendered.picture;
            let part = tempfile::Builder::new().suffix(".png").tempfile_in(&*FOLDER).unwrap();
            image::save_buffer(
                part.path(),
                &picture.rgb,
                picture.width,
                picture.height,
                image::ExtendedColorType::Rgb8,
            )
            .unwrap();
            part.persist(path).unwrap();
        }
        Ok(rendered)
    }

    fn darktable_version(&self) -> &str {
        self.worker.darktable_version()
    }
}
