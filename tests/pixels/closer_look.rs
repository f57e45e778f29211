//! `render --crop`, `--beside` and `--difference`, held against whole renders by the real darktable.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use darktable::dng::{self, DngOptions, write_dng};
use darktable::render::Picture;
use pixels::metrics::difference::{Difference, distances};
use pixels::overlay::{Part, with_scale};
use testkit::frames::{Home, stored};
use testkit::photos::halved;

/// The demo photo, taken lying or upright, with a vignette, which goes by the frame, on `main`.
fn home(orientation: u16) -> Home {
    let home = Home::new(env!("CARGO_BIN_EXE_chemigram"));
    let photo = dng::demo_photo().unwrap();
    let upright = if orientation > 4 { stored(&photo, 5) } else { photo };
    let options = DngOptions { noise: 0.0, orientation, ..DngOptions::default() };
    home.file("photo.dng", &write_dng(&stored(&upright, orientation), &options).unwrap());
    home.ingest("photo.dng", "photo");
    home.ok(&["apply", "photo", "vignette"]);
    home
}

fn render(home: &Home, more: &[&str]) -> Picture {
    let mut arguments = vec!["render", "photo", "-o", "shown.png", "--force"];
    arguments.extend(more);
    home.ok(&arguments);
    let shown = image::open(home.path("shown.png")).unwrap().to_rgb8();
    Picture { width: shown.width(), height: shown.height(), rgb: shown.into_raw() }
}

#[test]
fn a_crop_has_the_pixels_of_the_whole_picture() {
    for orientation in [1, 6] {
        let home = home(orientation);
        let whole = render(&home, &["--size", "600", "--quality", "preview"]);
        assert_eq!(whole.height > whole.width, orientation > 4);
        let part = Part::new([0.25, 0.2, 0.75, 0.8]).unwrap();
        // More is asked than there is: at 1:1, not enlarged.
        let near = render(&home, &["--size", "2000", "--quality", "preview", "--crop", "0.25,0.2,0.75,0.8"]);
        assert_eq!(near, part.cut(&whole));
        // At half the size, against the mean of every four pixels of the whole, and of the whole a bit further on.
        let whole = render(&home, &["--size", "600"]);
        let edge = (near.width.max(near.height) / 2).to_string();
        let small = render(&home, &["--size", &edge, "--crop", "0.25,0.2,0.75,0.8"]);
        let halved = part.cut(&self::halved(&whole));
        assert_eq!((small.width, small.height), (halved.width, halved.height));
        let beside = Part::new([0.26, 0.21, 0.76, 0.81]).unwrap().cut(&self::halved(&whole));
        let apart = [&halved, &beside].map(|other| Difference::between(&small, other).unwrap().mean);
        // darktable scales by another filter, which alone makes 1.5, and 2.9 where it turns the picture afterwards.
        assert!(apart[1] > 2.5 * apart[0], "orientation {orientation}: {apart:?}");
        // The same filter, so the same pixels.
        let whole = render(&home, &["--size", "300"]);
        assert_eq!(small, part.cut(&whole));
    }
}

#[test]
fn halves_are_the_previews_and_equal_states_differ_by_nothing() {
    for orientation in [1, 8] {
        let home = home(orientation);
        let [before, now] = ["baseline", "main"].map(|at| render(&home, &[at, "--size", "300"]));
        let both = render(&home, &["--size", "300", "--beside", "baseline"]);
        let (width, height) = (f64::from(both.width), f64::from(both.height));
        let at = |x: u32, y: u32, picture: &Picture| {
            let [x0, y0] = [f64::from(x), f64::from(y)];
            let [x1, y1] = [f64::from(x + picture.width), f64::from(y + picture.height)];
            Part::new([x0 / width, y0 / height, x1 / width, y1 / height]).unwrap().cut(&both)
        };
        // A label of 11 rows above each half, a gap of 2 pixels between them.
        let second = if orientation > 4 { [before.width + 2, 11] } else { [0, before.height + 24] };
        assert_eq!(at(0, 11, &before), before);
        assert_eq!(at(second[0], second[1], &now), now);

        let same = render(&home, &["main", "--size", "300", "--beside", "main", "--difference"]);
        assert_eq!(same, with_scale(&Picture { rgb: vec![0; now.rgb.len()], ..now }));
        let map = render(&home, &["main", "--size", "300", "--difference"]);
        // The vignette darkens the corners, and the map is the brighter the further apart.
        let apart = distances(&before, &now).unwrap();
        let bright: Vec<u32> =
            map.rgb.chunks_exact(3).map(|p| p.iter().map(|v| u32::from(*v)).sum()).collect();
        let mean = |picked: &dyn Fn(f32) -> bool| {
            let picked: Vec<u32> =
                apart.iter().zip(&bright).filter(|(a, _)| picked(**a)).map(|(_, b)| *b).collect();
            picked.iter().sum::<u32>() as f64 / picked.len().max(1) as f64
        };
        assert!(mean(&|apart| apart > 4.0) > 200.0 && mean(&|apart| apart < 0.2) < 20.0);
    }
}
