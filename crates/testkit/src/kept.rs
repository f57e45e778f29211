//! The installed darktable, and what it said and rendered in earlier runs of the tests. A test that runs again on an
//! unchanged edit reads the picture that darktable made of it; everything else is rendered.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use base::clock::Deadline;
use base::ids::Hash;
use darktable::baseline::{self, Untouched};
use darktable::cache::Cache;
use darktable::layout::Layouts;
use darktable::oneshot::{Encoder, OneShot};
use darktable::probe::DarktableCli;
use darktable::render::{
    ByHand, Picture, Quality, RawFile, RenderError, RenderPermit, RenderRequest, Rendered, Renderer,
};
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{ExtendedColorType, ImageEncoder as _};

use crate::folder::{hash_of, kept_folder};

/// Whose pictures they are: those of a darktable that stays alive, or of one for each.
pub const ALIVE: &str = "one that stays alive";
pub const ALONE: &str = "one for each picture";

static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| kept_folder("pictures"));

/// Where the programs under test keep what they render, and all keep what darktable says of a photo.
pub static RENDERS: LazyLock<PathBuf> = LazyLock::new(|| kept_folder("renders"));

/// The installed darktable, looked for once.
pub fn darktable() -> DarktableCli {
    static FOUND: LazyLock<DarktableCli> =
        LazyLock::new(|| DarktableCli::find(&Deadline::never()).expect("darktable-cli is installed"));
    FOUND.clone()
}

/// What darktable says of an untouched photo, in this run or in one before. `base` is as for [`baseline::ask`].
pub fn ask(layouts: &Layouts, photo: &Path, base: &Path) -> Result<Untouched, RenderError> {
    let cli = darktable();
    let ask = || baseline::ask(&cli, layouts, photo, base, &Deadline::never());
    Cache::new(RENDERS.clone(), u64::MAX).asked(photo, cli.version(), layouts, ask)
}

/// A renderer that is asked only for what no run before has seen.
pub struct Kept<R> {
    renderer: R,
    /// What is said of the renderer besides darktable's version: whose pictures these are.
    by: String,
    encode: Arc<Encoder>,
    /// The LUTs that an edit may name.
    luts: Option<PathBuf>,
}

impl<R: Renderer> Kept<R> {
    pub fn new(renderer: R, by: impl Into<String>, encode: Arc<Encoder>, luts: Option<&Path>) -> Self {
        Self { renderer, by: by.into(), encode, luts: luts.map(Path::to_owned) }
    }

    /// The renderer itself, which renders whatever it is asked for.
    pub fn renderer(&self) -> &R {
        &self.renderer
    }

    /// Where the picture is kept. Everything that decides the pixels besides the program is in its name: the sidecar is
    /// compared as it is written, not as the state that it was made from.
    fn path(&self, raw: &RawFile, sidecar: &str, long_edge: u32, quality: Quality) -> PathBuf {
        let key = Hash::of(format!(
            "{} {} {} {} {long_edge} {} {} {}\n{sidecar}",
            self.by,
            self.renderer.darktable_version(),
            raw.sha256,
            name_of(raw),
            quality.as_str(),
            self.luts.as_deref().map_or_else(String::new, |luts| hash_of(luts).to_string()),
            std::env::var("CHEMIGRAM_DARKTABLE_CLI").unwrap_or_default(),
        ));
        FOLDER.join(format!("{key}.png"))
    }
}

impl Kept<OneShot> {
    /// The picture of a sidecar that no state was written to.
    pub fn render_sidecar(
        &self,
        raw: &RawFile,
        sidecar: &str,
        long_edge: u32,
        quality: Quality,
    ) -> Result<Rendered, RenderError> {
        let path = self.path(raw, sidecar, long_edge, quality);
        kept(&path, || {
            let never = Deadline::never();
            self.renderer.render_sidecar(&raw.path, sidecar, long_edge, quality, &never, &ByHand)
        })
    }
}

impl<R: Renderer> Renderer for Kept<R> {
    fn render(
        &self,
        request: &RenderRequest<'_>,
        deadline: &Deadline,
        permit: &dyn RenderPermit,
    ) -> Result<Rendered, RenderError> {
        let render = || self.renderer.render(request, deadline, permit);
        match (self.encode)(request.state, &name_of(request.raw)) {
            Ok(sidecar) => {
                kept(&self.path(request.raw, &sidecar, request.long_edge, request.quality), render)
            }
            Err(_) => render(),
        }
    }

    fn darktable_version(&self) -> &str {
        self.renderer.darktable_version()
    }
}

fn name_of(raw: &RawFile) -> String {
    raw.path.file_name().unwrap().to_string_lossy().into_owned()
}

/// The picture at `path`; if none is there, one is made and put there.
fn kept(
    path: &Path,
    render: impl FnOnce() -> Result<Rendered, RenderError>,
) -> Result<Rendered, RenderError> {
    if let Ok(image) = image::open(path) {
        let image = image.into_rgb8();
        let picture = Picture { width: image.width(), height: image.height(), rgb: image.into_raw() };
        return Ok(Rendered {
            pixel_hash: picture.pixel_hash(),
            picture: Arc::new(picture),
            elapsed: Duration::ZERO,
            cached: true,
        });
    }
    let rendered = render()?;
    let Picture { width, height, rgb } = &*rendered.picture;
    let part = tempfile::Builder::new().suffix(".png").tempfile_in(&*FOLDER).unwrap();
    // One filter for all rows: choosing one for each row showed in profiles of the tests.
    let png = PngEncoder::new_with_quality(part.as_file(), CompressionType::Fast, FilterType::Up);
    png.write_image(rgb, *width, *height, ExtendedColorType::Rgb8).unwrap();
    part.persist(path).unwrap();
    Ok(rendered)
}
