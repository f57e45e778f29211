//! `apply` and `render`: a person's own edit, and a picture of any state.

use std::io::Cursor;
use std::path::Path;

use image::{ExtendedColorType, ImageEncoder as _, ImageFormat};
use serde_json::{Map, json};

use super::args::Care;
use super::failure::Failure;
use super::history::current_branch;
use super::photos::{self, refuse_existing, write_new};
use super::setup::{App, interactive_deadline, optional_text};
use super::{signals, sought};
use crate::launch;
use base::error::ErrorCode;
use base::ids::PhotoId;
use darktable::checks;
use darktable::proxy::Choice;
use darktable::render::{ByHand, Picture, Quality, RenderRequest};
use darktable::state::EditState;
use engine::photo::Operation;
use engine::vocabulary::grey_card::{self as card, Patch};
use engine::vocabulary::{ApplyRequest, MaskSpec};

const JPEG_QUALITY: u8 = 95;
/// Long edge of the pictures on which a grey card, or the colour to fill with, is measured.
pub(super) const MEASURED_EDGE: u32 = 1024;

/// Applies one move or look to the branch that HEAD follows.
pub fn apply(
    app: &App,
    photo: &PhotoId,
    name: &str,
    values: &[(String, f64)],
    mask: Option<&String>,
    label: Option<&str>,
) -> Result<(), Failure> {
    let mask = optional_text(mask)?.map(|text| mask_spec(&text)).transpose()?;
    let vocabulary = app.vocabulary()?;
    let version = app.darktable()?.version().to_owned();
    let mut writer = app.writer(photo, "apply")?;
    let branch = current_branch(&writer.workspace().head()?, photo)?;
    let parent = writer.workspace().head_commit()?;
    let state = writer.workspace().state_of(&parent)?;
    let facts = writer.workspace().facts(&parent)?;
    let values = values.iter().cloned().collect();
    let found =
        mask.map(|mask| sought::find(app, &writer.workspace().raw(), &state, &facts, mask)).transpose()?;
    let request = ApplyRequest { move_name: name, values: &values, mask: found.as_ref() };
    let (new, operation) = Operation::apply(&request, &vocabulary, &state, &facts, &app.layouts(), &version)?;
    let words = operation.to_string();
    let info = writer.record_edit(&branch, &parent, &new, operation, label.unwrap_or_default())?;
    let result = json!({
        "branch": branch, "commit": info.commit, "state": info.state, "op": words, "unchanged": info.unchanged,
    });
    app.output.result(&result, || match info.unchanged {
        true => format!("{branch}  {}  unchanged: already has {words}\n", info.commit.short()),
        false => format!("{branch}  {}  {words}\n", info.commit.short()),
    })
}

/// Measures a place that should be grey and sets the white balance by it, on the branch that HEAD follows.
pub fn grey_card(app: &App, photo: &PhotoId, center: [f64; 2], radius: f64) -> Result<(), Failure> {
    let workspace = app.photo(photo)?;
    let head = workspace.head_commit()?;
    let (state, facts) = (workspace.state_of(&head)?, workspace.facts(&head)?);
    let renderer = app.steady_renderer()?;
    let version = renderer.darktable_version();
    let probes = app.vocabulary()?.grey_card_probes(&state, &facts, &app.layouts(), version)?;
    let raw = workspace.raw();
    let look = |state| {
        let request = RenderRequest { raw: &raw, state, long_edge: MEASURED_EDGE, quality: Quality::Preview };
        renderer.render(&request, &interactive_deadline(), &ByHand).map(|rendered| rendered.picture)
    };
    let [plain, red, blue] = &probes;
    let (plain, red, blue) = (look(plain)?, look(red)?, look(blue)?);
    let values = card::solve([&plain, &red, &blue], &Patch { center, radius })?;
    let values: Vec<(String, f64)> = values.into_iter().collect();
    apply(app, photo, card::MOVE, &values, None, Some("grey card"))
}

fn mask_spec(text: &str) -> Result<MaskSpec, Failure> {
    serde_json::from_str(text).map_err(|e| {
        Failure::new(ErrorCode::InvalidInput, format!("invalid mask: {e}"))
            .remedy(r#"write it like {"shape":"circle","center":[0.5,0.4],"radius":0.2}"#)
    })
}

/// How a state is to be rendered.
pub struct PreviewRequest<'a> {
    /// Longest side in pixels.
    pub size: u32,
    pub quality: Care,
    /// Whether a smaller copy of the raw will do.
    pub proxy: Choice,
    /// A mask to draw over it, as JSON or @FILE.
    pub mask: Option<&'a String>,
}

/// Renders a state into a file, with a mask drawn over it if one is given.
pub fn render(
    app: &App,
    photo: &PhotoId,
    at: &str,
    file: &Path,
    look: &PreviewRequest<'_>,
    force: bool,
) -> Result<(), Failure> {
    let mask = optional_text(look.mask)?.map(|text| mask_spec(&text)).transpose()?;
    let format = format_of(file)?;
    refuse_existing(file, force)?;
    let workspace = app.photo(photo)?;
    let commit = workspace.resolve(at)?;
    let state = workspace.state_of(&commit)?;
    let raw = workspace.raw();
    let facts = workspace.facts(&commit)?;
    let mask = mask.map(|mask| sought::find(app, &raw, &state, &facts, mask)).transpose()?;
    let quality = match look.quality {
        Care::Preview => Quality::Preview,
        Care::Judge => Quality::Judge,
    };
    if quality == Quality::Judge && look.proxy != Choice::Off {
        return Err(Failure::input("--proxy works only for previews")
            .remedy("add --quality preview, or leave out --proxy"));
    }
    let (renderer, proxy) =
        launch::proxied(&app.proxies(), app.renderer()?, &raw, (look.proxy, look.size), &|text| {
            app.output.remark(text)
        })?;
    let (_heard, cancel) = signals::cancelling()?;
    let develop = |state: &EditState| {
        let request = RenderRequest { raw: &raw, state, long_edge: look.size, quality };
        renderer.render(&request, &interactive_deadline().with_cancel(cancel.clone()), &ByHand)
    };
    let probe = match &mask {
        Some(mask) => Some(app.vocabulary()?.mask_probe(mask, &state, &facts, &app.layouts())?),
        None => None,
    };
    let rendered = develop(&state)?;
    let shown = match probe {
        Some(probe) => {
            let drawn = probe
                .read(&develop(&probe.without)?.picture, &develop(&probe.with)?.picture)
                .and_then(|shown| Some((shown.over(&rendered.picture)?, shown.covered())));
            let other = "the mask and the photo differ in size";
            Some(drawn.ok_or_else(|| Failure::new(ErrorCode::MaskingError, other))?)
        }
        None => None,
    };
    let picture = shown.as_ref().map_or(&*rendered.picture, |(drawn, _)| drawn);
    write_new(file, &encode(picture, format)?, force)?;
    let Picture { width, height, .. } = *picture;
    let mut result = json!({
        "file": file, "commit": commit, "width": width, "height": height,
        "pixel_hash": rendered.pixel_hash, "seconds": rendered.elapsed.as_secs_f64(), "cached": rendered.cached,
        "proxy": proxy,
    });
    let mut more = Map::new();
    if let Some(blank) = checks::blank(&rendered.picture) {
        app.output.remark(&photos::as_untouched(file, blank));
        more.insert("blank".into(), blank.to_string().into());
    }
    let covered = shown.as_ref().map(|(_, covered)| covered * 100.0);
    if let (Some(covered), Some(mask)) = (covered, &mask) {
        let covered = (covered * 10.0).round() / 10.0;
        more.insert("mask".into(), json!({ "summary": mask.summary(), "covered_percent": covered }));
    }
    if let Some(result) = result.as_object_mut() {
        result.append(&mut more);
    }
    app.output.result(&result, || {
        let covered = covered.map(|covered| format!("  mask: {covered:.1} %")).unwrap_or_default();
        format!("{}  {width}×{height}  {:.1} s{covered}\n", file.display(), rendered.elapsed.as_secs_f64())
    })
}

fn format_of(file: &Path) -> Result<ImageFormat, Failure> {
    let extension = file.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
    match extension.as_str() {
        "jpg" | "jpeg" => Ok(ImageFormat::Jpeg),
        "png" => Ok(ImageFormat::Png),
        "tif" | "tiff" => Ok(ImageFormat::Tiff),
        _ => Err(Failure::input(format!("cannot write {}: unknown image format", file.display()))
            .remedy("use a name that ends in .jpg, .png or .tif")),
    }
}

fn encode(picture: &Picture, format: ImageFormat) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let (rgb, width, height) = (picture.rgb.as_slice(), picture.width, picture.height);
    let written = match format {
        ImageFormat::Jpeg => image::codecs::jpeg::JpegEncoder::new_with_quality(&mut bytes, JPEG_QUALITY)
            .write_image(rgb, width, height, ExtendedColorType::Rgb8),
        _ => image::write_buffer_with_format(
            &mut Cursor::new(&mut bytes),
            rgb,
            width,
            height,
            ExtendedColorType::Rgb8,
            format,
        ),
    };
    written
        .map_err(|e| Failure::new(ErrorCode::StateError, format!("the picture cannot be encoded: {e}")))?;
    Ok(bytes)
}
