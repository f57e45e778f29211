//! `apply` and `render`: a person's own edit, and a picture of any state.

use std::collections::HashMap;
use std::io::Cursor;
use std::path::Path;

use image::{ExtendedColorType, ImageEncoder as _, ImageFormat};
use serde_json::{Map, json};

use super::args::Care;
use super::failure::Failure;
use super::photos::{self, refuse_existing, write_new};
use super::places;
use super::setup::{App, interactive_deadline, optional_text};
use super::{signals, sought};
use crate::launch;
use base::error::ErrorCode;
use base::ids::PhotoId;
use darktable::checks;
use darktable::proxy::Choice;
use darktable::render::{ByHand, Picture, Quality, RenderRequest};
use darktable::state::EditState;
use engine::photo::MoveId;
use engine::vocabulary::{ApplyRequest, MaskProbe, MaskSpec, PhotoFacts};
use pixels::metrics::difference::Difference;
use pixels::overlay::{self, Part};

const JPEG_QUALITY: u8 = 95;
/// Long edge of the pictures on which something is measured.
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
    let values = values.iter().cloned().collect();
    let named = app.photo(photo)?;
    places::placed(app, photo, "apply", label, None, |standing, state, with| {
        let mask = mask.map(|mask| sought::find(app, &named, state, with.facts, mask)).transpose()?;
        let request = ApplyRequest { move_name: name, values: &values, mask: mask.as_ref() };
        Ok(standing.apply(&request, state, with)?)
    })
}

pub(super) fn mask_spec(text: &str) -> Result<MaskSpec, Failure> {
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
    /// A mask to draw over it, as JSON or @FILE, or the id of a placed move.
    pub mask: Option<&'a String>,
    /// The move that the mask is meant for.
    pub mask_for: Option<&'a str>,
    pub part: Part,
    pub grid: bool,
    /// Another state to show in the same picture.
    pub beside: Option<&'a str>,
    /// To show only how far the two are apart.
    pub difference: bool,
}

/// Renders a state into a file, as `look` says.
pub fn render(
    app: &App,
    photo: &PhotoId,
    at: &str,
    file: &Path,
    look: &PreviewRequest<'_>,
    force: bool,
) -> Result<(), Failure> {
    let text = optional_text(look.mask)?;
    let placed = text.as_deref().and_then(MoveId::parse);
    let mask = match &text {
        Some(text) if placed.is_none() => Some(mask_spec(text)?),
        _ => None,
    };
    let format = format_of(file)?;
    refuse_existing(file, force)?;
    let workspace = app.photo(photo)?;
    let commit = workspace.resolve(at)?;
    let state = workspace.state_of(&commit)?;
    let facts = workspace.facts(&commit)?;
    let beside = look.beside.map(|at| workspace.state_of(&workspace.resolve(at)?)).transpose()?;
    let raw = workspace.raw();
    let mask = mask.map(|mask| sought::find(app, &workspace, &state, &facts, mask)).transpose()?;
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
        let long_edge = match look.part == Part::WHOLE {
            true => look.size,
            false => {
                let shown = facts.shown(state);
                look.part.whole_edge(look.size, [shown.width, shown.height])
            }
        };
        let request = RenderRequest { raw: &raw, state, long_edge, quality };
        renderer.render(&request, &interactive_deadline().with_cancel(cancel.clone()), &ByHand)
    };
    let probe = match (&mask, &placed) {
        (Some(mask), _) => Some(probe(app, mask, look.mask_for, &state, &facts)?),
        (None, Some(id)) => {
            let vocabulary = app.vocabulary()?;
            let standing = workspace.standing(&commit, &vocabulary, &mut HashMap::new())?;
            let found = standing.find(id)?;
            let at = (found.module(), found.instance);
            Some(vocabulary.placed_mask_probe(at, None, &state, &facts, &app.layouts())?)
        }
        (None, None) => None,
    };
    let rendered = develop(&state)?;
    let shown = match probe {
        Some(probe) => {
            let drawn = probe
                .read(&develop(&probe.without)?.picture, &develop(&probe.with)?.picture)
                .and_then(|shown| Some((shown.over(&rendered.picture)?, shown)));
            let other = "the mask and the photo differ in size";
            Some(drawn.ok_or_else(|| Failure::new(ErrorCode::MaskingError, other))?)
        }
        None => None,
    };
    let whole = shown.as_ref().map_or(&*rendered.picture, |(drawn, _)| drawn);
    let mut picture = look.part.cut(whole);
    let mut more = Map::new();
    let other = match &beside {
        Some(beside) => Some(look.part.cut(&develop(beside)?.picture)),
        None => None,
    };
    let mut apart = None;
    if let Some(other) = other.as_ref().filter(|_| look.difference) {
        apart = Some(Difference::between(other, &picture)?);
        picture = overlay::heat_map(other, &picture).ok_or_else(|| {
            Failure::input("the two pictures have different sizes, because one is cropped or turned")
                .remedy("use --beside without --difference")
        })?;
    }
    if look.grid {
        overlay::grid(&mut picture, look.part);
    }
    let picture = match other {
        Some(_) if look.difference => overlay::with_scale(&picture),
        Some(mut other) => {
            if look.grid {
                overlay::grid(&mut other, look.part);
            }
            overlay::beside((&other, look.beside.unwrap_or_default()), (&picture, at))
        }
        None => picture,
    };
    write_new(file, &encode(&picture, format)?, force)?;
    let Picture { width, height, .. } = picture;
    let mut result = json!({
        "file": file, "commit": commit, "width": width, "height": height,
        "pixel_hash": rendered.pixel_hash, "seconds": rendered.elapsed.as_secs_f64(), "cached": rendered.cached,
        "proxy": proxy,
    });
    if let Some(blank) = checks::blank(&rendered.picture) {
        app.output.remark(&photos::as_untouched(file, blank));
        more.insert("blank".into(), blank.to_string().into());
    }
    let percent = |share: f64| (share * 1000.0).round() / 10.0;
    let covered = shown.as_ref().map(|(_, shown)| [shown.covered(), shown.soft()].map(percent));
    let words = mask.as_ref().map(MaskSpec::summary).or(placed.map(|id| id.to_string()));
    if let (Some([covered, soft]), Some(words)) = (covered, words) {
        let about = json!({ "summary": words, "covered_percent": covered, "soft_percent": soft });
        more.insert("mask".into(), about);
    }
    if let Some(apart) = &apart {
        more.insert("delta_e".into(), json!({ "mean": apart.mean, "p95": apart.p95, "max": apart.max }));
    }
    if let Some(result) = result.as_object_mut() {
        result.append(&mut more);
    }
    app.output.result(&result, || {
        let covered =
            covered.map(|[covered, soft]| format!("  mask: {covered:.1} %, soft: {soft:.1} % of it"));
        let apart = apart.map(|apart| format!("  ΔE {:.1} (95 %: {:.1})", apart.mean, apart.p95));
        let remarks = [covered, apart].into_iter().flatten().collect::<String>();
        format!("{}  {width}×{height}  {:.1} s{remarks}\n", file.display(), rendered.elapsed.as_secs_f64())
    })
}

/// The edits that show a mask on a state.
fn probe(
    app: &App,
    mask: &MaskSpec,
    mask_for: Option<&str>,
    state: &EditState,
    facts: &PhotoFacts,
) -> Result<MaskProbe, Failure> {
    let (vocabulary, layouts) = (app.vocabulary()?, app.layouts());
    Ok(match mask_for {
        Some(name) => {
            let darktable = app.darktable()?;
            vocabulary.mask_probe_for(name, mask, state, facts, &layouts, darktable.version())?
        }
        None => vocabulary.mask_probe(mask, state, facts, &layouts)?,
    })
}

pub(super) fn format_of(file: &Path) -> Result<ImageFormat, Failure> {
    let extension = file.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
    match extension.as_str() {
        "jpg" | "jpeg" => Ok(ImageFormat::Jpeg),
        "png" => Ok(ImageFormat::Png),
        "tif" | "tiff" => Ok(ImageFormat::Tiff),
        _ => Err(Failure::input(format!("cannot write {}: unknown image format", file.display()))
            .remedy("use a name that ends in .jpg, .png or .tif")),
    }
}

pub(super) fn encode(picture: &Picture, format: ImageFormat) -> Result<Vec<u8>, Failure> {
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
