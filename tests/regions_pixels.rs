//! Edits on several places, retouching, and edits that are taken over: held against pixels of the real darktable.

#[path = "support/demo.rs"]
mod demo;

use chemigram::darktable::dng::{self, DngOptions};
use chemigram::darktable::render::Picture;
use chemigram::darktable::state::{EditState, Params, Value};
use chemigram::metrics::difference::Difference;
use chemigram::vocabulary::{AppliedSpots, Spot};
use demo::Demo;

/// The demo's photograph with a blot, and where: centre and radius in pixels.
fn blotted() -> (Picture, [f64; 2], f64) {
    let (mut photo, center, radius) = (dng::demo_photo().unwrap(), [130.5, 160.5], 6.0);
    let width = photo.width as usize;
    for (at, pixel) in photo.rgb.chunks_exact_mut(3).enumerate() {
        let (x, y) = ((at % width) as f64 + 0.5, (at / width) as f64 + 0.5);
        if (x - center[0]).hypot(y - center[1]) < radius {
            pixel.copy_from_slice(&[200, 20, 20]);
        }
    }
    (photo, center, radius)
}

/// The part of a picture that lies at most (or, outside, at least) so far from a point; the rest black.
fn disc(picture: &Picture, center: [f64; 2], radius: f64, inside: bool) -> Picture {
    let mut part = picture.clone();
    let width = part.width as usize;
    for (at, pixel) in part.rgb.chunks_exact_mut(3).enumerate() {
        let (x, y) = ((at % width) as f64 + 0.5, (at / width) as f64 + 0.5);
        if ((x - center[0]).hypot(y - center[1]) <= radius) != inside {
            pixel.fill(0);
        }
    }
    part
}

fn spots(demo: &Demo, state: &EditState, text: &str) -> AppliedSpots {
    let spots: Vec<Spot> = serde_json::from_str(text).unwrap();
    demo.vocabulary.apply_spots(&spots, state, &demo.facts, &demo.layouts, demo.version()).unwrap()
}

#[test]
fn a_blot_is_healed_and_cloned_away_and_nothing_else_changes() {
    let (photo, center, radius) = blotted();
    let clean = Demo::open();
    let clean = clean.render(&clean.facts.baseline);
    let mut demo = Demo::of(&photo, &DngOptions::default());
    let base = demo.facts.baseline.clone();
    let mut states = vec![base.clone()];
    for action in ["heal", "clone"] {
        let text = format!(
            r#"[{{"action":"{action}","x":{},"y":{},"radius":{}}}]"#,
            center[0] / 600.0,
            center[1] / 400.0,
            1.3 * radius / 400.0
        );
        let applied = spots(&demo, &base, &text);
        eprintln!("{:?}", applied.spots);
        states.push(applied.state);
    }
    let pictures = demo.render_all(&states);
    for (n, p) in pictures.iter().enumerate() {
        image::save_buffer(format!("/tmp/spot{n}.png"), &p.rgb, p.width, p.height, image::ColorType::Rgb8)
            .unwrap();
    }
    for p in &pictures {
        let inside =
            Difference::between(&disc(&clean, center, radius, true), &disc(p, center, radius, true)).unwrap();
        let outside = Difference::between(
            &disc(&pictures[0], center, radius * 1.3 * 1.3 + 3.0, false),
            &disc(p, center, radius * 1.3 * 1.3 + 3.0, false),
        )
        .unwrap();
        eprintln!("{inside:?} {outside:?}");
    }
    let _ = &mut demo;
}
