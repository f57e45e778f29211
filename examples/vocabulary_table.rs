//! Measures every move on the demo photo, and writes `docs/vocabulary.md` and the strips in `docs/vocabulary/`.
//!
//! Needs darktable; takes some minutes. Refuses to document a move that breaks its promises.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a tool for developers, who want the backtrace"
)]
#![allow(missing_docs, reason = "an example has no readers but its own")]

use std::fs;
use std::path::Path;

use base::assets::Overlay;
use darktable::render::Picture;
use engine::vocabulary::table::{page, unreached};
use image::RgbImage;
use image::codecs::jpeg::JpegEncoder;
use image::imageops::{FilterType, overlay, resize};
use testkit::contract::{Verdict, contract};
use testkit::demo;

/// One picture of a strip, and the white between two.
const WIDTH: u32 = 132;
const HEIGHT: u32 = 88;
const GAP: u32 = 4;
/// Some hundred strips are to stay under 1.5 MB together.
const QUALITY: u8 = 68;

fn main() -> std::io::Result<()> {
    assert!(demo::only().is_none(), "CHEMIGRAM_ONLY would leave the others out of the page");
    let strips = Path::new("docs/vocabulary");
    let _ = fs::remove_dir_all(strips);
    fs::create_dir_all(strips)?;
    let demos = demo::Demo::open_all(&[]);
    let mut measured = Vec::new();
    for demo in &demos {
        let untouched = demo.render_all(std::slice::from_ref(&demo.facts.baseline)).remove(0);
        for outcome in contract(demo).0 {
            if let Verdict::Red(broken) = &outcome.verdict {
                panic!("{}: {broken:#?}", outcome.entry.name);
            }
            if let (Some((_, default)), Some(strongest)) = (&outcome.default, &outcome.strongest) {
                let strip = strip(&[&untouched, default, strongest]);
                fs::write(strips.join(format!("{}.jpg", outcome.entry.name)), strip)?;
            }
            measured.extend(outcome.measured);
        }
    }
    let demo = &demos[0];
    let unreached = unreached(&Overlay::vocabulary(None)).unwrap();
    let on = format!("the demo photo with darktable {}", demo.version());
    fs::write("docs/vocabulary.md", page(&demo.vocabulary, &unreached, &measured, &on))
}

/// The pictures side by side, each as large as fits.
fn strip(pictures: &[&Picture; 3]) -> Vec<u8> {
    let mut strip = RgbImage::from_pixel(3 * WIDTH + 2 * GAP, HEIGHT, image::Rgb([255; 3]));
    for (picture, left) in pictures.iter().zip((0..).step_by((WIDTH + GAP) as usize)) {
        let image = RgbImage::from_raw(picture.width, picture.height, picture.rgb.clone()).unwrap();
        let scale =
            (f64::from(WIDTH) / f64::from(picture.width)).min(f64::from(HEIGHT) / f64::from(picture.height));
        let side = |length: u32| (f64::from(length) * scale).round().max(1.0) as u32;
        let (width, height) = (side(picture.width), side(picture.height));
        let small = resize(&image, width, height, FilterType::Triangle);
        overlay(&mut strip, &small, left + i64::from((WIDTH - width) / 2), i64::from((HEIGHT - height) / 2));
    }
    let mut jpeg = Vec::new();
    strip.write_with_encoder(JpegEncoder::new_with_quality(&mut jpeg, QUALITY)).unwrap();
    jpeg
}
