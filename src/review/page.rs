//! What the pages share: one base template with its stylesheet and script, a policy that lets nothing else in, and
//! pictures inside the page.
//!
//! Every text goes through the template engine's escaping, and [`plain`] takes out what would make it read otherwise
//! than it stands. The policy names the hashes of the one script and the one stylesheet, so that markup which got
//! through all the same would neither run nor ask anything of anybody.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image::codecs::jpeg::JpegEncoder;
use minijinja::{AutoEscape, Environment, Value};
use serde::Serialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::review::plain;
use pixels::Picture;
use pixels::overlay;

/// Quality of a picture that is encoded for a page.
const QUALITY: u8 = 84;
/// Longest side of a difference map in pixels.
const HEAT: u32 = 512;
/// Bytes of a page that are left to its pictures, as text in it.
const ROOM: u64 = 36 << 20;
/// Bytes that one pixel of a picture may take as text in a page: a detailed photograph at [`QUALITY`].
const BYTES_A_PIXEL: f64 = 0.42;
/// Longest sides from which that of a page's pictures is chosen.
const EDGES: [u32; 8] = [1600, 1200, 1024, 800, 640, 480, 400, 320];

const STYLE: &str = include_str!("../../templates/pages.css");
const SCRIPT: &str = include_str!("../../templates/pages.js");
const TEMPLATES: [(&str, &str); 5] = [
    ("base.html", include_str!("../../templates/base.html")),
    ("parts.html", include_str!("../../templates/parts.html")),
    ("session.html", include_str!("../../templates/session.html")),
    ("batch.html", include_str!("../../templates/batch.html")),
    ("evaluation.html", include_str!("../../templates/evaluation.html")),
];

/// A page by its template (`session`, `batch`, `evaluation`): `id` tells the picks of one page from those of another,
/// `context` is an object.
///
/// # Errors
/// A template that cannot be filled in, which is a fault of the program.
pub fn render(
    kind: &str,
    id: &str,
    title: &str,
    blind: bool,
    context: &impl Serialize,
) -> io::Result<String> {
    let hash = |text: &str| format!("sha256-{}", STANDARD.encode(Sha256::digest(text)));
    let mut value = serde_json::to_value(context)?;
    clean(&mut value);
    if let Some(fields) = value.as_object_mut() {
        for (name, field) in [
            ("kind", json!(kind)),
            ("page", json!(format!("{kind} {}", plain(id)))),
            ("title", json!(plain(title))),
            ("blind", json!(blind)),
            ("style_hash", json!(hash(STYLE))),
            ("script_hash", json!(hash(SCRIPT))),
        ] {
            fields.insert(name.into(), field);
        }
    }
    let mut env = Environment::new();
    env.set_auto_escape_callback(|_| AutoEscape::Html);
    let mut filled = || {
        for (name, text) in TEMPLATES {
            env.add_template(name, text)?;
        }
        // Ours, and not to be escaped: in these two elements nothing is.
        env.add_global("style", Value::from_safe_string(STYLE.into()));
        env.add_global("script", Value::from_safe_string(SCRIPT.into()));
        env.get_template(&format!("{kind}.html"))?.render(minijinja::value::Serde(&value))
    };
    filled().map_err(io::Error::other)
}

/// Takes out of every text what turns it or hides in it.
fn clean(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) if text.starts_with("data:image/jpeg;base64,") => {}
        serde_json::Value::String(text) => *text = plain(text),
        serde_json::Value::Array(list) => list.iter_mut().for_each(clean),
        serde_json::Value::Object(fields) => fields.values_mut().for_each(clean),
        _ => {}
    }
}

/// A picture in a page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Embedded {
    /// An address that holds it.
    pub src: String,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// What it shows.
    pub alt: String,
}

/// A picture, the one that it is compared with, and its longest side.
type Shown = (PathBuf, Option<PathBuf>, u32);

/// The pictures of one page, or of one page that is written again and again.
#[derive(Debug)]
pub struct Gallery {
    edge: u32,
    seen: HashMap<Shown, (Option<SystemTime>, Embedded)>,
}

impl Gallery {
    /// For a page of about `count` pictures: the more there are, the smaller each is.
    pub fn of(count: usize) -> Self {
        let fits = |edge: &&u32| {
            // As wide as 3:2.
            let pixels = f64::from(**edge) * f64::from(**edge) / 1.5;
            pixels * BYTES_A_PIXEL * count.max(1) as f64 <= ROOM as f64
        };
        let edge = EDGES.iter().find(fits).or(EDGES.last()).copied().unwrap_or(HEAT);
        Self { edge, seen: HashMap::new() }
    }

    /// A picture of a file; `None` when it cannot be read.
    pub fn picture(&mut self, path: &Path, alt: &str) -> Option<Embedded> {
        let edge = self.edge;
        self.small(path, edge, alt)
    }

    /// The same with a longest side of `edge` pixels at most.
    pub fn small(&mut self, path: &Path, edge: u32, alt: &str) -> Option<Embedded> {
        let made = self.once(path, None, edge, || {
            let bytes = base::files::read(path, base::files::LARGEST_LIST).ok()?;
            let picture = image::load_from_memory(&bytes).ok()?;
            let large = picture.width().max(picture.height()) > edge;
            let jpeg = image::guess_format(&bytes).ok()? == image::ImageFormat::Jpeg;
            if !large && jpeg {
                return Some((bytes, picture.width(), picture.height()));
            }
            let picture = if large { picture.thumbnail(edge, edge) } else { picture }.to_rgb8();
            encoded(&picture)
        })?;
        Some(Embedded { alt: alt.to_owned(), ..made })
    }

    /// How far apart two pictures are, as a heat map; `None` where they differ in size.
    pub fn difference(&mut self, before: &Path, after: &Path) -> Option<Embedded> {
        self.once(after, Some(before), HEAT, || {
            let read = |path: &Path| {
                let picture = image::open(path).ok()?.thumbnail(HEAT, HEAT).to_rgb8();
                let (width, height) = picture.dimensions();
                Some(Picture { width, height, rgb: picture.into_raw() })
            };
            let map = overlay::with_scale(&overlay::heat_map(&read(before)?, &read(after)?)?);
            encoded(&image::RgbImage::from_raw(map.width, map.height, map.rgb)?)
        })
    }

    fn once(
        &mut self,
        path: &Path,
        other: Option<&Path>,
        edge: u32,
        make: impl FnOnce() -> Option<(Vec<u8>, u32, u32)>,
    ) -> Option<Embedded> {
        let written = std::fs::metadata(path).and_then(|meta| meta.modified()).ok();
        let key = (path.to_owned(), other.map(Path::to_owned), edge);
        if let Some((_, known)) = self.seen.get(&key).filter(|(at, _)| *at == written) {
            return Some(known.clone());
        }
        let (bytes, width, height) = make()?;
        let src = format!("data:image/jpeg;base64,{}", STANDARD.encode(bytes));
        let made = Embedded { src, width, height, alt: String::new() };
        self.seen.insert(key, (written, made.clone()));
        Some(made)
    }
}

fn encoded(picture: &image::RgbImage) -> Option<(Vec<u8>, u32, u32)> {
    let mut jpeg = Vec::new();
    picture.write_with_encoder(JpegEncoder::new_with_quality(&mut jpeg, QUALITY)).ok()?;
    Some((jpeg, picture.width(), picture.height()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_markup_and_the_policy_names_what_is_ours() {
        let evil = "</script><script>alert(1)</script>\u{202e}\"'<img src=x onerror=alert(1)>";
        let context = json!({ "facts": [evil], "groups": [], "outcomes": [evil], "resume": evil });
        let page = render("batch", evil, evil, false, &context).unwrap();
        assert_eq!(page.matches("<script").count(), 1, "{page}");
        assert!(!page.contains("<img src=x") && !page.contains('\u{202e}'));
        assert!(page.contains("default-src &#x27;none&#x27;") || page.contains("default-src 'none'"));
        let hash = STANDARD.encode(Sha256::digest(SCRIPT));
        assert!(page.contains(SCRIPT) && page.replace("&#x2f;", "/").contains(&hash));
    }

    #[test]
    fn the_more_pictures_the_smaller() {
        let edges = [4, 40, 200, 800].map(|count| Gallery::of(count).edge);
        assert!(edges.is_sorted_by(|a, b| a >= b) && edges[0] == 1600 && edges[3] == 400, "{edges:?}");
    }
}
