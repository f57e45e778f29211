//! The photos on which moves are shown: the demo's own, and such as have what a remedy is for.

use darktable::dng::{self, Camera, DngOptions};
use darktable::render::Picture;

/// A lens that bends and darkens the edges, and that lensfun knows.
const WIDE: Camera = Camera {
    make: "Canon",
    model: "Canon EOS 5D Mark II",
    lens: "Canon EF 20mm f/2.8 USM",
    focal: 20,
    aperture: 28,
};

/// The picture that `kind` says (a move's `shown_on`), and how it is taken.
pub fn photo(kind: Option<&str>) -> (Picture, DngOptions) {
    let mut photo = dng::demo_photo().unwrap();
    let plain = DngOptions::default();
    let options = match kind {
        None => plain,
        Some("overexposed") => DngOptions { exposure_ev: 2.0, ..plain },
        Some("noisy") => {
            // Dull, so that what colour there is is mostly noise.
            for pixel in photo.rgb.chunks_exact_mut(3) {
                let mean = pixel.iter().map(|value| u16::from(*value)).sum::<u16>() / 3;
                pixel.iter_mut().for_each(|value| *value = ((u16::from(*value) + 4 * mean) / 5) as u8);
            }
            DngOptions { noise: 5.0, iso: 6400, ..plain }
        }
        Some("wide_lens") => DngOptions { camera: WIDE, ..plain },
        Some("fringed") => {
            photo = fringed(&photo);
            plain
        }
        Some("aberrated") => {
            // darktable leaves raws of fewer than 1600 pixels alone.
            photo = aberrated(&photo, 3.0, 0.003);
            plain
        }
        Some("hot_pixels") => {
            hot_pixels(&mut photo);
            DngOptions { noise: 0.2, ..plain }
        }
        Some("colours") => {
            photo = colours(6.0);
            plain
        }
        Some("rainbow") => {
            photo = colours(1.0);
            plain
        }
        Some("stage_light") => {
            photo = colours(1.0);
            DngOptions { purity: 1.0, ..plain }
        }
        Some("negative") => {
            // On an orange base: what was bright is dense.
            for pixel in photo.rgb.chunks_exact_mut(3) {
                for (value, base) in pixel.iter_mut().zip([250, 180, 140]) {
                    *value = (u16::from(255 - *value / 2) * base / 255) as u8;
                }
            }
            plain
        }
        Some("hazy") => {
            photo.rgb.iter_mut().for_each(|value| *value = 90 + *value / 2);
            plain
        }
        Some(other) => panic!("there is no photo `{other}`"),
    };
    (photo, options)
}

/// Each pixel the mean of four.
pub fn halved(picture: &Picture) -> Picture {
    let (width, height) = (picture.width / 2, picture.height / 2);
    let value = |x: u32, y: u32, c: u32| u32::from(picture.rgb[(3 * (y * picture.width + x) + c) as usize]);
    let mean = |x: u32, y: u32, c: u32| {
        let four = [(0, 0), (1, 0), (0, 1), (1, 1)].map(|(dx, dy)| value(2 * x + dx, 2 * y + dy, c));
        ((four.iter().sum::<u32>() + 2) / 4) as u8
    };
    let places = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
    let rgb = places.flat_map(|(x, y)| [0, 1, 2].map(|c| mean(x, y, c))).collect();
    Picture { width, height, rgb }
}

/// Every hue from left to right, so many times, bright and strong above, dark and weak below.
fn colours(times: f64) -> Picture {
    let (width, height) = (600, 400);
    let mut rgb = Vec::with_capacity(3 * width * height);
    for y in 0..height {
        let depth = 1.0 - 0.6 * y as f64 / height as f64;
        for x in 0..width {
            let hue = 6.0 * times * x as f64 / width as f64;
            for offset in [5.0, 3.0, 1.0] {
                let away = ((offset + hue) % 6.0_f64).min(4.0 - (offset + hue) % 6.0).clamp(0.0, 1.0);
                rgb.push((220.0 * depth * (1.0 - 0.8 * depth * away)) as u8);
            }
        }
    }
    Picture { width: width as u32, height: height as u32, rgb }
}

/// Red drawn a little larger than green, and blue a little smaller, as a simple lens draws them.
fn fringed(photo: &Picture) -> Picture {
    let (width, height) = (f64::from(photo.width), f64::from(photo.height));
    let sample = |x: f64, y: f64, channel: usize| {
        let x = x.round().clamp(0.0, width - 1.0) as usize;
        let y = y.round().clamp(0.0, height - 1.0) as usize;
        photo.rgb[3 * (y * photo.width as usize + x) + channel]
    };
    let mut rgb = Vec::with_capacity(photo.rgb.len());
    for y in 0..photo.height {
        for x in 0..photo.width {
            for (channel, scale) in [(0, 0.994), (1, 1.0), (2, 1.006)] {
                let at = |along: u32, length: f64| length / 2.0 + (f64::from(along) - length / 2.0) * scale;
                rgb.push(sample(at(x, width), at(y, height), channel));
            }
        }
    }
    Picture { width: photo.width, height: photo.height, rgb }
}

/// Without colour and so many times as large, red drawn larger than green by this share, and blue smaller: what colour
/// there is then, the lens has made.
pub fn aberrated(photo: &Picture, times: f64, share: f64) -> Picture {
    let (width, height) = (photo.width as usize, photo.height as usize);
    let at = |x: usize, y: usize| {
        let pixel = &photo.rgb[3 * (y.min(height - 1) * width + x.min(width - 1))..][..3];
        pixel.iter().map(|value| f64::from(*value)).sum::<f64>() / 3.0
    };
    let sample = |x: f64, y: f64| {
        let (x, y) = (x.max(0.0), y.max(0.0));
        let (left, top) = (x as usize, y as usize);
        let (right, down) = (x.fract(), y.fract());
        let row = |y| (1.0 - right) * at(left, y) + right * at(left + 1, y);
        ((1.0 - down) * row(top) + down * row(top + 1)).round() as u8
    };
    let large = |length: usize| (length as f64 * times) as u32;
    let (wide, high) = (large(width), large(height));
    let mut rgb = Vec::with_capacity(3 * wide as usize * high as usize);
    for y in 0..high {
        for x in 0..wide {
            for scale in [1.0 - share, 1.0, 1.0 + share] {
                let back = |along: u32, length: usize| {
                    let middle = length as f64 / 2.0;
                    middle + (f64::from(along) / times - middle) * scale
                };
                rgb.push(sample(back(x, width), back(y, height)));
            }
        }
    }
    Picture { width: wide, height: high, rgb }
}

/// One pixel in some hundreds shines whatever falls on it.
fn hot_pixels(photo: &mut Picture) {
    for (at, pixel) in photo.rgb.chunks_exact_mut(3).enumerate() {
        if at % 373 == 0 {
            pixel.fill(255);
        }
    }
}
