//! A sheet of a golden set: each scenario's photo as darktable develops it, and its hidden edit beside it.
//!
//! `cargo run --example golden_sheet -- SET RAWS SHEET.png [EDGE [COLUMNS [SCENARIO…]]]` makes the raws in the folder RAWS,
//! prints the SHA-256 of each that is made of a picture and how far the hidden edit is from the baseline (mean
//! ΔE2000, all over and in each region), and draws the sheet, EDGE pixels a picture (240) and COLUMNS scenarios a row (3).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a tool for developers, who want the backtrace")]
#![allow(missing_docs, reason = "an example has no readers but its own")]
#![allow(clippy::print_stdout, reason = "it is run by hand")]

use std::path::Path;
use std::sync::Arc;

use base::assets::Overlay;
use base::clock::Deadline;
use base::ids::Hash;
use chemigram::eval::metrics::MeasureContext;
use chemigram::eval::metrics::pixels::{Gaze, Yardstick};
use chemigram::eval::scenario::{SCENARIO_FILE, Scenario};
use darktable::baseline;
use darktable::layout::Layouts;
use darktable::probe::DarktableCli;
use darktable::render::Picture;
use darktable::worker::Worker;
use darktable::xmp;
use engine::photo::Library;
use engine::vocabulary::Vocabulary;
use image::{Rgb, RgbImage, imageops};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [set, raws, sheet, rest @ ..] = &arguments[..] else {
        panic!("usage: golden_sheet SET RAWS SHEET.png [EDGE [COLUMNS [SCENARIO…]]]")
    };
    let raws = Path::new(raws);
    let edge: u32 = rest.first().map_or(240, |edge| edge.parse().unwrap());
    let columns: u32 = rest.get(1).map_or(3, |columns| columns.parse().unwrap());
    let wanted = rest.get(2..).unwrap_or_default();
    let mut folders: Vec<_> = std::fs::read_dir(set).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.retain(|folder| folder.join(SCENARIO_FILE).is_file());
    folders.sort();
    let scenarios = folders.iter().map(|folder| Scenario::load(folder).unwrap_or_else(|e| panic!("{e}")));
    let named =
        |scenario: &Scenario| wanted.is_empty() || wanted.iter().any(|one| scenario.id.starts_with(one));
    let scenarios: Vec<Scenario> = scenarios.filter(named).collect();

    let home = tempfile::tempdir().unwrap();
    let cli = DarktableCli::find(&Deadline::never()).unwrap();
    let layouts = Arc::new(Layouts::new(Overlay::vocabulary(None)));
    let vocabulary = Vocabulary::load(&Overlay::vocabulary(None)).unwrap();
    let encode = layouts.clone();
    let encode = move |state: &_, name: &str| xmp::write(state, &encode, name).map_err(|e| e.to_string());
    let worker = Worker::new(cli.clone(), home.path(), Arc::new(encode)).unwrap();
    let deadline = Deadline::never();
    let context =
        MeasureContext { vocabulary: &vocabulary, layouts: &layouts, renderer: &worker, deadline: &deadline };
    let ask = |raw: &Path| baseline::ask(&cli, &layouts, raw, home.path(), &deadline);

    let rows = (scenarios.len() as u32).div_ceil(columns);
    let (cell_width, cell_height) = (2 * edge + 12, edge + 8);
    let mut page = RgbImage::from_pixel(columns * cell_width, rows * cell_height, Rgb([255; 3]));
    for (at, mut scenario) in (0..).zip(scenarios) {
        if let Some(recipe) = &scenario.image.recipe {
            let sha256 =
                Hash::of(recipe.make(&scenario.folder).unwrap_or_else(|e| panic!("{}: {e}", scenario.id)));
            if sha256 != scenario.image.sha256 {
                println!("{} sha256 {sha256}", scenario.id);
                scenario.image.sha256 = sha256;
            }
        }
        let library = Library::new(home.path().join(&scenario.id));
        let photo = scenario.stage(&library, &home.path().join("tastes"), Some(raws), &ask).unwrap();
        let facts = photo.facts(&photo.resolve("main").unwrap()).unwrap();
        let gaze = Gaze::new(&context, photo.raw(), facts.clone(), 2 * edge);
        let before = gaze.see(&facts.baseline).unwrap();
        let target = scenario
            .target(&context, &facts)
            .unwrap_or_else(|e| panic!("{e}: {:?}", std::error::Error::source(&e).map(ToString::to_string)));
        let after = target.map_or_else(|| before.clone(), |state| gaze.see(&state).unwrap());
        let regions = gaze.regions(&scenario.regions).unwrap();
        match Yardstick::new(before.clone(), after.clone(), regions) {
            Some(yardstick) => {
                println!("{} {:.2} {:?}", scenario.id, yardstick.length(), yardstick.regions())
            }
            None => println!("{} nothing to see", scenario.id),
        }
        let (x, y) = (at % columns * cell_width, at / columns * cell_height);
        for (picture, x) in [(&before, x), (&after, x + edge + 2)] {
            let small = small(picture, edge);
            imageops::replace(&mut page, &small, i64::from(x), i64::from(y));
        }
    }
    page.save(sheet).unwrap();
}

fn small(picture: &Picture, edge: u32) -> RgbImage {
    let image = RgbImage::from_raw(picture.width, picture.height, picture.rgb.clone()).unwrap();
    let longest = picture.width.max(picture.height);
    let side = |length: u32| (length * edge / longest).max(1);
    imageops::resize(&image, side(picture.width), side(picture.height), imageops::FilterType::Triangle)
}
