//! How far a preview from a smaller copy of the raw is off, and how much sooner it is there.
//!
//! `cargo run --example proxy_table -- dense|smooth MEGAPIXELS STEP N…` renders every STEPth tone move and every STEPth colour
//! move of the vocabulary, at its default values, on a raw of 6 or 24 megapixels: as a preview from the raw, as it
//! is judged, and as a preview from copies that are N times smaller. Mean ΔE2000 at 1024 pixels. Times are seconds
//! of the processor in a darktable that is kept alive: they mean the same on a busy machine, and in any build.
//!
//! The raw is the demo's photo. *Dense*: doubled as for `demo-raw`, so that its detail is as fine as its pixels, and
//! laid out in a mirrored pattern; more detail than a photograph has. *Smooth*: enlarged until it fills the frame;
//! less. A photograph lies between.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a tool for developers, who want the backtrace"
)]
#![allow(missing_docs, reason = "an example has no readers but its own")]
#![allow(clippy::print_stdout, reason = "it is run by hand")]

use std::sync::Arc;

use darktable::dng::demo_photo;
use darktable::proxy::{Choice, Proxies};
use darktable::render::{ByHand, Picture, Quality, RawFile, RenderRequest, Renderer as _};
use darktable::state::EditState;
use pixels::metrics::difference::Difference;
use testkit::demo::{Demo, deadline};

/// Longest side of the pictures.
const LONG_EDGE: u32 = 1024;
/// Linux counts processor time in hundredths of a second.
const TICKS: f64 = 100.0;

fn main() {
    let mut words = std::env::args().skip(1);
    let smooth = words.next().unwrap() == "smooth";
    let mut numbers = words.map(|word| word.parse::<u32>().unwrap());
    let (width, height) = match numbers.next() {
        Some(24) => (6000, 4000),
        _ => (3000, 2000),
    };
    let step = numbers.next().unwrap_or(1) as usize;
    let factors: Vec<u32> = numbers.collect();
    let demo = Demo::of(&picture(smooth, width, height));
    let folder = tempfile::tempdir().unwrap();
    let proxies = Proxies::new(folder.path());
    let copy = |n: &u32| proxies.of(&demo.raw, Choice::By(*n), LONG_EDGE).unwrap().unwrap().1;
    let copies: Vec<RawFile> = factors.iter().map(copy).collect();
    let worker = demo.worker();
    let render = |raw: &RawFile, state: &EditState, quality| -> (Arc<Picture>, f64) {
        let request = RenderRequest { raw, state, long_edge: LONG_EDGE, quality };
        let before = used(&worker.pids());
        let rendered = worker.render(&request, &deadline(), &ByHand).unwrap();
        assert_eq!(worker.troubles(), 0);
        (rendered.picture, used(&worker.pids()) - before)
    };
    // The first picture of a process is slower.
    render(&demo.raw, &demo.facts.baseline, Quality::Preview);
    render(&demo.raw, &demo.facts.baseline, Quality::Judge);

    println!("darktable {}, {width}x{height}\n", demo.version());
    print!("| move | preview, s | judged, s | preview to judged ");
    factors.iter().for_each(|n| print!("| N={n}, s | to preview | to judged "));
    println!("|\n|---|{}", "---:|".repeat(3 + 3 * factors.len()));
    let mut sums = vec![0.0; 3 + 3 * factors.len()];
    let mut worst = vec![0.0_f64; sums.len()];
    let states = sample(&demo, step);
    for (name, state) in &states {
        let (preview, preview_time) = render(&demo.raw, state, Quality::Preview);
        let (judged, judged_time) = render(&demo.raw, state, Quality::Judge);
        let off = |a: &Picture, b: &Picture| Difference::between(a, b).unwrap().mean;
        let mut row = vec![preview_time, judged_time, off(&preview, &judged)];
        for copy in &copies {
            let (picture, time) = render(copy, state, Quality::Preview);
            row.extend([time, off(&picture, &preview), off(&picture, &judged)]);
        }
        line(name, &row);
        for ((sum, worst), value) in sums.iter_mut().zip(&mut worst).zip(row) {
            *sum += value;
            *worst = worst.max(value);
        }
    }
    line("**mean**", &sums.iter().map(|sum| sum / states.len() as f64).collect::<Vec<_>>());
    line("**worst**", &worst);
}

/// Seconds of the processor that these processes have used.
fn used(pids: &[u32]) -> f64 {
    let of = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        // After the name, which ends the last bracket, user time is the twelfth and system time the next.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / TICKS
    };
    pids.iter().map(of).sum()
}

fn line(name: &str, row: &[f64]) {
    let cells: Vec<String> = row.iter().map(|value| format!(" {value:.2} |")).collect();
    println!("| {name} |{}", cells.concat());
}

/// The untouched photo, and each move of the sample on it.
fn sample(demo: &Demo, step: usize) -> Vec<(String, EditState)> {
    let entries = demo.vocabulary.entries();
    let every =
        |file: &'static str| entries.iter().filter(move |entry| entry.file.ends_with(file)).step_by(step);
    let moves = every("tone.toml").chain(every("color.toml"));
    let mut states = vec![("untouched".to_owned(), demo.facts.baseline.clone())];
    for entry in moves.filter(|entry| entry.shown_on.is_none()) {
        let values = entry.values(|parameter| parameter.default);
        // Some are for a newer darktable.
        if let Ok(state) = demo.try_state(&demo.facts.baseline, entry.name, &values, None) {
            states.push((format!("`{}`", entry.name), state));
        }
    }
    states
}

/// The photo, enlarged, or doubled over and over, each time mirrored, so that there are no seams.
fn picture(smooth: bool, width: u32, height: u32) -> Picture {
    let photo = demo_photo().unwrap();
    let photo = image::RgbImage::from_raw(photo.width, photo.height, photo.rgb).unwrap();
    let (across, down) = if smooth { (width, height) } else { (2 * photo.width(), 2 * photo.height()) };
    let photo = image::imageops::resize(&photo, across, down, image::imageops::FilterType::Triangle);
    let mirrored = |at: u32, size: u32| match at / size % 2 {
        0 => at % size,
        _ => size - 1 - at % size,
    };
    let places = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
    let rgb = places.flat_map(|(x, y)| photo.get_pixel(mirrored(x, across), mirrored(y, down)).0).collect();
    Picture { width, height, rgb }
}
