//! How well a region from at most four points agrees with what is really there: drawn scenes, of which the truth is
//! known, and photographs of `golden_v1` as darktable shows them, with outlines drawn by hand.

#![allow(missing_docs)]
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use chemigram_pixels::Picture;
use chemigram_pixels::outline::Outline;
use chemigram_pixels::segment::segment;

use testkit::demo::two_at_a_time;
use testkit::objects::{Case, Point, drawn, photos, scenes};

fn agreement(found: &[bool], truth: &[bool]) -> f64 {
    let pairs = || found.iter().zip(truth);
    pairs().filter(|(a, b)| **a && **b).count() as f64
        / pairs().filter(|(a, b)| **a || **b).count().max(1) as f64
}

/// Intersection over union of what the simplified outline encloses, case by case.
fn measured(cases: &[Case]) -> Vec<f64> {
    two_at_a_time(cases, |case| {
        assert!(case.inside.len() + case.outside.len() <= 4, "{}", case.name);
        let region = segment(&case.picture, &case.inside, &case.outside);
        let outline = Outline::of(&region, 0.0, 200, 0.0005);
        let found = drawn(&outline, case.picture.width, case.picture.height);
        let shared = agreement(&found, &case.truth);
        let corners: usize = [&outline.pieces, &outline.holes, &outline.islands]
            .iter()
            .flat_map(|rings| rings.iter())
            .map(Vec::len)
            .sum();
        println!("{:28} {shared:.2}  {corners} corners", case.name);
        if let Some(folder) = std::env::var_os("OBJECTS_SHOWN") {
            show(case, &found, std::path::Path::new(&folder));
        }
        shared
    })
}

/// Writes the picture with what was found in red, the truth in green and the points, for the eye.
fn show(case: &Case, found: &[bool], folder: &std::path::Path) {
    let Picture { width, height, rgb } = &case.picture;
    let mut picture = image::RgbImage::from_raw(*width, *height, rgb.clone()).unwrap();
    for (at, pixel) in picture.pixels_mut().enumerate() {
        for (channel, on) in [(0, found[at]), (1, case.truth[at])] {
            let value = pixel.0[channel];
            pixel.0[channel] = if on { value / 2 + 127 } else { value / 2 };
        }
    }
    for (points, colour) in [(&case.inside, [255, 255, 255]), (&case.outside, [0, 0, 255])] {
        for [x, y] in points {
            let [x, y] = [(x * f64::from(*width)) as u32, (y * f64::from(*height)) as u32];
            for (dx, dy) in (0..5).flat_map(|dy| (0..5).map(move |dx| (dx, dy))) {
                let [x, y] = [(x + dx).clamp(2, width - 1) - 2, (y + dy).clamp(2, height - 1) - 2];
                picture.put_pixel(x, y, image::Rgb(colour));
            }
        }
    }
    picture.save(folder.join(format!("{}.png", case.name.replace([' ', '\''], "_")))).unwrap();
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn four_points_find_most_things() {
    let (drawn, photographed) = (measured(&scenes()), measured(&photos()));
    assert!(drawn.len() + photographed.len() >= 30);
    let all = median([drawn.as_slice(), photographed.as_slice()].concat());
    let found = drawn.iter().chain(&photographed).filter(|shared| **shared >= 0.7).count();
    println!(
        "median {all:.3}: drawn {:.3}, photographed {:.3}; {found} at 0.7 or more",
        median(drawn.clone()),
        median(photographed.clone())
    );
    assert!(all >= 0.85, "{all}");
    assert!(median(drawn) >= 0.9 && median(photographed.clone()) >= 0.8);
}

#[test]
fn the_same_points_find_the_same_pixels() {
    let [case] =
        <[Case; 1]>::try_from(scenes().into_iter().skip(12).take(1).collect::<Vec<_>>()).ok().unwrap();
    let once = segment(&case.picture, &case.inside, &case.outside);
    assert_eq!(once, segment(&case.picture, &case.inside, &case.outside));
    assert!(once.covered() > 0.05);
    let pixel = |[x, y]: Point| once.inside[(y * 480.0) as usize * 720 + (x * 720.0) as usize];
    assert!(case.inside.iter().all(|at| pixel(*at)) && !case.outside.iter().any(|at| pixel(*at)));
}
