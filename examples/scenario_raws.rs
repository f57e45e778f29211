//! The raws of a golden set, made from pictures.
//!
//! `cargo run --example scenario_raws -- PICTURES RAWS` reads the photographs named in [`RECIPES`] from the folder
//! PICTURES, draws the scenes that are drawn, makes each of them as dull, dark, noisy or off in colour as its recipe
//! says, and writes what a made-up camera would have taken of it into the folder RAWS. The same pictures give the
//! same raws. `scenarios/golden_v1/LICENCES.md` says where the photographs come from.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a tool for developers, who want the backtrace"
)]
#![allow(missing_docs, reason = "an example has no readers but its own")]
#![allow(clippy::print_stdout, reason = "it is run by hand")]

use std::path::Path;

use darktable::dng::{DngOptions, write_dng};
use darktable::render::Picture;
use image::imageops::{self, FilterType};

/// Linear light, a pixel each.
type Light = [f64; 3];

/// Where a picture comes from.
enum Source {
    /// A photograph, and the part of it that is used: left, top, right, bottom.
    Photo(&'static str, [f64; 4]),
    /// A scene that is drawn: its light at a place, 0…1 from the upper left corner.
    Scene(fn(f64, f64) -> Light),
    /// A drawn scene with a grey photograph as its surface where the second function says so, by this colour.
    Textured(fn(f64, f64) -> Light, &'static str, fn(f64, f64) -> Option<Light>),
}

/// What is done to a picture before the camera sees it.
struct Recipe {
    name: &'static str,
    source: Source,
    /// Columns and rows.
    size: [u32; 2],
    /// Gains of the channels in linear light: the colour of the light.
    cast: Light,
    /// Stray light: a share of white added to everything.
    veil: f64,
    /// 1 as it is, 0 grey.
    saturation: f64,
    exposure_ev: f64,
    noise: f64,
    iso: u16,
}

const WHOLE: [f64; 4] = [0.0, 0.0, 1.0, 1.0];

const PLAIN: Recipe = Recipe {
    name: "",
    source: Source::Scene(|_, _| [0.18; 3]),
    size: [480, 320],
    cast: [1.0; 3],
    veil: 0.0,
    saturation: 1.0,
    exposure_ev: 0.0,
    noise: 0.5,
    iso: 200,
};

fn recipes() -> Vec<Recipe> {
    let photo = |name, file, part| Recipe { name, source: Source::Photo(file, part), ..PLAIN };
    vec![
        Recipe {
            size: [400, 480],
            exposure_ev: -1.2,
            ..photo("astronaut_dim", "astronaut.png", [0.08, 0.0, 0.8, 0.864])
        },
        Recipe {
            size: [400, 480],
            cast: [0.8, 1.0, 1.3],
            ..photo("astronaut_cool", "astronaut.png", [0.08, 0.0, 0.8, 0.864])
        },
        Recipe {
            veil: 0.05,
            saturation: 0.7,
            exposure_ev: -0.3,
            ..photo("coffee_flat", "coffee.png", WHOLE)
        },
        Recipe { exposure_ev: -1.0, cast: [1.15, 1.0, 0.75], ..photo("coffee_lamp", "coffee.png", WHOLE) },
        Recipe { saturation: 0.75, ..photo("cat", "chelsea.png", WHOLE) },
        Recipe { exposure_ev: -1.5, noise: 5.0, iso: 6400, ..photo("cat_night", "chelsea.png", WHOLE) },
        Recipe { exposure_ev: -0.4, ..photo("rocket", "rocket.jpg", WHOLE) },
        Recipe {
            size: [480, 360],
            exposure_ev: -0.6,
            saturation: 0.8,
            ..photo("raccoon", "raccoon.png", WHOLE)
        },
        Recipe {
            size: [480, 360],
            veil: 0.12,
            saturation: 0.8,
            ..photo("raccoon_mist", "raccoon.png", WHOLE)
        },
        Recipe { size: [480, 480], ..photo("photographer", "camera.png", WHOLE) },
        Recipe {
            size: [480, 418],
            exposure_ev: -0.5,
            noise: 2.0,
            iso: 3200,
            ..photo("deep_field", "hubble_deep_field.jpg", WHOLE)
        },
        Recipe {
            name: "meadow",
            source: Source::Textured(meadow, "grass.png", meadow_grass),
            veil: 0.03,
            ..PLAIN
        },
        Recipe { name: "window", source: Source::Scene(window), size: [400, 480], ..PLAIN },
        Recipe {
            name: "neon",
            source: Source::Textured(street, "brick.png", street_wall),
            noise: 2.0,
            iso: 1600,
            ..PLAIN
        },
        Recipe {
            name: "snow",
            source: Source::Scene(snow),
            exposure_ev: -1.0,
            cast: [0.9, 1.0, 1.15],
            ..PLAIN
        },
        Recipe { name: "chart", source: Source::Scene(chart), cast: [1.2, 1.0, 0.72], ..PLAIN },
    ]
}

fn main() {
    let folders: Vec<String> = std::env::args().skip(1).collect();
    let [pictures, raws] = &folders[..] else { panic!("usage: scenario_raws PICTURES RAWS") };
    std::fs::create_dir_all(raws).unwrap();
    for recipe in recipes() {
        let picture = developed(&recipe, Path::new(pictures));
        let options = DngOptions {
            noise: recipe.noise,
            exposure_ev: recipe.exposure_ev,
            iso: recipe.iso,
            ..DngOptions::default()
        };
        let bytes = write_dng(&picture, &options).unwrap();
        println!("{:8} {}", bytes.len(), recipe.name);
        std::fs::write(Path::new(raws).join(format!("{}.dng", recipe.name)), bytes).unwrap();
    }
}

/// The picture that the camera is shown.
fn developed(recipe: &Recipe, pictures: &Path) -> Picture {
    let [width, height] = recipe.size;
    let load = |file: &str, part: [f64; 4]| {
        let image = image::open(pictures.join(file)).unwrap().into_rgb8();
        let (w, h) = (f64::from(image.width()), f64::from(image.height()));
        let [left, top, right, bottom] = part;
        let (x, y) = ((left * w) as u32, (top * h) as u32);
        let cut = imageops::crop_imm(&image, x, y, ((right - left) * w) as u32, ((bottom - top) * h) as u32);
        let small = imageops::resize(&cut.to_image(), width, height, FilterType::Lanczos3);
        // As the filter before a sensor does: detail as fine as its pixels turns into false colour.
        imageops::blur(&small, 0.6)
    };
    let photo = match &recipe.source {
        Source::Photo(file, part) => Some(load(file, *part)),
        Source::Textured(_, file, _) => Some(load(file, WHOLE)),
        Source::Scene(_) => None,
    };
    let mut rgb = Vec::with_capacity(3 * (width * height) as usize);
    for y in 0..height {
        for x in 0..width {
            let (u, v) = ((f64::from(x) + 0.5) / f64::from(width), (f64::from(y) + 0.5) / f64::from(height));
            let shot = photo.as_ref().map(|photo| photo.get_pixel(x, y).0.map(linear));
            let light = match (&recipe.source, shot) {
                (Source::Photo(..), Some(shot)) => shot,
                (Source::Textured(scene, _, surface), Some(shot)) => match surface(u, v) {
                    Some(colour) => [0, 1, 2].map(|c| colour[c] * shot[c] / 0.2),
                    None => scene(u, v),
                },
                (Source::Scene(scene) | Source::Textured(scene, ..), _) => scene(u, v),
                (Source::Photo(..), None) => unreachable!("it was loaded"),
            };
            let grey = 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2];
            for (channel, gain) in light.into_iter().zip(recipe.cast) {
                let coloured = grey + recipe.saturation * (channel - grey);
                rgb.push(code(coloured * gain * (1.0 - recipe.veil) + recipe.veil));
            }
        }
    }
    Picture { width, height, rgb }
}

fn linear(code: u8) -> f64 {
    let c = f64::from(code) / 255.0;
    if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
}

fn code(light: f64) -> u8 {
    let light = light.clamp(0.0, 1.0);
    let c = if light <= 0.003_130_8 { 12.92 * light } else { 1.055 * light.powf(1.0 / 2.4) - 0.055 };
    (255.0 * c).round() as u8
}

fn mix(a: Light, b: Light, t: f64) -> Light {
    let t = t.clamp(0.0, 1.0);
    [0, 1, 2].map(|c| a[c] + (b[c] - a[c]) * t)
}

/// From 0 to 1 as `x` goes from `from` to `to`, without corners.
fn smooth(x: f64, from: f64, to: f64) -> f64 {
    let t = ((x - from) / (to - from)).clamp(0.0, 1.0);
    t * t * (3.0 - 2.0 * t)
}

/// Value noise in three octaves, 0…1.
fn clouds(x: f64, y: f64) -> f64 {
    let hash = |x: i64, y: i64| {
        let mut n = (x.wrapping_mul(374_761_393) ^ y.wrapping_mul(668_265_263)) as u64;
        n = (n ^ (n >> 13)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        f64::from((n >> 40) as u32) / f64::from(1 << 24)
    };
    let octave = |x: f64, y: f64| {
        let (i, j) = (x.floor(), y.floor());
        let (s, t) = (smooth(x - i, 0.0, 1.0), smooth(y - j, 0.0, 1.0));
        let (i, j) = (i as i64, j as i64);
        let top = hash(i, j) + (hash(i + 1, j) - hash(i, j)) * s;
        let low = hash(i, j + 1) + (hash(i + 1, j + 1) - hash(i, j + 1)) * s;
        top + (low - top) * t
    };
    (4.0 * octave(x, y) + 2.0 * octave(2.1 * x, 2.1 * y) + octave(4.3 * x, 4.3 * y)) / 7.0
}

/// Whether a place is within an ellipse, from 0 outside to 1 inside.
fn ellipse(x: f64, y: f64, [cx, cy]: [f64; 2], [rx, ry]: [f64; 2], soft: f64) -> f64 {
    let r = (((x - cx) / rx).powi(2) + ((y - cy) / ry).powi(2)).sqrt();
    1.0 - smooth(r, 1.0 - soft, 1.0 + soft)
}

/// The ridge of the hills, and the far edge of the meadow.
fn ridge(x: f64) -> f64 {
    0.44 + 0.05 * (5.0 * x).sin() + 0.025 * (13.0 * x + 1.0).sin()
}

/// A pale sky with clouds over hazy hills.
fn meadow(x: f64, y: f64) -> Light {
    let sky = mix([0.30, 0.42, 0.62], [0.62, 0.66, 0.70], y / 0.5);
    let cloud = smooth(clouds(5.0 * x, 14.0 * y), 0.52, 0.8);
    let sky = mix(sky, [0.85, 0.85, 0.86], cloud);
    let hill = mix([0.16, 0.20, 0.22], [0.12, 0.17, 0.10], (y - ridge(x)) / 0.2);
    mix(sky, hill, smooth(y, ridge(x) - 0.004, ridge(x) + 0.004))
}

fn meadow_grass(x: f64, y: f64) -> Option<Light> {
    let near = smooth(y, 0.62, 1.0);
    (y > 0.62 + 0.02 * (7.0 * x).sin()).then(|| mix([0.15, 0.20, 0.07], [0.10, 0.15, 0.04], near))
}

/// A person before a bright window, in a dark room.
fn window(x: f64, y: f64) -> Light {
    let wall = mix([0.022, 0.020, 0.018], [0.035, 0.031, 0.027], clouds(6.0 * x, 6.0 * y));
    let inside = smooth(x, 0.195, 0.205) * (1.0 - smooth(x, 0.795, 0.805)) * (1.0 - smooth(y, 0.775, 0.782));
    let bars = (smooth((x - 0.5).abs(), 0.008, 0.014)) * (smooth((y - 0.38).abs(), 0.006, 0.011));
    let outside = mix([0.75, 0.82, 0.95], [0.45, 0.55, 0.42], smooth(y, 0.3, 0.75));
    let pane = mix(outside, [0.9, 0.92, 0.95], smooth(clouds(9.0 * x, 9.0 * y), 0.5, 0.9));
    let room = mix(wall, pane, inside * bars);
    let person = ellipse(x, y, [0.5, 0.40], [0.115, 0.125], 0.03)
        .max(ellipse(x, y, [0.5, 0.95], [0.30, 0.40], 0.02))
        .max(ellipse(x, y, [0.5, 0.55], [0.06, 0.10], 0.03));
    let cloth = mix([0.035, 0.020, 0.022], [0.055, 0.030, 0.032], clouds(25.0 * x, 12.0 * y));
    let skin = mix([0.085, 0.050, 0.036], [0.115, 0.070, 0.052], clouds(14.0 * x, 14.0 * y));
    let hair = ellipse(x, y, [0.5, 0.33], [0.13, 0.085], 0.05);
    let face = mix(skin, [0.015, 0.011, 0.009], hair);
    let eyes = ellipse(x, y, [0.455, 0.405], [0.016, 0.008], 0.3).max(ellipse(
        x,
        y,
        [0.545, 0.405],
        [0.016, 0.008],
        0.3,
    ));
    let face = mix(face, [0.02, 0.015, 0.012], eyes.max(ellipse(x, y, [0.5, 0.475], [0.03, 0.006], 0.3)));
    let body = mix(face, cloth, smooth(y, 0.60, 0.63));
    mix(room, body, person)
}

/// How strongly a lamp shines at a place.
fn lamp(x: f64, y: f64, [cx, cy]: [f64; 2], reach: f64) -> f64 {
    let d2 = ((x - cx).powi(2) + (0.7 * (y - cy)).powi(2)) / (reach * reach);
    1.0 / (1.0 + 6.0 * d2)
}

/// A street at night: a sodium lamp on the left, a blue sign on the right.
fn street(x: f64, y: f64) -> Light {
    let bulb = ellipse(x, y, [0.22, 0.18], [0.018, 0.027], 0.4);
    let sign = smooth(x, 0.70, 0.705)
        * (1.0 - smooth(x, 0.895, 0.90))
        * smooth(y, 0.26, 0.268)
        * (1.0 - smooth(y, 0.36, 0.368));
    let letters = 0.5 + 0.5 * (60.0 * x).sin().signum();
    let road = mix([0.012, 0.012, 0.013], [0.03, 0.03, 0.032], clouds(18.0 * x, 40.0 * y));
    let shine = smooth(y, 0.72, 0.95);
    let lit = [0, 1, 2].map(|c| {
        road[c]
            + shine
                * (0.12 * lamp(x, y, [0.22, 0.95], 0.16) * SODIUM[c]
                    + 0.08 * lamp(x, y, [0.8, 0.95], 0.16) * SIGN[c])
    });
    let glow = mix(lit, [1.0, 0.82, 0.5], bulb);
    mix(glow, mix([0.05, 0.12, 0.5], [0.35, 0.7, 1.0], letters), sign)
}

const SODIUM: Light = [1.0, 0.55, 0.16];
const SIGN: Light = [0.16, 0.42, 1.0];

fn street_wall(x: f64, y: f64) -> Option<Light> {
    let bulb = ellipse(x, y, [0.22, 0.18], [0.022, 0.032], 0.4) > 0.0;
    let sign = (0.695..0.905).contains(&x) && (0.255..0.375).contains(&y);
    let warm = 0.42 * lamp(x, y, [0.22, 0.2], 0.34);
    let cold = 0.28 * lamp(x, y, [0.8, 0.32], 0.30);
    (y < 0.72 && !bulb && !sign).then(|| [0, 1, 2].map(|c| 0.012 + warm * SODIUM[c] + cold * SIGN[c]))
}

/// Snow under a bright sky, with a red hut and fir trees.
fn snow(x: f64, y: f64) -> Light {
    let sky = mix([0.62, 0.70, 0.82], [0.80, 0.83, 0.86], y / 0.45);
    let drift = 0.46 + 0.05 * (4.0 * x + 0.6).sin();
    let field = mix([0.72, 0.73, 0.76], [0.90, 0.90, 0.91], clouds(4.0 * x, 16.0 * y));
    let ground = mix(sky, field, smooth(y, drift - 0.004, drift + 0.004));
    let hut = smooth(x, 0.60, 0.604)
        * (1.0 - smooth(x, 0.74, 0.744))
        * smooth(y, 0.40, 0.405)
        * (1.0 - smooth(y, 0.56, 0.565));
    let planks = 0.85 + 0.15 * (240.0 * x).sin();
    let with_hut = mix(ground, [0.32, 0.045, 0.035].map(|c| c * planks), hut);
    let roof = smooth(y, 0.335, 0.34)
        * (1.0 - smooth(y, 0.40, 0.405))
        * (1.0 - smooth((x - 0.672).abs(), 0.02 + 1.1 * (y - 0.335), 0.025 + 1.1 * (y - 0.335)));
    let mut scene = mix(with_hut, [0.88, 0.89, 0.90], roof);
    for (cx, foot, tall) in [(0.16, 0.60, 0.30), (0.27, 0.57, 0.22), (0.88, 0.62, 0.28)] {
        let up = (foot - y) / tall;
        let half = 0.045 * (1.0 - up) * (1.0 - 0.35 * (18.0 * up).fract());
        let tree = smooth(up, 0.0, 0.02)
            * (1.0 - smooth(up, 0.98, 1.0))
            * (1.0 - smooth((x - cx).abs(), half, half + 0.004));
        scene = mix(scene, [0.035, 0.060, 0.050], tree);
    }
    scene
}

/// A table in lamplight with patches of colour and of grey.
fn chart(x: f64, y: f64) -> Light {
    const PATCHES: [Light; 18] = [
        [0.17, 0.08, 0.06],
        [0.55, 0.31, 0.23],
        [0.12, 0.20, 0.34],
        [0.11, 0.15, 0.05],
        [0.24, 0.22, 0.43],
        [0.14, 0.51, 0.41],
        [0.67, 0.21, 0.03],
        [0.07, 0.11, 0.38],
        [0.53, 0.09, 0.12],
        [0.11, 0.04, 0.15],
        [0.34, 0.50, 0.05],
        [0.74, 0.37, 0.02],
        [0.02, 0.05, 0.28],
        [0.06, 0.30, 0.06],
        [0.42, 0.03, 0.04],
        [0.80, 0.57, 0.01],
        [0.49, 0.09, 0.30],
        [0.01, 0.24, 0.38],
    ];
    const GREYS: [f64; 6] = [0.88, 0.59, 0.36, 0.19, 0.09, 0.03];
    let wood = mix([0.16, 0.10, 0.06], [0.24, 0.15, 0.09], clouds(3.0 * x, 40.0 * y));
    let (u, v) = ((x - 0.14) / 0.12, (y - 0.14) / 0.18);
    let (column, row) = (u.floor(), v.floor());
    let gap = |t: f64| (0.08..0.92).contains(&(t - t.floor()));
    let board = (0.12..0.88).contains(&x) && (0.12..0.88).contains(&y);
    let on = board && (0.0..6.0).contains(&u) && (0.0..4.0).contains(&v) && gap(u) && gap(v);
    let light = match (board, on) {
        (_, true) if row >= 3.0 => [GREYS[column as usize]; 3],
        (_, true) => PATCHES[(6.0 * row + column) as usize],
        (true, false) => [0.02; 3],
        _ => wood,
    };
    light.map(|c| c * (1.0 - 0.35 * smooth(x, 0.2, 1.0)))
}
