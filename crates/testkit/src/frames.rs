//! Photos taken in by the program itself, edits of the frame, and where masks and spots come to lie on the displayed
//! picture. Where they have to lie is worked out here, in pixels of that picture, and by nothing of the program's.

mod home;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::clock::{Deadline, SystemClock};
use darktable::render::{Picture, RawFile};
use darktable::state::EditState;
use engine::photo::Workspace;
use engine::vocabulary::{MaskSpec, PhotoFacts, Region, RegionsRequest, Spot};
use pixels::metrics::difference::distances;
use pixels::srgb::LINEAR;

pub use home::Home;

/// The sides of the scenes.
pub const LONG: u32 = 1200;
pub const SHORT: u32 = 800;

/// The longest side of a render.
const EDGE: u32 = LONG;

/// The user's own vocabulary, below the home folder.
pub const OWN: &str = ".local/share/chemigram/vocabulary";

/// How long a picture may take.
pub fn patience() -> Deadline {
    Deadline::after(Arc::new(SystemClock), Duration::from_secs(120))
}

/// A move and its values.
pub type Step = (&'static str, &'static [(&'static str, f64)]);

/// What is done to the frame before a mask is drawn on it.
pub const EDITS: [(&str, &[Step]); 10] = [
    ("plain", &[]),
    ("crop", &[("crop_left", &[("margin", 0.2)]), ("crop_top", &[("margin", 0.1)])]),
    ("straighten 6", &[("straighten", &[("angle", 6.0)])]),
    ("straighten -4", &[("straighten", &[("angle", -4.0)])]),
    (
        "perspective",
        &[("perspective_vertical", &[("amount", 0.3)]), ("perspective_horizontal", &[("amount", -0.2)])],
    ),
    ("turn", &[("turn", &[("quarter_turns", 1.0)])]),
    (
        "all",
        &[
            ("straighten", &[("angle", -3.0)]),
            ("perspective_vertical", &[("amount", -0.2)]),
            ("turn", &[("quarter_turns", 3.0), ("mirror", 1.0)]),
            ("crop_right", &[("margin", 0.1)]),
            ("crop_bottom", &[("margin", 0.2)]),
        ],
    ),
    ("shear", &[("perspective_shear", &[("amount", 0.12)])]),
    ("ratio 1", &[("crop_ratio", &[("ratio", 1.0)])]),
    (
        "ratio 0.9",
        &[
            ("crop_ratio", &[("ratio", 0.9)]),
            ("straighten", &[("angle", 4.0)]),
            ("perspective_vertical", &[("amount", 0.2)]),
        ],
    ),
];

/// A shape as an agent draws it, and the test's own notion of it.
pub struct Shape {
    pub name: &'static str,
    mask: &'static str,
    /// Whether a pixel lies in it, by its place and the size of the picture.
    holds: fn([f64; 2], [f64; 2]) -> bool,
    /// The part of the picture in which no other shape acts: left, top, right, bottom, 0…1.
    part: [f64; 4],
    /// The intersection over union that it has to reach.
    pub least: f64,
}

const THIRD: f64 = 1.0 / 3.0;
const ROW: f64 = 0.59;

/// Every kind of shape, all on one picture, each in a part of its own.
#[rustfmt::skip]
pub const SHAPES: [Shape; 7] = [
    Shape {
        name: "gradient",
        mask: r#"{"shape":"gradient","anchor":[0.5,0.09],"angle":5,"width":0.01}"#,
        holds: |[x, y], [w, h]| {
            let (sin, cos) = 5_f64.to_radians().sin_cos();
            (x - 0.5 * w) * sin - (y - 0.09 * h) * cos > 0.0
        },
        part: [0.0, 0.0, 1.0, 0.18],
        least: 0.95,
    },
    Shape {
        name: "circle",
        mask: r#"{"shape":"circle","center":[0.17,0.38],"radius":0.13,"feather":0}"#,
        holds: |[x, y], [w, h]| (x - 0.17 * w).hypot(y - 0.38 * h) <= 0.13 * w.min(h),
        part: [0.0, 0.18, THIRD, ROW],
        least: 0.95,
    },
    Shape {
        name: "rectangle",
        mask: r#"{"shape":"rectangle","from":[0.38,0.25],"to":[0.62,0.52],"feather":0}"#,
        holds: |[x, y], [w, h]| (0.38 * w..0.62 * w).contains(&x) && (0.25 * h..0.52 * h).contains(&y),
        part: [THIRD, 0.18, 2.0 * THIRD, ROW],
        least: 0.95,
    },
    Shape {
        name: "ellipse",
        mask: r#"{"shape":"ellipse","center":[0.83,0.38],"radius":[0.08,0.15],"feather":0}"#,
        holds: |[x, y], [w, h]| ((x - 0.83 * w) / (0.08 * w)).hypot((y - 0.38 * h) / (0.15 * h)) <= 1.0,
        part: [2.0 * THIRD, 0.18, 1.0, ROW],
        least: 0.95,
    },
    Shape {
        name: "turned ellipse",
        mask: r#"{"shape":"ellipse","center":[0.17,0.79],"radius":[0.14,0.08],"rotation":35,"feather":0}"#,
        holds: |[x, y], [w, h]| {
            let (sin, cos) = 35_f64.to_radians().sin_cos();
            let (x, y) = (x - 0.17 * w, y - 0.79 * h);
            ((x * cos + y * sin) / (0.14 * w)).hypot((y * cos - x * sin) / (0.08 * h)) <= 1.0
        },
        part: [0.0, ROW, THIRD, 1.0],
        least: 0.95,
    },
    Shape {
        name: "path",
        mask: r#"{"shape":"path","points":[[0.38,0.66],[0.62,0.70],[0.52,0.95],[0.42,0.9]],"feather":0}"#,
        holds: |[x, y], [w, h]| {
            let corners = [[0.38, 0.66], [0.62, 0.70], [0.52, 0.95], [0.42, 0.9]];
            // It is convex, and its corners go clockwise.
            (0..4).all(|at| {
                let [[ax, ay], [bx, by]] = [corners[at], corners[(at + 1) % 4]].map(|[x, y]| [x * w, y * h]);
                (bx - ax) * (y - ay) >= (by - ay) * (x - ax)
            })
        },
        part: [THIRD, ROW, 2.0 * THIRD, 1.0],
        least: 0.95,
    },
    Shape {
        name: "brush",
        mask: r#"{"shape":"brush","strokes":[[[0.74,0.7],[0.84,0.8],[0.93,0.92]]],"width":0.12,"hardness":1}"#,
        holds: |[x, y], [w, h]| {
            let points = [[0.74, 0.7], [0.84, 0.8], [0.93, 0.92]].map(|[x, y]| [x * w, y * h]);
            points.windows(2).any(|ends| {
                let ([ax, ay], [bx, by]) = (ends[0], ends[1]);
                let (dx, dy) = (bx - ax, by - ay);
                let along = (((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy)).clamp(0.0, 1.0);
                (x - ax - along * dx).hypot(y - ay - along * dy) <= 0.06 * w.min(h)
            })
        },
        part: [2.0 * THIRD, ROW, 1.0, 1.0],
        least: 0.9,
    },
];

/// What compresses the light of a raw into the range of a screen, of all darktables.
const TONE_MAPPERS: [&str; 3] = ["filmicrgb", "sigmoid", "agx"];

/// The edit without its tone mapper, which takes a third of the time, moves nothing, and hides how much light there is.
pub fn without_tone_mapper(mut state: EditState) -> EditState {
    for module in state.modules.iter_mut().filter(|m| TONE_MAPPERS.contains(&m.op.as_str())) {
        module.enabled = false;
    }
    state
}

/// How far the shapes darken, in EV.
const DARKER: f64 = -1.5;

/// All channels of a pixel in the numbers that exposure multiplies: the light of a raw, the codes of other photos.
fn level(is_raw: bool, pixel: &[u8]) -> f64 {
    pixel.iter().map(|code| if is_raw { LINEAR[usize::from(*code)] } else { f64::from(*code) }).sum()
}

/// The intersection over union of two sets of pixels, told by their columns and rows, within a part of the picture.
fn overlap(
    [width, height]: [usize; 2],
    [left, top, right, bottom]: [f64; 4],
    a: impl Fn(usize, usize) -> bool,
    b: impl Fn(usize, usize) -> bool,
) -> f64 {
    let at = |share: f64, length: usize| (share * length as f64).round() as usize;
    let (mut both, mut either) = (0, 0);
    for y in at(top, height)..at(bottom, height) {
        for x in at(left, width)..at(right, width) {
            let (a, b) = (a(x, y), b(x, y));
            both += usize::from(a && b);
            either += usize::from(a || b);
        }
    }
    both as f64 / either.max(1) as f64
}

/// A blemish as it shows: its middle, how far it reaches from there, and its pixels.
struct Blemish {
    center: [f64; 2],
    reach: f64,
    pixels: Vec<usize>,
}

/// The places where two pictures of one size differ clearly.
fn blemishes(marred: &Picture, clean: &Picture) -> Vec<Blemish> {
    let width = clean.width as usize;
    let apart = distances(marred, clean).unwrap();
    let mut open: Vec<bool> = apart.iter().map(|distance| *distance > 6.0).collect();
    let mut found = Vec::new();
    for start in 0..open.len() {
        let (mut pixels, mut next) = (Vec::new(), vec![start]);
        while let Some(at) = next.pop() {
            if !std::mem::take(&mut open[at]) {
                continue;
            }
            pixels.push(at);
            let around = [at.wrapping_sub(1), at + 1, at.wrapping_sub(width), at + width];
            next.extend(around.into_iter().filter(|at| *at < open.len()));
        }
        if pixels.is_empty() {
            continue;
        }
        let places: Vec<[f64; 2]> =
            pixels.iter().map(|at| [(at % width) as f64 + 0.5, (at / width) as f64 + 0.5]).collect();
        let mean = |axis: usize| places.iter().map(|place| place[axis]).sum::<f64>() / places.len() as f64;
        let center = [mean(0), mean(1)];
        let reach = places.iter().map(|[x, y]| (x - center[0]).hypot(y - center[1])).fold(0.0, f64::max);
        found.push(Blemish { center, reach, pixels });
    }
    found
}

/// What came of one edit of the frame on one photo.
pub struct Seen {
    pub photo: String,
    pub edit: &'static str,
    /// The clean photo with this edit.
    pub clean: Arc<Picture>,
    /// How far each shape's effect and the shape are one, as intersection over union.
    pub shapes: Vec<f64>,
    /// How far each shape's effect and what `show_mask` shows of it are one.
    pub shown: Vec<f64>,
    /// Black pixels of the outermost rows and columns.
    pub empty: usize,
    /// How far each blemish is from the clean photo once it was healed, in CIEDE2000: mean over its pixels.
    pub healed: Vec<f64>,
    /// How many pixels apart from the healed spots are not what they were.
    pub elsewhere: usize,
    /// What the program refused.
    pub refused: Vec<String>,
}

/// A photo that was taken in, beside its clean copy, which was not.
pub struct Taken {
    pub name: String,
    pub workspace: Workspace,
    pub clean: RawFile,
}

impl Taken {
    /// Takes in the file with blemishes.
    pub fn new(home: &Home, name: &str, marred: &[u8], clean: &[u8]) -> Self {
        let (stem, ending) = name.rsplit_once('.').unwrap();
        home.file(name, marred);
        let clean = home.file(&format!("{stem}-clean.{ending}"), clean);
        let id = stem.replace([' ', '_'], "-").to_lowercase();
        Self { name: stem.to_owned(), workspace: home.ingest(name, &id), clean }
    }

    /// Does one edit of the frame, and on top of it, one after the other, all shapes and all spots.
    pub fn see(&self, home: &Home, (edit, moves): (&'static str, &[Step])) -> Seen {
        let (baseline, facts) = home.facts(&self.workspace);
        let baseline = without_tone_mapper(baseline);
        let raw = self.workspace.raw();
        let mut seen = Seen {
            photo: self.name.clone(),
            edit,
            clean: Arc::new(Picture { width: 0, height: 0, rgb: Vec::new() }),
            shapes: Vec::new(),
            shown: Vec::new(),
            empty: 0,
            healed: Vec::new(),
            elsewhere: 0,
            refused: Vec::new(),
        };
        let framed = match home.apply(&baseline, &facts, moves) {
            Ok(framed) => framed,
            Err(refused) => {
                seen.refused.push(refused);
                return seen;
            }
        };
        seen.clean = home.render(&self.clean, &framed);
        seen.empty = empty_border(&seen.clean);
        let marred = home.render(&raw, &framed);
        if let Err(refused) = shapes(home, &raw, &framed, &facts, &marred, &mut seen) {
            seen.refused.push(refused);
        }
        if let Err(refused) = spots(home, &raw, &framed, &facts, &marred, &mut seen) {
            seen.refused.push(refused);
        }
        seen
    }
}

fn shapes(
    home: &Home,
    raw: &RawFile,
    framed: &EditState,
    facts: &PhotoFacts,
    before: &Picture,
    seen: &mut Seen,
) -> Result<(), String> {
    let masks: Vec<MaskSpec> = SHAPES.iter().map(|shape| serde_json::from_str(shape.mask).unwrap()).collect();
    let region = |mask: &MaskSpec| Region {
        mask: mask.clone(),
        parameter_values: BTreeMap::from([("ev".to_owned(), DARKER)]),
        ops: Vec::new(),
    };
    let regions: Vec<Region> = masks.iter().map(region).collect();
    let request = RegionsRequest { move_name: Some("exposure"), regions: &regions };
    let (vocabulary, layouts) = (&home.vocabulary, &home.layouts);
    let darker = vocabulary.apply_regions(&request, framed, facts, layouts, home.version());
    let darker = home.render(raw, &darker.map_err(|e| e.to_string())?.state);
    assert_eq!((darker.width, darker.height), (before.width, before.height));
    // A mask of half strength leaves the mean of what is there with and without it.
    let half = (1.0 + DARKER.exp2()) / 2.0;
    let is_raw = raw.path.extension().is_some_and(|ending| ending == "dng");
    let level = |pixel: &[u8]| level(is_raw, pixel);
    let pairs = darker.rgb.chunks_exact(3).zip(before.rgb.chunks_exact(3));
    let effect: Vec<bool> = pairs.map(|(darker, before)| level(darker) < half * level(before)).collect();

    let all = MaskSpec { union: Some(masks), ..MaskSpec::default() };
    let probe = vocabulary.mask_probe(&all, framed, facts, layouts).map_err(|e| e.to_string())?;
    let [without, with] = [&probe.without, &probe.with].map(|state| home.render(raw, state));
    let shown = probe.read(&without, &with).ok_or("the pictures of the mask differ in size")?;
    let shown: Vec<bool> = shown.effect().iter().map(|effect| *effect >= 0.5).collect();

    let (size, sides) = ([darker.width as usize, darker.height as usize], [darker.width, darker.height]);
    for shape in &SHAPES {
        let acts = |x: usize, y: usize| effect[y * size[0] + x];
        let drawn =
            |x: usize, y: usize| (shape.holds)([x as f64 + 0.5, y as f64 + 0.5], sides.map(f64::from));
        seen.shapes.push(overlap(size, shape.part, acts, drawn));
        seen.shown.push(overlap(size, shape.part, acts, |x, y| shown[y * size[0] + x]));
    }
    Ok(())
}

fn spots(
    home: &Home,
    raw: &RawFile,
    framed: &EditState,
    facts: &PhotoFacts,
    marred: &Picture,
    seen: &mut Seen,
) -> Result<(), String> {
    let [width, height] = [marred.width, marred.height].map(f64::from);
    let found = blemishes(marred, &seen.clean);
    let radius = |blemish: &Blemish| blemish.reach + 2.5;
    // Every other one by a circle, the rest by an outline of eight corners. It stands askew: where opposite corners
    // lie in one row of pixels, darktable may leave that row as it was.
    let spot = |(at, blemish): (usize, &Blemish)| {
        let [x, y] = blemish.center;
        let corner = |eighth: u32| {
            let (sin, cos) = (0.2 + f64::from(eighth) * std::f64::consts::FRAC_PI_4).sin_cos();
            [(x + radius(blemish) * cos) / width, (y + radius(blemish) * sin) / height]
        };
        match at % 2 {
            0 => Spot {
                x: Some(x / width),
                y: Some(y / height),
                radius: Some(radius(blemish) / width.min(height)),
                ..Spot::default()
            },
            _ => Spot { path: Some((0..8).map(corner).collect()), ..Spot::default() },
        }
    };
    let asked: Vec<Spot> = found.iter().enumerate().map(spot).collect();
    let applied = home.vocabulary.apply_spots(&asked, framed, facts, &home.layouts, home.version());
    let healed = home.render(raw, &applied.map_err(|e| e.to_string())?.state);
    assert_eq!((healed.width, healed.height), (marred.width, marred.height));
    let apart = distances(&healed, &seen.clean).unwrap();
    let mean = |blemish: &Blemish| {
        blemish.pixels.iter().map(|at| f64::from(apart[*at])).sum::<f64>() / blemish.pixels.len() as f64
    };
    seen.healed = found.iter().map(mean).collect();
    let near = |at: usize| {
        let [x, y] = [(at % marred.width as usize) as f64 + 0.5, (at / marred.width as usize) as f64 + 0.5];
        // The soft edge reaches 0.3 radii further.
        found.iter().any(|b| (b.center[0] - x).hypot(b.center[1] - y) < 1.4 * radius(b) + 2.0)
    };
    let changed = healed.rgb.chunks_exact(3).zip(marred.rgb.chunks_exact(3)).enumerate();
    seen.elsewhere = changed
        .filter(|(at, (a, b))| a.iter().zip(*b).any(|(a, b)| a.abs_diff(*b) > 1) && !near(*at))
        .count();
    Ok(())
}

/// How many pixels of the outermost rows and columns are black.
fn empty_border(picture: &Picture) -> usize {
    let (w, h) = (picture.width as usize, picture.height as usize);
    let outermost = |at: usize| [0, w - 1].contains(&(at % w)) || [0, h - 1].contains(&(at / w));
    let pixels = picture.rgb.chunks_exact(3).enumerate();
    pixels.filter(|(at, pixel)| outermost(*at) && pixel.iter().all(|value| *value < 16)).count()
}

/// What a camera would see: soft colours, nowhere dark, brighter to the right and redder downwards.
pub fn scene(width: u32, height: u32) -> Picture {
    let rgb = (0..height)
        .flat_map(|y| (0..width).map(move |x| (x * 100 / width, y * 100 / height)))
        .flat_map(|(x, y)| [(110 + x / 2 + y / 2) as u8, (110 + x / 2) as u8, (150 + x / 4 - y / 2) as u8])
        .collect();
    Picture { width, height, rgb }
}

/// The scene with twelve dark spots, all of them well inside.
pub fn marred(scene: &Picture) -> Picture {
    let [width, height] = [scene.width, scene.height].map(f64::from);
    let mut rgb = scene.rgb.clone();
    for (at, pixel) in rgb.chunks_exact_mut(3).enumerate() {
        let (x, y) = ((at as u32 % scene.width) as f64 + 0.5, (at as u32 / scene.width) as f64 + 0.5);
        let spot = [0.36, 0.47, 0.58, 0.69].iter().any(|across| {
            [0.33, 0.48, 0.63].iter().any(|down| (x - across * width).hypot(y - down * height) < 10.0)
        });
        if spot {
            pixel.copy_from_slice(&[60, 40, 40]);
        }
    }
    Picture { rgb, ..*scene }
}

/// How a picture is stored so that a reader who follows the Exif orientation shows it as it is.
pub fn stored(picture: &Picture, orientation: u16) -> Picture {
    let (w, h) = (picture.width, picture.height);
    let (width, height) = if orientation > 4 { (h, w) } else { (w, h) };
    let rgb = (0..height)
        .flat_map(|y| (0..width).map(move |x| (x, y)))
        .flat_map(|(x, y)| {
            // Where the stored pixel is shown. Exif 2.3, tag 274: which sides the first row and column are.
            let (x, y) = match orientation {
                1 => (x, y),
                2 => (w - 1 - x, y),
                3 => (w - 1 - x, h - 1 - y),
                4 => (x, h - 1 - y),
                5 => (y, x),
                6 => (w - 1 - y, x),
                7 => (w - 1 - y, h - 1 - x),
                8 => (y, h - 1 - x),
                other => panic!("there is no orientation {other}"),
            };
            let at = 3 * (y * w + x) as usize;
            [picture.rgb[at], picture.rgb[at + 1], picture.rgb[at + 2]]
        })
        .collect();
    Picture { width, height, rgb }
}

/// These of the [`EDITS`] on all photos, by two threads.
pub fn table(home: &Home, photos: &[Taken], edits: &[usize]) -> Vec<Seen> {
    let cells: Vec<(&Taken, (&'static str, &'static [Step]))> =
        photos.iter().flat_map(|photo| edits.iter().map(move |edit| (photo, EDITS[*edit]))).collect();
    both(&cells, |(photo, edit)| photo.see(home, *edit))
}

/// Does `work` on every item by two threads, each with a half of them.
pub fn both<T: Sync, U: Send>(items: &[T], work: impl Fn(&T) -> U + Sync) -> Vec<U> {
    let work = &work;
    std::thread::scope(|scope| {
        let halves = items.chunks(items.len().div_ceil(2).max(1));
        let threads: Vec<_> =
            halves.map(|half| scope.spawn(move || half.iter().map(work).collect::<Vec<_>>())).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// Whatever of a table is not as it has to be, in words; a photo's plain picture stands in the table too.
pub mod broken {
    use super::{SHAPES, Seen};

    pub fn refused(table: &[Seen]) -> Vec<String> {
        let of = |seen: &Seen| -> Vec<String> {
            seen.refused.iter().map(|words| format!("{}, {}: {words}", seen.photo, seen.edit)).collect()
        };
        table.iter().flat_map(of).collect()
    }

    fn overlaps(seen: &Seen, figures: &[f64]) -> Option<String> {
        let far = SHAPES.iter().zip(figures).filter(|(shape, figure)| **figure < shape.least);
        let far: Vec<String> = far.map(|(shape, figure)| format!("{} {figure:.3}", shape.name)).collect();
        let whole = figures.len() == SHAPES.len();
        (!far.is_empty() || !whole).then(|| format!("{}, {}: {}", seen.photo, seen.edit, far.join(", ")))
    }

    /// Shapes that act elsewhere than they were drawn.
    pub fn shapes(table: &[Seen]) -> Vec<String> {
        table.iter().filter_map(|seen| overlaps(seen, &seen.shapes)).collect()
    }

    /// Masks that are shown elsewhere than they act.
    pub fn shown(table: &[Seen]) -> Vec<String> {
        table.iter().filter_map(|seen| overlaps(seen, &seen.shown)).collect()
    }

    /// Pictures with empty corners, and such as were straightened to another shape.
    pub fn corners(table: &[Seen]) -> Vec<String> {
        let aspect = |seen: &Seen| f64::from(seen.clean.width) / f64::from(seen.clean.height);
        let of = |seen: &Seen| {
            let mut words = Vec::new();
            if seen.empty > 0 {
                words.push(format!("{} black pixels", seen.empty));
            }
            let asked = seen.edit.strip_prefix("ratio ").map(|ratio| ratio.parse().unwrap());
            if asked.is_some()
                || ["straighten 6", "straighten -4", "perspective", "shear"].contains(&seen.edit)
            {
                let plain = table.iter().find(|other| other.photo == seen.photo && other.edit == "plain");
                let change = aspect(seen) / asked.unwrap_or(plain.map_or(0.0, aspect));
                if !(0.99..1.01).contains(&change) {
                    words.push(format!("{} to {} instead", seen.clean.width, seen.clean.height));
                }
            }
            (!words.is_empty()).then(|| format!("{}, {}: {}", seen.photo, seen.edit, words.join(", ")))
        };
        table.iter().filter_map(of).collect()
    }

    /// Spots that are still there, and what was changed beside them.
    pub fn spots(table: &[Seen]) -> Vec<String> {
        let of = |seen: &Seen| {
            let gone = seen.healed.iter().filter(|distance| **distance < 2.0).count();
            let (all, beside) = (seen.healed.len(), seen.elsewhere);
            let whole = (gone, all, beside) == (12, 12, 0);
            (!whole).then(|| {
                format!("{}, {}: {gone} of {all} gone, {beside} pixels beside", seen.photo, seen.edit)
            })
        };
        table.iter().filter_map(of).collect()
    }
}

/// The mean difference of two pictures of about one size, in codes: a row or column more or less is left out.
pub fn difference(a: &Picture, b: &Picture) -> Option<f64> {
    let alike = a.width.abs_diff(b.width) <= 1 && a.height.abs_diff(b.height) <= 1;
    let (width, height) = (a.width.min(b.width), a.height.min(b.height));
    if !alike || width == 0 {
        return None;
    }
    let row = |picture: &Picture, y: u32| {
        let start = 3 * (y * picture.width) as usize;
        start..start + 3 * width as usize
    };
    let apart = (0..height).flat_map(|y| a.rgb[row(a, y)].iter().zip(&b.rgb[row(b, y)]));
    let total: u64 = apart.map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
    Some(total as f64 / f64::from(3 * width * height))
}

/// Where a file of the library lies.
pub fn photo_json(workspace: &Workspace) -> serde_json::Value {
    let path: &Path = workspace.folder();
    serde_json::from_slice(&std::fs::read(path.join("photo.json")).unwrap()).unwrap()
}
