//! Draws `docs/images/objects.jpg`: photographs of `golden_v1` with points on a thing, and what is found from them.
//!
//! `cargo run --release --example objects docs/images/objects.jpg`

#![allow(missing_docs)]
#![allow(clippy::unwrap_used, reason = "a failure ends it")]

use image::{GenericImage, Rgb, RgbImage};
use pixels::Picture;
use pixels::segment::segment;

type Points = &'static [[f64; 2]];

const SHOWN: [(&str, Points, Points); 6] = [
    ("astronaut_cool", &[[0.5, 0.1], [0.66, 0.2], [0.34, 0.2]], &[[0.5, 0.25]]),
    ("coffee_flat", &[[0.5, 0.12], [0.5, 0.4], [0.305, 0.26]], &[[0.2, 0.45]]),
    ("cat", &[[0.34, 0.4], [0.38, 0.37], [0.42, 0.42]], &[[0.25, 0.45]]),
    ("photographer", &[[0.2, 0.45], [0.43, 0.3], [0.42, 0.17]], &[[0.5, 0.7]]),
    ("window", &[[0.5, 0.33], [0.5, 0.45], [0.5, 0.8]], &[[0.1, 0.8]]),
    ("meadow", &[[0.2, 0.55], [0.8, 0.5]], &[[0.5, 0.3], [0.5, 0.8]]),
];

fn main() {
    let file = std::env::args().nth(1).unwrap();
    let mut sheet = RgbImage::from_pixel(3 * 330, 2 * 400, Rgb([255; 3]));
    for (at, (name, inside, outside)) in SHOWN.into_iter().enumerate() {
        let path = format!("{}/crates/pixels/tests/objects/{name}.jpg", env!("CARGO_MANIFEST_DIR"));
        let read = image::open(path).unwrap().to_rgb8();
        let (width, height) = read.dimensions();
        let picture = Picture { width, height, rgb: read.clone().into_raw() };
        let found = segment(&picture, inside, outside);
        let mut drawn = read;
        for (pixel, inside) in drawn.pixels_mut().zip(&found.inside) {
            let [r, g, b] = pixel.0.map(f32::from);
            let grey = 0.2126 * r + 0.7152 * g + 0.0722 * b;
            let red = if *inside { [128.0 + 0.5 * grey, 0.4 * grey, 0.4 * grey] } else { [grey; 3] };
            pixel.0 = red.map(|value| value as u8);
        }
        for (points, colour) in [(inside, Rgb([255; 3])), (outside, Rgb([40, 120, 255]))] {
            for [x, y] in points {
                let [x, y] = [(x * f64::from(width)) as u32, (y * f64::from(height)) as u32];
                let dot = RgbImage::from_pixel(9, 9, colour);
                drawn.copy_from(&dot, x.clamp(4, width - 5) - 4, y.clamp(4, height - 5) - 4).unwrap();
            }
        }
        let (tall, at) = (320 * height / width, at as u32);
        let small = image::imageops::thumbnail(&drawn, 320, tall);
        sheet.copy_from(&small, at % 3 * 330, at / 3 * 400).unwrap();
    }
    sheet.save(file).unwrap();
}
