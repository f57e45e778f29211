//! Things to be found by at most four points each: drawn scenes, of which the truth is known, and photographs of
//! `golden_v1` as darktable shows them, with outlines drawn by hand. Two tests use them: of what is found, and of the
//! mask that darktable makes of it.

use pixels::Picture;
use pixels::outline::{Outline, Ring};

/// The folder of the photographs.
const PHOTOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../pixels/tests/objects");

pub type Point = [f64; 2];

#[derive(Clone)]
pub struct Case {
    pub name: String,
    pub picture: Picture,
    /// Whether a pixel is on the thing.
    pub truth: Vec<bool>,
    pub inside: Vec<Point>,
    pub outside: Vec<Point>,
}

/// Noise that is the same every time, -1…1.
fn noise(x: f64, y: f64, seed: u32) -> f64 {
    let mut hash = (x as u32).wrapping_mul(0x9e37_79b1)
        ^ (y as u32).wrapping_mul(0x85eb_ca6b)
        ^ seed.wrapping_mul(0xc2b2_ae35);
    for _ in 0..2 {
        hash = (hash ^ (hash >> 15)).wrapping_mul(0x2c1b_3c6d);
    }
    f64::from(hash >> 8) / f64::from(1 << 23) - 1.0
}

type Paint = fn(f64, f64) -> [f64; 3];
type Shape = fn(f64, f64) -> bool;

fn scene(
    name: &str,
    (width, height): (u32, u32),
    shape: Shape,
    (object, ground): (Paint, Paint),
    grain: f64,
    points: [&[Point]; 2],
) -> Case {
    let mut picture = Picture { width, height, rgb: Vec::new() };
    let mut truth = Vec::new();
    let short = f64::from(width.min(height));
    for y in 0..height {
        for x in 0..width {
            // Coordinates in units of the shorter side; edges are as soft as a lens makes them.
            let mut sum = [0.0; 3];
            let at = |dx: f64, dy: f64| [(f64::from(x) + dx) / short, (f64::from(y) + dy) / short];
            for dy in [-0.4, 0.5, 1.4] {
                for dx in [-0.4, 0.5, 1.4] {
                    let [u, v] = at(dx, dy);
                    let colour = if shape(u, v) { object(u, v) } else { ground(u, v) };
                    (0..3).for_each(|c| sum[c] += colour[c] / 9.0);
                }
            }
            let [u, v] = at(0.5, 0.5);
            truth.push(shape(u, v));
            let (x, y) = (f64::from(x), f64::from(y));
            for (c, value) in sum.into_iter().enumerate() {
                picture.rgb.push((value + grain * noise(x, y, c as u32)).round().clamp(0.0, 255.0) as u8);
            }
        }
    }
    let [inside, outside] = points.map(<[Point]>::to_vec);
    Case { name: name.into(), picture, truth, inside, outside }
}

fn ellipse(x: f64, y: f64, cx: f64, cy: f64, rx: f64, ry: f64) -> bool {
    ((x - cx) / rx).powi(2) + ((y - cy) / ry).powi(2) < 1.0
}

fn stripes(at: f64, period: f64, [a, b]: [[f64; 3]; 2]) -> [f64; 3] {
    let share = 0.5 + 0.5 * (at / period * std::f64::consts::TAU).sin();
    [0, 1, 2].map(|c| a[c] + share * (b[c] - a[c]))
}

/// A texture of patches, -1…1.
fn patches(x: f64, y: f64, size: f64, seed: u32) -> f64 {
    let (u, v) = (x / size, y / size);
    let (fx, fy) = (u.fract(), v.fract());
    let at = |dx: f64, dy: f64| noise(u.floor() + dx, v.floor() + dy, seed);
    let mix = |a: f64, b: f64, t: f64| a + (b - a) * t * t * (3.0 - 2.0 * t);
    mix(mix(at(0.0, 0.0), at(1.0, 0.0), fx), mix(at(0.0, 1.0), at(1.0, 1.0), fx), fy)
}

fn star(x: f64, y: f64) -> bool {
    let (r, a) = ((x - 0.75).hypot(y - 0.5), (y - 0.5).atan2(x - 0.75));
    r < 0.26 + 0.1 * (5.0 * a).cos()
}

fn figure(x: f64, y: f64) -> bool {
    ellipse(x, y, 0.7, 0.3, 0.11, 0.15)
        || (x - 0.7).abs() < 0.05 && (0.3..0.6).contains(&y)
        || ellipse(x, y, 0.7, 1.0, 0.36, 0.47)
}

fn disc(x: f64, y: f64) -> bool {
    ellipse(x, y, 0.75, 0.5, 0.3, 0.3)
}

#[rustfmt::skip]
pub fn scenes() -> Vec<Case> {
    let s = (720, 480);
    vec![
        scene("disc on grey", s, disc, (|_, _| [190., 60., 50.], |_, _| [120., 120., 125.]), 4., [&[[0.5, 0.5]], &[]]),
        scene("disc at 1024", (1024, 683), disc, (|_, _| [60., 90., 170.], |_, y| [90. + 80. * y, 130., 90.]), 8., [&[[0.5, 0.5]], &[]]),
        scene("star", s, star, (|_, _| [220., 190., 60.], |_, _| [70., 80., 110.]), 6., [&[[0.5, 0.5]], &[]]),
        scene("low contrast", s, disc, (|_, _| [132., 120., 116.], |_, _| [116., 120., 124.]), 3., [&[[0.5, 0.5]], &[[0.1, 0.1]]]),
        scene("low contrast in noise", s, disc, (|_, _| [140., 122., 112.], |_, _| [112., 120., 130.]), 16., [&[[0.5, 0.5]], &[[0.1, 0.1]]]),
        scene("noise", s, star, (|_, _| [170., 90., 90.], |_, _| [90., 100., 140.]), 45., [&[[0.5, 0.5]], &[[0.1, 0.9]]]),
        scene("gradient on object", s, disc, (|x, _| [80. + 150. * (x - 0.45), 40., 40.], |_, _| [60., 110., 90.]), 5., [&[[0.4, 0.5], [0.6, 0.5]], &[]]),
        scene("gradient on ground", s, star, (|_, _| [200., 130., 60.], |x, y| [60. + 70. * x, 80. + 40. * y, 120.]), 5., [&[[0.5, 0.5]], &[]]),
        scene("gradients cross", s, disc, (|x, _| [60. + 120. * x, 80., 60.], |x, _| [210. - 110. * x, 120., 110.]), 4., [&[[0.42, 0.5], [0.58, 0.5]], &[[0.1, 0.5], [0.9, 0.5]]]),
        scene("stripes", s, disc, (|x, _| stripes(x, 0.04, [[180., 60., 60.], [120., 20., 40.]]), |_, y| stripes(y, 0.05, [[90., 110., 90.], [130., 150., 120.]])), 5., [&[[0.5, 0.5]], &[[0.1, 0.2]]]),
        scene("strong stripes", s, disc, (|x, _| stripes(x, 0.05, [[230., 220., 210.], [40., 40., 70.]]), |_, _| [100., 130., 90.]), 5., [&[[0.5, 0.5], [0.45, 0.4]], &[[0.1, 0.2], [0.9, 0.9]]]),
        scene("patches", s, star, (|x, y| { let p = 30. * patches(x, y, 0.03, 7); [170. + p, 110. + p, 60. + p] }, |x, y| { let p = 30. * patches(x, y, 0.05, 8); [80. + p, 110. + p, 80. + p] }), 5., [&[[0.5, 0.5]], &[[0.1, 0.5]]]),
        scene("fur on leaves", s, figure, (|x, y| { let p = 40. * patches(x, 4. * y, 0.03, 3); [140. + p, 125. + p, 110. + p] }, |x, y| { let p = 40. * patches(3. * x, y, 0.06, 4); [70. + p, 110. + p, 50. + p] }), 6., [&[[0.467, 0.3], [0.467, 0.8]], &[[0.1, 0.2], [0.9, 0.3]]]),
        scene("figure before a sky", s, figure, (|_, y| if y < 0.45 { [190., 140., 120.] } else { [50., 50., 70.] }, |_, y| [140., 170. - 30. * y, 220. - 60. * y]), 4., [&[[0.467, 0.3], [0.467, 0.8]], &[]]),
        scene("figure of three colours", s, figure, (|_, y| if y < 0.22 { [50., 35., 30.] } else if y < 0.6 { [200., 150., 130.] } else { [160., 50., 50.] }, |_, _| [110., 120., 130.]), 5., [&[[0.467, 0.18], [0.467, 0.35], [0.467, 0.8]], &[]]),
        scene("thin arms", s, |x, y| disc((x - 0.75) * 2. + 0.75, (y - 0.5) * 2. + 0.5) || ((y - 0.5).abs() < 0.012 || (x - 0.75).abs() < 0.012) && (x - 0.75).abs().max((y - 0.5).abs()) < 0.35, (|_, _| [220., 210., 190.], |_, _| [70., 80., 90.]), 5., [&[[0.5, 0.5]], &[]]),
        scene("pole", s, |x, y| (x - 0.75).abs() < 0.025 && y > 0.2 || ellipse(x, y, 0.75, 0.2, 0.09, 0.09), (|_, _| [180., 170., 60.], |_, y| [120. - 40. * y, 140. - 30. * y, 180. - 90. * y]), 5., [&[[0.5, 0.2], [0.5, 0.7]], &[]]),
        scene("ring", s, |x, y| (0.16..0.32).contains(&(x - 0.75).hypot(y - 0.5)), (|_, _| [60., 120., 60.], |_, _| [170., 160., 150.]), 6., [&[[0.34, 0.5]], &[[0.5, 0.5]]]),
        scene("two discs", s, |x, y| ellipse(x, y, 0.4, 0.5, 0.18, 0.18) || ellipse(x, y, 1.1, 0.55, 0.2, 0.25), (|_, _| [200., 80., 120.], |_, y| [80., 90. + 60. * y, 100.]), 6., [&[[0.267, 0.5], [0.733, 0.55]], &[]]),
        scene("one of two discs", s, |x, y| ellipse(x, y, 0.4, 0.5, 0.18, 0.18), (|_, _| [200., 80., 120.], |x, y| if ellipse(x, y, 1.1, 0.55, 0.2, 0.25) { [200., 80., 120.] } else { [80., 120., 100.] }), 6., [&[[0.267, 0.5]], &[[0.733, 0.55]]]),
        scene("at the border", s, |x, y| ellipse(x, y, 1.4, 0.95, 0.6, 0.5), (|_, _| [90., 60., 50.], |x, _| [150. + 30. * x, 160., 170.]), 6., [&[[0.9, 0.85]], &[]]),
        scene("sky above hills", s, |x, y| y < 0.5 + 0.1 * (6. * x).sin(), (|_, y| [110. + 120. * y, 150. + 70. * y, 220.], |x, y| { let p = 25. * patches(x, y, 0.02, 5); [70. + p, 90. + p, 50. + p] }), 4., [&[[0.3, 0.1], [0.8, 0.3]], &[[0.5, 0.9]]]),
        scene("small thing", s, |x, y| ellipse(x, y, 1.1, 0.7, 0.05, 0.04), (|_, _| [210., 60., 40.], |x, y| { let p = 20. * patches(x, y, 0.04, 6); [120. + p, 130. + p, 100. + p] }), 6., [&[[0.733, 0.7]], &[]]),
    ]
}

/// A photograph of `golden_v1`, and outlines drawn on it by hand.
fn photo(name: &str, file: &str, outlines: &[&[Point]], points: [&[Point]; 2]) -> Case {
    let path = format!("{PHOTOS}/{file}.jpg");
    let read = image::open(path).unwrap().to_rgb8();
    let (width, height) = read.dimensions();
    let outline =
        Outline { pieces: outlines.iter().map(|ring| ring.to_vec()).collect(), ..Outline::default() };
    let truth = drawn(&outline, width, height);
    let [inside, outside] = points.map(<[Point]>::to_vec);
    Case {
        name: name.into(),
        picture: Picture { width, height, rgb: read.into_raw() },
        truth,
        inside,
        outside,
    }
}

#[rustfmt::skip]
pub fn photos() -> Vec<Case> {
    vec![
        photo("astronaut's hair", "astronaut_cool", &[&[[0.31,0.16],[0.32,0.12],[0.40,0.08],[0.46,0.045],[0.53,0.035],[0.60,0.055],[0.645,0.1],[0.69,0.12],[0.71,0.18],[0.69,0.25],[0.64,0.29],[0.62,0.28],[0.60,0.19],[0.54,0.185],[0.41,0.165],[0.385,0.23],[0.375,0.27],[0.33,0.24],[0.31,0.19]]], [&[[0.5,0.1],[0.66,0.2],[0.34,0.2]], &[[0.5,0.25]]]),
        photo("astronaut's face", "astronaut_cool", &[&[[0.41,0.165],[0.54,0.185],[0.60,0.19],[0.62,0.28],[0.60,0.33],[0.585,0.38],[0.55,0.425],[0.50,0.425],[0.41,0.405],[0.40,0.33],[0.385,0.29],[0.385,0.23]]], [&[[0.5,0.26],[0.5,0.37]], &[[0.5,0.1],[0.5,0.45]]]),
        photo("round badge", "astronaut_cool", &[&[[0.355,0.79],[0.41,0.80],[0.445,0.835],[0.452,0.875],[0.44,0.915],[0.40,0.945],[0.355,0.957],[0.305,0.945],[0.265,0.91],[0.255,0.87],[0.27,0.83],[0.31,0.8]]], [&[[0.355,0.82],[0.355,0.87],[0.355,0.935]], &[[0.2,0.87]]]),
        photo("cat's left eye", "cat", &[&[[0.305,0.37],[0.315,0.33],[0.35,0.295],[0.39,0.295],[0.425,0.325],[0.45,0.37],[0.45,0.43],[0.43,0.465],[0.40,0.485],[0.37,0.48],[0.33,0.45],[0.31,0.41]]], [&[[0.34,0.4],[0.38,0.37],[0.42,0.42]], &[[0.25,0.45]]]),
        photo("cat's right eye", "cat", &[&[[0.66,0.46],[0.67,0.41],[0.69,0.385],[0.72,0.37],[0.745,0.37],[0.755,0.42],[0.745,0.48],[0.72,0.525],[0.69,0.545],[0.665,0.535]]], [&[[0.73,0.44],[0.695,0.45],[0.68,0.5]], &[[0.8,0.5]]]),
        photo("cat's nose", "cat", &[&[[0.51,0.755],[0.54,0.76],[0.56,0.75],[0.60,0.765],[0.645,0.765],[0.635,0.80],[0.60,0.83],[0.585,0.87],[0.565,0.88],[0.55,0.83],[0.525,0.785]]], [&[[0.6,0.79],[0.56,0.8]], &[[0.5,0.85],[0.62,0.7]]]),
        photo("cup's rim and inside", "coffee_flat", &[&[[0.29,0.26],[0.305,0.18],[0.34,0.11],[0.39,0.065],[0.45,0.045],[0.52,0.05],[0.59,0.09],[0.64,0.15],[0.675,0.22],[0.68,0.31],[0.665,0.39],[0.62,0.46],[0.56,0.505],[0.48,0.515],[0.41,0.495],[0.34,0.43],[0.30,0.34]]], [&[[0.5,0.12],[0.5,0.4],[0.305,0.26]], &[[0.2,0.45]]]),
        photo("coffee", "coffee_flat", &[&[[0.345,0.40],[0.37,0.345],[0.42,0.305],[0.48,0.29],[0.54,0.305],[0.595,0.345],[0.62,0.39],[0.59,0.44],[0.54,0.47],[0.48,0.482],[0.42,0.465],[0.375,0.44]]], [&[[0.48,0.37],[0.42,0.42]], &[[0.45,0.15],[0.48,0.5]]]),
        photo("blue sign", "neon", &[&[[0.70,0.265],[0.895,0.265],[0.895,0.365],[0.70,0.365]]], [&[[0.72,0.31],[0.76,0.31],[0.81,0.31],[0.86,0.31]], &[]]),
        photo("lamp", "neon", &[&[[0.205,0.15],[0.22,0.14],[0.235,0.15],[0.243,0.178],[0.235,0.205],[0.22,0.215],[0.205,0.205],[0.197,0.178]]], [&[[0.22,0.178]], &[]]),
        photo("raccoon's nose", "raccoon", &[&[[0.567,0.585],[0.575,0.56],[0.6,0.55],[0.63,0.552],[0.645,0.575],[0.64,0.61],[0.62,0.632],[0.6,0.632],[0.575,0.612]]], [&[[0.605,0.59]], &[[0.6,0.52],[0.6,0.67]]]),
        photo("rocket", "rocket", &[&[[0.50,0.305],[0.515,0.335],[0.52,0.40],[0.522,0.6],[0.525,0.95],[0.485,0.95],[0.483,0.6],[0.487,0.42],[0.487,0.34]]], [&[[0.504,0.5],[0.504,0.8],[0.504,0.4]], &[[0.45,0.6]]]),
        photo("hut's wall", "snow", &[&[[0.602,0.402],[0.742,0.402],[0.742,0.562],[0.602,0.562]]], [&[[0.67,0.48]], &[]]),
        photo("left tree", "snow", &[&[[0.16,0.305],[0.175,0.40],[0.19,0.5],[0.202,0.597],[0.118,0.597],[0.128,0.5],[0.143,0.41]]], [&[[0.16,0.5]], &[]]),
        photo("figure at the window", "window", &[&[[0.5,0.275],[0.555,0.29],[0.6,0.34],[0.615,0.40],[0.6,0.46],[0.555,0.51],[0.56,0.56],[0.64,0.59],[0.7,0.65],[0.75,0.72],[0.79,0.82],[0.8,1.0],[0.2,1.0],[0.21,0.85],[0.24,0.74],[0.3,0.65],[0.37,0.59],[0.44,0.56],[0.445,0.51],[0.4,0.46],[0.385,0.40],[0.4,0.34],[0.445,0.29]]], [&[[0.5,0.33],[0.5,0.45],[0.5,0.8]], &[[0.1,0.8]]]),
        photo("photographer", "photographer", &[&[[0.0,0.5],[0.05,0.42],[0.1,0.33],[0.17,0.27],[0.25,0.24],[0.32,0.2],[0.35,0.15],[0.4,0.125],[0.46,0.14],[0.52,0.2],[0.53,0.25],[0.5,0.28],[0.52,0.3],[0.57,0.35],[0.63,0.33],[0.65,0.37],[0.62,0.44],[0.6,0.5],[0.58,0.54],[0.48,0.61],[0.4,0.58],[0.35,0.65],[0.28,0.75],[0.295,0.85],[0.295,1.0],[0.28,1.0],[0.25,0.95],[0.19,0.87],[0.18,1.0],[0.0,1.0]]], [&[[0.2,0.45],[0.43,0.3],[0.42,0.17]], &[[0.5,0.7]]]),
        photo("sky over the meadow", "meadow", &[&[[0.0,0.0],[1.0,0.0],[1.0,0.415],[0.9,0.39],[0.82,0.378],[0.75,0.385],[0.68,0.42],[0.6,0.465],[0.5,0.495],[0.42,0.485],[0.3,0.465],[0.2,0.475],[0.1,0.482],[0.0,0.46]]], [&[[0.5,0.1],[0.1,0.3],[0.5,0.42],[0.8,0.05]], &[]]),
        photo("hills of the meadow", "meadow", &[&[[1.0,0.415],[0.9,0.39],[0.82,0.378],[0.75,0.385],[0.68,0.42],[0.6,0.465],[0.5,0.495],[0.42,0.485],[0.3,0.465],[0.2,0.475],[0.1,0.482],[0.0,0.46],[0.0,0.62],[0.2,0.635],[0.5,0.61],[0.7,0.6],[1.0,0.62]]], [&[[0.2,0.55],[0.8,0.5]], &[[0.5,0.3],[0.5,0.8]]]),
    ]
}

/// The pixels inside of an outline.
pub fn drawn(outline: &Outline, width: u32, height: u32) -> Vec<bool> {
    let within = |rings: &[Ring], x: f64, y: f64| {
        rings.iter().any(|ring| {
            let sides = ring.iter().zip(ring.iter().cycle().skip(1));
            let crossed = |([ax, ay], [bx, by]): &(&Point, &Point)| {
                (*ay > y) != (*by > y) && x < (bx - ax) * (y - ay) / (by - ay) + ax
            };
            sides.filter(crossed).count() % 2 == 1
        })
    };
    let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
    pixels
        .map(|(x, y)| {
            let [x, y] = [(f64::from(x) + 0.5) / f64::from(width), (f64::from(y) + 0.5) / f64::from(height)];
            within(&outline.pieces, x, y) && !within(&outline.holes, x, y) || within(&outline.islands, x, y)
        })
        .collect()
}
