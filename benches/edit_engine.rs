//! The cost of the edit engine without a render: `cargo bench --bench edit_engine`.
//!
//! Reading the whole vocabulary, as every start of the program does; and of an edit of forty instances, most of
//! them masked: making it, its sidecar, the way back, and its hash.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use base::assets::Overlay;
use darktable::frame::{Orientation, StoredSize};
use darktable::layout::Layouts;
use darktable::state::{EditState, Module, Params, Value};
use darktable::{order, params, xmp};
use engine::vocabulary::{ApplyRequest, Filter, MaskSpec, PhotoFacts, Vocabulary};
use pixels::Picture;
use pixels::outline::Outline;
use pixels::segment::segment;

const VERSION: &str = "4.2.1";
const INSTANCES: usize = 40;
const ROUNDS: u32 = 200;

/// The mean time of one round, after a few that do not count.
fn time<T>(mut work: impl FnMut() -> T) -> Duration {
    for _ in 0..5 {
        black_box(work());
    }
    let started = Instant::now();
    for _ in 0..ROUNDS {
        black_box(work());
    }
    started.elapsed() / ROUNDS
}

/// A photo as darktable opens one, as far as moves look at it.
fn photo(layouts: &Layouts) -> PhotoFacts {
    let module = |op: &str| {
        let known = layouts.module(op).unwrap().unwrap();
        let layout = known.version(known.own_version(VERSION).unwrap()).unwrap();
        let mut fields = params::defaults(layout);
        for gain in ["red", "green", "blue"].into_iter().filter(|_| op == "temperature") {
            fields.insert(gain.to_owned(), Value::Float(1.5));
        }
        Module {
            blend: None,
            enabled: true,
            instance: 0,
            modversion: layout.modversion,
            name: String::new(),
            op: op.to_owned(),
            params: Params::Fields(fields),
        }
    };
    let ops =
        ["rawprepare", "temperature", "highlights", "demosaic", "flip", "exposure", "colorin", "filmicrgb"];
    let ops = ops.into_iter().chain(["colorout", "gamma"]);
    let mut baseline = EditState { modules: ops.map(module).collect(), ..EditState::default() };
    order::sort(&mut baseline);
    PhotoFacts {
        baseline,
        size: StoredSize { width: 6000, height: 4000 },
        orientation: Orientation::default(),
        shot: engine::vocabulary::Shot::default(),
    }
}

/// Masked moves, each under a circle of its own, until there are enough instances.
fn busy(vocabulary: &Vocabulary, layouts: &Layouts, facts: &PhotoFacts) -> EditState {
    let values = BTreeMap::new();
    let listed = vocabulary.list(&Filter::default(), layouts, VERSION).unwrap();
    let mut state = facts.baseline.clone();
    for (entry, n) in listed.iter().filter(|entry| entry.maskable).cycle().zip(0_u32..) {
        if state.modules.len() >= INSTANCES {
            break;
        }
        let x = 0.1 + 0.8 * f64::from(n) / 60.0;
        let mask = format!(r#"{{"shape":"circle","center":[{x},0.5],"radius":0.1,"feather":0.1}}"#);
        let mask: MaskSpec = serde_json::from_str(&mask).unwrap();
        let request = ApplyRequest { move_name: entry.name, values: &values, mask: Some(&mask) };
        state = vocabulary.apply(&request, &state, facts, layouts, VERSION).unwrap().state;
    }
    state
}

fn main() {
    let start = || {
        let layouts = Layouts::new(Overlay::vocabulary(None));
        let vocabulary = Vocabulary::load(&Overlay::vocabulary(None)).unwrap();
        let listed = vocabulary.list(&Filter::default(), &layouts, VERSION).unwrap().len();
        (layouts, vocabulary, listed)
    };
    let first = Instant::now();
    let (layouts, vocabulary, listed) = start();
    let first = first.elapsed();
    let facts = photo(&layouts);
    let state = busy(&vocabulary, &layouts, &facts);
    let text = xmp::write(&state, &layouts, "photo.dng").unwrap();
    assert_eq!(xmp::read(text.as_bytes(), &layouts).unwrap(), state);

    let encode = time(|| xmp::write(&state, &layouts, "photo.dng").unwrap());
    let decode = time(|| xmp::read(text.as_bytes(), &layouts).unwrap());
    let hash = time(|| state.hash());
    let values = BTreeMap::new();
    let request = ApplyRequest { move_name: "exposure", values: &values, mask: None };
    let apply = time(|| vocabulary.apply(&request, &state, &facts, &layouts, VERSION).unwrap());
    println!("instances, mask forms     {}, {}", state.modules.len(), state.masks.len());
    println!("sidecar                   {} kB", text.len() / 1000);
    println!("encoding it               {encode:.2?}");
    println!("decoding it               {decode:.2?}");
    println!("hashing the state         {hash:.2?}");
    println!("these three               {:.2?}", encode + decode + hash);
    println!("one more move on it       {apply:.2?}");
    println!("finding a thing           {:.2?} at 1024 px", found());
    println!("reading the vocabulary    {first:.2?} the first time, {listed} moves listed");
}

/// The time in which a thing and its outline are found in a noisy picture.
fn found() -> Duration {
    let (width, height) = (1024_u32, 683_u32);
    let colour = |at: u32| {
        let (x, y) = (at % width, at / width);
        let noise = (at.wrapping_mul(0x9e37_79b1) >> 28) as u8;
        match (f64::from(x) - 512.0).hypot(f64::from(y) - 340.0) < 200.0 + f64::from(x % 90) {
            true => [170 + noise, 90 + noise, 60 + noise],
            false => [60 + noise, 100 + (x / 16) as u8 + noise, 90 + noise],
        }
    };
    let picture = Picture { width, height, rgb: (0..width * height).flat_map(colour).collect() };
    let started = Instant::now();
    let rounds = 10;
    for _ in 0..rounds {
        let region = segment(&picture, &[[0.5, 0.5]], &[[0.1, 0.1]]);
        black_box(Outline::of(&region, 0.0, 160, 0.0005));
    }
    started.elapsed() / rounds
}
