//! Pictures with known answers, for tests.

use crate::Picture;

/// A picture from a function of column and row.
pub(super) fn picture(width: u32, height: u32, colour: impl Fn(u32, u32) -> [u8; 3]) -> Picture {
    let rgb = (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).flat_map(|(x, y)| colour(x, y));
    Picture { width, height, rgb: rgb.collect() }
}

/// One colour.
pub(super) fn flat(width: u32, height: u32, colour: [u8; 3]) -> Picture {
    picture(width, height, |_, _| colour)
}

/// Each channel of each pixel through a function.
pub(super) fn map(source: &Picture, change: impl Fn([u8; 3]) -> [f64; 3]) -> Picture {
    let changed = source.rgb.chunks_exact(3).flat_map(|p| change([p[0], p[1], p[2]]));
    let rgb = changed.map(|value| value.round().clamp(0.0, 255.0) as u8).collect();
    Picture { width: source.width, height: source.height, rgb }
}

/// Something like a photograph: soft shapes of several hues, texture, all tones.
pub(super) fn scene() -> Picture {
    picture(240, 160, |x, y| {
        let (u, v) = (f64::from(x) / 240.0, f64::from(y) / 160.0);
        let texture = (hash(x, y) % 1000) as f64 / 1000.0 - 0.5;
        let light = 20.0 + 200.0 * u * (0.6 + 0.4 * (v * 6.0).sin().abs()) + 14.0 * texture;
        let hue = std::f64::consts::TAU * v;
        [0.0, 2.1, 4.2].map(|phase| (light * (1.0 + 0.25 * (hue + phase).cos())).clamp(0.0, 255.0) as u8)
    })
}

/// Noise about grey: the sum of four uniform numbers, of standard deviation `sigma` in 8-bit codes.
pub(super) fn noise(width: u32, height: u32, sigma: f64) -> Picture {
    picture(width, height, |x, y| {
        let bits = hash(x, y);
        let sum: u64 = (0..4).map(|part| (bits >> (16 * part)) & 0xffff).sum();
        let normal = (sum as f64 / 65535.0 - 2.0) * 3.0_f64.sqrt();
        [(128.0 + sigma * normal).round() as u8; 3]
    })
}

/// SplitMix64 of the position.
fn hash(x: u32, y: u32) -> u64 {
    let mut z = (u64::from(x) << 32 | u64::from(y)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
