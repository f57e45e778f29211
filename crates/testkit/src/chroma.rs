//! A chart of known lightness, chroma and hue, and where ranges of colours lie on it.

use std::sync::Arc;

use darktable::dng::DngOptions;
use darktable::render::{ByHand, Picture, Quality, RenderRequest, Renderer as _};
use darktable::state::EditState;
use darktable::worker::Worker;
use engine::vocabulary::MaskSpec;
use pixels::lab::Lab;

use crate::demo::{Demo, deadline};

/// CIE L* of the chart's rows. The camera and the tone mapper show them otherwise, so what counts is what is shown.
const LIGHTS: [f64; 18] = [
    6.0, 9.0, 12.0, 16.0, 20.0, 25.0, 30.0, 36.0, 42.0, 48.0, 54.0, 60.0, 66.0, 72.0, 78.0, 84.0, 90.0, 94.0,
];
/// Patches of a row: C* from 0 in steps of 2.
const STEPS: usize = 31;
const STEP: f64 = 2.0;
const HUES: usize = 12;
/// How many hues stand side by side.
const ACROSS: usize = 4;
/// The side of a patch in pixels, and what of it is left out on every side.
const SIDE: usize = 8;
const MARGIN: usize = 3;

/// The rows of the table: the CIE L* that is seen, from and to.
pub const ROWS: [(f64, f64); 6] =
    [(8.0, 16.0), (16.0, 26.0), (26.0, 42.0), (42.0, 58.0), (58.0, 74.0), (74.0, 90.0)];
/// Its columns: where the range of chroma begins.
pub const ASKED: [f64; 4] = [5.0, 10.0, 25.0, 45.0];

/// The C* at which a range of chroma has half of its effect, of the hues that are shown: least, mean, greatest.
pub type Cell = Option<[f64; 3]>;

/// The chart on the made-up camera.
pub struct Chart {
    demo: Demo,
    worker: Worker,
    /// As it is seen.
    seen: Arc<Picture>,
}

/// A patch as it is seen, and how far a mask acts on it.
#[derive(Clone, Copy, Debug)]
pub struct Patch {
    /// CIE L*.
    pub light: f64,
    /// CIE C*.
    pub chroma: f64,
    /// Degrees on the HSV circle.
    pub hue: f64,
    /// 0…1.
    pub effect: f64,
}

impl Chart {
    pub fn new() -> Self {
        let demo = Demo::with(&picture(), &DngOptions { noise: 0.0, ..DngOptions::default() });
        let worker = demo.worker();
        let seen = look(&demo, &worker, &demo.facts.baseline);
        Self { demo, worker, seen }
    }

    /// Where the range of chroma from `asked` on has half of its effect, in each row. With `about` each row is
    /// measured under a mask that has the row's own range of luminance besides.
    pub fn column(&self, asked: f64, about: bool) -> Vec<Cell> {
        let range = format!(r#"{{"range":"chroma","from":{asked},"to":100,"softness":0}}"#);
        if !about {
            let found = crossings(&self.patches(&range));
            return ROWS.iter().map(|row| cell(&found, *row)).collect();
        }
        let of = |(from, to): &(f64, f64)| {
            let (from, to) = (*from, *to);
            let lights =
                format!(r#"{{"range":"luminance","from":{},"to":{},"softness":5}}"#, from - 3.0, to + 3.0);
            let mask = format!(r#"{{"intersection":[{lights},{range}]}}"#);
            cell(&crossings(&self.patches(&mask)), (from, to))
        };
        ROWS.iter().map(of).collect()
    }

    /// How a mask acts on the patches: lines of one lightness and one hue, from grey to the strongest colour that a
    /// display can show.
    pub fn patches(&self, mask: &str) -> Vec<Vec<Patch>> {
        let Demo { vocabulary, facts, layouts, .. } = &self.demo;
        let mask: MaskSpec = serde_json::from_str(mask).unwrap();
        let probe = vocabulary.mask_probe(&mask, &facts.baseline, facts, layouts).unwrap();
        let look = |state| look(&self.demo, &self.worker, state);
        let with = look(&probe.with);
        let shown = probe.read(&look(&probe.without), &with).unwrap();
        assert_eq!((self.seen.width, self.seen.height), (with.width, with.height));
        let line = |line: usize| {
            let steps = (0..STEPS).take_while(|step| srgb(line, *step).is_some());
            steps.map(|step| self.patch(shown.effect(), line, step)).collect()
        };
        (0..LIGHTS.len() * HUES).map(line).collect()
    }

    fn patch(&self, effects: &[f32], line: usize, step: usize) -> Patch {
        let (left, top) = place(line, step);
        let inner = MARGIN..SIDE - MARGIN;
        let pixels: Vec<usize> =
            inner.clone().flat_map(|y| inner.clone().map(move |x| (top + y) * width() + left + x)).collect();
        let mean =
            |of: &dyn Fn(usize) -> f64| pixels.iter().map(|at| of(*at)).sum::<f64>() / pixels.len() as f64;
        let rgb = |at: usize| [0, 1, 2].map(|channel| self.seen.rgb[3 * at + channel]);
        let lab = |at: usize| Lab::from_srgb(rgb(at));
        let [a, b] = [mean(&|at| lab(at).a.into()), mean(&|at| lab(at).b.into())];
        let [red, green, blue] = [0, 1, 2].map(|channel: usize| mean(&|at| rgb(at)[channel].into()));
        // The angle between the three primaries; of a pure one it is that of HSV, and near it between them.
        let hue = (3_f64.sqrt() * (green - blue)).atan2(2.0 * red - green - blue);
        Patch {
            light: mean(&|at| lab(at).l.into()),
            chroma: a.hypot(b),
            hue: hue.to_degrees().rem_euclid(360.0),
            effect: mean(&|at| effects[at].into()),
        }
    }
}

fn look(demo: &Demo, worker: &Worker, state: &EditState) -> Arc<Picture> {
    let request = RenderRequest { raw: &demo.raw, state, long_edge: 4000, quality: Quality::Preview };
    worker.render(&request, &deadline(), &ByHand).unwrap().picture
}

/// The table as Markdown: C* at half effect, and how far it goes with the hue.
pub fn table(columns: &[Vec<Cell>]) -> String {
    let mut text = "| L\\* |".to_owned();
    text += &ASKED.map(|asked| format!(" {asked} |")).concat();
    text += &format!("\n|---|{}\n", "---|".repeat(ASKED.len()));
    for (at, (from, to)) in ROWS.iter().enumerate() {
        text += &format!("| {from} to {to} |");
        for column in columns {
            text += &match column[at] {
                Some([least, mean, most]) => format!(" {mean:.0} ({least:.0}–{most:.0}) |"),
                None => " – |".to_owned(),
            };
        }
        text += "\n";
    }
    text
}

fn cell(found: &[[f64; 2]], (from, to): (f64, f64)) -> Cell {
    let row: Vec<f64> =
        found.iter().filter(|[light, _]| (from..to).contains(light)).map(|[_, chroma]| *chroma).collect();
    // A colour that a display cannot show is not on the chart: a few hues are no mean.
    (row.len() >= HUES).then(|| {
        let mean = row.iter().sum::<f64>() / row.len() as f64;
        [row.iter().copied().fold(f64::MAX, f64::min), mean, row.iter().copied().fold(0.0, f64::max)]
    })
}

/// L* and C* of the places at which the effect passes a half, going from grey to colour.
fn crossings(lines: &[Vec<Patch>]) -> Vec<[f64; 2]> {
    let crossing = |line: &Vec<Patch>| {
        let pair = line.windows(2).find(|pair| pair[0].effect < 0.5 && pair[1].effect >= 0.5)?;
        let part = (0.5 - pair[0].effect) / (pair[1].effect - pair[0].effect);
        let between = |of: fn(&Patch) -> f64| of(&pair[0]) + part * (of(&pair[1]) - of(&pair[0]));
        Some([between(|patch| patch.light), between(|patch| patch.chroma)])
    };
    lines.iter().filter_map(crossing).collect()
}

fn width() -> usize {
    ACROSS * STEPS * SIDE
}

/// The upper left corner of a patch. A line is one lightness and one hue.
fn place(line: usize, step: usize) -> (usize, usize) {
    ((line % ACROSS * STEPS + step) * SIDE, line / ACROSS * SIDE)
}

fn picture() -> Picture {
    let lines = LIGHTS.len() * HUES;
    let (width, height) = (width(), lines / ACROSS * SIDE);
    let mut rgb = vec![0; 3 * width * height];
    for (line, step) in (0..lines).flat_map(|line| (0..STEPS).map(move |step| (line, step))) {
        let colour = srgb(line, step).unwrap_or([128; 3]);
        let (left, top) = place(line, step);
        for (x, y) in (0..SIDE).flat_map(|y| (0..SIDE).map(move |x| (left + x, top + y))) {
            rgb[3 * (y * width + x)..][..3].copy_from_slice(&colour);
        }
    }
    Picture { width: width as u32, height: height as u32, rgb }
}

/// The sRGB code of a patch's CIE Lab colour (D65), by IEC 61966-2-1; `None` for one that sRGB does not have.
fn srgb(line: usize, step: usize) -> Option<[u8; 3]> {
    let (light, chroma, hue) = (LIGHTS[line / HUES], step as f64 * STEP, line % HUES);
    let (sin, cos) = (hue as f64 / HUES as f64 * std::f64::consts::TAU).sin_cos();
    let y = (light + 16.0) / 116.0;
    let linear =
        |root: f64| if root > 6.0 / 29.0 { root.powi(3) } else { (116.0 * root - 16.0) * 27.0 / 24_389.0 };
    let [x, y, z] =
        [0.950_47 * linear(y + chroma * cos / 500.0), linear(y), 1.088_83 * linear(y - chroma * sin / 200.0)];
    let rgb = [
        3.240_454_2 * x - 1.537_138_5 * y - 0.498_531_4 * z,
        -0.969_266 * x + 1.876_010_8 * y + 0.041_556 * z,
        0.055_643_4 * x - 0.204_025_9 * y + 1.057_225_2 * z,
    ];
    let code = |light: f64| {
        let light = if light <= 0.003_130_8 { 12.92 * light } else { 1.055 * light.powf(1.0 / 2.4) - 0.055 };
        (255.0 * light).round() as u8
    };
    rgb.iter().all(|light| (0.0..=1.0).contains(light)).then(|| rgb.map(code))
}
